"""What a plan leaves to PyTorch, under the judge: a process of its own that holds neither task nor seed, only rows of
the graph (operators.py) and shared memory.

`beside` maps the memory: the task's inputs and parameters read-only, scratch of the plan both ways.  `beside_arm` runs
the parts of one call, each between a byte of the judge's and one of ours, so that the judge's clock times it.
"""

import mmap
import os
import warnings

import torch

from . import Refuse, one_line
from .operators import DTYPES, Operators


class Mapped:
    """A tensor on a descriptor's memory."""

    def __init__(self, row, fd):
        access = mmap.PROT_READ | (mmap.PROT_WRITE if row["writable"] else 0)
        self.map = mmap.mmap(fd, row["map_bytes"], mmap.MAP_SHARED, access)
        sizes, strides, dtype = row["sizes"], row["strides"], DTYPES[row["dtype"]]
        with warnings.catch_warnings():  # a tensor that must not be written is what is wanted
            warnings.simplefilter("ignore")
            flat = torch.frombuffer(self.map, dtype=torch.uint8)
        span = 0 if 0 in sizes else (1 + sum((n - 1) * s for n, s in zip(sizes, strides))) * dtype.itemsize
        at = row["offset_bytes"]
        if span == 0:
            self.tensor = torch.empty(sizes, dtype=dtype)
        else:
            self.tensor = flat[at:at + span].view(dtype).as_strided(sizes, strides)


class Part:
    def __init__(self, q, tensors):
        self.operators = Operators(q["rows"], q["writes"])
        self.reads = {name: self.as_graph_has_it(tensors[i], like) for name, i, like in q["reads"]}
        self.out = [tensors[i] for i in q["out"]]

    @staticmethod
    def as_graph_has_it(t, like):
        """(the tensor, or where the graph's strides differ from those of the buffer, one to be filled first)"""
        if like is None or list(t.stride()) == like:
            return t, None
        return t, torch.empty_strided(t.shape, like, dtype=t.dtype)

    def run(self):
        values = {name: t if copy is None else copy.copy_(t) for name, (t, copy) in self.reads.items()}
        for to, result in zip(self.out, self.operators(values)):
            if result.shape != to.shape or result.dtype != to.dtype:
                raise Refuse("task", f"a result is {result.dtype} {list(result.shape)}, "
                                     f"not {to.dtype} {list(to.shape)}")
            to.copy_(result)


class Beside:
    def __init__(self, q, fds):
        mapped = [Mapped(row, fd) for row, fd in zip(q["buffers"], fds)]
        tensors = [m.tensor for m in mapped]
        self.parts = [Part(p, tensors) for p in q["parts"]]

    def arm(self, go, done):
        """Every part once, in order."""
        os.write(done, b"r")
        with torch.no_grad():
            for part in self.parts:
                if os.read(go, 1) != b"g":
                    raise Refuse("request", "beside_arm: the starting byte did not come")
                try:
                    part.run()
                except Refuse:
                    raise
                except Exception as e:
                    raise Refuse("task", f"PyTorch refused: {type(e).__name__}: {one_line(e, 300)}")
                os.write(done, b"d")
        return {}
