/* ptx.cuh - instructions without a C++ form, except those of tensor cores: a fast power of two, logarithm and
 * reciprocal, extrema that keep NaN, barriers of some warps, the shared memory of a cluster's blocks, and launches that
 * overlap (programmatic dependent launch).
 *
 * Macro of the plan: PDL_, 1 where it calls ww_pdl_all().
 *
 * Tests of the cookbook run kernels on the cpu with a header of the same name in place of this one. */
#ifndef WW_PTX_CUH
#define WW_PTX_CUH

namespace ww
{

/* 2^x, two units in the last place, one instruction. */
__device__ __forceinline__ float exp2_(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* 16 bytes that nobody reads again: their line is the first that the second level replaces. */
__device__ __forceinline__ uint4 load16_once(const uint4 *p)
{
#if __CUDA_ARCH__ >= 800
	uint4 v;
	asm("{\n.reg .b64 first;\ncreatepolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
		"ld.global.nc.L1::evict_first.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], first;\n}"
		: "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		: "l"(p));
	return v;
#else
	return *p;
#endif
}

/* The binary logarithm, to 2^-22, of itself outside of 0.5 to 2, one instruction; of subnormal x that of 0. */
__device__ __forceinline__ float log2_(float x)
{
	float y;
	asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* 1 / x, one unit in the last place, one instruction; |x| from 2^-126 to 2^126, else 0 or infinity. */
__device__ __forceinline__ float rcp_ftz_(float x)
{
	float y;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* 1 / x, one unit in the last place, also where it or x is subnormal; three instructions more. */
__device__ __forceinline__ float rcp_(float x)
{
	float y;
	asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* NaN if either operand is, as in PyTorch. */
__device__ __forceinline__ float max_nan(float a, float b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	float r;
	asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
	return r;
#else
	return a != a || a > b ? a : b;
#endif
}
__device__ __forceinline__ float min_nan(float a, float b) { return -max_nan(-a, -b); } /* signs cost nothing */

/* 16 bytes to memory in one access, whatever the compiler finds out about `p`: of `*(uint4 *)p` with 64-bit indices it
 * made four. */
__device__ __forceinline__ void store16(void *p, uint4 v)
{
	asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
		: "memory");
}

/* Wait until `threads` threads of the block, whole warps, have come here with this number from 1 to 15. */
__device__ __forceinline__ void meet(int number, int threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Be one of those whom a meeting waits for, and go on. */
__device__ __forceinline__ void arrive(int number, int threads)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* The first statement of each kernel in a plan that calls ww_pdl_all(): waits for the results of the previous launch,
 * then lets the next one start (PTX ISA, griddepcontrol).  The wait comes first, so that at most one launch waits while
 * another runs. */
__device__ __forceinline__ void wait_for_last()
{
#if PDL_ && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ void cluster_sync()
{
	asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
/* The float at `p` in the shared memory of block `rank` of this cluster. */
__device__ __forceinline__ float cluster_load(const float *p, int rank)
{
	unsigned a = (unsigned)__cvta_generic_to_shared(p), b;
	float v;
	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(b) : "r"(a), "r"(rank));
	asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(b) : "memory");
	return v;
}
#else
__device__ __forceinline__ void cluster_sync() {}
__device__ __forceinline__ float cluster_load(const float *p, int) { return *p; }
#endif

} // namespace ww

#endif
