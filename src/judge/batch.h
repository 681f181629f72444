/* batch.h - judgements in parallel in one process: several tasks open, builds on all cores, one measurement at a time.
 *
 * Jobs go in one by one and come back, each in a callback, in the order in which they end.  Threads take them from a
 * bounded queue.  Which job comes next: one whose task is open, before one whose task must be opened (a reference
 * worker takes seconds to start); a task that waits and for which there is room is opened ahead, while others are
 * judged; of several clients each in turn; where memory is short the task that was used longest ago is closed, once no
 * job uses it.  A job that has been passed over too often goes first.
 *
 * A task, a reference or a solution that finds no memory on a GPU is no failure while several tasks are open: fewer are
 * kept open for a while, and the job is tried again.
 *
 * Several devices.  One queue serves them all: a job goes to a device on which its task is open, a new task to the
 * device with the fewest, and a second device opens a task that is open elsewhere only when it has nothing else to do.
 * After an error that a failed device may have caused, the device is probed; one that fails is taken out with a
 * warning, and its jobs go to the others.
 *
 * A job's judge (target, rule, baselines, limits) is opened when the first job wants it and serves all that want the
 * same.
 */
#pragma once

#include "judge/judge.h"
#include "judge/solution.h"
#include "task/task.h"

struct ww_batch;

/* Owned by the caller; lent to the batch from ww_batch_add() until the callback.  Zeroed, then filled. */
struct ww_batch_job {
	struct ww_judge_opts opts; /* target, device, threads, rule, baselines, max_*; the rest is the batch's */
	enum ww_judge_depth depth;
	struct ww_task task;
	struct ww_solution_files files;
	struct ww_solution_files baseline; /* another solution to time against */
	int has_baseline;
	uint64_t client; /* whose it is: clients take turns, however many jobs each has */
	void *ctx;       /* the caller's */
	/* Instead of judging: something else about the open task, in the batch's thread.  NULL: judge. */
	enum ww_rc (*work)(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err);
	/* Reports the stage of the judgement, called in the thread that works on it; may be NULL. */
	void (*progress)(struct ww_batch_job *job, const char *stage);
	/* The result. */
	enum ww_rc rc; /* WW_OK: the verdict is there */
	struct ww_err err;
	struct ww_verdict verdict;
	double queued_s, opened_s; /* waited in the queue; opened its task */
	/* The batch's own. */
	struct ww_batch_job *next;
	uint64_t added_ns, passed, round;
	int attempts;
	volatile int cancelled;
};
void ww_batch_job_release(struct ww_batch_job *j);

enum { WW_BATCH_MAX_DEVICES = 16 };
struct ww_batch_opts {
	int threads;    /* 0: by cores and devices */
	int open_tasks; /* of all devices together; 0: by memory and cores */
	int devices[WW_BATCH_MAX_DEVICES];
	int n_devices; /* 0: each job's own */
	/* Whether a device works; NULL: a runner is started on it.  (Tests have devices of their own.) */
	enum ww_rc (*probe)(const struct ww_judge_opts *o, struct ww_err *err);
	int queue;                       /* jobs waiting; 0: 256 */
	const volatile int *interrupted; /* may be NULL; then running jobs end with WW_ERR_INTERRUPTED */
	/* Called by the batch's threads, one at a time. */
	void (*done)(void *ctx, struct ww_batch_job *job);
	void *ctx;
};

enum ww_rc ww_batch_open(struct ww_batch **out, const struct ww_batch_opts *o, struct ww_err *err) WW_MUST_CHECK;
/* Waits while the queue is full.  WW_ERR_INTERRUPTED: the job is still the caller's. */
enum ww_rc ww_batch_add(struct ww_batch *b, struct ww_batch_job *job, struct ww_err *err) WW_MUST_CHECK;
/* Cancel a job.  One that waits in the queue comes back at once, in this thread; one that has begun comes back when it
 * would get the device, or is finished.  Harmless after it has come back, as long as its memory exists. */
void ww_batch_cancel(struct ww_batch *b, struct ww_batch_job *job);
/* Wait until every job has come back; after an interruption those that had not begun come back with WW_ERR_INTERRUPTED.
 */
void ww_batch_drain(struct ww_batch *b);
/* Close every task and judge.  Nothing may be under way.  NULL is fine. */
void ww_batch_close(struct ww_batch *b);
