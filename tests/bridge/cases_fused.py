"""The comparison in one launch (bridge/wwbridge/fused.py, src/judge/compare.cu), its kernels on the cpu: the sums of
all parts are Layout.sums()'s, and so is every decision."""

import ctypes
import math
import os
import subprocess
import tempfile

import torch
from wwbridge import fused, reference
from wwbridge.parts import Layout

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests/emulate")
CPU = torch.device("cpu")
# Pieces of fewer elements than a tensor has: blocks then end with each.
SHAPES = (((7,), 99), ((1000,), 300), ((8192,), 1 << 23), ((64, 96), 1 << 15), ((64, 96), 1000), ((3, 1000), 300),
          ((3, 50, 70), 999), ((3, 5, 7, 64), 100), ((3, 13, 7, 64), 2000), ((2, 1, 40, 30), 1 << 15), ((1, 1), 9),
          ((300, 2), 64), ((4, 3, 5000), 1000), ((521,), 1 << 23), ((129, 257), 1 << 23), ((2000, 1), 1 << 23),
          ((1, 2000), 1 << 23), ((999, 3), 1 << 23), ((700, 17), 1 << 23), ((40, 6, 5, 4), 1 << 23),
          ((2, 96, 33), 1 << 23), ((2, 200, 300), 1 << 23), ((5, 2, 3, 2, 7, 2, 2, 3), 1 << 23), ((9, 3, 700), 2100),
          ((16,), 1 << 23), ((127,), 1 << 23), ((128,), 1 << 23), ((5000, 40), 1 << 23), ((), 9))


class Emulated:
    """In place of fused.Kernels: thread blocks are threads of this process, `blocks` at once."""

    def __init__(self, blocks):
        self.blocks, self.ran = blocks, []
        if not hasattr(Emulated, "library"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "compare.so")
                subprocess.run(["c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-pthread", "-I" + HERE, "-o", path,
                                os.path.join(HERE, "compare.cc")], check=True)
                Emulated.library = ctypes.CDLL(path)
        assert self.library.plan_bytes() == ctypes.sizeof(fused.Plan)

    def run(self, dtype, blocks, plan):
        self.ran.append(blocks)
        self.library.compare_emulated(list(fused.NAMES).index(dtype), blocks, ctypes.byref(plan))

    def wait(self):
        pass


def both(one, x, y, where, limit2):
    """(sums, whole, largest, beyond) of one launch and of operators"""
    sums = torch.full((where.parts,), -1.0, dtype=torch.float64)
    mine = one.near(x, y, limit2, where, sums)
    theirs = where.sums(reference.difference(x, y))[0]
    return (sums, *mine), (theirs, *reference.near_by_operators(x, y, limit2, where))


def alike(a, b, tolerance=1e-12):
    return torch.allclose(torch.as_tensor(a), torch.as_tensor(b), rtol=tolerance, atol=0, equal_nan=True)


def one_launch_has_the_sums_of_every_shape():
    for blocks in (1, 5):
        one = fused.Fused(Emulated(blocks), CPU)
        for shape, step in SHAPES:
            where, dtypes = Layout(shape, step), list(fused.NAMES) if shape == (64, 96) else [torch.float32]
            for dtype in dtypes:
                y = torch.randn(shape, dtype=torch.float64)
                x = (y + 1e-3 * torch.randn_like(y)).to(dtype)
                for limit2, exact in ((None, None), (torch.full((where.parts,), math.inf, dtype=torch.float64), y)):
                    mine, theirs = both(one, x, exact, where, limit2)
                    assert alike(mine[0], theirs[0]) and alike(mine[1], theirs[1]), (shape, step, dtype)
                    assert mine[2:] == theirs[2:], (shape, step, dtype)
                again = both(one, x, y, where, limit2)[0]
                assert again[1:] == mine[1:] and torch.equal(again[0], mine[0]), "the same bits"
        assert max(one.kernels.ran) == blocks
        assert not bool(one.prepared[where].kept[2].any()), "the state is left as found"


def one_launch_finds_each_part_beyond_its_limit(parts=5):
    one = fused.Fused(Emulated(3), CPU)
    for shape, step in (((64, 96), 1000), ((3, 50, 70), 999), ((1000,), 300), ((70, 3), 1 << 23)):
        where, y = Layout(shape, step), torch.randn(shape, dtype=torch.float64)
        x = (y + 1e-3 * torch.randn_like(y)).float()
        sums = where.sums(reference.difference(x, y))[0]
        for part in {0, len(sums) - 1, *torch.randperm(len(sums))[:parts].tolist()}:
            limit2 = sums * 1.001
            assert [r[3] for r in both(one, x, y, where, limit2)] == [False, False], (shape, part)
            limit2[part] = sums[part] * 0.999
            assert [r[3] for r in both(one, x, y, where, limit2)] == [True, True], (shape, part)


def one_launch_finds_more_parts_beyond_their_limits():
    one_launch_finds_each_part_beyond_its_limit(20)


def one_launch_shows_what_is_not_finite():
    one = fused.Fused(Emulated(3), CPU)
    for shape, step in (((64, 96), 1 << 23), ((3, 50, 70), 999), ((600,), 1 << 23), ((5,), 9)):
        where = Layout(shape, step)
        for value in (math.nan, math.inf, -math.inf, 3e38):
            for at in (0, -1, 4):
                y = torch.randn(shape, dtype=torch.float64)
                x = y.float()
                x.view(-1)[at] = value
                for there in (y, torch.where(x.isinf(), x.double(), y)):
                    limit2 = torch.full_like(where.sums(reference.difference(x, there))[0], 1e9)
                    mine, theirs = both(one, x, there, where, limit2)
                    assert alike(mine[0], theirs[0]) and alike(mine[1], theirs[1]), (shape, value, at)
                    assert alike(mine[2], theirs[2]) and mine[3] == theirs[3], (shape, value, at)


def what_one_launch_does_not_take_is_left_to_operators():
    one = fused.Fused(Emulated(3), CPU)
    x, where = torch.randn(64, 96), Layout((64, 96), 1 << 23)
    assert one.near(x, x, None, where) is None and one.near(x.int(), x.double(), None, where) is None
    assert one.near(x.bool(), None, None, where) is None and one.near(x[:0], None, None, where) is None
    small, fused.SCRATCH = fused.SCRATCH, 64
    try:
        assert one.near(x, x.double(), None, where) is None
    finally:
        fused.SCRATCH = small
    x = x.t()  # not contiguous: parts are counted in the order of the indices
    where = Layout((96, 64), 1 << 23)
    y = x.double() + torch.randn(96, 64) * 1e-3
    one = fused.Fused(one.kernels, CPU)
    mine, theirs = both(one, x, y, where, None)
    assert alike(mine[0], theirs[0]) and mine[2:] == theirs[2:]
    many = [Layout((n, 96), 1 << 23) for n in range(64, 64 + 2 * fused.LAYOUTS)]
    for where in many:
        y = torch.randn(where.shape, dtype=torch.float64)
        assert one.near(y.float(), y, None, where)[1] > 0
    assert len(one.prepared) == fused.LAYOUTS
    fused._open = one
    fused.forget()
    fused.use(None)
    assert not one.prepared


def references_are_measured_in_two_launches():
    kernels = Emulated(2)
    y = torch.randn(64, 96, dtype=torch.float64)
    for x in (y.float(), (y + 1e-3).half()):
        usual = reference.measure(x, y)
        fused._open = fused.Fused(kernels, CPU)
        try:
            before = len(kernels.ran)
            found, alone = reference.measure(x, y), reference.squares(x, y)
            assert len(kernels.ran) == before + 3
            x[3, 3] = math.nan  # then by operators
            odd = reference.measure(x, y)
        finally:
            fused.use(None)
        assert all(math.isclose(found[0][k], v, rel_tol=1e-9) for k, v in usual[0].items()) and found[1] and not odd[1]
        assert all(alike(a, b) for a, b in zip(found[2:], usual[2:])) and alike(alone, usual[2])
        assert all(alike(a, b) for a, b in zip(odd[2:], reference.measure(x, y)[2:]))


def what_is_queued_keeps_its_answers():
    where, other = Layout((64, 96), 1000), Layout((1000,), 300)
    y, z = torch.randn(64, 96, dtype=torch.float64), torch.randn(1000, dtype=torch.float64)
    two = [(y.float(), y, torch.full((where.parts,), 1e-9, dtype=torch.float64), where), (z.half(), z, None, other)]
    one = fused._open = fused.Fused(Emulated(2), CPU)
    try:
        answers = fused.start(two)
        one.near((y + 1).float(), y, None, where)  # what a draw may compute meanwhile
        reference.measure((z + 1).float(), z)
        assert answers() == [one.near(*c) for c in two]
        assert fused.start([]) is None and fused.start((fused.QUEUED + 1) * two[:1]) is None
        assert fused.start([two[0], (z.int(), z, None, other)]) is None
        one.kernels.run = lambda *launch: None  # no answer is not a right one
        assert all(math.isnan(found[1]) for found in fused.start(two)())
    finally:
        fused.use(None)
    assert fused.start(two) is None


def kernels_that_cannot_be_loaded_leave_it_to_operators():  # nor on the cpu at all
    fused.use(b"no kernels")
    try:
        x = torch.randn(64, 96)
        assert fused.near(x, x.double(), None, Layout((64, 96), 1 << 23)) is None
    finally:
        fused.use(None)


TESTS = [kernels_that_cannot_be_loaded_leave_it_to_operators, one_launch_finds_each_part_beyond_its_limit]
COSTLY = [references_are_measured_in_two_launches, one_launch_has_the_sums_of_every_shape,
          one_launch_finds_more_parts_beyond_their_limits, one_launch_shows_what_is_not_finite,
          what_is_queued_keeps_its_answers,
          what_one_launch_does_not_take_is_left_to_operators]
