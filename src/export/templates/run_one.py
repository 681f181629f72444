"""Import PyTorch, then run one script:   python -s -c THIS
Its path and arguments are a line of standard input, a list in JSON."""
import gc
import json
import runpy
import sys

gc.disable()
import torch  # noqa: E402, F401

gc.freeze()
gc.enable()
sys.argv = json.loads(sys.stdin.readline() or "[]")
sys.path.pop(0)
if sys.argv:
    runpy.run_path(sys.argv[0], run_name="__main__")
