/* teach.h - conversations about one task: each ends with a solution of the planner.
 *
 *     solutions.c   a graph                           -> solutions that differ in text
 *     faults.c      a solution                        -> the same with a mistake, and verify's answer to it
 *     turns.c       solutions, mistakes, random draws -> conversations
 */
#pragma once

#include "agent/compact.h"
#include "base/rng.h"
#include "judge/build/build.h"
#include "judge/compile/compile.h"
#include "task/ref.h"

enum { WW_TEACH_SOLUTIONS = 32 };

/* ---- Solutions --------------------------------------------------------------------------------------------------- */

/* Index names (i27) are renumbered in both texts by pl_renumber(): the planner counts them over the whole graph, and a
 * model cannot derive such a number from the text before it. */
struct ww_teach_solution {
	char *plan, *device;
};
struct ww_teach_solutions {
	struct ww_teach_solution s[WW_TEACH_SOLUTIONS];
	int n;
};

/* At most `most` solutions that differ: the planner's first one, then trials of its search in an order that rng draws.
 * Nothing is judged: rng also draws the verdicts that lead the search.  out->n is 0 where the planner has no solution.
 * The caller releases *out, also after an error. */
enum ww_rc ww_teach_solve(const json_t *graph, const json_t *device, enum ww_target target, int most,
	struct ww_rng *rng, struct ww_teach_solutions *out, struct ww_err *err) WW_MUST_CHECK;
void ww_teach_solutions_release(struct ww_teach_solutions *s);

/* ---- Mistakes ---------------------------------------------------------------------------------------------------- */

/* The judge's builder and compiler, which report what is wrong with a mistake; shared by all threads.  compiler NULL:
 * no mistakes are made that keep kernels from compiling. */
struct ww_teach_tools {
	struct ww_builder *builder;
	struct ww_compiler *compiler;
};
struct ww_teach_fault {
	struct ww_teach_solution wrong;
	char *verify_text; /* verify's answer to `wrong`; NULL: no mistake was found in a few tries */
};
/* Make a mistake in `right`.  The caller releases *out, also after an error. */
enum ww_rc ww_teach_fault(const struct ww_teach_tools *tools, const struct ww_facts *facts,
	const struct ww_teach_solution *right, struct ww_rng *rng, struct ww_teach_fault *out,
	struct ww_err *err) WW_MUST_CHECK;
/* A policy's answer as a mistake: `text` as it was said, with the files as blocks of code.  out->verify_text is NULL
 * where a file is missing or all of it builds: whether such an answer is right only a device can say. */
enum ww_rc ww_teach_own_fault(const struct ww_teach_tools *tools, const struct ww_facts *facts, const char *text,
	struct ww_teach_fault *out, struct ww_err *err) WW_MUST_CHECK;
void ww_teach_fault_release(struct ww_teach_fault *f);

/* ---- Conversations ----------------------------------------------------------------------------------------------- */

/* Shares of the conversations, sum at most 1.  The rest submits its solution without verifying it.  A mended
 * conversation verifies a solution with a mistake first, in a message with `"learn": false`: a model trains on none of
 * its tokens.  One in four has two mistakes; the last solution is then submitted without verifying: no turn is left. */
struct ww_teach_forms {
	double single;   /* one answer under the prompt of a single turn; no tool is called */
	double checked;  /* verified, then submitted */
	double improved; /* a slower solution is verified first */
	double mended;   /* a solution with a mistake is verified first */
};
/* Read "SINGLE:CHECKED:IMPROVED:MENDED"; NULL: all shares are 0.  WW_ERR_USAGE where the text is malformed, or where
 * `turns` are too few for improved or mended. */
enum ww_rc ww_teach_forms_read(
	const char *text, int64_t turns, struct ww_teach_forms *out, struct ww_err *err) WW_MUST_CHECK;

struct ww_teacher {
	struct ww_compact prompt;
	struct ww_teach_forms forms;
	struct ww_teach_tools tools;
	int64_t longest; /* most bytes of a conversation; twice as many where it has several solutions; 0: no limit */
};
/* A conversation that ends with solution `which`, as an array of chat messages (a new reference).  rng draws its form;
 * where that is too long the form `checked` is tried.  *messages is NULL where that is too long, too.  own: a policy's
 * answer about the task, which takes the place of a first mistake where it does not build; NULL: none. */
enum ww_rc ww_teach_messages(const struct ww_teacher *t, const char *user, const struct ww_facts *facts,
	const struct ww_teach_solutions *s, int which, const char *own, struct ww_rng *rng, json_t **messages,
	struct ww_err *err) WW_MUST_CHECK;
