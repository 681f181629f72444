"""Run the scripts of several exports side by side:   python -s -c THIS DIR SCRIPT[,SCRIPT] [DIR SCRIPT...]

PyTorch is imported once, which takes longer than the scripts; each directory's scripts run in a process forked from here, with
that directory as the working one.  A JSON line for each directory: what its scripts printed, and the exit code of the last."""
import ctypes
import gc
import json
import os
import runpy
import signal
import sys
import traceback

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as check.py does, which now comes too late for it
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
gc.disable()
import torch  # noqa: E402, F401

gc.freeze()


def run(directory, scripts):
    sys.path[0] = directory
    for script in scripts.split(","):
        os.chdir(directory)
        sys.argv = [script]
        try:
            runpy.run_path(os.path.join(directory, script), run_name="__main__")
        except SystemExit as end:
            if end.code:
                return 1
    return 0


def child(out, *job):
    code = 1
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = run(*job)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


started = []
for job in zip(sys.argv[1::2], sys.argv[2::2]):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(w, *job)
    os.close(w)
    started.append((pid, os.fdopen(r, errors="replace")))
for pid, pipe in started:
    text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps({"output": text[-16384:], "code": code}), flush=True)
