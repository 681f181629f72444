/* timed_call.h - the threads of another process while it is called and timed: how long they waited for processors, and
 * where they run.
 *
 * Waiting.  Linux counts, for each thread, the time that it ran and the time that it was runnable but not scheduled
 * (schedstat), in nanoseconds.  Time that a hypervisor takes is not in it.
 *
 * Placement.  The kernel may start two threads of a call on one processor while another is idle, and separate them one
 * tick (4 ms) later: calls of a few milliseconds then take twice their time, at random.  So at the end of a call the
 * threads that computed in it are pinned to one processor each for the next call: as many as there are processors, the
 * busiest first.  This works for any threads (OpenMP's, our pool's, a candidate's) and any number of them.  Where fewer
 * computed than there are processors, the kernel has room and all are free to move; on a large machine that also keeps
 * them off the second threads of cores in use. Rejected: OMP_PROC_BIND, whose initial thread hands its one processor on
 * to every thread and process that it starts. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Whether this machine counts the time that threads wait. */
int ww_wait_is_measured(void);

struct ww_timed_call;

/* Before a call into process `pid` that the calling thread makes and times.  NULL where there is no process (pid 0) or
 * no memory: ww_timed_call_end() then reports no wait.  ww_timed_call_end() releases it. */
struct ww_timed_call *ww_timed_call_begin(pid_t pid);
/* After the call: microseconds that the caller and the threads of `pid` that still live have waited since, added up.
 * Pins threads as said above, within the caller's processors; a process that may not be moved, or is gone, is left
 * alone. */
double ww_timed_call_end(struct ww_timed_call *c);

/* Processor time of the whole process so far, of threads that have ended too; 0 where it is gone. */
uint64_t ww_process_used_ns(pid_t pid);

/* Whether every thread of the process sleeps (states S and I of proc(5)), or has ended (Z and X).  A process that is
 * gone counts as asleep: the next request to it says so.  A thread that waits for a disk (D) is not asleep. */
int ww_threads_asleep(pid_t pid);

/* The growth of a counter of a process or thread; 0 where it is smaller than before, since the process has ended or its
 * number belongs to another one. */
static inline uint64_t ww_grown(uint64_t before, uint64_t now) { return now > before ? now - before : 0; }
