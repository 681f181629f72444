#!/usr/bin/env python3
"""bench/train/pieces from machine to machine: what a call keeps is all that the next one has, in the middle of stage
agentic, too; arms, the evaluation and the replay begin with a policy that was carried (cpu target, the tasks of
bench/train/copies.py).

budget: 300 CPU-seconds"""
# label: slow
# timeout: 3000
# processors: 2
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, need_pytorch, ok, ROOT, WW  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "bench/train"))
import copies  # noqa: E402

need_pytorch()
top = tempfile.mkdtemp(prefix="ww-pieces-")


def path(name):
    return os.path.join(top, name)


tasks = copies.tasks(path("tasks.jsonl"), "x.clone()", copies.SHAPES)
held = copies.tasks(path("held.jsonl"), "x.clone().relu()", copies.SHAPES[:2])
measured = {"seconds": 2000, "keys": {"episodes": 4}}
sampling = {"prompt": "compact", "turns": 2, "context-tokens": 2048, "reply-tokens": 300, "judge-seconds": 0.2,
            "judge-threads": 1, "parallel": 2, "samples": 2, "seed": 1, "checkpoint-every": 1}
learnt = {"seconds": 2000, "keys": {"episodes": 4, "steps": 5, "lr": "1e-4", "advantage": "rloo",
                                    "curriculum": "success"}}
two = {"target": "cpu", "device": "cpu", "grace": 60, "config": copies.rows(path("config.json"), [copies.CONFIG]),
       "given": {"lessons": tasks, "held-out": held, "corpus": copies.corpus(WW, top, tasks, 2, 3, 90)},
       "corpus": {"vocabulary": 512, "patience": 0}, "lessons": {"longest": 5000},
       "text": {"prompt": "compact", "sequence": 1024, "step-tokens": 4096, "seed": 1, "checkpoint-every": 5},
       "sampling": sampling, "evaluations": [], "stages": {
           "corpus": {}, "tokenizer": {}, "before": measured, "agentic": learnt, "after": measured,
           "sft": {"seconds": 2000, "keys": {"lr": "1e-2", "steps": 110, "warmup": 5, "dtype": "bf16"}}}}
alone = {"sft": None, "before": None, "after": None}
os.makedirs(path("settings/arms"))
for name, changes in {
        "nano-h200-x2": two,
        "arms/no-value": {"stages": {**alone, "agentic": {"keys": {"steps": 1, "advantage": None}}}},
        "arms/replay": {"stages": {**alone, "agentic": {"keys": {"steps": 3, "episodes": 8}}}},
        "arms/evaluate": {"stages": {**alone, "agentic": None}, "evaluation": [
            "--threads", "1", "--baselines", "eager", "--max-time-seconds", "0.1", "--max-seconds", "20",
            "--parallel", "1"], "evaluations": [{"name": "nano", "policy": "model:NANO", "loop": "agent", "turns": 2,
                                                 "seconds": 2000}]}}.items():
    base = {} if changes is two else {"base": "../nano-h200-x2.json"}
    copies.put(path(f"settings/{name}.json"), json.dumps({**base, **changes}))
env = {**os.environ, "WARPWRIGHT": WW, "WARPWRIGHT_THREADS": "2", "SETTINGS": path("settings"), "WORK": path("work"),
       "CALL": "2000", "WW_PYTHON": os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")}


def start(*args, **more):
    return subprocess.Popen([os.path.join(ROOT, "bench/train/pieces"), *args], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env={**env, **more}, start_new_session=True)


def piece(*args, **more):
    p = start(*args, **more)
    said = p.communicate()[0]
    return p.returncode, said


def another_machine():
    """Nothing of the runs but what was kept."""
    shutil.rmtree(path("work"))


def lines(name):
    try:
        with open(path(name)) as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except OSError:
        return []


def cut_when(seen, *args):
    """A piece that Ctrl-C ends as soon as seen()."""
    p = start(*args)
    while p.poll() is None and not seen():
        time.sleep(0.1)
    os.killpg(p.pid, signal.SIGINT)
    said = p.communicate()[0]
    return p.returncode, said


LOG = "work/learn/agentic/log.jsonl"
code, said = cut_when(lambda: os.path.exists(path("work/learn/agentic/run.json")), "learn-x2", path("one"))
ok(code and os.path.exists(path("one/carry.json")) and not os.path.exists(path("one/policy.tar.0"))
   and "before: ended" in said, "the first machine: a policy, cut before its first step; weights are carried", said)
another_machine()
code, said = cut_when(lambda: len(lines(LOG)) >= 2, "learn-x2", path("two"), path("one"))
first = lines(LOG)
ok(code and 2 <= len(first) < 5 and "before: " not in said and "sft: " not in said,
   "the second one goes on behind stage before, and is cut in the middle of stage agentic", (said, len(first)))
another_machine()
code, said = piece("learn-x2", path("three"), path("two"))
log = lines(LOG)
run = json.load(open(path("work/learn/agentic/run.json"))) if log else {}
ok(code == 0 and [r["step"] for r in log] == [1, 2, 3, 4, 5] and log[:len(first)] == first
   and run["carried"] == [len(first)], "the third one goes on with the same run", (said, run.get("carried")))
with open(path("three/results.json")) as f:
    results = json.load(f)
ok(results["measures"]["rise"]["tasks"] == 2 and not os.path.exists(path("work/learn/before/episodes")),
   "and measures its rise over what the first one measured, of which the rewards were kept", results)
ok(all(len(os.listdir(path(d))) <= 8 for d in ("one", "two", "three")), "no call keeps more than eight files",
   [os.listdir(path(d)) for d in ("one", "two", "three")])
another_machine()
code, said = piece("arm", path("arm"), "no-value", "2", path("three"))
log = lines("work/no-value-2/agentic/log.jsonl")
ok(code == 0 and len(log) == 1 and log[0]["explained"] in (0, "nan"), "an arm begins with the policy that was carried",
   (said, log))
code, said = piece("evaluate", path("evaluated"), path("three"))
ok(code == 0 and "| nano | 2 |" in open(path("evaluated/card.md")).read(), "so does the evaluation", said)
code, said = piece("replay", path("replayed"), path("three"))
log = lines("work/replay/again/log.jsonl")
ok(code == 0 and len(log) == 3 and max(r["norm"] for r in log) > 0,
   "a run from recorded answers, which has learnt something, has the same hash", (said, log))
code, said = piece("replay", path("replayed"), path("three"), CALL="1")
ok(code == 3, "a call that is too short for the second run says that it was cut", (code, said))
code, said = piece("long", path("long"), os.path.join(ROOT, "recipes/small-4m.json"), "2", "256", "3", "20", "cpu",
                   LONG_STEP=os.path.join(os.path.dirname(WW), "tests/bench-long-step"))
step = lines("long/long.json")
ok(code == 0 and step[0]["own_tokens"] == 120 and step[0]["ratio_min"] == step[0]["ratio_max"] == 1,
   "one long step: its ratios are 1", said)
ok(code == 0 and abs(step[0]["taken_bytes"] / step[0]["predicted_bytes"] - 1) < 0.1, "its memory as predicted",
   step)
shutil.rmtree(top)
finish()
