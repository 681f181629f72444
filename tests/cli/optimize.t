#!/usr/bin/env python3
# budget: 12 CPU-seconds
# timeout: 900
"""`optimize` from end to end on the cpu target, with a recorded policy: what it leaves behind, what it shows on a
terminal, and one clear line for everything that can be wrong with the input."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from optimizing import *  # noqa: F403,E402
from terminal import on_terminal  # noqa: E402

replay = ("--policy", f"replay:{hand}")


# ---- A whole run, on a terminal

first = os.path.join(TMP, "first")
# A policy may call a tool by any name: this one would clear the screen and set the window's title.
loud = put("loud.jsonl", get(hand).replace('"name": "inspect"', r'"name": "f\u001b[2J\u009b31m\u001b]0;x\u0007ly"'))
code, seen, err = on_terminal(command(task, first, "--policy", f"replay:{loud}"))
ok("2J" in seen and not [c for c in ("\x1b[2J", "\x9b", "\x1b]0", "\x07") if c in seen],
   "no control character of a policy reaches the terminal", seen)
out = seen.split("\033[K")[-1]
ok(code == exit_code_of(first) and not err, "timed against eager alone, the exit code says whether it beats eager",
   f"{code}\n{out}\n{err}")
ok("of at most 2 without compile as a baseline" in out, "and the summary that 2 is the most to be earned", out)
drawn = [d.split("\033[K")[0] for d in seen.split("\r") if "\033[K" in d]
ok(len(drawn) > 5, "on a terminal one line is drawn again and again", seen)
ok(any("turn" in d and "best" in d and "x eager" in d for d in drawn),
   "it shows the turn and the best with its interval", drawn[-3:])
ok(max(map(len, drawn)) < 80, "it never wraps", max(drawn, key=len))
ok(all(any(step in d for d in drawn) for step in ("importing PyTorch", "references for draw 5 of 5",
                                                  "timing the solution")),
   "the step under way is visible in 80 columns", drawn)
ok("correct by rule strict" in out and "eager" in out, "and makes room for a table", out)
ok(get(first, "solution", "kernels.c") == RIGHT and get(first, "solution", "plan.c") == PLAN,
   "solution/ holds the correct one")
verdict = json.loads(get(first, "verdict.json"))
ok(verdict["correct"] is True and verdict["status"] == "ok" and verdict["time"]["device_us"] > 0,
   "verdict.json is about it")
page = get(first, "report.html") if os.path.exists(os.path.join(first, "report.html")) else ""
ok(f"{verdict['time']['device_us']:.1f}" in page and "x<small>[" in page and "<svg" in page and "report.html" in out,
   "report.html is there and holds the table", page[:3000])
ok(get(first, "task.py") == TASK, "the task is kept beside it")
told = next(line for line in episode(first) if line["type"] == "message")["text"]
ok("more than 5% faster than eager PyTorch, by" in told and "2 is the most here: torch.compile is no baseline" in told,
   "the policy is told what it can earn without compile as a baseline", told[:800])
end = episode(first)[-1]
ok(end["type"] == "end" and end["reason"] == "submitted" and end["best"] == verdict["solution_id"],
   "the episode is whole", end)
statuses = [line["verdict"]["status"] for line in episode(first) if line["type"] == "verdict"]
ok(statuses[1] == "mismatch" and statuses[2] == "ok", "the wrong one was found wrong, the right one right", statuses)
ok(not [n for n in os.listdir(first) if n.startswith(".") or "tmp" in n or "new" in n], "no half-written file is left")
ok(not orphans(), "no process is left", orphans())

os.remove(os.path.join(first, "report.html"))
os.mkdir(os.path.join(first, "report.html"))
start = time.monotonic()
same = put("set.jsonl", json.dumps({"id": "soft", "code": TASK}) + "\n") + "#soft"
code, out, err = run(command(same, first, *replay))
ok(code == exit_code_of(first) and "finished run" in out and time.monotonic() - start < 3,
   "a finished run is shown again at once", out + err)
ok(err.count("\n") == 1 and "report.html was not written" in err and "report.html" not in out
   and "correct by rule" in out,
   "a page that cannot be written is one line and changes nothing else", out + err)

# A run whose only solution is wrong: its record up to that verdict, and an end.
lines = episode(first)
wrong = next(i for i, line in enumerate(lines) if line["type"] == "verdict" and line["verdict"]["status"] == "mismatch")
lost = {**lines[-1], "reward_final": -1, "reward_best": -1, "best": ""}
os.mkdir(os.path.join(TMP, "lost"))
put("lost/episode.jsonl", "".join(json.dumps(line) + "\n" for line in [*lines[:wrong + 1], lost]))
code, out, err = run(command(same, os.path.join(TMP, "lost"), *replay))
ok(code == 1 and "no correct solution was found" in out and "the judge's last words: mismatch: output 0" in out,
   "where no solution is correct the summary says what the judge said of the last", out + err)
p = subprocess.run([WW, "export", os.path.join(TMP, "lost")], capture_output=True, text=True, timeout=60)
ok(p.returncode == 2 and "found no correct solution" in p.stderr, "and there is nothing to export", p.stderr)

# ---- Bad input


def refused(what, argv, want_code, *says):
    code, out, err = run(argv)
    good = code == want_code and err.count("\n") == 1 and "Traceback" not in err and all(s in err for s in says)
    ok(good, what, f"exit code {code}, expected {want_code}\n{err}")


def bad(what, task_file, want_code, *says):
    where = os.path.join(TMP, "never")
    refused(what, command(task_file, where, *replay), want_code, *says)
    if os.path.exists(where):
        ok(False, f"{what}: leaves no directory behind", os.listdir(where))
        shutil.rmtree(where)


bad("a missing file", os.path.join(TMP, "nowhere.py"), 2, "nowhere.py")
bad("an empty file", put("empty.py", ""), 2, "empty.py")
bad("a directory", TMP, 2)
bad("a file with a syntax error", put("syntax.py", "def f(:\n"), 2, "line 1")
bad("a file that is no task", put("other.py", "x = 1\n"), 2, "Model")
bad("a missing package", put("package.py", "import no_such_package_here\n" + TASK), 2, "no_such_package_here")
# What PyTorch must be started to refuse: every kind in tests/unit/task/test_ref.c, in one worker's life; as a command
# in inspect.t.
uncovered = put("inverse.py", "import time\ntime.sleep(2.6)\n" + TASK.replace("torch.softmax(x * 0.5, dim=-1)",
                                                                              "torch.linalg.inv(x)").replace(
                                                                                  "16, 1000", "64, 64"))
p = subprocess.run(command(uncovered, os.path.join(TMP, "uncovered"), "--policy", "planner"), capture_output=True,
                   text=True, timeout=250)
code, out, err = p.returncode, p.stdout, without_steps(p.stderr)
ok(re.search(r"^ *\d+\.\d s  (importing PyTorch|loading the task)$", p.stderr, re.M),
   "into a pipe a step of over 2 s is a line on standard error", p.stderr)
ok(code == 1 and not err and "no correct solution" in out and "linalg_inv" in out and "verdict.json" not in out,
   "an operator that the planner does not cover is named: exit code 1", f"{code}\n{out}\n{err}")
never = os.path.join(TMP, "never2")
refused("an unknown policy", command(task, never, "--policy", "oracle"), 2, "oracle", "planner[:no-algebra]",
        "planner+DIR", "replay:FILE")
refused("a replay without a file", command(task, never, "--policy", "replay"), 2, "replay:FILE")
refused("a replay of a missing file", command(task, never, "--policy", "replay:/nowhere.jsonl"), 2, "/nowhere.jsonl")
refused("--no-algebra without the planner", command(task, never, "--no-algebra", *replay), 2, "about the planner")
refused("an unknown baseline", command(task, never, "--baselines", "eager,fast"), 2, "fast")
refused("an unknown format", command(task, never, "--formats", "torch,onnx"), 2, "onnx")
refused("zero turns", command(task, never, "--max-turns", "0"), 2, "max-turns")
refused("another task's directory", command(put("task2.py", TASK + "\n"), first, *replay), 2, "another task")
part = os.path.join(TMP, "part")
os.mkdir(part)
put("part/episode.jsonl", "".join(line + "\n" for line in lines_of(first)[:5]))
refused("another policy's run", command(task, part, "--policy", f"replay:{first}/episode.jsonl"), 2, "another policy")
os.mkdir(os.path.join(TMP, "mine"))
put("mine/letter.txt", "dear")
refused("a directory that holds something else", command(task, os.path.join(TMP, "mine"), *replay), 2, "letter.txt")
ok(os.listdir(os.path.join(TMP, "mine")) == ["letter.txt"], "and it is left as it was")
refused("an output directory that is a file", command(task, task, *replay), 3, "soft.py")
refused("an output directory that cannot be made", command(task, "/proc/ww-out", *replay), 3, "/proc/ww-out")
ok(not os.path.exists(never), "no directory is left by a run that did not begin")
if os.path.exists("/dev/nvidiactl"):
    skip("no GPU with --target cuda", "there is a GPU")
else:
    refused("no GPU with --target cuda", [WW, "optimize", task, "--target", "cuda", "-o", never], 3, "--target cpu")

small = os.path.join(TMP, "small")
os.mkdir(small)
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", small], capture_output=True).returncode:
    skip("a full output directory", "this system lets us mount no small file system")
else:
    try:
        code, out, err = run(command(task, os.path.join(small, "out"), *replay))
        ok(code == 3 and err.count("\n") == 1 and "o space left" in err, "a full output directory is one line",
           f"{code}\n{err}")
        last = lines_of(os.path.join(small, "out"))
        ok(all(json.loads(line) for line in last), "and the record that fitted is whole", last[-1:])
    finally:
        subprocess.run(["umount", small], check=False)

done()
