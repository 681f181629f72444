"""What a candidate's last call returned (src/judge/forms/lent.h), while its process stands: copied for the comparison,
and filled with poison before the next call, so that no value stays there from one call to the next."""

import itertools

import torch

from .buffers import POISON, ImportedMemory
from .tensors import span, span_bytes

poisons = itertools.cycle(POISON)
PROBE_BYTES = 1 << 16


class Returned:
    """`lent`: for each output None if it lies in the shared buffer, or its place in pieces of another process's device
    memory, one descriptor a piece; none for all: as None for each.  `apart`: which outputs the task makes in memory of
    their own.  Raises RuntimeError or ValueError where a piece cannot be mapped."""

    def __init__(self, shared, apart, lent, fds, device):
        self.shared, self.device = shared, device
        self.memory, self.own = [], []
        fds = iter(fds)
        try:
            self.found = [self._find(t, where, alone, fds)
                          for t, where, alone in zip(shared.outputs, lent or itertools.repeat(None), apart)]
            self.copies = self._copy()
        except BaseException:
            self._unmap()
            raise

    def _find(self, t, where, apart, fds):
        if where is None:
            return t
        own = list(itertools.islice(fds, len(where["pieces"])))
        if len(own) != len(where["pieces"]):
            raise ValueError("a piece has no descriptor")
        m = ImportedMemory(own, where["pieces"], self.device, True)
        self.memory.append(m)
        nbytes = span_bytes(t.shape, where["strides"], t.itemsize)
        if where["offset"] + nbytes > m.nbytes:
            raise ValueError("beyond its pieces")
        there = m.bytes[where["offset"] : where["offset"] + nbytes]
        if apart and nbytes and nbytes == t.nbytes:  # nothing else lies between its elements
            self.own.append(there)
        return there.view(t.dtype).as_strided(t.shape, where["strides"])

    def _copy(self):
        with torch.no_grad():
            copies = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(f)
                      for t, f in zip(self.shared.outputs, self.found)]
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return copies

    def same(self):
        return all(torch.equal(span(a).view(torch.uint8), span(b).view(torch.uint8))
                   for a, b in zip(self.copies, self._copy()))

    def forget(self):
        """Poison what was returned.  Returns whether an argument changed by that: an output is a second mapping of its
        memory, which would hold a copy of the next draw before the call."""
        arguments = self._arguments()
        for there in self.own:
            there.fill_(next(poisons))
        shares = arguments is not None and not torch.equal(arguments, self._arguments())
        self._unmap()
        return shares

    def _arguments(self):
        """Bytes of the inputs and parameters, two or more from a range as large as the smallest output; None where
        there is nothing to compare."""
        step = max(1, min([PROBE_BYTES, *(b.numel() // 2 for b in self.own)]))
        there = [m.bytes[::step] for m, r in zip(self.shared.memory, self.shared.rows) if r["role"] != "output"]
        return torch.cat(there) if there and self.own else None

    def _unmap(self):
        self.own, self.found, self.copies = [], [], []
        memory, self.memory = self.memory, []
        for m in memory:
            m.close()
