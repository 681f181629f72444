/* http.c - the server: listening, the loop, its end.
 *
 * One thread waits for sockets (epoll) and for word from other threads (an eventfd: some channel has something to send) and
 * looks at all time limits four times a second; a few hundred connections need no timer structure.  Handlers are called in it,
 * so two of them never run at once, and what takes time is their business to hand over.
 *
 * Rejected: libwebsockets, which would give all this without writing it.  In the version that Debian has (4.1.6, by its source) a
 * connection whose answer is still awaited is not read, so a client that leaves is not noticed and its work goes on; the
 * limit on a body starts again with each piece of it; chunked bodies are not understood; close-on-exec is set after a socket
 * is accepted, in a process that starts sandboxes for hostile programs meanwhile; and it is linked to OpenSSL, which a
 * distribution of ours would have to carry for nothing.  What is written here instead is a parser without state (http_parse.c, fuzzed), a
 * connection (http_conn.c) and this file.
 */
#include "serve/http_internal.h"

#include "base/time.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SCAN_MS = 250, EVENTS = 64, DEFAULT_CONNECTIONS = 256 };

/* ---- Beginning ----------------------------------------------------------------------------------------------------- */

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
	if (!make_address(h->host, h->o.port, &a, &n))
		return ww_err_set(err, WW_ERR_USAGE, "\"%s\" is no address to listen on (127.0.0.1, ::1, 0.0.0.0, ...)", h->host);
	h->listen_fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (h->listen_fd < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot make a socket");
	setsockopt(h->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(h->listen_fd, (struct sockaddr *)&a, n) || listen(h->listen_fd, 128)) {
		if (errno == EADDRINUSE)
			return ww_err_set(err, WW_ERR_SYSTEM, "port %d of %s is in use; choose another with --port", h->o.port, h->host);
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot listen on port %d of %s", h->o.port, h->host);
	}
	n = sizeof(a);
	if (getsockname(h->listen_fd, (struct sockaddr *)&a, &n))
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot tell the port");
	h->port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
	return WW_OK;
}

static enum ww_rc make_loop(struct ww_http *h, struct ww_err *err)
{
	struct epoll_event wake = { .events = EPOLLIN, .data.ptr = &h->wake_fd }, clients = { .events = EPOLLIN, .data.ptr = &h->listen_fd };
	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	h->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (h->epoll_fd < 0 || h->wake_fd < 0 || epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->wake_fd, &wake) ||
	    epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->listen_fd, &clients))
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot make an event loop");
	h->listens = 1;
	return WW_OK;
}

enum ww_rc ww_http_open(struct ww_http **out, const struct ww_http_opts *o, struct ww_err *err)
{
	struct ww_http *h = calloc(1, sizeof(*h));
	enum ww_rc rc;
	*out = NULL;
	if (!h)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for a server");
	h->o = *o;
	h->listen_fd = h->epoll_fd = h->wake_fd = -1;
	h->refs = 1;
	if (!h->o.max_connections)
		h->o.max_connections = DEFAULT_CONNECTIONS;
	pthread_mutex_init(&h->lock, NULL);
	snprintf(h->host, sizeof(h->host), "%s", o->host ? o->host : "127.0.0.1");
	if (!ww_http_is_loopback(h->host) && (!o->token || strlen(o->token) < 16))
		WW_TRY(ww_err_set(err, WW_ERR_USAGE, "others can reach %s, so clients must show a token of at least 16 characters: "
				  "put one into WARPWRIGHT_TOKEN, or name a file that holds it by --token-file", h->host));
	WW_TRY(listen_on(h, err));
	WW_TRY(make_loop(h, err));
	*out = h;
	return WW_OK;
out:
	ww_http_close(h);
	return rc;
}

int ww_http_port(const struct ww_http *h)
{
	return h->port;
}

/* ---- The loop ------------------------------------------------------------------------------------------------------ */

void ww_http_wake(struct ww_http *h)
{
	uint64_t one = 1;
	ssize_t ignored = write(h->wake_fd, &one, sizeof(one));
	(void)ignored;		/* full: it is awake */
}

static void listen_again(struct ww_http *h, int yes)
{
	struct epoll_event e = { .events = yes ? EPOLLIN : 0, .data.ptr = &h->listen_fd };
	if (h->listens != yes && h->listen_fd >= 0)
		epoll_ctl(h->epoll_fd, EPOLL_CTL_MOD, h->listen_fd, &e);
	h->listens = yes;
}

/* The kept connection that has been silent for longest makes room; 0: all of them are at work. */
static int make_room(struct ww_http *h)
{
	struct ww_http_conn *idle = NULL;
	for (struct ww_http_conn *c = h->conns; c; c = c->next)
		if (c->state == WW_HTTP_READS_HEAD && !c->in.len && (!idle || c->since_ns < idle->since_ns))
			idle = c;
	if (idle)
		ww_http_conn_close(idle);
	return idle != NULL;
}

static void accept_some(struct ww_http *h)
{
	int one = 1;
	while (h->n_conns < h->o.max_connections || make_room(h)) {
		int fd = accept4(h->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED))
			return;
		if (fd < 0)
			break;		/* out of descriptors: those who wait are looked at again soon */
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		ww_http_conn_accept(h, fd);
	}
	listen_again(h, 0);
}

static void take_word(struct ww_http *h)
{
	uint64_t n;
	ssize_t ignored = read(h->wake_fd, &n, sizeof(n));
	(void)ignored;
	pthread_mutex_lock(&h->lock);
	struct ww_http_channel *ch = h->dirty;
	h->dirty = NULL;
	pthread_mutex_unlock(&h->lock);
	while (ch) {
		pthread_mutex_lock(&h->lock);
		struct ww_http_channel *next = ch->next_dirty;
		ch->dirty = 0;
		pthread_mutex_unlock(&h->lock);
		if (ch->conn)
			ww_http_conn_kick(ch->conn);
		ww_http_channel_unref(ch);
		ch = next;
	}
}

static void scan(struct ww_http *h)
{
	uint64_t now = ww_now_ns();
	if (now - h->scanned_ns < SCAN_MS * 1000000ull)
		return;
	h->scanned_ns = now;
	for (struct ww_http_conn *c = h->conns, *next; c; c = next) {
		next = c->next;
		ww_http_conn_scan(c, now);
	}
	listen_again(h, h->n_conns < h->o.max_connections);
}

static void bury(struct ww_http *h)
{
	while (h->dead) {
		struct ww_http_conn *c = h->dead;
		h->dead = c->next;
		ww_http_conn_free(c);
	}
}

static void begin_stop(struct ww_http *h)
{
	h->stopping = 1;
	close(h->listen_fd);
	h->listen_fd = -1;
	h->scanned_ns = 0;	/* close who waits for nothing */
	if (h->o.on_stop)
		h->o.on_stop(h->o.ctx);
}

enum ww_rc ww_http_serve(struct ww_http *h, const volatile int *stop, struct ww_err *err)
{
	struct epoll_event events[EVENTS];
	for (;;) {
		if (*stop > 1 || (h->stopping && !h->conns))
			return WW_OK;
		if (*stop && !h->stopping)
			begin_stop(h);
		int n = epoll_wait(h->epoll_fd, events, EVENTS, SCAN_MS);
		if (n < 0 && errno != EINTR)
			return ww_err_errno(err, WW_ERR_SYSTEM, "cannot wait for clients");
		for (int i = 0; i < n; i++) {
			void *p = events[i].data.ptr;
			if (p == &h->wake_fd)
				take_word(h);
			else if (p == &h->listen_fd)
				accept_some(h);
			else
				ww_http_conn_event(p, events[i].events);
		}
		scan(h);
		bury(h);
	}
}

/* ---- Its end ------------------------------------------------------------------------------------------------------- */

void ww_http_unref(struct ww_http *h)
{
	pthread_mutex_lock(&h->lock);
	int left = --h->refs;
	pthread_mutex_unlock(&h->lock);
	if (left)
		return;
	if (h->wake_fd >= 0)
		close(h->wake_fd);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

void ww_http_close(struct ww_http *h)
{
	if (!h)
		return;
	while (h->conns)
		ww_http_conn_close(h->conns);
	bury(h);
	if (h->wake_fd >= 0)
		take_word(h);
	if (h->listen_fd >= 0)
		close(h->listen_fd);
	if (h->epoll_fd >= 0)
		close(h->epoll_fd);
	h->listen_fd = h->epoll_fd = -1;
	ww_http_unref(h);
}
