/* rng.h - random numbers.
 *
 * Secret seeds (the judge's) come from the kernel.  Reproducible streams (planner, bootstrap, sampling) come from a
 * counter-based generator: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).  A
 * stream is (key, counter): number n of a stream is the same whatever was drawn before it.
 */
#pragma once

#include <stdint.h>

struct ww_rng {
	uint64_t key;
	uint64_t stream;
	uint64_t counter; /* next number */
};

/* A secret 63-bit number from getrandom(2) (63 bits so that it fits signed JSON and Python's manual_seed). */
uint64_t ww_rng_secret(void);

void ww_rng_init(struct ww_rng *r, uint64_t key, uint64_t stream);
uint64_t ww_rng_u64(struct ww_rng *r);
double ww_rng_uniform(struct ww_rng *r);             /* [0, 1) with 53 bits */
uint64_t ww_rng_below(struct ww_rng *r, uint64_t n); /* 0 .. n-1 without bias; n >= 1 */
/* One round function, for tests against published vectors: out = philox4x32-10(counter, key). */
void ww_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
