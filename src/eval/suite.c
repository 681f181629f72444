#include "eval/suite.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "task/set.h"
#include "task/shipped.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* NULL: out of memory.  The caller fills the task. */
static struct ww_problem *add(struct ww_suite *s, const char *id, int level, struct ww_err *err)
{
	if (!WW_GROW(s->problems, &s->cap, s->n + 1) || !(s->problems[s->n] = (struct ww_problem){ .id = strdup(id) }).id) {
		(void)ww_nomem(err);
		return NULL;
	}
	s->problems[s->n].level = level;
	return &s->problems[s->n++];
}

/* ---- Sets -------------------------------------------------------------------------------------------------------- */

static int number_of(const char *id)
{
	const char *name = strrchr(id, '/') ? strrchr(id, '/') + 1 : id;
	return isdigit((unsigned char)*name) ? (int)strtol(name, NULL, 10) : -1;
}

/* An id of a set may be any text: one that is no plain path is replaced by the task's hash. */
void ww_problem_dir(const struct ww_problem *p, char out[WW_PROBLEM_DIR])
{
	int plain = strlen(p->id) < WW_PROBLEM_DIR && *p->id != '/' && *p->id && p->id[strlen(p->id) - 1] != '/';
	for (const char *c = p->id; plain && *c; c++)
		plain = (isalnum((unsigned char)*c) || strchr("._-+/", *c)) && !(*c == '.' && (c == p->id || c[-1] == '/')) &&
			!(*c == '/' && c[1] == '/');
	snprintf(out, WW_PROBLEM_DIR, "%s", plain ? p->id : p->task.id);
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

/* 1: "level2"; *level gets the number. */
static int is_level(const char *name, int *level)
{
	int n = 0;
	return sscanf(name, "level%d%n", level, &n) == 1 && !name[n] && *level > 0;
}

/* A row of a directory is named from its level on: KernelBench's repository holds the levels in a folder of its own. */
static const char *short_id(const struct ww_set_row *row)
{
	char level[32];
	snprintf(level, sizeof(level), "level%d/", row->level);
	const char *at = row->path && row->level ? strstr(row->id, level) : NULL;
	return at ? at : row->id;
}

static int is_problem(const struct ww_set_row *row)
{
	return !row->path || (strstr(row->code, "class Model") && strstr(row->code, "def get_inputs"));
}

/* What is asked for: 0 and NULL: all. */
struct wanted {
	int level;
	const char *split;
};

static int is_wanted(const struct wanted *w, int level, const struct ww_set_row *row)
{
	return (!w->level || level == w->level) && (!w->split || !strcmp(ww_json_str(row->fields, "split", ""), w->split));
}

/* dir_level: what a directory that is itself a level says of its files. */
static enum ww_rc add_row(struct ww_suite *s, const struct ww_set *set, const struct ww_set_row *row, int dir_level,
	const struct wanted *want, struct ww_err *err)
{
	char id[PATH_MAX];
	int level = row->level ? row->level : dir_level;
	if (!is_wanted(want, level, row) || !is_problem(row))
		return WW_OK;
	if (level && !row->level)
		snprintf(id, sizeof(id), "level%d/%s", level, row->id);
	else
		snprintf(id, sizeof(id), "%s", short_id(row));
	struct ww_problem *p = add(s, id, level, err);
	return p ? ww_set_task(set, row, &p->task, err) : err->rc;
}

/* Drop the files of a KernelBench repository that are in none of its levels. */
static void drop_outside_levels(struct ww_suite *s)
{
	size_t n = 0, with = 0;
	for (size_t i = 0; i < s->n; i++)
		with += s->problems[i].level > 0;
	for (size_t i = 0; with && i < s->n; i++)
		if (s->problems[i].level)
			s->problems[n++] = s->problems[i];
		else
			release(&s->problems[i]);
	s->n = with ? n : s->n;
}

static enum ww_rc read_set(struct ww_suite *s, const char *path, const struct wanted *want, struct ww_err *err)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	const struct ww_set_row *row;
	struct ww_set *set;
	int level = 0;
	enum ww_rc rc;
	if (!is_level(name, &level))
		level = 0;
	WW_CHECK(ww_set_open(&set, path, &(struct ww_set_opts){ .interrupted = NULL }, err));
	while ((rc = ww_set_next(set, &row, err)) == WW_OK && row)
		WW_TRY(add_row(s, set, row, level, want, err));
out:
	ww_set_close(set);
	return rc;
}

static enum ww_rc open_set(struct ww_suite *s, const char *path, const struct wanted *want, struct ww_err *err)
{
	WW_CHECK(read_set(s, path, want, err));
	if (ww_fs_is_dir(path))
		drop_outside_levels(s);
	if (!s->n && want->level)
		return ww_err_set(
			err, WW_ERR_USAGE, "%s has no problem of level %d (level%d/*.py)", path, want->level, want->level);
	if (!s->n && want->split)
		return ww_err_set(err, WW_ERR_USAGE, "%s has no task of the split \"%s\"", path, want->split);
	if (!s->n)
		return ww_err_set(err, WW_ERR_USAGE, "%s holds no problem: a module with class Model and get_inputs()", path);
	if (ww_fs_is_dir(path))
		qsort(s->problems, s->n, sizeof(*s->problems), in_order);
	return WW_OK;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static enum ww_rc unknown(const char *which, struct ww_err *err)
{
	ww_auto_str names = WW_STR_INIT(512);
	ww_shipped_names(&names);
	return ww_err_set(err, WW_ERR_USAGE,
		"there is no suite \"%.200s\": give a directory, a file of tasks, or one of %s", which, names.p);
}

/* FILE.py, or SET#ID. */
static enum ww_rc open_one(struct ww_suite *s, const char *path, struct ww_err *err)
{
	struct ww_problem *p = add(s, "", 0, err);
	if (!p)
		return err->rc;
	WW_CHECK(ww_task_load(&p->task, path, err));
	free(p->id);
	return (p->id = strdup(p->task.name)) ? WW_OK : ww_nomem(err);
}

static int is_python(const char *path)
{
	size_t n = strlen(path);
	return n > 3 && !strcmp(path + n - 3, ".py");
}

/* Results and folders are found by id, so ids must differ. */
static enum ww_rc check_ids(const struct ww_suite *s, struct ww_err *err)
{
	json_auto_t *seen = json_object();
	for (size_t i = 0; i < s->n; i++) {
		if (json_object_get(seen, s->problems[i].id))
			return ww_err_set(err, WW_ERR_USAGE, "%s: two problems are called \"%s\"", s->name, s->problems[i].id);
		if (json_object_set_new(seen, s->problems[i].id, json_true()))
			return ww_err_set(err, WW_ERR_USAGE, "%s: the name of problem %zu is not UTF-8", s->name, i + 1);
	}
	return WW_OK;
}

static void set_hash(struct ww_suite *s)
{
	ww_auto_str all = WW_STR_INIT(256 << 20);
	for (size_t i = 0; i < s->n; i++)
		ww_str_addf(&all, "%s %s\n", s->problems[i].id, s->problems[i].task.id);
	ww_hash_hex(all.p, all.len, s->hash);
}

static enum ww_rc open_any(struct ww_suite *s, const char *path, const struct wanted *want, struct ww_err *err)
{
	char set[PATH_MAX];
	if (ww_shipped_find(path, set))
		return open_set(s, set, want, err);
	if (ww_fs_is_dir(path) || (ww_fs_is_file(path) && !is_python(path)))
		return open_set(s, path, want, err);
	return ww_fs_is_file(path) || ww_set_split(path, set) ? open_one(s, path, err) : unknown(path, err);
}

enum ww_rc ww_suite_open(struct ww_suite *s, const char *which, int level, const char *split, struct ww_err *err)
{
	char path[PATH_MAX];
	memset(s, 0, sizeof(*s));
	if (snprintf(path, sizeof(path), "%s", which) >= PATH_MAX)
		return ww_err_set(err, WW_ERR_USAGE, "path too long: %.200s", which);
	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = 0;
	if (!(s->name = strdup(path)))
		return ww_nomem(err);
	enum ww_rc rc = open_any(s, path, &(struct wanted){ level, split }, err);
	if (rc == WW_OK)
		rc = check_ids(s, err);
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

void ww_suite_sample(struct ww_suite *s, size_t n, uint64_t seed)
{
	struct ww_rng rng;
	ww_rng_init(&rng, seed, 0);
	for (size_t i = 0; i < s->n && i < n; i++) { /* Fisher and Yates */
		size_t k = i + (size_t)ww_rng_below(&rng, s->n - i);
		struct ww_problem p = s->problems[i];
		s->problems[i] = s->problems[k];
		s->problems[k] = p;
	}
	for (; s->n > n; s->n--)
		release(&s->problems[s->n - 1]);
}

/* ---- Given solutions (--solutions) ------------------------------------------------------------------------------- */

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
