#include "eval/suite.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASK_MAX_BYTES = 1 << 20 };

/* Sets that come with the program, below a folder of its resources. */
static const struct {
	const char *name, *resource, *folder;
} shipped[] = { { "examples-cuda", "examples", "cuda" }, { "examples-cpu", "examples", "cpu" } };

static void release(struct ww_problem *p)
{
	free(p->id);
	ww_task_release(&p->task);
}

void ww_suite_release(struct ww_suite *s)
{
	for (size_t i = 0; i < s->n; i++)
		release(&s->problems[i]);
	free(s->problems);
	free(s->name);
	memset(s, 0, sizeof(*s));
}

static enum ww_rc add(struct ww_suite *s, const char *id, const char *path, int level, struct ww_err *err)
{
	if (!WW_GROW(s->problems, &s->cap, s->n + 1))
		return ww_nomem(err);
	struct ww_problem *p = &s->problems[s->n];
	*p = (struct ww_problem){ .level = level };
	WW_CHECK(ww_task_load(&p->task, path, err));
	s->n++;
	return (p->id = strdup(id)) ? WW_OK : ww_nomem(err);
}

/* ---- Directories ------------------------------------------------------------------------------------------------- */

/* 1: "level2"; *level gets the number. */
static int is_level(const char *name, int *level)
{
	int n = 0;
	return sscanf(name, "level%d%n", level, &n) == 1 && !name[n] && *level > 0;
}

static int is_problem(const char *path)
{
	ww_auto_str text = WW_STR_INIT(TASK_MAX_BYTES);
	struct ww_err ignored;
	return ww_fs_read(path, TASK_MAX_BYTES, &text, &ignored) == WW_OK && strstr(text.p, "class Model") &&
		strstr(text.p, "def get_inputs");
}

static enum ww_rc add_file(
	struct ww_suite *s, const char *dir, const char *name, int level, const char *prefix, struct ww_err *err)
{
	char path[PATH_MAX], id[PATH_MAX];
	size_t n = strlen(name);
	if (name[0] == '.' || n < 4 || strcmp(name + n - 3, ".py"))
		return WW_OK;
	WW_CHECK(ww_fs_join(path, dir, name, err));
	if (!ww_fs_is_file(path) || !is_problem(path))
		return WW_OK;
	snprintf(id, sizeof(id), "%s%.*s", prefix, (int)(n - 3), name);
	return add(s, id, path, level, err);
}

static enum ww_rc scan(struct ww_suite *s, const char *dir, int level, int want, struct ww_err *err);

/* A folder of a level, or the one that KernelBench's repository holds them in. */
static enum ww_rc scan_folder(struct ww_suite *s, const char *dir, const char *name, int want, struct ww_err *err)
{
	char path[PATH_MAX];
	int level;
	if (!is_level(name, &level) && strcmp(name, "KernelBench"))
		return WW_OK;
	WW_CHECK(ww_fs_join(path, dir, name, err));
	return ww_fs_is_dir(path) ? scan(s, path, strcmp(name, "KernelBench") ? level : 0, want, err) : WW_OK;
}

static enum ww_rc scan(struct ww_suite *s, const char *dir, int level, int want, struct ww_err *err)
{
	char prefix[32] = "";
	enum ww_rc rc = WW_OK;
	DIR *d = opendir(dir);
	if (!d)
		return ww_err_errno(err, WW_ERR_USAGE, "cannot read %s", dir);
	if (level)
		snprintf(prefix, sizeof(prefix), "level%d/", level);
	for (struct dirent *e; rc == WW_OK && (e = readdir(d));) {
		if (!want || level == want)
			rc = add_file(s, dir, e->d_name, level, prefix, err);
		if (rc == WW_OK && !level)
			rc = scan_folder(s, dir, e->d_name, want, err);
	}
	closedir(d);
	return rc;
}

static int number_of(const char *id)
{
	const char *name = strrchr(id, '/') ? strrchr(id, '/') + 1 : id;
	return isdigit((unsigned char)*name) ? (int)strtol(name, NULL, 10) : -1;
}

int ww_problem_number(const struct ww_problem *p) { return number_of(p->id); }

static int in_order(const void *a, const void *b)
{
	const struct ww_problem *x = a, *y = b;
	int m = number_of(x->id), n = number_of(y->id);
	if (x->level != y->level)
		return x->level < y->level ? -1 : 1;
	return m != n ? (m < n ? -1 : 1) : strcmp(x->id, y->id);
}

static enum ww_rc open_dir(struct ww_suite *s, const char *dir, int want, struct ww_err *err)
{
	const char *name = strrchr(dir, '/') ? strrchr(dir, '/') + 1 : dir;
	int level = 0;
	if (!is_level(name, &level))
		level = 0;
	WW_CHECK(scan(s, dir, level, want, err));
	if (!s->n && want)
		return ww_err_set(err, WW_ERR_USAGE, "%s has no problem of level %d (level%d/*.py)", dir, want, want);
	if (!s->n)
		return ww_err_set(err, WW_ERR_USAGE,
			"%s holds no problem: a .py file with class Model and get_inputs(), or KernelBench's level1, level2, ...",
			dir);
	qsort(s->problems, s->n, sizeof(*s->problems), in_order);
	return WW_OK;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static enum ww_rc unknown(const char *which, struct ww_err *err)
{
	ww_auto_str names = WW_STR_INIT(512);
	for (size_t i = 0; i < WW_ARRAY_LEN(shipped); i++)
		ww_str_addf(&names, "%s%s", i ? ", " : "", shipped[i].name);
	return ww_err_set(err, WW_ERR_USAGE,
		"there is no suite \"%.200s\": give a directory, a file of tasks, or one of %s", which, names.p);
}

static enum ww_rc open_shipped(struct ww_suite *s, const char *which, int level, struct ww_err *err)
{
	char root[PATH_MAX], dir[PATH_MAX];
	for (size_t i = 0; i < WW_ARRAY_LEN(shipped); i++)
		if (!strcmp(which, shipped[i].name)) {
			WW_CHECK(ww_fs_resource(shipped[i].resource, root, err));
			WW_CHECK(ww_fs_join(dir, root, shipped[i].folder, err));
			return open_dir(s, dir, level, err);
		}
	return unknown(which, err);
}

static enum ww_rc open_one(struct ww_suite *s, const char *path, struct ww_err *err)
{
	char id[NAME_MAX + 1];
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	size_t n = strlen(name);
	if (n < 4 || strcmp(name + n - 3, ".py"))
		return ww_err_set(err, WW_ERR_USAGE, "%s is no task (.py) and no set of tasks", path);
	snprintf(id, sizeof(id), "%.*s", (int)(n - 3), name);
	return add(s, id, path, 0, err);
}

static void set_hash(struct ww_suite *s)
{
	ww_auto_str all = WW_STR_INIT(256 << 20);
	for (size_t i = 0; i < s->n; i++)
		ww_str_addf(&all, "%s %s\n", s->problems[i].id, s->problems[i].task.id);
	ww_hash_hex(all.p, all.len, s->hash);
}

static enum ww_rc open_any(struct ww_suite *s, const char *path, int level, struct ww_err *err)
{
	if (ww_fs_is_dir(path))
		return open_dir(s, path, level, err);
	return ww_fs_is_file(path) ? open_one(s, path, err) : open_shipped(s, path, level, err);
}

enum ww_rc ww_suite_open(struct ww_suite *s, const char *which, int level, struct ww_err *err)
{
	char path[PATH_MAX];
	memset(s, 0, sizeof(*s));
	if (snprintf(path, sizeof(path), "%s", which) >= PATH_MAX)
		return ww_err_set(err, WW_ERR_USAGE, "path too long: %.200s", which);
	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = 0;
	if (!(s->name = strdup(path)))
		return ww_nomem(err);
	enum ww_rc rc = open_any(s, path, level, err);
	if (rc == WW_OK)
		set_hash(s);
	else
		ww_suite_release(s);
	return rc;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

static void keep(struct ww_suite *s, const char *wanted)
{
	size_t n = 0;
	for (size_t i = 0; i < s->n; i++) {
		if (wanted[i])
			s->problems[n++] = s->problems[i];
		else
			release(&s->problems[i]);
	}
	s->n = n;
}

enum ww_rc ww_suite_slice(struct ww_suite *s, int i, int n, struct ww_err *err)
{
	ww_auto_free char *wanted = NULL;
	WW_CHECK(WW_NEW(wanted, s->n, err));
	for (size_t k = (size_t)i - 1; k < s->n; k += (size_t)n)
		wanted[k] = 1;
	keep(s, wanted);
	return WW_OK;
}

enum ww_rc ww_suite_sample(struct ww_suite *s, size_t n, uint64_t seed, struct ww_err *err)
{
	struct ww_rng rng;
	ww_auto_free size_t *order = NULL;
	ww_auto_free char *wanted = NULL;
	WW_CHECK(WW_NEW(order, s->n, err));
	WW_CHECK(WW_NEW(wanted, s->n, err));
	ww_rng_init(&rng, seed, 0);
	for (size_t i = 0; i < s->n; i++)
		order[i] = i;
	for (size_t i = 0; i < s->n && i < n; i++) { /* Fisher and Yates */
		size_t k = i + (size_t)ww_rng_below(&rng, s->n - i), o = order[i];
		order[i] = order[k];
		order[k] = o;
		wanted[order[i]] = 1;
	}
	keep(s, wanted);
	return WW_OK;
}

/* ---- Solutions of others ----------------------------------------------------------------------------------------- */

static int is_there(const char *path) { return ww_fs_is_file(path) || ww_fs_is_dir(path); }

static int found(char *path, const char *fmt, ...) WW_PRINTF(2, 3);
static int found(char *path, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(path, PATH_MAX, fmt, ap);
	va_end(ap);
	return n > 0 && n < PATH_MAX && is_there(path);
}

/* The first name, in order, of a directory that begins with `prefix` and ends with `suffix`. */
static int first_in(const char *dir, const char *prefix, const char *suffix, char *path)
{
	char best[NAME_MAX + 1] = "";
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));) {
		size_t n = strlen(e->d_name), k = strlen(suffix);
		if (!strncmp(e->d_name, prefix, strlen(prefix)) && n >= k && !strcmp(e->d_name + n - k, suffix) &&
			(!*best || strverscmp(e->d_name, best) < 0))
			snprintf(best, sizeof(best), "%s", e->d_name);
	}
	if (d)
		closedir(d);
	return *best && found(path, "%s/%s", dir, best);
}

static int by_number(const char *dir, const struct ww_problem *p, char *path)
{
	char level[PATH_MAX], prefix[64];
	int number = ww_problem_number(p), l = p->level ? p->level : 1;
	if (number < 0)
		return 0;
	snprintf(prefix, sizeof(prefix), "level_%d_problem_%d_sample_", l, number);
	if (first_in(dir, prefix, "_kernel.py", path))
		return 1;
	snprintf(prefix, sizeof(prefix), "%d_", number);
	if ((size_t)snprintf(level, sizeof(level), "%s/level%d", dir, l) >= sizeof(level))
		return 0;
	return found(path, "%s/%d", level, number) || first_in(level, prefix, "", path) ||
		(!p->level && first_in(dir, prefix, "", path));
}

int ww_suite_solution(const char *dir, const struct ww_problem *p, char *path)
{
	return found(path, "%s/problems/%s/solution", dir, p->id) || found(path, "%s/%s/solution", dir, p->id) ||
		found(path, "%s/%s", dir, p->id) || found(path, "%s/%s.py", dir, p->id) || by_number(dir, p, path);
}
