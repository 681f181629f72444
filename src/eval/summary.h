/* summary.h - what an evaluation says: counts, fast_p, geometric means, fraction of the device's peak.
 *
 * Every problem that has ended counts: one without a correct solution, or that did not fit the device, is not correct,
 * and counts as 1.0 in the mean over all.  A speed-up is the baseline's time over the solution's. */
#pragma once

#include "base/str.h"
#include "eval/run.h"
#include "judge/verdict.h"

#include <jansson.h>

/* Flags that a summary can leave out. */
enum { WW_EVAL_DEGENERATE = 1, WW_EVAL_ALGEBRAIC = 2, WW_EVAL_LIBRARY = 4 };

/* One problem by one rule and one clock. */
struct ww_eval_row {
	int level, correct;
	unsigned flags;
	struct ww_ratio speedup[WW_BASE_TORCH_COUNT]; /* NAN where the baseline was not measured */
	double peak; /* time that bytes and operations need at this device's peaks over the time reached; NAN: unknown */
};

enum { WW_EVAL_FAST = 4 };
struct ww_eval_score {
	int n, correct;
	double peak; /* median over the correct */
	struct ww_eval_against {
		int measured;           /* of the correct */
		int faster;             /* more than 5%, at the interval's lower end */
		int not_slower;         /* within 5% */
		int fast[WW_EVAL_FAST]; /* correct and more than p times as fast */
		struct ww_ratio mean;   /* geometric, over the correct; 95% interval by resampling problems */
		double mean_all;        /* over all: a failure counts as 1.0 */
	} against[WW_BASE_TORCH_COUNT];
};
void ww_eval_score(const struct ww_eval_row *rows, size_t n, struct ww_eval_score *out);

/* {"suite", "device", ..., "rules": {"strict": {"device": {"all": {"overall": SCORE, "1": SCORE, ...},
 * "without_degenerate": ...}, "call": ...}, "paper": ...}, "families": {NAME: SCORE}, "not_correct": [{"id", "why"}]};
 * docs/formats/eval.md.  A new reference, NULL out of memory. */
json_t *ww_eval_summary(const struct ww_eval_run *r);
/* The same for a terminal. */
void ww_eval_summary_text(const json_t *summary, struct ww_str *out);

/* Members of a line, for summary and report: the verdict by a rule ("strict"), or NULL; why the problem is not solved,
 * "" where it is. */
const json_t *ww_eval_verdict(const json_t *line, const char *rule);
void ww_eval_why(const json_t *line, const char *rule, struct ww_str *out);
/* The row of a line by rule and clock ("device", "call"). */
struct ww_eval_row ww_eval_row_of(const json_t *line, int level, const char *rule, const char *clock);

/* A problem that was solved and timed: its speed-up over compile where the run measured it, else over eager. */
struct ww_eval_speed {
	const char *id;
	struct ww_ratio speedup;
	const json_t *line; /* borrowed */
};
/* Those of a run, slowest first; *out is the caller's. */
size_t ww_eval_by_speed(const struct ww_eval_run *r, struct ww_eval_speed **out);
enum { WW_EVAL_SLOWEST = 10 }; /* that get a profile, and a place on the page */
/* The run's rule and the baseline of its speed-ups, whatever a run.json says. */
const char *ww_eval_rule_of(const struct ww_eval_run *r);
enum ww_baseline ww_eval_baseline_of(const struct ww_eval_run *r);

/* The family of operators that a graph's time most likely goes to: "convolution", "matrix product", ... */
const char *ww_eval_family(const json_t *graph);
