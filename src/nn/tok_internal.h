/* tok_internal.h - the parts of the tokenizer, for its own files only. */
#pragma once

#include "nn/tokenizer.h"
#include "base/arena.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <pthread.h>

enum { WW_TOK_STEPS_MAX = 16, WW_TOK_TEMPLATE_MAX = 8, WW_TOK_IDS = 1 << 22, WW_TOK_TEXT_MAX = 1 << 30 };

/* tok_map.c: bytes to id, and pairs of ids to (rank, merged id).  Both are built once and then only read. */
struct ww_tok_words {
	struct {
		const char *p;
		uint32_t n;
		int32_t id;
	} *slots;
	size_t mask;   /* slots - 1, a power of two less one */
	uint64_t seed; /* secret, so that no file can be made to collide */
};
struct ww_tok_pairs {
	struct {
		uint64_t key;
		uint32_t rank;
		int32_t id;
	} *slots;
	size_t mask;
	uint64_t seed;
};
int ww_tok_words_init(struct ww_tok_words *w, struct ww_arena *a, size_t count);
/* 0 where the key is there already. */
int ww_tok_words_add(struct ww_tok_words *w, const char *p, size_t n, int32_t id);
int32_t ww_tok_words_get(const struct ww_tok_words *w, const char *p, size_t n);
int ww_tok_pairs_init(struct ww_tok_pairs *w, struct ww_arena *a, size_t count);
int ww_tok_pairs_add(struct ww_tok_pairs *w, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* 0 where there is none. */
int ww_tok_pairs_get(const struct ww_tok_pairs *w, int32_t left, int32_t right, uint32_t *rank, int32_t *id);
uint64_t ww_tok_hash(const void *p, size_t n, uint64_t seed);

/* tok_nfc.c: append the text in NFC as Hugging Face's tokenizers compose it; WW_ERR_NOMEM where `out` is full. */
enum ww_rc ww_tok_nfc(const char *text, size_t n, struct ww_str *out, struct ww_err *err) WW_MUST_CHECK;

/* tok_split.c */
enum ww_split_behavior { WW_SPLIT_REMOVED, WW_SPLIT_ISOLATED, WW_SPLIT_CONTIGUOUS, WW_SPLIT_PREVIOUS, WW_SPLIT_NEXT };
struct ww_tok_step {
	pcre2_code *code;
	enum ww_split_behavior behavior;
	int invert;
};
struct ww_tok_piece {
	uint32_t begin, end;
};
struct ww_tok_pieces {
	struct ww_tok_piece *p;
	size_t n, cap;
};
/* Compile one pattern; literal: no regular expression. */
enum ww_rc ww_tok_step_init(
	struct ww_tok_step *s, const char *pattern, int literal, const char *what, struct ww_err *err);
void ww_tok_step_release(struct ww_tok_step *s);
/* Split text[in] into t->pieces (the result) by all steps in turn. */
enum ww_rc ww_tok_split(struct ww_tok *t, const char *text, size_t n, struct ww_err *err);

/* tok_added.c: tokens that are found in the text before anything else. */
struct ww_tok_added {
	const char *content;
	uint32_t n;
	int32_t id;
	unsigned special : 1, lstrip : 1, rstrip : 1, single_word : 1;
};
struct ww_tok_added_set {
	struct ww_tok_added *p;
	size_t n;
	uint32_t first[257];
};
void ww_tok_added_sort(struct ww_tok_added_set *s);
struct ww_tok_match {
	size_t begin, end;
	int32_t id;
	size_t resume;
};
/* Where special tokens may be found: ends of the spans, ascending, with their permission. */
struct ww_tok_zone {
	size_t end;
	int special;
};
/* The first match that begins at or after `from`; `floor` is the end of the last one taken.  0: none. */
int ww_tok_added_next(const struct ww_tok_added_set *s, const char *text, size_t n, size_t from, size_t floor,
	const struct ww_tok_zone *zones, size_t zone_count, struct ww_tok_match *m);

/* tok_bpe.c */
struct ww_tok_bpe; /* scratch memory and the cache of words */
struct ww_tok_bpe *ww_tok_bpe_new(void);
void ww_tok_bpe_free(struct ww_tok_bpe *b);
enum ww_rc ww_tok_bpe_word(struct ww_tok *t, const char *word, size_t n, struct ww_ids *ids, struct ww_err *err);

struct ww_tok {
	struct ww_arena arena;
	int32_t size; /* largest id + 1 */
	struct {
		const char *p;
		uint32_t n;
		uint8_t special, is_set;
	} *token;                     /* by id; bytes after byte-level decoding */
	struct ww_tok_words by_name;  /* as spelt in the file */
	struct ww_tok_words by_bytes; /* ordinary tokens by their bytes */
	struct ww_tok_pairs merges;
	int32_t byte_id[256]; /* -1: the vocabulary lacks this byte */
	int32_t unk;          /* -1: none */
	int fuse_unk, ignore_merges, nfc, prefix_space;
	struct ww_tok_added_set raw, normalized;
	struct ww_tok_step steps[WW_TOK_STEPS_MAX];
	size_t step_count;
	int32_t before[WW_TOK_TEMPLATE_MAX], after[WW_TOK_TEMPLATE_MAX];
	size_t before_count, after_count;
	/* Scratch for encoding, under the lock. */
	pthread_mutex_t lock;
	pcre2_match_context *match_context;
	pcre2_match_data *match_data;
	struct ww_tok_pieces pieces, spare;
	struct ww_tok_bpe *bpe;
	struct ww_str text, normal;
};

/* tok_load.c */
enum ww_rc ww_tok_load(struct ww_tok *t, const json_t *v, const char *what, struct ww_err *err);

/* UTF-8: the character at p (valid text), its length through *len. */
uint32_t ww_utf8_get(const char *p, size_t *len);
/* Length of the valid sequence at p; 0: none, and *bad is how many bytes one U+FFFD stands for (0: the sequence could
 * still be completed by bytes after n). */
size_t ww_utf8_valid(const unsigned char *p, size_t n, size_t *bad);
int ww_uni_is_space(uint32_t c); /* the White_Space property */
int ww_uni_is_word(uint32_t c);  /* \w of the Unicode regular expression standard */
