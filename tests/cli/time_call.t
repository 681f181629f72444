#!/usr/bin/env python3
"""The program that times an exported operator's call (src/export/templates/time_call.py.in) uses the device only where
the judge has let it: with a PyTorch of this file's own, whose device writes down what it is asked for.  No GPU is
needed."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, finish, ok  # noqa: E402

CALLS, WARM = 4, 5
TORCH = '''
import contextlib, os, sys
LOG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "log")
def use(what):
    with open(LOG, "a") as f:
        f.write(what + "\\n")
class Said:
    def __init__(self, to):
        self.to = to
    def write(self, text):
        if text in ("ready", "rest"):
            use(text)
        self.to.write(text)
    def flush(self):
        self.to.flush()
class Heard:
    def __init__(self, of):
        self.of = of
    def readline(self):
        line = self.of.readline()
        use("go")
        return line
sys.stdout, sys.stdin = Said(sys.stdout), Heard(sys.stdin)
uint8 = "uint8"
class Tensor:
    def to(self, where):
        use("to")
        return self
    def zero_(self):
        use("flush")
@contextlib.contextmanager
def device(where):
    yield
no_grad = contextlib.nullcontext
def manual_seed(seed):
    pass
def empty(n, dtype, device):
    use("empty")
    return Tensor()
class cuda:
    class Event:
        def __init__(self, enable_timing):
            pass
        def record(self):
            use("record")
        def synchronize(self):
            use("end")
        def elapsed_time(self, end):
            return 0.25
    def set_device(device):
        use("start")
    def synchronize():
        use("synchronize")
    def get_device_properties(device):
        return type("Properties", (), {"L2_cache_size": 1 << 20})
'''
PACKAGE = '''
import torch
class Model:
    def __init__(self, size):
        torch.use("made")
    def to(self, where):
        return self
def get_init_inputs():
    return [3]
def get_inputs():
    torch.use("draw")
    return [torch.Tensor()]
def _library_path():
    print("built")
def optimized(model):
    def module(x):
        torch.use("call")
    return module
'''


def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def judged(where):
    """As src/export/ahead.c speaks with it: the log of the device and of what it said and heard, and the report."""
    p = subprocess.Popen([sys.executable, "-s", os.path.join(where, "time_call.py"), str(CALLS), "0"], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    report = ""
    for line in p.stdout:
        if line == "ready\n":
            p.stdin.write("\n")
            p.stdin.flush()
        report = line
    p.wait()
    with open(os.path.join(where, "log"), encoding="utf-8") as f:
        return p.returncode, f.read().split("\n")[:-1], report


with tempfile.TemporaryDirectory(prefix="ww-time-call-") as tmp, open(
        os.path.join(ROOT, "src/export/templates/time_call.py.in"), encoding="utf-8") as template:
    put(os.path.join(tmp, "time_call.py"), template.read().replace("@TARGET@", "cuda").replace("@NAME@", "x")
        .replace("@LOCAL_DIR@", "warpwright_x").replace("@ONE_STREAM@", "True"))
    put(os.path.join(tmp, "torch.py"), TORCH)
    put(os.path.join(tmp, "warpwright_x/__init__.py"), PACKAGE)
    code, log, report = judged(tmp)

turns = " ".join(log).split("ready go")
ok(code == 0 and json.loads(report) == {"us": [250.0] * CALLS}, "it reports the calls behind those that warm up",
   f"{code} {report}")
timed, behind = turns[3::2], [turns[2]] + turns[4::2]
ok(len(turns) == 3 + 2 * (WARM + CALLS) and turns[0] == "" and not any("ready" in t for t in turns),
   "it waits once for each use, and leaves the device alone before", turns)
ok(turns[1].split()[0] == "start" and turns[1].count("call") == 1 and turns[1].split()[-1] == "synchronize",
   "it starts the device, makes the module and calls it once with the first turn, and waits for the device", turns[1])
ok(all(t.strip() == "flush synchronize record call record end rest" for t in timed),
   "a timed call is a flush and the call between two events; then it leaves the device alone until it may go on", timed)
ok(all("draw" in t and t.split()[-1] == "synchronize" and "call" not in t for t in behind[:-1])
   and not behind[-1].strip(),
   "between them it draws inputs and waits for the device", behind)
finish()
