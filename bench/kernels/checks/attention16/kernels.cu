#include <ww/attention16.cuh>

struct strided {
	__nv_bfloat16 *y;
	long long sb, sh, st;

	template <int N> __device__ void store(int b, int h, int t, int c, const float (&v)[N]) const
	{
		ww::store(y + b * sb + h * sh + t * st + c, v);
	}
};

typedef ww::attention16_shape<__nv_bfloat16, k0_W, k0_WV, k0_GROUPS, k0_KEYS, k0_STAGES_Q, k0_BLOCKS> shape;

extern "C" __global__ void __launch_bounds__(shape::threads, k0_BLOCKS) k0(const __grid_constant__ ww_tensor_map tq,
	const __grid_constant__ ww_tensor_map tk, const __grid_constant__ ww_tensor_map tv, int group, int heads, int t_q,
	int t_k, int width_v, float scale, __nv_bfloat16 *y, long long sb, long long sh, long long st)
{
	ww::attention16<shape, k0_BELOW, k0_ABOVE, k0_MASKED, k0_N, k0_M>(
		tq, tk, tv, group, heads, t_q, t_k, width_v, scale, strided{ y, sb, sh, st });
}
