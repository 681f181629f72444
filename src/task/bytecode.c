/* bytecode.c - see bytecode.h.
 *
 *     CACHE/bytecode/KEY/    KEY: interpreter and site-packages; below it Python's own layout
 *         complete           which PyTorch it was made for, once all of it is there
 *         lock               held while it is made
 *
 * It is made in a sandbox (confined.h), where only this directory can be written; a process that holds a task cannot
 * write there.  Where the system has neither namespaces nor Landlock a task could, so there is none. */
#include "task/bytecode.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/time.h"
#include "base/tmpdir.h"
#include "host/machine.h"
#include "sandbox/proc.h"
#include "sandbox/sandbox.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 120, NAP_MS = 50 };

/* PyTorch of one interpreter: where its packages are, and what tells this installation from the next. */
struct installation {
	char packages[PATH_MAX], version[300];
};

static int exists(const char *dir, const char *file)
{
	char path[PATH_MAX + 64];
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return access(path, F_OK) == 0;
}

/* 1 where there is a PyTorch without byte code.  Installers that compile, compile all of it; what only PyTorch's own
 * tests import is never compiled by a user's imports. */
static int lacks_bytecode(const char *python, struct installation *in)
{
	char version[128], path[PATH_MAX + 64];
	struct stat st;
	if (!ww_host_python_package(python, "torch", version, sizeof(version), in->packages))
		return 0;
	snprintf(path, sizeof(path), "%s/torch/version.py", in->packages);
	if (!exists(in->packages, "torch/testing/_internal/opinfo/__init__.py") ||
		exists(in->packages, "torch/testing/_internal/opinfo/__pycache__") || stat(path, &st) < 0)
		return 0;
	snprintf(in->version, sizeof(in->version), "PyTorch %s of %lld", version, (long long)st.st_mtime);
	return 1;
}

static enum ww_rc find_dir(const char *python, const struct installation *in, char dir[PATH_MAX], struct ww_err *err)
{
	const struct ww_hash_part parts[] = { { python, strlen(python) }, { in->packages, strlen(in->packages) } };
	char key[WW_HASH_HEX], cache[PATH_MAX], all[PATH_MAX];
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), key);
	key[16] = 0;
	WW_CHECK(ww_fs_cache_dir(cache, err));
	WW_CHECK(ww_fs_join(all, cache, "bytecode", err));
	WW_CHECK(ww_fs_join(dir, all, key, err));
	if (strchr(dir, ':')) /* lists of paths are separated by it */
		return ww_err_set(err, WW_ERR_MISSING, "a cache directory with a colon in its name");
	return ww_fs_mkdirs(dir, err);
}

static int is_complete(const char *dir, const struct installation *in)
{
	ww_auto_str text = WW_STR_INIT(4096);
	struct ww_err none = WW_ERR_INIT;
	char path[PATH_MAX];
	return ww_fs_join(path, dir, "complete", &none) == WW_OK && ww_fs_read(path, 4000, &text, &none) == WW_OK &&
		!strcmp(text.p, in->version);
}

int ww_bytecode_args(const char *dir, const char **args, char option[PATH_MAX + 32])
{
	if (!*dir)
		return 0;
	snprintf(option, PATH_MAX + 32, "pycache_prefix=%s", dir);
	args[0] = "-X";
	args[1] = option;
	return 2;
}

static enum ww_rc run(const char *python, const char *script, const char *dir, struct ww_err *err)
{
	struct ww_tmpdir own = WW_TMPDIR_INIT;
	struct ww_proc p = WW_PROC_INIT;
	char option[PATH_MAX + 32], bridge[PATH_MAX];
	const char *args[] = { own.path, dir, bridge, "cpu", "17179869184", python, "-I", "-X", option, script, NULL };
	const struct ww_proc_opts o = { .worker = "confined", .args = args, .namespaces = 1, .err_mode = WW_STDERR_NULL };
	int status = 0;
	enum ww_rc rc;

	snprintf(option, sizeof(option), "pycache_prefix=%s", dir);
	snprintf(bridge, sizeof(bridge), "%s", script);
	*strrchr(bridge, '/') = 0;
	WW_TRY(ww_tmpdir_new(&own, "bytecode", err));
	WW_TRY(ww_proc_spawn(&p, &o, err));
	WW_TRY(ww_proc_wait(&p, ww_deadline_ns(LIMIT_S), &status, err));
	if (status)
		rc = ww_err_set(err, WW_ERR_MISSING, "importing PyTorch failed");
out:
	ww_proc_kill(&p);
	ww_tmpdir_remove(&own);
	return rc;
}

/* Another process may be making it: wait for that. */
static enum ww_rc take_lock(const char *dir, int *fd, struct ww_err *err)
{
	char path[PATH_MAX];
	uint64_t start = ww_now_ns();
	WW_CHECK(ww_fs_join(path, dir, "lock", err));
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*fd < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot open %s", path);
	while (flock(*fd, LOCK_EX | LOCK_NB) < 0) {
		if (ww_seconds_since(start) > LIMIT_S)
			return ww_err_set(err, WW_ERR_TIMEOUT, "another process makes it and does not end");
		nanosleep(&(struct timespec){ 0, NAP_MS * 1000000 }, NULL);
	}
	return WW_OK;
}

static enum ww_rc make(
	const char *python, const char *script, const struct installation *in, const char *dir, struct ww_err *err)
{
	WW_AUTO(ww_fd_close) int fd = -1;
	char path[PATH_MAX];
	WW_CHECK(take_lock(dir, &fd, err));
	if (is_complete(dir, in))
		return WW_OK;
	ww_log(WW_LOG_INFO, "%s has no byte code: it is made once, in %s", in->version, dir);
	WW_CHECK(run(python, script, dir, err));
	WW_CHECK(ww_fs_join(path, dir, "complete", err));
	return ww_fs_write(path, in->version, strlen(in->version), err);
}

void ww_bytecode_dir_by(const char *python, const char *script, char dir[PATH_MAX])
{
	struct installation in;
	struct ww_err err = WW_ERR_INIT;
	*dir = 0;
	if (ww_sandbox_probe() < WW_SANDBOX_LANDLOCK || !lacks_bytecode(python, &in))
		return;
	enum ww_rc rc = find_dir(python, &in, dir, &err);
	if (rc == WW_OK && !is_complete(dir, &in))
		rc = make(python, script, &in, dir, &err);
	if (rc != WW_OK) {
		ww_log(WW_LOG_INFO, "PyTorch's byte code cannot be kept: %s", err.msg);
		*dir = 0;
	}
}

void ww_bytecode_dir(const char *python, char dir[PATH_MAX])
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static char cached_python[PATH_MAX], cached_dir[PATH_MAX];
	char bridge[PATH_MAX], script[PATH_MAX];
	struct ww_err ignored = WW_ERR_INIT;
	WW_LOCKED(&lock);
	*dir = 0;
	if (strcmp(cached_python, python) && ww_fs_resource("bridge", bridge, &ignored) == WW_OK &&
		ww_fs_join(script, bridge, "bytecode.py", &ignored) == WW_OK) {
		ww_bytecode_dir_by(python, script, cached_dir);
		snprintf(cached_python, sizeof(cached_python), "%s", python);
	}
	snprintf(dir, PATH_MAX, "%s", cached_dir);
}
