/* scatter.c - elements written to places that data says, one after the other: scatter, scatter_add, scatter_reduce,
 * index_add, index_put.
 *
 * Each written element is read once; lowering otherwise has each element of the result ask all written ones.  They come
 * in their order, as in PyTorch's kernels on the cpu, but for sums along the last dimension on cuda, and along another
 * one of few columns, which are added by atomics.  The template reads its operands by functors, so that their
 * expressions are fused; in[]: the tensor that is written to, the places, what is written.  Operands 1 and 2 run over
 * the written elements where the result has the dimension that is written along. */
#include "policy/planner/print/print.h"

#include "policy/planner/graph/walk.h"

#include <math.h>
#include <string.h>
#include <ww/recipe/scatter_tile.h>

enum { SELF, PLACE, SRC };

enum form {
	LAST,
	MIDDLE,
	SLICES,
	STRIPS
}; /* along the last dimension; another one; the same where all behind it shares its place; by all threads of a block */

/* Floats of scratch that a thread has (WW_CPU_SHARED_BYTES, less a batch of short rows), and least columns of a block.
 */
enum { MOST_FLOATS = (4 << 20) - 8192, LEAST_COLS = 16 };

/* Microseconds for a vector of results and a written element that come together; and of the template: for a written
 * element, for one of the result, and of a launch.  One thread with AVX-512. */
static const double pairs_us = 2.2e-3, written_us = 1e-3, result_us = 4e-4, launch_us = 2;

static int scatters_on_cpu(const struct pl *pl, const struct val *to, int dim, const struct ix *list)
{
	double result = (double)pl_numel_now(to), len = (double)ix_num(to->size[dim]), n = (double)ix_num(list);
	double last = (double)ix_num(to->size[to->rank - 1]), vectors = result / last * ceil(last / 16);

	return len * (dim == to->rank - 1 ? 1 : LEAST_COLS) <= MOST_FLOATS &&
		vectors * n * pairs_us > launch_us + result / len * n * written_us + result * result_us;
}

/* cuda: bytes a microsecond; what a thread waits for 8 elements; cycles of a multiprocessor for the atomic additions of
 * a warp in shared memory (a loop that compares and exchanges), and its cycles a microsecond.  Estimates. */
static const double bytes_us = 3e6, wait_us = 0.8, atomic_cycles = 25, cycles_us = 1755;
enum { DEPTH = 8, MOST_THREADS = 2048 };

/* One wave after the other of threads that each take `list` elements of n and `len` results of n. */
static double waves_us(const struct pl *pl, double threads, double resident, double list, double len)
{
	return ceil(threads / (resident * pl->dev.sm_count)) * (ceil(list / DEPTH) * wait_us + len * wait_us / DEPTH);
}

/* Microseconds of sums along a dimension that is not the last one, by all threads of a block together; infinite where
 * shared memory does not hold them, or results are so few that threads would wait for each other. */
static double strips_us(const struct pl *pl, double columns, double len, double n)
{
	enum { LEAST_LEN = 32 };
	const double sms = pl->dev.sm_count;
	const double cols = (double)ww_scatter_strip((long long)columns, (long long)len, pl->dev.sm_count);
	const double threads = ww_scatter_strip_threads((long long)columns, (long long)cols, pl->dev.sm_count);
	const double blocks = ceil(columns / cols), held = floor(pl->dev.shared_per_block_bytes / (4 * len * cols));
	const double atomics = ceil(blocks / sms) * n * cols / 32 * atomic_cycles / cycles_us;

	if (len < LEAST_LEN || held < 1)
		return INFINITY;
	return launch_us + fmax((columns * n * 12 + columns * len * 8) / bytes_us, atomics) +
		waves_us(pl, blocks * threads, fmin(MOST_THREADS, held * threads), n * cols / threads, len * cols / threads);
}

/* The same by a thread a column. */
static double columns_us(const struct pl *pl, double columns, double len, double n)
{
	const double fit = floor(pl->dev.shared_per_block_bytes / (4 * len)); /* in a multiprocessor */
	const double held = fmin(MOST_THREADS, floor(fit / 32) * 32);

	return held < 32
		? INFINITY
		: launch_us + fmax((columns * n * 12 + columns * len * 8) / bytes_us, waves_us(pl, columns, held, n, len));
}

/* Do all threads of a block share columns of sums?  Where a thread each takes half as long again, or does not fit. */
static int by_strips(const struct pl *pl, enum pl_scatter how, double columns, double len, double n)
{
	const double us = strips_us(pl, columns, len, n);

	return how == SCATTER_SUM && us < INFINITY && 1.5 * us < columns_us(pl, columns, len, n);
}

/* Microseconds of the template; infinite where there is none. */
static double cuda_us(const struct pl *pl, enum pl_scatter how, const struct val *to, int dim, const struct ix *list)
{
	double result = (double)pl_numel_now(to), len = (double)ix_num(to->size[dim]), n = (double)ix_num(list);
	double columns = result / len, bytes = columns * n * 12 + result * 8, shared = pl->dev.shared_per_block_bytes;
	double held = floor(shared / (4 * len)); /* rows of results in a multiprocessor */

	if (dim < to->rank - 1)
		return by_strips(pl, how, columns, len, n) ? strips_us(pl, columns, len, n) : columns_us(pl, columns, len, n);
	double threads = fmax(32, fmin(512, (n + len) / DEPTH));
	double atomics = columns * n / 32 / pl->dev.sm_count * atomic_cycles / cycles_us;

	held = fmin(MOST_THREADS, held * threads);
	return how != SCATTER_SUM || held < threads ? INFINITY
												: launch_us + fmax(bytes / bytes_us, atomics) +
			waves_us(pl, columns * threads, held, n / threads, len / threads);
}

int pl_scatters(
	const struct pl *pl, enum pl_scatter how, const struct val *to, int dim, const struct ix *list, double otherwise_us)
{
	if (!pl_is_float(to->dt) || to->dt == WW_F64)
		return 0;
	return pl->target == WW_TARGET_CPU ? scatters_on_cpu(pl, to, dim, list)
									   : cuda_us(pl, how, to, dim, list) < otherwise_us;
}

struct val *pl_scatter(struct pl *pl, struct gnode *n, enum pl_scatter how, const struct val *to, struct val *init,
	int dim, struct val *place, struct val *src)
{
	struct anchor *s = pl_anchor(pl, n, S_SCATTER, "scatter");

	s->scatter.how = how;
	s->scatter.dim = dim;
	pl_anchor_operand(s, init);
	pl_anchor_operand(s, place);
	pl_anchor_operand(s, src);
	return pl_anchor_out(pl, s, init->dt, to->rank, to->size);
}

static int own_axis(const struct anchor *s, int which) { return which == SELF ? -1 : s->scatter.dim; }

/* Do all elements behind the dimension that is written along, counted by `inner`, share their place? */
static int shares_place(struct pl *pl, struct val *place, const struct ix *const *at, const struct ix_atom *inner)
{
	struct walk w;

	pl_walk_init(&w, pl, NULL);
	pl_walk(&w, place, at);
	for (struct leaf *l = w.first; l; l = l->next) {
		if (pl_leaf_off(pl, l) && ix_has(pl_leaf_off(pl, l), inner))
			return 0;
		for (int d = 0; d < l->val->rank; d++)
			if (ix_has(l->idx[d], inner))
				return 0;
	}
	return 1;
}

/* at[]: the index of an operand whose axes behind dim are one, of the name of `column` and of the operand's own sizes,
 * so that they are one in its memory, too.  Returns that axis. */
static const struct ix_atom *join_own(
	struct pl *pl, const struct anchor *s, int which, const struct ix_atom *column, const struct ix **at)
{
	const struct val *v = s->in[which].val;
	const struct ix *all = ix_const(pl, 1), *under = all, *m;

	if (v->rank != s->out->rank)
		return column;
	for (int d = s->scatter.dim + 1; d < v->rank; d++)
		all = ix_mul(pl, all, v->size[d]);
	m = ix_var(pl, column->name, all);
	for (int d = v->rank - 1; d > s->scatter.dim; d--) {
		at[d] = ix_is(v->size[d], 1) ? ix_const(pl, 0) : ix_mod(pl, ix_div(pl, m, under), v->size[d]);
		under = ix_mul(pl, under, v->size[d]);
	}
	return ix_as_var(m);
}

/* Statements that return operand `which` at `at`; cuda: places, too, as floats. */
static const char *read_body(struct pl *pl, struct kern *k, int which, const char *start, const struct ix *const *at)
{
	struct loop *l = k->loop;
	const char *body;

	if (pl->target == WW_TARGET_CPU && which == PLACE)
		return pl_place_body(pl, k, PLACE, at, l->form == SLICES);
	body = pl_load_body_of(pl, k, which, start, at);
	if (pl->target == WW_TARGET_CPU || which == SELF)
		return body;
	body = pl_fmt(pl, "%s%s%s", l->given, l->ask, body); /* the template has no step that asks for them ahead */
	l->given = l->given_refs = l->ask = NULL;
	return body;
}

/* Do all columns share their places, and are they enough for the threads of a block? */
static int fills_warps(const struct loop *l) { return l->form == SLICES && ix_num(l->inner) >= 24; }

/* The template's form on cuda.  Slices that it holds are not measured against strips. */
static enum form form_of(const struct pl *pl, const struct kern *k)
{
	const struct loop *l = k->loop;
	const double columns = (double)ix_num(l->outer) * (double)ix_num(l->inner), len = (double)ix_num(l->len);

	if (pl->target != WW_TARGET_CUDA || l->form == LAST ||
		!by_strips(pl, k->anchor->scatter.how, columns, len, (double)ix_num(l->written)) ||
		(fills_warps(l) && columns_us(pl, columns, len, (double)ix_num(l->written)) < INFINITY))
		return l->form;
	return STRIPS;
}

static void build(struct pl *pl, struct kern *k)
{
	const struct anchor *s = k->anchor;
	const struct val *out = s->out;
	int dim = s->scatter.dim, last = out->rank - 1;
	const struct ix *idx[PL_MAX_RANK], *at[PL_MAX_RANK];
	const struct ix_atom *column;
	struct loop *l = k->loop;
	const char *nth = dim == last ? "j" : "c";

	l->width = 1;
	memcpy(idx, k->anchor_idx, sizeof(idx));
	column = dim == last ? pl_lane_of(pl, k, last) : pl_join(pl, k, dim + 1, out->rank, idx);
	memcpy(at, idx, sizeof(at));
	l->written = s->in[PLACE].size[dim];
	at[dim] = ix_var(pl, pl_fmt(pl, "i%d", pl->n_var++), l->written);
	l->nth = ix_as_var(at[dim]);
	l->lane = dim == last ? l->nth : join_own(pl, s, PLACE, column, at);
	l->form = dim == last ? LAST : shares_place(pl, s->in[PLACE].val, at, l->lane) ? SLICES : MIDDLE;
	l->outer = pl_sizes(pl, out, 0, dim);
	l->len = out->size[dim];
	l->inner = pl_sizes(pl, out, dim + 1, out->rank);
	l->form = form_of(pl, k);
	l->place = read_body(pl, k, PLACE, nth, at);
	l->lane = dim == last ? l->nth : join_own(pl, s, SRC, column, at);
	l->src = read_body(pl, k, SRC, nth, at);
	l->lane = column;
	l->load = read_body(pl, k, SELF, "c", idx);
	l->store = pl_store_body(pl, k, "c");
}

/* Indexed by enum pl_scatter. */
static const char *const names[] = { "SUM", "PROD", "MAX", "MIN", "SET" };

/* ---- cpu --------------------------------------------------------------------------------------------------------- */

/* A functor with the parameters `of` (@ is the kernel's name), which are given to the variables of the axes; the
 * lane's first element, from i, where the functor has one. */
static void functor(struct pl *pl, struct kern *k, struct ww_str *s, const char *head, const char *of,
	const char *middle, const struct ix_atom *lane, const char *body)
{
	const char *outer = pl_axes(pl, k, 0, k->anchor->scatter.dim, "o");

	pl_cpu_functor(pl, k, s, pl_fmt(pl, "%s(const void *ctx, %s)", head, of),
		pl_fmt(
			pl, "%s%s%s\n\t(void)o;\n", outer, middle, lane ? pl_fmt(pl, "\tconst ix_t %s_0 = i;\n", lane->name) : ""),
		body);
}

static void print_functors(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	int rows = l->form == LAST;
	const struct ix_atom *lane = l->lane, *nth = rows ? l->nth : lane;
	const char *at = rows ? "long long o, long long i" : "long long o, long long m, long long i";
	const char *m = rows ? "" : pl_fmt(pl, "%s\t(void)m;\n", pl_axis(pl, k, k->anchor->scatter.dim, "m"));
	const char *j = rows ? "" : pl_fmt(pl, "\tconst ix_t %s = m;\n\n\t(void)%s;\n", l->nth->name, l->nth->name);

	pl_cpu_context(pl, k, s);
	functor(pl, k, s, "ww_vf @_self", pl_fmt(pl, "%s, int n", at), m, lane, l->load);
	if (l->form == SLICES)
		functor(pl, k, s, "int32_t @_place", "long long o, long long m", j, NULL, l->place);
	else
		functor(pl, k, s, "ww_vi @_place", pl_fmt(pl, "%s, int n", at), j, nth, l->place);
	functor(pl, k, s, "ww_vf @_src", pl_fmt(pl, "%s, int n", at), j, nth, l->src);
	functor(pl, k, s, "void @_store", pl_fmt(pl, "%s, ww_vf acc, int n", at), m, lane, l->store);
}

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	static const char *const forms[] = { [LAST] = "rows", [MIDDLE] = "mid", [SLICES] = "slices" };
	const struct loop *l = k->loop;

	print_functors(pl, k, s);
	pl_cpu_kernel(pl, k, s, "WW_SCATTER_ARGS",
		pl_fmt(pl, "ww_cpu_scatter_%s(b, arg, WW_SCATTER_%s, %s, %s, @_self, @_place, @_src, @_store, &c)",
			forms[l->form], names[k->anchor->scatter.how], ix_text(pl, l->len), ix_text(pl, l->written)));
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_scatter%s(p, \"@\", &(struct ww_cpu_scatter){ .outer = %s, .len = %s, .inner = %s, "
		".list = %s });\n%s",
		l->form == LAST ? "_rows" : "", ix_text(pl, l->outer), ix_text(pl, l->len), ix_text(pl, l->inner),
		ix_text(pl, l->written), pl_plan_args(pl, k, "\t"));
}

/* ---- cuda -------------------------------------------------------------------------------------------------------- */

static const char *reader(struct pl *pl, const char *name, const char *of, const char *axes, const char *body)
{
	return pl_fmt(pl, "\t__device__ void %s(%s, float (&v)[1]) const\n\t{\n\t\tenum { N = 1 };\n%s%s\t}\n", name, of,
		axes, pl_indent(pl, body, 2));
}

/* The functor: self, place and src, and store. */
static void print_readers(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	int rows = l->form == LAST, dim = k->anchor->scatter.dim;
	const char *at = rows ? "ix_t o, ix_t c" : "ix_t o, ix_t m, ix_t c",
			   *from = rows ? "ix_t o, ix_t j" : "ix_t o, ix_t j, ix_t c";
	const char *outer = pl_indent(pl, pl_axes(pl, k, 0, dim, "o"), 1);
	const char *axes = pl_fmt(pl, "%s%s", outer, rows ? "" : pl_indent(pl, pl_axis(pl, k, dim, "m"), 1));
	const char *own = rows ? outer : pl_fmt(pl, "%s\t\tconst ix_t %s = j;\n", outer, l->nth->name);

	pl_cuda_functor(pl, k, s,
		pl_fmt(pl, "%s%s%s", reader(pl, "self", at, axes, l->load), reader(pl, "place", from, own, l->place),
			reader(pl, "src", from, own, l->src)),
		at, axes);
}

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	enum pl_scatter how = k->anchor->scatter.how;
	int rows = l->form == LAST, slices = fills_warps(l), strips = l->form == STRIPS;
	const char *name = slices ? "slices" : strips ? "strips" : "columns";
	const char *op = pl_fmt(pl, "%s%s", how == SCATTER_SET ? "SCATTER_" : "OP_", names[how]);

	print_readers(pl, k, s);
	pl_cuda_kernel(pl, k, s, "@_BLOCK",
		rows ? "long long rows, int len, int list" : "long long outer, int len, int list, long long inner",
		pl_fmt(pl,
			rows         ? "scatter_rows<ww::%s, @_BLOCK, @_TPR>(rows, len, list"
				: slices ? "scatter_slices<ww::%s, @_BLOCK, @_PART>(outer, len, list, inner"
				: strips ? "scatter_strips<ww::%s, @_BLOCK, @_COLS>(outer, len, list, inner"
						 : "scatter_columns<ww::%s, @_BLOCK>(outer, len, list, inner",
			op));
	k->launch = rows
		? pl_named(pl, k,
			  "\tww_recipe_scatter_rows(p, &(struct ww_scatter_rows){ .kernel = \"@\", .rows = %s, .len = %s, "
			  ".list = %s });\n%s",
			  ix_text(pl, l->outer), ix_text(pl, l->len), ix_text(pl, l->written), pl_plan_args(pl, k, "\t"))
		: pl_named(pl, k,
			  "\tww_recipe_scatter_%s(p, &(struct ww_scatter_%s){ .kernel = \"@\", .outer = %s, .len = %s, "
			  ".list = %s, .inner = %s });\n%s",
			  name, name, ix_text(pl, l->outer), ix_text(pl, l->len), ix_text(pl, l->written), ix_text(pl, l->inner),
			  pl_plan_args(pl, k, "\t"));
}

const struct anchor_ops pl_scatter_ops = { .header = "scatter",
	.fuses = FUSES_READER | FUSES_OPERAND,
	.own_axis = own_axis,
	.build = build,
	.print = { print_cpu, print_cuda } };
