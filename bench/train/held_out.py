#!/usr/bin/env python3
"""Rewards of runs over the same tasks, each beside the first run:

    bench/train/held_out.py RUN RUN...

RUN: a run of `eval`; a run of a stage that samples, whose first step counts (with `lr: 1e-12` it only measures: its
tasks are opened once for all of their episodes); or a file of lines {"task": T, "reward": R}, an episode each.

A line a run: tasks of which every run has ended an episode, share correct, share faster than torch.compile, mean
reward, and by how much that is above the first run's, with the paired 95% interval over tasks (normal).  Of several
episodes of a task the mean counts; an episode without a solution counts as -1.

Where tasks have several episodes, a second line: in how many of them they earned different rewards, what part of the
rewards' variance lies within tasks, and how far the best episode of a task lies above the mean: what a policy could
gain by always doing what it does now and then."""
import glob
import json
import math
import os
import sys


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def of_eval(run):
    for r in lines(run + "/results.jsonl"):
        for e in r.get("episodes", []) if r.get("outcome") in ("judged", "none") else []:
            yield r["id"], e["reward_final"]


def of_rows(path):
    return ((r["task"], r["reward"]) for r in lines(path) if "reward" in r)


def of_episodes(run):
    for path in sorted(glob.glob(run + "/episodes/step-00000001/*/episodes/*/episode.jsonl")):
        e = lines(path)
        if e and e[-1]["type"] == "end":
            yield e[0]["task"]["path"].split("#")[-1], e[-1]["reward_final"]


def rewards(run):
    """Task -> its episodes' rewards."""
    found = {}
    if os.path.exists(run + "/results.jsonl"):
        pairs = of_eval(run)
    elif os.path.exists(run + "/rewards.jsonl"):  # all that is left of what was sampled on another machine
        pairs = of_rows(run + "/rewards.jsonl")
    else:
        pairs = of_episodes(run) if os.path.isdir(run) else of_rows(run)
    for task, reward in pairs:
        found.setdefault(task, []).append(reward)
    return found


def mean(values):
    return sum(values) / len(values)


def interval(values):
    """Half of the 95% interval."""
    m, n = mean(values), len(values)
    return 1.96 * math.sqrt(sum((v - m) ** 2 for v in values) / max(n - 1, 1) / n)


def shown(values, sign=""):
    return f"{mean(values):{sign}.3f} +- {interval(values):.3f}"


def variance(values):
    m = mean(values)
    return sum((v - m) ** 2 for v in values) / max(len(values) - 1, 1)


def spread(tasks):
    """The second line, of lists of rewards with at least two of a task."""
    every = [v for t in tasks for v in t]
    within = mean([variance(t) for t in tasks]) / variance(every) if variance(every) else math.nan
    return (f"{len(tasks)} tasks of several episodes: rewards differ in {sum(len(set(t)) > 1 for t in tasks)}, "
            f"{within:.2f} of the variance lies within tasks, the best of a task's episodes is "
            f"{mean([max(t) - mean(t) for t in tasks]):.3f} above their mean")


def main(runs):
    found = [rewards(r) for r in runs]
    ids = sorted(set.intersection(*map(set, found)))
    if not ids:
        sys.exit("no task of which all runs have ended an episode")
    first = [mean(found[0][k]) for k in ids]
    for run, r in zip(runs, found):
        got = [mean(r[k]) for k in ids]
        correct, won = ([mean([test(v) for v in r[k]]) for k in ids] for test in (lambda v: v > 0, lambda v: v == 3))
        above = [a - b for a, b in zip(got, first)]
        print(f"{run}: {len(ids)} tasks, correct {shown(correct)}, faster than compile {shown(won)}, "
              f"reward {shown(got)}, above the first {shown(above, '+')}")
        if several := [t for t in r.values() if len(t) > 1]:
            print(f"    {spread(several)}")


if __name__ == "__main__":
    main(sys.argv[1:])
