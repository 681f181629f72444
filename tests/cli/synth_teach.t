#!/usr/bin/env python3
"""synth teach: the conversations that it writes are those that eval records and episode export hands on, but for the
numbers of indices; the renumbered solution is correct; rows that are no task, held out or too long are left out, and
any number of jobs writes the same bytes.  Several solutions of a task differ; what verify says in a conversation is
what the tool says.

budget: 10 CPU-seconds, all 80
# all: what eval records and export writes, a judgement of the solution, conversations said again in the loop, the
facts that inspect gives, and a held-out row that records no signature"""
import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ALL, WW, finish, need_pytorch, ok, python_without_pytorch  # noqa: E402

need_pytorch()
top = tempfile.mkdtemp(prefix="synth-teach-")
atexit.register(shutil.rmtree, top, True)
TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.randn(48, 72)]


def get_init_inputs():
    return []
"""
ROWS = [{"id": "soft", "code": TASK.format("torch.softmax(x.flip(0), -1)")}, {"id": "broken"},
        {"id": "apart", "code": TASK.format("torch.tanh(x) * 3")},
        {"id": "held", "code": TASK.format("x.exp()"), "split": "held-out"},
        {"id": "long", "code": TASK.format("x" + ".sin() + x.cos()" * 60)},
        {"id": "sum", "code": TASK.format("x.t().sum(-1) + 1")}]
BAD = {"id": "bad", "code": TASK.format("x").replace("return []", "return [](1)")}
APART = [{"id": "other", "code": TASK.format("(y := x.tanh()) + y + y").replace("48, 72", "7, 5")}]
RECORDED = {} if ALL else {"signature": "s1:2e80079d92616ccf6db90979456bfec6"}  # what is made of it without one
DEVICE = {"name": "cpu", "threads": 1, "vector_bytes": 32, "max_threads_per_block": 1,
          "shared_per_block_bytes": 1 << 24, "l1_bytes": 1 << 15, "l2_bytes": 1 << 20, "l3_bytes": 1 << 25,
          "memory_bytes_per_s": 1e10}


def path(name):
    return os.path.join(top, name)


def put(name, text):
    with open(path(name), "w", encoding="utf-8") as f:
        f.write(text)
    return path(name)


def get(name):
    with open(path(name), encoding="utf-8") as f:
        return f.read()


def run(*argv, **env):
    p = subprocess.run([WW, *argv], capture_output=True, text=True, timeout=300, check=False,
                       env={**os.environ, **env})
    return p.returncode, p.stdout, p.stderr


def rows(name, values):
    return put(name, "".join(json.dumps(v) + "\n" for v in values))


def lines(name):
    return [json.loads(line) for line in get(name).splitlines()]


suite = rows("set.jsonl", ROWS + [BAD])
apart = rows("apart.jsonl", [{**APART[0], **RECORDED}]) + ":" + rows(
    "more.jsonl", [{"id": "more", "code": TASK.format("x.cosh() + 2"), "signature": "s1:" + "0" * 32}])
code, _, err = run("synth", "teach", suite, path("none.jsonl"))
ok(code == 2 and "--facts" in err and not os.path.exists(path("none.jsonl")), "without facts it is refused", err)
task = put("task.py", ROWS[0]["code"])
facts = put("facts.json", run("inspect", "--json", "--target", "cpu", "--threads", "1", task)[1] if ALL else
            json.dumps({"device": DEVICE}))
code, _, err = run("synth", "teach", suite, path("none.jsonl"), "--target", "cuda", "--facts", facts)
ok(code == 2 and "--target cuda" in err and not os.path.exists(path("none.jsonl")),
   "so are those of a device of another kind", err)
args = ["synth", "teach", suite, "--target", "cpu", "--facts", facts, "--against", apart, "--longest", "9000", "--json"]
code, out, err = run(*args, path("one.jsonl"), "-j", "1")
counts = json.loads(out or "{}")
counts.pop("file", None)
ok(counts == {"written": 2, "broken": 1, "no_graph": 1, "held_out": 1, "no_solution": 0, "too_long": 1,
              "conversations": 2},
   "rows are counted by what became of them", [counts, err])
ok(code == 0 and "tasks without a graph: 1 (" in err and "not callable" in err, "why a task has no graph is said",
   [code, err])
rows("set.jsonl", ROWS)  # the one without a graph is traced each time
run(*args, path("two.jsonl"), "-j", "2", "--loop", "single")
ok(get("one.jsonl") == get("two.jsonl"), "two jobs write the same lines")
run("synth", "teach", rows("soft.jsonl", ROWS[:1]), path("agent.jsonl"), "--target", "cpu", "--facts", facts, "-j", "1",
    "--loop", "agent", "--turns", "7")
agent = lines("agent.jsonl")[0]["messages"]
ok("There are 7 turns" in agent[0]["content"] and agent[2]["tool_calls"][0]["function"]["name"] == "submit",
   "in the loop with tools the answer is handed in", agent[0])

# What is wrong with the machine is no fault of a task
bare = python_without_pytorch(path("bare"))
before = get("one.jsonl")
code, out, err = run(*args, path("one.jsonl"), WW_PYTHON=bare)
ok(code == 3 and json.loads(out)["error"].count("PyTorch cannot be imported") == 1 and get("one.jsonl") == before
   and not os.path.exists(path("one.jsonl.part")),
   "without PyTorch it says so, and the file that was there stays", [code, out, err])
code, out, err = run(*args[:7], path("none.jsonl"), WW_PYTHON=bare)
ok(code == 3 and "warpwright doctor" in err and err.count("\n") == 1 and not out
   and not os.path.exists(path("none.jsonl")), "in one line", [code, out, err])
code, out, err = run(*args[:7], path("none.jsonl"), WW_PYTHON="/bin/true")
ok(code == 3 and err.count("\n") == 1 and not out, "and likewise where WW_PYTHON names no Python", [code, out, err])

taught = lines("one.jsonl")
kernels = [t["messages"][2]["content"].split("```kernels", 1)[1] for t in taught]
ok(all(set(re.findall(r"\bi(\d+)\b", k)) == {str(i) for i in range(len(set(re.findall(r"\bi(\d+)\b", k))))}
       for k in kernels), "indices are counted from 0 in each file", kernels)


def renumbered(text):
    """As the first occurrence in each file has it."""
    files = re.split(r"(?=```kernels)", text)
    seen = [{} for _ in files]
    word = re.compile(r"\bi(\d+)(?=\b|_)")
    return "".join(word.sub(lambda m, s=s: f"i{s.setdefault(m[1], len(s))}", f) for f, s in zip(files, seen))


def prompt(messages):
    """Without what depends on the baselines."""
    return [re.sub("Reward: .*", "", m["content"]) for m in messages[:2]]


# Several solutions, in conversations of several forms
def form(messages):
    said = [m for m in messages if m["role"] == "assistant"]
    called = [c["function"]["name"] for m in said for c in m.get("tool_calls", [])]
    if len(said) == 3:
        learnt = [m.get("learn", True) for m in said]
        return "improved" if all(learnt) else "mended" if learnt[1] else "mended twice"
    return {"": "single", "submit": "at once", "verify submit": "checked"}[" ".join(called)]


def answers(rows_of):
    """The solution that each ends with."""
    return [[m["content"] for m in r["messages"] if m["role"] == "assistant" and m["content"]][-1] for r in rows_of]


some = ["synth", "teach", rows("some.jsonl", [ROWS[0], ROWS[2], ROWS[5]]), "--target", "cpu", "--facts", facts,
        "--loop", "agent", "--solutions", "4", "--forms", ".2:.2:.2:.3"]
run(*some, path("several.jsonl"), "-j", "1", "--seed", "3")
run(*some, path("again.jsonl"), "-j", "2", "--seed", "3")
run(*some, path("other.jsonl"), "-j", "2", "--seed", "4")
several = lines("several.jsonl")
by_task = {t: [r for r in several if r["task_id"] == t] for t in {r["task_id"] for r in several}}
ok(len(by_task) == 3 and all(1 < len(set(answers(v))) == len(v) <= 4 for v in by_task.values()),
   "a task has several solutions, no two of them the same", {t: answers(v) for t, v in by_task.items()})
first = dict(zip([t["task_id"] for t in taught], answers(taught)))
ok(all(answers(by_task[t])[0] == a for t, a in first.items()), "the planner's first one is the first", first)
ok(get("several.jsonl") == get("again.jsonl") != get("other.jsonl"), "a seed says which, and in which form")
forms = {form(r["messages"]) for r in several + lines("other.jsonl")}
ok(forms >= {"single", "at once", "checked", "improved", "mended"}, "all forms are drawn", forms)
code, _, err = run(*some[:-1], ".5:.5:.5:.5", path("none.jsonl"))
ok(code == 2 and "at most 1" in err, "shares of more than all are refused", err)
code, _, err = run(*some, path("none.jsonl"), "--turns", "2")
ok(code == 2 and "take 3 turns" in err, "and a mistake without a turn to mend it", err)

# Answers of a policy as mistakes: one that does not build, one that does
own = answers(taught)[0].replace("ww_plan *p)", "ww_plan *p", 1)
said = [{"task_id": taught[0]["task_id"], "text": own + "<tool_call>\n{}\n</tool_call>"},
        {"task_id": taught[1]["task_id"], "text": answers(taught)[1]}]
mended = [*some[:-1], "0:0:0:1", path("own.jsonl"), "-j", "1", "--seed", "3", "--solutions", "1", "--mistakes",
          rows("said.jsonl", said)]
code, _, err = run(*mended)
one, other = (next(r["messages"] for r in lines("own.jsonl") if r["task_id"] == t["task_id"]) for t in taught)
ok(code == 0 and one[2]["content"] == own and one[2]["learn"] is False and
   "plan.c does not compile" in one[3]["content"] and one[4]["content"] == answers(taught)[0],
   "an answer of a policy that does not build is mended", [err, one])
ok(other[2]["content"] != answers(taught)[1] and other[2]["learn"] is False,
   "one that builds may be right: its task gets a mistake that is made up", other)
put("bad.jsonl", '{"task_id": "x"}\n')
code, _, err = run(*mended[:-1], path("bad.jsonl"))
ok(code == 2 and "a line has task_id and text; one has not" in err, "a line without a text is refused", err)
code, _, err = run(*some[:-2], path("none.jsonl"), "--mistakes", path("said.jsonl"))
ok(code == 2 and "--mistakes are of mended conversations" in err, "and answers that nothing would take", err)



# For cuda, without a GPU: a product by the library and by templates, each a plan that builds
product = TASK.format("(x @ x.t()).relu()").replace("48, 72", "512, 512")
gpu = put("gpu.json", json.dumps({"device": {"cc": 90, "sm_count": 132, "shared_per_block_bytes": 232448}}))
run("synth", "teach", rows("product.jsonl", [{"id": "product", "code": product}]), path("cuda.jsonl"), "--target",
    "cuda", "--facts", gpu, "--loop", "agent", "--solutions", "8", "--forms", "0:0:0:1", "-j", "1")
said = answers(lines("cuda.jsonl"))
recipes = set(re.findall(r"ww_recipe_(\w+)\(", "".join(said)))
ok(len(set(said)) == len(said) and {"gemm_mma", "gemm_library", "gemm3"} <= recipes,
   "trials of the search on cuda: library and templates", recipes)
ok("mended" in {form(r["messages"]) for r in lines("cuda.jsonl")}, "and mistakes in them", lines("cuda.jsonl"))


def number_of(text):
    return re.sub(r"-?\d+(\.\d+)?(e[+-]\d+)?", "N", text)


def heard(messages):
    """What tools said, by the loop `agent` on the same task, when the assistant says the same."""
    said = [m for m in messages if m["role"] == "assistant"]
    lines_of = [{"type": "header", "version": 1, "task": {"path": task, "id": "0" * 64}, "target": "cpu", "device": "",
                 "policy": "x", "seed": 0, "rule": "strict", "versions": {}, "started": "2026-01-01T00:00:00Z"}]
    for turn, m in enumerate(said, 1):
        calls = [{"id": c["id"], "name": c["function"]["name"], "arguments": "{}"} for c in m["tool_calls"]]
        lines_of.append({"type": "message", "turn": turn, "t": 0, "role": "assistant", "text": m["content"],
                         "calls": calls, "finish": "tool_calls"})
    shutil.rmtree(path("again"), True)
    _, _, wrong = run("optimize", task, "--policy", "replay:" + rows("say.jsonl", lines_of), "--target", "cpu",
                      "--threads", "1", "--prompt", "compact", "--baselines", "eager", "--max-turns", "3",
                      "--max-time-seconds", "0.2", "--max-seconds", "5", "--formats", "none", "--skill", "none", "-o",
                      path("again"))
    return [r["text"] for r in lines("again/episode.jsonl") if r["type"] == "message" and r["role"] == "tool"] or wrong


if ALL:
    found = {}
    many = rows("many.jsonl", [{"id": str(n), "code": ROWS[0]["code"] + f"# {n}\n"} for n in range(30)])
    run("synth", "teach", many, path("wrong.jsonl"), *some[3:9], "--solutions", "30", "--forms", "0:0:0:1")
    for r in lines("wrong.jsonl"):
        if form(r["messages"]) == "mended":
            found.setdefault(r["messages"][3]["content"].split("\n")[0], r["messages"])
    ok({"status: plan_failed", "status: compile_failed", "status: mismatch"} <= set(found), "mistakes of three kinds",
       list(found))
    for status, messages in sorted(found.items()):
        real, told = heard(messages), [m["content"] for m in messages if m["role"] == "tool"]
        if status == "status: mismatch":
            real[0], told[0] = [number_of(t).split("  pattern")[0] for t in (real[0], told[0])]
        ok(real[0] == told[0], f"{status}: verify says so", [real[0], told[0]])
        rest = iter(number_of(real[1]).split("\n"))
        ok(all(w in rest for w in number_of(told[1]).split("\n") if not w.startswith(("compile:", "floor"))),
           "and of the solution that is right what it was told", [real[1], told[1]])

# What eval tells and export writes
if ALL:
    tasks = rows("both.jsonl", [ROWS[0], ROWS[5]])
    code, _, err = run("eval", "--suite", tasks, "--policy", "planner", "--prompt", "compact", "--loop", "single",
                       "--target", "cpu", "--threads", "1", "--parallel", "1", "--baselines", "", "-o", path("run"))
    run("episode", "export", path("run"), "-o", path("episodes.jsonl"))
    told = {e["task_signature"]: e["messages"] for e in lines("episodes.jsonl")}
    ok([prompt(told.get(t["task_signature"], [])) for t in taught] == [prompt(t["messages"]) for t in taught],
       "a line has the prompt that eval tells", [err, told, taught])
    pairs = [(told[t["task_signature"]][2]["content"], t["messages"][2]["content"]) for t in taught]
    ok(all(renumbered(a) == b for a, b in pairs) and any(a != b for a, b in pairs),
       "and the planner's answer with indices counted from 0", pairs)
    for name, text in re.findall(r"```(\S+)\n(.*?)```\n", taught[0]["messages"][2]["content"], re.S):
        os.makedirs(path("solution"), exist_ok=True)
        put("solution/" + name, text)
    code, out, err = run("judge", "--target", "cpu", "--threads", "1", "--baselines", "", "--json", task,
                         path("solution"))
    ok(code == 0 and json.loads(out)["correct"], "which is correct", [out, err])
finish()
