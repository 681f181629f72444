#!/usr/bin/env python3
"""The recipe of two cores, shortened: from nothing to a policy whose reward against the real judge rises by more than
its 95% interval within twenty steps (bench/train/rises; its rewards are -1 and 1, so a seed decides, not times).

budget: 330 CPU-seconds"""
# label: slow
# timeout: 2400
# processors: 2
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, need_pytorch, ok, ROOT, WW  # noqa: E402

need_pytorch()
p = subprocess.run([os.path.join(ROOT, "bench/train/rises"), "--steps", "20", "--seed", "1"], capture_output=True,
                   text=True, check=False, env={**os.environ, "WARPWRIGHT": WW, "WARPWRIGHT_THREADS": "2"})
ok(p.returncode == 0 and "20 steps" in p.stdout, "the reward rises by more than its interval: " + p.stdout.strip(),
   p.stdout + p.stderr)
finish()
