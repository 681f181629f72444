"""The process that candidates of the PyTorch forms are forked from.

    python -I -u bridge/candidate.py cuda|cpu

Problem.  A KernelBench or CUDA-Agent solution is untrusted Python with untrusted native code.  It needs PyTorch,
which takes seconds to import, and it must be isolated: it sees no other candidate, no judge, no reference, no network,
and no files but PyTorch's and its own.

This process imports PyTorch, starts no thread and no CUDA, and then forks (wwcandidate/forking.py; docs/forms.md).
It keeps capabilities over its own namespaces that the candidates lose.
"""

import glob
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from wwbridge import NoCollection  # noqa: E402
from wwbridge.channel import Channel  # noqa: E402
from wwbridge.facts import no_pytorch  # noqa: E402
from wwcandidate.forking import CONTROL_FD, FILTER_FD, Forker, read_all  # noqa: E402


def start_pytorch(target):
    """Import what every candidate needs; nothing that starts threads or the device."""
    try:
        with NoCollection():
            import torch

            # cpp_extension calls it when it is imported, for a warning; that would start the driver here.
            asks = torch.cuda.is_available
            torch.cuda.is_available = lambda: True
            import torch.utils.cpp_extension

            import wwcandidate.holder  # noqa: F401

            torch.cuda.is_available = asks
    except ImportError as e:
        return no_pytorch(e)
    if target == "cuda" and not torch.version.cuda:
        return "this PyTorch was built without CUDA"
    return None


def torch_file():
    import torch

    return torch.__file__


class Candidates:
    def __init__(self, target):
        from wwcandidate import confine

        self.target, self.program = target, read_all(FILTER_FD)
        self.users = confine.further_users()

    def user(self, number):
        """One of the users that it may hand out, 0 where there is none or PyTorch's files are root's alone."""
        from wwcandidate import confine

        paths = [sys.executable, __file__, torch_file(), *glob.glob("/dev/nvidia[0-9c]*")]
        return self.users[0] + number % self.users[1] if self.users and confine.all_may_use(paths) else 0

    def become(self, q, sock):
        from wwcandidate import confine, holder

        sock = confine.keep_only(sock)
        confine.enter(q.get("gpu"), q["tasks"], self.user(q["user"]))
        if self.target == "cuda" and not q.get("gpu"):
            os.nice(10)  # it builds while others are measured
        os.setsid()
        confine.say_hello(sock)
        if q.get("called"):
            confine.load_filter(confine.ONE_GROUP)
        confine.load_filter(self.program)
        return holder.serve(sock, self.target)


def main():
    candidates, control = Candidates(sys.argv[1]), Channel(CONTROL_FD)
    problem = start_pytorch(candidates.target)
    if problem:
        control.send({"ok": False, "error": problem})
    else:
        Forker(control, candidates.become).serve()
    os._exit(0)


if __name__ == "__main__":
    main()
