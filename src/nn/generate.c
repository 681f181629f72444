/* generate.c - one step of generation.
 *
 * The host uploads what changes from step to step (ids, positions, pages, sampling), the device computes, and one wait
 * returns 12 bytes a sequence.  Logits stay on the device, except for rows that ww_generate_logits() asks for: with a
 * vocabulary of 150,000 and 64 sequences they would be 39 MB a step.  They lie in chunks of columns as
 * ww_run_logprobs() makes them, so that the sum over the vocabulary is the same to the last bit.
 *
 * A step of one token for each sequence has some hundred small operations whose arguments depend only on the number of
 * sequences and on a bound of their lengths.  On devices with graphs they are recorded once for each such shape and
 * replayed; what changes from step to step is read from buffers.
 */
#include "nn/generate.h"
#include "nn/run.h"
#include "base/dtype.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64, WARM = 4 };

/* A shape of step that has been seen; recorded after WARM plain runs. */
struct slot {
	int64_t t, keys;
	const struct ww_kv *kv;
	int runs;
	struct ww_graph *graph;
};

struct ww_generate {
	struct ww_model *m;
	struct slot slots[SLOTS];
	int slot_n;
	struct ww_run *run;
	int64_t max_n;
	struct ww_sampler *asked; /* what is uploaded, on the host: how to sample, then the rows */
	void *base;               /* device from here */
	struct ww_sampler *how;
	int32_t *rows; /* behind the step's last `how` */
	struct ww_sampled *out;
	float *logits; /* (max_n, V) in chunks */
};

static int64_t most_rows(int64_t max_sequences)
{
	return max_sequences < WW_GENERATE_ROWS ? max_sequences : WW_GENERATE_ROWS;
}
static uint64_t room(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

static uint64_t asked_bytes(uint64_t n) { return n * (sizeof(struct ww_sampler) + sizeof(int32_t)); }

static uint64_t own_bytes(const struct ww_model *m, int64_t n)
{
	uint64_t rows = (uint64_t)n;
	return room(asked_bytes(rows)) + room(rows * sizeof(struct ww_sampled)) +
		rows * (uint64_t)m->config.vocab_size * sizeof(float);
}

uint64_t ww_generate_bytes(const struct ww_model *m, int64_t max_t, int64_t max_sequences)
{
	return own_bytes(m, most_rows(max_sequences)) + ww_run_bytes(&m->config, m->dtype, max_t, max_sequences, 0);
}

enum ww_rc ww_generate_new(
	struct ww_model *m, int64_t max_t, int64_t max_sequences, struct ww_generate **out, struct ww_err *err)
{
	struct ww_generate *g;
	enum ww_rc rc;
	if (m->config.critic)
		return ww_err_set(
			err, WW_ERR_USAGE, "this model is a critic, which cannot generate text; take the policy's checkpoint");
	WW_CHECK(WW_NEW(g, 1, err));
	g->m = m;
	g->max_n = most_rows(max_sequences);
	uint64_t n = (uint64_t)g->max_n;
	if (!(g->asked = malloc((size_t)asked_bytes(n))))
		WW_TRY(ww_nomem(err));
	WW_TRY(m->dev->ops->alloc(m->dev, own_bytes(m, g->max_n), &g->base, err));
	g->how = g->base;
	g->out = (void *)((char *)g->how + room(asked_bytes(n)));
	g->logits = (void *)((char *)g->out + room(n * sizeof(*g->out)));
	WW_TRY(ww_run_new(m, max_t, max_sequences, 0, &g->run, err));
	*out = g;
out:
	if (rc != WW_OK)
		ww_generate_free(g);
	return rc;
}

void ww_generate_free(struct ww_generate *g)
{
	if (!g)
		return;
	for (int i = 0; i < g->slot_n; i++)
		if (g->slots[i].graph)
			g->m->dev->ops->graph_free(g->slots[i].graph);
	ww_run_free(g->run);
	if (g->base)
		g->m->dev->ops->free(g->m->dev, g->base);
	free(g->asked);
	free(g);
}

/* Logits in chunks of columns, and the sum over each row. */
static void logits_in_chunks(struct ww_generate *g, int64_t n)
{
	struct ww_run *r = g->run;
	struct ww_arr w = ww_model_weight(g->m, r->head);
	int64_t v = g->m->config.vocab_size, h = g->m->config.hidden_size;
	for (int64_t v0 = 0; v0 < v; v0 += WW_HEAD_V) {
		int64_t nv = v - v0 < WW_HEAD_V ? v - v0 : WW_HEAD_V;
		float *logits = g->logits + n * v0;
		struct ww_arr part = { (char *)w.p + (size_t)(v0 * h) * ww_dtype_bytes(w.dtype), w.dtype };
		r->ops->gemm(r->s, WW_GEMM_NT, (struct ww_arr){ logits, WW_F32 }, r->tmp, part, n, nv, h, 0);
		r->ops->softmax_chunk(r->s, r->state, logits, g->rows, n, v0, nv); /* targets are of no interest */
	}
	r->ops->softmax_finish(r->s, NULL, r->lse, r->state, n);
}

/* Columns of a chunk of the logits: all of them where one product has the bits of one for each chunk. */
static int64_t chunk_of(const struct ww_generate *g)
{
	int64_t v = g->m->config.vocab_size;
	return g->m->dev->wide && v % 8 == 0 ? v : WW_HEAD_V;
}

/* Logits of n rows, their log-sums and samples; the row numbers are in device memory. */
static void head(struct ww_generate *g, int64_t n)
{
	struct ww_run *r = g->run;
	int64_t v = g->m->config.vocab_size, h = g->m->config.hidden_size;
	int whole = chunk_of(g) == v;
	r->ops->embed(r->s, r->tmp, r->hidden, g->rows, n, h); /* gathers */
	if (whole) {
		r->ops->gemm(
			r->s, WW_GEMM_NT, (struct ww_arr){ g->logits, WW_F32 }, r->tmp, ww_model_weight(g->m, r->head), n, v, h, 0);
		r->ops->lse_rows(r->s, r->lse, r->state, g->rows, g->logits, n, v, WW_HEAD_V);
	} else {
		logits_in_chunks(g, n);
	}
	r->ops->sample(r->s, g->out, g->how, g->logits, r->lse, n, v, chunk_of(g));
}

/* ---- recorded steps */

int64_t ww_generate_fill(const struct ww_generate *g, int64_t n)
{
	int64_t step = n <= 8 ? 1 : n <= 64 ? 8 : n <= 256 ? 16 : 64, full = (n + step - 1) / step * step;
	return g->m->dev->ops->graph_begin && full <= g->max_n ? full : n;
}

/* The slot of this step; NULL where the step is not recorded: it holds prompts, or all slots are in use. */
static struct slot *slot_of(struct ww_generate *g, const struct ww_batch *b, int64_t n)
{
	int64_t keys = g->run->keys_max;
	if (!g->run->ops->graph_begin || n != b->t || n != b->sequences)
		return NULL;
	for (int i = 0; i < g->slot_n; i++)
		if (g->slots[i].t == n && g->slots[i].keys == keys && g->slots[i].kv == b->kv)
			return &g->slots[i];
	if (g->slot_n == SLOTS)
		return NULL;
	g->slots[g->slot_n] = (struct slot){ .t = n, .keys = keys, .kv = b->kv };
	return &g->slots[g->slot_n++];
}

static void compute(struct ww_generate *g, int64_t n)
{
	ww_run_compute(g->run);
	if (n)
		head(g, n);
}

/* Run the step: by its graph, by recording one, or without. */
static void work(struct ww_generate *g, const struct ww_batch *b, int64_t n)
{
	struct ww_run *r = g->run;
	struct slot *s = slot_of(g, b, n);
	if (!s) {
		compute(g, n);
		return;
	}
	if (s->graph && r->ops->graph_run(r->s, s->graph))
		return;
	if (s->graph) { /* it cannot run any more */
		r->ops->graph_free(s->graph);
		s->graph = NULL;
		s->runs = WARM - 1;
	}
	if (s->runs++ < WARM) {
		compute(g, n);
		return;
	}
	r->ops->graph_begin(r->s);
	compute(g, n);
	s->graph = r->ops->graph_end(r->s);
	if (s->graph && !r->ops->graph_run(r->s, s->graph))
		compute(g, n);
}

static void upload_sample(struct ww_generate *g, const int32_t *rows, const struct ww_sampler *how, int64_t n)
{
	struct ww_run *r = g->run;
	memcpy(g->asked, how, (size_t)n * sizeof(*how));
	memcpy(g->asked + n, rows, (size_t)n * sizeof(*rows));
	g->rows = (void *)(g->how + n);
	r->ops->upload(r->s, g->how, g->asked, (size_t)asked_bytes((uint64_t)n));
}

enum ww_rc ww_generate_step(struct ww_generate *g, const struct ww_batch *b, const int32_t *rows,
	const struct ww_sampler *how, int64_t n, struct ww_sampled *out, struct ww_err *err)
{
	struct ww_run *r = g->run;
	enum ww_rc rc = ww_run_upload(r, b, err);
	if (rc != WW_OK)
		return rc;
	WW_BUG(n < 0 || n > g->max_n || n > b->t);
	if (n)
		upload_sample(g, rows, how, n);
	work(g, b, n);
	if (n)
		r->ops->download(r->s, out, g->out, (size_t)n * sizeof(*out));
	rc = r->ops->sync(r->s, err);
	for (int64_t i = 0; rc == WW_OK && i < n; i++)
		if (out[i].token < 0)
			rc = ww_err_set(err, WW_ERR_DEVICE, "the model's logits are not finite");
	return rc;
}

enum ww_rc ww_generate_logits(
	struct ww_generate *g, int64_t n, int64_t i, float *logits, float *lse, struct ww_err *err)
{
	struct ww_run *r = g->run;
	int64_t v = g->m->config.vocab_size, chunk = chunk_of(g);
	for (int64_t c = 0; c < v; c += chunk) {
		int64_t w = v - c < chunk ? v - c : chunk;
		r->ops->download(r->s, logits + c, g->logits + n * c + i * w, (size_t)w * sizeof(*logits));
	}
	r->ops->download(r->s, lse, r->lse + i, sizeof(*lse));
	return r->ops->sync(r->s, err);
}
