/* data.h - what a model learns from: sequences of token ids with a weight a token, and their packing into rows.
 *
 * Sources are named files, directories and globs.  A file NAME.jsonl holds one object a line:
 *     {"messages": [...], "tools": [...]}     a conversation; the assistant's tokens have weight 1, the others 0
 *     {"text": "..."}                         a document; every token has weight 1
 *     {"ids": [...], "weights": [...]}        tokens as they are; without weights 1 each
 * each with an optional "weight" that all of the line's weights are multiplied by.  Any other file is one document.
 * Lines of `episode export` are conversations; where an assistant's message has "tokens", its ids are learned as they
 * were sampled.
 */
#pragma once

#include "nn/config.h"
#include "nn/tokenizer.h"
#include "task/held_out.h"

struct ww_data_opts {
	const char *paths;  /* separated by commas */
	struct ww_tok *tok; /* NULL: only lines of ids */
	int64_t max_inputs; /* of a sequence: documents are cut into such pieces, conversations and ids end there */
	int learn_all;      /* conversations: weight 1 for every token */
	const struct ww_held_out *held_out; /* NULL: none */
	const struct ww_config *config;     /* the tokens that may occur, and the one that ends a document */
};

/* A sequence of n ids makes n - 1 predictions.  The pieces of a document share the id at their border. */
struct ww_seq {
	int64_t at, n;
};

struct ww_data {
	int32_t *ids;
	float *weight; /* of predicting this id; never used for the first of a sequence */
	int64_t tokens;
	struct ww_seq *seqs;
	int64_t count;
	/* What was read, for the record. */
	int64_t files, documents, conversations;
	int64_t compacted; /* conversations left out: their policy was not shown all of their messages at once */
	int64_t cut, empty,
		binary;    /* sequences that ended at max_inputs; without anything to learn; files that are no text */
	char hash[65]; /* of all sequences and weights */
	size_t ids_cap, seqs_cap;
};

/* Read everything.  A line that cannot be used is refused with its file and number; so is one whose "task_signature" or
 * "task_id" is that of a held-out task. */
enum ww_rc ww_data_open(const struct ww_data_opts *o, struct ww_data **out, struct ww_err *err) WW_MUST_CHECK;
void ww_data_free(struct ww_data *d); /* NULL is fine */
/* Only the texts of such sources: each document, and the text of a conversation's messages.  *files: how many were
 * read. */
enum ww_rc ww_data_texts(const char *paths, enum ww_rc (*fn)(void *ctx, const char *text, size_t n, struct ww_err *err),
	void *ctx, int64_t *files, struct ww_err *err) WW_MUST_CHECK;

/* One epoch: which sequences lie in which row.  Row r holds seqs[rows[r] .. rows[r + 1] - 1]; its predictions are at
 * most row_inputs.  No sequence is divided.  shuffle: the order depends on seed and epoch alone, else it is that of the
 * files. */
struct ww_packing {
	int64_t *seqs, *rows;
	int64_t count; /* rows */
};
enum ww_rc ww_packing_new(const struct ww_data *d, int64_t row_inputs, int shuffle, uint64_t seed, int64_t epoch,
	struct ww_packing **out, struct ww_err *err) WW_MUST_CHECK;
void ww_packing_free(struct ww_packing *p); /* NULL is fine */
