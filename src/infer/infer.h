/* infer.h - generation: many sequences at once over a paged cache. */
#pragma once

#include "nn/generate.h"

struct ww_infer;

struct ww_infer_limits {
	int64_t cache_tokens;  /* of all sequences, rounded up to pages */
	int64_t max_sequences; /* running at once, at most WW_GENERATE_ROWS */
	int64_t step_tokens;   /* computed in one step; longer prompts are split; at least max_sequences */
};

enum ww_end { WW_END_NONE, WW_END_STOP, WW_END_LENGTH };

struct ww_request {
	const int32_t *prompt;     /* at least one token; copied */
	int64_t prompt_n, max_new; /* max_new >= 1 */
	struct ww_sampling sampling;
	uint64_t seed, stream; /* of its random numbers */
	const int32_t *stop;   /* tokens that end it; copied */
	int stop_n;
	void *user;
	/* Called for each new token before it is taken, with the row that it was sampled from (one logit a word of the
	 * vocabulary, for the callee to change) and the log of the sum of exponentials; may put another token into *s.
	 * NULL: the token is the one that the device sampled. */
	void (*on_logits)(void *user, float *logits, float lse, const struct ww_sampler *how, struct ww_sampled *s);
};

/* One new token; the token that ends a sequence is reported too. */
struct ww_infer_event {
	void *user;
	int64_t id;
	struct ww_sampled sampled;
	enum ww_end end;
	int64_t reused; /* tokens of the prompt that were in the cache already */
};

/* Counts since the start. */
struct ww_infer_stats {
	int64_t steps, prompt_tokens, new_tokens, reused_tokens, preempted;
};

enum ww_rc ww_infer_new(
	struct ww_model *m, const struct ww_infer_limits *l, struct ww_infer **out, struct ww_err *err) WW_MUST_CHECK;
void ww_infer_free(struct ww_infer *f); /* NULL is fine */
/* Bytes of device memory that ww_infer_new() would take. */
uint64_t ww_infer_bytes(const struct ww_model *m, const struct ww_infer_limits *l);
/* An error where the request can never run (longer than the context or the cache, unknown tokens).  Thread-safe. */
enum ww_rc ww_infer_check(const struct ww_infer *f, const struct ww_request *q, struct ww_err *err) WW_MUST_CHECK;
/* Queue a request; one that can never run is an error. */
enum ww_rc ww_infer_submit(
	struct ww_infer *f, const struct ww_request *q, int64_t *id, struct ww_err *err) WW_MUST_CHECK;
/* Drop a request, queued or running; unknown ids are ignored.  Not to be called within on_token. */
void ww_infer_cancel(struct ww_infer *f, int64_t id);
/* Run one batch: a token of every sequence whose prompt is computed, and as much of the prompts as there is room for.
 * on_token is called for each new token, in order of submission; a result other than 0 ends the sequence there.
 * *left: requests that are not finished. */
enum ww_rc ww_infer_step(struct ww_infer *f, int (*on_token)(void *arg, const struct ww_infer_event *e), void *arg,
	int64_t *left, struct ww_err *err) WW_MUST_CHECK;
/* Drop all cached pages, after the weights changed.  No request may be queued or running. */
void ww_infer_forget(struct ww_infer *f);
/* ww_infer_rest() frees the device's memory; nothing may be computed until ww_infer_wake() takes it again.  No request
 * may be running. */
void ww_infer_rest(struct ww_infer *f);
enum ww_rc ww_infer_wake(struct ww_infer *f, struct ww_err *err) WW_MUST_CHECK;
/* Pages that no sequence holds, cached ones included. */
int64_t ww_infer_pages_left(const struct ww_infer *f);
struct ww_infer_stats ww_infer_stats(const struct ww_infer *f);
