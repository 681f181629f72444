/* sample.h - one token out of a row of logits. */
#ifndef WW_INFER_SAMPLE_H
#define WW_INFER_SAMPLE_H

#include "base/err.h"

#include <stdint.h>

struct ww_sampling {
	double temperature;	/* 0: the likeliest token */
	int64_t top_k;		/* 0: all */
	double top_p;		/* 1: all */
	double min_p;		/* 0: all; else at least so much of the likeliest token's probability */
};
#define WW_SAMPLING_INIT { 1.0, 0, 1.0, 0.0 }

struct ww_sampled {
	int32_t token;
	float logp;		/* at temperature 1 and untruncated: logit - lse */
	float logp_sampling;	/* under the distribution that it was drawn from */
};

/* Temperature first, then top_k, then top_p of what is left, then min_p.  Draw number `position` of stream (seed, stream):
 * the result depends on nothing else, whatever other sequences are doing.  Ties go to the smaller id.  Logits of which none
 * is finite, or any is NaN, are WW_ERR_DEVICE. */
enum ww_rc ww_sample(const float *logits, int64_t v, float lse, const struct ww_sampling *s, uint64_t seed, uint64_t stream,
		     uint64_t position, struct ww_sampled *out, struct ww_err *err) WW_MUST_CHECK;

#endif
