/* collect.c - which reductions a kernel computes with what it stores, and which are done on the spot or stored.
 *
 * A kernel of rows computes a reduction whose rows are its own, in as many stages as reductions depend on each other.
 * A small one is a loop inside the expression of its reader.  What fits neither becomes a root, which another kernel
 * stores (hoist.c says what of it). */
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

/* Is the index a row of the reduction even where the condition around the leaf does not hold? */
static int row_exists(const struct leaf *l, int d)
{
	int64_t lo, hi;

	return !l->guarded || (ix_range(l->idx[d], &lo, &hi) && lo >= 0 && hi < ix_num(l->val->size[d]));
}

int pl_red_fits(struct pl *pl, struct kern *k, const struct leaf *l)
{
	const struct ix *const *idx = l->idx;
	const struct val *r = l->val;
	int64_t rows = 1, mine = 1;

	if (r->root || r->nred != k->n_col)
		return 0;
	for (int d = 0; d < r->rank; d++) {
		rows *= ix_num(r->size[d]);
		if (ix_looks_up(idx[d]) || !row_exists(l, d)) /* a row that only data says */
			return 0;
		for (int c = 0; c < k->n_col; c++)
			if (ix_has(idx[d], k->col[c]))
				return 0;
	}
	for (int d = 0; d < k->n_row; d++)
		mine *= ix_num(k->row[d]->b);
	if (rows != mine)
		return 0;
	for (int c = 0; c < k->n_col; c++)
		if (ix_num(k->col[c]->b) != ix_num(r->arg[0]->size[r->rank + c]))
			return 0;
	for (int c = 0; c < k->n_col; c++)
		pl_guard_eq(pl, k->col[c]->b, r->arg[0]->size[r->rank + c], "the extents of fused reductions");
	return 1;
}

int pl_red_known(const struct kern *k, const struct val *r, const struct ix *const *idx)
{
	for (int i = 0; i < k->n_red; i++)
		if (k->red[i] == r && ix_same_all(k->red_idx[i], idx, r->rank))
			return i;
	return -1;
}

int pl_leaf_known(const struct kern *k, const struct leaf *l)
{
	const struct val *r = l->kind == LEAF_RED ? l->val : l->kind == LEAF_ANCHOR ? l->val->anchor->in_row : NULL;

	return r ? pl_red_known(k, r, l->idx) : -1;
}

double pl_times_computed(
	const struct walk *w, const struct val *r, const struct val *reader, const struct ix *const *idx)
{
	const struct ix_atom *lane = reader->rank ? ix_as_var(idx[reader->rank - 1]) : NULL;
	double n = 0;

	for (const struct leaf *l = w->first; l; l = l->next) {
		int64_t along = lane ? ix_num(lane->b) : 1;

		if (l->kind != LEAF_RED || l->val != r)
			continue;
		for (int d = 0; d < r->rank; d++)
			if (!lane || ix_has(l->idx[d], lane) || ix_looks_up(l->idx[d]))
				along = 1;
		along = w->pl->target == WW_TARGET_CUDA ? ww_min(along, 4) : along;
		n += (double)pl_numel_now(reader) / (double)along;
	}
	return n;
}

/* cpu: a kernel that stores the results costs a few microseconds and a store and a load of each, but it sums contiguous
 * elements by vectors, which a reader whose vectors run along another axis cannot.  So the reader computes only what is
 * needed once, or very small. */
static int inlined_on_cpu(struct pl *pl, const struct val *r, double n, double rows, double times)
{
	if (rows * n * r->passes <= 1 << 12)
		return times * n <= 1 << 14;
	return r->passes <= 1 && times <= rows && !(n > 8 && pl_is_innermost(pl, r->arg[0], r->arg[0]->rank - 1));
}

/* Has r so many results that threads for them hide what more loads in turn wait for? */
static int has_many_results(const struct pl *pl, const struct val *r)
{
	return pl_numel_now(r) >= 2048 * (int64_t)pl->dev.sm_count;
}

/* Are windows, whose elements lie side by side and whose begin is a quotient (adaptive pools), so short and so close
 * that a thread for each reads what its neighbours do from the first level's cache?  By threads that share a row most
 * of the time is what each of them does for it (11 of 128 elements, an elu: 206 us by 16 threads, memory takes 25).  So
 * it is in more dimensions (3 x 3 x 3, a silu, 527,136 results: 38 million instructions by four threads each, 26 by
 * one, counted), whose windows may be larger where there are many results. */
static int is_short_quotient(struct pl *pl, const struct ix *off, const struct ix_atom *x, int64_t terms, int many)
{
	enum { MOST = 128, LARGE = 64 }; /* lines that a warp asks for with each load, times the loads */
	const struct ix *coef, *rest, *end = ix_addc(pl, x->b, -1);
	int64_t n = ix_num(end);

	return n > 0 && !ix_affine(pl, off, x, &coef, &rest) && terms <= (many ? (int)LARGE : (int)PL_LARGE_WINDOW) &&
		(ix_num(ix_subst(pl, off, &x, &end, 1)) - ix_num(off)) / n * terms <= MOST;
}

int pl_adjoins(struct pl *pl, const struct val *r)
{
	const struct ix *idx[PL_MAX_RANK], *coef, *rest;
	struct val *a = r->arg[0];
	struct walk w;
	int n_var = pl->n_var, found = 0, all = 1;
	int64_t lane, step, terms = 1;

	if (pl->target != WW_TARGET_CUDA || !r->rank || a->rank == r->rank)
		return 0;
	for (int d = r->rank; d < a->rank; d++)
		terms *= ix_num(a->size[d]);
	pl_own_vars(pl, a, idx);
	pl_walk_init(&w, pl, NULL);
	pl_walk(&w, a, idx);
	for (struct leaf *l = w.first; l && all; l = l->next) {
		const struct ix_atom *x = ix_as_var(idx[r->rank - 1]), *k = ix_as_var(idx[a->rank - 1]);

		if (l->kind == LEAF_LOAD && x && k &&
			is_short_quotient(pl, pl_leaf_off(pl, l), x, terms, has_many_results(pl, r))) {
			found = 1;
			continue;
		}
		if (l->kind == LEAF_LOAD && ix_num(r->size[r->rank - 1]) % 4) {
			all = 0;
			break;
		}
		if (l->kind == LEAF_INDEX ||
			(l->kind == LEAF_LOAD && x && k && !ix_has(pl_leaf_off(pl, l), x) && !ix_has(pl_leaf_off(pl, l), k)))
			continue;
		all = l->kind == LEAF_LOAD && x && k && ix_affine(pl, pl_leaf_off(pl, l), x, &coef, &rest) &&
			ix_is_const(coef, &lane) && lane >= 1 && lane <= 2 && ix_affine(pl, rest, k, &coef, &rest) &&
			ix_is_const(coef, &step) && step >= 1 && lane <= step * ix_num(a->size[a->rank - 1]);
		found = all;
	}
	pl->n_var = n_var; /* no text has these variables */
	return found && all;
}

/* A small window with few points is done inside the expression of `reader`, unless that does it so much oftener than
 * there are results that a kernel which stores them (each part read once, a result written, and read where it is
 * needed) does half the work or less.  On cuda a thread that adds up what lies along memory reads a line of its own for
 * each of its elements: few of them in all, or neighbouring threads read what a kernel of rows shares. */
int pl_inline_red(
	struct pl *pl, const struct walk *w, const struct val *r, const struct val *reader, const struct ix *const *idx)
{
	const struct val *a = r->arg[0];
	double n = 1, rows = (double)pl_numel_now(r), times = pl_times_computed(w, r, reader, idx);
	int lanes = 4;

	/* of 16 bits a thread has eight elements; where memory does not run along them it loads each by itself */
	if (pl_is_half(reader->dt) && r->rank && pl_numel_now(r) == pl_numel_now(reader) &&
		!pl_most_along(pl, a, r->rank - 1))
		lanes = 8;
	for (int d = r->rank; d < r->arg[0]->rank; d++)
		n *= (double)ix_num(r->arg[0]->size[d]);
	if (pl->target == WW_TARGET_CPU)
		return r->red < RED_ARGMAX && n <= 64 && inlined_on_cpu(pl, r, n, rows, times);
	if (pl->target == WW_TARGET_CUDA && n > PL_LARGE_WINDOW * 4.0 / lanes &&
		(double)pl_numel_now(reader) < 256.0 * lanes * pl->dev.sm_count)
		return 0; /* so few threads, of 16 bytes, wait for each load in turn; a launch costs 2 to 4 us on an H200 */
	if (pl->target == WW_TARGET_CUDA && n > 8 && rows * n > 1 << 20 && pl_most_along(pl, a, a->rank - 1) &&
		!pl_adjoins(pl, r))
		return 0;
	times *= (double)ww_max(1, r->passes); /* a softmax of windows needs each of them three times */
	return r->red < RED_ARGMAX && n <= 64 &&
		times * n <= (r->passes > 2 ? 1.5 : 2) * (rows * (n + 1) + times) + (1 << 20);
}

const char PL_OTHER_ROWS[] = "its reader's rows are not those of the reduction";

const char *pl_apart_from_reader(struct pl *pl, const struct anchor *s)
{
	return pl_anchor_ops[s->kind]->fuses & FUSES_READER
		? pl_fmt(pl, "a %s whose result several read, or one at other indices", s->what)
		: pl_fmt(pl, "the template of a %s ends with its result", s->what);
}

/* A reduction on the spot needs nothing but loads. */
int pl_plain_red(struct pl *pl, struct val *self, struct val *r, const struct ix **src)
{
	struct walk in;

	for (int d = r->rank; d < r->arg[0]->rank; d++)
		src[d] = ix_var(pl, "r", r->arg[0]->size[d]);
	pl_walk_init(&in, pl, self);
	pl_walk(&in, r->arg[0], src);
	for (struct leaf *m = in.first; m; m = m->next)
		if (m->kind != LEAF_LOAD && m->kind != LEAF_INDEX)
			return 0;
	for (struct leaf *m = in.first; m; m = m->next)
		if (m->kind == LEAF_LOAD)
			pl_group_value(pl, m->val);
	return 1;
}

/* The stage after which reduction l is known in kernel k; -1: it must be stored.  inlined: it may be done on the spot.
 */
static int collect_red(struct pl *pl, struct kern *k, struct val *self, struct leaf *l, int inlined, int depth)
{
	const struct ix *src[PL_MAX_RANK];
	struct val *r = l->val;
	int at = k ? pl_red_known(k, r, l->idx) : -1, s;

	if (at >= 0)
		return k->red_stage[at] + 1;
	for (int d = 0; d < r->rank; d++)
		src[d] = l->idx[d];
	if (!k || !pl_red_fits(pl, k, l))
		return inlined && pl_plain_red(pl, self, r, src) ? 0 : -1;
	for (int c = 0; c < k->n_ocol; c++)
		src[r->rank + c] = k->ocol[c];
	s = pl_collect(pl, k, self, r->arg[0], src, depth + 1);
	if (k->n_red >= 64)
		pl_fail(pl, "more than 64 reductions in one kernel");
	k->red[k->n_red] = r;
	k->red_stage[k->n_red] = s;
	for (int d = 0; d < r->rank; d++)
		k->red_idx[k->n_red][d] = l->idx[d];
	k->n_red++;
	k->n_stage = s + 1 > k->n_stage ? s + 1 : k->n_stage;
	return s + 1;
}

/* The same for what an anchor scans along the columns of k, for each column itself; -1: the anchor's result must be
 * stored. */
static int collect_scan(struct pl *pl, struct kern *k, struct val *self, const struct leaf *l, int depth)
{
	struct val *r = k && k->n_col == 1 && !l->guarded ? pl_scan_in_row(pl, l->val->anchor) : NULL;
	struct leaf row = *l;

	if (!r || (l->val->root && l->val != self) || !ix_same(l->idx[r->rank], k->ocol[0]))
		return -1;
	row.val = r;
	return collect_red(pl, k, self, &row, 0, depth);
}

/* Collect the reductions that `v` at idx needs in kernel k (k == NULL: a pointwise kernel); what does not fit becomes a
 * root. Returns the stage after which v can be computed. */
int pl_collect(struct pl *pl, struct kern *k, struct val *self, struct val *v, const struct ix *const *idx, int depth)
{
	struct walk w;
	int stage = 0, again = 1;

	if (depth > 40)
		pl_fail(pl, "reductions depend on each other more than 40 deep");
	while (again) { /* once more after something above a reduction was stored: what lay below is no longer needed */
		again = 0;
		pl_walk_init(&w, pl, self);
		pl_walk(&w, v, idx);
		for (struct leaf *l = w.first; l && !again; l = l->next) {
			int s = 0;

			if (l->kind == LEAF_ANCHOR && (s = collect_scan(pl, k, self, l, depth)) < 0) {
				struct val *store = pl_end_of(pl, v, idx, self, l->val);

				s = 0;
				again = store != l->val;
				pl_store_because(pl, store, pl_apart_from_reader(pl, l->val->anchor));
				pl_group_value(pl, store);
			} else if (l->kind == LEAF_LOAD) {
				pl_group_value(pl, l->val);
			}
			if (l->kind == LEAF_RED && l->val != self)
				s = collect_red(pl, k, self, l, pl_inline_red(pl, &w, l->val, v, idx), depth);
			if (s < 0) {
				struct val *store = pl_store_for(pl, v, idx, self, l->val, NULL);

				again = store != l->val;
				pl_store_because(pl, store, PL_OTHER_ROWS);
				pl_group_value(pl, store);
			}
			stage = s > stage ? s : stage;
		}
	}
	return stage;
}

/* pl_inline_red() of what v needs at its own index. */
int pl_may_inline(struct pl *pl, struct val *v, const struct val *r)
{
	const struct ix *idx[PL_MAX_RANK];
	struct walk w;

	pl_own_vars(pl, v, idx);
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	return pl_inline_red(pl, &w, r, v, idx);
}

/* The first reduction that v needs and that is not stored, from leaf l on. */
struct leaf *pl_next_red(struct leaf *l, const struct val *v)
{
	while (l && (l->kind != LEAF_RED || l->val == v))
		l = l->next;
	return l;
}

struct leaf *pl_first_red(struct pl *pl, struct val *v, const struct ix *const *idx)
{
	struct walk w;

	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	return pl_next_red(w.first, v);
}
