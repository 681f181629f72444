"""A task's ATen graph, made on tensors without values (FakeTensorMode), so that a task of any size takes neither memory
nor time.  The same graph as graph.py's, which src/task/signature.c reads, without the parts that need values (bytes,
flops, which state changes, what redraws can change).

A module that needs values when it is made (`.item()` in __init__) is made with real tensors."""

import types
from contextlib import nullcontext

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from . import Refuse, facts, graph, recurrent, source, task
from .local import Local
from .tensors import DTYPES


class Outline:
    """A task with the members that graph.py reads."""

    def __init__(self, text, name, local):
        self.name, self.id = name, ""
        self.module = types.ModuleType("ww_task")
        local.enter()
        exec(source.compiled(text, name, f"<{name}>"), self.module.__dict__)
        source.refuse_missing(name, [w for w in source.NEEDED if not callable(getattr(self.module, w, None))])
        self.model = source.construct(self.module.Model, self.module.get_init_inputs())
        if not isinstance(self.model, torch.nn.Module):
            raise Refuse("task", f"{name}: Model is no torch.nn.Module")
        args = self.module.get_inputs()
        self.leaves, self.spec = tree_flatten(list(args))
        self.slots = [i for i, x in enumerate(self.leaves) if isinstance(x, torch.Tensor)]
        self.inputs = [self.leaves[i] for i in self.slots]
        self.scalars = [x for x in self.leaves if not isinstance(x, torch.Tensor)]
        self.params = dict(self.model.named_parameters())
        self.state = dict(self.model.named_buffers())
        self.target = types.SimpleNamespace(kind="cpu")
        self.mutable_names, self.held = [], types.SimpleNamespace(kind=lambda t: "fixed")
        with torch.no_grad():
            out = self.model(*self.args())
        leaves, self.out_spec = tree_flatten(out)
        tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
        if not tensors:
            raise Refuse("task", f"{name}: forward() returns no tensor")
        places = iter(range(len(tensors)))
        self.out_places = [next(places) if isinstance(t, torch.Tensor) else None for t in leaves]
        self.out_meta = [(tuple(t.shape), t.stride(), t.dtype) for t in tensors]

    def args(self, leaves=None):
        return tree_unflatten(self.leaves if leaves is None else leaves, self.spec)

    def restore(self):
        pass

    def _usable(self, t, what):
        if t.dtype not in DTYPES:
            raise Refuse("task", f"{self.name}: {what} has dtype {t.dtype}, which is not supported")


def apply_anew(self, fn, recurse=True):
    """torch.nn.Module._apply(), which .half() and .to() go through: new parameters in place of exchanged contents,
    which tensors without values refuse."""
    for child in self.children():
        apply_anew(child, fn)
    for name, p in self._parameters.items():
        if p is not None:
            self._parameters[name] = torch.nn.Parameter(fn(p), p.requires_grad)
    for name, b in self._buffers.items():
        if b is not None:
            self._buffers[name] = fn(b)
    return self


class Writer(graph.Writer):
    def _cost(self, n, out):
        return 0, 0

    def _param(self, name, t, role):
        row = {"name": self._claim(name), **graph.form(t.shape, t.stride(), t.dtype), "role": role, "used": False}
        if role == "constant" and t.numel() == 1 and not hasattr(t, "fake_mode"):
            row["value"] = graph.plain(t.tolist())
        self.params.append((row, t))
        return row

    def _node(self, n):
        made = super()._node(n)
        if made:
            made["from"] = called(n)
        return made


def called(n):
    """PyTorch's modules and functions that called this operator, by the last part of their names."""
    stack = n.meta.get("nn_module_stack") or {}
    names = [str(v[1]).split(".")[-1] for v in stack.values() if "ww_task" not in str(v[1])]
    fn = n.meta.get("torch_fn")
    return names + ([str(fn[1]).split(".")[-1]] if fn else [])


def nodes_of(made):
    """The graph's nodes with the members that signatures need."""
    return {"inputs": made["inputs"], "scalars": made["scalars"], "params": made["params"], "outputs": made["outputs"],
            "nodes": [{k: v for k, v in n.items() if k not in ("bytes", "flops")} for n in made["nodes"]]}


def outline(text, name, local):
    """Call it in a forked process (apart.py): it patches graph.py for good."""
    graph.Needed, graph.Writer = (lambda *_: types.SimpleNamespace(bytes=lambda n: 0)), Writer
    torch.nn.Module._apply = apply_anew
    problem = None
    with torch.no_grad(), recurrent.by_shape():
        for mode in (FakeTensorMode(allow_non_fake_inputs=True), nullcontext()):
            try:
                with mode:
                    made = Outline(text, name, local)
                return {"graph": nodes_of(graph.build(made)[0])}
            except Refuse as e:
                raise problem or e
            except Exception as e:
                problem = problem or Refuse("task", f"{name}: {type(e).__name__}: {e}")
                if not any(word in f"{type(e).__name__} {e}".lower() for word in ("datadependent", "fake")):
                    break  # real tensors would fail, too
    raise problem


def trial(text, name, local, q):
    """Load the task as the judge would, and ask whether it is degenerate: {"trial": the answer of degenerate()}."""
    target = facts.start(q)
    with torch.no_grad():
        return {"trial": task.Task(text, name, 1, target, local).degenerate(2, 3)}


def warm_up():
    """Import what every outline needs, so that it is not imported in each process anew."""
    text = ("import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.f = torch.nn.Linear(2, 2)\n"
            "    def forward(self, x):\n        return self.f(x).relu()\n"
            "def get_inputs():\n    return [torch.rand(2, 2)]\ndef get_init_inputs():\n    return []\n")
    own = graph.Needed, graph.Writer, torch.nn.Module._apply
    torch.set_num_threads(1)  # threads do not survive a fork
    try:
        outline(text, "warm_up", Local())
    finally:
        graph.Needed, graph.Writer, torch.nn.Module._apply = own
