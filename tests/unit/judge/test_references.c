/* The pool of draws: what it promises in references.h, as a judgement sees it. */
#include "unit.h"

#include "judge/cache/references.h"

enum { MAX_SEEDS = 4096 };

static struct ww_tensor output(int dtype, long long n)
{
	struct ww_tensor t = { .dtype = dtype, .rank = 1, .bytes = 4 * n };
	t.size[0] = n;
	return t;
}

static struct ww_pool *make(int dtype, long long n, enum ww_rule rule, uint64_t bytes)
{
	struct ww_tensor t = output(dtype, n);
	struct ww_ref_shapes s = { .outputs = &t, .n_outputs = 1 };
	struct ww_err err = WW_ERR_INIT;
	struct ww_pool *p;
	assert_int_equal(ww_pool_open(&p, &s, WW_TARGET_CUDA, rule, bytes, &err), WW_OK);
	return p;
}

static void test_who_has_a_pool(void **state)
{
	struct ww_pool *p;
	(void)state;
	assert_null(make(WW_F32, WW_POOL_MIN_ELEMENTS - 1, WW_RULE_STRICT, 1 << 30)); /* could be learned by heart */
	assert_null(make(WW_I32, 1 << 20, WW_RULE_STRICT, 1 << 30));
	assert_null(make(WW_F32, 1 << 20, WW_RULE_STRICT, 9 * (8 << 20))); /* too little memory */
	p = make(WW_F32, 1 << 20, WW_RULE_STRICT, 11 * (8 << 20));
	assert_non_null(p);
	assert_false(ww_pool_keeps_values(p)); /* where a judgement's draws fit with their values */
	ww_pool_close(p);
	p = make(WW_F32, 1 << 20, WW_RULE_STRICT, 16 * (8 << 20) + 16);
	assert_true(ww_pool_keeps_values(p));
	ww_pool_close(p);
	ww_pool_begin(NULL, 1);
	ww_pool_spoil(NULL, 1);
	assert_int_equal(ww_pool_next(NULL, 1, 0, WW_REF_PARAMS_INIT, WW_REF_LOT_NONE), 0);
	ww_pool_close(NULL);
}

/* One judgement: the draws of verify.c, then `timed` checked calls.  Returns how many came from the pool. */
static int judgement(struct ww_pool *p, int timed, uint64_t *seen)
{
	static const struct {
		double scale, shift;
		enum ww_ref_params params;
	} draws[] = { { 1, 0, WW_REF_PARAMS_INIT }, { 1, 0, WW_REF_PARAMS_REDRAW }, { 0.015625, 0, WW_REF_PARAMS_REDRAW },
		{ 64, 0, WW_REF_PARAMS_REDRAW }, { 1, 3, WW_REF_PARAMS_REDRAW } };
	int n = 0;
	ww_pool_begin(p, 0);
	for (int i = 0; i < 5 + timed; i++) {
		int k = i < 5 ? i : 1;
		uint64_t seed = ww_pool_next(p, draws[k].scale, draws[k].shift, draws[k].params, WW_REF_LOT_NONE);
		assert_true(seed < (uint64_t)1 << 63);
		if (seed)
			seen[n++] = seed;
	}
	for (int i = 0; i < n; i++)
		for (int j = 0; j < i; j++)
			assert_true(seen[i] != seen[j]);
	return n;
}

static int count(const uint64_t *a, int n, uint64_t x)
{
	int found = 0;
	for (int i = 0; i < n; i++)
		found += a[i] == x;
	return found;
}

static void test_draws_come_again_but_not_for_ever(void **state)
{
	struct ww_pool *p = make(WW_F32, 1 << 20, WW_RULE_STRICT, 64 * (8 << 20));
	uint64_t *all = calloc(MAX_SEEDS, sizeof(*all));
	int n = 0, different = 0, most = 0;
	(void)state;
	for (int k = 0; k < 200; k++) {
		int got = judgement(p, 8, all + n);
		assert_int_equal(got, 13); /* there is room for all of them */
		n += got;
	}
	for (int i = 0; i < n; i++) {
		int times = count(all, n, all[i]);
		most = times > most ? times : most;
		different += count(all, i, all[i]) == 0;
	}
	assert_true(different < n / 4);   /* most were there before */
	assert_true(different > n / 100); /* and none stays */
	assert_true(most <= 32);
	ww_pool_close(p);
	free(all);
}

/* What may leak of a draw goes with what its outputs hold. */
static void test_small_outputs_come_again_less_often(void **state)
{
	static const struct {
		long long elements;
		int uses;
	} rows[] = { { WW_POOL_MIN_ELEMENTS, 2 }, { 521, 4 }, { 1005, 7 }, { 4095, 31 }, { 1 << 20, 32 } };
	uint64_t *all = calloc(MAX_SEEDS, sizeof(*all));
	(void)state;
	for (size_t k = 0; k < WW_ARRAY_LEN(rows); k++) {
		struct ww_pool *p = make(WW_F32, rows[k].elements, WW_RULE_STRICT, 64 * (8 << 20));
		int n = 0, most = 0;
		for (int i = 0; i < 150; i++)
			n += judgement(p, 8, all + n);
		for (int i = 0; i < n; i++) {
			int times = count(all, n, all[i]);
			most = times > most ? times : most;
		}
		assert_int_equal(n, 150 * 13);
		assert_in_range(most, rows[k].uses * 3 / 4, rows[k].uses);
		ww_pool_close(p);
	}
	free(all);
}

/* The second draw of a closing judgement is never one of the pool; the others are, as in each judgement. */
static void test_a_closing_judgement_has_a_draw_of_its_own(void **state)
{
	struct ww_pool *p = make(WW_F32, 1 << 20, WW_RULE_STRICT, 64 * (8 << 20));
	(void)state;
	for (int k = 0; k < 50; k++) {
		ww_pool_begin(p, 1);
		for (int i = 0; i < 8; i++)
			assert_int_equal(ww_pool_next(p, 1, 0, WW_REF_PARAMS_REDRAW, WW_REF_LOT_NONE) == 0, i == 1);
	}
	ww_pool_close(p);
}

static void test_a_small_pool_runs_dry(void **state)
{
	struct ww_pool *p = make(WW_F32, 1 << 20, WW_RULE_STRICT, 11 * (8 << 20));
	uint64_t seen[100];
	(void)state;
	for (int k = 0; k < 50; k++)
		assert_in_range(judgement(p, 60, seen), 5, 16);
	ww_pool_close(p);
}

static void test_what_was_spoken_about_is_gone(void **state)
{
	struct ww_pool *p = make(WW_F32, 1 << 20, WW_RULE_STRICT, 64 * (8 << 20));
	uint64_t gone[50];
	(void)state;
	for (int k = 0; k < 50; k++) {
		ww_pool_begin(p, 0);
		gone[k] = ww_pool_next(p, 1, 0, WW_REF_PARAMS_INIT, WW_REF_LOT_NONE);
		assert_int_equal(count(gone, k, gone[k]), 0);
		ww_pool_spoil(p, gone[k]);
		ww_pool_spoil(p, gone[k]); /* a second time does nothing */
	}
	ww_pool_close(p);
}

/* One that was picked behind it, before the verdict spoke, stays. */
static void test_what_comes_next_is_kept(void **state)
{
	int kept = 0;
	(void)state;
	for (int k = 0; k < 50; k++) {
		struct ww_pool *p = make(WW_F32, 1 << 20, WW_RULE_STRICT, 64 * (8 << 20));
		ww_pool_begin(p, 0);
		uint64_t gone = ww_pool_next(p, 1, 0, WW_REF_PARAMS_INIT, WW_REF_LOT_NONE),
				 next = ww_pool_next(p, 1, 0, WW_REF_PARAMS_REDRAW, WW_REF_LOT_NONE);
		ww_pool_spoil(p, gone);
		ww_pool_begin(p, 0);
		kept += ww_pool_next(p, 1, 0, WW_REF_PARAMS_REDRAW, WW_REF_LOT_NONE) == next;
		ww_pool_close(p);
	}
	assert_in_range(kept, 35, 50); /* one in 32 is renewed */
}

/* A draw is of the lot that was asked for, whenever it comes again; who has none takes any. */
static void test_lots(void **state)
{
	struct ww_pool *p = make(WW_F32, 1 << 20, WW_RULE_STRICT, 64 * (8 << 20));
	uint64_t seen[2][100];
	int n[2] = { 0, 0 }, again = 0;
	(void)state;
	for (int k = 0; k < 20; k++) {
		ww_pool_begin(p, 0);
		for (int i = 0; i < 9; i++) {
			int uneven = i % 3 != 0;
			uint64_t seed = ww_pool_next(p, 1, 0, WW_REF_PARAMS_REDRAW, uneven ? WW_REF_LOT_UNEVEN : WW_REF_LOT_PLAIN);
			assert_true(seed != 0);
			assert_int_equal(count(seen[!uneven], n[!uneven], seed), 0);
			again += count(seen[uneven], n[uneven], seed) > 0;
			if (n[uneven] < 100)
				seen[uneven][n[uneven]++] = seed;
		}
	}
	assert_in_range(again, 120, 180); /* one in 32 is renewed */
	ww_pool_begin(p, 0);
	for (int i = 0; i < 9; i++)
		assert_true(ww_pool_next(p, 1, 0, WW_REF_PARAMS_REDRAW, WW_REF_LOT_NONE) != 0);
	ww_pool_close(p);
}

static void test_paper(void **state)
{
	struct ww_pool *p = make(WW_F32, 1 << 20, WW_RULE_PAPER, 64 * (16 << 20));
	uint64_t seen[8];
	(void)state;
	for (int k = 0; k < 20; k++) {
		ww_pool_begin(p, 0);
		for (int i = 0; i < 5; i++) {
			seen[i] = ww_pool_next(p, 1, 0, WW_REF_PARAMS_INIT, WW_REF_LOT_NONE);
			assert_true(seen[i] != 0);
			assert_int_equal(count(seen, i, seen[i]), 0);
		}
	}
	assert_int_equal(ww_pool_next(p, 1, 0, WW_REF_PARAMS_KEEP, WW_REF_LOT_NONE), 0);
	assert_int_equal(ww_pool_next(p, 2, 0, WW_REF_PARAMS_REDRAW, WW_REF_LOT_NONE), 0);
	ww_pool_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_who_has_a_pool),
		cmocka_unit_test(test_draws_come_again_but_not_for_ever),
		cmocka_unit_test(test_small_outputs_come_again_less_often),
		cmocka_unit_test(test_a_closing_judgement_has_a_draw_of_its_own), cmocka_unit_test(test_a_small_pool_runs_dry),
		cmocka_unit_test(test_what_was_spoken_about_is_gone), cmocka_unit_test(test_what_comes_next_is_kept),
		cmocka_unit_test(test_lots), cmocka_unit_test(test_paper) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
