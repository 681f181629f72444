#!/usr/bin/env python3
"""Recall of `synth audit --against`: of disguised copies of a suite's problems how many are found, and of tasks that
are merely related how many are flagged (bench/results/dedup.md).

    bench/synth/recall.py SUITE_DIR [-n 200] [--seed 1] [--jobs 0] [--max-seconds 60] [-o DIR]

SUITE_DIR is a directory of tasks (KernelBench's KernelBench/ for the numbers on record; none of it is in this
repository).  Disguises that PyTorch cannot run are thrown away and drawn anew."""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "bridge")]
sys.dont_write_bytecode = True
import torch._subclasses.fake_tensor  # noqa: E402,F401
from wwbridge import apart as _apart, outline as _outline  # noqa: E402,F401
from disguise import disguise, relative  # noqa: E402


def runs(text):
    from wwbridge.apart import apart
    from wwbridge.local import Local
    from wwbridge.outline import Outline

    from torch._subclasses.fake_tensor import FakeTensorMode

    def call():
        with FakeTensorMode(allow_non_fake_inputs=True):
            out = Outline(text, "task", Local())
        return {"outputs": [list(m[0]) for m in out.out_meta]}
    try:
        return apart(call, 60, 8 << 30)["outputs"]
    except Exception as e:
        return str(e)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("suite")
    p.add_argument("-n", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", default="0")
    p.add_argument("--max-seconds", default="60", help="of the audit's limit for a task: more on a busy machine")
    p.add_argument("-o", default=None)
    o = p.parse_args()
    where = o.o or tempfile.mkdtemp(prefix="recall-")
    os.makedirs(where, exist_ok=True)
    ids = sorted(os.path.relpath(f, o.suite)[:-3] for f in glob.glob(os.path.join(o.suite, "**/*.py"), recursive=True))
    texts = {i: open(os.path.join(o.suite, i + ".py"), encoding="utf-8").read() for i in ids}
    ids = [i for i in ids if "get_inputs" in texts[i] and "einops" not in texts[i]]
    rows, dropped = [], {}
    for kind, make in (("disguised", disguise), ("related", relative)):
        rng, n, tries = random.Random(o.seed), 0, 0
        order = []
        while n < o.n and tries < 10 * o.n:
            order = order or rng.sample(ids, len(ids))
            i, tries = order.pop(), tries + 1
            if kind == "related" and "level3" in i:
                continue  # one operator more in a hundred is a copy
            result = None
            for size in (True, False):
                try:
                    text = make(texts[i], o.seed * 1000 + tries, size) if kind == "disguised" else make(
                        texts[i], o.seed * 1000 + tries)
                    result = runs(text)
                except Exception as e:
                    result = f"{type(e).__name__}: {e}"
                if isinstance(result, list) or kind == "related":
                    break
            if isinstance(result, list):
                rows.append({"id": f"{kind}/{n}/{i}", "code": text})
                n += 1
            else:
                dropped[f"{kind}/{i}"] = result[:200]
    path = os.path.join(where, "recall.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    json.dump(dropped, open(os.path.join(where, "dropped.json"), "w"), indent=1)
    binary = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")
    done = subprocess.run([binary, "synth", "audit", path, "--against", o.suite, "--sample", "0", "--jobs", o.jobs,
                           "--max-seconds", o.max_seconds, "--json"],
                          stdout=subprocess.PIPE, check=False)
    audit = json.loads(done.stdout)
    hits = {f["id"]: f for f in audit["findings"] if f["kind"] == "contaminated"}
    of = {k: [r["id"] for r in rows if r["id"].startswith(k)] for k in ("disguised", "related")}
    right = [i for i in of["disguised"] if i in hits]
    itself = [i for i in right if hits[i]["other_id"] == i.split("/", 2)[2]]
    wrong = [i for i in of["related"] if i in hits]
    print(f"disguised: {len(right)} of {len(of['disguised'])} found ({len(itself)} as themselves); related: "
          f"{len(wrong)} of {len(of['related'])} flagged; "
          f"drawn anew {len(dropped)}; audit {audit['seconds']:.0f} s, no graph {audit['no_graph']}")
    for i in of["disguised"]:
        if i not in hits:
            print("missed", i)
    for i in wrong:
        print("flagged", i, hits[i]["other_id"], hits[i].get("similarity"))
    print("rows and findings are in", where)
    json.dump(audit, open(os.path.join(where, "audit.json"), "w"), indent=1)


if __name__ == "__main__":
    main()
