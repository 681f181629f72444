"""Match the names of a cached graph, made from this task by the same versions of everything, with the tensors of this
load.

graph.py writes inputs in order, then the module's own parameters and buffers in the order of named_parameters() and
named_buffers() (tied ones once), then constants.  The same walk here pairs each row with its tensor; a constant that
the graph was made with (`z[0] = 1.0` lifts one) comes from the row's value.  If anything does not agree (a form, a
number of rows, a large constant that is no attribute of the module, or one with another value in this load), the answer
is None, and the graph is made again: a cached graph saves time and never decides anything.

Nothing in here may import torch.export or its dependencies.
"""

import torch

from . import number
from .tensors import DTYPES

BY_NAME = {name: dtype for dtype, name in DTYPES.items()}


def table_of(task, graph):
    """{"inputs": [(name, tensor)], "params": [(name, tensor)]} as graph.build() returns it, or None."""
    try:
        if graph["task"]["id"] != task.id or graph["target"] != task.target.kind:
            return None
        if [row["value"] for row in graph["scalars"]] != plain(list(task.scalars)):
            return None
        inputs = pair(graph["inputs"], task.inputs)
        rows = graph["params"]
        own = [row for row in rows if row["role"] in ("param", "buffer")]
        tensors = once([*task.params.values(), *dict(task.model.named_buffers()).values()])
        params = pair(own, tensors)
        outputs = [same_form(row, *meta) for row, meta in zip(graph["outputs"], task.out_meta)]
        if inputs is None or params is None or len(graph["outputs"]) != len(task.out_meta) or not all(outputs):
            return None
        for row in rows[len(own) :]:
            t = task.state.get(row["name"])
            if t is None and "value" in row and row["name"].startswith("lifted_tensor"):  # torch.export's name
                t = lifted(row, task.target.device)
            if row["role"] != "constant" or t is None or not same_form(row, t.shape, t.stride(), t.dtype):
                return None
            if "value" in row and row["value"] != plain(t.tolist()):
                return None
            params.append((row["name"], t))
        if any(row["role"] != "param" and row["drawn"] != task.held.kind(t) for row, (_, t) in zip(rows, params)):
            return None
        return {"inputs": inputs, "params": params}
    except (KeyError, TypeError, AttributeError):
        return None


def lifted(row, device):
    """The constant of a row, contiguous; the caller compares its form."""
    numbers = [float(x) if isinstance(x, str) else x for x in flat(row["value"])]
    return torch.tensor(numbers, dtype=BY_NAME[row["dtype"]], device=device).reshape(row["sizes"])


def flat(x):
    return [v for part in x for v in flat(part)] if isinstance(x, list) else [x]


def once(tensors):
    return list({id(t): t for t in tensors}.values())


def pair(rows, tensors):
    if len(rows) != len(tensors) or not all(same_form(r, t.shape, t.stride(), t.dtype) for r, t in zip(rows, tensors)):
        return None
    return [(r["name"], t) for r, t in zip(rows, tensors)]


def same_form(row, sizes, strides, dtype):
    return row["dtype"] == DTYPES.get(dtype) and row["sizes"] == list(sizes) and row["strides"] == list(strides)


def plain(x):
    """A constant's numbers in the form of graph.plain()."""
    if isinstance(x, list):
        return [plain(v) for v in x]
    return number(x) if isinstance(x, float) else x
