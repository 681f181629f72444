/* quiet.h - on the cpu target no other work of this process runs while something is timed.
 *
 * Builds and other work on cores may run during a measurement on a GPU, which they do not disturb.  On the cpu target
 * they would: there a timed measurement waits until this process's work is done and delays what would begin. (Of other
 * processes' work the verdict says `disturbed`; engines step aside, host/lease.h.)
 */
#pragma once

/* Around work of several threads that a timed measurement on the cpu target must not share the machine with. */
void ww_work_begin(void);
void ww_work_end(void);
/* Around such a measurement; the lease is held. */
void ww_quiet_begin(void);
void ww_quiet_end(void);
