/* reduce.h - reductions over outer and middle dimensions, over everything, and per channel.
 *
 * All are deterministic: the arguments of the launch decide how the work is split, never the order of threads, and a
 * second launch combines partial results in index order.
 *
 *     ww_cpu_reduce_mid    (outer, mid, inner) -> (outer, inner): vectors lie along inner, mid is walked.  Outer
 *                          reductions are the case outer = 1.  For the innermost dimension use ww_cpu_row_reduce().
 *     ww_cpu_reduce_part   everything -> one double for each tile of the flat tensor, into scratch
 *     ww_cpu_reduce_final  those doubles -> one result; a single block
 *     ww_cpu_channel_moments   (outer, chans, inner) -> mean and sum of squared deviations per channel (batch norm)
 *
 * Functors: ww_vf load(ctx, r, i, n) as in rowwise.h, where r = outer * mid + m for reduce_mid (element i of the row
 * r), r = 0 and i flat for reduce_part, r = o * chans + c for channel_moments; void store(ctx, o, i, v, n); void
 * done(ctx, channel or 0, value, second value). */
#ifndef WW_CPU_REDUCE_H
#define WW_CPU_REDUCE_H

/* Walk rows m0 .. m1-1 with V vectors side by side; sums go through a second level every 128 rows. */
WW_FN void ww_reduce_strip(enum ww_op op, int nv, long long r0, long long mid, long long i, int n, ww_row_load_fn load,
	ww_row_store_fn store, const void *ctx, long long o)
{
	ww_vf top[4], acc[4];

	for (int v = 0; v < nv; v++)
		top[v] = ww_vf_set(ww_op_zero(op));
	for (long long m = 0; m < mid;) {
		const long long end = ww_min_ll(mid, m + 128);

		for (int v = 0; v < nv; v++)
			acc[v] = ww_vf_set(ww_op_zero(op));
		for (; m < end; m++) {
			WW_UNROLL(4)
			for (int v = 0; v < nv; v++)
				acc[v] = ww_op_step(op, acc[v], load(ctx, r0 + m, i + v * WW_VL, n));
		}
		for (int v = 0; v < nv; v++)
			top[v] = ww_op_step(op, top[v], acc[v]);
	}
	for (int v = 0; v < nv; v++)
		store(ctx, o, i + v * WW_VL, top[v], n);
}

/* Arguments: i64 outer, mid, inner, columns a block.  Grid: x over column tiles, y over outer. */
#define WW_REDUCE_MID_ARGS 4
WW_FN void ww_cpu_reduce_mid(const struct ww_block *b, void *const *arg, enum ww_op op, ww_row_load_fn load,
	ww_row_store_fn store, const void *ctx)
{
	const long long mid = WW_ARG(long long, 1), inner = WW_ARG(long long, 2), cols = WW_ARG(long long, 3);
	const long long end = ww_min_ll(inner, (b->x + 1) * cols);
	long long i = b->x * cols;

	for (; i + 4 * WW_VL <= end; i += 4 * WW_VL)
		ww_reduce_strip(op, 4, b->y * mid, mid, i, WW_VL, load, store, ctx, b->y);
	for (; i < end; i += WW_VL)
		ww_reduce_strip(op, 1, b->y * mid, mid, i, (int)ww_min_ll(WW_VL, end - i), load, store, ctx, b->y);
}

/* Context that shifts a row functor to the tile. */
struct ww_tile_ctx {
	ww_row_load_fn load;
	const void *ctx;
	long long from;
};
WW_FN ww_vf ww_tile_load(const void *ctx, long long r, long long i, int n)
{
	const struct ww_tile_ctx *c = ctx;

	return c->load(c->ctx, r, c->from + i, n);
}

/* Arguments: i64 total, tile; partial (double *, one a tile).  Grid: x over tiles. */
#define WW_REDUCE_PART_ARGS 3
WW_FN void ww_cpu_reduce_part(
	const struct ww_block *b, void *const *arg, enum ww_op op, ww_row_load_fn load, const void *ctx)
{
	const long long total = WW_ARG(long long, 0), tile = WW_ARG(long long, 1);
	const struct ww_tile_ctx t = { load, ctx, b->x * tile };
	double *part = WW_ARG(double *, 2);

	part[b->x] = (double)ww_row_reduce(op, ww_tile_load, &t, 0, ww_min_ll(tile, total - t.from));
}

/* Arguments: i64 count of partials; partial.  Grid: one block.  done(ctx, 0, result, 0). */
#define WW_REDUCE_FINAL_ARGS 2
WW_FN void ww_cpu_reduce_final(
	const struct ww_block *b, void *const *arg, enum ww_op op, ww_row_done_fn done, const void *ctx)
{
	const long long count = WW_ARG(long long, 0);
	const double *part = WW_ARG(const double *, 1);
	double v = (double)ww_op_zero(op);

	(void)b;
	for (long long i = 0; i < count; i++) {
		if (op == WW_OP_SUM)
			v += part[i];
		else if (op == WW_OP_PROD)
			v *= part[i];
		else if (part[i] != part[i] || (op == WW_OP_MAX ? part[i] > v : part[i] < v))
			v = part[i];
		if (v != v)
			break;
	}
	done(ctx, 0, (float)v, 0.0f);
}

/* Arguments: i64 outer, chans, inner.  Grid: x over channels.  done(ctx, channel, mean, sum of squared deviations). */
#define WW_CHANNEL_ARGS 3
WW_FN void ww_cpu_channel_moments(
	const struct ww_block *b, void *const *arg, ww_row_load_fn load, ww_row_done_fn done, const void *ctx)
{
	const long long outer = WW_ARG(long long, 0), chans = WW_ARG(long long, 1), inner = WW_ARG(long long, 2);
	double mean, m2 = 0, sum = 0;

	for (long long o = 0; o < outer; o++)
		sum += (double)ww_row_reduce(WW_OP_SUM, load, ctx, o * chans + b->x, inner);
	mean = sum / (double)(outer * inner);
	for (long long o = 0; o < outer; o++) {
		const long long r = o * chans + b->x;

		for (long long i = 0; i < inner;) {
			const long long end = ww_min_ll(inner, i + WW_ROW_CHUNK);
			ww_vf q = ww_vf_zero();

			for (; i + WW_VL <= end; i += WW_VL) {
				const ww_vf d = load(ctx, r, i, WW_VL) - (float)mean;

				q += d * d;
			}
			if (i < end) {
				const ww_vf d = ww_vf_fill(load(ctx, r, i, (int)(end - i)) - (float)mean, (int)(end - i), 0.0f);

				q += d * d;
				i = end;
			}
			m2 += (double)ww_vf_sum(q);
		}
	}
	done(ctx, b->x, (float)mean, (float)m2);
}

#endif
