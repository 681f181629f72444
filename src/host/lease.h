/* lease.h - access to a device: one measurement alone, or several engines that compute in short steps.
 *
 * Judges and engines of one user share devices and do not talk to each other.  A measurement needs a device alone, for
 * seconds; an engine needs it for steps of milliseconds, as often as possible, and any number of engines may use it at
 * once. A lease and a share are locks on two files in the cache directory named after the device (lease.c), so they
 * work between processes and end with the process that holds them, however that ends.
 *
 * Fair.  Measurements and engines wait at the same gate: busy engines cannot lock a measurement out, nor can a series
 * of measurements lock out an engine.  An engine that had to wait may compute for as long as it has waited, at most two
 * seconds; so where both always want the device each has it for about half of the time.
 *
 * A device's name is its uuid, "cpu" for the processors.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>

struct ww_lease {
	int fd;                     /* -1: not held */
	struct ww_lease_turn *turn; /* lease.c's */
	int pause;                  /* keeps policies' processes stopped (pause.h); -1: does not */
	uint64_t asked_ns;          /* when the wait for it began */
	uint64_t since_ns;          /* when it was taken; 0 */
};
#define WW_LEASE_INIT { -1, NULL, -1, 0, 0 }

/* How to wait.  Each member may be NULL. */
struct ww_lease_wait {
	const volatile int *interrupted; /* non-zero ends the wait with WW_ERR_INTERRUPTED */
	/* Called after two seconds and every two seconds from then on; holder: "pid 71 (warpwright judge a.py b)". */
	void (*waiting)(void *ctx, const char *holder);
	void *ctx;
	/* Above 0: a long step of one engine keeps no others from theirs.  Who has waited behind the gate for so many
	 * seconds opens it for twice as long, before it waits there again; after some such rounds it waits until the step
	 * ends. */
	double gives_way_s;
};

/* Take the device for this process alone, and stop all processes that policies started on this machine.  Waits until
 * both are done; w NULL: nothing ends the wait. */
enum ww_rc ww_lease_take(
	struct ww_lease *l, const char *device, const struct ww_lease_wait *w, struct ww_err *err) WW_MUST_CHECK;
void ww_lease_drop(struct ww_lease *l); /* safe on one that is not held */
/* Seconds for which this process has held leases, of all devices together; a lease counts when it is dropped. */
double ww_lease_held_s(void);

/* One thread's share of a device. */
struct ww_share {
	int fd, gate; /* -1: not open */
	int held;
	uint64_t asked_ns, since_ns, until_ns; /* of the wait in hand; when it was taken; when it goes back to the gate */
};
#define WW_SHARE_INIT { -1, -1, 0, 0, 0, 0 }

enum ww_rc ww_share_open(struct ww_share *s, const char *device, struct ww_err *err) WW_MUST_CHECK;
/* Before each step: returns when no measurement has the device, and none begins before the next call or
 * ww_share_rest(). *interrupted (may be NULL) ends the wait with WW_ERR_INTERRUPTED; the wait of the next call counts
 * from the first. */
enum ww_rc ww_share_step(struct ww_share *s, const volatile int *interrupted, struct ww_err *err) WW_MUST_CHECK;
/* There is nothing to compute now: other processes may use the device.  Safe at any time. */
void ww_share_rest(struct ww_share *s);
void ww_share_close(struct ww_share *s); /* safe on one that is not open */

/* Whether process `pid` of this user has the device's lock files open, so that it waits for other holders. */
int ww_lease_takes_part(int pid, const char *device);
