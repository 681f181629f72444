/* ww/barrier.cuh for kernels on the cpu. */
#pragma once

namespace ww
{
inline void grid_barrier(unsigned *counter)
{
	host::wait_blocks();
	if (threadIdx.x == 0)
		++*counter;
}

inline void publish(float *at, float v)
{
	const unsigned bits = __float_as_uint(v);

	*(unsigned *)at = bits == ~0u ? bits >> 1 : bits;
}
template <int N> struct awaited {
	unsigned w[N];

	void peek(const float *at)
	{
		if ((uintptr_t)at % sizeof(w))
			host::fail("a read of several floats is not aligned");
		memcpy(w, at, sizeof(w));
	}
	bool there() const
	{
		for (unsigned v : w)
			if (v == ~0u)
				return false;
		return true;
	}
	void store(float *to) const { memcpy(to, w, sizeof(w)); }
};
template <class F> void await(const F &f) { host::wait_until(f); }
} // namespace ww
