/* Task files: what is read, what is refused and how. */
#include "unit.h"

#include "task/task.h"

#include <sys/stat.h>
#include <unistd.h>

static char path[] = "/tmp/ww_test_task_XXXXXX";

static void put(const void *bytes, size_t n)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void refused(const char *word)
{
	struct ww_task t;
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_task_load(&t, path, &err), WW_ERR_USAGE);
	if (!strstr(err.msg, word))
		fail_msg("\"%s\" lacks \"%s\"", err.msg, word);
	assert_null(strchr(err.msg, '\n'));
	ww_task_release(&t);
}

static void loads_a_task(void **state)
{
	(void)state;
	struct ww_task t, u;
	struct ww_err err = WW_ERR_INIT;
	const char text[] = "# Grüße\nclass Model: pass\n";
	put(text, sizeof(text) - 1);
	assert_int_equal(ww_task_load(&t, path, &err), WW_OK);
	assert_string_equal(t.source, text);
	assert_int_equal(t.source_bytes, sizeof(text) - 1);
	assert_string_equal(t.path, path);
	assert_string_equal(t.name, strrchr(path, '/') + 1);
	assert_int_equal(strlen(t.id), 64);
	assert_int_equal(ww_task_from_text(&u, "other.py", text, sizeof(text) - 1, &err), WW_OK);
	assert_string_equal(u.id, t.id);
	assert_string_equal(u.name, "other");
	ww_task_release(&u);
	assert_int_equal(ww_task_from_text(&u, "other.py", text, sizeof(text) - 2, &err), WW_OK);
	assert_string_not_equal(u.id, t.id);
	ww_task_release(&u);
	ww_task_release(&t);
}

static void refuses_what_is_no_task(void **state)
{
	(void)state;
	put("", 0);
	refused("empty");
	put(" \n\t\n", 4);
	refused("empty");
	put("x = 1\0y = 2\n", 12);
	refused("UTF-8");
	put("x = '\xff'\n", 8);
	refused("UTF-8");
	put("x = '\xe2\x82", 7);
	refused("UTF-8");
	char *big = malloc(WW_TASK_MAX_BYTES + 1);
	memset(big, '#', WW_TASK_MAX_BYTES + 1);
	put(big, WW_TASK_MAX_BYTES + 1);
	refused("larger");
	put(big, WW_TASK_MAX_BYTES);
	free(big);
	struct ww_task t;
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_task_load(&t, path, &err), WW_OK);
	ww_task_release(&t);
	assert_int_equal(ww_task_load(&t, "/tmp", &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "not a file"));
	assert_int_equal(ww_task_load(&t, "/nowhere/at/all.py", &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "no file"));
}

int main(void)
{
	int fd = mkstemp(path);
	if (fd < 0)
		return 1;
	close(fd);
	const struct CMUnitTest tests[] = { cmocka_unit_test(loads_a_task), cmocka_unit_test(refuses_what_is_no_task) };
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
