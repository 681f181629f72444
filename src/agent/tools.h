/* tools.h - what a policy, or a client over MCP, may call.
 *
 * tools.def lists them.  A tool has a JSON schema, and the schema is what arguments are checked against
 * (base/schema.h).  Its result goes to the policy twice: as text (bounded, for models) and as JSON (for policies that
 * are programs).  A call that cannot be carried out as written is `malformed`: an answer, not an error of ours.
 */
#pragma once

#include "agent/agent.h"
#include "agent/shell/shell.h"
#include "agent/workspace.h"

enum { WW_TOOL_TEXT_MAX_BYTES = 24 << 10 };

struct ww_tool_result {
	struct ww_str text;
	json_t *data; /* owned, may be NULL */
	int is_error;
	int malformed; /* counts towards the stop after repeated ones */
};

/* What tools work on.  In the loop the functions return recorded verdicts of a resumed run, and count device seconds;
 * over MCP they ask the broker (serve/tools.c), and members that only the loop has are NULL. */
struct ww_tool_env {
	const struct ww_agent_opts *opts;
	const struct ww_workspace *workspace;
	struct ww_shell *shell; /* of the episode; NULL: there is none */
	/* *data: ww_tool_inspect_data() of the task. */
	enum ww_rc (*inspect)(struct ww_tool_env *env, json_t **data, struct ww_err *err);
	/* Judge the solution, and record it and the verdict under `call_id`.  *missing: the file without which there is
	 * nothing to judge; NULL. */
	enum ww_rc (*judge)(struct ww_tool_env *env, enum ww_judge_depth depth, struct ww_verdict *v, json_t **data,
		const char **missing, struct ww_err *err);
	/* Profile the solution, or the reference. */
	enum ww_rc (*profile)(
		struct ww_tool_env *env, int of_solution, json_t **data, const char **missing, struct ww_err *err);
	/* The budget that is used up, or NULL. */
	const char *(*out_of)(struct ww_tool_env *env);
	void *ctx;
	const char *call_id;
};

struct ww_tool {
	struct ww_tool_spec spec;
	/* A mistake of the policy is an answer in r; an error return is a failure of ours. */
	enum ww_rc (*run)(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err);
	int changes_files; /* on a resume its answered calls run again, and rebuild the workspace */
	/* For tools that cannot be repeated: apply the changes that the recorded answer's data lists. */
	enum ww_rc (*redo)(struct ww_tool_env *env, const json_t *data, struct ww_err *err);
	/* Where it is offered over MCP. */
	struct {
		const char *title, *output_schema;
		enum { WW_TOOL_ARGS = 0, WW_TOOL_TASK, WW_TOOL_SOLUTION } takes; /* beside its own arguments; SOLUTION: both */
		int changes_nothing;                                             /* outside its answer */
		int slow, resumes;                                               /* as struct ww_mcp_tool has them */
	} mcp;
};

#define TOOL(name, loop, shell, mcp) extern const struct ww_tool ww_tool_##name;
#include "agent/tools.def"
#undef TOOL

#define WW_TOOL_NO_ARGS "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"
#define WW_TOOL_VERDICT \
	"{\"type\":\"object\",\"properties\":{\"status\":{\"type\":\"string\"},\"correct\":{\"type\":\"boolean\"}," \
	"\"reward\":{\"type\":\"number\"},\"diagnostics\":{\"type\":\"string\"}},\"required\":[\"status\",\"correct\"]}"

/* All tools of the loop, in the order they are told to policies. */
const struct ww_tool_spec *ww_tools_specs(size_t *n);
/* The same as the header of an episode has it: [{"name", "description", "parameters"}]; NULL out of memory. */
json_t *ww_tools_json(void);
/* What an answered call did to the files of the workspace and to the shell, once more; `data` is that of its answer. */
enum ww_rc ww_tools_redo(
	struct ww_tool_env *env, const struct ww_tool_call *call, const char *data, struct ww_err *err) WW_MUST_CHECK;
/* The tool of the loop of that name, or NULL. */
const struct ww_tool *ww_tools_find(const char *name);
int ww_tools_in_shell(const struct ww_tool *t);
/* What inspect answers: {"target", "device", "graph"}; borrows the graph; NULL out of memory. */
json_t *ww_tool_inspect_data(enum ww_target target, const struct ww_device *d, const json_t *graph);
/* Carry out one call.  `r` is initialised here and released by the caller. */
enum ww_rc ww_tools_call(struct ww_tool_env *env, const struct ww_tool_call *call, struct ww_tool_result *r,
	struct ww_err *err) WW_MUST_CHECK;
void ww_tool_result_release(struct ww_tool_result *r);
/* A verdict as a policy reads it. */
void ww_tool_verdict_text(const struct ww_verdict *v, enum ww_judge_depth depth, struct ww_str *out);
/* Answer that the call was wrong. */
void ww_tool_malformed(struct ww_tool_result *r, const char *fmt, ...) WW_PRINTF(2, 3);
