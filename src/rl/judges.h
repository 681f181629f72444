/* judges.h - where the verdicts of a rollout come from: the judge (cmd/train_judges.c), recorded answers (rollout.c),
 * or in tests a script. */
#pragma once

#include "agent/agent.h"
#include "infer/engine.h"

/* A task that is open for judging; everything is borrowed for the time of the call. */
struct ww_rl_task {
	struct ww_agent_judge judge;
	const char *path, *source;
	char id[65];
};

/* Called in any thread; i: which of the tasks. */
typedef enum ww_rc ww_rl_task_fn(void *arg, int64_t i, const struct ww_rl_task *task, struct ww_err *err);

struct ww_rl_judges {
	void *ctx;
	enum ww_target target;
	enum ww_rule rule;
	unsigned baselines;
	int devices; /* that judge, for the record; 0: none, or not known */
	int apart;   /* 1: none of them is the learner's */
	/* Call fn for each of n tasks with the task open, several at a time.  Returns when all calls have; the result is
	 * the first failure. */
	enum ww_rc (*each)(
		void *ctx, const char *const *paths, int64_t n, ww_rl_task_fn *fn, void *arg, struct ww_err *err);
	/* Makes the policy over the engine's model; NULL: ww_model_policy_over().  (Tests use their own.) */
	int (*policy)(
		void *ctx, struct ww_engine *e, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err);
};
