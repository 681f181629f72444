"""Parts of an output most of which an activation hides.

Behind a relu a part may have a single element that is not zero, or none: the reference shows PyTorch's error in the
elements that are above zero, and hides it in the others.  The part's own error is then one number or none, and its
size may be anything.  A solution as exact as PyTorch whose sum falls on the other side of zero has an error in a part
in which PyTorch has none, in some part of every draw of a large output; neighbours tell little of it, since a part
without an element has no size to scale errors to, and since near ones round operands to TF32 as the draw itself does.

What such an element may be off by is seen elsewhere: in elements that are shown and as small.  So a part with hidden
elements (zeros of the reference) is right where its error is at most what one element may be off by, four times the
error that PyTorch would exceed in one of 10,000 (parts.py); measured by PyTorch's error in all shown elements that are
no larger than the part's largest value, or than PyTorch's largest error, if that is larger; a few larger ones, up to
16 times that error, where these are fewer than 16.  They are also taken from the index of each dimension that the
part's worst element has, and the least error counts: a row that is exact, or small, is not measured by others.

Rejected: a limit for hidden elements alone (the one beside it is as small, and its error as much chance); the error of
all shown elements (large ones have larger errors in 16 bits); any number of such elements (a sum of them is seen in the
part's norm: a leak through a mask is more than one)."""

import torch

from .parts import FEWER, step_of, tail

MOST, ENOUGH = 1024, 16  # parts, since each takes time; elements
ALLOWED2 = 16 * tail(1) ** 2
# The mean square of n normal errors, of which the standard deviation is 1, is less than this once in 100.
LUCK = {1: 1.57e-4, 2: 0.01, 3: 0.038, 4: 0.074, 5: 0.11, 6: 0.145, 7: 0.177}


class Shown:
    """PyTorch's errors in the small elements of an output that are shown, found by a run of its own."""

    def __init__(self, default, exact, most):
        """most: the largest value of these elements."""
        self.shape, d, e, found = exact.shape, default.reshape(-1), exact.reshape(-1), []
        for start, (a, b) in zip(range(0, e.numel(), step_of(e)), zip(d.split(step_of(e)), e.split(step_of(e)))):
            found.append(((b.abs() <= most) & ((b != 0) | (a != 0))).nonzero().flatten() + start)
        at = torch.cat(found)
        self.size, order = e[at].abs().sort(stable=True)
        self.at = at[order]
        self.error2 = (d[self.at].double() - e[self.at].double()).square()

    def indices(self, at):
        """The index in each dimension of the elements at flat positions."""
        found = []
        for size in reversed(self.shape):
            found.append(at % size)
            at = torch.div(at, size, rounding_mode="floor")
        return found

    def usual2(self, worst, most):
        """The mean square of the errors in elements up to `most`, but in ENOUGH, of the index of a dimension in which
        it is least, or what it may be where that has few of them; 0 where too few are shown in all."""
        n = max(int((self.size <= most).sum()), ENOUGH)
        at, error2 = self.at[:n], self.error2[:n]
        if len(at) < FEWER:
            return 0.0
        means = [float(error2.mean())]
        for of, i in zip(self.indices(at), self.indices(worst)):
            same = of == i
            n, sum2 = torch.stack((same.sum().double(), (error2 * same).sum())).tolist()
            if n:
                means.append(sum2 / n / (LUCK[int(n)] if n < FEWER else 1))
        return min(means)


def suspects(found, exact, own, limits, excess):
    """[(part, its worst element, its largest value)] of the parts beyond their limits, the furthest first; None where
    one has no hidden element, or they are too many."""
    order = excess.argsort(descending=True)[: int((excess > 1).sum())].tolist()
    f, e, out = found.reshape(-1), exact.reshape(-1), []
    for part in order if len(order) <= MOST else ():
        at = limits.layout.find(part, found.device)[1]
        there, here = f[at].double(), e[at].double()
        hidden, most = torch.stack(((here == 0).any().double(), torch.maximum(there.abs(), here.abs()).max())).tolist()
        if not hidden:
            return None
        out.append((part, at[(there - here).abs().argmax()], max(most, own["err_abs"])))
    return out or None


def explain(parts, default, exact, own, error2):
    """Have these suspects errors as one shown element may have?  default: a run of PyTorch's own program."""
    # those up to 16 times PyTorch's largest error are not told from 0 by the rule for single elements
    shown = Shown(default, exact, max(16 * own["err_abs"], *(most for _, _, most in parts)))
    return all(float(error2[part]) <= ALLOWED2 * shown.usual2(worst, most) for part, worst, most in parts)
