#!/usr/bin/env python3
"""bench/train/nano, the script of the shipped policy, from a corpus to its card: the corpus of tasks that it composes,
for two devices, and taken by another run; then all stages on the cpu target with a model of 0.1 million parameters, in
calls that are too short, one of which is killed.

budget: 260 CPU-seconds"""
# label: slow
# timeout: 3000
# processors: 2
import glob
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, need_pytorch, ok, ROOT, WW  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "bench/train"))
import copies  # noqa: E402

need_pytorch()
top = tempfile.mkdtemp(prefix="ww-nano-")


def path(name):
    return os.path.join(top, name)


def warpwright(*argv):
    p = subprocess.run([WW, *argv], capture_output=True, text=True, timeout=300, check=False)
    return p.stdout + p.stderr


def nano(out, settings_file, *more, limit=None):
    argv = [sys.executable, os.path.join(ROOT, "bench/train/nano"), path(out), "--settings", settings_file, *more]
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         env={**os.environ, "WARPWRIGHT": WW, "WARPWRIGHT_THREADS": "2"})
    try:
        said, _ = p.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        p.kill()
        said, _ = p.communicate()
    return p.returncode, said


def rows_of(name):
    with open(path(name), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


# The corpus, prepared without the machine that it is for
facts = [copies.put(path(f"facts{n}.json"), json.dumps({"device": {"threads": n, "vector_bytes": 64}})) for n in (1, 2)]
corpus = {"recipe": "recipes/synth/small-cpu.yaml", "tasks": {"seed": 1, "n": 8}, "first": 4, "longest": 9000,
          "turns": 3, "held-out": {"seed": 2, "n": 4}, "lessons": {"seed": 3, "n": 4}, "solutions": 2,
          "forms": ".1:.2:.2:.4", "patience": 0}
made = {"target": "cpu", "device": "cpu", "facts": facts, "corpus": corpus, "lessons": {"longest": 9000, "tasks": 2},
        "measured": 2, "stages": {"corpus": {}}, "evaluations": []}
asked = copies.put(path("made.json"), json.dumps(made))
code, said = nano("made", asked, "--until", "corpus", "--seconds", "600")
taught = rows_of("made/corpus.jsonl") if code == 0 else []
told = {r["messages"][1]["content"].split("\n")[0] for r in taught}
ok(code == 0 and told == {"device threads 1 vector 64", "device threads 2 vector 64"},
   "a corpus is made for each device of the settings", [said, told])
lessons = {r["signature"] for r in rows_of("made/lessons.jsonl")}
held_out = {r.get("signature") for r in rows_of("made/held-out.jsonl")}
ok(len(lessons) == 2 and not {r["task_signature"] for r in taught} & (lessons | held_out),
   "in which no lesson and no held-out task is", [lessons, held_out])
empty = copies.put(path("empty.json"), json.dumps({**made, "corpus": {**corpus, "longest": 10}}))
code, said = nano("empty", empty, "--until", "corpus", "--seconds", "600")
ok(code == 1 and "corpus: no conversation about the tasks of" in said and '"too_long":4' in said,
   "where no conversation comes out it stops and says what became of the tasks", [code, said])
os.makedirs(path("prepared"))
for name in ("corpus", "held-out", "lessons"):
    with open(path(f"made/{name}.jsonl"), "rb") as f, lzma.open(path(f"prepared/{name}.jsonl.xz"), "wb") as packed:
        packed.write(f.read())
code, said = nano("taken", asked, "--prepared", path("prepared"), "--seconds", "600")
ok(code == 0 and rows_of("taken/corpus.jsonl") == taught, "another run takes it", said)
code, said = nano("none", asked, "--prepared", path("made/logs"), "--seconds", "600")
ok(code == 1 and "held-out.jsonl, .gz or .xz is needed, not 0" in said, "and says what is missing", said)
learnt = {"lr": "1e-3", "steps": 1}
whole = {**made, "config": copies.put(path("config.json"), json.dumps(copies.CONFIG)),
         "corpus": {**corpus, "vocabulary": 512, "patience": 500},
         "text": {"prompt": "compact", "sequence": 4096, "step-tokens": 4096, "checkpoint-every": 0},
         "stages": {"corpus": {}, "tokenizer": {}, "sft": {"seconds": 500, "keys": learnt},
                    "pretrain": {"seconds": 500, "meanwhile": True, "keys": {"stage": "sft", **learnt}}}}
asked = copies.put(path("whole.json"), json.dumps(whole))
code, said = nano("here", asked, "--seconds", "1500")
ok(code == 0 and {r["messages"][1]["content"].split("\n")[0] for r in rows_of("here/corpus-first.jsonl")} - told,
   "without one, its first part is made here, for this device", said)


def read_by(run, stage):
    with open(path(f"{run}/recipes/{stage}.yaml"), encoding="utf-8") as f:
        return os.path.basename(json.load(f)["data"][0])


ok(read_by("here", "pretrain") == "corpus-first.jsonl" and read_by("here", "sft") == "corpus.jsonl",
   "is learnt from while the rest is made, and then all of it", said)
code, said = nano("both", asked, "--prepared", path("prepared"), "--seconds", "1500")
ok(code == 0 and read_by("both", "sft") == "corpus.jsonl" and not os.path.exists(path("both/pretrain")),
   "where it is there, it is learnt from at once", said)

tasks = copies.tasks(path("tasks.jsonl"), "x.clone()", copies.SHAPES)
held = copies.tasks(path("held.jsonl"), "x.clone().relu()", copies.SHAPES[:2])
measured = {"seconds": 2000, "keys": {"episodes": 4}}
settings = {
    "target": "cpu", "device": "cpu", "grace": 40, "config": copies.rows(path("config.json"), [copies.CONFIG]),
    "given": {"lessons": tasks, "held-out": held, "corpus": copies.corpus(WW, top, tasks, 2, 3, 90)},
    "corpus": {"vocabulary": 512, "patience": 0}, "lessons": {"longest": 5000},
    "text": {"prompt": "compact", "sequence": 1024, "step-tokens": 4096, "seed": 1, "checkpoint-every": 5},
    "sampling": {"prompt": "compact", "turns": 2, "context-tokens": 2048, "reply-tokens": 300, "judge-seconds": 0.2,
                 "judge-threads": 1, "parallel": 2, "samples": 2, "seed": 1, "checkpoint-every": 1},
    "evaluation": ["--threads", "1", "--baselines", "eager", "--max-time-seconds", "0.1", "--max-seconds", "20",
                   "--parallel", "1"],
    "stages": {
        "corpus": {}, "tokenizer": {}, "probe": {}, "pretrain": {"seconds": 500, "keys": {"lr": "1e-2", "steps": 4}},
        "sft": {"seconds": 2000, "keys": {"lr": "1e-2", "steps": 110, "warmup": 5}}, "before": measured,
        "ppo": {"seconds": 2000, "keys": {"episodes": 4, "steps": 1}},
        "rft": {"seconds": 2000, "keys": {"episodes": 24, "samples": 12, "epochs": 1, "lr": "1e-4", "sequence": 1024,
                                         "step-tokens": 4096}},
        "value": {"seconds": 1000, "keys": {"episodes": 8, "epochs": 3, "critic-lr": "1e-3"}},
        "agentic": {"seconds": 2000, "keys": {"episodes": 4, "steps": 2, "lr": "1e-5", "critic-lr": "1e-5"}},
        "after": measured, "agentic-2": {"seconds": 2000}, "after-2": {"seconds": 2000}},
    "evaluations": [{"name": "planner", "policy": "planner", "loop": "single", "seconds": 2000},
                    {"name": "planner+nano", "policy": "planner+NANO", "loop": "agent", "turns": 2, "seconds": 2000}]}
asked = copies.put(path("settings.json"), json.dumps(settings))
NAMES = [*settings["stages"], "eval-planner", "eval-planner+nano"]


def call(seconds, limit=None):
    return nano("out", asked, "--seconds", str(seconds), "--deliver", path("got"), "--piece", "0.2", limit=limit)


def state():
    with open(path("out/session.json"), encoding="utf-8") as f:
        return {n: s["state"] for n, s in json.load(f)["stages"].items()}


code, said = nano("out", asked, "--until", "after-3")
ok(code == 2 and "--until after-3: no stage of these settings" in said, "a stage that is not there is refused", said)
code, said = call(60)
ok(code == 3 and "the same command goes on" in said and state()["corpus"] == "ended",
   "a short call ends between steps", said)
ok(os.path.exists(path("got/results.json")) and os.path.exists(path("got/logs.tar.gz")), "what is there is delivered")
logs = path("got/logs.tar.gz")
os.remove(logs)
code, more = call(1000, 25)
ok(code == -9 and os.path.getsize(logs), "a killed one, which has delivered its logs", more)
for _ in range(60):
    code, more = call(150)
    said += more
    if code != 3:
        break
became = state()
ok(code == 0 and [became.get(n) for n in NAMES if n not in ("value",)] == ["ended"] * (len(NAMES) - 1) and
   became["value"] in ("ended", "failed"), "and all stages end", [said, became])
with open(path("got/results.json"), encoding="utf-8") as f:
    r = json.load(f)
logs = r["logs"]
ok(logs["sft"]["steps"] == 110 and logs["sft"]["last"]["loss"] < 0.05 and logs["agentic"]["steps"] == 2 and
   r["measures"]["rise"]["tasks"] == r["measures"]["rise-2"]["tasks"] == 2,
   "results have steps, losses and the rise on held-out tasks, after each round", logs)
e = r["evaluations"]
ok(e["planner"]["correct"] == e["planner+nano"]["correct"] == 1 and e["planner+nano"]["paired"]["tasks"] == 2,
   "and policies side by side", e)
with open(path("got/card.md"), encoding="utf-8") as f:
    card = f.read()
ok(all(f"| `{n}` |" in card for n in settings["stages"]) and "| planner+nano | 2 | 1.000 |" in card, "so has the card",
   card)
with open(path("policy.tar"), "wb") as out:
    for piece in sorted(glob.glob(path("got/policy.tar.*")), key=lambda p: int(p.rsplit(".", 1)[1])):
        with open(piece, "rb") as f:
            out.write(f.read())
with tarfile.open(path("policy.tar")) as tar:
    tar.extractall(path("policy"), filter="data")
said = warpwright("model", "run", path("policy/nano"), "x", "--max-new", "4", "--json")
ok("{" in said and len(glob.glob(path("got/policy.tar.*"))) > 1, "the pieces of the weights make a policy", said)

# What it says about tasks that it has not seen, as mistakes of a corpus
alone = {n: corpus[n] for n in ("recipe", "longest", "turns", "solutions")}
asked = copies.put(path("own.json"), json.dumps({
    **made, "given": {"policy": path("policy/nano"), "lessons": tasks, "held-out": held}, "stages": {
        "corpus": {}, "mistakes": {"seconds": 900}},
    "corpus": {**alone, "mistakes": {"seed": 5, "n": 4}, "forms": "0:0:0:1"}}))
code, said = nano("own", asked, "--until", "mistakes", "--seconds", "1200")
there = {n: rows_of(f"own/{n}.jsonl") for n in ("mistakes-asked", "mistakes-said", "corpus")} if code == 0 else {}
ids = {n: {r["task_id"] for r in rows} for n, rows in there.items()}
ok(code == 0 and ids["mistakes-said"] <= ids["mistakes-asked"] <= ids["corpus"] and ids["mistakes-asked"] and
   all(r["messages"][2]["learn"] is False for r in there["corpus"]),
   "what it says about new tasks is asked for, and a corpus of mistakes made", [said, ids])
shutil.rmtree(top)
finish()
