/* model.c - `warpwright model`: look at, make, convert, score and run transformer models in Hugging Face's form. */
#include "base/fs.h"
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/model.h"
#include "nn/chat.h"
#include "nn/find.h"
#include "nn/model.h"
#include "nn/safetensors.h"
#include "nn/tok_train.h"
#include "nn/tokenizer.h"
#include "train/data.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCORE_FILE_MAX = 64 << 20, SCORE_IDS_MAX = 1 << 22 };

static const struct ww_opt opts[] = {
	{ "dtype", 0, WW_OPT_CHOICE, offsetof(struct ww_model_values, dtype), "same|fp32|bf16", "same", 0, 0,
		"type of the weights in memory and in what is written; same: as in the file" },
	{ "device", 0, WW_OPT_CHOICE, offsetof(struct ww_model_values, device), "auto|cuda|cpu|ref", "auto", 0, 0,
		"where to compute; auto: cuda where it works, else cpu; ref is the scalar reference" },
	{ "fast", 0, WW_OPT_FLAG, offsetof(struct ww_model_values, fast), NULL, NULL, 0, 0,
		"faster; the last bits of results may depend on the batch; bench: only this mode" },
	{ "seed", 0, WW_OPT_INT, offsetof(struct ww_model_values, seed), "N", "0", 0, 9e15,
		"init: seed of the weights; run: of the random numbers" },
	{ "tokenizer", 0, WW_OPT_STR, offsetof(struct ww_model_values, tokenizer), "DIR", NULL, 0, 0,
		"init: copy the tokenizer's files from this directory" },
	{ "data", 0, WW_OPT_STR, offsetof(struct ww_model_values, data), "PATHS", NULL, 0, 0,
		"tokenizer: learn from these texts, named as in a recipe of train" },
	{ "vocabulary", 0, WW_OPT_INT, offsetof(struct ww_model_values, vocabulary), "N", "4096", 259, 1 << 20,
		"tokenizer: largest size of the vocabulary" },
	{ "words", 0, WW_OPT_CHOICE, offsetof(struct ww_model_values, words), "gpt2|code", "gpt2", 0, 0,
		"tokenizer: what no token crosses: GPT-2's words; code: identifiers with underscores, single digits" },
	{ "critic", 0, WW_OPT_FLAG, offsetof(struct ww_model_values, critic), NULL, NULL, 0, 0,
		"convert: a critic on a copy of the trunk, with a value head of zeros instead of the vocabulary's" },
	{ "ids", 0, WW_OPT_FLAG, offsetof(struct ww_model_values, ids), NULL, NULL, 0, 0,
		"score: FILE is a JSON array of token ids, not text" },
	{ "chat", 0, WW_OPT_FLAG, offsetof(struct ww_model_values, chat), NULL, NULL, 0, 0,
		"run: PROMPT is a user's message in the model's chat form" },
	{ "max-new", 0, WW_OPT_INT, offsetof(struct ww_model_values, max_new), "N", "256", 1, 1 << 22,
		"run, bench: maximum new tokens" },
	{ "temperature", 0, WW_OPT_NUM, offsetof(struct ww_model_values, temperature), "T", "1", 0, 100,
		"run: 0 takes the likeliest token each time" },
	{ "top-k", 0, WW_OPT_INT, offsetof(struct ww_model_values, top_k), "N", "0", 0, 1 << 22,
		"run: only the N likeliest tokens; 0: all" },
	{ "top-p", 0, WW_OPT_NUM, offsetof(struct ww_model_values, top_p), "P", "1", 0, 1,
		"run: only the likeliest tokens that make up P" },
	{ "min-p", 0, WW_OPT_NUM, offsetof(struct ww_model_values, min_p), "P", "0", 0, 1,
		"run: only tokens with P of the likeliest one's probability" },
	{ "stop", 0, WW_OPT_STR, offsetof(struct ww_model_values, stop), "TEXT", NULL, 0, 0, "run: end before this text" },
	{ "batches", 0, WW_OPT_STR, offsetof(struct ww_model_values, batches), "LIST", "1,8,64", 0, 0,
		"bench: numbers of sequences at once" },
	{ "prompt-tokens", 0, WW_OPT_INT, offsetof(struct ww_model_values, prompt_tokens), "N", "512", 1, 1 << 22,
		"bench: length of each prompt" },
	WW_OPT_JSON(struct ww_model_values, json), WW_OPT_END
};

/* ---- info */

static json_t *info_tokenizer(const char *dir)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_tok *t = NULL;
	enum ww_chat_format f;
	char path[PATH_MAX];
	if (ww_fs_join(path, dir, "tokenizer.json", &err) != WW_OK || !ww_fs_is_file(path))
		return json_null();
	if (ww_tok_open(dir, &t, &err) != WW_OK)
		return json_pack("{s:s}", "error", err.msg);
	const char *chat = ww_chat_detect(t, &f, &err) != WW_OK ? NULL : f == WW_CHAT_LLAMA3 ? "llama3" : "chatml";
	json_t *v = json_pack("{s:i, s:s?}", "tokens", (int)ww_tok_size(t), "chat", chat);
	ww_tok_free(t);
	return v;
}

static enum ww_rc info_json(const char *dir, json_t **out, struct ww_err *err)
{
	struct ww_config c;
	struct ww_st *st = NULL;
	char path[PATH_MAX];
	uint64_t bytes = 0;
	enum ww_rc rc;
	WW_TRY(ww_fs_join(path, dir, "config.json", err));
	WW_TRY(ww_config_read(path, &c, err));
	WW_TRY(ww_st_open(dir, &st, err));
	for (size_t i = 0; i < ww_st_count(st); i++)
		bytes += ww_st_at(st, i)->bytes;
	/* What one token leaves in the key-value cache, in the model's own type. */
	uint64_t kv = 2 * (uint64_t)c.layers * (uint64_t)c.kv_heads * (uint64_t)c.head_dim * (c.dtype == WW_F32 ? 4 : 2);
	*out = json_pack("{s:s, s:I, s:I, s:i, s:I, s:o, s:o}", "architecture", ww_arch_name(c.arch), "parameters",
		(json_int_t)ww_config_params(&c), "weight_bytes", (json_int_t)bytes, "tensors", (int)ww_st_count(st),
		"kv_bytes_per_token", (json_int_t)kv, "config", ww_config_to_json(&c), "tokenizer", info_tokenizer(dir));
out:
	ww_st_free(st);
	return rc;
}

static void info_text(const json_t *v)
{
	const json_t *c = json_object_get(v, "config"), *t = json_object_get(v, "tokenizer");
	printf("%s, %.1f M parameters in %lld tensors, %.1f MB\n", ww_json_str(v, "architecture", "?"),
		ww_json_num(v, "parameters", 0) / 1e6, (long long)ww_json_int(v, "tensors", 0),
		ww_json_num(v, "weight_bytes", 0) / 1e6);
	printf("layers %lld, hidden %lld, intermediate %lld, heads %lld (%lld key-value) of %lld\n",
		(long long)ww_json_int(c, "num_hidden_layers", 0), (long long)ww_json_int(c, "hidden_size", 0),
		(long long)ww_json_int(c, "intermediate_size", 0), (long long)ww_json_int(c, "num_attention_heads", 0),
		(long long)ww_json_int(c, "num_key_value_heads", 0), (long long)ww_json_int(c, "head_dim", 0));
	printf("vocabulary %lld%s, context %lld, rope theta %.0f, scaling %s, stored as %s\n",
		(long long)ww_json_int(c, "vocab_size", 0), ww_json_bool(c, "tie_word_embeddings", 0) ? " (tied)" : "",
		(long long)ww_json_int(c, "max_position_embeddings", 0), ww_json_num(c, "rope_theta", 0),
		ww_json_str(json_object_get(c, "rope_scaling"), "rope_type", "none"), ww_json_str(c, "torch_dtype", "?"));
	printf("key-value cache %lld bytes a token\n", (long long)ww_json_int(v, "kv_bytes_per_token", 0));
	if (json_object_get(t, "error"))
		printf("tokenizer: %s\n", ww_json_str(t, "error", ""));
	else if (json_is_object(t))
		printf("tokenizer: %lld tokens, chat form %s\n", (long long)ww_json_int(t, "tokens", 0),
			ww_json_str(t, "chat", "none"));
	else
		puts("tokenizer: none");
}

static enum ww_rc run_info(const struct ww_model_values *v, char **argv, struct ww_err *err)
{
	json_t *info = NULL;
	WW_CHECK(info_json(argv[1], &info, err));
	if (v->json) {
		ww_cmd_print_json(info);
		return WW_OK;
	}
	info_text(info);
	json_decref(info);
	return WW_OK;
}

/* ---- init and convert */

static enum ww_rc finish_save(
	const struct ww_model_values *v, struct ww_model *m, const char *dir, const char *from, struct ww_err *err)
{
	enum ww_rc rc = ww_model_save(m, dir, from, err);
	if (rc == WW_OK && v->json)
		ww_cmd_print_json(json_pack("{s:s, s:I, s:s}", "saved", dir, "parameters",
			(json_int_t)ww_config_params(&m->config), "dtype", m->dtype == WW_BF16 ? "bf16" : "fp32"));
	else if (rc == WW_OK)
		printf("%s: %.1f M parameters, %s\n", dir, (double)ww_config_params(&m->config) / 1e6,
			m->dtype == WW_BF16 ? "bf16" : "fp32");
	return rc;
}

static enum ww_rc run_init(const struct ww_model_values *v, char **argv, struct ww_dev *dev, struct ww_err *err)
{
	struct ww_config c;
	struct ww_model *m = NULL;
	char path[PATH_MAX];
	enum ww_rc rc = v->tokenizer ? ww_fs_join(path, v->tokenizer, "tokenizer.json", err) : WW_OK;
	if (rc == WW_OK && v->tokenizer && !ww_fs_is_file(path))
		rc = ww_err_set(err, WW_ERR_USAGE,
			"there is no %s; --tokenizer takes the directory of a tokenizer in Hugging Face's form", path);
	if (rc == WW_OK)
		rc = ww_config_read(argv[1], &c, err);
	if (rc == WW_OK)
		rc = ww_model_new(&c, dev, ww_model_dtype(v), (uint64_t)v->seed, &m, err);
	if (rc == WW_OK)
		rc = finish_save(v, m, argv[2], v->tokenizer, err);
	ww_model_free(m);
	return rc;
}

static enum ww_rc run_convert(const struct ww_model_values *v, char **argv, struct ww_dev *dev, struct ww_err *err)
{
	struct ww_model *m = NULL;
	enum ww_rc rc = (v->critic ? ww_model_open_critic : ww_model_open)(argv[1], dev, ww_model_dtype(v), &m, err);
	if (rc == WW_OK)
		rc = finish_save(v, m, argv[2], argv[1], err);
	ww_model_free(m);
	return rc;
}

/* ---- tokenizer */

static enum ww_rc learn_text(void *trainer, const char *text, size_t n, struct ww_err *err)
{
	return ww_tok_trainer_add(trainer, text, n, err);
}

static enum ww_rc run_tokenizer(const struct ww_model_values *v, char **argv, struct ww_err *err)
{
	static const char *const special[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
	struct ww_tok_trainer *t;
	int64_t files, tokens;
	char path[PATH_MAX];
	if (!v->data)
		return ww_err_set(err, WW_ERR_USAGE, "model tokenizer needs --data");
	WW_CHECK(ww_fs_join(path, argv[1], "tokenizer.json", err));
	if (ww_fs_is_file(path))
		return ww_err_set(err, WW_ERR_USAGE, "%s is there already; name another directory", path);
	WW_CHECK(ww_tok_trainer_new(
		special, WW_ARRAY_LEN(special), strcmp(v->words, "code") ? WW_TOK_WORDS_GPT2 : WW_TOK_WORDS_CODE, &t, err));
	enum ww_rc rc = ww_data_texts(v->data, learn_text, t, &files, err);
	if (rc == WW_OK)
		rc = ww_fs_mkdirs(argv[1], err);
	if (rc == WW_OK)
		rc = ww_tok_trainer_write(t, v->vocabulary, path, &tokens, err);
	ww_tok_trainer_free(t);
	if (rc == WW_OK && v->json)
		ww_cmd_print_json(
			json_pack("{s:s, s:I, s:I}", "saved", path, "tokens", (json_int_t)tokens, "files", (json_int_t)files));
	else if (rc == WW_OK)
		printf("%s: %" PRId64 " tokens, of %" PRId64 " files\n", path, tokens, files);
	return rc;
}

/* ---- score */

static enum ww_rc ids_of_array(const char *path, const struct ww_str *text, struct ww_ids *ids, struct ww_err *err)
{
	json_t *v = NULL, *x;
	size_t i;
	enum ww_rc rc = ww_json_parse(text->p, text->len, path, &v, err);
	if (rc != WW_OK)
		return err->rc = WW_ERR_USAGE;
	if (!json_is_array(v))
		rc = ww_err_set(err, WW_ERR_USAGE, "%s is not a JSON array of token ids", path);
	json_array_foreach(v, i, x) {
		if (rc == WW_OK && (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > INT32_MAX))
			rc = ww_err_set(err, WW_ERR_USAGE, "%s: element %zu is not a token id", path, i);
		if (rc == WW_OK && !ww_ids_add(ids, (int32_t)json_integer_value(x)))
			rc = ww_err_set(err, WW_ERR_LIMIT, "%s holds more than %d tokens", path, SCORE_IDS_MAX);
	}
	json_decref(v);
	return rc;
}

static enum ww_rc read_ids(const struct ww_model_values *v, const char *dir, const char *path, struct ww_ids *ids,
	size_t *bytes, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(SCORE_FILE_MAX);
	struct ww_tok *t = NULL;
	enum ww_rc rc;
	WW_TRY(ww_fs_read(path, SCORE_FILE_MAX, &text, err));
	*bytes = v->ids ? 0 : text.len;
	if (v->ids) {
		WW_TRY(ids_of_array(path, &text, ids, err));
	} else {
		WW_TRY(ww_tok_open(dir, &t, err));
		WW_TRY(ww_tok_encode(t, text.p, text.len, 1, 1, ids, err));
	}
	if (ids->n < 2)
		rc = ww_err_set(err, WW_ERR_USAGE, "%s has fewer than two tokens: nothing to score", path);
out:
	ww_tok_free(t);
	return rc;
}

static void print_score(const struct ww_model_values *v, const struct ww_ids *ids, const float *logp, size_t bytes)
{
	double sum = 0, n = (double)(ids->n - 1);
	for (size_t i = 0; i + 1 < ids->n; i++)
		sum += (double)logp[i];
	if (!v->json) {
		printf("%zu tokens, log-probability %.6f, %.6f a token, perplexity %.4f", ids->n, sum, sum / n, exp(-sum / n));
		if (bytes)
			printf(", %.4f bits a byte", -sum / (double)bytes / M_LN2);
		putchar('\n');
		return;
	}
	json_t *tokens = json_array(), *list = json_array();
	json_array_append_new(list, json_null()); /* nothing comes before the first token */
	for (size_t i = 0; i < ids->n; i++) {
		json_array_append_new(tokens, json_integer(ids->p[i]));
		if (i + 1 < ids->n)
			json_array_append_new(list, ww_json_real((double)logp[i]));
	}
	ww_cmd_print_json(json_pack("{s:o, s:o, s:o, s:o, s:o}", "tokens", tokens, "logprobs", list, "sum",
		ww_json_real(sum), "mean", ww_json_real(sum / n), "perplexity", ww_json_real(exp(-sum / n))));
}

static enum ww_rc run_score(const struct ww_model_values *v, char **argv, struct ww_dev *dev, struct ww_err *err)
{
	struct ww_model *m = NULL;
	struct ww_run *r = NULL;
	WW_AUTO(ww_ids_release) struct ww_ids ids = WW_IDS_INIT(SCORE_IDS_MAX);
	float *logp = NULL;
	size_t bytes = 0;
	enum ww_rc rc;
	WW_TRY(read_ids(v, argv[1], argv[2], &ids, &bytes, err));
	WW_TRY(ww_model_open(argv[1], dev, ww_model_dtype(v), &m, err));
	/* The last token is only a target. */
	int32_t starts[2] = { 0, (int32_t)ids.n - 1 };
	struct ww_batch b = { .ids = ids.p, .starts = starts, .t = starts[1], .sequences = 1 };
	if (b.t > m->config.max_position) {
		rc = ww_err_set(err, WW_ERR_LIMIT, "%s has %zu tokens, the model's context is %lld", argv[2], ids.n,
			(long long)m->config.max_position);
		goto out;
	}
	WW_TRY(ww_run_new(m, b.t, 1, 0, &r, err));
	logp = malloc((size_t)b.t * sizeof(*logp));
	if (!logp) {
		rc = ww_nomem(err);
		goto out;
	}
	WW_TRY(ww_run_forward(r, &b, err));
	WW_TRY(ww_run_logprobs(r, ids.p + 1, logp, err));
	print_score(v, &ids, logp, bytes);
out:
	free(logp);
	ww_run_free(r);
	ww_model_free(m);
	return rc;
}

/* ---- the command */

/* reads: the first argument is a model that is there.  on_device: run() gets the device of --device; else it opens its
 * own. */
static const struct verb {
	const char *name;
	int args, reads;
	enum ww_rc (*alone)(const struct ww_model_values *v, char **argv, struct ww_err *err);
	enum ww_rc (*on_device)(const struct ww_model_values *v, char **argv, struct ww_dev *dev, struct ww_err *err);
} verbs[] = { { "info", 1, 1, run_info, NULL }, { "init", 2, 0, NULL, run_init },
	{ "convert", 2, 1, NULL, run_convert }, { "tokenizer", 1, 0, run_tokenizer, NULL },
	{ "score", 2, 1, NULL, run_score }, { "run", 2, 1, ww_model_run, NULL }, { "bench", 1, 1, ww_model_bench, NULL } };

static enum ww_rc run_verb(const struct verb *verb, const struct ww_model_values *v, char **argv, struct ww_err *err)
{
	struct ww_dev *dev = NULL;
	char found[PATH_MAX];
	if (verb->reads) {
		WW_CHECK(ww_model_find(argv[1], found, err));
		argv[1] = found;
	}
	if (verb->alone)
		return verb->alone(v, argv, err);
	enum ww_rc rc = ww_dev_open(v->device, !v->fast, &dev, err);
	if (rc == WW_OK)
		rc = verb->on_device(v, argv, dev, err);
	ww_dev_close(dev);
	return rc;
}

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	const struct ww_model_values *v = values;
	struct ww_err err = WW_ERR_INIT;
	for (size_t i = 0; i < WW_ARRAY_LEN(verbs); i++) {
		if (strcmp(argv[0], verbs[i].name))
			continue;
		if (argc - 1 != verbs[i].args)
			ww_err_set(&err, WW_ERR_USAGE, "model %s needs %d argument%s; warpwright model -h explains them", argv[0],
				verbs[i].args, verbs[i].args > 1 ? "s" : "");
		else if (run_verb(&verbs[i], v, argv, &err) == WW_OK)
			return 0;
		return ww_cmd_fail(&err);
	}
	return ww_cmd_no_subcommand(cmd, argv[0]);
}

const struct ww_cmd ww_cmd_model = { .name = "model",
	.args = "run|info|init|convert|tokenizer|score|bench ARGUMENTS",
	.summary = "run, look at, make, convert, score and time transformer models",
	.details =
		"  model run DIR PROMPT           continue a text, or answer a message (--chat)\n"
		"  model info DIR                 config, parameters, tokenizer of a model in Hugging Face's form\n"
		"  model init CONFIG.json DIR     a new model with random weights\n"
		"  model convert DIR NEW_DIR      the same model with weights of another type (--dtype)\n"
		"  model tokenizer DIR            a new tokenizer of byte pairs, learnt from texts (--data)\n"
		"  model score DIR FILE           log-probability of every token of a text, or of given ids (--ids)\n"
		"  model bench DIR                tokens a second of prompts and of answers, exact and fast, by batch\n\n"
		"DIR of run, info, convert, score and bench: also a model that comes with the program, by its name (nano).\n"
		"Llama, Qwen2 and Qwen3 architectures.  What is written loads in transformers; it is whole or not there, and\n"
		"never replaces something.",
	.opts = opts,
	.values_size = sizeof(struct ww_model_values),
	.min_args = 1,
	.max_args = 3,
	.run = run };
