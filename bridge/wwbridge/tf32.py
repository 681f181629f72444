"""Which of a graph's convolutions of fp32 PyTorch computes in TF32: it is asked by running each of them.

cuDNN chooses an engine by heuristics of its own, and some of its engines round operands to TF32's 11 bits.  Here one
operand is 1 + 2^-12 and the other 1, in the first channel, and elsewhere 0: a result is its number of terms, times
1 + 2^-12 without TF32.  Values do not change which engine is chosen; types, sizes, strides and attributes do, and those
are the node's.

Each distinct geometry is run three times, with the whole batch.  Rejected: one image of it, for which cuDNN may have
another engine.
"""

import json
import math

import torch

from . import device_failed, operators

CONVOLUTIONS = {f"aten.{name}" for name in (
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution",
    "_convolution")}
STEP = 2.0**-12  # less than half of what TF32 tells from 1
MOST_TERMS = 1 << 11  # sums of so many are exact in fp32


def convolutions_in_tf32(graph, device, around):
    """{name of a node: whether it is in TF32}, of the convolutions of fp32; None: it could not be asked, as for lack of
    memory.  around: a context for work on the device."""
    forms = {row["name"]: row for row in graph["inputs"] + graph["params"]}
    known, answers = {}, {}
    for row in graph["nodes"]:
        if len(row["out"]) == 1:
            forms[row["name"]] = row["out"][0]
        if is_asked(row, forms):
            key = geometry(row, forms)
            if key not in known:
                with around:
                    known[key] = asked(row, forms, device)
            answers[row["name"]] = known[key]
    return answers


def is_asked(row, forms):
    if row["op"].rpartition(".")[0] not in CONVOLUTIONS or len(row["args"]) < 2:
        return False
    read = [operand(x) for x in row["args"][:2]]
    tensors = [*row["out"], *(forms.get(name) for name in read)]
    return (None not in read and read[0] != read[1]
            and all(t and t["dtype"] == "float32" and 0 not in t["sizes"] for t in tensors)
            and math.prod(tensors[-1]["sizes"][2:]) <= MOST_TERMS)


def operand(x):
    return x.get("ref") if isinstance(x, dict) else None


def geometry(row, forms):
    """A text that two nodes share if PyTorch computes them alike."""
    def described(x):
        if operand(x):
            form = forms[x["ref"]]
            return [form["dtype"], form["sizes"], form["strides"]]
        return [described(v) for v in x] if isinstance(x, list) else x

    return json.dumps([row["op"], described(row["args"]), {k: described(v) for k, v in row["kwargs"].items()}])


def asked(row, forms, device):
    try:
        return in_tf32(row, forms, device)
    except RuntimeError as e:
        if device_failed(e):
            raise
        return None


def in_tf32(row, forms, device):
    _, call, args, kwargs = operators.step(row)
    x, w = (operand(a) for a in args[:2])
    names = [operand(a) for a in [*args[2:], *kwargs.values()] if operand(a)]
    values = {name: tensor(forms[name], device) for name in [x, w, *names]}
    first = values[x].narrow(1 - (len(forms[x]["sizes"]) < len(forms[w]["sizes"])), 0, 1)  # a channel
    args, kwargs = operators.resolve(args, values), {k: operators.resolve(v, values) for k, v in kwargs.items()}

    def largest(of_x, of_w):
        first.fill_(of_x)
        values[w].fill_(of_w)
        return float(call(*args, **kwargs).amax())

    terms = largest(1, 1)
    return any(largest(*pair) < terms * (1 + STEP / 2) for pair in ((1 + STEP, 1), (1, 1 + STEP)))


def tensor(form, device):
    """Zeros with that form's sizes and strides; contiguous where elements share memory, as PyTorch makes them there."""
    sizes, how = form["sizes"], {"dtype": getattr(torch, form["dtype"]), "device": device}
    if any(size > 1 and stride == 0 for size, stride in zip(sizes, form["strides"])):
        return torch.zeros(sizes, **how)
    return torch.empty_strided(sizes, form["strides"], **how).zero_()
