/* workspace.h - the directory that a policy writes its solution in.
 *
 * Two names exist in it, kernels.cu (kernels.c on the cpu target) and plan.c; every other path is refused by name.
 * Files are taken by content: the judge gets bytes, never a path.  All opens are relative to a descriptor of the
 * directory and refuse symbolic links and anything that is not a regular file, so that whatever else runs inside
 * cannot redirect them.
 */
#ifndef WW_AGENT_WORKSPACE_H
#define WW_AGENT_WORKSPACE_H

#include "base/err.h"
#include "base/str.h"

#include <ww/plan.h>

struct ww_workspace {
	int dirfd;
	enum ww_target target;
};

/* A solution's files as the workspace held them. */
struct ww_workspace_content {
	struct ww_str device, plan;
	char id[65];
};

/* Open (and create) `dir`; files left from before are removed: the episode says what the workspace holds. */
enum ww_rc ww_workspace_open(struct ww_workspace *w, const char *dir, enum ww_target target,
			     struct ww_err *err) WW_MUST_CHECK;
void ww_workspace_close(struct ww_workspace *w);

/* 1 where `path` is one of the two names; else 0, and why (for the policy) in `why`. */
int ww_workspace_knows(const struct ww_workspace *w, const char *path, struct ww_str *why);
/* Replace a file; atomic.  `path` must be known, n at most WW_SOLUTION_MAX_BYTES. */
enum ww_rc ww_workspace_write(const struct ww_workspace *w, const char *path, const char *text, size_t n,
			      struct ww_err *err) WW_MUST_CHECK;
/* Append a file to out.  *found is 0 where there is none, or something that is not a regular file. */
enum ww_rc ww_workspace_read(const struct ww_workspace *w, const char *path, struct ww_str *out, int *found,
			     struct ww_err *err) WW_MUST_CHECK;

void ww_workspace_content_init(struct ww_workspace_content *c);
void ww_workspace_content_release(struct ww_workspace_content *c);
/* Both files and their id; *missing names the first file that is not there, or is NULL. */
enum ww_rc ww_workspace_take(const struct ww_workspace *w, struct ww_workspace_content *c, const char **missing,
			     struct ww_err *err) WW_MUST_CHECK;

#endif
