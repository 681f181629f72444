/* lease.h - one judge at a time measures on a device; and on the cpu target nothing else of this process works meanwhile.
 *
 * A lease is an exclusive flock(2) on a file named after the device in the cache directory: it ends with the process that
 * holds it, however that ends, and works between processes.  Threads of one process take turns in front of it, woken one by
 * one, so that the device passes from one judgement to the next without a pause.
 *
 * Builds, and whatever else keeps cores busy, run beside a measurement on a GPU, which does not feel them.  On the cpu target
 * they would be measured: there a timed measurement waits until this process's work is done and holds up what would begin.
 * (Of other processes' work the verdict says `disturbed`.)
 */
#ifndef WW_JUDGE_LEASE_H
#define WW_JUDGE_LEASE_H

#include "base/err.h"

struct ww_lease {
	int fd;				/* -1: not held */
	struct ww_lease_turn *turn;	/* lease.c's */
};
#define WW_LEASE_INIT { -1, NULL }

/* Wait for the device's lease; *interrupted (may be NULL) ends the wait with WW_ERR_INTERRUPTED. */
enum ww_rc ww_lease_take(struct ww_lease *l, const char *device, const volatile int *interrupted, struct ww_err *err) WW_MUST_CHECK;
void ww_lease_drop(struct ww_lease *l);	/* safe on one that is not held */

/* Around work of several threads that a timed measurement on the cpu target must not share the machine with. */
void ww_work_begin(void);
void ww_work_end(void);
/* Around such a measurement; the lease is held. */
void ww_quiet_begin(void);
void ww_quiet_end(void);

#endif
