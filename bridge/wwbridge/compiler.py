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

Only models with at least NETWORK modules get the pool and the precompiled headers.  A worker that compiles many tasks
(`synth run`) gets the headers and no pool."""

import os
import subprocess
from types import SimpleNamespace

import torch

NETWORK = 24  # modules


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
