/* lease.c - see lease.h.
 *
 *     lease-DEVICE.lock    locked exclusively by a measurement, which writes its pid; shared by computing engines
 *     lease-DEVICE.gate    locked exclusively by the one that waits for the other file, until it has it
 *
 * A measurement that waits for engines to end their steps has the gate, so no engine begins another; an engine that
 * waits for a measurement to end has the gate, so no other measurement comes before it.  The gate is free while
 * somebody measures. Threads of one process that want to measure queue before both files and are woken one by one, so
 * that the device goes from one judgement to the next without a pause.
 *
 * flock(2) is polled every 2 ms instead of waited for, so that an interruption is noticed; a measurement takes a tenth
 * of a second at least.  Any of several waiting processes may get a free gate.  Rejected: fcntl locks
 * (they belong to the process: two threads would both have it); a lock file with a pid in it (stale after kill -9); one
 * file without a gate (engines that take turns would hold it for ever). */
#include "host/lease.h"
#include "host/pause.h"

#include "base/fs.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/time.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_DEVICES = 64,
	ROUNDS = 5, /* in which one that gives way opens the gate again */
	NAP_NS = 2 * 1000 * 1000,
	LEAST_SHARE_NS = 100 * 1000 * 1000,
	MOST_SHARE_NS = 2000 * 1000 * 1000,
	REPORT_NS = 2000 * 1000 * 1000
};
static const double LOOK_S = 0.05; /* a waiting thread checks for an interruption this often */

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static enum ww_rc path_of(char path[PATH_MAX], const char *device, const char *suffix, struct ww_err *err)
{
	char dir[PATH_MAX], name[96];
	snprintf(name, sizeof(name), "lease-%.80s.%s", device, suffix);
	for (char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '.')
			*p = '_';
	WW_CHECK(ww_fs_cache_dir(dir, err));
	return ww_fs_join(path, dir, name, err);
}

static enum ww_rc open_file(int *fd, const char *device, const char *suffix, struct ww_err *err)
{
	char path[PATH_MAX];
	WW_CHECK(path_of(path, device, suffix, err));
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	return *fd < 0 ? ww_err_errno(err, WW_ERR_IO, "cannot open the device's lock file %s", path) : WW_OK;
}

/* One wait: how, and when it is reported next. */
struct waiting {
	struct ww_lease_wait how;
	uint64_t report_ns;
};

static struct waiting begin_waiting(const struct ww_lease_wait *w)
{
	return (struct waiting){ w ? *w : (struct ww_lease_wait){ 0 }, ww_now_ns() + REPORT_NS };
}

/* The process that measures, in words: its pid stands in the lock file (fd). */
static void describe_holder(int fd, char *out, size_t size)
{
	char pid[16] = "", path[64], command[160];
	ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
	if (n <= 0 || atoi(pid) <= 0) {
		snprintf(out, size, "engines that compute on it");
		return;
	}
	snprintf(path, sizeof(path), "/proc/%d/cmdline", atoi(pid));
	size_t length = ww_fs_peek(AT_FDCWD, path, command, sizeof(command));
	for (size_t i = 0; i < length; i++) /* arguments end with NULs */
		if (!isgraph((unsigned char)command[i]))
			command[i] = i + 1 < length ? ' ' : 0;
	snprintf(out, size, "pid %d%s%s%s", atoi(pid), command[0] ? " (" : "", command, command[0] ? ")" : "");
}

/* Before each attempt: end an interrupted wait, and report the holder when that is due.  fd < 0: the holder is another
 * thread of this process. */
static enum ww_rc look(struct waiting *w, int fd, struct ww_err *err)
{
	char holder[256] = "another judgement of this process";
	if (w->how.interrupted && *w->how.interrupted)
		return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted while waiting for the device");
	if (!w->how.waiting || ww_now_ns() < w->report_ns)
		return WW_OK;
	w->report_ns = ww_now_ns() + REPORT_NS;
	if (fd >= 0)
		describe_holder(fd, holder, sizeof(holder));
	w->how.waiting(w->how.ctx, holder);
	return WW_OK;
}

static void nap(void)
{
	struct timespec t = { 0, NAP_NS };
	nanosleep(&t, NULL);
}

/* Lock fd within `seconds`: *locked; `lock` is the file that names the holder. */
static enum ww_rc wait_for(
	int fd, int how, int lock, double seconds, struct waiting *w, int *locked, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	uint64_t start = ww_now_ns();
	*locked = 0;
	while (rc == WW_OK && flock(fd, how | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return ww_err_errno(err, WW_ERR_IO, "cannot lock the device's lock file");
		if (ww_seconds_since(start) >= seconds)
			return WW_OK;
		rc = look(w, lock, err);
		nap();
	}
	*locked = rc == WW_OK;
	return rc;
}

/* Lock the gate, then fd, then unlock the gate. */
static enum ww_rc pass(int gate, int fd, int how, struct waiting *w, struct ww_err *err)
{
	enum ww_rc rc;
	for (int locked, round = 0;; round++) {
		int gives_way = w->how.gives_way_s > 0 && round < ROUNDS;
		WW_CHECK(wait_for(gate, LOCK_EX, fd, INFINITY, w, &locked, err));
		rc = wait_for(fd, how, fd, gives_way ? w->how.gives_way_s : INFINITY, w, &locked, err);
		(void)flock(gate, LOCK_UN);
		if (rc != WW_OK || locked)
			return rc;
		for (uint64_t open = ww_now_ns(); rc == WW_OK && ww_seconds_since(open) < 2 * w->how.gives_way_s;) {
			rc = look(w, fd, err);
			nap();
		}
		WW_CHECK(rc);
	}
}

/* ---- Turns of the threads that measure --------------------------------------------------------------------------- */

/* Whether some thread of this process has, or is about to have, the lease of this device. */
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

static enum ww_rc take_turn(struct ww_lease *l, const char *device, struct waiting *w, struct ww_err *err)
{
	char name[96];
	enum ww_rc rc = WW_OK;
	snprintf(name, sizeof(name), "%.95s", device);
	WW_LOCKED(&lock);
	struct ww_lease_turn *t = find_turn(name);
	if (!t)
		rc = ww_err_set(err, WW_ERR_LIMIT, "one process judges on %d devices at most", MAX_DEVICES);
	while (t && t->held && rc == WW_OK) {
		(void)ww_cond_wait(&given_back, &lock, LOOK_S);
		rc = look(w, -1, err);
	}
	if (rc == WW_OK) {
		t->held = 1;
		l->turn = t;
	}
	return rc;
}

static void give_turn_back(struct ww_lease *l)
{
	if (!l->turn)
		return;
	WW_LOCKED(&lock);
	l->turn->held = 0;
	l->turn = NULL;
	pthread_cond_broadcast(&given_back);
}

/* ---- Alone ------------------------------------------------------------------------------------------------------- */

/* The holder's text in the lock file, for processes that wait; "" when the lease is dropped. */
static void write_holder(int fd, const char *text)
{
	if (ftruncate(fd, 0) != 0 || pwrite(fd, text, strlen(text), 0) < 0)
		ww_log(WW_LOG_DEBUG, "the device's lock file cannot be written: %s", strerror(errno));
}

enum ww_rc ww_lease_take(struct ww_lease *l, const char *device, const struct ww_lease_wait *how, struct ww_err *err)
{
	struct waiting w = begin_waiting(how);
	char pid[16];
	WW_AUTO(ww_fd_close) int gate = -1;
	enum ww_rc rc;

	*l = (struct ww_lease)WW_LEASE_INIT;
	l->asked_ns = ww_now_ns();
	WW_TRY(take_turn(l, device, &w, err));
	WW_TRY(open_file(&gate, device, "gate", err));
	WW_TRY(open_file(&l->fd, device, "lock", err));
	WW_TRY(pass(gate, l->fd, LOCK_EX, &w, err));
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	write_holder(l->fd, pid);
	l->since_ns = ww_now_ns();
	rc = ww_pause_begin(&l->pause, w.how.interrupted, err);
out:
	if (rc != WW_OK) {
		if (!l->since_ns)
			ww_fd_close(&l->fd); /* not locked: another's pid stands in it */
		ww_lease_drop(l);
	}
	return rc;
}

static uint64_t held_ns; /* atomic */

double ww_lease_held_s(void) { return (double)__atomic_load_n(&held_ns, __ATOMIC_RELAXED) * 1e-9; }

void ww_lease_drop(struct ww_lease *l)
{
	ww_pause_end(&l->pause);
	if (l->fd >= 0) {
		__atomic_add_fetch(&held_ns, ww_now_ns() - l->since_ns, __ATOMIC_RELAXED);
		ww_log(WW_LOG_DEBUG, "the device was held for %.3f s after a wait of %.3f s", ww_seconds_since(l->since_ns),
			(double)(l->since_ns - l->asked_ns) * 1e-9);
		write_holder(l->fd, "");
		(void)flock(l->fd, LOCK_UN); /* a process that was forked meanwhile may have the file open still */
	}
	ww_fd_close(&l->fd);
	give_turn_back(l);
}

/* ---- Shared ------------------------------------------------------------------------------------------------------ */

enum ww_rc ww_share_open(struct ww_share *s, const char *device, struct ww_err *err)
{
	enum ww_rc rc;
	*s = (struct ww_share)WW_SHARE_INIT;
	WW_TRY(open_file(&s->gate, device, "gate", err));
	rc = open_file(&s->fd, device, "lock", err);
out:
	if (rc != WW_OK)
		ww_share_close(s);
	return rc;
}

static void let_go(struct ww_share *s)
{
	if (s->held) {
		ww_log(WW_LOG_DEBUG, "the device was shared for %.3f s", ww_seconds_since(s->since_ns));
		(void)flock(s->fd, LOCK_UN);
	}
	s->held = 0;
}

void ww_share_rest(struct ww_share *s)
{
	let_go(s);
	s->asked_ns = 0;
}

enum ww_rc ww_share_step(struct ww_share *s, const volatile int *interrupted, struct ww_err *err)
{
	uint64_t now = ww_now_ns();
	if (s->held && now < s->until_ns)
		return WW_OK;
	let_go(s);
	if (!s->asked_ns)
		s->asked_ns = now;
	struct waiting w = begin_waiting(&(struct ww_lease_wait){ .interrupted = interrupted });
	WW_CHECK(pass(s->gate, s->fd, LOCK_SH, &w, err));
	now = ww_now_ns();
	uint64_t waited = now - s->asked_ns;
	ww_log(WW_LOG_DEBUG, "the device is shared after a wait of %.3f s", (double)waited * 1e-9);
	s->since_ns = now;
	s->until_ns = now + (waited < LEAST_SHARE_NS ? LEAST_SHARE_NS : waited > MOST_SHARE_NS ? MOST_SHARE_NS : waited);
	s->asked_ns = 0;
	s->held = 1;
	return WW_OK;
}

void ww_share_close(struct ww_share *s)
{
	let_go(s);
	ww_fd_close(&s->fd);
	ww_fd_close(&s->gate);
	*s = (struct ww_share)WW_SHARE_INIT;
}

/* ---- Participants ------------------------------------------------------------------------------------------------ */

int ww_lease_takes_part(int pid, const char *device)
{
	char path[PATH_MAX], dir[64], name[400];
	struct ww_err ignored = WW_ERR_INIT;
	struct stat mine, other;
	int found = 0;
	if (path_of(path, device, "lock", &ignored) != WW_OK || stat(path, &mine) != 0)
		return 0;
	snprintf(dir, sizeof(dir), "/proc/%d/fd", pid);
	DIR *d = opendir(dir);
	for (struct dirent *e; !found && d && (e = readdir(d));) {
		snprintf(name, sizeof(name), "%s/%s", dir, e->d_name);
		found = stat(name, &other) == 0 && other.st_dev == mine.st_dev && other.st_ino == mine.st_ino;
	}
	if (d)
		closedir(d);
	return found;
}
