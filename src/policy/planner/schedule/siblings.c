/* siblings.c - kernels over the same rows become one, with an output for each.
 *
 * A value that is stored has a kernel of its own: the mean and the deviation of a batch, the maximum and the sum of a
 * softmax whose reader has other rows, two statistics that are concatenated afterwards.  They read the same elements,
 * and a launch costs as much as reading several megabytes.  So a row kernel joins an earlier one whose rows and columns
 * it has,
 *
 *   - where it reads that one's result, at the same row and at no other: the result is then in a register, and its own
 *     passes come after the other's, which hold in registers what both read; or
 *   - where both read the same elements: in the same passes.
 *
 * What it reads must be there before the earlier kernel.  Kernels that write for each column are left alone: they would
 * write the results of rows as often.
 *
 * Small pointwise kernels over the same indices become one, too, where all that they read is there from the start: the
 * filters of a network's convolutions, which are turned channels-last by a kernel each. */
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

enum { MAX_LOADS = 256 };

struct reads {
	const struct ix *off[MAX_LOADS];
	struct buf *buf[MAX_LOADS];
	int n;
};

static void reads_of(struct pl *pl, struct kern *k, struct reads *r)
{
	r->n = pl_kern_loads(pl, k, r->off, r->buf, MAX_LOADS);
}

/* b with a's variables; 0 where its index space is another one. */
static int take_variables(struct pl *pl, const struct kern *a, const struct kern *b, struct kern *out)
{
	const struct ix_atom *v[2 * PL_MAX_RANK];
	const struct ix *e[2 * PL_MAX_RANK];
	int n = b->n_row + b->n_col;

	if (a->n_row != b->n_row || a->n_col != b->n_col)
		return 0;
	for (int i = 0; i < n; i++) {
		const struct ix_atom *to = i < a->n_row ? a->row[i] : a->col[i - a->n_row];

		v[i] = i < b->n_row ? b->row[i] : b->col[i - b->n_row];
		e[i] = pl_of_var(pl, to);
		if (!ix_same(ix_fixed(pl, v[i]->b), ix_fixed(pl, to->b)))
			return 0;
	}
	*out = *b;
	pl_subst_kern(pl, out, v, e, n);
	return 1;
}

static int writes(const struct kern *k, const struct buf *b)
{
	for (int o = 0; o < k->n_out; o++)
		if (k->out[o]->root == b)
			return 1;
	return 0;
}

/* Is the buffer there before kernel a?  Its place counts, not its number: joins have moved it ahead. */
static int is_before(const struct pl *pl, const struct buf *b, const struct kern *a)
{
	if (b->kind != B_SCRATCH && b->kind != B_OUTPUT)
		return 1;
	for (int i = 0; pl->kern[i] != a; i++)
		if (writes(pl->kern[i], b))
			return 1;
	return 0;
}

/* A result of a, at the row where a has it. */
static int own_result(struct pl *pl, const struct kern *a, const struct buf *b, const struct ix *off)
{
	for (int o = 0; o < a->n_out; o++)
		if (a->out[o]->root == b && ix_same(pl_offset(pl, b, a->out_idx[o]), off))
			return 1;
	return 0;
}

/* Does b need results of a only at its own row?  A reduction on the spot may need those of all rows: as one kernel with
 * a it would compute them anew, each with its walk over the columns. */
static int needs_own_row(struct pl *pl, const struct kern *a, struct kern *b)
{
	struct reads r;

	r.n = pl_all_loads(pl, b, r.off, r.buf, MAX_LOADS);
	for (int i = 0; i < r.n; i++)
		if (writes(a, r.buf[i]) && !own_result(pl, a, r.buf[i], r.off[i]))
			return 0;
	return r.n < MAX_LOADS;
}

static double extent_of(const struct kern *k, const struct ix *off)
{
	double n = 1;

	for (int d = 0; d < k->n_row + k->n_col; d++) {
		const struct ix_atom *v = d < k->n_row ? k->row[d] : k->col[d - k->n_row];

		if (ix_has(off, v) || ix_looks_up(off))
			n *= (double)ix_num(v->b);
	}
	return n;
}

/* May b, in a's variables, join a?  *after: it needs a's results.  What it reads besides is there before a, and most of
 * it a reads as well. */
static int joins(struct pl *pl, struct kern *a, struct kern *b, int *after)
{
	struct reads of_a, of_b;
	double all = 0, both = 0;

	reads_of(pl, a, &of_a);
	reads_of(pl, b, &of_b);
	*after = 0;
	if (!needs_own_row(pl, a, b))
		return 0;
	for (int i = 0; i < of_b.n; i++) {
		int k = 0;

		if (writes(a, of_b.buf[i])) {
			*after = 1;
			continue;
		}
		if (!is_before(pl, of_b.buf[i], a))
			return 0;
		while (k < of_a.n && !(of_a.buf[k] == of_b.buf[i] && ix_same(of_a.off[k], of_b.off[i])))
			k++;
		all += extent_of(b, of_b.off[i]);
		both += k < of_a.n ? extent_of(b, of_b.off[i]) : 0;
	}
	return of_b.n < MAX_LOADS && 2 * both >= all;
}

static int is_candidate(const struct kern *k)
{
	for (int i = 0; i < k->n_red; i++)
		if (k->red[i]->scans)
			return 0;
	return k->kind == K_ROW && k->n_col && !pl_stores_per_column(k);
}

/* b's outputs and reductions behind those of a. */
static void append(struct kern *a, const struct kern *b, int after)
{
	int stages = after ? a->n_stage : 0;

	for (int i = 0; i < b->n_red; i++) {
		int n = a->n_red;

		if (pl_red_known(a, b->red[i], b->red_idx[i]) >= 0)
			continue;
		a->red[n] = b->red[i];
		a->red_stage[n] = b->red_stage[i] + stages;
		memcpy(a->red_idx[n], b->red_idx[i], sizeof(a->red_idx[n]));
		a->n_stage = a->red_stage[n] + 1 > a->n_stage ? a->red_stage[n] + 1 : a->n_stage;
		a->n_red++;
	}
	for (int o = 0; o < b->n_out; o++) {
		a->out[a->n_out] = b->out[o];
		memcpy(a->out_idx[a->n_out++], b->out_idx[o], sizeof(a->out_idx[0]));
	}
}

/* b in a's variables, where it joins a.  *after: as joins() has it. */
static int fits(struct pl *pl, struct kern *a, const struct kern *b, struct kern *mine, int *after)
{
	if (a->n_red + b->n_red > (int)WW_ARRAY_LEN(a->red) || a->n_out + b->n_out > PL_MAX_STORES || !is_candidate(a) ||
		!is_candidate(b) || !take_variables(pl, a, b, mine) || !joins(pl, a, mine, after))
		return 0;
	for (int c = 0; c < a->n_ocol || c < mine->n_ocol; c++)
		if (a->n_ocol != mine->n_ocol || !ix_same(a->ocol[c], mine->ocol[c]))
			return 0;
	return 1;
}

/* Outputs of one pointwise kernel, each of which has its loads under way.  Elements up to which a launch takes as long
 * as what is moved. */
enum { MOST_POINTS = 8, SMALL_POINTS = 1 << 20 };

/* Does k do reductions, each element of its result one of its own? */
static int reduces(struct pl *pl, const struct kern *k)
{
	struct ww_arena_mark mark = ww_arena_mark(&pl->arena);
	struct walk w;
	int found = 0;

	for (int o = 0; o < k->n_out; o++) {
		pl_walk_init(&w, pl, k->out[o]);
		pl_walk(&w, k->out[o], k->out_idx[o]);
		for (const struct leaf *l = w.first; l; l = l->next)
			found |= l->kind == LEAF_RED;
	}
	ww_arena_rewind(&pl->arena, mark);
	return found;
}

/* Is k pointwise, small, and able to run first? */
static int is_early_point(struct pl *pl, struct kern *k)
{
	struct ww_arena_mark mark = ww_arena_mark(&pl->arena);
	int64_t elements = 1;
	struct reads r;
	int early;

	for (int d = 0; d < k->n_row; d++)
		elements *= ix_num(k->row[d]->b);
	if (k->kind != K_POINT || elements > SMALL_POINTS || reduces(pl, k))
		return 0;
	reads_of(pl, k, &r);
	early = r.n < MAX_LOADS;
	for (int i = 0; i < r.n; i++)
		early &= r.buf[i]->kind != B_SCRATCH && r.buf[i]->kind != B_OUTPUT;
	ww_arena_rewind(&pl->arena, mark); /* it is asked of all pairs, as join() */
	return early;
}

static int points_fit(struct pl *pl, struct kern *a, struct kern *b, struct kern *mine)
{
	return a->n_out + b->n_out <= MOST_POINTS && is_early_point(pl, a) && is_early_point(pl, b) &&
		take_variables(pl, a, b, mine);
}

static int join(struct pl *pl, struct kern *a, struct kern *b)
{
	struct ww_arena_mark mark = ww_arena_mark(&pl->arena);
	struct kern mine;
	int after = 0;

	if (b->kind == K_POINT ? points_fit(pl, a, b, &mine) : fits(pl, a, b, &mine, &after)) {
		append(a, &mine, after);
		return 1;
	}
	/* every pair of kernels is tried: hundreds of small ones would fill the memory */
	ww_arena_rewind(&pl->arena, mark);
	return 0;
}

void pl_join_siblings(struct pl *pl)
{
	for (int i = 0; i < pl->n_kern && pl->target == WW_TARGET_CUDA; i++)
		for (int k = i + 1; k < pl->n_kern && (pl->kern[i]->kind == K_ROW || pl->kern[i]->kind == K_POINT); k++) {
			if (!join(pl, pl->kern[i], pl->kern[k]))
				continue;
			memmove(&pl->kern[k], &pl->kern[k + 1], (size_t)(pl->n_kern - k - 1) * sizeof(*pl->kern));
			pl->n_kern--;
			k = i;
		}
	for (int i = 0; i < pl->n_kern; i++) {
		pl->kern[i]->id = i;
		pl->kern[i]->name = pl_fmt(pl, "k%d", i);
	}
}
