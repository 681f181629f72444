#!/usr/bin/env python3
"""The share of a set's tasks on which the planner's search reaches reward 3, from a run of `eval` over a sample:

    warpwright eval --suite SET --sample 100 --target cuda --max-seconds 30 -o RUN
    bench/synth/won.py RUN

Prints the share and its standard error; tasks that were not evaluated are not counted."""
import collections
import json
import sys


def main(run):
    with open(run + "/results.jsonl", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    rewards = [((r.get("verdicts") or {}).get("strict") or {}).get("reward") for r in rows]
    counted = [-1 if x is None else x for x, r in zip(rewards, rows) if r.get("outcome") != "skipped"]
    won = sum(x == 3 for x in counted) / max(len(counted), 1)
    print(f"{len(counted)} tasks, reward 3 on {won:.0%} +- {(won * (1 - won) / max(len(counted), 1)) ** 0.5:.0%}; "
          f"by reward {dict(sorted(collections.Counter(counted).items()))}")


if __name__ == "__main__":
    main(sys.argv[1])
