#!/usr/bin/env python3
"""warpwright train, stage agentic, from outside: what cannot be is refused in one line before it begins; a collapse
stops it; what was cut or had no room goes on to the same bits.  A model that has learnt nothing says no solution, so
tasks are opened and nothing is judged (rl/test_agentic and rl/test_bad_input have a judge).

budget: 8 CPU-seconds"""
import hashlib
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, need_pytorch, ok, ROOT, WW  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "bench/train"))
import copies  # noqa: E402

need_pytorch()
tmp = tempfile.mkdtemp(prefix="ww-train-rl-")
os.chdir(tmp)
os.environ["WARPWRIGHT_THREADS"] = "1"
copies.put("task.py", copies.MODULE.format("x.clone()", "4, 4"))
copies.put("config.json", json.dumps({**copies.CONFIG, "vocab_size": 300}))
copies.rows("texts.jsonl", [{"text": copies.PLAN + str(i)} for i in range(40)])
SIGNATURE = "s1:a0000000000000000000000000000000"
copies.rows("tasks.jsonl", [{"code": copies.MODULE.format("x.clone()", "4, 8"), "signature": SIGNATURE}])
copies.rows("held.jsonl", [{"code": copies.MODULE.format("x.clone() + 1", "4, 8"), "signature": SIGNATURE}])
for argv in (["tokenizer", "tok", "--data", "texts.jsonl", "--vocabulary", "300"],
             ["init", "config.json", "m", "--tokenizer", "tok"]):
    subprocess.run([WW, "model", *argv], check=True, capture_output=True)
copies.put("recipe.yaml", json.dumps({
    "stage": "agentic", "model": "m", "tasks": "task.py", "device": "cpu", "target": "cpu", "prompt": "compact",
    "steps": "4", "episodes": "2", "samples": "2", "parallel": "1", "turns": "2", "context-tokens": "2048",
    "reply-tokens": "24", "judge-threads": "1", "judge-seconds": "0.2", "checkpoint-every": "1", "lr": "1e-3",
    "critic-lr": "1e-3", "stop-entropy": "20", "keep-checkpoints": "9"}))


def train(output, *more, env=None, **kw):
    p = subprocess.run([WW, "train", "recipe.yaml", "--output", output, *more], capture_output=True, text=True,
                       timeout=300, env={**os.environ, **(env or {})}, check=False, **kw)
    lines = [line.removeprefix("warpwright: ") for line in p.stderr.splitlines() if line.startswith("warpwright: ")]
    return p.returncode, lines, p.stderr


def refused(what, says, code, output, *more, **kw):
    got, lines, err = train(output, *more, **kw)
    ok(got == code and lines and says in lines[-1] and not os.path.exists(output + "/checkpoints"), what, err)


def state_of(run, step):
    out = []
    for name in ("model.safetensors", "optimizer/model.safetensors", "critic/model.safetensors",
                 "critic/optimizer/model.safetensors"):
        with open(f"{run}/checkpoints/step-{step:08d}/{name}", "rb") as f:
            out.append(hashlib.sha256(f.read()).hexdigest())
    return out


refused("a run that cannot fit is refused, and says by how much", "GB too much for the budget", 2, "fit", "--memory",
        "0.001")
ok(not os.path.exists("fit"), "before anything is there")
refused("tasks with the signature of a held-out one are refused", "1 of the tasks to train on are held out", 2, "held",
        "--tasks", "tasks.jsonl", "--held-out", "held.jsonl")
refused("a judge that does not start ends the run", "step 1: task.py: the reference worker could not be started", 3,
        "none", env={"WW_PYTHON": "/bin/false"})
refused("a context that holds no prompt ends it", "step 1: no prompt of its tasks fits into context-tokens (1024)", 2,
        "narrow", "--context-tokens", "1024")
refused("an episode count that samples do not divide is refused", "must be a multiple of samples", 2, "odd",
        "--episodes", "3")
refused("a critic as the policy is refused", "is a critic", 2, "critic", "--model", "c") \
    if not subprocess.run([WW, "model", "convert", "m", "c", "--critic"], capture_output=True, check=False).returncode \
    else ok(False, "a critic is made")

shutil.copytree("m", "broken")
with open("m/model.safetensors", "rb") as f:
    weights = f.read()
with open("broken/model.safetensors", "wb") as f:
    f.write(weights.replace(struct.pack("<f", 1), struct.pack("<f", 3e38)))  # of the norms
refused("logits that are not finite end the run", "step 1: task.py: ", 3, "wild", "--model", "broken")
ok("the model's logits are not finite" in train("wild", "--model", "broken")[1][-1], "and are named")

os.makedirs("bare")
for name in ("config.json", "tokenizer.json"):
    shutil.copy("m/" + name, "bare")
for lr in ("1e-3", "2e-3"):
    code, lines, err = train("early", "--model", "bare", "--lr", lr)
ok(code == 2 and len(lines) == 1 and lines[0].startswith("bare holds neither model.safetensors"),
   "what ended before it sampled anything may begin with another recipe", err)

code, lines, err = train("run")
ok(code == 3 and lines == ["stopped after step 3: the entropy of the last 3 steps lay below 20; a lower lr may help, "
                           "from an earlier checkpoint"], "a policy that has collapsed ends the run", err)
ok(sorted(os.listdir("run/checkpoints")) == [f"step-0000000{i}" for i in (1, 2, 3)], "behind a checkpoint")
whole = state_of("run", 3)
code, lines, err = train("run", env={"WARPWRIGHT_CPU_KERNELS": "base"})
ok(code == 2 and len(lines) == 1 and 'here it is "base"' in lines[0] and "--other-arithmetic" in lines[0],
   "it is not gone on with by another arithmetic", err)

# Back to step 1, one episode of step 2 cut in the middle of a line, and no room for a checkpoint.
for step in (2, 3):
    shutil.rmtree(f"run/checkpoints/step-0000000{step}")
cut = "run/episodes/step-00000002/0001/episodes/2/episode.jsonl"
os.truncate(cut, os.path.getsize(cut) - 40)


def small_files():
    """As a full disk: a write beyond 40 kB fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))


kept = state_of("run", 1)
code, lines, err = train("run", preexec_fn=small_files)
ok(code == 3 and len(lines) == 1 and "cannot write" in lines[0] and state_of("run", 1) == kept,
   "a full disk is an error, and the last checkpoint is as it was", err)
code, lines, err = train("run")
ok(code == 3 and "stopped after step 3" in lines[-1] and state_of("run", 3) == whole,
   "with room, and an episode that was cut short, the run goes on to the same bits", err)
os.chdir("/")
shutil.rmtree(tmp)
finish()
