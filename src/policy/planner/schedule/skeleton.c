/* skeleton.c - row kernels that are softmaxes and norms, around the cookbook's skeletons for them.
 *
 * A skeleton knows more than the loops of cpu.c: it reads each row once, takes each exponential once, and stores
 * one row while it reads the next.  It is used where the kernel's reductions and outputs have its shape, whatever
 * operators they came from:
 *
 *     m = max x, s = sum exp(x - m)           with exp(x - m) / s       ww_cpu_softmax
 *                                             with x - m - log s        ww_cpu_log_softmax
 *                                             with m + log s alone      ww_row_lse, one number a row
 *     s = sum x, q = sum (x - s/n)^2          with (x - s/n) rstd       ww_cpu_layernorm
 *     q = sum x^2                             with x rstd               ww_cpu_rmsnorm
 *
 * where x is any expression (the load functor), and the outputs are any expressions over the value on the right (the
 * store functor) that need the reductions for nothing else.  Matching compares values and indices, not names: views
 * without a condition and casts between types that are computed as float are looked through.  Whatever does not match,
 * or has no vector form, is left to the loops.  (Rejected: marking softmax and norms when they are lowered.  The same
 * shapes come written out by hand at least as often, and a mark would have to survive every view and cast in between.)
 */
#include "policy/planner/schedule/schedule.h"

#include <string.h>

struct match {
	struct pl *pl;
	struct kern *k;
	enum skeleton shape;
	struct pl_at x; /* what the load functor gives */
	double eps;
	int has_eps;
	struct val *value[16]; /* what the skeleton computes: nodes of the outputs */
	int n_value;
};

/* ---- Matching ---------------------------------------------------------------------------------------------------- */

static struct pl_at arg(const struct match *m, const struct pl_at *a, int i)
{
	return pl_look(m->pl, a->v->arg[i], a->idx);
}

static int same(const struct pl_at *a, const struct pl_at *b)
{
	return a->v->kind != V_CONST && a->v == b->v && ix_same_all(a->idx, b->idx, a->v->rank);
}

static int is_op(const struct pl_at *a, enum pl_op op) { return a->v->kind == V_OP && a->v->op == op; }

static int is_red(const struct match *m, struct pl_at a, int i)
{
	return a.v == m->k->red[i] && ix_same_all(a.idx, m->k->red_idx[i], a.v->rank);
}

/* What reduction i reduces, at the kernel's own index. */
static struct pl_at reduced(const struct match *m, int i)
{
	const struct ix *idx[PL_MAX_RANK];

	pl_red_element(m->k, i, idx);
	return pl_look(m->pl, m->k->red[i]->arg[0], idx);
}

static int is_count(const struct match *m, struct pl_at a)
{
	const struct ix *cols = pl_extent(m->pl, m->k->col, m->k->n_col), *n;
	int64_t c;

	if (a.v->kind == V_CONST)
		return ix_is_const(cols, &c) && a.v->f == (double)c;
	if (is_op(&a, OP_CAST))
		a = arg(m, &a, 0);
	if (a.v->kind != V_INDEX)
		return 0;
	pl_map_index(m->pl, a.v, &a.v->index, 1, a.idx, &n);
	return ix_same(n, cols);
}

static int is_mean(const struct match *m, struct pl_at a, int i)
{
	return is_op(&a, OP_DIV) && is_red(m, arg(m, &a, 0), i) && is_count(m, arg(m, &a, 1));
}

/* mean of reduction i, plus a constant: the same one every time. */
static int is_mean_eps(struct match *m, struct pl_at a, int i)
{
	for (int j = 0; is_op(&a, OP_ADD) && j < 2; j++) {
		const struct pl_at c = arg(m, &a, 1 - j);

		if (c.v->kind != V_CONST || !is_mean(m, arg(m, &a, j), i) || (m->has_eps && m->eps != c.v->f))
			continue;
		m->eps = c.v->f;
		m->has_eps = 1;
		return 1;
	}
	return 0;
}

static int is_root(struct match *m, struct pl_at a, int i)
{
	return is_op(&a, OP_SQRT) && is_mean_eps(m, arg(m, &a, 0), i);
}

static int is_rstd(struct match *m, struct pl_at a, int i)
{
	return (is_op(&a, OP_RSQRT) && is_mean_eps(m, arg(m, &a, 0), i)) ||
		(is_op(&a, OP_RECIP) && is_root(m, arg(m, &a, 0), i));
}

/* x - something */
static int from_x(const struct match *m, const struct pl_at *a)
{
	struct pl_at x;

	if (!is_op(a, OP_SUB))
		return 0;
	x = arg(m, a, 0);
	return same(&x, &m->x);
}

static int is_centred(const struct match *m, struct pl_at a) { return from_x(m, &a) && is_mean(m, arg(m, &a, 1), 0); }
static int is_shifted(const struct match *m, struct pl_at a) { return from_x(m, &a) && is_red(m, arg(m, &a, 1), 0); }
static int is_exp(const struct match *m, struct pl_at a) { return is_op(&a, OP_EXP) && is_shifted(m, arg(m, &a, 0)); }

static int is_log_sum(const struct match *m, struct pl_at a)
{
	return is_op(&a, OP_LOG) && is_red(m, arg(m, &a, 0), 1);
}

static int is_lse(const struct match *m, struct pl_at a)
{
	return is_op(&a, OP_ADD) &&
		((is_log_sum(m, arg(m, &a, 0)) && is_red(m, arg(m, &a, 1), 0)) ||
			(is_log_sum(m, arg(m, &a, 1)) && is_red(m, arg(m, &a, 0), 0)));
}

/* The numerator of a value of this shape. */
static int is_numerator(const struct match *m, struct pl_at a)
{
	return m->shape == SOFTMAX ? is_exp(m, a) : m->shape == LAYERNORM ? is_centred(m, a) : same(&a, &m->x);
}

static int is_divisor(struct match *m, struct pl_at a)
{
	return m->shape == SOFTMAX ? is_red(m, a, 1) : is_root(m, a, m->k->n_red - 1);
}

static int is_factor(struct match *m, struct pl_at a)
{
	return m->shape == SOFTMAX ? is_op(&a, OP_RECIP) && is_red(m, arg(m, &a, 0), 1) : is_rstd(m, a, m->k->n_red - 1);
}

static int is_value(struct match *m, struct pl_at a)
{
	if (m->shape == LSE)
		return is_lse(m, a);
	if (m->shape == LOG_SOFTMAX)
		return (from_x(m, &a) && is_lse(m, arg(m, &a, 1))) ||
			(is_op(&a, OP_SUB) && is_shifted(m, arg(m, &a, 0)) && is_log_sum(m, arg(m, &a, 1)));
	if (is_op(&a, OP_DIV))
		return is_numerator(m, arg(m, &a, 0)) && is_divisor(m, arg(m, &a, 1));
	for (int j = 0; is_op(&a, OP_MUL) && j < 2; j++)
		if (is_numerator(m, arg(m, &a, j)) && is_factor(m, arg(m, &a, 1 - j)))
			return 1;
	return 0;
}

static int stop_at_value(void *ctx, struct val *v, const struct ix *const *idx)
{
	struct match *m = ctx;
	struct pl_at a = { .v = v };

	if (v->kind != V_OP || m->n_value >= (int)WW_ARRAY_LEN(m->value))
		return 0;
	for (int d = 0; d < v->rank; d++)
		a.idx[d] = idx[d];
	if (!is_value(m, a))
		return 0;
	m->value[m->n_value++] = v;
	return 1;
}

/* Do the outputs need the reductions only through values of this shape? */
static int outputs_fit(struct match *m)
{
	m->n_value = m->has_eps = 0;
	for (int o = 0; o < m->k->n_out; o++) {
		struct walk w;

		pl_walk_init(&w, m->pl, m->k->out[o]);
		w.into_reds = 1;
		w.stop = stop_at_value;
		w.stop_ctx = m;
		pl_walk(&w, m->k->out[o], m->k->out_idx[o]);
		for (struct leaf *l = w.first; l; l = l->next)
			for (int i = 0; l->kind == LEAF_RED && i < m->k->n_red; i++)
				if (l->val == m->k->red[i])
					return 0;
	}
	return m->n_value > 0;
}

static int find_shape(struct match *m)
{
	struct kern *k = m->k;
	struct pl_at second;

	if (k->n_red < 1 || k->n_red > 2 || k->n_col != 1)
		return 0;
	for (int i = 0; i < k->n_red; i++)
		if (!pl_computed_as_float(k->red[i]->arg[0]->dt))
			return 0;
	m->x = reduced(m, 0);
	if (k->n_red == 1) {
		struct pl_at a;

		if (k->red[0]->red != RED_SUM || !is_op(&m->x, OP_MUL))
			return 0;
		a = arg(m, &m->x, 0);
		second = arg(m, &m->x, 1);
		m->x = a;
		m->shape = RMSNORM;
		return same(&a, &second) && pl_stores_per_column(k) && outputs_fit(m);
	}
	second = reduced(m, 1);
	if (k->red[1]->red != RED_SUM)
		return 0;
	if (k->red[0]->red == RED_SUM) {
		m->shape = LAYERNORM;
		return is_op(&second, OP_MUL) && is_centred(m, arg(m, &second, 0)) && is_centred(m, arg(m, &second, 1)) &&
			pl_stores_per_column(k) && outputs_fit(m);
	}
	if (k->red[0]->red != RED_MAX || !is_exp(m, second))
		return 0;
	m->shape = LSE;
	if (!pl_stores_per_column(k))
		return outputs_fit(m);
	m->shape = SOFTMAX;
	if (outputs_fit(m))
		return 1;
	m->shape = LOG_SOFTMAX;
	return outputs_fit(m);
}

/* ---- Statements -------------------------------------------------------------------------------------------------- */

static void expr_open(struct match *m, struct expr *e, struct ww_str *b, int vec)
{
	pl_expr_init(e, m->pl, m->k);
	e->block[1] = e->block[2] = b;
	e->vec = vec;
	e->lane = vec ? m->k->col[0] : NULL;
}

/* The statements of the load functor; NULL where there is no vector form. */
static const char *load_text(struct match *m)
{
	struct ww_str b = pl_text(m->pl);
	struct etext t;
	struct expr e;

	expr_open(m, &e, &b, 1);
	t = pl_expr(&e, m->x.v, m->x.idx);
	return e.need_scalar ? NULL
						 : pl_fmt(m->pl, t.vec ? "%sreturn %s;\n" : "%sreturn ww_vf_set((float)%s);\n", b.p, t.t);
}

/* The statements that store the outputs, the skeleton's value being "v"; NULL as above. */
static const char *store_text(struct match *m)
{
	struct ww_str b = pl_text(m->pl);
	int row = m->shape == LSE;
	struct expr e;

	expr_open(m, &e, &b, !row);
	for (int i = 0; i < m->n_value; i++) {
		e.bound[i] = m->value[i];
		e.bound_text[i] = (struct etext){ "v", !row, row ? 1 : 2 };
	}
	e.n_bound = m->n_value;
	pl_cpu_stores(&e, m->k, row ? 1 : 2);
	return e.need_scalar ? NULL : b.p;
}

int pl_find_skeleton(struct pl *pl, struct kern *k)
{
	struct match m = { .pl = pl, .k = k };
	struct loop *l = k->loop;

	if (!find_shape(&m))
		return 0;
	l->load = load_text(&m);
	l->store = l->load ? store_text(&m) : NULL;
	if (!l->store) {
		k->n_arg = 0;
		return 0;
	}
	l->skeleton = m.shape;
	l->eps = m.has_eps ? pl_literal(pl, WW_F32, m.eps, 0) : NULL;
	return 1;
}
