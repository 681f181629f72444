"""A task's own modules and files: those beside it and along the user's PYTHONPATH (src/task/local.c finds what its text
names).

A name that the text imports is looked for there first, as Python would.  The working directory is the task's folder, so
that relative names are found; the sandbox lets nothing be written there.

What the text does not name is not part of the task's content, and a change of it would meet a stale graph or baseline.
So while the task's code runs, an audit hook looks at the files that it opens: one below those directories that is not
among the named ones is remembered, and the task refused.  Files that native code opens without Python (safetensors) are
not seen."""

import importlib.machinery
import importlib.util
import os
import sys
from contextlib import contextmanager


class Local:
    def __init__(self, roots="", files=()):
        self.roots = [r for r in roots.split(":") if r]
        self.files = set(files)
        self.modules = {f.split("/")[0].removesuffix(".py") for f in files if f.endswith(".py")}
        self.unnamed = []

    def find_spec(self, name, path=None, target=None):
        """A finder of Python's import, only for the names that the text imports, so that no other file there hides a
        module of PyTorch's."""
        return importlib.machinery.PathFinder.find_spec(name, self.roots) if name in self.modules else None

    def has(self, name):
        return name in self.modules or importlib.machinery.PathFinder.find_spec(name, self.roots) is not None

    def enter(self):
        """Make the task's names importable.  First remove the modules of an earlier task of this process."""
        leave()
        if not self.roots:
            return
        Local.current = self
        self.before = set(sys.modules)
        sys.dont_write_bytecode = True
        sys.meta_path.insert(0, self)
        sys.path += self.roots
        os.chdir(self.roots[0])

    def names_of(self, path):
        """The path of a user's file relative to each root that contains it; empty for other files."""
        path = os.path.realpath(path)
        if path.startswith(OURS) or "/site-packages/" in path:
            return []
        return [os.path.relpath(path, r) for r in self.roots if path.startswith(r.rstrip("/") + "/")]

    def opened(self, path, flags):
        if not isinstance(path, (str, bytes)) or flags & (os.O_WRONLY | os.O_RDWR):
            return
        path = os.fsdecode(path)
        if path.endswith(".pyc"):
            try:
                path = importlib.util.source_from_cache(path)
            except ValueError:
                return
        names = self.names_of(path)
        if names and not self.files.intersection(names) and os.path.isfile(path):
            self.unnamed.append(names[0])

    @contextmanager
    def watched(self):
        """Context for running the task's code: the audit hook watches files."""
        Local.watching += 1
        try:
            yield
        finally:
            Local.watching -= 1

    current = None
    watching = 0


OURS = tuple({os.path.join(os.path.realpath(p), "") for p in (
    sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    os.environ.get("TMPDIR", "/nowhere"))})


def audit(event, args):
    if event == "open" and Local.watching and Local.current:
        Local.current.opened(args[0], args[2] or 0)


def leave():
    old, Local.current = Local.current, None
    if not old:
        return
    sys.meta_path.remove(old)
    for root in old.roots:
        if root in sys.path:
            sys.path.remove(root)
    for name in sys.modules.keys() - old.before:
        if old.names_of(getattr(sys.modules[name], "__file__", None) or "/"):
            del sys.modules[name]
    importlib.invalidate_caches()


sys.addaudithook(audit)
