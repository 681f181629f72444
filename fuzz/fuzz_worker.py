#!/usr/bin/env python3
"""What the judge could send the reference worker if it were not the judge: `fuzz/fuzz_worker.py COUNT SEED [--torch]`.

The other half of fuzz_bridge.c.  COUNT mutated messages go through the worker's own Channel, one connection each: every
one must end as a request (any JSON) or as one of the exceptions on which main() leaves its loop.  What came through as
JSON, and with --torch COUNT mutated requests to a worker that holds a task, goes through answer(): every request must
be answered, by an object that can be sent, within a time limit.  Nothing here may hang, and nothing may raise beyond
that."""
import json
import os
import random
import signal
import socket
import struct
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bridge"))
import worker as bridge  # noqa: E402
from wwbridge.channel import HEADER, Channel, encode  # noqa: E402

TASK = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(5, 3)
    def forward(self, x):
        return self.fc(x)
def get_inputs():
    return [torch.randn(4, 5)]
def get_init_inputs():
    return []
"""
REQUESTS = [
    {"request": "hello", "target": "cpu", "device": 0, "threads": 1, "cache_dir": "cache"},
    {"request": "load", "source": TASK, "name": "fuzz.py", "seed": 1},
    {"request": "graph"},
    {"request": "buffers"},
    {"request": "draw", "seed": 2, "scale": 1.0, "shift": 0.0, "params": "redraw", "keep": False, "rule": "strict"},
    {"request": "compare", "rule": "strict"},
    {"request": "degenerate", "seed_a": 1, "seed_b": 2},
    {"request": "baseline", "which": "eager"},
    {"request": "time", "which": "eager", "mode": "device", "n": 1, "flush_l2": False},
    {"request": "arm", "which": "eager"},
    {"request": "free", "all": False},
]
VALUES = [None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 0.5, float("inf"), "", "x", "cuda", "redraw",
          "\x00", "é" * 50, [], {}, [[]], {"a": 1}]
LIMIT_S = 10
HERE = tempfile.TemporaryDirectory(prefix="ww-fuzz-")  # whatever a mutated cache_dir names is made below it
os.chdir(HERE.name)


def mutated_bytes(rng):
    body = json.dumps(rng.choice(REQUESTS)).encode()
    data = bytearray(HEADER.pack(b"WWBR", 1, len(body), 0) + body)
    for _ in range(rng.randint(1, 6)):
        kind, at = rng.randrange(6), rng.randrange(len(data) or 1)
        if kind == 0:
            data = data[:at] or bytearray(b"W")
        elif kind == 1:
            data[8:12] = struct.pack("<I", rng.choice([0, 1, len(body) - 1, len(body) + 1, 1 << 24, 1 << 25,
                                                       0xFFFFFFFF]))
        elif kind == 2:
            data[12:16] = struct.pack("<I", rng.choice([1, 3, 4096, 4097, 0xFFFFFFFF]))
        elif at < len(data):
            data[at] = rng.choice(b"0123456789-.eE[]{}\",:\\u\xff\x00") if kind < 5 else rng.randrange(256)
    if rng.randrange(50) == 0:
        data = bytearray(HEADER.pack(b"WWBR", 1, 200000, 0) + b"[" * 200000)
    return bytes(data)


def mutated_request(rng, depth=0):
    q = json.loads(json.dumps(rng.choice(REQUESTS[2:] if rng.randrange(20) else REQUESTS)))
    for _ in range(rng.randint(1, 3)):
        key = rng.choice(list(q) + ["all", "n", "extra"])
        if rng.randrange(4) == 0:
            q.pop(key, None)
        elif key != "request" or rng.randrange(8) == 0:
            q[key] = rng.choice(VALUES)
    return q if rng.randrange(100) else rng.choice(VALUES)


class Late(BaseException):
    pass


def on_alarm(*_):
    raise Late


def receive(data):
    """What Channel.receive() makes of these bytes: a request, or None where it would leave."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    channel = Channel(theirs.detach())
    try:
        ours.setblocking(False)
        ours.send(data)
        ours.close()
        q, fds = channel.receive()
        for fd in fds:
            os.close(fd)
        return q
    except (EOFError, OSError, ValueError):
        return None
    finally:
        channel.sock.close()


def ask(worker, q, limit_s=LIMIT_S):
    signal.alarm(limit_s)
    try:
        body, fds = bridge.answer(worker, q, [])
    finally:
        signal.alarm(0)
    body = json.loads(encode(body))
    if body["ok"] is not True and not (body["error"]["message"] and "\n" not in body["error"]["message"]):
        raise AssertionError(f"{q}: {body}")
    return body["ok"]


def main():
    count, rng = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    signal.signal(signal.SIGALRM, on_alarm)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # tracebacks of refused requests are the worker's log
    through = answered = 0
    fresh = bridge.Worker()
    for _ in range(count):
        signal.alarm(LIMIT_S)
        q = receive(mutated_bytes(rng))
        signal.alarm(0)
        if q is not None:
            through += 1
            if not (isinstance(q, dict) and q.get("request") == "hello"):
                ask(fresh, q)
    if "--torch" in sys.argv:
        worker = bridge.Worker()
        for q in REQUESTS[:2]:
            if not ask(worker, q, 200):  # imports PyTorch
                raise AssertionError(f"{q['request']} was refused")
        for _ in range(count):
            answered += ask(worker, mutated_request(rng))
            if worker.task is None:
                ask(worker, REQUESTS[1], 200)
        print(f"{count} mutated requests, {answered} of them carried out, every one answered", flush=True)
    print(f"{count} mutated messages, {through} of them JSON, no crash and no hang", flush=True)
    os._exit(0 if through > count // 100 else 1)  # else the mutations test nothing


main()
