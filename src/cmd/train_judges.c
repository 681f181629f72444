/* train_judges.c - see train_judges.h.  The batch of judge/batch.h opens the tasks, on one device or several, and lends
 * its threads to the episodes. */
#include "cmd/train_judges.h"

#include "base/lock.h"
#include "cmd/cmd.h"
#include "cmd/judging.h"
#include "host/machine.h"
#include "judge/batch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ww_train_judges {
	struct ww_batch *batch;
	struct ww_batch_opts batch_opts;
	struct ww_judge_opts opts;
	char device_name[96];
};

/* A call of each(). */
struct round {
	const struct ww_train_judges *j;
	ww_rl_task_fn *fn;
	void *arg;
	pthread_mutex_t lock;
	enum ww_rc rc; /* the first failure; an interruption only where there is no other */
	struct ww_err err;
};
struct item {
	struct ww_batch_job job;
	struct round *round;
	const char *path;
	int64_t i;
};

static enum ww_rc work(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err)
{
	struct item *x = job->ctx;
	struct ww_rl_task task = {
		.judge = ww_agent_use_judge(t, x->round->j->device_name), .path = x->path, .source = job->task.source
	};
	memcpy(task.id, job->task.id, sizeof(task.id));
	return x->round->fn(x->round->arg, x->i, &task, err);
}

static void done(void *ctx, struct ww_batch_job *job)
{
	struct item *x = job->ctx;
	struct round *r = x->round;
	(void)ctx;
	WW_LOCKED(&r->lock);
	if (job->rc == WW_OK || (r->rc != WW_OK && (r->rc != WW_ERR_INTERRUPTED || job->rc == WW_ERR_INTERRUPTED)))
		return;
	r->rc = job->rc;
	r->err = job->err;
	ww_err_wrap(&r->err, "%s", x->path);
}

static enum ww_rc add(struct ww_train_judges *j, struct item *x, struct ww_err *err)
{
	x->job.opts = j->opts;
	x->job.work = work;
	x->job.ctx = x;
	WW_CHECK(ww_task_load(&x->job.task, x->path, err));
	return ww_batch_add(j->batch, &x->job, err);
}

static enum ww_rc each(void *ctx, const char *const *paths, int64_t n, ww_rl_task_fn *fn, void *arg, struct ww_err *err)
{
	struct ww_train_judges *j = ctx;
	struct round r = { j, fn, arg, PTHREAD_MUTEX_INITIALIZER, WW_OK, WW_ERR_INIT };
	struct item *items;
	enum ww_rc rc = WW_OK;
	WW_CHECK(WW_NEW(items, n, err));
	if (!j->batch)
		rc = ww_batch_open(&j->batch, &j->batch_opts, err);
	for (int64_t i = 0; rc == WW_OK && i < n; i++) {
		items[i].round = &r;
		items[i].path = paths[i];
		items[i].i = i;
		rc = add(j, &items[i], err);
	}
	if (j->batch)
		ww_batch_drain(j->batch);
	if (r.rc != WW_OK && (rc == WW_OK || rc == WW_ERR_INTERRUPTED)) {
		rc = r.rc;
		*err = r.err;
	}
	for (int64_t i = 0; i < n; i++)
		ww_batch_job_release(&items[i].job);
	pthread_mutex_destroy(&r.lock);
	free(items);
	return rc;
}

/* The learner's GPU is the first one. */
static int are_apart(const struct ww_batch_opts *o)
{
	int i = 0;
	while (i < o->n_devices && o->devices[i])
		i++;
	return o->n_devices && i == o->n_devices;
}

enum ww_rc ww_train_judges_open(
	const struct ww_recipe *o, struct ww_train_judges **out, struct ww_rl_judges *judges, struct ww_err *err)
{
	struct ww_train_judges *j;
	struct ww_host_gpus gpus;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(j, 1, err));
	j->opts = (struct ww_judge_opts){ .rule = strcmp(o->rule, "paper") ? WW_RULE_STRICT : WW_RULE_PAPER,
		.threads = (int)o->judge_threads,
		.baselines = 1u << WW_BASE_EAGER | 1u << WW_BASE_COMPILE,
		.max_time_s = o->judge_seconds,
		.interrupted = &ww_cmd_interrupted };
	j->batch_opts = (struct ww_batch_opts){
		.threads = (int)o->parallel, .open_tasks = (int)o->parallel, .interrupted = &ww_cmd_interrupted, .done = done
	};
	WW_TRY(ww_host_choose_target(o->target, 0, &j->opts.target, j->device_name, sizeof(j->device_name), &gpus, err));
	WW_TRY(ww_judging_devices(
		o->judge_devices, o->target, j->batch_opts.devices, WW_BATCH_MAX_DEVICES, &j->batch_opts.n_devices, err));
	*judges = (struct ww_rl_judges){ .ctx = j,
		.target = j->opts.target,
		.rule = j->opts.rule,
		.baselines = j->opts.baselines,
		.devices = j->batch_opts.n_devices,
		.apart = are_apart(&j->batch_opts),
		.each = each };
	*out = j;
out:
	if (rc != WW_OK)
		free(j);
	return rc;
}

void ww_train_judges_close(struct ww_train_judges *j)
{
	if (!j)
		return;
	ww_batch_close(j->batch);
	free(j);
}
