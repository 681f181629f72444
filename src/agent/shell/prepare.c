/* prepare.c - see prepare.h.  The pack was made by the parent, so what is wrong in it is an error and not an attack; it
 * is read at positions of its own, because all sandboxes share one offset. */
#include "agent/shell/prepare.h"

#include "agent/skill.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folders above `path`, below `from` bytes of it. */
static int make_folders(char *path, size_t from)
{
	for (char *p = path + from; (p = strchr(p, '/')); *p++ = '/') {
		*p = 0;
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return -1;
	}
	return 0;
}

static int put_file(const char *root, const char *name, const char *bytes, size_t n)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/skill/%s", root, name);
	if (make_folders(path, strlen(root) + 1) < 0)
		return -1;
	WW_AUTO(ww_fd_close) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	return fd >= 0 && write(fd, bytes, n) == (ssize_t)n ? 0 : -1;
}

/* One record at *at; 1: there is none any more. */
static int unpack_one(const char *root, int fd, off_t *at, char *bytes)
{
	struct ww_skill_packed head;
	char name[WW_SKILL_PACK_PATH];
	ssize_t n = pread(fd, &head, sizeof(head), *at);
	if (n == 0)
		return 1;
	if (n != (ssize_t)sizeof(head) || head.path_bytes >= sizeof(name) || head.file_bytes > WW_SKILL_PACK_FILE ||
		pread(fd, name, head.path_bytes, *at + n) != (ssize_t)head.path_bytes ||
		pread(fd, bytes, head.file_bytes, *at + n + head.path_bytes) != (ssize_t)head.file_bytes) {
		errno = EIO;
		return -1;
	}
	name[head.path_bytes] = 0;
	*at += n + head.path_bytes + head.file_bytes;
	return put_file(root, name, bytes, head.file_bytes);
}

int ww_shell_prepare_skill(const char *root, int pack_fd)
{
	off_t at = 0;
	int r = 0;
	ww_auto_free char *bytes = malloc(WW_SKILL_PACK_FILE);
	if (!bytes)
		return -1;
	while (r == 0)
		r = unpack_one(root, pack_fd, &at, bytes);
	return r < 0 ? -1 : 0;
}
