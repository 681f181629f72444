/* agent.h - one run of a policy against one task: the loop, its tools, its budgets, its record.
 *
 * Everything durable is in the episode (src/episode/episode.h); the loop's state is a function of its lines.  So
 * resuming after kill -9 is the same code as taking the next step, and an interrupted run ends as it would have without
 * the interruption.  In the output directory the loop writes
 *
 *     episode.jsonl    the record
 *     reply.journal    a policy's reply while it arrives (only policies over HTTP)
 *     workspace/       what the policy is writing now
 *     solution/        the best solution so far, replaced as a whole
 *     verdict.json     its verdict
 */
#pragma once

#include "agent/budget.h"
#include "agent/skill.h"
#include "base/err.h"
#include "judge/judge.h"

#include "episode/episode.h"
#include "policy/policy.h"

/* What the loop needs of a judge.  Tests fill it with a script, the commands with ww_agent_use_judge(). */
struct ww_agent_judge {
	void *ctx;
	enum ww_rc (*run)(
		void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err);
	/* A profile (docs/profile.md) of the solution, or with s = NULL of the task's reference.  The caller owns the JSON
	 * object. */
	enum ww_rc (*profile)(void *ctx, const struct ww_solution *s, json_t **out, struct ww_err *err);
	int accounts; /* run() and profile() add their device seconds to the budget themselves */
	const json_t *graph;
	const struct ww_device *device;
	const char *device_name;
};
struct ww_agent_judge ww_agent_use_judge(struct ww_judge_task *t, const char *device_name);

enum ww_agent_event_kind {
	WW_AGENT_THINKING, /* the policy is asked */
	WW_AGENT_SAID,     /* it answered; text: first line of its message */
	WW_AGENT_TOOL,     /* a tool is about to run; tool */
	WW_AGENT_VERDICT,  /* verdict, is_best */
	WW_AGENT_FINAL /* the closing judgement begins; text: what disturbed the one before, which is repeated after pause_s
	                */
};
struct ww_agent_event {
	enum ww_agent_event_kind kind;
	int episode; /* which of many, from 1; 0: the only one */
	int turn;
	double seconds; /* of the episode */
	double pause_s;
	const char *text, *tool;
	const struct ww_verdict *verdict;
	int is_best;
};

/* How a policy and the judge take turns. */
enum ww_loop {
	WW_LOOP_AGENT,  /* the policy calls tools */
	WW_LOOP_SINGLE, /* the first message that completes a solution ends the episode; only the end is judged */
	WW_LOOP_REFINE, /* the policy answers with files, and is told the verdict, until its turns are used up */
	WW_LOOP_COUNT
};
const char *ww_loop_name(enum ww_loop l); /* "agent", "single", "refine" */

/* What a policy is told before it begins: everything (prompt.c), or a thousand tokens (compact.h). */
enum ww_prompt { WW_PROMPT_FULL, WW_PROMPT_COMPACT, WW_PROMPT_COUNT };
const char *ww_prompt_name(enum ww_prompt p);  /* "full", "compact" */
enum ww_prompt ww_prompt_of(const char *name); /* any other name: full */

struct ww_agent_opts {
	struct ww_policy *policy;
	struct ww_agent_judge judge;
	const struct ww_agent_judge *others; /* of the same task on other devices, for ww_agent_parallel(); n_others */
	int n_others;
	const char *dir; /* exists */
	const char *task_source;
	const struct ww_skill *skill; /* what the policy may read; NULL: none */
	enum ww_target target;
	enum ww_form form; /* of the solution that the policy writes */
	enum ww_loop loop;
	enum ww_prompt prompt;
	enum ww_rule rule;
	unsigned baselines; /* which ones solutions are timed against: bit per enum ww_baseline */
	int max_turns;
	double max_seconds;
	int64_t context_tokens; /* 0: no limit */
	int no_compaction;      /* a full context ends the episode */
	int long_prompt_ends;   /* so does a first prompt that does not fit; else it is an error */
	int decide;             /* solutions are timed until their reward is certain; judge.run() sees to it for a closing
	                         * judgement, which it gets as WW_JUDGE_CALL */
	double closing_seconds; /* a disturbed closing judgement is repeated within so many seconds; 0: never */
	/* Directory of a recorded episode (for ww_agent_parallel(): of several).  Each call gets the answer and the verdict
	 * that are recorded there, and nothing is judged.  NULL: tools run. */
	const char *answers;
	/* Shared by the episodes of a run; NULL: no limits.  Holds what earlier processes spent on this episode. */
	struct ww_budget *budget;
	int episode; /* its number in events */
	/* For a new episode (tools and limits are filled in here); an old one must agree in task, target, device, rule and
	 * policy. */
	const struct ww_episode_header *header;
	const volatile int *interrupted;                             /* may be NULL */
	void (*on_event)(void *ctx, const struct ww_agent_event *e); /* may be NULL */
	void *event_ctx;
};

struct ww_agent_result {
	int ended;                 /* 0: interrupted, go on later */
	struct ww_episode_end end; /* where ended */
	int turns;
	double seconds;
	int has_best; /* a correct solution exists */
	char best_id[65];
	struct ww_verdict best; /* the newest verdict about it; initialised in any case */
};

/* Run, or go on with, the episode in opts->dir.  An interruption is WW_ERR_INTERRUPTED with *out filled as far as the
 * run came; any other error leaves the episode resumable as well.  *out is to be released in every case. */
enum ww_rc ww_agent_run(
	const struct ww_agent_opts *opts, struct ww_agent_result *out, struct ww_err *err) WW_MUST_CHECK;
void ww_agent_result_release(struct ww_agent_result *r);
/* Fill *out from a finished or unfinished episode without running anything. */
enum ww_rc ww_agent_result_of(
	const struct ww_episode *e, struct ww_agent_result *out, struct ww_err *err) WW_MUST_CHECK;

/* 1 where verdict a is better than b: by correct, then reward, then whether it is timed, then device time. */
int ww_agent_better(const struct ww_verdict *a, const struct ww_verdict *b);
