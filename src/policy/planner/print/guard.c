/* guard.c - writes what is read only where a condition holds: padding, concatenation, terms that count for few.
 *
 * Such a read becomes an if around everything that is needed for the value: nothing inside may be hoisted out of it,
 * because its loads would be out of bounds (but load_ahead()).  Where the condition changes along a vector (cpu), the
 * if asks whether it holds for any lane, and loads are masked. */
#include "policy/planner/graph/walk.h"
#include "policy/planner/print/write.h"

#include <string.h>

enum { BRANCH_LOADS = 4 /* a value with so many loads is computed behind a branch inside a loop of a reduction */ };

const char *pl_cond_text(struct pl *pl, const struct ix *x)
{
	const char *s = NULL;

	if (x->n != 1 || x->m[0].c != 1 || !x->m[0].n)
		return ix_text(pl, x);
	for (int i = 0; i < x->m[0].n; i++) {
		struct ix *one = pl_alloc(pl, sizeof(*one) + sizeof(one->m[0]));

		one->n = one->m[0].n = 1;
		one->m[0].c = 1;
		one->m[0].atom[0] = x->m[0].atom[i];
		s = s ? pl_fmt(pl, "%s && %s", s, ix_text(pl, one)) : ix_text(pl, one);
	}
	return s;
}

const struct ix *pl_lane_bound(struct pl *pl, const struct ix_atom *compared, const struct ix_atom *lane)
{
	const struct ix *coef, *rest;

	if (compared->kind != IX_LT)
		return NULL;
	if (!ix_has(compared->b, lane) && ix_affine(pl, compared->a, lane, &coef, &rest) && ix_is(coef, 1)) /* i + r < b */
		return ix_sub(pl, compared->b, rest);
	if (!ix_has(compared->a, lane) && ix_affine(pl, compared->b, lane, &coef, &rest) && ix_is(coef, 1)) /* a < i + r */
		return ix_addc(pl, ix_sub(pl, compared->a, rest), 1);
	return NULL;
}

/* Is the condition the same for all lanes of a vector: does it change only where vectors begin? */
static int is_of_vectors(struct expr *e, const struct ix *cond)
{
	if (!pl_has_lane(e, cond))
		return 1;
	if (cond->n != 1 || cond->m[0].c != 1)
		return 0;
	for (int i = 0; i < cond->m[0].n; i++) {
		const struct ix_atom *t = cond->m[0].atom[i];
		const struct ix *bound;

		if (!pl_has_lane(e, pl_of_var(e->pl, t)))
			continue;
		bound = pl_lane_bound(e->pl, t, e->lane);
		if (!bound || ix_varies(bound) || !pl_in_fours(e->pl, bound, e->lane))
			return 0;
	}
	return 1;
}

/* Can vectors be loaded under this condition?  It must be the same for all lanes and known where they are loaded.  A
 * row kernel's rows must be short, since each operand of a concatenation takes registers of its own. */
static int guards_vectors(struct expr *e, const struct ix *cond)
{
	int64_t cols = 1;

	for (int c = 0; c < e->k->n_col && e->k->kind == K_ROW; c++)
		cols *= ix_num(e->k->col[c]->b);
	return e->cuda_vec && cols <= 16384 && is_of_vectors(e, cond) && !ix_looks_up(cond) && (!e->scope || e->cond);
}

/* A view whose condition changes along the vector (cpu): loads are masked. */
static struct etext masked(struct expr *e, struct val *v, const struct ix *cond, const struct ix *const *sub, int level)
{
	const char *outer = e->mask, *holds = pl_vec_cond(e, cond), *mask = pl_temp(e);
	struct etext t = { pl_temp(e), 1, level }, in;
	int old_level = e->scope_level;

	if (e->need_scalar || v->dt == WW_F64 || !pl_is_float(v->dt)) {
		e->need_scalar = 1;
		return t;
	}
	pl_emit(e, level, "ww_vf %s = ww_vf_set(%s);", t.t, pl_literal(e->pl, WW_F32, v->fill, 0));
	pl_emit(e, level, "const ww_vm %s = ww_vm_and(%s, %s);", mask, outer ? outer : "ww_vm_first(n)", holds);
	pl_emit(e, level, "if (ww_vm_any(%s)) {", mask);
	e->scope++;
	e->scope_level = level;
	e->mask = mask;
	in = pl_expr(e, v->arg[0], sub);
	pl_emit(e, level, "%s = ww_vf_sel(%s, %s, %s);", t.t, mask, pl_as_vec(e, in, v->dt), t.t);
	pl_memo_drop(e, 9, e->scope - 1);
	e->scope--;
	e->scope_level = old_level;
	e->mask = outer;
	pl_emit(e, level, "}");
	return t;
}

enum { CLAMPED_LOADS = 2 /* of an element of a window, up to which it is loaded whatever its condition */ };

/* Of the variables of a window in off, the one with the least step: do neighbouring lanes share elements along it? */
static int shares_window(struct expr *e, const struct ix *off)
{
	const struct ix *coef, *rest;
	int64_t least = 0, length = 0, lane;

	if (!ix_affine(e->pl, off, e->lane, &coef, &rest))
		return 1;
	lane = ix_num(coef);
	for (int i = 0; i < off->n; i++)
		for (int a = 0; a < off->m[i].n; a++) {
			const struct ix_atom *v = off->m[i].atom[a];
			int own = v->kind != IX_VAR || v == e->lane;

			for (int d = 0; d < e->k->n_row + e->k->n_col && !own; d++)
				own = v == (d < e->k->n_row ? e->k->row[d] : e->k->col[d - e->k->n_row]);
			if (own || !ix_affine(e->pl, off, v, &coef, &rest) || (least && ix_num(coef) >= least))
				continue;
			least = ix_num(coef);
			length = ix_num(v->b);
		}
	return !least || lane < least * length;
}

/* Inside a window on cuda: is v a load or two along the lane, with what is made of them?  Then it costs less than a
 * branch for each element, and what neighbouring lanes load is the same to the compiler.  Windows that lie side by side
 * share nothing: 25 places kept within two sizes took longer than 25 branches. */
static int is_clamped(struct expr *e, struct val *v, const struct ix *const *sub)
{
	struct walk w;
	int loads = 0, shared = 0;

	if (e->pl->target != WW_TARGET_CUDA || !e->walks)
		return 0;
	pl_walk_init(&w, e->pl, e->self);
	pl_walk(&w, v->arg[0], sub);
	for (struct leaf *l = w.first; l; l = l->next) {
		if ((l->kind != LEAF_LOAD && l->kind != LEAF_INDEX) || ix_looks_up(pl_leaf_off(e->pl, l)))
			return 0;
		if (l->kind == LEAF_LOAD && pl_has_lane(e, pl_leaf_off(e->pl, l))) {
			loads++;
			shared |= shares_window(e, pl_leaf_off(e->pl, l));
		}
	}
	return shared && loads > 0 && loads <= CLAMPED_LOADS;
}

/* v without a branch: load the element of its argument that is nearest to sub, and take the fill in its place where the
 * condition does not hold.  The compiler may load it behind a branch again, one after the other (3 x 3 maxima: 36 loads
 * of 18 elements), unless it is taken itself. */
static struct etext clamped(
	struct expr *e, struct val *v, const struct ix *cond, const struct ix *const *sub, int level)
{
	const struct ix *in[PL_MAX_RANK], *size;
	struct etext t = { NULL, 0, level }, x;
	int64_t lo, hi;

	for (int d = 0; d < v->arg[0]->rank; d++) {
		const char *at;

		in[d] = sub[d];
		size = v->arg[0]->size[d];
		if (ix_range(sub[d], &lo, &hi) && lo >= 0 && hi < ix_num(size))
			continue;
		at = pl_temp(e);
		pl_emit(e, level, "const ix_t %s = pl_within(%s, %s);", at, ix_text(e->pl, sub[d]), ix_text(e->pl, size));
		in[d] = ix_temp(e->pl, at);
		((struct ix_atom *)(uintptr_t)in[d]->m[0].atom[0])->value = level;
	}
	x = pl_expr(e, v->arg[0], in);
	if (v->nearest)
		return x;
	t.t = pl_temp(e);
	pl_emit(e, level, "const %s %s = (%s ? %s : %s);", pl_acc_type(v->dt), t.t, pl_cond_text(e->pl, cond), x.t,
		pl_literal(e->pl, v->dt, v->fill, (int64_t)v->fill));
	return t;
}

/* Do a and b share an axis of the kernel? */
static int have_axis(const struct kern *k, const struct ix *a, const struct ix *b)
{
	for (int d = 0; d < k->n_row + k->n_col; d++) {
		const struct ix_atom *v = d < k->n_row ? k->row[d] : k->col[d - k->n_row];

		if (ix_has(a, v) && ix_has(b, v))
			return 1;
	}
	return 0;
}

/* cuda: v at idx is read only where `cond` holds.  Those of its loads that are one a row, at indices that cond does not
 * restrict (the statistics of a channel whose image is padded), are done ahead of the loop: behind the condition each
 * column would repeat them. */
static void load_ahead(struct expr *e, struct val *v, const struct ix *const *idx, const struct ix *cond)
{
	struct walk w;

	if (e->pl->target != WW_TARGET_CUDA || e->k->kind == K_ANCHOR || e->scope || e->walks || pl_level_of(e, cond) < 2)
		return;
	pl_walk_init(&w, e->pl, e->self);
	pl_walk(&w, v, idx);
	for (struct leaf *l = w.first; l; l = l->next)
		if (l->kind == LEAF_LOAD && !l->guarded && pl_level_of(e, pl_leaf_off(e->pl, l)) == 1 &&
			!ix_looks_up(pl_leaf_off(e->pl, l)) && !have_axis(e->k, pl_leaf_off(e->pl, l), cond))
			pl_load(e, l->val->root, l->idx);
}

/* Does a comparison change in one direction from a row's first column to its last one? */
static int is_monotone(struct expr *e, const struct ix_atom *t)
{
	const struct ix *diff = ix_sub(e->pl, t->b, t->a), *coef, *rest;
	int64_t step;
	int up = 0, down = 0;

	for (int c = 0; c < e->k->n_col && t->kind == IX_LT; c++) {
		if (!ix_affine(e->pl, diff, e->k->col[c], &coef, &rest) || !ix_is_const(coef, &step))
			return 0;
		up |= step > 0;
		down |= step < 0;
	}
	return t->kind == IX_LT && !(up && down);
}

static const char *both(struct pl *pl, const struct ix *a, const struct ix *b)
{
	if (ix_is(a, 1) || ix_is(b, 1))
		return pl_cond_text(pl, ix_is(a, 1) ? b : a);
	return pl_fmt(pl, "%s && %s", pl_cond_text(pl, a), pl_cond_text(pl, b));
}

/* A condition at the first and the last column of the row, both of which hold only where all between do; NULL: that is
 * not so. */
static const char *for_all_columns(struct expr *e, const struct ix *cond)
{
	const struct ix *first[PL_MAX_RANK], *last[PL_MAX_RANK];

	if (cond->n != 1 || cond->m[0].c != 1 || ix_looks_up(cond))
		return NULL;
	for (int i = 0; i < cond->m[0].n; i++)
		if (!is_monotone(e, cond->m[0].atom[i]))
			return NULL;
	for (int c = 0; c < e->k->n_col; c++) {
		first[c] = ix_const(e->pl, 0);
		last[c] = ix_addc(e->pl, e->k->col[c]->b, -1);
	}
	return both(e->pl, ix_subst(e->pl, cond, e->k->col, first, e->k->n_col),
		ix_subst(e->pl, cond, e->k->col, last, e->k->n_col));
}

/* The text of a view's condition; for rows that lie inside, the pass is written without it. */
static const char *condition(struct expr *e, const struct ix *cond, int level)
{
	const char *text = pl_cond_text(e->pl, cond), *all = e->inside && level == 2 ? for_all_columns(e, cond) : NULL;

	if (!all)
		return text;
	if (!strstr(e->inside, all))
		e->inside = pl_fmt(e->pl, "%s%s%s", e->inside, *e->inside ? " && " : "", all);
	return pl_fmt(e->pl, "inside || (%s)", text);
}

struct etext pl_guarded(struct expr *e, struct val *v, const struct ix *const *idx, const struct ix *const *sub)
{
	struct etext t = { NULL, 0, 1 }, in;
	const struct ix *cond, *old_cond = e->cond;
	int level, old_level = e->scope_level, vec = 0;

	pl_map_index(e->pl, v, &v->cond, 1, idx, &cond);
	if (ix_is(cond, 1))
		return pl_expr(e, v->arg[0], sub);
	if (ix_is(cond, 0))
		return t.t = pl_literal(e->pl, v->dt, v->fill, (int64_t)v->fill), t;
	level = pl_at_level(e, pl_max_level(e, idx, v->rank, pl_level_of(e, cond)));
	if (e->vec && pl_has_lane(e, cond))
		return masked(e, v, cond, sub, level);
	if (is_clamped(e, v, sub))
		return clamped(e, v, cond, sub, level);
	for (int d = 0; d < v->arg[0]->rank && e->vec; d++)
		vec |= pl_has_lane(e, sub[d]);
	t.t = pl_temp(e);
	t.level = level;
	t.vec = vec;
	if (vec && v->dt == WW_BOOL)
		e->need_scalar = 1;
	if (vec)
		pl_emit(e, level, "ww_vf %s = ww_vf_set(%s);", t.t, pl_literal(e->pl, WW_F32, v->fill, 0));
	else
		pl_emit(e, level, "%s %s = %s;", pl_acc_type(v->dt), t.t, pl_literal(e->pl, v->dt, v->fill, (int64_t)v->fill));
	load_ahead(e, v->arg[0], sub, cond);
	pl_emit(e, level, "if (%s) {", condition(e, cond, level));
	if (!guards_vectors(e, cond))
		e->cond = NULL;
	else
		e->cond = e->scope ? ix_mul(e->pl, e->cond, cond) : cond;
	e->scope++;
	e->scope_level = level;
	in = pl_expr(e, v->arg[0], sub);
	e->cond = old_cond;
	pl_emit(e, level, "%s = %s;", t.t, vec ? pl_as_vec(e, in, v->dt) : in.t);
	pl_memo_drop(e, 9, e->scope - 1);
	e->scope--;
	e->scope_level = old_level;
	pl_emit(e, level, "}");
	if (in.vec && !vec)
		e->need_scalar = 1;
	return t;
}

/* cuda, in the loop of a small reduction: is v a where() whose value takes several loads and counts for few terms
 * (scatter, resampling)?  Then it is computed only where its condition holds. */
int pl_is_branch(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct walk w;
	int loads = 0;

	if (!e->walks || e->vec || v->op != OP_WHERE || v->arg[2]->kind != V_CONST || e->pl->target != WW_TARGET_CUDA)
		return 0;
	pl_walk_init(&w, e->pl, e->self);
	pl_walk(&w, v->arg[1], idx);
	for (struct leaf *l = w.first; l; l = l->next)
		loads += l->kind == LEAF_LOAD;
	return loads >= BRANCH_LOADS;
}

struct etext pl_branch(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct etext cond = pl_expr(e, v->arg[0], idx), in, t = { NULL, 0, 1 };
	int old_level = e->scope_level;

	t.level = pl_at_level(e, pl_max_level(e, idx, v->rank, cond.level));
	t.t = pl_temp(e);
	pl_emit(e, t.level, "%s %s = %s;", pl_acc_type(v->dt), t.t, pl_literal(e->pl, v->dt, v->arg[2]->f, v->arg[2]->i));
	pl_emit(e, t.level, "if (%s) {", cond.t);
	e->scope++;
	e->scope_level = t.level;
	in = pl_expr(e, v->arg[1], idx);
	pl_emit(e, t.level, "%s = %s;", t.t, in.t);
	pl_memo_drop(e, 9, e->scope - 1);
	e->scope--;
	e->scope_level = old_level;
	pl_emit(e, t.level, "}");
	return t;
}
