"""KernelBench's own evaluation of one of our kernels: `build NAME DIR` or `eval NAME DIR`, with $KERNELBENCH the folder
that holds its package.  What its modules import and an evaluation does not use (language models' clients, progress
bars) is replaced by empty modules where it is not installed, so that nothing but PyTorch is needed."""

import importlib
import os
import sys
import types

import solutions

HERE = os.path.dirname(os.path.abspath(__file__))


class Anything:
    def __init__(self, *args, **kwargs):
        self.__dict__.update(kwargs)

    def __call__(self, *args, **kwargs):
        return self


class Model:
    """The part of pydantic.BaseModel that a record of results needs."""

    def __init__(self, **values):
        for kind in reversed(type(self).__mro__):
            for name in getattr(kind, "__annotations__", {}):
                default = getattr(kind, name, None)
                setattr(self, name, type(default)(default) if isinstance(default, (dict, list)) else default)
        for name, value in values.items():
            setattr(self, name, value)


def stand_in(name, **members):
    try:
        importlib.import_module(name)
    except ImportError:
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module


def kernelbench():
    stand_in("requests")
    stand_in("dotenv", load_dotenv=lambda *a, **k: None)
    stand_in("tqdm", tqdm=Anything)
    stand_in("openai", OpenAI=Anything)
    stand_in("litellm", completion=Anything())
    stand_in("pydantic", BaseModel=Model)
    stand_in("datasets", load_dataset=Anything())
    sys.path.insert(0, os.environ["KERNELBENCH"])
    import kernelbench.eval as module
    from kernelbench.utils import set_gpu_arch

    set_gpu_arch(["Hopper"])
    return module


def task(name):
    with open(os.path.join(HERE, "tasks", name + ".py"), encoding="utf-8") as f:
        return f.read()


def main():
    what, name, build_dir = sys.argv[1:]
    module = kernelbench()
    solution = solutions.model_new(name)
    os.makedirs(build_dir, exist_ok=True)
    if what == "build":
        ok, out, error = module.build_compile_cache(solution, build_dir=build_dir)
        print(out, error)
        return 0 if ok else 1
    r = module.eval_kernel_against_ref(task(name), solution, num_correct_trials=5, num_perf_trials=100,
                                       measure_performance=True, build_dir=build_dir, device=0)
    print(
        f"compiled {r.compiled} correct {r.correctness} {r.runtime} ms, reference {getattr(r, 'ref_runtime', None)} ms"
    )
    return 0 if r.compiled and r.correctness else 1


if __name__ == "__main__":
    sys.exit(main())
