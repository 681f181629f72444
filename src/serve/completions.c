/* completions.c - requests: models, prompts, and their way into the engine.
 *
 * The handler reads the body, makes the prompt's tokens and leaves one request a choice with the engine, which batches
 * those of all clients.  It then waits: the engine's thread turns tokens into text (completions_answer.c), the handler
 * sends.  When the client goes, its choices are cancelled.
 *
 * What would change an answer and is not supported is refused by name; what only concerns OpenAI's own service is
 * ignored. A call that is demanded (tool_choice) is begun for the model: its answer goes on behind the call's first
 * words.
 */
#include "serve/completions_internal.h"

#include "base/rng.h"
#include "nn/find.h"
#include "serve/metrics.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHAT_MAX_BYTES = 64 << 20, PROMPT_MAX_TOKENS = 1 << 22 };

/* ---- Models ------------------------------------------------------------------------------------------------------ */

/* "NAME=DIR" or "DIR". */
static char *name_of(const char *spec, const char **dir)
{
	const char *equals = strchr(spec, '='), *slash = strchr(spec, '/');
	if (equals && (!slash || equals < slash)) {
		*dir = equals + 1;
		return strndup(spec, (size_t)(equals - spec));
	}
	size_t n = strlen(spec), begin;
	while (n > 1 && spec[n - 1] == '/')
		n--;
	for (begin = n; begin > 0 && spec[begin - 1] != '/'; begin--)
		;
	*dir = spec;
	return strndup(spec + begin, n - begin);
}

static enum ww_rc open_model(
	struct ww_completions *c, const struct ww_completions_opts *o, const char *spec, struct ww_err *err)
{
	struct ww_completions_model *m = &c->models[c->n];
	struct ww_engine_opts e = { .device = o->device, .fast = o->fast, .limits = o->limits };
	struct ww_err no_chat = WW_ERR_INIT;
	const char *named;
	char dir[PATH_MAX];
	enum ww_rc rc;
	if (!(m->name = name_of(spec, &named)))
		return ww_nomem(err);
	e.dir = dir;
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->models[i].name, m->name)) {
			rc = ww_err_set(
				err, WW_ERR_USAGE, "two models are called \"%s\"; give one another name with NAME=DIR", m->name);
			free(m->name);
			return rc;
		}
	if ((rc = ww_model_find(named, dir, err)) != WW_OK || (rc = ww_engine_open(&e, &m->engine, err)) != WW_OK) {
		free(m->name);
		return rc;
	}
	m->has_chat = ww_chat_detect(ww_engine_tok(m->engine), &m->format, &no_chat) == WW_OK;
	m->created = (int64_t)time(NULL);
	c->n++;
	return WW_OK;
}

enum ww_rc ww_completions_new(const struct ww_completions_opts *o, struct ww_completions **out, struct ww_err *err)
{
	struct ww_completions *c = calloc(1, sizeof(*c));
	enum ww_rc rc = WW_OK;
	if (!c || !(c->models = calloc(o->n_models + 1, sizeof(*c->models)))) {
		free(c);
		return ww_nomem(err);
	}
	for (size_t i = 0; rc == WW_OK && i < o->n_models; i++)
		rc = open_model(c, o, o->models[i], err);
	if (rc == WW_OK)
		*out = c;
	else
		ww_completions_free(c);
	return rc;
}

void ww_completions_free(struct ww_completions *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++) {
		ww_engine_close(c->models[i].engine);
		free(c->models[i].name);
	}
	free(c->models);
	free(c);
}

void ww_completions_metrics(struct ww_completions *c, struct ww_str *out)
{
	ww_metric_head(out, "generated_tokens_total", WW_COUNTER, "Tokens that a model has generated.");
	for (size_t i = 0; i < c->n; i++) {
		ww_str_adds(out, "warpwright_generated_tokens_total{model=\"");
		ww_metric_label(out, c->models[i].name);
		ww_str_addf(out, "\"} %lld\n", (long long)ww_engine_stats(c->models[i].engine).new_tokens);
	}
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

int ww_refuse(struct ww_refusal *r, int status, const char *param, const char *code, const char *fmt, ...)
{
	va_list ap;
	r->status = status;
	r->param = param;
	r->code = code;
	va_start(ap, fmt);
	vsnprintf(r->message, sizeof(r->message), fmt, ap);
	va_end(ap);
	return 0;
}

void ww_refusal_send(const struct ww_refusal *r, struct ww_http_reply *reply)
{
	ww_auto_str s = WW_STR_INIT(8192), clean = WW_STR_INIT(4096);
	ww_str_add_bounded(&clean, r->message, strlen(r->message), 1000);
	json_t *v = json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", clean.p, "type",
		r->status < 500 ? "invalid_request_error" : "server_error", "param", r->param, "code", r->code);
	ww_json_add(&s, v);
	ww_http_reply_all(reply, r->status, "application/json", NULL, s.p, s.len);
	json_decref(v);
}

static int refuse_for(struct ww_refusal *why, const char *param, const struct ww_err *err)
{
	int is_request = err->rc == WW_ERR_USAGE || err->rc == WW_ERR_LIMIT;
	const char *code = err->rc == WW_ERR_LIMIT ? "context_length_exceeded" : NULL;
	return ww_refuse(why, is_request ? 400 : 500, param, code, "%s", err->msg);
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

struct prompts {
	struct ww_ids ids[WW_COMPLETIONS_PROMPTS];
	char *text[WW_COMPLETIONS_PROMPTS]; /* where the prompt was text */
	struct ww_str begun;                /* of the answer, by us */
	int32_t end;                        /* token that ends a turn, or -1 */
	int n;
};

static void prompts_release(struct prompts *p)
{
	for (int i = 0; i < p->n; i++) {
		ww_ids_release(&p->ids[i]);
		free(p->text[i]);
	}
	ww_str_release(&p->begun);
}

static struct ww_ids *new_prompt(struct prompts *p)
{
	struct ww_ids *ids = &p->ids[p->n++];
	*ids = (struct ww_ids)WW_IDS_INIT(PROMPT_MAX_TOKENS);
	return ids;
}

/* Our roles: OpenAI's "developer" is what the forms call system. */
static json_t *map_roles(const json_t *messages)
{
	json_t *copy = json_deep_copy(messages), *m;
	size_t i;
	json_array_foreach(copy, i, m)
		if (!strcmp(ww_json_str(m, "role", ""), "developer"))
			json_object_set_new(m, "role", json_string("system"));
	return copy;
}

/* The words of a call that the model has to make. */
static void begin_call(const struct ww_completions_request *q, struct ww_str *out)
{
	int llama = q->model->format == WW_CHAT_LLAMA3;
	if (!q->must_call)
		return;
	ww_str_addf(out, "%s{\"name\": \"", llama ? "" : "<tool_call>\n");
	if (q->function)
		ww_str_addf(out, "%s\", \"%s\": ", q->function, llama ? "parameters" : "arguments");
}

static int chat_prompt(const struct ww_completions_request *q, struct prompts *p, struct ww_refusal *why)
{
	struct ww_tok *tok = ww_engine_tok(q->model->engine);
	struct ww_err err = WW_ERR_INIT;
	struct ww_chat chat;
	json_t *messages = json_object_get(q->body, "messages");
	if (!q->model->has_chat)
		return ww_refuse(why, 400, "model", NULL, "the model \"%s\" has no form for conversations", q->model->name);
	if (!json_array_size(messages))
		return ww_refuse(why, 400, "messages", NULL, "\"messages\" must be an array of at least one message");
	messages = map_roles(messages);
	ww_chat_init(&chat, CHAT_MAX_BYTES);
	struct ww_ids *ids = new_prompt(p);
	enum ww_rc rc = ww_chat_render(q->model->format, messages, q->tools, 1, &chat, &err);
	if (rc == WW_OK)
		rc = ww_chat_encode(tok, &chat, ids, NULL, &err);
	begin_call(q, &p->begun);
	if (rc == WW_OK && p->begun.len)
		rc = ww_tok_encode(tok, p->begun.p, p->begun.len, 1, 0, ids, &err);
	p->end = ww_chat_end_id(tok, q->model->format);
	ww_chat_release(&chat);
	json_decref(messages);
	return rc == WW_OK || refuse_for(why, "messages", &err);
}

static int id_prompt(const json_t *list, struct prompts *p, struct ww_refusal *why)
{
	struct ww_ids *ids = new_prompt(p);
	const json_t *v;
	size_t i;
	json_array_foreach(list, i, v)
		if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX ||
			!ww_ids_add(ids, (int32_t)json_integer_value(v)))
			return ww_refuse(why, 400, "prompt", NULL, "\"prompt\" holds something that is no token id");
	return 1;
}

static int text_prompt(
	const struct ww_completions_request *q, const json_t *text, struct prompts *p, struct ww_refusal *why)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_ids *ids = new_prompt(p);
	p->text[p->n - 1] = strdup(json_string_value(text));
	if (ww_tok_encode(ww_engine_tok(q->model->engine), json_string_value(text), json_string_length(text), 1, 1, ids,
			&err) == WW_OK)
		return 1;
	return refuse_for(why, "prompt", &err);
}

/* A text, a list of texts, a list of ids, or a list of such lists. */
static int text_prompts(const struct ww_completions_request *q, struct prompts *p, struct ww_refusal *why)
{
	const json_t *prompt = json_object_get(q->body, "prompt"), *v;
	size_t i;
	if (json_is_string(prompt))
		return text_prompt(q, prompt, p, why);
	if (json_is_integer(json_array_get(prompt, 0)))
		return id_prompt(prompt, p, why);
	if (!json_array_size(prompt) || json_array_size(prompt) > WW_COMPLETIONS_PROMPTS)
		return ww_refuse(why, 400, "prompt", NULL,
			"\"prompt\" must be a text, token ids, or a list of up to %d of these", WW_COMPLETIONS_PROMPTS);
	json_array_foreach(prompt, i, v) {
		if (!json_is_string(v) && !json_is_array(v))
			return ww_refuse(why, 400, "prompt", NULL, "\"prompt\" holds something that is neither text nor token ids");
		if (!(json_is_string(v) ? text_prompt(q, v, p, why) : id_prompt(v, p, why)))
			return 0;
	}
	return 1;
}

/* ---- Into the engine --------------------------------------------------------------------------------------------- */

static enum ww_rc submit(
	struct ww_answer *a, const struct ww_completions_request *q, struct prompts *p, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	for (int i = 0; rc == WW_OK && i < a->n; i++) {
		struct ww_choice *c = &a->choices[i];
		const struct ww_ids *ids = &p->ids[i / q->n];
		const char *text = p->text[i / q->n];
		struct ww_engine_request r = { .prompt = ids->p,
			.prompt_n = (int64_t)ids->n,
			.max_new = q->max_new,
			.sampling = q->sampling,
			.seed = q->seed,
			.stream = (uint64_t)i,
			.stop_ids = &p->end,
			.stop_ids_n = p->end >= 0,
			.stop = q->stop,
			.stop_n = q->stop_n,
			.top = (int)q->top,
			.json = q->json,
			.on_event = ww_answer_event,
			.ctx = c };
		ww_str_add(&c->text, p->begun.p, p->begun.len);
		if (i % q->n == 0)
			a->prompt_tokens += (int64_t)ids->n;
		if (q->echo && text && !(c->prompt = strdup(text)))
			rc = ww_nomem(err);
		pthread_mutex_lock(&a->lock); /* no event before the choice has its number */
		if (rc == WW_OK)
			rc = ww_engine_submit(a->engine, &r, &c->id, err);
		a->pending += rc == WW_OK;
		pthread_mutex_unlock(&a->lock);
	}
	return rc;
}

static void start(const struct ww_completions_request *q, struct prompts *p, struct ww_http_reply *reply)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_refusal why;
	struct ww_answer *a = ww_answer_new(q, (int)q->n * p->n, reply);
	if (!a) {
		ww_refuse(&why, 500, NULL, NULL, "out of memory");
		ww_refusal_send(&why, reply);
		return;
	}
	enum ww_rc rc = submit(a, q, p, &err);
	if (rc != WW_OK)
		ww_answer_cancel(a);
	ww_answer_await(a, rc == WW_OK);
	if (rc != WW_OK) {
		refuse_for(&why, NULL, &err);
		ww_refusal_send(&why, reply);
	} else {
		ww_answer_end(a);
	}
	ww_answer_free(a);
}

/* ---- Handlers ---------------------------------------------------------------------------------------------------- */

static void complete(struct ww_completions *c, int chat, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	struct ww_completions_request q = { .schema = NULL };
	struct ww_refusal why = { .status = 0 };
	struct ww_err err = WW_ERR_INIT;
	ww_auto_free struct prompts *p = calloc(1, sizeof(*p));
	json_auto_t *body = NULL;
	int ok = p != NULL;
	if (!ok)
		ww_refuse(&why, 500, NULL, NULL, "out of memory");
	if (ok &&
		(ok = ww_json_parse_message(r->body, r->body_bytes, "the body", &body, &err) == WW_OK &&
				json_is_object(body)) == 0)
		ww_refuse(&why, 400, NULL, NULL, "%s", err.rc == WW_OK ? "the body is no JSON object" : err.msg);
	if (p) {
		ww_str_init(&p->begun, 1 << 16);
		p->end = -1;
	}
	ok = ok && ww_completions_read(c, chat, body, &q, &why) &&
		(chat ? chat_prompt(&q, p, &why) : text_prompts(&q, p, &why));
	if (ok && q.n * p->n > WW_COMPLETIONS_CHOICES)
		ok = ww_refuse(
			&why, 400, "n", NULL, "%lld choices; %d are allowed", (long long)q.n * p->n, WW_COMPLETIONS_CHOICES);
	if (ok)
		start(&q, p, reply);
	else
		ww_refusal_send(&why, reply);
	if (p)
		prompts_release(p);
	ww_json_schema_free(q.schema);
}

static void handle_chat(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	complete(ctx, 1, r, reply);
}
static void handle_text(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	complete(ctx, 0, r, reply);
}

static json_t *model_json(const struct ww_completions_model *m)
{
	return json_pack("{s:s, s:s, s:I, s:s, s:I}", "id", m->name, "object", "model", "created", (json_int_t)m->created,
		"owned_by", "warpwright", "max_model_len", (json_int_t)ww_engine_context(m->engine));
}

/* /v1/models, or /v1/models/NAME */
static void handle_models(void *ctx, const struct ww_http_request *r, struct ww_http_reply *reply)
{
	static const char root[] = "/v1/models";
	const struct ww_completions *c = ctx;
	const char *name = r->path[sizeof(root) - 1] ? r->path + sizeof(root) : NULL;
	ww_auto_str s = WW_STR_INIT(1 << 20);
	json_t *v = NULL, *list = json_array();
	for (size_t i = 0; i < c->n; i++) {
		json_array_append_new(list, model_json(&c->models[i]));
		if (name && !strcmp(name, c->models[i].name))
			v = model_json(&c->models[i]);
	}
	if (!name)
		v = json_pack("{s:s, s:O}", "object", "list", "data", list);
	json_decref(list);
	if (v) {
		ww_json_add(&s, v);
		ww_http_reply_all(reply, 200, "application/json", NULL, s.p, s.len);
	} else {
		struct ww_refusal why;
		ww_refuse(&why, 404, "model", "model_not_found", "there is no model \"%.200s\"", name);
		ww_refusal_send(&why, reply);
	}
	json_decref(v);
}

void ww_completions_routes(struct ww_completions *c, struct ww_http_route out[WW_COMPLETIONS_ROUTES])
{
	out[0] = (struct ww_http_route){ .method = "GET", .path = "/v1/models", .handle = handle_models, .ctx = c };
	out[1] = (struct ww_http_route){ .method = "GET", .path = "/v1/models/*", .handle = handle_models, .ctx = c };
	out[2] = (struct ww_http_route){ .method = "POST",
		.path = "/v1/chat/completions",
		.handle = handle_chat,
		.ctx = c,
		.max_body_bytes = CHAT_MAX_BYTES };
	out[3] = (struct ww_http_route){
		.method = "POST", .path = "/v1/completions", .handle = handle_text, .ctx = c, .max_body_bytes = CHAT_MAX_BYTES
	};
}
