/* kernels.h - the launchers of the cuda backend's kernels: what C calls and the .cu files define.
 *
 * Every launcher puts work on a stream and returns a cudaError_t as int.  `bf16` says that the untyped arrays are bf16
 * and not fp32; arrays named float * are always fp32.  Workspaces come from the caller, sized by the functions beside
 * the launchers. Shapes and meanings are those of dev.h.
 */
#pragma once

#include <cuda_runtime_api.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- point.cu: elements on their own */
int ww_cu_cast(cudaStream_t s, void *dst, int dst_bf16, const void *src, int src_bf16, int64_t n);
int ww_cu_add(cudaStream_t s, int bf16, void *y, const void *a, const void *b, int64_t n);
int ww_cu_bias(cudaStream_t s, int bf16, void *y, const void *bias, int64_t t, int64_t n);
int ww_cu_swiglu(cudaStream_t s, int bf16, void *y, const void *gate, const void *up, int64_t n);
int ww_cu_swiglu_bwd(
	cudaStream_t s, int bf16, void *dgate, void *dup, const void *dy, const void *gate, const void *up, int64_t n);
int ww_cu_embed(cudaStream_t s, int bf16, void *y, const void *table, const int32_t *ids, int64_t t, int64_t h);
int ww_cu_scatter(cudaStream_t s, int bf16, void *dst, const void *src, const int32_t *rows, int64_t t, int64_t width);
int ww_cu_rope_table(
	cudaStream_t s, float *cs, const int32_t *pos, const float *freq, float factor, int64_t t, int64_t d);
int ww_cu_rope(cudaStream_t s, int bf16, void *x, const float *cs, int backward, int64_t t, int64_t heads, int64_t d);

struct ww_cu_adamw {
	float lr, beta1, beta2, eps, decay, c1, c2;
}; /* c1, c2: 1 / (1 - beta^step) */
int ww_cu_adamw(cudaStream_t s, float *master, void *model, int model_bf16, float *m, float *v, const float *grad,
	const float *scale, const struct ww_cu_adamw *h, int64_t n);
int ww_cu_clip_factor(cudaStream_t s, float *out, const float *in, float limit);

/* ---- rows.cu: sums over rows and columns */
int64_t ww_cu_rows_max_width(void); /* of rmsnorm and its gradient */
int ww_cu_rmsnorm(
	cudaStream_t s, int bf16, void *y, float *rstd, const void *x, const void *w, int64_t t, int64_t h, float eps);
size_t ww_cu_rmsnorm_bwd_bytes(int64_t t, int64_t h);
int ww_cu_rmsnorm_bwd(cudaStream_t s, int bf16, void *dx, float *dw, const void *dy, const void *x, const void *w,
	const float *rstd, int64_t t, int64_t h, float *work);
/* Fused as dev.h says.  norm_rope fits heads of 32, 64, 128 and 256 dimensions at aligned addresses. */
int ww_cu_rmsnorm_bwd_add(cudaStream_t s, int bf16, void *dres, float *dw, const void *dy, const void *x, const void *w,
	const float *rstd, int64_t t, int64_t h, float *work);
int ww_cu_norm_rope_fits(const void *y, const void *x, const void *w, const float *cs, int64_t d);
int ww_cu_norm_rope(cudaStream_t s, int bf16, void *y, float *rstd, const void *x, const void *w, const float *cs,
	int64_t t, int64_t heads, int64_t d, float eps);
int ww_cu_norm_rope_bwd(cudaStream_t s, int bf16, void *dx, float *dw, const void *x, const void *w, const float *rstd,
	const float *cs, int64_t t, int64_t heads, int64_t d,
	float *work); /* work: ww_cu_rmsnorm_bwd_bytes(t * heads, d) */
size_t ww_cu_bias_bwd_bytes(int64_t t, int64_t n);
int ww_cu_bias_bwd(cudaStream_t s, int bf16, float *dbias, const void *dy, int64_t t, int64_t n, float *work);
size_t ww_cu_embed_bwd_bytes(int64_t t);
int ww_cu_embed_bwd(
	cudaStream_t s, int bf16, float *dtable, const void *dy, const int32_t *ids, int64_t t, int64_t h, void *work);
int ww_cu_softmax_chunk(
	cudaStream_t s, float *state, const float *logits, const int32_t *targets, int64_t t, int64_t first, int64_t n);
int ww_cu_softmax_finish(cudaStream_t s, float *logp, float *lse, const float *state, int64_t t);
int ww_cu_softmax_bwd(cudaStream_t s, int bf16, void *dlogits, const float *logits, const int32_t *targets,
	const float *lse, const float *dlogp, int64_t t, int64_t first, int64_t n);
int ww_cu_softmax_entropy(
	cudaStream_t s, float *entropy, const float *logits, const float *lse, int64_t t, int64_t first, int64_t n);
struct ww_sampler;
size_t ww_cu_lse_rows_bytes(int64_t t, int64_t v, int64_t chunk);
int ww_cu_lse_rows(cudaStream_t s, float *lse, const float *logits, int64_t t, int64_t v, int64_t chunk, void *work);
struct ww_sampled;
int ww_cu_sample(cudaStream_t s, struct ww_sampled *out, const struct ww_sampler *how, const float *logits,
	const float *lse, int64_t t, int64_t v, int64_t chunk);
size_t ww_cu_sumsq_bytes(void);
int ww_cu_sumsq(cudaStream_t s, float *out, const float *x, int64_t n, double *work);

/* ---- fused.cu: what the single operations give, bit for bit; for shapes that fit */
int ww_cu_add_rmsnorm_fits(const void *sum, const void *y, const void *a, const void *b, const void *w, int64_t h);
int ww_cu_add_rmsnorm(cudaStream_t s, int bf16, void *sum, void *y, float *rstd, const void *a, const void *b,
	const void *w, int64_t t, int64_t h, float eps);
struct ww_cu_rope_to_cache {
	const void *q, *k, *v, *q_norm, *k_norm;
	void *q_out, *k_cache, *v_cache;
	int64_t q_stride, kv_stride; /* elements from one token to the next */
	const float *cs;
	const int32_t *rows;
	int64_t t, heads, kv_heads, head_dim;
	float eps;
};
int ww_cu_rope_to_cache_fits(const struct ww_cu_rope_to_cache *p);
int ww_cu_rope_to_cache(cudaStream_t s, int bf16, const struct ww_cu_rope_to_cache *p);
int ww_cu_swiglu_pairs_fits(const void *y, const void *gu, int64_t f);
int ww_cu_swiglu_pairs(cudaStream_t s, int bf16, void *y, const void *gu, int64_t t, int64_t f);

/* ---- gemm_own.cu: element (i, l) of a is a[i * ai + l * al], (l, j) of b is b[l * bl + j * bj]; sums run along l from
 * 0 */
int ww_cu_gemm(cudaStream_t s, int ab_bf16, int c_bf16, void *c, const void *a, int64_t ai, int64_t al, const void *b,
	int64_t bl, int64_t bj, int64_t m, int64_t n, int64_t k, int accumulate);
/* *differ (device) is set to 1 where the bytes of a and b are not equal. */
int ww_cu_differ(cudaStream_t s, int *differ, const void *a, const void *b, size_t bytes);
/* Numbers in -1..1 that depend on seed and index only. */
int ww_cu_random(cudaStream_t s, int bf16, void *x, int64_t n, uint32_t seed);

/* ---- attn_*.cu */
struct ww_cu_attn {
	const void *q, *k, *v;
	void *out;
	float *lse;
	const int32_t *seq, *pos, *start, *pages;
	int64_t pages_stride, page_size;
	int64_t t, sequences, rows_max, keys_max;
	int heads, kv_heads, head_dim;
	float scale;
};
struct ww_cu_attn_bwd {
	struct ww_cu_attn fwd;
	const void *dout;
	void *dq, *dk, *dv;
};

/* Whether the tensor core kernels take this shape (bf16 only). */
int ww_cu_attn_fits(const struct ww_cu_attn *a);
size_t ww_cu_attn_fwd_bytes(const struct ww_cu_attn *a, int sms);
int ww_cu_attn_fwd(cudaStream_t s, const struct ww_cu_attn *a, int sms, void *work);
size_t ww_cu_attn_bwd_bytes(const struct ww_cu_attn *a); /* also that of ww_cu_attn_any_bwd() */
int ww_cu_attn_bwd(cudaStream_t s, const struct ww_cu_attn_bwd *b, void *work);
/* The same on Hopper's own instructions, which only that chip has. */
int ww_cu_attn_hopper_fits(const struct ww_cu_attn *a);
size_t ww_cu_attn_hopper_fwd_bytes(const struct ww_cu_attn *a, int sms);
int ww_cu_attn_hopper_fwd(cudaStream_t s, const struct ww_cu_attn *a, int sms, void *work);
int ww_cu_attn_hopper_bwd(cudaStream_t s, const struct ww_cu_attn_bwd *b, void *work);
/* Any shape up to ww_cu_attn_any_max() dimensions, one warp a row. */
int ww_cu_attn_any_max(void);
int ww_cu_attn_any_fwd(cudaStream_t s, int bf16, const struct ww_cu_attn *a);
int ww_cu_attn_any_bwd(cudaStream_t s, int bf16, const struct ww_cu_attn_bwd *b, void *work);
/* fp32 in tiles of 64 rows, forward with the bits of ww_cu_attn_any_fwd(); many: the batch has rows enough for it to
 * pay. */
int ww_cu_attn_f32_fits(const struct ww_cu_attn *a);
int ww_cu_attn_f32_splits(const struct ww_cu_attn *a);
int ww_cu_attn_f32_fwd(cudaStream_t s, const struct ww_cu_attn *a);
int ww_cu_attn_f32_bwd(cudaStream_t s, const struct ww_cu_attn_bwd *b, void *work);
/* delta (T, A) = sum of dout * out */
int ww_cu_attn_delta(cudaStream_t s, int bf16, float *delta, const void *dout, const void *out, int64_t rows, int d);

#ifdef __cplusplus
}
#endif
