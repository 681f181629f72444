"""Near ties: parts of an output in which a rounding decides.

Attention takes the one or the other of two keys whose scores are nearly equal; a row's second expert counts or not.  On
which side PyTorch's run falls is chance, and so is the error of the part: hardly any, or nearly all of it.  Some near
ties are such that none of the neighbours of a draw (reference.py) falls on the other side, so their limit is that of
parts without one, and of thousands of rows an honest solution falls on the other side of a few.

So before a part fails, the task's own program runs with other roundings: in Jitter each result of an operator that
rounds is up to one unit in the last place off, of fp32 84 units, which is rule strict's floor; so are inputs and
parameters.  A part is a near tie if in one of these runs

    its error is beyond its limit, too, and more than twice what is usual, in that run, in parts of its kind and size
    (whose errors grow alike, by 3.3 times PyTorch's, where there are no near ties), and
    its error is as large as the solution's, within a factor of the root of two.

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

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

UNITS = {torch.float32: 84, torch.float64: 84}  # 1e-5 in fp32; else one
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
SHARE, MOST = 0.01, 4096  # of the parts, as of whole numbers that are undecided; in all, since each takes time
RUNS, FIRST = 32, 8  # runs, and those after which a task without any near tie has none
SECONDS = 60  # after so long no further run is begun for a comparison: the judge waits 300 s for it
USUAL2 = 4  # square of how much larger than usual an error is in a near tie
SIZE2 = 2  # square of how much larger than in these runs an error may be

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
    info, n = torch.finfo(t.dtype), UNITS.get(t.dtype, 1)
    size = t.abs()
    free = ((t != t.round()) | (size >= 1 / info.eps)) & (size >= info.tiny) & (size <= info.max / 2)
    by = torch.randint(-n, n + 1, t.shape, generator=generator, device=t.device, dtype=torch.int8)
    t.view(BITS[t.dtype.itemsize]).add_(by.mul_(free))


class Jitter(TorchDispatchMode):
    """Dispatch mode: each result of an operator that rounds is moved."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # as in task.Watch

    def movable(self, t):
        return (isinstance(t, torch.Tensor) and t.dtype.is_floating_point and t.dtype.itemsize > 1
                and t.layout == torch.strided and t.device.type == self.generator.device.type)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if getattr(func, "_schema", None) and func._schema.name.partition("::")[2].rstrip("_") in ROUNDS:
            for t in out if isinstance(out, (tuple, list)) else (out,):
                if self.movable(t):
                    move(t, self.generator)
        return out


def few(limits, beyond):
    """Are the parts `beyond` at most SHARE of the parts of one kind?  What is wrong in few rows may be wrong in all
    columns."""
    of = limits.layout.counts(beyond.device)[1]
    kinds = torch.zeros(2, len(limits.layout.kinds) + 1, dtype=torch.float64, device=beyond.device)
    all_, wrong = kinds.index_add_(1, of, torch.stack((torch.ones_like(beyond), beyond)).double())
    return bool(beyond.any()) and bool(((wrong <= SHARE * all_) & (SHARE * all_ >= 1)).any())


class Ties:
    """The near ties of one output, by the runs made so far."""

    def __init__(self, limits, limit2):
        self.limits, self.limit2 = limits, limit2
        self.near2, self.most, self.runs = torch.zeros_like(limit2), 0, 0

    def learn(self, error2):
        """error2: errors of the parts in a run with other roundings, or None where it failed."""
        self.runs += 1
        if error2 is not None:
            tie = (error2 > self.limit2) & (error2 > USUAL2 * self.limits.usual2(error2))
            self.near2 = torch.maximum(self.near2, torch.where(tie, error2, 0.0))
            self.most = max(self.most, int(tie.sum()))

    def none(self):
        return self.runs >= FIRST and not self.most

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
