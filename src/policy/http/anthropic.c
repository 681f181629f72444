/* anthropic.c - messages with tools, as Anthropic speaks it.
 *
 *   request   the system text apart from the messages; user and assistant take turns, so the answers of all calls
 *             of one turn are the tool_result blocks of one user message.  Two cache marks: after the system text
 *             (with the tools before it) and at the end of the conversation, so that only new tokens cost in full.
 *   stream    message_start, then for each block content_block_start, _delta ..., _stop, then message_delta with
 *             stop_reason and usage, then message_stop; ping and error in between.
 *   thinking  blocks with a signature, and redacted ones, go back byte for byte and in their places among text and
 *             calls: `native` holds the blocks.  The input of a call is not repeated there: it is its arguments.
 */
#include "policy/http/wire.h"

#include <string.h>

/* ---- Request ----------------------------------------------------------------------------------------------------- */

static json_t *mark_cached(json_t *block)
{
	json_object_set_new(block, "cache_control", json_pack("{s:s}", "type", "ephemeral"));
	return block;
}

static json_t *text_block(const char *text) { return json_pack("{s:s, s:s}", "type", "text", "text", text); }

static json_t *call_block(const struct ww_tool_call *c, const char *id)
{
	return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", id, "name", c->name, "input",
		ww_wire_arguments(c->arguments));
}

/* The blocks as they came, with the input of each call put back. */
static json_t *blocks_of(const struct ww_message *m, const json_t *native)
{
	json_t *list = json_array(), *b;
	size_t i, call = 0;
	json_array_foreach(json_object_get(native, "content"), i, b) {
		if (strcmp(ww_json_str(b, "type", ""), "tool_use"))
			json_array_append(list, b);
		else if (call < m->n_calls) {
			json_array_append_new(list, call_block(&m->calls[call], ww_json_str(b, "id", "")));
			call++;
		}
	}
	return list;
}

static json_t *assistant_json(const struct ww_message *m, const json_t *native)
{
	json_t *content = native ? blocks_of(m, native) : json_array();
	if (!native && *m->text)
		json_array_append_new(content, text_block(m->text));
	for (size_t i = 0; !native && i < m->n_calls; i++)
		json_array_append_new(content, call_block(&m->calls[i], m->calls[i].id));
	if (!json_array_size(content)) /* empty content is refused */
		json_array_append_new(content, text_block("(nothing)"));
	return json_pack("{s:s, s:o}", "role", "assistant", "content", content);
}

/* The last message's content where that is the user's, else that of a new one. */
static json_t *user_content(json_t *list)
{
	json_t *last = json_array_get(list, json_array_size(list) - 1);
	if (!last || strcmp(ww_json_str(last, "role", ""), "user")) {
		last = json_pack("{s:s, s:[]}", "role", "user", "content");
		json_array_append_new(list, last);
	}
	return json_object_get(last, "content");
}

static json_t *result_block(const struct ww_message *m, const char *id)
{
	json_t *o = json_pack("{s:s, s:s, s:s}", "type", "tool_result", "tool_use_id", id, "content", m->text);
	if (m->is_error)
		json_object_set_new(o, "is_error", json_true());
	return o;
}

static json_t *messages_json(const struct ww_ask *ask)
{
	struct ww_wire_walk w = { .wire = &ww_wire_anthropic, .ask = ask };
	json_t *list = json_array();
	for (const struct ww_message *m; (m = ww_wire_next(&w));) {
		if (m->role == WW_ROLE_ASSISTANT)
			json_array_append_new(list, assistant_json(m, w.native));
		else if (m->role == WW_ROLE_TOOL)
			json_array_append_new(user_content(list), result_block(m, w.call_id));
		else if (m->role == WW_ROLE_USER)
			json_array_append_new(user_content(list), text_block(m->text));
	}
	return list;
}

static json_t *tool_json(const struct ww_tool_spec *t, json_t *schema)
{
	return json_pack("{s:s, s:s, s:o}", "name", t->name, "description", t->description, "input_schema", schema);
}

static json_t *system_json(const struct ww_ask *ask)
{
	json_t *list = json_array();
	for (size_t i = 0; i < ask->n; i++)
		if (ask->msgs[i].role == WW_ROLE_SYSTEM)
			json_array_append_new(list, text_block(ask->msgs[i].text));
	if (json_array_size(list))
		mark_cached(json_array_get(list, json_array_size(list) - 1));
	return list;
}

static json_t *request(const struct ww_wire_opts *o, const struct ww_ask *ask, int64_t max_tokens)
{
	json_t *messages = messages_json(ask), *system = system_json(ask);
	json_t *last = json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content");
	if (json_array_size(last))
		mark_cached(json_array_get(last, json_array_size(last) - 1));
	json_t *body = json_pack("{s:s, s:I, s:o, s:b}", "model", o->model, "max_tokens", (json_int_t)max_tokens,
		"messages", messages, "stream", 1);
	if (json_array_size(system))
		json_object_set(body, "system", system);
	json_decref(system);
	if (ask->n_tools)
		json_object_set_new(body, "tools", ww_wire_tools(ask, tool_json));
	if (o->effort) {
		json_object_set_new(body, "thinking", json_pack("{s:s}", "type", "adaptive"));
		json_object_set_new(body, "output_config", json_pack("{s:s}", "effort", o->effort));
	}
	return body;
}

/* ---- Stream ------------------------------------------------------------------------------------------------------ */

static struct ww_wire_part *find(struct ww_wire_reply *r, int64_t index)
{
	for (size_t i = r->n_parts; i-- > 0;)
		if (r->parts[i].index == index)
			return &r->parts[i];
	return NULL;
}

static void begin_block(struct ww_wire_reply *r, int64_t index, json_t *b)
{
	const char *type = ww_json_str(b, "type", "");
	enum ww_wire_kind kind = !strcmp(type, "text") ? WW_WIRE_TEXT
		: !strcmp(type, "thinking")                ? WW_WIRE_THINKING
		: !strcmp(type, "tool_use")                ? WW_WIRE_CALL
												   : WW_WIRE_OTHER;
	struct ww_wire_part *p = ww_wire_part(r, kind, index);
	if (!p)
		return;
	ww_wire_add(r, &p->text, ww_json_str(b, kind == WW_WIRE_THINKING ? "thinking" : "text", ""));
	ww_wire_add(r, &p->signature, ww_json_str(b, "signature", ""));
	ww_str_adds(&p->id, ww_json_str(b, "id", ""));
	ww_str_adds(&p->name, ww_json_str(b, "name", ""));
	if (kind == WW_WIRE_OTHER && !p->raw) {
		r->bytes += json_dumpb(b, NULL, 0, 0);
		r->too_long |= r->bytes > WW_WIRE_REPLY_MAX_BYTES;
		p->raw = r->too_long ? NULL : json_incref(b);
	}
	json_t *input = json_object_get(b, "input");
	if (kind == WW_WIRE_CALL && json_object_size(input)) { /* whole already: a server that does not stream */
		ww_auto_str text = WW_STR_INIT(WW_WIRE_REPLY_MAX_BYTES);
		ww_json_add(&text, input);
		ww_wire_add(r, &p->text, text.p);
	}
}

static void add_delta(struct ww_wire_reply *r, struct ww_wire_part *p, const json_t *d)
{
	const char *type = ww_json_str(d, "type", "");
	if (!p)
		return;
	if (!strcmp(type, "text_delta"))
		ww_wire_add(r, &p->text, ww_json_str(d, "text", ""));
	else if (!strcmp(type, "thinking_delta"))
		ww_wire_add(r, &p->text, ww_json_str(d, "thinking", ""));
	else if (!strcmp(type, "input_json_delta"))
		ww_wire_add(r, &p->text, ww_json_str(d, "partial_json", ""));
	else if (!strcmp(type, "signature_delta"))
		ww_wire_add(r, &p->signature, ww_json_str(d, "signature", ""));
}

static void set_finish(struct ww_wire_reply *r, const char *reason)
{
	r->finished = 1;
	r->finish = !strcmp(reason, "refusal")                 ? WW_FINISH_REFUSAL
		: !strcmp(reason, "max_tokens")                    ? WW_FINISH_LENGTH
		: !strcmp(reason, "model_context_window_exceeded") ? WW_FINISH_LENGTH
														   : WW_FINISH_STOP;
}

/* Counts are cumulative; a later event repeats only those that changed. */
static void set_usage(struct ww_wire_reply *r, const json_t *u)
{
	if (!json_is_object(u))
		return;
	r->usage.reported = 1;
	r->usage.input = ww_json_int(u, "input_tokens", r->usage.input);
	r->usage.cache_read = ww_json_int(u, "cache_read_input_tokens", r->usage.cache_read);
	r->usage.cache_write = ww_json_int(u, "cache_creation_input_tokens", r->usage.cache_write);
	r->usage.output = ww_json_int(u, "output_tokens", r->usage.output);
}

static void take_whole(struct ww_wire_reply *r, const json_t *message)
{
	json_t *b;
	size_t i;
	json_array_foreach(json_object_get(message, "content"), i, b)
		begin_block(r, (int64_t)i, b);
	set_usage(r, json_object_get(message, "usage"));
	set_finish(r, ww_json_str(message, "stop_reason", "end_turn"));
	r->done = 1;
}

static enum ww_rc event(struct ww_wire_reply *r, const char *data, size_t n, struct ww_err *err)
{
	json_t *o;
	WW_CHECK(ww_json_parse(data, n, "an event of the stream", &o, err));
	const char *type = ww_json_str(o, "type", "");
	int64_t index = ww_json_int(o, "index", 0);
	json_t *delta = json_object_get(o, "delta");
	if (!strcmp(type, "message_start")) {
		set_usage(r, json_object_get(json_object_get(o, "message"), "usage"));
	} else if (!strcmp(type, "content_block_start")) {
		begin_block(r, index, json_object_get(o, "content_block"));
	} else if (!strcmp(type, "content_block_delta")) {
		add_delta(r, find(r, index), delta);
	} else if (!strcmp(type, "message_delta")) {
		set_usage(r, json_object_get(o, "usage"));
		if (ww_json_str(delta, "stop_reason", NULL))
			set_finish(r, ww_json_str(delta, "stop_reason", ""));
	} else if (!strcmp(type, "message_stop")) {
		r->done = 1;
	} else if (!strcmp(type, "error")) {
		ww_wire_fail(r, json_object_get(o, "error"));
	} else if (!strcmp(type, "message")) {
		take_whole(r, o);
	}
	json_decref(o);
	return WW_OK;
}

static json_t *block_json(const struct ww_wire_part *p)
{
	switch (p->kind) {
	case WW_WIRE_TEXT:
		return p->text.len ? text_block(p->text.p) : NULL; /* an empty one is refused when it is sent back */
	case WW_WIRE_THINKING:
		return json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", p->text.p, "signature", p->signature.p);
	case WW_WIRE_CALL: return json_pack("{s:s, s:s}", "type", "tool_use", "id", p->id.p);
	case WW_WIRE_OTHER: return p->raw ? json_incref(p->raw) : NULL;
	}
	return NULL;
}

static json_t *native(const struct ww_wire_reply *r)
{
	json_t *content = json_array(), *ids = json_array();
	for (size_t i = 0; i < r->n_parts; i++) {
		json_t *b = block_json(&r->parts[i]);
		if (b)
			json_array_append_new(content, b);
		if (r->parts[i].kind == WW_WIRE_CALL)
			json_array_append_new(ids, json_string(r->parts[i].id.p));
	}
	return json_pack("{s:s, s:o, s:o}", "protocol", "anthropic", "ids", ids, "content", content);
}

const struct ww_wire ww_wire_anthropic = { .name = "anthropic",
	.key_variable = "ANTHROPIC_API_KEY",
	.base_variable = "ANTHROPIC_BASE_URL",
	.default_base = "https://api.anthropic.com",
	.path = "/v1/messages",
	.key_header = "x-api-key: ",
	.version_header = "anthropic-version: 2023-06-01",
	.request = request,
	.event = event,
	.native = native };
