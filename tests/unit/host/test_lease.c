/* Who may use a device: one alone or many in steps, between processes and threads, and neither kind shut out by the
 * other. */
#include "unit.h"

#include "base/fs.h"
#include "host/lease.h"
#include "base/time.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the processes of a test tell one another. */
struct told {
	volatile int ready, stop, alone, shared, clashes;
	volatile long measured, steps;
};

static struct told *told;
static const char *const device = "a device/of tests";

static void pass(double seconds)
{
	uint64_t start = ww_now_ns();
	while (ww_seconds_since(start) < seconds)
		usleep(1000);
}

static int set_up(void **state)
{
	char dir[] = "/tmp/warpwright-lease-XXXXXX";
	(void)state;
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return told == MAP_FAILED || !mkdtemp(dir) || setenv("XDG_CACHE_HOME", dir, 1);
}

static int tear_down(void **state)
{
	(void)state;
	if (system("rm -r \"$XDG_CACHE_HOME\"") != 0) /* its parents are the test's own */
		return 1;
	return munmap(told, sizeof(*told));
}

static pid_t start(void (*fn)(void))
{
	pid_t pid = fork();
	if (pid == 0) {
		alarm(30);
		fn();
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

static void end(pid_t pid)
{
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void wait_until_ready(int n)
{
	uint64_t begin = ww_now_ns();
	while (told->ready < n && ww_seconds_since(begin) < 20)
		usleep(1000);
	assert_true(told->ready >= n);
}

/* One measurement after the other, 20 ms each. */
static void measure_always(void)
{
	__atomic_add_fetch(&told->ready, 1, __ATOMIC_SEQ_CST);
	while (!told->stop) {
		struct ww_lease l = WW_LEASE_INIT;
		struct ww_err err = WW_ERR_INIT;
		if (ww_lease_take(&l, device, NULL, &err) != WW_OK)
			_exit(1);
		if (__atomic_add_fetch(&told->alone, 1, __ATOMIC_SEQ_CST) > 1 || told->shared)
			told->clashes++;
		usleep(20000);
		if (told->shared)
			told->clashes++;
		told->measured++;
		__atomic_sub_fetch(&told->alone, 1, __ATOMIC_SEQ_CST);
		ww_lease_drop(&l);
	}
}

/* One step after the other, without a rest. */
static void compute_always(void)
{
	struct ww_share s;
	struct ww_err err = WW_ERR_INIT;
	if (ww_share_open(&s, device, &err) != WW_OK)
		_exit(1);
	__atomic_add_fetch(&told->ready, 1, __ATOMIC_SEQ_CST);
	while (!told->stop) {
		if (ww_share_step(&s, NULL, &err) != WW_OK)
			_exit(1);
		__atomic_add_fetch(&told->shared, 1, __ATOMIC_SEQ_CST);
		if (told->alone)
			told->clashes++;
		usleep(2000);
		__atomic_add_fetch(&told->steps, 1, __ATOMIC_SEQ_CST);
		__atomic_sub_fetch(&told->shared, 1, __ATOMIC_SEQ_CST);
	}
	ww_share_close(&s);
}

static void neither_starves(void **state)
{
	(void)state;
	memset(told, 0, sizeof(*told));
	pid_t pids[] = { start(measure_always), start(compute_always), start(compute_always), start(measure_always) };
	wait_until_ready(4);
	pass(0.5);
	long measured = told->measured, steps = told->steps; /* whoever came first would have had it until now */
	pass(1.5);
	measured = told->measured - measured;
	steps = told->steps - steps;
	told->stop = 1;
	for (size_t i = 0; i < WW_ARRAY_LEN(pids); i++)
		end(pids[i]);
	assert_int_equal(told->clashes, 0);
	assert_true(measured >= 3); /* engines have it for a tenth of a second at a time */
	assert_true(steps >= 60);
}

static void engines_compute_side_by_side(void **state)
{
	struct ww_share a, b;
	struct ww_lease l = WW_LEASE_INIT;
	struct ww_err err = WW_ERR_INIT;
	volatile int now = 1;
	(void)state;
	assert_int_equal(ww_share_open(&a, device, &err), WW_OK);
	assert_int_equal(ww_share_open(&b, device, &err), WW_OK);
	assert_int_equal(ww_share_step(&a, NULL, &err), WW_OK);
	assert_int_equal(ww_share_step(&b, NULL, &err), WW_OK);
	assert_int_equal(
		ww_lease_take(&l, device, &(struct ww_lease_wait){ .interrupted = &now }, &err), WW_ERR_INTERRUPTED);
	assert_int_equal(l.fd, -1);
	ww_share_rest(&a);
	assert_int_equal(
		ww_lease_take(&l, device, &(struct ww_lease_wait){ .interrupted = &now }, &err), WW_ERR_INTERRUPTED);
	ww_share_rest(&b);
	err = (struct ww_err)WW_ERR_INIT;
	assert_int_equal(ww_lease_take(&l, device, NULL, &err), WW_OK);
	assert_int_equal(ww_share_step(&a, &now, &err), WW_ERR_INTERRUPTED);
	ww_lease_drop(&l);
	err = (struct ww_err)WW_ERR_INIT;
	assert_int_equal(ww_share_step(&a, &now, &err), WW_OK);
	ww_share_close(&a);
	ww_share_close(&b);
	ww_share_close(&b);
}

/* An engine that waited has it for as long, so a measurement that comes next waits for that. */
static void who_waited_has_it_as_long(void **state)
{
	struct ww_share s;
	struct ww_lease l;
	struct ww_err err = WW_ERR_INIT;
	volatile int now = 1;
	(void)state;
	assert_int_equal(ww_share_open(&s, device, &err), WW_OK);
	assert_int_equal(ww_lease_take(&l, device, NULL, &err), WW_OK);
	uint64_t begin = ww_now_ns();
	while (ww_seconds_since(begin) <
		0.4) /* asked again and again, as an engine does that looks after other things between */
		assert_int_equal(ww_share_step(&s, &now, &err), WW_ERR_INTERRUPTED);
	ww_lease_drop(&l);
	assert_int_equal(ww_share_step(&s, NULL, &err), WW_OK);
	assert_true(s.until_ns > ww_now_ns() + 300000000ull && s.until_ns < ww_now_ns() + 2100000000ull);
	ww_share_rest(&s);
	assert_int_equal(ww_share_step(&s, NULL, &err), WW_OK);
	assert_true(s.until_ns < ww_now_ns() + 110000000ull);
	ww_share_close(&s);
}

/* Until another process is in the gate, where it stays while we have the device. */
static void wait_for_gate(void)
{
	char dir[PATH_MAX], path[PATH_MAX + 64];
	struct ww_err err = WW_ERR_INIT;
	uint64_t begin = ww_now_ns();
	int fd, taken = 0;
	assert_int_equal(ww_fs_cache_dir(dir, &err), WW_OK);
	snprintf(path, sizeof(path), "%s/lease-a_device_of_tests.gate", dir);
	assert_true((fd = open(path, O_RDWR)) >= 0);
	while (!taken && ww_seconds_since(begin) < 20) {
		taken = flock(fd, LOCK_EX | LOCK_NB) != 0;
		if (!taken) {
			flock(fd, LOCK_UN);
			usleep(5000);
		}
	}
	close(fd);
	assert_true(taken);
}

static void measure_once(void)
{
	struct ww_lease l;
	struct ww_err err = WW_ERR_INIT;
	if (ww_lease_take(&l, device, NULL, &err) != WW_OK)
		_exit(1);
	told->measured++;
}

static void compute_once(void)
{
	struct ww_share s;
	struct ww_err err = WW_ERR_INIT;
	if (ww_share_open(&s, device, &err) != WW_OK)
		_exit(1);
	if (ww_share_step(&s, NULL, &err) != WW_OK)
		_exit(1);
	told->steps++;
	while (!told->stop)
		usleep(1000);
}

static void who_waits_is_not_overtaken(void **state)
{
	struct ww_share a, b;
	struct ww_lease l;
	struct ww_err err = WW_ERR_INIT;
	volatile int now = 1;
	(void)state;
	assert_int_equal(ww_share_open(&a, device, &err), WW_OK);
	assert_int_equal(ww_share_open(&b, device, &err), WW_OK);

	memset(told, 0, sizeof(*told));
	assert_int_equal(ww_share_step(&a, NULL, &err), WW_OK);
	pid_t pid = start(measure_once);
	wait_for_gate();
	assert_int_equal(ww_share_step(&b, &now, &err), WW_ERR_INTERRUPTED);
	assert_int_equal(told->measured, 0);
	ww_share_rest(&a);
	end(pid);
	assert_int_equal(told->measured, 1);

	memset(told, 0, sizeof(*told));
	err = (struct ww_err)WW_ERR_INIT;
	assert_int_equal(ww_lease_take(&l, device, NULL, &err), WW_OK);
	pid = start(compute_once);
	wait_for_gate();
	assert_int_equal(told->steps, 0);
	ww_lease_drop(&l);
	assert_int_equal(
		ww_lease_take(&l, device, &(struct ww_lease_wait){ .interrupted = &now }, &err), WW_ERR_INTERRUPTED);
	told->stop = 1;
	end(pid);
	assert_int_equal(told->steps, 1);
	ww_share_close(&a);
	ww_share_close(&b);
}

static void hold_until_killed(void)
{
	struct ww_lease l;
	struct ww_err err = WW_ERR_INIT;
	if (ww_lease_take(&l, device, NULL, &err) == WW_OK)
		told->ready = 1;
	pause();
}

static void the_killed_hold_nothing(void **state)
{
	struct ww_lease l;
	struct ww_err err = WW_ERR_INIT;
	volatile int now = 1;
	(void)state;
	memset(told, 0, sizeof(*told));
	told->ready = 0;
	pid_t pid = start(hold_until_killed);
	wait_until_ready(1);
	assert_int_equal(
		ww_lease_take(&l, device, &(struct ww_lease_wait){ .interrupted = &now }, &err), WW_ERR_INTERRUPTED);
	assert_true(ww_lease_takes_part(pid, device));
	assert_false(ww_lease_takes_part(pid, "another"));
	assert_false(ww_lease_takes_part(getpid(), device));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	err = (struct ww_err)WW_ERR_INIT;
	assert_int_equal(ww_lease_take(&l, device, NULL, &err), WW_OK);
	ww_lease_drop(&l);
	ww_lease_drop(&l);
}

/* One step that takes a second. */
static void compute_long(void)
{
	struct ww_share s;
	struct ww_err err = WW_ERR_INIT;
	if (ww_share_open(&s, device, &err) != WW_OK || ww_share_step(&s, NULL, &err) != WW_OK)
		_exit(1);
	__atomic_add_fetch(&told->shared, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&told->ready, 1, __ATOMIC_SEQ_CST);
	usleep(1000000);
	__atomic_sub_fetch(&told->shared, 1, __ATOMIC_SEQ_CST);
	ww_share_close(&s);
}

/* Steps of others while a measurement waits for a long one. */
static long steps_beside_a_wait(double gives_way_s)
{
	struct ww_lease l = WW_LEASE_INIT;
	struct ww_lease_wait how = { .gives_way_s = gives_way_s };
	struct ww_err err = WW_ERR_INIT;
	memset(told, 0, sizeof(*told));
	pid_t pids[] = { start(compute_long), start(compute_always), start(compute_always) };
	wait_until_ready(3);
	pass(0.05);
	long steps = told->steps;
	assert_int_equal(ww_lease_take(&l, device, &how, &err), WW_OK);
	steps = told->steps - steps;
	assert_int_equal(told->shared, 0);
	told->stop = 1;
	ww_lease_drop(&l);
	for (size_t i = 0; i < WW_ARRAY_LEN(pids); i++)
		end(pids[i]);
	return steps;
}

static void who_gives_way_lets_short_steps_pass(void **state)
{
	(void)state;
	assert_true(steps_beside_a_wait(0) < 120); /* two engines that go on for .1 s at most, 2 ms a step */
	assert_true(steps_beside_a_wait(0.08) > 200);
}

static void *measure_thrice(void *unused)
{
	(void)unused;
	for (int i = 0; i < 3; i++) {
		struct ww_lease l;
		struct ww_err err = WW_ERR_INIT;
		if (ww_lease_take(&l, device, NULL, &err) != WW_OK)
			return "error";
		if (__atomic_add_fetch(&told->alone, 1, __ATOMIC_SEQ_CST) > 1)
			told->clashes++;
		usleep(3000);
		__atomic_sub_fetch(&told->alone, 1, __ATOMIC_SEQ_CST);
		ww_lease_drop(&l);
	}
	return NULL;
}

static void threads_take_turns(void **state)
{
	pthread_t threads[8];
	void *bad;
	(void)state;
	memset(told, 0, sizeof(*told));
	for (size_t i = 0; i < WW_ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, measure_thrice, NULL), 0);
	for (size_t i = 0; i < WW_ARRAY_LEN(threads); i++) {
		assert_int_equal(pthread_join(threads[i], &bad), 0);
		assert_null(bad);
	}
	assert_int_equal(told->clashes, 0);
}

struct heard {
	volatile int stop;
	int times;
	char holder[256];
};

static void hear(void *heard, const char *holder)
{
	struct heard *h = heard;
	snprintf(h->holder, sizeof(h->holder), "%s", holder);
	h->stop = ++h->times == 1;
}

/* After two seconds, and the one who then gets the device is not taken for the killed one. */
static void a_wait_names_the_holder(void **state)
{
	struct heard h = { 0 };
	const struct ww_lease_wait w = { .interrupted = &h.stop, .waiting = hear, .ctx = &h };
	struct ww_lease l;
	struct ww_err err = WW_ERR_INIT;
	char expected[32], mine[16] = "", path[PATH_MAX + 64], dir[PATH_MAX];
	(void)state;
	told->ready = 0;
	pid_t pid = start(hold_until_killed);
	wait_until_ready(1);
	uint64_t begin = ww_now_ns();
	assert_int_equal(ww_lease_take(&l, device, &w, &err), WW_ERR_INTERRUPTED);
	assert_true(ww_seconds_since(begin) > 1.9);
	snprintf(expected, sizeof(expected), "pid %d (", (int)pid);
	assert_int_equal(strncmp(h.holder, expected, strlen(expected)), 0);
	assert_non_null(strstr(h.holder, "test_lease"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(ww_lease_take(&l, device, NULL, &err), WW_OK);
	assert_int_equal(ww_fs_cache_dir(dir, &err), WW_OK);
	snprintf(path, sizeof(path), "%s/lease-a_device_of_tests.lock", dir);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(mine, sizeof(mine), f));
	assert_int_equal(atoi(mine), getpid());
	fclose(f);
	ww_lease_drop(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(engines_compute_side_by_side),
		cmocka_unit_test(who_waited_has_it_as_long), cmocka_unit_test(the_killed_hold_nothing),
		cmocka_unit_test(threads_take_turns), cmocka_unit_test(who_waits_is_not_overtaken),
		cmocka_unit_test(who_gives_way_lets_short_steps_pass), cmocka_unit_test(neither_starves),
		cmocka_unit_test(a_wait_names_the_holder) };
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
