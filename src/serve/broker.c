/* broker.c - see broker.h.
 *
 * A question is a job of a batch with two references: one of the thread that asks, one of the batch.  The last to
 * release it frees it, so a thread may stop waiting while the job still runs.  The batch's thread writes the results
 * before it sets `done` under the lock; the asking thread reads them after.
 */
#include "serve/broker.h"

#include "base/lock.h"
#include "base/time.h"
#include "base/tmpdir.h"
#include "judge/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE = 4096, STAGE_BYTES = 64 };
static const double LOOK_S = 0.1;

struct ww_broker {
	struct ww_broker_opts o;
	struct ww_batch *batch;
	volatile int interrupted;
	pthread_mutex_t lock; /* of all questions, and what follows */
	struct ww_broker_stats stats;
};

struct question {
	struct ww_batch_job job; /* first */
	struct ww_broker *broker;
	struct ww_broker_ask ask; /* task and files are the job's */
	struct ww_broker_result result;
	pthread_cond_t changed;
	int refs, done; /* under the broker's lock, as the stage */
	char stage[STAGE_BYTES];
	int stages, begun; /* begun: a judge is at work on it */
	uint64_t asked_ns;
};

void ww_broker_result_release(struct ww_broker_result *r)
{
	ww_verdict_release(&r->verdict);
	json_decref(r->data);
	ww_str_release(&r->text);
	r->data = NULL;
}

void ww_broker_ask_release(struct ww_broker_ask *a)
{
	ww_task_release(&a->task);
	ww_solution_files_release(&a->files);
}

/* Under the lock. */
static void unref(struct question *q)
{
	if (--q->refs)
		return;
	ww_batch_job_release(&q->job);
	ww_broker_result_release(&q->result);
	pthread_cond_destroy(&q->changed);
	free(q);
}

/* ---- In the batch's threads -------------------------------------------------------------------------------------- */

static void on_stage(struct ww_batch_job *job, const char *stage)
{
	struct question *q = (struct question *)job;
	struct ww_broker *d = q->broker;
	WW_LOCKED(&d->lock);
	snprintf(q->stage, sizeof(q->stage), "%s", stage);
	q->stages++;
	if (!q->begun) {
		d->stats.waiting--;
		d->stats.working++;
	}
	q->begun = 1;
	pthread_cond_signal(&q->changed);
}

static enum ww_rc do_work(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err)
{
	struct question *q = (struct question *)job;
	const struct ww_solution *s = &job->files.solution;
	return q->ask.work(q->broker, t, s->plan_source || s->n_files ? s : NULL, &q->result, err);
}

static void on_done(void *ctx, struct ww_batch_job *job)
{
	struct question *q = (struct question *)job;
	struct ww_broker *d = ctx;
	WW_LOCKED(&d->lock);
	if (q->begun)
		d->stats.working--;
	else
		d->stats.waiting--;
	d->stats.judging_s += ww_seconds_since(q->asked_ns) - job->queued_s;
	if (job->rc == WW_OK && !q->ask.work)
		d->stats.verdicts[job->verdict.status]++;
	q->done = 1;
	pthread_cond_signal(&q->changed);
	unref(q);
}

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

enum ww_rc ww_broker_new(struct ww_broker **out, const struct ww_broker_opts *o, struct ww_err *err)
{
	struct ww_broker *d;
	enum ww_rc rc;
	*out = NULL;
	WW_CHECK(WW_NEW(d, 1, err));
	ww_tmpdir_sweep();
	d->o = *o;
	pthread_mutex_init(&d->lock, NULL);
	struct ww_batch_opts bo = { .threads = o->threads,
		.open_tasks = o->open_tasks,
		.n_devices = o->n_devices,
		.queue = QUEUE,
		.interrupted = &d->interrupted,
		.done = on_done,
		.ctx = d };
	memcpy(bo.devices, o->devices, sizeof(bo.devices));
	WW_TRY(ww_batch_open(&d->batch, &bo, err));
	*out = d;
	return WW_OK;
out:
	ww_broker_free(d);
	return rc;
}

void ww_broker_free(struct ww_broker *d)
{
	if (!d)
		return;
	d->interrupted = 1;
	if (d->batch)
		ww_batch_drain(d->batch);
	ww_batch_close(d->batch);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

const struct ww_broker_opts *ww_broker_opts_of(const struct ww_broker *d) { return &d->o; }

/* Takes what the ask holds; NULL: out of memory. */
static struct question *question_new(struct ww_broker *d, struct ww_broker_ask *a)
{
	struct question *q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->broker = d;
	q->asked_ns = ww_now_ns();
	q->ask = *a;
	q->refs = 2;
	q->job.opts = d->o.judge;
	q->job.depth = d->o.decide && a->depth == WW_JUDGE_FULL ? WW_JUDGE_DECIDE : a->depth;
	q->job.client = a->client;
	q->job.task = a->task;
	q->job.files = a->files;
	q->job.err = (struct ww_err)WW_ERR_INIT;
	q->job.progress = on_stage;
	q->job.work = a->work ? do_work : NULL;
	ww_verdict_init(&q->result.verdict);
	ww_str_init(&q->result.text, (size_t)64 << 20);
	memset(&a->task, 0, sizeof(a->task));
	memset(&a->files, 0, sizeof(a->files));
	pthread_cond_init(&q->changed, NULL);
	return q;
}

/* 1: it is answered; 0: it is cancelled.  The broker's lock is held, except while the waiter's functions run. */
static int await(struct question *q, const struct ww_broker_waiter *w)
{
	int reported = 0, cancelled = 0;
	while (!q->done && !cancelled) {
		char stage[STAGE_BYTES];
		int news = reported != q->stages;
		memcpy(stage, q->stage, sizeof(stage));
		reported = q->stages;
		pthread_mutex_unlock(&q->broker->lock);
		if (news && w->progress)
			w->progress(w->ctx, stage);
		cancelled = w->cancelled && w->cancelled(w->ctx);
		pthread_mutex_lock(&q->broker->lock);
		if (!q->done && !cancelled && reported == q->stages)
			(void)ww_cond_wait(&q->changed, &q->broker->lock, LOOK_S);
		if (!q->done && !q->stages)
			snprintf(q->stage, sizeof(q->stage), "waiting for the judge"), q->stages++;
	}
	return q->done;
}

static enum ww_rc take_result(struct question *q, struct ww_broker_result *out, struct ww_err *err)
{
	if (q->job.rc != WW_OK) {
		*err = q->job.err;
		return q->job.rc;
	}
	if (q->ask.work) {
		struct ww_broker_result mine = *out;
		*out = q->result;
		q->result = mine;
	} else {
		struct ww_verdict mine = out->verdict;
		out->verdict = q->job.verdict;
		q->job.verdict = mine;
	}
	return WW_OK;
}

/* For ww_broker_opts.answer. */
static enum ww_rc answer_at_once(
	struct ww_broker *d, struct ww_broker_ask *a, struct ww_broker_result *out, struct ww_err *err)
{
	enum ww_rc rc = a->work ? ww_err_set(err, WW_ERR_MISSING, "there is no judge here")
							: d->o.answer(&a->files.solution, a->depth, &out->verdict, err);
	ww_broker_ask_release(a);
	WW_LOCKED(&d->lock);
	d->stats.verdicts[out->verdict.status] += rc == WW_OK;
	return rc;
}

struct ww_broker_stats ww_broker_stats(struct ww_broker *d)
{
	WW_LOCKED(&d->lock);
	return d->stats;
}

enum ww_rc ww_broker_ask(struct ww_broker *d, struct ww_broker_ask *a, const struct ww_broker_waiter *w,
	struct ww_broker_result *out, struct ww_err *err)
{
	memset(out, 0, sizeof(*out));
	ww_verdict_init(&out->verdict);
	ww_str_init(&out->text, (size_t)64 << 20);
	if (d->o.answer)
		return answer_at_once(d, a, out, err);
	struct question *q = question_new(d, a);
	if (!q) {
		ww_broker_ask_release(a);
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for a question");
	}
	pthread_mutex_lock(&d->lock);
	d->stats.waiting++;
	pthread_mutex_unlock(&d->lock);
	enum ww_rc rc = ww_batch_add(d->batch, &q->job, err);
	pthread_mutex_lock(&d->lock);
	if (rc != WW_OK) { /* the batch has not taken it */
		q->refs--;
		d->stats.waiting--;
	} else if (await(q, w)) {
		rc = take_result(q, out, err);
	} else {
		pthread_mutex_unlock(&d->lock);
		ww_batch_cancel(d->batch, &q->job);
		pthread_mutex_lock(&d->lock);
		rc = ww_err_set(err, WW_ERR_INTERRUPTED, "cancelled");
	}
	unref(q);
	pthread_mutex_unlock(&d->lock);
	return rc;
}
