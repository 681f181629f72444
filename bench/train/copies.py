"""A world that a model of 0.1 million parameters learns in a minute of a processor: tasks that copy their input, which
a plan of one node solves.  Of the answers to learn from, each n-th copies half of the bytes, a mistake that only the
judge sees, so there is something left to learn by reward.  For tests/cli/nano.t and bench/train/rises."""
import json
import os
import subprocess

MODULE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.randn({})]


def get_init_inputs():
    return []
"""
PLAN = """#include <ww/plan.h>

void plan(struct ww_plan *p)
{
	const struct ww_tensor *y = ww_output(p, 0);

	ww_copy(p, y->buf, 0, ww_input(p, 0)->buf, 0, y->size[0] * y->size[1] * SIZE);
}
"""
SHAPES = ("64, 256", "32, 128", "48, 96")
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 512, "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
          "head_dim": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "initializer_range": 0.05, "tie_word_embeddings": True, "torch_dtype": "float32"}


def put(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def rows(path, values):
    return put(path, "".join(json.dumps(v) + "\n" for v in values))


def tasks(path, expression, shapes):
    return rows(path, [{"code": MODULE.format(expression, s)} for s in shapes])


def corpus(ww, top, task_set, turns, wrong_every, count):
    """TOP/corpus.jsonl: the prompts of `synth teach` for a cpu of one thread, and `count` answers."""
    one, taught = put(os.path.join(top, "one.py"), MODULE.format("x.clone()", SHAPES[0])), os.path.join(top, "taught")
    facts = subprocess.run([ww, "inspect", "--json", "--target", "cpu", "--threads", "1", one], check=True,
                           capture_output=True, text=True).stdout
    subprocess.run([ww, "synth", "teach", task_set, taught, "--target", "cpu", "--facts",
                    put(os.path.join(top, "facts.json"), facts), "--loop", "agent", "--turns", str(turns), "-j", "1"],
                   check=True, capture_output=True)
    with open(taught, encoding="utf-8") as f:
        prompts = [json.loads(line) for line in f]
    out = []
    for i in range(count):
        row = json.loads(json.dumps(prompts[i % len(prompts)]))
        plan = PLAN.replace("SIZE", "2" if i // len(prompts) % wrong_every == 0 else "4")
        row["messages"][2]["content"] = f"```plan.c\n{plan}```\n```kernels.c\n/* none */\n```\n"
        out.append(row)
    return rows(os.path.join(top, "corpus.jsonl"), out)
