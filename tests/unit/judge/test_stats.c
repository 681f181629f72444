#include "unit.h"

#include "base/rng.h"
#include "judge/stats.h"

#include <math.h>

static void medians(void **state)
{
	double odd[] = { 5, 1, 3 }, even[] = { 4, 1, 3, 2 }, one[] = { 7 };
	(void)state;
	assert_true(ww_stats_median(odd, 3) == 3);
	assert_true(ww_stats_median(even, 4) == 2.5);
	assert_true(ww_stats_median(one, 1) == 7);
	assert_true(isnan(ww_stats_median(one, 0)));
	assert_true(odd[0] == 5); /* the samples are left as they were */
	struct ww_recent r = { .n = 0 };
	assert_true(isnan(ww_recent_median(&r)));
	for (int i = 0; i < 3 * WW_STATS_MAX_SAMPLES; i++)
		ww_recent_add(&r, i < WW_STATS_MAX_SAMPLES ? 0 : i % 3 ? 2 : 100);
	assert_true(ww_recent_median(&r) == 2);
}

static void intervals_hold_the_median_and_repeat(void **state)
{
	double x[50];
	struct ww_rng g;
	(void)state;
	ww_rng_init(&g, 9, 0);
	for (int i = 0; i < 50; i++)
		x[i] = 100 + ww_rng_uniform(&g);
	struct ww_ratio a = ww_stats_interval(x, 50, WW_STATS_95), b = ww_stats_interval(x, 50, WW_STATS_95);
	assert_true(a.lo <= a.mid && a.mid <= a.hi);
	assert_true(a.lo < a.hi);
	assert_true(a.lo > 100.2 && a.hi < 100.8);
	assert_memory_equal(&a, &b, sizeof(a));
}

/* Few enough samples that the bootstrap's distribution can be worked out by hand. */
static void intervals_of_few(void **state)
{
	const double two[] = { 3, 1 }, three[] = { 10, 1, 2 }, ties[] = { 5, 9, 5, 5 };
	(void)state;
	struct ww_ratio r = ww_stats_interval(two, 2, WW_STATS_95); /* medians 1, 2, 3 with 1/4, 1/2, 1/4 */
	assert_true(r.lo == 1 && r.mid == 2 && r.hi == 3);
	r = ww_stats_interval(three, 3, WW_STATS_95); /* 1, 2, 10 with 7/27, 13/27, 7/27 */
	assert_true(r.lo == 1 && r.mid == 2 && r.hi == 10);
	r = ww_stats_interval(ties, 4, WW_STATS_95); /* 5, 7, 9 with 189/256, 54/256, 13/256: the last beyond 2.5% */
	assert_true(r.lo == 5 && r.mid == 5 && r.hi == 9);
	r = ww_stats_interval(two, 1, WW_STATS_95);
	assert_true(r.lo == 3 && r.mid == 3 && r.hi == 3);
	const double base[] = { 6, 2 }; /* twice each sample: paired, so the ratio never moves */
	r = ww_stats_ratio_paired(base, two, 2, WW_STATS_95);
	assert_true(r.lo == 2 && r.mid == 2 && r.hi == 2);
	r = ww_stats_ratio(base, 2, 1, two, 2, WW_STATS_95); /* taken apart it does: 2/3 with 1/16 */
	assert_true(r.lo == 2.0 / 3 && r.mid == 2 && r.hi == 6);
}

/* Of a disturbed measurement everything that a resample gave is in the interval: nothing is cut off. */
static void surer_intervals_are_wider(void **state)
{
	double x[16], base[16];
	struct ww_rng g;
	(void)state;
	ww_rng_init(&g, 11, 0);
	for (int i = 0; i < 16; i++) {
		x[i] = 1 + ww_rng_uniform(&g);
		base[i] = 1 + ww_rng_uniform(&g);
	}
	struct ww_ratio a = ww_stats_interval(x, 16, WW_STATS_95), b = ww_stats_interval(x, 16, WW_STATS_999);
	assert_true(b.lo < a.lo && b.hi > a.hi && a.mid == b.mid);
	a = ww_stats_ratio_paired(base, x, 16, WW_STATS_95), b = ww_stats_ratio_paired(base, x, 16, WW_STATS_999);
	assert_true(b.lo < a.lo && b.hi > a.hi && a.mid == b.mid);
	a = ww_stats_ratio(base, 16, 1, x, 16, WW_STATS_95), b = ww_stats_ratio(base, 16, 1, x, 16, WW_STATS_999);
	assert_true(b.lo < a.lo && b.hi > a.hi && a.mid == b.mid);
}

/* What a disturbed measurement proves: what each half of it says as well. */
static void disturbed_ratios(void **state)
{
	double x[16], twice[16], later[16];
	(void)state;
	for (int i = 0; i < 16; i++) {
		x[i] = 10 + (i * 5) % 16 * 0.01;
		twice[i] = 2 * x[i];
		later[i] = i < 8 ? x[i] : twice[i]; /* slower in the second half only */
	}
	struct ww_ratio r = ww_stats_ratio_disturbed(twice, x, 16);
	assert_true(r.lo > 1.99 && r.mid == 2 && r.hi < 2.01); /* clearly faster, whoever was disturbed */
	r = ww_stats_ratio_disturbed(later, x, 16);
	assert_true(r.lo < 1.01 && r.hi > 1.99);
	r = ww_stats_ratio_disturbed(twice, x, 1);
	assert_true(r.lo == 2 && r.mid == 2 && r.hi == 2);
}

/* Two threads that wait for each other beside others' processes: what they waited is no win of a single thread. */
static void crowded_ratios(void **state)
{
	double base[16], waited[16], x[16], none[16] = { 0 };
	(void)state;
	for (int i = 0; i < 16; i++) {
		base[i] = 20 + (i * 5) % 16 * 0.01;
		waited[i] = 19;
		x[i] = 3 + (i * 3) % 16 * 0.01;
	}
	struct ww_ratio r = ww_stats_ratio_disturbed(base, x, 16);
	assert_true(r.lo > 6);
	r = ww_stats_ratio_crowded(base, waited, x, none, 16);
	assert_true(r.lo < 0.5 && r.mid > 6 && r.hi > 6);
	r = ww_stats_ratio_crowded(x, none, base, waited, 16);
	assert_true(r.lo < 0.2 && r.mid < 0.2 && r.hi > 2);
	r = ww_stats_ratio_crowded(base, none, x, none, 16);
	assert_true(r.lo > 6); /* it was faster without waiting, too */
	waited[3] = 40;        /* two threads' */
	r = ww_stats_ratio_crowded(base, waited, x, none, 16);
	assert_true(isfinite(r.lo) && r.lo > 0);
}

/* Over many sets of samples the 95% interval holds the true median about 95 times in 100. */
static void intervals_cover(void **state)
{
	int held = 0, sets = 300;
	struct ww_rng g;
	(void)state;
	ww_rng_init(&g, 10, 0);
	for (int s = 0; s < sets; s++) {
		double x[31];
		for (int i = 0; i < 31; i++)
			x[i] = 1 + ww_rng_uniform(&g);
		struct ww_ratio r = ww_stats_interval(x, 31, WW_STATS_95);
		held += r.lo <= 1.5 && 1.5 <= r.hi;
	}
	assert_in_range(held, 270, 297);
}

static void ratios(void **state)
{
	double base[20], x[20];
	(void)state;
	for (int i = 0; i < 20; i++) {
		x[i] = 10 + i % 3;
		base[i] = 2 * x[i]; /* the same disturbance hits both of a pair */
	}
	struct ww_ratio p = ww_stats_ratio_paired(base, x, 20, WW_STATS_95);
	assert_true(p.lo == 2 && p.mid == 2 && p.hi == 2);
	struct ww_ratio u = ww_stats_ratio(base, 20, 1.5, x, 20, WW_STATS_95);
	assert_true(u.mid == 3);
	assert_true(u.lo < 3 && u.hi > 3);
	assert_true(fabs(ww_stats_width(u) - (u.hi - u.lo) / 3) < 1e-12);
	assert_true(isnan(ww_stats_ratio_paired(base, x, 0, WW_STATS_95).mid));
}

static void spread(void **state)
{
	double calm[8] = { 10, 10, 10, 10, 10, 10, 10, 10 }, restless[8] = { 10, 10, 10, 10, 10, 20, 20, 20 };
	(void)state;
	assert_true(ww_stats_spread(calm, 8) == 0);
	assert_true(ww_stats_spread(restless, 8) == 1);
}

static void held_to_a_witness(void **state)
{
	double honest[9], noisy[9], forged[9], half[9];
	(void)state;
	for (int i = 0; i < 9; i++) {
		honest[i] = half[i] = 10;
		noisy[i] = 10 + (i % 3); /* by a microsecond in the middle */
		forged[i] = 2;
		if (i < 3)
			half[i] = 2; /* fewer than half: the median of what is reported is that of the others */
	}
	ww_stats_hold(honest, noisy, 9, 2.5, 0.01);
	assert_true(ww_stats_median(honest, 9) == 10);
	ww_stats_hold(forged, noisy, 9, 2.5, 0.01);
	assert_true(ww_stats_median(forged, 9) == 11);
	ww_stats_hold(half, noisy, 9, 2.5, 0.01);
	assert_true(ww_stats_median(half, 9) == 10);
	double unknown[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	const double none[9] = { NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN };
	ww_stats_hold(unknown, none, 9, 2.5, 0.01);
	assert_true(unknown[0] == 1);
}

/* The number of samples that decide where `against` of them, the first, are on the other side. */
static int decided_at(int against)
{
	struct ww_sequence s;
	ww_sequence_init(&s);
	while (s.lo < 1 && s.n < WW_STATS_MAX_SAMPLES)
		ww_sequence_add(&s, s.n < against ? -1 : 1);
	return s.n;
}

static void sequences_decide_early(void **state)
{
	static const int at[] = { 6, 12, 15, 19, 22, 26, 29, 32, 34, 37, 40, 43 };
	(void)state;
	for (size_t against = 0; against < WW_ARRAY_LEN(at); against++)
		assert_int_equal(decided_at((int)against), at[against]);
}

/* The chance that tosses of a fair coin are ever said to be more often heads: 1 in 40 at most. */
static void sequences_are_wrong_one_time_in_forty_at_most(void **state)
{
	enum { TOSSES = 240 };
	double heads[TOSSES + 2] = { 1 }, wrong = 0;
	int may = -1; /* tails, at most, with which n tosses decide */
	(void)state;
	for (int n = 1; n <= TOSSES; n++) {
		for (int k = n; k >= 0; k--)
			heads[k] = (heads[k] + (k ? heads[k - 1] : 0)) / 2;
		while (may + 1 < n && decided_at(may + 1) <= n)
			may++;
		for (int k = n; k >= n - may; k--) {
			wrong += heads[k];
			heads[k] = 0;
		}
	}
	assert_true(wrong > 1.0 / 50 && wrong < 1.0 / 40);
}

static double normal(struct ww_rng *g)
{
	return sqrt(-2 * log(1 - ww_rng_uniform(g))) * cos(2 * acos(-1) * ww_rng_uniform(g));
}

/* Noise of one round: normal, with heavy tails (a ratio of normals), or skewed as interruptions make it; median 0. */
static double noise(struct ww_rng *g, int kind)
{
	double a = normal(g), b = normal(g);
	return kind == 0 ? 0.02 * a : kind == 1 ? 0.01 * a / b : 0.02 * (exp(a) - 1);
}

/* A kernel exactly 5% faster, looked at after each of 60 rounds: at most one in 40 is said to be more than that, and as
 * many less, whatever the noise.  Of so many runs, since the exact chance is one in 45. */
static void sequences_keep_their_error_rate(void **state)
{
	enum { RUNS = 3000, ROUNDS = 60 };
	int said[2] = { 0, 0 };
	const double boundary = -log(0.95);
	struct ww_rng g;
	(void)state;
	ww_rng_init(&g, 11, 0);
	for (int kind = 0; kind < 3; kind++) {
		int won = 0, lost = 0;
		for (int run = 0; run < RUNS; run++) {
			struct ww_sequence s;
			ww_sequence_init(&s);
			while (s.n < ROUNDS)
				ww_sequence_add(&s, boundary + noise(&g, kind));
			won += s.lo > boundary;
			lost += s.hi < boundary;
		}
		printf("# noise %d: %d and %d of %d\n", kind, won, lost, RUNS);
		said[0] += won;
		said[1] += lost;
	}
	assert_in_range(said[0], 1, 3 * RUNS / 40);
	assert_in_range(said[1], 1, 3 * RUNS / 40);
}

/* A kernel 15% faster, and one as fast as the baseline: decided within a few rounds. */
static void sequences_are_short(void **state)
{
	const double boundary = -log(0.95), at[] = { log(1.15), 0 };
	struct ww_rng g;
	(void)state;
	ww_rng_init(&g, 12, 0);
	for (int kind = 0; kind < 2; kind++) {
		int rounds = 0;
		for (int run = 0; run < 200; run++) {
			struct ww_sequence s;
			ww_sequence_init(&s);
			while (s.lo <= boundary && s.hi >= boundary && s.n < 60)
				ww_sequence_add(&s, at[kind] + noise(&g, 0));
			assert_int_equal(kind == 0, s.lo > boundary);
			rounds += s.n;
		}
		assert_in_range(rounds, 6 * 200, 8 * 200);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(medians),
		cmocka_unit_test(intervals_hold_the_median_and_repeat), cmocka_unit_test(intervals_of_few),
		cmocka_unit_test(surer_intervals_are_wider), cmocka_unit_test(disturbed_ratios),
		cmocka_unit_test(crowded_ratios), cmocka_unit_test(intervals_cover), cmocka_unit_test(ratios),
		cmocka_unit_test(spread), cmocka_unit_test(held_to_a_witness), cmocka_unit_test(sequences_decide_early),
		cmocka_unit_test(sequences_are_wrong_one_time_in_forty_at_most),
		cmocka_unit_test(sequences_keep_their_error_rate), cmocka_unit_test(sequences_are_short) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
