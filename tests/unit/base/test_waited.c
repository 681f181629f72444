/* What a process waits for processors is counted, to it and not to others. */
#include "unit.h"

#include "base/time.h"
#include "base/waited.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* On one processor with its twin: each waits while the other runs. */
static pid_t spin_on_one(void)
{
	cpu_set_t one, mine;
	pid_t pid = fork();
	if (pid == 0) {
		alarm(20);
		CPU_ZERO(&one);
		sched_getaffinity(0, sizeof(mine), &mine);
		for (int i = 0; i < CPU_SETSIZE; i++)
			if (CPU_ISSET(i, &mine)) {
				CPU_SET(i, &one);
				break;
			}
		sched_setaffinity(0, sizeof(one), &one);
		for (volatile unsigned i = 0;; i++)
			;
	}
	assert_true(pid > 0);
	return pid;
}

static void who_shares_a_processor_waits(void **state)
{
	(void)state;
	if (!ww_waited_known())
		skip();
	pid_t pids[2] = { spin_on_one(), spin_on_one() };
	uint64_t start = ww_now_ns(), before[2] = { ww_waited_ns(pids[0]), ww_waited_ns(pids[1]) };
	while (ww_seconds_since(start) < 0.6)
		usleep(10000);
	double us[2] = { ww_waited_us_since(pids[0], before[0]), ww_waited_us_since(pids[1], before[1]) };
	for (int i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	assert_true(us[0] + us[1] > 300000);	/* 600 ms, less what it takes to start */
}

static void who_sleeps_does_not(void **state)
{
	(void)state;
	if (!ww_waited_known())
		skip();
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	usleep(50000);
	uint64_t before = ww_waited_ns(pid);
	usleep(100000);
	assert_true(ww_waited_us_since(pid, before) == 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(ww_waited_ns(pid) == 0);
	assert_true(ww_waited_us_since(pid, 1000) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(who_shares_a_processor_waits), cmocka_unit_test(who_sleeps_does_not) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
