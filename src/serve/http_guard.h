/* http_guard.h - access checks of the server, and the handshake of a WebSocket (RFC 6455, 4.2.2). */
#pragma once

#include "serve/http.h"

/* 1 for 127.0.0.0/8, ::1 and "localhost", with or without brackets and port. */
int ww_http_is_loopback(const char *host);
/* May a request with these headers be answered?  0, 400, 401 or 403; `why` gets one line.  host: what the server
 * listens on. */
int ww_http_admit(const struct ww_http_request *r, const char *host, const char *token, const char **why);
/* Does a comma-separated list of a header hold this word, in any case? */
int ww_http_lists(const char *list, const char *word);
/* Sec-WebSocket-Accept for a key; 0 where it is no key. */
int ww_ws_accept(const char *key, char out[29]);
