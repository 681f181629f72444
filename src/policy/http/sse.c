/* sse.c - see sse.h.  Line ends are CR, LF or CRLF, and one byte order mark may stand before the first line, as the
 * specification has it. */
#include "policy/http/sse.h"

#include <string.h>

void ww_sse_init(struct ww_sse *s, size_t max_bytes,
	enum ww_rc (*on_data)(void *ctx, const char *data, size_t n, struct ww_err *err), void *ctx)
{
	*s = (struct ww_sse){ .on_data = on_data, .ctx = ctx };
	ww_str_init(&s->line, max_bytes);
	ww_str_init(&s->data, max_bytes);
}

void ww_sse_release(struct ww_sse *s)
{
	ww_str_release(&s->line);
	ww_str_release(&s->data);
}

static enum ww_rc dispatch(struct ww_sse *s, struct ww_err *err)
{
	enum ww_rc rc = s->has_data && s->data.len ? s->on_data(s->ctx, s->data.p, s->data.len, err) : WW_OK;
	ww_str_reset(&s->data);
	s->has_data = 0;
	return rc;
}

static enum ww_rc end_line(struct ww_sse *s, struct ww_err *err)
{
	const char *p = s->line.p;
	size_t n = s->line.len;
	enum ww_rc rc = WW_OK;
	if (!s->begun && n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3))
		p += 3, n -= 3;
	s->begun = 1;
	if (s->line.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "an event of the stream is longer than %zu bytes", s->line.max);
	if (!n) {
		rc = dispatch(s, err);
	} else if (n >= 5 && !memcmp(p, "data:", 5)) {
		size_t skip = n > 5 && p[5] == ' ' ? 6 : 5;
		if (s->has_data)
			ww_str_addc(&s->data, '\n');
		ww_str_add(&s->data, p + skip, n - skip);
		s->has_data = 1;
		if (s->data.cut)
			rc = ww_err_set(err, WW_ERR_LIMIT, "an event of the stream is longer than %zu bytes", s->data.max);
	}
	ww_str_reset(&s->line);
	return rc;
}

enum ww_rc ww_sse_feed(struct ww_sse *s, const char *bytes, size_t n, struct ww_err *err)
{
	for (const char *end = bytes + n; bytes < end;) {
		if (s->after_cr && *bytes == '\n') {
			s->after_cr = 0;
			bytes++;
			continue;
		}
		size_t k = 0;
		while (bytes + k < end && bytes[k] != '\n' && bytes[k] != '\r')
			k++;
		ww_str_add(&s->line, bytes, k);
		bytes += k;
		s->after_cr = 0;
		if (bytes == end)
			break;
		s->after_cr = *bytes++ == '\r';
		WW_CHECK(end_line(s, err));
	}
	return WW_OK;
}

enum ww_rc ww_sse_end(struct ww_sse *s, struct ww_err *err) { return s->line.len ? WW_OK : dispatch(s, err); }
