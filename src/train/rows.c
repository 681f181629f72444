/* rows.c - walks through the rows of all epochs, and lays rows out as batches.
 *
 * A step knows its rows, and so the weight of all its tokens, before the first of them is computed: the loss is a mean
 * over the step, however it is cut into batches.
 */
#include "train/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ww_cursor_release(struct ww_cursor *c)
{
	ww_packing_free(c->plan);
	c->plan = NULL;
}

enum ww_rc ww_cursor_count(const struct ww_cursor *c, int64_t first, int64_t last, int64_t *rows, struct ww_err *err)
{
	*rows = 0;
	for (int64_t e = first; e < last; e++) {
		struct ww_packing *p;
		WW_CHECK(ww_packing_new(c->data, c->row_inputs, c->shuffle, c->seed, e, &p, err));
		*rows += p->count;
		ww_packing_free(p);
	}
	return WW_OK;
}

static enum ww_rc make_plan(struct ww_cursor *c, struct ww_err *err)
{
	return ww_packing_new(c->data, c->row_inputs, c->shuffle, c->seed, c->epoch, &c->plan, err);
}

static enum ww_rc need_plan(struct ww_cursor *c, struct ww_err *err)
{
	enum ww_rc rc = c->plan ? WW_OK : make_plan(c, err);
	if (rc != WW_OK || c->row != c->plan->count)
		return rc;
	ww_cursor_release(c);
	c->row = 0;
	c->epoch++;
	return make_plan(c, err);
}

/* The sequences of the next row, valid until the next call. */
static enum ww_rc next_row(struct ww_cursor *c, const int64_t **seqs, int64_t *n, struct ww_err *err)
{
	enum ww_rc rc = need_plan(c, err);
	if (rc == WW_OK && c->row >= c->plan->count)
		return ww_err_set(err, WW_ERR_USAGE,
			"the epoch has no row %lld: the checkpoint is of other data; choose another output", (long long)c->row);
	if (rc != WW_OK)
		return rc;
	*seqs = c->plan->seqs + c->plan->rows[c->row];
	*n = c->plan->rows[c->row + 1] - c->plan->rows[c->row];
	c->row++;
	return WW_OK;
}

double ww_cursor_epochs(const struct ww_cursor *c)
{
	return (double)c->epoch + (c->plan ? (double)c->row / (double)c->plan->count : 0);
}

void ww_step_rows_release(struct ww_step_rows *s)
{
	free(s->seqs);
	free(s->ends);
	memset(s, 0, sizeof(*s));
}

static void count_seq(struct ww_step_rows *s, const struct ww_data *d, const struct ww_seq *q)
{
	s->tokens += q->n - 1;
	for (int64_t i = 1; i < q->n; i++) {
		s->weight += fabs((double)d->weight[q->at + i]);
		s->learned += d->weight[q->at + i] != 0;
	}
}

/* The cursor stands at the end of the last epoch that is wanted. */
static int at_end(const struct ww_cursor *c, int64_t end)
{
	return end && (c->epoch >= end || (c->epoch == end - 1 && c->plan && c->row == c->plan->count));
}

enum ww_rc ww_step_rows_take(struct ww_step_rows *s, struct ww_cursor *c, int64_t rows, int64_t end, struct ww_err *err)
{
	s->count = s->tokens = s->learned = 0;
	s->weight = 0;
	for (int64_t filled = 0; s->count < rows && !at_end(c, end);) {
		const int64_t *seqs = NULL;
		int64_t n = 0;
		WW_CHECK(next_row(c, &seqs, &n, err));
		if (!WW_GROW(s->seqs, &s->seqs_cap, filled + n) || !WW_GROW(s->ends, &s->ends_cap, s->count + 1))
			return ww_nomem(err);
		memcpy(s->seqs + filled, seqs, (size_t)n * sizeof(*seqs));
		for (int64_t i = 0; i < n; i++)
			count_seq(s, c->data, &c->data->seqs[seqs[i]]);
		filled += n;
		s->ends[s->count++] = filled;
	}
	return WW_OK;
}

enum ww_rc ww_micro_init(struct ww_micro *m, int64_t max_t, struct ww_err *err)
{
	size_t n = (size_t)max_t;
	*m = (struct ww_micro){ .max_t = max_t };
	m->ids = malloc(n * sizeof(*m->ids));
	m->targets = malloc(n * sizeof(*m->targets));
	m->starts = malloc((n + 1) * sizeof(*m->starts));
	m->rows = malloc(n * sizeof(*m->rows));
	m->weight = malloc(n * sizeof(*m->weight));
	return m->ids && m->targets && m->starts && m->rows && m->weight ? WW_OK : ww_nomem(err);
}

void ww_micro_release(struct ww_micro *m)
{
	free(m->ids);
	free(m->targets);
	free(m->starts);
	free(m->rows);
	free(m->weight);
	memset(m, 0, sizeof(*m));
}

void ww_micro_fill(
	struct ww_micro *m, const struct ww_data *d, const struct ww_step_rows *s, int64_t first, int64_t end)
{
	m->t = m->sequences = m->learned = 0;
	for (int64_t k = first ? s->ends[first - 1] : 0; k < s->ends[end - 1]; k++) {
		const struct ww_seq *q = &d->seqs[s->seqs[k]];
		size_t inputs = (size_t)q->n - 1;
		WW_BUG(m->t + q->n - 1 > m->max_t);
		m->starts[m->sequences++] = (int32_t)m->t;
		memcpy(m->ids + m->t, d->ids + q->at, inputs * sizeof(*m->ids));
		for (int64_t i = q->at + 1; i < q->at + q->n; i++)
			if (d->weight[i] != 0) {
				m->rows[m->learned] = (int32_t)(m->t + i - 1 - q->at);
				m->targets[m->learned] = d->ids[i];
				m->weight[m->learned++] = d->weight[i];
			}
		m->t += q->n - 1;
	}
	m->starts[m->sequences] = (int32_t)m->t;
}
