/* ww/ptx.cuh for kernels on the cpu. */
#pragma once

namespace ww
{
inline float exp2_(float x)
{
	const float y = exp2f(x);
	return y < 0x1p-126f ? 0.f : y; /* ftz */
}
inline float log2_(float x)
{
	const float y = log2f(x);
	return fabsf(x) < 0x1p-126f ? -INFINITY : y + fmaxf(1.f, fabsf(y)) * 0x1p-23f; /* a little off, as it may be */
}
inline float rcp_ftz_(float x) { return 1 / x; }
inline float rcp_(float x) { return 1.f / x * (1.f + 0x1p-23f); } /* a unit off, as it may be */
inline float max_nan(float a, float b) { return a != a || a > b ? a : b; }
inline float min_nan(float a, float b) { return a != a || a < b ? a : b; }
inline uint4 load16_once(const uint4 *p) { return *p; }
inline void store16(void *p, uint4 v) { *(uint4 *)p = v; }
inline void meet(int number, int threads)
{
	host::gate &g = host::me.some[number];
	g.alive = (unsigned)threads;
	host::wait(g);
}
inline void arrive(int number, int threads)
{
	host::gate &g = host::me.some[number];
	g.alive = (unsigned)threads;
	g.waiting++;
	g.open_if_all();
}
inline void wait_for_last() {}
inline void cluster_sync() { host::wait_blocks(); }
inline float cluster_load(const float *p, int rank)
{
	/* Shared memory of threads of one program lies at the same offsets from each other in each. */
	return *(const float *)(host::beside.shared[rank] + ((const char *)p - host::dynamic_shared()));
}
} // namespace ww
