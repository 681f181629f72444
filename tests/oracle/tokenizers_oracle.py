"""Train five differently configured tokenizers and write texts with the ids that Hugging Face `tokenizers` gives.

usage: tokenizers_oracle.py DIR COUNT
with fewer than 5,000 texts they are trained on files of Python alone.  DIR/N/tokenizer.json, and DIR/N/cases: per
case, little-endian,
    u8 special tokens allowed, u8 template, u8 decoded text given, u32 bytes, text, u32 ids, ids as i32, u32 bytes of
    the decoded text, text
DIR/trained: texts.jsonl, the same lines backwards in reversed.jsonl, and the tokenizer.json that the library learns
from them
"""
import glob
import json
import os
import random
import struct
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

out, count = sys.argv[1], int(sys.argv[2])
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
rng = random.Random(7)

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

files = glob.glob(os.path.dirname(os.__file__) + "/a*.py")
if count >= 5000:
    files += [*glob.glob(root + "/**/*.[ch]", recursive=True), *glob.glob(root + "/**/*.md", recursive=True),
              *glob.glob(root + "/tools/*")]
files = sorted(f for f in files if os.path.isfile(f))
corpus = []
for f in files:
    with open(f, encoding="utf-8", errors="replace") as h:
        corpus.append(h.read())

# Only characters that Python's Unicode tables know: the libraries compared here follow different versions of Unicode.
ranges = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x52f), (0x5d0, 0x6ff), (0x900, 0x97f), (0xe01, 0xe5b),
          (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x20a0, 0x20bf), (0x2100, 0x218b), (0x2200, 0x23ff),
          (0x2600, 0x27bf), (0x3000, 0x30ff), (0x4e00, 0x4fff), (0xac00, 0xacff), (0xf900, 0xfaff), (0xfe00, 0xfe0f),
          (0xff01, 0xff9f), (0x1d400, 0x1d4ff), (0x1f300, 0x1f64f), (0x1f900, 0x1f9ff), (0x20000, 0x200ff)]
pools = [[chr(c) for c in range(a, b + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")] for a, b in ranges]
emoji = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "1️⃣", "❤️", "🧑🏿‍🚀", "☃︎"]
spaces = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\x0b", "\x0c", "\u0085", "\u2028", "\u180e",
          "\u200b", "    "]
words = ["I'm", "WE'LL", "don't", "x'S", "ſ'ſ", "3.14159", "1234567", "٣٤٥", "Ⅳ", "½", "e\u0301", "A\u030a",
         "\u1100\u1161\u11a8",
         "ﬁ", "__init__", "a->b", "/*", "*/", "<|", "|>", "<|im_", "tool_call>", "\x00", "\x1b[0m", "\ufeff", "naïve",
         "Straße"]
specials = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<|a|>", "<|a|>b", "wörd",
            "  pad", "strip", "é"]


# Combining marks of every version of Unicode: Hugging Face's NFC follows version 9 and leaves later ones where they
# are.
marks = [chr(c) for c in range(0x300, 0x20000) if unicodedata.combining(chr(c))]


def marked():
    return "".join(rng.choice("aeouAEOq가\u1100\u1161\u0915\u09c7") if rng.random() < .25 else rng.choice(marks)
                   for _ in range(rng.randrange(1, 12)))


def text():
    kind = rng.randrange(8)
    if kind == 7:
        return marked()
    if kind == 0:
        t = rng.choice(corpus)
        at = rng.randrange(max(1, len(t) - 1))
        return t[at:at + rng.randrange(1, 600)]
    parts = []
    for _ in range(rng.randrange(0, 40)):
        k = rng.randrange(8) if kind != 1 else 4
        if k == 0:
            parts.append("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(1, 6))))
        elif k == 1:
            pool = rng.choice(pools)
            parts.append("".join(rng.choice(pool) for _ in range(rng.randrange(1, 12))))
        elif k == 2:
            parts.append(rng.choice(emoji))
        elif k == 3:
            parts.append(rng.choice(words))
        elif k == 4:
            parts.append(rng.choice(spaces) * rng.choice((1, 1, 2, 3, 9)))
        elif k == 5:
            parts.append(rng.choice(specials))
        elif k == 6:
            t = rng.choice(corpus)
            at = rng.randrange(max(1, len(t) - 1))
            parts.append(t[at:at + rng.randrange(1, 60)])
        else:
            parts.append(rng.choice("abcxyz .,;'\n\t019") * rng.choice((1, 2, 5, 40)))
    return "".join(parts)


def train(tok, vocab, **kw):
    kw.setdefault("initial_alphabet", pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocab, show_progress=False, **kw))
    return tok


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return train(t, 3000, special_tokens=["<|endoftext|>"])


def qwen():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    train(t, 4000)
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False), "wörd",
                  "e\u0301"])
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    train(t, 3500, special_tokens=["<|a|>", "<|a|>b", "<|im_end|>"])
    t.add_special_tokens(["<|im_start|>", "<|endoftext|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|im_start|> $A <|endoftext|>", special_tokens=[("<|im_start|>", t.token_to_id("<|im_start|>")),
                                                              ("<|endoftext|>", t.token_to_id("<|endoftext|>"))])])
    return t


def odd():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.Split(Regex(r"[,;]+"), "merged_with_previous"),
                                               pre_tokenizers.Split("->", "merged_with_next"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    train(t, 2000, special_tokens=["<unk>"], initial_alphabet=[], limit_alphabet=150)
    t.add_tokens([AddedToken("strip", lstrip=True, rstrip=True), AddedToken("wörd", single_word=True),
                  AddedToken("  pad")])
    t.add_special_tokens([AddedToken("<|im_end|>", special=True, rstrip=True),
                          AddedToken("<|a|>", special=True, lstrip=True)])
    return t


def removed():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\s"), "removed"),
                                               pre_tokenizers.Split(Regex(r"\w+"), "contiguous", invert=True),
                                               pre_tokenizers.Digits(),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return train(t, 1500, special_tokens=["<|endoftext|>"])


texts = [text() for _ in range(count)] + ["", " ", "a" * 20000, "ab" * 9000, " " * 5000, "\n" * 3000]
for i, make in enumerate((gpt2, qwen, llama3, odd, removed)):
    tok = make()
    tok.decoder = decoders.ByteLevel()
    folder = f"{out}/{i}"
    os.makedirs(folder, exist_ok=True)
    tok.save(folder + "/tokenizer.json")
    if i == 3:      # the older form of merges, one string a merge
        with open(folder + "/tokenizer.json", encoding="utf-8") as f:
            d = json.load(f)
        d["model"]["merges"] = [" ".join(m) for m in d["model"]["merges"]]
        with open(folder + "/tokenizer.json", "w", encoding="utf-8") as f:
            json.dump(d, f, ensure_ascii=False)
        tok = Tokenizer.from_file(folder + "/tokenizer.json")
    with open(folder + "/cases", "wb") as f:
        for n, t in enumerate(texts):
            special, template = n % 5 != 0, n % 2
            tok.encode_special_tokens = not special
            ids = tok.encode(t, add_special_tokens=bool(template)).ids
            # What an added token with letters beyond ASCII decodes to is a matter of taste; ours is its content.
            plain = all(t.isascii() for t in (tok.id_to_token(x) for x in ids if x in tok.get_added_tokens_decoder()))
            text_out = tok.decode(ids, skip_special_tokens=False) if plain else None
            raw, back = t.encode(), (text_out or "").encode()
            f.write(struct.pack("<BBBI", special, template, plain, len(raw)) + raw)
            f.write(struct.pack(f"<I{len(ids)}i", len(ids), *ids))
            f.write(struct.pack("<I", len(back)) + back)
print(len(texts))

learnt = [t for t in corpus + texts if "\0" not in t]
trained = Tokenizer(models.BPE())
trained.pre_tokenizer, trained.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
trained.train_from_iterator(learnt, trainers.BpeTrainer(
    vocab_size=2500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
os.makedirs(out + "/trained")
trained.save(out + "/trained/tokenizer.json")
for name, lines in (("texts", learnt), ("reversed", learnt[::-1])):
    with open(f"{out}/trained/{name}.jsonl", "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": t}) + "\n" for t in lines)
