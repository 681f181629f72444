/* stats.c - see stats.h.
 *
 * The percentile bootstrap with 1000 resamples: times are skewed (interruptions only ever add), so nothing that assumes a
 * normal distribution is used, and the median is what is resampled because it is what is reported. */
#include "judge/stats.h"

#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESAMPLES = 1000 };

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median_in_place(double *x, int n)
{
	if (!n)
		return NAN;
	qsort(x, (size_t)n, sizeof(*x), compare);
	return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

double ww_stats_median(const double *x, int n)
{
	double copy[WW_STATS_MAX_SAMPLES];
	WW_BUG(n > WW_STATS_MAX_SAMPLES);
	memcpy(copy, x, sizeof(*x) * (size_t)n);
	return median_in_place(copy, n);
}

static struct ww_ratio percentiles(double *estimates, double mid)
{
	qsort(estimates, RESAMPLES, sizeof(*estimates), compare);
	return (struct ww_ratio){ estimates[RESAMPLES * 25 / 1000], mid, estimates[RESAMPLES * 975 / 1000 - 1] };
}

static double resample(struct ww_rng *g, const double *x, int n)
{
	double pick[WW_STATS_MAX_SAMPLES];
	for (int i = 0; i < n; i++)
		pick[i] = x[ww_rng_below(g, (uint64_t)n)];
	return median_in_place(pick, n);
}

struct ww_ratio ww_stats_interval(const double *x, int n)
{
	double estimates[RESAMPLES];
	struct ww_rng g;
	if (n < 1)
		return (struct ww_ratio){ NAN, NAN, NAN };
	ww_rng_init(&g, 1, (uint64_t)n);
	for (int r = 0; r < RESAMPLES; r++)
		estimates[r] = resample(&g, x, n);
	return percentiles(estimates, ww_stats_median(x, n));
}

struct ww_ratio ww_stats_ratio_paired(const double *base, const double *x, int n)
{
	double estimates[RESAMPLES], b[WW_STATS_MAX_SAMPLES], a[WW_STATS_MAX_SAMPLES];
	struct ww_rng g;
	WW_BUG(n > WW_STATS_MAX_SAMPLES);
	if (n < 1)
		return (struct ww_ratio){ NAN, NAN, NAN };
	ww_rng_init(&g, 2, (uint64_t)n);
	for (int r = 0; r < RESAMPLES; r++) {
		for (int i = 0; i < n; i++) {
			uint64_t k = ww_rng_below(&g, (uint64_t)n);
			b[i] = base[k];
			a[i] = x[k];
		}
		estimates[r] = median_in_place(b, n) / median_in_place(a, n);
	}
	return percentiles(estimates, ww_stats_median(base, n) / ww_stats_median(x, n));
}

struct ww_ratio ww_stats_ratio(const double *base, int n_base, double scale, const double *x, int n)
{
	double estimates[RESAMPLES];
	struct ww_rng g;
	WW_BUG(n > WW_STATS_MAX_SAMPLES || n_base > WW_STATS_MAX_SAMPLES);
	if (n < 1 || n_base < 1)
		return (struct ww_ratio){ NAN, NAN, NAN };
	ww_rng_init(&g, 3, (uint64_t)(n * 1000 + n_base));
	for (int r = 0; r < RESAMPLES; r++)
		estimates[r] = resample(&g, base, n_base) * scale / resample(&g, x, n);
	return percentiles(estimates, ww_stats_median(base, n_base) * scale / ww_stats_median(x, n));
}

double ww_stats_width(struct ww_ratio r)
{
	return (r.hi - r.lo) / r.mid;
}

double ww_stats_spread(const double *x, int n)
{
	double copy[WW_STATS_MAX_SAMPLES];
	WW_BUG(n > WW_STATS_MAX_SAMPLES);
	if (n < 4)
		return 0;
	memcpy(copy, x, sizeof(*x) * (size_t)n);
	double mid = median_in_place(copy, n);
	return (copy[n * 3 / 4] - copy[n / 4]) / mid;
}
