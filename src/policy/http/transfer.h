/* transfer.h - one POST whose answer is a stream of events. */
#pragma once

#include "base/str.h"
#include "policy/http/curl.h"

struct ww_transfer {
	const struct ww_curl *curl;
	CURL *handle;          /* kept between calls: the connection is used again */
	const char *url, *key; /* key may be NULL */
	struct curl_slist *headers;
	double call_s, stall_s;
	const volatile int *interrupted; /* may be NULL */
	/* Data of an event, scrubbed of the key.  Anything but WW_OK ends the transfer. */
	enum ww_rc (*on_event)(void *ctx, const char *data, size_t n, struct ww_err *err);
	void *ctx;
};

enum ww_transfer_end {
	WW_TRANSFER_WHOLE,     /* the server ended the answer */
	WW_TRANSFER_CUT,       /* the connection broke, stalled or took too long after the answer had begun */
	WW_TRANSFER_UNREACHED, /* no connection */
	WW_TRANSFER_REFUSED,   /* a status other than 200; see `status` and `body` */
	WW_TRANSFER_BROKEN,    /* on_event did not take an event */
	WW_TRANSFER_INTERRUPTED
};

struct ww_transfer_result {
	enum ww_transfer_end end;
	long status;
	double retry_after_s; /* the server's wish, -1: none */
	int never_again;      /* the server says that repeating is of no use */
	struct ww_str body;   /* of an error, bounded, scrubbed */
	struct ww_str request_id;
	char why[512];
};

/* The result is to be released, whatever `end` says. */
void ww_transfer_run(const struct ww_transfer *t, const char *body, size_t n, struct ww_transfer_result *out);
void ww_transfer_result_release(struct ww_transfer_result *r);
