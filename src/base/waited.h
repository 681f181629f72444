/* waited.h - how long a process has waited for processors that others had.
 *
 * Linux counts for each thread the time that it could have run and did not (schedstat): what another process, or its own
 * neighbour, took away, to the nanosecond.  Time that a hypervisor takes is not in it. */
#ifndef WW_BASE_WAITED_H
#define WW_BASE_WAITED_H

#include <stdint.h>
#include <sys/types.h>

/* Whether this machine counts it. */
int ww_waited_known(void);
/* Nanoseconds, of all threads that the process has now together; 0 where nobody counts. */
uint64_t ww_waited_ns(pid_t pid);
/* Microseconds more than before_ns, which an earlier call gave; not less than 0, whoever has ended meanwhile. */
double ww_waited_us_since(pid_t pid, uint64_t before_ns);

/* A call of another process that the calling thread times: both may wait, and both are in the time. */
struct ww_timed_wait {
	pid_t pid;			/* 0: nobody is asked, and nobody waited */
	uint64_t called_ns, caller_ns;
};
struct ww_timed_wait ww_timed_wait_begin(pid_t pid);
/* Microseconds that the two have waited since, together. */
double ww_timed_wait_us(const struct ww_timed_wait *w);

#endif
