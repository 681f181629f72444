/* rows.cu - norms, softmax and the sums over tokens.
 *
 * A row is one group of threads, a warp or a block, chosen by the row's width; what a thread adds, and in which order,
 * follows from the width too, so a row's result does not depend on the other rows.  Sums over rows (gradients of
 * weights) go through partial sums of a number of groups that follows from the shape, and the partial sums are added in
 * order: equal calls give equal bits.  Floats are never added atomically.
 */
#include "dev/cuda/common.cuh"

enum {
	NORM_WARPS = 28,
	NORM_WARPS_TWO = 16,
	SLOTS_MAX = 924,
	COLUMN_BLOCKS = 264,
	COLS = 32,
	COL_ROWS = 8,
	PART_ROWS = 32,
	SUM_BLOCKS = 512,
	SOFTMAX_THREADS = 256,
	ROWS_MAX = 16384
};

extern "C" int64_t ww_cu_rows_max_width(void) { return ROWS_MAX; }

/* Width to threads a row and vectors a thread. */
#define BY_WIDTH(h, CALL)                                                                                             \
	do {                                                                                                          \
		if ((h) <= 64)                                                                                        \
			CALL(8, 1);                                                                                   \
		else if ((h) <= 128)                                                                                  \
			CALL(16, 1);                                                                                  \
		else if ((h) <= 256)                                                                                  \
			CALL(32, 1);                                                                                  \
		else if ((h) <= 512)                                                                                  \
			CALL(32, 2);                                                                                  \
		else if ((h) <= 1024)                                                                                 \
			CALL(128, 1);                                                                                 \
		else if ((h) <= 2048)                                                                                 \
			CALL(256, 1);                                                                                 \
		else if ((h) <= 4096)                                                                                 \
			CALL(256, 2);                                                                                 \
		else if ((h) <= 8192)                                                                                 \
			CALL(256, 4);                                                                                 \
		else                                                                                                  \
			CALL(256, 8);                                                                                 \
	} while (0)

/* N threads share a row; a block of narrow rows holds several. */
template <int N> struct shape {
	enum { BLOCK = N < 256 ? 128 : N, PER_BLOCK = BLOCK / N };
};

/* What may be fused with a norm of heads: rows are `heads` heads of each token, turned by its row of cs (NULL: not
 * turned). */
struct turn {
	const float *cs;
	int heads;
};

/* Turn the head that the threads of a row hold, v being elements c.. of it; a narrow row's partners are h / 16 threads
 * apart. */
template <class T> static __device__ __forceinline__ void turn_head(
	float (&v)[VEC], struct turn turn, int64_t row, int c, int h, int here, float sign)
{
	const float *cs = turn.cs + (int64_t)((uint32_t)row / (uint32_t)turn.heads) * h +
		c % (h / 2); /* 2^32 heads fit no memory */
	float cosine[VEC], sine[VEC];
	read8<float, true>(cosine, cs, here ? VEC : 0);
	read8<float, true>(sine, cs + h / 2, here ? VEC : 0);
#pragma unroll
	for (int i = 0; i < VEC; i++) {
		float other = __shfl_xor_sync(0xffffffffu, v[i], h / 16);
		v[i] = c < h / 2 ? turn_first(v[i], other, cosine[i], sign * sine[i])
						 : turn_second(other, v[i], cosine[i], sign * sine[i]);
	}
}

template <class T, bool FAST, int N, int K> __global__ void rmsnorm_k(
	void *y, float *rstd, const void *x, const void *w, int64_t t, int h, float eps, struct turn turn)
{
	int64_t row = (int64_t)blockIdx.x * shape<N>::PER_BLOCK + threadIdx.x / N;
	int lane = threadIdx.x % N;
	int width = row < t ? h : 0; /* other rows of the warp may be there where this one is not */
	float v[K][VEC], g[VEC], sum = 0;
#pragma unroll
	for (int k = 0; k < K; k++) {
		int c = (k * N + lane) * VEC;
		read8<T, FAST>(v[k], (const T *)x + row * h + c, width - c);
#pragma unroll
		for (int i = 0; i < VEC; i++)
			sum = fmaf(v[k][i], v[k][i], sum);
	}
	sum = group_sum<N>(sum);
	float r = 1.0f / sqrtf(sum / (float)h + eps);
	if (rstd && lane == 0 && width)
		rstd[row] = r;
#pragma unroll
	for (int k = 0; k < K; k++) {
		int c = (k * N + lane) * VEC;
		read8<T, FAST>(g, (const T *)w + c, h - c);
#pragma unroll
		for (int i = 0; i < VEC; i++)
			v[k][i] = v[k][i] * r * g[i];
		if (K == 1 && N <= WARP && FAST && turn.cs) {
#pragma unroll
			for (int i = 0; i < VEC; i++)
				v[k][i] = rounded<T>(v[k][i]);
			turn_head<T>(v[k], turn, row, c, h, c < width, 1.0f);
		}
		write8<T, FAST>((T *)y + row * h + c, v[k], width - c);
	}
}

#define NORM(T, FAST, N, K)                                                                                           \
	rmsnorm_k<T, FAST, N, K><<<blocks_for(t, shape<N>::PER_BLOCK), shape<N>::BLOCK, 0, s>>>(y, rstd, x, w, t, (int)h, eps, turn)
#define NORM_HALF_FAST(N, K) NORM(bf16_t, true, N, K)
#define NORM_HALF(N, K) NORM(bf16_t, false, N, K)
#define NORM_FLOAT_FAST(N, K) NORM(float, true, N, K)
#define NORM_FLOAT(N, K) NORM(float, false, N, K)

static int norm(cudaStream_t s, int bf16, void *y, float *rstd, const void *x, const void *w, int64_t t, int64_t h,
	float eps, struct turn turn)
{
	int fast = h % VEC == 0 && aligned16(y, x, w);
	if (!t)
		return 0;
	if (bf16 && fast)
		BY_WIDTH(h, NORM_HALF_FAST);
	else if (bf16)
		BY_WIDTH(h, NORM_HALF);
	else if (fast)
		BY_WIDTH(h, NORM_FLOAT_FAST);
	else
		BY_WIDTH(h, NORM_FLOAT);
	return launched();
}

extern "C" int ww_cu_rmsnorm(
	cudaStream_t s, int bf16, void *y, float *rstd, const void *x, const void *w, int64_t t, int64_t h, float eps)
{
	struct turn none = { 0, 1 };
	return norm(s, bf16, y, rstd, x, w, t, h, eps, none);
}

extern "C" int ww_cu_norm_rope_fits(const void *y, const void *x, const void *w, const float *cs, int64_t d)
{
	return (d == 32 || d == 64 || d == 128 || d == 256) && aligned16(y, x, w, cs);
}

extern "C" int ww_cu_norm_rope(cudaStream_t s, int bf16, void *y, float *rstd, const void *x, const void *w,
	const float *cs, int64_t t, int64_t heads, int64_t d, float eps)
{
	struct turn turn = { cs, (int)heads };
	return norm(s, bf16, y, rstd, x, w, t * heads, d, eps, turn);
}

/* out (n) += the sum of `parts` rows of part (parts, n), in an order that follows from their number. */
__global__ void add_parts_k(float *out, const float *part, int parts, int64_t n)
{
	__shared__ float sums[PART_ROWS][COLS];
	int64_t c = (int64_t)blockIdx.x * COLS + threadIdx.x;
	float sum = 0;
#pragma unroll 4
	for (int i = threadIdx.y; c < n && i < parts; i += PART_ROWS)
		sum += part[(int64_t)i * n + c];
	sums[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y || c >= n)
		return;
	for (int i = 1; i < PART_ROWS; i++)
		sum += sums[i][threadIdx.x];
	out[c] += sum;
}

static int add_parts(cudaStream_t s, float *out, const float *part, int parts, int64_t n)
{
	add_parts_k<<<blocks_for(n, COLS), dim3(COLS, PART_ROWS), 0, s>>>(out, part, parts, n);
	return launched();
}

/* The gradient kernel: a row's next values are on their way while one is added up (AHEAD) where
 * registers allow; BLOCKS on a multiprocessor. */
template <class T, bool FAST, int N, int K> struct norm_bwd_of {
	enum {
		TWO = N == WARP && K == 2,
		AHEAD = sizeof(T) == 2 && FAST && (K == 1 || TWO),
		BLOCKS = (TWO ? NORM_WARPS_TWO : NORM_WARPS) * WARP / shape<N>::BLOCK
	};
};

/* Its blocks: as many as a chip of 132 multiprocessors runs at a time, and few enough partial sums. */
static int norm_slots(int64_t t, int64_t per_block, int64_t blocks_at_a_time)
{
	int64_t blocks = (t + per_block - 1) / per_block, most = blocks_at_a_time * 132;
	return (int)(blocks < most ? blocks : most);
}

/* Eight elements on their way, as they lie in memory: they are widened where they are used, so that nothing waits for
 * them before.  Where rows are multiples of eight, either all of them are there or none. */
template <class T, bool FAST> struct piece {
	float v[VEC];
	__device__ __forceinline__ void load(const T *p, int64_t left) { read8<T, false>(v, p, left); }
	__device__ __forceinline__ void get(float (&to)[VEC]) const
	{
#pragma unroll
		for (int i = 0; i < VEC; i++)
			to[i] = v[i];
	}
};
template <> struct piece<bf16_t, true> {
	uint4 v;
	__device__ __forceinline__ void load(const bf16_t *p, int64_t left)
	{
		v = left > 0 ? *(const uint4 *)p : make_uint4(0, 0, 0, 0);
	}
	__device__ __forceinline__ void get(float (&to)[VEC]) const
	{
		to[0] = low2(v.x), to[1] = high2(v.x), to[2] = low2(v.y), to[3] = high2(v.y);
		to[4] = low2(v.z), to[5] = high2(v.z), to[6] = low2(v.w), to[7] = high2(v.w);
	}
};

/* What the gradient of a row reads, for one of its N threads; width 0: nothing. */
template <class T, bool FAST, int N, int K> struct norm_row {
	struct piece<T, FAST> n[K], g[K], res[K];
	float r;
	__device__ __forceinline__ void load(
		int64_t row, int width, int lane, const void *x, const void *dy, const void *to, const float *rstd)
	{
		r = width ? rstd[row] : 0;
#pragma unroll
		for (int k = 0; k < K; k++) {
			int c = (k * N + lane) * VEC;
			n[k].load((const T *)x + row * width + c, width - c);
			g[k].load((const T *)dy + row * width + c, width - c);
			if (to)
				res[k].load((const T *)to + row * width + c, width - c);
		}
	}
};

/* With n = x r and g = dy w:  dx = r (g - n mean(g n)),  dw = sum of dy n.  dy may have to be turned back first; with
 * res, dx is added to it and not written. */
template <class T, bool FAST, int N, int K> __global__ void __launch_bounds__(shape<N>::BLOCK,
	norm_bwd_of<T, FAST, N, K>::AHEAD ? norm_bwd_of<T, FAST, N, K>::BLOCKS : 1) rmsnorm_bwd_k(void *dx, float *part,
	const void *dy, const void *x, const void *w_, const float *rstd, int64_t t, int h, struct turn turn, void *res)
{
	enum { PER_BLOCK = shape<N>::PER_BLOCK, AHEAD = norm_bwd_of<T, FAST, N, K>::AHEAD };
	__shared__ float other[PER_BLOCK > 1 ? PER_BLOCK : 1][PER_BLOCK > 1 ? N * VEC * K : 1];
	int lane = threadIdx.x % N, mine = threadIdx.x / N;
	float w[K][VEC], dw[K][VEC] = {};
#pragma unroll
	for (int k = 0; k < K; k++)
		read8<T, FAST>(w[k], (const T *)w_ + (k * N + lane) * VEC, h - (k * N + lane) * VEC);
	int64_t step = (int64_t)gridDim.x * PER_BLOCK, row = (int64_t)blockIdx.x * PER_BLOCK + mine;
	struct norm_row<T, FAST, N, K> next;
	next.load(row, row < t ? h : 0, lane, x, dy, res, rstd);
	for (; row - mine < t; row += step) {
		struct norm_row<T, FAST, N, K> at = next;
		int width = row < t ? h : 0;
		float n[K][VEC], g[K][VEC], mean = 0;
		if (AHEAD) /* on its way while this row is added up */
			next.load(row + step, row + step < t ? h : 0, lane, x, dy, res, rstd);
#pragma unroll
		for (int k = 0; k < K; k++) {
			int c = (k * N + lane) * VEC;
			at.n[k].get(n[k]);
			at.g[k].get(g[k]);
			if (K == 1 && N <= WARP && FAST && turn.cs) {
				turn_head<T>(g[k], turn, row, c, h, c < width, -1.0f);
#pragma unroll
				for (int i = 0; i < VEC; i++)
					g[k][i] = rounded<T>(g[k][i]);
			}
#pragma unroll
			for (int i = 0; i < VEC; i++) {
				n[k][i] *= at.r;
				dw[k][i] = fmaf(g[k][i], n[k][i], dw[k][i]);
				g[k][i] *= w[k][i];
				mean = fmaf(g[k][i], n[k][i], mean);
			}
		}
		mean = group_sum<N>(mean) / (float)h;
#pragma unroll
		for (int k = 0; k < K; k++) {
			int c = (k * N + lane) * VEC;
#pragma unroll
			for (int i = 0; i < VEC; i++)
				g[k][i] = __fmul_rn(at.r, g[k][i] - n[k][i] * mean); /* not fused with the sum below */
			if (res) {
				at.res[k].get(n[k]);
#pragma unroll
				for (int i = 0; i < VEC; i++)
					g[k][i] = n[k][i] + rounded<T>(g[k][i]);
			}
			write8<T, FAST>((T *)(res ? res : dx) + row * h + c, g[k], width - c);
		}
		if (!AHEAD)
			next.load(row + step, row + step < t ? h : 0, lane, x, dy, res, rstd);
	}
	if (PER_BLOCK > 1) { /* one partial sum a block */
#pragma unroll
		for (int k = 0; k < K; k++)
#pragma unroll
			for (int i = 0; i < VEC; i++)
				other[mine][(k * N + lane) * VEC + i] = dw[k][i];
		__syncthreads();
		if (mine)
			return;
		for (int p = 1; p < PER_BLOCK; p++)
#pragma unroll
			for (int k = 0; k < K; k++)
#pragma unroll
				for (int i = 0; i < VEC; i++)
					dw[k][i] += other[p][(k * N + lane) * VEC + i];
	}
#pragma unroll
	for (int k = 0; k < K; k++) {
		int c = (k * N + lane) * VEC;
		write8<float, false>(part + (int64_t)blockIdx.x * h + c, dw[k], h - c);
	}
}

extern "C" size_t ww_cu_rmsnorm_bwd_bytes(int64_t t, int64_t h)
{
	(void)t;
	return (size_t)SLOTS_MAX * (size_t)h * sizeof(float);
}

#define NORM_BWD(T, FAST, N, K)                                                                                       \
	rmsnorm_bwd_k<T, FAST, N, K><<<slots = norm_slots(t, shape<N>::PER_BLOCK, norm_bwd_of<T, FAST, N, K>::BLOCKS), shape<N>::BLOCK, 0, s>>>(dx, work, dy, x, w, rstd, t, (int)h, turn, res)
#define NORM_BWD_HALF_FAST(N, K) NORM_BWD(bf16_t, true, N, K)
#define NORM_BWD_HALF(N, K) NORM_BWD(bf16_t, false, N, K)
#define NORM_BWD_FLOAT_FAST(N, K) NORM_BWD(float, true, N, K)
#define NORM_BWD_FLOAT(N, K) NORM_BWD(float, false, N, K)

static int norm_bwd(cudaStream_t s, int bf16, void *dx, float *dw, const void *dy, const void *x, const void *w,
	const float *rstd, int64_t t, int64_t h, float *work, struct turn turn, void *res)
{
	int fast = h % VEC == 0 && aligned16(dx, dy, x, w, res), slots = 0;
	if (!t)
		return 0;
	if (bf16 && fast)
		BY_WIDTH(h, NORM_BWD_HALF_FAST);
	else if (bf16)
		BY_WIDTH(h, NORM_BWD_HALF);
	else if (fast)
		BY_WIDTH(h, NORM_BWD_FLOAT_FAST);
	else
		BY_WIDTH(h, NORM_BWD_FLOAT);
	return add_parts(s, dw, work, slots, h);
}

extern "C" int ww_cu_rmsnorm_bwd(cudaStream_t s, int bf16, void *dx, float *dw, const void *dy, const void *x,
	const void *w, const float *rstd, int64_t t, int64_t h, float *work)
{
	struct turn none = { 0, 1 };
	return norm_bwd(s, bf16, dx, dw, dy, x, w, rstd, t, h, work, none, 0);
}

extern "C" int ww_cu_rmsnorm_bwd_add(cudaStream_t s, int bf16, void *dres, float *dw, const void *dy, const void *x,
	const void *w, const float *rstd, int64_t t, int64_t h, float *work)
{
	struct turn none = { 0, 1 };
	return norm_bwd(s, bf16, 0, dw, dy, x, w, rstd, t, h, work, none, dres);
}

extern "C" int ww_cu_norm_rope_bwd(cudaStream_t s, int bf16, void *dx, float *dw, const void *x, const void *w,
	const float *rstd, const float *cs, int64_t t, int64_t heads, int64_t d, float *work)
{
	struct turn turn = { cs, (int)heads };
	return norm_bwd(s, bf16, dx, dw, dx, x, w, rstd, t * heads, d, work, turn, 0);
}

/* part (gridDim.y, n): the sums over a block of rows. */
template <class T> __global__ void column_sums_k(float *part, const void *x, int64_t t, int64_t n, int64_t rows)
{
	__shared__ float sums[COL_ROWS][COLS];
	int64_t c = (int64_t)blockIdx.x * COLS + threadIdx.x, first = (int64_t)blockIdx.y * rows;
	int64_t end = first + rows < t ? first + rows : t;
	float sum = 0;
	for (int64_t i = first + threadIdx.y; c < n && i < end; i += COL_ROWS)
		sum += widen(((const T *)x)[i * n + c]);
	sums[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y || c >= n)
		return;
	for (int i = 1; i < COL_ROWS; i++)
		sum += sums[i][threadIdx.x];
	part[(int64_t)blockIdx.y * n + c] = sum;
}

static int64_t column_rows(int64_t t)
{
	int64_t rows = (t + COLUMN_BLOCKS - 1) / COLUMN_BLOCKS;
	return rows < 64 ? 64 : rows;
}

extern "C" size_t ww_cu_bias_bwd_bytes(int64_t t, int64_t n)
{
	return (size_t)blocks_for(t, column_rows(t)) * (size_t)n * sizeof(float);
}

extern "C" int ww_cu_bias_bwd(cudaStream_t s, int bf16, float *dbias, const void *dy, int64_t t, int64_t n, float *work)
{
	int64_t rows = column_rows(t);
	dim3 grid(blocks_for(n, COLS), blocks_for(t, rows)), block(COLS, COL_ROWS);
	if (!t || !n)
		return 0;
	if (bf16)
		column_sums_k<bf16_t><<<grid, block, 0, s>>>(work, dy, t, n, rows);
	else
		column_sums_k<float><<<grid, block, 0, s>>>(work, dy, t, n, rows);
	return add_parts(s, dbias, work, (int)grid.y, n);
}

/* The sum of exponentials so far and that of the next chunk, as of their common maximum. */
static __device__ __forceinline__ float join_sums(float sum, float max, float next_max, float next)
{
	return __fmaf_rn(sum, expf(max - next_max), next);
}

static __device__ __forceinline__ float row_max(const float *l, int64_t n)
{
	float max = -INFINITY;
	for (int64_t i = threadIdx.x; i < n; i += SOFTMAX_THREADS)
		max = fmaxf(max, l[i]);
	return group_max<SOFTMAX_THREADS>(max);
}

static __device__ __forceinline__ float row_sum(const float *l, int64_t n, float max)
{
	float sum = 0;
	for (int64_t i = threadIdx.x; i < n; i += SOFTMAX_THREADS)
		sum += expf(l[i] - max);
	return group_sum<SOFTMAX_THREADS>(sum);
}

__global__ void softmax_chunk_k(float *state, const float *logits, const int32_t *targets, int64_t first, int64_t n)
{
	const float *l = logits + (int64_t)blockIdx.x * n;
	float *st = state + 3 * (int64_t)blockIdx.x, old = first ? st[0] : -INFINITY, max = fmaxf(row_max(l, n), old);
	float sum = row_sum(l, n, max); /* its barriers lie between the read of st above and the writes below */
	if (threadIdx.x)
		return;
	int64_t target = targets[blockIdx.x] - first;
	float hit = first ? st[2] : 0;
	st[1] = first ? join_sums(st[1], old, max, sum) : sum;
	st[0] = max;
	st[2] = target >= 0 && target < n ? l[target] : hit;
}

extern "C" int ww_cu_softmax_chunk(
	cudaStream_t s, float *state, const float *logits, const int32_t *targets, int64_t t, int64_t first, int64_t n)
{
	if (t)
		softmax_chunk_k<<<(unsigned)t, SOFTMAX_THREADS, 0, s>>>(state, logits, targets, first, n);
	return launched();
}

__global__ void softmax_finish_k(float *logp, float *lse, const float *state, int64_t t)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= t)
		return;
	float v = state[3 * i] + logf(state[3 * i + 1]);
	if (logp)
		logp[i] = state[3 * i + 2] - v;
	if (lse)
		lse[i] = v;
}

extern "C" int ww_cu_softmax_finish(cudaStream_t s, float *logp, float *lse, const float *state, int64_t t)
{
	if (t)
		softmax_finish_k<<<blocks_for(t, 256), 256, 0, s>>>(logp, lse, state, t);
	return launched();
}

/* Whole rows, all chunks at once: {maximum, sum as of the maximum so far} of each, then one thread a row joins them. */
__global__ void chunk_max_k(float2 *part, const float *logits, int64_t v, int64_t chunk)
{
	int64_t c = blockIdx.x, row = blockIdx.y, n = v - c * chunk < chunk ? v - c * chunk : chunk;
	float max = row_max(logits + row * v + c * chunk, n);
	if (!threadIdx.x)
		part[row * gridDim.x + c].x = max;
}

__global__ void chunk_sum_k(float2 *part, const float *logits, int64_t v, int64_t chunk)
{
	int64_t c = blockIdx.x, row = blockIdx.y, n = v - c * chunk < chunk ? v - c * chunk : chunk;
	float2 *own = part + row * gridDim.x;
	float max = -INFINITY;
	for (int i = 0; i <= c; i++)
		max = fmaxf(max, own[i].x);
	float sum = row_sum(logits + row * v + c * chunk, n, max);
	if (!threadIdx.x)
		own[c].y = sum;
}

__global__ void lse_rows_k(float *lse, const float2 *part, int chunks, int64_t t)
{
	int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= t)
		return;
	const float2 *own = part + row * chunks;
	float max = own[0].x, sum = own[0].y;
	for (int c = 1; c < chunks; c++) {
		float top = fmaxf(max, own[c].x);
		sum = join_sums(sum, max, top, own[c].y);
		max = top;
	}
	lse[row] = max + logf(sum);
}

extern "C" size_t ww_cu_lse_rows_bytes(int64_t t, int64_t v, int64_t chunk)
{
	return (size_t)(t * ((v + chunk - 1) / chunk)) * sizeof(float2);
}

extern "C" int ww_cu_lse_rows(
	cudaStream_t s, float *lse, const float *logits, int64_t t, int64_t v, int64_t chunk, void *work)
{
	dim3 grid(blocks_for(v, chunk), (unsigned)t);
	float2 *part = (float2 *)work;
	if (!t)
		return 0;
	if (t > 65535)
		return (int)cudaErrorInvalidConfiguration;
	chunk_max_k<<<grid, SOFTMAX_THREADS, 0, s>>>(part, logits, v, chunk);
	chunk_sum_k<<<grid, SOFTMAX_THREADS, 0, s>>>(part, logits, v, chunk);
	lse_rows_k<<<blocks_for(t, 256), 256, 0, s>>>(lse, part, (int)grid.x, t);
	return launched();
}

__global__ void softmax_entropy_k(float *entropy, const float *logits, const float *lse, int64_t first, int64_t n)
{
	const float *l = logits + (int64_t)blockIdx.x * n;
	float shift = lse[blockIdx.x], sum = 0;
	for (int64_t i = threadIdx.x; i < n; i += SOFTMAX_THREADS) {
		float logp = l[i] - shift, p = expf(logp);
		sum = p > 0 ? fmaf(p, -logp, sum) : sum; /* never 0 times infinity */
	}
	sum = group_sum<SOFTMAX_THREADS>(sum);
	if (!threadIdx.x)
		entropy[blockIdx.x] = (first ? entropy[blockIdx.x] : 0.0f) + sum;
}

extern "C" int ww_cu_softmax_entropy(
	cudaStream_t s, float *entropy, const float *logits, const float *lse, int64_t t, int64_t first, int64_t n)
{
	if (t)
		softmax_entropy_k<<<(unsigned)t, SOFTMAX_THREADS, 0, s>>>(entropy, logits, lse, first, n);
	return launched();
}

template <class T, bool FAST> __global__ void softmax_bwd_k(void *dlogits, const float *logits, const int32_t *targets,
	const float *lse, const float *dlogp, int64_t first, int64_t n)
{
	int64_t row = blockIdx.x;
	const float *l = logits + row * n;
	T *to = (T *)dlogits + row * n;
	float shift = lse[row], d = dlogp[row], v[VEC];
	int64_t target = targets[row] - first;
#pragma unroll 2
	for (int64_t i = threadIdx.x * VEC; i < n; i += SOFTMAX_THREADS * VEC) {
		read8<float, FAST>(v, l + i, n - i);
#pragma unroll
		for (int k = 0; k < VEC; k++)
			v[k] = d * ((i + k == target ? 1.0f : 0.0f) - expf(v[k] - shift));
		write8<T, FAST>(to + i, v, n - i);
	}
}

extern "C" int ww_cu_softmax_bwd(cudaStream_t s, int bf16, void *dlogits, const float *logits, const int32_t *targets,
	const float *lse, const float *dlogp, int64_t t, int64_t first, int64_t n)
{
	int fast = n % VEC == 0 && aligned16(dlogits, logits);
	if (!t)
		return 0;
#define SOFTMAX_BWD(T, FAST) \
	softmax_bwd_k<T, FAST><<<(unsigned)t, SOFTMAX_THREADS, 0, s>>>(dlogits, logits, targets, lse, dlogp, first, n)
	if (bf16)
		fast ? SOFTMAX_BWD(bf16_t, true) : SOFTMAX_BWD(bf16_t, false);
	else
		fast ? SOFTMAX_BWD(float, true) : SOFTMAX_BWD(float, false);
	return launched();
}

static __device__ double block_sum(double x)
{
	__shared__ double part[256 / WARP];
#pragma unroll
	for (int d = WARP / 2; d; d /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, d);
	if (threadIdx.x % WARP == 0)
		part[threadIdx.x / WARP] = x;
	__syncthreads();
	x = 0;
	for (int i = 0; i < 256 / WARP; i++)
		x += part[i];
	return x;
}

/* Squares are added in fp32 over at most 64 elements and in double beyond. */
__global__ void sumsq_k(double *part, const float *x, int64_t n)
{
	double sum = 0;
	for (int64_t base = (int64_t)blockIdx.x * 256 * 64; base < n; base += (int64_t)SUM_BLOCKS * 256 * 64) {
		float own = 0;
#pragma unroll 8
		for (int k = 0; k < 64; k++) {
			int64_t i = base + k * 256 + threadIdx.x;
			float v = i < n ? x[i] : 0.0f;
			own = fmaf(v, v, own);
		}
		sum += (double)own;
	}
	sum = block_sum(sum);
	if (!threadIdx.x)
		part[blockIdx.x] = sum;
}

__global__ void sumsq_end_k(float *out, const double *part)
{
	double sum = block_sum(part[threadIdx.x] + part[threadIdx.x + 256]);
	if (!threadIdx.x)
		*out += (float)sum;
}

extern "C" size_t ww_cu_sumsq_bytes(void) { return SUM_BLOCKS * sizeof(double); }

extern "C" int ww_cu_sumsq(cudaStream_t s, float *out, const float *x, int64_t n, double *work)
{
	sumsq_k<<<SUM_BLOCKS, 256, 0, s>>>(work, x, n);
	sumsq_end_k<<<1, 256, 0, s>>>(out, work);
	return launched();
}
