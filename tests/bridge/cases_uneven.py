"""Draws with a few much larger elements (bridge/wwbridge/uneven.py): which inputs of which tasks, how large, and that
nobody who reads a part of them is right."""

import torch
from wwbridge import Refuse, facts
from wwbridge.task import Task
from wwbridge.tensors import span
from wwbridge.uneven import MARGIN, factor, largest

NORM = "x * torch.rsqrt(x.float().square().mean() + 1e-6).bfloat16()"
WIDE = "torch.randn(128, 128).bfloat16()"
SEEDS = range(40)


def task(forward, inputs, seed=3):
    text = ("import math, torch, torch.nn as nn, torch.nn.functional as F\nclass Model(nn.Module):\n"
            "    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.ones(1))\n"
            f"    def forward(self, *args):\n        x = args[0]\n        return {forward}\n"
            f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return []\n")
    return Task(text, "test.py", seed, facts.Target("cpu", 0, torch))


def drawn(k, seed, uneven, keep=""):
    assert k.draw(seed, 1.0, 0.0, "redraw", keep, lot="uneven" if uneven else "plain") == bool(k.uneven())
    return [span(t).clone() for t in (*k.inputs, *k.params.values())]


def what_counts_are_large_inputs_drawn_element_by_element():
    """(inputs that are uneven, the largest factor; -1: the others are smaller)"""
    for forward, inputs, which, most in (
            ("x * 2", f"[{WIDE}]", [0], 256),
            ("x * 2", "[torch.randn(32, 32).bfloat16()]", [], 0),
            ("x * 2", "[torch.randn(128, 128)]", [], 0),  # a part is not enough for float32's limit
            ("x * 2", "[torch.randn(128, 64).half()]", [], 0),  # nor of so few for float16's
            ("x * 2", "[torch.randn(256, 256).half()]", [0], 512),
            ("x * 2", f"[{WIDE}.T, torch.randn(128, 256).bfloat16()[:, ::2]]", [0, 1], 256),
            ("x * 2", "[torch.randn(1, 8192).bfloat16().expand(4, 8192)]", [0], 512),
            ("x @ args[1]", f"[torch.tril({WIDE}), {WIDE}]", [0, 1], 256),
            ("x * args[1]", f"[{WIDE}, (torch.rand(128, 128) > 0.5).bfloat16()]", [0], 256),  # a mask
            ("x @ x", f"[(lambda a: a + a.T)({WIDE})]", [], 0),  # symmetric
            ("x + args[1]", f"(lambda a: [a, a])({WIDE})", [], 0),  # two are one
            ("x + args[2]", f"(lambda a: [a, a, {WIDE}])({WIDE})", [2], 256),
            ("x * 2", f"[{WIDE}.sort(-1).values]", [], 0),
            ("x * 2", f"[{WIDE}.softmax(-1)]", [], 0),
            ("x * 2", "[torch.ones(128, 128).bfloat16() / 3]", [], 0),
            ("(2 * x).exp()", f"[{WIDE}]", [0], 2),
            ("(x * x).half()", "[torch.randn(256, 256).half()]", [0], 8),
            ("x.acos()", "[torch.rand(128, 128).bfloat16()]", [0], -1),
            ("F.binary_cross_entropy(x.float(), args[1].float(), reduction='none').bfloat16()",
             "[torch.rand(128, 128).bfloat16() for _ in range(2)]", [0, 1], -1)):
        with torch.no_grad():
            u = task(forward, inputs).uneven()
        assert (u.inputs, u.most) == (which, most), f"{forward} of {inputs}: {u.inputs}, {u.most}"


def few_change_in_uneven_draws_and_parameters_do_not():
    k, counts = task(NORM, f"[{WIDE}]"), []
    for seed in SEEDS:
        (x, w), (y, v) = drawn(k, seed, False), drawn(k, seed, True)
        again = drawn(k, seed, True)
        assert torch.equal(again[0], y) and torch.equal(w, v)
        at = x != y
        counts.append(int(at.sum()))
        assert counts[-1] <= largest(k.inputs[0])
        assert torch.equal(y[at].double(), (x[at].double() * factor(x, 1024)))
    assert min(counts) > 0 and len({1, 2, 4} & set(counts)) == 3 and max(counts) > 16


def where_values_have_a_range_the_others_become_smaller():
    k = task("x.acos()", "[torch.rand(128, 128).bfloat16()]")
    for seed in SEEDS:
        (x, _), (y, _) = drawn(k, seed, False), drawn(k, seed, True)
        assert float(y.min()) >= 0 and float(y.max()) <= 1
        assert int((y == x / 64).sum()) > 0.9 * x.numel()


def references_are_finite():
    """The largest factors are tried with a margin, so a draw with the lot's is finite, too."""
    for forward, dtype in (("x.exp()", "bfloat16"), ("(x * x).half()", "float16"), ("x @ args[1]", "float16"),
                           ("F.scaled_dot_product_attention(*(t.unsqueeze(0) for t in args))", "float16")):
        k = task(forward, f"[torch.randn(4, 256, 64, dtype=torch.{dtype}) for _ in range(2)] + "
                          f"[torch.randn(4, 256, 64, dtype=torch.{dtype})]" if "attention" in forward
                 else f"[torch.randn(256, 256, dtype=torch.{dtype}) for _ in range(2)]")
        for seed in range(8):
            drawn(k, seed, True)
            with torch.no_grad():
                assert k.reference()["finite"], (forward, seed)
        assert k.uneven().most, forward
    assert MARGIN > 1


def accepted(k, seed, square, uneven):
    """Does the rule take a norm by this estimate of the mean square?"""
    drawn(k, seed, uneven)
    x = k.inputs[0].float().flatten()
    with torch.no_grad():
        k._shared.outputs[0].copy_(k.inputs[0] * torch.rsqrt(square(x) + 1e-6).bfloat16())
        return k.compare("strict")["pass"]


def who_reads_a_part_is_wrong():
    def looks(x):
        part = x[::2]
        return (x if part.abs().max() > 8 * part.square().mean().sqrt() else part).square().mean()

    ways = {"all": lambda x: x.square().mean(), "half": lambda x: x[::2].square().mean(), "looks": looks}
    k, seeds = task(NORM, "[torch.randn(1 << 15).bfloat16()]"), range(8)
    k.share()
    right = {name: [sum(accepted(k, seed, way, uneven) for seed in seeds) for uneven in (False, True)]
             for name, way in ways.items()}
    assert all(plain >= 7 for plain, _ in right.values()), right  # so that is what it is for
    assert right["all"][1] == 8 and right["looks"][1] < 8 and right["half"][1] < 5, right


def requests_and_the_pool_tell_them_apart():
    k = task(NORM, f"[{WIDE}]")
    k._pool.limit = 1 << 24
    seed = next(s for s in SEEDS if not torch.equal(drawn(k, s, True)[0], drawn(k, s, False)[0]))
    first = [drawn(k, seed, uneven, "strict")[0] for uneven in (False, True)]
    again = [drawn(k, seed, uneven, "strict")[0] for uneven in (False, True)]
    assert not torch.equal(*first) and all(torch.equal(a, b) for a, b in zip(first, again))
    for scale, shift, params, lot in ((64.0, 0.0, "redraw", "uneven"), (1.0, 3.0, "redraw", "plain"),
                                      (1.0, 0.0, "init", "uneven"), (1.0, 0.0, "keep", "plain"),
                                      (1.0, 0.0, "redraw", "some")):
        try:
            k.draw(1, scale, shift, params, lot=lot)
            raise AssertionError("was not refused")
        except Refuse as e:
            assert e.kind == "request"


TESTS = [what_counts_are_large_inputs_drawn_element_by_element, few_change_in_uneven_draws_and_parameters_do_not,
         where_values_have_a_range_the_others_become_smaller, requests_and_the_pool_tell_them_apart]
COSTLY = [references_are_finite, who_reads_a_part_is_wrong]
