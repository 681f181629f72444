/* tok_load.c - builds a tokenizer out of tokenizer.json.
 *
 * A vocabulary is spelt in printable characters: each byte of a token stands as one character, itself where it is
 * printable Latin-1 and U+0100 onwards where it is not (space is U+0120).  Here tokens are stored as the bytes they
 * stand for, and merges as pairs of ids.
 *
 * The file is a download.  Everything in it that would change ids is either implemented or refused by name.  Ids are
 * bounded and unique, merges may only name tokens of the vocabulary and give one of it, and may not repeat; since both
 * sides of a merge have bytes, its result is longer than either, and merges can never form a cycle.
 */
#include "nn/tok_internal.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { NESTING_MAX = 8, TOKEN_MAX = 1 << 20 };

static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct loader {
	struct ww_tok *t;
	const char *what;
	struct ww_err *err;
	int16_t byte_of[324]; /* character -> byte, -1 none */
	int byte_level;       /* steps after ByteLevel would see other characters */
};

static enum ww_rc bad(struct loader *l, const char *text)
{
	return ww_err_set(l->err, WW_ERR_USAGE, "%s: %s", l->what, text);
}

static enum ww_rc nomem(struct loader *l)
{
	return ww_err_set(l->err, WW_ERR_NOMEM, "%s: the vocabulary is too large", l->what);
}

static void init_byte_map(struct loader *l)
{
	int next = 256;
	memset(l->byte_of, -1, sizeof(l->byte_of));
	for (int b = 0; b < 256; b++) {
		int printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
		l->byte_of[printable ? b : next++] = (int16_t)b;
	}
}

/* The bytes that a token stands for, in the arena; 0 where a character stands for no byte. */
static int map_bytes(struct loader *l, const char *s, size_t n, char *out, size_t *out_n)
{
	size_t k = 0;
	for (size_t i = 0, len; i < n; i += len) {
		uint32_t c = ww_utf8_get(s + i, &len);
		if (c >= WW_ARRAY_LEN(l->byte_of) || l->byte_of[c] < 0)
			return 0;
		out[k++] = (char)l->byte_of[c];
	}
	*out_n = k;
	return 1;
}

static enum ww_rc put_token(struct loader *l, int64_t id, const char *bytes, size_t n)
{
	struct ww_tok *t = l->t;
	if (t->token[id].is_set)
		return ww_err_set(l->err, WW_ERR_USAGE, "%s: two tokens have the id %lld", l->what, (long long)id);
	t->token[id].p = bytes;
	t->token[id].n = (uint32_t)n;
	t->token[id].is_set = 1;
	return WW_OK;
}

static enum ww_rc load_word(struct loader *l, const char *name, const json_t *v)
{
	struct ww_tok *t = l->t;
	size_t n = strlen(name), k = 0;
	char *copy = ww_arena_strdup(&t->arena, name), *bytes = ww_arena_alloc(&t->arena, n + 1);
	if (!copy || !bytes)
		return nomem(l);
	int64_t id = json_integer_value(v);
	if (!ww_tok_words_add(&t->by_name, copy, n, (int32_t)id))
		return ww_err_set(l->err, WW_ERR_USAGE, "%s: token \"%.40s\" appears twice", l->what, name);
	if (!map_bytes(l, name, n, bytes, &k))
		return put_token(l, id, copy, n);
	if (k && !ww_tok_words_add(&t->by_bytes, bytes, k, (int32_t)id))
		return bad(l, "two tokens stand for the same bytes");
	if (k == 1)
		t->byte_id[(unsigned char)bytes[0]] = (int32_t)id;
	return put_token(l, id, bytes, k);
}

/* Largest id of the vocabulary and of the added tokens, checked. */
static enum ww_rc measure(struct loader *l, const json_t *vocab, const json_t *added)
{
	const char *name;
	json_t *v;
	size_t i;
	int64_t top = -1;
	json_object_foreach((json_t *)vocab, name, v) {
		int64_t id = json_is_integer(v) ? json_integer_value(v) : -1;
		if (id < 0 || id >= WW_TOK_IDS || strlen(name) > TOKEN_MAX)
			return ww_err_set(
				l->err, WW_ERR_USAGE, "%s: token \"%.40s\" has no id from 0 to %d", l->what, name, WW_TOK_IDS - 1);
		top = id > top ? id : top;
	}
	json_array_foreach(added, i, v) {
		const json_t *n = json_object_get(v, "id");
		int64_t id = json_is_integer(n) ? json_integer_value(n) : -1;
		if (id < 0 || id >= WW_TOK_IDS)
			return ww_err_set(
				l->err, WW_ERR_USAGE, "%s: added token %zu has no id from 0 to %d", l->what, i, WW_TOK_IDS - 1);
		top = id > top ? id : top;
	}
	l->t->size = (int32_t)(top + 1);
	l->t->token = ww_arena_alloc(&l->t->arena, (size_t)(top + 1) * sizeof(*l->t->token));
	return l->t->token ? WW_OK : nomem(l);
}

/* "a b" or ["a", "b"]: the two ids. */
static int merge_sides(const json_t *v, const char *side[2], size_t n[2])
{
	if (json_is_array(v) && json_array_size(v) == 2) {
		for (int i = 0; i < 2; i++) {
			side[i] = json_string_value(json_array_get(v, (size_t)i));
			n[i] = side[i] ? strlen(side[i]) : 0;
		}
		return side[0] && side[1];
	}
	const char *s = json_string_value(v), *space = s ? strchr(s, ' ') : NULL;
	if (!space || strchr(space + 1, ' '))
		return 0;
	side[0] = s;
	n[0] = (size_t)(space - s);
	side[1] = space + 1;
	n[1] = strlen(space + 1);
	return 1;
}

static enum ww_rc load_merge(struct loader *l, const json_t *v, uint32_t rank, struct ww_str *scratch)
{
	struct ww_tok *t = l->t;
	const char *side[2];
	size_t n[2];
	if (!merge_sides(v, side, n))
		return ww_err_set(l->err, WW_ERR_USAGE, "%s: merge %u is not a pair of tokens", l->what, rank);
	int32_t a = ww_tok_words_get(&t->by_name, side[0], n[0]), b = ww_tok_words_get(&t->by_name, side[1], n[1]);
	ww_str_reset(scratch);
	ww_str_add(scratch, side[0], n[0]);
	ww_str_add(scratch, side[1], n[1]);
	int32_t id = scratch->cut ? -1 : ww_tok_words_get(&t->by_name, scratch->p, scratch->len);
	if (a < 0 || b < 0 || id < 0)
		return ww_err_set(l->err, WW_ERR_USAGE,
			"%s: merge %u (\"%.40s\" + \"%.40s\") uses or makes a token that the "
			"vocabulary lacks",
			l->what, rank, side[0], side[1]);
	if (!n[0] || !n[1])
		return ww_err_set(l->err, WW_ERR_USAGE, "%s: merge %u joins an empty token and would never end", l->what, rank);
	if (!ww_tok_pairs_add(&t->merges, a, b, rank, id))
		return ww_err_set(l->err, WW_ERR_USAGE, "%s: merge %u (\"%.40s\" + \"%.40s\") appears twice", l->what, rank,
			side[0], side[1]);
	return WW_OK;
}

static enum ww_rc load_merges(struct loader *l, const json_t *merges)
{
	ww_auto_str scratch = WW_STR_INIT(2 * TOKEN_MAX);
	enum ww_rc rc = WW_OK;
	if (!json_is_array(merges) || json_array_size(merges) > WW_TOK_IDS)
		return bad(l, "\"merges\" is not an array, or too long");
	if (!ww_tok_pairs_init(&l->t->merges, &l->t->arena, json_array_size(merges)))
		return nomem(l);
	for (size_t i = 0; rc == WW_OK && i < json_array_size(merges); i++)
		rc = load_merge(l, json_array_get(merges, i), (uint32_t)i, &scratch);
	return rc;
}

static int is_set(const json_t *obj, const char *key)
{
	const json_t *v = json_object_get(obj, key);
	return !(!v || json_is_null(v) || json_is_false(v) || (json_is_string(v) && !*json_string_value(v)) ||
		(json_is_number(v) && json_number_value(v) == 0));
}

static enum ww_rc load_model(struct loader *l, const json_t *model, const json_t *added)
{
	struct ww_tok *t = l->t;
	static const char *const foreign[] = { "dropout", "continuing_subword_prefix", "end_of_word_suffix",
		"byte_fallback" };
	const char *type = ww_json_str(model, "type", "BPE"), *name;
	json_t *vocab = json_object_get(model, "vocab"), *v;
	if (strcmp(type, "BPE"))
		return ww_err_set(
			l->err, WW_ERR_USAGE, "%s: model type \"%.40s\" is not supported (byte-level BPE is)", l->what, type);
	for (size_t i = 0; i < WW_ARRAY_LEN(foreign); i++)
		if (is_set(model, foreign[i]))
			return ww_err_set(l->err, WW_ERR_USAGE, "%s: \"%s\" is not supported", l->what, foreign[i]);
	if (!json_is_object(vocab) || (added && !json_is_array(added)))
		return bad(l, "\"vocab\" is not an object, or \"added_tokens\" not an array");
	WW_CHECK(measure(l, vocab, added));
	size_t count = json_object_size(vocab) + json_array_size(added);
	if (!ww_tok_words_init(&t->by_name, &t->arena, count) || !ww_tok_words_init(&t->by_bytes, &t->arena, count))
		return nomem(l);
	memset(t->byte_id, -1, sizeof(t->byte_id));
	json_object_foreach(vocab, name, v) {
		WW_CHECK(load_word(l, name, v));
	}
	const char *unk = json_string_value(json_object_get(model, "unk_token"));
	t->unk = unk ? ww_tok_words_get(&t->by_name, unk, strlen(unk)) : -1;
	if (unk && *unk && t->unk < 0)
		return bad(l, "\"unk_token\" is not in the vocabulary");
	t->fuse_unk = ww_json_bool(model, "fuse_unk", 0);
	t->ignore_merges = ww_json_bool(model, "ignore_merges", 0);
	return load_merges(l, json_object_get(model, "merges"));
}

static enum ww_rc load_normalizer(struct loader *l, const json_t *v, int depth)
{
	const char *type = ww_json_str(v, "type", "");
	if (!v || json_is_null(v))
		return WW_OK;
	if (!strcmp(type, "NFC")) {
		l->t->nfc = 1;
		return WW_OK;
	}
	if (strcmp(type, "Sequence") || depth == NESTING_MAX)
		return ww_err_set(l->err, WW_ERR_USAGE, "%s: normalizer \"%.40s\" is not supported (NFC is)", l->what, type);
	const json_t *list = json_object_get(v, "normalizers");
	for (size_t i = 0; i < json_array_size(list); i++) {
		WW_CHECK(load_normalizer(l, json_array_get(list, i), depth + 1));
	}
	return WW_OK;
}

static enum ww_rc add_step(struct loader *l, const char *pattern, int literal, enum ww_split_behavior b, int invert)
{
	struct ww_tok *t = l->t;
	if (t->step_count == WW_TOK_STEPS_MAX)
		return bad(l, "too many pre-tokenizers");
	if (l->byte_level)
		return bad(l, "a pre-tokenizer after ByteLevel is not supported");
	struct ww_tok_step *s = &t->steps[t->step_count];
	*s = (struct ww_tok_step){ .behavior = b, .invert = invert };
	enum ww_rc rc = ww_tok_step_init(s, pattern, literal, l->what, l->err);
	t->step_count += rc == WW_OK;
	return rc;
}

static enum ww_rc load_split(struct loader *l, const json_t *v)
{
	static const char *const names[] = { [WW_SPLIT_REMOVED] = "Removed",
		[WW_SPLIT_ISOLATED] = "Isolated",
		[WW_SPLIT_CONTIGUOUS] = "Contiguous",
		[WW_SPLIT_PREVIOUS] = "MergedWithPrevious",
		[WW_SPLIT_NEXT] = "MergedWithNext" };
	const json_t *pattern = json_object_get(v, "pattern");
	const char *regex = ww_json_str(pattern, "Regex", NULL), *string = ww_json_str(pattern, "String", NULL);
	const char *behavior = ww_json_str(v, "behavior", "");
	if (!regex == !string)
		return bad(l, "a Split pre-tokenizer has no pattern");
	int i = ww_word_at(behavior, names, WW_ARRAY_LEN(names));
	if (i < 0)
		return ww_err_set(l->err, WW_ERR_USAGE, "%s: split behavior \"%.40s\" is not supported", l->what, behavior);
	return add_step(l, regex ? regex : string, !regex, (enum ww_split_behavior)i, ww_json_bool(v, "invert", 0));
}

static enum ww_rc load_byte_level(struct loader *l, const json_t *v)
{
	if (l->byte_level)
		return bad(l, "two ByteLevel pre-tokenizers");
	if (ww_json_bool(v, "add_prefix_space", 1)) {
		if (l->t->step_count)
			return bad(l, "\"add_prefix_space\" after other pre-tokenizers is not supported");
		l->t->prefix_space = 1;
	}
	enum ww_rc rc = ww_json_bool(v, "use_regex", 1) ? add_step(l, gpt2_pattern, 0, WW_SPLIT_ISOLATED, 0) : WW_OK;
	l->byte_level = 1;
	return rc;
}

static enum ww_rc load_pre_tokenizer(struct loader *l, const json_t *v, int depth)
{
	const char *type = ww_json_str(v, "type", "");
	if (!strcmp(type, "Split"))
		return load_split(l, v);
	if (!strcmp(type, "ByteLevel"))
		return load_byte_level(l, v);
	if (!strcmp(type, "Digits"))
		return add_step(
			l, "\\p{N}", 0, ww_json_bool(v, "individual_digits", 0) ? WW_SPLIT_ISOLATED : WW_SPLIT_CONTIGUOUS, 0);
	if (strcmp(type, "Sequence") || depth == NESTING_MAX)
		return ww_err_set(l->err, WW_ERR_USAGE,
			"%s: pre-tokenizer \"%.40s\" is not supported (Split, Digits and ByteLevel are)", l->what, type);
	const json_t *list = json_object_get(v, "pretokenizers");
	for (size_t i = 0; i < json_array_size(list); i++) {
		WW_CHECK(load_pre_tokenizer(l, json_array_get(list, i), depth + 1));
	}
	return WW_OK;
}

static const char *nfc_copy(struct loader *l, const char *s, size_t *n)
{
	ww_auto_str normal = WW_STR_INIT(4 * TOKEN_MAX);
	char *copy = ww_tok_nfc(s, *n, &normal, l->err) == WW_OK ? ww_arena_strdup(&l->t->arena, normal.p) : NULL;
	*n = normal.len;
	return copy;
}

static enum ww_rc load_added_token(struct loader *l, const json_t *v)
{
	struct ww_tok *t = l->t;
	const char *text = json_string_value(json_object_get(v, "content"));
	size_t n = text ? strlen(text) : 0;
	int64_t id = json_integer_value(json_object_get(v, "id"));
	const char *copy = n ? ww_arena_strdup(&t->arena, text) : NULL;
	if (!n || n > TOKEN_MAX)
		return ww_err_set(
			l->err, WW_ERR_USAGE, "%s: the added token with id %lld has no content", l->what, (long long)id);
	if (!copy)
		return nomem(l);
	int32_t found = ww_tok_words_get(&t->by_name, text, n);
	if (found >= 0 && found != id)
		return ww_err_set(l->err, WW_ERR_USAGE, "%s: token \"%.40s\" has two ids", l->what, text);
	if (found < 0) {
		WW_CHECK(put_token(l, id, copy, n));
		ww_tok_words_add(&t->by_name, copy, n, (int32_t)id);
	}
	int special = ww_json_bool(v, "special", 0), normalized = !special && ww_json_bool(v, "normalized", 1);
	t->token[id].special = special;
	if (normalized && t->nfc) {
		copy = nfc_copy(l, text, &n);
		if (!copy)
			return nomem(l);
	}
	struct ww_tok_added_set *set = normalized ? &t->normalized : &t->raw;
	set->p[set->n++] = (struct ww_tok_added){ copy, (uint32_t)n, (int32_t)id, special != 0,
		ww_json_bool(v, "lstrip", 0) != 0, ww_json_bool(v, "rstrip", 0) != 0, ww_json_bool(v, "single_word", 0) != 0 };
	return WW_OK;
}

static enum ww_rc load_added(struct loader *l, const json_t *added)
{
	struct ww_tok_added_set *sets[2] = { &l->t->raw, &l->t->normalized };
	size_t count = json_array_size(added);
	for (int i = 0; i < 2; i++) {
		sets[i]->p = ww_arena_alloc(&l->t->arena, (count + 1) * sizeof(*sets[i]->p));
		if (!sets[i]->p)
			return nomem(l);
	}
	for (size_t i = 0; i < count; i++) {
		WW_CHECK(load_added_token(l, json_array_get(added, i)));
	}
	for (int s = 0; s < 2; s++) {
		ww_tok_added_sort(sets[s]);
		for (size_t i = 1; i < sets[s]->n; i++)
			if (sets[s]->p[i].n == sets[s]->p[i - 1].n &&
				!memcmp(sets[s]->p[i].content, sets[s]->p[i - 1].content, sets[s]->p[i].n))
				return bad(l, "two added tokens have the same content");
	}
	return WW_OK;
}

static enum ww_rc load_template(struct loader *l, const json_t *v)
{
	struct ww_tok *t = l->t;
	const json_t *items = json_object_get(v, "single"), *table = json_object_get(v, "special_tokens");
	int seen = 0;
	for (size_t i = 0; i < json_array_size(items); i++) {
		const json_t *special = json_object_get(json_array_get(items, i), "SpecialToken");
		if (!special) {
			seen = 1;
			continue;
		}
		const json_t *ids = json_object_get(json_object_get(table, ww_json_str(special, "id", "")), "ids");
		for (size_t k = 0; k < json_array_size(ids); k++) {
			int64_t id = json_integer_value(json_array_get(ids, k));
			size_t *n = seen ? &t->after_count : &t->before_count;
			if (id < 0 || id >= t->size || *n == WW_TOK_TEMPLATE_MAX)
				return bad(l, "the template of the post-processor names an unknown id, or too many");
			(seen ? t->after : t->before)[(*n)++] = (int32_t)id;
		}
		if (!json_array_size(ids))
			return bad(l, "the template of the post-processor names a token without ids");
	}
	return WW_OK;
}

static enum ww_rc load_post_processor(struct loader *l, const json_t *v, int depth)
{
	const char *type = ww_json_str(v, "type", "");
	if (!v || json_is_null(v) || !strcmp(type, "ByteLevel"))
		return WW_OK;
	if (!strcmp(type, "TemplateProcessing"))
		return load_template(l, v);
	if (strcmp(type, "Sequence") || depth == NESTING_MAX)
		return ww_err_set(l->err, WW_ERR_USAGE, "%s: post-processor \"%.40s\" is not supported", l->what, type);
	const json_t *list = json_object_get(v, "processors");
	for (size_t i = 0; i < json_array_size(list); i++) {
		WW_CHECK(load_post_processor(l, json_array_get(list, i), depth + 1));
	}
	return WW_OK;
}

enum ww_rc ww_tok_load(struct ww_tok *t, const json_t *v, const char *what, struct ww_err *err)
{
	struct loader loader = { .t = t, .what = what, .err = err }, *l = &loader;
	const json_t *added = json_object_get(v, "added_tokens");
	init_byte_map(l);
	if (!json_is_object(json_object_get(v, "model")))
		return bad(l, "\"model\" is not an object: not a tokenizer.json");
	WW_CHECK(load_model(l, json_object_get(v, "model"), added));
	WW_CHECK(load_normalizer(l, json_object_get(v, "normalizer"), 0));
	WW_CHECK(load_added(l, added));
	WW_CHECK(load_pre_tokenizer(l, json_object_get(v, "pre_tokenizer"), 0));
	if (!l->byte_level)
		return bad(l, "the pre-tokenizer has no ByteLevel: only byte-level BPE is supported");
	WW_CHECK(load_post_processor(l, json_object_get(v, "post_processor"), 0));
	const char *decoder = ww_json_str(json_object_get(v, "decoder"), "type", "(none)");
	if (strcmp(decoder, "ByteLevel"))
		return ww_err_set(err, WW_ERR_USAGE, "%s: decoder \"%.40s\" is not supported (ByteLevel is)", what, decoder);
	return WW_OK;
}
