/* tok_train.c - see tok_train.h.
 *
 * Words are counted first, so that what a merge costs depends on how many different words it changes.  A heap holds the
 * pairs with the words that they are in.  While a pair waits its count can only be too high; it is corrected when it
 * comes out.  Where two ways of merging spell one token, the pair that the second way makes waits a second time with
 * its own words: so does the library's, and the later merge gives the rank.
 */
#include "nn/tok_train.h"
#include "nn/tok_internal.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 30, FILE_BYTES_MAX = 1 << 28 };

struct word {
	size_t at, n; /* of bytes; after counting, of symbols */
	int64_t count;
};

/* Open addressing by pair; 0 marks an empty slot, so keys are one more. */
struct tally {
	uint64_t key;
	int64_t count;
	size_t list; /* 1 + index of the words that are being collected for it; 0: none */
};

struct wait {
	int64_t count;
	int32_t a, b;
	uint32_t *words;
	size_t n, cap;
};

struct ww_tok_trainer {
	struct ww_tok *tok; /* bytes and special tokens only: splits text into words */
	char **special;
	enum ww_tok_split_words splits;
	int specials;
	struct ww_str text, bytes; /* a text as UTF-8; all different words */
	struct word *words;
	size_t n_words, words_cap, *slots, n_slots; /* slots: 1 + word */
	int32_t *symbols;
	struct tally *tallies;
	size_t n_tallies, tally_slots;
	struct wait *heap, *fresh; /* fresh: pairs that a merge makes */
	size_t n_heap, heap_cap, n_fresh, fresh_cap;
	struct {
		char *p;
		size_t n;
	} *tokens; /* by id, as bytes */
	size_t n_tokens, tokens_cap;
	struct {
		int32_t a, b;
	} *merges;
	size_t n_merges, merges_cap;
	int32_t byte_id[256];
};

/* ---- the alphabet of bytes, as GPT-2 spells it */

static uint32_t letter_of(int byte)
{
	uint32_t n = 0;
	if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)
		return (uint32_t)byte;
	for (int b = 0; b < byte; b++)
		n += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
	return 256 + n;
}

static void add_letter(struct ww_str *s, int byte)
{
	uint32_t c = letter_of(byte);
	if (c < 128) {
		ww_str_addc(s, (char)c);
		return;
	}
	ww_str_addc(s, (char)(0xc0 | c >> 6));
	ww_str_addc(s, (char)(0x80 | (c & 63)));
}

static void spell(const struct ww_tok_trainer *t, int32_t id, struct ww_str *out)
{
	ww_str_reset(out);
	if (id < t->specials) {
		ww_str_adds(out, t->special[id]);
		return;
	}
	for (size_t i = 0; i < t->tokens[id].n; i++)
		add_letter(out, (unsigned char)t->tokens[id].p[i]);
}

/* ---- tokens */

static int32_t add_token(struct ww_tok_trainer *t, const char *p, size_t n)
{
	if (!WW_GROW(t->tokens, &t->tokens_cap, t->n_tokens + 1) || !(t->tokens[t->n_tokens].p = malloc(n + 1)))
		return -1;
	memcpy(t->tokens[t->n_tokens].p, p, n);
	t->tokens[t->n_tokens].n = n;
	return (int32_t)t->n_tokens++;
}

/* Special tokens, then the bytes in the order of their letters. */
static enum ww_rc add_alphabet(struct ww_tok_trainer *t, struct ww_err *err)
{
	for (int i = 0; i < t->specials; i++)
		if (add_token(t, t->special[i], strlen(t->special[i])) < 0)
			return ww_nomem(err);
	for (uint32_t c = 0; c < 512; c++)
		for (int b = 0; b < 256; b++)
			if (letter_of(b) == c && (t->byte_id[b] = add_token(t, &(char){ (char)b }, 1)) < 0)
				return ww_nomem(err);
	return WW_OK;
}

static const char code_pattern[] = " ?[A-Za-z_][A-Za-z0-9_]*| ?[0-9]| ?[^\\sA-Za-z0-9_]+|\\s+(?!\\S)|\\s+";

static json_t *pre_tokenizer(enum ww_tok_split_words words)
{
	json_t *bytes = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
		"use_regex", words == WW_TOK_WORDS_GPT2);
	if (words == WW_TOK_WORDS_GPT2)
		return bytes;
	return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type", "Split",
		"pattern", "Regex", code_pattern, "behavior", "Isolated", "invert", 0, bytes);
}

static json_t *tokenizer_json(const struct ww_tok_trainer *t)
{
	ww_auto_str a = WW_STR_INIT(FILE_BYTES_MAX), b = WW_STR_INIT(FILE_BYTES_MAX);
	json_t *added = json_array(), *vocab = json_object(), *merges = json_array();
	for (int32_t id = 0; id < (int32_t)t->n_tokens; id++) {
		spell(t, id, &a);
		json_object_set_new(vocab, a.p, json_integer(id));
		if (id < t->specials)
			json_array_append_new(added,
				json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", a.p, "single_word", 0, "lstrip",
					0, "rstrip", 0, "normalized", 0, "special", 1));
	}
	for (size_t i = 0; i < t->n_merges; i++) {
		spell(t, t->merges[i].a, &a);
		spell(t, t->merges[i].b, &b);
		json_array_append_new(merges, json_pack("[s, s]", a.p, b.p));
	}
	return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:{s:s, s:b, s:b, s:b}, "
					 "s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}}",
		"version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
		pre_tokenizer(t->splits), "post_processor", "decoder", "type", "ByteLevel", "add_prefix_space", 1,
		"trim_offsets", 1, "use_regex", 1, "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix",
		"end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges", merges);
}

static enum ww_rc to_text(const struct ww_tok_trainer *t, struct ww_str *out, struct ww_err *err)
{
	json_auto_t *v = tokenizer_json(t);
	if (!v)
		return ww_nomem(err);
	ww_json_add(out, v);
	ww_str_addc(out, '\n');
	return out->cut ? ww_err_set(err, WW_ERR_LIMIT, "the tokenizer is larger than %d bytes", FILE_BYTES_MAX) : WW_OK;
}

enum ww_rc ww_tok_trainer_new(const char *const *special, int count, enum ww_tok_split_words words,
	struct ww_tok_trainer **out, struct ww_err *err)
{
	ww_auto_str json = WW_STR_INIT(FILE_BYTES_MAX);
	struct ww_tok_trainer *t;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(t, 1, err));
	ww_str_init(&t->text, TEXT_MAX);
	ww_str_init(&t->bytes, TEXT_MAX);
	t->splits = words;
	WW_TRY(WW_NEW(t->special, count + 1, err));
	for (; t->specials < count; t->specials++)
		if (!(t->special[t->specials] = strdup(special[t->specials])))
			WW_TRY(ww_nomem(err));
	WW_TRY(add_alphabet(t, err));
	WW_TRY(to_text(t, &json, err));
	WW_TRY(ww_tok_open_bytes(json.p, json.len, "the new tokenizer", &t->tok, err));
	*out = t;
out:
	if (rc != WW_OK)
		ww_tok_trainer_free(t);
	return rc;
}

static void free_waits(struct wait *w, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(w[i].words);
	free(w);
}

void ww_tok_trainer_free(struct ww_tok_trainer *t)
{
	if (!t)
		return;
	ww_tok_free(t->tok);
	for (int i = 0; i < t->specials; i++)
		free(t->special[i]);
	for (size_t i = 0; i < t->n_tokens; i++)
		free(t->tokens[i].p);
	free_waits(t->heap, t->n_heap);
	free_waits(t->fresh, t->n_fresh);
	free(t->special);
	free(t->tokens);
	free(t->words);
	free(t->slots);
	free(t->symbols);
	free(t->tallies);
	free(t->merges);
	ww_str_release(&t->text);
	ww_str_release(&t->bytes);
	free(t);
}

/* ---- counting words */

static int grow_slots(struct ww_tok_trainer *t)
{
	size_t n = t->n_slots ? 2 * t->n_slots : 1 << 14;
	size_t *slots = calloc(n, sizeof(*slots));
	if (!slots)
		return 0;
	for (size_t i = 0; i < t->n_words; i++) {
		size_t at = ww_hash_fnv(t->bytes.p + t->words[i].at, t->words[i].n) & (n - 1);
		while (slots[at])
			at = (at + 1) & (n - 1);
		slots[at] = i + 1;
	}
	free(t->slots);
	t->slots = slots;
	t->n_slots = n;
	return 1;
}

static enum ww_rc count_word(struct ww_tok_trainer *t, const char *p, size_t n, struct ww_err *err)
{
	if (2 * t->n_words >= t->n_slots && !grow_slots(t))
		return ww_nomem(err);
	size_t at = ww_hash_fnv(p, n) & (t->n_slots - 1);
	for (; t->slots[at]; at = (at + 1) & (t->n_slots - 1)) {
		struct word *w = &t->words[t->slots[at] - 1];
		if (w->n == n && !memcmp(t->bytes.p + w->at, p, n)) {
			w->count++;
			return WW_OK;
		}
	}
	if (!WW_GROW(t->words, &t->words_cap, t->n_words + 1))
		return ww_nomem(err);
	t->words[t->n_words] = (struct word){ t->bytes.len, n, 1 };
	ww_str_add(&t->bytes, p, n);
	t->slots[at] = ++t->n_words;
	return t->bytes.cut
		? ww_err_set(err, WW_ERR_LIMIT, "the texts have more than %d bytes of different words", TEXT_MAX)
		: WW_OK;
}

enum ww_rc ww_tok_trainer_add(struct ww_tok_trainer *t, const char *text, size_t n, struct ww_err *err)
{
	ww_str_reset(&t->text);
	for (size_t at = 0, bad; at < n;) {
		size_t whole = ww_utf8_valid((const unsigned char *)text + at, n - at, &bad);
		ww_str_add(&t->text, whole ? text + at : "\xef\xbf\xbd", whole ? whole : 3);
		at += whole ? whole : bad ? bad : n - at;
	}
	if (t->text.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "a text is larger than %d bytes", TEXT_MAX);
	WW_CHECK(ww_tok_split(t->tok, t->text.p, t->text.len, err));
	for (size_t i = 0; i < t->tok->pieces.n; i++) {
		const struct ww_tok_piece *p = &t->tok->pieces.p[i];
		WW_CHECK(count_word(t, t->text.p + p->begin, p->end - p->begin, err));
	}
	return WW_OK;
}

/* ---- pairs: how often they are there */

static uint64_t key_of(int32_t a, int32_t b) { return ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) + 1; }

static struct tally *find(struct tally *slots, size_t n, uint64_t key)
{
	size_t at = ww_hash_mix(0, key) & (n - 1);
	while (slots[at].key && slots[at].key != key)
		at = (at + 1) & (n - 1);
	return &slots[at];
}

/* The pair's tally, a new one where it has none; NULL: out of memory. */
static struct tally *tally_of(struct ww_tok_trainer *t, int32_t a, int32_t b)
{
	if (2 * t->n_tallies >= t->tally_slots) {
		size_t n = t->tally_slots ? 2 * t->tally_slots : 1 << 14;
		struct tally *slots = calloc(n, sizeof(*slots));
		if (!slots)
			return NULL;
		for (size_t i = 0; i < t->tally_slots; i++)
			if (t->tallies[i].key)
				*find(slots, n, t->tallies[i].key) = t->tallies[i];
		free(t->tallies);
		t->tallies = slots;
		t->tally_slots = n;
	}
	struct tally *y = find(t->tallies, t->tally_slots, key_of(a, b));
	t->n_tallies += !y->key;
	y->key = key_of(a, b);
	return y;
}

/* Change the pair's count in this word by `by`.  Where it grows, the word is added to the pair's list of words. */
static int change(struct ww_tok_trainer *t, int32_t a, int32_t b, int by, uint32_t word)
{
	struct tally *y = tally_of(t, a, b);
	if (!y)
		return 0;
	y->count += by * t->words[word].count;
	if (by < 0)
		return 1;
	if (!y->list) {
		if (!WW_GROW(t->fresh, &t->fresh_cap, t->n_fresh + 1))
			return 0;
		t->fresh[t->n_fresh] = (struct wait){ .a = a, .b = b };
		y->list = ++t->n_fresh;
	}
	struct wait *w = &t->fresh[y->list - 1];
	if (w->n && w->words[w->n - 1] == word)
		return 1;
	if (!WW_GROW(w->words, &w->cap, w->n + 1))
		return 0;
	w->words[w->n++] = word;
	return 1;
}

/* ---- the heap: the most frequent pair, of equals that of the smaller ids */

static int before(const struct wait *x, const struct wait *y)
{
	return x->count != y->count ? x->count > y->count : x->a != y->a ? x->a < y->a : x->b < y->b;
}

static int push(struct ww_tok_trainer *t, struct wait w)
{
	if (!WW_GROW(t->heap, &t->heap_cap, t->n_heap + 1))
		return 0;
	size_t i = t->n_heap++;
	for (; i && before(&w, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
		t->heap[i] = t->heap[(i - 1) / 2];
	t->heap[i] = w;
	return 1;
}

static struct wait pop(struct ww_tok_trainer *t)
{
	struct wait top = t->heap[0], last = t->heap[--t->n_heap];
	size_t i = 0;
	for (size_t k; (k = 2 * i + 1) < t->n_heap; i = k) {
		k += k + 1 < t->n_heap && before(&t->heap[k + 1], &t->heap[k]);
		if (!before(&t->heap[k], &last))
			break;
		t->heap[i] = t->heap[k];
	}
	t->heap[i] = last;
	return top;
}

/* Push the pairs that a merge has made onto the heap. */
static int push_fresh(struct ww_tok_trainer *t)
{
	for (; t->n_fresh; t->n_fresh--) {
		struct wait *w = &t->fresh[t->n_fresh - 1];
		struct tally *y = find(t->tallies, t->tally_slots, key_of(w->a, w->b));
		y->list = 0;
		w->count = y->count;
		if (w->count <= 0)
			free(w->words);
		else if (!push(t, *w))
			return 0;
	}
	return 1;
}

/* ---- merging */

static enum ww_rc begin(struct ww_tok_trainer *t, struct ww_err *err)
{
	WW_CHECK(WW_NEW(t->symbols, t->bytes.len + 1, err));
	for (size_t i = 0; i < t->bytes.len; i++)
		t->symbols[i] = t->byte_id[(unsigned char)t->bytes.p[i]];
	for (size_t w = 0; w < t->n_words; w++)
		for (size_t i = 0; i + 1 < t->words[w].n; i++)
			if (!change(t, t->symbols[t->words[w].at + i], t->symbols[t->words[w].at + i + 1], 1, (uint32_t)w))
				return ww_nomem(err);
	return push_fresh(t) ? WW_OK : ww_nomem(err);
}

static int merge_word(struct ww_tok_trainer *t, uint32_t word, int32_t a, int32_t b, int32_t with)
{
	struct word *w = &t->words[word];
	int32_t *s = t->symbols + w->at;
	int ok = 1;
	for (size_t i = 0; i + 1 < w->n; i++) {
		if (s[i] != a || s[i + 1] != b)
			continue;
		if (i)
			ok &= change(t, s[i - 1], a, -1, word) && change(t, s[i - 1], with, 1, word);
		s[i] = with;
		memmove(s + i + 1, s + i + 2, (--w->n - i - 1) * sizeof(*s));
		if (i + 1 < w->n)
			ok &= change(t, b, s[i + 1], -1, word) && change(t, with, s[i + 1], 1, word);
	}
	return ok;
}

/* The id of two tokens' bytes together: that of an ordinary token which spells the same, or a new one; -1: out of
 * memory. */
static int32_t joined_id(struct ww_tok_trainer *t, int32_t a, int32_t b)
{
	size_t n = t->tokens[a].n + t->tokens[b].n;
	ww_auto_free char *p = malloc(n + 1);
	if (!p)
		return -1;
	memcpy(p, t->tokens[a].p, t->tokens[a].n);
	memcpy(p + t->tokens[a].n, t->tokens[b].p, t->tokens[b].n);
	for (size_t i = (size_t)t->specials + 256; i < t->n_tokens; i++)
		if (t->tokens[i].n == n && !memcmp(t->tokens[i].p, p, n))
			return (int32_t)i;
	return add_token(t, p, n);
}

/* A pair that was merged before moves to the end. */
static int note_merge(struct ww_tok_trainer *t, int32_t a, int32_t b)
{
	size_t i = 0;
	while (i < t->n_merges && (t->merges[i].a != a || t->merges[i].b != b))
		i++;
	if (i < t->n_merges)
		memmove(t->merges + i, t->merges + i + 1, (--t->n_merges - i) * sizeof(*t->merges));
	if (!WW_GROW(t->merges, &t->merges_cap, t->n_merges + 1))
		return 0;
	t->merges[t->n_merges].a = a;
	t->merges[t->n_merges++].b = b;
	return 1;
}

static int merge(struct ww_tok_trainer *t, const struct wait *top)
{
	int32_t with = joined_id(t, top->a, top->b);
	int ok = with >= 0 && note_merge(t, top->a, top->b);
	for (size_t i = 0; ok && i < top->n; i++)
		ok = merge_word(t, top->words[i], top->a, top->b, with);
	return ok && push_fresh(t);
}

enum ww_rc ww_tok_trainer_write(
	struct ww_tok_trainer *t, int64_t size, const char *path, int64_t *tokens, struct ww_err *err)
{
	ww_auto_str json = WW_STR_INIT(FILE_BYTES_MAX);
	if (size < (int64_t)t->n_tokens)
		return ww_err_set(
			err, WW_ERR_USAGE, "a vocabulary has at least %zu tokens: the bytes and the special ones", t->n_tokens);
	WW_CHECK(begin(t, err));
	while ((int64_t)t->n_tokens < size && t->n_heap) {
		struct wait top = pop(t);
		int64_t now = find(t->tallies, t->tally_slots, key_of(top.a, top.b))->count;
		int stale = now != top.count, ok = 1;
		top.count = now;
		if (stale)
			ok = push(t, top);
		else if (now >= 1)
			ok = merge(t, &top);
		if (!stale || !ok)
			free(top.words);
		if (!ok)
			return ww_nomem(err);
		if (!stale && now < 1)
			break;
	}
	*tokens = (int64_t)t->n_tokens;
	WW_CHECK(to_text(t, &json, err));
	return ww_fs_write(path, json.p, json.len, err);
}
