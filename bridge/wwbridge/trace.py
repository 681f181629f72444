"""Count the ATen operators that a module's call computes with, by a dispatch mode.

The judge compares the task's own list with that of a solution in a PyTorch form (rows 16 and 17 of the threat model):
both are made by this one class.  Views, allocation and plain movement are no computation and are left out, whoever does
them.
"""

import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

SPACES = ("aten", "prims")  # of PyTorch's own operators
MOVES = {"clone", "copy_", "_to_copy", "detach", "alias", "lift_fresh", "lift_fresh_copy", "_unsafe_view", "contiguous",
         "fill_", "zero_", "resize_", "set_", "_reshape_copy", "is_pinned", "_local_scalar_dense", "record_stream"}
FACTORIES = {"empty_like", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros", "new_ones", "new_full",
             "new_empty_strided"}
# An operator that does the work of several others, or another's under its own name, counts as these.
PARTS = {"silu": ("sigmoid", "mul"), "hardswish": ("hardsigmoid", "mul"), "mish": ("softplus", "tanh", "mul"),
         "addcmul": ("mul", "add"),
         "addcdiv": ("div", "add"), "rsub": ("sub",), "square": ("pow",), "addmm": ("product", "add"),
         "addmv": ("product", "add"),
         "addbmm": ("product", "add"), "baddbmm": ("product", "add"), "mm": ("product",), "bmm": ("product",),
         "mv": ("product",), "dot": ("product",), "vdot": ("product",),
         "clamp": ("clamp", "relu"), "clamp_min": ("clamp_min", "relu"), "threshold": ("threshold", "relu")}
# Convolutions, attentions and recurrences are products too: their time counts for that kind, and who asks for one has
# asked for a product (as a convolution with one tap is).
PRODUCTS = ("product", "convolution", "conv", "attention", "linear", "lstm", "gru", "rnn")
ATTENTION = ("product", "product", "_softmax", "mul", "div")


def is_product(name):
    return any(p in name for p in PRODUCTS) and not name.startswith("upsample")


class Trace(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.counts, self.cpu_ns = {}, {}  # by name; processor time of all threads
        self.depth = 0  # nesting of PyTorch's own operators

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # as in task.Watch: else all of torch.compile is imported, two seconds in every candidate

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        start = time.process_time_ns()
        own = func.namespace in SPACES
        self.depth += own
        try:
            out = func(*args, **(kwargs or {}))
        finally:
            self.depth -= own
        if self.computes(func, args, kwargs):
            name = f"{func.namespace}.{func.overloadpacket.__name__}"
            self.counts[name] = self.counts.get(name, 0) + 1
            self.cpu_ns[name] = self.cpu_ns.get(name, 0) + time.process_time_ns() - start
        return out

    @staticmethod
    def computes(func, args, kwargs):
        name = func.overloadpacket.__name__
        if func.namespace not in SPACES or name in MOVES or name in FACTORIES:
            return False
        if any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
            return False  # a view
        return any(isinstance(x, torch.Tensor) for x in tree_flatten((args, kwargs or {}))[0])

    @staticmethod
    def parts(name):
        """The operators that this one consists of; an in-place operator counts as the functional one."""
        key = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        space, _, bare = key.partition(".")
        if space != "aten":
            return key, (key,)
        own = PARTS.get(bare, (bare,))
        if is_product(bare) and "product" not in own:
            own += ATTENTION if "attention" in bare else ("product",)
        return key, own

    def answer(self):
        """`aten`: [[name, calls]]; `parts`: the same, split by PARTS; `kinds`: {kind: [calls, processor time in us]}:
        products are one kind, others count by parts, with equal shares."""
        plain, parts, kinds = {}, {}, {}
        for name, n in self.counts.items():
            key, own = self.parts(name)
            plain[key] = plain.get(key, 0) + n
            for part in own:
                parts[part] = parts.get(part, 0) + n
            if any(is_product(part) for part in own):
                own = ("product",)
            for kind in own:
                calls, us = kinds.get(kind, (0, 0))
                kinds[kind] = calls + n, us + self.cpu_ns[name] * 1e-3 / len(own)
        return {"aten": [[k, plain[k]] for k in sorted(plain)], "parts": [[k, parts[k]] for k in sorted(parts)],
                "kinds": kinds}
