"""The results of bench/train/nano's stages: figures from the runs' logs and records, and a card in Markdown."""
import collections
import glob
import json
import math
import os

import held_out

STEP_FIGURES = ("loss", "reward", "entropy", "explained", "explained_middle", "pass", "faster_compile", "cut_share",
                "invalid_share", "turns", "verdicts_per_second", "busy_share", "value_loss")


def lines(path):
    try:
        with open(path, encoding="utf-8") as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except OSError:
        return []


def mean(values):
    return sum(values) / len(values) if values else math.nan


def ends(log, n=5):
    """Figures of a log: of its first step, and the mean of its last n steps."""
    out = {"steps": log[-1]["step"], "tokens": log[-1].get("total_tokens"), "device_bytes": log[-1].get("device_bytes")}
    for name, part in (("first", log[:1]), ("last", log[-n:])):
        out[name] = {k: mean([r[k] for r in part]) for k in STEP_FIGURES
                     if all(isinstance(r.get(k), (int, float)) for r in part)}
    return out


def counts(out):
    """{file: the counts of `synth teach` that wrote it}."""
    found = {}
    for name in ("corpus", "corpus-rest"):
        for line in open_text(os.path.join(out, "logs", name + ".txt")):
            if line.startswith("{") and '"written"' in line:
                row = json.loads(line)
                found[os.path.basename(row.pop("file"))] = row
    return found


def open_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read().splitlines()
    except OSError:
        return []


def spread(values):
    return {"mean": mean(values), "interval": held_out.interval(values) if len(values) > 1 else None}


def by_task(rewards):
    per = [list(v) for v in rewards.values()]
    return {"tasks": len(per), "episodes": sum(map(len, per)), "reward": spread([mean(v) for v in per]),
            "correct": spread([mean([x > 0 for x in v]) for v in per]),
            "faster_compile": spread([mean([x == 3 for x in v]) for v in per])}


def difference(a, b):
    """b's mean reward over a's, by task, with the paired interval."""
    ids = sorted(set(a) & set(b))
    return {"tasks": len(ids), **spread([mean(b[k]) - mean(a[k]) for k in ids])} if ids else None


def measures(out):
    """Held-out figures of `before`, `after`, `after-2` ..., and how far each lies above `before`."""
    runs = filter(os.path.isdir, [os.path.join(out, "before"), *sorted(glob.glob(os.path.join(out, "after*")))])
    found = {os.path.basename(p): r for p in runs if (r := held_out.rewards(p))}
    rises = {"rise" + n.removeprefix("after"): difference(found["before"], found[n])
             for n in found if n != "before" and "before" in found}
    return {**{n: by_task(r) for n, r in found.items()}, **rises}


def geomean(values):
    return math.exp(mean([math.log(v) for v in values])) if values else None


def verdict(row):
    """(correct, reward, speed-up over torch.compile or None) by rule strict."""
    v = (row.get("verdicts") or {}).get("strict") or {}
    over = (v.get("speedup") or {}).get("compile") or {}
    return bool(v.get("correct")), v.get("reward", -1), over.get("mid") if v.get("correct") else None


def evaluation(path):
    rows = [r for r in lines(path) if r.get("outcome") in ("judged", "none")]
    got = {r["id"]: (*verdict(r), r.get("family", "?")) for r in rows}
    families = collections.defaultdict(list)
    for correct, reward, _, family in got.values():
        families[family].append((correct, reward))
    return got, {
        "tasks": len(got), "correct": mean([c for c, *_ in got.values()]),
        "faster_compile": mean([r == 3 for _, r, *_ in got.values()]), "reward": mean([r for _, r, *_ in got.values()]),
        "geomean_compile": geomean([x for _, _, x, _ in got.values() if x]),
        "families": {f: {"tasks": len(v), "correct": mean([c for c, _ in v]),
                         "faster_compile": mean([r == 3 for _, r in v])} for f, v in sorted(families.items())}}


def evaluations(out, rows):
    """A row for each evaluation; `paired` is over the tasks that all of them have ended."""
    all_of = {r["name"]: evaluation(os.path.join(out, "eval-" + r["name"], "results.jsonl")) for r in rows}
    all_of = {n: e for n, e in all_of.items() if e[0]}
    ids = sorted(set.intersection(*(set(e[0]) for e in all_of.values()))) if all_of else []
    result = {}
    for name, (got, figures) in all_of.items():
        first = next(iter(all_of.values()))[0]
        ratio = [got[k][2] / first[k][2] for k in ids if got[k][2] and first[k][2]]
        result[name] = {**figures, "paired": {
            "tasks": len(ids), "correct": mean([got[k][0] for k in ids]),
            "faster_compile": mean([got[k][1] == 3 for k in ids]),
            "geomean_compile_all": geomean([got[k][2] or 1 for k in ids]), "both_correct": len(ratio),
            "geomean_over_first": geomean(ratio)}}
    return result


def results(out, state):
    logs = {n: lines(os.path.join(out, n, "log.jsonl")) for n in state["stages"]}
    runs = [json.loads("".join(open_text(p))) for p in glob.glob(os.path.join(out, "*", "run.json"))]
    tokenizer = "".join(open_text(os.path.join(out, "tokenizer", "tokenizer.json")))
    return {"settings": state["settings"], "stages": state["stages"], "corpus": counts(out),
            "vocabulary": len(json.loads(tokenizer)["model"]["vocab"]) if tokenizer else None,
            "data": {r["recipe"]["stage"]: r["data"] for r in runs if "recipe" in r and "tokens" in r.get("data", {})},
            "arithmetic": next((r["arithmetic"] for r in runs if "arithmetic" in r), None),
            "parameters": next((r["parameters"] for r in runs if "parameters" in r), None),
            "logs": {n: ends(log) for n, log in logs.items() if log}, "measures": measures(out),
            "evaluations": evaluations(out, state["settings"]["evaluations"])}


# ---- the card --------------------------------------------------------------------------------------------------------


def number(x, form=".3f"):
    return "" if x is None or (isinstance(x, float) and math.isnan(x)) else format(x, form)


def interval(x):
    return number(x["mean"]) + (f" +- {x['interval']:.3f}" if x["interval"] is not None else "")


def stage_rows(r):
    order = [*r["settings"]["stages"], *("eval-" + e["name"] for e in r["settings"]["evaluations"])]
    for name, s in sorted(r["stages"].items(), key=lambda x: order.index(x[0])):
        log = r["logs"].get(name, {})
        first, last = log.get("first", {}), log.get("last", {})
        said = ", ".join(f"{k} {number(first[k], '.4g')} to {number(last[k], '.4g')}" for k in
                         ("loss", "reward", "entropy", "explained") if k in first and k in last)
        yield f"| `{name}` | {s['state']} | {s['seconds']:.0f} | {log.get('steps', '')} | {said} |"


def card(r):
    """Tables of the stages, of what was learnt on held-out tasks, and of policies side by side."""
    out = ["# A run of bench/train/nano", "",
           f"{r['parameters'] or '?'} parameters, vocabulary {r['vocabulary'] or '?'}, {json.dumps(r['arithmetic'])}",
           "", "| stage | | seconds | steps | first step to the mean of the last five |",
           "|---|---|---|---|---|", *stage_rows(r), ""]
    for name, c in r["corpus"].items():
        out.append(f"{name}: " + ", ".join(f"{k} {v}" for k, v in c.items()) + "  ")
    for name, d in r["data"].items():
        out.append(f"data of `{name}`: " + ", ".join(f"{k} {v}" for k, v in d.items() if k != "hash") + "  ")
    if r["measures"]:
        out += ["", "Held-out tasks, sampled at temperature 1:", "",
                "| | tasks | episodes | correct | faster than compile | reward |", "|---|---|---|---|---|---|"]
        for n, m in r["measures"].items():
            if not n.startswith("rise"):
                figures = " | ".join(interval(m[k]) for k in ("correct", "faster_compile", "reward"))
                out.append(f"| {n} | {m['tasks']} | {m['episodes']} | {figures} |")
        for n, rise in r["measures"].items():
            if n.startswith("rise") and rise:
                out += ["", f"Rise of the reward over {rise['tasks']} tasks, {n.replace('rise', 'after')} less before, "
                            f"paired: {interval(rise)}"]
    if r["evaluations"]:
        out += ["", "Policies on held-out tasks; `all`: tasks that every row has ended, one that is not correct counts "
                "as 1.0:", "", "| | tasks | correct | faster than compile | geometric mean, correct | `all`: tasks | "
                "correct | faster | geometric mean | over the first, both correct |", "|" + "---|" * 10]
        for n, e in r["evaluations"].items():
            p = e["paired"]
            out.append(f"| {n} | {e['tasks']} | {number(e['correct'])} | {number(e['faster_compile'])} | "
                       f"{number(e['geomean_compile'])} | {p['tasks']} | {number(p['correct'])} | "
                       f"{number(p['faster_compile'])} | {number(p['geomean_compile_all'])} | "
                       f"{number(p['geomean_over_first'])} ({p['both_correct']}) |")
        last = list(r["evaluations"].values())[-1]
        out += ["", "The last of them by family:", "",
                "| | tasks | correct | faster than compile |", "|---|---|---|---|"]
        out += [f"| {f} | {v['tasks']} | {number(v['correct'])} | {number(v['faster_compile'])} |"
                for f, v in last["families"].items()]
    return "\n".join(out) + "\n"
