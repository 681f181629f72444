/* rules.h - the rules of ops.def: what an operator's results are, by its arguments. */
#pragma once

#include "task/graph/call.h"

/* NAME_rule() for each; rules_*.c */
#define GRAPH_RULES(X) \
	X(nothing) X(point) X(like_self) X(into_self) X(along) X(prelu) X(glu) X(reduce) X(reduce_some) X(number) X(loss) \
	X(reshape) X(permute) X(transpose) X(turned) X(reversed) X(movedim) X(expand) X(expand_as) X(unsqueeze) X(squeeze) \
	X(select) X(narrow) X(pieces) X(unbind) X(cat) X(stack) X(stack_as) X(block_diag) X(pad) X(pad_by) X(repeat) \
	X(repeat_each) X(roll) X(flip) X(rot90) X(diag) X(diag_embed) X(diagonal) X(matrices) X(meshgrid) X(diff) \
	X(broadcast_all) X(embedding) X(index_select) X(gather) X(one_hot) X(take) X(take_along) X(index) X(index_put) \
	X(scatter) X(index_write) X(embedding_bag) X(masked_scatter) X(histogram) X(search) X(slice_scatter) \
	X(select_scatter) X(slice) X(topk) X(sized) X(arange) X(steps) X(eye) X(tri_indices) X(flip_one) \
	X(matmul) X(linear) X(add_product) X(addbmm) X(outer) X(inner) X(vecdot) X(multi_dot) X(square) X(tensordot) \
	X(bilinear) X(kron) X(cross) X(einsum) X(conv) X(pool) X(adaptive) X(attention) X(layer_norm) X(group_norm) \
	X(channel_norm) X(cell) X(layers) X(upsample) X(grid_sampler) X(affine_grid) X(im2col) X(col2im) X(shuffle) \
	X(channel_shuffle) X(unfold) X(solve) X(cdist) X(cosine) X(distance) X(triplet) X(class_loss) X(rows_loss) \
	X(multi_margin) X(determinant)

#define X(name) int name##_rule(struct call *c);
GRAPH_RULES(X)
#undef X
