#include "agent/rundir.h"

#include "agent/parallel.h"
#include "base/fs.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void default_path(char *out, const struct ww_task *task, const char *target)
{
	char stamp[32];
	time_t now = time(NULL);
	struct tm tm;
	localtime_r(&now, &tm);
	strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &tm);
	snprintf(out, PATH_MAX, "runs/%.200s-%s-%s", task->name, target, stamp);
}

/* Leftovers of a run that was killed before its record began. */
static int is_of_a_run(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..") || !strncmp(name, "task.py", 7) ||
		!strncmp(name, "episode.jsonl.new-", 18) || !strcmp(name, "episodes");
}

static enum ww_rc check_empty(const char *path, struct ww_err *err)
{
	DIR *dir = opendir(path);
	if (!dir)
		return ww_err_errno(err, WW_ERR_IO, "cannot read directory %s", path);
	enum ww_rc rc = WW_OK;
	for (struct dirent *e; rc == WW_OK && (e = readdir(dir));)
		if (!is_of_a_run(e->d_name))
			rc = ww_err_set(err, WW_ERR_USAGE, "%s is not empty and holds no run (%s is in it); choose another -o",
				path, e->d_name);
	closedir(dir);
	return rc;
}

static enum ww_rc check_past(struct ww_rundir *d, const struct ww_task *task, const char *policy, struct ww_err *err)
{
	WW_CHECK((enum ww_rc)ww_episode_read(d->episode, &d->past, err));
	d->has_past = 1;
	if (strcmp(d->past.header.task_id, task->id))
		return ww_err_set(err, WW_ERR_USAGE, "%s holds a run of another task (%s); choose another -o", d->path,
			d->past.header.task_path);
	if (!d->past.ended && strcmp(d->past.header.policy, policy))
		return ww_err_set(err, WW_ERR_USAGE, "%s holds a run with another policy (%s, not %s); choose another -o",
			d->path, d->past.header.policy, policy);
	return WW_OK;
}

/* A run of one episode is not resumed as one of several, nor one of several as one of another number. */
static enum ww_rc check_parallel(const struct ww_rundir *d, int parallel, struct ww_err *err)
{
	char single[PATH_MAX];
	int n = ww_agent_parallel_count(d->path);
	enum ww_rc rc = ww_fs_join(single, d->path, "episode.jsonl", err);
	if (rc == WW_OK && parallel > 1 && ww_fs_is_file(single))
		rc = ww_err_set(
			err, WW_ERR_USAGE, "%s holds a run of one episode; leave out --parallel, or choose another -o", d->path);
	if (rc == WW_OK && (parallel > 1 ? n > parallel : n > 0))
		rc = ww_err_set(err, WW_ERR_USAGE, "%s holds a run of %d episodes; give --parallel %d, or choose another -o",
			d->path, n, n);
	return rc;
}

enum ww_rc ww_rundir_open(struct ww_rundir *d, const char *dir, const struct ww_task *task, const char *target,
	const char *policy, int parallel, struct ww_err *err)
{
	char copy[PATH_MAX];
	enum ww_rc rc;
	memset(d, 0, sizeof(*d));
	if (dir && strlen(dir) >= sizeof(d->path))
		return ww_err_set(err, WW_ERR_USAGE, "path too long: %s", dir);
	if (dir)
		strcpy(d->path, dir);
	else
		default_path(d->path, task, target);
	WW_TRY(ww_fs_join(d->episode, d->path, parallel > 1 ? "episodes/1/episode.jsonl" : "episode.jsonl", err));
	WW_TRY(ww_fs_join(d->solution, d->path, "solution", err));
	WW_TRY(ww_fs_join(d->exports, d->path, "exports", err));
	WW_TRY(ww_fs_join(copy, d->path, "task.py", err));
	d->made = !ww_fs_is_dir(d->path);
	WW_TRY(ww_fs_mkdirs(d->path, err));
	WW_TRY(check_parallel(d, parallel, err));
	WW_TRY(ww_fs_is_file(d->episode) ? check_past(d, task, policy, err) : check_empty(d->path, err));
	d->made_copy = !ww_fs_is_file(copy);
	WW_TRY(ww_fs_write(copy, task->source, task->source_bytes, err));
	WW_TRY(ww_task_write_files(task, d->path, err));
out:
	if (rc != WW_OK)
		ww_rundir_release(d);
	return rc;
}

void ww_rundir_undo(struct ww_rundir *d)
{
	char copy[PATH_MAX];
	struct ww_err ignored;
	if (ww_fs_is_file(d->episode) || ww_fs_join(copy, d->path, "task.py", &ignored) != WW_OK)
		return;
	if (d->made_copy)
		unlink(copy);
	if (d->made)
		rmdir(d->path);
}

void ww_rundir_release(struct ww_rundir *d)
{
	if (d->has_past)
		ww_episode_release(&d->past);
	d->has_past = 0;
}
