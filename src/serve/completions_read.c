/* completions_read.c - the members of a request, checked one by one.
 *
 * null stands for "not given", as clients send it.
 */
#include "serve/completions_internal.h"

#include "base/rng.h"

#include <string.h>

static const json_t *given(const json_t *body, const char *key)
{
	const json_t *v = json_object_get(body, key);
	return json_is_null(v) ? NULL : v;
}

static int read_num(const json_t *body, const char *key, double low, double high, double *out, struct ww_refusal *why)
{
	const json_t *v = given(body, key);
	if (!v)
		return 1;
	*out = json_number_value(v);
	if (!json_is_number(v) || !(*out >= low && *out <= high))
		return ww_refuse(why, 400, key, NULL, "\"%s\" must be a number from %g to %g", key, low, high);
	return 1;
}

static int read_int(
	const json_t *body, const char *key, int64_t low, int64_t high, int64_t *out, struct ww_refusal *why)
{
	const json_t *v = given(body, key);
	if (!v)
		return 1;
	*out = json_integer_value(v);
	if (!json_is_integer(v) || *out < low || *out > high)
		return ww_refuse(why, 400, key, NULL, "\"%s\" must be a whole number from %lld to %lld", key, (long long)low,
			(long long)high);
	return 1;
}

static int read_bool(const json_t *body, const char *key, int *out, struct ww_refusal *why)
{
	const json_t *v = given(body, key);
	if (v && !json_is_boolean(v))
		return ww_refuse(why, 400, key, NULL, "\"%s\" must be true or false", key);
	if (v)
		*out = json_is_true(v);
	return 1;
}

static int read_stop(struct ww_completions_request *q, struct ww_refusal *why)
{
	const json_t *v = given(q->body, "stop"), *s;
	size_t i;
	if (json_is_string(v))
		q->stop[q->stop_n++] = json_string_value(v);
	else if (v && (!json_is_array(v) || json_array_size(v) > WW_TEXT_STOPS_MAX))
		return ww_refuse(why, 400, "stop", NULL, "\"stop\" must be a text or a list of up to %d", WW_TEXT_STOPS_MAX);
	json_array_foreach(v, i, s) {
		if (!json_is_string(s))
			return ww_refuse(why, 400, "stop", NULL, "\"stop\" holds something that is no text");
		q->stop[q->stop_n++] = json_string_value(s);
	}
	for (int k = 0; k < q->stop_n; k++)
		if (!*q->stop[k])
			return ww_refuse(why, 400, "stop", NULL, "\"stop\" holds an empty text");
	return 1;
}

/* What would change the answer; each with the values that leave it as it is. */
static int refuse_unsupported(const json_t *body, struct ww_refusal *why)
{
	static const char *const zero[] = { "presence_penalty", "frequency_penalty" }, *const one[] = { "best_of" };
	static const char *const absent[] = { "logit_bias", "functions", "function_call", "suffix", "audio", "prediction",
		"prompt_logprobs" };
	for (size_t i = 0; i < WW_ARRAY_LEN(zero); i++)
		if (given(body, zero[i]) && json_number_value(given(body, zero[i])) != 0)
			return ww_refuse(why, 400, zero[i], "unsupported_parameter", "\"%s\" is not supported", zero[i]);
	for (size_t i = 0; i < WW_ARRAY_LEN(one); i++)
		if (given(body, one[i]) && json_number_value(given(body, one[i])) != 1)
			return ww_refuse(why, 400, one[i], "unsupported_parameter", "\"%s\" is not supported", one[i]);
	for (size_t i = 0; i < WW_ARRAY_LEN(absent); i++) {
		const json_t *v = given(body, absent[i]);
		if (v && !(json_is_object(v) && !json_object_size(v)) && !(json_is_array(v) && !json_array_size(v)))
			return ww_refuse(why, 400, absent[i], "unsupported_parameter", "\"%s\" is not supported", absent[i]);
	}
	return 1;
}

static int read_schema(struct ww_completions_request *q, const json_t *format, struct ww_refusal *why)
{
	struct ww_err err = WW_ERR_INIT;
	const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
	if (!schema)
		return ww_refuse(why, 400, "response_format", NULL,
			"\"response_format\" must be {\"type\": \"json_schema\", \"json_schema\": {\"name\": .., \"schema\": {..}}}");
	if (ww_json_schema_new(schema, &q->schema, &err) != WW_OK)
		return ww_refuse(why, err.rc == WW_ERR_USAGE ? 400 : 500, "response_format", NULL, "%s", err.msg);
	q->json = q->schema;
	return 1;
}

/* After the tools: a call is not an object, so an answer cannot be bound to be both. */
static int read_format(struct ww_completions_request *q, struct ww_refusal *why)
{
	const json_t *format = given(q->body, "response_format");
	const char *type = format ? ww_json_str(format, "type", "") : "text";
	if (!strcmp(type, "text"))
		return 1;
	if (strcmp(type, "json_object") && strcmp(type, "json_schema"))
		return ww_refuse(why, 400, "response_format", "unsupported_parameter",
			"\"response_format\" must have the type \"text\", \"json_object\" or \"json_schema\"");
	if (q->tools)
		return ww_refuse(why, 400, "response_format", "unsupported_parameter",
			"%s together with tools is not supported; set \"tool_choice\" to \"none\"", type);
	q->json = &ww_json_any_object;
	return !strcmp(type, "json_object") || read_schema(q, format, why);
}

static int read_logprobs(struct ww_completions_request *q, struct ww_refusal *why)
{
	const char *key = q->chat ? "top_logprobs" : "logprobs";
	if (q->chat && !read_bool(q->body, "logprobs", &q->logprobs, why))
		return 0;
	if (!read_int(q->body, key, 0, WW_ENGINE_TOP, &q->top, why))
		return 0;
	if (q->chat && q->top && !q->logprobs)
		return ww_refuse(why, 400, key, NULL, "\"top_logprobs\" needs \"logprobs\": true");
	if (!q->chat)
		q->logprobs = given(q->body, "logprobs") != NULL;
	if (q->echo && q->logprobs)
		return ww_refuse(why, 400, "echo", "unsupported_parameter",
			"\"echo\" together with \"logprobs\" is not supported; "
			"`warpwright model score` gives the log-probabilities of a text");
	return 1;
}

static int has_function(const json_t *tools, const char *name)
{
	const json_t *t;
	size_t i;
	json_array_foreach(tools, i, t)
		if (!strcmp(ww_json_str(json_object_get(t, "function"), "name", ""), name))
			return 1;
	return 0;
}

static int read_tools(struct ww_completions_request *q, struct ww_refusal *why)
{
	const json_t *tools = given(q->body, "tools"), *choice = given(q->body, "tool_choice"), *t;
	int parallel = 1;
	size_t i;
	if (!read_bool(q->body, "parallel_tool_calls", &parallel, why))
		return 0;
	q->one_call = !parallel;
	if (tools && !json_is_array(tools))
		return ww_refuse(why, 400, "tools", NULL, "\"tools\" must be an array");
	json_array_foreach(tools, i, t)
		if (strcmp(ww_json_str(t, "type", ""), "function") || !*ww_json_str(json_object_get(t, "function"), "name", ""))
			return ww_refuse(why, 400, "tools", NULL,
				"tool %zu is not of the form {\"type\": \"function\", \"function\": {\"name\": ..}}", i);
	q->tools = json_array_size(tools) ? tools : NULL;
	if (json_is_object(choice)) {
		q->function = ww_json_str(json_object_get(choice, "function"), "name", "");
		if (!has_function(tools, q->function))
			return ww_refuse(why, 400, "tool_choice", NULL, "\"tool_choice\" names no function of \"tools\"");
		q->must_call = 1;
		return 1;
	}
	const char *word = choice ? json_is_string(choice) ? json_string_value(choice) : "" : "auto";
	if (strcmp(word, "auto") && strcmp(word, "none") && strcmp(word, "required"))
		return ww_refuse(why, 400, "tool_choice", NULL,
			"\"tool_choice\" must be \"none\", \"auto\", \"required\" or name a function");
	q->must_call = !strcmp(word, "required");
	if (q->must_call && !q->tools)
		return ww_refuse(why, 400, "tool_choice", NULL, "\"tool_choice\" demands a call, but there are no tools");
	if (!strcmp(word, "none"))
		q->tools = NULL;
	return 1;
}

static int find_model(const struct ww_completions *c, struct ww_completions_request *q, struct ww_refusal *why)
{
	const char *name = ww_json_str(q->body, "model", NULL);
	if (!name && json_object_get(q->body, "model"))
		return ww_refuse(why, 400, "model", NULL, "\"model\" must be a text");
	for (size_t i = 0; i < c->n; i++)
		if (!name ? c->n == 1 : !strcmp(c->models[i].name, name))
			q->model = &c->models[i];
	if (!q->model)
		return ww_refuse(why, 404, "model", "model_not_found",
			"there is no model \"%.200s\"; GET /v1/models lists those there are", name ? name : "");
	return 1;
}

static int read_sampling(struct ww_completions_request *q, struct ww_refusal *why)
{
	struct ww_sampling *s = &q->sampling;
	int64_t seed = -1;
	*s = ww_engine_sampling(q->model->engine);
	if (!read_num(q->body, "temperature", 0, 2, &s->temperature, why) ||
		!read_num(q->body, "top_p", 0, 1, &s->top_p, why) || !read_num(q->body, "min_p", 0, 1, &s->min_p, why) ||
		!read_int(q->body, "top_k", -1, INT32_MAX, &s->top_k, why) ||
		!read_int(q->body, "seed", INT64_MIN, INT64_MAX, &seed, why))
		return 0;
	s->top_k = s->top_k < 0 ? 0 : s->top_k; /* -1 means all, as other servers have it */
	q->seed = given(q->body, "seed") ? (uint64_t)seed : ww_rng_secret();
	return 1;
}

int ww_completions_read(
	const struct ww_completions *c, int chat, json_t *body, struct ww_completions_request *q, struct ww_refusal *why)
{
	*q = (struct ww_completions_request){ .body = body, .chat = chat, .n = 1, .max_new = chat ? 0 : 16 };
	if (!find_model(c, q, why) || !refuse_unsupported(body, why) || !read_sampling(q, why) ||
		!read_int(body, "n", 1, WW_COMPLETIONS_CHOICES, &q->n, why) ||
		!read_int(body, "max_tokens", 1, INT32_MAX, &q->max_new, why) || !read_bool(body, "stream", &q->stream, why) ||
		!read_stop(q, why))
		return 0;
	if (chat && (!read_int(body, "max_completion_tokens", 1, INT32_MAX, &q->max_new, why) || !read_tools(q, why)))
		return 0;
	if (!chat && !read_bool(body, "echo", &q->echo, why))
		return 0;
	const json_t *options = given(body, "stream_options");
	if (options && !read_bool(options, "include_usage", &q->include_usage, why))
		return 0;
	return read_format(q, why) && read_logprobs(q, why);
}
