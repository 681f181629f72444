/* dev.h - what a device can do: memory, streams, matrix products and the operations of a transformer.
 *
 * One table of functions, struct ww_dev_ops, stands for one kind of device; `ref` (scalar, double precision inside,
 * slow), `cpu` and, as a plug-in, `cuda` fill it.  Everything above (src/nn and on) sees only this file.
 *
 * - Every array argument is device memory: the caller never reads through it, not even on cpu.  Host memory appears in
 *   upload and download only.
 * - Work is put on a stream in order.  An operation returns nothing: an error (memory, launch, fault) stays on the
 *   stream, later work on it does nothing, and sync reports the first one.  Wrong shapes are bugs of the caller.
 * - Activations and weights are fp32 or bf16 (struct ww_arr says which); sums are made in fp32; gradients of weights,
 *   statistics and optimizer state are fp32, named float * here.
 * - "+=" in a comment: the result is added to the output.  All other operations overwrite theirs.
 * - Exactness.  With `exact` set on the device, each row of an output of gemm (NT form), rmsnorm, rope, swiglu,
 *   attention and the softmax over chunks with its entropy depends on that row's inputs alone, bit for bit.  It does
 * not depend on the number of rows, on its position among them, or on whether keys come from a page table or a packed
 * batch.  An element of that gemm does not depend on other columns either: where all parts have a multiple of eight
 * columns, a product with weights side by side has the bits of one product for each part.  All reductions have a fixed
 * order in either mode, so equal calls give equal bits.
 *
 * Shapes: T tokens (rows), H hidden, F intermediate, V vocabulary, A heads, K key-value heads, D dimensions of a head.
 */
#pragma once

#include "base/mem.h"
#include "dev/sample.h"

#include <ww/plan.h>

#include <stddef.h>
#include <stdint.h>

struct ww_dev;
struct ww_stream;
struct ww_graph;

struct ww_arr {
	void *p;   /* device memory */
	int dtype; /* WW_F32 or WW_BF16 */
};

enum ww_gemm_form {
	WW_GEMM_NT, /* c (m,n) = a (m,k) . b (n,k)^T : y = x W^T */
	WW_GEMM_NN, /* c (m,n) = a (m,k) . b (k,n)   : dx = dy W */
	WW_GEMM_TN  /* c (m,n) = a (k,m)^T . b (k,n) : dW = dy^T x */
};

/* Causal attention of T query rows over keys and values in rows of (K, D).  Rows come sequence by sequence: sequence s
 * has rows start[s]..start[s+1]-1 (none is fine), in order of their positions, which follow one another.  Row t belongs
 * to sequence seq[t] and sees positions 0..pos[t].  Position p of sequence s lies in row pages ? pages[s * pages_stride
 * + p / page_size] * page_size + p % page_size : start[s] + p. Keys are taken in blocks of WW_ATTN_BLOCK that begin at
 * position 0 and merged from left to right.  A page holds a multiple of eight positions; what lies in pages behind a
 * sequence's last position is finite, or was never written. */
enum { WW_ATTN_BLOCK = 64 };
struct ww_attn {
	struct ww_arr q, out;     /* (T, A, D) */
	struct ww_arr k, v;       /* rows of (K, D) */
	float *lse;               /* (T, A) log of the sum of exponentials, or NULL */
	const int32_t *seq, *pos; /* (T) */
	const int32_t *start;     /* (sequences + 1) */
	const int32_t *pages;     /* (sequences, pages_stride), or NULL */
	int64_t pages_stride, page_size;
	int64_t t, sequences, heads, kv_heads, head_dim;
	/* Upper bounds of a sequence's rows here and of its positions: they choose kernels and sizes of workspaces, never a
	 * result. A captured graph is good for batches within the bounds that it was captured with. */
	int64_t rows_max, keys_max;
	float scale;
};
/* The gradients, for a packed batch: keys and queries are the same rows. */
struct ww_attn_bwd {
	struct ww_attn fwd;             /* as run, with lse; pages NULL */
	struct ww_arr dout, dq, dk, dv; /* dout (T, A, D) is read, the others are written */
};

/* From the products to attention over a cache: q (T, A, D) and k (T, K, D) are normed head by head where q_norm and
 * k_norm have weights (p not NULL), then rotated by cs.  q goes to q_out, which may be q; k and v (T, K, D) go to rows
 * `rows` of the cache.  The tokens of q, k and v lie `stride` elements apart; 0: each array is dense. */
struct ww_rope_to_cache {
	struct ww_arr q, k, v, q_norm, k_norm, q_out;
	int64_t stride;
	struct ww_arr k_cache, v_cache; /* rows of (K, D) */
	const float *cs;                /* (T, D) of rope_table */
	const int32_t *rows;            /* (T) */
	int64_t t, heads, kv_heads, head_dim;
	float eps;
};

struct ww_adamw {
	float lr, beta1, beta2, eps, weight_decay;
	int64_t step; /* from 1 */
};

/* What training will ask of a device, as far as its workspace depends on it. */
struct ww_work {
	int dtype;
	int64_t t, longest;       /* tokens of a batch, of a sequence */
	int64_t widest, head_dim; /* columns of the widest activation */
	int64_t matrix;           /* elements of the largest matrix of weights */
	int64_t head_t, head_v;   /* rows and columns of logits */
};

struct ww_dev_ops {
	const char *name;
	/* Memory is 64-byte aligned; its contents are undefined. */
	enum ww_rc (*alloc)(struct ww_dev *d, size_t bytes, void **out, struct ww_err *err);
	void (*free)(struct ww_dev *d, void *p);
	/* Bytes that could be allocated now, and that the device has. */
	void (*memory)(struct ww_dev *d, uint64_t *free_bytes, uint64_t *total_bytes);
	/* Bytes that the backend takes for itself, at most, to do such work; NULL where it takes next to none. */
	uint64_t (*workspace)(struct ww_dev *d, const struct ww_work *w);
	enum ww_rc (*stream_new)(struct ww_dev *d, struct ww_stream **out, struct ww_err *err);
	void (*stream_free)(struct ww_stream *s);
	/* Wait for all work on the stream; the first error since the last sync, if any. */
	enum ww_rc (*sync)(struct ww_stream *s, struct ww_err *err);
	void (*close)(struct ww_dev *d);

	/* Operations that are put on the stream between graph_begin and graph_end are not done but recorded, and done by
	 * each graph_run with what their arrays hold then.  They are to be recorded after some plain runs with the same
	 * arguments, so that nothing has to be chosen or allocated any more.  graph_end: NULL: an error, which is on the
	 * stream.  graph_run: 0: nothing was done, record anew.  graph_begin is NULL where a device has no graphs; uploads,
	 * downloads and sync are not recorded. */
	void (*graph_begin)(struct ww_stream *s);
	struct ww_graph *(*graph_end)(struct ww_stream *s);
	int (*graph_run)(struct ww_stream *s, struct ww_graph *g);
	void (*graph_free)(struct ww_graph *g); /* NULL is fine; before its stream is freed */

	/* Host memory must stay as it is until sync. */
	void (*upload)(struct ww_stream *s, void *dst, const void *host, size_t bytes);
	void (*download)(struct ww_stream *s, void *host, const void *src, size_t bytes);
	void (*zero)(struct ww_stream *s, void *dst, size_t bytes);
	void (*cast)(struct ww_stream *s, struct ww_arr dst, struct ww_arr src, int64_t n);

	/* c = a.b, or c += a.b where accumulate is set.  c may be fp32 while a and b are bf16. */
	void (*gemm)(struct ww_stream *s, enum ww_gemm_form form, struct ww_arr c, struct ww_arr a, struct ww_arr b,
		int64_t m, int64_t n, int64_t k, int accumulate);
	/* y (T,N) += bias (N);  dbias (N) += sum over rows of dy */
	void (*bias)(struct ww_stream *s, struct ww_arr y, struct ww_arr bias, int64_t t, int64_t n);
	void (*bias_bwd)(struct ww_stream *s, float *dbias, struct ww_arr dy, int64_t t, int64_t n);
	/* y = a + b; y may be a or b */
	void (*add)(struct ww_stream *s, struct ww_arr y, struct ww_arr a, struct ww_arr b, int64_t n);

	/* y (T,H) = table[ids[t]];  dtable (V,H) += dy */
	void (*embed)(struct ww_stream *s, struct ww_arr y, struct ww_arr table, const int32_t *ids, int64_t t, int64_t h);
	void (*embed_bwd)(struct ww_stream *s, float *dtable, struct ww_arr dy, const int32_t *ids, int64_t t, int64_t h);

	/* Row rows[i] of dst = row i of src (T, width); one type.  Fills the key-value cache. */
	void (*scatter)(
		struct ww_stream *s, struct ww_arr dst, struct ww_arr src, const int32_t *rows, int64_t t, int64_t width);

	/* y = x * rstd * w, rstd = 1/sqrt(mean(x^2) + eps), over rows of h; y may be x, rstd (T) may be NULL.  Serves the
	 * norm of queries and keys too, with t = rows * heads and h = D. */
	void (*rmsnorm)(struct ww_stream *s, struct ww_arr y, float *rstd, struct ww_arr x, struct ww_arr w, int64_t t,
		int64_t h, float eps);
	/* dx is written and may be dy; dw (H) += */
	void (*rmsnorm_bwd)(struct ww_stream *s, struct ww_arr dx, float *dw, struct ww_arr dy, struct ww_arr x,
		struct ww_arr w, const float *rstd, int64_t t, int64_t h);

	/* cs (T, D): cosines of pos[t] * freq[i] times `factor` for i < D/2, then the sines.  Made once a batch. */
	void (*rope_table)(
		struct ww_stream *s, float *cs, const int32_t *pos, const float *freq, float factor, int64_t t, int64_t d);
	/* In place on x (T, A, D): the pair (i, i + D/2) turns by its angle.  The gradient is the inverse turn, backward
	 * = 1. */
	void (*rope)(
		struct ww_stream *s, struct ww_arr x, const float *cs, int backward, int64_t t, int64_t heads, int64_t d);

	/* Several operations in one pass over memory, with the bits that they give one after the other.
	 * add_rmsnorm: add into sum, rmsnorm of sum into y.  rope_to_cache: rmsnorm, rope, scatter; q and k are undefined
	 * afterwards.  swiglu_pairs: rows of gu (T, 2F) hold gate and up. */
	void (*add_rmsnorm)(struct ww_stream *s, struct ww_arr sum, struct ww_arr y, float *rstd, struct ww_arr a,
		struct ww_arr b, struct ww_arr w, int64_t t, int64_t h, float eps);
	void (*rope_to_cache)(struct ww_stream *s, const struct ww_rope_to_cache *p);
	void (*swiglu_pairs)(struct ww_stream *s, struct ww_arr y, struct ww_arr gu, int64_t t, int64_t f);
	/* norm_rope: rmsnorm of x (T, A, D) into y, rope of y.  norm_rope_bwd: dx, which holds the gradient of y, turned
	 * back by rope and then through rmsnorm_bwd.  rmsnorm_bwd_add: dres += what rmsnorm_bwd writes; what is left in dy
	 * is undefined. */
	void (*norm_rope)(struct ww_stream *s, struct ww_arr y, float *rstd, struct ww_arr x, struct ww_arr w,
		const float *cs, int64_t t, int64_t heads, int64_t d, float eps);
	void (*norm_rope_bwd)(struct ww_stream *s, struct ww_arr dx, float *dw, struct ww_arr x, struct ww_arr w,
		const float *rstd, const float *cs, int64_t t, int64_t heads, int64_t d);
	void (*rmsnorm_bwd_add)(struct ww_stream *s, struct ww_arr dres, float *dw, struct ww_arr dy, struct ww_arr x,
		struct ww_arr w, const float *rstd, int64_t t, int64_t h);

	void (*attention)(struct ww_stream *s, const struct ww_attn *a);
	void (*attention_bwd)(struct ww_stream *s, const struct ww_attn_bwd *a);

	/* y = silu(gate) * up over n elements */
	void (*swiglu)(struct ww_stream *s, struct ww_arr y, struct ww_arr gate, struct ww_arr up, int64_t n);
	/* dgate and dup are written; dup may be dy */
	void (*swiglu_bwd)(struct ww_stream *s, struct ww_arr dgate, struct ww_arr dup, struct ww_arr dy,
		struct ww_arr gate, struct ww_arr up, int64_t n);

	/* The softmax over a vocabulary that is never whole: logits (T, n) fp32 hold columns first..first+n-1 of V.  State
	 * (T, 3) is {max, sum of exp(logit - max), logit of the target}; first == 0 begins it. */
	void (*softmax_chunk)(struct ww_stream *s, float *state, const float *logits, const int32_t *targets, int64_t t,
		int64_t first, int64_t n);
	/* logp (T) = target logit - lse, lse (T) = max + log(sum); either may be NULL */
	void (*softmax_finish)(struct ww_stream *s, float *logp, float *lse, const float *state, int64_t t);
	/* lse (T) of whole rows of logits (T, V), with the bits that softmax_chunk over chunks of columns and
	 * softmax_finish give.  state (T, 3) and targets are as there, and what is left in state is undefined. */
	void (*lse_rows)(struct ww_stream *s, float *lse, float *state, const int32_t *targets, const float *logits,
		int64_t t, int64_t v, int64_t chunk);
	/* dlogits (T, n) = dlogp[t] * ((target == column) - exp(logit - lse[t])); dlogits may be logits where it is fp32 */
	void (*softmax_bwd)(struct ww_stream *s, struct ww_arr dlogits, const float *logits, const int32_t *targets,
		const float *lse, const float *dlogp, int64_t t, int64_t first, int64_t n);

	/* entropy (T) += sum over the n columns of p * -log p, p = exp(logit - lse[t]); first == 0 begins it. */
	void (*softmax_entropy)(struct ww_stream *s, float *entropy, const float *logits, const float *lse, int64_t t,
		int64_t first, int64_t n);

	/* A token for each of t rows, out[i] by how[i] (both device).  The logits lie in chunks of columns as gemm wrote
	 * them: that of row i and column j is logits[t * c + i * w + j - c], c being j rounded down to a multiple of
	 * `chunk` and w the columns of that chunk, min(chunk, v - c). */
	void (*sample)(struct ww_stream *s, struct ww_sampled *out, const struct ww_sampler *how, const float *logits,
		const float *lse, int64_t t, int64_t v, int64_t chunk);

	/* out[0] += sum of x^2, by a fixed order */
	void (*sumsq)(struct ww_stream *s, float *out, const float *x, int64_t n);
	/* out[0] = min(1, limit / sqrt(in[0])); 1 where in[0] is 0 */
	void (*clip_factor)(struct ww_stream *s, float *out, const float *in, float limit);
	/* AdamW with decoupled decay on fp32 masters; grad is multiplied by *scale (device) first; `model` receives a
	 * rounded copy unless its p is NULL. */
	void (*adamw)(struct ww_stream *s, float *master, struct ww_arr model, float *m, float *v, const float *grad,
		const float *scale, const struct ww_adamw *h, int64_t n);
};

/* Members of a backend's table, by functions p_NAME: those that each backend has its own for, and those that are other
 * operations one after the other unless a backend fuses them (p is ww_dev). */
#define WW_DEV_OP(p, name) .name = p##_##name,
#define WW_DEV_OPS(p) \
	WW_DEV_OP(p, stream_new) WW_DEV_OP(p, stream_free) WW_DEV_OP(p, sync) WW_DEV_OP(p, close) \
	WW_DEV_OP(p, zero) WW_DEV_OP(p, bias) WW_DEV_OP(p, bias_bwd) WW_DEV_OP(p, add) WW_DEV_OP(p, embed) \
	WW_DEV_OP(p, embed_bwd) WW_DEV_OP(p, scatter) WW_DEV_OP(p, rmsnorm) WW_DEV_OP(p, rmsnorm_bwd) \
	WW_DEV_OP(p, rope_table) WW_DEV_OP(p, rope) WW_DEV_OP(p, swiglu) WW_DEV_OP(p, swiglu_bwd) \
	WW_DEV_OP(p, softmax_chunk) WW_DEV_OP(p, softmax_finish) WW_DEV_OP(p, softmax_bwd) WW_DEV_OP(p, softmax_entropy) \
	WW_DEV_OP(p, sample) WW_DEV_OP(p, sumsq) WW_DEV_OP(p, clip_factor) WW_DEV_OP(p, adamw)
#define WW_DEV_FUSED_OPS(p) \
	WW_DEV_OP(p, add_rmsnorm) WW_DEV_OP(p, norm_rope) WW_DEV_OP(p, norm_rope_bwd) WW_DEV_OP(p, rmsnorm_bwd_add) \
	WW_DEV_OP(p, rope_to_cache) WW_DEV_OP(p, swiglu_pairs) WW_DEV_OP(p, lse_rows)

struct ww_dev {
	const struct ww_dev_ops *ops;
	int exact;
	int wide; /* one product is faster than several of the same rows */
	/* Bytes taken by alloc and by the backend's own workspaces, and the most there ever were; a backend counts with
	 * ww_dev_count(). */
	int64_t used_bytes, peak_bytes;
	char id[48]; /* what it is called where processes share it (host/lease.h): a GPU's uuid, "cpu" */
	/* What the last bits of results depend on beside the arguments, in words: "NVIDIA H200, 132 multiprocessors",
	 * "avx512", "cuBLASLt 130200". */
	struct {
		char device[320], kernels[32], libraries[256];
	} bits;
};

/* Count `bytes` more (or less, where negative) in use.  Safe from several threads. */
static inline void ww_dev_count(struct ww_dev *d, int64_t bytes)
{
	int64_t now = __atomic_add_fetch(&d->used_bytes, bytes, __ATOMIC_RELAXED);
	int64_t peak = __atomic_load_n(&d->peak_bytes, __ATOMIC_RELAXED);
	while (
		now > peak && !__atomic_compare_exchange_n(&d->peak_bytes, &peak, now, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		continue;
}

/* "ref", "cpu", "cuda", or "auto": cuda where it works, else cpu.  exact: see above. */
enum ww_rc ww_dev_open(const char *name, int exact, struct ww_dev **out, struct ww_err *err) WW_MUST_CHECK;
void ww_dev_close(struct ww_dev *d); /* NULL is fine */

/* The fused operations as calls of the single ones, for the tables of backends that gain nothing by fusion.  They find
 * the single operations through the stream: every backend's struct ww_stream begins with a pointer to its device. */
void ww_dev_add_rmsnorm(struct ww_stream *s, struct ww_arr sum, struct ww_arr y, float *rstd, struct ww_arr a,
	struct ww_arr b, struct ww_arr w, int64_t t, int64_t h, float eps);
void ww_dev_rope_to_cache(struct ww_stream *s, const struct ww_rope_to_cache *p);
void ww_dev_swiglu_pairs(struct ww_stream *s, struct ww_arr y, struct ww_arr gu, int64_t t, int64_t f);
void ww_dev_norm_rope(struct ww_stream *s, struct ww_arr y, float *rstd, struct ww_arr x, struct ww_arr w,
	const float *cs, int64_t t, int64_t heads, int64_t d, float eps);
void ww_dev_norm_rope_bwd(struct ww_stream *s, struct ww_arr dx, float *dw, struct ww_arr x, struct ww_arr w,
	const float *rstd, const float *cs, int64_t t, int64_t heads, int64_t d);
void ww_dev_rmsnorm_bwd_add(struct ww_stream *s, struct ww_arr dres, float *dw, struct ww_arr dy, struct ww_arr x,
	struct ww_arr w, const float *rstd, int64_t t, int64_t h);

void ww_dev_lse_rows(struct ww_stream *s, float *lse, float *state, const int32_t *targets, const float *logits,
	int64_t t, int64_t v, int64_t chunk);

/* One row of the operation `sample` on the host, for backends and tests; weight: room for v numbers. */
void ww_dev_sample(
	const float *logits, int64_t v, float lse, const struct ww_sampler *d, uint64_t *weight, struct ww_sampled *out);
/* Row i of chunked logits (see `sample`) into out (v). */
void ww_dev_sample_row(const float *logits, int64_t i, int64_t t, int64_t v, int64_t chunk, float *out);

/* bf16 on the host: round to nearest even (NaN stays NaN), and back. */
uint16_t ww_bf16_from(float x);
float ww_bf16_to(uint16_t x);

/* Memory of devices whose memory is the host's: alloc, free and memory of the table above. */
enum ww_rc ww_dev_host_alloc(struct ww_dev *d, size_t bytes, void **out, struct ww_err *err) WW_MUST_CHECK;
void ww_dev_host_free(struct ww_dev *d, void *p);
void ww_dev_host_memory(struct ww_dev *d, uint64_t *free_bytes, uint64_t *total_bytes);

/* The backends' constructors. */
enum ww_rc ww_dev_ref_open(struct ww_dev **out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_dev_cpu_open(int exact, struct ww_dev **out, struct ww_err *err) WW_MUST_CHECK;

/* The cuda backend is a plug-in that exports this function.  ops_bytes is the caller's sizeof(struct ww_dev_ops): a
 * plug-in of another build is refused. */
#define WW_DEV_PLUGIN_CUDA "libwarpwright-engine-cuda.so"
enum ww_rc ww_dev_cuda_open(size_t ops_bytes, int exact, struct ww_dev **out, struct ww_err *err) WW_MUST_CHECK;
