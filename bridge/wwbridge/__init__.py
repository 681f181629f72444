"""The reference worker's parts.  worker.py speaks the protocol; source.py looks at a task's text, task.py holds the
task and imports the rest: graph.py its ATen graph, reference.py the fp64 reference and the comparison, buffers.py the
shared memory, baseline.py the clocks, tensors.py their helpers for tensors, facts.py the device, lean.py how PyTorch
is imported."""

import gc
import math
import sys


class NoCollection:
    """Turns Python's cyclic garbage collector off while PyTorch is imported, traces or compiles: it would walk through
    all imported objects again and again, which takes as long as the rest together.  If something was imported, all
    objects are frozen afterwards, so that no later collection walks through them."""

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
    """Collect the garbage of a closed task: its tensors may be part of a cycle.  Frozen objects are walked through (0.2
    s) only if some were frozen since the last time."""
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


def out_of_memory(e):
    text = str(e)  # that of torch.OutOfMemoryError, too, says it
    return (isinstance(e, MemoryError) or "can't allocate memory" in text or "out of memory" in text
            or "CUBLAS_STATUS_ALLOC_FAILED" in text)


def device_failed(e):
    """Has the driver reported an error?  No more can be computed in this process then."""
    return "CUDA error" in str(e)


def number(x):
    """A number for JSON, which has neither NaN nor infinities."""
    return x if math.isfinite(x) else "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"


def one_line(text, limit=600):
    text = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return text if len(text) <= limit else text[: limit - 4] + " ..."
