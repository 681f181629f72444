/* turns.c - see turns.h.
 *
 * Phases.  While tasks are loaded nothing is measured or verified, and the other way round.  Each phase lasts for a
 * while and admits all that come, so that neither kind waits for long and phases change rarely.
 *
 *     LOADING    ends when others wait, and it has lasted LOADING_MS or MANY wait: then none enters, and the phase
 *                changes when the last has left
 *     JUDGING    verifications and measurements, in the order in which they came, since one that needs the device for
 *                itself would else wait for ever; ends when none waits, or after JUDGING_MS where tasks wait to load
 *
 * Where the phase before it lasted longer, up to PHASE_MS, a phase may last as long: loading a task takes a second, and
 * after twelve of them more than one judgement waits.
 *
 * Calls.  Small tasks are verified and measured beside each other.  Of both the most part are `steps` (draws,
 * comparisons, runs that are not timed), which run beside those of others; a call that is timed waits until all steps
 * are over, and has the device for itself.  Calls are made in rows, of all that are measured or ROW of them, and while
 * a row is made or waited for no step begins: each row waits once for the steps under way, which are processor time
 * mostly.  Rejected: verifications in phases of their own (a phase ends with its slowest, so the device was idle for a
 * third of the time); a row as soon as one call waits (steps are then made one by one).
 *
 * Few are inside at once: a GPU gives its processes slices of time in turn, and sixteen parallel verifications took 408
 * ms each where one alone takes 14 to 19.  So JUDGED are judged, or LOADED load: that is processor time mostly, and
 * waiting for the driver, which starts their contexts one after another.  And few are under way, WW_TURNS_PRESENT,
 * since each has a runner, and each runner a context of the GPU.
 *
 * The lease is taken by the first and given back by the last; after LEASE_MS at the next change of phase, and nobody
 * enters after twice as long until it has been given back, so that other processes get theirs.  The one that takes it
 * does so without our lock. */
#include "judge/turns.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/time.h"
#include "host/lease.h"
#include "judge/internal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
	LOADING_MS = 30,
	JUDGING_MS = 250,
	PHASE_MS = 1000,
	MANY = 8,
	LEASE_MS = 1000,
	LOOK_MS = 50,
	MAX_DEVICES = 64,
	JUDGED = 6, /* verified or measured at once */
	LOADED = 24,
	ROOM = JUDGED * LOADED,
	ROW = 4
};
static const int takes[] = {
	[WW_TURN_SHARED] = LOADED, [WW_TURN_LOAD] = JUDGED, [WW_TURN_TIMED] = LOADED, [WW_TURN_ALONE] = ROOM
};

enum phase { LOADING, JUDGING, PHASES };

/* A judgement that waits to be verified or measured. */
struct waiter {
	struct ww_queued queued;
	int counts; /* it would become one of those present */
};

struct ww_turns {
	char device[96];
	enum phase phase;
	uint64_t phase_ns;           /* when it began */
	int before_ms;               /* how long the one before it lasted, PHASE_MS at most */
	int inside;                  /* what those that have the device now take of ROOM */
	int present;                 /* judgements that have been inside and are not over */
	int waiting[PHASES];         /* by the phase that they wait for */
	struct ww_queue judged;      /* those that wait for JUDGING */
	int steps;                   /* judgements that use the device beside each other */
	int measured;                /* those of them that are TIMED, and those that wait to make a call or make it */
	int calls_wait, calling;     /* the latter */
	int row;                     /* calls are made, one after another: no step begins */
	pthread_cond_t call_changed; /* the last four lines */
	int leasing, leased;         /* the lease is being taken; is held */
	uint64_t leased_ns;
	struct ww_lease lease;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct ww_turns all[MAX_DEVICES];

static struct ww_turns *find(const char *device)
{
	for (int i = 0; i < MAX_DEVICES; i++) {
		if (!all[i].device[0]) {
			snprintf(all[i].device, sizeof(all[i].device), "%s", device);
			all[i].phase = LOADING;
			pthread_cond_init(&all[i].call_changed, NULL);
		}
		if (!strcmp(all[i].device, device))
			return &all[i];
	}
	return NULL;
}

static enum phase phase_of(enum ww_turn_kind k) { return k == WW_TURN_LOAD ? LOADING : JUDGING; }

static int has_steps(enum ww_turn_kind k) { return k == WW_TURN_SHARED || k == WW_TURN_TIMED; }

static int lasted(uint64_t since_ns, int ms) { return ww_now_ns() - since_ns > (uint64_t)ms * 1000000u; }

static int at_least(int ms, int least_ms) { return ms > least_ms ? ms : least_ms; }

/* Whether the phase is over for newcomers: they wait for the next one. */
static int is_over(const struct ww_turns *t)
{
	const int *w = t->waiting;
	if (t->phase == LOADING)
		return w[JUDGING] &&
			(lasted(t->phase_ns, at_least(t->before_ms, LOADING_MS)) || w[JUDGING] >= MANY || !w[LOADING]);
	return !w[JUDGING] || (w[LOADING] && lasted(t->phase_ns, at_least(t->before_ms, JUDGING_MS)));
}

/* While nobody is inside: another phase, and the lease back where its time is over. */
static void turn_over(struct ww_turns *t)
{
	if (t->inside || t->leasing)
		return;
	if (t->leased && (lasted(t->leased_ns, LEASE_MS) || !(t->waiting[LOADING] + t->waiting[JUDGING]))) {
		ww_lease_drop(&t->lease);
		t->leased = 0;
	}
	enum phase other = t->phase == LOADING ? JUDGING : LOADING;
	if (is_over(t) && t->waiting[other]) {
		double ms = ww_seconds_since(t->phase_ns) * 1e3;
		t->before_ms = ms < PHASE_MS ? (int)ms : PHASE_MS;
		t->phase = other;
		t->phase_ns = ww_now_ns();
	}
}

/* The next judgement to enter.  Where as many are present as may be, a new one is passed over in favour of those
 * present. */
static const struct waiter *next_judged(const struct ww_turns *t)
{
	const struct ww_queued *q = t->judged.first;
	while (q && ((const struct waiter *)q)->counts && t->present >= WW_TURNS_PRESENT)
		q = q->next;
	return (const struct waiter *)q;
}

/* w: the entry of a judgement that waits to be verified or timed. */
static int may_enter(struct ww_turns *t, enum ww_turn_kind kind, const struct waiter *w)
{
	turn_over(t);
	if (phase_of(kind) == JUDGING && next_judged(t) != w)
		return 0;
	if (t->leasing || t->phase != phase_of(kind) || t->inside + takes[kind] > ROOM)
		return 0;
	return !t->inside || (!is_over(t) && !lasted(t->leased_ns, 2 * LEASE_MS));
}

static void wait_changed(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += LOOK_MS * 1000000l;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&changed, &lock, &t);
}

static void report_wait(void *judge, const char *holder)
{
	char stage[288];
	snprintf(stage, sizeof(stage), "waiting for the device, held by %s", holder);
	ww_judge_progress(judge, stage);
}

/* The lock is held, but not while it waits for other processes. */
static enum ww_rc lease(struct ww_turns *t, const struct ww_judge *j, struct ww_err *err)
{
	if (t->leased)
		return WW_OK;
	const struct ww_lease_wait w = { .interrupted = j->opts.interrupted, .waiting = report_wait, .ctx = (void *)j };
	t->leasing = 1;
	pthread_mutex_unlock(&lock);
	enum ww_rc rc = ww_lease_take(&t->lease, t->device, &w, err);
	pthread_mutex_lock(&lock);
	t->leasing = 0;
	t->leased = rc == WW_OK;
	t->leased_ns = ww_now_ns();
	pthread_cond_broadcast(&changed);
	return rc;
}

/* A row of calls begins when all that are measured want to make one, or enough for a row, and ends when all have been
 * made. */
static void look_at_calls(struct ww_turns *t)
{
	if (!t->calls_wait && !t->calling)
		t->row = 0;
	else if (t->calls_wait >= t->measured || t->calls_wait >= ROW)
		t->row = 1;
	pthread_cond_broadcast(&t->call_changed);
}

/* Wait until no row of calls is made, then go on beside the others. */
static void begin_steps(struct ww_turns *t, enum ww_turn_kind kind)
{
	while (t->row)
		pthread_cond_wait(&t->call_changed, &lock);
	t->steps++;
	t->measured += kind == WW_TURN_TIMED;
}

static void end_steps(struct ww_turns *t, enum ww_turn_kind kind)
{
	t->steps--;
	t->measured -= kind == WW_TURN_TIMED;
	look_at_calls(t);
}

static void leave(struct ww_turns *t, enum ww_turn_kind kind)
{
	if (has_steps(kind))
		end_steps(t, kind);
	t->inside -= takes[kind];
	turn_over(t);
	pthread_cond_broadcast(&changed);
}

/* `held`: the turn that is given back for it; a change waits before it leaves, so the lease stays.  counts: the
 * judgement becomes one of those present. */
static enum ww_rc enter(struct ww_turns *t, const struct ww_judge *j, enum ww_turn_kind held, enum ww_turn_kind kind,
	int counts, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct waiter w = { .counts = counts };
	t->waiting[phase_of(kind)]++;
	if (phase_of(kind) == JUDGING)
		ww_queue_add(&t->judged, &w.queued);
	if (held != WW_TURN_NONE)
		leave(t, held);
	while (rc == WW_OK && !may_enter(t, kind, &w)) {
		wait_changed();
		rc = ww_judge_interrupted(j, err);
	}
	t->waiting[phase_of(kind)]--;
	if (rc == WW_OK)
		rc = lease(t, j, err);
	if (rc == WW_OK)
		t->inside += takes[kind];
	ww_queue_remove(&t->judged, &w.queued);
	pthread_cond_broadcast(&changed);
	if (rc != WW_OK)
		return rc;
	t->present += counts;
	if (has_steps(kind))
		begin_steps(t, kind);
	return WW_OK;
}

static const char *const names[] = { "none", "beside others", "loading", "timed", "alone" };

static void log_turn(const struct ww_turn *t)
{
	if (t->turns)
		ww_log(WW_LOG_DEBUG, "turn: %s, %.0f us", names[t->kind], ww_seconds_since(t->taken_ns) * 1e6);
}

/* From verifying to timing or back, without giving up the turn. */
static void change_inside(struct ww_turn *t, enum ww_turn_kind kind)
{
	ww_log(WW_LOG_DEBUG, "turn: %s after 0 us", names[kind]);
	WW_LOCKED(&lock);
	t->turns->measured += (kind == WW_TURN_TIMED) - (t->kind == WW_TURN_TIMED);
	t->kind = kind;
	t->taken_ns = ww_now_ns();
	look_at_calls(t->turns);
}

enum ww_rc ww_turn_take(struct ww_turn *t, const struct ww_judge *j, enum ww_turn_kind kind, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	if (j->opts.target == WW_TARGET_CPU)
		kind = WW_TURN_ALONE;
	if (t->kind == kind)
		return WW_OK;
	log_turn(t);
	if (has_steps(kind) && has_steps(t->kind)) {
		change_inside(t, kind);
		return WW_OK;
	}
	int counts = !t->counts && kind == WW_TURN_SHARED;
	uint64_t start_ns = ww_now_ns();
	WW_LOCKED(&lock);
	struct ww_turns *of = find(j->facts.uuid);
	if (!of)
		rc = ww_err_set(err, WW_ERR_LIMIT, "one process judges on %d devices at most", MAX_DEVICES);
	else
		rc = enter(of, j, t->kind, kind, counts, err);
	ww_log(WW_LOG_DEBUG, "turn: %s after %.0f us", names[kind], ww_seconds_since(start_ns) * 1e6);
	if (rc != WW_OK && of)
		of->present -= t->counts;
	*t = rc == WW_OK ? (struct ww_turn){ j, of, kind, ww_now_ns(), counts || t->counts, 0, t->waited_s }
					 : (struct ww_turn){ .waited_s = t->waited_s };
	return rc;
}

void ww_turn_drop(struct ww_turn *t)
{
	if (!t->turns)
		return;
	log_turn(t);
	pthread_mutex_lock(&lock);
	t->turns->present -= t->counts;
	leave(t->turns, t->kind);
	pthread_mutex_unlock(&lock);
	*t = (struct ww_turn){ .waited_s = t->waited_s };
}

/* Go on beside the others of a turn that is held. */
static void go_on(struct ww_turn *t)
{
	uint64_t start = ww_now_ns();
	begin_steps(t->turns, t->kind);
	t->waited_s += ww_seconds_since(start);
}

void ww_turn_call(struct ww_turn *t)
{
	if (t->kind != WW_TURN_TIMED || t->calls++)
		return;
	struct ww_turns *of = t->turns;
	uint64_t start = ww_now_ns();
	WW_LOCKED(&lock);
	of->steps--;
	of->calls_wait++;
	look_at_calls(of);
	while (!of->row || of->calling || of->steps)
		pthread_cond_wait(&of->call_changed, &lock);
	of->calls_wait--;
	of->calling = 1;
	t->waited_s += ww_seconds_since(start);
}

void ww_turn_called(struct ww_turn *t)
{
	if (t->kind != WW_TURN_TIMED || --t->calls)
		return;
	WW_LOCKED(&lock);
	t->turns->calling = 0;
	t->turns->measured--;
	look_at_calls(t->turns);
	go_on(t);
}

void ww_turn_pause(struct ww_turn *t)
{
	if (!has_steps(t->kind))
		return;
	WW_LOCKED(&lock);
	end_steps(t->turns, t->kind);
}

void ww_turn_resume(struct ww_turn *t)
{
	if (!has_steps(t->kind))
		return;
	WW_LOCKED(&lock);
	go_on(t);
}

void ww_turn_step(struct ww_turn *t)
{
	if (t->kind != WW_TURN_SHARED)
		return;
	ww_turn_pause(t);
	ww_turn_resume(t);
}

enum ww_rc ww_judge_turn(struct ww_judge_task *t, enum ww_turn_kind kind, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	enum ww_rc rc = ww_turn_take(&t->turn, t->judge, t->heavy ? WW_TURN_ALONE : kind, err);
	t->wait_s += ww_seconds_since(start);
	return rc;
}
