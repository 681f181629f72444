/* pointwise.h - maps: every output element from the input elements at the same (broadcast) coordinates.
 *
 * A map is bound by memory, so read and write DRAM once: fuse all pointwise operations into one functor,
 * and write outputs that are not re-read soon with ww_vf_stream(), which spares the read-for-ownership of the output's
 * lines (torch pays it: 3 units of traffic for y = f(x) where 2 suffice).
 *
 * The functor does loads, arithmetic and stores itself, so any number of inputs and outputs of any types is possible:
 *
 *     ww_cpu_map:  void fn(const void *ctx, long long i, int n)
 *         elements i .. i+n-1 of flat, equally shaped, contiguous tensors.
 *     ww_cpu_nd:   void fn(const void *ctx, const long long *at, long long i, int n)
 *         elements (at[0], at[1], at[2], i .. i+n-1) of a four-dimensional index space (leading sizes 1 where fewer are
 *         needed; collapse what can be).  The functor multiplies by its own strides; products of at[] leave the inner
 *         loop.
 *         A broadcast innermost dimension is ww_vf_set(*p), a strided one ww_vf_gather().
 *     ww_cpu_transpose:  y[b][j][i] = f(x[b][i][j]), in tiles that keep both sides in whole cache lines.
 *         ww_vf fn(const void *ctx, ww_vf v) applies to each element (by value).
 *     ww_cpu_gather_rows: y[r][:] = table[index[r]][:], the embedding. */
#ifndef WW_CPU_POINTWISE_H
#define WW_CPU_POINTWISE_H

typedef void (*ww_map_fn)(const void *ctx, long long i, int n);
typedef void (*ww_nd_fn)(const void *ctx, const long long *at, long long i, int n);
typedef ww_vf (*ww_unary_fn)(const void *ctx, ww_vf v);

/* Elements [from, to) in vectors. */
WW_FN void ww_map_range(long long from, long long to, ww_map_fn fn, const void *ctx)
{
	long long i = from;

	for (; i + 4 * WW_VL <= to; i += 4 * WW_VL) {
		fn(ctx, i, WW_VL);
		fn(ctx, i + WW_VL, WW_VL);
		fn(ctx, i + 2 * WW_VL, WW_VL);
		fn(ctx, i + 3 * WW_VL, WW_VL);
	}
	for (; i + WW_VL <= to; i += WW_VL)
		fn(ctx, i, WW_VL);
	if (i < to)
		fn(ctx, i, (int)(to - i));
}

/* Arguments: i64 total, i64 tile.  Grid: x over tiles. */
#define WW_MAP_ARGS 2
WW_FN void ww_cpu_map(const struct ww_block *b, void *const *arg, ww_map_fn fn, const void *ctx)
{
	const long long total = WW_ARG(long long, 0), tile = WW_ARG(long long, 1), from = b->x * tile;

	ww_map_range(from, ww_min_ll(total, from + tile), fn, ctx);
}

/* Arguments: i64 size[4] (innermost last), i64 rows a block, i64 columns a block.  Grid: x over column tiles, y over
 * rows (a row is one setting of the outer three coordinates). */
#define WW_ND_ARGS 6
WW_FN void ww_cpu_nd(const struct ww_block *b, void *const *arg, ww_nd_fn fn, const void *ctx)
{
	const long long s0 = WW_ARG(long long, 0), s1 = WW_ARG(long long, 1), s2 = WW_ARG(long long, 2);
	const long long s3 = WW_ARG(long long, 3), rows = WW_ARG(long long, 4), cols = WW_ARG(long long, 5);
	const long long from = b->y * rows, to = ww_min_ll(s0 * s1 * s2, from + rows);
	const long long c0 = b->x * cols, c1 = ww_min_ll(s3, c0 + cols);

	for (long long r = from; r < to; r++) {
		const long long at[3] = { r / (s1 * s2), r / s2 % s1, r % s2 };
		long long i = c0;

		for (; i + 4 * WW_VL <= c1; i += 4 * WW_VL) {
			fn(ctx, at, i, WW_VL);
			fn(ctx, at, i + WW_VL, WW_VL);
			fn(ctx, at, i + 2 * WW_VL, WW_VL);
			fn(ctx, at, i + 3 * WW_VL, WW_VL);
		}
		for (; i + WW_VL <= c1; i += WW_VL)
			fn(ctx, at, i, WW_VL);
		if (i < c1)
			fn(ctx, at, i, (int)(c1 - i));
	}
}

/* ---- Transposes -------------------------------------------------------------------------------------------------- */

/* Transpose a square of WW_VL x WW_VL floats, in log2(WW_VL) rounds of two-vector shuffles. */
#if WW_VL == 16
#define WW_SHUF_LO1(a, b) __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30)
#define WW_SHUF_HI1(a, b) __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31)
#define WW_SHUF_LO2(a, b) __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define WW_SHUF_HI2(a, b) __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define WW_SHUF_LO4(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define WW_SHUF_HI4(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define WW_SHUF_LO8(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define WW_SHUF_HI8(a, b) __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
/* Even lanes of both, odd lanes of both are the inverses of the interleaves below. */
#define WW_ILV_LO(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define WW_ILV_HI(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define WW_DEILV_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define WW_DEILV_ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif WW_VL == 8
#define WW_SHUF_LO1(a, b) __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define WW_SHUF_HI1(a, b) __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#define WW_SHUF_LO2(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define WW_SHUF_HI2(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define WW_SHUF_LO4(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define WW_SHUF_HI4(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define WW_ILV_LO(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define WW_ILV_HI(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define WW_DEILV_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define WW_DEILV_ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define WW_SHUF_LO1(a, b) __builtin_shufflevector(a, b, 0, 4, 2, 6)
#define WW_SHUF_HI1(a, b) __builtin_shufflevector(a, b, 1, 5, 3, 7)
#define WW_SHUF_LO2(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define WW_SHUF_HI2(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#define WW_ILV_LO(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define WW_ILV_HI(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define WW_DEILV_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define WW_DEILV_ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#endif

/* One round: vectors i and i+w exchange their off-diagonal squares of width w. */
#define WW_TRANSPOSE_ROUND(v, w, LO, HI) \
	WW_UNROLL(16) \
	for (int i_ = 0; i_ < WW_VL; i_++) \
		if ((i_ & (w)) == 0) { \
			ww_vf lo_ = LO(v[i_], v[i_ + (w)]), hi_ = HI(v[i_], v[i_ + (w)]); \
			v[i_] = lo_; \
			v[i_ + (w)] = hi_; \
		}

WW_FN void ww_vf_transpose(ww_vf v[WW_VL]){
	WW_TRANSPOSE_ROUND(v, 1, WW_SHUF_LO1, WW_SHUF_HI1) WW_TRANSPOSE_ROUND(v, 2, WW_SHUF_LO2, WW_SHUF_HI2)
#if WW_VL >= 8
		WW_TRANSPOSE_ROUND(v, 4, WW_SHUF_LO4, WW_SHUF_HI4)
#endif
#if WW_VL >= 16
			WW_TRANSPOSE_ROUND(v, 8, WW_SHUF_LO8, WW_SHUF_HI8)
#endif
}

/* Load the square whose rows are p, p + ld, ...; rows and columns beyond (rows, cols) are 0. */
WW_FN void ww_square_load(ww_vf v[WW_VL], const float *p, long long ld, int rows, int cols)
{
	if (rows >= WW_VL && cols >= WW_VL) {
		WW_UNROLL(16)
		for (int i = 0; i < WW_VL; i++)
			v[i] = ww_vf_load(p + i * ld, WW_VL);
	} else {
		for (int i = 0; i < WW_VL; i++)
			v[i] = i < rows ? ww_vf_load(p + i * ld, cols) : ww_vf_zero();
	}
}

/* Arguments: i64 batch, rows, cols of x; i64 x row stride, x batch stride; i64 y row stride, y batch stride; x, y.
 * Grid: x over column tiles of WW_TRANSPOSE_TILE, y over row tiles, z over the batch. */
#define WW_TRANSPOSE_TILE 64
#define WW_TRANSPOSE_ARGS 9
WW_FN void ww_cpu_transpose(const struct ww_block *b, void *const *arg, ww_unary_fn fn, const void *ctx)
{
	const long long rows = WW_ARG(long long, 1), cols = WW_ARG(long long, 2);
	const long long xs = WW_ARG(long long, 3), ys = WW_ARG(long long, 5);
	const float *x = WW_ARG(const float *, 7) + b->z * WW_ARG(long long, 4);
	float *y = WW_ARG(float *, 8) + b->z * WW_ARG(long long, 6);
	const long long i1 = ww_min_ll(rows, (b->y + 1) * WW_TRANSPOSE_TILE);
	const long long j1 = ww_min_ll(cols, (b->x + 1) * WW_TRANSPOSE_TILE);

	for (long long j = b->x * WW_TRANSPOSE_TILE; j < j1; j += WW_VL)
		for (long long i = b->y * WW_TRANSPOSE_TILE; i < i1; i += WW_VL) {
			const int nr = (int)ww_min_ll(WW_VL, i1 - i), nc = (int)ww_min_ll(WW_VL, j1 - j);
			ww_vf v[WW_VL];

			ww_square_load(v, x + i * xs + j, xs, nr, nc);
			ww_vf_transpose(v);
			for (int t = 0; t < nc; t++)
				ww_vf_stream(y + (j + t) * ys + i, fn(ctx, v[t]), nr);
		}
}

/* Arguments: i64 rows, cols, rows a block, table rows; index (i64), table, y.  An index outside the table gives NaN. */
#define WW_GATHER_ARGS 7
WW_FN void ww_cpu_gather_rows(const struct ww_block *b, void *const *arg, ww_unary_fn fn, const void *ctx)
{
	const long long rows = WW_ARG(long long, 0), cols = WW_ARG(long long, 1), per = WW_ARG(long long, 2);
	const long long count = WW_ARG(long long, 3);
	const int64_t *index = WW_ARG(const int64_t *, 4);
	const float *table = WW_ARG(const float *, 5);
	float *y = WW_ARG(float *, 6);
	const long long to = ww_min_ll(rows, (b->x + 1) * per);

	for (long long r = b->x * per; r < to; r++) {
		const int ok = index[r] >= 0 && index[r] < count;
		const float *src = table + (ok ? index[r] : 0) * cols;

		for (long long i = 0; i < cols; i += WW_VL) {
			const int n = (int)ww_min_ll(WW_VL, cols - i);
			const ww_vf v = ok ? ww_vf_load(src + i, n) : ww_vf_set(WW_NAN);

			ww_vf_stream(y + r * cols + i, fn(ctx, v), n);
		}
	}
}

/* The unary functor that does nothing. */
WW_FN ww_vf ww_identity(const void *ctx, ww_vf v)
{
	(void)ctx;
	return v;
}

#endif
