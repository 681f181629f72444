/* attention.h - softmax(scale * Q K^T + bias) V without ever writing the scores to memory.
 *
 * A block of the launch owns bq query rows of one head.  It walks the keys in tiles of bk: the tile of K is packed
 * transposed into scratch, then WW_MR query rows at a time take their scores (WW_MR x bk, in L1), the row maxima and
 * sums are updated as in online softmax, and P V is added to the running output, which is first rescaled for the new
 * maximum.  With causal = 1, tiles above the diagonal are skipped and the tile on it is cut to the columns that some
 * row of the group can see.
 *
 * Functors:
 *     ww_vf score(ctx, z, row, col, ww_vf s, int n)   scaled scores of keys col .. col+n-1: additive masks, biases,
 *                                                     caps; -inf hides a key.  ww_attn_plain changes nothing.
 *     void  store(ctx, z, row, i, ww_vf v, int n)     elements i .. i+n-1 of the output row
 * where z = batch * heads + head.  A row that sees no key gives NaN, as torch's does.
 *
 * Scratch in floats: see WW_ATTN_SCRATCH(d, bq, bk), which the recipe uses too (dp is d rounded up to two vectors). */
#ifndef WW_CPU_ATTENTION_H
#define WW_CPU_ATTENTION_H

#include <ww/recipe/cpu_attention_scratch.h>

typedef ww_vf (*ww_attn_score_fn)(const void *ctx, long long z, long long row, long long col, ww_vf s, int n);
typedef void (*ww_attn_store_fn)(const void *ctx, long long z, long long row, long long i, ww_vf v, int n);

WW_FN ww_vf ww_attn_plain(const void *ctx, long long z, long long row, long long col, ww_vf s, int n)
{
	(void)ctx;
	(void)z;
	(void)row;
	(void)col;
	(void)n;
	return s;
}

/* One row of scores becomes probabilities (not yet divided by the sum); returns the factor for the earlier sums. */
WW_FN float ww_attn_row(float *s, long long len, float scale, float *max, float *sum, ww_attn_score_fn score,
	const void *ctx, long long z, long long row, long long col)
{
	ww_vf m0 = ww_vf_set(*max), m1 = m0, a0 = ww_vf_zero(), a1 = a0;
	float old = *max, now, keep;
	long long j = 0;

	for (; j + 2 * WW_VL <= len; j += 2 * WW_VL) {
		const ww_vf v0 = score(ctx, z, row, col + j, ww_vf_load(s + j, WW_VL) * scale, WW_VL);
		const ww_vf v1 = score(ctx, z, row, col + j + WW_VL, ww_vf_load(s + j + WW_VL, WW_VL) * scale, WW_VL);

		ww_vf_store(s + j, v0, WW_VL);
		ww_vf_store(s + j + WW_VL, v1, WW_VL);
		m0 = ww_vf_max(m0, v0);
		m1 = ww_vf_max(m1, v1);
	}
	for (; j < len; j += WW_VL) {
		const int n = (int)ww_min_ll(WW_VL, len - j);
		const ww_vf v = ww_vf_fill(score(ctx, z, row, col + j, ww_vf_load(s + j, WW_VL) * scale, n), n, -WW_INF);

		ww_vf_store(s + j, v, WW_VL);
		m0 = ww_vf_max(m0, v);
	}
	now = ww_vf_hmax(ww_vf_maxnan(m0, m1));
	keep = now == -WW_INF ? 0.0f : now; /* all keys hidden: exponentials of -inf */
	for (j = 0; j + 2 * WW_VL <= len; j += 2 * WW_VL) {
		const ww_vf e0 = ww_vf_exp(ww_vf_load(s + j, WW_VL) - keep),
					e1 = ww_vf_exp(ww_vf_load(s + j + WW_VL, WW_VL) - keep);

		ww_vf_store(s + j, e0, WW_VL);
		ww_vf_store(s + j + WW_VL, e1, WW_VL);
		a0 += e0;
		a1 += e1;
	}
	for (; j < len; j += WW_VL) {
		const ww_vf e = ww_vf_exp(ww_vf_load(s + j, WW_VL) - keep);

		ww_vf_store(s + j, e, WW_VL);
		a0 += e;
	}
	*max = now;
	keep = old == now ? 1.0f : old == -WW_INF ? 0.0f : __builtin_expf(old - now);
	*sum = *sum * keep + ww_vf_sum(a0 + a1);
	return keep;
}

/* Arguments: i64 heads, lq, lk, d; i64 batch, head and row strides of Q, of K, of V; i64 bq, bk; i32 causal; f32 scale;
 * Q, K, V.  The last dimension has stride 1.  K and V heads are those of Q divided by `group` (grouped queries), the
 * argument after heads.  Grid: x over query tiles (the longest first), y over batch * heads. */
#define WW_ATTN_ARGS 21
WW_FN void ww_cpu_attention(
	const struct ww_block *b, void *const *arg, ww_attn_score_fn score, ww_attn_store_fn store, const void *ctx)
{
	const long long heads = WW_ARG(long long, 0), group = WW_ARG(long long, 1), lq = WW_ARG(long long, 2);
	const long long lk = WW_ARG(long long, 3), d = WW_ARG(long long, 4), z = b->y;
	const long long qs = WW_ARG(long long, 7), ks = WW_ARG(long long, 10), vs = WW_ARG(long long, 13);
	const long long bq = WW_ARG(long long, 14), bk = WW_ARG(long long, 15);
	const long long dp = WW_CDIV(d, 2 * WW_VL) * 2 * WW_VL;
	const int causal = WW_ARG(int, 16);
	const float scale = WW_ARG(float, 17);
	const float *q = WW_ARG(const float *, 18) + z / heads * WW_ARG(long long, 5) + z % heads * WW_ARG(long long, 6);
	const float *k = WW_ARG(const float *, 19) + z / heads * WW_ARG(long long, 8) +
		z % heads / group * WW_ARG(long long, 9);
	const float *v = WW_ARG(const float *, 20) + z / heads * WW_ARG(long long, 11) +
		z % heads / group * WW_ARG(long long, 12);
	const long long q0 = (b->nx - 1 - b->x) * bq, q1 = ww_min_ll(lq, q0 + bq), seen = causal ? ww_min_ll(lk, q1) : lk;
	float *kp = b->shared, *vp = kp + bk * d, *o = vp + bk * dp, *s = o + bq * dp, *qc = s + WW_MR * (bk + 16);
	float *max = qc + WW_MR * WW_ROW_LD(d), *sum = max + bq;

	for (long long i = 0; i < q1 - q0; i++) {
		max[i] = -WW_INF;
		sum[i] = 0;
	}
	for (long long k0 = 0; k0 < seen; k0 += bk) {
		const long long kn = ww_min_ll(bk, seen - k0);
		const float *vt = v + k0 * vs;
		long long ldv = vs;

		for (long long p = 0; p < kn; p += WW_NR)
			ww_pack_nk(WW_OF_F32, kp + p * d, k + (k0 + p) * ks, ks, d, (int)ww_min_ll(WW_NR, kn - p));
		if (dp != d) { /* pad the rows of V so that whole vectors can be read */
			for (long long j = 0; j < kn; j++)
				for (long long i = 0; i < dp; i += WW_VL)
					ww_vf_store(vp + j * dp + i,
						i < d ? ww_vf_load(vt + j * vs + i, (int)ww_min_ll(WW_VL, d - i)) : ww_vf_zero(), WW_VL);
			vt = vp;
			ldv = dp;
		}
		for (long long r = q0; r < q1; r += WW_MR) {
			const int rows = (int)ww_min_ll(WW_MR, q1 - r);
			const long long cut = causal ? ww_min_ll(kn, r + rows - k0) : kn;
			const float *qr[WW_MR], *pr[WW_MR];

			if (cut <= 0)
				continue;
			ww_rows_take(WW_OF_F32, qr, q + r * qs, qs, d, rows, qc);
			for (int i = 0; i < WW_MR; i++)
				pr[i] = s + i * (bk + 16);
			for (long long p = 0; p < cut; p += WW_NR)
				ww_micro(0, WW_MR, WW_NV, qr, kp + p * d, WW_NR, d, s + p, bk + 16, 0);
			for (int i = 0; i < rows; i++) {
				const long long at = r - q0 + i, len = causal ? ww_min_ll(cut, r + i + 1 - k0) : cut;
				float keep = 1.0f, *oi = o + at * dp;

				if (len > 0)
					keep = ww_attn_row(s + i * (bk + 16), len, scale, max + at, sum + at, score, ctx, z, r + i, k0);
				for (long long j = ww_max_ll(len, 0); j < cut; j++)
					s[i * (bk + 16) + j] = 0.0f;
				for (long long j = 0; j < dp && k0 > 0 && keep != 1.0f; j += WW_VL)
					ww_vf_store(oi + j, ww_vf_load(oi + j, WW_VL) * keep, WW_VL);
			}
			for (long long j = 0; j < dp; j += 2 * WW_VL)
				ww_micro(0, WW_MR, 2, pr, vt + j, ldv, cut, o + (r - q0) * dp + j, dp, k0 > 0);
		}
	}
	for (long long r = q0; r < q1; r++) {
		const float inv = 1.0f / sum[r - q0];

		for (long long i = 0; i < d; i += WW_VL)
			store(ctx, z, r, i, (seen > 0 ? ww_vf_load(o + (r - q0) * dp + i, WW_VL) : ww_vf_zero()) * inv,
				(int)ww_min_ll(WW_VL, d - i));
	}
}

#endif
