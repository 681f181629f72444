#!/usr/bin/env python3
"""Compare the cpu cookbook's solutions with PyTorch, eager and compiled, on this machine.

Each example of examples/cpu is loaded, its solution under bench/kernels/solutions/cpu is compiled with the judge's
flags and loaded by ctypes through cpu_lab.c, which runs the plan with its own threads.  First the output is checked
against the module in float64 by the strict rule (on plain, scaled and shifted inputs, parameters redrawn); then
solution, eager and compiled module are timed in turn, A B C A B C ..., in one process with the same number of threads,
and medians are printed.

The ratios of the minima are printed beside those of the medians: on a machine that others use they are the steadier
ones.

malloc must recycle its memory, or PyTorch pays page faults for every output, so the script starts itself again with
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=9999999999 MALLOC_TOP_PAD_=268435456 if they are not set.

    bench/kernels/cpu_compare.py [--threads 2] [--seconds 6] [--no-compile] [NAME...]
"""
import argparse
import copy
import ctypes
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "9999999999", "MALLOC_TOP_PAD_": "268435456"}
if any(os.environ.get(k) != v for k, v in MALLOC.items()):
    os.environ.update(MALLOC)
    os.execv(sys.executable, [sys.executable] + sys.argv)

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ["softmax", "layernorm_gelu", "rmsnorm", "swiglu", "residual_layernorm", "linear_gelu", "mlp", "conv_bias_relu",
         "conv_transpose_gelu", "cumsum", "attention", "cross_entropy"]
CFLAGS = (
    "-O3 -march=native -fno-math-errno -fno-trapping-math -ffp-contract=fast -std=c17 -Wall -Wextra -Wno-psabi".split()
)
DTYPES = {torch.float32: 1, torch.int64: 8}


def build(work):
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-std=gnu17", "-shared", "-fPIC", "-pthread",
                    f"-I{ROOT}/include", f"-I{ROOT}/bench/kernels",
                    str(ROOT / "bench/kernels/cpu_lab.c"), "-o", f"{work}/lab.so", "-ldl"], check=True)
    lab = ctypes.CDLL(f"{work}/lab.so", mode=ctypes.RTLD_GLOBAL)
    lab.lab_new.restype = lab.lab_pool.restype = ctypes.c_void_p
    lab.lab_run.restype = ctypes.c_longlong
    lab.lab_pool.argtypes = [ctypes.c_int, ctypes.c_longlong]
    lab.lab_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return lab


class Solution:
    def __init__(self, lab, pool, work, name, threads):
        self.lab, self.pool, self.plan_so, self.kernels_so = (
            lab,
            pool,
            f"{work}/{name}_plan.so",
            f"{work}/{name}_kernels.so",
        )
        self.threads = threads
        src = ROOT / "bench/kernels/solutions/cpu" / name
        inc = [f"-I{ROOT}/skills/cuda/include", f"-I{ROOT}/include"]
        cc = os.environ.get("CC", "cc")
        subprocess.run([cc, *CFLAGS, *inc, "-shared", "-fPIC", str(src / "kernels.c"), "-o", self.kernels_so, "-lm"],
                       check=True)
        subprocess.run([cc, "-O1", *inc, "-shared", "-fPIC", "-w", str(src / "plan.c"), "-o", self.plan_so], check=True)

    def bind(self, inputs, params, out):
        p = self.lab.lab_new(self.threads)
        self.keep = []
        tensors = [(0, f"x{i}", t) for i, t in enumerate(inputs)] + [(1, n, t) for n, t in params] + [(2, "y", out)]
        for kind, name, t in tensors:
            t = t if kind == 2 else t.contiguous()
            size = (ctypes.c_longlong * 8)(*t.shape)
            self.keep.append(t)
            self.lab.lab_tensor(ctypes.c_void_p(p), kind, name.encode(), DTYPES[t.dtype], t.dim(), size,
                                ctypes.c_void_p(t.data_ptr()))
        self.lab.lab_plan(ctypes.c_void_p(p), self.kernels_so.encode(), self.plan_so.encode())
        self.p = p

    def __call__(self):
        return self.lab.lab_run(self.pool, self.p)


def aligned_empty(shape):
    numel = 1
    for s in shape:
        numel *= s
    raw = torch.full((numel + 64,), float("nan"))
    skip = (-raw.data_ptr() % 256) // 4
    return raw[skip:skip + numel].view(shape)


def check(sol, model, make_inputs):
    """The strict rule; returns the worst ratios (1 is the limit) and the worst relative error."""
    worst = [0.0, 0.0, 0.0]
    for change in (lambda t: t, lambda t: t * 2.0 ** -6, lambda t: t * 2.0 ** 6, lambda t: t + 3):
        inputs = [change(t) if t.is_floating_point() else t for t in make_inputs()]
        ref = copy.deepcopy(model).double()(*[t.double() if t.is_floating_point() else t for t in inputs])
        eager = model(*inputs)
        out = aligned_empty(eager.shape)
        sol.bind(inputs, list(model.named_parameters()), out)
        sol()
        rms = ref.pow(2).mean().sqrt().item()
        rel = lambda y: ((y.double() - ref).norm() / ref.norm()).item()
        top = lambda y: (y.double() - ref).abs().max().item()
        e, emax = rel(eager), top(eager)
        r, m = rel(out), top(out)
        if r != r:
            r = m = float("inf")
        worst = [max(a, b) for a, b in zip(worst, (r / max(4 * e, 1e-5), m / (16 * max(emax, 1e-5 * rms)), r))]
    return worst


def redraw(model):
    for name, p in model.named_parameters():
        if p.dim() == 1:
            p.data.uniform_(-0.5, 0.5) if name.endswith("bias") else p.data.uniform_(0.5, 1.5)


def median(v):
    return sorted(v)[len(v) // 2]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--seconds", type=float, default=6)
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--cpu-time", action="store_true",
                    help="one thread, and its processor time: for a machine that others use")
    ap.add_argument("names", nargs="*", default=NAMES)
    a = ap.parse_args()
    if a.cpu_time:
        a.threads = 1
    clock = time.thread_time_ns if a.cpu_time else time.perf_counter_ns
    torch.set_num_threads(a.threads)
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        lab = build(work)
        pool = lab.lab_pool(a.threads, 64 << 20)
        print(
            f"{'example':22s} {'ours ms':>9s} {'eager ms':>9s} {'compile ms':>10s} {'vs eager':>9s} {'vs compile':>10s}"
            f" {'min ours':>9s} {'eager':>7s} {'compile':>7s} {'err':>8s} {'err/limit':>9s} {'abs/limit':>9s} "
            f"{'calls':>6s}"
        )
        for name in a.names:
            spec = importlib.util.spec_from_file_location(name, ROOT / "examples/cpu" / f"{name}.py")
            mod = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(mod)
            model = mod.Model(*mod.get_init_inputs())
            redraw(model)
            sol = Solution(lab, pool, work, name, a.threads)
            norm, elem, err = check(sol, model, mod.get_inputs)
            inputs = mod.get_inputs()
            out = aligned_empty(model(*inputs).shape)
            sol.bind(inputs, list(model.named_parameters()), out)
            rivals = [model] if a.no_compile else [model, torch.compile(model)]
            for _ in range(3):
                sol()
                for f in rivals:
                    f(*inputs)
            times = [[] for _ in range(1 + len(rivals))]
            end = time.monotonic() + a.seconds
            while time.monotonic() < end or len(times[0]) < 11:
                s = clock()
                sol()
                times[0].append(clock() - s)
                for f, t in zip(rivals, times[1:]):
                    s = clock()
                    y = f(*inputs)
                    t.append(clock() - s)
                    del y
            ms = [median(t) / 1e6 for t in times] + ([float("nan")] if a.no_compile else [])
            low = [min(t) / 1e6 for t in times] + ([float("nan")] if a.no_compile else [])
            print(
                f"{name:22s} {ms[0]:9.3f} {ms[1]:9.3f} {ms[2]:10.3f} {ms[1] / ms[0]:9.3f} {ms[2] / ms[0]:10.3f}"
                f" {low[0]:9.3f} {low[1] / low[0]:7.3f} {low[2] / low[0]:7.3f} {err:8.1e} {norm:9.3f} {elem:9.3f} "
                f"{len(times[0]):6d}",
                flush=True,
            )


if __name__ == "__main__":
    main()
