/* openai.c - chat completions with tools, as OpenAI and the servers that are compatible with it speak it.
 *
 *   request   model, messages, tools, stream with usage in the last chunk.  The bound of a reply is called
 *             max_completion_tokens for OpenAI itself, which refuses the old name on newer models, and max_tokens
 *             for all others.
 *   stream    data: {"choices":[{"delta":{...},"finish_reason":...}],"usage":...}, closed by data: [DONE].  Tool
 *             calls come in pieces, told apart by `index`; id and name in the first piece.  Some servers leave the
 *             index out and send whole calls: a piece without one belongs to the call with its id, else to the last.
 *   thinking  "reasoning" or "reasoning_content", by server; sent back under the name that it came under.
 *
 * A server that ignores `stream` sends one object with "message" in place of "delta"; that is read as one big piece.
 */
#include "policy/http/wire.h"

#include <string.h>

/* ---- Request ----------------------------------------------------------------------------------------------------- */

static json_t *calls_json(const struct ww_message *m, const json_t *native)
{
	json_t *calls = json_array();
	for (size_t i = 0; i < m->n_calls; i++)
		json_array_append_new(calls,
			json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", ww_wire_call_id(native, m, i), "type", "function", "function",
				"name", m->calls[i].name, "arguments", m->calls[i].arguments));
	return calls;
}

static json_t *assistant_json(const struct ww_message *m, const json_t *native)
{
	json_t *o = json_pack("{s:s}", "role", "assistant");
	const char *field = ww_json_str(native, "reasoning_field", NULL);
	/* Content may only be left out where there are calls. */
	json_object_set_new(o, "content", *m->text || !m->n_calls ? json_string(m->text) : json_null());
	if (m->reasoning && field)
		json_object_set_new(o, field, json_string(m->reasoning));
	if (m->n_calls)
		json_object_set_new(o, "tool_calls", calls_json(m, native));
	return o;
}

static json_t *messages_json(const struct ww_ask *ask)
{
	struct ww_wire_walk w = { .wire = &ww_wire_openai, .ask = ask };
	json_t *list = json_array();
	for (const struct ww_message *m; (m = ww_wire_next(&w));) {
		if (m->role == WW_ROLE_ASSISTANT)
			json_array_append_new(list, assistant_json(m, w.native));
		else if (m->role == WW_ROLE_TOOL)
			json_array_append_new(
				list, json_pack("{s:s, s:s, s:s}", "role", "tool", "tool_call_id", w.call_id, "content", m->text));
		else
			json_array_append_new(list, json_pack("{s:s, s:s}", "role", ww_role_name(m->role), "content", m->text));
	}
	return list;
}

static json_t *tool_json(const struct ww_tool_spec *t, json_t *schema)
{
	return json_pack("{s:s, s:{s:s, s:s, s:o}}", "type", "function", "function", "name", t->name, "description",
		t->description, "parameters", schema);
}

static json_t *request(const struct ww_wire_opts *o, const struct ww_ask *ask, int64_t max_tokens)
{
	json_t *body = json_pack("{s:s, s:o, s:b, s:{s:b}, s:I}", "model", o->model, "messages", messages_json(ask),
		"stream", 1, "stream_options", "include_usage", 1, o->official ? "max_completion_tokens" : "max_tokens",
		(json_int_t)max_tokens);
	if (ask->n_tools)
		json_object_set_new(body, "tools", ww_wire_tools(ask, tool_json));
	if (o->effort)
		json_object_set_new(body, "reasoning_effort", json_string(o->effort));
	return body;
}

/* ---- Stream ------------------------------------------------------------------------------------------------------ */

static int64_t call_index(const struct ww_wire_reply *r, const json_t *piece)
{
	const json_t *index = json_object_get(piece, "index");
	const char *id = ww_json_str(piece, "id", "");
	int64_t n = 0, last = 0;
	if (json_is_integer(index))
		return json_integer_value(index);
	for (size_t i = 0; i < r->n_parts; i++) {
		if (r->parts[i].kind != WW_WIRE_CALL)
			continue;
		last = r->parts[i].index;
		if (*id && !strcmp(id, r->parts[i].id.p))
			return last;
		n = last + 1;
	}
	return *id ? n : last;
}

static void add_call(struct ww_wire_reply *r, const json_t *piece)
{
	const json_t *function = json_object_get(piece, "function"), *arguments = json_object_get(function, "arguments");
	struct ww_wire_part *p = ww_wire_part(r, WW_WIRE_CALL, call_index(r, piece));
	if (!p)
		return;
	if (!p->id.len)
		ww_str_adds(&p->id, ww_json_str(piece, "id", ""));
	if (!p->name.len)
		ww_str_adds(&p->name, ww_json_str(function, "name", ""));
	if (json_is_object(arguments)) { /* some servers parse them already */
		ww_auto_str text = WW_STR_INIT(WW_WIRE_REPLY_MAX_BYTES);
		ww_json_add(&text, arguments);
		ww_wire_add(r, &p->text, text.p);
	} else {
		ww_wire_add(r, &p->text, json_string_value(arguments));
	}
}

static void add_text(struct ww_wire_reply *r, enum ww_wire_kind kind, const char *text)
{
	struct ww_wire_part *p = text && *text ? ww_wire_part(r, kind, 0) : NULL;
	if (p)
		ww_wire_add(r, &p->text, text);
}

static void add_delta(struct ww_wire_reply *r, const json_t *delta)
{
	static const char *const fields[] = { "reasoning_content", "reasoning" };
	const json_t *piece;
	size_t i;
	for (i = 0; i < WW_ARRAY_LEN(fields); i++) {
		const char *text = ww_json_str(delta, fields[i], "");
		if (!*text || (*r->reasoning_field && strcmp(r->reasoning_field, fields[i])))
			continue; /* a server that sends both sends the same twice */
		strcpy(r->reasoning_field, fields[i]);
		add_text(r, WW_WIRE_THINKING, text);
	}
	add_text(r, WW_WIRE_TEXT, ww_json_str(delta, "content", ""));
	if (*ww_json_str(delta, "refusal", "")) {
		add_text(r, WW_WIRE_TEXT, ww_json_str(delta, "refusal", ""));
		r->finish = WW_FINISH_REFUSAL;
	}
	json_array_foreach(json_object_get(delta, "tool_calls"), i, piece)
		add_call(r, piece);
}

static void set_finish(struct ww_wire_reply *r, const char *reason)
{
	r->finished = 1;
	if (r->finish == WW_FINISH_REFUSAL || !strcmp(reason, "content_filter"))
		r->finish = WW_FINISH_REFUSAL;
	else if (!strcmp(reason, "length"))
		r->finish = WW_FINISH_LENGTH;
	else
		r->finish = WW_FINISH_STOP; /* whether there were calls, the parts say */
}

static void set_usage(struct ww_wire_reply *r, const json_t *usage)
{
	int64_t prompt = ww_json_int(usage, "prompt_tokens", 0);
	int64_t cached = ww_json_int(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", 0);
	r->usage = (struct ww_wire_usage){ 1, prompt - cached, cached, 0, ww_json_int(usage, "completion_tokens", 0) };
}

static enum ww_rc event(struct ww_wire_reply *r, const char *data, size_t n, struct ww_err *err)
{
	json_t *o;
	if (n == 6 && !memcmp(data, "[DONE]", 6)) {
		r->done = 1;
		return WW_OK;
	}
	WW_CHECK(ww_json_parse(data, n, "an event of the stream", &o, err));
	const json_t *choice = json_array_get(json_object_get(o, "choices"), 0), *error = json_object_get(o, "error");
	const json_t *delta = json_object_get(choice, "delta"), *whole = json_object_get(choice, "message");
	const char *reason = ww_json_str(choice, "finish_reason", NULL);
	if (error && !json_is_null(error))
		ww_wire_fail(r, error);
	add_delta(r, delta ? delta : whole);
	if (reason)
		set_finish(r, reason);
	if (json_is_object(json_object_get(o, "usage")))
		set_usage(r, json_object_get(o, "usage"));
	r->done |= whole && reason;
	json_decref(o);
	return WW_OK;
}

static json_t *native(const struct ww_wire_reply *r)
{
	json_t *ids = json_array();
	for (size_t i = 0; i < r->n_parts; i++)
		if (r->parts[i].kind == WW_WIRE_CALL)
			json_array_append_new(ids, json_string(r->parts[i].id.p));
	json_t *o = json_pack("{s:s, s:o}", "protocol", "openai", "ids", ids);
	if (*r->reasoning_field)
		json_object_set_new(o, "reasoning_field", json_string(r->reasoning_field));
	return o;
}

const struct ww_wire ww_wire_openai = { .name = "openai",
	.key_variable = "OPENAI_API_KEY",
	.base_variable = "OPENAI_BASE_URL",
	.default_base = "https://api.openai.com/v1",
	.path = "/chat/completions",
	.key_header = "Authorization: Bearer ",
	.request = request,
	.event = event,
	.native = native };
