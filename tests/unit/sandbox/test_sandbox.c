/* Unit tests of src/sandbox: worker processes, and what each level and profile takes away.
 *
 * The test program starts itself as the worker ("child MODE LEVEL"): the child enters the sandbox, tries things, and
 * writes what happened as one line each ("open /etc/passwd: 13") to its channel; the parent looks for the lines.
 */
#include "unit.h"
#include "nobody.h"

#include "base/fs.h"
#include "base/time.h"
#include "sandbox/cgroup.h"
#include "sandbox/internal.h"
#include "sandbox/proc.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char self[PATH_MAX], area[PATH_MAX]; /* this program; a directory with "shown/file", "hidden/file", "tmp" */

/* ---- In the child ------------------------------------------------------------------------------------------------ */

static void say(const char *what, long result)
{
	char line[256];
	snprintf(line, sizeof(line), "%s: %d\n", what, result < 0 ? errno : 0);
	if (write(WW_PROC_FD, line, strlen(line)) < 0)
		_exit(9);
}

static long try_open(const char *dir, const char *name, int flags)
{
	char path[PATH_MAX * 2];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, flags, 0600);
	if (fd >= 0)
		close(fd);
	return fd;
}

static long try_fork(void)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return pid;
}

static long try_lease(const char *tmp)
{
	char path[PATH_MAX + 8];
	snprintf(path, sizeof(path), "%s/lease", tmp);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	long r = fcntl(fd, F_SETLEASE, F_WRLCK);
	if (fd >= 0)
		close(fd);
	return r;
}

static void try_everything(const char *base, const char *tmp)
{
	struct rlimit limit;
	void *hidden = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	say("open passwd", try_open("/etc", "passwd", O_RDONLY));
	say("open shown", try_open(base, "shown/file", O_RDONLY));
	say("write shown", try_open(base, "shown/file", O_WRONLY));
	say("create shown", try_open(base, "shown/new", O_WRONLY | O_CREAT));
	say("open hidden", try_open(base, "hidden/file", O_RDONLY));
	say("create tmp", try_open(tmp, "new", O_WRONLY | O_CREAT));
	say("inet", socket(AF_INET, SOCK_STREAM, 0));
	say("unix", socket(AF_UNIX, SOCK_STREAM, 0));
	say("fork", try_fork());
	say("kill", kill(-1, 0));
	say("limits of a process", prlimit(getpid(), RLIMIT_CORE, NULL, &limit));
	say("own limits", prlimit(0, RLIMIT_CORE, NULL, &limit));
	say("lease", try_lease(tmp));
	say("shared anonymous", hidden == MAP_FAILED ? (errno = EPERM, -1) : 0);
	say("mount", syscall(SYS_mount, "tmpfs", tmp, "tmpfs", 0, NULL));
	say("unshare", syscall(SYS_unshare, CLONE_NEWUSER));
	say("chroot", syscall(SYS_chroot, "/"));
	say("getppid is ours", getppid() > 0 ? -1 : 0);
	say("no_new_privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -1);
	say("dumpable", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : -1);
	execl("/bin/true", "true", (char *)NULL);
	say("exec", -1);
}

static int child_sandbox(const char *profile, const char *base)
{
	struct ww_err err = WW_ERR_INIT;
	char shown[PATH_MAX], tmp[PATH_MAX];
	enum ww_sandbox_level level;
	snprintf(shown, sizeof(shown), "%s/shown", base);
	snprintf(tmp, sizeof(tmp), "%s/tmp", base);
	struct ww_sandbox_bind binds[] = { { shown, WW_BIND_READ }, { "/nonexistent", WW_BIND_READ } };
	struct ww_sandbox_opts o = { .profile = (enum ww_sandbox_profile)atoi(profile),
		.binds = binds,
		.n_binds = 2,
		.tmp = tmp,
		.limits = { .files = 64 } };
	if (ww_sandbox_enter(&o, &level, &err) != WW_OK) {
		if (write(WW_PROC_FD, err.msg, strlen(err.msg)) < 0)
			return 9;
		return 8;
	}
	char line[64];
	snprintf(line, sizeof(line), "level %s\n", ww_sandbox_level_name(level));
	if (write(WW_PROC_FD, line, strlen(line)) < 0)
		return 9;
	try_everything(base, tmp);
	return 0;
}

static int child_ptrace(void)
{
	struct ww_err err = WW_ERR_INIT;
	if (ww_sandbox_filter(WW_PROFILE_COMPILER, &err) != WW_OK)
		return 8;
	ptrace(PTRACE_TRACEME, 0, 0, 0);
	return 7; /* not reached */
}

static int child_environment(void)
{
	extern char **environ;
	for (char **e = environ; *e; e++)
		if (write(WW_PROC_FD, *e, strlen(*e)) < 0 || write(WW_PROC_FD, "\n", 1) < 0)
			return 9;
	char line[64];
	struct stat st;
	snprintf(line, sizeof(line), "fd4 %d fd5 %d fd6 %d\n", fstat(4, &st), fstat(5, &st), fstat(6, &st));
	return write(WW_PROC_FD, line, strlen(line)) < 0 ? 9 : 0;
}

/* Only Landlock: a rule for /proc/self, before and after the kernel has dropped what it remembers of /proc. */
static int confined_to_proc_self(int ready_fd, int dropped_fd)
{
	struct ww_err err = WW_ERR_INIT;
	enum ww_sandbox_level level;
	const struct ww_sandbox_bind binds[] = { { "/", WW_BIND_READ }, { "/proc/self", WW_BIND_WRITE } };
	const struct ww_sandbox_opts o = { .profile = WW_PROFILE_PYTHON, .binds = binds, .n_binds = 2 };
	char c;
	setenv("WARPWRIGHT_SANDBOX", "landlock", 1);
	/* Dumpable, as the exec() of a worker makes it: else its files in /proc are root's, and their mode refuses too. */
	if (ww_sandbox_enter(&o, &level, &err) != WW_OK || level != WW_SANDBOX_LANDLOCK ||
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return 8;
	say("before", try_open("/proc/self", "comm", O_WRONLY));
	say("init", try_open("/proc/1", "comm", O_WRONLY));
	if (write(ready_fd, "x", 1) != 1 || read(dropped_fd, &c, 1) != 1)
		return 9;
	say("after", try_open("/proc/self", "comm", O_WRONLY));
	say("init after", try_open("/proc/1", "comm", O_WRONLY));
	return 0;
}

/* First of a pid namespace with a /proc of its own, so that nobody else's caches are dropped (a remount drops them). */
static int proc_namespace(void)
{
	int ready[2], dropped[2], status;
	char c;
	if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0 ||
		pipe(ready) < 0 || pipe(dropped) < 0)
		return 7;
	pid_t pid = fork();
	if (pid == 0)
		_exit(confined_to_proc_self(ready[1], dropped[0]));
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1 || mount("proc", "/proc", "proc", MS_REMOUNT, NULL) < 0 ||
		write(dropped[1], "x", 1) != 1)
		return 6;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}

static int child_proc(void)
{
	unsigned uid = geteuid(), gid = getegid();
	int status;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0 || ww_sandbox_map_ids(uid, gid) < 0)
		return 7;
	pid_t pid = fork();
	if (pid == 0)
		_exit(proc_namespace());
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}

/* A grandchild that would live on, in the same group; then wait to be killed. */
static int child_family(void)
{
	pid_t pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	if (write(WW_PROC_FD, "x", 1) < 0)
		return 9;
	for (;;)
		pause();
}

/* Memory that the resident size does not show: shared pages given back, and the page tables of zeros. */
/* Says how many it could start. */
static int child_forks(void)
{
	int n = 0;
	pid_t pid;
	while (n < 1000 && (pid = fork()) > 0)
		n++;
	if (pid < 0 && errno != EAGAIN)
		n = -errno;
	if (pid && write(WW_PROC_FD, &n, sizeof(n)) < 0)
		return 1;
	pause();
	return 0;
}

/* unmap: all but the first page of the shared memory, whose pages all stay. */
static int child_hides_memory(int unmap)
{
	size_t shared = 64 << 20, sparse = (size_t)32 << 30;
	char *p = mmap(NULL, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	volatile char *q = mmap(NULL, sparse, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED || q == MAP_FAILED)
		return 1;
	memset(p, 1, shared);
	madvise(p, shared, MADV_DONTNEED);
	if (unmap)
		munmap(p + 4096, shared - 4096);
	madvise((void *)(uintptr_t)q, sparse, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < sparse; at += 2 << 20)
		(void)q[at];
	if (write(WW_PROC_FD, "x", 1) < 0)
		return 9;
	for (;;)
		pause();
}

static int child_eats_memory(void)
{
	for (size_t n = 0; n < 40; n++) {
		char *p = malloc(16 << 20);
		if (p)
			memset(p, 1, 16 << 20);
		usleep(10000);
	}
	pause();
	return 0;
}

static int child(int argc, char **argv)
{
	if (!strcmp(argv[0], "sandbox") && argc >= 3)
		return child_sandbox(argv[1], argv[2]);
	if (!strcmp(argv[0], "ptrace"))
		return child_ptrace();
	if (!strcmp(argv[0], "environment"))
		return child_environment();
	if (!strcmp(argv[0], "proc"))
		return child_proc();
	if (!strcmp(argv[0], "family"))
		return child_family();
	if (!strcmp(argv[0], "forks"))
		return child_forks();
	if (!strcmp(argv[0], "hides"))
		return child_hides_memory(argc > 1);
	if (!strcmp(argv[0], "memory"))
		return child_eats_memory();
	return atoi(argv[0]);
}

/* ---- In the parent ----------------------------------------------------------------------------------------------- */

static void start(struct ww_proc *p, const char *const *args, int namespaces)
{
	struct ww_err err = WW_ERR_INIT;
	const char *all[8] = { "child" };
	for (int i = 0; args[i]; i++)
		all[i + 1] = args[i];
	struct ww_proc_opts o = { .program = self, .args = all, .namespaces = namespaces, .err_mode = WW_STDERR_INHERIT };
	if (ww_proc_spawn(p, &o, &err) != WW_OK)
		fail_msg("%s", err.msg);
}

static void read_all(struct ww_proc *p, struct ww_str *out)
{
	char buf[4096];
	ssize_t n;
	while ((n = read(p->fd, buf, sizeof(buf))) > 0)
		ww_str_add(out, buf, (size_t)n);
}

static struct ww_str run_sandbox(enum ww_sandbox_profile profile)
{
	struct ww_proc p;
	struct ww_str out = WW_STR_INIT(65536);
	char number[16];
	snprintf(number, sizeof(number), "%d", profile);
	const char *args[] = { "sandbox", number, area, NULL };
	start(&p, args, 1);
	read_all(&p, &out);
	ww_proc_kill(&p);
	return out;
}

#define HAS(line) do { if (!strstr(out.p, line "\n")) fail_msg("no \"%s\" in:\n%s", line, out.p); } while (0)
#define HAS_NOT(line) do { if (strstr(out.p, line "\n")) fail_msg("\"%s\" in:\n%s", line, out.p); } while (0)

static void compiler_at(const char *level)
{
	struct ww_str out = run_sandbox(WW_PROFILE_COMPILER);
	char first[64];
	snprintf(first, sizeof(first), "level %s\n", level);
	if (strncmp(out.p, first, strlen(first)))
		fail_msg("expected %s, got: %s", first, out.p);
	HAS("open shown: 0");
	HAS("create tmp: 0");
	HAS("inet: 1");
	HAS("unix: 1");
	HAS("fork: 0");
	HAS("kill: 1");
	HAS("mount: 1");
	HAS("unshare: 1");
	HAS("chroot: 1");
	HAS("no_new_privs: 0");
	HAS("dumpable: 0");
	if (strcmp(level, "seccomp")) {
		HAS_NOT("open passwd: 0");
		HAS_NOT("write shown: 0");
		HAS_NOT("create shown: 0");
		HAS_NOT("open hidden: 0");
		HAS_NOT("exec: 0");
	}
	if (!strcmp(level, "namespaces"))
		HAS("open passwd: 2"); /* not forbidden: not there */
	ww_str_release(&out);
}

static void levels(void **state)
{
	(void)state;
	enum ww_sandbox_level best = ww_sandbox_probe();
	print_message("this system: %s (%s)\n", ww_sandbox_level_name(best), ww_sandbox_level_text(best));
	for (int l = WW_SANDBOX_SECCOMP; l <= (int)best; l++) {
		const char *name = ww_sandbox_level_name((enum ww_sandbox_level)l);
		setenv("WARPWRIGHT_SANDBOX", name, 1);
		compiler_at(name);
	}
	unsetenv("WARPWRIGHT_SANDBOX");
	assert_true(best >= WW_SANDBOX_SECCOMP);
}

static void runner_cpu_profile(void **state)
{
	(void)state;
	struct ww_str out = run_sandbox(WW_PROFILE_RUNNER_CPU);
	HAS("open shown: 13");
	HAS("open passwd: 13");
	HAS("create tmp: 13");
	HAS("inet: 1");
	HAS("unix: 1");
	HAS("fork: 1");
	HAS("kill: 1");
	HAS("exec: 1");
	ww_str_release(&out);
}

static void runner_cuda_profile(void **state)
{
	(void)state;
	struct ww_str out = run_sandbox(WW_PROFILE_RUNNER_CUDA);
	HAS("open shown: 0");
	HAS("inet: 1");
	HAS("unix: 0");
	HAS("fork: 1");
	HAS("kill: 1");
	HAS("exec: 1");
	ww_str_release(&out);
}

static void python_profiles(void **state)
{
	(void)state;
	for (int cuda = 0; cuda < 2; cuda++) {
		struct ww_str out = run_sandbox(cuda ? WW_PROFILE_PYTHON_CUDA : WW_PROFILE_PYTHON);
		HAS("open shown: 0");
		HAS("create tmp: 0");
		HAS("inet: 1");
		HAS("fork: 0");
		HAS("mount: 1");
		HAS("limits of a process: 1");
		HAS("own limits: 0");
		HAS("lease: 1");
		if (cuda)
			HAS("unix: 0");
		else
			HAS("unix: 1");
		ww_str_release(&out);
	}
}

/* What a policy's commands may do to other processes, to our opening of their files, and out of our memory's sight. */
static void shell_profile(void **state)
{
	(void)state;
	struct ww_str out = run_sandbox(WW_PROFILE_SHELL);
	HAS("fork: 0");
	HAS("limits of a process: 1");
	HAS("own limits: 0");
	HAS("lease: 1");
	HAS("shared anonymous: 1");
	ww_str_release(&out);
}

/* A rule for /proc/self must outlive the kernel's memory of the path: /proc makes its inodes anew. */
static void rules_in_proc_last(void **state)
{
	(void)state;
	if (ww_sandbox_probe() < WW_SANDBOX_NAMESPACES) /* which the test needs, not the rule */
		skip();
	struct ww_err err = WW_ERR_INIT;
	struct ww_proc p;
	struct ww_str out = WW_STR_INIT(65536);
	int status;
	const char *args[] = { "proc", NULL };
	start(&p, args, 0);
	read_all(&p, &out);
	assert_int_equal(ww_proc_wait(&p, ww_now_ns() + 5000000000ull, &status, &err), WW_OK);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	HAS("before: 0");
	HAS("init: 13");
	HAS("after: 0");
	HAS("init after: 13");
	ww_str_release(&out);
}

static void ptrace_kills(void **state)
{
	(void)state;
	struct ww_proc p;
	struct ww_err err = WW_ERR_INIT;
	int status;
	const char *args[] = { "ptrace", NULL };
	start(&p, args, 0);
	assert_int_equal(ww_proc_wait(&p, ww_now_ns() + 5000000000ull, &status, &err), WW_OK);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	struct ww_str text = WW_STR_INIT(200);
	ww_proc_status_text(status, &text);
	assert_non_null(strstr(text.p, "killed by signal 31"));
	ww_str_release(&text);
}

static void environment_and_descriptors(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_proc p;
	struct ww_str out = WW_STR_INIT(65536);
	const char *args[] = { "child", "environment", NULL }, *env[] = { "SET_BY_US=1", "PASSED_ON", NULL };
	int extra[] = { open("/dev/null", O_RDONLY), dup(1) }, leaked = dup(1);
	setenv("SOME_API_KEY", "secret", 1);
	setenv("PASSED_ON", "yes", 1);
	struct ww_proc_opts o = { .program = self, .args = args, .env = env, .extra_fds = extra, .n_extra_fds = 2 };
	assert_int_equal(ww_proc_spawn(&p, &o, &err), WW_OK);
	read_all(&p, &out);
	ww_proc_kill(&p);
	ww_proc_kill(&p); /* twice is fine */
	HAS("SET_BY_US=1");
	HAS("PASSED_ON=yes");
	HAS("fd4 0 fd5 0 fd6 -1");
	assert_null(strstr(out.p, "secret"));
	close(extra[0]), close(extra[1]), close(leaked);
	ww_str_release(&out);
}

static void ends(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_proc p;
	int status;
	const char *three[] = { "3", NULL }, *family[] = { "family", NULL };
	start(&p, three, 1);
	assert_int_equal(ww_proc_wait(&p, ww_now_ns() + 5000000000ull, &status, &err), WW_OK);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	assert_false(ww_proc_alive(&p));
	struct ww_proc_opts o = { .program = "/nonexistent/python" };
	assert_int_equal(ww_proc_spawn(&p, &o, &err), WW_ERR_MISSING);
	assert_non_null(strstr(err.msg, "/nonexistent/python"));
	for (int namespaces = 0; namespaces < 2; namespaces++) {
		char c;
		start(&p, family, namespaces);
		assert_int_equal(ww_fd_read(p.fd, &c, 1, ww_now_ns() + 5000000000ull, &err), WW_OK);
		assert_true(ww_proc_alive(&p));
		assert_int_equal(ww_proc_wait(&p, ww_now_ns() + 10000000, &status, &err), WW_ERR_TIMEOUT);
		assert_true(ww_proc_tree(p.pid, WW_PROC_RESIDENT).bytes > 100000);
		pid_t group = p.pid;
		ww_proc_kill(&p);
		int tries = 0;
		while (kill(-group, 0) == 0 && tries++ < 200) /* the grandchild is init's to reap */
			usleep(10000);
		assert_true(kill(-group, 0) < 0);
	}
}

static void memory_is_watched(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_proc p;
	char c;
	const char *args[] = { "memory", NULL };
	start(&p, args, 0);
	assert_int_equal(ww_proc_read(&p, &c, 1, ww_now_ns() + 20000000000ull, 200 << 20, &err), WW_ERR_LIMIT);
	assert_non_null(strstr(err.msg, "MiB of memory"));
	assert_int_equal(p.pid, 0);
	start(&p, args, 0);
	assert_int_equal(ww_proc_read(&p, &c, 1, ww_now_ns() + 100000000, 0, &err), WW_ERR_TIMEOUT);
	ww_proc_kill(&p);
}

static void hidden_memory_is_counted(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_proc p;
	char c;
	for (int unmap = 0; unmap <= (geteuid() == 0); unmap++) {
		const char *args[] = { "hides", unmap ? "unmap" : NULL, NULL };
		start(&p, args, 0);
		assert_int_equal(ww_fd_read(p.fd, &c, 1, ww_now_ns() + 20000000000ull, &err), WW_OK);
		uint64_t tables = ww_proc_tree(p.pid, WW_PROC_RESIDENT).bytes, all = ww_proc_tree(p.pid, WW_PROC_SHARED).bytes;
		ww_proc_kill(&p);
		assert_true(tables >= 64 << 20);
		assert_true(all >= tables + (64 << 20));
	}
}

static void groups_are_found(void **state)
{
	static const char hybrid[] = "30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
								 "31 24 0:27 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw\n",
					  pod[] = "40 24 0:26 /pods/a /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n";
	static const struct {
		const char *mounts, *groups, *want;
	} cases[] = { { hybrid, "4:memory:/x\n0::/\n", "/sys/fs/cgroup/unified" },
		{ hybrid, "0::/user.slice/u.scope\n", "/sys/fs/cgroup/unified/user.slice/u.scope" },
		{ pod, "0::/pods/a/inner\n", "/sys/fs/cgroup/inner" }, { pod, "0::/pods/a\n", "/sys/fs/cgroup" },
		{ pod, "0::/pods/abc\n", "" }, { pod, "4:memory:/pods/a\n", "" }, { "", "0::/\n", "" } };
	char out[PATH_MAX];
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		if (!ww_cgroup_find(cases[i].mounts, cases[i].groups, out))
			out[0] = 0;
		assert_string_equal(out, cases[i].want);
	}
}

/* Shared pages that were given back, in no count of a process: the kernel kills beyond the limit, and nothing is left
 * of the group. */
static void the_kernel_holds_hidden_memory(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	const char *args[] = { "child", "hides", NULL };
	if (!ww_cgroup_base()) {
		print_message("# skip: no cgroup v2 with the memory controller can be made here\n");
		skip();
	}
	for (int namespaces = 0; namespaces < 2; namespaces++)
		for (int fits = 0; fits < 2; fits++) {
			struct ww_proc_opts o = { .program = self, .args = args, .namespaces = namespaces };
			struct ww_proc p;
			char c, dir[PATH_MAX];
			o.memory_bytes = (uint64_t)(fits ? 512 : 48) << 20;
			assert_int_equal(ww_proc_spawn(&p, &o, &err), WW_OK);
			snprintf(dir, sizeof(dir), "%s", p.cgroup ? p.cgroup : "");
			assert_int_equal(ww_fd_read(p.fd, &c, 1, ww_now_ns() + 20000000000ull, &err) == WW_OK, fits);
			ww_proc_kill(&p);
			assert_true(*dir && access(dir, F_OK) < 0);
		}
}

/* A group's processes, the first among them; the next fork() is refused by the kernel. */
static void the_kernel_counts_processes(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	const char *args[] = { "child", "forks", NULL };
	struct ww_proc_opts o = { .program = self, .args = args, .memory_bytes = 512 << 20, .max_tasks = 20 };
	struct ww_proc p;
	int n = 0;
	if (!ww_cgroup_base()) {
		print_message("# skip: no cgroup v2 with the memory controller can be made here\n");
		skip();
	}
	assert_int_equal(ww_proc_spawn(&p, &o, &err), WW_OK);
	assert_int_equal(ww_fd_read(p.fd, &n, sizeof(n), ww_now_ns() + 20000000000ull, &err), WW_OK);
	assert_int_equal(ww_proc_tree(p.pid, WW_PROC_NO_MEMORY).processes, 20);
	ww_proc_kill(&p);
	assert_int_equal(n, 19);
}

static int make_area(void **state)
{
	(void)state;
	char path[PATH_MAX + 16];
	struct ww_err err = WW_ERR_INIT;
	static const char *const dirs[] = { "shown", "hidden", "tmp" };
	strcpy(area, "/tmp/ww-test-sandbox-XXXXXX");
	if (!mkdtemp(area))
		return -1;
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", area, dirs[i]);
		if (mkdir(path, 0700) < 0)
			return -1;
		snprintf(path, sizeof(path), "%s/%s/file", area, dirs[i]);
		if (ww_fs_write(path, "text", 4, &err) != WW_OK)
			return -1;
	}
	return 0;
}

static int remove_area(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	return ww_fs_remove_tree(area, &err) == WW_OK ? 0 : -1;
}

static int all(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(levels), cmocka_unit_test(runner_cpu_profile),
		cmocka_unit_test(runner_cuda_profile), cmocka_unit_test(python_profiles), cmocka_unit_test(shell_profile),
		cmocka_unit_test(rules_in_proc_last), cmocka_unit_test(ptrace_kills),
		cmocka_unit_test(environment_and_descriptors), cmocka_unit_test(ends), cmocka_unit_test(memory_is_watched),
		cmocka_unit_test(hidden_memory_is_counted), cmocka_unit_test(groups_are_found),
		cmocka_unit_test(the_kernel_holds_hidden_memory), cmocka_unit_test(the_kernel_counts_processes) };
	return cmocka_run_group_tests_name("sandbox/sandbox", tests, make_area, remove_area);
}

int main(int argc, char **argv)
{
	if (argc >= 3 && !strcmp(argv[1], "child"))
		_exit(child(argc - 2, argv + 2)); /* without exit handlers: the sandbox forbids a leak checker's work */
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return 1;
	self[n] = 0;
	int failed = all();
	return failed + unit_as_nobody(all, self);
}
