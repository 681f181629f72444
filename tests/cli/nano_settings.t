#!/usr/bin/env python3
# budget: 6 CPU-seconds
"""The settings of bench/train/nano: `train` reads each stage's keys; what is wrong is that nothing is there."""
import glob
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, ok, ROOT, WW  # noqa: E402

loader = importlib.machinery.SourceFileLoader("nano", os.path.join(ROOT, "bench/train/nano"))
nano = importlib.util.module_from_spec(importlib.util.spec_from_loader("nano", loader))
loader.exec_module(nano)
top = tempfile.mkdtemp(prefix="ww-settings-")
asked = {}  # the same keys in several settings are asked for once


def said_of(stage, settings):
    """What `train` says of a stage's keys."""
    kind = stage.split("-")[0]
    sampled = kind in ("before", "agentic", "after", "ppo", "rft")
    name = "agentic" if kind in ("before", "after") else kind
    there = {"model": f"{top}/none", "tasks" if sampled else "data": f"{top}/none"}
    shared = settings["sampling"] if sampled else settings["text"] if kind in ("pretrain", "sft") else {}
    keys = {"stage": name, "output": f"{top}/none", "device": "cpu", **there, **shared,
            **settings["stages"][stage].get("keys", {})}
    if sampled:
        keys.update({"target": "cpu", "judge-devices": None})  # which the cpu target has not
    if kind == "ppo":
        keys["turns"] = None
    text = json.dumps({k: str(v) for k, v in keys.items() if v is not None})
    if text not in asked:
        with open(f"{top}/recipe.yaml", "w") as f:
            f.write(text)
        p = subprocess.run([WW, "train", f"{top}/recipe.yaml"], capture_output=True, text=True, check=False)
        asked[text] = p.stderr
    return asked[text]


paths = sorted(glob.glob(os.path.join(ROOT, "bench/train/nano-*.json")) +
               glob.glob(os.path.join(ROOT, "bench/train/arms/*.json")))
for path in paths:
    settings = nano.read_settings(path)
    wrong = {stage: said for stage, row in settings["stages"].items() if "keys" in row
             and "/none" not in (said := said_of(stage, settings))}
    ok(not wrong, f"{os.path.relpath(path, ROOT)}: its keys are read", wrong)

merged = nano.merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None, "e": 3}, "d": [2]})
ok(merged == {"a": {"c": 2, "e": 3}, "d": [2]}, "settings over others: members hold, null takes one away", merged)


def differences(a, b, at=""):
    """Where two settings differ: names with dots between them."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return set() if a == b else {at}
    return set().union(*(differences(a.get(k), b.get(k), f"{at}.{k}".strip(".")) for k in {*a, *b}))


def arm(name):
    return nano.read_settings(os.path.join(ROOT, f"bench/train/arms/{name}.json"))


turns = {f"stages.{stage}.keys.turns" for stage in ("rft", "before", "agentic", "after")}
apart = {"no-value": {"stages.value"}, "no-rft": {"stages.rft.learns"}, "no-loop": turns,
         "speedup": {"stages.agentic.keys.reward"}, "weak-judge": {"stages.agentic.keys.rule"}}
found = {name: differences(arm("full"), arm(name)) for name in apart}
ok(found == apart, "an arm differs from the whole recipe by what it is called after", found)
shutil.rmtree(top)
finish()
