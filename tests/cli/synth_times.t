#!/usr/bin/env python3
"""synth run measures a task last: what another filter rejects is never timed, what may be out of bounds is timed first,
and the times of such a run, replayed, give the same bytes.

budget: 20 CPU-seconds"""
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
top = tempfile.mkdtemp(prefix="synth-times-")
N, SEED = 5, 8  # small tasks, of which one is rejected by the eager filters, and two have an odd first digit
recipe = os.path.join(top, "recipe.yaml")
with open(recipe, "w", encoding="utf-8") as f:
    f.write("set: small\ncompiler: aot_eager\nforms: {chain: 1}\nmin-us: 1\nmax-us: 200000\nmax-load-seconds: 60\n"
            "max-compile-seconds: 6\n")


def run(out, *args, home=ROOT, tried=N):
    p = subprocess.run([WW, "synth", "run", recipe, "--target", "cpu", "--threads", "1", "-n", "100", "-j", "2",
                        "--seed", str(SEED), "--max-tried", str(tried), "-o", os.path.join(top, out), *args],
                       capture_output=True, text=True, timeout=170, check=False,
                       env={**os.environ, "WARPWRIGHT_HOME": home, "WW_PYTHON": python})
    with open(os.path.join(top, out, "journal.jsonl"), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    rows = [r for r in rows if "i" in r]
    return [r for r in rows if "row" in r], [r for r in rows if "row" not in r], p.stdout + p.stderr


def files(out):
    return [open(os.path.join(top, out, n), "rb").read() for n in ("tasks.jsonl.zst", "rejected.jsonl", "run.json")]


def runs_take(text, seconds):
    """A run while a task was loaded took so long, so that the machine's load decides nothing."""
    return text.replace("task.run_s * 1e6", str(seconds * 1e6))


LOOK = "answer = look(task, seed, stage, compiler, memory_bytes)"


def hangs(text):
    """torch.compile does not end where the first digit of a task's hash is odd."""
    return text.replace(LOOK, 'if stage == "compile" and int(task.id[0], 16) % 2:\n        '
                              '__import__("time").sleep(60)\n    ' + LOOK)


within = patched_home(top, lambda text: hangs(runs_take(text, 1e-3)))
passed, others, said = run("first", home=within)
late = [r for r in others if r["reason"] == "takes too long"]
others = [r for r in others if r not in late]
ok(len(passed) > 1 and others, "some pass, some do not", said)
ok(all(r["times"]["eager_us"] > 0 and r["cost"]["turn"] for r in passed), "those that pass are timed",
   [r.get("times") for r in passed])
ok(all(r["times"] == {"untimed": True} and not {"turn", "measure"} & set(r["cost"]) for r in others),
   "those that another filter rejects are not", [[r.get("reason"), r.get("times"), r["cost"]] for r in others])
ok(len(late) > 1 and all("mark" not in r and "too_long" in r["times"] for r in late),
   "one that takes too long is rejected by that alone, wherever it was", [late, said])
run("again", "--timings", os.path.join(top, "first", "timings.jsonl"), home=within)
ok(files("first") == files("again"), "with the times of that run: the same bytes", files("again"))
shutil.rmtree(within)
_, others, said = run("soon", home=patched_home(top, lambda text: runs_take(text, 1)), tried=N - 1)
ok(others and all(r["times"]["eager_us"] > 0 and r["cost"]["turn"] for r in others),
   "one that may be out of bounds is timed before the other filters", [others, said])

shutil.rmtree(top, ignore_errors=True)
finish()
