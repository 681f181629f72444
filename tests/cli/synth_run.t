#!/usr/bin/env python3
# all: shapes and the second check, in a process with PyTorch; journals with gaps
"""synth compose and synth run on the cpu target: shapes are as predicted, a run that is killed or meets a full disk
ends in the same bytes, hostile modules cost only their own worker, and a second program accepts the result
(tests/synth/independent.py).  With workers that run modules it is killed in synth_kill.t.

budget: 10 CPU-seconds, all 50"""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ALL, ROOT, WW, finish, need_pytorch, ok  # noqa: E402
from terminal import on_terminal  # noqa: E402

python = need_pytorch()
top = tempfile.mkdtemp(prefix="synth-run-")

META = f"""
import gc, json, sys, torch
sys.path.insert(0, {os.path.join(ROOT, "tests/synth")!r})
import independent
gc.disable()
gc.freeze()
wrong = []
for n, line in enumerate(sys.stdin):
    r = json.loads(line)
    try:
        names = dict()
        exec(compile(r["code"], "candidate", "exec"), names)
        with torch.device("meta"), torch.no_grad():
            out = names["Model"](*names["get_init_inputs"]())(*names["get_inputs"]())
        found = [str(out.dtype)[6:], list(out.shape)]
    except Exception as e:
        found = [type(e).__name__, str(e)]
    if found != [r["dtype"], r["sizes"]]:
        wrong.append([r["ops"], found, r["dtype"], r["sizes"]])
print(json.dumps([wrong, [f for row in independent.rows_of(sys.argv[1]) for f in independent.look(row, "cpu")]]))
sys.stdout.flush()
import os
os._exit(0)
"""


def compose(*args):
    p = subprocess.run([WW, "synth", "compose", "--json", *args], capture_output=True, text=True, timeout=60,
                       check=False)
    return p.stdout.splitlines() if p.returncode == 0 else []


# ---- Runs

recipe = os.path.join(top, "recipe.yaml")
with open(recipe, "w") as f:
    f.write("set: small\ncompiler: aot_eager\nforms: {chain: 1}\nmax-us: 4000\nmax-load-seconds: 6\n")


COUNT = 2


def command(out, *args, jobs=1, count=COUNT):
    return [WW, "synth", "run", recipe, "--target", "cpu", "--threads", "1", "-n", str(count), "-j", str(jobs),
            "--seed", "3",
            "-o", os.path.join(top, out), *args]


def run(*args, **more):
    return subprocess.run(command(*args, **more), capture_output=True, text=True, timeout=170, check=False)


def read(out, name):
    with open(os.path.join(top, out, name), "rb") as f:
        return f.read()


# Times are given, so that the machine's load decides nothing.
def timings(name, us):
    path = os.path.join(top, name)
    with open(path, "w") as f:
        for i, t in us.items():
            f.write(json.dumps({"index": i, "times": {"eager_us": t, "compile_us": 50.0, "gpu": "", "versions": {}}})
                    + "\n")
    return "--timings", path


FILES = ("tasks.jsonl.zst", "rejected.jsonl", "run.json")
first = run("first", *timings("given.jsonl", {i: 100.0 + i for i in range(100)}))
summary = json.loads(read("first", "run.json"))
ok(first.returncode == 0 and f"{COUNT} tasks of" in first.stdout and summary["accepted"] == COUNT
   and summary["tried"] == COUNT + sum(summary["rejected"].values()),
   "a run makes what was asked for and counts every candidate", first.stdout + first.stderr)

# From here on all but the two accepted ones are too slow by the recorded times, which costs no worker: their lines are
# in the journal already, as two quick threads would have left them, with half of a line behind them.
head, *rest = map(json.loads, read("first", "journal.jsonl").splitlines())
head["count"]["train"] = COUNT + 1
done = [r for r in rest if "reason" not in r]
begun = "".join(json.dumps(r) + "\n" for r in [head, *done]) + json.dumps(rest[0])[:500]
slow = (*timings("slow.jsonl", {i: 9e9 for i in range(200) if i not in [r["i"] for r in done]}), "--max-tried", "200")


def begin(out):
    os.mkdir(os.path.join(top, out))
    with open(os.path.join(top, out, "journal.jsonl"), "w") as f:
        f.write(begun)


begin("whole")
start = time.monotonic()
whole = run("whole", *slow, count=COUNT + 1)
took = time.monotonic() - start
ok(whole.returncode == 1 and json.loads(read("whole", "run.json"))["tried"] == 200, "candidates run out",
   whole.stdout + whole.stderr)


begin("narrow")
code, seen, out = on_terminal(command("narrow", *slow, count=COUNT + 1), "stderr", 50)
drawn = [d.split("\033[K")[0] for d in seen.split("\r") if "\033[K" in d]
ok(code == 1 and f"{COUNT} of {COUNT + 1} tasks" in seen and len(drawn) > 2 and max(map(len, drawn)) < 50,
   "on a narrow terminal the status line does not wrap", (code, max(drawn, key=len), out))

if ALL:
    begun, whole_begun = json.dumps(head) + "\n" + json.dumps({**done[1], "i": 3}) + "\n", begun
    begin("gap")
    gap = run("gap", *slow, count=COUNT + 1)
    ok("of 1 candidates accepted, 1 more looked at" in gap.stderr, "the status counts what is not decided on yet",
       gap.stderr)
    begun = whole_begun

    # Candidates may be taken out of a journal.  One that was left for a task of theirs is looked at again.
    row = {k: v for k, v in done[1].items() if k not in ("row", "times")}
    small = {**head, "count": {**head["count"], "train": COUNT}}
    begun, whole_begun = "".join(json.dumps(r) + "\n" for r in [small, done[0], {**row, "decided": True}]), begun
    begin("left")
    begun = whole_begun
    for _ in range(2):
        left = run("left", *timings("given.jsonl", {i: 100.0 + i for i in range(100)}))
        ok(left.returncode == 0 and all(read("left", n) == read("first", n) for n in FILES),
           "one that was left for a task that is gone is looked at again", left.stdout + left.stderr)


def small_disk():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(begun) + 5000, resource.RLIM_INFINITY))


begin("killed")
full = subprocess.run(command("killed", *slow, count=COUNT + 1), capture_output=True, text=True, timeout=120,
                      preexec_fn=small_disk, restore_signals=False, check=False)
lines = read("killed", "journal.jsonl").splitlines(True)
ok(full.returncode == 3 and "journal.jsonl" in full.stderr and len(lines) > 10 and all(json.loads(x) for x in lines),
   "a full disk ends the run and loses nothing",
   f"{full.returncode} {full.stderr}")
soon = run("killed", *slow, "--stop-after", "1e-6", count=COUNT + 1)
ok(soon.returncode == 1 and json.loads(read("killed", "run.json"))["tried"] < 200
   and len(read("killed", "journal.jsonl").splitlines()) == len(lines), "it stops when its time is up, and writes",
   [soon.returncode, soon.stdout, soon.stderr])
rng, killed = random.Random(7), 0
for k in range(20):
    p = subprocess.Popen(command("killed", *slow, jobs=1 + k % 3, count=COUNT + 1), stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    try:
        p.wait(rng.uniform(0.01, 0.01 + took / 6))
    except subprocess.TimeoutExpired:
        p.kill()
        killed += 1
    p.wait()
last = run("killed", *slow, jobs=2, count=COUNT + 1)
# As a rule all twenty; where others left the machine after `took`, the later ones come to their end.
ok(killed >= 5 and last.returncode == 1 and all(read("whole", n) == read("killed", n) for n in FILES),
   f"killed {killed} times, and with other --jobs: the same bytes", last.stderr)
other = run("killed", count=COUNT)
ok(other.returncode == 2 and "another count" in other.stderr, "a directory of another run is refused", other.stderr)
os.mkdir(os.path.join(top, "foreign"))
with open(os.path.join(top, "foreign", "tasks.jsonl.zst"), "w") as f:
    f.write("of somebody")
other = run("foreign", *slow)
ok(other.returncode == 2 and "its tasks.jsonl.zst would be replaced" in other.stderr
   and os.listdir(os.path.join(top, "foreign")) == ["tasks.jsonl.zst"], "so is one whose set would be replaced",
   other.stderr)
if ALL:
    # A directory of tasks to keep apart from: its tasks are known by their graphs, also where they lie in files.
    os.mkdir(os.path.join(top, "suite"))
    with open(os.path.join(top, "suite", "one.py"), "w") as f:
        f.write(done[0]["code"])
    at = done[0]["i"]
    apart = run("apart", *timings("one.jsonl", {i: 9e9 for i in range(at)} | {at: 100.0}), "--max-tried", str(at + 1),
                "--against", os.path.join(top, "suite"))
    marks, last = json.loads(read("apart", "apart.json")), json.loads(read("apart", "journal.jsonl").splitlines()[-1])
    ok(len(marks) == 1 and marks[0]["signature"] == done[0]["mark"]["signature"] and "no graph" not in apart.stderr,
       "a set that is kept apart is known by its graphs", [marks, apart.stderr])
    ok(last["i"] == at and last.get("decided") and not {"eager", "compile"} & set(last["cost"]) and
       "similar to a set that is kept apart" in json.loads(read("apart", "run.json"))["rejected"],
       "nothing is examined or compiled for what resembles its task",
       [last, apart.stderr])
# Interrupted while a worker runs a candidate: the message says how to go on, whichever call noticed.
p = subprocess.Popen(command("stopped"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
limit = time.monotonic() + 60
while time.monotonic() < limit and not any(
        open(f"/proc/{p.pid}/task/{t}/children").read() for t in os.listdir(f"/proc/{p.pid}/task")):
    time.sleep(0.05)
p.send_signal(signal.SIGINT)
err = p.communicate(timeout=120)[1]
ok(p.returncode == 3 and "the same command goes on" in err, "an interrupted run says how to go on", [p.returncode, err])
nothing = run("nothing", *timings("all.jsonl", {i: 9e9 for i in range(20)}), "--max-tried", "20")
ok("0 of 2 tasks" in nothing.stderr and "min left" not in nothing.stderr,
   "no time is promised before a task was accepted", nothing.stderr)
# Parquet: the same rows, or without pyarrow one line before anything runs.
os.mkdir(os.path.join(top, "parquet"))
with open(os.path.join(top, "parquet", "journal.jsonl"), "w") as f:
    f.write(begun)
parquet = run("parquet", *slow, "--parquet", count=COUNT + 1)
have = subprocess.run([python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('pyarrow') is None)"],
                      check=False).returncode == 0
if have:
    subprocess.run([WW, "synth", "convert", os.path.join(top, "parquet/tasks.parquet"),
                    os.path.join(top, "parquet/tasks.jsonl.zst")], check=False, capture_output=True, timeout=60)
    back, want = (subprocess.run(["zstd", "-dcq", os.path.join(top, n, "tasks.jsonl.zst")], capture_output=True,
                                 check=False).stdout.splitlines() for n in ("parquet", "whole"))
    ok(parquet.returncode == 1 and [json.loads(x) for x in back] == [json.loads(x) for x in want] and back,
       "--parquet writes the same rows", parquet.stderr)
else:
    ok(parquet.returncode == 3 and "pip install pyarrow" in parquet.stderr
       and not os.path.exists(os.path.join(top, "parquet", "rejected.jsonl")),
       "--parquet without pyarrow is one line before anything runs", [parquet.returncode, parquet.stderr])
none = run("../../../proc/nothing/here")
ok(none.returncode == 3 and len(none.stderr.splitlines()) == 1, "a directory that cannot be made is one line",
   none.stderr)
keyless = subprocess.run(command("keyless", "--policy", "openai:x"), capture_output=True, text=True, timeout=60,
                         env={k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"}, check=False)
ok(keyless.returncode == 2 and len(keyless.stderr.splitlines()) == 1 and
   not os.path.exists(os.path.join(top, "keyless")), "a policy that cannot be had leaves no directory", keyless.stderr)

# ---- In one process that has imported PyTorch: every operator, 100 candidates, and the second check of what came out

each, some = compose("--each", "--target", "cuda"), compose("--target", "cuda", "--set", "large", "-n", "100", "--seed",
                                                            "5")
ok(len(each) >= 250 and len(some) == 100, "every operator alone, and 100 candidates, are composed",
   (len(each), len(some)))
if ALL:
    p = subprocess.run([python, "-c", META, os.path.join(top, "first", "tasks.jsonl.zst")],
                       input="\n".join(each + some), capture_output=True, text=True, timeout=120, check=False)
    wrong, findings = json.loads(p.stdout or "[[null], [null]]")
    ok(not p.returncode, "they run on meta tensors", p.stderr)
    ok(findings == [], "a second check finds nothing in the accepted tasks", findings)
    ok(len(wrong) <= 6, "at least 98% of the shapes are as predicted", wrong[:5])

# ---- What a policy may write

GOOD = ("import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.fc = nn.Linear(256, 300)\n\n"
        "    def forward(self, x):\n        return torch.tanh(self.fc(x)).sum(dim=1)\n\n\ndef get_inputs():\n"
        "    return [torch.randn(512, 256)]\n\n\n"
        "def get_init_inputs():\n    return []\n")
SAID = ["Here is a fine idea in words.",
        "```python\nimport os\nwhile True:\n    os.fork()\n```",
        "```python\nimport time\nwhile True:\n    time.sleep(0.1)\n```",
        f"Now a good one.\n```python\n{GOOD}```"]
WANT = ["the policy wrote no code", None, "takes too long"]
episode = os.path.join(top, "said.jsonl")
with open(episode, "w") as f:
    f.write(json.dumps({"type": "header", "version": 1, "task": {"path": "x", "id": "x"}, "target": "cpu", "device": "",
                        "policy": "hand",
                        "seed": 1, "rule": "strict", "versions": {}, "started": "2026-11-21T12:34:56Z"}) + "\n")
    for i, text in enumerate(SAID):
        f.write(json.dumps({"type": "message", "turn": i + 1, "t": 0, "role": "assistant", "text": text, "calls": [],
                            "finish": "stop"}) + "\n")
with open(recipe, "a") as f:  # its times are measured, whatever the machine does beside
    f.write("min-us: 1\n")
with open(recipe) as f:
    text = f.read().replace("max-us: 4000", "max-us: 10000000")
with open(recipe, "w") as f:
    f.write(text)
said = run("said", "--policy", "replay:" + episode, "--max-tried", str(len(SAID)), count=1)
rejected = [json.loads(x) for x in read("said", "rejected.jsonl").splitlines()]
ok(said.returncode == 0 and len(rejected) == len(SAID) - 1, "of what a policy wrote the good module is kept",
   said.stdout + said.stderr)
ok(all(w is None or w == r["reason"] for w, r in zip(WANT, rejected)),
   "prose, forks and endless loops are rejected, each for its reason",
   [(r["reason"], r["detail"][:100]) for r in rejected])

if ALL:
    # Four other programs on the one processor that it may use.
    def on_one():
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])

    with open(episode) as f:
        header = f.readline()
    text = f"```python\n{GOOD.replace('300', '4096').replace('512', '1024')}```"
    with open(episode, "w") as f:
        f.write(header + json.dumps({"type": "message", "turn": 1, "t": 0, "role": "assistant", "text": text,
                                     "calls": [], "finish": "stop"}) + "\n")
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=on_one) for _ in range(4)]
    try:
        busy = subprocess.run(command("busy", "--policy", "replay:" + episode, "--max-tried", "1", count=1),
                              capture_output=True, text=True, timeout=170, preexec_fn=on_one, check=False)
    finally:
        for other in others:
            other.kill()
            other.wait()
    line = json.loads(read("busy", "journal.jsonl").splitlines()[-1])
    us = line["times"]["eager_us"]
    # three calls to warm up, and each that is timed behind one that is not
    ran = line["cost"]["measure"][1] * 1e6 / (3 + 2 * max(3, min(15, int(5e4 / us))))
    # Longer than a processor's time slices, so others ran within each call.
    ok(us > 10e3 and 0.6 * ran < us < 1.6 * ran, "what other programs take is no part of a time",
       [us, ran, line["cost"], busy.stderr])

shutil.rmtree(top, ignore_errors=True)
finish()
