/* plugin.c - the cuda backend: device, memory, streams, and the table of operations around the kernels.
 *
 * This and the other files of the folder make a library of their own that is loaded when the device "cuda" is opened
 * (dev.c), so that the program starts without a driver.  The runtime is linked in statically and finds the driver
 * itself; cuBLASLt is opened by gemm.c.
 *
 * Nothing waits for the device but sync, freeing memory, and a staging area that is full.
 *
 * Staging.  Copies from and to pageable memory would make the driver wait or copy twice, so host memory passes through
 * pinned areas.  Uploads are copied at once, the caller's memory is free when upload() returns; the area has two
 * halves, and one is used again when an event says that its copies have ended.  Downloads land in the area and reach
 * the caller's memory in sync.
 *
 * Scratch.  An operation's workspace is the stream's one block, which grows to the largest that was asked for:
 * operations of a stream follow one another, so they can share it.
 *
 * Errors.  The first one stays on the stream until sync, later work does nothing.  A fault in a kernel is sticky: the
 * context is lost, and every later call says so.
 */
#include "dev/cuda/cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UP_HALF = 4 << 20, DOWN_BYTES = 8 << 20, COPIES_MAX = 1 << 16, ALIGN = 64 };

void ww_cu_note(struct ww_stream *s, int rc, const char *what)
{
	if (!rc)
		return;
	cudaGetLastError(); /* one that is not sticky must not be seen again */
	if (s->err.rc == WW_OK)
		ww_err_set(&s->err, rc == (int)cudaErrorMemoryAllocation ? WW_ERR_NOMEM : WW_ERR_DEVICE, "%s: %s", what,
			cudaGetErrorString((cudaError_t)rc));
}

int ww_cu_capturing(struct ww_stream *s)
{
	enum cudaStreamCaptureStatus st = cudaStreamCaptureStatusNone;
	return cudaStreamIsCapturing(s->s, &st) != cudaSuccess || st != cudaStreamCaptureStatusNone;
}

void *ww_cu_scratch(struct ww_stream *s, size_t bytes)
{
	if (s->err.rc != WW_OK)
		return NULL;
	if (s->scratch_cap >= bytes && s->scratch)
		return s->scratch;
	if (ww_cu_capturing(s)) {
		ww_err_set(&s->err, WW_ERR_DEVICE, "an operation was recorded that needs more workspace than any before it");
		return NULL;
	}
	bytes = bytes < 1 << 20 ? 1 << 20 : bytes;
	cudaFree(s->scratch); /* waits for the work that uses it */
	ww_dev_count(&s->d->dev, -(int64_t)s->scratch_cap);
	s->scratch = NULL;
	s->scratch_cap = 0;
	ww_cu_note(s, (int)cudaMalloc(&s->scratch, bytes), "workspace on the GPU");
	if (s->err.rc == WW_OK)
		s->scratch_cap = bytes;
	ww_dev_count(&s->d->dev, (int64_t)s->scratch_cap);
	return s->scratch;
}

static enum ww_rc failed(struct ww_err *err, int rc, const char *what)
{
	cudaGetLastError();
	return ww_err_set(err, rc == (int)cudaErrorMemoryAllocation ? WW_ERR_NOMEM : WW_ERR_DEVICE, "%s: %s", what,
		cudaGetErrorString((cudaError_t)rc));
}

/* ---- memory and streams */

/* The size of each block, so that freeing it can be counted: a block, its size and the next one. */
struct ww_cu_block {
	void *p;
	size_t bytes;
	struct ww_cu_block *next;
};

static enum ww_rc cuda_alloc(struct ww_dev *dev, size_t bytes, void **out, struct ww_err *err)
{
	struct ww_cuda *d = (struct ww_cuda *)dev;
	struct ww_cu_block *block = malloc(sizeof(*block));
	size_t left = 0, all = 0;
	int rc = block ? (int)cudaMalloc(out, bytes ? bytes : 1) : (int)cudaErrorMemoryAllocation;
	/* zeros, because attention multiplies what lies behind a sequence's end in its last page by zero: it must be a
	 * number */
	if (!rc && ((rc = (int)cudaMemset(*out, 0, bytes)) || (rc = (int)cudaStreamSynchronize(NULL))))
		cudaFree(*out);
	if (!rc) {
		*block = (struct ww_cu_block){ *out, bytes, NULL };
		pthread_mutex_lock(&d->lock);
		block->next = d->blocks;
		d->blocks = block;
		pthread_mutex_unlock(&d->lock);
		ww_dev_count(dev, (int64_t)bytes);
		return WW_OK;
	}
	free(block);
	*out = NULL;
	if (rc != (int)cudaErrorMemoryAllocation)
		return failed(err, rc, "cannot allocate memory on the GPU");
	cudaGetLastError();
	cudaMemGetInfo(&left, &all);
	return ww_err_set(err, WW_ERR_NOMEM, "cannot allocate %.1f MiB on the GPU: %.1f of %.1f MiB are free",
		(double)bytes / 1048576, (double)left / 1048576, (double)all / 1048576);
}

static void cuda_free(struct ww_dev *dev, void *p)
{
	struct ww_cuda *d = (struct ww_cuda *)dev;
	pthread_mutex_lock(&d->lock);
	struct ww_cu_block **at = &d->blocks, *found;
	while (*at && (*at)->p != p)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&d->lock);
	ww_dev_count(dev, found ? -(int64_t)found->bytes : 0);
	free(found);
	cudaFree(p);
}

static void cuda_memory(struct ww_dev *d, uint64_t *free_bytes, uint64_t *total_bytes)
{
	size_t left = 0, all = 0;
	(void)d;
	cudaMemGetInfo(&left, &all);
	*free_bytes = left;
	*total_bytes = all;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* That of cuBLASLt, and the largest that an operation of training takes. */
static uint64_t cuda_workspace(struct ww_dev *d, const struct ww_work *w)
{
	struct ww_cu_attn heads = { .t = w->t, .heads = (int)(w->widest / w->head_dim) };
	size_t most = larger(ww_cu_rmsnorm_bwd_bytes(w->t, w->widest), ww_cu_bias_bwd_bytes(w->t, w->widest));
	(void)d;
	most = larger(larger(most, ww_cu_embed_bwd_bytes(w->t)), larger(ww_cu_attn_bwd_bytes(&heads), 1 << 20));
	return WW_CU_GEMM_WORK + most;
}

static void cuda_stream_free(struct ww_stream *s)
{
	if (!s)
		return;
	ww_dev_count(&s->d->dev, -(int64_t)(s->scratch_cap + (s->ready ? WW_CU_GEMM_WORK : 0)));
	if (s->s)
		cudaStreamSynchronize(s->s);
	for (int i = 0; i < 2; i++)
		if (s->up.free[i])
			cudaEventDestroy(s->up.free[i]);
	cudaFreeHost(s->up.p);
	cudaFreeHost(s->down.p);
	cudaFree(s->scratch);
	cudaFree(s->gemm_work);
	if (s->s)
		cudaStreamDestroy(s->s);
	free(s->down.copies);
	free(s);
}

static enum ww_rc cuda_stream_new(struct ww_dev *d, struct ww_stream **out, struct ww_err *err)
{
	struct ww_stream *s = calloc(1, sizeof(*s));
	int rc;
	if (!s)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	s->d = (struct ww_cuda *)d;
	if ((rc = (int)cudaStreamCreateWithFlags(&s->s, cudaStreamNonBlocking)) ||
		(rc = (int)cudaMallocHost((void **)&s->up.p, 2 * UP_HALF)) ||
		(rc = (int)cudaMallocHost((void **)&s->down.p, DOWN_BYTES)) ||
		(rc = (int)cudaMalloc(&s->gemm_work, WW_CU_GEMM_WORK)) ||
		(rc = (int)cudaEventCreateWithFlags(&s->up.free[0], cudaEventDisableTiming)) ||
		(rc = (int)cudaEventCreateWithFlags(&s->up.free[1], cudaEventDisableTiming))) {
		cuda_stream_free(s);
		return failed(err, rc, "cannot make a stream on the GPU");
	}
	ww_dev_count(d, WW_CU_GEMM_WORK);
	s->ready = 1;
	*out = s;
	return WW_OK;
}

/* Wait, and hand what was downloaded to its owners. */
static void drain(struct ww_stream *s)
{
	ww_cu_note(s, (int)cudaStreamSynchronize(s->s), "work on the GPU");
	for (int i = 0; s->err.rc == WW_OK && i < s->down.n; i++)
		memcpy(s->down.copies[i].host, s->down.p + s->down.copies[i].at, s->down.copies[i].bytes);
	s->down.n = 0;
	s->down.at = 0;
	s->up.at = 0;
}

static enum ww_rc cuda_sync(struct ww_stream *s, struct ww_err *err)
{
	drain(s);
	enum ww_rc rc = s->err.rc;
	if (rc != WW_OK)
		*err = s->err;
	s->err = (struct ww_err)WW_ERR_INIT;
	return rc;
}

static void cuda_upload(struct ww_stream *s, void *dst, const void *host, size_t bytes)
{
	for (size_t done = 0, n; s->err.rc == WW_OK && done < bytes; done += n) {
		if (s->up.at == UP_HALF) {
			ww_cu_note(s, (int)cudaEventRecord(s->up.free[s->up.half], s->s), "upload");
			s->up.half ^= 1;
			s->up.at = 0;
			ww_cu_note(s, (int)cudaEventSynchronize(s->up.free[s->up.half]), "upload");
		}
		n = bytes - done < UP_HALF - s->up.at ? bytes - done : UP_HALF - s->up.at;
		char *p = s->up.p + s->up.half * UP_HALF + s->up.at;
		memcpy(p, (const char *)host + done, n);
		ww_cu_note(s, (int)cudaMemcpyAsync((char *)dst + done, p, n, cudaMemcpyHostToDevice, s->s), "upload");
		s->up.at += (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	}
}

static int add_copy(struct ww_stream *s, void *host, size_t bytes)
{
	if (s->down.n == s->down.cap) {
		int cap = s->down.cap ? 2 * s->down.cap : 64;
		struct ww_cu_copy *c = cap > COPIES_MAX ? NULL : realloc(s->down.copies, (size_t)cap * sizeof(*c));
		if (!c)
			return 0;
		s->down.copies = c;
		s->down.cap = cap;
	}
	s->down.copies[s->down.n++] = (struct ww_cu_copy){ host, s->down.at, bytes };
	return 1;
}

static void cuda_download(struct ww_stream *s, void *host, const void *src, size_t bytes)
{
	for (size_t done = 0, n; s->err.rc == WW_OK && done < bytes; done += n) {
		if (s->down.at == DOWN_BYTES || s->down.n == COPIES_MAX / 2)
			drain(s);
		n = bytes - done < DOWN_BYTES - s->down.at ? bytes - done : DOWN_BYTES - s->down.at;
		ww_cu_note(s,
			(int)cudaMemcpyAsync(s->down.p + s->down.at, (const char *)src + done, n, cudaMemcpyDeviceToHost, s->s),
			"download");
		if (!add_copy(s, (char *)host + done, n))
			ww_cu_note(s, (int)cudaErrorMemoryAllocation, "download");
		s->down.at += (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	}
}

/* ---- operations: check the types, find a workspace, launch */

#define LAUNCH(what, call)                                                             \
	do {                                                                           \
		if (s->err.rc == WW_OK)                                                \
			ww_cu_note(s, (call), what);                                   \
	} while (0)

static int half(struct ww_arr a) { return a.dtype == WW_BF16; }

static void cuda_zero(struct ww_stream *s, void *dst, size_t bytes)
{
	LAUNCH("zero", (int)cudaMemsetAsync(dst, 0, bytes, s->s));
}

static void cuda_cast(struct ww_stream *s, struct ww_arr dst, struct ww_arr src, int64_t n)
{
	LAUNCH("cast", ww_cu_cast(s->s, dst.p, half(dst), src.p, half(src), n));
}

static void cuda_bias(struct ww_stream *s, struct ww_arr y, struct ww_arr bias, int64_t t, int64_t n)
{
	WW_BUG(y.dtype != bias.dtype);
	LAUNCH("bias", ww_cu_bias(s->s, half(y), y.p, bias.p, t, n));
}

static void cuda_bias_bwd(struct ww_stream *s, float *dbias, struct ww_arr dy, int64_t t, int64_t n)
{
	float *work = ww_cu_scratch(s, ww_cu_bias_bwd_bytes(t, n));
	LAUNCH("bias_bwd", ww_cu_bias_bwd(s->s, half(dy), dbias, dy.p, t, n, work));
}

static void cuda_add(struct ww_stream *s, struct ww_arr y, struct ww_arr a, struct ww_arr b, int64_t n)
{
	WW_BUG(y.dtype != a.dtype || y.dtype != b.dtype);
	LAUNCH("add", ww_cu_add(s->s, half(y), y.p, a.p, b.p, n));
}

static void cuda_embed(
	struct ww_stream *s, struct ww_arr y, struct ww_arr table, const int32_t *ids, int64_t t, int64_t h)
{
	WW_BUG(y.dtype != table.dtype);
	LAUNCH("embed", ww_cu_embed(s->s, half(y), y.p, table.p, ids, t, h));
}

static void cuda_embed_bwd(
	struct ww_stream *s, float *dtable, struct ww_arr dy, const int32_t *ids, int64_t t, int64_t h)
{
	void *work = ww_cu_scratch(s, ww_cu_embed_bwd_bytes(t));
	LAUNCH("embed_bwd", ww_cu_embed_bwd(s->s, half(dy), dtable, dy.p, ids, t, h, work));
}

static void cuda_scatter(
	struct ww_stream *s, struct ww_arr dst, struct ww_arr src, const int32_t *rows, int64_t t, int64_t width)
{
	WW_BUG(dst.dtype != src.dtype);
	LAUNCH("scatter", ww_cu_scatter(s->s, half(dst), dst.p, src.p, rows, t, width));
}

static void cuda_rmsnorm(struct ww_stream *s, struct ww_arr y, float *rstd, struct ww_arr x, struct ww_arr w, int64_t t,
	int64_t h, float eps)
{
	WW_BUG(y.dtype != x.dtype || y.dtype != w.dtype || h > ww_cu_rows_max_width());
	LAUNCH("rmsnorm", ww_cu_rmsnorm(s->s, half(y), y.p, rstd, x.p, w.p, t, h, eps));
}

static void cuda_rmsnorm_bwd(struct ww_stream *s, struct ww_arr dx, float *dw, struct ww_arr dy, struct ww_arr x,
	struct ww_arr w, const float *rstd, int64_t t, int64_t h)
{
	float *work = ww_cu_scratch(s, ww_cu_rmsnorm_bwd_bytes(t, h));
	WW_BUG(dx.dtype != dy.dtype || dx.dtype != x.dtype || dx.dtype != w.dtype || h > ww_cu_rows_max_width());
	LAUNCH("rmsnorm_bwd", ww_cu_rmsnorm_bwd(s->s, half(dx), dx.p, dw, dy.p, x.p, w.p, rstd, t, h, work));
}

static void cuda_rope_table(
	struct ww_stream *s, float *cs, const int32_t *pos, const float *freq, float factor, int64_t t, int64_t d)
{
	LAUNCH("rope_table", ww_cu_rope_table(s->s, cs, pos, freq, factor, t, d));
}

static void cuda_rope(
	struct ww_stream *s, struct ww_arr x, const float *cs, int backward, int64_t t, int64_t heads, int64_t d)
{
	WW_BUG(d % 2);
	LAUNCH("rope", ww_cu_rope(s->s, half(x), x.p, cs, backward, t, heads, d));
}

static struct ww_cu_attn attn_of(const struct ww_attn *a)
{
	WW_BUG(a->q.dtype != a->k.dtype || a->q.dtype != a->v.dtype || a->q.dtype != a->out.dtype ||
		a->heads % a->kv_heads || a->head_dim > ww_cu_attn_any_max());
	return (struct ww_cu_attn){ .q = a->q.p,
		.k = a->k.p,
		.v = a->v.p,
		.out = a->out.p,
		.lse = a->lse,
		.seq = a->seq,
		.pos = a->pos,
		.start = a->start,
		.pages = a->pages,
		.pages_stride = a->pages_stride,
		.page_size = a->page_size,
		.t = a->t,
		.sequences = a->sequences,
		.rows_max = a->rows_max,
		.keys_max = a->keys_max,
		.heads = (int)a->heads,
		.kv_heads = (int)a->kv_heads,
		.head_dim = (int)a->head_dim,
		.scale = a->scale };
}

/* fp32 many rows at a time, where that pays and fits: the bits of the plain kernels. */
static int tiled_f32(const struct ww_attn *a, const struct ww_cu_attn *c)
{
	return !half(a->q) && ww_cu_attn_f32_splits(c) && ww_cu_attn_f32_fits(c);
}

/* Three families of kernels: one shape always goes to one of them, whatever the batch, since their bits differ. */
static void cuda_attention(struct ww_stream *s, const struct ww_attn *a)
{
	struct ww_cu_attn c = attn_of(a);
	int sms = s->d->sms, hopper = s->d->hopper && half(a->q) && ww_cu_attn_hopper_fits(&c);
	if (!a->t)
		return;
	if (tiled_f32(a, &c)) {
		LAUNCH("attention", ww_cu_attn_f32_fwd(s->s, &c));
		return;
	}
	if (!half(a->q) || !ww_cu_attn_fits(&c)) {
		LAUNCH("attention", ww_cu_attn_any_fwd(s->s, half(a->q), &c));
		return;
	}
	void *work = ww_cu_scratch(s, hopper ? ww_cu_attn_hopper_fwd_bytes(&c, sms) : ww_cu_attn_fwd_bytes(&c, sms));
	if (hopper)
		LAUNCH("attention", ww_cu_attn_hopper_fwd(s->s, &c, sms, work));
	else
		LAUNCH("attention", ww_cu_attn_fwd(s->s, &c, sms, work));
}

static void cuda_attention_bwd(struct ww_stream *s, const struct ww_attn_bwd *b)
{
	struct ww_cu_attn_bwd c = { attn_of(&b->fwd), b->dout.p, b->dq.p, b->dk.p, b->dv.p };
	int type = b->fwd.q.dtype;
	WW_BUG(b->fwd.pages || !b->fwd.lse || b->dout.dtype != type || b->dq.dtype != type || b->dk.dtype != type ||
		b->dv.dtype != type);
	if (!b->fwd.t)
		return;
	void *work = ww_cu_scratch(s, ww_cu_attn_bwd_bytes(&c.fwd));
	int aligned = !(((uintptr_t)c.dout | (uintptr_t)c.dq | (uintptr_t)c.dk | (uintptr_t)c.dv) & 15);
	int fits = type == WW_BF16 && ww_cu_attn_fits(&c.fwd) && aligned;
	if (aligned && tiled_f32(&b->fwd, &c.fwd))
		LAUNCH("attention_bwd", ww_cu_attn_f32_bwd(s->s, &c, work));
	else if (fits && s->d->hopper && ww_cu_attn_hopper_fits(&c.fwd))
		LAUNCH("attention_bwd", ww_cu_attn_hopper_bwd(s->s, &c, work));
	else if (fits)
		LAUNCH("attention_bwd", ww_cu_attn_bwd(s->s, &c, work));
	else
		LAUNCH("attention_bwd", ww_cu_attn_any_bwd(s->s, type == WW_BF16, &c, work));
}

static void cuda_swiglu(struct ww_stream *s, struct ww_arr y, struct ww_arr gate, struct ww_arr up, int64_t n)
{
	WW_BUG(y.dtype != gate.dtype || y.dtype != up.dtype);
	LAUNCH("swiglu", ww_cu_swiglu(s->s, half(y), y.p, gate.p, up.p, n));
}

static void cuda_swiglu_bwd(struct ww_stream *s, struct ww_arr dgate, struct ww_arr dup, struct ww_arr dy,
	struct ww_arr gate, struct ww_arr up, int64_t n)
{
	WW_BUG(dgate.dtype != dup.dtype || dup.dtype != dy.dtype || dy.dtype != gate.dtype || gate.dtype != up.dtype);
	LAUNCH("swiglu_bwd", ww_cu_swiglu_bwd(s->s, half(dy), dgate.p, dup.p, dy.p, gate.p, up.p, n));
}

static void cuda_softmax_chunk(
	struct ww_stream *s, float *state, const float *logits, const int32_t *targets, int64_t t, int64_t first, int64_t n)
{
	LAUNCH("softmax", ww_cu_softmax_chunk(s->s, state, logits, targets, t, first, n));
}

static void cuda_softmax_finish(struct ww_stream *s, float *logp, float *lse, const float *state, int64_t t)
{
	LAUNCH("softmax", ww_cu_softmax_finish(s->s, logp, lse, state, t));
}

static void cuda_lse_rows(struct ww_stream *s, float *lse, float *state, const int32_t *targets, const float *logits,
	int64_t t, int64_t v, int64_t chunk)
{
	void *work = ww_cu_scratch(s, ww_cu_lse_rows_bytes(t, v, chunk));
	(void)state;
	(void)targets;
	LAUNCH("lse_rows", ww_cu_lse_rows(s->s, lse, logits, t, v, chunk, work));
}

static void cuda_softmax_bwd(struct ww_stream *s, struct ww_arr dlogits, const float *logits, const int32_t *targets,
	const float *lse, const float *dlogp, int64_t t, int64_t first, int64_t n)
{
	LAUNCH("softmax_bwd", ww_cu_softmax_bwd(s->s, half(dlogits), dlogits.p, logits, targets, lse, dlogp, t, first, n));
}

static void cuda_softmax_entropy(
	struct ww_stream *s, float *entropy, const float *logits, const float *lse, int64_t t, int64_t first, int64_t n)
{
	LAUNCH("softmax_entropy", ww_cu_softmax_entropy(s->s, entropy, logits, lse, t, first, n));
}

static void cuda_sample(struct ww_stream *s, struct ww_sampled *out, const struct ww_sampler *how, const float *logits,
	const float *lse, int64_t t, int64_t v, int64_t chunk)
{
	LAUNCH("sample", ww_cu_sample(s->s, out, how, logits, lse, t, v, chunk));
}

static void cuda_sumsq(struct ww_stream *s, float *out, const float *x, int64_t n)
{
	double *work = ww_cu_scratch(s, ww_cu_sumsq_bytes());
	LAUNCH("sumsq", ww_cu_sumsq(s->s, out, x, n, work));
}

static void cuda_clip_factor(struct ww_stream *s, float *out, const float *in, float limit)
{
	LAUNCH("clip_factor", ww_cu_clip_factor(s->s, out, in, limit));
}

static void cuda_adamw(struct ww_stream *s, float *master, struct ww_arr model, float *m, float *v, const float *grad,
	const float *scale, const struct ww_adamw *h, int64_t n)
{
	struct ww_cu_adamw c = { h->lr, h->beta1, h->beta2, h->eps, h->weight_decay,
		(float)(1 / (1 - pow((double)h->beta1, (double)h->step))),
		(float)(1 / (1 - pow((double)h->beta2, (double)h->step))) };
	LAUNCH("adamw", ww_cu_adamw(s->s, master, model.p, half(model), m, v, grad, scale, &c, n));
}

static void cuda_close(struct ww_dev *dev)
{
	struct ww_cuda *d = (struct ww_cuda *)dev;
	ww_cu_gemms_free(d->gemms);
	while (d->blocks) {
		struct ww_cu_block *next = d->blocks->next;
		free(d->blocks);
		d->blocks = next;
	}
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static void cuda_norm_rope(struct ww_stream *s, struct ww_arr y, float *rstd, struct ww_arr x, struct ww_arr w,
	const float *cs, int64_t t, int64_t heads, int64_t d, float eps)
{
	WW_BUG(y.dtype != x.dtype || y.dtype != w.dtype);
	if (ww_cu_norm_rope_fits(y.p, x.p, w.p, cs, d))
		LAUNCH("norm_rope", ww_cu_norm_rope(s->s, half(y), y.p, rstd, x.p, w.p, cs, t, heads, d, eps));
	else
		ww_dev_norm_rope(s, y, rstd, x, w, cs, t, heads, d, eps);
}

static void cuda_norm_rope_bwd(struct ww_stream *s, struct ww_arr dx, float *dw, struct ww_arr x, struct ww_arr w,
	const float *rstd, const float *cs, int64_t t, int64_t heads, int64_t d)
{
	float *work = ww_cu_scratch(s, ww_cu_rmsnorm_bwd_bytes(t * heads, d));
	WW_BUG(dx.dtype != x.dtype || dx.dtype != w.dtype);
	if (ww_cu_norm_rope_fits(dx.p, x.p, w.p, cs, d))
		LAUNCH("norm_rope_bwd", ww_cu_norm_rope_bwd(s->s, half(dx), dx.p, dw, x.p, w.p, rstd, cs, t, heads, d, work));
	else
		ww_dev_norm_rope_bwd(s, dx, dw, x, w, rstd, cs, t, heads, d);
}

static void cuda_rmsnorm_bwd_add(struct ww_stream *s, struct ww_arr dres, float *dw, struct ww_arr dy, struct ww_arr x,
	struct ww_arr w, const float *rstd, int64_t t, int64_t h)
{
	float *work = ww_cu_scratch(s, ww_cu_rmsnorm_bwd_bytes(t, h));
	WW_BUG(dres.dtype != dy.dtype || dres.dtype != x.dtype || dres.dtype != w.dtype || h > ww_cu_rows_max_width());
	LAUNCH("rmsnorm_bwd_add", ww_cu_rmsnorm_bwd_add(s->s, half(dres), dres.p, dw, dy.p, x.p, w.p, rstd, t, h, work));
}

static void cuda_add_rmsnorm(struct ww_stream *s, struct ww_arr sum, struct ww_arr y, float *rstd, struct ww_arr a,
	struct ww_arr b, struct ww_arr w, int64_t t, int64_t h, float eps)
{
	WW_BUG(sum.dtype != a.dtype || sum.dtype != b.dtype || sum.dtype != y.dtype || sum.dtype != w.dtype);
	if (ww_cu_add_rmsnorm_fits(sum.p, y.p, a.p, b.p, w.p, h))
		LAUNCH("add_rmsnorm", ww_cu_add_rmsnorm(s->s, half(y), sum.p, y.p, rstd, a.p, b.p, w.p, t, h, eps));
	else
		ww_dev_add_rmsnorm(s, sum, y, rstd, a, b, w, t, h, eps);
}

static void cuda_rope_to_cache(struct ww_stream *s, const struct ww_rope_to_cache *p)
{
	struct ww_cu_rope_to_cache c = { .q = p->q.p,
		.k = p->k.p,
		.v = p->v.p,
		.q_norm = p->q_norm.p,
		.k_norm = p->k_norm.p,
		.q_out = p->q_out.p,
		.k_cache = p->k_cache.p,
		.v_cache = p->v_cache.p,
		.q_stride = p->stride ? p->stride : p->heads * p->head_dim,
		.kv_stride = p->stride ? p->stride : p->kv_heads * p->head_dim,
		.cs = p->cs,
		.rows = p->rows,
		.t = p->t,
		.heads = p->heads,
		.kv_heads = p->kv_heads,
		.head_dim = p->head_dim,
		.eps = p->eps };
	WW_BUG(p->q.dtype != p->k.dtype || p->q.dtype != p->v.dtype || p->q.dtype != p->k_cache.dtype ||
		p->q.dtype != p->v_cache.dtype);
	if (ww_cu_rope_to_cache_fits(&c))
		LAUNCH("rope_to_cache", ww_cu_rope_to_cache(s->s, half(p->q), &c));
	else
		ww_dev_rope_to_cache(s, p);
}

static void cuda_swiglu_pairs(struct ww_stream *s, struct ww_arr y, struct ww_arr gu, int64_t t, int64_t f)
{
	WW_BUG(y.dtype != gu.dtype);
	if (ww_cu_swiglu_pairs_fits(y.p, gu.p, f))
		LAUNCH("swiglu", ww_cu_swiglu_pairs(s->s, half(y), y.p, gu.p, t, f));
	else
		ww_dev_swiglu_pairs(s, y, gu, t, f);
}

static const struct ww_dev_ops cuda_ops = { .name = "cuda",
	.alloc = cuda_alloc,
	.free = cuda_free,
	.memory = cuda_memory,
	.workspace = cuda_workspace,
	.graph_begin = ww_cu_graph_begin,
	.graph_end = ww_cu_graph_end,
	.graph_run = ww_cu_graph_run,
	.graph_free = ww_cu_graph_free,
	.upload = cuda_upload,
	.download = cuda_download,
	.cast = cuda_cast,
	.gemm = ww_cu_product,
	.attention = cuda_attention,
	.attention_bwd = cuda_attention_bwd,
	WW_DEV_OPS(cuda) WW_DEV_FUSED_OPS(cuda) };

/* The GPU's uuid as nvidia-smi and the judge write it. */
static void name_gpu(struct ww_cuda *d, const struct cudaDeviceProp *p)
{
	size_t at = (size_t)snprintf(d->dev.id, sizeof(d->dev.id), "GPU-");
	for (int i = 0; i < 16; i++)
		at += (size_t)snprintf(d->dev.id + at, sizeof(d->dev.id) - at, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)p->uuid.bytes[i]);
}

static enum ww_rc find_gpu(struct ww_cuda *d, struct ww_err *err)
{
	struct cudaDeviceProp p;
	int n = 0, major = 0, minor = 0, rc = (int)cudaGetDeviceCount(&n);
	if (rc || !n)
		return ww_err_set(err, WW_ERR_MISSING, "no GPU that CUDA can use (%s); the device \"cpu\" works without one",
			rc ? cudaGetErrorString((cudaError_t)rc) : "none is there");
	if ((rc = (int)cudaSetDevice(0)) ||
		(rc = (int)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0)) ||
		(rc = (int)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0)) ||
		(rc = (int)cudaDeviceGetAttribute(&d->sms, cudaDevAttrMultiProcessorCount, 0)) ||
		(rc = (int)cudaGetDeviceProperties(&p, 0)))
		return failed(err, rc, "cannot use the GPU");
	if (major < 9)
		return ww_err_set(err, WW_ERR_MISSING,
			"the engine needs a GPU of compute capability 9.0 or later, this one has %d.%d", major, minor);
	const char *kernels = getenv("WARPWRIGHT_CUDA_KERNELS"); /* portable: without Hopper's own instructions */
	d->hopper = major == 9 && minor == 0 && !(kernels && !strcmp(kernels, "portable"));
	name_gpu(d, &p);
	snprintf(d->dev.bits.device, sizeof(d->dev.bits.device), "%s, %d multiprocessors", p.name, d->sms);
	snprintf(d->dev.bits.kernels, sizeof(d->dev.bits.kernels), "%s", d->hopper ? "hopper" : "portable");
	return WW_OK;
}

__attribute__((visibility("default"))) enum ww_rc ww_dev_cuda_open(
	size_t ops_bytes, int exact, struct ww_dev **out, struct ww_err *err)
{
	if (ops_bytes != sizeof(struct ww_dev_ops))
		return ww_err_set(err, WW_ERR_MISSING,
			WW_DEV_PLUGIN_CUDA " is of another version than this program; build or install both together");
	struct ww_cuda *d = calloc(1, sizeof(*d));
	enum ww_rc rc;
	if (!d)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	d->dev.ops = &cuda_ops;
	d->dev.exact = exact;
	d->dev.wide = 1;
	pthread_mutex_init(&d->lock, NULL);
	WW_TRY(find_gpu(d, err));
	WW_TRY(ww_cu_gemms_new(d, &d->gemms, err));
	*out = &d->dev;
out:
	if (rc != WW_OK)
		free(d);
	return rc;
}
