/* test_workspace.c - the tree that a policy works in, its limits, and the tools that look at it. */
#include "unit.h"
#include "nobody.h"

#include "agent/tools.h"
#include "base/fs.h"
#include "base/json.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[64];
static struct ww_workspace w;

static const char *at(const char *name)
{
	static char path[2][512];
	static int turn;
	turn = !turn;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
	return path[turn];
}

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/ww-tree-XXXXXX" : "/tmp/ww-tree-XXXXXX");
	return mkdtemp(dir) && ww_fs_write(at("secret"), "secret", 6, &err) == WW_OK &&
			ww_workspace_open(&w, at("workspace"), WW_TARGET_CPU, 0, &err) == WW_OK
		? 0
		: -1;
}

static int teardown(void **state)
{
	struct ww_err err;
	(void)state;
	ww_workspace_close(&w);
	return ww_fs_remove_tree(dir, &err);
}

/* Processor time of this thread: what a call costs, however much of the machine others have. */
static double spent_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The answer's text, valid to the next call; `kind`: 'o' an answer, 'e' an error, 'm' a malformed call. */
static const char *call(const char *name, const char *args, char kind)
{
	static char text[64 << 10];
	struct ww_err err = WW_ERR_INIT;
	struct ww_tool_result r;
	struct ww_tool_env env = { .workspace = &w };
	struct ww_tool_call c = { (char *)"id", (char *)(uintptr_t)name, (char *)(uintptr_t)args };
	assert_int_equal(ww_tools_call(&env, &c, &r, &err), WW_OK);
	snprintf(text, sizeof(text), "%s", r.text.p);
	if ((kind != 'o') != r.is_error || (kind == 'm') != r.malformed)
		fail_msg("%s %s: %s", name, args, text);
	assert_true(r.text.len <= WW_TOOL_TEXT_MAX_BYTES + 1024);
	ww_tool_result_release(&r);
	return text;
}

static void write_file(const char *path, const char *text, char kind)
{
	char args[2048];
	snprintf(args, sizeof(args), "{\"path\":\"%s\",\"text\":\"%s\"}", path, text);
	call("write", args, kind);
}

static const char *read_file(const char *path, char kind)
{
	char args[2048];
	snprintf(args, sizeof(args), "{\"path\":\"%s\"}", path);
	return call("read", args, kind);
}

static void expect(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void test_tree(void **state)
{
	(void)state;
	write_file("notes/day/one.md", "first", 'o');
	write_file("notes/two.md", "second", 'o');
	write_file("kernels.c", "k", 'o');
	assert_string_equal(read_file("notes/day/one.md", 'o'), "first");
	assert_string_equal(call("glob", "{\"pattern\":\"**\"}", 'o'),
		"kernels.c (1 bytes)\nnotes/\nnotes/day/\nnotes/day/one.md (5 bytes)\nnotes/two.md (6 bytes)\n5 of 5");
	expect(call("glob", "{\"pattern\":\"*.md\"}", 'o'), "2 of 5");
	expect(call("glob", "{\"pattern\":\"notes/*\"}", 'o'), "2 of 5");
	expect(call("glob", "{\"pattern\":\"**/one.?d\"}", 'o'), "1 of 5");
	expect(call("glob", "{\"pattern\":\"notes/**/*.md\"}", 'o'), "2 of 5");
	expect(call("glob", "{\"pattern\":\"notes/**/three\"}", 'o'), "no file or folder");
	expect(read_file("notes", 'e'), "is a folder");
	write_file("notes", "x", 'e');
	write_file("kernels.c/x", "x", 'e');
	expect(read_file("nothing", 'e'), "does not exist");
}

static void test_paths(void **state)
{
	static const char *const bad[] = { "", "/etc/passwd", "..", "../secret", "a/../../secret", "a/./b", "a//b", "a/",
		".hidden", "a/.git/config", "skill", "skill/x", "a\\\\b", "a\\nb", "a\\tb", "\\u00e4", "1/2/3/4/5/6/7/8/9" };
	char longest[600] = "";
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++)
		write_file(bad[i], "x", 'm');
	memset(longest, 'a', WW_WORKSPACE_PATH_BYTES + 1);
	write_file(longest, "x", 'm');
	write_file("1/2/3/4/5/6/7/8", "deep", 'o');
	assert_string_equal(read_file("1/2/3/4/5/6/7/8", 'o'), "deep");
	write_file("skills/x", "another name", 'o');
}

/* What bash or a neighbour might put there: each is refused where it is read, replaced or left where it is written. */
static void test_odd_files(void **state)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct ww_workspace_content c;
	struct ww_err err = WW_ERR_INIT;
	const char *missing;
	(void)state;
	write_file("in/plain", "x", 'o');
	assert_int_equal(symlink("../secret", at("workspace/link")), 0);
	assert_int_equal(symlink("..", at("workspace/up")), 0);
	assert_int_equal(symlink("/proc/self/fd", at("workspace/fds")), 0);
	assert_int_equal(mkfifo(at("workspace/pipe"), 0600), 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", at("workspace/sock"));
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
	static const char *const odd[] = { "link", "up/secret", "fds/0", "pipe", "sock" };
	for (size_t i = 0; i < WW_ARRAY_LEN(odd); i++)
		assert_null(strstr(read_file(odd[i], 'e'), "secret\n"));
	write_file("up/secret", "overwritten", 'e');
	write_file("up/new", "x", 'e');
	assert_int_equal(access(at("new"), F_OK), -1);
	expect(call("glob", "{\"pattern\":\"**\"}", 'o'), "2 of 2");
	expect(call("grep", "{\"pattern\":\"secret\"}", 'o'), "0 lines match in 0 files");
	assert_int_equal(symlink("../secret", at("workspace/kernels.c")), 0);
	write_file("plan.c", "p", 'o');
	ww_workspace_content_init(&c);
	assert_int_equal(ww_workspace_take(&w, &c, &missing, &err), WW_OK);
	assert_string_equal(missing, "kernels.c");
	write_file("kernels.c", "k", 'o'); /* the link goes, what it led to stays */
	assert_int_equal(ww_workspace_take(&w, &c, &missing, &err), WW_OK);
	assert_null(missing);
	assert_string_equal(c.files.device.p, "k");
	assert_int_equal(ww_fs_write(at("workspace/plan.c"), "a\0b", 3, &err), WW_OK);
	assert_int_equal(ww_workspace_take(&w, &c, &missing, &err), WW_OK);
	assert_string_equal(missing, "plan.c");
	assert_int_equal(ww_fs_write(at("workspace/plan.c"), "\xff\xfe", 2, &err), WW_OK);
	assert_int_equal(ww_workspace_take(&w, &c, &missing, &err), WW_OK);
	assert_string_equal(missing, "plan.c");
	ww_workspace_content_release(&c);
	close(s);
	struct ww_str text = WW_STR_INIT(64);
	assert_int_equal(ww_fs_read(at("secret"), 64, &text, &err), WW_OK);
	assert_string_equal(text.p, "secret");
	ww_str_release(&text);
}

/* A write lease: who opens the file waits, or gets EAGAIN. */
static pid_t leased(const char *path)
{
	int p[2];
	char c;
	assert_int_equal(pipe(p), 0);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(path, O_RDWR);
		signal(SIGIO, SIG_IGN);
		if (fd >= 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0 && write(p[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(p[1]);
	ssize_t n = read(p[0], &c, 1);
	close(p[0]);
	if (n == 1)
		return pid;
	waitpid(pid, NULL, 0); /* a file system without leases */
	return 0;
}

/* Whatever a policy has done to its files: an answer, never an error of ours (call() asserts that). */
static void test_files_that_fail(void **state)
{
	struct ww_workspace_content c;
	struct ww_err err = WW_ERR_INIT;
	struct ww_str text = WW_STR_INIT(64);
	const char *missing;
	(void)state;
	write_file("leased", "x", 'o');
	pid_t holder = leased(at("workspace/leased"));
	if (holder) {
		expect(read_file("leased", 'e'), "in use by another process");
		assert_int_equal(ww_fs_read(at("workspace/leased"), 64, &text, &err), WW_ERR_USAGE);
		kill(holder, SIGKILL);
		waitpid(holder, NULL, 0);
	}
	write_file("sparse", "x", 'o');
	assert_int_equal(truncate(at("workspace/sparse"), 1ll << 40), 0);
	expect(read_file("sparse", 'e'), "larger than");
	assert_int_equal(unlink(at("workspace/sparse")), 0);
	assert_int_equal(mkdir(at("workspace/folder"), 0700), 0);
	expect(read_file("folder", 'e'), "is a folder");
	write_file("folder", "x", 'e');
	assert_int_equal(ww_workspace_remove(&w, "folder", &err), WW_OK);
	assert_int_equal(mkdir(at("workspace/.new"), 0700), 0); /* where a new file is written first */
	write_file("fresh", "x", 'e');
	assert_int_equal(rmdir(at("workspace/.new")), 0);
	assert_int_equal(symlink("circle", at("workspace/circle")), 0);
	read_file("circle", 'e');
	assert_int_equal(ww_workspace_remove(&w, "circle/x", &err), WW_OK);
	assert_int_equal(ww_fs_read(at("workspace/circle"), 64, &text, &err), WW_ERR_USAGE);
	write_file("shut", "x", 'o');
	assert_int_equal(chmod(at("workspace/shut"), 0), 0);
	if (geteuid() != 0)
		expect(read_file("shut", 'e'), "that can be opened");
	else if (mknod(at("workspace/device"), S_IFCHR | 0600, makedev(1, 5)) == 0) /* /dev/zero */
		expect(read_file("device", 'e'), "not a regular file");
	assert_int_equal(chmod(at("workspace"), 0), 0);
	expect(call("glob", "{\"pattern\":\"x\"}", 'o'), "no file or folder");
	assert_int_equal(chmod(at("workspace"), 0700), 0);
	assert_int_equal(mkdir(at("workspace/kernels.c"), 0700), 0);
	write_file("plan.c", "p", 'o');
	ww_workspace_content_init(&c);
	assert_int_equal(ww_workspace_take(&w, &c, &missing, &err), WW_OK);
	assert_string_equal(missing, "kernels.c");
	ww_workspace_content_release(&c);
	ww_str_release(&text);
}

/* A folder and a link to the outside change places as fast as they can, until reads and writes have met either. */
static volatile int racing, exchanges;
static void *race(void *unused)
{
	char a[512], b[512];
	snprintf(a, sizeof(a), "%s/workspace/f", dir);
	snprintf(b, sizeof(b), "%s/workspace/g", dir);
	while (racing)
		exchanges += renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
	return unused;
}

static void test_races(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	pthread_t t;
	int calls = 0, seen = 0, written = 0;
	(void)state;
	assert_int_equal(mkdir(at("outside"), 0700), 0);
	assert_int_equal(ww_fs_write(at("outside/x"), "secret", 6, &err), WW_OK);
	write_file("f/x", "mine", 'o');
	assert_int_equal(symlink("../outside", at("workspace/g")), 0);
	racing = 1;
	assert_int_equal(pthread_create(&t, NULL, race, NULL), 0);
	while (calls < 4000 || ((!seen || seen == calls || !written || written == calls) && calls < 4000000)) {
		struct ww_str text = WW_STR_INIT(64), why = WW_STR_INIT(512);
		int found;
		assert_int_equal(ww_workspace_read(&w, "f/x", &text, &found, &why, &err), WW_OK);
		assert_true(!found || !strcmp(text.p, "mine"));
		seen += found;
		ww_str_reset(&why);
		assert_int_equal(ww_workspace_write(&w, "f/new", "n", 1, &why, &err), WW_OK);
		written += !why.len;
		calls++;
		ww_str_release(&text);
		ww_str_release(&why);
	}
	racing = 0;
	pthread_join(t, NULL);
	assert_true(exchanges > 0 && seen > 0 && seen < calls && written > 0 && written < calls);
	assert_int_equal(access(at("outside/new"), F_OK), -1);
}

static void test_limits(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str why = WW_STR_INIT(512);
	static char big[WW_WORKSPACE_FILE_BYTES + 1];
	char name[32];
	(void)state;
	memset(big, 'a', sizeof(big));
	assert_int_equal(ww_workspace_write(&w, "big", big, sizeof(big), &why, &err), WW_OK);
	expect(why.p, "may have at most 1048576");
	for (int i = 0; i < 16; i++) {
		ww_str_reset(&why);
		snprintf(name, sizeof(name), "big%d", i);
		assert_int_equal(ww_workspace_write(&w, name, big, sizeof(big) - 1, &why, &err), WW_OK);
		assert_int_equal(why.len, 0);
	}
	assert_int_equal(ww_workspace_write(&w, "more", "x", 1, &why, &err), WW_OK);
	expect(why.p, "may hold 16777216");
	ww_str_reset(&why);
	assert_int_equal(ww_workspace_write(&w, "big3", "x", 1, &why, &err), WW_OK); /* a smaller one in its place */
	assert_int_equal(why.len, 0);
	ww_str_release(&why);
	for (int i = 16; i < WW_WORKSPACE_ENTRIES - 1; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		write_file(name, "x", 'o');
	}
	write_file("folder/last", "x", 'e'); /* two entries where one is left */
	assert_int_equal(access(at("workspace/folder"), F_OK), -1);
	write_file("last", "x", 'o');
	write_file("last", "again", 'o');
	write_file("beyond", "x", 'e');
}

static void test_edits(void **state)
{
	(void)state;
	write_file("a.c", "one two two three", 'o');
	call("edit", "{\"path\":\"a.c\",\"old\":\"two\",\"new\":\"2\"}", 'e');
	call("edit", "{\"path\":\"a.c\",\"old\":\"two\",\"new\":\"2\",\"all\":true}", 'o');
	assert_string_equal(read_file("a.c", 'o'), "one 2 2 three");
	call("edit", "{\"path\":\"a.c\",\"old\":\"\",\"new\":\"2\"}", 'e');
	expect(call("multi_edit",
			   "{\"path\":\"a.c\",\"edits\":[{\"old\":\"one\",\"new\":\"1\"},{\"old\":\"four\",\"new\":\"4\"}]}", 'e'),
		"edit 2:");
	assert_string_equal(read_file("a.c", 'o'), "one 2 2 three");
	call("multi_edit", "{\"path\":\"a.c\",\"edits\":[{\"old\":\"one\",\"new\":\"1\"},{\"old\":\"1 2\",\"new\":\"x\"}]}",
		'o');
	assert_string_equal(read_file("a.c", 'o'), "x 2 three");
	call("multi_edit", "{\"path\":\"a.c\",\"edits\":[]}", 'm');
	call("multi_edit", "{\"path\":\"a.c\",\"edits\":[1]}", 'm');
	call("multi_edit", "{\"path\":\"a.c\",\"edits\":{}}", 'm');
	expect(call("multi_edit", "{\"path\":\"a.c\",\"edits\":[{\"old\":\"x\"}]}", 'm'),
		"argument \"edits[0].new\" is missing; it must be string");
	call("multi_edit", "{\"path\":\"a.c\",\"edits\":[{\"old\":\"x\",\"new\":\"y\",\"else\":1}]}", 'm');
}

static void test_grep(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str long_line = WW_STR_INIT(1 << 20);
	(void)state;
	write_file("a.c", "one\\ntwo\\nthree\\nfour\\nfive\\n", 'o');
	write_file("b/c.md", "Two again\\n", 'o');
	assert_string_equal(call("grep", "{\"pattern\":\"^t\"}", 'o'), "a.c:2:two\na.c:3:three\n2 lines match in 1 files");
	assert_string_equal(call("grep", "{\"pattern\":\"two\",\"ignore_case\":true,\"files\":\"*.md\"}", 'o'),
		"b/c.md:1:Two again\n1 lines match in 1 files");
	assert_string_equal(call("grep", "{\"pattern\":\"o(ne|ur)\",\"context\":1}", 'o'),
		"a.c:1:one\na.c-2-two\na.c-3-three\na.c:4:four\na.c-5-five\n2 lines match in 1 files");
	expect(call("grep", "{\"pattern\":\"(\"}", 'm'), "not valid");
	call("grep", "{\"pattern\":\"x\",\"context\":-1}", 'm');
	for (int i = 0; i < 40000; i++)
		ww_str_addc(&long_line, 'a');
	assert_int_equal(ww_fs_write(at("workspace/long"), long_line.p, long_line.len, &err), WW_OK);
	double began = spent_s();
	expect(call("grep", "{\"pattern\":\"^(a+)+[bc]$\"}", 'e'), "takes too long");
	assert_true(spent_s() - began < 3);
	began = spent_s(); /* each place of the line is cheap enough by itself */
	expect(call("grep", "{\"pattern\":\"[ab]{0,20000}[bcd]\"}", 'e'), "takes too long");
	assert_true(spent_s() - began < 4);
	assert_true(strlen(call("grep", "{\"pattern\":\"aaa\"}", 'o')) < 1024);
	for (size_t i = 0; i < long_line.len; i += 4)
		long_line.p[i] = '\n';
	assert_int_equal(ww_fs_write(at("workspace/long"), long_line.p, long_line.len, &err), WW_OK);
	const char *many = call("grep", "{\"pattern\":\"aaa\"}", 'o');
	expect(many, "long:2:aaa\n");
	expect(many, "bytes cut");
	expect(many, "long:10001:aaa\n10000 lines match in 1 files");
	began = spent_s();
	call("glob", "{\"pattern\":\"**/*a*a*a*a*a*a*a*a*b/**/*a*a*a*a*b/**/b\"}", 'o');
	assert_true(spent_s() - began < 1);
	ww_str_release(&long_line);
}

static void test_todo(void **state)
{
	(void)state;
	assert_string_equal(
		call("todo",
			"{\"items\":[{\"text\":\"measure\",\"state\":\"done\"},{\"text\":\"fuse\\nit\",\"state\":\"doing\"},"
			"{\"text\":\"tile\",\"state\":\"open\"}]}",
			'o'),
		"[x] measure\n[>] fuse\n[ ] tile\n2 of 3 to do");
	call("todo", "{\"items\":[{\"text\":\"measure\",\"state\":\"later\"}]}", 'm');
	call("todo", "{\"items\":[{\"text\":\"measure\"}]}", 'm');
	call("todo", "{}", 'm');
}

static void test_opening(void **state)
{
	struct ww_workspace other;
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	write_file("kept/file", "x", 'o');
	assert_int_equal(ww_workspace_open(&other, at("workspace"), WW_TARGET_CPU, 0, &err), WW_ERR_USAGE);
	assert_string_equal(read_file("kept/file", 'o'), "x");
	assert_int_equal(ww_workspace_open(&other, at("workspace"), WW_TARGET_CPU, 1, &err), WW_OK);
	assert_int_equal(access(at("workspace/kept"), F_OK), -1);
	ww_workspace_close(&other);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static int all(void)
{
	const struct CMUnitTest tests[] = { T(test_tree), T(test_paths), T(test_odd_files), T(test_files_that_fail),
		T(test_races), T(test_limits), T(test_edits), T(test_grep), T(test_todo), T(test_opening) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What depends on the permissions of files. */
static int of_files(void)
{
	const struct CMUnitTest tests[] = { T(test_tree), T(test_odd_files), T(test_files_that_fail), T(test_opening) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	int failed = all();
	return failed + unit_as_nobody(of_files, "/bin/sh");
}
