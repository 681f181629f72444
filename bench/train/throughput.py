#!/usr/bin/env python3
"""How fast a model of a given shape trains on random rows: tokens/s, share of the GPU's peak, memory beside its
prediction.

usage: throughput.py [--config FILE] [--sequence N] [--rows R] [--micro M] [--numbers exact|fast] [--device cuda|cpu]
                     [--dtype D] [--seconds S] [--skip N] [--peak-tflops X] [--json]
       throughput.py --transformers [--batches 4,8] ...

With --transformers, transformers beside ours in one run: the same shape in bf16, torch.compile,
scaled_dot_product_attention, fused AdamW on bf16 weights, one batch a step; the best of the batches counts.

A step has R rows of N tokens, M at a time.  The run is stopped after S seconds of steps, before it writes a checkpoint;
the first --skip steps do not count.  Flops: six times the parameters that are in products (a tied embedding once) and
attention's causal half.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WW = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--config", default=os.path.join(ROOT, "bench/train/qwen3-0.6b.json"))
    for name, default in (("sequence", 4096), ("rows", 16), ("micro", 4), ("skip", 3)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--batches", default="4,8")
    p.add_argument("--numbers", default="exact")
    p.add_argument("--device", default="cuda")
    p.add_argument("--dtype", default="bf16")
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--peak-tflops", type=float, default=989)
    p.add_argument("--transformers", action="store_true")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def flops_per_token(c, sequence):
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    layer = c["hidden_size"] * (2 * q + 2 * kv + 3 * c["intermediate_size"])
    attention = 2 * 2 * q * sequence / 2
    return 3 * (2 * (c["num_hidden_layers"] * layer + c["vocab_size"] * c["hidden_size"]) + c["num_hidden_layers"]
                * attention)


def ours(a, c):
    """Seconds of each step, and what is said of memory."""
    with tempfile.TemporaryDirectory(prefix="ww-throughput-") as tmp:
        data, run = os.path.join(tmp, "rows.jsonl"), os.path.join(tmp, "run")
        rng = random.Random(1)
        with open(data, "w", encoding="utf-8") as f:
            for _ in range(a.rows):
                f.write(json.dumps({"ids": [rng.randrange(c["vocab_size"]) for _ in range(a.sequence + 1)]}) + "\n")
        recipe = {"config": a.config, "data": data, "output": run, "sequence": a.sequence,
                  "step-tokens": a.rows * a.sequence,
                  "micro": a.micro, "steps": 1000000, "device": a.device, "dtype": a.dtype, "numbers": a.numbers,
                  "checkpoint-every": 0, "lr": 1e-5}
        with open(os.path.join(tmp, "recipe.yaml"), "w", encoding="utf-8") as f:
            f.writelines(f"{k}: {v}\n" for k, v in recipe.items())
        log_path, log = os.path.join(run, "log.jsonl"), []
        p = subprocess.Popen([WW, "train", os.path.join(tmp, "recipe.yaml")], stderr=subprocess.PIPE,
                             stdout=subprocess.DEVNULL, text=True)
        begun = time.time()
        while p.poll() is None and time.time() - begun < 300:
            time.sleep(0.2)
            if os.path.exists(log_path):
                with open(log_path, encoding="utf-8") as f:
                    log = [json.loads(x) for x in f.read().splitlines(True) if x.endswith("\n")]
            if len(log) > a.skip and sum(r["seconds"] for r in log) > a.seconds:
                break
        p.send_signal(signal.SIGKILL)
        said = p.communicate()[1]
        if len(log) <= a.skip:
            sys.exit(f"throughput: the run ended early\n{said[-2000:]}")
        with open(os.path.join(run, "run.json"), encoding="utf-8") as f:
            memory = json.load(f)["memory"]
        return [r["seconds"] for r in log], dict(predicted_bytes=memory["total"], device_bytes=log[-1]["device_bytes"],
                                                 keep_layers=memory["keep_layers"], loss=log[-1]["loss"])


def theirs(a, c, batch):
    import torch
    import transformers
    torch.manual_seed(0)
    torch._dynamo.reset()                               # shapes of this batch, not of any
    config = transformers.Qwen3Config(**{k: v for k, v in c.items()
                                         if k not in ("architectures", "model_type", "torch_dtype", "rope_theta")},
                                      rope_parameters={"rope_type": "default", "rope_theta": c["rope_theta"]})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").to(
        a.device
    )
    optim = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    step_fn = torch.compile(model)
    ids = torch.randint(c["vocab_size"], (batch, a.sequence), device=a.device)
    gpu = torch.cuda if a.device == "cuda" else None
    seconds, begun = [], time.time()
    while len(seconds) <= a.skip + 2 or (sum(seconds[a.skip:]) < a.seconds and time.time() - begun < 240):
        start = time.perf_counter()
        loss = step_fn(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optim.step()
        optim.zero_grad()
        if gpu:
            gpu.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds, dict(device_bytes=gpu.max_memory_allocated() if gpu else 0)


def said(a, c, side, tokens, seconds, more):
    """One side's figures, printed: the median of the steps that count."""
    steady = sorted(seconds[a.skip:])
    rate = tokens / steady[len(steady) // 2]
    out = dict(side=side, sequence=a.sequence, tokens_per_step=tokens, steps=len(steady), tokens_per_second=rate,
               of_peak=rate * flops_per_token(c, a.sequence) / a.peak_tflops / 1e12, begun_s=seconds[0], **more)
    if a.json:
        print(json.dumps(out), flush=True)
        return rate
    print(
        f"{out['side']}: {rate:.0f} tokens/s, {100 * out['of_peak']:.1f}% of {a.peak_tflops:.0f} TFLOP/s, {tokens} "
        "tokens a step, sequences of "
        f"{a.sequence}; {len(steady)} steps after one of {seconds[0]:.1f} s; device memory "
        f"{more['device_bytes'] / 1e9:.2f} GB"
        + (
            f", predicted {more['predicted_bytes'] / 1e9:.2f}, {more['keep_layers']} layers kept, loss "
            f"{more['loss']:.3f}"
            if "loss" in more
            else ""
        ),
        flush=True,
    )
    return rate


def main():
    a = arguments()
    with open(a.config, encoding="utf-8") as f:
        c = json.load(f)
    own = said(a, c, "warpwright " + a.numbers, a.rows * a.sequence, *ours(a, c))
    best = 0
    for batch in [int(b) for b in a.batches.split(",")] if a.transformers else []:
        try:
            seconds, more = theirs(a, c, batch)
        except RuntimeError as e:                       # a batch that does not fit is not their best one
            print(f"transformers, batch {batch}: {str(e).splitlines()[0]}", flush=True)
            continue
        best = max(best, said(a, c, f"transformers, batch {batch}", batch * a.sequence, seconds, more))
    if best and not a.json:
        print(f"{own / best:.2f} times transformers")


if __name__ == "__main__":
    main()
