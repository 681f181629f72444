/* create.c - operators that make a tensor from numbers: full, arange, linspace, eye, tril_indices. */
#include "policy/planner/lower/lower.h"

/* A tensor of one constant, of the recorded shape. */
static struct val *filled(struct pl *pl, struct gnode *n, double f)
{
	const struct ix *size[PL_MAX_RANK];
	struct val *c = pl_constf(pl, n->meta[0].dt, f), *z;

	for (int d = 0; d < n->meta[0].rank; d++)
		size[d] = ix_const(pl, n->meta[0].size[d]);
	z = pl_index(pl, WW_I64, n->meta[0].rank, size, ix_const(pl, 0));
	return pl_where(pl, pl_cast(pl, z, WW_BOOL), c, c);
}

/* zeros, ones: the variant is the number.  full: the variant is the position of fill_value. */
static void constant(struct pl *pl, struct gnode *n) { done(n, filled(pl, n, n->variant)); }

static void full(struct pl *pl, struct gnode *n)
{
	done(n, filled(pl, n, pl_arg_num(pl, n, n->variant, "fill_value", 0)));
}

enum { FROM_0, FROM_START, WITH_STEP };

static void arange(struct pl *pl, struct gnode *n)
{
	const struct ix *size[1] = { ix_const(pl, n->meta[0].size[0]) };
	struct garg *first = pl_arg(n, 0, "start"), *by = pl_arg(n, 2, "step");
	double start = n->variant >= FROM_START ? pl_arg_num(pl, n, 0, "start", 0) : 0,
		   step = n->variant == WITH_STEP ? pl_arg_num(pl, n, 2, "step", 1) : 1;
	int dt = n->meta[0].dt;
	struct val *i;

	if ((n->variant >= FROM_START && first && first->kind == G_FLOAT) ||
		(n->variant == WITH_STEP && by && by->kind == G_FLOAT) || pl_is_float(dt)) {
		i = pl_cast(pl, pl_index(pl, WW_I64, 1, size, pl->place[0]), dt);
		if (step != 1)
			i = pl_op2(pl, OP_MUL, i, pl_constf(pl, dt, step));
		if (start != 0)
			i = pl_op2(pl, OP_ADD, i, pl_constf(pl, dt, start));
		done(n, i);
		return;
	}
	done(n, pl_index(pl, dt, 1, size, ix_addc(pl, ix_mulc(pl, pl->place[0], (int64_t)step), (int64_t)start)));
}

enum { LINEAR, POWERS };

/* linspace and logspace.  As in PyTorch, the first half counts up from the start, the second half down from the end. */
static void linspace(struct pl *pl, struct gnode *n)
{
	const struct ix *size[1] = { ix_const(pl, n->meta[0].size[0]) };
	double a = pl_arg_num(pl, n, 0, "start", 0), b = pl_arg_num(pl, n, 1, "end", 0);
	int64_t steps = n->meta[0].size[0], dt = n->meta[0].dt;
	struct val *up, *down, *v, *i = pl_cast(pl, pl_index(pl, WW_I64, 1, size, pl->place[0]), WW_F64);
	double step = steps > 1 ? (b - a) / (double)(steps - 1) : 0;

	up = pl_op2(pl, OP_ADD, pl_op2(pl, OP_MUL, i, pl_constf(pl, WW_F64, step)), pl_constf(pl, WW_F64, a));
	down = pl_op2(pl, OP_SUB, pl_constf(pl, WW_F64, b),
		pl_op2(pl, OP_MUL, pl_op2(pl, OP_SUB, pl_constf(pl, WW_F64, (double)(steps - 1)), i),
			pl_constf(pl, WW_F64, step)));
	v = pl_where(pl, pl_index(pl, WW_BOOL, 1, size, ix_lt(pl, pl->place[0], ix_const(pl, steps / 2))), up, down);
	if (n->variant == POWERS)
		v = pl_op2(pl, OP_POW, pl_constf(pl, WW_F64, pl_arg_num(pl, n, 3, "base", 10)), v);
	done(n, pl_cast(pl, v, (int)dt));
}

static void eye(struct pl *pl, struct gnode *n)
{
	const struct ix *size[2] = { ix_const(pl, n->meta[0].size[0]), ix_const(pl, n->meta[0].size[1]) };

	done(n,
		pl_cast(pl, pl_index(pl, WW_BOOL, 2, size, ix_eqz(pl, ix_sub(pl, pl->place[0], pl->place[1]), ix_const(pl, 0))),
			n->meta[0].dt));
}

/* tril_indices and triu_indices.  An element's row is a sum over all rows: 1 for each row that ends before it. */
static void tri_indices(struct pl *pl, struct gnode *n)
{
	int64_t rows = pl_arg_int(pl, n, 0, "row", 0), cols = pl_arg_int(pl, n, 1, "col", 0),
			off = pl_arg_int(pl, n, 2, "offset", 0);
	const struct ix *size[2] = { ix_const(pl, 2), ix_const(pl, n->meta[0].size[1]) };
	int lower = n->variant == LOWER_TRIANGLE;
	int64_t before = 0;
	struct val *row = NULL, *col = NULL;

	if (rows > 256)
		pl_cannot(pl, n, "tril_indices and triu_indices are covered up to 256 rows");
	for (int64_t r = 0; r < rows; r++) {
		int64_t from = lower ? 0
			: r + off < 0    ? 0
							 : r + off,
				to = lower ? (r + off + 1 < cols ? r + off + 1 : cols) : cols, len = to > from ? to - from : 0;
		struct val *in, *c;

		if (!len)
			continue;
		in = pl_index(pl, WW_BOOL, 2, size,
			ix_mul(pl, ix_lt(pl, ix_const(pl, before - 1), pl->place[1]),
				ix_lt(pl, pl->place[1], ix_const(pl, before + len))));
		c = pl_index(pl, WW_I64, 2, size, ix_addc(pl, pl->place[1], from - before));
		row = row ? pl_where(pl, in, pl_consti(pl, WW_I64, r), row) : pl_index(pl, WW_I64, 2, size, ix_const(pl, r));
		col = col ? pl_where(pl, in, c, col) : c;
		before += len;
	}
	if (!row)
		pl_cannot(pl, n, "its result has no elements");
	done(n, pl_where(pl, pl_index(pl, WW_BOOL, 2, size, ix_lt(pl, pl->place[0], ix_const(pl, 1))), row, col));
}

const struct pl_lower_row pl_lower_create[] = { { "zeros", constant, 0 }, { "ones", constant, 1 },
	{ "zeros_like", constant, 0 }, { "ones_like", constant, 1 }, { "new_zeros", constant, 0 },
	{ "new_ones", constant, 1 }, { "full", full, 1, PL_ARITHMETIC }, { "full_like", full, 1, PL_ARITHMETIC },
	{ "new_full", full, 2 }, { "scalar_tensor", full, 0 }, { "arange", arange, FROM_0 },
	{ "arange.start", arange, FROM_START }, { "arange.start_step", arange, WITH_STEP },
	{ "linspace", linspace, LINEAR }, { "logspace", linspace, POWERS }, { "eye", eye },
	{ "tril_indices", tri_indices, LOWER_TRIANGLE }, { "triu_indices", tri_indices, UPPER_TRIANGLE }, { NULL, NULL } };
