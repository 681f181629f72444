/* skill_pack.c - a skill's files as one sealed piece of memory, for the sandboxes of shells.
 *
 * Where we are root, a shell's sandbox belongs to a user who may not reach the skill's folder, and a mount of another
 * mount namespace cannot be bound.  So the files are read once, when the skill is opened; each sandbox writes them into
 * its own read-only root, and all of them show the same bytes, whatever becomes of the folder.
 */
#include "agent/skill.h"

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 512, BYTES_MAX = 8 << 20, DEPTH_MAX = 8 };

struct pack {
	int fd, files;
	int64_t bytes;
};

/* Takes fd. */
static int add_file(struct pack *p, int fd, const char *path, size_t n)
{
	static const struct ww_skill_packed none;
	struct ww_skill_packed head = { (uint32_t)strlen(path), (uint32_t)n };
	char chunk[16384];
	off_t at = lseek(p->fd, 0, SEEK_CUR);
	size_t done = 0;
	int r = ww_fd_write_all(p->fd, &none, sizeof(none)) < 0 || ww_fd_write_all(p->fd, path, head.path_bytes) < 0 ? -1
																												 : 0;
	for (ssize_t k;
		r == 0 && done < n && (k = read(fd, chunk, sizeof(chunk) < n - done ? sizeof(chunk) : n - done)) > 0;
		done += (size_t)k)
		r = ww_fd_write_all(p->fd, chunk, (size_t)k);
	close(fd);
	head.file_bytes = (uint32_t)done; /* the file may have been truncated since fstat() */
	if (r == 0 && pwrite(p->fd, &head, sizeof(head), at) != (ssize_t)sizeof(head))
		r = -1;
	p->files++;
	p->bytes += (int64_t)done;
	return r;
}

static int add_folder(struct pack *p, int dirfd, const char *prefix, int depth);

/* Takes fd. */
static int add_name(struct pack *p, int fd, const char *path, int depth)
{
	struct stat st;
	char below[WW_SKILL_PACK_PATH];
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && depth < DEPTH_MAX && strlen(path) + 2 <= sizeof(below)) {
		snprintf(below, sizeof(below), "%s/", path);
		return add_folder(p, fd, below, depth + 1);
	}
	if (S_ISREG(st.st_mode) && st.st_size <= WW_SKILL_PACK_FILE && p->files < FILES_MAX &&
		p->bytes + st.st_size <= BYTES_MAX)
		return add_file(p, fd, path, (size_t)st.st_size);
	close(fd);
	return 0;
}

/* Takes dirfd. */
static int add_folder(struct pack *p, int dirfd, const char *prefix, int depth)
{
	char self[64], path[WW_SKILL_PACK_PATH];
	struct dirent **names;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", dirfd);
	int n = scandir(self, &names, NULL, alphasort), r = n < 0 ? -1 : 0;
	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		if (r == 0 && name[0] != '.' && (size_t)snprintf(path, sizeof(path), "%s%s", prefix, name) < sizeof(path)) {
			int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
			if (fd >= 0)
				r = add_name(p, fd, path, depth);
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	close(dirfd);
	return r;
}

enum ww_rc ww_skill_pack(int dirfd, int *pack_fd, struct ww_err *err)
{
	struct pack p = { .fd = memfd_create("skill", MFD_CLOEXEC | MFD_ALLOW_SEALING) };
	int top = p.fd >= 0 ? fcntl(dirfd, F_DUPFD_CLOEXEC, 3) : -1;
	*pack_fd = -1;
	if (top < 0 || add_folder(&p, top, "", 0) < 0 ||
		fcntl(p.fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
		enum ww_rc rc = ww_err_errno(err, WW_ERR_IO, "cannot read the skill's files");
		ww_fd_close(&p.fd);
		return rc;
	}
	*pack_fd = p.fd;
	return WW_OK;
}
