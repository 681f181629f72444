#include <ww/gemm_mma.cuh>

struct linear {
	const float *bias;
	float *y;
	int n;

	template <int N> __device__ void store(int, int row, int col, const float (&v)[N]) const
	{
		for (int i = 0; i < N; i++)
			y[(long long)row * n + col + i] = v[i] + bias[col + i];
	}
};

extern "C" __global__ void __launch_bounds__((ww::mma_shape<float, k0_BM, k0_BN>::threads))
	k0(const float *a, long long as, long long ao, long long ai, const float *b, long long bs, long long bo,
		long long bi, int inner, int m, int n, int k, const float *bias, float *y)
{
	ww::gemm_mma<float, k0_BM, k0_BN, k0_STAGES, k0_SPLIT, k0_AK, k0_BK, k0_AV, k0_BV>(
		{ a, as, ao, ai, inner }, { b, bs, bo, bi, inner }, m, n, k, linear{ bias, y, n });
}
