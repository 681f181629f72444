#!/usr/bin/env python3
# budget: 22 CPU-seconds
# timeout: 900
"""A whole `optimize` for each family of examples on the cpu target: what the planner writes first for each of the twelve is correct by `strict`.

The examples of a family are the parts of one task, each with outputs of its own, so that one process of PyTorch and one judgement do for
all of them, and each must be right in the company of the others.  The sizes are those of examples/cpu made smaller, and the search and the
timing are cut short: how fast the results are is `make bench`'s business.  A judgement that is timed compares eight of its timed calls
beside the five draws of verify."""
import concurrent.futures
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from optimizing import *  # noqa: F403,E402

EXAMPLES = sorted(n[:-3] for n in os.listdir(os.path.join(ROOT, "examples/cpu")) if n.endswith(".py"))
FAMILIES = {"attention": ["attention"], "convolution": ["conv_bias_relu", "conv_transpose_gelu"], "product": ["linear_gelu", "mlp", "swiglu"],
            "reduction": ["softmax", "layernorm_gelu", "rmsnorm", "residual_layernorm"], "scan and loss": ["cumsum", "cross_entropy"]}
JOINED = """import torch
import torch.nn as nn

PARTS = {}
for name, text in TEXTS.items():
    PARTS[name] = {}
    exec(text, PARTS[name])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for name, part in PARTS.items():
            setattr(self, name, part["Model"](*part["get_init_inputs"]()))

    def forward(self, ARGUMENTS):
        return CALLS


def get_inputs():
    return [x for part in PARTS.values() for x in part["get_inputs"]()]


def get_init_inputs():
    return []
"""


def smaller(name):
    """The same task with the numbers of its one line of sizes divided."""
    def shrink(match):
        sizes = [int(v) for v in match.group(2).split(",")]
        return match.group(1) + " = " + ", ".join(str(v // 8 if v >= 1024 else v // 4 if v >= 64 else v // 2 if v >= 32 else v) for v in sizes)
    text = get(ROOT, "examples/cpu", name + ".py")
    changed, n = re.subn(r"^([a-z_]+(?:, [a-z_]+)*) = (\d+(?:, \d+)*)$", shrink, text, flags=re.M)
    if n != 1:
        raise SystemExit(f"Bail out! {name}: the line of sizes was not found")
    return changed


def joined(names):
    """One task of all of them: the arguments of each, one after the other, and a tuple of what they return."""
    texts = {name: smaller(name) for name in names}
    takes = {name: re.search(r"def forward\(self, (.*)\)", text).group(1).split(", ") for name, text in texts.items()}
    calls = "".join(f"self.{name}({', '.join(f'{name}_{a}' for a in takes[name])}), " for name in names)
    every = ", ".join(f"{name}_{a}" for name in names for a in takes[name])
    return f"TEXTS = {texts!r}\n" + JOINED.replace("ARGUMENTS", every).replace("CALLS", f"({calls})")


def optimize(family):
    out = os.path.join(TMP, family.replace(" ", "-"))
    code, stdout, err = run(command(put(family.replace(" ", "-") + ".py", joined(FAMILIES[family])), out, "--max-turns", "2", "--json"))
    try:
        return f"exit code {code}\n{err}", {**json.loads(stdout), "code": code}
    except ValueError:
        return f"exit code {code}\n{stdout}\n{err}", {}


ok(len(EXAMPLES) == 12 and sorted(n for names in FAMILIES.values() for n in names) == EXAMPLES, "the twelve examples are in one family each", EXAMPLES)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for family, (note, summary) in zip(FAMILIES, pool.map(optimize, FAMILIES)):
        verdict = summary.get("verdict") or {}
        ok(verdict.get("correct") is True and summary["code"] == 1 and summary["reason"] == "turns",
           f"{family}: correct by strict", note)
        ok(verdict.get("degenerate") is False and verdict.get("algebraic") is False,
           f"{family}: neither degenerate nor algebraic", json.dumps(verdict)[:600])
done()
