/* rows.h - the rows of a run, one after the other through all epochs, and batches made of them. */
#pragma once

#include "train/data.h"

#include <stddef.h>

/* Where the next row comes from.  Equal data, seed, epoch and row give equal rows. */
struct ww_cursor {
	const struct ww_data *data;
	int64_t row_inputs;
	int shuffle;
	uint64_t seed;
	int64_t epoch, row;      /* of the next row */
	struct ww_packing *plan; /* of that epoch, or NULL */
};
void ww_cursor_release(struct ww_cursor *c);
/* Rows of the epochs first..last-1. */
enum ww_rc ww_cursor_count(
	const struct ww_cursor *c, int64_t first, int64_t last, int64_t *rows, struct ww_err *err) WW_MUST_CHECK;
/* Epochs done, with the part of the current one. */
double ww_cursor_epochs(const struct ww_cursor *c);

/* The rows of one step, as sequence numbers. */
struct ww_step_rows {
	int64_t *seqs, *ends; /* row r ends before seqs[ends[r]] */
	int64_t count;        /* rows */
	size_t seqs_cap, ends_cap;
	double weight; /* of all predictions, without sign */
	int64_t tokens, learned;
};
void ww_step_rows_release(struct ww_step_rows *s);
/* The next `rows` rows; fewer where the epoch `end` begins (0: never). */
enum ww_rc ww_step_rows_take(
	struct ww_step_rows *s, struct ww_cursor *c, int64_t rows, int64_t end, struct ww_err *err) WW_MUST_CHECK;

/* Concatenated rows: inputs, starts of the sequences, and for each input with weight its row, its target and its
 * weight. */
struct ww_micro {
	int32_t *ids, *starts; /* (t), (sequences + 1) */
	int32_t *rows, *targets;
	float *weight; /* (learned) */
	int64_t t, sequences, learned, max_t;
};
enum ww_rc ww_micro_init(struct ww_micro *m, int64_t max_t, struct ww_err *err) WW_MUST_CHECK;
void ww_micro_release(struct ww_micro *m);
void ww_micro_fill(
	struct ww_micro *m, const struct ww_data *d, const struct ww_step_rows *s, int64_t first, int64_t end);
