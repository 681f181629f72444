/* tmpdir.h - a private directory that goes when its owner does, however that ends. */
#pragma once

#include "base/err.h"

#include <limits.h>

struct ww_tmpdir {
	char path[PATH_MAX]; /* "" where there is none */
	int fd;              /* the directory, locked */
};
#define WW_TMPDIR_INIT { "", -1 }

/* Make $TMPDIR/warpwright-NAME-XXXXXX (/tmp where $TMPDIR is no absolute path), mode 0700.  Directories of the
 * program's names (tmpdir.c) whose owners have died are removed on the way. */
enum ww_rc ww_tmpdir_new(struct ww_tmpdir *t, const char *name, struct ww_err *err) WW_MUST_CHECK;
/* Do that alone, when a process starts that makes its first one late. */
void ww_tmpdir_sweep(void);
/* Remove it with all that is in it.  Safe twice, and on WW_TMPDIR_INIT. */
void ww_tmpdir_remove(struct ww_tmpdir *t);
