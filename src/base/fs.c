#include "base/fs.h"
#include "base/time.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WALK_DEPTH = 64 };

/* Errors that another path, or another file at this path, would not give. */
static int is_fault_of_path(int e)
{
	static const int faults[] = { ENOENT, ENOTDIR, ELOOP, EACCES, EPERM, ENXIO, ENAMETOOLONG, EAGAIN, EOVERFLOW };
	for (size_t i = 0; i < WW_ARRAY_LEN(faults); i++)
		if (e == faults[i])
			return 1;
	return 0;
}

enum ww_rc ww_fs_read(const char *path, size_t max_bytes, struct ww_str *out, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return ww_err_errno(err, is_fault_of_path(errno) ? WW_ERR_USAGE : WW_ERR_IO, "cannot open %s", path);
	struct stat st;
	if (fstat(fd, &st) < 0) {
		rc = ww_err_errno(err, WW_ERR_IO, "cannot stat %s", path);
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		rc = ww_err_set(err, WW_ERR_USAGE, "%s is not a regular file", path);
		goto out;
	}
	size_t total = 0;
	char chunk[65536];
	for (;;) {
		ssize_t n = read(fd, chunk, sizeof(chunk));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = ww_err_errno(err, WW_ERR_IO, "cannot read %s", path);
			goto out;
		}
		if (!n)
			break;
		total += (size_t)n;
		if (total > max_bytes) {
			rc = ww_err_set(err, WW_ERR_LIMIT, "%s is larger than %zu bytes", path, max_bytes);
			goto out;
		}
		ww_str_add(out, chunk, (size_t)n);
		if (out->cut) {
			rc = ww_err_set(err, WW_ERR_NOMEM, "%s does not fit in memory", path);
			goto out;
		}
	}
out:
	close(fd);
	return rc;
}

int ww_fd_write_all(int fd, const void *bytes, size_t n)
{
	for (const char *p = bytes; n;) {
		ssize_t w = write(fd, p, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -1;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

int ww_fd_memfd(const char *name, const void *bytes, size_t n)
{
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && ww_fd_write_all(fd, bytes, n) < 0)
		ww_fd_close(&fd);
	return fd;
}

static int visible(const struct dirent *e) { return e->d_name[0] != '.'; }
static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static enum ww_rc walk(const char *dir, int depth, enum ww_rc (*each)(void *, const char *, struct ww_err *), void *ctx,
	struct ww_err *err)
{
	struct dirent **list = NULL;
	char path[PATH_MAX];
	struct stat st;
	if (depth > WALK_DEPTH)
		return ww_err_set(err, WW_ERR_LIMIT, "%s is nested too deeply", dir);
	int n = scandir(dir, &list, visible, by_name);
	enum ww_rc rc = n < 0 ? ww_err_errno(err, WW_ERR_IO, "cannot read %s", dir) : WW_OK;
	for (int i = 0; i < n; i++) {
		if (rc == WW_OK)
			rc = ww_fs_join(path, dir, list[i]->d_name, err);
		if (rc == WW_OK && lstat(path, &st) == 0)
			rc = S_ISDIR(st.st_mode)  ? walk(path, depth + 1, each, ctx, err)
				: S_ISREG(st.st_mode) ? each(ctx, path, err)
									  : WW_OK;
		free(list[i]);
	}
	free(list);
	return rc;
}

enum ww_rc ww_fs_walk(
	const char *dir, enum ww_rc (*each)(void *ctx, const char *path, struct ww_err *err), void *ctx, struct ww_err *err)
{
	return walk(dir, 0, each, ctx, err);
}

/* The kernel gives what it makes up a page at a time, so that one read is not enough. */
size_t ww_fs_peek(int dir, const char *name, char *text, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	for (ssize_t n; fd >= 0 && len < size - 1 && (n = read(fd, text + len, size - 1 - len)) > 0;)
		len += (size_t)n;
	ww_fd_close(&fd);
	text[len] = 0;
	return len;
}

enum ww_rc ww_fs_open_own(int *fd, const char *path, int flags, struct ww_err *err)
{
	struct stat st;
	*fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
	if (*fd < 0 && errno == ELOOP)
		return ww_err_set(err, WW_ERR_USAGE, "%s is a link, which is not followed; put the file itself there", path);
	if (*fd < 0 && (errno == ENXIO || errno == EISDIR))
		return ww_err_set(err, WW_ERR_USAGE, "%s is not a regular file", path);
	if (*fd < 0)
		return ww_err_errno(err, is_fault_of_path(errno) ? WW_ERR_USAGE : WW_ERR_IO, "cannot open %s", path);
	if (!fstat(*fd, &st) && S_ISREG(st.st_mode))
		return WW_OK;
	ww_fd_close(fd);
	return ww_err_set(err, WW_ERR_USAGE, "%s is not a regular file", path);
}

enum ww_rc ww_fs_write(const char *path, const void *bytes, size_t n, struct ww_err *err)
{
	char tmp[PATH_MAX];
	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp-XXXXXX", path) >= sizeof(tmp))
		return ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", path);
	int fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot write %s", path);
	int bad = ww_fd_write_all(fd, bytes, n) < 0 || fchmod(fd, 0644) < 0 || fsync(fd) < 0;
	int saved = errno;
	if (close(fd) < 0 && !bad) {
		bad = 1;
		saved = errno;
	}
	if (!bad && rename(tmp, path) < 0) {
		bad = 1;
		saved = errno;
	}
	if (!bad)
		return WW_OK;
	unlink(tmp);
	errno = saved;
	return ww_err_errno(err, WW_ERR_IO, "cannot write %s", path);
}

enum ww_rc ww_fs_mkdirs(const char *path, struct ww_err *err)
{
	char buf[PATH_MAX];
	if ((size_t)snprintf(buf, sizeof(buf), "%s", path) >= sizeof(buf))
		return ww_err_set(err, WW_ERR_LIMIT, "path too long: %s", path);
	for (char *p = buf + 1;; p++) {
		if (*p && *p != '/')
			continue;
		char c = *p;
		*p = 0;
		if (mkdir(buf, 0755) < 0 && errno != EEXIST)
			return ww_err_errno(err, WW_ERR_IO, "cannot create directory %s", buf);
		*p = c;
		if (!c)
			break;
	}
	if (!ww_fs_is_dir(path))
		return ww_err_set(err, WW_ERR_IO, "%s exists and is not a directory", path);
	return WW_OK;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

enum ww_rc ww_fs_remove_tree(const char *path, struct ww_err *err)
{
	if (nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT)
		return ww_err_errno(err, WW_ERR_IO, "cannot remove %s", path);
	return WW_OK;
}

int ww_fs_is_file(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

int ww_fs_is_dir(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int ww_fs_which(const char *name, char *out)
{
	if (strchr(name, '/')) {
		snprintf(out, PATH_MAX, "%s", name);
		return access(name, X_OK) == 0;
	}
	const char *path = getenv("PATH");
	for (const char *p = path ? path : "/usr/bin:/bin"; *p;) {
		size_t n = strcspn(p, ":");
		if (n && (size_t)snprintf(out, PATH_MAX, "%.*s/%s", (int)n, p, name) < PATH_MAX && access(out, X_OK) == 0 &&
			ww_fs_is_file(out))
			return 1;
		p += n + (p[n] == ':');
	}
	return 0;
}

enum ww_rc ww_fs_join(char *out, const char *dir, const char *name, struct ww_err *err)
{
	if ((size_t)snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
		return ww_err_set(err, WW_ERR_LIMIT, "path too long: %s/%s", dir, name);
	return WW_OK;
}

/* Path of the running binary, PATH_MAX bytes.  A binary that was replaced since it started is refused: another build
 * may speak another protocol, or plan another way. */
static enum ww_rc own_path(char *out, struct ww_err *err)
{
	static const char deleted[] = " (deleted)";
	ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
	if (n < 0)
		return ww_err_errno(err, WW_ERR_SYSTEM, "cannot read /proc/self/exe");
	out[n] = 0;
	size_t length = (size_t)n - (sizeof(deleted) - 1);
	if ((size_t)n >= sizeof(deleted) && !strcmp(out + length, deleted))
		return ww_err_set(err, WW_ERR_MISSING, "%.*s was replaced while it ran; start it again", (int)length, out);
	return WW_OK;
}

/* Find `what` in the first of `dirs` (relative to the binary's directory) that contains it; its path into out. */
static enum ww_rc find_beside(const char *const *dirs, size_t n, const char *what, char *out, struct ww_err *err)
{
	char exe[PATH_MAX];
	WW_CHECK(own_path(exe, err));
	*strrchr(exe, '/') = 0;
	for (size_t i = 0; i < n; i++)
		if ((size_t)snprintf(out, PATH_MAX, "%s/%s%s", exe, dirs[i], what) < PATH_MAX && access(out, F_OK) == 0)
			return WW_OK;
	return ww_err_set(err, WW_ERR_MISSING, "cannot find %s near %s", what, exe);
}

/* Of a distribution, an installation, a build tree; then of tests, which lie one directory deeper than the program. */
static const char *const resource_dirs[] = { "../share/warpwright/", "share/warpwright/", "../", "../../",
	"../../share/warpwright/", "../../../" };
static const char *const plugin_dirs[] = { "", "../lib/warpwright/", "../" };

enum ww_rc ww_fs_resource(const char *what, char *out, struct ww_err *err)
{
	const char *home = getenv("WARPWRIGHT_HOME");
	if (home && (size_t)snprintf(out, PATH_MAX, "%s/%s", home, what) < PATH_MAX && access(out, F_OK) == 0)
		return WW_OK;
	enum ww_rc rc = find_beside(resource_dirs, WW_ARRAY_LEN(resource_dirs), what, out, err);
	if (rc == WW_ERR_MISSING)
		snprintf(err->msg + strlen(err->msg), sizeof(err->msg) - strlen(err->msg),
			"; set WARPWRIGHT_HOME to the directory that holds it");
	return rc;
}

enum ww_rc ww_fs_plugin(const char *file, char *out, struct ww_err *err)
{
	return find_beside(plugin_dirs, WW_ARRAY_LEN(plugin_dirs), file, out, err);
}

enum ww_rc ww_fs_program(char *out, struct ww_err *err)
{
	const char *set = getenv("WARPWRIGHT");
	enum ww_rc rc = own_path(out, err);
	if (rc != WW_OK || !strcmp(strrchr(out, '/'), "/warpwright"))
		return rc;
	if (set && (size_t)snprintf(out, PATH_MAX, "%s", set) < PATH_MAX && access(out, X_OK) == 0)
		return WW_OK;
	return ww_err_set(err, WW_ERR_MISSING, "cannot find the warpwright binary; set WARPWRIGHT to its path");
}

enum ww_rc ww_fs_cache_dir(char *out, struct ww_err *err)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	struct ww_err ignored;
	int n = -1;
	if (xdg && xdg[0] == '/')
		n = snprintf(out, PATH_MAX, "%s/warpwright", xdg);
	else if (home && home[0] == '/')
		n = snprintf(out, PATH_MAX, "%s/.cache/warpwright", home);
	if (n > 0 && n < PATH_MAX && ww_fs_mkdirs(out, &ignored) == WW_OK && access(out, W_OK) == 0)
		return WW_OK;
	snprintf(out, PATH_MAX, "/tmp/warpwright-%u", (unsigned)getuid());
	if (mkdir(out, 0700) < 0 && errno != EEXIST)
		return ww_err_errno(err, WW_ERR_IO, "cannot create cache directory %s", out);
	struct stat st;
	if (lstat(out, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != getuid())
		return ww_err_set(err, WW_ERR_IO, "%s belongs to another user; set XDG_CACHE_HOME", out);
	return WW_OK;
}

enum ww_rc ww_fd_wait(int fd, short events, unsigned long long deadline_ns, struct ww_err *err)
{
	for (;;) {
		int timeout_ms = -1;
		if (deadline_ns) {
			uint64_t now = ww_now_ns();
			if (now >= deadline_ns)
				return ww_err_set(err, WW_ERR_TIMEOUT, "no answer in time");
			uint64_t ms = (deadline_ns - now + 999999) / 1000000;
			timeout_ms = ms > INT_MAX ? INT_MAX : (int)ms;
		}
		struct pollfd p = { .fd = fd, .events = events };
		int n = poll(&p, 1, timeout_ms);
		if (n > 0)
			return WW_OK;
		if (n < 0 && errno != EINTR)
			return ww_err_errno(err, WW_ERR_SYSTEM, "poll");
	}
}

enum ww_rc ww_fd_read(int fd, void *buf, size_t n, unsigned long long deadline_ns, struct ww_err *err)
{
	for (size_t got = 0; got < n;) {
		WW_CHECK(ww_fd_wait(fd, POLLIN, deadline_ns, err));
		ssize_t r = read(fd, (char *)buf + got, n - got);
		if (r < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (r < 0)
			return ww_err_errno(err, WW_ERR_IO, "read");
		if (!r)
			return ww_err_set(err, WW_ERR_WORKER, "the other side closed the connection");
		got += (size_t)r;
	}
	return WW_OK;
}

enum ww_rc ww_fd_write(int fd, const void *buf, size_t n, unsigned long long deadline_ns, struct ww_err *err)
{
	for (size_t put = 0; put < n;) {
		WW_CHECK(ww_fd_wait(fd, POLLOUT, deadline_ns, err));
		ssize_t w = send(fd, (const char *)buf + put, n - put, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (w < 0 && errno == ENOTSOCK)
			w = write(fd, (const char *)buf + put, n - put);
		if (w < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (w < 0 && (errno == EPIPE || errno == ECONNRESET))
			return ww_err_set(err, WW_ERR_WORKER, "the other side closed the connection");
		if (w < 0)
			return ww_err_errno(err, WW_ERR_IO, "write");
		put += (size_t)w;
	}
	return WW_OK;
}

void ww_fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
