/* reduce.c - lowering of reductions, normalisations and losses.
 *
 * Each becomes plain reductions (sum, max, ...) and pointwise operations; the grouping fuses them into one kernel that
 * reads its rows once.  Variances are
 * computed in two steps (mean, then the sum of squared differences): the values come from registers or cache the second
 * time, and nothing cancels. */
#include "policy/planner/lower/lower.h"

#include <math.h>
#include <string.h>

#define F(a, f) pl_constf(pl, (a)->dt, (f))

/* The number of elements that a reduction runs over, as a value of type dt. */
static struct val *count(struct pl *pl, const struct val *a, unsigned mask, int dt)
{
	const struct ix *c = ix_const(pl, 1);
	int64_t k;

	for (int d = 0; d < a->rank; d++)
		if (mask >> d & 1)
			c = ix_mul(pl, c, a->size[d]);
	if (ix_is_const(c, &k))
		return pl_constf(pl, dt, (double)k);
	return pl_cast(pl, pl_index(pl, WW_I64, 0, NULL, c), dt);
}

static struct val *sum(struct pl *pl, struct val *a, unsigned mask, int keep)
{
	pl_keep_channels(pl, a, mask);
	return pl_reduce(pl, RED_SUM, a, mask, keep);
}

static struct val *mean(struct pl *pl, struct val *a, unsigned mask, int keep)
{
	return DIV(sum(pl, a, mask, keep), count(pl, a, mask, a->dt));
}

static unsigned all_dims(const struct val *a) { return (1u << a->rank) - 1; }

/* The dimensions of argument i: absent, None and an empty list mean all of them. */
static unsigned dims(struct pl *pl, struct gnode *n, int i, const struct val *a)
{
	int64_t d[PL_MAX_RANK];
	struct garg *g = pl_arg(n, i, "dim");
	unsigned mask = 0;
	int k;

	if (!g || g->kind == G_NONE || g->kind == G_STR || g->kind == G_BOOL)
		return all_dims(a);
	k = pl_arg_ints(pl, n, i, "dim", d, PL_MAX_RANK);
	for (int j = 0; j < k; j++)
		mask |= 1u << pl_dim(pl, n, d[j], a->rank);
	return k ? mask : all_dims(a);
}

static int keepdim(struct pl *pl, struct gnode *n, int i) { return (int)pl_arg_int(pl, n, i, "keepdim", 0); }

/* A mean is a sum divided by the count. */
enum { MEAN = RED_COUNT };

/* cuda: of a running sum that is summed along the same dimension, each element times how many of the sums it is in.
 * Nothing is scanned then, and no running sum is stored. */
static struct val *of_running_sum(struct pl *pl, struct val *a, unsigned mask)
{
	const struct ix *times;
	struct anchor *s = a->anchor;
	int d;

	if (pl->target != WW_TARGET_CUDA || a->kind != V_ANCHOR || a->root || s->kind != S_SCAN || s->scan.red != RED_SUM ||
		s->scan.excluded || !(mask >> s->scan.dim & 1) || (a->dt != WW_F32 && !pl_is_half(a->dt)) || !pl_algebra(pl))
		return a;
	d = s->scan.dim;
	times = s->scan.back ? ix_addc(pl, pl->place[d], 1) : ix_sub(pl, a->size[d], pl->place[d]);
	return MUL(pl_cast(pl, s->in[0].val, WW_F32), pl_cast(pl, pl_index(pl, WW_I64, a->rank, a->size, times), WW_F32));
}

static void reduce(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, self(pl, n), n->meta[0].dt);
	int keep = keepdim(pl, n, 2);
	unsigned m = dims(pl, n, 1, a);

	if (n->variant == MEAN || n->variant == RED_SUM)
		a = of_running_sum(pl, a, m);
	pl_keep_last(pl, a, m);
	a = n->variant == MEAN ? mean(pl, a, m, keep) : pl_reduce(pl, n->variant, a, m, keep);
	done(n, pl_cast(pl, a, n->meta[0].dt));
}

static void amaxmin(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	unsigned m = dims(pl, n, 1, a);

	pl_keep_last(pl, a, m);
	done(n, pl_reduce(pl, n->variant, a, m, keepdim(pl, n, 2)));
}

/* max and min along a dimension, with indices. */
static void maxmin_dim(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	unsigned m = dims(pl, n, 1, a);

	pl_keep_last(pl, a, m);
	n->out[0] = pl_reduce_beside(pl, n->variant, a, m, keepdim(pl, n, 2));
	n->out[1] = pl_reduce(pl, n->variant == RED_MAX ? RED_ARGMAX : RED_ARGMIN, a, m, keepdim(pl, n, 2));
}

/* max and min of two tensors; the variant is the operation. */
static void maxmin_other(struct pl *pl, struct gnode *n)
{
	done(n, pl_op2(pl, n->variant, self(pl, n), pl_need_val(pl, n, 1, "other")));
}

static void argmaxmin(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	struct garg *g = pl_arg(n, 1, "dim");

	if (!g || g->kind == G_NONE) {
		const struct ix *size[1] = { pl_numel(pl, a) };

		done(n, pl_reduce(pl, n->variant, pl_reshape(pl, a, 1, size), 1, 0));
		return;
	}
	pl_keep_last(pl, a, dims(pl, n, 1, a));
	done(n, pl_reduce(pl, n->variant, a, dims(pl, n, 1, a), keepdim(pl, n, 2)));
}

static void anyall(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, pl_cast(pl, self(pl, n), WW_BOOL), WW_I64);
	unsigned m = dims(pl, n, 1, a);

	pl_keep_last(pl, a, m);
	done(n, pl_cast(pl, pl_reduce(pl, n->variant, a, m, keepdim(pl, n, 2)), WW_BOOL));
}

/* How many elements each result of a reduction is made of. */
static int64_t elements_each(const struct val *a, unsigned mask)
{
	int64_t n = 1;

	for (int d = 0; d < a->rank; d++)
		n = ix_times(n, mask >> d & 1 ? ix_num(a->size[d]) : 1);
	return n;
}

/* cuda: stores first what statistics are taken of where it is computed of large tensors that lie across each other
 * (channels-last beside PyTorch's order): a row kernel reads one of them by a sector for each element, and its readers
 * do so again, while a pointwise kernel reads both by tiles.  Of few elements (16 channels of each pixel) a thread has
 * all, and uses its sectors whole. */
static void store_as_one(struct pl *pl, struct val *a, unsigned mask)
{
	enum { LARGE = 1 << 20, FEW = 64 };
	const int64_t n = elements_each(a, mask);

	while (a->kind == V_VIEW && !a->root && !a->cond && pl_numel_now(a->arg[0]) == pl_numel_now(a))
		a = a->arg[0];
	if (pl->target == WW_TARGET_CUDA && n > FEW && a->kind == V_OP && !a->root && pl_is_float(a->dt) &&
		pl_numel_now(a) >= LARGE && pl_lies_both_ways(pl, a))
		pl_store_as_typed(pl, a, "it is computed of tensors that lie across each other, and read several times");
}

/* A sum for the mean or for the squares about it.  Parts that are not all alike make four kernels of one, which long
 * columns alone repay (2,609 x 64 floats: 13.8 us in place of 6.7, 4,099 x 3,000: 48.7 in place of 35.5, H200; what one
 * kernel takes grows with their length). */
static struct val *centred_sum(struct pl *pl, struct val *a, unsigned mask)
{
	enum { LONG = 3 << 12 };

	pl_keep_channels(pl, a, mask);
	return elements_each(a, mask) < LONG ? pl_reduce_beside(pl, RED_SUM, a, mask, 1)
										 : pl_reduce(pl, RED_SUM, a, mask, 1);
}

/* Returns the sum of squared differences from the mean; *mu: the mean; *diff: the differences. */
static struct val *centred(struct pl *pl, struct val *a, unsigned mask, struct val **mu, struct val **diff)
{
	struct val *s, *m2;

	store_as_one(pl, a, mask);
	s = centred_sum(pl, a, mask);
	m2 = pl_algebra(pl) ? pl_centred_parts(pl, &s) : NULL;
	*mu = DIV(s, count(pl, a, mask, a->dt));
	*diff = SUB(a, *mu);
	return m2 ? m2 : centred_sum(pl, MUL(*diff, *diff), mask);
}

static struct val *drop_dims(struct pl *pl, struct val *v, unsigned mask, int keep)
{
	for (int d = v->rank - 1; d >= 0 && !keep; d--)
		if (mask >> d & 1)
			v = pl_squeeze(pl, v, d);
	return v;
}

enum { VAR, STD };

static void variance(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *mu, *diff, *m2, *cnt, *v;
	struct garg *second = pl_arg(n, 1, "dim");
	int of_all = second && second->kind == G_BOOL; /* (self, unbiased) */
	unsigned m = dims(pl, n, 1, a);
	double corr = pl_kwarg_num(pl, n, "correction", (double)pl_arg_int(pl, n, of_all ? 1 : 2, "unbiased", 1));
	int keep = keepdim(pl, n, 3);

	if (!pl_is_float(a->dt))
		pl_cannot(pl, n, "its operand is an integer tensor");
	m2 = centred(pl, a, m, &mu, &diff);
	cnt = count(pl, a, m, a->dt);
	v = DIV(m2, corr == 0 ? cnt : cnt->kind == V_CONST ? pl_constf(pl, a->dt, cnt->f - corr) : SUB(cnt, F(a, corr)));
	if (n->variant == STD)
		v = pl_op1(pl, OP_SQRT, v);
	n->out[0] = drop_dims(pl, v, m, keep);
	n->out[1] = drop_dims(pl, mu, m, keep);
}

static struct val *norm_of(struct pl *pl, struct gnode *n, struct val *a, double p, unsigned m, int keep)
{
	if (p == 2)
		return pl_op1(pl, OP_SQRT, sum(pl, MUL(a, a), m, keep));
	if (p == 1)
		return sum(pl, pl_op1(pl, OP_ABS, a), m, keep);
	if (isinf(p))
		return pl_reduce(pl, p > 0 ? RED_MAX : RED_MIN, pl_op1(pl, OP_ABS, a), m, keep);
	if (p == 0)
		return sum(pl, pl_cast(pl, pl_op2(pl, OP_NE, a, F(a, 0)), a->dt), m, keep);
	if (p != p)
		pl_cannot(pl, n, "the order of its norm is not a number");
	return pl_op2(pl, OP_POW, sum(pl, pl_op2(pl, OP_POW, pl_op1(pl, OP_ABS, a), F(a, p)), m, keep), F(a, 1 / p));
}

static void vector_norm(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, self(pl, n), n->meta[0].dt);
	struct garg *ord = pl_arg(n, 1, "ord");
	int has_dim = pl_arg(n, 2, "dim") != NULL;
	double p = 2;

	if (ord && ord->kind == G_STR) {
		if (strcmp(ord->name, "fro"))
			pl_cannot(pl, n, pl_fmt(pl, "the order of its norm is \"%s\"", ord->name));
	} else {
		p = pl_arg_num(pl, n, 1, "ord", 2);
	}
	done(n, norm_of(pl, n, a, p, has_dim ? dims(pl, n, 2, a) : all_dims(a), keepdim(pl, n, 3)));
}

static void norm(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, self(pl, n), n->meta[0].dt);
	struct garg *g = pl_arg(n, 1, "p");
	double p = g && g->kind != G_NONE ? pl_arg_num(pl, n, 1, "p", 2) : 2;
	int has_dim = pl_arg(n, 2, "dim") != NULL;

	done(n, norm_of(pl, n, a, p, has_dim ? dims(pl, n, 2, a) : all_dims(a), keepdim(pl, n, 3)));
}

static void logsumexp(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, self(pl, n), n->meta[0].dt), *m;
	unsigned mask = dims(pl, n, 1, a);

	pl_keep_last(pl, a, mask);
	m = pl_reduce(pl, RED_MAX, a, mask, 1);
	done(n,
		drop_dims(
			pl, ADD(pl_op1(pl, OP_LOG, sum(pl, pl_op1(pl, OP_EXP, SUB(a, m)), mask, 1)), m), mask, keepdim(pl, n, 2)));
}

/* Of a row whose largest number is far above the others the logarithm of the sum may be a millionth of that number, and
 * all that is left of log_softmax there: x - (m + log s) would lose it.  A sum of losses has larger terms; then one
 * number a row is stored, m + log s. */
struct val *pl_softmax(struct pl *pl, struct val *x, int dim, enum pl_softmax_form form)
{
	unsigned mask = 1u << dim;
	struct val *m = pl_reduce(pl, RED_MAX, x, mask, 1), *e = pl_op1(pl, OP_EXP, SUB(x, m)), *s = sum(pl, e, mask, 1);

	if (form == PL_SOFTMAX)
		return pl_algebra(pl) ? MUL(e, pl_op1(pl, OP_RECIP, s)) : DIV(e, s);
	return form == PL_LOG_SUMMED && pl_algebra(pl) ? SUB(x, ADD(pl_op1(pl, OP_LOG, s), m))
												   : SUB(SUB(x, m), pl_op1(pl, OP_LOG, s));
}

static void nll_loss(struct pl *pl, struct gnode *n);
static int64_t nll_reduction(struct pl *pl, struct gnode *n) { return pl_arg_int(pl, n, 3, "reduction", 1); }

/* Is n read by losses alone that sum what they read? */
static int is_summed(struct pl *pl, const struct gnode *n)
{
	int by_losses = 0;

	for (struct gnode *o = pl->node; o < pl->node + pl->n_node; o++)
		by_losses += o->row && o->row->fn == nll_loss && pl_refers(&o->arg[0], n->name) && nll_reduction(pl, o) != 0;
	return by_losses > 0 && by_losses == pl_count_readers(pl, n->name);
}

enum { LOG = 1 };

static void softmax(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, self(pl, n), n->meta[0].dt);
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", -1), a->rank);
	struct val *s = pl_softmax(pl, a, d,
		n->variant != LOG      ? PL_SOFTMAX
			: is_summed(pl, n) ? PL_LOG_SUMMED
							   : PL_LOG_SOFTMAX);

	if (n->variant != LOG && d == a->rank - 1)
		s->softmax_of = a;
	done(n, s);
}

/* ---- Normalisations ---------------------------------------------------------------------------------------------- */

/* w or b of shape (C) as (1, C, 1, ...). */
static struct val *per_channel(struct pl *pl, struct val *w, int rank)
{
	const struct ix *size[PL_MAX_RANK];

	if (!w)
		return NULL;
	for (int d = 0; d < rank; d++)
		size[d] = d == 1 ? w->size[0] : ix_const(pl, 1);
	return pl_reshape(pl, w, rank, size);
}

static struct val *affine(struct pl *pl, struct val *y, struct val *w, struct val *b)
{
	if (w)
		y = MUL(y, w);
	if (b)
		y = ADD(y, b);
	return y;
}

static struct val *normalise(
	struct pl *pl, struct val *x, unsigned mask, double eps, struct val **mu, struct val **rstd)
{
	struct val *diff, *m2 = centred(pl, x, mask, mu, &diff);

	*rstd = pl_op1(pl, OP_RSQRT, ADD(DIV(m2, count(pl, x, mask, x->dt)), F(x, eps)));
	return MUL(diff, *rstd);
}

/* Elements, and those of a row, from which on a norm's operand that lies across is turned: a warp reads a sector of 32
 * bytes for each element, and that for each pass.  192 channels of 48 x 20 x 20 in 16 bits took 49 us, of 8 x 27 x 27
 * 8.5 (turned and read along 10 and 7 by their bytes), but 64 of 112 x 112 2.8, since rows that neighbour in memory
 * share a warp (H200). */
enum { TURN_FROM = 1 << 20, TURN_ROW = 96 };

/* Does memory run along another dimension of x than the last one, as behind a permutation? */
static int lies_across(struct pl *pl, const struct val *x)
{
	int across = 0;

	for (int d = 0; d < x->rank - 1; d++)
		across |= pl_most_along(pl, x, d);
	return across && !pl_most_along(pl, x, x->rank - 1);
}

/* Does a view read n's result in another order, so that memory may run along the same dimension as before the norm? */
static int is_turned_back(const struct pl *pl, const struct gnode *n)
{
	for (const struct gnode *o = n + 1; o < pl->node + pl->n_node; o++) {
		int64_t step = 1;

		if (!o->shares || !o->n_arg || !pl_refers(&o->arg[0], n->name))
			continue;
		for (int d = o->meta[0].rank - 1; d >= 0; step *= o->meta[0].size[d--])
			if (o->meta[0].size[d] != 1 && o->meta[0].stride[d] != step)
				return 1;
	}
	return 0;
}

/* a, whose dimensions d and e change places in memory alone. */
static struct val *stored_swapped(struct pl *pl, struct val *a, int d, int e)
{
	struct val *turned = pl_swap_dims(pl, a, d, e);

	pl_make_root(pl, turned);
	return pl_swap_dims(pl, turned, d, e);
}

/* Small tensors that v is computed of, and that memory runs along dimension `last` of the norm's operand: those that
 * dimension `across` changes, too, are read from copies that run along it.  dim: the dimension of the operand that each
 * of v's is, or -1. */
static void turn_small(struct pl *pl, struct val *v, const int *dim, int across, int last, int *left)
{
	for (int i = 0; i < v->n_arg && --*left > 0; i++) {
		struct val *a = v->arg[i];
		int of[PL_MAX_RANK], at = -1;

		for (int e = 0; e < a->rank; e++) {
			of[e] = v->kind == V_OP && a->rank == v->rank ? dim[e] : -1;
			for (int d = 0; v->kind == V_VIEW && d < v->rank; d++)
				if (dim[d] >= 0 && pl_goes_by_one(pl, v->map[e], d))
					of[e] = dim[d];
			at = of[e] == across && !ix_is(a->size[e], 1) ? e : at;
		}
		if (a->kind == V_BUF && at >= 0 && of[a->rank - 1] == last && pl_numel_now(a) <= TURN_FROM &&
			(!a->root || a->root->contiguous))
			v->arg[i] = stored_swapped(pl, a, at, a->rank - 1);
		else if ((a->kind == V_OP || a->kind == V_VIEW) && !a->root)
			turn_small(pl, a, of, across, last, left);
	}
}

/* What a norm's operand is computed of that lies across what most of it does (the weights of an earlier norm over two
 * dimensions, of a tensor that is turned): its reduction's warps have neighbours of the latter, each of which would
 * read a sector of a weight, for each element (100 million elements, two weights: 1,083 us, memory takes 210, H200). */
static void turn_across(struct pl *pl, struct val *x)
{
	enum { LEAST = 1 << 22 };
	int dim[PL_MAX_RANK], left = 200, across = -1;

	for (int d = 0; d < x->rank; d++) {
		dim[d] = d;
		across = d < x->rank - 1 && pl_most_along(pl, x, d) ? d : across;
	}
	if (pl->target == WW_TARGET_CUDA && x->kind == V_OP && !x->root && pl_numel_now(x) >= LEAST && lies_across(pl, x))
		turn_small(pl, x, dim, across, x->rank - 1, &left);
}

/* The operand of a norm over the last dimensions: results of channels-last convolutions stay in that order, and what
 * lies across is stored turned, where the result does not lie across as well. */
static struct val *norm_operand(struct pl *pl, struct gnode *n, unsigned mask)
{
	struct val *x = pl_need_val(pl, n, 0, "input");

	pl_keep_last(pl, x, mask);
	turn_across(pl, x);
	if (pl->target != WW_TARGET_CUDA || x->kind != V_VIEW || x->root || pl_numel_now(x) < TURN_FROM ||
		ix_num(x->size[x->rank - 1]) < TURN_ROW || !lies_across(pl, x) || is_turned_back(pl, n))
		return x;
	return pl_make_root(pl, x), x;
}

static void layer_norm(struct pl *pl, struct gnode *n)
{
	struct val *x = pl_need_val(pl, n, 0, "input"), *w = pl_arg_val(pl, n, 2, "weight"),
			   *b = pl_arg_val(pl, n, 3, "bias");
	int64_t shape[PL_MAX_RANK];
	int k = pl_arg_ints(pl, n, 1, "normalized_shape", shape, PL_MAX_RANK);
	unsigned mask = ((1u << k) - 1) << (x->rank - k);

	x = norm_operand(pl, n, mask);
	n->out[0] = affine(pl, normalise(pl, x, mask, pl_arg_num(pl, n, 4, "eps", 1e-5), &n->out[1], &n->out[2]), w, b);
}

static void rms_norm(struct pl *pl, struct gnode *n)
{
	struct val *x = pl_need_val(pl, n, 0, "input"), *w = pl_arg_val(pl, n, 2, "weight");
	int64_t shape[PL_MAX_RANK];
	int k = pl_arg_ints(pl, n, 1, "normalized_shape", shape, PL_MAX_RANK);
	unsigned mask = ((1u << k) - 1) << (x->rank - k);
	double eps = pl_arg_num(pl, n, 3, "eps", x->dt == WW_F64 ? 2.220446049250313e-16 : 1.1920928955078125e-7);
	struct val *r;

	x = norm_operand(pl, n, mask);
	r = pl_op1(pl, OP_RSQRT, ADD(mean(pl, MUL(x, x), mask, 1), F(x, eps)));
	done(n, affine(pl, MUL(x, r), w, NULL));
}

enum { NATIVE = 1 };

/* Sums over the groups of y (n, group, channel, space...), which lies channels-last: in parts of a channel, of so many
 * rows of the image as leave a thread for each, so that neighbouring threads read neighbouring channels. */
static struct val *sums_by_channel(struct pl *pl, struct val *y)
{
	int rank = y->rank, parts = 0, perm[PL_MAX_RANK], back[PL_MAX_RANK];
	int64_t cols = 1, rows = 1, threads = 512LL * (pl->dev.sm_count > 0 ? pl->dev.sm_count : 132);
	struct val *v;

	for (int d = 0; d < rank; d++)
		*(d < 3 ? &rows : &cols) *= ix_num(y->size[d]);
	for (; parts < rank - 4 && (cols > 1024 || rows * 16 < threads); parts++) {
		cols /= ix_num(y->size[3 + parts]);
		rows *= ix_num(y->size[3 + parts]);
	}
	for (int d = 0; d < rank; d++) {
		perm[d] = d == 0 ? 0 : d <= parts ? d + 2 : d <= parts + 2 ? d - parts : d;
		back[d] = d == 0 ? 0 : d <= 2 ? d + parts : d - 2;
	}
	v = pl_reduce(pl, RED_SUM, pl_permute(pl, y, perm), all_dims(y) & ~((8u << parts) - 1), 0);
	v->force_root = 1;
	v = pl_reduce(pl, RED_SUM, pl_permute(pl, v, back), ((2u << parts) - 1) << 2, 1);
	while (v->rank < rank)
		v = pl_unsqueeze(pl, v, v->rank);
	return v;
}

/* Bytes from which on whole sectors save more than the two launches more take: 5 us of 4 MB/us, for up to 8 times the
 * bytes that rows of groups ask for.  Where each channel is a group they save the pass that turns the operand. */
enum { BY_CHANNEL = 4 << 20, CHANNEL_ALONE = 16 << 20 };

/* As normalise(), of groups of channels that lie channels-last.  NULL: not by the rule. */
static struct val *normalise_last(struct pl *pl, struct val *y, double eps, struct val **mu, struct val **rstd)
{
	unsigned mask = all_dims(y) & ~3u;
	struct val *s = pl_algebra(pl) ? sums_by_channel(pl, y) : NULL, *m2 = s ? pl_centred_parts(pl, &s) : NULL;

	if (!m2)
		return NULL;
	*mu = DIV(s, count(pl, y, mask, y->dt));
	*rstd = pl_op1(pl, OP_RSQRT, ADD(DIV(m2, count(pl, y, mask, y->dt)), F(y, eps)));
	return MUL(SUB(y, *mu), *rstd);
}

/* Does x (n, channel, space...) have so few pixels, of channels-last images, that the threads of a channel hold them,
 * and channels enough for that?  Where each is a group of its own one kernel then has its sums, in no parts, and what
 * is made of them. */
static int has_short_columns(const struct pl *pl, const struct val *x)
{
	enum { HELD = 1024, THREADS = 64 };
	int64_t pixels = 1;

	for (int d = 2; d < x->rank; d++)
		pixels *= ix_num(x->size[d]);
	return pl_is_last(pl, x) && pixels <= HELD &&
		16 * ix_num(x->size[0]) * ix_num(x->size[1]) >=
		THREADS * (int64_t)(pl->dev.sm_count > 0 ? pl->dev.sm_count : 132);
}

/* x, an operand of n, with each of g groups of its channels normalised; by_channel: as what lies channels-last and is
 * large. */
static struct val *normalise_groups(struct pl *pl, struct gnode *n, struct val *x, int64_t g, int by_channel,
	double eps, struct val **mu, struct val **rstd)
{
	const struct ix *size[PL_MAX_RANK], *full[PL_MAX_RANK];
	int rank = x->rank, short_columns = g == ix_num(x->size[1]) && has_short_columns(pl, x);
	struct val *y;

	if (pl_is_last(pl, x))
		pl_keep_last(pl, x, all_dims(x) & ~2u);
	memcpy(full, x->size, sizeof(full));
	size[0] = x->size[0];
	size[1] = ix_const(pl, g);
	/* a number and no symbol, so that indices stay simple: the module fixes the channels */
	full[1] = ix_const(pl, ix_num(x->size[1]));
	size[2] = ix_const(pl, ix_num(x->size[1]) / g);
	for (int d = 2; d < rank; d++)
		size[d + 1] = x->size[d];
	if (rank + 1 > PL_MAX_RANK)
		pl_cannot(pl, n, "its values would have too many dimensions");
	x = pl_reshape(pl, x, rank + 1, size);
	y = by_channel && !short_columns ? normalise_last(pl, x, eps, mu, rstd) : NULL;
	if (!y)
		y = normalise(pl, x, all_dims(x) & ~3u, eps, mu, rstd);
	return pl_reshape(pl, y, rank, full);
}

static int is_large(const struct val *x, int64_t bytes) { return pl_numel_now(x) * pl_itemsize(x->dt) >= bytes; }

static void group_norm(struct pl *pl, struct gnode *n)
{
	struct val *x = pl_need_val(pl, n, 0, "input"), *w, *b, *y;
	int native = n->variant == NATIVE;
	int64_t g = native ? pl_arg_int(pl, n, 6, "group", 1) : pl_arg_int(pl, n, 1, "num_groups", 1);
	int alone = g == ix_num(x->size[1]), large = is_large(x, BY_CHANNEL);
	double eps = native ? pl_arg_num(pl, n, 7, "eps", 1e-5) : pl_arg_num(pl, n, 4, "eps", 1e-5);

	x = is_large(x, alone ? CHANNEL_ALONE : BY_CHANNEL) ? pl_norm_last(pl, n, x) : x;
	y = normalise_groups(pl, n, x, g, large && pl_is_last(pl, x), eps, &n->out[1], &n->out[2]);
	w = per_channel(pl, native ? pl_arg_val(pl, n, 1, "weight") : pl_arg_val(pl, n, 2, "weight"), x->rank);
	b = per_channel(pl, native ? pl_arg_val(pl, n, 2, "bias") : pl_arg_val(pl, n, 3, "bias"), x->rank);
	n->out[0] = affine(pl, y, w, b);
}

static void instance_norm(struct pl *pl, struct gnode *n)
{
	struct val *x = pl_need_val(pl, n, 0, "input"), *mu, *r, *y;
	double eps = pl_arg_num(pl, n, 7, "eps", 1e-5);

	if (!pl_arg_int(pl, n, 5, "use_input_stats", 1))
		pl_cannot(pl, n, "it uses running statistics");
	y = (is_large(x, CHANNEL_ALONE) || has_short_columns(pl, x)) && pl_is_last(pl, x)
		? normalise_groups(pl, n, x, ix_num(x->size[1]), 1, eps, &mu, &r)
		: normalise(pl, x, all_dims(x) & ~3u, eps, &mu, &r);
	done(n,
		affine(pl, y, per_channel(pl, pl_arg_val(pl, n, 1, "weight"), x->rank),
			per_channel(pl, pl_arg_val(pl, n, 2, "bias"), x->rank)));
}

/* Overloads of batch_norm without the argument `training`, or without running statistics (always training). */
enum { NO_TRAINING = 1, NO_STATISTICS };

/* Bytes of a concatenation from which on each piece's statistics have a kernel: rows of all of them would ask for each
 * element which piece it is of. */
enum { PIECES_APART = 32 << 20 };

/* x, normalised by the statistics of its channels: of a concatenation of channels, some of which a batch norm has had
 * before (each layer of a dense block has all the earlier ones' results), those of its pieces side by side. */
static struct val *normalise_batch(struct pl *pl, struct val *x, double eps)
{
	const struct pieces *p = x->pieces;
	struct val *piece[2][WW_ARRAY_LEN(p->v)];
	unsigned mask = all_dims(x) & ~2u;
	int known = p && p->dim == 1 && is_large(x, PIECES_APART);

	for (int i = 0; p && p->dim == 1 && i < p->n; i++)
		known |= p->v[i]->batch[0] && p->v[i]->batch_eps == eps;
	x->batch_eps = eps;
	if (!known) {
		pl_keep_last(pl, x, mask);
		return normalise(pl, x, mask, eps, &x->batch[0], &x->batch[1]);
	}
	for (int i = 0; i < p->n; i++) {
		struct val *v = p->v[i];

		if (!v->batch[0] || v->batch_eps != eps)
			normalise_batch(pl, v, eps);
		for (int s = 0; s < 2; s++)
			piece[s][i] = v->batch[s];
	}
	for (int s = 0; s < 2; s++) {
		x->batch[s] = pl_cat(pl, piece[s], p->n, 1);
		pl_make_root(pl, x->batch[s]);
	}
	return MUL(SUB(x, x->batch[0]), x->batch[1]);
}

static void batch_norm(struct pl *pl, struct gnode *n)
{
	struct val *x = pl_need_val(pl, n, 0, "input"), *mu, *r, *y;
	struct val *w = per_channel(pl, pl_arg_val(pl, n, 1, "weight"), x->rank),
			   *b = per_channel(pl, pl_arg_val(pl, n, 2, "bias"), x->rank);
	int training = n->variant == NO_TRAINING ? 0
		: n->variant == NO_STATISTICS        ? 1
											 : (int)pl_arg_int(pl, n, 5, "training", 0);
	double eps = pl_arg_num(pl, n, n->variant == NO_STATISTICS ? 5 : n->variant == NO_TRAINING ? 6 : 7, "eps", 1e-5);

	if (training) {
		y = normalise_batch(pl, x, eps);
	} else {
		mu = per_channel(pl, pl_need_val(pl, n, 3, "running_mean"), x->rank);
		r = pl_op1(pl, OP_RSQRT, ADD(per_channel(pl, pl_need_val(pl, n, 4, "running_var"), x->rank), F(x, eps)));
		y = MUL(SUB(x, mu), r);
	}
	done(n, affine(pl, y, w, b));
}

/* ---- Losses ------------------------------------------------------------------------------------------------------ */

static struct val *reduced(struct pl *pl, struct gnode *n, struct val *l, int64_t how)
{
	if (how == 0)
		return l;
	if (how == 1)
		return mean(pl, l, all_dims(l), 0);
	if (how != 2)
		pl_cannot(pl, n, "unknown argument reduction");
	return sum(pl, l, all_dims(l), 0);
}

enum { ABSOLUTE, SQUARED, SMOOTH, HUBER };

static void pair_loss(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *b = pl_need_val(pl, n, 1, "target"), *d = SUB(a, b), *ad = pl_op1(pl, OP_ABS, d), *l;
	double beta = pl_arg_num(pl, n, 3, n->variant == HUBER ? "delta" : "beta", 1);

	if (n->variant == SQUARED)
		l = MUL(d, d);
	else if (n->variant == SMOOTH)
		l = beta == 0 ? ad
					  : pl_where(pl, pl_op2(pl, OP_LT, ad, F(a, beta)), MUL(MUL(d, d), F(a, 0.5 / beta)),
							SUB(ad, F(a, 0.5 * beta)));
	else if (n->variant == HUBER)
		l = pl_where(pl, pl_op2(pl, OP_LE, ad, F(a, beta)), MUL(MUL(d, d), F(a, 0.5)),
			MUL(SUB(ad, F(a, 0.5 * beta)), F(a, beta)));
	else
		l = ad;
	done(n, reduced(pl, n, l, pl_arg_int(pl, n, 2, "reduction", 1)));
}

static void soft_margin(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *y = pl_need_val(pl, n, 1, "target"), *z = pl_op1(pl, OP_NEG, MUL(y, a));

	done(n,
		reduced(pl, n, ADD(pl_op2(pl, OP_MAXIMUM, z, F(a, 0)), pl_log1p_exp(pl, 0, z)),
			pl_arg_int(pl, n, 2, "reduction", 1)));
}

enum { LOGITS = 1 };

static void bce(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n), *y = pl_need_val(pl, n, 1, "target"), *w = pl_arg_val(pl, n, 2, "weight"), *l;
	int logits = n->variant == LOGITS;

	if (logits) {
		struct val *pw = pl_arg_val(pl, n, 3, "pos_weight");
		struct val *lg = ADD(pl_log1p_exp(pl, 0, x), pl_op2(pl, OP_MAXIMUM, pl_op1(pl, OP_NEG, x), F(x, 0)));

		l = SUB(F(x, 1), y);
		l = ADD(MUL(l, x), pw ? MUL(ADD(F(x, 1), MUL(SUB(pw, F(x, 1)), y)), lg) : lg);
	} else {
		struct val *l1 = pl_op2(pl, OP_MAXIMUM, pl_op1(pl, OP_LOG, x), F(x, -100));
		struct val *l0 = pl_op2(pl, OP_MAXIMUM, pl_op1(pl, OP_LOG1P, pl_op1(pl, OP_NEG, x)), F(x, -100));

		l = SUB(MUL(SUB(y, F(x, 1)), l0), MUL(y, l1));
	}
	if (w)
		l = MUL(l, w);
	done(n, reduced(pl, n, l, pl_arg_int(pl, n, logits ? 4 : 3, "reduction", 1)));
}

static void kl_div(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n), *t = pl_need_val(pl, n, 1, "target"), *l;
	int64_t how = pl_arg_int(pl, n, 2, "reduction", 1);

	if (pl_kwarg_int(pl, n, "log_target", 0)) {
		l = MUL(pl_op1(pl, OP_EXP, t), SUB(t, x));
	} else {
		struct val *pos = pl_op2(pl, OP_GT, t, F(t, 0));

		l = pl_where(pl, pos, MUL(t, SUB(pl_op1(pl, OP_LOG, pl_where(pl, pos, t, F(t, 1))), x)), F(t, 0));
	}
	done(n, reduced(pl, n, l, how));
}

static struct val *nll(struct pl *pl, struct val *logp, struct val *target, struct val *w, int64_t how, int64_t ignore)
{
	struct val *at = pl_cast(pl, target, WW_I64), *used, *picked, *safe, *l, *cnt;
	const struct ix *map[PL_MAX_RANK];
	int c = logp->rank > 1 ? 1 : 0;

	used = pl_op2(pl, OP_NE, at, pl_consti(pl, WW_I64, ignore));
	safe = pl_where(pl, used, at, pl_consti(pl, WW_I64, 0));
	for (int d = 0, o = 0; d < logp->rank; d++)
		map[d] = d == c ? NULL : pl->place[o++];
	picked = pl_gather(pl, logp, safe, c, at->rank, at->size, map);
	l = pl_op1(pl, OP_NEG, picked);
	cnt = pl_cast(pl, used, logp->dt);
	if (w) {
		struct val *pw = pl_gather(pl, w, safe, 0, at->rank, at->size, pl->place);

		l = MUL(l, pw);
		cnt = MUL(cnt, pw);
	}
	l = pl_where(pl, used, l, F(logp, 0));
	if (how == 0 || l->rank == 0)
		return l;
	l = sum(pl, l, all_dims(l), 0);
	return how == 2 ? l : DIV(l, sum(pl, cnt, all_dims(cnt), 0));
}

static void nll_loss(struct pl *pl, struct gnode *n)
{
	done(n,
		nll(pl, self(pl, n), pl_need_val(pl, n, 1, "target"), pl_arg_val(pl, n, 2, "weight"), nll_reduction(pl, n),
			pl_arg_int(pl, n, 4, "ignore_index", -100)));
}

/* The sum of the class weights of all targets; `used` is 1 for them and 0 for ignore_index. */
static struct val *target_weights(struct pl *pl, struct val *t, struct val *w, struct val *used, int64_t ignore)
{
	struct val *safe = pl_cast(pl, t, WW_I64), *pw;

	if (!w)
		return sum(pl, used, all_dims(used), 0);
	safe = pl_where(pl, pl_op2(pl, OP_NE, safe, pl_consti(pl, WW_I64, ignore)), safe, pl_consti(pl, WW_I64, 0));
	pw = pl_gather(pl, w, safe, 0, safe->rank, safe->size, pl->place);
	return sum(pl, MUL(pw, used), all_dims(used), 0);
}

static void cross_entropy(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n), *t = pl_need_val(pl, n, 1, "target"), *w = pl_arg_val(pl, n, 2, "weight"), *logp, *l;
	int64_t how = pl_arg_int(pl, n, 3, "reduction", 1);
	double smooth = pl_arg_num(pl, n, 5, "label_smoothing", 0);
	int c = x->rank > 1 ? 1 : 0;

	logp = pl_softmax(pl, x, c, how ? PL_LOG_SUMMED : PL_LOG_SOFTMAX);
	if (pl_is_float(t->dt)) {
		if (smooth != 0) {
			pl_guard_eq(pl, x->size[c], ix_const(pl, ix_num(x->size[c])), "the number of classes");
			t = ADD(MUL(t, F(t, 1 - smooth)), F(t, smooth / (double)ix_num(x->size[c])));
		}
		if (w)
			logp = MUL(logp, x->rank > 1 ? per_channel(pl, w, x->rank) : w);
		l = pl_op1(pl, OP_NEG, sum(pl, MUL(logp, t), 1u << c, 0));
		if (how == 1)
			l = DIV(sum(pl, l, all_dims(l), 0), count(pl, l, all_dims(l), l->dt));
		else if (how == 2)
			l = sum(pl, l, all_dims(l), 0);
		done(n, l);
		return;
	}
	l = nll(pl, logp, t, w, how, pl_arg_int(pl, n, 4, "ignore_index", -100));
	if (smooth != 0) {
		struct val *used = pl_cast(pl,
			pl_op2(
				pl, OP_NE, pl_cast(pl, t, WW_I64), pl_consti(pl, WW_I64, pl_arg_int(pl, n, 4, "ignore_index", -100))),
			x->dt);
		struct val *even;

		even = MUL(pl_op1(pl, OP_NEG,
					   sum(pl, w ? MUL(logp, x->rank > 1 ? per_channel(pl, w, x->rank) : w) : logp, 1u << c, 0)),
			used);
		if (how != 0)
			even = sum(pl, even, all_dims(even), 0);
		if (how == 1)
			even = DIV(even, target_weights(pl, t, w, used, pl_arg_int(pl, n, 4, "ignore_index", -100)));
		l = ADD(MUL(l, F(x, 1 - smooth)), MUL(even, F(x, smooth / (double)ix_num(x->size[c]))));
		pl_guard_eq(pl, x->size[c], ix_const(pl, ix_num(x->size[c])), "the number of classes");
	}
	done(n, l);
}

static void cosine_similarity(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "x1"), *b = pl_need_val(pl, n, 1, "x2"), *na, *nb;
	int rank = a->rank > b->rank ? a->rank : b->rank;
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim", 1), rank);
	double eps = pl_arg_num(pl, n, 3, "eps", 1e-8);
	struct val *prod = MUL(a, b);
	unsigned m = 1u << d;

	a = pl_expand(pl, a, prod->rank, prod->size);
	b = pl_expand(pl, b, prod->rank, prod->size);
	na = pl_op2(pl, OP_MAXIMUM, sum(pl, MUL(a, a), m, !pl_algebra(pl)), F(a, eps * eps));
	nb = pl_op2(pl, OP_MAXIMUM, sum(pl, MUL(b, b), m, !pl_algebra(pl)), F(a, eps * eps));
	if (!pl_algebra(pl)) { /* as in PyTorch: each vector is divided by its length before the product */
		prod = MUL(DIV(a, pl_op1(pl, OP_SQRT, na)), DIV(b, pl_op1(pl, OP_SQRT, nb)));
		done(n, sum(pl, prod, m, 0));
		return;
	}
	done(n, DIV(sum(pl, prod, m, 0), pl_op1(pl, OP_SQRT, MUL(na, nb))));
}

static void triplet(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "anchor"), *p = pl_need_val(pl, n, 1, "positive"),
			   *g = pl_need_val(pl, n, 2, "negative");
	double margin = pl_arg_num(pl, n, 3, "margin", 1), order = pl_arg_num(pl, n, 4, "p", 2),
		   eps = pl_arg_num(pl, n, 5, "eps", 1e-6);
	unsigned m = 1u << (a->rank - 1);
	struct val *dp = norm_of(pl, n, ADD(SUB(a, p), F(a, eps)), order, m, 0),
			   *dn = norm_of(pl, n, ADD(SUB(a, g), F(a, eps)), order, m, 0);

	if (pl_arg_int(pl, n, 6, "swap", 0))
		dn = pl_op2(pl, OP_MINIMUM, dn, norm_of(pl, n, ADD(SUB(p, g), F(a, eps)), order, m, 0));
	done(n,
		reduced(pl, n, pl_op2(pl, OP_MAXIMUM, ADD(SUB(dp, dn), F(a, margin)), F(a, 0)),
			pl_arg_int(pl, n, 7, "reduction", 1)));
}

static void pairwise_distance(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "x1"), *b = pl_need_val(pl, n, 1, "x2");
	struct val *d = ADD(SUB(a, b), F(a, pl_arg_num(pl, n, 3, "eps", 1e-6)));

	done(n,
		norm_of(pl, n, d, pl_arg_num(pl, n, 2, "p", 2), 1u << (d->rank - 1), (int)pl_arg_int(pl, n, 4, "keepdim", 0)));
}

static void hinge(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n), *t = pl_need_val(pl, n, 1, "target"), *l;
	double margin = pl_arg_num(pl, n, 2, "margin", 1);
	struct val *pos = pl_where(pl, pl_op2(pl, OP_EQ, t, F(t, 1)), x, F(x, 0));
	struct val *neg = pl_where(
		pl, pl_op2(pl, OP_EQ, t, F(t, -1)), pl_op2(pl, OP_MAXIMUM, SUB(F(x, margin), x), F(x, 0)), F(x, 0));

	l = ADD(pos, neg);
	done(n, reduced(pl, n, l, pl_arg_int(pl, n, 3, "reduction", 1)));
}

static void aminmax(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n);
	struct garg *g = pl_kwarg(n, "dim");
	unsigned m = g && g->kind == G_INT ? 1u << pl_dim(pl, n, g->i, a->rank) : all_dims(a);

	pl_keep_last(pl, a, m);
	for (int i = 0; i < 2; i++)
		n->out[i] = pl_reduce(pl, i ? RED_MAX : RED_MIN, a, m, (int)pl_kwarg_int(pl, n, "keepdim", 0));
}

static void count_nonzero(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, pl_cast(pl, self(pl, n), WW_BOOL), WW_I64);

	done(n, sum(pl, a, dims(pl, n, 1, a), 0));
}

/* nansum and nanmean: NaNs are left out. */
static void nansum(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, self(pl, n), n->meta[0].dt), *nan = pl_op1(pl, OP_ISNAN, a), *s;
	unsigned m = dims(pl, n, 1, a);
	int keep = keepdim(pl, n, 2);

	s = sum(pl, pl_where(pl, nan, F(a, 0), a), m, keep);
	done(n, n->variant == MEAN ? DIV(s, sum(pl, pl_cast(pl, pl_op1(pl, OP_LNOT, nan), a->dt), m, keep)) : s);
}

/* The Frobenius norm; order 1: the largest sum of a column, inf: of a row; -1 and -inf: the smallest. */
static void matrix_norm(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_cast(pl, self(pl, n), n->meta[0].dt), *v;
	struct garg *ord = pl_arg(n, 1, "ord");
	int by_name = !ord || ord->kind == G_STR, keep = keepdim(pl, n, 3), outer, inner;
	int64_t d[2] = { -2, -1 };
	double p = by_name ? 0 : pl_arg_num(pl, n, 1, "ord", 0);

	pl_arg_ints(pl, n, 2, "dim", d, 2);
	outer = pl_dim(pl, n, d[0], a->rank);
	inner = pl_dim(pl, n, d[1], a->rank);
	if (by_name) {
		if (strcmp(pl_arg_str(n, 1, "ord", "fro"), "fro"))
			pl_cannot(pl, n, "its norm needs singular values");
		done(n, norm_of(pl, n, a, 2, 1u << outer | 1u << inner, keep));
		return;
	}
	if (fabs(p) != 1 && !isinf(p))
		pl_cannot(pl, n, "its norm needs singular values");
	v = sum(pl, pl_op1(pl, OP_ABS, a), 1u << (isinf(p) ? inner : outer), 1);
	v = pl_reduce(pl, p > 0 ? RED_MAX : RED_MIN, v, 1u << (isinf(p) ? outer : inner), 1);
	done(n, drop_dims(pl, v, 1u << outer | 1u << inner, keep));
}

/* Should cdist compute |x - y|^2 as |x|^2 + |y|^2 - 2 xy, with a matrix product?  Where PyTorch does (compute_mode: if
 * a side has more than 25 rows, always or never), and the product is large enough to pay. */
static int by_product(struct pl *pl, struct gnode *n, const struct val *a, const struct val *b)
{
	int64_t mode = pl_arg_int(pl, n, 3, "compute_mode", 0), p = ix_num(a->size[a->rank - 2]),
			r = ix_num(b->size[b->rank - 2]);
	double work = (double)pl_numel_now(a) * (double)r;

	return pl_arg_num(pl, n, 2, "p", 2) == 2 && a != b && a->dt == WW_F32 && b->dt == WW_F32 &&
		(mode == 1 || (mode == 0 && (p > 25 || r > 25))) && ix_num(a->size[a->rank - 1]) >= 8 && work >= 1 << 24;
}

static struct val *squares(struct pl *pl, struct val *a)
{
	return pl_stored(pl, sum(pl, MUL(a, a), 1u << (a->rank - 1), 1));
}

/* Distances of all pairs of rows, from their differences where no matrix product pays. */
static void cdist(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "x1"), *b = pl_need_val(pl, n, 1, "x2"), *d;

	if (by_product(pl, n, a, b)) {
		d = SUB(ADD(squares(pl, a), pl_transposed(pl, squares(pl, b))), MUL(pl_linear(pl, n, a, b, NULL), F(a, 2)));
		done(n, pl_op1(pl, OP_SQRT, pl_op2(pl, OP_MAXIMUM, d, F(d, 0))));
		return;
	}
	d = SUB(pl_unsqueeze(pl, a, a->rank - 1), pl_unsqueeze(pl, b, b->rank - 2));
	done(n, norm_of(pl, n, d, pl_arg_num(pl, n, 2, "p", 2), 1u << (d->rank - 1), 0));
}

static void dist(struct pl *pl, struct gnode *n)
{
	struct val *d = SUB(self(pl, n), pl_need_val(pl, n, 1, "other"));

	done(n, norm_of(pl, n, d, pl_arg_num(pl, n, 2, "p", 2), all_dims(d), 0));
}

/* Rows whose norm is above the limit are scaled down to it. */
static void renorm(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *norm, *over;
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim", 0), a->rank);
	double limit = pl_arg_num(pl, n, 3, "maxnorm", 1);

	norm = norm_of(pl, n, a, pl_arg_num(pl, n, 1, "p", 2), all_dims(a) & ~(1u << d), 1);
	over = pl_op2(pl, OP_GT, norm, F(a, limit));
	done(n, MUL(a, pl_where(pl, over, DIV(F(a, limit), ADD(norm, F(a, 1e-7))), F(a, 1))));
}

static void poisson_nll(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n), *t = pl_need_val(pl, n, 1, "target"), *l;
	double eps = pl_arg_num(pl, n, 4, "eps", 1e-8);

	l = pl_arg_int(pl, n, 2, "log_input", 1) ? SUB(pl_op1(pl, OP_EXP, x), MUL(t, x))
											 : SUB(x, MUL(t, pl_op1(pl, OP_LOG, ADD(x, F(x, eps)))));
	if (pl_arg_int(pl, n, 3, "full", 0)) {
		struct val *stirling = ADD(
			SUB(MUL(t, pl_op1(pl, OP_LOG, t)), t), MUL(pl_op1(pl, OP_LOG, MUL(t, F(x, 6.283185307179586))), F(x, 0.5)));

		l = ADD(l, pl_where(pl, pl_op2(pl, OP_GT, t, F(t, 1)), stirling, F(x, 0)));
	}
	done(n, reduced(pl, n, l, pl_arg_int(pl, n, 5, "reduction", 1)));
}

static void margin_ranking(struct pl *pl, struct gnode *n)
{
	struct val *d = SUB(pl_need_val(pl, n, 0, "input1"), pl_need_val(pl, n, 1, "input2")), *l;

	l = ADD(pl_op1(pl, OP_NEG, MUL(pl_need_val(pl, n, 2, "target"), d)), F(d, pl_arg_num(pl, n, 3, "margin", 0)));
	done(n, reduced(pl, n, pl_op2(pl, OP_MAXIMUM, l, F(l, 0)), pl_arg_int(pl, n, 4, "reduction", 1)));
}

static void cosine_embedding(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "input1"), *b = pl_need_val(pl, n, 1, "input2"),
			   *t = pl_need_val(pl, n, 2, "target"), *prod = MUL(a, b), *c, *l;
	unsigned m = 1u << (prod->rank - 1);
	double margin = pl_arg_num(pl, n, 3, "margin", 0);

	c = MUL(ADD(sum(pl, MUL(a, a), m, 0), F(a, 1e-12)), ADD(sum(pl, MUL(b, b), m, 0), F(a, 1e-12)));
	c = DIV(sum(pl, prod, m, 0), pl_op1(pl, OP_SQRT, c));
	t = pl_cast(pl, t, c->dt);
	l = pl_where(pl, pl_op2(pl, OP_EQ, t, F(c, 1)), SUB(F(c, 1), c),
		pl_where(pl, pl_op2(pl, OP_EQ, t, F(c, -1)), pl_op2(pl, OP_MAXIMUM, SUB(c, F(c, margin)), F(c, 0)), F(c, 0)));
	done(n, reduced(pl, n, l, pl_arg_int(pl, n, 4, "reduction", 1)));
}

static void multi_margin(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n), *t = pl_cast(pl, pl_need_val(pl, n, 1, "target"), WW_I64),
			   *w = pl_arg_val(pl, n, 4, "weight"), *own, *l, *other;
	double p = pl_arg_num(pl, n, 2, "p", 1), margin = pl_arg_num(pl, n, 3, "margin", 1);

	if (x->rank != 2)
		pl_cannot(pl, n, pl_fmt(pl, "its input has %d dimensions, not 2", x->rank));
	t = pl_unsqueeze(pl, t, 1);
	own = pl_gather(pl, x, t, 1, 2, t->size, pl->place);
	l = pl_op2(pl, OP_MAXIMUM, ADD(SUB(x, own), F(x, margin)), F(x, 0));
	l = p == 2 ? MUL(l, l) : l;
	if (w)
		l = MUL(l, pl_gather(pl, w, t, 0, 2, t->size, pl->place));
	other = pl_op2(pl, OP_NE, pl_index(pl, WW_I64, 2, x->size, pl->place[1]), t);
	l = sum(pl, pl_where(pl, other, l, F(x, 0)), 2, 0);
	done(n, reduced(pl, n, DIV(l, count(pl, x, 2, x->dt)), pl_arg_int(pl, n, 5, "reduction", 1)));
}

const struct pl_lower_row pl_lower_reduce[] = { { "aminmax", aminmax }, { "count_nonzero", count_nonzero },
	{ "nansum", nansum, RED_SUM }, { "nanmean", nansum, MEAN }, { "linalg_matrix_norm", matrix_norm },
	{ "cdist", cdist }, { "dist", dist }, { "renorm", renorm }, { "poisson_nll_loss", poisson_nll },
	{ "margin_ranking_loss", margin_ranking }, { "cosine_embedding_loss", cosine_embedding },
	{ "multi_margin_loss", multi_margin }, { "sum", reduce, RED_SUM }, { "mean", reduce, MEAN },
	{ "prod", reduce, RED_PROD }, { "amax", amaxmin, RED_MAX }, { "amin", amaxmin, RED_MIN },
	{ "max", amaxmin, RED_MAX }, { "max.dim", maxmin_dim, RED_MAX }, { "max.other", maxmin_other, OP_MAXIMUM },
	{ "min", amaxmin, RED_MIN }, { "min.dim", maxmin_dim, RED_MIN }, { "min.other", maxmin_other, OP_MINIMUM },
	{ "argmax", argmaxmin, RED_ARGMAX }, { "argmin", argmaxmin, RED_ARGMIN }, { "any", anyall, RED_MAX },
	{ "all", anyall, RED_MIN }, { "var", variance, VAR, .grows = GROWS_AS_SQUARE }, { "std", variance, STD },
	{ "var_mean", variance, VAR, .grows = GROWS_AS_SQUARE }, { "std_mean", variance, STD },
	{ "linalg_vector_norm", vector_norm }, { "linalg_norm", vector_norm }, { "norm", norm }, { "frobenius_norm", norm },
	{ "logsumexp", logsumexp }, { "softmax", softmax, .grows = GROWS_NOT }, { "_softmax", softmax, .grows = GROWS_NOT },
	{ "log_softmax", softmax, LOG }, { "_log_softmax", softmax, LOG },
	{ "special_softmax", softmax, .grows = GROWS_NOT }, { "special_log_softmax", softmax, LOG },
	{ "layer_norm", layer_norm, .grows = GROWS_AS_INPUTS },
	{ "native_layer_norm", layer_norm, .grows = GROWS_AS_INPUTS }, { "rms_norm", rms_norm, .grows = GROWS_AS_INPUTS },
	{ "_fused_rms_norm", rms_norm, .grows = GROWS_AS_INPUTS }, { "group_norm", group_norm, .grows = GROWS_AS_INPUTS },
	{ "native_group_norm", group_norm, NATIVE, .grows = GROWS_AS_INPUTS },
	{ "instance_norm", instance_norm, .grows = GROWS_IN_TRAINING },
	{ "batch_norm", batch_norm, .grows = GROWS_IN_TRAINING },
	{ "_native_batch_norm_legit_no_training", batch_norm, NO_TRAINING },
	{ "native_batch_norm", batch_norm, .grows = GROWS_IN_TRAINING },
	{ "_native_batch_norm_legit_functional", batch_norm, .grows = GROWS_IN_TRAINING },
	{ "_native_batch_norm_legit", batch_norm, .grows = GROWS_IN_TRAINING },
	{ "_native_batch_norm_legit.no_stats", batch_norm, NO_STATISTICS, .grows = GROWS_AS_INPUTS },
	{ "cudnn_batch_norm", batch_norm, .grows = GROWS_IN_TRAINING },
	{ "mse_loss", pair_loss, SQUARED, .grows = GROWS_AS_SQUARE }, { "l1_loss", pair_loss, ABSOLUTE },
	{ "smooth_l1_loss", pair_loss, SMOOTH }, { "huber_loss", pair_loss, HUBER }, { "soft_margin_loss", soft_margin },
	{ "binary_cross_entropy", bce }, { "binary_cross_entropy_with_logits", bce, LOGITS }, { "kl_div", kl_div },
	{ "nll_loss", nll_loss }, { "nll_loss_nd", nll_loss }, { "nll_loss2d", nll_loss }, { "nll_loss_forward", nll_loss },
	{ "cross_entropy_loss", cross_entropy }, { "cosine_similarity", cosine_similarity, .grows = GROWS_NOT },
	{ "triplet_margin_loss", triplet }, { "pairwise_distance", pairwise_distance }, { "hinge_embedding_loss", hinge },
	{ NULL, NULL } };
