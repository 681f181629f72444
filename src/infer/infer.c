/* infer.c - continuous batching.
 *
 * A request is admitted when a slot is free and the cache has pages for its whole life (prompt and max_new), so nothing ever
 * has to be thrown out and computed again; the price is cache that a sequence which stops early did not need.  Each step takes one
 * token from every sequence that generates and fills the rest of the step with prompts, in order of submission.
 *
 * What a sequence generates depends on itself alone: in exact mode the device promises that a row's numbers do not depend on
 * the batch, and random numbers are counted by the sequence's own stream and position.
 */
#include "infer/infer.h"

#include <stdlib.h>
#include <string.h>

struct seq {
	struct ww_request q;		/* prompt and stop point into `ids` and `stops` */
	int64_t id, n, cached, want;	/* known tokens, those in the cache, tokens at most */
	int32_t *ids, *stops, *pages;
	int64_t page_n;
	int running, rows_at;		/* rows_at: its row of logits in this step, or -1 */
};

struct ww_infer {
	struct ww_model *m;
	struct ww_run *run;
	struct ww_kv *kv;
	struct ww_infer_limits l;
	int32_t *free_pages;
	int64_t free_n, next_id, stride;
	struct seq **all;		/* in order of submission */
	int64_t count, cap, running;
	/* one step */
	int32_t *ids, *starts, *cached, *table, *rows;
	float *logits, *lse;
};

static int64_t pages_for(int64_t tokens) { return (tokens + WW_KV_PAGE - 1) / WW_KV_PAGE; }

enum ww_rc ww_infer_new(struct ww_model *m, const struct ww_infer_limits *l, struct ww_infer **out, struct ww_err *err)
{
	struct ww_infer *f = calloc(1, sizeof(*f));
	enum ww_rc rc;
	if (!f)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	WW_BUG(l->max_sequences < 1 || l->max_sequences > WW_RUN_ROWS || l->step_tokens < l->max_sequences || l->cache_tokens < 1);
	f->m = m;
	f->l = *l;
	f->free_n = pages_for(l->cache_tokens);
	f->stride = pages_for(m->config.max_position);
	size_t s = (size_t)l->max_sequences;
	f->free_pages = malloc((size_t)f->free_n * sizeof(*f->free_pages));
	f->ids = malloc((size_t)l->step_tokens * sizeof(*f->ids));
	f->starts = malloc((s + 1) * sizeof(*f->starts));
	f->cached = malloc(s * sizeof(*f->cached));
	f->rows = malloc(s * sizeof(*f->rows));
	f->table = malloc(s * (size_t)f->stride * sizeof(*f->table));
	f->lse = malloc(s * sizeof(*f->lse));
	f->logits = malloc(s * (size_t)m->config.vocab_size * sizeof(*f->logits));
	if (!f->free_pages || !f->ids || !f->starts || !f->cached || !f->rows || !f->table || !f->lse || !f->logits) {
		rc = ww_err_set(err, WW_ERR_NOMEM, "out of memory");
		goto out;
	}
	for (int64_t i = 0; i < f->free_n; i++)
		f->free_pages[i] = (int32_t)(f->free_n - 1 - i);
	WW_TRY(ww_kv_new(m, f->free_n, &f->kv, err));
	WW_TRY(ww_run_new(m, l->step_tokens, l->max_sequences, 0, &f->run, err));
	*out = f;
out:
	if (rc != WW_OK)
		ww_infer_free(f);
	return rc;
}

static void seq_free(struct ww_infer *f, struct seq *s)
{
	if (!s)
		return;
	for (int64_t i = 0; i < s->page_n; i++)
		f->free_pages[f->free_n++] = s->pages[i];
	f->running -= s->running;
	free(s->ids);
	free(s->stops);
	free(s->pages);
	free(s);
}

void ww_infer_free(struct ww_infer *f)
{
	if (!f)
		return;
	for (int64_t i = 0; i < f->count; i++)
		seq_free(f, f->all[i]);
	ww_run_free(f->run);
	ww_kv_free(f->kv);
	free(f->all);
	free(f->free_pages);
	free(f->ids);
	free(f->starts);
	free(f->cached);
	free(f->rows);
	free(f->table);
	free(f->lse);
	free(f->logits);
	free(f);
}

static enum ww_rc check_request(const struct ww_infer *f, const struct ww_request *q, struct ww_err *err)
{
	const struct ww_config *c = &f->m->config;
	WW_BUG(q->prompt_n < 1 || q->max_new < 1);
	/* The last token is never fed back, so it needs no place. */
	if (q->prompt_n > c->max_position || q->max_new - 1 > c->max_position - q->prompt_n)
		return ww_err_set(err, WW_ERR_LIMIT, "a prompt of %lld tokens and %lld new ones do not fit the context of %lld",
				  (long long)q->prompt_n, (long long)q->max_new, (long long)c->max_position);
	if (pages_for(q->prompt_n + q->max_new - 1) > f->kv->pages)
		return ww_err_set(err, WW_ERR_LIMIT, "a prompt of %lld tokens and %lld new ones do not fit the cache of %lld",
				  (long long)q->prompt_n, (long long)q->max_new, (long long)(f->kv->pages * WW_KV_PAGE));
	for (int64_t i = 0; i < q->prompt_n; i++)
		if (q->prompt[i] < 0 || q->prompt[i] >= c->vocab_size)
			return ww_err_set(err, WW_ERR_USAGE, "token %d is outside the model's vocabulary of %lld", q->prompt[i],
					  (long long)c->vocab_size);
	return WW_OK;
}

enum ww_rc ww_infer_submit(struct ww_infer *f, const struct ww_request *q, int64_t *id, struct ww_err *err)
{
	enum ww_rc rc = check_request(f, q, err);
	if (rc != WW_OK)
		return rc;
	if (f->count == f->cap) {
		int64_t cap = f->cap ? 2 * f->cap : 16;
		struct seq **all = realloc(f->all, (size_t)cap * sizeof(*all));
		if (!all)
			return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
		f->all = all;
		f->cap = cap;
	}
	struct seq *s = calloc(1, sizeof(*s));
	if (s) {
		s->ids = malloc((size_t)(q->prompt_n + q->max_new) * sizeof(*s->ids));
		s->stops = malloc(((size_t)q->stop_n + 1) * sizeof(*s->stops));
		s->pages = malloc((size_t)f->stride * sizeof(*s->pages));
	}
	if (!s || !s->ids || !s->stops || !s->pages) {
		seq_free(f, s);
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	}
	s->q = *q;
	s->n = q->prompt_n;
	s->want = q->prompt_n + q->max_new;
	memcpy(s->ids, q->prompt, (size_t)q->prompt_n * sizeof(*s->ids));
	if (q->stop_n)
		memcpy(s->stops, q->stop, (size_t)q->stop_n * sizeof(*s->stops));
	*id = s->id = f->next_id++;
	f->all[f->count++] = s;
	return WW_OK;
}

static void drop(struct ww_infer *f, int64_t i)
{
	seq_free(f, f->all[i]);
	memmove(f->all + i, f->all + i + 1, (size_t)(--f->count - i) * sizeof(*f->all));
}

void ww_infer_cancel(struct ww_infer *f, int64_t id)
{
	for (int64_t i = 0; i < f->count; i++)
		if (f->all[i]->id == id) {
			drop(f, i);
			return;
		}
}

/* Strictly in order: a long request at the head is not overtaken for ever by short ones. */
static void admit(struct ww_infer *f)
{
	for (int64_t i = 0; i < f->count && f->running < f->l.max_sequences; i++) {
		struct seq *s = f->all[i];
		int64_t need = pages_for(s->want - 1);
		if (s->running)
			continue;
		if (need > f->free_n)
			return;
		while (s->page_n < need)
			s->pages[s->page_n++] = f->free_pages[--f->free_n];
		s->running = 1;
		f->running++;
	}
}

/* The step's batch; *chosen rows of logits. */
static struct ww_batch build(struct ww_infer *f, int64_t *chosen)
{
	int64_t t = 0, q = 0, waiting = 0;
	for (int64_t i = 0; i < f->count; i++)
		waiting += f->all[i]->running;
	*chosen = 0;
	f->starts[0] = 0;
	for (int64_t i = 0; i < f->count; i++) {
		struct seq *s = f->all[i];
		s->rows_at = -1;
		if (!s->running)
			continue;
		int64_t room = f->l.step_tokens - t - --waiting, n = s->n - s->cached;	/* one token is kept for each that follows */
		n = n < room ? n : room;
		memcpy(f->ids + t, s->ids + s->cached, (size_t)n * sizeof(*f->ids));
		memcpy(f->table + q * f->stride, s->pages, (size_t)s->page_n * sizeof(*f->table));
		for (int64_t k = s->page_n; k < f->stride; k++)
			f->table[q * f->stride + k] = -1;
		f->cached[q] = (int32_t)s->cached;
		t += n;
		f->starts[++q] = (int32_t)t;
		s->cached += n;
		if (s->cached == s->n) {
			s->rows_at = (int)*chosen;
			f->rows[(*chosen)++] = (int32_t)t - 1;
		}
	}
	return (struct ww_batch){ .ids = f->ids, .starts = f->starts, .t = t, .sequences = q, .kv = f->kv, .cached = f->cached,
				  .pages = f->table, .pages_stride = f->stride };
}

static enum ww_rc sample_one(struct ww_infer *f, struct seq *s, struct ww_infer_event *e, struct ww_err *err)
{
	int64_t v = f->m->config.vocab_size;
	*e = (struct ww_infer_event){ .user = s->q.user, .id = s->id };
	enum ww_rc rc = ww_sample(f->logits + s->rows_at * v, v, f->lse[s->rows_at], &s->q.sampling, s->q.seed, s->q.stream,
				  (uint64_t)s->n, &e->sampled, err);
	if (rc != WW_OK)
		return rc;
	s->ids[s->n++] = e->sampled.token;
	for (int i = 0; i < s->q.stop_n; i++)
		if (s->stops[i] == e->sampled.token)
			e->finish = WW_FINISH_STOP;
	if (e->finish == WW_FINISH_NONE && s->n == s->want)
		e->finish = WW_FINISH_LENGTH;
	return WW_OK;
}

enum ww_rc ww_infer_step(struct ww_infer *f, void (*on_token)(void *arg, const struct ww_infer_event *e), void *arg,
			 int64_t *left, struct ww_err *err)
{
	int64_t chosen;
	enum ww_rc rc = WW_OK;
	admit(f);
	*left = f->count;
	if (!f->running)
		return WW_OK;
	struct ww_batch b = build(f, &chosen);
	WW_TRY(ww_run_forward(f->run, &b, err));
	if (chosen)
		WW_TRY(ww_run_logits(f->run, f->rows, chosen, f->logits, f->lse, err));
	for (int64_t i = 0; i < f->count;) {
		struct seq *s = f->all[i];
		struct ww_infer_event e;
		if (!s->running || s->rows_at < 0) {
			i++;
			continue;
		}
		WW_TRY(sample_one(f, s, &e, err));
		s->rows_at = -1;
		if (e.finish != WW_FINISH_NONE)
			drop(f, i);
		else
			i++;
		on_token(arg, &e);
	}
	*left = f->count;
out:
	return rc;
}

int64_t ww_infer_free_pages(const struct ww_infer *f) { return f->free_n; }
