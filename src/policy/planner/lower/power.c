/* power.c - to which power of the task's inputs values grow.
 *
 * Some elements of an input may be thousands of times as large as the others.  What is computed of these alone is as
 * many times as large to a power: a product of four results 2^48 times where they are 2^12 times.  A template that
 * scales a tensor by its largest element and packs it as fp16 has nothing below 2^-39 of that, where TF32 has all of
 * fp32's range: then the other elements are lost.  So such a template is for values of small powers only (POWER_OF_* in
 * anchor/anchor.h).
 *
 * The power is an estimate by operators (the field `grows` of their rows): products add those of their operands, a
 * residual has the larger one, a sigmoid none, and what is normalised that of an input.  It is never less than what a
 * chain of sums and products has; where a difference cancels or a divisor is large, too, it is more. */
#include "policy/planner/anchor/anchor.h"
#include "policy/planner/lower/lower.h"

#include <math.h>
#include <string.h>

enum { MOST = 64 }; /* a larger power is as good as this one */

static int larger(int a, int b) { return a > b ? a : b; }
static int smaller(int a, int b) { return a < b ? a : b; }

int pl_power(struct val *v)
{
	int most = 0;

	if (!pl_is_float(v->dt))
		return 0;
	if (v->power)
		return v->power - 1;
	if (v->kind == V_BUF)
		most = v->root->kind != B_PARAM;
	else if (v->kind == V_ANCHOR)
		for (int i = 0; i < v->anchor->n_in; i++)
			most = larger(most, pl_power(v->anchor->in[i].val));
	for (int i = 0; i < v->n_arg; i++)
		most = larger(most, pl_power(v->arg[i]));
	v->power = 1 + most;
	return most;
}

/* Operands of a node: the first one's power, the largest one, the sum of all. */
struct powers {
	int n, first, largest, sum;
};

static void add_operands(struct pl *pl, const struct garg *a, struct powers *p)
{
	struct val *v = NULL;
	struct gnode *n;
	int power;

	for (int i = 0; a->kind == G_LIST && i < a->n; i++)
		add_operands(pl, &a->item[i], p);
	if (a->kind != G_VAL)
		return;
	if ((n = pl_graph_node(pl, a->name)))
		v = n->out[0];
	else
		v = pl_graph_given(pl, a->name);
	power = v ? pl_power(v) : 1; /* inside of what PyTorch computes */
	p->first = p->n++ ? p->first : power;
	p->largest = larger(p->largest, power);
	p->sum += power;
}

static int power_of(struct pl *pl, struct gnode *n, enum pl_grows grows)
{
	const struct garg *to = pl_arg(n, 1, "exponent"), *training = pl_arg(n, 5, "training");
	struct powers p = { 0 };

	for (int i = 0; i < n->n_arg; i++)
		add_operands(pl, &n->arg[i], &p);
	for (int i = 0; i < n->n_kwarg; i++)
		add_operands(pl, &n->kwarg[i], &p);
	switch (grows) {
	case GROWS_NOT: return 0;
	case GROWS_IN_TRAINING:
		if (training && training->kind == G_BOOL && !training->i)
			return p.largest;
		return smaller(p.largest, 1);
	case GROWS_AS_INPUTS: return smaller(p.largest, 1);
	case GROWS_AS_FIRST: return p.first;
	case GROWS_AS_PRODUCT: return p.sum;
	case GROWS_AS_SUM_WITH_PRODUCT: return larger(p.first, p.sum - p.first);
	case GROWS_AS_SQUARE: return 2 * p.largest;
	case GROWS_AS_ROOT: return (p.largest + 1) / 2;
	case GROWS_AS_POWER:
		if (to && (to->kind == G_INT || to->kind == G_FLOAT))
			return to->f <= 0 ? 0 : (int)fmin(MOST, ceil(to->f * p.largest));
		return p.sum;
	default: return p.largest;
	}
}

void pl_set_power(struct pl *pl, struct gnode *n)
{
	int power = smaller(power_of(pl, n, n->row ? n->row->grows : GROWS_AS_LARGEST), MOST);

	for (int o = 0; o < n->n_out; o++)
		if (n->out[o] && n->out[o]->kind != V_CONST)
			n->out[o]->power = 1 + power;
}
