"""Which convolutions PyTorch computes in TF32 is asked by running them (wwbridge/tf32.py): here with operators that
round, as cuDNN's may, and as the cpu computes them."""

from contextlib import nullcontext

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from wwbridge import tf32

NUMBERS = {"none": [], "input": [0], "weight": [1], "both": [0, 1]}


def tf32_of(t):
    return ((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class Rounding(TorchDispatchMode):
    """Convolutions whose operands of these numbers are rounded; calls counts all."""

    def __init__(self, numbers=()):
        super().__init__()
        self.numbers, self.calls = numbers, 0

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket is torch.ops.aten.convolution:
            self.calls += 1
            args = [tf32_of(a) if i in self.numbers else a for i, a in enumerate(args)]
        return func(*args, **(kwargs or {}))


def form(*sizes, strides=None, dtype="float32"):
    return {"dtype": dtype, "sizes": list(sizes), "strides": list(strides or torch.empty(sizes).stride())}


def graph(*nodes, **tensors):
    return {"inputs": [{"name": n, **t} for n, t in tensors.items()], "params": [], "nodes": [
        {"name": f"n{i}", "op": f"aten.{op}", "args": [{"ref": a} if isinstance(a, str) and a in tensors else a
                                                       for a in args], "kwargs": {}, "out": [out]}
        for i, (op, args, out) in enumerate(nodes)]}


def asked(g, numbers=()):
    with torch.no_grad(), Rounding(numbers) as mode:
        return list(tf32.convolutions_in_tf32(g, torch.device("cpu"), nullcontext()).values()), mode.calls


KINDS = graph(
    ("conv2d.default", ["x", "w", None, [2, 2], [1, 1]], form(2, 6, 5, 4)),
    ("conv2d.default", ["last", "w", "b", [2, 2], [1, 1]], form(2, 6, 5, 4)),
    ("conv2d.padding", ["x", "w", None, [1, 1], "same"], form(2, 6, 9, 8)),
    ("conv2d.default", ["one", "w"], form(6, 7, 6)),
    ("conv2d.default", ["spread", "w"], form(2, 6, 7, 6)),
    ("conv2d.default", ["x", "grouped", None, [1, 1], [0, 0], [1, 1], 4], form(2, 8, 7, 6)),
    ("conv_transpose2d.input", ["x", "back", None, [2, 2]], form(2, 5, 19, 17)),
    ("conv1d.default", ["line", "taps", None, [1], [100]], form(1, 3, 12)),
    ("convolution.default", ["x", "w", None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1], form(2, 6, 7, 6)),
    x=form(2, 4, 9, 8), last=form(2, 4, 9, 8, strides=(288, 1, 32, 4)), one=form(4, 9, 8), w=form(6, 4, 3, 3),
    spread=form(2, 4, 9, 8, strides=(0, 72, 8, 1)), b=form(6), grouped=form(8, 1, 3, 3), back=form(4, 5, 3, 3),
    line=form(1, 300, 12), taps=form(3, 300, 201))


def every_kind_of_convolution_is_asked():
    for name, numbers in NUMBERS.items():
        answers, _ = asked(KINDS, numbers)
        assert answers == [bool(numbers)] * len(KINDS["nodes"]), (name, answers)


def a_geometry_is_asked_once():
    again = {**KINDS, "nodes": [*KINDS["nodes"], *({**n, "name": f"{n['name']}_again"} for n in KINDS["nodes"])]}
    answers, calls = asked(again)
    assert len(answers) == 2 * len(KINDS["nodes"]) and calls == 3 * len(KINDS["nodes"]), (answers, calls)


def what_tf32_is_not_for_is_not_asked():
    halves = [form(2, 4, 9, 8, dtype="float16"), form(6, 4, 3, 3, dtype="float16"), form(2, 6, 7, 6, dtype="float16")]
    g = graph(("conv2d.default", ["h", "v"], halves[2]), ("linear.default", ["x", "m"], form(2, 4, 9, 3)),
              ("conv2d.default", ["none", "w"], form(0, 6, 7, 6)), ("conv1d.default", ["line", "taps"], form(1, 1, 2)),
              h=halves[0], v=halves[1], x=form(2, 4, 9, 8), m=form(3, 8), none=form(0, 4, 9, 8), w=form(6, 4, 3, 3),
              line=form(1, 1, 2050), taps=form(1, 1, 2049))
    assert asked(g) == ([], 0)


def what_fails_is_not_known():
    """As for lack of memory; the task is judged all the same."""
    g = graph(("conv2d.default", ["x", "w"], form(2, 6, 7, 6)), x=form(2, 5, 9, 8), w=form(6, 4, 3, 3))
    assert asked(g)[0] == [None]


TESTS = [every_kind_of_convolution_is_asked, a_geometry_is_asked_once, what_tf32_is_not_for_is_not_asked,
         what_fails_is_not_known]
