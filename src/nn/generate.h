/* generate.h - one step of generation: a batch through the model, and a token sampled after each chosen row. */
#pragma once

#include "nn/model.h"

enum { WW_GENERATE_ROWS = 1024 }; /* samples in one step at most */

struct ww_generate;

/* For batches of up to max_t tokens in max_sequences sequences, each of which may sample. */
enum ww_rc ww_generate_new(struct ww_model *m, int64_t max_t, int64_t max_sequences, struct ww_generate **out,
	struct ww_err *err) WW_MUST_CHECK;
void ww_generate_free(struct ww_generate *g); /* NULL is fine */
/* Bytes of device memory that ww_generate_new() would take. */
uint64_t ww_generate_bytes(const struct ww_model *m, int64_t max_t, int64_t max_sequences);

/* How many sequences a step of one token each should have when `n` are wanted: such steps are recorded for a few sizes
 * only, the batch is filled up to one of them.  n where the device records nothing. */
int64_t ww_generate_fill(const struct ww_generate *g, int64_t n);

/* Compute the batch (with a cache) and sample out[i] by how[i] from the logits of token rows[i], for n of them.  n may
 * be 0. A row's logp is to the last bit what ww_run_logprobs() gives in exact mode.  Logits that are not finite are
 * WW_ERR_DEVICE. */
enum ww_rc ww_generate_step(struct ww_generate *g, const struct ww_batch *b, const int32_t *rows,
	const struct ww_sampler *how, int64_t n, struct ww_sampled *out, struct ww_err *err) WW_MUST_CHECK;

/* Of the last step, which sampled n rows: the logits of its i-th one (to the host, one a word of the vocabulary) and
 * the log of the sum of their exponentials. */
enum ww_rc ww_generate_logits(
	struct ww_generate *g, int64_t n, int64_t i, float *logits, float *lse, struct ww_err *err) WW_MUST_CHECK;
