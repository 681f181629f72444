/* Load by other processes during a measurement is detected and described.  Only this direction can be tested on a
 * machine that is shared: that nothing is noticed where nothing is, nobody can promise here. */
#include "unit.h"

#include "base/fs.h"
#include "base/time.h"
#include "host/pause.h"
#include "judge/load.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t spin(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		alarm(20);
		for (volatile unsigned i = 0;; i++)
			;
	}
	assert_true(pid > 0);
	return pid;
}

static void pass(double seconds)
{
	uint64_t start = ww_now_ns();
	while (ww_seconds_since(start) < seconds)
		usleep(10000);
}

/* As many spinning processes as there are processors take at least a quarter of the machine, whoever else wants some of
 * it. */
static void strangers_are_noticed(void **state)
{
	struct ww_judge j = { .opts.target = WW_TARGET_CPU };
	struct ww_disturbance d;
	struct ww_load l;
	pid_t pids[64];
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	(void)state;
	n = n > 64 ? 64 : n;
	ww_load_start(&l, &j, NULL, 0, 1);
	for (long i = 0; i < n; i++)
		pids[i] = spin();
	pass(0.5);
	ww_load_end(&l, &d);
	for (long i = 0; i < n; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	assert_true(d.noticed && d.certain);
	assert_non_null(strstr(d.why, "other processes used"));
}

/* The same work by a process of ours is none of untrusted: less is left over for others by what it used. */
static void our_own_are_not(void **state)
{
	struct ww_judge j = { .opts.target = WW_TARGET_CPU };
	struct ww_load with, without;
	struct ww_disturbance d;
	int percent_with = 0, percent_without = 0;
	(void)state;
	pid_t pid = spin();
	ww_load_start(&without, &j, NULL, 0, 1);
	ww_load_start(&with, &j, &pid, 1, 1);
	pass(0.5);
	ww_load_end(&without, &d);
	assert_true(d.noticed || sysconf(_SC_NPROCESSORS_ONLN) > 16);
	sscanf(d.why, "other processes used %d%%", &percent_without);
	ww_load_end(&with, &d);
	sscanf(d.why, "other processes used %d%%", &percent_with);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(percent_with < percent_without || sysconf(_SC_NPROCESSORS_ONLN) > 16);
}

/* What a shell's processes use although they should be stopped, those of its children too, is named as theirs. */
static void policies_are_noticed(void **state)
{
	struct ww_judge j = { .opts.target = WW_TARGET_CPU };
	struct ww_err err = WW_ERR_INIT;
	struct ww_disturbance d;
	struct ww_pausable p;
	struct ww_load l;
	int pair[2];
	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_true(ww_load_policies_s(0) == 0);
	assert_int_equal(ww_pausable_add(&p, pair[0], -1, &err), WW_OK);
	pid_t pid = fork();
	if (pid == 0) {
		setsid();
		execl("/bin/sh", "warpwright", "-c", "(while :; do :; done) & kill -STOP $$", "__shell", (char *)NULL);
		_exit(127);
	}
	ww_load_start(&l, &j, NULL, 0, 1);
	pass(0.3);
	ww_load_end(&l, &d);
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(d.policies && d.certain);
	assert_non_null(strstr(d.why, "of a policy's shell used"));
	ww_pausable_remove(&p);
	ww_load_start(&l, &j, NULL, 0, 1);
	ww_load_end(&l, &d);
	assert_false(d.policies);
	close(pair[0]);
	close(pair[1]);
}

/* Without a driver there is nothing to say, and nothing is made up. */
static void no_nvml_no_word(void **state)
{
	struct ww_judge j = { .opts.target = WW_TARGET_CUDA, .facts.uuid = "GPU-none" };
	struct ww_disturbance d;
	struct ww_load l;
	(void)state;
	ww_load_start(&l, &j, NULL, 0, 1);
	ww_load_end(&l, &d);
	assert_false(d.noticed || d.certain || d.why[0]);
}

/* A user's process on the GPU is a stranger, whatever its files are called. */
static void an_exported_operator_is_known_by_an_option(void **state)
{
	(void)state;
	assert_true(ww_load_is_exported("/usr/bin/python3 -s -X " WW_JUDGE_EXPORTED " -X pycache_prefix=/c -c import gc "));
	assert_true(ww_load_is_exported("warpwright __confined /p /d  cuda 0 python3 -s -X " WW_JUDGE_EXPORTED " -c x "));
	assert_false(ww_load_is_exported("python3 /home/me/" WW_JUDGE_EXPORTED "/bench.py "));
	assert_false(ww_load_is_exported("python3 -m " WW_JUDGE_EXPORTED " "));
	assert_false(ww_load_is_exported("python3 -X " WW_JUDGE_EXPORTED "s -c x "));
}

int main(void)
{
	char cache[] = "/tmp/ww-load-XXXXXX"; /* other tests have shells beside this one */
	if (!mkdtemp(cache))
		return 1;
	setenv("XDG_CACHE_HOME", cache, 1);
	const struct CMUnitTest tests[] = { cmocka_unit_test(strangers_are_noticed), cmocka_unit_test(our_own_are_not),
		cmocka_unit_test(policies_are_noticed), cmocka_unit_test(no_nvml_no_word),
		cmocka_unit_test(an_exported_operator_is_known_by_an_option) };
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	struct ww_err ignored = WW_ERR_INIT;
	return ww_fs_remove_tree(cache, &ignored) == WW_OK ? failed : 1;
}
