/* linalg.c - linear algebra of small matrices: Cholesky, triangular solves, inverse, solve, determinant.
 *
 * An elimination is n steps, each a new value of the whole matrix that the next one reads from memory: n kernels (with
 * pivoting 2 n), each over all matrices of the batch.  That suits the sizes that models have, up to MAX_SIDE; a larger
 * one is refused. */
#include "policy/planner/lower/lower.h"

#include <string.h>

enum { MAX_SIDE = 32 };

/* ---- Indices into the matrices of a batch, which are the last two dimensions */

static int side_of(struct pl *pl, struct gnode *n, struct val *a)
{
	int64_t side = a->rank < 2 ? 0 : ix_num(a->size[a->rank - 1]);

	if (!pl_is_float(a->dt) || side < 1 || side > MAX_SIDE)
		pl_cannot(
			pl, n, pl_fmt(pl, "matrices of %lld rows; up to %d of floats are covered", (long long)side, MAX_SIDE));
	for (int d = a->rank - 2; d < a->rank; d++)
		pl_guard_eq(pl, a->size[d], ix_const(pl, side), "the size of a matrix");
	return (int)side;
}

/* a, broadcast to the shape of `to` from the given row or column of each matrix; NULL: all rows or columns. */
static struct val *at(struct pl *pl, struct val *a, const struct val *to, const struct ix *row, const struct ix *col)
{
	const struct ix *map[PL_MAX_RANK];
	int r = to->rank;

	for (int d = 0; d < r; d++)
		map[d] = pl->place[d];
	map[r - 2] = row ? row : pl->place[r - 2];
	map[r - 1] = col ? col : pl->place[r - 1];
	return pl_view(pl, a, r, to->size, map);
}

/* A mask in the shape of `like`: is the element's row (is_col: its column) less than `end`? */
static struct val *before(struct pl *pl, const struct val *like, int is_col, int end)
{
	const struct ix *own = pl->place[like->rank - 2 + is_col];

	return pl_index(pl, WW_BOOL, like->rank, like->size, ix_lt(pl, own, ix_const(pl, end)));
}

static struct val *is_row(struct pl *pl, const struct val *like, int row)
{
	const struct ix *own = pl->place[like->rank - 2];

	return pl_index(pl, WW_BOOL, like->rank, like->size, ix_eqz(pl, ix_addc(pl, own, -row), ix_const(pl, 0)));
}

/* b, expanded to the batch dimensions of a; its matrices keep their sizes. */
static struct val *with_batch_of(struct pl *pl, struct val *b, const struct val *a)
{
	const struct ix *size[PL_MAX_RANK];
	int r = a->rank > b->rank ? a->rank : b->rank;

	for (int d = 0; d < r; d++) {
		int da = d - (r - a->rank), db = d - (r - b->rank);

		size[d] = d >= r - 2 || da < 0 || (db >= 0 && !ix_is(b->size[db], 1)) ? b->size[db] : a->size[da];
	}
	return pl_expand(pl, b, r, size);
}

static struct val *identity(struct pl *pl, const struct val *like)
{
	const struct ix *r = pl->place[like->rank - 2], *c = pl->place[like->rank - 1];

	return pl_cast(
		pl, pl_index(pl, WW_BOOL, like->rank, like->size, ix_eqz(pl, ix_sub(pl, r, c), ix_const(pl, 0))), like->dt);
}

/* ---- Cholesky ---------------------------------------------------------------------------------------------------- */

/* Column by column, right-looking: column j becomes the factor's, and its outer product is subtracted from what lies to
 * the right. */
static struct val *cholesky_of(struct pl *pl, struct gnode *n, struct val *a)
{
	int side = side_of(pl, n, a);
	struct val *m = a, *zero = pl_constf(pl, a->dt, 0);

	for (int j = 0; j < side; j++) {
		const struct ix *jx = ix_const(pl, j);
		struct val *root = pl_op1(pl, OP_SQRT, at(pl, m, m, jx, jx)), *mine = DIV(at(pl, m, m, NULL, jx), root),
				   *rest = SUB(m, MUL(mine, DIV(pl_transposed(pl, at(pl, m, m, NULL, jx)), root)));

		mine = pl_where(pl, before(pl, m, 0, j), zero, mine);
		m = pl_stored(pl,
			pl_where(pl, before(pl, m, 1, j), m,
				pl_where(pl, before(pl, m, 1, j + 1), mine, pl_where(pl, before(pl, m, 0, j + 1), m, rest))));
	}
	return m;
}

static void cholesky(struct pl *pl, struct gnode *n)
{
	int upper = (int)pl_arg_int(pl, n, 1, "upper", 0);
	struct val *a = pl_stored(pl, pl_need_val(pl, n, 0, "self")), *l;

	l = cholesky_of(pl, n, upper ? pl_transposed(pl, a) : a);
	done(n, upper ? pl_transposed(pl, l) : l);
}

/* ---- Solves ------------------------------------------------------------------------------------------------------ */

/* x with a x = b for a triangular a, by substitution: row j of x is finished and its multiples are subtracted from the
 * rows that are left. */
static struct val *substitute(struct pl *pl, struct gnode *n, struct val *a, struct val *b, int upper, int unit)
{
	int side = side_of(pl, n, a);

	b = with_batch_of(pl, b, a);
	a = with_batch_of(pl, a, b);
	for (int i = 0; i < side; i++) {
		int j = upper ? side - 1 - i : i;
		const struct ix *jx = ix_const(pl, j);
		struct val *mine = at(pl, b, b, jx, NULL), *rest;

		if (!unit)
			mine = DIV(mine, at(pl, a, b, jx, jx));
		rest = SUB(b, MUL(at(pl, a, b, NULL, jx), mine));
		rest = upper ? pl_where(pl, before(pl, b, 0, j), rest, b) : pl_where(pl, before(pl, b, 0, j + 1), b, rest);
		b = pl_stored(pl, pl_where(pl, is_row(pl, b, j), mine, rest));
	}
	return b;
}

static void solve_triangular(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_stored(pl, pl_need_val(pl, n, 0, "self")), *b = pl_stored(pl, pl_need_val(pl, n, 1, "B"));
	int upper = (int)pl_kwarg_int(pl, n, "upper", 0), unit = (int)pl_kwarg_int(pl, n, "unitriangular", 0);

	if (pl_kwarg_int(pl, n, "left", 1))
		done(n, substitute(pl, n, a, b, upper, unit));
	else
		done(n, pl_transposed(pl, substitute(pl, n, pl_transposed(pl, a), pl_transposed(pl, b), !upper, unit)));
}

/* x with l l^T x = b, for the Cholesky factor l. */
static struct val *solve_by_factor(struct pl *pl, struct gnode *n, struct val *l, struct val *b, int upper)
{
	struct val *t = pl_transposed(pl, l);

	b = substitute(pl, n, upper ? t : l, b, 0, 0);
	return substitute(pl, n, upper ? l : t, b, 1, 0);
}

static void cholesky_solve(struct pl *pl, struct gnode *n)
{
	struct val *b = pl_stored(pl, pl_need_val(pl, n, 0, "self")), *l = pl_stored(pl, pl_need_val(pl, n, 1, "input2"));

	done(n, solve_by_factor(pl, n, l, b, (int)pl_arg_int(pl, n, 2, "upper", 0)));
}

static void cholesky_inverse(struct pl *pl, struct gnode *n)
{
	struct val *l = pl_stored(pl, pl_need_val(pl, n, 0, "self"));

	done(n, solve_by_factor(pl, n, l, identity(pl, l), (int)pl_arg_int(pl, n, 1, "upper", 0)));
}

/* v with rows j and p exchanged; p has v's shape and holds each matrix's row. */
static struct val *exchanged(struct pl *pl, struct val *v, int j, struct val *p)
{
	int r = v->rank;
	struct val *own = pl_index(pl, WW_I64, r, v->size, pl->place[r - 2]),
			   *other = pl_gather(pl, v, p, r - 2, r, v->size, pl->place);

	return pl_where(
		pl, is_row(pl, v, j), other, pl_where(pl, pl_op2(pl, OP_EQ, own, p), at(pl, v, v, ix_const(pl, j), NULL), v));
}

/* Gauss-Jordan elimination with partial pivoting: *a becomes diagonal, *b (b may be NULL) the right-hand side that
 * belongs to it.  Returns the sign of the row exchanges.  PyTorch's LU has the same pivots. */
static struct val *eliminate(struct pl *pl, struct gnode *n, struct val **a, struct val **b)
{
	int side = side_of(pl, n, *a), r = (*a)->rank;
	struct val *sign = NULL;

	for (int j = 0; j < side; j++) {
		const struct ix *jx = ix_const(pl, j);
		struct val *column = pl_select(pl, *a, r - 1, jx), *p, *flip, *place, *from;
		struct val *top = pl_index(pl, WW_BOOL, r - 1, column->size, ix_lt(pl, pl->place[r - 2], jx));

		column = pl_where(pl, top, pl_constf(pl, column->dt, -1), pl_op1(pl, OP_ABS, column));
		p = pl_stored(pl, pl_reduce(pl, RED_ARGMAX, column, 1u << (r - 2), 0));
		flip = pl_where(pl, pl_op2(pl, OP_EQ, p, pl_consti(pl, WW_I64, j)), pl_constf(pl, (*a)->dt, 1),
			pl_constf(pl, (*a)->dt, -1));
		sign = sign ? MUL(sign, flip) : flip;
		place = pl_unsqueeze(pl, pl_unsqueeze(pl, p, r - 2), r - 1);
		from = exchanged(pl, *a, j, pl_expand(pl, place, r, (*a)->size));
		for (int w = 0; w < (b ? 2 : 1); w++) {
			struct val **v = w ? b : a, *to = *v,
					   *mine = w ? exchanged(pl, to, j, pl_expand(pl, place, r, to->size)) : from,
					   *factor = DIV(at(pl, from, to, NULL, jx), at(pl, from, to, jx, jx));

			*v = pl_where(pl, is_row(pl, to, j), mine, SUB(mine, MUL(factor, at(pl, mine, to, jx, NULL))));
		}
		pl_stored(pl, *a);
		if (b)
			pl_stored(pl, *b);
	}
	return sign;
}

static struct val *solved(struct pl *pl, struct gnode *n, struct val *a, struct val *b)
{
	const struct ix *r;

	b = with_batch_of(pl, b, a);
	a = with_batch_of(pl, a, b);
	eliminate(pl, n, &a, &b);
	r = pl->place[b->rank - 2];
	return DIV(b, at(pl, a, b, r, r));
}

static void inverse(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_stored(pl, pl_need_val(pl, n, 0, "A"));

	done(n, solved(pl, n, a, identity(pl, a)));
}

/* b holds one vector for each matrix if the result has one dimension less than a; otherwise it holds matrices. */
static void solve(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_stored(pl, pl_need_val(pl, n, 0, "A")), *b = pl_stored(pl, pl_need_val(pl, n, 1, "B"));
	int vector = n->meta[0].rank == a->rank - 1;

	if (!pl_kwarg_int(pl, n, "left", 1))
		pl_cannot(pl, n, "left=False is not covered");
	b = solved(pl, n, a, vector ? pl_unsqueeze(pl, b, b->rank) : b);
	done(n, vector ? pl_squeeze(pl, b, b->rank - 1) : b);
}

static void determinant(struct pl *pl, struct gnode *n)
{
	struct val *a = pl_stored(pl, pl_need_val(pl, n, 0, "A")), *sign;
	const struct ix *map[PL_MAX_RANK];
	int r = a->rank;

	sign = eliminate(pl, n, &a, NULL);
	for (int d = 0; d < r; d++)
		map[d] = pl->place[d < r - 2 ? d : r - 2];
	done(n, MUL(sign, pl_reduce(pl, RED_PROD, pl_view(pl, a, r - 1, a->size, map), 1u << (r - 2), 0)));
}

const struct pl_lower_row pl_lower_linalg[] = { { "linalg_cholesky", cholesky }, { "cholesky", cholesky },
	{ "linalg_solve_triangular", solve_triangular }, { "cholesky_solve", cholesky_solve },
	{ "cholesky_inverse", cholesky_inverse }, { "linalg_inv", inverse }, { "inverse", inverse },
	{ "linalg_solve", solve }, { "linalg_det", determinant }, { "det", determinant }, { NULL, NULL } };
