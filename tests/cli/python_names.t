#!/usr/bin/env python3
"""Every global name that our Python reads is defined: code that needs a GPU or a service is seldom run here.

Only what is certain is asked: a name read as a global that no module-level statement, no `global` of a function, no
star import and no builtin makes.  The scopes are the compiler's own (symtable), so nothing has to be imported or
run."""
import ast
import builtins
import os
import subprocess
import symtable

ROOT = os.path.realpath(os.environ.get("WW_SOURCE_DIR", "."))
MODULE = {"__file__", "__name__", "__doc__", "__path__", "__spec__", "__builtins__"}
BROKEN = {"tests/data/tasks/syntax.py"}  # on purpose


def sources():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True).stdout.split("\n")
    paths = listed if any(listed) else [os.path.relpath(os.path.join(d, f), ROOT) for d, _, files in os.walk(ROOT)
                                        for f in files]
    for path in sorted(set(paths)):
        full = os.path.join(ROOT, path)
        if path in BROKEN or path.startswith((".", "build")) or not os.path.isfile(full):
            continue
        if not path.endswith(".py"):
            with open(full, "rb") as f:
                first = f.readline(64)
            if not (first.startswith(b"#!") and b"python" in first):
                continue
        with open(full, encoding="utf-8") as f:
            yield path, f.read()


def scopes(table):
    yield table
    for child in table.get_children():
        yield from scopes(child)


def made(table):
    """Names of the module: assigned, imported or defined at its level, or declared global by a function that assigns
    them."""
    own = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    return own | {s.get_name() for t in scopes(table) for s in t.get_symbols() if s.is_declared_global()
                  and s.is_assigned()}


def star_imports(text):
    return [n.module for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]


def undefined(text, path, known, by_module):
    table = symtable.symtable(text, path, "exec")
    names = known | made(table)
    for module in star_imports(text):
        if module not in by_module:
            return  # somebody else's: nothing is certain
        names |= by_module[module]
    for t in scopes(table):
        for s in t.get_symbols():
            at_module = t.get_type() == "module" and s.is_referenced()
            if s.get_name() not in names and s.is_referenced() and (s.is_global() or at_module):
                yield f"{path}: {s.get_name()} is made nowhere ({t.get_name()}, line {t.get_lineno()})"


files = list(sources())
by_module = {os.path.basename(p)[:-3]: made(symtable.symtable(t, p, "exec")) for p, t in files if p.endswith(".py")}
known = set(dir(builtins)) | MODULE
bad = [b for path, text in files for b in undefined(text, path, known, by_module)]
planted = list(undefined("from os import path\ndef f():\n    return path, stream\n", "planted", known, by_module))
print("1..3")
print(("not ok" if bad else "ok") + f" 1 - {len(files)} files read no name that nobody makes")
for b in bad:
    print("# " + b)
print(("ok" if len(files) > 100 else "not ok") + " 2 - the files were found")
print(("ok" if len(planted) == 1 and "stream" in planted[0] else "not ok") + " 3 - one that nobody makes is found")
