/* model_run.c - `warpwright model run`: a model continues a text or answers a message. */
#include "base/time.h"
#include "cmd/cmd.h"
#include "cmd/model.h"
#include "infer/engine.h"

#include <stdio.h>
#include <string.h>

enum { PROMPT_MAX_BYTES = 64 << 20, PROMPT_MAX_TOKENS = 1 << 22 };

struct output {
	const struct ww_model_values *v;
	uint64_t begun_ns;
	double first_s; /* from the start of the command to the first token */
};

static void on_event(void *ctx, const struct ww_engine_event *e)
{
	struct output *o = ctx;
	if (o->first_s <= 0)
		o->first_s = ww_seconds_since(o->begun_ns);
	if (o->v->json)
		return;
	fwrite(e->text, 1, e->text_n, stdout);
	fflush(stdout);
}

/* The prompt's ids, and with --chat the token that ends an answer (else -1). */
static enum ww_rc prompt_ids(const struct ww_model_values *v, struct ww_tok *t, const char *prompt, struct ww_ids *ids,
	int32_t *end, struct ww_err *err)
{
	enum ww_chat_format f;
	WW_AUTO(ww_chat_release) struct ww_chat c;
	ww_chat_init(&c, PROMPT_MAX_BYTES);
	*end = -1;
	if (!v->chat)
		return ww_tok_encode(t, prompt, strlen(prompt), 1, 1, ids, err);
	json_auto_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", prompt);
	WW_CHECK(messages ? ww_chat_detect(t, &f, err) : ww_err_set(err, WW_ERR_USAGE, "the prompt is not UTF-8"));
	WW_CHECK(ww_chat_render(f, messages, NULL, 1, &c, err));
	WW_CHECK(ww_chat_encode(t, &c, ids, NULL, err));
	*end = ww_chat_end_id(t, f);
	return WW_OK;
}

static void print_answer(const struct output *o, const struct ww_engine_answer *a, size_t prompt_n, double open_s)
{
	json_t *tokens = json_array(), *logprobs = json_array();
	for (size_t i = 0; i < a->ids.n; i++) {
		json_array_append_new(tokens, json_integer(a->ids.p[i]));
		json_array_append_new(logprobs, ww_json_real((double)a->logp[i]));
	}
	ww_cmd_print_json(json_pack("{s:s, s:o, s:o, s:s, s:i, s:{s:f, s:f, s:f}}", "text", a->text.p, "tokens", tokens,
		"logprobs", logprobs, "finish", a->end == WW_ENGINE_STOP ? "stop" : "length", "prompt_tokens", (int)prompt_n,
		"seconds", "open", open_s, "first_token", o->first_s, "total", ww_seconds_since(o->begun_ns)));
}

enum ww_rc ww_model_run(const struct ww_model_values *v, char **argv, struct ww_err *err)
{
	struct output o = { v, ww_now_ns(), 0 };
	struct ww_engine *e = NULL;
	WW_AUTO(ww_engine_answer_release) struct ww_engine_answer a = { .end = WW_ENGINE_GOES_ON };
	struct ww_engine_opts opts = { .dir = argv[1],
		.device = v->device,
		.fast = v->fast,
		.dtype = ww_model_dtype(v),
		.limits = { .max_sequences = 1 } };
	WW_AUTO(ww_ids_release) struct ww_ids ids = WW_IDS_INIT(PROMPT_MAX_TOKENS);
	int32_t end;
	enum ww_rc rc;
	WW_TRY(ww_engine_open(&opts, &e, err));
	double open_s = ww_seconds_since(o.begun_ns);
	WW_TRY(prompt_ids(v, ww_engine_tok(e), argv[2], &ids, &end, err));
	int64_t room = ww_engine_context(e) - (int64_t)ids.n + 1;
	if (!ids.n || room < 1) {
		rc = ww_err_set(err, WW_ERR_LIMIT, "the prompt has %zu tokens, the context is %lld", ids.n,
			(long long)ww_engine_context(e));
		goto out;
	}
	struct ww_engine_request q = { .prompt = ids.p,
		.prompt_n = (int64_t)ids.n,
		.max_new = v->max_new < room ? v->max_new : room,
		.sampling = { v->temperature, v->top_k, v->top_p, v->min_p },
		.seed = (uint64_t)v->seed,
		.stop_ids = &end,
		.stop_ids_n = end >= 0,
		.stop = &v->stop,
		.stop_n = v->stop != NULL,
		.on_event = on_event,
		.ctx = &o };
	WW_TRY(ww_engine_ask(e, &q, &ww_cmd_interrupted, &a, err));
	if (v->json)
		print_answer(&o, &a, ids.n, open_s);
	else
		putchar('\n');
out:
	ww_engine_close(e);
	return rc;
}
