#!/usr/bin/env python3
# budget: 8 CPU-seconds
"""Every text that the planner writes for the recorded graphs (tests/data/graphs: the examples of both targets, the
operators of planner.t, blocks and networks) is what tests/data/planner_texts.txt says: the first solution and the first
trials of three searches, on both targets, as one hash for each graph and target.  Nothing is judged.

    tests/cli/planner_texts.t                     the test
    tests/cli/planner_texts.t --write             after a change that was meant: records the hashes anew
    tests/cli/planner_texts.t -o DIR [FILE...]    writes the texts below DIR, to be compared by `diff -r`

FILE: a task (*.py), or graphs as bench/coverage/shapes.py prints them (*.jsonl); without any, the recorded graphs.  To
see what a change does to the planner's solutions at large, write the texts of `synth compose` before and after it."""
import argparse
import glob
import hashlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, WW, finish, ok  # noqa: E402

VARIANTS = os.environ.get("WW_VARIANTS") or os.path.join(os.path.dirname(WW), "tests/accuracy-variants")
SUMS = os.path.join(ROOT, "tests/data/planner_texts.txt")
DEVICE = {"threads": 2, "vector_bytes": 32, "cc": 90, "sm_count": 132, "shared_per_block_bytes": 232448}
TRIALS = 6  # of each of the three searches of bench/accuracy/variants.c


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def recorded():
    for path in sorted(glob.glob(os.path.join(ROOT, "tests/data/graphs/*.json"))):
        yield {"file": os.path.basename(path)[:-5], "graph": json.loads(read(path))}


def given(files):
    for path in files:
        if path.endswith(".jsonl"):
            yield from map(json.loads, read(path).splitlines())
    tasks = [path for path in files if path.endswith(".py")]
    if tasks:
        python = os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")
        shapes = os.path.join(ROOT, "bench/coverage/shapes.py")
        out = subprocess.run([python, "-W", "ignore", shapes, *tasks], stdout=subprocess.PIPE, check=True).stdout
        yield from map(json.loads, out.splitlines())


def solutions(lines, target):
    """What accuracy-variants prints, by the graph's name."""
    text = "".join(json.dumps({"device": DEVICE, **line}) + "\n" for line in lines)
    argv, found = [VARIANTS, target, str(TRIALS)], {}
    out = subprocess.run(argv, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    for s in map(json.loads, out.splitlines()):
        found.setdefault(s.pop("file"), []).append(s)
    return found


def write(folder, found, target):
    for name, texts in found.items():
        at = os.path.join(folder, target, name.replace("/", "_"))
        os.makedirs(at, exist_ok=True)
        for i, s in enumerate(texts):
            for key, text in s.items():
                with open(os.path.join(at, f"{i}.{key}"), "w", encoding="utf-8") as f:
                    f.write(text)


def sums(found, target):
    for name, texts in sorted(found.items()):
        digest = hashlib.sha256("\0".join(s[k] for s in texts for k in sorted(s)).encode()).hexdigest()[:16]
        yield f"{digest} {target} {name} {len(texts)}"


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("files", nargs="*", metavar="FILE")
p.add_argument("-o", "--output", metavar="DIR")
p.add_argument("--write", action="store_true", help="record the hashes")
args = p.parse_args()
lines = list(given(args.files) if args.files else recorded())
found = {target: solutions(lines, target) for target in ("cpu", "cuda")}
got = [line for target in found for line in sums(found[target], target)]
if args.output:
    for target in found:
        write(args.output, found[target], target)
elif args.write:
    with open(SUMS, "w", encoding="utf-8") as f:
        f.write("\n".join(got) + "\n")
else:
    want = read(SUMS).splitlines()
    other = sorted({" ".join(line.split()[1:3]) for line in set(got) ^ set(want)})
    ok(len(got) >= 140 and not other, f"the texts of {len(got)} builds and of their trials are as recorded",
       "other texts: " + ", ".join(other) + "\nto see them: tests/cli/planner_texts.t -o DIR, before and after; "
       "where the change is meant: --write")
    finish()
