/* What a step's rewards differ by: tasks, or samples of one task.
 *
 * budget: 1 CPU-second */
#include "unit.h"

#include "train/rl.h"

#include <math.h>

static struct ww_rl_spread spread(const float *reward, int64_t n, int64_t each)
{
	int64_t group[16];
	for (int64_t i = 0; i < n; i++)
		group[i] = i / each;
	return ww_rl_spread_of(group, reward, n);
}

static void tasks_alone_differ(void **state)
{
	const float reward[] = { -1, -1, 2, 2, 3, 3 };
	struct ww_rl_spread s = spread(reward, 6, 2);
	(void)state;
	assert_true(s.groups == 3 && s.mixed == 0 && s.within == 0);
}

static void samples_alone_differ(void **state)
{
	const float reward[] = { -1, 3, 3, -1 };
	struct ww_rl_spread s = spread(reward, 4, 2);
	(void)state;
	assert_true(s.groups == 2 && s.mixed == 2);
	assert_true(fabs(s.within - 8 / (16 / 3.0)) < 1e-12); /* unbiased: above 1 where tasks differ less than by chance */
}

static void nothing_differs(void **state)
{
	const float equal[] = { .1f, .1f, .1f, .1f, .1f, .1f }, three[] = { -1, 1, 2 };
	struct ww_rl_spread s = spread(equal, 6, 3), alone = spread(three, 3, 1);
	(void)state;
	assert_true(s.groups == 2 && s.mixed == 0 && isnan(s.within));
	assert_true(alone.groups == 0 && isnan(alone.within)); /* a task with one episode says nothing of its samples */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(tasks_alone_differ), cmocka_unit_test(samples_alone_differ),
		cmocka_unit_test(nothing_differs) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
