/* recipe/attention.h - the plan half of <ww/attention.cuh>.  See skills/cuda/references/cookbook-cuda.md. */
#ifndef WW_RECIPE_ATTENTION_H
#define WW_RECIPE_ATTENTION_H

#include <ww/plan.h>
#include <ww/recipe/attention_tile.h>
#include <ww/recipe/common.h>
#include <ww/recipe/gemm.h>

/* Strides of a tensor (batch, head, time, d) in elements; d is contiguous. */
struct ww_heads {
	int buf;
	long long offset_bytes;
	long long stride_b, stride_h, stride_t;
};

struct ww_attention {
	const char *kernel;
	struct ww_heads q, k, v;
	long long b, h, h_kv; /* h_kv 0: as h */
	long long t_q, t_k, d;
	int causal;
	double scale; /* 0: 1 / sqrt(d) */
};

/* Launch: the largest magnitude of each head into amax[offset...]. */
static void ww_attention_absmax(struct ww_plan *p, const struct ww_heads *x, long long b, long long h, long long t,
	long long d, int amax, long long offset)
{
	ww_launch(p, "ww::absmax_all<0>", ww_max(1, ww_min(32, t * d / 16384)), b * h, 1, 256, 1, 1);
	ww_arg_buf(p, x->buf, x->offset_bytes);
	ww_arg_i64(p, x->stride_b);
	ww_arg_i64(p, x->stride_h);
	ww_arg_i32(p, (int)h);
	ww_arg_i64(p, x->stride_t);
	ww_arg_i32(p, (int)t);
	ww_arg_i32(p, (int)d);
	ww_arg_buf(p, amax, 4 * offset);
}

/* Launch: Q or K as pairs, (b * h * t) rows of d. */
static int ww_attention_rows(struct ww_plan *p, const struct ww_heads *x, long long b, long long h, long long t,
	long long d, int amax, long long offset)
{
	int out = ww_scratch(p, 4 * b * h * t * d);

	ww_launch(p, "ww::split_given<0>", ww_max(1, ww_min(64, t * d / 8192)), b * h, 1, 256, 1, 1);
	ww_arg_buf(p, x->buf, x->offset_bytes);
	ww_arg_i64(p, x->stride_b);
	ww_arg_i64(p, x->stride_h);
	ww_arg_i32(p, (int)h);
	ww_arg_i64(p, x->stride_t);
	ww_arg_i32(p, (int)t);
	ww_arg_i32(p, (int)d);
	ww_arg_buf(p, out, 0);
	ww_arg_buf(p, amax, 4 * offset);
	return out;
}

/* Launch: V transposed, as pairs, (b * h * d) rows of roundup(t, 32). */
static int ww_attention_cols(struct ww_plan *p, const struct ww_heads *x, long long b, long long h, long long t,
	long long d, int amax, long long offset)
{
	long long kp = ww_cdiv(t, 32) * 32;
	int out = ww_scratch(p, 4 * b * h * d * kp);

	ww_launch(p, "ww::split_cols<0>", ww_cdiv(d, 64), kp / 32, b * h, 256, 1, 1);
	ww_arg_buf(p, x->buf, x->offset_bytes);
	ww_arg_i64(p, x->stride_b);
	ww_arg_i64(p, x->stride_h);
	ww_arg_i32(p, (int)h);
	ww_arg_i64(p, x->stride_t);
	ww_arg_i32(p, (int)t);
	ww_arg_i32(p, (int)d);
	ww_arg_i32(p, (int)kp);
	ww_arg_buf(p, out, 0);
	ww_arg_buf(p, amax, 4 * offset);
	ww_arg_i32(p, 1);
	return out;
}

static double ww_attention_rsqrt(double x)
{
	double y = 1.0;

	for (int i = 0; i < 60; i++)
		y = 0.5 * (y + 1.0 / (x * y));
	return y;
}

/* Leading arguments: tensor maps tq, tk, tv; const unsigned *amax; float scale; int b, h, h_kv, t_q, t_k. */
static void ww_recipe_attention(struct ww_plan *p, const struct ww_attention *a)
{
	long long h_kv = a->h_kv ? a->h_kv : a->h, nq = a->b * a->h, nk = a->b * h_kv, kp = ww_cdiv(a->t_k, 32) * 32;
	int kv = a->d == 64 ? 128 : 64, amax, q, k, v;

	if ((a->d != 64 && a->d != 128) || a->h % h_kv || nq > 65535 || kp / 32 > 65535 || a->t_k < 1 ||
		(a->causal && a->t_q != a->t_k)) {
		ww_fail(
			p, "attention: d must be 64 or 128, h a multiple of h_kv, b * h at most 65535, and t_q = t_k where causal");
		return;
	}
	if (ww_device(p)->cc != 90)
		ww_fail(p, "this kernel needs compute capability 9.0");
	amax = ww_scratch(p, 4 * (nq + 2 * nk));
	ww_memset(p, amax, 0, 4 * (nq + 2 * nk), 0);
	ww_attention_absmax(p, &a->q, a->b, a->h, a->t_q, a->d, amax, 0);
	ww_attention_absmax(p, &a->k, a->b, h_kv, a->t_k, a->d, amax, nq);
	ww_attention_absmax(p, &a->v, a->b, h_kv, a->t_k, a->d, amax, nq + nk);
	q = ww_attention_rows(p, &a->q, a->b, a->h, a->t_q, a->d, amax, 0);
	k = ww_attention_rows(p, &a->k, a->b, h_kv, a->t_k, a->d, amax, nq);
	v = ww_attention_cols(p, &a->v, a->b, h_kv, a->t_k, a->d, amax, nq + nk);
	ww_tunable(p, a->kernel, "D", a->d);
	ww_tunable(p, a->kernel, "CAUSAL", a->causal != 0);
	ww_launch(p, a->kernel, ww_cdiv(a->t_q, 128), nq, 1, 384, 1, 1);
	ww_shared(p, 128 * a->d * 4 + 4 * kv * a->d * 4 + 9 * 8 + 1024);
	ww_arg_kmajor(p, q, 0, WW_F16, 2 * a->d, a->t_q, nq, 4 * a->d, 4 * a->d * a->t_q, 128);
	ww_arg_kmajor(p, k, 0, WW_F16, 2 * a->d, a->t_k, nk, 4 * a->d, 4 * a->d * a->t_k, kv);
	ww_arg_kmajor(p, v, 0, WW_F16, 2 * kp, a->d, nk, 4 * kp, 4 * kp * a->d, (int)a->d);
	ww_arg_buf(p, amax, 0);
	ww_arg_f32(p, (float)(a->scale != 0.0 ? a->scale : ww_attention_rsqrt((double)a->d)));
	ww_arg_i32(p, (int)a->b);
	ww_arg_i32(p, (int)a->h);
	ww_arg_i32(p, (int)h_kv);
	ww_arg_i32(p, (int)a->t_q);
	ww_arg_i32(p, (int)a->t_k);
}

/* An operand of attention_mma, in elements: (b, h, t, i) lies at b * stride_b + h / group * stride_h + t * stride_t +
 * i * stride_i of the buffer; one of stride_t and stride_i is 1. */
struct ww_attention_rows {
	int buf;
	long long offset_bytes;
	long long stride_b, stride_h, stride_t, stride_i;
};

struct ww_attention_mma {
	const char *kernel;
	int dtype; /* WW_F32, WW_F16, WW_BF16 */
	struct ww_attention_rows q, k, v;
	long long b, h, group; /* heads that share one of k and v; 0 counts as 1 */
	long long t_q, t_k, width, width_v;
	int causal, masked;  /* masked: adjacent scores, 1 or 2, that the functor's score() gets at once; 0: no score() */
	double scale;        /* 0: 1 / sqrt(width) */
	int warps, mt, keys; /* 0: chosen here */
	int banded;          /* row r sees only keys r - below to r + above (WW_ATTENTION_ALL: no limit); not with causal */
	long long below, above;
};

/* Elements of one copy: as many as address and strides are multiples of, up to 16 bytes. */
static int ww_attention_vector(const struct ww_attention_rows *o, int bytes)
{
	long long terms = o->offset_bytes / bytes | o->stride_b | o->stride_h |
		(o->stride_i == 1 ? o->stride_t : o->stride_i);
	int v = 16 / bytes;

	while (v > 1 && terms % v)
		v /= 2;
	return v;
}

static void ww_arg_attention_rows(struct ww_plan *p, const struct ww_attention_rows *o)
{
	ww_arg_buf(p, o->buf, o->offset_bytes);
	ww_arg_i64(p, o->stride_b);
	ww_arg_i64(p, o->stride_h);
	ww_arg_i64(p, o->stride_i == 1 ? o->stride_t : o->stride_i);
}

static void ww_attention_band(
	struct ww_plan *p, const char *kernel, int causal, int banded, long long below, long long above)
{
	ww_tunable(p, kernel, "BELOW", banded ? below : WW_ATTENTION_ALL);
	ww_tunable(p, kernel, "ABOVE", banded ? above : causal ? 0 : WW_ATTENTION_ALL);
}

/* Leading arguments: of q, k and v const T *, long long batch, head, line; int group, heads, t_q, t_k, width, width_v;
 * float scale (of log2). */
static void ww_recipe_attention_mma(struct ww_plan *p, const struct ww_attention_mma *a)
{
	const struct ww_attention_size s = { .batch = a->b * a->h,
		.group = a->group ? a->group : 1,
		.t_q = a->t_q,
		.t_k = a->t_k,
		.width = a->width,
		.width_v = a->width_v,
		.bytes = a->dtype == WW_F32 ? 4 : 2,
		.causal = a->causal,
		.masked = a->masked,
		.span = a->banded ? ww_attention_span(a->below, a->above, a->t_k) : 0,
		.sms = ww_device(p)->sm_count };
	const int q_row = a->q.stride_i == 1, k_row = a->k.stride_i == 1, v_row = a->v.stride_i == 1;
	const struct ww_attention_tile t = ww_attention_choose_with(&s, a->warps, a->mt, a->keys);
	const int widest = s.bytes == 2 ? 256 : 128;
	long long blocks, shared;

	blocks = ww_cdiv(a->t_q, t.warps * t.mt * 16) * s.batch;
	if (a->width > widest || a->width_v > widest || a->t_k < 1 || blocks > 0x7fffffff || s.group < 1 ||
		a->h % s.group || a->scale < 0 || (!q_row && a->q.stride_t != 1) || (!k_row && a->k.stride_t != 1) ||
		(!v_row && a->v.stride_t != 1)) {
		ww_fail(p,
			"attention_mma: heads are at most 128 (16 bits: 256) wide and contiguous along their width or length, h is "
			"a multiple of group, and the scale is not negative");
		return;
	}
	if (ww_device(p)->cc < 80)
		ww_fail(p, "this kernel needs compute capability 8.0");
	shared = ww_attention_mma_bytes(&s, &t, q_row, k_row, v_row);
	ww_tunable(p, a->kernel, "W", ww_attention_up(a->width, 16));
	ww_tunable(p, a->kernel, "WV", ww_attention_up(a->width_v, 16));
	ww_tunable(p, a->kernel, "WARPS", t.warps);
	ww_tunable(p, a->kernel, "MT", t.mt);
	ww_tunable(p, a->kernel, "KEYS", t.keys);
	ww_tunable(p, a->kernel, "STAGES", t.stages);
	ww_tunable(p, a->kernel, "TEAMS", t.teams);
	ww_tunable(p, a->kernel, "BLOCKS", t.blocks);
	ww_tunable(p, a->kernel, "QR", q_row);
	ww_tunable(p, a->kernel, "KR", k_row);
	ww_tunable(p, a->kernel, "VR", v_row);
	ww_tunable(p, a->kernel, "QV", ww_attention_vector(&a->q, s.bytes));
	ww_tunable(p, a->kernel, "KV", ww_attention_vector(&a->k, s.bytes));
	ww_tunable(p, a->kernel, "VV", ww_attention_vector(&a->v, s.bytes));
	ww_attention_band(p, a->kernel, a->causal, a->banded, a->below, a->above);
	ww_tunable(p, a->kernel, "N", a->width_v % 2 ? 1 : 2);
	ww_tunable(p, a->kernel, "M", a->masked == 2 && a->t_k % 2 == 0 ? 2 : 1);
	ww_tunable(p, a->kernel, "MASKED", a->masked != 0);
	ww_launch(p, a->kernel, blocks, 1, 1, 32 * t.warps * t.teams, 1, 1);
	ww_shared(p, shared);
	ww_arg_attention_rows(p, &a->q);
	ww_arg_attention_rows(p, &a->k);
	ww_arg_attention_rows(p, &a->v);
	ww_arg_i32(p, (int)s.group);
	ww_arg_i32(p, (int)a->h);
	ww_arg_i32(p, (int)a->t_q);
	ww_arg_i32(p, (int)a->t_k);
	ww_arg_i32(p, (int)a->width);
	ww_arg_i32(p, (int)a->width_v);
	ww_arg_f32(
		p, (float)((a->scale != 0.0 ? a->scale : ww_attention_rsqrt((double)a->width)) * 1.44269504088896340736));
}

/* Attention of half or bfloat16 by <ww/attention16.cuh>. */
struct ww_attention16 {
	const char *kernel;
	int dtype; /* WW_F16, WW_BF16 */
	struct ww_attention_rows q, k, v;
	long long b, h, group; /* heads that share one of k and v; 0 counts as 1 */
	long long t_q, t_k, width, width_v;
	int causal, masked; /* as in ww_attention_mma */
	double scale;       /* 0: 1 / sqrt(width) */
	int groups, keys;   /* 0: chosen here */
	int turns;          /* the kernel has `blocks`, and stays for several turns where it pays */
	int banded;         /* as in ww_attention_mma */
	long long below, above;
};

/* Can tensor copies read it: heads along their width, all terms multiples of 16 bytes? */
static int ww_attention16_reads(const struct ww_attention_rows *o, long long b, long long h)
{
	const long long terms = o->offset_bytes / 2 | o->stride_t | (b > 1 ? o->stride_b : 0) | (h > 1 ? o->stride_h : 0);

	return o->stride_i == 1 && terms % 8 == 0 && (o->stride_b > 0 || b == 1) && (o->stride_h > 0 || h == 1);
}

/* The operand itself, or launch a copy that tensor copies can read. */
static struct ww_attention_rows ww_attention16_operand(
	struct ww_plan *p, const struct ww_attention_rows *o, long long b, long long h, long long t, long long width)
{
	const struct ww_matrix of = { .buf = o->buf,
		.offset_bytes = o->offset_bytes,
		.rows = t,
		.k = width,
		.batch = b * h,
		.row_stride = o->stride_t,
		.k_stride = o->stride_i,
		.batch_stride = o->stride_b };
	struct ww_matrix copy;

	if (ww_attention16_reads(o, b, h))
		return *o;
	copy = ww_recipe_pad_items(p, &of, h, o->stride_h);
	return (struct ww_attention_rows){ .buf = copy.buf,
		.stride_b = h * copy.batch_stride,
		.stride_h = copy.batch_stride,
		.stride_t = copy.row_stride,
		.stride_i = 1 };
}

/* A tensor map with boxes of `columns` (a line of the swizzle) by `rows`. */
static void ww_arg_attention16(struct ww_plan *p, const struct ww_attention_rows *o, int dtype, long long b,
	long long h, long long t, long long width, int columns, int rows)
{
	const long long line = 2 * o->stride_t;

	ww_arg_tmap(p,
		&(struct ww_tmap){ .buf = o->buf,
			.offset_bytes = o->offset_bytes,
			.dtype = dtype,
			.rank = 4,
			.size = { width, t, h, b },
			.stride_bytes = { 0, line, h > 1 ? 2 * o->stride_h : line, b > 1 ? 2 * o->stride_b : line },
			.box = { columns, rows, 1, 1 },
			.elem_stride = { 1, 1, 1, 1 },
			.swizzle = columns == 64 ? WW_SWIZZLE_128B : WW_SWIZZLE_64B,
			.fill = WW_FILL_ZERO });
}

/* Leading arguments: tensor maps tq, tk, tv; with turns int blocks; int group, heads, t_q, t_k, width_v; float scale
 * (of log2). */
static void ww_recipe_attention16(struct ww_plan *p, const struct ww_attention16 *a)
{
	const long long group = a->group ? a->group : 1;
	const struct ww_attention_size s = { .batch = a->b * a->h,
		.group = group,
		.t_q = a->t_q,
		.t_k = a->t_k,
		.width = a->width,
		.width_v = a->width_v,
		.bytes = 2,
		.causal = a->causal,
		.masked = a->masked,
		.span = a->banded ? ww_attention_span(a->below, a->above, a->t_k) : 0,
		.sms = ww_device(p)->sm_count };
	struct ww_attention16_tile t = ww_attention16_choose_with(&s, a->groups, a->keys);
	struct ww_attention_rows q, k, v;
	long long blocks = ww_attention16_rows(&s, t.groups);

	if (a->width > 256 || a->width_v > 256 || a->t_k < 1 || blocks > 0x7fffffff || a->h % group || a->scale < 0) {
		ww_fail(p, "attention16: heads are at most 256 wide, h is a multiple of group, and the scale is not negative");
		return;
	}
	if (ww_device(p)->cc != 90)
		ww_fail(p, "this kernel needs compute capability 9.0");
	q = ww_attention16_operand(p, &a->q, a->b, a->h, a->t_q, a->width);
	k = ww_attention16_operand(p, &a->k, a->b, a->h / group, a->t_k, a->width);
	v = ww_attention16_operand(p, &a->v, a->b, a->h / group, a->t_k, a->width_v);
	ww_tunable(p, a->kernel, "W", ww_attention_up(a->width, 16));
	ww_tunable(p, a->kernel, "WV", ww_attention_up(a->width_v, 32));
	ww_tunable(p, a->kernel, "GROUPS", t.groups);
	ww_tunable(p, a->kernel, "KEYS", t.keys);
	ww_tunable(p, a->kernel, "STAGES_Q", t.stages_q);
	ww_tunable(p, a->kernel, "BLOCKS", t.blocks);
	ww_attention_band(p, a->kernel, a->causal, a->banded, a->below, a->above);
	ww_tunable(p, a->kernel, "N", a->width_v % 2 ? 1 : 2);
	ww_tunable(p, a->kernel, "M", a->masked == 2 && a->t_k % 2 == 0 ? 2 : 1);
	ww_tunable(p, a->kernel, "MASKED", a->masked != 0);
	ww_launch(p, a->kernel, a->turns ? ww_min(blocks, s.sms * t.blocks) : blocks, 1, 1, 128 + 128 * t.groups, 1, 1);
	ww_shared(p, ww_attention16_bytes(&s, &t));
	ww_arg_attention16(p, &q, a->dtype, a->b, a->h, a->t_q, a->width, 64, 64 * t.groups);
	ww_arg_attention16(p, &k, a->dtype, a->b, a->h / group, a->t_k, a->width, 64, t.keys);
	ww_arg_attention16(p, &v, a->dtype, a->b, a->h / group, a->t_k, a->width_v,
		ww_attention_up(a->width_v, 32) % 64 ? 32 : 64, t.keys);
	if (a->turns)
		ww_arg_i32(p, (int)blocks);
	ww_arg_i32(p, (int)group);
	ww_arg_i32(p, (int)a->h);
	ww_arg_i32(p, (int)a->t_q);
	ww_arg_i32(p, (int)a->t_k);
	ww_arg_i32(p, (int)a->width_v);
	ww_arg_f32(
		p, (float)((a->scale != 0.0 ? a->scale : ww_attention_rsqrt((double)a->width)) * 1.44269504088896340736));
}

#endif
