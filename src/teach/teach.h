/* teach.h - what `synth teach` says about a task: several solutions of the planner, each in a conversation of its own.
 *
 *     teach_solutions.c   a graph                      -> solutions that differ in text
 *     teach_faults.c      a solution                   -> one with a mistake, and what the tool verify says about it
 *     teach_turns.c       solutions, mistakes, a draw  -> conversations
 */
#pragma once

#include "agent/compact.h"
#include "base/rng.h"
#include "judge/build/build.h"
#include "judge/compile/compile.h"
#include "task/ref.h"

enum { WW_TEACH_SOLUTIONS = 32 };

/* ---- Solutions --------------------------------------------------------------------------------------------------- */

/* Indices are renumbered in both (policy/planner/proposal.h): the planner counts them through the whole graph, in an
 * order that nobody can guess from the text before. */
struct ww_teach_solution {
	char *plan, *device;
};
struct ww_teach_solutions {
	struct ww_teach_solution s[WW_TEACH_SOLUTIONS];
	int n;
};

/* At most `most` solutions that differ: the planner's first one, then trials of its search, drawn by rng as if verdicts
 * had been made.  None where it has no solution. */
enum ww_rc ww_teach_solve(const json_t *graph, const json_t *device, enum ww_target target, int most,
	struct ww_rng *rng, struct ww_teach_solutions *out, struct ww_err *err) WW_MUST_CHECK;
void ww_teach_solutions_release(struct ww_teach_solutions *s);

/* ---- Mistakes ---------------------------------------------------------------------------------------------------- */

/* What finds out what a mistake leads to, used by many threads.  compiler NULL: mistakes of kernels that do not compile
 * are not made. */
struct ww_teach_tools {
	struct ww_builder *builder;
	struct ww_compiler *compiler;
};
struct ww_teach_fault {
	struct ww_teach_solution wrong;
	char *said; /* by verify; NULL: no mistake was found */
};

enum ww_rc ww_teach_fault(const struct ww_teach_tools *tools, const struct ww_facts *facts,
	const struct ww_teach_solution *right, struct ww_rng *rng, struct ww_teach_fault *out,
	struct ww_err *err) WW_MUST_CHECK;
void ww_teach_fault_release(struct ww_teach_fault *f);

/* ---- Conversations ----------------------------------------------------------------------------------------------- */

/* Shares of conversations; the rest hands its solution in at once. */
struct ww_teach_forms {
	double single;   /* the prompt of a single turn: nothing is handed in */
	double checked;  /* verified, and handed in as it is */
	double improved; /* another solution first, which verify says is slow */
	double mended;   /* one with a mistake first, which verify names; it is context alone (`"learn": false`).  One in
	                  * four has a second mistake behind it, and no turn is left to verify the end */
};
/* "SINGLE:CHECKED:IMPROVED:MENDED", of conversations of so many turns at most; NULL: none. */
enum ww_rc ww_teach_forms_read(
	const char *text, int64_t turns, struct ww_teach_forms *out, struct ww_err *err) WW_MUST_CHECK;

struct ww_teacher {
	struct ww_compact prompt;
	struct ww_teach_forms forms;
	struct ww_teach_tools tools;
	int64_t longest; /* bytes of a conversation, of one with several solutions twice as many; 0: any */
};
/* A conversation that ends with solution `which`, as `messages`, in a form that is drawn; where it is too long in that
 * form, verified and handed in, else NULL. */
enum ww_rc ww_teach_messages(const struct ww_teacher *t, const char *user, const struct ww_facts *facts,
	const struct ww_teach_solutions *s, int which, struct ww_rng *rng, json_t **messages,
	struct ww_err *err) WW_MUST_CHECK;
