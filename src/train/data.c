/* data.c - reads and tokenises what a model learns from.
 *
 * All data is held in memory: four bytes for a token's id and four for its weight.  Data for fine-tuning is far smaller
 * than memory; so a run can shuffle freely, and on resuming compare the data by its hash.  Rejected: a cache of ids on
 * disk, which is one more format and can be stale; tokenising takes a small part of a run.
 *
 * A directory is read in the order of names, without hidden entries and links, so that the same tree gives the same
 * sequences on every machine.  Files in it that are not text are skipped and counted; a file named in the recipe that
 * cannot be used is an error.
 */
#include "train/data.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "nn/chat.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX ((int64_t)1 << 31)
enum { FILE_MAX = 1 << 30, LINE_IDS_MAX = 1 << 24 };

struct reader {
	const struct ww_data_opts *o;
	struct ww_data *d;
	struct ww_err *err;
	int has_format;
	enum ww_chat_format format;
	enum ww_rc (*text)(void *ctx, const char *text, size_t n,
		struct ww_err *err); /* not NULL: gets every text, and no sequences are made */
	void *ctx;
};

/* ---- sequences */

static enum ww_rc add_seq(struct reader *r, int64_t at, int64_t n)
{
	struct ww_data *d = r->d;
	double sum = 0;
	for (int64_t i = 1; i < n; i++)
		sum += fabs((double)d->weight[at + i]);
	if (sum <= 0) {
		d->empty++;
		return WW_OK;
	}
	if (!WW_GROW(d->seqs, &d->seqs_cap, d->count + 1))
		return ww_err_set(r->err, WW_ERR_NOMEM, "out of memory");
	d->seqs[d->count++] = (struct ww_seq){ at, n };
	return WW_OK;
}

/* Append ids with their weights (NULL: all 1), and cut them into sequences. */
static enum ww_rc add_ids(
	struct reader *r, const struct ww_ids *ids, const float *weight, float factor, int is_document)
{
	struct ww_data *d = r->d;
	int64_t n = (int64_t)ids->n, most = r->o->max_inputs + 1, begin = d->tokens;
	enum ww_rc rc = WW_OK;
	if (!is_document && n > most) {
		n = most;
		d->cut++;
	}
	if (d->tokens + n > TOKENS_MAX)
		return ww_err_set(r->err, WW_ERR_LIMIT, "the data has more than %lld tokens", (long long)TOKENS_MAX);
	for (size_t i = 0; i < ids->n; i++)
		if (ids->p[i] < 0 || ids->p[i] >= r->o->config->vocab_size)
			return ww_err_set(r->err, WW_ERR_USAGE, "token %d is outside the model's vocabulary of %lld", ids->p[i],
				(long long)r->o->config->vocab_size);
	size_t cap = d->ids_cap;
	if (!WW_GROW(d->ids, &cap, begin + n) || !WW_GROW(d->weight, &d->ids_cap, begin + n))
		return ww_err_set(r->err, WW_ERR_NOMEM, "out of memory");
	for (int64_t i = 0; i < n; i++) {
		d->ids[begin + i] = ids->p[i];
		d->weight[begin + i] = weight ? weight[i] * factor : factor;
	}
	d->tokens += n;
	for (int64_t at = 0; rc == WW_OK && at + 1 < n; at += most - 1)
		rc = add_seq(r, begin + at, n - at < most ? n - at : most);
	return rc;
}

static enum ww_rc add_document(struct reader *r, const char *text, size_t n, float factor)
{
	WW_AUTO(ww_ids_release) struct ww_ids ids = WW_IDS_INIT(LINE_IDS_MAX);
	if (r->text) {
		r->d->documents++;
		return r->text(r->ctx, text, n, r->err);
	}
	if (!r->o->tok)
		return ww_err_set(r->err, WW_ERR_USAGE, "text needs a tokenizer, and the model has none");
	WW_CHECK(ww_tok_encode(r->o->tok, text, n, 0, 1, &ids, r->err));
	if (r->o->config->eos_count && !ww_ids_add(&ids, (int32_t)r->o->config->eos[0]))
		return ww_err_set(r->err, WW_ERR_LIMIT, "a document has more than %d tokens", LINE_IDS_MAX);
	WW_CHECK(add_ids(r, &ids, NULL, factor, 1));
	r->d->documents++;
	return WW_OK;
}

/* ---- lines */

/* What the tokens of a reply say, without the one that ended it. */
static json_t *reply_of(const struct reader *r, const struct ww_chat_source *s, const json_t *list)
{
	ww_auto_str text = WW_STR_INIT(FILE_MAX);
	struct ww_detok detok;
	const json_t *v;
	size_t i, n = json_array_size(list);
	if (n && ww_chat_ends(r->o->tok, s, (int32_t)json_integer_value(json_array_get(list, n - 1))))
		n--;
	ww_detok_init(&detok, r->o->tok, 1);
	for (i = 0; i < n && (v = json_array_get(list, i)); i++)
		ww_detok_add(&detok, (int32_t)json_integer_value(v), &text);
	ww_detok_finish(&detok, &text);
	return ww_chat_parse(s->format, text.p, text.len);
}

/* Ids of another tokenizer would teach noise, so the tokens of a reply must spell its text. */
static enum ww_rc check_tokens(const struct reader *r, const struct ww_chat_source *s, const json_t *m, size_t at)
{
	static const char *const numbers[] = { "logprobs", "sampling_logprobs" };
	const json_t *tokens = json_object_get(m, "tokens"), *ids = json_object_get(tokens, "ids"), *v;
	for (size_t i = 0; i < WW_ARRAY_LEN(numbers); i++)
		if ((v = json_object_get(tokens, numbers[i])) && !json_is_null(v) && json_array_size(v) != json_array_size(ids))
			return ww_err_set(
				r->err, WW_ERR_USAGE, "message %zu: \"%s\" must have one number for each id", at, numbers[i]);
	if (tokens && !json_is_array(ids))
		return ww_err_set(r->err, WW_ERR_USAGE, "message %zu: \"tokens\" has no array \"ids\"", at);
	if (!json_array_size(ids))
		return WW_OK;
	json_auto_t *reply = reply_of(r, s, ids);
	const char *said = ww_json_str(reply, "content", ""), *text = ww_json_str(m, "content", "");
	return strcmp(said, text)
		? ww_err_set(r->err, WW_ERR_USAGE,
			  "message %zu: its tokens spell \"%.60s\" and not its content; they are of another tokenizer, and "
			  "episode export --no-tokens leaves them out",
			  at, said)
		: WW_OK;
}

static enum ww_rc conversation_ids(struct reader *r, const json_t *v, struct ww_ids *ids, struct ww_str *learn)
{
	struct ww_chat_source s = {
		.messages = json_object_get(v, "messages"), .tools = json_object_get(v, "tools"), .config = r->o->config
	};
	const json_t *m;
	size_t i;
	if (!r->o->tok)
		return ww_err_set(r->err, WW_ERR_USAGE, "a conversation needs a tokenizer, and the model has none");
	if (!r->has_format)
		WW_CHECK(ww_chat_detect(r->o->tok, &r->format, r->err));
	r->has_format = 1;
	s.format = r->format;
	WW_CHECK(ww_chat_ids(r->o->tok, &s, ids, learn, r->err));
	json_array_foreach(s.messages, i, m)
		WW_CHECK(check_tokens(r, &s, m, i));
	return WW_OK;
}

/* The text of a conversation's messages, as documents. */
static enum ww_rc add_message_texts(struct reader *r, const json_t *v)
{
	const json_t *m, *messages = json_object_get(v, "messages");
	size_t i;
	if (!messages)
		return ww_err_set(r->err, WW_ERR_USAGE, "\"ids\" hold no text");
	json_array_foreach(messages, i, m) {
		const char *said = ww_json_str(m, "content", "");
		WW_CHECK(add_document(r, said, strlen(said), 1));
	}
	return WW_OK;
}

static enum ww_rc add_conversation(struct reader *r, const json_t *v, float factor)
{
	WW_AUTO(ww_ids_release) struct ww_ids ids = WW_IDS_INIT(LINE_IDS_MAX);
	ww_auto_str learn = WW_STR_INIT(LINE_IDS_MAX);
	float *weight = NULL;
	enum ww_rc rc;
	if (ww_json_bool(v, "compacted", 0)) { /* no turn saw all of these messages */
		r->d->compacted++;
		return WW_OK;
	}
	WW_TRY(conversation_ids(r, v, &ids, &learn));
	if (!(weight = malloc((ids.n + 1) * sizeof(*weight))))
		rc = ww_err_set(r->err, WW_ERR_NOMEM, "out of memory");
	for (size_t i = 0; rc == WW_OK && i < ids.n; i++)
		weight[i] = r->o->learn_all || learn.p[i];
	if (rc == WW_OK)
		rc = add_ids(r, &ids, weight, factor, 0);
	r->d->conversations++;
out:
	free(weight);
	return rc;
}

static enum ww_rc add_given_ids(struct reader *r, const json_t *v, float factor)
{
	const json_t *list = json_object_get(v, "ids"), *weights = json_object_get(v, "weights"), *x;
	WW_AUTO(ww_ids_release) struct ww_ids ids = WW_IDS_INIT(LINE_IDS_MAX);
	size_t n = json_array_size(list), i;
	ww_auto_free float *weight = weights ? malloc((n + 1) * sizeof(*weight)) : NULL;
	enum ww_rc rc = weights && !weight ? ww_err_set(r->err, WW_ERR_NOMEM, "out of memory") : WW_OK;
	if (rc == WW_OK && (!n || (weights && json_array_size(weights) != n)))
		rc = ww_err_set(
			r->err, WW_ERR_USAGE, "\"ids\" must be a list of token ids, \"weights\" a list of as many numbers");
	json_array_foreach(list, i, x) {
		json_int_t id = json_is_integer(x) ? json_integer_value(x) : -1;
		if (rc == WW_OK && (id < 0 || id > INT32_MAX))
			rc = ww_err_set(r->err, WW_ERR_USAGE, "element %zu of \"ids\" is not a token id", i);
		else if (rc == WW_OK && !ww_ids_add(&ids, (int32_t)id))
			rc = ww_err_set(r->err, WW_ERR_LIMIT, "more than %d ids", LINE_IDS_MAX);
	}
	for (i = 0; rc == WW_OK && weights && i < n; i++) {
		x = json_array_get(weights, i);
		weight[i] = (float)json_number_value(x);
		if (!json_is_number(x) || !isfinite(weight[i]))
			rc = ww_err_set(r->err, WW_ERR_USAGE, "element %zu of \"weights\" is not a number", i);
	}
	if (rc == WW_OK)
		rc = add_ids(r, &ids, weight, factor, 0);
	return rc;
}

/* Members of a line: those that are learned from, then those by which `episode export` names the source. */
static int is_member(const char *key)
{
	static const char *const members[] = { "messages", "tools", "text", "ids", "weights", "weight", "task", "task_id",
		"task_signature", "target", "device", "rule", "policy", "seed", "turns", "ended", "compacted", "reason",
		"reward_final", "reward_best", "episode" };
	return ww_word_at(key, members, WW_ARRAY_LEN(members)) >= 0;
}

static enum ww_rc check_held_out(const struct reader *r, const json_t *line)
{
	const char *task = !r->o->held_out ? NULL
									   : ww_held_out_find(r->o->held_out, ww_json_str(line, "task_signature", NULL),
											 ww_json_str(line, "task_id", NULL));
	return task ? ww_err_set(r->err, WW_ERR_USAGE, "it is about a held-out task, %.300s; leave it out", task) : WW_OK;
}

static enum ww_rc add_line(struct reader *r, const char *line, size_t n)
{
	json_auto_t *v = NULL;
	const char *key;
	json_t *member;
	enum ww_rc rc = ww_json_parse(line, n, "the line", &v, r->err);
	if (rc != WW_OK)
		return r->err->rc = WW_ERR_USAGE;
	json_object_foreach(v, key, member)
		if (rc == WW_OK && !is_member(key))
			rc = ww_err_set(r->err, WW_ERR_USAGE,
				"unknown member \"%.40s\"; a line has messages, tools, text, ids, weights and weight, and what "
				"episode export adds",
				key);
	if (rc == WW_OK)
		rc = check_held_out(r, v);
	const json_t *text = json_object_get(v, "text"), *w = json_object_get(v, "weight");
	float factor = w ? (float)json_number_value(w) : 1;
	int kinds = !!text + !!json_object_get(v, "messages") + !!json_object_get(v, "ids");
	if (rc == WW_OK && w && (!json_is_number(w) || !isfinite(factor)))
		rc = ww_err_set(r->err, WW_ERR_USAGE, "\"weight\" is not a number");
	else if (rc == WW_OK && (kinds != 1 || (text && !json_is_string(text))))
		rc = ww_err_set(r->err, WW_ERR_USAGE, "needs one of \"messages\", \"text\" and \"ids\"");
	else if (rc == WW_OK && text)
		rc = add_document(r, json_string_value(text), json_string_length(text), factor);
	else if (rc == WW_OK && r->text)
		rc = add_message_texts(r, v);
	else if (rc == WW_OK)
		rc = json_object_get(v, "ids") ? add_given_ids(r, v, factor) : add_conversation(r, v, factor);
	return rc;
}

static enum ww_rc add_lines(struct reader *r, const char *path, const struct ww_str *text)
{
	int64_t number = 0;
	for (const char *p = text->p, *end = text->p + text->len; p < end;) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((nl ? nl : end) - p);
		number++;
		if (strspn(p, " \t\r") < n) {
			enum ww_rc rc = add_line(r, p, n);
			if (rc != WW_OK)
				return ww_err_wrap(r->err, "%s:%lld", path, (long long)number);
		}
		p += n + 1;
	}
	return WW_OK;
}

/* ---- files */

static int is_jsonl(const char *path)
{
	size_t n = strlen(path);
	return n > 6 && !strcmp(path + n - 6, ".jsonl");
}

static enum ww_rc add_file(struct reader *r, const char *path, int named)
{
	ww_auto_str text = WW_STR_INIT(FILE_MAX);
	enum ww_rc rc = ww_fs_read(path, FILE_MAX, &text, r->err);
	if (rc == WW_OK && is_jsonl(path)) {
		rc = add_lines(r, path, &text);
	} else if (rc == WW_OK && memchr(text.p, 0, text.len)) {
		if (named)
			rc = ww_err_set(r->err, WW_ERR_USAGE, "%s is not text", path);
		r->d->binary++;
		goto out;
	} else if (rc == WW_OK && text.len) {
		rc = add_document(r, text.p, text.len, 1);
		if (rc != WW_OK)
			ww_err_wrap(r->err, "%s", path);
	}
	r->d->files++;
out:
	return rc;
}

static enum ww_rc add_found(void *ctx, const char *path, struct ww_err *err) { return add_file(ctx, path, 0); }

static enum ww_rc add_path(struct reader *r, const char *path)
{
	glob_t g = { 0 };
	enum ww_rc rc = WW_OK;
	if (ww_fs_is_dir(path))
		return ww_fs_walk(path, add_found, r, r->err);
	if (ww_fs_is_file(path))
		return add_file(r, path, 1);
	if (glob(path, 0, NULL, &g) || !g.gl_pathc)
		rc = ww_err_set(r->err, WW_ERR_USAGE, "no data: %s is no file, no directory, and matches nothing", path);
	for (size_t i = 0; rc == WW_OK && i < g.gl_pathc; i++)
		rc = ww_fs_is_dir(g.gl_pathv[i]) ? ww_fs_walk(g.gl_pathv[i], add_found, r, r->err)
										 : add_file(r, g.gl_pathv[i], 1);
	globfree(&g);
	return rc;
}

static enum ww_rc add_paths(struct reader *r)
{
	const char *paths = r->o->paths;
	char path[PATH_MAX];
	int part;
	while ((part = ww_list_part(&paths, path, sizeof(path))) > 0)
		WW_CHECK(add_path(r, path));
	return part < 0 ? ww_err_set(r->err, WW_ERR_LIMIT, "a path in the data is too long") : WW_OK;
}

static enum ww_rc add_all(struct reader *r)
{
	enum ww_rc rc = add_paths(r);
	if (rc != WW_OK || r->d->count)
		return rc;
	ww_auto_str cut = WW_STR_INIT(256);
	if (r->d->cut)
		ww_str_addf(&cut, "; %lld were cut after %lld tokens: a longer `sequence` keeps what the assistant says",
			(long long)r->d->cut, (long long)r->o->max_inputs);
	return ww_err_set(r->err, WW_ERR_USAGE,
		"the data holds nothing to learn (%lld files read, %lld sequences without a token that has weight, %lld compacted "
		"conversations%s)",
		(long long)r->d->files, (long long)r->d->empty, (long long)r->d->compacted, cut.p ? cut.p : "");
}

enum ww_rc ww_data_open(const struct ww_data_opts *o, struct ww_data **out, struct ww_err *err)
{
	struct reader r = { .o = o, .d = calloc(1, sizeof(*r.d)), .err = err };
	if (!r.d)
		return ww_nomem(err);
	enum ww_rc rc = add_all(&r);
	if (rc != WW_OK) {
		ww_data_free(r.d);
		return rc;
	}
	struct ww_hash_part parts[] = { { r.d->ids, (size_t)r.d->tokens * sizeof(*r.d->ids) },
		{ r.d->weight, (size_t)r.d->tokens * sizeof(*r.d->weight) },
		{ r.d->seqs, (size_t)r.d->count * sizeof(*r.d->seqs) } };
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), r.d->hash);
	*out = r.d;
	return WW_OK;
}

enum ww_rc ww_data_texts(const char *paths, enum ww_rc (*fn)(void *ctx, const char *text, size_t n, struct ww_err *err),
	void *ctx, int64_t *files, struct ww_err *err)
{
	struct ww_data d = { .files = 0 };
	struct ww_data_opts o = { .paths = paths };
	struct reader r = { .o = &o, .d = &d, .err = err, .text = fn, .ctx = ctx };
	WW_CHECK(add_paths(&r));
	*files = d.files;
	return d.documents ? WW_OK : ww_err_set(err, WW_ERR_USAGE, "the data holds no text");
}

void ww_data_free(struct ww_data *d)
{
	if (!d)
		return;
	free(d->ids);
	free(d->weight);
	free(d->seqs);
	free(d);
}
