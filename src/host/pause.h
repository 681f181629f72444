/* pause.h - processes that policies started are stopped while anything is measured on this machine.
 *
 * A process that runs code of a policy beside a judge (the shell of an episode) could slow a baseline down while the
 * judge times it.  So taking a lease (lease.h) stops all such processes of this user on the machine, and dropping it
 * continues them.
 *
 * A process that starts such code makes a struct ww_pausable for each group of processes.  One thread of that process
 * stops and continues all its groups through their sockets:
 *
 *     'S' to the group    stop everything, and answer 'S' when all of it is stopped
 *     'G' to the group    go on
 *
 * A group begins stopped.  One that does not answer in time is killed.
 *
 * Fair.  Groups that have been stopped for longer than a second get the next turn before another measurement begins,
 * and run for a quarter of the time that they have waited, at most half a second.  So policies have about a fifth of
 * the time where the judges always want the machine, and no measurement waits for a policy for longer than that.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>
#include <sys/types.h>

enum { WW_PAUSE_STOP = 'S', WW_PAUSE_GO = 'G' };

/* ---- For a measurement */

/* Stop the groups of this user and wait until they are stopped, at most five seconds; they stay so until
 * ww_pause_end(*fd).  *fd is -1 where nothing could be locked. */
enum ww_rc ww_pause_begin(int *fd, const volatile int *interrupted, struct ww_err *err) WW_MUST_CHECK;
void ww_pause_end(int *fd); /* safe on -1 */
/* Whether any process of this user has a group, stopped or not. */
int ww_pausable_exists(void);

/* ---- For a process that runs code of policies */

struct ww_pausable {
	int fd;    /* our end of the group's socket; the caller's */
	int pidfd; /* of the process that is killed if the group does not answer; the caller's */
	int runs, dead;
	uint64_t stopped_ns, since_ns; /* stopped time in all before since_ns; since_ns: when it was stopped last */
	struct ww_pausable *next;
};

/* Let measurements stop this group until ww_pausable_remove().  The struct must not move. */
enum ww_rc ww_pausable_add(struct ww_pausable *p, int fd, int pidfd, struct ww_err *err) WW_MUST_CHECK;
void ww_pausable_remove(struct ww_pausable *p); /* before its descriptors are closed; safe on one that takes no part */
/* For how long it has been stopped since it was added, in ns. */
uint64_t ww_pausable_stopped_ns(struct ww_pausable *p);
