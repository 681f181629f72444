/* eval_problem.h - one problem of `eval`: from an open task to its line of results.jsonl. */
#pragma once

#include "cmd/agent_opts.h"
#include "eval/run.h"
#include "eval/suite.h"
#include "judge/batch.h"

/* What all problems of an evaluation share. */
struct ww_eval_common {
	const struct ww_agent_values *agent;
	const struct ww_skill *skill; /* may be NULL */
	struct ww_judge_opts judge;
	const char *device_name;
	int samples; /* episodes a problem */
	struct ww_eval_run *run;
	pthread_mutex_t *lock; /* of run */
};

struct ww_eval_one {
	struct ww_batch_job job; /* ctx: this */
	const struct ww_eval_common *common;
	const struct ww_problem *problem;
	char dir[PATH_MAX]; /* of the run: problems/ID */
	int has_files;      /* job.files is judged, there is no policy */
	int adds;           /* `line` is added to the one that the problem has */
	json_t *line;
};

/* Fill the line's members that hold in any case. */
enum ww_rc ww_eval_line_begin(struct ww_eval_one *o, struct ww_err *err) WW_MUST_CHECK;
/* job->work: run the policy or judge the given solution, by both rules. */
enum ww_rc ww_eval_solve(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err);

/* The job of a problem that is one of the slowest of all: its line gets a profile, in one sentence.  `begin` takes the
 * solution from the problem's line; WW_ERR_USAGE where it is of a form that has no profile. */
enum ww_rc ww_eval_profile_begin(struct ww_eval_one *o, const json_t *line, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_eval_profile(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err);
