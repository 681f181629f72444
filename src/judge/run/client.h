/* client.h - a runner process as the judge sees it.
 *
 * Functions return an error only for our own trouble (no process, no device).  What the candidate caused, the death or
 * lateness of its runner included, is in struct ww_run_result: after any kind but WW_RUN_OK the runner is only good for
 * ww_runner_free(), except after REFUSED, UNAVAILABLE and OVERRUN, where ww_runner_unload() makes it as new (cuda).
 *
 * On the cpu target, once a kernel has run, the runner's process does not run between the end of one of these calls and
 * the next: what the caller writes into shared buffers then, no thread of it can see, and what it reads none can
 * change.
 *
 * A struct ww_runner belongs to one thread at a time. */
#pragma once

#include "base/err.h"
#include "judge/run/exec.h"
#include "judge/run/proto.h"

#include <sys/types.h>

struct ww_runner;

struct ww_run_result {
	enum ww_run_kind kind;
	char text[512]; /* clean, one line; "" where nothing is to be said */
	double device_us, stamp_us,
		call_us;       /* cuda: the call's time, by the events and by two other clocks (clocks.h); NAN else */
	int contradicted;  /* cuda: another clock says that the call took much longer than its events do */
	int made, differs; /* ww_runner_repeat() */
	uint64_t digest;
	uint64_t elapsed_ns; /* by our clock, from the starting frame to the answer; cpu: and what the runner still computed
	                        after it */
	double waited_us;    /* cpu: of it, time runnable but not scheduled (host/timed_call.h) */
	uint64_t used_ns;    /* cpu: processor time of all its threads meanwhile; 0 unknown */
};

/* Start a process; it gets ready while the caller does something else. */
enum ww_rc ww_runner_new(struct ww_runner **out, enum ww_target target, int device, int threads, int measure,
	struct ww_err *err) WW_MUST_CHECK;
/* Wait until it is ready: the device's facts. */
enum ww_rc ww_runner_facts(struct ww_runner *r, struct ww_run_facts *facts, struct ww_err *err) WW_MUST_CHECK;
/* The same on cuda, started by another program (compute-sanitizer) that watches it; tool_args ends with NULL. */
enum ww_rc ww_runner_new_watched(struct ww_runner **out, int device, const char *tool, const char *const *tool_args,
	struct ww_err *err) WW_MUST_CHECK;
/* Close its socket, wait at most that long for it (and the tool that runs it) to end, free it. */
void ww_runner_end(struct ww_runner *r, double limit_s);
int ww_runner_greeted(const struct ww_runner *r); /* ww_runner_facts() was answered */
void ww_runner_free(struct ww_runner *r);         /* kill and reap; NULL is fine */
pid_t ww_runner_pid(const struct ww_runner *r);
int ww_runner_usable(const struct ww_runner *r); /* no operation has failed so far */
/* cuda: a plan has been ready in it, so that it knows what a call without a graph takes; it finds that out once, and
 * nothing else may use the device meanwhile. */
int ww_runner_clocked(const struct ww_runner *r);
int ww_runner_alive(const struct ww_runner *r); /* and its process is there */

/* cpu, before a plan is loaded: sample from now on whose code computes in its calls (forms/sampler.h), where the system
 * allows it. */
void ww_runner_watch(struct ww_runner *r);
/* The samples since the last call of this function; none where the system does not allow sampling. */
struct ww_seen;
void ww_runner_take_seen(struct ww_runner *r, struct ww_seen *seen);
/* From now on waiting for this runner ends soon after *interrupted is set: WW_ERR_INTERRUPTED, and the runner is
 * killed.
 */
void ww_runner_interruptible(struct ww_runner *r, const volatile int *interrupted);

enum ww_rc ww_runner_load(struct ww_runner *r, const struct ww_image *image, const void *binary, size_t binary_bytes,
	const struct ww_exec_kernel *kernels, int n_kernels, double limit_s, struct ww_run_result *out,
	struct ww_err *err) WW_MUST_CHECK;
/* fd is borrowed.  On the cpu target a buffer that is not writable is handed over by a read-only descriptor. */
enum ww_rc ww_runner_bind(struct ww_runner *r, const struct ww_run_bind *b, int fd, struct ww_run_result *out,
	struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_runner_ready(
	struct ww_runner *r, double limit_s, struct ww_run_result *out, struct ww_err *err) WW_MUST_CHECK;
/* flags: enum ww_run_prepare.  cuda: done by ww_runner_go(). */
enum ww_rc ww_runner_prepare(
	struct ww_runner *r, unsigned flags, struct ww_run_result *out, struct ww_err *err) WW_MUST_CHECK;
/* cpu: poison again what the plan writes, without letting the runner run. */
void ww_runner_poison(struct ww_runner *r);
enum ww_rc ww_runner_go(
	struct ww_runner *r, double limit_s, struct ww_run_result *out, struct ww_err *err) WW_MUST_CHECK;
/* The nodes of a part only.  cuda: one of those that nodes of PyTorch's bound, or none (from == to). */
enum ww_rc ww_runner_go_part(struct ww_runner *r, const struct ww_run_part *part, double limit_s,
	struct ww_run_result *out, struct ww_err *err) WW_MUST_CHECK;
/* cpu: the memory of a scratch buffer that a node of the loaded plan hands to PyTorch: its descriptor (the runner's)
 * and where it lies there; -1: none. */
int ww_runner_shared_scratch(const struct ww_runner *r, uint32_t buf, struct ww_run_bind *where);
/* cuda: n repeats of the run whose outputs lie in the buffers (struct ww_run_repeat).  limit_s is that of one run. */
enum ww_rc ww_runner_repeat(struct ww_runner *r, const struct ww_run_repeat *q, double limit_s,
	struct ww_run_result *out, struct ww_err *err) WW_MUST_CHECK;
/* Whether the bytes beside the buffers are as they were.  cuda: the last run has looked (WW_RUN_GUARDS, or a repeat)
 * and has failed where they were not. */
void ww_runner_guards(const struct ww_runner *r, struct ww_run_result *out);
/* Run the plan some more times and say what each node took.  *rows (malloc'ed, n_nodes rows, set also after a failure)
 * is data of the runner's; the runner is good for ww_runner_free() only afterwards. */
enum ww_rc ww_runner_profile(struct ww_runner *r, const struct ww_run_profile_ask *what, uint32_t n_nodes,
	double limit_s, struct ww_run_profile **rows, struct ww_run_result *out, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_runner_unload(struct ww_runner *r, struct ww_run_result *out, struct ww_err *err) WW_MUST_CHECK;
