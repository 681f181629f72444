/* stats.h - medians and their bootstrap intervals.
 *
 * Deterministic: the resampling stream is keyed by the number of samples, so the same samples give the same interval.
 */
#pragma once

#include "judge/verdict.h"

enum { WW_STATS_MAX_SAMPLES = 256 };
/* What an interval holds: 95 of 100 resamples, or all of a thousand. */
enum ww_stats_sure { WW_STATS_95, WW_STATS_999 };

double ww_stats_median(const double *x, int n); /* NAN for n = 0 */
/* The middle of the last numbers of a row.  What is asked about a solution's calls is asked so: a mean, or a share of a
 * sum, is what one call in ten makes of it, in which a kernel may do what costs it nothing. */
struct ww_recent {
	double x[WW_STATS_MAX_SAMPLES];
	int n;
};
void ww_recent_add(struct ww_recent *r, double x);
double ww_recent_median(const struct ww_recent *r); /* NAN where there are none */
/* Median of x with its interval. */
struct ww_ratio ww_stats_interval(const double *x, int n, enum ww_stats_sure sure);
/* median(base) / median(x); base[i] and x[i] were taken one after the other and are resampled together. */
struct ww_ratio ww_stats_ratio_paired(const double *base, const double *x, int n, enum ww_stats_sure sure);
/* median(base) * scale / median(x), resampled independently: base was taken at another time. */
struct ww_ratio ww_stats_ratio(
	const double *base, int n_base, double scale, const double *x, int n, enum ww_stats_sure sure);
/* The same for a disturbed measurement: from the smallest to the largest resample of the whole and of each half. */
struct ww_ratio ww_stats_ratio_disturbed(const double *base, const double *x, int n);
/* The same where others had the processors in nearly all calls.  *_waited: how long its threads waited for one (us).
 * Its interval also holds the ratios in which the side that is to be the slower has not waited: threads that wait for
 * each other lose more by others than a single one does, so waiting proves nothing. */
struct ww_ratio ww_stats_ratio_crowded(
	const double *base, const double *base_waited, const double *x, const double *x_waited, int n);
/* us[i] is by a clock that a kernel can forge, witness[i] by a less exact clock that it cannot, both of the same call.
 * If the median of witness - us - share * us exceeds slack (witnesses that are not finite are left out), each us[i]
 * becomes the larger of the two. */
void ww_stats_hold(double *us, const double *witness, int n, double slack, double share);

/* An interval of a median that holds after every sample at once, so that sampling may stop when it says enough.
 *
 * The sequential sign test.  Were the median at most m, each sample would be above m with probability at most 1/2; so
 * for k of n samples above m the wealth of a gambler who bets on more,
 *
 *     E = 0.35 [k = n] 2^n + 0.35 B(0.92) + 0.25 B(0.78) + 0.05 * 2 * integral of B(p) over p from 1/2 to 1,
 *     B(p) = (2 p)^k (2 - 2 p)^(n - k),
 *
 * is a nonnegative supermartingale that begins at 1.  It ever reaches 40 with probability at most 1/40 (Ville 1939):
 * then m is too low.  The other side is the same from above.  So with 95% the median lies in [lo, hi] at all n
 * together; six samples on one side of a number are the fewest that decide, with one on the other side twelve, with two
 * 15.  Any mixture over p is such a bet (Robbins 1970; Howard et al., "Time-uniform, nonparametric, nonasymptotic
 * confidence sequences" (2021), has the theory).  This one needs the fewest samples where few are on the other side,
 * and the integral lets it decide at last where almost half are.  No distribution is assumed; samples must be
 * independent. */
struct ww_sequence {
	int n;
	double lo, hi; /* -INFINITY, INFINITY at first */
	double sorted[WW_STATS_MAX_SAMPLES];
};
void ww_sequence_init(struct ww_sequence *s);
void ww_sequence_add(struct ww_sequence *s, double x);

/* Width of an interval relative to its middle. */
double ww_stats_width(struct ww_ratio r);
/* The interquartile range over the median: how much a measurement varies. */
double ww_stats_spread(const double *x, int n);
