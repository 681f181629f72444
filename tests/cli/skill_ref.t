#!/usr/bin/env python3
# label: oracle
"""The skill by the reference implementation of agentskills.io (`agentskills`, package skills-ref, in .venv-oracle), and
what both refuse."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, WW, finish, ok, skip_all  # noqa: E402

REF = os.path.join(ROOT, ".venv-oracle/bin/agentskills")
if not os.path.exists(REF):
    skip_all("no agentskills (tools/setup check)")
TMP = tempfile.mkdtemp(prefix="ww-skill-")
SKILL = os.path.join(ROOT, "skills/cuda")


def reference(folder):
    p = subprocess.run([REF, "validate", folder], capture_output=True, text=True, timeout=60, check=False)
    return p.returncode == 0, p.stdout + p.stderr


def ours(folder):
    """A skill is looked at before anything starts: a folder that is refused needs no task that exists."""
    p = subprocess.run([WW, "optimize", os.path.join(TMP, "none.py"), "--policy", "planner", "--skill", folder],
                       capture_output=True, text=True,
                       timeout=60, check=False)
    return "SKILL.md" not in p.stderr, p.stderr


good, text = reference(SKILL)
ok(good, "the reference implementation finds the skill valid", text)
p = subprocess.run([REF, "read-properties", SKILL], capture_output=True, text=True, timeout=60, check=False)
ok('"name": "cuda"' in p.stdout, "and reads its name", p.stdout + p.stderr)
p = subprocess.run([REF, "to-prompt", SKILL], capture_output=True, text=True, timeout=60, check=False)
ok("<name>\ncuda\n</name>" in p.stdout and "SKILL.md" in p.stdout, "and offers it to an agent's prompt",
   p.stdout + p.stderr)
with open(os.path.join(SKILL, "SKILL.md"), encoding="utf-8") as f:
    text = f.read()
front = text.split("---\n")[1]
cases = {"no name": text.replace("name: cuda\n", "", 1), "another name": text.replace("name: cuda\n", "name: gpu\n", 1),
         "a name in capitals": text.replace("name: cuda\n", "name: CUDA\n", 1),
         "no description": text.replace(front, "name: cuda\n", 1),
         "a description too long": text.replace(front, "name: cuda\ndescription: " + "x" * 1025 + "\n", 1),
         "a front matter without an end": text.replace("\n---\n", "\n", 1),
         "no front matter": text.split("---\n", 2)[2]}
for name, changed in cases.items():
    folder = os.path.join(TMP, name.replace(" ", "-"), "cuda")
    os.makedirs(folder)
    with open(os.path.join(folder, "SKILL.md"), "w", encoding="utf-8") as f:
        f.write(changed)
    (theirs, said), (mine, answer) = reference(folder), ours(folder)
    ok(not theirs and not mine and answer.count("\n") == 1, f"{name}: both refuse it, we in one line",
       f"{said}\n{answer}")
shutil.rmtree(TMP, ignore_errors=True)
finish()
