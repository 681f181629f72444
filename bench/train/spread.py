#!/usr/bin/env python3
"""How far apart are equal trainings?  One training, by `warpwright train` and by PyTorch, each in several arithmetics;
losses side by side.

usage: spread.py --config CONFIG.json --data IDS.jsonl [--sequence N] [--rows R] [--steps S] [--dtype fp32|bf16]
                 [--lr X] [--warmup N] [--runs NAME,NAME,...] [--seconds S] [--out FILE.json]      at least four steps

Every run has the same starting weights, rows and learning rates (compare.py's): in exact arithmetic all runs would be
equal.  Rounding makes them differ, and the difference stays.  So two programs differ only where their losses differ by
more than those of two runs of one program.  The table has mean losses of each quarter of the steps, and the largest
difference to the first run.

  ours:exact        numbers exact, a step in one batch
  ours:fast         numbers fast
  ours:parts        exact, a step in four batches
  torch:autocast    fp32 weights, eager, autocast, a step in one batch
  torch:compiled    the same by torch.compile
  torch:parts       a step in four batches
  torch:efficient   another kernel of scaled_dot_product_attention
  torch:nudged      starting weights times 1 + 1e-4 normal numbers
  torch:residual    sums between the layers in bf16, as ours
  torch:head        logits in fp32, as ours
  torch:copies      bf16 copies of fp32 weights everywhere, as ours
  torch:fp32, tf32  no bf16 anywhere

Ours run beside PyTorch's at the same time, so this says nothing about speed.  No run is begun after --seconds.
"""
import json
import os
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare

RUNS = (
    "ours:exact,torch:autocast,ours:parts,torch:nudged,torch:copies,ours:fast,torch:residual,torch:head,torch:parts,"
    "torch:compiled,torch:efficient,torch:tf32"
)


def batch(a, kind):
    return max(1, a.rows // 4) if kind == "parts" else a.rows


def our_run(a, tmp, kind):
    return compare.ours(a, tmp, numbers="fast" if kind == "fast" else "exact", micro=batch(a, kind), name=kind)


def quarters(losses):
    at = [len(losses) * i // 4 for i in range(5)]
    return [sum(losses[b:e]) / max(1, e - b) for b, e in zip(at[:-1], at[1:])]


class Table:
    def __init__(self):
        self.runs, self.lock = {}, threading.Lock()

    def add(self, name, losses, begun):
        with self.lock:
            self.runs[name] = losses
            first = next(iter(self.runs.values()))
            worst = max(abs(x - y) for x, y in zip(losses, first))
            cells = " ".join(f"{q:9.5f}" for q in quarters(losses))
            print(f"{name:16} {cells} {losses[-1]:9.5f} {worst:9.1e}   {time.time() - begun:4.0f} s", flush=True)

    def groups(self):
        """Print for each side the mean of the last quarter over its runs, and the largest difference between its
        runs."""
        for side in ("ours", "torch"):
            last = [quarters(losses)[3] for name, losses in self.runs.items() if name.startswith(side)]
            if last:
                print(
                    f"{side}: {len(last)} runs, last quarter {min(last):.5f} to {max(last):.5f}, mean "
                    f"{sum(last) / len(last):.5f}"
                )


def main():
    a = compare.arguments(__doc__, runs=RUNS, seconds=1e9, out="")
    table, begun, failed = Table(), time.time(), []
    names = a.runs.split(",")
    print(f"{'':16} " + " ".join(f"{'quarter ' + str(i):>9}" for i in (1, 2, 3, 4)) + f" {'last':>9} {'apart':>9}",
          flush=True)

    def go(name, run):
        if time.time() - begun > a.seconds:
            return print(f"{name:16} not begun: no time left", flush=True)
        try:
            table.add(name, run(), begun)
        except Exception as e:                          # one run that cannot be made must not hide the others
            failed.append(name)
            print(f"{name:16} failed: {e}", flush=True)

    with tempfile.TemporaryDirectory(prefix="ww-spread-") as tmp:
        compare.start(a, tmp)
        log, described = our_run(a, tmp, "exact")
        table.add("ours:exact", [r["loss"] for r in log], begun)
        own = [n for n in names if n.startswith("ours:") and n != "ours:exact"]
        side = threading.Thread(target=lambda: [go(n, lambda n=n: [r["loss"] for r in our_run(a, tmp, n[5:])[0]])
                                                for n in own])
        side.start()
        for name in (n for n in names if n.startswith("torch:")):
            go(name, lambda n=name: compare.theirs(a, tmp, log, described["recipe"], n[6:], batch(a, n[6:]))[0])
        side.join()
    table.groups()
    if a.out:
        with open(a.out, "w", encoding="utf-8") as f:
            json.dump(dict(arguments=vars(a), losses=table.runs), f)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
