/* device.h - CUDA's words for the host's compiler: kernels of the planner run on the cpu, block after block.
 *
 * A thread is a fiber.  It runs until a barrier or a shuffle, then the next one runs; so every thread of a block must
 * reach the same barriers, as it must on a device.  Shared memory is static: one block runs at a time.  What only a
 * device has (warpgroups, bulk copies, clusters) is declared and not there: a kernel that uses it does not link.
 * Half precision is a type without arithmetic of its own.
 *
 * Nothing of C++'s library is included but <cmath>: <functional> and <vector> took half of each compilation. */
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#define __CUDA_ARCH__ 900 /* without the features of sm_90a */
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __restrict__ __restrict
#define __grid_constant__
#define __align__(n) alignas(n)

struct dim3 {
	unsigned x, y, z;
};
struct uint2 {
	unsigned x, y;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};
struct alignas(16) float4 {
	float x, y, z, w;
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host
{
enum { MAX_THREADS = 1024, STACK_BYTES = 1 << 16 };
struct fiber {
	ucontext_t at;
	int done;
};
inline fiber fibers[MAX_THREADS];
inline char stacks[MAX_THREADS][STACK_BYTES];
inline ucontext_t scheduler;
inline unsigned running;
inline void (*call)(const void *); /* the kernel with its arguments, and where both lie */
inline const void *body;
inline double slot[2][MAX_THREADS]; /* of shuffles, by parity */
inline int parity[MAX_THREADS];

inline void yield()
{
	const unsigned me = running;
	swapcontext(&fibers[me].at, &scheduler);
	running = me;
	threadIdx = { me, 0, 0 };
}

inline void start()
{
	const unsigned me = running;
	call(body);
	fibers[me].done = 1;
}

inline void block(unsigned threads)
{
	if (threads > MAX_THREADS)
		abort();
	for (unsigned i = 0; i < threads; i++) {
		fiber &f = fibers[i];
		f.done = 0;
		parity[i] = 0;
		getcontext(&f.at);
		f.at.uc_stack.ss_sp = stacks[i];
		f.at.uc_stack.ss_size = STACK_BYTES;
		f.at.uc_link = &scheduler;
		makecontext(&f.at, start, 0);
	}
	for (unsigned left = threads; left;)
		for (unsigned i = 0; i < threads; i++)
			if (!fibers[i].done) {
				running = i;
				threadIdx = { i, 0, 0 };
				swapcontext(&scheduler, &fibers[i].at);
				left -= fibers[i].done;
			}
}

template <class F> void launch(unsigned gx, unsigned gy, unsigned gz, unsigned threads, const F &kernel)
{
	call = [](const void *f) { (*(const F *)f)(); };
	body = &kernel;
	blockDim = { threads, 1, 1 };
	gridDim = { gx, gy, gz };
	for (unsigned z = 0; z < gz; z++)
		for (unsigned y = 0; y < gy; y++)
			for (unsigned x = 0; x < gx; x++) {
				blockIdx = { x, y, z };
				block(threads);
			}
}

/* An argument of a kernel, as whatever pointer it takes. */
struct pointer {
	char *p;
	template <class T> operator T *() const { return (T *)p; }
};
} // namespace host

inline void __syncthreads() { host::yield(); }

namespace host
{
template <class T> T exchange(T v, unsigned from)
{
	const unsigned me = threadIdx.x;
	double (&box)[MAX_THREADS] = slot[parity[me] ^= 1];
	T other;
	memcpy(&box[me], &v, sizeof(v));
	yield();
	memcpy(&other, &box[from], sizeof(other));
	return other;
}
} // namespace host

template <class T> T __shfl_xor_sync(unsigned, T v, int mask)
{
	return host::exchange(v, threadIdx.x ^ (unsigned)mask);
}
template <class T> T __shfl_up_sync(unsigned, T v, int by)
{
	return host::exchange(v, (int)threadIdx.x % 32 < by ? threadIdx.x : threadIdx.x - (unsigned)by);
}
template <class T> T __shfl_sync(unsigned, T v, int lane)
{
	return host::exchange(v, threadIdx.x / 32 * 32 + (unsigned)lane % 32);
}

unsigned __reduce_max_sync(unsigned, unsigned);
unsigned atomicMax(unsigned *, unsigned);
void __syncwarp(unsigned = 0xffffffffu);
unsigned __cvta_generic_to_shared(const void *);
inline float __int_as_float(int v)
{
	float f;
	memcpy(&f, &v, sizeof(f));
	return f;
}
inline int __float_as_int(float v)
{
	int i;
	memcpy(&i, &v, sizeof(i));
	return i;
}
inline unsigned __float_as_uint(float v) { return (unsigned)__float_as_int(v); }
inline float __uint_as_float(unsigned v) { return __int_as_float((int)v); }
inline double __longlong_as_double(long long v)
{
	double d;
	memcpy(&d, &v, sizeof(d));
	return d;
}
inline float __fdividef(float a, float b) { return a / b; }
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
template <class T> T max(T a, T b) { return a > b ? a : b; }

struct __half {
	unsigned short bits;
};
struct __nv_bfloat16 {
	unsigned short bits;
};
struct __half2 {
	__half x, y;
};
inline float __half2float(__half v)
{
	_Float16 f;
	memcpy(&f, &v, sizeof(f));
	return (float)f;
}
inline __half __float2half_rn(float v)
{
	const _Float16 f = (_Float16)v;
	__half h;
	memcpy(&h, &f, sizeof(h));
	return h;
}
inline float __bfloat162float(__nv_bfloat16 v) { return __uint_as_float((unsigned)v.bits << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
	const unsigned u = __float_as_uint(v);

	return { (unsigned short)(v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16) };
}
