/* http_conn.c - one connection: a request in, its answer out, the next one.
 *
 *     READS_HEAD ──▶ READS_BODY ──▶ ANSWERS ──▶ READS_HEAD (kept), or LINGERS, closed
 *          └──────────────────────────▶ IS_WS ──▶ LINGERS, closed
 *
 * All of it runs in the loop's thread.  What the client sends while its request is being answered is read only up to the size
 * of a head, and its end of file is looked for all the time: a client that goes away ends the work for it at once, and one that
 * sends ahead waits.  A connection that ends is read on for a second at most (LINGERS), because closing one that has
 * something unread would reset it and destroy the answer on its way.
 *
 * A closed connection is only marked and is freed at the end of the loop's round, since further events of the same round may
 * speak of it.
 */
#include "serve/http_internal.h"

#include "base/time.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, MAX_BODIES_BYTES = 256 << 20, MAX_LINGER_BYTES = 32 << 20, MAX_OWN_QUEUE = 1 << 20 };
static const double LINGER_S = 1, PING_S = 30, WS_DEAD_S = 90, BODY_BYTES_PER_S = 65536;

double ww_http_limit(double given, double otherwise)
{
	return given > 0 ? given : otherwise;
}

static size_t size_limit(size_t given)
{
	return given ? given : (size_t)16 << 20;
}

static void enter(struct ww_http_conn *c, enum ww_http_state state)
{
	c->state = state;
	c->since_ns = ww_now_ns();
}

static void drop_body(struct ww_http_conn *c)
{
	c->h->body_bytes -= c->body.len;
	ww_str_release(&c->body);
}

static void consume(struct ww_http_conn *c, size_t n)
{
	memmove(c->in.p, c->in.p + n, c->in.len - n);
	c->in.len -= n;
	if (c->in.cap)
		c->in.p[c->in.len] = 0;
	if (!c->in.len)
		ww_str_release(&c->in);
}

/* ---- The life of a connection ------------------------------------------------------------------------------------- */

void ww_http_conn_free(struct ww_http_conn *c)
{
	ww_str_release(&c->in);
	ww_str_release(&c->out);
	ww_http_head_release(&c->head);
	free(c);
}

static void leave_session(struct ww_http_conn *c)
{
	if (c->session)
		c->route->ws->closed(c->session);
	c->session = NULL;
}

void ww_http_conn_close(struct ww_http_conn *c)
{
	struct ww_http *h = c->h;
	if (c->dead)
		return;
	c->dead = 1;
	close(c->fd);
	drop_body(c);
	leave_session(c);
	if (c->ch)
		ww_http_channel_lost(c->ch);
	c->ch = NULL;
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	h->n_conns--;
	c->next = h->dead;
	h->dead = c;
}

void ww_http_conn_accept(struct ww_http *h, int fd)
{
	struct ww_http_conn *c = calloc(1, sizeof(*c));
	struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = c };
	if (!c || epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &e)) {
		close(fd);
		free(c);
		return;
	}
	c->h = h;
	c->fd = fd;
	c->events = e.events;
	ww_str_init(&c->in, READ_BYTES);
	ww_str_init(&c->body, 0);
	ww_str_init(&c->out, (size_t)256 << 20);
	enter(c, WW_HTTP_READS_HEAD);
	c->heard_ns = c->sent_ns = c->since_ns;
	c->next = h->conns;
	c->at = &h->conns;
	if (c->next)
		c->next->at = &c->next;
	h->conns = c;
	h->n_conns++;
}

/* What epoll is to look for: room to send where something waits, input where there is room for it. */
static void watch(struct ww_http_conn *c)
{
	size_t room = c->state == WW_HTTP_ANSWERS ? WW_HTTP_MAX_HEAD_BYTES : c->in.max;
	unsigned events = EPOLLRDHUP | (c->out.len > c->out_at ? EPOLLOUT : 0) | (c->in.len < room ? EPOLLIN : 0);
	struct epoll_event e = { .events = events, .data.ptr = c };
	if (c->dead || events == c->events)
		return;
	c->events = events;
	epoll_ctl(c->h->epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

/* ---- Sending ------------------------------------------------------------------------------------------------------- */

/* Take what the channel has queued; 1: that was the last of it. */
static int take_queue(struct ww_http_conn *c)
{
	struct ww_http_channel *ch = c->ch;
	pthread_mutex_lock(&ch->lock);
	if (!c->out.len)
		c->sent_ns = ww_now_ns();
	if (c->out.len) {
		ww_str_add(&c->out, ch->queue.p, ch->queue.len);
		ww_str_reset(&ch->queue);
	} else {
		struct ww_str empty = c->out;
		size_t max = c->out.max;
		c->out = ch->queue;
		c->out.max = max;
		empty.max = ch->queue.max;
		ch->queue = empty;
	}
	int ended = ch->ended;
	pthread_cond_broadcast(&ch->room);
	pthread_mutex_unlock(&ch->lock);
	return ended;
}

/* Send what there is.  1: all of it went. */
static int send_out(struct ww_http_conn *c)
{
	while (c->out_at < c->out.len) {
		ssize_t n = send(c->fd, c->out.p + c->out_at, c->out.len - c->out_at, MSG_NOSIGNAL);
		if (n > 0) {
			c->out_at += (size_t)n;
			c->sent_ns = ww_now_ns();
		} else if (n < 0 && errno == EINTR) {
			continue;
		} else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			return 0;
		} else {
			ww_http_conn_close(c);
			return 0;
		}
	}
	c->out_at = 0;
	if (c->out.cap > READ_BYTES)
		ww_str_release(&c->out);
	else
		ww_str_reset(&c->out);
	c->sent_ns = ww_now_ns();
	return 1;
}

static void linger(struct ww_http_conn *c)
{
	shutdown(c->fd, SHUT_WR);
	ww_str_release(&c->in);
	enter(c, WW_HTTP_LINGERS);
}

/* The answer is out. */
static void answered(struct ww_http_conn *c)
{
	int keep = c->keep_alive && c->read_all && !c->h->stopping && ((struct ww_http_reply *)c->ch)->keep_alive;
	ww_http_channel_lost(c->ch);
	c->ch = NULL;
	drop_body(c);
	ww_http_head_release(&c->head);
	enter(c, WW_HTTP_READS_HEAD);
	if (!keep)
		linger(c);
}

/* Send, and see whether what is being said has ended.  1: go on with what has come in. */
static int pump(struct ww_http_conn *c)
{
	for (;;) {
		int ended = c->ch && take_queue(c);
		int more = c->out_at < c->out.len;
		if (!send_out(c))
			return 0;
		if (ended && c->state == WW_HTTP_ANSWERS) {
			answered(c);
			return !c->dead && c->state == WW_HTTP_READS_HEAD;
		}
		if (ended && c->state == WW_HTTP_IS_WS) {
			linger(c);
			return 0;
		}
		if (!more)
			return c->state != WW_HTTP_ANSWERS;
	}
}

/* ---- Requests ------------------------------------------------------------------------------------------------------ */

static struct ww_http_reply *new_reply(struct ww_http_conn *c)
{
	struct ww_http_reply *r = ww_http_reply_new(c, c->keep_alive && c->read_all && !c->h->stopping);
	if (!r) {
		ww_http_conn_close(c);
		return NULL;
	}
	c->ch = &r->ch;
	enter(c, WW_HTTP_ANSWERS);
	return r;
}

static void refuse(struct ww_http_conn *c, int status, const char *why)
{
	c->keep_alive = c->keep_alive && c->read_all;
	struct ww_http_reply *r = new_reply(c);
	if (r)
		ww_http_reply_error(r, status, "%s", why);
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
static int find_route(struct ww_http_conn *c)
{
	const struct ww_http_opts *o = &c->h->o;
	int status = 404;
	c->route = NULL;
	for (size_t i = 0; i < o->n_routes && !c->route; i++)
		if (path_fits(o->routes[i].path, c->head.r.path)) {
			status = 405;
			if (method_fits(&o->routes[i], c->head.r.method))
				c->route = &o->routes[i];
		}
	return c->route ? 0 : status;
}

static void call_handler(struct ww_http_conn *c)
{
	c->read_all = 1;
	struct ww_http_reply *r = new_reply(c);
	if (!r)
		return;
	c->head.r.body = c->body.p;
	c->head.r.body_bytes = c->body.len;
	c->route->handle(c->route->ctx, &c->head.r, r);
	drop_body(c);
}

static void open_ws(struct ww_http_conn *c)
{
	char accept[29];
	const char *version = ww_http_header(&c->head.r, "Sec-WebSocket-Version");
	if (!c->head.upgrades || !version || strcmp(version, "13") || !ww_ws_accept(ww_http_header(&c->head.r, "Sec-WebSocket-Key"), accept)) {
		refuse(c, 426, "this path speaks WebSocket, version 13");
		return;
	}
	struct ww_http_ws *ws = calloc(1, sizeof(*ws));
	if (!ws) {
		ww_http_conn_close(c);
		return;
	}
	ww_http_channel_init(&ws->ch, c);
	ww_str_addf(&ws->ch.queue, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		    "Sec-WebSocket-Accept: %s\r\n\r\n", accept);
	c->session = c->route->ws->open(c->route->ctx, &c->head.r, ws);
	if (!c->session) {
		ww_http_channel_lost(&ws->ch);
		refuse(c, 503, "there is no room for another session now");
		return;
	}
	c->ch = &ws->ch;
	c->in.max = size_limit(c->h->o.max_message_bytes) + 14;
	ww_str_init(&c->body, size_limit(c->h->o.max_message_bytes));
	ww_http_head_release(&c->head);
	c->message_opcode = 0;
	enter(c, WW_HTTP_IS_WS);
}

static size_t body_limit(const struct ww_http_conn *c)
{
	return size_limit(c->route->max_body_bytes ? c->route->max_body_bytes : c->h->o.max_body_bytes);
}

/* A head is complete: refuse it, or begin with what it asks for. */
static void begin(struct ww_http_conn *c, int status)
{
	struct ww_http *h = c->h;
	struct ww_http_head *head = &c->head;
	const char *why = head->why;
	c->keep_alive = !status && head->keep_alive;
	c->read_all = !status && !head->chunked && !head->length;
	c->chunks = (struct ww_http_chunks){ 0 };
	if (!status && h->stopping) {
		status = 503;
		why = "the server is shutting down";
	}
	if (!status) {
		status = find_route(c);
		why = status == 404 ? "there is nothing here by that path" : "this path has no such method";
	}
	int refused = status == 503 ? 0 : status == 404 || status == 405 || !status ?
		ww_http_admit(&head->r, h->host, c->route && c->route->flags & WW_HTTP_NO_TOKEN ? NULL : h->o.token, &why) : 0;
	if (refused)
		status = refused;
	if (!status && (uint64_t)head->length > body_limit(c)) {
		status = 413;
		why = "the body is longer than this path takes";
	}
	if (status) {
		refuse(c, status, why);
		return;
	}
	if (c->route->ws) {
		open_ws(c);
		return;
	}
	ww_str_init(&c->body, body_limit(c));
	if (c->read_all) {
		call_handler(c);
		return;
	}
	if (head->expects_continue && !c->in.len)
		ww_str_adds(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
	enter(c, WW_HTTP_READS_BODY);
}

/* 1: something was done. */
static int read_head(struct ww_http_conn *c)
{
	while (c->in.len >= 2 && !memcmp(c->in.p, "\r\n", 2))
		consume(c, 2);		/* some clients end a body so */
	size_t n = ww_http_head_bytes(c->in.p, c->in.len);
	if (!n && c->in.len < WW_HTTP_MAX_HEAD_BYTES)
		return 0;
	if (!n || n > WW_HTTP_MAX_HEAD_BYTES) {
		memset(&c->head, 0, sizeof(c->head));
		c->head.minor = 1;
		c->head.why = "the head is longer than 32 KiB";
		ww_str_release(&c->in);
		begin(c, 431);
		return 1;
	}
	int status = ww_http_head_parse(&c->head, c->in.p, n);
	consume(c, n);
	begin(c, status);
	return 1;
}

static int read_body(struct ww_http_conn *c)
{
	size_t before = c->body.len, used;
	int done, bad = 0;
	if (!c->in.len)
		return 0;
	if (c->head.chunked) {
		enum ww_http_chunk r = ww_http_chunks_take(&c->chunks, c->in.p, c->in.len, &used, &c->body);
		done = r == WW_HTTP_CHUNK_DONE;
		bad = r != WW_HTTP_CHUNK_BAD ? 0 : c->body.cut ? 413 : 400;
	} else {
		size_t left = (size_t)c->head.length - c->body.len;
		used = c->in.len < left ? c->in.len : left;
		ww_str_add(&c->body, c->in.p, used);
		done = used == left;
	}
	consume(c, used);
	c->h->body_bytes += c->body.len - before;
	if (!bad && (c->h->body_bytes > MAX_BODIES_BYTES || (c->body.cut && !c->head.chunked)))
		bad = 503;
	if (bad)
		refuse(c, bad, bad == 413 ? "the body is longer than this path takes" : bad == 400 ? "the chunks of the body are malformed"
		       : "the server holds too many bodies now");
	else if (done)
		call_handler(c);
	return 1;
}

/* ---- WebSockets ---------------------------------------------------------------------------------------------------- */

static void end_ws(struct ww_http_conn *c, int code)
{
	ww_http_ws_close((struct ww_http_ws *)c->ch, code);
	leave_session(c);
}

static int is_utf8(const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + n;
	while (p < end) {
		int more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1 : *p >= 0xe0 && *p < 0xf0 ? 2 : *p >= 0xf0 && *p < 0xf5 ? 3 : -1;
		uint32_t v = more == 1 ? *p & 31u : more == 2 ? *p & 15u : *p & 7u;
		if (more < 0 || end - p <= more)
			return 0;
		for (int i = 1; i <= more; i++) {
			if ((p[i] & 0xc0) != 0x80)
				return 0;
			v = v << 6 | (p[i] & 63u);
		}
		if ((more == 2 && (v < 0x800 || (v >= 0xd800 && v < 0xe000))) || (more == 3 && (v < 0x10000 || v > 0x10ffff)))
			return 0;
		p += more + 1;
	}
	return 1;
}

/* A frame of data; 0, or the code to close with. */
static int data_frame(struct ww_http_conn *c, const struct ww_ws_frame *f)
{
	size_t before = c->body.len;
	if ((f->opcode == WW_WS_CONTINUE) != (c->message_opcode != 0))
		return 1002;
	if (f->opcode != WW_WS_CONTINUE)
		c->message_opcode = f->opcode;
	if (c->message_opcode == WW_WS_BINARY)
		return 1003;
	ww_ws_unmask(f, c->in.p + f->header_bytes, &c->body);
	c->h->body_bytes += c->body.len - before;
	if (c->body.cut)
		return 1009;
	if (c->h->body_bytes > MAX_BODIES_BYTES)
		return 1013;
	if (!f->final)
		return 0;
	c->message_opcode = 0;
	if (!is_utf8(c->body.p, c->body.len))
		return 1007;
	c->route->ws->message(c->session, c->body.p, c->body.len);
	drop_body(c);
	return 0;
}

static int read_frame(struct ww_http_conn *c)
{
	struct ww_ws_frame f;
	int code = ww_ws_frame_parse(&f, c->in.p, c->in.len, size_limit(c->h->o.max_message_bytes));
	if (!code)
		return 0;
	if (c->closing || !c->session) {	/* nobody listens to what follows */
		ww_str_release(&c->in);
		return 0;
	}
	if (code == 1000) {
		code = 0;
		if (f.opcode == WW_WS_CLOSE)
			code = 1000;
		else if (f.opcode == WW_WS_PING) {
			struct ww_str payload = WW_STR_INIT(128);
			ww_ws_unmask(&f, c->in.p + f.header_bytes, &payload);
			ww_ws_frame_add(&c->out, WW_WS_PONG, payload.p, payload.len);
			ww_str_release(&payload);
		} else if (f.opcode != WW_WS_PONG)
			code = data_frame(c, &f);
		if (c->out.len - c->out_at > MAX_OWN_QUEUE)
			code = 1008;	/* pings without end, and nothing read */
	}
	if (code) {
		c->closing = 1;
		end_ws(c, code);
		ww_str_release(&c->in);
		return 1;
	}
	consume(c, f.header_bytes + f.payload_bytes);
	return 1;
}

/* ---- Events -------------------------------------------------------------------------------------------------------- */

/* Work through what has come in, until more is needed or an answer is awaited. */
static void work(struct ww_http_conn *c)
{
	int more = 1;
	while (more && !c->dead) {
		switch (c->state) {
		case WW_HTTP_READS_HEAD:
			more = read_head(c);
			break;
		case WW_HTTP_READS_BODY:
			more = read_body(c);
			break;
		case WW_HTTP_IS_WS:
			more = read_frame(c);
			break;
		case WW_HTTP_ANSWERS:
			more = 0;
			break;
		case WW_HTTP_LINGERS:
			ww_str_release(&c->in);
			more = 0;
			break;
		}
		if (!c->dead && (c->ch || c->out.len > c->out_at))
			more = pump(c) && more;
		if (!c->dead && c->state == WW_HTTP_READS_HEAD && !c->ch && c->in.len)
			more = more || ww_http_head_bytes(c->in.p, c->in.len) > 0;
	}
	if (!c->dead)
		watch(c);
}

/* 0: the client has closed. */
static int read_some(struct ww_http_conn *c)
{
	size_t room = (c->state == WW_HTTP_ANSWERS ? WW_HTTP_MAX_HEAD_BYTES : c->in.max) - c->in.len;
	char buf[READ_BYTES];
	ssize_t n = recv(c->fd, buf, room < sizeof(buf) ? room : sizeof(buf), 0);
	if (n > 0) {
		if (c->state == WW_HTTP_READS_HEAD && !c->in.len)
			c->since_ns = ww_now_ns();	/* a head has begun */
		ww_str_add(&c->in, buf, (size_t)n);
		c->heard_ns = ww_now_ns();
		c->pinged = 0;
		if (c->in.cut)
			return 0;		/* out of memory */
		return 1;
	}
	return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

void ww_http_conn_event(struct ww_http_conn *c, unsigned events)
{
	if (c->dead)
		return;
	if ((events & EPOLLERR) || ((events & EPOLLIN) && !read_some(c)) ||
	    ((events & (EPOLLRDHUP | EPOLLHUP)) && !(events & EPOLLIN))) {
		ww_http_conn_close(c);
		return;
	}
	work(c);
}

void ww_http_conn_kick(struct ww_http_conn *c)
{
	if (!c->dead)
		work(c);
}

static int is_over(const struct ww_http_conn *c, uint64_t now_ns)
{
	const struct ww_http_opts *o = &c->h->o;
	double in_state = (double)(now_ns - c->since_ns) * 1e-9, unsent = (double)(now_ns - c->sent_ns) * 1e-9,
	       silent = (double)(now_ns - c->heard_ns) * 1e-9;
	if (now_ns < c->since_ns || now_ns < c->heard_ns)
		return 0;
	if (c->out.len > c->out_at && now_ns > c->sent_ns && unsent > ww_http_limit(o->send_s, 30))
		return 1;
	switch (c->state) {
	case WW_HTTP_READS_HEAD:
		return c->h->stopping ? !c->in.len || in_state > 1
		     : c->in.len ? in_state > ww_http_limit(o->head_s, 10) : in_state > ww_http_limit(o->idle_s, 60);
	case WW_HTTP_READS_BODY:
		return in_state > ww_http_limit(o->body_s, 20) + (double)c->body.len / BODY_BYTES_PER_S;
	case WW_HTTP_IS_WS:
		return silent > WS_DEAD_S;
	case WW_HTTP_LINGERS:
		return in_state > LINGER_S;
	case WW_HTTP_ANSWERS:
		break;
	}
	return 0;
}

void ww_http_conn_scan(struct ww_http_conn *c, uint64_t now_ns)
{
	if (is_over(c, now_ns)) {
		ww_http_conn_close(c);
		return;
	}
	if (c->state == WW_HTTP_IS_WS && !c->pinged && now_ns > c->heard_ns && (double)(now_ns - c->heard_ns) * 1e-9 > PING_S) {
		c->pinged = 1;
		ww_ws_frame_add(&c->out, WW_WS_PING, "", 0);
		work(c);
	}
}
