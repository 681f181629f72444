/* http_reply.c - answers.
 *
 * libmicrohttpd sends whole answers.  Streams are written to the socket here, since libmicrohttpd would ask a callback
 * for each piece, while our handlers write when they have something; the connection is closed after a stream.
 */
#include "serve/http_internal.h"

#include "base/json.h"
#include "base/time.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { LOOK_MS = 250 };
static const double LINGER_S = 1, BYTES_PER_S = 65536;
static const char always[] = "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";

/* ---- Whole answers ----------------------------------------------------------------------------------------------- */

/* Lines "Name: value\r\n"; the text is cut up. */
static void add_headers(struct ww_http_reply *x, struct MHD_Response *response, char *lines)
{
	for (char *line = lines, *end; (end = strstr(line, "\r\n")); line = end + 2) {
		char *value = strchr(line, ':');
		*end = 0;
		*value++ = 0;
		x->h->mhd->add_response_header(response, line, value + strspn(value, " "));
	}
}

void ww_http_reply_all(
	struct ww_http_reply *h, int status, const char *content_type, const char *headers, const void *bytes, size_t n)
{
	const struct ww_mhd *mhd = h->h->mhd;
	ww_auto_str lines = WW_STR_INIT(WW_HTTP_MAX_HEAD_BYTES);
	union {
		const void *in;
		void *out; /* MHD_RESPMEM_MUST_COPY: not written to */
	} body = { bytes };
	WW_BUG(h->answered);
	h->answered = 1;
	struct MHD_Response *response = mhd->create_response_from_buffer(n, body.out, MHD_RESPMEM_MUST_COPY);
	if (!response)
		return;
	if (content_type)
		ww_str_addf(&lines, "Content-Type: %s\r\n", content_type);
	ww_str_addf(&lines, "%s%s%s", always, h->h->stopping ? "Connection: close\r\n" : "", headers ? headers : "");
	add_headers(h, response, lines.p);
	ww_http_count(h, status);
	ww_http_set_state(h, WW_HTTP_SENDS, ww_http_limit(h->h->o.silent_s, 30) + (double)n / BYTES_PER_S);
	h->lost = mhd->queue_response(h->mc, (unsigned)status, response) != MHD_YES;
	mhd->destroy_response(response);
}

void ww_http_reply_error(struct ww_http_reply *h, int status, const char *fmt, ...)
{
	ww_auto_str text = WW_STR_INIT(4096), body = WW_STR_INIT(16384);
	va_list ap;
	va_start(ap, fmt);
	ww_str_vaddf(&text, fmt, ap);
	va_end(ap);
	json_t *o = json_pack("{s:{s:s, s:s, s:i}}", "error", "message", text.p, "type",
		status == 401       ? "authentication_error"
			: status == 429 ? "rate_limit_error"
			: status >= 500 ? "server_error"
							: "invalid_request_error",
		"code", status);
	ww_json_add(&body, o);
	ww_str_addc(&body, '\n');
	ww_http_reply_all(
		h, status, "application/json", status == 401 ? "WWW-Authenticate: Bearer\r\n" : NULL, body.p, body.len);
	json_decref(o);
}

/* ---- Is the client connected? ------------------------------------------------------------------------------------ */

enum ww_http_gone ww_http_reply_gone(struct ww_http_reply *h)
{
	struct pollfd p = { h->fd, POLLRDHUP, 0 }; /* a hang-up shows even behind bytes that were sent ahead */
	if (h->h->ending)
		return WW_HTTP_ENDS;
	if (!h->lost && poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL))
		h->lost = 1;
	return h->lost ? WW_HTTP_LEFT : WW_HTTP_WAITS;
}

int ww_http_reply_stopping(struct ww_http_reply *h) { return h->h->stopping; }

int ww_http_await(struct ww_http_reply *x, short events, double seconds)
{
	uint64_t start = ww_now_ns();
	do {
		double left_ms = (seconds - ww_seconds_since(start)) * 1e3;
		struct pollfd p = { x->fd, events, 0 };
		int ms = left_ms < LOOK_MS ? (int)left_ms + 1 : LOOK_MS;
		if (poll(&p, 1, ms) > 0)
			return 1;
	} while (!x->h->ending && ww_seconds_since(start) < seconds);
	return 0;
}

void ww_http_linger(struct ww_http_reply *x)
{
	char buf[16384];
	uint64_t start = ww_now_ns();
	double left_s;
	shutdown(x->fd, SHUT_WR);
	while ((left_s = LINGER_S - ww_seconds_since(start)) > 0 && ww_http_await(x, POLLIN, left_s)) {
		ssize_t n = recv(x->fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
			return;
	}
}

/* ---- Answers in pieces ------------------------------------------------------------------------------------------- */

/* All of it, while the client takes something within the limit of silence. */
static int send_all(struct ww_http_reply *x, const char *p, size_t n)
{
	while (n && !x->lost) {
		ssize_t sent = send(x->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent > 0) {
			p += sent;
			n -= (size_t)sent;
		} else if ((errno != EAGAIN && errno != EINTR) ||
			!ww_http_await(x, POLLOUT, ww_http_limit(x->h->o.silent_s, 30))) {
			x->lost = 1;
		}
	}
	return !x->lost;
}

int ww_http_reply_begin(struct ww_http_reply *h, int status, const char *content_type, const char *headers)
{
	ww_auto_str s = WW_STR_INIT(WW_HTTP_MAX_HEAD_BYTES);
	WW_BUG(h->answered);
	h->answered = h->streams = 1;
	ww_http_count(h, status);
	ww_str_addf(&s, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: %s\r\n%s%s%s\r\n", status,
		status == 200 ? "OK" : "Error", content_type, always, headers ? headers : "",
		h->http_1_0 ? "" : "Transfer-Encoding: chunked\r\n");
	return send_all(h, s.p, s.len);
}

int ww_http_reply_write(struct ww_http_reply *h, const void *bytes, size_t n)
{
	struct ww_str s;
	if (h->http_1_0 || !n)
		return send_all(h, bytes, n);
	ww_str_init(&s, n + 32);
	ww_str_addf(&s, "%zx\r\n", n);
	ww_str_add(&s, bytes, n);
	ww_str_adds(&s, "\r\n");
	int there = !s.cut && send_all(h, s.p, s.len);
	ww_str_release(&s);
	return there;
}

void ww_http_reply_end(struct ww_http_reply *h)
{
	if (!h->http_1_0)
		send_all(h, "0\r\n\r\n", 5);
	if (!h->lost)
		ww_http_linger(h);
}
