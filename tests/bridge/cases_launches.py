"""Which kernels of a call are listed, and which lie in PyTorch's operators (bridge/wwcandidate/launches.py,
wwbridge/trace.py)."""

import types

import torch
from wwbridge.trace import Trace
from wwcandidate import launches


def what_an_operator_of_the_solutions_own_calls_is_outside_of_pytorchs():
    depths, mode = [], Trace()

    def kernel(x):
        depths.append(mode.depth)
        return x.relu()

    operator = torch.library.custom_op("cases_launches::kernel", kernel, mutates_args=(), schema="(Tensor x) -> Tensor")
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types_, args=(), kwargs=None):
            seen.append(mode.depth)
            return torch.zeros(3)

    with mode:
        operator(torch.ones(3))
        torch.relu(torch.Tensor._make_subclass(Watched, torch.ones(3)))
    assert depths == [0] and seen == [1], (depths, seen)


def kernels_beyond_those_that_are_listed_are_not_lost():
    most = launches.MOST
    counts = {b"own_%d" % i: (1, 1) for i in range(most)}
    assert len(launches.rows_of(types.SimpleNamespace(counts=counts))) == most
    counts |= {b"ampere_sgemm_128x64": (2, 2), b"at::native::relu": (3, 1)}
    rows = launches.rows_of(types.SimpleNamespace(counts=counts))
    assert len(rows) == most + 1 and rows[-1] == ["", 5, 3, 0], rows[-1]


TESTS = [what_an_operator_of_the_solutions_own_calls_is_outside_of_pytorchs,
         kernels_beyond_those_that_are_listed_are_not_lost]
