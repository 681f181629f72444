/* python.c - the two Python forms: a package over lib/, and one file that holds everything. */
#include "export/parts.h"
#include "task/task.h"

#include "base/fs.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static enum ww_rc put_in_dir(
	struct ww_export *x, struct ww_export_sink *sink, const char *path, const void *bytes, size_t n, struct ww_err *err)
{
	char full[1024];
	snprintf(full, sizeof(full), "%s%s", sink->prefix, path);
	return ww_export_file(x, full, bytes, n, err);
}

/* The files that the task imports and reads, beside its model.py in `folder`. */
static enum ww_rc put_local(struct ww_export *x, const char *folder, struct ww_err *err)
{
	char dir[PATH_MAX], path[PATH_MAX];
	enum ww_rc rc = ww_fs_join(dir, x->dir, folder, err);
	for (int i = 0; rc == WW_OK && i < x->o->task->n_files; i++) {
		const char *name = x->o->task->files[i].name;
		rc = ww_fs_join(path, dir, name, err);
		if (rc == WW_OK && (ww_fs_is_file(path) || !strcmp(name, "check.py") || !strcmp(name, "README.md")))
			rc = ww_err_set(
				err, WW_ERR_USAGE, "the task's own file %s has the name of a file of the export; rename it", name);
	}
	return rc == WW_OK ? ww_task_write_files(x->o->task, dir, err) : rc;
}

enum ww_rc ww_export_c(struct ww_export *x, struct ww_err *err)
{
	struct ww_export_sink sink = { put_in_dir, "", NULL };
	WW_CHECK(ww_export_library(x, &sink, err));
	if (!x->cuda)
		WW_CHECK(ww_export_render(x, "example.c", "src/export/templates/example.c.in", err));
	WW_CHECK(ww_export_render(x, "weights.py", "src/export/templates/weights.py.in", err));
	WW_CHECK(ww_export_file(x, "model.py", x->o->task->source, x->o->task->source_bytes, err));
	return put_local(x, "", err);
}

/* The package is called warpwright_NAME, so that no module of Python can have its name, and lies in a folder of its
 * own: a directory called "torch" on Python's path would hide PyTorch. */
enum ww_rc ww_export_torch(struct ww_export *x, struct ww_err *err)
{
	char lib[256], init[256], model[256];
	snprintf(lib, sizeof(lib), "warpwright_%s/lib/", x->name);
	snprintf(init, sizeof(init), "warpwright_%s/__init__.py", x->name);
	snprintf(model, sizeof(model), "warpwright_%s/model.py", x->name);
	struct ww_export_sink sink = { put_in_dir, lib, NULL };
	WW_CHECK(ww_export_library(x, &sink, err));
	WW_CHECK(ww_export_render(x, init, "src/export/templates/torch_module.py.in", err));
	WW_CHECK(ww_export_file(x, model, x->o->task->source, x->o->task->source_bytes, err));
	*strrchr(model, '/') = 0;
	return put_local(x, model, err);
}

static int is_text(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] < 0x20 && p[i] != '\n' && p[i] != '\t' && p[i] != '\r')
			return 0;
	return 1;
}

/* Text as Python string literals, one a line, so that it can be read where it stands. */
static void add_lines(struct ww_str *s, const char *p, size_t n)
{
	int open = 0;
	for (size_t i = 0; i < n; i++) {
		if (!open)
			ww_str_adds(s, "        \"");
		open = 1;
		unsigned char c = (unsigned char)p[i];
		if (c == '\n') {
			ww_str_adds(s, "\\n\"\n");
			open = 0;
		} else if (c == '"' || c == '\\') {
			ww_str_addf(s, "\\%c", c);
		} else if (c == '\t') {
			ww_str_adds(s, "\\t");
		} else if (c < 0x20 || c == 0x7f) {
			ww_str_addf(s, "\\x%02x", c);
		} else {
			ww_str_addc(s, (char)c);
		}
	}
	if (open)
		ww_str_adds(s, "\"\n");
	if (!n)
		ww_str_adds(s, "        \"\"\n");
}

static void add_base64(struct ww_str *s, const unsigned char *p, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	enum { LINE = 84 }; /* bytes in, a multiple of three: 112 digits out */
	for (size_t line = 0; line < n; line += LINE) {
		ww_str_adds(s, "        b\"");
		for (size_t i = line; i < n && i < line + LINE; i += 3) {
			size_t left = n - i;
			unsigned v = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0u);
			char out[5] = { digits[v >> 18], digits[v >> 12 & 63], left > 1 ? digits[v >> 6 & 63] : '=',
				left > 2 ? digits[v & 63] : '=', 0 };
			ww_str_adds(s, out);
		}
		ww_str_adds(s, "\"\n");
	}
	if (!n)
		ww_str_adds(s, "        b\"\"\n");
}

static enum ww_rc collect(
	struct ww_export *x, struct ww_export_sink *sink, const char *path, const void *bytes, size_t n, struct ww_err *err)
{
	ww_str_addf(sink->text, "    \"%s\": (\n", path);
	if (is_text(bytes, n))
		add_lines(sink->text, bytes, n);
	else
		add_base64(sink->text, bytes, n);
	ww_str_adds(sink->text, "    ),\n");
	return sink->text->cut ? ww_err_set(err, WW_ERR_LIMIT, "the export is larger than 128 MiB") : WW_OK;
}

enum ww_rc ww_export_kernelbench(struct ww_export *x, struct ww_err *err)
{
	ww_auto_str files = WW_STR_INIT(128 << 20);
	struct ww_export_sink sink = { collect, "", &files };
	char path[512];
	if (x->o->task->n_files)
		return ww_err_set(err, WW_ERR_USAGE,
			"format kernelbench is one file and cannot carry %s, which the task imports or reads; use torch or c",
			x->o->task->files[0].name);
	enum ww_rc rc = ww_export_library(x, &sink, err);
	if (rc == WW_OK) {
		ww_vars_set(&x->vars, "PY_FILES", files.p);
		ww_vars_set(&x->vars, "SOURCE", x->o->task->source);
		snprintf(path, sizeof(path), "%s_kernelbench.py", x->name);
		rc = ww_export_render(x, path, "src/export/templates/kernelbench.py.in", err);
	}
	return rc;
}
