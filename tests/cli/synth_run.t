#!/usr/bin/env python3
"""synth compose and synth run on the cpu target: shapes are as predicted, a run that is killed or meets a full disk
ends in the same bytes, hostile modules cost their own worker.

budget: 30 CPU-seconds"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import WW, finish, need_pytorch, ok  # noqa: E402

python = need_pytorch()
top = tempfile.mkdtemp(prefix="synth-run-")

META = """
import gc, json, sys, torch
gc.disable()
gc.freeze()
wrong = []
for n, line in enumerate(sys.stdin):
    r = json.loads(line)
    try:
        names = {}
        exec(compile(r["code"], "candidate", "exec"), names)
        with torch.device("meta"), torch.no_grad():
            out = names["Model"](*names["get_init_inputs"]())(*names["get_inputs"]())
        found = [str(out.dtype)[6:], list(out.shape)]
    except Exception as e:
        found = f"{type(e).__name__}: {e}"
    if found != [r["dtype"], r["sizes"]]:
        wrong.append(f"{r['ops']}: {found}, not {r['dtype']} {r['sizes']}")
print(json.dumps(wrong))
sys.stdout.flush()
import os
os._exit(0)
"""


def compose(*args):
    p = subprocess.run([WW, "synth", "compose", "--json", *args], capture_output=True, text=True, timeout=60, check=False)
    return p.stdout.splitlines() if p.returncode == 0 else []


each, some = compose("--each", "--target", "cuda"), compose("--target", "cuda", "--set", "large", "-n", "300", "--seed", "5")
p = subprocess.run([python, "-c", META], input="\n".join(each + some), capture_output=True, text=True, timeout=120, check=False)
wrong = json.loads(p.stdout or "[null]")
ok(len(each) >= 250 and len(some) == 300 and not p.returncode, "every operator alone, and 300 candidates, run on meta tensors", p.stderr)
ok(len(wrong) <= 6, "at least 98% of the shapes are as predicted", wrong[:5])

# ---- Runs

recipe = os.path.join(top, "recipe.yaml")
with open(recipe, "w") as f:
    f.write("set: small\ncompiler: aot_eager\nforms: {chain: 1}\nmax-us: 4000\nmax-load-seconds: 6\n")


COUNT = 2


def command(out, *args, jobs=1, count=COUNT):
    return [WW, "synth", "run", recipe, "--target", "cpu", "--threads", "1", "-n", str(count), "-j", str(jobs), "--seed", "3",
            "-o", os.path.join(top, out), *args]


def run(*args, **more):
    return subprocess.run(command(*args, **more), capture_output=True, text=True, timeout=170, check=False)


def read(out, name):
    with open(os.path.join(top, out, name), "rb") as f:
        return f.read()


# Times are given, so that the machine's load decides nothing.
given = os.path.join(top, "given.jsonl")
with open(given, "w") as f:
    for i in range(100):
        f.write(json.dumps({"index": i, "times": {"eager_us": 100.0 + i, "compile_us": 50.0, "gpu": "", "versions": {}}}) + "\n")
replay = ("--timings", given)
FILES = ("tasks.jsonl.zst", "rejected.jsonl", "run.json")
first = run("first", *replay)
summary = json.loads(read("first", "run.json"))
ok(first.returncode == 0 and f"{COUNT} tasks of" in first.stdout and summary["accepted"] == COUNT and summary["tried"] == COUNT + sum(summary["rejected"].values()),
   "a run makes what was asked for and counts every candidate", first.stdout + first.stderr)
audit = subprocess.run([WW, "synth", "audit", os.path.join(top, "first", "tasks.jsonl.zst"), "--sample", "0", "-j", "1"],
                       capture_output=True, text=True, timeout=120, check=False)
ok(audit.returncode == 0, "the audit finds nothing in it", audit.stdout + audit.stderr)

# The same with two jobs, from what a kill in the middle of a write leaves; then on a disk that is full.
whole = read("first", "journal.jsonl").splitlines(True)
os.mkdir(os.path.join(top, "again"))
with open(os.path.join(top, "again", "journal.jsonl"), "wb") as f:
    f.writelines(whole[:-1] + [whole[-1][: len(whole[-1]) // 2]])


def small_disk():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (sum(map(len, whole[:-1])) + 100, resource.RLIM_INFINITY))


full = subprocess.run(command("again", *replay), capture_output=True, text=True, timeout=120, preexec_fn=small_disk, restore_signals=False, check=False)
ok(full.returncode == 3 and "journal.jsonl" in full.stderr and read("again", "journal.jsonl") == b"".join(whole[:-1]),
   "a full disk ends the run and loses nothing", f"{full.returncode} {full.stderr}")
last = run("again", *replay, jobs=2)
ok(last.returncode == 0 and all(read("first", n) == read("again", n) for n in FILES),
   "killed, without a disk, and with another --jobs: the same bytes", last.stderr)
other = run("again", count=COUNT + 1)
ok(other.returncode == 2 and "another count" in other.stderr, "a directory of another run is refused", other.stderr)
none = run("../../../proc/nothing/here")
ok(none.returncode == 3 and len(none.stderr.splitlines()) == 1, "a directory that cannot be made is one line", none.stderr)

# ---- What a policy may write

GOOD = ("import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(256, 300)\n\n"
        "    def forward(self, x):\n        return torch.tanh(self.fc(x)).sum(dim=1)\n\n\ndef get_inputs():\n    return [torch.randn(512, 256)]\n\n\n"
        "def get_init_inputs():\n    return []\n")
SAID = ["Here is a fine idea in words.",
        "```python\nimport os\nwhile True:\n    os.fork()\n```",
        "```python\nimport time\nwhile True:\n    time.sleep(0.1)\n```",
        f"Now a good one.\n```python\n{GOOD}```"]
WANT = ["the policy wrote no code", None, "takes too long"]
episode = os.path.join(top, "said.jsonl")
with open(episode, "w") as f:
    f.write(json.dumps({"type": "header", "version": 1, "task": {"path": "x", "id": "x"}, "target": "cpu", "device": "", "policy": "hand",
                        "seed": 1, "rule": "strict", "versions": {}, "started": "2026-11-21T12:34:56Z"}) + "\n")
    for i, text in enumerate(SAID):
        f.write(json.dumps({"type": "message", "turn": i + 1, "t": 0, "role": "assistant", "text": text, "calls": [], "finish": "stop"}) + "\n")
with open(recipe, "a") as f:  # its times are measured, whatever the machine does beside
    f.write("min-us: 1\n")
with open(recipe) as f:
    text = f.read().replace("max-us: 4000", "max-us: 10000000")
with open(recipe, "w") as f:
    f.write(text)
said = run("said", "--policy", "replay:" + episode, "--max-tried", str(len(SAID)), count=1)
rejected = [json.loads(x) for x in read("said", "rejected.jsonl").splitlines()]
ok(said.returncode == 0 and len(rejected) == len(SAID) - 1, "of what a policy wrote the good module is kept", said.stdout + said.stderr)
ok(all(w is None or w == r["reason"] for w, r in zip(WANT, rejected)), "prose, forks and endless loops are rejected, each for its reason",
   [(r["reason"], r["detail"][:100]) for r in rejected])

shutil.rmtree(top, ignore_errors=True)
finish()
