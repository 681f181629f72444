/* broker.h - questions about tasks from any thread: one pool of judges, with the tasks asked about last left open.
 *
 * Opening a task costs seconds (a Python process with PyTorch), a second question about it milliseconds.  The asking
 * thread waits.  Plans and device code are built in parallel, one measurement runs at a time (src/judge/batch.h).  A
 * question that is cancelled leaves the queue at once, or when it would get the device; what is being measured is
 * finished and thrown away, since interrupting a judge would also interrupt the other questions that it works on.
 */
#pragma once

#include "judge/batch.h"
#include "judge/solution.h"
#include "task/task.h"

struct ww_broker;
struct ww_broker_result;

struct ww_broker_opts {
	struct ww_judge_opts judge; /* of every question; interrupted and progress are the broker's own */
	const char *device_name;
	int open_tasks;                               /* tasks open at a time; at least 1 */
	int threads;                                  /* questions in work at a time; 0: as many as fit */
	int devices[WW_BATCH_MAX_DEVICES], n_devices; /* as ww_batch_opts has them */
	int decide; /* what would be judged in full is timed until its reward is certain */
	/* Answers instead of the judges, to measure or test the server.  NULL: the judges answer. */
	enum ww_rc (*answer)(
		const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err);
};

/* A question: judge a solution or, with `work`, anything else about the open task.  ww_broker_ask() takes task and
 * files. */
struct ww_broker_ask {
	struct ww_task task;
	struct ww_solution_files files; /* .solution is all zero where there is none */
	enum ww_judge_depth depth;
	uint64_t client; /* whose it is: clients take turns, however many questions each has */
	enum ww_rc (*work)(const struct ww_broker *d, struct ww_judge_task *t, const struct ww_solution *s,
		struct ww_broker_result *r, struct ww_err *err);
};
struct ww_broker_result {
	struct ww_verdict verdict; /* without work */
	json_t *data;              /* of work, as the next members */
	struct ww_str text;
	struct ww_device device;
};
/* What the broker calls in the asking thread, a few times a second. */
struct ww_broker_waiter {
	int (*cancelled)(void *ctx);
	void (*progress)(void *ctx, const char *stage);
	void *ctx;
};

enum ww_rc ww_broker_new(struct ww_broker **out, const struct ww_broker_opts *o,
	struct ww_err *err) WW_MUST_CHECK; /* judges start with the first question */
/* Interrupts what is in work.  No thread may be in ww_broker_ask(). */
void ww_broker_free(struct ww_broker *d);
const struct ww_broker_opts *ww_broker_opts_of(const struct ww_broker *d);
/* *out is released by the caller in any case; WW_ERR_INTERRUPTED: cancelled. */
enum ww_rc ww_broker_ask(struct ww_broker *d, struct ww_broker_ask *a, const struct ww_broker_waiter *w,
	struct ww_broker_result *out, struct ww_err *err) WW_MUST_CHECK;
/* Since it was made; any thread. */
struct ww_broker_stats {
	int waiting, working; /* questions now */
	uint64_t verdicts[WW_STATUS_COUNT];
	double judging_s; /* from a question's turn to its answer, of all that have one */
};
struct ww_broker_stats ww_broker_stats(struct ww_broker *d);
void ww_broker_result_release(struct ww_broker_result *r);
void ww_broker_ask_release(struct ww_broker_ask *a); /* one that was never asked */
