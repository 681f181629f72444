#!/usr/bin/env python3
"""This repository's text as rows of ids, for bench/train/compare.py.   usage: corpus.py DIR SEQUENCE OUT.jsonl

DIR/tokenizer.json (tools/make-tokenizer) encodes every file; one end-of-text token stands between two.  The stream is
cut into rows of SEQUENCE + 1 tokens that share the token at their border, in an order drawn from a fixed seed.  Needs
the library `tokenizers`.
"""
import importlib.machinery
import importlib.util
import json
import os
import random
import sys

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    import tokenizers
    directory, sequence, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    loader = importlib.machinery.SourceFileLoader("make_tokenizer", os.path.join(ROOT, "tools/make-tokenizer"))
    tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_tokenizer", loader))
    loader.exec_module(tool)
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    ids = []
    for text in tool.texts():
        ids += tokenizer.encode(text, add_special_tokens=False).ids + [0]
    rows = [ids[i:i + sequence + 1] for i in range(0, len(ids) - sequence, sequence)]
    random.Random(1).shuffle(rows)
    with open(out, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"ids": r}) + "\n" for r in rows)
    print(f"{out}: {len(ids)} tokens, {len(rows)} rows")


if __name__ == "__main__":
    main()
