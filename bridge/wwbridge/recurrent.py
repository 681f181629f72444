"""Shapes of recurrent layers for torch.export, without running their steps.

torch.export keeps aten.lstm.input and its like whole, but finds the shapes of their results by running a decomposition
on fake tensors, step by step: half a minute for 500 steps of six layers.  And PyTorch 2.11's gives the last states of
LSTM one dimension too many where the batch has more than one row, so that whatever follows them has wrong shapes.  So a
layer's shapes are computed here directly while the graph is made.
"""

from contextlib import contextmanager


def layer(inp, hidden, params, has_biases, *more, **named):
    """One direction of one layer: from input (steps, batch, features) and first states to outputs and last states."""
    states = hidden if isinstance(hidden, tuple) else (hidden,)
    after = tuple(s.new_empty(s.shape) for s in states)
    return inp.new_empty(*inp.shape[:-1], states[0].shape[-1]), after if isinstance(hidden, tuple) else after[0]


@contextmanager
def by_shape():
    from torch._decomp import decompositions  # imported late: export needs it anyway, the start of a worker does not

    names = {"one_layer_lstm": layer, "one_layer_rnn": layer, "mkldnn_one_layer_lstm": layer}
    originals = {n: getattr(decompositions, n) for n in names if hasattr(decompositions, n)}
    try:
        for n in originals:
            setattr(decompositions, n, names[n])
        yield
    finally:
        for n, f in originals.items():
            setattr(decompositions, n, f)


def flops(packet, args):
    """Flops of the matrix products of all steps: every weight is used once for every row of every step. 0: not a
    recurrent operator."""
    if packet not in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return 0
    x, weights = args[0], [w for w in args[2] if w.dim() == 2]
    return sum(2 * (x.numel() // max(x.shape[-1], 1)) * w.numel() for w in weights)
