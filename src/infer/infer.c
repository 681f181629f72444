/* infer.c - continuous batching.
 *
 * Each step computes one token of every generating sequence and fills the rest of its tokens with prompts, in order of
 * submission.  A sequence takes pages as it grows.  When none is free, the sequence that was submitted last is
 * preempted: it frees its pages and is computed again later.  So no cache is reserved for tokens that may never come,
 * and the oldest sequence always makes progress, since any single request fits the cache.
 *
 * Full pages are indexed by their tokens (pages.c) and stay cached when their sequence ends, so the next turn of a
 * conversation, or a request with the same prefix, reuses them.  A request whose prefix is being computed waits for it:
 * a group of samples of one prompt computes the prompt once.
 *
 * The output of a sequence depends on that sequence alone.  In exact mode a row's numbers do not depend on the batch,
 * and random numbers are indexed by the sequence's own stream and position.  Batching, prefix reuse and preemption
 * change no bit of it.
 */
#include "infer/infer.h"
#include "base/range.h"
#include "infer/pages.h"

#include <stdlib.h>
#include <string.h>

struct seq {
	struct ww_request q;    /* prompt and stop point into `ids` and `stops` */
	int64_t id, n, want;    /* n: tokens so far; want: tokens at most */
	int64_t cached, reused; /* tokens in the cache; of these, found there at the first admission */
	int32_t *ids, *stops, *pages;
	int64_t page_n, shared;     /* pages held; how many of them, from the first, are in the index */
	int64_t step_n;             /* tokens in this step */
	int running, admitted, row; /* row: its sample in this step, or -1 */
};

struct ww_infer {
	struct ww_model *m;
	struct ww_generate *gen;
	struct ww_kv *kv;
	struct ww_pages *pages;
	struct ww_infer_limits l;
	struct ww_infer_stats stats;
	int64_t next_id, stride;
	struct seq **all; /* in order of submission */
	int64_t count, running;
	size_t cap;
	/* one step */
	int32_t *ids, *starts, *cached, *table, *rows;
	struct ww_sampler *how;
	struct ww_sampled *sampled;
	float *logits; /* of one row, where a request wants to see them; else NULL */
};

static int64_t pages_for(int64_t tokens) { return (tokens + WW_KV_PAGE - 1) / WW_KV_PAGE; }
uint64_t ww_infer_bytes(const struct ww_model *m, const struct ww_infer_limits *l)
{
	return (uint64_t)(pages_for(l->cache_tokens) + 1) * ww_kv_page_bytes(m) +
		ww_generate_bytes(m, l->step_tokens, l->max_sequences);
}

enum ww_rc ww_infer_new(struct ww_model *m, const struct ww_infer_limits *l, struct ww_infer **out, struct ww_err *err)
{
	struct ww_infer *f;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(f, 1, err));
	WW_BUG(l->max_sequences < 1 || l->max_sequences > WW_GENERATE_ROWS || l->step_tokens < l->max_sequences ||
		l->cache_tokens < 1);
	f->m = m;
	f->l = *l;
	f->stride = ww_kv_stride(m);
	size_t s = (size_t)l->max_sequences;
	WW_TRY(WW_NEW(f->ids, l->step_tokens, err));
	WW_TRY(WW_NEW(f->starts, s + 1, err));
	WW_TRY(WW_NEW(f->cached, s, err));
	WW_TRY(WW_NEW(f->rows, s, err));
	WW_TRY(WW_NEW(f->table, s * (size_t)f->stride, err));
	WW_TRY(WW_NEW(f->how, s, err));
	WW_TRY(WW_NEW(f->sampled, s, err));
	WW_TRY(ww_pages_new(pages_for(l->cache_tokens), &f->pages, err));
	WW_TRY(ww_infer_wake(f, err));
	*out = f;
out:
	if (rc != WW_OK)
		ww_infer_free(f);
	return rc;
}

/* ---- requests */

/* Free its pages and leave the batch. */
static void stop_running(struct ww_infer *f, struct seq *s)
{
	ww_pages_drop(f->pages, s->pages, s->page_n);
	s->page_n = s->shared = s->cached = 0;
	f->running -= s->running;
	s->running = 0;
}

static void seq_free(struct ww_infer *f, struct seq *s)
{
	if (!s)
		return;
	stop_running(f, s);
	free(s->ids);
	free(s->stops);
	free(s->pages);
	free(s);
}

static void release_device(struct ww_infer *f)
{
	ww_generate_free(f->gen);
	ww_kv_free(f->kv);
	f->gen = NULL;
	f->kv = NULL;
}

void ww_infer_rest(struct ww_infer *f)
{
	ww_infer_forget(f);
	release_device(f);
}

enum ww_rc ww_infer_wake(struct ww_infer *f, struct ww_err *err)
{
	enum ww_rc rc = ww_kv_new(f->m, pages_for(f->l.cache_tokens) + 1, &f->kv, err); /* one that fill_up() writes to */
	if (rc == WW_OK)
		rc = ww_generate_new(f->m, f->l.step_tokens, f->l.max_sequences, &f->gen, err);
	if (rc != WW_OK)
		release_device(f);
	return rc;
}

void ww_infer_free(struct ww_infer *f)
{
	if (!f)
		return;
	for (int64_t i = 0; i < f->count; i++)
		seq_free(f, f->all[i]);
	release_device(f);
	ww_pages_free(f->pages);
	free(f->all);
	free(f->ids);
	free(f->starts);
	free(f->cached);
	free(f->rows);
	free(f->table);
	free(f->how);
	free(f->sampled);
	free(f->logits);
	free(f);
}

enum ww_rc ww_infer_check(const struct ww_infer *f, const struct ww_request *q, struct ww_err *err)
{
	const struct ww_config *c = &f->m->config;
	WW_BUG(q->prompt_n < 1 || q->max_new < 1);
	/* The last token is never an input, so it needs no room in the cache. */
	if (q->prompt_n > c->max_position || q->max_new - 1 > c->max_position - q->prompt_n)
		return ww_err_set(err, WW_ERR_LIMIT, "a prompt of %lld tokens and %lld new ones do not fit the context of %lld",
			(long long)q->prompt_n, (long long)q->max_new, (long long)c->max_position);
	int64_t pages = pages_for(f->l.cache_tokens);
	if (pages_for(q->prompt_n + q->max_new - 1) > pages)
		return ww_err_set(err, WW_ERR_LIMIT, "a prompt of %lld tokens and %lld new ones do not fit the cache of %lld",
			(long long)q->prompt_n, (long long)q->max_new, (long long)(pages * WW_KV_PAGE));
	for (int64_t i = 0; i < q->prompt_n; i++)
		if (q->prompt[i] < 0 || q->prompt[i] >= c->vocab_size)
			return ww_err_set(err, WW_ERR_USAGE, "token %d is outside the model's vocabulary of %lld", q->prompt[i],
				(long long)c->vocab_size);
	return WW_OK;
}

enum ww_rc ww_infer_submit(struct ww_infer *f, const struct ww_request *q, int64_t *id, struct ww_err *err)
{
	WW_CHECK(ww_infer_check(f, q, err));
	if (!WW_GROW(f->all, &f->cap, f->count + 1))
		return ww_nomem(err);
	struct seq *s = calloc(1, sizeof(*s));
	if (s) {
		s->ids = malloc((size_t)(q->prompt_n + q->max_new) * sizeof(*s->ids));
		s->stops = malloc(((size_t)q->stop_n + 1) * sizeof(*s->stops));
		s->pages = malloc((size_t)f->stride * sizeof(*s->pages));
	}
	if (!s || !s->ids || !s->stops || !s->pages) {
		seq_free(f, s);
		return ww_nomem(err);
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

/* ---- admission and pages */

/* Take the cached pages of the prefix of s.  At least one token is left to compute, for its logits. */
static void find_beginning(struct ww_infer *f, struct seq *s)
{
	while ((s->page_n + 1) * WW_KV_PAGE < s->n) {
		int32_t i = ww_pages_find(f->pages, s->page_n ? s->pages[s->page_n - 1] : -1, s->ids + s->page_n * WW_KV_PAGE);
		if (i < 0)
			break;
		s->pages[s->page_n++] = i;
	}
	s->shared = s->page_n;
	s->cached = s->page_n * WW_KV_PAGE;
}

/* Whether a running sequence is computing the page that s needs next. */
static int is_coming(const struct ww_infer *f, const struct seq *s)
{
	int64_t n = s->cached + WW_KV_PAGE;
	for (int64_t i = 0; n < s->n && i < f->count; i++) {
		const struct seq *r = f->all[i];
		if (r->running && r->cached < n && r->n >= n && !memcmp(r->ids, s->ids, (size_t)n * sizeof(*s->ids)))
			return 1;
	}
	return 0;
}

/* Admit in order of submission, so that short requests cannot starve a long one; only a request that waits for pages
 * which another one is computing is passed over.  One page beyond the tokens so far must be free, else the sequence
 * would be preempted at its first page boundary. */
static void admit(struct ww_infer *f)
{
	for (int64_t i = 0; i < f->count && f->running < f->l.max_sequences; i++) {
		struct seq *s = f->all[i];
		if (s->running)
			continue;
		find_beginning(f, s);
		int coming = is_coming(f, s);
		if (coming || ww_min_i64(pages_for(s->n) + 1, pages_for(s->want - 1)) - s->page_n > ww_pages_left(f->pages)) {
			stop_running(f, s);
			if (coming)
				continue;
			return;
		}
		if (!s->admitted)
			f->stats.reused_tokens += s->reused = s->cached;
		s->running = s->admitted = 1;
		f->running++;
	}
}

/* The running sequence that was submitted last. */
static struct seq *youngest(struct ww_infer *f)
{
	int64_t i = f->count - 1;
	while (!f->all[i]->running)
		i--;
	return f->all[i];
}

/* Take pages for all tokens of this step, preempting younger sequences; 0: s itself was preempted. */
static int get_pages(struct ww_infer *f, struct seq *s, int64_t tokens)
{
	while (s->running && s->page_n < pages_for(tokens)) {
		int32_t page = ww_pages_take(f->pages);
		if (page >= 0) {
			s->pages[s->page_n++] = page;
			continue;
		}
		f->stats.preempted++;
		stop_running(f, youngest(f));
	}
	return s->running;
}

static int64_t missing(const struct seq *s) { return s->n - s->cached; }

/* Divide the step's tokens.  A sequence that lacks one token, as each does that generates, gets it first.  Prompts fill
 * the rest in order, as whole as there is room: small parts of many prompts would each read all their keys again. */
static void share_out(struct ww_infer *f)
{
	int64_t left = f->l.step_tokens, reserved = 0;
	for (int64_t i = 0; i < f->count; i++)
		reserved += f->all[i]->running && missing(f->all[i]) == 1;
	for (int64_t i = 0; i < f->count; i++) {
		struct seq *s = f->all[i];
		s->step_n = 0;
		if (!s->running)
			continue;
		reserved -= missing(s) == 1;
		int64_t n = ww_min_i64(missing(s), left - reserved);
		if (!n || !get_pages(f, s, s->cached + n))
			continue;
		s->step_n = n;
		left -= n;
	}
}

/* Pad the batch with dummy sequences of one token, in a page of their own, to a size that has a recorded graph. */
static void fill_up(struct ww_infer *f, int64_t stride, int64_t *t, int64_t *chosen)
{
	for (int64_t full = ww_generate_fill(f->gen, *t); *t < full; (*t)++, (*chosen)++) {
		int32_t *table = f->table + *t * stride;
		memset(table, 0xff, (size_t)stride * sizeof(*table));
		table[0] = (int32_t)(f->kv->pages - 1);
		f->ids[*t] = 0;
		f->cached[*t] = 0;
		f->starts[*t + 1] = (int32_t)*t + 1;
		f->how[*t] = (struct ww_sampler){ .sampling = { .top_p = 1 } };
		f->rows[*t] = (int32_t)*t;
	}
}

/* Pages of the running sequence that holds the most. */
static int64_t most_pages(const struct ww_infer *f)
{
	int64_t most = 1;
	for (int64_t i = 0; i < f->count; i++)
		most = f->all[i]->running && f->all[i]->page_n > most ? f->all[i]->page_n : most;
	return most;
}

/* Build the step's batch; *chosen of its rows are sampled. */
static struct ww_batch build(struct ww_infer *f, int64_t *chosen)
{
	int64_t t = 0, q = 0, stride = most_pages(f);
	*chosen = 0;
	f->starts[0] = 0;
	for (int64_t i = 0; i < f->count; i++) {
		struct seq *s = f->all[i];
		s->row = -1;
		if (!s->step_n)
			continue;
		int32_t *table = f->table + q * stride;
		memcpy(f->ids + t, s->ids + s->cached, (size_t)s->step_n * sizeof(*f->ids));
		memcpy(table, s->pages, (size_t)s->page_n * sizeof(*table));
		memset(table + s->page_n, 0xff, (size_t)(stride - s->page_n) * sizeof(*table));
		f->cached[q] = (int32_t)s->cached;
		t += s->step_n;
		f->starts[++q] = (int32_t)t;
		if (s->cached + s->step_n < s->n)
			continue;
		f->how[*chosen] = (struct ww_sampler){ s->q.sampling, s->q.seed, s->q.stream, (uint64_t)s->n };
		f->rows[*chosen] = (int32_t)t - 1;
		s->row = (int)(*chosen)++;
	}
	if (*chosen == t) { /* one token each */
		fill_up(f, stride, &t, chosen);
		q = t;
	}
	return (struct ww_batch){ .ids = f->ids,
		.starts = f->starts,
		.t = t,
		.sequences = q,
		.kv = f->kv,
		.cached = f->cached,
		.pages = f->table,
		.pages_stride = stride };
}

/* ---- results */

/* Count the step's tokens as cached and put pages that are now full into the index. */
static void note_cached(struct ww_infer *f, struct seq *s)
{
	f->stats.prompt_tokens += ww_min_i64(s->cached + s->step_n, s->q.prompt_n) - ww_min_i64(s->cached, s->q.prompt_n);
	s->cached += s->step_n;
	for (; (s->shared + 1) * WW_KV_PAGE <= s->cached; s->shared++) {
		int32_t parent = s->shared ? s->pages[s->shared - 1] : -1;
		s->pages[s->shared] = ww_pages_publish(f->pages, s->pages[s->shared], parent, s->ids + s->shared * WW_KV_PAGE);
	}
}

static struct ww_infer_event take_token(struct ww_infer *f, struct seq *s)
{
	struct ww_infer_event e = { .user = s->q.user, .id = s->id, .sampled = f->sampled[s->row], .reused = s->reused };
	s->ids[s->n++] = e.sampled.token;
	for (int i = 0; i < s->q.stop_n; i++)
		if (s->stops[i] == e.sampled.token)
			e.end = WW_END_STOP;
	if (e.end == WW_END_NONE && s->n == s->want)
		e.end = WW_END_LENGTH;
	f->stats.new_tokens++;
	return e;
}

/* Show a sequence the logits of its new token; the buffer is made when the first one asks. */
static enum ww_rc show_logits(struct ww_infer *f, struct seq *s, int64_t chosen, struct ww_err *err)
{
	float lse;
	if (!s->q.on_logits || !s->running || s->row < 0)
		return WW_OK;
	if (!f->logits && !(f->logits = malloc((size_t)f->m->config.vocab_size * sizeof(*f->logits))))
		return ww_nomem(err);
	WW_CHECK(ww_generate_logits(f->gen, chosen, s->row, f->logits, &lse, err));
	s->q.on_logits(s->q.user, f->logits, lse, &f->how[s->row], &f->sampled[s->row]);
	return WW_OK;
}

enum ww_rc ww_infer_step(struct ww_infer *f, int (*on_token)(void *arg, const struct ww_infer_event *e), void *arg,
	int64_t *left, struct ww_err *err)
{
	int64_t chosen;
	admit(f);
	*left = f->count;
	if (!f->running)
		return WW_OK;
	share_out(f);
	struct ww_batch b = build(f, &chosen);
	WW_CHECK(ww_generate_step(f->gen, &b, f->rows, f->how, chosen, f->sampled, err));
	for (int64_t i = 0; i < f->count; i++)
		WW_CHECK(show_logits(f, f->all[i], chosen, err));
	f->stats.steps++;
	for (int64_t i = 0; i < f->count; i++)
		if (f->all[i]->running)
			note_cached(f, f->all[i]);
	for (int64_t i = 0; i < f->count;) {
		struct seq *s = f->all[i];
		if (!s->running || s->row < 0) {
			i++;
			continue;
		}
		struct ww_infer_event e = take_token(f, s);
		if (on_token(arg, &e) || e.end != WW_END_NONE)
			drop(f, i);
		else
			i++;
	}
	*left = f->count;
	return WW_OK;
}

void ww_infer_forget(struct ww_infer *f)
{
	WW_BUG(f->count);
	ww_pages_forget(f->pages);
}

int64_t ww_infer_pages_left(const struct ww_infer *f) { return ww_pages_left(f->pages); }
struct ww_infer_stats ww_infer_stats(const struct ww_infer *f) { return f->stats; }
