/* gemm.h - matrix products in fp32 with a fused epilogue.
 *
 *     C[z][i][j] = sum over k of A[z][i][k] * B[z][k][j],   handed to   void epi(ctx, z, i, j, ww_vf v, int n)
 *
 * for columns j .. j+n-1 of row i: bias, activation, residual and the store (ww_vf_stream where C is not re-read soon)
 * are the functor's.  B is stored (K, N) or, as nn.Linear keeps its weight, (N, K).
 *
 * Blocking.  A block of the launch owns mt rows by nb columns of C.  It packs its kc x nb piece of B once into its own
 * scratch (L2), as panels of WW_NR columns, [panel][k][WW_NR]; then WW_MR rows of A at a time meet all panels, from L1.
 * A is read in place, row-major, one broadcast a value.  But rows that are a multiple of 512 bytes apart conflict in a
 * few sets of L1 (and in its way predictor: the micro-kernel then runs at half speed on Zen 5), so such rows are first
 * copied to rows that are 64 bytes longer, which costs 2%.  The micro-kernel keeps WW_MR x WW_NR sums in registers (8 x
 * 3 vectors with AVX-512), 24 multiply-adds for 11 loads.  A K longer than kc is walked in pieces, and the sums wait in
 * scratch between them.
 *
 * Since every block packs for itself there is no packing launch and no barrier, and each byte of B is packed once when
 * mt covers all of M.  Rejected: packing A transposed too (BLIS), which costs more than the copy; a separate packing
 * launch, which sends B through memory twice.
 *
 * Operands of 16 bits (ww_cpu_gemm_f16, _bf16): B is widened as it is packed, and rows of A are copied as floats. Where
 * the machine multiplies pairs of bfloat16 (AVX512_BF16), each float of both is two steps of k, so that there are half
 * as many; rows of A are read in place if they start at whole pairs.
 *
 *     ww_cpu_gemm        the above; good from about 64 rows up
 *     ww_cpu_gemm_thin   few rows (a GEMV, a decode step): bound by reading B (N, K) once; vectors along K, no
 *                        packing, a sum across lanes for each result */
#ifndef WW_CPU_GEMM_H
#define WW_CPU_GEMM_H

#if WW_VL == 16
#define WW_MR 8
#define WW_NV 3
#elif WW_VL == 8
#define WW_MR 4
#define WW_NV 3
#else
#define WW_MR 4
#define WW_NV 2
#endif
#define WW_NR (WW_NV * WW_VL)

typedef void (*ww_gemm_epi_fn)(const void *ctx, long long z, long long row, long long col, ww_vf v, int n);

/* The type of the operands: a constant at every call. */
enum ww_operand { WW_OF_F32, WW_OF_F16, WW_OF_BF16 };

/* Does a lane hold two elements (pairs of bfloat16)? */
WW_FN int ww_in_pairs(enum ww_operand type) { return WW_DOT_BF16 && type == WW_OF_BF16; }

WW_FN const void *ww_operand_at(enum ww_operand type, const void *p, long long at)
{
	return (const char *)p + at * (type == WW_OF_F32 ? 4 : 2);
}

/* n numbers from element `at` of p on; of pairs, those `next` elements on are the upper halves (0: zeros are). */
WW_FN ww_vf ww_operand_load(enum ww_operand type, const void *p, long long at, long long next, int n)
{
	const uint16_t *h = (const uint16_t *)p + at;

	if (type == WW_OF_F32)
		return ww_vf_load((const float *)p + at, n);
	if (type == WW_OF_F16)
		return ww_vf_load_f16(h, n);
	return ww_in_pairs(type) ? ww_vf_pair_bf16(h, next ? h + next : NULL, n) : ww_vf_load_bf16(h, n);
}

/* The same along k: of pairs n / 2, rounded up, that lie side by side; n is at most what a vector holds. */
WW_FN ww_vf ww_operand_run(enum ww_operand type, const void *p, long long at, long long n)
{
#if WW_DOT_BF16
	if (ww_in_pairs(type) && n >= 2 * WW_VL)
		return ww_vf_load((const float *)((const uint16_t *)p + at), WW_VL);
	if (ww_in_pairs(type))
		return (ww_vf)_mm512_maskz_loadu_epi16((1u << n) - 1, (const uint16_t *)p + at);
#endif
	return ww_operand_load(type, p, at, 0, (int)n);
}

/* c[mr][nv * WW_VL] (+)= sum over k of ar[i][k] * b[k * ldb + ...]; pairs, mr and nv are constants at every call. */
WW_FN void ww_micro_here(int pairs, int mr, int nv, const float *const *ar, const float *b, long long ldb, long long k,
	float *c, long long ldc, int add)
{
	ww_vf acc[32], bv[4];

	WW_UNROLL(8)
	for (int i = 0; i < mr; i++)
		WW_UNROLL(8)
	for (int v = 0; v < nv; v++)
		acc[i * nv + v] = add ? ww_vf_load(c + i * ldc + v * WW_VL, WW_VL) : ww_vf_zero();
	for (long long p = 0; p < k; p++) {
		WW_UNROLL(8)
		for (int v = 0; v < nv; v++)
			bv[v] = ww_vf_held(ww_vf_load(b + p * ldb + v * WW_VL, WW_VL));
		WW_UNROLL(8)
		for (int i = 0; i < mr; i++) {
			const ww_vf a = ww_vf_set(ar[i][p]);

			WW_UNROLL(8)
			for (int v = 0; v < nv; v++)
				acc[i * nv + v] = pairs ? ww_vf_dot_bf16(a, bv[v], acc[i * nv + v])
										: ww_vf_fma(a, bv[v], acc[i * nv + v]);
		}
	}
	WW_UNROLL(8)
	for (int i = 0; i < mr; i++)
		WW_UNROLL(8)
	for (int v = 0; v < nv; v++)
		ww_vf_store(c + i * ldc + v * WW_VL, acc[i * nv + v], WW_VL);
}

#if defined(WW_AVX2)
/* The same, not inlined: the sums, a row of B and a value of A take all 16 registers, and whatever a caller holds
 * beside them would put a sum into memory, which halves the speed. */
#define WW_MICRO_APART(nv) \
	static __attribute__((noinline, unused)) void ww_micro_##nv( \
		const float *const *ar, const float *b, long long ldb, long long k, float *c, long long ldc, int add) \
	{ \
		ww_micro_here(0, WW_MR, nv, ar, b, ldb, k, c, ldc, add); \
	}
WW_MICRO_APART(1)
WW_MICRO_APART(2)
WW_MICRO_APART(3)
#undef WW_MICRO_APART
#endif
WW_FN void ww_micro(int pairs, int mr, int nv, const float *const *ar, const float *b, long long ldb, long long k,
	float *c, long long ldc, int add)
{
#if defined(WW_AVX2)
	if (!pairs && mr == WW_MR && nv <= 3) {
		(nv == 1 ? ww_micro_1 : nv == 2 ? ww_micro_2 : ww_micro_3)(ar, b, ldb, k, c, ldc, add);
		return;
	}
#endif
	ww_micro_here(pairs, mr, nv, ar, b, ldb, k, c, ldc, add);
}

/* The same for a panel of which `cols` columns count. */
WW_FN void ww_micro_panel(
	int pairs, long long cols, const float *const *ar, const float *b, long long k, float *c, int add)
{
	if (cols <= WW_VL)
		ww_micro(pairs, WW_MR, 1, ar, b, WW_NR, k, c, WW_NR, add);
	else if (WW_NV > 2 && cols <= 2 * WW_VL)
		ww_micro(pairs, WW_MR, 2, ar, b, WW_NR, k, c, WW_NR, add);
	else
		ww_micro(pairs, WW_MR, WW_NV, ar, b, WW_NR, k, c, WW_NR, add);
}

/* Should rows that are `ld` floats apart be copied?  Then the distance of the copies. */
WW_FN int ww_rows_alias(long long ld) { return ld % 128 == 0; }
#define WW_ROW_LD(k) (((k) + 15) / 16 * 16 + 16)

/* Can rows of A be read in place? */
WW_FN int ww_rows_lie(enum ww_operand type, const void *a, long long lda, long long k)
{
	if (ww_in_pairs(type))
		return !ww_rows_alias(lda / 2) && lda % 2 == 0 && k % 2 == 0 && (uintptr_t)a % 4 == 0;
	return type == WW_OF_F32 && !ww_rows_alias(lda);
}

/* Pointers to WW_MR rows a, a + lda, ..., of which `rows` exist (the last one is repeated), copied to `buf` if they
 * cannot be read in place. */
WW_FN void ww_rows_take(
	enum ww_operand type, const float **ar, const void *a, long long lda, long long k, int rows, float *buf)
{
	const int lie = ww_rows_lie(type, a, lda, k), lanes = ww_in_pairs(type) ? 2 * WW_VL : WW_VL;

	for (int i = 0; i < WW_MR; i++) {
		const void *row = ww_operand_at(type, a, (i < rows ? i : rows - 1) * lda);
		float *to = buf + i * WW_ROW_LD(k);

		ar[i] = lie ? row : to;
		for (long long p = 0; p < k && !lie; p += lanes, to += WW_VL)
			ww_vf_store(to, ww_operand_run(type, row, p, ww_min_ll(lanes, k - p)), WW_VL);
	}
}

/* Prefetch rows of A, `bytes` of each, `step` apart. */
WW_FN void ww_rows_ahead(const void *a, long long step, long long bytes, long long rows)
{
	for (long long i = 0; i < rows; i++)
		for (long long at = 0; at < bytes; at += 64)
			ww_prefetch((const char *)a + i * step + at);
}

/* One panel of B, kc x WW_NR, columns beyond `cols` zero, from (N, K) storage: squares transposed in registers. */
WW_FN void ww_pack_nk(enum ww_operand type, float *dst, const void *src, long long ldb, long long kc, int cols)
{
	const int per = ww_in_pairs(type) ? 2 : 1;

	for (long long k = 0; k < kc; k += per * WW_VL, dst += WW_VL * WW_NR)
		for (int v = 0; v < WW_NV; v++) {
			const long long len = ww_min_ll(per * WW_VL, kc - k);
			const int nk = (int)WW_CDIV(len, per), nc = (int)ww_max_ll(0, cols - v * WW_VL);
			ww_vf t[WW_VL];

			if (type == WW_OF_F32)
				ww_square_load(t, (const float *)src + v * WW_VL * ldb + k, ldb, (int)ww_min_ll(WW_VL, nc), nk);
			for (int i = 0; i < WW_VL && type != WW_OF_F32; i++)
				t[i] = i < nc ? ww_operand_run(type, src, (v * WW_VL + i) * ldb + k, len) : ww_vf_zero();
			ww_vf_transpose(t);
			if (nk == WW_VL) {
				WW_UNROLL(16)
				for (int i = 0; i < WW_VL; i++)
					ww_vf_store(dst + i * WW_NR + v * WW_VL, t[i], WW_VL);
			} else {
				for (int i = 0; i < nk; i++)
					ww_vf_store(dst + i * WW_NR + v * WW_VL, t[i], WW_VL);
			}
		}
}

/* The same from (K, N) storage. */
WW_FN void ww_pack_kn(enum ww_operand type, float *dst, const void *src, long long ldb, long long kc, int cols)
{
	const int per = ww_in_pairs(type) ? 2 : 1;

	for (long long k = 0; k < kc; k += per, dst += WW_NR)
		for (int v = 0; v < WW_NV; v++) {
			const int nc = (int)ww_min_ll(WW_VL, cols - v * WW_VL);

			ww_vf_store(dst + v * WW_VL,
				nc > 0 ? ww_operand_load(type, src, k * ldb + v * WW_VL, k + 1 < kc ? ldb : 0, nc) : ww_vf_zero(),
				WW_VL);
		}
}

/* Arguments: i64 m, n, k, A row stride, B row stride, B is (N, K), A batch stride, B batch stride, mt, nb, kc; A, B.
 * Grid: x over column blocks of nb, y over row blocks of mt, z over the batch.  nb is a multiple of WW_NR, mt of WW_MR.
 * Scratch: kc * nb + WW_MR * WW_ROW_LD(kc) floats, and mt * nb more where k > kc, else WW_MR * WW_NR. */
#define WW_GEMM_ARGS 13
WW_FN void ww_gemm_tiles(
	const struct ww_block *b, enum ww_operand type, void *const *arg, ww_gemm_epi_fn epi, const void *ctx)
{
	const int per = ww_in_pairs(type) ? 2 : 1, size = type == WW_OF_F32 ? 4 : 2;
	const long long m = WW_ARG(long long, 0), n = WW_ARG(long long, 1), k = WW_ARG(long long, 2);
	const long long lda = WW_ARG(long long, 3), ldb = WW_ARG(long long, 4), nk = WW_ARG(long long, 5);
	const long long mt = WW_ARG(long long, 8), nb = WW_ARG(long long, 9), kc = WW_ARG(long long, 10);
	const void *a = ww_operand_at(type, WW_ARG(const void *, 11), b->z * WW_ARG(long long, 6));
	const void *w = ww_operand_at(type, WW_ARG(const void *, 12), b->z * WW_ARG(long long, 7));
	const long long r0 = b->y * mt, r1 = ww_min_ll(m, r0 + mt), c0 = b->x * nb, c1 = ww_min_ll(n, c0 + nb);
	const long long panels = WW_CDIV(c1 - c0, WW_NR);
	float *bp = b->shared, *rows = bp + kc * nb, *part = rows + WW_MR * WW_ROW_LD(kc);

	for (long long k0 = 0; k0 < k || k0 == 0; k0 += kc) {
		const long long len = ww_min_ll(kc, k - k0);
		const int last = k0 + kc >= k;

		for (long long p = 0; p < panels; p++) {
			const long long c = c0 + p * WW_NR;
			const int cols = (int)ww_min_ll(WW_NR, c1 - c);

			if (nk)
				ww_pack_nk(type, bp + p * kc * WW_NR, ww_operand_at(type, w, c * ldb + k0), ldb, len, cols);
			else
				ww_pack_kn(type, bp + p * kc * WW_NR, ww_operand_at(type, w, k0 * ldb + c), ldb, len, cols);
		}
		for (long long r = r0; r < r1; r += WW_MR) {
			const float *ar[WW_MR];

			ww_rows_take(type, ar, ww_operand_at(type, a, r * lda + k0), lda, len, (int)ww_min_ll(WW_MR, r1 - r), rows);
			ww_rows_ahead(ww_operand_at(type, a, (r + WW_MR) * lda + k0), lda * size, len * size,
				ww_min_ll(WW_MR, r1 - r - WW_MR));
			for (long long p = 0; p < panels; p++) {
				float *t = k <= kc ? part : part + ((r - r0) * panels + p * WW_MR) * WW_NR;

				ww_micro_panel(per == 2, c1 - c0 - p * WW_NR, ar, bp + p * kc * WW_NR, WW_CDIV(len, per), t, k0 > 0);
				for (long long i = r; last && i < ww_min_ll(r1, r + WW_MR); i++) {
					const long long c = c0 + p * WW_NR;

					for (int v = 0; v < WW_NV && c + v * WW_VL < c1; v++)
						epi(ctx, b->z, i, c + v * WW_VL, ww_vf_load(t + (i - r) * WW_NR + v * WW_VL, WW_VL),
							(int)ww_min_ll(WW_VL, c1 - c - v * WW_VL));
				}
			}
		}
	}
}

/* A block of sums of a few rows by a few columns, with vectors along k: WW_VL sums at most. */
enum { WW_THIN_ROWS = 4, WW_THIN_COLS = WW_VL / 4 < 4 ? WW_VL / 4 : 4, WW_THIN_MOST = 64 /* rows of a block */ };

/* acc[i][j] += products of n elements from element p on of rows ar[i] (as prepared by ww_rows_take()) and wr[j]. */
WW_FN void ww_thin_step(
	enum ww_operand type, int rows, ww_vf *acc, const float *const *ar, const void *const *wr, long long p, long long n)
{
	const int per = ww_in_pairs(type) ? 2 : 1;
	ww_vf bv[WW_THIN_COLS];

	WW_UNROLL(4)
	for (int j = 0; j < WW_THIN_COLS; j++)
		bv[j] = ww_operand_run(type, wr[j], p, n);
	WW_UNROLL(4)
	for (int i = 0; i < rows; i++) {
		const ww_vf a = ww_vf_load(ar[i] + p / per, (int)WW_CDIV(n, per));

		WW_UNROLL(4)
		for (int j = 0; j < WW_THIN_COLS; j++) {
			ww_vf *s = &acc[i * WW_THIN_COLS + j];

			*s = per == 2 ? ww_vf_dot_bf16(a, bv[j], *s) : ww_vf_fma(a, bv[j], *s);
		}
	}
}

/* Not inlined, so that its vectors stay in registers: inlined, gcc loads B again for each row.
 *
 * c[i * WW_VL + j] = the sum over k of ar[i] and wr[j], for `rows` rows, a constant.  Rows next[0] to next[n_next - 1],
 * which are read later, are prefetched on the way. */
static __attribute__((noinline, unused)) void ww_thin_tile(enum ww_operand type, int rows, const float *const *ar,
	const void *const *wr, long long k, float *c, const void *const *next, int n_next)
{
	const int lanes = ww_in_pairs(type) ? 2 * WW_VL : WW_VL, size = type == WW_OF_F32 ? 4 : 2;
	ww_vf acc[WW_VL];
	float sum[WW_VL];
	long long p = 0;

	WW_UNROLL(16)
	for (int i = 0; i < WW_VL; i++)
		acc[i] = ww_vf_zero();
	for (; p + lanes <= k; p += lanes) {
		if (n_next)
			ww_prefetch((const char *)next[0] + p * size);
		for (int j = 1; j < n_next; j++)
			ww_prefetch((const char *)next[j] + p * size);
		ww_thin_step(type, rows, acc, ar, wr, p, lanes);
	}
	if (p < k)
		ww_thin_step(type, rows, acc, ar, wr, p, k - p);
	ww_vf_store(sum, ww_vf_across(WW_OP_SUM, acc), WW_VL);
	for (int i = 0; i < rows; i++)
		for (int j = 0; j < WW_THIN_COLS; j++)
			c[i * WW_VL + j] = sum[i * WW_THIN_COLS + j];
}

/* The same of m rows, in groups of nearly the same size, each of which prefetches its part of the next columns, so that
 * memory is read all the time. */
WW_FN void ww_thin_rows(enum ww_operand type, long long m, const float *const *ar, const void *const *wr, long long k,
	float *c, const void *const *next)
{
	const long long groups = WW_CDIV(m, WW_THIN_ROWS);

	for (long long g = 0; g < groups; g++) {
		const long long r = m * g / groups, rows = m * (g + 1) / groups - r, from = WW_THIN_COLS * g / groups;
		const int n_next = (int)(WW_THIN_COLS * (g + 1) / groups - from);

		if (rows == 4)
			ww_thin_tile(type, 4, ar + r, wr, k, c + r * WW_VL, next + from, n_next);
		else if (rows == 3)
			ww_thin_tile(type, 3, ar + r, wr, k, c + r * WW_VL, next + from, n_next);
		else if (rows == 2)
			ww_thin_tile(type, 2, ar + r, wr, k, c + r * WW_VL, next + from, n_next);
		else
			ww_thin_tile(type, 1, ar + r, wr, k, c + r * WW_VL, next + from, n_next);
	}
}

/* Arguments: i64 m, n, k, A row stride, B row stride, A batch stride, B batch stride, nb; A, B (N, K).
 * Grid: x over column blocks of nb, y over groups of WW_THIN_MOST rows, z over the batch.  nb is a multiple of WW_VL.
 * Scratch: WW_THIN_MOST + WW_MR rows of WW_ROW_LD(k) + WW_VL floats, of fewer rows m rounded up to WW_MR. */
#define WW_THIN_ARGS 10
WW_FN void ww_thin(
	const struct ww_block *b, enum ww_operand type, void *const *arg, ww_gemm_epi_fn epi, const void *ctx)
{
	const long long n = WW_ARG(long long, 1), k = WW_ARG(long long, 2), ldb = WW_ARG(long long, 4);
	const long long lda = WW_ARG(long long, 3), r0 = b->y * WW_THIN_MOST, c0 = b->x * WW_ARG(long long, 7);
	const long long m = ww_min_ll(WW_THIN_MOST, WW_ARG(long long, 0) - r0),
					c1 = ww_min_ll(n, c0 + WW_ARG(long long, 7));
	const void *a = ww_operand_at(type, WW_ARG(const void *, 8), b->z * WW_ARG(long long, 5) + r0 * lda);
	const void *w = ww_operand_at(type, WW_ARG(const void *, 9), b->z * WW_ARG(long long, 6));
	float *t = b->shared, *rows = t + WW_CDIV(m, WW_MR) * WW_MR * WW_VL;
	const float *ar[WW_THIN_MOST + WW_MR];

	for (long long i = 0; i < m; i += WW_MR)
		ww_rows_take(type, ar + i, ww_operand_at(type, a, i * lda), lda, k, (int)ww_min_ll(WW_MR, m - i),
			rows + i * WW_ROW_LD(k));
	for (long long c = c0; c < c1; c += WW_VL) {
		const int cols = (int)ww_min_ll(WW_VL, c1 - c);

		for (int j = 0; j < cols; j += WW_THIN_COLS) {
			const void *wr[2 * WW_THIN_COLS];

			for (int i = 0; i < 2 * WW_THIN_COLS; i++)
				wr[i] = ww_operand_at(type, w, ww_min_ll(c + j + i, c1 - 1) * ldb);
			ww_thin_rows(type, m, ar, wr, k, t + j, wr + WW_THIN_COLS);
		}
		for (long long i = 0; i < m; i++)
			epi(ctx, b->z, r0 + i, c, ww_vf_load(t + i * WW_VL, WW_VL), cols);
	}
}

#define WW_GEMM_OF(suffix, type) \
	WW_FN void ww_cpu_gemm##suffix(const struct ww_block *b, void *const *arg, ww_gemm_epi_fn epi, const void *ctx) \
	{ \
		ww_gemm_tiles(b, type, arg, epi, ctx); \
	} \
	WW_FN void ww_cpu_gemm_thin##suffix( \
		const struct ww_block *b, void *const *arg, ww_gemm_epi_fn epi, const void *ctx) \
	{ \
		ww_thin(b, type, arg, epi, ctx); \
	}
WW_GEMM_OF(, WW_OF_F32)
WW_GEMM_OF(_f16, WW_OF_F16)
WW_GEMM_OF(_bf16, WW_OF_BF16)
#undef WW_GEMM_OF

#endif
