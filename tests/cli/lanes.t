#!/usr/bin/env python3
# budget: 1 CPU-second
"""bench/lanes: each lane has its GPU, processors and store, limits hold, and a step that did not run is told."""
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, ok, skip_all, ROOT  # noqa: E402

if len(os.sched_getaffinity(0)) < 2:
    skip_all("two lanes need two processors")
tmp = tempfile.TemporaryDirectory(prefix="ww-lanes-")
os.chdir(tmp.name)


def lanes(steps, seconds):
    with open("steps", "w") as f:
        f.write(steps)
    p = subprocess.run([ROOT + "/bench/lanes", "out", "steps", "--seconds", str(seconds)], capture_output=True,
                       text=True, check=False)
    return p.returncode, p.stdout, p.stderr


def text(name):
    with open("out/" + name) as f:
        return f.read()


SAY = "echo $CUDA_VISIBLE_DEVICES $(nproc) $XDG_CACHE_HOME; pwd; echo kept > $STEP_OUT/file"
SLEEP = 'python3 -c "import time; time.sleep(60)"'
# A busy machine takes a second or two to start Python, and the last long step needs five seconds of the ten.
began = time.monotonic()
code, out, err = lanes(f"# two lanes\n0 first 20 {SAY}\n0 failing 20 echo why; exit 3\n0 endless 3 {SLEEP}\n"
                       f"1 second 20 {SAY}\n1 long rest {SLEEP}\n1 never 9 echo\n", 10)
took = time.monotonic() - began
rows = {r.split()[1]: r for r in text("lanes.txt").splitlines()}
ok(code == 0 and sorted(rows) == ["endless", "failing", "first", "long", "never", "second"] and took < 19,
   "every step has its row, and the whole ends in time", (took, out, err))
said = [text(n + ".log").splitlines() for n in ("first", "second")]
half = str(os.cpu_count() // 2)
ok([s[0].split()[:2] for s in said] == [["0", half], ["1", half]] and said[0][0].split()[2] != said[1][0].split()[2]
   and said[0][1] == os.path.realpath(ROOT), "a lane has a GPU, its processors and a store of its own", said)
ok(text("first/file") == "kept\n" and not [n for n in os.listdir("out") if n.startswith("store")],
   "what a step leaves is kept, the stores are not")
ok("exit 3" in rows["failing"] and rows["failing"].endswith("why"), "the last line and the exit code are shown", rows)
ok("exit 124" in rows["endless"] and "KeyboardInterrupt" in text("endless.log"), "a limit comes as Ctrl-C", rows)
ok("exit 124" in rows["long"] and "did not run" in rows["never"] and "exit -" in rows["never"],
   "the rest is the rest, and what did not run is told", rows)

for steps, part in (("0 a 3\n", "line 1"), ("0 a x echo\n", "line 1"), ("# nothing\n", "no step"),
                    ("0 a 3 echo\n1 a 3 echo\n", "two steps are called a"), ("4096 a 3 echo\n", "processor")):
    code, out, err = lanes(steps, 6)
    ok(code == 2 and part in err and err.count("\n") == 1, f"refused: {part}", (code, err))
finish()
