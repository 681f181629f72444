#!/usr/bin/env python3
# budget: 10 CPU-seconds
# timeout: 600
"""`warpwright judge --batch`: jobs in every form, bad lines, the results file after kill -9 and after Ctrl-C, no
orphans.

Two processes and a few reference workers in all: the first is killed in the middle of a job, the second resumes and is
interrupted in the middle of another."""
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import command_line, descendants_of, finish, need_pytorch, ok  # noqa: E402
from terminal import on_terminal  # noqa: E402

root = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "tests/judge"))
from harness import BINARY, Harness, add_task  # noqa: E402

need_pytorch()

h = Harness("cpu")
PLAN = """#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *b = ww_param(p, "bias"), *y = ww_output(p, 0);
	ww_launch(p, "k", x->size[0], 1, 1, 1, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, b->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_i64(p, x->size[1]);
}
"""


def kernel(value, more=""):
    return f"""#include <ww/cpu.h>
WW_KERNEL(k)
{{
	const float *x = WW_ARG(const float *, 0), *bias = WW_ARG(const float *, 1);
	float *y = WW_ARG(float *, 2);
	long long n = WW_ARG(long long, 3), row = b->x;
	for (long long i = 0; i < n; i++) {{ float v = {value}; y[row * n + i] = v > 0 ? 2 * v : 0; }}
	{more}
}}
"""


GOOD = "x[row * n + i] + bias[i]"
task = h.write("task.py", add_task(67, 1000))
h.write("good/kernels.c", kernel(GOOD))
h.write("good/plan.c", PLAN)
results = os.path.join(h.dir.name, "results.jsonl")
OPTIONS = ["--verify-only", "--baselines", "eager", "--max-run-seconds", "100"]


def inline(kernels):
    return {"kernels": kernels, "plan": PLAN}


honest = {"id": "dir", "task": task, "solution": os.path.join(h.dir.name, "good")}
wrong = {"id": 2, "task": task, "target": "cpu", "solution": inline(kernel("x[row * n + i]"))}
crash = {"id": 3, "task": task, "target": "cpu", "solution": inline(kernel(GOOD, "*(volatile int *)0 = 0;"))}
compiles = {"id": 4, "task": task, "target": "cpu", "depth": "compile", "solution": inline(kernel(GOOD) + "// other\n")}
other = h.write("set.jsonl", json.dumps({"id": "other", "code": add_task(67, 1000) + "# another task\n"})
                + "\n") + "#other"
endless = {"id": "endless", "task": other, "target": "cpu",
           "solution": inline(kernel(GOOD, "for (volatile int i = 0; ; ) i++;"))}


def start(*more):
    return subprocess.Popen([BINARY, "judge", "--batch", "-", "-o", results, *OPTIONS, *more], env=h.env,
                            stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def feed(p, *jobs):
    for j in jobs:
        p.stdin.write((j if isinstance(j, str) else json.dumps(j)) + "\n")
    p.stdin.flush()


def take(p, n):
    return {r["id"]: r for r in (json.loads(p.stdout.readline()) for _ in range(n))}


def descendants(pid):
    return {p: command_line(p) for p in descendants_of(pid)}


def busy_runner(p):
    """Wait until a runner of the process has used processor time for a while: the endless kernel runs."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for pid, args in descendants(p.pid).items():
            try:
                ticks = sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:13]))
            except OSError:
                continue
            if "__runner" in args and ticks > 30:
                return True
        time.sleep(0.1)
    return False


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def survivors(seen):
    deadline = time.monotonic() + 10
    alive = seen
    while alive and time.monotonic() < deadline:
        alive = {pid: a for pid, a in alive.items() if runs(pid)}
        time.sleep(0.1)
    return alive


def lines():
    return [json.loads(line) for line in open(results)]


# Bad usage needs no worker.
done = subprocess.run([BINARY, "judge", task, honest["solution"], "--batch", "x"], env=h.env, capture_output=True,
                      text=True)
ok(done.returncode == 2 and "--batch" in done.stderr, "a batch beside a task is exit code 2", done.stderr)
done = subprocess.run([BINARY, "judge", "--batch", os.path.join(h.dir.name, "none")], env=h.env, capture_output=True,
                      text=True)
ok(done.returncode == 2, "a batch that is not there is exit code 2", done.stderr)

p = start("--open-tasks", "1")
feed(p, honest, {**compiles, "id": "b1", "task": other}, wrong, {**compiles, "id": "b2", "task": other}, compiles,
     {**compiles, "id": "b3", "task": other, "again": True})
first = take(p, 6)
statuses = {i: r.get("verdict", {}).get("status") for i, r in first.items()}
ok(statuses == {"dir": "ok", 2: "mismatch", 4: "ok", "b1": "ok", "b2": "ok", "b3": "ok"},
   "jobs given as directory and as text, at two depths", first)
ok(first["b2"].get("same_as") == "b1" and first["b2"]["verdict"] == first["b1"]["verdict"]
   and not any("same_as" in first[i] for i in ("dir", 2, 4, "b1", "b3")),
   "what has the content of another job is not judged again, and says so, unless it asks to be", first)
ok(first["dir"]["verdict"]["correct"] and not first[4]["verdict"]["correct"],
   "what was only compiled is not called correct", first)
ok(sum(r["opened_s"] > 0 for r in first.values()) == 2, "with room for one task, each of two is opened once", first)
second = subprocess.run([BINARY, "judge", "--batch", "-", "-o", results], env=h.env, input="", capture_output=True,
                        text=True)
ok(second.returncode == 2 and "another batch" in second.stderr, "a second batch may not write to the same file",
   second.stderr)
feed(p, endless)
running = busy_runner(p)
seen = descendants(p.pid)
p.send_signal(signal.SIGKILL)
p.wait()
ok(running and len(seen) >= 4 and not survivors(seen), "kill -9 leaves no process",
   f"{running} {seen} {survivors(seen)}")
ok({r["id"] for r in lines()} == set(first), "and every finished verdict", open(results).read())
with open(results, "a") as f:
    f.write('{"id":"cut","job":"0","verdict":{"cor')

p = start()
missing = {"id": "missing", "task": "/nonexistent.py", "solution": honest["solution"]}
feed(p, honest, wrong, compiles, "this is no job", {"id": 5, "task": task, "solution": honest["solution"],
                                                    "baseline_": 1}, "", missing,
     {"id": 6, "task": task, "solution": inline("")}, {"task": h.write("bad.py", "x = 1\n"),
                                                       "solution": honest["solution"]},
     {**honest, "solution": inline(kernel(GOOD)), "target": "cpu"}, crash)
bad = take(p, 6)
errors = {i: (r.get("exit"), r.get("error", "")) for i, r in bad.items() if "error" in r}
ok(errors[4][0] == 2 and "JSON" in errors[4][1] and "baseline_" in errors[5][1]
   and "/nonexistent.py" in errors["missing"][1] and
   "target" in errors[6][1] and "KernelBench form" in errors[9][1] and all(e[0] == 2 for e in errors.values()),
   "a bad line is one error line, and says why", bad)
ok(bad[3]["verdict"]["status"] == "crashed", "and the others go on; what the file has a verdict for is not done again",
   bad)
feed(p, {**endless, "task": task})
running = busy_runner(p)
seen = descendants(p.pid)
p.send_signal(signal.SIGINT)
out, err = p.communicate(timeout=60)
ok(running and p.returncode == 3 and not out, "Ctrl-C in the middle of a job: exit code 3, no line about it",
   f"{p.returncode} {out} {err}")
ok(not survivors(seen), "and no process is left", survivors(seen))
ok([r["id"] for r in lines() if "verdict" in r] == [r["id"] for r in first.values()] + [3] and "4 skipped" in err,
   "the cut line is gone, nothing is there twice", f"{open(results).read()} {err}")

done = subprocess.run([BINARY, "judge", "--batch", "-", "-o", results, *OPTIONS], env=h.env,
                      input="\n".join(map(json.dumps, (honest, wrong))),
                      capture_output=True, text=True)
ok(done.returncode == 1 and not done.stdout, "a batch of jobs that are done starts nothing and ends as they did",
   done.stderr)
done = subprocess.run([BINARY, "judge", "--batch", "-", "-o", results, *OPTIONS], env=h.env, input=json.dumps(honest),
                      capture_output=True, text=True)
ok(done.returncode == 0, "with exit code 0 where all are correct", done.stderr)
# On a narrow terminal the status line is cut, and gone where the last line stands.
shown = h.write("shown.jsonl", "".join(json.dumps({**compiles, "id": i, "solution": inline(kernel(GOOD) + f"// {i}\n")})
                                       + "\n" for i in range(3)))
code, seen, out = on_terminal([BINARY, "judge", "--batch", shown, "--parallel", "1", "--baselines", "eager"], "stderr",
                              50)
drawn = re.findall(r"([^\r\n\033]*)\033\[K(?!\r?\n)", seen)
ok(code == 1 and out.count("\n") == 3 and any("done:" in d for d in drawn) and max(map(len, drawn)) < 50
   and not drawn[-1],
   "the status line of a batch fits the terminal", [code, seen])
finish()
