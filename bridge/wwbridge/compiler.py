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
    tuning     For each of a kernel's few configurations inductor makes 6 calls and then calls for 25 ms, of a kernel of
               5 ms 11 in all, half a second for a module, and several times that on a device that others use.  A
               worker that compiles many tasks makes calls for 10 ms, 3 to 30.  As inductor has it, the shortest one
               decides: what others do only adds to a call's time.
    copies     What a kernel writes in place inductor copies to the processor for each configuration, and back behind
               each call, unless a copy on the device lies within the peak so far: up to 4 s for a few GiB, in which
               the device computes nothing.  A worker that compiles many tasks copies on the device.

Only models with at least NETWORK modules get the pool and the precompiled headers.  A worker that compiles many tasks
(`synth run`) gets the headers and no pool."""

import os
import subprocess
from contextlib import suppress
from types import SimpleNamespace

import torch

from .device_time import Flush, events
from .share import Share

NETWORK = 24  # modules
ENOUGH_MS, LEAST_CALLS, MOST_CALLS = 10, 3, 30  # of a configuration while a kernel is tuned


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


def briefly(benchmark, calls, share):
    """benchmark(kernel), the milliseconds of a call, with few calls.  calls(kernel, n): the milliseconds of n calls
    with an empty cache; share: a context for work on the device (share.py), in which a measurement of another process
    comes before the next configuration."""

    def bench(fn, *args, **how):
        if isinstance(share, Share):
            share.rest()
        with share:
            if args or how.get("return_mode", "min") == "all" or any(how.get(k) for k in ("grad_to_none", "quantiles")):
                return benchmark(fn, *args, **how)
            first = calls(fn, 1)[0]
            n = int(min(MOST_CALLS, ENOUGH_MS / max(first, 1e-3)))
            return min(first, *calls(fn, max(LEAST_CALLS, n) - 1))

    return bench


def event_times(fn, n):
    """The milliseconds of n calls, with the cache emptied before each."""
    flush, pairs = Flush(torch.device("cuda")), [events() for _ in range(n)]
    for a, b in pairs:
        flush()
        a.record()
        fn()
        b.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in pairs]


def tune_briefly(share):
    """Let inductor choose between a kernel's configurations by few calls, and with what they write in place copied on
    the device, where this PyTorch has the benchmarker that it asks and the method that copies."""
    with suppress(ImportError, AttributeError):
        from torch._inductor.runtime import benchmarking
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        b = benchmarking.benchmarker
        b.benchmark_gpu = briefly(type(b).benchmark_gpu.__get__(b), event_times, share)
        if hasattr(CachingAutotuner, "copy_args_to_cpu_if_needed"):  # what it leaves out is cloned for each call
            CachingAutotuner.copy_args_to_cpu_if_needed = nothing_copied


def nothing_copied(_tuner, *_args, **_how):
    return {}


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
