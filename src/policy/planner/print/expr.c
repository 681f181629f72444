/* expr.c - writes a value at an index as C text.
 *
 * pl_expr() writes statements into the block of the loop level that an expression belongs to (what does not depend on
 * the column is computed once a row) and returns the name of the variable that holds the result.  The same value at the
 * same index is written once in a block.  The text is the same for both targets as long as it is scalar; on the cpu
 * target it can also be written for vectors of floats along one loop variable, where loads with step 1 become vector
 * loads, values that do not depend on that variable stay scalars, and a float or a bool that has no vector form is
 * written lane by lane (by_lanes()).  Other types set need_scalar: the emitter then writes that kernel again with
 * scalars. */
#include "policy/planner/print/write.h"

#include "policy/planner/graph/walk.h"

#include <math.h>

static const char *cast_vec(struct expr *e, const char *t, int from, int to)
{
	if (from == WW_F64 || to == WW_F64)
		e->need_scalar = 1;
	if (from == WW_BOOL && to != WW_BOOL)
		return pl_fmt(e->pl, "ww_vf_of_vm(%s)", t);
	if (to == WW_BOOL && from != WW_BOOL)
		return pl_fmt(e->pl, "ww_vf_ne(%s, ww_vf_zero())", t);
	if (pl_is_float(from) && !pl_is_float(to))
		return pl_fmt(e->pl, "ww_vf_trunc(%s)", t);
	return t;
}

/* Stored integers equal a number that all lanes share: 64 bits have no vector form, but their comparison has. */
static int equals_number(struct expr *e, struct val *v, const struct ix *const *idx, struct etext *t)
{
	for (int i = 0; i < 2; i++) {
		int ahead;
		const char *at = pl_integers_at(e, v->arg[i], idx, &t->level, &ahead);
		struct etext other;

		if (!at)
			continue;
		other = pl_expr(e, v->arg[1 - i], idx);
		if (other.vec || e->need_scalar)
			return 0;
		t->vec = 1;
		t->level = pl_at_level(e, other.level > t->level ? other.level : t->level);
		t->t = pl_temp(e);
		pl_emit(e, t->level, "const ww_vm %s = ww_vm_eq_i64(%s, %s, n);", t->t, at, other.t);
		return 1;
	}
	return 0;
}

/* The number that v is, NULL: none. */
static const double *number_of(const struct val *v)
{
	while (v->kind == V_VIEW && !v->cond)
		v = v->arg[0];
	return v->kind == V_CONST && !v->given ? &v->f : NULL;
}

static int is_power_of_two(double x)
{
	int exponent;

	return fabs(frexp(x, &exponent)) == 0.5;
}

/* cuda: a quotient or a root without the branch of an exact one; NULL: the operation is another one, or its operands
 * are numbers.  a, s: what is known of the operands, and their texts.  What a row kernel divides all elements of a row
 * by is inverted once. */
static const char *without_branch(
	struct expr *e, const struct val *v, const struct etext *a, const char *const *s, int level)
{
	struct pl *pl = e->pl;
	const double *by = v->op == OP_DIV ? number_of(v->arg[1]) : NULL;
	const char *inverse;

	if (pl->target != WW_TARGET_CUDA || level < 1 || (v->op != OP_DIV && v->op != OP_SQRT) ||
		(by && is_power_of_two(*by)))
		return NULL;
	if (v->op == OP_SQRT)
		return pl_fmt(pl, "pl_sqrtf(%s)", s[0]);
	if (by)
		return pl_fmt(pl, "pl_div_by(%s, %s, 1.0f / %s)", s[0], s[1], s[1]);
	if (level < 2 || e->k->kind != K_ROW || a[1].level > 1)
		return pl_fmt(pl, "pl_divf(%s, %s)", s[0], s[1]);
	inverse = pl_temp(e);
	pl_emit(e, pl_at_level(e, 1), "const float %s = pl_divf(1.0f, %s);", inverse, s[1]);
	return pl_fmt(pl, "pl_div_by(%s, %s, %s)", s[0], s[1], inverse);
}

/* Is v a product less a maximum, as in a softmax?  Contracted to a multiply-add it would subtract the maximum, which is
 * rounded, from products that are not: where one element is all of its row, its weight is 2^-24 of the product off, and
 * another kernel's sum of the weights is not (topk of a softmax of gated rows, inputs times 64: 5.4e-5). */
static int is_below_top(const struct val *v)
{
	const struct val *top = v->n_arg > 1 ? v->arg[1] : NULL;

	while (top && top->kind == V_VIEW && !top->cond)
		top = top->arg[0];
	return v->op == OP_SUB && v->dt == WW_F32 && v->arg[0]->kind == V_OP && v->arg[0]->op == OP_MUL && top &&
		top->kind == V_RED && top->red == RED_MAX;
}

static struct etext operation(struct expr *e, struct val *v, const struct ix *const *idx)
{
	const struct pl_op_info *o = &pl_ops[v->op];
	struct etext a[PL_MAX_ARGS], t = { NULL, 0, 1 };
	const char *s[PL_MAX_ARGS], *text;
	int adt = v->arg[0]->dt, compute = v->op == OP_WHERE ? v->dt : adt;

	if (v->op == OP_EQ && pl_is_int(adt) && equals_number(e, v, idx, &t))
		return t;
	for (int n = 0; n < v->n_arg; n++) {
		int i = e->vec && v->op == OP_WHERE && pl_is_int(v->dt) ? v->n_arg - 1 - n : n;

		a[i] = pl_expr(e, v->arg[i], idx);
		if (e->need_scalar && pl_is_int(v->dt)) /* before a condition is written lane by lane in vain */
			return t.vec = 1, t.t = "ww_vf_zero()", t;
		t.vec |= a[i].vec;
		t.level = a[i].level > t.level ? a[i].level : t.level;
		s[i] = a[i].t;
	}
	t.level = pl_at_level(e, t.level);
	if (v->op == OP_CAST) {
		text = t.vec ? cast_vec(e, s[0], adt, v->dt) : pl_cast_text(e->pl, s[0], adt, v->dt);
		if (text == s[0])
			return t.t = s[0], t;
	} else if (t.vec) {
		if (compute == WW_F64 || !o->vec)
			e->need_scalar = 1;
		if (pl_is_int(compute) && !pl_ops[v->op].boolean && v->op != OP_ADD && v->op != OP_SUB && v->op != OP_WHERE &&
			v->op != OP_MAXIMUM && v->op != OP_MINIMUM)
			e->need_scalar = 1;
		if (adt == WW_BOOL && (v->op == OP_EQ || v->op == OP_NE))
			e->need_scalar = 1;
		if (e->need_scalar)
			return t.t = "ww_vf_zero()", t;
		if (v->op == OP_WHERE && !a[0].vec) {
			s[1] = pl_as_vec(e, a[1], v->dt);
			s[2] = pl_as_vec(e, a[2], v->dt);
			text = pl_fill(e->pl, "($0 ? $1 : $2)", s, WW_F32);
		} else if (v->op == OP_WHERE && v->dt == WW_BOOL) {
			e->need_scalar = 1;
			return t.t = "ww_vm_first(0)", t;
		} else {
			for (int i = 0; i < v->n_arg; i++)
				s[i] = pl_as_vec(e, a[i], v->arg[i]->dt);
			text = pl_fill(e->pl, is_below_top(v) ? "ww_vf_minus($0, $1)" : o->vec, s, WW_F32);
		}
	} else {
		const char *tmpl = pl_is_float(compute) ? o->scalar : o->intg;

		if (!tmpl)
			pl_fail(e->pl, "cannot cover %s (node %s): no rule for this type", o->name, pl_node_name(v));
		text = pl_is_float(compute) && compute != WW_F64 ? without_branch(e, v, a, s, t.level) : NULL;
		text = text ? text : pl_fill(e->pl, is_below_top(v) ? "pl_minusf($0, $1)" : tmpl, s, compute);
	}
	t.t = pl_temp(e);
	pl_emit(e, t.level, "const %s %s = %s;", t.vec ? pl_vec_type(v->dt) : pl_acc_type(v->dt), t.t, text);
	return t;
}

struct etext pl_places(struct expr *e, struct val *v, const struct ix *const *idx, int64_t end)
{
	struct etext at = { NULL, 1, 1 };
	int ahead;

	if ((at.t = pl_integers_at(e, v, idx, &at.level, &ahead))) {
		if (ahead)
			pl_emit(e, at.level, "ww_prefetch_ahead(%s, 2);", at.t);
		at.t = pl_fmt(e->pl, "ww_vi_load_i64(%s, n)", at.t);
		return at;
	}
	at = pl_expr(e, v, idx);
	if (at.vec && (e->need_scalar || e->mask || end > 1 << 24)) {
		e->need_scalar = 1;
		at.t = NULL;
	} else if (at.vec) {
		at.t = pl_fmt(e->pl, "ww_vi_trunc(%s)", at.t); /* places below 2^24 are exact in floats */
	}
	return at;
}

static struct etext gathered(struct expr *e, struct val *v, const struct ix *const *idx)
{
	const struct ix *sub[PL_MAX_RANK], *name;
	struct etext at = pl_places(e, v->arg[1], idx, ix_num(v->arg[0]->size[v->dim]));
	const char *places = at.vec ? at.t : NULL;

	if (!at.t)
		return at.t = "ww_vf_zero()", at;
	pl_map_index(e->pl, v, v->map, v->arg[0]->rank, idx, sub);
	if (places) {
		at.t = pl_temp(e);
		pl_emit(e, at.level, "const ww_vi %s = %s;", at.t, places);
		name = ix_temp_along(e->pl, at.t, pl_of_var(e->pl, e->lane), v->arg[0]->size[v->dim]);
	} else {
		name = ix_temp(e->pl, e->pl->target == WW_TARGET_CUDA ? pl_fmt(e->pl, "(ix_t)%s", at.t) : at.t);
	}
	((struct ix_atom *)(uintptr_t)name->m[0].atom[0])->value = at.level;
	sub[v->dim] = name;
	return pl_expr(e, v->arg[0], sub);
}

/* 1: this kernel has already computed reduction v at idx; *t: its text.  (Another kernel may store it, too.) */
static int done_here(const struct expr *e, const struct val *v, const struct ix *const *idx, struct etext *t)
{
	for (int i = 0; i < e->k->n_red; i++) {
		if (e->k->red[i] != v || !e->red_done[i] || !ix_same_all(e->k->red_idx[i], idx, v->rank))
			continue;
		*t = e->red_text[i];
		return 1;
	}
	return 0;
}

/* A small reduction as a loop inside the expression. */
static struct etext reduction(struct expr *e, struct val *v, const struct ix *const *idx)
{
	const struct ix *sub[PL_MAX_RANK];
	struct val *a = v->arg[0];
	struct etext t = { NULL, 0, 1 }, in;
	const struct ix *old_cond = e->cond;
	const struct ix_atom *old_window = e->window;
	int level, old_level = e->scope_level, old_scope = e->window_scope, dt = v->dt;

	level = pl_at_level(e, pl_max_level(e, idx, v->rank, 1));
	t.level = level;
	for (int d = 0; d < v->rank; d++) {
		sub[d] = idx[d];
		t.vec |= e->vec && pl_has_lane(e, idx[d]);
	}
	if (v->red >= RED_ARGMAX || (t.vec && dt != WW_F32 && dt != WW_F16 && dt != WW_BF16)) {
		if (v->red >= RED_ARGMAX)
			pl_fail(e->pl, "cannot cover %s (node %s): inside an expression", pl_red_names[v->red], pl_node_name(v));
		e->need_scalar = 1;
	}
	t.t = pl_temp(e);
	pl_emit(e, level, "%s %s = %s;", t.vec ? "ww_vf" : pl_acc_type(dt), t.t,
		t.vec ? pl_fmt(e->pl, "ww_vf_set(%s)", pl_ident(e->pl, v->red, dt)) : pl_ident(e->pl, v->red, dt));
	for (int d = v->rank; d < a->rank; d++) {
		const struct ix *x = ix_var(e->pl, pl_fmt(e->pl, "r%d", e->pl->n_var++), a->size[d]);

		((struct ix_atom *)(uintptr_t)x->m[0].atom[0])->value = level;
		sub[d] = x;
		if (e->vec && pl_unrolls(a->size[d]))
			pl_emit(e, level, "WW_UNROLL(8)");
		if (e->cuda_vec && pl_unrolls(a->size[d]))
			pl_emit(e, level, "#pragma unroll");
		pl_emit(e, level, "for (ix_t %s = 0; %s < %s; %s++) {", ix_text(e->pl, x), ix_text(e->pl, x),
			ix_text(e->pl, a->size[d]), ix_text(e->pl, x));
		e->scope++;
	}
	e->scope_level = level;
	e->cond = NULL;
	e->window = ix_as_var(sub[a->rank - 1]);
	e->window_scope = e->scope;
	e->walks++;
	in = pl_expr(e, a, sub);
	e->walks--;
	e->window = old_window;
	e->window_scope = old_scope;
	e->cond = old_cond;
	pl_emit(e, level, "%s = %s;", t.t, pl_combine(e->pl, v->red, dt, t.t, t.vec ? pl_as_vec(e, in, dt) : in.t, t.vec));
	if (in.vec && !t.vec)
		e->need_scalar = 1;
	for (int d = v->rank; d < a->rank; d++) {
		pl_memo_drop(e, 9, e->scope - 1);
		e->scope--;
		pl_emit(e, level, "}");
	}
	e->scope_level = old_level;
	return t;
}

static struct etext indexed(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct etext t = { NULL, 0, 1 };
	const struct ix *x;

	pl_map_index(e->pl, v, &v->index, 1, idx, &x);
	t.level = pl_at_level(e, pl_level_of(e, x));
	t.vec = e->vec && pl_has_lane(e, x);
	t.t = pl_temp(e);
	if (t.vec)
		pl_emit(e, t.level, "const %s %s = %s;", pl_vec_type(v->dt), t.t,
			v->dt == WW_BOOL ? pl_vec_cond(e, x) : pl_vec_ix(e, x));
	else
		pl_emit(e, t.level, "const %s %s = %s;", pl_acc_type(v->dt), t.t, ix_text(e->pl, x));
	return t;
}

/* Does index x contain a lookup's vector of places?  Then the loop over the lanes is written around the lookup. */
static int of_lookup(const struct ix *x)
{
	for (int i = 0; x && i < x->n; i++)
		for (int a = 0; a < x->m[i].n; a++) {
			const struct ix_atom *t = x->m[i].atom[a];

			if (t->kind == IX_TEMP ? t->a != NULL
								   : t->kind != IX_SYM && t->kind != IX_VAR && (of_lookup(t->a) || of_lookup(t->b)))
				return 1;
		}
	return 0;
}

static int is_of_lookups(const struct ix *const *idx, int n)
{
	for (int d = 0; d < n; d++)
		if (of_lookup(idx[d]))
			return 1;
	return 0;
}

static int has_lanes(const struct val *v) { return v->dt == WW_BOOL || (pl_is_float(v->dt) && v->dt != WW_F64); }

/* A value that has no vector form: a loop over the lanes with scalars inside. */
static struct etext by_lanes(struct expr *e, struct val *v, const struct ix *const *idx)
{
	int level = pl_at_level(e, pl_max_level(e, idx, v->rank, 1)), old_level = e->scope_level;
	const char *mask = e->mask, *lane = e->lane->name, *all = pl_temp(e);
	struct etext t = { pl_temp(e), 1, level }, in;

	e->need_scalar = 0;
	pl_emit(e, level, "float %s[WW_VL] = { 0 };", all);
	pl_emit(e, level, "for (int l = 0; l < n; l++) {");
	e->scope++;
	e->scope_level = level;
	if (mask)
		pl_emit(e, level, "if (!ww_vm_lane(%s, l))\n\tcontinue;", mask);
	pl_emit(e, level, "const ix_t %s_l = %s + l;", lane, lane);
	pl_emit(e, level, "{");
	e->scope++;
	pl_emit(e, level, "const ix_t %s = %s_l;", lane, lane);
	e->vec = 0;
	e->by_lane = 1;
	e->mask = NULL;
	in = pl_expr(e, v, idx);
	pl_emit(e, level, "%s[l] = (float)%s;", all, in.t);
	pl_memo_drop(e, 9, e->scope - 2);
	e->vec = 1;
	e->by_lane = 0;
	e->mask = mask;
	e->scope--;
	pl_emit(e, level, "}");
	e->scope--;
	e->scope_level = old_level;
	pl_emit(e, level, "}");
	pl_emit(e, level,
		v->dt == WW_BOOL ? "const ww_vm %s = ww_vf_ne(ww_vf_load(%s, WW_VL), ww_vf_zero());"
						 : "const ww_vf %s = ww_vf_load(%s, WW_VL);",
		t.t, all);
	return t;
}

/* An element of a buffer that no vector load reaches: only the load is written lane by lane, and what is computed from
 * it stays a vector. */
static struct etext loaded_by_lanes(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct etext t = by_lanes(e, v, idx);

	pl_memo_add(e, v, NULL, idx, v->rank, t);
	return t;
}

static struct etext written(struct expr *e, struct val *v, const struct ix *const *idx)
{
	const struct ix *sub[PL_MAX_RANK];
	struct etext t = { NULL, 0, 1 };
	struct val *taken;
	struct ememo *m;
	int failed = e->need_scalar;

	if (v->given)
		return t.vec = e->vec, t.t = e->vec ? v->given : pl_fmt(e->pl, "%s[l]", v->given), t;
	if (v->kind == V_CONST)
		return t.t = pl_literal(e->pl, v->dt, v->f, v->i), t;
	for (int i = 0; i < e->n_bound; i++)
		if (e->bound[i] == v)
			return e->bound_text[i];
	if (v->kind == V_RED && done_here(e, v, idx, &t))
		return t;
	if (v->kind == V_ANCHOR && v->anchor->in_row && done_here(e, v->anchor->in_row, idx, &t))
		return t;
	if ((m = pl_memo_find(e, v, NULL, idx, v->rank)))
		return m->text;
	if (v->kind == V_BUF || (v->root && !pl_is_own(e, v))) {
		t = pl_load(e, v->root, idx);
		return e->vec && e->need_scalar && !failed && has_lanes(v) && !is_of_lookups(idx, v->rank)
			? loaded_by_lanes(e, v, idx)
			: t;
	}
	switch (v->kind) {
	case V_OP:
		taken = pl_taken(e->pl, v, idx);
		t = taken ? pl_expr(e, taken, idx) : pl_is_branch(e, v, idx) ? pl_branch(e, v, idx) : operation(e, v, idx);
		break;
	case V_INDEX: t = indexed(e, v, idx); break;
	case V_GATHER: t = gathered(e, v, idx); break;
	case V_RED: t = reduction(e, v, idx); break;
	case V_VIEW:
		pl_map_index(e->pl, v, v->map, v->arg[0]->rank, idx, sub);
		t = v->cond ? pl_guarded(e, v, idx, sub) : pl_expr(e, v->arg[0], sub);
		break;
	default: pl_fail(e->pl, "the result of node %s is not where it is needed", pl_node_name(v));
	}
	if (e->vec && e->need_scalar && !failed && has_lanes(v) && !is_of_lookups(idx, v->rank))
		t = by_lanes(e, v, idx);
	if (!e->need_scalar)
		pl_memo_add(e, v, NULL, idx, v->rank, t);
	return t;
}

struct etext pl_expr(struct expr *e, struct val *v, const struct ix *const *idx)
{
	struct etext t = written(e, v, idx);

	if (!e->by_lane || !t.vec)
		return t;
	t.t = pl_fmt(e->pl, v->dt == WW_BOOL ? "ww_vm_lane(%s, l)" : pl_is_int(v->dt) ? "(long long)%s[l]" : "%s[l]", t.t);
	t.vec = 0;
	t.level = pl_at_level(e, t.level);
	return t;
}
