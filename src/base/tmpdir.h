/* tmpdir.h - a private directory that is removed once its owner has ended, also by kill -9. */
#pragma once

#include "base/err.h"

#include <limits.h>

struct ww_tmpdir {
	char path[PATH_MAX]; /* "" where there is none */
	int fd;              /* the directory, locked */
};
#define WW_TMPDIR_INIT { "", -1 }

/* Make $TMPDIR/warpwright-NAME-XXXXXX (/tmp where $TMPDIR is no absolute path), mode 0700.  Also removes this user's
 * warpwright-* directories whose owners have ended (tmpdir.c). */
enum ww_rc ww_tmpdir_new(struct ww_tmpdir *t, const char *name, struct ww_err *err) WW_MUST_CHECK;
/* Only remove those: for the start of a process that makes its own directory much later. */
void ww_tmpdir_sweep(void);
/* Remove it with all that is in it.  Safe twice, and on WW_TMPDIR_INIT. */
void ww_tmpdir_remove(struct ww_tmpdir *t);
