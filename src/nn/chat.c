/* chat.c - the two chat forms: ChatML with Qwen's tools, and Llama 3's.
 *
 * Models ship their form as a Jinja template; an interpreter of that language would be a second program in a config
 * file, larger than this one, and its input would be downloads.  Two forms cover the supported architectures, so they
 * are written out here:
 *
 *   ChatML   <|im_start|>ROLE \n TEXT <|im_end|> \n
 *            Tools are JSON in the system turn, calls stand in <tool_call>; the results of one step are together in a
 *            user turn, each in <tool_response>.
 *   Llama 3  <|start_header_id|>ROLE<|end_header_id|> \n\n TEXT <|eot_id|>
 *            Tools are JSON in the system turn, a call is the whole answer {"name", "parameters"}, results have the
 *            role ipython.
 *
 * The wording around tools is that of the models' own templates, to the character, and JSON is spelt as Python's
 * json.dumps spells it, since the models were trained on such text.  Llama 3's system turn states a date; it is the
 * template's fixed one, so that a prompt does not depend on the day.  Text from messages is never markup: "<|im_end|>"
 * in a user's text stays text.
 */
#include "nn/chat.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARKUP = 1, LEARN = 2, NESTING_MAX = 64 };

void ww_chat_init(struct ww_chat *c, size_t max_bytes)
{
	*c = (struct ww_chat){ 0 };
	ww_str_init(&c->text, max_bytes);
}

void ww_chat_release(struct ww_chat *c)
{
	ww_str_release(&c->text);
	free(c->parts);
	ww_chat_init(c, c->text.max);
}

/* End a part here; it is merged with the last one where both are of one kind. */
static void mark(struct ww_chat *c, int kind)
{
	size_t begin = c->count ? c->parts[c->count - 1].end : 0;
	if (c->text.len == begin)
		return;
	if (c->count && c->parts[c->count - 1].special == !!(kind & MARKUP) &&
		c->parts[c->count - 1].learn == !!(kind & LEARN)) {
		c->parts[c->count - 1].end = c->text.len;
		return;
	}
	if (WW_GROW(c->parts, &c->cap, c->count + 1))
		c->parts[c->count++] = (struct ww_chat_part){ c->text.len, !!(kind & MARKUP), !!(kind & LEARN) };
	else
		c->text.cut = 1;
}

static void put(struct ww_chat *c, const char *text, int kind)
{
	ww_str_adds(&c->text, text);
	mark(c, kind);
}

/* As Python's repr: the fewest digits that give the number again, with an exponent from 1e16 on. */
static void add_real(struct ww_str *s, double v)
{
	char text[40];
	for (int digits = 15; digits <= 17; digits++) {
		if (digits == 17 && fabs(v) >= 1e16)
			snprintf(text, sizeof(text), "%.16e", v);
		else
			snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	if (fabs(v) >= 1e15 && fabs(v) < 1e16 && strchr(text, 'e'))
		snprintf(text, sizeof(text), "%.0f", v);
	ww_str_adds(s, text);
	if (!strpbrk(text, ".einf"))
		ww_str_adds(s, ".0");
}

/* Control characters are escaped in lower case; jansson writes them in upper case. */
static void add_python_string(struct ww_str *s, const char *text, size_t n)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	ww_str_addc(s, '"');
	for (size_t i = 0; i < n; i++) {
		const char *p = text[i] ? strchr(from, text[i]) : NULL;
		if (p)
			ww_str_addf(s, "\\%c", to[p - from]);
		else if ((unsigned char)text[i] < 0x20)
			ww_str_addf(s, "\\u%04x", (unsigned)text[i]);
		else
			ww_str_addc(s, text[i]);
	}
	ww_str_addc(s, '"');
}

static void newline(struct ww_str *s, int indent, int depth)
{
	if (indent)
		ww_str_addf(s, "\n%*s", indent * depth, "");
}

/* As Python's json.dumps(v, ensure_ascii=False, indent=indent or None). */
static void add_python_json(struct ww_str *s, const json_t *v, int indent, int depth)
{
	int is_array = json_is_array(v), first = 1;
	if (json_is_real(v)) {
		add_real(s, json_real_value(v));
		return;
	}
	if (json_is_string(v)) {
		add_python_string(s, json_string_value(v), json_string_length(v));
		return;
	}
	size_t size = is_array ? json_array_size(v) : json_object_size(v);
	if (!size || depth == NESTING_MAX) {
		ww_json_add(s, v);
		return;
	}
	const char *key = NULL;
	const json_t *item;
	void *it = is_array ? NULL : json_object_iter((json_t *)v);
	ww_str_addc(s, is_array ? '[' : '{');
	for (size_t i = 0; i < size; i++) {
		ww_str_adds(s, first ? "" : indent ? "," : ", ");
		newline(s, indent, depth + 1);
		if (is_array) {
			item = json_array_get(v, i);
		} else {
			key = json_object_iter_key(it);
			item = json_object_iter_value(it);
			it = json_object_iter_next((json_t *)v, it);
			add_python_string(s, key, strlen(key));
			ww_str_adds(s, ": ");
		}
		add_python_json(s, item, indent, depth + 1);
		first = 0;
	}
	newline(s, indent, depth);
	ww_str_addc(s, is_array ? ']' : '}');
}

static void put_json(struct ww_chat *c, const json_t *v, int indent, int kind)
{
	add_python_json(&c->text, v, indent, 0);
	mark(c, kind);
}

/* Append the text of a message: a string, text parts, or nothing. */
static enum ww_rc add_content(struct ww_str *s, const json_t *m, struct ww_err *err)
{
	const json_t *v = json_object_get(m, "content"), *part;
	size_t i;
	if (json_is_string(v))
		ww_str_add(s, json_string_value(v), json_string_length(v));
	else if (!json_is_array(v) && v && !json_is_null(v))
		return ww_err_set(err, WW_ERR_USAGE, "a message's \"content\" is neither text nor a list of parts");
	json_array_foreach(v, i, part) {
		const json_t *text = json_object_get(part, "text");
		if (strcmp(ww_json_str(part, "type", ""), "text") || !json_is_string(text))
			return ww_err_set(err, WW_ERR_USAGE, "a message has a part of type \"%.40s\"; only text is supported",
				ww_json_str(part, "type", "?"));
		ww_str_add(s, json_string_value(text), json_string_length(text));
	}
	return WW_OK;
}

/* Text without the characters of `space` at its ends. */
struct span {
	const char *p;
	size_t n;
};

static struct span strip_left(struct span s, const char *space)
{
	while (s.n && *s.p && strchr(space, *s.p)) {
		s.p++;
		s.n--;
	}
	return s;
}

static struct span strip_right(struct span s, const char *space)
{
	while (s.n && s.p[s.n - 1] && strchr(space, s.p[s.n - 1]))
		s.n--;
	return s;
}

static void put_span(struct ww_chat *c, struct span s, int kind)
{
	ww_str_add(&c->text, s.p, s.n);
	mark(c, kind);
}

static enum ww_rc put_content(struct ww_chat *c, const json_t *m, int trim, int kind, struct ww_err *err)
{
	static const char space[] = " \t\n\r\v\f";
	ww_auto_str text = WW_STR_INIT(c->text.max);
	WW_CHECK(add_content(&text, m, err));
	struct span s = { text.p, text.len };
	put_span(c, trim ? strip_left(strip_right(s, space), space) : s, kind);
	c->text.cut |= text.cut;
	return WW_OK;
}

static const char *find(const char *p, const char *end, const char *what)
{
	return p <= end ? memmem(p, (size_t)(end - p), what, strlen(what)) : NULL;
}

static const char *role_of(const json_t *m) { return ww_json_str(m, "role", ""); }

static enum ww_rc call_parts(const json_t *call, const char **name, const json_t **args, struct ww_err *err)
{
	const json_t *f = json_object_get(call, "function");
	*name = ww_json_str(f ? f : call, "name", NULL);
	*args = json_object_get(f ? f : call, "arguments");
	if (!*name || (!json_is_string(*args) && !json_is_object(*args)))
		return ww_err_set(err, WW_ERR_USAGE, "a tool call has no name or no arguments");
	return WW_OK;
}

static enum ww_rc put_call(
	struct ww_chat *c, const json_t *call, const char *open, const char *middle, const char *close, struct ww_err *err)
{
	const char *name;
	const json_t *args;
	WW_CHECK(call_parts(call, &name, &args, err));
	put(c, open, MARKUP | LEARN);
	put(c, name, LEARN);
	put(c, middle, LEARN);
	if (json_is_string(args))
		put(c, json_string_value(args), LEARN);
	else
		put_json(c, args, 0, LEARN);
	put(c, close, MARKUP | LEARN);
	return WW_OK;
}

/* ---- ChatML */

/* Reasoning and answer of an assistant's message.  Where it has no reasoning_content, what stands before </think> in
 * its text is the reasoning. */
struct chatml_turn {
	struct ww_str content;
	struct span think, text;
	int has_think; /* also where it is newlines alone */
};

static enum ww_rc chatml_turn_init(struct chatml_turn *t, const json_t *m, size_t max, struct ww_err *err)
{
	const json_t *own = json_object_get(m, "reasoning_content");
	*t = (struct chatml_turn){ .content = WW_STR_INIT(max) };
	enum ww_rc rc = add_content(&t->content, m, err);
	const char *begin = t->content.p, *end = begin + t->content.len, *close = find(begin, end, "</think>"), *p;
	t->text = (struct span){ begin, t->content.len };
	if (json_is_string(own)) {
		t->think = (struct span){ json_string_value(own), json_string_length(own) };
		t->has_think = t->think.n > 0;
	} else if (close) {
		t->think = strip_right((struct span){ begin, (size_t)(close - begin) }, "\n");
		while ((p = find(t->think.p, t->think.p + t->think.n, "<think>"))) {
			t->think.n -= (size_t)(p + strlen("<think>") - t->think.p);
			t->think.p = p + strlen("<think>");
		}
		for (p = close; p; p = find(p, end, "</think>"))
			begin = p += strlen("</think>");
		t->text = strip_left((struct span){ begin, (size_t)(end - begin) }, "\n");
	}
	t->think = strip_left(strip_right(t->think, "\n"), "\n");
	t->has_think |= t->think.n > 0;
	return rc;
}

/* after_query: no question of the user follows.  In earlier turns the reasoning is dropped, as in training; the last
 * turn has a block for it even where it is empty (empty_think). */
static enum ww_rc chatml_assistant(
	struct ww_chat *c, const json_t *m, int after_query, int empty_think, struct ww_err *err)
{
	const json_t *calls = json_object_get(m, "tool_calls"), *call;
	struct chatml_turn t;
	size_t i;
	enum ww_rc rc = chatml_turn_init(&t, m, c->text.max, err);
	int has_think = after_query && (empty_think || t.has_think);
	put(c, "<|im_start|>assistant\n", MARKUP);
	if (has_think) {
		put(c, "<think>\n", MARKUP | LEARN);
		put_span(c, t.think, LEARN);
		put(c, "\n</think>\n\n", MARKUP | LEARN);
	}
	put_span(c, has_think ? strip_left(t.text, "\n") : t.text, LEARN);
	json_array_foreach(calls, i, call) {
		if (rc == WW_OK && (i || t.text.n))
			put(c, "\n", LEARN);
		if (rc == WW_OK)
			rc = put_call(c, call, "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", err);
	}
	put(c, "<|im_end|>", MARKUP | LEARN);
	put(c, "\n", MARKUP);
	c->text.cut |= t.content.cut;
	ww_str_release(&t.content);
	return rc;
}

static enum ww_rc chatml_system(struct ww_chat *c, const json_t *m, const json_t *tools, struct ww_err *err)
{
	const json_t *tool;
	size_t i;
	int has_tools = json_array_size(tools) > 0;
	if (!m && !has_tools)
		return WW_OK;
	put(c, "<|im_start|>system\n", MARKUP);
	if (m)
		WW_CHECK(put_content(c, m, 0, 0, err));
	if (m && has_tools)
		put(c, "\n\n", 0);
	if (has_tools) {
		put(c,
			"# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "
			"signatures within <tools></tools> XML tags:\n<tools>",
			MARKUP);
		json_array_foreach(tools, i, tool) {
			put(c, "\n", 0);
			put_json(c, tool, 0, 0);
		}
		put(c,
			"\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
			"<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
			"<args-json-object>}\n</tool_call>",
			MARKUP);
	}
	put(c, "<|im_end|>\n", MARKUP);
	return WW_OK;
}

static int is_role(const json_t *messages, size_t i, const char *role)
{
	return i < json_array_size(messages) && !strcmp(role_of(json_array_get(messages, i)), role);
}

static enum ww_rc chatml_message(
	struct ww_chat *c, const json_t *messages, size_t i, size_t last_query, int thinks, struct ww_err *err)
{
	const json_t *m = json_array_get(messages, i);
	const char *role = role_of(m);
	enum ww_rc rc;
	if (!strcmp(role, "assistant"))
		return chatml_assistant(c, m, i > last_query, thinks && i + 1 == json_array_size(messages), err);
	if (!strcmp(role, "tool")) {
		put(c, i && is_role(messages, i - 1, "tool") ? "\n<tool_response>\n" : "<|im_start|>user\n<tool_response>\n",
			MARKUP);
		rc = put_content(c, m, 0, 0, err);
		put(c, is_role(messages, i + 1, "tool") ? "\n</tool_response>" : "\n</tool_response><|im_end|>\n", MARKUP);
		return rc;
	}
	put(c, !strcmp(role, "user") ? "<|im_start|>user\n" : "<|im_start|>system\n", MARKUP);
	rc = put_content(c, m, 0, 0, err);
	put(c, "<|im_end|>\n", MARKUP);
	return rc;
}

/* The last message of the user that is not a tool's response as text; the last message where there is none. */
static size_t last_query_of(const json_t *messages)
{
	static const char open[] = "<tool_response>", close[] = "</tool_response>";
	size_t n = json_array_size(messages);
	for (size_t i = n; i-- > 0;) {
		ww_auto_str text = WW_STR_INIT(SIZE_MAX / 2);
		struct ww_err ignored = WW_ERR_INIT;
		if (!is_role(messages, i, "user"))
			continue;
		int is_text = add_content(&text, json_array_get(messages, i), &ignored) == WW_OK;
		int is_response = is_text && text.len >= sizeof(close) - 1 && !strncmp(text.p, open, sizeof(open) - 1) &&
			!strcmp(text.p + text.len - sizeof(close) + 1, close);
		if (!is_response)
			return i;
	}
	return n - 1;
}

static enum ww_rc render_chatml(
	const json_t *messages, const json_t *tools, int generate, int thinks, struct ww_chat *c, struct ww_err *err)
{
	size_t n = json_array_size(messages), first = is_role(messages, 0, "system"), last = last_query_of(messages);
	enum ww_rc rc = chatml_system(c, first ? json_array_get(messages, 0) : NULL, tools, err);
	for (size_t i = first; rc == WW_OK && i < n; i++)
		rc = chatml_message(c, messages, i, last, thinks, err);
	if (generate)
		put(c, "<|im_start|>assistant\n", MARKUP);
	return rc;
}

/* ---- Llama 3 */

static void llama3_header(struct ww_chat *c, const char *role)
{
	put(c, "<|start_header_id|>", MARKUP);
	put(c, role, MARKUP);
	put(c, "<|end_header_id|>\n\n", MARKUP);
}

static enum ww_rc llama3_system(struct ww_chat *c, const json_t *m, const json_t *tools, struct ww_err *err)
{
	const json_t *tool;
	size_t i;
	int has_tools = json_array_size(tools) > 0;
	put(c, "<|begin_of_text|>", MARKUP);
	llama3_header(c, "system");
	if (has_tools)
		put(c, "Environment: ipython\n", 0);
	put(c, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n", 0);
	if (has_tools)
		put(c,
			"You have access to the following functions. To call a function, please respond with JSON for a function "
			"call.Respond in the format {\"name\": function name, \"parameters\": dictionary of argument name and its "
			"value}.Do not use variables.\n\n",
			0);
	json_array_foreach(tools, i, tool) {
		put_json(c, tool, 4, 0);
		put(c, "\n\n", 0);
	}
	enum ww_rc rc = m ? put_content(c, m, 1, 0, err) : WW_OK;
	put(c, "<|eot_id|>", MARKUP);
	return rc;
}

static enum ww_rc llama3_message(struct ww_chat *c, const json_t *m, struct ww_err *err)
{
	const char *role = role_of(m);
	const json_t *calls = json_object_get(m, "tool_calls");
	int learn = !strcmp(role, "assistant") ? LEARN : 0;
	llama3_header(c, !strcmp(role, "tool") ? "ipython" : role);
	if (json_array_size(calls) > 1)
		return ww_err_set(
			err, WW_ERR_USAGE, "the Llama 3 form has room for one tool call a turn, not %zu", json_array_size(calls));
	if (json_array_size(calls)) {
		WW_CHECK(put_call(c, json_array_get(calls, 0), "{\"name\": \"", "\", \"parameters\": ", "}", err));
	} else if (!strcmp(role, "tool")) { /* the template writes results as JSON, also when they are text */
		WW_AUTO(ww_chat_release) struct ww_chat plain;
		ww_chat_init(&plain, c->text.max);
		WW_CHECK(put_content(&plain, m, 0, 0, err));
		json_auto_t *v = json_stringn(plain.text.p, plain.text.len);
		put_json(c, v, 0, 0);
	} else {
		WW_CHECK(put_content(c, m, 1, learn, err));
	}
	put(c, "<|eot_id|>", MARKUP | learn);
	return WW_OK;
}

static enum ww_rc render_llama3(
	const json_t *messages, const json_t *tools, int generate, struct ww_chat *c, struct ww_err *err)
{
	size_t n = json_array_size(messages), first = is_role(messages, 0, "system");
	enum ww_rc rc = llama3_system(c, first ? json_array_get(messages, 0) : NULL, tools, err);
	for (size_t i = first; rc == WW_OK && i < n; i++)
		rc = llama3_message(c, json_array_get(messages, i), err);
	if (generate)
		llama3_header(c, "assistant");
	return rc;
}

enum ww_rc ww_chat_render(enum ww_chat_format f, const json_t *messages, const json_t *tools, int generate,
	struct ww_chat *out, struct ww_err *err)
{
	static const char *const roles[] = { "system", "user", "assistant", "tool" };
	const json_t *m;
	size_t i;
	if (!json_is_array(messages) || (tools && !json_is_array(tools) && !json_is_null(tools)))
		return ww_err_set(err, WW_ERR_USAGE, "messages and tools must be arrays");
	json_array_foreach(messages, i, m)
		if (ww_word_at(role_of(m), roles, WW_ARRAY_LEN(roles)) < 0)
			return ww_err_set(err, WW_ERR_USAGE,
				"message %zu has the role \"%.40s\"; it must be system, user, assistant or tool", i, role_of(m));
	enum ww_rc rc = f == WW_CHAT_LLAMA3 ? render_llama3(messages, tools, generate, out, err)
										: render_chatml(messages, tools, generate, f == WW_CHAT_CHATML, out, err);
	if (rc == WW_OK && out->text.cut)
		rc = ww_err_set(err, WW_ERR_LIMIT, "the conversation is longer than %zu bytes", out->text.max);
	return rc;
}

enum ww_rc ww_chat_detect(const struct ww_tok *t, enum ww_chat_format *out, struct ww_err *err)
{
	if (ww_tok_id(t, "<|im_start|>") >= 0 && ww_tok_id(t, "<|im_end|>") >= 0)
		*out = ww_tok_id(t, "<think>") >= 0 ? WW_CHAT_CHATML : WW_CHAT_CHATML_PLAIN;
	else if (ww_tok_id(t, "<|start_header_id|>") >= 0 && ww_tok_id(t, "<|eot_id|>") >= 0)
		*out = WW_CHAT_LLAMA3;
	else
		return ww_err_set(err, WW_ERR_USAGE,
			"the tokenizer has the special tokens of neither ChatML nor Llama 3, so there is no "
			"form for conversations");
	return WW_OK;
}

int32_t ww_chat_end_id(const struct ww_tok *t, enum ww_chat_format f)
{
	return ww_tok_id(t, f == WW_CHAT_LLAMA3 ? "<|eot_id|>" : "<|im_end|>");
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

enum { CHAT_MAX_BYTES = 1 << 30 };

static const json_t *sampled_ids(const json_t *m)
{
	const json_t *ids = json_object_get(json_object_get(m, "tokens"), "ids");
	return !strcmp(role_of(m), "assistant") && json_array_size(ids) ? ids : NULL;
}

int ww_chat_ends(const struct ww_tok *t, const struct ww_chat_source *s, int32_t id)
{
	int ends = id == ww_chat_end_id(t, s->format);
	for (int i = 0; i < s->config->eos_count; i++)
		ends |= id == s->config->eos[i];
	return ends;
}

/* The tokens of a turn as they were sampled, with the end that a turn cut off lacks; *said: how many were sampled. */
static enum ww_rc add_sampled(struct ww_tok *t, const struct ww_chat_source *s, const json_t *list, struct ww_ids *ids,
	size_t *said, struct ww_err *err)
{
	const json_t *v;
	json_int_t id = -1;
	size_t i;
	int ok = 1;
	*said = json_array_size(list);
	json_array_foreach(list, i, v) {
		id = json_is_integer(v) ? json_integer_value(v) : -1;
		if (id < 0 || id >= s->config->vocab_size)
			return ww_err_set(
				err, WW_ERR_USAGE, "a message's \"tokens\" has an element that is no token id of the model");
		ok = ok && ww_ids_add(ids, (int32_t)id);
	}
	if (ok && !ww_chat_ends(t, s, (int32_t)id))
		ok = ww_ids_add(ids, ww_chat_end_id(t, s->format));
	return ok ? WW_OK : ww_err_set(err, WW_ERR_LIMIT, "the conversation has more than %zu tokens", ids->max);
}

/* The next message of an assistant at or after *at. */
static const json_t *next_turn(const json_t *messages, size_t *at)
{
	while (*at < json_array_size(messages) && !is_role(messages, *at, "assistant"))
		(*at)++;
	return json_array_get(messages, (*at)++);
}

/* s may be NULL: nothing was sampled. */
static enum ww_rc encode_parts(struct ww_tok *t, const struct ww_chat *c, const struct ww_chat_source *s,
	struct ww_ids *ids, struct ww_str *learn, struct ww_err *err)
{
	ww_auto_free struct ww_tok_span *spans = calloc(c->count + 1, sizeof(*spans));
	enum ww_rc rc = spans ? WW_OK : ww_nomem(err);
	for (size_t i = 0, begin = 0, at = 0; rc == WW_OK && i < c->count;) {
		size_t n = 0, before = ids->n, said = SIZE_MAX;
		int is_learn = c->parts[i].learn;
		for (; i < c->count && c->parts[i].learn == is_learn; i++) {
			spans[n++] = (struct ww_tok_span){ c->text.p + begin, c->parts[i].end - begin, c->parts[i].special };
			begin = c->parts[i].end;
		}
		const json_t *turn = s && is_learn ? next_turn(s->messages, &at) : NULL;
		const json_t *sampled = turn ? sampled_ids(turn) : NULL;
		rc = sampled ? add_sampled(t, s, sampled, ids, &said, err) : ww_tok_encode_spans(t, spans, n, 0, ids, err);
		for (size_t k = before; learn && k < ids->n; k++)
			ww_str_addc(learn, (char)(is_learn && ww_json_bool(turn, "learn", 1) && k - before < said));
	}
	if (rc == WW_OK && learn && learn->cut)
		rc = ww_err_set(err, WW_ERR_LIMIT, "the conversation has too many tokens");
	return rc;
}

enum ww_rc ww_chat_encode(
	struct ww_tok *t, const struct ww_chat *c, struct ww_ids *ids, struct ww_str *learn, struct ww_err *err)
{
	return encode_parts(t, c, NULL, ids, learn, err);
}

/* The messages, those that were sampled without their text. */
static json_t *without_sampled_text(const json_t *messages)
{
	json_t *list = json_array(), *m;
	size_t i;
	json_array_foreach((json_t *)messages, i, m) {
		if (sampled_ids(m))
			json_array_append_new(list, json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
		else
			json_array_append(list, m);
	}
	return list;
}

enum ww_rc ww_chat_ids(
	struct ww_tok *t, const struct ww_chat_source *s, struct ww_ids *ids, struct ww_str *learn, struct ww_err *err)
{
	WW_AUTO(ww_chat_release) struct ww_chat chat;
	json_auto_t *messages = json_is_array(s->messages) ? without_sampled_text(s->messages) : NULL;
	ww_chat_init(&chat, CHAT_MAX_BYTES);
	WW_CHECK(ww_chat_render(s->format, messages, s->tools, s->generate, &chat, err));
	return encode_parts(t, &chat, s, ids, learn, err);
}

/* ---- answers */

/* {"name": .., "arguments"|"parameters": ..} as an entry of tool_calls, or NULL. */
static json_t *parse_call(const char *text, size_t n, const char *args_key, size_t number)
{
	json_t *v = json_loadb(text, n, 0, NULL), *call = NULL;
	const json_t *args = json_object_get(v, args_key);
	const char *name = json_string_value(json_object_get(v, "name"));
	if (name && (json_is_object(args) || json_is_string(args))) {
		ww_auto_str s = WW_STR_INIT(n * 8 + 64);
		char id[32];
		snprintf(id, sizeof(id), "call_%zu", number);
		if (json_is_object(args))
			add_python_json(&s, args, 0, 0);
		else
			ww_str_adds(&s, json_string_value(args));
		call = json_pack(
			"{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function", "name", name, "arguments", s.p);
	}
	json_decref(v);
	return call;
}

static void trim_span(const char **p, size_t *n)
{
	static const char space[] = " \t\n\r";
	struct span s = strip_left(strip_right((struct span){ *p, *n }, space), space);
	*p = s.p;
	*n = s.n;
}

/* Take the <tool_call> blocks out of the text; what is left is content. */
static void parse_chatml_calls(const char *p, const char *end, struct ww_str *content, json_t *calls)
{
	static const char open[] = "<tool_call>", close[] = "</tool_call>";
	for (;;) {
		const char *a = find(p, end, open), *b = a ? find(a, end, close) : NULL;
		json_t *call = b
			? parse_call(a + sizeof(open) - 1, (size_t)(b - a) - sizeof(open) + 1, "arguments", json_array_size(calls))
			: NULL;
		const char *next = b ? b + sizeof(close) - 1 : end;
		ww_str_add(content, p, (size_t)((call ? a : next) - p));
		if (call)
			json_array_append_new(calls, call);
		if (!b)
			return;
		p = next;
	}
}

json_t *ww_chat_parse(enum ww_chat_format f, const char *text, size_t n)
{
	ww_auto_str content = WW_STR_INIT(n + 1);
	json_t *m = json_object(), *calls = json_array();
	const char *end = text + n;
	json_object_set_new(m, "role", json_string("assistant"));
	if (f != WW_CHAT_LLAMA3) {
		const char *close = n >= 7 && !memcmp(text, "<think>", 7) ? find(text, end, "</think>") : NULL;
		if (close) {
			const char *think = text + 7;
			size_t think_n = (size_t)(close - think);
			trim_span(&think, &think_n);
			json_object_set_new(m, "reasoning_content", json_stringn(think, think_n));
			text = close + strlen("</think>");
		}
		parse_chatml_calls(text, end, &content, calls);
	} else {
		const char *p = text;
		size_t left = n;
		trim_span(&p, &left);
		json_t *call = parse_call(p, left, "parameters", 0);
		if (call)
			json_array_append_new(calls, call);
		else
			ww_str_add(&content, text, n);
	}
	const char *p = content.p;
	size_t left = content.len;
	if (json_array_size(calls) || json_object_get(m, "reasoning_content"))
		trim_span(&p, &left);
	json_t *body = json_stringn(p, left);
	json_object_set_new(m, "content", body ? body : json_null());
	if (json_array_size(calls))
		json_object_set(m, "tool_calls", calls);
	json_decref(calls);
	return m;
}

/* The string after "KEY": in text that is not quite JSON. */
static void loose_string(const char *text, size_t n, const char *key, struct ww_str *out)
{
	const char *end = text + n, *p = find(text, end, key);
	p = p ? memchr(p, ':', (size_t)(end - p)) : NULL;
	p = p ? memchr(p, '"', (size_t)(end - p)) : NULL;
	const char *q = p ? memchr(p + 1, '"', (size_t)(end - p) - 1) : NULL;
	if (q)
		ww_str_add(out, p + 1, (size_t)(q - p) - 1);
}

static json_t *broken_call(const char *text, size_t n, const char *args_key)
{
	ww_auto_str name = WW_STR_INIT(128);
	const char *end = text + n, *args = find(text, end, args_key);
	loose_string(text, n, "\"name\"", &name);
	args = args ? memchr(args, ':', (size_t)(end - args)) : NULL;
	args = args ? args + 1 : text;
	size_t left = (size_t)(end - args);
	trim_span(&args, &left);
	if (args != text && left > 1 && args[left - 1] == '}') /* that of the call around them */
		left--;
	json_t *a = json_stringn(args, left), *m = json_string(name.p);
	return json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", "", "type", "function", "function", "name",
		m ? m : json_string(""), "arguments", a ? a : json_string(""));
}

json_t *ww_chat_broken_calls(enum ww_chat_format f, const char *content)
{
	static const char open[] = "<tool_call>", close[] = "</tool_call>";
	json_t *calls = json_array();
	const char *end = content + strlen(content), *p = content;
	if (f == WW_CHAT_LLAMA3) {
		size_t n = (size_t)(end - p);
		trim_span(&p, &n);
		if (n && *p == '{' && find(p, p + n, "\"name\""))
			json_array_append_new(calls, broken_call(p, n, "\"parameters\""));
		return calls;
	}
	while ((p = find(p, end, open))) {
		const char *b = find(p, end, close);
		p += sizeof(open) - 1;
		json_array_append_new(calls, broken_call(p, (size_t)((b ? b : end) - p), "\"arguments\""));
		p = b ? b + sizeof(close) - 1 : end;
	}
	return calls;
}
