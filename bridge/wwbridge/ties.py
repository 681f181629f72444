"""Near ties: parts of an output in which a rounding decides.

Attention takes the one or the other of two keys whose scores are nearly equal; a row's second expert counts or not.  On
which side PyTorch's run falls is chance, and so is the error of the part: hardly any, or nearly all of it.  Some near
ties are such that none of the neighbours of a draw (reference.py) falls on the other side, so their limit is that of
parts without one, and of thousands of rows an honest solution falls on the other side of a few.

So before a part fails, the task's own program runs with other roundings: in Jitter each result of an operator that
rounds is up to one unit in the last place off, of fp32 84 units, which is rule strict's floor; so are inputs and
parameters.  In every third run results of 16 bits are those of fp32, rounded once, and stay so: PyTorch's own may be
many units off (a cumsum in half on a GPU), where a solution's are not, and equal results would become unequal (two
gates that are equal once rounded both count).  A part is a near tie if in one of these runs

    its error is beyond its limit, too, and more than twice what is usual, in that run, in parts of its kind and size
    (whose errors grow alike, by 3.3 times PyTorch's, where there are no near ties), or the part has two sides: in a
    quarter of all runs its error is less than a quarter of the largest one, and it is near that more than twice as
    often as half-way (where rounding decides in most parts, as in a chain of such choices, what is usual is the error
    of a near tie), and
    its error is as large as the solution's, within a factor of the root of two, and
    the solution's values lie on the way from the reference to those of one or two of these runs, or begin to: what an
    activation hides moves later on that way, so elements that have not moved are left out.

A solution is right where its parts beyond their limits are near ties, or larger than those and right without them; and
where its near ties are no more than the run with most such parts has, and no more than SHARE of all parts.  So a task
without near ties lets nothing through: there the errors of all parts grow alike.  A part that is wrong for another
reason is refused, in each draw, unless it happens to be a near tie.

Whole numbers stay, since they may be masks or labels, and so do results of operators that select (a largest value is
compared with those that it was taken from).

Rejected: counting how many parts each neighbour has beyond the limits that the others give (PyTorch itself exceeds the
largest of 17 counts in one of 18 draws; and a wrong row would pass wherever PyTorch has a flipped one); larger moves of
the inputs alone (a tie of rounded gates is wider than any move of inputs that leaves other parts as they are).
"""

import contextlib
import functools
import math
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from .promoted import in_type
from .tensors import span

UNITS = {torch.float32: 84, torch.float64: 84}  # 1e-5 in fp32; else one
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
SHARE, MOST = 0.01, 4096  # of the parts, as of whole numbers that are undecided; in all, since each takes time
RUNS, FIRST = 48, 8  # runs, and those after which a task without any near tie has none
SECONDS = 60  # of a processor, after which no further run is begun for a comparison: what others use does not count
WAIT_S = 150  # the same by the clock: the judge waits 300 s for a comparison
AHEAD = 24  # runs before the more costly neighbours behind the first few
USUAL2 = 4  # square of how much larger than usual an error is in a near tie
QUIET2 = 16  # the same of its own error on the other side, in a part with two sides
SIDE2, BETWEEN2 = 4 / 9, 1 / 9  # shares of the largest error, squared: near it, and half-way to it
SIZE2 = 2  # square of how much larger than in these runs an error may be
STILL2 = 1e-4  # of the mean square of a part's errors: an element that is no further off has not moved
MOVED2 = 0.5  # share of a run's error, squared, in the elements that have moved in the solution, too
ASIDE2 = 0.25  # share of an error, squared, that may point elsewhere than in these runs
SPARSE, LARGE = 16, 1 << 25  # of so many elements a run remembers one; of larger outputs none,
KEPT = 1 << 19  # and of smaller ones, up to so many, all
AROUND, QUIET = 32, 4  # neighbours that an error is measured by, and how many times those of most are no near tie's
PIECE = 1 << 17  # elements that are moved at a time on the cpu: they stay in the cache

# Operators of ATen whose results are rounded and are no copies of one of their operands.
ROUNDS = frozenset("""
    add sub rsub mul div addcmul addcdiv pow square exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos
    tan tanh sinh cosh asin acos atan atan2 sigmoid silu gelu elu celu selu softplus mish hardswish log_sigmoid_forward
    erf erfc erfinv lgamma digamma logaddexp logaddexp2 lerp hypot fmod remainder frac logit sinc xlogy
    mm bmm addmm baddbmm addbmm addmv addr mv dot vdot matmul linear einsum _addmm_activation _scaled_mm
    convolution _convolution convolution_overrideable cudnn_convolution mkldnn_convolution _slow_conv2d_forward
    sum nansum mean var var_mean std std_mean norm linalg_vector_norm prod cumsum cumprod logcumsumexp logsumexp
    _softmax _log_softmax _safe_softmax native_layer_norm native_group_norm native_batch_norm cudnn_batch_norm
    _native_batch_norm_legit _native_batch_norm_legit_functional _fused_rms_norm _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
    _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math
    _scaled_dot_product_fused_attention_overrideable avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d
    _adaptive_avg_pool3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d
    grid_sampler_2d grid_sampler_3d _cdist_forward _pdist_forward _euclidean_dist scatter_add scatter_reduce index_add
    _embedding_bag _thnn_fused_gru_cell _thnn_fused_lstm_cell lstm gru _cudnn_rnn mkldnn_rnn_layer linalg_inv_ex
    linalg_solve_triangular linalg_cholesky_ex binary_cross_entropy nll_loss_forward mse_loss smooth_l1_loss huber_loss
""".split())


def move(t, generator):
    """Move the elements of t by a random number of units in the last place, at most UNITS, to both sides; not whole
    numbers, while others can be told from them."""
    flat = span(t)
    for piece in flat.split(PIECE) if not t.is_cuda and flat.numel() == t.numel() else (t,):
        move_piece(piece, generator)


def move_piece(t, generator):
    info, n = torch.finfo(t.dtype), UNITS.get(t.dtype, 1)
    size = t.abs()
    free = ((t != t.round()) | (size >= 1 / info.eps)) & (size >= info.tiny) & (size <= info.max / 2)
    by = torch.randint(-n, n + 1, t.shape, generator=generator, device=t.device, dtype=torch.int8)
    t.view(BITS[t.dtype.itemsize]).add_(by.mul_(free))


def single(x):
    """A copy of a floating or complex tensor, or such a type, in single precision; anything else as it is."""
    if isinstance(x, torch.Tensor):
        return x.to(in_type(x.dtype, torch.float32) or x.dtype, copy=True)
    return in_type(x, torch.float32) or x if isinstance(x, torch.dtype) else x


class Jitter(TorchDispatchMode):
    """Dispatch mode: each result of an operator that rounds is moved.  once: one of 16 bits is that of fp32, rounded
    once, instead, where there is such a kernel."""

    def __init__(self, generator, once=False):
        super().__init__()
        self.generator, self.once = generator, once

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # as in task.Watch

    def movable(self, t):
        return (isinstance(t, torch.Tensor) and t.dtype.is_floating_point and t.dtype.itemsize > 1
                and t.layout == torch.strided and t.device.type == self.generator.device.type)

    def short(self, t):
        return self.once and self.movable(t) and t.dtype.itemsize == 2

    def round_once(self, func, args, kwargs, out):
        """Give what func() returned the values of fp32, and say whether there are any.  Operands are copies, since
        some operators write to statistics."""
        with contextlib.suppress(RuntimeError):  # no such kernel, too little memory
            exact = func(*tree_map(single, args), **tree_map(single, kwargs))
            for t, e in zip(tree_leaves(out), tree_leaves(exact)):
                if self.short(t):
                    t.copy_(e)
            return True
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out, schema = func(*args, **(kwargs or {})), getattr(func, "_schema", None)
        if schema and schema.name.partition("::")[2].rstrip("_") in ROUNDS:
            once = (not schema.is_mutable and any(map(self.short, tree_leaves(out)))
                    and self.round_once(func, args, kwargs or {}, out))
            for t in tree_leaves(out):
                if self.movable(t) and not (once and self.short(t)):
                    move(t, self.generator)
        return out


def few(limits, beyond):
    """Are the parts `beyond` at most SHARE of the parts of one kind?  What is wrong in few rows may be wrong in all
    columns."""
    of = limits.layout.counts(beyond.device)[1]
    kinds = torch.zeros(2, len(limits.layout.kinds) + 1, dtype=torch.float64, device=beyond.device)
    all_, wrong = kinds.index_add_(1, of, torch.stack((torch.ones_like(beyond), beyond)).double())
    return bool(beyond.any()) and bool(((wrong <= SHARE * all_) & (SHARE * all_ >= 1)).any())


class Cost:
    """What near ties cost a comparison.  A verdict makes more than a dozen of them; what it may spend in all is the
    judge's to say (src/judge/session_draws.c), and what is left of that is `runs` and `seconds`."""

    def __init__(self, runs=math.inf, seconds=math.inf):
        self.most, self.most_s = runs, min(seconds, SECONDS)
        self.runs, self.seconds, self.until, self.short = 0, 0.0, time.monotonic() + WAIT_S, False

    def over(self, another_run):
        """Is nothing left, be it of time or for another run?"""
        late = self.seconds > self.most_s or time.monotonic() > self.until
        self.short |= late or another_run and self.runs >= self.most
        return self.short

    def answer(self):
        return {"runs": self.runs, "seconds": self.seconds, "short": self.short}


def beside_others(off, exact):
    """How large these errors are beside those around them, which count for QUIET times what is usual for values of
    their size at least.  Else a run would remember large rows alone, or those that flip by all of their size."""
    def around(t):
        t = torch.nn.functional.pad(t.double().nan_to_num(0, 0, 0), (0, -t.numel() % AROUND)).view(-1, AROUND)
        return t.square().mean(1).sqrt()

    size, of = around(off), around(exact)
    usual = (size / of).nan_to_num(0, 0, 0).median()
    by = torch.maximum(size, QUIET * usual * of).repeat_interleave(AROUND)[: off.numel()]
    return (off.abs() / by).nan_to_num(0, 0, 0)


class Run:
    """One output of a run with other roundings: the errors of its parts, and the elements that differ most."""

    def __init__(self, out, exact, error2):
        off = (out.reshape(-1).double() - exact.reshape(-1)).nan_to_num()
        numel = off.numel()
        self.error2, n = error2, 0 if numel > LARGE else max(numel // SPARSE, min(numel, KEPT))
        order = off if n in (0, numel) else beside_others(off, exact.reshape(-1))
        self.at = order.topk(n, sorted=False).indices.sort().values.int()
        self.by = off[self.at].float()

    def tensors(self):
        return [self.error2, self.at, self.by]

    def off(self, at):
        """By how much the elements at these flat positions differ, 0 where that was little."""
        i = torch.searchsorted(self.at, at.int()).clamp(max=len(self.at) - 1)
        return torch.where(self.at[i] == at, self.by[i], 0.0).double()


class Parted:
    """Vectors over the elements of some parts, and sums over each part."""

    def __init__(self, where):
        self.n = len(where)
        self.at = torch.cat(where)
        self.of = torch.repeat_interleave(torch.tensor([len(w) for w in where], device=self.at.device))

    def dot(self, a, b):
        return torch.zeros(self.n, dtype=a.dtype, device=a.device).index_add_(0, self.of, a * b)

    def less(self, a, b):
        """a without its share of the direction b."""
        return a - (self.dot(a, b) / self.dot(b, b)).nan_to_num(0.0, 0.0, 0.0)[self.of] * b

    def nearest(self, a, directions):
        """For each part, of these directions the one that explains most of a."""
        best, most = torch.zeros_like(a), torch.zeros(self.n, dtype=a.dtype, device=a.device)
        for b in directions:
            share = (self.dot(a, b) ** 2 / self.dot(b, b)).nan_to_num(0.0, 0.0, 0.0)
            best = torch.where((share > most)[self.of], b, best)
            most = torch.maximum(most, share)
        return best


class Ties:
    """The near ties of one output, by the runs made so far."""

    def __init__(self, limits, limit2):
        self.limits, self.limit2 = limits, limit2
        self.runs, self.unusual = [], []  # of each run that did not fail the parts whose errors are unusual in it
        self.near2, self.most = torch.zeros_like(limit2), 0

    def learn(self, run):
        """run: one with other roundings, or None where it failed."""
        self.runs.append(run)
        if run is None:
            return
        self.unusual.append((run.error2 > self.limit2) & (run.error2 > USUAL2 * self.limits.usual2(run.error2)))
        done = [r.error2 for r in self.runs if r is not None]
        two = self.two_sided(done) if len(done) >= FIRST else torch.zeros_like(self.unusual[0])
        self.near2, self.most = torch.zeros_like(self.limit2), 0
        for error2, unusual in zip(done, self.unusual):
            tie = unusual | two & (error2 > self.limit2)
            self.near2 = torch.maximum(self.near2, torch.where(tie, error2, 0.0))
            self.most = max(self.most, int(tie.sum()))

    def two_sided(self, runs):
        """The parts that were on the one side or the other in these runs, and seldom between."""
        most2 = functools.reduce(torch.maximum, runs)
        at = (most2 > self.limit2).nonzero().flatten()
        error2, most2 = torch.stack([e[at] for e in runs]), most2[at]
        quiet2 = error2.kthvalue(len(runs) // 4, 0).values
        there = (error2 >= SIDE2 * most2).sum(0)
        between = ((error2 < SIDE2 * most2) & (error2 > BETWEEN2 * most2)).sum(0)
        sides = (most2 > QUIET2 * quiet2) & (there >= 2) & (there > 2 * between)
        return torch.zeros_like(self.unusual[0]).index_fill_(0, at[sides], True)

    def tensors(self):
        return [self.near2, *self.unusual]

    def none(self):
        return len(self.runs) >= FIRST and not self.most

    def sets(self, error2, beyond):
        """Sets of near ties, growing with the size of parts, that may be all that is wrong: those of the parts `beyond`
        that are smaller than each that is no near tie.  None has too many."""
        ties = beyond & (error2 <= SIZE2 * self.near2)
        n = self.limits.layout.counts(error2.device)[0]
        small = ties & (n < torch.where(beyond & ~ties, n, math.inf).min())
        for size in n[small].unique().tolist():
            some = small & (n <= size)
            if int(some.sum()) > min(self.most, SHARE * len(n), MOST):
                return
            yield some

    @staticmethod
    def as_far(parts, left, whole2, off):
        """`off` where the error `left` is not negligible; but whole in parts where most of it lies elsewhere."""
        n = torch.bincount(parts.of, minlength=parts.n).clamp(min=1)
        moved = torch.where(left * left > STILL2 * (whole2 / n)[parts.of], off, 0.0)
        most = parts.dot(moved, moved) >= MOVED2 * parts.dot(off, off)
        return torch.where(most[parts.of], moved, off)

    def explain(self, found, exact, some):
        """Do the errors of these parts point to where the runs went?  A near tie has two sides or three: what is on
        none of them, nor between, is wrong for another reason, as zeros are.  Not asked of an output beyond LARGE."""
        if exact.numel() > LARGE:
            return True
        parts = Parted([self.limits.layout.find(p, found.device)[1] for p in some.nonzero().flatten().tolist()])
        left = (found.reshape(-1)[parts.at].double() - exact.reshape(-1)[parts.at]).nan_to_num()
        whole2 = parts.dot(left, left)
        off = [run.off(parts.at) * (run.error2 > self.limit2)[some][parts.of] for run in self.runs if run is not None]
        off = [self.as_far(parts, left, whole2, o) for o in off]
        for _ in range(2):
            way = parts.nearest(left, off)
            left, off = parts.less(left, way), [parts.less(o, way) for o in off]
        return bool((parts.dot(left, left) <= torch.maximum(ASIDE2 * whole2, self.limit2[some])).all())
