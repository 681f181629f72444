"""torch.compile with less overhead.  What inductor compiles, and how well, is PyTorch's default; these settings are
not:

    processes   Inductor's pool of compilers imports PyTorch once more: for a few kernels that takes longer than it
                saves (4.5 s in place of 3.4 on 16 cores), and it takes the processors of the judges beside it.
    headers     On the cpu target inductor precompiles PyTorch's C++ headers in each process that compiles anything (7 s
                of a processor, which four kernels earn back: 1.2 s each in place of 3).
    vectors     It builds a program for each kind of vector instructions (17 s in all), and imports PyTorch in a process
                of its own to load it (1.3 s each, also where it is built).  The processor names those that it has, and
                PyTorch's headers are there for each; whether the C++ compiler knows the instructions that PyTorch does
                not use itself is still tried, and loaded here; where workers are forked, once for all (warm.py).
    tuning     Triton's do_bench calls a kernel of 5 ms 19 times for each of its few configurations, half a second for a
               module.  A worker that compiles many tasks calls one of a millisecond or more 4 to 12 times: such a call
               varies by 1%.

Only models with at least NETWORK modules get the pool and the precompiled headers.  A worker that compiles many tasks
(`synth run`) gets the headers and no pool."""

import os
import statistics
import subprocess
from contextlib import suppress
from types import SimpleNamespace

import torch

from .device_time import events

NETWORK = 24  # modules
LONG_MS, ENOUGH_MS = 1, 10  # a kernel that is called a few times while it is tuned; for how long


def compiled(model, device, pool=True, **how):
    """torch.compile(model, **how). pool: inductor may start compiler processes. device: the model's."""
    network = len(list(model.modules())) >= NETWORK
    if device.type == "cpu":
        from torch._inductor import config

        vectors()
        config.cpp_cache_precompile_headers = network or not pool
    if network and pool and os.path.isdir("/dev/shm"):
        from torch._inductor import config

        config.compile_threads = min(8, len(os.sched_getaffinity(0)))
    return torch.compile(model, **how)


def briefly(do_bench, once):
    """do_bench, with few calls of a long kernel.  once(kernel): the milliseconds of a call with an empty cache."""

    def bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
        if grad_to_none is None and quantiles is None and return_mode in ("mean", "median"):
            fn()
            ms = [once(fn)]
            if ms[0] >= LONG_MS:
                ms += [once(fn) for _ in range(max(2, int(ENOUGH_MS / ms[0])))]
                return statistics.median(ms)
        return do_bench(fn, warmup, rep, grad_to_none, quantiles, return_mode)

    return bench


def tune_briefly():
    """Let inductor choose between a long kernel's configurations by few calls, where this PyTorch does so by Triton's
    do_bench."""
    with suppress(ImportError, AttributeError):
        from torch._inductor.runtime.benchmarking import TritonBenchmarker, benchmarker
        from triton import runtime, testing

        def once(fn):
            driver = runtime.driver.active
            cache = driver.get_empty_cache_for_benchmark()
            a, b = events()
            torch.cuda.synchronize()
            driver.clear_cache(cache)
            a.record()
            fn()
            b.record()
            b.synchronize()
            return a.elapsed_time(b)

        if type(benchmarker) is TritonBenchmarker:
            benchmarker.triton_do_bench = briefly(testing.do_bench, once)


def vectors():
    """Inductor's module of vector instructions, with these settings."""
    from torch._inductor import config, cpu_vec_isa

    config.cpp.vec_isa_ok = True
    cpu_vec_isa.subprocess = SimpleNamespace(DEVNULL=subprocess.DEVNULL, check_call=check_call)
    return cpu_vec_isa


def check_call(argv, **kw):
    """subprocess.check_call() for a program text that imports PyTorch: runs it here, where PyTorch is imported."""
    if argv[1:2] == ["-c"]:
        exec(argv[2], {})
    else:
        subprocess.check_call(argv, **kw)
