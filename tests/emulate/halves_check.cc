/* halves_check.cc - functions of elements of 16 bits at every half and every bfloat16, against double.  Prints how many
 * are off by more than 1e-5 of themselves; of what rounds to 0 in half, by more than a twentieth. */
#define IX64_ 0
#include "device.h"
#include <ww/planner.cuh>

#include <cmath>
#include <cstdio>

static int is_off(double got, double want)
{
	if (want != want || want > 1e37)
		return got == got && got < 1e37;
	if (want < -1e37)
		return got > -1e37;
	return !(fabs(got - want) <= (fabs(want) < 1e-8 ? .05 * fabs(want) + 1e-37 : 1e-5 * fabs(want)));
}

static int wrong(float x)
{
	/* where x times x is infinite, its gelu is x or 0 */
	const double gelu = x * (fabsf(x) < 1e18f ? 0.5 * erfc(-x * 0.70710678118654752440) : x > 0);
	const int n = is_off(pl_exp16f(x), exp(x)) + is_off(pl_sigmoid16f(x), 1 / (1 + exp(-(double)x))) +
		is_off(pl_gelu16f(x), gelu) + is_off(pl_expm1_16f(x), expm1(x)) + is_off(pl_log1p_16f(x), log1p(x)) +
		is_off(pl_tanh16f(x), tanh(x)) + is_off(pl_asinh16f(x), asinh(x)) + is_off(pl_acosh16f(x), acosh(x)) +
		is_off(pl_atanh16f(x), atanh(x));

	if (n)
		fprintf(stderr, "at %g: %g, %g, %g, %g, %g, %g, %g, %g, %g\n", x, pl_exp16f(x), pl_sigmoid16f(x), pl_gelu16f(x),
			pl_expm1_16f(x), pl_log1p_16f(x), pl_tanh16f(x), pl_asinh16f(x), pl_acosh16f(x), pl_atanh16f(x));
	return n;
}

int main(void)
{
	int n = 0;

	for (unsigned i = 0; i < 65536; i++) {
		const unsigned short bits = (unsigned short)i;
		__half h;
		__nv_bfloat16 b;

		memcpy(&h, &bits, 2);
		memcpy(&b, &bits, 2);
		n += wrong(ww::to_float(h)) + wrong(ww::to_float(b));
	}
	printf("%d\n", n);
}
