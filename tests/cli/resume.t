#!/usr/bin/env python3
# budget: 12 CPU-seconds, all 16
# timeout: 900
# all: one more kill, at the end of the record; the runner is killed
"""`optimize` interrupted by Ctrl-C and by kill -9, of itself and of its workers, and resumed: the result is the
same.  The interrupted run is a replay of a run's own record.  Nothing is timed against PyTorch, so no closing
judgement is repeated, and the exit code is 0 if the solution is correct."""
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from optimizing import *  # noqa: F403,E402

# ---- Interrupted and gone on with


def resumable(out, *more):
    return command(task, out, *(more or replay), "--baselines", "")


def kill_child(pid, what):
    """Kill the child whose command line has `what` in it; how many there are."""
    victims = [c for c in children_of(pid) if what in command_line(c)]
    for c in victims[:1]:
        os.kill(c, signal.SIGKILL)
    return len(victims)


def run_until(out, n_lines, how, victim="", victim_at=0):
    """Start, wait until the record has so many lines (0: until the directory is there, so work has begun), send the
    signal (None: let it end).  A child that is called `victim` is killed once the record has `victim_at` lines, and is
    outlived by three at least."""
    p = subprocess.Popen(resumable(out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    victims = 0
    while p.poll() is None and (len(lines_of(out)) < n_lines or not os.path.exists(os.path.join(out, "task.py"))
                                or (victim and not victims)):
        had = len(lines_of(out))
        if victim and not victims and had >= victim_at:
            victims = kill_child(p.pid, victim)
            n_lines = max(n_lines, had + 3)
        time.sleep(0.03)
    if p.poll() is None and how:
        p.send_signal(how)
    stdout, stderr = p.communicate(timeout=120)
    return p.returncode, victims, stdout, stderr


def words(err):
    """Standard error without the steps of over 2 s, which come where the machine is busy."""
    return re.sub(r"^ *\d+\.\d s  .*\n", "", err, flags=re.M)


first = os.path.join(TMP, "first")
code, out, err = run(resumable(first, "--policy", f"replay:{quick}"))
ok(code == 0 and episode(first)[-1].get("reason") == "submitted",
   "an undisturbed run, to compare with", out + err)
ok("correct by rule strict" in out and "\033" not in out and "\r" not in out,
   "it ends with a table, and nothing is drawn where no terminal is", out)
total = len(lines_of(first))
# All others replay its record: a replay has the same messages, solutions and correctness.
replay = ("--policy", f"replay:{first}/episode.jsonl")

where = os.path.join(TMP, "early")
code, _, out, err = run_until(where, 0, signal.SIGINT)
ok(code == 3 and words(err).count("\n") == 1 and "interrupted" in err, "Ctrl-C before the run began ends in one line",
   f"{code}\n{err}")
ok(not os.path.exists(where), "and leaves no directory")
ok(not orphans(), "and no process", orphans())

# One run, disturbed three times, with "all" four: each time it must go on where it was, and what is the best must stay
# whole.  First its reference worker is killed, which it must outlive by some lines.
where = os.path.join(TMP, "thrice")
DISTURBED = [(signal.SIGKILL, "kill -9", 12, "worker.py"), (signal.SIGINT, "Ctrl-C", 14, "")]
if ALL:
    DISTURBED.append((signal.SIGKILL, "kill -9", total - 1, ""))
for how, name, moment, victim in DISTURBED:
    had = len(lines_of(where))
    moment = max(moment, had + 1)  # the signal before may have come some lines late
    code, victims, out, err = run_until(where, moment, how, victim, 5)
    if victim:
        ok(victims, f"{victim} was killed when the record had a few lines")
    if how == signal.SIGINT:
        ok(code == 3 and words(err).count("\n") == 1 and "interrupted" in err,
           f"{name} at line {moment} ends in one line", f"{code}\n{err}")
        ok("go on with" in out and ("no correct" not in out or "found before the interruption" in out),
           f"{name} at line {moment} says how to go on", out)
    ok(not orphans(), f"{name} at line {moment} leaves no process", orphans())
    ok(len(lines_of(where)) >= moment, f"{name} at line {moment} came when the run had gone on",
       f"{had} {len(lines_of(where))} of {total}")
    had_best = os.path.exists(os.path.join(where, "verdict.json"))
    ok(not had_best or get(where, "solution", "kernels.c") == RIGHT,
       f"{name} at line {moment}: the best so far is whole")
code, out, err = run(resumable(os.path.join(TMP, "typo"), *replay, "--resume"))
ok(code == 2 and err.count("\n") == 1 and "holds no run" in err and not os.path.exists(os.path.join(TMP, "typo")),
   "--resume begins no new run", err)
empty = os.path.join(TMP, "empty")
os.mkdir(empty)
code, out, err = run(resumable(empty, *replay, "--resume"))
ok(code == 2 and os.listdir(empty) == [], "and leaves nothing in a directory that was there", err)
code, out, err = run(resumable(where, *replay, "--resume"))
ok(code == 0 and essence(where) == essence(first),
   "gone on with after all of them, the run ends the same",
   f"{code}\n{out}\n{err}\n" + "\n".join(str(x)[:200] for x in essence(where)))
ok((had_best or not ALL) and get(where, "solution", "kernels.c") == RIGHT,
   "and the best solution is there")

# ---- The runner is killed: it looks like a candidate that died.  That one verdict says so, and the next ones are
# right.  As a command's own failure: tests/cli/judge_cpu.t.

if ALL:
    where = os.path.join(TMP, "runner")
    code, victims, out, err = run_until(where, total, None, "__runner", 9)
    ok(victims and code == 0 and essence(where)[-1] == essence(first)[-1]
       and get(where, "solution", "kernels.c") == RIGHT,
       "kill -9 of __runner: the run goes on to the same end", f"{code} {victims}\n{out}\n{err}")

done()
