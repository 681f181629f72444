/* run_dir.c - see run_dir.h. */
#include "train/run_dir.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RUN_JSON_MAX = 1 << 20, LINE_MAX_BYTES = 1 << 16 };

enum ww_rc ww_run_dir_open(struct ww_run_dir *r, const char *dir, struct ww_err *err)
{
	char path[PATH_MAX];
	r->path = dir;
	WW_CHECK(ww_fs_mkdirs(dir, err));
	WW_CHECK(ww_fs_join(path, dir, "log.jsonl", err));
	if (!(r->log_path = strdup(path)))
		return ww_nomem(err);
	WW_CHECK(ww_fs_join(path, dir, ".lock", err));
	WW_CHECK(ww_fs_open_own(&r->lock_fd, path, O_RDWR | O_CREAT, err));
	if (flock(r->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return ww_err_set(
			err, WW_ERR_USAGE, "another process trains in %s; wait for it, or choose another output", dir);
	return WW_OK;
}

void ww_run_dir_close(struct ww_run_dir *r)
{
	ww_fd_close(&r->log_fd);
	ww_fd_close(&r->lock_fd);
	free(r->log_path);
}

/* Keys that may differ when a run is resumed, since no bit of the weights depends on them.  Of `device` the arithmetic
 * is compared instead. */
static int may_change(const char *key)
{
	static const char *const keys[] = { "output", "memory", "keep-layers", "checkpoint-every", "keep-checkpoints",
		"max-skips", "other-arithmetic", "device" };
	return ww_word_at(key, keys, WW_ARRAY_LEN(keys)) >= 0;
}

static enum ww_rc compare_recipe(const char *path, const json_t *then, const json_t *now, struct ww_err *err)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)now, key, v) {
		const json_t *old = json_object_get(then, key);
		ww_auto_str a = WW_STR_INIT(512), b = WW_STR_INIT(512);
		ww_json_add(&a, old);
		ww_json_add(&b, v);
		if (!may_change(key) && (!old || strcmp(a.p, b.p)))
			return ww_err_set(err, WW_ERR_USAGE,
				"%s: the run was begun with %s %s, not %s; choose another output for a changed recipe", path, key,
				old ? a.p : "unknown", b.p);
	}
	return WW_OK;
}

/* What the last bits of the weights depend on besides recipe and data. */
static json_t *arithmetic(const struct ww_dev *d)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "device", d->bits.device, "kernels", d->bits.kernels, "libraries",
		d->bits.libraries, "version", WW_VERSION);
}

/* Refuse an arithmetic that differs from the run's; with --other-arithmetic record the change instead. */
static enum ww_rc compare_arithmetic(
	const struct ww_dev *dev, int other, const char *path, json_t *run, struct ww_err *err)
{
	json_auto_t *now = arithmetic(dev);
	json_t *then = json_object_get(run, "arithmetic"), *v, *list;
	const char *key, *differs = NULL;
	json_object_foreach(now, key, v)
		if (!differs && !json_equal(v, json_object_get(then, key)))
			differs = key;
	if (!differs)
		return WW_OK;
	if (!other)
		return ww_err_set(err, WW_ERR_USAGE,
			"%s: the run was begun with %s \"%s\", here it is \"%s\", so the last bits of the weights would change; "
			"resume with --other-arithmetic, or choose another output",
			path, differs, ww_json_str(then, differs, "unknown"), ww_json_str(now, differs, ""));
	if (!(list = json_object_get(run, "earlier_arithmetic")))
		json_object_set_new(run, "earlier_arithmetic", list = json_array());
	json_array_append(list, then ? then : json_null());
	json_object_set(run, "arithmetic", now);
	return ww_json_write_file(NULL, path, RUN_JSON_MAX, run, err);
}

static const char *data_hash(const json_t *run) { return ww_json_str(json_object_get(run, "data"), "hash", ""); }

/* Whether something was sampled or learnt; a description alone may be replaced. */
static int has_begun(const struct ww_run_dir *r)
{
	static const char *const parts[] = { "checkpoints", "episodes" };
	struct stat st;
	char path[PATH_MAX];
	struct ww_err ignored = WW_ERR_INIT;
	for (size_t i = 0; i < WW_ARRAY_LEN(parts); i++)
		if (ww_fs_join(path, r->path, parts[i], &ignored) != WW_OK || ww_fs_is_dir(path))
			return 1;
	return stat(r->log_path, &st) == 0 && st.st_size > 0;
}

enum ww_rc ww_run_dir_describe(struct ww_run_dir *r, const json_t *values, const struct ww_dev *dev,
	int other_arithmetic, json_t *own, struct ww_err *err)
{
	char path[PATH_MAX], now[21];
	json_auto_t *v = NULL;
	WW_CHECK(ww_fs_join(path, r->path, "run.json", err));
	if (ww_fs_is_file(path) && has_begun(r)) {
		WW_CHECK(ww_json_read_file(path, RUN_JSON_MAX, &v, err));
		WW_CHECK(compare_recipe(path, json_object_get(v, "recipe"), values, err));
		if (strcmp(data_hash(v), data_hash(own)))
			return ww_err_set(err, WW_ERR_USAGE,
				"%s: the data has changed since the run began; choose another output for the new data", path);
		return compare_arithmetic(dev, other_arithmetic, path, v, err);
	}
	ww_utc_text(now);
	v = json_pack("{s:i, s:s, s:s, s:s, s:s, s:o, s:O}", "format", 1, "kind", "train", "version", WW_VERSION, "began",
		now, "device", dev->ops->name, "arithmetic", arithmetic(dev), "recipe", (json_t *)values);
	if (!v || json_object_update(v, own) < 0)
		return ww_nomem(err);
	return ww_json_write_file(NULL, path, RUN_JSON_MAX, v, err);
}

enum ww_rc ww_run_dir_open_log(struct ww_run_dir *r, int64_t bytes, struct ww_err *err)
{
	WW_CHECK(ww_fs_open_own(&r->log_fd, r->log_path, O_RDWR | O_CREAT, err));
	if (lseek(r->log_fd, 0, SEEK_END) < bytes)
		return ww_err_set(err, WW_ERR_USAGE,
			"%s is shorter than the checkpoint says; restore the file, or choose another output", r->log_path);
	if (ftruncate(r->log_fd, bytes) < 0 || lseek(r->log_fd, 0, SEEK_END) < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot cut %s", r->log_path);
	return WW_OK;
}

enum ww_rc ww_run_dir_log(struct ww_run_dir *r, const json_t *v, int64_t *bytes, struct ww_err *err)
{
	ww_auto_str line = WW_STR_INIT(LINE_MAX_BYTES);
	ww_json_add(&line, v);
	ww_str_addc(&line, '\n');
	for (size_t at = 0; at < line.len;) {
		ssize_t n = write(r->log_fd, line.p + at, line.len - at);
		if (n < 0 && errno != EINTR)
			return ww_err_errno(err, WW_ERR_IO, "cannot write %s", r->log_path);
		at += n > 0 ? (size_t)n : 0;
	}
	*bytes += (int64_t)line.len;
	return WW_OK;
}

enum ww_rc ww_run_dir_sync(struct ww_run_dir *r, struct ww_err *err)
{
	return fdatasync(r->log_fd) < 0 ? ww_err_errno(err, WW_ERR_IO, "cannot sync %s", r->log_path) : WW_OK;
}
