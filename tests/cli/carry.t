#!/usr/bin/env python3
# budget: 8 CPU-seconds
"""bench/train/carry.py: a run that is taken to another machine goes on there, with its moments to the same bits."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, need_pytorch, ok, ROOT, WW  # noqa: E402

need_pytorch()
PYTHON = os.environ.get("WW_PYTHON") or os.path.join(ROOT, ".venv/bin/python")
tmp = tempfile.mkdtemp(prefix="ww-carry-")
os.chdir(tmp)
random.seed(4)
with open("config.json", "w") as f:
    json.dump(dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=300, hidden_size=64,
                   intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                   head_dim=16, max_position_embeddings=256, tie_word_embeddings=True), f)
with open("rows.jsonl", "w") as f:
    f.writelines(json.dumps({"ids": [random.randrange(300) for _ in range(65)]}) + "\n" for _ in range(64))


def read(path):
    with open(path, "rb") as f:
        return f.read()


RECIPE = {"config": "config.json", "data": "rows.jsonl", "sequence": 64, "step-tokens": 256, "steps": 12, "lr": "2e-3",
          "seed": 3, "device": "cpu", "checkpoint-every": 4, "keep-checkpoints": 9}


def train(name, dtype):
    with open("recipe.yaml", "w") as f:
        json.dump({k: str(v) for k, v in {**RECIPE, "dtype": dtype, "output": name}.items()}, f)
    p = subprocess.run([WW, "train", "recipe.yaml"], capture_output=True, text=True, check=False,
                       env={**os.environ, "WARPWRIGHT_THREADS": "1"})
    return p.returncode, p.stderr


def carry(*args):
    p = subprocess.run([PYTHON, os.path.join(ROOT, "bench/train/carry.py"), *args], capture_output=True, text=True,
                       check=False)
    return p.returncode, p.stdout + p.stderr


def losses(run):
    with open(run + "/log.jsonl") as f:
        return [json.loads(line)["loss"] for line in f]


FILES = ["model/model.safetensors", "model/optimizer/model.safetensors"]
for dtype in ("bf16", "fp32"):
    whole, cut = dtype + "-whole", dtype + "-cut"
    code, err = train(whole, dtype)
    ok(code == 0, f"{dtype}: a run", err)
    shutil.copytree(whole, cut, symlinks=True)
    for step in (8, 12):
        shutil.rmtree(f"{cut}/checkpoints/step-{step:08d}")
    said = [carry("pack", cut, dtype + "-light", "--piece", "0.1"), carry("pack", cut, dtype + "-all", "--moments"),
            carry("unpack", dtype + "-all", "there")]
    ok(all(c == 0 for c, _ in said) and len(os.listdir(dtype + "-light")) > 2, "is packed, in pieces", said)
    step = "checkpoints/step-00000004/"
    ok(all(read(f"there/{step}{f.removeprefix('model/')}") == read(f"{whole}/{step}{f.removeprefix('model/')}")
           for f in FILES), "and unpacked: the checkpoint's files", said)
    code, err = train("there", dtype)
    same = all(read(f"there/{f}") == read(f"{whole}/{f}") for f in FILES)
    ok(code == 0 and same and losses("there") == losses(whole), "with its moments it goes on to the same bits", err)
    shutil.rmtree("there")
    said = carry("unpack", dtype + "-light", "there")
    ok(read(f"there/{step}model.safetensors") == read(f"{whole}/{step}model.safetensors"), "without, with the weights",
       said)
    code, err = train("there", dtype)
    with open("there/run.json") as f:
        run = json.load(f)
    near = [abs(a - b) for a, b in zip(losses("there"), losses(whole))]
    ok(code == 0 and run["carried"] == [4] and max(near[:5]) == 0 < max(near) < 0.3,
       "and it goes on, and run.json says from where", (err, near))
    shutil.rmtree("there")

said = carry("policy", "bf16-light", "policy")
ok(read("policy/model.safetensors") == read("bf16-whole/checkpoints/step-00000004/model.safetensors") and
   sorted(os.listdir("policy")) == ["config.json", "model.safetensors"], "the policy alone", said)
said = carry("unpack", "bf16-all", "bf16-cut")
ok(said[0] == 1 and "there already" in said[1], "a run that is there is not replaced", said)
os.rename("bf16-light/carry.1", "carry.1")
said = carry("unpack", "bf16-light", "mixed")
ok(said[0] == 1 and "bf16-light/carry.1 is missing" in said[1] and not os.path.exists("mixed"),
   "so are some of one", said)
os.rename("carry.1", "bf16-light/carry.1")
shutil.copy("fp32-light/carry.0", "bf16-light/carry.0")
said = carry("unpack", "bf16-light", "mixed")
ok(said[0] == 1 and "take all of one packing" in said[1] and not os.path.exists("mixed"),
   "pieces of two packings are refused", said)
os.chdir("/")
shutil.rmtree(tmp)
finish()
