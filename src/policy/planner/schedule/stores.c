/* stores.c - the statements that write a kernel's outputs. */
#include "policy/planner/schedule/schedule.h"

#include <string.h>

/* Do stores to b go around the caches?  Those of an output do, but for a part that another kernel of ours then reads.
 */
static int leaves(const struct buf *b) { return b->kind == B_OUTPUT && !b->again; }

/* ---- cpu --------------------------------------------------------------------------------------------------------- */

/* A vector of outputs at `off`, which moves along the lane. */
static void store_vector(struct expr *e, struct val *v, const struct ix *off, struct etext t, struct ww_str *s)
{
	struct pl *pl = e->pl;
	struct buf *b = v->root;
	const struct ix *coef, *rest;
	const char *at = pl_fmt(pl, "%s + %s", b->name, ix_text(pl, off));

	if (!t.vec)
		t.t = v->dt == WW_BOOL ? pl_fmt(pl, "(%s ? ww_vm_first(WW_VL) : ww_vm_first(0))", t.t)
							   : pl_fmt(pl, "ww_vf_set((float)%s)", t.t);
	if (!ix_affine(pl, off, e->lane, &coef, &rest) || ix_varies(coef) || !(pl_is_float(v->dt) || v->dt == WW_BOOL) ||
		b->dt == WW_F64 || (!ix_is(coef, 1) && b->dt != WW_F32))
		e->need_scalar = 1;
	else if (!ix_is(coef, 1))
		ww_str_addf(s, "ww_vf_scatter(%s, %s, %s, n);\n", at, ix_text(pl, coef), t.t);
	else if (b->dt == WW_BOOL)
		ww_str_addf(s, "ww_vf_store_u8(%s, ww_vf_of_vm(%s), n);\n", at, t.t);
	else if (b->dt == WW_F32)
		ww_str_addf(s, "%s(%s, %s, n);\n", leaves(b) && pl_streams(pl, e->k, e->lane) ? "ww_vf_stream" : "ww_vf_store",
			at, t.t);
	else
		ww_str_addf(s, "ww_vf_store_%s(%s, %s, n);\n", b->dt == WW_F16 ? "f16" : "bf16", at, t.t);
}

void pl_cpu_stores(struct expr *e, struct kern *k, int level)
{
	struct pl *pl = e->pl;

	for (int o = 0; o < k->n_out; o++) {
		struct val *v = k->out[o];
		const struct ix *off = pl_offset(pl, v->root, k->out_idx[o]);
		struct etext t;

		e->self = v;
		t = pl_expr(e, v, k->out_idx[o]);
		pl_kern_arg(pl, k, v->root);
		if (e->vec && pl_has_lane(e, off)) {
			store_vector(e, v, off, t, e->block[level]);
			continue;
		}
		if (t.vec)
			e->need_scalar = 1;
		ww_str_addf(e->block[level], "%s[%s] = %s;\n", v->root->name, ix_text(pl, off),
			pl_to_store(pl, t.t, v->dt, v->root->dt));
	}
}

/* ---- cuda -------------------------------------------------------------------------------------------------------- */

const char *pl_cuda_terms(struct pl *pl, const char *terms, const struct ix *off, const struct ix_atom *lane)
{
	for (int i = 0; i < off->n; i++) {
		const struct ix_mono *m = &off->m[i];
		const char *t = pl_fmt(pl, "%lld", (long long)(m->c < 0 ? -m->c : m->c));
		int is_lane = 0;

		for (int a = 0; a < m->n; a++) {
			is_lane |= m->atom[a] == lane;
			if (pl_is_size(pl, m->atom[a]))
				t = pl_fmt(pl, "%s * %s", t, ix_text(pl, pl_of_var(pl, m->atom[a])));
		}
		if (!is_lane && strcmp(t, "0"))
			terms = pl_fmt(pl, "%s | %s", terms, t);
	}
	return terms;
}

/* A quotient of sizes alone (half of a dimension, as chunk() makes it). */
static int is_quotient_of_sizes(const struct ix_atom *t)
{
	return t->kind == IX_DIV && !ix_varies(t->a) && !ix_varies(t->b);
}

int pl_divides(const struct ix *off, const struct ix_atom *lane, int n)
{
	for (int i = 0; i < off->n; i++) {
		int64_t c = off->m[i].c;
		int is_lane = 0;

		for (int a = 0; a < off->m[i].n; a++) {
			is_lane |= off->m[i].atom[a] == lane;
			if (off->m[i].atom[a]->kind == IX_SYM)
				c *= off->m[i].atom[a]->value;
			else if (is_quotient_of_sizes(off->m[i].atom[a]))
				c *= ix_num(off->m[i].atom[a]->a) / ix_num(off->m[i].atom[a]->b);
		}
		if (!is_lane && c % n)
			return 0;
	}
	return 1;
}

const char *pl_cuda_row_terms(struct pl *pl, struct kern *k, const char *terms, const struct ix *off)
{
	struct loop *l = k->loop;

	if (k->kind == K_ROW && l->ring && pl_lies_in_rows(pl, k, off))
		return terms;
	if (l->ring)
		l->others = l->others == 2 || !pl_divides(off, l->lane, 16 / pl_itemsize(l->ring->dt)) ? 2 : 1;
	return pl_cuda_terms(pl, terms, off, l->lane);
}

void pl_guard_terms(struct pl *pl, const char *terms, int n)
{
	if (*terms)
		pl_guard(pl,
			pl_fmt(pl, "\tif ((0%s) %% %d)\n\t\tww_fail(p, \"strides that are not multiples of %d\");\n", terms, n, n));
}

const char *pl_cuda_cond_terms(struct pl *pl, const char *terms, const struct ix *cond, const struct ix_atom *lane)
{
	for (int i = 0; cond && i < cond->n; i++)
		for (int a = 0; a < cond->m[i].n; a++) {
			const struct ix_atom *t = cond->m[i].atom[a];

			if (ix_has(pl_of_var(pl, t), lane))
				terms = pl_cuda_terms(pl, terms, pl_lane_bound(pl, t, lane), lane);
		}
	return terms;
}

int pl_cond_divides(struct pl *pl, const struct ix *cond, const struct ix_atom *lane, int n)
{
	for (int i = 0; cond && i < cond->n; i++)
		for (int a = 0; a < cond->m[i].n; a++) {
			const struct ix_atom *t = cond->m[i].atom[a];

			if (ix_has(pl_of_var(pl, t), lane) && !pl_divides(pl_lane_bound(pl, t, lane), lane, n))
				return 0;
		}
	return 1;
}

/* x with `start` in place of the lane variable. */
static const struct ix *from_start(struct pl *pl, const struct ix *x, const struct ix_atom *lane, const char *start)
{
	const struct ix *e = ix_temp(pl, start);

	return ix_subst(pl, x, &lane, &e, 1);
}

static const char *at_start(struct pl *pl, const struct ix *off, const struct ix_atom *lane, const char *start)
{
	return ix_text(pl, from_start(pl, off, lane, start));
}

const char *pl_cuda_loaded(const struct vload *v)
{
	return v->buf->dt == WW_BOOL ? "unsigned char" : v->buf->dt == WW_I64 ? "long long" : "float";
}

const char *pl_cuda_arrays(struct pl *pl, const struct vload *v, int n, const char *dims)
{
	const char *s = "";

	for (int i = 0; i < n; i++) {
		const char *own = v[i].one ? "[1]"
			: v[i].repeats /* those of a vector's lanes: "[V]" is the last dimension */
			? pl_fmt(pl, "%.*s(V + %d) / %d]", (int)strlen(dims) - 2, dims, v[i].repeats - 1, v[i].repeats)
			: dims;

		s = pl_fmt(pl, "%s%s %s%s;\n", s, pl_cuda_loaded(&v[i]), v[i].name, own);
	}
	return s;
}

const char *pl_cuda_loads(
	struct pl *pl, const struct ix_atom *lane, const struct vload *v, int n, const char *start, const char *sub)
{
	const char *s = "";

	for (int i = 0; i < n; i++) {
		if (v[i].step) {
			s = pl_fmt(pl, "%s#pragma unroll\nfor (int l = 0; l < N; l++)\n\t%s%s = %s[%s + l * (%s)];\n", s, v[i].name,
				pl_is_half(v[i].buf->dt) ? ".elem[l].is" : "[l]", v[i].buf->name, at_start(pl, v[i].base, lane, start),
				ix_text(pl, v[i].step));
			continue;
		}
		s = pl_fmt(pl, "%s%s%s(%s + %s, %s%s%s);\n", s,
			v[i].cond ? pl_fmt(pl, "if (%s)\n\t", pl_cond_text(pl, from_start(pl, v[i].cond, lane, start))) : "",
			v[i].apart                   ? pl_fmt(pl, "pl_load_apart<%d>", v[i].apart)
				: v[i].buf->dt == WW_I64 ? "pl_load"
				: v[i].any               ? "ww::load_any"
				: v[i].once              ? "ww::load_once"
										 : "ww::load",
			v[i].buf->name, at_start(pl, v[i].base, lane, start),
			v[i].apart ? pl_fmt(pl, "%s, ", ix_text(pl, v[i].which)) : "", v[i].name, sub);
	}
	return s;
}

/* The place, among the block's rows of results in shared memory, of what lies at `off`. */
static const struct ix *in_stored(struct pl *pl, const struct kern *k, const struct ix *off)
{
	return ix_add(pl, ix_mul(pl, ix_temp(pl, "own"), k->loop->wide), pl_in_row(pl, k, off));
}

const char *pl_cuda_stores(struct expr *e, struct kern *k, int level, const char *start, const char **terms,
	const char **decl, const char *cond)
{
	struct pl *pl = e->pl;
	const char *after = "", *sub = k->kind == K_POINT && k->loop->behind ? "[u]" : "";

	*decl = "";
	for (int o = 0; o < k->n_out; o++) {
		struct val *v = k->out[o];
		struct buf *b = v->root;
		const struct ix *off = pl_offset(pl, b, k->out_idx[o]), *coef, *rest;
		struct etext t;

		if (k->kind == K_ROW && pl_stored_per_column(k, o) != (level == 2))
			continue;
		e->self = v;
		t = pl_expr(e, v, k->out_idx[o]);
		pl_kern_arg(pl, k, b);
		if (e->cuda_vec && !e->down && (b->dt == WW_F32 || b->dt == WW_F16 || b->dt == WW_BF16 || b->dt == WW_BOOL) &&
			pl_has_lane(e, off) && ix_affine(pl, off, e->lane, &coef, &rest) && ix_is(coef, 1) &&
			!ix_has(rest, e->lane)) {
			*decl = pl_fmt(pl, *sub ? "%sfloat o%d[%s_U][V];\n" : "%sfloat o%d[V];\n", *decl, o, k->name);
			ww_str_addf(e->block[level], "o%d%s[l] = (float)%s;\n", o, sub, t.t);
			*terms = pl_cuda_row_terms(pl, k, *terms, off);
			after = k->loop->stored ? pl_fmt(pl, "%s%sww::store(stored + %s, o%d);\n", after, cond,
										  at_start(pl, in_stored(pl, k, off), e->lane, start), o)
									: pl_fmt(pl, "%s%sww::store%s(%s + %s, o%d%s);\n", after, cond,
										  k->loop->ring   ? "_whole"
											  : leaves(b) ? "_stream"
														  : "",
										  b->name, at_start(pl, off, e->lane, start), o, sub);
		} else if (k->loop->turned) {
			ww_str_addf(e->block[level], "turned[%s * (R + 1) + threadIdx.x / T] = (float)%s;\n",
				pl_fmt(pl, "(%s)", pl_linear_column(pl, k)), t.t);
			k->loop->turned = pl_fmt(pl, "%s[%s] = %s;\n", b->name, ix_text(pl, off),
				pl_to_store(pl, "turned[c * (R + 1) + threadIdx.x % R]", v->dt, b->dt));
		} else {
			ww_str_addf(e->block[level], "%s%s[%s] = %s;\n", cond, k->loop->stored ? "stored" : b->name,
				ix_text(pl, k->loop->stored ? in_stored(pl, k, off) : off), pl_to_store(pl, t.t, v->dt, b->dt));
		}
	}
	return after;
}
