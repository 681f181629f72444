#!/usr/bin/env python3
# label: slow
# budget: 14 CPU-seconds
"""The worked cpu solution of skills/cuda/references/plan.md, judged; and one wrong constant in it, which must not
pass."""
import json
import os
import shutil
import subprocess
import tempfile

root = os.environ.get("WW_SOURCE_DIR", ".")
binary = os.environ.get("WARPWRIGHT", os.path.join(root, "build/warpwright"))
solution = os.path.join(root, "examples/solutions/cpu/bias_gelu")
python = os.environ.get("WW_PYTHON") or os.path.join(root, ".venv/bin/python")


def judge(directory):
    run = subprocess.run([binary, "judge", os.path.join(solution, "task.py"), directory, "--target", "cpu",
                          "--verify-only", "--json"],
                         stdout=subprocess.PIPE, timeout=280, check=False)
    return run.returncode, json.loads(run.stdout or "{}")


if subprocess.run([python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"],
                  stderr=subprocess.DEVNULL, check=False).returncode != 0:
    print("1..0 # SKIP no PyTorch at", python)
    raise SystemExit
print("1..4")
code, verdict = judge(solution)
print("%s 1 - the worked solution is correct: %s" % ("ok" if verdict.get("correct") and verdict["status"] == "ok"
                                                     else "not ok", verdict.get("status")))
print("%s 2 - and the command says so" % ("ok" if code == 0 else "not ok"))
with tempfile.TemporaryDirectory() as wrong:
    for name in ("plan.c", "kernels.c"):
        shutil.copy(os.path.join(solution, name), wrong)
    with open(os.path.join(wrong, "kernels.c"), encoding="utf-8") as f:
        text = f.read()
    with open(os.path.join(wrong, "kernels.c"), "w", encoding="utf-8") as f:
        f.write(text.replace("ww_vf_gelu(v)", "ww_vf_gelu(v * 1.001f)"))
    code, verdict = judge(wrong)
    print("%s 3 - a wrong constant is a mismatch: %s" % ("ok" if verdict.get("status") == "mismatch" else "not ok",
                                                         verdict.get("status")))
    print("%s 4 - and the command says so" % ("ok" if code == 1 else "not ok"))
