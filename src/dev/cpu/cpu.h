/* cpu.h - what the files of the cpu backend share. */
#pragma once

#include "dev/cpu/kernels.h"
#include "dev/cpu/pool.h"

enum { WW_CPU_SLOTS = 4, WW_CPU_SUB = 1024 };

struct ww_cpu {
	struct ww_dev dev; /* first */
	struct ww_pool *pool;
	const struct ww_cpu_kernels *k;
	void *blas; /* handle of libopenblas, fast mode only */
	void (*sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
		int ldb, float beta, float *c, int ldc);
};

struct ww_stream {
	struct ww_cpu *d;  /* first */
	struct ww_err err; /* the first error; rc WW_OK: none */
	struct {
		float *p;
		size_t cap;
	} scratch[WW_CPU_SLOTS];
};

/* At least `floats` floats that stay until the next call for the same slot; NULL and an error on the stream without
 * memory. */
float *ww_cpu_scratch(struct ww_stream *s, int slot, int64_t floats);

/* Elements at..at+n-1 as fp32: in place, or converted into buf. */
static inline const float *ww_cpu_in(const struct ww_cpu *d, struct ww_arr a, int64_t at, int64_t n, float *buf)
{
	if (a.dtype == WW_F32)
		return (const float *)a.p + at;
	d->k->from_bf16(buf, (const uint16_t *)a.p + at, n);
	return buf;
}

/* Where to write them: in place, or buf, which ww_cpu_flush() then converts. */
static inline float *ww_cpu_out(struct ww_arr a, int64_t at, float *buf)
{
	return a.dtype == WW_F32 ? (float *)a.p + at : buf;
}

static inline void ww_cpu_flush(const struct ww_cpu *d, struct ww_arr a, int64_t at, int64_t n, const float *buf)
{
	if (a.dtype != WW_F32)
		d->k->to_bf16((uint16_t *)a.p + at, buf, n);
}

void ww_cpu_cast(struct ww_stream *s, struct ww_arr dst, struct ww_arr src, int64_t n);
void ww_cpu_gemm(struct ww_stream *s, enum ww_gemm_form form, struct ww_arr c, struct ww_arr a, struct ww_arr b,
	int64_t m, int64_t n, int64_t k, int accumulate);
void ww_cpu_attention(struct ww_stream *s, const struct ww_attn *a);
void ww_cpu_attention_bwd(struct ww_stream *s, const struct ww_attn_bwd *a);
void ww_cpu_blas_open(struct ww_cpu *d);
