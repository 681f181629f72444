#include "base/lines.h"

#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 16 };

struct ww_lines {
	int fd; /* -1: nothing is kept */
	char path[PATH_MAX];
};

/* Split one block into lines; *line holds the unfinished line of the block before it. */
static void split(struct ww_str *line, const char *block, size_t n, off_t at, off_t *end, struct ww_lines_reader *r)
{
	for (size_t i = 0; i < n;) {
		const char *nl = memchr(block + i, '\n', n - i);
		size_t part = nl ? (size_t)(nl - block) - i : n - i;
		ww_str_add(line, block + i, part);
		i += part + (nl != NULL);
		if (!nl)
			continue;
		if (line->len || line->cut)
			r->strange += line->cut || !r->each(r->ctx, line->p, line->len);
		ww_str_release(line);
		ww_str_init(line, WW_LINES_MAX_BYTES);
		*end = at + (off_t)i;
	}
}

/* All whole lines; *end gets the offset behind the last one. */
static enum ww_rc read_lines(int fd, const char *path, off_t *end, struct ww_lines_reader *r, struct ww_err *err)
{
	ww_auto_str line = WW_STR_INIT(WW_LINES_MAX_BYTES);
	char block[BLOCK_BYTES];
	off_t at = 0;
	ssize_t n;
	*end = 0;
	while ((n = pread(fd, block, sizeof(block), at)) > 0 || (n < 0 && errno == EINTR)) {
		if (n > 0)
			split(&line, block, (size_t)n, at, end, r);
		at += n > 0 ? n : 0;
	}
	return n < 0 ? ww_err_errno(err, WW_ERR_IO, "cannot read %s", path) : WW_OK;
}

static void sync_directory(const char *path)
{
	char dir[PATH_MAX];
	snprintf(dir, sizeof(dir), "%s", path);
	char *slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = 0;
	int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
}

static enum ww_rc open_file(struct ww_lines *l, const char *by, struct ww_lines_reader *r, struct ww_err *err)
{
	off_t end = 0;
	WW_CHECK(ww_fs_open_own(&l->fd, l->path, O_RDWR | O_CREAT, err));
	if (flock(l->fd, LOCK_EX | LOCK_NB))
		return ww_err_set(err, WW_ERR_USAGE, "%s is writing to %s", by, l->path);
	WW_CHECK(read_lines(l->fd, l->path, &end, r, err));
	if (ftruncate(l->fd, end) || lseek(l->fd, end, SEEK_SET) < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot write to %s", l->path);
	sync_directory(l->path);
	return WW_OK;
}

enum ww_rc ww_lines_open(
	struct ww_lines **out, const char *path, const char *by, struct ww_lines_reader *r, struct ww_err *err)
{
	struct ww_lines *l;
	*out = NULL;
	r->strange = 0;
	WW_CHECK(WW_NEW(l, 1, err));
	l->fd = -1;
	snprintf(l->path, sizeof(l->path), "%s", path ? path : "");
	enum ww_rc rc = path ? open_file(l, by, r, err) : WW_OK;
	if (rc == WW_OK)
		*out = l;
	else
		ww_lines_close(l);
	return rc;
}

void ww_lines_close(struct ww_lines *l)
{
	if (!l)
		return;
	ww_fd_close(&l->fd);
	free(l);
}

enum ww_rc ww_lines_append(struct ww_lines *l, const char *line, size_t n, struct ww_err *err)
{
	if (l->fd < 0)
		return *l->path ? ww_err_set(err, WW_ERR_IO, "%s cannot be written to any more", l->path) : WW_OK;
	off_t start = lseek(l->fd, 0, SEEK_CUR);
	ww_auto_str whole = WW_STR_INIT(n + 1);
	enum ww_rc rc = WW_OK;
	ww_str_add(&whole, line, n);
	ww_str_addc(&whole, '\n');
	if (ww_fd_write_all(l->fd, whole.p, whole.len) < 0 || fdatasync(l->fd))
		rc = ww_err_errno(err, WW_ERR_IO, "cannot write to %s", l->path);
	if (rc != WW_OK && start >= 0 && (ftruncate(l->fd, start) || lseek(l->fd, start, SEEK_SET) < 0))
		ww_fd_close(&l->fd); /* the next line would continue the cut one */
	return rc;
}

enum ww_rc ww_lines_read(const char *path, struct ww_lines_reader *r, struct ww_err *err)
{
	WW_AUTO(ww_fd_close) int fd = -1;
	off_t end;
	r->strange = 0;
	WW_CHECK(ww_fs_open_own(&fd, path, O_RDONLY, err));
	return read_lines(fd, path, &end, r, err);
}
