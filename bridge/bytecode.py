"""Imports what reference workers and candidates import, so that Python writes their byte code (src/task/bytecode.h):

    python -I -X pycache_prefix=DIR bridge/bytecode.py
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from wwbridge.warm import import_later, import_torch  # noqa: E402

OURS = ("baseline", "buffers", "compiler", "examine", "profile", "reference", "share", "trace")

import_torch("cuda", True, True)  # which asks for Triton too
import_later(["torch.utils.cpp_extension", "torch.profiler", "wwcandidate.holder", "wwcandidate.solution",
              *("wwbridge." + name for name in OURS)])
sys.stdout.flush()
os._exit(0)
