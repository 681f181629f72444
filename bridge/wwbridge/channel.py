"""The worker's side of the framed protocol of docs/formats/bridge.md, on a Unix stream socket.

The descriptor is moved to a high number, close-on-exec, and closed in every forked child, so that untrusted code
that prints, forks or runs a compiler cannot write to the protocol by accident.
"""

import array
import fcntl
import json
import os
import socket
import struct

from . import one_line

MAGIC, VERSION = b"WWBR", 1
HEADER = struct.Struct("<4sIII")
MAX_BODY = 16 << 20
FDS_PER_MESSAGE = 128


class Channel:
    def __init__(self, fd):
        self.sock = socket.socket(fileno=move_high(fd))
        os.register_at_fork(after_in_child=self.sock.close)

    def _exactly(self, n):
        out = bytearray()
        while len(out) < n:
            part = self.sock.recv(n - len(out))
            if not part:
                raise EOFError
            out += part
        return bytes(out)

    def receive(self):
        magic, version, length, count = HEADER.unpack(self._exactly(HEADER.size))
        if magic != MAGIC or version != VERSION or length > MAX_BODY or count > 4096:
            raise EOFError
        try:
            body = json.loads(self._exactly(length))
        except RecursionError:
            raise ValueError("brackets nested too deeply")
        fds = array.array("i")
        while len(fds) < count:
            data, ancillary, _, _ = self.sock.recvmsg(1, socket.CMSG_SPACE(FDS_PER_MESSAGE * 4))
            if not data:
                raise EOFError
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(payload[: len(payload) // 4 * 4])
        for fd in fds:
            os.set_inheritable(fd, False)
        return body, list(fds)

    def send(self, body, fds=()):
        data = encode(body)
        if len(data) > MAX_BODY:
            data = encode(failure("task", f"the answer has {len(data)} bytes, more than {MAX_BODY}"))
            fds = ()
        self.sock.sendall(HEADER.pack(MAGIC, VERSION, len(data), len(fds)) + data)
        self.lend(fds)

    def lend(self, fds):
        for i in range(0, len(fds), FDS_PER_MESSAGE):
            part = array.array("i", fds[i : i + FDS_PER_MESSAGE])
            self.sock.sendmsg([b"F"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, part)])


def encode(body):
    """An answer as JSON, which has no NaN: if it contains one, the request failed, and the worker continues."""
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as e:
        return json.dumps(failure("internal", f"an answer that is not JSON: {e}")).encode()


def move_high(fd):
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(fd)
    return high


def failure(kind, text):
    return {"ok": False, "error": {"kind": kind, "message": one_line(text)}}
