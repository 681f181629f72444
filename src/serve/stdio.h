/* stdio.h - MCP over two descriptors, one JSON object a line. */
#pragma once

#include "serve/mcp.h"

/* Serve until the input ends, the output breaks or *interrupted; a longer line than a message may be is answered with
 * an error and skipped.  Calls that run are cancelled at the end, not waited for: ww_mcp_free() does. */
enum ww_rc ww_stdio_serve(
	struct ww_mcp *m, int in, int out, const volatile int *interrupted, struct ww_err *err) WW_MUST_CHECK;
