/* index.c - scatter, index_put, index_add, assignments through views, embedding_bag, histograms.
 *
 * A value is a function of its index, so a scatter is computed as a gather: each element of the result reduces over all
 * written elements and takes those whose index is its own (hits).  The result is deterministic and needs no atomics.
 * The cost is the product of both sizes: little for what models scatter (experts, caches, labels), much for long lists.
 * Those an anchor writes one after the other (anchor/scatter.c); sums whose results it cannot hold are left to PyTorch.
 *
 * An assignment through a view (z[:, 3] = y) gives the view's parent a new value, and so on up to the tensor that owns
 * the memory; nodes that name any of them later see it.  A view of that tensor that was made before the assignment and
 * is read after it is refused: its value would have to change. */
#include "policy/planner/lower/lower.h"

#include <math.h>
#include <string.h>

/* ---- Hits -------------------------------------------------------------------------------------------------------- */

/* All written elements for each element of the result: values of the result's shape and one more dimension, the last,
 * which runs over the written elements along dimension `dim`. */
struct hits {
	int rank, dim;
	struct val *hit, *src; /* is the element written here (bool); what is written, NULL: one number */
	struct val *count;     /* the written element's index: 0, 1, ... along the last dimension */
};

/* v in the shape of `to` and a last dimension of size m: the last index is v's index in dimension dim, the others are
 * the same.  v has the rank of `to`; where it is smaller, the result is `fill`. */
static struct val *along(struct pl *pl, const struct val *to, int dim, struct val *v, const struct ix *m, double fill)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK], *cond = ix_const(pl, 1);
	int r = to->rank;

	for (int d = 0; d < r; d++) {
		size[d] = to->size[d];
		map[d] = d == dim ? pl->place[r] : pl->place[d];
		if (d != dim && ix_num(v->size[d]) < ix_num(to->size[d]))
			cond = ix_mul(pl, cond, ix_lt(pl, pl->place[d], v->size[d]));
	}
	size[r] = m;
	return pl_view_if(pl, v, r + 1, size, map, cond, fill);
}

static struct hits hits_of(struct pl *pl, struct gnode *n, struct val *to, int dim, struct val *index, struct val *src)
{
	struct hits h = { .rank = to->rank, .dim = dim };
	const struct ix *m = index->size[dim];
	struct val *at;

	if (to->rank + 1 > PL_MAX_RANK)
		pl_cannot(pl, n, "its values would have too many dimensions");
	at = along(pl, to, dim, pl_cast(pl, index, WW_I64), m, -1);
	h.hit = pl_op2(pl, OP_EQ, at, pl_index(pl, WW_I64, at->rank, at->size, pl->place[dim]));
	h.src = src && src->kind != V_CONST ? along(pl, to, dim, pl_cast(pl, src, to->dt), m, 0) : NULL;
	h.count = pl_index(pl, WW_I64, at->rank, at->size, pl->place[to->rank]);
	return h;
}

static struct val *over(struct pl *pl, const struct hits *h, enum pl_red red, struct val *v, double none)
{
	return pl_reduce(pl, red, pl_where(pl, h->hit, v, pl_constf(pl, v->dt, none)), 1u << h->rank, 0);
}

static struct val *any_hit(struct pl *pl, const struct hits *h)
{
	return pl_op2(pl, OP_LE, pl_consti(pl, WW_I64, 0), over(pl, h, RED_MAX, h->count, -1));
}

/* Of several elements written to the same index the last one stays. */
static struct val *assigned(struct pl *pl, const struct hits *h, struct val *to, struct val *src)
{
	struct val *last, *v;
	const struct ix *map[PL_MAX_RANK];

	if (!h->src)
		return pl_where(pl, any_hit(pl, h), pl_cast(pl, src, to->dt), to);
	last = over(pl, h, RED_MAX, h->count, -1);
	for (int d = 0; d < to->rank; d++) /* outside of src nothing hits, and nothing may be read */
		map[d] = ix_num(src->size[d]) < ix_num(to->size[d]) && d != h->dim
			? ix_mul(pl, pl->place[d], ix_lt(pl, pl->place[d], src->size[d]))
			: pl->place[d];
	v = pl_gather(pl, pl_cast(pl, src, to->dt), pl_op2(pl, OP_MAXIMUM, last, pl_consti(pl, WW_I64, 0)), h->dim,
		to->rank, to->size, map);
	return pl_where(pl, pl_op2(pl, OP_LE, pl_consti(pl, WW_I64, 0), last), v, to);
}

static struct val *reduced_into(
	struct pl *pl, struct gnode *n, const struct hits *h, struct val *to, const char *how, int include_self)
{
	struct val *v, *cnt;
	int is_float = pl_is_float(to->dt);

	if (!h->src)
		pl_cannot(pl, n, "it reduces a number into a tensor");
	if (!strcmp(how, "sum") || !strcmp(how, "add") || !strcmp(how, "mean")) {
		v = over(pl, h, RED_SUM, h->src, 0);
		cnt = pl_cast(pl, pl_reduce(pl, RED_SUM, pl_cast(pl, h->hit, WW_I64), 1u << h->rank, 0), to->dt);
		if (!include_self)
			to = pl_where(pl, any_hit(pl, h), pl_constf(pl, to->dt, 0), to);
		v = pl_op2(pl, OP_ADD, to, v);
		if (strcmp(how, "mean"))
			return v;
		if (!is_float)
			pl_cannot(pl, n, "it takes a mean of integers");
		cnt = include_self ? pl_op2(pl, OP_ADD, cnt, pl_constf(pl, to->dt, 1))
						   : pl_op2(pl, OP_MAXIMUM, cnt, pl_constf(pl, to->dt, 1));
		return pl_op2(pl, OP_DIV, v, cnt);
	}
	if (!is_float)
		pl_cannot(pl, n, "it reduces integers otherwise than by a sum");
	if (!strcmp(how, "prod") || !strcmp(how, "multiply")) {
		v = over(pl, h, RED_PROD, h->src, 1);
		return pl_op2(pl, OP_MUL, include_self ? to : pl_where(pl, any_hit(pl, h), pl_constf(pl, to->dt, 1), to), v);
	}
	if (!strcmp(how, "amax") || !strcmp(how, "amin")) {
		int is_max = !strcmp(how, "amax");

		v = over(pl, h, is_max ? RED_MAX : RED_MIN, h->src, is_max ? -INFINITY : INFINITY);
		return include_self ? pl_op2(pl, is_max ? OP_MAXIMUM : OP_MINIMUM, to, v) : pl_where(pl, any_hit(pl, h), v, to);
	}
	pl_cannot(pl, n, "unknown argument reduce");
}

/* ---- Sums, and what else has a template ------------------------------------------------------------------------- */

/* Microseconds for a written element and one of the result that come together; and of PyTorch's kernels: for a written
 * element, an element of the result (on the cpu handed over and back), and at all.  cpu: one thread with AVX-512; cuda:
 * an H200 (809 written to each of 4,096 rows of 541: 803 us and 49). */
static const struct {
	double pair, pytorch_written, pytorch_result, pytorch;
} sum_costs[] = { [WW_TARGET_CPU] = { 1.5e-4, 6e-4, 4e-3, 100 }, [WW_TARGET_CUDA] = { 4.5e-7, 8e-6, 8e-6, 8 } };

/* cuda: bytes of the second level's cache, beyond which each result reads memory, and what that has in a microsecond
 * (23 elements to each of 857,000 columns of 11: 609 us for 2.6 GB). */
static const double cache_bytes = 50 << 20, memory_us = 4.2e6;

/* Where each element of the result asks all that are written; and PyTorch's kernels, which add each written element
 * once: in order on the cpu, by atomics on cuda. */
struct sum_us {
	double pairs, pytorch;
};

static struct sum_us sum_us(struct pl *pl, const struct val *to, int dim, const struct val *index)
{
	double result = (double)pl_numel_now(to), list = dim < index->rank ? (double)ix_num(index->size[dim]) : 1;
	double written = result / (double)ix_num(to->size[dim]) * list;
	int one_index = index->kind == V_VIEW && index->arg[0]->rank <= 1; /* of all behind dim (index_rows()) */
	double bytes = pl_itemsize(to->dt) + (one_index ? 0 : 8), pairs = result * list * sum_costs[pl->target].pair;

	if (pl->target == WW_TARGET_CUDA && written * bytes > cache_bytes)
		pairs = fmax(pairs, result * list * bytes / memory_us);
	return (struct sum_us){ .pairs = pairs,
		.pytorch = sum_costs[pl->target].pytorch + written * sum_costs[pl->target].pytorch_written +
			result * sum_costs[pl->target].pytorch_result };
}

static void leave_long_sums(struct pl *pl, struct gnode *n, const struct val *to, int dim, const struct val *index)
{
	struct sum_us us = sum_us(pl, to, dim, index);

	if (to->dt == WW_F32 && us.pairs > us.pytorch)
		pl_leave(pl, n, "PyTorch adds up lists of this length faster");
}

/* v, the places or what is written there, in the shape of `to` but for dimension dim; `fill` where v is smaller. */
static struct val *written(
	struct pl *pl, const struct val *to, int dim, struct val *v, const struct ix *list, double fill)
{
	const struct ix *size[PL_MAX_RANK], *cond = ix_const(pl, 1);

	for (int d = 0; d < to->rank; d++) {
		size[d] = d == dim ? list : to->size[d];
		if (d != dim && ix_num(v->size[d]) < ix_num(to->size[d]))
			cond = ix_mul(pl, cond, ix_lt(pl, pl->place[d], v->size[d]));
		if (d != dim && ix_num(v->size[d]) == ix_num(to->size[d])) {
			pl_guard_eq(pl, v->size[d], to->size[d], "the sizes of what is written");
			size[d] = v->size[d]; /* by which it is stored: axes behind dim can then be one */
		}
	}
	return pl_view_if(pl, v, to->rank, size, pl->place, cond, fill);
}

/* The result by an anchor that writes one element after the other; NULL: that takes longer, or has no form.
 * how: as the argument reduce, "" for an assignment. */
static struct val *in_order(struct pl *pl, struct gnode *n, struct val *to, int dim, struct val *index, struct val *src,
	const char *how, int include_self)
{
	static const struct {
		const char *how;
		enum pl_scatter kind;
		double none;
	} kinds[] = { { "", SCATTER_SET, 0 }, { "sum", SCATTER_SUM, 0 }, { "add", SCATTER_SUM, 0 },
		{ "mean", SCATTER_SUM, 0 }, { "prod", SCATTER_PROD, 1 }, { "multiply", SCATTER_PROD, 1 },
		{ "amax", SCATTER_MAX, -INFINITY }, { "amin", SCATTER_MIN, INFINITY } };
	struct val *at, *count, *one = pl_constf(pl, WW_F32, 1), *zero = pl_constf(pl, WW_F32, 0);
	struct sum_us us;
	size_t k = 0;

	while (k < WW_ARRAY_LEN(kinds) && strcmp(kinds[k].how, how))
		k++;
	if (k == WW_ARRAY_LEN(kinds) || to->rank < 1 || index->rank != to->rank)
		return NULL;
	us = sum_us(pl, to, dim, index);
	if (!pl_scatters(pl, kinds[k].kind, to, dim, index->size[dim],
			kinds[k].kind == SCATTER_SUM ? fmin(us.pairs, us.pytorch) : us.pairs))
		return NULL;
	at = written(pl, to, dim, pl_cast(pl, index, WW_I64), index->size[dim], INT32_MIN);
	src = pl_cast(pl, src, to->dt);
	src = src->kind == V_CONST ? src : written(pl, to, dim, src, index->size[dim], 0);
	if (!*how || (include_self && strcmp(how, "mean")))
		return pl_scatter(pl, n, kinds[k].kind, to, to, dim, at, src);
	count = pl_scatter(pl, n, SCATTER_SUM, to, include_self ? one : zero, dim, at, one);
	if (!include_self)
		to = pl_where(pl, pl_op2(pl, OP_LT, zero, count), pl_constf(pl, to->dt, kinds[k].none), to);
	src = pl_scatter(pl, n, kinds[k].kind, to, to, dim, at, src);
	return strcmp(how, "mean") ? src : pl_op2(pl, OP_DIV, src, pl_cast(pl, pl_op2(pl, OP_MAXIMUM, count, one), to->dt));
}

/* An index of one dimension, expanded along dim to the shape of the elements that are written. */
static struct val *index_rows(struct pl *pl, struct val *index, int dim, const struct val *like)
{
	const struct ix *map[1] = { pl->place[dim] }, *size[PL_MAX_RANK];

	memcpy(size, like->size, sizeof(size));
	size[dim] = index->rank ? index->size[0] : ix_const(pl, 1);
	return pl_view(pl, index, like->rank, size, map);
}

static struct val *wrapped(struct pl *pl, struct val *index, const struct ix *size)
{
	index = pl_cast(pl, index, WW_I64);
	return pl_where(pl, pl_op2(pl, OP_LT, index, pl_consti(pl, WW_I64, 0)),
		pl_op2(pl, OP_ADD, index, pl_index(pl, WW_I64, index->rank, index->size, size)), index);
}

/* ---- Operators --------------------------------------------------------------------------------------------------- */

/* What an operator writes: a tensor, one number, the sum with what is there, or the reduction of its argument reduce.
 */
enum { OF_TENSOR, OF_NUMBER, SUM, NAMED };

static void scatter(struct pl *pl, struct gnode *n)
{
	struct val *to = self(pl, n), *index = pl_need_val(pl, n, 2, "index"),
			   *src = pl_need_val(pl, n, 3, n->variant == OF_NUMBER ? "value" : "src");
	int dim = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), to->rank);
	const char *how = n->variant == SUM ? "add" : pl_arg_str(n, 4, "reduce", "");
	int include_self = (int)pl_arg_int(pl, n, 5, "include_self", 1);
	struct val *v = in_order(pl, n, to, dim, index, src, how, include_self);
	struct hits h;

	if (v) {
		done(n, v);
		return;
	}
	if (n->variant == SUM)
		leave_long_sums(pl, n, to, dim, index);
	h = hits_of(pl, n, to, dim, index, src);
	done(n, *how ? reduced_into(pl, n, &h, to, how, include_self) : assigned(pl, &h, to, src));
}

static void index_write(struct pl *pl, struct gnode *n)
{
	struct val *to = self(pl, n), *index = pl_need_val(pl, n, 2, "index"),
			   *src = pl_need_val(pl, n, 3, n->variant == OF_NUMBER ? "value" : "source");
	int dim = pl_dim(pl, n, pl_arg_int(pl, n, 1, "dim", 0), to->rank);
	double alpha = n->variant == SUM ? pl_arg_num(pl, n, 4, "alpha", 1) : 1;
	const char *how = n->variant == SUM ? "add" : n->variant == NAMED ? pl_arg_str(n, 4, "reduce", "mean") : "";
	int include_self = n->variant != NAMED || pl_arg_int(pl, n, 5, "include_self", 1);
	struct val *v;
	struct hits h;

	if (src->kind != V_CONST && src->rank == 0)
		src = pl_expand(pl, src, to->rank, to->size);
	if (alpha != 1)
		src = pl_op2(pl, OP_MUL, src, pl_constf(pl, src->dt, alpha));
	if (to->rank && (v = in_order(pl, n, to, dim, index_rows(pl, index, dim, to), src, how, include_self))) {
		done(n, v);
		return;
	}
	index = index_rows(pl, wrapped(pl, index, to->size[dim]), dim, to);
	if (n->variant == SUM)
		leave_long_sums(pl, n, to, dim, index);
	h = hits_of(pl, n, to, dim, index, src);
	done(n, *how ? reduced_into(pl, n, &h, to, how, include_self) : assigned(pl, &h, to, src));
}

/* ---- Several index tensors --------------------------------------------------------------------------------------- */

/* Several index tensors of adjacent dimensions become one: *flat is a with these dimensions merged, *lin the linear
 * index into the merged one, in the broadcast shape of all.  Returns the first of these dimensions. */
static int joint_index(struct pl *pl, struct gnode *n, struct val *a, struct val **flat, struct val **lin)
{
	struct garg *l = pl_arg(n, 1, "indices");
	const struct ix *size[PL_MAX_RANK], *merged = ix_const(pl, 1);
	int first = -1, last = -1, r = 0;

	if (!l || l->kind != G_LIST || l->n > a->rank)
		pl_cannot(pl, n, "its indices are no list, or there are more of them than dimensions");
	*lin = NULL;
	for (int d = 0; d < l->n; d++) {
		struct val *at = l->item[d].kind == G_NONE ? NULL : pl_val_of(pl, &l->item[d]);

		if (!at)
			continue;
		if (at->dt == WW_BOOL || at->dt == WW_U8)
			pl_cannot(pl, n, "the result's shape depends on data");
		if (last >= 0 && last != d - 1)
			pl_cannot(pl, n, "its index tensors are of dimensions that are not adjacent");
		first = first < 0 ? d : first;
		last = d;
		at = wrapped(pl, at, a->size[d]);
		merged = ix_mul(pl, merged, a->size[d]);
		*lin = !*lin ? at : pl_op2(pl, OP_ADD, pl_op2(pl, OP_MUL, *lin, pl_index(pl, WW_I64, 0, NULL, a->size[d])), at);
	}
	if (first < 0)
		pl_cannot(pl, n, "all its indices are None");
	for (int d = 0; d < a->rank; d++)
		if (d == first)
			size[r++] = merged;
		else if (d < first || d > last)
			size[r++] = a->size[d];
	*flat = pl_reshape(pl, a, r, size);
	return first;
}

static void index_tensor(struct pl *pl, struct gnode *n)
{
	struct val *flat, *lin;
	int d = joint_index(pl, n, self(pl, n), &flat, &lin);

	done(n, pl_take(pl, flat, lin, d));
}

static void index_put(struct pl *pl, struct gnode *n)
{
	struct val *to = self(pl, n), *src = pl_need_val(pl, n, 2, "values"), *flat, *lin, *v;
	struct garg *l = pl_arg(n, 1, "indices");
	const struct ix *size[PL_MAX_RANK], *rows = ix_const(pl, 1);
	int accumulate = (int)pl_arg_int(pl, n, 3, "accumulate", 0), d, k = 0;
	struct hits h;

	src = pl_cast(pl, src, to->dt);
	if (l && l->kind == G_LIST && l->n == 1 && l->item[0].kind == G_VAL &&
		(v = pl_val_of(pl, &l->item[0]))->dt == WW_BOOL && pl_numel_now(src) == 1) {
		for (int i = v->rank; i < to->rank; i++)
			v = pl_unsqueeze(pl, v, i);
		src = src->rank ? pl_reshape(pl, src, 0, NULL) : src;
		done(n, pl_where(pl, v, accumulate ? pl_op2(pl, OP_ADD, to, src) : src, to));
		return;
	}
	d = joint_index(pl, n, to, &flat, &lin);
	for (int i = 0; i < flat->rank; i++) { /* what is written, in the shape that indexing would give */
		if (i != d)
			size[k++] = flat->size[i];
		for (int j = 0; i == d && j < lin->rank; j++) {
			size[k++] = lin->size[j];
			rows = ix_mul(pl, rows, lin->size[j]);
		}
	}
	src = src->kind == V_CONST ? src : pl_expand(pl, src, k, size);
	memcpy(size, flat->size, sizeof(size));
	size[d] = rows;
	src = src->kind == V_CONST ? src : pl_reshape(pl, src, flat->rank, size);
	if (src->kind == V_CONST && accumulate)
		src = pl_expand(pl, pl_where(pl, pl_index(pl, WW_BOOL, 0, NULL, ix_const(pl, 1)), src, src), flat->rank, size);
	lin = index_rows(pl, pl_reshape(pl, lin, 1, &rows), d, flat);
	v = in_order(pl, n, flat, d, lin, src, accumulate ? "add" : "", 1);
	if (!v) {
		h = hits_of(pl, n, flat, d, lin, src);
		v = accumulate ? reduced_into(pl, n, &h, flat, "add", 1) : assigned(pl, &h, flat, src);
	}
	done(n, pl_reshape(pl, v, to->rank, to->size));
}

static void take(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *at = pl_need_val(pl, n, 1, "index");
	const struct ix *size[1] = { pl_numel(pl, a) };

	done(n, pl_take(pl, pl_reshape(pl, a, 1, size), wrapped(pl, at, size[0]), 0));
}

static void take_along_dim(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *at = pl_cast(pl, pl_need_val(pl, n, 1, "indices"), WW_I64);
	struct garg *g = pl_arg(n, 2, "dim");
	const struct ix *map[PL_MAX_RANK];
	int d;

	if (!g || g->kind == G_NONE)
		pl_cannot(pl, n, "dim=None is not covered");
	d = pl_dim(pl, n, g->i, a->rank);
	for (int i = 0; i < a->rank; i++)
		map[i] = ix_is(a->size[i], 1) ? ix_const(pl, 0) : pl->place[i];
	if (ix_num(at->size[0]) != n->meta[0].size[0])
		pl_cannot(pl, n, "its index is broadcast");
	done(n, pl_gather(pl, a, at, d, at->rank, at->size, map));
}

/* The common length of all bags, where the indices are a matrix: PyTorch then makes the offsets by arange(0, number of
 * indices, length).  0: the lengths may differ. */
static int64_t bag_length(struct pl *pl, struct gnode *n, int64_t indices)
{
	const struct garg *a = pl_arg(n, 2, "offsets");
	struct gnode *made = a && a->kind == G_VAL ? pl_graph_node(pl, a->name) : NULL;

	if (!made || !made->row || strcmp(made->row->op, "arange.start_step") ||
		pl_arg_int(pl, made, 0, "start", -1) != 0 || pl_arg_int(pl, made, 1, "end", -1) != indices)
		return 0;
	int64_t length = pl_arg_int(pl, made, 2, "step", 1);
	return length > 0 && indices % length == 0 ? length : 0;
}

/* (bags, all) bool: does index i belong to the bag?  A bag begins at its offset and ends at the next one; the last ends
 * with the indices, or at an offset of its own. */
static struct val *members(struct pl *pl, struct gnode *n, const struct ix *all)
{
	struct val *from = pl_cast(pl, pl_need_val(pl, n, 2, "offsets"), WW_I64), *to, *i;
	const struct ix *bags = ix_const(pl, n->meta[0].size[0]), *size[2] = { bags, all },
					*next = ix_addc(pl, pl->place[0], 1), *last = ix_lt(pl, next, from->size[0]), *map[1] = { next };

	i = pl_index(pl, WW_I64, 2, size, pl->place[1]);
	to = pl_where(pl, pl_index(pl, WW_BOOL, 1, size, last), pl_view_if(pl, from, 1, size, map, last, 0),
		pl_index(pl, WW_I64, 1, size, all));
	from = pl_slice(pl, from, 0, ix_const(pl, 0), bags, 1);
	return pl_op2(
		pl, OP_LAND, pl_op2(pl, OP_LE, pl_unsqueeze(pl, from, 1), i), pl_op2(pl, OP_LT, i, pl_unsqueeze(pl, to, 1)));
}

/* Sums, means or maxima of rows of a table.  Bags of one length are a reduction over a dimension; otherwise each bag
 * reduces over all indices, masked to its own. */
static void embedding_bag(struct pl *pl, struct gnode *n)
{
	struct val *w = pl_need_val(pl, n, 0, "weight"), *at = pl_cast(pl, pl_need_val(pl, n, 1, "indices"), WW_I64), *v,
			   *scale = pl_arg_val(pl, n, 6, "per_sample_weights"), *in = NULL, *count;
	int64_t mode = pl_arg_int(pl, n, 4, "mode", 0), all = pl_numel_now(at), length = bag_length(pl, n, all),
			padding = pl_arg_int(pl, n, 8, "padding_idx", -1);
	const struct ix *size[2] = { ix_const(pl, length ? all / length : 1), ix_const(pl, length ? length : all) };

	if (!length)
		in = members(pl, n, size[1]);
	at = pl_reshape(pl, at, 2, size);
	if (padding >= 0) {
		v = pl_op2(pl, OP_NE, at, pl_consti(pl, WW_I64, padding));
		in = in ? pl_op2(pl, OP_LAND, in, v) : v;
	}
	v = pl_take(pl, w, at, 0);
	if (scale)
		v = pl_op2(pl, OP_MUL, v, pl_unsqueeze(pl, pl_reshape(pl, scale, 2, size), 2));
	if (in)
		v = pl_where(pl, pl_unsqueeze(pl, in, 2), v, pl_constf(pl, v->dt, mode == 2 ? -INFINITY : 0));
	v = pl_reduce(pl, mode == 2 ? RED_MAX : RED_SUM, v, 2, 0);
	if (!in) {
		n->out[0] = mode == 1 ? pl_op2(pl, OP_DIV, v, pl_constf(pl, v->dt, (double)length)) : v;
		return;
	}
	count = pl_unsqueeze(pl, pl_reduce(pl, RED_SUM, pl_cast(pl, in, WW_I64), 2, 0), 1);
	if (mode == 1)
		v = pl_op2(pl, OP_DIV, v, pl_cast(pl, pl_op2(pl, OP_MAXIMUM, count, pl_consti(pl, WW_I64, 1)), v->dt));
	if (mode == 2) /* an empty bag gives 0 */
		v = pl_where(pl, pl_op2(pl, OP_EQ, count, pl_consti(pl, WW_I64, 0)), pl_constf(pl, v->dt, 0), v);
	n->out[0] = v;
}

/* masked_scatter: the k-th element of the source goes to the k-th element whose mask is set. */
static void masked_scatter(struct pl *pl, struct gnode *n)
{
	struct val *to = self(pl, n), *mask = pl_expand(pl, pl_need_val(pl, n, 1, "mask"), to->rank, to->size),
			   *src = pl_need_val(pl, n, 2, "source"), *k;
	const struct ix *flat[1] = { pl_numel(pl, to) }, *all[1] = { pl_numel(pl, src) };

	k = pl_scan(pl, n, pl_reshape(pl, pl_cast(pl, mask, WW_I64), 1, flat), 0, RED_SUM);
	k = pl_op2(pl, OP_SUB, pl_reshape(pl, k, to->rank, to->size), pl_consti(pl, WW_I64, 1));
	k = pl_op2(pl, OP_MINIMUM, pl_op2(pl, OP_MAXIMUM, k, pl_consti(pl, WW_I64, 0)),
		pl_index(pl, WW_I64, 0, NULL, ix_addc(pl, all[0], -1)));
	done(n, pl_where(pl, mask, pl_take(pl, pl_reshape(pl, src, 1, all), k, 0), to));
}

/* How many elements lie in each of equal bins between two numbers, or between the smallest and largest element.  The
 * bin of an element is computed as in PyTorch, so that elements at an edge go to the same side. */
static void histogram(struct pl *pl, struct gnode *n)
{
	struct val *a = self(pl, n), *lo, *hi, *bin, *hit, *full;
	double min = pl_arg_num(pl, n, 2, "min", 0), max = pl_arg_num(pl, n, 3, "max", 0);
	int64_t bins = n->meta[0].size[0];
	const struct ix *flat[1] = { pl_numel(pl, a) }, *size[1] = { ix_const(pl, bins) };

	if (!pl_is_float(a->dt))
		pl_cannot(pl, n, "its operand is an integer tensor");
	a = pl_reshape(pl, a, 1, flat);
	lo = pl_constf(pl, a->dt, min);
	hi = pl_constf(pl, a->dt, max);
	if (min == max) {
		struct val *one = pl_constf(pl, a->dt, 1), *same;

		lo = pl_reduce(pl, RED_MIN, a, 1, 0);
		hi = pl_reduce(pl, RED_MAX, a, 1, 0);
		same = pl_op2(pl, OP_EQ, lo, hi);
		lo = pl_where(pl, same, pl_op2(pl, OP_SUB, lo, one), lo);
		hi = pl_where(pl, same, pl_op2(pl, OP_ADD, hi, one), hi);
	}
	full = pl_constf(pl, a->dt, (double)bins);
	bin = pl_op2(pl, OP_MUL, pl_op2(pl, OP_DIV, pl_op2(pl, OP_SUB, a, lo), pl_op2(pl, OP_SUB, hi, lo)), full);
	bin = pl_op2(pl, OP_MINIMUM, pl_op1(pl, OP_FLOOR, bin), pl_constf(pl, a->dt, (double)bins - 1));
	hit = pl_op2(pl, OP_LAND, pl_op2(pl, OP_LE, lo, a), pl_op2(pl, OP_LE, a, hi));
	bin = pl_where(pl, hit, bin, pl_constf(pl, a->dt, -1));
	hit = pl_op2(pl, OP_EQ, pl_unsqueeze(pl, bin, 0),
		pl_unsqueeze(pl, pl_cast(pl, pl_index(pl, WW_I64, 1, size, pl->place[0]), a->dt), 1));
	done(n, pl_reduce(pl, RED_SUM, pl_cast(pl, hit, a->dt), 2, 0));
}

enum { SEARCHSORTED, BUCKETIZE };

/* How many of the sorted numbers lie before each value. */
static void searchsorted(struct pl *pl, struct gnode *n)
{
	int bucket = n->variant == BUCKETIZE, right;
	struct val *edges = pl_need_val(pl, n, bucket ? 1 : 0, bucket ? "boundaries" : "sorted_sequence"),
			   *v = pl_need_val(pl, n, bucket ? 0 : 1, "self"), *hit;
	const char *side = pl_kwarg_str(n, "side", "");
	int r = v->rank;

	right = (int)pl_kwarg_int(pl, n, "right", 0) || !strcmp(side, "right");
	if (edges->rank != 1 && edges->rank != r)
		pl_cannot(pl, n, pl_fmt(pl, "its boundaries have %d dimensions, its values %d", edges->rank, r));
	if (edges->rank != 1)
		edges = pl_unsqueeze(pl, edges, r - 1);
	v = pl_unsqueeze(pl, v, r);
	hit = right ? pl_op2(pl, OP_LE, edges, v) : pl_op2(pl, OP_LT, edges, v);
	done(n, pl_cast(pl, pl_reduce(pl, RED_SUM, pl_cast(pl, hit, WW_I64), 1u << r, 0), n->meta[0].dt));
}

static void isin(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_need_val(pl, n, 0, "elements"), *t = pl_need_val(pl, n, 1, "test_elements"), *hit;
	const struct ix *size[1] = { pl_numel(pl, t) };

	hit = pl_op2(pl, OP_EQ, pl_unsqueeze(pl, a, a->rank), pl_reshape(pl, t, 1, size));
	hit = pl_cast(pl, pl_reduce(pl, RED_MAX, pl_cast(pl, hit, WW_I64), 1u << a->rank, 0), WW_BOOL);
	done(n, pl_kwarg_int(pl, n, "invert", 0) ? pl_op1(pl, OP_LNOT, hit) : hit);
}

/* ---- Writes to a part that the operator names -------------------------------------------------------------------- */

/* `to` with `part` written at the indices start, start + step, ... of dimension dim. */
static struct val *with_slice(
	struct pl *pl, struct val *to, struct val *part, int dim, const struct ix *start, int64_t step)
{
	const struct ix *map[PL_MAX_RANK], *off = ix_sub(pl, pl->place[dim], start), *in;
	const struct ix *last = ix_add(pl, start, ix_mulc(pl, ix_addc(pl, part->size[dim], -1), step));

	for (int d = 0; d < to->rank; d++)
		map[d] = d == dim ? step == 1 ? off : ix_div(pl, off, ix_const(pl, step)) : pl->place[d];
	in = ix_mul(pl, ix_lt(pl, ix_addc(pl, start, -1), pl->place[dim]), ix_lt(pl, pl->place[dim], ix_addc(pl, last, 1)));
	if (step != 1)
		in = ix_mul(pl, in, ix_eqz(pl, ix_mod(pl, off, ix_const(pl, step)), ix_const(pl, 0)));
	return pl_where(pl, pl_index(pl, WW_BOOL, to->rank, to->size, in),
		pl_view_if(pl, pl_cast(pl, part, to->dt), to->rank, to->size, map, in, 0), to);
}

static const struct ix *bound(struct pl *pl, int64_t v, const struct ix *size)
{
	int64_t n = ix_num(size);

	return v >= n ? size : ix_const(pl, v >= 0 ? v : v + n < 0 ? 0 : v + n);
}

static void slice_scatter(struct pl *pl, struct gnode *n)
{
	struct val *to = self(pl, n);
	int dim = pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim", 0), to->rank);

	done(n,
		with_slice(pl, to, pl_need_val(pl, n, 1, "src"), dim,
			bound(pl, pl_arg_int(pl, n, 3, "start", 0), to->size[dim]), pl_arg_int(pl, n, 5, "step", 1)));
}

static void select_scatter(struct pl *pl, struct gnode *n)
{
	struct val *to = self(pl, n);
	int dim = pl_dim(pl, n, pl_arg_int(pl, n, 2, "dim", 0), to->rank);
	int64_t at = pl_arg_int(pl, n, 3, "index", 0);

	done(n,
		with_slice(pl, to, pl_unsqueeze(pl, pl_need_val(pl, n, 1, "src"), dim), dim,
			at < 0 ? ix_addc(pl, to->size[dim], at) : ix_const(pl, at), 1));
}

enum { ZERO = 1 };

/* copy_, fill_ and zero_: the source, converted to the shape and type of self. */
static void overwrite(struct pl *pl, struct gnode *n)
{
	struct val *to = self(pl, n), *src = n->variant == ZERO ? pl_constf(pl, to->dt, 0) : pl_need_val(pl, n, 1, "src");

	src = pl_cast(pl, src, to->dt);
	if (src->kind == V_CONST)
		src = pl_where(pl, pl_index(pl, WW_BOOL, to->rank, to->size, ix_const(pl, 1)), src, src);
	done(n, pl_expand(pl, src, to->rank, to->size));
}

/* ---- Assignments through views */

struct val *pl_write_slice(struct pl *pl, struct gnode *view, struct val *parent, struct val *v)
{
	int d = pl_dim(pl, view, pl_arg_int(pl, view, 1, "dim", 0), parent->rank);

	return with_slice(pl, parent, v, d, bound(pl, pl_arg_int(pl, view, 2, "start", 0), parent->size[d]),
		pl_arg_int(pl, view, 4, "step", 1));
}

struct val *pl_write_select(struct pl *pl, struct gnode *view, struct val *parent, struct val *v)
{
	int d = pl_dim(pl, view, pl_arg_int(pl, view, 1, "dim", 0), parent->rank);
	int64_t at = pl_arg_int(pl, view, 2, "index", 0);

	return with_slice(
		pl, parent, pl_unsqueeze(pl, v, d), d, at < 0 ? ix_addc(pl, parent->size[d], at) : ix_const(pl, at), 1);
}

struct val *pl_write_transpose(struct pl *pl, struct gnode *view, struct val *parent, struct val *v)
{
	return pl_swap_dims(pl, v, pl_dim(pl, view, pl_arg_int(pl, view, 1, "dim0", 0), v->rank),
		pl_dim(pl, view, pl_arg_int(pl, view, 2, "dim1", 1), v->rank));
}

struct val *pl_write_reshape(struct pl *pl, struct gnode *view, struct val *parent, struct val *v)
{
	return pl_reshape(pl, v, parent->rank, parent->size);
}

static int is_view(const struct gnode *n) { return n->row ? n->row->flags & PL_VIEW : n->shares; }

static int refers(const struct garg *a, const char *name)
{
	for (int i = 0; a->kind == G_LIST && i < a->n; i++)
		if (refers(&a->item[i], name))
			return 1;
	return a->kind == G_VAL && !strcmp(a->name, name);
}

static int read_later(struct pl *pl, int from, const char *name)
{
	for (int i = from; i < pl->n_node; i++)
		for (int k = 0; k < pl->node[i].n_arg; k++)
			if (refers(&pl->node[i].arg[k], name))
				return 1;
	for (int i = 0; i < pl->n_output; i++)
		if (refers(&pl->output[i], name))
			return 1;
	return 0;
}

/* Views of `name` taken before node n, other than `own`, must not be read after it. */
static void refuse_stale(struct pl *pl, struct gnode *n, const char *name, const char *own)
{
	for (int i = 0; &pl->node[i] < n; i++) {
		struct gnode *v = &pl->node[i];

		if (!v->n_arg || !is_view(v) || !refers(&v->arg[0], name) || (own && !strcmp(v->name, own)))
			continue;
		if (read_later(pl, (int)(n - pl->node) + 1, v->name))
			pl_cannot(pl, n, "it writes to memory that an earlier view reads later");
		refuse_stale(pl, n, v->name, NULL);
	}
}

static void refuse_read_ancestors(struct pl *pl, struct gnode *n, struct gnode *of)
{
	while (of && is_view(of) && of->n_arg && of->arg[0].kind == G_VAL) {
		if (read_later(pl, (int)(n - pl->node) + 1, of->arg[0].name))
			pl_cannot(pl, n, "it writes to what may be a view or a copy of another tensor");
		of = pl_graph_node(pl, of->arg[0].name);
	}
}

void pl_write(struct pl *pl, struct gnode *n, const char *name, const char *own, struct val *v)
{
	struct gnode *to = pl_graph_node(pl, name);

	refuse_stale(pl, n, name, own);
	if (!to) {
		for (int i = 0; i < pl->n_buf; i++)
			if (pl->buf[i]->val && !strcmp(pl->buf[i]->pname, name))
				pl->buf[i]->val = v;
		return;
	}
	if (to->row && to->row->flags & PL_MAY_COPY) {
		refuse_read_ancestors(pl, n, to);
	} else if (is_view(to) && to->n_arg && to->arg[0].kind == G_VAL) {
		if (!to->row || !to->row->write)
			pl_cannot(pl, n, pl_fmt(pl, "it writes through %s", to->target));
		pl_write(pl, n, to->arg[0].name, name, to->row->write(pl, to, pl_val_of(pl, &to->arg[0]), v));
	}
	to->out[0] = v;
}

const struct pl_lower_row pl_lower_index[] = { { "scatter", scatter, OF_TENSOR },
	{ "scatter.value", scatter, OF_NUMBER }, { "scatter.value_reduce", scatter, OF_NUMBER },
	{ "scatter_add", scatter, SUM }, { "scatter_reduce", scatter, NAMED }, { "index_add", index_write, SUM },
	{ "index_copy", index_write, OF_TENSOR }, { "index_fill", index_write, OF_NUMBER },
	{ "index_reduce", index_write, NAMED }, { "index", index_tensor }, { "index_put", index_put }, { "take", take },
	{ "take_along_dim", take_along_dim }, { "embedding_bag", embedding_bag }, { "masked_scatter", masked_scatter },
	{ "histc", histogram }, { "searchsorted", searchsorted, SEARCHSORTED }, { "bucketize", searchsorted, BUCKETIZE },
	{ "isin", isin }, { "slice_scatter", slice_scatter }, { "select_scatter", select_scatter }, { "copy", overwrite },
	{ "fill", overwrite }, { "zero", overwrite, ZERO }, { NULL, NULL } };
