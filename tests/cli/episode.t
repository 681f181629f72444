#!/usr/bin/env python3
"""`episode show|stats|export` over records made by hand: hostile text stays text, numbers add up, what trainers read has its form."""
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


def run(*args):
    p = subprocess.run([WW, "episode", *args], capture_output=True, text=True, timeout=60)
    return p.returncode, p.stdout, p.stderr


def verdict(us, reward):
    return {"status": "ok", "correct": True, "time": {"device_us": us, "call_us": us}, "reward": reward,
            "speedup": {"eager": {"lo": 1, "mid": 200 / us, "hi": 3}}, "seconds": {"verify": 0.5, "time": 1.5}}


def episode(name, policy, reward, ended=True):
    head = {"type": "header", "version": 1, "task": {"path": EVIL, "id": "t1"}, "target": "cpu", "device": "test", "policy": policy,
            "seed": 1, "rule": "strict", "versions": {}, "started": "2026-01-01T00:00:00Z",
            "tools": [{"name": "verify", "description": "Judge.", "parameters": {"type": "object", "properties": {}}}]}
    say = {"type": "message", "role": "assistant", "finish": "tool_calls", "usage": {"prompt_tokens": 100, "completion_tokens": 10},
           "usd": 0.25, "reasoning": "think " + EVIL, "native": {"protocol": "openai", "ids": ["x"]}}
    lines = [head, {"type": "message", "turn": 0, "t": 0, "role": "system", "text": "be fast"},
             {"type": "message", "turn": 0, "t": 0, "role": "user", "text": EVIL},
             {**say, "turn": 1, "t": 1, "text": "first " + EVIL,
              "calls": [{"id": "call_1_0", "name": "write", "arguments": json.dumps({"path": "plan.c", "text": "long " * 40 + EVIL})},
                        {"id": "call_1_1", "name": "verify", "arguments": ""}]},
             {"type": "message", "turn": 1, "t": 1, "role": "tool", "text": EVIL, "call_id": "call_1_0", "tool": "write", "is_error": False},
             {"type": "solution", "turn": 1, "t": 1, "id": "s1", "files": {"kernels.c": EVIL, "plan.c": "plan"}},
             {"type": "verdict", "turn": 1, "t": 2, "call_id": "call_1_1", "solution": "s1", "depth": "full", "verdict": verdict(100, reward)},
             {"type": "message", "turn": 1, "t": 2, "role": "tool", "text": "fast", "call_id": "call_1_1", "tool": "verify", "is_error": False},
             {"type": "lost", "turn": 1, "t": 2, "usd": 0.5, "prompt_tokens": 100, "completion_tokens": 5, "why": "cut " + EVIL},
             {"type": "compaction", "turn": 1, "t": 2, "call_ids": ["call_1_0"], "bytes": 999},
             {**say, "turn": 2, "t": 3, "text": "second", "calls": [{"id": "call_2_0", "name": "fly", "arguments": "{\"a"}]},
             {"type": "message", "turn": 2, "t": 3, "role": "tool", "text": "no such tool", "call_id": "call_2_0", "tool": "fly",
              "is_error": True, "data": {"malformed": True}},
             {"type": "verdict", "turn": 2, "t": 4, "call_id": "final", "solution": "s1", "depth": "full", "verdict": verdict(80, reward)},
             {"type": "end", "turn": 2, "t": 5, "reason": "submitted", "reward_final": reward, "reward_best": 3, "best": "s1", "seconds": 5}]
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
       and "ended: submitted, reward 3" in out and "removed from the context" in out, f"show {' '.join(more)}", out + err)
    ok("\x1b" not in out and "\u202e" not in out, "no control character of a policy reaches the terminal")
    ok(("be fast" in out) == bool(more), "what the policy was told is shown on request")
code, out, err = run("show", one, "--json")
ok(code == 0 and json.loads(out)["usd"] == 1.0 and json.loads(out)["prompt_tokens"] == 300, "show --json", out + err)
page = os.path.join(TMP, "page.html")
code, out, err = run("show", os.path.join(TMP, "a/1"), "--html", "-o", page)
with open(page, encoding="utf-8") as f:
    html = f.read()
ok(code == 0 and not out and "<script" not in html and "&lt;script&gt;" in html and "\x1b" not in html and "default-src 'none'" in html
   and "http" not in html.replace("http-equiv", "") and html.count("<details") == html.count("</details>") and "<circle" in html,
   "show --html: hostile text stays text, and nothing is loaded from elsewhere", err)

# ---- stats

code, out, err = run("stats", TMP, "--json")
s = json.loads(out)
ok(code == 0 and s["all"]["episodes"] == 4 and s["all"]["ended"] == 3 and s["all"]["reward_final"] == {"-1": 1, "1": 1, "2": 0, "3": 1}
   and s["all"]["mean_final"] == 1 and s["all"]["usd"] == 4 and s["all"]["gpu_seconds"] == 16 and s["all"]["malformed"] == 4
   and s["all"]["lost"] == 4 and s["all"]["tools"] == {"write": 4, "verify": 4} and [g["policy"] for g in s["groups"]] == ["openai:m", "planner"],
   "stats --json adds up", out + err)
code, out, err = run("stats", TMP)
ok(code == 0 and "openai:m, cpu" in out and "submitted 3" in out, "stats", out + err)

# ---- export

jsonl = os.path.join(TMP, "out.jsonl")
code, out, err = run("export", TMP, "-o", jsonl, "--min-reward", "1")
with open(jsonl, encoding="utf-8") as f:
    rows = [json.loads(line) for line in f]
ok(code == 0 and len(rows) == 2 and "2 conversations" in out and "2 episodes left out" in out, "export leaves out what has no such reward", out + err)
m = rows[0]["messages"]
ok([x["role"] for x in m] == ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
   and m[2]["tool_calls"][0]["function"]["arguments"]["path"] == "plan.c" and m[2]["tool_calls"][1]["function"]["arguments"] == {}
   and m[5]["tool_calls"][0]["function"]["arguments"] == {"INVALID_JSON": "{\"a"} and m[3]["tool_call_id"] == "call_1_0"
   and m[3]["name"] == "write" and m[2]["reasoning_content"].startswith("think") and "native" not in json.dumps(rows)
   and rows[0]["tools"][0]["function"]["name"] == "verify" and rows[0]["reward_final"] == 3 and rows[0]["compacted"] is True,
   "messages, tools and rewards have the form of TRL", json.dumps(m)[:2000])
code, out, err = run("export", one, "--arguments", "text")
ok(code == 0 and json.loads(out)["messages"][5]["tool_calls"][0]["function"]["arguments"] == "{\"a", "arguments as the policy wrote them", err)

# ---- Bad input

for name, args in (("no such file", ("show", "/nonexistent")), ("more than one", ("show", TMP)), ("none below", ("stats", "/proc/self/fdinfo")),
                   ("no such word", ("play", one)), ("no argument", ("show",))):
    code, out, err = run(*args)
    ok(code == 2 and not out and err.count("\n") == 1, f"{name}: one line, exit code 2", f"{code} {err}")
with open(one, encoding="utf-8") as f:
    text = f.read()
cut = os.path.join(TMP, "cut.jsonl")
with open(cut, "w", encoding="utf-8") as f:
    f.write(text[:-40])
code, out, err = run("show", cut)
ok(code == 0 and "not ended" in out, "a cut last line is left out", err)
code, out, err = run("export", cut)
ok(code == 0 and not out and "left out: 1 " in err, "an episode that has not ended is not exported, and that is said", out + err)
with open(cut, "w", encoding="utf-8") as f:
    f.write(text.replace('"type": "lost"', '"type": lost'))
code, out, err = run("export", cut, "-o", os.path.join(TMP, "never"))
ok(code == 3 and "line 9" in err and err.count("\n") == 1 and not [f for f in os.listdir(TMP) if f.startswith("never")],
   "a damaged line is named, and nothing is half written", f"{code} {err}")
code, out, err = run("export", one, "-o", "/proc/nothing/here")
ok(code == 3 and err.count("\n") == 1 or code == 2, "an output that cannot be written is one line", f"{code} {err}")
subprocess.run(["rm", "-rf", TMP], check=False)
finish()
