/* tokenizer.c - encoding, decoding and the lookups of a loaded tokenizer.
 *
 * Encoding runs in the order of Hugging Face's library, since ids must be equal: added tokens that are marked
 * "normalized": false are found in the raw text; what lies between them is normalised (NFC), searched for the other
 * added tokens, split by the patterns into words, and each word is merged.  One difference is deliberate: special
 * tokens are found only inside spans that allow them (tokenizer.h), and always in the raw text.
 *
 * All scratch memory belongs to the tokenizer and is under one lock: encoding takes milliseconds, and one warm cache of
 * words for all threads is faster than a cold one for each.
 */
#include "nn/tok_internal.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)256 << 20)
#define ARENA_MAX ((size_t)2 << 30)

void ww_ids_release(struct ww_ids *ids)
{
	free(ids->p);
	*ids = (struct ww_ids)WW_IDS_INIT(ids->max);
}

int ww_ids_add(struct ww_ids *ids, int32_t id)
{
	if (ids->n == ids->max || !WW_GROW(ids->p, &ids->cap, ids->n + 1))
		return 0;
	ids->p[ids->n++] = id;
	return 1;
}

static enum ww_rc open_json(const json_t *v, const char *what, struct ww_tok **out, struct ww_err *err)
{
	struct ww_tok *t;
	WW_CHECK(WW_NEW(t, 1, err));
	ww_arena_init(&t->arena, ARENA_MAX);
	pthread_mutex_init(&t->lock, NULL);
	ww_str_init(&t->text, WW_TOK_TEXT_MAX);
	ww_str_init(&t->normal, (size_t)4 * WW_TOK_TEXT_MAX);
	t->bpe = ww_tok_bpe_new();
	enum ww_rc rc = t->bpe ? ww_tok_load(t, v, what, err) : ww_nomem(err);
	if (rc == WW_OK)
		*out = t;
	else
		ww_tok_free(t);
	return rc;
}

enum ww_rc ww_tok_open_bytes(const char *json, size_t n, const char *what, struct ww_tok **out, struct ww_err *err)
{
	json_auto_t *v = NULL;
	enum ww_rc rc = ww_json_parse(json, n, what, &v, err);
	if (rc == WW_ERR_PROTOCOL)
		rc = err->rc = WW_ERR_USAGE;
	if (rc == WW_OK)
		rc = open_json(v, what, out, err);
	return rc;
}

enum ww_rc ww_tok_open(const char *path, struct ww_tok **out, struct ww_err *err)
{
	char inside[PATH_MAX];
	ww_auto_str text = WW_STR_INIT(FILE_MAX);
	if (ww_fs_is_dir(path)) {
		WW_CHECK(ww_fs_join(inside, path, "tokenizer.json", err));
		path = inside;
	}
	WW_CHECK(ww_fs_read(path, FILE_MAX, &text, err));
	return ww_tok_open_bytes(text.p, text.len, path, out, err);
}

void ww_tok_free(struct ww_tok *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->step_count; i++)
		ww_tok_step_release(&t->steps[i]);
	pcre2_match_context_free(t->match_context);
	pcre2_match_data_free(t->match_data);
	free(t->pieces.p);
	free(t->spare.p);
	ww_tok_bpe_free(t->bpe);
	ww_str_release(&t->text);
	ww_str_release(&t->normal);
	ww_arena_release(&t->arena);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* Append text, replacing what is not UTF-8. */
static void add_clean(struct ww_str *s, const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t good = 0;
	for (size_t i = 0; i < n;) {
		size_t bad, len = ww_utf8_valid(p + i, n - i, &bad);
		if (len) {
			i += len;
			continue;
		}
		ww_str_add(s, text + good, i - good);
		ww_str_adds(s, "\xef\xbf\xbd");
		i += bad ? bad : n - i;
		good = i;
	}
	ww_str_add(s, text + good, n - good);
}

static enum ww_rc encode_words(struct ww_tok *t, const char *text, size_t n, struct ww_ids *ids, struct ww_err *err)
{
	ww_auto_str prefixed = WW_STR_INIT((size_t)4 * WW_TOK_TEXT_MAX);
	if (t->prefix_space && n && text[0] != ' ') {
		ww_str_addc(&prefixed, ' ');
		ww_str_add(&prefixed, text, n);
		text = prefixed.p;
		n++;
		if (prefixed.cut)
			return ww_nomem(err);
	}
	if (n > UINT32_MAX / 2)
		return ww_err_set(err, WW_ERR_LIMIT, "the text is too long to be encoded at once");
	WW_CHECK(ww_tok_split(t, text, n, err));
	for (size_t i = 0; i < t->pieces.n; i++) {
		struct ww_tok_piece p = t->pieces.p[i];
		WW_CHECK(ww_tok_bpe_word(t, text + p.begin, p.end - p.begin, ids, err));
	}
	return WW_OK;
}

static int is_ascii(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] >= 0x80)
			return 0;
	return 1;
}

static enum ww_rc normalise(struct ww_tok *t, const char **text, size_t *n, struct ww_err *err)
{
	if (!t->nfc || is_ascii(*text, *n))
		return WW_OK;
	ww_str_reset(&t->normal);
	enum ww_rc rc = ww_tok_nfc(*text, *n, &t->normal, err);
	*text = t->normal.p;
	*n = t->normal.len;
	return rc;
}

/* Text that holds no raw added token. */
static enum ww_rc encode_segment(struct ww_tok *t, const char *text, size_t n, struct ww_ids *ids, struct ww_err *err)
{
	enum ww_rc rc = normalise(t, &text, &n, err);
	size_t done = 0, from = 0;
	struct ww_tok_match m;
	while (rc == WW_OK && ww_tok_added_next(&t->normalized, text, n, from, done, NULL, 0, &m)) {
		if (m.begin > done)
			rc = encode_words(t, text + done, m.begin - done, ids, err);
		if (rc == WW_OK && !ww_ids_add(ids, m.id))
			rc = ww_err_set(err, WW_ERR_LIMIT, "the text has more than %zu tokens", ids->n);
		done = m.end;
		from = m.resume;
	}
	if (rc == WW_OK && done < n)
		rc = encode_words(t, text + done, n - done, ids, err);
	return rc;
}

static enum ww_rc encode_clean(struct ww_tok *t, const char *text, size_t n, const struct ww_tok_zone *zones,
	size_t count, struct ww_ids *ids, struct ww_err *err)
{
	size_t done = 0, from = 0;
	struct ww_tok_match m;
	while (ww_tok_added_next(&t->raw, text, n, from, done, zones, count, &m)) {
		if (m.begin > done)
			WW_CHECK(encode_segment(t, text + done, m.begin - done, ids, err));
		if (!ww_ids_add(ids, m.id))
			return ww_err_set(err, WW_ERR_LIMIT, "the text has more than %zu tokens", ids->n);
		done = m.end;
		from = m.resume;
	}
	if (done < n)
		WW_CHECK(encode_segment(t, text + done, n - done, ids, err));
	return WW_OK;
}

static enum ww_rc add_all(struct ww_ids *ids, const int32_t *p, size_t n, struct ww_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (!ww_ids_add(ids, p[i]))
			return ww_err_set(err, WW_ERR_LIMIT, "the text has more than %zu tokens", ids->n);
	return WW_OK;
}

enum ww_rc ww_tok_encode_spans(struct ww_tok *t, const struct ww_tok_span *spans, size_t count, int use_template,
	struct ww_ids *ids, struct ww_err *err)
{
	ww_auto_free struct ww_tok_zone *zones = calloc(count + 1, sizeof(*zones));
	WW_LOCKED(&t->lock);
	if (!zones)
		return ww_nomem(err);
	ww_str_reset(&t->text);
	for (size_t i = 0; i < count; i++) {
		add_clean(&t->text, spans[i].text, spans[i].n);
		zones[i] = (struct ww_tok_zone){ t->text.len, spans[i].special };
	}
	if (t->text.cut)
		return ww_err_set(
			err, WW_ERR_LIMIT, "the text is too long to be encoded at once (limit %d bytes)", WW_TOK_TEXT_MAX);
	if (use_template)
		WW_CHECK(add_all(ids, t->before, t->before_count, err));
	WW_CHECK(encode_clean(t, t->text.p, t->text.len, zones, count, ids, err));
	if (use_template)
		WW_CHECK(add_all(ids, t->after, t->after_count, err));
	return WW_OK;
}

enum ww_rc ww_tok_encode(
	struct ww_tok *t, const char *text, size_t n, int special, int use_template, struct ww_ids *ids, struct ww_err *err)
{
	struct ww_tok_span span = { text, n, special };
	return ww_tok_encode_spans(t, &span, 1, use_template, ids, err);
}

int32_t ww_tok_size(const struct ww_tok *t) { return t->size; }

int32_t ww_tok_id(const struct ww_tok *t, const char *token)
{
	return ww_tok_words_get(&t->by_name, token, strlen(token));
}

int ww_tok_is_special(const struct ww_tok *t, int32_t id) { return id >= 0 && id < t->size && t->token[id].special; }

const char *ww_tok_bytes(const struct ww_tok *t, int32_t id, size_t *n)
{
	int is_token = id >= 0 && id < t->size && t->token[id].is_set;
	*n = is_token ? t->token[id].n : 0;
	return is_token ? t->token[id].p : "";
}

void ww_detok_init(struct ww_detok *d, const struct ww_tok *t, int skip_special)
{
	*d = (struct ww_detok){ .tok = t, .skip_special = skip_special };
}

/* One more byte: append what it completes. */
static void detok_byte(struct ww_detok *d, unsigned char c, struct ww_str *out)
{
	d->wait[d->n++] = c;
	while (d->n) {
		size_t bad, len = ww_utf8_valid(d->wait, (size_t)d->n, &bad);
		if (!len && !bad)
			return;
		if (len)
			ww_str_add(out, d->wait, len);
		else
			ww_str_adds(out, "\xef\xbf\xbd");
		len = len ? len : bad;
		d->n -= (int)len;
		memmove(d->wait, d->wait + len, (size_t)d->n);
	}
}

void ww_detok_add(struct ww_detok *d, int32_t id, struct ww_str *out)
{
	size_t n;
	const char *p = ww_tok_bytes(d->tok, id, &n);
	if (d->skip_special && ww_tok_is_special(d->tok, id))
		return;
	for (size_t i = 0; i < n; i++)
		detok_byte(d, (unsigned char)p[i], out);
}

void ww_detok_finish(struct ww_detok *d, struct ww_str *out)
{
	if (d->n)
		ww_str_adds(out, "\xef\xbf\xbd");
	d->n = 0;
}

void ww_tok_decode(const struct ww_tok *t, const int32_t *ids, size_t n, int skip_special, struct ww_str *out)
{
	struct ww_detok d;
	ww_detok_init(&d, t, skip_special);
	for (size_t i = 0; i < n; i++)
		ww_detok_add(&d, ids[i], out);
	ww_detok_finish(&d, out);
}
