"""Indices that may be others: which of several equal elements topk, sort and their kin name.

PyTorch leaves that open, and its kernels for other sizes and devices choose in other ways.  An output that holds such
an operator's indices is right, too, where it names elements that are equal, in PyTorch's own run, to those that PyTorch
names: each index lies within the row, its element has the very value of PyTorch's in that place, and no element of a
row is named twice.  So other values, one element in place of another and a row that was left out are wrong as ever.
What was chosen from is seen in a run of its own, which only an output that is wrong otherwise costs; the outputs of
that run have to be those that are compared with.

Only an output that is the operator's result as it stands: what is computed with an index depends on the choice.  Not
argmax, max and a stable sort, whose choice is documented (the first one).

Rejected: indices whose elements are equal in the solution's own operand, which the judge does not see."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Whether an element may be named once only.
OPEN = {"topk": True, "sort": True, "kthvalue": False, "median": False, "nanmedian": False, "mode": False}


def place(t):
    return t.data_ptr(), tuple(t.shape), t.stride()


class Chosen(TorchDispatchMode):
    """Dispatch mode: remembers, of each result that is such indices, what they were taken from and how."""

    def __init__(self):
        super().__init__()
        self.found = {}

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # as in task.Watch

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in OPEN and isinstance(out, (tuple, list)) and len(out) == 2 and args[0].dim():
            named = {a.name: v for a, v in zip(func._schema.arguments, args)} | (kwargs or {})
            if not named.get("stable") and named.get("sorted", True):
                # The result is held, so that no other one comes to its place; what is changed later is none.
                of = out[1], out[1].clone(), args[0].clone(), named.get("dim", -1), OPEN[name]
                self.found[place(out[1])] = of
        return out


def operands(task, default):
    """For each output that is such indices, and as in the run that is compared with: (what they were taken from,
    dimension, whether once only).  None for the others."""
    if not any(d.dtype == torch.int64 for d in default):
        return [None] * len(default)
    with Chosen() as c:
        out = task.forward()
    task.restore()
    found = [c.found.get(place(t)) for t in out]
    return [of[2:] if of and torch.equal(of[1], d) and torch.equal(t, d) else None
            for of, t, d in zip(found, out, default)]


def named(found, exact, default, of, dim, once):
    """`found`, with PyTorch's index where it names another element that is equal to PyTorch's."""
    f, e, d = (t.unsqueeze(dim) if t.dim() < of.dim() else t for t in (found, exact, default))
    n = of.shape[dim]
    a, b = of.gather(dim, f.clamp(0, n - 1)), of.gather(dim, d)
    right = (f >= 0) & (f < n) & ((a == b) | (a != a) & (b != b))
    if once:
        right &= ~(f.sort(dim).values.diff(dim=dim) == 0).any(dim, keepdim=True)
    return torch.where((f != e) & right, d, f).view(found.shape)
