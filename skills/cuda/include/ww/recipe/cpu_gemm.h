/* recipe/cpu_gemm.h - launches for <ww/cpu/gemm.h>. */
#ifndef WW_RECIPE_CPU_GEMM_H
#define WW_RECIPE_CPU_GEMM_H
#include <ww/plan.h>

/* C = A B for `batch` matrices (0 counts as 1); A (m, k) with unit column stride; B (k, n), or with b_nk = 1 (n, k).
 * Strides in elements; a zero ld means dense.  Tunables: nb (multiple of 48), mt (multiple of 8), kc; 0 chooses. */
struct ww_cpu_gemm {
	long long m, n, k, batch;
	int a_buf, b_buf;
	long long a_offset_bytes, b_offset_bytes, lda, ldb, a_batch_stride, b_batch_stride;
	int b_nk, half; /* half: both of 16 bits (the kernels ww_cpu_gemm_f16, _bf16) */
	long long nb, mt, kc;
};
static inline void ww_recipe_cpu_gemm(struct ww_plan *p, const char *kernel, const struct ww_cpu_gemm *r)
{
	long long batch = r->batch ? r->batch : 1, want = 2 * ww_device(p)->threads, kc = r->kc, nb = r->nb, mt = r->mt;

	if (!kc)
		kc = ww_cdiv(r->k, ww_cdiv(ww_max(1, r->k), 1024));
	if (r->half)
		kc = ww_cdiv(kc, 2) * 2; /* a piece has whole pairs */
	if (!nb)
		nb = ww_max(48, ww_min(ww_cdiv(r->n, 48) * 48, 98304 / ww_max(1, kc) / 48 * 48));
	if (!mt) {
		/* a block has all rows if the columns alone give enough blocks: then B is packed once */
		mt = r->k > kc ? 512 : ww_cdiv(r->m, 8) * 8;
		while (mt > 64 && ww_cdiv(r->n, nb) * ww_cdiv(r->m, mt) * batch < want)
			mt = ww_cdiv(mt / 2, 8) * 8;
	}
	ww_launch(p, kernel, ww_cdiv(r->n, nb), ww_cdiv(r->m, mt), batch, 1, 1, 1);
	ww_shared(p, 4 * (kc * nb + 8 * (kc + 32) + (r->k > kc ? mt * nb : 8 * 48)));
	ww_arg_i64(p, r->m);
	ww_arg_i64(p, r->n);
	ww_arg_i64(p, r->k);
	ww_arg_i64(p, r->lda ? r->lda : r->k);
	ww_arg_i64(p, r->ldb ? r->ldb : r->b_nk ? r->k : r->n);
	ww_arg_i64(p, r->b_nk);
	ww_arg_i64(p, r->a_batch_stride);
	ww_arg_i64(p, r->b_batch_stride);
	ww_arg_i64(p, mt);
	ww_arg_i64(p, nb);
	ww_arg_i64(p, kc);
	ww_arg_buf(p, r->a_buf, r->a_offset_bytes);
	ww_arg_buf(p, r->b_buf, r->b_offset_bytes);
}

/* The same struct for ww_cpu_gemm_thin(), _f16, _bf16: b_nk must be 1; mt and kc are not used. */
static inline void ww_recipe_cpu_gemm_thin(struct ww_plan *p, const char *kernel, const struct ww_cpu_gemm *r)
{
	long long batch = r->batch ? r->batch : 1, rows = ww_cdiv(ww_min(r->m, 64), 8) * 8;
	long long nb = r->nb ? r->nb : ww_max(16, ww_min(256, ww_cdiv(r->n, 8 * ww_device(p)->threads) / 16 * 16));

	if (!r->b_nk)
		ww_fail(p, "ww_recipe_cpu_gemm_thin: B must be stored (n, k)");
	ww_launch(p, kernel, ww_cdiv(r->n, nb), ww_cdiv(r->m, 64), batch, 1, 1, 1);
	ww_shared(p, 4 * rows * (r->k + 48));
	ww_arg_i64(p, r->m);
	ww_arg_i64(p, r->n);
	ww_arg_i64(p, r->k);
	ww_arg_i64(p, r->lda ? r->lda : r->k);
	ww_arg_i64(p, r->ldb ? r->ldb : r->k);
	ww_arg_i64(p, r->a_batch_stride);
	ww_arg_i64(p, r->b_batch_stride);
	ww_arg_i64(p, nb);
	ww_arg_buf(p, r->a_buf, r->a_offset_bytes);
	ww_arg_buf(p, r->b_buf, r->b_offset_bytes);
}
#endif
