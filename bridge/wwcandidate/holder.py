"""Answers the judge from the candidate's process, and makes the calls that it asks for.

    g                    one call: `d` when the outputs lie in the judge's buffers and the device is idle, `e` and a frame where it failed
    a frame              {"request": NAME, ...}: build, or attach, setup, trace (docs/forms.md)

The judge stops this process whenever it is not asked for something, so all that happens before a call (restoring state) happens in
it.  After the solution's code has run nothing here is believed by anybody: a byte says when the judge may look, not what is true.
"""

import os
import socket
import traceback

import torch

from wwbridge import channel

from . import Problem, build, confine, shared, solution


class Holder:
    def __init__(self, fd, target):
        self.channel = channel.Channel(fd)
        self.target = target
        self.ground = self.solution = None
        self.sync = lambda: None

    # ---- Requests

    def build(self, q, fds):
        """Run the file for the sake of the extensions it compiles; what else fails here is left for setup to find."""
        self._prepare(q)
        try:
            solution.load_module(q["form"], q["files"])
        except Problem as e:
            if e.kind == "build":
                raise
        blob = build.pack()
        return {"bytes": len(blob)}, [build.as_memfd(blob)] if blob else []

    def attach(self, q, fds):
        """Everything that is ours: what fails here is no fault of a solution, of which nothing has been read yet."""
        device = torch.device("cpu")
        if self.target == "cuda":
            device = torch.device("cuda", q["device"])
            torch.cuda.set_device(device)
            torch.zeros(1, device=device)
            self.sync = torch.cuda.synchronize
        else:
            torch.set_num_threads(q["threads"])
            confine.limit_data(q["memory_bytes"])
        buffers = shared.Shared(q["buffers"], fds, device, q["own_outputs"])
        for fd in fds:
            os.close(fd)
        self.ground = solution.Ground(q, buffers, device)
        return {}, []

    def setup(self, q, fds):
        if q["form"] != "task":
            self._prepare(q)
        for fd in fds:
            build.unpack(build.from_memfd(fd))
        self.solution = solution.Solution(q, self.ground)
        self.sync()
        return {"unmatched": self.solution.unmatched[:32]}, []

    def _prepare(self, q):
        build.environment(self.target, q["arch"], q["jobs"])
        solution.write_files(q["files"])

    def trace(self, q, fds):
        from wwbridge.trace import Trace, kernels

        mode = Trace()
        with torch.no_grad(), mode:
            self.solution.run()
        self.sync()
        names = kernels(self.solution.run, self.sync) if self.target == "cuda" else []
        return {"aten": mode.answer(), "kernels": names}, []

    # ---- Calls

    def call(self):
        with torch.no_grad():
            self.solution.collect(self.solution.run())
        self.sync()

    # ---- The loop

    def serve(self):
        sock = self.channel.sock
        while True:
            byte = sock.recv(1)
            if byte == b"g":
                try:
                    self.call()
                    answer = b"d"
                except Problem as e:
                    answer = failure(e.kind, str(e))
                except BaseException as e:
                    answer = failure("call", solution.own_traceback(e))
                if isinstance(answer, bytes):
                    sock.sendall(answer)
                else:
                    sock.sendall(b"e")
                    self.channel.send(answer)
            elif byte:
                self.answer(byte)
            else:
                return 0

    def answer(self, begun):
        q, fds = self.channel.receive(begun)
        out = []
        try:
            body, out = getattr(self, q["request"])(q, fds)
            body = {"ok": True, **body}
        except Problem as e:
            body = failure(e.kind, str(e))
        except BaseException as e:
            traceback.print_exc()
            body = failure("solution", solution.own_traceback(e))
        self.channel.send(body, out)
        for fd in out:
            os.close(fd)


def failure(kind, text, limit=16000):
    text = text if len(text) <= limit else text[: limit // 2] + "\n[...]\n" + text[-limit // 2 :]
    return {"ok": False, "error": {"kind": kind, "message": text}}


def serve(fd, target):
    try:
        return Holder(fd, target).serve()
    except (EOFError, OSError, socket.error):
        return 0
