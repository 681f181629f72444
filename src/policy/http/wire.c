/* wire.c - what both protocols share: see wire.h. */
#include "policy/http/wire.h"

#include <stdlib.h>
#include <string.h>

void ww_wire_reply_init(struct ww_wire_reply *r)
{
	memset(r, 0, sizeof(*r));
	ww_str_init(&r->failure, 2048);
}

void ww_wire_reply_release(struct ww_wire_reply *r)
{
	for (size_t i = 0; i < r->n_parts; i++) {
		struct ww_wire_part *p = &r->parts[i];
		ww_str_release(&p->text), ww_str_release(&p->id), ww_str_release(&p->name), ww_str_release(&p->signature);
		json_decref(p->raw);
	}
	free(r->parts);
	ww_str_release(&r->failure);
	memset(r, 0, sizeof(*r));
}

struct ww_wire_part *ww_wire_part(struct ww_wire_reply *r, enum ww_wire_kind kind, int64_t index)
{
	for (size_t i = r->n_parts; i-- > 0;)
		if (r->parts[i].kind == kind && r->parts[i].index == index)
			return &r->parts[i];
	if (r->n_parts == WW_WIRE_PARTS_MAX || !WW_GROW(r->parts, &r->cap_parts, r->n_parts + 1)) {
		r->too_long = 1;
		return NULL;
	}
	struct ww_wire_part *p = &r->parts[r->n_parts++];
	*p = (struct ww_wire_part){ .kind = kind, .index = index };
	ww_str_init(&p->text, WW_WIRE_REPLY_MAX_BYTES);
	ww_str_init(&p->id, 256);
	ww_str_init(&p->name, 256);
	ww_str_init(&p->signature, WW_WIRE_REPLY_MAX_BYTES);
	return p;
}

void ww_wire_add(struct ww_wire_reply *r, struct ww_str *to, const char *text)
{
	size_t n = text ? strlen(text) : 0;
	if (r->too_long || n > WW_WIRE_REPLY_MAX_BYTES - r->bytes) {
		r->too_long |= n > 0;
		return;
	}
	r->bytes += n;
	ww_str_add(to, text, n);
}

void ww_wire_fail(struct ww_wire_reply *r, const json_t *error)
{
	const char *message = json_is_string(error) ? json_string_value(error)
												: ww_json_str(error, "message", "no reason given");
	r->failed = 1;
	ww_str_reset(&r->failure);
	ww_str_adds(&r->failure, ww_json_str(error, "type", ""));
	if (r->failure.len)
		ww_str_adds(&r->failure, ": ");
	ww_str_add_bounded(&r->failure, message, strlen(message), 1024);
}

/* ---- The finished message ---------------------------------------------------------------------------------------- */

static char *join(const struct ww_wire_reply *r, enum ww_wire_kind kind)
{
	struct ww_str s = WW_STR_INIT(2 * WW_WIRE_REPLY_MAX_BYTES);
	for (size_t i = 0; i < r->n_parts; i++)
		if (r->parts[i].kind == kind)
			ww_str_add(&s, r->parts[i].text.p, r->parts[i].text.len);
	return ww_str_take(&s);
}

static int take_calls(struct ww_wire_reply *r, struct ww_message *m)
{
	m->calls = calloc(r->n_parts + 1, sizeof(*m->calls));
	for (size_t i = 0; m->calls && i < r->n_parts; i++) {
		struct ww_wire_part *p = &r->parts[i];
		if (p->kind != WW_WIRE_CALL)
			continue;
		struct ww_tool_call *c = &m->calls[m->n_calls++];
		c->id = ww_str_take(&p->id);
		c->name = ww_str_take(&p->name);
		c->arguments = ww_str_take(&p->text);
		if (!c->id || !c->name || !c->arguments)
			return 0;
	}
	return m->calls != NULL;
}

static int take_native(const struct ww_wire *w, const struct ww_wire_reply *r, struct ww_message *m)
{
	json_t *native = w->native(r);
	if (!native)
		return 1;
	struct ww_str text = WW_STR_INIT(4 * WW_WIRE_REPLY_MAX_BYTES);
	ww_json_add(&text, native);
	json_decref(native);
	return !text.cut && (m->native = ww_str_take(&text)) != NULL;
}

enum ww_rc ww_wire_finish(const struct ww_wire *w, struct ww_wire_reply *r, struct ww_reply *out, struct ww_err *err)
{
	struct ww_message *m = &out->message;
	int refused = r->finish == WW_FINISH_REFUSAL, ok = take_native(w, r, m);
	m->role = WW_ROLE_ASSISTANT;
	m->text = join(r, WW_WIRE_TEXT);
	m->reasoning = join(r, WW_WIRE_THINKING);
	if (m->reasoning && !*m->reasoning) {
		free(m->reasoning);
		m->reasoning = NULL;
	}
	if (!refused) /* what a model called before it refused is not carried out */
		ok = ok && take_calls(r, m);
	if (refused || r->too_long) {
		free(m->native); /* cut, or without its calls: nothing that could be sent back unchanged */
		m->native = NULL;
	}
	out->finish = r->too_long ? WW_FINISH_LENGTH : r->finish;
	if (out->finish == WW_FINISH_STOP && m->n_calls)
		out->finish = WW_FINISH_TOOL_CALLS; /* some servers say "stop" after calls */
	return ok && m->text ? WW_OK : ww_err_set(err, WW_ERR_NOMEM, "out of memory for a reply");
}

/* ---- Back to the server ------------------------------------------------------------------------------------------ */

json_t *ww_wire_arguments(const char *text)
{
	json_t *o = json_loads(text[strspn(text, " \t\r\n")] ? text : "{}", JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(o))
		return o;
	json_decref(o);
	return json_pack("{s:s}", "INVALID_JSON", text);
}

json_t *ww_wire_tools(const struct ww_ask *ask, json_t *(*one)(const struct ww_tool_spec *t, json_t *schema))
{
	json_t *list = json_array();
	for (size_t i = 0; i < ask->n_tools; i++)
		json_array_append_new(list, one(&ask->tools[i], json_loads(ask->tools[i].schema, 0, NULL)));
	return list;
}

/* msg->native where it was written by this wire, else NULL. */
static json_t *native_of(const struct ww_wire *w, const struct ww_message *m)
{
	json_t *o = m->native ? json_loads(m->native, 0, NULL) : NULL;
	if (o && !strcmp(ww_json_str(o, "protocol", ""), w->name))
		return o;
	json_decref(o);
	return NULL;
}

const struct ww_message *ww_wire_next(struct ww_wire_walk *w)
{
	const struct ww_message *m = w->at < w->ask->n ? &w->ask->msgs[w->at++] : NULL;
	if (!m || m->role == WW_ROLE_ASSISTANT) {
		json_decref(w->native);
		w->native = m ? native_of(w->wire, m) : NULL;
		w->asked = m;
		w->answered = 0;
	} else if (m->role == WW_ROLE_TOOL) {
		int is_answer = w->asked && w->answered < w->asked->n_calls;
		w->call_id = is_answer ? ww_wire_call_id(w->native, w->asked, w->answered++) : m->call_id;
	}
	return m;
}

const char *ww_wire_call_id(const json_t *native, const struct ww_message *m, size_t index)
{
	const char *id = json_string_value(json_array_get(json_object_get(native, "ids"), index));
	return id && *id ? id : m->calls[index].id;
}
