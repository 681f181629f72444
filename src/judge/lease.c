/* lease.c - see lease.h.
 *
 * The lock is polled every 10 ms instead of waited for, so that an interruption is noticed; a measurement takes seconds.
 * Rejected: fcntl locks (they belong to the process: two threads would both have it); a lock file with a pid in it (stale
 * after kill -9). */
#include "judge/lease.h"

#include "base/fs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>

enum ww_rc ww_lease_take(struct ww_lease *l, const char *device, const volatile int *interrupted, struct ww_err *err)
{
	char dir[PATH_MAX], path[PATH_MAX], name[96];
	enum ww_rc rc;

	l->fd = -1;
	snprintf(name, sizeof(name), "lease-%.80s.lock", device);
	for (char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '.')
			*p = '_';
	WW_TRY(ww_fs_cache_dir(dir, err));
	WW_TRY(ww_fs_join(path, dir, name, err));
	l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (l->fd < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot open the device's lock file %s", path);
	while (flock(l->fd, LOCK_EX | LOCK_NB) != 0) {
		struct timespec nap = { 0, 10 * 1000 * 1000 };
		if (errno != EWOULDBLOCK && errno != EINTR) {
			rc = ww_err_errno(err, WW_ERR_IO, "cannot lock %s", path);
			goto out;
		}
		if (interrupted && *interrupted) {
			rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted while waiting for the device");
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
}
