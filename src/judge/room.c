/* room.c - memory of the device that other processes and tasks hold: wait for it.
 *
 * Judges that share a device do not know what the others need.  A judgement (or the opening of a task) that finds too
 * little memory frees all that its own task holds, so that two waiting judges never hold what the other one needs,
 * sleeps, and tries again; each sleep is twice as long.  Only processes that hold memory can give some back: if this
 * process is the only one on the device, or has waited for LONGEST_S in all, the lack of memory is reported.  If
 * several tasks of this process are open, its batch closes some of them and does not wait.
 *
 * Processes with exported operators (checks of exports, the exported call) hold memory of their own.  One that finds
 * too little ends, so that it waits with nothing held, and is started again.  Others may have ended between its failure
 * and the question who holds memory, so a failure counts if nobody else was there before the attempt either.
 *
 * Rejected: reserving memory in a file (a task's need is not known before it has run); waiting with the task's own
 * memory held (two would wait for each other). */
#include "judge/load.h"
#include "judge/room.h"

#include "base/lock.h"
#include "base/time.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static const double LONGEST_S = 600, FIRST_NAP_S = 0.5, LAST_NAP_S = 15, LOOK_S = 0.05;

/* Tasks that this process has open on all GPUs together; with several GPUs a judgement may be tried again in vain. */
static atomic_int open_on_gpus;

void ww_room_add_tasks(const struct ww_judge *j, int n)
{
	if (j->opts.target == WW_TARGET_CUDA)
		atomic_fetch_add(&open_on_gpus, n);
}

static int is_crowded(const struct ww_judge *j)
{
	return j->opts.target == WW_TARGET_CUDA && atomic_load(&open_on_gpus) > 1;
}

static double waited_s(struct ww_judge *j)
{
	WW_LOCKED(&j->lock);
	return j->room_waited_s;
}

static int is_held(struct ww_judge *j)
{
	if (waited_s(j) >= LONGEST_S)
		return 0;
	return j->opts.shared ? j->opts.shared(j->opts.progress_ctx)
						  : j->opts.target == WW_TARGET_CUDA && ww_load_is_shared(j);
}

int ww_room_is_others(struct ww_judge *j) { return is_crowded(j) || is_held(j); }

int ww_room_is_worth_waiting(struct ww_judge *j, enum ww_rc rc)
{
	return rc == WW_ERR_ROOM && !is_crowded(j) && is_held(j);
}

static enum ww_rc nap(struct ww_judge *j, double *nap_s, const char *stage, struct ww_err *err)
{
	static const struct timespec look = { 0, (long)(LOOK_S * 1e9) };
	uint64_t start = ww_now_ns();
	double s = 0;
	*nap_s = *nap_s > 0 ? fmin(2 * *nap_s, LAST_NAP_S) : FIRST_NAP_S;
	ww_judge_progress(j, stage);
	for (; s < *nap_s; s = ww_seconds_since(start)) {
		WW_CHECK(ww_judge_interrupted(j, err));
		nanosleep(&look, NULL);
	}
	WW_LOCKED(&j->lock);
	j->room_waited_s += s;
	return WW_OK;
}

enum ww_rc ww_room_wait(struct ww_judge *j, double *nap_s, struct ww_err *err)
{
	return nap(j, nap_s, "waiting for memory of the device: other processes hold it", err);
}

/* ---- Processes with exported operators --------------------------------------------------------------------------- */

int ww_judge_room_again(struct ww_judge_task *t, struct ww_judge_room *r)
{
	int was_alone = r->alone;
	r->alone = !is_held(t->judge);
	return !(was_alone && r->alone);
}

enum ww_rc ww_judge_room_wait(struct ww_judge_task *t, struct ww_judge_room *r, double gib, struct ww_err *err)
{
	char stage[96] = "waiting for the device's memory, held by others";
	if (r->alone)
		return ww_judge_interrupted(t->judge, err);
	if (gib > 0)
		snprintf(stage, sizeof(stage), "waiting for %.1f GiB of the device's memory, held by others", gib);
	WW_CHECK(nap(t->judge, &r->nap_s, stage, err));
	ww_judge_progress(t->judge, "the device's memory may suffice now: trying again");
	return WW_OK;
}
