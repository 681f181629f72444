#!/usr/bin/env python3
# budget: 5 CPU-seconds
"""`warpwright mcp` as a client sees it, without an SDK: the stream of lines, the tools on a real judge (one reference
worker for all of it), a task followed to its end, a cancelled one, and a clean end of the process."""
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WW = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")
SOLUTION = os.path.join(ROOT, "examples/solutions/cpu/bias_gelu")
TASK = os.path.join(ROOT, "bench/serve/task.py")  # the same as the solution's, and small
PYTHON = os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")
TORCH = subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"],
                       stderr=subprocess.DEVNULL).returncode == 0 if os.path.exists(PYTHON) else False
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
count = 0


def ok(good, what, note=""):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)
    if not good:
        print("# " + str(note)[:2000].replace("\n", "\n# "), flush=True)


class Server:
    def __init__(self, *args):
        self.dir = tempfile.TemporaryDirectory(prefix="warpwright-test-")
        argv = [WW, "mcp", "--target", "cpu", "--threads", "1", "--baselines", "eager", *args]  # nothing is timed
        self.p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  cwd=self.dir.name)
        self.lines, self.n, self.notes = queue.Queue(), 0, []
        threading.Thread(target=lambda: [self.lines.put(json.loads(line)) for line in self.p.stdout],
                         daemon=True).start()

    def raw(self, data):
        self.p.stdin.write(data)
        self.p.stdin.flush()

    def hear(self, seconds=120):
        return self.lines.get(timeout=seconds)

    def ask(self, method, seconds=120, meta=None, **params):
        self.n += 1
        params["_meta"] = {**META, **(meta or {})}
        self.raw(json.dumps({"jsonrpc": "2.0", "id": self.n, "method": method, "params": params}).encode() + b"\n")
        while True:
            o = self.hear(seconds)
            if o.get("id") == self.n:
                return o.get("result") or o
            self.notes.append(o)

    def tool(self, name, meta=None, **args):
        return self.ask("tools/call", name=name, arguments=args, meta=meta)

    def end(self):
        start = time.time()
        self.p.stdin.close()
        return self.p.wait(60), time.time() - start


def below(directory):
    """Processes that work in this directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(directory):
                found.append(pid)
        except OSError:
            pass
    return found


def follow(s, made, seconds=120):
    until = time.time() + seconds
    while time.time() < until:
        t = s.ask("tasks/get", taskId=made["taskId"])
        if t.get("status") != "working":
            return t
        time.sleep(0.2)
    return t


print(f"1..{21 if TORCH else 9}")
s = Server()
s.raw(b'{"jsonrpc":"2.0","id":"a","me')
time.sleep(0.1)
s.raw(b'thod":"ping"}\r\n\n  \n{"jsonrpc":"2.0","id":"b","method":"ping"}\nnot json\n')
got = [s.hear(), s.hear(), s.hear()]
ok(got[0] == {"jsonrpc": "2.0", "id": "a", "result": {}} and got[1]["id"] == "b" and got[2]["error"]["code"] == -32700,
   "a line in two pieces, blank lines, two messages in one write, a bad line", got)
s.raw(b"x" * (17 << 20) + b'\n{"jsonrpc":"2.0","id":"c","method":"ping"}\n')
got = [s.hear(), s.hear()]
ok(got[0]["error"]["code"] == -32700 and "16 MiB" in got[0]["error"]["message"] and got[1]["id"] == "c",
   "a line that is too long is answered and skipped", got)
tools = {t["name"]: t for t in s.ask("tools/list")["tools"]}
with open(os.path.join(os.environ.get("WW_SOURCE_DIR", "."), "src/agent/tools.def"), encoding="utf-8") as f:
    offered = re.findall(r"^TOOL\((\w+), \w+, \w+, MCP\)", f.read(), re.M)
ok(list(tools) == offered and len(offered) >= 6, "the tools that tools.def offers over MCP", list(tools))
ok(all(t["inputSchema"]["additionalProperties"] is False and t["outputSchema"]["type"] == "object" and t["description"]
       for t in tools.values()),
   "each has a description and both schemas", tools)
r = s.tool("inspect", task="/no/such/task.py")
ok(r["isError"] and "/no/such/task.py" in r["content"][0]["text"], "a task that is not there", r)
r = s.tool("compile", task=TASK, task_source="x")
ok(r["isError"] and "one of the two" in r["content"][0]["text"], "a path and a text", r)
r = follow(s, s.tool("export", dir="/no/such/dir"))
ok(r["status"] == "completed" and r["result"]["isError"] and "/no/such/dir" in r["result"]["content"][0]["text"],
   "a command that fails says why", r)
r = s.tool("optimize", task=TASK, max_seconds=0)
ok(r["isError"] and "max_seconds" in r["content"][0]["text"], "an argument out of its range", r)

if TORCH:
    with open(os.path.join(SOLUTION, "kernels.c"), encoding="utf-8") as f:
        kernels = f.read()
    with open(os.path.join(SOLUTION, "plan.c"), encoding="utf-8") as f:
        plan = f.read()
    with open(TASK, encoding="utf-8") as f:
        source = f.read()
    r = s.tool("inspect", task=TASK)
    ok(not r["isError"] and r["structuredContent"]["graph"]["nodes"] and len(r["content"][0]["text"]) < 30000,
       "inspect", r)
    start = time.time()
    r = s.tool("compile", task_source=source, kernels=kernels, plan=plan)
    ok(not r["isError"] and r["structuredContent"]["status"] == "ok" and time.time() - start < 20,
       "compile, by texts, in the process that inspect left open", r)
    r = s.tool("compile", task=TASK, kernels=kernels + "\nint x = ;\n", plan=plan)
    ok(not r["isError"] and r["structuredContent"]["status"] == "compile_failed" and "error" in r["content"][0]["text"],
       "what does not compile is a verdict with the compiler's words", r)
    made = s.tool("verify", task=TASK, solution=SOLUTION, time=False)
    r = follow(s, made)
    ok(made["resultType"] == "task" and r["status"] == "completed"
       and r["result"]["structuredContent"]["correct"] is True,
       "verify as a task, polled to its end", r)
    s.notes = []
    r = s.ask("tools/call", name="verify", arguments={"task": TASK, "kernels": kernels.replace("ww_vf_gelu(v)", "v"),
                                                      "plan": plan, "time": False},
              meta={"io.modelcontextprotocol/clientCapabilities": {}, "progressToken": "p"})
    ok(kernels.count("ww_vf_gelu(v)") and not r["isError"] and r["structuredContent"]["status"] == "mismatch",
       "a wrong solution, without tasks", r)
    progress = [n["params"] for n in s.notes if n.get("method") == "notifications/progress"]
    ok(progress and all(p["progressToken"] == "p" and p["message"] for p in progress)
       and [p["progress"] for p in progress] == list(range(1, len(progress) + 1)), "its progress, in order", s.notes)
    r = s.ask("tools/call", name="verify", arguments={"task": TASK, "kernels": kernels.replace("ww_vf_gelu(v)", "v"),
                                                      "plan": plan, "sanitize": True},
              meta={"io.modelcontextprotocol/clientCapabilities": {}})["structuredContent"]
    ok(r["status"] == "mismatch" and r["time"]["device_us"] is None and "compute-sanitizer" in r["diagnostics"],
       "sanitize: not timed, and a word of compute-sanitizer", r)
    made = s.tool("optimize", task=TASK, output="run")
    while not os.path.exists(os.path.join(s.dir.name, "run/episode.jsonl")) and s.ask(
        "tasks/get", taskId=made["taskId"])["status"] == "working":
        time.sleep(0.02)
    s.ask("tasks/cancel", taskId=made["taskId"])
    t = s.ask("tasks/get", taskId=made["taskId"])
    ok(t["status"] == "cancelled" and os.path.exists(os.path.join(s.dir.name, "run/episode.jsonl")),
       "optimize begins, and is cancelled", t)
    made = s.tool("profile", task=TASK, what="reference")
    s.ask("tasks/cancel", taskId=made["taskId"])
    r = s.tool("compile", task=TASK, solution=SOLUTION)
    ok(r.get("structuredContent", {}).get("status") == "ok", "after a cancelled question the next one is answered", r)
    made = s.tool("verify", task=TASK, solution=SOLUTION)
    began = below(s.dir.name)
    code, seconds = s.end()
    ok(code == 0 and seconds < 30, "end of input with a verdict under way: the server ends", (code, seconds))
    until = time.time() + 10
    while (left := below(s.dir.name)) and time.time() < until:
        time.sleep(0.1)
    ok(began and not left, "and leaves none of the processes that it started", (began, left))
    s = Server()
    r = s.ask("server/discover")
    ok(r["supportedVersions"] == ["2026-07-28"], "a second server", r)

code, seconds = s.end()
ok(code == 0 and seconds < 5 and not s.p.stderr.read(), "end of input ends it at once, and nothing was said on stderr",
   (code, seconds))
