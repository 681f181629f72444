/* write.c - see write.h. */
#include "policy/planner/print/write.h"

#include <string.h>

void pl_expr_init(struct expr *e, struct pl *pl, struct kern *k)
{
	memset(e, 0, sizeof(*e));
	e->pl = pl;
	e->k = k;
}

void pl_kern_arg(struct pl *pl, struct kern *k, struct buf *b)
{
	b = b->of ? b->of : b;
	for (int i = 0; i < k->n_arg; i++)
		if (k->arg[i] == b)
			return;
	if (k->n_arg >= 48)
		pl_fail(pl, "a kernel needs more than 48 buffers");
	k->arg[k->n_arg++] = b;
	b->used = 1;
}

int pl_has_lane(const struct expr *e, const struct ix *x) { return e->lane && ix_has(x, e->lane); }

static int atom_level(const struct expr *e, const struct ix_atom *t)
{
	int a, b;

	switch (t->kind) {
	case IX_SYM: return 1;
	case IX_TEMP: return (int)t->value;
	case IX_VAR:
		for (int c = 0; c < e->k->n_col; c++)
			if (e->k->col[c] == t)
				return 2;
		return t->value ? (int)t->value : 1;
	default:
		a = pl_level_of(e, t->a);
		b = pl_level_of(e, t->b);
		return a > b ? a : b;
	}
}

int pl_level_of(const struct expr *e, const struct ix *x)
{
	int level = 1;

	for (int i = 0; i < x->n; i++)
		for (int k = 0; k < x->m[i].n; k++) {
			int l = atom_level(e, x->m[i].atom[k]);

			level = l > level ? l : level;
		}
	return level;
}

int pl_at_level(const struct expr *e, int level) { return e->scope && e->scope_level > level ? e->scope_level : level; }

void pl_emit(struct expr *e, int level, const char *fmt, ...)
{
	struct ww_str *s = e->block[level];
	va_list ap;

	for (int i = 0; i < e->scope; i++)
		ww_str_addc(s, '\t');
	va_start(ap, fmt);
	ww_str_vaddf(s, fmt, ap);
	va_end(ap);
	ww_str_addc(s, '\n');
}

const char *pl_temp(struct expr *e) { return pl_fmt(e->pl, "v%d", e->n_temp++); }

static struct ememo **memo_bucket(struct expr *e, const struct val *v, const struct buf *b)
{
	return &e->bucket[(v ? (unsigned)v->id : (unsigned)((uintptr_t)b >> 6)) & 127u];
}

struct ememo *pl_memo_find(struct expr *e, const struct val *v, const struct buf *b, const struct ix *const *idx, int n)
{
	for (struct ememo *m = *memo_bucket(e, v, b); m; m = m->next)
		if (m->val == v && m->buf == b && m->n == n && ix_same_all(m->idx, idx, n))
			return m;
	return NULL;
}

void pl_memo_add(
	struct expr *e, const struct val *v, const struct buf *b, const struct ix *const *idx, int n, struct etext t)
{
	struct ememo **at = memo_bucket(e, v, b), *m = pl_alloc(e->pl, sizeof(*m));

	m->val = v;
	m->buf = b;
	m->n = n;
	for (int d = 0; d < n; d++)
		m->idx[d] = idx[d];
	m->text = t;
	m->scope = e->scope;
	m->next = *at;
	*at = m;
}

void pl_memo_drop(struct expr *e, int level, int scope)
{
	for (int i = 0; i < 128; i++) {
		struct ememo **p = &e->bucket[i];

		while (*p)
			if ((*p)->text.level >= level || (*p)->scope > scope)
				*p = (*p)->next;
			else
				p = &(*p)->next;
	}
}

void pl_expr_known(struct expr *e, const struct val *v, const struct ix *const *idx, struct etext t)
{
	pl_memo_add(e, v, NULL, idx, v->rank, t);
}

void pl_expr_forget(struct expr *e, int level) { pl_memo_drop(e, level, 0); }

const char *pl_as_vec(struct expr *e, struct etext t, int dt)
{
	if (t.vec)
		return t.t;
	if (dt == WW_BOOL)
		return pl_fmt(e->pl, "(%s ? ww_vm_first(WW_VL) : ww_vm_first(0))", t.t);
	return pl_fmt(e->pl, "ww_vf_set((float)%s)", t.t);
}

const char *pl_vec_type(int dt) { return dt == WW_BOOL ? "ww_vm" : "ww_vf"; }

const char *pl_vec_ix(struct expr *e, const struct ix *x)
{
	const struct ix *coef, *rest;

	if (!pl_has_lane(e, x))
		return pl_fmt(e->pl, "ww_vf_set((float)%s)", ix_text(e->pl, x));
	if (!ix_affine(e->pl, x, e->lane, &coef, &rest) || ix_varies(coef)) {
		e->need_scalar = 1;
		return "ww_vf_zero()";
	}
	/* the lane variable names the first lane */
	return pl_fmt(
		e->pl, "(ww_vf_of_vi(ww_vi_iota()) * (float)%s + (float)%s)", ix_text(e->pl, coef), ix_text(e->pl, x));
}

/* The same as integers, which are exact. */
static const char *vec_int(struct expr *e, const struct ix *x)
{
	const struct ix *coef, *rest;

	if (!pl_has_lane(e, x))
		return pl_fmt(e->pl, "ww_vi_set((int32_t)(%s))", ix_text(e->pl, x));
	if (!ix_affine(e->pl, x, e->lane, &coef, &rest) || ix_varies(coef)) {
		e->need_scalar = 1;
		return "ww_vi_set(0)";
	}
	return pl_fmt(e->pl, "(ww_vi_iota() * ww_vi_set((int32_t)(%s)) + ww_vi_set((int32_t)(%s)))", ix_text(e->pl, coef),
		ix_text(e->pl, x));
}

const char *pl_vec_cond(struct expr *e, const struct ix *x)
{
	const char *s = NULL;

	if (x->n != 1 || x->m[0].c != 1) {
		e->need_scalar = 1;
		return "ww_vm_first(0)";
	}
	for (int i = 0; i < x->m[0].n; i++) {
		const struct ix_atom *t = x->m[0].atom[i];
		const char *c;

		if (t->kind != IX_LT) {
			e->need_scalar = 1;
			return "ww_vm_first(0)";
		}
		c = pl_fmt(e->pl, "ww_vi_lt(%s, %s)", vec_int(e, t->a), vec_int(e, t->b));
		s = s ? pl_fmt(e->pl, "ww_vm_and(%s, %s)", s, c) : c;
	}
	return s;
}

int pl_max_level(struct expr *e, const struct ix *const *idx, int n, int least)
{
	for (int d = 0; d < n; d++) {
		int l = pl_level_of(e, idx[d]);

		least = l > least ? l : least;
	}
	return least;
}

int pl_is_own(const struct expr *e, const struct val *v)
{
	for (int o = 0; o < e->k->n_out; o++)
		if (e->k->out[o] == v)
			return 1;
	return v == e->self;
}
