/* search.h - which variant to try next, from the verdicts so far. */
#pragma once

#include "policy/planner/planner.h"

enum { SEARCH_KERNELS = 64, SEARCH_MAX_TRIALS = 30, SEARCH_MAX_COORDS = 64 };

struct trial {
	struct knobs knobs[SEARCH_KERNELS];
	char text[240]; /* what is tried, one line */
};

/* One knob of all kernels of a kind, or of all anchors of one. */
struct coord {
	enum kkind kind;
	int anchor; /* enum anchor_kind, or -1: not an anchor */
	int all;    /* all kernels change in one trial */
	struct knob_row row;
};

struct search {
	const struct pl_result *shape; /* of the first build: how many kernels, of which kind */
	int cuda;
	struct trial now, best; /* best: what is varied; it changes only by more than the noise */
	struct trial top;       /* what to hand in: the first by reward, then by time, as the loop keeps the best */
	int n_trials, have_best, done;
	double best_us, top_us, top_reward, seconds;
	int failed;       /* trials before the first correct one */
	int exact, plain; /* tried because of that: the library without TF32, everything plain */
	struct coord coords[SEARCH_MAX_COORDS];
	int n_coords, coord; /* coord: next variation */
	char failure[400];   /* of the last verdict that was not correct */
};

void pl_search_init(struct search *s, const struct pl_result *shape, int cuda);
/* The verdict of the current trial. */
void pl_search_feed(struct search *s, const json_t *verdict);
/* After a feed: s->now is the next trial, or s->done. */
