#!/usr/bin/env python3
# label: slow
# budget: 19 CPU-seconds
# timeout: 900
"""A whole `optimize` of examples on the cpu target: what the planner writes first is correct by `strict`, for each of
the twelve.  In `make check` cli/planner takes the same way with other operators.

Six examples are the parts of one task (lib/examples.py), each with outputs of its own, so that one process of PyTorch
and one judgement do for all of them, and each must be right in the company of the others.  The sizes are those of
examples/cpu made smaller, the search is cut short, and no baseline is timed: how fast the results are is `make bench`'s
business.  A judgement that is timed compares eight of its timed calls beside the five draws of verify.  That none of
the twelve is degenerate by itself is looked at in tests/bridge/test_reference.py."""
import concurrent.futures
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from examples import EXAMPLES, GROUPS, joined  # noqa: E402
from optimizing import *  # noqa: F403,E402


def optimize(group):
    out = os.path.join(TMP, group)
    task_file = put(group + ".py", joined(GROUPS[group]))
    code, stdout, err = run(command(task_file, out, "--max-turns", "2", "--baselines", "", "--json"))
    try:
        return f"exit code {code}\n{err}", {**json.loads(stdout), "code": code}
    except ValueError:
        return f"exit code {code}\n{stdout}\n{err}", {}


ok(len(EXAMPLES) == 12 and sorted(n for names in GROUPS.values() for n in names) == EXAMPLES,
   "the twelve examples are in one group each", EXAMPLES)
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for group, (note, summary) in zip(GROUPS, pool.map(optimize, GROUPS)):
        verdict = summary.get("verdict") or {}
        ok(verdict.get("correct") is True and summary["code"] == 0 and summary["reason"] == "turns",
           f"{group}: correct by strict", note)
        ok(verdict.get("degenerate") is False and verdict.get("algebraic") is False,
           f"{group}: neither degenerate nor algebraic", json.dumps(verdict)[:600])
done()
