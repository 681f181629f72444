"""Weights of recurrent layers that are copied to where cuDNN reads them (wwbridge/flat_weights.py), with places as
cuDNN has them: all matrices, then all biases."""

import torch
from wwbridge.flat_weights import flat


def row(op, names, biases, layers, both=False):
    refs = [{"ref": name} for name in names]
    return {"name": "rnn", "op": f"aten.{op}.input", "kwargs": {},
            "args": [{"ref": "x"}, {"ref": "h"}, refs, biases, layers, 0.0, True, both, True]}


def matrices_first(ahead):
    """ahead: elements before each weight that are none's."""
    def place(weights, per_layer, *sizes):
        memory = torch.full((sum(w.numel() + ahead for w in weights),), torch.nan)
        at = 0
        for w in sorted(weights, key=lambda w: -w.dim()):
            at += ahead
            w.set_(memory.untyped_storage(), at, w.shape)
            at += w.numel()
        place.asked = (per_layer, *sizes)
        return memory
    return place


def module(both=False, bias=True, **kwargs):
    torch.manual_seed(1)
    m = torch.nn.GRU(5, 7, num_layers=2, bias=bias, bidirectional=both, batch_first=True, **kwargs)
    return m, {name: p.detach() for name, p in m.named_parameters()}


def weights_lie_as_cudnn_reads_them():
    for ahead in (0, 3):
        for both in (False, True):
            m, values = module(both)
            place = matrices_first(ahead)
            made = flat(row("gru", list(values), True, 2, both), {**values, "x": torch.zeros(2, 3, 5)}, place)
            assert place.asked == (4, 5, 3, 7, 0, 2, True, both), place.asked
            for scale in (1, 2):  # what they are now, not what they were
                for v in values.values():
                    v.mul_(scale)
                now = made()
                assert list(now) == list(values) and all(torch.equal(now[n], values[n]) for n in values)
                cells = {n: v.untyped_storage().data_ptr() for n, v in now.items()}
                assert len(set(cells.values())) == 1
                x, h = torch.randn(2, 3, 5), torch.zeros(4 if both else 2, 2, 7)
                got = torch.gru(x, h, list(now.values()), True, 2, 0.0, False, both, True)
                assert torch.allclose(got[0], m(x)[0], atol=1e-6)


def other_rows_are_left():
    _, values = module()
    _, bare = module(bias=False)
    names = list(values)
    place = matrices_first(0)
    assert flat(row("gru", list(bare), False, 2), bare, place)
    assert place.asked[0] == 2
    assert flat(row("gru", names, True, 1), values, place) is None  # of another number (an LSTM with projections)
    assert flat(row("gru", names[:4] * 2, True, 2), values, place) is None  # shared by two layers
    assert flat(row("gru", names, True, 2), {**values, names[0]: values[names[0]].t()}, place) is None
    assert flat(row("gru", names, True, 2), {n: values[n] for n in names[1:]}, place) is None  # one is computed
    assert flat({"name": "y", "op": "aten.linear.default", "args": [{"ref": "x"}], "kwargs": {}}, values, place) is None


TESTS = [weights_lie_as_cudnn_reads_them, other_rows_are_left]
