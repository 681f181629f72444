/* zygote.c - the parent's side of zygote.h: start, hand over jobs, start again. */
#include "sandbox/zygote.h"

#include "base/fdpass.h"
#include "base/fs.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/time.h"
#include "base/tmpdir.h"
#include "sandbox/proc.h"
#include "sandbox/zygote_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_WORKER_ARGS = 16, LOOK_MS = 50 };
static const double warm_limit_s = 60, slack_s = 5;

struct ww_zygote {
	pthread_mutex_t lock; /* guards proc and generation; held while a job is handed over, not while it runs */
	struct ww_proc proc;
	uint64_t generation; /* counts starts */
	char worker[32];
	const char *args[MAX_WORKER_ARGS + 2]; /* the worker's own, after the directory for its jobs */
	struct ww_tmpdir tmp;                  /* made by us where the worker has no private root */
	size_t max_reply;
	const volatile int *interrupted;
	struct ww_zygote_ready ready;
};

/* An interruption ends the wait, not the job: the caller then closes the zygote, which ends the job. */
static enum ww_rc wait_read(const struct ww_zygote *z, int fd, void *out, size_t n, double limit_s, struct ww_err *err)
{
	uint64_t deadline = ww_deadline_ns(limit_s);
	while (z->interrupted) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		if (*z->interrupted)
			return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
		int ready = poll(&p, 1, LOOK_MS);
		if (ready > 0 || (ready < 0 && errno != EINTR) || ww_now_ns() >= deadline)
			break;
	}
	return ww_fd_read(fd, out, n, deadline, err);
}

static enum ww_rc start(struct ww_zygote *z, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct ww_proc_opts po = { .worker = z->worker,
		.args = z->args,
		.namespaces = 1,
		.err_mode = getenv("WARPWRIGHT_LOG") ? WW_STDERR_INHERIT : WW_STDERR_NULL };
	WW_TRY(ww_proc_spawn(&z->proc, &po, err));
	rc = wait_read(z, z->proc.fd, &z->ready, sizeof(z->ready), warm_limit_s, err);
	if (rc == WW_ERR_INTERRUPTED)
		goto out;
	if (rc != WW_OK) {
		ww_err_wrap(err, "the %s process did not start", z->worker);
		goto out;
	}
	z->ready.text[sizeof(z->ready.text) - 1] = 0;
	if (z->ready.rc != WW_OK)
		rc = ww_err_set(
			err, z->ready.rc < WW_RC_COUNT ? (enum ww_rc)z->ready.rc : WW_ERR_PROTOCOL, "%s", z->ready.text);
	z->generation++;
out:
	if (rc != WW_OK)
		ww_proc_kill(&z->proc);
	return rc;
}

/* Where the worker's jobs find their directories. */
static enum ww_rc make_tmp(struct ww_zygote *z, const char **path, struct ww_err *err)
{
	if (ww_sandbox_probe() == WW_SANDBOX_NAMESPACES) {
		*path = WW_ZYGOTE_TMP;
		return WW_OK;
	}
	enum ww_rc rc = ww_tmpdir_new(&z->tmp, z->worker, err);
	*path = z->tmp.path;
	return rc;
}

enum ww_rc ww_zygote_open(struct ww_zygote **out, const struct ww_zygote_opts *o, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	int n = 1;
	struct ww_zygote *z;
	*out = NULL;
	WW_CHECK(WW_NEW(z, 1, err));
	pthread_mutex_init(&z->lock, NULL);
	z->proc = (struct ww_proc)WW_PROC_INIT;
	z->tmp = (struct ww_tmpdir)WW_TMPDIR_INIT;
	z->max_reply = o->max_reply_bytes;
	z->interrupted = o->interrupted;
	snprintf(z->worker, sizeof(z->worker), "%s", o->worker);
	WW_TRY(make_tmp(z, &z->args[0], err));
	for (const char *const *a = o->args; a && *a; a++) {
		WW_BUG(n > MAX_WORKER_ARGS);
		if (!(z->args[n++] = strdup(*a)))
			WW_TRY(ww_nomem(err));
	}
	WW_TRY(start(z, err));
	*out = z;
	z = NULL;
out:
	ww_zygote_close(z);
	return rc;
}

void ww_zygote_close(struct ww_zygote *z)
{
	if (!z)
		return;
	ww_proc_kill(&z->proc);
	ww_tmpdir_remove(&z->tmp);
	for (int i = 1; i <= MAX_WORKER_ARGS; i++)
		free((void *)(uintptr_t)z->args[i]);
	pthread_mutex_destroy(&z->lock);
	free(z);
}

enum ww_sandbox_level ww_zygote_level(const struct ww_zygote *z) { return (enum ww_sandbox_level)z->ready.level; }

const char *ww_zygote_hello(const struct ww_zygote *z) { return z->ready.text; }

int ww_zygote_pid(const struct ww_zygote *z) { return z->proc.pid; }

/* ---- One job ----------------------------------------------------------------------------------------------------- */

static int write_parts(int fd, const struct ww_zygote_part *parts, int n)
{
	for (int i = 0; i < n; i++)
		if (ww_fd_write_all(fd, parts[i].p, parts[i].n) < 0)
			return -1;
	return 0;
}

static enum ww_rc make_job(
	struct ww_zygote *z, const struct ww_zygote_part *parts, int n, int fds[4], struct ww_err *err)
{
	int status[2];
	fds[0] = memfd_create("request", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fds[1] = memfd_create("reply", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fds[0] < 0 || fds[1] < 0 || pipe2(status, O_CLOEXEC) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot make a job for the %s process", z->worker);
	fds[2] = status[1], fds[3] = status[0];
	if (write_parts(fds[0], parts, n) < 0 ||
		fcntl(fds[0], F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0 ||
		ftruncate(fds[1], (off_t)(z->max_reply + sizeof(uint64_t))) < 0 ||
		fcntl(fds[1], F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot fill a job for the %s process", z->worker);
	return WW_OK;
}

/* Give the job to a living zygote; starts one where the last has died.  *generation says which one has it. */
static enum ww_rc hand_over(struct ww_zygote *z, const struct ww_zygote_order *order, const int fds[3],
	uint64_t *generation, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct iovec bytes = { (void *)(uintptr_t)order, sizeof(*order) };
	pthread_mutex_lock(&z->lock);
	for (int attempt = 0;; attempt++) {
		if (z->proc.pid <= 0)
			WW_TRY(start(z, err));
		if (ww_fdpass_send(z->proc.fd, &bytes, 1, fds, 3, 0) == (ssize_t)sizeof(*order))
			break;
		ww_proc_kill(&z->proc);
		if (attempt)
			WW_TRY(ww_err_set(err, WW_ERR_WORKER, "the %s process ended right after its start, repeatedly", z->worker));
	}
	*generation = z->generation;
out:
	pthread_mutex_unlock(&z->lock);
	return rc;
}

static void give_up_on(struct ww_zygote *z, uint64_t generation)
{
	WW_LOCKED(&z->lock);
	if (z->generation == generation)
		ww_proc_kill(&z->proc);
}

static void take_reply(const struct ww_zygote *z, int fd, struct ww_str *reply)
{
	size_t size = z->max_reply + sizeof(uint64_t);
	unsigned char *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t n;
	if (p == MAP_FAILED)
		return;
	memcpy(&n, p, sizeof(n));
	ww_str_add(reply, p + sizeof(n), n < z->max_reply ? (size_t)n : z->max_reply);
	munmap(p, size);
}

static enum ww_rc run_once(struct ww_zygote *z, const struct ww_zygote_part *parts, int n, double limit_s,
	struct ww_str *reply, struct ww_job_end *end, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	int fds[4] = { -1, -1, -1, -1 };
	uint64_t generation = 0;
	struct ww_zygote_order order = { .limit_ns = (uint64_t)(limit_s * 1e9), .max_reply = z->max_reply };
	for (int i = 0; i < n; i++)
		order.request_bytes += parts[i].n;
	WW_TRY(make_job(z, parts, n, fds, err));
	WW_TRY(hand_over(z, &order, fds, &generation, err));
	ww_fd_close(&fds[2]); /* now only the zygote can write: when it dies we read end of file */
	rc = wait_read(z, fds[3], end, sizeof(*end), limit_s + slack_s, err);
	if (rc == WW_ERR_TIMEOUT || rc == WW_ERR_WORKER)
		give_up_on(z, generation);
	if (rc == WW_OK && end->how == WW_JOB_NOT_STARTED) {
		errno = end->code;
		rc = ww_err_errno(err, WW_ERR_SYSTEM, "a job of the %s process could not be set up", z->worker);
	}
	if (rc == WW_OK)
		take_reply(z, fds[1], reply);
out:
	for (int i = 0; i < 4; i++)
		ww_fd_close(&fds[i]);
	return rc;
}

enum ww_rc ww_zygote_run(struct ww_zygote *z, const struct ww_zygote_part *parts, int n_parts, double limit_s,
	struct ww_str *reply, struct ww_job_end *end, struct ww_err *err)
{
	enum ww_rc rc = run_once(z, parts, n_parts, limit_s, reply, end, err);
	if (rc == WW_ERR_WORKER)
		rc = run_once(z, parts, n_parts, limit_s, reply, end, err);
	return rc;
}
