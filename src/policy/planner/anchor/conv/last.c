/* last.c - what is stored channels-last around convolutions that the library computes so. */
#include "policy/planner/anchor/conv/conv.h"
#include "policy/planner/lower/lower.h"

#include <string.h>

/* Are contiguous and channels-last the same layout of x? */
static int same_order(const struct val *x)
{
	int space = 0;

	for (int d = 2; d < x->rank; d++)
		space |= !ix_is(x->size[d], 1);
	return !space || ix_is(x->size[1], 1);
}

int pl_is_turned(const struct val *v, const struct val *x)
{
	return v->last && (v->kind == V_VIEW ? v->arg[0] : v->kind == V_ANCHOR ? v->anchor->in[0].val : NULL) == x;
}

static int is_turn_of(const struct anchor *s, const struct val *x) { return s->kind == S_TURN && s->in[0].val == x; }

/* Is x an input or a parameter that is stored channels-last already? */
static int is_stored_last(struct pl *pl, const struct val *x)
{
	const struct ix *last[PL_MAX_RANK];

	if (x->kind != V_BUF || x->root->contiguous)
		return 0;
	pl_channels_last(pl, x->rank, x->size, last);
	for (int d = 0; d < x->rank; d++)
		if (!ix_is(x->size[d], 1) && ix_num(x->root->stride[d]) != ix_num(last[d]))
			return 0;
	return 1;
}

/* Is x an input or a parameter whose planes and channels fill a tile? */
static int large_buffer(const struct val *x)
{
	int64_t plane = 1;

	for (int d = 2; d < x->rank; d++)
		plane *= ix_num(x->size[d]);
	return x->kind == V_BUF && x->root->contiguous && plane >= 32 && ix_num(x->size[1]) >= 8;
}

/* What a permutation is of; *mask: dimensions of it.  NULL: x is none. */
static struct val *permuted(const struct pl *pl, struct val *x, unsigned *mask)
{
	unsigned of = 0, seen = 0;

	if (x->kind != V_VIEW || x->root || x->cond || x->rank != x->arg[0]->rank)
		return NULL;
	for (int e = 0; e < x->rank; e++)
		for (int d = 0; d < x->rank; d++)
			if (ix_same(x->map[e], pl->place[d])) {
				seen |= 1u << d;
				of |= (*mask >> d & 1) << e;
			}
	if (seen != (1u << x->rank) - 1)
		return NULL;
	*mask = of;
	return x->arg[0];
}

/* Does x, a part of `all`, read a reduction of its rows, along the last dimension alone (a softmax, a layer norm)?  Of
 * more dimensions statistics are kernels of their own, and what is normalised is pointwise.  Looks at *left values at
 * most. */
static int reads_own_rows(const struct pl *pl, const struct val *x, const struct val *all, int *left)
{
	const int rank = all->rank;

	if (x->kind == V_RED && x->arg[0]->rank == rank) {
		unsigned mask = ((1u << x->nred) - 1) << (rank - x->nred);

		for (struct val *of = permuted(pl, x->arg[0], &mask); of; of = permuted(pl, of, &mask))
			;
		return mask == 1u << (rank - 1) && pl_numel_now(x->arg[0]) == pl_numel_now(all);
	}
	for (int i = 0; i < x->n_arg && !x->root && (x->kind == V_OP || (x->kind == V_VIEW && !x->cond)); i++)
		if (--*left > 0 && reads_own_rows(pl, x->arg[i], all, left))
			return 1;
	return 0;
}

/* Is x better stored as it lies, and then turned?  The kernel of its rows would store each element of a row to a sector
 * of its own, eight times the bytes in fp32; a launch and two passes more take as long from 2 MB on. */
static int is_stored_by_rows(const struct pl *pl, const struct val *x)
{
	static const int64_t LEAST_BYTES = 2 << 20;
	int left = 100;

	return x->kind == V_OP && pl_numel_now(x) * pl_itemsize(x->dt) >= LEAST_BYTES && ix_num(x->size[1]) >= 8 &&
		ix_num(x->size[x->rank - 1]) >= 32 && !pl_is_last(pl, x) && reads_own_rows(pl, x, x, &left);
}

int pl_conv_lies_last(struct pl *pl, const struct val *x) { return x->last || same_order(x) || is_stored_last(pl, x); }

struct val *pl_conv_store_last(struct pl *pl, struct gnode *n, struct val *x)
{
	struct val *v;

	if (pl_conv_lies_last(pl, x))
		return x;
	for (int i = 0; i < pl->n_anchor; i++) {
		if (is_turn_of(pl->anchor[i], x))
			return pl->anchor[i]->out;
		for (int k = 0; k < pl->anchor[i]->n_in; k++)
			if (pl_is_turned(pl->anchor[i]->in[k].val, x))
				return pl->anchor[i]->in[k].val;
	}
	if (large_buffer(x))
		return pl_turn(pl, n, x);
	if (is_stored_by_rows(pl, x)) {
		pl_make_root(pl, x);
		v = pl_turn(pl, n, x);
	} else {
		v = pl_view(pl, x, x->rank, x->size, pl->place);
		v->last = 1;
		pl_make_root(pl, v);
	}
	for (int i = 0; i < pl->n_node; i++)
		for (int o = 0; o < PL_MAX_OUTS; o++)
			if (pl->node[i].out[o] == x)
				pl->node[i].out[o] = v;
	return v;
}

/* Is x a part of a tensor, in that one's order of dimensions (one of its chunks)? */
static int is_slice(const struct pl *pl, const struct val *x)
{
	if (x->kind != V_VIEW || x->cond || x->rank != x->arg[0]->rank)
		return 0;
	for (int d = 0; d < x->rank; d++)
		for (int e = 0; e < x->rank; e++)
			if (ix_has(x->map[d], ix_as_var(pl->place[e])) != (d == e))
				return 0;
	return 1;
}

/* The arguments of x in whose order x lies, while nothing is stored in between: of its rank. */
static int follows(const struct pl *pl, const struct val *x, int i)
{
	return !x->root && (x->kind == V_OP || is_slice(pl, x)) && x->arg[i]->rank == x->rank;
}

/* Is x stored channels-last, or computed from a channels-last convolution?  Looks at *left values at most. */
static int from_last(const struct pl *pl, const struct val *x, int *left)
{
	if (x->last || (x->kind == V_ANCHOR && x->anchor->kind == S_CONV && x->anchor->conv.last))
		return 1;
	for (int i = 0; i < x->n_arg; i++)
		if (follows(pl, x, i) && --*left > 0 && from_last(pl, x->arg[i], left))
			return 1;
	return 0;
}

int pl_is_last(const struct pl *pl, const struct val *x)
{
	int left = 100;

	return pl_all_last(pl) && x->rank >= 3 && from_last(pl, x, &left);
}

struct val *pl_follow_last(struct pl *pl, struct gnode *n, struct val *x)
{
	return pl_is_last(pl, x) ? pl_conv_store_last(pl, n, x) : x;
}

static int convolves_after(const struct pl *pl, const struct gnode *n)
{
	for (n++; n < pl->node + pl->n_node; n++)
		if (n->row && (n->row->flags & PL_CONVOLUTION))
			return 1;
	return 0;
}

struct val *pl_copy_last(const struct pl *pl, const struct gnode *n, struct val *x, const struct val *beside)
{
	if (x->kind == V_BUF && pl_is_last(pl, beside) && convolves_after(pl, n))
		for (int i = 0; i < pl->n_anchor; i++)
			if (is_turn_of(pl->anchor[i], x))
				return pl->anchor[i]->out;
	return x;
}

/* Is node n reduced over dimensions without the channels, it alone, or what is made of it element by element? */
static int keeps_channels(const struct pl *pl, const struct gnode *n)
{
	static const char *const reductions[] = { "sum", "mean", "prod", "amax", "amin", "max.dim", "min.dim", "var", "std",
		"logsumexp", "linalg_vector_norm" };
	const struct gnode *m = n + 1, *end = pl->node + pl->n_node;
	const struct garg *dims;
	int at;

	while (m < end && !(m->n_arg && pl_refers(&m->arg[0], n->name)))
		m++;
	if (m == end || pl_count_readers(pl, n->name) != 1 || !m->row)
		return 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(reductions); i++) {
		if (strcmp(m->row->op, reductions[i]))
			continue;
		at = strcmp(m->row->op, "linalg_vector_norm") ? 1 : 2;
		dims = at < m->n_arg ? &m->arg[at] : NULL;
		if (!dims || (dims->kind != G_INT && (dims->kind != G_LIST || !dims->n)))
			return 0;
		for (int d = 0; d < (dims->kind == G_LIST ? dims->n : 1); d++) {
			const struct garg *of = dims->kind == G_LIST ? &dims->item[d] : dims;

			if (of->kind != G_INT || of->i == 1 || of->i == 1 - n->meta[0].rank)
				return 0;
		}
		return 1;
	}
	return m->meta[0].rank == n->meta[0].rank && m->n_out == 1 &&
		!memcmp(m->meta[0].size, n->meta[0].size, (size_t)n->meta[0].rank * sizeof(n->meta[0].size[0])) &&
		keeps_channels(pl, m);
}

struct val *pl_turn_beside(struct pl *pl, struct gnode *n, struct val *x, const struct val *beside)
{
	/* Of what each reading across memory takes beyond one along it, eight sectors of L2 in place of one; of the copy.
	 */
	static const double ACROSS_BYTES = 1.1e6, COPY_BYTES = 2e6, COPY_US = 2.5;
	double bytes;

	if (pl->target != WW_TARGET_CUDA || pl_all_plain(pl) || beside->kind != V_BUF || x->rank != beside->rank ||
		x->rank < 4 || !large_buffer(x) || !is_stored_last(pl, beside) || same_order(x) || ix_num(x->size[1]) < 32 ||
		!keeps_channels(pl, n))
		return x;
	for (int d = 1; d < x->rank; d++)
		if (ix_num(x->size[d]) != ix_num(beside->size[d]))
			return x;
	bytes = (double)pl_numel_now(x) * pl_itemsize(x->dt);
	if ((double)pl_numel_now(beside) * pl_itemsize(x->dt) / ACROSS_BYTES < 2 * (COPY_US + bytes / COPY_BYTES))
		return x;
	for (int i = 0; i < pl->n_anchor; i++)
		if (is_turn_of(pl->anchor[i], x))
			return pl->anchor[i]->out;
	return pl_turn(pl, n, x);
}

/* How many tensors of x's size an expression reads, of *left values at most. */
static int count_large(const struct pl *pl, const struct val *x, int64_t numel, int *left)
{
	int n = 0;

	if (--*left < 0)
		return 0;
	if (x->root || x->kind == V_BUF || x->kind == V_ANCHOR)
		return pl_numel_now(x) == numel;
	for (int i = 0; i < x->n_arg && (x->kind == V_OP || x->kind == V_VIEW); i++)
		n += count_large(pl, x->arg[i], numel, left);
	return n;
}

struct val *pl_norm_last(struct pl *pl, struct gnode *n, struct val *x)
{
	int left = 100, convolutions = 0;

	for (int i = 0; i < pl->n_node; i++)
		convolutions |= pl->node[i].row && (pl->node[i].row->flags & PL_CONVOLUTION);
	if (!pl_all_last(pl) || x->rank < 4 || !convolutions)
		return x;
	if (!x->last && large_buffer(x))
		return pl_conv_store_last(pl, n, x);
	return count_large(pl, x, pl_numel_now(x), &left) > 1 ? pl_follow_last(pl, n, x) : x;
}

static void keep_last(const struct pl *pl, struct val *x, int *left)
{
	if (x->root || --*left < 0)
		return;
	if (x->kind == V_ANCHOR && x->anchor->kind == S_CONV && x->anchor->conv.last)
		x->last = 1;
	for (int i = 0; i < x->n_arg; i++)
		if (follows(pl, x, i))
			keep_last(pl, x->arg[i], left);
}

static void keep_for(const struct pl *pl, struct val *x, unsigned mask, int channels_alone)
{
	const unsigned all = (1u << x->rank) - 1, channels = 2;
	int left = 100;

	for (struct val *of = permuted(pl, x, &mask); of; of = permuted(pl, x, &mask))
		x = of;
	if (pl_all_last(pl) && x->rank >= 3 && (mask == channels || (!channels_alone && (mask | 1) == (all & ~channels))))
		keep_last(pl, x, &left);
}

void pl_keep_last(const struct pl *pl, struct val *x, unsigned mask) { keep_for(pl, x, mask, 0); }

void pl_keep_channels(const struct pl *pl, struct val *x, unsigned mask) { keep_for(pl, x, mask, 1); }

void pl_keep_sliced(const struct pl *pl, struct val *x)
{
	int left = 100;

	if (!pl_is_last(pl, x) || x->root)
		return;
	keep_last(pl, x, &left);
	x->last = x->kind == V_OP || x->last;
}
