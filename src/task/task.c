/* task.c - reading a task file: bounded, text, named by content (task.h). */
#include "task/task.h"
#include "base/fs.h"
#include "base/mem.h"
#include "task/local.h"
#include "task/set.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Enough to tell a Python file from a binary: no NUL, and UTF-8 all through. */
static int is_text(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		unsigned char c = p[i++];
		size_t more = c < 0x80      ? 0
			: c >= 0xc2 && c < 0xe0 ? 1
			: c >= 0xe0 && c < 0xf0 ? 2
			: c >= 0xf0 && c < 0xf5 ? 3
									: 9;
		if (!c || more == 9 || more > n - i)
			return 0;
		for (; more; more--)
			if ((p[i++] & 0xc0) != 0x80)
				return 0;
	}
	return 1;
}

static int is_blank(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strchr(" \t\r\n\f", p[i]))
			return 0;
	return 1;
}

enum ww_rc ww_task_from_text(struct ww_task *t, const char *name, const char *source, size_t bytes, struct ww_err *err)
{
	memset(t, 0, sizeof(*t));
	if (bytes > WW_TASK_MAX_BYTES)
		return ww_err_set(
			err, WW_ERR_USAGE, "%s is larger than %d bytes; a task is one small Python file", name, WW_TASK_MAX_BYTES);
	if (is_blank(source, bytes))
		return ww_err_set(err, WW_ERR_USAGE, "%s is empty; a task defines Model, get_inputs and get_init_inputs", name);
	if (!is_text((const unsigned char *)source, bytes))
		return ww_err_set(err, WW_ERR_USAGE, "%s is not UTF-8 text; a task is a Python file", name);
	size_t len = strlen(name);
	if (len > 3 && !strcmp(name + len - 3, ".py"))
		len -= 3;
	t->path = strdup("");
	t->roots = strdup("");
	t->name = strndup(name, len);
	t->source = malloc(bytes + 1);
	if (!t->path || !t->roots || !t->name || !t->source) {
		ww_task_release(t);
		return ww_nomem(err);
	}
	memcpy(t->source, source, bytes);
	t->source[bytes] = 0;
	t->source_bytes = bytes;
	ww_hash_hex(source, bytes, t->id);
	return WW_OK;
}

/* "SET#ID". */
static enum ww_rc load_row(struct ww_task *t, const char *set_path, const char *id, struct ww_err *err)
{
	const struct ww_set_row *row;
	struct ww_set *set;
	WW_CHECK(ww_set_open(&set, set_path, NULL, err));
	enum ww_rc rc = ww_set_find(set, id, &row, err);
	if (rc == WW_OK)
		rc = ww_set_task(set, row, t, err);
	ww_set_close(set);
	return rc;
}

/* The end of an error for a user who named a whole set. */
static const char *set_hint(const char *path, int is_dir)
{
	static const char *const ends[] = { ".jsonl", ".zst", ".parquet" };
	size_t n = strlen(path);
	for (size_t i = 0; i < WW_ARRAY_LEN(ends); i++)
		if (n > strlen(ends[i]) && !strcmp(path + n - strlen(ends[i]), ends[i]))
			return "; of a task set, name one task: FILE#ID";
	return is_dir ? "; of a directory as a task set, name one task: DIR#ID" : "";
}

enum ww_rc ww_task_load(struct ww_task *t, const char *path, struct ww_err *err)
{
	char set[PATH_MAX];
	const char *id = ww_set_split(path, set);
	memset(t, 0, sizeof(*t));
	struct stat st;
	if (id)
		return load_row(t, set, id, err);
	if (stat(path, &st) < 0)
		return errno == ENOENT ? ww_err_set(err, WW_ERR_USAGE, "there is no file %s", path)
							   : ww_err_errno(err, WW_ERR_USAGE, "cannot read %s", path);
	if (!S_ISREG(st.st_mode))
		return ww_err_set(err, WW_ERR_USAGE, "%s is not a file; a task is one Python file%s", path,
			set_hint(path, S_ISDIR(st.st_mode)));
	if (*set_hint(path, 0))
		return ww_err_set(err, WW_ERR_USAGE, "%s is no Python file%s", path, set_hint(path, 0));
	if (st.st_size > WW_TASK_MAX_BYTES)
		return ww_err_set(
			err, WW_ERR_USAGE, "%s is larger than %d bytes; a task is one small Python file", path, WW_TASK_MAX_BYTES);
	struct ww_str text = WW_STR_INIT(WW_TASK_MAX_BYTES);
	const char *slash = strrchr(path, '/');
	enum ww_rc rc = ww_fs_read(path, WW_TASK_MAX_BYTES, &text, err);
	if (rc == WW_OK)
		rc = ww_task_from_text(t, slash ? slash + 1 : path, text.p, text.len, err);
	ww_str_release(&text);
	if (rc != WW_OK)
		return rc;
	free(t->path);
	t->path = strdup(path);
	rc = t->path ? ww_task_find_files(t, err) : ww_nomem(err);
	if (rc != WW_OK)
		ww_task_release(t);
	return rc;
}

void ww_task_release(struct ww_task *t)
{
	free(t->path);
	free(t->name);
	free(t->source);
	free(t->roots);
	for (int i = 0; i < t->n_files; i++) {
		free(t->files[i].name);
		free(t->files[i].path);
	}
	free(t->files);
	memset(t, 0, sizeof(*t));
}
