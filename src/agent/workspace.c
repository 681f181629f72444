#include "agent/workspace.h"

#include "base/fs.h"
#include "judge/solution.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const all_names[] = { "kernels.cu", "kernels.c", "plan.c" };

enum ww_rc ww_workspace_open(struct ww_workspace *w, const char *dir, enum ww_target target, struct ww_err *err)
{
	w->target = target;
	w->dirfd = -1;
	enum ww_rc rc = ww_fs_mkdirs(dir, err);
	if (rc != WW_OK)
		return rc;
	w->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (w->dirfd < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot open directory %s", dir);
	for (size_t i = 0; i < WW_ARRAY_LEN(all_names); i++)
		if (unlinkat(w->dirfd, all_names[i], 0) < 0 && errno != ENOENT)
			return ww_err_errno(err, WW_ERR_IO, "cannot remove %s/%s", dir, all_names[i]);
	return WW_OK;
}

void ww_workspace_close(struct ww_workspace *w)
{
	if (w->dirfd >= 0)
		close(w->dirfd);
	w->dirfd = -1;
}

int ww_workspace_knows(const struct ww_workspace *w, const char *path, struct ww_str *why)
{
	const char *device = ww_solution_device_file(w->target);
	if (!strcmp(path, device) || !strcmp(path, "plan.c"))
		return 1;
	ww_str_adds(why, "path \"");
	ww_str_add_bounded(why, path, strlen(path), 80);
	ww_str_addf(why, "\" is not part of a solution; the files are %s and plan.c", device);
	return 0;
}

enum ww_rc ww_workspace_write(const struct ww_workspace *w, const char *path, const char *text, size_t n,
			      struct ww_err *err)
{
	char tmp[32];
	snprintf(tmp, sizeof(tmp), ".%s.new", path);
	if (unlinkat(w->dirfd, tmp, 0) < 0 && errno != ENOENT)
		return ww_err_errno(err, WW_ERR_IO, "cannot replace workspace file %s", path);
	int fd = openat(w->dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot write workspace file %s", path);
	size_t put = 0;
	while (put < n) {
		ssize_t k = write(fd, text + put, n - put);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			break;
		put += (size_t)k;
	}
	enum ww_rc rc = WW_OK;
	if (put < n || renameat(w->dirfd, tmp, w->dirfd, path) < 0) {
		rc = ww_err_errno(err, WW_ERR_IO, "cannot write workspace file %s", path);
		unlinkat(w->dirfd, tmp, 0);
	}
	close(fd);
	return rc;
}

enum ww_rc ww_workspace_read(const struct ww_workspace *w, const char *path, struct ww_str *out, int *found,
			     struct ww_err *err)
{
	*found = 0;
	int fd = openat(w->dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ELOOP
			       ? WW_OK
			       : ww_err_errno(err, WW_ERR_IO, "cannot open workspace file %s", path);
	struct stat st;
	enum ww_rc rc = WW_OK;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		goto out;
	char chunk[16384];
	for (ssize_t n; (n = read(fd, chunk, sizeof(chunk))) != 0;) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = ww_err_errno(err, WW_ERR_IO, "cannot read workspace file %s", path);
			goto out;
		}
		ww_str_add(out, chunk, (size_t)n);
	}
	*found = 1;
	if (out->cut)
		rc = ww_err_set(err, WW_ERR_LIMIT, "workspace file %s is larger than %zu bytes", path, out->max);
out:
	close(fd);
	return rc;
}

void ww_workspace_content_init(struct ww_workspace_content *c)
{
	ww_str_init(&c->device, WW_SOLUTION_MAX_BYTES);
	ww_str_init(&c->plan, WW_SOLUTION_MAX_BYTES);
	c->id[0] = 0;
}

void ww_workspace_content_release(struct ww_workspace_content *c)
{
	ww_str_release(&c->device);
	ww_str_release(&c->plan);
}

enum ww_rc ww_workspace_take(const struct ww_workspace *w, struct ww_workspace_content *c, const char **missing,
			     struct ww_err *err)
{
	const char *device = ww_solution_device_file(w->target);
	int have_device, have_plan;
	enum ww_rc rc;
	ww_str_reset(&c->device);
	ww_str_reset(&c->plan);
	WW_TRY(ww_workspace_read(w, device, &c->device, &have_device, err));
	WW_TRY(ww_workspace_read(w, "plan.c", &c->plan, &have_plan, err));
	*missing = !have_device ? device : !have_plan ? "plan.c" : NULL;
	ww_solution_id(&(struct ww_solution){ .device_source = c->device.p, .plan_source = c->plan.p,
					      .device_bytes = c->device.len, .plan_bytes = c->plan.len }, c->id);
out:
	return rc;
}
