/* http_internal.h - what the files of the HTTP server share: http.c (the server), http_conn.c (connections), http_reply.c
 * (what other threads hold). */
#ifndef WW_SERVE_HTTP_INTERNAL_H
#define WW_SERVE_HTTP_INTERNAL_H

#include "serve/http_parse.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* What a connection and another thread have in common: bytes on their way to the client.  Two references, one of the
 * connection and one of whoever answers; `conn` belongs to the loop, everything else is under the lock. */
struct ww_http_channel {
	struct ww_http *h;
	struct ww_http_conn *conn;	/* NULL: it has closed */
	pthread_mutex_t lock;
	pthread_cond_t room;		/* the queue was taken, or nobody listens */
	struct ww_str queue;
	atomic_int refs;
	int gone, ended;
	void (*on_gone)(void *ctx);
	void *gone_ctx;
	int calling;			/* on_gone runs now */
	pthread_t caller;
	int dirty;			/* under the server's lock, as the next one */
	struct ww_http_channel *next_dirty;
};

struct ww_http_reply {
	struct ww_http_channel ch;	/* first */
	int minor, head_only, keep_alive;	/* of the request; keep_alive: what the answer may promise */
	int begun, chunked;
};
struct ww_http_ws { struct ww_http_channel ch; };

enum ww_http_state {
	WW_HTTP_READS_HEAD, WW_HTTP_READS_BODY, WW_HTTP_ANSWERS, WW_HTTP_IS_WS,
	WW_HTTP_LINGERS		/* said its last; what still comes in is thrown away, so that the client can read it */
};

struct ww_http_conn {
	struct ww_http *h;
	int fd, dead;
	unsigned events;		/* that epoll looks for */
	enum ww_http_state state;
	struct ww_str in, body, out;
	size_t out_at;			/* sent of `out` */
	uint64_t since_ns, heard_ns, sent_ns;	/* the state began; a byte came; a byte went or there was none to send */
	struct ww_http_head head;
	struct ww_http_chunks chunks;
	const struct ww_http_route *route;
	struct ww_http_channel *ch;	/* of the reply or the WebSocket */
	int keep_alive, read_all;	/* read_all: the request was taken whole */
	int message_opcode, pinged, closing;	/* of a WebSocket */
	void *session;
	struct ww_http_conn *next, **at;	/* in the server's list; `next` alone among the dead */
};

struct ww_http {
	struct ww_http_opts o;
	char host[64];
	int port, listen_fd, epoll_fd, wake_fd;
	int listens, stopping;		/* listens: epoll looks for clients */
	struct ww_http_conn *conns, *dead;
	int n_conns;
	size_t body_bytes;		/* of requests that are being read or answered */
	uint64_t scanned_ns;
	pthread_mutex_t lock;		/* what follows */
	struct ww_http_channel *dirty;
	int refs;
};

/* ---- http.c */
void ww_http_unref(struct ww_http *h);

/* ---- http_reply.c */
void ww_http_channel_init(struct ww_http_channel *ch, struct ww_http_conn *c);
void ww_http_channel_unref(struct ww_http_channel *ch);
/* The connection is no more: tell who waits. */
void ww_http_channel_lost(struct ww_http_channel *ch);
struct ww_http_reply *ww_http_reply_new(struct ww_http_conn *c, int keep_alive);

/* ---- http_conn.c */
void ww_http_conn_accept(struct ww_http *h, int fd);
void ww_http_conn_event(struct ww_http_conn *c, unsigned events);
void ww_http_conn_kick(struct ww_http_conn *c);		/* there is something in its channel */
void ww_http_conn_scan(struct ww_http_conn *c, uint64_t now_ns);	/* time limits */
void ww_http_conn_close(struct ww_http_conn *c);
void ww_http_conn_free(struct ww_http_conn *c);
double ww_http_limit(double given, double otherwise);

#endif
