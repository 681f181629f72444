/* completions.h - OpenAI's chat and text completions over the HTTP server, answered by models of our own. */
#pragma once

#include "base/err.h"
#include "infer/infer.h"
#include "serve/http.h"

struct ww_completions;

struct ww_completions_opts {
	const char *const *models; /* each "DIR", called by its last part, or "NAME=DIR" */
	size_t n_models;
	const char *device;            /* as --device; NULL: what fits */
	int fast;                      /* see struct ww_engine_opts */
	struct ww_infer_limits limits; /* of each model; 0: chosen */
};

/* Open the models; two of one name are refused. */
enum ww_rc ww_completions_new(
	const struct ww_completions_opts *o, struct ww_completions **out, struct ww_err *err) WW_MUST_CHECK;
/* After ww_http_close().  What is still being generated ends now. */
void ww_completions_free(struct ww_completions *c); /* NULL is fine */

/* Tokens by model, in Prometheus' text form (serve/metrics.h).  Any thread. */
void ww_completions_metrics(struct ww_completions *c, struct ww_str *out);

/* GET /v1/models and /v1/models/NAME, POST /v1/chat/completions and /v1/completions. */
enum { WW_COMPLETIONS_ROUTES = 4 };
void ww_completions_routes(struct ww_completions *c, struct ww_http_route out[WW_COMPLETIONS_ROUTES]);
