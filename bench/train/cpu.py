#!/usr/bin/env python3
"""Time training steps of a model of five million parameters on the cpu, by Warpwright and by PyTorch: wall seconds
and processor seconds a step.

usage: .venv/bin/python bench/train/cpu.py [--threads N] [--rounds R] [--rows R] [--compile] [--data IDS.jsonl]

Both sides train the same weights on the same rows with the same number of threads, in turns: ours, PyTorch's, ours, ...
A turn is twelve steps of which the first two do not count; what is printed is the median over all turns.  Processor
seconds are those of the whole process, so they can be compared on a machine that does other things too.  Without --data
the rows are drawn, few tokens often and most of them seldom as in a text; with it they are rows of 513 ids
(bench/train/corpus.py DIR 512 OUT).  --compile: PyTorch's side by torch.compile, too.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WW = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")
STEPS, SKIP = 12, 2


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ours(a, tmp, turn):
    run = os.path.join(tmp, f"run{turn}")
    recipe = dict(model=os.path.join(tmp, "init"), data=a.data, order="file", output=run, sequence=512, steps=STEPS,
                  device="cpu", lr=1e-3)
    recipe.update({"step-tokens": 512 * a.rows, "micro": a.rows, "checkpoint-every": 0})
    with open(os.path.join(tmp, "r.yaml"), "w", encoding="utf-8") as f:
        f.writelines(f"{k}: {v}\n" for k, v in recipe.items())
    p = subprocess.Popen([WW, "train", os.path.join(tmp, "r.yaml")], stderr=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, env={**os.environ, "WARPWRIGHT_THREADS": str(a.threads)})
    log, cpu = [], {}
    while p.poll() is None and len(log) < STEPS:
        try:
            used = cpu_seconds(p.pid)
            with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as f:
                log = f.read().splitlines()
            cpu.setdefault(len(log), used)
        except (OSError, IndexError):
            pass
        try:
            p.wait(0.002)
        except subprocess.TimeoutExpired:
            pass
    p.wait()
    with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as f:
        log = [json.loads(x) for x in f]
    return [r["seconds"] for r in log[SKIP:]], (cpu[STEPS] - cpu[SKIP]) / (STEPS - SKIP), log[-1]["loss"]


def theirs(a, tmp):
    import time

    import torch

    import torch_model
    torch.set_num_threads(a.threads)
    with open(os.path.join(tmp, "init/config.json"), encoding="utf-8") as f:
        model = torch_model.Model(json.load(f)).load(os.path.join(tmp, "init"))
    optim = torch_model.optimizer(model, {"lr": 1e-3, "weight-decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8},
                                  False)
    with open(a.data, encoding="utf-8") as f:
        rows = torch.tensor([json.loads(x)["ids"] for x, _ in zip(f, range(STEPS * a.rows))]).view(STEPS, a.rows, -1)
    step_fn, seconds = torch.compile(model) if a.compile else model, []
    for step in range(STEPS):
        if step == SKIP:
            cpu = time.process_time()
        start = time.perf_counter()
        loss = step_fn(rows[step][:, :-1], rows[step][:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad()
        seconds.append(time.perf_counter() - start)
    return seconds[SKIP:], (time.process_time() - cpu) / (STEPS - SKIP), float(loss.detach())


def draw_rows(path, count):
    rng = random.Random(1)
    with open(path, "w", encoding="utf-8") as f:
        for _ in range(count):
            f.write(json.dumps({"ids": [min(4095, int(rng.paretovariate(0.5)) - 1) for _ in range(513)]}) + "\n")
    return path


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("threads", 2), ("rounds", 3), ("rows", 4)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--data")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--child")
    a = p.parse_args()
    if a.child:
        print(json.dumps(theirs(a, a.child)))
        return
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    with tempfile.TemporaryDirectory(prefix="ww-cpu-") as tmp:
        a.data = a.data or draw_rows(os.path.join(tmp, "rows.jsonl"), STEPS * a.rows)
        subprocess.run([WW, "model", "init", os.path.join(HERE, "cpu-5m.json"), os.path.join(tmp, "init")], check=True,
                       stdout=subprocess.DEVNULL)
        clock, processor = {0: [], 1: []}, {0: [], 1: []}
        for turn in range(a.rounds):
            answer = subprocess.run([sys.executable, *sys.argv, "--data", a.data, "--child",
                                     tmp], check=True, stdout=subprocess.PIPE, text=True).stdout
            for side, (seconds, cpu, _) in enumerate((ours(a, tmp, turn), json.loads(answer.splitlines()[-1]))):
                clock[side] += seconds
                processor[side].append(cpu)
    for side, name in enumerate(("warpwright", "PyTorch" + " compiled" * a.compile)):
        print(
            f"{name:10} {a.threads} threads, {512 * a.rows} tokens a step: {statistics.median(clock[side]):.3f} s of "
            "the clock, "
            f"{statistics.median(processor[side]):.3f} s of processors"
        )
    print(f"PyTorch / warpwright: {statistics.median(clock[1]) / statistics.median(clock[0]):.2f} by the clock, "
          f"{statistics.median(processor[1]) / statistics.median(processor[0]):.2f} by the processors")


if __name__ == "__main__":
    main()
