"""The protocol's other side in Python, for tests: a worker process over a socket pair, as src/task/ref.c has it."""

import array
import json
import os
import socket
import struct
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = struct.Struct("<4sIII")


class Failed(Exception):
    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Client:
    def __init__(self, target="cpu", **hello):
        self.sock, theirs = socket.socketpair()
        env = {"PATH": os.environ["PATH"], "HOME": "/tmp"}
        env |= {k: os.environ[k] for k in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES") if k in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-u", os.path.join(ROOT, "bridge", "worker.py"), "--fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=env, stdin=subprocess.DEVNULL)
        theirs.close()
        self.hello, _ = self.ask("hello", target=target, **hello)

    def _exactly(self, n):
        out = b""
        while len(out) < n:
            part = self.sock.recv(n - len(out))
            if not part:
                raise EOFError
            out += part
        return out

    def send(self, body, fds=()):
        data = json.dumps(body).encode()
        self.sock.sendall(HEADER.pack(b"WWBR", 1, len(data), len(fds)) + data)
        if fds:
            self.sock.sendmsg([b"F"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])

    def receive(self):
        magic, version, length, count = HEADER.unpack(self._exactly(16))
        assert magic == b"WWBR" and version == 1
        body, fds = json.loads(self._exactly(length)), array.array("i")
        while len(fds) < count:
            _, ancillary, _, _ = self.sock.recvmsg(1, socket.CMSG_SPACE(128 * 4))
            for _, _, payload in ancillary:
                fds.frombytes(payload)
        if not body.pop("ok"):
            raise Failed(body["error"]["kind"], body["error"]["message"])
        return body, list(fds)

    def ask(self, request, fds=(), **members):
        self.send({"request": request, **members}, fds)
        return self.receive()

    def close(self):
        self.sock.close()
        self.process.wait(30)


def task_source(name):
    with open(os.path.join(ROOT, name)) as f:
        return f.read()
