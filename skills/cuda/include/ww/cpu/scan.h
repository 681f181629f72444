/* scan.h - cumulative sums, products, maxima and minima.
 *
 *     ww_cpu_scan_row   along the innermost dimension: prefix within the vector by log2(WW_VL) shifted additions, and a
 *                       running total in double precision.  Only one scalar addition per vector lies on the critical
 *                       path, because the vector's own total does not wait for the carry.
 *     ww_cpu_scan_mid   (outer, mid, inner) along mid: vectors lie along inner, the carry is a vector of two floats
 *                       (the sum and what rounding took from it).
 * Maxima and minima hand a NaN on.
 *
 * Functors as in rowwise.h: load(ctx, r, i, n), store(ctx, r, i, v, n); for scan_mid r = outer * mid + m. */
#ifndef WW_CPU_SCAN_H
#define WW_CPU_SCAN_H

/* The largest or smallest so far within the vector. */
WW_FN ww_vf ww_prefix_most(enum ww_op op, ww_vf v)
{
	for (int w = 1; w < WW_VL; w *= 2) {
		ww_vf s = v;

		for (int i = w; i < WW_VL; i++)
			s[i] = v[i - w];
		v = ww_op_step(op, s, v);
	}
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

/* Arguments: i64 outer, mid, inner, columns a block.  Grid: x over column tiles, y over outer. */
#define WW_SCAN_MID_ARGS 4
WW_FN void ww_cpu_scan_mid(const struct ww_block *b, void *const *arg, enum ww_op op, ww_row_load_fn load,
	ww_row_store_fn store, const void *ctx)
{
	const long long mid = WW_ARG(long long, 1), inner = WW_ARG(long long, 2), cols = WW_ARG(long long, 3);
	const long long end = ww_min_ll(inner, (b->x + 1) * cols);

	for (long long i = b->x * cols; i < end; i += WW_VL) {
		const int n = (int)ww_min_ll(WW_VL, end - i);
		ww_vf sum = ww_vf_set(ww_op_zero(op)), lost = ww_vf_zero();

		for (long long m = 0; m < mid; m++) {
			const ww_vf x = load(ctx, b->y * mid + m, i, n);

			if (op != WW_OP_SUM) {
				sum = ww_op_step(op, sum, x);
			} else {
				const ww_vf y = x - lost, t = sum + y;

				lost = (t - sum) - y;
				sum = t;
			}
			store(ctx, b->y * mid + m, i, sum, n);
		}
	}
}

#endif
