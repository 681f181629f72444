/* one_pass.c - cuda: stages of reductions that need no pass of their own.
 *
 * A variance needs the mean, and the sum of a softmax the maximum, so each is a stage behind another one.  Where the
 * row is not held, a stage reads memory once more.  But each thread can gather, in the pass for the first stage, what
 * the second one is known by when its row's mean or maximum is:
 *
 *   sum of squares about m:  of the n elements of a thread, their mean and their squares S about that:
 *                            S + n (mean - m)^2
 *   sum of exp(x - m):       the thread's own maximum and its sum E about that: E exp(maximum - m)
 *
 * Neither takes a difference of large sums: a thread sums differences from the mean of what it has seen
 * (ww/planner.cuh). Rejected: differences from its first element, about which squares cancel where that is far from the
 * others; Welford's recurrence, which has a quotient for each element in place of each vector. */
#include "policy/planner/schedule/schedule.h"

/* The operands of v at idx where it is operation `op` of computed floats, behind views and casts; else 0. */
static int is_op(struct pl *pl, const struct pl_at *at, enum pl_op op, struct pl_at *a, struct pl_at *b)
{
	if (at->v->kind != V_OP || at->v->op != op || at->v->root)
		return 0;
	*a = pl_look(pl, at->v->arg[0], at->idx);
	if (b)
		*b = pl_look(pl, at->v->arg[1], at->idx);
	return 1;
}

static int same_at(const struct pl_at *a, const struct pl_at *b)
{
	return a->v == b->v && ix_same_all(a->idx, b->idx, a->v->rank);
}

static int changes_by_column(const struct kern *k, const struct pl_at *at)
{
	for (int d = 0; d < at->v->rank; d++)
		for (int c = 0; c < k->n_col; c++)
			if (ix_has(at->idx[d], k->col[c]))
				return 1;
	return 0;
}

static struct pl_at argument(struct pl *pl, const struct kern *k, int i)
{
	const struct ix *idx[PL_MAX_RANK];

	pl_red_element(k, i, idx);
	return pl_look(pl, k->red[i]->arg[0], idx);
}

/* Reduction i as a sum of squares about a centre, or of exponentials of differences from one: what is squared or raised
 * is x - centre.  Returns which reduction of x gathers it. */
static enum pl_red gathered_by(struct pl *pl, const struct kern *k, int i, struct pl_at *x, struct pl_at *centre)
{
	struct pl_at at = argument(pl, k, i), diff, other;
	enum pl_red by = RED_COUNT;

	if (k->red[i]->red != RED_SUM || !pl_computed_as_float(k->red[i]->arg[0]->dt))
		return RED_COUNT;
	if (is_op(pl, &at, OP_MUL, &diff, &other) && same_at(&diff, &other))
		by = RED_SUM;
	else if (is_op(pl, &at, OP_EXP, &diff, NULL) || is_op(pl, &at, OP_EXP16, &diff, NULL))
		by = RED_MAX;
	return by < RED_COUNT && is_op(pl, &diff, OP_SUB, x, centre) && !changes_by_column(k, centre) ? by : RED_COUNT;
}

static int is_result(const struct kern *k, int i, const struct pl_at *at)
{
	return at->v == k->red[i] && ix_same_all(at->idx, k->red_idx[i], at->v->rank);
}

/* The reduction of an earlier stage whose pass gathers reduction i, which is about that maximum, or any centre; or
 * -1. */
static int gatherer(struct pl *pl, const struct kern *k, int i, struct pl_at *centre)
{
	struct pl_at x, of;
	enum pl_red by = gathered_by(pl, k, i, &x, centre);

	for (int b = 0; b < k->n_red && by < RED_COUNT; b++) {
		of = argument(pl, k, b);
		if (k->red_stage[b] < k->red_stage[i] && k->red[b]->red == by && !k->loop->step[b].by && same_at(&of, &x) &&
			(by == RED_SUM || is_result(k, b, centre)))
			return b;
	}
	return -1;
}

/* Find what gathers the reductions of stage s; 0 where one of them needs a pass, which then serves all. */
static int saves_pass(struct pl *pl, struct kern *k, int s)
{
	struct step *step = k->loop->step;
	struct pl_at centre;
	int saved = 1;

	for (int i = 0; i < k->n_red; i++) {
		int by = saved && k->red_stage[i] == s ? gatherer(pl, k, i, &centre) : -1;

		if (k->red_stage[i] == s)
			step[i].by = by >= 0 ? &step[by] : NULL;
		saved &= k->red_stage[i] != s || by >= 0;
	}
	for (int i = 0; i < k->n_red; i++)
		if (k->red_stage[i] == s && !saved)
			step[i].by = NULL;
	return saved;
}

int pl_save_passes(struct pl *pl, struct kern *k)
{
	struct step *step = k->loop->step;
	int passes = 1;

	for (int s = 1; s < k->n_stage; s++)
		passes += !pl_algebra(pl) || !saves_pass(pl, k, s);
	for (int i = 0; i < k->n_red; i++)
		if (step[i].by)
			step[i].by->gathers = 1;
	return passes;
}

void pl_save_no_pass(struct kern *k)
{
	for (int i = 0; i < k->n_red; i++)
		k->loop->step[i] = (struct step){ 0 };
}

struct etext pl_gathered_about(struct expr *e, struct kern *k, int i)
{
	struct pl_at x, centre;

	gathered_by(e->pl, k, i, &x, &centre);
	return pl_expr(e, centre.v, centre.idx);
}
