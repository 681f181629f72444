#!/usr/bin/env python3
"""bench/train/turns.py: conversations of several turns from those of one.  A mistake is one change of the right answer,
the tool's answer names it, and it is context alone.

budget: 1 CPU-second"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, ok, ROOT  # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "bench/train"))
import turns  # noqa: E402

PLAN = """#include <ww/plan.h>

void plan(struct ww_plan *p)
{
	WW_INPUT(in_x, 0, WW_F32, 2);
	WW_SIZE(S0, in_x->size[0]);
	WW_SIZE(S1, in_x->size[1]);
	WW_OUTPUT(out0, 0, WW_F32, S0, S1);
}
"""
KERNELS = """extern "C" __global__ void k0(const float *x, float *y)
{
	const float x0 = x[0];
	y[0] = x0 * x0;
}
"""
ANSWER = f"```plan.c\n{PLAN}```\n```kernels.cu\n{KERNELS}```\n"
ROW = {"task_id": "t", "messages": [
    {"role": "system", "content": "many"}, {"role": "user", "content": "x f32[2,3]"},
    {"role": "assistant", "content": ANSWER, "tool_calls": turns.call("submit", 0)}]}


def called(message):
    return [c["function"]["name"] for c in message.get("tool_calls", [])]


rng = random.Random(7)
seen = set()
for _ in range(200):
    system, user, wrong, tool, right = turns.mended(ROW, rng)["messages"]
    a, b = wrong["content"].split("\n"), ANSWER.split("\n")
    status = tool["content"].split("\n")[0]
    what = tool["content"].split("diagnostics:\n")[1]
    gone = [x for x in b if x not in a]
    named = "undeclared" in what and len(a) == len(b) - 1 and what.split("'")[1] in gone[0] or \
        "undeclared" not in what and len(a) == len(b) and sum(x != y for x, y in zip(a, b)) == 1
    seen.add((status, bool(named), wrong["learn"], right.get("learn", True), called(wrong)[0], called(right)[0],
              right["content"] == ANSWER, tool["role"]))
ok({s[0] for s in seen} == {"status: plan_failed", "status: compile_failed", "status: mismatch"} and
   {s[1:] for s in seen} == {(True, False, True, "verify", "submit", True, "tool")},
   "a mistake is one change, its answer fits, and what mends it is the right answer", seen)
plan, wrong = turns.no_size(PLAN, KERNELS, rng)[0]
line = int(turns.no_size(PLAN, KERNELS, random.Random(1))[2].split("plan.c:")[1].split(":")[0])
ok("WW_OUTPUT" in PLAN.split("\n")[line], "the line of a compiler's message is that of the wrong text", line)
m = turns.checked(ROW, rng)["messages"]
ok([called(x) for x in m if x["role"] == "assistant"] == [["verify"], ["submit"]] and "reward: " in m[3]["content"] and
   m[4]["content"] == "", "what was verified is handed in as it is", m)
shares = {"single": .3, "checked": .1, "mended": .2, "mended-longest": len(ANSWER)}
out = list(turns.forms([ROW] * 1000, {"role": "system", "content": "one"}, shares, random.Random(3)))
kinds = [len(r["messages"]) + (r["messages"][0]["content"] == "one") for r in out]
ok(abs(kinds.count(4) - 300) < 60 and abs(kinds.count(5) - 300) < 60 and
   all(("tool_calls" in r["messages"][2]) != (r["messages"][0]["content"] == "one") for r in out),
   "the shares are kept, and a single turn hands nothing in", [kinds.count(k) for k in (3, 4, 5)])
long = list(turns.forms([ROW] * 200, None, {**shares, "single": 0, "mended-longest": 10}, random.Random(3)))
ok(all("learn" not in r["messages"][2] for r in long), "a long answer is not said twice")
finish()
