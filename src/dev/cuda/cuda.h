/* cuda.h - what the C files of the cuda backend share. */
#pragma once

#include "dev/cuda/kernels.h"
#include "dev/dev.h"

#include <pthread.h>

struct ww_cu_gemms; /* gemm.c: cuBLASLt and the algorithms chosen so far */

struct ww_cuda {
	struct ww_dev dev;          /* first */
	int sms, hopper;            /* hopper: has that chip's own instructions */
	pthread_mutex_t lock;       /* of blocks */
	struct ww_cu_block *blocks; /* all memory given out */
	struct ww_cu_gemms *gemms;
};

/* A host copy of device memory that is on its way. */
struct ww_cu_copy {
	void *host;
	size_t at, bytes;
};

struct ww_stream {
	struct ww_cuda *d; /* first */
	cudaStream_t s;
	struct ww_err err; /* the first error; rc WW_OK: none */
	void *scratch, *gemm_work;
	size_t scratch_cap;
	int ready; /* gemm_work is counted */
	struct {
		char *p;
		size_t at;
		int half;
		cudaEvent_t free[2];
	} up; /* pinned, two halves */
	struct {
		char *p;
		size_t at;
		struct ww_cu_copy *copies;
		int n, cap;
	} down; /* pinned */
};

enum { WW_CU_GEMM_WORK = 64 << 20 };

/* Keep a cudaError_t that is not 0 as the stream's error. */
void ww_cu_note(struct ww_stream *s, int rc, const char *what);
/* At least `bytes` of device memory until the next call on this stream; NULL and an error on the stream without it. */
void *ww_cu_scratch(struct ww_stream *s, size_t bytes);
int ww_cu_capturing(struct ww_stream *s);

void ww_cu_graph_begin(struct ww_stream *s);
struct ww_graph *ww_cu_graph_end(struct ww_stream *s);
int ww_cu_graph_run(struct ww_stream *s, struct ww_graph *g);
void ww_cu_graph_free(struct ww_graph *g);

enum ww_rc ww_cu_gemms_new(struct ww_cuda *d, struct ww_cu_gemms **out, struct ww_err *err) WW_MUST_CHECK;
void ww_cu_gemms_free(struct ww_cu_gemms *g); /* NULL is fine; writes the cache of choices */
void ww_cu_product(struct ww_stream *s, enum ww_gemm_form form, struct ww_arr c, struct ww_arr a, struct ww_arr b,
	int64_t m, int64_t n, int64_t k, int accumulate);
