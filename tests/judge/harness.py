"""Runs `warpwright judge` on small solutions and compares the verdict with what must come out.

A case is a task, a kernels file, a plan.c, the status, a word that the diagnostics must hold, and options.  judge_cpu.t
and judge_selftest.sh hold the cases.  $WARPWRIGHT is the binary, $WW_SOURCE_DIR the source tree."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("WARPWRIGHT") or os.path.join(SOURCE, "build/warpwright")

ADD_TASK = """import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(COLS))
    def forward(self, x):
        return torch.relu(x + self.bias) * 2
def get_inputs():
    return [torch.randn(ROWS, COLS)]
def get_init_inputs():
    return []
"""
LINEAR_TASK = """import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(COLS, OUT)
    def forward(self, x):
        return torch.relu(self.fc(x))
def get_inputs():
    return [torch.randn(ROWS, COLS)]
def get_init_inputs():
    return []
"""
# y = relu(x W^T + b) by one library node; MATH is to be replaced.
LINEAR_PLAN = """#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *w = ww_param(p, "fc.weight"), *b = ww_param(p, "fc.bias"), *y = ww_output(p, 0);
	struct ww_gemm g = { .m = x->size[0], .n = w->size[0], .k = x->size[1], .batch = 1, .alpha = 1,
			     .a = { .buf = x->buf, .dtype = WW_F32, .ld = x->size[1] },
			     .b = { .buf = w->buf, .dtype = WW_F32, .trans = 1, .ld = w->size[1] },
			     .d = { .buf = y->buf, .dtype = WW_F32, .ld = w->size[0] },
			     .math = MATH, .epilogue = WW_EPI_BIAS_RELU, .bias_buf = b->buf, .workspace_bytes = 32 << 20 };
	ww_gemm(p, &g);
}
"""


def add_task(rows, cols):
    return ADD_TASK.replace("ROWS", str(rows)).replace("COLS", str(cols))


def linear_task(rows, cols, out):
    return LINEAR_TASK.replace("ROWS", str(rows)).replace("COLS", str(cols)).replace("OUT", str(out))


def need_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        print("1..0 # SKIP no NVIDIA driver")
        sys.exit(77)


def stream(target, jobs, *options, limit_s=280):
    """One `judge --batch` over jobs, each with an id: (result, seconds since its start) as they end, then an error for
    each id without."""
    env = dict(os.environ, WARPWRIGHT_HOME=os.environ.get("WARPWRIGHT_HOME", SOURCE))
    start, left, stderr = time.monotonic(), {job["id"] for job in jobs}, []
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    p = subprocess.Popen([BINARY, "judge", "--batch", "-", "--target", target, *options], env=env, text=True,
                         stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    clock = threading.Timer(limit_s, p.kill)
    pipes = [threading.Thread(target=lambda: stderr.append(p.stderr.read())),
             threading.Thread(target=lambda: (p.stdin.write(lines), p.stdin.close()))]
    for t in (clock, *pipes):
        t.start()
    for line in p.stdout:
        result = json.loads(line)
        left.discard(result["id"])
        yield result, time.monotonic() - start
    p.wait()
    clock.cancel()
    for t in pipes:
        t.join()
    for name in left:
        yield {"id": name, "error": f"no answer, exit {p.returncode}: {stderr[0][-400:]}"}, time.monotonic() - start


class Harness:
    def __init__(self, target):
        self.target = target
        self.dir = tempfile.TemporaryDirectory(prefix="warpwright-test-")
        self.env = dict(os.environ, WARPWRIGHT_HOME=os.environ.get("WARPWRIGHT_HOME", SOURCE))

    def write(self, name, text):
        path = os.path.join(self.dir.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        return path

    def command(self, name, task, kernels, plan, options):
        task_path = self.write(f"{name}/task.py", task)
        self.write(f"{name}/kernels.{'cu' if self.target == 'cuda' else 'c'}", kernels)
        self.write(f"{name}/plan.c", plan)
        return [BINARY, "judge", task_path, os.path.dirname(task_path), "--target", self.target, "--json", *options]

    def judge(self, name, task, kernels, plan, options=()):
        """(verdict or None, exit code, stderr, seconds)"""
        start = time.monotonic()
        done = subprocess.run(self.command(name, task, kernels, plan, options), env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=280)
        seconds = time.monotonic() - start
        try:
            verdict = json.loads(done.stdout)
        except ValueError:
            verdict = None
        return verdict, done.returncode, done.stderr.strip(), seconds


def problem(verdict, code, stderr, status, word):
    """What is wrong with an answer, or ""."""
    if verdict is None:
        return f"no verdict, exit {code}: {stderr[:400]}"
    if verdict["status"] != status:
        return f"status {verdict['status']}, not {status}: {verdict['diagnostics'][:400]}"
    if code != (0 if status == "ok" else 1):
        return f"exit code {code}"
    if verdict["correct"] != (status == "ok") or (verdict["reward"] > 0) != (status == "ok"):
        return f"correct {verdict['correct']} and reward {verdict['reward']} with status {status}"
    if word not in verdict["diagnostics"]:
        return f"no \"{word}\" in: {verdict['diagnostics'][:400]}"
    return ""


def summary(verdict):
    t = verdict["time"]["device_us"]
    if t is None:
        repeats = f"{verdict['nondeterministic']} of {verdict['repeats']} repeats with other bits  " if verdict[
            "repeats"] else ""
        return repeats + (verdict["diagnostics"].strip().split("\n") or [""])[0][:120]
    ratios = " ".join(f"{b} {r['mid']:.3f}x[{r['lo']:.3f},{r['hi']:.3f}]" for b, r in verdict["speedup"].items() if r)
    call = verdict["time"]["call_us"]
    ratios += "" if call is None else f"  call {call:.1f} us"
    ratios += f"  DISTURBED: {verdict['disturbance']}" if verdict["disturbed"] else ""
    return f"{t:.1f} us  {ratios}  err {verdict['err_rel']:.2g}  reward {verdict['reward']:g}"
