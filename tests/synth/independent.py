#!/usr/bin/env python3
"""A second look at tasks of a set, with PyTorch alone and nothing of this project:

    independent.py FILE [-n 300] [--seed S] [--device cpu|cuda]

FILE: JSON lines, also compressed (the program zstd), "-" for standard input.  Of each sampled row:

    runs            the code makes a module and inputs, and the outputs are finite
    deterministic   the same seeds give the same outputs; the same inputs give them again
    not constant    no output is nearly one number, nearly zero, or nearly that of another draw
    depends         another value of any input or of any parameter gives other outputs
    labels          `ops` names the operators of the exported graph, each once; run one after the other they dispatch
                    the same operators as the module itself does (TorchDispatchMode): none is missing, none too many

Prints a line a finding and a summary; exit code 1 with findings."""
import argparse
import collections
import gc
import json
import random
import subprocess
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

NEAR, EFFECT = 1e-2, 1e-5
# What moves no number: how often these run depends on who calls.
SILENT = {
    "detach", "alias", "clone", "lift_fresh", "lift_fresh_copy", "view", "_unsafe_view", "_reshape_alias", "as_strided",
    "expand", "permute", "t", "transpose", "select", "slice", "unsqueeze", "squeeze", "split", "split_with_sizes",
    "unbind",
    "chunk", "_to_copy", "copy_", "empty", "empty_strided", "empty_like"}

CHECKS = {"_assert_tensor_metadata"}  # the export writes them


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def rows_of(path):
    if path == "-":
        lines = sys.stdin
    elif open(path, "rb").read(4) == b"\x28\xb5\x2f\xfd":
        lines = subprocess.run(["zstd", "-dcq", path], capture_output=True, text=True, check=True).stdout.splitlines()
    else:
        lines = open(path, encoding="utf-8")
    return [json.loads(line) for line in lines if line.strip()]


class Loaded:
    def __init__(self, code, device):
        self.names = {"__name__": "task"}
        exec(compile(code, "task", "exec"), self.names)
        self.device = device
        self.model = self.made()

    def made(self):
        torch.manual_seed(11)
        with torch.device(self.device):
            model = self.names["Model"](*self.names["get_init_inputs"]()).to(self.device)
        for p in model.parameters():  # none at its default: a norm's weight may have no effect while its bias is 0
            p.data.add_(0.3 * spread(p) * torch.randn(p.shape).to(p))
        return model

    def inputs(self, seed):
        torch.manual_seed(seed)
        with torch.device(self.device):
            return [x.to(self.device) if isinstance(x, torch.Tensor) else x for x in self.names["get_inputs"]()]

    def run(self, inputs, model=None):
        """The outputs; the module's buffers hold afterwards what they held."""
        model = model or self.model
        held = {k: v.clone() for k, v in model.named_buffers()}
        with torch.no_grad():
            out = [t.clone() for t in tree_flatten(model(*[x.clone() if isinstance(x, torch.Tensor) else x
                                                           for x in inputs]))[0]]
            for k, v in model.named_buffers():
                v.copy_(held[k])
        return out


def distance(a, b):
    """Between two results, by the norm."""
    if not a.is_floating_point():
        return (a != b).double().mean().item()
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm().clamp_min(1e-30)).item()


def farthest(xs, ys):
    return max((distance(a, b) for a, b in zip(xs, ys)), default=0.0)


def spread(t):
    return max(t.double().std().item() if t.numel() > 1 else 1.0, 0.1)


def changed(t):
    if t.dtype is torch.bool:
        return ~t
    if not t.is_floating_point():
        return t.flip(0).roll(1, -1) if t.numel() > 1 else t
    # each number by another factor: one factor for all is cancelled by a norm behind it
    factors = torch.rand(t.shape, generator=torch.Generator().manual_seed(5)).to(t.device) + 0.5
    return (t * factors + 0.5 * spread(t)).to(t.dtype)


def behaviour(task):
    inputs, other = task.inputs(1), task.inputs(2)
    first = task.run(inputs)
    for i, t in enumerate(first):
        if t.is_floating_point() and not bool(t.isfinite().all()):
            yield f"output {i} is not finite"
    if farthest(task.run(inputs), first) > EFFECT or farthest(task.run(task.inputs(1), task.made()), first) > EFFECT:
        yield "random: the same seeds give other outputs"
    for i, (t, o) in enumerate(zip(first, task.run(other))):
        mean = t.double().mean()
        if distance(o, t) < NEAR:
            yield f"output {i} is that of another draw"
        elif distance(mean.expand_as(t).to(t.dtype), t) < NEAR or not bool(t.any()):
            yield f"output {i} is nearly one number"
    for i, x in enumerate(inputs):
        if isinstance(x, torch.Tensor):
            for new in (other[i], changed(x)):
                if farthest(task.run([*inputs[:i], new, *inputs[i + 1:]]), first) >= EFFECT:
                    break
            else:
                yield f"input {i} has no effect"
    for name, p in task.model.named_parameters():
        held = p.detach().clone()
        p.data.copy_(changed(held))
        if farthest(task.run(inputs), first) < EFFECT:
            yield f"parameter {name} has no effect"
        p.data.copy_(held)


def labels(task, ops):
    inputs = task.inputs(1)
    with torch.no_grad():
        graph = torch.export.export(task.model, tuple(inputs), strict=False).module()
    nodes = {n.target.overloadpacket.__name__ for n in graph.graph.nodes
             if n.op == "call_function" and hasattr(n.target, "overloadpacket")
             and n.target.namespace == "aten"} - CHECKS
    named = {o.removeprefix("aten.") for o in ops}
    if len(named) != len(ops) or named != nodes:
        yield f"labels: {sorted(named ^ nodes)} are named or run, not both"
    with torch.no_grad(), Seen() as eager:
        task.model(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
    with torch.no_grad(), Seen() as one_by_one:
        graph(*inputs)
    only_one = sorted((eager.names ^ one_by_one.names) - SILENT - CHECKS)
    if only_one:
        yield f"labels: {only_one} run in the module or in its labelled operators, not in both"


def look(row, device):
    try:
        task = Loaded(row["code"], device)
        return [*behaviour(task), *labels(task, row["ops"])]
    except Exception as e:
        return [f"does not run: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:300]]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("file")
    p.add_argument("-n", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--device", default="cpu")
    a = p.parse_args()
    gc.disable()
    gc.freeze()
    torch.set_num_threads(1)
    rows = rows_of(a.file)
    rows = random.Random(a.seed).sample(rows, min(a.n, len(rows)))
    kinds = collections.Counter()
    for k, row in enumerate(rows):
        for finding in look(row, a.device):
            kinds[finding.split(":")[0]] += 1
            print(f"{row['id']}: {finding}", flush=True)
        torch._dynamo.reset()
        if k % 20 == 19:
            gc.collect()
    print(f"{len(rows)} rows, {sum(kinds.values())} findings")
    sys.exit(bool(kinds))


if __name__ == "__main__":
    main()
