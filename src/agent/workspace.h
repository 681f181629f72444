/* workspace.h - the directory tree that a policy works in.
 *
 * A policy may keep other files here: notes, variants, programs that test an idea.  The files of the solution's form
 * alone are the solution (judge/solution.h: kernels.cu, or kernels.c on the cpu target, and plan.c; kernel.py;
 * model_new.py and kernels/), and they are taken by content: the judge gets bytes, never a path.
 *
 * A path is relative, made of printable ASCII names that do not begin with a dot, and goes at most WW_WORKSPACE_DEPTH
 * names deep; "skill" at the top is the skill's.  Each name is opened below the descriptor of the folder before it, and
 * symbolic links and anything that is neither a folder nor a regular file are refused where they are met.  So no
 * process can redirect an access by replacing files: there is no time between check and use.
 *
 * Limits are those of a workspace, not of a call: entries (files and folders) and bytes in all.  A write that would
 * pass them is refused and changes nothing.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "judge/solution.h"

#include <ww/plan.h>

#include <stdint.h>

enum {
	WW_WORKSPACE_ENTRIES = 256, /* files and folders */
	WW_WORKSPACE_BYTES = 16 << 20,
	WW_WORKSPACE_FILE_BYTES = 1 << 20, /* of a file that tools write or read */
	WW_WORKSPACE_DEPTH = 8,            /* names in a path */
	WW_WORKSPACE_PATH_BYTES = 240
};

struct ww_workspace {
	int dirfd;
	enum ww_target target;
	enum ww_form form; /* of the solution in it */
	int unlimited;     /* its file system limits it, not the bounds above: the shell's own tree */
};

/* A solution's files as the workspace held them. */
struct ww_workspace_content {
	struct ww_solution_files files;
	char id[65];
};

struct ww_workspace_entry {
	char *path;
	int is_dir;
	int64_t bytes;
};

/* What tools can name, sorted by path; `more` where the workspace holds more than a list may (bash can make them). */
struct ww_workspace_list {
	struct ww_workspace_entry *entries;
	size_t n, cap;
	int64_t bytes; /* of all regular files that were seen */
	int more;
};

/* Open (and create) `dir`.  Where it is the run's own (`resumes`), files left from before are removed: the episode says
 * what the workspace holds.  Else a folder with anything in it is a WW_ERR_USAGE, and nothing is touched. */
enum ww_rc ww_workspace_open(
	struct ww_workspace *w, const char *dir, enum ww_target target, int resumes, struct ww_err *err) WW_MUST_CHECK;
void ww_workspace_close(struct ww_workspace *w);

/* 1 where `path` is one that a workspace can hold; else 0, and why (for the policy) in `why`. */
int ww_workspace_is_path(const char *path, struct ww_str *why);
/* Replace a file, atomically, and make the folders above it.  What the workspace does not allow goes into `why`, and
 * nothing was changed then.  `path` must be known. */
enum ww_rc ww_workspace_write(const struct ww_workspace *w, const char *path, const char *text, size_t n,
	struct ww_str *why, struct ww_err *err) WW_MUST_CHECK;
/* Remove a file, and the folders above it that it leaves empty.  One that is not there, or is no file, is fine. */
enum ww_rc ww_workspace_remove(const struct ww_workspace *w, const char *path, struct ww_err *err) WW_MUST_CHECK;
/* Append a file to out.  Where there is none that can be read (absent, a folder, a link, a device, longer than out may
 * be) `why` says so and *found is 0. */
enum ww_rc ww_workspace_read(const struct ww_workspace *w, const char *path, struct ww_str *out, int *found,
	struct ww_str *why, struct ww_err *err) WW_MUST_CHECK;
/* Every folder and regular file; `out` is released by the caller in any case. */
enum ww_rc ww_workspace_list(
	const struct ww_workspace *w, struct ww_workspace_list *out, struct ww_err *err) WW_MUST_CHECK;
void ww_workspace_list_release(struct ww_workspace_list *l);

void ww_workspace_content_init(struct ww_workspace_content *c);
void ww_workspace_content_release(struct ww_workspace_content *c);
/* The solution's files and their id; *missing names the first needed one that is not there as a regular file of text,
 * or is NULL. */
enum ww_rc ww_workspace_take(const struct ww_workspace *w, struct ww_workspace_content *c, const char **missing,
	struct ww_err *err) WW_MUST_CHECK;
