#!/usr/bin/env python3
"""The task sets that come with the program: the audit finds nothing (of the one for cuda in 1,000 rows; its card has
the audit of all), and neither does a second program that executes 300 tasks of the one for cpu and three of the one for
cuda (tests/synth/independent.py).  Rows are drawn by WW_SEED (1).

budget: 700 CPU-seconds"""
# label: slow
# timeout: 1800
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, WW, finish, need_pytorch, ok  # noqa: E402

python = need_pytorch()
seed = os.environ.get("WW_SEED", "1")
sets = sorted(n for n in os.listdir(os.path.join(ROOT, "data")) if os.path.isdir(os.path.join(ROOT, "data", n)))
ok(len(sets) >= 2, "sets are there", sets)
folder = tempfile.TemporaryDirectory()


def drawn(path, n):
    """A file of n rows of a set."""
    rows = subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True, text=True).stdout.splitlines()
    kept = sorted(random.Random(int(seed)).sample(range(len(rows)), min(n, len(rows))))
    out = os.path.join(folder.name, "drawn.jsonl")
    with open(out, "w", encoding="utf-8") as f:
        f.writelines(rows[i] + "\n" for i in kept)
    return out


for name in sets:
    path = os.path.join(ROOT, "data", name, "tasks.jsonl.zst")
    # A task that was sized for a GPU takes minutes here: of such a set a few are executed.
    what, audited, executed = (name, 20, 300) if name.startswith("cpu") else (drawn(path, 1000), 0, 3)
    audit = subprocess.run([WW, "synth", "audit", what, "--sample", str(audited), "--seed", seed, "--json"],
                           check=False, capture_output=True, text=True)
    found = json.loads(audit.stdout or '{"rows": 0}')
    ok(audit.returncode == 0 and found["rows"] > 0 and found["ran"] == audited and not found["findings"],
       f"{name}: its own audit finds nothing (WW_SEED={seed})", [found.get("findings"), audit.stderr])
    second = subprocess.run([python, os.path.join(ROOT, "tests/synth/independent.py"), path, "-n", str(executed),
                             "--seed", seed], check=False, capture_output=True, text=True)
    ok(second.returncode == 0 and f"{min(executed, found['rows'])} rows, 0 findings" in second.stdout,
       f"{name}: nor does the second check (WW_SEED={seed})", second.stdout + second.stderr)
finish()
