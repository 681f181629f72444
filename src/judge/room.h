/* room.h - memory of the device that other processes and tasks hold. */
#pragma once

#include "judge/internal.h"

/* Add n to the number of tasks that this process has open on the device. */
void ww_room_add_tasks(const struct ww_judge *j, int n);
/* Where memory lacks: 1 if others hold some, tasks of this process or processes that may still be waited for, so that
 * neither solution nor task is at fault.  The result is WW_ERR_ROOM then. */
int ww_room_is_others(struct ww_judge *j);
/* 1 where rc says that memory lacks and other processes hold it.  0 where tasks of this process hold it: the batch
 * closes some of them. */
int ww_room_is_worth_waiting(struct ww_judge *j, enum ww_rc rc);
/* Sleep twice as long as the last time (*nap_s seconds; 0: the first).  The caller holds nothing meanwhile that those
 * processes may wait for. */
enum ww_rc ww_room_wait(struct ww_judge *j, double *nap_s, struct ww_err *err) WW_MUST_CHECK;
