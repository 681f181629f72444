"""A random model with a tokenizer of single bytes and the special tokens of ChatML."""
import json
import os
import subprocess

from tap import WW

START, END, VOCAB = 256, 257, 258


def write_tokenizer(directory):
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    letters = {b: chr(b) for b in printable}
    letters.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in letters)})
    added = [dict(id=START + i, content=c, special=True, normalized=False) for i,
             c in enumerate(("<|im_start|>", "<|im_end|>"))]
    with open(os.path.join(directory, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(dict(added_tokens=added, pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False),
                       decoder=dict(type="ByteLevel"), model=dict(type="BPE", vocab={c: b for b, c in letters.items()},
                                                                  merges=[])), f)


def make(directory, context, **shape):
    """Both in `directory`, which must not exist."""
    config = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=VOCAB, hidden_size=32,
                  intermediate_size=48,
                  num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                  max_position_embeddings=context,
                  tie_word_embeddings=True)
    config.update(shape)
    with open(directory + ".json", "w", encoding="utf-8") as f:
        json.dump(config, f)
    subprocess.run([WW, "model", "init", directory + ".json", directory, "--seed", "1"], check=True,
                   stdout=subprocess.DEVNULL, timeout=120)
    write_tokenizer(directory)
