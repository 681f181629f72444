#!/usr/bin/env python3
# timeout: 300
# budget: 8 CPU-seconds, all 40
# all: every defect; what is timed
"""Rule strict on the cpu target: every kind of output, kinds of defects, repeats (tests/judge/strict_cases.py)."""
import os
import subprocess
import sys

root = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "tests/judge"))
import strict_cases  # noqa: E402

python = os.environ.get("WW_PYTHON") or os.path.join(root, ".venv/bin/python")
if subprocess.run([python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"],
                  stderr=subprocess.DEVNULL).returncode:
    print("1..0 # SKIP no Python with PyTorch (make setup)")
    sys.exit(0)
rows = strict_cases.run("cpu", part=sys.argv[1:] != ["all"])
print(f"1..{len(rows)}")
for i, (name, problem, _) in enumerate(rows, 1):
    print(f"{'not ok' if problem else 'ok'} {i} - {name}")
    if problem:
        print("# " + problem.replace("\n", "\n# "))
