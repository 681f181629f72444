/* completions_internal.h - a request as it was understood, and its answer in the making; for completions*.c only. */
#pragma once

#include "base/json.h"
#include "infer/engine.h"
#include "infer/text.h"
#include "serve/completions.h"

#include <pthread.h>

enum { WW_COMPLETIONS_CHOICES = 128, WW_COMPLETIONS_PROMPTS = 128, WW_COMPLETIONS_TEXT_MAX = 64 << 20 };

struct ww_completions_model {
	char *name;
	struct ww_engine *engine;
	enum ww_chat_format format;
	int has_chat;
	int64_t created;
};

struct ww_completions {
	struct ww_completions_model *models;
	size_t n;
};

/* Why a request is refused: an HTTP status and OpenAI's members. */
struct ww_refusal {
	int status;
	const char *param, *code; /* static, or NULL */
	char message[1024];
};
int ww_refuse(struct ww_refusal *r, int status, const char *param, const char *code, const char *fmt, ...)
	WW_PRINTF(5, 6); /* 0 */
void ww_refusal_send(const struct ww_refusal *r, struct ww_http_reply *reply);

/* A request as its body says it.  Strings and arrays are borrowed from the body; `schema` is freed by the caller. */
struct ww_completions_request {
	json_t *body;
	const struct ww_completions_model *model;
	int chat, stream, include_usage, echo, logprobs, one_call;
	const struct ww_json_schema *json; /* what the answer has to fit, or NULL */
	struct ww_json_schema *schema;     /* the request's own, or NULL: ww_json_schema_free() */
	int64_t top;                       /* likeliest tokens that each log-probability comes with */
	int64_t n, max_new;                /* choices for each prompt; 0: as many tokens as there is room for */
	struct ww_sampling sampling;
	uint64_t seed;
	const char *stop[WW_TEXT_STOPS_MAX];
	int stop_n;
	const json_t *tools; /* NULL: none may be called */
	int must_call;
	const char *function; /* the one that must be called, or NULL */
};
/* Everything but the prompt; 0 and *why where it is refused. */
int ww_completions_read(
	const struct ww_completions *c, int chat, json_t *body, struct ww_completions_request *q, struct ww_refusal *why);

struct ww_answer;

struct ww_choice {
	struct ww_answer *a;
	int index;
	int64_t id;         /* in the engine; -1 before */
	struct ww_str text; /* all of it, with what the prompt began of it */
	size_t sent;        /* bytes of it that are out, as content or as thoughts */
	int begun, thinking;
	char *prompt;     /* echo: text of the prompt, or NULL */
	json_t *logprobs; /* entries that are not out yet */
	size_t offset;    /* text: characters of the answer before the next entry */
	const char *finish;
	json_t *message; /* chat, at the end */
};

/* One HTTP request's answer: its choices are made by the engine's thread, and sent by the connection's. */
struct ww_answer {
	struct ww_http_reply *reply;
	struct ww_engine *engine;
	enum ww_chat_format format;
	int chat, stream, include_usage, logprobs, top, read_calls, one_call;
	char id[48];
	char *model;
	int64_t created, prompt_tokens, completion_tokens, reused;
	struct ww_choice *choices;
	int n, per_prompt;
	pthread_mutex_t lock; /* what follows, and the choices until they are done */
	pthread_cond_t changed;
	int pending; /* choices that are not done */
	int gone, failed;
	struct ww_err err;
	struct ww_str out; /* a stream's events that are not sent yet */
};

struct ww_answer *ww_answer_new(const struct ww_completions_request *q, int n, struct ww_http_reply *reply);
/* What the engine calls; ctx is the choice. */
void ww_answer_event(void *ctx, const struct ww_engine_event *e);
/* Wait until all choices are done, and meanwhile send what a stream has; a client that leaves cancels them. */
void ww_answer_await(struct ww_answer *a, int may_stream);
void ww_answer_cancel(struct ww_answer *a);
void ww_answer_end(struct ww_answer *a);  /* send the rest */
void ww_answer_free(struct ww_answer *a); /* when no choice is pending */
