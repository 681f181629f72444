/* keep.c - which values a row kernel keeps between its passes.
 *
 * A row kernel without a skeleton goes over its columns once a stage.  What a later pass needs of an earlier one it
 * could compute again; where that costs more than a store and a load in L1 or L2, the earlier pass leaves it in the
 * thread's scratch: transcendental functions, and sums of several streams from memory.  A single plain load is not
 * kept: the row is in the cache after its first pass anyway.
 *
 * Of nested values the outermost that a later pass needs at the same index is kept.  Rows that would not stay in L2
 * keep nothing.
 *
 * On cuda what is loaded stays in registers, but for what a window loads that is done on the spot; a kept value takes
 * as many, or those of its operands where nothing else needs them. */
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

enum { WORTH = 10, STREAM_COST = 5, STREAM_BYTES = 1 << 20, ROOM_BYTES = 256 << 10 };

struct search_keep {
	struct pl *pl;
	struct kern *k;
	const struct ix_atom *lane;
	struct pl_cached *kept;
	int n, max, stage, cost;
	const struct walk *walk; /* that calls consider() */
};

static int cached_is(const struct pl_cached *a, const struct val *v, const struct ix *const *idx)
{
	return a->val == v && ix_same_all(a->idx, idx, v->rank);
}

static int stop_there(void *ctx, struct val *v, const struct ix *const *idx) { return cached_is(ctx, v, idx); }

static int along(const struct search_keep *s, const struct val *v, const struct ix *const *idx)
{
	for (int d = 0; d < v->rank; d++)
		if (ix_has(idx[d], s->lane))
			return 1;
	return 0;
}

/* At an index that data says, which expressions name otherwise than walks do. */
static int looks_up(const struct val *v, const struct ix *const *idx)
{
	for (int d = 0; d < v->rank; d++)
		if (ix_looks_up(idx[d]))
			return 1;
	return 0;
}

static const struct pl_cached *find_cached(
	const struct search_keep *s, const struct val *v, const struct ix *const *idx)
{
	for (int i = 0; i < s->n; i++)
		if (cached_is(&s->kept[i], v, idx))
			return &s->kept[i];
	return NULL;
}

/* cuda: loads of a window that is done on the spot at each column (a pool ahead of a softmax); 0: l is none. */
static int window_of(const struct search_keep *s, const struct val *r, const struct ix *const *idx)
{
	int64_t n = 1;

	if (r->kind != V_RED || r->root || s->pl->target != WW_TARGET_CUDA || pl_red_known(s->k, r, idx) >= 0)
		return 0;
	for (int d = r->rank; d < r->arg[0]->rank; d++)
		n *= ix_num(r->arg[0]->size[d]);
	return (int)ww_min(n, WORTH);
}

/* What depends on the row only is computed once a row, and what is kept costs a load. */
static int add_cost(void *ctx, struct val *v, const struct ix *const *idx)
{
	struct search_keep *s = ctx;

	if (find_cached(s, v, idx))
		return 1;
	if (v->kind == V_OP && along(s, v, idx))
		s->cost += pl_ops[v->op].cost;
	return 0;
}

static int cost(struct search_keep *s, struct val *v, const struct ix *const *idx)
{
	struct walk w;

	s->cost = 0;
	pl_walk_init(&w, s->pl, NULL);
	w.stop = add_cost;
	w.stop_ctx = s;
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next) {
		if (l->kind == LEAF_RED && along(s, l->val, l->idx))
			s->cost += STREAM_COST * window_of(s, l->val, l->idx);
		if (s->pl->target == WW_TARGET_CPU && l->kind == LEAF_LOAD && ix_has(pl_leaf_off(s->pl, l), s->lane) &&
			pl_numel_now(l->val) * pl_itemsize(l->val->dt) >= STREAM_BYTES)
			s->cost += STREAM_COST;
	}
	return s->cost;
}

static int met(struct pl *pl, struct val *self, struct val *from, const struct ix *const *idx, struct pl_cached *what)
{
	struct walk w;

	pl_walk_init(&w, pl, self);
	w.stop = stop_there;
	w.stop_ctx = what;
	pl_walk(&w, from, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if (l->kind == LEAF_STOP)
			return 1;
	return 0;
}

static int needed_later(struct search_keep *s, struct pl_cached *what)
{
	const struct ix *idx[PL_MAX_RANK];
	struct kern *k = s->k;

	for (int i = 0; i < k->n_red; i++) {
		if (k->red_stage[i] <= s->stage)
			continue;
		pl_red_element(k, i, idx);
		if (met(s->pl, NULL, k->red[i]->arg[0], idx, what))
			return 1;
	}
	for (int o = 0; o < k->n_out; o++)
		if (met(s->pl, k->out[o], k->out[o], k->out_idx[o], what))
			return 1;
	return 0;
}

static int consider(void *ctx, struct val *v, const struct ix *const *idx)
{
	struct search_keep *s = ctx;
	struct pl_cached *at = &s->kept[s->n];

	if (find_cached(s, v, idx))
		return 1;
	if (s->n >= s->max || s->walk->guards /* not there for each column */ ||
		!(v->kind == V_OP || window_of(s, v, idx)) || !(v->dt == WW_F32 || v->dt == WW_F16 || v->dt == WW_BF16) ||
		!along(s, v, idx) || looks_up(v, idx) || cost(s, v, idx) < WORTH)
		return 0;
	*at = (struct pl_cached){ .val = v, .stage = s->stage };
	for (int d = 0; d < v->rank; d++)
		at->idx[d] = idx[d];
	if (!needed_later(s, at))
		return 0;
	s->n++;
	return 1;
}

int pl_keep(struct pl *pl, struct kern *k, const struct ix_atom *lane, struct pl_cached *kept, int max)
{
	struct search_keep s = { .pl = pl, .k = k, .lane = lane, .kept = kept };
	const struct ix *idx[PL_MAX_RANK];

	s.max = max;
	if (pl->target == WW_TARGET_CPU)
		s.max = (int)ww_min(max, ROOM_BYTES / (4 * ww_max(1, ix_num(pl_extent(pl, k->col, k->n_col)))));
	for (s.stage = 0; s.stage < k->n_stage; s.stage++)
		for (int i = 0; i < k->n_red; i++) {
			struct walk w;

			if (k->red_stage[i] != s.stage)
				continue;
			pl_red_element(k, i, idx);
			pl_walk_init(&w, pl, NULL);
			w.stop = consider;
			w.stop_ctx = &s;
			s.walk = &w;
			pl_walk(&w, k->red[i]->arg[0], idx);
		}
	return s.n;
}
