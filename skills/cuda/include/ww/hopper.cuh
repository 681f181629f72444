/* hopper.cuh - the instructions of sm_90a that the cookbook needs, as inline PTX: mbarriers, the tensor copy engine
 * (TMA), clusters, wgmma and register reallocation.
 *
 * Conventions.  A shared address is a 32-bit number (saddr()).  An mbarrier's phase flips whenever its expected
 * arrivals and bytes are complete; bar_wait(bar, parity) returns once the phase of that parity has completed.  Operand
 * tiles lie in shared memory as TMA writes them with the 128-byte swizzle: rows of 128 bytes of K, eight rows an atom
 * of 1024 bytes, tiles aligned to 1024; desc() describes such a tile to wgmma, and adding 32 bytes moves on by 16
 * elements of K.
 *
 * The wgmma wrappers are spelled out for the widths in use, since the number of operands of an asm statement is fixed.
 */
#ifndef WW_HOPPER_CUH
#define WW_HOPPER_CUH

#include <ww/vec.cuh>

/* A TMA descriptor as the judge encodes it; pass it as `const __grid_constant__ ww_tensor_map`. */
struct alignas(64) ww_tensor_map {
	unsigned char opaque[128];
};

namespace ww
{

typedef unsigned long long u64;

__device__ __forceinline__ unsigned saddr(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

/* ---- mbarriers --------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void bar_init(unsigned bar, int count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

/* Make initialised barriers visible to the copy engine and to the cluster. */
__device__ __forceinline__ void bar_init_fence()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void bar_expect(unsigned bar, unsigned bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void bar_arrive(unsigned bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Arrive at the barrier at the same address in block `rank` of the cluster. */
__device__ __forceinline__ void bar_arrive_remote(unsigned bar, int rank)
{
	asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\n"
				 "mbarrier.arrive.shared::cluster.b64 _, [a];\n}" ::"r"(bar),
		"r"(rank)
		: "memory");
}

__device__ __forceinline__ void bar_wait(unsigned bar, unsigned parity)
{
	asm volatile("{\n.reg .pred p;\nwait:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
				 "@!p bra wait;\n}" ::"r"(bar),
		"r"(parity)
		: "memory");
}

/* ---- tensor copies ----------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void tma_prefetch_map(const ww_tensor_map *m)
{
	asm volatile("prefetch.tensormap [%0];" ::"l"((u64)m) : "memory");
}

__device__ __forceinline__ void tma_load3(unsigned dst, const ww_tensor_map *m, unsigned bar, int c0, int c1, int c2)
{
	asm volatile(
		"cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
			"r"(dst),
		"l"((u64)m), "r"(bar), "r"(c0), "r"(c1), "r"(c2)
		: "memory");
}

/* To the same offsets of every block of the cluster in `mask`, each one's own barrier counting the bytes. */
__device__ __forceinline__ void tma_load3_multicast(
	unsigned dst, const ww_tensor_map *m, unsigned bar, int c0, int c1, int c2, unsigned short mask)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
				 "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(dst),
		"l"((u64)m), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "h"(mask)
		: "memory");
}

__device__ __forceinline__ void tma_load4(
	unsigned dst, const ww_tensor_map *m, unsigned bar, int c0, int c1, int c2, int c3)
{
	asm volatile(
		"cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::
			"r"(dst),
		"l"((u64)m), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
		: "memory");
}

/* `bytes` one behind the other, a multiple of 16, both places aligned to 16; `bar` of this block counts them. */
__device__ __forceinline__ void bulk_load(unsigned dst, const void *from, unsigned bytes, unsigned bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
		"l"((u64)from), "r"(bytes), "r"(bar)
		: "memory");
}

/* `v` to the float at `p` in block `rank` of the cluster, whose barrier at `bar` counts 4 bytes: whoever waits for that
 * sees it.  No fence, which would also wait for all stores to memory, as one of the cluster's barrier does. */
__device__ __forceinline__ void send(float *p, int rank, float v, unsigned bar)
{
	asm volatile("{\n.reg .b32 a, b;\nmapa.shared::cluster.u32 a, %0, %1;\nmapa.shared::cluster.u32 b, %3, %1;\n"
				 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [a], %2, [b];\n}" ::"r"(saddr(p)),
		"r"(rank), "f"(v), "r"(bar)
		: "memory");
}

__device__ __forceinline__ void tma_load5(
	unsigned dst, const ww_tensor_map *m, unsigned bar, int c0, int c1, int c2, int c3, int c4)
{
	asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
				 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(dst),
		"l"((u64)m), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
		: "memory");
}

/* ---- clusters, registers ----------------------------------------------------------------------------------------- */

__device__ __forceinline__ void cluster_barrier()
{
	asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ int cluster_rank()
{
	unsigned r;
	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
	return (int)r;
}

template <int N> __device__ __forceinline__ void regs_grow()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void regs_shrink()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- wgmma ------------------------------------------------------------------------------------------------------- */

/* A tile of V, whose rows of K lie one behind the other with their columns along memory: groups of COLUMNS (64 in the
 * 128-byte swizzle, 32 in the 64-byte one), `group` bytes from one group to the next.  Adding COLUMNS * 2 moves on by
 * 16 of K. */
template <int COLUMNS> __device__ __forceinline__ u64 desc_turned(unsigned addr, int group)
{
	return (u64)((addr & 0x3ffff) >> 4) | (u64)(group >> 4) << 16 | (u64)(COLUMNS * 16 >> 4) << 32 |
		(u64)(COLUMNS == 64 ? 1 : 2) << 62;
}

/* A K-major tile in the 128-byte swizzle: 1024 bytes between groups of eight rows. */
__device__ __forceinline__ u64 desc(unsigned addr)
{
	return (u64)((addr & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wgmma_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Keep the compiler from moving uses of accumulators across the asynchronous instructions. */
template <int N> __device__ __forceinline__ void wgmma_pin(float (&d)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		asm volatile("" : "+f"(d[i])::"memory");
}
/* The same of an operand in registers. */
template <int N> __device__ __forceinline__ void wgmma_pin(unsigned (&a)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		asm volatile("" : "+r"(a[i])::"memory");
}

#define WW_F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WW_F16(d, i) WW_F4(d, i), WW_F4(d, i + 4), WW_F4(d, i + 8), WW_F4(d, i + 12)

template <int N> struct wgmma;

template <> struct wgmma<32> {
	/* D (64, 32) += A (64, 16) of registers times B (16, 32) that lies as desc_turned() says. */
	static __device__ __forceinline__ void rs_turned(float (&d)[16], const unsigned (&a)[4], u64 b, __half *)
	{
		asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
					 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
					 "{%16, %17, %18, %19}, %20, 1, 1, 1, 1;\n"
			: WW_F16(d, 0)
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
	}
	/* The same on bfloat16. */
	static __device__ __forceinline__ void rs_turned(float (&d)[16], const unsigned (&a)[4], u64 b, __nv_bfloat16 *)
	{
		asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
					 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
					 "{%16, %17, %18, %19}, %20, 1, 1, 1, 1;\n"
			: WW_F16(d, 0)
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
	}
};

template <> struct wgmma<64> {
	/* D (64, 64) = A (64, 16) B^T (64, 16) + keep * D, both operands in shared memory. */
	static __device__ __forceinline__ void ss(float (&d)[32], u64 a, u64 b, int keep, __half *)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
			"%32, %33, p, 1, 1, 0, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16)
			: "l"(a), "l"(b), "r"(keep));
	}
	/* The same on bfloat16. */
	static __device__ __forceinline__ void ss(float (&d)[32], u64 a, u64 b, int keep, __nv_bfloat16 *)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
			"%32, %33, p, 1, 1, 0, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16)
			: "l"(a), "l"(b), "r"(keep));
	}
	/* The same with A (64, 16) of fp16 in registers. */
	static __device__ __forceinline__ void rs(float (&d)[32], const unsigned (&a)[4], u64 b, int keep)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
			"{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16)
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
	}
	/* D (64, 64) += A (64, 16) of registers times B (16, 64) that lies as desc_turned() says. */
	static __device__ __forceinline__ void rs_turned(float (&d)[32], const unsigned (&a)[4], u64 b, __half *)
	{
		asm volatile(
			"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
			"{%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
			: WW_F16(d, 0), WW_F16(d, 16)
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
	}
	/* The same on bfloat16. */
	static __device__ __forceinline__ void rs_turned(float (&d)[32], const unsigned (&a)[4], u64 b, __nv_bfloat16 *)
	{
		asm volatile(
			"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
			"{%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
			: WW_F16(d, 0), WW_F16(d, 16)
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
	}
};

template <> struct wgmma<128> {
	/* D (64, 128) = A (64, 16) B^T (128, 16) + keep * D, both operands in shared memory. */
	static __device__ __forceinline__ void ss(float (&d)[64], u64 a, u64 b, int keep, __half *)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
			"%64, %65, p, 1, 1, 0, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16), WW_F16(d, 32), WW_F16(d, 48)
			: "l"(a), "l"(b), "r"(keep));
	}
	/* The same on bfloat16. */
	static __device__ __forceinline__ void ss(float (&d)[64], u64 a, u64 b, int keep, __nv_bfloat16 *)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
			"%64, %65, p, 1, 1, 0, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16), WW_F16(d, 32), WW_F16(d, 48)
			: "l"(a), "l"(b), "r"(keep));
	}
	/* The same with A (64, 16) of fp16 in registers. */
	static __device__ __forceinline__ void rs(float (&d)[64], const unsigned (&a)[4], u64 b, int keep)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
			"{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16), WW_F16(d, 32), WW_F16(d, 48)
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
	}
	/* D (64, 128) += A (64, 16) of registers times B (16, 128) that lies as desc_turned() says. */
	static __device__ __forceinline__ void rs_turned(float (&d)[64], const unsigned (&a)[4], u64 b, __half *)
	{
		asm volatile(
			"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
			"{%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
			: WW_F16(d, 0), WW_F16(d, 16), WW_F16(d, 32), WW_F16(d, 48)
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
	}
	/* The same on bfloat16. */
	static __device__ __forceinline__ void rs_turned(float (&d)[64], const unsigned (&a)[4], u64 b, __nv_bfloat16 *)
	{
		asm volatile(
			"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
			"{%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
			: WW_F16(d, 0), WW_F16(d, 16), WW_F16(d, 32), WW_F16(d, 48)
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
	}
};

template <> struct wgmma<192> {
	/* D (64, 192) = A (64, 16) B^T (192, 16) + keep * D, both operands in shared memory. */
	static __device__ __forceinline__ void ss(float (&d)[96], u64 a, u64 b, int keep, __half *)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
			"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
			"%96, %97, p, 1, 1, 0, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16), WW_F16(d, 32), WW_F16(d, 48), WW_F16(d, 64), WW_F16(d, 80)
			: "l"(a), "l"(b), "r"(keep));
	}
	/* The same on bfloat16. */
	static __device__ __forceinline__ void ss(float (&d)[96], u64 a, u64 b, int keep, __nv_bfloat16 *)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
			"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
			"%96, %97, p, 1, 1, 0, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16), WW_F16(d, 32), WW_F16(d, 48), WW_F16(d, 64), WW_F16(d, 80)
			: "l"(a), "l"(b), "r"(keep));
	}
};

template <> struct wgmma<256> {
	/* D (64, 256) = A (64, 16) B^T (256, 16) + keep * D, both operands in shared memory. */
	static __device__ __forceinline__ void ss(float (&d)[128], u64 a, u64 b, int keep, __half *)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
			"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
			"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
			"%128, %129, p, 1, 1, 0, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16), WW_F16(d, 32), WW_F16(d, 48), WW_F16(d, 64), WW_F16(d, 80), WW_F16(d, 96),
			WW_F16(d, 112)
			: "l"(a), "l"(b), "r"(keep));
	}
	/* The same on bfloat16. */
	static __device__ __forceinline__ void ss(float (&d)[128], u64 a, u64 b, int keep, __nv_bfloat16 *)
	{
		asm volatile(
			"{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
			"wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
			"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
			"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
			"%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
			"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
			"%128, %129, p, 1, 1, 0, 0;\n}"
			: WW_F16(d, 0), WW_F16(d, 16), WW_F16(d, 32), WW_F16(d, 48), WW_F16(d, 64), WW_F16(d, 80), WW_F16(d, 96),
			WW_F16(d, 112)
			: "l"(a), "l"(b), "r"(keep));
	}
};

#undef WW_F16
#undef WW_F4

} // namespace ww

#endif
