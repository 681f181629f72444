/* kernels.h - the inner loops of the cpu backend, compiled once for each vector width.
 *
 * All work on fp32 in plain memory; the drivers (cpu.c, gemm.c, attention.c) split the work, convert bf16 and pick the
 * table that this processor can run.  Every function is serial and has a fixed order of operations.
 */
#pragma once

#include "dev/dev.h"

/* One query row against keys for `group` heads that share a key-value head. */
struct ww_attn_row {
	const float *q;   /* (group, D) */
	float *out, *lse; /* (group, D), (group) or NULL */
	float *acc;       /* scratch (group, D) */
	int64_t group, head_dim, keys;
	float scale;
};

struct ww_cpu_kernels {
	const char *name;
	void (*from_bf16)(float *dst, const uint16_t *src, int64_t n);
	void (*to_bf16)(uint16_t *dst, const float *src, int64_t n);
	/* c (m,n) = or += a (m,k) . b (n,k)^T with row strides */
	void (*gemm_nt)(const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, int64_t m,
		int64_t n, int64_t k, int accumulate);
	/* c (m,n) = or += a . b (k,n); element (i, l) of a is a[i*ai + l*al] */
	void (*gemm_nn)(const float *a, int64_t ai, int64_t al, const float *b, int64_t ldb, float *c, int64_t ldc,
		int64_t m, int64_t n, int64_t k, int accumulate);
	float (*rms_row)(float *y, const float *x, const float *w, int64_t n, float eps);
	void (*rms_bwd_row)(float *dx, const float *dy, const float *x, const float *w, float rstd, int64_t n);
	void (*add)(float *y, const float *a, const float *b, int64_t n);
	void (*mul_add)(
		float *y, const float *a, const float *b, float s, int64_t n); /* y += a * b * s; b NULL: y += a * s */
	void (*rope_row)(float *x, const float *cs, int backward, int64_t d);
	void (*swiglu)(float *y, const float *gate, const float *up, int64_t n);
	void (*swiglu_bwd)(float *dgate, float *dup, const float *dy, const float *gate, const float *up, int64_t n);
	/* One block of at most WW_ATTN_BLOCK keys: state (group, 2) is {max, sum}, a->acc the weighted values so far. */
	void (*attn_block)(
		const struct ww_attn_row *a, float *state, const float *const *k, const float *const *v, int64_t n);
	/* The gradients of one query head and one block: q, dout, dq (D); k, v, dk, dv (n, D) dense. */
	void (*attn_bwd_block)(const float *q, const float *dout, float *dq, const float *k, const float *v, float *dk,
		float *dv, int64_t n, int64_t d, float scale, float lse, float delta);
	float (*dot)(const float *a, const float *b, int64_t n);
	float (*row_max)(const float *x, int64_t n);
	float (*sum_exp)(const float *x, float shift, int64_t n);     /* sum of exp(x - shift) */
	float (*sum_entropy)(const float *x, float shift, int64_t n); /* sum of exp(x - shift) * (shift - x) */
	void (*exp_scale)(float *y, const float *x, float shift, float s, int64_t n); /* y = s * exp(x - shift) */
	double (*sumsq)(const float *x, int64_t n);
	void (*adamw)(float *p, float *m, float *v, const float *g, float scale, const struct ww_adamw *h, float c1,
		float c2, int64_t n);
};

extern const struct ww_cpu_kernels ww_cpu_kernels_base, ww_cpu_kernels_avx2, ww_cpu_kernels_avx512;
