/* scan.h - cumulative sums, products, maxima and minima.
 *
 *     ww_cpu_scan_row   along the innermost dimension: prefix within the vector by log2(WW_VL) shifted additions, and a
 *                       running total in double precision.  Only one scalar addition per vector lies on the critical
 *                       path, because the vector's own total does not wait for the carry.
 *     ww_cpu_scan_mid   (outer, mid, inner) along mid: vectors lie along inner, the carry is a vector of two floats
 *                       (the sum and what rounding took from it).
 * Maxima and minima propagate NaN.
 *
 * Functors as in rowwise.h: load(ctx, r, i, n), store(ctx, r, i, v, n); for scan_mid load(ctx, o, m, i, n) and
 * store(ctx, o, m, i, v, n), since an index in two parts needs no division. */
#ifndef WW_CPU_SCAN_H
#define WW_CPU_SCAN_H

/* The largest or smallest so far within the vector. */
WW_FN ww_vf ww_prefix_most(enum ww_op op, ww_vf v)
{
#if defined(WW_AVX512)
	const __m512i none = (__m512i)ww_vf_set(ww_op_zero(op));

	v = ww_op_step(op, (ww_vf)_mm512_alignr_epi32((__m512i)v, none, 15), v);
	v = ww_op_step(op, (ww_vf)_mm512_alignr_epi32((__m512i)v, none, 14), v);
	v = ww_op_step(op, (ww_vf)_mm512_alignr_epi32((__m512i)v, none, 12), v);
	v = ww_op_step(op, (ww_vf)_mm512_alignr_epi32((__m512i)v, none, 8), v);
#else
	v = ww_op_step(op, WW_LANES_UP1(v, v), v);
	v = ww_op_step(op, WW_LANES_UP2(v, v), v);
#if WW_VL == 8
	v = ww_op_step(op, WW_LANES_UP4(v, v), v);
#endif
#endif
	return v;
}

WW_FN double ww_scan_step(enum ww_op op, long long r, long long i, int n, double carry, ww_row_load_fn load,
	ww_row_store_fn store, const void *ctx)
{
	const int prod = op == WW_OP_PROD;
	const ww_vf x = ww_vf_fill(load(ctx, r, i, n), n, ww_op_zero(op));
	ww_vf p;

	if (op == WW_OP_MAX || op == WW_OP_MIN) {
		p = ww_op_step(op, ww_vf_set((float)carry), ww_prefix_most(op, x));
		store(ctx, r, i, p, n);
		return (double)p[WW_VL - 1];
	}
	p = prod ? ww_vf_prefix_prod(x) : ww_vf_prefix_sum(x);
	store(ctx, r, i, prod ? p * (float)carry : p + (float)carry, n);
	return prod ? carry * (double)p[WW_VL - 1] : carry + (double)p[WW_VL - 1];
}

/* Arguments and grid of rowwise.h. */
WW_FN void ww_cpu_scan_row(const struct ww_block *b, void *const *arg, enum ww_op op, ww_row_load_fn load,
	ww_row_store_fn store, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), to = WW_ROWS_TO(b, arg);

	for (long long r = WW_ROWS_FROM(b, arg); r < to; r++) {
		double carry = (double)ww_op_zero(op);
		long long i = 0;

		for (; i + 2 * WW_VL <= cols; i += 2 * WW_VL) {
			carry = ww_scan_step(op, r, i, WW_VL, carry, load, store, ctx);
			carry = ww_scan_step(op, r, i + WW_VL, WW_VL, carry, load, store, ctx);
		}
		for (; i + WW_VL <= cols; i += WW_VL)
			carry = ww_scan_step(op, r, i, WW_VL, carry, load, store, ctx);
		if (i < cols)
			ww_scan_step(op, r, i, (int)(cols - i), carry, load, store, ctx);
	}
}

typedef ww_vf (*ww_mid_load_fn)(const void *ctx, long long o, long long m, long long i, int n);
typedef void (*ww_mid_store_fn)(const void *ctx, long long o, long long m, long long i, ww_vf v, int n);

/* Add x to what a column has so far. */
WW_FN void ww_scan_add(enum ww_op op, ww_vf x, ww_vf *sum, ww_vf *lost)
{
	if (op != WW_OP_SUM) {
		*sum = ww_op_step(op, *sum, x);
	} else {
		const ww_vf y = x - *lost, t = *sum + y;

		*lost = (t - *sum) - y;
		*sum = t;
	}
}

/* `nv` (constant) vectors side by side through all of mid, their sums in registers. */
WW_FN void ww_scan_strip(int nv, long long mid, long long o, long long i, int n, enum ww_op op, ww_mid_load_fn load,
	ww_mid_store_fn store, const void *ctx)
{
	ww_vf sum[4], lost[4];

	for (int v = 0; v < nv; v++) {
		sum[v] = ww_vf_set(ww_op_zero(op));
		lost[v] = ww_vf_zero();
	}
	for (long long m = 0; m < mid; m++)
		WW_UNROLL(4)
	for (int v = 0; v < nv; v++) {
		ww_scan_add(op, load(ctx, o, m, i + v * WW_VL, n), &sum[v], &lost[v]);
		store(ctx, o, m, i + v * WW_VL, sum[v], n);
	}
}

/* Arguments: i64 outer, mid, inner, columns a block.  Grid: x over column tiles, y over outer.  A few vectors stay in
 * registers; wider tiles are walked row by row, which is how memory lies, with the sums in L1. */
#define WW_SCAN_MID_ARGS 4
#define WW_SCAN_MID_TILE (32 * WW_VL)
WW_FN void ww_cpu_scan_mid(const struct ww_block *b, void *const *arg, enum ww_op op, ww_mid_load_fn load,
	ww_mid_store_fn store, const void *ctx)
{
	const long long mid = WW_ARG(long long, 1), inner = WW_ARG(long long, 2), cols = WW_ARG(long long, 3);
	const long long end = ww_min_ll(inner, (b->x + 1) * cols);
	long long i = b->x * cols;

	for (; i + 8 * WW_VL <= end; i = ww_min_ll(i + WW_SCAN_MID_TILE, end / WW_VL * WW_VL)) {
		const int tile = (int)(ww_min_ll(end - i, WW_SCAN_MID_TILE) / WW_VL);
		ww_vf sum[WW_SCAN_MID_TILE / WW_VL], lost[WW_SCAN_MID_TILE / WW_VL];

		for (int v = 0; v < tile; v++) {
			sum[v] = ww_vf_set(ww_op_zero(op));
			lost[v] = ww_vf_zero();
		}
		for (long long m = 0; m < mid; m++)
			for (int v = 0; v < tile; v++) {
				ww_scan_add(op, load(ctx, b->y, m, i + v * WW_VL, WW_VL), &sum[v], &lost[v]);
				store(ctx, b->y, m, i + v * WW_VL, sum[v], WW_VL);
			}
	}
	for (; i + 2 * WW_VL <= end; i += 2 * WW_VL)
		ww_scan_strip(2, mid, b->y, i, WW_VL, op, load, store, ctx);
	for (; i + WW_VL <= end; i += WW_VL)
		ww_scan_strip(1, mid, b->y, i, WW_VL, op, load, store, ctx);
	if (i < end)
		ww_scan_strip(1, mid, b->y, i, (int)(end - i), op, load, store, ctx);
}

#endif
