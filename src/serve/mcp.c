/* mcp.c - messages: reading, checking, choosing the revision, answering what needs no work.
 *
 * A message is hostile text.  It is parsed once (jansson bounds the depth), checked in the order in which JSON-RPC and
 * MCP define their errors, and handed to one row of a table of methods.  A row says which revisions know the method:
 * what a revision does not know is "method not found" there, even where another revision has it.
 *
 * The two eras differ in where the revision comes from and in what every result carries; nothing else in this file
 * depends on the revision.  Rejected: one dispatcher for each era.  It would repeat tools and tasks, and a client may
 * use both on one connection (a probe with server/discover, then initialize).
 */
#include "serve/mcp_internal.h"

#include "base/json.h"
#include "base/lock.h"

#include <stdlib.h>
#include <string.h>

enum { USUAL_BYTES = 4000 }; /* of a message: most need no more */

#define META "io.modelcontextprotocol/"
#define TASKS_EXTENSION META "tasks"

static const char *const revision_names[] = { "", "2025-06-18", "2025-11-25", "2026-07-28" };

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

/* An answer that is too long becomes an error, since a client without an answer would wait. */
static void serialise(const json_t *message, struct ww_str *s)
{
	json_t *id = json_object_get(message, "id");
	ww_str_reserve(s, USUAL_BYTES);
	ww_json_add(s, message);
	if (!s->cut || !id)
		return;
	json_t *o = json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id, "error", "code", WW_MCP_INTERNAL,
		"message", "the answer is longer than 64 MiB");
	ww_str_release(s);
	ww_str_init(s, WW_MCP_MAX_SEND_BYTES);
	ww_json_add(s, o);
	json_decref(o);
}

static void hand_over(struct ww_mcp_peer *p, const struct ww_mcp_out *o)
{
	WW_LOCKED(&p->send_lock);
	if (!p->closed)
		p->send(p->ctx, o);
}

void ww_mcp_send(struct ww_mcp_peer *p, json_t *message)
{
	ww_auto_str s = WW_STR_INIT(WW_MCP_MAX_SEND_BYTES);
	if (!message)
		return; /* out of memory: the client's own time limit tells it */
	serialise(message, &s);
	struct ww_mcp_out o = { .text = s.p,
		.n = s.len,
		.final = !json_object_get(message, "method"),
		.error = (int)ww_json_int(json_object_get(message, "error"), "code", 0) };
	json_decref(message);
	if (!s.cut)
		hand_over(p, &o);
}

void ww_mcp_no_answer(struct ww_mcp_peer *p) { hand_over(p, &(struct ww_mcp_out){ .final = 1 }); }

void ww_mcp_respond(struct ww_mcp_peer *p, const json_t *id, json_t *result)
{
	ww_mcp_send(p, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

/* id NULL: the request could not be read so far. */
void ww_mcp_fail(struct ww_mcp_peer *p, const json_t *id, int code, json_t *data, const char *fmt, ...)
{
	ww_auto_str text = WW_STR_INIT(1024);
	va_list ap;
	va_start(ap, fmt);
	ww_str_vaddf(&text, fmt, ap);
	va_end(ap);
	ww_auto_str clean = WW_STR_INIT(2048);
	ww_str_add_bounded(&clean, text.p, text.len, 1024);
	json_t *o = json_pack("{s:s, s:{s:i, s:s}}", "jsonrpc", "2.0", "error", "code", code, "message", clean.p);
	if (id)
		json_object_set_new(o, "id", json_deep_copy(id));
	if (data)
		json_object_set_new(json_object_get(o, "error"), "data", data);
	ww_mcp_send(p, o);
}

static json_t *server_info(void)
{
	return json_pack("{s:s, s:s, s:s}", "name", "warpwright", "title", "Warpwright", "version", WW_VERSION);
}

json_t *ww_mcp_complete(enum ww_mcp_revision v, json_t *result)
{
	if (v != WW_MCP_2026_07_28)
		return result;
	if (!json_object_get(result, "resultType"))
		json_object_set_new(result, "resultType", json_string("complete"));
	json_t *meta = json_object_get(result, "_meta");
	if (!meta) {
		meta = json_object();
		json_object_set_new(result, "_meta", meta);
	}
	json_object_set_new(meta, META "serverInfo", server_info());
	return result;
}

/* ---- Methods of every server ------------------------------------------------------------------------------------- */

static json_t *capabilities(enum ww_mcp_revision v)
{
	json_t *c = json_pack("{s:{}}", "tools");
	if (v == WW_MCP_2025_11_25)
		json_object_set_new(
			c, "tasks", json_pack("{s:{}, s:{}, s:{s:{s:{}}}}", "list", "cancel", "requests", "tools", "call"));
	if (v == WW_MCP_2026_07_28)
		json_object_set_new(c, "extensions", json_pack("{s:{}}", TASKS_EXTENSION));
	return c;
}

static void initialize(const struct ww_mcp_request *r)
{
	const char *want = ww_json_str(r->params, "protocolVersion", NULL);
	if (!want) {
		ww_mcp_fail(r->peer, r->id, WW_MCP_INVALID_PARAMS, NULL, "initialize needs protocolVersion");
		return;
	}
	enum ww_mcp_revision v = strcmp(want, revision_names[WW_MCP_2025_06_18]) ? WW_MCP_2025_11_25 : WW_MCP_2025_06_18;
	r->peer->conversation->legacy = (int)v;
	ww_mcp_respond(r->peer, r->id,
		json_pack("{s:s, s:o, s:o, s:s}", "protocolVersion", revision_names[v], "capabilities", capabilities(v),
			"serverInfo", server_info(), "instructions", r->peer->m->o.instructions));
}

static void ping(const struct ww_mcp_request *r) { ww_mcp_respond(r->peer, r->id, json_object()); }

static json_t *cacheable(json_t *o)
{
	json_object_set_new(o, "ttlMs", json_integer(3600000));
	json_object_set_new(o, "cacheScope", json_string("public"));
	return o;
}

static void discover(const struct ww_mcp_request *r)
{
	json_t *o = json_pack("{s:[s], s:o, s:s}", "supportedVersions", revision_names[WW_MCP_2026_07_28], "capabilities",
		capabilities(r->revision), "instructions", r->peer->m->o.instructions);
	ww_mcp_respond(r->peer, r->id, ww_mcp_complete(r->revision, cacheable(o)));
}

static json_t *tool_json(const struct ww_mcp *m, size_t i, enum ww_mcp_revision v)
{
	const struct ww_mcp_tool *t = &m->o.tools[i];
	json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:o, s:{s:b, s:b}}", "name", t->name, "title", t->title, "description",
		t->description, "inputSchema", json_deep_copy(m->inputs[i]), "outputSchema", json_deep_copy(m->outputs[i]),
		"annotations", "readOnlyHint", t->read_only, "openWorldHint", 0);
	if (v == WW_MCP_2025_11_25)
		json_object_set_new(o, "execution", json_pack("{s:s}", "taskSupport", t->slow ? "optional" : "forbidden"));
	return o;
}

static void tools_list(const struct ww_mcp_request *r)
{
	const struct ww_mcp *m = r->peer->m;
	json_t *list = json_array();
	if (json_object_get(r->params, "cursor")) {
		json_decref(list);
		ww_mcp_fail(r->peer, r->id, WW_MCP_INVALID_PARAMS, NULL, "there is one page of tools: no cursor is valid");
		return;
	}
	for (size_t i = 0; i < m->o.n_tools; i++)
		json_array_append_new(list, tool_json(m, i, r->revision));
	json_t *o = json_pack("{s:o}", "tools", list);
	if (r->revision == WW_MCP_2026_07_28)
		cacheable(o);
	ww_mcp_respond(r->peer, r->id, ww_mcp_complete(r->revision, o));
}

/* ---- Receiving --------------------------------------------------------------------------------------------------- */

enum {
	OLDEST = 1 << WW_MCP_2025_06_18,
	MIDDLE = 1 << WW_MCP_2025_11_25,
	MODERN = 1 << WW_MCP_2026_07_28,
	START = 1 << WW_MCP_NONE
};
static const struct {
	const char *name;
	int revisions;
	void (*run)(const struct ww_mcp_request *r);
} methods[] = { { "initialize", START | OLDEST | MIDDLE, initialize }, { "ping", START | OLDEST | MIDDLE, ping },
	{ "server/discover", MODERN, discover }, { "tools/list", OLDEST | MIDDLE | MODERN, tools_list },
	{ "tools/call", OLDEST | MIDDLE | MODERN, ww_mcp_tools_call }, { "tasks/get", MIDDLE | MODERN, ww_mcp_tasks_get },
	{ "tasks/cancel", MIDDLE | MODERN, ww_mcp_tasks_cancel }, { "tasks/result", MIDDLE, ww_mcp_tasks_result },
	{ "tasks/list", MIDDLE, ww_mcp_tasks_list }, { "tasks/update", MODERN, ww_mcp_tasks_update } };

/* Which revision a request is made in; 0 where it has been refused. */
static int choose_revision(struct ww_mcp_request *r)
{
	const json_t *v = json_object_get(r->meta, META "protocolVersion");
	const json_t *c = json_object_get(r->meta, META "clientCapabilities");
	r->revision = (enum ww_mcp_revision)r->peer->conversation->legacy;
	if (!v)
		return 1;
	if (!json_is_string(v) || !json_is_object(c)) {
		ww_mcp_fail(r->peer, r->id, WW_MCP_INVALID_PARAMS, NULL,
			"_meta needs " META "protocolVersion (a string) and " META "clientCapabilities (an object)");
		return 0;
	}
	if (strcmp(json_string_value(v), revision_names[WW_MCP_2026_07_28])) {
		ww_mcp_fail(r->peer, r->id, WW_MCP_UNSUPPORTED_VERSION,
			json_pack("{s:[s,s,s], s:O}", "supported", revision_names[3], revision_names[2], revision_names[1],
				"requested", v),
			"Unsupported protocol version");
		return 0;
	}
	r->revision = WW_MCP_2026_07_28;
	r->follows_tasks = json_is_object(json_object_get(json_object_get(c, "extensions"), TASKS_EXTENSION));
	return 1;
}

static void on_request(struct ww_mcp_request *r, const char *method)
{
	if (!choose_revision(r))
		return;
	for (size_t i = 0; i < WW_ARRAY_LEN(methods); i++)
		if (!strcmp(methods[i].name, method) && methods[i].revisions & 1 << r->revision) {
			methods[i].run(r);
			return;
		}
	if (r->revision == WW_MCP_NONE)
		ww_mcp_fail(r->peer, r->id, WW_MCP_INVALID_PARAMS,
			json_pack("{s:[s,s,s]}", "supported", revision_names[3], revision_names[2], revision_names[1]),
			"begin with initialize (2025-11-25, 2025-06-18), or put " META
			"protocolVersion (2026-07-28) into _meta of every request");
	else
		ww_mcp_fail(r->peer, r->id, WW_MCP_NO_METHOD, NULL, "no method \"%.100s\"", method);
}

static int is_id(const json_t *id) { return json_is_string(id) || json_is_integer(id); }

void ww_mcp_receive_json(struct ww_mcp_peer *p, const json_t *o)
{
	const json_t *id = json_object_get(o, "id"), *params = json_object_get(o, "params");
	const char *version = ww_json_str(o, "jsonrpc", ""), *method = ww_json_str(o, "method", NULL);
	if (!method && (json_object_get(o, "result") || json_object_get(o, "error")))
		return; /* an answer, though we asked nothing */
	if (strcmp(version, "2.0") || !method || (id && !is_id(id))) {
		ww_mcp_fail(p, is_id(id) ? id : NULL, WW_MCP_INVALID_REQUEST, NULL,
			"no JSON-RPC 2.0 message: an object with \"jsonrpc\": \"2.0\", \"method\" and, for an answer, an \"id\"");
		return;
	}
	if (!id) {
		if (!strcmp(method, "notifications/cancelled"))
			ww_mcp_cancel_request(p, json_object_get(params, "requestId"));
		return;
	}
	if (params && !json_is_object(params)) {
		ww_mcp_fail(p, id, WW_MCP_INVALID_PARAMS, NULL, "params must be an object");
		return;
	}
	struct ww_mcp_request r = { .peer = p, .id = id, .params = params, .meta = json_object_get(params, "_meta") };
	on_request(&r, method);
}

void ww_mcp_unreadable(struct ww_mcp_peer *p, const char *why)
{
	ww_mcp_fail(p, NULL, WW_MCP_PARSE_ERROR, NULL, "%s", why);
}

void ww_mcp_receive(struct ww_mcp_peer *p, const char *text, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *o = NULL;
	if (n > WW_MCP_MAX_MESSAGE_BYTES)
		ww_mcp_unreadable(p, "the message is longer than 16 MiB");
	else if (ww_json_parse_message(text, n, "message", &o, &err) != WW_OK)
		ww_mcp_unreadable(p, err.msg);
	else
		ww_mcp_receive_json(p, o);
}

/* ---- Peers and the server ---------------------------------------------------------------------------------------- */

struct ww_mcp_peer *ww_mcp_peer_ref(struct ww_mcp_peer *p)
{
	p->refs++;
	return p;
}

void ww_mcp_peer_unref(struct ww_mcp_peer *p)
{
	if (--p->refs)
		return;
	if (p->conversation != p)
		ww_mcp_peer_unref(p->conversation);
	pthread_mutex_destroy(&p->send_lock);
	free(p);
}

static struct ww_mcp_peer *new_peer(struct ww_mcp *m, struct ww_mcp_peer *conversation, ww_mcp_send_fn *send, void *ctx)
{
	struct ww_mcp_peer *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	pthread_mutex_init(&p->send_lock, NULL);
	p->m = m;
	p->send = send;
	p->ctx = ctx;
	p->refs = 1;
	WW_LOCKED(&m->lock);
	p->serial = ++m->peers;
	p->conversation = conversation ? ww_mcp_peer_ref(conversation) : p;
	return p;
}

struct ww_mcp_peer *ww_mcp_peer_new(struct ww_mcp *m, ww_mcp_send_fn *send, void *ctx)
{
	return new_peer(m, NULL, send, ctx);
}

struct ww_mcp_peer *ww_mcp_peer_join(struct ww_mcp_peer *conversation, ww_mcp_send_fn *send, void *ctx)
{
	return new_peer(conversation->m, conversation, send, ctx);
}

void ww_mcp_peer_block(struct ww_mcp_peer *p, int (*waits)(void *ctx)) { p->waits = waits; }

void ww_mcp_peer_close(struct ww_mcp_peer *p)
{
	struct ww_mcp *m = p->m;
	pthread_mutex_lock(&p->send_lock);
	p->closed = 1;
	pthread_mutex_unlock(&p->send_lock);
	pthread_mutex_lock(&m->lock);
	if (p->conversation == p)
		ww_mcp_cancel_all(p);
	ww_mcp_drop_waiters(p);
	ww_mcp_peer_unref(p);
	pthread_mutex_unlock(&m->lock);
}

enum ww_rc ww_mcp_new(struct ww_mcp **out, const struct ww_mcp_opts *o, struct ww_err *err)
{
	struct ww_mcp *m;
	enum ww_rc rc = WW_OK;
	*out = NULL;
	WW_CHECK(WW_NEW(m, 1, err));
	m->o = *o;
	if (!m->o.max_running)
		m->o.max_running = 16;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->idle, NULL);
	WW_TRY(WW_NEW(m->inputs, o->n_tools, err));
	WW_TRY(WW_NEW(m->outputs, o->n_tools, err));
	for (size_t i = 0; i < o->n_tools; i++) {
		const struct ww_mcp_tool *t = &o->tools[i];
		WW_TRY(ww_json_parse(t->input_schema, strlen(t->input_schema), t->name, &m->inputs[i], err));
		WW_TRY(ww_json_parse(t->output_schema, strlen(t->output_schema), t->name, &m->outputs[i], err));
	}
	*out = m;
	return WW_OK;
out:
	ww_mcp_free(m);
	return rc;
}

void ww_mcp_free(struct ww_mcp *m)
{
	if (!m)
		return;
	ww_mcp_stop_calls(m);
	for (size_t i = 0; i < m->o.n_tools; i++) {
		json_decref(m->inputs ? m->inputs[i] : NULL);
		json_decref(m->outputs ? m->outputs[i] : NULL);
	}
	free(m->inputs);
	free(m->outputs);
	pthread_mutex_destroy(&m->lock);
	pthread_cond_destroy(&m->idle);
	free(m);
}
