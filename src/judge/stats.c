/* stats.c - see stats.h.
 *
 * The percentile bootstrap with 1000 resamples: times are skewed (interruptions only ever add), so nothing that assumes
 * a normal distribution is used, and the median is what is resampled because it is what is reported.
 *
 * A bootstrap assumes that rounds are independent and that noise affects both sides alike.  In a disturbed measurement
 * neither holds.  Disturbances last for several rounds, so each half must show the result by itself; and a scheduler
 * favours a process that has slept (of one kernel against itself, the side that went first was faster in 126 of 184
 * measurements on a busy machine).  So the interval holds all resamples of the whole and of each half.  Rejected:
 * subtracting from the base's time what it waited for processors.  A call's own threads wait for each other too, with
 * some kernels in nearly every call on an idle machine, so no win could be shown there.
 *
 * The samples are sorted once.  A resample is then a count for each rank, and its median is found by walking the
 * counts: no sorting inside the loop, which runs after every timed round of every verdict. */
#include "judge/stats.h"

#include "base/err.h"
#include "base/median.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESAMPLES = 1000 };

double ww_stats_median(const double *x, int n)
{
	double copy[WW_STATS_MAX_SAMPLES];
	WW_BUG(n > WW_STATS_MAX_SAMPLES);
	memcpy(copy, x, sizeof(*x) * (size_t)n);
	return ww_median(copy, n);
}

void ww_recent_add(struct ww_recent *r, double x) { r->x[r->n++ % WW_STATS_MAX_SAMPLES] = x; }

double ww_recent_median(const struct ww_recent *r)
{
	return ww_stats_median(r->x, r->n < WW_STATS_MAX_SAMPLES ? r->n : WW_STATS_MAX_SAMPLES);
}

static struct ww_ratio percentiles(double *estimates, double mid, enum ww_stats_sure sure)
{
	int cut = sure == WW_STATS_999 ? 0 : RESAMPLES * 25 / 1000;
	qsort(estimates, RESAMPLES, sizeof(*estimates), ww_by_double);
	return (struct ww_ratio){ estimates[cut], mid, estimates[RESAMPLES - 1 - cut] };
}

/* Samples in order of size, and where each one went. */
struct ranked {
	int n;
	double sorted[WW_STATS_MAX_SAMPLES];
	unsigned short rank[WW_STATS_MAX_SAMPLES];
};

static void rank_all(struct ranked *r, const double *x, int n)
{
	WW_BUG(n > WW_STATS_MAX_SAMPLES);
	r->n = n;
	for (int i = 0; i < n; i++) {
		int at = i;
		while (at > 0 && r->sorted[at - 1] > x[i])
			at--;
		memmove(r->sorted + at + 1, r->sorted + at, sizeof(*x) * (size_t)(i - at));
		r->sorted[at] = x[i];
		for (int k = 0; k < i; k++)
			r->rank[k] = (unsigned short)(r->rank[k] + (r->rank[k] >= at));
		r->rank[i] = (unsigned short)at;
	}
}

/* The median of a resample that holds the sample of rank i count[i] times. */
static double counted_median(const struct ranked *r, const unsigned short *count)
{
	int low = (r->n - 1) / 2, high = r->n / 2, seen = 0, i = 0;
	while ((seen += count[i]) <= low)
		i++;
	double first = r->sorted[i];
	while (seen <= high)
		seen += count[++i];
	return 0.5 * (first + r->sorted[i]);
}

/* Indices below n, two from each number of the stream: their bias, n in 2^32, is nothing beside that of 1000 resamples.
 */
struct picker {
	struct ww_rng rng;
	uint64_t bits;
	int left;
};

static unsigned pick(struct picker *p, int n)
{
	if (!p->left) {
		p->bits = ww_rng_u64(&p->rng);
		p->left = 2;
	}
	uint64_t low = p->bits & 0xffffffffu;
	p->bits >>= 32;
	p->left--;
	return (unsigned)(low * (uint64_t)n >> 32);
}

static struct picker picker_of(uint64_t key, uint64_t stream)
{
	struct picker p = { .left = 0 };
	ww_rng_init(&p.rng, key, stream);
	return p;
}

static double resample(struct picker *p, const struct ranked *r)
{
	unsigned short count[WW_STATS_MAX_SAMPLES] = { 0 };
	for (int i = 0; i < r->n; i++)
		count[pick(p, r->n)]++;
	return counted_median(r, count);
}

struct ww_ratio ww_stats_interval(const double *x, int n, enum ww_stats_sure sure)
{
	double estimates[RESAMPLES];
	struct ranked r;
	if (n < 1)
		return (struct ww_ratio){ NAN, NAN, NAN };
	rank_all(&r, x, n);
	struct picker g = picker_of(1, (uint64_t)n);
	for (int k = 0; k < RESAMPLES; k++)
		estimates[k] = resample(&g, &r);
	return percentiles(estimates, ww_stats_median(x, n), sure);
}

struct ww_ratio ww_stats_ratio_paired(const double *base, const double *x, int n, enum ww_stats_sure sure)
{
	double estimates[RESAMPLES];
	struct ranked b, a;
	if (n < 1)
		return (struct ww_ratio){ NAN, NAN, NAN };
	rank_all(&b, base, n);
	rank_all(&a, x, n);
	struct picker g = picker_of(2, (uint64_t)n);
	for (int e = 0; e < RESAMPLES; e++) {
		unsigned short of_base[WW_STATS_MAX_SAMPLES] = { 0 }, of_x[WW_STATS_MAX_SAMPLES] = { 0 };
		for (int i = 0; i < n; i++) {
			unsigned k = pick(&g, n);
			of_base[b.rank[k]]++;
			of_x[a.rank[k]]++;
		}
		estimates[e] = counted_median(&b, of_base) / counted_median(&a, of_x);
	}
	return percentiles(estimates, ww_stats_median(base, n) / ww_stats_median(x, n), sure);
}

struct ww_ratio ww_stats_ratio(
	const double *base, int n_base, double scale, const double *x, int n, enum ww_stats_sure sure)
{
	double estimates[RESAMPLES];
	struct ranked b, a;
	if (n < 1 || n_base < 1)
		return (struct ww_ratio){ NAN, NAN, NAN };
	rank_all(&b, base, n_base);
	rank_all(&a, x, n);
	struct picker g = picker_of(3, (uint64_t)(n * 1000 + n_base));
	for (int k = 0; k < RESAMPLES; k++)
		estimates[k] = resample(&g, &b) * scale / resample(&g, &a);
	return percentiles(estimates, ww_stats_median(base, n_base) * scale / ww_stats_median(x, n), sure);
}

static const double LEAST_LEFT = 0.01;

static struct ww_ratio both(struct ww_ratio a, struct ww_ratio b)
{
	return (struct ww_ratio){ fmin(a.lo, b.lo), a.mid, fmax(a.hi, b.hi) };
}

struct ww_ratio ww_stats_ratio_disturbed(const double *base, const double *x, int n)
{
	struct ww_ratio r = ww_stats_ratio_paired(base, x, n, WW_STATS_999);
	int half = n / 2;
	return n < 2 ? r
				 : both(r,
					   both(ww_stats_ratio_paired(base, x, half, WW_STATS_999),
						   ww_stats_ratio_paired(base + half, x + half, n - half, WW_STATS_999)));
}

/* Threads that wait at the same time are counted each: what is left may be nothing, and a ratio needs a time. */
static void without_waiting(const double *us, const double *waited, int n, double *out)
{
	for (int i = 0; i < n; i++)
		out[i] = fmax(us[i] - waited[i], LEAST_LEFT * us[i]);
}

struct ww_ratio ww_stats_ratio_crowded(
	const double *base, const double *base_waited, const double *x, const double *x_waited, int n)
{
	double alone[WW_STATS_MAX_SAMPLES];
	struct ww_ratio r = ww_stats_ratio_disturbed(base, x, n);
	without_waiting(base, base_waited, n, alone);
	r.lo = fmin(r.lo, ww_stats_ratio_disturbed(alone, x, n).lo);
	without_waiting(x, x_waited, n, alone);
	r.hi = fmax(r.hi, ww_stats_ratio_disturbed(base, alone, n).hi);
	return r;
}

void ww_stats_hold(double *us, const double *witness, int n, double slack, double share)
{
	double more[WW_STATS_MAX_SAMPLES];
	int n_more = 0;
	for (int i = 0; i < n; i++)
		if (isfinite(witness[i]))
			more[n_more++] = witness[i] - us[i] - share * us[i];
	if (!n_more || ww_stats_median(more, n_more) <= slack)
		return;
	for (int i = 0; i < n; i++)
		us[i] = witness[i] > us[i] ? witness[i] : us[i];
}

/* ---- Sequences --------------------------------------------------------------------------------------------------- */

enum { WEALTH = 40 };

/* The integral of stats.h's E: a beta function times a share of it, which is the chance that n + 1 tosses of a fair
 * coin have at most k heads. */
static double all_bets(int n, int k)
{
	double ways = 1, tosses = exp2(-n - 1), share = tosses;
	for (int i = 0; i < k; i++) {
		ways *= (double)(n - i) / (i + 1);
		tosses *= (double)(n + 1 - i) / (i + 1);
		share += tosses;
	}
	return exp2(n + 1) * share / ((n + 1) * ways);
}

/* stats.h's B(p). */
static double bet(double p, int n, int k) { return pow(2 * p, k) * pow(2 - 2 * p, n - k); }

/* stats.h's E. */
static double wealth(int n, int k)
{
	return 0.35 * bet(1, n, k) + 0.35 * bet(0.92, n, k) + 0.25 * bet(0.78, n, k) + 0.05 * all_bets(n, k);
}

/* The fewest of n above a number that show it to be too low; n + 1: not even all. */
static int fewest_above(int n)
{
	int k = n + 1;
	while (k > 0 && wealth(n, k - 1) >= WEALTH)
		k--;
	return k;
}

void ww_sequence_init(struct ww_sequence *s)
{
	s->n = 0;
	s->lo = -INFINITY;
	s->hi = INFINITY;
}

void ww_sequence_add(struct ww_sequence *s, double x)
{
	int at = s->n;
	WW_BUG(s->n >= WW_STATS_MAX_SAMPLES);
	for (; at > 0 && s->sorted[at - 1] > x; at--)
		s->sorted[at] = s->sorted[at - 1];
	s->sorted[at] = x;
	int k = fewest_above(++s->n);
	if (k > s->n)
		return;
	s->lo = fmax(s->lo, s->sorted[s->n - k]);
	s->hi = fmin(s->hi, s->sorted[k - 1]);
}

double ww_stats_width(struct ww_ratio r) { return (r.hi - r.lo) / r.mid; }

double ww_stats_spread(const double *x, int n)
{
	double copy[WW_STATS_MAX_SAMPLES];
	WW_BUG(n > WW_STATS_MAX_SAMPLES);
	if (n < 4)
		return 0;
	memcpy(copy, x, sizeof(*x) * (size_t)n);
	double mid = ww_median(copy, n);
	return (copy[n * 3 / 4] - copy[n / 4]) / mid;
}
