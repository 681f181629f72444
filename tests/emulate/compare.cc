/* compare.cc - the judge's comparison (src/judge/compare.cu) on the cpu, as a library for tests/bridge. */
#include "device.h"

#include "../../src/judge/compare.cu"

extern "C" unsigned plan_bytes() { return sizeof(plan); }

/* type: of torch.float32, float64, float16, bfloat16. */
extern "C" void compare_emulated(unsigned type, unsigned blocks, const plan *p)
{
	void (*const kernels[])(plan) = { compare_float32, compare_float64, compare_float16, compare_bfloat16 };

	host::launch(blocks, 1, 1, THREADS, 0, [=] { kernels[type](*p); });
}
