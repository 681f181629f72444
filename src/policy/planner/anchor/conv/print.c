/* print.c - the text of a convolution's kernels, and the values that the search tries. */
#include "policy/planner/anchor/conv/conv.h"
#include "policy/planner/lower/lower.h"
#include "policy/planner/print/print.h"
#include "policy/planner/schedule/group.h"
#include "policy/planner/schedule/schedule.h"

#include <string.h>

static const char *sizes(struct pl *pl, const struct ix *const *size, int nd)
{
	const char *s = ix_text(pl, size[2]);

	for (int e = 1; e < nd; e++)
		s = pl_fmt(pl, "%s, %s", s, ix_text(pl, size[2 + e]));
	return s;
}

static const char *numbers(struct pl *pl, const int64_t *v, int nd)
{
	const char *s = pl_fmt(pl, "%lld", (long long)v[0]);

	for (int e = 1; e < nd; e++)
		s = pl_fmt(pl, "%s, %lld", s, (long long)v[e]);
	return s;
}

/* The fields that the recipes of both targets have; `lead` and `choice`: further fields of cuda. */
static const char *geometry(struct pl *pl, const struct anchor *sp, const char *lead, const char *choice)
{
	int nd = sp->conv.nd;

	return pl_fmt(pl,
		".nd = %d, .transposed = %d, %s.groups = %d, .n = %s, .c = %s, .k = %s, .in = { %s }, .kernel = { %s }, "
		".out = { %s },\n"
		"\t\t.stride = { %s }, .pad = { %s }, .dilation = { %s }, %s.x_buf = %s, .w_buf = %s, .x_offset_bytes = %s, "
		".w_offset_bytes = %s",
		nd, sp->conv.transposed, lead, sp->conv.groups, ix_text(pl, sp->out->size[0]), ix_text(pl, sp->in[0].size[1]),
		ix_text(pl, sp->out->size[1]), sizes(pl, sp->in[0].size, nd), sizes(pl, sp->in[1].size, nd),
		sizes(pl, sp->out->size, nd), numbers(pl, sp->conv.stride, nd), numbers(pl, sp->conv.pad, nd),
		numbers(pl, sp->conv.dil, nd), choice, pl_plan_buf(pl, sp->in[0].buf), pl_plan_buf(pl, sp->in[1].buf),
		pl_bytes(pl, &sp->in[0]), pl_bytes(pl, &sp->in[1]));
}

const struct knob_row pl_conv_cpu_knobs[] = { { KNOB(cpu_conv.tile_rows), "tile_rows", { 4, 8, 16, 2 } }, { 0 } };

void pl_conv_print_cpu(struct pl *pl, struct kern *k, struct ww_str *s)
{
	int dt = k->anchor->in[0].val->dt;
	const char *suffix = pl_cpu_suffix(dt);

	pl_cpu_context(pl, k, s);
	pl_cpu_functor(pl, k, s,
		"void @_epi(const void *ctx, long long img, long long chan, long long pixel, ww_vf acc, int n)",
		pl_fmt(pl, "%s%s\tconst ix_t %s_0 = pixel;\n\n\t(void)img;\n\t(void)chan;\n", pl_axis(pl, k, 0, "img"),
			pl_axis(pl, k, 1, "chan"), k->loop->lane->name),
		k->loop->store);
	ww_str_adds(s, pl_named(pl, k, "WW_KERNEL(@_pack)\n{\n\tww_cpu_conv_pack%s(b, arg);\n}\n\n", suffix));
	pl_cpu_kernel(pl, k, s, "WW_CONV_ARGS", pl_fmt(pl, "ww_cpu_conv%s(b, arg, @_epi, &c)", suffix));
	k->launch = pl_named(pl, k,
		"\tww_recipe_cpu_conv(p, \"@\", &(struct ww_cpu_conv){\n\t\t%s,\n\t\t.tile_rows = %d });\n%s",
		geometry(pl, k->anchor, dt == WW_F32 ? "" : ".half = 1, ", ""), pl_knobs(pl, k->id)->cpu_conv.tile_rows,
		pl_plan_args(pl, k, "\t"));
}

const struct knob_row pl_conv_cuda_knobs[] = { { KNOB(conv.end), "end",
												   { WW_CONV_PAIRS, WW_CONV_STAGED, WW_CONV_REGISTERS } },
	{ KNOB(conv.filters), "filters", { 64, 128 } }, { KNOB(conv.bn), "bn", { 256, 128 } },
	{ KNOB(conv.tw), "tw", { 16, 32, 128, 64, 8 } }, { KNOB(choice), "algorithm", { 1, 2, 4, 3 } }, { 0 } };

/* The statement of plan.c that has the library write to buffer `y`. */
static const char *node(struct pl *pl, const struct kern *k, const char *y)
{
	const struct knobs *kn = pl_knobs(pl, k->id);
	int dt = k->anchor->out->dt;

	return pl_fmt(pl, "\t\tww_recipe_conv_library(p, &(struct ww_conv){ %s, .y_buf = %s });\n",
		geometry(pl, k->anchor,
			pl_fmt(pl, ".dtype = %s, .math = WW_MATH_%s, %s", pl_dtype_name(dt),
				pl_math_name(dt, kn->library == LIBRARY_FP32 ? "FP32" : "TF32"),
				k->anchor->conv.last ? ".layout = WW_LAYOUT_NHWC, " : ""),
			pl_fmt(pl, ".choice = %d, ", kn->choice)),
		y);
}

/* The fields of struct ww_conv2d: of the last two dimensions, and of a third before them. */
static const char *geometry2(struct pl *pl, const struct anchor *sp)
{
	static const int64_t none[] = { 0 }, one[] = { 1 };
	int nd = sp->conv.nd, y = nd - 2, x = nd - 1;
	const char *t = pl_fmt(pl, ".h = %s, .w = %s, .r = %s, .s = %s", nd == 1 ? "1" : ix_text(pl, sp->in[0].size[nd]),
		ix_text(pl, sp->in[0].size[nd + 1]), nd == 1 ? "1" : ix_text(pl, sp->in[1].size[nd]),
		ix_text(pl, sp->in[1].size[nd + 1]));
	const struct {
		const char *name;
		const int64_t *v, *absent;
	} pairs[] = { { "stride", sp->conv.stride, one }, { "pad", sp->conv.pad, none }, { "dil", sp->conv.dil, one },
		{ "out_pad", sp->conv.opad, none } };

	for (size_t i = 0; i < WW_ARRAY_LEN(pairs); i++)
		t = pl_fmt(pl, "%s, .%s = { %lld, %lld }", t, pairs[i].name,
			(long long)(y < 0 ? *pairs[i].absent : pairs[i].v[y]), (long long)pairs[i].v[x]);
	if (nd == 3)
		t = pl_fmt(pl, "%s, .d = %s, .t = %s", t, ix_text(pl, sp->in[0].size[2]), ix_text(pl, sp->in[1].size[2]));
	for (size_t i = 0; nd == 3 && i < WW_ARRAY_LEN(pairs); i++)
		t = pl_fmt(pl, "%s, .%s3 = %lld", t, pairs[i].name, (long long)pairs[i].v[0]);
	return t;
}

/* Is k a convolution by the tensor-core template, which packs its image? */
static int packs(const struct kern *k)
{
	return k->anchor && k->anchor->kind == S_CONV && !k->segment && k->loop->form == TENSOR_CORES &&
		!(k->loop->library & BY_LIBRARY);
}

/* Do both pack the same image (the convolutions of a gate and its value)? */
static int packs_the_same(struct pl *pl, const struct kern *a, const struct kern *b)
{
	const struct operand *x, *y;

	if (!packs(a) || !packs(b))
		return 0;
	x = &a->anchor->in[0], y = &b->anchor->in[0];
	if (x->buf != y->buf || pl_conv_by_pairs(a->anchor) != pl_conv_by_pairs(b->anchor) || x->rank != y->rank ||
		strcmp(pl_bytes(pl, x), pl_bytes(pl, y)) != 0)
		return 0;
	for (int d = 0; d < x->rank; d++)
		if (!ix_same(x->size[d], y->size[d]))
			return 0;
	return 1;
}

/* The first kernel that packs k's image, k itself if no other does. */
static const struct kern *packs_image(struct pl *pl, const struct kern *k)
{
	for (int i = 0; i < pl->n_kern && pl->kern[i] != k; i++)
		if (packs_the_same(pl, pl->kern[i], k))
			return pl->kern[i];
	return k;
}

static int is_packed_for_others(struct pl *pl, const struct kern *k)
{
	for (int i = 0; i < pl->n_kern; i++)
		if (pl->kern[i] != k && packs_the_same(pl, pl->kern[i], k))
			return packs_image(pl, k) == k;
	return 0;
}

static void print_ours(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct anchor *sp = k->anchor;
	const struct knobs *kn = pl_knobs(pl, k->id);
	const char *type = pl_ctype(sp->in[0].val->dt, pl->target);
	int tc = k->loop->form == TENSOR_CORES, few = k->loop->form == FEW, half = sp->out->dt != WW_F32;
	struct ww_conv_way way = { 0, kn->conv.bn, 128, { kn->conv.tw, 0, 0, 0 }, 0 };

	if (tc)
		way = pl_conv_way_of(pl, k);
	ww_str_adds(s, pl_named(pl, k, "WW_CONV_SHAPE(@)\n"));
	if (tc)
		pl_cuda_kernel(pl, k, s, way.end == WW_CONV_PAIRS ? "640, 1" : "384, 1",
			"const __grid_constant__ ww_tensor_map ta, const __grid_constant__ ww_tensor_map tb,\n"
			"\t\tconst unsigned *sw, const unsigned *sx",
			"conv_tc<@_shape>(ta, tb, sw, sx");
	else if (few && !half)
		pl_cuda_kernel(pl, k, s, "256, 2", "const float *conv_x, const __half *conv_w, const unsigned *sw",
			"conv_few<@_shape>(conv_x, conv_w, sw");
	else
		pl_cuda_kernel(pl, k, s, few ? "256, 2" : "256", pl_fmt(pl, "const %s *conv_x, const %s *conv_w", type, type),
			few ? "conv_few<@_shape>(conv_x, conv_w" : "conv_direct<@_shape>(conv_x, conv_w");
	k->launch = pl_named(pl, k,
		"\t%sww_recipe_conv_%s(p, &(struct ww_conv2d){ .kernel = \"@\", .x_buf = %s, .w_buf = %s, "
		".x_offset_bytes = %s, .w_offset_bytes = %s,\n"
		"\t\t.n = %s, .c = %s, .k = %s, .transposed = %d, .groups = %d, .bn = %d, .tw = %d%s%s%s%s,\n\t\t%s });\n%s",
		tc && is_packed_for_others(pl, k) ? pl_fmt(pl, "const struct ww_conv_packed %s_packed = ", k->name) : "",
		tc ? "tc"
			: few ? "few"
				  : "direct",
		pl_plan_buf(pl, sp->in[0].buf), pl_plan_buf(pl, sp->in[1].buf), pl_bytes(pl, &sp->in[0]),
		pl_bytes(pl, &sp->in[1]), ix_text(pl, sp->out->size[0]), ix_text(pl, sp->in[0].size[1]),
		ix_text(pl, sp->out->size[1]), sp->conv.transposed, sp->conv.groups, way.bn, way.tile.tw,
		way.end == WW_CONV_STAGED      ? ", .staged = 1"
			: way.end == WW_CONV_PAIRS ? ", .staged = 1, .pairs = 2"
									   : "",
		tc && way.filters == 64 ? ", .filters = 64"
			: few && half       ? ", .half = 1"
								: "",
		tc && pl_conv_by_pairs(sp) ? ", .exact = 1" : "",
		tc && packs_image(pl, k) != k ? pl_fmt(pl, ", .packed = &%s_packed", packs_image(pl, k)->name) : "",
		geometry2(pl, sp), pl_plan_args(pl, k, "\t"));
}

static void print_halves(struct pl *pl, struct kern *k, struct ww_str *s)
{
	pl_cuda_kernel(pl, k, s, "256",
		"const __half *library_y, long long library_rows, const unsigned *sw, const unsigned *sx",
		"after_halves<ix_t, @_ROWS, @_COLS, @_VEC, @_RUNS>(library_y, library_rows, sw, sx");
	k->launch = pl_named(pl, k, "\tww_recipe_conv_halves(p, \"@\", &(struct ww_conv){ %s }, %d);\n%s",
		geometry(pl, k->anchor, "", pl_fmt(pl, ".choice = %d, ", pl_knobs(pl, k->id)->choice)), k->loop->width,
		pl_plan_args(pl, k, "\t"));
}

static void print_last(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct val *out = k->anchor->out;
	const char *y = node(pl, k, "library_y");

	pl_cuda_pixel_functor(pl, k, s);
	pl_cuda_after_library(pl, k, s, k->loop->form == TO_LAST ? "after_library_turned" : "after_library", y, out->dt,
		out->size[0], k->loop->inner, out->size[1]);
}

void pl_conv_print_cuda(struct pl *pl, struct kern *k, struct ww_str *s)
{
	const struct val *out = k->anchor->out;
	const char *image = pl_var_or(k->anchor_idx[0], "image_"), *chan = pl_var_or(k->anchor_idx[1], "chan_");

	if (!k->loop->store) {
		k->launch = pl_fmt(pl, "\t{\n%s\t}\n", node(pl, k, pl_plan_buf(pl, out->root)));
		return;
	}
	if (k->loop->form == LAST || k->loop->form == TO_LAST) {
		print_last(pl, k, s);
		return;
	}
	pl_cuda_functor(pl, k, s, "", "int image, int chan, int pix",
		pl_fmt(pl, "\t\tconst ix_t %s = image, %s = chan;\n\t\t(void)%s;\n\t\t(void)%s;\n", image, chan, image, chan));
	if (k->loop->form == HALVES)
		print_halves(pl, k, s);
	else if (k->loop->library & BY_LIBRARY)
		pl_cuda_after_library(pl, k, s, k->loop->form == TURNED ? "after_library_turned" : "after_library",
			node(pl, k, "library_y"), out->dt, out->size[0], out->size[1], k->loop->inner);
	else
		print_ours(pl, k, s);
}
