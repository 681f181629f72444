/* tokenizer.h - text to token ids and back: byte-level BPE as in Hugging Face's tokenizer.json. */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

struct ww_tok;

/* A growing list of ids with a maximum.  Beyond it the encoder fails with WW_ERR_LIMIT. */
struct ww_ids {
	int32_t *p;
	size_t n, cap, max;
};
#define WW_IDS_INIT(max_ids) { NULL, 0, 0, (max_ids) }
void ww_ids_release(struct ww_ids *ids);
/* Append; 0 where the maximum or memory forbids it. */
int ww_ids_add(struct ww_ids *ids, int32_t id);

/* Open a tokenizer.json, or the one in a directory.  Whatever would change ids and is not supported is refused by name.
 */
enum ww_rc ww_tok_open(const char *path, struct ww_tok **out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_tok_open_bytes(
	const char *json, size_t n, const char *what, struct ww_tok **out, struct ww_err *err) WW_MUST_CHECK;
void ww_tok_free(struct ww_tok *t); /* NULL is fine */

/* A piece of the text.  Special tokens ("<|im_end|>") are recognised only where they lie wholly inside a span with
 * `special` set: what a user or a tool wrote can never forge one.  Ordinary merges cross the borders of spans. */
struct ww_tok_span {
	const char *text;
	size_t n;
	int special;
};

/* Append the ids of the spans' concatenated text.  template: also what the post-processor adds (Llama 3's beginning of
 * text).  Bytes that are not UTF-8 become U+FFFD.  Safe from several threads at once (they wait for each other). */
enum ww_rc ww_tok_encode_spans(struct ww_tok *t, const struct ww_tok_span *spans, size_t count, int use_template,
	struct ww_ids *ids, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_tok_encode(struct ww_tok *t, const char *text, size_t n, int special, int use_template,
	struct ww_ids *ids, struct ww_err *err) WW_MUST_CHECK;

/* One more than the largest id; an embedding may have more rows. */
int32_t ww_tok_size(const struct ww_tok *t);
/* The id of a token given as the file spells it ("<|im_end|>", "Ġthe"); -1 where there is none. */
int32_t ww_tok_id(const struct ww_tok *t, const char *token);
int ww_tok_is_special(const struct ww_tok *t, int32_t id);
/* The bytes of a token; not always whole UTF-8.  Unknown ids have none. */
const char *ww_tok_bytes(const struct ww_tok *t, int32_t id, size_t *n);

/* Ids to text, one at a time: what is appended to `out` is always whole UTF-8; an unfinished character waits for its
 * other bytes, and bytes that can never become one are replaced by U+FFFD.  finish flushes what waits. */
struct ww_detok {
	const struct ww_tok *tok;
	int skip_special;
	unsigned char wait[4];
	int n;
};
void ww_detok_init(struct ww_detok *d, const struct ww_tok *t, int skip_special);
void ww_detok_add(struct ww_detok *d, int32_t id, struct ww_str *out);
void ww_detok_finish(struct ww_detok *d, struct ww_str *out);
void ww_tok_decode(const struct ww_tok *t, const int32_t *ids, size_t n, int skip_special, struct ww_str *out);
