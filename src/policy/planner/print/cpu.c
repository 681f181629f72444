/* cpu.c - writes schedules as kernels.c and launches, for the cpu target.
 *
 * Pointwise: the last axis is divided into chunks, and a block does several chunks.  Rows: a block does several rows;
 * if each lane is a row, several tiles of 64 rows.  A loop body is written twice, for whole vectors with a constant n
 * and for the rest, so that the compiler drops the masks from the main loop. */
#include "policy/planner/print/print.h"

#include <string.h>

static const char *open_kernel(struct pl *pl, struct kern *k, struct ww_str *s)
{
	ww_str_addf(s, "/* %s */\nWW_KERNEL(%s)\n{\n", k->title, k->name);
	pl_cpu_pointers(pl, k, s, "arg");
	return k->loop->lane->name;
}

/* Streaming stores: the elements before the first whole cache line. */
static const char *before_stream(struct pl *pl, const struct loop *l, const char *body)
{
	const char *lane = l->lane->name;

	return l->stream
		? pl_fmt(pl,
			  "\t\t{\n\t\t\tconst int n = ww_vf_before(%s, c1 - c0);\n\n\t\t\tif (n) {\n%s\t\t\t}\n\t\t\t%s += n;\n\t\t}\n",
			  l->stream, pl_indent(pl, body, 1), lane)
		: "";
}

/* The body for whole vectors, then for the rest, along `lane` from c0 to c1. */
static void whole_and_rest(struct ww_str *s, const char *lane, const char *before, const char *unroll, const char *body)
{
	ww_str_addf(s,
		"\t\tix_t %s = c0;\n\n\t\t(void)row;\n%s%s\t\tfor (; %s + WW_VL <= c1; %s += WW_VL) {\n"
		"\t\t\tenum { n = WW_VL };\n%s\t\t}\n"
		"\t\tif (%s < c1) {\n\t\t\tconst int n = (int)(c1 - %s);\n%s\t\t}\n",
		lane, before, unroll, lane, lane, body, lane, lane, body);
}

/* The loop over chunks of rows: chunk `at` of row `row`.  A row of 20 elements takes less time than two divisions. */
static const char *items(struct pl *pl, const char *rows)
{
	if (rows) /* across: a chunk of all rows, then the next one */
		return pl_fmt(pl,
			"\tfor (ix_t item = b->x * per; item < end; item++) {\n"
			"\t\tconst ix_t row = item %% %s, at = item / %s;\n",
			rows, rows);
	return "\tfor (ix_t item = b->x * per, row = item / chunks, at = item % chunks; item < end;\n"
		   "\t\t item++, at = at + 1 < chunks ? at + 1 : 0, row += at == 0) {\n";
}

static void print_point(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];
	const char *lane = open_kernel(pl, k, s), *body = pl_indent(pl, p->last, 3);
	const char *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len);
	struct ww_str row = pl_text(pl);

	ww_str_addf(s,
		"\tconst ix_t cols = %s, chunk = WW_ARG(long long, %d), per = WW_ARG(long long, %d), chunks = WW_CDIV(cols, "
		"chunk);\n"
		"\tconst ix_t end = ww_min_ll(%s * chunks, (b->x + 1) * per);\n\n"
		"%s\t\tconst ix_t c0 = at * chunk, c1 = ww_min_ll(cols, c0 + chunk);\n",
		cols, k->n_arg, k->n_arg + 1, rows, items(pl, l->across ? rows : NULL));
	pl_decode(pl, s, "\t\t", k->row, l->n_row, "row");
	ww_str_adds(&row, pl_indent(pl, p->row, 2));
	if (l->along == COLUMNS)
		whole_and_rest(&row, lane, before_stream(pl, l, body), pl_fmt(pl, "\t\tWW_UNROLL(%d)\n", l->unroll), body);
	else
		ww_str_addf(
			&row, "\n\t\t(void)row;\n\t\tfor (ix_t %s = c0; %s < c1; %s++) {\n%s\t\t}\n", lane, lane, lane, body);
	if (l->inside)
		ww_str_addf(s, "\t\tfor (ix_t %s = 0; %s < %s; %s++) {\n%s\t\t}\n", l->inside->name, l->inside->name,
			ix_text(pl, l->inside->b), l->inside->name, pl_indent(pl, row.p, 1));
	else
		ww_str_adds(s, row.p);
	ww_str_adds(s, "\t}\n}\n\n");
	k->launch = pl_named(pl, k,
		"\t{\n\t\tconst long long rows = %s, cols = %s, chunk = ww_min(cols, %d), items = rows * ww_cdiv(cols, "
		"chunk);\n"
		"\t\tconst long long per = ww_max(1, ww_min(%d / %s, ww_cdiv(items, 4 * ww_device(p)->threads)));\n\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(items, per), 1, 1, 1, 1, 1);\n%s\t\tww_arg_i64(p, chunk);\n"
		"\t\tww_arg_i64(p, per);\n\t}\n",
		rows, cols, l->tile, l->across ? 512 * l->tile : l->tile,
		l->inside ? pl_fmt(pl, "(chunk * %s)", ix_text(pl, l->inside->b)) : "chunk", pl_plan_args(pl, k, "\t\t"));
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static void open_sum(struct pl *pl, const struct kern *k, int i, struct ww_str *s)
{
	const struct val *r = k->red[i];
	const struct loop *l = k->loop;
	int dt = r->arg[0]->dt;
	const char *id = pl_ident(pl, r->red, dt);

	if (l->along == COLUMNS)
		ww_str_addf(s, "ww_vf a%d[%d];\nfor (int u = 0; u < %d; u++)\n\ta%d[u] = ww_vf_set(%s);\n", i, l->unroll,
			l->unroll, i, id);
	else if (l->along == ROWS)
		ww_str_addf(s, "ww_vf a%d = ww_vf_set(%s);\n", i, id);
	else
		ww_str_addf(s, "%s a%d = %s;\n%s", r->red == RED_SUM && dt == WW_F32 ? "double" : pl_acc_type(dt), i, id,
			r->red >= RED_ARGMAX ? pl_fmt(pl, "long long w%d = 0;\n", i) : "");
}

/* Accumulate the current column; lanes beyond the end of the row are masked. */
static void add_column(struct pl *pl, struct kern *k, int i, int rest, struct ww_str *s)
{
	const struct step *st = &k->loop->step[i];
	const struct val *r = k->red[i];
	enum along along = k->loop->along;
	const char *a = pl_fmt(pl, "a%d%s", i, along != COLUMNS ? "" : rest ? "[0]" : "[u]"), *x = st->value.t;

	ww_str_adds(s, st->before);
	if (r->red >= RED_ARGMAX) {
		ww_str_addf(s, "if (%s %s %s || (%s != %s && %s == %s)) {\n\t%s = %s;\n\tw%d = %s;\n}\n", x,
			r->red == RED_ARGMAX ? ">" : "<", a, x, x, a, a, a, x, i, pl_linear_column(pl, k));
		return;
	}
	if (along != SCALARS && !st->value.vec)
		x = pl_fmt(pl, "ww_vf_set((float)%s)", x);
	if (along == COLUMNS && rest)
		x = pl_fmt(pl, "ww_vf_fill(%s, n, %s)", x, pl_ident(pl, r->red, r->arg[0]->dt));
	ww_str_addf(s, "%s = %s;\n", a, pl_combine(pl, r->red, r->arg[0]->dt, a, x, along != SCALARS));
}

/* Does no pass need reduction i?  Then its vector stays one until the vectors of several rows are summed at once. */
static int waits(const struct kern *k, int i) { return k->loop->side && k->red_stage[i] == k->n_stage - 1; }

static void close_sum(struct pl *pl, const struct kern *k, int i, struct ww_str *s)
{
	static const char *const across[] = {
		[RED_SUM] = "ww_vf_sum", [RED_PROD] = "ww_vf_hprod", [RED_MAX] = "ww_vf_hmax", [RED_MIN] = "ww_vf_hmin"
	};
	const struct val *r = k->red[i];
	const struct loop *l = k->loop;

	if (l->along == COLUMNS)
		ww_str_addf(s, "for (int u = 1; u < %d; u++)\n\ta%d[0] = %s;\n", l->unroll, i,
			pl_combine(pl, r->red, r->arg[0]->dt, pl_fmt(pl, "a%d[0]", i), pl_fmt(pl, "a%d[u]", i), 1));
	if (l->along == COLUMNS && !waits(k, i))
		ww_str_addf(s, "const float s%d = (float)%s(a%d[0]);\n", i, across[r->red], i);
	else if (l->along != COLUMNS && *l->step[i].result.t == 's')
		ww_str_addf(s, "const float s%d = (float)a%d;\n", i, i);
}

static const char *column(struct pl *pl, struct kern *k, const struct pass *p, int rest)
{
	struct ww_str s = pl_text(pl);

	ww_str_adds(&s, p->first);
	for (int i = 0; i < k->n_red; i++)
		if (k->red_stage[i] == p->stage)
			add_column(pl, k, i, rest, &s);
	ww_str_adds(&s, p->last);
	return s.p;
}

static void print_pass(struct pl *pl, struct kern *k, const struct pass *p, struct ww_str *s)
{
	const struct loop *l = k->loop;
	int loops = k->n_col - (l->along == COLUMNS), u = l->unroll, c = p->stage;
	const char *lane = k->col[k->n_col - 1]->name, *end = ix_text(pl, k->col[k->n_col - 1]->b);

	ww_str_adds(s, p->row);
	for (int i = 0; i < loops; i++)
		ww_str_addf(s, "%sfor (ix_t %s = 0; %s < %s; %s++) {\n",
			l->along == ROWS && i == loops - 1 && pl_unrolls(k->col[i]->b) ? "WW_UNROLL(8)\n" : "", k->col[i]->name,
			k->col[i]->name, ix_text(pl, k->col[i]->b), k->col[i]->name);
	if (l->along == COLUMNS) {
		ww_str_addf(s, "ix_t c%d = 0;\n", c);
		if (l->stream && c == k->n_stage)
			ww_str_addf(s, "{\nconst ix_t %s = 0;\nconst int n = ww_vf_before(%s, %s);\nif (n) {\n%s}\nc%d = n;\n}\n",
				lane, l->stream, end, column(pl, k, p, 1), c);
		ww_str_addf(s,
			"for (; c%d + %d * WW_VL <= %s; c%d += %d * WW_VL)\n\tWW_UNROLL(%d)\n"
			"\tfor (int u = 0; u < %d; u++) {\n"
			"const ix_t %s = c%d + u * WW_VL;\nenum { n = WW_VL };\n%s}\n",
			c, u, end, c, u, u, u, lane, c, column(pl, k, p, 0));
		ww_str_addf(s,
			"for (; c%d < %s; c%d += WW_VL) {\nconst ix_t %s = c%d;\nconst int n = (int)ww_min_ll(WW_VL, %s - c%d);\n"
			"%s}\n",
			c, end, c, lane, c, end, c, column(pl, k, p, 1));
	} else {
		ww_str_adds(s, column(pl, k, p, 0));
	}
	while (loops--)
		ww_str_adds(s, "}\n");
}

/* The body of a row: each pass, with its accumulators before and its reductions after it. */
static const char *passes(struct pl *pl, struct kern *k)
{
	struct ww_str s = pl_text(pl);

	for (int n = 0; n < k->loop->n_pass; n++) {
		const struct pass *p = &k->loop->pass[n];

		for (int i = 0; i < k->n_red; i++)
			if (k->red_stage[i] == p->stage)
				open_sum(pl, k, i, &s);
		print_pass(pl, k, p, &s);
		for (int i = 0; i < k->n_red; i++)
			if (k->red_stage[i] == p->stage)
				close_sum(pl, k, i, &s);
	}
	return s.p;
}

/* Rows c0 to c1 one after the other; the results of their reductions go to part[]. */
static const char *rows_before(struct pl *pl, struct kern *k)
{
	const char *row = k->loop->side->name;
	struct ww_str s = pl_text(pl);

	for (int i = 0; i < k->n_red; i++)
		ww_str_addf(&s, waits(k, i) ? "ww_vf part%d[64];\n" : "float part%d[64];\n", i);
	ww_str_addf(&s, "const ix_t from = c0;\nfor (ix_t %s = from; %s < c1; %s++) {\n%s", row, row, row, passes(pl, k));
	for (int i = 0; i < k->n_red; i++)
		ww_str_addf(&s, waits(k, i) ? "part%d[%s - from] = a%d[0];\n" : "part%d[%s - from] = s%d;\n", i, row, i);
	ww_str_adds(&s, "}\nfor (ix_t l = c1 - from; l % WW_VL; l++) {\n");
	for (int i = 0; i < k->n_red; i++)
		ww_str_addf(&s, waits(k, i) ? "part%d[l] = ww_vf_zero();\n" : "part%d[l] = 0;\n", i);
	ww_str_adds(&s, "}\n");
	return s.p;
}

/* The outputs after the passes, for a vector of rows. */
static const char *rows_beside(struct pl *pl, struct kern *k)
{
	static const char *const op[] = { [RED_SUM] = "SUM", [RED_PROD] = "PROD", [RED_MAX] = "MAX", [RED_MIN] = "MIN" };
	const char *row = k->loop->side->name;
	struct ww_str s = pl_text(pl);

	for (int i = 0; i < k->n_red; i++)
		if (waits(k, i))
			ww_str_addf(&s, "const ww_vf all%d = ww_vf_across(WW_OP_%s, part%d + (%s - from));\n", i,
				op[k->red[i]->red], i, row);
		else
			ww_str_addf(&s, "const ww_vf all%d = ww_vf_load(part%d + (%s - from), WW_VL);\n", i, i, row);
	ww_str_adds(&s, k->loop->finish);
	return s.p;
}

static void print_rows(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *lane = open_kernel(pl, k, s), *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len);
	const struct ix *items = l->outer, *work = ix_num(l->len) ? l->len : ix_const(pl, 1);

	ww_str_addf(s, "\tconst ix_t per = WW_ARG(long long, %d);\n", k->n_arg);
	for (int i = 0; i < l->n_cached; i++)
		ww_str_addf(s, "\tfloat *const kept%d = ww_row_buffer(b, %s, %d);\n", i, cols, i);
	if (l->along == ROWS || l->side) {
		ww_str_addf(s,
			"\tconst ix_t width = %s, chunks = WW_CDIV(width, 64), end = ww_min_ll(%s * chunks, (b->x + 1) * per);\n\n"
			"\tfor (ix_t item = b->x * per; item < end; item++) {\n"
			"\t\tconst ix_t row = item / chunks, c0 = item %% chunks * 64, c1 = ww_min_ll(width, c0 + 64);\n",
			ix_text(pl, l->inner), rows);
		pl_decode(pl, s, "\t\t", k->row, l->n_row, "row");
		if (l->side)
			whole_and_rest(
				s, l->side->name, pl_indent(pl, rows_before(pl, k), 2), "", pl_indent(pl, rows_beside(pl, k), 3));
		else
			whole_and_rest(s, lane, "", "", pl_indent(pl, pl_fmt(pl, "%s%s", passes(pl, k), l->finish), 3));
		ww_str_adds(s, "\t}\n}\n\n");
		items = ix_mul(pl, items, ix_div(pl, ix_addc(pl, l->inner, 63), ix_const(pl, 64)));
		work = ix_mulc(pl, work, 64);
	} else {
		ww_str_addf(s,
			"\tconst ix_t end = ww_min_ll(%s, (b->x + 1) * per);\n\n"
			"\tfor (ix_t row = b->x * per; row < end; row++) {\n",
			rows);
		pl_decode(pl, s, "\t\t", k->row, l->n_row, "row");
		ww_str_addf(s, "\t\t(void)row;\n%s\t}\n}\n\n", pl_indent(pl, pl_fmt(pl, "%s%s", passes(pl, k), l->finish), 2));
	}
	k->launch = pl_named(pl, k,
		"\t{\n\t\tconst long long items = %s, work = %s;\n"
		"\t\tconst long long per = ww_max(1, ww_min(%d / work, ww_cdiv(items, 4 * ww_device(p)->threads)));\n\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(items, per), 1, 1, 1, 1, 1);\n%s%s\t\tww_arg_i64(p, per);\n\t}\n",
		ix_text(pl, items), ix_text(pl, work), l->tile,
		l->n_cached ? pl_fmt(pl, "\t\tww_shared(p, %d * (ww_cdiv(work, 16) + 17) * 64);\n", l->n_cached) : "",
		pl_plan_args(pl, k, "\t\t"));
}

/* ---- Skeletons of the cookbook ----------------------------------------------------------------------------------- */

static void print_skeleton(struct pl *pl, struct kern *k, struct ww_str *s)
{
	static const struct {
		const char *name;
		int keep; /* rows of scratch */
	} skeleton[] = { [SOFTMAX] = { "ww_cpu_softmax", 2 },
		[LOG_SOFTMAX] = { "ww_cpu_log_softmax", 1 },
		[LSE] = { NULL, 0 },
		[LAYERNORM] = { "ww_cpu_layernorm", 1 },
		[RMSNORM] = { "ww_cpu_rmsnorm", 1 } };
	const struct loop *l = k->loop;
	const char *col = k->col[0]->name, *cols = ix_text(pl, l->len), *call;
	int tile = pl_knobs(pl, k->id)->cpu_rows.tile;
	struct ww_str d = pl_text(pl);

	pl_decode(pl, &d, "\t", k->row, l->n_row, "r");
	ww_str_adds(&d, "\n\t(void)r;\n");
	pl_cpu_context(pl, k, s);
	pl_cpu_functor(
		pl, k, s, pl_fmt(pl, "ww_vf @_load(const void *ctx, long long r, long long %s, int n)", col), d.p, l->load);
	if (l->skeleton == LSE) {
		pl_cpu_functor(pl, k, s, "void @_row(const void *ctx, long long r, float *scratch)",
			pl_named(pl, k, "\tconst float v = ww_row_lse(@_load, ctx, r, %s);\n%s\t(void)scratch;\n", cols, d.p),
			l->store);
		call = "ww_cpu_rows(b, arg, @_row, &c)";
	} else {
		pl_cpu_functor(pl, k, s,
			pl_fmt(pl, "void @_store(const void *ctx, long long r, long long %s, ww_vf v, int n)", col), d.p, l->store);
		call = pl_fmt(pl, "%s(b, arg, %s@_load, @_store, &c)", skeleton[l->skeleton].name,
			l->eps ? pl_fmt(pl, "%s, ", l->eps) : "");
	}
	pl_cpu_kernel(pl, k, s, "WW_ROWS_ARGS", call);
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_rows(p, \"@\", &(struct ww_cpu_rows){ .rows = %s, .cols = %s, .keep = %d%s });\n%s",
		ix_text(pl, l->outer), cols, skeleton[l->skeleton].keep,
		tile ? pl_fmt(pl, ", .per = ww_max(1, %d / %s)", tile, cols) : "", pl_plan_args(pl, k, "\t"));
}

void pl_print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	if (k->kind == K_POINT)
		print_point(pl, k, s);
	else if (k->kind == K_ROW)
		(k->loop->skeleton ? print_skeleton : print_rows)(pl, k, s);
	else
		pl_anchor_ops[k->anchor->kind]->print[0](pl, k, s);
}

const char *pl_headers_cpu(struct pl *pl)
{
	pl->recipes = "#include <ww/recipe/cpu.h>\n";
	return "#include <ww/cpu/planner.h>\n";
}
