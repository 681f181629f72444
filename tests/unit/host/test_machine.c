/* What the machine leaves for more processes, by files that are made up. */
#include "unit.h"

#include "base/fs.h"
#include "host/machine.h"

#include <limits.h>
#include <unistd.h>

static char top[] = "/tmp/ww_test_machine_XXXXXX";

static void put(const char *dir, const char *file, const char *text)
{
	char path[256];
	struct ww_err err = WW_ERR_INIT;
	snprintf(path, sizeof(path), "%s/%s", top, dir);
	assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
	snprintf(path, sizeof(path), "%s/%s/%s", top, dir, file);
	assert_int_equal(ww_fs_write(path, text, strlen(text), &err), WW_OK);
}

static void tasks_that_are_left(void **state)
{
	(void)state;
	assert_true(ww_host_tasks_left(top) == LONG_MAX); /* nothing says */
	put("proc/sys/kernel", "threads-max", "1000\n");
	put("proc", "loadavg", "1.20 0.80 0.50 3/400 4711\n");
	assert_int_equal(ww_host_tasks_left(top), 600);
	put("sys/fs/cgroup", "pids.max", "max\n");
	put("sys/fs/cgroup", "pids.current", "90\n");
	assert_int_equal(ww_host_tasks_left(top), 600);
	put("sys/fs/cgroup", "pids.max", "100\n");
	assert_int_equal(ww_host_tasks_left(top), 10);
	put("sys/fs/cgroup", "pids.current", "120\n");
	assert_int_equal(ww_host_tasks_left(top), 0);
	assert_true(ww_host_tasks_left("") > 0 && ww_host_cores() > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(tasks_that_are_left) };
	char command[64];
	if (!mkdtemp(top))
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(command, sizeof(command), "rm -rf '%s'", top);
	return system(command) ? 1 : failed;
}
