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
	WW_TURN_SHARED, /* a small task's judgement, up to what is timed: in steps, ww_turn_step() between them */
	WW_TURN_LOAD,   /* a task is loaded or called for the first time, which takes processors more than the device */
	WW_TURN_TIMED,  /* a small task's timing: together with others of its kind and those that are SHARED, each call
	                 * between ww_turn_call() and ww_turn_called() */
	WW_TURN_ALONE   /* tasks whose references fill the memory, and PyTorch forms, whose code runs when it likes */
};

struct ww_turn {
	const struct ww_judge *judge;
	struct ww_turns *turns; /* of its device; NULL while nothing is held */
	enum ww_turn_kind kind;
	uint64_t taken_ns;
	int counts; /* among those that are judged in parallel */
	int calls;  /* how often ww_turn_call() was called more than ww_turn_called() */
};

/* Wait for the device.  One that is held already is changed: SHARED and TIMED into each other at once, else it holds
 * nothing while it waits.  On the cpu target, where everything uses what is measured, all are ALONE.
 * WW_ERR_INTERRUPTED, or what ww_lease_take() says; then nothing is held. */
enum ww_rc ww_turn_take(
	struct ww_turn *t, const struct ww_judge *j, enum ww_turn_kind kind, struct ww_err *err) WW_MUST_CHECK;
void ww_turn_drop(struct ww_turn *t); /* safe where nothing is held */

/* From the one to the other nothing else of this process uses the device, where it is held as TIMED; the others wait at
 * the ends of their steps.  The first waits until others that are TIMED want to call, too.  Where it is held as ALONE
 * that is so anyway, and the rest is not timed: nothing is done. In pairs, which may lie within each other. */
void ww_turn_call(struct ww_turn *t);
void ww_turn_called(struct ww_turn *t);
/* From the one to the other the device is not used where it is held as SHARED or TIMED, so that calls of others do not
 * wait for statistics, or for what the driver says of the device.  Not within a call. */
void ww_turn_pause(struct ww_turn *t);
void ww_turn_resume(struct ww_turn *t);
/* Between two steps of a SHARED one: calls that wait are made first.  For others nothing. */
void ww_turn_step(struct ww_turn *t);
