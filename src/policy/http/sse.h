/* sse.h - server-sent events, from bytes as they arrive to the data of each event.
 *
 * Both protocols put all that counts into the data, so event names, ids and retry times are passed over.
 */
#pragma once

#include "base/str.h"

struct ww_sse {
	struct ww_str line, data;
	int begun, has_data, after_cr;
	/* One event; a result other than WW_OK ends the feeding.  `data` is not empty and NUL-terminated. */
	enum ww_rc (*on_data)(void *ctx, const char *data, size_t n, struct ww_err *err);
	void *ctx;
};

/* An event longer than max_bytes is a WW_ERR_LIMIT. */
void ww_sse_init(struct ww_sse *s, size_t max_bytes,
	enum ww_rc (*on_data)(void *ctx, const char *data, size_t n, struct ww_err *err), void *ctx);
void ww_sse_release(struct ww_sse *s);
enum ww_rc ww_sse_feed(struct ww_sse *s, const char *bytes, size_t n, struct ww_err *err) WW_MUST_CHECK;
/* The stream ended: an event whose last line is whole counts, though the empty line after it is missing. */
enum ww_rc ww_sse_end(struct ww_sse *s, struct ww_err *err) WW_MUST_CHECK;
