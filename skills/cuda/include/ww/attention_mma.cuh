/* attention_mma.cuh - softmax(f(scale * Q K^T)) V in one launch by mma.sync, for any lengths and strides and head
 * widths up to 128, of 16 bits up to 256; Q and K have the same width, V may have another.
 *
 *   half, bfloat16 scores and sums in fp32; the weights are rounded to the operands' type before they multiply V
 *   float          every tile of Q, K and V becomes pairs of fp16 in shared memory, scaled by a power of two that its
 *                  own largest magnitude says (split.cuh); lo*hi + hi*lo + hi*hi keeps 22 bits.  Products with V go to
 *                  fresh accumulators for every tile (pipeline.cuh says why)
 *
 * A block has WARPS * MT * 16 rows of Q of one head and goes through K and V by tiles of KEYS rows; a warp has MT * 16
 * rows with their running maxima and sums.  Where rows are too few to keep the GPU busy, a block has TEAMS times as
 * many warps: each team of WARPS warps has the same rows and every TEAMS-th tile, and the first one adds the others'
 * sums at the end.  The order of all sums is fixed, so the bits are the same every time.  While a tile is used, the
 * next one is copied to shared memory, where widths are padded to multiples of 16 with zeros.  An operand is contiguous
 * along its width or along its rows.
 *
 * Row r sees the keys from r - BELOW to r + ABOVE (a causal mask: ABOVE = 0); tiles that no row of a block sees are
 * neither read nor computed.
 *
 * The functor stores, as in attention.cuh, and with MASKED it maps scores to the softmax's input:
 * score<N>(batch, head, row, col, float (&v)[N], beside<N> &given), for N adjacent columns, -infinity for masked ones.
 * ask<N>(batch, head, row, col, given) loads its operands before the products.  A row with all scores masked is NaN, as
 * in a softmax.
 *
 * Dynamic shared memory: attention_mma_shape<...>::bytes, which ww_attention_mma_bytes() of the recipe repeats.
 *
 * Rejected: pairs of TF32, as in gemm_mma (half the rate, and each warp would split the tile again); one scale a head,
 * which takes extra launches. */
#ifndef WW_ATTENTION_MMA_CUH
#define WW_ATTENTION_MMA_CUH

#include <ww/mma.cuh>
#include <ww/split.cuh>

namespace ww
{

/* Element (b, h, t, i) of Q, K or V lies at p[b * batch + h / group * head + t * line + i], or, along the rows, at
 * ... + t + i * line. */
template <class T> struct attention_operand {
	const T *p;
	long long batch, head, line;
	int group;

	__device__ __forceinline__ const T *from(int b, int h) const { return p + b * batch + h / group * head; }
};

enum : int { attention_all = 1 << 30 }; /* BELOW, ABOVE: no limit */

/* The type that the tensor cores multiply. */
template <class T> struct attention_type {
	typedef T t;
};
template <> struct attention_type<float> {
	typedef __half t;
};

/* A tile of ROWS x WIDTH in shared memory, in the order of global memory, which THREADS threads copy; VEC: elements of
 * one copy. */
template <class T, int ROWS, int WIDTH, bool BY_ROW, int VEC, int THREADS> struct attention_tile_of {
	enum : int { words = sizeof(T) == 4 };
	enum : int { lines = BY_ROW ? ROWS : WIDTH, length = BY_ROW ? WIDTH : ROWS, pitch = length + 8 };
	enum : int { elements = lines * pitch, raw = lines * length };
	enum : int { per = length / VEC, copies = lines * per, each = (copies + THREADS - 1) / THREADS };
	enum : int { together = each <= 4 ? (int)each : 4 }; /* more addresses at once would be spilled */
	typedef typename attention_type<T>::t H;

	/* This thread's number among those that copy the tile. */
	static __device__ __forceinline__ int me() { return threadIdx.x % THREADS; }

	/* Start this thread's copies: 16-bit elements to their final position, 32-bit ones to `raw` floats that only this
	 * thread reads. */
	static __device__ __forceinline__ void fill(T *to, const T *from, long long line, int row0, int rows, int width)
	{
		const int end_line = BY_ROW ? rows - row0 : width, end = BY_ROW ? width : rows - row0;
		const int l0 = me() / per, at0 = me() % per * VEC, last = max(0, min((int)VEC, end - at0));
		const T *first = from + (BY_ROW ? row0 * line : row0), *src0 = first + l0 * line + at0;
		enum : int { straight = THREADS % per == 0, step = straight ? THREADS / per : 0 };
		enum : int { to_line = words ? (int)length : (int)pitch };

#pragma unroll(together)
		for (int u = 0; u < each; u++) {
			const int i = u * THREADS + me(), l = straight ? l0 + u * step : i / per;
			const int at = straight ? at0 : i % per * VEC;
			const int n = l < end_line ? straight ? last : max(0, min((int)VEC, end - at)) : 0;
			const T *src = n ? straight ? src0 : first + l * line + at : from;
			T *dst = to + l * to_line + at;

			if (copies % THREADS && i >= copies)
				break;
			if (VEC * sizeof(T) >= 4)
				copy_start<(int)(VEC * sizeof(T) >= 4 ? VEC * sizeof(T) : 4)>(dst, src, n * (int)sizeof(T));
			else
				*dst = n ? *src : from_float<T>(0.f);
			src0 += step * line; /* straight copies are one below the other */
		}
	}

	/* The largest magnitude of what this thread copied. */
	static __device__ __forceinline__ unsigned top(const float *raw_)
	{
		unsigned m = 0;

#pragma unroll(together)
		for (int u = 0; u < each; u++) {
			const int i = u * THREADS + me();
			float v[VEC];

			if (copies % THREADS && i >= copies)
				break;
			load(raw_ + i * VEC, v);
#pragma unroll
			for (int e = 0; e < VEC; e++)
				m = max(m, magnitude(v[e]));
		}
		return m;
	}

	/* Split what this thread copied into pairs: hi, and lo `elements` after it. */
	static __device__ __forceinline__ void split(__half *to, const float *raw_, float scale)
	{
#pragma unroll(together)
		for (int u = 0; u < each; u++) {
			const int i = u * THREADS + me(), place = i / per * pitch + i % per * VEC;
			float v[VEC], hi[VEC];

			if (copies % THREADS && i >= copies)
				break;
			load(raw_ + i * VEC, v);
#pragma unroll
			for (int e = 0; e < VEC; e++) {
				v[e] *= scale;
				hi[e] = __half2float(__float2half_rn(v[e]));
				v[e] -= hi[e];
			}
			store(to + place, hi);
			store(to + elements + place, v);
		}
	}

	/* The fragment of A for rows r.. and k.., and two of B for columns c.. and k...  For K the columns are rows of the
	 * tile and k is along its width; for V it is the other way round. */
	static __device__ __forceinline__ void a(unsigned (&f)[4], const H *tile, int r, int k)
	{
		const int in = threadIdx.x % 8, m = threadIdx.x % 32 / 8, rr = r + m % 2 * 8, kk = k + m / 2 * 8;
		mma_load<!BY_ROW>(f, BY_ROW ? tile + (rr + in) * pitch + kk : tile + (kk + in) * pitch + rr);
	}
	static __device__ __forceinline__ void b(unsigned (&f)[4], const H *tile, int c, int k)
	{
		const int in = threadIdx.x % 8, m = threadIdx.x % 32 / 8, cc = c + m / 2 * 8, kk = k + m % 2 * 8;
		mma_load<!BY_ROW>(f, BY_ROW ? tile + (cc + in) * pitch + kk : tile + (kk + in) * pitch + cc);
	}
	static __device__ __forceinline__ void b_turned(unsigned (&f)[4], const H *tile, int c, int k)
	{
		const int in = threadIdx.x % 8, m = threadIdx.x % 32 / 8, cc = c + m / 2 * 8, kk = k + m % 2 * 8;
		mma_load<BY_ROW>(f, BY_ROW ? tile + (kk + in) * pitch + cc : tile + (cc + in) * pitch + kk);
	}
};

/* Q and K are WIDTH wide, V is WIDTH_V, both padded.  QR, KR, VR: along their widths in memory?  QV, KV, VV: elements
 * of a copy. */
template <class T, int WIDTH, int WIDTH_V, int WARPS, int MT, int KEYS, int STAGES, bool QR, bool KR, bool VR, int QV,
	int KV, int VV, int TEAMS = 1>
struct attention_mma_shape {
	enum : int { warps = WARPS, mt = MT, keys = KEYS, stages = STAGES, teams = TEAMS, rows = 16 * MT * WARPS };
	enum : int { of_team = 32 * WARPS, threads = of_team * TEAMS };
	enum : int { words = sizeof(T) == 4, parts = words ? 2 : 1 };
	typedef typename attention_type<T>::t H;
	typedef attention_tile_of<T, rows, WIDTH, QR, QV, threads> Q;
	typedef attention_tile_of<T, KEYS, WIDTH, KR, KV, of_team> K;
	typedef attention_tile_of<T, KEYS, WIDTH_V, VR, VV, of_team> V;
	/* 16 bits: Q, then each team's stages of K and V.  32 bits: pairs of Q, then each team's pairs of K and V, which
	 * first hold the floats of Q; then each team's floats of K and V.  A team's state is where its K and V were. */
	enum : int { q_elements = (int)Q::elements * parts, kv_elements = ((int)K::elements + (int)V::elements) * parts };
	enum : int { state_elements = TEAMS == 1 ? 0 : 2 * of_team * MT * (6 + WIDTH_V / 2) }; /* floats */
	enum : int { stages_elements = kv_elements * (words ? 1 : STAGES), team_raw = (int)K::raw + (int)V::raw };
	enum : int { team_elements = (int)stages_elements > (int)state_elements ? stages_elements : state_elements };
	enum : int { kv_bytes = 2 * TEAMS * team_elements, q_raw = words ? 4 * (int)Q::raw : 0 };
	enum : int { tile_bytes = kv_bytes > q_raw ? kv_bytes : q_raw, raw_bytes = words ? 4 * TEAMS * team_raw : 0 };
	enum : int { bytes = 2 * q_elements + tile_bytes + raw_bytes };
	/* Fragments of Q stay in registers if that does not reduce the number of blocks on an SM. */
	enum : int { held = WIDTH * MT <= (words ? 32 : 128), steps = WIDTH / 16, steps_v = KEYS / 16 };
	/* Scores of a tile in chunks of n * 8 columns, results in chunks of n_v * 8: the accumulators in use at once. */
	enum : int {
		n = KEYS % 32 ? 2 : 4,
		chunks = KEYS / 8 / n,
		n_v = WIDTH_V % 32 ? 2 : 4,
		chunks_v = WIDTH_V / 8 / n_v
	};
};

/* Wait for the THREADS threads of a team, of which a block has several or one. */
template <int THREADS, bool ALL> __device__ __forceinline__ void attention_meet()
{
	if (ALL)
		__syncthreads();
	else
		meet(1 + threadIdx.x / THREADS, THREADS);
}

/* The largest of the values of WARPS warps, which are ALL of the block's or a team's. */
template <int N, int WARPS, bool ALL> __device__ __forceinline__ void attention_tops(unsigned (&m)[N], unsigned *box)
{
	box += threadIdx.x / (32 * WARPS) * (N * WARPS);
#pragma unroll
	for (int i = 0; i < N; i++) {
		m[i] = __reduce_max_sync(0xffffffffu, m[i]);
		if (threadIdx.x % 32 == 0)
			box[threadIdx.x / 32 % WARPS * N + i] = m[i];
	}
	attention_meet<32 * WARPS, ALL>();
#pragma unroll
	for (int w = 0; w < WARPS; w++)
#pragma unroll
		for (int i = 0; i < N; i++)
			m[i] = max(m[i], box[w * N + i]);
}

/* acc += a b, for 16 bits or pairs: the smallest products first; products of the same sum are not issued back to back.
 */
template <int PARTS, int MT, int N, class H> __device__ __forceinline__ void attention_products(
	float (&acc)[MT][N][4], const unsigned (&a)[PARTS][MT][4], const unsigned (&b)[PARTS][N / 2][4], H *)
{
#pragma unroll
	for (int term = PARTS == 1 ? 2 : 0; term < 3; term++)
#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int j = 0; j < N; j++) {
				const unsigned (&from)[4] = b[term == 1 ? PARTS - 1 : 0][j / 2];
				const unsigned two[2] = { from[j % 2 * 2], from[j % 2 * 2 + 1] };
				mma_16(acc[i][j], a[term == 0 ? PARTS - 1 : 0][i], two, (H *)0);
			}
}

/* Two weights in the type that multiplies V. */
__device__ __forceinline__ void attention_weights(float a, float b, unsigned &w, __half *)
{
	const __half2 h = __floats2half2_rn(a, b);
	w = *(const unsigned *)&h;
}
__device__ __forceinline__ void attention_weights(float a, float b, unsigned &w, __nv_bfloat16 *)
{
	const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
	w = *(const unsigned *)&h;
}

/* The number that a row's scores are taken from, top + rest, where m is the largest of more of them: m * scale - up.
 * fix: the factor for earlier sums.  Returns top, or 0 while nothing counts.
 *
 * top is rounded: it is what all weights of the row, and their sum, are taken from, so that this is no error, except
 * that weights are rounded to 16 bits: below 2^11 the largest is still 1 then.  Larger scores have the rest: of some
 * hundred thousand a weight that is all of a row would be 2^-12 off, of millions weights were infinite. */
__device__ __forceinline__ float attention_raise(float &top, float &rest, float &fix, float m, float scale, float up)
{
	const float now = fmaf(m, scale, -up), old = top, old_rest = rest, left = fmaf(m, scale, -now) - up;

	rest = now > old ? fabsf(now) < 2048.f ? 0.f : left : rest;
	top = now > old ? now : old;
	const float from = top == -inf_() ? 0.f : top;
	fix = exp2_(old - from + (old_rest - rest));
	return from;
}

/* A warp's state of its rows; row number i * 16 + half * 8 + lane / 4 of the warp. */
template <class S> struct attention_rows {
	enum : int { parts = S::parts, mt = S::mt, n = S::n, n_v = S::n_v };
	typedef typename S::H H;
	unsigned q[parts][S::held ? S::steps : 1][mt][4];
	float o[S::chunks_v][mt][n_v][4], top[mt][2], rest[mt][2], sum[mt][2];

	/* Call f for every number of x, with its place in the state of rows. */
	template <int C, int N, class F> __device__ __forceinline__ static void each(float (&x)[C][mt][N][4], F f)
	{
#pragma unroll
		for (int c = 0; c < C; c++)
#pragma unroll
			for (int i = 0; i < mt; i++)
#pragma unroll
				for (int j = 0; j < N; j++)
#pragma unroll
					for (int l = 0; l < 4; l++)
						f(x[c][i][j][l], i, l / 2);
	}

	template <int C, int N> __device__ __forceinline__ static void clear(float (&x)[C][mt][N][4])
	{
		each(x, [](float &v, int, int) { v = 0.f; });
	}

	__device__ __forceinline__ void start()
	{
#pragma unroll
		for (int i = 0; i < mt; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				top[i][h] = -inf_();
				rest[i][h] = sum[i][h] = 0.f;
			}
		clear(o);
	}

	__device__ __forceinline__ void fetch_q(unsigned (&f)[parts][mt][4], const H *tile, int row, int step)
	{
#pragma unroll
		for (int p = 0; p < parts; p++)
#pragma unroll
			for (int i = 0; i < mt; i++)
				S::Q::a(f[p][i], tile + p * S::Q::elements, row + i * 16, step * 16);
	}

	/* s = Q K^T of a tile. */
	__device__ __forceinline__ void scores(float (&s)[S::chunks][mt][n][4], const H *tile_q, const H *tile_k, int row)
	{
		clear(s);
#pragma unroll
		for (int step = 0; step < S::steps; step++) {
			unsigned a[parts][mt][4];

			if (!S::held)
				fetch_q(a, tile_q, row, step);
#pragma unroll
			for (int p = 0; p < parts && S::held; p++)
#pragma unroll
				for (int i = 0; i < mt; i++)
#pragma unroll
					for (int l = 0; l < 4; l++)
						a[p][i][l] = q[p][S::held ? step : 0][i][l];
#pragma unroll
			for (int c = 0; c < S::chunks; c++) {
				unsigned b[parts][n / 2][4];
#pragma unroll
				for (int p = 0; p < parts; p++)
#pragma unroll
					for (int j = 0; j < n / 2; j++)
						S::K::b(b[p][j], tile_k + p * S::K::elements, (c * n / 2 + j) * 16, step * 16);
				attention_products<parts>(s[c], a, b, (H *)0);
			}
		}
	}

	/* Scores times `scale` become weights; fix: the factor for earlier sums. */
	__device__ __forceinline__ void weigh(float (&s)[S::chunks][mt][n][4], float (&fix)[mt][2], float scale)
	{
		float from[mt][2], times = scale;
		bool exact = false;

#pragma unroll
		for (int i = 0; i < mt; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				float m = -inf_();
#pragma unroll
				for (int c = 0; c < S::chunks; c++)
#pragma unroll
					for (int j = 0; j < n; j++)
						m = fmaxf(m, fmaxf(s[c][i][j][h * 2], s[c][i][j][h * 2 + 1]));
				m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
				m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
				/* 14: the largest weights of pairs are at fp16's top, so that lo keeps its bits */
				from[i][h] = attention_raise(top[i][h], rest[i][h], fix[i][h], m, scale, S::words ? 14.f : 0.f);
				exact |= rest[i][h] != 0.f;
			}
		if (__any_sync(0xffffffffu, exact)) {
			each(s, [&](float &x, int i, int h) { x = fmaf(x, scale, -from[i][h]) - rest[i][h]; });
#pragma unroll
			for (int i = 0; i < mt; i++)
				from[i][0] = from[i][1] = 0.f;
			times = 1.f;
		}
#pragma unroll
		for (int i = 0; i < mt; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				float add = 0.f;
#pragma unroll
				for (int c = 0; c < S::chunks; c++)
#pragma unroll
					for (int j = 0; j < n; j++)
#pragma unroll
						for (int l = 0; l < 2; l++) {
							float &x = s[c][i][j][h * 2 + l];
							x = exp2_(fmaf(x, times, -from[i][h]));
							add += x;
						}
				sum[i][h] = fmaf(sum[i][h], fix[i][h], add);
			}
	}

	/* o = o * fix + weights V * unscale. */
	__device__ __forceinline__ void values(
		const float (&s)[S::chunks][mt][n][4], const float (&fix)[mt][2], const H *tile_v, float unscale_v)
	{
		unsigned w[S::steps_v][parts][mt][4];

#pragma unroll
		for (int k = 0; k < S::steps_v; k++)
#pragma unroll
			for (int i = 0; i < mt; i++)
#pragma unroll
				for (int l = 0; l < 4; l++) {
					const float *x = &s[k * 2 / n][i][k * 2 % n + l / 2][l % 2 * 2];
					if (S::words)
						split_pair(x[0], x[1], w[k][0][i][l], w[k][parts - 1][i][l]);
					else
						attention_weights(x[0], x[1], w[k][0][i][l], (H *)0);
				}
#pragma unroll
		for (int c = 0; c < S::chunks_v; c++) {
			float fresh[mt][n_v][4];

#pragma unroll
			for (int i = 0; i < mt; i++)
#pragma unroll
				for (int j = 0; j < n_v; j++)
#pragma unroll
					for (int l = 0; l < 4; l++)
						fresh[i][j][l] = S::words ? 0.f : o[c][i][j][l] * fix[i][l / 2];
#pragma unroll
			for (int k = 0; k < S::steps_v; k++) {
				unsigned b[parts][n_v / 2][4];
#pragma unroll
				for (int p = 0; p < parts; p++)
#pragma unroll
					for (int j = 0; j < n_v / 2; j++)
						S::V::b_turned(b[p][j], tile_v + p * S::V::elements, (c * n_v / 2 + j) * 16, k * 16);
				attention_products<parts>(fresh, w[k], b, (H *)0);
			}
#pragma unroll
			for (int i = 0; i < mt; i++)
#pragma unroll
				for (int j = 0; j < n_v; j++)
#pragma unroll
					for (int l = 0; l < 4; l++)
						o[c][i][j][l] = S::words ? fmaf(o[c][i][j][l], fix[i][l / 2], fresh[i][j][l] * unscale_v)
												 : fresh[i][j][l];
		}
	}

	/* Leave this thread's state to the first team: number n at to[n * of_team]. */
	__device__ __forceinline__ void leave(float *to)
	{
#pragma unroll
		for (int i = 0; i < mt; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				to[0] = top[i][h];
				to[S::of_team] = rest[i][h];
				to[2 * S::of_team] = sum[i][h];
				to += 3 * S::of_team;
			}
		each(o, [&](float x, int, int) {
			*to = x;
			to += S::of_team;
		});
	}

	/* Add what a thread of another team left. */
	__device__ __forceinline__ void add(const float *from)
	{
		float mine[mt][2], its[mt][2];

#pragma unroll
		for (int i = 0; i < mt; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const float its_top = from[0], its_rest = from[S::of_team], old = top[i][h], old_rest = rest[i][h];
				if (its_top > old) {
					top[i][h] = its_top;
					rest[i][h] = its_rest;
				}
				const float to = top[i][h] == -inf_() ? 0.f : top[i][h];
				mine[i][h] = old == -inf_() ? 0.f : exp2_(old - to + (old_rest - rest[i][h]));
				its[i][h] = its_top == -inf_() ? 0.f : exp2_(its_top - to + (its_rest - rest[i][h]));
				sum[i][h] = sum[i][h] * mine[i][h] + from[2 * S::of_team] * its[i][h];
				from += 3 * S::of_team;
			}
		each(o, [&](float &x, int i, int h) {
			x = x * mine[i][h] + *from * its[i][h];
			from += S::of_team;
		});
	}

	/* Store N results of a row at once, beginning with this thread's first row. */
	template <int N, class E> __device__ __forceinline__ void end(const E &e, int b, int h, int row, int t_q, int width)
	{
		const int col = threadIdx.x % 4 * 2;

#pragma unroll
		for (int i = 0; i < mt; i++)
#pragma unroll
			for (int half = 0; half < 2; half++) {
				const int r = row + i * 16 + half * 8;
				float all = sum[i][half] + __shfl_xor_sync(0xffffffffu, sum[i][half], 1);
				all += __shfl_xor_sync(0xffffffffu, all, 2);
				const float k = 1.f / all;

#pragma unroll
				for (int c = 0; c < S::chunks_v; c++) {
					ahead<E, N> given[n_v][2 / N];
#pragma unroll
					for (int j = 0; j < n_v; j++)
#pragma unroll
						for (int l = 0; l < 2; l += N) {
							const int at = (c * n_v + j) * 8 + col + l;
							if (r < t_q && at < width)
								given[j][l / N].fetch(e, b, h, r, at);
						}
#pragma unroll
					for (int j = 0; j < n_v; j++)
#pragma unroll
						for (int l = 0; l < 2; l += N) {
							const int at = (c * n_v + j) * 8 + col + l;
							float out[N];
#pragma unroll
							for (int x = 0; x < N; x++)
								out[x] = o[c][i][j][half * 2 + l + x] * k;
							if (r < t_q && at < width)
								given[j][l / N].store(e, out, b, h, r, at);
						}
				}
			}
	}
};

/* Call f(place..., c, i, j, l) for the scores of a tile, M adjacent ones at once, of which [c][i][j][l] is the first.
 */
template <class S, int M, class F> __device__ __forceinline__ void attention_each(int row, int col, int t_q, F f)
{
#pragma unroll
	for (int c = 0; c < S::chunks; c++)
#pragma unroll
		for (int i = 0; i < S::mt; i++)
#pragma unroll
			for (int j = 0; j < S::n; j++)
#pragma unroll
				for (int l = 0; l < 4; l += M)
					f(min(row + i * 16 + l / 2 * 8, t_q - 1), col + (c * S::n + j) * 8 + l % 2, c, i, j, l);
}

/* S: attention_mma_shape.  N, M: elements that store() and score() get at once; 2 only if the width of V, or t_k, is
 * even.  Grid: one axis; the blocks of a head are consecutive, those with the most keys first. */
template <class S, int BELOW, int ABOVE, bool MASKED, int N, int M, class T, class E>
__device__ __forceinline__ void attention_mma(attention_operand<T> q, attention_operand<T> k, attention_operand<T> v,
	int heads, int t_q, int t_k, int width, int width_v, float scale, const E &e)
{
	typedef typename S::H H;
	constexpr bool one = S::teams == 1;
	__shared__ unsigned box[2 * S::warps * S::teams];
	const int tiles_q = (t_q + S::rows - 1) / S::rows, z = blockIdx.x / tiles_q, b = z / heads, h = z % heads;
	const int q0 = (tiles_q - 1 - (int)blockIdx.x % tiles_q) * S::rows;
	const int last = min(t_k, q0 + S::rows + ABOVE), start = max(0, q0 - BELOW) / S::keys;
	const int team = one ? 0 : threadIdx.x / S::of_team, me = threadIdx.x - team * S::of_team;
	const int tiles = max(0, (last + S::keys - 1) / S::keys - start), warp = me / 32 * S::mt * 16,
			  lane = threadIdx.x % 32;
	const int row = q0 + warp + lane / 4, row0 = q0 + warp, row1 = row0 + S::mt * 16 - 1; /* of this warp */
	const T *from_k = k.from(b, h), *from_v = v.from(b, h);
	H *tile_q = (H *)dynamic_shared(), *all_kv = tile_q + S::q_elements, *tile_kv = all_kv + team * S::team_elements;
	float *raw_q = (float *)all_kv, *raw_kv = (float *)((char *)all_kv + S::tile_bytes) + team * S::team_raw;
	float unscale_q = 1.f;
	attention_rows<S> rows;

	auto fill = [&](int t) {
		T *to = S::words ? (T *)raw_kv : (T *)tile_kv + t / S::teams % S::stages * S::kv_elements;
		const int key0 = (start + t) * S::keys;
		S::K::fill(to, from_k, k.line, key0, t_k, width);
		S::V::fill(to + (S::words ? (int)S::K::raw : (int)S::K::elements), from_v, v.line, key0, t_k, width_v);
	};
	S::Q::fill(S::words ? (T *)raw_q : (T *)tile_q, q.from(b, h), q.line, q0, t_q, width);
	fill(team);
	copy_commit();
	rows.start();
	if (S::words || !one)
		copy_wait<0>();
	if constexpr (S::words) {
		unsigned m[1] = { S::Q::top(raw_q) };
		attention_tops<1, S::warps * S::teams, true>(m, box);
		S::Q::split((__half *)tile_q, raw_q, scale_of(m[0]));
		unscale_q = unscale(m[0]) * scale;
	}
	if (S::words || !one)
		__syncthreads();
	for (int t = team; t < tiles; t += S::teams) {
		H *tile_k = tile_kv + (S::words ? 0 : t / S::teams % S::stages * S::kv_elements),
		  *tile_v = tile_k + S::parts * S::K::elements;
		float s[S::chunks][S::mt][S::n][4], fix[S::mt][2], scale_qk = scale, unscale_v = 1.f;

		copy_wait<0>();
		if constexpr (S::words) {
			unsigned m[2] = { S::K::top(raw_kv), S::V::top(raw_kv + S::K::raw) };
			attention_tops<2, S::warps, one>(m, box);
			S::K::split((__half *)tile_k, raw_kv, scale_of(m[0]));
			S::V::split((__half *)tile_v, raw_kv + S::K::raw, scale_of(m[1]));
			scale_qk = fmaxf(unscale_q * unscale(m[0]), 1e-37f); /* 0 times a score that does not count is NaN */
			unscale_v = unscale(m[1]);
		}
		attention_meet<S::of_team, one>();
		if (t + S::teams < tiles)
			fill(t + S::teams);
		copy_commit();
		if (S::held && t == team) {
#pragma unroll
			for (int step = 0; step < (S::held ? (int)S::steps : 0); step++) {
				unsigned f[S::parts][S::mt][4];
				rows.fetch_q(f, tile_q, warp, step);
#pragma unroll
				for (int p = 0; p < S::parts; p++)
#pragma unroll
					for (int i = 0; i < S::mt; i++)
#pragma unroll
						for (int l = 0; l < 4; l++)
							rows.q[p][S::held ? step : 0][i][l] = f[p][i][l];
			}
		}
		const int key0 = (start + t) * S::keys, key1 = key0 + S::keys - 1, col = key0 + lane % 4 * 2;
		if (key0 > row1 + ABOVE || key1 < row0 - BELOW) /* none of this warp's rows */
			continue;
		if constexpr (MASKED) {
			typename E::template beside<M> given[S::chunks][S::mt][S::n][4 / M];

			attention_each<S, M>(row, col, t_q, [&](int r, int at, int c, int i, int j, int l) {
				if (at < t_k)
					e.template ask<M>(b, h, r, at, given[c][i][j][l / M]);
			});
			rows.scores(s, tile_q, tile_k, warp);
			scale_qk *= 0.693147180559945309417f;
			attention_each<S, M>(row, col, t_q, [&](int r, int at, int c, int i, int j, int l) {
				float x[M];
#pragma unroll
				for (int m = 0; m < M; m++)
					x[m] = s[c][i][j][l + m] * scale_qk;
				if (at < t_k)
					e.template score<M>(b, h, r, at, x, given[c][i][j][l / M]);
#pragma unroll
				for (int m = 0; m < M; m++)
					s[c][i][j][l + m] = x[m];
			});
			scale_qk = 1.44269504088896340736f;
		} else {
			rows.scores(s, tile_q, tile_k, warp);
		}
		if (key1 > row0 + ABOVE || key0 < row1 - BELOW || key1 >= t_k) {
#pragma unroll
			for (int c = 0; c < S::chunks; c++)
#pragma unroll
				for (int i = 0; i < S::mt; i++)
#pragma unroll
					for (int j = 0; j < S::n; j++)
#pragma unroll
						for (int l = 0; l < 4; l++) {
							const int at = col + (c * S::n + j) * 8 + l % 2, r = row + i * 16 + l / 2 * 8;
							if ((ABOVE < attention_all && at > r + ABOVE) ||
								(BELOW < attention_all && at < r - BELOW) || at >= t_k)
								s[c][i][j][l] = -inf_();
						}
		}
		rows.weigh(s, fix, scale_qk);
		rows.values(s, fix, tile_v, unscale_v);
	}
	if constexpr (!one) {
		attention_meet<S::of_team, false>(); /* the team's other warps may still read its tile */
		__syncthreads(); /* for racecheck: some teams wait here while others still meet at barriers of their own */
		if (team)
			rows.leave((float *)tile_kv + me);
		__syncthreads();
		if (team)
			return;
#pragma unroll 1
		for (int i = 1; i < S::teams; i++)
			rows.add((float *)(all_kv + i * S::team_elements) + me);
	}
	rows.template end<N>(e, b, h, row, t_q, width_v);
}

} // namespace ww

#endif
