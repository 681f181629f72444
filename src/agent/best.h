/* best.h - the best solution of a run, in memory and in the output directory. */
#pragma once

#include "agent/agent.h"
#include "agent/workspace.h"

/* 1 where a solution with verdict v is better than the best of the run. */
int ww_best_improves(const struct ww_agent_result *r, const struct ww_verdict *v);
/* Record this solution as the best one; `data` is the verdict's JSON. */
enum ww_rc ww_best_note(
	struct ww_agent_result *r, const char *id, const json_t *data, struct ww_err *err) WW_MUST_CHECK;
/* Write it into dir: solution/ (replaced as a whole) and then verdict.json.  c NULL: there is no correct solution, and
 * only verdict.json is written, which says why. */
enum ww_rc ww_best_store(
	const char *dir, const struct ww_workspace_content *c, const json_t *data, struct ww_err *err) WW_MUST_CHECK;
/* Read solution/ back; *found is 0 where its content is not the solution `id`. */
enum ww_rc ww_best_load(const char *dir, enum ww_target target, const char *id, struct ww_workspace_content *c,
	int *found, struct ww_err *err) WW_MUST_CHECK;
