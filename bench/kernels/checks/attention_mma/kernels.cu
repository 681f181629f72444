#include <ww/attention_mma.cuh>

/* A mask of keys, one for all heads. */
struct masked {
	const unsigned char *m;
	long long mb, mt;
	float *y;
	long long sb, sh, st;

	template <int N> struct beside {
		bool counts[N];
	};
	template <int N> __device__ void ask(int b, int, int t, int c, beside<N> &given) const
	{
		for (int i = 0; i < N; i++)
			given.counts[i] = m[b * mb + t * mt + c + i];
	}
	template <int N> __device__ void score(int, int, int, int, float (&v)[N], const beside<N> &given) const
	{
		for (int i = 0; i < N; i++)
			v[i] = given.counts[i] ? v[i] : -ww::inf_();
	}
	template <int N> __device__ void store(int b, int h, int t, int c, const float (&v)[N]) const
	{
		for (int i = 0; i < N; i++)
			y[b * sb + h * sh + t * st + c + i] = v[i];
	}
};

typedef ww::attention_mma_shape<float, k0_W, k0_WV, k0_WARPS, k0_MT, k0_KEYS, k0_STAGES, k0_QR, k0_KR, k0_VR, k0_QV,
	k0_KV, k0_VV, k0_TEAMS>
	shape;

extern "C" __global__ void __launch_bounds__(shape::threads, k0_BLOCKS) k0(const float *q, long long qb, long long qh,
	long long ql, const float *k, long long kb, long long kh, long long kl, const float *v, long long vb, long long vh,
	long long vl, int group, int heads, int t_q, int t_k, int width, int width_v, float scale, const unsigned char *m,
	long long mb, long long mt, float *y, long long sb, long long sh, long long st)
{
	ww::attention_mma<shape, k0_BELOW, k0_ABOVE, k0_MASKED, k0_N, k0_M, float>({ q, qb, qh, ql, 1 },
		{ k, kb, kh, kl, group }, { v, vb, vh, vl, group }, heads, t_q, t_k, width, width_v, scale,
		masked{ m, mb, mt, y, sb, sh, st });
}
