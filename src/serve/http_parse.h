/* http_parse.h - the bytes of HTTP/1.1 requests and of WebSocket frames, without sockets. */
#ifndef WW_SERVE_HTTP_PARSE_H
#define WW_SERVE_HTTP_PARSE_H

#include "serve/http.h"

#include <stdint.h>

/* ---- Requests */

struct ww_http_head {
	struct ww_http_request r;	/* without body */
	struct ww_http_header headers[WW_HTTP_MAX_HEADERS];
	char *text;			/* what they point into */
	int minor;			/* HTTP/1.minor */
	int keep_alive, chunked, expects_continue, upgrades;	/* upgrades: to a WebSocket */
	int64_t length;			/* Content-Length; 0 where there is none */
	const char *why;		/* one line where the head is refused */
};

/* Bytes of the head at the start of p, its empty line included; 0: it is not there yet. */
size_t ww_http_head_bytes(const char *p, size_t n);
/* Read a whole head.  0, or the status to refuse it with (400, 431, 501, 505). */
int ww_http_head_parse(struct ww_http_head *h, const char *p, size_t n);
void ww_http_head_release(struct ww_http_head *h);

struct ww_http_chunks {
	int state;
	uint64_t left;			/* of the chunk, or of what may be skipped */
};
enum ww_http_chunk { WW_HTTP_CHUNK_MORE, WW_HTTP_CHUNK_DONE, WW_HTTP_CHUNK_BAD };
/* Take what is there of a chunked body and add its content; *used bytes were taken.  body->cut: it is too long. */
enum ww_http_chunk ww_http_chunks_take(struct ww_http_chunks *c, const char *p, size_t n, size_t *used, struct ww_str *body);

/* ---- WebSockets */

enum { WW_WS_CONTINUE = 0, WW_WS_TEXT = 1, WW_WS_BINARY = 2, WW_WS_CLOSE = 8, WW_WS_PING = 9, WW_WS_PONG = 10 };
struct ww_ws_frame {
	int opcode, final;
	size_t header_bytes, payload_bytes;
	unsigned char mask[4];
};
/* 1000 sound, 1002 against the protocol, 1009 longer than max; 0: not all there (header or payload). */
int ww_ws_frame_parse(struct ww_ws_frame *f, const char *p, size_t n, size_t max_payload);
/* Payload as it was meant, appended. */
void ww_ws_unmask(const struct ww_ws_frame *f, const char *payload, struct ww_str *out);
void ww_ws_frame_add(struct ww_str *out, int opcode, const void *p, size_t n);
/* Sec-WebSocket-Accept for a key; 0 where it is no key. */
int ww_ws_accept(const char *key, char out[29]);

/* ---- Who may ask */

/* 1 for 127.0.0.0/8, ::1 and "localhost", with or without brackets. */
int ww_http_is_loopback(const char *host);
/* May a request with these headers be answered?  0, 400, 401 or 403; `why` gets one line.  host: what the server listens on. */
int ww_http_admit(const struct ww_http_request *r, const char *host, const char *token, const char **why);

#endif
