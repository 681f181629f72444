/* fused.cu - operations that follow one another in a layer, in one pass: their arrays stay in registers between them.
 *
 * What counts is one launch for two to six: with 64 tokens each of these kernels works for a microsecond.  Every number
 * is rounded where the single operations round it, and every sum has their order (rows.cu, point.cu), so the bits are
 * theirs.
 */
#include "dev/cuda/common.cuh"

enum { THREADS = 256 };

/* N threads have a row of h <= N * K * 8 elements, as in rows.cu; those of a warp share a block with others. */
template <class T, int N, int K> __global__ void add_rmsnorm_k(
	void *sum_, void *y, float *rstd, const void *a, const void *b, const void *w, int64_t t, int h, float eps)
{
	int64_t row = (int64_t)blockIdx.x * (blockDim.x / N) + threadIdx.x / N;
	int lane = threadIdx.x % N, width = row < t ? h : 0;
	float v[K][VEC], g[VEC], sum = 0;
#pragma unroll
	for (int k = 0; k < K; k++) {
		int c = (k * N + lane) * VEC;
		read8<T, true>(v[k], (const T *)a + row * h + c, width - c);
		read8<T, true>(g, (const T *)b + row * h + c, width - c);
#pragma unroll
		for (int i = 0; i < VEC; i++) {
			v[k][i] = rounded<T>(v[k][i] + g[i]);
			sum = fmaf(v[k][i], v[k][i], sum);
		}
		write8<T, true>((T *)sum_ + row * h + c, v[k], width - c);
	}
	sum = group_sum<N>(sum);
	float r = 1.0f / sqrtf(sum / (float)h + eps);
	if (rstd && lane == 0 && width)
		rstd[row] = r;
#pragma unroll
	for (int k = 0; k < K; k++) {
		int c = (k * N + lane) * VEC;
		read8<T, true>(g, (const T *)w + c, h - c);
#pragma unroll
		for (int i = 0; i < VEC; i++)
			v[k][i] = v[k][i] * r * g[i];
		write8<T, true>((T *)y + row * h + c, v[k], width - c);
	}
}

extern "C" int ww_cu_add_rmsnorm_fits(
	const void *sum, const void *y, const void *a, const void *b, const void *w, int64_t h)
{
	return h > 256 && h <= 4096 && h % VEC == 0 && aligned16(sum, y, a, b, w);
}

/* The widths of a group of threads are those of ww_cu_rmsnorm(). */
extern "C" int ww_cu_add_rmsnorm(cudaStream_t s, int bf16, void *sum, void *y, float *rstd, const void *a,
	const void *b, const void *w, int64_t t, int64_t h, float eps)
{
#define ADD_NORM(T, N, K, ROWS) \
	add_rmsnorm_k<T, N, K><<<blocks_for(t, ROWS), N * ROWS, 0, s>>>(sum, y, rstd, a, b, w, t, (int)h, eps)
#define BY_WIDTH(T)                                                                                                   \
	do {                                                                                                          \
		if (h <= 512)                                                                                         \
			ADD_NORM(T, 32, 2, 4);                                                                        \
		else if (h <= 1024)                                                                                   \
			ADD_NORM(T, 128, 1, 1);                                                                       \
		else if (h <= 2048)                                                                                   \
			ADD_NORM(T, 256, 1, 1);                                                                       \
		else                                                                                                  \
			ADD_NORM(T, 256, 2, 1);                                                                       \
	} while (0)
	if (!t)
		return 0;
	if (bf16)
		BY_WIDTH(bf16_t);
	else
		BY_WIDTH(float);
	return launched();
}

/* G threads have one head of D = 8 G dimensions: those of a query, of a key, or of a value, which is only moved. */
template <class T, int G> __global__ void rope_to_cache_k(struct ww_cu_rope_to_cache p)
{
	enum { D = G * VEC, HALF = D / 2 };
	int64_t t = blockIdx.x;
	int head = (int)(blockIdx.y * THREADS + threadIdx.x) / G, lane = threadIdx.x % G, c = lane * VEC;
	if (head >= p.heads + 2 * p.kv_heads)
		return; /* a whole group, and shuffles below name their own group only */
	unsigned group = (G == WARP ? 0xffffffffu : ((1u << G % WARP) - 1)) << threadIdx.x % WARP / G * G;
	int is_query = head < p.heads, is_value = head >= p.heads + p.kv_heads,
		kv = is_query ? 0 : (head - (int)p.heads) % (int)p.kv_heads;
	const T *from = is_query ? (const T *)p.q + t * p.q_stride + head * D
							 : (const T *)(is_value ? p.v : p.k) + t * p.kv_stride + kv * D;
	T *to = is_query ? (T *)p.q_out + (t * p.heads + head) * D
					 : (T *)(is_value ? p.v_cache : p.k_cache) + (p.rows[t] * p.kv_heads + kv) * D;
	const T *w = is_query ? (const T *)p.q_norm : is_value ? (const T *)0 : (const T *)p.k_norm;
	float v[VEC], g[VEC], cosine[VEC], sine[VEC];
	read8<T, true>(v, from + c, VEC);
	if (w) {
		float sum = 0;
#pragma unroll
		for (int k = 0; k < VEC; k++)
			sum = fmaf(v[k], v[k], sum);
#pragma unroll
		for (int d = G / 2; d; d /= 2)
			sum += __shfl_xor_sync(group, sum, d);
		float r = 1.0f / sqrtf(sum / (float)D + p.eps);
		read8<T, true>(g, w + c, VEC);
#pragma unroll
		for (int k = 0; k < VEC; k++)
			v[k] = rounded<T>(v[k] * r * g[k]);
	}
	if (!is_value) {
		const float *row = p.cs + t * D + c % HALF;
		read8<float, true>(cosine, row, VEC);
		read8<float, true>(sine, row + HALF, VEC);
#pragma unroll
		for (int k = 0; k < VEC; k++) {
			float other = __shfl_xor_sync(group, v[k], G / 2);
			v[k] = c < HALF ? turn_first(v[k], other, cosine[k], sine[k])
							: turn_second(other, v[k], cosine[k], sine[k]);
		}
	}
	write8<T, true>(to + c, v, VEC);
}

extern "C" int ww_cu_rope_to_cache_fits(const struct ww_cu_rope_to_cache *p)
{
	int d = (int)p->head_dim;
	return (d == 32 || d == 64 || d == 128 || d == 256) && aligned16(p->q, p->k, p->v, p->k_cache, p->v_cache) &&
		aligned16(p->q_norm, p->k_norm, p->cs, p->q_out) && p->q_stride % VEC == 0 && p->kv_stride % VEC == 0;
}

template <class T> static void rope_to_cache(cudaStream_t s, const struct ww_cu_rope_to_cache *p)
{
	int g = (int)p->head_dim / VEC;
	dim3 blocks((unsigned)p->t, blocks_for((p->heads + 2 * p->kv_heads) * g, THREADS));
	if (g == 4)
		rope_to_cache_k<T, 4><<<blocks, THREADS, 0, s>>>(*p);
	else if (g == 8)
		rope_to_cache_k<T, 8><<<blocks, THREADS, 0, s>>>(*p);
	else if (g == 16)
		rope_to_cache_k<T, 16><<<blocks, THREADS, 0, s>>>(*p);
	else
		rope_to_cache_k<T, 32><<<blocks, THREADS, 0, s>>>(*p);
}

extern "C" int ww_cu_rope_to_cache(cudaStream_t s, int bf16, const struct ww_cu_rope_to_cache *p)
{
	if (!p->t)
		return 0;
	if (bf16)
		rope_to_cache<bf16_t>(s, p);
	else
		rope_to_cache<float>(s, p);
	return launched();
}

/* Rows of gu hold gate and up. */
template <class T> __global__ void swiglu_pairs_k(void *y, const void *gu, int64_t t, int64_t f)
{
	int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * VEC, row = i / f, c = i % f;
	float g[VEC], u[VEC];
	if (row >= t)
		return;
	read8<T, true>(g, (const T *)gu + 2 * row * f + c, VEC);
	read8<T, true>(u, (const T *)gu + (2 * row + 1) * f + c, VEC);
#pragma unroll
	for (int k = 0; k < VEC; k++)
		g[k] = g[k] * sigmoid(g[k]) * u[k];
	write8<T, true>((T *)y + i, g, VEC);
}

extern "C" int ww_cu_swiglu_pairs_fits(const void *y, const void *gu, int64_t f)
{
	return f % VEC == 0 && aligned16(y, gu);
}

extern "C" int ww_cu_swiglu_pairs(cudaStream_t s, int bf16, void *y, const void *gu, int64_t t, int64_t f)
{
	unsigned blocks = blocks_for(t * f / VEC, THREADS);
	if (!t)
		return 0;
	if (bf16)
		swiglu_pairs_k<bf16_t><<<blocks, THREADS, 0, s>>>(y, gu, t, f);
	else
		swiglu_pairs_k<float><<<blocks, THREADS, 0, s>>>(y, gu, t, f);
	return launched();
}
