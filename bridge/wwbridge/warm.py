"""Work that the process from which reference workers are forked does once for all of them: imports, and what PyTorch
computes and caches at its first compilation.  It starts neither threads nor the device, and sees no task.

A worker's first torch.compile takes 1.9 s of a processor on the cpu target without the C++ compiler, its second 0.5.
Most of the difference is the hash of PyTorch's and Triton's files for the names in their caches, imports inside of
functions, and a compiler: on cuda that of C for the module through which Triton speaks with the driver, on the cpu that
of C++ to find out which vector instructions it knows.  What they make lies in the cache directory, of which each task
has one of its own.

What is compiled, and how well, stays as it is: nothing is set or registered here that a worker would not have.
Rejected: to trace something with Dynamo.  It queries the device and caches the answer."""

import contextlib
import ctypes
import importlib
import os
import pkgutil
import tempfile

from . import NoCollection

# What torch.export and torch.compile import at their first use.  These names are PyTorch's: a missing one is skipped.
EXPORT = (
    "sympy.combinatorics", "torch._export.db.logging", "torch._export.passes.replace_autocast_with_hop_pass",
    "torch._export.passes.replace_set_grad_with_hop_pass", "torch.export._trace", "torch.export._unlift",
)  # fmt: skip
COMPILE = (
    "sympy.physics.units", "sympy.tensor.tensor", "torch._dynamo.backends.cudagraphs",
    "torch._dynamo.backends.distributed", "torch._dynamo.backends.inductor", "torch._dynamo.backends.onnxrt",
    "torch._dynamo.backends.tensorrt", "torch._dynamo.backends.torchxla", "torch._dynamo.backends.tvm",
    "torch._dynamo.dce_extra_outputs", "torch._dynamo.repro.after_dynamo",
    "torch._functorch._activation_checkpointing.remat_using_tags_for_fwd_loss_bwd_graph_pass",
    "torch._inductor.async_compile",
    "torch._inductor.bounds", "torch._inductor.choices", "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.cuda_combined_scheduling", "torch._inductor.codegen.memory_planning",
    "torch._inductor.codegen.segmented_tree", "torch._inductor.codegen.triton",
    "torch._inductor.codegen.wrapper_fxir", "torch._inductor.compiler_bisector",
    "torch._inductor.extern_node_serializer", "torch._inductor.fx_passes.apply_gumbel_max_trick",
    "torch._inductor.fx_passes.efficient_conv_bn_eval", "torch._inductor.fx_passes.freezing_patterns",
    "torch._inductor.fx_passes.fuse_attention", "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm", "torch._inductor.fx_passes.quantization", "torch._inductor.hooks",
    "torch._inductor.kernel_template_choice", "torch._inductor.runtime.caching.interfaces",
    "torch._inductor.runtime.triton_heuristics", "torch._subclasses.schema_check_mode",
    "torch.distributed.tensor.experimental._attention", "torch.fx.experimental.validator",
    "torch.utils._cpp_embed_headers", "torch.utils.cpp_extension", "triton.compiler.compiler",
)  # fmt: skip
CACHE = "TORCHINDUCTOR_CACHE_DIR"
PATTERNS = "torch._inductor.fx_passes.serialized_patterns"
NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED: cuInit()'s answer in a fork of a process that had called it


class Child:
    """work() in a forked process, beside this one; what it returns is the exit code, 255 where it raises."""

    def __init__(self, work):
        self.pid = os.fork()
        if self.pid == 0:
            code = 255
            try:
                code = work()
            finally:
                os._exit(code)

    def code(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def start_driver():
    """Call the driver as the first thing that needs the device does; 0: it starts, or there is none."""
    import torch

    if torch.cuda._is_in_bad_fork():
        return NOT_INITIALIZED
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) & 0xFF
    except OSError:
        return 0


def fork_has_device():
    """May a forked process start CUDA?  Not if something has called the driver before the fork; PyTorch knows only of
    its own calls from Python."""
    return Child(start_driver).code() != NOT_INITIALIZED


def import_later(names):
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def get_ready_to_compile(target):
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401

    import_later(COMPILE)
    with contextlib.suppress(Exception):
        for module in pkgutil.iter_modules(importlib.import_module(PATTERNS).__path__, PATTERNS + "."):
            importlib.import_module(module.name)
    trial = Child(trial_of_patterns) if target == "cuda" else None
    hash_files()
    if target == "cpu":
        find_vectors()
    if trial is None or trial.code() == 0:
        with contextlib.suppress(Exception):
            register_patterns()


def hash_files():
    """Compute the hashes of PyTorch's and Triton's own files, which they cache in the process; and register what
    generates code."""
    with contextlib.suppress(Exception):
        from torch._inductor.codecache import torch_key
        from torch._inductor.codegen.common import get_device_op_overrides, init_backend_registration

        torch_key()
        init_backend_registration()
        get_device_op_overrides("cpu")  # which imports those of all devices
    with contextlib.suppress(Exception):
        from triton.runtime.cache import triton_key

        triton_key()


def register_patterns():
    """Register inductor's patterns of attention and the like, which a worker would do at its first compilation.

    They are traced on tensors that stand for a device's.  Those for a GPU would start it, so it is the cpu's here: no
    pattern depends on the device, and the same serve for a GPU.  On cuda torch.cuda.is_available() has to say yes
    meanwhile (import_torch()): where it says no, FakeTensorMode counts the GPUs, which starts the driver."""
    import torch
    from torch._inductor.fx_passes import joint_graph, post_grad

    joint_graph.lazy_init(torch.device("cpu"))
    post_grad.lazy_init()
    joint_graph.lazy_init = lambda device=None: None


def trial_of_patterns():
    """0 where the driver starts in a process that is forked behind register_patterns(): another PyTorch may call it."""
    register_patterns()
    return Child(start_driver).code()


def find_vectors():
    """Let inductor find out which vector instructions the C++ compiler knows, which it keeps in the process.  Where one
    fails, nothing is kept: a worker tries again, so that no failure here makes the baselines of all tasks slower."""
    from .compiler import vectors

    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as cache:
        isa = vectors()
        check, before = isa.VecISA.check_build, [(v, dict(vars(v))) for v in isa.supported_vec_isa_list]

        def succeeds(self, code):
            if not check(self, code):
                raise RuntimeError("not known to the compiler")
            return True

        isa.VecISA.check_build = succeeds
        set_before = os.environ.get(CACHE)
        os.environ[CACHE] = cache
        try:
            isa.valid_vec_isa_list()
        except Exception:
            for v, values in before:
                vars(v).clear()
                vars(v).update(values)
        finally:
            isa.VecISA.check_build = check
            os.environ.pop(CACHE)
            if set_before is not None:
                os.environ[CACHE] = set_before


def one_driver_module():
    """Compile Triton's module for the driver here, so that a worker has it with an empty cache directory, too."""
    with contextlib.suppress(Exception):
        from triton.backends.nvidia import driver

        make, made = driver.compile_module_from_src, {}

        def once(src, name, *args, **how):
            if (src, name) not in made:
                made[src, name] = make(src, name, *args, **how)
            return made[src, name]

        driver.compile_module_from_src = once
        driver.CudaUtils()


def import_torch(target, exports, compiles):
    """Import PyTorch; with `exports` also what torch.export imports, with `compiles` what torch.compile imports."""
    from . import facts

    for name, value in facts.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with NoCollection():
        import torch

        asks = torch.cuda.is_available  # an imported module may call it, which would start the driver here
        torch.cuda.is_available = lambda: target == "cuda"
        import wwbridge.cached_graph
        import wwbridge.task  # noqa: F401

        if exports:
            import torch.export
            import wwbridge.graph  # noqa: F401

            import_later(EXPORT)
        if compiles:
            get_ready_to_compile(target)
        torch.cuda.is_available = asks


def import_all(target, exports, compiles):
    """Import and prepare what every worker needs; returns None, or why that is impossible. exports: some tasks have no
    cached graph; compiles: torch.compile will be used."""
    try:
        import_torch(target, exports, compiles)
        if compiles and target == "cuda":
            one_driver_module()
    except ImportError as e:
        from . import facts

        return facts.no_pytorch(e)
    return None if target == "cpu" or fork_has_device() else "this PyTorch has started CUDA while it was imported"
