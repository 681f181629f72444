/* order.c - lowering of sort, argsort, topk, kthvalue, median, cummax and logcumsumexp.
 *
 * A template sorts rows that fit into a block on cuda, and all but short ones on the cpu (anchor/sort.c).  Other rows
 * are sorted by counting: an element's rank is the number of elements that come before it, and the element of a given
 * rank is found by a second reduction over the row.  That takes n * n comparisons a row: fast for short rows, slow for
 * long ones.  Where PyTorch's sort is estimated to be faster, PyTorch does it; beyond a bound it is refused.  topk of a
 * long row with a small k selects one element after the other: each is the first maximum of what comes after the one
 * before.
 *
 * The sort is stable, as PyTorch's is where it promises that.  NaN counts as larger than all numbers. */
#include "policy/planner/lower/lower.h"

#include <math.h>
#include <string.h>

/* FEWEST: where the template for the first few is the other way. */
enum { SHORT_ROW = 1024, FEW = 16, FEWEST = 4 };
static const double MAX_COMPARISONS = 2e12;
/* Microseconds on an H200: of a pair of elements, which both reductions compare; of PyTorch's sort, for its dozen
 * launches and for each element. */
static const double PAIR_US = 2 / 5.7e5, PYTORCH_SORT_US = 80, PYTORCH_KEY_US = 2e-4;

/* Does a come before b in this order? */
static struct val *before(struct pl *pl, struct val *a, struct val *b, int descending)
{
	struct val *less = pl_op2(pl, descending ? OP_GT : OP_LT, a, b), *nan_a, *nan_b;

	if (!pl_is_float(a->dt))
		return less;
	nan_a = pl_op1(pl, OP_ISNAN, a);
	nan_b = pl_op1(pl, OP_ISNAN, b);
	return pl_op2(pl, OP_LOR, less,
		descending ? pl_op2(pl, OP_LAND, nan_a, pl_op1(pl, OP_LNOT, nan_b))
				   : pl_op2(pl, OP_LAND, nan_b, pl_op1(pl, OP_LNOT, nan_a)));
}

/* A view with one more dimension, the last: for each element of x all elements of its row along d.  size[]: its sizes.
 */
static struct val *rows_of(struct pl *pl, struct gnode *n, struct val *x, int d, const struct ix **size)
{
	const struct ix *other[PL_MAX_RANK];
	int r = x->rank;

	if (r + 1 > PL_MAX_RANK)
		pl_cannot(pl, n, "its values would have too many dimensions");
	for (int i = 0; i < r; i++) {
		size[i] = x->size[i];
		other[i] = i == d ? pl->place[r] : pl->place[i];
	}
	size[r] = x->size[d];
	return pl_view(pl, x, r + 1, size, other);
}

/* For every element its rank in the sorted row along dimension d, as a float. */
static struct val *ranks_of(struct pl *pl, struct gnode *n, struct val *x, int d, int descending)
{
	const struct ix *size[PL_MAX_RANK];
	struct val *a, *b = rows_of(pl, n, x, d, size), *tie, *first;
	int r = x->rank;

	if (pl->target == WW_TARGET_CUDA &&
		(double)pl_numel_now(x) * (double)ix_num(x->size[d]) * PAIR_US >
			PYTORCH_SORT_US + (double)pl_numel_now(x) * PYTORCH_KEY_US)
		pl_leave(pl, n, "PyTorch sorts rows of this length faster");
	if ((double)pl_numel_now(x) * (double)ix_num(x->size[d]) > MAX_COMPARISONS)
		pl_cannot(pl, n, pl_fmt(pl, "its rows of %lld elements are too long to sort", (long long)ix_num(x->size[d])));
	a = pl_view(pl, x, r + 1, size, pl->place);
	first = pl_index(pl, WW_BOOL, r + 1, size, ix_lt(pl, pl->place[r], pl->place[d]));
	tie = pl_op2(pl, OP_LAND, pl_op1(pl, OP_LNOT, before(pl, a, b, descending)), first);
	return pl_reduce(
		pl, RED_SUM, pl_cast(pl, pl_op2(pl, OP_LOR, before(pl, b, a, descending), tie), WW_F32), 1u << r, 0);
}

/* argsort: the indices of the elements with ranks first .. first + count - 1. */
static struct val *argsort_range(struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];
	struct val *rank, *want, *which;
	int r = x->rank, d = part->dim;

	if (pl_sorts(pl, x, part))
		return pl_cast(pl, pl_sort(pl, n, x, part), WW_I64);
	rank = ranks_of(pl, n, x, d, part->descending);
	pl_make_root(pl, rank);
	for (int i = 0; i < r; i++) {
		size[i] = i == d ? part->count : x->size[i];
		map[i] = i == d ? pl->place[r] : pl->place[i];
	}
	size[r] = x->size[d];
	rank = pl_view(pl, rank, r + 1, size, map);
	want = pl_cast(pl, pl_index(pl, WW_I64, r + 1, size, ix_add(pl, pl->place[d], part->first)), WW_F32);
	which = pl_cast(pl, pl_index(pl, WW_I64, r + 1, size, pl->place[r]), WW_F32);
	which = pl_where(pl, pl_op2(pl, OP_EQ, rank, want), which, pl_constf(pl, WW_F32, 0));
	which = pl_reduce(pl, RED_SUM, which, 1u << r, 0);
	pl_make_root(pl, which);
	return pl_cast(pl, which, WW_I64);
}

/* Select the k first elements one after the other: their values into v[], their indices into at[]. */
static void one_by_one(struct pl *pl, struct val *x, int d, int k, int descending, struct val **v, struct val **at)
{
	struct val *left = x, *i = pl_index(pl, WW_I64, x->rank, x->size, pl->place[d]);

	for (int j = 0; j < k; j++) {
		struct val *top, *where;

		if (j) { /* only elements that come after the one before: by value, and if equal by index */
			struct val *behind = pl_op2(pl, OP_LAND, pl_op2(pl, OP_EQ, x, v[j - 1]), pl_op2(pl, OP_GT, i, at[j - 1]));

			left = pl_where(pl, pl_op2(pl, OP_LOR, pl_op2(pl, descending ? OP_LT : OP_GT, x, v[j - 1]), behind), x,
				pl_constf(pl, x->dt, descending ? -INFINITY : INFINITY));
		}
		top = pl_reduce_beside(pl, descending ? RED_MAX : RED_MIN, left, 1u << d, 1);
		where = pl_reduce(pl, descending ? RED_ARGMAX : RED_ARGMIN, left, 1u << d, 1);
		v[j] = top;
		at[j] = where;
	}
}

static int names(const struct garg *a, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (a[i].kind == G_VAL ? !strcmp(a[i].name, name) : a[i].kind == G_LIST && names(a[i].item, a[i].n, name))
			return 1;
	return 0;
}

/* Is result `out` of n read, or returned?  A node that takes it may itself be unused. */
static int is_read(const struct pl *pl, const struct gnode *n, int out)
{
	for (int i = 0; i < pl->n_node; i++) {
		const struct gnode *m = &pl->node[i];

		if (m->n_arg < 2 || m->arg[0].kind != G_VAL || m->arg[1].kind != G_INT || m->arg[1].i != out ||
			strcmp(m->arg[0].name, n->name))
			continue;
		if (names(pl->output, pl->n_output, m->name))
			return 1;
		for (int j = i + 1; j < pl->n_node; j++)
			if (names(pl->node[j].arg, pl->node[j].n_arg, m->name) ||
				names(pl->node[j].kwarg, pl->node[j].n_kwarg, m->name))
				return 1;
	}
	return 0;
}

/* The elements of a part of each sorted row, and their indices, or NULL where nothing needs these (`indices` is 0). */
static struct val *elements(
	struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part, int indices, struct val **index)
{
	struct val *v = indices ? NULL : pl_sort_values(pl, n, x, part);

	*index = NULL;
	if (v)
		return v;
	x = pl_stored(pl, x);
	*index = argsort_range(pl, n, x, part);
	return pl_gather(pl, x, *index, part->dim, x->rank, (*index)->size, pl->place);
}

/* cuda: gates, a softmax of 16 bits whose rows are sorted, as they are ahead of their rounding.  Rounded, the second
 * and the third are equal in some 3% of rows of six (bfloat16), and in many more where inputs are small.  A comparison
 * with the second takes three experts then, and the indices of two name either, where the task in fp64 takes two;
 * PyTorch does so, in rows of its own.  The gates are stored once, in fp32, for the sort and for what compares them.
 * NULL: other values. */
static struct val *unrounded(struct pl *pl, struct val *x, const struct pl_sorted *part)
{
	struct val *wide;

	if (pl->target != WW_TARGET_CUDA || !pl_is_half(x->dt) || !x->softmax_of || x->root || part->dim != x->rank - 1)
		return NULL;
	wide = pl_cast(pl, x, WW_F32);
	pl_make_root(pl, wide);
	return wide;
}

static void pick_of(struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part, int indices)
{
	int d = part->dim;
	int64_t count = ix_num(part->count), len = ix_num(x->size[d]);
	struct val *v[FEW], *at[FEW];

	if (count == len || count > (pl_gathers_first(pl, x, part) ? FEWEST : FEW) || len <= SHORT_ROW ||
		!pl_is_float(x->dt) || (count > 1 && pl->target == WW_TARGET_CPU && pl_sorts(pl, x, part))) {
		n->out[0] = elements(pl, n, x, part, indices, &n->out[1]);
		return;
	}
	one_by_one(pl, pl_stored(pl, x), d, (int)count, part->descending, v, at);
	n->out[0] = pl_cat(pl, v, (int)count, d);
	n->out[1] = pl_cat(pl, at, (int)count, d);
}

static void pick(struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part, int indices)
{
	struct val *wide = unrounded(pl, x, part);

	pick_of(pl, n, wide ? wide : x, part, indices);
	if (!wide)
		return;
	n->out[0] = pl_cast(pl, n->out[0], x->dt);
	n->out[0]->picked_of = x;
	n->out[0]->picked_as = wide;
}

/* cuda: the first few along another dimension than the last one, of rows that are too long to sort, as those of rows
 * that lie across memory.  Neighbouring rows are blocks that run at once, so a sector that they share comes from the
 * second level of cache to all but one of them.  PyTorch takes some 90 us for 56 columns of 16,384. */
static int pick_across(struct pl *pl, struct gnode *n, struct val *x, const struct pl_sorted *part)
{
	struct pl_sorted last = *part;
	int there[PL_MAX_RANK], back[PL_MAX_RANK], dim = part->dim;
	struct val *across;

	if (pl->target != WW_TARGET_CUDA || dim == x->rank - 1 || pl_sorts(pl, x, part) || ix_num(part->count) <= FEWEST)
		return 0;
	for (int i = 0; i < x->rank; i++) {
		there[i] = i < dim ? i : i + 1 < x->rank ? i + 1 : dim;
		back[there[i]] = i;
	}
	across = pl_permute(pl, x, there);
	last.dim = x->rank - 1;
	if (!pl_gathers_first(pl, across, &last))
		return 0;
	pick(pl, n, across, &last, is_read(pl, n, 1));
	for (int i = 0; i < 2; i++)
		if (n->out[i])
			n->out[i] = pl_permute(pl, n->out[i], back);
	return 1;
}

static void topk(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n);
	const struct pl_sorted part = { pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim", -1), x->rank),
		(int)pl_arg_int(pl, n, 3, "largest", 1), ix_const(pl, 0), ix_const(pl, pl_arg_int(pl, n, 1, "k", 1)) };

	if (!pick_across(pl, n, x, &part))
		pick(pl, n, x, &part, is_read(pl, n, 1));
}

/* The first result of sort is values; argsort and msort give one of the two. */
enum { BOTH, PLACES, VALUES };

static void sort(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n);
	int d = n->variant == VALUES ? 0 : pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", -1), x->rank);
	const struct pl_sorted part = { d, (int)pl_arg_int(pl, n, 2, "descending", 0), ix_const(pl, 0), x->size[d] };

	pick(pl, n, x, &part, n->variant == PLACES || (n->variant == BOTH && is_read(pl, n, 1)));
	if (n->variant == PLACES)
		n->out[0] = n->out[1];
	if (n->variant != BOTH)
		n->out[1] = NULL;
}

enum { KTHVALUE, MEDIAN_OF_ALL, MEDIAN };

/* The index of a NaN in the row; `at` if the row has none. */
static struct val *nan_or(struct pl *pl, struct val *x, int d, struct val *at)
{
	struct val *is = pl_cast(pl, pl_op1(pl, OP_ISNAN, x), WW_F32);
	struct val *any = pl_cast(pl, pl_reduce(pl, RED_MAX, is, 1u << d, 1), WW_BOOL);

	return pl_where(pl, any, pl_reduce(pl, RED_ARGMAX, is, 1u << d, 1), at);
}

/* kthvalue, and median: the lower of the two middle elements, or NaN if the row has one. */
static void kth(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n), *at, *v;
	int is_median = n->variant != KTHVALUE, all = n->variant == MEDIAN_OF_ALL, keep;
	struct pl_sorted part = { 0, 0, NULL, ix_const(pl, 1) };

	if (all) {
		const struct ix *size[1] = { pl_numel(pl, x) };

		x = pl_reshape(pl, pl_stored(pl, x), 1, size);
	}
	part.dim = all ? 0 : pl_dim(pl, n, pl_arg_int(pl, n, is_median ? 1 : 2, "dim", -1), x->rank);
	keep = all ? 0 : (int)pl_arg_int(pl, n, is_median ? 2 : 3, "keepdim", 0);
	part.first = is_median ? ix_div(pl, ix_addc(pl, x->size[part.dim], -1), ix_const(pl, 2))
						   : ix_const(pl, pl_arg_int(pl, n, 1, "k", 1) - 1);
	x = is_median ? pl_stored(pl, x) : x;
	v = elements(pl, n, x, &part, is_median || is_read(pl, n, 1), &at);
	if (is_median && pl_is_float(x->dt)) {
		at = nan_or(pl, x, part.dim, at);
		v = pl_gather(pl, x, at, part.dim, x->rank, at->size, pl->place);
	}
	n->out[0] = keep ? v : pl_squeeze(pl, v, part.dim);
	n->out[1] = all || !at ? NULL : keep ? at : pl_squeeze(pl, at, part.dim);
}

/* cummax and cummin.  The index is that of the last element that equals the running maximum: a running maximum over the
 * indices of such elements (0 for all others).  Elements are compared as they are stored; for the values alone they are
 * part of the scan. */
static void cummax(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n), *top, *hit, *at;
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), x->rank);

	if (!pl_is_float(x->dt) || x->dt == WW_F64)
		pl_cannot(pl, n, pl_is_float(x->dt) ? "its operand is float64" : "its operand is an integer tensor");
	if (ix_num(x->size[d]) > 1 << 24)
		pl_cannot(pl, n, "its rows have more than 16777216 elements: indices are computed as floats");
	if (!is_read(pl, n, 1)) {
		n->out[0] = pl_scan(pl, n, x, d, n->variant);
		return;
	}
	x = pl_stored(pl, x);
	top = pl_scan(pl, n, x, d, n->variant);
	hit = pl_op2(pl, OP_LOR, pl_op2(pl, OP_EQ, x, top), pl_op1(pl, OP_ISNAN, x));
	at = pl_cast(pl, pl_index(pl, WW_I64, x->rank, x->size, pl->place[d]), WW_F32);
	n->out[0] = top;
	n->out[1] = pl_cast(pl, pl_scan(pl, n, pl_where(pl, hit, at, pl_constf(pl, WW_F32, 0)), d, RED_MAX), WW_I64);
}

/* log of the cumulative sum of exponentials: a scan on cuda; else of each prefix, relative to its maximum. */
static void logcumsumexp(struct pl *pl, struct gnode *n)
{
	struct val *x = self(pl, n), *b, *in, *top;
	int d = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), x->rank), r = x->rank;
	const struct ix *size[PL_MAX_RANK];

	if (pl->target == WW_TARGET_CUDA && pl_is_float(x->dt) && x->dt != WW_F64) {
		n->out[0] = pl_scan(pl, n, x, d, RED_LOGSUMEXP);
		return;
	}
	b = rows_of(pl, n, pl_stored(pl, x), d, size);
	in = pl_index(pl, WW_BOOL, r + 1, size, ix_lt(pl, pl->place[r], ix_addc(pl, pl->place[d], 1)));
	top = pl_reduce(pl, RED_MAX, pl_where(pl, in, b, pl_constf(pl, x->dt, -INFINITY)), 1u << r, 0);
	b = pl_where(pl, in, pl_op1(pl, OP_EXP, pl_op2(pl, OP_SUB, b, pl_unsqueeze(pl, top, r))), pl_constf(pl, x->dt, 0));
	n->out[0] = pl_op2(pl, OP_ADD, pl_op1(pl, OP_LOG, pl_reduce(pl, RED_SUM, b, 1u << r, 0)), top);
}

const struct pl_lower_row pl_lower_order[] = { { "topk", topk }, { "sort", sort, BOTH }, { "argsort", sort, PLACES },
	{ "msort", sort, VALUES }, { "kthvalue", kth, KTHVALUE }, { "median", kth, MEDIAN_OF_ALL },
	{ "median.dim", kth, MEDIAN }, { "cummax", cummax, RED_MAX }, { "cummin", cummax, RED_MIN },
	{ "logcumsumexp", logcumsumexp }, { NULL, NULL } };
