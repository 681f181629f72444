"""One task: its model, its inputs, its state, and whether it can be judged at all.

Layout.  The model's parameters and the input tensors have fixed addresses for the life of the task: a draw copies new
values into them, so that CUDA graphs and compiled code of the baselines stay valid.  They are PyTorch's own memory.
The buffers that a candidate sees (buffers.py) are separate copies: a candidate can never reach what the reference
computes from, and the baseline runs on memory from PyTorch's allocator, as it would in use.  It costs one more copy of
inputs and parameters.

State.  The module keeps the mode it was created in.  Every tensor that the module holds besides its parameters (buffers
and plain attributes) is cloned at load; those that a forward pass changed are restored before every call, by value
where it was changed in place and by binding where an attribute was replaced.

Refusals (kind "task", one line): what cannot be judged by comparing outputs is refused by name, here and nowhere else.
"""

import hashlib
import linecache
import math
import os
import random
import sys
import time
import types
from contextlib import contextmanager
from functools import cached_property

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from . import NoCollection, Refuse, device_failed, fused, one_line, out_of_memory, source
from .baseline import Clock
from .buffers import Shared, row, wanted
from .cached_graph import table_of
from .facts import settings
from .local import Local
from .pool import Pool
from .redraw import CONTAINERS, State, tensors_of
from .reference import References, degenerate
from .returned import Returned
from .share import Share
from .tensors import DTYPES, apart, copy_all, same_bits, span, sub_seed
from .ties import Cost
from .trace import Trace
from .uneven import Uneven

MAX_RANK = 8
MAX_OUTPUTS = 64
SMALL_ELEMENTS = 1 << 20
TRACES, TRACE_SECONDS, ONE_THREAD_SECONDS = 7, 0.1, 2
PROBES = 80  # writes of twice the last cache: 3 ms on an H200, more than one slice of a shared device
DOUBLES = (torch.float64, torch.complex128)


def no_room(what, e):
    return Refuse("memory", f"{what} does not fit into the memory of this device now; make its tensors smaller: {e}")


def seed_all(seed):
    torch.default_generator.manual_seed(seed)  # not torch.manual_seed(), which looks for every kind of device
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    try:
        import numpy

        numpy.random.seed(seed & 0xFFFFFFFF)
    except ImportError:
        pass


class Watch(TorchDispatchMode):
    """Dispatch mode that sees every operator of one forward pass and records what cannot be judged."""

    def __init__(self):
        super().__init__()
        self.problem = self.draws = None  # draws: the first operator that draws random numbers

    def note(self, text):
        self.problem = self.problem or text

    @staticmethod
    def rounds(out, args):
        """Record for each result whether a value that it was computed from was rounded to a type smaller than fp64."""
        args = [x for x in args if isinstance(x, torch.Tensor)]
        before = any(rounded(x) for x in args)
        storages = {x.untyped_storage()._cdata for x in args if x.layout is torch.strided}
        for t in out:
            if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()) and \
                    t.layout is torch.strided:
                if before or t.dtype not in DOUBLES and t.untyped_storage()._cdata not in storages:
                    t.ww_rounded = True

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # PyTorch would import the whole of torch.compile (a second) to keep it out of this mode

    def __torch_dispatch__(self, func, types_, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = str(func).replace(".default", "")
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.draws = self.draws or name
        if torch.Tag.data_dependent_output in func.tags:
            self.note(f"the task is data-dependent: {name} turns tensor values into Python values")
        if torch.Tag.dynamic_output_shape in func.tags and self.dynamic(func, args):
            self.note(f"the task is data-dependent: the output shape of {name} depends on values")
        if func is torch.ops.aten.view.dtype and args[0].dtype.is_floating_point != args[1].is_floating_point:
            self.note("the task reinterprets the bits of floating numbers; it has no fp64 reference")
        results = tree_flatten(out)[0]
        self.rounds(results, tree_flatten((args, kwargs or {}))[0])
        return out

    @staticmethod
    def dynamic(func, args):
        if func.overloadpacket is torch.ops.aten.index:
            return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        return True


# Hints for PyTorch's errors, found by a part of their text.
HINTS = {
    "no known parent package": "; files beside the task are imported by their names alone: from NAME import ...",
    "Found no NVIDIA driver": "; leave cuda out of the task: module and inputs are moved to the target",
    "not compiled with CUDA": "; leave cuda out of the task: module and inputs are moved to the target",
}


def hint(e):
    return next((text for part, text in HINTS.items() if part in str(e)), "")


def rounded(t):
    return getattr(t, "ww_rounded", False)


class Task:
    def __init__(self, text, name, seed, target, local=None, content=None):
        self.source, self.name, self.seed, self.target = text, name, seed, target
        self.local = local or Local()
        self.device = target.device
        self.id = content or hashlib.sha256(text.encode()).hexdigest()
        self.filename = f"<{name}>"
        self._graph = self._shared = self._clock = self._references = self._draw_key = None
        self._returned, self._shares = None, False  # what a candidate's last call returned; wipe()
        self._drawn = self._uneven = self._loosest = None
        self.run_s = 0.0  # of a run, others' work on the device included
        self._pool = Pool(target, target.pool_bytes)
        self.out_meta, self.out_apart = [], []
        self.local.enter()
        self.module = self._execute()
        with torch.no_grad():
            try:
                self._build()
                with self.lightly():
                    self._check()
            except Refuse:
                raise
            except (MemoryError, RuntimeError) as e:
                if out_of_memory(e):
                    raise no_room(name, e)
                raise
        self._check_settings("the task")
        if self.local.unnamed:
            raise Refuse(
                "task",
                f"{name} reads {self.local.unnamed[0]}, which its text does not name; import it by a statement, or "
                "write its name as one string: a file that is not part of the task would be changed unnoticed",
            )

    # ---- Building

    def _execute(self):
        lines = self.source.splitlines(True)
        linecache.cache[self.filename] = (len(self.source), None, lines, self.filename)
        module = types.ModuleType("ww_task")
        if self.local.roots:
            module.__file__ = os.path.join(self.local.roots[0], self.name)
        sys.modules["ww_task"] = module
        self._user("running the file", exec, source.compiled(self.source, self.name, self.filename), module.__dict__)
        source.refuse_missing(self.name, [w for w in source.NEEDED if not callable(getattr(module, w, None))])
        return module

    def _user(self, what, call, *args, **kwargs):
        """Run the task's code and turn whatever it raises into a refusal that names the line."""
        try:
            with self.local.watched():
                return call(*args, **kwargs)
        except ModuleNotFoundError as e:
            source.refuse_package(self.name, e.name, self.local.roots)
        except (KeyboardInterrupt, Refuse):
            raise
        except BaseException as e:
            if out_of_memory(e):
                raise no_room(f"{self.name} ({what})", e)
            if isinstance(e, SystemExit):
                raise Refuse("task", f"{self.name}: {what} called sys.exit")
            if "does not require grad" in str(e):
                raise Refuse("task", f"{self.name} needs autograd in forward(), which is not supported")
            if device_failed(e):
                raise Refuse("device", f"{self.name}: {what}: {e}")
            line, tb = None, e.__traceback__
            while tb:
                if tb.tb_frame.f_code.co_filename == self.filename:
                    line = tb.tb_lineno
                tb = tb.tb_next
            where = f" in line {line}" if line else ""
            raise Refuse("task", f"{self.name}: {what} failed{where}: {type(e).__name__}: {one_line(e, 300)}{hint(e)}")

    def _made_on_device(self, what, seed, call):
        """Run seeded code that makes tensors, with the target as default device; if that mixes devices, on the cpu."""
        seed_all(seed)
        if self.target.kind == "cpu" or what in self._host_made:
            return self._user(what, call)
        try:
            with self.device, self.local.watched(), self.target.share:
                return call()
        except BaseException as e:
            if out_of_memory(e):
                raise no_room(f"{self.name} ({what})", e)
            self._host_made.add(what)
            return self._made_on_device(what, seed, call)

    def _build(self):
        self._host_made = set()
        seed = sub_seed(self.seed, "model")
        init = self._made_on_device("get_init_inputs()", seed, self.module.get_init_inputs)
        if not isinstance(init, (list, tuple, dict)):
            raise Refuse(
                "task",
                f"{self.name}: get_init_inputs() must return a list of Model's arguments, or a dict of named ones",
            )
        self._init = init
        self.model = self._model(seed)
        self._collect_state()
        leaves, self.spec = self._draw_leaves(sub_seed(self.seed, "inputs"))
        self.slots = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.leaves = list(leaves)
        for i in self.slots:
            self.leaves[i] = self._fixed(leaves[i])
        self.inputs = [self.leaves[i] for i in self.slots]
        self.scalars = [x for x in leaves if not isinstance(x, torch.Tensor)]
        for x in self.scalars:
            if x is not None and not isinstance(x, (bool, int, float)):
                raise Refuse("task", f"{self.name}: an argument of type {type(x).__name__} is not supported")
            if isinstance(x, int) and not -(1 << 63) <= x < (1 << 63):
                raise Refuse("task", f"{self.name}: the integer argument {x} does not fit 64 bits")

    def _model(self, seed):
        try:
            model = self._made_on_device("Model(...)", seed, lambda: source.construct(self.module.Model, self._init))
        except Refuse as e:
            if not isinstance(self._init, dict) and any(isinstance(x, dict) for x in self._init):
                raise Refuse(
                    e.kind,
                    f"{self.name}: get_init_inputs() returns a list that holds a dict, which is one argument of Model; "
                    f"return the dict itself where it names the arguments ({e})",
                )
            raise
        if not isinstance(model, torch.nn.Module):
            raise Refuse("task", f"{self.name}: Model is no torch.nn.Module")
        return model.to(self.device)

    def _fixed(self, t):
        """A copy of a tensor, with the same layout and a fixed address."""
        out = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=self.device)
        span(out).copy_(span(t))
        return out

    def _usable(self, t, what):
        odd = (
            "no tensor"
            if not isinstance(t, torch.Tensor)
            else "sparse" if t.layout is not torch.strided else "quantised" if t.is_quantized else None
        )
        if odd:
            raise Refuse("task", f"{self.name}: {what} is {odd}, which is not supported")
        if t.is_complex():
            raise Refuse("task",
                         f"{self.name}: {what} is complex; complex tensors are supported between operators only")
        if t.dtype not in DTYPES:
            raise Refuse("task", f"{self.name}: {what} has dtype {t.dtype}, which is not supported")
        if t.dim() > MAX_RANK:
            raise Refuse("task", f"{self.name}: {what} has {t.dim()} dimensions, more than {MAX_RANK}")

    def _draw_leaves(self, seed):
        args = self._made_on_device("get_inputs()", seed, self.module.get_inputs)
        if not isinstance(args, (list, tuple)):
            raise Refuse("task", f"{self.name}: get_inputs() must return a list of forward()'s arguments")
        leaves, spec = tree_flatten(list(args))
        for i, x in enumerate(leaves):
            if isinstance(x, torch.Tensor):
                self._usable(x, f"input {i}")
                leaves[i] = x.detach().to(self.device)
        return leaves, spec

    # ---- State

    def _collect_state(self):
        """Record the bindings and values of all tensors that the module holds."""
        self.params = dict(self.model.named_parameters())
        self._bindings = []
        for m in self.model.modules():
            for k, v in list(m.__dict__.items()):
                if k in CONTAINERS or not isinstance(v, torch.Tensor):
                    continue
                if v.device != self.device:
                    v = m.__dict__[k] = v.to(self.device)
                self._bindings.append((m.__dict__, k, v))
            for table in (m._buffers, m._parameters):
                self._bindings += [(table, k, v) for k, v in table.items() if v is not None]
        self.state = {n: t for held in tensors_of(self.model) for n, t in held.items()}
        for name, t in {**self.params, **self.state}.items():
            self._usable(t, name)
        self._initial, self._moments_of = {n: t.detach().clone() for n, t in self.params.items()}, {}
        self.saved = {n: t.detach().clone() for n, t in self.state.items()}
        self.mutated = set(self.state)  # all, until a run has shown which are changed
        self.held = State(self, self._model)

    def restore(self):
        for table, key, value in self._bindings:
            table[key] = value
        for name in self.mutated:
            self.state[name].copy_(self.saved[name])

    def _find_mutated(self):
        """After one forward pass: which tensors have changed?"""
        bound = {id(v) for table, key, v in self._bindings if table.get(key) is not v}
        for name, p in self.params.items():
            if not same_bits(p, self._initial[name]):
                raise Refuse("task", f"{self.name} changes its parameter {name} in forward(), which is not supported")
        changed = {n for n, t in self.state.items() if id(t) in bound or not same_bits(t, self.saved[n])}
        self.mutated = {n for n in changed if not same_bits(self.state[n], self.saved[n])}
        self.mutable_names = sorted(changed)
        self.saved = {n: self.saved[n] for n in changed}

    # ---- Running

    @contextmanager
    def lightly(self):
        """Context for our own computations with a small task: one thread.  More threads spin while they wait for each
        other, which costs more than they save, above all if several judges share the processors."""
        elements = sum(t.numel() for t in [*self.inputs, *self.params.values()]) + sum(math.prod(m[0])
            for m in self.out_meta)
        with self.one_thread(self.target.kind == "cpu" and elements <= SMALL_ELEMENTS):
            yield

    @staticmethod
    @contextmanager
    def one_thread(one):
        threads = torch.get_num_threads()
        try:
            if one:
                torch.set_num_threads(1)
            yield
        finally:
            if one and torch.get_num_threads() == 1:  # else the task changed it, and _check_settings reports it
                torch.set_num_threads(threads)

    def args(self, leaves=None):
        return tree_unflatten(self.leaves if leaves is None else leaves, self.spec)

    def forward(self, leaves=None):
        """Restore buffers, then call the module as it is; the flat list of its output tensors."""
        self.restore()
        with torch.no_grad(), self.target.share:
            out = self._user("forward()", self.model, *self.args(leaves))
        return self._flat(out)

    def _flat(self, out):
        leaves, self.out_spec = tree_flatten(out)
        for x in leaves:
            if x is not None and not isinstance(x, torch.Tensor):
                raise Refuse("task",
                             f"{self.name}: forward() returns a {type(x).__name__}; only tensors can be compared")
        tensors = [x for x in leaves if x is not None]
        places = iter(range(len(tensors)))
        self.out_places = [None if x is None else next(places) for x in leaves]
        if not tensors:
            raise Refuse("task", f"{self.name}: forward() returns no tensor")
        if len(tensors) > MAX_OUTPUTS:
            raise Refuse("task", f"{self.name}: forward() returns {len(tensors)} tensors, more than {MAX_OUTPUTS}")
        return tensors

    def _rng_state(self):
        state = [torch.get_rng_state()]
        if self.target.kind == "cuda":
            state.append(torch.cuda.get_rng_state(self.device))
        return state

    def _check(self):
        """Run the task and refuse what cannot be judged."""
        copies = [span(t).clone() for t in self.inputs]
        seed_all(1)
        before = self._rng_state()
        watch = Watch()
        with watch:
            first = self.forward()
        self.target.sync()
        if watch.problem:
            raise Refuse("task", f"{self.name}: {watch.problem}")
        if any(not torch.equal(a, b) for a, b in zip(before, self._rng_state())):
            raise Refuse("task", f"{self.name} is random: {self._why_random(watch.draws)}")
        for i, t in enumerate(first):
            self._usable(t, f"output {i}")
            if t.requires_grad:
                raise Refuse("task", f"{self.name} needs autograd in forward(), which is not supported")
        for i, (t, k) in enumerate(zip(self.inputs, copies)):
            if not same_bits(span(t), k):
                raise Refuse("task", f"{self.name} writes into its input {i}, which is not supported; "
                             "let forward() write into a clone of it")
        del copies
        self._find_mutated()
        self.rounded = [rounded(t) for t in first]
        self.out_apart = apart(first, [*self.inputs, *self.params.values(), *self.state.values()])
        first = [t.clone() for t in first]
        self.out_meta = [(tuple(t.shape), tuple(torch.empty_like(t, device="meta").stride()), t.dtype) for t in first]
        seed_all(2)
        start = time.monotonic()
        second = self.forward()
        self.target.sync()
        share = self.target.share
        self.run_s = share.seconds if isinstance(share, Share) else time.monotonic() - start
        for i, (a, b) in enumerate(zip(first, second)):
            if a.shape != b.shape or differ(a, b):
                raise Refuse("task", f"{self.name} is random: output {i} differs between two runs on the same inputs")
        self._check_draws(first)
        self.restore()
        self.held.look(self._finite)

    def _finite(self):
        try:
            return all(bool(t.isfinite().all()) for t in self.forward() if t.is_floating_point())
        except Refuse as e:
            if e.kind != "task":
                raise
            return False
        finally:
            self.restore()

    def _why_random(self, operator):
        dropout = [n or type(m).__name__ for n, m in self.model.named_modules() if m.training and (
            isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0
            or isinstance(m, (torch.nn.RNNBase, torch.nn.MultiheadAttention)) and m.dropout > 0)]
        if dropout:
            return f"dropout is active ({', '.join(dropout[:4])}); end Model.__init__ with self.eval()"
        return (
            f"forward() draws random numbers ({operator or 'by a generator'}); where that is dropout, give it "
            "training=self.training and end Model.__init__ with self.eval()"
        )

    def _check_draws(self, first):
        seed = sub_seed(self.seed, "inputs")
        again, _ = self._draw_leaves(seed)
        for i in self.slots:
            if again[i].shape != self.leaves[i].shape or not same_bits(again[i], self.leaves[i]):
                raise Refuse("task", f"{self.name}: get_inputs() does not repeat under the same seed")
        del again
        other, _ = self._draw_leaves(seed + 1)
        self._check_same_form(other)
        if not self.target.examines:
            self.check_shapes(self.forward(other))
            self.restore()

    def check_shapes(self, out):
        """out: of another draw than that with which the task was loaded."""
        if [tuple(t.shape) for t in out] != [m[0] for m in self.out_meta]:
            raise Refuse("task", f"{self.name} is data-dependent: the output shapes depend on the input values")

    def _check_same_form(self, leaves):
        if len(leaves) != len(self.leaves):
            raise Refuse(
                "task",
                f"{self.name}: get_inputs() draws {len(leaves)} arguments, and {len(self.leaves)} in another draw",
            )
        for i, (a, b) in enumerate(zip(leaves, self.leaves)):
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
                forms = [(tuple(t.shape), str(t.dtype), t.stride()) for t in (a, b)]
                what = next((w for w, x, y in zip(("shape", "dtype", "strides"), *forms) if x != y), None)
            else:
                what = None if type(a) is type(b) and a == b else "value"
            if what:
                raise Refuse("task", f"{self.name}: argument {i} of get_inputs() differs in {what} from draw to draw")

    def _check_settings(self, who):
        now = settings(torch)
        for k, v in self.target.settings.items():
            if now[k] != v:
                raise Refuse("task", f"{self.name}: {who} changed PyTorch's global setting {k} ({v} became {now[k]})")

    def summary(self):
        return {"id": self.id, "name": self.name, "inputs": len(self.inputs), "params": len(self.params),
                "outputs": len(self.out_meta), "mutated": self.mutable_names, "training": self.model.training}

    # ---- Draws

    def draw(self, seed, scale, shift, params, keep="", keep_values=True, later=False, lot=""):
        """later: the buffers get it when it is published.  lot: "uneven": some inputs are (uneven.py); "plain" or "":
        none are.  Returns whether an uneven one would differ; with "" that is not asked."""
        if params not in ("redraw", "init", "keep"):
            raise Refuse("request", "draw: params must be redraw, init or keep")
        if keep not in ("", "strict", "paper") or (keep and params == "keep"):
            raise Refuse("request", "draw: keep must be strict or paper, and with new parameters")
        if lot not in ("", "plain", "uneven") or (lot and (scale, shift, params) != (1.0, 0.0, "redraw")):
            raise Refuse("request", "draw: lot must be plain or uneven, with new parameters and inputs as they are")
        self._forget_outputs()
        self._drawn = (seed, scale, shift, params, keep, keep_values, later, lot)
        self._draw_key = (seed, scale, shift, params, lot == "uneven", keep) if keep else None
        self._keeps_values = keep_values
        self._references, values = self._pool.get(self._draw_key)
        with torch.no_grad(), self.lightly():
            how = self.uneven() if lot else None
            if values:
                copy_all(self._values, values)
                self.held.keep_all()
            else:
                self._new_values(seed, scale, shift, params)
                if how and lot == "uneven":
                    how.apply(seed)
                if self._draw_key:
                    self._pool.put(self._draw_key, self._references, self._values if keep_values else None)
            if self._shared and not later:
                self._shared.publish(params != "keep")
        self.target.sync()
        return bool(how)

    def _new_values(self, seed, scale, shift, params):
        if params == "init":
            self._forget_params()
            self.held.reset()
        elif params == "redraw":
            self._redraw(seed)
        self._draw_inputs(seed, scale, shift)

    def uneven(self):
        if self._uneven is None:
            if self._loosest is None:
                self._new_values(sub_seed(self.seed, "uneven"), 1.0, 0.0, "redraw")
                self._loosest = References(self).loosest()
            self._uneven = Uneven(self, self._loosest)
        return self._uneven

    @cached_property
    def _values(self):
        """All tensors that a draw writes."""
        return [span(t.detach()) for t in (*self.inputs, *self.params.values(), *self.held.drawn().values())]

    def _draw_inputs(self, seed, scale, shift):
        leaves, _ = self._draw_leaves(sub_seed(seed, "inputs"))
        self._check_same_form(leaves)
        inputs = [span(t) for t in self.inputs]
        copy_all(inputs, [span(leaves[i]) for i in self.slots])
        for t in inputs if scale != 1.0 or shift != 0.0 else ():
            if t.dtype.is_floating_point:
                t.mul_(scale).add_(shift)

    def _redraw(self, seed):
        """New values for every parameter, none at its default (docs/design/rules.md, section 4), and for what else the
        module holds (redraw.py)."""
        self._forget_params()
        seed_all(sub_seed(seed, "params"))
        for m in self.model.modules():
            own = {k: p for k, p in m._parameters.items() if p is not None}
            resets, old = bool(own) and callable(getattr(m, "reset_parameters", None)), {}
            if resets:
                old = {k: p.detach().clone() for k, p in own.items()}
                try:
                    m.reset_parameters()
                except Exception:  # an initialiser that needs arguments, or that cannot run twice
                    pass
            norm = "Norm" in type(m).__name__
            for k, p in own.items():
                if not p.dtype.is_floating_point:
                    continue
                if k == "bias" or k.startswith("bias_"):
                    p.uniform_(-0.5, 0.5)
                elif norm and k == "weight":
                    p.uniform_(0.5, 1.5)
                elif not resets or same_bits(p, old[k]):
                    redraw_like(p, *self._moments(p))
        self.held.draw(seed)

    def _forget_params(self):
        """Give the parameters their initial values: those of the previous draw must not be visible."""
        copy_all([p.detach() for p in self.params.values()], list(self._initial.values()))

    def _moments(self, p):
        """(mean, standard deviation) of a parameter's initial values; for each only once, since it waits for a GPU."""
        name = next((n for n, own in self.params.items() if own is p), None)
        if name is None:  # an initialiser has bound another one
            return moments(p.detach())
        if name not in self._moments_of:
            self._moments_of[name] = moments(self._initial[name])
        return self._moments_of[name]

    # ---- Called by worker.py

    def graph(self):
        if self._graph is None:
            self.restore()
            with torch.no_grad(), NoCollection():
                from .graph import build

                self._graph, self.table = build(self)
        return self._graph

    def know(self, graph):
        """Use a graph that an earlier worker made of this task, if it describes this module; returns 1 if so.  Making
        one costs seconds, mostly for importing torch.export."""
        table = table_of(self, graph)
        if table:
            self._graph, self.table = graph, table
        return bool(table)

    def tf32(self):
        """Which of the graph's convolutions PyTorch computes in TF32 on this device (tf32.py)."""
        from .tf32 import convolutions_in_tf32

        with torch.no_grad():
            answers = convolutions_in_tf32(self.graph(), self.device, self.target.share)
        self.trim()
        return answers

    def wanted(self):
        self.graph()
        return {"buffers": [row(*w) for w in wanted(self)]}

    def share(self, given=()):
        self.graph()
        if self._shared is None:
            self._shared = Shared(self, given)
            with torch.no_grad():
                self._shared.publish(True)
            self.target.sync()
        return self._shared.answer()

    def reference(self):
        if self._references is None:
            self._check_settings("something")
            self._references = References(self)
            if self._references.dtype != torch.float64 and self._pool.clear():
                self._references = None  # the pool's memory was needed
                self._references = References(self)
            if self._loosest is None:
                self._loosest = self._references.loosest()
            if self._draw_key:
                self._references.keep(self._draw_key[-1])
                self._pool.put(self._draw_key, self._references, self._values if self._keeps_values else None)
        return self._references.answer()

    def compare(self, rule, if_finite=False, near_ties=None, draw_next=None):
        """near_ties: what the runs for them may cost (ties.Cost); no bound of the judge's where it is empty.
        draw_next(): makes another draw and returns what is to be said of it; it is made where all outputs are right,
        and the answer says so."""
        if self._shared is None:
            raise Refuse("request", "compare needs buffers and a draw first")
        if rule not in ("strict", "paper"):
            raise Refuse("request", "compare: rule must be strict or paper")
        reference = self.reference()
        if if_finite and not reference["finite"]:
            return {"reference": reference, "pass": True, "rule": rule, "outputs": [], "near_ties": Cost().answer()}
        outputs = self._returned.copies if self._returned else self._shared.outputs
        answer = draw_next and self._compare_and_draw(outputs, rule, draw_next)
        if not answer:
            answer = self._references.compare(outputs, rule, Cost(**(near_ties or {})))
            if draw_next and answer["pass"]:
                answer.update(drawn=True, **draw_next())
        return {"reference": reference, **answer}

    def _compare_and_draw(self, outputs, rule, draw_next):
        """Queue the comparison and behind it the next draw, and wait once for both: else others who share a GPU get it
        in between.  Where the outputs are not right after all, the draw at hand is made again; that costs least for one
        whose values are kept.  None where compare() has to look."""
        if self._returned or not self._pool.values(self._draw_key):
            return None
        references, drawn = self._references, self._drawn
        answer = references.start(outputs, rule)
        if not answer:
            return None
        try:
            said = draw_next()
        except Refuse:  # compare() says whether it is to be made
            said = None
        answer = answer() if said is not None else None
        if answer:
            return {**answer, "drawn": True, **said}
        self.draw(*drawn)
        self._references = references
        return None

    # ---- Candidates in a PyTorch form, which run in processes of their own

    def origin(self):
        """How the model was made: a module made in the same way has the same values."""
        return {"model_seed": sub_seed(self.seed, "model"), "on_host": sorted(self._host_made)}

    def wipe(self, poison, flush):
        """Returns whether an output of a candidate turned out to be an argument's memory since this was last asked."""
        self._forget_outputs()
        if poison and self._shared is not None:
            self._shared.poison()
        if flush and self.target.kind == "cuda":
            self.clock().flush()
        self.target.sync()
        shares, self._shares = self._shares, False
        return shares

    def publish(self):
        """Write the present draw into the shared buffers again: a candidate may have changed what it was given."""
        with torch.no_grad():
            self._shared.publish(True)
        self.target.sync()

    def publish_and_probe(self):
        """cuda: publish the present draw; returns the microseconds that some milliseconds of writing take right behind
        it, more where others have work on the device.  A candidate's work may wait there for the draw."""
        flush, ends = self.clock().flush, [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        flush()  # takes its memory at first
        with torch.no_grad():
            self._shared.publish(True)
        ends[0].record()
        for _ in range(PROBES):
            flush()
        ends[1].record()
        ends[1].synchronize()
        return ends[0].elapsed_time(ends[1]) * 1e3

    def keep(self, lent, fds):
        """Copy the outputs as they are now; compare() and same() use the copies until they are wiped.  `lent`: see
        Returned.  Returns False if such a piece cannot be mapped."""
        if self._shared is None or len(lent) not in (0, len(self._shared.outputs)):
            raise Refuse("request", "keep needs buffers, and places for all outputs or none")
        self._forget_outputs()
        try:
            self._returned = Returned(self._shared, self.out_apart, lent, fds, self.device)
        except (Refuse, RuntimeError, ValueError) as e:
            print(f"the outputs cannot be had: {one_line(e)}", flush=True)
            return False
        return True

    def _forget_outputs(self):
        returned, self._returned = self._returned, None
        if returned and returned.forget():
            self._shares = True
            self.publish()

    def same(self):
        if self._returned is None:
            raise Refuse("request", "same needs outputs that keep has copied")
        return self._returned.same()

    def trace(self):
        """The shortest time of each operator over several runs: other processes only add time.  On the cpu by one
        thread, where that does not take long: several spin while they wait for each other, on a busy machine in every
        run, and what they spend there would count for whichever operator it is."""
        start = time.monotonic()
        first = self._traced()
        took = time.monotonic() - start
        one = self.target.kind == "cpu" and took * torch.get_num_threads() < ONE_THREAD_SECONDS
        with self.one_thread(one):
            return self._traces([] if one and torch.get_num_threads() == 1 else [first])

    def _traces(self, runs):
        start = time.monotonic()
        while len(runs) < TRACES and (not runs or time.monotonic() - start < TRACE_SECONDS):
            runs.append(self._traced())
        mode = runs[-1]
        mode.cpu_ns = {name: min(r.cpu_ns.get(name, ns) for r in runs) for name, ns in mode.cpu_ns.items()}
        return mode.answer()

    def _traced(self):
        with Trace() as mode:
            self.forward()
        self.target.sync()
        return mode

    def degenerate(self, seed_a, seed_b):
        self._references = self._draw_key = None
        answer = degenerate(self, seed_a, seed_b)
        self.trim()
        self._pool.reserve(sum(t.nbytes for t in self._values) + sum(8 * math.prod(m[0]) for m in self.out_meta))
        return answer

    def clock(self, check=True):
        """check: refuse a task that has changed PyTorch's settings meanwhile."""
        if self._clock is None:
            self._clock = Clock(self)
        if check:
            self._check_settings("something")
        return self._clock

    def free(self, everything, baseline=None):
        self._references = self._draw_key = None
        if baseline and self._clock:
            self._clock.forget(baseline)
        if everything:
            self._clock = None
            self._pool.clear()
            fused.forget()
        self.trim(everything)

    def trim(self, everything=False):
        """Free memory that PyTorch's allocator caches, beyond what the next draw needs: runners and other tasks'
        workers share this device, and references need many times more memory for a moment than permanently."""
        if self.target.kind != "cuda":
            return
        idle = self.target.idle()
        once = 2 * sum(t.nbytes for t in self.inputs)  # a draw's tensors and their copies
        if everything or idle > max(once, 1 << 30) or (idle > 1 << 28 and self._short_of_memory()):
            torch.cuda.empty_cache()

    def _short_of_memory(self):
        free, total = self.target.memory()
        return free < total // 5

    def close(self):
        self._forget_outputs()
        self._references = self._clock = None
        self._pool.clear()
        if self._shared:
            self._shared.close()
        self._shared = None


def differ(a, b):
    """Do two outputs differ by more than the order of atomic additions explains?"""
    if torch.equal(a, b):
        return False
    if not a.dtype.is_floating_point:
        return a.numel() > 0 and (a != b).float().mean().item() > 1e-3
    if a.numel() == 0:
        return False
    finite = a.isfinite() & b.isfinite()
    x, y = a[finite].double(), b[finite].double()
    return bool((x - y).norm() > 1e-3 * max(x.norm().item(), 1e-30)) or bool((a.isnan() != b.isnan()).any())


def moments(t):
    t = t.double()
    return t.mean().item(), t.std().item() if t.numel() > 1 else 0.0


def redraw_like(p, mean, std):
    """Redraw a parameter without an initialiser, which holds its initial values, of this mean and standard deviation:
    normal with these; a constant one is perturbed."""
    if std > 0:
        p.normal_(mean, std)
    elif mean == 0:
        p.uniform_(-0.5, 0.5)
    else:
        p.copy_(torch.empty_like(p).uniform_(0.5, 1.5).mul_(mean))
