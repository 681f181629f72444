/* parallel.h - several episodes of one task in parallel: best of N under one budget.
 *
 * Under the output directory lie episodes/1, episodes/2, ..., each as agent.h describes it; solution/ and verdict.json
 * of the directory itself are those of the best episode.
 */
#pragma once

#include "agent/agent.h"

enum { WW_AGENT_PARALLEL_MAX = 256 };

/* Run, or go on with, n episodes.  `common` says what they share; its dir is the run's, its policy is not looked at,
 * its header's seed is that of the first episode (the others count on from there), its budget already holds what the
 * past used.  policies[i] is episode i + 1's own.  Verdicts are given in the order in which they were asked for, so no
 * episode waits for more than one judgement of each other one.  An episode that fails by an error ends alone; the
 * others run on, and the first such error is returned when all are done (they can be resumed). results[0..n-1] are
 * filled as far as each came and released by the caller. */
enum ww_rc ww_agent_parallel(const struct ww_agent_opts *common, struct ww_policy *const *policies, int n,
	struct ww_agent_result *results, struct ww_err *err) WW_MUST_CHECK;
/* The same results from the records alone. */
enum ww_rc ww_agent_parallel_results(
	const char *dir, int n, struct ww_agent_result *results, struct ww_err *err) WW_MUST_CHECK;
/* Index of the result with the best solution, -1 where there is none. */
int ww_agent_parallel_best(const struct ww_agent_result *results, int n);
/* Path of episode i (from 0), PATH_MAX bytes. */
enum ww_rc ww_agent_parallel_dir(const char *dir, int i, char *out, struct ww_err *err) WW_MUST_CHECK;
/* How many episodes a directory holds: those numbered from 1 on without a gap. */
int ww_agent_parallel_count(const char *dir);
/* What all of them have used so far, into the budget. */
enum ww_rc ww_agent_parallel_used(const char *dir, struct ww_budget *b, struct ww_err *err) WW_MUST_CHECK;
