/* lock.h - a mutex that is held to the end of a block. */
#pragma once

#include <pthread.h>

/* Lock the mutex at this address; it is unlocked where the block ends, however it is left. */
#define WW_LOCKED(mutex) \
	__attribute__((cleanup(ww_unlock_at), unused)) pthread_mutex_t *WW_LOCKED_NAME(__LINE__) = ww_lock(mutex)
#define WW_LOCKED_NAME(line) WW_LOCKED_NAME_(line)
#define WW_LOCKED_NAME_(line) locked_##line

static inline pthread_mutex_t *ww_lock(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	return m;
}

static inline void ww_unlock_at(pthread_mutex_t **m) { pthread_mutex_unlock(*m); }
