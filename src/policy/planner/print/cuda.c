/* cuda.c - writes schedules as kernels.cu and launches, for the cuda target.
 *
 * Pointwise: a thread does U vectors of V contiguous elements of the last axis; a contiguous load is one access of up
 * to 16 bytes.  plan.c chooses V so that every such access is aligned (all other strides are multiples of V).
 *
 * Rows whose columns are contiguous in memory: T threads share a row (a part of a warp, or a block).  Each thread holds
 * in registers its vectors of every input that a reduction reads, so that later stages and the final pass do not load
 * them again.  Longer rows are loaded once a stage, from L2 after the first time.
 *
 * Rows that are adjacent in memory: each thread has a row, and a warp has TX adjacent rows; TY warps share the columns,
 * and hold them in registers where several passes read them and they are few enough.
 *
 * The arithmetic is a loop over the V lanes that the compiler unrolls; only loads and stores know about vectors. */
#include "policy/planner/print/print.h"

#include <string.h>

/* Text of plan.c that chooses V: the largest of vec, vec / 2, ... 1 that divides the lane's extent and all terms. */
static const char *pick_v(struct pl *pl, const struct kern *k)
{
	return pl_fmt(pl,
		"\t\tconst long long terms = %s%s;\n\t\tint v = %d;\n\n\t\twhile (v > 1 && terms %% v)\n\t\t\tv /= 2;\n",
		ix_text(pl, k->loop->lane->b), k->loop->terms, k->loop->vec);
}

/* The number of the block, from which its place follows. */
static const char *block_of(const struct kern *k) { return k->loop->backwards ? "ww::from_end_x()" : "blockIdx.x"; }

/* The row and column of a thread of a pointwise kernel: vectors in order; or in tiles of four warps one below the
 * other. */
static const char *point_place(struct pl *pl, const struct kern *k)
{
	if (!k->loop->across &&
		(k->loop->asks_ahead ||
			k->loop->behind)) /* beyond the end the last vector again: no load waits for a comparison */
		return pl_named(pl, k,
			"\t\tconst ix_t t = ((ix_t)%s * @_U + u) * @_BLOCK + threadIdx.x;\n"
			"\t\tconst bool live = t < total;\n"
			"\t\tconst ix_t row = (live ? t : total - 1) / cols, c = (live ? t : total - 1) %% cols * V;\n",
			block_of(k));
	if (!k->loop->across)
		return pl_named(pl, k,
			"\t\tconst ix_t t = ((ix_t)%s * @_U + u) * @_BLOCK + threadIdx.x;\n\n\t\tif (t >= total)\n"
			"\t\t\tbreak;\n"
			"\t\tconst ix_t row = t / cols, c = t %% cols * V;\n",
			block_of(k));
	return pl_named(pl, k,
		"\t\tenum { HIGH = @_HIGH, WIDE = 32 / HIGH, DOWN = @_DOWN, FAR = WIDE * (@_BLOCK / 32 / DOWN) };\n"
		"\t\tconst ix_t tiles = (cols + FAR - 1) / FAR, tile = (ix_t)%s%s;\n"
		"\t\tconst int warp = threadIdx.x / 32, lane = threadIdx.x %% 32;\n"
		"\t\tconst ix_t below = tile / (@_TALL * tiles) * @_TALL + tile %% @_TALL, beside = tile / @_TALL %% tiles;\n"
		"%s",
		block_of(k), k->loop->behind ? "" : pl_named(pl, k, " * @_U + u"),
		k->loop->behind ? pl_named(pl, k,
							  "\t\tconst ix_t own = ((below * DOWN + warp %% DOWN) * HIGH + lane / WIDE) * @_U + u;\n"
							  "\t\tconst ix_t at = beside * FAR + warp / DOWN * WIDE + lane %% WIDE;\n"
							  "\t\tconst bool live = at < cols && own * cols < total;\n"
							  "\t\tconst ix_t row = live ? own : 0, c = live ? at * V : 0;\n")
						: "\t\tconst ix_t row = (below * DOWN + warp % DOWN) * HIGH + lane / WIDE;\n"
						  "\t\tconst ix_t at = beside * FAR + warp / DOWN * WIDE + lane % WIDE, c = at * V;\n\n"
						  "\t\tif (at >= cols || row * cols >= total)\n\t\t\tcontinue;\n");
}

/* Text of plan.c: the shape of the tiles, and their order.  Where a row has few vectors (the channels of an image),
 * more rows are in a tile: else threads would have no column.  Up to eight tiles one below the other come before those
 * beside them, as far as the last axis of the rows has whole ones: along the lane alone, blocks that run at a time
 * would read 128 bytes of each of 34,000 rows (a matrix of 4,096 columns), each in another page of memory. */
static const char *point_shape(struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	int warps = l->threads / 32;

	if (!l->across)
		return "";
	return pl_named(pl, k,
		"\t\tint high = %d, down = %d, tall = 1;\n\n"
		"\t\twhile (high < 32 && 32 / high >= 2 * (%s / v))\n\t\t\thigh *= 2;\n"
		"\t\twhile (down < %d && 32 / high * (%d / down) >= 2 * (%s / v))\n\t\t\tdown *= 2;\n"
		"\t\twhile (tall < 8 && %s %% (%d * tall * down * high) == 0)\n\t\t\ttall *= 2;\n"
		"\t\tww_define(p, \"@_HIGH\", high);\n\t\tww_define(p, \"@_DOWN\", down);\n"
		"\t\tww_define(p, \"@_TALL\", tall);\n",
		l->across, (int)ww_min(4, warps), ix_text(pl, l->len), warps, warps, ix_text(pl, l->len),
		ix_text(pl, l->last_row), 2 * (l->behind ? l->unroll : 1));
}

/* Text of plan.c: the number of blocks. */
static const char *point_blocks(struct pl *pl, const struct loop *l, const char *rows, const char *cols)
{
	if (!l->across)
		return pl_fmt(pl, "ww_cdiv(%s * (%s / v), %d)", rows, cols, l->unroll * l->threads);
	if (l->behind)
		return pl_fmt(pl, "ww_cdiv(%s, down * high * %d) * ww_cdiv(%s / v, 32 / high * (%d / down))", rows, l->unroll,
			cols, l->threads / 32);
	return pl_fmt(pl, "ww_cdiv(ww_cdiv(%s, down * high) * ww_cdiv(%s / v, 32 / high * (%d / down)), %d)", rows, cols,
		l->threads / 32, l->unroll);
}

/* The loads of a vector of each operand, the arithmetic, and the stores, unless these are behind. */
static const char *point_vector(struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];

	int n = l->asks_ahead ? 0 : p->n_load - l->kept; /* of those that are loaded here */

	return pl_fmt(pl,
		"%s%s\t\t#pragma unroll\n\t\tfor (int l = 0; l < V; l++) {\n\t\t\tconst ix_t %s = c + l;\n%s\t\t}\n%s",
		pl_indent(pl, pl_fmt(pl, "%s%s", pl_cuda_arrays(pl, p->load, n, "[V]"), l->behind ? "" : p->arrays), 2),
		pl_indent(pl, pl_cuda_loads(pl, l->lane, p->load, n, "c", ""), 2), l->lane->name, pl_indent(pl, p->last, 3),
		l->behind ? "" : pl_indent(pl, p->after, 2));
}

const char *pl_cuda_first(const struct pl *pl) { return pl_overlap(pl) ? "\tww::wait_for_last();\n" : ""; }

/* The loop over a thread's vectors, each with its place: all of its statements but the stores, then these alone. */
static const char *point_loops(struct pl *pl, const struct kern *k, const char *place, const char *row)
{
	static const char *const open = "\t#pragma unroll\n\tfor (int u = 0; u < @_U; u++) {\n%s%s%s\t}\n";
	const struct pass *p = &k->loop->pass[0];
	const char *loop = pl_named(pl, k, open, place, row, point_vector(pl, k));

	if (!k->loop->behind)
		return loop;
	return pl_fmt(
		pl, "%s%s%s", pl_indent(pl, p->arrays, 1), loop, pl_named(pl, k, open, place, "", pl_indent(pl, p->after, 2)));
}

/* No block crosses the end of a row; which part of which one it has: rows_first.  Threads beyond it load the last
 * vector again and do not store, so that no load waits for a comparison.  The block size is chosen so that less than a
 * warp is beyond the end. */
static void print_point_by_row(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len), *block = block_of(k);
	const char *place = l->rows_first ? pl_fmt(pl, "row = %s %% rows, first = %s / rows", block, block)
									  : pl_fmt(pl, "row = %s / chunks, first = %s %% chunks", block, block);
	const char *of = l->rows_first ? pl_fmt(pl, "rows = %s", rows)
								   : pl_named(pl, k, "chunks = (cols + @_U * @_BLOCK - 1) / (@_U * @_BLOCK)");

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_BLOCK) @(%s)\n{\n%s\tenum { V = @_V };\n"
			"\tconst ix_t cols = %s / V, %s;\n\tconst ix_t %s * (@_U * @_BLOCK) + threadIdx.x;\n",
			k->title, pl_cuda_params(pl, k), pl_cuda_first(pl), cols, of, place));
	pl_decode(pl, s, "\t", k->row, l->n_row, "row");
	ww_str_addf(s, "%s\n%s}\n\n", pl_indent(pl, l->pass[0].row, 1),
		point_loops(pl, k,
			pl_named(pl, k,
				"\t\tconst ix_t at = first + u * @_BLOCK;\n\t\tconst bool live = at < cols;\n"
				"\t\tconst ix_t c = (live ? at : cols - 1) * V;\n"),
			""));
	k->launch = pl_named(pl, k,
		"\t{\n%s\t\tconst long long rows = %s, cols = %s / v;\n\t\tlong long chunks = ww_cdiv(cols, %d), u;\n\n"
		"\t\tif (rows * chunks < 8LL * ww_device(p)->sm_count)\n\t\t\tchunks = ww_cdiv(cols, %d);\n"
		"\t\tu = ww_cdiv(cols, chunks * %d);\n"
		"\t\tconst long long block = 32 * ww_cdiv(cols, 32 * chunks * u);\n\n"
		"\t\tww_define(p, \"@_V\", v);\n\t\tww_define(p, \"@_U\", u);\n\t\tww_define(p, \"@_BLOCK\", block);\n"
		"\t\tww_launch(p, \"@\", rows * ww_cdiv(cols, u * block), 1, 1, block, 1, 1);\n%s\t}\n",
		pick_v(pl, k), rows, cols, l->unroll * l->threads, l->threads, l->threads, pl_plan_args(pl, k, "\t\t"));
}

/* T threads have a row, and a block several rows; what is computed once a row is, by each of them.  As above, threads
 * beyond the end load the last vector again. */
static void print_point_beside(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len);

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_BLOCK) @(%s)\n{\n%s"
			"\tenum { V = @_V, T = @_T };\n"
			"\tconst ix_t cols = %s / V, rows = %s, own = (ix_t)%s * (@_BLOCK / T) + threadIdx.x / T;\n"
			"\tconst ix_t row = own < rows ? own : rows - 1, first = threadIdx.x %% T;\n",
			k->title, pl_cuda_params(pl, k), pl_cuda_first(pl), cols, rows, block_of(k)));
	pl_decode(pl, s, "\t", k->row, l->n_row, "row");
	ww_str_addf(s, "%s\n%s}\n\n", pl_indent(pl, l->pass[0].row, 1),
		point_loops(pl, k,
			"\t\tconst ix_t at = first + u * T;\n\t\tconst bool live = at < cols && own < rows;\n"
			"\t\tconst ix_t c = (at < cols ? at : cols - 1) * V;\n",
			""));
	k->launch = pl_named(pl, k,
		"\t{\n%s\t\tconst long long rows = %s, cols = %s / v, most = ww_min(%d, %d / v);\n"
		"\t\tlong long t = ww_max(1, %d / v);\n\n\t\twhile (t < %d && t * most < cols)\n\t\t\tt *= 2;\n"
		"\t\tww_define(p, \"@_V\", v);\n\t\tww_define(p, \"@_T\", t);\n"
		"\t\tww_define(p, \"@_U\", ww_cdiv(cols, t));\n\t\tww_define(p, \"@_BLOCK\", %d);\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(rows * t, %d), 1, 1, %d, 1, 1);\n%s\t}\n",
		pick_v(pl, k), rows, cols, PL_BESIDE, l->beside, l->segment, l->threads, l->threads, l->threads, l->threads,
		pl_plan_args(pl, k, "\t\t"));
}

/* A thread keeps its columns, whose operands it loads once, and has several rows. */
static void print_point_down(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];
	const struct vload *kept = p->load + p->n_load - l->kept;
	const char *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len);
	struct ww_str place = pl_text(pl);

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_BLOCK) @(%s)\n{\n%s\tenum { V = @_V };\n"
			"\tconst ix_t cols = %s / V, rows = %s, high = @_BLOCK / cols, c = threadIdx.x %% cols * V;\n"
			"\tconst ix_t first = (ix_t)%s * (@_U * high) + threadIdx.x / cols;\n",
			k->title, pl_cuda_params(pl, k), pl_cuda_first(pl), cols, rows, block_of(k)));
	ww_str_adds(s, pl_indent(pl, pl_cuda_arrays(pl, kept, l->kept, "[V]"), 1));
	ww_str_addf(s, "%s\n", pl_indent(pl, pl_cuda_loads(pl, l->lane, kept, l->kept, "c", ""), 1));
	ww_str_adds(&place,
		"\t\tconst ix_t own = first + u * high;\n\t\tconst bool live = own < rows;\n"
		"\t\tconst ix_t row = live ? own : rows - 1;\n");
	pl_decode(pl, &place, "\t\t", k->row, l->n_row, "row");
	ww_str_addf(s, "%s}\n\n", point_loops(pl, k, place.p, ""));
	k->launch = pl_named(pl, k,
		"\t{\n%s\t\tconst long long rows = %s, cols = %s / v, high = ww_max(1, %d / cols);\n\n"
		"\t\tif (cols > 1024)\n\t\t\tww_fail(p, \"rows are too long for a block\");\n"
		"\t\tww_define(p, \"@_V\", v);\n\t\tww_define(p, \"@_U\", %d);\n\t\tww_define(p, \"@_BLOCK\", high * cols);\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(rows, %d * high), 1, 1, high * cols, 1, 1);\n%s\t}\n",
		pick_v(pl, k), rows, cols, l->threads, l->unroll, l->unroll, pl_plan_args(pl, k, "\t\t"));
}

/* The loads of all of a thread's vectors, ahead of the first store: the compiler moves none past a store. */
static void print_loads_ahead(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];

	ww_str_addf(s, "%s\n\t#pragma unroll\n\tfor (int u = 0; u < %s_U; u++) {\n%s",
		pl_indent(pl, pl_cuda_arrays(pl, p->load, p->n_load, pl_fmt(pl, "[%s_U][V]", k->name)), 1), k->name,
		point_place(pl, k));
	pl_decode(pl, s, "\t\t", k->row, l->n_row, "row");
	ww_str_addf(s, "%s\t}\n", pl_indent(pl, pl_cuda_loads(pl, l->lane, p->load, p->n_load, "c", "[u]"), 2));
}

static void print_point(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len);
	struct ww_str place = pl_text(pl);

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_BLOCK) @(%s)\n{\n%s\tenum { V = @_V };\n"
			"\tconst ix_t cols = %s / V, total = (ix_t)%s * cols;\n\n",
			k->title, pl_cuda_params(pl, k), pl_cuda_first(pl), cols, rows));
	if (l->asks_ahead)
		print_loads_ahead(pl, k, s);
	ww_str_adds(&place, point_place(pl, k));
	pl_decode(pl, &place, "\t\t", k->row, l->n_row, "row");
	ww_str_addf(s, "%s}\n\n", point_loops(pl, k, place.p, pl_indent(pl, l->pass[0].row, 2)));
	k->launch = pl_named(pl, k,
		"\t{\n%s%s\t\tww_define(p, \"@_V\", v);\n\t\tww_define(p, \"@_U\", %d);\n\t\tww_define(p, \"@_BLOCK\", %d);\n"
		"\t\tww_launch(p, \"@\", %s, 1, 1, %d, 1, 1);\n%s\t}\n",
		pick_v(pl, k), point_shape(pl, k), l->unroll, l->threads, point_blocks(pl, l, rows, cols), l->threads,
		pl_plan_args(pl, k, "\t\t"));
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Steps of a thread along its row that are unrolled; threads of a block of a ring, and of one of windows; turns that
 * each of a pair of rows is added up in: as many as its loop is unrolled would be 16 registers. */
/* MANY_LOADS: so many vectors of a step are enough under way two steps at a time.  The registers of four leave fewer
 * blocks on a multiprocessor (glu of 1,344 rows of 16,000 by six loads a step: 48, five blocks, so that 24 rows wait
 * for two waves; 40 and six), and more steps are left over, which wait one by one. */
enum { STEPS = 4, MANY_LOADS = 4, RING_THREADS = 512, WINDOW_THREADS = 256, PAIRED_TURNS = 4 };

static const char *red_op(enum pl_red r)
{
	static const char *const names[] = { "PL_SUM", "PL_PROD", "PL_MAX", "PL_MIN", "PL_MAX", "PL_MIN" };

	return names[r];
}

/* What a thread has gathered of reduction i for a later one (planner.cuh). */
static const char *gathered(const struct val *r) { return r->red == RED_MAX ? "pl_exponentials" : "pl_squares"; }

/* Is reduction i a sum of so many elements of a thread that it is added up in turns (pl_turns)?  Shorter ones are
 * unrolled, or held. */
static int in_turns(const struct kern *k, int i)
{
	const struct loop *l = k->loop;
	const struct val *r = k->red[i];

	return l->along == ROWS && !l->held && ix_num(l->len) > PL_HELD && r->red == RED_SUM &&
		pl_computed_as_float(r->arg[0]->dt) && !l->step[i].by && !l->step[i].gathers && !r->scans;
}

/* Is reduction i a place that is looked for by vectors (pl_first)?  Those of a ring do not ascend. */
static int by_vectors(const struct kern *k, int i)
{
	return k->red[i]->red >= RED_ARGMAX && k->loop->along != ROWS && !k->loop->ring;
}

static void open_sum(struct pl *pl, const struct kern *k, int i, struct ww_str *s)
{
	const struct step *st = &k->loop->step[i];
	const struct val *r = k->red[i];

	if (st->by)
		return;
	if (r->scans) {
		ww_str_addf(s, r->scans == SCANS_BACK ? "float scan%d[CH][V];\n" : "float scan%d[CH][V] = {};\n", i);
		if (r->scans == SCANS_BACK)
			ww_str_addf(s, "ww::scan_clear<ww::OP_%s>(scan%d);\n", red_op(r->red) + strlen("PL_"), i);
		return;
	}
	if (st->gathers) {
		ww_str_addf(s, "%s g%d;\n", gathered(r), i);
		return;
	}
	if (in_turns(k, i)) {
		ww_str_addf(s, "pl_turns<%d> s%d;\n", pl_unrolled_down(pl, (struct kern *)k), i);
		return;
	}
	if (by_vectors(k, i)) {
		ww_str_addf(s, "pl_first<%s, V, %s> f%d(%s);\n", red_op(r->red), pl_acc_type(r->arg[0]->dt), i,
			pl_ident(pl, r->red, r->arg[0]->dt));
		return;
	}
	ww_str_addf(s, "%s a%d = %s;\n", pl_acc_type(r->arg[0]->dt), i, pl_ident(pl, r->red, r->arg[0]->dt));
	if (r->red >= RED_ARGMAX)
		ww_str_addf(s, "ix_t w%d = 0;\n", i);
}

static void add_column(struct pl *pl, struct kern *k, int i, struct ww_str *s)
{
	const struct step *st = &k->loop->step[i];
	const struct val *r = k->red[i];

	ww_str_adds(s, st->before);
	if (r->scans)
		ww_str_addf(s, "scan%d[j][l] = %s;\n", i, st->value.t);
	else if (st->gathers)
		ww_str_addf(s, "y%d[%s] = %s;\n", i, k->loop->along == ROWS ? "0" : "l", st->value.t);
	else if (in_turns(k, i))
		ww_str_addf(s, "s%d.add(%s);\n", i, st->value.t);
	else if (by_vectors(k, i))
		ww_str_addf(s, "y%d[l] = %s;\n", i, st->value.t);
	else if (r->red >= RED_ARGMAX)
		ww_str_addf(
			s, "pl_take<%s>(a%d, w%d, %s, (ix_t)%s);\n", red_op(r->red), i, i, st->value.t, pl_linear_column(pl, k));
	else
		ww_str_addf(s, "a%d = %s;\n", i, pl_combine(pl, r->red, r->arg[0]->dt, pl_fmt(pl, "a%d", i), st->value.t, 0));
}

static void close_sum(const struct kern *k, int i, struct ww_str *s)
{
	const struct step *st = &k->loop->step[i];
	enum pl_red red = k->red[i]->red;
	const char *across = k->loop->along == ROWS ? "down" : "across", *threads = k->loop->along == ROWS ? "TX, TY" : "T";

	if (k->red[i]->scans) {
		ww_str_addf(s, "ww::scan_held<ww::OP_%s, T%s>(scan%d, box);\n", red_op(red) + strlen("PL_"),
			k->red[i]->scans == SCANS_BACK ? ", true" : "", i);
		return;
	}
	if (st->by)
		ww_str_addf(s, "float a%d = g%d.about(%s);\n", i, (int)(st->by - k->loop->step), st->centre);
	else if (st->gathers)
		ww_str_addf(s, "float a%d = g%d.result();\n", i, i);
	else if (in_turns(k, i))
		ww_str_addf(s, "float a%d = s%d.result();\n", i, i);
	else if (by_vectors(k, i))
		ww_str_addf(s, "%s a%d = f%d.best;\nix_t w%d = f%d.place();\n", pl_acc_type(k->red[i]->arg[0]->dt), i, i, i, i);
	if (red >= RED_ARGMAX)
		ww_str_addf(s, "pl_%s_arg<%s, %s>(a%d, w%d, box);\n", across, red_op(red), threads, i, i);
	else
		ww_str_addf(s, "a%d = pl_%s<%s, %s>(a%d, box);\n", i, across, red_op(red), threads, i);
	if (k->loop->ring)
		ww_str_addf(s, "if (CL > 1)\n\ta%d = pl_all<%s, CL>(ring.share(%d, a%d));\n", i, red_op(red), i, i);
	else if (k->loop->cluster)
		ww_str_addf(s, "a%d = pl_cluster<%s, CL>(a%d, &cbox[%d]);\n", i, red_op(red), i, i);
}

/* Declare the column variables from the linear index c; the last one is called `start`. */
static const char *column_axes(struct pl *pl, const struct kern *k, const char *start)
{
	const struct ix_atom *axis[PL_MAX_RANK];
	struct ww_str s = pl_text(pl);

	memcpy(axis, k->col, sizeof(axis));
	if (start)
		axis[k->n_col - 1] = ix_as_var(ix_var(pl, start, k->col[k->n_col - 1]->b));
	pl_decode(pl, &s, "", axis, k->n_col, "c");
	return s.p;
}

/* What reductions take by vectors: an array of a vector's elements, and what takes it. */
struct gathering {
	struct ww_str arrays, after;
};

static void add_gathering(const struct kern *k, int i, struct gathering *g)
{
	const struct loop *l = k->loop;

	if (by_vectors(k, i)) {
		ww_str_addf(&g->arrays, "%s y%d[V];\n", pl_acc_type(k->red[i]->arg[0]->dt), i);
		ww_str_addf(&g->after, "f%d.add(y%d, c);\n", i, i);
		return;
	}
	if (!l->step[i].gathers)
		return;
	ww_str_addf(&g->arrays, "float y%d[%s];\n", i, l->along == ROWS ? "1" : "V");
	ww_str_addf(&g->after, "g%d.add(y%d);\n", i, i);
}

/* A pass some of whose reads lie under conditions that hold for all columns of most rows: those have no comparisons. */
static const char *in_two_forms(struct pl *pl, const struct pass *p, const char *loop)
{
	if (!*p->inside)
		return loop;
	return pl_fmt(pl, "if (%s) {\nconstexpr bool inside = true;\n\n%s} else {\nconstexpr bool inside = false;\n\n%s}\n",
		p->inside, loop, loop);
}

static void print_pass(struct pl *pl, struct kern *k, const struct pass *p, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *lane = k->col[k->n_col - 1]->name, *start = pl_fmt(pl, "%s_0", lane), *sub = l->held ? "[j]" : "", *one;
	struct ww_str b = pl_text(pl);
	struct gathering g = { pl_text(pl), pl_text(pl) };
	int alone = p->stage == k->n_stage;

	for (int i = 0; i < k->n_red; i++)
		if (k->red_stage[i] == p->stage && !l->step[i].by) {
			add_column(pl, k, i, &b);
			add_gathering(k, i, &g);
			alone = 1;
		}
	ww_str_adds(&b, p->last);
	ww_str_adds(s, p->row);
	if (!alone)
		return;
	if (l->along == ROWS && l->held) {
		if (p->n_load) /* all ahead of the first use, and without branches, behind which each would be waited for */
			ww_str_addf(s,
				"%s#pragma unroll\nfor (int j = 0; j < CH; j++) {\n"
				"const ix_t c = (ix_t)j * TY + ty < cols ? (ix_t)j * TY + ty : cols - 1;\n\n%s%s}\n",
				pl_cuda_arrays(pl, p->load, p->n_load, "[CH][1]"), column_axes(pl, k, NULL),
				pl_cuda_loads(pl, l->lane, p->load, p->n_load, l->lane->name, "[j]"));
		ww_str_addf(s,
			"#pragma unroll\nfor (int j = 0; j < CH; j++) {\nconst ix_t c = (ix_t)j * TY + ty;\n\n"
			"if (c < cols) {\n%s%s}\n}\n",
			column_axes(pl, k, NULL), b.p);
		return;
	}
	if (l->along == ROWS) {
		const char *loop = pl_fmt(pl, "#pragma unroll %d\nfor (ix_t c = ty; c < cols; c += TY) {\n%s%s%s%s}\n",
			pl_unrolled_down(pl, k), column_axes(pl, k, NULL), g.arrays.p, b.p, g.after.p);

		ww_str_adds(s, l->several ? loop : in_two_forms(pl, p, loop));
		return;
	}
	one = pl_fmt(pl, "%s%s%s%s%s#pragma unroll\nfor (int l = 0; l < V; l++) {\nconst ix_t %s = %s + l;\n%s}\n%s%s}\n",
		column_axes(pl, k, start), l->held ? "" : pl_cuda_arrays(pl, p->load, p->n_load, "[V]"), p->arrays, g.arrays.p,
		pl_cuda_loads(pl, l->lane, p->load, p->n_load, start, sub), lane, start, b.p, g.after.p, p->after);
	if (l->ring)
		ww_str_addf(s,
			"#pragma unroll %d\nfor (ix_t c = (ix_t)ring.begin + lane * V; c < ring.whole; c += T * V) {\n%s"
			"for (int i = lane; i < ring.edges; i += T) {\nenum { V = 1 };\nconst ix_t c = (ix_t)ring.edge(i);\n\n%s",
			STEPS, one, one);
	else if (l->held)
		ww_str_addf(s,
			"%s#pragma unroll\nfor (int j = 0; j < CH; j++) {\n"
			"const ix_t c = ((ix_t)(j * CL + rank) * T + lane) * V;\n\nif (c < cols) {\n%s}\n",
			pl_cuda_arrays(pl, p->load, p->n_load, "[CH][V]"), one);
	else
		ww_str_addf(s, "%sfor (ix_t c = (ix_t)(rank * T + lane) * V; c < cols; c += T * CL * V) {\n%s",
			l->stepwise ? pl_fmt(pl, "#pragma unroll %d\n", p->n_load < MANY_LOADS ? STEPS : STEPS / 2) : "", one);
}

/* The variables of one of a thread's neighbouring rows, l. */
static const char *one_of_pair(struct pl *pl, const struct kern *k)
{
	const char *lane = k->loop->lane->name, *s = pl_fmt(pl, "const ix_t %s = %s_0 + l;\n", lane, lane);

	for (int i = 0; i < k->n_red; i++)
		s = pl_fmt(pl, in_turns(k, i) ? "%sauto &s%d = all%d[l];\n" : "%sauto &a%d = all%d[l];\n", s, i, i);
	return s;
}

/* The same for V neighbouring rows, whose elements are loaded together. */
static const char *paired_body(struct pl *pl, struct kern *k)
{
	static const char each[] = "#pragma unroll\nfor (int l = 0; l < V; l++) {\n%s";
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];
	const char *start = pl_fmt(pl, "%s_0", l->lane->name), *one = one_of_pair(pl, k);
	struct ww_str s = pl_text(pl), b = pl_text(pl);

	ww_str_adds(&s, p->row);
	for (int i = 0; i < k->n_red; i++) {
		const struct val *r = k->red[i];

		if (in_turns(k, i))
			ww_str_addf(&s, "pl_turns<%d> all%d[V];\n", PAIRED_TURNS, i);
		else
			ww_str_addf(&s, "float all%d[V];\n#pragma unroll\nfor (int l = 0; l < V; l++)\n\tall%d[l] = %s;\n", i, i,
				pl_ident(pl, r->red, r->arg[0]->dt));
		add_column(pl, k, i, &b);
	}
	ww_str_addf(&s, "#pragma unroll %d\nfor (ix_t c = ty; c < cols; c += TY) {\n%s%s%s", pl_unrolled_down(pl, k),
		column_axes(pl, k, NULL), pl_cuda_arrays(pl, p->load, p->n_load, "[V]"),
		pl_cuda_loads(pl, l->lane, p->load, p->n_load, start, ""));
	ww_str_addf(&s, each, one);
	ww_str_addf(&s, "%s}\n}\n", b.p);
	ww_str_addf(&s, each, one);
	for (int i = 0; i < k->n_red; i++)
		close_sum(k, i, &s);
	ww_str_addf(&s, "%s}\n", l->finish);
	return pl_indent(pl, s.p, 1);
}

static const char *row_body(struct pl *pl, struct kern *k)
{
	struct ww_str s = pl_text(pl);

	if (k->loop->paired)
		return paired_body(pl, k);

	for (int n = 0; n < k->loop->n_pass; n++) {
		const struct pass *p = &k->loop->pass[n];

		for (int i = 0; i < k->n_red; i++)
			if (k->red_stage[i] == p->stage)
				open_sum(pl, k, i, &s);
		print_pass(pl, k, p, &s);
		for (int i = 0; i < k->n_red; i++)
			if (k->red_stage[i] == p->stage)
				close_sum(k, i, &s);
	}
	ww_str_adds(&s, k->loop->finish);
	return pl_indent(pl, s.p, 1);
}

/* Text of plan.c: at least so many elements a thread; where there are fewer than 8 threads a multiprocessor, loads are
 * waited for and nothing else. */
#define LEAST "cols >= (rows * ty < 8LL * ww_device(p)->sm_count ? 4 : 16) * ty"

/* Text of plan.c: of few long rows (what parts of statistics become) blocks with 8 rows, whose threads each wait for
 * fewer loads. */
#define FEW_ROWS                                                                                              \
	"\t\twhile (ty >= 16 && tx * ty <= 512 && " LEAST " && rows * ty < 128LL * ww_device(p)->sm_count) {\n" \
	"\t\t\tty *= 2;\n\t\t\ttx = tx > 8 ? tx / 2 : 8;\n\t\t}\n"

/* The same where threads hold what they read: as many share a row as leave each of them half of PL_HELD registers. */
static const char *hold_columns(struct pl *pl, const struct kern *k)
{
	int loads = pl_loads_held(k);

	return pl_fmt(pl,
		"\t\twhile (ty < %d && cols * %d > %d * ty) {\n\t\t\tty *= 2;\n\t\t\tif (tx > 32 && tx * ty > 256)\n"
		"\t\t\t\ttx /= 2;\n\t\t}\n" FEW_ROWS "\t\tif (ww_cdiv(cols, ty) * %d > %d)\n"
		"\t\t\tww_fail(p, \"rows are too long for registers\");\n"
		"\t\tww_define(p, \"%s_CH\", ww_cdiv(cols, ty));\n",
		PL_DOWN, loads, PL_HELD / 2, loads, PL_HELD, k->name);
}

/* Text of plan.c: of many long columns up to 8 threads share each, as long as a thread has some 256 left, in blocks of
 * 64 columns, all of which are under way: 524,160 columns of 4,096 floats take 1,967 us (U = 4, 128 x 8 the same), with
 * blocks of 256 x 1 2,192, of 32 x 16 2,025, with eight loads under way 2,160 and more; where rows begin with a vector
 * all of these are within 3% (H200).  Of few (what parts of statistics become) blocks have 8, and threads each wait for
 * fewer loads. */
#define LONG_COLUMNS                                                                                     \
	"\t\twhile (ty < 8 && cols >= 512 * ty && rows * ty < 32768LL * ww_device(p)->sm_count) {\n"           \
	"\t\t\tty *= 2;\n\t\t\tif (tx > 64 && tx * ty > 512)\n\t\t\t\ttx /= 2;\n\t\t}\n" FEW_ROWS

/* Threads of a block side by side, at least.  Long rows of neighbours of 16 bits, one a thread, have 64 of them, a
 * line, where columns are enough for blocks on all multiprocessors: half a line of each row is another page of memory
 * each (65,536 x 4,096 bfloat16 by 32 x 8 threads: 169 us, memory takes 128; 32,768 x 4,096 floats by 16 x 32 threads
 * 147, by 32 x 8 136, H200), and of an odd number of columns three sectors, of a whole line five. */
static int narrowest(const struct pl *pl, const struct loop *l)
{
	enum { ENOUGH = 256 };

	return l->in_lines && l->widest * (1 + l->paired) < 4 &&
			ix_num(l->outer) * ix_num(l->inner) >= ENOUGH * (int64_t)pl->dev.sm_count
		? 64
		: 32;
}

/* The same where one to four waves of blocks have all columns: more threads share each, as long as a thread has 64
 * left.  Why: the last wave has a few blocks on each multiprocessor, too few loads for memory, and lasts as long as a
 * block does (1,483 blocks of 32 x 8, 1,056 of them at once, each thread with 349 floats of 2,789: 172 us, by the bytes
 * 126, H200).  Neighbours read 64 bytes, so of 16 bits 32 columns share a block.  Of long rows of neighbours blocks do
 * not become narrower than a line (narrowest()). */
static const char *long_columns(struct pl *pl, const struct loop *l)
{
	if (ix_num(l->len) < 64)
		return LONG_COLUMNS;
	if (ix_num(l->len) < 128) /* two, each with 32 left (655,360 columns of 112 floats: 88 us, by the bytes 70, H200) */
		return "\t\tif (ty == 1 && cols >= 64 && rows >= 2048LL * ww_device(p)->sm_count &&\n"
			   "\t\t\trows < 8192LL * ww_device(p)->sm_count)\n\t\t\tty = 2;\n" LONG_COLUMNS;
	return pl_fmt(pl,
		"\t\twhile (%sty < %d && cols >= 128 * ty && rows * ty >= 2048LL * ww_device(p)->sm_count &&\n"
		"\t\t\trows * ty < 8192LL * ww_device(p)->sm_count) {\n"
		"\t\t\tty *= 2;\n\t\t\tif (tx > 16 && tx * ty > 512)\n\t\t\t\ttx /= 2;\n\t\t}\n" LONG_COLUMNS,
		l->in_lines ? pl_fmt(pl, "tx > %d && ", narrowest(pl, l)) : "", l->widest * (1 + l->paired) >= 4 ? 32 : 16);
}

/* The place of a thread's row: its variables, and whether there is such a row. */
static const char *row_down(struct pl *pl, const struct kern *k)
{
	const char *width = ix_text(pl, k->loop->inner);
	struct ww_str s = pl_text(pl);

	ww_str_addf(&s,
		k->loop->paired
			? "const ix_t row = (live ? at : rows - 1) / (%s / V), %s_0 = (live ? at : rows - 1) %% (%s / V) * V;\n"
			: "const ix_t row = (live ? at : rows - 1) / %s, %s = (live ? at : rows - 1) %% %s;\n",
		width, k->loop->lane->name, width);
	pl_decode(pl, &s, "", k->row, k->loop->n_row, "row");
	return s.p;
}

enum { ROWS_BESIDE = 32 }; /* rows that are stored side by side, of loop.across of the lane each */

/* The same where neighbouring threads have loop.across of the lane, and as many rows beside them. */
static const char *row_beside(struct pl *pl, const struct kern *k)
{
	const char *width = ix_text(pl, k->loop->inner);
	struct ww_str s = pl_text(pl);

	ww_str_addf(&s,
		"enum { WIDE = %d, HIGH = %d };\n"
		"const ix_t tile = at / (WIDE * HIGH), tiles = (%s + WIDE - 1) / WIDE;\n"
		"const ix_t over = tile / tiles * HIGH + at %% (WIDE * HIGH) / WIDE, "
		"beside = tile %% tiles * WIDE + at %% WIDE;\n"
		"const bool live = over < rows / %s && beside < %s;\n"
		"const ix_t row = live ? over : rows / %s - 1, %s = live ? beside : %s - 1;\n",
		k->loop->across, ROWS_BESIDE, width, width, width, width, k->loop->lane->name, width);
	pl_decode(pl, &s, "", k->row, k->loop->n_row, "row");
	return s.p;
}

/* A thread has U rows, windows of a few columns that mostly lie inside: where all of them do, no load of one waits for
 * a branch of another. */
static void print_windows(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *rows = ix_text(pl, ix_mul(pl, l->outer, l->inner)), *place = row_down(pl, k);

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_TX) @(%s)\n{\n%s"
			"\tenum { TX = @_TX, TY = 1, U = @_U };\n\tconst int ty = 0;\n\tdouble *const box = nullptr;\n"
			"\tconst ix_t rows = %s, cols = %s, first = (ix_t)blockIdx.x * (TX * U) + threadIdx.x;\n"
			"\tbool all = true;\n\tconst auto result = [&](const bool inside, const ix_t at) {\n"
			"\t\tconst bool live = inside || at < rows;\n%s%s\t};\n\n"
			"\t(void)box;\n\t#pragma unroll\n\tfor (int u = 0; u < U; u++) {\n\t\tconst ix_t at = first + u * TX;\n"
			"\t\tconst bool live = at < rows;\n%s\t\tall &= live && %s;\n\t}\n"
			"\tif (all) {\n\t\t#pragma unroll\n\t\tfor (int u = 0; u < U; u++)\n"
			"\t\t\tresult(true, first + u * TX);\n\t} else {\n\t\t#pragma unroll 1\n"
			"\t\tfor (int u = 0; u < U; u++)\n\t\t\tresult(false, first + u * TX);\n\t}\n}\n\n",
			k->title, pl_cuda_params(pl, k), pl_cuda_first(pl), rows, ix_text(pl, l->len), pl_indent(pl, place, 2),
			pl_indent(pl, row_body(pl, k), 1), pl_indent(pl, place, 2), l->pass[0].inside));
	k->launch = pl_named(pl, k,
		"\t{\n\t\tconst long long rows = %s;\n\n\t\tww_define(p, \"@_TX\", %d);\n\t\tww_define(p, \"@_U\", %d);\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(rows, %d), 1, 1, %d, 1, 1);\n%s\t}\n",
		rows, WINDOW_THREADS, l->several, WINDOW_THREADS * l->several, WINDOW_THREADS, pl_plan_args(pl, k, "\t\t"));
}

/* A thread is a row. */
static void print_rows_down(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *cols = ix_text(pl, l->len), *all = ix_text(pl, ix_mul(pl, l->outer, l->inner));
	const char *rows = l->paired ? pl_fmt(pl, "%s / V", all) : all;

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_TX * @_TY) @(%s)\n{\n%s"
			"\tenum { TX = @_TX, TY = @_TY%s };\n"
			"\t__shared__ double box[TY > 1 ? TX * TY * 2 : 1];\n"
			"\tconst int tx = threadIdx.x %% TX, ty = TY > 1 ? threadIdx.x / TX %% TY : 0;\n"
			"\tconst ix_t rows = %s, cols = %s, at = (ix_t)blockIdx.x * TX + tx;\n"
			"%s\n\t(void)box;\n%s}\n\n",
			k->title, pl_cuda_params(pl, k), pl_cuda_first(pl),
			l->held         ? pl_fmt(pl, ", CH = %s_CH", k->name)
				: l->paired ? pl_fmt(pl, ", V = %s_V", k->name)
							: "",
			rows, cols,
			pl_indent(
				pl, l->across ? row_beside(pl, k) : pl_fmt(pl, "const bool live = at < rows;\n%s", row_down(pl, k)), 1),
			row_body(pl, k)));
	k->launch = pl_named(pl, k,
		"\t{\n%s\t\tconst long long rows = %s%s, cols = %s;\n\t\tint tx = 256, ty = 1;\n\n"
		"\t\twhile (ty < 16 && " LEAST " && rows * ty < 2048LL * ww_device(p)->sm_count) {\n"
		"\t\t\tty *= 2;\n\t\t\tif (tx > %d && tx * ty > 256)\n\t\t\t\ttx /= 2;\n\t\t}\n"
		"%s\t\tww_define(p, \"@_TX\", tx);\n\t\tww_define(p, \"@_TY\", ty);\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(%s, tx), 1, 1, tx * ty, 1, 1);\n%s\t}\n",
		l->paired ? pl_fmt(pl, "%s\t\tww_define(p, \"%s_V\", v);\n", pick_v(pl, k), k->name) : "", all,
		l->paired ? " / v" : "", cols, l->held ? 32 : narrowest(pl, l),
		l->held ? hold_columns(pl, k) : long_columns(pl, l),
		l->across ? pl_fmt(pl, "ww_cdiv(%s, %d) * %d * ww_cdiv(%s, %d) * %d", ix_text(pl, l->outer), ROWS_BESIDE,
						ROWS_BESIDE, ix_text(pl, l->inner), l->across, l->across)
				  : "rows",
		pl_plan_args(pl, k, "\t\t"));
}

static int add_work(void *ctx, struct val *v, const struct ix *const *idx)
{
	(void)idx;
	*(int *)ctx += v->kind == V_OP ? pl_ops[v->op].cost : 0;
	return 0;
}

/* The work of all passes for an element, in the units of ops.def. */
static int work_of(struct pl *pl, const struct kern *k)
{
	const struct ix *idx[PL_MAX_RANK];
	struct walk w;
	int work = 0;

	for (int i = 0; i < k->n_red + k->n_out; i++) {
		struct val *v = i < k->n_red ? k->red[i]->arg[0] : k->out[i - k->n_red];

		pl_walk_init(&w, pl, v);
		w.stop = add_work;
		w.stop_ctx = &work;
		if (i < k->n_red)
			pl_red_element(k, i, idx);
		pl_walk(&w, v, i < k->n_red ? idx : k->out_idx[i - k->n_red]);
	}
	return work;
}

/* Bytes of an element of the widest load that is held; where none is a vector's (under a condition), of a float. */
static int held_size(const struct kern *k)
{
	const struct loop *l = k->loop;
	int size = 0;

	for (int p = 0; p < l->n_pass && l->pass[p].stage < k->n_stage; p++) /* a load that only outputs need is not held */
		for (int i = 0; i < l->pass[p].n_load; i++)
			size = (int)ww_max(size, pl_itemsize(l->pass[p].load[i].buf->dt));
	return size ? size : 4;
}

/* Text of plan.c: many short rows get fewer threads a row, each with several vectors.  Why: each thread of a row
 * repeats the work that is done once a row.  Limits: adjacent threads read at least 64 bytes together, or 16 where
 * vectors have less than 16 bytes (such rows are not aligned to sectors anyway, and the repeated work costs more than
 * their extra sectors); before a halving a thread holds at most 16 elements of all loads in registers, or 32 if fewer
 * threads are then idle in the last round; and the expressions are short, since long ones need the registers.  Long
 * rows without vectors also stay within the first level's cache, as many as an SM then has: several loads ask for a
 * sector (rows of 105 floats, four threads each: 1,188 us, and 360 of memory).  Long rows that are scanned are stored
 * as they are read, and both would be parts of sectors: there adjacent threads have 128 bytes (507,904 rows of 147
 * floats, a maximum ahead, by 8 threads each 275 us; the scan alone by a warp each 168, H200). */
static const char *fewer_threads(struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	int size = held_size(k), loads = pl_loads_held(k), bytes = 0; /* of a column, read by all passes */
	int least = pl_scans(k) && ix_num(l->len) >= 128 ? 128 : 16;
	const char *cached;

	if (l->along != COLUMNS || !l->held || l->threads || work_of(pl, k) > 96)
		return "";
	for (int p = 0; p < l->n_pass; p++)
		for (int i = 0; i < l->pass[p].n_load; i++)
			bytes += pl_itemsize(l->pass[p].load[i].buf->dt);
	cached = ix_num(l->len) % (16 / size) && ix_num(l->len) * bytes > 400
		? pl_fmt(pl, " &&\n\t\t\t4096 / t * cols * %d <= 200000", bytes)
		: "";
	return pl_fmt(pl,
		"\t\twhile (t <= 64 && t * v * %d > (v * %d < 16 ? %d : 64) && rows * t >= 8192LL * ww_device(p)->sm_count &&\n"
		"\t\t\tww_cdiv(cols, t * v) * v * %d <= (ww_cdiv(cols, t * v / 2) < 2 * ww_cdiv(cols, t * v) ? 32 : 16)%s)\n"
		"\t\t\tt /= 2;\n",
		size, size, least, loads ? loads : 1, cached);
}

/* Text of plan.c: elements of a row for each of its threads, from which on more threads share it.  Of many rows with
 * one operand that is held 24 in place of more than 256 threads: of smaller blocks some load while others reduce.  In
 * clusters it is blocks that are many: 512 rows of 36,864 floats by 8 blocks of 512 threads, 55 kB a multiprocessor,
 * took 92 us (H200, memory 36); by 256 threads it is 110 kB, in as many registers.  Of 16 bits in clusters, which wait
 * for each other twice while nothing is loaded, 56 where 128 threads do: 50,176 columns of 1,024 rows by 512 threads
 * (40 registers) are 38 kB a multiprocessor, by 128 (90) 63 kB; longer rows gain none. */
static const char *elements_of(const struct kern *k)
{
	const struct loop *l = k->loop;

	if (l->threads)
		return "64";
	if (!l->held || pl_loads_held(k) != 1)
		return "16";
	if (l->cluster && !l->n_cached && held_size(k) == 2)
		return "(t >= 128 && rows * cl >= 8LL * ww_device(p)->sm_count && cols <= 128 * cl * 56 ? 56\n"
			   "\t\t\t: t >= 256 && rows * cl >= 8LL * ww_device(p)->sm_count ? 24 : 16)";
	return l->cluster ? "(t >= 256 && rows * cl >= 8LL * ww_device(p)->sm_count ? 24 : 16)"
					  : "(t >= 256 && rows >= 8LL * ww_device(p)->sm_count ? 24 : 16)";
}

/* Text of plan.c: is the row of t threads long enough for twice as many?  Step by step each of them has STEPS whole
 * vectors then, since what is left of the unrolled loop is loaded one by one (10,240 rows of 4,608 floats by 512
 * threads: 14 us more than in registers). */
static const char *has_more_threads(struct pl *pl, const struct kern *k)
{
	return k->loop->stepwise ? pl_fmt(pl, "t < 512 && cols >= 2 * %d * t * v", STEPS)
							 : pl_fmt(pl, "t < 1024 && cols > t * cl * %s", elements_of(k));
}

/* Text of plan.c: the threads of a row, the blocks that share it, and the rows of a block. */
static const char *rows_shape(struct pl *pl, const struct kern *k)
{
	return pl_fmt(pl,
		"%s\t\twhile (%s)\n\t\t\tt *= 2;\n\t\twhile (t > 1 && t / 2 * v >= cols)\n\t\t\tt /= 2;\n"
		"%s\t\tif (t > 32 && rows * t < 64LL * ww_device(p)->sm_count)\n\t\t\twhile (t < 1024 && t * cl * v < cols)\n"
		"\t\t\t\tt *= 2;\n"
		"\t\tconst long long r = t >= 128 ? 1 : 128 / t * (t <= 32) + (t > 32), ch = ww_cdiv(cols, t * cl * v);\n\n",
		k->loop->cluster ? pl_fmt(pl,
							   "\t\twhile (cl < 8 && (cols > 8192 * cl ||\n"
							   "\t\t\t(cols >= 2 * %d * cl && 2 * rows * cl <= ww_device(p)->sm_count)))\n"
							   "\t\t\tcl *= 2;\n",
							   PL_SHARED)
						 : "",
		has_more_threads(pl, k), fewer_threads(pl, k));
}

/* What a block's threads left in shared memory, row by row, stored along the rows. */
static const char *store_turned(struct pl *pl, const struct kern *k)
{
	struct ww_str rows = pl_text(pl);

	if (!k->loop->turned)
		return "";
	pl_decode(pl, &rows, "\t\t", k->row, k->loop->n_row, "row");
	return pl_fmt(pl,
		"\t__syncthreads();\n\tif ((ix_t)%s * R + threadIdx.x %% R < rows) {\n"
		"\t\tconst ix_t row = (ix_t)%s * R + threadIdx.x %% R;\n%s"
		"\t\t#pragma unroll 8\n\t\tfor (ix_t c = threadIdx.x / R; c < cols; c += T) {\n%s%s\t\t}\n\t}\n",
		block_of(k), block_of(k), rows.p, pl_indent(pl, column_axes(pl, k, NULL), 3),
		pl_indent(pl, k->loop->turned, 3));
}

/* Text of plan.c: the threads of a row and the rows of a block that turns its result: a warp reads 64 bytes of a row at
 * once, or more, and stores 32 rows. */
static const char *turned_shape(struct pl *pl, const struct kern *k)
{
	return pl_fmt(pl,
		"\t\twhile (t < 32 && (t * v * %d < 64 || cols > t * 16))\n\t\t\tt *= 2;\n"
		"\t\tconst long long r = ww_max(%d, 256 / t), ch = ww_cdiv(cols, t * v);\n\n"
		"\t\tif (4 * cols * (r + 1) > 46 << 10)\n\t\t\tww_fail(p, \"rows are too long to be turned\");\n"
		"\t\tww_define(p, \"%s_TURNED\", cols);\n",
		held_size(k), PL_TURNED, k->name);
}

/* Rows in shared memory: the declarations and what fills them; `own` is the thread's row among them. */
static const char *stage_rows(struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	const char *stored = l->stored
		? pl_named(pl, k, "\t__shared__ __align__(16) %s stored[R * @_STORED];\n", pl_ctype(l->stored->dt, pl->target))
		: "";

	if (!l->staged)
		return "";
	return pl_named(pl, k,
		"\t__shared__ __align__(16) %s staged[R * @_STAGED];\n%s\tconst int own = (int)(row - (ix_t)%s * R);\n"
		"\tpl_stage<R * @_STAGED, T * R>(%s, (ix_t)%s * (R * @_STAGED), rows * cols, staged);\n",
		pl_ctype(l->staged->dt, pl->target), stored, block_of(k), l->staged->name, block_of(k));
}

static const char *store_staged(struct pl *pl, const struct kern *k)
{
	return k->loop->stored
		? pl_named(pl, k,
			  "\tpl_unstage<R * @_STORED, T * R>(stored, (ix_t)%s * (R * @_STORED), rows * @_STORED, %s);\n",
			  block_of(k), k->loop->stored->name)
		: "";
}

/* Text of plan.c: the threads of a row and the rows of a block that stages them: one thread, as far as there are rows
 * for all multiprocessors, half of its registers hold one, and an SM has room for several blocks. */
static const char *staged_shape(struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	const char *wide = l->stored ? ix_text(pl, l->wide) : "0";

	return pl_named(pl, k,
		"\t\tconst long long wide = %s, bytes = cols * %d + wide * %d;\n\n"
		"\t\twhile (t < 4 && (cols > 32 * t || rows * t < 2048LL * ww_device(p)->sm_count ||\n"
		"\t\t\t128 / t * bytes > 32 << 10))\n"
		"\t\t\tt *= 2;\n"
		"\t\tconst long long r = 128 / t, ch = ww_cdiv(cols, t * v);\n\n"
		"\t\tif (r * bytes > 46 << 10)\n\t\t\tww_fail(p, \"rows are too long to be staged\");\n"
		"\t\tww_define(p, \"@_STAGED\", cols);\n\t\tww_define(p, \"@_STORED\", wide);\n",
		wide, pl_itemsize(l->staged->dt), l->stored ? pl_itemsize(l->stored->dt) : 0);
}

/* T threads a row. */
static void print_rows_across(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len);

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_T * @_R) @(%s)\n{\n%s"
			"\tenum { T = @_T, R = @_R, V = @_V, CH = @_CH, CL = @_CL };\n"
			"\t__shared__ double box[64];\n\t__shared__ float cbox[CL > 1 ? %d : 1];\n%s"
			"\tconst int lane = threadIdx.x %% T, rank = %s %% CL;\n"
			"\tconst ix_t rows = %s, cols = %s, at = (ix_t)%s / CL * R + threadIdx.x / T;\n"
			"\tconst bool live = at < rows;\n\tconst ix_t row = live ? at : rows - 1;\n\n\t(void)box;\n\t(void)cbox;\n"
			"\t(void)row;\n%s",
			k->title, pl_cuda_params(pl, k), pl_cuda_first(pl), k->n_red ? k->n_red : 1,
			l->turned ? pl_named(pl, k, "\t__shared__ float turned[@_TURNED * (R + 1)];\n") : "", block_of(k), rows,
			cols, block_of(k), stage_rows(pl, k)));
	pl_decode(pl, s, "\t", k->row, l->n_row, "row");
	ww_str_addf(s, "%s%s%s%s}\n\n", row_body(pl, k), store_turned(pl, k), store_staged(pl, k),
		l->cluster ? "\tif (CL > 1)\n\t\tww::cluster_sync();	/* the others may still read cbox */\n" : "");
	k->launch = pl_named(pl, k,
		"\t{\n%s\t\tconst long long rows = %s, cols = %s;\n\t\tlong long t = %d, cl = 1;\n\n%s%s"
		"\t\tww_define(p, \"@_V\", v);\n\t\tww_define(p, \"@_T\", t);\n\t\tww_define(p, \"@_R\", r);\n"
		"\t\tww_define(p, \"@_CH\", ch);\n\t\tww_define(p, \"@_CL\", cl);\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(rows, r) * cl, 1, 1, t * r, 1, 1);\n\t\tif (cl > 1)\n"
		"\t\t\tww_cluster(p, (int)cl, 1, 1);\n%s\t}\n",
		pick_v(pl, k), rows, cols,
		l->threads      ? l->threads
			: l->turned ? 4
			: l->staged ? 1
						: 32,
		l->turned       ? turned_shape(pl, k)
			: l->staged ? staged_shape(pl, k)
						: rows_shape(pl, k),
		l->held ? "\t\tif (ch * v > 64)\n\t\t\tww_fail(p, \"rows are too long for registers\");\n" : "",
		pl_plan_args(pl, k, "\t\t"));
}

/* Rows that a cluster's blocks bring to shared memory one behind the other. */
static void print_rows_ring(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len), *type = pl_ctype(l->ring->dt, pl->target);
	const char *guard = l->others || k->n_col > 1
		? pl_fmt(pl, "\t\tif ((%s%s) %% %d)\n\t\t\tww_fail(p, \"rows that are not whole vectors\");\n",
			  ix_text(pl, l->lane->b), l->terms, 16 / pl_itemsize(l->ring->dt))
		: "";

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_T, 1) @(%s)\n{\n%s"
			"\tenum { T = @_T, V = %d, CL = @_CL };\n\t__shared__ double box[64];\n"
			"\tconst int lane = threadIdx.x, rank = %s %% CL;\n"
			"\tconst ix_t rows = %s, cols = %s, first = (ix_t)%s / CL * @_EACH;\n"
			"\tconst ix_t end = rows - first < @_EACH ? rows : first + @_EACH;\n"
			"\tww::ring<%s, CL, @_DEPTH, @_VECTORS, %d> ring(%s, rows, cols, first, end, rank);\n\n"
			"\tfor (ix_t row = first; row < end; row++) {\n\t\tconst %s *const staged = ring.take();\n\n",
			k->title, pl_cuda_params(pl, k), pl_cuda_first(pl), 16 / pl_itemsize(l->ring->dt), block_of(k), rows, cols,
			block_of(k), type, k->n_red, l->ring->name, type));
	pl_decode(pl, s, "\t\t", k->row, l->n_row, "row");
	ww_str_addf(s, "%s\t\tring.release();\n\t}\n\tring.leave();\n}\n\n", pl_indent(pl, row_body(pl, k), 1));
	k->launch = pl_named(pl, k,
		"\t{\n\t\tconst long long rows = %s, cols = %s;\n"
		"\t\tconst struct ww_ring r = ww_ring_of(rows, cols, %d, ww_device(p)->sm_count,\n"
		"\t\t\tww_device(p)->shared_per_block_bytes);\n\n"
		"\t\tif (!r.blocks)\n\t\t\tww_fail(p, \"rows that no cluster holds\");\n%s"
		"\t\tww_define(p, \"@_T\", %d);\n\t\tww_define(p, \"@_CL\", r.blocks);\n"
		"\t\tww_define(p, \"@_DEPTH\", r.depth);\n\t\tww_define(p, \"@_VECTORS\", r.vectors);\n"
		"\t\tww_define(p, \"@_EACH\", r.each);\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(rows, r.each) * r.blocks, 1, 1, %d, 1, 1);\n\t\tww_shared(p, r.bytes);\n"
		"\t\tif (r.blocks > 1)\n\t\t\tww_cluster(p, r.blocks, 1, 1);\n%s\t}\n",
		rows, cols, pl_itemsize(l->ring->dt), guard, RING_THREADS, RING_THREADS, pl_plan_args(pl, k, "\t\t"));
}

void pl_print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	if (k->kind == K_POINT)
		(k->loop->beside          ? print_point_beside
				: k->loop->by_row ? print_point_by_row
				: k->loop->kept   ? print_point_down
								  : print_point)(pl, k, s);
	else if (k->kind == K_ROW)
		(k->loop->ring                   ? print_rows_ring
				: k->loop->several       ? print_windows
				: k->loop->along == ROWS ? print_rows_down
										 : print_rows_across)(pl, k, s);
	else
		pl_anchor_ops[k->anchor->kind]->print[1](pl, k, s);
}

const char *pl_headers_cuda(struct pl *pl)
{
	const char *device = "#include <ww/planner.cuh>\n";
	int used[S_COUNT] = { 0 }, library = 0, ring = 0;

	for (int i = 0; i < pl->n_kern; i++) {
		library |= pl->kern[i]->loop->library & BY_LIBRARY;
		ring |= pl->kern[i]->loop->ring != NULL;
		if (pl->kern[i]->anchor)
			used[pl->kern[i]->anchor->kind] = 1;
		used[S_SCAN] |= pl_scans(pl->kern[i]);
	}
	pl->recipes = "";
	for (int i = 0; i <= S_COUNT + 1; i++) {
		const char *name = i < S_COUNT ? pl_anchor_ops[i]->header : i == S_COUNT ? "library" : "ring";

		if (!(i < S_COUNT ? used[i] : i == S_COUNT ? library && !used[S_TURN] : ring))
			continue;
		device = pl_fmt(pl, "%s#include <ww/%s.cuh>\n", device, name);
		pl->recipes = pl_fmt(pl, "%s#include <ww/recipe/%s.h>\n", pl->recipes, name);
	}
	return device;
}
