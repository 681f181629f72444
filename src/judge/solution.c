/* solution.c - see solution.h.
 *
 * Recognition looks at names first and at text only where a name says nothing (a KernelBench file may be called
 * anything). Nothing here runs or parses Python: whether ModelNew can be made is found out by the process that holds
 * the candidate. */
#include "judge/solution.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ww_solution_device_file(enum ww_target target)
{
	return target == WW_TARGET_CUDA ? "kernels.cu" : "kernels.c";
}

static int has(const char *dir, const char *name)
{
	char path[PATH_MAX];
	struct ww_err err;
	return ww_fs_join(path, dir, name, &err) == WW_OK && ww_fs_is_file(path);
}

static enum ww_rc read_file(struct ww_str *s, const char *path, struct ww_err *err)
{
	enum ww_rc rc = ww_fs_read(path, WW_SOLUTION_MAX_BYTES, s, err);
	if (rc == WW_ERR_LIMIT)
		err->rc = rc = WW_ERR_USAGE;
	if (rc == WW_OK && memchr(s->p, 0, s->len))
		rc = ww_err_set(err, WW_ERR_USAGE, "%s is not text (it holds a NUL byte)", path);
	return rc;
}

static enum ww_rc read_one(struct ww_str *s, const char *dir, const char *name, struct ww_err *err)
{
	char path[PATH_MAX];
	enum ww_rc rc = ww_fs_join(path, dir, name, err);
	return rc == WW_OK ? read_file(s, path, err) : rc;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

static enum ww_rc load_plan(struct ww_solution_files *f, const char *dir, enum ww_target want, struct ww_err *err)
{
	f->target = want ? want : has(dir, "kernels.cu") ? WW_TARGET_CUDA : WW_TARGET_CPU;
	const char *name = ww_solution_device_file(f->target);
	if (!has(dir, name))
		return ww_err_set(err, WW_ERR_USAGE, "%s has no %s%s", dir, name,
			want ? "; its target is not the one that was asked for" : " and no kernels.cu: not a solution");
	if (!has(dir, "plan.c"))
		return ww_err_set(err, WW_ERR_USAGE, "%s has no plan.c", dir);
	enum ww_rc rc = read_one(&f->device, dir, name, err);
	if (rc == WW_OK)
		rc = read_one(&f->plan, dir, "plan.c", err);
	f->solution = (struct ww_solution){
		.device_source = f->device.p, .plan_source = f->plan.p, .device_bytes = f->device.len, .plan_bytes = f->plan.len
	};
	return rc;
}

/* ---- PyTorch forms ----------------------------------------------------------------------------------------------- */

int ww_solution_defines_model(const char *text)
{
	for (const char *p = text; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (strncmp(p, "class", 5) || !isblank((unsigned char)p[5]))
			continue;
		const char *name = p + 5 + strspn(p + 5, " \t");
		if (!strncmp(name, "ModelNew", 8) && strchr(" \t(:", name[8]))
			return 1;
	}
	return 0;
}

static enum ww_rc new_file(struct ww_solution_files *f, const char *name, struct ww_str **to, struct ww_err *err)
{
	if (f->n == WW_SOLUTION_MAX_FILES)
		return ww_err_set(err, WW_ERR_USAGE, "%s: a solution has at most %d files", name, WW_SOLUTION_MAX_FILES);
	if (!f->texts) {
		f->texts = calloc(WW_SOLUTION_MAX_FILES, sizeof(*f->texts));
		f->paths = calloc(WW_SOLUTION_MAX_FILES, sizeof(*f->paths));
		f->files = calloc(WW_SOLUTION_MAX_FILES, sizeof(*f->files));
	}
	if (!f->texts || !f->paths || !f->files || !(f->paths[f->n] = strdup(name)))
		return ww_nomem(err);
	*to = &f->texts[f->n++];
	ww_str_init(*to, WW_SOLUTION_MAX_BYTES);
	return WW_OK;
}

static enum ww_rc add_file(struct ww_solution_files *f, const char *name, const char *path, struct ww_err *err)
{
	struct ww_str *to;
	WW_CHECK(new_file(f, name, &to, err));
	return read_file(to, path, err);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct ww_solution_file *)a)->path, ((const struct ww_solution_file *)b)->path);
}

static int speaks_of_cuda(const struct ww_solution_files *f)
{
	for (int i = 0; i < f->n; i++)
		if (strcasestr(f->paths[i], ".cu") || strcasestr(f->texts[i].p, "cuda") || strstr(f->texts[i].p, "triton"))
			return 1;
	return 0;
}

static void set_files(struct ww_solution_files *f, enum ww_form form, enum ww_target want)
{
	for (int i = 0; i < f->n; i++)
		f->files[i] = (struct ww_solution_file){ f->paths[i], f->texts[i].p, f->texts[i].len };
	if (f->n)
		qsort(f->files, (size_t)f->n, sizeof(*f->files), by_path);
	f->target = want ? want : speaks_of_cuda(f) ? WW_TARGET_CUDA : WW_TARGET_CPU;
	f->solution = (struct ww_solution){ .form = form, .files = f->files, .n_files = f->n };
}

static enum ww_rc set_read_files(
	struct ww_solution_files *f, enum ww_form form, enum ww_target want, struct ww_err *err)
{
	size_t total = 0;
	for (int i = 0; i < f->n; i++)
		total += f->texts[i].len;
	set_files(f, form, want);
	return total <= WW_SOLUTION_MAX_TOTAL_BYTES
		? WW_OK
		: ww_err_set(err, WW_ERR_USAGE, "the solution's files hold more than %d bytes", WW_SOLUTION_MAX_TOTAL_BYTES);
}

static int wanted_kernel_file(const char *name)
{
	static const char *const endings[] = { ".cu", ".cuh", ".cpp", ".h", ".hpp", ".inc", ".inl" };
	const char *dot = strrchr(name, '.');
	for (size_t i = 0; dot && name[0] != '.' && i < WW_ARRAY_LEN(endings); i++)
		if (!strcmp(dot, endings[i]))
			return 1;
	return 0;
}

static enum ww_rc load_cuda_agent(struct ww_solution_files *f, const char *dir, enum ww_target want, struct ww_err *err)
{
	char path[PATH_MAX], kernels[PATH_MAX], name[NAME_MAX + 16];
	DIR *d = NULL;
	enum ww_rc rc;

	WW_TRY(ww_fs_join(path, dir, "model_new.py", err));
	WW_TRY(add_file(f, "model_new.py", path, err));
	if (!ww_solution_defines_model(f->texts[0].p))
		WW_TRY(ww_err_set(err, WW_ERR_USAGE, "%s does not define a class ModelNew", path));
	WW_TRY(ww_fs_join(kernels, dir, "kernels", err));
	d = opendir(kernels);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (!wanted_kernel_file(e->d_name))
			continue;
		WW_TRY(ww_fs_join(path, kernels, e->d_name, err));
		snprintf(name, sizeof(name), "kernels/%s", e->d_name);
		WW_TRY(add_file(f, name, path, err));
	}
	rc = set_read_files(f, WW_FORM_CUDA_AGENT, want, err);
out:
	if (d)
		closedir(d);
	return rc;
}

static enum ww_rc load_kernelbench(
	struct ww_solution_files *f, const char *path, enum ww_target want, struct ww_err *err)
{
	enum ww_rc rc = add_file(f, "model_new.py", path, err);
	if (rc == WW_OK && !ww_solution_defines_model(f->texts[0].p))
		rc = ww_err_set(err, WW_ERR_USAGE, "%s does not define a class ModelNew", path);
	return rc == WW_OK ? set_read_files(f, WW_FORM_KERNELBENCH, want, err) : rc;
}

static int file_defines_model(const char *path)
{
	ww_auto_str text = WW_STR_INIT(WW_SOLUTION_MAX_BYTES);
	struct ww_err ignored = WW_ERR_INIT;
	return ww_fs_read(path, WW_SOLUTION_MAX_BYTES, &text, &ignored) == WW_OK && ww_solution_defines_model(text.p);
}

/* The one file of the directory that defines ModelNew; *found counts them. */
static enum ww_rc find_kernelbench(const char *dir, char *out, int *found, struct ww_err *err)
{
	char path[PATH_MAX];
	enum ww_rc rc = WW_OK;
	DIR *d = opendir(dir);
	*found = 0;
	if (!d)
		return ww_err_errno(err, WW_ERR_USAGE, "cannot read %s", dir);
	for (struct dirent *e; (e = readdir(d));) {
		const char *dot = strrchr(e->d_name, '.');
		if (!dot || strcmp(dot, ".py"))
			continue;
		WW_TRY(ww_fs_join(path, dir, e->d_name, err));
		if (!ww_fs_is_file(path) || !file_defines_model(path))
			continue;
		if (!(*found)++)
			memcpy(out, path, sizeof(path));
	}
out:
	closedir(d);
	return rc;
}

/* ---- From memory ------------------------------------------------------------------------------------------------- */

const char *ww_solution_needs(enum ww_form form, enum ww_target target, int k)
{
	if (form == WW_FORM_PLAN)
		return k == 0 ? ww_solution_device_file(target) : k == 1 ? "plan.c" : NULL;
	return k ? NULL : form == WW_FORM_KERNELBENCH ? WW_SOLUTION_KERNELBENCH : "model_new.py";
}

int ww_solution_has_place(enum ww_form form, enum ww_target target, const char *name)
{
	const char *need;
	for (int k = 0; (need = ww_solution_needs(form, target, k)); k++)
		if (!strcmp(name, need))
			return 1;
	return form == WW_FORM_CUDA_AGENT && !strncmp(name, "kernels/", 8) && !strchr(name + 8, '/') &&
		wanted_kernel_file(name + 8);
}

void ww_solution_begin(struct ww_solution_files *f, enum ww_form form, enum ww_target target)
{
	memset(f, 0, sizeof(*f));
	ww_str_init(&f->device, WW_SOLUTION_MAX_BYTES);
	ww_str_init(&f->plan, WW_SOLUTION_MAX_BYTES);
	f->target = target;
	f->solution.form = form;
}

enum ww_rc ww_solution_add(
	struct ww_solution_files *f, const char *name, const char *text, size_t n, struct ww_err *err)
{
	struct ww_str *to;
	if (n > WW_SOLUTION_MAX_BYTES)
		return ww_err_set(err, WW_ERR_USAGE, "%s is larger than %d bytes", name, WW_SOLUTION_MAX_BYTES);
	if (f->solution.form == WW_FORM_PLAN) {
		to = strcmp(name, "plan.c") ? &f->device : &f->plan;
		ww_str_reset(to);
	} else {
		WW_CHECK(new_file(f, f->solution.form == WW_FORM_KERNELBENCH ? "model_new.py" : name, &to, err));
	}
	ww_str_add(to, text, n);
	return to->cut ? ww_nomem(err) : WW_OK;
}

void ww_solution_end(struct ww_solution_files *f)
{
	if (f->solution.form != WW_FORM_PLAN)
		set_files(f, f->solution.form, f->target);
	else
		f->solution = (struct ww_solution){ .device_source = f->device.p,
			.plan_source = f->plan.p,
			.device_bytes = f->device.len,
			.plan_bytes = f->plan.len };
}

const char *ww_solution_file(const struct ww_solution_files *f, int k, const char **text)
{
	if (f->solution.form == WW_FORM_PLAN) {
		*text = k ? f->plan.p : f->device.p;
		return ww_solution_needs(WW_FORM_PLAN, f->target, k);
	}
	if (k >= f->n)
		return NULL;
	*text = f->files[k].text;
	return f->solution.form == WW_FORM_KERNELBENCH ? WW_SOLUTION_KERNELBENCH : f->files[k].path;
}

/* ---- All forms --------------------------------------------------------------------------------------------------- */

enum ww_rc ww_solution_load(struct ww_solution_files *f, const char *path, enum ww_target want, struct ww_err *err)
{
	char file[PATH_MAX];
	int found = 0;
	enum ww_rc rc;

	memset(f, 0, sizeof(*f));
	ww_str_init(&f->device, WW_SOLUTION_MAX_BYTES);
	ww_str_init(&f->plan, WW_SOLUTION_MAX_BYTES);
	if (ww_fs_is_file(path))
		return load_kernelbench(f, path, want, err);
	if (!ww_fs_is_dir(path))
		return ww_err_set(err, WW_ERR_USAGE,
			"%s is not a directory; a solution is a directory with plan.c and kernels.cu "
			"(or kernels.c), or with model_new.py, or a file that defines ModelNew",
			path);
	if (has(path, "plan.c") || has(path, "kernels.cu") || has(path, "kernels.c"))
		return load_plan(f, path, want, err);
	if (has(path, "model_new.py"))
		return load_cuda_agent(f, path, want, err);
	WW_TRY(find_kernelbench(path, file, &found, err));
	if (found == 1)
		rc = load_kernelbench(f, file, want, err);
	else if (found)
		rc = ww_err_set(err, WW_ERR_USAGE, "%s holds %d files that define ModelNew; name one of them", path, found);
	else if (has(path, "solution/plan.c") || has(path, "solution/model_new.py"))
		rc = ww_err_set(err, WW_ERR_USAGE, "%s holds a run, and its solution is %s/solution; name that", path, path);
	else
		rc = ww_err_set(err, WW_ERR_USAGE,
			"%s has no plan.c with kernels.cu (or kernels.c), no model_new.py, and no file that "
			"defines ModelNew: not a solution",
			path);
out:
	return rc;
}

void ww_solution_files_release(struct ww_solution_files *f)
{
	ww_str_release(&f->device);
	ww_str_release(&f->plan);
	for (int i = 0; i < f->n; i++) {
		ww_str_release(&f->texts[i]);
		free(f->paths[i]);
	}
	free(f->texts);
	free(f->paths);
	free(f->files);
	memset(f, 0, sizeof(*f));
	ww_str_init(&f->device, WW_SOLUTION_MAX_BYTES);
	ww_str_init(&f->plan, WW_SOLUTION_MAX_BYTES);
}

void ww_solution_id(const struct ww_solution *s, char out[65])
{
	if (s->form == WW_FORM_PLAN) {
		struct ww_hash_part parts[] = { { s->device_source, s->device_bytes }, { s->plan_source, s->plan_bytes } };
		ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), out);
		return;
	}
	struct ww_hash_part parts[1 + 2 * WW_SOLUTION_MAX_FILES] = { { &s->form, sizeof(s->form) } };
	int n = s->n_files < WW_SOLUTION_MAX_FILES ? s->n_files : WW_SOLUTION_MAX_FILES;
	for (int i = 0; i < n; i++) {
		parts[1 + 2 * i] = (struct ww_hash_part){ s->files[i].path, strlen(s->files[i].path) };
		parts[2 + 2 * i] = (struct ww_hash_part){ s->files[i].text, s->files[i].bytes };
	}
	ww_hash_parts_hex(parts, 1 + 2 * (size_t)n, out);
}
