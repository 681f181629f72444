#!/usr/bin/env python3
"""Count the tokens of the conversations of `synth teach`, and how many fit into a context.

usage: lengths.py TOKENIZER CORPUS.jsonl

TOKENIZER: a directory that `model tokenizer` made.  Prints tokens of prompts, answers and both; what share fits into a
context with one answer and with three (and 600 tokens of tools' answers); what share of answers fits into a reply; and
what parts of the answers' text the tokens go to.  Needs the library `tokenizers`."""
import json
import re
import sys

SHARES = (.1, .5, .75, .9, .99, 1)
MARKUP = 12, 30  # tokens of the chat form around prompt and answer, the call of submit with the latter
TOOLS = 600
PARTS = [("comments", r"/\*.*?\*/", re.S), ("indentation", r"^[ \t]+", re.M),
         ("blocks that choose a launch of rows", r"const long long rows = .*?\n(?=\t\tww_launch)", re.S),
         ("the longest index", r"\tlong long longest.*?\n(?=\tww_define\(p, \"IX)", re.S)]


def main(directory, corpus):
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(directory + "/tokenizer.json")

    def count(text):
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    with open(corpus, encoding="utf-8") as f:
        rows = [[m["content"] for m in json.loads(line)["messages"]] for line in f]
    prompts = [count(r[0] + r[1]) + MARKUP[0] for r in rows]
    answers = [count(r[2]) + MARKUP[1] for r in rows]
    both = [p + a for p, a in zip(prompts, answers)]
    print(f"{len(rows)} conversations, {sum(both)} tokens")
    for name, values in ("prompt", prompts), ("answer", answers), ("both", both):
        print(f"{name}: " + ", ".join(f"{q:.0%} {sorted(values)[min(int(len(values) * q), len(values) - 1)]}"
                                      for q in SHARES))
    for context in 2048, 4096, 8192:
        one = sum(b <= context for b in both) / len(rows)
        three = sum(p + 3 * a + TOOLS <= context for p, a in zip(prompts, answers)) / len(rows)
        print(f"context {context}: one answer {one:.1%}, three {three:.1%}")
    print("replies: " + ", ".join(f"{n} {sum(a <= n for a in answers) / len(rows):.1%}" for n in (1200, 2000, 3000)))
    for longest in 6600, 9000, 12000:
        kept = [b for b, r in zip(both, rows) if sum(len(x.encode()) for x in r) <= longest]
        print(f"at most {longest} bytes: {len(kept) / len(rows):.1%}, {sum(kept)} tokens, the longest {max(kept)}")
    for name, pattern, flags in PARTS:
        left = sum(count(re.sub(pattern, "", r[2], flags=flags)) for r in rows)
        print(f"answers without {name}: {left / sum(answers):.1%} of the tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
