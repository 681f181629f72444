/* form.h - a solution in a PyTorch form inside a judgement: built, set up, called through a session's operations,
 * traced. */
#pragma once

#include "judge/forms/forms.h"
#include "judge/session.h"

/* Compile its extensions, where it has any, in a process without a GPU; *build becomes a memfd with what ww_form_open()
 * needs, or -1. Takes no lock of the task and no lease.  A solution that does not build: *status, and the reason in
 * diag. */
enum ww_rc ww_form_build(struct ww_judge_task *t, const struct ww_solution *s, int *build, int *ok,
	enum ww_status *status, struct ww_str *diag, struct ww_err *err) WW_MUST_CHECK;
/* Put it into a fresh process on the task's buffers: s->ops and s->candidate.  What fails is in the verdict, s->failed
 * set. */
enum ww_rc ww_form_open(
	struct ww_session *s, const struct ww_solution *solution, int build, struct ww_err *err) WW_MUST_CHECK;
/* trace.c: does the solution or a library do the work?  Looks at the samples of all calls and of the timed ones, then
 * makes a few traced calls that list the ATen operators.  Sets aten_ops and library_only of the verdict. */
enum ww_rc ww_form_trace(struct ww_session *s, struct ww_err *err) WW_MUST_CHECK;

/* The process of a session, and the answer that its calls fill. */
struct ww_candidate *ww_form_candidate(const struct ww_session *s, struct ww_candidate_answer **a);
/* cpu: whose code computed (sampler.h), in calls with cold caches, which are those that are timed, or in all. */
void ww_form_seen(const struct ww_session *s, int timed, struct ww_seen *sum);
/* The number beside `name` in a candidate's list of [name, number]; 0: it is not there. */
json_int_t ww_form_number_of(const json_t *rows, const char *name);
/* What went wrong, in words. */
void ww_form_describe(
	const struct ww_run_result *res, const struct ww_candidate_answer *a, const char *stage, struct ww_str *diag);

/* Of each output of the task: 1 where elements of the task's own output lie in one place, so that any layout will do.
 */
void ww_form_loose(const struct ww_judge_task *t, int loose[WW_MAX_OUTPUTS]);
/* A fresh process on the task's inputs and parameters that has read nothing of a solution: what fails is ours.
 * `landing` (cuda): it also gets the judge's output buffers, for outputs that it cannot lend (lent.h). */
enum ww_rc ww_form_attach(struct ww_judge_task *t, const int loose[WW_MAX_OUTPUTS], int landing,
	struct ww_candidate **out, struct ww_candidate_answer *a, struct ww_err *err) WW_MUST_CHECK;

/* state.c: cpu: state that the task changes is restored before each of the candidate's calls; body: its answer to
 * `setup`. */
enum ww_rc ww_form_restores(
	const struct ww_judge_task *t, struct ww_candidate *c, const json_t *body, struct ww_err *err) WW_MUST_CHECK;

/* 1 where no output i with apart[i] lies in that state, or took its pages away; else 0 and the reason. */
int ww_form_keeps_state(const struct ww_candidate *c, const int64_t *places, const struct ww_tensor *out, int n,
	const int *apart, char *why, size_t why_bytes);

/* base.c: PyTorch's own module as a solution in its own process, called and timed as the candidate is.  Open compiles
 * and warms up (info as ww_ref_baseline() has it); call is one call on the current draw with cold caches. */
enum ww_rc ww_form_base_open(
	struct ww_judge_task *t, enum ww_baseline b, struct ww_ref_baseline *info, struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_form_base_call(struct ww_judge_task *t, enum ww_baseline b, double *us, struct ww_err *err) WW_MUST_CHECK;
/* cuda: publish the draw and see whether the device is busy: a process that stands may have left work there, which
 * makes baselines slow, or is done when the draw is written and before the clock starts.  `share`: what the call that
 * comes is left with. */
enum ww_rc ww_form_probe(struct ww_judge_task *t, double *share, struct ww_err *err) WW_MUST_CHECK;
pid_t ww_form_base_pid(const struct ww_judge_task *t, enum ww_baseline b); /* 0: there is none */
void ww_form_base_close(struct ww_judge_task *t, enum ww_baseline b);
