/* tool_bash.h - what the file tools need of the shell. */
#pragma once

#include "agent/tools.h"

/* Put a file that a tool writes into the tree of the running shell, if there is one.  Where that tree does not take it
 * (a link is in its way), nothing changes and `refused` says why.  A shell that breaks over it is closed, and `note`
 * gets a line about that for the policy. */
void ww_tool_bash_put(
	struct ww_tool_env *env, const char *path, const char *text, size_t n, struct ww_str *refused, struct ww_str *note);
