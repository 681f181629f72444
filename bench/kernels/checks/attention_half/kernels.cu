#include <ww/attention_mma.cuh>

struct strided {
	__nv_bfloat16 *y;
	long long sb, sh, st;

	template <int N> __device__ void store(int b, int h, int t, int c, const float (&v)[N]) const
	{
		ww::store(y + b * sb + h * sh + t * st + c, v);
	}
};

typedef ww::attention_mma_shape<__nv_bfloat16, k0_W, k0_WV, k0_WARPS, k0_MT, k0_KEYS, k0_STAGES, k0_QR, k0_KR, k0_VR,
	k0_QV, k0_KV, k0_VV, k0_TEAMS>
	shape;

extern "C" __global__ void __launch_bounds__(shape::threads, k0_BLOCKS) k0(const __nv_bfloat16 *q, long long qb,
	long long qh, long long ql, const __nv_bfloat16 *k, long long kb, long long kh, long long kl,
	const __nv_bfloat16 *v, long long vb, long long vh, long long vl, int group, int heads, int t_q, int t_k, int width,
	int width_v, float scale, __nv_bfloat16 *y, long long sb, long long sh, long long st)
{
	ww::attention_mma<shape, k0_BELOW, k0_ABOVE, k0_MASKED, k0_N, k0_M, __nv_bfloat16>({ q, qb, qh, ql, 1 },
		{ k, kb, kh, kl, group }, { v, vb, vh, vl, group }, heads, t_q, t_k, width, width_v, scale,
		strided{ y, sb, sh, st });
}
