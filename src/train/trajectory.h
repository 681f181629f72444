/* trajectory.h - an episode as a policy's trainer sees it: token ids in the order of the context, and which of them the
 * policy sampled.
 *
 * Ids, marks and log-probabilities are those that were recorded while sampling; no text is tokenised again.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>

struct ww_trajectory {
	int32_t *ids; /* (n) the whole context, in order */
	uint8_t *own; /* (n) 1: sampled by the policy; the first token never is */
	float *logp;  /* (n) of own tokens, when they were sampled, at temperature 1; 0 elsewhere */
	int64_t n, own_n;
	double reward; /* given once, on the last own token */
};
void ww_trajectory_release(struct ww_trajectory *t);

/* Room for n tokens, all zero. */
enum ww_rc ww_trajectory_init(struct ww_trajectory *t, int64_t n, struct ww_err *err) WW_MUST_CHECK;
/* WW_ERR_USAGE where an id is none of a vocabulary's. */
enum ww_rc ww_trajectory_check(const struct ww_trajectory *t, int64_t vocab, struct ww_err *err) WW_MUST_CHECK;
/* Mark ids[at..at+n-1] as sampled with these log-probabilities. */
void ww_trajectory_mark(struct ww_trajectory *t, int64_t at, const float *logp, int64_t n);
/* Of each own token i in order: rows = base + i - 1, where it is predicted (and where a critic values the state before
 * it), targets = its id, logp.  Each (own_n); any may be NULL. */
void ww_trajectory_rows(const struct ww_trajectory *t, int64_t base, int32_t *rows, int32_t *targets, float *logp);
