#!/usr/bin/env python3
# budget: 7 CPU-seconds
"""`warpwright profile` as a command: what it refuses, what it prints.  The numbers are held by the unit tests of
src/judge/profile, and by test_judge_cpu.c, where one reference worker serves them all."""
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, need_pytorch, ok, without_steps  # noqa: E402

root = os.environ.get("WW_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
binary = os.environ.get("WARPWRIGHT") or os.path.join(root, "build/warpwright")
sys.path.insert(0, os.path.join(root, "tests/judge"))
from harness import add_task  # noqa: E402

need_pytorch()


def run(*args):
    p = subprocess.run([binary, "profile", *args], capture_output=True, text=True, timeout=200,
                       stdin=subprocess.DEVNULL)
    return p.returncode, p.stdout, without_steps(p.stderr)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    return path


with tempfile.TemporaryDirectory(prefix="warpwright-test-") as d:
    task = write(f"{d}/task.py", add_task(64, 256))
    code, out, err = run("/nonexistent.py")
    ok(code == 2 and not out and err.count("\n") == 1, "a task that is not there", err)
    code, out, err = run(task, f"{d}/nothing")
    ok(code == 2 and not out and err.count("\n") == 1 and "nothing" in err, "a solution that is not there", err)
    code, out, err = run(task, task)
    ok(code == 2 and not out and err.count("\n") == 1, "a solution that is no directory", err)
    code, out, err = run()
    ok(code == 2 and not out, "no task", err)
    write(f"{d}/broken/kernels.c", "syntax error\n")
    write(f"{d}/broken/plan.c", "#include <ww/plan.h>\nvoid plan(struct ww_plan *p) { ww_launch(p, \"k\", 1, 1, 1, 1, "
                                "1, 1); }\n")
    code, out, err = run(task, f"{d}/broken", "--json")
    try:
        o = json.loads(out)
    except ValueError:
        o = {}
    ok(code == 1 and o.get("status") == "compile_failed" and "error" in o.get("diagnostics", "") and "nodes" not in o
       and not err,
       "a solution that does not build: exit code 1 and the compiler's words", f"{code} {out[:400]} {err}")

    # While a judge measures (the lock that its lease is): the wait is reported every two seconds and is one step.
    os.makedirs(f"{d}/cache/warpwright")
    with open(f"{d}/cache/warpwright/lease-cpu.lock", "w") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        p = subprocess.Popen([binary, "profile", task], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "XDG_CACHE_HOME": f"{d}/cache"})
        limit = threading.Timer(40, p.send_signal, [signal.SIGINT])
        limit.start()
        lines = []
        for line in p.stderr:
            lines.append(line)
            if "waiting for the device, held by" in line:
                break
        limit.cancel()
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)
    ok("waiting for the device, held by" in lines[-1], "a wait for the device is named where no terminal is", lines)
finish()
