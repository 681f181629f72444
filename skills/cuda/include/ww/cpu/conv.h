/* conv.h - convolutions and transposed convolutions of 1, 2 or 3 dimensions, NCHW, with a fused epilogue.
 *
 *     void epi(ctx, img, k, pixel, ww_vf v, int n)     output pixels pixel .. pixel+n-1 (flat over depth, height and
 *                                                      width) of output channel k of image img
 *
 * Implicit GEMM with pixels along the vectors.  For one image, group and tile of output pixels, a block copies the
 * input it needs into its scratch, zero-padded, as a *slab* in which every tap of every output pixel of the tile lies
 * at a fixed distance from the pixel:   out[k][p] = sum over taps t of w[k][t] * slab[off[t] + p]. So the inner loop is
 * the GEMM micro-kernel with an offset table instead of a row stride; padding, dilation, strides and depth have become
 * table entries:
 *   - depth: each (channel, kd) pair is a plane of its own (a zero plane where it falls outside);
 *   - stride: the slab is split by row and column phase, so that neighbouring output pixels read neighbouring floats;
 *   - p runs over the tile's rows with the slab's row length, and results between the rows' ends are computed and
 *     dropped (2 columns of 58 for a 3x3 filter on 56 columns).
 *
 * A transposed convolution of stride s is s_h * s_w ordinary ones, one for each phase of the output coordinate, each
 * with the taps that hit that phase; they share one slab, and their results are interleaved in scratch before the
 * epilogue, which therefore always sees contiguous pixels.  (Depth phases are not split: planes that no tap hits are
 * zero.)
 *
 * Weights are packed by a small launch before, in the order in which the micro-kernel reads them: [group][phase][panel
 * of WW_MR output channels][tap][WW_MR], one channel to a panel where a group has fewer than 4 (depthwise).
 *
 * Operands of 16 bits (ww_cpu_conv_f16, _bf16): a plane's rows are widened as the slab is made, and weights as they are
 * packed.  Where the machine multiplies pairs of bfloat16 (AVX512_BF16), each float of the slab is two channels, of
 * packed weights too, so that there are half as many taps; an odd last channel meets zeros.
 *
 * Two kernels, NAME_pack and NAME, both with the arguments below; ww_recipe_cpu_conv() adds both launches. */
#ifndef WW_CPU_CONV_H
#define WW_CPU_CONV_H

#include <ww/recipe/cpu_conv_geometry.h>

typedef void (*ww_conv_epi_fn)(const void *ctx, long long img, long long k, long long pixel, ww_vf v, int n);

/* Returns the channels of a group; g's c counts lanes: channels, or pairs of them. */
WW_FN long long ww_conv_geometry(struct ww_conv_geo *g, enum ww_operand type, void *const *arg)
{
	long long *v = (long long *)(void *)g, channels;

	for (int i = 0; i < WW_CONV_GEO; i++)
		v[i] = WW_ARG(long long, i);
	channels = g->c;
	if (ww_in_pairs(type))
		g->c = (channels + 1) / 2;
	return channels;
}

enum { WW_CONV_NV1 = 8 /* vectors of pixels at a time, of a panel of one channel */ };

/* Channels to a panel. */
WW_FN int ww_conv_mr(const struct ww_conv_geo *g) { return g->k < 4 ? 1 : WW_MR; }

/* One dimension's taps for one phase: how many, and for the i-th of them which filter index and which shift. */
struct ww_conv_taps {
	int count;
	int tap[WW_CONV_MAX_TAPS];
	int shift[WW_CONV_MAX_TAPS];
	int plane[WW_CONV_MAX_TAPS];
};
WW_FN void ww_conv_dim(
	struct ww_conv_taps *t, long long transposed, long long kernel, long long stride, long long dil, long long phase)
{
	const long long reach = (kernel - 1) * dil / stride;

	t->count = 0;
	for (long long r = 0; r < kernel; r++) {
		if (transposed && r * dil % stride != phase)
			continue;
		t->tap[t->count] = (int)r;
		t->shift[t->count] = (int)(transposed ? reach - (r * dil - phase) / stride : r * dil / stride);
		t->plane[t->count++] = (int)(transposed ? 0 : r * dil % stride);
	}
}

/* dst[t][WW_MR] = src[i][t], `rows` of them: taps lie in memory in the order in which they are read. */
WW_FN void ww_conv_pack_panel(float *dst, const float *src, long long taps, int rows)
{
	for (long long t = 0; t < taps; t += WW_VL) {
		const int n = (int)ww_min_ll(WW_VL, taps - t);
		ww_vf v[WW_VL];

		for (int i = 0; i < rows; i++)
			ww_prefetch_ahead(src + i * taps + t, 1);
		ww_square_load(v, src + t, taps, rows, n);
		ww_vf_transpose(v);
		for (int i = 0; i < n; i++)
			ww_vf_store(dst + (t + i) * WW_MR, v[i], WW_MR);
	}
}

#if WW_DOT_BF16
/* The same of pairs: element t of channels 2c and 2c + 1, whose runs of `taps` follow each other, up to 24.  Sixteen
 * pairs in a row lie in 64 elements, and one permutation picks them. */
WW_FN void ww_conv_pack_pairs(float *dst, const uint16_t *src, long long channels, long long taps, int rows)
{
	const long long all = channels * taps, pairs = (channels + 1) / 2 * taps;

	for (long long j = 0; j < pairs; j += WW_VL) {
		const long long c = j / taps, t = j % taps, at = c * 2 * taps + t;
		const ww_vi lane = ww_vi_iota() + ww_vi_set((int)t);
		const ww_vi run = ww_vi_trunc((ww_vf_of_vi(lane) + 0.5f) * (1.0f / (float)taps)); /* of channels from c on */
		const ww_vi lower = ww_vi_iota() + run * ww_vi_set((int)taps);
		const __m512i pick = (__m512i)(lower | (lower + ww_vi_set((int)taps)) << 16);
		const long long left = all - at;
		const __mmask32 first = left >= 32 ? ~0u : (1u << left) - 1,
						second = left >= 64 ? ~0u
			: left > 32                     ? (1u << (left - 32)) - 1
											: 0;
		ww_vf v[WW_VL];

		for (int i = 0; i < WW_VL; i++) {
			const uint16_t *p = src + (i < rows ? i : 0) * all + at;

			ww_prefetch_ahead(p, 1);
			v[i] = (ww_vf)_mm512_permutex2var_epi16(
				_mm512_maskz_loadu_epi16(first, p), pick, _mm512_maskz_loadu_epi16(second, p + 32));
		}
		for (int i = rows; i < WW_VL; i++)
			v[i] = ww_vf_zero();
		ww_vf_transpose(v);
		for (int i = 0; i < ww_min_ll(WW_VL, pairs - j); i++)
			ww_vf_store(dst + (j + i) * WW_MR, v[i], WW_MR);
	}
}
#endif

/* The same from 16 bits; `taps` of a channel. */
WW_FN void ww_conv_pack_half(
	enum ww_operand type, float *dst, const uint16_t *src, long long channels, long long taps, int rows)
{
	const int pairs = ww_in_pairs(type);
	const long long all = channels * taps, run = pairs ? taps : all, step = pairs ? 2 * taps : all;

#if WW_DOT_BF16
	if (pairs && taps <= 24) {
		ww_conv_pack_pairs(dst, src, channels, taps, rows);
		return;
	}
#endif
	for (long long c = 0; c < all; c += step)
		for (long long t = 0; t < run; t += WW_VL) {
			const int n = (int)ww_min_ll(WW_VL, run - t);
			const long long next = c + taps < all ? taps : 0;
			ww_vf v[WW_VL];

			for (int i = 0; i < WW_VL; i++)
				v[i] = i < rows ? ww_operand_load(type, src, i * all + c + t, next, n) : ww_vf_zero();
			ww_vf_transpose(v);
			for (int i = 0; i < n; i++, dst += WW_MR)
				ww_vf_store(dst, v[i], WW_MR);
		}
}

/* One phase's taps of one channel, for the `rows` channels of a panel, which lie `step` elements apart: element `at` of
 * w is the first one's first tap.  mr is 1 or WW_MR.  Returns what follows them. */
WW_FN float *ww_conv_pack_phase(enum ww_operand type, float *dst, const void *w, long long at, long long step,
	long long width, const struct ww_conv_taps *th, const struct ww_conv_taps *tw, int mr, int rows, long long next)
{
	for (int y = 0; y < th->count; y++)
		for (int x = 0; x < tw->count; x++, dst += mr) {
			const long long from = at + th->tap[y] * width + tw->tap[x];

			for (int i = 0; i < mr; i++)
				dst[i] = i < rows ? ww_operand_load(type, w, from + i * step, next, 1)[0] : 0.0f;
		}
	return dst;
}

enum { WW_CONV_TURNED = 128 /* taps of a channel, and phases, that are turned at once */ };

/* The taps of each phase, one phase after the other: tap[], and how many each has. */
WW_FN void ww_conv_phases(const struct ww_conv_geo *g, int *tap, int *count)
{
	struct ww_conv_taps th, tw;

	for (long long f = 0; f < g->sh * g->sw; f++) {
		ww_conv_dim(&th, 1, g->kh, g->sh, g->dh, f / g->sw);
		ww_conv_dim(&tw, 1, g->kw, g->sw, g->dw, f % g->sw);
		count[f] = (int)g->kd * th.count * tw.count;
		for (long long d = 0; d < g->kd; d++)
			for (int y = 0; y < th.count; y++)
				for (int x = 0; x < tw.count; x++)
					*tap++ = (int)((d * g->kh + th.tap[y]) * g->kw) + tw.tap[x];
	}
}

/* A panel of a transposed convolution.  A channel's taps of the panel's `rows` output channels lie in one run of
 * memory, which is turned, and the taps go to their phases from there.  w: the panel's first tap; packed: of its group.
 */
WW_FN void ww_conv_pack_turned(
	const struct ww_conv_geo *g, float *packed, const float *w, long long panel, long long kpad, int rows)
{
	const long long taps = g->kd * g->kh * g->kw;
	float turned[WW_CONV_TURNED * WW_MR + WW_VL];
	int tap[WW_CONV_TURNED], count[WW_CONV_TURNED];

	ww_conv_phases(g, tap, count);
	for (long long c = 0; c < g->c; c++) {
		float *base = packed;
		const int *next = tap;

		ww_conv_pack_panel(turned, w + c * g->k * taps, taps, rows);
		for (long long f = 0; f < g->sh * g->sw; f++) {
			float *const dst = base + (panel * g->c + c) * WW_MR * count[f];

			for (int i = 0; i < count[f]; i++)
				__builtin_memcpy(dst + i * WW_MR, turned + *next++ * WW_MR, WW_MR * sizeof(*dst));
			base += kpad * g->c * count[f];
		}
	}
}

/* Arguments: the geometry, weights, packed.  Grid: x over panels, y over groups. */
WW_FN void ww_conv_pack(const struct ww_block *b, enum ww_operand type, void *const *arg)
{
	struct ww_conv_geo g;
	const void *w = WW_ARG(const void *, WW_CONV_GEO);
	float *packed = WW_ARG(float *, WW_CONV_GEO + 1);
	struct ww_conv_taps th, tw;

	const long long channels = ww_conv_geometry(&g, type, arg);
	const long long mr = ww_conv_mr(&g), kpad = WW_CDIV(g.k, mr) * mr, taps = g.kd * g.kh * g.kw, all = g.c * taps;
	const long long fh = g.transposed ? g.sh : 1, fw = g.transposed ? g.sw : 1;
	const long long next = g.transposed ? g.k * taps : taps; /* from a channel to the next one */

	if (b->x * mr >= kpad)
		return;
	packed += b->y * WW_CONV_KPAD(g.k) * all;
	if (!g.transposed && mr == WW_MR) {
		const long long first = (b->y * g.k + b->x * mr) * channels * taps;
		const int rows = (int)ww_min_ll(WW_MR, g.k - b->x * mr);

		if (type == WW_OF_F32)
			ww_conv_pack_panel(packed + b->x * mr * all, (const float *)w + first, all, rows);
		else
			ww_conv_pack_half(type, packed + b->x * mr * all, (const uint16_t *)w + first, channels, taps, rows);
		return;
	}
	if (g.transposed && mr == WW_MR && type == WW_OF_F32 && taps <= WW_CONV_TURNED && fh * fw <= WW_CONV_TURNED) {
		ww_conv_pack_turned(&g, packed, (const float *)w + (b->y * channels * g.k + b->x * mr) * taps, b->x, kpad,
			(int)ww_min_ll(mr, g.k - b->x * mr));
		return;
	}
	for (long long f = 0; f < fh * fw; f++) {
		ww_conv_dim(&th, g.transposed, g.kh, g.sh, g.dh, f / fw);
		ww_conv_dim(&tw, g.transposed, g.kw, g.sw, g.dw, f % fw);
		const long long len = g.c * g.kd * th.count * tw.count, k = b->x * mr;
		float *dst = packed + b->x * mr * len;

		for (long long c = 0; c < g.c; c++) {
			const long long chan = c * (ww_in_pairs(type) ? 2 : 1);
			const long long at = g.transposed ? (b->y * channels + chan) * g.k + k : (b->y * g.k + k) * channels + chan;

			for (long long d = 0; d < g.kd; d++)
				dst = ww_conv_pack_phase(type, dst, w, at * taps + d * g.kh * g.kw,
					(g.transposed ? 1 : channels) * taps, g.kw, &th, &tw, (int)mr, (int)ww_min_ll(mr, g.k - k),
					chan + 1 < channels ? next : 0);
		}
		packed += kpad * len;
	}
}

/* c[mr][nv * WW_VL] = sum over t of a[t * lda + ...] * slab[off[t] + ...]. */
WW_FN void ww_conv_micro_here(int pairs, int mr, int nv, const float *a, long long lda, const float *slab,
	const int *off, long long taps, float *c, long long ldc)
{
	ww_vf acc[32], bv[8];

	WW_UNROLL(8)
	for (int i = 0; i < mr * nv; i++)
		acc[i] = ww_vf_zero();
	for (long long t = 0; t < taps; t++) {
		const float *x = slab + off[t];

		WW_UNROLL(8)
		for (int v = 0; v < nv; v++)
			bv[v] = mr > 1 ? ww_vf_held(ww_vf_load(x + v * WW_VL, WW_VL)) : ww_vf_load(x + v * WW_VL, WW_VL);
		WW_UNROLL(8)
		for (int i = 0; i < mr; i++) {
			const ww_vf w = ww_vf_set(a[t * lda + i]);

			WW_UNROLL(8)
			for (int v = 0; v < nv; v++)
				acc[i * nv + v] = pairs ? ww_vf_dot_bf16(w, bv[v], acc[i * nv + v])
										: ww_vf_fma(w, bv[v], acc[i * nv + v]);
		}
	}
	WW_UNROLL(8)
	for (int i = 0; i < mr; i++)
		WW_UNROLL(8)
	for (int v = 0; v < nv; v++)
		ww_vf_store(c + i * ldc + v * WW_VL, acc[i * nv + v], WW_VL);
}

#if defined(WW_AVX2)
/* The same, not inlined, as ww_micro(). */
#define WW_MICRO_APART(nv) \
	static __attribute__((noinline, unused)) void ww_conv_micro_##nv( \
		const float *a, const float *slab, const int *off, long long taps, float *c, long long ldc) \
	{ \
		ww_conv_micro_here(0, WW_MR, nv, a, WW_MR, slab, off, taps, c, ldc); \
	}
WW_MICRO_APART(1)
WW_MICRO_APART(2)
WW_MICRO_APART(3)
#undef WW_MICRO_APART
#endif
WW_FN void ww_conv_micro(int pairs, int mr, int nv, const float *a, long long lda, const float *slab, const int *off,
	long long taps, float *c, long long ldc)
{
#if defined(WW_AVX2)
	if (!pairs && mr == WW_MR && lda == WW_MR && nv <= 3) {
		(nv == 1 ? ww_conv_micro_1 : nv == 2 ? ww_conv_micro_2 : ww_conv_micro_3)(a, slab, off, taps, c, ldc);
		return;
	}
#endif
	ww_conv_micro_here(pairs, mr, nv, a, lda, slab, off, taps, c, ldc);
}

/* One row of the slab: dst[j] = src[j * step] for j in [from, to), else 0.  Whole vectors are stored: elements beyond
 * the row are overwritten by the next row, or lie in the slack. */
WW_FN void ww_conv_row(float *dst, long long len, const float *src, long long step, long long from, long long to)
{
	long long j = from;

	for (long long z = 0; z < from; z += WW_VL)
		ww_vf_store(dst + z, ww_vf_zero(), WW_VL);
	if (step == 1) {
		for (; j + WW_VL <= to; j += WW_VL)
			ww_vf_store(dst + j, ww_vf_load_ahead(src + j, WW_VL), WW_VL);
		if (j < to)
			ww_vf_store(dst + j, ww_vf_load_ahead(src + j, (int)(to - j)), WW_VL);
	} else if (step == 2) {
		for (; j < to; j += WW_VL)
			ww_vf_store(dst + j, ww_vf_gather_ahead(src + 2 * j, 2, (int)ww_min_ll(WW_VL, to - j)), WW_VL);
	} else {
		for (; j < to; j += WW_VL)
			ww_vf_store(dst + j, ww_vf_gather_any(src + step * j, step, (int)ww_min_ll(WW_VL, to - j)), WW_VL);
	}
	for (j = to; j < len; j += WW_VL)
		ww_vf_store(dst + j, ww_vf_zero(), WW_VL);
}

/* A block's tile; the recipe says how much scratch each part takes. */
struct ww_conv_tile {
	long long img, group, od, a0, b0; /* image, group, output depth, first row and column (phase coordinates) */
	long long rows, cols;             /* of this tile, in phase coordinates */
	long long sr, sc;                 /* rows and row length of a slab plane */
	long long planes;                 /* planes of a channel: row phases times column phases */
};

/* The columns of one phase: slab column j in [from, to) is input column col + step * j, the others are zeros. */
struct ww_conv_cols {
	long long col, step, from, to;
#if defined(WW_AVX512)
	int picked; /* rows of the slab are one vector, selected from two of the input: */
	ww_vm first, second, mask;
	__m512i pick;
#endif
};
WW_FN void ww_conv_columns(
	struct ww_conv_cols *c, const struct ww_conv_geo *g, const struct ww_conv_tile *t, long long col)
{
	c->col = col;
	c->step = g->transposed ? 1 : g->sw;
	c->from = ww_min_ll(t->sc, col < 0 ? WW_CDIV(-col, c->step) : 0);
	c->to = ww_max_ll(c->from, ww_min_ll(t->sc, col < g->iw ? (g->iw - 1 - col) / c->step + 1 : 0));
#if defined(WW_AVX512)
	const long long span = c->to > c->from ? (c->to - c->from - 1) * c->step + 1 : 0;

	c->picked = t->sc <= WW_VL && span <= 2 * WW_VL;
	if (c->picked) {
		c->first = ww_vm_first((int)ww_min_ll(span, WW_VL));
		c->second = ww_vm_first((int)ww_max_ll(0, span - WW_VL));
		c->mask = ww_vm_first((int)c->to) & ~ww_vm_first((int)c->from);
		c->pick = (__m512i)((ww_vi_iota() - ww_vi_set((int)c->from)) * ww_vi_set((int)c->step));
	}
#endif
}

#if defined(WW_AVX512)
/* A plane of rows that are one vector.  Short rows are most of the work of a convolution with few filters. */
WW_FN float *ww_conv_picked(const struct ww_conv_geo *g, const struct ww_conv_tile *t, const float *x, long long row,
	const struct ww_conv_cols *c, float *slab)
{
	const long long h = g->transposed ? 1 : g->sh, at = c->col + c->step * c->from;

	for (long long i = 0; i < t->sr; i++, row += h, slab += t->sc) {
		__m512 v = _mm512_setzero_ps();

		if (x && row >= 0 && row < g->ih) {
			const float *p = x + row * g->iw + at;

			ww_prefetch_ahead(p, 1); /* of the next channels: planes are read in order */
			v = _mm512_maskz_loadu_ps(c->first, p);
			v = c->second
				? _mm512_maskz_permutex2var_ps(c->mask, v, c->pick, _mm512_maskz_loadu_ps(c->second, p + WW_VL))
				: _mm512_maskz_permutexvar_ps(c->mask, c->pick, v);
		}
		ww_vf_store(slab, (ww_vf)v, WW_VL);
	}
	return slab;
}
#endif

/* The plane of one phase of a channel; x: the channel's plane of the input, NULL: it lies outside. */
WW_FN float *ww_conv_plane(const struct ww_conv_geo *g, const struct ww_conv_tile *t, const float *x, long long row,
	const struct ww_conv_cols *c, float *slab)
{
	const long long h = g->transposed ? 1 : g->sh;

#if defined(WW_AVX512)
	if (c->picked)
		return ww_conv_picked(g, t, x, row, c, slab);
#endif
	for (long long i = 0; i < t->sr; i++, row += h, slab += t->sc) {
		const int in = x && row >= 0 && row < g->ih;

		ww_conv_row(slab, t->sc, in ? x + row * g->iw + c->col : slab, c->step, in ? c->from : 0, in ? c->to : 0);
	}
	return slab;
}

/* Rows [from, to) of a plane of 16 bits, at its element `at`, to `line`: their place in a plane as ww_conv_plane()
 * reads it. */
WW_FN const float *ww_conv_widen(enum ww_operand type, const void *x, long long at, long long next,
	const struct ww_conv_geo *g, long long from, long long to, float *line)
{
	const long long n = (to - from) * g->iw;

	for (long long i = 0; i < n; i += WW_VL) {
		ww_prefetch_ahead((const uint16_t *)x + at + from * g->iw + i, 1);
		ww_vf_store(
			line + i, ww_operand_load(type, x, at + from * g->iw + i, next, (int)ww_min_ll(WW_VL, n - i)), WW_VL);
	}
	return line - from * g->iw;
}

/* channels: of a group; line: ww_conv_line_floats() of scratch. */
WW_FN void ww_conv_slab(const struct ww_conv_geo *g, enum ww_operand type, const struct ww_conv_tile *t,
	long long channels, const void *x, float *slab, float *line)
{
	enum { KNOWN = 8 /* phases whose columns are computed once a tile */ };
	const int pairs = ww_in_pairs(type);
	const long long ph = g->transposed ? 1 : g->sh, pw = g->transposed ? 1 : g->sw, size = g->ih * g->iw;
	const long long row0 = g->transposed ? t->a0 - (t->sr - t->rows) : t->a0 * g->sh - g->ph;
	const long long col0 = g->transposed ? t->b0 - (t->sc - t->cols) : t->b0 * g->sw - g->pw;
	const long long from = ww_max_ll(0, row0), to = ww_max_ll(from, ww_min_ll(g->ih, row0 + t->sr * ph));
	struct ww_conv_cols cols[KNOWN];

	for (long long f = 0; f < pw && f < KNOWN; f++)
		ww_conv_columns(&cols[f], g, t, col0 + f);
	for (long long c = 0; c < g->c; c++)
		for (long long kd = 0; kd < g->kd; kd++) {
			const long long up = t->od + g->pd - kd * g->dd, chan = pairs ? 2 * c : c;
			const long long id = !g->transposed ? t->od * g->sd + kd * g->dd - g->pd
				: up >= 0 && up % g->sd == 0    ? up / g->sd
												: -1;
			const long long at = (((t->img * g->groups + t->group) * channels + chan) * g->id + id) * size;
			const float *plane = NULL;

			if (id >= 0 && id < g->id)
				plane = type == WW_OF_F32
					? (const float *)x + at
					: ww_conv_widen(type, x, at, chan + 1 < channels ? g->id * size : 0, g, from, to, line);
			for (long long h = 0; h < ph; h++)
				for (long long w = 0; w < pw; w++) {
					struct ww_conv_cols other, *at_w = w < KNOWN ? &cols[w] : &other;

					if (w >= KNOWN)
						ww_conv_columns(at_w, g, t, col0 + w);
					slab = ww_conv_plane(g, t, plane, row0 + h, at_w, slab);
				}
		}
}

/* The offset table of one phase; returns its length. */
WW_FN long long ww_conv_offsets(const struct ww_conv_geo *g, const struct ww_conv_tile *t, long long phase, int *off)
{
	const long long fw = g->transposed ? g->sw : 1, pw = g->transposed ? 1 : g->sw, plane = t->sr * t->sc;
	struct ww_conv_taps th, tw;
	long long n = 0, per;

	ww_conv_dim(&th, g->transposed, g->kh, g->sh, g->dh, phase / fw);
	ww_conv_dim(&tw, g->transposed, g->kw, g->sw, g->dw, phase % fw);
	for (int r = 0; r < th.count; r++)
		for (int s = 0; s < tw.count; s++)
			off[n++] = (int)((th.plane[r] * pw + tw.plane[s]) * plane + th.shift[r] * t->sc + tw.shift[s]);
	per = n; /* the other channels' are the first one's, planes later */
	for (long long c = 1; c < g->c * g->kd; c++)
		for (long long i = 0; i < per; i++)
			off[n++] = off[i] + (int)(c * t->planes * plane);
	return n;
}

/* One output row of one channel, from the phases' results (row length sc, `step` floats between phases) into dst. */
WW_FN void ww_conv_weave(
	float *dst, long long from, long long to, const float *res, long long step, long long sw, long long u0)
{
	long long i = from;

	if (sw == 1) {
		for (; i < to; i += WW_VL) {
			const int n = (int)ww_min_ll(WW_VL, to - i);

			ww_vf_store(dst + (i - from), ww_vf_load(res + i - u0, n), n);
		}
		return;
	}
	if (sw == 2) {
		long long skip = (i - u0) & 1; /* an odd start: a single one, then pairs */

		if (skip && i < to) {
			dst[0] = res[step + (i - u0) / 2];
			i++;
		}
		for (; i + 2 * WW_VL <= to; i += 2 * WW_VL) {
			const ww_vf e = ww_vf_load(res + (i - u0) / 2, WW_VL), o = ww_vf_load(res + step + (i - u0) / 2, WW_VL);

			ww_vf_store(dst + (i - from), (ww_vf)WW_ILV_LO(e, o), WW_VL);
			ww_vf_store(dst + (i - from) + WW_VL, (ww_vf)WW_ILV_HI(e, o), WW_VL);
		}
	}
	for (; i < to; i++)
		dst[i - from] = res[(i - u0) % sw * step + (i - u0) / sw];
}

/* Hand `len` contiguous pixels to the epilogue, so that all but the first vector start on a vector boundary. */
WW_FN void ww_conv_emit(
	const float *src, long long len, long long img, long long k, long long pixel, ww_conv_epi_fn epi, const void *ctx)
{
	long long i = ww_min_ll(len, (WW_VL - pixel % WW_VL) % WW_VL);

	if (i > 0)
		epi(ctx, img, k, pixel, ww_vf_load(src, (int)i), (int)i);
	for (; i + WW_VL <= len; i += WW_VL)
		epi(ctx, img, k, pixel + i, ww_vf_load(src + i, WW_VL), WW_VL);
	if (i < len)
		epi(ctx, img, k, pixel + i, ww_vf_load(src + i, (int)(len - i)), (int)(len - i));
}

/* Which pixels of a tile with short rows are the output's: a bit for each, the others lie in the gaps between rows. */
enum { WW_CONV_SHORT = 48 /* pixels of such a row */, WW_CONV_BITS = 1024 /* pixels of such a tile */ };
struct ww_conv_gaps {
	int known;
	unsigned char bits[WW_CONV_BITS / 8 + 8];
#if defined(WW_AVX2)
	unsigned char order[WW_CONV_BITS / 8 + 8][8]; /* for each eight bits: the places of those that are set */
#endif
};
WW_FN void ww_conv_find_gaps(const struct ww_conv_geo *g, const struct ww_conv_tile *t, struct ww_conv_gaps *gaps)
{
	const int plain = !g->transposed && t->cols == g->ow && t->sc > t->cols;

	gaps->known = WW_VL >= 8 && plain && t->sc <= WW_CONV_SHORT && t->rows * t->sc <= WW_CONV_BITS;
	if (!gaps->known)
		return;
	for (unsigned i = 0; i < sizeof(gaps->bits); i++)
		gaps->bits[i] = 0;
	for (long long r = 0; r < t->rows; r++) {
		unsigned char *at = gaps->bits + r * t->sc / 8;
		uint64_t word;

		__builtin_memcpy(&word, at, sizeof(word));
		word |= ((1ull << t->cols) - 1) << (r * t->sc % 8);
		__builtin_memcpy(at, &word, sizeof(word));
	}
#if defined(WW_AVX2)
	for (long long i = 0; i * 8 < t->rows * t->sc; i++) {
		uint64_t order = 0;

		for (int bit = 8; bit-- > 0;)
			order = gaps->bits[i] >> bit & 1 ? order << 8 | (unsigned)bit : order;
		__builtin_memcpy(gaps->order[i], &order, sizeof(order));
	}
#endif
}

#if defined(WW_AVX512) || defined(WW_AVX2)
/* Vector i of a channel's pixels, those that are the output's side by side from lane 0 on; *count: how many. */
WW_FN ww_vf ww_conv_compress(const struct ww_conv_gaps *gaps, const float *res, long long i, int *count)
{
#if defined(WW_AVX512)
	const __mmask16 m = (__mmask16)(gaps->bits[i / 8] | gaps->bits[i / 8 + 1] << 8);

	*count = __builtin_popcount(m);
	return (ww_vf)_mm512_maskz_compress_ps(m, (__m512)ww_vf_load(res + i, WW_VL));
#else
	const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)gaps->order[i / 8]));

	*count = __builtin_popcount(gaps->bits[i / 8]);
	return (ww_vf)_mm256_permutevar8x32_ps((__m256)ww_vf_load(res + i, WW_VL), order);
#endif
}
/* Hands the pixels of one channel to the epilogue in whole vectors, without what lies in the gaps. */
WW_FN void ww_conv_emit_short(const struct ww_conv_gaps *gaps, const float *res, long long npix, long long img,
	long long k, long long pixel, ww_conv_epi_fn epi, const void *ctx)
{
	ww_vf left = ww_vf_zero(); /* the first `n` pixels of the next vector */
	int n = 0, count;

	for (long long i = 0; i < npix; i += WW_VL) {
		const ww_vf v = ww_conv_compress(gaps, res, i, &count);
		const int all = n + count;

		left = ww_vf_pick_from(left, n, ww_vi_iota() - ww_vi_set(n), v);
		if (all >= WW_VL) {
			epi(ctx, img, k, pixel, left, WW_VL);
			pixel += WW_VL;
			left = ww_vf_pick_from(v, 0, ww_vi_iota() + ww_vi_set(WW_VL - n), v);
		}
		n = all % WW_VL;
	}
	if (n)
		epi(ctx, img, k, pixel, left, n);
}
#endif

/* The results of one panel's channels, phase by phase in res (row length npr), interleaved into rows and passed to the
 * epilogue. */
WW_FN void ww_conv_finish(const struct ww_conv_geo *g, const struct ww_conv_tile *t, long long panel, int mr,
	const float *res, long long npr, const struct ww_conv_gaps *gaps, float *flat, ww_conv_epi_fn epi, const void *ctx)
{
	const long long fh = g->transposed ? g->sh : 1, fw = g->transposed ? g->sw : 1;
	const long long uh = g->transposed ? g->ph : 0, uw = g->transposed ? g->pw : 0; /* phase coordinate = pixel + u */
	const long long y0 = ww_max_ll(0, t->a0 * fh - uh), y1 = ww_min_ll(g->oh, (t->a0 + t->rows) * fh - uh);
	const long long x0 = ww_max_ll(0, t->b0 * fw - uw), x1 = ww_min_ll(g->ow, (t->b0 + t->cols) * fw - uw);
	const int whole = x0 == 0 && x1 == g->ow;

	for (int i = 0; i < mr && panel * mr + i < g->k; i++) {
		const long long chan = t->group * g->k + panel * mr + i, base = t->od * g->oh * g->ow;
		float *at = flat;

		if (whole && fh * fw == 1 && t->sc == g->ow) { /* the rows have no gaps */
			ww_conv_emit(res + i * npr + (y0 + uh - t->a0) * t->sc, (y1 - y0) * t->sc, t->img, chan, base + y0 * g->ow,
				epi, ctx);
			continue;
		}
#if defined(WW_AVX512) || defined(WW_AVX2)
		if (gaps->known) {
			ww_conv_emit_short(
				gaps, res + i * npr, (t->rows - 1) * t->sc + t->cols, t->img, chan, base + y0 * g->ow, epi, ctx);
			continue;
		}
#endif
		for (long long y = y0; y < y1 && x0 < x1; y++) {
			const long long u = y + uh - t->a0 * fh;
			const float *row = res + (u % fh * fw * mr + i) * npr + u / fh * t->sc;

			ww_conv_weave(at, x0, x1, row, mr * npr, fw, t->b0 * fw - uw);
			if (whole)
				at += x1 - x0;
			else
				ww_conv_emit(at, x1 - x0, t->img, chan, base + y * g->ow + x0, epi, ctx);
		}
		if (whole && at > flat)
			ww_conv_emit(flat, at - flat, t->img, chan, base + y0 * g->ow, epi, ctx);
	}
}

/* The same for the first of `left` pixels; how many they were.  A fourth vector behind three would be eight sums, each
 * of which waits for itself: four vectors are done at once instead, half a panel at a time. */
WW_FN long long ww_conv_pixels(int pairs, int mr, int nv, long long left, const float *a, const float *slab,
	const int *off, long long taps, float *c, long long ldc)
{
	if (left <= WW_VL) {
		ww_conv_micro(pairs, mr, 1, a, mr, slab, off, taps, c, ldc);
	} else if (left <= 2 * WW_VL) {
		ww_conv_micro(pairs, mr, 2, a, mr, slab, off, taps, c, ldc);
	} else if (nv > 4 && left <= 4 * WW_VL) {
		ww_conv_micro(pairs, mr, 4, a, mr, slab, off, taps, c, ldc);
	} else if (mr == 8 && nv == 3 && left > 3 * WW_VL && left <= 4 * WW_VL) {
		ww_conv_micro(pairs, 4, 4, a, mr, slab, off, taps, c, ldc);
		ww_conv_micro(pairs, 4, 4, a + 4, mr, slab, off, taps, c + 4 * ldc, ldc);
		return 4 * WW_VL;
	} else {
		ww_conv_micro(pairs, mr, nv, a, mr, slab, off, taps, c, ldc);
	}
	return nv * WW_VL;
}

WW_FN void ww_conv_block(const struct ww_block *b, const struct ww_conv_geo *g, enum ww_operand type,
	long long channels, const void *x, const float *packed, ww_conv_epi_fn epi, const void *ctx)
{
	const int mr = ww_conv_mr(g);
	const long long fh = g->transposed ? g->sh : 1, fw = g->transposed ? g->sw : 1;
	const long long nr = (mr == 1 ? WW_CONV_NV1 : WW_NV) * WW_VL;
	const struct ww_conv_span sp = ww_conv_span(g);
	const long long panels = WW_CDIV(g->k, mr), all = g->c * g->kd * g->kh * g->kw;
	struct ww_conv_tile t;
	long long npix, npr;

	t.img = b->y / g->groups;
	t.group = b->y % g->groups;
	t.od = b->x / (sp.th * sp.tw);
	t.a0 = sp.h0 + b->x / sp.tw % sp.th * g->tr;
	t.b0 = sp.w0 + b->x % sp.tw * g->tc;
	t.rows = ww_min_ll(g->tr, sp.h1 - t.a0);
	t.cols = ww_min_ll(g->tc, sp.w1 - t.b0);
	t.sr = t.rows + (g->kh - 1) * g->dh / g->sh;
	t.sc = t.cols + (g->kw - 1) * g->dw / g->sw;
	t.planes = g->transposed ? 1 : g->sh * g->sw;
	npix = (t.rows - 1) * t.sc + t.cols;
	npr = WW_CDIV(npix, nr) * nr;

	float *slab = b->shared, *res, *flat;
	int *off;
	struct ww_conv_gaps gaps;

	res = slab + g->c * g->kd * t.planes * t.sr * t.sc + WW_CONV_SLACK; /* vectors may start at the last pixel */
	flat = res + fh * fw * mr * npr;
	off = (int *)(void *)(flat + (t.rows * fh) * (t.cols * fw) + WW_CONV_SLACK);
	ww_conv_slab(g, type, &t, channels, x, slab, (float *)(void *)(off + all));
	ww_conv_find_gaps(g, &t, &gaps);
	packed += t.group * WW_CONV_KPAD(g->k) * all;
	for (long long f = 0, first = 0; f < fh * fw; f++)
		first += ww_conv_offsets(g, &t, f, off + first);
	for (long long p = 0; p < panels; p++) {
		const int *o = off;
		const float *w = packed;

		for (long long f = 0; f < fh * fw; f++) {
			struct ww_conv_taps th, tw;
			long long taps;

			ww_conv_dim(&th, g->transposed, g->kh, g->sh, g->dh, f / fw);
			ww_conv_dim(&tw, g->transposed, g->kw, g->sw, g->dw, f % fw);
			taps = g->c * g->kd * th.count * tw.count;
			for (long long i = 0; i < npix;)
				if (mr == 1)
					i += ww_conv_pixels(ww_in_pairs(type), 1, WW_CONV_NV1, npix - i, w + p * taps, slab + i, o, taps,
						res + f * npr + i, npr);
				else
					i += ww_conv_pixels(ww_in_pairs(type), WW_MR, WW_NV, npix - i, w + p * WW_MR * taps, slab + i, o,
						taps, res + f * WW_MR * npr + i, npr);
			o += taps;
			w += panels * mr * taps;
		}
		ww_conv_finish(g, &t, p, mr, res, npr, &gaps, flat, epi, ctx);
	}
}

/* Arguments: the geometry, x, packed.  Grid: x over output depth times tiles, y over images times groups. */
#define WW_CONV_ARGS (WW_CONV_GEO + 2)
WW_FN void ww_conv_tiles(
	const struct ww_block *b, enum ww_operand type, void *const *arg, ww_conv_epi_fn epi, const void *ctx)
{
	struct ww_conv_geo g;
	const void *x = WW_ARG(const void *, WW_CONV_GEO);
	const float *packed = WW_ARG(const float *, WW_CONV_GEO + 1);
	const long long channels = ww_conv_geometry(&g, type, arg);

	ww_conv_block(b, &g, type, channels, x, packed, epi, ctx);
}

#define WW_CONV_OF(suffix, type) \
	WW_FN void ww_cpu_conv_pack##suffix(const struct ww_block *b, void *const *arg) { ww_conv_pack(b, type, arg); } \
	WW_FN void ww_cpu_conv##suffix(const struct ww_block *b, void *const *arg, ww_conv_epi_fn epi, const void *ctx) \
	{ \
		ww_conv_tiles(b, type, arg, epi, ctx); \
	}
WW_CONV_OF(, WW_OF_F32)
WW_CONV_OF(_f16, WW_OF_F16)
WW_CONV_OF(_bf16, WW_OF_BF16)
#undef WW_CONV_OF

#endif
