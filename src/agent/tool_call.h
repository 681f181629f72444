/* tool_call.h - tools as commands inside the shell's sandbox: the episode's side (shell/calls.h has the other). */
#pragma once

#include "agent/tools.h"

enum { WW_TOOL_CALLS_MAX = 16 }; /* in one call of bash, bash_output or kill_bash */

/* The calls that processes make while one tool of the shell is under way. */
struct ww_tool_calls {
	struct ww_tool_env *env; /* of that tool */
	json_t *list;            /* what was called, for the record; NULL: nothing was */
	int n;
};

/* Run one call; a shell's on_call with a struct ww_tool_calls as ctx.  `words` are a tool's name and options, separated
 * by tabs and not trusted.  The solution is taken from the shell's own tree.  A mistake of the process, or a budget
 * that is used up, goes into text and code; an error return is a failure of ours. */
enum ww_rc ww_tool_call_run(void *ctx, const char *words, struct ww_str *text, unsigned *code, struct ww_err *err);
