#include <ww/gemm_thin.cuh>

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

extern "C" __global__ void __launch_bounds__(256, 2)
	k0(const float *a, long long as, long long ao, long long ai, const float *b, long long bs, long long bo,
		long long bi, int inner, int m, int n, int k, const float *bias, float *y)
{
	ww::gemm_thin<k0_N, k0_V, k0_PARTS, k0_ALONG>(
		{ a, as, ao, ai, inner }, { b, bs, bo, bi, inner }, m, n, k, linear{ bias, y, n });
}
