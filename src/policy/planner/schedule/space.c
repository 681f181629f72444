/* space.c - the index space of a kernel: its rows, its columns, and where in it each value has its element.
 *
 * Rows and columns are variables of the root's own index, or, where a reshape lies between (group norm), of the
 * reduction's argument; the root's index follows through the linear position. */
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

/* idx of v for the position whose index in `like` is at[]: same number of elements, row-major order.  Trailing
 * dimensions of equal sizes keep their index. */
void pl_same_position(
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

void pl_add_row(struct kern *k, const struct ix *var)
{
	const struct ix_atom *v = ix_as_var(var);

	if (v)
		k->row[k->n_row++] = v;
}

void pl_set_columns(struct pl *pl, struct kern *k)
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
	pl_same_position(pl, v, src, at, idx);
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
			pl_add_row(k, at[d]);
	if (v->last)
		pl_add_row(k, at[1]);
	for (int d = r->rank; d < r->arg[0]->rank; d++)
		k->col[k->n_col++] = ix_as_var(ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), r->arg[0]->size[d]));
	pl_guard_eq(pl, pl_numel(pl, r), pl_numel(pl, v), "the elements of a fused reshape");
	pl_same_position(pl, v, r, at, idx);
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
			return pl_red_fits(pl, k, l);
	return 0;
}

/* Makes v's dimensions but the last one rows of k, idx[] their variables, and one column of n elements, which is
 * returned.
 */
static const struct ix *rows_of_columns(
	struct pl *pl, struct kern *k, struct val *v, const struct ix *n, const struct ix **idx)
{
	const struct ix *column;

	pl_own_vars(pl, v, idx);
	k->n_row = k->n_col = 0;
	for (int d = 0; d < v->rank - 1; d++)
		pl_add_row(k, idx[d]);
	column = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), n);
	k->col[k->n_col++] = ix_as_var(column);
	return column;
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
	column = rows_of_columns(pl, k, v, n, idx);
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

/* Index space for a root that is a concatenation along its last dimension of pieces as long as the reduction's columns
 * and of pieces of one element a row (statistics beside what is normalised): at a column the kernel stores an element
 * of each long piece, and once a row the short ones.  Apart they would be a second pass over all rows, and short stores
 * among long ones a sector each. */
static int piece_space(struct pl *pl, struct kern *k, struct val *v, const struct val *r, const struct ix **idx)
{
	const struct ix *n = r->arg[0]->size[r->rank], *column;
	const struct pieces *p = v->pieces;
	int last = v->rank - 1, works = 0, once = 0;

	if (pl->target != WW_TARGET_CUDA || v->last || !p || p->dim != last || p->n > MOST_PARTS || r->nred != 1)
		return 0;
	for (int i = 0; i < p->n; i++) {
		once += ix_is(p->v[i]->size[last], 1);
		if (!ix_is(p->v[i]->size[last], 1) && ix_num(p->v[i]->size[last]) != ix_num(n))
			return 0;
	}
	if (!once || once == p->n || ix_num(n) == 1)
		return 0;
	column = rows_of_columns(pl, k, v, n, idx);
	for (int i = 0; i < p->n; i++) {
		int is_once = ix_is(p->v[i]->size[last], 1);

		memcpy(k->out_idx[i], idx, (size_t)last * sizeof(*idx));
		k->out[i] = v;
		k->out_idx[i][last] = is_once ? p->at[i] : ix_add(pl, p->at[i], column);
		works |= space_works(pl, k, v, k->out_idx[i], r);
	}
	if (!works)
		return 0;
	for (int i = 0; i < p->n; i++)
		if (!ix_is(p->v[i]->size[last], 1))
			pl_guard_eq(pl, p->v[i]->size[last], n, "the columns of a concatenation's piece and of a reduction");
	idx[last] = column;
	k->n_out = p->n;
	return 1;
}

/* The index space of a pointwise kernel: v at idx, one element at a time. */
void pl_point_space(struct pl *pl, struct kern *k, struct val *v, const struct ix *const *idx)
{
	k->kind = K_POINT;
	k->n_row = k->n_col = 0;
	pl_collect(pl, NULL, v, v, idx, 0);
	for (int d = 0; d < v->rank; d++)
		if (d != 1 || !v->last)
			pl_add_row(k, idx[d]);
	if (v->last)
		pl_add_row(k, idx[1]);
}

void pl_reduction_space(struct pl *pl, struct kern *k, struct val *v, const struct ix *const *idx)
{
	const struct ix *src[PL_MAX_RANK];
	int stage = 0;

	for (int d = 0; d < v->rank; d++) {
		src[d] = idx[d];
		pl_add_row(k, idx[d]);
	}
	for (int d = v->rank; d < v->arg[0]->rank; d++) {
		src[d] = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), v->arg[0]->size[d]);
		k->col[k->n_col++] = ix_as_var(src[d]);
	}
	pl_set_columns(pl, k);
	pl_collect(pl, k, v, v->arg[0], src, 0);
	for (int i = 0; i < k->n_red; i++)
		stage = k->red_stage[i] + 1 > stage ? k->red_stage[i] + 1 : stage;
	k->red_stage[k->n_red] = stage;
	k->n_stage = stage + 1;
	memcpy(k->red_idx[k->n_red], idx, (size_t)v->rank * sizeof(*idx));
	k->red[k->n_red++] = v;
}

/* The first of the five index spaces in which the reduction at l stands on rows; idx[] becomes v's index in it. */
static int find_space(struct pl *pl, struct kern *k, struct val *v, const struct leaf *l, const struct ix **idx)
{
	own_space(k, v, idx, l);
	if (space_works(pl, k, v, idx, l->val))
		return 1;
	if (red_space(pl, k, v, l, idx) && space_works(pl, k, v, idx, l->val))
		return 1;
	if (result_space(pl, k, v, l, idx) && space_works(pl, k, v, idx, l->val))
		return 1;
	return part_space(pl, k, v, l->val, idx) || piece_space(pl, k, v, l->val, idx);
}

int pl_is_window(const struct val *r, const struct val *v)
{
	return pl_numel_now(r) == pl_numel_now(v) && pl_numel_now(r->arg[0]) <= 64 * pl_numel_now(r);
}

/* find_space() for the first reduction from *l on; *l becomes that one.  cuda: windows are skipped for one after them
 * whose rows v has, at least one for each multiprocessor: a softmax of a pool is rows of the softmax, with the pool on
 * the spot or stored. */
int pl_finds_space(struct pl *pl, struct kern *k, struct val *v, struct leaf **l, const struct ix **idx)
{
	const struct ix *own[PL_MAX_RANK];
	struct leaf *at = *l;

	memcpy(own, idx, (size_t)v->rank * sizeof(*idx));
	while (pl->target == WW_TARGET_CUDA && at && pl_is_window(at->val, v))
		at = pl_next_red(at->next, v);
	if (at && (at == *l || pl_numel_now(at->val) >= pl->dev.sm_count) && find_space(pl, k, v, at, idx)) {
		*l = at;
		return 1;
	}
	k->n_row = k->n_col = 0;
	memcpy(idx, own, (size_t)v->rank * sizeof(*idx));
	return at != *l && find_space(pl, k, v, *l, idx);
}
