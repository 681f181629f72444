"""Norms of the parts of a tensor: its slices along every axis, its rows, and blocks of consecutive elements.

One norm for a whole tensor does not show errors in small parts: a row of 1e-6 next to large rows could be zeros.  So
rule strict checks parts as well, each relative to its own size.  The parts follow from the shape alone, never from
values (elements that are small by chance are no part of their own).  With dimensions d0 .. dk, without those of size 1:

    runs      one part for each index of the first p dimensions, p from 1 to k; p = k are the rows
    slices    one part for each index of a dimension
    crossed   one part for each pair of indices of the first and the last dimension, from three dimensions on
    blocks    BLOCK consecutive elements

Parts of fewer than LEAST elements (FEWER in an output of less than two such parts; blocks have as many) are merged,
since the norm of a few elements is a matter of chance: once with the parts that follow, and once with parts at an even
distance.  Without the second, every other row of 32 elements could be zeros if its neighbours are large.  The distance
is a multiple of 24 if there are so many parts, so that patterns with a period of 2, 3, 4, 6, 8, 12 or 24 are not mixed.
Elements of a single dimension are merged in the second way only; blocks are the first.

One pass computes everything: the sums of squares of rows, of (first, last) pairs and of blocks, for each piece of the
tensor that fits the cache; all other sums are sums of these.  Nothing here waits for a GPU.
"""

import functools
import math

import torch

LEAST, BLOCK, FEWER = 64, 256, 8
EVEN = (24, 12, 8, 6, 4, 3, 2, 1)
MOST = 1 << 24  # most rows, or columns, with sums of their own: they take memory
KEPT = 1 << 16  # parts of a layout whose counts are kept: making them takes dozens of launches
CHUNK = 1 << 23  # elements at a time on a GPU
HOST_CHUNK = 1 << 14  # on the cpu: fp64 stays in the cache, and below 1 << 15 no operator wakes threads to share it


def step_of(t):
    return CHUNK if t.is_cuda else HOST_CHUNK


def finite(t):
    """Is nothing in t infinite or NaN?  One pass without a copy: the largest and the smallest say it, and NaN is
    either."""
    return not t.dtype.is_floating_point or not t.numel() or bool(
        torch.stack([x for piece in t.reshape(-1).split(step_of(t)) for x in torch.aminmax(piece)]).isfinite().all())


def evenly(n, most):
    """Ranges of at most `most` that cover n, of about equal length: no short rest."""
    each = -(-n // max(1, -(-n // most)))
    return [(i, min(n, i + each)) for i in range(0, n, each)]


class Kind:
    """Parts of one kind: the indices of the middle dimension of (outer, size, inner), at least `per` of them merged:
    adjacent ones, or (apart) those at a distance of `groups`."""

    def __init__(self, name, source, outer, size, inner, elements, apart=False):
        least = LEAST if elements >= 2 * LEAST else FEWER
        self.name, self.source, self.outer, self.size, self.inner, self.apart = name, source, outer, size, inner, apart
        self.each = elements // size
        self.per = max(1, -(-least // max(self.each, 1)))
        self.groups = size // self.per
        if apart:
            self.groups -= self.groups % next(m for m in EVEN if m <= max(1, self.groups))
            self.per = size // max(1, self.groups)

    def sums(self, source):
        v = source.view(self.outer, self.size, self.inner)
        v = v.reshape(-1) if self.outer == self.inner == 1 else v.sum((0, 2))
        if self.per == 1:
            return v
        whole = self.groups * self.per
        shape = (self.per, self.groups) if self.apart else (self.groups, self.per)
        out = v[:whole].view(shape).sum(0 if self.apart else 1)
        if whole < self.size and self.apart:
            out[: self.size - whole] += v[whole:]
        elif whole < self.size:
            out[-1] += v[whole:].sum()
        return out

    def members(self, g):
        if self.apart:
            return range(g, self.size, self.groups)
        return range(g * self.per, self.size if g == self.groups - 1 else (g + 1) * self.per)

    def words(self, g):
        m = self.members(g)
        name = self.name.format(g if self.apart or len(m) == 1 else f"{m[0]} to {m[-1]}")
        return f"{name} and every {self.groups}th after it" if self.apart else name


class Layout:
    """The parts of a shape, and the pieces in which its elements are read: (start, first, rows, columns) of (lead, mid,
    cols)."""

    def __init__(self, shape, step):
        self.shape, dims = shape, [s for s in shape if s > 1] or [1]
        self.numel = math.prod(shape)
        self.block = BLOCK if self.numel >= 2 * LEAST else FEWER
        while self.numel // dims[-1] > MOST:  # too many short rows: merge the last two dimensions
            dims[-2:] = [dims[-2] * dims[-1]]
        self.cols, self.rows = dims[-1], self.numel // dims[-1]
        self.lead = dims[0] if len(dims) > 2 and LEAST * dims[0] <= self.rows and dims[0] * dims[-1] <= MOST else 1
        self.mid = self.rows // self.lead
        self.pieces = list(self._pieces(step)) if self.numel else []
        kinds = list(self._kinds(dims)) if self.numel >= 2 * FEWER else []
        kinds += [Kind(k.name, k.source, k.outer, k.size, k.inner, self.numel, True) for k in kinds if k.per > 1]
        self.kinds = [k for k in kinds if k.groups > 1 and k.each < self.numel and (k.apart or len(dims) > 1)]
        self.parts = sum(k.groups for k in self.kinds)
        self.parts += sum(max(1, math.prod(view) // self.block) for _, view in self.pieces)
        self._counts = {}
        self.by_row = any(k.source == "rows" for k in self.kinds)
        self.by_column = any(k.source in ("columns", "pairs") for k in self.kinds)

    def _pieces(self, step):
        lead, mid, cols = self.lead, self.mid, self.cols
        if mid * cols <= step:
            for a, b in evenly(lead, max(1, step // (mid * cols))):
                yield a * mid * cols, (b - a, mid, cols)
        elif cols <= step:
            for i in range(lead):
                for a, b in evenly(mid, max(1, step // cols)):
                    yield (i * mid + a) * cols, (1, b - a, cols)
        else:
            for row in range(self.rows):
                for a, b in evenly(cols, step):
                    yield row * cols + a, (1, 1, b - a)

    def _kinds(self, dims):
        at = [i for i, s in enumerate(self.shape) if s > 1]
        for p in range(1, len(dims)):
            size = math.prod(dims[:p])
            of = f"dimension {at[0]}" if p == 1 else f"the first {at[p - 1] + 1} dimensions"
            name = "row {}" if 1 < p == len(dims) - 1 else f"index {{}} of {of}"
            yield Kind(name, "rows", 1, size, self.rows // size, self.numel)
        for a in range(1, len(dims) - 1):
            outer = math.prod(dims[:a])
            yield Kind(f"index {{}} of dimension {at[a]}", "rows", outer, dims[a], self.rows // outer // dims[a],
                       self.numel)
        if self.cols <= MOST:
            yield Kind("column {}" if len(dims) > 1 else "element {}", "columns", 1, self.cols, 1, self.numel)
        if self.lead > 1:
            yield Kind("index {} of the first and the last dimension", "pairs", 1, self.lead * self.cols, 1, self.numel)

    def counts(self, device):
        """(elements of each part, the kind of each part), not to be written to"""
        if device in self._counts:
            return self._counts[device]
        out = self._counted(device)
        if self.parts <= KEPT:
            self._counts[device] = out
        return out

    def _counted(self, device):
        def column(n, each, rest):
            t = torch.full((n,), float(each), dtype=torch.float64, device=device)
            t[-1] += rest
            return t

        rows = [column(k.groups, k.per * k.each, 0 if k.apart else (k.size - k.groups * k.per) * k.each)
                for k in self.kinds]
        for k, n in zip(self.kinds, rows):
            if k.apart:
                n[: k.size - k.groups * k.per] += k.each
        sizes = [math.prod(view) for _, view in self.pieces]
        block = self.block
        blocks = torch.cat([column(max(1, n // block), min(n, block), n % block if n > block else 0) for n in sizes])
        of = [torch.full((r.numel(),), i, device=device) for i, r in enumerate([*rows, blocks])]
        return torch.cat([*rows, blocks]), torch.cat(of)

    def sums(self, difference):
        """(sums of squares of each part, blocks last; the largest).  difference(start, end): the elements, flat, in
        fp64."""
        rows, columns, blocks, top = [], None, [], None
        for start, (l, m, c) in self.pieces:
            d = difference(start, start + l * m * c)
            largest = torch.linalg.vector_norm(d, math.inf)
            top = largest if top is None else torch.maximum(top, largest)
            d = d.square()
            blocks.append(block_sums(d, self.block))
            if self.by_row:
                rows.append(d.view(l * m, c).sum(1))
            if self.by_column and len(self.pieces) == 1:
                columns = d.view(l, m, c).sum(1)
            elif self.by_column:
                if columns is None:
                    columns = torch.zeros(self.lead, self.cols, dtype=torch.float64, device=d.device)
                i, j = start // (self.mid * self.cols), start % self.cols
                columns[i : i + l, j : j + c] += d.view(l, m, c).sum(1)
        found = {"pairs": columns, "columns": columns.sum(0) if columns is not None and self.lead > 1 else columns}
        if self.by_row:
            rows = torch.cat(rows) if len(rows) > 1 else rows[0]
            found["rows"] = rows if rows.numel() == self.rows else rows.view(self.rows, -1).sum(1)
        out = [k.sums(found[k.source]) for k in self.kinds] + blocks
        return (torch.cat(out) if len(out) > 1 else out[0]), top

    def total(self, sums):
        """The sum over all elements, from the sums of the blocks."""
        return sums[sum(k.groups for k in self.kinds) :].sum()

    def find(self, part, device):
        """(words, flat positions of the elements) of a part by its number."""
        for k in self.kinds:
            if part < k.groups:
                return k.words(part), self._positions(k, k.members(part), device)
            part -= k.groups
        for start, view in self.pieces:
            n = math.prod(view)
            m = max(1, n // self.block)
            if part < m:
                break
            part -= m
        a, b = start + part * self.block, start + (n if part == m - 1 else (part + 1) * self.block)
        return f"elements {a} to {b - 1}", torch.arange(a, b, device=device)

    def _positions(self, k, members, device):
        s = torch.tensor(members, device=device)
        if k.source == "rows":
            inner = k.inner * self.cols
            start = (torch.arange(k.outer, device=device)[:, None, None] * k.size + s[:, None]) * inner
            return (start + torch.arange(inner, device=device)).reshape(-1)
        if k.source == "columns":
            return (torch.arange(self.rows, device=device)[:, None] * self.cols + s).reshape(-1)
        rows = s // self.cols * self.mid + torch.arange(self.mid, device=device)[:, None]
        return (rows * self.cols + s % self.cols).reshape(-1)


def block_sums(d, block):
    n = d.numel()
    whole = n // block * block
    if not whole:
        return d.sum().view(1)
    out = d[:whole].view(-1, block).sum(1)
    if whole < n:
        out[-1] += d[whole:].sum()
    return out


@functools.lru_cache(maxsize=256)
def _layout(shape, step):
    return Layout(shape, step)


def layout(t):
    return _layout(tuple(t.shape), step_of(t))


# ---- Limits of the errors of parts
BACKWARD = 1e-5  # 84 fp32 units in the last place: the error of an exact program is at most that of such inputs
TAIL = 3.72  # 1 in 10,000 of a normal distribution exceeds so many standard deviations
ONE = 16  # the error of one element may be so many times the floor, in a part as in the whole
SOON = 4  # neighbours after which a part that is far beyond its limit is wrong
UNITS_CAP = 0.25  # conditioning allows errors up to this share of a part, so that zeros are never right
SHARE = 0.02  # of the parts of a kind may have an unusual error
UNUSUAL2, OWN2, BEFORE = 16, 9, 8  # square of times the usual error; the same of PyTorch's, after so many runs
SCALES = 2200  # binary orders of magnitude of a square in fp64


def tail(n):
    """The factor that the root mean square of n normal errors exceeds, relative to their standard deviation, once in
    10,000 (Wilson and Hilferty): 4.0 for one, 2.0 for eight, 1.3 for 64."""
    return (1 - 2 / (9 * n) + TAIL * (2 / (9 * n)) ** 0.5) ** 1.5


class Limits:
    """The largest error of each part of one output, squared."""

    def __init__(self, own, exact, floor, own2, exact2):
        """own: the output's dtype; own2, exact2: sums of squares of PyTorch's error and of the reference."""
        self.layout, (n, kind) = layout(exact), layout(exact).counts(exact.device)
        self.size2, self.own2 = exact2, own2
        info = torch.finfo(own)  # `smallest`: what may be flushed to zero
        smallest = info.tiny * info.eps if own == torch.float16 else info.tiny
        least2 = torch.maximum(exact2 * floor**2 * (ONE**2 / n).clamp(min=1.0), n * smallest**2)
        self.limit2 = torch.maximum(least2, 16 * torch.maximum(own2, self._usual2(own2, n, kind)))
        self.seen, self.sum2, self.sum4, self.moved2, self.wide = 0, 0, 0, torch.zeros_like(own2), {}
        self.own_unusual = torch.zeros(len(self.layout.kinds) + 1, dtype=torch.float64, device=own2.device)

    def usual2(self, error2):
        """The usual error of each part, from those of all, squared."""
        return self._usual2(error2, *self.layout.counts(error2.device))

    def _usual2(self, error2, n, kind):
        """PyTorch's usual error in parts of this kind with elements of about the same size, within a factor of two: its
        error in one part may be small by luck.  The mean square is the square of the mean of roots, so that one badly
        conditioned part does not raise the limit of the others."""
        scale = torch.frexp(self.size2 / n)[1].long().clamp(-SCALES, SCALES) // 2 + SCALES
        key = kind * 2 * SCALES + scale
        bins = int(2 * SCALES * (len(self.layout.kinds) + 1))
        root = (error2 / n).sqrt().sqrt()
        ones = torch.zeros(bins, dtype=torch.float64, device=n.device).index_add_(0, key, torch.ones_like(root))
        all_ = torch.zeros_like(ones).index_add_(0, key, root)
        return (all_[key] / ones[key]) ** 4 * n

    def learn(self, error2, size2, moved2, unit):
        """Take in a neighbour of the draw: PyTorch's error there, the size of the parts, how far the exact result has
        moved. unit: by how much inputs moved, inf: far; None: not at all."""
        self.seen += 1
        if unit == math.inf:  # scaled to the size of the draw itself
            error2 = error2 * (self.size2 / torch.maximum(size2, self.size2)).nan_to_num(1.0)
        elif unit is not None:
            self.moved2 = torch.maximum(self.moved2,
                                        moved2 * (BACKWARD / max(unit, torch.finfo(torch.float32).eps)) ** 2)
        if self.seen >= BEFORE:
            most2 = torch.maximum(self.limit2, OWN2 * (self.own2 + self.sum2) / self.seen)
            self.own_unusual = torch.maximum(self.own_unusual, self.count(error2 > most2))
        self.sum2, self.sum4 = self.sum2 + error2, self.sum4 + error2 * error2

    def widen(self, n):
        """Set the limits after n neighbours, of which some may have failed.  The variance of an error from neighbour to
        neighbour tells how many elements make most of it: the mean of n squares has a variance of 2 / n."""
        draws = self.seen + 1
        usual2 = (self.own2 + self.sum2) / draws
        spread = ((self.own2**2 + self.sum4) / draws - usual2**2).clamp(min=0) * (draws / max(self.seen, 1))
        of = torch.ones_like(usual2)
        if self.seen == n > SOON:
            of = (2 * usual2**2 / spread).nan_to_num(LEAST, posinf=LEAST).clamp(1, LEAST)
        units2 = torch.minimum(self.moved2, self.size2 * UNITS_CAP**2)
        self.wide[n] = torch.maximum(self.limit2, torch.maximum(16 * tail(of) ** 2 * usual2, units2))

    def count(self, parts):
        """How many of these parts there are of each kind."""
        of = self.layout.counts(parts.device)[1]
        return torch.zeros_like(self.own_unusual).index_add_(0, of, parts.double())

    def crowd2(self, error2):
        """Limits, squared, for an output of which too many parts have unusual errors, each within its own limit: more
        than SHARE of a kind, and more than twice as many as there are in any neighbour.  None if there are not."""
        units2 = torch.minimum(self.moved2, self.size2 * UNITS_CAP**2)
        usual2 = (self.own2 + self.sum2) / (self.seen + 1)
        most2 = torch.maximum(UNUSUAL2 * usual2, torch.maximum(self.limit2, units2))
        all_ = self.count(torch.ones_like(error2))
        many = self.count(error2 > most2) > torch.maximum(SHARE * all_, 2 * self.own_unusual + FEWER)
        of = self.layout.counts(error2.device)[1]
        return torch.where(many[of], most2, math.inf) if bool(many.any()) else None

    def tensors(self):
        return [self.size2, self.own2, self.limit2, *self.wide.values()]
