#!/usr/bin/env python3
"""Of every operator of the grammar: the graph that the reference worker makes of a task, of its values, and the
outline, made without values, name the same operators with the same arguments and results, so the signature is the
same whichever it is taken of.

budget: 40 CPU-seconds"""
# label: slow
# timeout: 900
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, WW, finish, need_pytorch, ok  # noqa: E402

python = need_pytorch()
COMPARE = f"""
import gc, json, os, sys
sys.path.insert(0, {os.path.join(ROOT, "bridge")!r})
gc.disable()
import torch
torch.set_num_threads(1)
from wwbridge import Refuse, facts, outline
from wwbridge.local import Local
from wwbridge.task import Task

outline.warm_up()
target = facts.Target("cpu", 0, torch)
LEFT_OUT = ("bytes", "flops", "from")  # what only one of them says; an output's layout is no part of a signature


def graph(g):
    return json.loads(json.dumps([[{{k: v for k, v in n.items() if k not in LEFT_OUT}} for n in g["nodes"]],
                                  [[o["ref"], o["dtype"], o["sizes"]] for o in g["outputs"]]]))


same, different, refused = 0, [], []
for line in sys.stdin:
    row = json.loads(line)
    try:
        whole = Task(row["code"], "task.py", 3, target).graph()
    except Refuse as e:
        refused.append([row["ops"], str(e)[:120]])
        continue
    if graph(whole) == graph(outline.outline(row["code"], "task.py", Local())["graph"]):
        same += 1
    else:
        different.append(row["ops"])
print(json.dumps([same, different, refused]))
sys.stdout.flush()
os._exit(0)
"""
each = subprocess.run([WW, "synth", "compose", "--each", "--target", "cpu", "--json"], capture_output=True, text=True,
                      timeout=60, check=False).stdout
p = subprocess.run([python, "-W", "ignore", "-c", COMPARE], input=each, capture_output=True, text=True, timeout=880,
                   check=False)
same, different, refused = json.loads(p.stdout.splitlines()[-1] if p.stdout else "[0, [], []]")
ok(same >= 350 and not different, f"{same} operators: the same graph with values and without", [different, p.stderr])
ok(len(refused) <= 5, "at most five cannot be run alone on a processor", refused)
finish()
