#!/usr/bin/env python3
# label: slow
# budget: 250 CPU-seconds
# timeout: 1800
# processors: 2
"""On the cpu target 20 honest solutions all pass rule strict, and 40 planted defects are all refused
(bench/accuracy)."""
import os
import subprocess
import sys
import tempfile

root = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
python = os.environ.get("WW_PYTHON") or os.path.join(root, ".venv/bin/python")
if subprocess.run([python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"],
                  stderr=subprocess.DEVNULL).returncode:
    print("1..0 # SKIP no Python with PyTorch (make setup)")
    sys.exit(0)
with tempfile.TemporaryDirectory(prefix="warpwright-test-") as out:
    done = subprocess.run([os.path.join(root, "bench/accuracy/run"), "--target", "cpu",
                           "--batch-options=--open-tasks 1 --parallel 2", "-o", out],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
print("1..1")
print("".join(f"# {line}\n" for line in done.stdout.splitlines()), end="")
print("ok 1 - no honest solution refused, no defect let through" if done.returncode == 0 else "not ok 1")
