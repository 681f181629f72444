/* openenv.c - see openenv.h.
 *
 * A session is an environment and a WebSocket, whose thread answers its messages one after the other.  Over HTTP an
 * environment is made by POST /reset and named by its episode_id in POST /step and GET /state.  Both kinds count
 * against one limit; those over HTTP end after ten minutes without a request.
 *
 * OpenEnv's own server makes a fresh environment for each POST, which cannot hold an episode of several steps; clients
 * that send no episode_id get the same here: a fresh environment.
 */
#include "serve/openenv.h"

#include "base/json.h"
#include "base/lock.h"
#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE_S = 600, ANSWER_BYTES = 64 << 20 };
static const double LOOK_S = 0.2;
static const char json_mime[] = "application/json";

struct session {
	struct ww_openenv *o;
	struct ww_env *env;
};

/* An environment over HTTP. */
struct http_env {
	struct ww_env *env;
	char id[256];
	int busy; /* a request is at work on it */
	uint64_t used_ns;
	struct http_env *next;
};

struct ww_openenv {
	struct ww_openenv_opts o;
	pthread_mutex_t lock; /* what follows */
	struct http_env *http_envs;
	int n_envs;
};

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static json_t *error_json(const char *code, const char *text)
{
	return json_pack("{s:s, s:{s:s, s:s}}", "type", "error", "data", "message", text, "code", code);
}

static const char *code_of(enum ww_rc rc)
{
	return rc == WW_ERR_USAGE || rc == WW_ERR_TASK ? "VALIDATION_ERROR" : "EXECUTION_ERROR";
}

/* Wait for the answer while the client does. */
static enum ww_rc observe(
	struct ww_openenv *o, struct ww_env *e, const struct ww_openenv_client *c, json_t **out, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	double left_s = o->o.wait_s;
	while (!ww_env_wait(e, left_s < LOOK_S ? left_s : LOOK_S) && (!c || c->waits(c->ctx)) &&
		(left_s = o->o.wait_s - ww_seconds_since(start)) > 0)
		;
	return ww_env_observe(e, 0, out, err);
}

static json_t *observed(
	struct ww_openenv *o, struct ww_env *e, const struct ww_openenv_client *c, enum ww_rc rc, struct ww_err *err)
{
	json_t *data = NULL;
	if (rc == WW_OK)
		rc = observe(o, e, c, &data, err);
	return rc == WW_OK ? json_pack("{s:s, s:o}", "type", "observation", "data", data)
					   : error_json(code_of(rc), err->msg);
}

static void take_answer(void *ctx, const struct ww_mcp_out *out)
{
	struct ww_err ignored;
	if (out->final && out->text && ww_json_parse(out->text, out->n, "answer", (json_t **)ctx, &ignored) != WW_OK)
		*(json_t **)ctx = NULL;
}

/* A message of MCP, which has no handshake here: what takes no time is answered. */
static json_t *mcp_answer(struct ww_openenv *o, const json_t *data)
{
	json_t *answer = NULL,
		   *hello = json_pack("{s:s, s:i, s:s, s:{s:s}}", "jsonrpc", "2.0", "id", 0, "method", "initialize", "params",
			   "protocolVersion", "2025-06-18");
	const char *method = ww_json_str(data, "method", "");
	struct ww_mcp_peer *p = strcmp(method, "tools/call") ? ww_mcp_peer_new(o->o.mcp, take_answer, &answer) : NULL;
	if (p) {
		ww_mcp_receive_json(p, hello);
		json_decref(answer);
		answer = NULL;
		ww_mcp_receive_json(p, data);
		ww_mcp_peer_close(p);
	}
	json_decref(hello);
	if (!answer)
		answer = json_pack("{s:s, s:O?, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", json_object_get(data, "id"), "error",
			"code", -32601, "message", "tools are called by step here, or by MCP on /mcp");
	return json_pack("{s:s, s:o}", "type", "mcp", "data", answer);
}

json_t *ww_openenv_answer(
	struct ww_openenv *o, struct ww_env *e, const struct ww_openenv_client *c, const char *text, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *message = NULL, *none = json_object();
	if (ww_json_parse_message(text, n, "message", &message, &err) != WW_OK || !json_is_object(message))
		return error_json("INVALID_JSON", message ? "a message is an object" : err.msg);
	const char *type = ww_json_str(message, "type", "");
	json_t *data = json_object_get(message, "data");
	if (!data || json_is_null(data))
		data = none;
	if (!strcmp(type, "reset"))
		return observed(o, e, c, ww_env_reset(e, data, &err), &err);
	if (!strcmp(type, "step"))
		return observed(o, e, c, ww_env_step(e, data, &err), &err);
	if (!strcmp(type, "state"))
		return json_pack("{s:s, s:o}", "type", "state", "data", ww_env_state(e));
	if (!strcmp(type, "mcp"))
		return mcp_answer(o, data);
	if (strcmp(type, "close"))
		return error_json("UNKNOWN_TYPE", "a message's type is reset, step, state, mcp or close");
	return NULL;
}

/* ---- Room for environments --------------------------------------------------------------------------------------- */

static void free_http_env(struct http_env *l)
{
	ww_env_free(l->env);
	free(l);
}

/* Under the lock: take out those that had no request for IDLE_S. */
static struct http_env *take_idle(struct ww_openenv *o)
{
	struct http_env *out = NULL;
	for (struct http_env **at = &o->http_envs; *at;) {
		struct http_env *l = *at;
		if (l->busy || ww_seconds_since(l->used_ns) < IDLE_S) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		l->next = out;
		out = l;
		o->n_envs--;
	}
	return out;
}

static void leave_room(struct ww_openenv *o)
{
	WW_LOCKED(&o->lock);
	o->n_envs--;
}

/* A new environment; NULL: there is no room for one more, or no memory. */
static struct ww_env *new_env(struct ww_openenv *o)
{
	struct ww_env *e = NULL;
	struct ww_err ignored;
	pthread_mutex_lock(&o->lock);
	struct http_env *idle = take_idle(o);
	int room = o->n_envs < o->o.max_sessions;
	o->n_envs += room;
	pthread_mutex_unlock(&o->lock);
	for (struct http_env *next; idle; idle = next) {
		next = idle->next;
		free_http_env(idle);
	}
	if (room && ww_env_new(&e, &o->o.env, &ignored) != WW_OK)
		leave_room(o);
	return e;
}

/* ---- WebSocket sessions ------------------------------------------------------------------------------------------ */

static void say(struct ww_http_ws *ws, json_t *answer)
{
	struct ww_str text = WW_STR_INIT(ANSWER_BYTES);
	ww_json_add(&text, answer);
	if (text.cut) {
		json_auto_t *o = error_json("EXECUTION_ERROR", "the answer is longer than 64 MiB");
		ww_str_release(&text);
		ww_str_init(&text, ANSWER_BYTES);
		ww_json_add(&text, o);
	}
	ww_http_ws_send(ws, text.p, text.len);
	ww_str_release(&text);
	json_decref(answer);
}

static int ws_waits(void *ctx) { return ww_http_ws_alive(ctx); }

static void converse(struct session *s, struct ww_http_ws *ws)
{
	const struct ww_openenv_client client = { ws_waits, ws };
	size_t n;
	for (char *text; (text = ww_http_ws_next(ws, &n));) {
		json_t *answer = ww_openenv_answer(s->o, s->env, &client, text, n);
		free(text);
		if (!answer) {
			ww_http_ws_close(ws, 1000);
			return;
		}
		say(ws, answer);
	}
}

static void *on_open(void *ctx, const struct ww_http_request *r)
{
	struct session *s = malloc(sizeof(*s));
	if (s)
		*s = (struct session){ ctx, new_env(ctx) };
	if (s && s->env)
		return s;
	free(s);
	return NULL;
}

static void on_run(void *session, struct ww_http_ws *ws)
{
	struct session *s = session;
	if (ws)
		converse(s, ws);
	ww_env_free(s->env);
	leave_room(s->o);
	free(s);
}

static const struct ww_http_ws_ops ws_ops = { on_open, on_run };

/* ---- Over HTTP --------------------------------------------------------------------------------------------------- */

static void reply_json(struct ww_http_reply *reply, int status, json_t *o)
{
	ww_auto_str text = WW_STR_INIT(ANSWER_BYTES);
	ww_json_add(&text, o);
	ww_http_reply_all(reply, status, json_mime, NULL, text.p, text.len);
	json_decref(o);
}

/* In OpenEnv's form, which is that of its framework. */
static void reply_detail(struct ww_http_reply *reply, int status, const char *text)
{
	const char *type = status < 500 ? "value_error" : "execution_error";
	reply_json(reply, status, json_pack("{s:[{s:s, s:s}]}", "detail", "type", type, "msg", text));
}

/* id: what its episode is called from now on; NULL: as before. */
static void give_back(struct ww_openenv *o, struct http_env *l, const char *id)
{
	WW_LOCKED(&o->lock);
	if (id)
		snprintf(l->id, sizeof(l->id), "%s", id);
	l->busy = 0;
	l->used_ns = ww_now_ns();
}

static void remove_http_env(struct ww_openenv *o, struct http_env *l)
{
	pthread_mutex_lock(&o->lock);
	for (struct http_env **at = &o->http_envs; *at; at = &(*at)->next)
		if (*at == l) {
			*at = l->next;
			break;
		}
	o->n_envs--;
	pthread_mutex_unlock(&o->lock);
	free_http_env(l);
}

static int http_waits(void *ctx) { return !ww_http_reply_gone(ctx); }

/* Answer what a reset or a step has begun; rc: its result. */
static void reply_observation(struct ww_openenv *o, struct http_env *l, int is_reset, enum ww_rc rc, struct ww_err *err,
	struct ww_http_reply *reply)
{
	const struct ww_openenv_client client = { http_waits, reply };
	json_t *data = NULL;
	int lost = is_reset && rc != WW_OK; /* a refused step leaves the episode as it is */
	if (rc == WW_OK)
		lost = (rc = observe(o, l->env, &client, &data, err)) != WW_OK;
	int is_request = rc == WW_ERR_USAGE || rc == WW_ERR_TASK;
	if (lost || ww_json_bool(data, "done", 0))
		remove_http_env(o, l); /* an episode that has ended needs no room */
	else
		give_back(o, l, ww_json_str(json_object_get(data, "observation"), "episode_id", NULL));
	if (rc == WW_OK)
		reply_json(reply, 200, data);
	else
		reply_detail(reply, is_request ? 422 : 500, err->msg);
}

/* The body as an object; NULL: it has been refused. */
static json_t *body_of(const struct ww_http_request *r, struct ww_http_reply *reply)
{
	struct ww_err err = WW_ERR_INIT;
	json_t *o = NULL;
	if (!r->body_bytes)
		return json_object();
	if (ww_json_parse_message(r->body, r->body_bytes, "body", &o, &err) == WW_OK && json_is_object(o))
		return o;
	reply_detail(reply, 422, o ? "the body is no object" : err.msg);
	json_decref(o);
	return NULL;
}

/* Under the lock. */
static struct http_env *find(struct ww_openenv *o, const char *id)
{
	struct http_env *l = o->http_envs;
	while (l && (!*l->id || strcmp(l->id, id)))
		l = l->next;
	return l;
}

/* A busy environment of that name ("": none yet); NULL: it is refused. */
static struct http_env *add_http_env(struct ww_openenv *o, const char *id, struct ww_http_reply *reply)
{
	struct http_env *l = calloc(1, sizeof(*l));
	if (!l || !(l->env = new_env(o))) {
		free(l);
		reply_detail(reply, 503, "there is no room for another environment now");
		return NULL;
	}
	l->busy = 1;
	snprintf(l->id, sizeof(l->id), "%s", id);
	pthread_mutex_lock(&o->lock);
	int taken = find(o, l->id) != NULL;
	if (!taken) {
		l->next = o->http_envs;
		o->http_envs = l;
	}
	pthread_mutex_unlock(&o->lock);
	if (!taken)
		return l;
	leave_room(o);
	free_http_env(l);
	reply_detail(reply, 409, "another episode has this episode_id: end it, or choose another name");
	return NULL;
}

static void on_reset(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *body = body_of(r, reply);
	struct http_env *l = body ? add_http_env(ctx, ww_json_str(body, "episode_id", ""), reply) : NULL;
	if (l)
		reply_observation(ctx, l, 1, ww_env_reset(l->env, body, &err), &err, reply);
}

/* Found and marked as busy; *busy: another request is at work on it. */
static struct http_env *take_http_env(struct ww_openenv *o, const char *id, int *busy)
{
	WW_LOCKED(&o->lock);
	struct http_env *l = find(o, id);
	*busy = l && l->busy;
	if (l && !l->busy)
		l->busy = 1;
	return *busy ? NULL : l;
}

static void on_step(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *body = body_of(r, reply);
	const char *id = ww_json_str(body, "episode_id", NULL);
	int busy = 0;
	struct http_env *l = id ? take_http_env(ctx, id, &busy) : NULL;
	if (l)
		reply_observation(ctx, l, 0, ww_env_step(l->env, json_object_get(body, "action"), &err), &err, reply);
	else if (busy)
		reply_detail(reply, 409, "another request is at work on this episode");
	else if (body)
		reply_detail(reply, 422,
			id ? "there is no such episode (any more): reset"
			   : "name the episode: \"episode_id\", as the answer to /reset has it");
}

static void on_state(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	struct ww_openenv *o = ctx;
	const char *id = !strncmp(r->query, "episode_id=", 11) ? r->query + 11 : NULL;
	if (!id) {
		reply_json(reply, 200, json_pack("{s:n, s:i}", "episode_id", "step_count", 0));
		return;
	}
	pthread_mutex_lock(&o->lock);
	const struct http_env *l = find(o, id);
	json_t *state = l ? ww_env_state(l->env) : NULL;
	pthread_mutex_unlock(&o->lock);
	if (state)
		reply_json(reply, 200, state);
	else
		reply_detail(reply, 404, "there is no such episode (any more)");
}

/* ---- Description of the environment ------------------------------------------------------------------------------ */

static void on_health(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	reply_json(reply, 200, json_pack("{s:s}", "status", "healthy"));
}

static void on_metadata(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	reply_json(reply, 200,
		json_pack("{s:s, s:s, s:s}", "name", "warpwright", "description",
			"Write fast kernels: an episode is a PyTorch module, a workspace, tools to write, compile, "
			"verify and profile a solution, "
			"and a judge whose verdict on the last one is the reward.",
			"version", WW_VERSION));
}

static json_t *schema(const char *text) { return json_loads(text, 0, NULL); }

static void on_schema(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	reply_json(reply, 200,
		json_pack("{s:o, s:o, s:o, s:o}", "action", schema(ww_env_action_schema), "observation",
			schema(ww_env_observation_schema), "state", schema(ww_env_state_schema), "reset",
			schema(ww_env_reset_schema)));
}

/* A path with one method: what it takes (a schema, or NULL) and what it answers. */
static json_t *operation(const char *method, const char *summary, json_t *body, json_t *answer)
{
	json_t *o = json_pack("{s:s, s:{s:{s:s, s:{s:{s:o}}}}}", "summary", summary, "responses", "200", "description",
		"the answer", "content", json_mime, "schema", answer);
	if (body)
		json_object_set_new(o, "requestBody", json_pack("{s:{s:{s:o}}}", "content", json_mime, "schema", body));
	return json_pack("{s:o}", method, o);
}

static json_t *observation_answer(void)
{
	return json_pack("{s:s, s:{s:o, s:{s:[s,s]}, s:{s:s}}, s:[s,s]}", "type", "object", "properties", "observation",
		schema(ww_env_observation_schema), "reward", "type", "number", "null", "done", "type", "boolean", "required",
		"observation", "done");
}

static void on_openapi(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	json_t *any = json_pack("{s:s}", "type", "object"), *paths = json_object();
	json_object_set_new(paths, "/health", operation("get", "Is the server there?", NULL, json_deep_copy(any)));
	json_object_set_new(paths, "/metadata", operation("get", "Name, description, version", NULL, json_deep_copy(any)));
	json_object_set_new(paths, "/schema",
		operation("get", "Schemas of action, observation, state and reset", NULL, json_deep_copy(any)));
	json_object_set_new(
		paths, "/reset", operation("post", "Begin an episode", schema(ww_env_reset_schema), observation_answer()));
	json_object_set_new(paths, "/step",
		operation("post", "A step of the episode that episode_id names",
			json_pack("{s:s, s:{s:o, s:{s:s}}, s:[s,s]}", "type", "object", "properties", "action",
				schema(ww_env_action_schema), "episode_id", "type", "string", "required", "action", "episode_id"),
			observation_answer()));
	json_object_set_new(paths, "/state",
		operation("get", "State of the episode that ?episode_id= names", NULL, schema(ww_env_state_schema)));
	json_object_set_new(
		paths, "/mcp", operation("post", "Model Context Protocol", json_deep_copy(any), json_deep_copy(any)));
	json_decref(any);
	reply_json(reply, 200,
		json_pack("{s:s, s:{s:s, s:s}, s:o}", "openapi", "3.1.0", "info", "title", "Warpwright", "version", "1.0.0",
			"paths", paths));
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

enum ww_rc ww_openenv_new(struct ww_openenv **out, const struct ww_openenv_opts *opts, struct ww_err *err)
{
	struct ww_openenv *o = *out = calloc(1, sizeof(*o));
	if (!o)
		return ww_nomem(err);
	o->o = *opts;
	if (o->o.wait_s <= 0)
		o->o.wait_s = 45;
	pthread_mutex_init(&o->lock, NULL);
	return WW_OK;
}

void ww_openenv_routes(struct ww_openenv *o, struct ww_http_route out[WW_OPENENV_ROUTES])
{
	const struct ww_http_route routes[WW_OPENENV_ROUTES] = {
		{ .method = "GET", .path = "/ws", .ws = &ws_ops, .ctx = o },
		{ .method = "GET", .path = "/health", .handle = on_health, .flags = WW_HTTP_NO_TOKEN },
		{ .method = "GET", .path = "/metadata", .handle = on_metadata },
		{ .method = "GET", .path = "/schema", .handle = on_schema },
		{ .method = "GET", .path = "/openapi.json", .handle = on_openapi },
		{ .method = "POST", .path = "/reset", .handle = on_reset, .ctx = o },
		{ .method = "POST", .path = "/step", .handle = on_step, .ctx = o },
		{ .method = "GET", .path = "/state", .handle = on_state, .ctx = o }
	};
	memcpy(out, routes, sizeof(routes));
}

int ww_openenv_count(struct ww_openenv *o)
{
	WW_LOCKED(&o->lock);
	return o->n_envs;
}

void ww_openenv_free(struct ww_openenv *o)
{
	if (!o)
		return;
	while (o->http_envs) {
		struct http_env *l = o->http_envs;
		o->http_envs = l->next;
		free_http_env(l);
	}
	pthread_mutex_destroy(&o->lock);
	free(o);
}
