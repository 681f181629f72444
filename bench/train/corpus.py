#!/usr/bin/env python3
"""This repository's text as rows of ids, for bench/train/compare.py.   usage: corpus.py DIR SEQUENCE OUT.jsonl

DIR/tokenizer.json (`warpwright model tokenizer`) encodes every file; one end-of-text token stands between two.  The
stream is cut into rows of SEQUENCE + 1 tokens that share the token at their border, in an order drawn from a fixed
seed.  Needs the library `tokenizers`.
"""
import json
import os
import random
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

FOLDERS = ["src", "include", "bridge", "docs", "skills", "tests", "fuzz", "examples", "tools"]


def texts():
    """The texts that `data: [...]` of the recipe reads, in the order of names, without hidden entries, links and
    binary files."""
    for folder in FOLDERS:
        for here, dirs, files in os.walk(os.path.join(ROOT, folder)):
            dirs[:] = sorted(d for d in dirs if d[0] != "." and d != "__pycache__")
            for name in sorted(files):
                path = os.path.join(here, name)
                if name[0] == "." or os.path.islink(path):
                    continue
                with open(path, "rb") as f:
                    data = f.read()
                if data and b"\0" not in data:
                    yield data.decode("utf-8", "replace")
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        yield f.read()


def main():
    import tokenizers
    directory, sequence, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    ids = []
    for text in texts():
        ids += tokenizer.encode(text, add_special_tokens=False).ids + [0]
    rows = [ids[i:i + sequence + 1] for i in range(0, len(ids) - sequence, sequence)]
    random.Random(1).shuffle(rows)
    with open(out, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"ids": r}) + "\n" for r in rows)
    print(f"{out}: {len(ids)} tokens, {len(rows)} rows")


if __name__ == "__main__":
    main()
