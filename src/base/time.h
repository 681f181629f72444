/* time.h - clocks.  Durations are taken from the monotonic clock, in nanoseconds. */
#pragma once

#include <pthread.h>
#include <stdint.h>

uint64_t ww_now_ns(void); /* CLOCK_MONOTONIC */
double ww_seconds_since(uint64_t start_ns);
uint64_t ww_deadline_ns(double seconds); /* so long from now; INFINITY is years from now, less than 0 and NaN are now */
/* pthread_cond_wait() for at most so many seconds; 0: they are over. */
int ww_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, double seconds);
/* Time of day as "2026-11-21T12:34:56Z" into out, which holds at least 21 bytes. */
void ww_utc_text(char out[21]);
