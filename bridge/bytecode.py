"""Imports what reference workers and candidates import, so that Python writes their byte code (src/task/bytecode.h):

    python -I -X pycache_prefix=DIR bridge/bytecode.py

To compile takes twice as long as to import.  So all processors do it before, for what the modules import by their
statements outside of functions, and for what these import; what such statements do not show is compiled by the import.
"""

import contextlib
import dis
import functools
import os
import sys
from importlib.machinery import PathFinder

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from wwbridge.warm import COMPILE, EXPORT, Child, import_later, import_torch  # noqa: E402

OURS = ("baseline", "buffers", "compiler", "examine", "profile", "reference", "share", "trace")
MORE = ("torch.utils.cpp_extension", "torch.profiler", "wwcandidate.holder", "wwcandidate.solution",
        *("wwbridge." + name for name in OURS))
FIRST = ("torch", "torch.export", "torch._dynamo", "torch._inductor.compile_fx", "wwbridge.graph", "wwbridge.task",
         *EXPORT, *COMPILE, *MORE)


@functools.cache
def find(name):
    """The module's spec, without importing its package as importlib.util does; None where there is none."""
    package = find(name.rpartition(".")[0]) if "." in name else None
    if "." in name and not (package and package.submodule_search_locations):
        return None
    return PathFinder.find_spec(name, package and package.submodule_search_locations)


def operations(code):
    """Operations and their arguments.  dis would also work out where in the text each stands: three times as long."""
    high = 0
    for op, low in zip(code.co_code[::2], code.co_code[1::2]):
        yield dis.opname[op], high | low
        high = (high | low) << 8 if op == dis.EXTENDED_ARG else 0


def imports(name, spec, code):
    """Names that the module's statements import; what they take from a package may be modules."""
    package = name if spec.submodule_search_locations else name.rpartition(".")[0]
    last = [None, None]  # constants: level and names of the next import
    for op, arg in operations(code):
        if op in ("LOAD_CONST", "LOAD_SMALL_INT"):
            last = [last[1], code.co_consts[arg] if op == "LOAD_CONST" else arg]
        elif op == "IMPORT_NAME":
            level, names = last
            base = package.rsplit(".", level - 1)[0] if level else ""
            module = ".".join(filter(None, (base, code.co_names[arg])))
            yield module
            yield from (f"{module}.{n}" for n in names or ())


def compile_module(name):
    """Let Python write the module's byte code; returns what it imports."""
    with contextlib.suppress(Exception):  # the import itself will say so
        spec = find(name)
        code = spec.loader.get_code(name)
        return set(imports(name, spec, code))
    return set()


def in_processes(names):
    """compile_module() of all, in one process a processor; the union of what they return."""
    n = len(os.sched_getaffinity(0))
    started = [start(names[k::n]) for k in range(min(n, len(names)))]
    found = set().union(*(pipe.read().split() for _, pipe in started))
    for child, pipe in started:
        pipe.close()
        child.code()
    return found


def start(names):
    """A process that calls compile_module() of these, and a file of what they return."""
    read, write = os.pipe()

    def work():
        with open(write, "w", encoding="utf-8") as f:
            f.write("\n".join(set().union(*map(compile_module, names))))
        return 0

    child = Child(work)
    os.close(write)
    return child, open(read, encoding="utf-8")


def with_packages(names):
    """The names and those of the packages that they are in, which are imported first."""
    return {".".join(parts[:k]) for parts in (name.split(".") for name in names) for k in range(1, len(parts) + 1)}


def compile_all(names):
    done, new = set(), with_packages(names)
    while new:
        done |= new
        new = with_packages(in_processes(sorted(new))) - done


def main():
    compile_all(FIRST)
    import_torch("cuda", True, True)  # which asks for Triton too
    import_later(MORE)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
