/* profile.h - where the time goes: of a task's reference before anything is written, and of a solution.
 *
 * A profile is a JSON object (docs/profile.md documents each member); what a reader sees is made of that object by
 * ww_profile_text() and of nothing else.  It is no verdict: it says nothing about right or wrong, and on the cpu target
 * its times are the runner's own.
 */
#pragma once

#include "base/str.h"
#include "judge/judge.h"

enum { WW_PROFILE_VERSION = 1, WW_PROFILE_TEXT_BYTES = 24 << 10 };

/* Per operator of the task in PyTorch's eager mode.  *out is a new reference. */
enum ww_rc ww_profile_reference(struct ww_judge_task *t, json_t **out, struct ww_err *err) WW_MUST_CHECK;
/* Per node of a solution's plan.  Whatever the solution did is in *out (a new reference): "status" is that of a verdict
 * ("ok", "compile_failed", "crashed", ...), with "diagnostics" where it is not ok. */
enum ww_rc ww_profile_solution(
	struct ww_judge_task *t, const struct ww_solution *s, json_t **out, struct ww_err *err) WW_MUST_CHECK;
/* 1 where the profile could be made. */
int ww_profile_ok(const json_t *profile);

/* The profile for a reader, at most WW_PROFILE_TEXT_BYTES, most important first. */
void ww_profile_text(const json_t *profile, struct ww_str *out);
