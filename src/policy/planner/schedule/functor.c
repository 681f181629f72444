/* functor.c - the statements that an anchor's template calls: what is fused behind it, and in front of it.
 *
 * cpu: a functor gets vectors; an expression without a vector form runs lane by lane inside it.  cuda: it gets N
 * neighbouring elements; loads and stores of all N at once are used where the strides at hand allow it, which the plan
 * guards. */
#include "policy/planner/print/print.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

const struct ix *pl_sizes(struct pl *pl, const struct val *v, int from, int to)
{
	const struct ix *n = ix_const(pl, 1);

	for (int d = from; d < to; d++)
		n = ix_mul(pl, n, v->size[d]);
	return n;
}

int pl_widest(const struct ix *n, int most)
{
	while (most > 1 && ix_num(n) % most)
		most /= 2;
	return most;
}

const struct ix_atom *pl_lane_of(struct pl *pl, struct kern *k, int d)
{
	const struct ix_atom *a = ix_as_var(k->anchor_idx[d]);

	return a ? a : ix_as_var(ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), ix_const(pl, 1)));
}

const struct ix_atom *pl_join(struct pl *pl, struct kern *k, int from, int to, const struct ix **idx)
{
	const struct val *out = k->anchor->out;
	const struct ix_atom *v[PL_MAX_RANK];
	const struct ix *e[PL_MAX_RANK], *under = ix_const(pl, 1), *m;
	int n = 0;

	m = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), pl_sizes(pl, out, from, to));
	for (int d = to - 1; d >= from; d--) {
		const struct ix_atom *a = ix_as_var(k->anchor_idx[d]);

		if (a) {
			v[n] = a;
			e[n++] = ix_mod(pl, ix_div(pl, m, under), out->size[d]);
		}
		under = ix_mul(pl, under, out->size[d]);
	}
	for (int d = 0; d < k->out[0]->rank; d++)
		k->out_idx[0][d] = ix_subst(pl, k->out_idx[0][d], v, e, n);
	for (int d = 0; idx && d < out->rank; d++)
		idx[d] = ix_subst(pl, idx[d], v, e, n);
	return ix_as_var(m);
}

int pl_is_bare(const struct kern *k)
{
	const struct val *out = k->anchor->out;

	return k->out[0] == out && out->root->contiguous && out->root->dt == out->dt;
}

/* An expression of the functor: of operand 0 at idx, or of the outputs (idx NULL), given the anchor's result. */
static void open_expr(struct pl *pl, struct kern *k, struct expr *e, struct ww_str *b, struct etext result, int load)
{
	ww_str_reset(b);
	pl_expr_init(e, pl, k);
	e->lane = k->loop->lane;
	e->block[1] = e->block[2] = b;
	if (load)
		return;
	e->bound[0] = k->anchor->out;
	e->bound_text[0] = result;
	e->n_bound = 1;
}

/* ---- cpu --------------------------------------------------------------------------------------------------------- */

static const char *cpu_body(struct pl *pl, struct kern *k, int which, const struct ix *const *idx)
{
	const char *lane = k->loop->lane->name, *r;
	struct ww_str b = pl_text(pl);
	struct etext t = { NULL, 0, 2 };
	struct expr e;

	for (int vec = 1; vec >= 0; vec--) {
		open_expr(pl, k, &e, &b, (struct etext){ vec ? "acc" : "one", vec, 2 }, idx != NULL);
		e.vec = vec;
		if (idx)
			t = pl_expr(&e, k->anchor->in[which].val, idx);
		else
			pl_cpu_stores(&e, k, 2);
		if (!e.need_scalar)
			break;
	}
	r = pl_fmt(pl, "const ix_t %s = %s_0%s;\n%s", lane, lane, e.vec ? "" : " + l", b.p);
	if (e.vec)
		return idx ? pl_fmt(pl, "%sreturn %s;\n", r, t.vec ? t.t : pl_fmt(pl, "ww_vf_set((float)%s)", t.t)) : r;
	if (idx)
		return pl_fmt(pl,
			"ww_vf all = ww_vf_zero();\nfor (int l = 0; l < n; l++) {\n%sall[l] = (float)%s;\n}\nreturn all;\n", r,
			t.t);
	return pl_fmt(pl, "for (int l = 0; l < n; l++) {\nconst float one = acc[l];\n%s}\n", r);
}

const char *pl_place_body(struct pl *pl, struct kern *k, int which, const struct ix *const *idx, int one)
{
	const char *lane = k->loop->lane->name;
	struct ww_str b = pl_text(pl);
	struct etext t = { NULL, 0, 2 };
	struct expr e;

	for (int vec = !one; vec >= 0; vec--) {
		open_expr(pl, k, &e, &b, t, 1);
		e.vec = vec;
		t = pl_places(&e, k->anchor->in[which].val, idx, ix_num(k->loop->len));
		if (!e.need_scalar)
			break;
	}
	if (one)
		return pl_fmt(pl, "%sreturn (int32_t)%s;\n", b.p, t.t);
	if (e.vec)
		return pl_fmt(pl, "const ix_t %s = %s_0;\n%sreturn %s;\n", lane, lane, b.p,
			t.vec ? t.t : pl_fmt(pl, "ww_vi_set((int32_t)%s)", t.t));
	return pl_fmt(pl,
		"ww_vi all = ww_vi_set(0);\nfor (int l = 0; l < n; l++) {\nconst ix_t %s = %s_0 + l;\n%sall[l] = (int32_t)%s;\n}\n"
		"return all;\n",
		lane, lane, b.p, t.t);
}

/* ---- cuda -------------------------------------------------------------------------------------------------------- */

/* An end that needs operand 0 at the result's index need not compute it anew, where the template has it. */
static void know_own(const struct kern *k, struct expr *e)
{
	const struct val *x = k->anchor->in[0].val;

	if (k->loop->own && pl_computed_as_float(x->dt) && x->kind != V_CONST)
		pl_expr_known(e, x, k->loop->own, (struct etext){ "own[l]", 0, 2 });
}

/* The type of what fetch() or ask() load long before it is used, and what stands behind its name: 16 bits as they lie
 * in memory, of others the elements. */
static const char *held(struct pl *pl, const struct vload *v, const char **dims)
{
	*dims = v->one ? "[1]" : "[N]";
	if (v->apart || !pl_is_half(v->buf->dt))
		return pl_cuda_loaded(v);
	*dims = "";
	return pl_fmt(
		pl, "ww::as_%s<%s, %s>", v->step ? "elements" : "stored", pl_ctype(v->buf->dt, pl->target), v->one ? "1" : "N");
}

/* The members of a struct `given` that hold what is loaded ahead, and names for them where it is used. */
static void give(struct pl *pl, const struct expr *e, const char **members, const char **refs)
{
	*members = *refs = "";
	for (int i = 0; i < e->n_vload; i++) {
		const char *dims, *type = held(pl, &e->vload[i], &dims), *name = e->vload[i].name;

		*members = pl_fmt(pl, "%s%s %s%s;\n", *members, type, name, dims);
		*refs = pl_fmt(
			pl, *dims ? "%s%s (&%s)%s = given.%s;\n" : "%s%s &%s%s = given.%s;\n", *refs, type, name, dims, name);
	}
}

static const char *cuda_body(struct pl *pl, struct kern *k, int which, const char *start, const struct ix *const *idx)
{
	struct ww_str b = pl_text(pl);
	const char *terms, *arrays, *loads, *members, *decl = "", *after = "";
	const struct ix_atom *lane = k->loop->lane;
	int n = k->loop->width;
	struct etext t;
	struct expr e;

	for (int vec = 1;; vec = 0) {
		int ok = 1;

		open_expr(pl, k, &e, &b, (struct etext){ "acc[l]", 0, 2 }, idx != NULL);
		e.cuda_vec = vec;
		e.vload_index = "[l]";
		e.across = !idx;
		terms = "";
		if (!idx)
			know_own(k, &e);
		if (idx)
			t = pl_expr(&e, k->anchor->in[which].val, idx);
		else
			after = pl_cuda_stores(&e, k, 2, start, &terms, &decl, "");
		for (int i = 0; i < e.n_vload; i++) {
			if (e.vload[i].one || e.vload[i].step)
				continue;
			ok &= pl_divides(e.vload[i].base, lane, n) && pl_cond_divides(pl, e.vload[i].cond, lane, n);
			terms = pl_cuda_terms(pl, terms, e.vload[i].base, lane);
			terms = pl_cuda_cond_terms(pl, terms, e.vload[i].cond, lane);
		}
		if (*decl)
			ok &= pl_divides(pl_offset(pl, k->out[0]->root, k->out_idx[0]), lane, n);
		if (ok || !vec) {
			k->loop->singly |= !vec;
			break;
		}
	}
	pl_guard_terms(pl, terms, n);
	arrays = pl_cuda_arrays(pl, e.vload, e.n_vload, "[N]");
	loads = pl_cuda_loads(pl, lane, e.vload, e.n_vload, start, "");
	for (int i = 0; idx && !which && i < e.n_vload; i++)
		k->loop->guarded |= e.vload[i].cond != NULL;
	if (idx && which) {
		give(pl, &e, &k->loop->given, &k->loop->given_refs);
		k->loop->ask = loads;
		arrays = loads = "";
	}
	if (idx)
		return pl_fmt(pl,
			"%s%s#pragma unroll\nfor (int l = 0; l < N; l++) {\n\tconst ix_t %s = (ix_t)%s + l;\n"
			"%s\tv[l] = (float)%s;\n}\n",
			arrays, loads, lane->name, start, pl_indent(pl, b.p, 1), t.t);
	give(pl, &e, &members, &k->loop->refs);
	if (strstr(b.p, "own[l]")) {
		k->loop->keeps = 1;
		members = pl_fmt(pl, "float own[N];\n%s", members);
	}
	k->loop->ahead = *members ? members : NULL;
	k->loop->fetch = loads;
	return pl_fmt(pl,
		"enum { V = N };\n%s#pragma unroll\nfor (int l = 0; l < N; l++) {\n\tconst ix_t %s = %s + l;\n%s}\n"
		"%s(void)V;\n",
		decl, lane->name, start, pl_indent(pl, b.p, 1), after);
}

int pl_store_width(struct pl *pl, struct kern *k, const char *start, int most)
{
	const struct ix_atom *lane = k->loop->lane;

	for (int n = pl_widest(lane->b, most); n > 1; n /= 2) {
		struct ww_str b = pl_text(pl);
		const char *terms = "", *decl = "";
		int ok = 1;
		struct expr e;

		open_expr(pl, k, &e, &b, (struct etext){ "acc[l]", 0, 2 }, 0);
		e.cuda_vec = e.across = 1;
		e.vload_index = "[l]";
		pl_cuda_stores(&e, k, 2, start, &terms, &decl, "");
		for (int i = 0; i < e.n_vload; i++)
			ok &= e.vload[i].one || e.vload[i].step ||
				(pl_divides(e.vload[i].base, lane, n) && pl_cond_divides(pl, e.vload[i].cond, lane, n));
		if (*decl)
			ok &= pl_divides(pl_offset(pl, k->out[0]->root, k->out_idx[0]), lane, n);
		if (ok)
			return n;
	}
	return 1;
}

const char *pl_store_body(struct pl *pl, struct kern *k, const char *start)
{
	return pl->target == WW_TARGET_CPU ? cpu_body(pl, k, 0, NULL) : cuda_body(pl, k, 0, start, NULL);
}

const char *pl_load_body(struct pl *pl, struct kern *k, const char *start, const struct ix *const *idx)
{
	return pl_load_body_of(pl, k, 0, start, idx);
}

const char *pl_load_body_of(struct pl *pl, struct kern *k, int which, const char *start, const struct ix *const *idx)
{
	return pl->target == WW_TARGET_CPU ? cpu_body(pl, k, which, idx) : cuda_body(pl, k, which, start, idx);
}
