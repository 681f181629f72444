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

/* ---- The compact form -------------------------------------------------------------------------------------------- */

/* A policy that is a program writes files and asks for the graph by calls.  In the compact form (agent/compact.h) its
 * files stand in the answer, plan.c first, and the graph in the prompt; a single turn has no calls. */
static int is_file(const struct ww_tool_call *c) { return !strcmp(c->name, "write"); }

static int is_told(const struct ww_episode_header *h, const char *tool)
{
	return !strcmp(tool, "inspect") || !strcmp(tool, "write") || !strcmp(h->loop, "single");
}

/* Add plan.c alone (plan = 1), or all other files. */
static void add_files(const struct ww_message *m, int plan, struct ww_str *answer)
{
	for (size_t i = 0; i < m->n_calls; i++) {
		json_auto_t *args = is_file(&m->calls[i]) ? json_loads(m->calls[i].arguments, 0, NULL) : NULL;
		const char *path = ww_json_str(args, "path", ""), *text = ww_json_str(args, "text", "");
		size_t n = strlen(text);
		int is_plan = !strcmp(path, "plan.c");
		if (*path && is_plan == plan)
			ww_str_addf(answer, "```%s\n%s%s```\n", path, text, n && text[n - 1] == '\n' ? "" : "\n");
	}
}

/* A message in the compact form, a new reference; NULL: nothing of it is left. */
static json_t *compact_message(const struct ww_episode_header *h, const struct ww_reply *r, int flags)
{
	const struct ww_message *m = &r->message;
	ww_auto_str answer = WW_STR_INIT((size_t)1 << 30);
	json_t *call;
	size_t i;
	if (m->role == WW_ROLE_TOOL && is_told(h, m->tool))
		return NULL;
	json_t *o = message(r, flags);
	if (m->role != WW_ROLE_ASSISTANT || r->n_tokens || !m->n_calls)
		return o;
	add_files(m, 1, &answer);
	add_files(m, 0, &answer);
	json_t *kept = json_array();
	json_array_foreach(json_object_get(o, "tool_calls"), i, call)
		if (!is_told(h, m->calls[i].name))
			json_array_append(kept, call);
	int empty = !answer.len && !json_array_size(kept);
	json_object_set_new(o, "tool_calls", kept);
	json_object_set_new(o, "content", json_string(answer.p));
	if (!json_array_size(kept))
		json_object_del(o, "tool_calls");
	if (empty)
		json_decref(o);
	return empty ? NULL : o;
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
		const struct ww_reply *r = &e->messages[i].reply;
		json_t *o = strcmp(h->prompt, "compact") ? message(r, flags) : compact_message(h, r, flags);
		turns += r->message.role == WW_ROLE_ASSISTANT;
		if (o)
			json_array_append_new(list, o);
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
