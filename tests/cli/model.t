#!/usr/bin/env python3
"""warpwright model: a new model is the same for the same seed, scores repeat, and bad input ends with 2 and leaves
nothing."""
import hashlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from tap import finish, ok, ROOT, WW  # noqa: E402
from tiny_model import write_tokenizer  # noqa: E402


def model(*args, **kw):
    p = subprocess.run([WW, "model", *args], capture_output=True, text=True, timeout=120, **kw)
    return p.returncode, p.stdout, p.stderr


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


tmp = tempfile.mkdtemp(prefix="ww-model-")
os.chdir(tmp)
config = dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=500, hidden_size=64,
              intermediate_size=96,
              num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              max_position_embeddings=128,
              tie_word_embeddings=True)
with open("config.json", "w") as f:
    json.dump(config, f)

code, out, err = model("init", "config.json", "a", "--seed", "7", "--json")
params = 500 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 2 * 16 + 3 * 64 * 96)
ok(code == 0 and json.loads(out) == {"saved": "a", "parameters": params, "dtype": "fp32"}, "init makes a model",
   out + err)
model("init", "config.json", "b", "--seed", "7")
model("init", "config.json", "c", "--seed", "8")
same = [digest(d + "/model.safetensors") for d in "abc"]
ok(same[0] == same[1] != same[2], "the same seed gives the same bytes, another one others")
code, out, err = model("init", "config.json", "no", "--tokenizer", "nowhere")
ok(code == 2 and "nowhere/tokenizer.json" in err and not os.path.exists("no"),
   "a tokenizer that is not there makes no model without one", err)
ok(model("init", "config.json", "a")[0] == 2 and digest("a/model.safetensors") == same[0],
   "nothing that exists is replaced")

code, out, err = model("info", "a", "--json")
info = json.loads(out)
ok(code == 0 and info["parameters"] == params and info["config"]["tie_word_embeddings"] and info["tokenizer"] is None
   and info["weight_bytes"] == 4 * params, "info knows it", out + err)
ok("2 key-value" in model("info", "a")[1], "info for people")
shipped = os.path.exists(os.path.join(ROOT, "models/nano/config.json"))
code, out, err = model("info", "nano")
ok(code == (0 if shipped else 2) and ("chat form" in out if shipped else "nano" in err),
   "a model that comes with the program goes by its name", out + err)

random.seed(1)
ids = [random.randrange(500) for _ in range(100)]
with open("ids.json", "w") as f:
    json.dump(ids, f)
with open("head.json", "w") as f:
    json.dump(ids[:41], f)
code, out, err = model("score", "a", "ids.json", "--ids", "--json")
whole = json.loads(out)
ok(code == 0 and whole["tokens"] == ids and whole["logprobs"][0] is None and len(whole["logprobs"]) == 100
   and math.isclose(whole["sum"], sum(whole["logprobs"][1:]), rel_tol=1e-9),
   "score gives a log-probability for every token", err)
head = json.loads(model("score", "a", "head.json", "--ids", "--json")[1])
ok(head["logprobs"][1:] == whole["logprobs"][1:41], "those of a prefix are equal to the last bit")
one = json.loads(model("score", "a", "ids.json", "--ids", "--json", env={**os.environ, "WARPWRIGHT_THREADS": "1"})[1])
ok(one == whole, "and do not depend on the number of threads")
ref = json.loads(model("score", "a", "ids.json", "--ids", "--json", "--device", "ref")[1])
ok(max(abs(x - y) for x, y in zip(ref["logprobs"][1:], whole["logprobs"][1:])) < 1e-5, "the scalar reference agrees")

code, _, err = model("convert", "a", "half", "--dtype", "bf16")
half = json.loads(model("score", "half", "ids.json", "--ids", "--json")[1])
ok(code == 0 and os.path.getsize("half/model.safetensors") < os.path.getsize("a/model.safetensors") * 0.55
   and 0 < abs(half["sum"] - whole["sum"]) < 0.5, "convert to bf16 halves it and moves the score a little",
   (half["sum"], whole["sum"]))

code, out, err = model("convert", "a", "critic", "--critic", "--json")
head = json.loads(model("info", "critic", "--json")[1])
ok(code == 0 and head["parameters"] == params + 64 and head["config"]["architectures"] == [
    "Qwen3ForSequenceClassification"],
   "convert --critic puts a value head on the trunk", err)
code, _, err = model("score", "critic", "ids.json", "--ids")
ok(code == 2 and "critic" in err and err.count("\n") == 1, "a critic has no log-probabilities to score", err)

# A tokenizer of all bytes and two special tokens, so that the model can be given text.
write_tokenizer("a")


def generated(*args):
    answer = json.loads(model("run", "a", *args, "--json")[1])
    seconds = answer.pop("seconds")
    assert 0 < seconds["open"] < seconds["first_token"] <= seconds["total"]
    return answer


run = generated("caf\u00e9", "--max-new", "40", "--seed", "5")
ok(run["prompt_tokens"] == 5 and len(run["tokens"]) == 40 == len(run["logprobs"]) and run["finish"] == "length",
   "run generates", run)
ok(run == generated("caf\u00e9", "--max-new", "40", "--seed", "5") != generated("caf\u00e9", "--max-new", "40",
                                                                                "--seed", "6"), "the seed decides")
letters = [i for i in range(1, len(run["text"])) if run["text"][i].isascii()]
stop = run["text"][letters[0]]
cut = generated("caf\u00e9", "--max-new", "40", "--seed", "5", "--stop", stop)
ok(cut["text"] == run["text"].split(stop)[0] and cut["finish"] == "stop"
   and cut["tokens"] == run["tokens"][:len(cut["tokens"])],
   "--stop ends before the text", (cut, stop))
with open("said.json", "w") as f:
    json.dump(list("caf\u00e9".encode()) + run["tokens"], f)
said = json.loads(model("score", "a", "said.json", "--ids", "--json")[1])
ok(said["logprobs"][5:] == run["logprobs"], "score gives what run sampled, to the last bit")
text = model("run", "a", "caf\u00e9", "--max-new", "40", "--seed", "5")[1]
ok(text == run["text"] + "\n", "the text streams whole", (text, run["text"]))
greedy = generated("x", "--max-new", "4", "--temperature", "0")
ok(greedy["tokens"] == generated("x", "--max-new", "4", "--top-k", "1", "--seed", "9")["tokens"],
   "temperature 0 is top-k 1")
chat = generated("hi <|im_end|>", "--chat", "--max-new", "3")
# <|im_start|> user \n, 13 bytes that are no special token, <|im_end|> \n, <|im_start|> assistant \n
ok(chat["prompt_tokens"] == 1 + 5 + 13 + 2 + 1 + 10, "chat wraps a message, and a message forges nothing", chat)

code, out, err = model("bench", "a", "--batches", "1,3", "--prompt-tokens", "20", "--max-new", "10", "--json")
bench = json.loads(out)
ok(code == 0 and [(r["mode"], r["batch"]) for r in bench["rows"]] == [("exact", 1), ("exact", 3), ("fast", 1),
                                                                      ("fast", 3)]
   and all(r[k] > 0 for r in bench["rows"] for k in ("prefill_tokens_s", "decode_tokens_s", "step_ms", "first_token_ms",
                                                     "gb_s", "memory_bytes"))
   and bench["start_exact"]["first_token_s"] > bench["start_exact"]["open_s"] > 0, "bench measures both modes",
   out + err)
ok("decode tok/s" in model("bench", "a", "--batches", "1", "--prompt-tokens", "5", "--max-new", "3", "--fast")[1],
   "bench for people")

# Bad input: exit 2, one line that names the trouble, nothing left behind.
def refused(what, says, *args):
    before = sorted(os.listdir("."))
    code, out, err = model(*args)
    ok(code in (2, 3) and says in err and err.count("\n") == 1 and out == "" and sorted(os.listdir(".")) == before,
       what,
       f"{code} {err}")


def broken(name, data=None, **changes):
    shutil.copytree("b", name)
    if data:
        with open(name + "/model.safetensors", "wb") as f:
            f.write(data)
    with open(name + "/config.json", "w") as f:
        json.dump({**config, **changes}, f)


with open("a/model.safetensors", "rb") as f:
    good = f.read()
refused("a name that no model has is refused", 'no model "nonesuch"', "score", "nonesuch", "ids.json", "--ids")
p = subprocess.run([WW, "serve", "--port", "0", "--target", "cpu", "--models", "nonesuch"], capture_output=True,
                   text=True, timeout=60)
ok(p.returncode == 2 and 'no model "nonesuch"' in p.stderr, "by serve as well", p.stderr)
broken("cut", good[:-100])
refused("a truncated file is refused", "truncated", "score", "cut", "ids.json", "--ids")
broken("nan", good[:-4] + b"\x00\x00\xc0\x7f")
refused("NaN in weights is refused", "NaN", "score", "nan", "ids.json", "--ids")
with open("half/model.safetensors", "rb") as f:
    half_file = f.read()
broken("inf", half_file[:-64] + b"\x80\xff" + half_file[-62:])
refused("infinity in bf16 too", "infinity", "score", "inf", "ids.json", "--ids")
refused("also where it is converted", "infinity", "score", "inf", "ids.json", "--ids", "--dtype", "fp32")
broken("other", vocab_size=501)
refused("a wrong shape is refused", "shape", "score", "other", "ids.json", "--ids")
broken("more", num_hidden_layers=3)
refused("a missing tensor is refused by name", "model.layers.2", "score", "more", "ids.json", "--ids")
broken("fewer", num_hidden_layers=1)
refused("an unknown tensor is refused by name", "does not belong", "score", "fewer", "ids.json", "--ids")
broken("arch", model_type="mamba")
refused("an unknown architecture is refused by name", "mamba", "info", "arch")
with open("long.json", "w") as f:
    json.dump([1] * 200, f)
refused("a context beyond the limit is refused", "context is 128", "score", "a", "long.json", "--ids")
with open("outside.json", "w") as f:
    json.dump([1, 2, 500, 3], f)
refused("an id outside the vocabulary is refused", "500", "score", "a", "outside.json", "--ids")
refused("text without a tokenizer is refused", "tokenizer.json", "score", "b", "ids.json")
refused("a prompt beyond the context is refused", "context is 128", "run", "a", "x" * 200)
refused("bench with a wrong list is refused", "--batches", "bench", "a", "--batches", "1,x")
refused("bench beyond the context is refused", "context", "bench", "a", "--prompt-tokens", "128", "--max-new", "1")
code, out, err = model("score", "a", "ids.json", "--ids", "--device", "cuda",
                       env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"})
ok(code == 3 and err.count("\n") == 1 and "no GPU that CUDA can use: " in err and "insufficient" not in err,
   "--device cuda without a GPU says why", err)
refused("an unknown word is refused", "rnu", "rnu", "a")
ok(subprocess.run(["sh", "-c", f"ulimit -f 8; trap '' XFSZ; exec '{WW}' model init config.json full"],
                  capture_output=True).returncode
   == 3 and not any(n.startswith("full") for n in os.listdir(".")), "a full disk leaves nothing behind")

finish()
os.chdir("/")
shutil.rmtree(tmp)
