#!/usr/bin/env python3
"""Train one model twice, by `warpwright train` and by PyTorch: the same weights, data, order and steps; print both
losses.

usage: compare.py --config CONFIG.json --data IDS.jsonl --sequence N --rows R --steps S [--micro M] [--device cpu|cuda]
                  [--dtype fp32|bf16] [--numbers exact|fast] [--lr X] [--schedule NAME] [--warmup N] [--compile]
                  [--report FILE.html] [--json]

IDS.jsonl holds one {"ids": [...]} of N + 1 tokens a line (bench/train/corpus.py writes such files); S * R rows are read
in the file's order.  Speeds leave out the first five steps of each side.  PyTorch: fp32 weights,
scaled_dot_product_attention, fused AdamW on a GPU, autocast for bf16, --compile for torch.compile.
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


def arguments(doc, **more):
    p = argparse.ArgumentParser(description=doc.split("\n")[0])
    for name in ("config", "data"):
        p.add_argument("--" + name, required=True)
    for name, default in (("sequence", 2048), ("rows", 8), ("steps", 20), ("micro", 0), ("warmup", 0)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", default="fp32")
    p.add_argument("--numbers", default="exact")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--schedule", default="cosine")
    for name, default in more.items():
        p.add_argument("--" + name, type=type(default), default=default)
    p.add_argument("--report")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def start(a, tmp):
    """The weights that all sides begin with."""
    subprocess.run([WW, "model", "init", a.config, os.path.join(tmp, "init"), "--seed", "1", "--dtype", a.dtype],
                   check=True, stdout=subprocess.DEVNULL)


def ours(a, tmp, numbers, micro, name="run", quiet=True):
    """The lines of our log, and run.json: the recipe as the run resolved it."""
    run = os.path.join(tmp, name)
    recipe = dict(stage="sft", model=os.path.join(tmp, "init"), data=a.data, order="file", output=run,
                  sequence=a.sequence,
                  micro=micro, steps=a.steps, lr=a.lr, schedule=a.schedule, warmup=a.warmup, device=a.device,
                  dtype=a.dtype, numbers=numbers, spike=0)
    recipe["step-tokens"], recipe["checkpoint-every"] = a.rows * a.sequence, 0
    with open(run + ".yaml", "w", encoding="utf-8") as f:
        f.writelines(f"{k}: {v}\n" for k, v in recipe.items())
    subprocess.run([WW, "train", run + ".yaml"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL if quiet else None)
    with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as f:
        log = [json.loads(line) for line in f]
    with open(os.path.join(run, "run.json"), encoding="utf-8") as f:
        return log, json.load(f)


def rows_of(a):
    import torch
    with open(a.data, encoding="utf-8") as f:
        rows = [json.loads(line)["ids"] for line, _ in zip(f, range(a.rows * a.steps))]
    rows = [rows[i % len(rows)] for i in range(a.rows * a.steps)]
    return torch.tensor(rows).view(a.steps, a.rows, -1).to(a.device)


class Copies:
    """bf16 copies of fp32 weights: the model computes with the copies, the optimizer moves the weights."""

    def __init__(self, model):
        import copy
        self.masters = list(model.parameters())
        self.model = copy.deepcopy(model).bfloat16()

    def gradients(self):
        for p, c in zip(self.masters, self.model.parameters()):
            p.grad, c.grad = c.grad.float(), None

    def refresh(self):
        import torch
        with torch.no_grad():
            for p, c in zip(self.masters, self.model.parameters()):
                c.copy_(p)


def theirs(a, tmp, log, recipe, kind, micro):
    """PyTorch's losses and seconds a step; spread.py says what the kinds are."""
    import contextlib
    import gc

    gc.disable()  # the import is half as long uncollected, and so is the end
    import torch

    import torch_model
    gc.freeze()
    gc.enable()
    with open(os.path.join(tmp, "init/config.json"), encoding="utf-8") as f:
        config = json.load(f)
    rows = rows_of(a)
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    model = torch_model.Model(config, residual=torch.bfloat16 if kind == "residual" else None, head_fp32=kind == "head")
    model.load(os.path.join(tmp, "init")).to(a.device)
    if kind == "nudged":
        torch.manual_seed(1)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 1e-4 * torch.randn_like(p))
    optim = torch_model.optimizer(model, recipe, a.device == "cuda")
    copies = Copies(model) if kind == "copies" else None
    step_fn = copies.model if copies else torch.compile(model) if kind == "compiled" else model
    is_cast = a.dtype == "bf16" and kind not in ("fp32", "tf32", "copies")
    efficient = torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION
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
            with torch.autocast(a.device, torch.bfloat16, enabled=is_cast), \
                    torch.nn.attention.sdpa_kernel(efficient) if kind == "efficient" else contextlib.nullcontext():
                piece = step_fn(part[:, :-1], part[:, 1:]) * (len(part) / a.rows)
            piece.backward()
            loss += piece.detach()
        if copies:
            copies.gradients()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip"])
        optim.step()
        optim.zero_grad()
        if copies:
            copies.refresh()
        losses.append(float(loss))
        wait()
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def rate(seconds, tokens):
    steady = sorted(seconds[5:] or seconds)
    return tokens / steady[len(steady) // 2]


def main():
    a = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="ww-compare-") as tmp:
        start(a, tmp)
        log, run = ours(a, tmp, a.numbers, a.micro, quiet=a.json)
        if a.report:
            subprocess.run([WW, "report", os.path.join(tmp, "run"), "-o", a.report], check=True, stdout=sys.stderr)
        losses, seconds = theirs(a, tmp, log, run["recipe"], "compiled" if a.compile else "autocast",
                                 a.micro or max(1, 16384 // a.sequence))
    worst = max(abs(r["loss"] - x) for r, x in zip(log, losses))
    tokens = a.rows * a.sequence
    out = dict(steps=a.steps, tokens_per_step=tokens, parameters=run["parameters"],
               loss_first=[log[0]["loss"], losses[0]], loss_last=[log[-1]["loss"], losses[-1]], loss_differs_by=worst,
               tokens_per_second=[rate([r["seconds"] for r in log], tokens), rate(seconds, tokens)],
               predicted_bytes=run["memory"]["total"], device_bytes=log[-1]["device_bytes"])
    if a.json:
        print(json.dumps(out))
        return
    print(f"{'step':>6} {'warpwright':>12} {'pytorch':>12} {'difference':>12}")
    for r, x in zip(log, losses):
        print(f"{r['step']:6d} {r['loss']:12.6f} {x:12.6f} {r['loss'] - x:12.2e}")
    print(
        f"loss differs by at most {worst:.2e}; tokens/s {out['tokens_per_second'][0]:.0f} against "
        f"{out['tokens_per_second'][1]:.0f}; "
        f"device memory {out['device_bytes'] / 1e9:.3f} GB, predicted {out['predicted_bytes'] / 1e9:.3f}"
    )


if __name__ == "__main__":
    main()
