/* cpu.c - the cpu backend: memory, streams and the operations that work on rows.
 *
 * Work runs in the caller's thread and the pool's before the call returns, so a stream is no queue here; it holds the
 * first error and the scratch memory.  Operations split by rows or by fixed pieces of the array, never by the number of
 * threads, and sums over rows go through partial sums of a number of chunks that depends on the shape alone: equal
 * calls give equal bits on any number of threads.
 */
#include "dev/cpu/cpu.h"
#include "base/range.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 16384, CHUNKS_MAX = 64, CHUNK_ROWS = 64, SUMSQ_PIECE = 65536 };

static const struct ww_cpu_kernels *best_kernels(void)
{
	const char *force = getenv("WARPWRIGHT_CPU_KERNELS");
	if (force && !strcmp(force, "base"))
		return &ww_cpu_kernels_base;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("avx512vl") && !(force && !strcmp(force, "avx2")))
		return &ww_cpu_kernels_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &ww_cpu_kernels_avx2;
	return &ww_cpu_kernels_base;
}

float *ww_cpu_scratch(struct ww_stream *s, int slot, int64_t floats)
{
	size_t bytes = ((size_t)floats * sizeof(float) + 127) & ~(size_t)63;
	if (s->scratch[slot].cap < bytes) {
		ww_dev_count(&s->d->dev, -(int64_t)s->scratch[slot].cap);
		free(s->scratch[slot].p);
		s->scratch[slot].p = aligned_alloc(64, bytes);
		s->scratch[slot].cap = s->scratch[slot].p ? bytes : 0;
		ww_dev_count(&s->d->dev, (int64_t)s->scratch[slot].cap);
	}
	if (!s->scratch[slot].p && s->err.rc == WW_OK)
		ww_err_set(&s->err, WW_ERR_NOMEM, "cannot allocate %zu bytes of workspace", bytes);
	return s->scratch[slot].p;
}

static enum ww_rc cpu_stream_new(struct ww_dev *d, struct ww_stream **out, struct ww_err *err)
{
	WW_CHECK(WW_NEW(*out, 1, err));
	(*out)->d = (struct ww_cpu *)d;
	return WW_OK;
}

static void cpu_stream_free(struct ww_stream *s)
{
	for (int i = 0; s && i < WW_CPU_SLOTS; i++) {
		ww_dev_count(&s->d->dev, -(int64_t)s->scratch[i].cap);
		free(s->scratch[i].p);
	}
	free(s);
}

/* The four kinds of scratch memory: the operands of a product and its result where they are widened from bf16, sums
 * over rows, and what each thread needs for a row or for one head of a sequence. */
static uint64_t cpu_workspace(struct ww_dev *dev, const struct ww_work *w)
{
	int64_t acts = w->t * w->widest, half = w->dtype != WW_F32;
	int64_t a = half ? ww_max_i64(acts, w->head_t * w->head_v) : w->widest;
	int64_t b = ww_max_i64(half ? ww_max_i64(acts, w->matrix) : 0, CHUNKS_MAX * w->widest), c = half ? acts : 0;
	int64_t row = ww_max_i64(3 * ww_max_i64(w->widest, w->head_v) + 16, (4 * w->longest + 4) * w->head_dim);
	return (uint64_t)(a + b + c + row * ww_pool_threads(((struct ww_cpu *)dev)->pool)) * sizeof(float);
}

static enum ww_rc cpu_sync(struct ww_stream *s, struct ww_err *err)
{
	enum ww_rc rc = s->err.rc;
	if (rc != WW_OK)
		*err = s->err;
	s->err = (struct ww_err)WW_ERR_INIT;
	return rc;
}

static void cpu_close(struct ww_dev *dev)
{
	struct ww_cpu *d = (struct ww_cpu *)dev;
	ww_pool_free(d->pool);
	free(d); /* libopenblas stays loaded: its threads do not survive dlclose */
}

static void cpu_move(struct ww_stream *s, void *dst, const void *src, size_t bytes)
{
	if (bytes && s->err.rc == WW_OK)
		memcpy(dst, src, bytes);
}

static void cpu_zero(struct ww_stream *s, void *dst, size_t bytes)
{
	if (s->err.rc == WW_OK)
		memset(dst, 0, bytes);
}

/* ---- operations on elements: pieces of PIECE elements, in steps of WW_CPU_SUB so that widened bf16 stays in cache */

enum element_op { OP_CAST, OP_ADD, OP_SWIGLU, OP_SWIGLU_BWD };
struct elements {
	const struct ww_cpu *d;
	enum element_op op;
	struct ww_arr out[2], in[3];
	int64_t n;
};

static void elements_step(const struct elements *e, int64_t at, int64_t n)
{
	static const int ins[] = { [OP_CAST] = 1, [OP_ADD] = 2, [OP_SWIGLU] = 2, [OP_SWIGLU_BWD] = 3 };
	float buf[5][WW_CPU_SUB];
	const float *x[3];
	float *y[2];
	int outs = e->op == OP_SWIGLU_BWD ? 2 : 1;
	for (int i = 0; i < ins[e->op]; i++)
		x[i] = ww_cpu_in(e->d, e->in[i], at, n, buf[i]);
	for (int i = 0; i < outs; i++)
		y[i] = ww_cpu_out(e->out[i], at, buf[3 + i]);
	switch (e->op) {
	case OP_CAST: memmove(y[0], x[0], (size_t)n * sizeof(float)); break;
	case OP_ADD: e->d->k->add(y[0], x[0], x[1], n); break;
	case OP_SWIGLU: e->d->k->swiglu(y[0], x[0], x[1], n); break;
	case OP_SWIGLU_BWD: e->d->k->swiglu_bwd(y[0], y[1], x[0], x[1], x[2], n); break;
	}
	for (int i = 0; i < outs; i++)
		ww_cpu_flush(e->d, e->out[i], at, n, buf[3 + i]);
}

static void elements_part(void *arg, int64_t i, int worker)
{
	const struct elements *e = arg;
	int64_t end = (i + 1) * PIECE < e->n ? (i + 1) * PIECE : e->n;
	for (int64_t at = i * PIECE; at < end; at += WW_CPU_SUB)
		elements_step(e, at, end - at < WW_CPU_SUB ? end - at : WW_CPU_SUB);
}

static void elements_run(struct ww_stream *s, struct elements e)
{
	e.d = s->d;
	if (s->err.rc == WW_OK)
		ww_pool_run(s->d->pool, (e.n + PIECE - 1) / PIECE, elements_part, &e);
}

void ww_cpu_cast(struct ww_stream *s, struct ww_arr dst, struct ww_arr src, int64_t n)
{
	elements_run(s, (struct elements){ .op = OP_CAST, .out = { dst }, .in = { src }, .n = n });
}

static void cpu_add(struct ww_stream *s, struct ww_arr y, struct ww_arr a, struct ww_arr b, int64_t n)
{
	elements_run(s, (struct elements){ .op = OP_ADD, .out = { y }, .in = { a, b }, .n = n });
}

static void cpu_swiglu(struct ww_stream *s, struct ww_arr y, struct ww_arr gate, struct ww_arr up, int64_t n)
{
	elements_run(s, (struct elements){ .op = OP_SWIGLU, .out = { y }, .in = { gate, up }, .n = n });
}

static void cpu_swiglu_bwd(struct ww_stream *s, struct ww_arr dgate, struct ww_arr dup, struct ww_arr dy,
	struct ww_arr gate, struct ww_arr up, int64_t n)
{
	elements_run(s, (struct elements){ .op = OP_SWIGLU_BWD, .out = { dgate, dup }, .in = { dy, gate, up }, .n = n });
}

/* ---- operations on rows */

enum row_op {
	OP_RMSNORM,
	OP_RMSNORM_BWD,
	OP_BIAS,
	OP_BIAS_BWD,
	OP_EMBED,
	OP_ROPE,
	OP_ROPE_TABLE,
	OP_SM_CHUNK,
	OP_SM_BWD,
	OP_ENTROPY
};
struct rows {
	struct ww_stream *s;
	enum row_op op;
	struct ww_arr y, x, dy;
	const float *w, *stat, *cs; /* widened weights; rstd or lse; table of angles */
	float *stat_out, *partial, *buf;
	const int32_t *ids;
	const float *scale;
	float eps;
	int backward;
	int64_t t, h, heads, first, rows_per, per_worker;
};

static void rope_one(struct rows *r, int64_t t)
{
	const struct ww_cpu *d = r->s->d;
	float buf[512];
	for (int64_t a = t * r->heads; a < (t + 1) * r->heads; a++) {
		float *x = ww_cpu_out(r->y, a * r->h, buf);
		ww_cpu_in(d, r->y, a * r->h, r->h, buf);
		d->k->rope_row(x, r->cs + t * r->h, r->backward, r->h);
		ww_cpu_flush(d, r->y, a * r->h, r->h, buf);
	}
}

static void rope_table_one(struct rows *r, int64_t t)
{
	int64_t half = r->h / 2;
	for (int64_t j = 0; j < half; j++) {
		float angle = (float)r->ids[t] * r->stat[j]; /* in fp32, as the models were trained */
		r->stat_out[t * r->h + j] = (float)(cos((double)angle) * (double)r->eps);
		r->stat_out[t * r->h + half + j] = (float)(sin((double)angle) * (double)r->eps);
	}
}

static void softmax_one(struct rows *r, int64_t t)
{
	const struct ww_cpu_kernels *k = r->s->d->k;
	const float *l = (const float *)r->x.p + t * r->h;
	float *st = r->stat_out + 3 * t, max = k->row_max(l, r->h);
	int64_t target = r->ids[t] - r->first;
	if (!r->first) {
		st[0] = -INFINITY;
		st[1] = st[2] = 0;
	}
	max = max > st[0] ? max : st[0];
	st[1] = st[1] * expf(st[0] - max) + k->sum_exp(l, max, r->h);
	st[0] = max;
	if (target >= 0 && target < r->h)
		st[2] = l[target];
}

static void softmax_bwd_one(struct rows *r, int64_t t, float *buf)
{
	const float *l = (const float *)r->x.p + t * r->h;
	int64_t target = r->ids[t] - r->first;
	float *y = ww_cpu_out(r->y, t * r->h, buf);
	r->s->d->k->exp_scale(y, l, r->stat[t], -r->scale[t], r->h);
	if (target >= 0 && target < r->h)
		y[target] += r->scale[t];
	ww_cpu_flush(r->s->d, r->y, t * r->h, r->h, buf);
}

static void rmsnorm_bwd_one(struct rows *r, int64_t t, float *partial, float *buf)
{
	const struct ww_cpu *d = r->s->d;
	const float *x = ww_cpu_in(d, r->x, t * r->h, r->h, buf), *dy = ww_cpu_in(d, r->dy, t * r->h, r->h, buf + r->h);
	float *dx = ww_cpu_out(r->y, t * r->h, buf + 2 * r->h);
	d->k->mul_add(partial, dy, x, r->stat[t], r->h);
	d->k->rms_bwd_row(dx, dy, x, r->w, r->stat[t], r->h);
	ww_cpu_flush(d, r->y, t * r->h, r->h, buf + 2 * r->h);
}

static void row_one(struct rows *r, int64_t t, float *partial, float *buf)
{
	const struct ww_cpu *d = r->s->d;
	int64_t at = t * r->h;
	float *y, rstd;
	switch (r->op) {
	case OP_RMSNORM:
		y = ww_cpu_out(r->y, at, buf + r->h);
		rstd = d->k->rms_row(y, ww_cpu_in(d, r->x, at, r->h, buf), r->w, r->h, r->eps);
		if (r->stat_out)
			r->stat_out[t] = rstd;
		ww_cpu_flush(d, r->y, at, r->h, buf + r->h);
		break;
	case OP_BIAS:
		y = ww_cpu_out(r->y, at, buf + r->h);
		d->k->add(y, ww_cpu_in(d, r->y, at, r->h, buf), r->w, r->h);
		ww_cpu_flush(d, r->y, at, r->h, buf + r->h);
		break;
	case OP_EMBED:
		y = ww_cpu_out(r->y, at, buf);
		memcpy(y, ww_cpu_in(d, r->x, r->ids[t] * r->h, r->h, buf),
			y == buf && r->x.dtype != WW_F32 ? 0 : (size_t)r->h * 4);
		ww_cpu_flush(d, r->y, at, r->h, buf);
		break;
	case OP_BIAS_BWD: d->k->mul_add(partial, ww_cpu_in(d, r->dy, at, r->h, buf), NULL, 1, r->h); break;
	case OP_RMSNORM_BWD: rmsnorm_bwd_one(r, t, partial, buf); break;
	case OP_ROPE: rope_one(r, t); break;
	case OP_ROPE_TABLE: rope_table_one(r, t); break;
	case OP_SM_CHUNK: softmax_one(r, t); break;
	case OP_SM_BWD: softmax_bwd_one(r, t, buf); break;
	case OP_ENTROPY:
		r->stat_out[t] = (r->first ? r->stat_out[t] : 0) +
			d->k->sum_entropy((const float *)r->x.p + at, r->stat[t], r->h);
		break;
	}
}

static void rows_part(void *arg, int64_t i, int worker)
{
	struct rows *r = arg;
	int64_t end = (i + 1) * r->rows_per < r->t ? (i + 1) * r->rows_per : r->t;
	for (int64_t t = i * r->rows_per; t < end; t++)
		row_one(r, t, r->partial ? r->partial + i * r->h : NULL, r->buf + worker * r->per_worker);
}

/* width: elements that one row costs. */
static void rows_run(struct ww_stream *s, struct rows r, int64_t width)
{
	r.s = s;
	if (s->err.rc != WW_OK || !r.t)
		return;
	if (!r.rows_per)
		r.rows_per = width >= PIECE ? 1 : PIECE / (width + 1) + 1;
	r.per_worker = 3 * r.h + 16;
	r.buf = ww_cpu_scratch(s, 3, r.per_worker * ww_pool_threads(s->d->pool));
	if (r.buf)
		ww_pool_run(s->d->pool, (r.t + r.rows_per - 1) / r.rows_per, rows_part, &r);
}

static const float *widen(struct ww_stream *s, struct ww_arr a, int64_t n)
{
	float *p = a.dtype == WW_F32 ? a.p : ww_cpu_scratch(s, 0, n);
	if (p && a.dtype != WW_F32)
		s->d->k->from_bf16(p, a.p, n);
	return p;
}

/* Run with a partial sum for each chunk of rows, and add the sums to out (h) in order. */
static void rows_sum(struct ww_stream *s, struct rows r, float *out)
{
	r.rows_per = (r.t + CHUNKS_MAX - 1) / CHUNKS_MAX;
	if (r.rows_per < CHUNK_ROWS)
		r.rows_per = CHUNK_ROWS;
	int64_t chunks = (r.t + r.rows_per - 1) / r.rows_per;
	r.partial = ww_cpu_scratch(s, 1, chunks * r.h + 1);
	if (!r.partial)
		return;
	memset(r.partial, 0, (size_t)(chunks * r.h) * sizeof(float));
	rows_run(s, r, r.h);
	for (int64_t i = 0; s->err.rc == WW_OK && i < chunks; i++)
		s->d->k->mul_add(out, r.partial + i * r.h, NULL, 1, r.h);
}

static void cpu_rmsnorm(struct ww_stream *s, struct ww_arr y, float *rstd, struct ww_arr x, struct ww_arr w, int64_t t,
	int64_t h, float eps)
{
	rows_run(s,
		(struct rows){
			.op = OP_RMSNORM, .y = y, .x = x, .w = widen(s, w, h), .stat_out = rstd, .eps = eps, .t = t, .h = h },
		h);
}

static void cpu_rmsnorm_bwd(struct ww_stream *s, struct ww_arr dx, float *dw, struct ww_arr dy, struct ww_arr x,
	struct ww_arr w, const float *rstd, int64_t t, int64_t h)
{
	rows_sum(s,
		(struct rows){
			.op = OP_RMSNORM_BWD, .y = dx, .dy = dy, .x = x, .w = widen(s, w, h), .stat = rstd, .t = t, .h = h },
		dw);
}

static void cpu_bias(struct ww_stream *s, struct ww_arr y, struct ww_arr bias, int64_t t, int64_t n)
{
	rows_run(s, (struct rows){ .op = OP_BIAS, .y = y, .w = widen(s, bias, n), .t = t, .h = n }, n);
}

static void cpu_bias_bwd(struct ww_stream *s, float *dbias, struct ww_arr dy, int64_t t, int64_t n)
{
	rows_sum(s, (struct rows){ .op = OP_BIAS_BWD, .dy = dy, .t = t, .h = n }, dbias);
}

static void cpu_embed(
	struct ww_stream *s, struct ww_arr y, struct ww_arr table, const int32_t *ids, int64_t t, int64_t h)
{
	rows_run(s, (struct rows){ .op = OP_EMBED, .y = y, .x = table, .ids = ids, .t = t, .h = h }, h);
}

static void cpu_rope_table(
	struct ww_stream *s, float *cs, const int32_t *pos, const float *freq, float factor, int64_t t, int64_t d)
{
	rows_run(s,
		(struct rows){ .op = OP_ROPE_TABLE, .stat_out = cs, .ids = pos, .stat = freq, .eps = factor, .t = t, .h = d },
		16 * d);
}

static void cpu_rope(
	struct ww_stream *s, struct ww_arr x, const float *cs, int backward, int64_t t, int64_t heads, int64_t d)
{
	WW_BUG(d > 512 || d % 2);
	rows_run(s, (struct rows){ .op = OP_ROPE, .y = x, .cs = cs, .backward = backward, .t = t, .heads = heads, .h = d },
		heads * d);
}

static void cpu_softmax_chunk(
	struct ww_stream *s, float *state, const float *logits, const int32_t *targets, int64_t t, int64_t first, int64_t n)
{
	rows_run(s,
		(struct rows){ .op = OP_SM_CHUNK,
			.stat_out = state,
			.x = { (void *)logits, WW_F32 },
			.ids = targets,
			.first = first,
			.t = t,
			.h = n },
		4 * n);
}

static void cpu_softmax_finish(struct ww_stream *s, float *logp, float *lse, const float *state, int64_t t)
{
	for (int64_t i = 0; s->err.rc == WW_OK && i < t; i++) {
		float v = state[3 * i] + logf(state[3 * i + 1]);
		if (logp)
			logp[i] = state[3 * i + 2] - v;
		if (lse)
			lse[i] = v;
	}
}

static void cpu_softmax_bwd(struct ww_stream *s, struct ww_arr dlogits, const float *logits, const int32_t *targets,
	const float *lse, const float *dlogp, int64_t t, int64_t first, int64_t n)
{
	rows_run(s,
		(struct rows){ .op = OP_SM_BWD,
			.y = dlogits,
			.x = { (void *)logits, WW_F32 },
			.ids = targets,
			.stat = lse,
			.scale = dlogp,
			.first = first,
			.t = t,
			.h = n },
		4 * n);
}

static void cpu_softmax_entropy(
	struct ww_stream *s, float *entropy, const float *logits, const float *lse, int64_t t, int64_t first, int64_t n)
{
	rows_run(s,
		(struct rows){ .op = OP_ENTROPY,
			.stat_out = entropy,
			.x = { (void *)logits, WW_F32 },
			.stat = lse,
			.first = first,
			.t = t,
			.h = n },
		4 * n);
}

/* ---- sampling tokens: a row is a part, with a copy of its logits and its weights for each thread */

struct samples {
	struct ww_sampled *out;
	const struct ww_sampler *how;
	const float *logits, *lse;
	int64_t t, v, chunk;
	float *room;
};

static void draw_part(void *arg, int64_t i, int worker)
{
	const struct samples *d = arg;
	uint64_t *weight = (uint64_t *)(d->room + worker * 4 * d->v);
	float *row = (float *)(weight + d->v);
	ww_dev_sample_row(d->logits, i, d->t, d->v, d->chunk, row);
	ww_dev_sample(row, d->v, d->lse[i], &d->how[i], weight, &d->out[i]);
}

static void cpu_sample(struct ww_stream *s, struct ww_sampled *out, const struct ww_sampler *how, const float *logits,
	const float *lse, int64_t t, int64_t v, int64_t chunk)
{
	struct samples d = { out, how, logits, lse, t, v, chunk,
		ww_cpu_scratch(s, 1, 4 * v * ww_pool_threads(s->d->pool)) };
	if (s->err.rc == WW_OK)
		ww_pool_run(s->d->pool, t, draw_part, &d);
}

/* ---- sums over tokens that meet in one row, and the optimizer */

struct scatter {
	struct ww_stream *s;
	float *dtable;
	struct ww_arr dy;
	const int32_t *ids;
	int64_t t, h;
};

/* Parts are columns, so that two tokens with one id never meet in two threads. */
static void scatter_part(void *arg, int64_t i, int worker)
{
	const struct scatter *e = arg;
	float buf[64];
	int64_t first = i * 64, n = e->h - first < 64 ? e->h - first : 64;
	for (int64_t t = 0; t < e->t; t++)
		e->s->d->k->mul_add(
			e->dtable + e->ids[t] * e->h + first, ww_cpu_in(e->s->d, e->dy, t * e->h + first, n, buf), NULL, 1, n);
}

static void cpu_embed_bwd(
	struct ww_stream *s, float *dtable, struct ww_arr dy, const int32_t *ids, int64_t t, int64_t h)
{
	struct scatter e = { s, dtable, dy, ids, t, h };
	if (s->err.rc == WW_OK)
		ww_pool_run(s->d->pool, (h + 63) / 64, scatter_part, &e);
}

static void cpu_scatter(
	struct ww_stream *s, struct ww_arr dst, struct ww_arr src, const int32_t *rows, int64_t t, int64_t width)
{
	size_t bytes = (size_t)width * (dst.dtype == WW_F32 ? 4 : 2);
	WW_BUG(dst.dtype != src.dtype);
	for (int64_t i = 0; s->err.rc == WW_OK && i < t; i++)
		memcpy((char *)dst.p + (size_t)rows[i] * bytes, (const char *)src.p + (size_t)i * bytes, bytes);
}

struct sums {
	struct ww_stream *s;
	const float *x;
	double *partial;
	int64_t n;
};

static void sumsq_part(void *arg, int64_t i, int worker)
{
	const struct sums *e = arg;
	int64_t at = i * SUMSQ_PIECE;
	e->partial[i] = e->s->d->k->sumsq(e->x + at, e->n - at < SUMSQ_PIECE ? e->n - at : SUMSQ_PIECE);
}

static void cpu_sumsq(struct ww_stream *s, float *out, const float *x, int64_t n)
{
	int64_t parts = (n + SUMSQ_PIECE - 1) / SUMSQ_PIECE;
	struct sums e = { s, x, (double *)ww_cpu_scratch(s, 1, 2 * parts + 2), n };
	double sum = 0;
	if (s->err.rc != WW_OK)
		return;
	ww_pool_run(s->d->pool, parts, sumsq_part, &e);
	for (int64_t i = 0; i < parts; i++)
		sum += e.partial[i];
	*out += (float)sum;
}

static void cpu_clip_factor(struct ww_stream *s, float *out, const float *in, float limit)
{
	if (s->err.rc != WW_OK)
		return;
	*out = *in > 0 ? (float)fmin(1, (double)limit / sqrt((double)*in)) : *in == 0 ? 1.0f : NAN;
}

struct step {
	struct ww_stream *s;
	float *master, *m, *v;
	struct ww_arr model;
	const float *grad, *scale;
	const struct ww_adamw *h;
	float c1, c2;
	int64_t n;
};

static void adamw_part(void *arg, int64_t i, int worker)
{
	const struct step *e = arg;
	int64_t at = i * PIECE, n = e->n - at < PIECE ? e->n - at : PIECE;
	e->s->d->k->adamw(e->master + at, e->m + at, e->v + at, e->grad + at, *e->scale, e->h, e->c1, e->c2, n);
	if (e->model.p && e->model.dtype == WW_F32 && e->model.p != e->master)
		memcpy((float *)e->model.p + at, e->master + at, (size_t)n * sizeof(float));
	else if (e->model.p)
		ww_cpu_flush(e->s->d, e->model, at, n, e->master + at);
}

static void cpu_adamw(struct ww_stream *s, float *master, struct ww_arr model, float *m, float *v, const float *grad,
	const float *scale, const struct ww_adamw *h, int64_t n)
{
	struct step e = {
		.s = s, .master = master, .m = m, .v = v, .model = model, .grad = grad, .scale = scale, .h = h, .n = n
	};
	e.c1 = (float)(1 / (1 - pow((double)h->beta1, (double)h->step)));
	e.c2 = (float)(1 / (1 - pow((double)h->beta2, (double)h->step)));
	if (s->err.rc == WW_OK)
		ww_pool_run(s->d->pool, (n + PIECE - 1) / PIECE, adamw_part, &e);
}

static const struct ww_dev_ops cpu_ops = { .name = "cpu",
	.alloc = ww_dev_host_alloc,
	.free = ww_dev_host_free,
	.memory = ww_dev_host_memory,
	.workspace = cpu_workspace,
	.upload = cpu_move,
	.download = cpu_move,
	.cast = ww_cpu_cast,
	.gemm = ww_cpu_gemm,
	.attention = ww_cpu_attention,
	.attention_bwd = ww_cpu_attention_bwd,
	WW_DEV_OPS(cpu) WW_DEV_FUSED_OPS(ww_dev) };

enum ww_rc ww_dev_cpu_open(int exact, struct ww_dev **out, struct ww_err *err)
{
	struct ww_cpu *d;
	WW_CHECK(WW_NEW(d, 1, err));
	d->dev.ops = &cpu_ops;
	d->dev.exact = exact;
	d->k = best_kernels();
	enum ww_rc rc = ww_pool_new(0, &d->pool, err);
	if (rc != WW_OK) {
		free(d);
		return rc;
	}
	snprintf(d->dev.bits.device, sizeof(d->dev.bits.device), "cpu");
	snprintf(d->dev.bits.kernels, sizeof(d->dev.bits.kernels), "%s", d->k->name);
	snprintf(d->dev.bits.libraries, sizeof(d->dev.bits.libraries), "glibc %s", gnu_get_libc_version());
	if (!exact)
		ww_cpu_blas_open(d);
	*out = &d->dev;
	return WW_OK;
}
