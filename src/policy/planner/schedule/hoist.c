/* hoist.c - what to store when a reduction must be stored.
 *
 * Where a kernel needs a reduction that its own rows cannot do, another kernel does it and leaves the result in memory.
 * Often the users do not want the reduction itself but something made of it, row by row: a loss wants max + log(sum),
 * not the maximum and the sum.  Storing the reductions one by one costs a kernel each, and each reads the rows again.
 * So the highest value is stored that
 *
 *   - has as many elements as the reduction has results: it belongs to the row, and costs no more memory, and
 *   - lies on every path from the user to the reduction: nothing else needs the reduction.
 *
 * Such values form a chain, and a walk from the user down meets the highest first.
 *
 * Kernels are written out after all of them are planned, and a value that is stored is read from there on.  So a value
 * that an earlier kernel computes on the way cannot be stored by a later one any more; then the reduction is stored,
 * which an earlier kernel that does it too has in a register (expr.c asks for that first). */
#include "policy/planner/planner.h"
#include "policy/planner/schedule/group.h"

enum { LARGE = 1 << 20 /* elements that cuda does not read twice to save a store */ };

struct hoist {
	struct pl *pl;
	struct val *top, *self, *red, *found;
	pl_storable_fn storable;
	const struct ix *const *idx;
};

static int is_it(void *ctx, struct val *v, const struct ix *const *idx)
{
	(void)idx;
	return v == ctx;
}

/* Does `from` at idx need `red`, a reduction or the result of an anchor, on a way that does not lead through `past`
 * (NULL: at all)? */
static int needs(struct pl *pl, struct val *from, const struct ix *const *idx, struct val *self, const struct val *red,
	struct val *past)
{
	struct walk w;

	pl_walk_init(&w, pl, self);
	w.stop = past ? is_it : NULL;
	w.stop_ctx = past;
	pl_walk(&w, from, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if ((l->kind == LEAF_RED || l->kind == LEAF_ANCHOR) && l->val == red)
			return 1;
	return 0;
}

static int computes(struct pl *pl, struct val *from, const struct ix *const *idx, struct val *what)
{
	struct ww_arena_mark mark = ww_arena_mark(&pl->arena);
	struct walk w;
	int found = 0;

	pl_walk_init(&w, pl, from);
	w.into_reds = 1;
	w.stop = is_it;
	w.stop_ctx = what;
	pl_walk(&w, from, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		found |= l->kind == LEAF_STOP;
	/* It is asked of every kernel for every value that may be stored: a long recurrence would fill the memory. */
	ww_arena_rewind(&pl->arena, mark);
	return found;
}

/* Would `other` go over the reduction's elements for its results alone?  On cuda it has them in registers where it
 * needs the elements, too. */
static int has_no_columns(const struct hoist *h, const struct val *other)
{
	return pl_numel_now(other) <= pl_numel_now(h->red);
}

/* Does another value that is stored need h->red on a way that does not lead through v?  Then red itself is stored,
 * once, in place of v here and red or another v there. */
static int needed_elsewhere(const struct hoist *h, struct val *v)
{
	int n_var = h->pl->n_var, found = 0, cuda = h->pl->target == WW_TARGET_CUDA;

	if (cuda ? h->red->kind != V_RED || pl_numel_now(h->red->arg[0]) < LARGE : h->red->passes <= 1)
		return 0;
	for (int i = 0; i < h->pl->n_stored && !found; i++) {
		struct val *other = h->pl->stored[i];
		const struct ix *idx[PL_MAX_RANK];
		struct walk w;

		if (other == h->self || other->kind == V_ANCHOR || (cuda && !has_no_columns(h, other)))
			continue;
		pl_walk_init(&w, h->pl, other);
		w.into_reds = 1;
		w.stop = is_it;
		w.stop_ctx = v;
		pl_own_vars(h->pl, other, idx);
		pl_walk(&w, other, idx);
		for (struct leaf *l = w.first; l; l = l->next)
			found |= l->kind == LEAF_RED && l->val == h->red;
	}
	h->pl->n_var = n_var;
	return found;
}

/* Does a kernel that is planned already compute v on the way? */
static int computed_before(struct pl *pl, struct val *v)
{
	for (int i = 0; i < pl->n_kern; i++) {
		struct kern *k = pl->kern[i];

		for (int o = 0; o < k->n_out; o++)
			if (computes(pl, k->out[o], k->out_idx[o], v))
				return 1;
		for (int n = 0; k->anchor && n < k->anchor->n_in; n++) {
			const struct ix *idx[PL_MAX_RANK];

			if (!pl_fuses_operand(k->anchor, n))
				continue;
			pl_operand_place(k->anchor, n, k->anchor_idx, ix_var(pl, "last", k->anchor->out->size[0]), idx);
			if (computes(pl, k->anchor->in[n].val, idx, v))
				return 1;
		}
	}
	return 0;
}

/* Does v need reductions over other rows, which the reader's kernel may be able to do itself? */
static int needs_others(const struct hoist *h, struct val *v, const struct ix *const *idx)
{
	struct walk w;

	pl_walk_init(&w, h->pl, h->self);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if (l->kind == LEAF_RED && l->val != h->red && pl_numel_now(l->val) != pl_numel_now(h->red))
			return 1;
	return 0;
}

static int consider(void *ctx, struct val *v, const struct ix *const *idx)
{
	struct hoist *h = ctx;

	if (h->found)
		return 1;
	if (v->kind != V_OP || v == h->self || pl_numel_now(v) != pl_numel_now(h->red) ||
		!needs(h->pl, v, idx, h->self, h->red, NULL))
		return 0;
	if (needs_others(h, v, idx) || needs(h->pl, h->top, h->idx, h->self, h->red, v) || computed_before(h->pl, v) ||
		needed_elsewhere(h, v) || (h->storable && !h->storable(h->pl, v, h->red)))
		return 0;
	h->found = v;
	return 1;
}

struct val *pl_store_for(struct pl *pl, struct val *top, const struct ix *const *idx, struct val *self, struct val *red,
	pl_storable_fn storable)
{
	struct hoist h = { .pl = pl, .top = top, .self = self, .red = red, .idx = idx, .storable = storable };
	struct walk w;

	pl_walk_init(&w, pl, self);
	w.stop = consider;
	w.stop_ctx = &h;
	pl_walk(&w, top, idx);
	return h.found ? h.found : red;
}
