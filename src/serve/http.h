/* http.h - an HTTP/1.1 and WebSocket server: one thread a connection, handlers that block.
 *
 * A table of routes says which function gets a request.  It is called in the connection's thread with the whole
 * request, may block, and answers before it returns: in one piece (ww_http_reply_all) or in several
 * (ww_http_reply_begin, _write, _end: server-sent events).  A handler that takes long asks ww_http_reply_gone() a few
 * times a second whether its client is still connected.
 *
 * What protects the process: a bearer token where one is set, Host and Origin checks against pages of other sites (DNS
 * rebinding), sizes of head, body and message, time limits for each, a bound on connections.  There is no TLS: beyond
 * the machine this belongs behind a proxy or a tunnel.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>

struct ww_http;
struct ww_http_reply;
struct ww_http_ws;

enum { WW_HTTP_MAX_HEAD_BYTES = 16 << 10, WW_HTTP_MAX_HEADERS = 100 };

struct ww_http_header {
	const char *name, *value;
};

/* Lives until the handler returns. */
struct ww_http_request {
	const char *method, *path, *query; /* path as it was sent, without the query; query "" where there is none */
	const struct ww_http_header *headers;
	size_t n_headers;
	const char *body; /* a NUL follows */
	size_t body_bytes;
};
/* The first header of that name (in any case), NULL where there is none. */
const char *ww_http_header(const struct ww_http_request *r, const char *name);

typedef void ww_http_handler(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply);

/* A WebSocket route; both are called in the connection's thread. */
struct ww_http_ws_ops {
	/* A client connects: its session, or NULL: no room (503). */
	void *(*open)(void *ctx, const struct ww_http_request *r);
	/* The whole conversation; ws is gone when it returns.  NULL: the client left before it began.  Frees the session.
	 */
	void (*run)(void *session, struct ww_http_ws *ws);
};

enum { WW_HTTP_NO_TOKEN = 1 }; /* flag: asks for no token */
struct ww_http_route {
	const char *method, *path; /* a path that ends with '*' stands for all that begin so */
	ww_http_handler *handle;
	const struct ww_http_ws_ops *ws; /* instead of handle */
	void *ctx;
	unsigned flags;
	size_t max_body_bytes; /* 0: ww_http_opts' */
};

struct ww_http_opts {
	const char *host;  /* numeric address; NULL: 127.0.0.1 */
	int port;          /* 0: any that is free */
	const char *token; /* NULL: none is asked for; needed where host is not a loopback address */
	const struct ww_http_route *routes;
	size_t n_routes;
	size_t max_body_bytes, max_message_bytes; /* 0: 16 MiB */
	int max_connections;                      /* 0: 256 */
	/* Seconds.  head: from a request's first line to a whole head (0: 60); body: for all of it (0: 20, and one more for
	 * each 64 KiB); silent: without a request, without a byte of a body, or without taking a byte of an answer (0: 30).
	 */
	double head_s, body_s, silent_s;
	/* Once, in the thread of ww_http_serve(), when the server is told to stop. */
	void (*on_stop)(void *ctx);
	void *ctx;
};

/* Bind and listen.  WW_ERR_USAGE: a host that is no address, or one that needs a token; WW_ERR_SYSTEM: the port is
 * taken. */
enum ww_rc ww_http_open(struct ww_http **out, const struct ww_http_opts *o, struct ww_err *err) WW_MUST_CHECK;
int ww_http_port(const struct ww_http *h);
/* Accepts connections and watches their time limits.  *stop = 1: accept nothing more, finish what is being answered,
 * then return; 2: return now. */
enum ww_rc ww_http_serve(struct ww_http *h, const volatile int *stop, struct ww_err *err) WW_MUST_CHECK;
/* Have ww_http_serve() look at *stop now. */
void ww_http_wake(struct ww_http *h);
/* Tells all handlers that the server ends (ww_http_reply_gone), waits until they have returned, closes and frees. */
void ww_http_close(struct ww_http *h);
/* Open connections, and requests by route and status, in Prometheus' text form (serve/metrics.h).  Any thread. */
void ww_http_metrics(struct ww_http *h, struct ww_str *out);

/* ---- Answers: the connection's thread, except where more is said */

/* The whole answer, with a Content-Length.  `headers`: further lines "Name: value\r\n", or NULL. */
void ww_http_reply_all(
	struct ww_http_reply *h, int status, const char *content_type, const char *headers, const void *bytes, size_t n);
/* An error as JSON: {"error": {"message", "type", "code": status}}. */
void ww_http_reply_error(struct ww_http_reply *h, int status, const char *fmt, ...) WW_PRINTF(3, 4);

/* An answer in pieces, each of which is sent at once; the connection ends with it.  One thread at a time.  0: the
 * client has left, or has taken nothing for too long. */
int ww_http_reply_begin(struct ww_http_reply *h, int status, const char *content_type, const char *headers);
int ww_http_reply_write(struct ww_http_reply *h, const void *bytes, size_t n);
void ww_http_reply_end(struct ww_http_reply *h);

/* Has the client closed its connection, or does the server end at once?  Then the answer is in vain. */
enum ww_http_gone { WW_HTTP_WAITS, WW_HTTP_LEFT, WW_HTTP_ENDS };
enum ww_http_gone ww_http_reply_gone(struct ww_http_reply *h);
/* The server was told to stop: streams that would go on without end should end now. */
int ww_http_reply_stopping(struct ww_http_reply *h);

/* ---- WebSockets: the connection's thread */

/* The next text message, which the caller frees; a NUL follows.  NULL: the client has closed, or the server stops. */
char *ww_http_ws_next(struct ww_http_ws *ws, size_t *n);
/* To be called a few times a second while a message is worked on: answers pings, takes in further messages.  0: the
 * client is gone, or the server ends at once. */
int ww_http_ws_alive(struct ww_http_ws *ws);
/* A text message; waits while the client takes bytes.  0: it is gone. */
int ww_http_ws_send(struct ww_http_ws *ws, const char *text, size_t n);
/* With which code the socket is closed when run() returns: 1000 done; otherwise 1001, going away. */
void ww_http_ws_close(struct ww_http_ws *ws, int code);
