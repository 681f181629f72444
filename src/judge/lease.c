/* lease.c - see lease.h.
 *
 * The file's lock is polled every 2 ms instead of waited for, so that an interruption is noticed; a measurement takes a tenth
 * of a second at least.  Rejected: fcntl locks (they belong to the process: two threads would both have it); a lock file with a
 * pid in it (stale after kill -9). */
#include "judge/lease.h"

#include "base/fs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

enum { MAX_DEVICES = 64, NAP_NS = 2 * 1000 * 1000, LOOK_NS = 50 * 1000 * 1000 };

/* Whether some thread of this process has, or is about to have, the lease of this name. */
struct ww_lease_turn {
	char name[96];
	int held;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given_back = PTHREAD_COND_INITIALIZER;
static struct ww_lease_turn turns[MAX_DEVICES];

static struct ww_lease_turn *find_turn(const char *name)
{
	for (int i = 0; i < MAX_DEVICES; i++) {
		if (!turns[i].name[0])
			snprintf(turns[i].name, sizeof(turns[i].name), "%s", name);
		if (!strcmp(turns[i].name, name))
			return &turns[i];
	}
	return NULL;
}

static enum ww_rc interrupted_error(struct ww_err *err)
{
	return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted while waiting for the device");
}

static void nap_until(pthread_cond_t *c, pthread_mutex_t *m)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += LOOK_NS;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	pthread_cond_timedwait(c, m, &t);
}

static enum ww_rc take_turn(struct ww_lease *l, const char *name, const volatile int *interrupted, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	pthread_mutex_lock(&lock);
	struct ww_lease_turn *t = find_turn(name);
	if (!t)
		rc = ww_err_set(err, WW_ERR_LIMIT, "one process judges on %d devices at most", MAX_DEVICES);
	while (t && t->held && rc == WW_OK) {
		nap_until(&given_back, &lock);
		if (interrupted && *interrupted)
			rc = interrupted_error(err);
	}
	if (rc == WW_OK) {
		t->held = 1;
		l->turn = t;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static void give_turn_back(struct ww_lease *l)
{
	if (!l->turn)
		return;
	pthread_mutex_lock(&lock);
	l->turn->held = 0;
	l->turn = NULL;
	pthread_cond_broadcast(&given_back);
	pthread_mutex_unlock(&lock);
}

enum ww_rc ww_lease_take(struct ww_lease *l, const char *device, const volatile int *interrupted, struct ww_err *err)
{
	char dir[PATH_MAX], path[PATH_MAX], name[96];
	enum ww_rc rc;

	*l = (struct ww_lease)WW_LEASE_INIT;
	snprintf(name, sizeof(name), "lease-%.80s.lock", device);
	for (char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '.')
			*p = '_';
	WW_TRY(ww_fs_cache_dir(dir, err));
	WW_TRY(ww_fs_join(path, dir, name, err));
	WW_TRY(take_turn(l, name, interrupted, err));
	l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (l->fd < 0) {
		rc = ww_err_errno(err, WW_ERR_IO, "cannot open the device's lock file %s", path);
		goto out;
	}
	while (flock(l->fd, LOCK_EX | LOCK_NB) != 0) {
		struct timespec nap = { 0, NAP_NS };
		if (errno != EWOULDBLOCK && errno != EINTR) {
			rc = ww_err_errno(err, WW_ERR_IO, "cannot lock %s", path);
			goto out;
		}
		if (interrupted && *interrupted) {
			rc = interrupted_error(err);
			goto out;
		}
		nanosleep(&nap, NULL);
	}
	return WW_OK;
out:
	ww_lease_drop(l);
	return rc;
}

void ww_lease_drop(struct ww_lease *l)
{
	ww_fd_close(&l->fd);
	give_turn_back(l);
}

/* ---- Quiet on the cpu -------------------------------------------------------------------------------------------- */

static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_changed = PTHREAD_COND_INITIALIZER;
static int working, quiet;		/* threads at work; measurements that go on or wait for quiet */

void ww_work_begin(void)
{
	pthread_mutex_lock(&work_lock);
	while (quiet)
		pthread_cond_wait(&work_changed, &work_lock);
	working++;
	pthread_mutex_unlock(&work_lock);
}

void ww_work_end(void)
{
	pthread_mutex_lock(&work_lock);
	working--;
	pthread_cond_broadcast(&work_changed);
	pthread_mutex_unlock(&work_lock);
}

void ww_quiet_begin(void)
{
	pthread_mutex_lock(&work_lock);
	quiet++;
	while (working)
		pthread_cond_wait(&work_changed, &work_lock);
	pthread_mutex_unlock(&work_lock);
}

void ww_quiet_end(void)
{
	pthread_mutex_lock(&work_lock);
	quiet--;
	pthread_cond_broadcast(&work_changed);
	pthread_mutex_unlock(&work_lock);
}
