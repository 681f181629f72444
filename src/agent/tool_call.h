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

/* Carry one out: `words` are a tool's name and options, with tabs between them, as anybody in the sandbox may write
 * them. The solution is what lies in the shell's own tree.  What the policy's process did wrong, and a budget that is
 * used up, go into text and code; an error return is infrastructure.  To be a shell's on_call, with a struct
 * ww_tool_calls as its context. */
enum ww_rc ww_tool_call_run(void *ctx, const char *words, struct ww_str *text, unsigned *code, struct ww_err *err);
