/* compose.c - a candidate by its number: what form, then the size at which it takes a time within bounds.
 *
 * The same draws are made again and again with another size of the main input, until the expected time is near the one
 * that was drawn for this candidate.  An attempt that no size brings there, or that a rule gave up, is followed by
 * another with new draws.
 */
#include "synth/grammar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS = 96, MOST_ATTEMPTS = 1024, PATIENCE = 24, STEPS = 9 };
static const double SMALLEST = 6, LARGEST = 31;

void ww_synth_candidate_release(struct ww_synth_candidate *k)
{
	ww_str_release(&k->source);
	ww_str_release(&k->ops);
}

static void comp_release(struct ww_comp *c)
{
	for (int i = 0; i < c->n_cls; i++) {
		ww_str_release(&c->cls[i]->init);
		ww_str_release(&c->cls[i]->forward);
		free(c->cls[i]);
	}
	ww_str_release(&c->block);
	ww_str_release(&c->block_inputs);
}

static void comp_init(struct ww_comp *c, const struct ww_synth_recipe *r, struct ww_synth_candidate *k, double size)
{
	*c = (struct ww_comp){ .r = r, .size = size, .ops = &k->ops, .repeats = 1 };
	ww_str_init(&c->block, 1 << 16);
	ww_str_init(&c->block_inputs, 1 << 12);
	sy_class_begin(c, "Model", "");
	ww_str_reset(&k->ops);
	ww_str_reset(&k->source);
}

static double input_bytes(const struct ww_comp *c)
{
	double sum = 0;
	for (int i = 0; i < c->n_in; i++)
		sum += (double)ww_synth_bytes(&c->in[i].t) * (c->in[i].layout == LAYOUT_SLICED ? 2 : 1);
	return sum;
}

/* Final checks on a complete candidate. */
static int acceptable(const struct ww_comp *c, const struct val *x)
{
	int64_t n = ww_synth_numel(&x->t);
	if (c->failed || n < 4 || x->t.rank < 1 || n > (int64_t)1 << 31)
		return 0;
	/* a softmax over many is within 10^-2 of zero */
	if (x->by && x->by->category == WW_SYNTH_SOFTMAX && x->flat && sy_product(&x->t, x->flat) > 24)
		return 0;
	return 1;
}

static int compose(struct ww_comp *c, struct ww_synth_candidate *k, const struct ww_synth_op *alone, struct val *x)
{
	c->dtype = (enum ww_synth_dtype)sy_choose(c, c->r->dtypes, 3);
	c->style = (enum ww_synth_style)sy_choose(c, c->r->shapes, WW_SYNTH_STYLES);
	if (alone) {
		c->whole = 1;
		*x = sy_input_for(c, alone);
		if (alone->traits & (NEED_UNIT | NEED_SMALL) && !(x->facts & UNIT) && !sy_try_row(c, "sigmoid", x))
			return 0;
		return sy_try_op(c, alone, x);
	}
	k->form = (enum ww_synth_form)sy_choose(c, c->r->forms, WW_SYNTH_FORMS);
	WW_BUG(k->form == WW_SYNTH_BLOCK && !c->r->crawled); /* ww_synth_recipe_add() has not been called */
	int n = 1 + sy_choose(c, c->r->ops, WW_SYNTH_MAX_OPS);
	k->pattern = (enum ww_synth_pattern)sy_choose(c, c->r->patterns, WW_SYNTH_PATTERNS);
	if (k->form == WW_SYNTH_CHAIN)
		return sy_compose_chain(c, n, &k->pattern, x);
	k->pattern = WW_SYNTH_SEQUENTIAL;
	if (k->form == WW_SYNTH_BLOCK)
		return sy_compose_block(c, x, &k->source);
	return k->form == WW_SYNTH_IDIOM ? sy_compose_idiom(c, x) : sy_compose_network(c, x);
}

/* One attempt at a size; 0 where a rule gave up. */
static int at_size(const struct ww_synth_recipe *r, const struct ww_synth_op *alone, uint64_t seed, uint64_t stream,
	double size, struct ww_synth_candidate *k)
{
	struct ww_comp c;
	struct val x = { .name = "x" };
	comp_init(&c, r, k, size);
	ww_rng_init(&c.rng, seed, stream);
	ww_rng_init(&c.choice, seed ^ 0x63686f6963650000, stream / PATIENCE);
	int ok = compose(&c, k, alone, &x) && (alone ? !c.failed : acceptable(&c, &x));
	if (ok) {
		if (!k->source.len) /* else a block as it is */
			sy_write_task(&c, &x, &k->source);
		k->out = x.t;
		k->n_ops = c.n_ops;
		k->us = c.us;
		k->input_bytes = input_bytes(&c);
		k->memory_bytes = c.memory_bytes;
		ok = !c.failed;
	}
	comp_release(&c);
	return ok;
}

static int within(const struct ww_synth_recipe *r, const struct ww_synth_candidate *k)
{
	return k->us >= r->min_us * 1.2 && k->us <= r->max_us / 1.3 && k->input_bytes <= r->max_input_bytes &&
		k->memory_bytes <= r->max_memory_bytes * 0.6;
}

/* Find a size by halving: the expected time grows with it, if not evenly. */
static int attempt(const struct ww_synth_recipe *r, uint64_t seed, uint64_t stream, struct ww_synth_candidate *k)
{
	struct ww_rng rng;
	ww_rng_init(&rng, seed ^ 0x73697a65, stream); /* "size": draws apart from the module's */
	double lo = SMALLEST, hi = LARGEST, span = log(r->max_us / r->min_us) - log(1.8);
	double want = r->min_us * 1.3 * exp(ww_rng_uniform(&rng) * (span > 0 ? span : 0)), best = -1, best_off = 0.8;
	for (int i = 0; i < STEPS; i++) {
		double size = (lo + hi) / 2;
		int ok = at_size(r, NULL, seed, stream, size, k);
		double off = ok ? fabs(log(k->us / want)) : 1;
		if (ok && within(r, k) && off < best_off) {
			best = size;
			best_off = off;
		}
		if (!ok && i > 2 && best < 0)
			return 0;
		int large = ok &&
			(k->us > want || k->input_bytes > r->max_input_bytes || k->memory_bytes > r->max_memory_bytes * 0.6);
		*(large ? &hi : &lo) = size;
		if (best >= 0 && best_off < 0.1)
			break;
	}
	return best >= 0 && at_size(r, NULL, seed, stream, best, k);
}

/* The random stream of an attempt.  First attempts of all candidates have consecutive streams; later ones count down
 * from the other end, so that raising the number of attempts changed no candidate. */
static uint64_t stream_of(uint64_t index, uint64_t attempt)
{
	return attempt < ATTEMPTS ? index * ATTEMPTS + attempt : UINT64_MAX - (index * MOST_ATTEMPTS + attempt);
}

enum ww_rc ww_synth_compose(
	const struct ww_synth_recipe *r, uint64_t seed, uint64_t index, struct ww_synth_candidate *out, struct ww_err *err)
{
	for (uint64_t i = 0; i < MOST_ATTEMPTS; i++)
		if (attempt(r, seed, stream_of(index, i), out))
			return WW_OK;
	return ww_err_set(err, WW_ERR_LIMIT, "no candidate %llu within the recipe's bounds in %d attempts",
		(unsigned long long)index, MOST_ATTEMPTS);
}

enum ww_rc ww_synth_compose_op(const struct ww_synth_recipe *r, const struct ww_synth_op *op, uint64_t seed,
	uint64_t index, struct ww_synth_candidate *out, struct ww_err *err)
{
	for (uint64_t i = 0; i < ATTEMPTS * 4; i++)
		if (at_size(r, op, seed, index * ATTEMPTS * 4 + i, 10 + (double)(i % 6), out))
			return WW_OK;
	return ww_err_set(err, WW_ERR_LIMIT, "operator %s declined all inputs", op->name);
}
