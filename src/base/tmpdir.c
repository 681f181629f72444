/* tmpdir.c - private directories that are removed when their owner has ended.
 *
 * A process that ends normally removes its directory.  After kill -9 it stays, so every owner holds a lock (flock) on
 * its directory, which ends with the process, and the next owner of any directory removes those that are not locked.
 * Rejected: a process id in the name, since ids are reused and mean nothing in another pid namespace.
 *
 * Between mkdtemp() and the lock a new directory looks like an abandoned one.  So a sweeper locks what it removes, and
 * a new owner that cannot get its lock, or holds it on a directory that is gone, makes another directory.
 *
 * Only names that this program makes are looked at, only directories of this user, never through a symbolic link. */
#include "base/tmpdir.h"

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANDOM_CHARS = 6, MAX_TRIES = 16 };
static const char *const names[] = { "builder", "bytecode", "call", "compiler", "openenv", "sanitize", "sass", "synth",
	"task", "worker" };

static const char *base_dir(void)
{
	const char *tmp = getenv("TMPDIR");
	return tmp && tmp[0] == '/' ? tmp : "/tmp";
}

/* A descriptor that holds the lock on a directory of ours that is still there, or -1. */
static int lock_dir(const char *path)
{
	struct stat held, named;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &held) == 0 && held.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
		lstat(path, &named) == 0 && held.st_dev == named.st_dev && held.st_ino == named.st_ino)
		return fd;
	close(fd);
	return -1;
}

static int has_name(const char *file, const char *name)
{
	size_t n = strlen(name);
	return !strncmp(file, "warpwright-", 11) && !strncmp(file + 11, name, n) && file[11 + n] == '-' &&
		strlen(file + 12 + n) == RANDOM_CHARS;
}

/* Remove abandoned directories of the fixed names and of `name` ("": none). */
static void sweep(const char *name)
{
	const char *base = base_dir();
	DIR *d = opendir(base);
	for (struct dirent *e; d && (e = readdir(d));) {
		char path[PATH_MAX];
		struct ww_err ignored = WW_ERR_INIT;
		int is_temporary = *name && has_name(e->d_name, name);
		for (size_t i = 0; i < WW_ARRAY_LEN(names); i++)
			is_temporary |= has_name(e->d_name, names[i]);
		if (!is_temporary || ww_fs_join(path, base, e->d_name, &ignored) != WW_OK)
			continue;
		int fd = lock_dir(path);
		if (fd < 0)
			continue;
		(void)!ww_fs_remove_tree(path, &ignored);
		close(fd);
	}
	if (d)
		closedir(d);
}

void ww_tmpdir_sweep(void) { sweep(""); }

enum ww_rc ww_tmpdir_new(struct ww_tmpdir *t, const char *name, struct ww_err *err)
{
	const char *base = base_dir();

	*t = (struct ww_tmpdir)WW_TMPDIR_INIT;
	sweep(name);
	for (int i = 0; i < MAX_TRIES && t->fd < 0; i++) {
		if ((size_t)snprintf(t->path, sizeof(t->path), "%s/warpwright-%s-XXXXXX", base, name) >= sizeof(t->path) ||
			!mkdtemp(t->path)) {
			t->path[0] = 0;
			return ww_err_errno(err, WW_ERR_IO, "cannot create a directory under %s", base);
		}
		t->fd = lock_dir(t->path);
	}
	if (t->fd >= 0)
		return WW_OK;
	t->path[0] = 0;
	return ww_err_set(err, WW_ERR_IO, "cannot lock a directory under %s", base);
}

void ww_tmpdir_remove(struct ww_tmpdir *t)
{
	struct ww_err ignored = WW_ERR_INIT;
	if (t->path[0])
		(void)!ww_fs_remove_tree(t->path, &ignored);
	t->path[0] = 0;
	ww_fd_close(&t->fd);
}
