"""Check a task's source before it is run and before PyTorch is imported: this finds what is wrong with most unusable
files in a tenth of a second.  Only certain errors are refused: a name that may be made at run time is left to
task.py."""

import ast
import importlib.util
import os
import sys

from . import Refuse
from .local import Local

NEEDED = ("Model", "get_inputs", "get_init_inputs")
DYNAMIC = {"exec", "eval", "globals", "locals", "vars", "setattr", "__import__"}  # any of them may define a name
STATEMENT_LISTS = ("body", "orelse", "finalbody", "handlers", "cases")


def compiled(source, name, filename):
    """Compile a task's file; refuses syntax errors and missing names."""
    try:
        return compile(source, filename, "exec", dont_inherit=True)
    except SyntaxError as e:
        raise Refuse("task", f"{name}: syntax error in line {e.lineno}: {e.msg}")
    except (ValueError, RecursionError, MemoryError) as e:
        raise Refuse("task", f"{name}: {e}")


def refuse_missing(name, missing):
    if missing:
        raise Refuse("task", f"{name} is not in KernelBench form: it does not define {', '.join(missing)}")


# Modules whose distribution is known.  For no other name is a package suggested: anybody may have registered it.
DISTRIBUTIONS = {
    **{n: n for n in ("accelerate", "diffusers", "einops", "jax", "kornia", "matplotlib", "networkx", "numba", "numpy",
                      "pandas", "pyarrow",
                      "requests", "safetensors", "scipy", "sentencepiece", "sympy", "timm", "tokenizers", "torchaudio",
                      "torchtext", "torchvision", "tqdm", "transformers", "triton", "xformers")},
    "PIL": "pillow", "cv2": "opencv-python", "flash_attn": "flash-attn", "huggingface_hub": "huggingface-hub",
    "mamba_ssm": "mamba-ssm", "open_clip": "open-clip-torch", "opt_einsum": "opt-einsum",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "torch_geometric": "torch-geometric", "yaml": "PyYAML"}


def refuse_package(name, package, roots=(), kind="task"):
    python = os.path.join(os.path.realpath(os.path.dirname(sys.executable)), os.path.basename(sys.executable))
    top = package.split(".")[0]
    if package == "torch":
        raise Refuse("missing", f"PyTorch is not installed for {python}; `warpwright doctor` says how to install it")
    if top in DISTRIBUTIONS:
        raise Refuse(
            kind, f"{name} needs the Python package {top}; install it: {python} -m pip install {DISTRIBUTIONS[top]}"
        )
    where = f"the task's folder ({roots[0]}), PYTHONPATH or " if roots else ""
    raise Refuse("task",
                 f"{name} imports {package}, and no module of that name is in {where}the Python environment ({python})")


def construct(cls, init):
    """A module from what get_init_inputs() returns: a list of arguments (KernelBench), a dict of named ones, or an
    empty list and such a dict (KernelBook)."""
    if (
        isinstance(init, (list, tuple))
        and len(init) == 2
        and isinstance(init[0], (list, tuple))
        and not init[0]
        and isinstance(init[1], dict)
    ):
        init = init[1]
    return cls(**init) if isinstance(init, dict) else cls(*init)


def check(source, name, local=Local()):
    compiled(source, name, name)
    tree = ast.parse(source)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {n.attr for n in ast.walk(tree)
        if isinstance(n, ast.Attribute)}
    if not used & {"path", "modules", "meta_path"}:  # the task does not change where packages are found
        for statement in tree.body:
            for package in imported(statement):
                if (
                    package not in sys.builtin_module_names
                    and not local.has(package)
                    and importlib.util.find_spec(package) is None
                ):
                    refuse_package(name, package, local.roots)
    names = set()
    if not used & DYNAMIC and bound(tree.body, names):
        refuse_missing(name, [n for n in NEEDED if n not in names])


def imported(statement):
    """Top-level packages that a statement imports unconditionally."""
    if isinstance(statement, ast.Import):
        return [a.name.split(".")[0] for a in statement.names]
    if isinstance(statement, ast.ImportFrom) and not statement.level:
        return [statement.module.split(".")[0]]
    return []


def bound(statements, names):
    """Add the names that statements of a module bind; False where `from x import *` may bind any."""
    for s in statements:
        if isinstance(s, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(s.name)
            continue
        if isinstance(s, (ast.Import, ast.ImportFrom)):
            if any(a.name == "*" for a in s.names):
                return False
            names.update((a.asname or a.name).split(".")[0] for a in s.names)
        names.update(n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        if not all(bound(getattr(s, part, []), names) for part in STATEMENT_LISTS):
            return False
    return True
