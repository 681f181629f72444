#include "base/time.h"

#include <time.h>

uint64_t ww_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double ww_seconds_since(uint64_t start_ns) { return (double)(ww_now_ns() - start_ns) * 1e-9; }

uint64_t ww_deadline_ns(double seconds)
{
	static const double MOST = 1e9; /* 31 years; more would not fit into nanoseconds one day */
	return ww_now_ns() + (seconds > 0 ? (uint64_t)((seconds < MOST ? seconds : MOST) * 1e9) : 0);
}

void ww_utc_text(char out[21])
{
	time_t now = time(NULL);
	struct tm tm;
	gmtime_r(&now, &tm);
	strftime(out, 21, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

int ww_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, double seconds)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	int64_t ns = until.tv_nsec + (int64_t)(seconds * 1e9);
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	return pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, &until) == 0;
}
