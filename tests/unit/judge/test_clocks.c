/* Which of the clocks around a call is believed (judge/run/clocks.h). */
#include "unit.h"

#include "judge/run/clocks.h"

static const struct ww_clocks_empty empty = { { 1.5, 40, 60 }, 2 };

static void an_honest_call_is_timed_by_its_events(void **state)
{
	const struct ww_clocks before = { 1.6, 40.8, 62 }, call = { 11, 50.4, 71 }, after = { 1.4, 39.9, 61 };
	struct ww_believed b = ww_clocks_believe(&call, &before, &after, &empty);
	(void)state;
	assert_true(b.device_us == 11 && !b.contradicted);
	assert_true(b.stamp_us > 11 && b.stamp_us < 13);
}

static void a_forger_gains_no_more_than_the_slack(void **state)
{
	const struct ww_clocks none = { 1.5, 40, 60 };
	(void)state;
	for (double truth = 5; truth < 1e5; truth *= 1.7) {
		for (double forged = truth; forged > 0.1; forged *= 0.8) {
			const struct ww_clocks call = { forged, 40 + truth - 1.5, 60 + truth };
			struct ww_believed b = ww_clocks_believe(&call, &none, &none, &empty);
			assert_true(b.device_us >= truth - 6 - 0.02 * truth - 1e-6);
			assert_true(b.device_us <= truth + 1e-6);
			if (forged < truth - 7 - 0.03 * truth)
				assert_true(b.contradicted);
		}
	}
}

static void an_end_that_was_forged_too_shows_on_the_host(void **state)
{
	const struct ww_clocks none = { 1.5, 40, 60 }, call = { 3, 42, 70 }, late = { 1.5, 40, 2060 },
						   never = { 3, NAN, 70 };
	struct ww_believed b = ww_clocks_believe(&call, &none, &late, &empty);
	(void)state;
	assert_true(b.contradicted);
	b = ww_clocks_believe(&never, &none, &late, &empty);
	assert_true(b.contradicted && b.device_us > 1900);
}

static void a_host_that_was_held_up_a_little_is_no_contradiction(void **state)
{
	const struct ww_clocks none = { 1.5, 40, 60 }, call = { 11, 49.5, 300 };
	struct ww_believed b = ww_clocks_believe(&call, &none, &none, &empty);
	(void)state;
	assert_true(!b.contradicted && b.device_us == 11);
}

/* Another process has the device by turns: the call before took a turn of it, and so does the flush of this one. */
static void a_device_that_is_shared_is_no_contradiction(void **state)
{
	const struct ww_clocks shared = { 1.5, 2040, 2060 }, none = { 1.5, 40, 60 }, call = { 380, 2420, 2440 };
	struct ww_believed b = ww_clocks_believe(&call, &shared, &none, &empty);
	(void)state;
	assert_true(!b.contradicted && b.device_us >= 4300);
	b = ww_clocks_believe(&call, &none, &none, &empty);
	assert_true(b.contradicted);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(an_honest_call_is_timed_by_its_events),
		cmocka_unit_test(a_forger_gains_no_more_than_the_slack),
		cmocka_unit_test(an_end_that_was_forged_too_shows_on_the_host),
		cmocka_unit_test(a_host_that_was_held_up_a_little_is_no_contradiction),
		cmocka_unit_test(a_device_that_is_shared_is_no_contradiction) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
