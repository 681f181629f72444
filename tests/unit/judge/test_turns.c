/* Turns on a device: one measurement alone or several judgements beside each other, and all of them together one lease
 * for other processes.  No GPU is needed: a turn is a lock.  budget: 2 CPU-seconds */
#include "unit.h"

#include "base/time.h"
#include "host/lease.h"
#include "judge/internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ww_judge judge = { .opts.target = WW_TARGET_CUDA, .facts.uuid = "test-turns" };
static atomic_int beside, alone, most_beside, together, turns[4], ending;

static void inside(enum ww_turn_kind kind)
{
	atomic_int *mine = kind == WW_TURN_ALONE ? &alone : &beside;
	int n = atomic_fetch_add(mine, 1) + 1;
	together += kind == WW_TURN_ALONE ? n > 1 || beside : alone != 0;
	if (kind != WW_TURN_ALONE && n > most_beside)
		most_beside = n;
	usleep(1000);
	atomic_fetch_sub(mine, 1);
	turns[kind]++;
}

/* As a judgement does: beside others, then alone, then beside them again. */
static void *judgements(void *arg)
{
	struct ww_err err = WW_ERR_INIT;
	while (!ending) {
		struct ww_turn t = { 0 };
		for (int k = 0; k < 3; k++) {
			enum ww_turn_kind kind = k == 1 ? WW_TURN_ALONE : arg ? WW_TURN_LOAD : WW_TURN_BESIDE;
			assert_int_equal(ww_turn_take(&t, &judge, kind, &err), WW_OK);
			inside(kind);
		}
		ww_turn_drop(&t);
	}
	return NULL;
}

/* Another process gets the device between them: seconds that it waited, or -1. */
static double wait_elsewhere(void)
{
	struct ww_lease lease = WW_LEASE_INIT;
	struct ww_err err = WW_ERR_INIT;
	uint64_t start = ww_now_ns();
	if (ww_lease_take(&lease, "test-turns", NULL, &err) != WW_OK)
		return -1;
	ww_lease_drop(&lease);
	return ww_seconds_since(start);
}

/* From one kind to another the lease stays: a process that waits for it does not come between. */
static void a_change_keeps_the_lease(void **state)
{
	struct ww_turn t = { 0 };
	struct ww_err err = WW_ERR_INIT;
	int status;
	(void)state;
	pid_t other = fork(); /* it would inherit that this process has the lease */
	if (!other) {
		usleep(50000);
		_exit(wait_elsewhere() < 0);
	}
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_BESIDE, &err), WW_OK);
	usleep(100000);
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_ALONE, &err), WW_OK);
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_BESIDE, &err), WW_OK);
	usleep(50000);
	assert_int_equal(waitpid(other, &status, WNOHANG), 0); /* it has not had it yet */
	ww_turn_drop(&t);
	assert_int_equal(waitpid(other, &status, 0), other);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void nothing_runs_beside_a_measurement(void **state)
{
	enum { THREADS = 12 };
	pthread_t threads[THREADS];
	int status;
	(void)state;
	pid_t other = fork();
	if (!other) {
		usleep(300000);
		double s = wait_elsewhere();
		_exit(s < 0 ? 2 : s > 4);
	}
	for (long i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, judgements, i < 2 ? (void *)1 : NULL), 0);
	assert_int_equal(waitpid(other, &status, 0), other);
	ending = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(together, 0);
	assert_in_range(most_beside, 2, THREADS);
	assert_true(turns[WW_TURN_BESIDE] > 100 && turns[WW_TURN_ALONE] > 50 && turns[WW_TURN_LOAD] > 10);
}

static void a_wait_is_interrupted(void **state)
{
	volatile int stop = 1;
	struct ww_judge stopped = { .opts = { .target = WW_TARGET_CUDA, .interrupted = &stop },
		.facts.uuid = "test-turns" };
	struct ww_turn held = { 0 }, t = { 0 };
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	assert_int_equal(ww_turn_take(&held, &judge, WW_TURN_ALONE, &err), WW_OK);
	assert_int_equal(ww_turn_take(&t, &stopped, WW_TURN_BESIDE, &err), WW_ERR_INTERRUPTED);
	assert_null(t.turns);
	ww_turn_drop(&held);
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_BESIDE, &err), WW_OK);
	ww_turn_drop(&t);
	ww_turn_drop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_change_keeps_the_lease),
		cmocka_unit_test(nothing_runs_beside_a_measurement), cmocka_unit_test(a_wait_is_interrupted) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
