/* worker.c - a child process that runs untrusted Python: start, watch, kill (worker.h).
 *
 * It starts as our own binary, which gives up its rights and becomes Python (confined.h).  It leads a session and,
 * where the system allows, a pid namespace of its own, so that one kill() reaches the compilers and the forks of a task
 * as well; PR_SET_PDEATHSIG and the closing of the socket end it when this process dies.  What it prints goes into a
 * pipe that this side drains while it waits: a task that prints without end costs a ring of 64 KiB, and blocks while
 * this side does not read.
 *
 * Rejected: a log file (grows); RLIMIT_AS (breaks CUDA, which reserves terabytes of addresses).
 */
#include "task/worker.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/target.h"
#include "base/time.h"
#include "task/bytecode.h"
#include "task/forker.h"
#include "task/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WATCH_MS = 50, DISK_MS = 500, MAX_PROCESSES = 1023, END_LIMIT_MS = 1000, END_STEP_MS = 5 };

static const uint64_t DISK_BYTES = 4ull << 30;

/* ---- Starting */

static enum ww_rc spawn(struct ww_worker *w, const struct ww_ref_opts *o, struct ww_err *err)
{
	enum { ROOTS_AT = 2, OPTIONS_AT = 8 };
	char python[PATH_MAX], script[PATH_MAX], bridge[PATH_MAX], memory[32], code[PATH_MAX] = "", option[PATH_MAX + 32];
	ww_auto_str roots = WW_STR_INIT(1 << 20);
	const char *args[OPTIONS_AT + 6] = { w->dir.path, o->cache_dir ? o->cache_dir : "", NULL, ww_target_name(o->target),
		memory, o->python ? o->python : python, "-I", "-u" };
	struct ww_proc_opts po = { .worker = "confined",
		.args = args,
		.namespaces = 1,
		.memory_bytes = w->max_resident_bytes / 8 * 9, /* draws that it shares with the judge may count here */
		.max_tasks = ww_worker_max_tasks(),
		.err_mode = WW_STDERR_PIPE };
	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)w->max_resident_bytes);
	if (o->cache_dir)
		WW_CHECK(ww_fs_mkdirs(o->cache_dir, err));
	if (!o->python)
		WW_CHECK(ww_ref_find_python(python, err));
	WW_CHECK(ww_fs_resource("bridge", bridge, err));
	WW_CHECK(ww_fs_join(script, bridge, "worker.py", err));
	const struct ww_task *seen = o->first ? o->first : o->visible;
	if (!o->python && !o->worker)
		ww_bytecode_dir(python, code);
	int n = OPTIONS_AT + ww_bytecode_args(code, args + OPTIONS_AT, option);
	args[n] = o->worker ? o->worker : script;
	args[n + 1] = "--fd";
	args[n + 2] = "3";
	ww_str_addf(
		&roots, "%s:%s:%s:%s", seen && seen->roots ? seen->roots : "", bridge, o->worker ? o->worker : bridge, code);
	args[ROOTS_AT] = roots.p;
	return ww_proc_spawn(&w->proc, &po, err);
}

/* Fork the worker from the process that has imported PyTorch; 0: start it by itself instead. */
static int forked(struct ww_worker *w, const struct ww_ref_opts *o)
{
	struct ww_err why = WW_ERR_INIT;
	if (!o->forker)
		return 0;
	enum ww_rc rc = ww_forker_fork(o->forker, o->cache_dir, w->max_resident_bytes, &w->proc, &why);
	if (rc != WW_OK && !(o->interrupted && *o->interrupted))
		ww_log(WW_LOG_WARN, "a reference worker could not be forked and imports PyTorch itself: %s", why.msg);
	return rc == WW_OK;
}

int ww_worker_max_tasks(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	return MAX_PROCESSES + 1 + 16 * (int)(n < 1 ? 1 : n < 512 ? n : 512);
}

enum ww_rc ww_worker_start(struct ww_worker *w, const struct ww_ref_opts *o, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	*w = WW_WORKER_NONE;
	w->max_resident_bytes = o->max_resident_bytes
		? o->max_resident_bytes
		: (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 5 * 4;
	w->interrupted = o->interrupted;
	w->cuda = o->target == WW_TARGET_CUDA;
	w->max_disk_bytes = o->max_disk_bytes ? o->max_disk_bytes : DISK_BYTES;
	w->log = malloc(WW_WORKER_LOG_BYTES);
	if (!w->log)
		WW_TRY(ww_nomem(err));
	if (!forked(w, o)) {
		WW_TRY(ww_tmpdir_new(&w->dir, "worker", err));
		WW_TRY(spawn(w, o, err));
	}
	if (fcntl(w->proc.err_fd, F_SETFL, O_NONBLOCK) < 0)
		WW_TRY(ww_err_errno(err, WW_ERR_SYSTEM, "cannot start the reference worker"));
	w->dead = 0;
out:
	if (rc != WW_OK)
		ww_worker_stop(w);
	return rc;
}

/* ---- Watching */

static void drain_log(struct ww_worker *w)
{
	char part[4096];
	/* Bounded: a task that prints faster than this reads must not block the judge. */
	for (int i = 0; i < 64 && w->proc.err_fd >= 0; i++) {
		ssize_t n = read(w->proc.err_fd, part, sizeof(part));
		if (n <= 0)
			break;
		for (ssize_t k = 0; k < n; k++)
			w->log[w->log_total++ % WW_WORKER_LOG_BYTES] = part[k];
	}
}

const char *ww_worker_log(struct ww_worker *w)
{
	drain_log(w);
	size_t n = w->log_total < WW_WORKER_LOG_BYTES ? w->log_total : WW_WORKER_LOG_BYTES;
	free(w->log_text);
	w->log_text = malloc(n + 1);
	if (!w->log_text)
		return "";
	for (size_t i = 0; i < n; i++) {
		char ch = w->log[(w->log_total - n + i) % WW_WORKER_LOG_BYTES];
		w->log_text[i] = ch ? ch : '?';
	}
	w->log_text[n] = 0;
	return w->log_text;
}

/* The last line that is not blank, or "". */
static const char *last_line(struct ww_worker *w)
{
	char *text = (char *)(uintptr_t)ww_worker_log(w);
	size_t n = strlen(text);
	while (n && strchr(" \t\r\n", text[n - 1]))
		text[--n] = 0;
	char *nl = strrchr(text, '\n');
	return nl ? nl + 1 : text;
}

enum ww_rc ww_worker_kill(struct ww_worker *w, struct ww_err *err)
{
	drain_log(w);
	ww_proc_kill(&w->proc);
	w->dead = 1;
	return err->rc;
}

void ww_worker_stop(struct ww_worker *w)
{
	ww_proc_kill(&w->proc);
	free(w->log);
	free(w->log_text);
	ww_tmpdir_remove(&w->dir);
	*w = WW_WORKER_NONE;
}

/* It closed the socket or vanished: say how it ended. */
static enum ww_rc died(struct ww_worker *w, struct ww_err *err)
{
	ww_auto_str how = WW_STR_INIT(128);
	struct ww_err ignored = WW_ERR_INIT;
	for (int waited = 0; ww_proc_alive(&w->proc) && waited < END_LIMIT_MS; waited += END_STEP_MS)
		poll(NULL, 0, END_STEP_MS);
	drain_log(w);
	if (w->proc.pid <= 0 || ww_proc_wait(&w->proc, ww_now_ns(), &w->status, &ignored) != WW_OK)
		ww_str_adds(&how, "closed its connection");
	else if (WIFEXITED(w->status) && WEXITSTATUS(w->status) == 127)
		ww_str_adds(&how, "could not be started; check that WW_PYTHON names a Python");
	else if (WIFSIGNALED(w->status))
		ww_str_addf(&how, "was ended by signal %d (%s)", WTERMSIG(w->status), strsignal(WTERMSIG(w->status)));
	else
		ww_str_addf(&how, "exited with code %d", WEXITSTATUS(w->status));
	const char *line = last_line(w);
	ww_err_set(err, WW_ERR_WORKER, "the reference worker %s%s%.300s", how.p, *line ? "; its last line: " : "", line);
	return ww_worker_kill(w, err);
}

/* On disk, each entry with a block for itself; not looked at beyond `most`. */
static uint64_t bytes_below(const char *dir, uint64_t most)
{
	char *const paths[] = { (char *)(uintptr_t)dir, NULL };
	uint64_t sum = 0;
	FTS *f = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	for (FTSENT *e; f && sum <= most && (e = fts_read(f));)
		if (e->fts_info != FTS_DP && e->fts_statp)
			sum += (uint64_t)e->fts_statp->st_blocks * 512 + 4096;
	if (f)
		fts_close(f);
	return sum;
}

/* Where it writes on a disk: its compiler's caches, and its private directory where that is no file system of its own.
 */
static int fills_disk(struct ww_worker *w, uint64_t now)
{
	if (now < w->disk_ns)
		return 0;
	w->disk_ns = now + DISK_MS * 1000000ull;
	return bytes_below(w->dir.path, w->max_disk_bytes) > w->max_disk_bytes ||
		(w->cache_dir && bytes_below(w->cache_dir, w->max_disk_bytes) > w->max_disk_bytes);
}

/* The resource of which it uses too much; NULL: none. */
static const char *excess(struct ww_worker *w, uint64_t now, struct ww_str *what)
{
	if (now < w->look_ns)
		return NULL;
	struct ww_proc_tree t = ww_proc_tree(w->proc.pid, w->cuda ? WW_PROC_SHARED : WW_PROC_RESIDENT);
	w->look_ns = now + WATCH_MS * 1000000ull;
	if (t.processes > MAX_PROCESSES)
		ww_str_addf(what, "%d processes", MAX_PROCESSES);
	else if (t.bytes > w->max_resident_bytes)
		ww_str_addf(what, "%llu MiB of memory", (unsigned long long)(w->max_resident_bytes >> 20));
	else if (fills_disk(w, now))
		ww_str_addf(what, "%llu MiB of disk", (unsigned long long)(w->max_disk_bytes >> 20));
	return what->len ? what->p : NULL;
}

/* Check deadline, interruption, memory and disk while a reply is awaited. */
static enum ww_rc look(struct ww_worker *w, uint64_t deadline_ns, struct ww_err *err)
{
	uint64_t now = ww_now_ns();
	ww_auto_str what = WW_STR_INIT(128);
	if (w->interrupted && *w->interrupted)
		ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	else if (deadline_ns && now >= deadline_ns)
		ww_err_set(err, WW_ERR_TIMEOUT, "the reference worker gave no answer in time and was ended");
	else if (excess(w, now, &what))
		ww_err_set(err, WW_ERR_LIMIT, "the reference worker used more than %s and was ended", what.p);
	else
		return WW_OK;
	return ww_worker_kill(w, err);
}

static enum ww_rc wait_events(
	struct ww_worker *w, int fd, short events, int *ready, uint64_t deadline_ns, struct ww_err *err)
{
	for (;;) {
		WW_CHECK(look(w, deadline_ns, err));
		int timeout_ms = WATCH_MS;
		if (deadline_ns) {
			uint64_t now = ww_now_ns(), left = deadline_ns > now ? (deadline_ns - now) / 1000000 + 1 : 0;
			timeout_ms = left < WATCH_MS ? (int)left : WATCH_MS;
		}
		struct pollfd p[3] = { { .fd = fd, .events = events }, { .fd = w->proc.err_fd, .events = POLLIN },
			{ .fd = w->proc.fd == fd ? -1 : w->proc.fd, .events = POLLIN } };
		int n = poll(p, 3, timeout_ms);
		if (n < 0 && errno != EINTR)
			return ww_err_errno(err, WW_ERR_SYSTEM, "poll");
		if (n <= 0)
			continue;
		if (p[1].revents & POLLIN)
			drain_log(w);
		else if (p[1].revents)
			ww_fd_close(&w->proc.err_fd); /* all writers have closed it */
		if (p[0].revents || p[2].revents) {
			*ready = p[0].revents ? fd : w->proc.fd;
			return WW_OK;
		}
	}
}

enum ww_rc ww_worker_wait(struct ww_worker *w, int fd, int *ready, uint64_t deadline_ns, struct ww_err *err)
{
	w->look_ns = ww_now_ns() + WATCH_MS * 1000000ull; /* a short timed call ends before the first look */
	return wait_events(w, fd, POLLIN, ready, deadline_ns, err);
}

/* ---- Talking */

struct exchange {
	struct ww_worker *w;
	uint64_t deadline_ns;
};

static enum ww_rc wait_socket(void *ctx, short events, struct ww_err *err)
{
	const struct exchange *x = ctx;
	int ready;
	return wait_events(x->w, x->w->proc.fd, events, &ready, x->deadline_ns, err);
}

enum ww_rc ww_worker_send(
	struct ww_worker *w, const json_t *body, const int *fds, int n_fds, uint64_t deadline_ns, struct ww_err *err)
{
	struct exchange x = { w, deadline_ns };
	if (w->dead)
		return ww_err_set(err, WW_ERR_WORKER, "the reference worker has ended");
	enum ww_rc rc = ww_frames_send(&(struct ww_frames){ w->proc.fd, wait_socket, &x, 0 }, body, fds, n_fds, err);
	return rc == WW_ERR_WORKER ? died(w, err) : rc;
}

enum ww_rc ww_worker_receive(
	struct ww_worker *w, json_t **body, int **fds, int *n_fds, uint64_t deadline_ns, struct ww_err *err)
{
	struct exchange x = { w, deadline_ns };
	*body = NULL;
	*n_fds = 0;
	if (w->dead)
		return ww_err_set(err, WW_ERR_WORKER, "the reference worker has ended");
	enum ww_rc rc = WW_NEW(*fds, WW_FRAME_MAX_FDS, err);
	if (rc == WW_OK)
		rc = ww_frames_receive(
			&(struct ww_frames){ w->proc.fd, wait_socket, &x, 0 }, body, *fds, WW_FRAME_MAX_FDS, n_fds, err);
	if (rc == WW_OK)
		return WW_OK;
	free(*fds);
	*fds = NULL;
	return rc == WW_ERR_WORKER ? died(w, err) : ww_worker_kill(w, err);
}
