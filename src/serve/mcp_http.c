/* mcp_http.c - see mcp_http.h.
 *
 * A POST with a request is an exchange: a peer of the protocol core that sends its messages into this one answer, and
 * carries calls out in the connection's thread.  The first message decides the answer's form: a final message is plain
 * JSON; a progress message, or a call that takes longer than a second, makes it an event stream, if the client reads
 * those.  A tool that works asks waits() a few times a second, which also writes a comment into a stream that has been
 * silent for a while, so that proxies leave it open.
 *
 * 2026-07-28 has no sessions: an exchange is a conversation of its own, its headers must repeat what its body says, and
 * closing the connection cancels it.  In the older revisions `initialize` makes a session; an exchange in it joins the
 * session's peer (a POST can cancel the call of another), and closing the connection cancels nothing.  Clients of these
 * may open a stream with GET; this server sends nothing on it.
 */
#include "serve/mcp_http.h"

#include "base/json.h"
#include "base/lock.h"
#include "base/time.h"
#include "serve/mcp_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

enum { MAX_SESSIONS = 256, SESSION_IDLE_S = 3600, STREAM_AFTER_S = 1, SILENT_S = 15 };
static const double LOOK_S = 0.25;
static const char events[] = "text/event-stream", event_headers[] = "X-Accel-Buffering: no\r\n",
				  json_mime[] = "application/json", modern[] = "2026-07-28",
				  no_session[] = "there is no such session; begin with initialize";
static const char *const legacy[] = { "2025-11-25", "2025-06-18", "2025-03-26" };

struct session {
	char id[33];
	struct ww_mcp_peer *peer;
	int has_stream; /* a GET is open */
	uint64_t used_ns;
	struct session *next;
};

/* A request with its answer. */
struct exchange {
	struct ww_mcp_peer *peer;
	struct ww_http_reply *reply;
	int modern, reads_events;
	int error_status; /* of an answer that is an error and has no status of its own */
	char headers[96];
	pthread_mutex_t lock; /* what follows: a task may answer from its own thread */
	pthread_cond_t changed;
	int begun, finished, error; /* begun: as an event stream */
	uint64_t said_ns;           /* the request came, or something was said */
	struct ww_str answer;       /* the final message; empty: it was cancelled */
};

struct ww_mcp_http {
	struct ww_mcp *m;
	pthread_mutex_t lock; /* what follows */
	struct session *sessions;
	int n_sessions;
};

/* ---- Exchanges --------------------------------------------------------------------------------------------------- */

/* HTTP's status beside an answer of JSON-RPC. */
static int status_of(const struct exchange *e)
{
	int bad = e->error == WW_MCP_UNSUPPORTED_VERSION || e->error == WW_MCP_NEED_CAPABILITY ||
		e->error == WW_MCP_INVALID_REQUEST;
	if (!e->error)
		return 200;
	return e->modern && e->error == WW_MCP_NO_METHOD ? 404
		: e->modern && bad                           ? 400
		: e->error_status                            ? e->error_status
													 : 200;
}

static void begin_events(struct exchange *e)
{
	if (!e->begun)
		ww_http_reply_begin(e->reply, 200, events, event_headers);
	e->begun = 1;
}

static void write_event(struct exchange *e, const char *text, size_t n)
{
	ww_auto_str s = WW_STR_INIT(WW_MCP_MAX_SEND_BYTES + 64);
	ww_str_adds(&s, "event: message\ndata: ");
	ww_str_add(&s, text, n);
	ww_str_adds(&s, "\n\n");
	if (!s.cut)
		ww_http_reply_write(e->reply, s.p, s.len);
	e->said_ns = ww_now_ns();
}

static void on_send(void *ctx, const struct ww_mcp_out *o)
{
	struct exchange *e = ctx;
	WW_LOCKED(&e->lock);
	if (!e->finished && o->final) {
		e->finished = 1;
		e->error = o->error;
		ww_str_add(&e->answer, o->text, o->text ? o->n : 0);
		pthread_cond_signal(&e->changed);
	} else if (!e->finished && e->reads_events) {
		begin_events(e);
		write_event(e, o->text, o->n);
	}
}

/* Under the lock: start the stream of an answer that takes long; write a comment into a silent one. */
static void show_life(struct exchange *e)
{
	double silent = ww_seconds_since(e->said_ns);
	if (!e->reads_events || e->finished)
		return;
	if (silent > STREAM_AFTER_S)
		begin_events(e);
	if (silent > SILENT_S) {
		ww_http_reply_write(e->reply, ": \n\n", 4);
		e->said_ns = ww_now_ns();
	}
}

static int waits(void *ctx)
{
	struct exchange *e = ctx;
	enum ww_http_gone gone = ww_http_reply_gone(e->reply);
	pthread_mutex_lock(&e->lock);
	if (!gone)
		show_life(e);
	pthread_mutex_unlock(&e->lock);
	return gone == WW_HTTP_WAITS || (gone == WW_HTTP_LEFT && !e->modern);
}

/* tasks/result is answered by the task's thread; without a client there is nothing to wait for. */
static void await_answer(struct exchange *e)
{
	WW_LOCKED(&e->lock);
	while (!e->finished && !ww_http_reply_gone(e->reply)) {
		(void)ww_cond_wait(&e->changed, &e->lock, LOOK_S);
		show_life(e);
	}
}

static void answer(struct exchange *e)
{
	if (e->begun) {
		if (e->answer.len)
			write_event(e, e->answer.p, e->answer.len);
		ww_http_reply_end(e->reply);
	} else if (e->answer.len) {
		ww_http_reply_all(e->reply, status_of(e), json_mime, *e->headers && !e->error ? e->headers : NULL, e->answer.p,
			e->answer.len);
	} else {
		ww_http_reply_all(e->reply, 204, NULL, NULL, "", 0); /* cancelled */
	}
}

static int accepts(const struct ww_http_request *r, const char *type)
{
	const char *a = ww_http_header(r, "Accept");
	return a && strcasestr(a, type) != NULL;
}

/* Have the core answer a message.  Takes e->peer; reply and what belongs to the revision are the caller's to fill. */
static void exchange_run(struct exchange *e, const struct ww_http_request *r, const json_t *message)
{
	if (!e->peer) {
		ww_http_reply_error(e->reply, 503, "out of memory");
		return;
	}
	e->reads_events = accepts(r, events);
	e->said_ns = ww_now_ns();
	ww_str_init(&e->answer, WW_MCP_MAX_SEND_BYTES);
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, NULL);
	ww_mcp_peer_block(e->peer, waits);
	ww_mcp_receive_json(e->peer, message);
	await_answer(e);
	ww_mcp_peer_close(e->peer); /* nothing is sent from now on */
	answer(e);
	pthread_mutex_destroy(&e->lock);
	pthread_cond_destroy(&e->changed);
	ww_str_release(&e->answer);
}

/* ---- Sessions ---------------------------------------------------------------------------------------------------- */

/* Under the lock. */
static struct session *find_session(struct ww_mcp_http *h, const char *id)
{
	struct session *s = h->sessions;
	while (s && strcmp(s->id, id))
		s = s->next;
	if (s)
		s->used_ns = ww_now_ns();
	return s;
}

static int has_session(struct ww_mcp_http *h, const char *id)
{
	WW_LOCKED(&h->lock);
	return id && find_session(h, id);
}

static void drop_message(void *ctx, const struct ww_mcp_out *o)
{
	(void)ctx, (void)o; /* a session says nothing but in its exchanges */
}

/* A way to its client for one exchange (NULL: for a notification), which may outlive it; NULL: it is gone, or memory.
 */
static struct ww_mcp_peer *join_session(struct ww_mcp_http *h, const char *id, struct exchange *e)
{
	WW_LOCKED(&h->lock);
	struct session *s = find_session(h, id);
	return s ? ww_mcp_peer_join(s->peer, e ? on_send : drop_message, e) : NULL;
}

/* Under the lock. */
static void session_free(struct ww_mcp_http *h, struct session *s)
{
	struct session **at = &h->sessions;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	h->n_sessions--;
	ww_mcp_peer_close(s->peer);
	free(s);
}

/* 0: there is none of that name. */
static int end_session(struct ww_mcp_http *h, const char *id)
{
	WW_LOCKED(&h->lock);
	struct session *s = find_session(h, id);
	if (s)
		session_free(h, s);
	return s != NULL;
}

/* Under the lock: end sessions that were not used for an hour; at the limit also the one used longest ago. */
static void drop_sessions(struct ww_mcp_http *h)
{
	struct session *oldest = NULL;
	for (struct session *s = h->sessions, *next; s; s = next) {
		next = s->next;
		if (!s->has_stream && ww_seconds_since(s->used_ns) > SESSION_IDLE_S)
			session_free(h, s);
		else if (!oldest || s->used_ns < oldest->used_ns)
			oldest = s;
	}
	if (h->n_sessions >= MAX_SESSIONS)
		session_free(h, oldest);
}

/* 0: out of memory. */
static int session_new(struct ww_mcp_http *h, char id[33])
{
	unsigned char bits[16];
	struct session *s = calloc(1, sizeof(*s));
	if (!s || getrandom(bits, sizeof(bits), 0) != sizeof(bits) ||
		!(s->peer = ww_mcp_peer_new(h->m, drop_message, NULL))) {
		free(s);
		return 0;
	}
	for (size_t i = 0; i < sizeof(bits); i++)
		snprintf(s->id + 2 * i, 3, "%02x", bits[i]);
	memcpy(id, s->id, sizeof(s->id));
	s->used_ns = ww_now_ns();
	WW_LOCKED(&h->lock);
	drop_sessions(h);
	s->next = h->sessions;
	h->sessions = s;
	h->n_sessions++;
	return 1;
}

/* ---- POST -------------------------------------------------------------------------------------------------------- */

/* An error of ours in JSON-RPC's form. */
static void refuse(struct ww_http_reply *reply, const json_t *id, int status, int code, const char *why)
{
	ww_auto_str s = WW_STR_INIT(4096);
	json_auto_t *o = json_pack("{s:s, s:{s:i, s:s}}", "jsonrpc", "2.0", "error", "code", code, "message", why);
	if (json_is_string(id) || json_is_integer(id))
		json_object_set_new(o, "id", json_deep_copy(id));
	ww_json_add(&s, o);
	ww_http_reply_all(reply, status, json_mime, NULL, s.p, s.len);
}

static int same(const char *header, const char *body) { return header && body && !strcmp(header, body); }

/* What the headers say about a request of 2026-07-28 must be what its body says; NULL: it is. */
static const char *header_mismatch(const struct ww_http_request *r, const json_t *o, const char *version)
{
	const char *method = ww_json_str(o, "method", NULL);
	const json_t *params = json_object_get(o, "params");
	if (!same(ww_http_header(r, "MCP-Protocol-Version"), version))
		return "the header MCP-Protocol-Version is not the body's io.modelcontextprotocol/protocolVersion";
	if (!same(ww_http_header(r, "Mcp-Method"), method))
		return "the header Mcp-Method is not the body's method";
	if (method && !strcmp(method, "tools/call") &&
		!same(ww_http_header(r, "Mcp-Name"), ww_json_str(params, "name", NULL)))
		return "the header Mcp-Name is not the body's name";
	return NULL;
}

static void accepted(struct ww_http_reply *reply) { ww_http_reply_all(reply, 202, NULL, NULL, "", 0); }

static void post_modern(struct ww_mcp_http *h, const struct ww_http_request *r, const json_t *o, const char *version,
	struct ww_http_reply *reply)
{
	const char *why = header_mismatch(r, o, version);
	struct exchange e = { .reply = reply, .modern = 1, .error_status = 200 };
	if (why) {
		refuse(reply, json_object_get(o, "id"), 400, WW_MCP_HEADER_MISMATCH, why);
	} else if (!json_object_get(o, "id")) {
		accepted(reply); /* it cancels by closing connections, and tells nothing else by notifications */
	} else {
		e.peer = ww_mcp_peer_new(h->m, on_send, &e);
		exchange_run(&e, r, o);
	}
}

/* Makes a session, unless the core answers with an error. */
static void initialize(
	struct ww_mcp_http *h, const struct ww_http_request *r, const json_t *o, struct ww_http_reply *reply)
{
	struct exchange e = { .reply = reply };
	char id[33];
	if (session_new(h, id)) {
		e.peer = join_session(h, id, &e);
		snprintf(e.headers, sizeof(e.headers), "Mcp-Session-Id: %s\r\n", id);
	}
	int made = e.peer != NULL;
	exchange_run(&e, r, o);
	if (made && e.error)
		end_session(h, id);
}

/* The core's error names the revisions that there are. */
static void refuse_revision(struct ww_mcp_http *h, const struct ww_http_request *r, const json_t *o,
	const char *version, struct ww_http_reply *reply)
{
	struct exchange e = { .reply = reply, .modern = 1 };
	json_t *id = json_object_get(o, "id");
	json_t *ask = json_pack("{s:s, s:o, s:s, s:{s:{s:s, s:{}}}}", "jsonrpc", "2.0", "id",
		id && !json_is_null(id) ? json_incref(id) : json_integer(0), "method", ww_json_str(o, "method", ""), "params",
		"_meta", "io.modelcontextprotocol/protocolVersion", version, "io.modelcontextprotocol/clientCapabilities");
	e.peer = ww_mcp_peer_new(h->m, on_send, &e);
	exchange_run(&e, r, ask);
	json_decref(ask);
}

/* A notification has no answer. */
static void notify(struct ww_mcp_http *h, const char *session, const json_t *o, struct ww_http_reply *reply)
{
	struct ww_mcp_peer *p = session ? join_session(h, session, NULL) : NULL;
	if (p) {
		ww_mcp_receive_json(p, o);
		ww_mcp_peer_close(p);
	}
	accepted(reply);
}

static void post_legacy(
	struct ww_mcp_http *h, const struct ww_http_request *r, const json_t *o, struct ww_http_reply *reply)
{
	const char *method = ww_json_str(o, "method", NULL), *id = ww_http_header(r, "Mcp-Session-Id"),
			   *version = ww_http_header(r, "MCP-Protocol-Version");
	struct exchange e = { .reply = reply, .error_status = method && !id ? 400 : 200 };
	if (id && !has_session(h, id)) {
		refuse(reply, json_object_get(o, "id"), 404, WW_MCP_INVALID_REQUEST, no_session);
	} else if (version && ww_word_at(version, legacy, WW_ARRAY_LEN(legacy)) < 0) {
		refuse_revision(h, r, o, version, reply);
	} else if (method && !strcmp(method, "initialize") && !id) {
		initialize(h, r, o, reply);
	} else if (method && !json_object_get(o, "id")) {
		notify(h, id, o, reply);
	} else if (!method && (json_object_get(o, "result") || json_object_get(o, "error"))) {
		accepted(reply); /* we ask nothing */
	} else {
		e.peer = id ? join_session(h, id, &e) : ww_mcp_peer_new(h->m, on_send, &e);
		exchange_run(&e, r, o);
	}
}

static void on_post(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	struct ww_mcp_http *h = ctx;
	struct ww_err err = WW_ERR_INIT;
	const char *type = ww_http_header(r, "Content-Type"), *accept = ww_http_header(r, "Accept"),
			   *version = ww_http_header(r, "MCP-Protocol-Version");
	json_auto_t *o = NULL;
	if (type && strncasecmp(type, json_mime, sizeof(json_mime) - 1)) {
		ww_http_reply_error(reply, 415, "a message is application/json");
	} else if (accept && !accepts(r, json_mime) && !accepts(r, events) && !accepts(r, "*/*")) {
		ww_http_reply_error(reply, 406, "an answer is application/json or text/event-stream");
	} else if (ww_json_parse_message(r->body, r->body_bytes, "message", &o, &err) != WW_OK) {
		refuse(reply, NULL, 400, WW_MCP_PARSE_ERROR, err.msg);
	} else if (!json_is_object(o)) {
		refuse(reply, NULL, 400, WW_MCP_INVALID_REQUEST, "the body is one JSON-RPC message, an object");
	} else {
		const json_t *meta = json_object_get(json_object_get(o, "params"), "_meta");
		const char *said = ww_json_str(meta, "io.modelcontextprotocol/protocolVersion", NULL);
		if (said || (version && !strcmp(version, modern)))
			post_modern(h, r, o, said, reply);
		else
			post_legacy(h, r, o, reply);
	}
}

/* ---- GET and DELETE ---------------------------------------------------------------------------------------------- */

/* NULL: refused. */
static const char *session_of(struct ww_mcp_http *h, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	const char *id = ww_http_header(r, "Mcp-Session-Id");
	if (!id)
		ww_http_reply_error(reply, 405, "without a session (Mcp-Session-Id) there is only POST here");
	else if (!has_session(h, id))
		ww_http_reply_error(reply, 404, "%s", no_session);
	else
		return id;
	return NULL;
}

/* 0: the session is gone, or has a stream already. */
static int set_stream(struct ww_mcp_http *h, const char *id, int open)
{
	WW_LOCKED(&h->lock);
	struct session *s = find_session(h, id);
	int good = s && s->has_stream != open;
	if (good)
		s->has_stream = open;
	return good;
}

/* A stream without events; it ends with its session. */
static void on_get(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	struct ww_mcp_http *h = ctx;
	const char *id = session_of(h, r, reply);
	if (!id)
		return;
	if (!accepts(r, events)) {
		ww_http_reply_error(reply, 406, "this is a text/event-stream");
		return;
	}
	if (!set_stream(h, id, 1)) {
		ww_http_reply_error(reply, 409, "this session has a stream already");
		return;
	}
	ww_http_reply_begin(reply, 200, events, event_headers);
	while (!ww_http_reply_gone(reply) && !ww_http_reply_stopping(reply) && has_session(h, id))
		nanosleep(&(struct timespec){ .tv_nsec = (long)(LOOK_S * 1e9) }, NULL);
	(void)set_stream(h, id, 0);
	ww_http_reply_end(reply);
}

static void on_delete(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	const char *id = session_of(ctx, r, reply);
	if (id && end_session(ctx, id))
		ww_http_reply_all(reply, 204, NULL, NULL, "", 0);
	else if (id)
		ww_http_reply_error(reply, 404, "%s", no_session);
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

struct ww_mcp_http *ww_mcp_http_new(struct ww_mcp *m)
{
	struct ww_mcp_http *h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->m = m;
	pthread_mutex_init(&h->lock, NULL);
	return h;
}

void ww_mcp_http_routes(struct ww_mcp_http *h, struct ww_http_route out[WW_MCP_HTTP_ROUTES])
{
	out[0] = (struct ww_http_route){ .method = "POST", .path = "/mcp", .handle = on_post, .ctx = h };
	out[1] = (struct ww_http_route){ .method = "GET", .path = "/mcp", .handle = on_get, .ctx = h };
	out[2] = (struct ww_http_route){ .method = "DELETE", .path = "/mcp", .handle = on_delete, .ctx = h };
}

void ww_mcp_http_free(struct ww_mcp_http *h)
{
	if (!h)
		return;
	while (h->sessions)
		session_free(h, h->sessions);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
