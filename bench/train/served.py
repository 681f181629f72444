"""Answers of a policy that $WARPWRIGHT (build/warpwright) serves on this machine's processor or GPU."""
import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("WARPWRIGHT") or os.path.join(ROOT, "build/warpwright")
BATCH = 48
REPLY_TOKENS = 4000


def lines(path):
    """The rows of a file of JSON lines; a last one that is not whole is left out."""
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def longest_reply(model):
    """Most tokens of a reply: half of the positions of a small model are left to what it is told."""
    config = os.path.join(model, "config.json")
    if not os.path.exists(config):
        return REPLY_TOKENS
    with open(config, encoding="utf-8") as f:
        return min(REPLY_TOKENS, json.load(f)["max_position_embeddings"] // 2)


@contextlib.contextmanager
def served(model, batch=BATCH):
    """The URL of the model's server."""
    server = subprocess.Popen([PROGRAM, "serve", "--models", "policy=" + model, "--model-batch", str(batch),
                               "--model-cache", str(batch * REPLY_TOKENS), "--port", "0"], stdout=subprocess.PIPE,
                              text=True)
    try:
        yield re.search(r"http://[^:]+:\d+", server.stdout.readline()).group()
    finally:
        server.terminate()


def answer(url, messages, temperature=0, seed=0, most=REPLY_TOKENS):
    """(text, why it ended, nats): nats is -log p of the sampled tokens, call of a tool included."""
    body = json.dumps({"model": "policy", "messages": messages, "temperature": temperature, "max_tokens": most,
                       "seed": seed, "logprobs": True}).encode()
    request = urllib.request.Request(url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=36000) as reply:
        choice = json.load(reply)["choices"][0]
    tokens = (choice.get("logprobs") or {}).get("content", [])
    return choice["message"].get("content") or "", choice["finish_reason"], -sum(t["logprob"] for t in tokens)


def all_of(ask, jobs, batch=BATCH):
    """(job, ask(job)) as they come, `batch` at a time.  Where the caller stops, those that are asked end with the
    server, and the others are not asked."""
    pool = concurrent.futures.ThreadPoolExecutor(batch)
    try:
        work = {pool.submit(ask, j): j for j in jobs}
        for done in concurrent.futures.as_completed(work):
            yield work[done], done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
