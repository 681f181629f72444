"""Run the scripts of several exports in parallel:   python -s -c THIS

PyTorch is imported once, which takes longer than the scripts.  Then a line of JSON is read, {"turn": BOOL, "device":
NUMBER, "compiles": BOOL, "jobs": [[DIR, SCRIPT[,SCRIPT]]...]}.  Each directory's scripts run in a process forked from
here, with that directory as the working one.  A JSON line for each directory: what its scripts printed, and the exit
code of the last.

device: of the GPUs that are visible here, the only one that the scripts see.

compiles: a script calls torch.compile, whose import takes longer than PyTorch's.  Where the line comes later than the
import of PyTorch, nobody waits yet, and it is imported in any case.

turn: no script uses the device before all are ready for it (turn() in check.py), "ready" has been printed, and another
line was read.  When each has ended or released the device (rest()), "rest" is printed; then the next turn begins."""
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import sys
import traceback

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as check.py does, which now comes too late for it
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # a question that would start CUDA here, ahead of the forks
gc.disable()
import torch  # noqa: E402, F401

asked = json.loads(sys.stdin.readline() or '{"turn": false, "jobs": []}') if select.select([0], [], [], 0)[0] else None
if not asked or asked.get("compiles"):
    try:
        import torch._dynamo  # what torch.compile would import with the first module
        import torch._functorch.aot_autograd
        import torch._inductor.compiler_bisector
    except ImportError:  # not part of PyTorch's interface; later, then
        pass
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


def see_only(device):
    """Of the GPUs that are visible here, by number.  CUDA asks where it starts, in the scripts."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[device] if visible else str(device)


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


asked = asked or json.loads(sys.stdin.readline() or '{"turn": false, "jobs": []}')
turns = asked["turn"]
if "device" in asked:
    see_only(asked["device"])
started = []
for job in asked["jobs"]:
    r, w = os.pipe()
    ready, say_ready = os.pipe()
    go, say_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        if turns:
            os.environ["WARPWRIGHT_TURN"] = f"{say_ready},{go}"
        child(w, *job)
    for fd in (w, say_ready, go):
        os.close(fd)
    started.append((pid, os.fdopen(r, errors="replace"), ready, say_go))
waiting = started if turns else []
while waiting := [w for w in waiting if os.read(w[2], 1) == b"r"]:  # b"" where it has ended
    print("ready", flush=True)
    sys.stdin.readline()
    for _, _, _, say_go in waiting:
        try:
            os.write(say_go, b"g")
        except BrokenPipeError:  # Python ignores the signal
            pass
    waiting = [w for w in waiting if os.read(w[2], 1) == b"d"]
    print("rest", flush=True)
for pid, pipe, _, _ in started:
    text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps({"output": text[-16384:], "code": code}), flush=True)
