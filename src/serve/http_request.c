/* http_request.c - a request in, as libmicrohttpd calls for it in the connection's thread.
 *
 *     IDLE ──▶ HEAD ──▶ BODY ──▶ ANSWERS ──▶ SENDS ──▶ IDLE          or HEAD ──▶ ANSWERS: a WebSocket
 */
#include "serve/http_internal.h"

#include "base/lock.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_BODIES_BYTES = 256 << 20, REUSED_BODY_BYTES = 16 << 10 };
static const double BODY_BYTES_PER_S = 65536;

/* ---- Connections ------------------------------------------------------------------------------------------------- */

void ww_http_set_state(struct ww_http_reply *x, enum ww_http_state state, double limit_s)
{
	uint64_t now = ww_now_ns();
	x->since_ns = now;
	x->until_ns = limit_s > 0 ? now + (uint64_t)(limit_s * 1e9) : UINT64_MAX;
	x->state = (int)state;
}

static void set_idle(struct ww_http_reply *x)
{
	ww_http_set_state(x, WW_HTTP_IDLE, ww_http_limit(x->h->o.silent_s, 30));
}

static void *client_new(struct ww_http *h, struct MHD_Connection *mc)
{
	struct ww_http_reply *x = calloc(1, sizeof(*x));
	if (!x)
		return NULL; /* its requests are refused */
	x->h = h;
	x->mc = mc;
	x->fd = h->mhd->get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	set_idle(x);
	ww_str_init(&x->body, 0);
	WW_LOCKED(&h->lock);
	x->next = h->clients;
	x->at = &h->clients;
	if (x->next)
		x->next->at = &x->next;
	h->clients = x;
	return x;
}

static void client_free(struct ww_http *h, struct ww_http_reply *x)
{
	pthread_mutex_lock(&h->lock);
	h->n_clients--;
	if (x) {
		*x->at = x->next;
		if (x->next)
			x->next->at = x->at;
	}
	pthread_mutex_unlock(&h->lock);
	if (x)
		ww_str_release(&x->body);
	free(x);
	ww_http_wake(h);
}

void ww_http_client_change(
	void *server, struct MHD_Connection *mc, void **client, enum MHD_ConnectionNotificationCode what)
{
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		*client = client_new(server, mc);
	else
		client_free(server, *client);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

void *ww_http_request_new(void *server, const char *uri, struct MHD_Connection *mc)
{
	struct ww_http *h = server;
	struct ww_http_reply *x = h->mhd->get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
	char *copy = strdup(uri);
	if (!copy || !x) {
		free(copy);
		return NULL;
	}
	x->uri = copy;
	x->route = NULL;
	x->session = NULL;
	x->too_long = x->answered = x->streams = 0;
	x->lost = 0;
	ww_http_set_state(x, WW_HTTP_HEAD, ww_http_limit(h->o.head_s, 60));
	return x;
}

/* A short body's memory is used again for the connection's next one. */
static void drop_body(struct ww_http_reply *x)
{
	x->h->body_bytes -= x->body.len;
	if (x->body.cap > REUSED_BODY_BYTES)
		ww_str_release(&x->body);
	else
		ww_str_reset(&x->body);
}

void ww_http_request_end(void *server, struct MHD_Connection *mc, void **request, enum MHD_RequestTerminationCode why)
{
	struct ww_http_reply *x = *request;
	if (!x)
		return;
	if (x->session) /* the handshake did not get out */
		x->route->ws->run(x->session, NULL);
	drop_body(x);
	free(x->uri);
	x->uri = NULL;
	set_idle(x);
	*request = NULL;
}

/* libmicrohttpd 0.9.75 ends a value at a NUL, which would hide what follows it from the checks.  It parses in place, so
 * between a value and the next header's name (NULL: the head's end) its buffer holds the end of a line and nothing
 * else, unless the value was folded and copied. */
static int is_hidden(const struct ww_http_reply *x, const char *next)
{
	const char *value = x->r.n_headers ? x->headers[x->r.n_headers - 1].value : NULL;
	const char *p = value && *value ? value + strlen(value) : next;
	if (!next)
		return p && p[1];
	if (p > next || next - p > WW_HTTP_MAX_HEAD_BYTES)
		return 0;
	while (p < next && (!*p || strchr(" \t\r\n", *p)))
		p++;
	return p < next;
}

/* RFC 9110, 5.6.2.  "Transfer-Encoding : chunked" is none of ours, but may be a proxy's. */
static int is_name(const char *name, size_t n)
{
	static const char marks[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	return n && strspn(name, marks) == n;
}

static enum MHD_Result add_header(
	void *request, enum MHD_ValueKind kind, const char *name, size_t name_n, const char *value, size_t value_n)
{
	struct ww_http_reply *x = request;
	if (x->r.n_headers == WW_HTTP_MAX_HEADERS)
		x->too_long = 431;
	else if (!is_name(name, name_n) || (value && strlen(value) != value_n) || is_hidden(x, name))
		x->too_long = 400;
	if (x->too_long)
		return MHD_NO;
	x->headers[x->r.n_headers++] = (struct ww_http_header){ name, value ? value : "" };
	return MHD_YES;
}

static int path_fits(const char *pattern, const char *path)
{
	size_t n = strlen(pattern);
	return n && pattern[n - 1] == '*' ? !strncmp(pattern, path, n - 1) : !strcmp(pattern, path);
}

static int method_fits(const struct ww_http_route *route, const char *method)
{
	return !strcmp(route->method, method) || (!strcmp(route->method, "GET") && !strcmp(method, "HEAD") && !route->ws);
}

/* The route, else the status that says why there is none. */
static int find_route(struct ww_http_reply *x)
{
	const struct ww_http_opts *o = &x->h->o;
	int status = 404;
	for (size_t i = 0; i < o->n_routes && !x->route; i++)
		if (path_fits(o->routes[i].path, x->r.path)) {
			status = 405;
			if (method_fits(&o->routes[i], x->r.method))
				x->route = &o->routes[i];
		}
	return x->route ? 0 : status;
}

static size_t body_limit(const struct ww_http_reply *x)
{
	size_t limit = x->route->max_body_bytes ? x->route->max_body_bytes : x->h->o.max_body_bytes;
	return limit ? limit : (size_t)16 << 20;
}

static int body_is_longer(const struct ww_http_reply *x)
{
	const char *length = ww_http_header(&x->r, "Content-Length");
	return length && strtoull(length, NULL, 10) > body_limit(x); /* one beyond 2^64 is ULLONG_MAX */
}

static int count(const struct ww_http_reply *x, const char *name)
{
	int n = 0;
	for (size_t i = 0; i < x->r.n_headers; i++)
		n += !strcasecmp(x->headers[i].name, name);
	return n;
}

/* Two readers of a request (a proxy and this server) must not see two different ones; libmicrohttpd takes the first of
 * several lengths, hosts and origins. */
static int check_framing(struct ww_http_reply *x, const char **why)
{
	const char *coding = ww_http_header(&x->r, "Transfer-Encoding");
	*why = "the request gives its length, its Host or its Origin twice";
	if (count(x, "Host") > 1 || count(x, "Origin") > 1 ||
		count(x, "Content-Length") + count(x, "Transfer-Encoding") > 1)
		return 400;
	*why = "the only transfer coding that is understood is chunked";
	return coding && strcasecmp(coding, "chunked") ? 501 : 0;
}

/* The status to refuse a head with, and why; 0: go on. */
static int check(struct ww_http_reply *x, const char **why)
{
	struct ww_http *h = x->h;
	*why = x->too_long == 431 ? "there are more than 100 headers"
							  : "a header's name is not valid, or its value holds a NUL";
	if (x->too_long)
		return x->too_long;
	int status = check_framing(x, why);
	if (status)
		return status;
	*why = "the server is shutting down";
	if (h->stopping)
		return 503;
	status = find_route(x);
	int refused = ww_http_admit(
		&x->r, h->host, x->route && x->route->flags & WW_HTTP_NO_TOKEN ? NULL : h->o.token, why);
	if (refused)
		return refused;
	*why = status == 404 ? "there is nothing at this path" : "this path does not take this method";
	if (status)
		return status;
	*why = "the body is longer than this path takes";
	return body_is_longer(x) ? 413 : 0;
}

static enum MHD_Result refuse(struct ww_http_reply *x, int status, const char *why)
{
	ww_http_reply_error(x, status, "%s", why);
	return x->lost ? MHD_NO : MHD_YES;
}

/* A path that there is not: the answer names those that there are. */
static enum MHD_Result refuse_path(struct ww_http_reply *x, const char *why)
{
	const struct ww_http_opts *o = &x->h->o;
	ww_auto_str paths = WW_STR_INIT(2048);
	for (size_t i = 0; i < o->n_routes; i++)
		ww_str_addf(&paths, "%s%s %s", i ? ", " : "", o->routes[i].method, o->routes[i].path);
	ww_http_reply_error(x, 404, "%s; there are %s", why, paths.p ? paths.p : "none");
	return x->lost ? MHD_NO : MHD_YES;
}

static enum MHD_Result begin(struct ww_http_reply *x, const char *method, const char *version)
{
	const char *why;
	char *query = strchr(x->uri, '?');
	if (query)
		*query++ = 0;
	x->http_1_0 = !strcmp(version, "HTTP/1.0");
	x->r = (struct ww_http_request){
		.method = method, .path = x->uri, .query = query ? query : "", .headers = x->headers
	};
	x->h->mhd->get_connection_values_n(x->mc, MHD_HEADER_KIND, add_header, x);
	if (!x->too_long && is_hidden(x, NULL))
		x->too_long = 400;
	int status = check(x, &why);
	if (status)
		return status == 404 ? refuse_path(x, why) : refuse(x, status, why);
	if (x->route->ws) {
		enum ww_http_handshake shaken = ww_http_ws_open(x);
		return shaken == WW_HTTP_UPGRADED ? MHD_YES
			: shaken == WW_HTTP_FULL      ? refuse(x, 503, "there is no room for another session now")
										  : refuse(x, 426, "this path speaks WebSocket, version 13");
	}
	x->body.max = body_limit(x);
	x->body_ns = ww_now_ns();
	ww_http_set_state(x, WW_HTTP_BODY, ww_http_limit(x->h->o.body_s, 20));
	return MHD_YES;
}

static void take_body(struct ww_http_reply *x, const char *bytes, size_t n)
{
	const struct ww_http_opts *o = &x->h->o;
	size_t before = x->body.len;
	if (x->h->body_bytes + n > MAX_BODIES_BYTES || before + n > x->body.max)
		x->too_long = 413;
	if (!x->too_long)
		ww_str_add(&x->body, bytes, n);
	x->h->body_bytes += x->body.len - before;
	double silent_s = ww_http_limit(o->silent_s, 30),
		   left_s = ww_http_limit(o->body_s, 20) + (double)x->body.len / BODY_BYTES_PER_S -
		ww_seconds_since(x->body_ns);
	ww_http_set_state(x, WW_HTTP_BODY, left_s < 1e-9 ? 1e-9 : left_s < silent_s ? left_s : silent_s);
}

static enum MHD_Result call_handler(struct ww_http_reply *x)
{
	if (x->too_long)
		return refuse(x, 413, "the body is longer than this path takes, or the server holds too many bodies now");
	ww_http_set_state(x, WW_HTTP_ANSWERS, 0);
	x->r.body = x->body.p;
	x->r.body_bytes = x->body.len;
	x->route->handle(x->route->ctx, &x->r, x);
	drop_body(x);
	return x->answered && !x->streams && !x->lost ? MHD_YES : MHD_NO;
}

enum MHD_Result ww_http_request_go(void *server, struct MHD_Connection *mc, const char *url, const char *method,
	const char *version, const char *upload, size_t *upload_bytes, void **request)
{
	struct ww_http_reply *x = *request;
	if (!x)
		return MHD_NO;
	if (x->state == WW_HTTP_HEAD)
		return begin(x, method, version);
	if (x->state != WW_HTTP_BODY)
		return MHD_YES;
	if (!*upload_bytes)
		return call_handler(x);
	take_body(x, upload, *upload_bytes);
	*upload_bytes = 0;
	return MHD_YES;
}
