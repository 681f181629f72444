/* recipe/conv.h - the plan half of <ww/conv.cuh>.  See skills/cuda/references/cookbook-cuda-convolutions.md. */
#ifndef WW_RECIPE_CONV_H
#define WW_RECIPE_CONV_H

#include <ww/plan.h>
#include <ww/recipe/common.h>
#include <ww/recipe/conv_tile.h>
#include <ww/recipe/gemm.h>
#include <ww/recipe/library.h>

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
	int exact;   /* conv_tc: 1 fp32-class accuracy (about a third of the speed), 0 TF32-class */
	int bn;      /* conv_tc: pixels a tile, 128 or 256; default 256 */
	int tw;      /* conv_tc: width of a tile, 8 to bn (transposed: to 64); default by the estimate of conv_tile.h */
	int stages;  /* conv_tc: default 4 (bn 256), 6 (bn 128) */
	int staged;  /* conv_tc, not transposed: 1 results go through shared memory, planes are stored in long pieces */
	int pairs;   /* conv_tc: 2, staged and bn 128, one pair of warpgroups multiplies while the other stores */
	int filters; /* conv_tc, not transposed, not exact: 64 in a tile in place of 128; bn 256, also with two pairs */
};

static int ww_conv_or1(int v) { return v ? v : 1; }

static long long ww_conv_out(
	const struct ww_conv2d *c, long long in, long long taps, int stride, int pad, int dil, int out_pad)
{
	stride = ww_conv_or1(stride), dil = ww_conv_or1(dil);
	if (c->transposed)
		return (in - 1) * stride - 2LL * pad + (long long)dil * (taps - 1) + out_pad + 1;
	return (in + 2LL * pad - (long long)dil * (taps - 1) - 1) / stride + 1;
}

static long long ww_conv_oh(const struct ww_conv2d *c)
{
	return ww_conv_out(c, c->h, c->r, c->stride[0], c->pad[0], c->dil[0], c->out_pad[0]);
}

static long long ww_conv_ow(const struct ww_conv2d *c)
{
	return ww_conv_out(c, c->w, c->s, c->stride[1], c->pad[1], c->dil[1], c->out_pad[1]);
}

static long long ww_conv_od(const struct ww_conv2d *c)
{
	return ww_conv_out(c, c->d ? c->d : 1, c->t ? c->t : 1, c->stride3, c->pad3, c->dil3, c->out_pad3);
}

static void ww_conv_define(struct ww_plan *p, const struct ww_conv2d *c, int bn, int tw, int th, int tn, int stages,
	int pair, int exact, int staged, int pairs, int filters, int kt, int pt)
{
	const struct {
		const char *name;
		long long value;
	} m[] = { { "N", c->n }, { "C", c->c }, { "K", c->k }, { "GROUPS", ww_conv_or1(c->groups) },
		{ "TRANSPOSED", c->transposed != 0 }, { "D", c->d ? c->d : 1 }, { "H", c->h }, { "W", c->w },
		{ "T", c->t ? c->t : 1 }, { "R", c->r }, { "S", c->s }, { "OD", ww_conv_od(c) }, { "OH", ww_conv_oh(c) },
		{ "OW", ww_conv_ow(c) }, { "SD", ww_conv_or1(c->stride3) }, { "SH", ww_conv_or1(c->stride[0]) },
		{ "SW", ww_conv_or1(c->stride[1]) }, { "PD", c->pad3 }, { "PH", c->pad[0] }, { "PW", c->pad[1] },
		{ "DD", ww_conv_or1(c->dil3) }, { "DH", ww_conv_or1(c->dil[0]) }, { "DW", ww_conv_or1(c->dil[1]) },
		{ "CB", ww_cdiv(c->c, exact ? 32 : 64) }, { "BN", bn }, { "TW", tw }, { "TH", th }, { "TN", tn },
		{ "STAGES", stages }, { "PAIR", pair }, { "EXACT", exact }, { "STAGED", staged }, { "PAIRS", pairs },
		{ "FILTERS", filters }, { "KT", kt }, { "PT", pt } };

	for (int i = 0; i < (int)(sizeof m / sizeof m[0]); i++)
		ww_tunable(p, c->kernel, m[i].name, m[i].value);
}

/* Leading arguments: const T *x, *w (float, half, bfloat16). */
static void ww_recipe_conv_direct(struct ww_plan *p, const struct ww_conv2d *c)
{
	const long long groups = ww_conv_or1(c->groups);
	const struct ww_conv_columns l = { c->n, groups, c->k / groups, ww_conv_od(c) * ww_conv_ow(c), ww_conv_oh(c),
		(int)c->r, ww_conv_or1(c->stride[0]), ww_conv_or1(c->dil[0]), c->transposed };
	struct ww_conv_thread t;

	if (l.columns < 1 || l.oh < 1 || ww_conv_ow(c) < 1 || l.columns * l.oh > 0x7fffffff || c->c % groups ||
		c->k % groups) {
		ww_fail(p, "conv: impossible sizes");
		return;
	}
	t = ww_conv_thread(&l, ww_device(p)->sm_count);
	ww_conv_define(p, c, 0, 0, 0, 0, 0, 0, 0, 0, 1, 128, t.kt, t.pt);
	ww_launch(p, c->kernel, ww_cdiv(ww_conv_threads(&l, t), 256), 1, 1, 256, 1, 1);
	ww_arg_buf(p, c->x_buf, c->x_offset_bytes);
	ww_arg_buf(p, c->w_buf, c->w_offset_bytes);
}

/* The image and the filters packed as fp16 into xs and ws, for what enum conv_operands of conv.cuh says; the bits that
 * their scales come from, of each image and output channel, go to ax and aw. */
struct ww_conv_packed {
	int x_buf, w_buf, xs, ws, ax, aw;
	long long x_offset_bytes, w_offset_bytes, n, c, hw, k, taps;
	int transposed, operands;
};

static void ww_conv_pack(struct ww_plan *p, struct ww_conv_packed *c)
{
	static const int channels[] = { 64, 32, 8 }, halves[] = { 64, 64, 8 }; /* of a block */
	const long long all = c->c * c->hw, rows = all > 0x7fffffff ? c->c : 1;
	const long long blocks = ww_cdiv(c->c, channels[c->operands]), pitch = blocks * halves[c->operands];

	c->xs = ww_scratch(p, 2 * c->n * c->hw * pitch);
	c->ws = ww_scratch(p, 2 * c->k * c->taps * pitch);
	c->ax = ww_scratch(p, 4 * c->n);
	c->aw = ww_scratch(p, 4 * c->k);
	ww_memset(p, c->ax, 0, 4 * c->n, 0);
	ww_launch(p, "ww::absmax_all<0>", ww_max(1, ww_min(all / 16384, 64)), c->n, 1, 256, 1, 1);
	ww_arg_buf(p, c->x_buf, c->x_offset_bytes);
	ww_arg_i64(p, all);
	ww_arg_i64(p, 0);
	ww_arg_i32(p, 1);
	ww_arg_i64(p, all / rows); /* an image as few long rows */
	ww_arg_i32(p, (int)rows);
	ww_arg_i32(p, (int)(all / rows));
	ww_arg_buf(p, c->ax, 0);
	ww_launch(p, ww_fmt(p, "ww::conv_pack_x<%d>", c->operands), ww_cdiv(c->hw, 64), ww_cdiv(c->c, 64), c->n, 256, 1, 1);
	ww_arg_buf(p, c->x_buf, c->x_offset_bytes);
	ww_arg_i32(p, (int)c->c);
	ww_arg_i32(p, (int)c->hw);
	ww_arg_i32(p, (int)blocks);
	ww_arg_buf(p, c->xs, 0);
	ww_arg_buf(p, c->ax, 0);
	ww_launch(p, ww_fmt(p, "ww::conv_pack_w<%d>", c->operands), c->k, 1, 1, 256, 1, 1);
	ww_arg_buf(p, c->w_buf, c->w_offset_bytes);
	ww_arg_i64(p, c->transposed ? c->taps : c->c * c->taps);
	ww_arg_i64(p, c->transposed ? c->k * c->taps : c->taps);
	ww_arg_i32(p, (int)c->c);
	ww_arg_i32(p, (int)c->taps);
	ww_arg_i32(p, (int)blocks);
	ww_arg_buf(p, c->ws, 0);
	ww_arg_buf(p, c->aw, 0);
}

/* Leading arguments: tensor maps ta, tb; const unsigned *sw, *sx. */
static void ww_recipe_conv_tc(struct ww_plan *p, const struct ww_conv2d *c)
{
	int exact = c->exact != 0, staged = c->staged && !c->transposed, pairs = staged && c->pairs == 2 ? 2 : 1;
	int filters = c->filters == 64 && !c->transposed && !exact ? 64 : 128;
	/* One block computes two phases of a row (conv.cuh); the results that it keeps take 64 KiB. */
	int pair = c->transposed && c->stride[1] == 2 && ww_conv_ow(c) % 4 == 0 && c->bn != 256;
	int bn = pair || exact || (pairs == 2 && !c->bn && filters == 128) ? 128 : c->bn ? c->bn : 256;
	int stages = c->stages ? c->stages : bn == 256 ? 4 : pair || pairs == 2 ? 5 : 6;
	int sh = ww_conv_or1(c->stride[0]), sw = ww_conv_or1(c->stride[1]), bh = c->transposed ? 1 : sh,
		bw = c->transposed ? 1 : sw;
	long long oh = ww_conv_oh(c), ow = ww_conv_ow(c), cp = ww_cdiv(c->c, exact ? 32 : 64) * 64, taps = c->r * c->s,
			  hw = c->h * c->w;
	long long plane_h = c->transposed ? ww_cdiv(oh, sh) : oh, plane_w = c->transposed ? ww_cdiv(ow, sw) : ow;
	const struct ww_conv_forward forward = { c->n, c->c, c->k, oh, ow, (double)taps, bh, bw, filters };
	struct ww_conv_tile tile;
	struct ww_conv_packed packed = { .x_buf = c->x_buf,
		.w_buf = c->w_buf,
		.x_offset_bytes = c->x_offset_bytes,
		.w_offset_bytes = c->w_offset_bytes,
		.n = c->n,
		.c = c->c,
		.hw = hw,
		.k = c->k,
		.taps = taps,
		.transposed = c->transposed,
		.operands = exact };

	if (ww_conv_or1(c->groups) != 1 || c->d > 1 || c->t > 1 || bh > 8 || bw > 8 || oh < 1 || ow < 1 || c->n > 65535 ||
		cp / 64 > 65535 || oh * ow > 0x7fffffff || (bn != 128 && bn != 256)) {
		ww_fail(p, "conv_tc: needs groups 1, two dimensions, stride up to 8, bn 128 or 256");
		return;
	}
	if (filters == 64 ? bn != 256 : pairs == 2 && (bn != 128 || exact)) {
		ww_fail(p, "conv_tc: two pairs need bn 128, and not exact; 64 filters bn 256");
		return;
	}
	tile = c->transposed ? ww_conv_square_tile(bn, c->tw, c->n, plane_h, plane_w)
						 : ww_conv_way(&forward,
							   pairs == 2   ? WW_CONV_PAIRS
								   : staged ? WW_CONV_STAGED
											: WW_CONV_REGISTERS,
							   bn, c->tw, ww_device(p)->sm_count)
							   .tile;
	if (!tile.tiles) {
		ww_fail(p, "conv_tc: no tile fits");
		return;
	}
	ww_conv_pack(p, &packed);
	ww_conv_define(p, c, bn, tile.tw, tile.th, tile.tn, stages, pair, exact, staged, pairs, filters, 1, 1);
	ww_launch_pipeline(p, c->kernel,
		tile.tiles * ww_cdiv(c->k, filters) * (c->transposed ? sh * sw : 1) / (pair ? 2 : 1), bn, stages, 1, pairs,
		(pair ? 256 * bn * 2
				: staged ? pairs * 8 * 8 * 128 * 4
						 : 0) -
			stages * (128 - filters) * 128);
	ww_arg_kmajor(p, packed.ws, 0, WW_F16, taps * cp, c->k, 1, 2 * taps * cp, 0, filters);
	ww_arg_tmap(p,
		&(struct ww_tmap){ .buf = packed.xs,
			.dtype = WW_F16,
			.rank = 4,
			.size = { cp, c->w, c->h, c->n },
			.stride_bytes = { 0, 2 * cp, 2 * cp * c->w, 2 * cp * hw },
			.box = { 64, tile.tw * bw, tile.th * bh, tile.tn },
			.elem_stride = { 1, bw, bh, 1 },
			.swizzle = WW_SWIZZLE_128B,
			.fill = WW_FILL_ZERO });
	ww_arg_buf(p, packed.aw, 0);
	ww_arg_buf(p, packed.ax, 0);
}

/* A convolution c (fp32, NCHW, one group, not transposed; y_buf is not read) by the library, in halves and
 * channels-last (n, out, k), and the kernel that ends it.  Leading arguments: const __half *y, long long rows, const
 * unsigned *sw, *sx. */
static void ww_recipe_conv_halves(struct ww_plan *p, const char *kernel, const struct ww_conv *c, int vec)
{
	struct ww_conv_packed packed = { .x_buf = c->x_buf,
		.w_buf = c->w_buf,
		.x_offset_bytes = c->x_offset_bytes,
		.w_offset_bytes = c->w_offset_bytes,
		.n = c->n,
		.c = c->c,
		.hw = 1,
		.k = c->k,
		.taps = 1,
		.operands = 2 };
	struct ww_conv half = *c;
	long long pixels = 1;

	for (int i = 0; i < c->nd; i++)
		packed.hw *= c->in[i], packed.taps *= c->kernel[i], pixels *= c->out[i];
	if (c->transposed || c->groups != 1 || c->n > 65535 || packed.hw > 0x7fffffff || pixels > 0x7fffffff) {
		ww_fail(p, "conv_halves: needs one group, no gradient, images up to 2^31 pixels, 65535 of them");
		return;
	}
	ww_conv_pack(p, &packed);
	half.dtype = WW_F16;
	half.math = WW_MATH_FP16;
	half.layout = WW_LAYOUT_NHWC;
	half.c = ww_cdiv(c->c, 8) * 8;
	half.x_buf = packed.xs;
	half.w_buf = packed.ws;
	half.x_offset_bytes = half.w_offset_bytes = 0;
	half.y_buf = ww_scratch(p, 2 * c->n * pixels * c->k);
	ww_recipe_conv_library(p, &half);
	ww_recipe_after_library_turned(p, kernel, half.y_buf, c->n, c->k, pixels, vec);
	ww_arg_buf(p, packed.aw, 0);
	ww_arg_buf(p, packed.ax, 0);
}

#endif
