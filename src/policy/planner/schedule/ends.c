/* ends.c - what a kernel computes behind its anchor's product, where a library's product computes it, too.
 *
 * Linear layers end in a bias, and blocks of networks add what came before them.  cublasLtMatmul takes both, D =
 * alpha A B + bias + C, at what the product alone costs, where a pass behind it would read and write all of D.
 * (Rejected: its relu, which is not said to hand on NaN, as PyTorch's does.) */
#include "policy/planner/schedule/schedule.h"

#include <string.h>

int pl_computed_as_float(int dt) { return dt == WW_F32 || dt == WW_F16 || dt == WW_BF16; }

static int is_cast(const struct val *v)
{
	return v->kind == V_OP && v->op == OP_CAST && pl_computed_as_float(v->dt) && pl_computed_as_float(v->arg[0]->dt);
}

/* One step of pl_look(); 0 where there is none. */
static int look_through(struct pl *pl, struct pl_at *a)
{
	const struct ix *sub[PL_MAX_RANK];

	if (a->v->kind == V_VIEW && !a->v->cond) {
		pl_map_index(pl, a->v, a->v->map, a->v->arg[0]->rank, a->idx, sub);
		memcpy(a->idx, sub, (size_t)a->v->arg[0]->rank * sizeof(sub[0]));
	} else if (!is_cast(a->v)) {
		return 0;
	}
	a->v = a->v->arg[0];
	return 1;
}

struct pl_at pl_look(struct pl *pl, struct val *v, const struct ix *const *idx)
{
	struct pl_at a = { .v = v };

	memcpy(a.idx, idx, (size_t)v->rank * sizeof(idx[0]));
	while (!a.v->root && look_through(pl, &a))
		;
	return a;
}

struct ending {
	struct pl *pl;
	const struct kern *k;
	const struct ix *place; /* of an element of the product, row after row */
	const struct ix *col;
	int products; /* found so far */
	struct pl_end end;
};

static int is_product(const struct ending *e, const struct pl_at *a)
{
	return a->v == e->k->anchor->out && ix_same_all(a->idx, e->k->anchor_idx, a->v->rank);
}

/* Where element idx of b lies.  A last dimension that the product's columns are added to is as long as they are, though
 * another symbol or number may say so: the plan guards that (pl_op2()). */
static const struct ix *place_in(const struct ending *e, const struct buf *b, const struct ix *const *idx)
{
	const struct ix *n = e->k->anchor->out->size[e->k->anchor->out->rank - 1], *rows = ix_const(e->pl, 0);
	int last = b->rank - 1;

	if (last < 0 || !ix_same(idx[last], e->col) || ix_num(b->size[last]) != ix_num(n))
		return pl_offset(e->pl, b, idx);
	for (int d = 0; d < last; d++)
		rows = ix_add(e->pl, ix_mul(e->pl, rows, b->size[d]), idx[d]);
	return ix_add(e->pl, ix_mul(e->pl, rows, n), e->col);
}

/* A stored operand of the sum. */
static int add_stored(struct ending *e, const struct pl_at *a)
{
	struct buf *b = a->v->root;
	const struct ix *coef;

	if (!b || !b->contiguous || b->dt != e->k->out[0]->root->dt)
		return 0;
	const struct ix *at = place_in(e, b, a->idx);
	if (ix_same(at, e->place) && !e->end.added) {
		e->end.added = b;
		return 1;
	}
	if (e->end.bias || e->k->anchor->out->rank != 2 || !ix_as_var(e->col) ||
		!ix_affine(e->pl, at, ix_as_var(e->col), &coef, &e->end.first) || !ix_is(coef, 1) || ix_varies(e->end.first))
		return 0;
	e->end.bias = b;
	return 1;
}

/* A number times the product. */
static int take_alpha(struct ending *e, const struct pl_at *a)
{
	for (int i = 0; a->v->kind == V_OP && a->v->op == OP_MUL && i < 2; i++) {
		const struct pl_at x = pl_look(e->pl, a->v->arg[i], a->idx), c = pl_look(e->pl, a->v->arg[1 - i], a->idx);

		if (!is_product(e, &x) || c.v->kind != V_CONST || c.v->given)
			continue;
		e->end.alpha = c.v->f;
		return 1;
	}
	return 0;
}

static int add_terms(struct ending *e, struct pl_at a)
{
	if (is_product(e, &a) || take_alpha(e, &a))
		return ++e->products == 1;
	if (a.v->root && a.v != e->k->out[0])
		return add_stored(e, &a);
	if (a.v->kind != V_OP || a.v->op != OP_ADD)
		return 0;
	return add_terms(e, pl_look(e->pl, a.v->arg[0], a.idx)) && add_terms(e, pl_look(e->pl, a.v->arg[1], a.idx));
}

/* Do rows and batches of the product lie apart in the result, whose columns lie side by side by 16 bytes (heads that
 * become features: batches within rows)? */
static int lies_apart(struct ending *e, const struct ix *off, int itemsize)
{
	const struct val *c = e->k->anchor->out;
	const struct ix *coef[3], *rest = off;

	if (c->rank != 3)
		return 0;
	for (int d = 0; d < 3; d++)
		if (!ix_as_var(e->k->anchor_idx[d]) ||
			!ix_affine(e->pl, rest, ix_as_var(e->k->anchor_idx[d]), &coef[d], &rest) || ix_varies(coef[d]))
			return 0;
	if (!ix_is(coef[2], 1) || !ix_is(rest, 0) || ix_num(coef[0]) * itemsize % 16 || ix_num(coef[1]) * itemsize % 16 ||
		ix_num(coef[0]) < ix_num(c->size[2]) || ix_num(coef[1]) < ix_num(c->size[2]))
		return 0;
	e->end.batch_stride = coef[0];
	e->end.ld = coef[1];
	return 1;
}

int pl_ends_as(struct pl *pl, const struct kern *k, struct pl_end *out)
{
	const struct val *c = k->anchor->out;
	struct ending e = { .pl = pl, .k = k, .place = ix_const(pl, 0), .col = k->anchor_idx[c->rank - 1] };
	struct pl_at a = { .v = k->out[0] };

	e.end.alpha = 1;
	if (k->n_out != 1 || !a.v->root || !a.v->root->contiguous)
		return 0;
	e.end.dt = a.v->root->dt;
	if (e.end.dt != c->dt && (a.v != c || e.end.dt != WW_F32))
		return 0;
	memcpy(a.idx, k->out_idx[0], sizeof(a.idx));
	for (int d = 0; d < c->rank; d++)
		e.place = ix_add(pl, ix_mul(pl, e.place, c->size[d]), k->anchor_idx[d]);
	const struct ix *at = place_in(&e, a.v->root, a.idx);
	if (!ix_same(at, e.place) && !lies_apart(&e, at, pl_itemsize(e.end.dt)))
		return 0;
	while (!is_product(&e, &a) && look_through(pl, &a))
		;
	if (!add_terms(&e, a) || !e.products || (e.end.ld && (e.end.bias || e.end.added)))
		return 0;
	*out = e.end;
	return 1;
}
