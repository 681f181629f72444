/* lease.h - one judge at a time measures on a device.
 *
 * A lease is an exclusive flock(2) on a file named after the device in the cache directory: it ends with the process that
 * holds it, however that ends, and works between processes and between threads of one.
 */
#ifndef WW_JUDGE_LEASE_H
#define WW_JUDGE_LEASE_H

#include "base/err.h"

struct ww_lease { int fd; };	/* -1: not held */

/* Wait for the device's lease; *interrupted (may be NULL) ends the wait with WW_ERR_INTERRUPTED. */
enum ww_rc ww_lease_take(struct ww_lease *l, const char *device, const volatile int *interrupted, struct ww_err *err) WW_MUST_CHECK;
void ww_lease_drop(struct ww_lease *l);

#endif
