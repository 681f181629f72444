/* http.c - a policy over HTTP: one reply, by as many attempts as it takes.
 *
 *     journal there?  ── whole ──▶ the reply (a killed process had received it)
 *         │ partial: reported as lost
 *         ▼
 *     meter: may so much be spent? ──▶ attempt ── whole ──▶ the reply
 *         ▲                              │ cut, overloaded, 429, 5xx: what was received is reported as lost
 *         └──── wait (Retry-After) ◀─────┘
 *
 * A server's answer about the conversation (refused, too long, cut off by length) is a reply with a `finish`; one about
 * the request (key, model) is an error for the user; a temporary failure is tried again.  A reply that broke off is
 * asked for anew as a whole: neither protocol can go on with half a tool call.  The half is lost as a message, but not
 * from the accounts.
 *
 * Tokens are counted by the provider, in `usage`.  Before a call there are only estimates: a token is taken for three
 * bytes of text, as code and English have it, and for two where the most that a call can cost is asked for.
 */
#include "policy/http/http.h"

#include "base/rng.h"
#include "base/time.h"
#include "policy/http/journal.h"
#include "policy/http/key.h"
#include "policy/http/price.h"
#include "policy/http/transfer.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { BODY_MAX_BYTES = 256 << 20, BYTES_A_TOKEN = 3, FEWEST_BYTES_A_TOKEN = 2, TOKENS_A_MESSAGE = 8 };
enum { FIRST_CONTACT_ATTEMPTS = 3 };
static const double wait_max_s = 600, backoff_max_s = 60;

struct http {
	struct ww_policy base;
	const struct ww_wire *wire;
	const struct ww_curl *curl;
	CURL *handle;
	struct curl_slist *headers;
	char *model, *effort, *spec;
	struct ww_str url;
	const char *key;
	struct ww_policy_opts opts;
	struct ww_price price;
	int official, reached; /* reached: the server has answered this instance once */
};

/* One question in work. */
struct question {
	struct http *h;
	const struct ww_ask *ask;
	struct ww_str body;
	int64_t prompt_tokens;                  /* estimate */
	int64_t most_prompt_tokens, max_tokens; /* bounds of the prompt and of the reply */
	struct ww_wire_reply reply;
	struct ww_journal journal;
	int n_events;
	char why[768]; /* the newest attempt failed */
};

/* ---- Counting ---------------------------------------------------------------------------------------------------- */

static int64_t tokens_of(size_t bytes) { return (int64_t)(bytes / BYTES_A_TOKEN) + 1; }

static int64_t http_count(struct ww_policy *self, const struct ww_message *msgs, size_t n)
{
	int64_t sum = 0;
	for (size_t i = 0; i < n; i++) {
		size_t bytes = strlen(msgs[i].text);
		bytes += msgs[i].native ? strlen(msgs[i].native) : msgs[i].reasoning ? strlen(msgs[i].reasoning) : 0;
		for (size_t k = 0; k < msgs[i].n_calls; k++)
			bytes += strlen(msgs[i].calls[k].name) + strlen(msgs[i].calls[k].arguments) + 32;
		sum += tokens_of(bytes) + TOKENS_A_MESSAGE;
	}
	return sum;
}

/* The use of the reply in progress, estimated where the server has not reported it. */
static struct ww_wire_usage usage_of(const struct question *q)
{
	struct ww_wire_usage u = q->reply.usage;
	int64_t seen = q->reply.bytes ? tokens_of(q->reply.bytes) : 0;
	if (!u.reported)
		u.input = q->prompt_tokens;
	if (!u.reported || !q->reply.finished)
		u.output = u.output > seen ? u.output : seen;
	return u;
}

static enum ww_rc report_lost(struct question *q, const char *why, struct ww_err *err)
{
	const struct ww_meter *m = q->ask->meter;
	struct ww_wire_usage u = usage_of(q);
	if (!m)
		return WW_OK;
	return (enum ww_rc)m->lost(
		m->ctx, ww_price_usd(&q->h->price, &u), u.input + u.cache_read + u.cache_write, u.output, why, err);
}

/* ---- One attempt ------------------------------------------------------------------------------------------------- */

static enum ww_rc on_event(void *ctx, const char *data, size_t n, struct ww_err *err)
{
	struct question *q = ctx;
	ww_journal_event(&q->journal, data, n);
	q->n_events++;
	enum ww_rc rc = q->h->wire->event(&q->reply, data, n, err);
	/* Once the reply is beyond all bounds, or the server has said what broke, nothing that follows is of use. */
	if (rc == WW_OK && (q->reply.too_long || q->reply.failed))
		rc = ww_err_set(
			err, WW_ERR_LIMIT, "%s", q->reply.failed ? q->reply.failure.p : "the reply is larger than the limit");
	return rc;
}

static void begin_reply(struct question *q)
{
	ww_wire_reply_release(&q->reply);
	ww_wire_reply_init(&q->reply);
	q->n_events = 0;
}

static int is_whole(const struct question *q) { return q->reply.too_long || (q->reply.finished && !q->reply.failed); }

/* The server's own words about an error, in one line. */
static void explain(const struct ww_transfer_result *t, struct ww_str *out)
{
	json_auto_t *o = json_loadb(t->body.p, t->body.len, 0, NULL);
	const json_t *e = json_object_get(o, "error");
	const char *said = json_is_string(e) ? json_string_value(e)
										 : ww_json_str(e, "message", ww_json_str(o, "message", NULL));
	ww_str_adds(out, t->why);
	if (said || t->body.len) {
		ww_str_adds(out, ": ");
		ww_str_add_bounded(out, said ? said : t->body.p, said ? strlen(said) : t->body.len, 300);
	}
	if (t->request_id.len)
		ww_str_addf(out, " (request %s)", t->request_id.p);
}

static int mentions(const struct ww_transfer_result *t, const char *const *words)
{
	for (; *words; words++)
		if (strcasestr(t->body.p, *words))
			return 1;
	return 0;
}

/* A conversation may outgrow the model, which ends the episode; a first prompt that does not fit is an error for the
 * user. */
static int is_too_long(const struct ww_transfer_result *t)
{
	static const char *const words[] = { "context_length", "context length", "prompt is too long", "maximum context",
		"too many tokens", "exceed_context_size", NULL };
	return t->end == WW_TRANSFER_REFUSED && (t->status == 413 || (t->status == 400 && mentions(t, words)));
}

/* No waiting helps: the account is empty. */
static int is_unpaid(const struct ww_transfer_result *t)
{
	static const char *const words[] = { "insufficient_quota", "billing", "credit_balance", "spend_limit",
		"usage_limit", NULL };
	return t->status == 402 || (t->status == 429 && mentions(t, words));
}

static int is_passing(const struct ww_transfer_result *t)
{
	if (t->end != WW_TRANSFER_REFUSED)
		return 1;
	if (t->never_again || is_unpaid(t))
		return 0;
	return t->status == 408 || t->status == 409 || t->status == 425 || t->status == 429 || t->status >= 500;
}

static int is_first(const struct ww_ask *ask)
{
	for (size_t i = 0; i < ask->n; i++)
		if (ask->msgs[i].role == WW_ROLE_ASSISTANT)
			return 0;
	return 1;
}

static enum ww_rc refuse(const struct question *q, const struct ww_transfer_result *t, struct ww_err *err)
{
	const struct http *h = q->h;
	if (t->status == 401 || t->status == 403)
		return h->key ? ww_err_set(err, WW_ERR_USAGE, "%s: the server does not accept the key in %s (%s)", h->spec,
							h->wire->key_variable, q->why)
					  : ww_err_set(err, WW_ERR_USAGE, "%s: the server wants a key; put it into %s (%s)", h->spec,
							h->wire->key_variable, q->why);
	if (is_too_long(t))
		return ww_err_set(err, WW_ERR_USAGE,
			"%s: the task and a reply of %lld tokens do not fit into this model; lower "
			"--context-tokens and "
			"--max-reply-tokens (%s)",
			h->spec, (long long)q->max_tokens, q->why);
	if (t->status == 404)
		return ww_err_set(
			err, WW_ERR_USAGE, "%s: no such model, or not the right --base-url: %s (%s)", h->spec, h->url.p, q->why);
	return ww_err_set(err, t->status >= 500 || t->status == 429 ? WW_ERR_IO : WW_ERR_USAGE,
		"%s: the server refuses the request (%s)", h->spec, q->why);
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

static enum ww_rc wait_s(const struct question *q, double s, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	while (ww_seconds_since(start) < s) {
		if (q->ask->interrupted && *q->ask->interrupted)
			return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
		double left = s - ww_seconds_since(start);
		long ns = left > 0.05 ? 50000000 : (long)(left * 1e9) + 1000;
		nanosleep(&(struct timespec){ 0, ns }, NULL);
	}
	return WW_OK;
}

static enum ww_rc back_off(
	const struct question *q, int attempt, const struct ww_transfer_result *t, struct ww_err *err)
{
	double s = q->h->opts.backoff_s;
	for (int i = 0; i < attempt && s < backoff_max_s; i++)
		s *= 2;
	s = (s < backoff_max_s ? s : backoff_max_s) * (0.5 + 0.5 * (double)(ww_rng_secret() % 1024) / 1024);
	if (t->retry_after_s > wait_max_s)
		return ww_err_set(
			err, WW_ERR_IO, "%s: the server asks to come back in %.0f s (%s)", q->h->spec, t->retry_after_s, q->why);
	return wait_s(q, t->retry_after_s > s ? t->retry_after_s : s, err);
}

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

static void transfer(struct question *q, struct ww_transfer_result *t)
{
	const struct http *h = q->h;
	struct ww_transfer x = { .curl = h->curl,
		.handle = h->handle,
		.url = h->url.p,
		.key = h->key,
		.headers = h->headers,
		.call_s = h->opts.call_s,
		.stall_s = h->opts.stall_s,
		.interrupted = q->ask->interrupted,
		.on_event = on_event,
		.ctx = q };
	ww_auto_str why = WW_STR_INIT(700);
	ww_transfer_run(&x, q->body.p, q->body.len, t);
	if (t->end == WW_TRANSFER_WHOLE && !is_whole(q))
		snprintf(t->why, sizeof(t->why), "the stream ended before the reply did");
	explain(t, &why);
	snprintf(q->why, sizeof(q->why), "%s", why.p);
	q->h->reached |= t->status > 0;
}

/* WW_OK with *again = 0: q->reply is whole, or *too_long. */
static enum ww_rc attempt(struct question *q, int number, int *again, int *too_long, struct ww_err *err)
{
	const struct ww_meter *m = q->ask->meter;
	WW_AUTO(ww_transfer_result_release) struct ww_transfer_result t = { .end = WW_TRANSFER_INTERRUPTED };
	enum ww_rc rc;
	*again = 0;
	begin_reply(q);
	ww_str_init(&t.body, 1);
	ww_str_init(&t.request_id, 1);
	if (m)
		WW_TRY((enum ww_rc)m->begin(m->ctx, ww_price_most(&q->h->price, q->most_prompt_tokens, q->max_tokens),
			q->most_prompt_tokens + q->max_tokens, err));
	WW_TRY(ww_journal_begin(&q->journal, q->ask->journal, q->ask->n, err));
	transfer(q, &t);
	*too_long = is_too_long(&t) && !is_first(q->ask);
	if (is_whole(q) || *too_long) {
		ww_journal_sync(&q->journal);
		goto out;
	}
	/* A request that the server accepted is paid for, also without an answer. */
	if (q->n_events || t.end == WW_TRANSFER_CUT || t.end == WW_TRANSFER_INTERRUPTED)
		WW_TRY(report_lost(q, q->why, err));
	if (q->ask->journal)
		(void)remove(q->ask->journal); /* reported; a resumed run must not report it once more */
	if (t.end == WW_TRANSFER_INTERRUPTED)
		rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	else if (!is_passing(&t))
		rc = refuse(q, &t, err);
	else if (number + 1 >= (q->h->reached ? q->h->opts.attempts : FIRST_CONTACT_ATTEMPTS))
		rc = ww_err_set(
			err, WW_ERR_IO, "%s: %s: gave up after %d attempts: %s", q->h->spec, q->h->url.p, number + 1, q->why);
	else
		rc = back_off(q, number, &t, err);
	*again = rc == WW_OK;
out:
	ww_journal_end(&q->journal);
	return rc;
}

static enum ww_rc take_event(void *ctx, const char *data, size_t n, struct ww_err *err)
{
	struct question *q = ctx;
	q->n_events++;
	if (q->h->wire->event(&q->reply, data, n, err) != WW_OK && !q->reply.finished)
		q->reply.failed = 1;
	return WW_OK;
}

/* A reply that a killed process had received as a whole; part of one, or a request without an answer, is accounted for
 * and asked again. */
static enum ww_rc recover(struct question *q, int *whole, struct ww_err *err)
{
	int found;
	begin_reply(q);
	enum ww_rc rc = ww_journal_read(q->ask->journal, q->ask->n, &found, take_event, q, err);
	*whole = rc == WW_OK && found && is_whole(q);
	return rc == WW_OK && found && !*whole ? report_lost(q, "the process was killed during the call", err) : rc;
}

static enum ww_rc fill(struct question *q, int too_long, struct ww_reply *out, struct ww_err *err)
{
	struct ww_wire_usage u = usage_of(q);
	if (too_long) {
		q->reply.finish = WW_FINISH_LENGTH;
		u = (struct ww_wire_usage){ .reported = 0 };
	}
	out->prompt_tokens = u.input + u.cache_read + u.cache_write;
	out->completion_tokens = u.output;
	out->usd = ww_price_usd(&q->h->price, &u);
	return ww_wire_finish(q->h->wire, &q->reply, out, err);
}

static enum ww_rc prepare(struct question *q, struct ww_err *err)
{
	const struct http *h = q->h;
	q->max_tokens = h->opts.max_reply_tokens;
	if (q->ask->max_tokens > 0 && q->ask->max_tokens < q->max_tokens)
		q->max_tokens = q->ask->max_tokens;
	struct ww_wire_opts o = { h->model, h->effort, h->official };
	json_t *body = h->wire->request(&o, q->ask, q->max_tokens);
	if (!body)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory, or text that is not UTF-8, in a request to %s", h->spec);
	ww_json_add(&q->body, body);
	json_decref(body);
	if (q->body.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "a request to %s would be larger than %d bytes", h->spec, BODY_MAX_BYTES);
	q->prompt_tokens = tokens_of(q->body.len);
	q->most_prompt_tokens = (int64_t)(q->body.len / FEWEST_BYTES_A_TOKEN) + 1;
	return WW_OK;
}

static int http_next(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	struct question q = { .h = (struct http *)self, .ask = ask, .journal = { -1 } };
	int whole = 0, again = 1, too_long = 0;
	enum ww_rc rc;
	ww_str_init(&q.body, BODY_MAX_BYTES);
	WW_TRY(prepare(&q, err));
	WW_TRY(recover(&q, &whole, err));
	for (int i = 0; !whole && again; i++)
		WW_TRY(attempt(&q, i, &again, &too_long, err));
	rc = fill(&q, too_long, out, err);
out:
	ww_wire_reply_release(&q.reply);
	ww_str_release(&q.body);
	return rc;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static void http_free(struct ww_policy *self)
{
	struct http *h = (struct http *)self;
	if (h->handle)
		h->curl->easy_cleanup(h->handle);
	if (h->headers)
		h->curl->slist_free_all(h->headers);
	ww_str_release(&h->url);
	free(h->model), free(h->effort), free(h->spec);
	free(h);
}

static const struct ww_policy_ops ops[] = {
	{ .name = "openai", .next = http_next, .count_tokens = http_count, .free = http_free },
	{ .name = "anthropic", .next = http_next, .count_tokens = http_count, .free = http_free }
};

static int add_header(struct http *h, const char *text)
{
	struct curl_slist *l = h->curl->slist_append(h->headers, text);
	h->headers = l ? l : h->headers;
	return l != NULL;
}

static enum ww_rc set_headers(struct http *h, struct ww_err *err)
{
	ww_auto_str line = WW_STR_INIT(2048);
	int ok = add_header(h, "Content-Type: application/json") &&
		add_header(h, "Accept: text/event-stream, application/json") && add_header(h, "Expect:");
	if (h->key) {
		ww_str_addf(&line, "%s%s", h->wire->key_header, h->key);
		ok = ok && add_header(h, line.p);
	}
	if (h->wire->version_header)
		ok = ok && add_header(h, h->wire->version_header);
	return ok ? WW_OK : ww_nomem(err);
}

static enum ww_rc set_url(struct http *h, struct ww_err *err)
{
	const char *env = getenv(h->wire->base_variable),
			   *base = h->opts.base_url ? h->opts.base_url
		: env && *env                   ? env
										: NULL;
	if (!base)
		base = h->wire->default_base;
	size_t n = strlen(base);
	while (n && base[n - 1] == '/')
		n--;
	if (strncmp(base, "http://", 7) && strncmp(base, "https://", 8))
		return ww_err_set(
			err, WW_ERR_USAGE, "the base URL of %s must begin with http:// or https://, not \"%.200s\"", h->spec, base);
	if (strpbrk(base, " \t\r\n") || strchr(base, '@'))
		return ww_err_set(err, WW_ERR_USAGE,
			"the base URL of %s may hold neither spaces nor a password; keys go into %s", h->spec,
			h->wire->key_variable);
	h->official = n == strlen(h->wire->default_base) && !memcmp(base, h->wire->default_base, n);
	ww_str_add(&h->url, base, n);
	ww_str_adds(&h->url, h->wire->path);
	return h->url.cut ? ww_err_set(err, WW_ERR_USAGE, "the base URL of %s is too long", h->spec) : WW_OK;
}

static enum ww_rc set_price(struct http *h, struct ww_err *err)
{
	enum ww_rc rc = ww_price_load(h->opts.prices, h->official, h->spec, &h->price, err);
	if (rc == WW_OK && h->opts.need_price && !h->price.found)
		rc = ww_err_set(err, WW_ERR_USAGE,
			"a budget in USD needs the price of %s, which is not listed%s; write a line for it into "
			"a file and give that with "
			"--prices (docs/policies.md)",
			h->spec, h->official ? "" : " at a base URL of your own");
	return rc;
}

static void set_defaults(struct ww_policy_opts *o)
{
	o->max_reply_tokens = o->max_reply_tokens ? o->max_reply_tokens : 32768;
	o->call_s = o->call_s > 0 ? o->call_s : 1800;
	o->stall_s = o->stall_s > 0 ? o->stall_s : 600;
	o->backoff_s = o->backoff_s > 0 ? o->backoff_s : 0.5;
	o->attempts = o->attempts > 0 ? o->attempts : 8;
}

static char *dup_text(const char *s) { return s ? strdup(s) : NULL; }

int ww_http_policy_new(const struct ww_wire *wire, const char *model, const struct ww_policy_opts *opts,
	struct ww_policy **out, struct ww_err *err)
{
	struct http *h;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(h, 1, err));
	h->base.ops = wire == &ww_wire_openai ? &ops[0] : &ops[1];
	h->wire = wire;
	h->opts = *opts;
	ww_str_init(&h->url, 4096);
	set_defaults(&h->opts);
	h->model = strdup(model);
	h->spec = strdup(opts->spec);
	h->effort = dup_text(opts->effort);
	if (!h->model || !h->spec || (opts->effort && !h->effort)) {
		rc = ww_nomem(err);
		goto out;
	}
	WW_TRY(set_url(h, err));
	h->key = ww_key_find(wire->key_variable);
	if (!h->key && h->official)
		rc = ww_err_set(
			err, WW_ERR_USAGE, "%s needs a key: put it into the environment variable %s", h->spec, wire->key_variable);
	WW_TRY(rc);
	WW_TRY(set_price(h, err));
	WW_TRY(ww_curl_load(&h->curl, err));
	if (!(h->handle = h->curl->easy_init()))
		rc = ww_err_set(err, WW_ERR_NOMEM, "libcurl cannot start");
	WW_TRY(rc);
	WW_TRY(set_headers(h, err));
	h->opts.spec = h->opts.base_url = h->opts.prices = h->opts.effort = NULL; /* the caller's */
	*out = &h->base;
	return WW_OK;
out:
	http_free(&h->base);
	return rc;
}
