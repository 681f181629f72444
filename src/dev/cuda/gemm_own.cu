/* gemm_own.cu - a plain matrix product for shapes that cuBLASLt refuses or cannot compute exactly.
 *
 * Every element is one chain of fused multiply-adds along l from 0, whatever the tile is, so a row's bits depend on the
 * row alone.  Models have widths that are multiples of eight, and these never come here (gemm.c); odd widths exist in
 * tests. Also here: what gemm.c needs to compare the library's algorithms.
 */
#include "dev/cuda/common.cuh"

enum { TILE = 64, DEPTH = 16, SIDE = 16, EACH_THREAD = TILE / SIDE };

struct product {
	const void *a, *b;
	void *c;
	int64_t ai, al, bl, bj, m, n, k;
	int accumulate;
};

template <class T, class C> __global__ void gemm_k(struct product p)
{
	__shared__ float as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
	int64_t row0 = (int64_t)blockIdx.y * TILE, col0 = (int64_t)blockIdx.x * TILE;
	int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
	float sum[EACH_THREAD][EACH_THREAD] = {};
	for (int64_t l0 = 0; l0 < p.k; l0 += DEPTH) {
		for (int e = threadIdx.x; e < TILE * DEPTH; e += SIDE * SIDE) {
			/* neighbours in memory go to neighbouring threads */
			int la = p.al == 1 ? e % DEPTH : e / TILE, ia = p.al == 1 ? e / DEPTH : e % TILE;
			int lb = p.bl == 1 ? e % DEPTH : e / TILE, jb = p.bl == 1 ? e / DEPTH : e % TILE;
			as[la][ia] = l0 + la < p.k && row0 + ia < p.m
				? widen(((const T *)p.a)[(row0 + ia) * p.ai + (l0 + la) * p.al])
				: 0.0f;
			bs[lb][jb] = l0 + lb < p.k && col0 + jb < p.n
				? widen(((const T *)p.b)[(l0 + lb) * p.bl + (col0 + jb) * p.bj])
				: 0.0f;
		}
		__syncthreads();
		int depth = p.k - l0 < DEPTH ? (int)(p.k - l0) : DEPTH;
		for (int l = 0; l < depth; l++)
#pragma unroll
			for (int i = 0; i < EACH_THREAD; i++)
#pragma unroll
				for (int j = 0; j < EACH_THREAD; j++)
					sum[i][j] = fmaf(as[l][ty + i * SIDE], bs[l][tx + j * SIDE], sum[i][j]);
		__syncthreads();
	}
	for (int i = 0; i < EACH_THREAD; i++)
		for (int j = 0; j < EACH_THREAD; j++) {
			int64_t r = row0 + ty + i * SIDE, c = col0 + tx + j * SIDE;
			if (r >= p.m || c >= p.n)
				continue;
			C *to = (C *)p.c + r * p.n + c;
			narrow(to, p.accumulate ? widen(*to) + sum[i][j] : sum[i][j]);
		}
}

extern "C" int ww_cu_gemm(cudaStream_t s, int ab_bf16, int c_bf16, void *c, const void *a, int64_t ai, int64_t al,
	const void *b, int64_t bl, int64_t bj, int64_t m, int64_t n, int64_t k, int accumulate)
{
	struct product p = { a, b, c, ai, al, bl, bj, m, n, k, accumulate };
	dim3 grid(blocks_for(n, TILE), blocks_for(m, TILE));
	if (grid.y > 65535)
		return (int)cudaErrorInvalidConfiguration;
	if (ab_bf16 && c_bf16)
		gemm_k<bf16_t, bf16_t><<<grid, SIDE * SIDE, 0, s>>>(p);
	else if (ab_bf16)
		gemm_k<bf16_t, float><<<grid, SIDE * SIDE, 0, s>>>(p);
	else if (c_bf16)
		gemm_k<float, bf16_t><<<grid, SIDE * SIDE, 0, s>>>(p);
	else
		gemm_k<float, float><<<grid, SIDE * SIDE, 0, s>>>(p);
	return launched();
}

__global__ void differ_k(int *differ, const unsigned char *a, const unsigned char *b, size_t bytes)
{
	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += (size_t)gridDim.x * blockDim.x)
		if (a[i] != b[i])
			*differ = 1;
}

extern "C" int ww_cu_differ(cudaStream_t s, int *differ, const void *a, const void *b, size_t bytes)
{
	differ_k<<<512, 256, 0, s>>>(differ, (const unsigned char *)a, (const unsigned char *)b, bytes);
	return launched();
}

template <class T> __global__ void random_k(void *x, int64_t n, uint32_t seed)
{
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
		uint32_t v = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 32) ^ seed * 40503u;
		v = (v ^ v >> 16) * 0x85ebca6bu;
		v = (v ^ v >> 13) * 0xc2b2ae35u;
		v ^= v >> 16;
		narrow((T *)x + i, (float)v * (2.0f / 4294967296.0f) - 1.0f);
	}
}

extern "C" int ww_cu_random(cudaStream_t s, int bf16, void *x, int64_t n, uint32_t seed)
{
	if (bf16)
		random_k<bf16_t><<<512, 256, 0, s>>>(x, n, seed);
	else
		random_k<float><<<512, 256, 0, s>>>(x, n, seed);
	return launched();
}
