/* candidates.c - starts the process that candidates are forked from, and asks it for one.
 *
 * An order is one frame (the bridge's, {"request": "fork", "called": bool, "gpu": bool}) with three descriptors: the
 * candidate's socket, the write end of its log and the write end of its status pipe, on which only the forking process
 * reports how the candidate ended.  The answer is the candidate's own first byte; its credentials, which the kernel
 * translates into our pid namespace, say which process it is.  From then on it is addressed by a pidfd, which cannot
 * mean another process later. */
#include "judge/forms/internal.h"

#include "judge/forms/copies.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/time.h"
#include "base/target.h"
#include "sandbox/proc.h"
#include "sandbox/sandbox.h"
#include "task/bytecode.h"
#include "task/ends.h"
#include "task/ref.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { START_LIMIT_S = 120, FORK_LIMIT_S = 30, GROUP_CANDIDATES = 16 };
static const uint64_t BUILD_MAX_BYTES = 16ull << 30;

struct patience {
	int fd;
	uint64_t deadline_ns;
};

struct ww_candidates {
	pthread_mutex_t lock; /* proc; held while an order is handed over */
	struct ww_proc proc;
	struct ww_candidates_opts opts;
	struct ww_copies *copies; /* cpu */
	uint32_t next_user;
};

/* Wait for the forking process.  It runs our code only, so a deadline is the only check. */
static enum ww_rc wait_until(void *ctx, short events, struct ww_err *err)
{
	const struct patience *p = ctx;
	return ww_fd_wait(p->fd, events, p->deadline_ns, err);
}

static enum ww_rc no_sandbox(struct ww_err *err)
{
	return ww_err_set(err, WW_ERR_MISSING,
		"solutions in a PyTorch form are judged in namespaces of their own, which this system "
		"does not allow (see warpwright doctor); allow user namespaces, or run where they are");
}

/* The hello frame, which the process sends once PyTorch is imported. */
static enum ww_rc greeting(struct ww_candidates *z, struct ww_err *err)
{
	json_auto_t *body = NULL;
	int n_fds;
	struct patience p = { z->proc.fd, ww_deadline_ns(START_LIMIT_S) };
	enum ww_rc rc = ww_frames_receive(
		&(struct ww_frames){ z->proc.fd, wait_until, &p, 0 }, &body, NULL, 0, &n_fds, err);
	if (rc == WW_OK && !json_is_true(json_object_get(body, "ok")))
		rc = ww_err_set(err, WW_ERR_MISSING, "%.600s",
			ww_json_str(body, "error", "the process that starts PyTorch solutions did not start"));
	else if (rc != WW_OK)
		ww_err_wrap(err, "the process that starts PyTorch solutions did not start");
	return rc;
}

static enum ww_rc start(struct ww_candidates *z, struct ww_err *err)
{
	char python[PATH_MAX], bridge[PATH_MAX], code[PATH_MAX];
	const char *args[] = { python, bridge, ww_target_name(z->opts.target), code, NULL };
	struct ww_proc_opts o = { .worker = "candidates",
		.args = args,
		.namespaces = 1,
		.users = 1,
		.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 10 * 9, /* of all jobs */
		.max_tasks = GROUP_CANDIDATES * ww_candidates_max_tasks(),
		.err_mode = getenv("WARPWRIGHT_LOG") ? WW_STDERR_INHERIT : WW_STDERR_NULL };
	enum ww_rc rc;

	ww_proc_kill(&z->proc);
	if (ww_sandbox_probe() != WW_SANDBOX_NAMESPACES)
		return no_sandbox(err);
	WW_TRY(ww_ref_find_python(python, err));
	WW_TRY(ww_fs_resource("bridge", bridge, err));
	ww_bytecode_dir(python, code);
	WW_TRY(ww_proc_spawn(&z->proc, &o, err));
	if (!z->proc.namespaces) {
		rc = no_sandbox(err);
		goto out;
	}
	rc = greeting(z, err);
out:
	if (rc != WW_OK)
		ww_proc_kill(&z->proc);
	return rc;
}

enum ww_rc ww_candidates_open(struct ww_candidates **out, const struct ww_candidates_opts *o, struct ww_err *err)
{
	struct ww_candidates *z;
	*out = NULL;
	WW_CHECK(WW_NEW(z, 1, err));
	pthread_mutex_init(&z->lock, NULL);
	z->proc = (struct ww_proc)WW_PROC_INIT;
	z->opts = *o;
	z->next_user = (uint32_t)ww_rng_secret(); /* so that those of several judges differ */
	if (!z->opts.max_resident_bytes)
		z->opts.max_resident_bytes = BUILD_MAX_BYTES;
	char python[PATH_MAX];
	enum ww_rc rc = start(z, err);
	if (rc == WW_OK && o->target == WW_TARGET_CPU)
		rc = ww_ref_find_python(python, err);
	if (rc == WW_OK && o->target == WW_TARGET_CPU)
		rc = ww_copies_open(&z->copies, o->store, python, err);
	if (rc != WW_OK) {
		ww_candidates_close(z);
		return rc;
	}
	*out = z;
	return WW_OK;
}

void ww_candidates_close(struct ww_candidates *z)
{
	if (!z)
		return;
	ww_proc_kill(&z->proc);
	ww_copies_close(z->copies);
	pthread_mutex_destroy(&z->lock);
	free(z);
}

/* ---- One candidate ----------------------------------------------------------------------------------------------- */

static enum ww_rc make_ends(struct ww_ends *e, struct ww_err *err)
{
	int on = 1;
	WW_CHECK(ww_ends_open(e, err));
	if (fcntl(e->log[0], F_SETFL, O_NONBLOCK) < 0 ||
		setsockopt(e->sock[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot make a candidate's pipes");
	return WW_OK;
}

/* The first byte, and who wrote it. */
static enum ww_rc meet(struct ww_candidate *c, struct ww_err *err)
{
	union {
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
	};
	struct timeval limit = { FORK_LIMIT_S, 0 }, none = { 0, 0 };
	struct ucred who = { 0 };
	int off = 0;

	setsockopt(c->sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	ssize_t n = recvmsg(c->sock, &m, MSG_CMSG_CLOEXEC);
	setsockopt(c->sock, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	setsockopt(c->sock, SOL_SOCKET, SO_PASSCRED, &off, sizeof(off));
	struct cmsghdr *h = n == 1 ? CMSG_FIRSTHDR(&m) : NULL;
	if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_CREDENTIALS || byte != 'H')
		return ww_err_set(err, WW_ERR_WORKER, "a candidate's process did not start");
	memcpy(&who, CMSG_DATA(h), sizeof(who));
	c->pid = who.pid;
	c->pidfd = (int)syscall(SYS_pidfd_open, who.pid, 0);
	return c->pidfd < 0 ? ww_err_errno(err, WW_ERR_SYSTEM, "cannot open a pidfd for a candidate's process") : WW_OK;
}

int ww_candidates_max_tasks(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	return 256 + 8 * (int)(n < 1 ? 1 : n < 512 ? n : 512);
}

static enum ww_rc order(struct ww_candidates *z, unsigned what, const struct ww_ends *e, struct ww_err *err)
{
	int fds[] = { e->sock[1], e->log[1], e->status[1] };
	enum ww_rc rc = WW_ERR_WORKER;
	WW_LOCKED(&z->lock);
	json_auto_t *q = json_pack("{s:s, s:b, s:b, s:i, s:I}", "request", "fork", "called", what & WW_CANDIDATE_CALLED,
		"gpu", what & WW_CANDIDATE_GPU, "tasks", ww_candidates_max_tasks(), "user", (json_int_t)z->next_user++);
	for (int attempt = 0; attempt < 2 && rc != WW_OK; attempt++) {
		rc = attempt || !ww_proc_alive(&z->proc) ? start(z, err) : WW_OK;
		struct patience p = { z->proc.fd, ww_deadline_ns(FORK_LIMIT_S) };
		if (rc == WW_OK)
			rc = ww_frames_send(&(struct ww_frames){ z->proc.fd, wait_until, &p, 0 }, q, fds, 3, err);
	}
	return rc;
}

enum ww_rc ww_candidate_new(struct ww_candidate **out, struct ww_candidates *z, unsigned what, struct ww_err *err)
{
	struct ww_candidate *c = calloc(1, sizeof(*c));
	struct ww_ends e = WW_ENDS_NONE;
	enum ww_rc rc;

	*out = NULL;
	if (!c)
		return ww_nomem(err);
	c->sock = c->log_fd = c->status_fd = c->pidfd = -1;
	c->gpu = (what & WW_CANDIDATE_GPU) != 0;
	ww_candidate_limit_memory(c, z->opts.max_resident_bytes);
	c->interrupted = z->opts.interrupted;
	c->max_tasks = ww_candidates_max_tasks();
	WW_TRY(make_ends(&e, err));
	WW_TRY(order(z, what, &e, err));
	c->sock = e.sock[0], c->log_fd = e.log[0], c->status_fd = e.status[0];
	e.sock[0] = e.log[0] = e.status[0] = -1;
	ww_ends_close(&e); /* so that the end of the candidate is the end of its pipes */
	WW_TRY(meet(c, err));
	if (z->opts.target == WW_TARGET_CPU && (what & WW_CANDIDATE_CALLED))
		c->sampler = ww_sampler_open(c->pid, z->copies);
	*out = c;
	c = NULL;
out:
	ww_ends_close(&e);
	ww_candidate_free(c);
	return rc;
}
