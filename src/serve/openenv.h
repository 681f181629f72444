/* openenv.h - the environment (env.h) in OpenEnv's protocol: a WebSocket for sessions, HTTP for single questions. */
#pragma once

#include "serve/env.h"
#include "serve/http.h"
#include "serve/mcp.h"

struct ww_openenv;
enum { WW_OPENENV_ROUTES = 8 };

struct ww_openenv_opts {
	struct ww_env_opts env;
	struct ww_mcp *mcp; /* what "mcp" messages are given to */
	int max_sessions;   /* environments at a time */
	double wait_s;      /* an answer that takes longer is pending; 0: 45 */
};

enum ww_rc ww_openenv_new(struct ww_openenv **out, const struct ww_openenv_opts *o, struct ww_err *err) WW_MUST_CHECK;
void ww_openenv_routes(struct ww_openenv *o, struct ww_http_route out[WW_OPENENV_ROUTES]);
int ww_openenv_count(struct ww_openenv *o); /* environments that are open; any thread */
/* After ww_http_close(); ends all episodes and waits for their threads. */
void ww_openenv_free(struct ww_openenv *o);

/* The client that waits for an answer; asked a few times a second. */
struct ww_openenv_client {
	int (*waits)(void *ctx);
	void *ctx;
};

/* One message of a session as text -> its answer, a new object; NULL: the client said close.  `c` may be NULL.  Here
 * for the fuzzer. */
json_t *ww_openenv_answer(
	struct ww_openenv *o, struct ww_env *e, const struct ww_openenv_client *c, const char *text, size_t n);
