/* gemm.c - products of matrices. */
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"

#include <string.h>

/* sum over k of a[..., m, k] b[..., k, n] as a reduction of a product. */
static struct val *by_reduction(struct pl *pl, struct val *a, struct val *b)
{
	int r = a->rank, perm[PL_MAX_RANK];

	for (int i = 0; i < r; i++)
		perm[i] = i;
	perm[r - 1] = r - 2;
	perm[r - 2] = r - 1;
	b = pl_permute(pl, b, perm);    /* (..., n, k) */
	a = pl_unsqueeze(pl, a, r - 1); /* (..., m, 1, k) */
	b = pl_unsqueeze(pl, b, r - 2); /* (..., 1, n, k) */
	return pl_reduce(pl, RED_SUM, pl_op2(pl, OP_MUL, a, b), 1u << r, 0);
}

/* So few multiply-adds that a warp for each result ends long before a tile's loop over k (on an H200 4 x 90 x 512 takes
 * such a loop 66 us).  Up to 64 terms are computed again by each reader, so the tile is for them. */
static int is_small(const struct pl *pl, const struct val *a, const struct ix *n)
{
	return pl->target == WW_TARGET_CUDA && a->dt == WW_F32 && !pl_all_plain(pl) && ix_num(a->size[a->rank - 1]) > 64 &&
		(double)pl_numel_now(a) * (double)ix_num(n) <= 1 << 21;
}

/* Each element is read many times: not computed as often. */
static void store_base(struct pl *pl, struct val *v)
{
	while (v->kind == V_VIEW && !v->root)
		v = v->arg[0];
	if (v->kind == V_OP || v->kind == V_RED)
		pl_make_root(pl, v);
}

struct val *pl_gemm(struct pl *pl, struct gnode *n, struct val *a, struct val *b)
{
	int nb = a->rank - 2, dt = pl_promote(a->dt, b->dt);
	const struct ix *size[PL_MAX_RANK], *m = a->size[nb], *k = a->size[nb + 1], *nn = b->size[nb + 1];
	struct anchor *s;

	pl_guard_eq(pl, k, b->size[nb], "the inner sizes of a matrix product");
	a = pl_cast(pl, a, dt);
	b = pl_cast(pl, b, dt);
	if (is_small(pl, a, nn)) {
		store_base(pl, a);
		store_base(pl, b);
	}
	if (ix_num(m) == 1 || ix_num(nn) == 1 || ix_num(k) <= 4 || is_small(pl, a, nn) ||
		!(dt == WW_F32 || (pl->target == WW_TARGET_CUDA && (dt == WW_F16 || dt == WW_BF16))))
		return by_reduction(pl, a, b);
	s = pl_anchor(pl, n, S_GEMM, "gemm");
	memcpy(size, a->size, sizeof(size));
	size[nb + 1] = nn;
	s->gemm.n_batch = nb;
	pl_anchor_operand(s, a);
	pl_anchor_operand(s, b);
	return pl_anchor_out(pl, s, dt, nb + 2, size);
}

static const struct ix *inner(const struct anchor *s) { return s->in[0].size[s->gemm.n_batch + 1]; }

/* One stride over all batches, and unit stride along a row or a column. */
static int fits(struct pl *pl, const struct anchor *s, int which, const struct operand *o)
{
	const struct ix *const *st = o->stride;
	int r = s->gemm.n_batch + 2, by_row, by_col;

	for (int d = 0; d + 1 < s->gemm.n_batch; d++)
		if (ix_num(st[d]) != ix_num(st[d + 1]) * ix_num(o->val->size[d + 1]))
			return 0;
	by_row = ix_num(st[r - 1]) == 1 && ix_num(st[r - 2]) > 0;
	by_col = ix_num(st[r - 2]) == 1 && ix_num(st[r - 1]) > 0;
	return by_row || (by_col && (which == 1 || pl->target == WW_TARGET_CUDA));
}

/* ---- Schedule ---------------------------------------------------------------------------------------------------- */

enum form { ANY, HALF, SPLIT }; /* ww::gemm_any, ww::gemm16, ww::gemm3 */

static const struct ix *stride_of(struct pl *pl, const struct anchor *sp, int which, int d)
{
	return d < 0 ? ix_const(pl, 0) : sp->in[which].stride[d];
}

/* Both operands along k without gaps, aligned: what 16-bit tensor maps need. */
static int fits_gemm16(const struct anchor *sp)
{
	int nb = sp->gemm.n_batch, r = nb + 2;

	for (int i = 0; i < 2; i++) {
		const struct operand *o = &sp->in[i];

		if (!ix_is(o->stride[i ? r - 2 : r - 1], 1) || ix_num(o->stride[i ? r - 1 : r - 2]) % 8 ||
			ix_num(o->offset) % 8 || (nb && ix_num(o->stride[nb - 1]) % 8))
			return 0;
	}
	return 1;
}

/* Rows of an operand do not overlap. */
static int fits_library(const struct anchor *sp)
{
	int r = sp->gemm.n_batch + 2;

	for (int i = 0; i < 2; i++) {
		const struct operand *o = &sp->in[i];
		int rows = ix_is(o->stride[r - 1], 1); /* (m, k) and (k, n) row by row, or by columns */
		const struct ix *length = rows == i ? sp->out->size[r - 2 + i] : inner(sp);

		if (ix_num(o->stride[rows ? r - 2 : r - 1]) < ix_num(length))
			return 0;
	}
	return 1;
}

/* Of 16 bits: our tiles, or none of the library. */
static int ends_free(struct pl *pl, const struct anchor *s)
{
	return pl->target == WW_TARGET_CPU || pl_all_plain(pl) || (pl->dev.cc == 90 && fits_gemm16(s));
}

static void choose(struct pl *pl, const struct kern *k, struct loop *l)
{
	const struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	int half = sp->out->dt != WW_F32, any, library;
	double work = (double)pl_numel_now(sp->out) * (double)ix_num(inner(sp)); /* multiply-adds of all products */

	l->outer = pl_sizes(pl, sp->out, 0, sp->gemm.n_batch);
	if (pl->target == WW_TARGET_CPU)
		return;
	any = kn->plain || pl->dev.cc != 90 || (half ? !fits_gemm16(sp) : work / (double)ix_num(l->outer) < 1 << 24);
	library = kn->library ? kn->library != LIBRARY_NO : any && !kn->plain && (half || work >= 1 << 22);
	l->form = any ? ANY : half ? HALF : SPLIT;
	l->library = (any ? 0 : OURS_TILED) | (library && fits_library(sp) ? BY_LIBRARY : 0);
}

static int reads_operands(struct pl *pl, const struct kern *k)
{
	struct loop l = { 0 };

	choose(pl, k, &l);
	return pl->target == WW_TARGET_CUDA && l.form == ANY && !(l.library & BY_LIBRARY);
}

static void build(struct pl *pl, struct kern *k)
{
	const struct val *out = k->anchor->out;
	int nb = k->anchor->gemm.n_batch;
	struct loop *l = k->loop;

	l->lane = pl_lane_of(pl, k, nb + 1);
	l->width = ix_num(out->size[nb + 1]) % 2 ? 1 : 2;
	choose(pl, k, l);
	if (!(l->library & BY_LIBRARY) || !pl_is_bare(k))
		l->store = pl_store_body(pl, k, "col");
	for (int i = 0; i < 2 && reads_operands(pl, k); i++)
		pl_kern_arg(pl, k, k->anchor->in[i].buf);
}

/* ---- cpu --------------------------------------------------------------------------------------------------------- */

static const struct knob_row cpu_knobs[] = { { KNOB(cpu_gemm.nb), "nb", { 96, 192, 48 } },
	{ KNOB(cpu_gemm.kc), "kc", { 512, 768 } }, { KNOB(cpu_gemm.mt), "mt", { 256, 128 } }, { 0 } };

static void print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	int nb = sp->gemm.n_batch, r = nb + 2, b_nk = !ix_is(sp->in[1].stride[r - 1], 1);
	const struct operand *a = &sp->in[0], *b = &sp->in[1];

	pl_cpu_context(pl, k, s);
	pl_cpu_functor(pl, k, s, "void @_epi(const void *ctx, long long z, long long row, long long col, ww_vf acc, int n)",
		pl_fmt(pl, "%s%s\tconst ix_t %s_0 = col;\n\n\t(void)z;\n\t(void)row;\n", pl_axes(pl, k, 0, nb, "z"),
			pl_axis(pl, k, r - 2, "row"), k->loop->lane->name),
		k->loop->store);
	pl_cpu_kernel(pl, k, s, "WW_GEMM_ARGS", "ww_cpu_gemm(b, arg, @_epi, &c)");
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_gemm(p, \"@\", &(struct ww_cpu_gemm){\n"
		"\t\t.m = %s, .n = %s, .k = %s, .batch = %s, .a_buf = %s, .b_buf = %s, .a_offset_bytes = %s, "
		".b_offset_bytes = %s,\n"
		"\t\t.lda = %s, .ldb = %s, .a_batch_stride = %s, .b_batch_stride = %s, .b_nk = %d, .nb = %d, .mt = %d, "
		".kc = %d });\n%s",
		ix_text(pl, sp->out->size[r - 2]), ix_text(pl, sp->out->size[r - 1]), ix_text(pl, inner(sp)),
		ix_text(pl, k->loop->outer), pl_plan_buf(pl, a->buf), pl_plan_buf(pl, b->buf), pl_bytes(pl, a), pl_bytes(pl, b),
		ix_text(pl, a->stride[r - 2]), ix_text(pl, b->stride[b_nk ? r - 1 : r - 2]),
		ix_text(pl, stride_of(pl, sp, 0, nb - 1)), ix_text(pl, stride_of(pl, sp, 1, nb - 1)), b_nk, kn->cpu_gemm.nb,
		kn->cpu_gemm.mt, kn->cpu_gemm.kc, pl_plan_args(pl, k, "\t"));
}

/* ---- cuda -------------------------------------------------------------------------------------------------------- */

static const struct knob_row cuda_knobs[] = { { KNOB(gemm.bn), "bn", { 192, 128 } },
	{ KNOB(gemm.stages), "stages", { 5, 4 } }, { KNOB(gemm.cluster), "cluster", { 2, 1 } },
	{ KNOB(gemm.promote), "promote", { 8 } }, { 0 } };

static const char *matrix(struct pl *pl, const struct kern *k, int which)
{
	const struct anchor *sp = k->anchor;
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch;

	return pl_fmt(pl,
		"{ .buf = %s, .offset_bytes = %s, .rows = %s, .k = %s, .batch = %s, .row_stride = %s, .k_stride = %s, "
		".batch_stride = %s }",
		pl_plan_buf(pl, o->buf), pl_bytes(pl, o), ix_text(pl, sp->out->size[nb + which]), ix_text(pl, inner(sp)),
		ix_text(pl, k->loop->outer), ix_text(pl, o->stride[nb + which]), ix_text(pl, o->stride[nb + 1 - which]),
		ix_text(pl, stride_of(pl, sp, which, nb - 1)));
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
		"ab"[which], row, col, o->buf->name, ix_text(pl, o->offset), ix_text(pl, stride_of(pl, sp, which, nb - 1)), row,
		ix_text(pl, o->stride[nb]), col, ix_text(pl, o->stride[nb + 1]));
}

/* An operand of the library's product: row-major, or the transpose of such a matrix. */
static const char *library_matrix(struct pl *pl, const struct anchor *sp, int which)
{
	const struct operand *o = &sp->in[which];
	int nb = sp->gemm.n_batch, trans = !ix_is(o->stride[nb + 1], 1);

	return pl_fmt(pl, "{ .buf = %s, .offset_bytes = %s, .dtype = %s, .trans = %d, .ld = %s, .batch_stride = %s }",
		pl_plan_buf(pl, o->buf), pl_bytes(pl, o), pl_dtype_name(sp->out->dt), trans, ix_text(pl, o->stride[nb + trans]),
		ix_text(pl, stride_of(pl, sp, which, nb - 1)));
}

/* The library node that writes to buffer `y` of plan.c. */
static const char *node(struct pl *pl, const struct kern *k, const char *y)
{
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch;
	const char *m = ix_text(pl, sp->out->size[nb]), *n = ix_text(pl, sp->out->size[nb + 1]);

	return pl_fmt(pl,
		"\t\tww_recipe_gemm_library(p, &(struct ww_gemm){ .m = %s, .n = %s, .k = %s, .batch = %s, .alpha = 1, "
		".math = WW_MATH_%s,\n"
		"\t\t\t.a = %s,\n\t\t\t.b = %s,\n\t\t\t.d = { .buf = %s, .dtype = %s, .ld = %s, "
		".batch_stride = (%s) * (%s) } });\n",
		m, n, ix_text(pl, inner(sp)), ix_text(pl, k->loop->outer), pl_math_name(sp->out->dt, "FP32"),
		library_matrix(pl, sp, 0), library_matrix(pl, sp, 1), y, pl_dtype_name(sp->out->dt), n, m, n);
}

/* Operand `which` in two fp16 halves: made once where an earlier product has the same operand. */
static const char *halves(struct pl *pl, struct kern *k, int which)
{
	const char *mat = matrix(pl, k, which);
	int i = 0;

	while (i < pl->n_split && strcmp(pl->split_text[i], mat))
		i++;
	if (i == pl->n_split && i < (int)WW_ARRAY_LEN(pl->split_text)) {
		pl->split_text[pl->n_split++] = mat;
		k->launch = pl_fmt(
			pl, "%s\tconst struct ww_operand half%d = ww_recipe_split(p, &(struct ww_matrix)%s);\n", k->launch, i, mat);
	}
	return pl_fmt(pl, "half%d", i);
}

static void print_split(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	const char *a, *b;

	pl_cuda_kernel(pl, k, s, "384, 1",
		"const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb,\n"
		"\t\tconst unsigned *sa, const unsigned *sb, int m, int n, int kb, int batch",
		"gemm3<@_BN, @_STAGES, @_PROMOTE, @_CLUSTER, @_GROUP>(ta, tb, sa, sb, m, n, kb, batch");
	k->launch = "";
	a = halves(pl, k, 0);
	b = halves(pl, k, 1);
	k->launch = pl_named(pl, k,
		"%s\tww_recipe_gemm3(p, &(struct ww_gemm3){ .kernel = \"@\", .a = %s, .b = %s, .bn = %d, .stages = %d, "
		".cluster = %d, .promote = %d });\n%s",
		k->launch, a, b, kn->gemm.bn, kn->gemm.stages, kn->gemm.cluster, kn->gemm.promote, pl_plan_args(pl, k, "\t"));
}

static void print_half(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	int dt = k->anchor->out->dt;

	pl_cuda_kernel(pl, k, s, "384, 1",
		"const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb,\n"
		"\t\tint m, int n, int kb, int batch",
		pl_fmt(pl, "gemm16<%s, @_BN, @_STAGES, @_CLUSTER, @_GROUP>(ta, tb, m, n, kb, batch", pl_ctype(dt, pl->target)));
	k->launch = pl_named(pl, k,
		"\tww_recipe_gemm16(p, &(struct ww_gemm16){ .kernel = \"@\", .dtype = %s, .bn = %d, .stages = %d, "
		".cluster = %d,\n\t\t.a = %s,\n\t\t.b = %s });\n%s",
		pl_dtype_name(dt), kn->gemm.bn, kn->gemm.stages, kn->gemm.cluster, matrix(pl, k, 0), matrix(pl, k, 1),
		pl_plan_args(pl, k, "\t"));
}

static void print_any(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch;

	pl_cuda_kernel(pl, k, s, "256", "int m, int n, int k, int batch", "gemm_any<@_BM, @_BN>(m, n, k, batch");
	k->launch = pl_named(pl, k,
		"\tww_recipe_gemm_any(p, &(struct ww_gemm_any){ .kernel = \"@\", .m = %s, .n = %s, .k = %s, "
		".batch = %s });\n%s",
		ix_text(pl, sp->out->size[nb]), ix_text(pl, sp->out->size[nb + 1]), ix_text(pl, inner(sp)),
		ix_text(pl, k->loop->outer), pl_plan_args(pl, k, "\t"));
}

static void print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	static void (*const ours[])(struct pl *, struct kern *,
		struct ww_str *) = { [ANY] = print_any, [HALF] = print_half, [SPLIT] = print_split };
	const struct anchor *sp = k->anchor;
	int nb = sp->gemm.n_batch, library = k->loop->library & BY_LIBRARY;
	const char *row = pl_var_or(k->anchor_idx[nb], "row_"), *loads = "";

	if (!k->loop->store) {
		k->launch = pl_fmt(pl, "\t{\n%s\t}\n", node(pl, k, pl_plan_buf(pl, sp->out->root)));
		return;
	}
	if (k->loop->form == ANY && !library)
		loads = pl_fmt(pl, "%s%s", element(pl, sp, 0), element(pl, sp, 1));
	pl_cuda_functor(pl, k, s, loads, "int b, int row, int col",
		pl_fmt(
			pl, "%s\t\tconst ix_t %s = row;\n\t\t(void)%s;\n", pl_indent(pl, pl_axes(pl, k, 0, nb, "b"), 1), row, row));
	if (library)
		pl_cuda_after_library(pl, k, s, "after_library", node(pl, k, "library_y"), k->loop->outer, sp->out->size[nb],
			sp->out->size[nb + 1]);
	else
		ours[k->loop->form](pl, k, s);
}

const struct anchor_ops pl_gemm_ops = { .header = "gemm",
	.by_library = "products",
	.fuses = FUSES_READER,
	.fits = fits,
	.reads_operands = reads_operands,
	.ends_free = ends_free,
	.build = build,
	.knobs = { cpu_knobs, cuda_knobs },
	.print = { print_cpu, print_cuda } };
