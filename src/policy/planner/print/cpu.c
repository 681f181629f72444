/* cpu.c - kernels.c and the launches of plan.c for pointwise and row kernels.
 *
 * Shape of a pointwise kernel: the last axis is the vector's; it is cut into chunks, and a block does several chunks.
 * Shape of a row kernel, vectors along the columns: softmaxes and norms go to the cookbook's skeletons
 * (skeleton.c).  For anything else there is, for each row, one loop over the columns per stage of reductions, then
 * one that writes; what a later stage needs again is read again, from L1 or L2, or kept in the thread's scratch where
 * it is expensive (keep.c).  Where memory runs along the rows instead (softmax over channels), the vectors do
 * too: each lane is a row, and the loops over the columns are scalar.  Where an expression has no vector form, the same
 * loops are written with scalars.
 *
 * Loop bodies appear twice, for whole vectors with a constant n and for the rest: that is what lets the compiler drop
 * the masks from the main loop. */
#include "policy/planner/print/cpu.h"

#include <string.h>

const char *pl_indent(struct pl *pl, const char *text, int tabs)
{
	struct ww_str s = pl_text(pl);
	const char *r;

	for (const char *c = text; *c;) {
		const char *end = strchr(c, '\n');
		size_t n = end ? (size_t)(end - c) : strlen(c);

		for (int i = 0; i < tabs; i++)
			ww_str_addc(&s, '\t');
		ww_str_add(&s, c, n);
		ww_str_addc(&s, '\n');
		c += n + (end != NULL);
	}
	r = pl_fmt(pl, "%s", s.p);
	ww_str_release(&s);
	return r;
}

/* The variables of `axis` from the linear number `lin`. */
void pl_decode(struct pl *pl, struct ww_str *s, const char *tabs, const char *type, const struct ix_atom *const *axis,
	int n, const char *lin)
{
	const struct ix *under = ix_const(pl, 1);
	const char *text[PL_MAX_RANK];

	for (int i = n - 1; i >= 0; i--) {
		const char *q = ix_is(under, 1) ? lin : pl_fmt(pl, "%s / %s", lin, ix_text(pl, under));

		text[i] = i == 0 ? q : pl_fmt(pl, "%s %% %s", q, ix_text(pl, axis[i]->b));
		under = ix_mul(pl, under, axis[i]->b);
	}
	for (int i = 0; i < n; i++)
		ww_str_addf(s, "%sconst %s %s = %s;\n", tabs, type, axis[i]->name, text[i]);
}

const struct ix *pl_extent(struct pl *pl, const struct ix_atom *const *axis, int n)
{
	const struct ix *x = ix_const(pl, 1);

	for (int i = 0; i < n; i++)
		x = ix_mul(pl, x, axis[i]->b);
	return x;
}

/* Write the outputs at their index. */
void pl_cpu_stores(struct expr *e, struct kern *k, int level)
{
	struct pl *pl = e->pl;

	for (int o = 0; o < k->n_out; o++) {
		struct val *v = k->out[o];
		struct buf *b = v->root;
		struct etext t;
		const struct ix *off = pl_offset(pl, b, k->out_idx[o]), *coef, *rest;
		const char *at;

		e->self = v;
		t = pl_expr(e, v, k->out_idx[o]);
		pl_kern_arg(pl, k, b);
		at = pl_fmt(pl, "%s + %s", b->name, ix_text(pl, off));
		if (!e->vec || !pl_has_lane(e, off)) {
			if (t.vec)
				e->need_scalar = 1;
			ww_str_addf(
				e->block[level], "%s[%s] = %s;\n", b->name, ix_text(pl, off), pl_to_store(e, t.t, v->dt, b->dt));
			continue;
		}
		if (!t.vec)
			t.t = v->dt == WW_BOOL ? pl_fmt(pl, "(%s ? ww_vm_first(WW_VL) : ww_vm_first(0))", t.t)
								   : pl_fmt(pl, "ww_vf_set((float)%s)", t.t);
		if (!ix_affine(pl, off, e->lane, &coef, &rest) || ix_varies(coef) ||
			!(pl_is_float(v->dt) || v->dt == WW_BOOL) || b->dt == WW_F64)
			e->need_scalar = 1;
		else if (!ix_is(coef, 1))
			b->dt == WW_F32
				? ww_str_addf(e->block[level], "ww_vf_scatter(%s, %s, %s, n);\n", at, ix_text(pl, coef), t.t)
				: (void)(e->need_scalar = 1);
		else if (b->dt == WW_BOOL)
			ww_str_addf(e->block[level], "ww_vf_store_u8(%s, ww_vf_of_vm(%s), n);\n", at, t.t);
		else if (b->dt == WW_F32)
			ww_str_addf(
				e->block[level], "%s(%s, %s, n);\n", b->kind == B_OUTPUT ? "ww_vf_stream" : "ww_vf_store", at, t.t);
		else
			ww_str_addf(e->block[level], "ww_vf_store_%s(%s, %s, n);\n", b->dt == WW_F16 ? "f16" : "bf16", at, t.t);
	}
}

/* ---- Pointwise --------------------------------------------------------------------------------------------------- */

static void launch_tiles(struct pl *pl, struct kern *k, const struct ix *rows, const struct ix *cols, int per_default)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	int tile = kn->cpu_point.tile ? kn->cpu_point.tile : per_default;

	k->launch = pl_fmt(pl,
		"\t{\n\t\tconst long long rows = %s, cols = %s, chunk = ww_min(cols, %d), items = rows * ww_cdiv(cols, chunk);\n"
		"\t\tconst long long per = ww_max(1, ww_min(%d / chunk, ww_cdiv(items, 4 * ww_device(p)->threads)));\n\n"
		"\t\tww_launch(p, \"%s\", ww_cdiv(items, per), 1, 1, 1, 1, 1);\n%s\t\tww_arg_i64(p, chunk);\n\t\tww_arg_i64(p, per);\n\t}\n",
		ix_text(pl, rows), ix_text(pl, cols), tile, tile, k->name, pl_plan_args(pl, k, "\t\t"));
}

static int point_body(struct pl *pl, struct kern *k, int vec, struct ww_str *b1, struct ww_str *b2)
{
	struct expr e;

	pl_expr_init(&e, pl, k);
	e.vec = vec;
	e.lane = k->n_col ? k->col[0] : NULL;
	e.block[1] = b1;
	e.block[2] = b2;
	pl_cpu_stores(&e, k, 2);
	return !e.need_scalar;
}

static void point_kernel(struct pl *pl, struct kern *k, struct ww_str *s)
{
	struct ww_str b1 = pl_text(pl), b2 = pl_text(pl);
	const struct ix *rows, *cols;
	const char *lane, *text1, *text2;
	int vec = 1;

	if (!k->n_row) {
		k->row[k->n_row++] = ix_as_var(ix_var(pl, "one", ix_const(pl, 1)));
	}
	k->col[k->n_col++] = k->row[--k->n_row];
	if (!point_body(pl, k, 1, &b1, &b2)) {
		ww_str_reset(&b1);
		ww_str_reset(&b2);
		vec = 0;
		point_body(pl, k, 0, &b1, &b2);
	}
	text1 = pl_indent(pl, b1.p, 2);
	text2 = pl_indent(pl, b2.p, 3);
	ww_str_release(&b1);
	ww_str_release(&b2);
	rows = pl_extent(pl, k->row, k->n_row);
	cols = k->col[0]->b;
	lane = k->col[0]->name;
	ww_str_addf(s, "/* %s */\nWW_KERNEL(%s)\n{\n", k->title, k->name);
	pl_cpu_pointers(pl, k, s, "arg");
	ww_str_addf(s,
		"\tconst ix_t cols = %s, chunk = WW_ARG(long long, %d), per = WW_ARG(long long, %d), chunks = WW_CDIV(cols, chunk);\n"
		"\tconst ix_t end = ww_min_ll(%s * chunks, (b->x + 1) * per);\n\n"
		"\tfor (ix_t item = b->x * per; item < end; item++) {\n"
		"\t\tconst ix_t row = item / chunks, c0 = item %% chunks * chunk, c1 = ww_min_ll(cols, c0 + chunk);\n",
		ix_text(pl, cols), k->n_arg, k->n_arg + 1, ix_text(pl, rows));
	pl_decode(pl, s, "\t\t", "ix_t", k->row, k->n_row, "row");
	ww_str_adds(s, text1);
	if (vec)
		ww_str_addf(s,
			"\t\tix_t %s = c0;\n\n\t\t(void)row;\n\t\tWW_UNROLL(%d)\n\t\tfor (; %s + WW_VL <= c1; %s += WW_VL) {\n\t\t\tenum { n = WW_VL };\n%s\t\t}\n"
			"\t\tif (%s < c1) {\n\t\t\tconst int n = (int)(c1 - %s);\n%s\t\t}\n\t}\n}\n\n",
			lane, pl_knobs(pl, k->id)->cpu_point.unroll ? pl_knobs(pl, k->id)->cpu_point.unroll : 4, lane, lane, text2,
			lane, lane, text2);
	else
		ww_str_addf(s, "\n\t\t(void)row;\n\t\tfor (ix_t %s = c0; %s < c1; %s++) {\n%s\t\t}\n\t}\n}\n\n", lane, lane,
			lane, text2);
	launch_tiles(pl, k, rows, cols, 16384);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

struct rowgen {
	struct pl *pl;
	struct kern *k;
	struct expr e;
	struct ww_str out; /* body of one row */
	struct ww_str b1, b2;
	int vec, lane_row, unroll;
	struct pl_cached kept[5];
	int n_cached;
};

static void flush_row_level(struct rowgen *g)
{
	ww_str_adds(&g->out, g->b1.p);
	ww_str_reset(&g->b1);
}

/* Loops over all columns but the last. */
static int open_cols(struct rowgen *g, int all)
{
	int n = g->k->n_col - (all ? 0 : 1);

	for (int c = 0; c < n; c++)
		ww_str_addf(&g->out, "for (ix_t %s = 0; %s < %s; %s++) {\n", g->k->col[c]->name, g->k->col[c]->name,
			ix_text(g->pl, g->k->col[c]->b), g->k->col[c]->name);
	return n;
}

static void close_cols(struct rowgen *g, int n)
{
	while (n--)
		ww_str_adds(&g->out, "}\n");
}

static const char *col_linear(struct pl *pl, struct kern *k)
{
	const struct ix *lin = ix_const(pl, 0);

	for (int c = 0; c < k->n_col; c++)
		lin = ix_add(pl, ix_mul(pl, lin, k->col[c]->b), pl_of_var(pl, k->col[c]));
	return ix_text(pl, lin);
}

static const char *vector_of(struct pl *pl, struct etext t)
{
	return t.vec ? t.t : pl_fmt(pl, "ww_vf_set((float)%s)", t.t);
}

/* How the accumulators of stage s start, step and end. */
static void acc_open(struct rowgen *g, int s)
{
	struct pl *pl = g->pl;

	for (int i = 0; i < g->k->n_red; i++) {
		struct val *r = g->k->red[i];
		int dt = r->arg[0]->dt;
		const char *id = pl_ident(pl, r->red, dt);

		if (g->k->red_stage[i] != s)
			continue;
		if (g->vec && !g->lane_row)
			ww_str_addf(&g->out, "ww_vf a%d[%d];\nfor (int u = 0; u < %d; u++)\n\ta%d[u] = ww_vf_set(%s);\n", i,
				g->unroll, g->unroll, i, id);
		else if (g->vec)
			ww_str_addf(&g->out, "ww_vf a%d = ww_vf_set(%s);\n", i, id);
		else
			ww_str_addf(&g->out, "%s a%d = %s;\n%s", r->red == RED_SUM && dt == WW_F32 ? "double" : pl_acc_type(dt), i,
				id, r->red >= RED_ARGMAX ? pl_fmt(pl, "long long w%d = 0;\n", i) : "");
	}
}

/* Statements that add the current column; `at` is the accumulator's subscript. */
static void acc_step(struct rowgen *g, int s, const char *at, int fill)
{
	struct pl *pl = g->pl;

	for (int i = 0; i < g->k->n_red; i++) {
		struct val *r = g->k->red[i];
		const struct ix *idx[PL_MAX_RANK];
		struct etext t;
		const char *x, *a = pl_fmt(pl, "a%d%s", i, at);

		if (g->k->red_stage[i] != s)
			continue;
		for (int d = 0; d < r->rank; d++)
			idx[d] = g->k->red_idx[i][d];
		for (int c = 0; c < g->k->n_ocol; c++)
			idx[r->rank + c] = g->k->ocol[c];
		g->e.self = r->root ? r : NULL;
		t = pl_expr(&g->e, r->arg[0], idx);
		if (g->vec && (r->red >= RED_ARGMAX || !pl_is_float(r->arg[0]->dt) || r->arg[0]->dt == WW_F64))
			g->e.need_scalar = 1;
		if (r->red >= RED_ARGMAX) {
			ww_str_addf(&g->b2, "if (%s %s %s || (%s != %s && %s == %s)) {\n\t%s = %s;\n\tw%d = %s;\n}\n", t.t,
				r->red == RED_ARGMAX ? ">" : "<", a, t.t, t.t, a, a, a, t.t, i, col_linear(pl, g->k));
			continue;
		}
		x = g->vec ? vector_of(pl, t) : t.t;
		if (fill)
			x = pl_fmt(pl, "ww_vf_fill(%s, n, %s)", x, pl_ident(pl, r->red, r->arg[0]->dt));
		ww_str_addf(&g->b2, "%s = %s;\n", a, pl_combine(pl, r->red, r->arg[0]->dt, a, x, g->vec));
	}
}

static void acc_close(struct rowgen *g, int s)
{
	static const char *const across[] = {
		[RED_SUM] = "ww_vf_sum", [RED_PROD] = "ww_vf_hprod", [RED_MAX] = "ww_vf_hmax", [RED_MIN] = "ww_vf_hmin"
	};
	struct pl *pl = g->pl;

	for (int i = 0; i < g->k->n_red; i++) {
		struct val *r = g->k->red[i];
		struct etext *t = &g->e.red_text[i];

		if (g->k->red_stage[i] != s)
			continue;
		t->level = 1;
		t->vec = g->vec && g->lane_row;
		t->t = pl_fmt(pl, r->red >= RED_ARGMAX ? "w%d" : g->vec && !g->lane_row ? "s%d" : "a%d", i);
		if (g->vec && !g->lane_row) {
			ww_str_addf(&g->out, "for (int u = 1; u < %d; u++)\n\ta%d[0] = %s;\nconst float s%d = (float)%s(a%d[0]);\n",
				g->unroll, i,
				pl_combine(pl, r->red, r->arg[0]->dt, pl_fmt(pl, "a%d[0]", i), pl_fmt(pl, "a%d[u]", i), 1), i,
				across[r->red], i);
		} else if (!g->vec && r->red == RED_SUM && r->arg[0]->dt == WW_F32) {
			ww_str_addf(&g->out, "const float s%d = (float)a%d;\n", i, i);
			t->t = pl_fmt(pl, "s%d", i);
		}
		g->e.red_done[i] = 1;
	}
}

/* What earlier passes left in the scratch, before the statements of pass s; what pass s leaves, behind them. */
static void cached_loads(struct rowgen *g, int s)
{
	for (int i = 0; i < g->n_cached; i++) {
		if (g->kept[i].stage >= s)
			continue;
		ww_str_addf(&g->b2, "const ww_vf kept%d_v = ww_vf_load(kept%d + %s, n);\n", i, i, col_linear(g->pl, g->k));
		pl_expr_known(&g->e, g->kept[i].val, g->kept[i].idx, (struct etext){ pl_fmt(g->pl, "kept%d_v", i), 1, 2 });
	}
}

static void cached_stores(struct rowgen *g, int s)
{
	for (int i = 0; i < g->n_cached; i++)
		if (g->kept[i].stage == s)
			ww_str_addf(&g->b2, "ww_vf_store(kept%d + %s, %s, n);\n", i, col_linear(g->pl, g->k),
				vector_of(g->pl, pl_expr(&g->e, g->kept[i].val, g->kept[i].idx)));
}

/* One pass over the columns: the body from `step`, around it the loops. */
static void pass(struct rowgen *g, int s, int store)
{
	struct pl *pl = g->pl;
	struct kern *k = g->k;
	const char *lane = k->n_col ? k->col[k->n_col - 1]->name : NULL;
	int n = 0;

	for (int tail = 0; tail < 2; tail++) {
		pl_expr_forget(&g->e, 2);
		ww_str_reset(&g->b2);
		cached_loads(g, s);
		if (store)
			pl_cpu_stores(&g->e, k, 2);
		else
			acc_step(g, s, g->vec && !g->lane_row ? (tail ? "[0]" : "[u]") : "", g->vec && !g->lane_row && tail);
		cached_stores(g, s);
		if (!tail)
			flush_row_level(g);
		else
			ww_str_reset(&g->b1);
		if (!g->vec || g->lane_row) {
			n = open_cols(g, 1);
			ww_str_adds(&g->out, g->b2.p);
			close_cols(g, n);
			break;
		}
		if (!tail) {
			n = open_cols(g, 0);
			ww_str_addf(&g->out,
				"ix_t c%d = 0;\nfor (; c%d + %d * WW_VL <= %s; c%d += %d * WW_VL)\n\tWW_UNROLL(%d)\n\tfor (int u = 0; u < %d; u++) {\n"
				"const ix_t %s = c%d + u * WW_VL;\nenum { n = WW_VL };\n%s}\n",
				s, s, g->unroll, ix_text(pl, k->col[k->n_col - 1]->b), s, g->unroll, g->unroll, g->unroll, lane, s,
				g->b2.p);
		} else {
			ww_str_addf(&g->out,
				"for (; c%d < %s; c%d += WW_VL) {\nconst ix_t %s = c%d;\nconst int n = (int)ww_min_ll(WW_VL, %s - c%d);\n%s}\n",
				s, ix_text(pl, k->col[k->n_col - 1]->b), s, lane, s, ix_text(pl, k->col[k->n_col - 1]->b), s, g->b2.p);
			close_cols(g, n);
		}
	}
}

/* The outputs of a row kernel that depend on the columns need a pass of their own. */
int pl_cpu_stores_per_column(struct kern *k)
{
	for (int o = 0; o < k->n_out; o++)
		for (int d = 0; d < k->out[o]->rank; d++)
			for (int c = 0; c < k->n_col; c++)
				if (ix_has(k->out_idx[o][d], k->col[c]))
					return 1;
	return 0;
}

static int row_body(struct rowgen *g)
{
	struct kern *k = g->k;

	pl_expr_init(&g->e, g->pl, k);
	ww_str_reset(&g->out);
	ww_str_reset(&g->b1);
	ww_str_reset(&g->b2);
	g->e.vec = g->vec;
	g->e.lane = !g->vec ? NULL : g->lane_row ? k->row[k->n_row - 1] : k->col[k->n_col - 1];
	g->e.block[1] = &g->b1;
	g->e.block[2] = &g->b2;
	for (int s = 0; s < k->n_stage; s++) {
		int any = 0;

		for (int i = 0; i < k->n_red; i++)
			any |= k->red_stage[i] == s;
		if (!any)
			continue;
		acc_open(g, s);
		g->e.stage = s;
		pass(g, s, 0);
		acc_close(g, s);
	}
	pl_expr_forget(&g->e, 2);
	for (int i = 0; i < k->n_out; i++)
		if (k->out[i]->kind == V_RED && g->e.red_done[k->n_red - 1] && k->red[k->n_red - 1] == k->out[i])
			continue;
	if (pl_cpu_stores_per_column(k)) {
		pass(g, k->n_stage, 1);
	} else {
		ww_str_reset(&g->b2);
		g->e.block[2] = &g->b1;
		pl_cpu_stores(&g->e, k, 1);
		flush_row_level(g);
	}
	return !g->e.need_scalar;
}

/* Do the bytes run along the columns or along the rows? */
static int choose_lane(struct pl *pl, struct kern *k)
{
	const struct ix *off[512];
	struct buf *buf[512];
	int n = pl_kern_loads(pl, k, off, buf, 512);
	double col = 0, row = 0;

	for (int i = 0; i < n; i++) {
		const struct ix *coef, *rest;
		double bytes = 1;

		for (int d = 0; d < buf[i]->rank; d++)
			bytes *= (double)ix_num(buf[i]->size[d]);
		if (k->n_col && ix_affine(pl, off[i], k->col[k->n_col - 1], &coef, &rest) && ix_is(coef, 1))
			col += bytes;
		if (k->n_row && ix_affine(pl, off[i], k->row[k->n_row - 1], &coef, &rest) && ix_is(coef, 1))
			row += bytes;
	}
	if (k->n_col && k->n_row && ix_num(k->col[k->n_col - 1]->b) < 16 && ix_num(k->row[k->n_row - 1]->b) >= 32 &&
		row >= col)
		return 1;
	return row > col;
}

static void row_kernel(struct pl *pl, struct kern *k, struct ww_str *s)
{
	struct rowgen g = { .pl = pl, .k = k, .out = pl_text(pl), .b1 = pl_text(pl), .b2 = pl_text(pl) };
	const struct knobs *kn = pl_knobs(pl, k->id);
	const struct ix *rows, *tiles = NULL;
	const char *body, *lane = NULL;
	int n_row;

	g.vec = 1;
	g.unroll = kn->cpu_rows.unroll ? kn->cpu_rows.unroll : 4;
	g.lane_row = k->n_row && choose_lane(pl, k);
	for (int i = 0; i < k->n_red; i++)
		if (k->red[i]->red >= RED_ARGMAX)
			g.vec = g.lane_row = 0; /* places have no vector form */
	if (g.vec && !g.lane_row && !kn->plain && !kn->cpu_rows.loops && pl_cpu_row_skeleton(pl, k, s))
		return;
	if (g.vec && !g.lane_row && !kn->plain && k->n_col)
		g.n_cached = pl_cpu_keep(pl, k, k->col[k->n_col - 1], g.kept, WW_ARRAY_LEN(g.kept) - 1);
	if (!row_body(&g)) {
		g.vec = 0;
		g.lane_row = 0;
		g.n_cached = 0;
		row_body(&g);
	}
	body = pl_fmt(pl, "%s", g.out.p);
	ww_str_release(&g.out);
	ww_str_release(&g.b1);
	ww_str_release(&g.b2);
	n_row = k->n_row - g.lane_row;
	rows = pl_extent(pl, k->row, n_row);
	ww_str_addf(s, "/* %s */\nWW_KERNEL(%s)\n{\n", k->title, k->name);
	pl_cpu_pointers(pl, k, s, "arg");
	ww_str_addf(s, "\tconst ix_t per = WW_ARG(long long, %d);\n", k->n_arg);
	for (int i = 0; i < g.n_cached; i++)
		ww_str_addf(s, "\tfloat *const kept%d = ww_row_buffer(b, %s, %d);\n", i,
			ix_text(pl, pl_extent(pl, k->col, k->n_col)), i);
	if (g.lane_row) {
		lane = k->row[k->n_row - 1]->name;
		tiles = k->row[k->n_row - 1]->b;
		ww_str_addf(s,
			"\tconst ix_t width = %s, chunks = WW_CDIV(width, 64), end = ww_min_ll(%s * chunks, (b->x + 1) * per);\n\n"
			"\tfor (ix_t item = b->x * per; item < end; item++) {\n"
			"\t\tconst ix_t row = item / chunks, c0 = item %% chunks * 64, c1 = ww_min_ll(width, c0 + 64);\n",
			ix_text(pl, tiles), ix_text(pl, rows));
		pl_decode(pl, s, "\t\t", "ix_t", k->row, n_row, "row");
		body = pl_indent(pl, body, 3);
		ww_str_addf(s,
			"\t\tix_t %s = c0;\n\n\t\t(void)row;\n\t\tfor (; %s + WW_VL <= c1; %s += WW_VL) {\n\t\t\tenum { n = WW_VL };\n%s\t\t}\n\t\tif (%s < c1) {\n"
			"\t\t\tconst int n = (int)(c1 - %s);\n%s\t\t}\n\t}\n}\n\n",
			lane, lane, lane, body, lane, lane, body);
		rows = ix_mul(pl, rows, ix_div(pl, ix_addc(pl, tiles, 63), ix_const(pl, 64)));
	} else {
		ww_str_addf(s,
			"\tconst ix_t end = ww_min_ll(%s, (b->x + 1) * per);\n\n\tfor (ix_t row = b->x * per; row < end; row++) {\n",
			ix_text(pl, rows));
		pl_decode(pl, s, "\t\t", "ix_t", k->row, n_row, "row");
		ww_str_addf(s, "\t\t(void)row;\n%s\t}\n}\n\n", pl_indent(pl, body, 2));
	}
	k->launch = pl_fmt(pl,
		"\t{\n\t\tconst long long items = %s, work = %s;\n"
		"\t\tconst long long per = ww_max(1, ww_min(%d / work, ww_cdiv(items, 4 * ww_device(p)->threads)));\n\n"
		"\t\tww_launch(p, \"%s\", ww_cdiv(items, per), 1, 1, 1, 1, 1);\n%s%s\t\tww_arg_i64(p, per);\n\t}\n",
		ix_text(pl, rows),
		ix_text(pl, g.lane_row ? ix_mulc(pl, pl_extent(pl, k->col, k->n_col), 64) : pl_extent(pl, k->col, k->n_col)),
		kn->cpu_rows.tile ? kn->cpu_rows.tile : 32768, k->name,
		g.n_cached ? pl_fmt(pl, "\t\tww_shared(p, %d * (ww_cdiv(work, 16) + 17) * 64);\n", g.n_cached) : "",
		pl_plan_args(pl, k, "\t\t"));
}

void pl_emit_cpu(struct pl *pl)
{
	struct ww_str body = pl_text(pl), one = pl_text(pl);
	const char *text;

	for (int i = 0; i < pl->n_kern; i++) {
		struct kern *k = pl->kern[i];

		k->loop = pl_alloc(pl, sizeof(*k->loop));
		if (k->anchor)
			pl_anchor_ops[k->anchor->kind]->build(pl, k);
		if (k->kind == K_POINT)
			point_kernel(pl, k, &one);
		else if (k->kind == K_ROW)
			row_kernel(pl, k, &one);
		else
			pl_anchor_ops[k->anchor->kind]->print[0](pl, k, &one);
		if (!pl_share_kernel(pl, k, one.p))
			ww_str_adds(&body, one.p);
		body.cut |= one.cut;
		ww_str_reset(&one);
	}
	text = pl_fmt(pl, "%s", body.p);
	if (body.cut)
		pl->dev_text.cut = 1;
	ww_str_release(&body);
	ww_str_release(&one);
	ww_str_adds(&pl->dev_text,
		"/* Written by the planner. */\n#include <ww/cpu.h>\n#include <math.h>\n\ntypedef long long ix_t;\n"
		"#define PL_FN WW_FN\n#define PL_INFF __builtin_inff()\n#define PL_INF __builtin_inf()\n#define PL_NANF __builtin_nanf(\"\")\n"
		"#define PL_NAN __builtin_nan(\"\")\n");
	for (int i = 0; i < pl->n_sym; i++)
		ww_str_addf(
			&pl->dev_text, "#define %s ((ix_t)%s_)\t/* %s */\n", pl->sym_name[i], pl->sym_name[i], pl->sym_def[i]);
	ww_str_addf(&pl->dev_text, "%s\n%s", pl_preamble(pl, text), text);
}
