/* group.c - which values one kernel computes, over which index space.
 *
 * Values that must be in memory ("roots") are the graph's outputs, the operands of anchors, and parts of split
 * reductions. For each root, in order of dependence, one of these:
 *
 *   - it is the only reader of an anchor's result, at its own index: it becomes the anchor's epilogue;
 *   - it contains no reduction: one pointwise kernel, whatever chain of operations and views lies behind it;
 *   - it contains reductions whose results depend only on some of the index (the row) and that run over the rest (the
 *     columns): one row kernel with as many passes as the reductions depend on each other.  The index space is the
 *     root's own, or, where a reshape lies between (group norm), the index space of the reduction.
 *
 * A reduction that fits neither is stored, or what all its users make of it (hoist.c).  Everything else is recomputed
 * where it is used: an operation is cheaper than the memory traffic of its result.
 *
 * Afterwards neighbouring axes that every access walks through as one are merged, so that a pointwise kernel over
 * contiguous tensors has one axis whatever the shape. */
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

static void schedule(struct pl *pl, struct val *v);
static void schedule_spec(struct pl *pl, struct anchor *s);

static struct kern *kern_new(struct pl *pl, enum kkind kind)
{
	struct kern *k = pl_alloc(pl, sizeof(*k));

	if (pl->n_kern >= PL_MAX_KERNELS)
		pl_fail(pl, "more than %d kernels", PL_MAX_KERNELS);
	k->kind = kind;
	return k;
}

static void kern_push(struct pl *pl, struct kern *k)
{
	k->id = pl->n_kern;
	k->name = pl_fmt(pl, "k%d", k->id);
	pl->kern[pl->n_kern++] = k;
}

/* Is the index a row of the reduction even where the condition around the leaf does not hold? */
static int row_exists(const struct leaf *l, int d)
{
	int64_t lo, hi;

	return !l->guarded || (ix_range(l->idx[d], &lo, &hi) && lo >= 0 && hi < ix_num(l->val->size[d]));
}

/* Can the reduction, needed at the leaf's index, be done by the row of kernel k, for every row, whatever conditions
 * stand around it?  Guards what has to hold for it. */
static int red_fits(struct pl *pl, struct kern *k, const struct leaf *l)
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

/* The number of the reduction of k that is at leaf l, -1: none. */
static int leaf_known(const struct kern *k, const struct leaf *l)
{
	const struct val *r = l->kind == LEAF_RED ? l->val : l->kind == LEAF_ANCHOR ? l->val->anchor->in_row : NULL;

	return r ? pl_red_known(k, r, l->idx) : -1;
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

/* How often `reader` at idx, whose leaves are w's, computes reduction r: once an element, or once along the last
 * dimension if r's index does not change with it (cuda: once a thread of four elements). */
static double computed(const struct walk *w, const struct val *r, const struct val *reader, const struct ix *const *idx)
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

enum { LARGE_WINDOW = 16 /* elements, beyond which a thread would wait for too many loads in turn */ };

/* cuda: do windows of neighbouring results overlap or touch along memory, and lie at most two elements apart?  Then a
 * thread that does several results shares loads, or lines, among them. */
static int adjoins(struct pl *pl, const struct val *r)
{
	const struct ix *idx[PL_MAX_RANK], *coef, *rest;
	struct val *a = r->arg[0];
	struct walk w;
	int n_var = pl->n_var, found = 0, all = 1;
	int64_t lane, step;

	if (pl->target != WW_TARGET_CUDA || !r->rank || a->rank == r->rank || ix_num(r->size[r->rank - 1]) % 4)
		return 0;
	pl_own_vars(pl, a, idx);
	pl_walk_init(&w, pl, NULL);
	pl_walk(&w, a, idx);
	for (struct leaf *l = w.first; l && all; l = l->next) {
		const struct ix_atom *x = ix_as_var(idx[r->rank - 1]), *k = ix_as_var(idx[a->rank - 1]);

		if (l->kind == LEAF_INDEX || (l->kind == LEAF_LOAD && x && k && !ix_has(l->off, x) && !ix_has(l->off, k)))
			continue;
		all = l->kind == LEAF_LOAD && x && k && ix_affine(pl, l->off, x, &coef, &rest) && ix_is_const(coef, &lane) &&
			lane >= 1 && lane <= 2 && ix_affine(pl, rest, k, &coef, &rest) && ix_is_const(coef, &step) && step >= 1 &&
			lane <= step * ix_num(a->size[a->rank - 1]);
		found = all;
	}
	pl->n_var = n_var; /* no text has these variables */
	return found;
}

/* A small window with few points is done inside the expression of `reader`, unless that does it so much oftener than
 * there are results that a kernel which stores them (each part read once, a result written, and read where it is
 * needed) does half the work or less.  On cuda a thread that adds up what lies along memory reads a line of its own for
 * each of its elements: few of them in all, or neighbouring threads read what a kernel of rows shares. */
static int inline_red(
	struct pl *pl, const struct walk *w, const struct val *r, const struct val *reader, const struct ix *const *idx)
{
	const struct val *a = r->arg[0];
	double n = 1, rows = (double)pl_numel_now(r), times = computed(w, r, reader, idx);

	for (int d = r->rank; d < r->arg[0]->rank; d++)
		n *= (double)ix_num(r->arg[0]->size[d]);
	if (pl->target == WW_TARGET_CPU)
		return r->red < RED_ARGMAX && n <= 64 && inlined_on_cpu(pl, r, n, rows, times);
	if (pl->target == WW_TARGET_CUDA && n > LARGE_WINDOW && (double)pl_numel_now(reader) < 1024.0 * pl->dev.sm_count)
		return 0; /* so few threads, of four elements, wait for each load in turn; a launch costs 2 to 4 us on an H200
		           */
	if (pl->target == WW_TARGET_CUDA && n > 8 && rows * n > 1 << 20 && pl_most_along(pl, a, a->rank - 1) &&
		!adjoins(pl, r))
		return 0;
	times *= (double)ww_max(1, r->passes); /* a softmax of windows needs each of them three times */
	return r->red < RED_ARGMAX && n <= 64 &&
		times * n <= (r->passes > 2 ? 1.5 : 2) * (rows * (n + 1) + times) + (1 << 20);
}

static const char OTHER_ROWS[] = "its reader's rows are not those of the reduction";

static const char *apart_from_reader(struct pl *pl, const struct anchor *s)
{
	return pl_anchor_ops[s->kind]->fuses & FUSES_READER
		? pl_fmt(pl, "a %s whose result several read, or one at other indices", s->what)
		: pl_fmt(pl, "the template of a %s ends with its result", s->what);
}

static int collect(
	struct pl *pl, struct kern *k, struct val *self, struct val *v, const struct ix *const *idx, int depth);
static struct val *end_of(
	struct pl *pl, struct val *top, const struct ix *const *idx, struct val *self, struct val *result);

/* A reduction on the spot needs nothing but loads. */
static int plain_red(struct pl *pl, struct val *self, struct val *r, const struct ix **src)
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
			schedule(pl, m->val);
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
	if (!k || !red_fits(pl, k, l))
		return inlined && plain_red(pl, self, r, src) ? 0 : -1;
	for (int c = 0; c < k->n_ocol; c++)
		src[r->rank + c] = k->ocol[c];
	s = collect(pl, k, self, r->arg[0], src, depth + 1);
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
static int collect(
	struct pl *pl, struct kern *k, struct val *self, struct val *v, const struct ix *const *idx, int depth)
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
				struct val *store = end_of(pl, v, idx, self, l->val);

				s = 0;
				again = store != l->val;
				pl_store_because(pl, store, apart_from_reader(pl, l->val->anchor));
				schedule(pl, store);
			} else if (l->kind == LEAF_LOAD) {
				schedule(pl, l->val);
			}
			if (l->kind == LEAF_RED && l->val != self)
				s = collect_red(pl, k, self, l, inline_red(pl, &w, l->val, v, idx), depth);
			if (s < 0) {
				struct val *store = pl_store_for(pl, v, idx, self, l->val, NULL);

				again = store != l->val;
				pl_store_because(pl, store, OTHER_ROWS);
				schedule(pl, store);
			}
			stage = s > stage ? s : stage;
		}
	}
	return stage;
}

/* inline_red() of what v needs at its own index. */
static int may_inline(struct pl *pl, struct val *v, const struct val *r)
{
	const struct ix *idx[PL_MAX_RANK];
	struct walk w;

	pl_own_vars(pl, v, idx);
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	return inline_red(pl, &w, r, v, idx);
}

/* The first reduction that v needs and that is not stored, from leaf l on. */
static struct leaf *next_red(struct leaf *l, const struct val *v)
{
	while (l && (l->kind != LEAF_RED || l->val == v))
		l = l->next;
	return l;
}

static struct leaf *first_red(struct pl *pl, struct val *v, const struct ix *const *idx)
{
	struct walk w;

	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	return next_red(w.first, v);
}

/* idx of v for the position whose index in `like` is at[]: same number of elements, row-major order.  Trailing
 * dimensions of equal sizes keep their index. */
static void same_position(
	struct pl *pl, const struct val *v, const struct val *like, const struct ix *const *at, const struct ix **idx)
{
	const struct ix *lin = ix_const(pl, 0);
	int last = v->rank - 1, of = like->rank - 1;

	while (last >= 0 && of >= 0 && ix_num(v->size[last]) == ix_num(like->size[of])) { /* by number: a symbol or not */
		pl_guard_eq(pl, v->size[last], like->size[of], "the sizes of fused operators");
		idx[last--] = at[of--];
	}
	for (int d = 0; d <= of; d++)
		lin = ix_add(pl, ix_mul(pl, lin, ix_fixed(pl, like->size[d])), at[d]);
	for (int d = last; d >= 0; d--) { /* one size at a time: what is left simplifies */
		idx[d] = ix_mod(pl, lin, ix_fixed(pl, v->size[d]));
		lin = ix_div(pl, lin, ix_fixed(pl, v->size[d]));
	}
}

static void add_row(struct kern *k, const struct ix *var)
{
	const struct ix_atom *v = ix_as_var(var);

	if (v)
		k->row[k->n_row++] = v;
}

static void set_columns(struct pl *pl, struct kern *k)
{
	k->n_ocol = k->n_col;
	for (int c = 0; c < k->n_col; c++)
		k->ocol[c] = pl_of_var(pl, k->col[c]);
}

/* Index space of the root's own shape: rows are the variables that the reduction's index uses, columns the others. */
static void own_space(struct kern *k, struct val *v, const struct ix *const *idx, const struct leaf *l)
{
	for (int d = 0; d < v->rank; d++) {
		const struct ix_atom *a = ix_as_var(idx[d]);
		int used = 0;

		if (!a)
			continue;
		for (int e = 0; e < l->val->rank; e++)
			used |= ix_has(l->idx[e], a);
		if (used)
			k->row[k->n_row++] = a;
		else
			k->col[k->n_col++] = a;
	}
}

/* Index space of the reduction's argument; the root's index follows through the linear position. */
static int red_space(struct pl *pl, struct kern *k, struct val *v, const struct leaf *l, const struct ix **idx)
{
	struct val *src = l->val->arg[0];
	const struct ix *at[PL_MAX_RANK];

	if (pl_numel_now(src) != pl_numel_now(v))
		return 0;
	k->n_row = k->n_col = 0;
	for (int d = 0; d < src->rank; d++) {
		at[d] = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), src->size[d]);
		if (d < l->val->rank)
			k->row[k->n_row++] = ix_as_var(at[d]);
		else
			k->col[k->n_col++] = ix_as_var(at[d]);
	}
	pl_guard_eq(pl, pl_numel(pl, src), pl_numel(pl, v), "the elements of a fused reshape");
	same_position(pl, v, src, at, idx);
	return 1;
}

enum { MOST_PARTS = 4 };

/* Index space for a root that has one element for each result of the reduction: its rows are the result's, and nothing
 * of the root depends on the columns. */
static int result_space(struct pl *pl, struct kern *k, struct val *v, const struct leaf *l, const struct ix **idx)
{
	const struct ix *at[PL_MAX_RANK];
	struct val *r = l->val;

	if (pl_numel_now(r) != pl_numel_now(v))
		return 0;
	k->n_row = k->n_col = 0;
	pl_own_vars(pl, r, at);
	for (int d = 0; d < r->rank; d++)
		if (d != 1 || !v->last)
			add_row(k, at[d]);
	if (v->last)
		add_row(k, at[1]);
	for (int d = r->rank; d < r->arg[0]->rank; d++)
		k->col[k->n_col++] = ix_as_var(ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), r->arg[0]->size[d]));
	pl_guard_eq(pl, pl_numel(pl, r), pl_numel(pl, v), "the elements of a fused reshape");
	same_position(pl, v, r, at, idx);
	return 1;
}

/* Does the reduction in this space stand on rows only? */
static int space_works(struct pl *pl, struct kern *k, struct val *v, const struct ix *const *idx, const struct val *red)
{
	struct walk w;

	if (!k->n_col)
		return 0;
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if (l->kind == LEAF_RED && l->val == red)
			return red_fits(pl, k, l);
	return 0;
}

/* Index space for a root whose last dimension is as long as several times the reduction's columns (a norm, and what is
 * made of it, side by side): the kernel stores an element of each part at a column.  idx[] becomes the first part's. */
static int part_space(struct pl *pl, struct kern *k, struct val *v, const struct val *r, const struct ix **idx)
{
	const struct ix *n = r->arg[0]->size[r->rank], *column;
	int last = v->rank - 1, works = 0;
	int64_t parts = last < 0 || r->nred != 1 ? 0 : ix_num(v->size[last]) / ww_max(1, ix_num(n));

	if (pl->target != WW_TARGET_CUDA || v->last || parts < 2 || parts > MOST_PARTS ||
		parts * ix_num(n) != ix_num(v->size[last]))
		return 0;
	pl_own_vars(pl, v, idx);
	k->n_row = k->n_col = 0;
	for (int d = 0; d < last; d++)
		add_row(k, idx[d]);
	column = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), n);
	k->col[k->n_col++] = ix_as_var(column);
	for (int p = 0; p < parts; p++) {
		memcpy(k->out_idx[p], idx, (size_t)last * sizeof(*idx));
		k->out[p] = v;
		k->out_idx[p][last] = ix_add(pl, ix_mulc(pl, n, p), column);
		works |= space_works(pl, k, v, k->out_idx[p], r);
	}
	if (!works)
		return 0;
	pl_guard_eq(pl, v->size[last], ix_mulc(pl, n, parts), "the columns of a fused reduction, several times");
	idx[last] = column;
	k->n_out = (int)parts;
	return 1;
}

/* ---- Scheduling -------------------------------------------------------------------------------------------------- */

/* Can a kernel ahead of the anchor leave reduction r for v, in which the anchor ends?  r has few results and needs
 * nothing of the anchor: what stores r reads its elements once more, which costs less than to store and load the
 * anchor's result (a running sum beside the statistics of a norm). */
static int comes_ahead(struct pl *pl, struct val *r, const struct val *v, const struct anchor *s)
{
	const struct ix *idx[PL_MAX_RANK];
	struct walk w;

	if (pl->target != WW_TARGET_CUDA || 16 * pl_numel_now(r) > pl_numel_now(v))
		return 0;
	pl_walk_init(&w, pl, r);
	w.into_reds = 1;
	pl_own_vars(pl, r, idx);
	pl_walk(&w, r, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if (l->kind == LEAF_ANCHOR && l->val->anchor == s)
			return 0;
	return 1;
}

/* Is v, written at the position of the anchor's element, a function of that element and of other things that are
 * stored, or with `ahead` can be? */
static int is_epilogue(
	struct pl *pl, struct val *v, struct anchor *s, const struct ix *const *idx, const struct ix *const *at, int ahead)
{
	struct walk w;

	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next) {
		if (l->kind == LEAF_RED && !l->val->root && !(ahead && comes_ahead(pl, l->val, v, s)))
			return 0;
		if (l->kind != LEAF_ANCHOR || l->val->anchor != s)
			continue;
		for (int d = 0; d < l->val->rank; d++)
			if (!ix_same(l->idx[d], at[d]))
				return 0;
	}
	return 1;
}

/* idx of v, which is stored in another order than its own, where the element at[] of `like` goes: the same position in
 * memory. */
static void same_in_memory(
	struct pl *pl, const struct val *v, const struct val *like, const struct ix *const *at, const struct ix **idx)
{
	const struct ix *in_order[PL_MAX_RANK];
	struct val stored = *v;
	int from[PL_MAX_RANK];

	for (int d = 0; d < v->rank; d++) {
		int e = d;

		for (; e > 0 && ix_num(v->root->stride[from[e - 1]]) < ix_num(v->root->stride[d]); e--)
			from[e] = from[e - 1];
		from[e] = d;
	}
	for (int d = 0; d < v->rank; d++)
		stored.size[d] = v->size[from[d]];
	same_position(pl, &stored, like, at, in_order);
	for (int d = 0; d < v->rank; d++)
		idx[from[d]] = in_order[d];
}

/* Does v, which is not stored in its own order, lie as the product does (channels behind pixels)?  What else it reads
 * may lie across: eight lanes of a tile's end have neighbouring rows, whole sectors.  The library's pass has not. */
static int lies_as_product(struct pl *pl, const struct val *v, struct anchor *s)
{
	return pl->target == WW_TARGET_CUDA && s->kind == S_GEMM && v->root && !v->root->contiguous && !pl_all_plain(pl) &&
		pl_anchor_ops[s->kind]->ends_free(pl, s);
}

/* idx of v where the element at[] of the anchor's result goes: the same position, or on cuda, for a product or
 * attention, the one after two of its axes but the last changed places (heads and steps, behind which the heads are
 * joined), or of a product the same one in memory. */
static int place_in_reader(
	struct pl *pl, struct val *v, struct anchor *s, const struct ix *const *at, const struct ix **idx)
{
	int turns = pl->target == WW_TARGET_CUDA && (s->kind == S_GEMM || s->kind == S_ATTN) ? s->out->rank - 1 : 0;

	same_position(pl, v, s->out, at, idx);
	if (is_epilogue(pl, v, s, idx, at, 1))
		return 1;
	for (int a = 0; a < turns; a++)
		for (int b = a + 1; b < turns; b++) {
			const struct ix *turned[PL_MAX_RANK];
			struct val like = *s->out;

			memcpy(turned, at, sizeof(turned));
			turned[a] = at[b];
			turned[b] = at[a];
			like.size[a] = s->out->size[b];
			like.size[b] = s->out->size[a];
			same_position(pl, v, &like, turned, idx);
			if (is_epilogue(pl, v, s, idx, at, 1))
				return 1;
		}
	if (!lies_as_product(pl, v, s))
		return 0;
	same_in_memory(pl, v, s->out, at, idx);
	return is_epilogue(pl, v, s, idx, at, 1);
}

/* Does v, one of whose anchors is s, go behind a kernel of s alone? */
static int goes_apart(struct pl *pl, struct val *v, const struct ix *const *own, const struct anchor *s)
{
	int reads = 0;
	struct walk w;

	if (!pl_anchor_ops[s->kind]->ends_apart)
		return 0;
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, own);
	for (struct leaf *l = w.first; l; l = l->next)
		reads += (l->kind == LEAF_LOAD || (l->kind == LEAF_ANCHOR && l->val->anchor != s)) &&
			pl_numel_now(l->val) == pl_numel_now(v);
	return pl_anchor_ops[s->kind]->ends_apart(pl, s, reads);
}

/* A root that is a pure function of one anchor's result at its own position becomes its epilogue: at[] is the anchor's
 * index, idx[] the root's.  Of several anchors the last one is taken; the others are stored. */
static struct anchor *epilogue_of(struct pl *pl, struct val *v, const struct ix **idx, const struct ix **at)
{
	const struct ix *own[PL_MAX_RANK];
	struct anchor *best = NULL;
	struct walk w;

	pl_own_vars(pl, v, own);
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, own);
	for (struct leaf *l = w.first; l; l = l->next) {
		struct anchor *s = l->kind == LEAF_ANCHOR ? l->val->anchor : NULL;

		if (!s || !(pl_anchor_ops[s->kind]->fuses & FUSES_READER) || s->consumers != 1 || s->scheduled ||
			pl_numel_now(l->val) != pl_numel_now(v) || (best && best->id >= s->id) || goes_apart(pl, v, own, s))
			continue;
		pl_own_vars(pl, s->out, at);
		if (place_in_reader(pl, v, s, at, idx))
			best = s;
	}
	if (best) {
		pl_own_vars(pl, best->out, at);
		place_in_reader(pl, v, best, at, idx);
		pl_guard_eq(pl, pl_numel(pl, best->out), pl_numel(pl, v), "the elements of a fused reshape");
	}
	return best;
}

static void schedule_operands(struct pl *pl, struct anchor *s)
{
	pl_anchor_operands(pl, s);
	for (int i = 0; i < s->n_in; i++) {
		if (pl_fuses_operand(s, i)) {
			const struct ix *idx[PL_MAX_RANK];

			pl_own_vars(pl, s->in[i].val, idx);
			collect(pl, NULL, NULL, s->in[i].val, idx, 0);
		} else {
			schedule(pl, s->in[i].val);
		}
	}
}

/* Can v be stored in place of the result of its only anchor, which computes it on the way? */
static int ends_anchor(struct pl *pl, struct val *v, struct val *result)
{
	const struct ix *idx[PL_MAX_RANK], *at[PL_MAX_RANK];
	struct anchor *s = result->anchor;
	struct walk w;

	if (pl_itemsize(v->dt) > pl_itemsize(result->dt))
		return 0;
	pl_own_vars(pl, s->out, at);
	same_position(pl, v, s->out, at, idx);
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if (l->kind == LEAF_ANCHOR && l->val != result)
			return 0;
	return is_epilogue(pl, v, s, idx, at, 0);
}

/* At how many places `top` at idx reads an anchor's result. */
static int reads_of(struct pl *pl, struct val *top, const struct ix *const *idx, struct val *self, struct val *result)
{
	struct walk w;
	int n = 0;

	pl_walk_init(&w, pl, self);
	pl_walk(&w, top, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		n += l->kind == LEAF_ANCHOR && l->val == result;
	return n;
}

/* What to store where `top` at idx, the only reader, needs an anchor's result from memory: of 16 bits what top makes of
 * it, as far as its kernel can, so that a bias is added before the sum is rounded, as PyTorch does it. */
static struct val *end_of(
	struct pl *pl, struct val *top, const struct ix *const *idx, struct val *self, struct val *result)
{
	struct anchor *s = result->anchor;
	const struct anchor_ops *ops = pl_anchor_ops[s->kind];
	struct val *end;

	if (pl_itemsize(result->dt) > 2 || s->scheduled || !ops->ends_free || !ops->ends_free(pl, s) ||
		s->consumers != reads_of(pl, top, idx, self, result))
		return result;
	end = pl_store_for(pl, top, idx, self, result, ends_anchor);
	if (end != result) /* top reads that from now on, however often */
		s->consumers = 1;
	return end;
}

/* Reductions that `out`, in which s ends, needs, or what out makes of them. */
static void store_ahead(struct pl *pl, const struct anchor *s, struct val *out, const struct ix *const *idx)
{
	for (struct leaf *l = first_red(pl, out, idx); l && !l->val->root; l = first_red(pl, out, idx)) {
		struct val *store = pl_store_for(pl, out, idx, out, l->val, NULL);

		pl_store_because(pl, store, pl_fmt(pl, "the end of a %s reads it", s->what));
		schedule(pl, store);
	}
}

static void anchor_kernel(
	struct pl *pl, struct anchor *s, struct val *out, const struct ix *const *idx, const struct ix *const *at)
{
	struct kern *k = kern_new(pl, K_ANCHOR);
	struct walk w;

	s->scheduled = 1;
	schedule_operands(pl, s);
	store_ahead(pl, s, out, idx);
	k->anchor = s;
	k->out[0] = out;
	k->n_out = 1;
	for (int d = 0; d < out->rank; d++) {
		k->out_idx[0][d] = idx[d];
	}
	for (int d = 0; d < s->out->rank; d++) {
		k->anchor_idx[d] = at[d];
		add_row(k, at[d]);
	}
	pl_walk_init(&w, pl, out);
	pl_walk(&w, out, idx);
	for (struct leaf *l = w.first; l; l = l->next) {
		if (l->kind == LEAF_ANCHOR && l->val->anchor != s) {
			struct val *store = end_of(pl, out, idx, out, l->val);

			store->last |= out->last && store->rank == out->rank;
			pl_store_because(pl, store, "another anchor ends in its reader's expression");
			schedule(pl, store);
		} else if (l->kind == LEAF_LOAD) {
			schedule(pl, l->val);
		}
	}
	k->what = s->what;
	kern_push(pl, k);
}

static void schedule_spec(struct pl *pl, struct anchor *s)
{
	const struct ix *idx[PL_MAX_RANK];

	if (s->scheduled)
		pl_fail(pl, "the result of node %s is needed after it was fused away", s->node);
	pl_own_vars(pl, s->out, idx);
	pl_store_because(pl, s->out, apart_from_reader(pl, s));
	anchor_kernel(pl, s, s->out, idx, idx);
}

/* The index space of a pointwise kernel: v at idx, one element at a time. */
static void point_space(struct pl *pl, struct kern *k, struct val *v, const struct ix *const *idx)
{
	k->kind = K_POINT;
	k->n_row = k->n_col = 0;
	collect(pl, NULL, v, v, idx, 0);
	for (int d = 0; d < v->rank; d++)
		if (d != 1 || !v->last)
			add_row(k, idx[d]);
	if (v->last)
		add_row(k, idx[1]);
}

/* Rows are what the reduction v leaves, columns what it runs over; v itself comes after whatever it needs. */
static void reduction_space(struct pl *pl, struct kern *k, struct val *v, const struct ix *const *idx)
{
	const struct ix *src[PL_MAX_RANK];
	int stage = 0;

	for (int d = 0; d < v->rank; d++) {
		src[d] = idx[d];
		add_row(k, idx[d]);
	}
	for (int d = v->rank; d < v->arg[0]->rank; d++) {
		src[d] = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), v->arg[0]->size[d]);
		k->col[k->n_col++] = ix_as_var(src[d]);
	}
	set_columns(pl, k);
	collect(pl, k, v, v->arg[0], src, 0);
	for (int i = 0; i < k->n_red; i++)
		stage = k->red_stage[i] + 1 > stage ? k->red_stage[i] + 1 : stage;
	k->red_stage[k->n_red] = stage;
	k->n_stage = stage + 1;
	memcpy(k->red_idx[k->n_red], idx, (size_t)v->rank * sizeof(*idx));
	k->red[k->n_red++] = v;
}

/* Mark the reductions of k that v at idx needs, and those that they need. */
static void mark_needed(
	struct pl *pl, const struct kern *k, struct val *self, struct val *v, const struct ix *const *idx, char *needed)
{
	const struct ix *src[PL_MAX_RANK];
	struct walk w;

	pl_walk_init(&w, pl, self);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next) {
		int i = leaf_known(k, l);

		if (i < 0 || needed[i])
			continue;
		needed[i] = 1;
		pl_red_element(k, i, src);
		mark_needed(pl, k, self, k->red[i]->arg[0], src, needed);
	}
}

/* Has k reductions that nothing of it needs any more?  Something above them was stored after they had been collected (a
 * loss, whose mean over all rows v needs as well): k, planned for their rows, would do them once more. */
static int does_too_much(struct pl *pl, const struct kern *k, struct val *v)
{
	char needed[WW_ARRAY_LEN(k->red)] = { 0 };

	if (v->kind == V_RED) {
		const struct ix *src[PL_MAX_RANK];
		int last = k->n_red - 1; /* v itself */

		needed[last] = 1;
		pl_red_element(k, last, src);
		mark_needed(pl, k, v, v->arg[0], src, needed);
	} else {
		for (int o = 0; o < k->n_out; o++)
			mark_needed(pl, k, v, v, k->out_idx[o], needed);
	}
	return memchr(needed, 0, (size_t)k->n_red) != NULL;
}

/* The first of the four index spaces in which the reduction at l stands on rows; idx[] becomes v's index in it. */
static int find_space(struct pl *pl, struct kern *k, struct val *v, const struct leaf *l, const struct ix **idx)
{
	own_space(k, v, idx, l);
	if (space_works(pl, k, v, idx, l->val))
		return 1;
	if (red_space(pl, k, v, l, idx) && space_works(pl, k, v, idx, l->val))
		return 1;
	if (result_space(pl, k, v, l, idx) && space_works(pl, k, v, idx, l->val))
		return 1;
	return part_space(pl, k, v, l->val, idx);
}

/* Has r a result for each element of v, of a few of its own (a pool)? */
static int is_window(const struct val *r, const struct val *v)
{
	return pl_numel_now(r) == pl_numel_now(v) && pl_numel_now(r->arg[0]) <= 64 * pl_numel_now(r);
}

/* find_space() for the first reduction from *l on; *l becomes that one.  cuda: windows are skipped for one after them
 * whose rows v has, at least one for each multiprocessor: a softmax of a pool is rows of the softmax, with the pool on
 * the spot or stored. */
static int finds_space(struct pl *pl, struct kern *k, struct val *v, struct leaf **l, const struct ix **idx)
{
	const struct ix *own[PL_MAX_RANK];
	struct leaf *at = *l;

	memcpy(own, idx, (size_t)v->rank * sizeof(*idx));
	while (pl->target == WW_TARGET_CUDA && at && is_window(at->val, v))
		at = next_red(at->next, v);
	if (at && (at == *l || pl_numel_now(at->val) >= pl->dev.sm_count) && find_space(pl, k, v, at, idx)) {
		*l = at;
		return 1;
	}
	k->n_row = k->n_col = 0;
	memcpy(idx, own, (size_t)v->rank * sizeof(*idx));
	return at != *l && find_space(pl, k, v, *l, idx);
}

static int runs_along(struct pl *pl, const struct ix *off, const struct ix_atom *v)
{
	const struct ix *coef, *rest;

	return ix_affine(pl, off, v, &coef, &rest) && ix_is(coef, 1);
}

/* Does most of what a row kernel reads lie along an axis of its rows, and its result along another one?  A pointwise
 * kernel, which does the reduction on the spot, then reads and writes both by tiles (loop.c). */
static int lies_across(struct pl *pl, struct kern *k, const struct val *v)
{
	const struct ix *off[256], *out = pl_offset(pl, v->root, k->out_idx[0]);
	const struct ix_atom *lane = k->n_row ? k->row[k->n_row - 1] : NULL;
	struct buf *buf[256];
	double across = 0, other = 0;

	if (pl->target != WW_TARGET_CUDA || k->n_row < 2 || !runs_along(pl, out, lane))
		return 0;
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 256); i < n; i++) {
		double *to = &other, places = 1;

		for (int d = 0; d < k->n_row; d++) {
			places *= ix_has(off[i], k->row[d]) ? (double)ix_num(k->row[d]->b) : 1;
			if (d < k->n_row - 1 && runs_along(pl, off[i], k->row[d]))
				to = &across;
		}
		for (int c = 0; c < k->n_col; c++)
			places *= ix_has(off[i], k->col[c]) ? (double)ix_num(k->col[c]->b) : 1;
		*to += places;
	}
	return across > 2 * other && across > 1 << 16;
}

/* Can every reduction that v needs be done on the spot? */
static int all_inline(struct pl *pl, struct val *v)
{
	const struct ix *idx[PL_MAX_RANK], *src[PL_MAX_RANK];
	struct walk w;

	pl_own_vars(pl, v, idx);
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next) {
		if (l->kind == LEAF_ANCHOR)
			return 0;
		if (l->kind != LEAF_RED)
			continue;
		memcpy(src, l->idx, sizeof(src));
		if (!inline_red(pl, &w, l->val, v, idx) || !plain_red(pl, v, l->val, src))
			return 0;
	}
	return 1;
}

/* Does r sum a few products (of a small matrix), in which what neighbouring results need differs in one factor alone?
 */
static int shares_factor(struct pl *pl, const struct val *r)
{
	const struct ix *idx[PL_MAX_RANK];
	const struct val *a = r->arg[0];
	int n_var = pl->n_var, own = 0, shared = 0;
	struct walk w;

	if (r->red != RED_SUM || !r->rank || a->rank != r->rank + 1 || ix_num(a->size[r->rank]) > 8 ||
		ix_num(r->size[r->rank - 1]) % 4)
		return 0;
	pl_own_vars(pl, a, idx);
	pl_walk_init(&w, pl, NULL);
	pl_walk(&w, (struct val *)a, idx);
	for (struct leaf *l = w.first; l; l = l->next) {
		const struct ix_atom *x = ix_as_var(idx[r->rank - 1]), *k = ix_as_var(idx[r->rank]);

		if (l->kind == LEAF_LOAD && x && k && ix_has(l->off, k))
			*(ix_has(l->off, x) ? &own : &shared) = 1;
	}
	pl->n_var = n_var; /* no text has these variables */
	return own && shared;
}

/* Has v, large enough for threads of several elements, windows r of its own whose neighbours share loads? */
static int shares_loads(struct pl *pl, const struct val *v, const struct val *r)
{
	return is_window(r, v) && pl_numel_now(v) >= 1024 * (int64_t)pl->dev.sm_count && r->red < RED_ARGMAX &&
		((v->rank == r->rank && adjoins(pl, r)) || shares_factor(pl, r));
}

/* Kernel k stores v at idx, and nothing else. */
static void stores_at(struct kern *k, struct val *v, const struct ix *const *idx)
{
	k->out[0] = v;
	k->n_out = 1;
	memcpy(k->out_idx[0], idx, (size_t)v->rank * sizeof(*idx));
}

/* Row kernel k of v becomes a pointwise one, which does all reductions on the spot. */
static void as_points(struct pl *pl, struct kern *k, struct val *v, const struct ix **idx)
{
	const struct ix *src[PL_MAX_RANK];

	k->n_red = k->n_stage = k->n_ocol = 0;
	pl_own_vars(pl, v, idx);
	memcpy(src, idx, sizeof(src));
	if (v->kind == V_RED)
		plain_red(pl, v, v, src);
	point_space(pl, k, v, idx);
	stores_at(k, v, idx);
}

void pl_becomes_points(struct pl *pl, struct kern *k, struct val *v)
{
	const struct ix *idx[PL_MAX_RANK];

	as_points(pl, k, v, idx);
	if (pl->target == WW_TARGET_CPU)
		pl_merge_axes(pl, k);
}

/* Is v a window, or does it need some, whose reduction belongs where its elements are? */
static int suits_points(struct pl *pl, struct kern *k, struct val *v, const struct leaf *l)
{
	const struct ix *src[PL_MAX_RANK];

	if (pl->target != WW_TARGET_CUDA || k->kind != K_ROW)
		return 0;
	if (l && shares_loads(pl, v, l->val))
		l->val->passes = 1; /* of those for which v is stored, once */
	if (l)
		return (lies_across(pl, k, v) || shares_loads(pl, v, l->val)) && all_inline(pl, v);
	if (v->kind != V_RED || !shares_loads(pl, v, v) || ix_num(pl_extent(pl, k->col, k->n_col)) > LARGE_WINDOW)
		return 0;
	pl_own_vars(pl, v, src);
	return plain_red(pl, v, v, src);
}

/* The rows of a result that PyTorch stores in another order (of a transposition) go by its memory. */
static void order_as_stored(struct pl *pl, struct kern *k)
{
	const struct ix *off = pl_offset(pl, k->out[0]->root, k->out_idx[0]), *coef, *rest;
	int64_t step[2 * PL_MAX_RANK];

	if (k->out[0]->root->contiguous)
		return;
	for (int d = 0; d < k->n_row; d++) {
		const struct ix_atom *v = k->row[d];
		int at = d;

		if (!ix_affine(pl, off, v, &coef, &rest) || ix_varies(coef))
			return;
		for (; at > 0 && step[at - 1] < ix_num(coef); at--) {
			step[at] = step[at - 1];
			k->row[at] = k->row[at - 1];
		}
		step[at] = ix_num(coef);
		k->row[at] = v;
	}
}

/* The anchor whose result v is or ends in, as epilogue_of() has it. */
static struct anchor *end_anchor(struct pl *pl, struct val *v, const struct ix **idx, const struct ix **at)
{
	if (v->kind != V_ANCHOR)
		return v->kind == V_RED ? NULL : epilogue_of(pl, v, idx, at);
	pl_own_vars(pl, v, at);
	memcpy(idx, at, (size_t)v->rank * sizeof(*idx));
	return v->anchor;
}

/* Does v at idx, which is or leads to what s scans along the last of at[], need another scan at the same place, or a
 * reduction of the same rows? */
static int needs_row_of(
	struct pl *pl, struct val *v, const struct ix *const *idx, const struct anchor *s, const struct ix *const *at)
{
	int last = s->out->rank - 1;
	struct walk w;

	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next) {
		const struct val *r = l->val;

		if (l->kind == LEAF_ANCHOR && r->anchor != s && !r->root && r->rank == last + 1 &&
			ix_same_all(l->idx, at, last + 1) && pl_scan_in_row(pl, r->anchor))
			return 1;
		if (l->kind == LEAF_RED && !r->root && r->nred == 1 && r->rank == last && ix_same_all(l->idx, at, last) &&
			ix_num(r->arg[0]->size[last]) == ix_num(s->out->size[last]))
			return 1;
	}
	return 0;
}

/* Is a scan, in which v ends, part of a row kernel, which holds its rows for other scans and reductions of them? */
static int ends_in_row(
	struct pl *pl, struct val *v, const struct ix *const *idx, struct anchor *s, const struct ix *const *at)
{
	return pl_scan_in_row(pl, s) && (needs_row_of(pl, v, idx, s, at) || needs_row_of(pl, s->in[0].val, at, s, at));
}

/* Is v, or does it read at its own index, what a row kernel could scan? */
static int reads_scan(struct pl *pl, struct val *v)
{
	const struct ix *idx[PL_MAX_RANK];
	struct walk w;
	int n_var = pl->n_var, found = 0;

	pl_own_vars(pl, v, idx);
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		found |= l->kind == LEAF_ANCHOR && pl_scan_in_row(pl, l->val->anchor);
	pl->n_var = n_var;
	return found;
}

/* Index space of such a scan. */
static int scan_space(struct pl *pl, struct kern *k, struct val *v, const struct ix **idx)
{
	const struct ix *at[PL_MAX_RANK], *mine[PL_MAX_RANK];
	int n_var = pl->n_var;
	struct anchor *s = reads_scan(pl, v) ? end_anchor(pl, v, mine, at) : NULL;

	if (!s || !ends_in_row(pl, v, mine, s, at)) {
		pl->n_var = n_var;
		return 0;
	}
	memcpy(idx, mine, (size_t)v->rank * sizeof(*idx));
	for (int d = 0; d < s->out->rank - 1; d++)
		add_row(k, at[d]);
	k->col[k->n_col++] = ix_as_var(at[s->out->rank - 1]);
	set_columns(pl, k);
	collect(pl, k, v, v, idx, 0);
	return 1;
}

static void row_kernel(struct pl *pl, struct val *v)
{
	const struct ix *idx[PL_MAX_RANK];
	struct kern *k = kern_new(pl, K_ROW);
	struct leaf *l = NULL;

	pl_own_vars(pl, v, idx);
	if (v->kind == V_RED) {
		reduction_space(pl, k, v, idx);
	} else if (scan_space(pl, k, v, idx)) {
		stores_at(k, v, idx);
	} else if (!(l = first_red(pl, v, idx))) {
		point_space(pl, k, v, idx);
	} else if (finds_space(pl, k, v, &l, idx)) {
		set_columns(pl, k);
		if (!k->n_out)
			stores_at(k, v, idx);
		for (int o = 0; o < k->n_out; o++)
			collect(pl, k, v, v, k->out_idx[o], 0);
	} else if (may_inline(pl, v, l->val)) {
		pl_own_vars(pl, v, idx);
		point_space(pl, k, v, idx);
	} else { /* no space of ours: store it, or what v makes of it, and look again */
		struct val *store = pl_store_for(pl, v, idx, v, l->val, NULL);

		pl_store_because(pl, store, OTHER_ROWS);
		schedule(pl, store);
		row_kernel(pl, v);
		return;
	}
	if (!k->n_out)
		stores_at(k, v, idx);
	if (k->kind == K_ROW && does_too_much(pl, k, v)) {
		row_kernel(pl, v);
		return;
	}
	if (suits_points(pl, k, v, l))
		as_points(pl, k, v, idx);
	if (k->kind == K_POINT)
		pl_unroll(pl, k);
	if (pl->target == WW_TARGET_CPU || k->kind == K_POINT)
		order_as_stored(pl, k);
	pl_merge_axes(pl, k);
	if (k->kind == K_POINT)
		pl_split_lane(pl, k);
	k->what = k->kind == K_POINT ? "pointwise" : "rows";
	kern_push(pl, k);
}

/* Schedule what the segment reads, then the segment. */
static void schedule_segment(struct pl *pl, struct segment *s)
{
	struct kern *k;

	if (s->scheduled)
		return;
	s->scheduled = 1;
	for (int i = 0; i < s->n_read; i++)
		schedule(pl, s->read[i]);
	k = kern_new(pl, K_PYTORCH);
	k->segment = s;
	k->what = "PyTorch";
	kern_push(pl, k);
}

/* A value without elements has a buffer and no kernel: a launch has at least one block. */
static int has_no_elements(struct pl *pl, const struct val *v)
{
	const struct ix *n = pl_numel(pl, v);

	if (ix_num(n))
		return 0;
	pl_guard_eq(pl, n, ix_const(pl, 0), "the elements of an empty tensor");
	return 1;
}

static void schedule(struct pl *pl, struct val *v)
{
	const struct ix *idx[PL_MAX_RANK], *at[PL_MAX_RANK];
	int n_var, in_row;
	struct anchor *s;

	if (v->segment)
		schedule_segment(pl, v->segment);
	if (v->scheduled || v->kind == V_BUF)
		return;
	v->scheduled = 1;
	pl_make_root(pl, v);
	if (has_no_elements(pl, v))
		return;
	n_var = pl->n_var;
	s = end_anchor(pl, v, idx, at);
	in_row = s && ends_in_row(pl, v, idx, s, at);
	if (v->kind == V_ANCHOR || in_row) /* which make their own variables */
		pl->n_var = n_var;
	if (!s || in_row)
		row_kernel(pl, v);
	else if (v->kind == V_ANCHOR)
		schedule_spec(pl, s);
	else
		anchor_kernel(pl, s, v, idx, at);
}

/* Strides of an output that is not contiguous: products of its sizes, where its dimensions lie within each other in
 * another order (the result of a transposition), so that indices simplify; else PyTorch's numbers. */
static void output_strides(struct pl *pl, struct buf *b, const struct gmeta *m)
{
	const struct ix *step = ix_const(pl, 1);
	int done[PL_MAX_RANK] = { 0 };

	for (int d = 0; d < m->rank; d++)
		b->stride[d] = ix_const(pl, m->stride[d]);
	for (int n = 0; n < m->rank; n++) {
		int at = -1;

		for (int d = 0; d < m->rank; d++)
			if (!done[d] && m->size[d] != 1 && (at < 0 || m->stride[d] < m->stride[at]))
				at = d;
		if (at < 0 || m->stride[at] != ix_num(step))
			return;
		b->stride[at] = step;
		step = ix_mul(pl, step, b->size[at]);
		done[at] = 1;
	}
}

/* The values of the graph's results, each with a buffer of its own. */
static struct val *output_value(struct pl *pl, int i)
{
	struct val *v = pl_val_of(pl, &pl->output[i]);
	const struct gmeta *m = &pl->out_meta[i];
	struct buf *b;
	int64_t s = 1;
	int last = pl_stored_last(m);

	if (!m->dt)
		pl_fail(pl, "output %d has a type that the planner does not know", i);
	if (v->kind == V_CONST)
		pl_fail(pl, "output %d is a constant", i);
	v = pl_cast(pl, v, m->dt);
	/* an input as it is, a value that is returned twice, or one that is stored in another order */
	if (v->kind == V_BUF || (v->last && !last) || (v->root && (v->root->kind == B_OUTPUT || (last && !v->last))))
		v = pl_view(pl, v, v->rank, v->size, pl->place);
	v->last = last;
	b = v->root ? v->root : pl_buf(pl, B_OUTPUT, m->dt, v->rank, v->size);
	b->kind = B_OUTPUT;
	b->index = i;
	b->name = pl_fmt(pl, "out%d", i);
	for (int d = m->rank - 1; d >= 0; d--) {
		if (m->size[d] != 1 && m->stride[d] != s && pl_numel_now(v))
			b->contiguous = 0;
		s *= m->size[d];
	}
	if (!b->contiguous)
		output_strides(pl, b, m);
	v->root = b;
	return v;
}

/* -- Titles ------------------------------------------------------------------------------------------------------ */

struct title_walk {
	struct kern *k;
	const struct kern **seen; /* of each value: the last kernel that it was seen in */
};

/* Mark the nodes of v and of what it is computed from, as far as nothing is stored in between. */
static void mark_nodes(struct title_walk *w, struct val *v)
{
	if (w->seen[v->id] == w->k)
		return;
	w->seen[v->id] = w->k;
	if (v->node)
		v->node->in = w->k;
	for (int i = 0; i < v->n_arg; i++)
		if (!v->arg[i]->root)
			mark_nodes(w, v->arg[i]);
	for (int i = 0; v->anchor && v->anchor == w->k->anchor && i < v->anchor->n_in; i++)
		if (!v->anchor->in[i].val->root)
			mark_nodes(w, v->anchor->in[i].val);
}

/* "gemm: linear, gelu": what a kernel is, and the graph nodes that it computes or reads through, in the graph's order.
 */
static void set_titles(struct pl *pl)
{
	struct title_walk w = { .seen = pl_alloc(pl, (size_t)pl->n_val * sizeof(*w.seen)) };

	for (int i = 0; i < pl->n_kern; i++) {
		struct ww_str s = pl_text(pl);

		w.k = pl->kern[i];
		w.k->node = pl_alloc(pl, (size_t)(pl->n_node + 1) * sizeof(*w.k->node));
		for (int o = 0; o < w.k->n_out; o++)
			mark_nodes(&w, w.k->out[o]);
		for (int n = 0; n < pl->n_node; n++)
			if (w.k->segment ? pl->node[n].by_pytorch && pl->node[n].level == w.k->segment->level
							 : pl->node[n].in == w.k) {
				ww_str_addf(&s, "%s%s", s.len ? ", " : "", pl->node[n].name);
				w.k->node[w.k->n_node++] = pl->node[n].name;
			}
		w.k->title = pl_fmt(pl, "%s: %s", w.k->what, s.p);
		ww_str_release(&s);
	}
}

void pl_group(struct pl *pl)
{
	struct val *out[64], **roots = pl_alloc(pl, PL_MAX_ROOTS * sizeof(struct val *));
	int n = 0;

	for (int i = 0; i < pl->n_output; i++)
		roots[n++] = out[i] = output_value(pl, i);
	for (struct segment *s = pl->segments; s; s = s->next)
		for (int i = 0; i < s->n_read && n < PL_MAX_ROOTS; i++)
			if (s->read[i]->kind != V_BUF)
				roots[n++] = s->read[i];
	pl_find_roots(pl, roots, n);
	for (int i = 0; i < pl->n_output; i++)
		schedule(pl, out[i]);
	pl_store_pieces(pl);
	pl_join_siblings(pl);
	set_titles(pl);
}
