/* completions_answer.c - tokens to chat.completion, text_completion, and their streams.
 *
 * Events of all choices of an answer come from one thread, the engine's, which must not wait for a client: it leaves
 * what is to be sent in a buffer, and the connection's thread takes it from there.
 *
 * In a stream of a conversation three things must not go out too early: what may become the mark of thoughts, what may
 * become a call (from its mark on everything waits for the end, when the call is read as a whole), and white space
 * before a call.  So content is what lies between `sent` and the first place where one of these may begin.
 */
#include "serve/completions_internal.h"

#include "base/lock.h"
#include "base/rng.h"
#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char think_open[] = "<think>", think_close[] = "</think>", call_open[] = "<tool_call>",
				  space[] = " \t\r\n";
enum { MAX_UNSENT_BYTES = 4 << 20 };
static const double LOOK_S = 0.25;

/* ---- Life -------------------------------------------------------------------------------------------------------- */

struct ww_answer *ww_answer_new(const struct ww_completions_request *q, int n, struct ww_http_reply *reply)
{
	struct ww_answer *a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	*a = (struct ww_answer){ .reply = reply,
		.engine = q->model->engine,
		.format = q->model->format,
		.chat = q->chat,
		.stream = q->stream,
		.include_usage = q->include_usage,
		.logprobs = q->logprobs,
		.top = (int)q->top,
		.read_calls = q->tools != NULL,
		.one_call = q->one_call,
		.per_prompt = (int)q->n,
		.created = (int64_t)time(NULL),
		.choices = calloc((size_t)n, sizeof(*a->choices)),
		.n = n,
		.model = strdup(q->model->name) };
	snprintf(a->id, sizeof(a->id), "%s-%016llx%08llx", q->chat ? "chatcmpl" : "cmpl",
		(unsigned long long)ww_rng_secret(), (unsigned long long)ww_rng_secret() & 0xffffffff);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	ww_str_init(&a->out, MAX_UNSENT_BYTES);
	for (int i = 0; a->choices && i < n; i++) {
		a->choices[i] = (struct ww_choice){ .a = a, .index = i, .id = -1, .logprobs = json_array() };
		ww_str_init(&a->choices[i].text, WW_COMPLETIONS_TEXT_MAX);
	}
	if (!a->choices || !a->model) {
		ww_answer_free(a);
		return NULL;
	}
	return a;
}

void ww_answer_free(struct ww_answer *a)
{
	for (int i = 0; a->choices && i < a->n; i++) {
		ww_str_release(&a->choices[i].text);
		json_decref(a->choices[i].logprobs);
		json_decref(a->choices[i].message);
		free(a->choices[i].prompt);
	}
	ww_str_release(&a->out);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->changed);
	free(a->choices);
	free(a->model);
	free(a);
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

static json_t *text_json(const char *p, size_t n)
{
	json_t *v = json_stringn(p, n);
	return v ? v : json_string("");
}

static json_t *head_json(const struct ww_answer *a)
{
	const char *object = a->chat ? a->stream ? "chat.completion.chunk" : "chat.completion" : "text_completion";
	return json_pack(
		"{s:s, s:s, s:I, s:s}", "id", a->id, "object", object, "created", (json_int_t)a->created, "model", a->model);
}

static json_t *usage_json(const struct ww_answer *a)
{
	return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)a->prompt_tokens, "completion_tokens",
		(json_int_t)a->completion_tokens, "total_tokens", (json_int_t)(a->prompt_tokens + a->completion_tokens),
		"prompt_tokens_details", "cached_tokens", (json_int_t)a->reused);
}

/* A token's text, bytes and log-probability. */
static json_t *token_json(struct ww_tok *tok, int32_t token, float logp)
{
	ww_auto_str text = WW_STR_INIT(1 << 16);
	json_t *list = json_array();
	size_t n = 0;
	const char *bytes = ww_tok_bytes(tok, token, &n);
	ww_tok_decode(tok, &token, 1, 0, &text);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer((unsigned char)bytes[i]));
	return json_pack("{s:o, s:f, s:o}", "token", text_json(text.p, text.len), "logprob", (double)logp, "bytes", list);
}

/* The documented object of chat; of text what becomes four lists. */
static json_t *logprob_json(const struct ww_answer *a, const struct ww_engine_event *e)
{
	struct ww_tok *tok = ww_engine_tok(a->engine);
	json_t *v = token_json(tok, e->sampled->token, e->sampled->logp), *top = json_array();
	for (int i = 0; i < e->top_n; i++)
		json_array_append_new(top, token_json(tok, e->top[i].token, e->top[i].logp));
	json_object_set_new(v, "top_logprobs", top);
	return v;
}

/* {text: log-probability} of the likeliest tokens; of two with one text the likelier. */
static json_t *top_json(const json_t *top)
{
	json_t *o = json_object(), *e;
	size_t i;
	json_array_foreach(top, i, e) {
		const char *text = json_string_value(json_object_get(e, "token"));
		if (!json_object_get(o, text))
			json_object_set(o, text, json_object_get(e, "logprob"));
	}
	return o;
}

static size_t characters(const char *text)
{
	size_t n = 0;
	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

/* Entries as text completions have them: a list for each of their members. */
static json_t *text_logprobs(struct ww_choice *c, const json_t *entries)
{
	json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array(), *e;
	size_t i;
	json_array_foreach((json_t *)entries, i, e) {
		json_array_append(tokens, json_object_get(e, "token"));
		json_array_append(values, json_object_get(e, "logprob"));
		json_array_append_new(tops, c->a->top ? top_json(json_object_get(e, "top_logprobs")) : json_null());
		json_array_append_new(offsets, json_integer((json_int_t)c->offset));
		c->offset += characters(json_string_value(json_object_get(e, "token")));
	}
	json_t *v = json_pack("{s:o, s:o, s:O, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs",
		c->a->top ? tops : json_null(), "text_offset", offsets);
	json_decref(tops);
	return v;
}

/* The choice's entries that are not out yet, as the protocol has them; null where none were asked for. */
static json_t *take_logprobs(struct ww_choice *c)
{
	json_t *entries = c->logprobs;
	if (!c->a->logprobs)
		return json_null();
	c->logprobs = json_array();
	if (c->a->chat)
		return json_pack("{s:o}", "content", entries);
	json_t *v = text_logprobs(c, entries);
	json_decref(entries);
	return v;
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

void ww_answer_cancel(struct ww_answer *a)
{
	for (int i = 0; i < a->n; i++)
		if (a->choices[i].id >= 0)
			ww_engine_cancel(a->engine, a->choices[i].id);
}

/* A client that reads nothing while megabytes are buffered counts as gone. */
static void write_event(struct ww_answer *a, const char *data, size_t n)
{
	if (a->gone)
		return;
	ww_str_adds(&a->out, "data: ");
	ww_str_add(&a->out, data, n);
	ww_str_adds(&a->out, "\n\n");
	a->gone = a->out.cut;
	if (a->gone)
		ww_answer_cancel(a);
}

static void write_json(struct ww_answer *a, json_t *v)
{
	ww_auto_str s = WW_STR_INIT(WW_COMPLETIONS_TEXT_MAX);
	ww_json_add(&s, v);
	write_event(a, s.p, s.len);
	json_decref(v);
}

/* One chunk; takes body, which is "delta" or "text". */
static void write_chunk(struct ww_choice *c, const char *key, json_t *body)
{
	struct ww_answer *a = c->a;
	json_t *v = head_json(a);
	json_t *choice = json_pack("{s:i, s:o, s:o, s:s?}", "index", c->index, key, body, "logprobs", take_logprobs(c),
		"finish_reason", c->finish);
	json_object_set_new(v, "choices", json_pack("[o]", choice));
	if (a->include_usage)
		json_object_set_new(v, "usage", json_null());
	write_json(a, v);
}

/* Where the longest suffix of p[0..n) begins that may become `mark`; n: there is none. */
static size_t begun_mark(const char *p, size_t n, const char *mark)
{
	size_t most = strlen(mark) - 1;
	for (size_t k = most < n ? most : n; k > 0; k--)
		if (!memcmp(p + n - k, mark, k))
			return n - k;
	return n;
}

/* Up to where the text from `sent` on may go out as content. */
static size_t content_end(const struct ww_choice *c)
{
	const struct ww_answer *a = c->a;
	const char *p = c->text.p + c->sent;
	size_t n = c->text.len - c->sent;
	if (!a->read_calls)
		return c->text.len;
	if (a->format == WW_CHAT_LLAMA3) { /* a call is the whole answer */
		size_t begin = strspn(c->text.p, space);
		return begin == c->text.len || c->text.p[begin] == '{' ? c->sent : c->text.len;
	}
	const char *call = memmem(p, n, call_open, sizeof(call_open) - 1);
	size_t end = call ? (size_t)(call - p) : begun_mark(p, n, call_open);
	while (end > 0 && strchr(space, p[end - 1]))
		end--;
	return c->sent + end;
}

static void send_text(struct ww_choice *c, const char *key, size_t end)
{
	json_t *text = text_json(c->text.p + c->sent, end - c->sent);
	c->sent = end;
	write_chunk(c, "delta", json_pack("{s:o}", key, text));
}

/* Thoughts, where the answer begins with them: 1 while nothing else may go out. */
static int stream_thoughts(struct ww_choice *c)
{
	const char *p = c->text.p;
	size_t n = c->text.len;
	if (c->a->format == WW_CHAT_LLAMA3)
		return 0;
	if (!c->thinking && !c->sent && n < sizeof(think_open) - 1 && !memcmp(p, think_open, n))
		return 1; /* also while there is no text at all */
	if (!c->sent && n >= sizeof(think_open) - 1 && !memcmp(p, think_open, sizeof(think_open) - 1)) {
		c->thinking = 1;
		c->sent = sizeof(think_open) - 1;
		c->sent += strspn(p + c->sent, space);
	}
	if (!c->thinking)
		return 0;
	const char *close = memmem(p + c->sent, n - c->sent, think_close, sizeof(think_close) - 1);
	size_t end = close ? (size_t)(close - p) : c->sent + begun_mark(p + c->sent, n - c->sent, think_close);
	while (end > c->sent && strchr(space, p[end - 1]))
		end--;
	if (end > c->sent)
		send_text(c, "reasoning_content", end);
	if (!close)
		return 1;
	c->sent = (size_t)(close - p) + sizeof(think_close) - 1;
	c->thinking = 2;
	return 0;
}

/* Who speaks; before there is any token. */
static void stream_role(struct ww_choice *c)
{
	if (!c->begun)
		write_chunk(c, "delta", json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
	c->begun = 1;
}

static void stream_chat(struct ww_choice *c)
{
	if (c->thinking != 2 && stream_thoughts(c))
		return;
	if (c->thinking == 2) { /* between thoughts and answer */
		size_t skip = strspn(c->text.p + c->sent, space);
		c->sent += skip;
		if (c->sent == c->text.len)
			return;
		c->thinking = 3;
	}
	size_t end = content_end(c);
	if (end > c->sent)
		send_text(c, "content", end);
}

static void stream_text(struct ww_choice *c)
{
	ww_auto_str s = WW_STR_INIT(WW_COMPLETIONS_TEXT_MAX);
	if (!c->begun && c->prompt)
		ww_str_adds(&s, c->prompt);
	c->begun = 1;
	ww_str_add(&s, c->text.p + c->sent, c->text.len - c->sent);
	c->sent = c->text.len;
	if (s.len || c->finish)
		write_chunk(c, "text", text_json(s.p, s.len));
}

/* The end of a conversation's choice: calls as a whole, or what was held back for their sake. */
static void stream_chat_end(struct ww_choice *c)
{
	json_t *calls = json_object_get(c->message, "tool_calls"), *call, *delta = json_object();
	size_t i;
	json_array_foreach(calls, i, call)
		json_object_set_new(call, "index", json_integer((json_int_t)i));
	if (calls)
		json_object_set(delta, "tool_calls", calls);
	else if (c->thinking != 1 && c->sent < c->text.len)
		json_object_set_new(delta, "content", text_json(c->text.p + c->sent, c->text.len - c->sent));
	write_chunk(c, "delta", delta);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void set_call_ids(json_t *calls)
{
	json_t *call;
	size_t i;
	json_array_foreach(calls, i, call) {
		char id[40];
		snprintf(id, sizeof(id), "call_%016llx", (unsigned long long)ww_rng_secret());
		json_object_set_new(call, "id", json_string(id));
	}
}

/* The whole text as a message. */
static void read_message(struct ww_choice *c)
{
	const struct ww_answer *a = c->a;
	json_t *m = ww_chat_parse(a->format, c->text.p, c->text.len), *calls = json_object_get(m, "tool_calls");
	if (calls && !a->read_calls) { /* nobody asked for calls: text it was */
		json_object_del(m, "tool_calls");
		json_object_set_new(m, "content", text_json(c->text.p, c->text.len));
		calls = NULL;
	}
	while (a->one_call && json_array_size(calls) > 1)
		json_array_remove(calls, json_array_size(calls) - 1);
	set_call_ids(calls);
	if (calls && !*ww_json_str(m, "content", ""))
		json_object_set_new(m, "content", json_null());
	if (calls && strcmp(c->finish, "length"))
		c->finish = "tool_calls";
	c->message = m;
}

static void end_choice(struct ww_choice *c, const struct ww_engine_event *e)
{
	struct ww_answer *a = c->a;
	c->finish = e->end == WW_ENGINE_LENGTH ? "length" : "stop";
	if (c->index % a->per_prompt == 0)
		a->reused += e->reused;
	if (e->end == WW_ENGINE_FAILED || e->end == WW_ENGINE_CANCELLED) {
		if (!a->failed && e->err)
			a->err = *e->err;
		else if (!a->failed)
			ww_err_set(&a->err, WW_ERR_INTERRUPTED, "the server is stopping");
		a->failed = 1;
		return;
	}
	if (a->chat)
		read_message(c);
	if (a->stream && a->chat)
		stream_chat_end(c);
}

void ww_answer_event(void *ctx, const struct ww_engine_event *e)
{
	struct ww_choice *c = ctx;
	struct ww_answer *a = c->a;
	WW_LOCKED(&a->lock);
	if (a->stream && a->chat && !a->failed)
		stream_role(c);
	if (e->sampled) {
		a->completion_tokens++;
		if (a->logprobs && !ww_tok_is_special(ww_engine_tok(a->engine), e->sampled->token))
			json_array_append_new(c->logprobs, logprob_json(a, e));
	}
	ww_str_add(&c->text, e->text, e->text_n);
	if (a->stream && a->chat && !a->failed)
		stream_chat(c);
	if (e->end != WW_ENGINE_GOES_ON)
		end_choice(c, e);
	if (a->stream && !a->chat && !a->failed)
		stream_text(c);
	a->pending -= e->end != WW_ENGINE_GOES_ON;
	if (!a->pending || a->stream)
		pthread_cond_signal(&a->changed);
}

static json_t *choice_json(struct ww_choice *c)
{
	json_t *v = json_pack(
		"{s:i, s:o, s:s}", "index", c->index, "logprobs", take_logprobs(c), "finish_reason", c->finish);
	if (c->a->chat) {
		json_object_set(v, "message", c->message);
	} else {
		ww_auto_str s = WW_STR_INIT(WW_COMPLETIONS_TEXT_MAX);
		ww_str_adds(&s, c->prompt ? c->prompt : "");
		ww_str_add(&s, c->text.p, c->text.len);
		json_object_set_new(v, "text", text_json(s.p, s.len));
	}
	return v;
}

static void send_whole(struct ww_answer *a)
{
	ww_auto_str s = WW_STR_INIT(WW_COMPLETIONS_TEXT_MAX);
	json_t *v = head_json(a), *list = json_array();
	for (int i = 0; i < a->n; i++)
		json_array_append_new(list, choice_json(&a->choices[i]));
	json_object_set_new(v, "choices", list);
	json_object_set_new(v, "usage", usage_json(a));
	ww_json_add(&s, v);
	ww_http_reply_all(a->reply, 200, "application/json", NULL, s.p, s.len);
	json_decref(v);
}

/* Send what there is.  Under the lock, which is not held meanwhile. */
static void send_out(struct ww_answer *a)
{
	ww_auto_str out = a->out;
	ww_str_init(&a->out, MAX_UNSENT_BYTES);
	pthread_mutex_unlock(&a->lock);
	int there = !out.len || ww_http_reply_write(a->reply, out.p, out.len);
	there = there && !ww_http_reply_gone(a->reply);
	pthread_mutex_lock(&a->lock);
	if (there || a->gone)
		return;
	a->gone = 1;
	ww_answer_cancel(a);
}

void ww_answer_await(struct ww_answer *a, int may_stream)
{
	if (a->stream && may_stream)
		ww_http_reply_begin(a->reply, 200, "text/event-stream", "Cache-Control: no-cache\r\n");
	WW_LOCKED(&a->lock);
	while (a->pending) {
		if (!may_stream || !a->out.len)
			(void)ww_cond_wait(&a->changed, &a->lock, LOOK_S);
		if (may_stream)
			send_out(a);
	}
}

static void end_stream(struct ww_answer *a)
{
	pthread_mutex_lock(&a->lock);
	if (a->failed)
		write_json(a,
			json_pack(
				"{s:{s:s, s:s, s:n, s:n}}", "error", "message", a->err.msg, "type", "server_error", "param", "code"));
	if (!a->failed && a->include_usage) {
		json_t *v = head_json(a);
		json_object_set_new(v, "choices", json_array());
		json_object_set_new(v, "usage", usage_json(a));
		write_json(a, v);
	}
	write_event(a, "[DONE]", 6);
	send_out(a);
	pthread_mutex_unlock(&a->lock);
	if (!a->gone) /* else its connection ends in the middle */
		ww_http_reply_end(a->reply);
}

void ww_answer_end(struct ww_answer *a)
{
	struct ww_refusal why;
	if (a->stream) {
		end_stream(a);
	} else if (a->failed) {
		ww_refuse(&why, a->err.rc == WW_ERR_INTERRUPTED ? 503 : 500, NULL, NULL, "%s", a->err.msg);
		ww_refusal_send(&why, a->reply);
	} else {
		send_whole(a);
	}
}
