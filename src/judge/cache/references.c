/* references.c - see references.h. */
#include "judge/cache/references.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DRAWS = 16, MAX_USES = 32, ELEMENTS_A_USE = 128, ENOUGH_DRAWS = 16 };

struct draw {
	uint64_t seed;
	enum ww_ref_lot lot;
	int uses;
	uint64_t judgement; /* that saw it last */
};

struct kind {
	double scale, shift;
	enum ww_ref_params params;
	int size, n; /* draws at most, now */
	struct draw draws[MAX_DRAWS];
};

/* The kinds of verify.c; timed calls are of the second. */
enum { INIT, REDRAW, SMALL, LARGE, SHIFTED, N_KINDS };

struct ww_pool {
	struct kind kinds[N_KINDS];
	int values;        /* the worker keeps what a draw writes too */
	int uses;          /* judgements that a draw serves at most */
	struct ww_rng rng; /* secret */
	uint64_t judgement;
	int own, taken; /* of this judgement: its second draw is a new one; draws so far */
};

/* ---- Size -------------------------------------------------------------------------------------------------------- */

static double elements(const struct ww_tensor *t)
{
	double n = 1;
	for (int i = 0; i < t->rank; i++)
		n *= (double)t->size[i];
	return n;
}

static int is_floating(const struct ww_tensor *t)
{
	return t->dtype == WW_F64 || t->dtype == WW_F32 || t->dtype == WW_F16 || t->dtype == WW_BF16;
}

static double bytes_of(const struct ww_tensor *t, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += (double)t[i].bytes;
	return sum;
}

/* What the worker keeps of one draw: outputs in fp64, integer ones twice, and with `values` what it draws. */
static double bytes_per_draw(const struct ww_ref_shapes *s, enum ww_rule rule, int values)
{
	double sum = 1;
	for (int i = 0; i < s->n_outputs; i++)
		sum += elements(&s->outputs[i]) * (is_floating(&s->outputs[i]) && rule == WW_RULE_STRICT ? 8 : 16);
	return values ? sum + bytes_of(s->inputs, s->n_inputs) + bytes_of(s->params, s->n_params) : sum;
}

static double floating_elements(const struct ww_ref_shapes *s)
{
	double sum = 0;
	for (int i = 0; i < s->n_outputs; i++)
		sum += is_floating(&s->outputs[i]) ? elements(&s->outputs[i]) : 0;
	return sum;
}

static int between(double n, int low, int high) { return n < low ? low : n > high ? high : (int)n; }

/* How the draws that fit are divided among the kinds: a judgement by strict wants one of each kind and eight more of
 * the second, one by paper five of the first and eight of the second. */
static int deal(struct ww_pool *p, double fit, enum ww_rule rule)
{
	int strict = rule == WW_RULE_STRICT;
	if (fit < (strict ? 10 : 8))
		return 0;
	p->kinds[INIT].size = strict ? between(fit / 8, 2, 4) : between(fit / 2, 5, 8);
	for (int k = SMALL; strict && k <= SHIFTED; k++)
		p->kinds[k].size = p->kinds[INIT].size;
	int rest = between(fit, 0, 1000) - p->kinds[INIT].size * (strict ? 4 : 1);
	p->kinds[REDRAW].size = between(rest, 2, MAX_DRAWS);
	return 1;
}

enum ww_rc ww_pool_open(struct ww_pool **out, const struct ww_ref_shapes *shapes, enum ww_target target,
	enum ww_rule rule, uint64_t pool_bytes, struct ww_err *err)
{
	static const struct kind kinds[N_KINDS] = { [INIT] = { .scale = 1, .params = WW_REF_PARAMS_INIT },
		[REDRAW] = { .scale = 1, .params = WW_REF_PARAMS_REDRAW },
		[SMALL] = { .scale = 0.015625, .params = WW_REF_PARAMS_REDRAW },
		[LARGE] = { .scale = 64, .params = WW_REF_PARAMS_REDRAW },
		[SHIFTED] = { .scale = 1, .shift = 3, .params = WW_REF_PARAMS_REDRAW } };
	*out = NULL;
	if (floating_elements(shapes) < WW_POOL_MIN_ELEMENTS)
		return WW_OK;
	struct ww_pool *p;
	WW_CHECK(WW_NEW(p, 1, err));
	memcpy(p->kinds, kinds, sizeof(kinds));
	/* References are worth more than values: on a GPU drawing takes a millisecond, on the cpu more than copying.  A
	 * reward that is decided asks for twelve draws or so. */
	p->uses = between(floating_elements(shapes) / ELEMENTS_A_USE, 0, MAX_USES);
	p->values = target == WW_TARGET_CPU || (double)pool_bytes / bytes_per_draw(shapes, rule, 1) >= ENOUGH_DRAWS;
	if (!deal(p, (double)pool_bytes / bytes_per_draw(shapes, rule, p->values), rule)) {
		free(p);
		return WW_OK;
	}
	ww_rng_init(&p->rng, ww_rng_secret(), 0);
	*out = p;
	return WW_OK;
}

void ww_pool_close(struct ww_pool *p) { free(p); }

int ww_pool_keeps_values(const struct ww_pool *p) { return p && p->values; }

/* ---- Use --------------------------------------------------------------------------------------------------------- */

void ww_pool_begin(struct ww_pool *p, int own)
{
	if (!p)
		return;
	p->judgement++;
	p->own = own;
	p->taken = 0;
}

static int one_in(struct ww_pool *p, int n) { return ww_rng_below(&p->rng, (uint64_t)n) == 0; }

static struct kind *find_kind(struct ww_pool *p, double scale, double shift, enum ww_ref_params params)
{
	for (int i = 0; i < N_KINDS; i++) {
		struct kind *k = &p->kinds[i];
		if (k->scale == scale && k->shift == shift && k->params == params)
			return k;
	}
	return NULL;
}

/* A random one of those that this judgement has not used. */
static struct draw *pick(struct ww_pool *p, struct kind *k, enum ww_ref_lot lot)
{
	struct draw *unused[MAX_DRAWS];
	int n = 0;
	for (int i = 0; i < k->n; i++)
		if (k->draws[i].judgement != p->judgement && (lot == WW_REF_LOT_NONE || k->draws[i].lot == lot))
			unused[n++] = &k->draws[i];
	return n ? unused[ww_rng_below(&p->rng, (uint64_t)n)] : NULL;
}

uint64_t ww_pool_next(struct ww_pool *p, double scale, double shift, enum ww_ref_params params, enum ww_ref_lot lot)
{
	if (!p || (++p->taken == 2 && p->own))
		return 0;
	struct kind *k = find_kind(p, scale, shift, params);
	struct draw *d = k ? pick(p, k, lot) : NULL;
	if (!k || (!d && k->n == k->size))
		return 0;
	if (!d || d->uses >= p->uses || one_in(p, p->uses)) {
		if (k->n < k->size)
			d = &k->draws[k->n++];
		*d = (struct draw){ .seed = ww_rng_secret() | 1, .lot = lot }; /* never 0, which says that there is none */
	}
	d->uses++;
	d->judgement = p->judgement;
	return d->seed;
}

static void spoil_of(struct kind *k, uint64_t seed)
{
	for (int i = 0; i < k->n; i++)
		if (k->draws[i].seed == seed) {
			k->draws[i] = k->draws[--k->n];
			return;
		}
}

void ww_pool_spoil(struct ww_pool *p, uint64_t seed)
{
	for (int i = 0; p && i < N_KINDS; i++)
		spoil_of(&p->kinds[i], seed);
}
