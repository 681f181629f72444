"""The task's ATen graph as JSON (docs/formats/bridge.md, "graph").

It is the graph of torch.export, not decomposed, so that a reader sees aten.linear and aten.layer_norm and not their
parts. Where export fails, or puts parts of the module into nested graphs (autocast and no_grad regions), the module is
traced ahead of dispatch with make_fx instead: the same operators, recorded from one run, and "source" says so.

Names.  Inputs, parameters, buffers and lifted constants, and nodes share one name space, so that {"ref": NAME} is
enough.

Bytes and flops.  A node's flops are torch.utils.flop_counter's where it knows the operator (a multiply-add counts two),
else one per element of its largest operand; views cost nothing, a causal attention half.  totals.matrix_flops are those
that the counter knows: matrix products, convolutions, attentions.  totals.bytes is a lower bound that no implementation
can go below: what must be read of inputs and parameters (needed.py) plus outputs.
"""

import operator

import torch
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from . import Refuse, number, one_line, recurrent
from .needed import Needed, distinct_bytes, op_name
from .tensors import DTYPES, span_bytes

VERSION = 1
GATHERS = {"embedding", "embedding_bag", "index", "index_select", "gather", "take", "take_along_dim", "slice", "select",
           "narrow", "split", "split_with_sizes", "chunk", "unbind", "unfold", "diagonal", "tril", "triu"}


def build(task):
    """(graph as JSON, {"inputs": [(name, tensor)], "params": [...]})"""
    problems = []
    for source, make in (("export", exported), ("trace", traced)):
        try:
            return Writer(task, source, *make(task)).result()
        except (Refuse, torch.OutOfMemoryError):
            raise
        except Exception as e:
            problems.append(f"{source}: {type(e).__name__}: {one_line(e, 200)}")
    raise Refuse("task", f"{task.name}: no graph could be made ({'; '.join(problems)})")


def exported(task):
    """(graph, {placeholder: ("input", index) | ("param", name, tensor) | ("scalar",)})"""
    with recurrent.by_shape():
        program = torch.export.export(task.model, tuple(task.args()), strict=False)
    graph, kinds = program.graph, {}
    if any(n.op in ("get_attr", "call_module") or isinstance(n.target, torch._ops.HigherOrderOperator)
           for n in graph.nodes):
        raise ValueError("nested graphs")
    held = {**program.state_dict, **program.constants}
    index = iter(range(len(task.inputs)))
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            tensor = type(spec.arg).__name__ == "TensorArgument"
            kinds[spec.arg.name] = ("input", next(index)) if tensor else ("scalar",)
        elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            own = task.params.get(spec.target, task.state.get(spec.target))
            kinds[spec.arg.name] = ("param", spec.target, held[spec.target] if own is None else own)
        else:
            raise ValueError(f"graph input of kind {kind}")
    mutation = ("BUFFER_MUTATION", "USER_INPUT_MUTATION", "PARAMETER_MUTATION")
    outs = [s.kind.name not in mutation for s in program.graph_signature.output_specs]
    return graph, kinds, outs


def traced(task):
    from torch.fx.experimental.proxy_tensor import make_fx

    names = list(task.params) + list(task.state)
    held = {**task.params, **task.state}
    tensors = [held[n] for n in names]
    n_inputs = len(task.inputs)

    def call(*flat):
        leaves = list(task.leaves)
        for slot, t in zip(task.slots, flat[:n_inputs]):
            leaves[slot] = t
        given = dict(zip(names, flat[n_inputs:]))
        own = {n: given[n] for n in names if n in task.params or n in dict(task.model.named_buffers())}
        task.restore()
        out = torch.func.functional_call(task.model, own, tuple(task.args(leaves)))
        return [t for t in tree_flatten(out)[0] if t is not None]

    try:
        module = make_fx(call, pre_dispatch=True, tracing_mode="fake", _allow_non_fake_inputs=True)(*task.inputs,
            *tensors)
    finally:
        task.restore()
    module.graph.eliminate_dead_code()
    kinds, places = {}, [n for n in module.graph.nodes if n.op == "placeholder"]
    for i, node in enumerate(places):
        kinds[node.name] = ("input", i) if i < n_inputs else ("param", names[i - n_inputs], tensors[i - n_inputs])
    for node in module.graph.nodes:
        if node.op == "get_attr":
            t = getattr(module, node.target)
            name = next((n for n in names if held[n] is t), node.target)
            kinds[node.name] = ("param", name, t)
            if "val" not in node.meta:
                node.meta["val"] = t
    return module.graph, kinds, None


def tree(spec, places):
    """forward()'s result: a number is that output, None a leaf that is None, else {"kind", "keys", "items"}."""
    if spec.is_leaf():
        return next(places)
    kind = "dict" if issubclass(spec.type, dict) else "list" if spec.type is list else "tuple"
    made = {"kind": kind, "items": [tree(c, places) for c in spec.children()]}
    if kind == "dict":
        made["keys"] = [str(k) for k in (spec.context if isinstance(spec.context, list) else spec.context[-1])]
    return made


class Writer:
    def __init__(self, task, source, graph, kinds, outs):
        self.task, self.source, self.graph, self.kinds, self.outs = task, source, graph, kinds, outs
        self.names, self.taken = {}, set()
        self.matrix_flops = 0
        self.inputs, self.params, self.alias = [None] * len(task.inputs), [], {}
        self.fake = torch._guards.detect_fake_mode([n.meta.get("val") for n in graph.nodes])

    def result(self):
        self._name_places()
        nodes, results = [], None
        for n in self.graph.nodes:
            if n.op == "call_function":
                entry = self._node(n)
                if entry:
                    nodes.append(entry)
            elif n.op == "output":
                results = tree_flatten(n.args[0])[0]
                if self.outs is not None:
                    results = [r for r, keep in zip(results, self.outs) if keep]
        results = [r for r in results if r is not None]
        meta = self.task.out_meta
        if len(results) != len(meta):
            raise ValueError(f"{len(results)} outputs in the graph, {len(meta)} from forward()")
        outputs = [{"name": f"output{i}", **self._value(r), **form(*m)} for i, (r, m) in enumerate(zip(results, meta))]
        needed = Needed(self.graph, results)
        input_bytes = sum(needed.bytes(n) for n in self._places())
        out_bytes = sum(distinct_bytes(*m[:2], m[2].itemsize) for m in meta)
        graph = {
            "version": VERSION, "source": self.source, "target": self.task.target.kind,
            "task": {"name": self.task.name, "id": self.task.id, "training": self.task.model.training},
            "inputs": [{"name": n, **form(t.shape, t.stride(), t.dtype)} for n, t in self.inputs],
            "scalars": [scalar(x) for x in self.task.scalars],
            "params": [row for row, _ in self.params],
            "nodes": nodes,
            "outputs": outputs, "output_tree": tree(self.task.out_spec, iter(self.task.out_places)),
            "mutated": self.task.mutable_names,
            "totals": {"bytes": input_bytes + out_bytes, "input_bytes": input_bytes, "output_bytes": out_bytes,
                       "flops": sum(n["flops"] for n in nodes), "matrix_flops": self.matrix_flops,
                       "node_bytes": sum(n["bytes"] for n in nodes),
                       "nodes": len(nodes)},
        }
        return graph, {"inputs": self.inputs, "params": [(row["name"], t) for row, t in self.params]}

    # ---- Names

    def _claim(self, name):
        base, i = name, 1
        while name in self.taken:
            name, i = f"{base}_{i}", i + 1
        self.taken.add(name)
        return name

    def _name_places(self):
        """Name inputs first, then the module's own parameters and buffers (used or not), then constants."""
        places = {n.name: n for n in self.graph.nodes if n.op in ("placeholder", "get_attr")}
        for pname, kind in self.kinds.items():
            if kind[0] == "input":
                name = self._claim(pname)
                self.names[pname] = name
                self.inputs[kind[1]] = (name, self.task.inputs[kind[1]])
        for i, have in enumerate(self.inputs):
            if have is None:
                self.inputs[i] = (self._claim(f"input{i}"), self.task.inputs[i])
        rows = {}
        buffers = dict(self.task.model.named_buffers())
        for name, t in [*self.task.params.items(), *buffers.items()]:
            role = "param" if name in self.task.params else "buffer"
            rows[id(t)] = self._param(name, t, role)
        for pname, kind in self.kinds.items():
            if kind[0] != "param" or pname not in places:
                continue
            _, name, t = kind
            used = bool(places[pname].users)
            if id(t) not in rows:
                if not used:
                    continue
                rows[id(t)] = self._param(name, t, "constant")
            row = rows[id(t)]
            row["used"] = row["used"] or used
            self.names[pname] = row["name"]

    def _param(self, name, t, role):
        self.task._usable(t, name)
        row = {"name": self._claim(name), **form(t.shape, t.stride(), t.dtype), "role": role, "used": False}
        if role != "param":
            row["drawn"] = self.task.held.kind(t)
        if role == "constant" and row["drawn"] == "fixed" and t.numel() <= 16:
            row["value"] = plain(t.tolist())
        self.params.append((row, t))
        return row

    # ---- Nodes

    def _value(self, x):
        return {"ref": self.names[x.name]} if isinstance(x, torch.fx.Node) else {"value": plain(x)}

    def _json(self, x):
        if isinstance(x, torch.fx.Node):
            return {"ref": self.names[x.name]} if x.name in self.names else plain(x.meta.get("val"))
        if isinstance(x, (list, tuple)):
            return [self._json(v) for v in x]
        if isinstance(x, dict):
            return {str(k): self._json(v) for k, v in x.items()}
        if isinstance(x, slice):
            return {"slice": [self._json(x.start), self._json(x.stop), self._json(x.step)]}
        return plain(x)

    def _node(self, n):
        if isinstance(n.target, torch._ops.HigherOrderOperator) or n.op == "call_module":
            raise ValueError(f"nested graph {n.target}")
        out = [v for v in tree_flatten(n.meta.get("val"))[0] if isinstance(v, torch.Tensor)]
        op = "getitem" if n.target is operator.getitem else getattr(n.target, "__name__", "?")
        if not out and not n.users and op != "_exit_autocast":
            return None  # an assertion
        name = self.names[n.name] = self._claim(n.name)
        if isinstance(n.target, torch._ops.OpOverload):
            op = str(n.target)
        nbytes, flops = self._cost(n, out)
        return {"name": name, "op": op, "args": self._json(n.args), "kwargs": self._json(n.kwargs),
                "out": [form(t.shape, t.stride(), t.dtype) for t in out], "bytes": nbytes, "flops": flops}

    def _cost(self, n, out):
        operands = [a.meta["val"] for a in n.all_input_nodes
                    if isinstance(a.meta.get("val"), torch.Tensor)]  # each tensor counts once
        if n.target is operator.getitem or not isinstance(n.target, torch._ops.OpOverload):
            return 0, 0
        counted = recurrent.flops(op_name(n.target), torch.fx.node.map_arg(n.args, lambda x: x.meta["val"]))
        counted, aliased = (counted, False) if counted else self._run(n, operands)
        if aliased and not n.target._schema.is_mutable:
            return 0, 0  # a view, or nothing to do
        packet = op_name(n.target)
        sizes = [t.numel() for t in (out if packet in GATHERS else operands + out)]
        if packet == "scaled_dot_product_attention":  # the counter does not know every backend's kernel
            q, k, v = (a.meta["val"] for a in n.args[:3])
            counted = 2 * q.numel() * k.shape[-2] + 2 * q.numel() // max(q.shape[-1], 1) * k.shape[-2] * v.shape[-1]
            causal = n.kwargs.get("is_causal", n.args[5] if len(n.args) > 5 else False)
            counted = counted // 2 if causal else counted
        self.matrix_flops += counted
        read = sum(bytes_of(t) for t in operands)
        written = sum(bytes_of(t) for t in out)
        if packet in GATHERS and operands:
            read = min(bytes_of(operands[0]), written) + sum(bytes_of(t) for t in operands[1:])
        return read + written, counted or (max(sizes) if operands and sizes else 0)

    def _run(self, n, operands):
        """Run the operator on fake tensors; returns (flops that the counter knows, does the result share its operand's
        memory)."""
        def real(x):
            return x.meta["val"]
        try:
            args = torch.fx.node.map_arg(n.args, real)
            kwargs = torch.fx.node.map_arg(n.kwargs, real)
            counter = FlopCounterMode(display=False)
            with torch.no_grad(), counter:
                if self.fake is not None:
                    with self.fake:
                        result = n.target(*args, **kwargs)
                else:
                    result = n.target(*args, **kwargs)
            first = next((t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)), None)
            cells = {t.untyped_storage()._cdata for t in operands}
            return counter.get_total_flops(), first is not None and first.untyped_storage()._cdata in cells
        except Exception:
            return 0, False

    def _places(self):
        """The rows of the graph's inputs and parameters."""
        for n in self.graph.nodes:
            kind = self.kinds.get(n.name, ("",))[0] if n.op in ("placeholder", "get_attr") else ""
            if kind in ("input", "param") and n.name in self.names:
                yield n


def bytes_of(t):
    return span_bytes(tuple(t.shape), tuple(t.stride()), t.dtype.itemsize)


def form(sizes, strides, dtype):
    return {"dtype": DTYPES.get(dtype, str(dtype).replace("torch.", "")), "sizes": [int(s) for s in sizes],
            "strides": [int(s) for s in strides]}


def scalar(x):
    kind = "none" if x is None else "bool" if isinstance(x, bool) else "int" if isinstance(x, int) else "float"
    return {"kind": kind, "value": plain(x)}


def plain(x):
    """Constants as JSON: types of torch as strings, non-finite numbers as strings, complex ones by their parts."""
    if x is None or isinstance(x, (bool, str)):
        return x
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, (int, torch.SymInt)):
        return int(x)
    if isinstance(x, float):
        return number(x)
    if isinstance(x, complex):
        return {"complex": [plain(x.real), plain(x.imag)]}
    if isinstance(x, torch.dtype):
        return DTYPES.get(x, str(x).replace("torch.", ""))
    return str(x).replace("torch.", "")
