/* engine.h - one model that answers many threads.
 *
 * An engine owns model, tokenizer and cache, and one thread that runs them; requests of all threads are in one batch.
 */
#pragma once

#include "infer/infer.h"
#include "infer/json_schema.h"
#include "nn/chat.h"

struct ww_engine;

/* Zero means the default. */
struct ww_engine_opts {
	const char *dir;               /* model and tokenizer */
	const char *device;            /* NULL: cuda where it works, else cpu */
	int fast;                      /* faster; results may depend on the batch in their last bits */
	int dtype;                     /* WW_F32, WW_BF16; 0: as in the file */
	struct ww_infer_limits limits; /* 0: chosen by model and device */
};

/* Open an engine, or share the one that the process has open with equal options. */
enum ww_rc ww_engine_open(const struct ww_engine_opts *o, struct ww_engine **out, struct ww_err *err) WW_MUST_CHECK;
/* The last close ends it; requests that are not finished end with WW_ENGINE_CANCELLED. */
void ww_engine_close(struct ww_engine *e); /* NULL is fine */

/* An engine over a model in memory, for a trainer: model and tokenizer are borrowed, nothing is shared by options, and
 * the sampling is temperature 1, untruncated.  o: fast and dir are not read. */
enum ww_rc ww_engine_adopt(const struct ww_engine_opts *o, struct ww_model *m, struct ww_tok *tok,
	struct ww_engine **out, struct ww_err *err) WW_MUST_CHECK;
/* Take one more reference; each reference is closed with ww_engine_close(). */
struct ww_engine *ww_engine_share(struct ww_engine *e);
/* Wait until the requests that run have ended, and free cache and workspace: the model may be changed then, and the
 * device's memory used.  Requests that come meanwhile wait.  On an error ww_engine_resume() may be called again. */
void ww_engine_pause(struct ww_engine *e);
enum ww_rc ww_engine_resume(struct ww_engine *e, struct ww_err *err) WW_MUST_CHECK;

struct ww_tok *ww_engine_tok(struct ww_engine *e);
const struct ww_config *ww_engine_config(const struct ww_engine *e);
/* The sampling of the model's generation_config.json; without one temperature 1, untruncated. */
struct ww_sampling ww_engine_sampling(const struct ww_engine *e);
/* Tokens of the longest sequence: what context and cache both allow. */
int64_t ww_engine_context(const struct ww_engine *e);
struct ww_infer_stats ww_engine_stats(struct ww_engine *e);
/* Seconds in which it computed. */
double ww_engine_busy_s(struct ww_engine *e);

enum ww_engine_end { WW_ENGINE_GOES_ON, WW_ENGINE_STOP, WW_ENGINE_LENGTH, WW_ENGINE_CANCELLED, WW_ENGINE_FAILED };

enum { WW_ENGINE_TOP = 20 };
struct ww_engine_top {
	int32_t token;
	float logp; /* at temperature 1 and untruncated, as that of the sampled token */
};

/* One token, or an end that has none. */
struct ww_engine_event {
	const struct ww_sampled *sampled; /* NULL: only the end */
	const char *text;                 /* text that is final: whole characters, no part of a stop string */
	size_t text_n;
	const struct ww_engine_top *top; /* likeliest first, the smaller id of equals */
	int top_n;
	enum ww_engine_end end;
	int64_t reused;           /* tokens of the prompt that were in the cache */
	const struct ww_err *err; /* WW_ENGINE_FAILED */
};

struct ww_engine_request {
	const int32_t *prompt;
	int64_t prompt_n, max_new; /* max_new 0: as many as there is room for */
	struct ww_sampling sampling;
	uint64_t seed, stream;
	const int32_t *stop_ids; /* in addition to the model's eos ids; their text is not part of the answer */
	int stop_ids_n;
	const char *const *stop; /* strings, not part of the answer either */
	int stop_n;
	int top; /* that many of the likeliest tokens come with each event, at most WW_ENGINE_TOP */
	/* The answer is one JSON object that fits this schema (&ww_json_any_object: any), unless it is cut off by max_new.
	 * NULL: text.  Borrowed until the last event. */
	const struct ww_json_schema *json;
	/* Called in the engine's thread, once for each token and with `end` exactly once, as the last call.  It must be
	 * short; of the engine's functions it may call ww_engine_cancel(). */
	void (*on_event)(void *ctx, const struct ww_engine_event *e);
	void *ctx;
};

/* Queue a request; everything in it but the schema is copied.  One that can never run is an error and has no events. */
enum ww_rc ww_engine_submit(
	struct ww_engine *e, const struct ww_engine_request *q, int64_t *id, struct ww_err *err) WW_MUST_CHECK;
/* Cancel a request; its last event follows soon unless it came already.  Unknown ids are ignored. */
void ww_engine_cancel(struct ww_engine *e, int64_t id);

/* A whole answer. */
struct ww_engine_answer {
	struct ww_ids ids; /* with the token that ended it */
	struct ww_str text;
	float *logp, *logp_sampling; /* ids.n */
	enum ww_engine_end end;
	int64_t reused;
};
/* Submit and wait; q->on_event may be NULL here.  *interrupted (may be NULL) ends the wait with WW_ERR_INTERRUPTED. */
enum ww_rc ww_engine_ask(struct ww_engine *e, const struct ww_engine_request *q, const volatile int *interrupted,
	struct ww_engine_answer *out, struct ww_err *err) WW_MUST_CHECK;
void ww_engine_answer_release(struct ww_engine_answer *a);
