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
enum use { SHARED, STEP, ALONE, USES }; /* of the device: verified, between the calls of a measurement, a call */
static atomic_int uses[USES], most[USES], together, turns[WW_TURN_ALONE + 1], ending;

static void use(enum use mine)
{
	int n = atomic_fetch_add(&uses[mine], 1) + 1;
	together += mine == ALONE ? n > 1 || uses[SHARED] || uses[STEP] : uses[ALONE] || uses[mine == STEP ? SHARED : STEP];
	if (n > most[mine])
		most[mine] = n;
	usleep(1000);
	atomic_fetch_sub(&uses[mine], 1);
}

/* A draw, the calls of both sides, a comparison. */
static void rounds(struct ww_turn *t)
{
	for (int k = 0; k < 3; k++) {
		use(STEP);
		ww_turn_call(t);
		ww_turn_call(t); /* within each other */
		use(ALONE);
		ww_turn_called(t);
		use(ALONE);
		ww_turn_called(t);
		use(STEP);
	}
}

/* As a judgement does: beside others, then measured, then beside them again. */
static void *judgements(void *arg)
{
	static const enum ww_turn_kind first[] = { WW_TURN_LOAD, WW_TURN_SHARED },
								   second[] = { WW_TURN_ALONE, WW_TURN_TIMED };
	const long number = (long)arg;
	struct ww_err err = WW_ERR_INIT;
	while (!ending) {
		struct ww_turn t = { 0 };
		for (int k = 0; k < 3; k++) {
			enum ww_turn_kind kind = k == 1 ? second[number % 4 != 0] : first[number > 1];
			assert_int_equal(ww_turn_take(&t, &judge, kind, &err), WW_OK);
			if (kind == WW_TURN_TIMED)
				rounds(&t);
			else
				use(kind == WW_TURN_ALONE ? ALONE : SHARED);
			turns[kind]++;
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
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_SHARED, &err), WW_OK);
	usleep(100000);
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_ALONE, &err), WW_OK);
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_SHARED, &err), WW_OK);
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
		assert_int_equal(pthread_create(&threads[i], NULL, judgements, (void *)i), 0);
	assert_int_equal(waitpid(other, &status, 0), other);
	ending = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(together, 0);
	assert_in_range(most[SHARED], 2, THREADS);
	assert_in_range(most[STEP], 2, THREADS); /* measurements draw and compare beside each other */
	assert_true(turns[WW_TURN_SHARED] > 50 && turns[WW_TURN_LOAD] > 10);
	assert_true(turns[WW_TURN_ALONE] > 5 && turns[WW_TURN_TIMED] > 20);
}

static void *measurements(void *unused)
{
	struct ww_err err = WW_ERR_INIT;
	while (!ending) {
		struct ww_turn t = { 0 };
		assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_TIMED, &err), WW_OK);
		rounds(&t);
		ww_turn_drop(&t);
	}
	return unused;
}

/* Small tasks that are timed without end do not keep a large one waiting. */
static void measurements_come_in_order(void **state)
{
	enum { THREADS = 8 };
	pthread_t threads[THREADS];
	struct ww_turn t = { 0 };
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	ending = 0;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, measurements, NULL), 0);
	usleep(50000);
	for (int k = 0; k < 3; k++) {
		uint64_t start = ww_now_ns();
		assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_ALONE, &err), WW_OK);
		assert_true(ww_seconds_since(start) < 1);
		use(ALONE);
		ww_turn_drop(&t);
	}
	ending = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(together, 0);
}

/* Who computes statistics does not keep others from their calls. */
static void a_pause_lets_others_call(void **state)
{
	struct ww_turn paused = { 0 }, t = { 0 };
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	assert_int_equal(ww_turn_take(&paused, &judge, WW_TURN_TIMED, &err), WW_OK);
	ww_turn_pause(&paused);
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_TIMED, &err), WW_OK);
	ww_turn_call(&t); /* for ever, if it waited */
	ww_turn_called(&t);
	ww_turn_drop(&t);
	ww_turn_resume(&paused);
	ww_turn_drop(&paused);
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
	assert_int_equal(ww_turn_take(&t, &stopped, WW_TURN_SHARED, &err), WW_ERR_INTERRUPTED);
	assert_null(t.turns);
	ww_turn_drop(&held);
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_SHARED, &err), WW_OK);
	ww_turn_drop(&t);
	ww_turn_drop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_change_keeps_the_lease),
		cmocka_unit_test(nothing_runs_beside_a_measurement), cmocka_unit_test(measurements_come_in_order),
		cmocka_unit_test(a_pause_lets_others_call), cmocka_unit_test(a_wait_is_interrupted) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
