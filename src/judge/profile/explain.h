/* explain.h - where the time of a solution goes, launch by launch, beside what the planner decided and what PyTorch
 * takes for the same operators.
 *
 * The explanation is a JSON object (docs/optimize.md, "Why"), kept as explain.json in the run's directory; the text and
 * the page are made of it and of nothing else. */
#pragma once

#include "judge/judge.h"
#include "judge/verdict.h"

/* Profile the solution and the reference (seconds; the device's lease is held).  `decided`: ww_planner_explain() of the
 * solution, or NULL: then each node of its plan stands by itself.  *out is a new reference. */
enum ww_rc ww_explain(struct ww_judge_task *t, const struct ww_solution *s, const struct ww_verdict *v,
	const json_t *decided, json_t **out, struct ww_err *err) WW_MUST_CHECK;
/* The whole explanation as text. */
void ww_explain_text(const json_t *explained, struct ww_str *out);
/* If the solution is slower than eager: which kernels are, with times and reasons; else nothing. */
void ww_explain_slower(const json_t *explained, struct ww_str *out);
/* 1: slower than eager even at the upper end of the speed-up's interval. */
int ww_explain_is_slower(const struct ww_verdict *v);
