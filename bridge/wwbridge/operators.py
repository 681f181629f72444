"""Run operators of a task's graph that a plan leaves to PyTorch, from the graph's rows, on shared memory.

The rows are the judge's own copy of the graph (graph.py), the task's inputs and parameters are its shared buffers, and
what lies between is scratch of the plan.  The candidate contributes numbers and the choice of rows, but no code.  This
module imports no other of ours, since exports carry a copy of it.

If one of the operators works in place, all values from outside are copied first: the copy gets the new value, and the
memory, which may be the task's and read-only, is unchanged.

A row's JSON has lost the types of torch (graph.plain()): the operator's own schema says where a string is one.
"""

import operator

import torch

DTYPES = {name: getattr(torch, name) for name in (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64",
    "complex128")}


def overload(name):
    """"aten.fft_rfft.default" as PyTorch's operator; "getitem"."""
    if name == "getitem":
        return operator.getitem
    found = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def typed(x, kind):
    """A string of the JSON converted to the schema's type."""
    if not isinstance(x, str):
        return x
    if "ScalarType" in kind or kind == "int" and x in DTYPES:
        return DTYPES[x]
    if "MemoryFormat" in kind or "Layout" in kind:
        return getattr(torch, x)
    if "Device" in kind:
        return torch.device(torch.device(x).type)  # of that kind, the current one
    return float(x) if x in ("inf", "-inf", "nan") and kind != "str" else x


def written(call):
    """The indices of the arguments that the operator writes to."""
    schema = getattr(call, "_schema", None)
    return [i for i, a in enumerate(schema.arguments if schema else ()) if a.alias_info and a.alias_info.is_write]


def out_form(call):
    """The overload that writes the operator's one result to a tensor that it is given, its other arguments the same.
    None if there is none, or the operator writes to an operand or returns a view."""
    schema = getattr(call, "_schema", None)
    if schema is None or written(call) or [str(r.type) for r in schema.returns] != ["Tensor"] or \
            schema.returns[0].alias_info:
        return None
    same = [(a.name, str(a.type)) for a in schema.arguments]
    for form in (getattr(call.overloadpacket, name) for name in call.overloadpacket.overloads()):
        *others, last = form._schema.arguments or [None]
        if last and last.is_out and last.name == "out" and [(a.name, str(a.type)) for a in others] == same:
            return form
    return None


def step(row):
    """(name, operator, arguments, keyword arguments) of a row; references in the arguments are not resolved yet."""
    call = overload(row["op"])
    schema = getattr(call, "_schema", None)
    if schema is None:
        return row["name"], call, row["args"], row["kwargs"]
    kinds = [str(a.real_type if hasattr(a, "real_type") else a.type) for a in schema.arguments]
    by_name = {a.name: k for a, k in zip(schema.arguments, kinds)}
    return (row["name"], call, [typed(x, kinds[i]) for i, x in enumerate(row["args"])],
            {k: typed(x, by_name[k]) for k, x in row["kwargs"].items()})


def apart(reads, out):
    """Does each result have memory of its own, in which no value lies that the rows read?  reads, out: for each value
    what its memory can be told by.  If not, no operator may write there before all of them have run."""
    return len(set(out)) == len(out) and not set(out) & set(reads)


class Operators:
    """Rows to be run in order. rows: [{name, op, args, kwargs}]; writes: names of those whose results are stored."""

    def __init__(self, rows, writes):
        self.steps, self.writes = [step(row) for row in rows], writes
        calls = [call for _, call, _, _ in self.steps]
        for call in calls:
            if written(call) not in ([], [0]) or written(call) and str(call._schema.arguments[0].type) != "Tensor":
                raise ValueError(f"{call} writes to more than its first operand")
        self.copies = any(map(written, calls))
        self.forms = {name: form for name, call, _, _ in self.steps if name in writes and (form := out_form(call))}

    def __call__(self, values, to=()):
        """values: {name: tensor} that the rows read and do not compute.  Returns the results in the order of `writes`.
        to: a tensor for each of them, or nothing; an operator that can writes its result there, and is not copied."""
        values = {name: v.clone() if self.copies else v for name, v in values.items()}
        # a resized result changes this view of the tensor and not the tensor
        given = {name: t.detach() for name, t in zip(self.writes, to) if name in self.forms}
        for name, call, args, kwargs in self.steps:
            args, kwargs = resolve(args, values), {k: resolve(v, values) for k, v in kwargs.items()}
            if name in given:
                values[name] = self.forms[name](*args, **kwargs, out=given[name])
            else:
                values[name] = call(*args, **kwargs)
        return [values[name] for name in self.writes]


def resolve(x, values):
    if isinstance(x, dict) and "complex" in x:
        return complex(*map(float, x["complex"]))
    if isinstance(x, dict):
        return values[x["ref"]] if "ref" in x else slice(*(resolve(v, values) for v in x["slice"]))
    if isinstance(x, list):
        return [resolve(v, values) for v in x]
    return x
