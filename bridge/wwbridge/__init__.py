"""The reference worker's parts.  worker.py speaks the protocol; source.py looks at a task's text, task.py holds the
task and imports the rest: graph.py its ATen graph, reference.py the fp64 reference and the comparison, buffers.py the
shared memory, baseline.py the clocks, tensors.py their helpers for tensors, facts.py the device, lean.py how PyTorch
is imported."""

import gc
import sys


class NoCollection:
    """While PyTorch is imported, traces or compiles: Python's cyclic garbage collector walks through all that has been
    imported again and again and takes as long as the rest together.  Where something was imported, all that is there
    afterwards is frozen: no later collection walks it."""

    froze = False  # something may be frozen that a task leaves behind

    def __enter__(self):
        self.imported = len(sys.modules)
        gc.disable()

    def __exit__(self, *exc):
        if len(sys.modules) != self.imported:
            gc.freeze()
            NoCollection.froze = True
        gc.enable()


def collect():
    """Collect what a task that has gone leaves behind: its tensors may hang in a cycle.  What is frozen is walked
    through (0.2 s) only where something was frozen since the last time."""
    froze, NoCollection.froze = NoCollection.froze, False
    if froze:
        gc.unfreeze()
    gc.collect()
    if froze:
        gc.freeze()


class Refuse(Exception):
    """An answer of the worker that is no result: kind is "task" (the task cannot be used, and why), "request" (the
    caller's mistake), "device" or "missing".  The text is one line for the user."""

    def __init__(self, kind, text):
        super().__init__(one_line(text))
        self.kind = kind


def one_line(text, limit=600):
    text = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return text if len(text) <= limit else text[: limit - 4] + " ..."
