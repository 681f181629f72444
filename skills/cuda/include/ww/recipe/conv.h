/* recipe/conv.h - the plan half of <ww/conv.cuh>.  See skills/cuda/references/cookbook-cuda-convolutions.md. */
#ifndef WW_RECIPE_CONV_H
#define WW_RECIPE_CONV_H

#include <ww/plan.h>
#include <ww/recipe/common.h>
#include <ww/recipe/conv_few_tile.h>
#include <ww/recipe/conv_tile.h>
#include <ww/recipe/gemm.h>
#include <ww/recipe/library.h>

/* Buffers: the image and the filters packed as fp16, and the bits that their scales come from, of each image and each
 * output channel. */
struct ww_conv_packed {
	int x, w, x_scales, w_scales;
};

/* A convolution of one to three dimensions, fp32 (conv_direct: or 16 bits), NCHW (NCDHW); missing dimensions are 1
 * (left 0).  Sizes and the stride, padding, dilation and output padding of height and width come as pairs, those of
 * depth as single fields. */
struct ww_conv2d {
	const char *kernel;
	int x_buf, w_buf;
	long long x_offset_bytes, w_offset_bytes;
	long long n, c, h, w, k, r, s;
	int stride[2], pad[2], dil[2], out_pad[2];
	int transposed, groups; /* groups 0 counts as 1 */
	long long d, t;         /* depth of the image and of the kernel */
	int stride3, pad3, dil3, out_pad3;
	int exact;  /* conv_tc: 1 fp32-class accuracy (about a third of the speed), 0 TF32-class */
	int bn;     /* conv_tc: pixels a tile, 128 or 256; default 256 */
	int tw;     /* conv_tc: width of a tile, 8 to bn (or 64); default by the estimate of conv_tile.h */
	int stages; /* conv_tc: default 4 (bn 256), 6 (bn 128) */
	int staged; /* conv_tc: 1 results go through shared memory, planes are stored in long pieces; transposed: horizontal
	             * strides of 1, or of 2, 4 and 8 where taps lie side by side */
	int pairs;  /* conv_tc: 2, staged and bn 128, one pair of warpgroups multiplies while the other stores */
	int filters; /* conv_tc: 64 in a tile in place of 128; bn 256, also with two pairs; not staged also 128 */
	int half;    /* conv_few: elements of 16 bits */
	const struct ww_conv_packed *packed; /* conv_tc: another one's of the same image, which is not packed again */
};

static int ww_conv_or1(int v) { return v ? v : 1; }

/* c as the library's nodes have it, with depth, height and width in this order. */
static struct ww_conv ww_conv_geometry(const struct ww_conv2d *c)
{
	const int out_pad[] = { c->out_pad3, c->out_pad[0], c->out_pad[1] };
	struct ww_conv g = { .nd = 3,
		.transposed = c->transposed != 0,
		.groups = ww_conv_or1(c->groups),
		.n = c->n,
		.c = c->c,
		.k = c->k,
		.in = { c->d ? c->d : 1, c->h, c->w },
		.kernel = { c->t ? c->t : 1, c->r, c->s },
		.stride = { ww_conv_or1(c->stride3), ww_conv_or1(c->stride[0]), ww_conv_or1(c->stride[1]) },
		.pad = { c->pad3, c->pad[0], c->pad[1] },
		.dilation = { ww_conv_or1(c->dil3), ww_conv_or1(c->dil[0]), ww_conv_or1(c->dil[1]) },
		.x_buf = c->x_buf,
		.w_buf = c->w_buf,
		.x_offset_bytes = c->x_offset_bytes,
		.w_offset_bytes = c->w_offset_bytes };

	for (int e = 0; e < g.nd; e++) {
		const long long reach = g.dilation[e] * (g.kernel[e] - 1), pad = 2LL * g.pad[e];

		g.out[e] = g.transposed ? (g.in[e] - 1) * g.stride[e] - pad + reach + out_pad[e] + 1
								: (g.in[e] + pad - reach - 1) / g.stride[e] + 1;
	}
	return g;
}

static void ww_conv_define(struct ww_plan *p, const char *kernel, const struct ww_conv *g, int bn, int tw, int th,
	int tn, int stages, int pair, int exact, int staged, int pairs, int filters, int kt, int pt)
{
	const struct {
		const char *name;
		long long value;
	} m[] = { { "N", g->n }, { "C", g->c }, { "K", g->k }, { "GROUPS", g->groups }, { "TRANSPOSED", g->transposed },
		{ "D", g->in[0] }, { "H", g->in[1] }, { "W", g->in[2] }, { "T", g->kernel[0] }, { "R", g->kernel[1] },
		{ "S", g->kernel[2] }, { "OD", g->out[0] }, { "OH", g->out[1] }, { "OW", g->out[2] }, { "SD", g->stride[0] },
		{ "SH", g->stride[1] }, { "SW", g->stride[2] }, { "PD", g->pad[0] }, { "PH", g->pad[1] }, { "PW", g->pad[2] },
		{ "DD", g->dilation[0] }, { "DH", g->dilation[1] }, { "DW", g->dilation[2] },
		{ "CB", ww_cdiv(g->c, exact ? 32 : 64) }, { "BN", bn }, { "TW", tw }, { "TH", th }, { "TN", tn },
		{ "STAGES", stages }, { "PAIR", pair }, { "EXACT", exact }, { "STAGED", staged }, { "PAIRS", pairs },
		{ "FILTERS", filters }, { "KT", kt }, { "PT", pt } };

	for (int i = 0; i < (int)(sizeof m / sizeof m[0]); i++)
		ww_tunable(p, kernel, m[i].name, m[i].value);
}

/* Leading arguments: const T *x, *w (float, half, bfloat16). */
static void ww_recipe_conv_direct(struct ww_plan *p, const struct ww_conv2d *c)
{
	const struct ww_conv g = ww_conv_geometry(c);
	const struct ww_conv_columns l = { g.n, g.groups, g.k / g.groups, g.out[0] * g.out[2], g.out[1], (int)g.kernel[1],
		g.stride[1], g.dilation[1], g.transposed };
	struct ww_conv_thread t;

	if (l.columns < 1 || l.oh < 1 || g.out[2] < 1 || l.columns * l.oh > 0x7fffffff || g.c % g.groups ||
		g.k % g.groups) {
		ww_fail(p, "conv: impossible sizes");
		return;
	}
	t = ww_conv_thread(&l, ww_device(p)->sm_count);
	ww_conv_define(p, c->kernel, &g, 0, 0, 0, 0, 0, 0, 0, 0, 1, 128, t.kt, t.pt);
	ww_launch(p, c->kernel, ww_cdiv(ww_conv_threads(&l, t), 256), 1, 1, 256, 1, 1);
	ww_arg_buf(p, c->x_buf, c->x_offset_bytes);
	ww_arg_buf(p, c->w_buf, c->w_offset_bytes);
}

static long long ww_conv_elements(const long long *size, int nd)
{
	long long all = 1;

	for (int e = 0; e < nd; e++)
		all *= size[e];
	return all;
}

static const int ww_conv_channels[] = { 64, 32, 8 }, ww_conv_halves[] = { 64, 64, 8 }; /* of a block */

/* Taps of a filter where every `apart`-th one of a row, with `ahead` zeros in front, is packed to a row of its own. */
static long long ww_conv_taps(const struct ww_conv *c, int ahead, int apart)
{
	const long long width = c->kernel[c->nd - 1];

	return ww_conv_elements(c->kernel, c->nd) / width * ww_cdiv(ahead + width, apart);
}

/* Packs the filters of c to two buffers. */
static void ww_conv_pack_filters(
	struct ww_plan *p, const struct ww_conv *c, int operands, int ahead, int apart, int w, int w_scales)
{
	const long long taps = ww_conv_elements(c->kernel, c->nd);

	ww_launch(p, ww_fmt(p, "ww::conv_pack_w<%d>", operands), c->k * apart, 1, 1, 256, 1, 1);
	ww_arg_buf(p, c->w_buf, c->w_offset_bytes);
	ww_arg_i64(p, c->transposed ? taps : c->c * taps);
	ww_arg_i64(p, c->transposed ? c->k * taps : taps);
	ww_arg_i32(p, (int)c->c);
	ww_arg_i32(p, (int)taps);
	ww_arg_i32(p, (int)c->kernel[c->nd - 1]);
	ww_arg_i32(p, ahead);
	ww_arg_i32(p, apart);
	ww_arg_i32(p, (int)ww_cdiv(c->c, ww_conv_channels[operands]));
	ww_arg_buf(p, w, 0);
	ww_arg_buf(p, w_scales, 0);
}

/* Packs the operands of c, fp32 in PyTorch's order and one group, for what enum conv_operands of conv.cuh says; image:
 * packed so already, or NULL. */
static struct ww_conv_packed ww_conv_pack(
	struct ww_plan *p, const struct ww_conv *c, int operands, int ahead, int apart, const struct ww_conv_packed *image)
{
	const long long pixels = ww_conv_elements(c->in, c->nd);
	const long long all = c->c * pixels, rows = all > 0x7fffffff ? c->c : 1;
	const long long blocks = ww_cdiv(c->c, ww_conv_channels[operands]), pitch = blocks * ww_conv_halves[operands];
	struct ww_conv_packed to;
	long long parts;

	to.x = image ? image->x : ww_scratch(p, 2 * c->n * pixels * pitch);
	to.w = ww_scratch(p, 2 * c->k * apart * ww_conv_taps(c, ahead, apart) * pitch);
	to.x_scales = image ? image->x_scales : ww_scratch(p, 4 * c->n);
	to.w_scales = ww_scratch(p, 4 * c->k);
	if (image) {
		ww_conv_pack_filters(p, c, operands, ahead, apart, to.w, to.w_scales);
		return to;
	}
	ww_memset(p, to.x_scales, 0, 4 * c->n, 0);
	/* few images have more blocks each: 64 have too few loads under way for memory */
	parts = ww_max(1, ww_min(all / 16384, ww_max(64, 512 / ww_max(1, c->n))));
	ww_launch(p, "ww::absmax_all<0>", parts, c->n, 1, 256, 1, 1);
	ww_arg_buf(p, c->x_buf, c->x_offset_bytes);
	ww_arg_i64(p, all);
	ww_arg_i64(p, 0);
	ww_arg_i32(p, 1);
	ww_arg_i64(p, all / rows); /* an image as few long rows */
	ww_arg_i32(p, (int)rows);
	ww_arg_i32(p, (int)(all / rows));
	ww_arg_buf(p, to.x_scales, 0);
	ww_launch(p, ww_fmt(p, "ww::conv_pack_x<%d>", operands), ww_cdiv(pixels, 64), ww_cdiv(c->c, 64), c->n, 256, 1, 1);
	ww_arg_buf(p, c->x_buf, c->x_offset_bytes);
	ww_arg_i32(p, (int)c->c);
	ww_arg_i32(p, (int)pixels);
	ww_arg_i32(p, (int)blocks);
	ww_arg_buf(p, to.x, 0);
	ww_arg_buf(p, to.x_scales, 0);
	ww_conv_pack_filters(p, c, operands, ahead, apart, to.w, to.w_scales);
	return to;
}

/* Leading arguments: tensor maps ta, tb; const unsigned *sw, *sx.  What it has packed. */
static struct ww_conv_packed ww_recipe_conv_tc(struct ww_plan *p, const struct ww_conv2d *c)
{
	const struct ww_conv g = ww_conv_geometry(c);
	const long long oh = g.out[1], ow = g.out[2], cp = ww_cdiv(g.c, c->exact ? 32 : 64) * 64;
	int sd = g.stride[0], sh = g.stride[1], sw = g.stride[2], bh = g.transposed ? 1 : sh, bw = g.transposed ? 1 : sw;
	int exact = c->exact != 0, filters = c->filters == 64 ? 64 : 128;
	const int deep = g.in[0] > 1 || g.kernel[0] > 1 || g.out[0] > 1;
	const long long slices = g.transposed ? sd * ww_cdiv(g.out[0], sd) : g.out[0];
	struct ww_conv_forward way = { g.n, g.c, g.k, oh, ow, (double)ww_conv_elements(g.kernel, 3), sh, sw, filters,
		slices, 0, 0, 0, exact };
	const struct ww_conv_forward beside = ww_conv_beside(&way, g.kernel[2], g.pad[2], g.dilation[2], sd);
	int staged = c->staged && (!g.transposed || beside.n), pairs = staged && c->pairs == 2 ? 2 : 1;
	int apart = g.transposed && staged ? sw : 1;
	const int ahead = apart > 1 ? ww_conv_ahead(sw, g.pad[2], ow) : 0;
	const long long taps = ww_conv_taps(&g, ahead, apart), rows = g.k * apart;
	const long long planes = slices * (g.transposed ? sh * sw / apart : 1);
	/* One block computes two phases of a row (conv.cuh); the results that it keeps take 64 KiB. */
	int pair = g.transposed && !staged && sw == 2 && ow % 4 == 0 && c->bn != 256;
	int bn = pair ? 128
		: exact   ? ww_conv_exact_pixels(staged ? WW_CONV_STAGED : WW_CONV_REGISTERS, filters)
		: pairs == 2 && !c->bn && filters == 128 ? 128
		: c->bn                                  ? c->bn
												 : 256;
	int stages = c->stages ? c->stages : bn == 256 ? 4 : pair || pairs == 2 ? 5 : 6;
	struct ww_conv_packed packed = { 0, 0, 0, 0 };
	struct ww_conv wide; /* with the zeros in front of its filters */
	struct ww_conv_tile tile;
	struct ww_tmap map;

	if (g.groups != 1 || bh > 8 || bw > 8 || g.out[0] < 1 || oh < 1 || ow < 1 || g.n > 65535 || cp / 64 > 65535 ||
		g.out[0] * oh * ow > 0x7fffffff || ww_conv_elements(g.in, 3) > 0x7fffffff || (bn != 128 && bn != 256)) {
		ww_fail(p, "conv_tc: needs groups 1, stride up to 8, bn 128 or 256");
		return packed;
	}
	if (exact ? pairs == 2 : filters == 64 ? bn != 256 && (staged || pair) : pairs == 2 && bn != 128) {
		ww_fail(p, "conv_tc: two pairs need bn 128, and not exact; 64 filters, staged, bn 256");
		return packed;
	}
	if (g.transposed)
		way = beside;
	tile = g.transposed && apart < sw ? ww_conv_square_tile(bn, c->tw, g.n, ww_cdiv(oh, sh), ww_cdiv(ow, sw))
									  : ww_conv_way(&way,
											pairs == 2   ? WW_CONV_PAIRS
												: staged ? WW_CONV_STAGED
														 : WW_CONV_REGISTERS,
											bn, c->tw, ww_device(p)->sm_count)
											.tile;
	if (!tile.tiles || tile.tiles * ww_cdiv(rows, filters) * planes > 0x7fffffff) {
		ww_fail(p, "conv_tc: no tile fits");
		return packed;
	}
	packed = ww_conv_pack(p, &g, exact, ahead, apart, c->packed);
	wide = g;
	wide.kernel[2] += ahead;
	wide.pad[2] += ahead;
	ww_conv_define(
		p, c->kernel, &wide, bn, tile.tw, tile.th, tile.tn, stages, pair, exact, staged, pairs, filters, 1, 1);
	ww_launch_pipeline(p, c->kernel, tile.tiles * ww_cdiv(rows, filters) * planes / (pair ? 2 : 1), bn, stages, 1,
		pairs,
		(pair ? 256 * bn * 2
				: staged ? pairs * 8 * 8 * 128 * 4
						 : 0) -
			stages * (128 - filters) * 128);
	ww_arg_kmajor(p, packed.w, 0, WW_F16, taps * cp, rows, 1, 2 * taps * cp, 0, filters);
	map = (struct ww_tmap){ .buf = packed.x,
		.dtype = WW_F16,
		.rank = 4 + deep,
		.size = { cp, g.in[2], g.in[1], g.in[0] },
		.stride_bytes = { 0, 2 * cp, 2 * cp * g.in[2], 2 * cp * g.in[1] * g.in[2] },
		.box = { 64, tile.tw * bw, tile.th * bh, 1 },
		.elem_stride = { 1, bw, bh, 1, 1 },
		.swizzle = WW_SWIZZLE_128B,
		.fill = WW_FILL_ZERO };
	/* in two dimensions images take the depth's place */
	map.size[3 + deep] = g.n;
	map.stride_bytes[3 + deep] = 2 * cp * ww_conv_elements(g.in, 3);
	map.box[3 + deep] = tile.tn;
	ww_arg_tmap(p, &map);
	ww_arg_buf(p, packed.w_scales, 0);
	ww_arg_buf(p, packed.x_scales, 0);
	return packed;
}

/* Leading arguments: const float *x, const __half *w, const unsigned *sw; half: const T *x, *w. */
static void ww_recipe_conv_few(struct ww_plan *p, const struct ww_conv2d *c)
{
	const struct ww_conv g = ww_conv_geometry(c);
	const struct ww_conv_few few = { g.n * g.out[0], g.c, g.k, g.out[1], g.out[2], g.kernel[0], g.kernel[1],
		g.kernel[2], { g.stride[1], g.stride[2] }, { g.dilation[1], g.dilation[2] }, c->half };
	const long long taps = ww_conv_elements(g.kernel, 3), sms = ww_device(p)->sm_count;
	struct ww_conv_few_way way = { 0, 0, 0, 0, 0, 0, 0 };
	long long columns, tiles, rounds;
	int w = 0, scales = 0;

	if (g.transposed || g.groups != 1 || g.c > WW_CONV_FEW_CHANNELS || g.out[0] < 1 || g.out[1] < 1 || g.out[2] < 1 ||
		ww_conv_elements(g.out, 3) > 0x7fffffff || ww_conv_elements(g.in, 3) > 0x7fffffff) {
		ww_fail(p, "conv_few: needs up to 32 channels, groups 1");
		return;
	}
	way = ww_conv_few_way(&few, (int)sms);
	if (way.us == 0 || way.tiles > 0x7fffffff) {
		ww_fail(p, "conv_few: no tile fits");
		return;
	}
	if (!c->half) {
		w = ww_scratch(p, 2 * 64 * taps * g.k);
		scales = ww_scratch(p, 4 * g.k);
		ww_conv_pack_filters(p, &g, 1, 0, 1, w, scales);
	}
	ww_conv_define(p, c->kernel, &g, 0, way.tw, way.th, 1, 0, 0, 1, 0, 0, way.filters, 1, 1);
	columns = ww_cdiv(g.k, way.filters);
	tiles = way.tiles / columns;
	rounds = ww_cdiv(tiles, ww_max(1, way.resident * sms / columns));
	ww_launch(p, c->kernel, ww_cdiv(tiles, rounds), columns, 1, WW_CONV_FEW_THREADS, 1, 1);
	ww_shared(p, way.shared);
	ww_arg_buf(p, c->x_buf, c->x_offset_bytes);
	ww_arg_buf(p, c->half ? c->w_buf : w, c->half ? c->w_offset_bytes : 0);
	if (!c->half)
		ww_arg_buf(p, scales, 0);
}

/* A convolution c (fp32, NCHW, one group, not transposed; y_buf is not read) by the library, in halves and
 * channels-last (n, out, k), and the kernel that ends it.  Leading arguments: const __half *y, long long rows, const
 * unsigned *sw, *sx. */
static void ww_recipe_conv_halves(struct ww_plan *p, const char *kernel, const struct ww_conv *c, int vec)
{
	const long long in = ww_conv_elements(c->in, c->nd), out = ww_conv_elements(c->out, c->nd);
	struct ww_conv_packed packed;
	struct ww_conv half = *c;

	if (c->transposed || c->groups != 1 || c->n > 65535 || in > 0x7fffffff || out > 0x7fffffff) {
		ww_fail(p, "conv_halves: needs one group, no gradient, images up to 2^31 pixels, 65535 of them");
		return;
	}
	packed = ww_conv_pack(p, c, 2, 0, 1, 0);
	half.dtype = WW_F16;
	half.math = WW_MATH_FP16;
	half.layout = WW_LAYOUT_NHWC;
	half.c = ww_cdiv(c->c, 8) * 8;
	half.x_buf = packed.x;
	half.w_buf = packed.w;
	half.x_offset_bytes = half.w_offset_bytes = 0;
	half.y_buf = ww_scratch(p, 2 * c->n * out * c->k);
	ww_recipe_conv_library(p, &half);
	ww_recipe_after_library_turned(p, kernel, half.y_buf, c->n, c->k, out, vec);
	ww_arg_buf(p, packed.w_scales, 0);
	ww_arg_buf(p, packed.x_scales, 0);
}

#endif
