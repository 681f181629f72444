/* parallel.c - see parallel.h.
 *
 * A thread an episode: a policy over HTTP waits most of its time, a judgement has a process of its own, and a thread
 * that waits costs a few pages.  The judge may be called from several threads but does not say in which order they get
 * the device, so threads that need it queue here.  An episode has one call at a time, so first come, first served is
 * fair.  Building and compiling need no device and do not queue.  Each device is a slot: the first thread in the queue
 * takes the first free slot.  A slot whose judge fails is not used again, and the call goes to another.
 *
 * Rejected: an event loop over all episodes.  Tools, judge and policies would all have to be written as callbacks.
 */
#include "agent/parallel.h"

#include "agent/best.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/lock.h"
#include "base/time.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_BYTES = 1 << 20 };

/* ---- The queue for the devices ----------------------------------------------------------------------------------- */

enum { MAX_SLOTS = 16 };
struct waiter {
	struct waiter *next;
	int slot; /* index of the judge that it uses; -1: it waits */
};
struct slot {
	struct ww_agent_judge judge;
	int taken, failed;
};
struct queue {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	struct waiter *first, *last;
	struct slot slots[MAX_SLOTS];
	int n_slots;
	struct ww_budget *budget; /* may be NULL */
	const volatile int *interrupted;
};

static void leave(struct queue *q, struct waiter *me)
{
	struct waiter **at = &q->first, *before = NULL;
	while (*at != me) {
		before = *at;
		at = &before->next;
	}
	*at = me->next;
	if (q->last == me)
		q->last = before;
	pthread_cond_broadcast(&q->moved);
}

static int free_slot(const struct queue *q)
{
	for (int i = 0; i < q->n_slots; i++)
		if (!q->slots[i].taken && !q->slots[i].failed)
			return i;
	return -1;
}

static enum ww_rc wait_for_slot(struct queue *q, struct waiter *me, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	*me = (struct waiter){ .slot = -1 };
	pthread_mutex_lock(&q->lock);
	*(q->last ? &q->last->next : &q->first) = me;
	q->last = me;
	while ((q->first != me || (me->slot = free_slot(q)) < 0) && !(q->interrupted && *q->interrupted)) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&q->moved, &q->lock, &until);
	}
	if (me->slot < 0)
		rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	else if (q->budget && ww_budget_device_is_spent(q->budget)) /* threads ahead in the queue have used it up */
		rc = ww_err_set(err, WW_ERR_LIMIT, "--max-gpu-seconds is used up: nothing more is judged");
	else
		q->slots[me->slot].taken = 1;
	leave(q, me);
	pthread_mutex_unlock(&q->lock);
	return rc;
}

/* Free the slot; its seconds are added to the budget before the next thread gets the device. */
static void release_slot(struct queue *q, const struct waiter *me, double device_s)
{
	if (q->budget)
		ww_budget_spend(q->budget, &(struct ww_budget_use){ .gpu_s = device_s });
	pthread_mutex_lock(&q->lock);
	q->slots[me->slot].taken = 0;
	pthread_cond_broadcast(&q->moved);
	pthread_mutex_unlock(&q->lock);
}

/* 1: the slot's judge has failed, and another slot is left. */
static int slot_failed(struct queue *q, const struct waiter *me, enum ww_rc rc, const struct ww_err *err)
{
	int left = 0;
	if (rc != WW_ERR_DEVICE && rc != WW_ERR_WORKER && rc != WW_ERR_MISSING)
		return 0;
	pthread_mutex_lock(&q->lock);
	for (int i = 0; i < q->n_slots; i++)
		left += i != me->slot && !q->slots[i].failed;
	q->slots[me->slot].failed = left > 0;
	pthread_mutex_unlock(&q->lock);
	if (left)
		ww_log(WW_LOG_WARN, "%s has failed (%.300s); the other devices do its work",
			q->slots[me->slot].judge.device_name, err->msg);
	return left > 0;
}

static enum ww_rc judge_in_turn(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	struct queue *q = ctx;
	struct waiter me;
	enum ww_rc rc;
	int again;
	if (depth == WW_JUDGE_COMPILE)
		return q->slots[0].judge.run(q->slots[0].judge.ctx, s, depth, v, err);
	do {
		WW_CHECK(wait_for_slot(q, &me, err));
		const struct ww_agent_judge *j = &q->slots[me.slot].judge;
		rc = j->run(j->ctx, s, depth, v, err);
		again = slot_failed(q, &me, rc, err);
		release_slot(q, &me, rc == WW_OK ? ww_budget_gpu_s(v) : 0);
	} while (again);
	return rc;
}

static enum ww_rc profile_in_turn(void *ctx, const struct ww_solution *s, json_t **out, struct ww_err *err)
{
	struct queue *q = ctx;
	struct waiter me;
	WW_CHECK(wait_for_slot(q, &me, err));
	const struct ww_agent_judge *j = &q->slots[me.slot].judge;
	enum ww_rc rc = j->profile(j->ctx, s, out, err);
	release_slot(q, &me, rc == WW_OK ? ww_budget_profile_gpu_s(*out) : 0);
	return rc;
}

/* ---- One episode ------------------------------------------------------------------------------------------------- */

struct one {
	struct ww_agent_opts opts;
	struct ww_episode_header header;
	const char *run_dir;
	char dir[PATH_MAX], answers[PATH_MAX];
	struct ww_agent_result *result;
	struct ww_err err;
	enum ww_rc rc;
	pthread_t thread;
	int started;
};

enum ww_rc ww_agent_parallel_dir(const char *dir, int i, char *out, struct ww_err *err)
{
	char name[32];
	snprintf(name, sizeof(name), "episodes/%d", i + 1);
	return ww_fs_join(out, dir, name, err);
}

static enum ww_rc past_of(const char *dir, int i, struct ww_episode *e, int *found, struct ww_err *err)
{
	char path[PATH_MAX], file[PATH_MAX];
	enum ww_rc rc = ww_agent_parallel_dir(dir, i, path, err);
	if (rc == WW_OK)
		rc = ww_fs_join(file, path, "episode.jsonl", err);
	*found = rc == WW_OK && ww_fs_is_file(file);
	return *found ? (enum ww_rc)ww_episode_read(file, e, err) : rc;
}

/* An episode that has ended is only read. */
static enum ww_rc run_one(struct one *o)
{
	struct ww_episode e;
	int found, ended = 0;
	enum ww_rc rc = past_of(o->run_dir, o->opts.episode - 1, &e, &found, &o->err);
	if (rc != WW_OK)
		return rc;
	if (found) {
		ended = e.ended;
		if (ended)
			rc = ww_agent_result_of(&e, o->result, &o->err);
		ww_episode_release(&e);
	}
	return ended ? rc : ww_agent_run(&o->opts, o->result, &o->err);
}

static void *thread_main(void *arg)
{
	struct one *o = arg;
	o->rc = run_one(o);
	return NULL;
}

static enum ww_rc begin(struct one *o, const struct ww_agent_opts *common, struct queue *queue,
	struct ww_policy *policy, int i, struct ww_agent_result *result, struct ww_err *err)
{
	pthread_attr_t attr;
	o->opts = *common;
	o->header = *common->header;
	o->header.seed += (uint64_t)i;
	o->opts.header = &o->header;
	o->opts.policy = policy;
	o->opts.episode = i + 1;
	o->opts.judge.ctx = queue;
	o->opts.judge.run = judge_in_turn;
	o->opts.judge.profile = profile_in_turn;
	o->opts.judge.accounts = 1;
	o->result = result;
	WW_CHECK(ww_agent_parallel_dir(common->dir, i, o->dir, err));
	WW_CHECK(ww_fs_mkdirs(o->dir, err));
	o->opts.dir = o->dir;
	o->run_dir = common->dir;
	if (common->answers) {
		WW_CHECK(ww_agent_parallel_dir(common->answers, i, o->answers, err));
		o->opts.answers = o->answers;
	}
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	o->started = pthread_create(&o->thread, &attr, thread_main, o) == 0;
	pthread_attr_destroy(&attr);
	if (!o->started)
		return ww_err_set(err, WW_ERR_SYSTEM, "cannot start a thread for episode %d", i + 1);
	return WW_OK;
}

/* ---- All of them ------------------------------------------------------------------------------------------------- */

static void init_results(struct ww_agent_result *results, int n)
{
	memset(results, 0, (size_t)n * sizeof(*results));
	for (int i = 0; i < n; i++)
		ww_verdict_init(&results[i].best);
}

int ww_agent_parallel_best(const struct ww_agent_result *results, int n)
{
	int best = -1;
	for (int i = 0; i < n; i++)
		if (results[i].has_best && (best < 0 || ww_agent_better(&results[i].best, &results[best].best)))
			best = i;
	return best;
}

/* Solution and verdict of the best episode, beside the episodes. */
static enum ww_rc publish(
	const struct ww_agent_opts *common, const struct ww_agent_result *results, int n, struct ww_err *err)
{
	WW_AUTO(ww_workspace_content_release) struct ww_workspace_content c;
	char dir[PATH_MAX];
	int found, best = ww_agent_parallel_best(results, n);
	ww_workspace_content_init(&c);
	if (best < 0)
		return WW_OK;
	json_auto_t *data = ww_verdict_to_json(&results[best].best);
	WW_CHECK(ww_agent_parallel_dir(common->dir, best, dir, err));
	WW_CHECK(ww_best_load(dir, common->target, results[best].best_id, &c, &found, err));
	if (found)
		WW_CHECK(ww_best_store(common->dir, &c, data, err));
	return WW_OK;
}

/* The first episode's error that is not an interruption, else the interruption. */
static enum ww_rc first_failure(const struct one *all, int n, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	for (int i = 0; i < n; i++) {
		if (all[i].rc == WW_OK || (rc != WW_OK && (rc != WW_ERR_INTERRUPTED || all[i].rc == WW_ERR_INTERRUPTED)))
			continue;
		rc = all[i].rc;
		*err = all[i].err;
		ww_err_wrap(err, "episode %d", i + 1);
	}
	return rc;
}

enum ww_rc ww_agent_parallel(const struct ww_agent_opts *common, struct ww_policy *const *policies, int n,
	struct ww_agent_result *results, struct ww_err *err)
{
	struct queue queue = {
		.slots[0].judge = common->judge, .n_slots = 1, .budget = common->budget, .interrupted = common->interrupted
	};
	ww_auto_free struct one *all = calloc((size_t)n, sizeof(*all));
	enum ww_rc rc = WW_OK;
	init_results(results, n);
	if (!all)
		return ww_nomem(err);
	for (int i = 0; i < common->n_others && queue.n_slots < MAX_SLOTS; i++)
		queue.slots[queue.n_slots++].judge = common->others[i];
	pthread_mutex_init(&queue.lock, NULL);
	pthread_cond_init(&queue.moved, NULL);
	for (int i = 0; i < n && rc == WW_OK; i++)
		rc = begin(&all[i], common, &queue, policies[i], i, &results[i], err);
	for (int i = 0; i < n; i++)
		if (all[i].started)
			pthread_join(all[i].thread, NULL);
	pthread_cond_destroy(&queue.moved);
	pthread_mutex_destroy(&queue.lock);
	if (rc == WW_OK)
		rc = publish(common, results, n, err);
	return rc == WW_OK ? first_failure(all, n, err) : rc;
}

/* ---- From the records -------------------------------------------------------------------------------------------- */

int ww_agent_parallel_count(const char *dir)
{
	char path[PATH_MAX];
	struct ww_err ignored;
	int n = 0;
	while (n < WW_AGENT_PARALLEL_MAX && ww_agent_parallel_dir(dir, n, path, &ignored) == WW_OK && ww_fs_is_dir(path))
		n++;
	return n;
}

enum ww_rc ww_agent_parallel_results(const char *dir, int n, struct ww_agent_result *results, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	init_results(results, n);
	for (int i = 0; i < n && rc == WW_OK; i++) {
		struct ww_episode e;
		int found;
		rc = past_of(dir, i, &e, &found, err);
		if (rc == WW_OK && found) {
			rc = ww_agent_result_of(&e, &results[i], err);
			ww_episode_release(&e);
		}
	}
	return rc;
}

enum ww_rc ww_agent_parallel_used(const char *dir, struct ww_budget *b, struct ww_err *err)
{
	int n = ww_agent_parallel_count(dir);
	enum ww_rc rc = WW_OK;
	for (int i = 0; i < n && rc == WW_OK; i++) {
		struct ww_episode e;
		int found;
		rc = past_of(dir, i, &e, &found, err);
		if (rc == WW_OK && found) {
			struct ww_budget_use u = ww_budget_use_of(&e);
			ww_budget_spend(b, &u);
			ww_episode_release(&e);
		}
	}
	return rc;
}
