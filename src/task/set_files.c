#include "task/set_files.h"
#include "base/fs.h"
#include "base/mem.h"
#include "task/task.h"

#include <ctype.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH_MAX = 6 };

/* "level3/12_name.py" anywhere in the relative path. */
static void read_layout(struct ww_set_file *f)
{
	for (const char *p = f->rel; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
		char slash;
		int level, problem;
		if (sscanf(p, "level%4d%c%6d_", &level, &slash, &problem) == 3 && slash == '/' && level > 0) {
			f->level = level;
			f->problem = problem;
		}
	}
}

static int by_order(const void *a, const void *b)
{
	const struct ww_set_file *x = a, *y = b;
	if (x->level != y->level)
		return x->level < y->level ? -1 : 1;
	if (x->problem != y->problem)
		return x->problem < y->problem ? -1 : 1;
	return strcmp(x->rel, y->rel);
}

static enum ww_rc add_file(struct ww_set_files *d, const char *dir, const char *path, struct ww_err *err)
{
	if (!WW_GROW(d->f, &d->cap, d->n + 1))
		return ww_nomem(err);
	struct ww_set_file *f = &d->f[d->n];
	*f = (struct ww_set_file){ .path = strdup(path) };
	if (!f->path)
		return ww_nomem(err);
	d->n++;
	f->rel = f->path + strlen(dir);
	f->rel += strspn(f->rel, "/");
	read_layout(f);
	return WW_OK;
}

static int is_hidden(const FTSENT *e)
{
	return e->fts_level > 0 && (*e->fts_name == '.' || !strcmp(e->fts_name, "__pycache__"));
}

static int is_python(const FTSENT *e)
{
	return (e->fts_info == FTS_F || e->fts_info == FTS_SL) && e->fts_namelen > 3 &&
		!strcmp(e->fts_name + e->fts_namelen - 3, ".py") && strcmp(e->fts_name, "__init__.py");
}

/* A folder that `synth` wrote has its set in one file. */
static enum ww_rc no_files(const char *dir, struct ww_err *err)
{
	static const char *const names[] = { "tasks.jsonl", "tasks.jsonl.zst" };
	char path[PATH_MAX];
	for (size_t i = 0; i < WW_ARRAY_LEN(names); i++)
		if (snprintf(path, sizeof(path), "%s/%s", dir, names[i]) < PATH_MAX && !access(path, R_OK))
			return ww_err_set(err, WW_ERR_USAGE, "%s holds no .py file; its task set is %s", dir, path);
	return ww_err_set(err, WW_ERR_USAGE, "%s holds no .py file", dir);
}

enum ww_rc ww_set_files_init(struct ww_set_files *d, const char *dir, struct ww_err *err)
{
	char *const paths[] = { (char *)(uintptr_t)dir, NULL };
	enum ww_rc rc = WW_OK;
	memset(d, 0, sizeof(*d));
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
	if (!fts)
		return ww_err_errno(err, WW_ERR_USAGE, "cannot read the directory %s", dir);
	for (FTSENT *e; rc == WW_OK && (e = fts_read(fts));) {
		if (e->fts_info == FTS_D && (is_hidden(e) || e->fts_level > DEPTH_MAX))
			fts_set(fts, e, FTS_SKIP);
		else if (!is_hidden(e) && is_python(e))
			rc = add_file(d, dir, e->fts_path, err);
	}
	fts_close(fts);
	if (rc == WW_OK && !d->n)
		rc = no_files(dir, err);
	if (rc == WW_OK)
		qsort(d->f, d->n, sizeof(*d->f), by_order);
	return rc;
}

void ww_set_files_release(struct ww_set_files *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->f[i].path);
	free(d->f);
	memset(d, 0, sizeof(*d));
}

static json_t *columns_of(const struct ww_set_file *f, const struct ww_str *text)
{
	json_t *fields = json_pack("{s:s%, s:s%}", "id", f->rel, strlen(f->rel) - 3, "code", text->p, text->len);
	if (fields && f->level) {
		json_object_set_new(fields, "level", json_integer(f->level));
		json_object_set_new(fields, "problem", json_integer(f->problem));
	}
	return fields;
}

enum ww_rc ww_set_files_next(
	struct ww_set_files *d, json_t **fields, int64_t *number, const char **path, struct ww_err *err)
{
	*fields = NULL;
	while (d->at < d->n) {
		ww_auto_str text = WW_STR_INIT(WW_TASK_MAX_BYTES + 1);
		const struct ww_set_file *f = &d->f[d->at++];
		*number = ++d->given;
		*path = f->path;
		enum ww_rc rc = ww_fs_read(f->path, WW_TASK_MAX_BYTES, &text, err);
		if (rc != WW_OK) {
			err->rc = WW_ERR_USAGE; /* of this row */
			return err->rc;
		}
		if (!strstr(text.p, "Model") && !strstr(text.p, "get_inputs")) {
			d->given--; /* a module */
			continue;
		}
		*fields = columns_of(f, &text);
		return *fields ? WW_OK : ww_err_set(err, WW_ERR_USAGE, "%s is not UTF-8 text", f->rel);
	}
	*number = 0;
	return WW_OK;
}
