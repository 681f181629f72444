/* test_shell.c - the shell of a policy: honest work, and 77 ways out of its sandbox (escape.inc).
 *
 * and 29 processes that try to compute while something is measured (busy.inc).  Each attempt is first made outside
 * where that proves that it can succeed at all, which is the case for those that need nothing but an ordinary process;
 * then inside, where none may.  budget: 6 CPU-seconds
 */
#include "unit.h"
#include "nobody.h"

#include "agent/tools.h"
#include "base/json.h"
#include "base/fs.h"
#include "base/time.h"
#include "host/lease.h"
#include "judge/load.h"
#include "sandbox/sandbox.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ATTEMPTS = 76 };

static char dir[64], program[128];
static struct ww_shell shell;
static struct ww_workspace *tree = &shell.tree;

static int setup(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	strcpy(dir, "/tmp/ww-shell-XXXXXX");
	setenv("OPENAI_API_KEY", "secret-key", 1);
	ww_shell_init(&shell);
	if (!mkdtemp(dir) || ww_shell_open(&shell, WW_TARGET_CPU, &err) != WW_OK) {
		fprintf(stderr, "%s\n", err.msg);
		return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	struct ww_err err;
	(void)state;
	ww_shell_close(&shell);
	return ww_fs_remove_tree(dir, &err);
}

static const char *run(const char *command, int expected_code)
{
	static char text[64 << 10];
	struct ww_err err = WW_ERR_INIT;
	struct ww_shell_answer a;
	enum ww_rc rc = ww_shell_run(&shell, command, 30, &a, &err);
	if (rc != WW_OK)
		fail_msg("%.200s: %s", command, err.msg);
	snprintf(text, sizeof(text), "%s", a.out.p);
	if (a.timed_out || !WIFEXITED(a.status) || WEXITSTATUS(a.status) != expected_code)
		fail_msg("%.200s: status %x%s\n%s", command, a.status, a.timed_out ? ", timed out" : "", text);
	ww_shell_answer_release(&a);
	return text;
}

static void test_work(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_shell_answer a;
	(void)state;
	assert_string_equal(run("echo one | tr a-z A-Z; pwd", 0), "ONE\n/workspace\n");
	run("mkdir -p a/b && cd a/b && export X='two words' && f() { exit 3; }; false || true", 0);
	assert_string_equal(run("pwd; echo \"$X\"; cat <<EOF\nhere\nEOF", 0), "/workspace/a/b\ntwo words\nhere\n");
	run("exit 7", 7);
	assert_string_equal(run("pwd", 0), "/workspace/a/b\n");
	assert_string_equal(run("echo 'int main(void){return 5;}' > x.c && cc -o x x.c && ./x; echo $?", 0), "5\n");
	const char *many = run("seq 1 100000", 0);
	assert_non_null(strstr(many, "bytes cut"));
	assert_true(!strncmp(many, "1\n2\n", 4) && strstr(many, "\n100000\n"));
	assert_int_equal(ww_shell_run(&shell, "echo begun; sleep 60", 0.3, &a, &err), WW_OK);
	assert_true(a.timed_out);
	assert_string_equal(a.out.p, "begun\n");
	ww_shell_answer_release(&a);
	assert_int_equal(ww_shell_start(&shell, "echo started; sleep 60", &a, &err), WW_OK);
	assert_true(a.running);
	ww_shell_answer_release(&a);
	unsigned id = shell.last_id;
	for (int i = 0, seen = 0; i < 200 && !seen; i++, usleep(10000)) {
		assert_int_equal(ww_shell_look(&shell, id, &a, &err), WW_OK);
		assert_true(a.exists && a.running);
		seen = !strcmp(a.out.p, "started\n");
		ww_shell_answer_release(&a);
		assert_true(seen || i < 199);
	}
	assert_int_equal(ww_shell_kill(&shell, id, &a, &err), WW_OK);
	assert_true(a.exists && !a.running && WIFSIGNALED(a.status));
	ww_shell_answer_release(&a);
	assert_int_equal(ww_shell_look(&shell, id, &a, &err), WW_OK);
	assert_false(a.exists);
	ww_shell_answer_release(&a);
}

static void put_file(struct ww_shell *s, const char *name, const char *source)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str text = WW_STR_INIT(1 << 20), why = WW_STR_INIT(512);
	char path[512];
	snprintf(path, sizeof(path), "%s/tests/unit/agent/%s", getenv("WARPWRIGHT_HOME"), source);
	assert_int_equal(ww_fs_read(path, 1 << 20, &text, &err), WW_OK);
	assert_int_equal(ww_shell_put(s, name, text.p, text.len, &why, &err), WW_OK);
	assert_int_equal(why.len, 0);
	ww_str_release(&text);
	ww_str_release(&why);
}

/* The attempts that an ordinary process outside can make must succeed there, or they prove nothing inside. */
static void check_outside(const char *secret)
{
	static const int plain[] = { 1, 3, 7, 8, 10, 11, 12, 41, 42, 43, 47, 48, 49, 52, 61, 76 };
	for (size_t i = 0; i < WW_ARRAY_LEN(plain); i++) {
		char line[512];
		snprintf(line, sizeof(line), "%s %d %s >/dev/null 2>&1", program, plain[i], secret);
		int status = system(line);
		if (status != 0)
			fail_msg("attempt %d does not succeed outside either (%x)", plain[i], status);
	}
}

static void test_escapes(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	char path[512], line[1024], secret[128];
	int held = 0;
	(void)state;
	snprintf(path, sizeof(path), "%s/tests/unit/agent/escape.inc", getenv("WARPWRIGHT_HOME"));
	snprintf(secret, sizeof(secret), "%s/secret", dir);
	assert_int_equal(ww_fs_write(secret, "secret", 6, &err), WW_OK);
	snprintf(program, sizeof(program), "%s/escape", dir);
	snprintf(line, sizeof(line), "cc -x c -w -O0 -o %s %s -lrt", program, path);
	assert_int_equal(system(line), 0);
	check_outside(secret);
	put_file(&shell, "escape.c", "escape.inc");
	run("cc -w -O0 -o escape escape.c -lrt", 0);
	snprintf(line, sizeof(line),
		"for n in $(seq 1 %d); do case $n in 31|32) a=%d;; 56) a=secret-key;; *) a=%s;; esac; "
		"./escape $n $a >/dev/null 2>&1; echo \"$n=$?\"; done 2>/dev/null",
		ATTEMPTS, (int)getpid(), secret);
	const char *out = run(line, 0);
	for (int n = 1; n <= ATTEMPTS; n++) {
		char want[16];
		snprintf(want, sizeof(want), "%s%d=", n > 1 ? "\n" : "", n);
		const char *at = strstr(out, want);
		int code = at ? atoi(at + strlen(want)) : -1;
		/* 1: it was refused; else the filter or the limit on a file's size killed it.  Anything else was no attempt. */
		if (code != 1 && code != 128 + SIGSYS && code != 128 + SIGXFSZ)
			fail_msg("attempt %d ended with %d", n, code);
		held++;
	}
	struct ww_shell_answer a;
	assert_int_equal(ww_shell_run(&shell, "./escape 77; sleep 30", 30, &a, &err), WW_OK);
	assert_true(!a.timed_out && WIFSIGNALED(a.status) && WTERMSIG(a.status) == SIGKILL);
	ww_shell_answer_release(&a);
	printf("%d attempts held\n", held + 1);
	/* Process 1 cannot be killed from inside, links lead nowhere, and honest work goes on beside all of it. */
	run("kill -9 1; kill -STOP 1; echo still here", 0);
	run("ln -sf /etc/passwd kernels.c; ln -sf . plan.c; mkfifo pipe; true", 0);
	struct ww_workspace_content c;
	const char *missing;
	ww_workspace_content_init(&c);
	assert_int_equal(ww_workspace_take(tree, &c, &missing, &err), WW_OK);
	assert_string_equal(missing, "kernels.c");
	ww_workspace_content_release(&c);
	assert_string_equal(run("sort <<<$'b\\na'", 0), "a\nb\n");
}

/* ---- Measurements ------------------------------------------------------------------------------------------------ */

static double used_in(unsigned ms)
{
	double before = ww_load_policies_s(getpid());
	usleep(ms * 1000);
	return ww_load_policies_s(getpid()) - before;
}

/* Until what spins has used `s` seconds; a measurement of another process stops it for seconds. */
static void wait_until_used(double s)
{
	double before = ww_load_policies_s(getpid());
	for (int i = 0; i < 3000 && ww_load_policies_s(getpid()) - before <= s; i++)
		usleep(20000);
	assert_true(ww_load_policies_s(getpid()) - before > s);
}

static void *hold_a_while(void *unused)
{
	struct ww_lease l = WW_LEASE_INIT;
	struct ww_err err = WW_ERR_INIT;
	usleep(200000);
	if (ww_lease_take(&l, "test-shell", NULL, &err) == WW_OK)
		usleep(900000);
	ww_lease_drop(&l);
	return unused;
}

/* Whatever a policy started, in this shell or in another, computes nothing while a lease is held, and goes on after it:
 * a command that is stopped for longer than its time limit ends in time, and loses nothing. */
static void test_measurements(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_shell_answer a;
	struct ww_shell other;
	struct ww_lease l = WW_LEASE_INIT;
	(void)state;
	ww_shell_init(&other);
	assert_int_equal(ww_shell_open(&other, WW_TARGET_CPU, &err), WW_OK);
	assert_int_equal(ww_shell_start(&other, "while :; do :; done", &a, &err), WW_OK);
	ww_shell_answer_release(&a);
	put_file(&shell, "busy.c", "busy.inc");
	run("cc -w -O1 -o busy busy.c -lpthread", 0);
	assert_int_equal(ww_shell_start(&shell, "while sleep 0.02; do echo more; done", &a, &err), WW_OK);
	unsigned honest = shell.last_id;
	ww_shell_answer_release(&a);
	run("for n in $(seq 1 25) 100 101 104 108; do setsid ./busy $n >/dev/null 2>&1 & done; sleep 0.3", 0);
	wait_until_used(0.2);
	for (int i = 0; i < 3; i++) {
		uint64_t start = ww_now_ns();
		assert_int_equal(ww_lease_take(&l, "test-shell", NULL, &err), WW_OK);
		double waited_s = ww_seconds_since(start), used_s = used_in(400);
		ww_lease_drop(&l);
		printf("stopped after %.3f s; %.3f s of processor time in 0.4 s\n", waited_s, used_s);
		assert_true(used_s < 0.015 && waited_s < 3);
		wait_until_used(0.1);
	}
	ww_shell_close(&other);
	pthread_t t;
	pthread_create(&t, NULL, hold_a_while, NULL);
	assert_int_equal(ww_shell_run(&shell, "sleep 0.4; sleep 0.4; echo done", 1.5, &a, &err), WW_OK);
	pthread_join(t, NULL);
	assert_true(!a.timed_out && !strcmp(a.out.p, "done\n"));
	ww_shell_answer_release(&a);
	assert_int_equal(ww_shell_kill(&shell, honest, &a, &err), WW_OK);
	assert_true(a.total >= 5 * 10);
	ww_shell_answer_release(&a);
}

/* ---- The tools --------------------------------------------------------------------------------------------------- */

/* Carries a call out and returns its answer's text; `data` (may be NULL) is what a record would keep of it. */
static const char *call(struct ww_tool_env *env, const char *name, const char *args, int is_error, char **data)
{
	static char text[64 << 10];
	struct ww_err err = WW_ERR_INIT;
	struct ww_tool_result r;
	struct ww_tool_call c = { (char *)"id", (char *)(uintptr_t)name, (char *)(uintptr_t)args };
	assert_int_equal(ww_tools_call(env, &c, &r, &err), WW_OK);
	snprintf(text, sizeof(text), "%s", r.text.p);
	if (r.is_error != is_error)
		fail_msg("%s %s: %s", name, args, text);
	if (data)
		*data = r.data ? json_dumps(r.data, 0) : NULL;
	ww_tool_result_release(&r);
	return text;
}

struct step {
	const char *tool, *args, *part;
};
static const struct step steps[] = { { "write", "{\"path\":\"a/one.txt\",\"text\":\"one\\n\"}", "written" },
	{ "bash", "{\"command\":\"cat a/one.txt; cd a; export V=kept; echo two > two.txt; printf '\\\\000\\\\377' > raw\"}",
		"one\n[exit code 0]" },
	{ "write", "{\"path\":\"a/three.txt\",\"text\":\"three\"}", "written" },
	{ "bash",
		"{\"command\":\"rm one.txt; cat two.txt three.txt; mkdir -p ../gone/deep; echo x > ../gone/deep/x; false\"}",
		"two\nthree\n[exit code 1]" },
	{ "bash", "{\"command\":\"rm -r ../gone; echo $V $PWD\"}", "kept /workspace/a\n[exit code 0]" },
	{ "bash", "{\"command\":\"echo said; sleep 0.2; echo k > ../kernels.c; sleep 60\",\"background\":true}",
		"[job 4 runs]" },
	{ "bash", "{\"command\":\"while ! [ -s ../kernels.c ]; do sleep 0.02; done\"}", "[exit code 0]" },
	{ "bash_output", "{\"job\":4}", "said\n[job 4 runs]" },
	{ "kill_bash", "{\"job\":4}", "said\n[killed by signal 9]" }, { "bash_output", "{\"job\":4}", "no such job" },
	{ "edit", "{\"path\":\"kernels.c\",\"old\":\"k\",\"new\":\"kernel\"}", "written" },
	{ "bash", "{\"command\":\"cat ../kernels.c; sleep 60\",\"timeout\":1}", "kernel\n[killed after 1 seconds]" } };

static const char tree_text[] =
	"a/\na/raw (2 bytes)\na/three.txt (5 bytes)\na/two.txt (4 bytes)\nkernels.c (7 bytes)\n5 of 5";

static void open_in(struct ww_workspace *w, const char *name)
{
	struct ww_err err = WW_ERR_INIT;
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(ww_workspace_open(w, path, WW_TARGET_CPU, 0, &err), WW_OK);
}

/* An episode's calls, and then the same episode begun again from what was recorded of them. */
static void test_tools(void **state)
{
	struct ww_workspace w, again;
	struct ww_shell later;
	struct ww_err err = WW_ERR_INIT;
	char *data[WW_ARRAY_LEN(steps)];
	(void)state;
	open_in(&w, "workspace");
	open_in(&again, "again");
	ww_shell_init(&later);
	struct ww_tool_env env = { .workspace = &w, .shell = &shell }, resumed = { .workspace = &again, .shell = &later };
	for (size_t i = 0; i < WW_ARRAY_LEN(steps); i++) {
		const char *text = call(&env, steps[i].tool, steps[i].args, 0, &data[i]);
		if (!strstr(text, steps[i].part))
			fail_msg("step %zu: %s", i, text);
	}
	assert_string_equal(call(&env, "glob", "{\"pattern\":\"**\"}", 0, NULL), tree_text);
	for (size_t i = 0; i < WW_ARRAY_LEN(steps); i++) {
		struct ww_tool_call c = { (char *)"id", (char *)(uintptr_t)steps[i].tool, (char *)(uintptr_t)steps[i].args };
		assert_int_equal(ww_tools_redo(&resumed, &c, data[i], &err), WW_OK);
		free(data[i]);
	}
	assert_false(ww_shell_is_open(&later)); /* nothing was run for that */
	assert_string_equal(call(&resumed, "glob", "{\"pattern\":\"**\"}", 0, NULL), tree_text);
	assert_string_equal(
		call(&resumed, "bash", "{\"command\":\"echo $V; pwd; cat two.txt ../kernels.c; od -An -tx1 raw\"}", 0, NULL),
		"kept\n/workspace/a\ntwo\nkernel\n 00 ff\n[exit code 0]");
	ww_shell_close(&later);
	ww_workspace_close(&again);
	ww_workspace_close(&w);
}

/* What the workspace does not take stays with the shell; a shell that dies takes with it what it did since. */
static void test_limits(void **state)
{
	struct ww_workspace w;
	(void)state;
	open_in(&w, "workspace");
	struct ww_tool_env env = { .workspace = &w, .shell = &shell };
	const char *text = call(&env, "bash",
		"{\"command\":\"head -c 2000000 /dev/zero > big; ln -s /etc/passwd link; echo ok > small\"}", 0, NULL);
	assert_non_null(strstr(text, "beyond the limits of the workspace: big]"));
	assert_string_equal(call(&env, "glob", "{\"pattern\":\"*\"}", 0, NULL), "small (3 bytes)\n1 of 1");
	/* A write that the shell's tree does not take changes nothing; one beside files beyond the limits is made. */
	call(&env, "bash", "{\"command\":\"mkdir b; ln -s b a; head -c 20000000 /dev/zero > bigger\"}", 0, NULL);
	text = call(&env, "write", "{\"path\":\"a/x\",\"text\":\"x\"}", 1, NULL);
	assert_non_null(strstr(text, "a/x leads through something that is not a folder in the shell; nothing is changed"));
	call(&env, "write", "{\"path\":\"link\",\"text\":\"now a file\"}", 0, NULL);
	assert_non_null(strstr(call(&env, "bash", "{\"command\":\"cat link; echo; ls; rm a b bigger link -r\"}", 0, NULL),
		"now a file\na\nb\nbig\nbigger\nlink\nsmall\n"));
	assert_string_equal(call(&env, "glob", "{\"pattern\":\"*\"}", 0, NULL), "small (3 bytes)\n1 of 1");
	text = call(&env, "bash", "{\"command\":\"yes\"}", 0, NULL);
	assert_non_null(strstr(text, "[stopped: more output than the limit of 32 MiB]"));
	text = call(&env, "bash", "{\"command\":\"cat /dev/zero > most; rm most; kill -25 $$\"}", 0, NULL);
	assert_non_null(strstr(text, "[stopped: a file beyond the limit of 32 MiB]"));
	text = call(&env, "bash", "{\"command\":\"for i in 1 2 3; do dd if=/dev/zero of=/dev/null bs=450M & done; wait\"}",
		0, NULL);
	assert_non_null(strstr(text, "[killed: all processes of the shell used 1"));
	assert_non_null(strstr(text, " MiB of memory, dd most ("));
	assert_non_null(strstr(text, " MiB); the limit is 1024 MiB]"));
	kill(shell.proc.pid, SIGKILL);
	text = call(&env, "bash", "{\"command\":\"echo lost > small\"}", 1, NULL);
	assert_non_null(strstr(text, "killed by signal 9"));
	assert_non_null(strstr(text, "is undone, and the next one starts a new shell"));
	assert_string_equal(call(&env, "bash", "{\"command\":\"cat small; ls\"}", 0, NULL), "ok\nsmall\n[exit code 0]");
	call(&env, "bash", "{\"command\":\"x\",\"timeout\":0}", 1, NULL);
	static volatile int yes = 1;
	struct ww_err err = WW_ERR_INIT;
	struct ww_tool_result r;
	struct ww_tool_call c = { (char *)"id", (char *)"bash", (char *)"{\"command\":\"echo lost > small; sleep 60\"}" };
	shell.interrupted = &yes;
	assert_int_equal(ww_tools_call(&env, &c, &r, &err), WW_ERR_INTERRUPTED);
	ww_tool_result_release(&r);
	assert_false(ww_shell_is_open(&shell));
	assert_non_null(strstr(call(&env, "read", "{\"path\":\"small\"}", 0, NULL), "ok"));
	ww_workspace_close(&w);
}

/* Nothing that a command leaves behind keeps the next one out: it could not be undone without one. */
static void test_recovers(void **state)
{
	static const struct {
		const char *ruin, *next, *want;
	} cases[] = { { "echo hi > f; chmod 000 .", "cat f", "hi\n[exit code 0]" },
		{ "while :; do chmod 000 .; done & sleep 0.1; kill $!", "ls; chmod 000 .", "f\n[exit code 0]" },
		{ "mkdir gone; cd gone; rmdir ../gone", "pwd", "/workspace\n[exit code 0]" },
		{ "i=0; while : > n$((i++)); do :; done 2>&-; ls | wc -l", "rm -f n*; echo x > y; ls", "f\ny\n[exit code 0]" },
		{ "head -c 30M /dev/zero > a; head -c 30M /dev/zero > b; head -c 30M /dev/zero > c", "rm a b c; cat y",
			"x\n[exit code 0]" },
		/* bash waits by itself: a command of its own would wait up to 15 s for a free process */
		{ "mkfifo p; setsid perl -e 'while (1) { fork }' & read -t 0.2 x <> p", "kill -9 -1 2>&-; rm p; cat y; ls",
			"x\nf\ny\n[exit code 0]" } };
	struct ww_workspace w;
	(void)state;
	open_in(&w, "workspace");
	struct ww_tool_env env = { .workspace = &w, .shell = &shell };
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		char ask[512];
		snprintf(ask, sizeof(ask), "{\"command\":\"%s\"}", cases[i].ruin);
		(void)call(&env, "bash", ask, 0, NULL);
		snprintf(ask, sizeof(ask), "{\"command\":\"%s\"}", cases[i].next);
		const char *text = call(&env, "bash", ask, 0, NULL);
		size_t n = strlen(text), want = strlen(cases[i].want); /* bash may say first that it waits for a free process */
		if (n < want || strcmp(text + n - want, cases[i].want))
			fail_msg("after %s: %s", cases[i].ruin, text);
	}
	ww_workspace_close(&w);
}

static void test_refused(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_shell other;
	(void)state;
	ww_shell_init(&other);
	setenv("WARPWRIGHT_SANDBOX", "landlock", 1);
	assert_int_equal(ww_shell_open(&other, WW_TARGET_CPU, &err), WW_ERR_MISSING);
	assert_non_null(strstr(err.msg, "does not allow the namespaces"));
	assert_false(ww_shell_is_open(&other));
	struct ww_workspace w;
	open_in(&w, "workspace");
	struct ww_tool_env env = { .workspace = &w, .shell = &other };
	assert_non_null(strstr(call(&env, "bash", "{\"command\":\"id\"}", 1, NULL), "not available"));
	call(&env, "write", "{\"path\":\"plan.c\",\"text\":\"p\"}", 0, NULL);
	assert_string_equal(call(&env, "read", "{\"path\":\"plan.c\"}", 0, NULL), "p");
	ww_workspace_close(&w);
	unsetenv("WARPWRIGHT_SANDBOX");
	ww_shell_close(&other);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static char cache[] = "/tmp/ww-shell-cache-XXXXXX"; /* other tests take leases too */

static int make_cache(void **state)
{
	(void)state;
	strcpy(strrchr(cache, '-'), "-XXXXXX");
	return mkdtemp(cache) && setenv("XDG_CACHE_HOME", cache, 1) == 0 ? 0 : -1;
}

static int remove_cache(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	return ww_fs_remove_tree(cache, &err) == WW_OK ? 0 : -1;
}

static int all(void)
{
	const struct CMUnitTest tests[] = { T(test_work), T(test_escapes), T(test_measurements), T(test_tools),
		T(test_limits), T(test_recovers), T(test_refused) };
	return cmocka_run_group_tests(tests, make_cache, remove_cache);
}

/* What depends on the permissions of files. */
static int of_files(void)
{
	const struct CMUnitTest tests[] = { T(test_tools), T(test_recovers) };
	return cmocka_run_group_tests(tests, make_cache, remove_cache);
}

int main(void)
{
	if (ww_sandbox_probe() != WW_SANDBOX_NAMESPACES) {
		puts("skipped: this system allows no namespaces");
		return 77;
	}
	int failed = all();
	return failed + unit_as_nobody(of_files, getenv("WARPWRIGHT"));
}
