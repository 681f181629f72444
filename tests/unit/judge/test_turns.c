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
enum use { LOAD, STEP, ALONE, USES }; /* of the device: a task is loaded, a step of a judgement, a call */
static atomic_int uses[USES], most[USES], together, turns[WW_TURN_ALONE + 1], ending;

static void use(enum use mine)
{
	int n = atomic_fetch_add(&uses[mine], 1) + 1;
	together += mine == ALONE ? n > 1 || uses[LOAD] || uses[STEP] : uses[ALONE] || uses[mine == STEP ? LOAD : STEP];
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

/* A draw, a run, a comparison. */
static void steps(struct ww_turn *t)
{
	for (int k = 0; k < 3; k++) {
		ww_turn_step(t);
		use(STEP);
	}
}

/* As a judgement does: verified, then measured, then verified again; or loaded in the place of one of these. */
static void *judgements(void *arg)
{
	const long number = (long)arg;
	const enum ww_turn_kind kinds[] = { number > 1 ? WW_TURN_SHARED : WW_TURN_LOAD,
		number % 4 ? WW_TURN_TIMED : WW_TURN_ALONE, number % 3 ? WW_TURN_SHARED : WW_TURN_LOAD };
	struct ww_err err = WW_ERR_INIT;
	while (!ending) {
		struct ww_turn t = { 0 };
		for (int k = 0; k < 3; k++) {
			assert_int_equal(ww_turn_take(&t, &judge, kinds[k], &err), WW_OK);
			if (kinds[k] == WW_TURN_TIMED)
				rounds(&t);
			else if (kinds[k] == WW_TURN_SHARED)
				steps(&t);
			else
				use(kinds[k] == WW_TURN_ALONE ? ALONE : LOAD);
			turns[kinds[k]]++;
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
	enum { THREADS = 16 }; /* more than are present at a time */
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
	assert_in_range(most[LOAD], 2, THREADS);
	assert_in_range(most[STEP], 2, THREADS); /* draws and comparisons of several */
	assert_true(turns[WW_TURN_SHARED] > 50 && turns[WW_TURN_LOAD] > 4);
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

static atomic_int called;

static void *call_once(void *unused)
{
	struct ww_turn t = { 0 };
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_TIMED, &err), WW_OK);
	ww_turn_call(&t);
	called = 1;
	ww_turn_called(&t);
	ww_turn_drop(&t);
	return unused;
}

/* Until all that are measured want to call, steps of verifications begin. */
static void calls_are_made_in_rows(void **state)
{
	struct ww_turn measured = { 0 }, verified = { 0 };
	struct ww_err err = WW_ERR_INIT;
	pthread_t thread;
	(void)state;
	assert_int_equal(ww_turn_take(&measured, &judge, WW_TURN_SHARED, &err), WW_OK);
	assert_int_equal(ww_turn_take(&verified, &judge, WW_TURN_SHARED, &err), WW_OK);
	assert_int_equal(ww_turn_take(&measured, &judge, WW_TURN_TIMED, &err), WW_OK); /* stays inside */
	assert_int_equal(pthread_create(&thread, NULL, call_once, NULL), 0);
	usleep(20000);
	ww_turn_step(&verified); /* for ever, if the row had begun */
	assert_false(called);
	ww_turn_pause(&measured);
	ww_turn_drop(&verified);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(called);
	ww_turn_resume(&measured);
	ww_turn_drop(&measured);
}

static void *call_slowly(void *waited_s)
{
	struct ww_turn t = { 0 };
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_TIMED, &err), WW_OK);
	called = 0;
	ww_turn_call(&t);
	called = 1;
	usleep(100000);
	ww_turn_called(&t);
	ww_turn_drop(&t);
	*(double *)waited_s = t.waited_s;
	return NULL;
}

/* Seconds of a stage are its own: a call waits for steps of others, a step for their calls. */
static void waits_within_a_turn_are_known(void **state)
{
	struct ww_turn t = { 0 };
	struct ww_err err = WW_ERR_INIT;
	double calls_s = 0;
	pthread_t thread;
	(void)state;
	assert_int_equal(ww_turn_take(&t, &judge, WW_TURN_TIMED, &err), WW_OK);
	called = -1;
	assert_int_equal(pthread_create(&thread, NULL, call_slowly, &calls_s), 0);
	while (called < 0)
		usleep(1000);
	usleep(100000);
	ww_turn_pause(&t);
	while (!called)
		usleep(1000);
	ww_turn_resume(&t);
	assert_int_equal(pthread_join(thread, NULL), 0);
	ww_turn_drop(&t);
	printf("# a call waited %.3f s, a step %.3f s\n", calls_s, t.waited_s);
	assert_true(calls_s > 0.05 && t.waited_s > 0.05);
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
		cmocka_unit_test(calls_are_made_in_rows), cmocka_unit_test(a_pause_lets_others_call),
		cmocka_unit_test(waits_within_a_turn_are_known), cmocka_unit_test(a_wait_is_interrupted) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
