"""Facts of the machine: versions, the members of struct ww_device, measured bandwidth and peaks."""

import importlib.util
import os
import platform
import re
import sys
import time
from contextlib import contextmanager, nullcontext

from . import Refuse, lean


MEMORY_S = 0.25


class Target:
    pool_bytes = 0  # for references that will be used again
    bandwidth = 0.0  # bytes a second; 0: not measured yet
    share = nullcontext()  # context for work on the device, if others measure there (share.py)
    _memory = None  # when it was asked, and the answer
    one_compiler = False  # torch.compile compiles in this process, whatever the model's size
    warm_calls = 3  # of a baseline before it is captured or timed
    examines = False  # tasks are examined (examine.py), which runs another draw: loading does not

    def __init__(self, kind, index, torch):
        self.kind, self.torch = kind, torch
        self.device = torch.device("cuda", index) if kind == "cuda" else torch.device("cpu")
        self.settings = settings(torch)

    def sync(self):
        if self.kind == "cuda":
            self.torch.cuda.synchronize()

    def memory(self):
        """(free, all) bytes of a GPU's memory, as they were up to MEMORY_S ago: the question waits for the driver's
        lock, which others hold."""
        now = time.monotonic()
        if self._memory is None or now - self._memory[0] > MEMORY_S:
            self._memory = now, self.torch.cuda.mem_get_info(self.device)
        return self._memory[1]

    def idle(self):
        """Bytes of a GPU's memory that PyTorch's allocator holds and does not use.  Not by its memory_reserved() and
        memory_allocated(), each of which names and sorts some 200 numbers."""
        held = self.torch.cuda.memory_stats_as_nested_dict(self.device)
        return held["reserved_bytes"]["all"]["current"] - held["allocated_bytes"]["all"]["current"] if held else 0


# Set before PyTorch is imported.
ENVIRONMENT = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # more for a network: compiler.py


def settings(torch):
    """PyTorch's global settings that change its speed or accuracy; a task may not leave one changed."""
    return {
        "matmul TF32": torch.backends.cuda.matmul.allow_tf32,
        "cuDNN TF32": torch.backends.cudnn.allow_tf32,
        "cuDNN benchmark": torch.backends.cudnn.benchmark,
        "cuDNN enabled": torch.backends.cudnn.enabled,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "thread count": torch.get_num_threads(),
        "default dtype": str(torch.get_default_dtype()),
        "fp16 reduced precision": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16 reduced precision": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "flush denormal": bool(torch.tensor([1e-40]).mul(1.0).item() == 0.0),
    }


def no_pytorch(error):
    """Why nothing works here, and the way out, in one line."""
    return f"PyTorch cannot be imported by {sys.executable} ({error}); `warpwright doctor` says how to install it"


@contextmanager
def pytorch():
    """Around imports that fail only where PyTorch does."""
    try:
        yield
    except ImportError as e:
        raise Refuse("missing", no_pytorch(e))


def start(q):
    """Import PyTorch with the environment that the request names, and start the device."""
    if q.get("cache_dir"):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(q["cache_dir"], "inductor")
        os.environ["TRITON_CACHE_DIR"] = os.path.join(q["cache_dir"], "triton")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if q.get("connections"):
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(int(q["connections"]))  # the driver reads it when it starts
    with pytorch():
        torch = lean.import_torch()
    if q["target"] == "cuda":
        if not torch.cuda.is_available():
            raise Refuse("missing", "PyTorch sees no CUDA device; use --target cpu, or look at `nvidia-smi`")
        index = int(q.get("device", 0))
        if not 0 <= index < torch.cuda.device_count():
            raise Refuse("missing", f"there is no CUDA device {index}; PyTorch sees {torch.cuda.device_count()}")
        torch.cuda.set_device(index)
        torch.zeros(1, device="cuda")
        t = Target("cuda", index, torch)
    else:
        if int(q.get("threads") or 0) > 0:
            torch.set_num_threads(int(q["threads"]))
        t = Target("cpu", 0, torch)
    t.one_compiler, t.examines = bool(q.get("one_compiler")), bool(q.get("examines"))
    t.warm_calls = int(q.get("warm_calls") or 0) or t.warm_calls
    return t


def installed():
    """The versions of Python and PyTorch without importing it, which takes seconds: as its version.py has it."""
    found = importlib.util.find_spec("torch")
    if not found or not found.origin:
        raise Refuse("missing", no_pytorch("No module named 'torch'"))
    with open(os.path.join(os.path.dirname(found.origin), "version.py"), encoding="utf-8") as f:
        said = re.search("""^__version__ = ['"]([^'"]+)""", f.read(), re.M)
    return {"python": platform.python_version(), "torch": said[1] if said else "unknown"}


def describe(t, q):
    torch = t.torch
    cuda = t.kind == "cuda"
    out = {
        "target": t.kind,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda or "",
            "cudnn": str(torch.backends.cudnn.version() or "") if cuda else "",
            "cublas": cublas_version() if cuda else "",
            "driver": driver_version() if cuda else "",
        },
        "settings": t.settings,
        "device": cuda_facts(t) if cuda else cpu_facts(t),
    }
    if q.get("bandwidth"):
        t.bandwidth = copy_bandwidth(t)
    out["device"]["memory_bytes_per_s"] = t.bandwidth
    return out


def cuda_facts(t):
    p = t.torch.cuda.get_device_properties(t.device)
    return {
        "name": p.name, "uuid": str(getattr(p, "uuid", "")), "threads": 0, "vector_bytes": 0,
        "cc": p.major * 10 + p.minor, "sm_count": p.multi_processor_count, "warp_size": p.warp_size,
        "max_threads_per_block": getattr(p, "max_threads_per_block", 1024),
        "max_threads_per_sm": p.max_threads_per_multi_processor,
        "regs_per_sm": p.regs_per_multiprocessor,
        "shared_per_block_bytes": p.shared_memory_per_block_optin,
        "shared_per_sm_bytes": p.shared_memory_per_multiprocessor,
        "l1_bytes": 0, "l2_bytes": p.L2_cache_size, "l3_bytes": 0,
        "memory_bytes": p.total_memory,
    }


def cpu_facts(t):
    info = open("/proc/cpuinfo").read() if os.path.exists("/proc/cpuinfo") else ""
    name = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), "")
    caches = cpu_caches()
    flags = next((line for line in info.splitlines() if line.startswith("flags")), "").split()

    return {
        "name": name, "uuid": "", "threads": t.torch.get_num_threads(),
        "vector_bytes": 64 if "avx512f" in flags else 32 if "avx2" in flags else 16,
        "cc": 0, "sm_count": 0, "warp_size": 0, "max_threads_per_block": 1, "max_threads_per_sm": 0, "regs_per_sm": 0,
        "shared_per_block_bytes": 1 << 20, "shared_per_sm_bytes": 0,
        "l1_bytes": caches[1], "l2_bytes": caches[2], "l3_bytes": caches[3],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def cpu_caches():
    """Bytes of the data caches of core 0 by level; 0: unknown."""
    sizes = [0, 0, 0, 0]
    for i in range(8):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{i}/"
        try:
            level, kind, size = (open(folder + f).read().strip() for f in ("level", "type", "size"))
            unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
            if kind != "Instruction" and 1 <= int(level) <= 3:
                sizes[int(level)] = int(size.rstrip("KM")) * unit
        except (OSError, ValueError):
            pass
    return sizes


def driver_version():
    try:
        text = open("/proc/driver/nvidia/version").readline()
        return next((w for w in text.split() if w[:1].isdigit() and "." in w), "")
    except OSError:
        return ""


def cublas_version():
    import ctypes

    for name in ("libcublasLt.so.13", "libcublasLt.so.12"):
        try:
            lib = ctypes.CDLL(name)
            lib.cublasLtGetVersion.restype = ctypes.c_size_t
            return str(lib.cublasLtGetVersion())
        except (OSError, AttributeError):
            pass
    return ""


def best_seconds(t, call):
    """The shortest time of a call, seconds: other work on the machine only adds time.  Ends after SAME calls in a row
    without a gain of 1%, or after MOST calls."""
    SAME, MOST = 6, 40
    torch = t.torch
    best, since = float("inf"), 0
    for _ in range(MOST):
        if t.kind == "cuda":
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            call()
            b.record()
            b.synchronize()
            seconds = a.elapsed_time(b) * 1e-3
        else:
            start_ns = time.perf_counter_ns()
            call()
            seconds = (time.perf_counter_ns() - start_ns) * 1e-9
        since = 0 if seconds < 0.99 * best else since + 1
        best = min(best, seconds)
        if since == SAME:
            break
    return best


def copy_bandwidth(t):
    """Bytes read plus bytes written a second, of a copy much larger than any cache; 0: not enough memory for it."""
    n = (1 << 30) if t.kind == "cuda" else (128 << 20)
    try:
        a = t.torch.zeros(n, dtype=t.torch.uint8, device=t.device)
        b = t.torch.zeros_like(a)
    except RuntimeError:
        return 0.0
    rate = 2 * n / best_seconds(t, lambda: b.copy_(a))
    del a, b
    if t.kind == "cuda":
        t.torch.cuda.empty_cache()
    return rate


def peaks(t):
    torch = t.torch
    threads = torch.get_num_threads()
    n = 8192 if t.kind == "cuda" else 1024 if threads <= 4 else 2048 if threads <= 32 else 4096
    out = {"fp32_flops": 0.0, "tf32_flops": 0.0, "fp16_flops": 0.0, "bf16_flops": 0.0,
           "memory_bytes_per_s": t.bandwidth or copy_bandwidth(t)}

    def measure(dtype):
        a = torch.randn(n, n, device=t.device).to(dtype)
        b = torch.randn(n, n, device=t.device).to(dtype)
        a @ b
        return 2.0 * n**3 / best_seconds(t, lambda: a @ b)

    out["fp32_flops"] = measure(torch.float32)
    if t.kind == "cuda":
        before = torch.backends.cuda.matmul.allow_tf32
        try:
            torch.backends.cuda.matmul.allow_tf32 = True
            out["tf32_flops"] = measure(torch.float32)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
        out["fp16_flops"] = measure(torch.float16)
        out["bf16_flops"] = measure(torch.bfloat16)
        torch.cuda.empty_cache()
    return out
