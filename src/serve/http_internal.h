/* http_internal.h - what the files of the HTTP server share: http.c (listening, limits, the end), http_request.c
 * (requests, in libmicrohttpd's terms), http_reply.c (answers), http_ws.c (WebSockets, over wslay). */
#pragma once

#include "serve/http_guard.h"
#include "serve/mhd.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* IDLE: no request; HEAD, BODY: one is being read; ANSWERS: its handler runs; SENDS: libmicrohttpd has the answer. */
enum ww_http_state { WW_HTTP_IDLE, WW_HTTP_HEAD, WW_HTTP_BODY, WW_HTTP_ANSWERS, WW_HTTP_SENDS };

/* A connection and its request. */
struct ww_http_reply {
	struct ww_http *h;
	struct MHD_Connection *mc;
	int fd;
	/* Written by the connection's thread, read by the watching one. */
	atomic_int state;
	_Atomic uint64_t since_ns, until_ns; /* when the state began, for a body its last byte; when it is too late */
	struct ww_http_reply *next, **at;    /* under h->lock, as shut */
	int shut;                            /* it was ended by us */
	/* The connection's thread alone. */
	uint64_t body_ns; /* the head was whole */
	char *uri;
	const struct ww_http_route *route;
	struct ww_http_request r;
	int http_1_0, too_long;
	int answered, streams; /* streams: the answer was written to the socket here */
	atomic_int lost;       /* the client has left, or takes nothing any more */
	void *session;         /* of a WebSocket, until it runs */
	struct ww_str body;
	struct ww_http_header headers[WW_HTTP_MAX_HEADERS];
};

struct ww_http_count {
	const struct ww_http_route *route; /* NULL: none fits */
	int status;
	uint64_t n;
};

struct ww_http {
	struct ww_http_opts o;
	const struct ww_mhd *mhd;
	struct MHD_Daemon *daemon;
	char host[64];
	int port, listen_fd, wake_fd;
	atomic_int stopping, ending; /* ending: handlers are to return */
	atomic_size_t body_bytes;    /* of requests that are being read or answered */
	pthread_mutex_t lock;        /* what follows */
	struct ww_http_reply *clients;
	int n_clients;
	struct ww_http_count *counts;
	size_t n_counts, cap_counts;
};

/* ---- http.c */
double ww_http_limit(double given, double otherwise);
void ww_http_count(struct ww_http_reply *x, int status);

/* ---- http_request.c: callbacks of libmicrohttpd */
void ww_http_set_state(struct ww_http_reply *x, enum ww_http_state state, double limit_s); /* limit_s 0: none */
void *ww_http_request_new(void *server, const char *uri, struct MHD_Connection *mc);
enum MHD_Result ww_http_request_go(void *server, struct MHD_Connection *mc, const char *url, const char *method,
	const char *version, const char *upload, size_t *upload_bytes, void **request);
void ww_http_request_end(void *server, struct MHD_Connection *mc, void **request, enum MHD_RequestTerminationCode why);
void ww_http_client_change(
	void *server, struct MHD_Connection *mc, void **client, enum MHD_ConnectionNotificationCode what);

/* ---- http_reply.c */
/* Wait for POLLIN or POLLOUT on the socket, for at most so many seconds.  0: they are over, or the server ends. */
int ww_http_await(struct ww_http_reply *x, short events, double seconds);
/* Shut the sending half down and discard what still comes, for a second at most: closing a socket with unread bytes
 * resets the connection, and the client may lose the end of the answer. */
void ww_http_linger(struct ww_http_reply *x);

/* ---- http_ws.c */
enum ww_http_handshake { WW_HTTP_UPGRADED, WW_HTTP_NO_HANDSHAKE, WW_HTTP_FULL };
enum ww_http_handshake ww_http_ws_open(struct ww_http_reply *x);
