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
 *   - p runs over the tile's rows with the slab's row length, and what falls between the rows' ends is computed and
 *     dropped (2 columns of 58 for a 3x3 filter on 56 columns).
 *
 * A transposed convolution of stride s is s_h * s_w ordinary ones, one for each phase of the output coordinate, each
 * with the taps that hit that phase; they share one slab, and their results are interleaved in scratch before the
 * epilogue, which therefore always sees contiguous pixels.  (Depth phases are not split: planes that do not hit are
 * zero.)
 *
 * Weights are packed by a small launch before, in the order in which the micro-kernel reads them: [group][phase][panel
 * of WW_MR output channels][tap][WW_MR], one channel to a panel where a group has fewer than 4 (depthwise).
 *
 * Two kernels, NAME_pack and NAME, both with the arguments below; ww_recipe_cpu_conv() adds both launches. */
#ifndef WW_CPU_CONV_H
#define WW_CPU_CONV_H

#include <ww/recipe/cpu_conv_geometry.h>

typedef void (*ww_conv_epi_fn)(const void *ctx, long long img, long long k, long long pixel, ww_vf v, int n);

WW_FN void ww_conv_geometry(struct ww_conv_geo *g, void *const *arg)
{
	long long *v = (long long *)(void *)g;

	for (int i = 0; i < WW_CONV_GEO; i++)
		v[i] = WW_ARG(long long, i);
}

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

		ww_square_load(v, src + t, taps, rows, n);
		ww_vf_transpose(v);
		for (int i = 0; i < n; i++)
			ww_vf_store(dst + (t + i) * WW_MR, v[i], WW_MR);
	}
}

/* Arguments: the geometry, weights, packed.  Grid: x over panels, y over groups. */
WW_FN void ww_cpu_conv_pack(const struct ww_block *b, void *const *arg)
{
	struct ww_conv_geo g;
	const float *w = WW_ARG(const float *, WW_CONV_GEO);
	float *packed = WW_ARG(float *, WW_CONV_GEO + 1);
	struct ww_conv_taps th, tw;

	ww_conv_geometry(&g, arg);
	const long long mr = ww_conv_mr(&g), kpad = WW_CDIV(g.k, mr) * mr, taps = g.kd * g.kh * g.kw, all = g.c * taps;
	const long long fh = g.transposed ? g.sh : 1, fw = g.transposed ? g.sw : 1;

	if (b->x * mr >= kpad)
		return;
	packed += b->y * WW_CONV_KPAD(g.k) * all;
	if (!g.transposed && mr == WW_MR) {
		ww_conv_pack_panel(
			packed + b->x * mr * all, w + (b->y * g.k + b->x * mr) * all, all, (int)ww_min_ll(WW_MR, g.k - b->x * mr));
		return;
	}
	for (long long f = 0; f < fh * fw; f++) {
		ww_conv_dim(&th, g.transposed, g.kh, g.sh, g.dh, f / fw);
		ww_conv_dim(&tw, g.transposed, g.kw, g.sw, g.dw, f % fw);
		const long long per = th.count * tw.count, len = g.c * g.kd * per;
		float *dst = packed + b->x * mr * len;

		for (long long c = 0; c < g.c * g.kd; c++)
			for (long long t = 0; t < per; t++)
				for (long long i = 0; i < mr; i++) {
					const long long k = b->x * mr + i, chan = c / g.kd;
					const long long tap = (c % g.kd * g.kh + th.tap[t / tw.count]) * g.kw + tw.tap[t % tw.count];
					const long long at = g.transposed ? (b->y * g.c + chan) * g.k + k : (b->y * g.k + k) * g.c + chan;

					dst[(c * per + t) * mr + i] = k < g.k ? w[at * taps + tap] : 0.0f;
				}
		packed += kpad * len;
	}
}

/* c[mr][nv * WW_VL] = sum over t of a[t][mr] * slab[off[t] + ...]. */
WW_FN void ww_conv_micro(
	int mr, int nv, const float *a, const float *slab, const int *off, long long taps, float *c, long long ldc)
{
	ww_vf acc[32], bv[8];

	WW_UNROLL(8)
	for (int i = 0; i < mr * nv; i++)
		acc[i] = ww_vf_zero();
	for (long long t = 0; t < taps; t++) {
		const float *x = slab + off[t];

		WW_UNROLL(8)
		for (int v = 0; v < nv; v++)
			bv[v] = ww_vf_load(x + v * WW_VL, WW_VL);
		WW_UNROLL(8)
		for (int i = 0; i < mr; i++) {
			const ww_vf w = ww_vf_set(a[t * mr + i]);

			WW_UNROLL(8)
			for (int v = 0; v < nv; v++)
				acc[i * nv + v] = ww_vf_fma(w, bv[v], acc[i * nv + v]);
		}
	}
	WW_UNROLL(8)
	for (int i = 0; i < mr; i++)
		WW_UNROLL(8)
	for (int v = 0; v < nv; v++)
		ww_vf_store(c + i * ldc + v * WW_VL, acc[i * nv + v], WW_VL);
}

/* One row of the slab: dst[j] = src[j * step] for j in [from, to), else 0.  Whole vectors are stored: what they leave
 * behind the row belongs to the next one, or to the slack. */
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

/* What a block needs to know about its tile; see the recipe for how much scratch each part takes. */
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
	int picked; /* rows of the slab are one vector, picked from two of the input: */
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

WW_FN void ww_conv_slab(const struct ww_conv_geo *g, const struct ww_conv_tile *t, const float *x, float *slab)
{
	enum { KNOWN = 8 /* phases whose columns are found once a tile */ };
	const long long ph = g->transposed ? 1 : g->sh, pw = g->transposed ? 1 : g->sw;
	const long long row0 = g->transposed ? t->a0 - (t->sr - t->rows) : t->a0 * g->sh - g->ph;
	const long long col0 = g->transposed ? t->b0 - (t->sc - t->cols) : t->b0 * g->sw - g->pw;
	struct ww_conv_cols cols[KNOWN];

	for (long long f = 0; f < pw && f < KNOWN; f++)
		ww_conv_columns(&cols[f], g, t, col0 + f);
	for (long long c = 0; c < g->c; c++)
		for (long long kd = 0; kd < g->kd; kd++) {
			const long long up = t->od + g->pd - kd * g->dd;
			const long long id = !g->transposed ? t->od * g->sd + kd * g->dd - g->pd
				: up >= 0 && up % g->sd == 0    ? up / g->sd
												: -1;
			const float *plane = x + (((t->img * g->groups + t->group) * g->c + c) * g->id + id) * g->ih * g->iw;

			if (id < 0 || id >= g->id)
				plane = NULL;
			for (long long h = 0; h < ph; h++)
				for (long long w = 0; w < pw; w++) {
					struct ww_conv_cols other, *at = w < KNOWN ? &cols[w] : &other;

					if (w >= KNOWN)
						ww_conv_columns(at, g, t, col0 + w);
					slab = ww_conv_plane(g, t, plane, row0 + h, at, slab);
				}
		}
}

/* The offset table of one phase; returns its length. */
WW_FN long long ww_conv_offsets(const struct ww_conv_geo *g, const struct ww_conv_tile *t, long long phase, int *off)
{
	const long long fw = g->transposed ? g->sw : 1, pw = g->transposed ? 1 : g->sw, plane = t->sr * t->sc;
	struct ww_conv_taps th, tw;
	long long n = 0;

	ww_conv_dim(&th, g->transposed, g->kh, g->sh, g->dh, phase / fw);
	ww_conv_dim(&tw, g->transposed, g->kw, g->sw, g->dw, phase % fw);
	for (long long c = 0; c < g->c * g->kd; c++)
		for (int r = 0; r < th.count; r++)
			for (int s = 0; s < tw.count; s++)
				off[n++] = (int)((c * t->planes + th.plane[r] * pw + tw.plane[s]) * plane + th.shift[r] * t->sc +
					tw.shift[s]);
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
		long long skip = (i - u0) & 1; /* an odd start: one by itself, then pairs */

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

/* The results of one panel's channels, phase by phase in res (row length npr), woven into rows and emitted. */
WW_FN void ww_conv_finish(const struct ww_conv_geo *g, const struct ww_conv_tile *t, long long panel, int mr,
	const float *res, long long npr, float *flat, ww_conv_epi_fn epi, const void *ctx)
{
	const long long fh = g->transposed ? g->sh : 1, fw = g->transposed ? g->sw : 1;
	const long long uh = g->transposed ? g->ph : 0, uw = g->transposed ? g->pw : 0; /* phase coordinate = pixel + u */
	const long long y0 = ww_max_ll(0, t->a0 * fh - uh), y1 = ww_min_ll(g->oh, (t->a0 + t->rows) * fh - uh);
	const long long x0 = ww_max_ll(0, t->b0 * fw - uw), x1 = ww_min_ll(g->ow, (t->b0 + t->cols) * fw - uw);
	const int whole = x0 == 0 && x1 == g->ow;

	for (int i = 0; i < mr && panel * mr + i < g->k; i++) {
		const long long chan = t->group * g->k + panel * mr + i, base = t->od * g->oh * g->ow;
		float *at = flat;

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

/* The same for `left` pixels, which may be fewer than nv vectors. */
WW_FN void ww_conv_pixels(int mr, int nv, long long left, const float *a, const float *slab, const int *off,
	long long taps, float *c, long long ldc)
{
	if (left <= WW_VL)
		ww_conv_micro(mr, 1, a, slab, off, taps, c, ldc);
	else if (left <= 2 * WW_VL)
		ww_conv_micro(mr, 2, a, slab, off, taps, c, ldc);
	else if (nv > 4 && left <= 4 * WW_VL)
		ww_conv_micro(mr, 4, a, slab, off, taps, c, ldc);
	else
		ww_conv_micro(mr, nv, a, slab, off, taps, c, ldc);
}

WW_FN void ww_conv_block(const struct ww_block *b, const struct ww_conv_geo *g, int mr, int nv, const float *x,
	const float *packed, ww_conv_epi_fn epi, const void *ctx)
{
	const long long fh = g->transposed ? g->sh : 1, fw = g->transposed ? g->sw : 1, nr = nv * WW_VL;
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

	res = slab + g->c * g->kd * t.planes * t.sr * t.sc + WW_CONV_SLACK; /* vectors may start at the last pixel */
	flat = res + fh * fw * mr * npr;
	off = (int *)(void *)(flat + (t.rows * fh) * (t.cols * fw) + WW_CONV_SLACK);
	ww_conv_slab(g, &t, x, slab);
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
			for (long long i = 0; i < npix; i += nr)
				ww_conv_pixels(mr, nv, npix - i, w + p * mr * taps, slab + i, o, taps, res + f * mr * npr + i, npr);
			o += taps;
			w += panels * mr * taps;
		}
		ww_conv_finish(g, &t, p, mr, res, npr, flat, epi, ctx);
	}
}

/* Arguments: the geometry, x, packed.  Grid: x over output depth times tiles, y over images times groups. */
#define WW_CONV_ARGS (WW_CONV_GEO + 2)
WW_FN void ww_cpu_conv(const struct ww_block *b, void *const *arg, ww_conv_epi_fn epi, const void *ctx)
{
	struct ww_conv_geo g;
	const float *x = WW_ARG(const float *, WW_CONV_GEO), *packed = WW_ARG(const float *, WW_CONV_GEO + 1);

	ww_conv_geometry(&g, arg);
	if (g.k < 4)
		ww_conv_block(b, &g, 1, 8, x, packed, epi, ctx);
	else
		ww_conv_block(b, &g, WW_MR, WW_NV, x, packed, epi, ctx);
}

#endif
