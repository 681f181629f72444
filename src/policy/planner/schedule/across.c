/* across.c - the order of a pointwise kernel's rows where its operands lie across each other in memory, or where data
 * says what is read. */
#include "policy/planner/schedule/loop.h"

#include <math.h>
#include <string.h>

/* Elements that are read and written along axis v, but not along the lane.  Where data says a place, all rows may. */
static double along_only(
	struct pl *pl, struct kern *k, const struct ix_atom *v, const struct ix_atom *lane, int *itemsize)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int n = pl_kern_loads(pl, k, off, buf, 500);
	double sum = 0;

	for (int o = 0; o < k->n_out && n < 512; o++) {
		off[n] = pl_offset(pl, k->out[o]->root, k->out_idx[o]);
		buf[n++] = k->out[o]->root;
	}
	for (int i = 0; i < n; i++) {
		double places = 1;

		if (!ix_has(off[i], lane) || pl_runs_along(pl, off[i], lane) || !pl_runs_along(pl, off[i], v))
			continue;
		for (int d = 0; d < k->n_row; d++)
			places *= ix_has(off[i], k->row[d]) || ix_looks_up(off[i]) ? (double)ix_num(k->row[d]->b) : 1;
		if (ix_looks_up(off[i]))
			places = fmin(places, (double)pl_buf_numel(buf[i]));
		*itemsize = places > sum ? pl_itemsize(buf[i]->dt) : *itemsize;
		sum += places;
	}
	return sum;
}

/* Does `off` run along the remainders of v by size, or along the quotients, at least 8 of them? */
static int along_part(struct pl *pl, const struct ix *off, const struct ix_atom *v, const struct ix *size)
{
	const struct ix *n = ix_div(pl, v->b, size), *part = ix_var(pl, "part", n), *rest = ix_var(pl, "rest", size),
					*e = ix_add(pl, ix_mul(pl, part, size), rest), *split = ix_subst(pl, off, &v, &e, 1);

	return (ix_num(size) >= 8 && pl_runs_along(pl, split, ix_as_var(rest))) ||
		(ix_num(n) >= 8 && pl_runs_along(pl, split, ix_as_var(part)));
}

/* A row of which one operand takes quotients and remainders by a size, and lies along one of them, becomes two (the
 * batches and channels of a product's rows; channels that were shuffled). */
static void split_across(struct pl *pl, struct kern *k)
{
	const struct ix_atom *lane = k->row[k->n_row - 1];
	const struct ix *off[512];
	struct buf *buf[512];

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++)
		for (int d = 0; d < k->n_row - 1 && k->n_row < PL_MAX_RANK; d++) {
			const struct ix *size = pl_axis_divisor(off[i], k->row[d]);

			if (!size || !ix_has(off[i], lane) || pl_runs_along(pl, off[i], lane) ||
				!along_part(pl, off[i], k->row[d], size))
				continue;
			pl_split_axis(pl, k, d, size);
			n = pl_kern_loads(pl, k, off, buf, 512);
		}
}

/* The rows of k, and an operand's offset through them, as they are once they were split by all sizes that it takes
 * quotients and remainders of them by. */
struct split_rows {
	const struct ix_atom *row[PL_MAX_RANK];
	const struct ix *off;
	int n;
};

static void split_row(struct pl *pl, struct split_rows *s, int d, const struct ix *size)
{
	const struct ix_atom *v = s->row[d];
	const struct ix *q = ix_var(pl, "quotient", ix_div(pl, v->b, size)), *r = ix_var(pl, "remainder", size),
					*e = ix_add(pl, ix_mul(pl, q, size), r);

	s->off = ix_subst(pl, s->off, &v, &e, 1);
	memmove(&s->row[d + 2], &s->row[d + 1], (size_t)(s->n - d - 1) * sizeof(*s->row));
	s->row[d] = ix_as_var(q);
	s->row[d + 1] = ix_as_var(r);
	s->n++;
}

static struct split_rows split_all(struct pl *pl, const struct kern *k, const struct ix *off)
{
	struct split_rows s = { .off = off, .n = k->n_row - 1 };
	const struct ix *size;

	memcpy(s.row, k->row, (size_t)s.n * sizeof(*s.row));
	for (int d = 0; d < s.n; d++)
		while (s.n < PL_MAX_RANK - 1 && (size = pl_axis_divisor(s.off, s.row[d])))
			split_row(pl, &s, d, size);
	return s;
}

/* The row that the offset steps along by `step`; -1: none. */
static int row_of_step(struct pl *pl, const struct split_rows *s, const struct ix *step)
{
	const struct ix *coef, *rest;

	for (int d = 0; d < s->n; d++)
		if (ix_has(s->off, s->row[d]) && ix_affine(pl, s->off, s->row[d], &coef, &rest) && ix_same(coef, step))
			return d;
	return -1;
}

/* k's own rows as those of s, of its i-th load. */
static void split_as(struct pl *pl, struct kern *k, const struct split_rows *s, int i)
{
	const struct ix *off[512], *size;
	struct buf *buf[512];

	pl_kern_loads(pl, k, off, buf, 512);
	for (int d = 0; k->n_row - 1 < s->n; d++)
		while (k->n_row - 1 < s->n && (size = pl_axis_divisor(off[i], k->row[d]))) {
			pl_split_axis(pl, k, d, size);
			pl_kern_loads(pl, k, off, buf, 512);
		}
}

/* Rows a and b of k, b being the inner one in an operand's memory, become one, the last one ahead of the lane. */
static void join_rows(struct pl *pl, struct kern *k, int a, int b)
{
	const struct ix_atom *outer = k->row[a], *inner = k->row[b], *lane = k->row[k->n_row - 1];
	int n = 0;

	for (int d = 0; d < k->n_row - 1; d++)
		if (d != a && d != b)
			k->row[n++] = k->row[d];
	k->row[n] = outer;
	k->row[n + 1] = inner;
	k->row[n + 2] = lane;
	pl_join_axes(pl, k, n);
}

/* cuda: memory of an operand that lies across may run along two rows, the inner one of them shorter than a sector
 * (patches of 4 x 4 pixels, whose channels become the last dimension): they become one row of whole sectors. */
static void join_across(struct pl *pl, struct kern *k)
{
	const struct ix_atom *lane = k->row[k->n_row - 1];
	const struct ix *off[512];
	struct buf *buf[512];

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		struct split_rows s = split_all(pl, k, off[i]);
		int inner = row_of_step(pl, &s, ix_const(pl, 1)), outer = -1;

		if (inner >= 0 && ix_has(off[i], lane) && ix_num(s.row[inner]->b) < PL_SECTOR)
			outer = row_of_step(pl, &s, s.row[inner]->b);
		if (outer < 0)
			continue;
		split_as(pl, k, &s, i);
		join_rows(pl, k, outer, inner);
		return;
	}
}

enum { APART = 8 }; /* lanes so many elements apart read vectors, of which they take theirs (load_apart()) */

/* cuda: lanes that are some elements apart read all of memory between them, which other rows use (the parity of a
 * pixel that becomes a channel).  These rows become the last ones: threads of a block then, for which the first level
 * keeps it. */
void pl_share_vectors(struct pl *pl, struct kern *k)
{
	const struct ix_atom *lane = k->row[k->n_row - 1];
	const struct ix *off[512], *coef, *rest;
	struct buf *buf[512];

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		int64_t apart = ix_has(off[i], lane) && ix_affine(pl, off[i], lane, &coef, &rest) ? ix_num(coef) : 0;

		if (apart < 2 || apart > APART)
			continue;
		struct split_rows s = split_all(pl, k, off[i]);
		int at = s.n - 1;

		while (at >= 0 &&
			!(ix_has(s.off, s.row[at]) && ix_affine(pl, s.off, s.row[at], &coef, &rest) && ix_num(coef) > 0 &&
				ix_num(coef) * ix_num(s.row[at]->b) <= apart))
			at--;
		if (at < 0)
			continue;
		split_as(pl, k, &s, i);
		const struct ix_atom *v = k->row[at];
		memmove(&k->row[at], &k->row[at + 1], (size_t)(k->n_row - 2 - at) * sizeof(*k->row));
		k->row[k->n_row - 2] = v;
		return;
	}
}

enum { SLAB = 16384 }; /* bytes, of which the first level holds one for each block of a multiprocessor */

/* cuda: is what lies across, along v, in slabs of few elements each way (37 x 53), which a block reads from the first
 * level but for the first time?  The lane is odd, so that a thread has one element, and so is the distance of lanes: no
 * two of them are in a bank.  Threads along what is stored then take no longer than tiles, and store whole lines
 * (480 x 33 x 53 x 37 repeated of a transposition: 150 us in tiles, torch.compile, along lines, 90, H200). */
static int is_slab(struct pl *pl, struct kern *k, const struct ix_atom *v, const struct ix_atom *lane)
{
	const struct ix *off[512], *coef, *rest;
	struct buf *buf[512];

	for (int o = 0; o < k->n_out; o++)
		if (!pl_runs_along(pl, pl_offset(pl, k->out[o]->root, k->out_idx[o]), lane))
			return 0;
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		if (!ix_has(off[i], lane) || pl_runs_along(pl, off[i], lane))
			continue;
		if (!ix_affine(pl, off[i], lane, &coef, &rest) || ix_num(coef) % 2 == 0 || !pl_runs_along(pl, off[i], v) ||
			ix_num(lane->b) * ix_num(v->b) * pl_itemsize(buf[i]->dt) > SLAB)
			return 0;
	}
	return ix_num(lane->b) % 2 != 0;
}

/* Where operands lie across each other, as behind a permutation, the axis that the others run along becomes the last
 * one of the rows.  cuda: a warp does a tile, 32 bytes along that axis, the rest along the lane, so that both are read
 * by whole sectors.  cpu: a block does a few columns of all rows before the next ones, so that a line that is read
 * across is in the first-level cache until all of it was used.  Returns the rows of a warp's tile; *itemsize: bytes of
 * an element that lies across. */
int pl_place_across(struct pl *pl, struct kern *k, int *itemsize)
{
	const struct ix_atom *lane = k->row[k->n_row - 1], *v;
	int best = -1, size = 4;
	double most = 1 << 16;                                         /* in the cache of one multiprocessor anyhow */
	int cuda = pl->target == WW_TARGET_CUDA, least = cuda ? 4 : 8; /* of the lane: a warp's tile, a vector */

	if (cuda) {
		split_across(pl, k);
		join_across(pl, k);
	}
	for (int d = 0; d < k->n_row - 1; d++) {
		double n = along_only(pl, k, k->row[d], lane, &size);

		if (n > most && ix_num(k->row[d]->b) >= 8 && ix_num(lane->b) >= least) {
			most = n;
			best = d;
			*itemsize = size;
		}
	}
	if (best < 0 || (cuda && is_slab(pl, k, k->row[best], lane)))
		return 0;
	v = k->row[best];
	memmove(&k->row[best], &k->row[best + 1], (size_t)(k->n_row - 2 - best) * sizeof(*k->row));
	k->row[k->n_row - 2] = v;
	return (int)ww_min(ix_num(lane->b) % 2 ? 8 : 16, 32 / *itemsize); /* odd: a thread has one element of the lane */
}

enum { IN_CACHE = 1 << 24, LONG_RUN = 64 }; /* bytes: below a third of the second level's; two sectors */

enum { READ_AGAIN = 4 };

/* Is load i, whose place data says, one of whole runs along the lane, few of which are read again?  Then it comes from
 * memory about once in any order.  The data are integers that do not change along the lane. */
static int reads_runs(struct pl *pl, const struct kern *k, const struct ix *const *off, struct buf *const *buf, int n,
	int i, int64_t elements)
{
	const struct ix_atom *lane = k->row[k->n_row - 1];

	for (int j = 0; j < n; j++)
		if (pl_is_int(buf[j]->dt) && ix_has(off[j], lane))
			return 0;
	return pl_runs_along(pl, off[i], lane) && pl_visits(k, off[i]) < (double)(READ_AGAIN * elements);
}

/* cuda: places that data says, along an axis that the rows go by outside of another one (gather along the first
 * dimension), in an operand beyond the cache: rows go along the data's axis first, since what they read then is the
 * operand's part for one index of the other axes.  What is written then is rows far apart, so not where that gains
 * nothing. */
void pl_gather_inside(struct pl *pl, struct kern *k)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int best = -1, last = k->n_row - 2; /* the lane is the last axis */
	int64_t most = IN_CACHE;

	if (last < 1 || ix_num(k->row[last + 1]->b) * pl_itemsize(k->out[0]->dt) < LONG_RUN)
		return;
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++) {
		int64_t elements = pl_buf_numel(buf[i]), bytes = elements * pl_itemsize(buf[i]->dt);
		int free = -1, inner = 0;

		for (int d = 0; d <= last; d++) {
			if (free < 0 && !ix_has(off[i], k->row[d]))
				free = d;
			inner |= free >= 0 && ix_has(off[i], k->row[d]);
		}
		if (ix_looks_up(off[i]) && inner && bytes > most && !reads_runs(pl, k, off, buf, n, i, elements)) {
			most = bytes;
			best = free;
		}
	}
	if (best >= 0) {
		const struct ix_atom *v = k->row[best];

		memmove(&k->row[best], &k->row[best + 1], (size_t)(last - best) * sizeof(*k->row));
		k->row[last] = v;
	}
}
