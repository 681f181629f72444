/* shell_worker.c - the process 1 of a shell's sandbox: starts commands, waits, reports, reaps.
 *
 * A command's output goes to an unlinked file of the workspace's file system.  So it counts against the same limit as
 * everything else, no reader can block it, and it can be read while it grows.  Each command is a session of its own;
 * its group is killed when its bash ends.  The kernel's limits are per process, so the memory of all processes together
 * is summed up here every 20 ms, through a /proc that no command can reach.
 *
 * Tools that commands call (calls.h) are passed on while the parent waits for a reply, and at no other time: what an
 * episode does then remains a sequence.  A job's call that comes in between waits for the next bash or bash_output.
 * While a call is under way no command's time runs.
 *
 * A second thread stops and continues everything here (host/pause.h).  The first has the lock `awake` except where it
 * waits, and the second has it while everything is stopped: so nothing is started meanwhile, and no command's time
 * runs. This process's own filter lets it continue what it has stopped; its commands load a stricter one.
 */
#include "agent/shell/calls.h"
#include "agent/shell/prepare.h"
#include "agent/shell/shell.h"
#include "agent/shell/wire.h"

#include "base/fdpass.h"
#include "base/fs.h"
#include "base/time.h"
#include "host/pause.h"
#include "sandbox/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONTROL_FD = WW_PROC_FIRST_EXTRA_FD, PACK_FD };
enum {
	WATCH_MS = 20,
	GROUP_DIES_MS = 2000,
	STOPS_MS = 1500,
	VFORKS_MS = 20,
	JOBS_MAX = 16,
	STATE_FD = 9,
	MAX_ENV = 512,
	FORK_TRIES = 1000,
	FORK_US = 1000
};
enum { TREE_BYTES = 64 << 20, TREE_ENTRIES = 4096, PROCESSES = 64, FILES = 256, CPU_S = 900 };
static const int64_t max_bytes = INT64_C(1048576) * WW_SHELL_MEMORY_MIB;
static int proc_fd = -1; /* /proc of our own processes; it is mounted nowhere that they see */
static int tree_fd = -1; /* /workspace */

struct used {
	int64_t sum, most; /* bytes */
	char name[16];     /* of the process with most */
};

struct job {
	unsigned id;
	pid_t pid;
	int out, status;
	struct used used;
};
static struct job jobs[JOBS_MAX];
static struct ww_shell_calls calls;

/* Runs in bash around every command: the state is written at its end, wherever that is. */
static const char around[] = "trap '{ printf \"%s\\0\" \"$PWD\"; env -0; } >&9 2>/dev/null' EXIT\neval \"$1\"";

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Before the private root covers everything: a /proc that only this descriptor leads to. */
static enum ww_rc open_proc(struct ww_err *err)
{
	if (!ww_sandbox_private_dir() || mount("proc", "/sys", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
		(proc_fd = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return ww_err_errno(err, WW_ERR_MISSING,
			"this system does not allow the namespaces that the shell's sandbox needs (see warpwright doctor)");
	return WW_OK;
}

static int64_t resident_of(const char *pid)
{
	char path[64], text[64];
	long long total, resident;
	snprintf(path, sizeof(path), "%.32s/statm", pid);
	WW_AUTO(ww_fd_close) int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
	text[n > 0 ? n : 0] = 0;
	return sscanf(text, "%lld %lld", &total, &resident) == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

static void name_of(const char *pid, char name[16])
{
	char path[64];
	snprintf(path, sizeof(path), "%.32s/comm", pid);
	int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, name, 15) : 0;
	ww_fd_close(&fd);
	name[n > 0 ? n - 1 : 0] = 0; /* its newline */
}

static void add_process(const char *pid, struct used *u)
{
	int64_t bytes = resident_of(pid);
	u->sum += bytes;
	if (bytes > u->most) {
		u->most = bytes;
		name_of(pid, u->name);
	}
}

/* Sum the memory of all processes of the sandbox.  Above the limit all are killed, and the reply says so. */
static void watch_memory(void)
{
	static uint64_t looked_ns;
	struct used u = { 0 };
	if (ww_now_ns() - looked_ns < WATCH_MS * UINT64_C(1000000))
		return;
	looked_ns = ww_now_ns();
	int fd = openat(proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			add_process(e->d_name, &u);
	if (d)
		closedir(d);
	if (u.sum <= max_bytes)
		return;
	kill(-1, SIGKILL); /* every process but this one */
	for (int i = 0; i < JOBS_MAX; i++)
		if (jobs[i].pid > 0)
			jobs[i].used = u;
}

/* ---- Stopping ---------------------------------------------------------------------------------------------------- */

static pthread_mutex_t awake = PTHREAD_MUTEX_INITIALIZER;

/* Wait for a message of the parent, or for a time.  Returns for how long the sandbox was stopped meanwhile, in ns. */
static uint64_t rest(const struct timespec *t, int *readable)
{
	struct pollfd pf = { WW_PROC_FD, POLLIN, 0 };
	pthread_mutex_unlock(&awake);
	int n = ppoll(&pf, readable ? 1 : 0, t, NULL);
	uint64_t now = ww_now_ns();
	pthread_mutex_lock(&awake);
	if (readable)
		*readable = n != 0;
	return ww_now_ns() - now;
}

static uint64_t nap(unsigned us) { return rest(&(struct timespec){ 0, us * 1000L }, NULL); }

static int parent_asks(void)
{
	int readable;
	rest(&(struct timespec){ 0, WATCH_MS * 1000000L }, &readable);
	return readable;
}

struct looked {
	int running, waiting; /* threads that run; threads that wait in the kernel, where no signal reaches them */
};

/* Its state is the first letter behind the name, which may hold any character. */
static void look_at_thread(int task, const char *tid, struct looked *l)
{
	char path[64], text[512];
	snprintf(path, sizeof(path), "%.16s/stat", tid);
	WW_AUTO(ww_fd_close) int fd = openat(task, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
	text[n > 0 ? n : 0] = 0;
	const char *at = strrchr(text, ')');
	char state = at && at[1] ? at[2] : 'X';
	l->running += !strchr("TtZXD", state);
	l->waiting += state == 'D';
}

static void look_at_process(int proc, const char *pid, struct looked *l)
{
	char path[64];
	snprintf(path, sizeof(path), "%.16s/task", pid);
	int fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.')
			look_at_thread(dirfd(d), e->d_name, l);
	if (d)
		closedir(d);
}

static struct looked look_at_all(void)
{
	struct looked l = { 0 };
	int fd = openat(proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && strcmp(e->d_name, "1"))
			look_at_process(dirfd(d), e->d_name, &l);
	if (d)
		closedir(d);
	return l;
}

/* The kernel signals all processes at once, forks that are under way among them.  A process that waits in vfork() for a
 * stopped child cannot stop, and does not run.  A process that does not stop in time is killed. */
static void stop_all(void)
{
	uint64_t begun = ww_now_ns();
	for (unsigned us = 100;; us = us < 4000 ? 2 * us : us) {
		if (kill(-1, SIGSTOP) < 0 && errno == ESRCH)
			return;
		struct looked l = look_at_all();
		uint64_t ms = (ww_now_ns() - begun) / 1000000;
		if (!l.running && (!l.waiting || ms > VFORKS_MS))
			return;
		if (ms > STOPS_MS) {
			kill(-1, SIGKILL);
			return;
		}
		usleep(us);
	}
}

static void *obey(void *unused)
{
	for (char what; read(CONTROL_FD, &what, 1) == 1;) {
		if (what == WW_PAUSE_STOP) {
			pthread_mutex_lock(&awake);
			stop_all();
			if (write(CONTROL_FD, &what, 1) != 1)
				break;
		} else {
			kill(-1, SIGCONT);
			pthread_mutex_unlock(&awake);
		}
	}
	_exit(0);
	return unused;
}

/* The sandbox begins stopped: wait for the first "go on". */
static int open_control(void)
{
	pthread_t t;
	char go;
	if (read(CONTROL_FD, &go, 1) != 1 || go != WW_PAUSE_GO)
		return -1;
	pthread_mutex_lock(&awake);
	return pthread_create(&t, NULL, obey, NULL) == 0 ? 0 : -1;
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

/* Output and state of a command, made before the first: a tree that is full must not keep out the command that clears
 * it. */
static int spare_out = -1, spare_state = -1;

static int unnamed_file(const char *name, int spare)
{
	unlink(name);
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_APPEND, 0600);
	if (fd >= 0)
		unlink(name);
	else if (spare >= 0 && ftruncate(spare, 0) == 0)
		fd = fcntl(spare, F_DUPFD_CLOEXEC, 0);
	return fd;
}

static void become(char *const *envp, const char *command, const char *dir, int out, int state)
{
	char *argv[] = { (char *)"bash", (char *)"--noprofile", (char *)"--norc", (char *)"-c", (char *)(uintptr_t)around,
		(char *)"bash", (char *)(uintptr_t)command, NULL };
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setsid();
	int null = open("/dev/null", O_RDWR);
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 ||
		(state >= 0 &&
			(dup2(state, STATE_FD) < 0 ||
				fcntl(STATE_FD, F_SETFD, 0) < 0))) /* the descriptor may have that number already */
		_exit(126);
	if (null > 2 && null != STATE_FD)
		close(null);
	struct rlimit memory = { (rlim_t)max_bytes, (rlim_t)max_bytes };
	struct ww_err err = WW_ERR_INIT;
	if ((chdir(dir) < 0 && chdir("/workspace") < 0) || ww_sandbox_filter(WW_PROFILE_SHELL, &err) != WW_OK ||
		setrlimit(RLIMIT_AS, &memory) < 0)
		_exit(126);
	execve("/bin/bash", argv, envp);
	_exit(127);
}

/* Reap what has ended.  Process 1 is the parent of every orphan. */
static void reap(void)
{
	int status;
	for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
		for (int i = 0; i < JOBS_MAX; i++)
			if (jobs[i].pid == pid) {
				kill(-pid, SIGKILL);
				jobs[i].pid = 0;
				jobs[i].status = status;
			}
}

/* Where other processes use up the limit on processes they are killed, since no command could start to end them. */
static pid_t fork_command(void)
{
	pid_t pid;
	for (int i = 0; (pid = fork()) < 0 && errno == EAGAIN && i < FORK_TRIES; i++) {
		kill(-1, SIGKILL);
		usleep(FORK_US);
		reap();
	}
	return pid;
}

/* -1 and errno where it cannot be started. */
static int start_command(struct job *j, const char *text, size_t n, int state)
{
	char *envp[MAX_ENV + 1];
	const char *dir = text + strlen(text) + 1, *p = dir + strlen(dir) + 1;
	int n_env = 0;
	for (; p < text + n && n_env < MAX_ENV; p += strlen(p) + 1)
		envp[n_env++] = (char *)(uintptr_t)p;
	envp[n_env] = NULL;
	j->out = unnamed_file("/workspace/.out", spare_out);
	if (j->out < 0)
		return -1;
	j->pid = fork_command();
	if (j->pid == 0)
		become(envp, text, dir, j->out, state);
	if (j->pid < 0)
		ww_fd_close(&j->out);
	return j->pid < 0 ? -1 : 0;
}

/* Kill the job's process group, and wait until it is gone: a process that is still ending holds its locks and pipes. */
static void kill_job(struct job *j)
{
	pid_t group = j->pid;
	if (group <= 0)
		return;
	kill(-group, SIGKILL);
	kill(group, SIGKILL);
	for (int i = 0; j->pid > 0 || (i < GROUP_DIES_MS * 2 && kill(-group, 0) == 0); i++) {
		reap();
		nap(500);
	}
}

static struct job *find(unsigned id)
{
	for (int i = 0; i < JOBS_MAX; i++)
		if (jobs[i].id == id)
			return &jobs[i];
	return NULL;
}

static void forget(struct job *j)
{
	ww_fd_close(&j->out);
	memset(j, 0, sizeof(*j));
	j->out = -1;
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static uint32_t add_output(int fd, char *to, uint64_t *total)
{
	struct stat st;
	size_t half = WW_SHELL_OUT_MAX / 2;
	*total = fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	ssize_t n = *total ? pread(fd, to, *total > 2 * half ? half : *total, 0) : 0;
	if (n < 0)
		n = 0;
	if (*total > 2 * half) {
		ssize_t k = pread(fd, to + n, half, (off_t)(*total - half));
		n += k > 0 ? k : 0;
	}
	return (uint32_t)n;
}

static void set_end(struct ww_shell_reply *r, const struct job *j)
{
	r->status = j->status;
	r->used_bytes = (uint64_t)j->used.sum;
	r->most_bytes = (uint64_t)j->used.most;
	memcpy(r->most, j->used.name, sizeof(r->most));
}

/* A command may have removed the permissions of the tree, which this process and the parent need to read it. */
static void give_permissions(void) { (void)fchmod(tree_fd, 0700); }

static void answer(struct ww_shell_reply *r, int out, int state)
{
	static char bytes[WW_SHELL_OUT_MAX + WW_SHELL_STATE_MAX];
	struct ww_err err = WW_ERR_INIT;
	r->n_out = add_output(out, bytes, &r->total);
	ssize_t n = state >= 0 ? pread(state, bytes + r->n_out, WW_SHELL_STATE_MAX, 0) : 0;
	r->n_state = n > 0 && n < WW_SHELL_STATE_MAX && !bytes[r->n_out + (size_t)n - 1] ? (uint32_t)n : 0;
	give_permissions();
	if (ww_fd_write(WW_PROC_FD, r, sizeof(*r), 0, &err) != WW_OK ||
		ww_fd_write(WW_PROC_FD, bytes, r->n_out + r->n_state, 0, &err) != WW_OK)
		_exit(1);
}

/* ---- Calls of tools ---------------------------------------------------------------------------------------------- */

/* Pass a call on, if there is one. */
static int begin_call(void)
{
	char words[WW_SHELL_CALL_MAX];
	struct ww_err err = WW_ERR_INIT;
	size_t n = ww_shell_calls_take(&calls, words);
	struct ww_shell_reply r = { .call = 1, .total = n, .n_out = (uint32_t)n };
	if (n &&
		(ww_fd_write(WW_PROC_FD, &r, sizeof(r), 0, &err) != WW_OK ||
			ww_fd_write(WW_PROC_FD, words, n, 0, &err) != WW_OK))
		_exit(1);
	return n > 0;
}

static void end_call(void)
{
	static char text[WW_SHELL_ANSWER_MAX];
	struct ww_shell_ask q;
	struct ww_err err = WW_ERR_INIT;
	if (ww_fd_read(WW_PROC_FD, &q, sizeof(q), 0, &err) != WW_OK || q.op != WW_SHELL_ANSWER || q.n > sizeof(text) ||
		ww_fd_read(WW_PROC_FD, text, q.n, 0, &err) != WW_OK)
		_exit(0);
	ww_shell_calls_answer(&calls, q.id, text, q.n);
}

/* Serve one call to its end, if there is one.  Returns how long that took, in ns. */
static uint64_t serve_call(void)
{
	uint64_t start = ww_now_ns();
	if (!begin_call())
		return 0;
	while (!parent_asks()) {
		reap();
		watch_memory();
	}
	end_call();
	return ww_now_ns() - start;
}

/* ---- Commands of the parent -------------------------------------------------------------------------------------- */

static void run(const struct ww_shell_ask *q, const char *text, struct job *j)
{
	struct ww_shell_reply r = { .exists = 1 };
	uint64_t deadline = ww_now_ns() + q->timeout_ms * UINT64_C(1000000);
	WW_AUTO(ww_fd_close) int state = unnamed_file("/workspace/.state", spare_state);
	if (state < 0 || start_command(j, text, q->n, state) < 0) {
		r.status = 126 << 8;
		goto out;
	}
	j->id = q->id;
	for (unsigned us = 200; j->pid > 0; us = us < 4000 ? 2 * us : us) {
		reap();
		watch_memory();
		if (j->pid > 0)
			deadline += serve_call();
		if (j->pid > 0 && ww_now_ns() >= deadline) {
			r.timed_out = 1;
			kill_job(j);
		}
		if (j->pid > 0)
			deadline += nap(us);
	}
	set_end(&r, j);
out:
	answer(&r, j->out, state);
	forget(j);
}

static void start(const struct ww_shell_ask *q, const char *text, struct job *j)
{
	struct ww_shell_reply r = { .exists = 1, .running = 1 };
	if (start_command(j, text, q->n, -1) == 0)
		j->id = q->id;
	else
		r = (struct ww_shell_reply){ .exists = 1, .status = 126 << 8 };
	answer(&r, -1, -1);
}

static void look(const struct ww_shell_ask *q)
{
	struct job *j = q->id ? find(q->id) : NULL;
	struct ww_shell_reply r = { .exists = j != NULL };
	if (j && q->op == WW_SHELL_KILL)
		kill_job(j);
	serve_call();
	reap();
	if (j) {
		r.running = j->pid > 0;
		set_end(&r, j);
	}
	answer(&r, j ? j->out : -1, -1);
	if (j && !r.running)
		forget(j);
}

/* A refusal of the tree is reported as output. */
static void put(const struct ww_workspace *tree, const char *text, size_t n)
{
	ww_auto_str why = WW_STR_INIT(512);
	struct ww_err err = WW_ERR_INIT;
	struct ww_shell_reply r = { .exists = 1 };
	const char *file = text + strlen(text) + 1;
	if (!ww_workspace_is_path(text, &why) || file > text + n)
		_exit(1);
	if (ww_workspace_write(tree, text, file, (size_t)(text + n - file), &why, &err) != WW_OK)
		ww_str_adds(&why, err.msg);
	r.total = r.n_out = (uint32_t)why.len;
	if (ww_fd_write(WW_PROC_FD, &r, sizeof(r), 0, &err) != WW_OK ||
		ww_fd_write(WW_PROC_FD, why.p, why.len, 0, &err) != WW_OK)
		_exit(1);
}

static void serve(void)
{
	const struct ww_workspace tree = { .dirfd = tree_fd, .unlimited = 1 };
	static char text[WW_WORKSPACE_FILE_BYTES + WW_WORKSPACE_PATH_BYTES + 2];
	struct ww_shell_ask q;
	struct ww_err err = WW_ERR_INIT;
	spare_out = unnamed_file("/workspace/.out", -1);
	spare_state = unnamed_file("/workspace/.state", -1);
	for (;;) {
		while (!parent_asks()) {
			reap();
			watch_memory();
		}
		give_permissions();
		if (ww_fd_read(WW_PROC_FD, &q, sizeof(q), 0, &err) != WW_OK || q.n > sizeof(text) - 1 ||
			ww_fd_read(WW_PROC_FD, text, q.n, 0, &err) != WW_OK)
			_exit(0);
		text[q.n] = 0;
		struct job *j = find(0);
		if (q.op == WW_SHELL_PUT)
			put(&tree, text, q.n);
		else if (q.op >= WW_SHELL_LOOK)
			look(&q);
		else if (!j)
			answer(&(struct ww_shell_reply){ .exists = 0 }, -1, -1);
		else if (q.op == WW_SHELL_RUN)
			run(&q, text, j);
		else
			start(&q, text, j);
	}
}

/* ---- Beginning --------------------------------------------------------------------------------------------------- */

static int prepare(void *ctx, const char *root)
{
	const int *pack_fd = ctx;
	return ww_shell_calls_make(root) < 0 || (*pack_fd >= 0 && ww_shell_prepare_skill(root, *pack_fd) < 0) ? -1 : 0;
}

static enum ww_rc confine(int *pack_fd, struct ww_err *err)
{
	/* Not /usr/local, where we may be installed ourselves. */
	static const struct ww_sandbox_bind binds[] = { { "/usr/bin", WW_BIND_READ }, { "/usr/sbin", WW_BIND_READ },
		{ "/usr/lib", WW_BIND_READ }, { "/usr/lib64", WW_BIND_READ }, { "/usr/libexec", WW_BIND_READ },
		{ "/usr/include", WW_BIND_READ }, { "/usr/share", WW_BIND_READ }, { "/bin", WW_BIND_READ },
		{ "/lib", WW_BIND_READ }, { "/lib64", WW_BIND_READ }, { "/etc/alternatives", WW_BIND_READ },
		{ "/etc/ld.so.cache", WW_BIND_READ }, { "/dev/null", WW_BIND_DEVICE }, { "/dev/zero", WW_BIND_DEVICE },
		{ "/dev/urandom", WW_BIND_DEVICE }, { "/dev/random", WW_BIND_DEVICE } };
	const struct ww_sandbox_opts o = { .profile = WW_PROFILE_SHELL,
		.binds = binds,
		.n_binds = WW_ARRAY_LEN(binds),
		.tmp = "/workspace",
		.tmp_bytes = TREE_BYTES,
		.tmp_entries = TREE_ENTRIES,
		.prepare = prepare,
		.prepare_ctx = pack_fd,
		.limits = { .file_bytes = WW_SHELL_FILE_BYTES, .cpu_s = CPU_S, .files = FILES, .processes = PROCESSES } };
	enum ww_sandbox_level reached;
	enum ww_rc rc = ww_sandbox_isolate(&o, &reached, err);
	if (rc == WW_OK && reached != WW_SANDBOX_NAMESPACES)
		rc = ww_err_set(err, WW_ERR_MISSING,
			"this system does not allow the namespaces that the shell's sandbox needs (see warpwright doctor)");
	if (rc == WW_OK && access("/bin/bash", X_OK) < 0)
		rc = ww_err_set(err, WW_ERR_MISSING, "there is no /bin/bash");
	return rc;
}

/* The tree's descriptor to the parent; a message without one is a failure, and its text says which. */
static int send_tree(int fd, const char *text)
{
	char line[256] = "";
	struct iovec bytes = { line, sizeof(line) };
	snprintf(line, sizeof(line), "%s", text);
	return ww_fdpass_send(WW_PROC_FD, &bytes, 1, &fd, fd >= 0, 0) == (ssize_t)sizeof(line) ? 0 : -1;
}

int ww_shell_main(int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	int pack_fd = argc > 0 && !strcmp(argv[0], "skill") ? PACK_FD : -1;
	fcntl(WW_PROC_FD, F_SETFD, FD_CLOEXEC);
	fcntl(CONTROL_FD, F_SETFD, FD_CLOEXEC);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < JOBS_MAX; i++)
		jobs[i].out = -1;
	enum ww_rc rc = open_proc(&err);
	if (rc == WW_OK)
		rc = confine(&pack_fd, &err);
	ww_fd_close(&pack_fd);
	tree_fd = rc == WW_OK ? open("/workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	umask(022);
	(void)!nice(10); /* other processes of the machine come first */
	int has_skill = access("/skill", F_OK) == 0;
	if (tree_fd >= 0 &&
		(mkdirat(tree_fd, ".tmp", 0700) < 0 || (has_skill && symlinkat("/skill", tree_fd, "skill") < 0) ||
			ww_shell_calls_open(&calls) < 0 || chdir("/workspace") < 0))
		ww_fd_close(&tree_fd);
	if (rc == WW_OK && tree_fd >= 0 &&
		((rc = ww_sandbox_filter_prepare(WW_PROFILE_SHELL, &err)) != WW_OK ||
			(rc = ww_sandbox_filter(WW_PROFILE_SHELL_INIT, &err)) != WW_OK))
		ww_fd_close(&tree_fd);
	if (send_tree(tree_fd, rc == WW_OK ? "cannot open the workspace" : err.msg) < 0 || tree_fd < 0 ||
		open_control() < 0)
		_exit(1);
	serve();
	return 0;
}
