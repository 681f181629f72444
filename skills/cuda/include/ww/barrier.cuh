/* barrier.cuh - how blocks of a cooperative launch wait for each other, in our own PTX: a barrier over all of them, and
 * floats that one block writes and others await.
 *
 * `counter` is 4 bytes of scratch that a memset node has zeroed before the launch.  Each crossing adds gridDim to it; a
 * block that arrives waits until the count reaches the next multiple of gridDim.  Thread 0 releases the block's writes
 * and acquires the others', the block barriers order the rest of the block around it.  One launch may cross 2^32 /
 * gridDim times.  Without the cooperative flag blocks may wait for others that never start.
 */
#ifndef WW_BARRIER_CUH
#define WW_BARRIER_CUH

namespace ww
{

__device__ __forceinline__ void grid_barrier(unsigned *counter)
{
	unsigned blocks = gridDim.x * gridDim.y * gridDim.z, old, now;

	__syncthreads();
	if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
		asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(old) : "l"(counter) : "memory");
		unsigned goal = (old / blocks + 1) * blocks;
		do {
			asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
		} while ((int)(now - goal) < 0);
	}
	__syncthreads();
}

/* Floats that blocks pass on to each other without a flag: memory that a memset node has filled with words of ones,
 * each written once, by publish().  A NaN of that pattern becomes another one.  Each word is atomic and relaxed: that
 * one is there says nothing of other memory. */
__device__ __forceinline__ void publish(float *at, float v)
{
	const unsigned bits = __float_as_uint(v);

	asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(bits == ~0u ? bits >> 1 : bits) : "memory");
}

/* N of them, 1 or 4 (at 16 bytes): peek() reads, past the first-level cache, there() says whether they were written. */
template <int N> struct awaited {
	unsigned w[N];

	__device__ __forceinline__ void peek(const float *at)
	{
		if constexpr (N == 4)
			asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
				: "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
				: "l"(at)
				: "memory");
		else
			asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(w[0]) : "l"(at) : "memory");
	}
	__device__ __forceinline__ bool there() const
	{
		bool all = true;
#pragma unroll
		for (int i = 0; i < N; i++)
			all &= w[i] != ~0u;
		return all;
	}
	__device__ __forceinline__ void store(float *to) const /* to shared memory */
	{
		if constexpr (N == 4)
			*(float4 *)to = make_float4(
				__uint_as_float(w[0]), __uint_as_float(w[1]), __uint_as_float(w[2]), __uint_as_float(w[3]));
		else
			*to = __uint_as_float(w[0]);
	}
};

/* Until f() says so, which another block has to bring about. */
template <class F> __device__ __forceinline__ void await(const F &f)
{
	while (!f())
		;
}

} // namespace ww

#endif
