#!/usr/bin/env python3
"""synth run with workers that run modules, killed at 20 random moments: the same bytes as an undisturbed run with its
times.

budget: 400 CPU-seconds"""
# label: slow
# timeout: 2000
# processors: 2
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import WW, finish, need_pytorch, ok  # noqa: E402

need_pytorch()
top, seed = tempfile.mkdtemp(prefix="synth-kill-"), int(os.environ.get("WW_SEED")
                                                        or random.SystemRandom().randrange(1 << 30))
recipe = os.path.join(top, "recipe.yaml")
with open(recipe, "w") as f:
    f.write("set: small\ncompiler: aot_eager\nmin-us: 1\nmax-us: 10000000\n")
FILES = ("tasks.jsonl.zst", "rejected.jsonl", "timings.jsonl", "run.json")


def command(out, *args):
    return [WW, "synth", "run", recipe, "--target", "cpu", "--threads", "1", "-j", "2", "-n", "30", "--validation", "4",
            "--held-out", "4", "--seed", "5", "-o",
            os.path.join(top, out), *args]


def read(out, name):
    with open(os.path.join(top, out, name), "rb") as f:
        return f.read()


first = subprocess.run(command("first"), capture_output=True, text=True, check=False)
replay = ("--timings", os.path.join(top, "first", "timings.jsonl"))
ok(first.returncode == 0, "an undisturbed run", first.stdout + first.stderr)
rng, killed, tried = random.Random(seed), 0, 0
while killed < 20 and tried < 60:
    tried += 1
    p = subprocess.Popen(command("killed", *replay), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        p.wait(rng.uniform(0, 12))
    except subprocess.TimeoutExpired:
        p.kill()
        killed += 1
    p.wait()
    if killed < 20 and os.path.exists(os.path.join(top, "killed", "run.json")):
        shutil.rmtree(os.path.join(top, "killed"))  # it was done: once more from the start
last = subprocess.run(command("killed", *replay), capture_output=True, text=True, check=False)
different = [n for n in FILES if read("first", n) != read("killed", n)] if last.returncode == 0 else FILES
ok(killed == 20 and not different, f"killed 20 times (WW_SEED={seed}): the same bytes",
   f"{killed} {different} {last.stderr}")
shutil.rmtree(top, ignore_errors=True)
finish()
