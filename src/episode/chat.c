/* chat.c - an episode as a conversation for training (form: view.h).
 *
 * All messages are in it, also those that a compaction later hid from the policy; so switch compaction off (optimize
 * --no-compaction) for episodes to train on.  Arguments are objects, as TRL and chat templates have it; a call
 * whose text is not an object keeps its text under "INVALID_JSON", so that no message is dropped and none is invented.
 */
#include "episode/view.h"

#include "base/json.h"

#include <string.h>

static json_t *arguments(const struct ww_tool_call *c, int as_text)
{
	if (as_text)
		return json_string(c->arguments);
	json_t *o = json_loads(*c->arguments ? c->arguments : "{}", 0, NULL);
	if (json_is_object(o))
		return o;
	json_decref(o);
	return json_pack("{s:s}", "INVALID_JSON", c->arguments);
}

static json_t *calls(const struct ww_message *m, int as_text)
{
	json_t *list = json_array();
	for (size_t i = 0; i < m->n_calls; i++)
		json_array_append_new(list,
			json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", m->calls[i].id, "type", "function", "function", "name",
				m->calls[i].name, "arguments", arguments(&m->calls[i], as_text)));
	return list;
}

static json_t *numbers(const float *p, size_t n)
{
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, ww_json_real((double)p[i]));
	return list;
}

static json_t *whole_numbers(const int32_t *p, size_t n)
{
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer(p[i]));
	return list;
}

json_t *ww_episode_tokens(const struct ww_reply *r)
{
	json_t *o = json_object(), *ids = whole_numbers(r->token_ids, r->n_tokens);
	json_object_set_new(o, "ids", ids);
	if (r->context_ids) {
		json_object_set_new(o, "context_at", json_integer(r->context_at));
		json_object_set_new(o, "context", whole_numbers(r->context_ids, r->n_context));
	}
	if (r->logprobs)
		json_object_set_new(o, "logprobs", numbers(r->logprobs, r->n_tokens));
	if (r->sampling_logprobs)
		json_object_set_new(o, "sampling_logprobs", numbers(r->sampling_logprobs, r->n_tokens));
	return o;
}

static json_t *message(const struct ww_reply *r, int flags)
{
	const struct ww_message *m = &r->message;
	int as_text = flags & WW_EPISODE_TEXT_ARGUMENTS;
	json_t *o = json_pack("{s:s, s:s}", "role", ww_role_name(m->role), "content", m->text);
	if (m->reasoning)
		json_object_set_new(o, "reasoning_content", json_string(m->reasoning));
	if (m->n_calls)
		json_object_set_new(o, "tool_calls", calls(m, as_text));
	if (r->n_tokens && r->token_ids && !(flags & WW_EPISODE_NO_TOKENS))
		json_object_set_new(o, "tokens", ww_episode_tokens(r));
	if (m->role == WW_ROLE_TOOL) {
		json_object_set_new(o, "tool_call_id", json_string(m->call_id));
		json_object_set_new(o, "name", json_string(m->tool));
	}
	return o;
}

static json_t *tools(const json_t *header)
{
	json_t *list = json_array(), *t;
	size_t i;
	json_array_foreach(header, i, t)
		json_array_append_new(list, json_pack("{s:s, s:O}", "type", "function", "function", t));
	return list;
}

json_t *ww_episode_to_chat(const struct ww_episode *e, int flags)
{
	const struct ww_episode_header *h = &e->header;
	json_t *list = json_array();
	int turns = 0;
	for (size_t i = 0; i < e->n_messages; i++) {
		turns += e->messages[i].reply.message.role == WW_ROLE_ASSISTANT;
		json_array_append_new(list, message(&e->messages[i].reply, flags));
	}
	json_t *o = json_pack("{s:o, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:b, s:b}", "messages", list, "tools",
		tools(h->tools), "task", h->task_path, "task_id", h->task_id, "target", h->target, "device", h->device, "rule",
		h->rule, "policy", h->policy, "seed", (json_int_t)h->seed, "turns", turns, "ended", e->ended, "compacted",
		e->n_compactions > 0);
	if (!o)
		return NULL;
	if (*h->task_signature)
		json_object_set_new(o, "task_signature", json_string(h->task_signature));
	json_object_set_new(o, "reason", e->ended ? json_string(e->end.reason) : json_null());
	json_object_set_new(o, "reward_final", e->ended ? ww_json_real(e->end.reward_final) : json_null());
	json_object_set_new(o, "reward_best", e->ended ? ww_json_real(e->end.reward_best) : json_null());
	return o;
}
