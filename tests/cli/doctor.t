#!/usr/bin/env python3
"""`doctor`: says ✓ or ✗ for every part with how to fix it, in under a second, without starting Python."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, ok, ROOT, skip, WW  # noqa: E402


def run(*args, **env):
    start = time.monotonic()
    p = subprocess.run([WW, "doctor", *args], capture_output=True, text=True, timeout=60, env={**os.environ, **env})
    return p.returncode, p.stdout, p.stderr, time.monotonic() - start


code, out, err, _ = run("--json")
report = json.loads(out)
parts = {p["name"]: p for p in report["parts"]}
ok(code == (0 if report["targets"]["cpu"] or report["targets"]["cuda"] else 1) and not err,
   "the exit code says whether a target works", err)
want = {"C compiler", "plan builder", "sandbox", "sampling", "Python", "PyTorch", "numpy", "OpenBLAS", "CUDA driver",
        "GPU", "cuda runner", "cuda engine", "NVRTC", "cuBLASLt",
        "cuDNN", "disk", "memory"}
ok(want <= set(parts), "every part is there", want - set(parts))
ok(all(p["ok"] or (p["unavailable"] and p["fix"]) for p in parts.values()),
   "each missing part says what is unavailable and how to fix it")
ok(all("unavailable" not in p for p in parts.values() if p["ok"]), "a part that is there loses nothing")
code, text, err, _ = run()
ok(all(("✓ " if p["ok"] else "✗ ") + n in text for n, p in parts.items()), "the text says the same", text)

version = r"^\d+\.\d+[\w.+]* \("
ok(all(re.match(version, parts[n]["found"]) for n in ("C compiler", "C++ compiler", "Python") if parts[n]["ok"])
   and all(re.match(r"\d+\.\d+", parts[n]["found"]) for n in ("PyTorch", "numpy") if parts[n]["ok"])
   and all(re.match(r"\d+\.\d+", parts[n]["found"]) for n in ("NVRTC", "cuBLASLt", "cuDNN")
           if "site-packages" in parts[n]["found"]),
   "compilers, Python, PyTorch and CUDA's libraries have versions", text)
ok("WW_PYTHON" in parts["Python"]["found"], "the line about Python names WW_PYTHON", parts["Python"])

best = min(run()[3] for _ in range(3))
ok(best < 1.0, f"it takes under a second ({best:.2f} s)")
trace = subprocess.run(["strace", "-f", "-e", "trace=execve", WW, "doctor"], capture_output=True, text=True) \
    if os.path.exists("/usr/bin/strace") else None
if trace:
    ok("python" not in trace.stderr, "it does not start Python", trace.stderr)
else:
    skip("it does not start Python", "no strace")

code, out, err, _ = run("--json", PATH="/nonexistent", WW_PYTHON="/nonexistent/python")
report = json.loads(out)
parts = {p["name"]: p for p in report["parts"]}
ok(code == 1 and not report["targets"]["cpu"], "without compiler and Python no target works: exit code 1", out)
ok(not parts["C compiler"]["ok"] and "apt-get" in parts["C compiler"]["fix"], "the missing compiler is named",
   parts["C compiler"])
ok(not parts["PyTorch"]["ok"], "the missing PyTorch is named", parts["PyTorch"])
ok(parts["PyTorch"]["fix"].startswith("unset WW_PYTHON; make -C /"),
   "in a checkout its own set-up mends it, once WW_PYTHON is out of the way",
   parts["PyTorch"])

# A distribution has no Makefile: there the environment is made by hand, with the PyTorch that the set-up of a checkout
# takes.
with tempfile.TemporaryDirectory() as home:
    os.mkdir(os.path.join(home, "bridge"))
    mend = {p["name"]: p for p in json.loads(run("--json", PATH="/nonexistent", WARPWRIGHT_HOME=home,
                                                 WW_PYTHON="")[1])["parts"]}["PyTorch"]["fix"]
    torch = re.search(r"^torch=(\S+)$", open(os.path.join(ROOT, "tools/setup")).read(), re.M).group(1)
    home = os.path.realpath(home)
    own = f"python3 -m venv {home}/.venv && {home}/.venv/bin/pip install torch=={torch} numpy"
    ok(mend == "sudo apt-get install -y python3-venv && " + own,
       "in a distribution it is a command for that, from the system's Python on", mend)
    os.mkdir(os.path.join(home, "bin"))
    os.symlink("/bin/true", os.path.join(home, "bin/python3"))
    mend = {p["name"]: p for p in json.loads(run("--json", PATH=home + "/bin", WARPWRIGHT_HOME=home,
                                                 WW_PYTHON="")[1])["parts"]}["PyTorch"]["fix"]
    ok(mend == own, "which is not installed where it is there", mend)
    for name in ("bin/python3", "lib/python3.12/os.py"):
        os.makedirs(os.path.join(home, "own", os.path.dirname(name)))
        shutil.copy("/bin/true", os.path.join(home, "own", name))
    mend = {p["name"]: p for p in json.loads(run("--json", PATH=home + "/own/bin", WARPWRIGHT_HOME=home,
                                                 WW_PYTHON="")[1])["parts"]}["PyTorch"]["fix"]
    ok(mend == "sudo apt-get install -y python3-venv && " + own, "but where it cannot make environments", mend)
    home = os.path.join(home, "it's a folder")
    os.makedirs(os.path.join(home, "bridge"))
    mend = {p["name"]: p for p in json.loads(run("--json", PATH="/nonexistent", WARPWRIGHT_HOME=home,
                                                 WW_PYTHON="")[1])["parts"]}["PyTorch"]["fix"]
    ok(shlex.split(mend)[9] == f"{os.path.realpath(home)}/.venv",
       "paths are quoted for the shell that the command is pasted into", mend)
    by_name = run("--json", WW_PYTHON=os.path.join(home, "python 3"))[1]
    os.symlink(sys.executable, os.path.join(home, "python 3"))
    found = {p["name"]: p for p in json.loads(run("--json", WW_PYTHON=os.path.join(home, "python 3"))[1])["parts"]}[
        "Python"]["found"]
    ok("'\\''s a folder/python 3', by WW_PYTHON)" in found and "not a program" in by_name, "and so is what was found",
       found)
# The plug-ins are of the build: without the one that runs plans the cuda target cannot work, whatever the machine has.
with tempfile.TemporaryDirectory() as home:
    alone = os.path.join(home, "warpwright")
    shutil.copy(WW, alone)

    def build_of(**env):
        p = subprocess.run([alone, "doctor", "--json"], capture_output=True, text=True, timeout=60,
                           env={**os.environ, **env}, check=False)
        found = json.loads(p.stdout)
        return found["targets"]["cuda"], {p["name"]: p for p in found["parts"]}

    works, parts = build_of(WARPWRIGHT_HOME=ROOT)
    ok(not works and not parts["cuda runner"]["ok"] and "make -C" in parts["cuda runner"]["fix"]
       and parts["cuda runner"]["unavailable"].startswith("the cuda target") and not parts["cuda engine"]["ok"],
       "a build without the plug-ins for cuda says so, and how to get them", parts)
    for name in ("judge", "engine"):
        with open(os.path.join(home, f"libwarpwright-{name}-cuda.so"), "w", encoding="utf-8"):
            pass
    parts = build_of()[1]
    ok(parts["cuda runner"]["ok"] and parts["cuda engine"]["ok"], "and one with them that they are there", parts)
# What a lower level of the sandbox does not hold is said, with the switch that would raise it.
for level, gap in (("seccomp", "read this user's files"), ("landlock", "names of processes and the disk are shared")):
    part = next(p for p in json.loads(run("--json", WARPWRIGHT_SANDBOX=level)[1])["parts"] if p["name"] == "sandbox")
    ok(not part["ok"] and level in part["found"] and gap in part["unavailable"] and part["fix"],
       f"at sandbox level {level} it says what is not held", part)
finish()
