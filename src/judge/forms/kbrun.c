/* kbrun.c - see kbrun.h. */
#include "judge/forms/kbrun.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 1 << 20 };

struct entry {
	int level, problem, sample;
};

static int parse(const char *name, struct entry *e)
{
	int used = 0;
	return sscanf(name, "level_%d_problem_%d_sample_%d_kernel.py%n", &e->level, &e->problem, &e->sample, &used) == 3 &&
		used > 0 && !name[used];
}

static int in_order(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	if (x->level != y->level)
		return x->level < y->level ? -1 : 1;
	if (x->problem != y->problem)
		return x->problem < y->problem ? -1 : 1;
	return (x->sample > y->sample) - (x->sample < y->sample);
}

int ww_kbrun_is(const char *dir)
{
	struct entry x;
	int found = 0;
	DIR *d = opendir(dir);
	for (struct dirent *e; !found && d && (e = readdir(d));)
		found = parse(e->d_name, &x);
	if (d)
		closedir(d);
	return found;
}

static enum ww_rc list(const char *run, struct entry **out, int *n, struct ww_err *err)
{
	struct entry *all = NULL, x;
	size_t cap = 0;
	DIR *d = opendir(run);
	*n = 0;
	if (!d)
		return ww_err_errno(err, WW_ERR_USAGE, "cannot read %s", run);
	for (struct dirent *e; (e = readdir(d)) && *n < MAX_ENTRIES;) {
		if (!parse(e->d_name, &x))
			continue;
		if (!WW_GROW(all, &cap, *n + 1)) {
			free(all);
			closedir(d);
			return ww_nomem(err);
		}
		all[(*n)++] = x;
	}
	closedir(d);
	if (*n)
		qsort(all, (size_t)*n, sizeof(*all), in_order);
	*out = all;
	return WW_OK;
}

/* The file P_*.py of a directory; 0 where there is none. */
static int find_problem(const char *dir, int problem, char path[PATH_MAX])
{
	struct ww_err ignored = WW_ERR_INIT;
	char prefix[32];
	int found = 0;
	DIR *d = opendir(dir);
	snprintf(prefix, sizeof(prefix), "%d_", problem);
	for (struct dirent *e; !found && d && (e = readdir(d));) {
		const char *dot = strrchr(e->d_name, '.');
		found = !strncmp(e->d_name, prefix, strlen(prefix)) && dot && !strcmp(dot, ".py") &&
			ww_fs_join(path, dir, e->d_name, &ignored) == WW_OK;
	}
	if (d)
		closedir(d);
	return found;
}

static void find_task(const char *tasks, const struct entry *e, char path[PATH_MAX])
{
	char level[PATH_MAX];
	if ((size_t)snprintf(level, sizeof(level), "%s/level%d", tasks, e->level) < sizeof(level) &&
		find_problem(level, e->problem, path))
		return;
	if (!find_problem(tasks, e->problem, path))
		snprintf(path, PATH_MAX, "%s/level%d/%d_*.py", tasks, e->level,
			e->problem); /* the job will say that it is not there */
}

static enum ww_rc add_line(
	const char *tasks, const char *run, const struct entry *e, struct ww_str *lines, struct ww_err *err)
{
	char id[96], name[128], task[PATH_MAX], solution[PATH_MAX];
	snprintf(id, sizeof(id), "level_%d_problem_%d_sample_%d", e->level, e->problem, e->sample);
	snprintf(name, sizeof(name), "%s_kernel.py", id);
	WW_CHECK(ww_fs_join(solution, run, name, err));
	find_task(tasks, e, task);
	json_auto_t *o = json_pack("{s:s, s:s, s:s}", "id", id, "task", task, "solution", solution);
	if (!o)
		return ww_err_set(err, WW_ERR_USAGE, "%s: the path is not UTF-8", solution);
	ww_json_add(lines, o);
	ww_str_addc(lines, '\n');
	return lines->cut
		? ww_err_set(err, WW_ERR_LIMIT,
			  "%s holds too many kernels for one batch; judge its levels in directories of their own", run)
		: WW_OK;
}

enum ww_rc ww_kbrun_jobs(const char *tasks, const char *run, struct ww_str *lines, int *n, struct ww_err *err)
{
	struct entry *all = NULL;
	enum ww_rc rc = list(run, &all, n, err);
	for (int i = 0; rc == WW_OK && i < *n; i++)
		rc = add_line(tasks, run, &all[i], lines, err);
	free(all);
	return rc;
}
