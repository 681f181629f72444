/* http.c - the server: listening, accepting, time limits, shutting down.
 *
 * GNU libmicrohttpd parses HTTP, with one thread a connection; wslay does the frames of WebSockets.  Ours are routes,
 * access checks and limits.  The thread of ww_http_serve() accepts connections and checks the time limits of all of
 * them four times a second.  It ends a connection that is too slow by shutting its socket down; the connection's thread
 * then reads the end and cleans up.  If all connections are taken and a client waits, the connection that has been
 * silent for longest is ended, unless its request is being answered: idle and half-open connections cannot keep others
 * out.
 *
 * libmicrohttpd's own time-outs and listening are not used: in this mode version 0.9.75 spins for the last second of a
 * time-out, and closes new connections at once when all are taken.
 *
 * Rejected: one event loop with handlers that answer later (docs/design/serve.md); libwebsockets (4.1.6), whose loop
 * spins when a client sends ahead or leaves, which does not understand chunked bodies, and rewrites paths.
 */
#include "serve/http_internal.h"

#include "base/lock.h"
#include "base/time.h"
#include "serve/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WATCH_MS = 250, END_MS = 5, DEFAULT_CONNECTIONS = 256, SPARE_CONNECTIONS = 64, HEAPS = 80 };

double ww_http_limit(double given, double otherwise) { return given > 0 ? given : otherwise; }

/* ---- Beginning --------------------------------------------------------------------------------------------------- */

static int make_address(const char *host, int port, struct sockaddr_storage *a, socklen_t *n)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)a;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;
	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		*n = sizeof(*v4);
		return 1;
	}
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		*n = sizeof(*v6);
		return 1;
	}
	return 0;
}

static enum ww_rc listen_on(struct ww_http *h, struct ww_err *err)
{
	struct sockaddr_storage a;
	socklen_t n;
	int one = 1;
	WW_BUG(!make_address(h->host, h->o.port, &a, &n));
	h->listen_fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (h->listen_fd < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot make a socket");
	setsockopt(h->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(h->listen_fd, (struct sockaddr *)&a, n) || listen(h->listen_fd, 128)) {
		if (errno == EADDRINUSE)
			return ww_err_set(
				err, WW_ERR_SYSTEM, "port %d of %s is in use; choose another with --port", h->o.port, h->host);
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot listen on port %d of %s", h->o.port, h->host);
	}
	n = sizeof(a);
	if (getsockname(h->listen_fd, (struct sockaddr *)&a, &n))
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot tell the port");
	h->port = ntohs(
		a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
	return WW_OK;
}

static enum ww_rc start_daemon(struct ww_http *h, struct ww_err *err)
{
	h->daemon = h->mhd->start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
			MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_UPGRADE,
		0, NULL, NULL, ww_http_request_go, h, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)h->o.max_connections + SPARE_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)WW_HTTP_MAX_HEAD_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK,
		ww_http_request_new, h, MHD_OPTION_NOTIFY_COMPLETED, ww_http_request_end, h, MHD_OPTION_NOTIFY_CONNECTION,
		ww_http_client_change, h, MHD_OPTION_END);
	return h->daemon ? WW_OK
					 : ww_err_set(err, WW_ERR_SYSTEM, "libmicrohttpd cannot start on port %d of %s", h->port, h->host);
}

/* One heap for each connection at work.  glibc's default, eight a processor, makes threads wait for each other's heap,
 * and a thread that has waited is scheduled last (p99 of 5 to 14 ms in place of 3 to 5: bench/results/serve.md). */
static void set_heaps(void) { mallopt(M_ARENA_MAX, HEAPS); }

static enum ww_rc check_host(const struct ww_http *h, struct ww_err *err)
{
	struct sockaddr_storage a;
	socklen_t n;
	if (!make_address(h->host, 0, &a, &n))
		return ww_err_set(
			err, WW_ERR_USAGE, "\"%s\" is no address to listen on (127.0.0.1, ::1, 0.0.0.0, ...)", h->host);
	if (ww_http_is_loopback(h->host) || (h->o.token && strlen(h->o.token) >= 16))
		return WW_OK;
	return ww_err_set(err, WW_ERR_USAGE,
		"other machines can reach %s, so clients must show a token of at least 16 characters: "
		"put one into WARPWRIGHT_TOKEN, or name a file that holds it by --token-file",
		h->host);
}

enum ww_rc ww_http_open(struct ww_http **out, const struct ww_http_opts *o, struct ww_err *err)
{
	struct ww_http *h;
	enum ww_rc rc;
	*out = NULL;
	WW_CHECK(WW_NEW(h, 1, err));
	h->o = *o;
	h->listen_fd = h->wake_fd = -1;
	if (!h->o.max_connections)
		h->o.max_connections = DEFAULT_CONNECTIONS;
	pthread_mutex_init(&h->lock, NULL);
	snprintf(h->host, sizeof(h->host), "%s", o->host ? o->host : "127.0.0.1");
	WW_TRY(check_host(h, err));
	set_heaps();
	WW_TRY(ww_mhd_load(&h->mhd, err));
	WW_TRY(listen_on(h, err));
	WW_TRY(start_daemon(h, err));
	if ((h->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
		WW_TRY(ww_err_errno(err, WW_ERR_SYSTEM, "cannot make an eventfd"));
	*out = h;
	return WW_OK;
out:
	ww_http_close(h);
	return rc;
}

int ww_http_port(const struct ww_http *h) { return h->port; }

/* ---- Connections ------------------------------------------------------------------------------------------------- */

void ww_http_wake(struct ww_http *h)
{
	uint64_t one = 1;
	ssize_t ignored = write(h->wake_fd, &one, sizeof(one));
	(void)ignored; /* full: it is awake */
}

static int n_clients(struct ww_http *h)
{
	WW_LOCKED(&h->lock);
	return h->n_clients;
}

/* Under the lock. */
static void shut(struct ww_http_reply *x)
{
	if (!x->shut)
		shutdown(x->fd, SHUT_RDWR);
	x->shut = 1;
}

/* Under the lock: end the connection that has been silent for longest, of those whose request is not being answered. */
static void make_room(struct ww_http *h)
{
	struct ww_http_reply *idle = NULL;
	for (struct ww_http_reply *x = h->clients; x; x = x->next)
		if (!x->shut && x->state <= WW_HTTP_BODY && (!idle || x->since_ns < idle->since_ns))
			idle = x;
	if (idle)
		shut(idle);
}

/* 0: there is no room yet. */
static int accept_one(struct ww_http *h)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	int one = 1;
	pthread_mutex_lock(&h->lock);
	int room = h->n_clients < h->o.max_connections;
	if (!room)
		make_room(h);
	pthread_mutex_unlock(&h->lock);
	int fd = room ? accept4(h->listen_fd, (struct sockaddr *)&a, &n, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
	if (fd < 0)
		return 0;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* Counted from now on: libmicrohttpd's thread takes it up later. */
	pthread_mutex_lock(&h->lock);
	h->n_clients++;
	pthread_mutex_unlock(&h->lock);
	if (h->mhd->add_connection(h->daemon, fd, (struct sockaddr *)&a, n) == MHD_YES)
		return 1;
	pthread_mutex_lock(&h->lock);
	h->n_clients--;
	pthread_mutex_unlock(&h->lock);
	return 0;
}

/* Has it exceeded the time limit of its state? */
static int is_late(const struct ww_http *h, const struct ww_http_reply *x, uint64_t now_ns)
{
	int state = x->state;
	if (h->stopping && (state == WW_HTTP_IDLE || (state == WW_HTTP_HEAD && now_ns > x->since_ns + 1000000000u)))
		return 1;
	return now_ns > x->until_ns;
}

static void watch(struct ww_http *h)
{
	uint64_t now = ww_now_ns();
	WW_LOCKED(&h->lock);
	for (struct ww_http_reply *x = h->clients; x; x = x->next)
		if (is_late(h, x, now))
			shut(x);
}

static void begin_stop(struct ww_http *h)
{
	h->stopping = 1;
	close(h->listen_fd);
	h->listen_fd = -1;
	if (h->o.on_stop)
		h->o.on_stop(h->o.ctx);
}

/* Wait for a client, a wake-up or the next look at the limits; 1: a client is there. */
static int wait_for_client(struct ww_http *h, int listens, struct ww_err *err, enum ww_rc *rc)
{
	struct pollfd p[2] = { { h->wake_fd, POLLIN, 0 }, { listens ? h->listen_fd : -1, POLLIN, 0 } };
	uint64_t n;
	if (poll(p, 2, WATCH_MS) < 0 && errno != EINTR)
		*rc = ww_err_errno(err, WW_ERR_SYSTEM, "cannot wait for clients");
	ssize_t ignored = p[0].revents ? read(h->wake_fd, &n, sizeof(n)) : 0;
	(void)ignored;
	return p[1].revents != 0;
}

enum ww_rc ww_http_serve(struct ww_http *h, const volatile int *stop, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	uint64_t watched = ww_now_ns();
	int listens = 1;
	while (rc == WW_OK && *stop < 2 && !(h->stopping && !n_clients(h))) {
		if (*stop && !h->stopping) {
			begin_stop(h);
			watch(h);
		}
		/* A connection that ends wakes us; until then there is no room. */
		listens = !wait_for_client(h, listens, err, &rc) || accept_one(h);
		if (ww_seconds_since(watched) * 1000 < WATCH_MS)
			continue;
		watched = ww_now_ns();
		watch(h);
	}
	return rc;
}

static int end_clients(struct ww_http *h)
{
	WW_LOCKED(&h->lock);
	for (struct ww_http_reply *x = h->clients; x; x = x->next)
		shut(x);
	return h->clients != NULL;
}

void ww_http_close(struct ww_http *h)
{
	if (!h)
		return;
	h->stopping = h->ending = 1;
	while (end_clients(h)) /* libmicrohttpd cannot stop while a WebSocket is open */
		(void)poll(&(struct pollfd){ h->wake_fd, POLLIN, 0 }, 1, END_MS);
	if (h->daemon)
		h->mhd->stop_daemon(h->daemon);
	if (h->listen_fd >= 0)
		close(h->listen_fd);
	if (h->wake_fd >= 0)
		close(h->wake_fd);
	pthread_mutex_destroy(&h->lock);
	free(h->counts);
	free(h);
}

/* ---- Counters ---------------------------------------------------------------------------------------------------- */

/* Under the lock; NULL: out of memory. */
static struct ww_http_count *count_of(struct ww_http *h, const struct ww_http_route *route, int status)
{
	for (size_t i = 0; i < h->n_counts; i++)
		if (h->counts[i].route == route && h->counts[i].status == status)
			return &h->counts[i];
	if (!WW_GROW(h->counts, &h->cap_counts, h->n_counts + 1))
		return NULL;
	h->counts[h->n_counts] = (struct ww_http_count){ route, status, 0 };
	return &h->counts[h->n_counts++];
}

void ww_http_count(struct ww_http_reply *x, int status)
{
	WW_LOCKED(&x->h->lock);
	struct ww_http_count *c = count_of(x->h, x->route, status);
	if (c)
		c->n++;
}

void ww_http_metrics(struct ww_http *h, struct ww_str *out)
{
	WW_LOCKED(&h->lock);
	ww_metric(out, "http_connections", WW_GAUGE, "Open connections.", h->n_clients);
	ww_metric_head(out, "http_requests_total", WW_COUNTER, "Requests answered, by route and status.");
	for (size_t i = 0; i < h->n_counts; i++) {
		const struct ww_http_count *c = &h->counts[i];
		ww_str_addf(out, "warpwright_http_requests_total{method=\"%s\",path=\"%s\",status=\"%d\"} %llu\n",
			c->route ? c->route->method : "", c->route ? c->route->path : "other", c->status, (unsigned long long)c->n);
	}
}
