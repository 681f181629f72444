/* child.h - run a command of this program as a process of its own on behalf of a call. */
#pragma once

#include "serve/mcp.h"

enum { WW_CHILD_STOP_S = 20 }; /* from a cancelled call to SIGKILL */

/* Run `warpwright ARGS...` (ends with NULL).  Each line of its stderr becomes progress of the call, the last one goes
 * to `last` (may be empty), its stdout to `out` (bounded by it).  A cancelled call ends the child by SIGTERM, on which
 * commands of ours end in good order, and is WW_ERR_INTERRUPTED.  *code is the exit code; a child that dies by a signal
 * is WW_ERR_WORKER. */
enum ww_rc ww_child_run(const char *const *args, struct ww_mcp_call *call, struct ww_str *out, struct ww_str *last,
	int *code, struct ww_err *err) WW_MUST_CHECK;
