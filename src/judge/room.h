/* room.h - out of device memory: do other processes or tasks hold it, and waiting for them. */
#pragma once

#include "judge/internal.h"

/* Add n (may be negative) to the number of tasks that this process has open on GPUs. */
void ww_room_add_tasks(const struct ww_judge *j, int n);
/* Call when memory does not suffice.  1: other tasks of this process, or processes that may still be waited for, hold
 * some, so neither the solution nor the task is at fault; the caller returns WW_ERR_ROOM. */
int ww_room_is_others(struct ww_judge *j);
/* 1: rc is WW_ERR_ROOM and other processes hold the memory, so waiting may help.  0 also if tasks of this process hold
 * it: the batch then closes some of them. */
int ww_room_is_worth_waiting(struct ww_judge *j, enum ww_rc rc);
/* Sleep twice as long as the last time.  *nap_s: in and out, seconds of the last sleep; 0 at first.  The caller must
 * hold no device memory meanwhile, since the others may wait for it.  WW_ERR_INTERRUPTED: the judge's caller has
 * stopped it. */
enum ww_rc ww_room_wait(struct ww_judge *j, double *nap_s, struct ww_err *err) WW_MUST_CHECK;
