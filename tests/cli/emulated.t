#!/usr/bin/env python3
# label: slow
# budget: 83 CPU-seconds
# timeout: 900
"""Tasks that were once wrong on a GPU, or would have been (tests/data/emulated.jsonl): the planner's first solution and
two trials of its search for cuda, run on the cpu on the draws of rule strict (bench/emulated/run), are what PyTorch
computes.  Sizes are small, alignments as they were.  One has a parameter that nothing reads, which the emulation once
took for another one, and halves, folds and ends beside statistics.  One has blocks that await each other's words: its
scratch memory begins as numbers."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, finish, ok  # noqa: E402

TASKS = os.path.join(ROOT, "tests/data/emulated.jsonl")
DRAWS = {"plain", "redrawn", "scaled by 2^-6", "scaled by 2^6", "shifted by 3"}  # and uneven ones, of large inputs
PYTHON = os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")

with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, "out.jsonl")
    p = subprocess.run([PYTHON, "-W", "ignore", os.path.join(ROOT, "bench/emulated/run"), "compare", "--trials", "2",
                        "-o", out, TASKS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = list(map(json.loads, open(out, encoding="utf-8"))) if os.path.exists(out) else []
with open(TASKS, encoding="utf-8") as f:
    names = [json.loads(line)["id"] for line in f]
for name in names:
    mine = [line for line in lines if line["id"] == name]
    ok(len(mine) == 3 and all(line["status"] == "right" and line["draws"].keys() >= DRAWS for line in mine),
       f"{name}: the first solution and two trials on the draws of rule strict",
       json.dumps(mine)[:3000] or p.stderr[-2000:])
finish()
