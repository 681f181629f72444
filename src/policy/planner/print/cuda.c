/* cuda.c - schedules as kernels.cu and launches, for the cuda target.
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
 * The arithmetic is a loop over the V lanes that the compiler unrolls; only loads and stores know about vectors. */
#include "policy/planner/print/print.h"

#include <string.h>

/* Text of plan.c that picks V: the widest of vec, vec / 2, ... 1 that divides everything. */
static const char *pick_v(struct pl *pl, const struct kern *k)
{
	return pl_fmt(pl,
		"\t\tconst long long terms = %s%s;\n\t\tint v = %d;\n\n\t\twhile (v > 1 && terms %% v)\n\t\t\tv /= 2;\n",
		ix_text(pl, k->loop->lane->b), k->loop->terms, k->loop->vec);
}

static void print_point(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const struct pass *p = &l->pass[0];
	const char *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len);

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_BLOCK) @(%s)\n{\n\tenum { V = @_V };\n"
			"\tconst ix_t cols = %s / V, total = (ix_t)%s * cols;\n\n\t#pragma unroll\n\tfor (int u = 0; u < @_U; u++) {\n"
			"\t\tconst ix_t t = ((ix_t)blockIdx.x * @_U + u) * @_BLOCK + threadIdx.x;\n\n\t\tif (t >= total)\n\t\t\tbreak;\n"
			"\t\tconst ix_t row = t / cols, c = t %% cols * V;\n",
			k->title, pl_cuda_params(pl, k), cols, rows));
	pl_decode(pl, s, "\t\t", k->row, l->n_row, "row");
	ww_str_addf(s,
		"%s%s%s\t\t#pragma unroll\n\t\tfor (int l = 0; l < V; l++) {\n\t\t\tconst ix_t %s = c + l;\n%s\t\t}\n%s\t}\n}\n\n",
		pl_indent(pl, p->row, 2),
		pl_indent(pl, pl_fmt(pl, "%s%s", pl_cuda_arrays(pl, p->load, p->n_load, "[V]"), p->arrays), 2),
		pl_indent(pl, pl_cuda_loads(pl, l->lane, p->load, p->n_load, "c", ""), 2), l->lane->name,
		pl_indent(pl, p->last, 3), pl_indent(pl, p->after, 2));
	k->launch = pl_named(pl, k,
		"\t{\n%s\t\tww_define(p, \"@_V\", v);\n\t\tww_define(p, \"@_U\", %d);\n\t\tww_define(p, \"@_BLOCK\", %d);\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(%s * (%s / v), %d), 1, 1, %d, 1, 1);\n%s\t}\n",
		pick_v(pl, k), l->unroll, l->threads, rows, cols, l->unroll * l->threads, l->threads,
		pl_plan_args(pl, k, "\t\t"));
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static const char *red_op(enum pl_red r)
{
	static const char *const names[] = { "PL_SUM", "PL_PROD", "PL_MAX", "PL_MIN", "PL_MAX", "PL_MIN" };

	return names[r];
}

static void open_sum(struct pl *pl, const struct kern *k, int i, struct ww_str *s)
{
	const struct val *r = k->red[i];

	ww_str_addf(s, "%s a%d = %s;\n", pl_acc_type(r->arg[0]->dt), i, pl_ident(pl, r->red, r->arg[0]->dt));
	if (r->red >= RED_ARGMAX)
		ww_str_addf(s, "long long w%d = 0;\n", i);
}

static void add_column(struct pl *pl, struct kern *k, int i, struct ww_str *s)
{
	const struct step *st = &k->loop->step[i];
	const struct val *r = k->red[i];

	ww_str_adds(s, st->before);
	if (r->red >= RED_ARGMAX)
		ww_str_addf(s, "pl_take<%s>(a%d, w%d, %s, (long long)%s);\n", red_op(r->red), i, i, st->value.t,
			pl_linear_column(pl, k));
	else
		ww_str_addf(s, "a%d = %s;\n", i, pl_combine(pl, r->red, r->arg[0]->dt, pl_fmt(pl, "a%d", i), st->value.t, 0));
}

static void close_sum(const struct kern *k, int i, struct ww_str *s)
{
	enum pl_red red = k->red[i]->red;
	const char *across = k->loop->along == ROWS ? "down" : "across", *threads = k->loop->along == ROWS ? "TX, TY" : "T";

	if (red >= RED_ARGMAX)
		ww_str_addf(s, "pl_%s_arg<%s, %s>(a%d, w%d, box);\n", across, red_op(red), threads, i, i);
	else
		ww_str_addf(s, "a%d = pl_%s<%s, %s>(a%d, box);\n", i, across, red_op(red), threads, i);
	if (k->loop->cluster)
		ww_str_addf(s, "a%d = pl_cluster<%s, CL>(a%d, &cbox[%d]);\n", i, red_op(red), i, i);
}

/* Declarations of the columns from the linear number c; the last one is called `start`. */
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

static void print_pass(struct pl *pl, struct kern *k, const struct pass *p, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *lane = k->col[k->n_col - 1]->name, *start = pl_fmt(pl, "%s_0", lane), *sub = l->held ? "[j]" : "", *one;
	struct ww_str b = pl_text(pl);

	for (int i = 0; i < k->n_red; i++)
		if (k->red_stage[i] == p->stage)
			add_column(pl, k, i, &b);
	ww_str_adds(&b, p->last);
	ww_str_adds(s, p->row);
	if (l->along == ROWS) {
		ww_str_addf(s, "for (ix_t c = ty; c < cols; c += TY) {\n%s%s}\n", column_axes(pl, k, NULL), b.p);
		return;
	}
	one = pl_fmt(pl, "%s%s%s%s#pragma unroll\nfor (int l = 0; l < V; l++) {\nconst ix_t %s = %s + l;\n%s}\n%s}\n",
		column_axes(pl, k, start), l->held ? "" : pl_cuda_arrays(pl, p->load, p->n_load, "[V]"), p->arrays,
		pl_cuda_loads(pl, l->lane, p->load, p->n_load, start, sub), lane, start, b.p, p->after);
	if (l->held)
		ww_str_addf(s,
			"%s#pragma unroll\nfor (int j = 0; j < CH; j++) {\nconst ix_t c = ((ix_t)(j * CL + rank) * T + lane) * V;\n\nif (c < cols) {\n%s}\n",
			pl_cuda_arrays(pl, p->load, p->n_load, "[CH][V]"), one);
	else
		ww_str_addf(s, "for (ix_t c = (ix_t)(rank * T + lane) * V; c < cols; c += T * CL * V) {\n%s", one);
}

static const char *row_body(struct pl *pl, struct kern *k)
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
				close_sum(k, i, &s);
	}
	ww_str_adds(&s, k->loop->finish);
	return pl_indent(pl, s.p, 1);
}

/* A thread is a row. */
static void print_rows_down(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *width = ix_text(pl, l->inner), *cols = ix_text(pl, l->len);

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_TX * @_TY) @(%s)\n{\n\tenum { TX = @_TX, TY = @_TY };\n"
			"\t__shared__ double box[TY > 1 ? TX * TY * 2 : 1];\n\tconst int tx = threadIdx.x %% TX, ty = threadIdx.x / TX;\n"
			"\tconst ix_t width = %s, cols = %s, chunks = (width + TX - 1) / TX, row = (ix_t)blockIdx.x / chunks, at = (ix_t)blockIdx.x %% chunks * TX + tx;\n"
			"\tconst bool live = at < width;\n\tconst ix_t %s = live ? at : width - 1;\n\n\t(void)box;\n",
			k->title, pl_cuda_params(pl, k), width, cols, l->lane->name));
	pl_decode(pl, s, "\t", k->row, l->n_row, "row");
	ww_str_addf(s, "%s}\n\n", row_body(pl, k));
	k->launch = pl_named(pl, k,
		"\t{\n\t\tconst long long width = %s, outer = %s, cols = %s;\n\t\tint tx = width >= 256 ? 256 : width >= 128 ? 128 : width >= 64 ? 64 : 32, ty = 1;\n\n"
		"\t\twhile (ty < 16 && cols >= 16 * ty && outer * width * ty < 2048LL * ww_device(p)->sm_count) {\n\t\t\tty *= 2;\n\t\t\tif (tx > 32 && tx * ty > 256)\n\t\t\t\ttx /= 2;\n\t\t}\n"
		"\t\tww_define(p, \"@_TX\", tx);\n\t\tww_define(p, \"@_TY\", ty);\n\t\tww_launch(p, \"@\", outer * ww_cdiv(width, tx), 1, 1, tx * ty, 1, 1);\n%s\t}\n",
		width, ix_text(pl, l->outer), cols, pl_plan_args(pl, k, "\t\t"));
}

/* T threads are a row. */
static void print_rows_across(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct loop *l = k->loop;
	const char *rows = ix_text(pl, l->outer), *cols = ix_text(pl, l->len);

	ww_str_adds(s,
		pl_named(pl, k,
			"/* %s */\nextern \"C\" __global__ void __launch_bounds__(@_T * @_R) @(%s)\n{\n\tenum { T = @_T, R = @_R, V = @_V, CH = @_CH, CL = @_CL };\n"
			"\t__shared__ double box[64];\n\t__shared__ float cbox[CL > 1 ? %d : 1];\n\tconst int lane = threadIdx.x %% T, rank = blockIdx.x %% CL;\n"
			"\tconst ix_t rows = %s, cols = %s, at = (ix_t)blockIdx.x / CL * R + threadIdx.x / T;\n"
			"\tconst bool live = at < rows;\n\tconst ix_t row = live ? at : rows - 1;\n\n\t(void)box;\n\t(void)cbox;\n\t(void)row;\n",
			k->title, pl_cuda_params(pl, k), k->n_red ? k->n_red : 1, rows, cols));
	pl_decode(pl, s, "\t", k->row, l->n_row, "row");
	ww_str_addf(s, "%s%s}\n\n", row_body(pl, k),
		l->cluster ? "\tif (CL > 1)\n\t\tww::cluster_sync();	/* the others may still read cbox */\n" : "");
	k->launch = pl_named(pl, k,
		"\t{\n%s\t\tconst long long rows = %s, cols = %s;\n\t\tlong long t = %d, cl = 1;\n\n%s"
		"\t\twhile (t < 1024 && cols > t * cl * %d)\n\t\t\tt *= 2;\n\t\twhile (t > 1 && t / 2 * v >= cols)\n\t\t\tt /= 2;\n"
		"\t\tif (t > 32 && rows * t < 64LL * ww_device(p)->sm_count)\n\t\t\twhile (t < 1024 && t * cl * v < cols)\n\t\t\t\tt *= 2;\n"
		"\t\tconst long long r = t >= 128 ? 1 : 128 / t * (t <= 32) + (t > 32), ch = ww_cdiv(cols, t * cl * v);\n\n%s"
		"\t\tww_define(p, \"@_V\", v);\n\t\tww_define(p, \"@_T\", t);\n\t\tww_define(p, \"@_R\", r);\n\t\tww_define(p, \"@_CH\", ch);\n\t\tww_define(p, \"@_CL\", cl);\n"
		"\t\tww_launch(p, \"@\", ww_cdiv(rows, r) * cl, 1, 1, t * r, 1, 1);\n\t\tif (cl > 1)\n\t\t\tww_cluster(p, (int)cl, 1, 1);\n%s\t}\n",
		pick_v(pl, k), rows, cols, l->threads ? l->threads : 32,
		l->cluster ? "\t\twhile (cl < 8 && cols > 16384 * cl)\n\t\t\tcl *= 2;\n" : "", l->threads ? 64 : 16,
		l->held ? "\t\tif (ch * v > 64)\n\t\t\tww_fail(p, \"rows are too long for registers\");\n" : "",
		pl_plan_args(pl, k, "\t\t"));
}

void pl_print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	if (k->kind == K_POINT)
		print_point(pl, k, s);
	else if (k->kind == K_ROW)
		(k->loop->along == ROWS ? print_rows_down : print_rows_across)(pl, k, s);
	else
		pl_anchor_ops[k->anchor->kind]->print[1](pl, k, s);
}

/* ---- The top of kernels.cu --------------------------------------------------------------------------------------- */

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

/* The cookbook's headers for the anchors of this build: of kernels.cu, of plan.c. */
static const char *headers(struct pl *pl)
{
	const char *device = "";
	int used[S_COUNT] = { 0 }, library = 0;

	for (int i = 0; i < pl->n_kern; i++) {
		library |= pl->kern[i]->loop->library & BY_LIBRARY;
		if (pl->kern[i]->anchor)
			used[pl->kern[i]->anchor->kind] = 1;
	}
	pl->recipes = "";
	for (int i = 0; i <= S_COUNT; i++) {
		const char *name = i < S_COUNT ? pl_anchor_ops[i]->header : "library";

		if (!(i < S_COUNT ? used[i] : library))
			continue;
		device = pl_fmt(pl, "%s#include <ww/%s.cuh>\n", device, name);
		pl->recipes = pl_fmt(pl, "%s#include <ww/recipe/%s.h>\n", pl->recipes, name);
	}
	return device;
}

void pl_head_cuda(struct pl *pl, const char *text)
{
	ww_str_addf(&pl->dev_text,
		"/* Written by the planner. */\n#include <ww/vec.cuh>\n%s%s\n#if IX64_\ntypedef long long ix_t;\n#else\ntypedef int ix_t;\n#endif\n"
		"#define PL_FN static __device__ __forceinline__\n#define PL_INFF __int_as_float(0x7f800000)\n#define PL_INF __longlong_as_double(0x7ff0000000000000ll)\n"
		"#define PL_NANF __int_as_float(0x7fc00000)\n#define PL_NAN __longlong_as_double(0x7ff8000000000000ll)\n",
		headers(pl), strstr(text, "pl_cluster") ? "#include <ww/rowwise.cuh>\n" : "");
}

const char *pl_helpers_cuda(struct pl *pl, const char *text)
{
	return pl_fmt(pl, "%s%s", strstr(text, "pl_across") || strstr(text, "pl_down") ? helpers : "",
		strstr(text, "pl_cluster") ? cluster_helper : "");
}
