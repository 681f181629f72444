#!/usr/bin/env python3
"""synth run where the device fails under a worker: the candidate is looked at once more in a fresh one, and rejected
only if that fails too; no other candidate is rejected for it.

budget: 15 CPU-seconds"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, WW, finish, need_pytorch, ok, patched_home  # noqa: E402

python = need_pytorch()
top = tempfile.mkdtemp(prefix="synth-broken-")
N = 5

# As a kernel's error does: a process that has met one fails in all that it computes from then on.  Every process's
# second candidate breaks it here, and one candidate breaks each.
FAILS = """
good, seen, broken = examine, set(), False


def examine(task, *args):
    global broken
    seen.add(task.id)
    broken = broken or len(seen) == 2 or task.id == CULPRIT
    if broken:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return good(task, *args)
"""

recipe = os.path.join(top, "recipe.yaml")
with open(recipe, "w") as f:
    f.write("set: small\ncompiler: aot_eager\nforms: {chain: 1}\nmax-us: 4000\nmax-load-seconds: 20\n")
with open(os.path.join(top, "timings.jsonl"), "w") as f:
    for i in range(2 * N):
        f.write(json.dumps({"index": i, "times": {"eager_us": 100.0, "compile_us": 50.0, "gpu": "", "versions": {}}})
                + "\n")


def run(out, home, jobs):
    p = subprocess.run([WW, "synth", "run", recipe, "--target", "cpu", "--threads", "1", "-n", "100", "-j", jobs,
                        "--seed", "3", "--max-tried", str(N), "--timings", os.path.join(top, "timings.jsonl"), "-o",
                        os.path.join(top, out)], capture_output=True, text=True, timeout=170, check=False,
                       env={**os.environ, "WARPWRIGHT_HOME": home, "WW_PYTHON": python})
    with open(os.path.join(top, out, "journal.jsonl"), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    return {r["i"]: r for r in rows if "i" in r}, p.stdout + p.stderr


plain, said = run("plain", ROOT, "1")
passed = [i for i, r in plain.items() if "reason" not in r]
ok(len(plain) >= N and len(passed) > 2, "some candidates pass", said)

culprit = sorted(passed)[1]
fails = FAILS.replace("CULPRIT", f"hashlib.sha256({plain[culprit]['code']!r}.encode()).hexdigest()")
home = patched_home(top, lambda text: text.replace("import torch\n", "import hashlib\n\nimport torch\n", 1) + fails)
found, said = run("broken", home, "2")
wrong = {i: [found[i].get("reason"), found[i].get("detail")] for i in found
         if i != culprit and i in plain and found[i].get("reason") != plain[i].get("reason")}
ok(len(found) >= N and not wrong, "no other candidate is rejected for it", [wrong, said])
bad = found[culprit]
ok(bad.get("reason") == "ends its process" and bad.get("tries") == 2 and "illegal memory access" in bad["detail"],
   "one that breaks two workers is rejected", bad)
again = [r for i, r in found.items() if i != culprit and r.get("tries") == 2]
ok(again and all("illegal memory access" in r["again"] for r in again),
   "the others were looked at again, and the journal says why", list(found.values()))

shutil.rmtree(top, ignore_errors=True)
finish()
