"""The reference worker: the one process that holds PyTorch.

Problem.  The judge is C and must know what a PyTorch module computes, how exactly and how fast, without letting the
module (untrusted Python) near its clock, its seeds or its memory.  So the module lives in this process, and this
process speaks one framed protocol on one inherited socket (docs/formats/bridge.md has it field by field):

    python -I -u bridge/worker.py --fd N

    frame = 16-byte header (magic, version, body bytes, descriptors) + UTF-8 JSON body; one request, one reply.

Invariants.
  - The protocol descriptor is moved to a high number, close-on-exec, and closed in every forked child, so that a task
    that prints, forks or runs a compiler cannot write to the protocol.  A forked child that returns here exits at once.
  - Tensors never pass through JSON: buffers.py shares memory.
  - A request that fails answers with one line and a kind; the worker continues.  Exits, hangs and excess memory are
    handled by the parent: it watches deadline and resident size, and kills the process group.
  - Task sources are never imported by path; this directory leaves sys.path before one is executed.

Rejected: one process per request (import torch takes 2 s); multiprocessing or pickle (a pickle from here would be code
in the judge); stdin/stdout as the channel (a print would break it).
"""

import argparse
import ctypes
import os
import resource
import signal
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from wwbridge import NoCollection, Refuse, collect, device_failed, lean, out_of_memory  # noqa: E402
from wwbridge.channel import Channel, failure  # noqa: E402
from wwbridge.warm import import_all  # noqa: E402


def limit_self():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536, hard))
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no orphans


def local_of(q):
    from wwbridge.local import Local

    return Local(q.get("roots", ""), q.get("files", ()))


class Worker:
    """The requests.  Each takes the request's object and its descriptors and returns (answer, descriptors)."""

    def __init__(self):
        self.target = None
        self.task = None
        self.set = self.warm = None
        self.plans = {}  # number of a plan: the operators that it leaves to PyTorch

    def check(self, q, fds):
        from wwbridge import source

        source.check(q["source"], q["name"], local_of(q))
        return {}, []

    def set_open(self, q, fds):
        from wwbridge.parquet import Rows

        if len(fds) != 1:
            raise Refuse("request", "set_open needs one descriptor")
        self.set = Rows(os.dup(fds[0]))
        return {}, []

    def set_rows(self, q, fds):
        if self.set is None:
            raise Refuse("request", "no set is open")
        return {"rows": self.set.piece()}, []

    def set_write(self, q, fds):
        from wwbridge import parquet

        if len(fds) != 2:
            raise Refuse("request", "set_write needs two descriptors")
        parquet.write(os.dup(fds[0]), os.dup(fds[1]))
        return {}, []

    def outliner(self, q, fds):
        """Which Python and PyTorch outlines are of.  Nothing is imported: where all outlines are known, none will be
        asked for."""
        from wwbridge import facts

        return {"versions": facts.installed()}, []

    def outline(self, q, fds):
        """A task's tokens and graph, and with `trial` whether it runs; each part runs in a forked process."""
        from wwbridge import facts
        from wwbridge.apart import apart
        from wwbridge.tokens import tokens

        text, name, limits = q["source"], q["name"], (float(q["seconds"]), int(q["memory_bytes"]))
        out, local = {}, local_of(q)
        if not self.warm:
            with NoCollection():
                with facts.pytorch():
                    from wwbridge import outline

                outline.warm_up()
            self.warm = outline
        for part, call in (("tokens", lambda: {"tokens": tokens(text)}),
                           ("graph", lambda: self.warm.outline(text, name, local)),
                           ("trial", lambda: self.warm.trial(text, name, local, q["trial"]))):
            if part == "trial" and not q.get("trial") or part == "tokens" and q.get("graph_only"):
                continue
            try:
                out.update(apart(call, *limits))
            except Refuse as e:
                out[part + "_error"] = str(e)
        return out, []

    def hello(self, q, fds):
        if q.get("target") not in ("cuda", "cpu"):
            raise Refuse("request", "hello: target must be cuda or cpu")
        from wwbridge import facts

        if len(fds) > 1:
            raise Refuse("request", "hello takes one descriptor at most")
        with NoCollection():
            self.target = facts.start(q)
            if fds:
                from wwbridge import fused

                with open(fds[0], "rb", closefd=False) as f:
                    fused.use(f.read())
            hello = facts.describe(self.target, q)
            self.target.pool_bytes = int(q.get("pool_bytes")
                                         or hello["device"]["memory_bytes"] * (q.get("pool_share") or 0))
        return {**hello, "pool_bytes": self.target.pool_bytes}, []

    def peaks(self, q, fds):
        from wwbridge import facts

        return facts.peaks(self.target), []

    def load(self, q, fds):
        local = local_of(q)
        with NoCollection():
            from wwbridge.task import Task
            if not lean.suffices(q["source"], local):
                lean.complete()
        if self.task:
            self.task.close()
            self.task = None
            collect()
        here = os.path.dirname(os.path.abspath(__file__))
        sys.path[:] = [p for p in sys.path if p != here]
        self.task = Task(q["source"], q["name"], int(q["seed"]), self.target, local, q.get("id"))
        self.task.trim()
        taken = self.task.know(q["graph"]) if q.get("graph") else False
        return {**self.task.summary(), "known": taken}, []

    def loaded(self):
        if self.task is None:
            raise Refuse("request", "no task is loaded")
        return self.task

    def graph(self, q, fds):
        return self.loaded().graph(), []

    def tf32(self, q, fds):
        return {"tf32": self.loaded().tf32()}, []

    def buffers(self, q, fds):
        task = self.loaded()
        if self.target.kind == "cuda":
            return task.share()
        if not fds:
            return task.wanted(), []
        task.share([os.dup(fd) for fd in fds])
        return {}, []

    def draw(self, q, fds):
        has = self.loaded().draw(int(q["seed"]), float(q["scale"]), float(q["shift"]), q["params"], q.get("keep", ""),
                                 bool(q.get("values", True)), bool(q.get("later")), q.get("lot", ""))
        return {"has_uneven": has}, []

    def compare(self, q, fds):
        next_ = q.get("next") and (lambda: self.draw(q["next"], ())[0])
        return {"drawn": False, **self.loaded().compare(q["rule"], bool(q.get("if_finite")), q.get("near_ties") or {},
                                                        next_)}, []

    def degenerate(self, q, fds):
        return self.loaded().degenerate(int(q["seed_a"]), int(q["seed_b"])), []

    def crawl(self, q, fds):
        from wwbridge import facts

        with facts.pytorch():
            from wwbridge.crawl import crawl

        return {"rows": crawl(q["part"])}, []

    def share(self, q, fds):
        from wwbridge.share import Share

        if len(fds) != 2:
            raise Refuse("request", "share needs two descriptors")
        self.target.share = Share(os.dup(fds[0]), os.dup(fds[1]), self.target.sync)
        return {}, []

    def examine(self, q, fds):
        from wwbridge.examine import drop, examine

        if q["stage"] == "end":
            task, self.task = self.task, None
            return drop(task, self.target), []
        return examine(self.loaded(), int(q["seed"]), q["stage"], q["compiler"], q["memory_bytes"]), []

    def baseline(self, q, fds):
        return self.loaded().clock().prepare(q["which"]), []

    def compile_ahead(self, q, fds):
        self.loaded().clock().compile_ahead(q["which"])
        return {}, []

    def time(self, q, fds):
        return self.loaded().clock(check=False).time(q["which"], q["mode"], int(q["n"]), bool(q["flush_l2"])), []

    def arm(self, q, fds):
        if len(fds) != 2:
            raise Refuse("request", "arm needs two descriptors")
        return self.loaded().clock().arm(q["which"], *fds), []

    def origin(self, q, fds):
        return self.loaded().origin(), []

    def wipe(self, q, fds):
        return {"shares": self.loaded().wipe(bool(q["poison"]), bool(q["flush"]))}, []

    def publish(self, q, fds):
        return {"busy_us": self.loaded().publish_and_probe()}, []

    def keep(self, q, fds):
        return {"taken": self.loaded().keep(q["lent"], fds)}, []

    def same(self, q, fds):
        return {"same": self.loaded().same()}, []

    def trace(self, q, fds):
        return self.loaded().trace(), []

    def beside(self, q, fds):
        from wwbridge.beside import Beside

        if q["id"] in self.plans:
            raise Refuse("request", "beside: this number is taken")
        plan = self.plans[q["id"]] = Beside(q, fds, self.target)
        return plan.answer()

    def beside_arm(self, q, fds):
        if len(fds) != 2 or q["id"] not in self.plans:
            raise Refuse("request", "beside_arm needs two descriptors, behind beside")
        return self.plans[q["id"]].arm(*fds, q["flush"]), []

    def beside_drop(self, q, fds):
        plan = self.plans.pop(q["id"], None)
        if plan:
            plan.close()
        return {}, []

    def profile(self, q, fds):
        from wwbridge.profile import profile

        return profile(self.loaded()), []

    def free(self, q, fds):
        self.loaded().free(bool(q.get("all")), q.get("baseline"))
        return {}, []


RESERVED_BYTES = 1 << 30  # as src/task/confined.c
WITHOUT_HELLO = ("check", "crawl", "set_open", "set_rows", "set_write", "outliner", "outline")
REQUESTS = (*WITHOUT_HELLO, "hello", "peaks", "load", "graph", "tf32", "buffers", "draw", "compare", "degenerate",
            "share", "examine", "baseline", "compile_ahead", "time", "arm", "profile", "free", "origin", "wipe", "keep",
            "same", "publish", "trace", "beside", "beside_arm", "beside_drop")


def kind_of(worker, kind):
    """The kind of an error; "device" where no more can be computed in this process: a kernel's error stays with it, and
    what came behind it may have failed with other words."""
    try:
        if worker.target and worker.target.kind == "cuda":
            worker.target.sync()
    except Exception as e:
        print(f"the device failed under this process: {e}", flush=True)
        return "device"
    return kind


def answer(worker, q, fds):
    name = q.get("request") if isinstance(q, dict) else None
    if name not in REQUESTS:
        return failure("request", f"unknown request {name!r}"), []
    if worker.target is None and name != "hello" and name not in WITHOUT_HELLO:
        return failure("request", "the first request must be hello, or one that needs no device"), []
    try:
        body, out = getattr(worker, name)(q, fds)
        return {"ok": True, **body}, out
    except Refuse as e:
        return failure(kind_of(worker, e.kind), str(e)), []
    except (KeyError, TypeError, ValueError) as e:
        traceback.print_exc()
        return failure(kind_of(worker, "internal"), f"{name}: {type(e).__name__}: {e}"), []
    except BaseException as e:  # a task may raise anything, SystemExit too
        traceback.print_exc()
        kind = "memory" if out_of_memory(e) else "device" if device_failed(e) else "internal"
        return failure(kind_of(worker, kind), f"{name}: {type(e).__name__}: {e}"), []


def fork_workers(control, target, exports, compiles):
    """Run as the process that workers are forked from (src/task/forker.h)."""
    from wwcandidate import confine
    from wwcandidate.forking import FILTER_FD, Forker, read_all

    program = read_all(FILTER_FD)

    def become(q, sock):
        sock = confine.keep_only(sock)
        if os.read(sock, 1) != b"g":  # the judge knows now which process this is
            return 1
        confine.enter_as_worker(q)
        if target == "cpu":
            confine.limit_data(q["data_bytes"] + RESERVED_BYTES)
        os.setsid()
        confine.load_filter(program)
        serve(Channel(sock))
        return 0

    def ready():
        problem = import_all(target, True, compiles)
        return {"ok": False, "error": problem} if problem else {"ok": True}

    problem = import_all(target, exports or compiles, compiles)
    if problem:
        control.send({"ok": False, "error": problem})
    else:
        Forker(control, become, ready).serve()
    os._exit(0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--fd", type=int, required=True)
    p.add_argument("--fork", choices=("cuda", "cpu"))
    p.add_argument("--exports", action="store_true")
    p.add_argument("--compiles", action="store_true")
    args = p.parse_args()
    channel = Channel(args.fd)
    if args.fork:
        fork_workers(channel, args.fork, args.exports, args.compiles)
    limit_self()
    serve(channel)


def serve(channel):
    pid = os.getpid()
    worker = Worker()
    while True:
        try:
            q, fds = channel.receive()
        except (EOFError, OSError, ValueError):
            break
        if isinstance(q, dict) and q.get("request") == "quit":
            channel.send({"ok": True})
            break
        body, out = answer(worker, q, fds)
        if os.getpid() != pid:
            break  # a child that the task forked
        channel.send(body, out)
        for fd in fds:
            try:
                os.close(fd)
            except OSError:
                pass
    sys.stdout.flush()
    os._exit(0)  # no atexit: whatever the task registered there is not wanted


if __name__ == "__main__":
    main()
