"""The task itself in fp64: its reference.

Two things make it so: parameters, buffers and plain tensor attributes are swapped for fp64 copies in place (their
Python objects stay, so that modules which keep private lists of them see the same values), and a dispatch mode promotes
whatever else comes by - inputs, factories, casts, constants from closures - before every operator.  The default dtype
is fp64 meanwhile.  An operator that has no fp64 kernel runs in fp32 and is named in the answer.  Where fp64 does not
fit, the same is done in fp32 with TF32 off, and the answer says so.

Rejected: model.double() (factories and casts inside forward() would stay fp32); exporting and rewriting the graph (a
decomposition of ours could be wrong in the way the candidate is).
"""

import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from .tensors import span


# real type: the complex type of two such numbers.  Complex numbers are intermediates only (task.py).
COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}


def floating(x):
    return isinstance(x, torch.Tensor) and x.dtype.is_floating_point


def in_type(t, to):
    """t's own type in the precision of `to`; None for whole numbers."""
    return to if t.is_floating_point else COMPLEX[to] if t.is_complex else None


def cast(x, to):
    """A floating or complex tensor, or such a type, in the precision of `to`; anything else as it is."""
    own = in_type(x.dtype, to) if isinstance(x, torch.Tensor) else None
    if own:
        return x if x.dtype == own else x.to(own)
    return in_type(x, to) or x if isinstance(x, torch.dtype) else x


class Promote(TorchDispatchMode):
    """Dispatch mode: every floating operand, factory and cast becomes `to`, every complex one the complex type of
    `to`."""

    def __init__(self, to):
        super().__init__()
        self.to, self.copies, self.exceptions = to, {}, set()

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # as in task.Watch

    def tensor(self, t):
        """The promoted copy of a tensor from outside, one for each tensor, so that in-place changes of it are seen
        later."""
        to = in_type(t.dtype, self.to)
        if t.dtype == to:
            return t
        entry = self.copies.get(id(t))
        if entry is None:
            entry = self.copies[id(t)] = (t, t.to(to))  # holds t, so that its id is not used again
        return entry[1]

    def up(self, x):
        if floating(x) or isinstance(x, torch.Tensor) and x.is_complex():
            return self.tensor(x)
        return cast(x, self.to)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(self.up, args), tree_map(self.up, kwargs or {})
        try:
            out = func(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as e:
            text = str(e)
            if "not implemented for" not in text and "expected scalar type" not in text or self.to != torch.float64:
                raise
            self.exceptions.add(str(func))
            down = lambda x: cast(x, torch.float32)  # noqa: E731
            out = func(*tree_map(down, args), **tree_map(down, kwargs))
        return tree_map(lambda x: cast(x, self.to) if isinstance(x, torch.Tensor) else x, out)


class Swapped:
    """Context in which the module's floating tensors hold copies made by `copy`; Python objects stay the same, and
    addresses are restored."""

    def __init__(self, task, copy):
        self.tensors = {id(t): t for t in [*task.params.values(), *task.state.values()] if t.dtype.is_floating_point}
        self.copy = copy

    def __enter__(self):
        self.before = []
        try:
            for t in self.tensors.values():
                data = t.data
                t.data = self.copy(data)
                self.before.append((t, data))
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc):
        for t, data in self.before:
            t.data = data


def nearer_to_zero(data, by):
    """data scaled by 1 - by, except integers."""
    return torch.where(data != data.round(), data - data * by, data)


def shaker(to, device, seed):
    """A function that copies to `to` and moves some elements by one unit in the last place towards zero."""
    g = torch.Generator(device).manual_seed(seed)

    def copy(t):
        out = torch.empty_strided(t.shape, t.stride(), dtype=to, device=t.device)
        data = span(t).to(to)
        span(out).copy_(nearer_to_zero(data, torch.finfo(to).eps
                                       * torch.rand(data.shape, generator=g, device=device).round()))
        return out

    return copy


def promoted_run(task, to, shaken=None):
    """(the task's outputs computed in `to`, the Promote mode, which lists operators that had to run in fp32). shaken:
    None, or the seed for moving elements by a unit."""
    task.restore()
    copy = (lambda t: t.to(to)) if shaken is None else shaker(to, task.device, shaken)
    default, mode = torch.get_default_dtype(), Promote(to)
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        torch.set_default_dtype(to)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        leaves = [copy(x) if floating(x) else x for x in task.leaves]
        with Swapped(task, copy), task.lightly():
            with torch.no_grad(), mode:
                out = task.model(*task.args(leaves))
            out = [t.to(to) if floating(t) else t for t in task._flat(out)]
            return [t.contiguous().clone() if t.data_ptr() in addresses(task, leaves) else t.contiguous()
                    for t in out], mode
    finally:
        torch.set_default_dtype(default)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32
        mode.copies.clear()
        task.restore()


def addresses(task, leaves, whole=False):
    """Start addresses of inputs and state (`whole`: of their allocations): an output at one of them must be copied
    before the tensor is restored."""
    held = [*task.params.values(), *task.state.values(), *(x for x in leaves if isinstance(x, torch.Tensor))]
    return {t.untyped_storage().data_ptr() if whole else t.data_ptr() for t in held}


def default_run(task, mode=None):
    """The task's outputs by its own program. mode: a dispatch mode to run it in."""
    with mode or contextlib.nullcontext():
        out = task.forward()
    own = addresses(task, task.leaves)
    out = [t.clone(memory_format=torch.contiguous_format) if t.data_ptr() in own else t.contiguous() for t in out]
    task.restore()
    return out
