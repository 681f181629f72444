/* Private directories: made, removed, and swept away when their owner was killed. */
#include "unit.h"

#include "base/fs.h"
#include "base/tmpdir.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char area[] = "/tmp/ww-test-tmpdir-XXXXXX";

static void join(char *out, const char *name)
{
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_fs_join(out, area, name, &err), WW_OK);
}

/* A process that makes a directory with a file in it and dies where it stands; its path into out. */
static void leave_one(const char *name, char *out)
{
	int p[2];
	assert_int_equal(pipe(p), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct ww_tmpdir t;
		struct ww_err err = WW_ERR_INIT;
		char file[PATH_MAX];
		if (ww_tmpdir_new(&t, name, &err) != WW_OK || ww_fs_join(file, t.path, "file", &err) != WW_OK ||
			ww_fs_write(file, "x", 1, &err) != WW_OK || write(p[1], t.path, sizeof(t.path)) != sizeof(t.path))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_fd_read(p[0], out, PATH_MAX, 0, &err), WW_OK);
	waitpid(pid, NULL, 0);
	close(p[0]), close(p[1]);
}

static void a_killed_owners_directory_goes_with_the_next(void **state)
{
	(void)state;
	struct ww_tmpdir mine, next, other;
	struct ww_err err = WW_ERR_INIT;
	char left[PATH_MAX], foreign[PATH_MAX], user[PATH_MAX];
	struct stat st;

	assert_int_equal(ww_tmpdir_new(&mine, "some", &err), WW_OK);
	assert_int_equal(stat(mine.path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	join(foreign, "warpwright-some-longer-name");
	join(user, "warpwright-mine-abcdef");
	assert_int_equal(mkdir(foreign, 0700) | mkdir(user, 0700), 0);
	leave_one("some", left);
	assert_true(ww_fs_is_dir(left));
	assert_int_equal(ww_tmpdir_new(&other, "another", &err), WW_OK); /* of another name: touches nothing */
	assert_true(ww_fs_is_dir(left));
	assert_int_equal(ww_tmpdir_new(&next, "some", &err), WW_OK);
	assert_false(ww_fs_is_dir(left));
	assert_true(ww_fs_is_dir(mine.path) && ww_fs_is_dir(next.path) && ww_fs_is_dir(foreign) && ww_fs_is_dir(user));
	ww_tmpdir_remove(&mine);
	ww_tmpdir_remove(&mine);
	ww_tmpdir_remove(&next);
	ww_tmpdir_remove(&other);
	assert_int_equal(rmdir(foreign) | rmdir(user), 0);
	/* One of the program's names goes with whatever starts next. */
	static const char *const names[] = { "sass", "bytecode", "synth" };
	for (size_t i = 0; i < WW_ARRAY_LEN(names); i++) {
		leave_one(names[i], left);
		assert_true(ww_fs_is_dir(left));
		ww_tmpdir_sweep();
		assert_false(ww_fs_is_dir(left));
	}
}

static void no_room_is_an_error(void **state)
{
	(void)state;
	struct ww_tmpdir t;
	struct ww_err err = WW_ERR_INIT;
	char absent[PATH_MAX];
	join(absent, "absent");
	setenv("TMPDIR", absent, 1);
	assert_int_equal(ww_tmpdir_new(&t, "some", &err), WW_ERR_IO);
	assert_non_null(strstr(err.msg, absent));
	ww_tmpdir_remove(&t);
	setenv("TMPDIR", area, 1);
}

static int make_area(void **state)
{
	(void)state;
	return !mkdtemp(area) || setenv("TMPDIR", area, 1) ? -1 : 0;
}

/* Nothing may be left in it. */
static int remove_area(void **state)
{
	(void)state;
	return rmdir(area);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_killed_owners_directory_goes_with_the_next),
		cmocka_unit_test(no_room_is_an_error) };
	return cmocka_run_group_tests(tests, make_area, remove_area);
}
