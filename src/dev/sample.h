/* sample.h - how a token is sampled, and the arithmetic of it (sample.c), for C and CUDA alike.
 *
 * Every step of the arithmetic is one rounded operation of fp32 or a whole number, so each device computes the same
 * weight from the same logit.
 */
#pragma once

#include <float.h>
#include <stdint.h>
#include <string.h>

/* How a token is sampled: temperature first, then top_k, then top_p of what is left, then min_p. */
struct ww_sampling {
	double temperature; /* 0: the likeliest token, the smallest id of equals */
	int64_t top_k;      /* 0: all; what is as likely as the last one kept is kept too */
	double top_p;       /* 1: all */
	double min_p;       /* 0: all; else at least so much of the likeliest token's probability */
};
#define WW_SAMPLING_INIT { 1.0, 0, 1.0, 0.0 }
/* Sample number `position` of the stream of random numbers (seed, stream): the result depends on nothing else. */
struct ww_sampler {
	struct ww_sampling sampling;
	uint64_t seed, stream, position;
};
struct ww_sampled {
	int32_t token;       /* -1: a logit is NaN, or none is finite */
	float logp;          /* at temperature 1 and untruncated: logit - lse */
	float logp_sampling; /* under the distribution that it was sampled from; at temperature 1 and untruncated logp */
};

#ifdef __CUDACC__
#define WW_SAMPLE_FN static __device__ __forceinline__
#define WW_SAMPLE_MUL(a, b) __fmul_rn(a, b)	/* never fused with an addition */
#define WW_SAMPLE_ADD(a, b) __fadd_rn(a, b)
#else
#define WW_SAMPLE_FN static inline
#define WW_SAMPLE_MUL(a, b) ((a) * (b))
#define WW_SAMPLE_ADD(a, b) ((a) + (b))
#endif

enum { WW_SAMPLE_BITS = 40 }; /* the likeliest token weighs 2^40 */

/* Greater logits have greater keys; the two zeros have one. */
WW_SAMPLE_FN uint32_t ww_sample_key(float x)
{
	uint32_t u;
	x = WW_SAMPLE_ADD(x, 0.0f);
	memcpy(&u, &x, 4);
	return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* log2(e) / temperature */
WW_SAMPLE_FN float ww_sample_rate(double temperature)
{
	double r = 1.4426950408889634 / temperature;
	return r < (double)FLT_MAX ? (float)r : FLT_MAX;
}

/* 2^(rate * below) as a whole number of 2^-40ths; below: the logit less the largest one, at most 0, maybe minus
 * infinity. The polynomial is that of 2^f for |f| <= 1/2; its error is that of fp32. */
WW_SAMPLE_FN uint64_t ww_sample_weight(float below, float rate)
{
	const float to_whole = 12582912.0f; /* 1.5 * 2^23: what is added to it loses its fraction */
	float z = WW_SAMPLE_MUL(below, rate);
	z = z > -64.0f ? z : -64.0f;
	float n = WW_SAMPLE_ADD(WW_SAMPLE_ADD(z, to_whole), -to_whole), f = WW_SAMPLE_ADD(z, -n), p = 1.5403530e-4f;
	p = WW_SAMPLE_ADD(WW_SAMPLE_MUL(p, f), 1.3333558e-3f);
	p = WW_SAMPLE_ADD(WW_SAMPLE_MUL(p, f), 9.6181291e-3f);
	p = WW_SAMPLE_ADD(WW_SAMPLE_MUL(p, f), 5.5504109e-2f);
	p = WW_SAMPLE_ADD(WW_SAMPLE_MUL(p, f), 2.4022651e-1f);
	p = WW_SAMPLE_ADD(WW_SAMPLE_MUL(p, f), 6.9314718e-1f);
	p = WW_SAMPLE_ADD(WW_SAMPLE_MUL(p, f), 1.0f);
	int shift = (int)-n;
	uint64_t m = (uint64_t)WW_SAMPLE_MUL(p, (float)(1ull << WW_SAMPLE_BITS));
	return shift > WW_SAMPLE_BITS + 1 ? 0 : (m + ((1ull << shift) >> 1)) >> shift;
}
