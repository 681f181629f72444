#!/usr/bin/env python3
# budget: 40 CPU-seconds
# timeout: 900
"""One whole `optimize` for each example family on the cpu target: the planner's first version of each is correct by `strict`.

The sizes are those of examples/cpu made smaller, and the search and the timing are cut short: how fast the results are is
`make bench`'s business.  A judgement that is timed compares eight of its timed calls beside the five draws of verify."""
import concurrent.futures
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from optimizing import *  # noqa: F403,E402

FAMILIES = sorted(n[:-3] for n in os.listdir(os.path.join(ROOT, "examples/cpu")) if n.endswith(".py"))


def smaller(text):
    """The same task with the numbers of its one line of sizes divided."""
    def shrink(match):
        sizes = [int(v) for v in match.group(2).split(",")]
        return match.group(1) + " = " + ", ".join(str(v // 8 if v >= 1024 else v // 4 if v >= 64 else v // 2 if v >= 32 else v) for v in sizes)
    changed, n = re.subn(r"^([a-z_]+(?:, [a-z_]+)*) = (\d+(?:, \d+)*)$", shrink, text, flags=re.M)
    return changed if n == 1 else None


def optimize(name):
    text = smaller(get(ROOT, "examples/cpu", name + ".py"))
    if not text:
        return "the line of sizes was not found", {}
    out = os.path.join(TMP, name)
    code, stdout, err = run(command(put(name + ".py", text), out, "--max-turns", "2", "--json"))
    try:
        return f"exit code {code}\n{err}", {**json.loads(stdout), "code": code}
    except ValueError:
        return f"exit code {code}\n{stdout}\n{err}", {}


ok(len(FAMILIES) == 12, "there are twelve example families", FAMILIES)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for name, (note, summary) in zip(FAMILIES, pool.map(optimize, FAMILIES)):
        verdict = summary.get("verdict") or {}
        ok(verdict.get("correct") is True and summary["code"] == 1 and summary["reason"] == "turns",
           f"{name}: correct by strict", note)
        ok(verdict.get("degenerate") is False and verdict.get("algebraic") is False,
           f"{name}: neither degenerate nor algebraic", json.dumps(verdict)[:600])
done()
