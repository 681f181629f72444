"""The reference worker's parts.  worker.py speaks the protocol; task.py holds the task, graph.py its ATen graph, reference.py
the fp64 reference and the comparison, buffers.py the shared memory, baseline.py the clocks, facts.py the device."""


class Refuse(Exception):
    """An answer of the worker that is no result: kind is "task" (the task cannot be used, and why), "request" (the caller's
    mistake), "device" or "missing".  The text is one line for the user."""

    def __init__(self, kind, text):
        super().__init__(one_line(text))
        self.kind = kind


def one_line(text, limit=600):
    text = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return text if len(text) <= limit else text[: limit - 4] + " ..."
