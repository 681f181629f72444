/* quotient_check.cc - pl_divf(), pl_div_by() and pl_sqrtf() on the cpu against the exact quotient and root: what is a
 * float is found, of other results hardly one is not the nearest float and none further off than its neighbour, and
 * infinities, zeros and NaN are as in C.  Prints how many are wrong. */
#include "device.h"
#include <ww/planner.cuh>

#include <cstdio>

static unsigned seed = 7;
static unsigned draw()
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

/* Of either sign, from 2^-60 to 2^60. */
static float number() { return ldexpf((float)(draw() | 1 << 23), (int)(draw() % 120) - 83) * (draw() % 2 ? 1 : -1); }

static int is_same(float a, float b) { return (a != a && b != b) || (a == b && std::signbit(a) == std::signbit(b)); }

struct count {
	int off, wrong;
	void one(float got, float want)
	{
		off += !is_same(got, want);
		wrong += !is_same(got, want) && !(got == nextafterf(want, INFINITY) || got == nextafterf(want, -INFINITY));
	}
};

static int wrong_specials()
{
	const float some[] = { 0.f, -0.f, 1.f, -3.f, INFINITY, -INFINITY, NAN, 3e38f, 1e-30f };
	int wrong = 0;

	for (float a : some) {
		for (float b : some) {
			wrong += !is_same(pl_divf(a, b), a / b) && !(fabsf(a / b) > 0 && fabsf(a / b) < 1e-37f);
			wrong += !is_same(pl_div_by(a, b, 1.f / b), a / b) && !(fabsf(a / b) > 0 && fabsf(a / b) < 1e-37f);
		}
		wrong += !(is_same(pl_sqrtf(a), sqrtf(a)) || (a < 0 && pl_sqrtf(a) != pl_sqrtf(a)));
	}
	return wrong;
}

int main()
{
	count quotients = {}, by = {}, roots = {};
	int n = 1000000, wrong = wrong_specials();

	for (int i = 0; i < n; i++) {
		const float a = number(), b = number(), whole = (float)(1 + draw() % 4000);

		quotients.one(pl_divf(a, b), a / b);
		by.one(pl_div_by(a, b, 1.f / b), a / b);
		roots.one(pl_sqrtf(fabsf(a)), sqrtf(fabsf(a)));
		wrong += pl_divf(whole * 17.f, whole) != 17.f || pl_sqrtf(whole * whole) != whole;
	}
	fprintf(stderr, "not the nearest, of %d: quotients %d, by an inverse %d, roots %d\n", n, quotients.off, by.off,
		roots.off);
	wrong += quotients.wrong + by.wrong + roots.wrong;
	printf("%d\n", wrong + (quotients.off > n / 500) + (by.off > n / 500) + (roots.off > n / 500));
	return 0;
}
