/* attn_f32.cu - attention in fp32, 64 rows at a time.
 *
 * The numbers of attn_any.cu, bit for bit, for many rows: there a warp has one row and reads every key for it alone,
 * here a block reads 64 keys once for 64 rows (token, head of the group).  Which of the two takes a batch is a matter
 * of speed, so decoding one row and scoring a whole text may differ in it.  For that, every number has the order of
 * operations that it has there: a score is one chain along the dimensions from 0, a sum of weights is lane and lane +
 * 32, then halves of a warp, and a weighted sum is one chain along the keys from 0.
 *
 * 256 threads are 16 x 16.  Thread (ty, tx) has the scores of rows 4 ty .. 4 ty + 3 and keys tx, tx + 16, tx + 32, tx +
 * 48, and of the weighted sums the same rows and columns 4 tx .. 4 tx + 3 of every 64.  Tiles lie in shared memory by
 * rows of DP + 4 numbers, so that 16 bytes of eight neighbouring rows lie in different banks; every multiplication
 * reads four numbers at once.  Weights are exchanged through shared memory, but only between threads of one ty, which
 * are in one warp.
 *
 * Gradients need not have attn_any.cu's bits: they are the same two kernels without a shared sum, in tiles.
 *
 * Rejected: TF32 on tensor cores (a tenth of fp32's digits), three TF32 products of split numbers (Hopper's tensor
 * cores truncate sums).
 */
#include "dev/cuda/attn.cuh"

enum { ROWS = 64, THREADS = 256, SIDE = 16, EACH = ROWS / SIDE, WEIGHTS_LD = ROWS + 4, FEW_ROWS = 8 };
template <int DP> struct tile_of {
	enum { LD = DP + 4, SIZE = ROWS * LD, COLS = DP / SIDE };
};

template <int DP> static int room(int tiles)
{
	return (tiles * tile_of<DP>::SIZE + ROWS * WEIGHTS_LD + 2 * ROWS) * (int)sizeof(float);
}

/* 64 rows of d numbers into a tile: row r from at(r), which is NULL where there is none. */
template <int DP, class At> static __device__ __forceinline__ void stage(float *to, int d, At at)
{
#pragma unroll 4
	for (int i = threadIdx.x; i < ROWS * DP / 4; i += THREADS) {
		int r = i / (DP / 4), c = i % (DP / 4) * 4;
		const float *from = c < d ? at(r) : (const float *)0;
		*(float4 *)(to + r * tile_of<DP>::LD + c) = from ? *(const float4 *)(from + c) : make_float4(0, 0, 0, 0);
	}
}

/* s[i][j] = row 4 ty + i of a times row tx + 16 j of b. */
template <int DP> static __device__ __forceinline__ void scores(float (&s)[EACH][EACH], const float *a, const float *b)
{
	enum { LD = tile_of<DP>::LD };
	a += threadIdx.x / SIDE * EACH * LD;
	b += threadIdx.x % SIDE * LD;
#pragma unroll
	for (int i = 0; i < EACH; i++)
#pragma unroll
		for (int j = 0; j < EACH; j++)
			s[i][j] = 0;
#pragma unroll 4
	for (int l = 0; l < DP; l += 4) {
		float4 x[EACH], y[EACH];
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			x[i] = *(const float4 *)(a + i * LD + l);
			y[i] = *(const float4 *)(b + i * SIDE * LD + l);
		}
#pragma unroll
		for (int i = 0; i < EACH; i++)
#pragma unroll
			for (int j = 0; j < EACH; j++) {
				float sum = __fmaf_rn(x[i].x, y[j].x, s[i][j]);
				sum = __fmaf_rn(x[i].y, y[j].y, sum);
				sum = __fmaf_rn(x[i].z, y[j].z, sum);
				s[i][j] = __fmaf_rn(x[i].w, y[j].w, sum);
			}
	}
}

/* Store s[i][j] to weights[tx + 16 j][4 ty + i]. */
static __device__ __forceinline__ void put_weights(float *weights, const float (&s)[EACH][EACH])
{
	__syncwarp(); /* those of before have been read */
#pragma unroll
	for (int j = 0; j < EACH; j++)
		*(float4 *)(weights + (threadIdx.x % SIDE + j * SIDE) * WEIGHTS_LD + threadIdx.x / SIDE * EACH) = make_float4(
			s[0][j], s[1][j], s[2][j], s[3][j]);
	__syncwarp();
}

/* acc[i][64 k + c] += the sum over 64 rows r of weights[r][4 ty + i] times column 64 k + 4 tx + c of row r of b. */
template <int DP> static __device__ __forceinline__ void add_rows(
	float (&acc)[EACH][tile_of<DP>::COLS], const float *weights, const float *b)
{
	enum { LD = tile_of<DP>::LD, CHUNKS = DP / 64 };
	weights += threadIdx.x / SIDE * EACH;
	b += threadIdx.x % SIDE * 4;
#pragma unroll 4
	for (int r = 0; r < ROWS; r++) {
		float4 w4 = *(const float4 *)(weights + r * WEIGHTS_LD);
		float w[EACH] = { w4.x, w4.y, w4.z, w4.w };
#pragma unroll
		for (int k = 0; k < CHUNKS; k++) {
			float4 y = *(const float4 *)(b + r * LD + k * 64);
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				acc[i][4 * k] = __fmaf_rn(w[i], y.x, acc[i][4 * k]);
				acc[i][4 * k + 1] = __fmaf_rn(w[i], y.y, acc[i][4 * k + 1]);
				acc[i][4 * k + 2] = __fmaf_rn(w[i], y.z, acc[i][4 * k + 2]);
				acc[i][4 * k + 3] = __fmaf_rn(w[i], y.w, acc[i][4 * k + 3]);
			}
		}
	}
}

/* Row 4 ty + i of acc, times `by`, to an array of d columns. */
template <int DP> static __device__ __forceinline__ void store_row(float *to, const float *acc, int d, float by)
{
#pragma unroll
	for (int k = 0; k < DP / 64; k++) {
		int c = k * 64 + threadIdx.x % SIDE * 4;
		if (c < d)
			*(float4 *)(to + c) = make_float4(
				acc[4 * k] * by, acc[4 * k + 1] * by, acc[4 * k + 2] * by, acc[4 * k + 3] * by);
	}
}

/* Over the 16 threads of a ty. */
static __device__ __forceinline__ float side_max(float x)
{
#pragma unroll
	for (int d = SIDE / 2; d; d /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
	return x;
}
static __device__ __forceinline__ float side_sum(float x)
{
#pragma unroll
	for (int d = SIDE / 2; d; d /= 2)
		x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, d));
	return x;
}

/* The rows of a tile: (token, head of the group) of one key-value head, tokens from t0. */
struct rows {
	int64_t t0;
	int n, kh;
};
static __device__ __forceinline__ const float *row_at(
	const struct ww_cu_attn &a, const void *base, struct rows r, int i)
{
	return i < r.n ? (const float *)base + out_row(a, r.t0, r.kh, i) * a.head_dim : (const float *)0;
}

template <int DP> __global__ void __launch_bounds__(THREADS, DP == 64 ? 2 : 1)
	f32_fwd_k(const struct ww_cu_attn a, float c)
{
	enum { SIZE = tile_of<DP>::SIZE, COLS = tile_of<DP>::COLS };
	extern __shared__ float memory[];
	float *q = memory, *k = q + SIZE, *v = k + SIZE, *weights = v + SIZE;
	int group = a.heads / a.kv_heads, kh = blockIdx.y, d = a.head_dim, row0 = threadIdx.x / SIDE * EACH,
		tx = threadIdx.x % SIDE;
	struct tile t = find_tile(a, gridDim.x - 1 - blockIdx.x, ROWS / group); /* the longest rows start first */
	if (t.n <= 0)
		return;
	struct rows rows = { a.start[t.seq] + t.first, t.n * group, kh };
	int end = a.pos[rows.t0 + t.n - 1] + 1, pos[EACH];
	float o[EACH][COLS] = {}, max[EACH], sum[EACH];
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		pos[i] = row0 + i < rows.n ? a.pos[rows.t0 + (row0 + i) / group] : -1;
		max[i] = -INFINITY;
		sum[i] = 0;
	}
	stage<DP>(q, d, [&](int r) { return row_at(a, a.q, rows, r); });
	for (int at = 0; at < end; at += BLOCK_KEYS) {
		float s[EACH][EACH], pv[EACH][COLS] = {};
		struct merge f[EACH];
		__syncthreads();
		stage<DP>(k, d, [&](int r) {
			return at + r < end ? (const float *)a.k + (key_row(a, t.seq, at + r) * a.kv_heads + kh) * d
								: (const float *)0;
		});
		stage<DP>(v, d, [&](int r) {
			return at + r < end ? (const float *)a.v + (key_row(a, t.seq, at + r) * a.kv_heads + kh) * d
								: (const float *)0;
		});
		__syncthreads();
		scores<DP>(s, q, k);
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			float top = -INFINITY;
#pragma unroll
			for (int j = 0; j < EACH; j++) {
				s[i][j] = at + tx + j * SIDE <= pos[i] ? s[i][j] : -INFINITY;
				top = fmaxf(top, s[i][j]);
			}
			top = side_max(top);
#pragma unroll
			for (int j = 0; j < EACH; j++)
				s[i][j] = weight_of(s[i][j], shift_of(top, c), c);
			float l = side_sum(__fadd_rn(__fadd_rn(s[i][0], s[i][2]), __fadd_rn(s[i][1], s[i][3])));
			f[i] = merge_state(&max[i], &sum[i], top, l, c);
		}
		put_weights(weights, s);
		add_rows<DP>(pv, weights, v);
#pragma unroll
		for (int i = 0; i < EACH; i++)
#pragma unroll
			for (int j = 0; j < COLS; j++)
				o[i][j] = merge_value(o[i][j], pv[i][j], f[i]);
	}
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		if (row0 + i >= rows.n)
			continue;
		int64_t to = out_row(a, rows.t0, kh, row0 + i);
		store_row<DP>((float *)a.out + to * d, o[i], d, 1.0f / sum[i]);
		if (a.lse && !tx)
			a.lse[to] = lse_of(max[i], sum[i], c);
	}
}

/* Weights and their gradients of a tile of pairs, from their scores s and the products dp of dout and values: p into s,
 * ds into dp. */
static __device__ __forceinline__ void weigh(float &s, float &dp, int seen, float lse, float delta, float scale)
{
	s = seen ? expf(s * scale - lse) : 0.0f;
	dp = s * (dp - delta) * scale;
}

template <int DP> __global__ void __launch_bounds__(THREADS, DP == 64 ? 2 : 1)
	f32_dq_k(const struct ww_cu_attn_bwd b, const float *all_delta)
{
	enum { SIZE = tile_of<DP>::SIZE, COLS = tile_of<DP>::COLS };
	extern __shared__ float memory[];
	const struct ww_cu_attn &a = b.fwd;
	float *q = memory, *g = q + SIZE, *k = g + SIZE, *v = k + SIZE, *weights = v + SIZE;
	int group = a.heads / a.kv_heads, kh = blockIdx.y, d = a.head_dim, row0 = threadIdx.x / SIDE * EACH,
		tx = threadIdx.x % SIDE;
	struct tile t = find_tile(a, gridDim.x - 1 - blockIdx.x, ROWS / group);
	if (t.n <= 0)
		return;
	int64_t s0 = a.start[t.seq];
	struct rows rows = { s0 + t.first, t.n * group, kh };
	int end = t.first + t.n, pos[EACH];
	float dq[EACH][COLS] = {}, lse[EACH], delta[EACH];
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		int there = row0 + i < rows.n;
		int64_t at = there ? out_row(a, rows.t0, kh, row0 + i) : 0;
		pos[i] = there ? t.first + (row0 + i) / group : -1;
		lse[i] = there ? a.lse[at] : 0;
		delta[i] = there ? all_delta[at] : 0;
	}
	stage<DP>(q, d, [&](int r) { return row_at(a, a.q, rows, r); });
	stage<DP>(g, d, [&](int r) { return row_at(a, b.dout, rows, r); });
	for (int at = 0; at < end; at += BLOCK_KEYS) {
		float s[EACH][EACH], dp[EACH][EACH];
		__syncthreads();
		stage<DP>(k, d, [&](int r) {
			return at + r < end ? (const float *)a.k + ((s0 + at + r) * a.kv_heads + kh) * d : (const float *)0;
		});
		stage<DP>(v, d, [&](int r) {
			return at + r < end ? (const float *)a.v + ((s0 + at + r) * a.kv_heads + kh) * d : (const float *)0;
		});
		__syncthreads();
		scores<DP>(s, q, k);
		scores<DP>(dp, g, v);
#pragma unroll
		for (int i = 0; i < EACH; i++)
#pragma unroll
			for (int j = 0; j < EACH; j++)
				weigh(s[i][j], dp[i][j], at + tx + j * SIDE <= pos[i], lse[i], delta[i], a.scale);
		put_weights(weights, dp);
		add_rows<DP>(dq, weights, k);
	}
#pragma unroll
	for (int i = 0; i < EACH; i++)
		if (row0 + i < rows.n)
			store_row<DP>((float *)b.dq + out_row(a, rows.t0, kh, row0 + i) * d, dq[i], d, 1.0f);
}

template <int DP> __global__ void __launch_bounds__(THREADS, DP == 64 ? 2 : 1)
	f32_dkv_k(const struct ww_cu_attn_bwd b, const float *all_delta)
{
	enum { SIZE = tile_of<DP>::SIZE, COLS = tile_of<DP>::COLS };
	extern __shared__ float memory[];
	const struct ww_cu_attn &a = b.fwd;
	float *k = memory, *v = k + SIZE, *q = v + SIZE, *g = q + SIZE, *weights = g + SIZE,
		  *lse = weights + ROWS * WEIGHTS_LD, *delta = lse + ROWS;
	int group = a.heads / a.kv_heads, per = ROWS / group, kh = blockIdx.y, d = a.head_dim,
		row0 = threadIdx.x / SIDE * EACH, tx = threadIdx.x % SIDE;
	struct tile t = find_tile(a, blockIdx.x, ROWS); /* of keys */
	if (t.n <= 0)
		return;
	int64_t s0 = a.start[t.seq];
	int len = a.start[t.seq + 1] - (int)s0;
	float dk[EACH][COLS] = {}, dv[EACH][COLS] = {};
	stage<DP>(k, d, [&](int r) {
		return r < t.n ? (const float *)a.k + ((s0 + t.first + r) * a.kv_heads + kh) * d : (const float *)0;
	});
	stage<DP>(v, d, [&](int r) {
		return r < t.n ? (const float *)a.v + ((s0 + t.first + r) * a.kv_heads + kh) * d : (const float *)0;
	});
	for (int q0 = t.first; q0 < len; q0 += per) {
		struct rows rows = { s0 + q0, (len - q0 < per ? len - q0 : per) * group, kh };
		float s[EACH][EACH], dp[EACH][EACH];
		__syncthreads();
		stage<DP>(q, d, [&](int r) { return row_at(a, a.q, rows, r); });
		stage<DP>(g, d, [&](int r) { return row_at(a, b.dout, rows, r); });
		if (threadIdx.x < ROWS) {
			int there = (int)threadIdx.x < rows.n;
			int64_t at = there ? out_row(a, rows.t0, kh, threadIdx.x) : 0;
			lse[threadIdx.x] = there ? a.lse[at] : 0;
			delta[threadIdx.x] = there ? all_delta[at] : 0;
		}
		__syncthreads();
		scores<DP>(s, k, q);
		scores<DP>(dp, v, g);
#pragma unroll
		for (int j = 0; j < EACH; j++) {
			int r = tx + j * SIDE, last = r < rows.n ? q0 + r / group : -1; /* the last key that this row sees */
#pragma unroll
			for (int i = 0; i < EACH; i++)
				weigh(s[i][j], dp[i][j], t.first + row0 + i <= last, lse[r], delta[r], a.scale);
		}
		put_weights(weights, s);
		add_rows<DP>(dv, weights, g);
		put_weights(weights, dp);
		add_rows<DP>(dk, weights, q);
	}
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		int64_t to = ((s0 + t.first + row0 + i) * a.kv_heads + kh) * d;
		if (row0 + i >= t.n)
			continue;
		store_row<DP>((float *)b.dk + to, dk[i], d, 1.0f);
		store_row<DP>((float *)b.dv + to, dv[i], d, 1.0f);
	}
}

/* ---- launching */

extern "C" int ww_cu_attn_f32_fits(const struct ww_cu_attn *a)
{
	return a->head_dim <= 128 && a->head_dim % 4 == 0 && a->heads / a->kv_heads <= ROWS &&
		aligned16(a->q, a->k, a->v, a->out);
}

extern "C" int ww_cu_attn_f32_splits(const struct ww_cu_attn *a)
{
	return a->rows_max * (a->heads / a->kv_heads) > FEW_ROWS;
}

static dim3 grid_of(const struct ww_cu_attn *a, int per)
{
	return dim3((unsigned)tile_count(a->t, a->sequences, per), (unsigned)a->kv_heads);
}

/* More shared memory than a kernel has unasked. */
template <class Kernel> static int allow(Kernel *kernel, int bytes)
{
	return (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

template <int DP> static int forward(cudaStream_t s, const struct ww_cu_attn *a)
{
	int bytes = room<DP>(3), rc = allow(f32_fwd_k<DP>, bytes);
	if (rc)
		return rc;
	f32_fwd_k<DP><<<grid_of(a, ROWS / (a->heads / a->kv_heads)), THREADS, bytes, s>>>(*a, a->scale * LOG2E);
	return launched();
}

extern "C" int ww_cu_attn_f32_fwd(cudaStream_t s, const struct ww_cu_attn *a)
{
	return a->head_dim <= 64 ? forward<64>(s, a) : forward<128>(s, a);
}

template <int DP> static int backward(cudaStream_t s, const struct ww_cu_attn_bwd *b, float *delta)
{
	const struct ww_cu_attn *a = &b->fwd;
	int bytes = room<DP>(4), rc = allow(f32_dq_k<DP>, bytes);
	rc = rc ? rc : allow(f32_dkv_k<DP>, bytes);
	rc = rc ? rc : ww_cu_attn_delta(s, 0, delta, b->dout, a->out, a->t * a->heads, a->head_dim);
	if (rc)
		return rc;
	f32_dkv_k<DP><<<grid_of(a, ROWS), THREADS, bytes, s>>>(*b, delta);
	f32_dq_k<DP><<<grid_of(a, ROWS / (a->heads / a->kv_heads)), THREADS, bytes, s>>>(*b, delta);
	return launched();
}

extern "C" int ww_cu_attn_f32_bwd(cudaStream_t s, const struct ww_cu_attn_bwd *b, void *work)
{
	return b->fwd.head_dim <= 64 ? backward<64>(s, b, (float *)work) : backward<128>(s, b, (float *)work);
}
