/* attention.cuh - softmax(scale * Q K^T + causal mask) V in fp32, at fp32-class accuracy, on tensor cores (sm_90a).
 *
 * Q, K and V are split into fp16 pairs beforehand (split.cuh; one power-of-two scale a head and tensor), V transposed
 * on the way, so that every operand is K-major.  A block has 128 rows of Q, which stay in shared memory: a producer
 * warpgroup streams tiles of K and V through two buffers each, two consumer warpgroups hold 64 rows each.  While one
 * does its softmax the other has the tensor cores.
 *
 * S = Q K^T takes three products (hi lo, lo hi, hi hi).  P = exp2(S - max + 14) is split in registers, where
 * accumulators already have the layout of an A operand; the 14 puts P's largest values at fp16's top, so that lo keeps
 * its bits.  P V goes to fresh accumulators for every tile and is added to the running output together with the
 * softmax's correction: that is the promotion which gemm3 needs too (pipeline.cuh), at no cost.
 *
 * Rejected: TF32 in three products, which has half the rate; a single scale for everything, which loses quiet heads.
 */
#ifndef WW_ATTENTION_CUH
#define WW_ATTENTION_CUH

#include <ww/attention16.cuh>
#include <ww/split.cuh>
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include <ww/hopper.cuh>

namespace ww
{

template <int D> struct attention_tile {
	enum : int { kv = D == 64 ? 128 : 64 }; /* rows of K and V a tile */
	enum : int { stages = 2 };
	enum : int { q_bytes = 128 * D * 4 };
	enum : int { kv_bytes = kv * D * 4 }; /* of K, and as many of V */
	enum : int { bytes = q_bytes + stages * 2 * kv_bytes };
};

/* Barriers: q, then full and empty of K, full and empty of V, `stages` each. */
struct attention_bars {
	unsigned q, k_full, k_empty, v_full, v_empty;
	__device__ __forceinline__ attention_bars(unsigned at, int stages)
		: q(at), k_full(at + 8), k_empty(k_full + 8 * stages), v_full(k_empty + 8 * stages),
		  v_empty(v_full + 8 * stages)
	{
	}
};

template <int D> __device__ __forceinline__ void attention_produce(const ww_tensor_map &tq, const ww_tensor_map &tk,
	const ww_tensor_map &tv, unsigned base, attention_bars bars, int q0, int zq, int zk, int tiles)
{
	typedef attention_tile<D> A;

	bar_expect(bars.q, A::q_bytes);
	for (int i = 0; i < D / 32; i++)
		tma_load3(base + i * 128 * 128, &tq, bars.q, i * 64, q0, zq);
	for (int t = 0; t < tiles; t++) {
		int s = t % A::stages;
		unsigned parity = (t / A::stages & 1) ^ 1;
		unsigned k = base + A::q_bytes + s * A::kv_bytes, v = k + A::stages * A::kv_bytes;

		bar_wait(bars.k_empty + 8 * s, parity);
		bar_expect(bars.k_full + 8 * s, A::kv_bytes);
		for (int i = 0; i < D / 32; i++)
			tma_load3(k + i * A::kv * 128, &tk, bars.k_full + 8 * s, i * 64, t * A::kv, zk);
		bar_wait(bars.v_empty + 8 * s, parity);
		bar_expect(bars.v_full + 8 * s, A::kv_bytes);
		for (int i = 0; i < A::kv / 32; i++)
			tma_load3(v + i * D * 128, &tv, bars.v_full + 8 * s, (t * A::kv / 32 + i) * 64, 0, zk);
	}
}

/* row: of this thread's first result; its second lies 8 below.  limit: columns that exist. */
template <int D, bool CAUSAL, class E> __device__ __forceinline__ void attention_consume(unsigned base,
	attention_bars bars, int wg, int tiles, int q0, int t_q, int t_k, float scale, float unscale_v, int b, int h,
	const E &e)
{
	typedef attention_tile<D> A;
	const int kv = A::kv;
	int lane = threadIdx.x & 31, row = q0 + wg * 64 + (threadIdx.x / 32 % 4) * 16 + lane / 4;
	float o[D / 2], s[kv / 2], ot[D / 2], top[2] = { -inf_(), -inf_() }, rest[2] = { 0.f, 0.f };
	float sum[2] = { 0.f, 0.f };

#pragma unroll
	for (int i = 0; i < D / 2; i++)
		o[i] = 0.f;
	bar_wait(bars.q, 0);
	for (int t = 0; t < tiles; t++) {
		int stage = t % A::stages;
		unsigned parity = t / A::stages & 1;
		unsigned k = base + A::q_bytes + stage * A::kv_bytes, v = k + A::stages * A::kv_bytes;
		u64 dq = desc(base + wg * 64 * 128), dk = desc(k), dv = desc(v);
		float fix[2];

		bar_wait(bars.k_full + 8 * stage, parity);
		wgmma_pin(s);
		wgmma_begin();
#pragma unroll
		for (int i = 0; i < D / 16; i++) {
			u64 q = dq + i / 2 * (128 * 128 / 16) + i % 2 * 2, kk = dk + i / 2 * (kv * 128 / 16) + i % 2 * 2;
			wgmma<kv>::ss(s, q, kk + 4, i != 0, (__half *)0);
			wgmma<kv>::ss(s, q + 4, kk, 1, (__half *)0);
			wgmma<kv>::ss(s, q, kk, 1, (__half *)0);
		}
		wgmma_commit();
		wgmma_wait<0>();
		wgmma_pin(s);
		if (lane == 0)
			bar_arrive(bars.k_empty + 8 * stage);

		int col = t * kv + lane % 4 * 2;
		if ((CAUSAL && (t + 1) * kv > q0 + wg * 64) || (t + 1) * kv > t_k) {
#pragma unroll
			for (int i = 0; i < kv / 2; i++) {
				int c = col + i / 4 * 8 + i % 2, r = row + (i % 4 / 2) * 8;
				if ((CAUSAL && c > r) || c >= t_k)
					s[i] = -inf_();
			}
		}
#pragma unroll
		for (int half = 0; half < 2; half++) {
			/* The maximum is exactly top + rest: rounded, that of scores in the millions would be wrong by powers of
			 * two, and weights infinite. */
			float m = attention_row_max(s, half), now = m * scale, old = top[half], old_rest = rest[half], add = 0.f;
			if (now > old) {
				top[half] = now;
				rest[half] = fmaf(m, scale, -now);
			}
			fix[half] = exp2_(old - top[half] + (old_rest - rest[half]));
			m = top[half];
			now = 14.f - rest[half];
#pragma unroll
			for (int j = 0; j < kv / 8; j++) {
#pragma unroll
				for (int i = 0; i < 2; i++) {
					float &x = s[j * 4 + half * 2 + i];
					x = exp2_(fmaf(x, scale, -m) + now);
					add += x;
				}
			}
			sum[half] = fmaf(sum[half], fix[half], add);
		}
		unsigned hi[kv / 16][4], lo[kv / 16][4];
#pragma unroll
		for (int i = 0; i < kv / 16; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				split_pair(s[i * 8 + j * 2], s[i * 8 + j * 2 + 1], hi[i][j], lo[i][j]);

		bar_wait(bars.v_full + 8 * stage, parity);
		wgmma_pin(ot);
		wgmma_begin();
#pragma unroll
		for (int i = 0; i < kv / 16; i++) {
			u64 vv = dv + i / 2 * (D * 128 / 16) + i % 2 * 2;
			wgmma<D>::rs(ot, lo[i], vv, i != 0);
			wgmma<D>::rs(ot, hi[i], vv + 4, 1);
			wgmma<D>::rs(ot, hi[i], vv, 1);
		}
		wgmma_commit();
		wgmma_wait<0>();
		wgmma_pin(ot);
		if (lane == 0)
			bar_arrive(bars.v_empty + 8 * stage);
#pragma unroll
		for (int i = 0; i < D / 2; i++)
			o[i] = fmaf(o[i], fix[i % 4 / 2], ot[i]);
	}
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float all = sum[half] + __shfl_xor_sync(0xffffffffu, sum[half], 1);
		all += __shfl_xor_sync(0xffffffffu, all, 2);
		float k = unscale_v / all;
		if (row + 8 * half >= t_q)
			continue;
#pragma unroll
		for (int j0 = 0; j0 < D / 8; j0 += 4) {
			ahead<E, 2> r[4];
#pragma unroll
			for (int j = 0; j < 4; j++)
				r[j].fetch(e, b, h, row + 8 * half, (j0 + j) * 8 + lane % 4 * 2);
#pragma unroll
			for (int j = 0; j < 4; j++) {
				const float *from = o + (j0 + j) * 4 + half * 2;
				const float out[2] = { from[0] * k, from[1] * k };
				r[j].store(e, out, b, h, row + 8 * half, (j0 + j) * 8 + lane % 4 * 2);
			}
		}
	}
}

/* Grid (query tiles, b * h), block 384; amax: b * h maxima of Q, then b * h_kv of K and of V.  Late query tiles have
 * the most work under a causal mask: they come first. */
template <int D, bool CAUSAL, class E> __device__ __forceinline__ void attention(const ww_tensor_map &tq,
	const ww_tensor_map &tk, const ww_tensor_map &tv, const unsigned *amax, float scale, int b, int h, int h_kv,
	int t_q, int t_k, const E &e)
{
	typedef attention_tile<D> A;
	extern __shared__ unsigned char ww_dynamic_shared[];
	unsigned base = (saddr(ww_dynamic_shared) + 1023) & ~1023u;
	attention_bars bars(base + A::bytes, A::stages);
	int q0 = (gridDim.x - 1 - blockIdx.x) * 128, zq = blockIdx.y, zk = zq / h * h_kv + zq % h / (h / h_kv);
	int last = CAUSAL ? min(t_k, q0 + 128) : t_k, tiles = (last + A::kv - 1) / A::kv, wg = threadIdx.x / 128;

	if (threadIdx.x == 0) {
		bar_init(bars.q, 1);
		for (int s = 0; s < A::stages; s++) {
			bar_init(bars.k_full + 8 * s, 1);
			bar_init(bars.v_full + 8 * s, 1);
			bar_init(bars.k_empty + 8 * s, 8);
			bar_init(bars.v_empty + 8 * s, 8);
		}
		bar_init_fence();
	}
	__syncthreads();
	if (wg == 0) {
		regs_shrink<40>();
		if (threadIdx.x == 0)
			attention_produce<D>(tq, tk, tv, base, bars, q0, zq, zk, tiles);
	} else {
		regs_grow<232>();
		float s = scale * 1.44269504088896340736f * unscale(__ldg(amax + zq)) * unscale(__ldg(amax + b * h + zk));
		attention_consume<D, CAUSAL>(base, bars, wg - 1, tiles, q0, t_q, t_k, s,
			unscale(__ldg(amax + b * h + b * h_kv + zk)), zq / h, zq % h, e);
	}
}

} // namespace ww

#endif
#endif
