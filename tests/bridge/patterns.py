"""What workers of a GPU are forked with, beside what they would register themselves, under a driver that notes who has
called it (driver.c). test_reference.py runs this in a process of its own: PyTorch loads the driver's library once."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "bridge"))
from wwbridge import warm  # noqa: E402

CALLED = 1  # exit code of a process that has called the driver


def callers():
    with open(os.environ["CALLS"], "a+", encoding="ascii") as f:
        f.seek(0)
        return f.read().split()


def registered():
    """Each pattern with where it is looked for, what it needs, and whether it is for training."""
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch._inductor.pattern_matcher import PatternPrettyPrinter

    def of(entry):
        free = getattr(entry.extra_check, "__code__", None)
        values = dict(zip(free.co_freevars, entry.extra_check.__closure__ or ())) if free else {}
        return [PatternPrettyPrinter.run(entry.pattern), *(repr(values[k].cell_contents) for k in (
            "argnames_static", "requires_grad") if k in values)]

    return [[str(place), list(map(of, entries))] for passes in (joint_graph, post_grad)
            for one in passes.pass_patterns for place, entries in one.patterns.items()]


def as_a_worker_does():
    import torch
    from torch._inductor.fx_passes import joint_graph, post_grad

    torch.cuda.is_available = lambda: False  # there is none here
    joint_graph.lazy_init(torch.device("cuda", 0))
    post_grad.lazy_init()


def main():
    import torch

    ours, warm.register_patterns = warm.register_patterns, lambda: None
    warm.import_torch("cuda", True, True)
    torch.cuda.is_available = lambda: True
    before, path = registered(), os.environ["CALLS"] + ".patterns"

    def described(register):
        register()
        with open(path, "w", encoding="utf-8") as f:
            f.write(repr(registered()))
        return CALLED if str(os.getpid()) in callers() else 0

    theirs = warm.Child(lambda: described(as_a_worker_does))
    assert theirs.code() == CALLED  # so a call is noticed
    with open(path, encoding="utf-8") as f:
        wanted = f.read()
    assert warm.Child(lambda: described(ours)).code() == 0
    with open(path, encoding="utf-8") as f:
        assert f.read() == wanted
    assert len(wanted) > len(repr(before)) + 100000
    assert str(os.getpid()) not in callers()
    for answer, forks in ((0, True), (warm.NOT_INITIALIZED, False), (100, True)):  # 100: no device
        os.environ["CUINIT"] = str(answer)
        assert warm.fork_has_device() == forks, answer


main()
sys.stdout.flush()
os._exit(0)
