#!/usr/bin/env python3
# budget: 6 CPU-seconds, all 11
# timeout: 300
# all: twice as many judgements
"""Can a solution tell a timed call that will be compared from one that will not, by the time that its inputs took?

One batch judges a few solutions of one task, whose inputs take long to draw and little to copy, so that the later ones
find a warm pool of draws.  The judge's log has the time of each request to the reference worker: a draw, followed by
`reference` if it was compared.  The times of both kinds must be of one distribution (Mann-Whitney; p below 0.001 in
two batches fails, one honest run in a million; before they were, p was 1e-5)."""
import json
import math
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ALL, finish, need_pytorch, ok  # noqa: E402

root = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(root, "tests/judge"))
from harness import BINARY, Harness  # noqa: E402

need_pytorch()
h = Harness("cpu")
# Judgements that fill the pool, those that are looked at, timed rounds of each.
COLD, WARM, ROUNDS = (3, 5, 10) if ALL else (1, 3, 10)
TASK = """import time
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(256))
    def forward(self, x):
        return torch.relu(x + self.bias) * 2
def get_inputs():
    time.sleep(0.02)
    return [torch.randn(64, 256)]
def get_init_inputs():
    return []
"""
PLAN = """#include <ww/plan.h>
void plan(struct ww_plan *p)
{
	const struct ww_tensor *x = ww_input(p, 0), *b = ww_param(p, "bias"), *y = ww_output(p, 0);
	ww_launch(p, "k", x->size[0], 1, 1, 1, 1, 1);
	ww_arg_buf(p, x->buf, 0);
	ww_arg_buf(p, b->buf, 0);
	ww_arg_buf(p, y->buf, 0);
}
"""
KERNEL = """#include <ww/cpu.h>
WW_KERNEL(k)
{
	const float *x = WW_ARG(const float *, 0) + b->x * 256, *bias = WW_ARG(const float *, 1);
	float *y = WW_ARG(float *, 2) + b->x * 256;
	for (int i = 0; i < 256; i++) {
		float v = x[i] + bias[i];
		y[i] = v > 0 ? 2 * v : 0; /* NUMBER */
	}
}
"""


def timed(log):
    """(microseconds of a draw, was it compared?) of the first rounds of each judgement.  Stages end with `free`; the
    stage of timing says how many rounds it had."""
    for stage in re.split(r"reference worker: free", log):
        events = re.findall(r"reference worker: (draw|compare), (\d+) us", stage)
        if "warpwright: timed: " in stage:
            draws = [(int(us), events[i + 1 : i + 2] and events[i + 1][0] == "compare") for i,
                     (name, us) in enumerate(events) if name == "draw"]
            yield draws[:ROUNDS]


def tells(a, b):
    """Mann-Whitney: how surely the two samples are of different distributions, as a p-value (normal approximation, ties
    by mean rank)."""
    both = sorted(a + b)
    rank = {x: both.index(x) + (both.count(x) + 1) / 2 for x in both}
    u = sum(rank[x] for x in a) - len(a) * (len(a) + 1) / 2
    mean, spread = len(a) * len(b) / 2, math.sqrt(len(a) * len(b) * (len(both) + 1) / 12)
    return math.erfc(abs(u - mean) / spread / math.sqrt(2))


jobs = []
task = h.write("task.py", TASK)
for k in range(COLD + WARM):
    h.write(f"{k}/plan.c", PLAN)
    at = h.write(f"{k}/kernels.c", KERNEL.replace("NUMBER", str(k)))
    jobs.append({"id": str(k), "task": task, "solution": os.path.dirname(at), "baselines": "eager",
                 "max_time_seconds": 0.4})


def judged():
    """[status], and the draws that are looked at, of one batch."""
    done = subprocess.run([BINARY, "judge", "--target", "cpu", "--batch", "-"],
                          env=dict(h.env, WARPWRIGHT_LOG="debug"), text=True, capture_output=True,
                          input="".join(json.dumps(j) + "\n" for j in jobs), timeout=280)
    statuses = [json.loads(line)["verdict"]["status"] for line in done.stdout.split("\n") if line]
    return statuses, [d for judgement in list(timed(done.stderr))[COLD:] for d in judgement]


def seen():
    """[status] of the last batch, and what draws took that are compared and that are not.  A busy machine has time for
    few rounds, nearly all of which are compared, so batches are added until both kinds are there."""
    kinds = [], []
    for _ in range(6):
        statuses, draws = judged()
        for us, is_compared in draws:
            kinds[not is_compared].append(us)
        if len(kinds[0]) >= 4 * WARM and len(kinds[1]) >= 4:
            break
    return statuses, *kinds


for attempt in range(2):
    statuses, compared, others = seen()
    p = tells(compared, others) if compared and others else 0
    if p > 0.001:
        break
ok(statuses == ["ok"] * len(jobs), "every solution is right", statuses)
ok(len(compared) >= 4 * WARM and len(others) >= 4, "draws of both kinds were seen",
   f"{len(compared)} and {len(others)}")
ok(p > 0.001, "what a draw takes does not tell whether the call is compared",
   f"p = {p:.2g}; us: {sorted(compared)}, {sorted(others)}")
finish()
