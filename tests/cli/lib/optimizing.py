"""What the tests of `optimize` share: a small task, a hand-written solution, recorded policies, and looking at what is
left."""
import ctypes
import json
import os
import shutil
import subprocess
import tempfile
import time

import tap
from tap import ALL, ROOT, WW, command_line, ok, skip, without_steps  # noqa: F401

TMP = tempfile.mkdtemp(prefix="ww-optimize-")

# Whatever our processes leave behind becomes a child of this one and can be counted.
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)



def put(name, text):
    path = os.path.join(TMP, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def get(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as f:
        return f.read()


def lines_of(out):
    path = os.path.join(out, "episode.jsonl")
    return get(path).split("\n")[:-1] if os.path.exists(path) else []


def episode(out):
    return [json.loads(line) for line in lines_of(out)]


def command(task, out, *more):
    """Times are kept short: what is tested here is not how narrow their intervals get.  One thread: beside each other,
    the threads of two commands would spin while they wait for their like."""
    argv = [WW, "optimize", task, "--target", "cpu", "--threads", "1", "--baselines", "eager", "--formats", "none",
            "--max-time-seconds", "0.2", "--max-seconds", "240", *more]
    return argv + (["-o", out] if out else [])


def run(argv, **kw):
    p = subprocess.run(argv, capture_output=True, text=True, timeout=300, **kw)
    return p.returncode, p.stdout, without_steps(p.stderr)


def exit_code_of(out):
    """By its verdict: 0 where it beats eager, the only baseline of command(), at the lower end of the interval."""
    v = json.loads(get(out, "verdict.json"))
    return 0 if v["correct"] and 1 - 1 / v["speedup"]["eager"]["lo"] > 0.05 else 1


def children_of(pid):
    return [child for child, parent in tap.parents().items() if parent == pid]


def orphans():
    """Processes that are still there some seconds after the command ended."""
    for _ in range(100):
        if not children_of(os.getpid()):
            return []
        time.sleep(0.1)
    return [command_line(p) for p in children_of(os.getpid())]


TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 0.5, dim=-1)


def get_inputs():
    return [torch.randn(16, 1000)]


def get_init_inputs():
    return []
"""
# So slow that no interval of its times reaches eager's, which takes microseconds: a closing judgement that something
# disturbed is not made again.
KERNEL = """#include <ww/cpu.h>
#include <math.h>

void rows(const struct ww_block *b, void *const *arg)
{
	long long n = *(long long *)arg[2];
	const float *x = *(const float **)arg[0] + b->x * n;
	float *y = *(float **)arg[1] + b->x * n, top = x[0], sum = 0;
	for (long long i = 1; i < n; i++)
		top = x[i] > top ? x[i] : top;
	for (volatile int again = 0; again < 64; again++) {
		sum = 0;
		for (long long i = 0; i < n; i++)
			sum += y[i] = expf((x[i] - top) * SCALE);
	}
	for (long long i = 0; i < n; i++)
		y[i] /= sum;
}
"""
PLAN = """#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *y = ww_output(p, 0);
	if (!x->contiguous || x->rank < 1)
		ww_fail(p, "rows only");
	long long n = x->size[x->rank - 1];
	ww_launch(p, "rows", x->numel / n, 1, 1, 1, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, y->buf, 0);
	ww_arg_i64(p, n);
}
"""
WRONG = KERNEL.replace("SCALE", "1.0f")
RIGHT = KERNEL.replace("SCALE", "0.5f")


def recording(name, timed):
    """An episode of a policy that is wrong first, then right, then looks again and hands in."""
    calls = [[("inspect", {})],
             [("write", {"path": "kernels.c", "text": WRONG}), ("write", {"path": "plan.c", "text": PLAN}),
              ("compile", {})],
             [("verify", {"time": False})],
             [("write", {"path": "kernels.c", "text": RIGHT}), ("verify", {"time": timed})],
             [("read", {"path": "plan.c"}), ("verify", {"time": False})],
             [("submit", {})]]
    lines = [{"type": "header", "version": 1, "task": {"path": "x", "id": "x"}, "target": "cpu", "device": "",
              "policy": "hand",
              "seed": 0, "rule": "strict", "versions": {}, "started": "2026-01-01T00:00:00Z"}]
    for turn, group in enumerate(calls, 1):
        lines.append({"type": "message", "turn": turn, "t": 0, "role": "assistant", "text": f"step {turn}",
                      "finish": "tool_calls",
                      "calls": [{"id": "x", "name": n, "arguments": json.dumps(a)} for n, a in group]})
    return put(name, "".join(json.dumps(line) + "\n" for line in lines))


def essence(out):
    """What must not depend on clocks or kills: messages of the policy, solutions, correctness, the end.  A closing
    judgement that something disturbed is made again; the last one counts."""
    kept = []
    for line in episode(out):
        if line["type"] == "message" and line["role"] != "tool":
            kept.append(("message", line["turn"], line["role"], line["text"], line.get("calls")))
        elif line["type"] == "message":
            kept.append(("tool", line["turn"], line["tool"], line["call_id"], line["is_error"]))
        elif line["type"] == "solution":
            kept.append(("solution", line["turn"], line["id"], line["files"]))
        elif line["type"] == "verdict":
            if kept[-1][0] == "verdict" and kept[-1][2] == line["call_id"] == "final":
                kept.pop()
            kept.append(("verdict", line["turn"], line["call_id"], line["solution"], line["verdict"]["status"],
                         line["verdict"]["correct"]))
        elif line["type"] == "end":
            kept.append(("end", line["turn"], line["reason"], line["best"]))
    return kept


task = put("soft.py", TASK)
hand = recording("hand.jsonl", True)
quick = recording("quick.jsonl", False)


def done():
    shutil.rmtree(TMP, ignore_errors=True)
    tap.finish()
