/* cuda.c - kernels.cu and the launches of plan.c for pointwise and row kernels.
 *
 * Pointwise: a thread does U vectors of V neighbouring elements of the last axis; loads with step 1 are one access of
 * up to 16 bytes.  V is chosen by plan.c, which checks that every such access is aligned (all other strides multiples
 * of V).
 *
 * Rows, memory along the columns: T threads a row (a part of a warp, or a block); each holds its vectors of every input
 * that a reduction reads in registers, so that the later stages and the final pass do not read again.  Rows too long
 * for that are read once a stage, from L2 after the first time.
 *
 * Rows, memory along the rows: a thread is a row, TX neighbouring rows a warp; TY warps share the columns of their
 * rows.
 *
 * Everything else about an expression is expr.c's; only loads and stores know about vectors, the arithmetic is a loop
 * over the V lanes that the compiler unrolls. */
#include "policy/planner/print/cuda.h"

#include <string.h>

static const char *cat(struct pl *pl, const char *a, const char *b) { return pl_fmt(pl, "%s%s", a, b); }

/* What an access of V elements at `off` demands: the factors of all other terms, as text of plan.c joined by |. */
const char *pl_cuda_terms(struct pl *pl, const char *terms, const struct ix *off, const struct ix_atom *lane)
{
	for (int i = 0; i < off->n; i++) {
		const struct ix_mono *m = &off->m[i];
		const char *t = pl_fmt(pl, "%lld", (long long)(m->c < 0 ? -m->c : m->c));
		int is_lane = 0;

		for (int a = 0; a < m->n; a++) {
			is_lane |= m->atom[a] == lane;
			if (m->atom[a]->kind == IX_SYM)
				t = pl_fmt(pl, "%s * %s", t, m->atom[a]->name);
		}
		if (!is_lane && strcmp(t, "0"))
			terms = pl_fmt(pl, "%s | %s", terms, t);
	}
	return terms;
}

static const struct ix *at_start(struct pl *pl, const struct ix *off, const struct ix_atom *lane, const char *start)
{
	const struct ix *e = ix_temp(pl, start);

	return ix_subst(pl, off, &lane, &e, 1);
}

/* The vector loads of one stage (or of all, stage < 0). */
void pl_cuda_loads(struct expr *e, struct ww_str *s, int stage, const char *start, const char *sub)
{
	for (int i = 0; i < e->n_vload; i++)
		if (stage < 0 || e->vload[i].stage == stage)
			ww_str_addf(s, "ww::load(%s + %s, %s%s);\n", e->vload[i].buf->name,
				ix_text(e->pl, at_start(e->pl, e->vload[i].base, e->lane, start)), e->vload[i].name, sub);
}

/* Stores: vectors are gathered in o0[V], ... and written by `after`. */
const char *pl_cuda_stores(struct expr *e, struct kern *k, int level, const char *start, const char **terms,
	const char **decl, const char *cond)
{
	struct pl *pl = e->pl;
	const char *after = "";

	*decl = "";
	for (int o = 0; o < k->n_out; o++) {
		struct val *v = k->out[o];
		struct buf *b = v->root;
		const struct ix *off = pl_offset(pl, b, k->out_idx[o]), *coef, *rest;
		struct etext t;

		e->self = v;
		t = pl_expr(e, v, k->out_idx[o]);
		pl_kern_arg(pl, k, b);
		if (e->cuda_vec && (b->dt == WW_F32 || b->dt == WW_F16 || b->dt == WW_BF16 || b->dt == WW_BOOL) &&
			pl_has_lane(e, off) && ix_affine(pl, off, e->lane, &coef, &rest) && ix_is(coef, 1) &&
			!ix_has(rest, e->lane)) {
			*decl = pl_fmt(pl, "%sfloat o%d[V];\n", *decl, o);
			ww_str_addf(e->block[level], "o%d[l] = (float)%s;\n", o, t.t);
			*terms = pl_cuda_terms(pl, *terms, off, e->lane);
			after = pl_fmt(pl, "%s%sww::store%s(%s + %s, o%d);\n", after, cond, b->kind == B_OUTPUT ? "_stream" : "",
				b->name, ix_text(pl, at_start(pl, off, e->lane, start)), o);
		} else {
			ww_str_addf(e->block[level], "%s%s[%s] = %s;\n", cond, b->name, ix_text(pl, off),
				pl_to_store(e, t.t, v->dt, b->dt));
		}
	}
	return after;
}

static int widest(struct pl *pl, struct kern *k)
{
	int size = 2;

	(void)pl;
	for (int i = 0; i < k->n_arg; i++)
		size = pl_itemsize(k->arg[i]->dt) > size && k->arg[i]->dt != WW_I64 ? pl_itemsize(k->arg[i]->dt) : size;
	return size >= 4 ? 4 : 8;
}

/* Text of plan.c that picks V: the widest of full, full / 2, ... 1 that divides everything. */
static const char *pick_v(struct pl *pl, const char *terms, int full, const char *extent, int given)
{
	(void)pl;
	return pl_fmt(pl,
		"\t\tconst long long terms = %s%s;\n\t\tint v = %d;\n\n\t\twhile (v > 1 && terms %% v)\n\t\t\tv /= 2;\n",
		extent, terms, given ? given : full);
}

/* ---- Pointwise --------------------------------------------------------------------------------------------------- */

static void point_kernel(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	struct ww_str b1 = pl_text(pl), b2 = pl_text(pl), loads = pl_text(pl);
	const char *terms = "", *decl, *after, *lane, *l1, *l2, *ld, *vars = "";
	int unroll = kn->point.unroll ? kn->point.unroll : 1, threads = kn->point.threads ? kn->point.threads : 256;
	struct expr e;
	const struct ix *rows;

	if (!k->n_row)
		k->row[k->n_row++] = ix_as_var(ix_var(pl, "one", ix_const(pl, 1)));
	k->col[k->n_col++] = k->row[--k->n_row];
	lane = k->col[0]->name;
	pl_expr_init(&e, pl, k);
	e.cuda_vec = !kn->plain;
	e.vload_index = "[l]";
	e.lane = k->col[0];
	e.block[1] = &b1;
	e.block[2] = &b2;
	after = pl_cuda_stores(&e, k, 2, "c", &terms, &decl, "");
	pl_cuda_loads(&e, &loads, -1, "c", "");
	for (int i = 0; i < e.n_vload; i++) {
		terms = pl_cuda_terms(pl, terms, e.vload[i].base, e.lane);
		vars = pl_fmt(pl, "%sfloat %s[V];\n", vars, e.vload[i].name);
	}
	l1 = pl_fmt(pl, "%s", b1.p);
	l2 = pl_fmt(pl, "%s", b2.p);
	ld = pl_fmt(pl, "%s", loads.p);
	ww_str_release(&b1);
	ww_str_release(&b2);
	ww_str_release(&loads);
	rows = pl_extent(pl, k->row, k->n_row);
	ww_str_addf(s,
		"/* %s */\nextern \"C\" __global__ void __launch_bounds__(%s_BLOCK) %s(%s)\n{\n\tenum { V = %s_V };\n"
		"\tconst ix_t cols = %s / V, total = (ix_t)%s * cols;\n\n\t#pragma unroll\n\tfor (int u = 0; u < %s_U; u++) {\n"
		"\t\tconst ix_t t = ((ix_t)blockIdx.x * %s_U + u) * %s_BLOCK + threadIdx.x;\n\n\t\tif (t >= total)\n\t\t\tbreak;\n"
		"\t\tconst ix_t row = t / cols, c = t %% cols * V;\n",
		k->title, k->name, k->name, pl_cuda_params(pl, k), k->name, ix_text(pl, k->col[0]->b), ix_text(pl, rows),
		k->name, k->name, k->name);
	pl_decode(pl, s, "\t\t", "ix_t", k->row, k->n_row, "row");
	ww_str_addf(s,
		"%s%s%s%s\t\t#pragma unroll\n\t\tfor (int l = 0; l < V; l++) {\n\t\t\tconst ix_t %s = c + l;\n%s\t\t}\n%s\t}\n}\n\n",
		pl_indent(pl, l1, 2), pl_indent(pl, cat(pl, vars, decl), 2), pl_indent(pl, ld, 2), "", lane,
		pl_indent(pl, l2, 3), pl_indent(pl, after, 2));
	k->launch = pl_fmt(pl,
		"\t{\n%s\t\tww_define(p, \"%s_V\", v);\n\t\tww_define(p, \"%s_U\", %d);\n\t\tww_define(p, \"%s_BLOCK\", %d);\n"
		"\t\tww_launch(p, \"%s\", ww_cdiv(%s * (%s / v), %d), 1, 1, %d, 1, 1);\n%s\t}\n",
		pick_v(pl, terms, e.cuda_vec ? widest(pl, k) : 1, ix_text(pl, k->col[0]->b), 0), k->name, k->name, unroll,
		k->name, threads, k->name, ix_text(pl, rows), ix_text(pl, k->col[0]->b), unroll * threads, threads,
		pl_plan_args(pl, k, "\t\t"));
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

struct rowgen {
	struct pl *pl;
	struct kern *k;
	struct expr e;
	struct ww_str out, b1, b2, loads;
	int lane_row, held, cluster;
	const char *terms;
};

static const char *red_op(enum pl_red r)
{
	static const char *const names[] = { "PL_SUM", "PL_PROD", "PL_MAX", "PL_MIN", "PL_MAX", "PL_MIN" };

	return names[r];
}

static void open_stage(struct rowgen *g, int s)
{
	for (int i = 0; i < g->k->n_red; i++) {
		struct val *r = g->k->red[i];
		int dt = r->arg[0]->dt;

		if (g->k->red_stage[i] != s)
			continue;
		ww_str_addf(&g->out, "%s a%d = %s;\n", pl_acc_type(dt), i, pl_ident(g->pl, r->red, dt));
		if (r->red >= RED_ARGMAX)
			ww_str_addf(&g->out, "long long w%d = 0;\n", i);
	}
}

static void step_stage(struct rowgen *g, int s)
{
	struct pl *pl = g->pl;

	for (int i = 0; i < g->k->n_red; i++) {
		struct val *r = g->k->red[i];
		const struct ix *idx[PL_MAX_RANK], *lin = ix_const(pl, 0);
		struct etext t;

		if (g->k->red_stage[i] != s)
			continue;
		for (int d = 0; d < r->rank; d++)
			idx[d] = g->k->red_idx[i][d];
		for (int c = 0; c < g->k->n_ocol; c++)
			idx[r->rank + c] = g->k->ocol[c];
		for (int c = 0; c < g->k->n_col; c++)
			lin = ix_add(pl, ix_mul(pl, lin, g->k->col[c]->b), pl_of_var(pl, g->k->col[c]));
		g->e.self = r->root ? r : NULL;
		t = pl_expr(&g->e, r->arg[0], idx);
		if (r->red >= RED_ARGMAX)
			ww_str_addf(
				&g->b2, "pl_take<%s>(a%d, w%d, %s, (long long)%s);\n", red_op(r->red), i, i, t.t, ix_text(pl, lin));
		else
			ww_str_addf(&g->b2, "a%d = %s;\n", i, pl_combine(pl, r->red, r->arg[0]->dt, pl_fmt(pl, "a%d", i), t.t, 0));
	}
}

static void close_stage(struct rowgen *g, int s)
{
	for (int i = 0; i < g->k->n_red; i++) {
		struct val *r = g->k->red[i];
		const char *how = g->lane_row ? pl_fmt(g->pl, "TX, TY") : "T";

		if (g->k->red_stage[i] != s)
			continue;
		if (r->red >= RED_ARGMAX)
			ww_str_addf(&g->out, "pl_%s_arg<%s, %s>(a%d, w%d, box);\n", g->lane_row ? "down" : "across", red_op(r->red),
				how, i, i);
		else
			ww_str_addf(&g->out, "a%d = pl_%s<%s, %s>(a%d, box);\n", i, g->lane_row ? "down" : "across", red_op(r->red),
				how, i);
		if (g->cluster)
			ww_str_addf(&g->out, "a%d = pl_cluster<%s, CL>(a%d, &cbox[%d]);\n", i, red_op(r->red), i, i);
		g->e.red_text[i] = (struct etext){ pl_fmt(g->pl, r->red >= RED_ARGMAX ? "w%d" : "a%d", i), 0, 1 };
		g->e.red_done[i] = 1;
	}
}

/* One pass over the columns. */
static void pass(struct rowgen *g, int s, int store)
{
	struct pl *pl = g->pl;
	struct kern *k = g->k;
	const char *decl = "", *after = "", *lane = k->n_col ? k->col[k->n_col - 1]->name : "";
	const char *start = pl_fmt(pl, "%s_0", lane);
	struct ww_str dec = pl_text(pl);

	pl_expr_forget(&g->e, 2);
	ww_str_reset(&g->b2);
	ww_str_reset(&g->loads);
	if (!g->held)
		g->e.n_vload = 0;
	g->e.stage = s;
	if (store)
		after = pl_cuda_stores(&g->e, k, 2, start, &g->terms, &decl, "if (live)\n\t");
	else
		step_stage(g, s);
	ww_str_adds(&g->out, g->b1.p);
	ww_str_reset(&g->b1);
	for (int i = 0; i < g->e.n_vload; i++)
		if (!g->held || g->e.vload[i].stage == s)
			g->terms = pl_cuda_terms(pl, g->terms, g->e.vload[i].base, g->e.lane);
	if (g->lane_row) {
		pl_decode(pl, &dec, "", "ix_t", k->col, k->n_col, "c");
		ww_str_addf(&g->out, "for (ix_t c = ty; c < cols; c += TY) {\n%s%s}\n", dec.p, g->b2.p);
		ww_str_release(&dec);
		return;
	}
	if (k->n_col > 1) {
		const struct ix_atom *axis[PL_MAX_RANK];

		for (int c = 0; c < k->n_col; c++)
			axis[c] = k->col[c];
		axis[k->n_col - 1] = ix_as_var(ix_var(pl, start, k->col[k->n_col - 1]->b));
		pl_decode(pl, &dec, "", "ix_t", axis, k->n_col, "c");
	} else {
		ww_str_addf(&dec, "const ix_t %s = c;\n", start);
	}
	pl_cuda_loads(&g->e, &g->loads, g->held ? s : -1, start, g->held ? "[j]" : "");
	if (g->held) {
		for (int i = 0; i < g->e.n_vload; i++)
			if (g->e.vload[i].stage == s)
				ww_str_addf(&g->out, "float %s[CH][V];\n", g->e.vload[i].name);
		ww_str_addf(&g->out,
			"#pragma unroll\nfor (int j = 0; j < CH; j++) {\nconst ix_t c = ((ix_t)(j * CL + rank) * T + lane) * V;\n\nif (c < cols) {\n%s%s%s"
			"#pragma unroll\nfor (int l = 0; l < V; l++) {\nconst ix_t %s = %s + l;\n%s}\n%s}\n}\n",
			dec.p, decl, g->loads.p, lane, start, g->b2.p, after);
	} else {
		const char *arrays = "";

		for (int i = 0; i < g->e.n_vload; i++)
			arrays = pl_fmt(pl, "%sfloat %s[V];\n", arrays, g->e.vload[i].name);
		ww_str_addf(&g->out,
			"for (ix_t c = (ix_t)(rank * T + lane) * V; c < cols; c += T * CL * V) {\n%s%s%s%s#pragma unroll\nfor (int l = 0; l < V; l++) {\nconst ix_t %s = %s + l;\n%s}\n%s}\n",
			dec.p, arrays, decl, g->loads.p, lane, start, g->b2.p, after);
	}
	ww_str_release(&dec);
}

static int stores_per_column(const struct kern *k)
{
	for (int o = 0; o < k->n_out; o++)
		for (int d = 0; d < k->out[o]->rank; d++)
			for (int c = 0; c < k->n_col; c++)
				if (ix_has(k->out_idx[o][d], k->col[c]))
					return 1;
	return 0;
}

static void row_body(struct rowgen *g)
{
	struct kern *k = g->k;

	pl_expr_init(&g->e, g->pl, k);
	g->e.cuda_vec = !g->lane_row && !pl_knobs(g->pl, k->id)->plain;
	g->e.vload_index = g->held ? "[j][l]" : "[l]";
	g->e.lane = g->lane_row ? k->row[k->n_row - 1] : k->col[k->n_col - 1];
	g->e.block[1] = &g->b1;
	g->e.block[2] = &g->b2;
	for (int s = 0; s < k->n_stage; s++) {
		int any = 0;

		for (int i = 0; i < k->n_red; i++)
			any |= k->red_stage[i] == s;
		if (!any)
			continue;
		open_stage(g, s);
		pass(g, s, 0);
		close_stage(g, s);
	}
	pl_expr_forget(&g->e, 2);
	if (stores_per_column(k)) {
		pass(g, k->n_stage, 1);
	} else {
		const char *decl, *terms = "",
						  *cond = g->lane_row ? "if (live && ty == 0)\n\t" : "if (live && lane == 0 && rank == 0)\n\t";
		int vec = g->e.cuda_vec;

		g->e.cuda_vec = 0;
		g->e.block[2] = &g->b1;
		pl_cuda_stores(&g->e, k, 1, "", &terms, &decl, cond);
		g->e.cuda_vec = vec;
		ww_str_adds(&g->out, g->b1.p);
	}
}

static int memory_along_rows(struct pl *pl, struct kern *k)
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
		if (ix_affine(pl, off[i], k->col[k->n_col - 1], &coef, &rest) && ix_is(coef, 1))
			col += bytes;
		if (k->n_row && ix_affine(pl, off[i], k->row[k->n_row - 1], &coef, &rest) && !ix_is(coef, 0) &&
			ix_num(coef) <= 4)
			row += bytes;
	}
	/* few columns, many rows: a thread each (pooling windows, small kernels) */
	if (k->n_row && ix_num(pl_extent(pl, k->col, k->n_col)) < 64 && ix_num(k->row[k->n_row - 1]->b) >= 16 && row > 0)
		return 1;
	return row > col;
}

static void row_kernel(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	struct rowgen g = {
		.pl = pl, .k = k, .out = pl_text(pl), .b1 = pl_text(pl), .b2 = pl_text(pl), .loads = pl_text(pl), .terms = ""
	};
	const struct ix *rows, *cols;
	const char *body, *tabs;
	int64_t n_cols;

	if (!k->n_col)
		k->col[k->n_col++] = ix_as_var(ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), ix_const(pl, 1)));
	cols = pl_extent(pl, k->col, k->n_col);
	n_cols = ix_num(cols);
	g.lane_row = k->n_row && memory_along_rows(pl, k);
	g.cluster = !g.lane_row && pl->dev.cc >= 90;
	for (int i = 0; i < k->n_red; i++)
		g.cluster &= k->red[i]->red < RED_ARGMAX && strcmp(pl_acc_type(k->red[i]->arg[0]->dt), "float") == 0;
	g.held = !g.lane_row && n_cols <= (g.cluster ? 262144 : 32768) && !kn->rows.reread;
	g.cluster &= g.held && n_cols > 16384;
	row_body(&g);
	body = pl_fmt(pl, "%s", g.out.p);
	ww_str_release(&g.out);
	ww_str_release(&g.b1);
	ww_str_release(&g.b2);
	ww_str_release(&g.loads);
	tabs = pl_indent(pl, body, 1);
	if (g.lane_row) {
		const struct ix *width = k->row[k->n_row - 1]->b;

		rows = pl_extent(pl, k->row, k->n_row - 1);
		ww_str_addf(s,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(%s_TX * %s_TY) %s(%s)\n{\n\tenum { TX = %s_TX, TY = %s_TY };\n"
			"\t__shared__ double box[TY > 1 ? TX * TY * 2 : 1];\n\tconst int tx = threadIdx.x %% TX, ty = threadIdx.x / TX;\n"
			"\tconst ix_t width = %s, cols = %s, chunks = (width + TX - 1) / TX, row = (ix_t)blockIdx.x / chunks, at = (ix_t)blockIdx.x %% chunks * TX + tx;\n"
			"\tconst bool live = at < width;\n\tconst ix_t %s = live ? at : width - 1;\n\n\t(void)box;\n",
			k->title, k->name, k->name, k->name, pl_cuda_params(pl, k), k->name, k->name, ix_text(pl, width),
			ix_text(pl, cols), k->row[k->n_row - 1]->name);
		pl_decode(pl, s, "\t", "ix_t", k->row, k->n_row - 1, "row");
		ww_str_addf(s, "%s}\n\n", tabs);
		k->launch = pl_fmt(pl,
			"\t{\n\t\tconst long long width = %s, outer = %s, cols = %s;\n\t\tint tx = width >= 256 ? 256 : width >= 128 ? 128 : width >= 64 ? 64 : 32, ty = 1;\n\n"
			"\t\twhile (ty < 16 && cols >= 16 * ty && outer * width * ty < 2048LL * ww_device(p)->sm_count) {\n\t\t\tty *= 2;\n\t\t\tif (tx > 32 && tx * ty > 256)\n\t\t\t\ttx /= 2;\n\t\t}\n"
			"\t\tww_define(p, \"%s_TX\", tx);\n\t\tww_define(p, \"%s_TY\", ty);\n\t\tww_launch(p, \"%s\", outer * ww_cdiv(width, tx), 1, 1, tx * ty, 1, 1);\n%s\t}\n",
			ix_text(pl, width), ix_text(pl, rows), ix_text(pl, cols), k->name, k->name, k->name,
			pl_plan_args(pl, k, "\t\t"));
		return;
	}
	rows = pl_extent(pl, k->row, k->n_row);
	ww_str_addf(s,
		"/* %s */\nextern \"C\" __global__ void __launch_bounds__(%s_T * %s_R) %s(%s)\n{\n\tenum { T = %s_T, R = %s_R, V = %s_V, CH = %s_CH, CL = %s_CL };\n"
		"\t__shared__ double box[64];\n\t__shared__ float cbox[CL > 1 ? %d : 1];\n\tconst int lane = threadIdx.x %% T, rank = blockIdx.x %% CL;\n"
		"\tconst ix_t rows = %s, cols = %s, at = (ix_t)blockIdx.x / CL * R + threadIdx.x / T;\n"
		"\tconst bool live = at < rows;\n\tconst ix_t row = live ? at : rows - 1;\n\n\t(void)box;\n\t(void)cbox;\n\t(void)row;\n",
		k->title, k->name, k->name, k->name, pl_cuda_params(pl, k), k->name, k->name, k->name, k->name, k->name,
		k->n_red ? k->n_red : 1, ix_text(pl, rows), ix_text(pl, cols));
	pl_decode(pl, s, "\t", "ix_t", k->row, k->n_row, "row");
	ww_str_addf(s, "%s%s}\n\n", tabs,
		g.cluster ? "\tif (CL > 1)\n\t\tww::cluster_sync();	/* the others may still read cbox */\n" : "");
	k->launch = pl_fmt(pl,
		"\t{\n%s\t\tconst long long rows = %s, cols = %s;\n\t\tlong long t = %d, cl = 1;\n\n%s"
		"\t\twhile (t < 1024 && cols > t * cl * %d)\n\t\t\tt *= 2;\n\t\twhile (t > 1 && t / 2 * v >= cols)\n\t\t\tt /= 2;\n"
		"\t\tif (t > 32 && rows * t < 64LL * ww_device(p)->sm_count)\n\t\t\twhile (t < 1024 && t * cl * v < cols)\n\t\t\t\tt *= 2;\n"
		"\t\tconst long long r = t >= 128 ? 1 : 128 / t %s, ch = ww_cdiv(cols, t * cl * v);\n\n%s"
		"\t\tww_define(p, \"%s_V\", v);\n\t\tww_define(p, \"%s_T\", t);\n\t\tww_define(p, \"%s_R\", r);\n\t\tww_define(p, \"%s_CH\", ch);\n\t\tww_define(p, \"%s_CL\", cl);\n"
		"\t\tww_launch(p, \"%s\", ww_cdiv(rows, r) * cl, 1, 1, t * r, 1, 1);\n\t\tif (cl > 1)\n\t\t\tww_cluster(p, (int)cl, 1, 1);\n%s\t}\n",
		pick_v(pl, g.terms, g.e.cuda_vec ? widest(pl, k) : 1, ix_text(pl, k->col[k->n_col - 1]->b), kn->rows.vec),
		ix_text(pl, rows), ix_text(pl, cols), kn->rows.threads ? kn->rows.threads : 32,
		g.cluster ? "\t\twhile (cl < 8 && cols > 16384 * cl)\n\t\t\tcl *= 2;\n" : "", kn->rows.threads ? 64 : 16,
		"* (t <= 32) + (t > 32)",
		g.held ? "\t\tif (ch * v > 64)\n\t\t\tww_fail(p, \"rows are too long for registers\");\n" : "", k->name,
		k->name, k->name, k->name, k->name, k->name, pl_plan_args(pl, k, "\t\t"));
}

static const char cluster_helper[] =
	"/* Between the CL blocks that share a row; every reduction has a slot of its own, so one barrier each is enough. */\n"
	"template <int OP, int CL> PL_FN float pl_cluster(float v, float *slot)\n{\n\tif (CL > 1) {\n\t\tif (threadIdx.x == 0)\n\t\t\t*slot = v;\n\t\tww::cluster_sync();\n"
	"\t\tv = ww::cluster_load(slot, 0);\n\t\tfor (int i = 1; i < CL; i++)\n\t\t\tv = pl_comb<OP>(v, ww::cluster_load(slot, i));\n\t}\n\treturn v;\n}\n";

static const char helpers[] =
	"/* Reductions across the T threads of a row: within a warp by shuffles, between warps through shared memory. */\n"
	"enum { PL_SUM, PL_PROD, PL_MAX, PL_MIN };\n"
	"template <int OP, class F> PL_FN F pl_comb(F a, F b)\n{\n\tif (OP == PL_SUM)\n\t\treturn a + b;\n\tif (OP == PL_PROD)\n\t\treturn a * b;\n"
	"\tif (OP == PL_MAX)\n\t\treturn a != a || a > b ? a : b;\n\treturn a != a || a < b ? a : b;\n}\n"
	"template <int OP, class F> PL_FN void pl_take(F &a, long long &w, F b, long long v)\n{\n"
	"\tconst bool better = b != b ? (a == a || v < w) : a == a && (OP == PL_MAX ? b > a : b < a);\n\n"
	"\tif (better || (b == a && v < w)) {\n\t\ta = b;\n\t\tw = v;\n\t}\n}\n"
	"template <int OP, int T, class F> PL_FN F pl_across(F v, double *room)\n{\n\tF *box = (F *)room;\n\n\t#pragma unroll\n"
	"\tfor (int d = (T < 32 ? T : 32) / 2; d > 0; d /= 2)\n\t\tv = pl_comb<OP>(v, __shfl_xor_sync(0xffffffffu, v, d));\n"
	"\tif (T > 32) {\n\t\t__syncthreads();\n\t\tif (threadIdx.x % 32 == 0)\n\t\t\tbox[threadIdx.x / 32] = v;\n\t\t__syncthreads();\n\t\tv = box[threadIdx.x % (T / 32 ? T / 32 : 1)];\n\t\t#pragma unroll\n"
	"\t\tfor (int d = T / 64; d > 0; d /= 2)\n\t\t\tv = pl_comb<OP>(v, __shfl_xor_sync(0xffffffffu, v, d));\n\t}\n\treturn v;\n}\n"
	"template <int OP, int T, class F> PL_FN void pl_across_arg(F &a, long long &w, double *room)\n{\n\tF *box = (F *)room;\n\tlong long *wbox = (long long *)(room + 32);\n\n\t#pragma unroll\n"
	"\tfor (int d = (T < 32 ? T : 32) / 2; d > 0; d /= 2) {\n\t\tconst F b = __shfl_xor_sync(0xffffffffu, a, d);\n\t\tconst long long v = __shfl_xor_sync(0xffffffffu, w, d);\n\n\t\tpl_take<OP>(a, w, b, v);\n\t}\n"
	"\tif (T > 32) {\n\t\t__syncthreads();\n\t\tif (threadIdx.x % 32 == 0) {\n\t\t\tbox[threadIdx.x / 32] = a;\n\t\t\twbox[threadIdx.x / 32] = w;\n\t\t}\n\t\t__syncthreads();\n"
	"\t\ta = box[0];\n\t\tw = wbox[0];\n\t\tfor (int i = 1; i < T / 32; i++)\n\t\t\tpl_take<OP>(a, w, box[i], wbox[i]);\n\t}\n}\n"
	"/* Between the TY warps that share the columns of TX rows. */\n"
	"template <int OP, int TX, int TY, class F> PL_FN F pl_down(F v, double *room)\n{\n\tF *box = (F *)room;\n\n\tif (TY > 1) {\n\t\t__syncthreads();\n\t\tbox[threadIdx.x] = v;\n\t\t__syncthreads();\n"
	"\t\tv = box[threadIdx.x % TX];\n\t\tfor (int i = 1; i < TY; i++)\n\t\t\tv = pl_comb<OP>(v, box[threadIdx.x % TX + i * TX]);\n\t}\n\treturn v;\n}\n"
	"template <int OP, int TX, int TY, class F> PL_FN void pl_down_arg(F &a, long long &w, double *room)\n{\n\tF *box = (F *)room;\n\tlong long *wbox = (long long *)(room + TX * TY);\n\n\tif (TY > 1) {\n"
	"\t\t__syncthreads();\n\t\tbox[threadIdx.x] = a;\n\t\twbox[threadIdx.x] = w;\n\t\t__syncthreads();\n\t\ta = box[threadIdx.x % TX];\n\t\tw = wbox[threadIdx.x % TX];\n"
	"\t\tfor (int i = 1; i < TY; i++)\n\t\t\tpl_take<OP>(a, w, box[threadIdx.x % TX + i * TX], wbox[threadIdx.x % TX + i * TX]);\n\t}\n}\n";

void pl_emit_cuda(struct pl *pl)
{
	struct ww_str body = pl_text(pl), one = pl_text(pl);
	const char *text;
	const char *device = "", *recipes = "";
	int kinds[S_COUNT] = { 0 }, library = 0;

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
			pl_anchor_ops[k->anchor->kind]->print[1](pl, k, &one);
		if (k->anchor)
			kinds[k->anchor->kind] = 1;
		library |= k->loop->library & BY_LIBRARY;
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
	for (int i = 0; i < S_COUNT; i++) {
		if (!kinds[i])
			continue;
		device = pl_fmt(pl, "%s#include <ww/%s.cuh>\n", device, pl_anchor_ops[i]->header);
		recipes = pl_fmt(pl, "%s#include <ww/recipe/%s.h>\n", recipes, pl_anchor_ops[i]->header);
	}
	if (library) {
		device = pl_fmt(pl, "%s#include <ww/library.cuh>\n", device);
		recipes = pl_fmt(pl, "%s#include <ww/recipe/library.h>\n", recipes);
	}
	pl->cuda_recipes = recipes;
	ww_str_addf(&pl->dev_text,
		"/* Written by the planner. */\n#include <ww/vec.cuh>\n%s%s\n#if IX64_\ntypedef long long ix_t;\n#else\ntypedef int ix_t;\n#endif\n"
		"#define PL_FN static __device__ __forceinline__\n#define PL_INFF __int_as_float(0x7f800000)\n#define PL_INF __longlong_as_double(0x7ff0000000000000ll)\n"
		"#define PL_NANF __int_as_float(0x7fc00000)\n#define PL_NAN __longlong_as_double(0x7ff8000000000000ll)\n",
		device, strstr(text, "pl_cluster") ? "#include <ww/rowwise.cuh>\n" : "");
	for (int i = 0; i < pl->n_sym; i++)
		ww_str_addf(
			&pl->dev_text, "#define %s ((ix_t)%s_)\t/* %s */\n", pl->sym_name[i], pl->sym_name[i], pl->sym_def[i]);
	ww_str_addf(&pl->dev_text, "%s%s%s\n%s", pl_preamble(pl, text),
		strstr(text, "pl_across") || strstr(text, "pl_down") ? helpers : "",
		strstr(text, "pl_cluster") ? cluster_helper : "", text);
}
