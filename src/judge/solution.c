#include "judge/solution.h"
#include "base/fs.h"
#include "base/hash.h"

#include <limits.h>
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

static enum ww_rc read_one(struct ww_str *s, const char *dir, const char *name, struct ww_err *err)
{
	char path[PATH_MAX];
	enum ww_rc rc = ww_fs_join(path, dir, name, err);
	if (rc == WW_OK)
		rc = ww_fs_read(path, WW_SOLUTION_MAX_BYTES, s, err);
	if (rc == WW_ERR_LIMIT)
		err->rc = rc = WW_ERR_USAGE;
	if (rc == WW_OK && memchr(s->p, 0, s->len))
		rc = ww_err_set(err, WW_ERR_USAGE, "%s is not text (it holds a NUL byte)", path);
	return rc;
}

enum ww_rc ww_solution_load(struct ww_solution_files *f, const char *dir, enum ww_target want, struct ww_err *err)
{
	memset(f, 0, sizeof(*f));
	ww_str_init(&f->device, WW_SOLUTION_MAX_BYTES);
	ww_str_init(&f->plan, WW_SOLUTION_MAX_BYTES);
	if (!ww_fs_is_dir(dir))
		return ww_err_set(err, WW_ERR_USAGE, "%s is not a directory; a solution is a directory with plan.c and kernels.cu "
				  "(or kernels.c)", dir);
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
	f->solution = (struct ww_solution){ f->device.p, f->plan.p, f->device.len, f->plan.len };
	return rc;
}

void ww_solution_files_release(struct ww_solution_files *f)
{
	ww_str_release(&f->device);
	ww_str_release(&f->plan);
	f->solution = (struct ww_solution){ 0 };
}

void ww_solution_id(const struct ww_solution *s, char out[65])
{
	struct ww_hash_part parts[] = { { s->device_source, s->device_bytes }, { s->plan_source, s->plan_bytes } };
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), out);
}
