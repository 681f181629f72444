"""Make, from a solution's files, a module that can be called on the judge's buffers.

Parameters.  ModelNew is made with the arguments and under the seed that the task's Model was made with.  Its parameters
and buffers are then replaced by the judge's: first by the shared buffer of the same name, shape and dtype; the rest in
order, if shape, dtype and the values made under that seed agree (KernelBench's way: the same seed gives the same
weights, whatever their names).  Nothing is copied, except state that the task changes in forward(), which is restored
at the start of each call.  Plain attributes are replaced, too, if draws change the task's own.  A parameter without a
counterpart keeps the value it was made with; the judge is told its name.

cpu: the judge itself restores such state, by its address, while this process stands.  Where it cannot (another layout)
and on cuda the copy is made within the call.
"""

import importlib.util
import linecache
import os
import random
import sys
import traceback
import types

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from wwbridge.compiler import compiled
from wwbridge.local import Local
from wwbridge.redraw import tensors_of
from wwbridge.source import construct
from wwbridge.tensors import overlap, span_bytes

from . import Problem, build

WORK, TASK = "/tmp/work", "/tmp/task"


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy

        numpy.random.seed(seed & 0xFFFFFFFF)
    except ImportError:
        pass


def own_traceback(e):
    """The exception's traceback with only the frames of the solution's and the task's files."""
    frames = [f for f in traceback.extract_tb(e.__traceback__)
              if f.filename.startswith((WORK, "<")) and not f.filename.startswith("<frozen")]
    lines = traceback.format_list(frames) + traceback.format_exception_only(type(e), e)
    return "".join(lines).replace(WORK + "/", "")


def guarded(kind, call, *args):
    try:
        return call(*args)
    except Problem:
        raise
    except BaseException as e:  # untrusted code may raise anything, SystemExit too
        text = str(e)
        if isinstance(e, RuntimeError) and text.startswith("Error building extension"):
            raise Problem("build", text.replace("/tmp/build/", "").replace(WORK + "/", ""))
        raise Problem(kind, own_traceback(e))


def write_files(files):
    for f in files:
        build.write_once(os.path.join(WORK, f["path"]), f["text"])


def load_module(form, files):
    """Run model_new.py from a real file (Triton reads its source); before that, write the files that it needs."""
    if form == "cuda-agent":
        sys.path.insert(0, WORK)
        guarded("build", build.cuda_extension, WORK, [f["path"] for f in files])
    spec = importlib.util.spec_from_file_location("model_new", os.path.join(WORK, "model_new.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["model_new"] = module
    guarded("solution", spec.loader.exec_module, module)
    if not callable(getattr(module, "ModelNew", None)):
        raise Problem("solution", "model_new.py defines no ModelNew")
    return module


def load_task(source, local):
    filename = "<task>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = types.ModuleType("model")
    own = Local(TASK if local else "", local)
    own.enter()
    if local:
        module.__file__ = os.path.join(TASK, "model.py")
    if "model" not in own.modules:
        sys.modules["model"] = module
    exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
    return module


class Ground:
    """The task's side: its module and its arguments on the judge's buffers, made before any code of the solution
    runs."""

    def __init__(self, q, shared, device):
        self.shared, self.device = shared, device
        self.seed, self.on_host = q["model_seed"], set(q["on_host"])
        self.params = q["params"]
        with torch.no_grad():
            self.task = load_task(q["task"], q.get("local", ()))
            self.init = self.make("get_init_inputs()", self.seed, self.task.get_init_inputs)
            self.args = self._arguments()

    def make(self, what, seed, call):
        """Make a module as the reference worker does: under a seed, on the device if that works."""
        seed_all(seed)
        if self.device.type == "cpu" or what in self.on_host:
            return call()
        with self.device:
            return call()

    def _arguments(self):
        try:
            args = self.make("get_inputs()", 0, self.task.get_inputs)
        except Exception:
            args = self.task.get_inputs()
        leaves, spec = tree_flatten(list(args))
        places = iter(self.shared.inputs)
        return tree_unflatten([next(places) if isinstance(x, torch.Tensor) else x for x in leaves], spec)


class Solution:
    def __init__(self, q, ground):
        self.ground, self.args, self.outputs, self.found = ground, ground.args, ground.shared.outputs, None
        made = ground.task.Model if q["form"] == "task" else load_module(q["form"], q["files"]).ModelNew
        with torch.no_grad():
            self.model = self.callee = self._make(made)
            self._adopt(ground.params)
        if q["form"] == "task" and q["compile"] != "eager":  # a baseline
            self.callee = compiled(self.model, ground.device, False,
                                   mode="max-autotune" if q["compile"] == "autotune" else None)

    # ---- Making

    def _make(self, cls):
        g = self.ground
        model = guarded("solution", g.make, "Model(...)", g.seed, lambda: construct(cls, g.init))
        if not isinstance(model, torch.nn.Module):
            raise Problem("solution", "ModelNew is no torch.nn.Module")
        return guarded("solution", model.to, g.device)

    def _adopt(self, rows):
        mutated, drawn = ({r["name"] for r in rows if r.get(what)} for what in ("mutated", "drawn"))
        buffers, plain, _ = tensors_of(self.model)
        # The judge writes over what a call has returned.  cuda: an attribute may be what a CUDA graph writes each time.
        kept = [*buffers.values(), *(plain.values() if self.ground.device.type == "cpu" else ())]
        shared = self.ground.shared.params
        plain = {n: t for n, t in plain.items() if any(n == k or alike(t, shared[k]) and torch.equal(t, shared[k])
                                                       for k in drawn)}
        mine = {**plain, **dict(self.model.named_parameters()), **buffers}
        theirs = dict(shared)
        pairs = [(n, n) for n in mine if n in theirs and alike(mine[n], theirs[n])]
        for n, _ in pairs:
            theirs.pop(n)
        self.unmatched = []
        for n in [n for n in mine if n not in {a for a, _ in pairs}]:
            found = next((k for k, t in theirs.items() if alike(mine[n], t) and torch.equal(mine[n], t)), None)
            if found is None:
                self.unmatched.append(n)
            else:
                theirs.pop(found)
                pairs.append((n, found))
        self.refresh, self.state = [], {}  # what is restored here, and by the judge
        self.bound = [(*table_of(self.model, name), mine[name]) for name, other in pairs if other in mutated]
        for name, other in pairs:
            if other in mutated and self.ground.device.type == "cpu" and same_layout(mine[name], shared[other]):
                self.state[other] = mine[name]
            elif other in mutated:
                self.refresh.append((mine[name], shared[other]))
            else:
                mine[name].data = shared[other]
        self.held = {memory_of(t) for t in (*self.ground.shared.inputs, *shared.values(), *kept,
                                            *(t for t, _ in self.refresh), *self.state.values())}

    # ---- Calling

    def run(self):
        self.found = None  # free the outputs of the previous call, whose memory this one may use
        for table, key, t in self.bound:  # forward() may have put another tensor there
            table[key] = t
        for t, s in self.refresh:
            t.copy_(s)
        return self.callee(*self.args)

    def collect(self, out):
        """Keep the outputs until the next call; returns where they lie."""
        found = [x for x in tree_flatten(out)[0] if x is not None]
        if len(found) != len(self.outputs):
            raise Problem("output", f"forward() returned {len(found)} tensors, the task returns {len(self.outputs)}")
        self.found = [self.plain(i, t, *form) for i, (t, form) in enumerate(zip(found, self.outputs))]
        self.separate()
        return self.ground.shared.places(self.found)

    def separate(self):
        """Copy, within the call, what is an argument's, the module's or another output's memory where the task's output
        is a copy."""
        storages = [memory_of(t) for t in self.found]
        alone = len(set(storages)) == len(storages)
        for i, (t, at) in enumerate(zip(self.found, storages)):
            if self.ground.shared.apart[i] and (at in self.held or not alone and any(
                    k != i and overlap(t, o) for k, o in enumerate(self.found))):
                self.found[i] = t.clone()

    def plain(self, i, t, shape, dtype, strides):
        """A tensor with the memory layout of the task's output: a view where the task's output is a copy (expand() for
        repeat(), a transpose) is copied here, within the call."""
        if type(t) is not torch.Tensor and type(t) is not torch.nn.Parameter:
            raise Problem("output", f"output {i} is a {type(t).__name__}, not a torch.Tensor")
        if t.layout is not torch.strided or t.is_nested:
            raise Problem("output", f"output {i} is not strided")
        if t.shape != shape or t.dtype != dtype or t.device != self.ground.device:
            raise Problem("output", f"output {i} is {t.dtype} {tuple(t.shape)} on {t.device}, the task's is {dtype} "
                                    f"{tuple(shape)} on {self.ground.device}")
        t = t.resolve_neg()
        if strides and any(n > 1 and a != b for n, a, b in zip(shape, t.stride(), strides)):
            t = torch.empty_strided(shape, strides, dtype=dtype, device=t.device).copy_(t)
        return t


def table_of(model, name):
    """Where a module holds the tensor of that name: (dict, key)."""
    owner, _, key = name.rpartition(".")
    m = model.get_submodule(owner)
    return next(t for t in (m._parameters, m._buffers, m.__dict__) if key in t), key


def alike(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.layout == b.layout


def same_layout(a, b):
    """Whether elements lie at the same places in both, without gaps."""
    return a.stride() == b.stride() and span_bytes(a.shape, a.stride(), a.itemsize) == a.numel() * a.itemsize


def memory_of(t):
    """Where a tensor's storage begins; None if it has none of its own, as a sparse or a wrapped one."""
    try:
        return t.untyped_storage().data_ptr()
    except RuntimeError:
        return None
