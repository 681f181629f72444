/* Attacks from inside every profile of the system-call filter, at every level of the sandbox that this system has, as
 * this user and, where that is root, as user 65534.
 *
 * For each profile and level one process makes its sandbox as the program's workers do and forks a job, which loads the
 * filter and tries all rows of attacks.inc.  A row that kills the job held; the next job goes on behind it.  The victim
 * is a process of the same user outside.  The last test runs the same rows inside a real reference worker.
 *
 * budget: 3 CPU-seconds */
#include "unit.h"
#include "nobody.h"
#include "task/forking.h"

#include "base/fs.h"
#include "base/time.h"
#include "sandbox/internal.h"
#include "sandbox/proc.h"
#include "task/ref.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attacks.inc"

enum { N_ATTACKS = sizeof(attacks) / sizeof(*attacks), JOB_LIMIT_S = 20 };
enum outcome { NOT_TRIED, UNDER_WAY, HELD, SUCCEEDED };

static char self[PATH_MAX];

/* ---- In the sandbox ---------------------------------------------------------------------------------------------- */

static void job(int profile, volatile unsigned char *results)
{
	struct ww_err err = WW_ERR_INIT;
	setpgid(0, 0);
	alarm(JOB_LIMIT_S);
	if (profile >= 0 && ww_sandbox_filter((enum ww_sandbox_profile)profile, &err) != WW_OK)
		_exit(8);
	for (int i = 0; i < N_ATTACKS; i++)
		if (results[i] == NOT_TRIED) {
			results[i] = UNDER_WAY;
			results[i] = attacks[i].run() ? SUCCEEDED : HELD;
		}
	syscall(SYS_exit_group, 0);
}

/* A memory that jobs fill and this process reads; where the filter is loaded already, it forbids shared anonymous
 * memory, and a file has to do. */
static volatile unsigned char *make_results(void)
{
	int fd = open(in_tmp("results"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *p = fd < 0 || ftruncate(fd, N_ATTACKS) < 0 ? MAP_FAILED
													 : mmap(NULL, N_ATTACKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return p == MAP_FAILED ? NULL : p;
}

/* Every row; 0 where a job could not be made. */
static int try_all(int profile, volatile unsigned char *results)
{
	for (int done = 0; done < N_ATTACKS;) {
		int status;
		pid_t pid = fork();
		if (pid == 0)
			job(profile, results);
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			return 0;
		kill(-pid, SIGKILL);
		int before = done;
		while (done < N_ATTACKS && results[done] != NOT_TRIED) {
			if (results[done] == UNDER_WAY)
				results[done] = HELD; /* it killed the job */
			done++;
		}
		if (done == before)
			return 0;
	}
	return 1;
}

static int report(int fd, volatile unsigned char *results)
{
	for (int i = 0; i < N_ATTACKS; i++)
		if (results[i] == SUCCEEDED && dprintf(fd, "%s\n", attacks[i].name) < 0)
			return 9;
	return dprintf(fd, "end\n") < 0 ? 9 : 0;
}

/* Such limits as the rows on exhaustion expect; the real ones are larger. */
static struct ww_sandbox_opts opts_of(int profile, struct ww_sandbox_bind *binds, int n, const char *tmp)
{
	int python = profile == WW_PROFILE_PYTHON || profile == WW_PROFILE_PYTHON_CUDA;
	int cuda = profile == WW_PROFILE_PYTHON_CUDA || profile == WW_PROFILE_RUNNER_CUDA;
	return (struct ww_sandbox_opts){ .profile = (enum ww_sandbox_profile)profile,
		.binds = binds,
		.n_binds = n,
		.tmp = tmp,
		.tmp_bytes = 16 << 20,
		.tmp_entries = 64,
		.with_proc = python && ww_sandbox_has_namespaces(),
		.limits = { .files = 128,
			.file_bytes = 4 << 20,
			.data_bytes = python && !cuda ? 4ll << 30 : 0,
			.address_space_bytes = python || cuda ? 0 : 4ll << 30 } };
}

static int child_profile(int profile)
{
	struct ww_err err = WW_ERR_INIT;
	enum ww_sandbox_level level;
	char shown[PATH_MAX], tmp[PATH_MAX];
	snprintf(shown, sizeof(shown), "%s", in_area("shown"));
	snprintf(tmp, sizeof(tmp), "%s", world.tmp);
	struct ww_sandbox_bind binds[] = { { shown, WW_BIND_READ }, { "/usr", WW_BIND_READ }, { "/lib", WW_BIND_READ },
		{ "/lib64", WW_BIND_READ }, { "/dev/null", WW_BIND_WRITE | WW_BIND_DEVICE }, { "/proc/self", WW_BIND_WRITE } };
	struct ww_sandbox_opts o = opts_of(profile, binds, ww_sandbox_has_namespaces() ? 5 : 6, tmp);
	volatile unsigned char *results = mmap(NULL, N_ATTACKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ww_sandbox_filter_prepare(o.profile, &err) != WW_OK || ww_sandbox_isolate(&o, &level, &err) != WW_OK) {
		dprintf(WW_PROC_FD, "%s\n", err.msg);
		return 8;
	}
	dprintf(WW_PROC_FD, "%s\n", ww_sandbox_level_name(level));
	return results != MAP_FAILED && try_all(profile, results) ? report(WW_PROC_FD, results) : 7;
}

static int child_inside(void)
{
	volatile unsigned char *results = make_results();
	if (!results)
		return 6;
	return try_all(-1, results) ? report(1, results) : 7;
}

/* child PROFILE WORLD... */
static int child(char **argv)
{
	snprintf(world.area, sizeof(world.area), "%s", argv[1]);
	snprintf(world.abstract, sizeof(world.abstract), "%s", argv[2]);
	snprintf(world.queue, sizeof(world.queue), "%s", argv[3]);
	snprintf(world.tmp, sizeof(world.tmp), "%s", argv[5]);
	if (sscanf(argv[4], "%d,%d,%d,%d,%d", &world.victim, &world.port, &world.segment, &world.set, &world.messages) != 5)
		return 5;
	return !strcmp(argv[0], "inside") ? child_inside() : child_profile(atoi(argv[0]));
}

/* ---- The world outside ------------------------------------------------------------------------------------------- */

static int sockets[3] = { -1, -1, -1 };

static int bind_unix(const char *path, int abstract, int type)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	snprintf(a.sun_path + abstract, sizeof(a.sun_path) - 1, "%s", path);
	socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)abstract + strlen(path) + !abstract);
	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0);
	assert_true(type == SOCK_DGRAM || listen(fd, 64) == 0);
	return fd;
}

static void make_listener(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 && listen(fd, 64) == 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	world.port = ntohs(a.sin_port);
}

static void make_world(void)
{
	static const char *const dirs[] = { "shown", "hidden", "tmp" };
	struct ww_err err = WW_ERR_INIT;
	strcpy(world.area, "/tmp/ww-attacks-XXXXXX");
	assert_non_null(mkdtemp(world.area));
	for (size_t i = 0; i < WW_ARRAY_LEN(dirs); i++) {
		char path[PATH_MAX];
		assert_int_equal(mkdir(in_area(dirs[i]), 0700), 0);
		snprintf(path, sizeof(path), "%s/%s/file", world.area, dirs[i]);
		assert_int_equal(ww_fs_write(path, "text", 4, &err), WW_OK);
	}
	snprintf(world.tmp, sizeof(world.tmp), "%.200s/tmp", world.area);
	snprintf(world.abstract, sizeof(world.abstract), "ww-attacks-%d", (int)getpid());
	snprintf(world.queue, sizeof(world.queue), "/ww-attacks-%d", (int)getpid());
	sockets[0] = bind_unix(in_area("socket"), 0, SOCK_STREAM);
	sockets[1] = bind_unix(world.abstract, 1, SOCK_STREAM);
	sockets[2] = bind_unix(in_area("datagrams"), 0, SOCK_DGRAM);
	make_listener();
	world.segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	world.set = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
	world.messages = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
	char path[128];
	snprintf(path, sizeof(path), "/dev/shm%s", world.queue);
	assert_int_equal(ww_fs_write(path, "text", 4, &err), WW_OK);
	mqd_t q = mq_open(world.queue, O_CREAT | O_RDWR, 0600, NULL);
	assert_true(world.segment >= 0 && world.set >= 0 && world.messages >= 0);
	if (q != (mqd_t)-1)
		mq_close(q);
	world.victim = fork();
	if (world.victim == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	setpgid(world.victim, world.victim);
}

static void end_world(void)
{
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(kill(world.victim, SIGKILL), 0); /* nobody else has */
	waitpid(world.victim, NULL, 0);
	assert_int_equal(shmctl(world.segment, IPC_RMID, NULL), 0);
	assert_true(semctl(world.set, 0, IPC_RMID) == 0 && msgctl(world.messages, IPC_RMID, NULL) == 0);
	mq_unlink(world.queue);
	char path[128];
	snprintf(path, sizeof(path), "/dev/shm%s", world.queue);
	assert_int_equal(unlink(path), 0);
	for (int i = 0; i < 3; i++)
		ww_fd_close(&sockets[i]);
	assert_int_equal(ww_fs_remove_tree(world.area, &err), WW_OK);
}

/* ---- What came of it --------------------------------------------------------------------------------------------- */

static char numbers[128];

static void world_args(const char *what, const char *args[7])
{
	snprintf(
		numbers, sizeof(numbers), "%d,%d,%d,%d,%d", world.victim, world.port, world.segment, world.set, world.messages);
	const char *const all[7] = { what, world.area, world.abstract, world.queue, numbers, world.tmp, NULL };
	memcpy(args, all, sizeof(all));
}

/* A rule of the kernel's Landlock 6: signals and abstract sockets stay inside. */
static int holds(const struct attack *a, enum ww_sandbox_level level, unsigned in)
{
	if (level == WW_SANDBOX_LANDLOCK && ww_landlock_abi() < 6 && !strncmp(a->name, "signal_", 7))
		return 0;
	return level >= a->level && !(a->free & in);
}

static int judge_rows(const char *names, enum ww_sandbox_level level, unsigned in)
{
	int bad = 0;
	for (int i = 0; i < N_ATTACKS; i++) {
		char line[64];
		snprintf(line, sizeof(line), "\n%s\n", attacks[i].name);
		if (!strstr(names, line) || !holds(&attacks[i], level, in))
			continue;
		print_error("%s succeeds in profiles 0x%x at level %s, as user %d\n", attacks[i].name, in,
			ww_sandbox_level_name(level), (int)geteuid());
		bad++;
	}
	return bad;
}

static int run_profile(int profile, enum ww_sandbox_level level)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_proc p;
	struct ww_str out = WW_STR_INIT(65536);
	char number[16], buf[4096], first[64];
	const char *args[9] = { "child" };
	ssize_t n;
	snprintf(number, sizeof(number), "%d", profile);
	world_args(number, args + 1);
	struct ww_proc_opts o = { .program = self, .args = args, .namespaces = 1, .err_mode = WW_STDERR_INHERIT };
	assert_int_equal(ww_proc_spawn(&p, &o, &err), WW_OK);
	ww_str_adds(&out, "\n");
	while ((n = read(p.fd, buf, sizeof(buf))) > 0)
		ww_str_add(&out, buf, (size_t)n);
	ww_proc_kill(&p);
	snprintf(first, sizeof(first), "\n%s\n", ww_sandbox_level_name(level));
	if (strncmp(out.p, first, strlen(first)) || !strstr(out.p, "\nend\n"))
		fail_msg("profile %d at level %s: %s", profile, ww_sandbox_level_name(level), out.p);
	int bad = judge_rows(out.p, level, IN(profile));
	ww_str_release(&out);
	return bad;
}

static int every_profile_and_level(void)
{
	int bad = 0;
	make_world();
	for (int l = WW_SANDBOX_SECCOMP; l <= (int)ww_sandbox_probe(); l++) {
		setenv("WARPWRIGHT_SANDBOX", ww_sandbox_level_name((enum ww_sandbox_level)l), 1);
		for (int profile = 0; profile < WW_PROFILE_COUNT; profile++)
			if (profile != WW_PROFILE_SHELL_INIT && (profile != WW_PROFILE_SHELL || l == WW_SANDBOX_NAMESPACES))
				bad += run_profile(profile, (enum ww_sandbox_level)l);
		unsetenv("WARPWRIGHT_SANDBOX");
	}
	end_world();
	return bad;
}

static void as_this_user(void **state)
{
	(void)state;
	print_message("%d attacks\n", (int)N_ATTACKS);
	assert_int_equal(every_profile_and_level(), 0);
}

static void as_user_65534(void **state)
{
	(void)state;
	int status;
	if (geteuid() != 0)
		skip();
	pid_t pid = fork();
	if (pid == 0) {
		if (unit_become_nobody() < 0)
			_exit(4);
		if (access(self, X_OK) < 0)
			_exit(77);
		_exit(every_profile_and_level() != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- The real reference worker ----------------------------------------------------------------------------------- */

static const char worker[] =
	"import json, os, socket, struct, subprocess\n"
	"s = socket.socket(fileno=3)\n"
	"def read():\n"
	"    h = s.recv(16, socket.MSG_WAITALL)\n"
	"    if len(h) < 16: os._exit(0)\n"
	"    return s.recv(struct.unpack('<4sIII', h)[2], socket.MSG_WAITALL)\n"
	"def send(b): s.sendall(struct.pack('<4sIII', b'WWBR', 1, len(b), 0) + b)\n"
	"read(); send(b'{\"ok\": true}') # it checks the task\n"
	"read(); send(b'{\"ok\": true, \"device\": {\"name\": \"fake\"}, \"versions\": {\"torch\": \"0\"}}')\n"
	"read()\n"
	"p = subprocess.run(['%s', 'child', 'inside', '%s', '%s', '%s', '%s', os.getcwd()], capture_output=True, text=True)\n"
	"graph = {name: [] for name in ('inputs', 'scalars', 'params', 'nodes', 'outputs')}\n"
	"send(json.dumps({'ok': True, **graph, 'text': '\\n' + p.stdout, 'more': str(p.returncode) + p.stderr}).encode())\n"
	"read()\n";

static int run_reference(enum ww_sandbox_level level, int by_fork)
{
	char caches[] = "/tmp/ww-attacks-caches-XXXXXX";
	struct ww_err err = WW_ERR_INIT;
	struct ww_ref *r;
	char script[] = "/tmp/ww-attacks-worker-XXXXXX", roots[PATH_MAX];
	const char *args[7];
	json_t *answer;
	FILE *f = fdopen(mkstemp(script), "w");
	assert_non_null(f);
	world_args("inside", args);
	fprintf(f, worker, self, args[1], args[2], args[3], args[4]);
	assert_int_equal(fclose(f), 0);
	snprintf(roots, sizeof(roots), "%.*s:%s", (int)(strrchr(self, '/') - self), self, in_area("shown"));
	struct ww_task task = { .name = "task", .source = "x", .source_bytes = 1, .roots = roots };
	struct ww_ref_opts o = {
		.target = WW_TARGET_CPU, .worker = script, .max_request_s = 60, .max_resident_bytes = 1 << 30, .first = &task
	};
	assert_non_null(mkdtemp(caches));
	if (by_fork) {
		snprintf(roots + strlen(roots), sizeof(roots) - strlen(roots), ":%s", script);
		o.forker = open_forker(script, caches, roots);
	}
	if (ww_ref_open(&r, &o, &err) != WW_OK || ww_ref_graph(r, &answer, &err) != WW_OK)
		fail_msg("%s", err.msg);
	const char *names = json_string_value(json_object_get(answer, "text"));
	if (!names || !strstr(names, "\nend\n"))
		fail_msg("%s: %s", names, json_string_value(json_object_get(answer, "more")));
	int bad = judge_rows(names, level, IN(WW_PROFILE_PYTHON) | REAL);
	json_decref(answer);
	ww_ref_close(r);
	ww_forker_close(o.forker);
	(void)!ww_fs_remove_tree(caches, &err);
	unlink(script);
	return bad;
}

static void in_the_reference_worker(void **state)
{
	int bad = 0;
	(void)state;
	make_world();
	for (int l = WW_SANDBOX_SECCOMP; l <= (int)ww_sandbox_probe(); l++) {
		setenv("WARPWRIGHT_SANDBOX", ww_sandbox_level_name((enum ww_sandbox_level)l), 1);
		bad += run_reference((enum ww_sandbox_level)l, 0);
#ifndef WW_SANITIZE /* which does not start where private memory is limited */
		if (l == WW_SANDBOX_NAMESPACES)
			bad += run_reference((enum ww_sandbox_level)l, 1);
#endif
		unsetenv("WARPWRIGHT_SANDBOX");
	}
	end_world();
	assert_int_equal(bad, 0);
}

int main(int argc, char **argv)
{
	if (argc == 8 && !strcmp(argv[1], "child"))
		_exit(child(argv + 2));
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return 1;
	self[n] = 0;
	const struct CMUnitTest tests[] = { cmocka_unit_test(as_this_user), cmocka_unit_test(as_user_65534),
		cmocka_unit_test(in_the_reference_worker) };
	return cmocka_run_group_tests_name("sandbox/attacks", tests, NULL, NULL);
}
