/* batch.c - see batch.h.
 *
 * One lock guards the queue and the tables of judges and tasks; it is never held while anything takes time.  An entry
 * of a table is a small state machine (opening, open, failed, closing): a thread that takes a job sets its entries to
 * opening or closing, does the work without the lock, and sets the final state.  So no thread holds a job while it
 * waits for another thread's opening.  An entry with users, or one that is opening or closing, is not moved.
 *
 *     job:   queue ──take──▶ thread: judge open? task open? ──▶ ww_judge_run() ──▶ done()
 *
 * A thread does all of one job: build, compile, wait for its turn to measure, measure.  So while one measures the
 * others have built ahead and wait, and there is no second queue.  Rejected: a pool of builders before a pool of
 * measurers (two bounded queues, and the device is busy in either case).
 */
#include "judge/batch.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "host/machine.h"
#include "judge/run/client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_ATTEMPTS = 8,
	MAX_THREADS = 64,
	MAX_KINDS = 8,
	MAX_JUDGES = MAX_KINDS * WW_BATCH_MAX_DEVICES,
	MAX_TASKS = 128,
	MIN_OPENING = 4,
	DEFAULT_QUEUE = 256,
	PATIENCE = 1024,
	WELL = 2,
	TASKS_PER_JOB = 40, /* processes and threads: a worker, a runner, CUDA's and PyTorch's threads, compilers */
	MAX_WELL = 64
};
static const double SHRINK_S = 30;
static const uint64_t HOST_BYTES_PER_TASK = 3ull << 29; /* a PyTorch process and its task, roughly */

enum state { UNUSED, OPENING, OPEN, FAILED, CLOSING };

struct judge_entry {
	enum state state;
	struct ww_judge_opts opts;
	struct ww_judge *judge;
	struct ww_err err;
};

struct task_entry {
	enum state state;
	struct judge_entry *owner;
	char id[WW_HASH_HEX], name[128];
	struct ww_judge_task *task;
	struct ww_err err;
	int users;
	uint64_t used; /* the batch's clock at the last use */
};

struct ww_batch {
	struct ww_batch_opts o;
	pthread_mutex_t lock;   /* everything below */
	pthread_cond_t changed; /* a job, a state, the end */
	struct ww_batch_job *head;
	int queued, running, ending;
	uint64_t round; /* of the job that was taken last: the queue is sorted by rounds, each client has one job in each */
	int max_opening;
	int most_open;         /* tasks, where memory allows it */
	int well, well_enough; /* jobs done since memory ran out; when there are well_enough, one more task may stay open */
	char lost[WW_BATCH_MAX_DEVICES]; /* devices that have failed */
	uint64_t clock;
	struct judge_entry judges[MAX_JUDGES];
	struct task_entry tasks[MAX_TASKS];
	pthread_t threads[MAX_THREADS];
	int n_threads;
	pthread_mutex_t done_lock;
};

void ww_batch_job_release(struct ww_batch_job *j)
{
	ww_task_release(&j->task);
	ww_solution_files_release(&j->files);
	ww_solution_files_release(&j->baseline);
	ww_verdict_release(&j->verdict);
}

static int interrupted(const struct ww_batch *b) { return b->o.interrupted && *b->o.interrupted; }

/* A signal does not end a wait for a condition variable, so the wait is bounded and repeated. */
static void wait_changed(struct ww_batch *b)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += 100 * 1000 * 1000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	pthread_cond_timedwait(&b->changed, &b->lock, &t);
}

/* ---- Tables (the lock is held) ----------------------------------------------------------------------------------- */

static int same_kind(const struct ww_judge_opts *a, const struct ww_judge_opts *b)
{
	return a->target == b->target && a->threads == b->threads && a->rule == b->rule && a->baselines == b->baselines &&
		a->max_run_s == b->max_run_s && a->max_compile_s == b->max_compile_s && a->max_time_s == b->max_time_s &&
		a->max_repeat_s == b->max_repeat_s && a->seed == b->seed;
}

static int same_opts(const struct ww_judge_opts *a, const struct ww_judge_opts *b)
{
	return same_kind(a, b) && a->device == b->device;
}

/* How many devices jobs go to; a batch that names none has one slot, for the job's own device. */
static int n_slots(const struct ww_batch *b) { return b->o.n_devices ? b->o.n_devices : 1; }

static struct ww_judge_opts opts_at(const struct ww_batch *b, const struct ww_batch_job *j, int slot)
{
	struct ww_judge_opts o = j->opts;
	if (b->o.n_devices)
		o.device = b->o.devices[slot];
	return o;
}

static int slot_of(const struct ww_batch *b, int device)
{
	int i = 0;
	while (i < b->o.n_devices && b->o.devices[i] != device)
		i++;
	return i < b->o.n_devices ? i : 0;
}

static int n_left(const struct ww_batch *b)
{
	int n = 0;
	for (int i = 0; i < n_slots(b); i++)
		n += !b->lost[i];
	return n;
}

static struct judge_entry *find_judge(struct ww_batch *b, const struct ww_judge_opts *o)
{
	for (int i = 0; i < MAX_JUDGES; i++)
		if (b->judges[i].state != UNUSED && same_opts(&b->judges[i].opts, o))
			return &b->judges[i];
	return NULL;
}

static struct task_entry *find_task(struct ww_batch *b, const struct judge_entry *owner, const struct ww_task *t)
{
	for (int i = 0; owner && i < MAX_TASKS; i++) {
		struct task_entry *e = &b->tasks[i];
		if (e->state != UNUSED && e->owner == owner && !strcmp(e->id, t->id) &&
			!strncmp(e->name, t->name, sizeof(e->name) - 1))
			return e;
	}
	return NULL;
}

static int count_tasks(const struct ww_batch *b, int opening_only)
{
	int n = 0;
	for (int i = 0; i < MAX_TASKS; i++) {
		enum state state = b->tasks[i].state;
		n += state == OPENING || (!opening_only && (state == OPEN || state == CLOSING));
	}
	return n;
}

/* Tasks that a device has or gets. */
static int tasks_at(const struct ww_batch *b, int slot)
{
	int n = 0;
	for (int i = 0; i < MAX_TASKS; i++) {
		const struct task_entry *e = &b->tasks[i];
		n += (e->state == OPENING || e->state == OPEN) && slot_of(b, e->owner->opts.device) == slot;
	}
	return n;
}

static int wanted(const struct ww_batch *b, const struct task_entry *e)
{
	for (const struct ww_batch_job *j = b->head; j; j = j->next)
		if (!strcmp(j->task.id, e->id) && same_kind(&j->opts, &e->owner->opts))
			return !b->lost[slot_of(b, e->owner->opts.device)];
	return 0;
}

/* The idle task that was used longest ago; with `unwanted`, only one that no waiting job wants. */
static struct task_entry *find_idle(struct ww_batch *b, int unwanted)
{
	struct task_entry *best = NULL;
	for (int i = 0; i < MAX_TASKS; i++) {
		struct task_entry *e = &b->tasks[i];
		if (e->state == OPEN && !e->users && (!best || e->used < best->used) && (!unwanted || !wanted(b, e)))
			best = e;
	}
	return best;
}

/* An idle task on a device that has failed. */
static struct task_entry *find_lost(struct ww_batch *b)
{
	for (int i = 0; i < MAX_TASKS; i++) {
		struct task_entry *e = &b->tasks[i];
		if (e->state == OPEN && !e->users && b->lost[slot_of(b, e->owner->opts.device)])
			return e;
	}
	return NULL;
}

/* A place for one more entry; failed ones give way. */
static struct task_entry *free_task(struct ww_batch *b)
{
	struct task_entry *oldest = NULL;
	for (int i = 0; i < MAX_TASKS; i++) {
		struct task_entry *e = &b->tasks[i];
		if (e->state == UNUSED)
			return e;
		if (e->state == FAILED && !e->users && (!oldest || e->used < oldest->used))
			oldest = e;
	}
	return oldest;
}

/* ---- Which job next (the lock is held) --------------------------------------------------------------------------- */

/* HOT: can be judged at once.  COLD: its judge or task must be opened.  NOT_YET: another thread opens or closes one. */
enum warmth { HOT, COLD, NOT_YET };

static enum warmth warmth(struct ww_batch *b, const struct ww_batch_job *j, int slot, int *users)
{
	struct ww_judge_opts o = opts_at(b, j, slot);
	const struct judge_entry *owner = find_judge(b, &o);
	*users = 0;
	if (!owner)
		return COLD;
	if (owner->state != OPEN)
		return owner->state == FAILED ? HOT : NOT_YET;
	const struct task_entry *e = find_task(b, owner, &j->task);
	*users = e ? e->users : 0;
	return !e ? COLD : e->state == OPEN || e->state == FAILED ? HOT : NOT_YET;
}

/* A job and the device for it; job NULL: none. */
struct choice {
	struct ww_batch_job **job;
	int slot, users;
};

/* The device on which a task is opened: the one with the fewest, of those left that do not have it.  Where another has
 * it, only a device without any task.  -1: none. */
static int slot_to_open(struct ww_batch *b, const struct ww_batch_job *j)
{
	int best = -1, least = 0, elsewhere = 0, users;
	for (int i = 0; i < n_slots(b); i++)
		elsewhere += !b->lost[i] && warmth(b, j, i, &users) != COLD;
	for (int i = 0; i < n_slots(b); i++) {
		int n = tasks_at(b, i);
		if (!b->lost[i] && warmth(b, j, i, &users) == COLD && (!elsewhere || !n) && (best < 0 || n < least)) {
			best = i;
			least = n;
		}
	}
	return best;
}

/* hot: of the jobs that can be judged at once one whose task the fewest use.  cold: the first that must be opened. */
static void look_through(struct ww_batch *b, struct choice *hot, struct choice *cold)
{
	*hot = *cold = (struct choice){ NULL, 0, 0 };
	for (struct ww_batch_job **p = &b->head; *p && !(cold->job && hot->job && !hot->users); p = &(*p)->next) {
		int users, slot;
		for (int i = 0; i < n_slots(b); i++)
			if (!b->lost[i] && warmth(b, *p, i, &users) == HOT && (!hot->job || users < hot->users))
				*hot = (struct choice){ p, i, users };
		if (!cold->job && (slot = slot_to_open(b, *p)) >= 0)
			*cold = (struct choice){ p, slot, 0 };
	}
}

static struct ww_batch_job *unlink_job(struct ww_batch *b, struct ww_batch_job **p)
{
	struct ww_batch_job *j = *p;
	*p = j->next;
	j->next = NULL;
	b->queued--;
	return j;
}

static struct ww_batch_job *take_job(struct ww_batch *b, struct ww_batch_job **p)
{
	for (struct ww_batch_job *k = b->head; k != *p; k = k->next)
		k->passed++;
	if (b->round < (*p)->round)
		b->round = (*p)->round;
	return unlink_job(b, p);
}

/* Queue a job in the round after its client's last waiting job, behind the others of that round. */
static void enqueue(struct ww_batch *b, struct ww_batch_job *job)
{
	struct ww_batch_job **p;
	job->round = b->round;
	for (const struct ww_batch_job *k = b->head; k; k = k->next)
		if (k->client == job->client)
			job->round = k->round + 1;
	for (p = &b->head; *p && (*p)->round <= job->round;)
		p = &(*p)->next;
	job->next = *p;
	*p = job;
	b->queued++;
}

/* What a thread has to do. */
struct work {
	struct ww_batch_job *job;
	struct judge_entry *judge; /* NULL: there are too many kinds */
	struct task_entry *task;   /* NULL if the judge could not be opened; else this job is one of its users */
	struct task_entry *evict;  /* to be closed first */
	int open_judge, open_task; /* ours to open */
	int slot;                  /* the device */
};

static struct judge_entry *new_judge(struct ww_batch *b, const struct ww_judge_opts *o)
{
	for (int i = 0; i < MAX_JUDGES; i++)
		if (b->judges[i].state == UNUSED) {
			b->judges[i] = (struct judge_entry){ .state = OPENING, .opts = *o, .err = WW_ERR_INIT };
			return &b->judges[i];
		}
	return NULL;
}

/* Mark what the job needs as in use or as being opened by us. */
static void reserve(struct ww_batch *b, struct work *w, struct task_entry *entry)
{
	w->job->opts = opts_at(b, w->job, w->slot);
	w->judge = find_judge(b, &w->job->opts);
	w->open_judge = !w->judge;
	if (!w->judge && !(w->judge = new_judge(b, &w->job->opts)))
		return;
	if (w->judge->state == FAILED)
		return;
	w->task = find_task(b, w->judge, &w->job->task);
	w->open_task = !w->task;
	if (!w->task) {
		w->task = entry;
		*entry = (struct task_entry){ .state = OPENING, .owner = w->judge, .err = WW_ERR_INIT };
		memcpy(entry->id, w->job->task.id, sizeof(entry->id));
		snprintf(entry->name, sizeof(entry->name), "%s", w->job->task.name);
	}
	w->task->users++;
	w->task->used = ++b->clock;
}

/* Choose the next work; 0: nothing can be done now.  Work without a job closes a task, because too many are open. */
static int take(struct ww_batch *b, struct work *w)
{
	memset(w, 0, sizeof(*w));
	w->evict = find_lost(b);
	if (w->evict ||
		(count_tasks(b, 0) > b->o.open_tasks &&
			((w->evict = find_idle(b, 1)) != NULL || (w->evict = find_idle(b, 0)) != NULL))) {
		w->evict->state = CLOSING;
		return 1;
	}
	if (!b->head)
		return 0;
	if (interrupted(b) || !n_left(b)) {
		w->job = take_job(b, &b->head);
		return 1;
	}
	struct task_entry *entry = free_task(b);
	struct choice hot, cold, *which = NULL;
	look_through(b, &hot, &cold);
	int may_open = entry && count_tasks(b, 1) < b->max_opening, full = count_tasks(b, 0) >= b->o.open_tasks;
	int impatient = b->head->passed > PATIENCE && cold.job == &b->head;
	if (cold.job && may_open && !full)
		which = &cold;
	else if (hot.job && !impatient)
		which = &hot;
	else if (cold.job && may_open && full && (w->evict = find_idle(b, !impatient)) != NULL)
		which = &cold;
	if (!which)
		return 0;
	if (w->evict)
		w->evict->state = CLOSING;
	w->slot = which->slot;
	w->job = take_job(b, which->job);
	reserve(b, w, entry);
	return 1;
}

/* ---- One job ----------------------------------------------------------------------------------------------------- */

/* Set a state that others look at. */
static void set_state(struct ww_batch *b, enum state *state, enum state to)
{
	WW_LOCKED(&b->lock);
	*state = to;
	pthread_cond_broadcast(&b->changed);
}

static void close_task(struct ww_batch *b, struct task_entry *e)
{
	ww_judge_task_retire(e->task);
	WW_LOCKED(&b->lock);
	memset(e, 0, sizeof(*e));
	pthread_cond_broadcast(&b->changed);
}

/* A judge serves many jobs and does not know whose stage it reports; it reports in the thread that works on the job. */
static _Thread_local struct ww_batch_job *in_hand;

static void tell_stage(void *ctx, const char *stage)
{
	(void)ctx;
	if (in_hand && in_hand->progress)
		in_hand->progress(in_hand, stage);
}

static int is_cancelled(void *ctx)
{
	(void)ctx;
	return in_hand && in_hand->cancelled;
}

static void open_judge(struct ww_batch *b, struct judge_entry *e)
{
	struct ww_judge_opts o = e->opts;
	o.interrupted = b->o.interrupted;
	o.progress = tell_stage;
	o.cancelled = is_cancelled;
	o.progress_ctx = NULL;
	o.open_tasks = (b->o.open_tasks + n_slots(b) - 1) / n_slots(b);
	enum ww_rc rc = ww_judge_open(&e->judge, &o, &e->err);
	set_state(b, &e->state, rc == WW_OK ? OPEN : FAILED);
}

static void open_task(struct ww_batch *b, struct task_entry *e, struct ww_batch_job *job)
{
	uint64_t start = ww_now_ns();
	enum ww_rc rc = ww_judge_task_open(e->owner->judge, &job->task, &e->task, &e->err);
	if (rc == WW_ERR_WORKER &&
		!interrupted(b)) { /* another process killed it: try once more, as when it dies in a judgement */
		ww_log(WW_LOG_WARN, "a task is opened again: %s", e->err.msg);
		rc = ww_judge_task_open(e->owner->judge, &job->task, &e->task, &e->err);
	}
	job->opened_s = ww_seconds_since(start);
	set_state(b, &e->state, rc == WW_OK ? OPEN : FAILED);
}

/* A task that cannot be used stays refused; a failure of the machine is tried again. */
static void leave_task(struct ww_batch *b, struct task_entry *e)
{
	WW_LOCKED(&b->lock);
	e->users--;
	if (e->state == FAILED && !e->users && e->err.rc != WW_ERR_TASK && e->err.rc != WW_ERR_USAGE)
		memset(e, 0, sizeof(*e));
	pthread_cond_broadcast(&b->changed);
}

static void fail(struct ww_batch_job *job, const struct ww_err *why)
{
	job->err = *why;
	job->rc = why->rc;
}

static void judge_job(struct ww_batch *b, struct work *w)
{
	struct ww_batch_job *job = w->job;
	if (!n_left(b)) {
		job->rc = ww_err_set(&job->err, WW_ERR_DEVICE, "no device is left: all have failed");
		return;
	}
	if (!w->judge) {
		job->rc = ww_err_set(&job->err, WW_ERR_LIMIT,
			"the jobs of one batch ask for more than %d kinds of judge (target, rule, "
			"baselines, limits)",
			MAX_KINDS);
		return;
	}
	if (w->open_judge)
		open_judge(b, w->judge);
	if (w->judge->state == FAILED && w->open_task) {
		w->task->err = w->judge->err;
		set_state(b, &w->task->state, FAILED);
	} else if (w->open_task) {
		open_task(b, w->task, job);
	}
	if (w->judge->state == FAILED)
		fail(job, &w->judge->err);
	else if (w->task->state == FAILED)
		fail(job, &w->task->err);
	else if (job->work)
		job->rc = job->work(job, w->task->task, &job->err);
	else
		job->rc = ww_judge_run_against(w->task->task, &job->files.solution,
			job->has_baseline ? &job->baseline.solution : NULL, job->depth, &job->verdict, &job->err);
	if (w->task)
		leave_task(b, w->task);
}

static int clamp(int n, int low, int high) { return n < low ? low : n > high ? high : n; }

/* Close idle tasks until no more than the limit are open, or until no task has become idle for a while.  The lock is
 * held. */
static void shrink(struct ww_batch *b)
{
	uint64_t start = ww_now_ns();
	while (count_tasks(b, 0) > b->o.open_tasks && !interrupted(b) && ww_seconds_since(start) < SHRINK_S) {
		struct task_entry *e = find_idle(b, 1);
		if (!e && !(e = find_idle(b, 0))) {
			wait_changed(b);
			continue;
		}
		e->state = CLOSING;
		pthread_mutex_unlock(&b->lock);
		close_task(b, e);
		pthread_mutex_lock(&b->lock);
	}
}

/* To the head of the queue.  The lock is held. */
static void put_back(struct ww_batch *b, struct ww_batch_job *job)
{
	ww_verdict_release(&job->verdict);
	job->rc = WW_OK;
	job->next = b->head;
	b->head = job;
	b->queued++;
	pthread_cond_broadcast(&b->changed);
}

/* The device's memory is full: keep fewer tasks open, and try again.  0: it was the only one, or has been tried enough.
 */
static int try_again(struct ww_batch *b, struct ww_batch_job *job)
{
	WW_LOCKED(&b->lock);
	int n = count_tasks(b, 0), again = n > 1 && ++job->attempts < MAX_ATTEMPTS && !interrupted(b);
	if (again) {
		if (n - 1 < b->o.open_tasks) {
			b->o.open_tasks = n - 1;
			ww_log(WW_LOG_WARN, "at most %d tasks stay open for now: %s", b->o.open_tasks, job->err.msg);
		}
		b->well = 0;
		b->well_enough = clamp(2 * b->well_enough, 1, MAX_WELL);
		shrink(b);
		put_back(b, job);
	}
	return again;
}

/* Memory was short while a large task was open; later tasks may be smaller. */
static void grow(struct ww_batch *b)
{
	WW_LOCKED(&b->lock);
	if (b->o.open_tasks >= b->most_open || ++b->well < b->well_enough)
		return;
	b->well = 0;
	b->o.open_tasks++;
	pthread_cond_broadcast(&b->changed);
}

/* ---- Devices that fail ------------------------------------------------------------------------------------------- */

static enum ww_rc probe_by_runner(const struct ww_judge_opts *o, struct ww_err *err)
{
	struct ww_runner *r = NULL;
	struct ww_run_facts facts;
	enum ww_rc rc = ww_runner_new(&r, o->target, o->device, o->threads, 0, err);
	if (rc == WW_OK)
		rc = ww_runner_facts(r, &facts, err);
	ww_runner_free(r);
	return rc;
}

/* Errors that a failed device may have caused. */
static int may_be_the_device(enum ww_rc rc)
{
	return rc == WW_ERR_DEVICE || rc == WW_ERR_WORKER || rc == WW_ERR_MISSING || rc == WW_ERR_PROTOCOL;
}

/* 1: the job's device is lost, and another one gets the job. */
static int moved(struct ww_batch *b, struct ww_batch_job *job)
{
	struct ww_err why = WW_ERR_INIT;
	if (!b->o.n_devices || !may_be_the_device(job->rc) || interrupted(b))
		return 0;
	int slot = slot_of(b, job->opts.device),
		failed = (b->o.probe ? b->o.probe : probe_by_runner)(&job->opts, &why) != WW_OK;
	WW_LOCKED(&b->lock);
	if (failed && !b->lost[slot]) {
		b->lost[slot] = 1;
		ww_log(WW_LOG_WARN, "device %d has failed (%.300s); %s", job->opts.device, why.msg,
			n_left(b) ? "its jobs go to the others" : "none is left");
	}
	int go_on = b->lost[slot] && n_left(b);
	if (go_on)
		put_back(b, job);
	return go_on;
}

static void give_back(struct ww_batch *b, struct ww_batch_job *job)
{
	WW_LOCKED(&b->done_lock);
	b->o.done(b->o.ctx, job);
}

static void do_job(struct ww_batch *b, struct work *w)
{
	w->job->queued_s = ww_seconds_since(w->job->added_ns);
	in_hand = w->job;
	if (interrupted(b) && !w->task)
		w->job->rc = ww_err_set(&w->job->err, WW_ERR_INTERRUPTED, "interrupted");
	else
		judge_job(b, w);
	in_hand = NULL;
	ww_log(WW_LOG_DEBUG, "stage: over");
	if ((w->job->rc == WW_ERR_ROOM && try_again(b, w->job)) || moved(b, w->job))
		return;
	if (w->job->rc == WW_OK)
		grow(b);
	give_back(b, w->job);
}

static void *thread_main(void *arg)
{
	struct ww_batch *b = arg;
	struct work w;
	pthread_mutex_lock(&b->lock);
	while (!b->ending) {
		if (!take(b, &w)) {
			wait_changed(b);
			continue;
		}
		b->running++;
		pthread_cond_broadcast(&b->changed);
		pthread_mutex_unlock(&b->lock);
		if (w.evict)
			close_task(b, w.evict);
		if (w.job)
			do_job(b, &w);
		pthread_mutex_lock(&b->lock);
		b->running--;
		pthread_cond_broadcast(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

/* ---- The batch --------------------------------------------------------------------------------------------------- */

/* Opening a task takes a core for seconds, a job less than one. */
static void set_defaults(struct ww_batch *b)
{
	struct ww_batch_opts *o = &b->o;
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	int by_memory = clamp((int)(memory / 2 / HOST_BYTES_PER_TASK), 1, MAX_TASKS / 2);
	const int cores = ww_host_cores();
	const long left = ww_host_tasks_left("") / 2 / TASKS_PER_JOB; /* half of them: other programs start processes too */
	int by_tasks = left < MAX_TASKS ? clamp((int)left, 1, MAX_TASKS) : MAX_TASKS;
	b->max_opening = clamp(cores * 3 / 4, MIN_OPENING, MAX_TASKS / 4);
	int threads = cores + 1 + (cores > 4 ? b->max_opening : 0), by_cores = cores > 4 ? 2 * cores : 8;
	if (by_tasks < threads || by_tasks < by_cores)
		ww_log(WW_LOG_INFO, "%d jobs at a time: the system leaves room for few more processes", by_tasks);
	o->threads = clamp(o->threads ? o->threads : clamp(threads, 1, by_tasks), 1, MAX_THREADS);
	by_memory = by_memory < by_tasks ? by_memory : by_tasks;
	o->open_tasks = clamp(o->open_tasks ? o->open_tasks : clamp(by_cores, 1, by_memory), 1, MAX_TASKS / 2);
	b->most_open = o->open_tasks;
	b->well_enough = WELL;
	o->queue = o->queue > 0 ? o->queue : DEFAULT_QUEUE;
}

enum ww_rc ww_batch_open(struct ww_batch **out, const struct ww_batch_opts *o, struct ww_err *err)
{
	struct ww_batch *b = calloc(1, sizeof(*b));
	*out = b;
	if (!b)
		return ww_nomem(err);
	b->o = *o;
	set_defaults(b);
	pthread_mutex_init(&b->lock, NULL);
	pthread_mutex_init(&b->done_lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	while (b->n_threads < b->o.threads && !pthread_create(&b->threads[b->n_threads], NULL, thread_main, b))
		b->n_threads++;
	if (b->n_threads)
		return WW_OK;
	ww_batch_close(b);
	*out = NULL;
	return ww_err_set(err, WW_ERR_SYSTEM, "cannot start a thread");
}

enum ww_rc ww_batch_add(struct ww_batch *b, struct ww_batch_job *job, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	ww_verdict_init(&job->verdict);
	job->next = NULL;
	job->passed = 0;
	WW_LOCKED(&b->lock);
	while (b->queued >= b->o.queue && !interrupted(b))
		wait_changed(b);
	if (interrupted(b)) {
		rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	} else {
		job->added_ns = ww_now_ns();
		enqueue(b, job);
		pthread_cond_broadcast(&b->changed);
	}
	return rc;
}

void ww_batch_cancel(struct ww_batch *b, struct ww_batch_job *job)
{
	pthread_mutex_lock(&b->lock);
	struct ww_batch_job **p = &b->head;
	while (*p && *p != job)
		p = &(*p)->next;
	int waits = *p != NULL;
	if (waits) {
		unlink_job(b, p);
		b->running++; /* until it has come back */
		pthread_cond_broadcast(&b->changed);
	} else {
		job->cancelled = 1;
	}
	pthread_mutex_unlock(&b->lock);
	if (!waits)
		return;
	job->queued_s = ww_seconds_since(job->added_ns);
	job->rc = ww_err_set(&job->err, WW_ERR_INTERRUPTED, "cancelled");
	give_back(b, job);
	pthread_mutex_lock(&b->lock);
	b->running--;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

void ww_batch_drain(struct ww_batch *b)
{
	WW_LOCKED(&b->lock);
	while (b->queued || b->running)
		wait_changed(b);
}

void ww_batch_close(struct ww_batch *b)
{
	if (!b)
		return;
	WW_BUG(b->queued || b->running);
	for (int i = 0; i < MAX_TASKS; i++)
		if (b->tasks[i].state == OPEN)
			ww_judge_task_close(b->tasks[i].task);
	for (int i = 0; i < MAX_JUDGES; i++)
		ww_judge_close(b->judges[i].judge);
	pthread_mutex_lock(&b->lock);
	b->ending = 1;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	for (int i = 0; i < b->n_threads; i++)
		pthread_join(b->threads[i], NULL);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	pthread_mutex_destroy(&b->done_lock);
	free(b);
}
