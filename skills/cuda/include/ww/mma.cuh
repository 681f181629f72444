/* mma.cuh - one warp's tensor-core instructions (mma.sync), and asynchronous copies to shared memory.
 *
 * Fragments, with g = lane / 4 and t = lane % 4.  A (16 rows, k) and B (8 columns, k), both "along k"; D (16, 8):
 *     d[0], d[1]    row g, columns 2t, 2t+1          d[2], d[3]    row g + 8
 *     16 bits, 16 of k:  a[0] row g, a[1] row g + 8, each k 2t, 2t+1; a[2], a[3] the same 8 of k on; b[0], b[1] column
 * g tf32, 8 of k:      a[0] row g, a[1] row g + 8, each k t;        a[2], a[3] the same 4 of k on; b[0], b[1] column g
 * The order of k inside a fragment is free, as long as A and B have the same.
 *
 * Tests of the cookbook run kernels on the cpu with a header of the same name in place of this one. */
#ifndef WW_MMA_CUH
#define WW_MMA_CUH

#include <ww/vec.cuh>

namespace ww
{

/* d += a b of tf32: the upper 19 bits of fp32. */
__device__ __forceinline__ void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
	asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
				 "{%0, %1, %2, %3};"
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* d += a b of 16 bits; the last argument says of which type. */
__device__ __forceinline__ void mma_16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], __half *)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
				 "{%0, %1, %2, %3};"
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], __nv_bfloat16 *)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
				 "{%0, %1, %2, %3};"
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four matrices of 8 x 8 elements of 16 bits: lane l points to row l % 8 of matrix l / 8 in shared memory, 16 bytes.
 * r[i] is this lane's part of matrix i as a fragment: row g, columns 2t, 2t+1; transposed: column g, rows 2t, 2t+1. */
template <bool TURNED> __device__ __forceinline__ void mma_load(unsigned (&r)[4], const void *row)
{
	const unsigned at = (unsigned)__cvta_generic_to_shared(row);

	if (TURNED)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
			: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
			: "r"(at)
			: "memory");
	else
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
			: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
			: "r"(at)
			: "memory");
}

/* Copy BYTES (4, 8, 16) to shared memory, of which the first `valid` are read and the others are zeros; both addresses
 * are multiples of BYTES.  The copy is complete after copy_wait(). */
template <int BYTES> __device__ __forceinline__ void copy_start(void *to, const void *from, int valid)
{
	const unsigned at = (unsigned)__cvta_generic_to_shared(to);

	if (BYTES == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(valid) : "memory");
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES < 16 ? BYTES : 8),
			"r"(valid)
			: "memory");
}
/* Make one group of the copies started since the last call. */
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Wait until at most LEFT of this thread's groups are incomplete. */
template <int LEFT> __device__ __forceinline__ void copy_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* The first element of this block's dynamic shared memory. */
__device__ __forceinline__ float *dynamic_shared()
{
	extern __shared__ __align__(16) unsigned char ww_dynamic_shared[];
	return (float *)ww_dynamic_shared;
}

__device__ __forceinline__ void mma_cluster_barrier()
{
	asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Two floats at the same offset in the shared memory of block `rank` of the cluster. */
__device__ __forceinline__ void cluster_load2(float (&v)[2], const float *p, int rank)
{
	asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %2, %3;\nld.shared::cluster.v2.f32 {%0, %1}, [a];\n}"
		: "=f"(v[0]), "=f"(v[1])
		: "r"((unsigned)__cvta_generic_to_shared(p)), "r"(rank)
		: "memory");
}

} // namespace ww

#endif
