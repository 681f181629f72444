/* engine.c - see engine.h.
 *
 * One thread runs the model, since struct ww_infer is not thread-safe.  Other threads append requests to a list, and
 * the engine's thread calls them back with each token.  A job is in one of two lists: `fresh`, which any thread appends
 * to under the lock, and `jobs`, which only the engine's thread changes (under the lock, since other threads search it
 * by id).  Every job gets exactly one last event, also when it is cancelled or fails; after it nothing refers to the
 * job.
 *
 * A step holds a share of the device (host/lease.h).  While a judge measures there, in this process or another, the
 * engine's thread waits; it still handles cancelled requests and its own shutdown.
 *
 * Engines are shared by their options: the episodes of a run open the same model, get the same engine and are batched
 * together.
 */
#include "infer/engine.h"
#include "infer/json_guide.h"
#include "infer/text.h"

#include "base/fs.h"
#include "base/json.h"
#include "host/lease.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/range.h"
#include "base/time.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ANSWER_TEXT_MAX = 64 << 20,
	CPU_STEP_TOKENS = 512,
	CUDA_STEP_TOKENS = 8192,
	CPU_SEQUENCES = 32,
	CUDA_SEQUENCES = 256,
	LEAST_CACHE_TOKENS = 1024,
	GENERATION_CONFIG_MAX = 1 << 20
};
#define CPU_CACHE_BYTES ((uint64_t)2 << 30)
#define CUDA_CACHE_BYTES ((uint64_t)24 << 30)

struct job {
	struct job *next;
	int64_t id, infer_id;
	struct ww_request q; /* prompt and stop are the job's own */
	int32_t *prompt, *stop_ids;
	struct ww_text text;
	void (*on_event)(void *ctx, const struct ww_engine_event *e);
	void *ctx;
	int64_t reused;
	struct ww_engine *e;
	struct ww_json_guide guide;
	struct ww_engine_top top[WW_ENGINE_TOP];
	int top_wanted, top_n;
	const struct ww_json_schema *json;
	int cancelled; /* by any thread, under the lock */
	int done;
};

struct ww_engine {
	struct ww_engine *next; /* in the list of open engines */
	int users;
	char dir[PATH_MAX], device[16];
	struct ww_engine_opts asked; /* its strings point to the two above */
	struct ww_dev *dev;
	struct ww_model *model;
	struct ww_tok *tok;
	struct ww_infer *infer;
	struct ww_infer_limits limits;
	struct ww_sampling sampling;
	pthread_t thread;
	int started;
	pthread_mutex_t lock;
	pthread_cond_t wake, rested;
	int pausing, resting; /* asked for; the engine's thread has nothing to do and waits */
	int adopted;          /* model, device and tokenizer are the caller's */
	struct job *fresh, **fresh_end, *jobs;
	int64_t next_id;
	int closing;
	volatile int interrupt; /* a request was cancelled or the engine closes: stop waiting for the device */
	struct ww_share share;  /* of the device; only the engine's thread uses it */
	int unshared;           /* the device cannot be shared: steps do not wait for it */
	struct ww_infer_stats stats;
	double busy_s;
	uint64_t *weight;    /* engine's thread: (vocabulary), allocated at first use */
	struct ww_str piece; /* the engine's thread: text of one token */
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ww_engine *open_engines;

/* ---- jobs */

static void job_free(struct job *j)
{
	if (!j)
		return;
	ww_text_release(&j->text);
	free(j->prompt);
	free(j->stop_ids);
	free(j);
}

static void finish(struct job *j, enum ww_engine_end end, const struct ww_err *err)
{
	struct ww_engine_event e = { .end = end, .reused = j->reused, .err = err, .text = "" };
	if (!j->done)
		j->on_event(j->ctx, &e);
	j->done = 1;
}

/* ---- logits on the host: the likeliest tokens, and answers in JSON */

static void find_top(struct job *j, const float *logits, int64_t v, float lse)
{
	j->top_n = 0;
	for (int64_t id = 0; id < v && j->top_wanted; id++) {
		float logp = logits[id] - lse;
		int at = j->top_n;
		if (at == j->top_wanted && logp <= j->top[at - 1].logp)
			continue;
		at -= at == j->top_wanted;
		for (; at > 0 && j->top[at - 1].logp < logp; at--)
			j->top[at] = j->top[at - 1];
		j->top[at] = (struct ww_engine_top){ (int32_t)id, logp };
		j->top_n += j->top_n < j->top_wanted;
	}
}

static int is_stop(const struct job *j, int64_t id)
{
	for (int i = 0; i < j->q.stop_n; i++)
		if (j->stop_ids[i] == id)
			return 1;
	return 0;
}

/* Whether the object that was begun can go on with this token; a complete one ends.  may: first bytes that fit. */
static int fits(const struct job *j, const uint8_t *may, int32_t id)
{
	size_t n;
	if (ww_json_guide_done(&j->guide) || is_stop(j, id))
		return ww_json_guide_done(&j->guide) && is_stop(j, id);
	const char *text = ww_tok_is_special(j->e->tok, id) ? NULL : ww_tok_bytes(j->e->tok, id, &n);
	return text && n && may[(unsigned char)*text] && ww_json_guide_fits(&j->guide, text, n);
}

/* Sample once more, among the tokens that fit.  Where none does (a vocabulary without the bytes of JSON) the answer
 * ends. */
static void sample_json(struct job *j, float *logits, float lse, const struct ww_sampler *how, struct ww_sampled *s)
{
	struct ww_engine *e = j->e;
	int64_t v = e->model->config.vocab_size;
	uint8_t may[256]; /* one look-up rejects most tokens, also with a schema of thousands of keys */
	size_t n;
	for (int c = 0; c < 256; c++)
		may[c] = (uint8_t)ww_json_guide_fits(&j->guide, (const char[]){ (char)c }, 1);
	for (int64_t id = 0; id < v; id++)
		if (!fits(j, may, (int32_t)id))
			logits[id] = -INFINITY;
	s->token = -1;
	if (e->weight || (e->weight = malloc((size_t)v * sizeof(*e->weight))))
		ww_dev_sample(logits, v, lse, how, e->weight, s);
	if (s->token < 0 && j->q.stop_n)
		*s = (struct ww_sampled){ .token = j->stop_ids[0] };
	const char *text = s->token < 0 || is_stop(j, s->token) ? NULL : ww_tok_bytes(e->tok, s->token, &n);
	if (text)
		(void)ww_json_guide_take(&j->guide, text, n);
}

static void on_logits(void *arg, float *logits, float lse, const struct ww_sampler *how, struct ww_sampled *s)
{
	struct job *j = arg;
	find_top(j, logits, j->e->model->config.vocab_size, lse);
	if (j->json)
		sample_json(j, logits, lse, how, s);
}

static int on_token(void *arg, const struct ww_infer_event *t)
{
	struct ww_engine *e = arg;
	struct job *j = t->user;
	struct ww_engine_event v = { .sampled = &t->sampled, .top = j->top, .top_n = j->top_n, .reused = t->reused };
	ww_str_reset(&e->piece);
	j->reused = t->reused;
	int stopped = t->end == WW_END_STOP || ww_text_add(&j->text, t->sampled.token, &e->piece);
	if (stopped || t->end != WW_END_NONE) {
		ww_text_finish(&j->text, &e->piece);
		v.end = stopped || j->text.stopped ? WW_ENGINE_STOP : WW_ENGINE_LENGTH;
	}
	v.text = e->piece.p;
	v.text_n = e->piece.len;
	j->done = v.end != WW_ENGINE_GOES_ON;
	j->on_event(j->ctx, &v);
	return j->done;
}

/* Remove jobs that had their last event. */
static void sweep(struct ww_engine *e)
{
	WW_LOCKED(&e->lock);
	for (struct job **at = &e->jobs; *at;) {
		struct job *j = *at;
		if (!j->done) {
			at = &j->next;
			continue;
		}
		*at = j->next;
		job_free(j);
	}
	e->stats = ww_infer_stats(e->infer);
}

/* Move fresh jobs to the list of jobs, waiting while there are none at all; 0: the engine closes. */
static int take_fresh(struct ww_engine *e)
{
	WW_LOCKED(&e->lock);
	while (!e->closing && !e->jobs && (!e->fresh || e->pausing)) {
		ww_share_rest(&e->share);
		e->resting = 1;
		pthread_cond_broadcast(&e->rested);
		pthread_cond_wait(&e->wake, &e->lock);
	}
	e->resting = 0;
	e->interrupt = 0;
	if (e->fresh && (!e->pausing || e->closing)) {
		*e->fresh_end = e->jobs;
		e->jobs = e->fresh;
		e->fresh = NULL;
		e->fresh_end = &e->fresh;
	}
	return !e->closing;
}

static void end_all(struct ww_engine *e, enum ww_engine_end end, const struct ww_err *err)
{
	for (struct job *j = e->jobs; j; j = j->next) {
		ww_infer_cancel(e->infer, j->infer_id);
		finish(j, end, err);
	}
}

/* Submit new jobs, end cancelled ones. */
static void settle(struct ww_engine *e)
{
	for (struct job *j = e->jobs; j; j = j->next) {
		struct ww_err err = WW_ERR_INIT;
		pthread_mutex_lock(&e->lock);
		int cancelled = j->cancelled;
		pthread_mutex_unlock(&e->lock);
		if (cancelled) {
			ww_infer_cancel(e->infer, j->infer_id);
			finish(j, WW_ENGINE_CANCELLED, NULL);
		} else if (j->infer_id < 0 && ww_infer_submit(e->infer, &j->q, &j->infer_id, &err) != WW_OK) {
			finish(j, WW_ENGINE_FAILED, &err);
		}
	}
}

/* 1: a step may run now; 0: a cancelled request or the shutdown comes first. */
static int may_compute(struct ww_engine *e)
{
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc = e->unshared ? WW_OK : ww_share_step(&e->share, &e->interrupt, &err);
	if (rc == WW_OK || rc == WW_ERR_INTERRUPTED)
		return rc == WW_OK;
	ww_log(WW_LOG_WARN, "generation and measurements may use the device at the same time: %s", err.msg);
	e->unshared = 1;
	return 1;
}

static void add_busy(struct ww_engine *e, double seconds)
{
	WW_LOCKED(&e->lock);
	e->busy_s += seconds;
}

static void *thread_main(void *arg)
{
	struct ww_engine *e = arg;
	while (take_fresh(e)) {
		struct ww_err err = WW_ERR_INIT;
		int64_t left;
		settle(e);
		if (may_compute(e)) {
			uint64_t start = ww_now_ns();
			if (ww_infer_step(e->infer, on_token, e, &left, &err) != WW_OK)
				end_all(e, WW_ENGINE_FAILED, &err);
			add_busy(e, ww_seconds_since(start));
		}
		sweep(e);
	}
	end_all(e, WW_ENGINE_CANCELLED, NULL);
	sweep(e);
	return NULL;
}

/* ---- opening */

static enum ww_rc read_sampling(const char *dir, struct ww_sampling *s, struct ww_err *err)
{
	char path[PATH_MAX];
	json_auto_t *v = NULL;
	*s = (struct ww_sampling)WW_SAMPLING_INIT;
	enum ww_rc rc = ww_fs_join(path, dir, "generation_config.json", err);
	if (rc != WW_OK || !ww_fs_is_file(path))
		return rc;
	if ((rc = ww_json_read_file(path, GENERATION_CONFIG_MAX, &v, err)) != WW_OK)
		return rc;
	s->temperature = ww_json_bool(v, "do_sample", 1) ? ww_json_num(v, "temperature", 1) : 0;
	s->top_k = ww_json_int(v, "top_k", 0);
	s->top_p = ww_json_num(v, "top_p", 1);
	s->min_p = ww_json_num(v, "min_p", 0);
	if (!(s->temperature >= 0) || s->top_k < 0 || !(s->top_p >= 0 && s->top_p <= 1) ||
		!(s->min_p >= 0 && s->min_p <= 1))
		return ww_err_set(err, WW_ERR_USAGE, "%s: temperature, top_k, top_p or min_p is out of range", path);
	return WW_OK;
}

/* Choose the limits that the options leave at 0. */
static void choose_limits(struct ww_engine *e)
{
	struct ww_infer_limits *l = &e->limits;
	int cuda = !strcmp(e->dev->ops->name, "cuda");
	uint64_t token_bytes = ww_kv_page_bytes(e->model) / WW_KV_PAGE;
	*l = e->asked.limits;
	if (!l->max_sequences)
		l->max_sequences = cuda ? CUDA_SEQUENCES : CPU_SEQUENCES;
	l->max_sequences = ww_clamp_i64(l->max_sequences, 1, WW_GENERATE_ROWS);
	if (!l->step_tokens)
		l->step_tokens = cuda ? CUDA_STEP_TOKENS : CPU_STEP_TOKENS;
	if (l->step_tokens < l->max_sequences)
		l->step_tokens = l->max_sequences;
	int64_t most = l->max_sequences * e->model->config.max_position;
	if (!l->cache_tokens)
		l->cache_tokens = ww_clamp_i64((int64_t)((cuda ? CUDA_CACHE_BYTES : CPU_CACHE_BYTES) / token_bytes), 1, most);
}

/* A cache whose size was not asked for is halved until it fits. */
static enum ww_rc open_infer(struct ww_engine *e, struct ww_err *err)
{
	enum ww_rc rc;
	choose_limits(e);
	while ((rc = ww_infer_new(e->model, &e->limits, &e->infer, err)) != WW_OK)
		if (e->asked.limits.cache_tokens || (e->limits.cache_tokens /= 2) < LEAST_CACHE_TOKENS)
			break;
	return rc;
}

static void open_share(struct ww_engine *e)
{
	struct ww_err err = WW_ERR_INIT;
	e->unshared = ww_share_open(&e->share, e->dev->id, &err) != WW_OK;
	if (e->unshared)
		ww_log(WW_LOG_WARN, "generation and measurements may use the device at the same time: %s", err.msg);
}

static void engine_free(struct ww_engine *e)
{
	if (!e)
		return;
	if (e->started) {
		pthread_mutex_lock(&e->lock);
		e->closing = e->interrupt = 1;
		pthread_cond_signal(&e->wake);
		pthread_mutex_unlock(&e->lock);
		pthread_join(e->thread, NULL);
	}
	ww_share_close(&e->share);
	ww_infer_free(e->infer);
	if (!e->adopted) {
		ww_model_free(e->model);
		ww_dev_close(e->dev);
		ww_tok_free(e->tok);
	}
	pthread_cond_destroy(&e->wake);
	pthread_cond_destroy(&e->rested);
	pthread_mutex_destroy(&e->lock);
	ww_str_release(&e->piece);
	free(e->weight);
	free(e);
}

static enum ww_rc engine_alloc(const struct ww_engine_opts *o, struct ww_engine **out, struct ww_err *err)
{
	struct ww_engine *e;
	WW_CHECK(WW_NEW(e, 1, err));
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->wake, NULL);
	pthread_cond_init(&e->rested, NULL);
	ww_str_init(&e->piece, WW_TEXT_HELD_MAX);
	e->fresh_end = &e->fresh;
	e->users = 1;
	e->share = (struct ww_share)WW_SHARE_INIT;
	e->sampling = (struct ww_sampling)WW_SAMPLING_INIT;
	e->asked = *o;
	*out = e;
	return WW_OK;
}

/* Start the thread; model and tokenizer are open. */
static enum ww_rc engine_start(struct ww_engine *e, struct ww_err *err)
{
	WW_CHECK(open_infer(e, err));
	open_share(e);
	e->started = pthread_create(&e->thread, NULL, thread_main, e) == 0;
	return e->started ? WW_OK : ww_err_set(err, WW_ERR_SYSTEM, "cannot start the engine's thread");
}

static enum ww_rc engine_new(
	const struct ww_engine_opts *o, const char *dir, struct ww_engine **out, struct ww_err *err)
{
	struct ww_engine *e;
	enum ww_rc rc;
	WW_CHECK(engine_alloc(o, &e, err));
	e->asked.dir = strcpy(e->dir, dir);
	snprintf(e->device, sizeof(e->device), "%s", o->device ? o->device : "");
	e->asked.device = o->device ? e->device : NULL;
	WW_TRY(ww_tok_open(dir, &e->tok, err));
	WW_TRY(read_sampling(dir, &e->sampling, err));
	WW_TRY(ww_dev_open(o->device ? o->device : "auto", !o->fast, &e->dev, err));
	WW_TRY(ww_model_open(dir, e->dev, o->dtype, &e->model, err));
	WW_TRY(engine_start(e, err));
	*out = e;
out:
	if (rc != WW_OK)
		engine_free(e);
	return rc;
}

enum ww_rc ww_engine_adopt(
	const struct ww_engine_opts *o, struct ww_model *m, struct ww_tok *tok, struct ww_engine **out, struct ww_err *err)
{
	struct ww_engine *e;
	WW_CHECK(engine_alloc(o, &e, err));
	e->adopted = 1;
	e->model = m;
	e->dev = m->dev;
	e->tok = tok;
	enum ww_rc rc = engine_start(e, err);
	if (rc == WW_OK)
		*out = e;
	else
		engine_free(e);
	return rc;
}

struct ww_engine *ww_engine_share(struct ww_engine *e)
{
	pthread_mutex_lock(&open_lock);
	e->users++;
	pthread_mutex_unlock(&open_lock);
	return e;
}

void ww_engine_pause(struct ww_engine *e)
{
	WW_LOCKED(&e->lock);
	e->pausing = 1;
	pthread_cond_signal(&e->wake);
	while (!e->resting || e->jobs)
		pthread_cond_wait(&e->rested, &e->lock);
	ww_infer_rest(e->infer);
}

enum ww_rc ww_engine_resume(struct ww_engine *e, struct ww_err *err)
{
	WW_LOCKED(&e->lock);
	WW_CHECK(ww_infer_wake(e->infer, err));
	e->pausing = 0;
	pthread_cond_signal(&e->wake);
	return WW_OK;
}

static int same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static int is_same(const struct ww_engine *e, const struct ww_engine_opts *o, const char *dir)
{
	const struct ww_engine_opts *a = &e->asked;
	return !strcmp(e->dir, dir) && same_text(a->device, o->device) && a->fast == o->fast && a->dtype == o->dtype &&
		!memcmp(&a->limits, &o->limits, sizeof(o->limits));
}

enum ww_rc ww_engine_open(const struct ww_engine_opts *o, struct ww_engine **out, struct ww_err *err)
{
	char dir[PATH_MAX];
	enum ww_rc rc = WW_OK;
	if (!realpath(o->dir, dir))
		return ww_err_errno(err, WW_ERR_USAGE, "cannot open the model %s", o->dir);
	pthread_mutex_lock(&open_lock);
	struct ww_engine *e = open_engines;
	while (e && !is_same(e, o, dir))
		e = e->next;
	if (e) {
		e->users++;
	} else if ((rc = engine_new(o, dir, &e, err)) == WW_OK) {
		e->next = open_engines;
		open_engines = e;
	}
	pthread_mutex_unlock(&open_lock);
	if (rc == WW_OK)
		*out = e;
	return rc;
}

void ww_engine_close(struct ww_engine *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&open_lock);
	int last = !--e->users;
	for (struct ww_engine **at = &open_engines; last && *at; at = &(*at)->next)
		if (*at == e) {
			*at = e->next;
			break;
		}
	pthread_mutex_unlock(&open_lock);
	if (last)
		engine_free(e);
}

struct ww_tok *ww_engine_tok(struct ww_engine *e) { return e->tok; }
const struct ww_config *ww_engine_config(const struct ww_engine *e) { return &e->model->config; }
struct ww_sampling ww_engine_sampling(const struct ww_engine *e) { return e->sampling; }
int64_t ww_engine_context(const struct ww_engine *e)
{
	int64_t cache = (e->limits.cache_tokens + WW_KV_PAGE - 1) / WW_KV_PAGE * WW_KV_PAGE;
	return cache < e->model->config.max_position ? cache : e->model->config.max_position;
}

struct ww_infer_stats ww_engine_stats(struct ww_engine *e)
{
	WW_LOCKED(&e->lock);
	return e->stats;
}

double ww_engine_busy_s(struct ww_engine *e)
{
	WW_LOCKED(&e->lock);
	return e->busy_s;
}

/* ---- asking */

static enum ww_rc job_new(struct ww_engine *e, const struct ww_engine_request *q, struct job **out, struct ww_err *err)
{
	const struct ww_config *c = &e->model->config;
	struct job *j;
	int stops = q->stop_ids_n + c->eos_count;
	enum ww_rc rc = WW_OK;
	if (q->json && !stops)
		return ww_err_set(err, WW_ERR_USAGE, "the model has no token that ends a text, so it cannot answer in JSON");
	WW_CHECK(WW_NEW(j, 1, err));
	*j = (struct job){ .infer_id = -1,
		.on_event = q->on_event,
		.ctx = q->ctx,
		.e = e,
		.top_wanted = q->top < WW_ENGINE_TOP ? q->top : WW_ENGINE_TOP,
		.json = q->json };
	if (q->json)
		ww_json_guide_init(&j->guide, q->json);
	WW_TRY(WW_NEW(j->prompt, q->prompt_n + 1, err));
	WW_TRY(WW_NEW(j->stop_ids, stops + 1, err));
	memcpy(j->prompt, q->prompt, (size_t)q->prompt_n * sizeof(*j->prompt));
	for (int i = 0; i < stops; i++)
		j->stop_ids[i] = i < q->stop_ids_n ? q->stop_ids[i] : (int32_t)c->eos[i - q->stop_ids_n];
	j->q = (struct ww_request){ .prompt = j->prompt,
		.prompt_n = q->prompt_n,
		.max_new = q->max_new,
		.sampling = q->sampling,
		.seed = q->seed,
		.stream = q->stream,
		.stop = j->stop_ids,
		.stop_n = stops,
		.user = j,
		.on_logits = q->top || q->json ? on_logits : NULL };
	WW_TRY(ww_text_init(&j->text, e->tok, q->stop, q->stop_n, err));
	WW_TRY(ww_infer_check(e->infer, &j->q, err));
	*out = j;
out:
	if (rc != WW_OK)
		job_free(j);
	return rc;
}

static int64_t room_for(const struct ww_engine *e, const struct ww_engine_request *q)
{
	return q->max_new ? q->max_new : ww_engine_context(e) - q->prompt_n + 1;
}

enum ww_rc ww_engine_submit(
	struct ww_engine *e, const struct ww_engine_request *request, int64_t *id, struct ww_err *err)
{
	struct ww_engine_request q = *request;
	struct job *j = NULL;
	q.max_new = room_for(e, &q);
	if (q.prompt_n < 1)
		return ww_err_set(err, WW_ERR_USAGE, "the prompt has no tokens");
	if (q.max_new < 1)
		return ww_err_set(err, WW_ERR_LIMIT, "the prompt has %lld tokens, the context is %lld", (long long)q.prompt_n,
			(long long)ww_engine_context(e));
	WW_CHECK(job_new(e, &q, &j, err));
	WW_LOCKED(&e->lock);
	*id = j->id = e->next_id++;
	*e->fresh_end = j;
	e->fresh_end = &j->next;
	pthread_cond_signal(&e->wake);
	return WW_OK;
}

void ww_engine_cancel(struct ww_engine *e, int64_t id)
{
	WW_LOCKED(&e->lock);
	for (int list = 0; list < 2; list++)
		for (struct job *j = list ? e->jobs : e->fresh; j; j = j->next)
			if (j->id == id)
				j->cancelled = e->interrupt = 1;
}

/* ---- whole answers */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	struct ww_engine_answer *out;
	struct ww_err err;
	const struct ww_engine_request *asked;
};

static void collect(void *ctx, const struct ww_engine_event *v)
{
	struct waiter *w = ctx;
	struct ww_engine_answer *a = w->out;
	WW_LOCKED(&w->lock);
	if (v->sampled) {
		a->logp[a->ids.n] = v->sampled->logp;
		a->logp_sampling[a->ids.n] = v->sampled->logp_sampling;
		if (!ww_ids_add(&a->ids, v->sampled->token))
			ww_err_set(&w->err, WW_ERR_NOMEM, "out of memory");
	}
	ww_str_add(&a->text, v->text, v->text_n);
	a->reused = v->reused;
	a->end = v->end;
	if (v->err)
		w->err = *v->err;
	if (w->asked->on_event)
		w->asked->on_event(w->asked->ctx, v);
	if (v->end != WW_ENGINE_GOES_ON)
		pthread_cond_signal(&w->moved);
}

static void wait_for_end(struct ww_engine *e, struct waiter *w, int64_t id, const volatile int *interrupted)
{
	pthread_mutex_lock(&w->lock);
	while (w->out->end == WW_ENGINE_GOES_ON) {
		if (interrupted && *interrupted) {
			pthread_mutex_unlock(&w->lock);
			ww_engine_cancel(e, id);
			pthread_mutex_lock(&w->lock);
			if (w->out->end != WW_ENGINE_GOES_ON)
				break;
		}
		(void)ww_cond_wait(&w->moved, &w->lock, 0.2);
	}
	pthread_mutex_unlock(&w->lock);
}

enum ww_rc ww_engine_ask(struct ww_engine *e, const struct ww_engine_request *request, const volatile int *interrupted,
	struct ww_engine_answer *out, struct ww_err *err)
{
	struct ww_engine_request q = *request;
	struct waiter w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, out, WW_ERR_INIT, request };
	int64_t id;
	enum ww_rc rc = WW_OK;
	q.on_event = collect;
	q.ctx = &w;
	q.max_new = room_for(e, &q);
	size_t room = (size_t)(q.max_new > 0 ? q.max_new : 0) + 1;
	*out = (struct ww_engine_answer){ .ids = WW_IDS_INIT(room),
		.text = WW_STR_INIT(ANSWER_TEXT_MAX),
		.logp = malloc(room * sizeof(float)),
		.logp_sampling = malloc(room * sizeof(float)) };
	if (!out->logp || !out->logp_sampling)
		rc = ww_nomem(err);
	else
		rc = ww_engine_submit(e, &q, &id, err);
	if (rc == WW_OK) {
		wait_for_end(e, &w, id, interrupted);
		if (out->end == WW_ENGINE_CANCELLED)
			rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
		else if (w.err.rc != WW_OK) {
			*err = w.err;
			rc = w.err.rc;
		}
	}
	pthread_cond_destroy(&w.moved);
	pthread_mutex_destroy(&w.lock);
	if (rc != WW_OK)
		ww_engine_answer_release(out);
	return rc;
}

void ww_engine_answer_release(struct ww_engine_answer *a)
{
	ww_ids_release(&a->ids);
	ww_str_release(&a->text);
	free(a->logp);
	free(a->logp_sampling);
	*a = (struct ww_engine_answer){ .ids = WW_IDS_INIT(0), .text = WW_STR_INIT(ANSWER_TEXT_MAX) };
}
