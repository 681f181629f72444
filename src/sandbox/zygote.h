/* zygote.h - one job, one process, in about a millisecond.
 *
 * Builders and compilers are expensive to start and must not be reused after untrusted input.  A zygote is a worker
 * that has loaded everything, has given up its view of the file system, and then only forks: each job runs in a child
 * of it and ends with it.
 *
 * A job is three descriptors, sent over the control socket in one message:
 *
 *     request   memfd, sealed: the job's input
 *     reply     memfd of fixed size (grow and shrink sealed), mapped by the job: u64 length, then bytes
 *     status    write end of a pipe: the zygote, which the job cannot touch, writes one struct ww_job_end when the job
 *               is over
 *
 * So the parent waits on one descriptor, no writer can block, a forged end is impossible (the job closes its copy
 * before anything hostile runs), and when the end has arrived no process is left that could change the reply.  The
 * zygote kills a job, with the whole process group, at its time limit, when the parent has closed the pipe's read end,
 * and at its own exit (PR_SET_PDEATHSIG; in a pid namespace the kernel).  Rejected: one socket for everything (the job
 * could speak for the zygote); pids sent to the parent (they may be reused when it kills); a pool of processes that
 * serve one job each (slower on a burst, and memory lies idle).
 *
 * In the parent any number of threads may call ww_zygote_run() at once.  A zygote that died is started anew and the job
 * repeated, once.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "sandbox/sandbox.h"

#include <stddef.h>
#include <stdint.h>

enum ww_job_how { WW_JOB_EXITED = 1, WW_JOB_SIGNALED = 2, WW_JOB_TIMEOUT = 3, WW_JOB_NOT_STARTED = 4 };
struct ww_job_end {
	uint32_t how; /* enum ww_job_how */
	int32_t code; /* exit code, signal or errno */
};

/* ---- In the parent ----------------------------------------------------------------------------------------------- */

struct ww_zygote;
struct ww_zygote_opts {
	const char *worker;      /* "builder" */
	const char *const *args; /* ends with NULL; may be NULL */
	size_t max_reply_bytes;
	const volatile int *interrupted; /* where it becomes nonzero, waiting ends with WW_ERR_INTERRUPTED; may be NULL */
};
/* Start it and wait until it is warm.  If it cannot get ready, the error is its own report. */
enum ww_rc ww_zygote_open(struct ww_zygote **out, const struct ww_zygote_opts *o, struct ww_err *err) WW_MUST_CHECK;
void ww_zygote_close(struct ww_zygote *z);
enum ww_sandbox_level ww_zygote_level(const struct ww_zygote *z);
/* A line that the worker reported when it was ready ("nvrtc 13.0 ..."). */
const char *ww_zygote_hello(const struct ww_zygote *z);
int ww_zygote_pid(const struct ww_zygote *z); /* for tests that kill it */

/* Run one job: the request's parts one after the other; reply gets the bytes that the job left (whatever its end was).
 *  WW_OK: *end says how it ended.  A job that could not be set up is an error (ours), never an end. */
struct ww_zygote_part {
	const void *p;
	size_t n;
};
enum ww_rc ww_zygote_run(struct ww_zygote *z, const struct ww_zygote_part *parts, int n_parts, double limit_s,
	struct ww_str *reply, struct ww_job_end *end, struct ww_err *err) WW_MUST_CHECK;

/* ---- In the worker ----------------------------------------------------------------------------------------------- */

/* Where a job writes its reply; writes beyond the end are dropped and `cut` is set. */
struct ww_job_reply {
	unsigned char *p;
	size_t len, max;
	int cut;
};
void ww_job_reply_add(struct ww_job_reply *r, const void *bytes, size_t n);
/* Make what was added so far the reply now, in case the job does not live to its end. */
void ww_job_reply_commit(struct ww_job_reply *r);

struct ww_zygote_worker {
	/* Load, warm up, isolate.  hello gets the line for the parent; *level what the sandbox reached. */
	enum ww_rc (*warm)(void *ctx, struct ww_str *hello, enum ww_sandbox_level *level, struct ww_err *err);
	/* In the job's process, before untrusted input is read: limits and filter. */
	enum ww_rc (*enter)(void *ctx, struct ww_err *err);
	/* The job itself; the return value is its exit code. */
	int (*job)(void *ctx, const unsigned char *request, size_t n, struct ww_job_reply *reply);
	void *ctx;
	const char *tmp; /* each job starts in a fresh directory below it, removed after the job; NULL: jobs need none */
};
/* The worker's argv[0] is a directory for `tmp` (below a private root: of its tmpfs).  Serve until the control socket
 * (descriptor WW_PROC_FD) ends.  Returns the process's exit code. */
int ww_zygote_serve(const struct ww_zygote_worker *w);
