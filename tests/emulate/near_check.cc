/* near_check.cc - pl_expm1f(), pl_log1pf() and pl_log1p_unitf() at floats of all exponents against double:
 * to 1e-6 of themselves, and at infinities, zeros and NaN as in C.  Prints how many are off. */
#include "device.h"
#include <ww/planner.cuh>

#include <cstdio>

static int off;

static void one(const char *name, float x, float got, double want)
{
	const float near = (float)want;
	const bool same = std::isfinite(near) ? fabs(got - want) <= 1e-6 * fabs(want) + 1e-44
		: near != near                    ? got != got
										  : got == near;

	off += !same;
	if (!same && off < 20)
		fprintf(stderr, "%s(%.9g) is %.9g, not %.9g\n", name, x, got, want);
}

static void all(float x)
{
	one("expm1", x, pl_expm1f(x), expm1((double)x));
	one("log1p", x, pl_log1pf(x), log1p((double)x));
	if (x >= 0 && x <= 1)
		one("log1p_unit", x, pl_log1p_unitf(x), log1p((double)x));
}

int main()
{
	const float some[] = { 0.f, -0.f, 1.f, -1.f, INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 1e-42f, 0.5f, -0.5f, -0.25f };

	for (float x : some)
		all(x);
	for (unsigned bits = 0; bits < 0x7f800000; bits += 2311) {
		float x;

		memcpy(&x, &bits, 4);
		all(x);
		all(-x);
	}
	printf("%d\n", off);
	return 0;
}
