/* loop.h - the state of an episode under way, and what the three parts of the loop share: loop_open.c (beginning and
 * going on), loop.c (turns), loop_close.c (the closing judgement).  Only they include it. */
#pragma once

#include "agent/agent.h"
#include "agent/context.h"
#include "agent/tools.h"

#include <limits.h>

struct ww_agent_loop {
	const struct ww_agent_opts *opts;
	struct ww_agent_result *result;
	struct ww_episode_writer *episode;
	struct ww_episode past;    /* what was recorded before this process */
	struct ww_episode answers; /* opts->answers */
	struct ww_message *msgs;
	size_t n_msgs, cap_msgs;
	struct ww_workspace workspace;
	struct ww_shell shell;
	struct ww_tool_env env;
	int turn;
	enum ww_finish last_finish; /* of the newest assistant message */
	struct ww_context context;
	struct ww_budget_hold hold;
	/* Of this process alone, since a record may have been changed by hand: the highest reward of a verdict, and the
	 * solution of result->best where its verdict is one of them ("" otherwise). */
	double measured_reward;
	char measured_id[65];
	int beyond_budget;                 /* judge though no device seconds are left */
	int not_judged;                    /* the newest judgement was not made: no device seconds were left */
	int out_of_budget, out_of_context; /* the newest question could not be asked */
	char journal[PATH_MAX];
	char (*recorded)[65]; /* ids of the solution lines */
	size_t n_recorded;
};

/* Everything up to the first question: the files, a new record's header and prompt, or what an old one holds. */
enum ww_rc ww_loop_open(struct ww_agent_loop *l, struct ww_err *err) WW_MUST_CHECK;
/* The closing judgements, and the record's last line. */
enum ww_rc ww_loop_finish(struct ww_agent_loop *l, const char *reason, struct ww_err *err) WW_MUST_CHECK;

/* ---- What loop.c does for the others */

void ww_loop_tell(struct ww_agent_loop *l, struct ww_agent_event e);
int ww_loop_interrupted(const struct ww_agent_loop *l);
/* WW_ERR_INTERRUPTED, with its message. */
enum ww_rc ww_loop_stop_interrupted(struct ww_err *err) WW_MUST_CHECK;
/* Append `m` to the conversation, which then owns it; *m is zeroed. */
enum ww_rc ww_loop_keep(struct ww_agent_loop *l, struct ww_message *m, struct ww_err *err) WW_MUST_CHECK;
/* Record and keep a message; the text is taken. */
enum ww_rc ww_loop_say_text(struct ww_agent_loop *l, enum ww_role role, char *text, struct ww_err *err) WW_MUST_CHECK;
/* The solution with this id is in the record. */
enum ww_rc ww_loop_note_recorded(struct ww_agent_loop *l, const char *id, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_loop_content_of(const struct ww_agent_loop *l, const struct ww_episode_solution *s,
	struct ww_workspace_content *c, struct ww_err *err) WW_MUST_CHECK;
/* The files that a message carries go to the workspace. */
enum ww_rc ww_loop_take_answer(struct ww_agent_loop *l, const struct ww_message *m, struct ww_err *err) WW_MUST_CHECK;
/* A verdict on these files, recorded: one that the record has already, or else the judge's; judge_now: always the
 * judge's. WW_ERR_LIMIT with l->not_judged: no device seconds are left. */
enum ww_rc ww_loop_judge_content(struct ww_agent_loop *l, const struct ww_workspace_content *c, const char *call_id,
	enum ww_judge_depth depth, struct ww_verdict *v, json_t **data, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_loop_judge_now(struct ww_agent_loop *l, const struct ww_workspace_content *c, const char *call_id,
	enum ww_judge_depth depth, struct ww_verdict *v, json_t **data, struct ww_err *err) WW_MUST_CHECK;
int ww_loop_device_is_spent(const struct ww_agent_loop *l);
