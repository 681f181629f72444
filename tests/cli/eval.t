#!/usr/bin/env python3
# budget: 12 CPU-seconds, all 24
# timeout: 600
# all: the best of two episodes of a problem, others' solutions
"""`eval` on the cpu target: two slices of a suite of four tasks (one that the planner has no rule for, one that
is degenerate, one that fits no memory), the first killed in the middle and resumed, both merged; what is refused."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from optimizing import ALL, PLAN, TASK, TMP, WRONG, WW, done, get, ok, orphans, put, run  # noqa: E402
import tap  # noqa: E402

tap.need_pytorch()
os.makedirs(os.path.join(TMP, "suite/level1"))
os.makedirs(os.path.join(TMP, "suite/level2"))
body = "torch.softmax(x * 0.5, dim=-1)"
put("suite/level1/1_Scale.py", TASK.replace(body, "torch.relu(x * 2.0 + 1.0)"))
put("suite/level1/10_Narrow.py", TASK.replace(body, "x.to(torch.float8_e4m3fn).float()"))
put("suite/level2/1_Nothing.py", TASK.replace(body, "x - x.detach()"))
put("suite/level2/2_Huge.py", TASK[:TASK.index("def get_inputs")] + "def get_inputs():\n    return [torch.rand(1 << "
                                                                    "42)]\n\n\ndef get_init_inputs():\n    return []\n")
suite = os.path.join(TMP, "suite")


def command(out, *more):
    """The closing judgement, the only one of a policy that answers once, takes all of the device's time: it is not made
    again where something disturbed it."""
    return [WW, "eval", "--suite", suite, "--target", "cpu", "--threads", "1", "--baselines", "eager",
            "--max-time-seconds", "0.2",
            "--loop", "single", "--max-seconds", "60", "--max-gpu-seconds", "0.1", "--parallel", "1",
            "-o", os.path.join(TMP, out), *more]


def raw(out):
    path = os.path.join(TMP, out, "results.jsonl")
    return [json.loads(line) for line in get(path).split("\n")[:-1]] if os.path.exists(path) else []


def lines(out):
    """Of each problem, with what was added to it later."""
    all_of = {}
    for line in raw(out):
        all_of.setdefault(line["id"], {}).update(line)
    return list(all_of.values())


# ---- Killed after its first problem, and resumed

first = command("first", "--slice", "1/2")
p = subprocess.Popen(first, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while p.poll() is None and not lines("first"):
    time.sleep(0.02)
p.send_signal(signal.SIGKILL)
p.wait()
before = lines("first")
with open(os.path.join(TMP, "first/results.jsonl"), "a", encoding="utf-8") as f:
    f.write('{"id": "level2/1_No')
code, out, err = run(first)
after = lines("first")
ok(code == 0 and not err and "1 of 2 problems have ended already" in out, "a run that was killed goes on",
   f"{code} {out} {err}")
ok(raw("first")[:1] == before and [r["id"] for r in after] == ["level1/1_Scale", "level2/1_Nothing"],
   "a problem that had ended is not repeated, and the cut line is gone", after)
ok([sorted(r) for r in raw("first")[2:]] == [["id", "profile"]] * 2 and all(r["profile"] for r in raw("first")[2:]),
   "the slowest are profiled when all have ended", raw("first")[2:])
good, nothing = after
ok(good["outcome"] == "judged" and good["verdicts"]["strict"]["correct"]
   and good["verdicts"]["paper"]["rule"] == "paper"
   and good["floor_us"] > 0 and good["opened_seconds"] > 0 and good["profile"] and "plan.c" in good["solution"],
   "a line holds verdicts by both rules, floor, profile and solution", good)
ok(nothing["verdicts"]["strict"]["degenerate"], "a degenerate problem is said to be one", nothing)
if ALL:
    put("first/results.jsonl", "".join(json.dumps(r) + "\n" for r in raw("first")[:3]))
    code, out, err = run(first)
    good = lines("first")[0]
    ok(code == 0 and not err and raw("first")[0] == before[0] and [r["id"] for r in raw("first")[3:]]
       == [r["id"] for r in after if r["id"] != raw("first")[2]["id"]] and raw("first")[3]["profile"],
       "what a run that was killed had not profiled is profiled by the same command", f"{code} {out} {err}")

# ---- The other slice, merged

code, out, err = run(command("second", "--slice", "2/2", "--json"))
bad, huge = lines("second")
ok(code == 0 and json.loads(out)["ended"] == 2 and bad["outcome"] == "none" and "aten.to.dtype" in bad["why"],
   "the other slice; a problem without a solution says why", f"{code} {out} {err} {bad}")
ok(huge["outcome"] == "no_room" and str(4 << 42) in huge["why"],
   "a problem that does not fit is passed over with its size", huge)
paths = [os.path.join(TMP, n) for n in ("first", "second")]
code, out, err = run([WW, "eval", "--merge", *paths, "-o", os.path.join(TMP, "all"), "--json"])
summary = json.loads(out) if code == 0 else {}
strict = summary.get("rules", {}).get("strict", {}).get("device", {})
ok(code == 0 and summary["problems"] == summary["ended"] == 4 and strict["all"]["overall"]["correct"] == 2
   and strict["all"]["1"]["problems"] == 2 and strict["all"]["2"]["problems"] == 2, "merged slices are one evaluation",
   f"{code} {out} {err}")
ok(strict["without_degenerate"]["overall"]["problems"] == 3, "the degenerate problem can be left out", out)
ok([w["id"] for w in summary["not_correct"]] == ["level1/10_Narrow", "level2/2_Huge"],
   "what is not correct is listed", out)
speed = [r["verdicts"]["strict"]["speedup"]["eager"]["mid"] for r in lines("all") if "verdicts" in r]
mean = 1.0
for s in speed:
    mean *= s
ok(abs(strict["all"]["overall"]["eager"]["geomean_all"] - mean ** (1 / 4)) < 1e-9,
   "a failure counts as 1.0 in the mean over all", out)

# ---- The page, of one and of two side by side

page = os.path.join(TMP, "page.html")
code, out, err = run([WW, "report", os.path.join(TMP, "all"), "-o", page])
html = get(page) if code == 0 else ""
ok(code == 0 and all(t in html for t in ("level1/1_Scale", "aten.to.dtype", "WW_KERNEL", "element by element",
                                         "95% intervals", "CUDA Agent", good["profile"][:40].replace("&", "&amp;"))),
   "the page shows problems, failures, kernels, families, reasons and the field", f"{code} {err} {html[:2000]}")
ok(not any(t in html for t in ("http://", "https://", "<script", "<img", "<link")), "and loads nothing", html[:500])
code, out, err = run([WW, "report", *paths, "-o", page])
ok(code == 0 and "2 evaluations" in get(page) and "first, level 1" in get(page) and "second, level 1" in get(page),
   "several runs stand side by side", f"{code} {err}")
code, out, err = run([WW, "report", paths[0], TMP, "-o", page])
ok(code in (2, 3) and err.count("\n") == 1 and "run.json" in err, "what is no evaluation beside one is one line",
   f"{code} {err}")

# ---- Others' solutions: those of the first run

if ALL:
    code, out, err = run(command("others", "--solutions", paths[0], "--level", "1"))
    again = {r["id"]: r for r in lines("others")}
    ok(f"{suite} by {paths[0]} on " in out, "the summary names their directory", out)
    ok(code == 0 and again["level1/1_Scale"]["verdicts"]["strict"]["correct"]
       and again["level1/10_Narrow"]["why"] == "no solution was given",
       "solutions that lie in a directory are evaluated without a policy", f"{code} {out} {err} {again}")

# ---- The best of two answers, of which none is right

wrong = f"```c kernels.c\n{WRONG}```\n```c plan.c\n{PLAN}```\n"
header = {"type": "header", "version": 1, "task": {"path": "x", "id": "x"}, "target": "cpu", "device": "",
          "policy": "hand", "seed": 0,
          "rule": "strict", "versions": {}, "started": "2026-01-01T00:00:00Z"}
said = {"type": "message", "turn": 1, "t": 0, "role": "assistant", "text": wrong, "finish": "stop", "calls": []}
replay = "replay:" + put("wrong.jsonl", "".join(json.dumps(x) + "\n" for x in (header, said)))
if ALL:
    # Neither is right, so none is timed, and a busy machine may take its time for the draws of both.
    code, out, err = run(command("best", "--suite", suite + "#level1/1_Scale", "--samples", "2", "--policy", replay,
                                 "--max-gpu-seconds", "20"))
    both = {"verdicts": {"strict": {"status": "none"}}, **lines("best")[0]}
    ok(code == 0 and len(both["episodes"]) == 2 and both["verdicts"]["strict"]["status"] == "mismatch"
       and "mismatch" in out,
       "two episodes of one problem of a set; of wrong answers the verdict says why", f"{code} {out} {err} {both}")

# ---- What is refused

other = shutil.copytree(paths[1], os.path.join(TMP, "other"))
about = json.loads(get(other, "run.json"))
shutil.rmtree(os.path.join(other, "problems"))
put("other/run.json", json.dumps({**about, "config": {**about["config"], "policy": "hand"}}))
for what, argv, meant in (
        ("an unknown suite", [WW, "eval", "--suite", "kernelbunch"], "examples-cpu"),
        ("no suite", [WW, "eval"], "--suite"),
        ("a wrong slice", command("x", "--slice", "3/2"), "--slice takes I/N"),
        ("GPUs for the cpu target", command("x", "--devices", "0,1"), "--devices names GPUs"),
        ("a level that is not there", command("x", "--level", "9"), "no problem of level 9"),
        ("solutions that are nowhere", command("x", "--solutions", "nowhere"), "there is no directory nowhere"),
        ("a folder without a solution of the suite", command("x", "--solutions", other), "holds no solution of the 4"),
        ("another limit", command("first", "--slice", "1/2", "--max-time-seconds", "0.7"), ", not 0.7\n"),
        ("another policy in the same directory", command("first", "--slice", "1/2", "--policy", replay), "policy is"),
        ("a policy that cannot be had", command("x", "--policy", "replay:x"), "cannot open x"),
        ("merging what is no part of one evaluation", [WW, "eval", "--merge", paths[0], other,
                                                       "-o", os.path.join(TMP, "y")], "not parts of one evaluation"),
        ("a directory that cannot be made", command("suite/level1/1_Scale.py/x"), "1_Scale.py")):
    code, out, err = run(argv)
    ok(code in (2, 3) and meant in err and err.count("\n") == 1 and not out, f"{what} is one line",
       f"{code} {out} {err}")
ok(not os.path.exists(os.path.join(TMP, "x")) and not os.path.exists(os.path.join(TMP, "y")), "and leaves no directory")
ok(not orphans(), "no process is left behind", orphans())
done()
