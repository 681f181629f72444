/* val.c - construction of values: shapes, views, promotion.
 *
 * A value is a pure function from an index to a number.  Operations demand equal shapes, so the constructors insert the
 * broadcasts; constants have no shape and fit everywhere.  Views are index maps over placeholders: map[d] says where
 * dimension d of the argument is read for the index (place[0], place[1], ...) of the view.  A view of a view stays two
 * values: composing happens when the expression is written out, where the ranges of the actual indices make quotients
 * vanish. */
#include "policy/planner/graph/val.h"

#include "base/dtype.h"
#include "policy/planner/graph/graph.h"
#include "policy/planner/planner.h"

#include <stdlib.h>
#include <string.h>

const struct pl_op_info pl_ops[OP_COUNT] = {
#define OP(name, ...) { #name, __VA_ARGS__ },
#include "policy/planner/graph/ops.def"
};
const char *const pl_red_names[RED_COUNT] = { "sum", "prod", "max", "min", "argmax", "argmin", "logsumexp" };

int pl_is_float(int dt) { return dt == WW_F32 || dt == WW_F64 || dt == WW_F16 || dt == WW_BF16; }
int pl_is_half(int dt) { return dt == WW_F16 || dt == WW_BF16; }

int pl_is_int(int dt) { return dt == WW_I8 || dt == WW_I16 || dt == WW_I32 || dt == WW_I64 || dt == WW_U8; }

int pl_itemsize(int dt) { return dt ? ww_dtype_bytes(dt) : 1; }

int pl_promote(int a, int b)
{
	static const int order[] = { WW_BOOL, WW_U8, WW_I8, WW_I16, WW_I32, WW_I64, WW_F16, WW_BF16, WW_F32, WW_F64 };
	int ia = 0, ib = 0;

	if (a == b)
		return a;
	if ((a == WW_F16 && b == WW_BF16) || (a == WW_BF16 && b == WW_F16))
		return WW_F32;
	if ((a == WW_U8 && b == WW_I8) || (a == WW_I8 && b == WW_U8))
		return WW_I16;
	for (int i = 0; i < (int)WW_ARRAY_LEN(order); i++) {
		ia = order[i] == a ? i : ia;
		ib = order[i] == b ? i : ib;
	}
	return ia > ib ? a : b;
}

struct val *pl_val(struct pl *pl, enum vkind kind, int dt, int rank, const struct ix *const *size)
{
	struct val *v = pl_alloc(pl, sizeof(*v));

	if (pl->n_val >= PL_MAX_VALS)
		pl_fail(pl, "the graph has more than %d values", PL_MAX_VALS);
	if (rank > PL_MAX_RANK)
		pl_fail(pl, "a tensor has more than %d dimensions", PL_MAX_RANK);
	v->id = pl->n_val++;
	v->kind = kind;
	v->dt = dt;
	v->rank = rank;
	v->node = pl->lowering;
	for (int d = 0; d < rank; d++)
		v->size[d] = pl_named_size(pl, size[d]);
	return v;
}

struct val *pl_constf(struct pl *pl, int dt, double f)
{
	struct val *v = pl_val(pl, V_CONST, dt, 0, NULL);

	v->f = f;
	v->i = (int64_t)f;
	return v;
}

struct val *pl_consti(struct pl *pl, int dt, int64_t i)
{
	struct val *v = pl_val(pl, V_CONST, dt, 0, NULL);

	v->f = (double)i;
	v->i = i;
	return v;
}

const struct ix *pl_numel(struct pl *pl, const struct val *a)
{
	const struct ix *n = ix_const(pl, 1);

	for (int d = 0; d < a->rank; d++)
		n = ix_mul(pl, n, a->size[d]);
	return n;
}

const char *pl_node_name(const struct val *v) { return v->node ? v->node->name : "?"; }

int64_t pl_numel_now(const struct val *a)
{
	int64_t n = 1;

	for (int d = 0; d < a->rank; d++)
		n = ix_times(n, ix_num(a->size[d]));
	return n;
}

int64_t pl_buf_numel(const struct buf *b)
{
	int64_t n = 1;

	for (int d = 0; d < b->rank; d++)
		n = ix_times(n, ix_num(b->size[d]));
	return n;
}

int64_t pl_buf_bytes(const struct buf *b) { return pl_buf_numel(b) * pl_itemsize(b->dt); }

static struct val *with_arg(struct val *v, struct val *a)
{
	v->arg[v->n_arg++] = a;
	return v;
}

struct val *pl_view_if(struct pl *pl, struct val *a, int rank, const struct ix *const *size,
	const struct ix *const *map, const struct ix *cond, double fill)
{
	struct val *v;

	if (a->kind == V_CONST && !cond)
		return a;
	v = with_arg(pl_val(pl, V_VIEW, a->dt, rank, size), a);
	for (int d = 0; d < a->rank; d++)
		v->map[d] = map[d];
	v->cond = cond && ix_is(cond, 1) ? NULL : cond;
	v->fill = fill;
	return v;
}

struct val *pl_view(struct pl *pl, struct val *a, int rank, const struct ix *const *size, const struct ix *const *map)
{
	return pl_view_if(pl, a, rank, size, map, NULL, 0);
}

struct val *pl_expand(struct pl *pl, struct val *a, int rank, const struct ix *const *size)
{
	const struct ix *map[PL_MAX_RANK];
	int same = a->rank == rank;

	if (a->kind == V_CONST)
		return a;
	if (a->rank > rank)
		pl_fail(pl, "cannot broadcast %d dimensions to %d (node %s)", a->rank, rank, pl_node_name(a));
	for (int d = 0; d < a->rank; d++) {
		int o = d + rank - a->rank;

		if (ix_is(a->size[d], 1) && !ix_is(size[o], 1)) {
			map[d] = ix_const(pl, 0);
			same = 0;
		} else {
			pl_guard_eq(pl, a->size[d], size[o], "sizes that must be equal for broadcasting");
			map[d] = pl->place[o];
		}
	}
	return same ? a : pl_view(pl, a, rank, size, map);
}

/* The broadcast shape of two values.  A size that comes from an input is kept before a plain number. */
static int broadcast(struct pl *pl, struct val *a, struct val *b, const struct ix **size)
{
	int rank = a->rank > b->rank ? a->rank : b->rank;

	for (int d = 0; d < rank; d++) {
		int da = d - (rank - a->rank), db = d - (rank - b->rank);
		const struct ix *x = da >= 0 ? a->size[da] : ix_const(pl, 1), *y = db >= 0 ? b->size[db] : ix_const(pl, 1);
		int64_t c;

		size[d] = ix_is(x, 1) ? y : ix_is(y, 1) ? x : ix_is_const(x, &c) ? y : x;
	}
	return rank;
}

struct val *pl_cast(struct pl *pl, struct val *a, int dt)
{
	struct val *v;

	if (a->dt == dt)
		return a;
	if (a->kind == V_CONST) {
		v = pl_constf(pl, dt, dt == WW_BOOL ? a->f != 0 : a->f);
		v->i = dt == WW_BOOL ? a->f != 0 : pl_is_float(a->dt) ? (int64_t)a->f : a->i;
		v->f = pl_is_float(dt) ? v->f : (double)v->i;
		return v;
	}
	v = with_arg(pl_val(pl, V_OP, dt, a->rank, a->size), a);
	v->op = OP_CAST;
	return v;
}

/* v is a part of an exponent: so are the convolutions that it is made of, element by element.  Not what is bounded (of
 * an elu, a mish, a softplus). */
static void is_exponent(struct val *v)
{
	if (v->exponent || v->kind == V_RED || (v->kind == V_OP && (v->op == OP_MINIMUM || v->op == OP_ABS)))
		return;
	v->exponent = 1;
	if (v->kind == V_ANCHOR && v->anchor->kind == S_CONV)
		v->anchor->conv.exponent = 1;
	for (int i = 0; i < v->n_arg; i++)
		is_exponent(v->arg[i]);
}

struct val *pl_op1(struct pl *pl, enum pl_op op, struct val *a)
{
	struct val *v = with_arg(pl_val(pl, V_OP, pl_ops[op].boolean ? WW_BOOL : a->dt, a->rank, a->size), a);

	v->op = op;
	if (op == OP_EXP || op == OP_EXP2 || op == OP_EXPM1 || op == OP_SINH || op == OP_COSH)
		is_exponent(a);
	return v;
}

struct val *pl_op2(struct pl *pl, enum pl_op op, struct val *a, struct val *b)
{
	const struct ix *size[PL_MAX_RANK];
	int rank = broadcast(pl, a, b, size);
	int dt = a->kind == V_CONST && b->kind != V_CONST && !pl_is_float(a->dt) ? b->dt
		: b->kind == V_CONST && a->kind != V_CONST && !pl_is_float(b->dt)    ? a->dt
		: a->kind == V_CONST && b->kind != V_CONST && pl_is_float(b->dt)     ? b->dt
		: b->kind == V_CONST && a->kind != V_CONST && pl_is_float(a->dt)     ? a->dt
																			 : pl_promote(a->dt, b->dt);
	struct val *v;

	if (op == OP_LAND || op == OP_LOR || op == OP_LXOR)
		dt = WW_BOOL;
	a = pl_expand(pl, pl_cast(pl, a, dt), rank, size);
	b = pl_expand(pl, pl_cast(pl, b, dt), rank, size);
	v = with_arg(with_arg(pl_val(pl, V_OP, pl_ops[op].boolean ? WW_BOOL : dt, rank, size), a), b);
	v->op = op;
	return v;
}

struct val *pl_where(struct pl *pl, struct val *c, struct val *a, struct val *b)
{
	const struct ix *size[PL_MAX_RANK], *all[PL_MAX_RANK];
	int dt = a->kind == V_CONST && b->kind != V_CONST ? b->dt
		: b->kind == V_CONST && a->kind != V_CONST    ? a->dt
													  : pl_promote(a->dt, b->dt);
	struct val shape = { 0 }, *v;
	int rank = broadcast(pl, a, b, size);

	shape.rank = rank;
	memcpy(shape.size, size, sizeof(size));
	rank = broadcast(pl, c, &shape, all);
	v = pl_val(pl, V_OP, dt, rank, all);
	with_arg(v, pl_expand(pl, pl_cast(pl, c, WW_BOOL), rank, all));
	with_arg(v, pl_expand(pl, pl_cast(pl, a, dt), rank, all));
	with_arg(v, pl_expand(pl, pl_cast(pl, b, dt), rank, all));
	v->op = OP_WHERE;
	return v;
}

struct val *pl_permute(struct pl *pl, struct val *a, const int *perm)
{
	const struct ix *size[PL_MAX_RANK], *map[PL_MAX_RANK];
	int same = 1;

	for (int d = 0; d < a->rank; d++) {
		size[d] = a->size[perm[d]];
		map[perm[d]] = pl->place[d];
		same &= perm[d] == d;
	}
	return same ? a : pl_view(pl, a, a->rank, size, map);
}

/* Index of the dimensions from..to-1 of a shape for the position `lin` among them. */
static void unravel(
	struct pl *pl, const struct ix *lin, const struct ix *const *size, int from, int to, const struct ix **map)
{
	for (int d = to - 1; d >= from; d--) { /* one size at a time: what is left simplifies */
		map[d] = d == from ? lin : ix_mod(pl, lin, size[d]);
		lin = ix_div(pl, lin, size[d]);
	}
}

const struct ix *pl_ravel(struct pl *pl, const struct ix *const *idx, const struct ix *const *size, int from, int to)
{
	const struct ix *lin = ix_const(pl, 0);

	for (int d = from; d < to; d++)
		lin = ix_add(pl, ix_mul(pl, lin, size[d]), idx[d]);
	return lin;
}

/* Reshape, group by group: [B, T, C] to [B, T, H, D] only takes C apart. */
struct val *pl_reshape(struct pl *pl, struct val *a, int rank, const struct ix *const *size)
{
	const struct ix *map[PL_MAX_RANK], *na = ix_const(pl, 1), *nb = na;
	int i = 0, j = 0, i0 = 0, j0 = 0, same = rank == a->rank;

	for (int d = 0; same && d < rank; d++)
		same = ix_same(a->size[d], size[d]);
	if (same)
		return a;
	if (!pl_numel_now(a)) { /* no element is read: any place will do */
		for (int d = 0; d < rank; d++)
			nb = ix_mul(pl, nb, size[d]);
		pl_guard_eq(pl, pl_numel(pl, a), nb, "the numbers of elements of a reshape");
		for (int d = 0; d < a->rank; d++)
			map[d] = ix_const(pl, 0);
		return pl_view(pl, a, rank, size, map);
	}
	while (i < a->rank || j < rank) {
		int64_t va = ix_num(na), vb = ix_num(nb);

		if (va == vb && (i > i0 || j > j0) && i > i0 && j > j0) {
			pl_guard_eq(pl, na, nb, "the numbers of elements of a reshape");
			unravel(pl, pl_ravel(pl, pl->place, size, j0, j), a->size, i0, i, map);
			i0 = i;
			j0 = j;
			na = nb = ix_const(pl, 1);
		} else if (i < a->rank && (va < vb || j == rank || (va == vb && i == i0))) {
			na = ix_mul(pl, na, a->size[i++]);
		} else if (j < rank) {
			nb = ix_mul(pl, nb, size[j++]);
		} else {
			pl_fail(pl, "a reshape changes the number of elements (node %s)", pl_node_name(a));
		}
	}
	pl_guard_eq(pl, na, nb, "the numbers of elements of a reshape");
	if (i > i0)
		unravel(pl, pl_ravel(pl, pl->place, size, j0, j), a->size, i0, i, map);
	return pl_view(pl, a, rank, size, map);
}

struct val *pl_slice(struct pl *pl, struct val *a, int dim, const struct ix *start, const struct ix *size, int64_t step)
{
	const struct ix *s[PL_MAX_RANK], *map[PL_MAX_RANK];

	for (int d = 0; d < a->rank; d++) {
		s[d] = d == dim ? size : a->size[d];
		map[d] = d == dim ? ix_add(pl, start, ix_mulc(pl, pl->place[d], step)) : pl->place[d];
	}
	return pl_view(pl, a, a->rank, s, map);
}

struct val *pl_select(struct pl *pl, struct val *a, int dim, const struct ix *at)
{
	const struct ix *s[PL_MAX_RANK], *map[PL_MAX_RANK];
	int n = 0;

	for (int d = 0; d < a->rank; d++) {
		if (d == dim) {
			map[d] = at;
		} else {
			map[d] = pl->place[n];
			s[n++] = a->size[d];
		}
	}
	return pl_view(pl, a, n, s, map);
}

struct val *pl_unsqueeze(struct pl *pl, struct val *a, int dim)
{
	const struct ix *s[PL_MAX_RANK], *map[PL_MAX_RANK];

	if (a->rank >= PL_MAX_RANK)
		pl_fail(pl, "more than %d dimensions", PL_MAX_RANK);
	for (int d = 0, o = 0; d <= a->rank; d++) {
		s[d] = d == dim ? ix_const(pl, 1) : a->size[o];
		if (d != dim)
			map[o++] = pl->place[d];
	}
	return pl_view(pl, a, a->rank + 1, s, map);
}

struct val *pl_squeeze(struct pl *pl, struct val *a, int dim) { return pl_select(pl, a, dim, ix_const(pl, 0)); }

struct val *pl_index(struct pl *pl, int dt, int rank, const struct ix *const *size, const struct ix *over_place)
{
	struct val *v = pl_val(pl, V_INDEX, dt, rank, size);

	v->index = over_place;
	return v;
}

static struct val *red_last(struct pl *pl, enum pl_red red, struct val *a, int nred)
{
	struct val *v = with_arg(pl_val(pl, V_RED, red >= RED_ARGMAX ? WW_I64 : a->dt, a->rank - nred, a->size), a);

	v->red = red;
	v->nred = nred;
	return v;
}

int pl_goes_by_one(struct pl *pl, const struct ix *map, int d)
{
	const struct ix *coef, *rest;

	return ix_affine(pl, map, ix_as_var(pl->place[d]), &coef, &rest) && ix_is(coef, 1);
}

/* Is v contiguous along dimension d by at least one operand, as far as is known before anything is stored? */
int pl_is_innermost(struct pl *pl, const struct val *v, int d)
{
	if (v->root || v->kind == V_BUF || v->kind == V_RED || v->kind == V_ANCHOR)
		return d == (v->last ? 1 : v->rank - 1);
	for (int i = 0; i < v->n_arg; i++) {
		const struct val *a = v->arg[i];

		if (v->kind == V_OP && a->rank == v->rank && pl_is_innermost(pl, a, d))
			return 1;
		for (int e = 0; v->kind == V_VIEW && e < a->rank; e++)
			if (pl_goes_by_one(pl, v->map[e], d) && pl_is_innermost(pl, a, e))
				return 1;
	}
	return 0;
}

static int steps_by_one(const struct val *v, int d)
{
	return v->root && !v->root->contiguous ? ix_is(v->root->stride[d], 1) : d == (v->last ? 1 : v->rank - 1);
}

/* The largest of what v is computed from: its elements, and whether memory runs along dimension d (-1: v has it not).
 * left: values to look at; an expression may share its parts. */
static int64_t largest(struct pl *pl, const struct val *v, int d, int *along, int *left)
{
	int64_t most = 0;

	*along = 0;
	if (--*left < 0)
		return 0;
	if (v->root || v->kind == V_BUF || v->kind == V_RED || v->kind == V_ANCHOR) {
		*along = d >= 0 && steps_by_one(v, d);
		return pl_numel_now(v);
	}
	for (int i = 0; i < v->n_arg; i++) {
		const struct val *a = v->arg[i];
		int is, e = v->kind == V_OP && a->rank == v->rank ? d : -1;
		int64_t n;

		for (int m = 0; v->kind == V_VIEW && d >= 0 && m < a->rank; m++)
			e = pl_goes_by_one(pl, v->map[m], d) ? m : e;
		n = largest(pl, a, e, &is, left);
		if (n > most) {
			most = n;
			*along = is;
		}
	}
	return most;
}

int pl_most_along(struct pl *pl, const struct val *v, int d)
{
	int along, left = 1000;

	return largest(pl, v, d, &along, &left) > 0 && along;
}

/* The dimensions of a value, as bits, that memory runs along in all of n tensors of its size. */
struct orders {
	int64_t numel;
	unsigned common;
	int n, left;
};

/* Of the tensors that v is computed of, as far as it is known how they lie; dim: the dimension of the value above that
 * each of v's is, or -1. */
static void find_orders(struct pl *pl, const struct val *v, const int *dim, struct orders *o)
{
	if (--o->left < 0)
		return;
	if (v->root || v->kind == V_BUF || v->kind == V_RED || v->kind == V_ANCHOR) {
		unsigned along = 0;

		if (pl_numel_now(v) != o->numel || (!v->root && v->kind != V_BUF))
			return;
		for (int d = 0; d < v->rank; d++)
			if (dim[d] >= 0 && steps_by_one(v, d))
				along |= 1u << dim[d];
		o->common &= along;
		o->n++;
		return;
	}
	for (int i = 0; i < v->n_arg; i++) {
		const struct val *a = v->arg[i];
		int of[PL_MAX_RANK];

		for (int e = 0; e < a->rank; e++) {
			of[e] = v->kind == V_OP && a->rank == v->rank ? dim[e] : -1;
			for (int d = 0; v->kind == V_VIEW && d < v->rank; d++)
				if (dim[d] >= 0 && pl_goes_by_one(pl, v->map[e], d))
					of[e] = dim[d];
		}
		find_orders(pl, a, of, o);
	}
}

int pl_lies_both_ways(struct pl *pl, const struct val *v)
{
	struct orders o = { .numel = pl_numel_now(v), .common = ~0u, .left = 1000 };
	int dim[PL_MAX_RANK];

	for (int d = 0; d < v->rank; d++)
		dim[d] = d;
	if (!v->root)
		find_orders(pl, v, dim, &o);
	return o.n > 1 && !o.common;
}

/* Rows along memory, of which eight blocks each keep half of the machine busy and hold all in their registers: one
 * kernel reads them once, and does what is made of the result there as well.  Parts cost a launch each, and one more
 * where their sum is used. */
static int fits_clusters(struct pl *pl, const struct val *a, int64_t rows, int64_t cols)
{
	return pl->target == WW_TARGET_CUDA && pl->dev.cc >= 90 && pl_is_float(a->dt) && a->dt != WW_F64 &&
		rows * 16 >= pl->dev.sm_count && cols <= 262144 && pl_is_innermost(pl, a, a->rank - 1);
}

/* Rows in pieces of memory (a batch norm's), so long that a cluster would hold each, and beyond what the second level
 * still has: while the blocks of a cluster waited for each other memory was busy for a third of the time (1.3 to 1.75
 * MB/us, nine batch norms of fp32 on an H200), half of it in 16 bits.  In parts they are read twice at 4 MB/us. */
static int is_streamed(const struct pl *pl, const struct val *a, int64_t rows, int64_t cols)
{
	enum { LARGE = 1 << 25, HELD = 16384 };

	return pl->target == WW_TARGET_CUDA && (a->dt == WW_F32 || pl_is_half(a->dt)) && cols > HELD &&
		rows * cols * pl_itemsize(a->dt) >= LARGE;
}

/* Dimension d as two, the outer one of `parts`, which divide its size. */
static struct val *two_from_one(struct pl *pl, struct val *a, int d, int64_t parts)
{
	const struct ix *size[PL_MAX_RANK + 1], *n = ix_const(pl, parts);

	for (int e = 0; e <= a->rank; e++)
		size[e] = a->size[e - (e > d)];
	size[d] = n;
	size[d + 1] = ix_div(pl, a->size[d], n);
	return pl_reshape(pl, a, a->rank + 1, size);
}

/* Reduced dimension d as two, the outer one of which has as many parts as leave `least` of its elements each. */
static struct val *parted(struct pl *pl, struct val *a, int d, int64_t most, int64_t least)
{
	int64_t n = ix_num(a->size[d]), parts = ww_min(most, n / least);

	while (parts > 1 && n % parts)
		parts--;
	return parts < 2 || a->rank >= PL_MAX_RANK ? NULL : two_from_one(pl, a, d, parts);
}

static struct val *split(struct pl *pl, enum pl_red red, struct val *a, int nred, int apart, int exact);

/* Where `part` (parted()) has few of the parts that were asked for, or is NULL, as of a prime: the reduction of the
 * most elements of dimension d that nearly so many parts divide, as split() makes it, and of the few that are
 * left, which the kernel that adds the parts reads itself.  So no part has a bound of its own.  A part has a multiple
 * of `unit` elements.  NULL: parted() does well, or so few elements that a kernel more takes longer. */
static struct val *nearly_parted(struct pl *pl, enum pl_red red, struct val *a, int nred, int apart,
	const struct val *part, int d, int64_t most, int64_t least, int64_t unit)
{
	static const enum pl_op both[] = {
		[RED_SUM] = OP_ADD, [RED_PROD] = OP_MUL, [RED_MAX] = OP_MAXIMUM, [RED_MIN] = OP_MINIMUM
	};
	enum { PER_THREAD = 16 }; /* more that are left would have a kernel of their own */
	int64_t n = ix_num(a->size[d]), parts = ww_min(most, n / least), left = n;
	const struct ix *whole;
	struct val *v, *rest;

	if (parts < 2 || a->rank >= PL_MAX_RANK || (part && ix_num(part->size[d]) * 4 >= parts))
		return NULL;
	for (int64_t k = parts; k > 1 && k >= parts - parts / 2; k--)
		left = ww_min(left, n % (k * unit));
	if (!left || left > PER_THREAD || n - left < 64 * least)
		return NULL;
	whole = ix_const(pl, n - left);
	pl_guard_eq(pl, a->size[d], ix_const(pl, n), "the length of a reduction of parts and a few elements more");
	v = split(pl, red, pl_slice(pl, a, d, ix_const(pl, 0), whole, 1), nred, apart, 1);
	rest = pl_slice(pl, a, d, whole, ix_const(pl, left), 1);
	return pl_op2(pl, both[red], v, red_last(pl, red, rest, nred));
}

/* A part's elements stay in registers from the sum to the squares: 32 each of 16 threads, so that a multiprocessor has
 * several blocks, one of which loads while another adds. */
enum { PART_THREADS = 16, PART = PART_THREADS * 32 };

/* How many threads share a part. */
static int64_t part_threads(int64_t part) { return ww_min(PART_THREADS, part / PART_THREADS); }

/* Dimension d, the last one that parts are of, as two, where so many parts keep threads busy that each may be of
 * several of its elements, `inner` further ones each: a second kernel with few rows waits for one part after the other
 * (24 rows of 12,160 parts: 53 us, H200). */
static struct val *fewer_parts(struct pl *pl, struct val *a, int d, int64_t parts, int64_t inner, int64_t threads)
{
	int64_t n = ix_num(a->size[d]), k = 2;

	for (; k < n; k++) {
		int64_t part = n / k * inner;

		if (n % k == 0 && part <= PART && parts / n * k * part_threads(part) >= threads)
			break;
	}
	return k >= n || a->rank >= PL_MAX_RANK ? a : two_from_one(pl, a, d, k);
}

/* Rows side by side in memory, dimension `lane`, each much longer than there are threads for them: parts of some outer
 * reduced dimensions, stored with the lane innermost so that parts and their sums are read as whole lines. */
static struct val *lines(struct pl *pl, enum pl_red red, struct val *a, int nred, int lane)
{
	int first = a->rank - nred, perm[PL_MAX_RANK], back[PL_MAX_RANK], k = 1, n = 0;
	int64_t threads = 512LL * (pl->dev.sm_count > 0 ? pl->dev.sm_count : 132), parts = 1, inner = 1;
	struct val *v;

	for (int d = 0; d < first; d++)
		parts *= ix_num(a->size[d]);
	for (int d = first; d < a->rank; d++)
		inner *= ix_num(a->size[d]);
	for (;; k++) {
		parts *= ix_num(a->size[first + k - 1]);
		inner /= ix_num(a->size[first + k - 1]);
		if (k == nred - 1 || parts >= threads || (inner <= PART && 2 * parts * part_threads(inner) >= threads))
			break;
	}
	a = parts < threads ? a : fewer_parts(pl, a, first + k - 1, parts, inner, 2 * threads);
	nred = a->rank - first;
	for (int d = 0; d < first + k; d++)
		if (d != lane)
			perm[n++] = d;
	perm[n++] = lane;
	while (n < a->rank)
		perm[n] = n, n++;
	v = red_last(pl, red, pl_permute(pl, a, perm), nred - k);
	v->force_root = 1;
	for (int d = 0; d < first + k; d++)
		back[d] = d == lane ? first + k - 1 : d - (d > lane);
	return red_last(pl, red, pl_permute(pl, v, back), k);
}

/* Rows side by side in memory (a batch norm's channels-last) that the threads of a block hold, 32 bytes of each
 * element: a second kernel and a third, of what is made of the sums, take longer than the few multiprocessors that then
 * read all of it.  Not so where a row is longer than ROW_BYTES: of 20 KB, 4,901 floats of each of 128 to 512 channels,
 * it takes longer than the three. */
static int is_one_column(const struct pl *pl, const struct val *a, int64_t rows, int64_t cols)
{
	enum { ROW_BYTES = 10 << 10 };

	return pl->target == WW_TARGET_CUDA && (a->dt == WW_F32 || pl_is_half(a->dt)) && rows >= 32 &&
		cols * pl_itemsize(a->dt) <= ROW_BYTES && pl_fits_down(pl, rows, cols, 1);
}

/* Too few results to keep the machine busy, too much work for each: reduce in two kernels.  The parts are the outer
 * reduced dimensions, or a split of the only one.  apart: dimensions of the results lie between these.
 * exact: not where the parts would not be equal. */
static struct val *split(struct pl *pl, enum pl_red red, struct val *a, int nred, int apart, int exact)
{
	int64_t rows = 1, cols = 1,
			want = pl->target == WW_TARGET_CUDA ? 2 * (pl->dev.sm_count > 0 ? pl->dev.sm_count : 132) : 8;
	int64_t threads = 32LL * (pl->dev.sm_count > 0 ? pl->dev.sm_count : 132);
	enum { HELD = 262144 }; /* elements that the registers of a cluster hold */
	struct val *v = NULL, *part;
	/* not products: of factors close to 1 the error depends on the order */
	int first = a->rank - nred, ordered = red == RED_PROD || pl->target != WW_TARGET_CUDA;

	for (int d = 0; d < a->rank; d++)
		*(d < first ? &rows : &cols) = ix_times(d < first ? rows : cols, ix_num(a->size[d]));
	for (int d = 0; d < first && pl->target == WW_TARGET_CUDA; d++)
		if (red < RED_ARGMAX && rows > 0 && rows < threads && cols >= 1024 && pl_most_along(pl, a, d)) {
			int64_t outer = rows * (cols / ix_num(a->size[a->rank - 1]));

			if (apart && is_one_column(pl, a, rows, cols))
				return red_last(pl, red, a, nred);
			part = outer < 8 * threads ? parted(pl, a, a->rank - 1, 16 * threads / outer, 32) : NULL;
			/* several dimensions have parts already, and squares about the mean of each */
			if (!exact && outer < (nred == 1 ? 2 * threads : threads / 8) && !is_one_column(pl, a, rows, cols))
				v = nearly_parted(pl, red, a, nred, apart, part, a->rank - 1, 16 * threads / outer, 32, 1);
			if (v)
				return v;
			if (part || nred > 1)
				return lines(pl, red, part ? part : a, nred + (part != NULL), d);
		}
	if (red >= RED_ARGMAX || cols < (pl->target == WW_TARGET_CUDA ? 16384 : 32768) ||
		((rows >= want || fits_clusters(pl, a, rows, cols)) && !(apart && is_streamed(pl, a, rows, cols))))
		return red_last(pl, red, a, nred);
	if (nred > 1) {
		enum { SHORT = 128 }; /* elements of a part of each row, which are read in less than twice that time */
		int64_t outer = 1;
		int k = 1;

		for (k = 1; k < nred; k++) {
			outer *= ix_num(a->size[first + k - 1]);
			if (rows * outer >= want)
				break;
		}
		if (k < nred) {
			int64_t inner = cols / outer;
			int d = first + k - 1;

			/* one block adds 1,024 parts in the time that memory takes for some 90,000 elements */
			if (!ordered && outer > HELD && rows * inner <= SHORT) {
				int64_t most = 2 * want / (outer / ix_num(a->size[d]));

				part = parted(pl, a, d, most, 1);
				v = exact ? NULL : nearly_parted(pl, red, a, nred, apart, part, d, most, 1, inner % 8 ? 8 : 1);
				if (v)
					return v;
				if (part && ix_num(part->size[d]) * 4 >= most) {
					a = part;
					nred++;
				}
			}
			v = red_last(pl, red, a, nred - k);
			v->force_root = 1;
			return red_last(pl, red, v, k);
		}
	}
	part = parted(pl, a, a->rank - 1, want * 2, 1024);
	/* what a cluster does not hold, but its rows of the last dimension: these are the parts */
	if (!ordered && !part && nred > 1 && cols > HELD && ix_num(a->size[a->rank - 1]) <= HELD && pl->dev.cc >= 90 &&
		rows * cols / ix_num(a->size[a->rank - 1]) * 16 >= pl->dev.sm_count) {
		v = red_last(pl, red, a, 1);
		v->force_root = 1;
		return red_last(pl, red, v, nred - 1);
	}
	/* one kernel of a shorter row is as fast as several with its parts */
	if (!exact && pl->target == WW_TARGET_CUDA && (nred == 1 || !ordered) && ix_num(a->size[a->rank - 1]) > HELD)
		v = nearly_parted(pl, red, a, nred, apart, part, a->rank - 1, want * 2, 1024, 8);
	if (v)
		return v;
	if (!part)
		return red_last(pl, red, a, nred);
	a = part;
	v = red_last(pl, red, a, 1);
	v->force_root = 1;
	return red_last(pl, red, v, nred);
}

/* exact: in equal parts or in none. */
static struct val *reduce(struct pl *pl, enum pl_red red, struct val *a, unsigned mask, int keepdim, int exact)
{
	int perm[PL_MAX_RANK], n = 0, nred = 0, rank = a->rank, apart = 0;
	unsigned one = 0; /* dimensions of size 1 beside others: nothing to reduce */
	struct val *v;

	if (a->kind == V_CONST)
		pl_fail(pl, "a reduction of a constant");
	for (int d = 0; d < rank; d++)
		one |= (mask >> d & 1 && ix_is(a->size[d], 1) ? 1u : 0u) << d;
	if (one && one != mask) {
		v = reduce(pl, red, a, mask & ~one, 1, exact);
		for (int d = rank - 1; d >= 0 && !keepdim; d--)
			if (mask >> d & 1)
				v = pl_squeeze(pl, v, d);
		return v;
	}
	for (int d = 0; d < rank; d++)
		if (!(mask >> d & 1)) {
			perm[n++] = d;
			apart |= (mask & ((1u << d) - 1)) && mask >> d;
		}
	for (int d = 0; d < rank; d++)
		if (mask >> d & 1) {
			perm[n++] = d;
			nred++;
		}
	v = nred ? split(pl, red, pl_permute(pl, a, perm), nred, apart, exact) : a;
	for (int d = 0; keepdim && d < rank; d++)
		if (mask >> d & 1)
			v = pl_unsqueeze(pl, v, d);
	return v;
}

struct val *pl_reduce(struct pl *pl, enum pl_red red, struct val *a, unsigned mask, int keepdim)
{
	return reduce(pl, red, a, mask, keepdim, 0);
}

struct val *pl_reduce_beside(struct pl *pl, enum pl_red red, struct val *a, unsigned mask, int keepdim)
{
	return reduce(pl, red, a, mask, keepdim, 1);
}

struct val *pl_same_views(struct pl *pl, const struct val *from, const struct val *to, struct val *v)
{
	if (from == to)
		return v;
	return pl_view(pl, pl_same_views(pl, from->arg[0], to, v), from->rank, from->size, from->map);
}

/* v, one value for each result of a reduction of x, at each element of x. */
static struct val *at_elements(struct pl *pl, struct val *v, const struct val *x)
{
	while (v->rank < x->rank)
		v = pl_unsqueeze(pl, v, v->rank);
	return pl_expand(pl, v, x->rank, x->size);
}

static struct val *behind_views(struct val *v)
{
	while (v->kind == V_VIEW && !v->cond && !v->root)
		v = v->arg[0];
	return v;
}

/* How many elements one result of r sums. */
static struct val *summed(struct pl *pl, const struct val *r)
{
	const struct ix *n = ix_const(pl, 1);

	for (int d = r->rank; d < r->arg[0]->rank; d++)
		n = ix_mul(pl, n, r->arg[0]->size[d]);
	return pl_cast(pl, pl_index(pl, WW_I64, 0, NULL, n), r->dt);
}

/* Rows that no block and no cluster holds in registers, in parts that one does: of the outer reduced dimensions. */
static struct val *parts_of_rows(struct pl *pl, const struct val *all)
{
	struct val *x = all->arg[0], *parts;
	int64_t cols = ix_num(x->size[x->rank - 1]);
	int k = all->nred - 1;

	while (k > 0 && cols * ix_num(x->size[all->rank + k - 1]) <= 32768)
		cols *= ix_num(x->size[all->rank + --k]);
	if (!k || cols < 1024 || cols > 262144 || !pl_is_innermost(pl, x, x->rank - 1) || !pl_numel_now(all) ||
		pl_numel_now(x) / pl_numel_now(all) <= 262144)
		return NULL;
	parts = red_last(pl, RED_SUM, x, all->nred - k);
	parts->force_root = 1;
	return red_last(pl, RED_SUM, parts, k);
}

/* Is v the sums of parts, of which another reduction makes the sum of all? */
static int is_parts(const struct val *v) { return v->kind == V_RED && v->red == RED_SUM && v->force_root; }

/* The squares of what r sums, each about the mean of its sum; *terms: how many elements of x one result has. */
static struct val *squares(struct pl *pl, struct val *r, struct val **terms)
{
	struct val *parts = behind_views(r->arg[0]), *x = r->arg[0], *n = summed(pl, r), *each = NULL, *m2 = NULL, *d;

	if (is_parts(parts)) {
		m2 = squares(pl, parts, &each);
		n = pl_op2(pl, OP_MUL, each, n);
		x = pl_op2(pl, OP_DIV, x, each);
	}
	d = pl_op2(pl, OP_SUB, x, at_elements(pl, pl_op2(pl, OP_DIV, r, n), r->arg[0]));
	d = pl_op2(pl, OP_MUL, d, d);
	if (m2)
		d = pl_op2(pl, OP_ADD, pl_same_views(pl, r->arg[0], parts, m2), pl_op2(pl, OP_MUL, d, each));
	*terms = n;
	d = red_last(pl, RED_SUM, d, r->nred);
	d->force_root = r->force_root;
	return d;
}

/* Sums of parts, each about its own mean, and what the parts' means differ by (Chan, Golub, LeVeque): one pass over
 * memory in place of one for the mean and one for the squares. */
struct val *pl_centred_parts(struct pl *pl, struct val **sum)
{
	struct val *all = behind_views(*sum), *n;

	if (pl->target != WW_TARGET_CUDA || !pl_is_float((*sum)->dt) || (*sum)->dt == WW_F64 || all->kind != V_RED ||
		all->red != RED_SUM)
		return NULL;
	if (!is_parts(behind_views(all->arg[0]))) {
		struct val *again = parts_of_rows(pl, all);

		if (!again)
			return NULL;
		*sum = pl_same_views(pl, *sum, all, again);
		all = again;
	}
	return pl_same_views(pl, *sum, all, squares(pl, all, &n));
}

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

void pl_contiguous(struct pl *pl, int rank, const struct ix *const *size, const struct ix **stride)
{
	const struct ix *s = ix_const(pl, 1);

	for (int d = rank - 1; d >= 0; d--) {
		stride[d] = s;
		s = ix_mul(pl, s, size[d]);
	}
}

void pl_channels_last(struct pl *pl, int rank, const struct ix *const *size, const struct ix **stride)
{
	const struct ix *s = size[1];

	stride[1] = ix_const(pl, 1);
	for (int d = rank - 1; d >= 0; d--)
		if (d != 1) {
			stride[d] = s;
			s = ix_mul(pl, s, size[d]);
		}
}

struct buf *pl_buf(struct pl *pl, enum bkind kind, int dt, int rank, const struct ix *const *size)
{
	struct buf *b = pl_alloc(pl, sizeof(*b));

	if (pl->n_buf >= PL_MAX_BUFS)
		pl_fail(pl, "more than %d buffers", PL_MAX_BUFS);
	b->kind = kind;
	b->dt = dt;
	b->rank = rank;
	for (int d = 0; d < rank; d++)
		b->size[d] = size[d];
	pl_contiguous(pl, rank, size, b->stride);
	b->contiguous = 1;
	if (kind == B_SCRATCH) {
		b->index = pl->n_scratch++;
		b->name = pl_fmt(pl, "t%d", b->index);
	}
	pl->buf[pl->n_buf++] = b;
	return b;
}

const struct ix *pl_offset(struct pl *pl, const struct buf *b, const struct ix *const *idx)
{
	const struct ix *off = b->at ? b->at : ix_const(pl, 0);

	for (int d = 0; d < b->rank; d++)
		if (!ix_is(b->size[d] ? b->size[d] : b->stride[d], 1) || !b->size[d] || ix_varies(idx[d]))
			off = ix_add(pl, off, ix_mul(pl, idx[d], b->stride[d]));
	return off;
}

const struct ix *pl_of_var(struct pl *pl, const struct ix_atom *v)
{
	struct ix *x = pl_alloc(pl, sizeof(*x) + sizeof(x->m[0]));

	x->n = 1;
	x->m[0].c = 1;
	x->m[0].n = 1;
	x->m[0].atom[0] = v;
	return x;
}
