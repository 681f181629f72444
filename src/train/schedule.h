/* schedule.h - the learning rate of a step, and the guard that skips bad steps. */
#pragma once

#include <stdint.h>

enum ww_schedule_kind {
	WW_SCHEDULE_CONSTANT,
	WW_SCHEDULE_LINEAR,
	WW_SCHEDULE_COSINE,
	WW_SCHEDULE_WSD,
	WW_SCHEDULE_COUNT
};
#define WW_SCHEDULE_NAMES "constant|linear|cosine|wsd"

struct ww_schedule {
	enum ww_schedule_kind kind;
	double lr, floor;             /* floor: of lr, where the schedule ends */
	int64_t steps, warmup, decay; /* decay: last steps, of wsd */
};
/* The kind named "cosine"; WW_SCHEDULE_COUNT where there is none. */
enum ww_schedule_kind ww_schedule_kind_of(const char *name);
/* step counts from 1. */
double ww_schedule_lr(const struct ww_schedule *s, int64_t step);

/* A step is a spike where its loss lies more than `factor` median absolute deviations (0.01 at least) above the median
 * of the last WW_GUARD_STEPS that were not; the first WW_GUARD_FEW steps never are.  factor 0: nothing is a spike. */
enum { WW_GUARD_STEPS = 64, WW_GUARD_FEW = 16 };
struct ww_guard {
	double factor;
	double losses[WW_GUARD_STEPS]; /* a ring */
	int64_t seen;                  /* losses ever taken in */
	int64_t skipped_in_row, skipped;
};
enum ww_guard_word { WW_GUARD_FINE, WW_GUARD_NAN, WW_GUARD_SPIKE };
/* Judge a step by its loss, without recording it. */
enum ww_guard_word ww_guard_look(const struct ww_guard *g, double loss);
/* Record a step: a good loss enters the ring, others are counted as skipped. */
void ww_guard_note(struct ww_guard *g, enum ww_guard_word word, double loss);
