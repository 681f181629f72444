/* fs.h - files: bounded reads, writes that are whole or not there.
 *
 * Nothing that a user keeps is ever written in place: ww_fs_write() writes a temporary file beside the target, syncs it
 * and renames it over, so a kill or a full disk leaves the old file or the new one, never half of one.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>

/* Append the whole file to out.  Longer than max_bytes: WW_ERR_LIMIT.  Directories and special files are refused with
 * WW_ERR_USAGE, as is what cannot be opened for a reason that lies in the path (missing, forbidden, a loop of symbolic
 * links, leased by another process). */
enum ww_rc ww_fs_read(const char *path, size_t max_bytes, struct ww_str *out, struct ww_err *err) WW_MUST_CHECK;
/* Write atomically (see above), mode 0644. */
enum ww_rc ww_fs_write(const char *path, const void *bytes, size_t n, struct ww_err *err) WW_MUST_CHECK;
/* Create the directory and its parents, as mkdir -p; an existing one is fine. */
enum ww_rc ww_fs_mkdirs(const char *path, struct ww_err *err) WW_MUST_CHECK;
/* Remove a tree; symbolic links are removed, never followed.  A missing path is fine. */
enum ww_rc ww_fs_remove_tree(const char *path, struct ww_err *err) WW_MUST_CHECK;
/* Open a file that a run keeps in its directory and goes on with; flags are those of open(2), the mode 0644.  The
 * directory may be somebody else's work, so what is there must be a regular file and no link: writing through one, or
 * cutting what it points to, would reach any file of the user's.  WW_ERR_USAGE where it is something else, or missing.
 */
enum ww_rc ww_fs_open_own(int *fd, const char *path, int flags, struct ww_err *err) WW_MUST_CHECK;
/* As much of a small file (of /proc, say) as fits, as text: its bytes; 0, and "", where there is none.  dir as of
 * openat(2). */
size_t ww_fs_peek(int dir, const char *name, char *text, size_t size);
/* Every regular file below a directory, folder by folder in the order of names: each(ctx, path), until it fails. Hidden
 * ones and links are passed over.  More than 64 folders in each other are WW_ERR_LIMIT. */
enum ww_rc ww_fs_walk(const char *dir, enum ww_rc (*each)(void *ctx, const char *path, struct ww_err *err), void *ctx,
	struct ww_err *err) WW_MUST_CHECK;
int ww_fs_is_file(const char *path);
int ww_fs_is_dir(const char *path);
/* First of $PATH's directories that holds an executable `name`, into out (PATH_MAX bytes); 0 where there is none. */
int ww_fs_which(const char *name, char *out);
/* dir + "/" + name into out (PATH_MAX bytes); too long is a WW_ERR_LIMIT. */
enum ww_rc ww_fs_join(char *out, const char *dir, const char *name, struct ww_err *err) WW_MUST_CHECK;
/* Path of a directory that comes with the program ("bridge", "skills", ...), into out (PATH_MAX bytes): in
 * ../share/warpwright of a distribution, in the source tree of a build.  WW_ERR_MISSING says where it looked. */
enum ww_rc ww_fs_resource(const char *what, char *out, struct ww_err *err) WW_MUST_CHECK;
/* A plug-in of ours (a shared library): beside the binary in a build, in ../lib/warpwright of an installation. PATH_MAX
 * bytes; WW_ERR_MISSING where there is none. */
enum ww_rc ww_fs_plugin(const char *file, char *out, struct ww_err *err) WW_MUST_CHECK;
/* The warpwright binary, which worker processes are started from: this program, or $WARPWRIGHT where this is another
 * one (a test).  PATH_MAX bytes.  A binary that was replaced while it ran is refused with WW_ERR_MISSING. */
enum ww_rc ww_fs_program(char *out, struct ww_err *err) WW_MUST_CHECK;
/* $XDG_CACHE_HOME/warpwright or ~/.cache/warpwright, created; falls back to a directory under /tmp of this user. */
enum ww_rc ww_fs_cache_dir(char *out, struct ww_err *err) WW_MUST_CHECK;

/* Wait for `events` of poll(2); a passed deadline (below) is WW_ERR_TIMEOUT. */
enum ww_rc ww_fd_wait(int fd, short events, unsigned long long deadline_ns, struct ww_err *err) WW_MUST_CHECK;
/* Descriptors: read or write exactly n bytes before deadline_ns (ww_now_ns() clock; 0 waits for ever).  End of file
 * before n bytes is WW_ERR_WORKER ("closed"), a passed deadline WW_ERR_TIMEOUT.  SIGPIPE never results. */
enum ww_rc ww_fd_read(int fd, void *buf, size_t n, unsigned long long deadline_ns, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_fd_write(
	int fd, const void *buf, size_t n, unsigned long long deadline_ns, struct ww_err *err) WW_MUST_CHECK;
/* The same to a file, without a deadline: 0, or -1 and errno. */
int ww_fd_write_all(int fd, const void *bytes, size_t n) WW_MUST_CHECK;
int ww_fd_memfd(const char *name, const void *bytes, size_t n); /* memory with these bytes; -1 and errno */
void ww_fd_close(int *fd);                                      /* close if >= 0 and set to -1 */
