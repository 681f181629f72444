/* ends.h - the three channels to a process that another process has forked for us: its socket, its output, its end. */
#pragma once

#include "base/err.h"

/* Index 0 is ours, 1 the forked process's; -1: closed, or given away. */
struct ww_ends {
	int sock[2], log[2], status[2];
};

#define WW_ENDS_NONE ((struct ww_ends){ { -1, -1 }, { -1, -1 }, { -1, -1 } })

/* Make all six, close-on-exec.  WW_ERR_SYSTEM, and then ww_ends_close() is still to be called. */
enum ww_rc ww_ends_open(struct ww_ends *e, struct ww_err *err) WW_MUST_CHECK;
/* Close those that are open.  While this process holds the write end of a pipe, its end of file is not seen. */
void ww_ends_close(struct ww_ends *e);
