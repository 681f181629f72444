/* anchor.c - what all kinds of anchors share. */
#include "policy/planner/planner.h"

#include <string.h>

extern const struct anchor_ops pl_gemm_ops, pl_conv_ops, pl_attention_ops, pl_scan_ops, pl_sort_ops, pl_rnn_ops,
	pl_rnn_stack_ops, pl_turn_ops, pl_scatter_ops;

const struct anchor_ops *const pl_anchor_ops[S_COUNT] = { [S_GEMM] = &pl_gemm_ops,
	[S_CONV] = &pl_conv_ops,
	[S_ATTN] = &pl_attention_ops,
	[S_SCAN] = &pl_scan_ops,
	[S_SORT] = &pl_sort_ops,
	[S_RNN] = &pl_rnn_ops,
	[S_RNN_STACK] = &pl_rnn_stack_ops,
	[S_TURN] = &pl_turn_ops,
	[S_SCATTER] = &pl_scatter_ops };

struct anchor *pl_anchor(struct pl *pl, struct gnode *n, enum anchor_kind kind, const char *what)
{
	struct anchor *s = pl_alloc(pl, sizeof(*s));

	if (pl->n_anchor >= PL_MAX_KERNELS)
		pl_fail(pl, "more than %d anchors", PL_MAX_KERNELS);
	s->kind = kind;
	s->id = pl->n_anchor;
	s->node = n->name;
	s->what = what;
	pl->anchor[pl->n_anchor++] = s;
	return s;
}

struct val *pl_anchor_out(struct pl *pl, struct anchor *s, int dt, int rank, const struct ix *const *size)
{
	struct val *v = pl_val(pl, V_ANCHOR, dt, rank, size);

	v->anchor = s;
	s->out = v;
	return v;
}

struct val *pl_constants_below(struct pl *pl, struct val *v)
{
	struct val *x, *base;
	int which = -1;

	if (v->kind != V_OP || v->root || v->force_root)
		return v;
	for (int i = 0; i < v->n_arg; i++)
		if (v->arg[i]->kind != V_CONST) {
			if (which >= 0)
				return v;
			which = i;
		}
	if (which < 0)
		return v;
	x = pl_constants_below(pl, v->arg[which]);
	if (x->kind != V_VIEW || x->root || x->force_root || x->cond || x->last ||
		pl_numel_now(x) < pl_numel_now(x->arg[0]))
		return v;
	base = pl_val(pl, V_OP, v->dt, x->arg[0]->rank, x->arg[0]->size);
	base->op = v->op;
	base->n_arg = v->n_arg;
	memcpy(base->arg, v->arg, sizeof(base->arg));
	base->arg[which] = x->arg[0];
	return pl_view(pl, base, x->rank, x->size, x->map);
}

void pl_anchor_operand(struct anchor *s, struct val *v)
{
	struct operand *o = &s->in[s->n_in++];

	o->val = v;
	o->rank = v->rank;
	memcpy(o->size, v->size, sizeof(o->size));
}

int pl_fuses_operand(const struct anchor *s, int which)
{
	int fuses = pl_anchor_ops[s->kind]->fuses;

	return (fuses & FUSES_OPERAND) || (which > 2 && (fuses & FUSES_MASK)) || (s->computes >> which & 1);
}

void pl_operand_place(
	const struct anchor *s, int which, const struct ix *const *at, const struct ix *last, const struct ix **idx)
{
	const struct anchor_ops *ops = pl_anchor_ops[s->kind];
	int own = ops->own_axis ? ops->own_axis(s, which) : ops->fuses & FUSES_OPERAND ? -1 : s->in[which].rank - 1;

	for (int d = 0; d < s->out->rank; d++)
		idx[d] = at[d];
	if (own >= 0)
		idx[own] = last;
}

int pl_operand_contiguous(struct pl *pl, const struct operand *o)
{
	const struct ix *c[PL_MAX_RANK];

	pl_contiguous(pl, o->val->rank, o->val->size, c);
	for (int d = 0; d < o->val->rank; d++)
		if (!ix_is(o->val->size[d], 1) && !ix_same(o->stride[d], c[d]))
			return 0;
	return 1;
}
