/* workspace.c - see workspace.h.
 *
 * One primitive does the confinement: ww_workspace's enter(), which walks a path name by name with O_NOFOLLOW below the
 * folder reached so far.  No name is ever "..", so a walk cannot leave the tree; and where a folder is replaced by a
 * link during the walk, the descriptor still refers to the folder.  An opened file is checked by fstat() on the
 * descriptor, never by its name.
 *
 * Rejected: openat2() with RESOLVE_BENEATH, which says the same in one call and is forbidden by the system-call filters
 * of some container runtimes; and a count of bytes kept beside the tree, which is wrong as soon as anything else
 * writes.
 */
#include "agent/workspace.h"

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIST_MAX = 4096 };
static const char fresh_name[] = ".new"; /* hidden: no path of a policy's can name it */

/* ---- Paths ------------------------------------------------------------------------------------------------------- */

static const char *fault_of_path(const char *path)
{
	int depth = 0;
	if (!*path)
		return "is empty";
	if (*path == '/')
		return "is absolute; paths are relative to the workspace";
	if (strlen(path) > WW_WORKSPACE_PATH_BYTES)
		return "is too long";
	for (const char *p = path; *p; depth++) {
		size_t n = strcspn(p, "/");
		if (!n || (p[n] == '/' && !p[n + 1]))
			return "has an empty name in it";
		if (*p == '.')
			return "has a name that begins with a dot, which a workspace does not hold";
		for (size_t i = 0; i < n; i++)
			if (p[i] < ' ' || p[i] > '~' || p[i] == '\\')
				return "may only have printable ASCII in it, and no backslash";
		p += n + (p[n] == '/');
	}
	if (depth > WW_WORKSPACE_DEPTH)
		return "has too many folders in it";
	return !strncmp(path, "skill", 5) && (!path[5] || path[5] == '/') ? "belongs to the skill, which is read-only"
																	  : NULL;
}

int ww_workspace_is_path(const char *path, struct ww_str *why)
{
	const char *fault = fault_of_path(path);
	if (!fault)
		return 1;
	ww_str_adds(why, "path \"");
	ww_str_add_bounded(why, path, strlen(path), 80);
	ww_str_addf(why, "\" %s", fault);
	return 0;
}

/* Open the folder that contains `path`; *leaf points to the path's last name.  Missing folders are created where `make`
 * is set.  -1 and errno where that fails. */
static int enter(int dirfd, const char *path, int make, const char **leaf)
{
	char part[WW_WORKSPACE_PATH_BYTES + 1];
	int at = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	for (const char *slash; at >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
		memcpy(part, path, (size_t)(slash - path));
		part[slash - path] = 0;
		if (make && mkdirat(at, part, 0755) < 0 && errno != EEXIST) {
			ww_fd_close(&at);
			return -1;
		}
		int next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		int e = errno;
		close(at);
		errno = e;
		at = next;
	}
	*leaf = path;
	return at;
}

/* Errors by the state of the tree, which are answers for the policy. */
static const char *fault_of_errno(int e)
{
	return e == ENOENT                            ? "does not exist yet; write it first"
		: e == ENOTDIR || e == ELOOP              ? "leads through something that is not a folder"
		: e == EISDIR                             ? "is a folder"
		: e == ENXIO || e == EACCES || e == EPERM ? "is not a regular file that can be opened"
		: e == ENOSPC || e == EDQUOT              ? "does not fit: the workspace is full"
		: e == ENAMETOOLONG                       ? "has a name that is too long"
		: e == EAGAIN || e == ETXTBSY             ? "is in use by another process"
		: e == EFBIG || e == EOVERFLOW            ? "is too large"
		: e == EEXIST || e == ENOTEMPTY           ? "is in the way of another file"
												  : NULL;
}

static enum ww_rc answer_errno(const char *path, struct ww_str *why, struct ww_err *err)
{
	const char *fault = fault_of_errno(errno);
	if (!fault)
		return ww_err_errno(err, WW_ERR_IO, "cannot use the workspace's %s", path);
	ww_str_addf(why, "%s %s", path, fault);
	return WW_OK;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static int is_empty(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	for (struct dirent *e; d && (e = readdir(d));)
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	if (d)
		closedir(d);
	return d && !n;
}

enum ww_rc ww_workspace_open(
	struct ww_workspace *w, const char *dir, enum ww_target target, int resumes, struct ww_err *err)
{
	*w = (struct ww_workspace){ .dirfd = -1, .target = target };
	if (resumes)
		WW_CHECK(ww_fs_remove_tree(dir, err));
	WW_CHECK(ww_fs_mkdirs(dir, err));
	w->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (w->dirfd < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot open directory %s", dir);
	if (!is_empty(w->dirfd)) {
		ww_workspace_close(w);
		return ww_err_set(err, WW_ERR_USAGE,
			"cannot use %s: it holds files that no run wrote; choose another directory with -o", dir);
	}
	return WW_OK;
}

void ww_workspace_close(struct ww_workspace *w)
{
	if (w->dirfd >= 0)
		close(w->dirfd);
	w->dirfd = -1;
}

/* ---- Listing ----------------------------------------------------------------------------------------------------- */

static enum ww_rc add_entry(struct ww_workspace_list *l, const char *path, const struct stat *st, struct ww_err *err)
{
	char *copy = WW_GROW(l->entries, &l->cap, l->n + 1) ? strdup(path) : NULL;
	if (!copy)
		return ww_err_set(err, WW_ERR_NOMEM, "out of memory for the list of the workspace");
	int is_dir = S_ISDIR(st->st_mode);
	l->entries[l->n++] = (struct ww_workspace_entry){ copy, is_dir, is_dir ? 0 : st->st_size };
	l->bytes += is_dir ? 0 : st->st_size;
	return WW_OK;
}

static enum ww_rc list_folder(int at, const char *prefix, struct ww_workspace_list *l, struct ww_err *err);

static enum ww_rc list_name(
	int at, const char *prefix, const char *name, struct ww_workspace_list *l, struct ww_err *err)
{
	char path[WW_WORKSPACE_PATH_BYTES + 2];
	struct stat st;
	if ((size_t)snprintf(path, sizeof(path), "%s%s", prefix, name) >= sizeof(path) || fault_of_path(path) ||
		fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
		return WW_OK;
	if (l->n >= LIST_MAX) {
		l->more = 1;
		return WW_OK;
	}
	enum ww_rc rc = add_entry(l, path, &st, err);
	if (rc != WW_OK || !S_ISDIR(st.st_mode))
		return rc;
	int below = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	strcat(path, "/");
	return below >= 0 ? list_folder(below, path, l, err) : WW_OK;
}

/* Takes `at`. */
static enum ww_rc list_folder(int at, const char *prefix, struct ww_workspace_list *l, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	DIR *d = fdopendir(at);
	if (!d) {
		close(at);
		return WW_OK;
	}
	for (struct dirent *e; rc == WW_OK && !l->more && (e = readdir(d));)
		rc = list_name(at, prefix, e->d_name, l, err);
	closedir(d);
	return rc;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct ww_workspace_entry *)a)->path, ((const struct ww_workspace_entry *)b)->path);
}

enum ww_rc ww_workspace_list(const struct ww_workspace *w, struct ww_workspace_list *out, struct ww_err *err)
{
	memset(out, 0, sizeof(*out));
	int at = openat(w->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (at < 0 && errno == EACCES) /* a command's, as of folders below: what nobody may list holds nothing */
		return WW_OK;
	if (at < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot read the workspace");
	enum ww_rc rc = list_folder(at, "", out, err);
	if (out->n)
		qsort(out->entries, out->n, sizeof(*out->entries), by_path);
	return rc;
}

void ww_workspace_list_release(struct ww_workspace_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->entries[i].path);
	free(l->entries);
	memset(l, 0, sizeof(*l));
}

/* ---- Writing and reading ----------------------------------------------------------------------------------------- */

/* Entries that writing `path` would add: itself and the folders above it. */
static size_t count_new(const struct ww_workspace_list *l, const char *path, int64_t *old_bytes)
{
	size_t missing = 1;
	for (const char *p = path; *p; p++)
		missing += *p == '/';
	*old_bytes = 0;
	for (size_t i = 0; i < l->n; i++) {
		size_t n = strlen(l->entries[i].path);
		if (strncmp(l->entries[i].path, path, n) || (path[n] && path[n] != '/'))
			continue;
		missing--;
		if (!path[n])
			*old_bytes = l->entries[i].bytes;
	}
	return missing;
}

static enum ww_rc check_limits(
	const struct ww_workspace *w, const char *path, size_t n, struct ww_str *why, struct ww_err *err)
{
	WW_AUTO(ww_workspace_list_release) struct ww_workspace_list l;
	int64_t old_bytes;
	WW_CHECK(ww_workspace_list(w, &l, err));
	if (n > WW_WORKSPACE_FILE_BYTES)
		ww_str_addf(why, "%s would be %zu bytes; a file may have at most %d", path, n, WW_WORKSPACE_FILE_BYTES);
	else if (l.more || l.n + count_new(&l, path, &old_bytes) > WW_WORKSPACE_ENTRIES)
		ww_str_addf(why, "%s does not fit: the workspace holds %zu files and folders, and may hold %d", path, l.n,
			WW_WORKSPACE_ENTRIES);
	else if (l.bytes - old_bytes + (int64_t)n > WW_WORKSPACE_BYTES)
		ww_str_addf(why, "%s does not fit: the workspace holds %lld bytes, and may hold %d", path, (long long)l.bytes,
			WW_WORKSPACE_BYTES);
	return WW_OK;
}

/* A new file beside the old one, then renamed over it; -1 and errno. */
static int replace_in(int at, const char *leaf, const char *text, size_t n)
{
	if (unlinkat(at, fresh_name, 0) < 0 && errno != ENOENT)
		return -1;
	int fd = openat(at, fresh_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	int r = ww_fd_write_all(fd, text, n) < 0 || renameat(at, fresh_name, at, leaf) < 0 ? -1 : 0;
	int e = errno;
	close(fd);
	if (r < 0)
		unlinkat(at, fresh_name, 0);
	errno = e;
	return r;
}

enum ww_rc ww_workspace_write(
	const struct ww_workspace *w, const char *path, const char *text, size_t n, struct ww_str *why, struct ww_err *err)
{
	const char *leaf;
	enum ww_rc rc = w->unlimited ? WW_OK : check_limits(w, path, n, why, err);
	if (rc != WW_OK || why->len)
		return rc;
	WW_AUTO(ww_fd_close) int at = enter(w->dirfd, path, 1, &leaf);
	if (at < 0 || replace_in(at, leaf, text, n) < 0)
		rc = answer_errno(path, why, err);
	return rc;
}

enum ww_rc ww_workspace_remove(const struct ww_workspace *w, const char *path, struct ww_err *err)
{
	char above[WW_WORKSPACE_PATH_BYTES + 1];
	const char *leaf;
	int at = enter(w->dirfd, path, 0, &leaf);
	if (at < 0 || unlinkat(at, leaf, 0) < 0) {
		int e = errno;
		ww_fd_close(&at);
		errno = e;
		return fault_of_errno(e) ? WW_OK : ww_err_errno(err, WW_ERR_IO, "cannot remove the workspace's %s", path);
	}
	ww_fd_close(&at);
	snprintf(above, sizeof(above), "%s", path);
	for (char *slash; (slash = strrchr(above, '/'));) {
		*slash = 0;
		at = enter(w->dirfd, above, 0, &leaf);
		int more = at >= 0 && unlinkat(at, leaf, AT_REMOVEDIR) == 0;
		ww_fd_close(&at);
		if (!more)
			break;
	}
	return WW_OK;
}

/* The regular file `path`, or -1 and errno. */
static int open_file(const struct ww_workspace *w, const char *path)
{
	const char *leaf;
	struct stat st;
	int at = enter(w->dirfd, path, 0, &leaf);
	if (at < 0)
		return -1;
	int fd = openat(at, leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), e = errno;
	close(at);
	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
		e = S_ISDIR(st.st_mode) ? EISDIR : EACCES;
		ww_fd_close(&fd);
	}
	errno = fd < 0 && e == ELOOP ? EACCES : e; /* the file itself is a link */
	return fd;
}

enum ww_rc ww_workspace_read(const struct ww_workspace *w, const char *path, struct ww_str *out, int *found,
	struct ww_str *why, struct ww_err *err)
{
	char chunk[16384];
	enum ww_rc rc = WW_OK;
	*found = 0;
	int fd = open_file(w, path);
	if (fd < 0)
		return answer_errno(path, why, err);
	for (ssize_t n; !out->cut && (n = read(fd, chunk, sizeof(chunk))) != 0;) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = answer_errno(path, why, err);
			goto out;
		}
		ww_str_add(out, chunk, (size_t)n);
	}
	*found = !out->cut;
	if (out->cut)
		ww_str_addf(why, "%s is larger than %zu bytes", path, out->max);
out:
	close(fd);
	return rc;
}

/* ---- The solution ------------------------------------------------------------------------------------------------ */

void ww_workspace_content_init(struct ww_workspace_content *c)
{
	ww_solution_begin(&c->files, WW_FORM_PLAN, 0);
	c->id[0] = 0;
}

void ww_workspace_content_release(struct ww_workspace_content *c) { ww_solution_files_release(&c->files); }

/* The record is JSON: what is not text cannot be a solution. */
static int is_text(const struct ww_str *s)
{
	json_t *j = memchr(s->p, 0, s->len) ? NULL : json_stringn(s->p, s->len);
	json_decref(j);
	return j != NULL;
}

/* *found: it is there, as text. */
static enum ww_rc take_one(
	const struct ww_workspace *w, const char *name, struct ww_workspace_content *c, int *found, struct ww_err *err)
{
	ww_auto_str why = WW_STR_INIT(512), text = WW_STR_INIT(WW_SOLUTION_MAX_BYTES);
	WW_CHECK(ww_workspace_read(w, name, &text, found, &why, err));
	*found = *found && is_text(&text);
	return *found ? ww_solution_add(&c->files, name, text.p, text.len, err) : WW_OK;
}

/* Optional files of a solution: kernels/ of CUDA Agent's form. */
static enum ww_rc take_rest(const struct ww_workspace *w, struct ww_workspace_content *c, struct ww_err *err)
{
	WW_AUTO(ww_workspace_list_release) struct ww_workspace_list l;
	int found;
	WW_CHECK(ww_workspace_list(w, &l, err));
	for (size_t i = 0; i < l.n && c->files.n < WW_SOLUTION_MAX_FILES; i++)
		if (!l.entries[i].is_dir && !strncmp(l.entries[i].path, "kernels/", 8) &&
			ww_solution_has_place(w->form, w->target, l.entries[i].path))
			WW_CHECK(take_one(w, l.entries[i].path, c, &found, err));
	return WW_OK;
}

enum ww_rc ww_workspace_take(
	const struct ww_workspace *w, struct ww_workspace_content *c, const char **missing, struct ww_err *err)
{
	const char *need;
	*missing = NULL;
	ww_solution_files_release(&c->files);
	ww_solution_begin(&c->files, w->form, w->target);
	for (int k = 0, found; (need = ww_solution_needs(w->form, w->target, k)); k++) {
		WW_CHECK(take_one(w, need, c, &found, err));
		if (!found && !*missing)
			*missing = need;
	}
	if (w->form == WW_FORM_CUDA_AGENT)
		WW_CHECK(take_rest(w, c, err));
	ww_solution_end(&c->files);
	ww_solution_id(&c->files.solution, c->id);
	return WW_OK;
}
