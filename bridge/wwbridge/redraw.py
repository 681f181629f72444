"""New values in each draw for tensors that a module holds besides its parameters, so that none is a constant of this
load.

A draw gives every parameter new values; a solution that precomputed something from the old ones is then wrong.  The
same must hold for weights that are no parameters.  So the module's other tensors are classified once, at load:

    statistic   running_mean, running_var: uniform in -0.5 to 0.5 and 0.5 to 2
    new         its values depend on the seed under which the module is made (frozen random weights, also as whole
                numbers with their scales): each draw makes the module again under another seed and takes them from
                there.
    scaled      a floating-point buffer of the state dict that is the same under every seed.  One value throughout: as
                a parameter would be (zeros become -0.5 to 0.5, others 0.5 to 1.5 times as large).  Others: each element
                0.5 to 1.5 times as large, so that zeros and signs stay (tables, filters, variances).
    fixed       the rest that is the same under every seed, a part of the task's text as other constants: single numbers
                (epsilons, counters), integers and infinities (masks of 0 and 1 or 0 and -inf, indices), tensors that
                are not in the state dict, and tensors whose change makes the task fail.
    stuck       depends on the seed and cannot be drawn: elements of lists, tensors of a module that cannot be made
                again, attributes that the forward pass writes.  A solution could precompute from it, so the verdict is
                flagged `fixed_buffers`.

New values are tested: if a forward pass fails with them, or its finite outputs become non-finite, they are dropped one
by one.

Rejected: elements of the old values in another order (triangular, orthogonal or quantised tensors would lose that
property); recognising masks by name (names are unreliable).
"""

import torch

from .tensors import same_bits, span, sub_seed

CONTAINERS = ("_parameters", "_buffers", "_modules", "_flat_weights")


def tensors_of(model):
    """{name: tensor} of a module's tensors besides its parameters: buffers, plain attributes, elements of lists and
    dicts."""
    plain, listed = {}, {}
    for prefix, m in model.named_modules():
        at = f"{prefix}." if prefix else ""
        for k, v in m.__dict__.items():
            if k in CONTAINERS:
                continue
            if isinstance(v, torch.Tensor) and not isinstance(v, torch.nn.Parameter):
                plain[at + k] = v
            elif isinstance(v, (list, tuple, dict)):
                for j, x in enumerate(v.values() if isinstance(v, dict) else v):
                    if isinstance(x, torch.Tensor) and not isinstance(x, torch.nn.Parameter):
                        listed[f"{at}{k}.{j}"] = x
    return dict(model.named_buffers()), plain, listed


def is_statistic(name):
    return name.rsplit(".", 1)[-1] in ("running_mean", "running_var")


class State:
    """How the tensors of a task's module are drawn.  make(seed): the module made again."""

    def __init__(self, task, make):
        self.task, self.make = task, make
        self.buffers, self.plain, self.listed = tensors_of(task.model)
        self.kinds = {n: "statistic" if is_statistic(n) else "fixed" for n in task.state}
        self.initial = {n: task.state[n].detach().clone() for n in self.of("statistic")}

    def of(self, *kinds):
        return [n for n, k in self.kinds.items() if k in kinds]

    def kind(self, t):
        """The kind of a tensor, found by identity: a graph has its own names."""
        return next((k for n, k in self.kinds.items() if self.task.state[n] is t), "fixed")

    def drawn(self):
        """{name: tensor} of the tensors that draws change."""
        return {n: self.task.state[n] for n in self.of("statistic", "new", "scaled")}

    # ---- At load

    def look(self, finite):
        """Classify the tensors by their values; finite(): are the task's outputs finite; raises if it fails."""
        state = self.task.state
        names = [n for n in self.of("fixed") if state[n].numel() and not n.endswith("num_batches_tracked")]
        if not names:
            return
        again = self._again(sub_seed(self.task.seed, "another module"))
        for n in names:
            self.kinds[n] = self._kind(n, state[n], again)
        self.initial.update({n: state[n].detach().clone() for n in self.of("new", "scaled")})
        self._try(finite)

    def _again(self, seed):
        """{name: tensor} of the module made under another seed; empty where it cannot be made."""
        try:
            buffers, plain, listed = tensors_of(self.make(seed))
        except Exception:
            return {}
        return {**listed, **plain, **buffers}

    def _kind(self, name, t, again):
        other = again.get(name)
        if (
            not again
            and t.dtype.is_floating_point
            and t.numel() > 1
            and not whole(t)
            and name not in self._in_state_dict()
        ):
            return "stuck"  # it is unknown what it depends on
        if again and (other is None or other.shape != t.shape or other.dtype != t.dtype
                      or other.stride() != t.stride()):
            return "stuck"
        if other is not None and not same_bits(other, t):
            return "stuck" if name in self.listed or name in self.plain and name in self.task.mutable_names else "new"
        if (
            name not in self._in_state_dict()
            or not t.dtype.is_floating_point
            or t.numel() == 1
            or whole(t)
            and not constant(t)
        ):
            return "fixed"
        return "scaled"

    def _in_state_dict(self):
        return self.task.model.state_dict().keys()

    def _try(self, finite):
        """Drop new values with which the task fails."""
        names = self.of("new", "scaled")
        if not names or not finite() or self._bears(names, finite):
            return
        bad = [n for n in names if not self._bears([n], finite)]
        if not bad or not self._bears([n for n in names if n not in bad], finite):
            bad = names
        for n in bad:
            self.kinds[n] = "stuck" if self.kinds[n] == "new" else "fixed"

    def _bears(self, names, finite):
        try:
            self._draw(sub_seed(self.task.seed, "a trial"), names)
            return finite()
        finally:
            self.reset(names)

    # ---- For each draw

    def reset(self, names=None):
        for n in self.initial if names is None else names:
            self._write(n, self.initial[n])

    def draw(self, seed):
        for n in self.of("statistic"):
            t = self.task.state[n]
            t.uniform_(-0.5, 0.5) if n.endswith("running_mean") else t.uniform_(0.5, 2.0)
            self.keep(n)
        self._draw(seed, self.of("new", "scaled"))

    def _draw(self, seed, names):
        new = [n for n in names if self.kinds[n] == "new"]
        if new:
            again = tensors_of(self.make(sub_seed(seed, "state")))
            again = {**again[1], **again[0]}
        for n in new:
            self._write(n, again[n])
        for n in names:
            if self.kinds[n] == "scaled":
                self._write(n, self._scaled(n, seed))

    def _scaled(self, name, seed):
        t = self.initial[name]
        g = torch.Generator(t.device).manual_seed(sub_seed(seed, name))
        by = torch.rand(t.shape, generator=g, dtype=torch.float64, device=t.device)
        if constant(t) and not t.reshape(-1)[0]:
            return (by - 0.5).to(t.dtype)
        return torch.where(t == 0, t, t * (by + 0.5)).to(t.dtype)

    def _write(self, name, values):
        t = self.task.state[name]
        if t.stride() == values.stride():
            span(t).copy_(span(values))
        else:
            t.copy_(values)
        self.keep(name)

    def keep_all(self):
        for n in self.drawn():
            self.keep(n)

    def keep(self, name):
        """Make the tensor's current value the one that restore() restores."""
        if name in self.task.saved:
            self.task.saved[name].copy_(self.task.state[name])


def whole(t):
    return not t.dtype.is_floating_point or bool((t == t.round()).all())


def constant(t):
    return bool((t == t.reshape(-1)[0]).all())
