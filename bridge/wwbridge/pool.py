"""A cache of the references of draws that come again, as large as memory allows.

The judge decides which draws come again and for how long (src/judge/cache/references.h says why that is safe); here
they are only remembered: a draw is a function of its request, so the key is the request.  What is kept are the outputs
in fp64 (those of the default run only where a comparison looks at them: integers, values that are not finite, rule
paper) with their scalars, and where the judge says so (where there is room) inputs, parameters and state, since drawing
costs more than copying, from the first time on: draws that will be compared and draws that will not be compared then
take the same time.  The least recently used go first.

A judgement adds a dozen draws or so.  Each piece of memory that PyTorch's allocator does not have costs a call of the
driver, of milliseconds and sometimes a hundred, so one piece for many of them is taken ahead (`reserve`).

Memory that others need more is given back: at a failed allocation everything, and on a GPU nothing is kept while less
than a tenth of it is free.
"""

import collections

import torch

from .tensors import out_of_memory

DRAWS, RESERVED = 14, 1 << 29  # of a judgement; bytes, below what Task.trim() gives back


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

    def put(self, key, references, values):
        """In place of what is there under this key.  references: None where nothing has been compared with this draw
        yet; values: what the draw has written, None: not to be kept."""
        before = self.entries.pop(key, (None, None, 0))
        self.used -= before[2]
        written = before[1] or (values and [v.clone() for v in values])
        tensors = (references.tensors() if references else []) + (written or [])
        size = sum(t.nbytes for t in {id(t): t for t in tensors}.values())
        while self.entries and self.used + size > self.limit:
            self.used -= self.entries.popitem(last=False)[1][2]
        if self.used + size <= self.limit and self.roomy():
            self.entries[key] = (references, written, size)
            self.used += size

    def reserve(self, each):
        """Have the allocator hold memory for the draws of a judgement; each: the bytes of one."""
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
        free, total = torch.cuda.mem_get_info(self.target.device)
        idle = torch.cuda.memory_reserved(self.target.device) - torch.cuda.memory_allocated(self.target.device)
        return free + idle > total // 10

    def clear(self):
        """1 if there was something to give back."""
        had = bool(self.entries)
        self.entries.clear()
        self.used = 0
        return had
