/* sample.c - draws of a candidate: numbers, sizes, shapes. */
#include "synth/grammar.h"

#include <math.h>

uint64_t sy_below(struct ww_comp *c, uint64_t n) { return ww_rng_below(&c->rng, n ? n : 1); }
int sy_chance(struct ww_comp *c, double p) { return ww_rng_uniform(&c->rng) < p; }
double sy_uniform(struct ww_comp *c, double lo, double hi) { return lo + ww_rng_uniform(&c->rng) * (hi - lo); }

int64_t sy_between(struct ww_comp *c, int64_t lo, int64_t hi)
{
	return hi <= lo ? lo : lo + (int64_t)sy_below(c, (uint64_t)(hi - lo + 1));
}

/* An index by weights; the first one with a weight where all draws fall off the end. */
int sy_weighted(struct ww_comp *c, const double *w, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += w[i];
	double x = ww_rng_uniform(&c->rng) * sum;
	for (int i = 0; i < n; i++) {
		if (x < w[i])
			return i;
		x -= w[i];
	}
	for (int i = 0; i < n; i++)
		if (w[i] > 0)
			return i;
	return 0;
}

void sy_swap_choice(struct ww_comp *c)
{
	struct ww_rng r = c->rng;
	c->rng = c->choice;
	c->choice = r;
}

int sy_choose(struct ww_comp *c, const double *w, int n)
{
	sy_swap_choice(c);
	int i = sy_weighted(c, w, n);
	sy_swap_choice(c);
	return i;
}

static int64_t clip(int64_t n, int64_t lo, int64_t hi) { return n < lo ? lo : n > hi ? hi : n; }

static int is_prime(int64_t n)
{
	for (int64_t i = 2; i * i <= n; i++)
		if (n % i == 0)
			return 0;
	return n > 1;
}

/* The round number nearest to n: a power of two, or a multiple of one of 8, 16, 32, 64. */
static int64_t round_dim(struct ww_comp *c, int64_t n)
{
	if (n <= 8)
		return n;
	if (sy_chance(c, 0.5))
		return (int64_t)1 << (int)lround(log2((double)n));
	int64_t unit = n >= 512 ? 64 : n >= 128 ? 32 : n >= 48 ? 16 : 8;
	return (n + unit / 2) / unit * unit;
}

static int64_t styled(struct ww_comp *c, int64_t n, int64_t lo, int64_t hi)
{
	/* Not every axis is odd: a model with a prime number of tokens still has round widths. */
	int plain = c->style == WW_SYNTH_ROUND || sy_chance(c, 0.35);
	if (plain || c->style == WW_SYNTH_TINY || c->style == WW_SYNTH_HUGE)
		return clip(round_dim(c, n), lo, hi);
	if (c->style == WW_SYNTH_ODD)
		return clip(n | 1, lo, hi);
	for (int64_t p = n; p <= hi; p++)
		if (is_prime(p))
			return p;
	return clip(n, lo, hi);
}

int64_t sy_draw_dim(struct ww_comp *c, int64_t lo, int64_t hi)
{
	double u = ww_rng_uniform(&c->rng);
	if (c->style == WW_SYNTH_TINY)
		u *= u * u;
	else if (c->style == WW_SYNTH_HUGE)
		u = sqrt(u);
	return styled(c, (int64_t)exp2(log2((double)lo) + u * (log2((double)hi) - log2((double)lo))), lo, hi);
}

int64_t sy_draw_divisor(struct ww_comp *c, int64_t of, int64_t most)
{
	int64_t d[64];
	int n = 0;
	for (int64_t i = 2; i <= most && i <= of && n < 64; i++)
		if (of % i == 0)
			d[n++] = i;
	return n ? d[sy_below(c, (uint64_t)n)] : 1;
}

void sy_draw_shape(struct ww_comp *c, struct ww_synth_type *t, int n, const int64_t *lo, const int64_t *hi)
{
	double want[WW_SYNTH_MAX_RANK], sum = 0;
	t->rank = n;
	for (int i = 0; i < n; i++) {
		double a = log2((double)lo[i]), b = log2((double)hi[i]), u = ww_rng_uniform(&c->rng);
		if (c->style == WW_SYNTH_TINY && i)
			u *= u;
		sum += want[i] = a + u * (b - a);
	}
	/* What is too much or too little goes to the first axis, then to the last ones. */
	for (int k = 0; k < n; k++) {
		int i = k ? n - k : 0;
		double a = log2((double)lo[i]), b = log2((double)hi[i]), v = want[i] + c->size - sum;
		v = v < a ? a : v > b ? b : v;
		sum += v - want[i];
		want[i] = v;
	}
	for (int i = 0; i < n; i++)
		t->d[i] = styled(c, (int64_t)lround(exp2(want[i])), lo[i], hi[i]);
}
