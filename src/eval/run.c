#include "eval/run.h"

#include "base/fs.h"
#include "base/json.h"

#include <dirent.h>
#include <string.h>
#include <stdlib.h>

enum { ABOUT_MAX = 64 << 20 };

static enum ww_rc read_about(const char *dir, json_t **out, struct ww_err *err)
{
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, dir, "run.json", err));
	WW_CHECK(ww_json_read_file(path, ABOUT_MAX, out, err));
	if (!strcmp(ww_json_str(*out, "kind", ""), "eval"))
		return WW_OK;
	json_decref(*out);
	*out = NULL;
	return ww_err_set(err, WW_ERR_USAGE, "%s does not describe an evaluation", path);
}

int ww_eval_run_is(const char *dir)
{
	struct ww_err ignored;
	json_auto_t *about = NULL;
	return read_about(dir, &about, &ignored) == WW_OK;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static int take_line(struct ww_eval_run *r, json_t *line)
{
	const char *id = ww_json_str(line, "id", NULL);
	json_t *had = id ? json_object_get(r->lines, id) : NULL;
	if (!id)
		return 0;
	if (had && !json_object_get(line, "outcome")) /* a line added later, with members of its own only */
		return !json_object_update(had, line);
	return !json_object_set(r->lines, id, line);
}

static int each_line(void *ctx, const char *text, size_t n)
{
	struct ww_err ignored = WW_ERR_INIT;
	json_auto_t *line = NULL;
	return ww_json_parse(text, n, "a result", &line, &ignored) == WW_OK && json_is_object(line) && take_line(ctx, line);
}

const json_t *ww_eval_run_line(const struct ww_eval_run *r, const char *id) { return json_object_get(r->lines, id); }

int ww_eval_run_has(const struct ww_eval_run *r, const char *id, const char *task_id)
{
	const json_t *line = ww_eval_run_line(r, id);
	return line && strcmp(ww_json_str(line, "outcome", "error"), "error") &&
		!strcmp(ww_json_str(line, "task", ""), task_id);
}

enum ww_rc ww_eval_run_add(struct ww_eval_run *r, json_t *line, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(WW_LINES_MAX_BYTES);
	json_auto_t *mine = line;
	ww_json_add(&text, mine);
	if (!mine || text.cut)
		return ww_nomem(err);
	WW_CHECK(ww_lines_append(r->file, text.p, text.len, err));
	return take_line(r, mine) ? WW_OK : ww_nomem(err);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static enum ww_rc begin(struct ww_eval_run *r, const char *dir, struct ww_err *err)
{
	memset(r, 0, sizeof(*r));
	if (strlen(dir) >= sizeof(r->path))
		return ww_err_set(err, WW_ERR_USAGE, "path too long: %.200s", dir);
	strcpy(r->path, dir);
	return (r->lines = json_object()) ? WW_OK : ww_nomem(err);
}

static enum ww_rc check_empty(const char *dir, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	DIR *d = opendir(dir);
	if (!d)
		return ww_err_errno(err, WW_ERR_IO, "cannot read directory %s", dir);
	for (struct dirent *e; rc == WW_OK && (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			rc = ww_err_set(err, WW_ERR_USAGE,
				"%s is not empty and holds no evaluation (%s is in it); choose another -o", dir, e->d_name);
	closedir(d);
	return rc;
}

/* As it was typed: 0.3, where JSON has 0.29999999999999999. */
static void add_value(const json_t *v, struct ww_str *out)
{
	if (json_is_real(v))
		ww_str_addf(out, "%.10g", json_real_value(v));
	else
		ww_json_add(out, v ? v : json_null());
}

/* The first member of two configurations that differs, as an error; `what` says what follows from it. */
static enum ww_rc same(const json_t *a, const json_t *b, const char *what, struct ww_err *err)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)(uintptr_t)b, key, v) {
		const json_t *was = json_object_get(a, key);
		if (was && json_equal((json_t *)(uintptr_t)was, v))
			continue;
		ww_auto_str old = WW_STR_INIT(200), new = WW_STR_INIT(200);
		add_value(was, &old);
		add_value(v, &new);
		return ww_err_set(err, WW_ERR_USAGE, "%s: %s is %.150s, not %.150s", what, key, old.p, new.p);
	}
	return WW_OK;
}

static enum ww_rc write_about(const struct ww_eval_run *r, struct ww_err *err)
{
	return ww_json_write_file(r->path, "run.json", ABOUT_MAX, r->about, err);
}

static enum ww_rc open_lines(struct ww_eval_run *r, int write, struct ww_err *err)
{
	struct ww_lines_reader reader = { .each = each_line, .ctx = r };
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, r->path, "results.jsonl", err));
	if (write)
		return ww_lines_open(&r->file, path, "another process", &reader, err);
	return ww_fs_is_file(path) ? ww_lines_read(path, &reader, err) : WW_OK;
}

static enum ww_rc open_or_make(struct ww_eval_run *r, const json_t *about, struct ww_err *err)
{
	char path[PATH_MAX], what[PATH_MAX + 64];
	WW_CHECK(ww_fs_join(path, r->path, "run.json", err));
	r->made = !ww_fs_is_file(path);
	if (r->made) {
		WW_CHECK(ww_fs_mkdirs(r->path, err));
		WW_CHECK(check_empty(r->path, err));
		r->about = json_incref((json_t *)(uintptr_t)about);
		return write_about(r, err);
	}
	WW_CHECK(read_about(r->path, &r->about, err));
	snprintf(what, sizeof(what), "%s holds another evaluation; choose another -o", r->path);
	WW_CHECK(same(json_object_get(r->about, "config"), json_object_get(about, "config"), what, err));
	snprintf(what, sizeof(what), "%s was begun on another kind of machine", r->path);
	return same(json_object_get(r->about, "machine"), json_object_get(about, "machine"), what, err);
}

enum ww_rc ww_eval_run_open(struct ww_eval_run *r, const char *dir, const json_t *about, struct ww_err *err)
{
	enum ww_rc rc = begin(r, dir, err);
	if (rc == WW_OK)
		rc = open_or_make(r, about, err);
	if (rc == WW_OK)
		rc = open_lines(r, 1, err);
	if (rc != WW_OK)
		ww_eval_run_release(r);
	return rc;
}

enum ww_rc ww_eval_run_read(struct ww_eval_run *r, const char *dir, struct ww_err *err)
{
	enum ww_rc rc = begin(r, dir, err);
	if (rc == WW_OK)
		rc = read_about(dir, &r->about, err);
	if (rc == WW_OK)
		rc = open_lines(r, 0, err);
	if (rc != WW_OK)
		ww_eval_run_release(r);
	return rc;
}

void ww_eval_run_release(struct ww_eval_run *r)
{
	json_decref(r->about);
	json_decref(r->lines);
	ww_lines_close(r->file);
	r->about = r->lines = NULL;
	r->file = NULL;
}

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

/* What slices of one evaluation have in common: all but which part of the suite they are. */
static json_t *common(const json_t *about)
{
	json_t *o = json_deep_copy(json_object_get(about, "config"));
	json_object_del(o, "part");
	return o;
}

static enum ww_rc check_same(const struct ww_eval_run *first, const struct ww_eval_run *r, struct ww_err *err)
{
	char what[PATH_MAX * 2 + 64];
	json_auto_t *a = common(first->about), *b = common(r->about);
	snprintf(what, sizeof(what), "%s and %s are not parts of one evaluation", first->path, r->path);
	WW_CHECK(same(a, b, what, err));
	snprintf(what, sizeof(what), "%s and %s were not measured on the same kind of machine", first->path, r->path);
	return same(json_object_get(first->about, "machine"), json_object_get(r->about, "machine"), what, err);
}

static enum ww_rc take_run(
	struct ww_eval_run *to, const struct ww_eval_run *r, json_t *ids, json_t *seen, struct ww_err *err)
{
	const json_t *id;
	size_t i;
	json_array_foreach(json_object_get(r->about, "problems"), i, id) {
		const char *name = ww_json_str(id, "id", "");
		json_t *line = json_object_get(r->lines, name);
		if (line && !json_object_get(to->lines, name))
			WW_CHECK(ww_eval_run_add(to, json_incref(line), err));
		if (!json_object_get(seen, name))
			json_array_append(ids, (json_t *)(uintptr_t)id);
		json_object_set_new(seen, name, json_true());
	}
	return WW_OK;
}

static enum ww_rc merge_into(struct ww_eval_run *all, int n, const char *const *runs, const char *to,
	struct ww_eval_run *out, struct ww_err *err)
{
	for (int i = 0; i < n; i++) {
		WW_CHECK(ww_eval_run_read(&all[i], runs[i], err));
		WW_CHECK(check_same(&all[0], &all[i], err));
	}
	json_auto_t *about = json_deep_copy(all[0].about), *ids = json_array(), *seen = json_object();
	json_t *parts = json_array();
	for (int i = 0; i < n; i++)
		json_array_append(parts, json_object_get(json_object_get(all[i].about, "config"), "part"));
	json_object_set_new(json_object_get(about, "config"), "part", json_pack("{s:o}", "merged", parts));
	WW_CHECK(ww_eval_run_open(out, to, about, err));
	if (!out->made)
		return ww_err_set(err, WW_ERR_USAGE, "%s holds an evaluation already; choose another -o", to);
	for (int i = 0; i < n; i++)
		WW_CHECK(take_run(out, &all[i], ids, seen, err));
	json_object_set(out->about, "problems", ids);
	return write_about(out, err);
}

enum ww_rc ww_eval_merge(const char *const *runs, int n, const char *to, struct ww_err *err)
{
	struct ww_eval_run *all, out = { .path = "" };
	WW_CHECK(WW_NEW(all, n, err));
	enum ww_rc rc = merge_into(all, n, runs, to, &out, err);
	for (int i = 0; i < n; i++)
		ww_eval_run_release(&all[i]);
	ww_eval_run_release(&out);
	free(all);
	return rc;
}
