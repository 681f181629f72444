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
#include "policy/planner/schedule/loop.h"

#include <string.h>

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
	pl_same_position(pl, &stored, like, at, in_order);
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

	pl_same_position(pl, v, s->out, at, idx);
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
			pl_same_position(pl, v, &like, turned, idx);
			if (is_epilogue(pl, v, s, idx, at, 1))
				return 1;
		}
	if (!lies_as_product(pl, v, s))
		return 0;
	same_in_memory(pl, v, s->out, at, idx);
	return is_epilogue(pl, v, s, idx, at, 1);
}

int pl_ends_in(struct pl *pl, struct val *v, struct anchor *s)
{
	const struct ix *at[PL_MAX_RANK], *idx[PL_MAX_RANK];

	pl_own_vars(pl, s->out, at);
	return place_in_reader(pl, v, s, at, idx);
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
			pl_collect(pl, NULL, NULL, s->in[i].val, idx, 0);
		} else {
			pl_group_value(pl, s->in[i].val);
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
	pl_same_position(pl, v, s->out, at, idx);
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
struct val *pl_end_of(struct pl *pl, struct val *top, const struct ix *const *idx, struct val *self, struct val *result)
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
	for (struct leaf *l = pl_first_red(pl, out, idx); l && !l->val->root; l = pl_first_red(pl, out, idx)) {
		struct val *store = pl_store_for(pl, out, idx, out, l->val, NULL);

		pl_store_because(pl, store, pl_fmt(pl, "the end of a %s reads it", s->what));
		pl_group_value(pl, store);
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
		pl_add_row(k, at[d]);
	}
	pl_walk_init(&w, pl, out);
	pl_walk(&w, out, idx);
	for (struct leaf *l = w.first; l; l = l->next) {
		if (l->kind == LEAF_ANCHOR && l->val->anchor != s) {
			struct val *store = pl_end_of(pl, out, idx, out, l->val);

			store->last |= out->last && store->rank == out->rank;
			pl_store_because(pl, store, "another anchor ends in its reader's expression");
			pl_group_value(pl, store);
		} else if (l->kind == LEAF_LOAD) {
			pl_group_value(pl, l->val);
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
	pl_store_because(pl, s->out, pl_apart_from_reader(pl, s));
	anchor_kernel(pl, s, s->out, idx, idx);
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
		int i = pl_leaf_known(k, l);

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

/* Does most of what a row kernel reads lie along an axis of its rows, and its result along another one?  A pointwise
 * kernel, which does the reduction on the spot, then reads and writes both by tiles (across.c). */
static int lies_across(struct pl *pl, struct kern *k, const struct val *v)
{
	const struct ix *off[256], *out = pl_offset(pl, v->root, k->out_idx[0]);
	const struct ix_atom *lane = k->n_row ? k->row[k->n_row - 1] : NULL;
	struct buf *buf[256];
	double across = 0, other = 0;

	if (pl->target != WW_TARGET_CUDA || k->n_row < 2 || !pl_runs_along(pl, out, lane))
		return 0;
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 256); i < n; i++) {
		double *to = &other, places = 1;

		for (int d = 0; d < k->n_row; d++) {
			places *= ix_has(off[i], k->row[d]) ? (double)ix_num(k->row[d]->b) : 1;
			if (d < k->n_row - 1 && pl_runs_along(pl, off[i], k->row[d]))
				to = &across;
		}
		for (int c = 0; c < k->n_col; c++)
			places *= ix_has(off[i], k->col[c]) ? (double)ix_num(k->col[c]->b) : 1;
		*to += places;
	}
	return across > 2 * other && across > 1 << 16;
}

enum { ACROSS_COLUMNS = 256, ACROSS_ELEMENTS = 1 << 20 };

/* cuda: does row kernel k read along its columns, and store along another axis?  Each element is a sector then, since
 * of a long row's neighbours other warps store (1,024 x 16 x 2,048, each row over its root mean square, stored turned:
 * 585 us, memory takes 64, H200).  In short rows threads of a warp have neighbours. */
static int stores_across(struct pl *pl, struct kern *k, const struct val *v)
{
	const struct ix_atom *lane = k->n_col ? k->col[k->n_col - 1] : NULL;
	const struct ix *off[512], *out = pl_offset(pl, v->root, k->out_idx[0]);
	struct buf *buf[512];
	double along = 0, other = 0;

	if (pl->target != WW_TARGET_CUDA || k->kind != K_ROW || k->n_out != 1 || !lane || !ix_has(out, lane) ||
		pl_runs_along(pl, out, lane) || ix_num(pl_extent(pl, k->col, k->n_col)) <= ACROSS_COLUMNS ||
		pl_numel_now(v) < ACROSS_ELEMENTS)
		return 0;
	for (int i = 0, n = pl_kern_loads(pl, k, off, buf, 512); i < n; i++)
		*(pl_runs_along(pl, off[i], lane) ? &along : &other) += pl_visits(k, off[i]);
	return along > other;
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
		if (!pl_inline_red(pl, &w, l->val, v, idx) || !pl_plain_red(pl, v, l->val, src))
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

		if (l->kind == LEAF_LOAD && x && k && ix_has(pl_leaf_off(pl, l), k))
			*(ix_has(pl_leaf_off(pl, l), x) ? &own : &shared) = 1;
	}
	pl->n_var = n_var; /* no text has these variables */
	return own && shared;
}

/* Has v, large enough for threads of several elements, windows r of its own whose neighbours share loads? */
static int shares_loads(struct pl *pl, const struct val *v, const struct val *r)
{
	return pl_is_window(r, v) && pl_numel_now(v) >= 1024 * (int64_t)pl->dev.sm_count && r->red < RED_ARGMAX &&
		((v->rank == r->rank && pl_adjoins(pl, r)) || shares_factor(pl, r));
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
		pl_plain_red(pl, v, v, src);
	pl_point_space(pl, k, v, idx);
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
	if (v->kind != V_RED || !shares_loads(pl, v, v) || ix_num(pl_extent(pl, k->col, k->n_col)) > PL_LARGE_WINDOW)
		return 0;
	pl_own_vars(pl, v, src);
	return pl_plain_red(pl, v, v, src);
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
		pl_add_row(k, at[d]);
	k->col[k->n_col++] = ix_as_var(at[s->out->rank - 1]);
	pl_set_columns(pl, k);
	pl_collect(pl, k, v, v, idx, 0);
	return 1;
}

static void row_kernel(struct pl *pl, struct val *v);
static void plan_kernel(struct pl *pl, struct val *v);

/* Reduction r of v at idx, or what v makes of it, is stored by a kernel of its own; then v's kernel is planned. */
static void store_red(struct pl *pl, struct val *v, const struct ix *const *idx, struct val *r, const char *why)
{
	struct val *store = pl_store_for(pl, v, idx, v, r, NULL);

	pl_store_because(pl, store, why);
	pl_group_value(pl, store);
	row_kernel(pl, v);
}

/* cuda: a row of so many elements is a block's, which is through before a second launch would begin. */
enum { FEW_OF_ROW = 8192 };

/* Does the argument of reduction r need reduction inner? */
static int is_made_of(struct pl *pl, struct val *r, const struct val *inner)
{
	const struct ix *idx[PL_MAX_RANK];
	struct walk w;

	pl_own_vars(pl, r->arg[0], idx);
	pl_walk_init(&w, pl, r->arg[0]);
	pl_walk(&w, r->arg[0], idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if (l->kind == LEAF_RED && l->val == inner)
			return 1;
	return 0;
}

/* cuda: does v, which has an element for each result of reduction r, also need one further reduction of all of these (a
 * loss of each row over the root mean square of all)?  That reads what is stored of r, and so does v, in one kernel:
 * planned for the rows of r, v would be a third one behind it (2,048 losses: 28 us, of which two launches were 5). */
static int is_reduced_again(struct pl *pl, struct val *v, const struct ix *const *idx, const struct val *r)
{
	struct walk w;

	if (pl->target != WW_TARGET_CUDA || pl_numel_now(r) != pl_numel_now(v) || pl_numel_now(r) == 1)
		return 0;
	pl_walk_init(&w, pl, v);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if (l->kind == LEAF_RED && l->val != r && pl_numel_now(l->val) == 1 &&
			pl_numel_now(l->val->arg[0]) <= FEW_OF_ROW && is_made_of(pl, l->val, r))
			return 1;
	return 0;
}

static void row_kernel(struct pl *pl, struct val *v)
{
	const struct ix *idx[PL_MAX_RANK];
	struct kern *k = kern_new(pl, K_ROW);
	struct leaf *l = NULL;
	int scans = 0;

	pl_own_vars(pl, v, idx);
	if (v->kind == V_RED) {
		pl_reduction_space(pl, k, v, idx);
	} else if ((scans = scan_space(pl, k, v, idx))) {
		stores_at(k, v, idx);
	} else if (!(l = pl_first_red(pl, v, idx))) {
		pl_point_space(pl, k, v, idx);
	} else if (is_reduced_again(pl, v, idx, l->val)) {
		store_red(pl, v, idx, l->val, PL_OTHER_ROWS);
		return;
	} else if (pl_finds_space(pl, k, v, &l, idx)) {
		pl_set_columns(pl, k);
		if (!k->n_out)
			stores_at(k, v, idx);
		for (int o = 0; o < k->n_out; o++)
			pl_collect(pl, k, v, v, k->out_idx[o], 0);
	} else if (pl_may_inline(pl, v, l->val)) {
		pl_own_vars(pl, v, idx);
		pl_point_space(pl, k, v, idx);
	} else { /* no space of ours */
		store_red(pl, v, idx, l->val, PL_OTHER_ROWS);
		return;
	}
	if (!k->n_out)
		stores_at(k, v, idx);
	if (k->kind == K_ROW && does_too_much(pl, k, v)) {
		if (scans) /* which need not be part of a row kernel once its operand is stored */
			plan_kernel(pl, v);
		else
			row_kernel(pl, v);
		return;
	}
	if (l && stores_across(pl, k, v)) {
		store_red(pl, v, idx, l->val, "what its reader stores lies across the rows");
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
		pl_group_value(pl, s->read[i]);
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

/* The kernel of v: the anchor that v is or ends in, or one of ours. */
static void plan_kernel(struct pl *pl, struct val *v)
{
	const struct ix *idx[PL_MAX_RANK], *at[PL_MAX_RANK];
	int n_var = pl->n_var;
	struct anchor *s = end_anchor(pl, v, idx, at);
	int in_row = s && ends_in_row(pl, v, idx, s, at);

	if (v->kind == V_ANCHOR || in_row) /* which make their own variables */
		pl->n_var = n_var;
	if (!s || in_row)
		row_kernel(pl, v);
	else if (v->kind == V_ANCHOR)
		schedule_spec(pl, s);
	else
		anchor_kernel(pl, s, v, idx, at);
}

void pl_group_value(struct pl *pl, struct val *v)
{
	if (v->segment)
		schedule_segment(pl, v->segment);
	if (v->scheduled || v->kind == V_BUF)
		return;
	v->scheduled = 1;
	pl_make_root(pl, v);
	if (has_no_elements(pl, v))
		return;
	plan_kernel(pl, v);
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
		pl_group_value(pl, out[i]);
	pl_store_pieces(pl);
	pl_join_siblings(pl);
	set_titles(pl);
}
