"""The weights of recurrent layers one behind the other, as cuDNN reads them.

A module of PyTorch holds them so (`RNNBase.flatten_parameters()`).  The judge's shared parameters each have memory of
their own, of which cuDNN would make that copy in every call, with a kernel for each of them (two layers: eight, some 17
us of an H200); here one kernel makes it.
"""

import torch

CELLS = ("rnn_relu", "rnn_tanh", "lstm", "gru")  # each at cuDNN's number of it


def by_cudnn(weights, per_layer, *sizes):
    """Give the weights the places that cuDNN reads them at; returns the memory of all, None if it is not for them."""
    if not all(map(torch.backends.cudnn.is_acceptable, weights)):
        return None
    try:
        return torch._cudnn_rnn_flatten_weight(weights, per_layer, *sizes)
    except RuntimeError:  # PyTorch then runs the row, or refuses it, as it would without
        return None


def weights_of(row):
    """(names of a row's weights, how many a layer has, its cell, layers, first dimension, directions); None: it is no
    row of recurrent layers, or one that is left as it is."""
    cell, _, form = row["op"].removeprefix("aten.").partition(".")
    if cell not in CELLS or form != "input" or len(row["args"]) != 9:
        return None
    _, _, params, biases, layers, _, _, both, batch_first = row["args"]
    names = [p["ref"] for p in params]
    per_layer = 4 if biases else 2
    if len(names) != per_layer * layers * (2 if both else 1) or len(set(names)) < len(names):
        return None
    return names, per_layer, CELLS.index(cell), layers, batch_first, both


class Flat:
    """made by flat()"""

    def __init__(self, names, weights, views, memory):
        self.names, self.weights, self.views, self.memory = names, weights, views, memory
        order = sorted(range(len(views)), key=lambda i: views[i].data_ptr())
        self.parts = [weights[i].view(-1) for i in order] if adjoin(views, memory) else None

    def __call__(self):
        """{name: weight at its place}, of what the weights are now."""
        if self.parts:
            torch.cat(self.parts, out=self.memory)
        else:
            torch._foreach_copy_(self.views, self.weights)
        return dict(zip(self.names, self.views))


def adjoin(views, memory):
    """Do the views lie one behind the other, and are all of the memory?"""
    at = memory.data_ptr()
    for v in sorted(views, key=lambda v: v.data_ptr()):
        if v.data_ptr() != at or not v.is_contiguous():
            return False
        at += v.numel() * v.element_size()
    return at == memory.data_ptr() + memory.numel() * memory.element_size()


def flat(row, values, place=by_cudnn):
    """Flat for a row whose weights are among the values {name: tensor}; None: there is none."""
    found = weights_of(row)
    if not found or not all(name in values and values[name].is_contiguous() for name in found[0]):
        return None
    names, per_layer, cell, layers, batch_first, both = found
    weights = [values[name] for name in names]
    if len({w.dtype for w in weights}) > 1:
        return None
    views = [torch.empty_like(w) for w in weights]
    memory = place(views, per_layer, weights[0].shape[1], cell, weights[1].shape[1], 0, layers, bool(batch_first),
                   bool(both))
    return None if memory is None else Flat(names, weights, views, memory)
