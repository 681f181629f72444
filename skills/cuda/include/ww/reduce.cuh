/* reduce.cuh - reductions over outer or middle axes and over everything, deterministic.
 *
 * The tensor is (outer, red, inner).  Threads lie along inner (VEC elements each, coalesced); a block is 32 columns of
 * threads by blockDim / 32 rows, which walk red and meet in shared memory.  Where outer * inner gives too few blocks,
 * red is cut into `splits` parts whose results go to scratch, part[split][outer * inner], and reduce_finish adds them
 * in a fixed order.  Two launches instead of atomics: the result has the same bits every time.
 */
#ifndef WW_REDUCE_CUH
#define WW_REDUCE_CUH

#include <ww/vec.cuh>

namespace ww
{

template <int OP, int VEC, class F> __device__ __forceinline__ void reduce_mid(
	long long outer, long long red, long long inner, int splits, float *part, const F &f)
{
	__shared__ float box[32][32 * VEC + 1];
	int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, rows = blockDim.x >> 5;
	long long i = ((long long)blockIdx.x * 32 + tx) * VEC;
	int split = blockIdx.y;
	long long per = (red + splits - 1) / splits, first = split * per, last = first + per < red ? first + per : red;

	for (long long o = blockIdx.z; o < outer; o += gridDim.z) {
		float acc[VEC];
#pragma unroll
		for (int k = 0; k < VEC; k++)
			acc[k] = op_identity<OP>();
		if (i < inner) {
			long long r = first + ty;
			for (; r + 3LL * rows < last; r += 4LL * rows) {
				float v[4][VEC];
#pragma unroll
				for (int u = 0; u < 4; u++)
					f.template load<VEC>(o, r + (long long)u * rows, i, v[u]);
#pragma unroll
				for (int u = 0; u < 4; u++)
#pragma unroll
					for (int k = 0; k < VEC; k++)
						acc[k] = op_apply<OP>(acc[k], v[u][k]);
			}
			for (; r < last; r += rows) {
				float v[VEC];
				f.template load<VEC>(o, r, i, v);
#pragma unroll
				for (int k = 0; k < VEC; k++)
					acc[k] = op_apply<OP>(acc[k], v[k]);
			}
		}
#pragma unroll
		for (int k = 0; k < VEC; k++)
			box[ty][tx * VEC + k] = acc[k];
		__syncthreads();
		if (ty == 0 && i < inner) {
			for (int y = 1; y < rows; y++)
#pragma unroll
				for (int k = 0; k < VEC; k++)
					acc[k] = op_apply<OP>(acc[k], box[y][tx * VEC + k]);
			if (splits == 1) {
				f.template store<VEC>(o * inner + i, acc);
			} else {
#pragma unroll
				for (int k = 0; k < VEC; k++)
					part[(long long)split * outer * inner + o * inner + i + k] = acc[k];
			}
		}
		__syncthreads();
	}
}

/* One warp a result: lanes stride over the parts, then reduce in a fixed tree. */
template <int OP, class F>
__device__ __forceinline__ void reduce_finish(long long n, int splits, const float *part, const F &f)
{
	long long j = (long long)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
	float v[1] = { op_identity<OP>() };

	if (j >= n)
		return;
	for (int s = threadIdx.x & 31; s < splits; s += 32)
		v[0] = op_apply<OP>(v[0], part[s * n + j]);
	v[0] = warp_reduce<OP>(v[0]);
	if ((threadIdx.x & 31) == 0)
		f.template store<1>(j, v);
}

/* Reduce the whole tensor: block b reduces its share into part[b]. */
template <int OP, int VEC, int UNROLL, class F>
__device__ __forceinline__ void reduce_all(long long n, float *part, const F &f)
{
	__shared__ float box[32];
	long long whole = n / VEC, stride = (long long)gridDim.x * blockDim.x;
	long long j = (long long)blockIdx.x * blockDim.x + threadIdx.x;
	float acc = op_identity<OP>();

	for (; j + (UNROLL - 1) * stride < whole; j += UNROLL * stride) {
		float v[UNROLL][VEC];
#pragma unroll
		for (int u = 0; u < UNROLL; u++)
			f.template load<VEC>((j + u * stride) * VEC, v[u]);
#pragma unroll
		for (int u = 0; u < UNROLL; u++)
#pragma unroll
			for (int k = 0; k < VEC; k++)
				acc = op_apply<OP>(acc, v[u][k]);
	}
	for (; j < whole; j += stride) {
		float v[VEC];
		f.template load<VEC>(j * VEC, v);
#pragma unroll
		for (int k = 0; k < VEC; k++)
			acc = op_apply<OP>(acc, v[k]);
	}
	if (blockIdx.x == 0 && whole * VEC + threadIdx.x < n) {
		float v[1];
		f.template load<1>(whole * VEC + threadIdx.x, v);
		acc = op_apply<OP>(acc, v[0]);
	}
	acc = block_reduce<OP>(acc, box);
	if (threadIdx.x == 0)
		part[blockIdx.x] = acc;
}

} // namespace ww

#endif
