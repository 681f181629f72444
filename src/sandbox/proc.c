/* proc.c - see proc.h.
 *
 * The child is made by clone() with the namespace flags, so that it is the first process of its pid namespace and the
 * kernel kills everything that it started when it ends.  Between clone() and execve() only calls are made that are safe
 * in a copy of a process with threads: argument and environment are built before.  A child that cannot exec says why
 * through a pipe that closes on exec.
 */
#include "sandbox/proc.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/time.h"
#include "sandbox/cgroup.h"
#include "sandbox/internal.h"
#include "sandbox/zygote.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What every worker gets from our environment, where it is set. */
static const char *const passed_on[] = { "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "WARPWRIGHT",
	"WARPWRIGHT_HOME", "WARPWRIGHT_LOG", "WARPWRIGHT_SANDBOX", "WW_PYTHON", "WW_CUDA_LIBS", "VIRTUAL_ENV", "CUDA_HOME",
	"CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CC", "CXX", "TZ", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
	"NVIDIA_DRIVER_CAPABILITIES", "TRITON_LIBCUDA_PATH", "WARPWRIGHT_CUDA_CONNECTIONS", "ASAN_OPTIONS",
	"UBSAN_OPTIONS" };

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

enum { MAX_ARGS = 64, MAX_ENV = 64 };
struct launch {
	char path[PATH_MAX], name[64];
	char *argv[MAX_ARGS + 3];
	char *envp[MAX_ENV + 2];
	int n_env;
	int sock, err_w, report; /* the child's ends */
	int program;             /* of the program, where user 65534 may not be able to open its path; else -1 */
	int group;               /* descriptor that takes it into its cgroup; else -1 */
	int mapped[2];           /* a pipe: the parent has written the user maps; else -1 */
	int users;               /* it maps further users */
	unsigned uid, gid;
	const struct ww_proc_opts *o;
};

static enum ww_rc fill_argv(struct launch *l, struct ww_err *err)
{
	int n = 0;
	l->argv[n++] = l->path;
	if (l->o->program)
		snprintf(l->path, sizeof(l->path), "%s", l->o->program);
	else {
		WW_CHECK(ww_fs_program(l->path, err));
		snprintf(l->name, sizeof(l->name), "__%s", l->o->worker);
		l->argv[n++] = l->name;
	}
	for (const char *const *a = l->o->args; a && *a; a++) {
		WW_BUG(n > MAX_ARGS);
		l->argv[n++] = (char *)(uintptr_t)*a;
	}
	l->argv[n] = NULL;
	return WW_OK;
}

static void add_env(struct launch *l, const char *name)
{
	WW_BUG(l->n_env >= MAX_ENV);
	if (strchr(name, '=')) {
		l->envp[l->n_env++] = (char *)(uintptr_t)name;
		return;
	}
	size_t n = strlen(name);
	for (char **e = environ; *e; e++)
		if (!strncmp(*e, name, n) && (*e)[n] == '=')
			l->envp[l->n_env++] = *e;
}

static void fill_env(struct launch *l, int namespaces)
{
	l->n_env = 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(passed_on); i++)
		add_env(l, passed_on[i]);
	for (const char *const *e = l->o->env; e && *e; e++)
		add_env(l, *e);
	if (namespaces)
		add_env(l, WW_SANDBOX_NAMESPACES_ENV "=1");
	l->envp[l->n_env] = NULL;
}

/* Numbers above every target, so that moving one descriptor into place cannot overwrite another. */
static int move_high(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, WW_PROC_FIRST_EXTRA_FD + WW_PROC_MAX_EXTRA_FDS + 4); }

static int place_fds(struct launch *l)
{
	int high[WW_PROC_MAX_EXTRA_FDS], n = l->o->n_extra_fds;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || (null = move_high(null)) < 0 || (l->sock = move_high(l->sock)) < 0 ||
		(l->report = move_high(l->report)) < 0 || (l->err_w >= 0 && (l->err_w = move_high(l->err_w)) < 0))
		return -1;
	for (int i = 0; i < n; i++)
		if ((high[i] = move_high(l->o->extra_fds[i])) < 0)
			return -1;
	if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(l->sock, WW_PROC_FD) < 0)
		return -1;
	if (l->o->err_mode != WW_STDERR_INHERIT && dup2(l->err_w >= 0 ? l->err_w : null, 2) < 0)
		return -1;
	for (int i = 0; i < n; i++)
		if (dup2(high[i], WW_PROC_FIRST_EXTRA_FD + i) < 0)
			return -1;
	unsigned first = (unsigned)l->report, last = first; /* what must live until exec; it closes then */
	if (l->program >= 0) {
		first = (unsigned)(l->program < l->report ? l->program : l->report);
		last = (unsigned)(l->program < l->report ? l->report : l->program);
	}
	return syscall(SYS_close_range, WW_PROC_FIRST_EXTRA_FD + n, first - 1, 0) < 0 && errno != ENOSYS ? -1
		: syscall(SYS_close_range, last + 1, ~0u, 0) < 0 && errno != ENOSYS                          ? -1
																									 : 0;
}

static void reset_signals(void)
{
	struct sigaction sa = { .sa_handler = SIG_DFL };
	sigset_t none;
	for (int s = 1; s < 65; s++)
		sigaction(s, &sa, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Wait for the user maps that the parent writes. */
static int is_mapped(struct launch *l)
{
	char byte;
	close(l->mapped[1]);
	return read(l->mapped[0], &byte, 1) == 1;
}

/* Become root inside the maps. */
static int become_nobody(struct launch *l)
{
	return is_mapped(l) && syscall(SYS_setgroups, 0, NULL) == 0 && syscall(SYS_setresgid, 0, 0, 0) == 0 &&
			syscall(SYS_setresuid, 0, 0, 0) == 0
		? 0
		: -1;
}

static int become_root(struct launch *l, int namespaces)
{
	return (l->users && is_mapped(l)) || !namespaces ? 0 : ww_sandbox_map_ids(l->uid, l->gid);
}

static void child(struct launch *l, int namespaces)
{
	if (l->group >= 0)
		(void)!write(l->group, "0", 1);
	if ((l->program >= 0 ? become_nobody(l) : become_root(l, namespaces)) < 0)
		goto fail;
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	reset_signals();
	if (l->program >= 0 && (l->program = move_high(l->program)) < 0)
		goto fail;
	if (place_fds(l) < 0)
		goto fail;
	if (l->program >= 0)
		syscall(SYS_execveat, l->program, "", l->argv, l->envp, AT_EMPTY_PATH);
	else
		execve(l->path, l->argv, l->envp);
fail:;
	int e = errno;
	if (write(l->report, &e, sizeof(e)) < 0)
		_exit(126);
	_exit(127);
}

/* ---- The nursery: the one thread that starts workers, so that their death signal is that of the process ---------- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int running;         /* the thread is there */
	struct launch *next; /* to be started; NULL: nothing to do */
	int namespaces, done;
	pid_t pid;
} nursery = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* Outside of a namespace: further users of ours, and the shell's.  The range is a container's, too. */
enum { FIRST_USER = 61440, USERS = 4094, NOBODY = 65534 };

/* 1 where `n` users from `first` on exist here, and root may give them away. */
static int may_map(unsigned first, unsigned n)
{
	unsigned from, to, count;
	int found = 0;
	FILE *f = geteuid() == 0 ? fopen("/proc/self/uid_map", "re") : NULL;
	while (f && !found && fscanf(f, "%u %u %u", &from, &to, &count) == 3)
		found = from <= first && first - from <= count && n <= count - (first - from);
	if (f)
		fclose(f);
	return found;
}

static int write_map(pid_t pid, const char *name, const char *map)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? write(fd, map, strlen(map)) : -1;
	if (fd >= 0)
		close(fd);
	return n < 0 ? -1 : 0;
}

static int map_users(const struct launch *l, pid_t pid)
{
	char users[64], groups[32];
	snprintf(users, sizeof(users), l->users ? "0 0 1\n1 %d %d\n" : "0 %d 1\n", l->users ? FIRST_USER : NOBODY, USERS);
	snprintf(groups, sizeof(groups), "0 %u 1\n", l->users ? l->gid : NOBODY);
	return write_map(pid, "uid_map", users) == 0 && write_map(pid, "gid_map", groups) == 0;
}

static pid_t clone_worker(struct launch *l, int namespaces)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | (namespaces ? WW_SANDBOX_CLONE_FLAGS : 0), 0, 0, 0, 0);
	if (pid == 0)
		child(l, namespaces);
	/* Without that byte the child reads end of file (it holds no write end): nobody reports the failure, others map
	 * themselves. */
	if (pid > 0 && l->mapped[1] >= 0 && map_users(l, pid) && write(l->mapped[1], "", 1) < 0)
		kill(pid, SIGKILL);
	ww_fd_close(&l->mapped[1]);
	return pid;
}

static void *nurse(void *unused)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL); /* other threads handle signals */
	pthread_mutex_lock(&nursery.lock);
	for (;;) {
		while (!nursery.next)
			pthread_cond_wait(&nursery.changed, &nursery.lock);
		nursery.pid = clone_worker(nursery.next, nursery.namespaces);
		if (nursery.pid < 0)
			nursery.pid = -errno;
		nursery.next = NULL;
		nursery.done = 1;
		pthread_cond_broadcast(&nursery.changed);
	}
	return unused;
}

/* A fork's child has none of its parent's threads. */
static void forget_nursery(void)
{
	pthread_mutex_init(&nursery.lock, NULL);
	pthread_cond_init(&nursery.changed, NULL);
	nursery.running = 0;
	nursery.next = NULL;
}

static void open_nursery(void)
{
	static int registered;
	pthread_attr_t detached;
	pthread_t t;
	if (!registered)
		registered = !pthread_atfork(NULL, NULL, forget_nursery);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	nursery.running = !pthread_create(&t, &detached, nurse, NULL);
	pthread_attr_destroy(&detached);
}

static pid_t start(struct launch *l, int namespaces)
{
	fill_env(l, namespaces);
	pthread_mutex_lock(&nursery.lock);
	if (!nursery.running)
		open_nursery();
	while (nursery.running && (nursery.next || nursery.done))
		pthread_cond_wait(&nursery.changed, &nursery.lock);
	pid_t pid = -EAGAIN;
	if (nursery.running) {
		nursery.next = l;
		nursery.namespaces = namespaces;
		pthread_cond_broadcast(&nursery.changed);
		while (!nursery.done)
			pthread_cond_wait(&nursery.changed, &nursery.lock);
		nursery.done = 0;
		pid = nursery.pid;
		pthread_cond_broadcast(&nursery.changed);
	}
	pthread_mutex_unlock(&nursery.lock);
	if (pid < 0)
		errno = -pid;
	return pid;
}

/* The errno of the child if it could not exec, else 0. */
static int exec_result(int fd)
{
	int e = 0;
	ssize_t n;
	while ((n = read(fd, &e, sizeof(e))) < 0 && errno == EINTR)
		;
	return n == (ssize_t)sizeof(e) ? e : 0;
}

enum ww_rc ww_proc_spawn(struct ww_proc *p, const struct ww_proc_opts *o, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	int pair[2] = { -1, -1 }, errs[2] = { -1, -1 }, report[2] = { -1, -1 };
	struct launch *l;
	*p = (struct ww_proc)WW_PROC_INIT;
	WW_CHECK(WW_NEW(l, 1, err));
	l->o = o;
	l->program = l->mapped[0] = l->mapped[1] = -1;
	p->cgroup = ww_cgroup_new(o->memory_bytes, o->max_tasks, &l->group);
	WW_BUG(o->n_extra_fds > WW_PROC_MAX_EXTRA_FDS);
	WW_TRY(fill_argv(l, err));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || pipe2(report, O_CLOEXEC) < 0 ||
		(o->err_mode == WW_STDERR_PIPE && pipe2(errs, O_CLOEXEC) < 0))
		WW_TRY(ww_err_errno(err, WW_ERR_SYSTEM, "cannot make a channel for %s", l->path));
	p->namespaces = o->namespaces && ww_sandbox_probe() == WW_SANDBOX_NAMESPACES;
	l->users = o->users && p->namespaces && may_map(FIRST_USER, USERS);
	int nobody = o->nobody && p->namespaces && may_map(NOBODY, 1);
	if ((nobody && (l->program = open(l->path, O_PATH | O_CLOEXEC)) < 0) ||
		((nobody || l->users) && pipe2(l->mapped, O_CLOEXEC) < 0))
		WW_TRY(ww_err_errno(err, WW_ERR_SYSTEM, "cannot start %s", l->path));
	l->sock = pair[1], l->err_w = errs[1], l->report = report[1];
	l->uid = geteuid(), l->gid = getegid();
	p->pid = start(l, p->namespaces);
	if (p->pid < 0) {
		p->pid = 0;
		rc = ww_err_errno(err, WW_ERR_SYSTEM, "cannot start %s", l->path);
		goto out;
	}
	ww_fd_close(&report[1]);
	int e = exec_result(report[0]);
	p->fd = pair[0], p->err_fd = errs[0];
	pair[0] = errs[0] = -1;
	if (e) {
		ww_proc_kill(p);
		errno = e;
		rc = ww_err_errno(err, e == ENOENT ? WW_ERR_MISSING : WW_ERR_SYSTEM, "cannot start %s", l->path);
	}
out:
	for (int i = 0; i < 2; i++) {
		ww_fd_close(&pair[i]);
		ww_fd_close(&errs[i]);
		ww_fd_close(&report[i]);
		ww_fd_close(&l->mapped[i]);
	}
	ww_fd_close(&l->program);
	ww_fd_close(&l->group);
	free(l);
	if (rc != WW_OK)
		ww_cgroup_end(&p->cgroup);
	return rc;
}

/* ---- Ending ------------------------------------------------------------------------------------------------------ */

static void close_fds(struct ww_proc *p)
{
	ww_fd_close(&p->fd);
	ww_fd_close(&p->err_fd);
	ww_cgroup_end(&p->cgroup);
	ww_fd_close(&p->pidfd);
	ww_fd_close(&p->status_fd);
}

static int forked_has_ended(const struct ww_proc *p, int timeout_ms)
{
	struct pollfd f = { .fd = p->pidfd, .events = POLLIN };
	return poll(&f, 1, timeout_ms) > 0;
}

/* As waitpid() has it, from what its parent reports when it has reaped it. */
static int forked_status(const struct ww_proc *p)
{
	struct ww_job_end end = { WW_JOB_SIGNALED, SIGKILL };
	struct ww_err ignored = WW_ERR_INIT;
	(void)!ww_fd_read(p->status_fd, &end, sizeof(end), ww_now_ns() + 1000000000u, &ignored);
	return end.how == WW_JOB_SIGNALED ? end.code & 0x7f : (end.code & 0xff) << 8;
}

/* It is the first of its pid namespace: all that it started ends with it. */
static void kill_forked(struct ww_proc *p)
{
	syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	(void)forked_has_ended(p, -1);
	(void)forked_status(p); /* its parent has reaped it */
	p->pid = 0;
	close_fds(p);
}

void ww_proc_kill(struct ww_proc *p)
{
	int status;
	if (p->pidfd >= 0) {
		kill_forked(p);
		return;
	}
	if (p->pid > 0) {
		kill(-p->pid, SIGKILL); /* its session's first process group; fails before setsid(), hence also: */
		kill(p->pid, SIGKILL);
		while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
			;
	}
	p->pid = 0;
	close_fds(p);
}

int ww_proc_alive(const struct ww_proc *p)
{
	siginfo_t si = { 0 };
	if (p->pidfd >= 0)
		return !forked_has_ended(p, 0);
	return p->pid > 0 && waitid(P_PID, (id_t)p->pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid == 0;
}

enum ww_rc ww_proc_wait(struct ww_proc *p, uint64_t deadline_ns, int *status, struct ww_err *err)
{
	*status = 0;
	if (p->pid <= 0)
		return WW_OK;
	for (unsigned us = 50; ww_proc_alive(p); us = us < 5000 ? 2 * us : us) {
		if (deadline_ns && ww_now_ns() >= deadline_ns)
			return ww_err_set(err, WW_ERR_TIMEOUT, "process %d still runs", (int)p->pid);
		usleep(us);
	}
	if (p->pidfd >= 0) {
		*status = forked_status(p);
	} else {
		kill(-p->pid, SIGKILL); /* what it left in its group, before the id can be reused */
		while (waitpid(p->pid, status, 0) < 0 && errno == EINTR)
			;
	}
	p->pid = 0;
	close_fds(p);
	return WW_OK;
}

void ww_proc_status_text(int status, struct ww_str *out)
{
	if (WIFSIGNALED(status))
		ww_str_addf(out, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		ww_str_addf(out, "exited with code %d", WEXITSTATUS(status));
}

/* ---- Watching ---------------------------------------------------------------------------------------------------- */

char ww_proc_state(const char *stat)
{
	const char *p = strrchr(stat, ')');
	return p && p[1] ? p[2] : 'X';
}

static uint64_t field_kib(const char *status, const char *name)
{
	const char *at = strstr(status, name);
	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* The pages of the memory behind a mapping, whether they are mapped or not; where the kernel shows that to root alone
 * and we are not, the mapping's length. */
static uint64_t behind_mapping(pid_t pid, unsigned long long from, unsigned long long to)
{
	char path[96];
	struct stat st;
	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)pid, from, to);
	return stat(path, &st) == 0 ? (uint64_t)st.st_blocks * 512 : to - from;
}

/* Shared anonymous memory that pid has mapped: pages that were given back with MADV_DONTNEED, or unmapped beside others
 * of the same memory, stay, and no count of the kernel's shows them. */
static uint64_t shared_anonymous_bytes(pid_t pid)
{
	char path[64], line[PATH_MAX + 128];
	uint64_t sum = 0, last = 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		unsigned long long from, to, inode;
		char shared;
		if (!strstr(line, " /dev/zero (deleted)") ||
			sscanf(line, "%llx-%llx %*3c%c %*s %*s %llu", &from, &to, &shared, &inode) != 4 || shared != 's')
			continue;
		if (inode != last) /* the next lines may be the same memory, mapped again */
			sum += behind_mapping(pid, from, to);
		last = inode;
	}
	if (f)
		fclose(f);
	return sum;
}

uint64_t ww_proc_memory_bytes(pid_t pid, int shared)
{
	char path[64], text[4096];
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	(void)ww_fs_peek(AT_FDCWD, path, text, sizeof(text));
	uint64_t bytes = (field_kib(text, "\nVmRSS:") + field_kib(text, "\nVmSwap:") + field_kib(text, "\nVmPTE:")) << 10;
	if (!shared)
		return bytes;
	uint64_t mapped = field_kib(text, "\nRssShmem:") << 10, whole = shared_anonymous_bytes(pid);
	return bytes + (whole > mapped ? whole - mapped : 0);
}

int ww_proc_shares_memory(pid_t parent, pid_t child) { return syscall(SYS_kcmp, parent, child, KCMP_VM, 0, 0) == 0; }

/* ---- Trees ------------------------------------------------------------------------------------------------------- */

enum { CHILDREN_BYTES = 1 << 17 }; /* a list of WW_PROC_TREE_MAX */

struct found {
	int n, living, tasks;
	struct {
		pid_t parent, pid; /* parent: 0 of the first */
		int lives;
	} all[WW_PROC_TREE_MAX + 1];
	char kids[CHILDREN_BYTES];
};

static int is_full(const struct found *f) { return f->n > WW_PROC_TREE_MAX || f->tasks > WW_PROC_TREE_MAX; }

static void add_process(struct found *f, pid_t parent, pid_t pid)
{
	if (f->n > WW_PROC_TREE_MAX)
		return;
	f->all[f->n].parent = parent;
	f->all[f->n++].pid = pid;
}

static int thread_lives(int tasks, const char *thread)
{
	char path[64], text[1024];
	snprintf(path, sizeof(path), "%.20s/stat", thread);
	return ww_fs_peek(tasks, path, text, sizeof(text)) && !strchr("ZX", ww_proc_state(text));
}

/* Those that a thread has started, as the kernel lists them; dead ones that nobody has reaped among them. */
static void add_children(struct found *f, pid_t pid, int tasks, const char *thread)
{
	char path[64];
	int used = 0, kid;
	snprintf(path, sizeof(path), "%.20s/children", thread);
	if (ww_fs_peek(tasks, path, f->kids, CHILDREN_BYTES) == CHILDREN_BYTES - 1)
		f->n = WW_PROC_TREE_MAX + 1;
	for (const char *p = f->kids; !is_full(f) && sscanf(p, "%d%n", &kid, &used) == 1; p += used)
		add_process(f, pid, kid);
}

/* Its threads, whether one of them lives (the first, which the process's own state is of, may have ended before the
 * others), and its children. */
static void look_at(struct found *f, int i)
{
	char path[64];
	pid_t pid = f->all[i].pid;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	for (struct dirent *e; d && !is_full(f) && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		f->tasks++;
		f->all[i].lives |= thread_lives(dirfd(d), e->d_name);
		add_children(f, pid, dirfd(d), e->d_name);
	}
	f->living += f->all[i].lives;
	if (d)
		closedir(d);
}

/* Asked before its memory is read: between the two it can only stop sharing, by exec(). */
static uint64_t own_memory(const struct found *f, int i, enum ww_proc_memory memory)
{
	pid_t parent = f->all[i].parent, pid = f->all[i].pid;
	return f->all[i].lives && (!parent || !ww_proc_shares_memory(parent, pid))
		? ww_proc_memory_bytes(pid, memory == WW_PROC_SHARED)
		: 0;
}

/* The tree is followed by generation, not by branch: a chain of processes costs neither stack nor descriptors.  Memory
 * is read behind the count: it takes so long that a fork bomb would grow faster. */
struct ww_proc_tree ww_proc_tree(pid_t pid, enum ww_proc_memory memory)
{
	struct ww_proc_tree t = { WW_PROC_TREE_MAX + 1, WW_PROC_TREE_MAX + 1, UINT64_MAX };
	struct found *f = calloc(1, sizeof(*f));
	if (f && pid > 0)
		add_process(f, 0, pid);
	for (int i = 0; f && i < f->n && !is_full(f); i++)
		look_at(f, i);
	if (f && !is_full(f)) {
		t = (struct ww_proc_tree){ f->living, f->tasks, 0 };
		for (int i = 0; memory && i < f->n; i++)
			t.bytes += own_memory(f, i, memory);
	}
	free(f);
	return t;
}

enum { WATCH_MS = 20 };

enum ww_rc ww_proc_read(
	struct ww_proc *p, void *buf, size_t n, uint64_t deadline_ns, uint64_t max_resident_bytes, struct ww_err *err)
{
	char *at = buf;
	while (n) {
		struct pollfd pf = { p->fd, POLLIN, 0 };
		int ready = poll(&pf, 1, WATCH_MS);
		if (ready > 0) {
			ssize_t got = recv(p->fd, at, n, MSG_DONTWAIT);
			if (got < 0 && (errno == EINTR || errno == EAGAIN))
				continue;
			if (got <= 0)
				return ww_err_set(err, WW_ERR_WORKER, "the worker closed its channel");
			at += got;
			n -= (size_t)got;
			continue;
		}
		uint64_t resident = max_resident_bytes ? ww_proc_tree(p->pid, WW_PROC_RESIDENT).bytes : 0;
		if (resident > max_resident_bytes) {
			ww_proc_kill(p);
			return ww_err_set(err, WW_ERR_LIMIT, "the worker used %llu MiB of memory, more than its limit of %llu",
				(unsigned long long)(resident >> 20), (unsigned long long)(max_resident_bytes >> 20));
		}
		if (deadline_ns && ww_now_ns() >= deadline_ns)
			return ww_err_set(err, WW_ERR_TIMEOUT, "the worker did not answer in time");
	}
	return WW_OK;
}
