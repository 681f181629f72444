/* scatter.h - elements that are written to, or added up at, places that data says: scatter_add, index_add, scatter.
 *
 *     ww_cpu_scatter_rows     (outer, len) along len: each written element has its own place
 *     ww_cpu_scatter_mid      (outer, len, inner) along len: the same, with vectors along inner
 *     ww_cpu_scatter_slices   (outer, len, inner) along len: all of inner shares its place (index_add)
 *
 * The result begins as self(), takes the `list` written elements one after the other, in their order, as PyTorch's
 * kernels do, and ends in store().  So sums are PyTorch's to the bit, and of several elements that are written to one
 * place the last one stays.  A result is held in scratch meanwhile.  Rejected: each element of the result looks at all
 * that are written (len * list comparisons); adding in the stored result, whose rounding and epilogue come once.
 *
 * Functors, with m the place in the result and j the number of the written element; rows have neither m nor j:
 *     ww_vf self(ctx, o, m, i, n), src(ctx, o, j, i, n)     rows: self(ctx, r, i, n), src(ctx, r, j, n)
 *     ww_vi place(ctx, o, j, i, n)                          rows: place(ctx, r, j, n); slices: int place(ctx, o, j)
 *     void  store(ctx, o, m, i, v, n)                       rows: store(ctx, r, i, v, n)
 * A place below 0 counts from the end; what then lies outside of the result is not written. */
#ifndef WW_CPU_SCATTER_H
#define WW_CPU_SCATTER_H

enum ww_scatter { WW_SCATTER_SUM, WW_SCATTER_PROD, WW_SCATTER_MAX, WW_SCATTER_MIN, WW_SCATTER_SET };

typedef ww_vi (*ww_row_place_fn)(const void *ctx, long long r, long long j, int n);
typedef ww_vi (*ww_mid_place_fn)(const void *ctx, long long o, long long j, long long i, int n);
typedef int32_t (*ww_slice_place_fn)(const void *ctx, long long o, long long j);

/* Arguments: i64 outer, inner, and rows (scatter_rows) or columns of a block.  Grid: x over rows, or x over columns and
 * y over outer.  len and list are numbers that the compiler knows, if possible: short rows have no loops then. */
#define WW_SCATTER_ARGS 3

/* Maxima and minima keep NaN, as the vectors' do. */
WW_FN float ww_scatter_one(enum ww_scatter how, float a, float v)
{
	return how == WW_SCATTER_SUM ? a + v
		: how == WW_SCATTER_PROD ? a * v
		: how == WW_SCATTER_MAX  ? (v > a || v != v ? v : a)
		: how == WW_SCATTER_MIN  ? (v < a || v != v ? v : a)
								 : v;
}

WW_FN ww_vf ww_scatter_vec(enum ww_scatter how, ww_vf a, ww_vf v)
{
	return how == WW_SCATTER_SUM ? a + v
		: how == WW_SCATTER_PROD ? a * v
		: how == WW_SCATTER_MAX  ? ww_vf_maxnan(a, v)
		: how == WW_SCATTER_MIN  ? ww_vf_minnan(a, v)
								 : v;
}

WW_FN void ww_scatter_lane(enum ww_scatter how, float *p, float v) { *p = ww_scatter_one(how, *p, v); }

/* Lane l goes to acc[at[l] * row + l * lane]. */
WW_FN void ww_scatter_lanes(
	enum ww_scatter how, float *acc, long long len, long long row, int lane, ww_vi at, ww_vf v, int n)
{
	const ww_vi from = at + ww_vi_where(ww_vi_lt(at, ww_vi_set(0)), ww_vi_set((int32_t)len));
	const ww_vi sign = ww_vi_set((int32_t)0x80000000u); /* turns an unsigned comparison into a signed one */
	const ww_vm outside = ww_vi_lt(ww_vi_set((int32_t)len - 1) ^ sign, from ^ sign);
	int32_t place[WW_VL];
	float x[WW_VL];

	__builtin_memcpy(place, &from, sizeof(from));
	__builtin_memcpy(x, &v, sizeof(v));
	if (ww_vm_any(ww_vm_and(outside, ww_vm_first(n)))) {
		for (int l = 0; l < n; l++)
			if (!ww_vm_lane(outside, l))
				ww_scatter_lane(how, acc + place[l] * row + l * lane, x[l]);
		return;
	}
	WW_UNROLL(16)
	for (int l = 0; l < n; l++)
		ww_scatter_lane(how, acc + place[l] * row + l * lane, x[l]);
}

/* Rows are begun, written to and stored some at a time: a vector load right behind stores of its elements waits until
 * they are in the cache. */
#define WW_SCATTER_BATCH 4096	/* floats of such rows, about */

WW_FN void ww_cpu_scatter_rows(const struct ww_block *b, void *const *arg, enum ww_scatter how, long long len,
	long long list, ww_row_load_fn self, ww_row_place_fn place, ww_row_load_fn src, ww_row_store_fn store,
	const void *ctx)
{
	const long long per = WW_ARG(long long, 2), to = ww_min_ll(WW_ARG(long long, 0), (b->x + 1) * per);
	const long long row = WW_CDIV(len, WW_VL) * WW_VL;
	const long long batch = ww_max_ll(1, WW_SCATTER_BATCH / row);
	float *const acc = b->shared;

	for (long long r0 = b->x * per; r0 < to; r0 += batch) {
		const long long r1 = ww_min_ll(to, r0 + batch);

		for (long long r = r0; r < r1; r++)
			for (long long i = 0; i < len; i += WW_VL)
				ww_vf_store(acc + (r - r0) * row + i, self(ctx, r, i, (int)ww_min_ll(WW_VL, len - i)), WW_VL);
		for (long long r = r0; r < r1; r++) {
			float *const mine = acc + (r - r0) * row;
			long long j = 0;

			for (; j + WW_VL <= list; j += WW_VL)
				ww_scatter_lanes(how, mine, len, 1, 0, place(ctx, r, j, WW_VL), src(ctx, r, j, WW_VL), WW_VL);
			if (j < list) {
				const int n = (int)(list - j);

				ww_scatter_lanes(how, mine, len, 1, 0, place(ctx, r, j, n), src(ctx, r, j, n), n);
			}
		}
		for (long long r = r0; r < r1; r++)
			for (long long i = 0; i < len; i += WW_VL) {
				const int n = (int)ww_min_ll(WW_VL, len - i);

				store(ctx, r, i, ww_vf_load(acc + (r - r0) * row + i, n), n);
			}
	}
}

/* Columns i0 to i1 of all of len: from self() to scratch, and from there to store(). */
WW_FN void ww_scatter_begin(float *acc, long long len, long long row, long long o, long long i0, long long i1,
	ww_mid_load_fn self, const void *ctx)
{
	for (long long m = 0; m < len; m++)
		for (long long i = i0; i < i1; i += WW_VL)
			ww_vf_store(acc + m * row + i - i0, self(ctx, o, m, i, (int)ww_min_ll(WW_VL, i1 - i)), WW_VL);
}

WW_FN void ww_scatter_end(const float *acc, long long len, long long row, long long o, long long i0, long long i1,
	ww_mid_store_fn store, const void *ctx)
{
	for (long long m = 0; m < len; m++)
		for (long long i = i0; i < i1; i += WW_VL) {
			const int n = (int)ww_min_ll(WW_VL, i1 - i);

			store(ctx, o, m, i, ww_vf_load(acc + m * row + i - i0, n), n);
		}
}

WW_FN void ww_cpu_scatter_mid(const struct ww_block *b, void *const *arg, enum ww_scatter how, long long len,
	long long list, ww_mid_load_fn self, ww_mid_place_fn place, ww_mid_load_fn src, ww_mid_store_fn store,
	const void *ctx)
{
	const long long cols = WW_ARG(long long, 2), i0 = b->x * cols, i1 = ww_min_ll(WW_ARG(long long, 1), i0 + cols);
	const long long row = WW_CDIV(cols, WW_VL) * WW_VL;
	float *const acc = b->shared;

	ww_scatter_begin(acc, len, row, b->y, i0, i1, self, ctx);
	for (long long j = 0; j < list; j++) {
		long long i = i0;

		for (; i + WW_VL <= i1; i += WW_VL)
			ww_scatter_lanes(
				how, acc + i - i0, len, row, 1, place(ctx, b->y, j, i, WW_VL), src(ctx, b->y, j, i, WW_VL), WW_VL);
		if (i < i1) {
			const int n = (int)(i1 - i);

			ww_scatter_lanes(how, acc + i - i0, len, row, 1, place(ctx, b->y, j, i, n), src(ctx, b->y, j, i, n), n);
		}
	}
	ww_scatter_end(acc, len, row, b->y, i0, i1, store, ctx);
}

WW_FN void ww_cpu_scatter_slices(const struct ww_block *b, void *const *arg, enum ww_scatter how, long long len,
	long long list, ww_mid_load_fn self, ww_slice_place_fn place, ww_mid_load_fn src, ww_mid_store_fn store,
	const void *ctx)
{
	const long long cols = WW_ARG(long long, 2), i0 = b->x * cols, i1 = ww_min_ll(WW_ARG(long long, 1), i0 + cols);
	const long long row = WW_CDIV(cols, WW_VL) * WW_VL;
	float *const acc = b->shared;

	ww_scatter_begin(acc, len, row, b->y, i0, i1, self, ctx);
	for (long long j = 0; j < list; j++) {
		const int32_t said = place(ctx, b->y, j), at = said < 0 ? said + (int32_t)len : said;

		if ((uint32_t)at >= (uint32_t)len)
			continue;
		for (long long i = i0; i < i1; i += WW_VL) {
			float *const p = acc + at * row + i - i0;
			const ww_vf v = src(ctx, b->y, j, i, (int)ww_min_ll(WW_VL, i1 - i));

			ww_vf_store(p, ww_scatter_vec(how, ww_vf_load(p, WW_VL), v), WW_VL);
		}
	}
	ww_scatter_end(acc, len, row, b->y, i0, i1, store, ctx);
}

#endif
