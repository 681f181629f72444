/* lines.c - which axis memory runs along: the axis whose neighbours are a vector, or neighbouring threads. */
#include "policy/planner/schedule/loop.h"

#include <string.h>

/* Places that are read along memory by the columns, and by the rows; near: by rows at most PL_SECTOR elements apart. */
struct lines {
	double col, row, near;
};

double pl_visits(const struct kern *k, const struct ix *off)
{
	int by_column = ix_looks_up(off);
	double n = 1;

	for (int c = 0; c < k->n_col; c++)
		by_column |= ix_has(off, k->col[c]);
	for (int d = 0; d < k->n_row + k->n_col; d++) {
		const struct ix_atom *v = d < k->n_row ? k->row[d] : k->col[d - k->n_row];

		if (ix_has(off, v) || ix_looks_up(off))
			n *= (double)ix_num(v->b);
	}
	return by_column ? n : 0;
}

/* What an access counts for in the choice of axes: 1 where memory runs along v. */
int pl_runs_along(struct pl *pl, const struct ix *off, const struct ix_atom *v)
{
	const struct ix *coef, *rest;

	return ix_affine(pl, off, v, &coef, &rest) && ix_is(coef, 1);
}

int64_t pl_goes_on(struct pl *pl, const struct ix *off, const struct ix_atom *v, int n)
{
	const struct ix *there = ix_const(pl, n);

	return ix_num(ix_subst(pl, off, &v, &there, 1)) - ix_num(off);
}

/* cuda: is a column's place near the one ahead, though it is made of quotients and remainders (a mean over dimensions
 * of a slice)?  By one element, or, of what a row of the columns shares, by none. */
static int is_near(struct pl *pl, const struct ix *off, const struct ix_atom *column)
{
	const struct ix *coef, *rest;
	int64_t step = ix_num(column->b) > PL_SECTOR && !ix_looks_up(off) && !ix_affine(pl, off, column, &coef, &rest)
		? pl_goes_on(pl, off, column, PL_SECTOR)
		: -1;

	return step == 0 || step == PL_SECTOR;
}

/* cuda: lanes so many floats apart, either way, share sectors: two lanes or more each of them, or some lanes where the
 * distance is odd.  At an even distance beyond half a sector a lane reads vectors along the columns instead. */
static int shares_sectors(int64_t step)
{
	int64_t distance = step < 0 ? -step : step;

	return distance <= PL_SECTOR / 2 || (distance < PL_SECTOR && distance % 2);
}

static void count_lines(
	struct pl *pl, const struct kern *k, const struct ix *off, const struct ix_atom *lane, struct lines *l)
{
	int cuda = pl->target == WW_TARGET_CUDA;
	const struct ix *coef, *rest;

	if ((ix_affine(pl, off, k->col[k->n_col - 1], &coef, &rest) && (ix_is(coef, 1) || (!cuda && ix_is(coef, -1)))) ||
		(cuda && is_near(pl, off, k->col[k->n_col - 1])))
		l->col += pl_visits(k, off);
	if (ix_affine(pl, off, lane, &coef, &rest) &&
		(cuda ? !ix_is(coef, 0) && shares_sectors(ix_num(coef)) : ix_is(coef, 1) || ix_is(coef, -1)))
		l->row += pl_visits(k, off);
	if (ix_affine(pl, off, lane, &coef, &rest) && ix_num(coef) >= 1 && ix_num(coef) <= PL_SECTOR)
		l->near += pl_visits(k, off);
}

/* How full vectors along so many elements are. */
static double filled(const struct pl *pl, int64_t n)
{
	int64_t lanes = ww_max(1, pl->dev.vector_bytes / 4);

	return (double)n / (double)((n + lanes - 1) / lanes * lanes);
}

/* Rows that lie beside each other, from which on a lane is a row: of windows that overlap fewer, since a lane for each
 * of their elements reads what other windows read, too (3 x 3 of images of 14 x 14: 998 us, a row each 110 by count).
 */
enum { LEAST_BESIDE = 16, LEAST_OVERLAPPING = 4 };

/* Does the kernel visit each element of b several times, for so many rows that threads for all of them fill the
 * machine? */
static int overlaps(struct pl *pl, const struct kern *k, const struct ix *off, const struct buf *b)
{
	double rows = 1;

	for (int d = 0; d < k->n_row; d++)
		rows *= (double)ix_num(k->row[d]->b);
	return rows >= 1024.0 * pl->dev.sm_count && !ix_looks_up(off) && pl_visits(k, off) >= 2.0 * (double)pl_buf_numel(b);
}

/* Does memory run along the rows, axis `lane` of them?  Few columns and more rows (pooling windows, small kernels) suit
 * a lane for each row as well, unless what is stored runs along the columns: a store of 4 bytes costs as much as one of
 * 32, and later passes over the columns read the cache.  cpu: where neither reads what lies near (a reflection), only
 * columns that fill less than half a vector. */
static int memory_along(struct pl *pl, struct kern *k, const struct ix_atom *lane, struct lines *loads)
{
	const struct ix *off[512];
	int cuda = pl->target == WW_TARGET_CUDA;
	struct buf *buf[512];
	struct lines stores = { 0 };
	int64_t n_col, n_row = ix_num(lane->b), least = LEAST_BESIDE;

	*loads = (struct lines){ 0 };
	for (int i = 0, n = cuda ? pl_all_loads(pl, k, off, buf, 512) : pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		count_lines(pl, k, off[i], lane, loads);
		least = cuda && ix_has(off[i], lane) && overlaps(pl, k, off[i], buf[i]) ? LEAST_OVERLAPPING : least;
	}
	for (int o = 0; o < k->n_out && cuda; o++)
		count_lines(pl, k, pl_offset(pl, k->out[o]->root, k->out_idx[o]), lane, &stores);
	n_col = ix_num(cuda ? pl_extent(pl, k->col, k->n_col) : k->col[k->n_col - 1]->b);
	if (loads->row > loads->col + 4 * stores.col)
		return 1;
	return cuda ? n_col < 64 && n_row >= least && loads->row > 0 && stores.col == 0
				: n_col < 16 && filled(pl, n_row) > filled(pl, n_col) && loads->near >= loads->col &&
			(loads->near > 0 || filled(pl, n_col) < 0.5);
}

/* Are the results stored along axis v, or not in its order at all? */
static int stored_along(struct pl *pl, const struct kern *k, const struct ix_atom *v)
{
	for (int o = 0; o < k->n_out; o++)
		if (!pl_runs_along(pl, pl_offset(pl, k->out[o]->root, k->out_idx[o]), v))
			return 0;
	return 1;
}

/* Few results: one for 16 columns or more, beside which it does not count where they are stored; of windows, which
 * nothing is read along, for 4. */
static int stores_little(struct pl *pl, const struct kern *k, const struct lines *loads)
{
	return !pl_stores_per_column(k) && ix_num(pl_extent(pl, k->col, k->n_col)) >= (loads->col > 0 ? 16 : 4);
}

/* On cuda another axis of the rows becomes the last one, where what is read and what is stored both run along it (a
 * result with the channels innermost; a norm along another axis of an operand with the channels innermost), and no less
 * is read along it than along the last one: statistics of each channel say little of where the image lies. */
int pl_memory_along_rows(struct pl *pl, struct kern *k)
{
	struct lines last, loads;
	int along_last;

	if (!k->n_row)
		return 0;
	along_last = memory_along(pl, k, k->row[k->n_row - 1], &last);
	for (int d = 0; d < k->n_row - 1 && pl->target == WW_TARGET_CUDA; d++) {
		const struct ix_atom *v = k->row[d];

		if (memory_along(pl, k, v, &loads) && loads.row >= last.row &&
			(stored_along(pl, k, v) || stores_little(pl, k, &loads))) {
			memmove(&k->row[d], &k->row[d + 1], (size_t)(k->n_row - 1 - d) * sizeof(*k->row));
			k->row[k->n_row - 1] = v;
			return 1;
		}
	}
	return along_last;
}

/* Is v long enough that threads side by side along it fill sectors, and does memory run along it? */
static int runs_long(struct pl *pl, struct kern *k, const struct ix_atom *v)
{
	struct lines loads;

	return ix_num(v->b) >= PL_SECTOR && memory_along(pl, k, v, &loads);
}

/* cuda: does memory run along the remainders, or the quotients, of the last axis of the rows by a size that an operand
 * takes quotients of it by (the rows of a product that another dimension of its operand lies inside of; channels that
 * were shuffled)?  The axis is two then. */
int pl_memory_along_part(struct pl *pl, struct kern *k)
{
	const struct kern whole = *k;
	const struct ix_atom *lane = k->n_row ? k->row[k->n_row - 1] : NULL;
	const struct ix *off[512], *size = NULL;
	struct buf *buf[512];
	int n_var = pl->n_var, last = k->n_row;

	for (int i = 0, n = lane ? pl_kern_loads(pl, k, off, buf, 512) : 0; i < n && !size; i++)
		size = pl_axis_divisor(off[i], lane);
	if (!size || k->n_row == PL_MAX_RANK)
		return 0;
	pl_split_axis(pl, k, last - 1, size);
	if (runs_long(pl, k, k->row[last]))
		return 1;
	const struct ix_atom *quotient = k->row[last - 1];
	k->row[last - 1] = k->row[last];
	k->row[last] = quotient;
	if (runs_long(pl, k, quotient))
		return 1;
	*k = whole;
	pl->n_var = n_var;
	return 0;
}
