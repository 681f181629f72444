/* verdict.h - what the judge says about one solution; verdict.def lists its fields, flags, statuses and seconds.
 *
 * A verdict is data about the candidate; trouble of our own (a lost reference worker, no GPU) is never in here but an
 * error of the call that should have made the verdict.  Times are microseconds, ratios are baseline / candidate (2 =
 * twice as fast) on device times.  NAN stands for "not measured" and is printed as null in JSON.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "task/rule.h"

#include <jansson.h>

#define WW_VERDICT_VERSION 1

enum ww_status {
#define STATUS(constant, json) WW_STATUS_##constant,
#include "judge/verdict.def"
	WW_STATUS_COUNT
};
enum ww_form {
#define FORM(constant, json) WW_FORM_##constant,
#include "judge/verdict.def"
	WW_FORM_COUNT
};
struct ww_times {
	double device_us, call_us;
}; /* medians */
struct ww_ratio {
	double lo, mid, hi;
}; /* 95% bootstrap interval; where the measurement was disturbed, all resamples of the whole and of each half */
struct ww_steps {
#define STEP(member) double member;
#include "judge/verdict.def"
};
struct ww_seconds {
#define STAGE(member) double member;
#include "judge/verdict.def"
	struct ww_steps steps;
};
struct ww_verdict {
#define FIELD(type, member, dims, kind, key, attributes) type member dims;
#include "judge/verdict.def"
};

void ww_verdict_init(struct ww_verdict *v);
void ww_verdict_release(struct ww_verdict *v);
const char *ww_status_name(enum ww_status s);   /* "compile_failed" */
const char *ww_form_name(enum ww_form f);       /* "kernelbench" */
const char *ww_form_guarantees(enum ww_form f); /* one sentence: what a verdict on this form guarantees */
/* -1 not correct; 3 more than 5% faster than eager and compile; 2 than eager only; 1 otherwise, and at most 1 where a
 * flag is set that caps it.  "More than 5%": 1 - 1/speedup > 0.05 at the interval's lower end. */
double ww_verdict_reward(const struct ww_verdict *v);
/* The raw speed-up as a reward: -1 not correct, else torch.compile's time by the solution's, or eager's where that was
 * not measured; at most 1 where a flag caps the reward; NAN where no time was measured. */
double ww_verdict_speedup_reward(const struct ww_verdict *v);
/* A baseline cannot be captured, so it was timed as the sum of its kernels: add that to device_method. */
void ww_verdict_uncaptured(struct ww_verdict *v);
/* More than 5% faster than baseline b at the interval's lower end. */
int ww_verdict_beats(const struct ww_verdict *v, enum ww_baseline b);

/* The verdict as the object that `judge --json` prints (docs/design/rules.md, section 7; NULL: out of memory), and
 * back. */
json_t *ww_verdict_to_json(const struct ww_verdict *v);
enum ww_rc ww_verdict_from_json(const json_t *o, struct ww_verdict *v, struct ww_err *err) WW_MUST_CHECK;

/* One line for each flag that is set: `before`, "NAME (REASON): what it means", and a line feed.  Clean text. */
void ww_verdict_add_flags(const struct ww_verdict *v, const char *before, struct ww_str *out);
/* The same of a verdict's object, and its flags' names alone ("algebraic, disturbed"; nothing where none is set). */
void ww_verdict_json_add_flags(const json_t *verdict, const char *before, struct ww_str *out);
void ww_verdict_json_add_flag_names(const json_t *verdict, struct ww_str *out);

/* "relative error 7.1e-08 (eager's 9e-08), largest absolute error 2.4e-08 (eager's 3e-08), over 7 draws and 8 checked
 * timed calls", of a verdict and of its object.  Eager's are left out where they were not measured. */
void ww_verdict_add_errors(const struct ww_verdict *v, struct ww_str *out);
void ww_verdict_json_add_errors(const json_t *verdict, struct ww_str *out);

/* The measured speed-ups on device times, each with its interval: ", 1.52x eager [1.50, 1.54], 1.31x compile [1.30,
 * 1.33]". */
void ww_verdict_add_speedups(const struct ww_verdict *v, struct ww_str *out);
