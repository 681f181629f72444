/* sort.h - argsort of each row.
 *
 *     ww_cpu_sort_rows   store(ctx, r, i, v, n): v are the source indices, as floats, of elements i .. i+n-1 of the
 *                        sorted row r
 *
 * A stable radix sort by bytes: each float becomes an integer key of the same order (-0 equals 0, NaN is the largest),
 * and the two arrays, keys and indices, are distributed at most four times.  A byte that is the same in the whole row
 * costs nothing.  Rejected: sorting by comparisons (n log n unpredictable branches); wider digits, whose counts cost
 * more than the sort of the usual short row.
 *
 * load as in rowwise.h.  Scratch: 4 rows.  Rows of at most 2^24 elements, since indices are floats. */
#ifndef WW_CPU_SORT_H
#define WW_CPU_SORT_H

/* Unsigned keys in the order of x, or in the reverse order. */
WW_FN ww_vi ww_sort_key(ww_vf x, int descending)
{
	const ww_vi u = ww_vi_bits(x + ww_vf_zero()); /* -0 becomes 0 */
	const ww_vi k = u ^ ((u >> 31) | ww_vi_set((int32_t)0x80000000u));
	const ww_vi all = ww_vi_bits(ww_vf_sel(ww_vf_isnan(x), ww_vf_bits(ww_vi_set(-1)), ww_vf_bits(k)));

	return descending ? ~all : all;
}

/* One pass by the byte at `shift`; count[]: how many elements have each value of it. */
WW_FN void ww_sort_pass(const uint32_t *key, const uint32_t *at, uint32_t *to_key, uint32_t *to_at, long long cols,
	int shift, uint32_t *count)
{
	uint32_t sum = 0;

	for (int i = 0; i < 256; i++) {
		const uint32_t c = count[i];

		count[i] = sum;
		sum += c;
	}
	for (long long i = 0; i < cols; i++) {
		const uint32_t place = count[key[i] >> shift & 255]++;

		to_key[place] = key[i];
		to_at[place] = at[i];
	}
}

/* Arguments and grid of rowwise.h. */
WW_FN void ww_cpu_sort_rows(const struct ww_block *b, void *const *arg, int descending, ww_row_load_fn load,
	ww_row_store_fn store, const void *ctx)
{
	const long long cols = WW_ROWS_COLS(arg), to = WW_ROWS_TO(b, arg);

	for (long long r = WW_ROWS_FROM(b, arg); r < to; r++) {
		uint32_t *row[4], count[4][256] = { { 0 } };
		int now = 0;

		for (int i = 0; i < 4; i++)
			row[i] = (uint32_t *)(void *)ww_row_buffer(b, cols, i);
		for (long long i = 0; i < cols; i += WW_VL) {
			const ww_vf x = load(ctx, r, i, (int)ww_min_ll(WW_VL, cols - i));

			ww_vf_store((float *)(void *)(row[0] + i), ww_vf_bits(ww_sort_key(x, descending)), WW_VL);
		}
		for (long long i = 0; i < cols; i++) {
			row[1][i] = (uint32_t)i;
			for (int d = 0; d < 4; d++)
				count[d][row[0][i] >> 8 * d & 255]++;
		}
		for (int d = 0; d < 4; d++) {
			if (count[d][row[now][0] >> 8 * d & 255] == (uint32_t)cols)
				continue;
			ww_sort_pass(row[now], row[now + 1], row[2 - now], row[3 - now], cols, 8 * d, count[d]);
			now = 2 - now;
		}
		for (long long i = 0; i < cols; i += WW_VL) {
			const int n = (int)ww_min_ll(WW_VL, cols - i);

			store(ctx, r, i, ww_vf_of_vi(ww_vi_bits(ww_vf_load((const float *)(void *)(row[now + 1] + i), n))), n);
		}
	}
}

#endif
