/* transfer.c - see transfer.h.
 *
 * Redirects are not followed: the key would go along.  Compressed answers are not asked for: a stream of events must
 * arrive as it is written.  Time-outs are three: 30 s for a connection, stall_s without a byte, call_s in all.
 */
#include "policy/http/transfer.h"

#include "policy/http/key.h"
#include "policy/http/sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { EVENT_MAX_BYTES = 8 << 20, BODY_MAX_BYTES = 64 << 10, CONNECT_S = 30 };

struct run {
	const struct ww_transfer *t;
	struct ww_transfer_result *out;
	struct ww_sse sse;
	struct ww_err err;
	int is_json; /* one object instead of a stream */
	struct ww_str whole;
	int failed; /* on_event did not take an event */
};

static enum ww_rc on_data(void *ctx, const char *data, size_t n, struct ww_err *err)
{
	struct run *r = ctx;
	ww_auto_str clean = WW_STR_INIT(EVENT_MAX_BYTES);
	ww_key_scrub(&clean, data, n, r->t->key);
	return r->t->on_event(r->t->ctx, clean.p, clean.len, err);
}

static long status_of(const struct run *r)
{
	long status = 0;
	r->t->curl->easy_getinfo(r->t->handle, CURLINFO_RESPONSE_CODE, &status);
	return status;
}

static size_t on_bytes(char *p, size_t size, size_t n, void *ctx)
{
	struct run *r = ctx;
	n *= size;
	if (status_of(r) != 200) {
		ww_str_add(&r->out->body, p, n);
		return n;
	}
	if (r->is_json) {
		ww_str_add(&r->whole, p, n);
		return n;
	}
	r->failed = ww_sse_feed(&r->sse, p, n, &r->err) != WW_OK;
	return r->failed ? 0 : n;
}

static const char *header_value(const char *line, size_t n, const char *name, char *out, size_t cap)
{
	size_t k = strlen(name);
	if (n <= k || strncasecmp(line, name, k) || line[k] != ':')
		return NULL;
	const char *v = line + k + 1, *end = line + n;
	while (v < end && (*v == ' ' || *v == '\t'))
		v++;
	while (end > v && strchr(" \t\r\n", end[-1]))
		end--;
	snprintf(out, cap, "%.*s", (int)(end - v), v);
	return out;
}

static void on_retry_after(struct run *r, const char *v)
{
	char *end;
	double s = strtod(v, &end);
	time_t at;
	if (end != v && !*end && s >= 0)
		r->out->retry_after_s = s;
	else if ((at = r->t->curl->getdate(v, NULL)) != (time_t)-1)
		r->out->retry_after_s = at > time(NULL) ? difftime(at, time(NULL)) : 0;
}

static void on_request_id(struct run *r, const char *v)
{
	ww_auto_str clean = WW_STR_INIT(256);
	ww_key_scrub(&clean, v, strlen(v), r->t->key);
	ww_str_reset(&r->out->request_id);
	ww_str_add_bounded(&r->out->request_id, clean.p, clean.len, 100);
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
	struct run *r = ctx;
	char v[256];
	n *= size;
	if (header_value(line, n, "retry-after-ms", v, sizeof(v)) && atof(v) >= 0)
		r->out->retry_after_s = atof(v) / 1e3;
	else if (r->out->retry_after_s < 0 && header_value(line, n, "retry-after", v, sizeof(v)))
		on_retry_after(r, v);
	else if (header_value(line, n, "x-should-retry", v, sizeof(v)))
		r->out->never_again = !strcasecmp(v, "false");
	else if (header_value(line, n, "request-id", v, sizeof(v)) || header_value(line, n, "x-request-id", v, sizeof(v)))
		on_request_id(r, v);
	else if (header_value(line, n, "content-type", v, sizeof(v)))
		r->is_json = !strncasecmp(v, "application/json", 16);
	return n;
}

static int on_tick(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const struct run *r = ctx;
	return r->t->interrupted && *r->t->interrupted;
}

static void set_up(struct run *r, const char *body, size_t n)
{
	const struct ww_transfer *t = r->t;
	const struct ww_curl *c = t->curl;
	CURL *h = t->handle;
	c->easy_reset(h);
	c->easy_setopt(h, CURLOPT_URL, t->url);
	c->easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
	c->easy_setopt(h, CURLOPT_HTTPHEADER, t->headers);
	c->easy_setopt(h, CURLOPT_POSTFIELDS, body);
	c->easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
	c->easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	c->easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
	c->easy_setopt(h, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
	c->easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)(t->call_s * 1e3));
	c->easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
	c->easy_setopt(h, CURLOPT_LOW_SPEED_TIME, t->stall_s > 1 ? (long)t->stall_s : 1L);
	c->easy_setopt(h, CURLOPT_USERAGENT, "warpwright/" WW_VERSION);
	c->easy_setopt(h, CURLOPT_WRITEFUNCTION, on_bytes);
	c->easy_setopt(h, CURLOPT_WRITEDATA, r);
	c->easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
	c->easy_setopt(h, CURLOPT_HEADERDATA, r);
	c->easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
	c->easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_tick);
	c->easy_setopt(h, CURLOPT_XFERINFODATA, r);
}

static int unreached(CURLcode code)
{
	return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_COULDNT_CONNECT ||
		code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_URL_MALFORMAT ||
		code == CURLE_UNSUPPORTED_PROTOCOL;
}

/* What is still in the buffers when the answer is over. */
static void end_answer(struct run *r)
{
	enum ww_rc rc = WW_OK;
	if (status_of(r) != 200 || r->failed)
		return;
	if (r->is_json && r->whole.len)
		rc = on_data(r, r->whole.p, r->whole.len, &r->err);
	else
		rc = ww_sse_end(&r->sse, &r->err);
	r->failed = rc != WW_OK;
}

static void judge_end(struct run *r, CURLcode code)
{
	struct ww_transfer_result *out = r->out;
	out->status = status_of(r);
	if (r->failed) {
		out->end = WW_TRANSFER_BROKEN;
		snprintf(out->why, sizeof(out->why), "%.500s", r->err.msg);
	} else if (code == CURLE_ABORTED_BY_CALLBACK) {
		out->end = WW_TRANSFER_INTERRUPTED;
	} else if (code != CURLE_OK) {
		out->end = unreached(code) ? WW_TRANSFER_UNREACHED : WW_TRANSFER_CUT;
		snprintf(out->why, sizeof(out->why), "%s", r->t->curl->easy_strerror(code));
	} else if (out->status != 200) {
		out->end = WW_TRANSFER_REFUSED;
		snprintf(out->why, sizeof(out->why), "HTTP %ld", out->status);
	}
}

void ww_transfer_run(const struct ww_transfer *t, const char *body, size_t n, struct ww_transfer_result *out)
{
	struct run r = { .t = t, .out = out, .err = WW_ERR_INIT };
	memset(out, 0, sizeof(*out));
	out->retry_after_s = -1;
	ww_str_init(&out->body, BODY_MAX_BYTES);
	ww_str_init(&out->request_id, 128);
	ww_str_init(&r.whole, EVENT_MAX_BYTES);
	ww_sse_init(&r.sse, EVENT_MAX_BYTES, on_data, &r);
	set_up(&r, body, n);
	CURLcode code = t->curl->easy_perform(t->handle);
	if (code == CURLE_OK)
		end_answer(&r);
	judge_end(&r, code);
	struct ww_str clean = WW_STR_INIT(BODY_MAX_BYTES);
	ww_key_scrub(&clean, out->body.p, out->body.len, t->key);
	ww_str_release(&out->body);
	out->body = clean;
	ww_sse_release(&r.sse);
	ww_str_release(&r.whole);
}

void ww_transfer_result_release(struct ww_transfer_result *r)
{
	ww_str_release(&r->body);
	ww_str_release(&r->request_id);
}
