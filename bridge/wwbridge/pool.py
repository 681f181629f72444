"""A cache of references of draws that are used again, as large as memory allows.

The judge decides which draws are used again and for how long (src/judge/cache/references.h says why that is safe).  A
draw is a function of its request, so the key is the request.  An entry holds the fp64 outputs with their scalars, and
outputs of the default run only if a comparison needs them (integers, values that are not finite, rule paper).  If the
judge asks for it and there is room, it also holds inputs, parameters and state: copying costs less than drawing.  They
are stored from the first use on, so that draws that will be compared take the same time as others.  The least recently
used entries are dropped first.

A judgement adds a dozen draws or so.  Each allocation that PyTorch's allocator must take from the driver costs
milliseconds, sometimes a hundred, so memory for many draws is reserved at once (`reserve`).

The pool gives its memory back: all of it at a failed allocation, and on a GPU it keeps nothing while less than a tenth
of the memory is free.
"""

import collections

import torch

from . import out_of_memory
from .tensors import copies

DRAWS, RESERVED = 14, 1 << 29  # draws of a judgement; bytes, less than Task.trim() gives back


class Pool:
    def __init__(self, target, limit):
        self.target, self.limit = target, limit
        self.entries, self.used = collections.OrderedDict(), 0

    def get(self, key):
        """(references or None, values or None)"""
        entry = self.entries.get(key)
        if entry is None:
            return None, None
        self.entries.move_to_end(key)
        return entry[:2]

    def values(self, key):
        """What a draw has written, where it is kept."""
        entry = self.entries.get(key)
        return entry and entry[1]

    def put(self, key, references, values):
        """Replace the entry of this key. references: None: nothing has been compared with this draw yet; values: what
        the draw has written, None: do not keep it."""
        before = self.entries.pop(key, (None, None, 0))
        self.used -= before[2]
        written = before[1] or (values and copies(values))
        tensors = (references.tensors() if references else []) + (written or [])
        size = sum(t.nbytes for t in {id(t): t for t in tensors}.values())
        while self.entries and self.used + size > self.limit:
            self.used -= self.entries.popitem(last=False)[1][2]
        if self.used + size <= self.limit and self.roomy():
            self.entries[key] = (references, written, size)
            self.used += size

    def reserve(self, each):
        """Make the allocator reserve memory for the draws of a judgement; each: bytes of one draw."""
        size = min(DRAWS * each, RESERVED)
        if self.target.kind != "cuda" or DRAWS * each > self.limit or not self.roomy():
            return
        try:
            torch.empty(size, dtype=torch.uint8, device=self.target.device)
        except RuntimeError as e:
            if not out_of_memory(e):
                raise

    def roomy(self):
        if self.target.kind != "cuda":
            return True
        free, total = self.target.memory()
        return free + self.target.idle() > total // 10

    def clear(self):
        """Drop all entries; returns 1 if there were any."""
        had = bool(self.entries)
        self.entries.clear()
        self.used = 0
        return had
