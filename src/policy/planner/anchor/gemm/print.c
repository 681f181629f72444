/* print.c - the text of a product's kernels, and the values that the search tries. */
#include "policy/planner/anchor/gemm/gemm.h"
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"

#include <string.h>

const struct knob_row pl_gemm_cpu_knobs[] = { { KNOB(cpu_gemm.nb), "nb", { 96, 192, 48 } },
	{ KNOB(cpu_gemm.kc), "kc", { 512, 768 } }, { KNOB(cpu_gemm.mt), "mt", { 256, 128 } },
	{ KNOB(cpu_gemm.form), "form", { 1, 2 } }, { 0 } };

void pl_gemm_print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	int nb = sp->gemm.n_batch, r = nb + 2, b_nk = pl_gemm_is_nk(sp);
	const struct operand *a = &sp->in[0], *b = &sp->in[1];
	const char *suffix = pl_cpu_suffix(pl_gemm_dt(sp)), *thin = k->loop->form == THIN ? "_thin" : "";

	pl_cpu_context(pl, k, s);
	pl_cpu_functor(pl, k, s, "void @_epi(const void *ctx, long long z, long long row, long long col, ww_vf acc, int n)",
		pl_fmt(pl, "%s%s\tconst ix_t %s_0 = col;\n\n\t(void)z;\n\t(void)row;\n", pl_axes(pl, k, 0, nb, "z"),
			pl_axis(pl, k, r - 2, "row"), k->loop->lane->name),
		k->loop->store);
	pl_cpu_kernel(pl, k, s, *thin ? "WW_THIN_ARGS" : "WW_GEMM_ARGS",
		pl_fmt(pl, "ww_cpu_gemm%s%s(b, arg, @_epi, &c)", thin, suffix));
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_gemm%s(p, \"@\", &(struct ww_cpu_gemm){\n"
		"\t\t%s.m = %s, .n = %s, .k = %s, .batch = %s, .a_buf = %s, .b_buf = %s, .a_offset_bytes = %s, "
		".b_offset_bytes = %s,\n"
		"\t\t.lda = %s, .ldb = %s, .a_batch_stride = %s, .b_batch_stride = %s, .b_nk = %d, .nb = %d%s "
		"});\n%s",
		thin, *suffix ? ".half = 1, " : "", ix_text(pl, sp->out->size[r - 2]), ix_text(pl, sp->out->size[r - 1]),
		ix_text(pl, pl_gemm_inner(sp)), ix_text(pl, k->loop->outer), pl_plan_buf(pl, a->buf), pl_plan_buf(pl, b->buf),
		pl_bytes(pl, a), pl_bytes(pl, b), ix_text(pl, a->stride[r - 2]), ix_text(pl, b->stride[b_nk ? r - 1 : r - 2]),
		ix_text(pl, pl_gemm_stride(pl, sp, 0, nb - 1)), ix_text(pl, pl_gemm_stride(pl, sp, 1, nb - 1)), b_nk,
		kn->cpu_gemm.nb, *thin ? "" : pl_fmt(pl, ", .mt = %d, .kc = %d", kn->cpu_gemm.mt, kn->cpu_gemm.kc),
		pl_plan_args(pl, k, "\t"));
}

const struct knob_row pl_gemm_cuda_knobs[] = { { KNOB(gemm.form), "tiles of kind", { 1, 2 } },
	{ KNOB(gemm.bn), "bn", { 192, 128 } }, { KNOB(gemm.stages), "stages", { 5, 4 } },
	{ KNOB(gemm.cluster), "cluster", { 2, 1 } }, { KNOB(gemm.promote), "promote", { 8 } },
	{ KNOB(gemm.pairs), "pairs", { 2, 1 } }, { 0 } };

static const char *matrix(struct pl *pl, const struct kern *k, int which)
{
	const struct anchor *sp = k->anchor;
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch;

	return pl_fmt(pl,
		"{ .buf = %s, .offset_bytes = %s, .rows = %s, .k = %s, .batch = %s, .row_stride = %s, .k_stride = %s, "
		".batch_stride = %s }",
		pl_plan_buf(pl, o->buf), pl_bytes(pl, o), ix_text(pl, sp->out->size[nb + which]),
		ix_text(pl, pl_gemm_inner(sp)), pl_gemm_is_one(sp, which) ? "1" : ix_text(pl, k->loop->outer),
		ix_text(pl, o->stride[nb + which]), ix_text(pl, o->stride[nb + 1 - which]),
		ix_text(pl, pl_gemm_stride(pl, sp, which, nb - 1)));
}

/* a() and b() of the functor of ww::gemm_any. */
static const char *element(struct pl *pl, const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	const char *row = which ? "kk" : "row", *col = which ? "col" : "kk";
	int nb = sp->gemm.n_batch;

	return pl_fmt(pl,
		"\t__device__ float %c(int b, int %s, int %s) const { return ww::to_float(%s[%s + (ix_t)b * %s + (ix_t)%s * %s "
		"+ (ix_t)%s * %s]); }\n",
		"ab"[which], row, col, o->buf->name, ix_text(pl, o->offset), ix_text(pl, pl_gemm_stride(pl, sp, which, nb - 1)),
		row, ix_text(pl, o->stride[nb]), col, ix_text(pl, o->stride[nb + 1]));
}

/* An operand of the library's product: row-major, or the transpose of such a matrix. */
static const char *library_matrix(struct pl *pl, const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch, trans = !ix_is(o->stride[nb + 1], 1);

	return pl_fmt(pl, "{ .buf = %s, .offset_bytes = %s, .dtype = %s, .trans = %d, .ld = %s, .batch_stride = %s }",
		pl_plan_buf(pl, o->buf), pl_bytes(pl, o), pl_dtype_name(pl_gemm_dt(sp)), trans,
		ix_text(pl, o->stride[nb + trans]), ix_text(pl, pl_gemm_stride(pl, sp, which, nb - 1)));
}

/* A matrix of the product's size, row after row or as `end` has it. */
static const char *whole_matrix(
	struct pl *pl, const struct anchor *sp, const char *buf, int dt, const struct pl_end *end)
{
	int nb = sp->gemm.n_batch;
	const char *m = ix_text(pl, sp->out->size[nb]), *n = ix_text(pl, sp->out->size[nb + 1]);

	if (end->ld)
		return pl_fmt(pl, "{ .buf = %s, .dtype = %s, .ld = %s, .batch_stride = %s }", buf, pl_dtype_name(dt),
			ix_text(pl, end->ld), ix_text(pl, end->batch_stride));
	return pl_fmt(
		pl, "{ .buf = %s, .dtype = %s, .ld = %s, .batch_stride = (%s) * (%s) }", buf, pl_dtype_name(dt), n, m, n);
}

/* The statement of plan.c that has the library write to buffer `y`, with this end. */
static const char *node(struct pl *pl, const struct kern *k, const char *y, int dt, const struct pl_end *end)
{
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch;
	const char *bias = "", *added = "";

	if (end->bias)
		bias = pl_fmt(pl, ",\n\t\t\t.epilogue = WW_EPI_BIAS, .bias_buf = %s, .bias_offset_bytes = %s",
			pl_plan_buf(pl, end->bias), ix_text(pl, ix_mulc(pl, end->first, pl_itemsize(end->bias->dt))));
	if (end->added)
		added = pl_fmt(pl, ",\n\t\t\t.beta = 1, .c = %s", whole_matrix(pl, sp, pl_plan_buf(pl, end->added), dt, end));
	return pl_fmt(pl,
		"\t\tww_recipe_gemm_library(p, &(struct ww_gemm){ .m = %s, .n = %s, .k = %s, .batch = %s, .alpha = %.17g, "
		".math = WW_MATH_%s,\n"
		"\t\t\t.a = %s,\n\t\t\t.b = %s,\n\t\t\t.d = %s%s%s });\n",
		ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]), ix_text(pl, pl_gemm_inner(sp)),
		ix_text(pl, k->loop->outer), end->alpha, pl_math_name(pl_gemm_dt(sp), "FP32"), library_matrix(pl, sp, 0),
		library_matrix(pl, sp, 1), whole_matrix(pl, sp, y, dt, end), bias, added);
}

/* The variable of plan.c that holds operand `which` as prepared by the recipe's `call` (a struct `type`).  An earlier
 * product's variable is used if it has the same operand. */
static const char *prepared(struct pl *pl, struct kern *k, int which, const char *type, const char *call)
{
	const char *made = pl_fmt(pl, "%s, &(struct ww_matrix)%s", call, matrix(pl, k, which));
	int i = 0;

	while (i < pl->n_split && strcmp(pl->split_text[i], made))
		i++;
	if (i == pl->n_split && i < (int)WW_ARRAY_LEN(pl->split_text)) {
		pl->split_text[pl->n_split++] = made;
		k->launch = pl_fmt(pl, "%s\tconst struct %s half%d = %s);\n", k->launch, type, i, made);
	}
	return pl_fmt(pl, "half%d", i);
}

/* The operand, split into two fp16 halves. */
static const char *halves(struct pl *pl, struct kern *k, int which)
{
	return prepared(pl, k, which, "ww_operand", "ww_recipe_split(p");
}

/* A 16-bit operand, or a copy of it along k with aligned rows. */
static const char *aligned_matrix(struct pl *pl, struct kern *k, int which)
{
	if (pl_gemm_is_read(k->anchor, which))
		return matrix(pl, k, which);
	return prepared(pl, k, which, "ww_matrix", "ww_recipe_pad(p");
}

/* The template's arguments behind the others: pairs, and which operands are one matrix. */
static const char *last_arguments(const struct anchor *sp, const struct pl_gemm_tile *t)
{
	if (pl_gemm_is_one(sp, 0) || pl_gemm_is_one(sp, 1))
		return ", @_PAIRS, @_ONE";
	return t->pairs == 2 ? ", @_PAIRS" : "";
}

/* A tile of two pairs, in kernels.cu and in plan.c. */
static const char *threads_of(const struct pl_gemm_tile *t)
{
	return t->pairs == 2 ? "(ww::pipeline_shape<@_PAIRS>::threads), 1" : "384, 1";
}
static const char *pairs_of(const struct pl_gemm_tile *t) { return t->pairs == 2 ? ", .pairs = 2" : ""; }

static void print_split(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	const struct pl_gemm_tile t = pl_gemm_tile_of(pl, k->anchor, kn, 0);
	const char *a, *b;

	pl_cuda_kernel(pl, k, s, threads_of(&t),
		"const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb,\n"
		"\t\tconst unsigned *sa, const unsigned *sb, int m, int n, int kb, int batch",
		pl_fmt(pl, "gemm3<@_BN, @_STAGES, @_PROMOTE, @_CLUSTER, @_GROUP%s>(ta, tb, sa, sb, m, n, kb, batch",
			last_arguments(k->anchor, &t)));
	k->launch = "";
	a = halves(pl, k, 0);
	b = halves(pl, k, 1);
	k->launch = pl_named(pl, k,
		"%s\tww_recipe_gemm3(p, &(struct ww_gemm3){ .kernel = \"@\", .a = %s, .b = %s, .bn = %d, .stages = %d, "
		".cluster = %d, .promote = %d%s });\n%s",
		k->launch, a, b, t.bn, kn->gemm.stages, kn->gemm.cluster, kn->gemm.promote, pairs_of(&t),
		pl_plan_args(pl, k, "\t"));
}

static void print_half(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	const struct pl_gemm_tile t = pl_gemm_tile_of(pl, k->anchor, kn, 1);
	int dt = pl_gemm_dt(k->anchor), cluster = pl_gemm_cluster(pl, k->anchor, t.bn);
	const char *a, *b, *last = last_arguments(k->anchor, &t);

	pl_cuda_kernel(pl, k, s, threads_of(&t),
		"const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb,\n"
		"\t\tint m, int n, int kb, int batch",
		pl_fmt(pl, "gemm16<%s, @_BN, @_STAGES, @_CLUSTER, @_GROUP%s%s>(ta, tb, m, n, kb, batch",
			pl_ctype(dt, pl->target),
			k->loop->width == 8 ? ", 8"
				: *last         ? ", 2"
								: "",
			last));
	k->launch = "";
	a = aligned_matrix(pl, k, 0);
	b = aligned_matrix(pl, k, 1);
	k->launch = pl_named(pl, k,
		"%s\tww_recipe_gemm16(p, &(struct ww_gemm16){ .kernel = \"@\", .dtype = %s, .bn = %d, .stages = %d, "
		".cluster = %d%s,\n\t\t.a = %s,\n\t\t.b = %s });\n%s",
		k->launch, pl_dtype_name(dt), t.bn, kn->gemm.stages, kn->gemm.cluster ? kn->gemm.cluster : cluster,
		pairs_of(&t), a, b, pl_plan_args(pl, k, "\t"));
}

static void print_any(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch;

	pl_cuda_kernel(pl, k, s, "256", "int m, int n, int k, int batch", "gemm_any<@_BM, @_BN>(m, n, k, batch");
	k->launch = pl_named(pl, k,
		"\tww_recipe_gemm_any(p, &(struct ww_gemm_any){ .kernel = \"@\", .m = %s, .n = %s, .k = %s, "
		".batch = %s });\n%s",
		ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]), ix_text(pl, pl_gemm_inner(sp)),
		ix_text(pl, k->loop->outer), pl_plan_args(pl, k, "\t"));
}

/* An operand of ww_recipe_gemm_mma, which has two batch strides: outer and inner. */
static const char *mma_operand(struct pl *pl, const struct kern *k, int which)
{
	const struct operand *o = &k->anchor->in[which];
	int nb = k->anchor->gemm.n_batch;

	return pl_fmt(pl,
		"{ .buf = %s, .offset_bytes = %s, .row_stride = %s, .k_stride = %s, .batch_stride = %s, .inner_stride = %s }",
		pl_plan_buf(pl, o->buf), pl_bytes(pl, o), ix_text(pl, o->stride[nb + which]),
		ix_text(pl, o->stride[nb + 1 - which]), ix_text(pl, pl_gemm_stride(pl, k->anchor, which, nb - 2)),
		ix_text(pl, pl_gemm_stride(pl, k->anchor, which, nb - 1)));
}

static void print_mma(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const char *type = pl_ctype(pl_gemm_dt(sp), pl->target);
	int nb = sp->gemm.n_batch;

	pl_cuda_kernel(pl, k, s, pl_fmt(pl, "(ww::mma_shape<%s, @_BM, @_BN>::threads)", type),
		pl_fmt(pl,
			"const %s *a, long long as, long long ao, long long ai, const %s *b, long long bs, long long bo, "
			"long long bi,\n\t\tint inner, int m, int n, int k",
			type, type),
		pl_fmt(pl,
			"gemm_mma<%s, @_BM, @_BN, @_STAGES, @_SPLIT, @_AK, @_BK, @_AV, @_BV, @_TILES, @_STEPS>("
			"{ a, as, ao, ai, inner }, { b, bs, bo, bi, inner }, m, n, k",
			type));
	k->launch = pl_named(pl, k,
		"\tww_recipe_gemm_mma(p, &(struct ww_gemm_mma){ .kernel = \"@\", .dtype = %s, .m = %s, .n = %s, .k = %s, "
		".batch = %s, .inner = %s, .below = 1,\n\t\t.a = %s,\n\t\t.b = %s });\n%s",
		pl_dtype_name(pl_gemm_dt(sp)), ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]),
		ix_text(pl, pl_gemm_inner(sp)), ix_text(pl, k->loop->outer), nb ? ix_text(pl, sp->out->size[nb - 1]) : "1",
		mma_operand(pl, k, 0), mma_operand(pl, k, 1), pl_plan_args(pl, k, "\t"));
}

/* The first operand is computed by load() of the functor. */
static void print_computed(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const char *type = pl_ctype(pl_gemm_dt(sp), pl->target);
	int nb = sp->gemm.n_batch;

	pl_cuda_kernel(pl, k, s, pl_fmt(pl, "(ww::mma_shape<%s, @_BM, @_BN>::threads)", type),
		pl_fmt(pl, "const %s *b, long long bs, long long bo, long long bi,\n\t\tint inner, int m, int n, int k", type),
		pl_fmt(pl, "gemm_mma_of<%s, @_BM, @_BN, @_STAGES, @_SPLIT, @_BK, @_AV, @_BV>({ b, bs, bo, bi, inner }, m, n, k",
			type));
	k->launch = pl_named(pl, k,
		"\tww_recipe_gemm_mma(p, &(struct ww_gemm_mma){ .kernel = \"@\", .dtype = %s, .m = %s, .n = %s, .k = %s, "
		".batch = %s, .inner = %s,\n\t\t.computed = %d,\n\t\t.b = %s });\n%s",
		pl_dtype_name(pl_gemm_dt(sp)), ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]),
		ix_text(pl, pl_gemm_inner(sp)), ix_text(pl, k->loop->outer), nb ? ix_text(pl, sp->out->size[nb - 1]) : "1",
		k->loop->vec, mma_operand(pl, k, 1), pl_plan_args(pl, k, "\t"));
}

static void print_thin(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch;
	const char *name = k->loop->form == THIN ? "thin" : "short";

	pl_cuda_kernel(pl, k, s, "256, 2",
		"const float *a, long long as, long long ao, long long ai, const float *b, long long bs, long long bo, "
		"long long bi,\n\t\tint inner, int m, int n, int k",
		pl_fmt(pl, "gemm_%s<@_%s, @_ALONG>({ a, as, ao, ai, inner }, { b, bs, bo, bi, inner }, m, n, k", name,
			k->loop->form == THIN ? "N, @_V, @_PARTS" : "K, @_COLS, @_V"));
	k->launch = pl_named(pl, k,
		"\tww_recipe_gemm_%s(p, &(struct ww_gemm_thin){ .kernel = \"@\", .m = %s, .n = %s, .k = %s, .batch = %s, "
		".inner = %s,\n\t\t.a = %s,\n\t\t.b = %s });\n%s",
		name, ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]), ix_text(pl, pl_gemm_inner(sp)),
		ix_text(pl, k->loop->outer), nb ? ix_text(pl, sp->out->size[nb - 1]) : "1", mma_operand(pl, k, 0),
		mma_operand(pl, k, 1), pl_plan_args(pl, k, "\t"));
}

void pl_gemm_print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	static void (*const ours[])(struct pl *, struct kern *, struct ww_str *) = { [ANY] = print_any,
		[THIN] = print_thin,
		[SHORT] = print_thin,
		[MMA] = print_mma,
		[HALF] = print_half,
		[SPLIT] = print_split };
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch, library = k->loop->library & BY_LIBRARY;
	const char *row = pl_var_or(k->anchor_idx[nb], "row_"), *loads = "", *axes;

	if (!k->loop->store) {
		const struct buf *y = k->out[0]->root;
		struct pl_end end = { .alpha = 1 };

		(void)pl_ends_as(pl, k, &end);
		k->launch = pl_fmt(pl, "\t{\n%s\t}\n", node(pl, k, pl_plan_buf(pl, y), y->dt, &end));
		return;
	}
	if (k->loop->form == ANY && !library)
		loads = pl_fmt(pl, "%s%s", element(pl, sp, 0), element(pl, sp, 1));
	axes = pl_fmt(
		pl, "%s\t\tconst ix_t %s = row;\n\t\t(void)%s;\n", pl_indent(pl, pl_axes(pl, k, 0, nb, "b"), 1), row, row);
	if (sp->computes)
		loads = pl_fmt(pl,
			"\ttemplate <int N> __device__ void load(int b, int row, int c, float (&v)[N]) const\n\t{\n%s%s\t}\n", axes,
			pl_indent(pl, k->loop->load, 2));
	pl_cuda_functor(pl, k, s, loads, "int b, int row, int col", axes);
	if (sp->computes)
		print_computed(pl, k, s);
	else if (library)
		pl_cuda_after_library(pl, k, s, "after_library",
			node(pl, k, "library_y", pl_gemm_library_dt(sp), &(struct pl_end){ .alpha = 1 }), pl_gemm_library_dt(sp),
			k->loop->outer, sp->out->size[nb], sp->out->size[nb + 1]);
	else
		ours[k->loop->form](pl, k, s);
}
