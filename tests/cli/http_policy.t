#!/usr/bin/env python3
# budget: 7 CPU-seconds
"""`optimize` with a model behind an HTTP server: two episodes side by side under one budget, the key nowhere, nothing
asked twice; and what is wrong before the first call.  Nothing is timed against PyTorch."""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from optimizing import *  # noqa: F403,E402

KEY = "sk-cli-53cr3t-0123456789"
ENV = {**os.environ, "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
turns = [[("inspect", {})],
         [("write", {"path": "kernels.c", "text": WRONG}), ("write", {"path": "plan.c", "text": PLAN}),
          ("verify", {"time": False})],
         [("fly", {}), ("write", {"path": "kernels.c", "text": RIGHT}),
          ("bash", {"command": "verify --no-time; echo code $?; ls skill"})],
         [("submit", {})]]
log = put("requests.jsonl", "")
server = subprocess.Popen([sys.executable, os.path.join(ROOT, "tests/http/server.py"), log,
                           put("script.json", json.dumps(turns))],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
base = f"http://127.0.0.1:{int(server.stdout.readline())}/agent/v1"
prices = put("prices", "openai:scripted 1 0.5 1 10\n")


def environment(pid):
    """What /proc shows of it: nothing of a process that has ended, or whose program is only being loaded."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read()
    except OSError:
        return b""


def holds_key(pid):
    return KEY.encode() in environment(pid)


# ---- A run

out = os.path.join(TMP, "run")
argv = command(task, out, "--policy", "openai:scripted", "--base-url", base, "--prices", prices, "--parallel", "2",
               "--max-usd", "1",
               "--max-tokens", "1000000", "--baselines", "", "--json")
p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)
while p.poll() is None and (not environment(p.pid) or holds_key(p.pid)):
    time.sleep(0.01)  # it takes the keys out of its own environment before it starts anything
leaks = looked = 0
while p.poll() is None:
    leaks += sum(map(holds_key, tap.descendants_of(os.getpid())))
    looked += 1
    time.sleep(0.2)
stdout, stderr = p.communicate()
try:
    said = json.loads(stdout)
except ValueError:
    said = {}
ok(p.returncode in (0, 1) and said.get("solution") and said["verdict"]["correct"], "two episodes run side by side",
   stdout[:2000] + stderr)
ok(len(said.get("episodes", [])) == 2 and all(e["reason"] == "submitted" for e in said["episodes"]),
   "each is in the summary", stdout[:2000])
calls = 2 * len(turns)
ok(abs(said["used"]["usd"] - calls * 0.0012) < 1e-9 and said["used"]["tokens"] == calls * 1050,
   "the budget counts what the server counted",
   str(said.get("used")))
with open(log, encoding="utf-8") as f:
    asked = [json.loads(line) for line in f]
ok(len(asked) == calls, f"{calls} replies for {calls} requests", str(len(asked)))
records = [episode(os.path.join(out, "episodes", str(i + 1))) for i in range(2)]
replies = [line for r in records for line in r if line["type"] == "message" and line["role"] == "assistant"]
ok(len(replies) == calls and all(m["usd"] > 0 and m["reasoning"] and m["native"]["protocol"] == "openai"
                                 for m in replies),
   "replies are recorded with their price, their reasoning and what the protocol wants back")
ok(records[0][0]["limits"]["usd"] == 1 and {t["name"] for t in records[0][0]["tools"]} >= {"verify", "submit"},
   "the header holds limits and tools")
shells = [line["text"] for r in records for line in r if line["type"] == "message" and line.get("tool") == "bash"]
if all("not available" in text for text in shells):
    skip("commands of the shell call tools", "this system allows no namespaces")
else:
    inside = [line["verdict"]["correct"] for r in records for line in r if line["type"] == "verdict"
              and line["call_id"] == "call_3_2.1"]
    ok(inside == [True, True] and all("correct: yes" in t and "code 0\nSKILL.md\n" in t for t in shells),
       "commands of the shell call tools", shells)
ok(get(out, "solution", "kernels.c") == RIGHT, "the best solution is in the run's directory")
ok(not any(f == "reply.journal" for _, _, files in os.walk(out) for f in files), "no journal is left")
found = [os.path.join(d, f) for d, _, files in os.walk(out) for f in files
         if KEY.encode() in open(os.path.join(d, f), "rb").read()]
ok(looked >= 3 and not leaks and not found and KEY not in stdout + stderr,
   "the key is in no file, no output and no child's environment",
   f"{leaks} {found}")
ok(not orphans() or children_of(os.getpid()) == [server.pid], "no process is left")
code, text, err = run(command(task, out, "--policy", "openai:scripted"), env=ENV)
ok(code == 2 and "--parallel 2" in err, "the number of episodes belongs to the run", err)

# ---- Before the first call

bare = {k: v for k, v in ENV.items() if k != "OPENAI_API_KEY"}
cases = [("no key", ["--policy", "openai:gpt-5.4"], bare, "OPENAI_API_KEY"),
         ("an unknown price", ["--policy", "openai:gpt-0", "--max-usd", "1"], ENV, "--prices"),
         ("a budget of nothing", ["--policy", "openai:gpt-5.4", "--max-usd", "0"], ENV, "--max-usd"),
         ("a price table that is none", ["--policy", "openai:scripted", "--prices",
                                         put("bad", "openai:scripted one\n")], ENV, "line 1"),
         ("a base URL that is none", ["--policy", "openai:m", "--base-url", "localhost:8000"], ENV, "http://"),
         ("no model", ["--policy", "openai:"], ENV, "openai:MODEL")]
for name, more, env, word in cases:
    where = os.path.join(TMP, "none")
    code, text, err = run(command(task, where, *more), env=env)
    ok(code == 2 and err.count("\n") == 1 and word in err and not os.path.exists(where),
       f"{name}: one line, exit code 2, no directory",
       f"{code} {err}")

server.stdin.close()
server.wait(timeout=10)
done()
