/* What a process waits for processors while it is called is counted, to it and not to others; and threads that compute
 * get a processor each. */
#include "unit.h"

#include "base/time.h"
#include "host/timed_call.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static cpu_set_t mine(void)
{
	cpu_set_t set;
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	return set;
}

static void *spin(void *until_ns)
{
	while (ww_now_ns() < *(uint64_t *)until_ns)
		;
	return NULL;
}

static atomic_int computed, over;

/* 20 ms of this thread's own processor time, whatever others use; then it lives on until the test is over. */
static void *compute_and_stay(void *unused)
{
	struct timespec t = { 0 };
	while (t.tv_sec == 0 && t.tv_nsec < 20000000)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	atomic_fetch_add(&computed, 1);
	while (!atomic_load(&over))
		usleep(1000);
	return unused;
}

/* On one processor with its twin: each waits while the other runs. */
static pid_t spin_on_one(uint64_t until_ns)
{
	cpu_set_t one, all = mine();
	pid_t pid = fork();
	if (pid == 0) {
		int cpu = 0;
		while (!CPU_ISSET(cpu, &all))
			cpu++;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
		spin(&until_ns);
		pause();
	}
	assert_true(pid > 0);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void who_shares_a_processor_waits(void **state)
{
	(void)state;
	if (!ww_wait_is_measured())
		skip();
	uint64_t start = ww_now_ns();
	pid_t pids[2];
	struct ww_timed_call *calls[2];
	for (int i = 0; i < 2; i++)
		pids[i] = spin_on_one(start + 600000000);
	for (int i = 0; i < 2; i++) {
		calls[i] = ww_timed_call_begin(pids[i]);
		assert_non_null(calls[i]);
	}
	while (ww_seconds_since(start) < 0.6)
		usleep(10000);
	double us = ww_timed_call_end(calls[0]) + ww_timed_call_end(calls[1]);
	end(pids[0]);
	end(pids[1]);
	assert_true(us > 300000); /* 600 ms, less what it takes to start */
}

static void who_sleeps_does_not(void **state)
{
	(void)state;
	if (!ww_wait_is_measured())
		skip();
	pid_t pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	usleep(50000);
	struct ww_timed_call *c = ww_timed_call_begin(pid);
	usleep(100000);
	double us = ww_timed_call_end(c);
	assert_true(us < 50000); /* its caller may have waited, but only a processor's worth */
	c = ww_timed_call_begin(pid);
	end(pid);
	assert_true(ww_timed_call_end(c) >= 0);
	assert_null(ww_timed_call_begin(0));
	assert_true(ww_timed_call_end(NULL) == 0);
}

/* A child with `threads` threads that compute for a while in each call, and one that never does. */
static pid_t team(int threads, int go, int done)
{
	pid_t pid = fork();
	if (pid)
		return pid;
	for (char c; read(go, &c, 1) == 1;) {
		uint64_t until = ww_now_ns() + 30000000;
		static pthread_t ids[256];
		for (int i = 1; i < threads; i++)
			pthread_create(&ids[i], NULL, spin, &until);
		spin(&until);
		(void)!write(done, "d", 1);
		(void)!read(go, &c, 1); /* all are there while the caller looks */
		for (int i = 1; i < threads; i++)
			pthread_join(ids[i], NULL);
		(void)!write(done, "d", 1);
	}
	_exit(0);
}

/* How many processors the first thread of pid may use after a call in which `threads` of them computed. */
static int places_after_call(int threads)
{
	int go[2], done[2];
	cpu_set_t at;
	char c;
	assert_int_equal(pipe(go) | pipe(done), 0);
	pid_t pid = team(threads, go[0], done[1]);
	assert_true(pid > 0);
	struct ww_timed_call *call = ww_timed_call_begin(pid);
	assert_int_equal(write(go[1], "g", 1), 1);
	assert_int_equal(read(done[0], &c, 1), 1);
	(void)ww_timed_call_end(call);
	assert_int_equal(sched_getaffinity(pid, sizeof(at), &at), 0);
	end(pid);
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(done[i]);
	}
	return CPU_COUNT(&at);
}

static void where_there_is_room_all_are_free(void **state)
{
	(void)state;
	cpu_set_t all = mine();
	int n = CPU_COUNT(&all);
	if (!ww_wait_is_measured() || n < 2 || n > 200)
		skip();
	assert_int_equal(places_after_call(n - 1), n); /* there is room: the kernel may move them */
}

static void who_computes_gets_a_processor_of_its_own(void **state)
{
	(void)state;
	cpu_set_t all = mine(), at, seen;
	int n = CPU_COUNT(&all);
	if (!ww_wait_is_measured() || n < 2 || n > 200)
		skip();
	/* Threads of this process, looked at by itself: they live from begin to end, as a pool's do. */
	pthread_t ids[256];
	struct ww_timed_call *c = ww_timed_call_begin(getpid());
	for (int i = 0; i < n - 1; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, compute_and_stay, NULL), 0);
	struct timespec used, now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while ((now.tv_sec - used.tv_sec) * 1000000000 + now.tv_nsec - used.tv_nsec < 20000000);
	for (int i = 0; i < 60000 && atomic_load(&computed) < n - 1; i++)
		usleep(1000);
	(void)ww_timed_call_end(c);
	CPU_ZERO(&seen);
	for (int i = 0; i < n; i++) {
		pthread_t id = i < n - 1 ? ids[i] : pthread_self();
		assert_int_equal(pthread_getaffinity_np(id, sizeof(at), &at), 0);
		assert_int_equal(CPU_COUNT(&at), 1);
		CPU_OR(&seen, &seen, &at);
	}
	assert_true(CPU_EQUAL(&seen, &all));
	atomic_store(&over, 1);
	for (int i = 0; i < n - 1; i++)
		pthread_join(ids[i], NULL);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* Asleep is a process without a thread that runs or was stopped; a thread that has ended, or a process, counts as
 * asleep. */
static void a_process_is_asleep_when_all_its_threads_are(void **state)
{
	(void)state;
	pid_t sleeper = fork();
	if (sleeper == 0)
		for (;;)
			pause();
	uint64_t until = ww_now_ns() + 1000000000;
	while (!ww_threads_asleep(sleeper) && ww_now_ns() < until)
		;
	assert_true(ww_threads_asleep(sleeper));
	assert_false(ww_threads_asleep(getpid()));
	kill(sleeper, SIGSTOP);
	waitpid(sleeper, NULL, WUNTRACED);
	assert_false(ww_threads_asleep(sleeper));
	kill(sleeper, SIGKILL);
	siginfo_t ended;
	waitid(P_PID, (id_t)sleeper, &ended, WEXITED | WNOWAIT);
	assert_true(ww_threads_asleep(sleeper)); /* not reaped yet */
	waitpid(sleeper, NULL, 0);
	assert_true(ww_threads_asleep(sleeper));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(who_shares_a_processor_waits),
		cmocka_unit_test(who_sleeps_does_not), cmocka_unit_test(where_there_is_room_all_are_free),
		cmocka_unit_test(who_computes_gets_a_processor_of_its_own),
		cmocka_unit_test(a_process_is_asleep_when_all_its_threads_are) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
