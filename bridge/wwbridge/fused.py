"""The fast comparison of an output with its reference in one launch (src/judge/compare.cu).

Layout.sums() and what all_near() does with them take 15 launches and more.  Where judges share a device it may go over
to another process behind each, which takes longer than the comparison.  The kernels come compiled, from the judge
(hello's descriptor); they are loaded for the first reference, before anything of a task is timed.  The caller computes
with PyTorch what these do not take: other types, 2^31 elements and more, outputs whose sums would take more than
SCRATCH bytes, and everything where there are no kernels.
"""

import collections
import ctypes
import math

import torch

from . import Refuse
from .buffers import Driver

THREADS, ROWS_AT_ONCE, WARP = 256, 4, 32  # as in compare.cu
ROWS, COLUMNS, ELEMENTS = range(3)
TILES = 4096  # most tiles, about: their sums are read again
SCRATCH, LAYOUTS = 1 << 25, 4  # bytes of sums of an output; layouts whose buffers are kept
AT_ONCE, QUEUED = 2, 4  # answers: of comparisons that are waited for at once, and of those of start()
PER_PROCESSOR = 2  # thread blocks
NAMES = {torch.float32: "compare_float32", torch.float64: "compare_float64", torch.float16: "compare_float16",
         torch.bfloat16: "compare_bfloat16"}


class Plan(ctypes.Structure):
    """struct plan"""

    _fields_ = [(n, ctypes.c_void_p) for n in ("found", "exact", "limit2", "sums", "starts", "kinds", "rows", "columns",
                                               "each", "state", "answer")]
    _fields_ += [(n, ctypes.c_uint32) for n in ("n_blocks", "first_block", "n_kinds", "items", "lead", "mid", "cols",
                                                "tiles", "down", "across", "rounds", "lanes")]


class Kernels:
    """The compiled kernels, loaded on a device."""

    def __init__(self, image, device):
        self.cu, self.device, module = Driver(), device, ctypes.c_uint64()
        self.cu("cuModuleLoadData", ctypes.byref(module), image)
        self.functions = {dtype: self._function(module, name) for dtype, name in NAMES.items()}
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        self.blocks = processors * min(PER_PROCESSOR, *map(self._beside, self.functions.values()))

    def _function(self, module, name):
        f = ctypes.c_uint64()
        self.cu("cuModuleGetFunction", ctypes.byref(f), module, name.encode())
        return f

    def _beside(self, function):
        n = ctypes.c_int()
        self.cu("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(n), function, THREADS, 0)
        return n.value

    def run(self, dtype, blocks, plan):
        """Launch on PyTorch's current stream."""
        args = (ctypes.c_void_p * 1)(ctypes.addressof(plan))
        f, stream = self.functions[dtype], self._stream()
        self.cu("cuLaunchCooperativeKernel", f, blocks, 1, 1, THREADS, 1, 1, 0, stream, args)

    def wait(self):
        self.cu("cuStreamSynchronize", self._stream())

    def _stream(self):
        return torch.cuda.current_stream(self.device).cuda_stream


class Prepared:
    """What all comparisons of one layout have in common: the plan and its buffers."""

    def __init__(self, where, device, most_blocks):
        self.plan, self.kept = Plan(), []
        p, tiled = self.plan, where.rows > 1 and where.kinds
        p.lead, p.mid, p.cols = where.lead, where.mid, where.cols
        p.lanes = WARP if where.cols > WARP // 2 else max(2, 1 << (where.cols - 1).bit_length())
        p.across = -(-where.cols // (p.lanes * (ROWS_AT_ONCE if p.lanes == WARP else 1)))
        high = ROWS_AT_ONCE * THREADS // p.lanes
        p.rounds = max(1, where.lead * -(-where.mid // high) * p.across // TILES)
        p.down = -(-where.mid // (high * p.rounds))
        p.tiles = where.lead * p.down * p.across if tiled else 0
        sizes = (where.rows * p.across, where.lead * p.down * where.cols) if tiled else (0, 0)
        self.fits = 8 * sum(sizes) <= SCRATCH
        if not self.fits:
            return
        kinds, p.first_block, p.items = self._kinds(where)
        p.n_kinds = len(where.kinds)
        starts = torch.cat([a + where.block * torch.arange(max(1, math.prod(v) // where.block), dtype=torch.int64)
                            for a, v in where.pieces] + [torch.tensor([where.numel])])
        p.n_blocks = len(starts) - 1
        self.blocks = min(most_blocks, max(p.tiles, -(-p.n_blocks // (THREADS // WARP)), p.items))
        for name, t in (("starts", starts.to(torch.int32)), ("kinds", torch.tensor(kinds, dtype=torch.int32)),
                        ("state", torch.zeros(3, dtype=torch.int32)),
                        *((n, torch.empty(size, dtype=torch.float64)) for n, size in zip(("rows", "columns"), sizes)),
                        ("each", torch.empty(2 * self.blocks, dtype=torch.float64))):
            self.kept.append(t.to(device))
            setattr(p, name, self.kept[-1].data_ptr())

    def _kinds(self, where):
        """(struct kind of each kind, one behind the other; parts; items of work)"""
        p, rows, first, items = self.plan, [], 0, 0
        for k in where.kinds:
            by_wrap, wrap = 0, k.size
            if k.source == "rows":
                source, outer, inner = ROWS, k.outer, k.inner * p.across
                by_outer = k.size * inner
            elif where.rows == 1:
                source, outer, inner, by_outer = ELEMENTS, 1, 1, 0
            else:
                source, inner, by_outer, wrap = COLUMNS, 1, where.cols, where.cols
                outer, by_wrap = (p.down, p.down * where.cols) if k.source == "pairs" else (where.lead * p.down, 0)
            entries = k.per * outer * inner
            team = 1 if entries <= 16 or k.groups >= 2048 else WARP if entries <= 4096 else THREADS
            rows += [source, k.apart, team, first, k.groups, k.size, k.per]
            rows += [outer, inner, by_outer, by_wrap, inner, wrap, items]
            first, items = first + k.groups, items + -(-k.groups // (THREADS // team))
        return rows, first, items


class Fused:
    """Comparisons on one device.  kernels: Kernels, or what does the same (tests)."""

    def __init__(self, kernels, device):
        self.kernels, self.device, self.prepared = kernels, device, collections.OrderedDict()
        self.answers = torch.zeros(AT_ONCE + QUEUED, 3, dtype=torch.float64, pin_memory=device.type == "cuda")

    def near(self, found, exact, limit2, where, sums=None):
        """(sum of squares of found - exact, the largest difference, whether a part is beyond its limit), as numbers;
        None where this does not take them.  exact: None for zeros; sums: gets the sums of squares of all parts."""
        return self.answer(0) if self.start(found, exact, limit2, where, sums) else None

    def answer(self, which, waited=False):
        if not waited:
            self.kernels.wait()
        err2, top, beyond = self.answers[which].tolist()
        return err2, top, bool(beyond)

    def start(self, found, exact, limit2, where, sums=None, which=0):
        """As near(), but answer(which) has the numbers; whether this takes them."""
        if (found.dtype not in NAMES or found.device != self.device or not 0 < found.numel() < 1 << 31
                or exact is not None and exact.dtype != torch.float64):
            return False
        ready = self.prepared.get(where)
        if ready is None:
            ready = self.prepared[where] = Prepared(where, self.device, self.kernels.blocks)
            if len(self.prepared) > LAYOUTS:
                self.prepared.popitem(last=False)
        self.prepared.move_to_end(where)
        if not ready.fits:
            return False
        held = *(t if t is None else t.reshape(-1).contiguous() for t in (found, exact, limit2)), sums
        p = ready.plan
        p.found, p.exact, p.limit2, p.sums = (None if t is None else t.data_ptr() for t in held)
        self.answers[which] = math.nan  # no answer is taken for one that has not been written
        p.answer = self.answers[which].data_ptr()
        self.kernels.run(found.dtype, ready.blocks, p)
        return True


_image = _open = None


def use(image):
    """Compare with these compiled kernels (bytes) from now on; None: with PyTorch."""
    global _image, _open
    _image, _open = image, None


def forget():
    """Give the buffers of all layouts back."""
    if _open:
        _open.prepared.clear()


def _on(found):
    """The Fused of a tensor's device; None where there are no kernels."""
    global _image, _open
    if _image and found.is_cuda:
        image, _image = _image, None
        try:
            _open = Fused(Kernels(image, found.device), found.device)
        except Refuse as e:  # of another architecture, or too new for the driver
            print(f"comparisons take PyTorch's operators: {e}", flush=True)
    return _open


def near(found, exact, limit2, where):
    """Fused.near(); None also where there are no kernels."""
    one = _on(found)
    return one and one.near(found, exact, limit2, where)


def start(comparisons):
    """Queue the comparison of each (found, exact, limit2, where), QUEUED at most, and wait for none.  A function that
    gives near() of each, to be called once the device has been waited for and before the next start(); None where one
    is not taken."""
    one = _on(comparisons[0][0]) if 0 < len(comparisons) <= QUEUED else None
    if not one or not all(one.start(*c, which=AT_ONCE + i) for i, c in enumerate(comparisons)):
        return None
    return lambda: [one.answer(AT_ONCE + i, waited=True) for i in range(len(comparisons))]


def finite_sums(where, *pairs):
    """For each (found, exact), two at most: (sums of squares of all parts, of the whole, the largest difference); None
    where there are no kernels, these do not take one, or something is not finite.  Waits once."""
    one, out = _on(pairs[0][0]), []
    for which, (found, exact) in enumerate(pairs):
        out.append(torch.empty(where.parts, dtype=torch.float64, device=found.device) if one else None)
        if not one or not one.start(found, exact, None, where, out[-1], which):
            return None
    out = [(sums, *one.answer(which)[:2]) for which, sums in enumerate(out)]
    return out if math.isfinite(sum(err2 + top for _, err2, top in out)) else None
