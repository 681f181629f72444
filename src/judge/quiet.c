/* quiet.c - see quiet.h. */
#include "judge/quiet.h"

#include "base/lock.h"

#include <pthread.h>

static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_changed = PTHREAD_COND_INITIALIZER;
static int working, quiet; /* threads at work; measurements that go on or wait for quiet */

void ww_work_begin(void)
{
	WW_LOCKED(&work_lock);
	while (quiet)
		pthread_cond_wait(&work_changed, &work_lock);
	working++;
}

void ww_work_end(void)
{
	WW_LOCKED(&work_lock);
	working--;
	pthread_cond_broadcast(&work_changed);
}

void ww_quiet_begin(void)
{
	WW_LOCKED(&work_lock);
	quiet++;
	while (working)
		pthread_cond_wait(&work_changed, &work_lock);
}

void ww_quiet_end(void)
{
	WW_LOCKED(&work_lock);
	quiet--;
	pthread_cond_broadcast(&work_changed);
}
