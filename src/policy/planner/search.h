/* search.h - which variant to try next, from the verdicts so far. */
#pragma once

#include "policy/planner/planner.h"

enum { SEARCH_KERNELS = 64, SEARCH_MAX_TRIALS = 30, SEARCH_MAX_COORDS = 64 };

struct trial {
	struct knobs knobs[SEARCH_KERNELS];
	uint64_t left; /* bit i: PyTorch runs what kernel i of the build without `left` computes; knobs are of this build */
	int proposal;  /* the trial is a model's solution; its knobs are the nearest ones (proposal.h) */
	char text[240]; /* what is tried, one line */
};

/* One knob of all kernels of a kind, or of all anchors of one. */
struct coord {
	enum kkind kind;
	int anchor; /* enum anchor_kind, or -1: not an anchor */
	int all;    /* all kernels change in one trial */
	struct knob_row row;
};

/* Builds a trial; the caller releases `out`. */
struct search_build {
	void (*fn)(const void *ctx, const struct trial *t, struct pl_result *out);
	const void *ctx;
};

struct search {
	const struct pl_result *shape;    /* of the best trial: how many kernels, of which kind */
	const struct pl_result *order[2]; /* the builds in PyTorch's order and channels-last (cuda; NULL: no such) */
	struct search_build build;        /* fn NULL: nothing is left to PyTorch */
	struct pl_result left;            /* of the best trial, where it leaves something to PyTorch */
	int cuda;
	struct trial now, best; /* best: the trial to vary; a new one must be better by more than the noise */
	struct trial top;       /* the trial to submit: best by reward, then by time, as in the agent's loop */
	struct trial first;     /* where the proposal, the first trial, leads where it does not hold */
	int proposed;           /* trials of a proposal that no knobs write: 0 or 1 */
	int n_trials, have_best, have_top, done;
	double best_us, top_us, top_reward, seconds;
	double over_eager;    /* of the best trial; NAN: not measured */
	int leaving, n_leave; /* the next kernel to leave to PyTorch, counted by kinds; trials that did */
	int failed;           /* trials before the first correct one */
	int exact, plain;     /* tried because of failures: the library without TF32; everything plain */
	int overlapped;       /* overlapping launches were tried */
	int ours;             /* so was our template for convolutions whose results are beyond L2 */
	struct coord coords[SEARCH_MAX_COORDS];
	int n_coords, coord; /* coord: next variation */
	char failure[400];   /* of the last verdict that was not correct */
};

/* cuda: build into out, with convolutions channels-last and all else by default.  Returns out, which the caller
 * releases, or NULL if that build fails or equals `first`. */
const struct pl_result *pl_build_last(const json_t *graph, const json_t *device, const char *target,
	const struct pl_options *options, const struct pl_result *first, struct pl_result *out);
/* last: what pl_build_last() gave; the cheaper of both is the first.  build: NULL, or how trials are built. */
void pl_search_init(struct search *s, const struct pl_result *shape, const struct pl_result *last, int cuda,
	const struct search_build *build);
void pl_search_release(struct search *s);
/* The graph nodes that a trial leaves to PyTorch, as pl_options.left has them; the caller frees it, NULL: none. */
char *pl_search_left(const struct search *s, const struct trial *t);
/* Try a proposal first.  exact: its text is that of these knobs.  Else the proposal is one more trial; the search then
 * starts from these knobs if the proposal is correct, and without them if not. */
void pl_search_propose(struct search *s, const struct trial *nearest, int exact);
/* The verdict of the current trial. */
void pl_search_feed(struct search *s, const json_t *verdict);
/* After a feed: s->now is the next trial, or s->done. */
