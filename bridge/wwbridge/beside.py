"""Runs, for the judge, the operators that a plan leaves to PyTorch.  The process holds neither task nor seed, only rows
of the graph (operators.py) and shared memory.

`beside` maps the memory of one plan: the task's inputs and parameters read-only, scratch of the plan both ways.
`beside_arm` runs the parts of one call: each starts at a byte of the judge's and ends with a byte of ours.  On the cpu
the judge's clock measures the time between the two.  On cuda a part is one CUDA graph, timed here as a baseline is
(device_time.py); scratch is memory of this process, made by cuMemCreate and lent to the runner, so no memory of
PyTorch's own is ever shared.
"""

import mmap
import os
import warnings

import torch

from . import Refuse, one_line
from .buffers import DeviceMemory, ImportedMemory
from .device_time import Flush, captured, kernels_us, replay_us
from .flat_weights import flat
from .operators import DTYPES, Operators, apart


def host_bytes(row, fd):
    access = mmap.PROT_READ | (mmap.PROT_WRITE if row["writable"] else 0)
    shared = mmap.mmap(fd, row["map_bytes"], mmap.MAP_SHARED, access)
    with warnings.catch_warnings():  # torch warns of read-only memory, which is intended
        warnings.simplefilter("ignore")
        return torch.frombuffer(shared, dtype=torch.uint8)


def tensor_of(row, flat):
    """A tensor on shared bytes."""
    sizes, strides, dtype = row["sizes"], row["strides"], DTYPES[row["dtype"]]
    span = 0 if 0 in sizes else (1 + sum((n - 1) * s for n, s in zip(sizes, strides))) * dtype.itemsize
    at = row["offset_bytes"]
    if span == 0:
        return torch.empty(sizes, dtype=dtype, device=flat.device)
    return flat[at:at + span].view(dtype).as_strided(sizes, strides)


class Part:
    def __init__(self, q, tensors, places):
        """places: for each tensor what its memory can be told by; two of them may lie in one buffer."""
        self.operators = Operators(q["rows"], q["writes"])
        self.apart = apart([places[i] for _, i, _ in q["reads"]], [places[i] for i in q["out"]])
        self.reads = {name: self.as_graph_has_it(tensors[i], like) for name, i, like in q["reads"]}
        self.out = [tensors[i] for i in q["out"]]
        self.flat = []  # Flat of rows of recurrent layers

    @staticmethod
    def as_graph_has_it(t, like):
        """(the tensor on the buffer, a tensor with the graph's strides to copy it to; None: the strides are the
        same)"""
        if like is None or list(t.stride()) == like:
            return t, None
        return t, torch.empty_strided(t.shape, like, dtype=t.dtype, device=t.device)

    def once(self):
        values = {name: t if copy is None else copy.copy_(t) for name, (t, copy) in self.reads.items()}
        for weights in self.flat:
            values.update(weights())
        results = self.operators(values, self.out) if self.apart else [r.clone() for r in self.operators(values)]
        for to, result in zip(self.out, results):
            if result.shape != to.shape or result.dtype != to.dtype:
                raise Refuse("task", f"a result is {result.dtype} {list(result.shape)}, "
                                     f"not {to.dtype} {list(to.shape)}")
            if result.data_ptr() != to.data_ptr():
                to.copy_(result)

    def run(self, flush):
        self.once()


class OnDevice(Part):
    """A part as a CUDA graph.  It is captured in its first call: before that its operands hold no values, and an
    invalid index among them would end this process."""

    def __init__(self, q, tensors, places):
        super().__init__(q, tensors, places)
        self.graph, self.tried = None, False
        as_they_lie = {name: t for name, (t, copy) in self.reads.items() if copy is None}
        self.flat = [f for f in (flat(row, as_they_lie) for row in q["rows"]) if f]

    def capture(self):
        self.once()
        made = captured(self.once, lambda: None, "what PyTorch runs of a plan")
        self.graph, self.tried = made and made[0], True

    def run(self, flush):
        """Run once; returns microseconds on the device. flush: a Flush, or None if the time is not needed."""
        if not self.tried:
            self.capture()
        if self.graph:
            return replay_us(self.graph, flush)
        if flush:
            return kernels_us(self.once)
        self.once()
        torch.cuda.synchronize()
        return 0.0


class Beside:
    """The parts of one plan."""

    def __init__(self, q, fds, target):
        self.device, self.own, self.imported = target.device, [], []
        self.cuda, fds, self.places = target.kind == "cuda", iter(fds), []
        self.flush = Flush(target.device)
        try:
            for nbytes in q["memory"]:
                self.own.append(DeviceMemory(nbytes, target.device))
            tensors = [tensor_of(row, self.bytes_of(row, fds)) for row in q["buffers"]]
            self.parts = [(OnDevice if self.cuda else Part)(p, tensors, self.places) for p in q["parts"]]
        except BaseException:
            self.close()
            raise

    def bytes_of(self, row, fds):
        if "memory" in row:
            self.places.append(row["memory"])
            return self.own[row["memory"]].bytes
        fd = next(fds)
        self.places.append(os.fstat(fd)[1:3] if not self.cuda else ("imported", len(self.imported)))
        if not self.cuda:
            return host_bytes(row, fd)
        self.imported.append(ImportedMemory([fd], [row["map_bytes"]], self.device, row["writable"]))
        return self.imported[-1].bytes

    def answer(self):
        return {"memory": [m.alloc_bytes for m in self.own]}, [m.fd for m in self.own]

    def arm(self, go, done, flush):
        """Run every part once, in order."""
        us = []
        os.write(done, b"r")
        with torch.no_grad():
            for part in self.parts:
                if os.read(go, 1) != b"g":
                    raise Refuse("request", "beside_arm: the starting byte did not come")
                try:
                    us.append(part.run(self.flush if flush else None))
                except Refuse:
                    raise
                except Exception as e:
                    raise Refuse("task", f"PyTorch refused: {type(e).__name__}: {one_line(e, 300)}")
                os.write(done, b"d")
        return {"us": us} if self.cuda else {}

    def close(self):
        self.parts = None
        for m in self.own + self.imported:
            m.bytes = None
            m.close()
        self.own, self.imported = [], []
