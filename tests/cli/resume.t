#!/usr/bin/env python3
# timeout: 900
"""`optimize` interrupted by Ctrl-C and by kill -9, of itself and of its workers, and gone on with: the end is the same."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from optimizing import *  # noqa: F403,E402

replay = ("--policy", f"replay:{quick}")

# ---- Interrupted and gone on with


def run_until(out, n_lines, how):
    """Start, wait until the record has so many lines (0: until the directory is there, so work has begun), send the signal."""
    p = subprocess.Popen(command(task, out, *replay), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while p.poll() is None and (len(lines_of(out)) < n_lines or not os.path.exists(os.path.join(out, "task.py"))):
        time.sleep(0.002)
    if p.poll() is None:
        p.send_signal(how)
    stdout, stderr = p.communicate(timeout=60)
    return p.returncode, stdout, stderr


first = os.path.join(TMP, "first")
code, out, err = run(command(task, first, *replay))
ok(code == 1 and episode(first)[-1].get("reason") == "submitted", "an undisturbed run, to compare with", out + err)
total = len(lines_of(first))

where = os.path.join(TMP, "early")
code, out, err = run_until(where, 0, signal.SIGINT)
ok(code == 3 and err.count("\n") == 1 and "interrupted" in err, "Ctrl-C before the run began ends in one line", f"{code}\n{err}")
ok(not os.path.exists(where), "and leaves no directory")
ok(not orphans(), "and no process", orphans())

# One run, disturbed three times: each time it must go on where it was, and what is the best must stay whole.
where = os.path.join(TMP, "thrice")
for how, name, moment in ((signal.SIGKILL, "kill -9", 9), (signal.SIGINT, "Ctrl-C", 12), (signal.SIGKILL, "kill -9", total - 1)):
    had = len(lines_of(where))
    moment = max(moment, had + 1)  # the signal before may have come some lines late
    code, out, err = run_until(where, moment, how)
    if how == signal.SIGINT:
        ok(code == 3 and err.count("\n") == 1 and "interrupted" in err, f"{name} at line {moment} ends in one line", f"{code}\n{err}")
        ok("go on with" in out, f"{name} at line {moment} says how to go on", out)
    ok(not orphans(), f"{name} at line {moment} leaves no process", orphans())
    ok(len(lines_of(where)) >= moment, f"{name} at line {moment} came when the run had gone on", f"{had} {len(lines_of(where))} of {total}")
    had_best = os.path.exists(os.path.join(where, "verdict.json"))
    ok(not had_best or get(where, "solution", "kernels.c") == RIGHT, f"{name} at line {moment}: the best so far is whole")
code, out, err = run(command(task, os.path.join(TMP, "typo"), *replay, "--resume"))
ok(code == 2 and err.count("\n") == 1 and "holds no run" in err and not os.path.exists(os.path.join(TMP, "typo")), "--resume begins no new run", err)
code, out, err = run(command(task, where, *replay, "--resume"))
ok(code == 1 and essence(where) == essence(first), "gone on with after all three, the run ends the same",
   f"{code}\n{out}\n{err}\n" + "\n".join(str(x)[:200] for x in essence(where)))
ok(had_best and get(where, "solution", "kernels.c") == RIGHT, "and the best solution is there")

# ---- A worker is killed


def kill_worker(what, out):
    """Run; once the record has its 9th line, kill the child whose command line has `what` in it."""
    p = subprocess.Popen(command(task, out, *replay), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while p.poll() is None and len(lines_of(out)) < 9:
        time.sleep(0.002)
    victims = [c for c in children_of(p.pid) if what in command_line(c)]
    for c in victims[:1]:
        os.kill(int(c), signal.SIGKILL)
    stdout, stderr = p.communicate(timeout=120)
    return p.returncode, len(victims), stdout, stderr


for what in ("worker.py", "__runner"):
    where = os.path.join(TMP, what.strip("_").replace(".", ""))
    code, victims, out, err = kill_worker(what, where)
    # A runner that is killed looks like a candidate that died: that one verdict says so, and the next ones are right.
    same = essence(where)[-1] == essence(first)[-1] if what == "__runner" else essence(where) == essence(first)
    ok(victims and code == 1 and same and get(where, "solution", "kernels.c") == RIGHT,
       f"kill -9 of {what}: the run goes on to the same end", f"{code} {victims}\n{out}\n{err}")

done()
