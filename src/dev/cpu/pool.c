/* pool.c - one job at a time, split into numbered parts that workers take by counting.
 *
 * The assignment of parts to threads is not fixed, so a part may only write memory that no other part uses; results
 * never depend on the number of threads.  Workers spin for some microseconds between jobs before they sleep: a training
 * step is thousands of short loops in a row, and a wake-up through the kernel costs more than most of them.  A job of
 * one part runs in the caller.
 */
#include "dev/cpu/pool.h"
#include "base/lock.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS_MAX = 256, SPIN = 2000 };

struct ww_pool {
	pthread_mutex_t run, lock; /* run: one job at a time; lock: sleeping and waking */
	pthread_cond_t wake;
	pthread_t threads[THREADS_MAX];
	int count; /* with the caller */
	void (*fn)(void *arg, int64_t i, int worker);
	void *arg;
	int64_t parts;
	atomic_llong next;
	atomic_uint job;   /* number of the job; odd while one is open to workers */
	atomic_int inside; /* workers that may still touch the job */
	int stop;
};

static void work(struct ww_pool *p, int worker)
{
	for (int64_t i; (i = atomic_fetch_add(&p->next, 1)) < p->parts;)
		p->fn(p->arg, i, worker);
}

struct start {
	struct ww_pool *pool;
	int worker;
};

/* The next open job after `seen`, or 0 when the pool ends. */
static unsigned wait_job(struct ww_pool *p, unsigned seen)
{
	for (int i = 0; i < SPIN; i++) {
		unsigned job = atomic_load(&p->job);
		if (job != seen && job % 2)
			return job;
		__builtin_ia32_pause();
	}
	WW_LOCKED(&p->lock);
	unsigned job;
	while (((job = atomic_load(&p->job)) == seen || job % 2 == 0) && !p->stop)
		pthread_cond_wait(&p->wake, &p->lock);
	if (p->stop)
		job = 0;
	return job;
}

static void *worker_main(void *data)
{
	struct start s = *(struct start *)data;
	unsigned seen = 0;
	free(data);
	while ((seen = wait_job(s.pool, seen))) {
		atomic_fetch_add(&s.pool->inside, 1);
		if (atomic_load(&s.pool->job) == seen) /* still open: its fields stay until we leave */
			work(s.pool, s.worker);
		atomic_fetch_sub(&s.pool->inside, 1);
	}
	return NULL;
}

static int default_threads(void)
{
	const char *env = getenv("WARPWRIGHT_THREADS");
	int n = env ? atoi(env) : 0;
	cpu_set_t set;
	if (n <= 0 && sched_getaffinity(0, sizeof(set), &set) == 0)
		n = CPU_COUNT(&set);
	return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
}

enum ww_rc ww_pool_new(int threads, struct ww_pool **out, struct ww_err *err)
{
	struct ww_pool *p;
	WW_CHECK(WW_NEW(p, 1, err));
	int want = threads > 0 ? (threads > THREADS_MAX ? THREADS_MAX : threads) : default_threads();
	pthread_mutex_init(&p->run, NULL);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	for (p->count = 1; p->count < want; p->count++) {
		struct start *s = malloc(sizeof(*s));
		if (s)
			*s = (struct start){ p, p->count };
		if (!s || pthread_create(&p->threads[p->count], NULL, worker_main, s)) {
			free(s);
			break; /* fewer threads are slower, not wrong */
		}
	}
	*out = p;
	return WW_OK;
}

void ww_pool_free(struct ww_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = 1;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	for (int i = 1; i < p->count; i++)
		pthread_join(p->threads[i], NULL);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->run);
	free(p);
}

int ww_pool_threads(const struct ww_pool *p) { return p->count; }

void ww_pool_run(struct ww_pool *p, int64_t n, void (*fn)(void *arg, int64_t i, int worker), void *arg)
{
	pthread_mutex_lock(&p->run);
	if (n <= 1 || p->count == 1) {
		for (int64_t i = 0; i < n; i++)
			fn(arg, i, 0);
		pthread_mutex_unlock(&p->run);
		return;
	}
	p->fn = fn;
	p->arg = arg;
	p->parts = n;
	atomic_store(&p->next, 0);
	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->job, 1);
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	work(p, 0);
	atomic_fetch_add(&p->job, 1); /* closed: who comes now finds nothing */
	for (int i = 0; atomic_load(&p->inside); i++) {
		if (i < SPIN)
			__builtin_ia32_pause();
		else
			sched_yield(); /* the worker may be waiting for our processor */
	}
	pthread_mutex_unlock(&p->run);
}
