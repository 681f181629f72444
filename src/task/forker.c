/* forker.c - see forker.h.
 *
 * An order without descriptors, {"request": "import"}, has it import what exporting needs.  Any other is one frame of
 * the bridge's ({"request": "fork", "caches", "cache", "data_bytes"}) with three descriptors:
 * the worker's socket, the write end of what it prints, and the write end of the pipe on which its end is reported. The
 * answer brings a pidfd, which cannot mean another process later; its pid here is read from /proc/self/fdinfo.  The
 * worker waits for a byte, so that it lives until that is done. */
#include "task/forker.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/time.h"
#include "sandbox/cgroup.h"
#include "sandbox/sandbox.h"
#include "task/bytecode.h"
#include "task/ends.h"
#include "task/surroundings.h"
#include "task/worker.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { START_S = 120, FORK_S = 30, FILTER_FD = 4 };

struct ww_forker {
	pthread_mutex_t lock; /* exports; held while an order is under way */
	int exports;          /* it has imported what exporting needs */
	struct ww_worker process;
	char *caches;
};

/* One answer; what it brought is in *fd where it is a descriptor. */
static enum ww_rc answer(struct ww_forker *f, double seconds, int *fd, struct ww_err *err)
{
	json_auto_t *body = NULL;
	int *fds = NULL, n = 0;
	WW_CHECK(ww_worker_receive(&f->process, &body, &fds, &n, ww_deadline_ns(seconds), err));
	*fd = n == 1 ? fds[0] : -1;
	for (int i = 0; n != 1 && i < n; i++)
		close(fds[i]);
	free(fds);
	if (!json_is_true(json_object_get(body, "ok")))
		return ww_err_set(err, WW_ERR_MISSING, "%.600s", ww_json_str(body, "error", "no reason given"));
	return WW_OK;
}

static enum ww_rc start(struct ww_forker *f, const struct ww_forker_opts *o, struct ww_err *err)
{
	char python[PATH_MAX], bridge[PATH_MAX], worker[PATH_MAX], code[PATH_MAX] = "";
	const char *args[] = { o->caches, o->roots ? o->roots : "", ww_target_name(o->target),
		o->compiles      ? "compiles"
			: o->exports ? "exports"
						 : "-",
		code, python, bridge, o->worker ? o->worker : worker, NULL };
	struct ww_proc_opts p = { .worker = "workers", .args = args, .namespaces = 1, .err_mode = WW_STDERR_NULL };
	int none;
	if (ww_sandbox_probe() != WW_SANDBOX_NAMESPACES)
		return ww_err_set(err, WW_ERR_MISSING, "this system allows no namespaces");
	WW_CHECK(ww_ref_find_python(python, err));
	WW_CHECK(ww_fs_resource("bridge", bridge, err));
	WW_CHECK(ww_fs_join(worker, bridge, "worker.py", err));
	WW_CHECK(ww_fs_mkdirs(o->caches, err));
	if (!o->worker)
		ww_bytecode_dir(python, code);
	WW_CHECK(ww_proc_spawn(&f->process.proc, &p, err));
	f->process.dead = 0;
	f->process.max_resident_bytes = f->process.max_disk_bytes = UINT64_MAX; /* it runs our code only */
	f->process.interrupted = o->interrupted;
	WW_CHECK(answer(f, START_S, &none, err));
	ww_fd_close(&none);
	f->exports = o->exports || o->compiles;
	return WW_OK;
}

int ww_forker_exports(struct ww_forker *f)
{
	WW_LOCKED(&f->lock);
	return f->exports;
}

enum ww_rc ww_forker_import(struct ww_forker *f, struct ww_err *err)
{
	json_auto_t *q = json_pack("{s:s}", "request", "import");
	int none = -1;
	WW_LOCKED(&f->lock);
	if (f->exports)
		return WW_OK;
	WW_CHECK(ww_worker_send(&f->process, q, NULL, 0, ww_deadline_ns(FORK_S), err));
	WW_CHECK(answer(f, START_S, &none, err));
	ww_fd_close(&none);
	f->exports = 1;
	return WW_OK;
}

enum ww_rc ww_forker_open(struct ww_forker **out, const struct ww_forker_opts *o, struct ww_err *err)
{
	struct ww_forker *f;
	enum ww_rc rc = WW_OK;
	*out = NULL;
	WW_CHECK(WW_NEW(f, 1, err));
	pthread_mutex_init(&f->lock, NULL);
	f->process = WW_WORKER_NONE;
	f->caches = strdup(o->caches);
	WW_TRY(f->caches ? start(f, o, err) : ww_nomem(err));
	*out = f;
out:
	if (rc != WW_OK)
		ww_forker_close(f);
	return rc;
}

void ww_forker_close(struct ww_forker *f)
{
	if (!f)
		return;
	ww_worker_stop(&f->process);
	pthread_mutex_destroy(&f->lock);
	free(f->caches);
	free(f);
}

/* ---- A worker ---------------------------------------------------------------------------------------------------- */

static pid_t pid_of(int pidfd)
{
	char path[64], line[128];
	int pid = 0;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	FILE *f = fopen(path, "re");
	while (f && !pid && fgets(line, sizeof(line), f))
		(void)!sscanf(line, "Pid: %d", &pid);
	if (f)
		fclose(f);
	return pid > 0 ? pid : 0;
}

static enum ww_rc order(struct ww_forker *f, const char *cache_dir, uint64_t max_bytes, const struct ww_ends *e,
	int *pidfd, struct ww_err *err)
{
	const int fds[] = { e->sock[1], e->log[1], e->status[1] };
	json_auto_t *q = json_pack("{s:s, s:s, s:s, s:I}", "request", "fork", "caches", f->caches, "cache",
		cache_dir ? cache_dir : "", "data_bytes", (json_int_t)(max_bytes & INT64_MAX));
	WW_LOCKED(&f->lock);
	enum ww_rc rc = ww_worker_send(&f->process, q, fds, 3, ww_deadline_ns(FORK_S), err);
	return rc == WW_OK ? answer(f, FORK_S, pidfd, err) : rc;
}

/* Put the worker into a cgroup with a memory limit where one can be made (worker.c); returns its directory. */
static char *into_group(pid_t pid, uint64_t max_bytes)
{
	int procs = -1;
	char *group = ww_cgroup_new(max_bytes / 8 * 9, ww_worker_max_tasks(), &procs);
	if (group)
		dprintf(procs, "%d", (int)pid);
	ww_fd_close(&procs);
	return group;
}

enum ww_rc ww_forker_fork(
	struct ww_forker *f, const char *cache_dir, uint64_t max_bytes, struct ww_proc *out, struct ww_err *err)
{
	struct ww_ends e = WW_ENDS_NONE;
	enum ww_rc rc = WW_OK;
	int pidfd = -1;
	*out = (struct ww_proc)WW_PROC_INIT;
	if (cache_dir)
		WW_TRY(ww_fs_mkdirs(cache_dir, err));
	WW_TRY(ww_ends_open(&e, err));
	WW_TRY(order(f, cache_dir, max_bytes, &e, &pidfd, err));
	pid_t pid = pidfd < 0 ? 0 : pid_of(pidfd);
	char *group = pid ? into_group(pid, max_bytes) : NULL;
	if (!pid || send(e.sock[0], "g", 1, MSG_NOSIGNAL) != 1) {
		ww_cgroup_end(&group);
		WW_TRY(ww_err_set(err, WW_ERR_WORKER, "a forked worker is gone"));
	}
	*out = (struct ww_proc){ pid, e.sock[0], e.log[0], 1, group, pidfd, e.status[0] };
	e.sock[0] = e.log[0] = e.status[0] = pidfd = -1;
out:
	ww_fd_close(&pidfd);
	ww_ends_close(&e); /* so that the end of the worker is the end of its pipes */
	return rc;
}

/* ---- The process that forks -------------------------------------------------------------------------------------- */

int ww_workers_main(int argc, char **argv)
{
	enum { CACHES_AT, ROOTS_AT, TARGET_AT, COMPILES_AT, CODE_AT, PYTHON_AT, BRIDGE_AT, WORKER_AT, N };
	static struct ww_surroundings s;
	struct ww_err err = WW_ERR_INIT;

	if (argc != N)
		return 126;
	int cuda = !strcmp(argv[TARGET_AT], "cuda");
	if (ww_surroundings_add_program(&s, argv[PYTHON_AT], cuda, &err) != WW_OK)
		return ww_surroundings_fail(&err);
	ww_surroundings_add(&s, argv[BRIDGE_AT], WW_BIND_READ);
	ww_surroundings_add(&s, argv[WORKER_AT], WW_BIND_READ);
	ww_surroundings_add(&s, argv[CODE_AT], WW_BIND_READ);
	ww_surroundings_add_list(&s, argv[ROOTS_AT], WW_BIND_READ);
	ww_surroundings_add(&s, argv[CACHES_AT], WW_BIND_WRITE);
	if (ww_surroundings_enter(&s, cuda, 1 << 20, FILTER_FD, &err) != WW_OK)
		return ww_surroundings_fail(&err);
	ww_surroundings_environment("/tmp", cuda);
	const char *const args[] = { argv[WORKER_AT], "--fd", "3", "--fork", argv[TARGET_AT],
		!strcmp(argv[COMPILES_AT], "compiles")      ? "--compiles"
			: !strcmp(argv[COMPILES_AT], "exports") ? "--exports"
													: NULL,
		NULL };
	ww_surroundings_python(argv[PYTHON_AT], argv[CODE_AT], args);
}
