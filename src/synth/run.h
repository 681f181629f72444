/* run.h - `synth run`: tasks by the thousand.
 *
 * Threads compose candidates and put them through the filters, each with a worker of its own; the journal has the
 * result of each.  Decisions that depend on other tasks (similarity, a full split) are made in the order of the
 * candidates' numbers, so neither the number of threads nor an interruption changes the set; only measured times do,
 * and those can be given (--timings).
 *
 *     DIR/journal.jsonl            results so far; the run resumes from it
 *     DIR/apart.json               fingerprints of the sets that it keeps apart from
 *     DIR/tasks.jsonl.zst          the accepted tasks (docs/formats/tasks.md) of a complete run; or tasks.parquet
 *     DIR/rejected.jsonl           every rejection: number, reason, detail
 *     DIR/timings.jsonl            all measured times
 *     DIR/run.json                 recipe, seed, versions, counts by reason
 */
#pragma once

#include "policy/policy.h"
#include "synth/synth.h"

enum { WW_SYNTH_MAX_DEVICES = 64, WW_SYNTH_SPLITS = 3 };

struct ww_synth_progress {
	int64_t tried, accepted, wanted; /* tried: that were decided on, in the order of their numbers */
	int64_t seen;                    /* that were looked at: `tried`, and those behind one that is still under way */
	double seconds;                  /* since the start of this process's part */
	int64_t seen_before;             /* of `seen`, by the journal */
	const char *last_reason;         /* of the latest rejection; may be NULL */
};

struct ww_synth_run_opts {
	struct ww_synth_recipe recipe;
	uint64_t seed;
	int64_t count[WW_SYNTH_SPLITS]; /* train, validation, held-out */
	int64_t max_tried;              /* give up then; 0: 50 times what is wanted, and 1,000 */
	double stop_after_s;            /* then no candidate is begun; those under way are finished; 0: no limit */
	int jobs, threads;
	int parquet;                                  /* write tasks.parquet, which needs pyarrow */
	int devices[WW_SYNTH_MAX_DEVICES], n_devices; /* one at least */
	const char *dir, *timings;                    /* timings: a file to take times from; may be NULL */
	const char *const *against;                   /* task sets that no accepted task may be similar to */
	int n_against;
	const struct ww_policy_opts *policy; /* who writes the modules; NULL: the grammar */
	const volatile int *interrupted;
	void (*progress)(void *ctx, const struct ww_synth_progress *p); /* one at a time; may be NULL */
	void *ctx;
};

/* Run or go on.  *summary: what run.json holds, a new reference, also where WW_ERR_LIMIT says that max_tried or
 * stop_after_s did not suffice (then the files hold what there is). */
enum ww_rc ww_synth_run(const struct ww_synth_run_opts *o, json_t **summary, struct ww_err *err) WW_MUST_CHECK;
