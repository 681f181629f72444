#!/usr/bin/env python3
# label: oracle slow
# budget: 10 CPU-seconds
"""What `episode export` writes, read by Hugging Face `datasets` and by TRL itself (.venv-oracle): the same
conversations, the same text through a chat template, and one step of supervised training on it."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import ROOT, WW, finish, ok, skip_all  # noqa: E402

ORACLE = os.path.join(ROOT, ".venv-oracle/bin/python")
LOOK = "import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in ('datasets', 'trl')))"
if not os.path.exists(ORACLE) or subprocess.run([ORACLE, "-c", LOOK], check=False).returncode:
    skip_all("no datasets and trl (tools/setup oracle)")
TMP = tempfile.mkdtemp(prefix="ww-trl-")


def episode(name, calls, ended=True):
    """Calls of different tools, one that is no JSON, arguments that only some calls have: what a table of fixed columns
    would spoil."""
    lines = [{"type": "header", "version": 1, "task": {"path": "t.py", "id": "t"}, "target": "cpu", "device": "d",
              "policy": "openai:m", "seed": 1,
              "rule": "strict", "versions": {}, "started": "2026-01-01T00:00:00Z",
              "tools": [{"name": "write", "description": "Write.",
                         "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
                        {"name": "verify", "description": "Judge.",
                         "parameters": {"type": "object", "properties": {"time": {"type": "boolean"}}}}]},
             {"type": "message", "turn": 0, "t": 0, "role": "system", "text": "be fast"},
             {"type": "message", "turn": 0, "t": 0, "role": "user", "text": "class Model: pass"}]
    for turn, (tool, arguments) in enumerate(calls, 1):
        say = {"type": "message", "turn": turn, "t": turn, "role": "assistant", "text": f"step {turn}",
               "finish": "tool_calls",
               "calls": [{"id": f"call_{turn}_0", "name": tool, "arguments": arguments}]}
        lines += [say | ({"reasoning": "hm", "tokens": {"ids": [1, 2], "logprobs": [-0.5, -1]}} if turn % 2 else {}),
                  {"type": "message", "turn": turn, "t": turn, "role": "tool", "text": f"answer {turn}",
                   "call_id": f"call_{turn}_0", "tool": tool,
                   "is_error": False}]
    lines.append({"type": "end", "turn": len(calls), "t": 9, "reason": "submitted", "reward_final": 1, "reward_best": 1,
                  "best": "", "seconds": 9})
    path = os.path.join(TMP, name, "episode.jsonl")
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line) + "\n" for line in (lines if ended else lines[:-1]))


episode("1", [("write", '{"path": "plan.c", "text": "a\\n\\"b\\""}'), ("verify", '{"time": false}'),
              ("write", '{"path": "kern')])
episode("2", [("verify", ""), ("todo", '{"items": [{"text": "x", "state": "open"}]}')])
episode("3", [("verify", "")], ended=False)
for form in ("object", "text"):
    p = subprocess.run([WW, "episode", "export", TMP, "--arguments", form, "-o", os.path.join(TMP, form + ".jsonl")],
                       capture_output=True, text=True,
                       timeout=60, check=False)
    ok(p.returncode == 0, f"export with arguments as {form}", p.stderr)

TRAIN = r"""
import json, sys
from datasets import load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer
from trl.data_utils import apply_chat_template, is_conversational

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
bytes_ = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
bytes_.pre_tokenizer, bytes_.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tok = PreTrainedTokenizerFast(tokenizer_object=bytes_, eos_token="<e>", pad_token="<p>")
tok.chat_template = (
    "{% for t in tools or [] %}<tool>{{ t | tojson }}</tool>{% endfor %}{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}<e>{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}")
folder = sys.argv[1]
for form in ("object", "text"):
    path = f"{folder}/{form}.jsonl"
    rows = load_dataset("json", data_files=path, split="train", cache_dir=folder + "/cache").filter(lambda r: not r["compacted"])
    raw = [json.loads(line) for line in open(path)]
    assert len(rows) == len(raw) == 2 and all(is_conversational(r) for r in rows)
    for r, line in zip(rows, raw):
        text = apply_chat_template({"messages": r["messages"]}, tok, tools=r["tools"])["text"]
        assert text == tok.apply_chat_template(line["messages"], tools=line["tools"], tokenize=False), text
        assert "null" not in text.lower() and "none" not in text.lower(), text
    print("read", form)
    if form == "text":
        continue
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tok), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2))
    trainer = SFTTrainer(model=model, processing_class=tok, train_dataset=rows, args=SFTConfig(
        output_dir=folder + "/sft", max_steps=1, assistant_only_loss=True, max_length=None, report_to=[], use_cpu=True, bf16=False, save_strategy="no"))
    own = trainer.train_dataset[0]
    assert tok.decode([i for i, keep in zip(own["input_ids"], own["labels"]) if keep != -100]).startswith("step 1<call>write")
    loss = trainer.train().training_loss
    assert 3 < loss < 9, loss
    print("trained")
"""
p = subprocess.run([ORACLE, "-c", TRAIN, TMP], capture_output=True, text=True, timeout=250, check=False,
                   env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": TMP, "CUDA_VISIBLE_DEVICES": ""})
said = p.stdout.split("\n")
for line, what in (("read object", "datasets and TRL read arguments as objects: the text of the file, no column "
                                   "filled in"),
                   ("trained", "TRL trains a step on the policy's own words"), ("read text", "and arguments as text")):
    ok(line in said, what, p.stdout[-1500:] + p.stderr[-3000:])
shutil.rmtree(TMP, ignore_errors=True)
finish()
