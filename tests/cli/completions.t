#!/usr/bin/env python3
# label: oracle
"""`warpwright serve --models` and the official openai client (tests/oracle/openai_client.py, with .venv-oracle:
tools/setup check)."""
import os
import subprocess
import sys

ROOT = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WW = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")
ORACLE = os.path.join(ROOT, ".venv-oracle/bin/python")

probe = "import importlib.util as u, sys; sys.exit(u.find_spec('openai') is None)"
if not os.path.exists(ORACLE) or subprocess.run([ORACLE, "-c", probe], check=False).returncode:
    print("1..0 # SKIP no openai (tools/setup check)")
    sys.exit(0)
os.execv(ORACLE, [ORACLE, os.path.join(ROOT, "tests/oracle/openai_client.py"), WW, ROOT])
