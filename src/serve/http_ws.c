/* http_ws.c - WebSockets (RFC 6455): libmicrohttpd hands over the socket of an upgraded connection, wslay does the
 * frames, and the connection's thread holds the conversation.
 *
 * A session that works on a message calls ww_http_ws_alive() a few times a second, which answers pings: clients send
 * them every few seconds and close where no answer comes.
 */
#include "serve/http_internal.h"

#include "base/time.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <wslay/wslay.h>

enum { MAX_QUEUED = 1000, MAX_MESSAGES = 16, WATCH_MS = 250 };
static const double PING_S = 30, DEAD_S = 90;

struct message {
	char *text;
	size_t n;
};

struct ww_http_ws {
	struct ww_http_reply *x;
	wslay_event_context_ptr wslay;
	const char *early; /* came with the request */
	size_t early_bytes;
	uint64_t received_ns;
	int pinged, failed, over, code; /* over: nothing more is received */
	struct message messages[MAX_MESSAGES];
	int head, n;
};

/* ---- wslay's callbacks ------------------------------------------------------------------------------------------- */

static ssize_t fail(wslay_event_context_ptr ctx, int later)
{
	wslay_event_set_error(ctx, later ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static int would_block(ssize_t n) { return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t n, int flags, void *user)
{
	struct ww_http_ws *ws = user;
	if (ws->early_bytes) {
		n = ws->early_bytes < n ? ws->early_bytes : n;
		memcpy(buf, ws->early, n);
		ws->early += n;
		ws->early_bytes -= n;
		return (ssize_t)n;
	}
	if (wslay_event_get_queued_msg_count(ctx) > MAX_QUEUED) /* pongs: they go out first */
		return fail(ctx, 1);
	ssize_t got = recv(ws->x->fd, buf, n, MSG_DONTWAIT);
	if (got <= 0)
		return fail(ctx, would_block(got));
	ws->received_ns = ww_now_ns();
	ws->pinged = 0;
	return got;
}

static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *p, size_t n, int flags, void *user)
{
	struct ww_http_ws *ws = user;
	ssize_t sent = send(ws->x->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL | (flags & WSLAY_MSG_MORE ? MSG_MORE : 0));
	return sent < 0 ? fail(ctx, would_block(sent)) : sent;
}

static void refuse(struct ww_http_ws *ws, uint16_t code)
{
	wslay_event_queue_close(ws->wslay, code, NULL, 0);
	wslay_event_shutdown_read(ws->wslay);
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m, void *user)
{
	struct ww_http_ws *ws = user;
	if (m->opcode == WSLAY_BINARY_FRAME)
		refuse(ws, WSLAY_CODE_UNSUPPORTED_DATA);
	if (m->opcode != WSLAY_TEXT_FRAME)
		return;
	char *text = ws->n < MAX_MESSAGES ? malloc(m->msg_length + 1) : NULL;
	if (!text) { /* too many messages wait for their answers */
		refuse(ws, ws->n < MAX_MESSAGES ? WSLAY_CODE_INTERNAL_SERVER_ERROR : WSLAY_CODE_POLICY_VIOLATION);
		return;
	}
	memcpy(text, m->msg, m->msg_length);
	text[m->msg_length] = 0;
	ws->messages[(ws->head + ws->n++) % MAX_MESSAGES] = (struct message){ text, m->msg_length };
}

static const struct wslay_event_callbacks callbacks = {
	.recv_callback = on_recv, .send_callback = on_send, .on_msg_recv_callback = on_message
};

/* ---- The socket -------------------------------------------------------------------------------------------------- */

/* Send all that is queued, while the client takes bytes. */
static void send_queued(struct ww_http_ws *ws)
{
	while (!ws->failed && wslay_event_want_write(ws->wslay)) {
		size_t before = wslay_event_get_queued_msg_length(ws->wslay);
		if (wslay_event_send(ws->wslay))
			ws->failed = 1;
		else if (wslay_event_want_write(ws->wslay) && wslay_event_get_queued_msg_length(ws->wslay) == before &&
			!ww_http_await(ws->x, POLLOUT, ww_http_limit(ws->x->h->o.silent_s, 30)))
			ws->failed = 1;
	}
}

/* Take in what is there; ping a client that has been silent for long. */
static void look_after(struct ww_http_ws *ws)
{
	double silent_s = ww_seconds_since(ws->received_ns);
	if (wslay_event_recv(ws->wslay) || silent_s > DEAD_S)
		ws->failed = 1;
	if (silent_s > PING_S && !ws->pinged) {
		ws->pinged = 1;
		wslay_event_queue_msg(ws->wslay, &(struct wslay_event_msg){ WSLAY_PING, NULL, 0 });
	}
	ws->over |= wslay_event_get_close_received(ws->wslay) || !wslay_event_get_read_enabled(ws->wslay);
	send_queued(ws);
	ws->over |= ws->failed;
}

char *ww_http_ws_next(struct ww_http_ws *ws, size_t *n)
{
	while (!ws->n && !ws->over && !ws->x->h->stopping) {
		look_after(ws);
		if (!ws->n && !ws->over)
			(void)ww_http_await(ws->x, POLLIN, WATCH_MS * 1e-3);
	}
	if (!ws->n || ws->failed || ws->x->h->ending)
		return NULL;
	struct message m = ws->messages[ws->head];
	ws->head = (ws->head + 1) % MAX_MESSAGES;
	ws->n--;
	*n = m.n;
	return m.text;
}

int ww_http_ws_alive(struct ww_http_ws *ws)
{
	if (!ws->over)
		look_after(ws);
	return !ws->over && !ws->x->h->ending;
}

int ww_http_ws_send(struct ww_http_ws *ws, const char *text, size_t n)
{
	struct wslay_event_msg m = { WSLAY_TEXT_FRAME, (const uint8_t *)text, n };
	if (!ws->failed && wslay_event_queue_msg(ws->wslay, &m) == 0)
		send_queued(ws);
	return !ws->failed;
}

void ww_http_ws_close(struct ww_http_ws *ws, int code) { ws->code = code; }

/* ---- Beginning and end ------------------------------------------------------------------------------------------- */

static void end(struct ww_http_ws *ws)
{
	if (!ws->failed && !wslay_event_get_close_sent(ws->wslay))
		wslay_event_queue_close(ws->wslay, (uint16_t)ws->code, NULL, 0);
	send_queued(ws);
	if (!ws->failed)
		ww_http_linger(ws->x);
	for (; ws->n; ws->n--, ws->head = (ws->head + 1) % MAX_MESSAGES)
		free(ws->messages[ws->head].text);
	wslay_event_context_free(ws->wslay);
}

/* The handshake is out; the socket is ours until MHD_UPGRADE_ACTION_CLOSE. */
static void upgraded(void *client, struct MHD_Connection *mc, void *request, const char *early, size_t n, MHD_socket fd,
	struct MHD_UpgradeResponseHandle *urh)
{
	struct ww_http_reply *x = client;
	struct ww_http_ws ws = { .x = x, .early = early, .early_bytes = n, .received_ns = ww_now_ns(), .code = 1001 };
	void *session = x->session;
	size_t limit = x->h->o.max_message_bytes;
	ww_http_set_state(x, WW_HTTP_ANSWERS, 0);
	x->session = NULL;
	int good = wslay_event_context_server_init(&ws.wslay, &callbacks, &ws) == 0;
	if (good)
		wslay_event_config_set_max_recv_msg_length(ws.wslay, limit ? limit : (uint64_t)16 << 20);
	x->route->ws->run(session, good ? &ws : NULL);
	if (good)
		end(&ws);
	x->h->mhd->upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
}

enum ww_http_handshake ww_http_ws_open(struct ww_http_reply *x)
{
	const struct ww_mhd *mhd = x->h->mhd;
	const char *version = ww_http_header(&x->r, "Sec-WebSocket-Version");
	char accept[29];
	if (!ww_http_lists(ww_http_header(&x->r, "Upgrade"), "websocket") ||
		!ww_http_lists(ww_http_header(&x->r, "Connection"), "upgrade") || !version || strcmp(version, "13") ||
		!ww_ws_accept(ww_http_header(&x->r, "Sec-WebSocket-Key"), accept))
		return WW_HTTP_NO_HANDSHAKE;
	x->session = x->route->ws->open(x->route->ctx, &x->r);
	if (!x->session)
		return WW_HTTP_FULL;
	struct MHD_Response *response = mhd->create_response_for_upgrade(upgraded, x);
	mhd->add_response_header(response, "Upgrade", "websocket");
	mhd->add_response_header(response, "Sec-WebSocket-Accept", accept);
	ww_http_count(x, MHD_HTTP_SWITCHING_PROTOCOLS);
	ww_http_set_state(x, WW_HTTP_SENDS, ww_http_limit(x->h->o.silent_s, 30));
	mhd->queue_response(x->mc, MHD_HTTP_SWITCHING_PROTOCOLS, response);
	mhd->destroy_response(response);
	return WW_HTTP_UPGRADED;
}
