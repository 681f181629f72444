#!/usr/bin/env python3
"""The official MCP Python SDK as a client of `warpwright mcp`: its own types check every message, its own code follows
each revision, and a client extension follows tasks.  Prints TAP.
mcp_client.py WARPWRIGHT SOURCE_DIR [all]      all: also calls that need PyTorch; one reference worker"""
import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import warnings
from typing import Literal

gc.disable()  # half of what the imports take
import mcp.client.session as session_module  # noqa: E402
from mcp import Client, MCPError, StdioServerParameters  # noqa: E402
from mcp.client.extension import ClientExtension, ResultClaim  # noqa: E402
import mcp_types as types  # noqa: E402
from mcp_types import CallToolResult, Request, RequestParams, Result  # noqa: E402

gc.freeze()
gc.enable()

WW, ROOT, ALL = sys.argv[1], sys.argv[2], sys.argv[3:] == ["all"]
SOLUTION = ROOT + "/examples/solutions/cpu/bias_gelu"
TASK = ROOT + "/bench/serve/task.py"    # the same as the solution's, and small
# The SDK passes little on; without XDG_CACHE_HOME the store would be the user's own.
ENV = {"WARPWRIGHT_HOME": ROOT, **{k: v for k, v in os.environ.items() if k == "XDG_CACHE_HOME"}}
SERVER = StdioServerParameters(command=WW, args=["mcp", "--target", "cpu", "--threads", "1"], env=ENV)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/agent/tools.def"), encoding="utf-8") as f:
    NAMES = re.findall(r"^TOOL\((\w+), \w+, \w+, MCP\)", f.read(), re.M)
count = 0
warnings.simplefilter("ignore")    # what the older revisions had is deprecated in the newest


def ok(good, what, note=""):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)
    if not good:
        print("# " + str(note)[:2000].replace("\n", "\n# "), flush=True)


class TaskMade(Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int


class TaskParams(RequestParams):
    task_id: str


class TaskState(Result):
    status: str
    status_message: str
    result: CallToolResult | None = None


def task_request(method, task_id):
    return Request[TaskParams, str](method=method, params=TaskParams(task_id=task_id))


class Tasks(ClientExtension):
    """What a user of the SDK writes to have call_tool() wait for a task."""
    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self):
        self.made, self.seen = [], []

    async def follow(self, made, ctx):
        self.made.append(made)
        while True:
            state = await ctx.session.send_request(task_request("tasks/get", made.task_id), TaskState)
            self.seen.append(state.status_message)
            if state.status != "working":
                return state.result
            await asyncio.sleep(0.2)

    def claims(self):
        return [ResultClaim(result_type="task", model=TaskMade, resolve=self.follow)]


def asked_tasks():
    """Tasks of 2025-11-25, which a client asks for.  The SDK has types for them and no client, so the lines are
    ours."""
    params = {"initialize": {"protocolVersion": "2025-11-25", "capabilities": {},
                             "clientInfo": {"name": "t", "version": "1"}},
              "tools/call": {"name": "export", "arguments": {"dir": "/no/such/dir"}, "task": {"ttl": 60000}}}
    with subprocess.Popen([WW, *SERVER.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as p:
        def ask(method, result_type, **more):
            p.stdin.write(json.dumps({"jsonrpc": "2.0", "id": method, "method": method,
                                      "params": params.get(method, more)}) + "\n")
            return result_type.model_validate(json.loads(p.stdout.readline())["result"], by_name=False)
        ask("initialize", types.InitializeResult)
        made = ask("tools/call", types.CreateTaskResult)
        task_id = made.task.task_id
        result = ask("tasks/result", CallToolResult, taskId=task_id)
        state = ask("tasks/get", types.GetTaskResult, taskId=task_id)
        listed = ask("tasks/list", types.ListTasksResult)
        ok(made.task.status == "working" and result.is_error and "/no/such/dir" in result.content[0].text
           and state.status == "failed"
           and [t.task_id for t in listed.tasks] == [task_id], "2025-11-25: a task, its result waited for",
           (made, result, state, listed))
        p.stdin.close()


async def handshake(version):
    """The older revisions: the SDK's handshake, pinned to one."""
    session_module.LATEST_HANDSHAKE_VERSION = version
    async with Client(SERVER, mode="legacy") as client:
        tools = (await client.list_tools()).tools
        ok(client.protocol_version == version and [t.name for t in tools] == NAMES, f"{version}: handshake and tools",
           client.protocol_version)
        r = await client.call_tool("inspect", {"task": "/no/such/task.py"})
        ok(r.is_error and "/no/such/task.py" in r.content[0].text, f"{version}: a call that fails", r)
        await client.send_ping()


async def judged(client, tasks, stages, on_progress):
    r = await client.call_tool("inspect", {"task": TASK}, progress_callback=on_progress)
    ok(not r.is_error and r.structured_content["graph"]["nodes"], "2026-07-28: inspect", r)
    ok(stages and [p for p, _ in stages] == sorted(p for p, _ in stages), "2026-07-28: its progress", stages)
    r = await client.call_tool("compile", {"task": TASK, "solution": SOLUTION})
    ok(r.structured_content["status"] == "ok" and len(tasks.made) == 1, "2026-07-28: compile answers at once", r)
    r = await client.call_tool("verify", {"task": TASK, "solution": SOLUTION, "time": False})
    ok(r.structured_content["correct"] is True and len(tasks.made) == 2,
       "2026-07-28: verify is a task, followed to its end", r)
    made = await client.session.call_tool("profile", {"task": TASK, "what": "reference"}, allow_claimed=True)
    await client.session.send_request(task_request("tasks/cancel", made.task_id), Result)
    state = await client.session.send_request(task_request("tasks/get", made.task_id), TaskState)
    ok(state.status == "cancelled", "2026-07-28: a task is cancelled", state)


async def modern():
    tasks, stages = Tasks(), []

    async def on_progress(progress, total, message):
        stages.append((progress, message))

    async with Client(SERVER, extensions=[tasks]) as client:
        ok(client.protocol_version == "2026-07-28" and client.server_info.name == "warpwright"
           and "plan.c" in client.instructions,
           "2026-07-28: found by asking the server", client.protocol_version)
        ok([t.name for t in (await client.list_tools()).tools] == NAMES, "2026-07-28: tools")
        r = await client.call_tool("export", {"dir": "/no/such/dir"})
        ok(r.is_error and "/no/such/dir" in r.content[0].text and len(tasks.made) == 1,
           "2026-07-28: export is a task, followed to its end", r)
        if ALL:
            await judged(client, tasks, stages, on_progress)
        try:
            await client.call_tool("nothing", {})
            ok(False, "2026-07-28: an unknown tool")
        except MCPError as e:
            ok(e.code == -32602, "2026-07-28: an unknown tool", e)


async def main():
    print(f"1..{14 if ALL else 9}")
    await handshake("2025-06-18")
    await handshake("2025-11-25")
    asked_tasks()
    await modern()


asyncio.run(main())
