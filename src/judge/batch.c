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

#include "base/log.h"
#include "base/time.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_ATTEMPTS = 8,
	MAX_THREADS = 64,
	MAX_JUDGES = 8,
	MAX_TASKS = 64,
	MAX_OPENING = 4,
	DEFAULT_QUEUE = 256,
	PATIENCE = 1024
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
	struct ww_batch_job *head, **tail;
	int queued, running, ending;
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

static int same_opts(const struct ww_judge_opts *a, const struct ww_judge_opts *b)
{
	return a->target == b->target && a->device == b->device && a->threads == b->threads && a->rule == b->rule &&
		a->baselines == b->baselines && a->max_run_s == b->max_run_s && a->max_compile_s == b->max_compile_s &&
		a->max_time_s == b->max_time_s && a->max_repeat_s == b->max_repeat_s && a->seed == b->seed;
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

static int wanted(const struct ww_batch *b, const struct task_entry *e)
{
	for (const struct ww_batch_job *j = b->head; j; j = j->next)
		if (!strcmp(j->task.id, e->id) && same_opts(&j->opts, &e->owner->opts))
			return 1;
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

static enum warmth warmth(struct ww_batch *b, const struct ww_batch_job *j)
{
	const struct judge_entry *owner = find_judge(b, &j->opts);
	if (!owner)
		return COLD;
	if (owner->state != OPEN)
		return owner->state == FAILED ? HOT : NOT_YET;
	const struct task_entry *e = find_task(b, owner, &j->task);
	return !e ? COLD : e->state == OPEN || e->state == FAILED ? HOT : NOT_YET;
}

static struct ww_batch_job **first(struct ww_batch *b, enum warmth which)
{
	struct ww_batch_job **p = &b->head;
	while (*p && warmth(b, *p) != which)
		p = &(*p)->next;
	return *p ? p : NULL;
}

static struct ww_batch_job *unlink_job(struct ww_batch *b, struct ww_batch_job **p)
{
	struct ww_batch_job *j = *p;
	for (struct ww_batch_job *k = b->head; k != j; k = k->next)
		k->passed++;
	*p = j->next;
	if (!j->next)
		b->tail = p;
	j->next = NULL;
	b->queued--;
	return j;
}

/* What a thread has to do. */
struct work {
	struct ww_batch_job *job;
	struct judge_entry *judge; /* NULL: there are too many kinds */
	struct task_entry *task;   /* NULL where the judge cannot be had; else with one more user */
	struct task_entry *evict;  /* to be closed first */
	int open_judge, open_task; /* ours to open */
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
static void reserve(struct ww_batch *b, struct work *w, struct task_entry *place)
{
	w->judge = find_judge(b, &w->job->opts);
	w->open_judge = !w->judge;
	if (!w->judge && !(w->judge = new_judge(b, &w->job->opts)))
		return;
	if (w->judge->state == FAILED)
		return;
	w->task = find_task(b, w->judge, &w->job->task);
	w->open_task = !w->task;
	if (!w->task) {
		w->task = place;
		*place = (struct task_entry){ .state = OPENING, .owner = w->judge, .err = WW_ERR_INIT };
		memcpy(place->id, w->job->task.id, sizeof(place->id));
		snprintf(place->name, sizeof(place->name), "%s", w->job->task.name);
	}
	w->task->users++;
	w->task->used = ++b->clock;
}

/* Choose; 0: nothing can be done now.  Without a job: only close a task, of which more are open than may be. */
static int take(struct ww_batch *b, struct work *w)
{
	memset(w, 0, sizeof(*w));
	if (count_tasks(b, 0) > b->o.open_tasks &&
		((w->evict = find_idle(b, 1)) != NULL || (w->evict = find_idle(b, 0)) != NULL)) {
		w->evict->state = CLOSING;
		return 1;
	}
	if (!b->head)
		return 0;
	struct task_entry *place = free_task(b);
	int may_open = place && count_tasks(b, 1) < MAX_OPENING, full = count_tasks(b, 0) >= b->o.open_tasks;
	int impatient = b->head->passed > PATIENCE && warmth(b, b->head) == COLD;
	struct ww_batch_job **cold = first(b, COLD), **hot = first(b, HOT), **which = NULL;
	if (interrupted(b)) {
		w->job = unlink_job(b, &b->head);
		return 1;
	}
	if (cold && may_open && !full)
		which = cold;
	else if (hot && !impatient)
		which = hot;
	else if (cold && may_open && full && (w->evict = find_idle(b, !impatient)) != NULL)
		which = cold;
	if (!which)
		return 0;
	if (w->evict)
		w->evict->state = CLOSING;
	w->job = unlink_job(b, which);
	reserve(b, w, place);
	return 1;
}

/* ---- One job ----------------------------------------------------------------------------------------------------- */

/* Set a state that others look at. */
static void set_state(struct ww_batch *b, enum state *state, enum state to)
{
	pthread_mutex_lock(&b->lock);
	*state = to;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

static void close_task(struct ww_batch *b, struct task_entry *e)
{
	ww_judge_task_close(e->task);
	pthread_mutex_lock(&b->lock);
	memset(e, 0, sizeof(*e));
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

/* A judge serves many jobs and does not know whose stage it reports; it reports in the thread that works on the job. */
static _Thread_local struct ww_batch_job *in_hand;

static void tell_stage(void *ctx, const char *stage)
{
	(void)ctx;
	if (in_hand && in_hand->progress)
		in_hand->progress(in_hand, stage);
}

static void open_judge(struct ww_batch *b, struct judge_entry *e)
{
	struct ww_judge_opts o = e->opts;
	o.interrupted = b->o.interrupted;
	o.progress = tell_stage;
	o.progress_ctx = NULL;
	o.open_tasks = b->o.open_tasks;
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
	pthread_mutex_lock(&b->lock);
	e->users--;
	if (e->state == FAILED && !e->users && e->err.rc != WW_ERR_TASK && e->err.rc != WW_ERR_USAGE)
		memset(e, 0, sizeof(*e));
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

static void fail(struct ww_batch_job *job, const struct ww_err *why)
{
	job->err = *why;
	job->rc = why->rc;
}

static void judge_job(struct ww_batch *b, struct work *w)
{
	struct ww_batch_job *job = w->job;
	if (!w->judge) {
		job->rc = ww_err_set(&job->err, WW_ERR_LIMIT,
			"the jobs of one batch ask for more than %d kinds of judge (target, rule, "
			"baselines, limits)",
			MAX_JUDGES);
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

/* The device's memory is full: keep fewer tasks open, and try again.  0: it was the only one, or has been tried enough.
 */
static int try_again(struct ww_batch *b, struct ww_batch_job *job)
{
	pthread_mutex_lock(&b->lock);
	int n = count_tasks(b, 0), again = n > 1 && ++job->attempts < MAX_ATTEMPTS && !interrupted(b);
	if (again) {
		if (n - 1 < b->o.open_tasks) {
			b->o.open_tasks = n - 1;
			ww_log(WW_LOG_WARN, "%d tasks are kept open from now on: %s", b->o.open_tasks, job->err.msg);
		}
		shrink(b);
		ww_verdict_release(&job->verdict);
		job->rc = WW_OK;
		job->next = b->head;
		b->head = job;
		if (!job->next)
			b->tail = &job->next;
		b->queued++;
		pthread_cond_broadcast(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return again;
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
	if (w->job->rc == WW_ERR_ROOM && try_again(b, w->job))
		return;
	pthread_mutex_lock(&b->done_lock);
	b->o.done(b->o.ctx, w->job);
	pthread_mutex_unlock(&b->done_lock);
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

static int cores(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

static int clamp(int n, int low, int high) { return n < low ? low : n > high ? high : n; }

static void set_defaults(struct ww_batch_opts *o)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	o->threads = clamp(o->threads ? o->threads : clamp(cores() + 1, 2, 17), 1, MAX_THREADS);
	o->open_tasks = clamp(
		o->open_tasks ? o->open_tasks : clamp((int)(memory / 2 / HOST_BYTES_PER_TASK), 1, 16), 1, MAX_TASKS / 2);
	o->queue = o->queue > 0 ? o->queue : DEFAULT_QUEUE;
}

enum ww_rc ww_batch_open(struct ww_batch **out, const struct ww_batch_opts *o, struct ww_err *err)
{
	struct ww_batch *b = calloc(1, sizeof(*b));
	*out = b;
	if (!b)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory");
	b->o = *o;
	set_defaults(&b->o);
	b->tail = &b->head;
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
	pthread_mutex_lock(&b->lock);
	while (b->queued >= b->o.queue && !interrupted(b))
		wait_changed(b);
	if (interrupted(b)) {
		rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	} else {
		job->added_ns = ww_now_ns();
		*b->tail = job;
		b->tail = &job->next;
		b->queued++;
		pthread_cond_broadcast(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return rc;
}

void ww_batch_drain(struct ww_batch *b)
{
	pthread_mutex_lock(&b->lock);
	while (b->queued || b->running)
		wait_changed(b);
	pthread_mutex_unlock(&b->lock);
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
