/* nn.c - lowering of matrix products, convolutions, pooling, attention and cumulative sums.
 *
 * An operation that the cookbook has a template for becomes an anchor (anchor/anchor.h).  Everything else (pooling, a
 * convolution that no template fits, a product of integer matrices) becomes a reduction over the last dimensions of a
 * windowed view, which the row kernels always cover. */
#include "policy/planner/lower/lower.h"

#include "policy/planner/graph/walk.h"

#include <math.h>
#include <string.h>

/* Is x the running sum of floats along its last dimension, which nothing has stored?  Up to 2,048, for sums_from(). */
static int is_running_sum(const struct pl *pl, const struct val *x)
{
	return x->kind == V_ANCHOR && x->anchor->kind == S_SCAN && !x->root && x->anchor->scan.red == RED_SUM &&
		!x->anchor->scan.excluded && x->anchor->scan.dim == x->rank - 1 && (x->dt == WW_F32 || pl_is_half(x->dt)) &&
		ix_num(x->size[x->rank - 1]) <= 2048 && pl_algebra(pl);
}

/* The sums of the elements of vector v from each place to its end.  What a running sum is multiplied by becomes that,
 * and the running sum, which has as many elements as the larger operand, is never made. */
static struct val *sums_from(struct pl *pl, struct val *v)
{
	const struct ix *size[2] = { v->size[0], v->size[0] }, *map[1] = { pl->place[1] };
	const struct ix *counts = ix_lt(pl, pl->place[0], ix_addc(pl, pl->place[1], 1));

	v = pl_reduce(pl, RED_SUM, pl_view_if(pl, v, 2, size, map, counts, 0), 2, 0);
	pl_make_root(pl, v);
	return v;
}

/* torch.matmul: vectors, batches, broadcasting. */
static struct val *matmul_of(struct pl *pl, struct gnode *n, struct val *a, struct val *b)
{
	int av = a->rank == 1, bv = b->rank == 1, nb, dt = pl_promote(a->dt, b->dt);
	const struct ix *size[PL_MAX_RANK], *bs[PL_MAX_RANK];
	struct val *c;

	if (bv && is_running_sum(pl, a)) {
		b = sums_from(pl, pl_cast(pl, b, WW_F32));
		a = a->anchor->in[0].val;
	}
	if (av)
		a = pl_unsqueeze(pl, a, 0);
	if (bv)
		b = pl_unsqueeze(pl, b, 1);
	if (b->rank == 2 && a->rank > 2) {
		/* b is one matrix for the whole batch: the rows of all batches make one product */
		const struct ix *flat[2] = { ix_const(pl, 1), a->size[a->rank - 1] };

		for (int d = 0; d < a->rank - 1; d++) {
			flat[0] = ix_mul(pl, flat[0], a->size[d]);
			size[d] = a->size[d];
		}
		c = pl_gemm(pl, n, pl_reshape(pl, a, 2, flat), b);
		size[a->rank - 1] = b->size[1];
		c = pl_reshape(pl, c, a->rank, size);
	} else {
		nb = (a->rank > b->rank ? a->rank : b->rank) - 2;
		for (int d = 0; d < nb; d++) {
			int da = d - (nb - (a->rank - 2)), db = d - (nb - (b->rank - 2));
			const struct ix *x = da >= 0 ? a->size[da] : ix_const(pl, 1), *y = db >= 0 ? b->size[db] : ix_const(pl, 1);

			bs[d] = ix_is(x, 1) ? y : x;
		}
		memcpy(size, bs, sizeof(size));
		size[nb] = a->size[a->rank - 2];
		size[nb + 1] = a->size[a->rank - 1];
		a = pl_expand(pl, a, nb + 2, size);
		size[nb] = b->size[b->rank - 2];
		size[nb + 1] = b->size[b->rank - 1];
		b = pl_expand(pl, b, nb + 2, size);
		c = pl_attention_of(pl, n, a, b);
		if (!c)
			c = pl_gemm(pl, n, a, b);
	}
	if (bv)
		c = pl_squeeze(pl, c, c->rank - 1);
	if (av)
		c = pl_squeeze(pl, c, c->rank - (bv ? 1 : 2));
	return pl_cast(pl, c, dt);
}

static void matmul(struct pl *pl, struct gnode *n)
{
	done(n, matmul_of(pl, n, pl_need_val(pl, n, 0, "self"), pl_need_val(pl, n, 1, "other")));
}

/* Is x computed from a reduction?  Looks at *left values at most. */
static int is_normalised(const struct val *x, int *left)
{
	if (x->root || --*left < 0)
		return 0;
	if (x->kind == V_RED)
		return 1;
	for (int i = 0; i < x->n_arg && (x->kind == V_OP || x->kind == V_VIEW); i++)
		if (is_normalised(x->arg[i], left))
			return 1;
	return 0;
}

/* cuda: stores x, a permutation of what is normalised (the tokens of a mixer), as it is: as rows of a product, which
 * are no rows of the norm, it would have a kernel for the statistics and another one.  Of as many rows and columns as a
 * row kernel turns in shared memory (is_turned() in loop.c). */
static void store_permuted(struct pl *pl, struct val *x)
{
	enum { TURNED = 32, COLUMNS = 320 };
	int left = 100, last = x->rank - 1;

	if (pl->target != WW_TARGET_CUDA || pl_all_plain(pl) || x->kind != V_VIEW || x->root || x->rank < 3 || x->cond ||
		x->arg[0]->rank != x->rank || ix_num(x->size[last]) < TURNED || ix_num(x->size[last - 1]) < TURNED ||
		ix_num(x->size[last - 1]) > COLUMNS)
		return;
	if (pl_numel_now(x) / ix_num(x->size[last - 1]) >= 2 * TURNED * (int64_t)pl->dev.sm_count &&
		ix_same(x->map[last - 1], pl->place[last]) && is_normalised(x, &left))
		pl_make_root(pl, x);
}

struct val *pl_linear(struct pl *pl, struct gnode *n, struct val *x, struct val *w, struct val *b)
{
	struct val *y;

	store_permuted(pl, x);
	y = matmul_of(pl, n, x, w->rank < 2 ? w : pl_transposed(pl, w)); /* a vector gives one number a row */

	return b ? pl_op2(pl, OP_ADD, y, b) : y;
}

static void linear(struct pl *pl, struct gnode *n)
{
	done(n,
		pl_linear(
			pl, n, pl_need_val(pl, n, 0, "input"), pl_need_val(pl, n, 1, "weight"), pl_arg_val(pl, n, 2, "bias")));
}

/* beta * self + alpha * c */
static void add_scaled(struct pl *pl, struct gnode *n, struct val *c)
{
	struct val *in = pl_need_val(pl, n, 0, "self");
	double beta = pl_kwarg_num(pl, n, "beta", 1), alpha = pl_kwarg_num(pl, n, "alpha", 1);

	if (alpha != 1)
		c = pl_op2(pl, OP_MUL, c, pl_constf(pl, c->dt, alpha));
	if (beta != 0)
		c = pl_op2(pl, OP_ADD, c, beta == 1 ? in : pl_op2(pl, OP_MUL, in, pl_constf(pl, c->dt, beta)));
	done(n, c);
}

static void addmm(struct pl *pl, struct gnode *n)
{
	add_scaled(pl, n, matmul_of(pl, n, pl_need_val(pl, n, 1, "mat1"), pl_need_val(pl, n, 2, "mat2")));
}

/* The products of a batch are summed: the batch becomes a part of the inner dimension. */
static void addbmm(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 1, "batch1"), *b = pl_need_val(pl, n, 2, "batch2");
	const struct ix *sa[2] = { a->size[1], ix_mul(pl, a->size[0], a->size[2]) }, *sb[2] = { sa[1], b->size[2] };

	a = pl_reshape(pl, pl_permute(pl, a, (int[]){ 1, 0, 2 }), 2, sa);
	add_scaled(pl, n, matmul_of(pl, n, a, pl_reshape(pl, b, 2, sb)));
}

static void addr(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 1, "vec1"), *b = pl_need_val(pl, n, 2, "vec2");

	add_scaled(pl, n, pl_op2(pl, OP_MUL, pl_unsqueeze(pl, a, 1), pl_unsqueeze(pl, b, 0)));
}

/* torch.linalg.vecdot: the dot product of corresponding vectors along dim. */
static void vecdot(struct pl *pl, struct gnode *n)
{
	struct val *p = pl_op2(pl, OP_MUL, pl_need_val(pl, n, 0, "self"), pl_need_val(pl, n, 1, "other"));

	done(n, pl_reduce(pl, RED_SUM, p, 1u << pl_dim(pl, n, pl_kwarg_int(pl, n, "dim", -1), p->rank), 0));
}

/* torch.inner: the dot products of all pairs of rows (vectors along the last dimensions). */
static void inner(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "self"), *b = pl_need_val(pl, n, 1, "other");
	const struct ix *size[PL_MAX_RANK], *flat[2] = { ix_const(pl, 1), NULL };
	int r = 0;

	if (!a->rank || !b->rank) {
		done(n, pl_op2(pl, OP_MUL, a, b));
		return;
	}
	for (int d = 0; d + 1 < b->rank; d++)
		flat[0] = ix_mul(pl, flat[0], b->size[d]);
	flat[1] = b->size[b->rank - 1];
	for (int d = 0; d + 1 < a->rank; d++)
		size[r++] = a->size[d];
	for (int d = 0; d + 1 < b->rank; d++)
		size[r++] = b->size[d];
	if (a->rank == 1)
		a = pl_unsqueeze(pl, a, 0);
	done(n, pl_reshape(pl, matmul_of(pl, n, a, pl_transposed(pl, pl_reshape(pl, b, 2, flat))), r, size));
}

static void multi_dot(struct pl *pl, struct gnode *n)
{
	struct garg *l = pl_arg(n, 0, "tensors");
	struct val *c;

	if (!l || l->kind != G_LIST || l->n < 2)
		pl_cannot(pl, n, "its argument \"tensors\" is not a list of two or more");
	c = pl_val_of(pl, &l->item[0]);
	for (int i = 1; i < l->n; i++) /* from the left: the order with the least work would depend on sizes */
		c = matmul_of(pl, n, c, pl_val_of(pl, &l->item[i]));
	done(n, c);
}

static void matrix_power(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "self"), *c = NULL;
	int64_t e = pl_arg_int(pl, n, 1, "n", 1);

	if (e < 1 || e > 1024)
		pl_cannot(pl, n, e < 1 ? "its power is below 1" : "its power is above 1024");
	for (;; a = matmul_of(pl, n, a, a), e /= 2) {
		if (e % 2)
			c = c ? matmul_of(pl, n, c, a) : a;
		if (e < 2)
			break;
	}
	done(n, c);
}

/* torch.tensordot as one matrix product: the summed dimensions come last in self and first in other. */
static void tensordot(struct pl *pl, struct gnode *n)
{
	struct val *v[2] = { pl_need_val(pl, n, 0, "self"), pl_need_val(pl, n, 1, "other") };
	const struct ix *size[PL_MAX_RANK], *flat[2];
	int64_t dims[2][PL_MAX_RANK];
	int k = pl_arg_ints(pl, n, 2, "dims_self", dims[0], PL_MAX_RANK), r = 0;

	if (pl_arg_ints(pl, n, 3, "dims_other", dims[1], PL_MAX_RANK) != k)
		pl_cannot(pl, n, "its lists of dimensions differ in length");
	for (int s = 0; s < 2; s++) {
		int perm[PL_MAX_RANK], used[PL_MAX_RANK] = { 0 }, at = 0, first[2];

		for (int i = 0; i < k; i++)
			used[dims[s][i] = pl_dim(pl, n, dims[s][i], v[s]->rank)] = 1;
		for (int i = 0; s && i < k; i++)
			perm[at++] = (int)dims[s][i];
		for (int d = 0; d < v[s]->rank; d++)
			if (!used[d])
				perm[at++] = d;
		for (int i = 0; !s && i < k; i++)
			perm[at++] = (int)dims[s][i];
		first[0] = s ? k : v[s]->rank - k; /* where the second group starts */
		v[s] = pl_permute(pl, v[s], perm);
		flat[0] = flat[1] = ix_const(pl, 1);
		for (int d = 0; d < v[s]->rank; d++) {
			flat[d >= first[0]] = ix_mul(pl, flat[d >= first[0]], v[s]->size[d]);
			if ((s == 0 && d < first[0]) || (s == 1 && d >= first[0])) {
				if (r >= PL_MAX_RANK)
					pl_cannot(pl, n, "its values would have too many dimensions");
				size[r++] = v[s]->size[d];
			}
		}
		v[s] = pl_reshape(pl, v[s], 2, flat);
	}
	done(n, pl_reshape(pl, matmul_of(pl, n, v[0], v[1]), r, size));
}

/* out[.., o] = sum of x1[.., i] w[o, i, j] x2[.., j] + b[o] */
static void bilinear(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "input1"), *c = pl_need_val(pl, n, 1, "input2"),
			   *w = pl_need_val(pl, n, 2, "weight"), *b = pl_arg_val(pl, n, 3, "bias"), *y;
	const struct ix *flat[2] = { ix_mul(pl, w->size[0], w->size[1]), w->size[2] }, *size[PL_MAX_RANK];
	int r = c->rank;

	if (r + 1 > PL_MAX_RANK)
		pl_cannot(pl, n, "its values would have too many dimensions");
	y = pl_linear(pl, n, c, pl_reshape(pl, w, 2, flat), NULL); /* (.., o i) */
	memcpy(size, y->size, sizeof(size));
	size[r - 1] = w->size[0];
	size[r] = w->size[1];
	y = pl_op2(pl, OP_MUL, pl_reshape(pl, y, r + 1, size), pl_unsqueeze(pl, a, r - 1));
	y = pl_reduce(pl, RED_SUM, y, 1u << r, 0);
	done(n, b ? pl_op2(pl, OP_ADD, y, b) : y);
}

static void kron(struct pl *pl, struct gnode *n)
{
	struct val *v[2] = { pl_need_val(pl, n, 0, "self"), pl_need_val(pl, n, 1, "other") };
	int r = v[0]->rank > v[1]->rank ? v[0]->rank : v[1]->rank;
	const struct ix *size[PL_MAX_RANK], *ma[PL_MAX_RANK], *mb[PL_MAX_RANK];

	for (int s = 0; s < 2; s++)
		while (v[s]->rank < r)
			v[s] = pl_unsqueeze(pl, v[s], 0);
	for (int d = 0; d < r; d++) {
		size[d] = ix_mul(pl, v[0]->size[d], v[1]->size[d]);
		ma[d] = ix_div(pl, pl->place[d], v[1]->size[d]);
		mb[d] = ix_mod(pl, pl->place[d], v[1]->size[d]);
	}
	done(n, pl_op2(pl, OP_MUL, pl_view(pl, v[0], r, size, ma), pl_view(pl, v[1], r, size, mb)));
}

/* c[i] = a[i + 1] b[i + 2] - a[i + 2] b[i + 1] along a dimension of three. */
static void cross(struct pl *pl, struct gnode *n)
{
	struct val *v[2] = { pl_need_val(pl, n, 0, "self"), pl_need_val(pl, n, 1, "other") }, *t[2][2];
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim", -1), v[0]->rank);

	for (int s = 0; s < 2; s++)
		for (int k = 0; k < 2; k++) {
			const struct ix *map[PL_MAX_RANK];

			for (int i = 0; i < v[s]->rank; i++)
				map[i] = i == d ? ix_mod(pl, ix_addc(pl, pl->place[i], k + 1), ix_const(pl, 3)) : pl->place[i];
			t[s][k] = pl_view(pl, v[s], v[s]->rank, v[s]->size, map);
		}
	done(n, pl_op2(pl, OP_SUB, pl_op2(pl, OP_MUL, t[0][0], t[1][1]), pl_op2(pl, OP_MUL, t[0][1], t[1][0])));
}

static void outer(struct pl *pl, struct gnode *n)
{
	done(n,
		pl_op2(pl, OP_MUL, pl_unsqueeze(pl, pl_need_val(pl, n, 0, "self"), 1),
			pl_unsqueeze(pl, pl_need_val(pl, n, 1, "vec2"), 0)));
}

/* ---- Convolutions ------------------------------------------------------------------------------------------------ */

static void spatial(struct pl *pl, struct gnode *n, int i, const char *name, int nd, int64_t def, int64_t *out)
{
	int64_t v[PL_MAX_RANK];
	int k = pl_arg_ints(pl, n, i, name, v, PL_MAX_RANK);

	for (int d = 0; d < nd; d++)
		out[d] = k == 0 ? def : k == 1 ? v[0] : v[d];
}

/* One zero appended to dimension d: padding "same" of an odd total pads one more at the end. */
static struct val *one_more(struct pl *pl, struct val *x, int d)
{
	const struct ix *size[PL_MAX_RANK];

	memcpy(size, x->size, sizeof(size));
	size[d] = ix_addc(pl, x->size[d], 1);
	return pl_view_if(pl, x, x->rank, size, pl->place, ix_lt(pl, pl->place[d], x->size[d]), 0);
}

enum { FORWARD, TRANSPOSED, GENERAL /* aten.convolution, which has an argument `transposed` */ };

static void convolution(struct pl *pl, struct gnode *n)
{
	struct val *x = pl_need_val(pl, n, 0, "input"), *w = pl_need_val(pl, n, 1, "weight"),
			   *b = pl_arg_val(pl, n, 2, "bias"), *y = pl_conv_given(n, x, w);
	int nd = w->rank - 2, transposed = n->variant == TRANSPOSED;
	int unbatched = x->rank == nd + 1;
	int64_t stride[3], pad[3] = { 0 }, dil[3], opad[3] = { 0 }, groups;
	struct garg *p = pl_arg(n, 4, "padding");

	if (nd < 1 || nd > 3)
		pl_cannot(pl, n, pl_fmt(pl, "it has %d spatial dimensions, not 1 to 3", nd));
	if (unbatched)
		x = pl_unsqueeze(pl, x, 0);
	spatial(pl, n, 3, "stride", nd, 1, stride);
	if (n->variant == GENERAL) {
		transposed = (int)pl_arg_int(pl, n, 6, "transposed", 0);
		spatial(pl, n, 5, "dilation", nd, 1, dil);
		spatial(pl, n, 7, "output_padding", nd, 0, opad);
		groups = pl_arg_int(pl, n, 8, "groups", 1);
	} else if (transposed) {
		spatial(pl, n, 5, "output_padding", nd, 0, opad);
		groups = pl_arg_int(pl, n, 6, "groups", 1);
		spatial(pl, n, 7, "dilation", nd, 1, dil);
	} else {
		spatial(pl, n, 5, "dilation", nd, 1, dil);
		groups = pl_arg_int(pl, n, 6, "groups", 1);
	}
	if (p && p->kind == G_STR) {
		for (int d = 0; d < nd; d++) {
			int64_t total = dil[d] * (ix_num(w->size[2 + d]) - 1);

			pad[d] = strcmp(p->name, "same") ? 0 : total / 2;
			if (!strcmp(p->name, "same") && total % 2)
				x = one_more(pl, x, 2 + d);
		}
	} else {
		spatial(pl, n, 4, "padding", nd, 0, pad);
	}
	if (!y)
		y = pl_conv(pl, n, x, w, nd, stride, pad, dil, transposed, opad, groups);
	if (b) {
		const struct ix *size[PL_MAX_RANK];

		for (int d = 0; d < y->rank; d++)
			size[d] = d == 1 ? b->size[0] : ix_const(pl, 1);
		y = pl_op2(pl, OP_ADD, y, pl_reshape(pl, b, y->rank, size));
	}
	done(n, unbatched ? pl_squeeze(pl, y, 0) : y);
}

/* ---- Pooling ----------------------------------------------------------------------------------------------------- */

/* A view with one more dimension for each of the last nd whose window has more than one element; it runs over the
 * window at each position.  Padding reads as `fill`. */
static struct val *windows(struct pl *pl, struct gnode *n, struct val *a, int nd, const int64_t *k, const int64_t *s,
	const int64_t *p, const int64_t *dil, double fill)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *cond = ix_const(pl, 1);
	int first = a->rank - nd, r = a->rank;

	if (a->rank + nd > PL_MAX_RANK)
		pl_cannot(pl, n, "its values would have too many dimensions");
	for (int d = 0; d < a->rank; d++) {
		const struct ix *i, *o;
		int e = d - first;

		size[d] = a->size[d];
		map[d] = pl->place[d];
		if (e < 0)
			continue;
		o = ix_addc(pl, ix_div(pl, ix_addc(pl, a->size[d], 2 * p[e] - dil[e] * (k[e] - 1) - 1), ix_const(pl, s[e])), 1);
		if (k[e] == 1 && s[e] == 1 && !p[e]) {
			o = a->size[d];
		} else if (ix_num(o) != n->meta[0].size[d]) {
			pl_guard_eq(pl, a->size[d], ix_const(pl, ix_num(a->size[d])), "a size that is pooled with ceil_mode");
			o = ix_const(pl, n->meta[0].size[d]);
		}
		size[d] = o;
		i = ix_addc(pl, ix_mulc(pl, pl->place[d], s[e]), -p[e]);
		if (k[e] > 1) {
			size[r] = ix_const(pl, k[e]);
			i = ix_add(pl, i, ix_mulc(pl, pl->place[r++], dil[e]));
		}
		map[d] = i;
		if (p[e])
			cond = ix_mul(pl, cond, ix_lt(pl, ix_const(pl, -1), i));
		if (p[e] || (ix_num(o) - 1) * s[e] + dil[e] * (k[e] - 1) - p[e] >= ix_num(a->size[d]))
			cond = ix_mul(pl, cond, ix_lt(pl, i, a->size[d]));
	}
	return pl_view_if(pl, a, r, size, map, cond, fill);
}

static unsigned last_dims(int rank, int nd) { return ((1u << nd) - 1) << (rank - nd); }

/* The maxima of the windows w of `a`.  Windows without gaps, each of which has an element of `a`, also have the nearest
 * one to each of theirs that lies outside. */
static struct val *maxima(struct pl *pl, const struct val *a, struct val *w, int nd, const int64_t *dil)
{
	w->nearest = w->kind == V_VIEW && w->cond;
	for (int d = 0; d < nd; d++)
		w->nearest &= dil[d] == 1;
	return pl_reduce(pl, RED_MAX, w, last_dims(w->rank, w->rank - a->rank), 0);
}

/* The variant of a pooling operator: the number of its spatial dimensions, plus MAX for adaptive_max_pool. */
enum { MAX = 4 };
static int pool_dims(const struct gnode *n) { return n->variant % MAX; }

/* max_pool's indices: the linear index, in a's last nd dimensions, of the maximum of each window of w. */
static struct val *index_of_max(struct pl *pl, struct val *a, struct val *w, int nd, const int64_t *k, const int64_t *s,
	const int64_t *p, const int64_t *dil)
{
	const struct ix *size[PL_MAX_RANK], *all = ix_const(pl, 1);
	int r = a->rank, first = r - nd;
	struct val *at, *lin = NULL;

	for (int d = 0; d < r; d++)
		size[d] = w->size[d];
	for (int e = 0; e < nd; e++)
		all = ix_mulc(pl, all, k[e]);
	size[r] = all;
	at = pl_reduce(pl, RED_ARGMAX, pl_reshape(pl, w, r + 1, size), 1u << r, 0); /* linear index within the window */
	for (int e = nd - 1; e >= 0; e--) {
		struct val *in = at, *pos;

		for (int f = nd - 1; f > e; f--)
			in = pl_op2(pl, OP_FLOORDIV, in, pl_consti(pl, WW_I64, k[f]));
		in = pl_op2(pl, OP_REM, in, pl_consti(pl, WW_I64, k[e]));
		pos = pl_index(pl, WW_I64, r, w->size, ix_addc(pl, ix_mulc(pl, pl->place[first + e], s[e]), -p[e]));
		pos = pl_op2(pl, OP_ADD, pos, pl_op2(pl, OP_MUL, in, pl_consti(pl, WW_I64, dil[e])));
		for (int f = nd - 1; f > e; f--)
			pos = pl_op2(pl, OP_MUL, pos, pl_index(pl, WW_I64, 0, NULL, a->size[first + f]));
		lin = lin ? pl_op2(pl, OP_ADD, lin, pos) : pos;
	}
	return lin;
}

enum { MANY_TERMS = 16 /* of a window, and of a stage of one */, FROM_TERMS = 1 << 24 /* of all windows */ };

/* The stage of dimension e: dimensions from the last one on, as many as have MANY_TERMS together. */
static int stage_from(const int64_t *k, int e)
{
	int64_t terms = k[e];

	while (e > 0 && terms * k[e - 1] <= MANY_TERMS)
		terms *= k[--e];
	return e;
}

/* Does it pay on cuda to reduce large windows along one dimension after the other, with results stored in
 * between?  Where windows overlap, these are far fewer than the elements of all windows: half as many, counting what is
 * stored in between as four of them. */
static int goes_by_stages(const struct pl *pl, const struct gnode *n, const struct val *a, int nd, const int64_t *k)
{
	double out = (double)pl_numel_now(a), terms = 1, staged = 0;
	int first = a->rank - nd;

	if (pl->target != WW_TARGET_CUDA || n->n_out > 1 || a->last)
		return 0;
	for (int e = nd - 1, from; e >= 0; e = from - 1) {
		double stage = 1;

		for (from = stage_from(k, e); e >= from; e--) {
			out *= (double)n->meta[0].size[first + e] / (double)ix_num(a->size[first + e]);
			stage *= (double)k[e];
		}
		terms *= stage;
		staged += out * (stage + (from ? 4 : 0));
	}
	return terms > MANY_TERMS && terms * out >= FROM_TERMS && 2 * staged <= terms * out;
}

/* Maxima of maxima, or sums of sums. */
static struct val *by_stages(struct pl *pl, struct gnode *n, enum pl_red red, struct val *a, int nd, const int64_t *k,
	const int64_t *s, const int64_t *p, const int64_t *dil)
{
	for (int e = nd - 1, from; e >= 0; e = from - 1) {
		int64_t ks[3] = { 1, 1, 1 }, ss[3] = { 1, 1, 1 }, ps[3] = { 0 }, ds[3] = { 1, 1, 1 };
		struct val *w;

		for (from = stage_from(k, e); e >= from; e--) {
			ks[e] = k[e];
			ss[e] = s[e];
			ps[e] = p[e];
			ds[e] = dil[e];
		}
		w = windows(pl, n, a, nd, ks, ss, ps, ds, red == RED_MAX ? -INFINITY : 0);
		a = red == RED_MAX ? maxima(pl, a, w, nd, ds) : pl_reduce(pl, red, w, last_dims(w->rank, w->rank - a->rank), 0);
		if (from && red == RED_MAX)
			pl_make_root(pl, a);
		else if (from)
			pl_store_because(pl, a, "a part of windows that are summed along one dimension after the other");
	}
	return a;
}

/* The operand of a pool, stored channels-last where it is computed from a channels-last convolution; but windows that
 * do not overlap, of what nobody else reads, use each element once: only the convolution's own result is stored. */
static struct val *pooled(struct pl *pl, struct gnode *n, struct val *a, int nd, const int64_t *k, const int64_t *s)
{
	int apart = n->n_out == 1 && n->arg[0].kind == G_VAL && pl_count_readers(pl, n->arg[0].name) == 1;

	for (int d = 0; d < nd; d++)
		apart &= s[d] >= k[d];
	if (!apart)
		return pl_follow_last(pl, n, a);
	pl_keep_last(pl, a, last_dims(a->rank, nd));
	return a;
}

/* How many windows compute an element, where each computes its own: a thread's four neighbours share theirs. */
static double windows_of(int nd, const int64_t *k, const int64_t *s)
{
	double n = 1;

	for (int d = 0; d < nd; d++)
		n *= fmax(1, d == nd - 1 ? (double)(3 * s[d] + k[d]) / (double)(4 * s[d]) : (double)k[d] / (double)s[d]);
	return n;
}

void pl_store_costly(struct pl *pl, struct val *a, double times, int first)
{
	static const double WORK = 2.1e7, BYTES = 4.2e6,
						LAUNCH_US = 2; /* of a microsecond: in the units of pl_ops, bytes */
	const struct ix *idx[PL_MAX_RANK], *sub[PL_MAX_RANK];
	const int n = a->rank - first;
	double computed, stored;
	int in_row; /* of a softmax: the kernel of its rows, which go through it anyway, stores it; nothing else is new */

	memcpy(idx, pl->place, (size_t)a->rank * sizeof(*idx));
	while (!a->root &&
		(a->kind == V_VIEW ||
			(a->kind == V_OP && (a->n_arg == 1 || a->arg[0] == a->arg[1]) && pl_ops[a->op].cost <= 1))) {
		if (a->kind == V_VIEW) {
			pl_map_index(pl, a, a->map, a->arg[0]->rank, idx, sub);
			memcpy(idx, sub, sizeof(idx));
		}
		a = a->arg[0];
	}
	in_row = a->softmax_of != NULL;
	if (pl->target != WW_TARGET_CUDA || times < (in_row ? 2 : 3) || a->root || !pl_is_float(a->dt))
		return;
	if (a->kind == V_RED) { /* which is not done on the spot within another one */
		pl_store_because(pl, a, "several windows of another reduction read it");
		return;
	}
	if (a->kind != V_OP)
		return;
	computed = (times - 1) * pl_cost_along(pl, a, idx, pl->place + first, n) * (double)pl_numel_now(a) / WORK;
	stored = (in_row ? 0 : LAUNCH_US) + (in_row ? 1 : 2) * (double)pl_itemsize(a->dt) * (double)pl_numel_now(a) / BYTES;
	if (computed > 1.5 * stored)
		pl_store_as_typed(pl, a, "several results read each element, which takes longer to compute than to load");
}

/* The same for windows that overlap (the logarithm of a softplus, for a local response norm of three channels; a gelu,
 * for maxima of 4 x 4). */
static void store_costly(struct pl *pl, struct val *a, int nd, const int64_t *k, const int64_t *s)
{
	pl_store_costly(pl, a, windows_of(nd, k, s), a->rank - nd);
}

static void max_pool(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "self"), *w;
	int nd = pool_dims(n);
	int64_t k[3] = { 0 }, s[3] = { 0 }, p[3] = { 0 }, dil[3] = { 0 };

	spatial(pl, n, 1, "kernel_size", nd, 1, k);
	spatial(pl, n, 2, "stride", nd, -1, s);
	spatial(pl, n, 3, "padding", nd, 0, p);
	spatial(pl, n, 4, "dilation", nd, 1, dil);
	for (int d = 0; d < nd; d++)
		s[d] = s[d] < 0 ? k[d] : s[d];
	if (!pl_is_float(a->dt))
		pl_cannot(pl, n, "its operand is an integer tensor");
	a = pooled(pl, n, a, nd, k, s);
	if (goes_by_stages(pl, n, a, nd, k)) {
		done(n, by_stages(pl, n, RED_MAX, a, nd, k, s, p, dil));
		return;
	}
	store_costly(pl, a, nd, k, s);
	w = windows(pl, n, a, nd, k, s, p, dil, -INFINITY);
	if (n->n_out == 1) {
		done(n, maxima(pl, a, w, nd, dil));
		return;
	}
	n->out[0] = pl_reduce(pl, RED_MAX, w, last_dims(w->rank, w->rank - a->rank), 0);
	n->out[1] = index_of_max(pl, a, w, nd, k, s, p, dil);
}

/* sum / n; where algebra is allowed, sum * (1 / n), whose factor is rounded. */
static struct val *averaged(struct pl *pl, struct val *sum, double n)
{
	return pl_algebra(pl) ? pl_op2(pl, OP_MUL, sum, pl_constf(pl, sum->dt, 1 / n))
						  : pl_op2(pl, OP_DIV, sum, pl_constf(pl, sum->dt, n));
}

/* Sum over a number of elements that is not the same everywhere. */
static struct val *averaged_over(struct pl *pl, struct val *sum, struct val *n)
{
	return pl_op2(pl, pl_algebra(pl) ? OP_QUOTIENT : OP_DIV, sum, pl_cast(pl, n, sum->dt));
}

/* A size or place that an average's divisor is made of: a float, which is exact, since integers have 64 bits. */
static struct val *as_float(struct pl *pl, const struct val *y, const struct ix *place)
{
	return pl_cast(pl, pl_index(pl, WW_I64, y->rank, y->size, place), y->dt == WW_F64 ? WW_F64 : WW_F32);
}

static void avg_pool(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "self"), *w, *y, *area = NULL;
	int nd = pool_dims(n), first = a->rank - nd, plain = 1, include;
	int64_t k[3] = { 0 }, s[3] = { 0 }, p[3] = { 0 }, dil[3] = { 1, 1, 1 }, fixed = 1;
	struct garg *divisor = pl_arg(n, 6, "divisor_override");

	spatial(pl, n, 1, "kernel_size", nd, 1, k);
	spatial(pl, n, 2, "stride", nd, -1, s);
	spatial(pl, n, 3, "padding", nd, 0, p);
	include = (int)pl_arg_int(pl, n, 5, "count_include_pad", 1);
	for (int d = 0; d < nd; d++)
		s[d] = s[d] < 0 ? k[d] : s[d];
	a = pooled(pl, n, a, nd, k, s);
	if (goes_by_stages(pl, n, a, nd, k)) {
		y = by_stages(pl, n, RED_SUM, a, nd, k, s, p, dil);
	} else {
		store_costly(pl, a, nd, k, s);
		w = windows(pl, n, a, nd, k, s, p, dil, 0);
		y = pl_reduce(pl, RED_SUM, w, last_dims(w->rank, w->rank - a->rank), 0);
	}
	for (int d = 0; d < nd; d++) {
		int64_t last = (ix_num(y->size[first + d]) - 1) * s[d] - p[d] + k[d], in = ix_num(a->size[first + d]);

		plain &= include ? last <= in + p[d] : (p[d] == 0 && last <= in);
		fixed *= k[d];
	}
	if (divisor && divisor->kind == G_INT) {
		plain = 1;
		fixed = divisor->i;
	}
	for (int d = 0; d < nd && !plain; d++) {
		const struct ix *from = ix_addc(pl, ix_mulc(pl, pl->place[first + d], s[d]), -p[d]);
		struct val *lo = as_float(pl, y, from), *hi = as_float(pl, y, ix_addc(pl, from, k[d])), *len;

		hi = pl_op2(
			pl, OP_MINIMUM, hi, as_float(pl, y, include ? ix_addc(pl, a->size[first + d], p[d]) : a->size[first + d]));
		if (!include)
			lo = pl_op2(pl, OP_MAXIMUM, lo, pl_constf(pl, lo->dt, 0));
		len = pl_op2(pl, OP_SUB, hi, lo);
		area = area ? pl_op2(pl, OP_MUL, area, len) : len;
	}
	y = plain ? averaged(pl, y, (double)fixed) : averaged_over(pl, y, area);
	done(n, y);
}

static void adaptive_pool(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "self"), *y, *area = NULL, *w;
	int nd = pool_dims(n), first = a->rank - nd, is_max = n->variant >= MAX, all_one = 1, even = 1;
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *cond = ix_const(pl, 1);
	int64_t k[3] = { 0 }, p[3] = { 0 }, dil[3] = { 1, 1, 1 };
	struct val like = *a;

	for (int d = 0; d < nd; d++) {
		if (!n->meta[0].size[first + d])
			pl_cannot(pl, n, "its result has no elements");
		all_one &= n->meta[0].size[first + d] == 1;
		even &= ix_num(a->size[first + d]) % n->meta[0].size[first + d] == 0;
		k[d] = ix_num(a->size[first + d]) / n->meta[0].size[first + d];
		if (n->meta[0].size[first + d] != 1)
			pl_guard_eq(pl, a->size[first + d], ix_const(pl, ix_num(a->size[first + d])), "a size that is pooled");
	}
	if (all_one) {
		const struct ix *c = ix_const(pl, 1);
		unsigned mask = last_dims(a->rank, nd);

		for (int d = first; d < a->rank; d++)
			c = ix_mul(pl, c, a->size[d]);
		pl_keep_last(pl, a, mask);
		y = pl_reduce(pl, is_max ? RED_MAX : RED_SUM, a, mask, 1);
		done(n, is_max ? y : pl_op2(pl, OP_DIV, y, pl_cast(pl, pl_index(pl, WW_I64, 0, NULL, c), y->dt)));
		return;
	}
	if (even) {
		double area_ = 1;

		w = windows(pl, n, a, nd, k, k, p, dil, is_max ? -INFINITY : 0);
		if (n->n_out > 1)
			n->out[1] = index_of_max(pl, a, w, nd, k, k, p, dil);
		y = pl_reduce(pl, is_max ? RED_MAX : RED_SUM, w, last_dims(w->rank, w->rank - a->rank), 0);
		for (int d = 0; d < nd; d++)
			area_ *= (double)k[d];
		done(n, is_max ? y : averaged(pl, y, area_));
		return;
	}
	for (int d = 0; d < a->rank; d++) {
		size[d] = d < first ? a->size[d] : ix_const(pl, n->meta[0].size[d]);
		map[d] = pl->place[d];
		like.size[d] = size[d];
	}
	for (int e = 0; e < nd; e++) {
		int d = first + e;
		int64_t in = ix_num(a->size[d]), out = n->meta[0].size[d];
		const struct ix *from = ix_div(pl, ix_mulc(pl, pl->place[d], in), ix_const(pl, out));
		const struct ix *to = ix_div(
			pl, ix_addc(pl, ix_mulc(pl, ix_addc(pl, pl->place[d], 1), in), out - 1), ix_const(pl, out));
		struct val *len = as_float(pl, &like, ix_sub(pl, to, from));

		size[a->rank + e] = ix_const(pl, (in + out - 1) / out + (in % out ? 1 : 0));
		map[d] = ix_add(pl, from, pl->place[a->rank + e]);
		cond = ix_mul(pl, cond, ix_lt(pl, map[d], to));
		area = area ? pl_op2(pl, OP_MUL, area, len) : len;
	}
	w = pl_view_if(pl, a, a->rank + nd, size, map, cond, is_max ? -INFINITY : 0);
	y = pl_reduce(pl, is_max ? RED_MAX : RED_SUM, w, last_dims(w->rank, w->rank - a->rank), 0);
	done(n, is_max ? y : averaged_over(pl, y, area));
}

/* ---- Attention and scans ----------------------------------------------------------------------------------------- */

/* Operands of attention whose batches differ are expanded to the batches of the result. */
static void share_batches(struct pl *pl, struct val **operand[3])
{
	const struct ix *size[PL_MAX_RANK];
	int r = 0, equal = 1;

	for (int i = 0; i < 3; i++)
		r = (*operand[i])->rank > r ? (*operand[i])->rank : r;
	for (int d = 0; d < r - 2; d++) {
		size[d] = ix_const(pl, 1);
		for (int i = 0; i < 3; i++) {
			struct val *v = *operand[i];
			int e = d - (r - v->rank);

			size[d] = e >= 0 && ix_num(v->size[e]) != 1 && ix_is(size[d], 1) ? v->size[e] : size[d];
			equal &= e >= 0 && ix_num(v->size[e]) == ix_num(size[d]);
		}
	}
	for (int i = 0; i < 3 && !equal; i++) {
		struct val *v = *operand[i];

		size[r - 2] = v->size[v->rank - 2];
		size[r - 1] = v->size[v->rank - 1];
		*operand[i] = pl_expand(pl, v, r, size);
	}
}

static void sdpa(struct pl *pl, struct gnode *n)
{
	struct val *q = pl_need_val(pl, n, 0, "query"), *k = pl_need_val(pl, n, 1, "key"),
			   *v = pl_need_val(pl, n, 2, "value");
	struct val *mask = pl_arg_val(pl, n, 3, "attn_mask");
	struct garg *sc = pl_arg(n, 6, "scale");
	double scale = sc && (sc->kind == G_FLOAT || sc->kind == G_INT) ? pl_arg_num(pl, n, 6, "scale", 1)
																	: 1 / sqrt((double)ix_num(q->size[q->rank - 1]));

	if (pl_arg_num(pl, n, 4, "dropout_p", 0) > 0)
		pl_cannot(pl, n, "dropout is random");
	pl_guard_eq(pl, q->size[q->rank - 1], ix_const(pl, ix_num(q->size[q->rank - 1])), "the head size");
	if (pl_arg_int(pl, n, 7, "enable_gqa", 0)) {
		int64_t rep = ix_num(q->size[q->rank - 3]) / ix_num(k->size[k->rank - 3]);
		struct val **kv[2] = { &k, &v };

		for (int i = 0; i < 2 && rep > 1; i++) {
			struct val *a = *kv[i];
			const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];
			int h = a->rank - 3;

			for (int d = 0; d < a->rank; d++) {
				size[d] = d == h ? ix_mulc(pl, a->size[d], rep) : a->size[d];
				map[d] = d == h ? ix_div(pl, pl->place[d], ix_const(pl, rep)) : pl->place[d];
			}
			*kv[i] = pl_view(pl, a, a->rank, size, map);
		}
	}
	share_batches(pl, (struct val * *[]){ &q, &k, &v });
	done(n, pl_attention(pl, n, q, k, v, mask, (int)pl_arg_int(pl, n, 5, "is_causal", 0), scale));
}

static void scan(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, pl_need_val(pl, n, 0, "self"), n->meta[0].dt);

	if (a->rank == 0) {
		done(n, a);
		return;
	}
	done(n, pl_scan(pl, n, a, pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), a->rank), (enum pl_red)n->variant));
}

const struct pl_lower_row pl_lower_nn[] = { { "linear", linear, .grows = GROWS_AS_PRODUCT },
	{ "mm", matmul, .grows = GROWS_AS_PRODUCT }, { "bmm", matmul, .grows = GROWS_AS_PRODUCT },
	{ "matmul", matmul, .grows = GROWS_AS_PRODUCT }, { "mv", matmul, .grows = GROWS_AS_PRODUCT },
	{ "dot", matmul, .grows = GROWS_AS_PRODUCT }, { "linalg_matmul", matmul, .grows = GROWS_AS_PRODUCT },
	{ "vdot", matmul, .grows = GROWS_AS_PRODUCT }, { "addmm", addmm, .grows = GROWS_AS_SUM_WITH_PRODUCT },
	{ "baddbmm", addmm, .grows = GROWS_AS_SUM_WITH_PRODUCT }, { "addmv", addmm, .grows = GROWS_AS_SUM_WITH_PRODUCT },
	{ "addbmm", addbmm, .grows = GROWS_AS_SUM_WITH_PRODUCT }, { "addr", addr, .grows = GROWS_AS_SUM_WITH_PRODUCT },
	{ "inner", inner, .grows = GROWS_AS_PRODUCT }, { "linalg_vecdot", vecdot, .grows = GROWS_AS_PRODUCT },
	{ "linalg_multi_dot", multi_dot, .grows = GROWS_AS_PRODUCT }, { "matrix_power", matrix_power },
	{ "linalg_matrix_power", matrix_power }, { "tensordot", tensordot, .grows = GROWS_AS_PRODUCT },
	{ "bilinear", bilinear, .grows = GROWS_AS_PRODUCT }, { "kron", kron, .grows = GROWS_AS_PRODUCT },
	{ "linalg_cross", cross, .grows = GROWS_AS_PRODUCT }, { "cross", cross, .grows = GROWS_AS_PRODUCT },
	{ "outer", outer, .grows = GROWS_AS_PRODUCT }, { "ger", outer, .grows = GROWS_AS_PRODUCT },
	{ "einsum", pl_einsum, .grows = GROWS_AS_PRODUCT },
	{ "conv1d", convolution, FORWARD, PL_CONVOLUTION, .grows = GROWS_AS_PRODUCT },
	{ "conv2d", convolution, FORWARD, PL_CONVOLUTION, .grows = GROWS_AS_PRODUCT },
	{ "conv3d", convolution, FORWARD, PL_CONVOLUTION, .grows = GROWS_AS_PRODUCT },
	{ "conv_transpose1d", convolution, TRANSPOSED, PL_CONVOLUTION, .grows = GROWS_AS_PRODUCT },
	{ "conv_transpose2d", convolution, TRANSPOSED, PL_CONVOLUTION, .grows = GROWS_AS_PRODUCT },
	{ "conv_transpose3d", convolution, TRANSPOSED, PL_CONVOLUTION, .grows = GROWS_AS_PRODUCT },
	{ "convolution", convolution, GENERAL, PL_CONVOLUTION, .grows = GROWS_AS_PRODUCT },
	{ "_convolution", convolution, GENERAL, PL_CONVOLUTION, .grows = GROWS_AS_PRODUCT }, { "max_pool1d", max_pool, 1 },
	{ "max_pool2d", max_pool, 2 }, { "max_pool3d", max_pool, 3 }, { "max_pool2d_with_indices", max_pool, 2 },
	{ "max_pool1d_with_indices", max_pool, 1 }, { "max_pool3d_with_indices", max_pool, 3 },
	{ "avg_pool1d", avg_pool, 1 }, { "avg_pool2d", avg_pool, 2 }, { "avg_pool3d", avg_pool, 3 },
	{ "adaptive_avg_pool1d", adaptive_pool, 1 }, { "adaptive_avg_pool2d", adaptive_pool, 2 },
	{ "adaptive_avg_pool3d", adaptive_pool, 3 }, { "_adaptive_avg_pool2d", adaptive_pool, 2 },
	{ "_adaptive_avg_pool3d", adaptive_pool, 3 }, { "adaptive_max_pool1d", adaptive_pool, MAX + 1 },
	{ "adaptive_max_pool2d", adaptive_pool, MAX + 2 }, { "adaptive_max_pool3d", adaptive_pool, MAX + 3 },
	{ "scaled_dot_product_attention", sdpa }, { "cumsum", scan, RED_SUM }, { "cumprod", scan, RED_PROD },
	{ NULL, NULL } };
