/* tok_train.h - makes a byte-level BPE tokenizer from texts: tokenizer.json as Hugging Face's `tokenizers` trains it,
 * merge for merge. */
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct ww_tok_trainer;

/* No merge crosses a word.  GPT2: letters, digits or signs in a row, a space before them.  CODE: an identifier, one
 * digit or signs: names with underscores stay together, and every number is spelt in the same few tokens. */
enum ww_tok_split_words { WW_TOK_WORDS_GPT2, WW_TOK_WORDS_CODE };

/* special: tokens that get the first ids. */
enum ww_rc ww_tok_trainer_new(const char *const *special, int count, enum ww_tok_split_words words,
	struct ww_tok_trainer **out, struct ww_err *err) WW_MUST_CHECK;
void ww_tok_trainer_free(struct ww_tok_trainer *t); /* NULL is fine */
/* Count the words of a text; bytes that are not UTF-8 count as U+FFFD.  The order of texts changes nothing. */
enum ww_rc ww_tok_trainer_add(struct ww_tok_trainer *t, const char *text, size_t n, struct ww_err *err) WW_MUST_CHECK;
/* Merge the most frequent pair, the smaller ids of equals, until the vocabulary has `size` tokens or no pair is left;
 * write tokenizer.json at `path`.  *tokens: how many it has.  Once only. */
enum ww_rc ww_tok_trainer_write(
	struct ww_tok_trainer *t, int64_t size, const char *path, int64_t *tokens, struct ww_err *err) WW_MUST_CHECK;
