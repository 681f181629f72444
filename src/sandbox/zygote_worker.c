/* zygote_worker.c - the worker's side of zygote.h: warm up once, then fork for every job, watch, reap, report.
 *
 * One thread, one ppoll() loop.  SIGCHLD is blocked except inside ppoll(), so a child's end always wakes the loop and
 * never interrupts anything else.  A finished job is looked at with WNOWAIT first: while it is a zombie its number
 * cannot be reused, and the group is killed before it is reaped.  Orphans of jobs become our children
 * (PR_SET_CHILD_SUBREAPER, or because we are process 1) and are reaped and not reported.
 */
#include "sandbox/zygote.h"

#include "base/fdpass.h"
#include "base/fs.h"
#include "base/time.h"
#include "sandbox/proc.h"
#include "sandbox/zygote_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_JOBS = 256 };

struct job {
	pid_t pid;
	int status_fd;
	uint64_t deadline_ns;
	int timed_out;
	char dir[PATH_MAX]; /* its working directory, "" for none */
};

struct server {
	const struct ww_zygote_worker *w;
	struct job jobs[MAX_JOBS];
	int n_jobs;
	int closing; /* the parent is gone */
};

void ww_job_reply_add(struct ww_job_reply *r, const void *bytes, size_t n)
{
	if (n > r->max - r->len) {
		n = r->max - r->len;
		r->cut = 1;
	}
	if (n)
		memcpy(r->p + r->len, bytes, n);
	r->len += n;
}

/* The length stands in the eight bytes before the reply. */
void ww_job_reply_commit(struct ww_job_reply *r)
{
	uint64_t n = r->len;
	memcpy(r->p - sizeof(n), &n, sizeof(n));
}

/* ---- In the job's process ---------------------------------------------------------------------------------------- */

/* Report that the job could not be set up.  Only before it has read any untrusted input: until then this process is
 * trusted. */
static void not_started(int status_fd, int e)
{
	struct ww_job_end end = { WW_JOB_NOT_STARTED, e };
	if (write(status_fd, &end, sizeof(end)) < 0)
		_exit(126);
	_exit(127);
}

static int run_job(
	const struct ww_zygote_worker *w, const struct ww_zygote_order *o, int request_fd, int reply_fd, int status_fd)
{
	struct ww_err err = WW_ERR_INIT;
	size_t reply_size = o->max_reply + sizeof(uint64_t);
	unsigned char *reply = mmap(NULL, reply_size, PROT_READ | PROT_WRITE, MAP_SHARED, reply_fd, 0);
	const unsigned char *request = (const unsigned char *)"";
	if (o->request_bytes)
		request = mmap(NULL, o->request_bytes, PROT_READ, MAP_PRIVATE, request_fd, 0);
	if (reply == MAP_FAILED || request == MAP_FAILED || dup2(status_fd, WW_PROC_FD) < 0)
		not_started(status_fd, errno);
	syscall(SYS_close_range, WW_PROC_FD + 1, ~0u, 0);
	if (w->enter(w->ctx, &err) != WW_OK)
		not_started(WW_PROC_FD, errno);
	close(WW_PROC_FD); /* from here on this process cannot report how it ends */
	struct ww_job_reply r = { reply + sizeof(uint64_t), 0, o->max_reply, 0 };
	int code = w->job(w->ctx, request, o->request_bytes, &r);
	ww_job_reply_commit(&r);
	return code;
}

static void job_process(const struct ww_zygote_worker *w, const struct ww_zygote_order *o, const struct job *j,
	int request_fd, int reply_fd, pid_t parent)
{
	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++) /* a crash must be a signal, also where a sanitizer would print and exit */
		signal(s, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || (j->dir[0] && chdir(j->dir) < 0))
		not_started(j->status_fd, errno);
	_exit(run_job(w, o, request_fd, reply_fd, j->status_fd));
}

/* ---- In the zygote ----------------------------------------------------------------------------------------------- */

static void end_job(struct server *s, struct job *j, struct ww_job_end end)
{
	struct ww_err ignored = WW_ERR_INIT;
	if (j->dir[0])
		(void)!ww_fs_remove_tree(j->dir, &ignored);
	if (write(j->status_fd, &end, sizeof(end)) < 0)
		s->closing |= errno != EPIPE; /* EPIPE: the caller has gone */
	ww_fd_close(&j->status_fd);
	*j = s->jobs[--s->n_jobs];
}

static struct job *find_job(struct server *s, pid_t pid)
{
	for (int i = 0; i < s->n_jobs; i++)
		if (s->jobs[i].pid == pid)
			return &s->jobs[i];
	return NULL;
}

static void reap(struct server *s)
{
	for (;;) {
		siginfo_t si = { 0 };
		int status = 0;
		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
			return;
		struct job *j = find_job(s, si.si_pid);
		if (j)
			kill(-j->pid, SIGKILL);
		if (waitpid(si.si_pid, &status, 0) < 0 || !j)
			continue;
		struct ww_job_end end = { WW_JOB_EXITED, WEXITSTATUS(status) };
		if (j->timed_out)
			end = (struct ww_job_end){ WW_JOB_TIMEOUT, 0 };
		else if (WIFSIGNALED(status))
			end = (struct ww_job_end){ WW_JOB_SIGNALED, WTERMSIG(status) };
		end_job(s, j, end);
	}
}

static void kill_late(struct server *s, uint64_t now)
{
	for (int i = 0; i < s->n_jobs; i++)
		if (now >= s->jobs[i].deadline_ns) {
			s->jobs[i].timed_out = 1;
			kill(-s->jobs[i].pid, SIGKILL);
			s->jobs[i].deadline_ns = now + 10000000; /* until it is reaped */
		}
}

static int make_dir(const struct server *s, struct job *j)
{
	j->dir[0] = 0;
	if (!s->w->tmp)
		return 0;
	return (size_t)snprintf(j->dir, sizeof(j->dir), "%s/job-XXXXXX", s->w->tmp) < sizeof(j->dir) && mkdtemp(j->dir)
		? 0
		: -1;
}

static void start_job(struct server *s, const struct ww_zygote_order *o, int fds[3])
{
	struct job *j = &s->jobs[s->n_jobs];
	pid_t self = getpid();
	int ok = make_dir(s, j) == 0;
	if (!ok)
		j->dir[0] = 0;
	j->pid = ok ? fork() : -1;
	j->status_fd = fds[2];
	j->timed_out = 0;
	j->deadline_ns = ww_now_ns() + o->limit_ns;
	if (j->pid == 0)
		job_process(s->w, o, j, fds[0], fds[1], self);
	s->n_jobs++;
	if (j->pid < 0)
		end_job(s, j, (struct ww_job_end){ WW_JOB_NOT_STARTED, errno });
	else
		setpgid(j->pid, j->pid); /* the child does the same; either may come first */
	ww_fd_close(&fds[0]);
	ww_fd_close(&fds[1]);
}

static void take_order(struct server *s)
{
	struct ww_zygote_order o;
	int fds[3], n_fds = 0;
	if (ww_fdpass_receive(WW_PROC_FD, &o, sizeof(o), fds, 3, &n_fds, 0) == (ssize_t)sizeof(o) && n_fds == 3)
		start_job(s, &o, fds);
	else
		s->closing = 1;
}

static int fill_poll(const struct server *s, struct pollfd *pf, struct timespec *wait)
{
	uint64_t now = ww_now_ns(), next = now + 60000000000ull;
	/* With all job slots in use, requests wait in the socket. */
	pf[0] = (struct pollfd){ WW_PROC_FD, s->n_jobs < MAX_JOBS ? POLLIN : 0, 0 };
	for (int i = 0; i < s->n_jobs; i++) {
		pf[i + 1] = (struct pollfd){ s->jobs[i].status_fd, 0, 0 };
		next = s->jobs[i].deadline_ns < next ? s->jobs[i].deadline_ns : next;
	}
	uint64_t ns = next > now ? next - now : 0;
	*wait = (struct timespec){ (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
	return s->n_jobs + 1;
}

static void serve(struct server *s)
{
	static struct pollfd pf[MAX_JOBS + 1];
	sigset_t none;
	sigemptyset(&none);
	while (!s->closing) {
		struct timespec wait;
		int n = fill_poll(s, pf, &wait);
		int ready = ppoll(pf, (nfds_t)n, &wait, &none);
		for (int i = 1; ready > 0 && i < n; i++)
			if (pf[i].revents) /* its reader is gone: the job is not needed any more */
				s->jobs[i - 1].deadline_ns = 0;
		if (ready > 0 && pf[0].revents)
			take_order(s);
		kill_late(s, ww_now_ns());
		reap(s);
	}
	for (int i = 0; i < s->n_jobs; i++)
		kill(-s->jobs[i].pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

static void on_child(int sig) { (void)sig; }

int ww_zygote_serve(const struct ww_zygote_worker *w)
{
	static struct server s;
	struct ww_err err = WW_ERR_INIT;
	struct ww_zygote_ready ready = { 0 };
	struct ww_str hello = WW_STR_INIT(sizeof(ready.text) - 1);
	enum ww_sandbox_level level = WW_SANDBOX_NONE;
	struct sigaction sa = { .sa_handler = on_child };
	sigset_t child;
	s.w = w;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	sigaction(SIGCHLD, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	ready.rc = w->warm(w->ctx, &hello, &level, &err);
	ready.level = level;
	snprintf(ready.text, sizeof(ready.text), "%s", ready.rc == WW_OK ? hello.p : err.msg);
	ww_str_release(&hello);
	if (ww_fd_write(WW_PROC_FD, &ready, sizeof(ready), 0, &err) != WW_OK || ready.rc != WW_OK)
		return 1;
	serve(&s);
	return 0;
}
