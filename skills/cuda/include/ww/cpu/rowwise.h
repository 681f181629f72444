/* rowwise.h - operators along the innermost dimension: softmax, norms, sums, cross-entropy.
 *
 * The tensor is seen as rows x cols.  A row is read from DRAM once: the first pass runs the load functor (the fused
 * prologue), leaves the row in this thread's scratch (L1 or L2) and gathers the first statistic; later passes work on
 * the scratch; the last hands vectors to the store functor (the fused epilogue), which should stream them out.
 *
 * Functors:
 *     ww_vf load(const void *ctx, long long r, long long i, int n)             elements i .. i+n-1 of row r
 *     void  store(const void *ctx, long long r, long long i, ww_vf v, int n)   the result for the same elements
 *     void  done(const void *ctx, long long r, float a, float c)               a row's statistics (reductions)
 *
 * Skeletons, each a whole launch:
 *     ww_cpu_softmax, ww_cpu_log_softmax   v = softmax(row), log_softmax(row)
 *     ww_cpu_layernorm, ww_cpu_rmsnorm     v = (x - mean) rstd, v = x rstd; affine parts belong to the store functor
 *     ww_cpu_groupnorm                     layernorm over rows of chans x pixels; the store functor is told the channel
 *     ww_cpu_row_reduce                    done(r, sum | max | min | product, its column for max and min)
 *     ww_cpu_row_moments                   done(r, mean, sum of squared deviations)
 *     ww_cpu_cross_entropy                 done(r, log sum exp - x[target], log sum exp)
 *     ww_cpu_rows                          anything else: a function of your own for each row, built from the passes
 *                                          ww_row_*() below
 *
 * Sums are kept in WW_VL * 4 lanes and added to a double every few thousand elements, so that long rows lose no
 * precision.
 *
 * Scratch in rows of cols floats, rounded up to whole cache lines: softmax 3; layernorm, rmsnorm 2; log_softmax,
 * groupnorm 1; the others none.  (Rows beyond some 50,000 elements spill to L3.) */
#ifndef WW_CPU_ROWWISE_H
#define WW_CPU_ROWWISE_H

typedef ww_vf (*ww_row_load_fn)(const void *ctx, long long r, long long i, int n);
typedef void (*ww_row_store_fn)(const void *ctx, long long r, long long i, ww_vf v, int n);
typedef void (*ww_row_done_fn)(const void *ctx, long long r, float a, float c);
typedef void (*ww_row_fn)(const void *ctx, long long r, float *scratch);

/* Arguments of every skeleton here: i64 rows, cols, rows a block.  Grid: x over blocks of rows. */
#define WW_ROWS_ARGS 3
#define WW_ROWS_COLS(arg) WW_ARG(long long, 1)
#define WW_ROWS_FROM(b, arg) ((b)->x * WW_ARG(long long, 2))
#define WW_ROWS_TO(b, arg) ww_min_ll(WW_ARG(long long, 0), ((b)->x + 1) * WW_ARG(long long, 2))

enum ww_op { WW_OP_SUM, WW_OP_MAX, WW_OP_MIN, WW_OP_PROD };

/* The neutral element, and the step; max and min keep NaN. */
WW_FN float ww_op_zero(enum ww_op op)
{
	return op == WW_OP_SUM ? 0.0f : op == WW_OP_PROD ? 1.0f : op == WW_OP_MAX ? -WW_INF : WW_INF;
}
WW_FN ww_vf ww_op_step(enum ww_op op, ww_vf a, ww_vf v)
{
	return op == WW_OP_SUM ? a + v
		: op == WW_OP_PROD ? a * v
		: op == WW_OP_MAX  ? ww_vf_maxnan(a, v)
						   : ww_vf_minnan(a, v);
}
WW_FN double ww_op_lanes(enum ww_op op, ww_vf v)
{
	return op == WW_OP_SUM ? (double)ww_vf_sum(v)
		: op == WW_OP_PROD ? (double)ww_vf_hprod(v)
		: op == WW_OP_MAX  ? (double)ww_vf_hmax(v)
						   : (double)ww_vf_hmin(v);
}
#if defined(WW_AVX512)
/* Of a and b (w: 8, 4, 2, 1) groups of w lanes, by turns; hi: the w lanes behind each. */
WW_FN ww_vf ww_groups(ww_vf a, ww_vf b, int w, int hi)
{
	const ww_vi l = ww_vi_iota();
	const ww_vi at = (l & ww_vi_set(-2 * w)) | (l & ww_vi_set(w - 1)) | ((l & ww_vi_set(w)) * (16 / w));

	return (ww_vf)_mm512_permutex2var_ps((__m512)a, (__m512i)(at + ww_vi_set(hi ? w : 0)), (__m512)b);
}
/* t[0] to t[w - 1]: each with the one w vectors behind it, half as many lanes to a row. */
WW_FN void ww_halve(enum ww_op op, ww_vf *t, int w)
{
	WW_UNROLL(8)
	for (int i = 0; i < w; i++)
		t[i] = ww_op_step(op, ww_groups(t[i], t[i + w], w, 0), ww_groups(t[i], t[i + w], w, 1));
}
#else
/* The same by shuffles of two vectors. */
#define WW_ACROSS_ROUND(op, t, w, LO, HI) \
	WW_UNROLL(4) \
	for (int i_ = 0; i_ < (w); i_++) \
		t[i_] = ww_op_step(op, LO(t[i_], t[i_ + (w)]), HI(t[i_], t[i_ + (w)]));
#endif
/* Lane i: all lanes of v[i], of WW_VL vectors. */
WW_FN ww_vf ww_vf_across(enum ww_op op, const ww_vf *v)
{
#if defined(WW_AVX512)
	ww_vf t[WW_VL];

	WW_UNROLL(16)
	for (int i = 0; i < WW_VL; i++)
		t[i] = v[i];
	ww_halve(op, t, 8);
	ww_halve(op, t, 4);
	ww_halve(op, t, 2);
	ww_halve(op, t, 1);
	return t[0];
#else
	ww_vf t[WW_VL];

	WW_UNROLL(8)
	for (int i = 0; i < WW_VL; i++)
		t[i] = v[i];
#if WW_VL == 8
	WW_ACROSS_ROUND(op, t, 4, WW_SHUF_LO4, WW_SHUF_HI4)
#endif
	WW_ACROSS_ROUND(op, t, 2, WW_SHUF_LO2, WW_SHUF_HI2)
	WW_ACROSS_ROUND(op, t, 1, WW_SHUF_LO1, WW_SHUF_HI1)
	return t[0];
#endif
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

#define WW_ROW_CHUNK (64 * 4 * WW_VL)	/* elements between two flushes into a double */

/* A store that a pass does along with its own work: store((s[i] - a) * c) for another row, r. */
struct ww_row_put {
	const float *s;
	float a, c;
	ww_row_store_fn store;
	long long r;
};
WW_FN void ww_row_put_step(const struct ww_row_put *p, const void *ctx, long long i, int n)
{
	p->store(ctx, p->r, i, (ww_vf_load(p->s + i, n) - p->a) * p->c, n);
}

/* One pass over row r: returns the reduction of load(); with keep != NULL the loaded values are left there; with put !=
 * NULL the finished row before it is stored on the way.  One loop keeps loads and stores in flight together; in
 * separate loops the memory would be half idle. */
WW_FN float ww_row_pass_put(enum ww_op op, ww_row_load_fn load, const void *ctx, long long r, long long cols,
	float *keep, const struct ww_row_put *put)
{
	double total = (double)ww_op_zero(op);
	long long i = 0;

	while (i < cols) {
		const long long end = ww_min_ll(cols, i + WW_ROW_CHUNK);
		ww_vf a[4];

		for (int j = 0; j < 4; j++)
			a[j] = ww_vf_set(ww_op_zero(op));
		for (; i + 4 * WW_VL <= end; i += 4 * WW_VL) {
			WW_UNROLL(4)
			for (int j = 0; j < 4; j++) {
				const ww_vf v = load(ctx, r, i + j * WW_VL, WW_VL);

				if (put)
					ww_row_put_step(put, ctx, i + j * WW_VL, WW_VL);
				if (keep)
					ww_vf_store(keep + i + j * WW_VL, v, WW_VL);
				a[j] = ww_op_step(op, a[j], v);
			}
		}
		for (; i < end; i += WW_VL) {
			const int n = (int)ww_min_ll(WW_VL, end - i);
			const ww_vf v = load(ctx, r, i, n);

			if (put)
				ww_row_put_step(put, ctx, i, n);
			if (keep)
				ww_vf_store(keep + i, v, n);
			a[0] = ww_op_step(op, a[0], ww_vf_fill(v, n, ww_op_zero(op)));
		}
		i = end;
		a[0] = ww_op_step(op, ww_op_step(op, a[0], a[1]), ww_op_step(op, a[2], a[3]));
		if (op == WW_OP_SUM)
			total += ww_op_lanes(op, a[0]);
		else if (op == WW_OP_PROD)
			total *= ww_op_lanes(op, a[0]);
		else
			total = ww_op_lanes(op, ww_op_step(op, a[0], ww_vf_set((float)total)));
	}
	return (float)total;
}

WW_FN float ww_row_pass(enum ww_op op, ww_row_load_fn load, const void *ctx, long long r, long long cols, float *keep)
{
	return ww_row_pass_put(op, load, ctx, r, cols, keep, NULL);
}

/* The reduction alone. */
WW_FN float ww_row_reduce(enum ww_op op, ww_row_load_fn load, const void *ctx, long long r, long long cols)
{
	return ww_row_pass(op, load, ctx, r, cols, NULL);
}

/* Contexts and functors of the passes over scratch. */
struct ww_row_buf {
	float *s;
	float a, c;
};
WW_FN ww_vf ww_buf_load(const void *ctx, long long r, long long i, int n)
{
	(void)r;
	return ww_vf_load(((const struct ww_row_buf *)ctx)->s + i, n);
}
WW_FN ww_vf ww_buf_dev2(const void *ctx, long long r, long long i, int n) /* (s - a)^2 */
{
	const struct ww_row_buf *c = ctx;
	const ww_vf d = ww_vf_load(c->s + i, n) - c->a;

	(void)r;
	return d * d;
}
WW_FN ww_vf ww_buf_exp(const void *ctx, long long r, long long i, int n) /* exp(s - a) */
{
	const struct ww_row_buf *c = ctx;

	(void)r;
	return ww_vf_exp(ww_vf_load(c->s + i, n) - c->a);
}

/* Sum of squared deviations from `mean` of the row in s. */
WW_FN float ww_row_dev2(const float *s, float mean, long long cols)
{
	const struct ww_row_buf c = { (float *)s, mean, 0 };

	return ww_row_reduce(WW_OP_SUM, ww_buf_dev2, &c, 0, cols);
}
/* Sum of exp(s - max); with keep, the exponentials replace s. */
WW_FN float ww_row_exp_sum(float *s, float max, long long cols, int keep)
{
	const struct ww_row_buf c = { s, max, 0 };

	return ww_row_pass(WW_OP_SUM, ww_buf_exp, &c, 0, cols, keep ? s : NULL);
}
/* store((s - a) * c) for the row in s. */
WW_FN void ww_row_put(
	const float *s, float a, float c, long long cols, ww_row_store_fn store, const void *ctx, long long r)
{
	const struct ww_row_put put = { s, a, c, store, r };
	long long i = 0;

	for (; i + 2 * WW_VL <= cols; i += 2 * WW_VL) {
		ww_row_put_step(&put, ctx, i, WW_VL);
		ww_row_put_step(&put, ctx, i + WW_VL, WW_VL);
	}
	for (; i < cols; i += WW_VL)
		ww_row_put_step(&put, ctx, i, (int)ww_min_ll(WW_VL, cols - i));
}

/* max + log(sum exp(x - max)) of a row that is read once: by chunks that stay in L1, rescaling when the maximum grows.
 */
WW_FN float ww_row_lse(ww_row_load_fn load, const void *ctx, long long r, long long cols)
{
	float max = -WW_INF;
	double sum = 0;
	float s[8 * 4 * WW_VL] __attribute__((aligned(64)));
	const long long chunk = 8 * 4 * WW_VL;

	for (long long i = 0; i < cols; i += chunk) {
		const long long end = ww_min_ll(cols, i + chunk);
		ww_vf m0 = ww_vf_set(max), m1 = m0, a0 = ww_vf_zero(), a1 = a0;
		float old = max;
		long long j = i;

		for (; j + 2 * WW_VL <= end; j += 2 * WW_VL) {
			const ww_vf v0 = load(ctx, r, j, WW_VL), v1 = load(ctx, r, j + WW_VL, WW_VL);

			ww_vf_store(s + (j - i), v0, WW_VL);
			ww_vf_store(s + (j - i) + WW_VL, v1, WW_VL);
			m0 = ww_vf_max(m0, v0);
			m1 = ww_vf_max(m1, v1);
		}
		for (; j < end; j += WW_VL) {
			const ww_vf v = ww_vf_fill(
				load(ctx, r, j, (int)ww_min_ll(WW_VL, end - j)), (int)ww_min_ll(WW_VL, end - j), -WW_INF);

			ww_vf_store(s + (j - i), v, WW_VL);
			m0 = ww_vf_max(m0, v);
		}
		max = ww_vf_hmax(ww_vf_maxnan(m0, m1));
		if (max == -WW_INF)
			continue;
		if (max > old)
			sum *= __builtin_exp((double)old - (double)max);
		for (j = 0; j + 2 * WW_VL <= end - i; j += 2 * WW_VL) {
			a0 += ww_vf_exp(ww_vf_load(s + j, WW_VL) - max);
			a1 += ww_vf_exp(ww_vf_load(s + j + WW_VL, WW_VL) - max);
		}
		for (; j < end - i; j += WW_VL)
			a0 += ww_vf_exp(ww_vf_load(s + j, WW_VL) - max);
		sum += (double)ww_vf_sum(a0 + a1);
	}
	return max == -WW_INF || max == WW_INF ? max : max + (float)__builtin_log(sum);
}

/* ---- Skeletons --------------------------------------------------------------------------------------------------- */

WW_FN void ww_cpu_rows(const struct ww_block *b, void *const *arg, ww_row_fn row, const void *ctx)
{
	const long long to = WW_ROWS_TO(b, arg);

	for (long long r = WW_ROWS_FROM(b, arg); r < to; r++)
		row(ctx, r, b->shared);
}

/* Row buffers: rows of scratch, each a whole number of cache lines and 17 more, so that the same column of two buffers
 * does not have the same address modulo 4096 (loads would wait for stores that they only seem to overlap). */
WW_FN float *ww_row_buffer(const struct ww_block *b, long long cols, int i)
{
	return (float *)b->shared + i * (WW_CDIV(cols, 16) * 16 + 17 * 16);
}

/* Three rows are in work at once: while row r is exponentiated, row r+1 is read and row r-1 stored, so that the
 * memory works all the time and the arithmetic hides behind it.  Returns the sum of row r, and in *max the maximum of
 * row r+1. */
struct ww_softmax_step {
	float *before, *now, *after;
	float scale, max;
};
WW_FN float ww_softmax_pass(const struct ww_softmax_step *p, long long cols, long long r, int has_before, int has_after,
	ww_row_load_fn load, ww_row_store_fn store, const void *ctx, float *max)
{
	const struct ww_row_put put = { p->before, 0.0f, p->scale, store, r - 1 };
	double total = 0;
	ww_vf m[2] = { ww_vf_set(-WW_INF), ww_vf_set(-WW_INF) };
	long long i = 0;

	while (i < cols) {
		const long long end = ww_min_ll(cols, i + WW_ROW_CHUNK);
		ww_vf a[2] = { ww_vf_zero(), ww_vf_zero() };

		for (; i + 2 * WW_VL <= end; i += 2 * WW_VL) {
			WW_UNROLL(2)
			for (int j = 0; j < 2; j++) {
				const long long at = i + j * WW_VL;
				const ww_vf v = has_after ? load(ctx, r + 1, at, WW_VL) : ww_vf_zero();
				const ww_vf e = ww_vf_exp(ww_vf_load(p->now + at, WW_VL) - p->max);

				if (has_before)
					ww_row_put_step(&put, ctx, at, WW_VL);
				if (has_after)
					ww_vf_store(p->after + at, v, WW_VL);
				ww_vf_store(p->now + at, e, WW_VL);
				m[j] = ww_vf_max(m[j], v);
				a[j] += e;
			}
		}
		for (; i < end; i += WW_VL) {
			const int n = (int)ww_min_ll(WW_VL, end - i);
			const ww_vf v = has_after ? load(ctx, r + 1, i, n) : ww_vf_zero();
			const ww_vf e = ww_vf_exp(ww_vf_load(p->now + i, n) - p->max);

			if (has_before)
				ww_row_put_step(&put, ctx, i, n);
			if (has_after)
				ww_vf_store(p->after + i, v, n);
			ww_vf_store(p->now + i, e, n);
			m[0] = ww_vf_max(m[0], ww_vf_fill(v, n, -WW_INF));
			a[0] += ww_vf_fill(e, n, 0.0f);
		}
		i = end;
		total += (double)ww_vf_sum(a[0] + a[1]);
	}
	*max = ww_vf_hmax(ww_vf_maxnan(m[0], m[1]));
	return (float)total;
}

WW_FN void ww_cpu_softmax(
	const struct ww_block *b, void *const *arg, ww_row_load_fn load, ww_row_store_fn store, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), from = WW_ROWS_FROM(b, arg), to = WW_ROWS_TO(b, arg);
	struct ww_softmax_step p = { ww_row_buffer(b, cols, 0), ww_row_buffer(b, cols, 1), ww_row_buffer(b, cols, 2), 0,
		0 };

	if (from >= to)
		return;
	p.max = ww_row_pass(WW_OP_MAX, load, ctx, from, cols, p.now);
	for (long long r = from; r < to; r++) {
		float *free = p.before, max;
		const float sum = r > from && r + 1 < to ? ww_softmax_pass(&p, cols, r, 1, 1, load, store, ctx, &max)
			: r + 1 < to                         ? ww_softmax_pass(&p, cols, r, 0, 1, load, store, ctx, &max)
			: r > from                           ? ww_softmax_pass(&p, cols, r, 1, 0, load, store, ctx, &max)
												 : ww_softmax_pass(&p, cols, r, 0, 0, load, store, ctx, &max);

		p = (struct ww_softmax_step){ p.now, p.after, free, 1.0f / sum, max };
	}
	ww_row_put(p.before, 0.0f, p.scale, cols, store, ctx, to - 1);
}

/* Of a row whose largest number is far above the others the logarithm of the sum may be less than a unit of that
 * number: it is taken from the difference. */
struct ww_row_less {
	float log;
	ww_row_store_fn store;
	const void *ctx;
};
WW_FN void ww_row_less(const void *ctx, long long r, long long i, ww_vf v, int n)
{
	const struct ww_row_less *c = ctx;

	c->store(c->ctx, r, i, v - c->log, n);
}

WW_FN void ww_cpu_log_softmax(
	const struct ww_block *b, void *const *arg, ww_row_load_fn load, ww_row_store_fn store, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), to = WW_ROWS_TO(b, arg);
	float *s = b->shared;

	for (long long r = WW_ROWS_FROM(b, arg); r < to; r++) {
		const float max = ww_row_pass(WW_OP_MAX, load, ctx, r, cols, s);
		const struct ww_row_less less = { (float)__builtin_log((double)ww_row_exp_sum(s, max, cols, 0)), store, ctx };

		ww_row_put(s, max, 1.0f, cols, ww_row_less, &less, r);
	}
}

/* v = (x - mean) / sqrt(var + eps), var with divisor cols.  Row r is stored by the pass that reads row r+1. */
WW_FN void ww_cpu_layernorm(
	const struct ww_block *b, void *const *arg, float eps, ww_row_load_fn load, ww_row_store_fn store, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), from = WW_ROWS_FROM(b, arg), to = WW_ROWS_TO(b, arg);
	float *s = ww_row_buffer(b, cols, 0), *t = ww_row_buffer(b, cols, 1), *free, mean;

	if (from >= to)
		return;
	mean = ww_row_pass(WW_OP_SUM, load, ctx, from, cols, s) / (float)cols;
	for (long long r = from; r < to; r++) {
		const float var = ww_row_dev2(s, mean, cols) / (float)cols;
		const struct ww_row_put put = { s, mean, 1.0f / __builtin_sqrtf(var + eps), store, r };

		if (r + 1 < to)
			mean = ww_row_pass_put(WW_OP_SUM, load, ctx, r + 1, cols, t, &put) / (float)cols;
		else
			ww_row_put(put.s, put.a, put.c, cols, store, ctx, r);
		free = s;
		s = t;
		t = free;
	}
}

/* The context of a load functor that squares what another one loaded, and keeps it.  (The other functors of the pass
 * get this context too, and pass the user's on.) */
struct ww_row_rms {
	ww_row_load_fn load;
	ww_row_store_fn store;
	const void *ctx;
	float *keep;
};
WW_FN ww_vf ww_rms_load(const void *ctx, long long r, long long i, int n)
{
	const struct ww_row_rms *c = ctx;
	const ww_vf v = c->load(c->ctx, r, i, n);

	ww_vf_store(c->keep + i, v, n);
	return v * v;
}
WW_FN void ww_rms_store(const void *ctx, long long r, long long i, ww_vf v, int n)
{
	const struct ww_row_rms *c = ctx;

	c->store(c->ctx, r, i, v, n);
}

/* v = x / sqrt(mean(x^2) + eps). */
WW_FN void ww_cpu_rmsnorm(
	const struct ww_block *b, void *const *arg, float eps, ww_row_load_fn load, ww_row_store_fn store, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), from = WW_ROWS_FROM(b, arg), to = WW_ROWS_TO(b, arg);
	struct ww_row_rms q = { load, store, ctx, ww_row_buffer(b, cols, 0) };
	float *t = ww_row_buffer(b, cols, 1), *s, ms;

	if (from >= to)
		return;
	ms = ww_row_reduce(WW_OP_SUM, ww_rms_load, &q, from, cols) / (float)cols;
	for (long long r = from; r < to; r++) {
		const struct ww_row_put put = { q.keep, 0.0f, 1.0f / __builtin_sqrtf(ms + eps), ww_rms_store, r };

		s = q.keep;
		q.keep = t;
		t = s;
		if (r + 1 < to)
			ms = ww_row_pass_put(WW_OP_SUM, ww_rms_load, &q, r + 1, cols, NULL, &put) / (float)cols;
		else
			ww_row_put(put.s, put.a, put.c, cols, store, ctx, r);
	}
}

/* Rows are chans x pixels (cols = chans * pixels); the store functor gets the channel c within the row and the pixel i:
 *     void store(const void *ctx, long long r, long long c, long long i, ww_vf v, int n) */
typedef void (*ww_group_store_fn)(const void *ctx, long long r, long long c, long long i, ww_vf v, int n);
WW_FN void ww_cpu_groupnorm(const struct ww_block *b, void *const *arg, long long chans, float eps, ww_row_load_fn load,
	ww_group_store_fn store, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), to = WW_ROWS_TO(b, arg), pixels = cols / chans;
	float *s = b->shared;

	for (long long r = WW_ROWS_FROM(b, arg); r < to; r++) {
		const float mean = ww_row_pass(WW_OP_SUM, load, ctx, r, cols, s) / (float)cols;
		const float rstd = 1.0f / __builtin_sqrtf(ww_row_dev2(s, mean, cols) / (float)cols + eps);

		for (long long c = 0; c < chans; c++)
			for (long long i = 0; i < pixels; i += WW_VL) {
				const int n = (int)ww_min_ll(WW_VL, pixels - i);

				store(ctx, r, c, i, (ww_vf_load(s + c * pixels + i, n) - mean) * rstd, n);
			}
	}
}

/* done(r, reduction, column of the first maximum or minimum; 0 for sums and products). */
WW_FN void ww_cpu_row_reduce(const struct ww_block *b, void *const *arg, enum ww_op op, int want_index,
	ww_row_load_fn load, ww_row_done_fn done, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), to = WW_ROWS_TO(b, arg);

	for (long long r = WW_ROWS_FROM(b, arg); r < to; r++) {
		const float v = ww_row_reduce(op, load, ctx, r, cols);
		long long at = 0;

		for (long long i = 0; want_index && i < cols; i += WW_VL) {
			const int n = (int)ww_min_ll(WW_VL, cols - i);
			const ww_vf x = load(ctx, r, i, n);

			for (int j = 0; j < n; j++)
				if (x[j] == v || (v != v && x[j] != x[j])) {
					at = i + j;
					i = cols;
					break;
				}
		}
		done(ctx, r, v, (float)at);
	}
}

/* done(r, mean, sum of squared deviations), the row read once (chunks in L1, merged pairwise). */
WW_FN void ww_cpu_row_moments(
	const struct ww_block *b, void *const *arg, ww_row_load_fn load, ww_row_done_fn done, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), to = WW_ROWS_TO(b, arg), chunk = 32 * WW_VL;
	float s[32 * WW_VL] __attribute__((aligned(64)));

	for (long long r = WW_ROWS_FROM(b, arg); r < to; r++) {
		double mean = 0, m2 = 0;

		for (long long i = 0; i < cols; i += chunk) {
			const long long len = ww_min_ll(chunk, cols - i);
			ww_vf a = ww_vf_zero(), q = a;
			double m, d;

			for (long long j = 0; j < len; j += WW_VL) {
				const int n = (int)ww_min_ll(WW_VL, len - j);
				const ww_vf v = ww_vf_fill(load(ctx, r, i + j, n), n, 0.0f);

				ww_vf_store(s + j, v, WW_VL);
				a += v;
			}
			m = ww_vf_sum_f64(a) / (double)len;
			for (long long j = 0; j < len; j += WW_VL) {
				const int n = (int)ww_min_ll(WW_VL, len - j);
				const ww_vf v = ww_vf_fill(ww_vf_load(s + j, WW_VL) - (float)m, n, 0.0f);

				q += v * v;
			}
			d = m - mean;
			mean += d * (double)len / (double)(i + len);
			m2 += (double)ww_vf_sum(q) + d * d * (double)i * (double)len / (double)(i + len);
		}
		done(ctx, r, (float)mean, (float)m2);
	}
}

/* Loss of each row against its class: done(r, lse - x[target[r]], lse).  A target outside 0..cols-1 (the ignored index)
 * gives done(r, 0, lse). */
WW_FN void ww_cpu_cross_entropy(const struct ww_block *b, void *const *arg, const int64_t *target, ww_row_load_fn load,
	ww_row_done_fn done, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), to = WW_ROWS_TO(b, arg);

	for (long long r = WW_ROWS_FROM(b, arg); r < to; r++) {
		const float lse = ww_row_lse(load, ctx, r, cols);
		const int64_t t = target[r];

		done(ctx, r, t >= 0 && t < cols ? lse - load(ctx, r, t, 1)[0] : 0.0f, lse);
	}
}

#endif
