/* desk.c - see desk.h.
 *
 * The judge looks at one int to learn that it is to stop (judge.h).  The desk owns that int and lends it to the call that it
 * serves (ww_mcp_call_watch), so the judge's options never change while it lives.
 */
#include "serve/desk.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct open_task { char id[WW_HASH_HEX]; struct ww_judge_task *task; uint64_t used; };

struct ww_desk {
	struct ww_desk_opts o;
	pthread_mutex_t lock;
	pthread_cond_t free_again;
	int busy;			/* under the lock; what follows belongs to who is served */
	struct ww_judge *judge;
	struct open_task *tasks;	/* open_tasks of them */
	uint64_t clock;
	volatile int interrupted;
	struct ww_mcp_call *call;
};

static void progress(void *ctx, const char *stage)
{
	struct ww_desk *d = ctx;
	if (d->call)
		ww_mcp_call_progress(d->call, stage);
}

struct ww_desk *ww_desk_new(const struct ww_desk_opts *o)
{
	struct ww_desk *d = calloc(1, sizeof(*d));
	if (!d || !(d->tasks = calloc((size_t)o->open_tasks, sizeof(*d->tasks)))) {
		free(d);
		return NULL;
	}
	d->o = *o;
	d->o.judge.open_tasks = o->open_tasks;
	d->o.judge.interrupted = &d->interrupted;
	d->o.judge.progress = progress;
	d->o.judge.progress_ctx = d;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->free_again, NULL);
	return d;
}

static void close_task(struct open_task *t)
{
	if (t->task)
		ww_judge_task_close(t->task);
	memset(t, 0, sizeof(*t));
}

static void close_all(struct ww_desk *d)
{
	for (int i = 0; i < d->o.open_tasks; i++)
		close_task(&d->tasks[i]);
	if (d->judge)
		ww_judge_close(d->judge);
	d->judge = NULL;
}

void ww_desk_free(struct ww_desk *d)
{
	if (!d)
		return;
	close_all(d);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->free_again);
	free(d->tasks);
	free(d);
}

const struct ww_desk_opts *ww_desk_opts_of(const struct ww_desk *d)
{
	return &d->o;
}

/* The place of this task, else the one that was used longest ago. */
static struct open_task *place(struct ww_desk *d, const char *id)
{
	struct open_task *oldest = d->tasks;
	for (int i = 0; i < d->o.open_tasks; i++) {
		struct open_task *t = &d->tasks[i];
		if (t->task && !strcmp(t->id, id))
			return t;
		if (t->used < oldest->used)
			oldest = t;
	}
	close_task(oldest);
	return oldest;
}

static enum ww_rc open_task(struct ww_desk *d, const struct ww_task *task, struct ww_judge_task **out, struct ww_err *err)
{
	enum ww_rc rc = d->judge ? WW_OK : ww_judge_open(&d->judge, &d->o.judge, err);
	if (rc != WW_OK)
		return rc;
	struct open_task *t = place(d, task->id);
	if (!t->task) {
		rc = ww_judge_task_open(d->judge, task, &t->task, err);
		if (rc != WW_OK) {
			t->task = NULL;
			return rc;
		}
		memcpy(t->id, task->id, sizeof(t->id));
	}
	t->used = ++d->clock;
	*out = t->task;
	return WW_OK;
}

/* One's turn, or cancelled while waiting for it. */
static enum ww_rc wait_turn(struct ww_desk *d, struct ww_mcp_call *call, struct ww_err *err)
{
	int said = 0, cancelled = 0;
	pthread_mutex_lock(&d->lock);
	while (!(cancelled = ww_mcp_call_cancelled(call)) && d->busy) {
		struct timespec until;
		if (!said++)
			ww_mcp_call_progress(call, "waiting for the judge");
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&d->free_again, &d->lock, &until);
	}
	if (!cancelled)
		d->busy = 1;
	pthread_mutex_unlock(&d->lock);
	return cancelled ? ww_err_set(err, WW_ERR_INTERRUPTED, "cancelled") : WW_OK;
}

enum ww_rc ww_desk_take(struct ww_desk *d, struct ww_mcp_call *call, const struct ww_task *task, struct ww_judge_task **out,
			struct ww_err *err)
{
	enum ww_rc rc = wait_turn(d, call, err);
	if (rc != WW_OK)
		return rc;
	d->interrupted = 0;
	d->call = call;
	ww_mcp_call_watch(call, &d->interrupted);
	rc = open_task(d, task, out, err);
	if (rc != WW_OK)
		ww_desk_give(d, call, rc);
	return rc;
}

void ww_desk_give(struct ww_desk *d, struct ww_mcp_call *call, enum ww_rc rc)
{
	ww_mcp_call_watch(call, NULL);
	d->call = NULL;
	if (rc != WW_OK && rc != WW_ERR_USAGE && rc != WW_ERR_TASK)
		close_all(d);
	pthread_mutex_lock(&d->lock);
	d->busy = 0;
	pthread_cond_signal(&d->free_again);
	pthread_mutex_unlock(&d->lock);
}
