#!/usr/bin/env python3
# label: oracle
# budget: 6 CPU-seconds
"""`warpwright serve`, the official MCP Python SDK and the official OpenEnv client (tests/oracle/serve_client.py, with
.venv-oracle: tools/setup check)."""
import os
import subprocess
import sys

ROOT = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WW = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")
ORACLE = os.path.join(ROOT, ".venv-oracle/bin/python")
PYTHON = os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")


def has(python, package):
    probe = f"import importlib.util as u, sys; sys.exit(u.find_spec('{package}') is None)"
    return os.path.exists(python) and subprocess.run([python, "-c", probe], check=False).returncode == 0


for python, package in ((ORACLE, "mcp"), (ORACLE, "openenv"), (PYTHON, "torch")):
    if not has(python, package):
        print(f"1..0 # SKIP no {package} (tools/setup check)")
        sys.exit(0)
os.execv(ORACLE, [ORACLE, os.path.join(ROOT, "tests/oracle/serve_client.py"), WW, ROOT])
