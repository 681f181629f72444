/* model_bench.c - `warpwright model bench`: how fast a model generates here, in exact and in fast mode.
 *
 * Prompts are random tokens, so nothing is shared between sequences.  Prefill is measured by sequences that end with
 * their first token; then the same prompts are asked again, which finds them in the cache.  Of those steps the ones
 * count as decoding that gave every sequence a token and took nothing of a prompt, after a whole round that warmed up:
 * sequences do not begin and end in the same step.  The weights are read once a step by a batch of any size: `gb_s`
 * counts them and the cache that a step reads, and is to be held against the device's bandwidth.
 */
#include "base/rng.h"
#include "base/time.h"
#include "cmd/cmd.h"
#include "cmd/model.h"
#include "infer/infer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES_MAX = 16, STEP_TOKENS_CPU = 512, STEP_TOKENS_CUDA = 8192 };

struct bench {
	const struct ww_model_values *v;
	struct ww_model *m;
	struct ww_infer *f;
	int32_t *prompts;
	int64_t first, batch, prompt_n, new_n; /* first tokens that came in this round */
	uint64_t all_first_ns;                 /* when the last of the batch had its first token */
	uint64_t decode_ns;                    /* in steps that decoded and did nothing else */
	int64_t decode_steps;
};

static enum ww_rc read_batches(const char *list, int64_t *out, int *n, struct ww_err *err)
{
	for (*n = 0; *list; list += *list == ',') {
		char *end;
		long b = strtol(list, &end, 10);
		if (end == list || (*end && *end != ',') || b < 1 || b > WW_GENERATE_ROWS || *n == BATCHES_MAX)
			return ww_err_set(err, WW_ERR_USAGE, "--batches: a list of up to %d numbers from 1 to %d, as in 1,8,64",
				BATCHES_MAX, WW_GENERATE_ROWS);
		out[(*n)++] = b;
		list = end;
	}
	return *n ? WW_OK : ww_err_set(err, WW_ERR_USAGE, "--batches is empty; give sizes, as in 1,8,64");
}

static int on_token(void *arg, const struct ww_infer_event *e)
{
	struct bench *b = arg;
	int64_t *seen = e->user;
	if (!(*seen)++ && ++b->first == b->batch)
		b->all_first_ns = ww_now_ns();
	return 0;
}

/* A step, counted as decoding where it was that alone. */
static enum ww_rc one_step(struct bench *b, int64_t *left, struct ww_err *err)
{
	struct ww_infer_stats before = ww_infer_stats(b->f);
	uint64_t begun = ww_now_ns();
	enum ww_rc rc = ww_infer_step(b->f, on_token, b, left, err);
	struct ww_infer_stats after = ww_infer_stats(b->f);
	if (after.new_tokens - before.new_tokens == b->batch && after.prompt_tokens == before.prompt_tokens) {
		b->decode_ns += ww_now_ns() - begun;
		b->decode_steps++;
	}
	return rc;
}

/* All prompts of the batch to the end; the time until every one had a token. */
static enum ww_rc round_of(struct bench *b, int64_t max_new, double *to_first_s, struct ww_err *err)
{
	int64_t id, left = 1, *seen = calloc((size_t)b->batch, sizeof(*seen));
	enum ww_rc rc = seen ? WW_OK : ww_nomem(err);
	b->first = b->decode_steps = 0;
	b->decode_ns = 0;
	for (int64_t i = 0; rc == WW_OK && i < b->batch; i++) {
		struct ww_request q = { .prompt = b->prompts + i * b->prompt_n,
			.prompt_n = b->prompt_n,
			.max_new = max_new,
			.sampling = WW_SAMPLING_INIT,
			.seed = (uint64_t)b->v->seed,
			.stream = (uint64_t)i,
			.user = &seen[i] };
		rc = ww_infer_submit(b->f, &q, &id, err);
	}
	uint64_t begun = ww_now_ns();
	while (rc == WW_OK && left) {
		rc = ww_cmd_interrupted ? ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted") : one_step(b, &left, err);
	}
	free(seen);
	*to_first_s = (double)(b->all_first_ns - begun) * 1e-9;
	return rc;
}

/* Floating-point operations of a prompt: every weight but the embedding twice a token, causal attention, the head once.
 */
static double prompt_flops(const struct ww_config *c, int64_t n)
{
	double head = (double)c->vocab_size * (double)c->hidden_size;
	double body = (double)ww_config_params(c) - head * (c->tie_embeddings ? 1 : 2);
	double attention = 2 * (double)c->layers * (double)(c->heads * c->head_dim) * (double)n * (double)n;
	return 2 * body * (double)n + attention + 2 * head;
}

/* Bytes that one step of decoding reads: all weights but the rows of the embedding that it does not need, and the
 * cache. */
static double step_bytes(const struct bench *b)
{
	const struct ww_config *c = &b->m->config;
	double item = b->m->dtype == WW_F32 ? 4 : 2,
		   table = c->tie_embeddings ? 0 : (double)c->vocab_size * (double)c->hidden_size;
	double context = (double)b->prompt_n + (double)b->new_n / 2;
	return ((double)ww_config_params(c) - table) * item +
		(double)ww_kv_page_bytes(b->m) / WW_KV_PAGE * context * (double)b->batch;
}

static enum ww_rc one_batch(struct bench *b, int exact, json_t *rows, struct ww_err *err)
{
	double prefill_s, again_s;
	int64_t step_tokens = strcmp(b->m->dev->ops->name, "cuda") ? STEP_TOKENS_CPU : STEP_TOKENS_CUDA;
	struct ww_infer_limits l = { b->batch * (b->prompt_n + b->new_n + WW_KV_PAGE), b->batch,
		step_tokens > b->batch ? step_tokens : b->batch };
	enum ww_rc rc;
	struct ww_rng r;
	ww_rng_init(&r, (uint64_t)b->v->seed, 1);
	b->prompts = malloc((size_t)(b->batch * b->prompt_n) * sizeof(*b->prompts));
	if (!b->prompts)
		return ww_nomem(err);
	WW_TRY(ww_infer_new(b->m, &l, &b->f, err));
	/* Once to warm up: algorithm selection, first-touched memory. */
	for (int round = 0; round < 2; round++) {
		for (int64_t i = 0; i < b->batch * b->prompt_n; i++)
			b->prompts[i] = (int32_t)ww_rng_below(&r, (uint64_t)b->m->config.vocab_size);
		WW_TRY(round_of(b, 1, &prefill_s, err));
		WW_TRY(round_of(b, b->new_n + 1, &again_s, err));
	}
	if (!b->decode_steps) {
		rc = ww_err_set(err, WW_ERR_USAGE,
			"--max-new %lld: the first of %lld sequences end before the last begin; raise --max-new",
			(long long)b->new_n, (long long)b->batch);
		goto out;
	}
	double tokens = (double)(b->batch * b->prompt_n), step_s = (double)b->decode_ns * 1e-9 / (double)b->decode_steps;
	json_array_append_new(rows,
		json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "mode", exact ? "exact" : "fast", "batch",
			(json_int_t)b->batch, "prefill_tokens_s", tokens / prefill_s, "prefill_tflop_s",
			(double)b->batch * prompt_flops(&b->m->config, b->prompt_n) / prefill_s * 1e-12, "first_token_ms",
			prefill_s * 1e3, "decode_tokens_s", (double)b->batch / step_s, "step_ms", step_s * 1e3, "gb_s",
			step_bytes(b) / step_s * 1e-9, "memory_bytes",
			(json_int_t)(ww_infer_bytes(b->m, &l) + ww_model_bytes(&b->m->config, b->m->dtype))));
out:
	ww_infer_free(b->f);
	b->f = NULL;
	free(b->prompts);
	return rc;
}

/* The time to load the model and to generate the first token. */
static enum ww_rc start_up(struct bench *b, uint64_t begun, double *first_s, struct ww_err *err)
{
	double to_first_s;
	int64_t batch = b->batch, prompt_n = b->prompt_n;
	int32_t one = 0;
	enum ww_rc rc;
	b->batch = b->prompt_n = 1;
	b->prompts = &one;
	WW_TRY(ww_infer_new(b->m, &(struct ww_infer_limits){ WW_KV_PAGE, 1, 1 }, &b->f, err));
	WW_TRY(round_of(b, 1, &to_first_s, err));
	*first_s = ww_seconds_since(begun);
out:
	ww_infer_free(b->f);
	b->f = NULL;
	b->batch = batch;
	b->prompt_n = prompt_n;
	return rc;
}

static enum ww_rc one_mode(const struct ww_model_values *v, const char *dir, int exact, const int64_t *batches, int n,
	json_t *out, struct ww_err *err)
{
	struct bench b = { .v = v, .prompt_n = v->prompt_tokens, .new_n = v->max_new };
	struct ww_dev *dev = NULL;
	json_t *rows = json_object_get(out, "rows");
	uint64_t begun = ww_now_ns();
	double open_s, first_s;
	enum ww_rc rc;
	WW_TRY(ww_dev_open(v->device, exact, &dev, err));
	WW_TRY(ww_model_open(dir, dev, ww_model_dtype(v), &b.m, err));
	open_s = ww_seconds_since(begun);
	if (b.prompt_n + b.new_n > b.m->config.max_position) {
		rc = ww_err_set(err, WW_ERR_USAGE, "%lld tokens of prompt and %lld new ones do not fit the context of %lld",
			(long long)b.prompt_n, (long long)b.new_n, (long long)b.m->config.max_position);
		goto out;
	}
	WW_TRY(start_up(&b, begun, &first_s, err));
	json_object_set_new(out, "device", json_string(dev->ops->name));
	json_object_set_new(out, "dtype", json_string(b.m->dtype == WW_BF16 ? "bf16" : "fp32"));
	json_object_set_new(out, "parameters", json_integer((json_int_t)ww_config_params(&b.m->config)));
	json_object_set_new(
		out, exact ? "start_exact" : "start_fast", json_pack("{s:f, s:f}", "open_s", open_s, "first_token_s", first_s));
	for (int i = 0; i < n; i++) {
		b.batch = batches[i];
		WW_TRY(one_batch(&b, exact, rows, err));
	}
out:
	ww_model_free(b.m);
	ww_dev_close(dev);
	return rc;
}

static void print_table(const json_t *v)
{
	const json_t *row, *start;
	size_t i;
	printf("%.1f M parameters in %s on %s, prompts of %lld tokens, %lld new ones\n",
		ww_json_num(v, "parameters", 0) / 1e6, ww_json_str(v, "dtype", ""), ww_json_str(v, "device", ""),
		(long long)ww_json_int(v, "prompt_tokens", 0), (long long)ww_json_int(v, "new_tokens", 0));
	for (int exact = 1; exact >= 0; exact--)
		if ((start = json_object_get(v, exact ? "start_exact" : "start_fast")))
			printf("%-6s loaded in %.2f s, first token after %.2f s\n", exact ? "exact" : "fast",
				ww_json_num(start, "open_s", 0), ww_json_num(start, "first_token_s", 0));
	printf("\n%-6s %5s %13s %9s %12s %13s %9s %8s %9s\n", "mode", "batch", "prefill tok/s", "TFLOP/s", "first tok ms",
		"decode tok/s", "step ms", "GB/s", "memory MB");
	json_array_foreach(json_object_get(v, "rows"), i, row)
		printf("%-6s %5lld %13.0f %9.2f %12.1f %13.0f %9.3f %8.1f %9.0f\n", ww_json_str(row, "mode", ""),
			(long long)ww_json_int(row, "batch", 0), ww_json_num(row, "prefill_tokens_s", 0),
			ww_json_num(row, "prefill_tflop_s", 0), ww_json_num(row, "first_token_ms", 0),
			ww_json_num(row, "decode_tokens_s", 0), ww_json_num(row, "step_ms", 0), ww_json_num(row, "gb_s", 0),
			ww_json_num(row, "memory_bytes", 0) / 1e6);
}

enum ww_rc ww_model_bench(const struct ww_model_values *v, char **argv, struct ww_err *err)
{
	int64_t batches[BATCHES_MAX];
	int n = 0;
	json_t *out = json_pack("{s:s, s:I, s:I, s:[]}", "model", argv[1], "prompt_tokens", (json_int_t)v->prompt_tokens,
		"new_tokens", (json_int_t)v->max_new, "rows");
	enum ww_rc rc = out ? read_batches(v->batches, batches, &n, err)
						: ww_err_set(err, WW_ERR_USAGE, "the path is not UTF-8");
	for (int exact = !v->fast; rc == WW_OK && exact >= 0; exact--)
		rc = one_mode(v, argv[1], exact, batches, n, out, err);
	if (rc == WW_OK && v->json)
		ww_cmd_print_json(json_incref(out));
	else if (rc == WW_OK)
		print_table(out);
	json_decref(out);
	return rc;
}
