"""What `synth run` asks about outputs (bridge/wwbridge/examine.py), by pieces and as a whole.  test_reference.py runs
these in its process."""

import torch
from wwbridge import compiler, examine


def whole(a, b, by):
    """(near, apart, hidden of b) by their definitions."""
    x, y = a.double().expand_as(b), b.double()
    norm = (x - y).norm()
    within = ((x.float() - y.float()).abs() <= by + by * y.float().abs()).all()
    size = y.abs()
    return (bool(within) or bool(norm <= by * y.norm()), (norm / y.norm()).item(),
            ((size > 0) & (size < 1e-5 * y.square().mean().sqrt())).double().mean().item())


def outputs_are_compared_by_pieces():
    g = torch.Generator().manual_seed(3)
    piece, examine.PIECE = examine.PIECE, 7
    try:
        said = set()
        for shape in ((), (1,), (7,), (3, 5), (8, 11), (2, 3, 7)):
            for dtype in (torch.float32, torch.bfloat16, torch.float64):
                b = torch.randn(shape, generator=g).to(dtype)
                across = b.transpose(0, -1).contiguous().transpose(0, -1) if len(shape) > 1 else b
                for a in (b * 1.001, b + 0.5, across, torch.zeros((), dtype=dtype), b.mean()):
                    near, apart, hidden = whole(a, b, 1e-2)
                    assert examine.near(a, b) == near, (shape, dtype)
                    if a.shape == b.shape:
                        assert abs(examine.apart(a, b) - apart) <= 1e-12 * (1 + apart), (shape, dtype)
                    said.add(near)
                bad = b.clone()
                bad.reshape(-1)[-1] = float("nan" if len(shape) % 2 else "-inf")
                assert examine.finite(b) and not examine.finite(bad), (shape, dtype)
                few = b.clone()
                few.reshape(-1)[::2] *= 1e-7
                assert examine.hidden(few) == whole(few, few, 1e-2)[2], (shape, dtype)
        assert said == {True, False}
        empty = torch.zeros(0, 4)
        assert examine.near(empty, empty) and examine.apart(empty, empty) == 0 and examine.finite(empty)
        for x in (0.0, 1.0, 0.1, 1e-50, 1e300, float("inf")):
            f = examine.up_to_float(x)
            below = torch.nextafter(torch.tensor(f), torch.tensor(-1.0)).item()
            assert f >= x > below or x == 0 == f, x
        nan = torch.full((20,), float("nan"))
        assert not examine.near(nan, nan) and not examine.apart(nan, nan) <= 1
        assert examine.near(torch.arange(9), torch.arange(9)) and not examine.near(torch.arange(9), torch.arange(9) + 1)
    finally:
        examine.PIECE = piece


def long_kernels_are_tuned_by_few_calls():
    calls = []

    def once(fn):
        fn()
        return took[len(calls) % len(took)]

    bench = compiler.briefly(lambda *args: args[1:], once)
    for took, n, ms in (([5.0, 9.0, 6.0], 4, 6.0), ([1.0], 12, 1.0), ([30.0], 4, 30.0)):
        calls.clear()
        assert bench(lambda: calls.append(1), rep=40, return_mode="median") == ms and len(calls) == n, (took, calls)
    took = [0.9]
    assert bench(lambda: None, rep=40, return_mode="median") == (25, 40, None, None, "median")
    took = [5.0]
    assert bench(lambda: None, return_mode="min") == (25, 100, None, None, "min")


TESTS = [long_kernels_are_tuned_by_few_calls, outputs_are_compared_by_pieces]
