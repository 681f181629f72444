"""Helpers for tensors: storage, bits, and the dtypes that a task may use."""

import hashlib

import torch

DTYPES = {
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int8: "int8", torch.int16: "int16", torch.int32: "int32", torch.int64: "int64", torch.uint8: "uint8",
    torch.bool: "bool",
}


def span(t):
    """The storage that a tensor's strides reach, as a flat tensor: copies of spans work for every layout, also for
    strides of zero and gaps."""
    n = 0 if t.numel() == 0 else 1 + sum((s - 1) * st for s, st in zip(t.shape, t.stride()))
    return t.as_strided((n,), (1,), t.storage_offset())


def copy_all(to, values):
    """Copy values[i] to to[i] for all i, on a GPU in a launch or a few for each type."""
    for dtype in dict.fromkeys(t.dtype for t in to):
        torch._foreach_copy_(*zip(*((t, v) for t, v in zip(to, values) if t.dtype == dtype)))


def copies(values):
    """Clones of flat tensors, on a GPU in a few launches."""
    out = [torch.empty_like(v) for v in values]
    copy_all(out, values)
    return out


def span_bytes(sizes, strides, itemsize):
    if any(s == 0 for s in sizes):
        return 0
    return (1 + sum((s - 1) * st for s, st in zip(sizes, strides))) * itemsize


def reach(t):
    """The addresses that a tensor's strides reach: the first, and that behind the last."""
    return t.data_ptr(), t.data_ptr() + span_bytes(t.shape, t.stride(), t.itemsize)


def overlap(a, b):
    (a, a_end), (b, b_end) = reach(a), reach(b)
    return max(a, b) < min(a_end, b_end)


def apart(tensors, held):
    """Of each tensor: does it lie in memory that none of the others and none of `held` lies in?"""
    return [not any(overlap(t, o) for o in held) and
            not any(k != i and overlap(t, o) for k, o in enumerate(tensors)) for i, t in enumerate(tensors)]


def sub_seed(seed, what):
    return int.from_bytes(hashlib.sha256(f"{seed}/{what}".encode()).digest()[:8], "little") >> 1


def same_bits(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    if not a.dtype.is_floating_point:
        return False
    return bool(((a == b) | (a.isnan() & b.isnan())).all())
