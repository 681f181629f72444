"""Draws whose inputs differ from place to place: in some elements, at secret places, they are much larger.

Without them the inputs of a draw are alike everywhere, and a statistic of very many terms can be estimated by a part of
them: of a mean square over n normal numbers a share f gives the root within sqrt((1 - f) / (2 f n)), so a quarter of
2^18 within 0.2%, which is right in half precision.  A few elements that carry a large share of the sum make every such
estimate wrong.  docs/design/judge.md has the arithmetic.

The judge's lot says which draws are uneven (src/judge/session_draws.c).  In these each input that counts has some
larger elements: half of the time 1, 2 or 4 (who looks at a part may see none, and is wrong), else 8, 16, ... up to one
in SPARSE (which are seen, and give no estimate).  They are 2 sqrt(n) times as large, MOST at most; zeros and signs
stay.

Which inputs: floating ones of LEAST elements and more, whose elements get_inputs() draws independently of each other.
That is tried out (`independent`): where another value of one random number changes more than one element, of this
input or another one, it has a structure (symmetry, order, rows that sum to one, the same tensor twice) that solutions
may know.  Inputs of whole numbers may be masks and labels.  And so many elements that a part of them could be enough:
15 of 16 give a mean square of n numbers within sqrt(1 / (30 n)), half of that where they are uniform, which has
to be less than the rule's limit.

What a task bears is tried out, too, with factors MARGIN times as large: where it fails, or outputs of its own program
are not finite that are without them, the factors of all its draws are at most the next of LEVELS.  Where it bears none,
its inputs may have to lie in a range: then the few elements stay, and all others become smaller, by SMALLER.  All of
this is decided once, by the task alone.

Rejected: outliers where a task draws its numbers, ahead of its own code (rand() - 0.5 would be -0.5 nearly everywhere);
fixed numbers of elements (whoever knows them looks until all are seen)."""

import math
import random

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import Refuse, device_failed, out_of_memory
from .promoted import default_run
from .redraw import whole
from .tensors import span, sub_seed

LEAST, SPARSE, FEW = 1 << 12, 256, (1, 2, 4)
MOST, LEVELS, MARGIN, SMALLER = 4096, (1024, 64, 8, 2), 4, 2.0**-6
ENOUGH = 2.0**-6  # elements, times the square of the rule's limit
PROBED, SOURCES = 8, 8  # numbers of a random tensor that are exchanged; random tensors of a task
RANDOM = {"randn", "rand", "randn_like", "rand_like", "normal", "normal_", "uniform", "uniform_", "exponential_",
          "log_normal_", "cauchy_", "bernoulli", "bernoulli_"}


class Exchanged(TorchDispatchMode):
    """Dispatch mode: of the random tensor number `which` some elements become the values of others."""

    def __init__(self, which):
        super().__init__()
        self.which, self.seen = which, 0

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # as in task.Watch

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in RANDOM and out.numel() >= 2 * PROBED:
            if self.seen == self.which:
                n, flat = out.numel(), span(out.detach())
                at = torch.arange(PROBED, device=out.device) * (len(flat) // PROBED)
                flat[at] = flat[at + len(flat) // (2 * PROBED)]
            self.seen += 1
        return out


def differing(a, b):
    """The number of elements in which two drawn arguments differ."""
    return int((span(a) != span(b)).sum()) if isinstance(a, torch.Tensor) else 0


def independent(task, seed):
    """The numbers of the inputs whose elements are drawn independently of each other."""
    usual, _ = task._draw_leaves(seed)
    reached, tied, which, seen = set(), set(), 0, 1
    while which < min(seen, SOURCES):
        with Exchanged(which) as mode:
            other, _ = task._draw_leaves(seed)
        changed = {i: n for i in task.slots if (n := differing(usual[i], other[i]))}
        reached |= changed.keys()
        if sum(changed.values()) > PROBED:
            tied |= changed.keys()
        which, seen = which + 1, mode.seen
    return sorted(reached - tied) if seen <= SOURCES else []


class Uneven:
    """What the uneven draws of a task are.  limit: the rule's, of the output that may be furthest off."""

    def __init__(self, task, limit):
        self.task, self.most, self.seed = task, 0, sub_seed(task.seed, "uneven")
        self.generator = torch.Generator(task.device)
        self.inputs = [k for k, t in enumerate(task.inputs) if self._large(t, limit)]
        if self.inputs:
            self._look()

    @staticmethod
    def _large(t, limit):
        return t.dtype.is_floating_point and t.numel() >= LEAST and not t.numel() * limit * limit < ENOUGH

    def __bool__(self):
        return bool(self.inputs and self.most)

    def _look(self):
        try:
            free = set(independent(self.task, sub_seed(self.seed, "inputs")))
        except Refuse as e:
            if e.kind != "task":
                raise
            free = set()
        self.task._new_values(self.seed, 1.0, 0.0, "redraw")
        self.inputs = [k for k in self.inputs if self.task.slots[k] in free and not whole(span(self.task.inputs[k]))]
        usual = self._not_finite() if self.inputs else None
        if usual is not None:
            top = max(factor(self.task.inputs[k], MOST) for k in self.inputs)
            levels = [top, *(level for level in LEVELS if level < top), -1]
            self.most = next((most for most in levels if self._bears(most, usual)), 0)

    def _not_finite(self):
        """Where outputs of the task's own program are not finite; None where it fails."""
        try:
            return [~t.isfinite() for t in default_run(self.task)]
        except Exception as e:
            if out_of_memory(e) or device_failed(e) or isinstance(e, Refuse) and e.kind != "task":
                raise
            return None

    def _bears(self, most, usual):
        self.task._new_values(self.seed, 1.0, 0.0, "redraw")
        self.most = most
        for k in self.inputs:
            self._change(k, self.seed, largest(self.task.inputs[k]), MARGIN)
        if not all(bool(span(self.task.inputs[k]).isfinite().all()) for k in self.inputs):
            return False
        found = self._not_finite()
        return found is not None and not any(bool((f & ~p).any()) for f, p in zip(found, usual))

    def apply(self, seed):
        """Change the inputs of a draw, which hold its values."""
        lot = random.Random(sub_seed(seed, "how many"))
        for k in self.inputs if self.most else ():
            self._change(k, seed, number(self.task.inputs[k], lot), 1)

    def _change(self, k, seed, m, margin):
        """margin: times the factor."""
        t = self.task.inputs[k]
        flat = span(t)
        g = self.generator.manual_seed(sub_seed(seed, f"uneven {k}"))
        at = torch.randint(len(flat), (m,), generator=g, device=flat.device)
        values = flat[at]
        if self.most < 0:
            flat.mul_(SMALLER)
        else:
            values = values * (margin * factor(t, self.most))
        flat[at] = values


def factor(t, most):
    """How many times as large an element of a tensor becomes: a power of two, so no bits of it are lost."""
    return min(most, 2 ** (1 + math.ceil(math.log2(t.numel()) / 2)))


def largest(t):
    return max(32, t.numel() // SPARSE)


def number(t, lot):
    """How many elements are larger."""
    if lot.random() < 0.5:
        return lot.choice(FEW)
    return 2 ** lot.randint(3, int(math.log2(largest(t))))
