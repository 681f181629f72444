#!/usr/bin/env python3
"""The planner on tasks that nobody tuned it for (the bars of "Generality"):

    fresh.py tasks SEED [-n 300] [--target cuda|cpu] [--catalogue FILE] > tasks.jsonl     candidates, none looked at
    warpwright eval --suite tasks.jsonl --target cuda --sample 300 --seed SEED --loop single -o RUN
    fresh.py table RUN [--losers 40] [--again RAW]                    correct, slower, faster, means, by family and form

`table` also prints each loser: not correct, slower than 0.95 of eager, or not 5% faster than compile, slowest first.  A
run that was stopped is a random sample: `eval --sample` has the order drawn.  --again: with the verdicts that
bench/planner/compare gave later (its raw.jsonl) in place of the run's own, where it has one."""
import argparse
import collections
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

RECIPES = {
    # 0.02 to 5 ms in eager mode on a large GPU: from what is all launches to what is all bandwidth.
    "cuda": "set: small\nmax-us: 5000\nmax-input-mib: 512\n",
    # what recipes/synth/small-cpu.yaml says
    "cpu": "set: small\n",
}
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")


def tasks(seed, n, target, catalogue):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as recipe:
        recipe.write(RECIPES[target])
        recipe.flush()
        out = subprocess.run([PROGRAM, "synth", "compose", recipe.name, "--target", target, "-n", str(n), "--seed",
                              str(seed), "--json", *(["--catalogue", catalogue] if catalogue else [])],
                             capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        row = json.loads(line)
        code = row["code"]
        form = "block" if "import transformers" in code or "from transformers" in code else \
            "network" if re.search(r"^class (?!Model)\w+\(nn\.Module\)", code, re.M) else "piece"
        print(json.dumps({"id": f"{form}-{seed}-{row['index']}", "code": code,
                          "data_source": "warpwright synth compose", "made_of": row["ops"]}))


def lines_of(run):
    """The last word about each problem."""
    lines = {}
    with open(os.path.join(run, "results.jsonl"), encoding="utf-8") as f:
        for text in f:
            line = json.loads(text)
            lines[line["id"]] = line if "outcome" in line else {**lines.get(line["id"], {}), **line}
    return list(lines.values())


class Result:
    def __init__(self, line):
        v = (line.get("verdicts") or {}).get("strict") or {}
        self.id, self.family, self.form = line["id"], line.get("family") or "none", re.split("[-/]", line["id"])[0]
        self.outcome, self.correct, self.degenerate = line["outcome"], bool(v.get("correct")), v.get("degenerate")
        self.why = (line.get("why") or v.get("diagnostics") or v.get("status") or "").strip().split("\n")[0]
        speed = v.get("speedup") or {}
        self.eager, self.compile = speed.get("eager") or {}, speed.get("compile") or {}
        self.us = (v.get("time") or {}).get("device_us")
        self.floor_us = line.get("floor_us")

    def over(self, which):
        return getattr(self, which).get("mid") if self.correct else None

    def faster(self, which):
        return (getattr(self, which).get("lo") or 0) > 1 / 0.95 if self.correct else False

    def not_slower(self):
        return (self.over("eager") or 0) >= 0.95


def mean(values):
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def interval(values, rounds=2000):
    values, rng = [v for v in values if v], random.Random(1)
    if len(values) < 2:
        return ""
    drawn = sorted(mean(rng.choices(values, k=len(values))) for _ in range(rounds))
    return f" [{drawn[rounds // 40]:.2f}, {drawn[-rounds // 40]:.2f}]"


def row(name, results):
    n, right = len(results), [r for r in results if r.correct]
    peak = sorted(r.floor_us / r.us for r in right if r.us and r.floor_us)
    return (f"| {name} | {n} | {len(right)} | {sum(r.not_slower() for r in results)} | "
            f"{sum(r.faster('compile') for r in results)} | {mean(r.over('eager') for r in right):.2f} | "
            f"{mean(r.over('compile') for r in right):.2f}{interval([r.over('compile') for r in right])} | "
            f"{peak[len(peak) // 2] if peak else float('nan'):.2f} |")


def by(results, key):
    groups = collections.defaultdict(list)
    for r in results:
        groups[key(r)].append(r)
    return sorted(groups.items(), key=lambda g: (mean(r.over("compile") for r in g[1])
                                                 if any(r.correct for r in g[1]) else 0))


def judged_again(lines, path):
    """The lines with later verdicts, of those problems that got one."""
    with open(path, encoding="utf-8") as f:
        later = {r["id"]: r["verdict"] for r in map(json.loads, f)
                 if (r.get("verdict") or {}).get("status") in ("ok", "mismatch")}
    return [{**r, "verdicts": {"strict": later[r["id"]]}} if r["id"] in later else r for r in lines]


def table(run, losers, again):
    lines = lines_of(run)
    results = [Result(line) for line in (judged_again(lines, again) if again else lines)]
    used = [r for r in results if r.outcome not in ("unusable", "no_room", "error")]
    print(f"{len(results)} ended; {len(results) - len(used)} of them no task here: "
          + "; ".join(f"{r.id}: {r.why[:90]}" for r in results if r not in used)[:600])
    print("| device times, rule strict | tasks | correct | >= 0.95 eager | > 5% faster than compile | mean over "
          "eager | mean over compile | peak share |\n|---|---|---|---|---|---|---|---|")
    print(row("all", used))
    print(row("all, not degenerate", [r for r in used if not r.degenerate]))
    for form, group in by(used, lambda r: r.form):
        print(row("form " + form, group))
    for family, group in by(used, lambda r: r.family):
        print(row(family, group))
    bad = [r for r in used if not (r.correct and r.not_slower() and r.faster("compile"))]
    bad.sort(key=lambda r: (r.correct, r.over("compile") or 0))
    print(f"\nlosers: {len(bad)} of {len(used)}, the worst first: over compile, over eager, us, family, id, why")
    for r in bad[:losers]:
        print(f"  {r.over('compile') or 0:6.2f} {r.over('eager') or 0:6.2f} {r.us or 0:9.1f}  {r.family:22} {r.id}"
              + ("" if r.correct else f"  {r.why[:150]}"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["tasks", "table"])
    p.add_argument("of")
    p.add_argument("-n", type=int, default=300)
    p.add_argument("--target", choices=sorted(RECIPES), default="cuda")
    p.add_argument("--catalogue")
    p.add_argument("--losers", type=int, default=40)
    p.add_argument("--again")
    a = p.parse_args()
    return tasks(int(a.of), a.n, a.target, a.catalogue) if a.what == "tasks" else table(a.of, a.losers, a.again)


if __name__ == "__main__":
    sys.exit(main())
