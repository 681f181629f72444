#!/usr/bin/env python3
"""The official MCP Python SDK and the official OpenEnv client, and its validator, at `warpwright serve`: their own
types check every
message.  Prints TAP; one reference worker.     serve_client.py WARPWRIGHT SOURCE_DIR"""
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import types
import warnings

# OpenEnv's package imports its server half too, and with it gradio, pandas and fastmcp: five seconds, for nothing of
# the client's.
server_half = types.ModuleType("openenv.core.env_server.http_server")
server_half.create_app = server_half.create_fastapi_app = server_half.HTTPEnvServer = None
sys.modules[server_half.__name__] = server_half
for optional in ("mcp_environment", "web_interface"):
    sys.modules["openenv.core.env_server." + optional] = None

gc.disable()  # half of what the imports take
import mcp.client.session as session_module  # noqa: E402
from mcp import Client, MCPError  # noqa: E402
from openenv.cli._validation import validate_running_environment  # noqa: E402
from openenv.core.env_server.types import (  # noqa: E402
    EnvironmentMetadata, SchemaResponse, State, WSObservationResponse)
from openenv.core.generic_client import GenericEnvClient  # noqa: E402
import requests  # noqa: E402

gc.freeze()
gc.enable()

WW, ROOT = sys.argv[1], sys.argv[2]
SOLUTION = ROOT + "/examples/solutions/cpu/bias_gelu"
TASK = ROOT + "/bench/serve/task.py"    # the same as the solution's, and small
NAMES = ["inspect", "compile", "verify", "profile", "optimize", "export"]
count = 0
warnings.simplefilter("ignore")


def ok(good, what, note=""):
    global count
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)
    if not good:
        print("# " + str(note)[:2000].replace("\n", "\n# "), flush=True)


def read(name):
    with open(TASK if name == "task.py" else f"{SOLUTION}/{name}", encoding="utf-8") as f:
        return f.read()


async def mcp_door(url):
    for version in ("2025-06-18", "2025-11-25"):
        session_module.LATEST_HANDSHAKE_VERSION = version
        async with Client(url, mode="legacy") as client:
            tools = (await client.list_tools()).tools
            r = await client.call_tool("inspect", {"task": "/no/such/task.py"})
            await client.send_ping()
            ok(client.protocol_version == version and [t.name for t in tools] == NAMES and r.is_error,
               f"MCP {version}: handshake, tools, a call", r)
    stages = []

    async def on_progress(progress, total, message):
        stages.append(progress)

    async with Client(url) as client:
        ok(client.protocol_version == "2026-07-28" and [t.name for t in (await client.list_tools()).tools] == NAMES,
           "MCP 2026-07-28: found by asking")
        r = await client.call_tool("verify", {"task": TASK, "solution": SOLUTION, "time": False},
                                   progress_callback=on_progress)
        ok(r.structured_content["correct"] is True and stages and stages == sorted(stages),
           "MCP 2026-07-28: verify, with progress", (r, stages))
        several = await asyncio.gather(*(client.call_tool("compile", {"task": TASK, "plan": read("plan.c"),
                                                                      "kernels": read("kernels.c") + extra})
                                         for extra in ("", "int x = ;") * 4))
        got = [r.structured_content["status"] for r in several]
        ok(got == ["ok", "compile_failed"] * 4, "MCP 2026-07-28: eight calls at once", got)
        try:
            await client.call_tool("nothing", {})
            ok(False, "MCP 2026-07-28: an unknown tool")
        except MCPError as e:
            ok(e.code == -32602, "MCP 2026-07-28: an unknown tool", e)


def follow(env, action):
    r = env.step(action)
    while r.observation["pending"]:
        r = env.step({"tool": "wait"})
    return r


def openenv_door(url):
    report = validate_running_environment(url)
    ok(report["passed"] and report["mode"] == "simulation" and report["standard_profile"] == "openenv-http/1.x",
       "OpenEnv: its validator", report)
    EnvironmentMetadata(**requests.get(url + "/metadata", timeout=10).json())
    schema = requests.get(url + "/schema", timeout=10).json()
    SchemaResponse(**{k: schema[k] for k in ("action", "observation", "state")})
    with GenericEnvClient(base_url=url).sync() as env:
        r = env.reset(task_source=read("task.py"), seed=1, episode_id="e")
        while r.observation["pending"]:
            r = env.step({"tool": "wait"})
        WSObservationResponse(data={"observation": r.observation, "reward": r.reward, "done": r.done})
        ok(set(r.observation) <= set(schema["observation"]["properties"]) and not r.done, "OpenEnv: reset", r)
        for name in ("kernels.c", "plan.c"):
            follow(env, {"tool": "write", "arguments": {"path": name, "text": read(name)}})
        r = follow(env, {"tool": "verify", "arguments": {"time": False}, "metadata": {}})
        ok(r.observation["results"][0]["data"]["correct"] is True, "OpenEnv: write, write, verify", r)
        state = State(**env.state())
        ok(state.episode_id == "e" and state.step_count == 3, "OpenEnv: state", state)
        r = follow(env, {"text": "That is all."})
        ok(r.done and isinstance(r.reward, (int, float)) and r.reward >= 1 and r.observation["end_reason"] == "stopped",
           "OpenEnv: the end", r)
        try:
            env.reset(nonsense=1)
            ok(False, "OpenEnv: what reset does not take")
        except RuntimeError as e:
            ok("nonsense" in str(e), "OpenEnv: what reset does not take", e)


print("1..12")
with tempfile.TemporaryDirectory() as work, subprocess.Popen(
        [WW, "serve", "--port", "0", "--json", "--target", "cpu", "--threads", "1", "--baselines", "",
         "--max-time-seconds", "0.2", "--max-seconds", "60"],
        stdout=subprocess.PIPE, cwd=work, env={"WARPWRIGHT_HOME": ROOT, "PATH": "/usr/bin:/bin", "HOME": work,
                                               "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", work)}) as server:
    base = f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
    asyncio.run(mcp_door(base + "/mcp"))
    openenv_door(base)
    server.terminate()
