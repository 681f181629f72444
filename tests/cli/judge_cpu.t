#!/usr/bin/env python3
# budget: 6 CPU-seconds, all 14
# all: the reference worker is killed in a judgement by rule paper
# timeout: 600
"""`warpwright judge` on the cpu target as a command: a whole verdict, rules, a killed runner, exit codes.

Wrong solutions and faults one by one are in tests/unit/judge/test_judge_cpu.c, where one reference worker serves them
all."""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ALL, finish, need_pytorch, ok  # noqa: E402

root = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "tests/judge"))
from harness import BINARY, Harness, add_task, problem  # noqa: E402

need_pytorch()

h = Harness("cpu")
TASK = add_task(67, 1000)
PLAN = """#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *b = ww_param(p, "bias"), *y = ww_output(p, 0);
	int s = ww_scratch(p, 4096);
	ww_launch(p, "k", x->size[0], 1, 1, 1, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, b->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_buf(p, s, 0);
	ww_arg_i64(p, x->size[1]);
}
"""


def kernel(body, head=""):
    return ("#include <ww/cpu.h>\n" + head + """
WW_KERNEL(k)
{
	const float *x = WW_ARG(const float *, 0), *bias = WW_ARG(const float *, 1);
	float *y = WW_ARG(float *, 2), *scratch = WW_ARG(float *, 3);
	long long n = WW_ARG(long long, 4), row = b->x;
	(void)scratch;
	""" + body + "\n}\n")


def loop(value, to="n"):
    return f"for (long long i = 0; i < {to}; i++) {{ float v = {value}; y[row * n + i] = v > 0 ? 2 * v : 0; }}"


HONEST = loop("x[row * n + i] + bias[i]")


def children(pid, word):
    """Processes below pid whose command line holds the word, and that use the processor."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{entry}/cmdline") as f:
                line = f.read()
            with open(f"/proc/{entry}/stat") as f:
                ticks = int(f.read().rsplit(")", 1)[1].split()[11])
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid and word in line:
            found.append((int(entry), ticks))
    return found


def descendants(pid):
    """{pid: start time} of everything below pid now."""
    below, table = {}, {}
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(entry)}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            table[int(entry)] = (int(fields[1]), fields[19], fields[0])
        except (OSError, ValueError, IndexError):
            continue
    grown = True
    while grown:
        grown = False
        for child, (parent, started, _) in table.items():
            if child not in below and (parent == pid or parent in below):
                below[child] = started
                grown = True
    return below


def survivors(seen):
    """Those of seen that still run, some seconds later."""
    deadline = time.monotonic() + 10
    while True:
        left = []
        for pid, started in seen.items():
            try:
                with open(f"/proc/{pid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                if fields[19] == started and fields[0] != "Z":
                    left.append(pid)
            except (OSError, IndexError):
                pass
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


# A whole verdict, with times.  Rule strict finds a small error that paper lets pass (below); device code that does not
# compile is a verdict. A kill -9 of the runner is the candidate's crash, and no other's.  One process judges them with
# one reference worker; what the command does with one solution alone is looked at below.
small = kernel(loop("1.0005f * x[row * n + i] + bias[i]"))
endless = kernel("for (volatile long long i = 0; i < 20000000000ll; ) i++;")
task = h.write("batch.py", TASK)
p = subprocess.Popen([BINARY, "judge", "--batch", "-", "--target", "cpu", "--baselines", "eager", "--max-time-seconds",
                      "0.5", "--max-run-seconds", "60",
                      "--threads", "1"],
                     env=h.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def feed(**jobs):
    """{id: (kernels, members of the job)} to the batch, and the verdicts: {id: verdict}."""
    for name, (kernels, members) in jobs.items():
        p.stdin.write(json.dumps({"id": name, "task": task, "solution": {"kernels": kernels, "plan": PLAN},
                                  "depth": "verify", **members}) + "\n")
    p.stdin.flush()
    return lambda: {r["id"]: r.get("verdict") for r in (json.loads(p.stdout.readline()) for _ in jobs)}


all_of_them = feed(full=(kernel(HONEST), {"depth": "full"}), strict=(small, {}), broken=(kernel("syntax error"), {}))()
v = all_of_them.get("full")
why = problem(v, 0, "", "ok", "")
if not why:
    t = v["time"]["device_us"]
    if not (t and v["time_device"]["lo"] <= t <= v["time_device"]["hi"]):
        why = f"time {v['time']} and interval {v['time_device']}"
    elif v["draws"] < 5 or v["checked_calls"] < 8 or v["device_method"] != "clock":
        why = f"{v['draws']} draws, {v['checked_calls']} timed calls checked, method {v['device_method']}"
    elif not v["speedup"]["eager"]["lo"] <= v["speedup"]["eager"]["mid"] <= v["speedup"]["eager"]["hi"]:
        why = f"speedup {v['speedup']}"
    elif v["baselines"]["compile"] is not None or v["reward"] not in (1, 2):
        why = f"a baseline that nobody asked for, or reward {v['reward']}"
ok(not why, "a full verdict has times, intervals and checked calls", why)
errors = [(v["err_rel"], v["eager_err_rel"], v["eager_err_abs"]) for v in map(all_of_them.get, ("full", "strict"))]
ok(0 < errors[0][1] < 1e-6 and 1e-6 < errors[0][2] < 1e-3 and errors[0][0] < 1e-6 and
   errors[1][0] > 1e-4 and errors[1][1] < 1e-6, "beside a solution's error stands PyTorch's own", errors)

for name, status, word, what in (("strict", "mismatch", "limit", "rule strict does not take an error of 5e-4"),
                                 ("broken", "compile_failed", "error",
                                  "device code that does not compile is a verdict")):
    why = problem(all_of_them.get(name), 1, "", status, word)
    ok(not why, what, why)

answer = feed(killed=(endless, {}))
victim, seen = None, {}
deadline = time.monotonic() + 120
while not victim and time.monotonic() < deadline and p.poll() is None:
    busy = [pid for pid, ticks in children(p.pid, "__runner") if ticks > 30]
    victim = busy[0] if busy else None
    seen.update(descendants(p.pid))
    time.sleep(0.1)
if victim:
    os.kill(victim, signal.SIGKILL)
v = answer()["killed"]
why = problem(v, 1, "", "crashed", "")
ok(victim and not why, "a runner killed from outside is a crash", f"{victim} {why}")
v = feed(after=(kernel(HONEST), {}))()["after"]
why = problem(v, 0, "", "ok", "")
ok(not why, "and the next verdict is right", why)
out, err = p.communicate(timeout=120)
ok(p.returncode == 1 and not out, "a batch that holds a wrong one ends with exit code 1",
   f"{p.returncode} {out[:300]} {err[:300]}")
ok(len(seen) >= 4 and not survivors(seen), "no process is left", f"{seen} {survivors(seen)}")

# A kill -9 of the reference worker is nobody's verdict: it is started again and the judgement repeated.  Here by rule
# paper.
if ALL:
    slow = kernel("for (volatile long long i = 0; i < 4000000ll; ) i++; " + loop("1.0005f * x[row * n + i] + bias[i]"))
    p = subprocess.Popen(h.command("lost", TASK, slow, PLAN, (
        "--rule", "paper", "--verify-only", "--baselines", "eager", "--max-run-seconds", "60", "--threads", "1")),
                         env=h.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killed, seen = None, {}
    deadline = time.monotonic() + 120
    while not killed and time.monotonic() < deadline and p.poll() is None:
        seen.update(descendants(p.pid))
        if [pid for pid, ticks in children(p.pid, "__runner") if ticks > 5]:
            for pid, _ in children(p.pid, "worker.py"):
                os.kill(pid, signal.SIGKILL)
                killed = pid
        time.sleep(0.05)
    out, err = p.communicate(timeout=200)
    ok(killed and p.returncode == 0 and '"correct":true' in out.replace(" ", ""),
       "a reference worker killed from outside is started again",
       f"{killed} {p.returncode} {out[:300]} {err[:300]}")
    ok('"rule":"paper"' in out.replace(" ", ""), "and rule paper takes an error of 5e-4", out[:300])
    ok(len(seen) >= 4 and not survivors(seen), "and leaves no process", f"{seen} {survivors(seen)}")

# Bad usage.
code = subprocess.run([h.command("usage", TASK, small, PLAN, ())[0], "judge", "/nonexistent.py", h.dir.name], env=h.env,
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE).returncode
ok(code == 2, "a task that is not there is exit code 2", code)
done = subprocess.run(h.command("baselines", TASK, small, PLAN, ("--baselines", "faster")), env=h.env,
                      stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE, text=True)
ok(done.returncode == 2 and "faster" in done.stderr, "an unknown baseline is exit code 2", done.stderr)
finish()
