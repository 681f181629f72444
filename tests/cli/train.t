#!/usr/bin/env python3
# budget: 8 CPU-seconds, all 12
# all: the losses are compared with PyTorch's
"""warpwright train: killed and resumed to the same bits, losses of PyTorch, memory as predicted, bad input refused in
one line."""
import fcntl
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ALL, finish, ok, skip, ROOT, WW  # noqa: E402

tmp = tempfile.mkdtemp(prefix="ww-train-")
os.chdir(tmp)
random.seed(4)
config = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=300, hidden_size=64,
              intermediate_size=128,
              num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              max_position_embeddings=256,
              tie_word_embeddings=True)
with open("config.json", "w") as f:
    json.dump(config, f)


def markov(n):
    x = [random.randrange(300)]
    while len(x) < n:
        x.append((x[-1] * 7 + random.choice([1, 2, 3, 5])) % 300)
    return x


def write_rows(path, lengths):
    with open(path, "w") as out:
        out.writelines(json.dumps({"ids": markov(n)}) + "\n" for n in lengths)


write_rows("mixed.jsonl", [random.randrange(2, 129) for _ in range(300)])
write_rows("rows.jsonl", [65] * 80)
BASE = dict(config="config.json", data="mixed.jsonl", sequence=128, steps=24, lr=2e-3, warmup=4, seed=3, device="cpu")
BASE.update({"step-tokens": 512, "micro": 2, "checkpoint-every": 3})


def recipe(name, **changes):
    values = {**BASE, "output": name, **{k.replace("_", "-"): v for k, v in changes.items()}}
    with open(name + ".yaml", "w") as out:
        out.writelines(f"{k}: {v}\n" for k, v in values.items() if v is not None)
    return name + ".yaml"


def train(name, *args, **kw):
    p = subprocess.run([WW, "train", name, *args], capture_output=True, text=True, timeout=120, **kw)
    return p.returncode, p.stdout, p.stderr


def log_of(run):
    with open(run + "/log.jsonl") as lines:
        return [json.loads(line) for line in lines]


def lines_of(run):
    """How many lines its log has; the last may be half written."""
    try:
        with open(run + "/log.jsonl") as lines:
            return lines.read().count("\n")
    except FileNotFoundError:
        return 0


def state_of(run):
    """Hashes of weights and optimizer state of the newest checkpoint."""
    out = []
    for name in ("model/model.safetensors", "model/optimizer/model.safetensors"):
        with open(os.path.join(run, name), "rb") as data:
            out.append(hashlib.sha256(data.read()).hexdigest())
    return out


def prompt_of(run):
    try:
        with open(run + "/model/warpwright.json") as f:
            return json.load(f)["prompt"]
    except FileNotFoundError:
        return None


# ---- a whole run
code, out, err = train(recipe("whole", prompt="compact"), "--json")
whole, result, log = state_of("whole") if code == 0 else None, json.loads(out or "{}"), log_of("whole")
ok(code == 0 and result["step"] == 24 == len(log) and result["checkpoint"] == "whole/checkpoints/step-00000024",
   "a run ends", err)
ok([r["step"] for r in log] == list(range(1, 25)) and log[-1]["loss"] < log[0]["loss"] - 0.3
   and all(r["skipped"] is None for r in log),
   "the log has a line a step, and the model learns", (log[0], log[-1]))
ok(sorted(os.listdir("whole/checkpoints")) == ["step-00000021", "step-00000024"], "the newest two checkpoints are kept",
   os.listdir("whole/checkpoints"))
predicted, measured = result["predicted_bytes"], result["device_bytes"]
ok(abs(predicted - measured) < 0.1 * measured, f"memory: {predicted} bytes predicted, {measured} measured")
short = dict(config=None, data="rows.jsonl", steps=1, warmup=0, sequence=64)
again = [train(recipe(name, model="whole/model", prompt=p, **short))[::2] 
         for name, p in (("kept", None), ("told", "full"))]
ok([a[0] for a in again] == [0, 0]
   and [prompt_of(r) for r in ("whole", "kept", "told")] == ["compact", "compact", "full"],
   "a checkpoint says which prompt it was trained with, and so does what is trained from it", again)
ok(train("whole.yaml")[0] == 0 and state_of("whole") == whole and len(log_of("whole")) == 24,
   "a complete run stays as it is")
score = subprocess.run([WW, "model", "info", "whole/model", "--json"], capture_output=True, text=True, check=False)
ok(score.returncode == 0, "model is the newest checkpoint, and a model", score.stderr)

# The whole run had all threads; the others have one, which changes no bit and does not spin.
os.environ["WARPWRIGHT_THREADS"] = "1"

# ---- killed at any moment; while the model, the first part of a checkpoint, was written, too
name, kills = recipe("killed"), 0
os.makedirs("killed/checkpoints/.new.tmp-AbCdEf")
with open("killed/checkpoints/.new.tmp-AbCdEf/config.json", "w") as f:
    f.write("{")
for attempt in range(40):
    p = subprocess.Popen([WW, "train", name], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        # Twice in the middle, however fast the machine is, then anywhere.
        while attempt < 2 and p.poll() is None and lines_of("killed") < 6 * attempt + 4:
            time.sleep(0.001)
        p.wait(timeout=0 if attempt < 2 else random.uniform(0.03, 0.4) if attempt < 30 else 60)
    except subprocess.TimeoutExpired:
        p.kill()
        kills += 1
        p.wait()
    if p.returncode == 0:
        break
same = [{k: v for k, v in r.items() if "second" not in k and k != "device_bytes"} for r in log]
again = [{k: v for k, v in r.items() if "second" not in k and k != "device_bytes"} for r in log_of("killed")]
ok(kills >= 2 and p.returncode == 0 and state_of("killed") == whole,
   f"killed {kills} times, with one thread: the same weights and moments to the last bit")
ok(again == same, "and the same log")
ok(sorted(os.listdir("killed")) == sorted(os.listdir("whole")) and
   sorted(os.listdir("killed/checkpoints")) == sorted(os.listdir("whole/checkpoints")), "nothing is left behind",
   (os.listdir("killed"), os.listdir("killed/checkpoints")))

# ---- Ctrl-C
p = subprocess.Popen([WW, "train", recipe("stopped", checkpoint_every=0)], stderr=subprocess.PIPE, text=True)
while not os.path.exists("stopped/log.jsonl") or not os.path.getsize("stopped/log.jsonl"):
    time.sleep(0.005)
p.send_signal(signal.SIGINT)
err = p.communicate()[1]
steps = os.listdir("stopped/checkpoints")
ok(p.returncode == 3 and "the same command goes on" in err and len(steps) == 1 and steps[0] < "step-00000024",
   "Ctrl-C leaves a checkpoint", err)
shutil.copytree("stopped", "full", symlinks=True)
shutil.copytree("stopped", "moved", symlinks=True)
ok(train("stopped.yaml")[0] == 0 and state_of("stopped") == whole, "from which the run goes on to the same bits")

# ---- while a judge measures on the device: the lock that its lease is (src/host/lease.h)
measuring = {**os.environ, "XDG_CACHE_HOME": tmp + "/cache"}
os.makedirs("cache/warpwright")
lease = open("cache/warpwright/lease-cpu.lock", "w")
fcntl.flock(lease, fcntl.LOCK_EX)
p = subprocess.Popen([WW, "train", recipe("beside", steps=6, checkpoint_every=0)], stderr=subprocess.PIPE, text=True,
                     env=measuring)
while not os.path.exists("beside/run.json") and p.poll() is None:
    time.sleep(0.005)
time.sleep(0.7)
ok(p.poll() is None and lines_of("beside") == 0, "training waits while a judge measures",
   (p.poll(), lines_of("beside")))
p.send_signal(signal.SIGINT)
err = p.communicate(timeout=20)[1]
ok(p.returncode == 3 and "waiting for the device" in err, "Ctrl-C ends the wait", err)
p = subprocess.Popen([WW, "train", "beside.yaml"], stderr=subprocess.PIPE, text=True, env=measuring)
fcntl.flock(lease, fcntl.LOCK_UN)
err = p.communicate(timeout=60)[1]
ok(p.returncode == 0 and lines_of("beside") == 6, "and goes on afterwards", err)
# A judge that comes while it trains: nothing is computed from the batch under way to the judge's end.
p = subprocess.Popen([WW, "train", recipe("between", steps=100, checkpoint_every=0)], stderr=subprocess.PIPE, text=True,
                     env=measuring)
while not (os.path.exists("between/log.jsonl") and lines_of("between") >= 2) and p.poll() is None:
    time.sleep(0.005)
with open("cache/warpwright/lease-cpu.gate", "w") as gate:
    fcntl.flock(gate, fcntl.LOCK_EX)
    fcntl.flock(lease, fcntl.LOCK_EX)
first = lines_of("between")
time.sleep(0.5)
ok(p.poll() is None and lines_of("between") <= first + 1 and first < 99, "it stops for one that comes between batches",
   (p.poll(), first, lines_of("between")))
fcntl.flock(lease, fcntl.LOCK_UN)
err = p.communicate(timeout=60)[1]
ok(p.returncode == 0 and lines_of("between") == 100, "and ends when that has ended", err)

# ---- on a machine with another arithmetic: other kernels, as on an older processor
elsewhere = {**os.environ, "WARPWRIGHT_CPU_KERNELS": "base"}
name = recipe("moved", checkpoint_every=0)
before = state_of("moved")
code, _, err = train(name, env=elsewhere)
ok(code == 2 and 'begun with kernels "' in err and 'here it is "base"' in err and "other-arithmetic" in err
   and state_of("moved") == before,
   "resuming with other kernels is refused, and the message names them", err)
code, _, err = train(name, "--other-arithmetic", env=elsewhere)
with open("moved/run.json") as f:
    run = json.load(f)
ok(code == 0 and run["arithmetic"]["kernels"] == "base" and [a["kernels"] for a in run["earlier_arithmetic"]] != [
    "base"] and len(log_of("moved")) == 24,
   "with --other-arithmetic the run goes on, and run.json tells it", (err, run))

name = recipe("onto_ref", steps=2, warmup=0, sequence=64, step_tokens=64)
train(name)
code, _, err = train(name, "--device", "ref", "--steps", "2")
again, _, more = train(name, "--device", "ref", "--other-arithmetic")
ok(code == 2 and 'begun with device "' in err and 'here it is "ref"' in err and "other-arithmetic" in err
   and again == 0,
   "so it is with another device that the recipe or the command line names", (err, more))

# ---- what changes no bit, and what may change the last ones
code, _, err = train(recipe("other", keep_layers=1))
ok(code == 0 and state_of("other") == whole, "layers computed again: the same bits", err)
train(recipe("micro", micro=1))
near = max(abs(a["loss"] - b["loss"]) for a, b in zip(log, log_of("micro")))
ok(near < 1e-3, f"other micro-batches: the same losses within {near:.1e}")
code, _, err = train(recipe("half", dtype="bf16", steps=8, checkpoint_every=4))
p, q = log_of("half")[-1]["loss"], log_of("whole")[7]["loss"]
ok(code == 0 and 0 < abs(p - q) < 0.05, "bf16 learns likewise", (err, p, q))
shutil.rmtree("half/checkpoints/step-00000008")
kept = state_of("half") if os.path.exists("half/model/model.safetensors") else None
ok(train("half.yaml")[0] == 0 and log_of("half")[-1]["loss"] == p, "and resumes from its masters to the same loss",
   kept)

# ---- the guard
with open("spiky.jsonl", "w") as f:
    for i in range(96):
        f.write(json.dumps({"ids": [7, 8, 9, 10] * 16 if i != 80 else [random.randrange(300) for _ in range(64)]})
                + "\n")
spiky = dict(data="spiky.jsonl", order="file", step_tokens=1, sequence=64, micro=1, steps=96, checkpoint_every=0,
             warmup=0)
code, _, err = train(recipe("spiky", **spiky))
skipped = [(r["step"], r["skipped"], r["norm"]) for r in log_of("spiky") if r["skipped"]]
ok(code == 0 and skipped == [(81, "spike", "nan")], "a spike is skipped, and the run goes on", (skipped, err))
code, _, err = train(recipe("wild", lr=10, clip=0, warmup=0, spike=0, max_skips=3, beta2=0, eps=1e-30, steps=2000,
                            checkpoint_every=0, weight_decay=10))
last = log_of("wild")[-3:]
ok(code == 3 and "3 steps in a row" in err and all(r["skipped"] == "nan" for r in last),
   "a run that fell apart ends and says so", err[-300:])

def small_files():
    """As a full disk: a write beyond 300 kB fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300000, 300000))


# ---- a pipeline: stages one after the other, in one directory
PIPE = """stage: pipeline
output: %s
data: mixed.jsonl
sequence: 128
step-tokens: 512
micro: 2
device: cpu
seed: 3
steps: 6
pretrain: {config: config.json, lr: 2e-3}
sft: {lr: 1e-3%s}
"""


def pipeline(name, more=""):
    with open(name + ".yaml", "w") as out:
        out.write(PIPE % (name, more))
    return name + ".yaml"


code, out, err = train(pipeline("pipe"))
ok(code == 0 and len(log_of("pipe/pretrain")) == 6 == len(log_of("pipe/sft")), "a pipeline runs its stages", err)
with open("pipe/sft/run.json") as f:
    ok(json.load(f)["recipe"]["model"] == "pipe/pretrain/model", "each goes on from the model of the one before")
code, out, err = train("pipe.yaml")
ok(code == 0 and "stage sft is complete" in err, "stages that have ended are not opened again", err)
code, out, err = train("pipe.yaml", "--stage", "sft", "--output", "alone", "--model", "pipe/pretrain/model")
ok(code == 0 and state_of("alone") == state_of("pipe/sft"), "a section alone does what it does in the pipeline", err)
p = subprocess.Popen([WW, "train", pipeline("piped")], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
while p.poll() is None and lines_of("piped/sft") < 2:
    time.sleep(0.005)
p.kill()
p.wait()
code, out, err = train("piped.yaml")
ok(code == 0 and state_of("piped/sft") == state_of("pipe/sft"), "killed and resumed, it ends with the same bits", err)

# ---- the recipes that are there: every key of theirs is read
for name in sorted(os.listdir(os.path.join(ROOT, "recipes"))):
    if not name.endswith(".yaml"):
        continue
    code, out, err = train(os.path.join(ROOT, "recipes", name), "--output", "recipe/" + name, "--tokenizer", "none",
                           "--device", "cpu")
    ok(code in (2, 3)
   and not re.search("no effect|no stage|has no option|must be|needs a", err), f"recipes/{name}", err)

# The one that learns this repository's text can read all that it names, and its page names the same.
with open(os.path.join(ROOT, "recipes/warpwright-12m.yaml"), encoding="utf-8") as f:
    own = re.search(r"^data: \[(.*)\]$", f.read(), re.M).group(1).replace(" ", "")
p = subprocess.run([WW, "model", "tokenizer", os.path.join(tmp, "own"), "--data", own, "--vocabulary", "300"], cwd=ROOT,
                   capture_output=True, text=True, timeout=120, check=False)
with open(os.path.join(ROOT, "docs/train.md"), encoding="utf-8") as f:
    ok(p.returncode == 0 and f"--data {own}\n" in f.read(), "a tokenizer is made of this repository's text", p.stderr)

# ---- a stage that takes over 2 s is named
if ALL and os.path.exists(os.path.join(ROOT, ".venv/bin/python")):
    with open("slow.jsonl", "w") as f:
        f.write(json.dumps({"id": "slow", "code": "import time\ntime.sleep(3)\n"}) + "\n")
    code, out, err = train(recipe("held_out", steps=2, warmup=0, held_out="slow.jsonl"))
    ok(code == 0 and re.search(r"^ *\d+\.\d s  reading the held-out sets$", err, re.M),
       "a stage of over 2 s is named where standard error is no terminal", err)
    ok(re.search(r"^step 1/2 .* left 0:00$", err, re.M), "and is not counted into the time that is left", err)
    with open("slow.jsonl", "w") as f:
        f.write(json.dumps({"id": "slow", "code": "import time\ntime.sleep(3)\nx = 1\n"}) + "\n")
    p = subprocess.run([WW, "episode", "export", ".", "--held-out", "slow.jsonl", "-o", "none.jsonl"],
                       capture_output=True, text=True, check=False)
    ok(re.search(r"^ *\d+\.\d s  reading the held-out sets$", p.stderr, re.M), "so it is by episode export", p.stderr)

# ---- config: from the working directory, or else beside the recipe
os.makedirs("elsewhere/recipes")
shutil.copy("config.json", "elsewhere/recipes/own.json")
os.rename(recipe("lower", config="own.json", steps=1, warmup=0), "elsewhere/recipes/lower.yaml")
with open("elsewhere/recipes/upper.yaml", "w") as f:
    f.write("base: lower.yaml\noutput: upper\n")
got = [train(f"elsewhere/recipes/{name}.yaml") for name in ("lower", "upper")]
with open("upper/run.json") as f:
    values = json.load(f)["recipe"]
ok([g[0] for g in got] == [0, 0] and values["config"] == "elsewhere/recipes/own.json",
   "a config beside the recipe, and beside its base", (got, values["config"]))

# ---- a recipe over another
with open("over.yaml", "w") as f:
    f.write("base: whole.yaml\noutput: over\nsteps: 2\nwarmup:\n")
code, out, err = train("over.yaml")
with open("over/run.json") as f:
    values = json.load(f)["recipe"]
ok(code == 0 and (values["steps"], values["warmup"], values["lr"], values["sequence"]) == (2, 0, 2e-3, 128),
   "base: its keys hold but for those that are written over it or taken back", (err, values))

# ---- refused in one line, and nothing changes

def refused(what, says, name, *args, **kw):
    before = sorted(os.listdir("."))
    code, out, err = train(name, *args, **kw)
    lines = [line for line in err.splitlines() if line.startswith("warpwright: ")]
    ok(code in (2, 3) and len(lines) == 1 and says in lines[0] and out == "" and sorted(os.listdir(".")) == before,
       what, f"{code} {err}")


def text_recipe(name, text):
    with open(name, "w") as f:
        f.write(text)
    return name


refused("a misspelt key is refused with the nearest", '"warmup"', recipe("bad1", warmpu=3))
refused("a key that the stage does not read is refused with those that do", "only in ppo, value",
        recipe("bad12", gamma=0.9))
refused("on the command line, too", "only in pretrain, sft", recipe("bad13", config=None, stage="ppo"), "--spike=3")
refused("a section's key that its stage does not read is refused", "only in ppo, value",
        pipeline("pipe1", ", gamma: 1"))
refused("so is one above the sections that no section reads", "no stage of this pipeline", "pipe.yaml", "--gamma", "1")
refused("a section alone needs a directory of its own", "needs --output DIR", "pipe.yaml", "--stage", "sft")
refused("and must be there", "pipe.yaml has no section rft", "pipe.yaml", "--stage", "rft", "--output", "none")
refused("and is told of a key that it does not read", "only in ppo, value, agentic", "pipe.yaml", "--stage", "sft",
        "--output", "none", "--gamma", "1")
refused("so is a wrong value", "cosine", recipe("bad2", schedule="cosin"))
refused("so is text that is no YAML", "bad3.yaml:2: not YAML", text_recipe("bad3.yaml", "lr: [1\n"))
code, out, err = train(text_recipe("bad16.yaml", ""))
ok((code, out, err) == (2, "", "warpwright: bad16.yaml is empty\n"), "so is an empty recipe, in one line", err)
refused("so is a key that occurs twice", "duplicate key", text_recipe("bad4.yaml", "lr: 1\nlr: 2\n"))
refused("so is a list as a recipe", "mapping", text_recipe("bad5.yaml", "- lr\n"))
refused("so is a nested value", "data", text_recipe("bad6.yaml", "data: {a: b}\n"))
refused("so is a base that is not there", "none.yaml", text_recipe("bad14.yaml", "base: none.yaml\n"))
refused("so is a base of itself", "at most 8", text_recipe("bad15.yaml", "base: bad15.yaml\n"))
refused("a config that is nowhere is refused, and the places are named", "then beside the recipe",
        recipe("bad16", config="none.json"))
refused("all that a stage lacks is said at once", "stage rft lacks model; output; tasks",
        recipe("bad17", **{**dict.fromkeys(BASE), "stage": "rft", "output": None}))
refused("tasks and data together are refused", "both tasks and data",
        recipe("bad18", **{**dict.fromkeys(BASE), "stage": "rft", "model": "m", "tasks": "t.py", "data": "e"}))
refused("a model that is not there is refused by its key", "model: cannot open nowhere/config.json",
        recipe("bad19", config=None, model="nowhere"))
refused("a tokenizer that is not there is refused with the command that makes one",
        "there is no none/tokenizer.json; `warpwright model tokenizer none --data PATHS`",
        recipe("bad17", tokenizer="none"))
refused("no data is refused", "data", recipe("bad7", data=None))
refused("model and config together are refused", "either", recipe("bad8", model="whole/model"))
refused("sequences beyond the context are refused", "256 positions", recipe("bad9", sequence=300))
refused("a warm-up longer than the run is refused", "warmup", recipe("bad10", warmup=100))
refused("what cannot fit is refused, and says by how much", "too much for the budget", recipe("bad11", memory=0.001))
refused("a changed recipe is refused", "lr 0.002, not 0.003", "whole.yaml", "--lr", "3e-3")
write_rows("mixed.jsonl.new", [64] * 10)
os.rename("mixed.jsonl", "old.jsonl")
os.rename("mixed.jsonl.new", "mixed.jsonl")
refused("changed data is refused", "the data has changed since", "whole.yaml")
os.rename("old.jsonl", "mixed.jsonl")
before = state_of("full")
code, out, err = train(recipe("full", checkpoint_every=0), preexec_fn=small_files)
ok(code == 3 and "cannot write" in err and state_of("full") == before and len(os.listdir("full/checkpoints")) == 1,
   "a full disk is an error, and the last checkpoint is as it was", err)
ok(train("full.yaml")[0] == 0 and state_of("full") == whole, "with room again the run goes on, to the same bits")
holder = subprocess.Popen([WW, "train", recipe("held", steps=100000, checkpoint_every=0)], stderr=subprocess.DEVNULL)
while not os.path.exists("held/log.jsonl"):
    time.sleep(0.005)
refused("two processes cannot train in one place", "another process", "held.yaml")
holder.kill()
holder.wait()

# ---- report
code = subprocess.run([WW, "report", "whole", "-o", "r.html"], capture_output=True, check=False).returncode
with open("r.html") as f:
    page = f.read()
ok(code == 0 and page.count("<svg") == 4 and "http" not in page.replace("http-equiv", "") and "<script" not in page,
   "report draws four plots and needs nothing else")
p = subprocess.run([WW, "report", "whole", "full", "-o", "two.html"], capture_output=True, text=True, check=False)
with open("two.html") as f:
    page = f.read()
outcomes = page[page.find("What came out"):page.find("Where their recipes differ")]
ok(p.returncode == 0 and page.count("role=\"img\"") == 4 and page.count("class=\"legend\"") == 4
   and outcomes.count("<td>") == 4 and "loss" in outcomes and "reward" not in outcomes,
   "two runs share a page, its plots, and tables of what came out and where they differ", (p.stderr, outcomes))
p = subprocess.run([WW, "report", "whole", "."], capture_output=True, text=True, check=False)
ok(p.returncode == 2 and "run.json" in p.stderr, "what is no run beside one is refused", p.stderr)
os.makedirs("sampled/episodes/step-00000001/0001")
p = subprocess.run([WW, "report", "sampled"], capture_output=True, text=True, check=False)
ok(p.returncode == 2 and "episode stats sampled" in p.stderr and p.stderr.count("\n") == 1,
   "a run that has only sampled episodes says what can be asked of it", p.stderr)
p = subprocess.run([WW, "report", "."], capture_output=True, text=True, check=False)
ok(p.returncode == 2 and "run.json" in p.stderr, "what is no run is refused", p.stderr)

# ---- PyTorch's losses on the same weights, rows and steps
python = os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")
look = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
if not ALL:
    pass
elif subprocess.run([python, "-c", look], stderr=subprocess.DEVNULL, check=False).returncode:
    skip("PyTorch's losses", "no Python with PyTorch (make setup)")
else:
    p = subprocess.run([python, ROOT + "/bench/train/compare.py", "--config", "config.json", "--data", "rows.jsonl",
                        "--sequence", "64",
                        "--rows", "4", "--micro", "2", "--steps", "20", "--lr", "3e-3", "--warmup", "3", "--json"],
                       capture_output=True, text=True, timeout=200, check=False,
                       env={**os.environ, "OMP_NUM_THREADS": "1"})  # its threads would spin for a model of this size
    r = json.loads(p.stdout or "{}")
    ok(p.returncode == 0 and r["loss_differs_by"] < 1e-3 and r["loss_last"][0] < r["loss_first"][0] - 0.2,
       f"20 steps: PyTorch's losses within 1e-3 ({r.get('loss_differs_by')})", p.stderr + p.stdout)
finish()
os.chdir("/")
shutil.rmtree(tmp)
