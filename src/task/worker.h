/* worker.h - the reference worker as a process: started, talked to, watched, killed.  Internal to src/task.
 *
 * struct ww_worker owns the child and all it started, the protocol socket, the pipe that carries what it prints, and a
 * private directory.  While a reply is awaited the pipe is drained into a ring of 64 KiB, the deadline, the interrupt
 * flag and the memory of the child and all it started are looked at every 50 ms.  Whatever goes wrong kills the group
 * and leaves `dead` set.
 */
#pragma once

#include "base/err.h"
#include "base/tmpdir.h"
#include "sandbox/proc.h"
#include "task/ref.h"

#include <stddef.h>

enum { WW_WORKER_LOG_BYTES = 65536 };

struct ww_worker {
	struct ww_proc proc;                  /* its err_fd is the pipe */
	int dead;                             /* no further request */
	int cuda;                             /* its filter allows shared anonymous memory */
	int status;                           /* of waitpid, where it ended by itself */
	char *log;                            /* ring of WW_WORKER_LOG_BYTES */
	size_t log_total;                     /* bytes ever written into it */
	char *log_text;                       /* the ring unrolled, for callers */
	struct ww_tmpdir dir;                 /* private */
	uint64_t max_resident_bytes, look_ns; /* when memory is looked at next */
	uint64_t max_disk_bytes, disk_ns;
	const char *cache_dir; /* the caller's; NULL: none */
	const volatile int *interrupted;
};
#define WW_WORKER_NONE ((struct ww_worker){ .proc = WW_PROC_INIT, .dead = 1, .dir = WW_TMPDIR_INIT })

/* Its processes and threads, where the kernel can hold it to that (cgroup.h): room for thread pools of as many threads
 * as the machine has processors beside the processes that are watched for. */
int ww_worker_max_tasks(void);

enum ww_rc ww_worker_start(struct ww_worker *w, const struct ww_ref_opts *o, struct ww_err *err) WW_MUST_CHECK;
void ww_worker_stop(struct ww_worker *w); /* kill the group, reap, close, remove the private directory */
const char *ww_worker_log(struct ww_worker *w);

/* Send one message with n_fds descriptors. */
enum ww_rc ww_worker_send(struct ww_worker *w, const json_t *body, const int *fds, int n_fds, uint64_t deadline_ns,
	struct ww_err *err) WW_MUST_CHECK;
/* Receive one; *fds is malloc'ed (NULL for none) and owned by the caller, descriptors close-on-exec. */
enum ww_rc ww_worker_receive(
	struct ww_worker *w, json_t **body, int **fds, int *n_fds, uint64_t deadline_ns, struct ww_err *err) WW_MUST_CHECK;
/* Wait until fd (the socket, or a pipe of the caller's) can be read, or the socket can: *ready gets the one that can.
 */
enum ww_rc ww_worker_wait(
	struct ww_worker *w, int fd, int *ready, uint64_t deadline_ns, struct ww_err *err) WW_MUST_CHECK;
/* Kill the group and mark the worker dead; returns err->rc. */
enum ww_rc ww_worker_kill(struct ww_worker *w, struct ww_err *err);
