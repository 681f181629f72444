/* model.c - model:DIR, a policy that is a model of ours.
 *
 * The conversation goes to the model in its own chat form (nn/chat.c).  What the model said in earlier turns goes back
 * token by token as it was sampled: each reply carries its tokens in `native`.  So the context is exactly what
 * log-probabilities were recorded for, and each turn begins with the whole of the one before, whose keys are still in
 * the cache.
 *
 * A reply's random numbers belong to the episode's seed and the number of the turn; with the same messages a fresh
 * instance says the same.  That is also why there is no journal: a reply that was cut off by a kill is computed again,
 * to the same tokens.
 *
 * A malformed call is passed on with as much as can be read of it, since the loop answers it with its
 * error; as plain text it would end the episode.  The loop keeps the conversation within the model's context
 * (context_tokens); for one that does not fit the reply is empty and cut off, as a server's would be, and a first
 * prompt that does not fit is an error.
 */
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/range.h"
#include "infer/engine.h"
#include "nn/find.h"
#include "nn/settings.h"
#include "policy/model.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "policy/policy.h"

enum { DEFAULT_REPLY_TOKENS = 32768 };

struct model {
	struct ww_policy base;
	struct ww_engine *engine;
	enum ww_chat_format format;
	uint64_t seed;
	int64_t max_reply;
	struct ww_settings settings; /* of the directory; over an engine that is there: none */
};

/* ---- Messages to tokens ------------------------------------------------------------------------------------------ */

static json_t *text_json(const char *s) { return json_stringn_nocheck(s, strlen(s)); }

/* A message of the model's own goes back as the tokens that it was sampled as. */
static json_t *message_json(const struct ww_message *m)
{
	json_auto_t *native = m->role == WW_ROLE_ASSISTANT && m->native ? json_loads(m->native, 0, NULL) : NULL;
	json_t *o = json_pack("{s:s, s:o}", "role", ww_role_name(m->role), "content", text_json(m->text));
	json_t *ids = json_object_get(native, "tokens"), *calls = m->n_calls ? json_array() : NULL;
	if (ids)
		json_object_set_new(o, "tokens", json_pack("{s:O}", "ids", ids));
	if (m->reasoning)
		json_object_set_new(o, "reasoning_content", text_json(m->reasoning));
	for (size_t i = 0; i < m->n_calls; i++)
		json_array_append_new(calls,
			json_pack("{s:{s:o, s:o}}", "function", "name", text_json(m->calls[i].name), "arguments",
				text_json(m->calls[i].arguments)));
	if (calls)
		json_object_set_new(o, "tool_calls", calls);
	return o;
}

static json_t *tools_json(const struct ww_ask *ask)
{
	json_t *list = json_array();
	for (size_t i = 0; i < ask->n_tools && !ask->tools_are_told; i++) {
		const struct ww_tool_spec *t = &ask->tools[i];
		json_array_append_new(list,
			json_pack("{s:s, s:{s:s, s:s, s:o}}", "type", "function", "function", "name", t->name, "description",
				t->description, "parameters", json_loads(t->schema, 0, NULL)));
	}
	return list;
}

/* Append the conversation's tokens. */
static enum ww_rc encode(
	struct model *m, const struct ww_ask *ask, int generate, struct ww_ids *ids, struct ww_err *err)
{
	json_auto_t *messages = json_array(), *tools = tools_json(ask);
	for (size_t i = 0; i < ask->n; i++)
		json_array_append_new(messages, message_json(&ask->msgs[i]));
	struct ww_chat_source source = { m->format, messages, tools, generate, ww_engine_config(m->engine) };
	return ww_chat_ids(ww_engine_tok(m->engine), &source, ids, NULL, err);
}

static int64_t model_count(struct ww_policy *self, const struct ww_message *msgs, size_t n)
{
	WW_AUTO(ww_ids_release) struct ww_ids ids = WW_IDS_INIT(SIZE_MAX / 8);
	struct ww_err ignored = WW_ERR_INIT;
	struct ww_ask ask = { .msgs = msgs, .n = n };
	int64_t count = encode((struct model *)self, &ask, 1, &ids, &ignored) == WW_OK ? (int64_t)ids.n : INT64_MAX / 4;
	return count ? count : 1;
}

/* ---- Tokens to a reply ------------------------------------------------------------------------------------------- */

static enum ww_rc add_calls(struct ww_message *m, const json_t *calls, struct ww_err *err)
{
	const json_t *call;
	size_t i;
	if (!json_array_size(calls))
		return WW_OK;
	m->calls = calloc(json_array_size(calls), sizeof(*m->calls));
	json_array_foreach(calls, i, call) {
		const json_t *f = json_object_get(call, "function");
		if (!m->calls)
			break;
		struct ww_tool_call *c = &m->calls[m->n_calls++];
		c->id = strdup(ww_json_str(call, "id", ""));
		c->name = strdup(ww_json_str(f, "name", ""));
		c->arguments = strdup(ww_json_str(f, "arguments", ""));
		if (!c->id || !c->name || !c->arguments)
			return ww_nomem(err);
	}
	return m->calls ? WW_OK : ww_nomem(err);
}

enum ww_rc ww_model_read_reply(
	enum ww_chat_format f, const char *text, size_t n, int whole, struct ww_message *m, struct ww_err *err)
{
	json_t *v = ww_chat_parse(f, text, n), *broken = NULL;
	const char *content = ww_json_str(v, "content", ""), *thought = ww_json_str(v, "reasoning_content", NULL);
	const json_t *calls = json_object_get(v, "tool_calls");
	enum ww_rc rc = v ? WW_OK : ww_nomem(err);
	m->role = WW_ROLE_ASSISTANT;
	m->text = strdup(content);
	m->reasoning = thought ? strdup(thought) : NULL;
	if (rc == WW_OK && (!m->text || (thought && !m->reasoning)))
		rc = ww_nomem(err);
	if (rc == WW_OK && whole && !calls)
		calls = broken = ww_chat_broken_calls(f, content);
	if (rc == WW_OK)
		rc = add_calls(m, calls, err);
	json_decref(broken);
	json_decref(v);
	return rc;
}

/* What goes back to the model in later turns, and the hash of what it was sampled after. */
static char *native_of(const struct ww_engine_answer *a, const struct ww_ids *prompt)
{
	struct ww_str s = WW_STR_INIT(a->ids.n * 12 + 128);
	ww_str_addf(
		&s, "{\"prompt\":\"%016" PRIx64 "\",\"tokens\":[", ww_hash_fnv(prompt->p, prompt->n * sizeof(*prompt->p)));
	for (size_t i = 0; i < a->ids.n; i++)
		ww_str_addf(&s, "%s%d", i ? "," : "", a->ids.p[i]);
	ww_str_adds(&s, "]}");
	return ww_str_take(&s);
}

static int begins_with(const struct ww_ids *ids, const struct ww_ids *beginning)
{
	return ids->n >= beginning->n && !memcmp(ids->p, beginning->p, beginning->n * sizeof(*ids->p));
}

/* How many of the prompt's tokens the reply before was sampled after or consists of: all of these, or none where what
 * the model was shown has changed since (a compaction). */
static enum ww_rc shared_with_last(
	struct model *m, const struct ww_ask *ask, const struct ww_ids *prompt, int64_t *n, struct ww_err *err)
{
	WW_AUTO(ww_ids_release) struct ww_ids before = WW_IDS_INIT((size_t)INT32_MAX);
	struct ww_ask then = *ask;
	char hash[17];
	*n = 0;
	while (then.n && ask->msgs[then.n - 1].role != WW_ROLE_ASSISTANT)
		then.n--;
	if (!then.n || !ask->msgs[--then.n].native)
		return WW_OK;
	json_auto_t *native = json_loads(ask->msgs[then.n].native, 0, NULL);
	const json_t *ids = json_object_get(native, "tokens"), *v;
	size_t i;
	WW_CHECK(encode(m, &then, 1, &before, err));
	snprintf(hash, sizeof(hash), "%016" PRIx64, ww_hash_fnv(before.p, before.n * sizeof(*before.p)));
	json_array_foreach(ids, i, v)
		if (!ww_ids_add(&before, (int32_t)json_integer_value(v)))
			return ww_nomem(err);
	if (!strcmp(hash, ww_json_str(native, "prompt", "")) && begins_with(prompt, &before))
		*n = (int64_t)before.n;
	return WW_OK;
}

static enum ww_rc note_context(
	struct model *m, const struct ww_ask *ask, const struct ww_ids *prompt, struct ww_reply *out, struct ww_err *err)
{
	WW_CHECK(shared_with_last(m, ask, prompt, &out->context_at, err));
	out->n_context = prompt->n - (size_t)out->context_at;
	WW_CHECK(WW_NEW(out->context_ids, out->n_context + 1, err));
	memcpy(out->context_ids, prompt->p + out->context_at, out->n_context * sizeof(*prompt->p));
	return WW_OK;
}

static enum ww_rc take_answer(
	struct model *m, struct ww_engine_answer *a, const struct ww_ids *prompt, struct ww_reply *out, struct ww_err *err)
{
	WW_CHECK(ww_model_read_reply(m->format, a->text.p, a->text.len, a->end == WW_ENGINE_STOP, &out->message, err));
	out->finish = out->message.n_calls ? WW_FINISH_TOOL_CALLS
		: a->end == WW_ENGINE_LENGTH   ? WW_FINISH_LENGTH
									   : WW_FINISH_STOP;
	out->prompt_tokens = (int64_t)prompt->n;
	out->completion_tokens = (int64_t)a->ids.n;
	out->n_tokens = a->ids.n;
	out->token_ids = a->ids.p;
	out->logprobs = a->logp;
	out->sampling_logprobs = a->logp_sampling;
	out->message.native = native_of(a, prompt);
	a->ids.p = NULL;
	a->logp = a->logp_sampling = NULL;
	return out->message.native ? WW_OK : ww_nomem(err);
}

/* ---- A question -------------------------------------------------------------------------------------------------- */

/* A conversation that has grown too long ends like a reply that was cut off; a first prompt that is too long is an
 * error. */
static enum ww_rc no_room(
	const struct model *m, int is_first, int64_t prompt_n, struct ww_reply *out, struct ww_err *err)
{
	if (is_first)
		return ww_err_set(err, WW_ERR_USAGE,
			"the first prompt has %lld tokens, but model and cache hold %lld; take a model with a longer context, a larger "
			"--model-cache, or --skill none for a shorter prompt",
			(long long)prompt_n, (long long)ww_engine_context(m->engine));
	out->message.role = WW_ROLE_ASSISTANT;
	out->message.text = strdup("");
	out->finish = WW_FINISH_LENGTH;
	out->prompt_tokens = prompt_n;
	return out->message.text ? WW_OK : ww_nomem(err);
}

static enum ww_rc answer(
	struct model *m, const struct ww_ask *ask, const struct ww_ids *ids, struct ww_reply *out, struct ww_err *err)
{
	struct ww_engine_answer a;
	uint64_t turn = 0;
	int32_t end = ww_chat_end_id(ww_engine_tok(m->engine), m->format);
	int64_t prompt_n = (int64_t)ids->n, max_new = ww_min_i64(m->max_reply, ww_engine_context(m->engine) - prompt_n + 1);
	if (ask->max_tokens > 0)
		max_new = ww_min_i64(max_new, ask->max_tokens);
	for (size_t i = 0; i < ask->n; i++)
		turn += ask->msgs[i].role == WW_ROLE_ASSISTANT;
	if (max_new < 1)
		return no_room(m, turn == 0, prompt_n, out, err);
	if (ask->meter) {
		enum ww_rc rc = (enum ww_rc)ask->meter->begin(ask->meter->ctx, 0, prompt_n + max_new, err);
		if (rc != WW_OK)
			return rc;
	}
	struct ww_engine_request q = { .prompt = ids->p,
		.prompt_n = prompt_n,
		.max_new = max_new,
		.seed = m->seed,
		.stream = turn,
		.sampling = ww_engine_sampling(m->engine),
		.stop_ids = &end,
		.stop_ids_n = 1 };
	enum ww_rc rc = ww_engine_ask(m->engine, &q, ask->interrupted, &a, err);
	if (rc != WW_OK)
		return rc;
	rc = take_answer(m, &a, ids, out, err);
	if (rc == WW_OK)
		rc = note_context(m, ask, ids, out, err);
	ww_engine_answer_release(&a);
	return rc;
}

static int model_next(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	struct model *m = (struct model *)self;
	WW_AUTO(ww_ids_release) struct ww_ids ids = WW_IDS_INIT((size_t)INT32_MAX);
	WW_CHECK(encode(m, ask, 1, &ids, err));
	return answer(m, ask, &ids, out, err);
}

static void model_free(struct ww_policy *self)
{
	struct model *m = (struct model *)self;
	ww_engine_close(m->engine);
	free(m);
}

static int64_t model_context(struct ww_policy *self) { return ww_engine_context(((struct model *)self)->engine); }

static const char *model_prompt(struct ww_policy *self) { return ((struct model *)self)->settings.prompt; }

static const struct ww_policy_ops model_ops = { .name = "model",
	.next = model_next,
	.count_tokens = model_count,
	.free = model_free,
	.context_tokens = model_context,
	.prompt = model_prompt };

/* Takes the engine over, also where it fails. */
static enum ww_rc policy_new(
	struct ww_engine *e, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	struct model *m = calloc(1, sizeof(*m));
	enum ww_rc rc = m ? WW_OK : ww_nomem(err);
	if (rc == WW_OK) {
		*m = (struct model){ .base.ops = &model_ops, .engine = e, .seed = o->seed };
		m->max_reply = o->max_reply_tokens ? o->max_reply_tokens : DEFAULT_REPLY_TOKENS;
		rc = ww_chat_detect(ww_engine_tok(e), &m->format, err);
	}
	if (rc == WW_OK) {
		*out = &m->base;
		return WW_OK;
	}
	ww_engine_close(e);
	free(m);
	return rc;
}

int ww_model_policy_new(const char *name, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	char dir[PATH_MAX];
	WW_CHECK(ww_model_find(name, dir, err));
	struct ww_engine_opts opts = { .dir = dir,
		.limits = { .max_sequences = o->model_batch, .cache_tokens = o->model_cache } };
	struct ww_engine *e;
	struct ww_settings settings;
	WW_CHECK(ww_settings_read(dir, &settings, err));
	WW_CHECK(ww_engine_open(&opts, &e, err));
	WW_CHECK(policy_new(e, o, out, err));
	((struct model *)*out)->settings = settings;
	return WW_OK;
}

int ww_model_policy_over(
	struct ww_engine *e, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	return policy_new(ww_engine_share(e), o, out, err);
}
