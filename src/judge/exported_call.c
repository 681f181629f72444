/* exported_call.c - call_us of a plan: the time of the exported operator's call in a fresh process (cuda). */
#include "judge/stages.h"

#include "base/time.h"

#include <math.h>

enum { CALLS = 30 };

static void set_call(const struct ww_judge_task *t, struct ww_verdict *v, const double *us, int n)
{
	v->time.call_us = ww_stats_median(us, n);
	for (int b = 0; b < WW_BASE_TORCH_COUNT; b++) {
		const struct ww_base *e = &t->base[b];
		double moved = v->baselines[b].call_us / ww_stats_median(e->call_us, e->n_call); /* as set_ratios() found */
		if (v->baseline_measured[b] && e->n_call)
			v->speedup_call[b] = ww_stats_ratio(e->call_us, e->n_call, moved, us, n, WW_STATS_95);
	}
}

/* The process uses the device as a judgement of a small task does: what is loaded and called for the first time goes
 * with others that load, and each timed call has the device for itself (turns.h).  Behind a call it asks to go on,
 * since others may make theirs in the same row.  That of a large task has it throughout: beside others there might be
 * no memory for its inputs. */
struct uses {
	const struct ww_judge *judge;
	struct ww_turn turn;
	int heavy, taken, calling, called;
	double wait_s;
};

static enum ww_rc change_turn(struct uses *u, enum ww_turn_kind kind, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	enum ww_rc rc = ww_turn_take(&u->turn, u->judge, u->heavy ? WW_TURN_ALONE : kind, err);
	u->wait_s += ww_seconds_since(start);
	return rc;
}

static enum ww_rc take_device(void *uses, struct ww_err *err)
{
	struct uses *u = uses;
	u->taken++;
	if (u->taken == 1)
		return change_turn(u, WW_TURN_LOAD, err);
	if (u->taken == 2) {
		WW_CHECK(change_turn(u, WW_TURN_TIMED, err));
		ww_judge_progress(u->judge, "timing the exported call");
		return WW_OK;
	}
	if (u->called) { /* rest() has waited until steps may begin */
		u->called = 0;
		return WW_OK;
	}
	if (!u->calling) /* a task may print what it likes */
		ww_turn_call(&u->turn);
	u->calling = 1;
	return WW_OK;
}

static void rest(void *uses)
{
	struct uses *u = uses;
	if (!u->calling)
		return;
	ww_turn_called(&u->turn);
	u->calling = 0;
	u->called = 1;
}

const struct ww_turn *ww_judge_call_turn(const void *use_ctx) { return &((const struct uses *)use_ctx)->turn; }

void ww_judge_call_begin(struct ww_judge_task *t, const struct ww_solution *s, struct ww_exported_call *c)
{
	const struct ww_judge_opts *o = &t->judge->opts;
	if (!o->caller || o->target != WW_TARGET_CUDA || s->form != WW_FORM_PLAN)
		return;
	c->caller = o->caller;
	c->solution = s;
	(void)!o->caller->begin(t, &t->task, s, o->device, CALLS, &c->call, &c->why);
}

void ww_judge_call_end(struct ww_exported_call *c)
{
	if (c->caller)
		c->caller->end(c->call);
	c->call = NULL;
}

/* The times of CALLS calls at most.  The process ends. */
struct times {
	double us[CALLS], gib, wait_s;
	int n;
};

static enum ww_rc time_once(
	const struct ww_judge_task *t, struct ww_exported_call *c, struct times *times, struct ww_err *err)
{
	const struct ww_judge *j = t->judge;
	struct uses u = { .judge = j, .heavy = t->heavy };
	const struct ww_judge_use use = { take_device, rest, &u };
	ww_judge_progress(j, "exporting the operator to time its call");
	times->gib = 0;
	enum ww_rc rc = c->caller->time(c->call, &use, j->opts.interrupted, times->us, CALLS, &times->n, &times->gib, err);
	ww_judge_call_end(c); /* while it has its turn: it may be alive after an error */
	rest(&u);
	ww_turn_drop(&u.turn);
	times->wait_s += u.wait_s + u.turn.waited_s;
	return rc;
}

/* It found too little memory: once more in another process, which imports PyTorch while others' memory is waited for.
 */
static enum ww_rc time_again(struct ww_judge_task *t, struct ww_exported_call *c, struct ww_judge_room *room,
	struct times *times, struct ww_err *err)
{
	WW_CHECK(c->caller->begin(t, &t->task, c->solution, t->judge->opts.device, CALLS, &c->call, err));
	uint64_t start = ww_now_ns();
	ww_judge_task_rest(t);
	enum ww_rc rc = ww_judge_room_wait(t, room, times->gib, err);
	times->wait_s += ww_seconds_since(start);
	return rc == WW_OK ? time_once(t, c, times, err) : rc;
}

enum ww_rc ww_judge_call_time(
	struct ww_judge_task *t, struct ww_exported_call *c, struct ww_verdict *v, struct ww_str *diag, struct ww_err *err)
{
	struct times times = { .n = 0 };
	struct ww_judge_room room = { 0 };
	enum ww_rc rc = c->why.rc;

	if (!c->caller || !v->correct || !isfinite(v->time.device_us))
		return WW_OK;
	if (rc == WW_OK)
		rc = time_once(t, c, &times, err);
	else
		*err = c->why;
	while (rc == WW_ERR_ROOM && ww_judge_room_again(t, &room))
		rc = time_again(t, c, &room, &times, err);
	ww_judge_call_end(c);
	v->seconds.wait += times.wait_s;
	if (rc == WW_OK) {
		pthread_mutex_lock(&t->lock);
		set_call(t, v, times.us, times.n);
		pthread_mutex_unlock(&t->lock);
	} else if (rc != WW_ERR_INTERRUPTED && rc != WW_ERR_NOMEM) {
		rc = WW_OK;
		ww_str_addf(diag, "note: the exported operator's call was not timed: %.500s\n", err->msg);
	}
	return rc;
}
