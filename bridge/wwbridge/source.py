"""A task's source before it is run, and before PyTorch is imported: what is wrong with most unusable files shows here, in a tenth
of a second.  Only what is certain is refused: a name that may be made at run time is left for task.py to find missing."""

import ast
import importlib.util
import os
import sys

from . import Refuse

NEEDED = ("Model", "get_inputs", "get_init_inputs")
DYNAMIC = {"exec", "eval", "globals", "locals", "vars", "setattr", "__import__"}  # any of them may make a name
STATEMENT_LISTS = ("body", "orelse", "finalbody", "handlers", "cases")


def compiled(source, name, filename):
    """The code of a task's file."""
    try:
        return compile(source, filename, "exec", dont_inherit=True)
    except SyntaxError as e:
        raise Refuse("task", f"{name}: syntax error in line {e.lineno}: {e.msg}")
    except (ValueError, RecursionError, MemoryError) as e:
        raise Refuse("task", f"{name}: {e}")


def refuse_missing(name, missing):
    if missing:
        raise Refuse("task", f"{name} is not in KernelBench form: it does not define {', '.join(missing)}")


def refuse_package(name, package):
    python = os.path.join(os.path.realpath(os.path.dirname(sys.executable)), os.path.basename(sys.executable))
    if package == "torch":
        raise Refuse("missing", f"PyTorch is not installed for {python}; `warpwright doctor` says how to install it")
    raise Refuse("task", f"{name} needs the Python package {package}; install it: {python} -m pip install {package.split('.')[0]}")


def check(source, name):
    compiled(source, name, name)
    tree = ast.parse(source)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    if not used & {"path", "modules", "meta_path"}:  # nobody changes where packages are found
        for statement in tree.body:
            for package in imported(statement):
                if package not in sys.builtin_module_names and importlib.util.find_spec(package) is None:
                    refuse_package(name, package)
    names = set()
    if not used & DYNAMIC and bound(tree.body, names):
        refuse_missing(name, [n for n in NEEDED if n not in names])


def imported(statement):
    """Top-level packages that a statement cannot do without."""
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
