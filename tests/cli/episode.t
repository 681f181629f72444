#!/usr/bin/env python3
"""`episode show|stats|export` over records made by hand: hostile text stays text, numbers
add up, and exports have the form that trainers read."""
import html.parser
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, ok, WW  # noqa: E402

TMP = tempfile.mkdtemp(prefix="ww-episode-")
EVIL = "<script>alert('x')</script>\x1b[31m &\"\u202e"


def run(*args, command="episode"):
    p = subprocess.run([WW, command, *args], capture_output=True, text=True, timeout=60)
    return p.returncode, p.stdout, p.stderr


def verdict(us, reward):
    return {"status": "ok", "correct": True, "time": {"device_us": us, "call_us": us}, "reward": reward,
            "speedup": {"eager": {"lo": 1, "mid": 200 / us, "hi": 3}}, "seconds": {"verify": 0.5, "time": 1.5}}


def episode(name, policy, reward, ended=True):
    head = {"type": "header", "version": 1, "task": {"path": EVIL, "id": "t1"}, "target": "cpu", "device": "test",
            "policy": policy,
            "seed": 1, "rule": "strict", "versions": {}, "started": "2026-01-01T00:00:00Z",
            "tools": [{"name": "verify", "description": "Judge.", "parameters": {"type": "object", "properties": {}}}]}
    say = {"type": "message", "role": "assistant", "finish": "tool_calls",
           "usage": {"prompt_tokens": 100, "completion_tokens": 10},
           "usd": 0.25, "reasoning": "think " + EVIL, "native": {"protocol": "openai", "ids": ["x"]}}
    lines = [head, {"type": "message", "turn": 0, "t": 0, "role": "system", "text": "be fast"},
             {"type": "message", "turn": 0, "t": 0, "role": "user", "text": EVIL},
             {**say, "turn": 1, "t": 1, "text": "first " + EVIL,
              "calls": [{"id": "call_1_0", "name": "write",
                         "arguments": json.dumps({"path": "plan.c", "text": "long " * 40 + EVIL})},
                        {"id": "call_1_1", "name": "verify", "arguments": ""}]},
             {"type": "message", "turn": 1, "t": 1, "role": "tool", "text": EVIL, "call_id": "call_1_0",
              "tool": "write", "is_error": False},
             {"type": "solution", "turn": 1, "t": 1, "id": "s1", "files": {"kernels.c": EVIL, "plan.c": "plan"}},
             {"type": "verdict", "turn": 1, "t": 2, "call_id": "call_1_1", "solution": "s1", "depth": "full",
              "verdict": verdict(100, reward)},
             {"type": "message", "turn": 1, "t": 2, "role": "tool", "text": "fast", "call_id": "call_1_1",
              "tool": "verify", "is_error": False},
             {"type": "lost", "turn": 1, "t": 2, "usd": 0.5, "prompt_tokens": 100, "completion_tokens": 5,
              "why": "cut " + EVIL},
             {"type": "compaction", "turn": 1, "t": 2, "call_ids": ["call_1_0"], "bytes": 999},
             {**say, "turn": 2, "t": 3, "text": "second", "calls": [{"id": "call_2_0", "name": "fly",
                                                                     "arguments": "{\"a"}]},
             {"type": "message", "turn": 2, "t": 3, "role": "tool", "text": "no such tool", "call_id": "call_2_0",
              "tool": "fly",
              "is_error": True, "data": {"malformed": True}},
             {"type": "verdict", "turn": 2, "t": 4, "call_id": "final", "solution": "s1", "depth": "full",
              "verdict": verdict(80, reward)},
             {"type": "end", "turn": 2, "t": 5, "reason": "submitted", "reward_final": reward, "reward_best": 3,
              "best": "s1", "seconds": 5}]
    path = os.path.join(TMP, name, "episode.jsonl")
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line) + "\n" for line in (lines if ended else lines[:-1]))
    return path


one = episode("a/1", "openai:m", 3)
episode("a/2", "openai:m", 1)
episode("b", "planner", -1)
episode("c", "planner", 2, ended=False)

# ---- show

for more in ((), ("--full",)):
    code, out, err = run("show", one, *more)
    ok(code == 0 and "turn 2" in out and "ok, 100.0 us, 2.00x eager, reward 3" in out and "a call was lost: cut" in out
       and "ended: submitted, reward 3" in out and "removed from the context" in out, f"show {' '.join(more)}",
       out + err)
    ok("\x1b" not in out and "\u202e" not in out, "no control character of a policy reaches the terminal")
    ok(("be fast" in out) == bool(more), "what the policy was told is shown on request")
hostile = os.path.join(TMP, "hostile.jsonl")
FORGED = "x\x1b[2J\x9b31m\nended: submitted, reward 3"
with open(one, encoding="utf-8") as f:
    lines = [json.loads(line) for line in f]
lines[0].update(target=FORGED, rule=FORGED, device=FORGED, policy=FORGED, started="\x1b[2J\n12")
lines[-1].update(reason="\x1b[2J\nended:")
for line in lines:
    line.update({"tool": FORGED} if "tool" in line else {"verdict": {**line["verdict"], "status": FORGED}}
                if "verdict" in line else {})
with open(hostile, "w", encoding="utf-8") as f:
    f.writelines(json.dumps(line) + "\n" for line in lines)
for args in (("show", hostile), ("show", hostile, "--full"), ("stats", hostile)):
    code, out, err = run(*args)
    ok(code == 0 and not [c for c in "\x1b\x9b" if c in out] and out.count("\nended:") <= 1
       and "\nended: submitted, reward 3\n" not in out,
       f"{args[0]}: tool, status and header reach the terminal clean and on their line", out)
code, out, err = run("show", one, "--json")
ok(code == 0 and json.loads(out)["usd"] == 1.0 and json.loads(out)["prompt_tokens"] == 300, "show --json", out + err)
page = os.path.join(TMP, "page.html")
code, out, err = run("show", os.path.join(TMP, "a/1"), "--html", "-o", page)
with open(page, encoding="utf-8") as f:
    source = f.read()
ok(code == 0 and not out and "<script" not in source and "&lt;script&gt;" in source and "default-src 'none'" in source
   and "http" not in source.replace("http-equiv", "") and "<circle" in source,
   "show --html: hostile text stays text, and nothing is loaded from elsewhere", err)

# ---- Pages: report of a run of two episodes, one with a failure, and episode pages


class Page(html.parser.HTMLParser):
    """Text and tags of a page; `bad` names what is not well formed and what could load or run something."""
    VOID = {"meta", "line", "circle", "polyline", "polygon", "path", "br"}

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.open, self.bad, self.text, self.classes, self.tags = [], [], "", [], []
        with open(path, encoding="utf-8") as f:
            self.source = f.read()
        self.feed(self.source)
        self.bad += [f"<{t}> is not closed" for t in self.open]
        self.bad += [f"control character {c!r}" for c in set(self.source) if ord(c) < 32 and c not in "\n\t"
                     or c in "\u202e\x7f\x9b"]

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.classes += [v for k, v in attrs if k == "class"]
        if tag in ("script", "link", "img", "iframe", "object", "a") or [k for k, _ in attrs if k in ("src", "href")
                                                                         or k.startswith("on")]:
            self.bad.append(f"<{tag} {attrs}>")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.VOID and (not self.open or self.open.pop() != tag):
            self.bad.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.text += data


NODES = [{"name": n, "op": f"aten.{n}.default", "args": [{"ref": "x"}, None, [1, EVIL]],
          "kwargs": {"dim": 1, "eps": 1e-05},
          "out": [{"dtype": "float32", "sizes": [3, 5]}]} for n in ("linear", "gelu", EVIL)]
GRAPH = {"inputs": [{"name": "x", "dtype": "float32", "sizes": [3, 5]}], "nodes": NODES,
         "outputs": [{"name": "output0", "ref": "gelu", "dtype": "float32", "sizes": [3, 5]}]}
PLAN = ("/* Written by the planner.  Kernels, and the graph nodes of each:\n *   k0  gemm: linear, gelu\n */\n"
        "void plan(void) {\n\tww_launch(p, \"k0\");\n}\n")
FINAL = {"status": "ok", "correct": True, "rule": "strict", "form": "plan", "algebraic": True, "disturbed": True,
         "disturbance": EVIL,
         "time": {"device_us": 1234.5, "call_us": 1334.25}, "time_device": {"lo": 1200.25, "mid": 1234.5,
                                                                            "hi": 1300.75},
         "baselines": {"eager": {"device_us": 2469, "call_us": 2569},
                       "compile": {"device_us": 1851.75, "call_us": 1951.5}},
         "speedup": {"eager": {"lo": 1.9, "mid": 2, "hi": 2.1}, "compile": {"lo": 1.43, "mid": 1.5, "hi": 1.57}},
         "speedup_call": {"eager": {"lo": 1.81, "mid": 1.92, "hi": 2.03},
                          "compile": {"lo": 1.37, "mid": 1.46, "hi": 1.55}},
         "err_rel": 2.5e-7, "err_abs": 0.00125, "draws": 7, "checked_calls": 19, "floor_us": 617.25,
         "device_method": "graph", "reward": 3,
         "seconds": {"verify": 1, "time": 2}, "solution_id": "s2"}
NUMBERS = ("1234.5", "[1200.2, 1300.8]", "1334.2", "2469.0", "2569.0", "1851.8", "1951.5", "2.00x", "[1.90, 2.10]",
           "1.50x", "[1.43, 1.57]",
           "1.92x", "[1.81, 2.03]", "1.46x", "[1.37, 1.55]", "2.5e-07", "0.0013", "7 draws", "19 checked", "617.2",
           "50% of the time")
run_dir = os.path.join(TMP, "run")
for k in (1, 2):
    path = episode(f"run/episodes/{k}", "planner", 3)
    with open(path, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    lines[0].update(command=["warpwright", "optimize", "it's " + EVIL], versions={"torch": "2.11" + EVIL})
    more = [{"type": "message", "turn": 1, "t": 1, "role": "tool", "text": "{}", "call_id": "call_1_9",
             "tool": "inspect", "is_error": False,
             "data": {"graph": GRAPH}},
            {"type": "solution", "turn": 2, "t": 3, "id": "s2", "files": {"kernels.c": EVIL + "\nint x;\n",
                                                                          "plan.c": PLAN}},
            {"type": "verdict", "turn": 2, "t": 3, "call_id": "call_2_0", "solution": "s2", "depth": "full",
             "verdict": {"status": "mismatch", "correct": False, "reward": -1, "diagnostics": EVIL}}]
    lines[-2].update(solution="s2", verdict=FINAL if k == 2
                     else {**FINAL, "time": {"device_us": 1500, "call_us": 1500}})
    lines[-1].update(best="s2")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines[:-2] + more + lines[-2:])
for name, text in (("verdict.json", json.dumps(FINAL)), ("task.py", "class Model: pass  # " + EVIL)):
    with open(os.path.join(run_dir, name), "w", encoding="utf-8") as f:
        f.write(text)
code, out, err = run(run_dir, "-o", page, command="report")
alone = out
with open(os.path.join(run_dir, "report.html"), "w", encoding="utf-8") as f:
    f.write("<html>")
code, out, err = run(run_dir, "-o", page, command="report")
ok(out == f"{alone}`optimize` wrote this page when the run ended: {run_dir}/report.html\n" and alone.count("\n") == 1,
   "report of a run names the page that optimize wrote", out)
p = Page(page)
ok(code == 0 and not p.bad, "report of a run: well formed, nothing from elsewhere, no control character", (err, p.bad))
ok(not [n for n in NUMBERS if n not in p.text], "it has every number of the table",
   [n for n in NUMBERS if n not in p.text])
ok("algebraic: the solution does clearly less arithmetic" in p.text and "disturbed (<script>" in p.text,
   "and each flag with its explanation", p.text)
ok(p.tags.count("circle") >= 4 and "miss mark" in p.classes and p.classes.count("level") == 2
   and "not correct (2)" in p.text
   and "seconds of the episode" in p.text, "the search: correct ones, failures, baselines", p.classes)
ok("k0 gemm" in p.text.replace("  ", " ") and "3 operators in 1 launch" in p.text
   and "gelu = aten.gelu.default(x, None, [1, " in p.text
   and "in no launch" in p.text and ", dim=1, eps=1e-05): float32[3, 5]" in p.text, "the graph by launches", p.text)
ok("ww_launch(p," in p.text and "class Model" in p.text and "int x;" in p.text and "'it'\\''s <script>" in p.text
   and "2.11" in p.text
   and p.text.count("(best 3)") == 2, "kernels, module, command, versions, both episodes", p.text)
code, out, err = run("show", os.path.join(run_dir, "episodes/1"), "--html", "-o", page)
p = Page(page)
ok(code == 0 and not p.bad and "fly" in p.text and "1500.0" in p.text and "[1200.2, 1300.8]" in p.text
   and "algebraic" in p.text
   and p.classes.count("level") == 2, "show --html: the same table, curve and flags", (err, p.bad))
ok('<div class="bad"><details open><summary>fly: mismatch' in p.source
   and '<div class="good"><details><summary>verify: ok' in p.source,
   "a mismatch is not green", p.source)
os.remove(os.path.join(run_dir, "verdict.json"))
code, out, err = run(run_dir, "-o", page, command="report")
ok(code == 0 and "No correct solution was found" in Page(page).text and not Page(page).bad, "a run without a verdict",
   err)
code, out, err = run(TMP, "-o", page, command="report")
ok(code == 2 and "optimize" in err and "train" in err and err.count("\n") == 1, "a directory that holds no run", err)
code, out, err = run("nowhere", "-o", page, command="report")
ok(code == 2 and "no directory nowhere" in err and err.count("\n") == 1, "report of a directory that is not there", err)
subprocess.run(["rm", "-rf", run_dir], check=False)

# ---- stats

code, out, err = run("stats", TMP, "--json")
s = json.loads(out)
ok(code == 0 and s["all"]["episodes"] == 4 and s["all"]["ended"] == 3
   and s["all"]["reward_final"] == {"-1": 1, "1": 1, "2": 0, "3": 1}
   and s["all"]["mean_final"] == 1 and s["all"]["usd"] == 4 and s["all"]["gpu_seconds"] == 16
   and s["all"]["malformed"] == 4
   and s["all"]["lost"] == 4 and s["all"]["tools"] == {"write": 4, "verify": 4}
   and [g["policy"] for g in s["groups"]] == ["openai:m", "planner"],
   "stats --json adds up", out + err)
code, out, err = run("stats", TMP)
ok(code == 0 and "openai:m, cpu" in out and "submitted 3" in out, "stats", out + err)

# ---- export

jsonl = os.path.join(TMP, "out.jsonl")
code, out, err = run("export", TMP, "-o", jsonl, "--min-reward", "1")
with open(jsonl, encoding="utf-8") as f:
    rows = [json.loads(line) for line in f]
ok(code == 0 and len(rows) == 2 and ": 2; episodes left out: 2" in out, "export leaves out what has no such reward",
   out + err)
signed, held = os.path.join(TMP, "signed.jsonl"), os.path.join(TMP, "set.jsonl")
signature = "s1:" + "0" * 32
with open(one, encoding="utf-8") as f, open(signed, "w", encoding="utf-8") as to:
    head, rest = f.readline(), f.read()
    to.write(head.replace('"id": "t1"', f'"id": "t1", "signature": "{signature}"') + rest)
with open(held, "w", encoding="utf-8") as f:
    f.write(json.dumps({"id": "h", "code": "class Model: pass", "signature": signature}) + "\n")
got = [run("export", p, "--held-out", held, "-o", jsonl + "2", "--json") for p in (signed, one)]
ok([json.loads(g[1] or "{}").get("held_out") for g in got] == [1, 0] and got[0][0] == 0,
   "export leaves out a held-out task, by signature", got)
m = rows[0]["messages"]
ok([x["role"] for x in m] == ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
   and m[2]["tool_calls"][0]["function"]["arguments"]["path"] == "plan.c"
   and m[2]["tool_calls"][1]["function"]["arguments"] == {}
   and m[5]["tool_calls"][0]["function"]["arguments"] == {"INVALID_JSON": "{\"a"} and m[3]["tool_call_id"] == "call_1_0"
   and m[3]["name"] == "write" and m[2]["reasoning_content"].startswith("think") and "native" not in json.dumps(rows)
   and rows[0]["tools"][0]["function"]["name"] == "verify" and rows[0]["reward_final"] == 3
   and rows[0]["compacted"] is True,
   "messages, tools and rewards have the form of TRL", json.dumps(m)[:2000])
code, out, err = run("export", one, "--arguments", "text")
ok(code == 0 and json.loads(out)["messages"][5]["tool_calls"][0]["function"]["arguments"] == "{\"a",
   "arguments as the policy wrote them", err)

# ---- Bad input

for name, args in (("no such file", ("show", "/nonexistent")), ("more than one", ("show", TMP)),
                   ("none below", ("stats", "/proc/self/fdinfo")),
                   ("no such word", ("play", one)), ("no argument", ("show",))):
    code, out, err = run(*args)
    ok(code == 2 and not out and err.count("\n") == 1, f"{name}: one line, exit code 2", f"{code} {err}")
with open(one, encoding="utf-8") as f:
    text = f.read()
# One damaged file of many is named and passed over; named itself it is an error, and so is a folder of nothing else.
kept = run("stats", TMP)
damaged = os.path.join(TMP, "damaged", "episode.jsonl")
os.mkdir(os.path.dirname(damaged))
with open(damaged, "w", encoding="utf-8") as f:
    f.write('{"type":"header","version":1,"task":\n{}\n')
code, out, err = run("stats", TMP)
ok(kept[0] == 0 and (code, out) == kept[:2] and f"passed over: {damaged}" in err and err.count("\n") == 1,
   "a damaged episode does not end the count of the others", (kept, code, out, err))
whole = os.path.join(TMP, "whole.jsonl")
code, out, err = run("export", TMP, "-o", whole)
ok(code == 0 and os.path.getsize(whole) > 0 and "passed over" in err, "nor their export", err)
ok(run("stats", damaged)[0] == 2 and "can be read" in run("export", os.path.dirname(damaged))[2],
   "where there is nothing else it is an error")
cut = os.path.join(TMP, "cut.jsonl")
with open(cut, "w", encoding="utf-8") as f:
    f.write(text[:-40])
code, out, err = run("show", cut)
ok(code == 0 and "not ended" in out, "a cut last line is left out", err)
code, out, err = run("export", cut)
ok(code == 0 and not out and "left out: 1 " in err, "an episode that has not ended is not exported, and that is said",
   out + err)
with open(cut, "w", encoding="utf-8") as f:
    f.write(text.replace('"type": "lost"', '"type": lost'))
code, out, err = run("export", cut, "-o", os.path.join(TMP, "never"))
ok(code == 3 and "line 9" in err and err.count("\n") == 1 and not [f for f in os.listdir(TMP) if f.startswith("never")],
   "a damaged line is named, and nothing is half written", f"{code} {err}")
code, out, err = run("export", one, "-o", "/proc/nothing/here")
ok(code == 3 and err.count("\n") == 1 or code == 2, "an output that cannot be written is one line", f"{code} {err}")
subprocess.run(["rm", "-rf", TMP], check=False)
finish()
