"""Import PyTorch without its meta kernels in Python: torch._meta_registrations, and with it torch._prims, torch._refs
and torch._decomp, takes a third of the import.

Problem.  Every reference worker imports PyTorch, and most tasks run without what only tracing, compiling and tensors of
the device "meta" need.  So an empty module takes its place until one of these happens:

  - a module that traces or compiles is imported (NEEDING), by us, by the task or by PyTorch itself;
  - an attribute of that module, or of one that it imports, is read;
  - the task's text imports more than LIGHT or has a word in it that may need meta kernels.

A version of PyTorch without that module is imported as usual.
"""

import ast
import contextlib
import importlib.util
import sys
import types

NAME = "torch._meta_registrations"
BROUGHT = ("_decomp", "_prims", "_refs")  # imported by it
NEEDING = ("torch._decomp", "torch._dynamo", "torch._functorch.aot", "torch._inductor", "torch._prims", "torch._refs",
           "torch.export._trace", "torch.onnx.")
WORDS = ("meta", "fake", "Fake", "fx", "torch._", "__import__", "importlib")
LIGHT = {"abc", "collections", "copy", "dataclasses", "enum", "functools", "itertools", "math", "numbers", "numpy",
         "operator", "os", "random", "sys", "torch", "typing", "warnings"}


class Later(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):  # Python itself reads these of every module
            raise AttributeError(name)
        complete()
        return getattr(sys.modules[self.__name__], name)


class Imported:
    """Loader for a module that the import of a name in NEEDING has already imported while Python looked for it."""

    def __init__(self, module):
        self.module, self.spec = module, module.__spec__
        module.__spec__ = None  # else Python would use it and execute the module again

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        module.__spec__ = self.spec


class Finder:
    """A finder before all others: it sees each name that is about to be imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith(NEEDING) and hasattr(sys.modules.get("torch"), "_meta_registrations"):
            complete()
            if name in sys.modules:
                return importlib.util.spec_from_loader(name, Imported(sys.modules[name]))
        return None


def import_torch():
    """Use instead of the first `import torch`."""
    first = "torch" not in sys.modules
    if first:
        sys.modules[NAME] = Later(NAME)
        sys.meta_path.insert(0, Finder)
    import torch

    for name in BROUGHT if first else ():  # torch.broadcast_shapes() uses torch._refs without importing it
        if not hasattr(torch, name):
            setattr(torch, name, Later(f"torch.{name}"))
    return torch


def complete():
    """Replace the empty modules by the real ones."""
    if isinstance(sys.modules.get(NAME), Later):
        del sys.modules[NAME]
        sys.meta_path.remove(Finder)
        with contextlib.suppress(ModuleNotFoundError):  # a version of PyTorch without it
            importlib.import_module(NAME)


def suffices(text, local):
    """Can the task run without meta kernels?"""
    if local.files or any(word in text for word in WORDS):
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # load() will say so
    packages = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages.update(a.name.split(".")[0] for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            packages.add((node.module or ".").split(".")[0])
    return packages <= LIGHT
