/* packing.c - which sequences of an epoch lie in which row.
 *
 * A row has room for one sequence of full length.  Sequences are taken in the epoch's order, each into the first open
 * row that has room; when too many rows are open, the oldest is closed.  So short sequences fill the rows well, no
 * sequence is divided, and the result depends only on the lengths, the seed and the epoch.  Rejected: sorting by length
 * first; it fills rows a little better, but puts sequences of equal length into the same step.
 */
#include "train/data.h"
#include "base/rng.h"

#include <stdlib.h>

enum { OPEN_MAX = 256 };

struct packer {
	const struct ww_data *d;
	int64_t row_inputs;
	int64_t *row_of, *left; /* (sequences): its row; (rows): room */
	int64_t rows, oldest;   /* rows before `oldest` are closed */
};

/* Fisher and Yates. */
static void shuffle_order(int64_t *order, int64_t n, uint64_t seed, int64_t epoch)
{
	struct ww_rng rng;
	ww_rng_init(&rng, seed, (uint64_t)epoch);
	for (int64_t i = n - 1; i > 0; i--) {
		int64_t j = (int64_t)ww_rng_below(&rng, (uint64_t)i + 1), t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
}

static void add_first_fit(struct packer *p, int64_t seq)
{
	int64_t inputs = p->d->seqs[seq].n - 1, r = p->oldest;
	while (r < p->rows && p->left[r] < inputs)
		r++;
	if (r == p->rows)
		p->left[p->rows++] = p->row_inputs;
	p->left[r] -= inputs;
	p->row_of[seq] = r;
	while (p->oldest < p->rows && (p->rows - p->oldest > OPEN_MAX || p->left[p->oldest] < 1))
		p->oldest++;
}

/* Sequences by row, within a row in the epoch's order: a counting sort. */
static void fill_rows(const struct packer *p, const int64_t *order, struct ww_packing *plan)
{
	int64_t n = p->d->count;
	for (int64_t i = 0; i < n; i++)
		plan->rows[p->row_of[i] + 1]++;
	for (int64_t r = 0; r < p->rows; r++) {
		plan->rows[r + 1] += plan->rows[r];
		p->left[r] = plan->rows[r]; /* from here on: the next place in the row */
	}
	for (int64_t i = 0; i < n; i++)
		plan->seqs[p->left[p->row_of[order[i]]]++] = order[i];
}

enum ww_rc ww_packing_new(const struct ww_data *d, int64_t row_inputs, int shuffle, uint64_t seed, int64_t epoch,
	struct ww_packing **out, struct ww_err *err)
{
	struct packer p = { .d = d, .row_inputs = row_inputs };
	size_t n = (size_t)d->count;
	struct ww_packing *plan = NULL;
	ww_auto_free int64_t *order = NULL;
	enum ww_rc rc = WW_OK;
	WW_TRY(WW_NEW(plan, 1, err));
	WW_TRY(WW_NEW(order, n, err));
	WW_TRY(WW_NEW(p.row_of, n, err));
	WW_TRY(WW_NEW(p.left, n + 1, err));
	WW_TRY(WW_NEW(plan->seqs, n, err));
	WW_TRY(WW_NEW(plan->rows, n + 1, err));
	for (int64_t i = 0; i < d->count; i++)
		order[i] = i;
	if (shuffle)
		shuffle_order(order, d->count, seed, epoch);
	for (int64_t i = 0; i < d->count; i++) {
		WW_BUG(d->seqs[order[i]].n - 1 > row_inputs);
		add_first_fit(&p, order[i]);
	}
	fill_rows(&p, order, plan);
	plan->count = p.rows;
	*out = plan;
	plan = NULL;
out:
	ww_packing_free(plan);
	free(p.row_of);
	free(p.left);
	return rc;
}

void ww_packing_free(struct ww_packing *p)
{
	if (!p)
		return;
	free(p->seqs);
	free(p->rows);
	free(p);
}
