/* serve.c - `warpwright serve`: the same tools for programs elsewhere, over HTTP.
 *
 * Protocols are src/serve; this file fixes what a client cannot choose (where and how is judged, who may ask) and puts
 * all protocols into one server: MCP on /mcp, OpenEnv on /ws and beside it, completions by models of our own on /v1.
 * SIGTERM and Ctrl-C end it in good order: no new work, open requests are finished; a second signal ends it at once.
 */
#include "base/fs.h"
#include "base/target.h"
#include "cmd/cmd.h"
#include "cmd/judging.h"
#include "cmd/model_opts.h"
#include "host/machine.h"
#include "policy/http/key.h"
#include "serve/completions.h"
#include "serve/mcp_http.h"
#include "serve/metrics.h"
#include "serve/openenv.h"
#include "serve/tools.h"
#include "task/shipped.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct values {
	struct ww_judging judging;
	const char *host, *token_file, *tasks, *episodes, *skill, *models;
	int64_t model_batch, model_cache;
	int64_t port, open_tasks, parallel, max_sessions, max_turns;
	double max_seconds;
	int json;
};

static const struct ww_opt options[] = { { "port", 0, WW_OPT_INT, offsetof(struct values, port), "N", "8000", 0, 65535,
											 "where to listen; 0: any port that is free" },
	{ "host", 0, WW_OPT_STR, offsetof(struct values, host), "ADDRESS", "127.0.0.1", 0, 0,
		"the address to listen on; any but a loopback address needs a token" },
	{ "token-file", 0, WW_OPT_STR, offsetof(struct values, token_file), "FILE", NULL, 0, 0,
		"token that clients must send as Authorization: Bearer (default: WARPWRIGHT_TOKEN in the environment)" },
	WW_OPTS_WHERE(struct values, judging), WW_OPTS_HOW(struct values, judging), WW_OPT_DECIDE(struct values, judging),
	WW_OPT_DEVICES(struct values, judging),
	{ "open-tasks", 0, WW_OPT_INT, offsetof(struct values, open_tasks), "N", "4", 1, 32,
		"tasks kept loaded, each in a process with PyTorch" },
	{ "parallel", 0, WW_OPT_INT, offsetof(struct values, parallel), "N", "0", 0, 64,
		"calls handled in parallel, one of them measuring; 0: as many as fit" },
	{ "tasks", 0, WW_OPT_STR, offsetof(struct values, tasks), "DIR|FILE", NULL, 0, 0,
		"task set whose tasks an environment can be reset to, by id or at random (OpenEnv)" },
	{ "episodes", 0, WW_OPT_STR, offsetof(struct values, episodes), "DIR", NULL, 0, 0,
		"keep the record of each episode of an environment here (default: none is kept)" },
	{ "skill", 0, WW_OPT_STR, offsetof(struct values, skill), "DIR", "cuda", 0, 0,
		"skill that an environment's policy is given: a folder with SKILL.md; cuda: the built-in one; none" },
	{ "max-sessions", 0, WW_OPT_INT, offsetof(struct values, max_sessions), "N", "64", 1, 4096,
		"environments at a time" },
	{ "max-turns", 0, WW_OPT_INT, offsetof(struct values, max_turns), "N", "150", 1, 100000,
		"steps of an episode, at most" },
	{ "max-seconds", 0, WW_OPT_NUM, offsetof(struct values, max_seconds), "S", "3600", 1, 1e7,
		"seconds of an episode, at most" },
	{ "models", 0, WW_OPT_STR, offsetof(struct values, models), "LIST", NULL, 0, 0,
		"models that answer /v1/chat/completions: DIR, NAME=DIR or one that comes with the program (nano), separated by "
		"commas" },
	WW_OPTS_MODEL(struct values, model_batch, model_cache), WW_OPT_JSON(struct values, json), WW_OPT_END };

enum { MAX_ROUTES = 32, MAX_CALLS = 256, TOKEN_BYTES = 4096, MAX_MODELS = 16 };

struct server {
	const struct values *v;
	char device_name[96];
	struct ww_str token;
	struct ww_broker *broker;
	struct ww_mcp *mcp;
	struct ww_mcp_http *mcp_http;
	struct ww_skill skill;
	int has_skill;
	struct ww_openenv *openenv;
	struct ww_completions *completions; /* NULL: no models */
	struct ww_http *http;
	struct ww_metrics metrics;
};

/* From the file, else the environment; blanks around it do not count. */
static enum ww_rc read_token(struct server *s, struct ww_err *err)
{
	const char *found = ww_key_find("WARPWRIGHT_TOKEN");
	if (!s->v->token_file) {
		ww_str_adds(&s->token, found ? found : "");
		return WW_OK;
	}
	ww_auto_str text = WW_STR_INIT(TOKEN_BYTES);
	WW_CHECK(ww_fs_read(s->v->token_file, TOKEN_BYTES, &text, err));
	size_t from = strspn(text.p, " \t\r\n"), n = strcspn(text.p + from, " \t\r\n");
	ww_str_add(&s->token, text.p + from, n);
	if (!n)
		return ww_err_set(
			err, WW_ERR_USAGE, "%s holds no token; put one of at least 16 characters into it", s->v->token_file);
	else if (strlen(text.p) != text.len) /* a NUL would end the token early */
		return ww_err_set(err, WW_ERR_USAGE, "%s holds a NUL; put a token of text into it", s->v->token_file);
	return WW_OK;
}

static void on_stop(void *ctx)
{
	struct server *s = ctx;
	ww_mcp_wind_up(s->mcp);
	fprintf(stderr, "warpwright: finishing open requests; signal again to stop at once\n");
}

static enum ww_rc open_skill(struct server *s, struct ww_err *err)
{
	const char *dir = s->v->skill;
	if (!strcmp(dir, "none"))
		return WW_OK;
	s->has_skill = 1;
	return strcmp(dir, "cuda") ? ww_skill_open(&s->skill, dir, err) : ww_skill_open_builtin(&s->skill, err);
}

static enum ww_rc open_models(struct server *s, struct ww_err *err)
{
	const char *dirs[MAX_MODELS];
	struct ww_completions_opts o = { .models = dirs,
		.limits = { .max_sequences = s->v->model_batch, .cache_tokens = s->v->model_cache } };
	char *list = s->v->models ? strdup(s->v->models) : NULL, *rest = list, *dir;
	enum ww_rc rc = WW_OK;
	if (!s->v->models)
		return WW_OK;
	while (list && rc == WW_OK && (dir = strsep(&rest, ","))) {
		if (!*dir || o.n_models == MAX_MODELS)
			rc = ww_err_set(
				err, WW_ERR_USAGE, "--models: a list of up to %d directories, separated by commas", MAX_MODELS);
		else
			dirs[o.n_models++] = dir;
	}
	if (rc == WW_OK)
		rc = list ? ww_completions_new(&o, &s->completions, err) : ww_nomem(err);
	free(list);
	return rc;
}

static enum ww_rc open_doors(struct server *s, struct ww_err *err)
{
	struct ww_mcp_opts mo = { .ctx = s->broker,
		.instructions = ww_serve_instructions,
		.max_running = MAX_CALLS,
		.max_of_session = MAX_CALLS / 2 };
	mo.tools = ww_serve_tools(&mo.n_tools);
	WW_CHECK(ww_mcp_new(&s->mcp, &mo, err));
	if (!(s->mcp_http = ww_mcp_http_new(s->mcp)))
		return ww_nomem(err);
	WW_CHECK(open_skill(s, err));
	char shipped[PATH_MAX];
	struct ww_openenv_opts oo = { .mcp = s->mcp,
		.max_sessions = (int)s->v->max_sessions,
		.env = { .broker = s->broker,
			.episodes = s->v->episodes,
			.tasks = s->v->tasks,
			.skill = s->has_skill ? &s->skill : NULL,
			.max_turns = (int)s->v->max_turns,
			.max_seconds = s->v->max_seconds } };
	if (s->v->tasks && !ww_fs_is_dir(s->v->tasks) && !ww_fs_is_file(s->v->tasks) &&
		!ww_shipped_find(s->v->tasks, shipped))
		return ww_err_set(err, WW_ERR_USAGE, "--tasks: %s is neither a directory nor a task set", s->v->tasks);
	else if (s->v->episodes)
		WW_CHECK(ww_fs_mkdirs(s->v->episodes, err));
	return ww_openenv_new(&s->openenv, &oo, err);
}

static enum ww_rc open_broker(struct server *s, struct ww_err *err)
{
	const struct values *v = s->v;
	struct ww_host_gpus gpus;
	struct ww_broker_opts o = { .device_name = s->device_name,
		.open_tasks = (int)v->open_tasks,
		.threads = (int)v->parallel,
		.decide = ww_judging_depth(v->judging.decide) == WW_JUDGE_DECIDE };
	WW_CHECK(ww_judging_opts(&v->judging, &o.judge, err));
	WW_CHECK(
		ww_judging_devices(v->judging.devices, v->judging.target, o.devices, WW_BATCH_MAX_DEVICES, &o.n_devices, err));
	if (o.n_devices)
		o.judge.device = o.devices[0];
	WW_CHECK(ww_host_choose_target(
		v->judging.target, o.judge.device, &o.judge.target, s->device_name, sizeof(s->device_name), &gpus, err));
	return ww_broker_new(&s->broker, &o, err);
}

static enum ww_rc listen_and_serve(struct server *s, struct ww_err *err)
{
	struct ww_http_route routes[MAX_ROUTES];
	size_t n = WW_MCP_HTTP_ROUTES + WW_OPENENV_ROUTES;
	ww_mcp_http_routes(s->mcp_http, routes);
	ww_openenv_routes(s->openenv, routes + WW_MCP_HTTP_ROUTES);
	if (s->completions) {
		ww_completions_routes(s->completions, routes + n);
		n += WW_COMPLETIONS_ROUTES;
	}
	routes[n++] = ww_metrics_route(&s->metrics);
	struct ww_http_opts o = { .host = s->v->host,
		.port = (int)s->v->port,
		.token = s->token.len ? s->token.p : NULL,
		.routes = routes,
		.n_routes = n,
		.on_stop = on_stop,
		.ctx = s };
	WW_CHECK(ww_http_open(&s->http, &o, err));
	s->metrics = (struct ww_metrics){ s->http, s->broker, s->openenv, s->completions };
	const char *brackets = strchr(s->v->host, ':') ? "[]" : "";
	if (s->v->json)
		printf("{\"host\": \"%s\", \"port\": %d, \"target\": \"%s\"}\n", s->v->host, ww_http_port(s->http),
			ww_target_name(ww_broker_opts_of(s->broker)->judge.target));
	else
		printf("listening on http://%.1s%s%.1s:%d: MCP on /mcp, OpenEnv on /ws%s\n", brackets, s->v->host,
			*brackets ? "]" : "", ww_http_port(s->http), s->completions ? ", completions on /v1" : "");
	fflush(stdout);
	return ww_http_serve(s->http, &ww_cmd_interrupted, err);
}

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	struct server s = { .v = values, .token = WW_STR_INIT(TOKEN_BYTES) };
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc;
	WW_TRY(read_token(&s, &err));
	WW_TRY(open_broker(&s, &err));
	WW_TRY(open_models(&s, &err));
	WW_TRY(open_doors(&s, &err));
	WW_TRY(listen_and_serve(&s, &err));
out:
	ww_http_close(s.http);
	ww_completions_free(s.completions);
	ww_openenv_free(s.openenv);
	ww_mcp_http_free(s.mcp_http);
	ww_mcp_free(s.mcp);
	ww_broker_free(s.broker);
	if (s.has_skill)
		ww_skill_close(&s.skill);
	ww_str_release(&s.token);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

const struct ww_cmd ww_cmd_serve = { "serve", "",
	"serve the tools over HTTP (MCP), and an environment for trainers (OpenEnv)",
	"MCP on /mcp, in the revisions 2026-07-28, 2025-11-25 and 2025-06-18; OpenEnv on /ws, with /reset, /step, /state, "
	"/health,\n"
	"/metadata, /schema and /openapi.json; with --models OpenAI's chat and text completions on /v1.  Prints one line "
	"when it\n"
	"listens.  What decides a verdict is chosen here and not by clients; "
	"it reads and writes files with your rights.  Without a\n"
	"token only this machine can reach it.  There is no TLS: beyond the machine use a tunnel or a proxy.  SIGTERM and "
	"Ctrl-C:\n"
	"no new work, open requests are finished; a second one ends at once.  docs/serve.md has the protocols.",
	options, sizeof(struct values), 0, 0, run };
