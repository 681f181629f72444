/* walk.c - the leaves of an expression.
 *
 * The grouping decides by what a value reads: which buffers at which offsets, which
 * reductions at which rows, which anchors' results.  A walk goes from a value at an index through operations and views
 * to those leaves, and notes each (value, index) once, so that a shared subexpression costs nothing. */
#include "policy/planner/graph/walk.h"

#include <string.h>

void pl_walk_init(struct walk *w, struct pl *pl, struct val *self)
{
	memset(w, 0, sizeof(*w));
	w->pl = pl;
	w->self = self;
	w->tail = &w->first;
}

static void leaf_add(
	struct walk *w, enum leaf_kind kind, struct val *v, const struct ix *const *idx, const struct ix *off)
{
	struct leaf *l = pl_alloc(w->pl, sizeof(*l));

	l->kind = kind;
	l->val = v;
	for (int d = 0; d < v->rank && idx; d++)
		l->idx[d] = idx[d];
	l->offset = off;
	l->guarded = w->guards > 0;
	*w->tail = l;
	w->tail = &l->next;
}

const struct ix *pl_leaf_off(struct pl *pl, struct leaf *l)
{
	if (l->kind == LEAF_LOAD && !l->offset)
		l->offset = pl_offset(pl, l->val->root, l->idx);
	return l->offset;
}

int pl_leaf_looks_up(struct pl *pl, struct leaf *l)
{
	int may = l->kind == LEAF_INDEX;

	for (int d = 0; l->kind == LEAF_LOAD && d < l->val->rank; d++)
		may |= ix_looks_up(l->idx[d]);
	return may && ix_looks_up(pl_leaf_off(pl, l));
}

static int seen_before(struct walk *w, const struct val *v, const struct ix *const *idx)
{
	struct seen **b = &w->bucket[v->id & 255], *s;

	for (s = *b; s; s = s->next) {
		if (s->val == v && ix_same_all(s->idx, idx, v->rank))
			return 1;
	}
	s = pl_alloc(w->pl, sizeof(*s));
	s->val = v;
	for (int d = 0; d < v->rank; d++)
		s->idx[d] = idx[d];
	s->next = *b;
	*b = s;
	if (++w->n > 200000)
		pl_fail(w->pl, "an expression is too large to be one kernel");
	return 0;
}

void pl_map_index(struct pl *pl, const struct val *v, const struct ix *const *map, int n, const struct ix *const *idx,
	const struct ix **out)
{
	const struct ix_atom *place[PL_MAX_RANK];

	for (int d = 0; d < v->rank; d++)
		place[d] = ix_as_var(pl->place[d]);
	for (int d = 0; d < n; d++)
		out[d] = ix_subst(pl, map[d], place, idx, v->rank);
}

static const struct ix *map_one(struct pl *pl, const struct val *v, const struct ix *e, const struct ix *const *idx)
{
	const struct ix *out[1];

	pl_map_index(pl, v, &e, 1, idx, out);
	return out[0];
}

struct val *pl_taken(struct pl *pl, const struct val *v, const struct ix *const *idx)
{
	const struct ix *cond;
	int64_t c;

	if (v->kind != V_OP || v->op != OP_WHERE || v->arg[0]->kind != V_INDEX)
		return NULL;
	cond = map_one(pl, v->arg[0], v->arg[0]->index, idx);
	return ix_is_const(cond, &c) && v->arg[c ? 1 : 2]->dt == v->dt ? v->arg[c ? 1 : 2] : NULL;
}

static const struct ix *const *columns_of(struct walk *w, const struct val *v)
{
	struct seen *s = w->column;

	while (s && s->val != v)
		s = s->next;
	if (s)
		return s->idx;
	s = pl_alloc(w->pl, sizeof(*s));
	s->val = v;
	for (int d = v->rank; d < v->arg[0]->rank; d++)
		s->idx[d] = ix_var(w->pl, "x", v->arg[0]->size[d]);
	s->next = w->column;
	return (w->column = s)->idx;
}

void pl_walk(struct walk *w, struct val *v, const struct ix *const *idx)
{
	const struct ix *sub[PL_MAX_RANK], *cond = NULL;
	struct val *taken;
	int guards;

	if (v->kind == V_CONST || seen_before(w, v, idx))
		return;
	if (v->kind == V_BUF || (v->root && v != w->self)) {
		leaf_add(w, LEAF_LOAD, v, idx, NULL);
		return;
	}
	if (w->stop && w->stop(w->stop_ctx, v, idx)) {
		leaf_add(w, LEAF_STOP, v, idx, NULL);
		return;
	}
	switch (v->kind) {
	case V_OP:
		taken = pl_taken(w->pl, v, idx);
		for (int i = 0; i < v->n_arg && !taken; i++)
			pl_walk(w, v->arg[i], idx);
		if (taken)
			pl_walk(w, taken, idx);
		break;
	case V_INDEX: leaf_add(w, LEAF_INDEX, v, idx, map_one(w->pl, v, v->index, idx)); break;
	case V_VIEW:
		if (v->cond)
			leaf_add(w, LEAF_INDEX, v, idx, cond = map_one(w->pl, v, v->cond, idx));
		if (cond && ix_is(cond, 0)) /* it is its fill */
			break;
		pl_map_index(w->pl, v, v->map, v->arg[0]->rank, idx, sub);
		guards = cond && !ix_is(cond, 1);
		w->guards += guards;
		pl_walk(w, v->arg[0], sub);
		w->guards -= guards;
		break;
	case V_GATHER:
		pl_walk(w, v->arg[1], idx);
		pl_map_index(w->pl, v, v->map, v->arg[0]->rank, idx, sub);
		sub[v->dim] = ix_temp(w->pl, pl_fmt(w->pl, "g%d", v->id));
		pl_walk(w, v->arg[0], sub);
		break;
	case V_RED:
		leaf_add(w, LEAF_RED, v, idx, NULL);
		if (w->into_reds) {
			memcpy(sub, columns_of(w, v), sizeof(sub));
			for (int d = 0; d < v->rank; d++)
				sub[d] = idx[d];
			pl_walk(w, v->arg[0], sub);
		}
		break;
	case V_ANCHOR: leaf_add(w, LEAF_ANCHOR, v, idx, NULL); break;
	default: break;
	}
}

struct cost {
	int sum;
	const struct ix *const *var; /* only of what is computed for each of these; NULL: of all */
	int n_var;
};

static int add_cost(void *ctx, struct val *v, const struct ix *const *idx)
{
	struct cost *c = ctx;
	int counts = v->kind == V_OP && !c->var;

	for (int d = 0; v->kind == V_OP && d < v->rank; d++)
		for (int i = 0; i < c->n_var; i++)
			counts |= ix_has(idx[d], ix_as_var(c->var[i]));
	if (counts)
		c->sum += pl_ops[v->op].cost;
	return 0;
}

static int cost(struct pl *pl, struct val *v, const struct ix *const *idx, struct cost c)
{
	struct walk w;

	pl_walk_init(&w, pl, v);
	w.stop = add_cost;
	w.stop_ctx = &c;
	pl_walk(&w, v, idx);
	return c.sum;
}

int pl_cost(struct pl *pl, struct val *v, const struct ix *const *idx)
{
	return cost(pl, v, idx, (struct cost){ .var = NULL });
}

int pl_cost_along(struct pl *pl, struct val *v, const struct ix *const *idx, const struct ix *const *var, int n)
{
	return cost(pl, v, idx, (struct cost){ .var = var, .n_var = n });
}
