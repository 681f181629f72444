#!/usr/bin/env python3
"""Train one model twice, by `warpwright train` and by PyTorch: the same weights, data, order and steps; print both losses.

usage: compare.py --config CONFIG.json --data IDS.jsonl --sequence N --rows R --steps S [--micro M] [--device cpu|cuda]
                  [--dtype fp32|bf16] [--numbers exact|fast] [--lr X] [--schedule NAME] [--warmup N] [--compile] [--report FILE.html] [--json]

IDS.jsonl holds one {"ids": [...]} of N + 1 tokens a line (bench/train/corpus.py writes such files); S * R rows are read in the
file's order.  Speeds leave out the first five steps of each side.  PyTorch: fp32 weights, scaled_dot_product_attention, fused AdamW
on a GPU, autocast for bf16, --compile for torch.compile.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WW = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("config", "data"):
        p.add_argument("--" + name, required=True)
    for name, default in (("sequence", 2048), ("rows", 8), ("steps", 20), ("micro", 0), ("warmup", 0)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", default="fp32")
    p.add_argument("--numbers", default="exact")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--schedule", default="cosine")
    p.add_argument("--report")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def ours(a, tmp):
    """Our losses and seconds a step, and the values of the recipe as the run resolved them."""
    run = os.path.join(tmp, "run")
    subprocess.run([WW, "model", "init", a.config, os.path.join(tmp, "init"), "--seed", "1", "--dtype", a.dtype], check=True,
                   stdout=subprocess.DEVNULL)
    recipe = dict(stage="sft", model=os.path.join(tmp, "init"), data=a.data, order="file", output=run, sequence=a.sequence,
                  micro=a.micro, steps=a.steps, lr=a.lr, schedule=a.schedule, warmup=a.warmup, device=a.device, dtype=a.dtype,
                  numbers=a.numbers, spike=0)
    recipe["step-tokens"], recipe["checkpoint-every"] = a.rows * a.sequence, 0
    with open(os.path.join(tmp, "recipe.yaml"), "w", encoding="utf-8") as f:
        f.writelines(f"{k}: {v}\n" for k, v in recipe.items())
    subprocess.run([WW, "train", os.path.join(tmp, "recipe.yaml")], check=True, stdout=subprocess.DEVNULL, stderr=None if not a.json
                   else subprocess.DEVNULL)
    with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as f:
        log = [json.loads(line) for line in f]
    with open(os.path.join(run, "run.json"), encoding="utf-8") as f:
        described = json.load(f)
    if a.report:
        subprocess.run([WW, "report", run, "-o", a.report], check=True)
    return log, described


def theirs(a, tmp, log, recipe):
    import torch

    import torch_model
    with open(os.path.join(tmp, "init/config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(a.data, encoding="utf-8") as f:
        rows = [json.loads(line)["ids"] for line, _ in zip(f, range(a.rows * a.steps))]
    if len(rows) < a.rows * a.steps:
        rows = [rows[i % len(rows)] for i in range(a.rows * a.steps)]
    rows = torch.tensor(rows).view(a.steps, a.rows, -1).to(a.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = torch_model.Model(config).load(os.path.join(tmp, "init")).to(a.device)
    optim = torch_model.optimizer(model, recipe, a.device == "cuda")
    step_fn = torch.compile(model) if a.compile else model
    micro = a.micro or max(1, 16384 // a.sequence)
    losses, seconds = [], []

    def wait():
        if a.device == "cuda":
            torch.cuda.synchronize()
    for step in range(a.steps):
        wait()
        start, loss = time.perf_counter(), 0.0
        for group in optim.param_groups:
            group["lr"] = log[step]["lr"]
        for part in rows[step].split(micro):
            with torch.autocast(a.device, torch.bfloat16, enabled=a.dtype == "bf16"):
                piece = step_fn(part[:, :-1], part[:, 1:]) * (len(part) / a.rows)
            piece.backward()
            loss += piece.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip"])
        optim.step()
        optim.zero_grad()
        losses.append(float(loss))
        wait()
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def rate(seconds, tokens):
    steady = sorted(seconds[5:] or seconds)
    return tokens / steady[len(steady) // 2]


def main():
    a = arguments()
    with tempfile.TemporaryDirectory(prefix="ww-compare-") as tmp:
        log, run = ours(a, tmp)
        losses, seconds = theirs(a, tmp, log, run["recipe"])
    worst = max(abs(r["loss"] - x) for r, x in zip(log, losses))
    tokens = a.rows * a.sequence
    out = dict(steps=a.steps, tokens_per_step=tokens, parameters=run["parameters"], loss_first=[log[0]["loss"], losses[0]],
               loss_last=[log[-1]["loss"], losses[-1]], loss_differs_by=worst,
               tokens_per_second=[rate([r["seconds"] for r in log], tokens), rate(seconds, tokens)],
               predicted_bytes=run["memory"]["total"], device_bytes=log[-1]["device_bytes"])
    if a.json:
        print(json.dumps(out))
        return
    print(f"{'step':>6} {'warpwright':>12} {'pytorch':>12} {'difference':>12}")
    for r, x in zip(log, losses):
        print(f"{r['step']:6d} {r['loss']:12.6f} {x:12.6f} {r['loss'] - x:12.2e}")
    print(f"loss differs by at most {worst:.2e}; tokens/s {out['tokens_per_second'][0]:.0f} against {out['tokens_per_second'][1]:.0f}; "
          f"device memory {out['device_bytes'] / 1e9:.3f} GB, predicted {out['predicted_bytes'] / 1e9:.3f}")


if __name__ == "__main__":
    main()
