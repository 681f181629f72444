/* ref_cache.c - see ref_cache.h.
 *
 * Whoever uses a directory holds a shared lock on it, in any process; it is removed under an exclusive one, and only
 * while its name still is that of the locked directory.  Who has waited for a directory that was removed meanwhile
 * makes it again. */
#include "judge/cache/ref_cache.h"

#include "base/fs.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 100 };

/* The name still is that of the directory behind the descriptor. */
static int is_same(const struct ww_ref_cache *c)
{
	struct stat a, b;
	return !fstat(c->fd, &a) && !lstat(c->path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

enum ww_rc ww_ref_cache_open(struct ww_ref_cache *c, const char *dir, const char *task_id, struct ww_err *err)
{
	char all[PATH_MAX];
	c->fd = -1;
	WW_CHECK(ww_fs_join(all, dir, "torch", err));
	WW_CHECK(ww_fs_join(c->path, all, task_id, err));
	enum ww_rc rc = WW_ERR_IO;
	for (int i = 0; i < TRIES; i++) {
		if ((rc = ww_fs_mkdirs(c->path, err)) != WW_OK) /* also where it is removed just now */
			continue;
		c->fd = open(c->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (c->fd < 0) {
			rc = ww_err_errno(err, WW_ERR_IO, "cannot open %s", c->path);
			continue;
		}
		(void)!flock(c->fd, LOCK_SH); /* a file system without locks: then nothing is removed either */
		if (is_same(c))
			return WW_OK;
		ww_fd_close(&c->fd);
		rc = ww_err_set(err, WW_ERR_IO, "%s is removed again and again", c->path);
	}
	return rc;
}

static _Thread_local uint64_t bytes_seen;

static int add_bytes(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	bytes_seen += (uint64_t)st->st_blocks * 512;
	return 0;
}

static uint64_t bytes_of(const char *path)
{
	bytes_seen = 0;
	return nftw(path, add_bytes, 16, FTW_PHYS) < 0 ? 0 : bytes_seen;
}

void ww_ref_cache_close(struct ww_ref_cache *c, uint64_t max_bytes)
{
	struct ww_err ignored;
	if (c->fd < 0)
		return;
	if (!flock(c->fd, LOCK_EX | LOCK_NB) && is_same(c) && rmdir(c->path) < 0 && bytes_of(c->path) > max_bytes)
		(void)!ww_fs_remove_tree(c->path, &ignored);
	ww_fd_close(&c->fd);
}
