/* facts.h - bandwidth and arithmetic peaks of the device. */
#pragma once

#include "judge/internal.h"

/* Measure bandwidth (bytes a second) and peaks (flops a second) of the device, or read them from the store.
 * ww_judge_device_facts(): at the judge's start.  ww_judge_device_peaks(): when a task first needs arithmetic peaks.
 * ww_judge_device_again(): before the bandwidth flags a solution.  The last two need a turn, which becomes
 * WW_TURN_ALONE if they measure. */
enum ww_rc ww_judge_device_facts(struct ww_judge *j, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_judge_device_peaks(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_judge_device_again(struct ww_judge_task *t, struct ww_err *err) WW_MUST_CHECK;
/* Raise the peaks of the judge and of the store to rates that were measured elsewhere (0: unknown). */
enum ww_rc ww_judge_peaks_seen(struct ww_judge *j, const struct ww_ref_peaks *seen, struct ww_err *err) WW_MUST_CHECK;
void ww_judge_peaks(struct ww_judge *j, struct ww_ref_peaks *out);
