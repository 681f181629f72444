/* Which tasks a step takes: by how far the policy gets with each, and the same after a stop. */
#include "unit.h"

#include "rl/curriculum.h"

#include <math.h>

enum { TASKS = 5, STEPS = 2000 };
static char *const tasks[TASKS] = { (char *)"never", (char *)"always", (char *)"sometimes", (char *)"new",
	(char *)"never faster" };

static struct ww_curriculum *taught(void)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_curriculum *c;
	assert_int_equal(ww_curriculum_new(tasks, TASKS, 5, &c, &err), WW_OK);
	ww_curriculum_begin(c);
	for (int i = 0; i < 8; i++) {
		ww_curriculum_note(c, "never", -1);
		ww_curriculum_note(c, "always", 3);
		ww_curriculum_note(c, "sometimes", i % 2 ? 3 : -1);
		ww_curriculum_note(c, "never faster", 1);
		ww_curriculum_note(c, "another run's", 3);
	}
	assert_true(ww_curriculum_success(c, 0) == 0.5); /* the step may be interrupted, and is then noted again */
	ww_curriculum_commit(c);
	return c;
}

static void what_is_solved_sometimes_is_drawn_most(void **state)
{
	struct ww_curriculum *c = taught();
	static int64_t out[STEPS];
	int n[TASKS] = { 0 };
	(void)state;
	assert_true(ww_curriculum_success(c, 0) < 0.1 && ww_curriculum_success(c, 1) > 0.9);
	assert_true(ww_curriculum_success(c, 2) == 0.5 && ww_curriculum_success(c, 3) == 0.5);
	ww_curriculum_draw(c, 1, STEPS, 1, out);
	for (int i = 0; i < STEPS; i++)
		n[out[i]]++;
	printf("# never %d, always %d, sometimes %d, new %d, never faster %d\n", n[0], n[1], n[2], n[3], n[4]);
	assert_true(
		n[0] > 100 && n[1] > 100 && n[4] > 50); /* nothing is forgotten: weights .072, .072, .048 of .73 in all */
	assert_true(n[4] < 200); /* right, and never more: its samples teach nothing, as those of "never" */
	assert_true(n[2] > 600 && n[3] > 600);
	ww_curriculum_free(c);
}

static void the_tasks_of_a_step_differ(void **state)
{
	struct ww_curriculum *c = taught();
	int64_t out[3 * 6];
	(void)state;
	ww_curriculum_draw(c, 7, 9, 6, out);
	for (int step = 0; step < 3; step++)
		for (int i = 0; i < TASKS; i++)
			for (int k = 0; k < i; k++)
				assert_true(out[step * 6 + i] != out[step * 6 + k]);
	ww_curriculum_free(c);
}

static void older_episodes_count_half(void **state)
{
	struct ww_curriculum *c = taught();
	(void)state;
	for (int visit = 0; visit < 3; visit++) {
		ww_curriculum_begin(c);
		ww_curriculum_visit(c, "never");
		for (int i = 0; i < 8; i++)
			ww_curriculum_note(c, "never", 3);
		ww_curriculum_commit(c);
	}
	assert_true(fabs(ww_curriculum_success(c, 0) - (8 + 4 + 2 + 0.5) / (8 + 4 + 2 + 1 + 1)) < 1e-12);
	ww_curriculum_free(c);
}

static void a_state_that_is_read_draws_the_same(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_curriculum *a = taught(), *b;
	int64_t x[10 * TASKS], y[10 * TASKS];
	(void)state;
	ww_curriculum_begin(a);
	ww_curriculum_visit(a, "sometimes");
	ww_curriculum_note(a, "sometimes", 2);
	ww_curriculum_commit(a);
	json_t *saved = ww_curriculum_save(a);
	char *text = json_dumps(saved, 0);
	json_t *read = json_loads(text, 0, NULL);
	assert_int_equal(ww_curriculum_new(tasks, TASKS, 5, &b, &err), WW_OK);
	ww_curriculum_load(b, read);
	ww_curriculum_draw(a, 3, 12, TASKS, x);
	ww_curriculum_draw(b, 3, 12, TASKS, y);
	assert_memory_equal(x, y, sizeof(x));
	assert_true(memcmp(x, x + TASKS, TASKS * sizeof(*x)) ||
		memcmp(x, x + 2 * TASKS, TASKS * sizeof(*x))); /* not every step's are one order */
	free(text);
	json_decref(read);
	json_decref(saved);
	ww_curriculum_free(a);
	ww_curriculum_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_is_solved_sometimes_is_drawn_most),
		cmocka_unit_test(the_tasks_of_a_step_differ), cmocka_unit_test(older_episodes_count_half),
		cmocka_unit_test(a_state_that_is_read_draws_the_same) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
