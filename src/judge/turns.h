/* turns.h - which judgements of this process use a device: one timed call alone, or several in parallel.
 *
 * A call that is timed needs the device alone, and so do repeats, which wait for it dozens of times.  Loading of tasks,
 * and draws, references and comparisons run in parallel, most of their time on processors.  Towards other processes all
 * of them together are one measurement: they share one lease (host/lease.h). */
#pragma once

#include "base/err.h"

#include <stdint.h>

struct ww_judge;

enum { WW_TURNS_PRESENT = 12 }; /* judgements that have a runner each */

enum ww_turn_kind {
	WW_TURN_NONE,
	WW_TURN_SHARED, /* a small task's judgement, up to its timed calls: in steps, with ww_turn_step() between them */
	WW_TURN_LOAD,   /* a task is loaded or called for the first time, which takes processors more than the device */
	WW_TURN_TIMED,  /* a small task's timing: together with others of its kind and those that are SHARED, each call
	                 * between ww_turn_call() and ww_turn_called() */
	WW_TURN_ALONE   /* for tasks whose references fill the memory, and for PyTorch forms, whose code may run at any time
	                 */
};

struct ww_turn {
	const struct ww_judge *judge;
	struct ww_turns *turns; /* of its device; NULL while nothing is held */
	enum ww_turn_kind kind;
	uint64_t taken_ns;
	int counts;      /* it is one of the judgements present */
	int calls;       /* how often ww_turn_call() was called more than ww_turn_called() */
	double waited_s; /* in all turns held so far: for calls and steps of others, not for the turn itself */
};

/* Wait for the device.  A turn that is held already is changed: SHARED and TIMED into each other at once; for any other
 * change it is given back first, so that nothing is held during the wait.  On the cpu target, where everything uses the
 * processors that are measured, each turn is ALONE.  WW_ERR_INTERRUPTED, or what ww_lease_take() says; then nothing is
 * held. */
enum ww_rc ww_turn_take(
	struct ww_turn *t, const struct ww_judge *j, enum ww_turn_kind kind, struct ww_err *err) WW_MUST_CHECK;
void ww_turn_drop(struct ww_turn *t); /* safe where nothing is held */

/* Between these two nothing else of this process uses the device, where it is held as TIMED; the others wait at the
 * ends of their steps.  ww_turn_call() waits until the other TIMED ones want to call, too.  Held as ALONE the device is
 * ours anyway, and in the other turns nothing is timed: both do nothing then.  Called in pairs, which may be nested. */
void ww_turn_call(struct ww_turn *t);
void ww_turn_called(struct ww_turn *t);
/* Between these two a holder of SHARED or TIMED does not use the device, so that calls of others need not wait for its
 * statistics, or for what it asks the driver.  Not within a call. */
void ww_turn_pause(struct ww_turn *t);
void ww_turn_resume(struct ww_turn *t);
/* Between two steps of a SHARED turn: calls that wait are made first.  Other turns: nothing. */
void ww_turn_step(struct ww_turn *t);
