#!/usr/bin/env python3
# budget: 8 CPU-seconds
"""`warpwright serve` as clients see it, without an SDK: MCP over HTTP in its three revisions, OpenEnv over a WebSocket
and over HTTP, who is let in, and a clean end.  One reference worker for all of it."""
import base64
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

ROOT = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WW = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")
SOLUTION = os.path.join(ROOT, "examples/solutions/cpu/bias_gelu")
TASK = os.path.join(ROOT, "bench/serve/task.py")    # the same as the solution's, and small
PYTHON = os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")
TORCH = subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"],
                       check=False,
                       stderr=subprocess.DEVNULL).returncode == 0 if os.path.exists(PYTHON) else False
VERSION = "2026-07-28"
EVENTS = "application/json, text/event-stream"
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
work = tempfile.TemporaryDirectory(prefix="warpwright-test-")
TMP = os.path.join(work.name, "tmp")    # of the servers, which leave nothing there
os.mkdir(TMP)
count = 0


def ok(good, what, note=""):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)
    if not good:
        print("# " + str(note)[:2000].replace("\n", "\n# "), flush=True)


def read(name):
    with open(os.path.join(SOLUTION, name), encoding="utf-8") as f:
        return f.read()


class Server:
    def __init__(self, *args, env=None):
        self.p = subprocess.Popen([WW, "serve", "--port", "0", "--json", "--target", "cpu", "--threads", "1", *args],
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, cwd=work.name,
                                  env={**os.environ, "TMPDIR": TMP, **(env or {})})
        self.port = json.loads(self.p.stdout.readline())["port"]

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, method, path, body=None, **headers):
        c = self.connect()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        c.request(method, path, data, {k.replace("_", "-"): v for k, v in headers.items()})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, r.headers, text

    def rpc(self, body, **headers):
        """An answer as (status, headers, messages), whether it came as JSON or as a stream of events."""
        status, got, text = self.ask("POST", "/mcp", body, **{"Content_Type": "application/json", "Accept": EVENTS,
                                                              **headers})
        if "event-stream" in (got["Content-Type"] or ""):
            return status, got, [json.loads(line[6:]) for line in text.decode().split("\n")
                                 if line.startswith("data: ")]
        return status, got, [json.loads(text)] if text else []

    def modern(self, method, headers=None, capabilities=None, meta=None, **params):
        params["_meta"] = {"io.modelcontextprotocol/protocolVersion": VERSION,
                           "io.modelcontextprotocol/clientCapabilities": capabilities or {}, **(meta or {})}
        h = {"MCP_Protocol_Version": VERSION, "Mcp_Method": method}
        if method == "tools/call":
            h["Mcp_Name"] = params["name"]
        h.update(headers or {})
        return self.rpc({"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
                        **{k: v for k, v in h.items() if v})

    def tool(self, name, capabilities=None, meta=None, **args):
        return self.modern("tools/call", capabilities=capabilities, meta=meta, name=name, arguments=args)


class WebSocket:
    def __init__(self, server, path="/ws"):
        self.s = socket.create_connection(("127.0.0.1", server.port), timeout=120)
        key = base64.b64encode(os.urandom(16)).decode()
        self.s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       "Sec-WebSocket-Version: 13\r\n"
                       f"Sec-WebSocket-Key: {key}\r\n\r\n".encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])

    def more(self):
        got = self.s.recv(65536)
        if not got:
            raise EOFError
        self.buffer += got

    def take(self, n):
        while len(self.buffer) < n:
            self.more()
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def send(self, message):
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        length = struct.pack("!BH", 0xFE, len(data)) if 126 <= len(data) < 65536 else bytes([0x80 | len(data)])
        self.s.sendall(b"\x81" + length + b"\0\0\0\0" + data)

    def hear(self):
        while True:
            first, n = self.take(2)
            n = struct.unpack("!H", self.take(2))[0] if n == 126 else struct.unpack("!Q", self.take(8))[
                0] if n == 127 else n
            data = self.take(n)
            if first & 15 == 1:
                return json.loads(data)
            if first & 15 == 8:
                return struct.unpack("!H", data[:2])[0]

    def ask(self, kind, **data):
        self.send({"type": kind, "data": data})
        return self.hear()

    def step(self, tool, **arguments):
        """A step followed to its answer."""
        r = self.ask("step", tool=tool, arguments=arguments)
        while r["type"] == "observation" and r["data"]["observation"]["pending"]:
            r = self.ask("step", tool="wait")
        return r["data"]


def command(*args, env=None):
    r = subprocess.run([WW, "serve", *args], capture_output=True, text=True, timeout=60, check=False,
                       env={**os.environ, **(env or {})})
    return r.returncode, r.stdout + r.stderr


print(f"1..{42 if TORCH else 28}")
tasks, episodes = os.path.join(work.name, "tasks.jsonl"), os.path.join(work.name, "episodes")
with open(tasks, "w", encoding="utf-8") as f:
    with open(TASK, encoding="utf-8") as g:
        f.write("{broken\n" + json.dumps({"id": "gelu", "code": g.read()}) + "\n")
s = Server("--baselines", "eager", "--max-time-seconds", "0.2", "--max-sessions", "3", "--max-turns", "12", "--tasks",
           tasks,
           "--episodes", episodes)

# ---- Starting
code, said = command("--port", str(s.port), "--target", "cpu")
ok(code == 3 and said.count("\n") == 1 and "in use" in said, "a port in use is one line, exit 3", (code, said))
code, said = command("--host", "0.0.0.0", "--target", "cpu")
ok(code == 2 and "token" in said, "nobody is let in from elsewhere without a token", (code, said))
code, said = command("--token-file", os.devnull, "--target", "cpu")
ok(code in (2, 3) and said.count("\n") == 1, "a file without a token", (code, said))
with open(os.path.join(work.name, "token"), "wb") as f:
    f.write(b"0123456789abcdef\0more\n")
code, said = command("--token-file", f.name, "--target", "cpu")
ok(code == 2 and "NUL" in said and said.count("\n") == 1, "a token that a NUL would shorten", (code, said))

# ---- MCP, 2026-07-28
status, _, r = s.modern("server/discover")
ok(status == 200 and r[0]["result"]["supportedVersions"] == [VERSION], "server/discover", r)
bad = [s.modern("tools/list", headers=h)[:3:2] for h in ({"MCP_Protocol_Version": None}, {"Mcp_Method": "ping"},
                                                         {"Mcp_Method": None})]
bad.append(s.modern("tools/call", headers={"Mcp_Name": "verify"}, name="inspect", arguments={})[:3:2])
ok(all(status == 400 and r[0]["error"]["code"] == -32020 for status, r in bad),
   "headers that do not say what the body says", bad)
other = {"MCP_Protocol_Version": "2030-01-01"}
r = [s.modern("tools/list", headers=other, meta={"io.modelcontextprotocol/protocolVersion": "2030-01-01"}),
     s.rpc({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}, **other)]
ok(all(x[0] == 400 and x[2][0]["error"]["code"] == -32022 and VERSION in x[2][0]["error"]["data"]["supported"]
       for x in r),
   "a revision that nobody knows", r)
r = s.modern("no/such")
ok(r[0] == 404 and r[2][0]["error"]["code"] == -32601, "a method that there is not", r)
r = s.tool("inspect", task="/no/such/task.py")
ok(r[0] == 200 and r[2][-1]["result"]["isError"] and "/no/such" in r[2][-1]["result"]["content"][0]["text"],
   "a tool that fails says why", r)

# ---- Bodies
got = [s.rpc(b"not json")[0], s.rpc([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])[0],
       s.rpc({}, Content_Type="text/plain")[0],
       s.rpc({}, Accept="text/html")[0], s.rpc({})[0], s.ask("PUT", "/mcp")[0], s.ask("GET", "/mcp")[0],
       s.ask("DELETE", "/mcp")[0]]
ok(got == [400, 400, 415, 406, 200, 405, 405, 405], "what is no message, and other methods", got)
long = s.connect()
long.putrequest("POST", "/mcp")
long.putheader("Content-Length", str(17 << 20))
long.endheaders()
got = [s.rpc({"jsonrpc": "2.0", "method": "notifications/initialized"})[0], long.getresponse().status]
ok(got == [202, 413], "a notification is accepted; a body above 16 MiB is not", got)

def peak():
    with open(f"/proc/{s.p.pid}/status", encoding="utf-8") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read())[1])


before, many = peak(), b"[" + b"{}," * 1000000 + b"0]"
got = [s.ask("POST", "/step", b'{"episode_id":"x","action":' + many + b"}")[0], s.rpc(b'{"params":' + many + b"}")[0]]
ok(got == [422, 400] and peak() - before < 50000, "a million empty objects are refused without being made",
   (got, peak() - before))

# ---- MCP, older revisions
hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
                                                                       "capabilities": {},
                                                                        "clientInfo": {"name": "t", "version": "1"}}}
listing = {"jsonrpc": "2.0", "id": "l", "method": "tools/list"}
status, headers, r = s.rpc(hello)
session = headers["Mcp-Session-Id"]
ok(status == 200 and session and r[0]["result"]["protocolVersion"] == "2025-11-25", "initialize opens a session", r)
in_it = {"Mcp_Session_Id": session, "MCP_Protocol_Version": "2025-11-25"}
status, _, r = s.rpc(listing, **in_it)
ok(status == 200 and r[0]["id"] == "l" and len(r[0]["result"]["tools"]) == 6, "its requests", r)
got = [s.rpc(listing)[0], s.rpc(listing, Mcp_Session_Id="x")[0],
       s.rpc(listing, **{**in_it, "MCP_Protocol_Version": "1"})[0]]
ok(got == [400, 404, 400], "no session, one that is not there, and a revision that nobody knows", got)
stream = s.connect()
stream.request("GET", "/mcp", headers={"Accept": "text/event-stream", "Mcp-Session-Id": session})
r = stream.getresponse()
second = s.ask("GET", "/mcp", Accept="text/event-stream", **in_it)[0]
ok(r.status == 200 and r.headers["Content-Type"] == "text/event-stream" and second == 409, "its stream, once",
   (r.status, second))
got = [s.ask("DELETE", "/mcp", **in_it)[0], s.rpc(listing, **in_it)[0], r.read()]
ok(got == [204, 404, b""], "its end, which ends the stream too", got)

# ---- OpenEnv: what it is
status, _, text = s.ask("GET", "/health")
ok(status == 200 and json.loads(text) == {"status": "healthy"}, "/health", text)
meta, schema, api = (json.loads(s.ask("GET", p)[2]) for p in ("/metadata", "/schema", "/openapi.json"))
ok(meta["name"] == "warpwright" and meta["description"] and {"action", "observation", "state"} <= set(schema)
   and {"/reset", "/step", "/state", "/health", "/metadata", "/schema", "/mcp"} == set(api["paths"])
   and api["paths"]["/reset"]["post"]["requestBody"]["content"]["application/json"]["schema"] == schema["reset"],
   "/metadata, /schema, /openapi.json", (meta, api))
w = WebSocket(s)
got = [w.ask("dance")["data"]["code"], (w.send(b"{"), w.hear())[1]["data"]["code"],
       w.ask("step", tool="compile")["data"]["code"],
       w.ask("state")["data"]["episode_id"]]
ok(got == ["UNKNOWN_TYPE", "INVALID_JSON", "VALIDATION_ERROR", None], "/ws: messages that make no sense", got)
got = [w.ask("reset", **d) for d in ({"nonsense": 1}, {"seed": -1}, {"seed": "x"}, {"task": "../gelu"},
                                     {"task": "none"},
                                     {"task": "gelu", "task_source": "x"}, {"max_turns": 0}, {"task_source": "x = 1"})]
ok(all(r["type"] == "error" and r["data"]["message"] for r in got), "/ws: what reset does not take", got)
r = w.ask("mcp", jsonrpc="2.0", id=3, method="tools/list", params={})
ok(r["type"] == "mcp" and r["data"]["id"] == 3 and len(r["data"]["result"]["tools"]) == 6, "/ws: tools by MCP", r)
more = [WebSocket(s), WebSocket(s)]
full = WebSocket(s).status
more[0].send({"type": "close"})
more[0].hear()
until = time.time() + 10
while (again := WebSocket(s)).status != 101 and time.time() < until:
    time.sleep(0.05)
ok([x.status for x in more] == [101, 101] and full == 503 and again.status == 101,
   "a session more than there may be, and one when there is room", full)
for x in (*more, again):
    x.s.close()
until = time.time() + 10  # the server sees that they are gone when it reads from them
while s.ask("POST", "/reset", {"nonsense": 1})[0] == 503 and time.time() < until:
    time.sleep(0.05)
got = [s.ask("POST", "/step", {"action": {"tool": "compile"}})[0],
       s.ask("POST", "/step", {"episode_id": "x", "action": {}})[0],
       s.ask("POST", "/reset", {"nonsense": 1})[0], s.ask("POST", "/reset", b"[]")[0],
       s.ask("GET", "/state?episode_id=x")[0]]
ok(got == [422, 422, 422, 422, 404], "over HTTP: what cannot be done", got)

# ---- Metrics, read as Prometheus reads them
status, headers, text = s.ask("GET", "/metrics")
kinds, values, bad = {}, {}, []
for line in text.decode().splitlines():
    m = re.fullmatch(r'(\w+)(\{\w+="[^"]*"(?:,\w+="[^"]*")*\})? (-?[0-9.e+-]+)', line)
    if line.startswith("# TYPE "):
        kinds[line.split()[2]] = line.split()[3]
    elif m and m[1] in kinds:
        values[m[1] + (m[2] or "")] = float(m[3])
    elif not line.startswith("# HELP "):
        bad.append(line)
ok(status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4") and not bad
   and values['warpwright_http_requests_total{method="GET",path="/health",status="200"}'] == 1
   and values["warpwright_http_connections"] >= 1
   and values["warpwright_episodes"] == 1 and values["warpwright_judge_queue_length"] == 0
   and kinds["warpwright_judge_seconds_total"] == "counter"
   and values['warpwright_verdicts_total{status="ok"}'] == 0, "/metrics", (bad, text))

# ---- Who is let in
t = Server("--skill", "none", env={"WARPWRIGHT_TOKEN": "0123456789abcdef\n"})
got = [t.ask("GET", "/health")[0], t.ask("GET", "/metadata")[0],
       t.ask("GET", "/metadata", Authorization="Bearer 0123456789abcdef")[0],
       t.ask("GET", "/metadata", Authorization="Bearer 0123456789abcdeF")[0], WebSocket(t).status]
ok(got == [200, 401, 200, 401, 401], "a token from the environment", got)
got = [t.ask("GET", "/health", Host="evil.example")[0], t.ask("GET", "/health", Origin="https://evil.example")[0],
       t.ask("GET", "/health", Origin=f"http://127.0.0.1:{t.port}")[0]]
with open(f"/proc/{t.p.pid}/environ", "rb") as f:
    hidden = b"0123456789abcdef" not in f.read()
t.p.send_signal(signal.SIGTERM)
ok(got == [403, 403, 200] and hidden and t.p.wait(10) == 0, "pages of other sites are not; the token is hidden; "
                                                            "SIGTERM ends with exit 0", got)

if TORCH:
    kernels, plan = read("kernels.c"), read("plan.c")
    TASK = tasks + "#gelu"    # as the episode's, so that one reference worker serves both doors
    # ---- Verdicts over MCP
    status, headers, r = s.tool("verify", meta={"progressToken": "p"}, task=TASK, solution=SOLUTION, time=False)
    told = [x["params"] for x in r[:-1]]
    ok("event-stream" in headers["Content-Type"] and told and all(x["progressToken"] == "p" for x in told)
       and r[-1]["result"]["structuredContent"]["correct"] is True, "verify: progress, then the verdict", r)
    texts = {"ok": (kernels, plan), "compile_failed": (kernels + "\nint x = ;\n", plan),
             "plan_failed": (kernels, "void plan(void)")}
    results, threads = [], []

    def one(want):
        result = s.tool("compile", task=TASK, kernels=texts[want][0],
                        plan=texts[want][1])[2][-1]["result"]["structuredContent"]["status"]
        results.append((want, result))
    for i in range(12):
        threads.append(threading.Thread(target=one, args=(list(texts)[i % 3],)))
        threads[-1].start()
    for x in threads:
        x.join()
    ok(len(results) == 12 and all(a == b for a, b in results), "twelve at once: none lost, none mixed up", results)
    made = s.tool("verify", capabilities=TASKS, task=TASK, kernels=kernels.replace("ww_vf_gelu(v)", "v"), plan=plan,
                  time=False)[2][-1]["result"]
    until = time.time() + 60
    while (state := s.modern("tasks/get", taskId=made["taskId"])[2][-1]["result"])[
        "status"] == "working" and time.time() < until:
        time.sleep(0.1)
    ok(made["resultType"] == "task" and state["status"] == "completed"
       and state["result"]["structuredContent"]["status"] == "mismatch",
       "verify as a task", state)

    # A storm: clients that ask for a measurement and leave, before an honest one asks.
    def judged():
        return sum(float(x) for x in re.findall(r"^warpwright_verdicts_total\{.*\} (.*)$",
                                                s.ask("GET", "/metrics")[2].decode(), re.M))

    def leave(seconds):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "verify", "arguments": {"task": TASK, "kernels": kernels, "plan": plan},
            "_meta": {"io.modelcontextprotocol/protocolVersion": VERSION,
                      "io.modelcontextprotocol/clientCapabilities": {}}}}).encode()
        c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
        c.sendall(f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: {EVENTS}\r\n"
                  f"MCP-Protocol-Version: {VERSION}\r\n"
                  f"Mcp-Method: tools/call\r\nMcp-Name: verify\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(seconds)
        c.close()

    storm = [threading.Thread(target=leave, args=(0.05,)) for _ in range(40)]
    for x in storm:
        x.start()
    for x in storm:
        x.join()
    start, others = time.time(), judged()
    r = s.tool("verify", task=TASK, kernels=kernels, plan=plan, time=False)[2][-1]["result"]["structuredContent"]
    spent, others = time.time() - start, judged() - 1 - others
    ok(r["correct"] is True and others <= 2, f"40 clients ask and leave: an honest one waits for {others:g} of them, "
                                             f"{spent:.1f} s", (r, others))
    text = s.ask("GET", "/metrics")[2].decode()
    seconds = float(re.search(r"^warpwright_judge_seconds_total (.*)$", text, re.M)[1])
    ok(re.search(r'warpwright_verdicts_total\{status="ok"\} ([6-9])\n', text)
       and 'warpwright_verdicts_total{status="mismatch"} 1\n' in text and seconds > 0,
       "verdicts are counted by status", text)
    # ---- An episode
    first = w.ask("reset", task="gelu", episode_id="mine", seed=7)["data"]
    while first["observation"]["pending"]:
        first = w.ask("step", tool="wait")["data"]
    o = first["observation"]
    ok(first["reward"] is None and not first["done"] and "class Model" in o["text"] and "GOAL" in o["system"]
       and o["episode_id"] == "mine"
       and {"write", "verify", "submit"} <= {x["name"] for x in o["tools"]} and o["max_turns"] == 12,
       "reset shows the task", first)
    w.step("write", path="kernels.c", text=kernels)
    o = w.step("write", path="plan.c", text=plan)["observation"]
    ok(o["results"][0]["data"] and not o["results"][0]["is_error"] and o["turn"] == 2, "steps are calls of tools", o)
    r = w.ask("step", calls=[{"tool": "nothing"}, {"tool": "compile", "arguments": "{bad"},
                             {"tool": "compile"}])["data"]["observation"]
    ok([x["is_error"] for x in r["results"]] == [True, True, False] and r["results"][2]["data"]["status"] == "ok",
       "several calls in one step", r)
    r = w.step("verify", time=False)["observation"]["results"][0]["data"]
    ok(r["correct"] is True, "verify answers with the verdict", r)
    r, state = w.step("submit"), w.ask("state")["data"]
    ok(r["done"] and r["reward"] >= 1 and r["observation"]["end_reason"] == "submitted" and state["done"]
       and state["step_count"] == 5,
       "submit ends it, and the closing judgement is its reward", (r, state))
    with open(os.path.join(episodes, os.listdir(episodes)[0], "episode.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    ok(lines[0]["policy"] == "openenv" and lines[0]["seed"] == 7 and lines[-1]["type"] == "end"
       and lines[-1]["reward_final"] == r["reward"],
       "its record is kept", lines[-1])
    # ---- Over HTTP
    r = json.loads(s.ask("POST", "/reset", {"seed": 0, "max_turns": 2})[2])
    name = r["observation"]["episode_id"]
    r = json.loads(s.ask("POST", "/step", {"episode_id": name,
                                           "action": {"tool": "write", "arguments": {"path": "a", "text": "b"}}})[2])
    state = json.loads(s.ask("GET", f"/state?episode_id={name}")[2])
    again = s.ask("POST", "/reset", {"episode_id": name})
    last = json.loads(s.ask("POST", "/step", {"episode_id": name,
                                              "action": {"tool": "read", "arguments": {"path": "a"}}})[2])
    ok(again[0] == 409 and b"episode_id" in again[2], "a second reset with an episode_id in use", again)
    ok(not r["done"] and state["step_count"] == 1 and last["done"] and last["reward"] == -1
       and last["observation"]["end_reason"] == "turns",
       "an episode over HTTP, to its last turn", (r, state, last))
    # ---- The end: what is being answered is finished.
    ended = []
    waiting = threading.Thread(target=lambda: ended.append(s.tool("verify", task=TASK, solution=SOLUTION)))
    waiting.start()
    time.sleep(0.3)
    s.p.send_signal(signal.SIGTERM)
    closed = w.hear()
    waiting.join(120)
    code = s.p.wait(60)
    ok(closed == 1001 and ended and ended[0][2][-1]["result"]["structuredContent"]["status"] == "ok" and code == 0,
       "SIGTERM: sessions are closed, the verdict under way is answered, exit 0", (closed, ended, code))
else:
    s.p.send_signal(signal.SIGTERM)
    s.p.wait(10)
ok(not os.listdir(TMP), "and its temporary directory is empty", os.listdir(TMP))
s.p.kill()
