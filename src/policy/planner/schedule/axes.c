/* axes.c - the axes of a kernel's index space, merged where every access walks through two of them as through one.
 *
 * A pointwise kernel over contiguous tensors has one axis then, whatever the shape; a row kernel has as few as its
 * strides allow.  What counts are the offsets of everything that the kernel reads and writes, so they are collected
 * anew after each merge: the substitution changes them all. */
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

/* What pass `pass` of kernel k reads: its outputs first, then the arguments of its reductions; into_reds: what those
 * that are done on the spot read, too. */
static void walk_pass(struct pl *pl, struct kern *k, int pass, int into_reds, struct walk *w)
{
	const struct ix *idx[PL_MAX_RANK];
	struct val *v = pass < k->n_out ? k->out[pass] : k->red[pass - k->n_out];

	pl_walk_init(w, pl, v);
	w->into_reds = into_reds;
	if (pass < k->n_out) {
		pl_walk(w, v, k->out_idx[pass]);
		return;
	}
	memcpy(idx, k->red_idx[pass - k->n_out], sizeof(idx));
	for (int c = 0; c < k->n_ocol; c++)
		idx[v->rank + c] = k->ocol[c];
	pl_walk(w, v->arg[0], idx);
}

static int loads_of(struct pl *pl, struct kern *k, int into_reds, const struct ix **off, struct buf **buf, int max)
{
	int n = 0;

	for (int pass = 0; pass < k->n_out + k->n_red; pass++) {
		struct walk w;

		walk_pass(pl, k, pass, into_reds, &w);
		for (struct leaf *l = w.first; l && n < max; l = l->next)
			if (l->kind == LEAF_LOAD) {
				buf[n] = l->val->root;
				off[n++] = pl_leaf_off(pl, l);
			}
	}
	return n;
}

int pl_kern_loads(struct pl *pl, struct kern *k, const struct ix **off, struct buf **buf, int max)
{
	return loads_of(pl, k, k->kind == K_POINT && pl->target == WW_TARGET_CUDA, off, buf, max);
}

int pl_all_loads(struct pl *pl, struct kern *k, const struct ix **off, struct buf **buf, int max)
{
	return loads_of(pl, k, 1, off, buf, max);
}

int pl_reads_of_rows(struct pl *pl, struct kern *k, const struct ix_atom *lane)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int count = 0;

	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++)
		count += ix_varies(off[i]) && !ix_has(off[i], lane);
	return count;
}

/* Do all offsets walk through a and b (b inside a) as through one axis? */
static int mergeable(
	struct pl *pl, const struct ix *const *off, int n, const struct ix_atom *a, const struct ix_atom *b)
{
	for (int i = 0; i < n; i++) {
		const struct ix *ca, *cb, *rest, *rest2;

		if (!ix_has(off[i], a) && !ix_has(off[i], b))
			continue;
		if (!ix_affine(pl, off[i], a, &ca, &rest) || !ix_affine(pl, rest, b, &cb, &rest2))
			return 0;
		if (ix_has(ca, b) || !ix_same(ix_fixed(pl, ca), ix_fixed(pl, ix_mul(pl, cb, b->b))))
			return 0;
	}
	return 1;
}

void pl_subst_kern(struct pl *pl, struct kern *k, const struct ix_atom *const *v, const struct ix *const *e, int n)
{
	for (int d = 0; k->anchor && d < k->anchor->out->rank; d++)
		k->anchor_idx[d] = ix_subst(pl, k->anchor_idx[d], v, e, n);
	for (int o = 0; o < k->n_out; o++)
		for (int d = 0; d < k->out[o]->rank; d++)
			k->out_idx[o][d] = ix_subst(pl, k->out_idx[o][d], v, e, n);
	for (int c = 0; c < k->n_ocol; c++)
		k->ocol[c] = ix_subst(pl, k->ocol[c], v, e, n);
	for (int r = 0; r < k->n_red; r++)
		for (int d = 0; d < k->red[r]->rank; d++)
			k->red_idx[r][d] = ix_subst(pl, k->red_idx[r][d], v, e, n);
}

static int offsets_of(struct pl *pl, struct kern *k, const struct ix **off, int max)
{
	int n = 0;

	for (int pass = 0; pass < k->n_out + k->n_red; pass++) {
		struct walk w;

		walk_pass(pl, k, pass, 0, &w);
		if (pass < k->n_out && k->out[pass]->root && n < max)
			off[n++] = pl_offset(pl, k->out[pass]->root, k->out_idx[pass]);
		for (struct leaf *l = w.first; l; l = l->next) {
			if (n < max && pl_leaf_off(pl, l))
				off[n++] = pl_leaf_off(pl, l);
			if (l->kind == LEAF_RED) /* results sit at rows; windows are small and read through memory */
				for (int d = 0; d < l->val->rank && n < max; d++)
					off[n++] = pl_red_known(k, l->val, l->idx) >= 0 ? ix_const(pl, 0) : l->idx[d];
		}
	}
	return n;
}

/* Axes i and i + 1 become one. */
static void merge(struct pl *pl, struct kern *k, const struct ix_atom **axis, int *n, int i)
{
	const struct ix_atom *v[2] = { axis[i], axis[i + 1] };
	const struct ix *m = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), ix_mul(pl, v[0]->b, v[1]->b)), *e[2];

	e[0] = ix_div(pl, m, v[1]->b);
	e[1] = ix_mod(pl, m, v[1]->b);
	pl_subst_kern(pl, k, v, e, 2);
	axis[i] = ix_as_var(m);
	memmove(&axis[i + 1], &axis[i + 2], (size_t)(*n - i - 2) * sizeof(axis[0]));
	(*n)--;
}

void pl_join_axes(struct pl *pl, struct kern *k, int i) { merge(pl, k, k->row, &k->n_row, i); }

static int merge_pair(
	struct pl *pl, struct kern *k, const struct ix **off, int n_off, const struct ix_atom **axis, int *n)
{
	for (int i = *n - 2; i >= 0; i--)
		if (mergeable(pl, off, n_off, axis[i], axis[i + 1])) {
			merge(pl, k, axis, n, i);
			return 1;
		}
	return 0;
}

enum { COSTLY = 10 }; /* an exponential */

/* Is something costly computed once a row of axis `lane`, in short rows that lie side by side in a block?  In vectors
 * along several rows each element would compute it. */
static int is_costly_beside(struct pl *pl, struct kern *k, const struct ix_atom *lane)
{
	int size = pl_itemsize(k->out[0]->dt), vec = pl_widest(lane->b, 16 / size);
	const struct ix *column = pl_of_var(pl, lane);
	int64_t rows = 1;
	int cost;

	for (int d = 0; d < k->n_row - 1; d++)
		rows *= ix_num(k->row[d]->b);
	cost = pl_cost(pl, k->out[0], k->out_idx[0]) - pl_cost_along(pl, k->out[0], k->out_idx[0], &column, 1);
	return cost >= COSTLY && vec * size < 16 &&
		pl_fits_beside(pl, rows, ix_num(lane->b) / vec, vec, size, 2 * 16 / size);
}

/* Rows of a pointwise kernel on cuda that no vector divides, though it divides what several of them have together: the
 * last two axes become one, where all that changes with both walks through them as through one.  What changes with one
 * of them only (a bias, a row's statistics) is then read element by element; long rows, which a block can stay in, are
 * left as they are for its sake, and short ones for what is costly. */
static int merge_for_vectors(struct pl *pl, struct kern *k, const struct ix **off, int n_off)
{
	const struct ix_atom *a, *b;
	int64_t length, width = pl_itemsize(k->out[0]->dt) >= 4 ? 4 : 8;

	if (pl->target != WW_TARGET_CUDA || k->kind != K_POINT || k->n_col || k->n_row < 2)
		return 0;
	a = k->row[k->n_row - 2];
	b = k->row[k->n_row - 1];
	length = ix_num(b->b);
	while (width > 1 && length % width && ix_num(a->b) * length % width)
		width /= 2;
	if (length % width == 0)
		return 0;
	for (int i = 0; i < n_off; i++)
		if (ix_has(off[i], a) && ix_has(off[i], b) && !mergeable(pl, &off[i], 1, a, b))
			return 0;
	if ((length >= PL_LONG_ROW && pl_reads_of_rows(pl, k, b) > 0) || is_costly_beside(pl, k, b))
		return 0;
	merge(pl, k, k->row, &k->n_row, k->n_row - 2);
	return 1;
}

/* Elements that are read, and stored, one after the other in memory by axis v. */
static double moved_along(struct pl *pl, struct kern *k, const struct ix_atom *v)
{
	const struct ix *off[512 + PL_MAX_STORES], *coef, *rest;
	struct buf *buf[512];
	double sum = 0;
	int n = pl_kern_loads(pl, k, off, buf, 512);

	for (int o = 0; o < k->n_out; o++)
		off[n++] = pl_offset(pl, k->out[o]->root, k->out_idx[o]);
	for (int i = 0; i < n; i++) {
		double places = ix_affine(pl, off[i], v, &coef, &rest) && ix_is(coef, 1);

		for (int d = 0; d < k->n_row + k->n_col; d++) {
			const struct ix_atom *a = d < k->n_row ? k->row[d] : k->col[d - k->n_row];

			places *= ix_has(off[i], a) ? (double)ix_num(a->b) : 1;
		}
		sum += places;
	}
	return sum;
}

/* The column that most is read along becomes the last one, where their order is nobody's (both dimensions of an image
 * that is read turned are summed; cuda: what is stored is, too, as the channels of a group channels-last).  Lanes would
 * read across memory; so the columns are often one. */
static void order_columns(struct pl *pl, struct kern *k)
{
	double most;
	int best = k->n_col - 1;

	if (k->kind != K_ROW || k->n_col < 2 || (pl_stores_per_column(k) && pl->target == WW_TARGET_CPU))
		return;
	for (int i = 0; i < k->n_red; i++)
		if (k->red[i]->red >= RED_ARGMAX || k->red[i]->scans)
			return;
	most = moved_along(pl, k, k->col[best]);
	for (int c = k->n_col - 2; c >= 0; c--) {
		double n = moved_along(pl, k, k->col[c]);

		if (n > most) {
			most = n;
			best = c;
		}
	}
	const struct ix_atom *v = k->col[best];
	memmove(&k->col[best], &k->col[best + 1], (size_t)(k->n_col - 1 - best) * sizeof(*k->col));
	k->col[k->n_col - 1] = v;
}

void pl_merge_axes(struct pl *pl, struct kern *k)
{
	const struct ix **off = pl_alloc(pl, 4096 * sizeof(*off));
	int again = 1;

	order_columns(pl, k);
	while (again) {
		int n = offsets_of(pl, k, off, 4096);

		again = n < 4096 &&
			(merge_pair(pl, k, off, n, k->row, &k->n_row) || merge_pair(pl, k, off, n, k->col, &k->n_col) ||
				merge_for_vectors(pl, k, off, n));
	}
}

/* ---- Splitting --------------------------------------------------------------------------------------------------- */

/* The largest size that x takes a quotient or a remainder of v by, of those that divide v's extent, or `best`. */
static const struct ix *divisor_of(const struct ix *x, const struct ix_atom *v, const struct ix *best)
{
	for (int i = 0; i < x->n; i++)
		for (int a = 0; a < x->m[i].n; a++) {
			const struct ix_atom *t = x->m[i].atom[a];

			if ((t->kind == IX_DIV || t->kind == IX_MOD) && ix_as_var(t->a) == v && !ix_varies(t->b) &&
				ix_num(t->b) > 0 && ix_num(v->b) % ix_num(t->b) == 0 && (!best || ix_num(t->b) > ix_num(best)))
				best = t->b;
			else if (t->kind == IX_DIV || t->kind == IX_MOD || t->kind == IX_LT || t->kind == IX_EQ)
				best = divisor_of(t->b, v, divisor_of(t->a, v, best));
		}
	return best;
}

const struct ix *pl_axis_divisor(const struct ix *off, const struct ix_atom *v) { return divisor_of(off, v, NULL); }

void pl_split_axis(struct pl *pl, struct kern *k, int i, const struct ix *d)
{
	const struct ix_atom *v = k->row[i];
	const struct ix *n = ix_div(pl, v->b, d), *q = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), n),
					*r = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), d), *e = ix_add(pl, ix_mul(pl, q, d), r);

	pl_guard_eq(pl, ix_mul(pl, n, d), v->b, "an axis that is split");
	pl_subst_kern(pl, k, &v, &e, 1);
	memmove(&k->row[i + 2], &k->row[i + 1], (size_t)(k->n_row - i - 1) * sizeof(*k->row));
	k->row[i] = ix_as_var(q);
	k->row[i + 1] = ix_as_var(r);
	k->n_row++;
}

/* Are parts of d elements of the lane whole vectors?  cpu: half of one is enough. */
static int fills_vectors(const struct pl *pl, const struct kern *k, int64_t d)
{
	return pl->target == WW_TARGET_CPU ? 2 * d >= pl->dev.vector_bytes / 4
									   : d % (pl_itemsize(k->out[0]->dt) >= 4 ? 4 : 8) == 0;
}

void pl_split_lane(struct pl *pl, struct kern *k)
{
	const struct ix **off = pl_alloc(pl, 4096 * sizeof(*off)), *d;

	do {
		int n = offsets_of(pl, k, off, 4096);

		d = NULL;
		for (int i = 0; k->n_row && k->n_row < PL_MAX_RANK && n < 4096 && i < n; i++)
			d = divisor_of(off[i], k->row[k->n_row - 1], d);
		if (d && fills_vectors(pl, k, ix_num(d)))
			pl_split_axis(pl, k, k->n_row - 1, d);
		else
			d = NULL;
	} while (d);
}

/* ---- Elements that share work ------------------------------------------------------------------------------------ */

static int add_operation(void *ctx, struct val *v, const struct ix *const *idx)
{
	(void)idx;
	*(int *)ctx += v->kind == V_OP && v->op != OP_WHERE;
	return 0;
}

/* Operations and loads of k's result at element c of axis v, but for those that `w` has met. */
static int work_at(struct pl *pl, struct kern *k, struct walk *w, const struct ix_atom *v, int64_t c)
{
	const struct ix *idx[PL_MAX_RANK], *at = ix_const(pl, c);
	struct leaf **tail = w->tail;
	int work = 0;

	for (int d = 0; d < k->out[0]->rank; d++)
		idx[d] = ix_subst(pl, k->out_idx[0][d], &v, &at, 1);
	w->stop = add_operation;
	w->stop_ctx = &work;
	pl_walk(w, k->out[0], idx);
	for (struct leaf *l = *tail; l; l = l->next)
		work += l->kind == LEAF_LOAD;
	return work;
}

/* Do n elements along v, computed one by one, do twice the work that they do together? */
static int shares_work(struct pl *pl, struct kern *k, const struct ix_atom *v, int64_t n)
{
	struct walk all, one;
	int64_t together = 0, apart = 0;

	pl_walk_init(&all, pl, k->out[0]);
	for (int64_t c = 0; c < n; c++) {
		together += work_at(pl, k, &all, v, c);
		pl_walk_init(&one, pl, k->out[0]);
		apart += work_at(pl, k, &one, v, c);
	}
	return apart >= 2 * together;
}

void pl_unroll(struct pl *pl, struct kern *k)
{
	const struct val *out = k->out[0];
	const struct ix_atom *v = out->chain ? ix_as_var(k->out_idx[0][out->chain - 1]) : NULL;
	int64_t n = 0;
	int at = 0;

	if (!v || k->n_row < 2 || !ix_is_const(v->b, &n) || n > PL_MAX_STORES || !shares_work(pl, k, v, n))
		return;
	while (k->row[at] != v)
		at++;
	for (int64_t c = n - 1; c >= 0; c--) {
		const struct ix *e = ix_const(pl, c);

		k->out[c] = k->out[0];
		for (int d = 0; d < out->rank; d++)
			k->out_idx[c][d] = ix_subst(pl, k->out_idx[0][d], &v, &e, 1);
	}
	k->n_out = (int)n;
	k->n_row--;
	memmove(&k->row[at], &k->row[at + 1], (size_t)(k->n_row - at) * sizeof(*k->row));
}
