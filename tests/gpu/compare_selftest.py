"""Comparisons in one launch (src/judge/compare.cu) on a GPU: the sums, the largest difference and every decision are
those of PyTorch's operators, for shapes of all kinds; the time of both ways, each alone on the device.

    tests/gpu/compare_selftest.py [warpwright-compare.fatbin]      exit code 0: every line says ok;  77: no GPU here
"""

import math
import os
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bridge"))
import torch  # noqa: E402

if not torch.cuda.is_available():
    print("no GPU: nothing tested")
    sys.exit(77)
from wwbridge import fused, reference  # noqa: E402
from wwbridge.parts import Layout  # noqa: E402

PROGRAM = os.environ.get("WARPWRIGHT", os.path.join(ROOT, "build/warpwright"))
SHAPES = ((3960, 1024), (2213, 504), (325, 5876), (521,), (577, 6488), (2373, 4412), (1981,), (7,), (16,), (1,), (128,),
          (1 << 20,), (1 << 20, 3), (3, 1 << 20), (70000, 17), (64, 48, 33), (8, 96, 128, 65), (33, 7, 5, 3, 2),
          (5000, 2), (4, 3, 1 << 20), (9 << 20,), (5, 2, 3, 2, 7, 2, 2, 3))
failed = 0


def image():
    here = os.path.dirname(os.path.realpath(PROGRAM))
    places = sys.argv[1:] or [os.path.join(here, d, "warpwright-compare.fatbin") for d in ("", "../lib/warpwright")]
    path = next((p for p in places if os.path.exists(p)), None)
    if path is None:
        print(f"no warpwright-compare.fatbin beside {PROGRAM}: nothing tested")
        sys.exit(77)
    with open(path, "rb") as f:
        return f.read()


def say(ok, what):
    global failed
    failed += not ok
    print(("ok      " if ok else "not ok  ") + what, flush=True)


def ms(call, n=30):
    out = []
    for _ in range(n):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        out.append(1e3 * (time.perf_counter() - start))
    return statistics.median(out)


def alike(a, b):
    return bool(torch.allclose(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-12, atol=0, equal_nan=True))


def check(one, shape, dtype):
    where = Layout(shape, reference.step_of(torch.empty(0, device=one.device)))
    y = torch.randn(shape, dtype=torch.float64, device=one.device)
    x = (y + 1e-3 * torch.randn_like(y)).to(dtype)
    theirs = where.sums(reference.difference(x, y))[0]
    mine, limit2 = torch.full_like(theirs, -1.0), theirs * 1.001
    found = one.near(x, y, limit2, where, mine)
    if found is None:
        return say(False, f"{shape} {dtype}: not taken")
    usual = reference.near_by_operators(x, y, limit2, where)
    good = alike(mine, theirs) and alike(found[0], usual[0]) and found[1:] == usual[1:]
    good &= all(one.near(x, y, limit2, where) == found for _ in range(20))  # the same bits
    for part in {0, len(theirs) // 2, len(theirs) - 1}:
        less = limit2.clone()
        less[part] = theirs[part] * 0.999
        good &= one.near(x, y, less, where)[2]
    for value in (math.nan, math.inf, 6e4):
        z = x.clone()
        z.view(-1)[-1] = value
        a, b = one.near(z, y, limit2, where), reference.near_by_operators(z, y, limit2, where)
        good &= alike(a[0], b[0]) and alike(a[1], b[1]) and a[2] == b[2]
    ones, theirs = torch.empty_like(theirs), where.sums(reference.difference(y, None))[0]
    good &= one.near(y, None, None, where, ones)[2] is False and alike(ones, theirs)
    both = ms(lambda: one.near(x, y, limit2, where)), ms(lambda: reference.near_by_operators(x, y, limit2, where))
    say(good, f"{shape} {dtype}: {len(theirs)} parts; {both[0]:.3f} ms, by operators {both[1]:.3f}")


def main():
    device = torch.device("cuda", 0)
    torch.zeros(1, device=device)  # modules are loaded into its context
    one = fused.Fused(fused.Kernels(image(), device), device)
    print(f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}, {one.kernels.blocks} thread blocks at once")
    for shape in SHAPES:
        check(one, shape, torch.float32)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        for shape in ((3960, 1024), (64, 48, 33), (521,)):
            check(one, shape, dtype)
    say(bool((one.prepared[next(reversed(one.prepared))].kept[2] == 0).all()), "the kernels leave their state as found")
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
