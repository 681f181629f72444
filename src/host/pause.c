/* pause.c - see pause.h.
 *
 * One file of the cache directory has four bytes to lock, locked shared and asked about:
 *
 *     byte 0    by each measurement: policies must stop
 *     byte 1    by each process with groups of policies that run
 *     byte 2    by each process whose groups have been stopped for so long that they get the next turn
 *     byte 3    by each process that has groups at all
 *
 * Both sides lock their byte before they look at the other's, so never do both go on.  The locks are those of open file
 * descriptions (F_OFD_SETLK): they can be asked about without taking them, threads of one process have their own, and
 * they end with their holder.  The file's first word counts changes; whoever waits sleeps on it (futex), so that
 * nothing polls while something is measured.  A holder that was killed changes nothing, so a sleep ends after a second
 * at most.
 *
 * Rejected: stopping processes from the judge (one that is killed would leave them stopped for ever); the freezer of
 * control groups (it has to be delegated to this user, which most systems do not; where signals that continue are
 * forbidden by a filter, SIGSTOP holds as well). */
#include "host/pause.h"

#include "base/fs.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MEASURES, RUNS, WAITS, EXISTS };
static const uint64_t MS = 1000000, SLEEP_MS = 1000, STOPS_MS = 5000, TURN_MS = 10000, ANSWERS_MS = 3000;
static const uint64_t HUNGRY_MS = 1000, LEAST_TURN_MS = 20, MOST_TURN_MS = 500;

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static pthread_mutex_t word_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *word; /* of the file, shared by all processes; mapped once and for good */

static enum ww_rc open_file(int *fd, struct ww_err *err)
{
	char dir[PATH_MAX], path[PATH_MAX];
	enum ww_rc rc;
	WW_TRY(ww_fs_cache_dir(dir, err));
	WW_TRY(ww_fs_join(path, dir, "policies.lock", err));
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	pthread_mutex_lock(&word_lock);
	if (*fd >= 0 && !word && ftruncate(*fd, sizeof(*word)) == 0)
		word = mmap(NULL, sizeof(*word), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (word == MAP_FAILED)
		word = NULL;
	pthread_mutex_unlock(&word_lock);
	if (!word)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot open %s", path);
out:
	if (rc != WW_OK)
		ww_fd_close(fd);
	return rc;
}

static void hold(int fd, int byte, int held)
{
	struct flock l = { .l_type = held ? F_RDLCK : F_UNLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
	while (fcntl(fd, F_OFD_SETLK, &l) < 0 && errno == EINTR)
		;
}

/* Whether another open file description holds it. */
static int is_held(int fd, int byte)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
	return fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

static uint32_t now_word(void) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static void tell_all(void)
{
	__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleep until the word differs from `was`, for at most `ms`. */
static void sleep_on(uint32_t was, uint64_t ms)
{
	struct timespec t = { (time_t)(ms / 1000), (long)(ms % 1000 * MS) };
	syscall(SYS_futex, word, FUTEX_WAIT, was, &t, NULL, 0);
}

/* ---- A measurement ----------------------------------------------------------------------------------------------- */

/* Wait until nobody holds the byte, or limit_ms has passed. */
static enum ww_rc wait_for(int fd, int byte, uint64_t limit_ms, const volatile int *interrupted, struct ww_err *err)
{
	uint64_t deadline = ww_now_ns() + limit_ms * MS;
	for (;;) {
		uint32_t was = now_word();
		if (!is_held(fd, byte) || ww_now_ns() >= deadline)
			return WW_OK;
		if (interrupted && *interrupted)
			return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted while waiting for policies to stop");
		sleep_on(was, 20);
	}
}

enum ww_rc ww_pause_begin(int *fd, const volatile int *interrupted, struct ww_err *err)
{
	enum ww_rc rc;
	*fd = -1;
	WW_TRY(open_file(fd, err));
	WW_TRY(wait_for(*fd, WAITS, TURN_MS, interrupted, err));
	hold(*fd, MEASURES, 1);
	tell_all();
	rc = wait_for(*fd, RUNS, STOPS_MS, interrupted, err);
out:
	if (rc != WW_OK)
		ww_pause_end(fd);
	return rc;
}

void ww_pause_end(int *fd)
{
	if (*fd < 0)
		return;
	hold(*fd, MEASURES, 0); /* a process that was forked meanwhile may have the file open still */
	ww_fd_close(fd);
	tell_all();
}

int ww_pausable_exists(void)
{
	struct ww_err ignored = WW_ERR_INIT;
	int fd = -1, found = open_file(&fd, &ignored) == WW_OK && is_held(fd, EXISTS);
	ww_fd_close(&fd);
	return found;
}

/* ---- Groups of this process -------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct ww_pausable *groups;
static int file = -1, started; /* the thread lives */
static uint64_t stopped_ns, turn_ends_ns;

static void tell(struct ww_pausable *p, char what)
{
	if (!p->dead && write(p->fd, &what, 1) != 1)
		p->dead = 1; /* its process has ended */
}

static void end_of(struct ww_pausable *p)
{
	syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	p->dead = 1;
}

static void await_stop(struct ww_pausable *p, uint64_t deadline)
{
	struct pollfd pf = { p->fd, POLLIN, 0 };
	uint64_t now = ww_now_ns();
	char answer = 0;
	if (!p->dead &&
		(poll(&pf, 1, now < deadline ? (int)((deadline - now) / MS) : 0) <= 0 || read(p->fd, &answer, 1) != 1 ||
			answer != WW_PAUSE_STOP))
		end_of(p);
	p->runs = 0;
	p->since_ns = ww_now_ns();
}

static int any_runs(void)
{
	for (struct ww_pausable *p = groups; p; p = p->next)
		if (p->runs)
			return 1;
	return 0;
}

static void stop_groups(void)
{
	uint64_t deadline = ww_now_ns() + ANSWERS_MS * MS;
	for (struct ww_pausable *p = groups; p; p = p->next)
		if (p->runs)
			tell(p, WW_PAUSE_STOP);
	for (struct ww_pausable *p = groups; p; p = p->next)
		if (p->runs)
			await_stop(p, deadline);
	stopped_ns = ww_now_ns();
	hold(file, RUNS, 0);
	tell_all();
}

/* Called with RUNS held and nothing measured. */
static void continue_groups(void)
{
	for (struct ww_pausable *p = groups; p; p = p->next) {
		if (p->runs)
			continue;
		p->stopped_ns += ww_now_ns() - p->since_ns;
		p->runs = 1;
		tell(p, WW_PAUSE_GO);
	}
}

static void begin_turn(void)
{
	uint64_t now = ww_now_ns(), ms = stopped_ns ? (now - stopped_ns) / MS / 4 : 0;
	ms = ms < LEAST_TURN_MS ? LEAST_TURN_MS : ms > MOST_TURN_MS ? MOST_TURN_MS : ms;
	turn_ends_ns = now + ms * MS;
	continue_groups();
	hold(file, WAITS, 0);
	tell_all();
}

/* Stop or continue the groups by the locks that others hold; returns how many ms to sleep unless a lock changes. */
static uint64_t look(void)
{
	uint64_t now = ww_now_ns();
	int measured = is_held(file, MEASURES);
	if (any_runs()) {
		if (measured && now >= turn_ends_ns)
			stop_groups();
		else
			continue_groups(); /* those that are new */
		return measured && now < turn_ends_ns ? (turn_ends_ns - now) / MS + 1 : SLEEP_MS;
	}
	if (!groups)
		return SLEEP_MS;
	if (!measured) {
		hold(file, RUNS, 1);
		if (!is_held(file, MEASURES)) {
			begin_turn();
			return SLEEP_MS;
		}
		hold(file, RUNS, 0);
		tell_all();
	}
	if (now - stopped_ns >= HUNGRY_MS * MS)
		hold(file, WAITS, 1);
	return SLEEP_MS;
}

static void *keep(void *unused)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	for (;;) {
		uint32_t was = now_word();
		pthread_mutex_lock(&lock);
		uint64_t ms = look();
		pthread_mutex_unlock(&lock);
		sleep_on(was, ms);
	}
	return unused;
}

/* A fork's child has none of its parent's threads, and no groups. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	groups = NULL;
	started = 0;
	ww_fd_close(&file);
}

static enum ww_rc start(struct ww_err *err)
{
	static int registered;
	pthread_attr_t detached;
	pthread_t t;
	if (file < 0)
		WW_CHECK(open_file(&file, err));
	if (!registered)
		registered = !pthread_atfork(NULL, NULL, forget);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	started = !pthread_create(&t, &detached, keep, NULL);
	pthread_attr_destroy(&detached);
	if (!started)
		return ww_err_set(err, WW_ERR_SYSTEM, "cannot start a thread");
	return WW_OK;
}

enum ww_rc ww_pausable_add(struct ww_pausable *p, int fd, int pidfd, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	*p = (struct ww_pausable){ .fd = fd, .pidfd = pidfd, .since_ns = ww_now_ns() };
	pthread_mutex_lock(&lock);
	if (!started)
		rc = start(err);
	if (rc == WW_OK) {
		if (!groups)
			stopped_ns = p->since_ns, hold(file, EXISTS, 1);
		p->next = groups;
		groups = p;
		tell_all();
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

void ww_pausable_remove(struct ww_pausable *p)
{
	pthread_mutex_lock(&lock);
	struct ww_pausable **at = &groups;
	while (*at && *at != p)
		at = &(*at)->next;
	if (*at) {
		*at = p->next;
		if (!any_runs())
			hold(file, RUNS, 0);
		if (!groups)
			hold(file, WAITS, 0), hold(file, EXISTS, 0);
		tell_all();
	}
	pthread_mutex_unlock(&lock);
}

uint64_t ww_pausable_stopped_ns(struct ww_pausable *p)
{
	pthread_mutex_lock(&lock);
	uint64_t ns = p->stopped_ns + (p->runs ? 0 : ww_now_ns() - p->since_ns);
	pthread_mutex_unlock(&lock);
	return ns;
}
