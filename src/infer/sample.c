/* sample.c - temperature, top-k, top-p, min-p.
 *
 * Without truncation the vocabulary is walked once, in order of ids, until the cumulated weight passes the draw; only
 * truncation needs an order of weights.  Weights are doubles relative to the largest logit, so a temperature near 0 becomes
 * the likeliest token and never divides by zero.
 */
#include "infer/sample.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

struct choice { double weight; int32_t id; };

static int heavier_first(const void *a, const void *b)
{
	const struct choice *x = a, *y = b;
	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* How many of the n choices, heaviest first, remain. */
static int64_t truncate_choices(const struct choice *c, int64_t n, const struct ww_sampling *s)
{
	double total = 0, sum = 0;
	if (s->top_k > 0 && s->top_k < n)
		n = s->top_k;
	for (int64_t i = 0; i < n; i++)
		total += c[i].weight;
	for (int64_t i = 0; s->top_p < 1 && i < n; i++) {
		sum += c[i].weight;
		if (sum >= s->top_p * total)
			n = i + 1;
	}
	while (s->min_p > 0 && n > 1 && c[n - 1].weight < s->min_p * c[0].weight)
		n--;
	return n;
}

static int64_t likeliest(const float *logits, int64_t v)
{
	int64_t best = 0;
	for (int64_t i = 0; i < v; i++) {
		if (isnan(logits[i]))
			return -1;
		if (logits[i] > logits[best])
			best = i;
	}
	return isfinite(logits[best]) ? best : -1;
}

enum ww_rc ww_sample(const float *logits, int64_t v, float lse, const struct ww_sampling *s, uint64_t seed, uint64_t stream,
		     uint64_t position, struct ww_sampled *out, struct ww_err *err)
{
	struct ww_rng r;
	int64_t best = likeliest(logits, v), n = v, k = 0;
	double total = 0, sum = 0;
	if (best < 0)
		return ww_err_set(err, WW_ERR_DEVICE, "the model's logits are not finite");
	if (!(s->temperature > 0)) {
		*out = (struct ww_sampled){ (int32_t)best, logits[best] - lse, 0 };
		return WW_OK;
	}
	struct choice *c = malloc((size_t)v * sizeof(*c));
	if (!c)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	for (int64_t i = 0; i < v; i++)
		c[i] = (struct choice){ exp(((double)logits[i] - (double)logits[best]) / s->temperature), (int32_t)i };
	if (s->top_k > 0 || s->top_p < 1 || s->min_p > 0) {
		qsort(c, (size_t)v, sizeof(*c), heavier_first);
		n = truncate_choices(c, v, s);
	}
	for (int64_t i = 0; i < n; i++)
		total += c[i].weight;
	ww_rng_init(&r, seed, stream);
	r.counter = position;
	double draw = ww_rng_uniform(&r) * total;
	for (k = 0; k < n - 1; k++) {
		sum += c[k].weight;
		if (draw < sum)
			break;
	}
	while (k > 0 && !(c[k].weight > 0))	/* rounding at the very end must not pick what cannot be drawn */
		k--;
	*out = (struct ww_sampled){ c[k].id, logits[c[k].id] - lse, (float)log(c[k].weight / total) };
	free(c);
	return WW_OK;
}
