"""Bytes of inputs and parameters that every implementation of a graph must read.

The judge calls a time suspect where it is below what these bytes need, so they are a lower bound or worth nothing: what
may be left unread does not count.  Three questions are asked of every use of a value, backwards from the outputs.

  - Is the result used? If no output depends on it, it needs nothing.
  - How much of the result is used?  Pointwise operators, and views that keep every element, need as much of their
    operand as is needed of their result.  Any other operator whose result is needed only in part counts as needing
    nothing: which part of its operands that touches is not known here.
  - How much of the operand does the operator read?  A slice reads its elements; a lookup (embedding, index, gather) as
    little as one element; a triangle half; a convolution or pooling with a stride beyond its kernel the positions
    that it visits; an operator that overwrites its operand, or selects by another operand's values (where,
    masked_fill), nothing.

Elements that strides of zero repeat count once; gaps between strided elements do not count.
"""

import math

import torch
from torch.utils._pytree import tree_flatten

LOOKUPS = {"embedding", "embedding_bag", "index", "index_select", "gather", "take", "take_along_dim", "grid_sampler",
           "grid_sampler_2d", "grid_sampler_3d", "searchsorted", "isin", "any", "all", "nll_loss", "nll_loss_forward",
           "nll_loss_nd",
           "nll_loss2d_forward", "masked_select", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
           "upsample_bilinear2d", "upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d"}
CHOOSERS = {"where", "masked_fill", "masked_scatter", "index_put", "index_fill", "index_copy", "scatter", "scatter_add",
            "scatter_reduce", "slice_scatter", "select_scatter", "diagonal_scatter", "constant_pad_nd"}
OVERWRITERS = {"copy", "fill", "zero", "normal", "uniform"}
PARTS = {"slice", "select", "narrow", "split", "split_with_sizes", "chunk", "unbind", "unfold", "diagonal",
         "as_strided"}
SHAPE_ONLY = {"zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones", "new_empty", "new_full",
              "new_empty_strided", "rand_like", "randn_like"}
LIKE_SECOND = {"expand_as", "view_as", "reshape_as", "type_as"}  # only the shape or type of the second operand is read
WINDOWS = {"conv1d", "conv2d", "conv3d", "convolution", "max_pool1d", "max_pool2d", "max_pool3d",
           "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d"}


def op_name(target):
    return target._schema.name.split("::")[-1].rstrip("_")


def distinct(sizes, strides):
    """Elements in memory that a tensor of this form can reach."""
    if any(s == 0 for s in sizes):
        return 0
    return min(math.prod(s for s, st in zip(sizes, strides) if st != 0),
               1 + sum((s - 1) * abs(st) for s, st in zip(sizes, strides)))


def distinct_bytes(sizes, strides, itemsize):
    return distinct(sizes, strides) * itemsize


def visited(size, out, kernel, stride, padding, dilation):
    """How many of `size` positions some window of a convolution or pooling covers."""
    return len({o * stride - padding + k * dilation for o in range(out) for k in range(kernel)} & set(range(size)))


def listed(value, n, default):
    if value is None or (isinstance(value, (list, tuple)) and not value):
        value = default
    value = list(value) if isinstance(value, (list, tuple)) else [value] * n
    return value * n if len(value) == 1 else value


class Needed:
    def __init__(self, graph, results):
        self.outputs = {r for r in results if isinstance(r, torch.fx.Node)}
        self.counts, self.live = {}, set(self.outputs)
        for n in reversed(graph.nodes):  # users before what they use
            if n in self.live:
                self.live.update(n.all_input_nodes)
            self.elements(n)

    def bytes(self, n):
        v = n.meta.get("val")
        return self.elements(n) * v.dtype.itemsize if isinstance(v, torch.Tensor) else 0

    def elements(self, n):
        """How many elements of node n's value must be read."""
        if n not in self.counts:
            v = n.meta.get("val")
            self.counts[n] = 0
            if isinstance(v, torch.Tensor):
                whole = distinct(v.shape, v.stride())
                uses = (self._of(user, n, v, whole) for user in n.users if user in self.live)
                self.counts[n] = whole if n in self.outputs else min(whole, max(uses, default=0))
        return self.counts[n]

    def _whole(self, n):
        """Is the whole result of node n read?  (With several results: the whole of one.)"""
        v = n.meta.get("val")
        if isinstance(v, torch.Tensor):
            return self.elements(n) >= distinct(v.shape, v.stride())
        return any(self._whole(user) for user in n.users) if isinstance(v, (list, tuple)) else True

    def _of(self, user, n, v, whole):
        """How many elements of operand n (value v, `whole` elements) does one of its users read?"""
        if user.op == "output":
            return 0  # elements() counts outputs; the rest of the list is state
        if not isinstance(user.target, torch._ops.OpOverload):
            return self.elements(user)  # getitem
        packet, val = op_name(user.target), user.meta.get("val")
        first = bool(user.args) and user.args[0] is n
        if packet in SHAPE_ONLY or (packet in LIKE_SECOND and not first):
            return 0
        if packet in CHOOSERS and not (packet == "where" and first):
            return 0  # the mask or the indices may leave out any element
        if (packet in LOOKUPS or packet in OVERWRITERS) and first:
            return 0
        if packet in PARTS and first:
            picked = {0: user} if isinstance(val, torch.Tensor) else {g.args[1]: g for g in user.users}
            return min(whole, sum(self.elements(g) for g in picked.values()))
        if isinstance(val, torch.Tensor) and self._elementwise(user, v, val):
            return min(whole, self.elements(user))
        if not self._whole(user):
            return 0
        if packet in ("tril", "triu"):
            return whole // 2
        if packet in WINDOWS and first:
            return min(whole, self._windows(user, packet, v, val))
        return whole

    @staticmethod
    def _elementwise(user, v, val):
        returns = user.target._schema.returns
        view = bool(returns) and returns[0].alias_info is not None and not returns[0].alias_info.is_write
        return val.numel() == v.numel() and (view or torch.Tag.pointwise in user.target.tags)

    @staticmethod
    def _windows(user, packet, v, val):
        out = val if isinstance(val, torch.Tensor) else tree_flatten(val)[0][0]
        args = dict(zip((a.name for a in user.target._schema.arguments), user.args)) | dict(user.kwargs)
        if args.get("transposed"):
            return v.numel()
        n = int(next((c for c in packet if c.isdigit()), 0)) or v.dim() - 2
        weight = args.get("weight")
        kernel = list(weight.meta["val"].shape[2:]) if weight is not None else listed(args.get("kernel_size"), n, 1)
        stride = listed(args.get("stride"), n, 1 if weight is not None else kernel)
        if isinstance(args.get("padding"), str):
            return v.numel()
        padding, dilation = listed(args.get("padding"), n, 0), listed(args.get("dilation"), n, 1)
        seen = 1
        for d in range(n):
            seen *= visited(v.shape[d - n], out.shape[d - n], kernel[d], stride[d], padding[d], dilation[d])
        return math.prod(v.shape[:-n]) * seen
