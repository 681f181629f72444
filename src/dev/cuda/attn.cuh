/* attn.cuh - what the tensor core kernels of attention share.
 *
 * Fragments of mma.m16n8k16: lane = 4 g + q holds
 *   A (16 x 16): words (g, 2q), (g + 8, 2q), (g, 2q + 8), (g + 8, 2q + 8), each with the next column in its upper half
 *   B (16 x 8):  words (k = 2q, n = g), (k = 2q + 8, n = g), each with the next k
 *   C (16 x 8):  (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
 * so two neighbouring C tiles, rounded to bf16, are an A fragment without any exchange.
 *
 * Tiles in shared memory have rows of DP + 8 elements: 16 bytes more than a power of two, so that the eight rows of an
 * ldmatrix lie in different banks.
 *
 * The canonical order of a row (docs/engine.md, "Exactness").  Keys come in blocks of 64 from position 0.  A block's
 * part is its own maximum m_b, sum l_b of exp2(s c - m_b c) and product pv_b with the values: it depends on the row and
 * the block alone, since pv_b begins at zero.  Parts are merged from left to right:
 *
 *   M' = max(M, m_b), a = exp2((M - M') c), b = exp2((m_b - M') c), L = L a + l_b b, O = O a + pv_b b
 *
 * A block of which a row sees nothing changes no bit of it (a = 1, b = 0).  Parts may therefore be computed anywhere,
 * by any split of the keys, as long as they are merged in this order.  Rejected: a running maximum inside a chunk of
 * blocks (fewer multiplications, but a split would need a second set of accumulators in the kernel without splits).
 */
#ifndef WW_DEV_CUDA_ATTN_CUH
#define WW_DEV_CUDA_ATTN_CUH

#include "dev/cuda/common.cuh"

enum { BLOCK_KEYS = 64, PAD = 8 };

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

static __device__ __forceinline__ float exp2_fast(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

static __device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
	asm volatile(
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void ldmatrix4(uint32_t r[4], const bf16_t *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		: "r"(shared_address(p))
		: "memory");
}
static __device__ __forceinline__ void ldmatrix4_trans(uint32_t r[4], const bf16_t *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		: "r"(shared_address(p))
		: "memory");
}

/* 16 bytes to shared memory, zeros where `there` is 0. */
static __device__ __forceinline__ void copy16(bf16_t *dst, const bf16_t *src, int there)
{
	asm volatile(
		"cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(there ? 16 : 0)
		: "memory");
}
static __device__ __forceinline__ void copies_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> static __device__ __forceinline__ void copies_wait(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Fragment addresses in a tile of rows of LD elements, for this lane.
 * a_at: A (16 rows from row0, 16 columns from k0).  b_at: two B tiles (16 rows n from n0, 16 columns k from k0; the
 * four words are b0, b1 of n0.. and b0, b1 of n0 + 8..).  bt_at, with ldmatrix4_trans: the tile is stored (k, n): b0,
 * b1 of n0.., then of n0 + 8... */
template <int LD> static __device__ __forceinline__ const bf16_t *a_at(const bf16_t *tile, int row0, int k0, int lane)
{
	return tile + (row0 + lane % 16) * LD + k0 + lane / 16 * 8;
}
template <int LD> static __device__ __forceinline__ const bf16_t *b_at(const bf16_t *tile, int n0, int k0, int lane)
{
	return tile + (n0 + lane / 16 * 8 + lane % 8) * LD + k0 + lane / 8 % 2 * 8;
}
template <int LD> static __device__ __forceinline__ const bf16_t *bt_at(const bf16_t *tile, int k0, int n0, int lane)
{
	return tile + (k0 + lane % 16) * LD + n0 + lane / 16 * 8;
}

static __device__ __forceinline__ float quad_max(float x)
{
	x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
	return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
static __device__ __forceinline__ float quad_sum(float x)
{
	x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 1));
	return __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* exp2(s c - m c) of a score, 0 of one that is -inf; `shift` is shift_of() the block's maximum m. */
static __device__ __forceinline__ float shift_of(float m, float c) { return m == -INFINITY ? 0.0f : __fmul_rn(m, c); }
static __device__ __forceinline__ float weight_of(float s, float shift, float c)
{
	return exp2_fast(__fmaf_rn(s, c, -shift));
}

/* The sum of a row's 64 rounded weights from its A fragments: `half` 0 is row g, 1 is row g + 8. */
static __device__ __forceinline__ float weights_sum(const uint32_t p[4][4], int half)
{
	float sum = 0;
#pragma unroll
	for (int k = 0; k < 4; k++) {
		sum = __fadd_rn(sum, __fadd_rn(low2(p[k][half]), high2(p[k][half])));
		sum = __fadd_rn(sum, __fadd_rn(low2(p[k][half + 2]), high2(p[k][half + 2])));
	}
	return quad_sum(sum);
}

/* The running state of a row, and how a block's part enters it. */
struct merge {
	float keep, take;
};
static __device__ __forceinline__ struct merge merge_state(float *max, float *sum, float m, float l, float c)
{
	float top = fmaxf(*max, m);
	struct merge f;
	f.keep = *max == top ? 1.0f : exp2_fast(__fmul_rn(__fsub_rn(*max, top), c)); /* also where both are -inf */
	f.take = m == -INFINITY ? 0.0f : exp2_fast(__fmul_rn(__fsub_rn(m, top), c));
	*sum = __fmaf_rn(l, f.take, __fmul_rn(*sum, f.keep));
	*max = top;
	return f;
}
static __device__ __forceinline__ float merge_value(float o, float pv, struct merge f)
{
	return __fmaf_rn(pv, f.take, __fmul_rn(o, f.keep));
}
static __device__ __forceinline__ float lse_of(float max, float sum, float c)
{
	return (__fmul_rn(max, c) + log2f(sum)) * LN2;
}

/* Memory row of key position p of sequence s. */
static __device__ __forceinline__ int64_t key_row(const struct ww_cu_attn &a, int s, int p)
{
	if (!a.pages)
		return a.start[s] + p;
	int size = (int)a.page_size;
	return (int64_t)a.pages[s * a.pages_stride + p / size] * size + p % size;
}

/* The 64 rows of a block follow one another in memory, unless pages are smaller than a block. */
static __device__ __forceinline__ int in_a_row(const struct ww_cu_attn &a)
{
	return !a.pages || a.page_size % BLOCK_KEYS == 0;
}

/* Start copying rows p0..p0+63 of keys or values into a tile; positions from `end` on become zeros.  row: key_row() of
 * p0, which is looked up once a block: 64-bit arithmetic for every 16 bytes would cost more than the copies. */
template <int DP, int THREADS> static __device__ __forceinline__ void fetch_block_at(
	bf16_t *tile, const struct ww_cu_attn &a, const bf16_t *base, int64_t row, int s, int kh, int p0, int end)
{
	enum { CHUNKS = DP / 8, LD = DP + PAD, STEP = THREADS / CHUNKS, PASSES = BLOCK_KEYS / STEP };
	static_assert(STEP >= 1 && STEP <= BLOCK_KEYS, "a pass copies at most a block");
	int j = threadIdx.x / CHUNKS, c = threadIdx.x % CHUNKS * 8, left = c < a.head_dim ? end - p0 - j : 0;
	bf16_t *dst = tile + j * LD + c;
	if (!in_a_row(a)) {
		for (int i = 0; i < PASSES; i++, left -= STEP) {
			const bf16_t *src = left > 0 ? base + (key_row(a, s, p0 + j + i * STEP) * a.kv_heads + kh) * a.head_dim + c
										 : base;
			copy16(dst + i * STEP * LD, src, left > 0);
		}
		return;
	}
	int64_t stride = (int64_t)a.kv_heads * a.head_dim;
	const bf16_t *src = base + row * stride + kh * a.head_dim + j * stride + c;
	if (left > BLOCK_KEYS - STEP) {
#pragma unroll
		for (int i = 0; i < PASSES; i++, src += STEP * stride)
			copy16(dst + i * STEP * LD, src, 1);
		return;
	}
#pragma unroll
	for (int i = 0; i < PASSES; i++, src += STEP * stride, left -= STEP)
		copy16(dst + i * STEP * LD, left > 0 ? src : base, left > 0);
}

template <int DP, int THREADS> static __device__ __forceinline__ void fetch_block(
	bf16_t *tile, const struct ww_cu_attn &a, const bf16_t *base, int s, int kh, int p0, int end)
{
	fetch_block_at<DP, THREADS>(tile, a, base, in_a_row(a) ? key_row(a, s, p0) : 0, s, kh, p0, end);
}

/* Start copying `rows` rows (token, head of the group) of a (T, A, D) array, tokens from t0, into a tile; others are
 * zeros. */
template <int DP, int ROWS, int THREADS> static __device__ __forceinline__ void fetch_rows(
	bf16_t *tile, const struct ww_cu_attn &a, const bf16_t *base, int64_t t0, int kh, int rows)
{
	enum { CHUNKS = DP / 8, LD = DP + PAD };
	int group = a.heads / a.kv_heads;
#pragma unroll
	for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
		int r = i / CHUNKS, c = i % CHUNKS * 8, there = r < rows && c < a.head_dim;
		const bf16_t *src = there ? base + ((t0 + r / group) * a.heads + kh * group + r % group) * a.head_dim + c
								  : base;
		copy16(tile + r * LD + c, src, there);
	}
}

/* Tiles of `per` tokens, all sequences one behind the other with room for a part tile each: tile i belongs to the
 * sequence s with start[s] / per + s <= i < start[s + 1] / per + s + 1, and may be empty. */
struct tile {
	int seq, first, n;
}; /* tokens start[seq] + first .. + n - 1; n <= 0: nothing */
static __device__ __forceinline__ struct tile find_tile(const struct ww_cu_attn &a, int i, int per)
{
	int lo = 0, hi = (int)a.sequences - 1;
	while (lo < hi) {
		int mid = (lo + hi + 1) / 2;
		if (a.start[mid] / per + mid <= i)
			lo = mid;
		else
			hi = mid - 1;
	}
	int s0 = a.start[lo], len = a.start[lo + 1] - s0, first = (i - (s0 / per + lo)) * per;
	struct tile t = { lo, first, len - first < per ? len - first : per };
	return t;
}
static inline int64_t tile_count(int64_t t, int64_t sequences, int per) { return t / per + sequences; }

/* Parts in memory: values (sequence, kv head, block, row, DP), then {max, sum} of each row of them. */
struct parts {
	float *values, *state;
	int blocks, rows;
};
static __device__ __forceinline__ int64_t part_row(
	const struct ww_cu_attn &a, struct parts w, int s, int kh, int block, int r)
{
	return (((int64_t)s * a.kv_heads + kh) * w.blocks + block) * w.rows + r;
}

/* Which kernels a forward pass takes: that of whole tiles, that of sequences with at most few_rows rows here (its
 * blocks in so many pieces, with parts in memory where there is more than one), or both. */
struct choice {
	int tiles, few, splits;
	struct parts parts;
	size_t bytes;
};
static inline struct choice choose(const struct ww_cu_attn *a, int sms, int few_rows, int dp)
{
	int64_t group = a->heads / a->kv_heads, ctas = a->sequences * a->kv_heads,
			blocks = (a->keys_max + BLOCK_KEYS - 1) / BLOCK_KEYS;
	int64_t most = a->rows_max * group < few_rows ? a->rows_max * group : few_rows, splits = 1;
	struct choice c = {};
	c.tiles = a->rows_max * group > few_rows;
	c.few = !c.tiles || (a->pages && a->sequences > 1 && group <= few_rows);
	if (c.few && ctas < sms)
		splits = 2 * sms / ctas < blocks / 2 ? 2 * sms / ctas : blocks / 2;
	c.splits = splits > 1 ? (int)splits : 1;
	c.parts.blocks = (int)blocks;
	c.parts.rows = (int)most;
	c.bytes = c.splits > 1 ? (size_t)(ctas * blocks * most * (dp + 2)) * sizeof(float) : 0;
	if (c.bytes > (size_t)1 << 29) {
		c.splits = 1;
		c.bytes = 0;
	}
	return c;
}
static inline void rope_to_cache_parts(struct choice *c, const struct ww_cu_attn *a, float *work, int dp)
{
	c->parts.values = work;
	c->parts.state = work + (size_t)(a->sequences * a->kv_heads * c->parts.blocks * c->parts.rows) * dp;
}

enum { JOIN_THREADS = 256 };
static inline dim3 join_grid(const struct ww_cu_attn *a, const struct choice *c, int dp)
{
	return dim3((unsigned)a->sequences, (unsigned)a->kv_heads,
		(unsigned)((c->parts.rows * dp + JOIN_THREADS - 1) / JOIN_THREADS));
}

static __device__ __forceinline__ int64_t out_row(const struct ww_cu_attn &a, int64_t t0, int kh, int r)
{
	int group = a.heads / a.kv_heads; /* where row r of a tile whose first token is t0 goes, and the index of its lse */
	return (t0 + r / group) * a.heads + kh * group + r % group;
}

/* Merges parts from left to right, as the kernels do that need not write them: a thread has one dimension of one row,
 * gridDim.z blocks share the rows. */
template <int DP> __global__ void join_k(struct ww_cu_attn a, float c, struct parts w, int few_rows)
{
	int group = a.heads / a.kv_heads, s = blockIdx.x, kh = blockIdx.y;
	int64_t t0 = a.start[s];
	int tokens = a.start[s + 1] - (int)t0, rows = tokens * group;
	if (rows < 1 || rows > few_rows)
		return;
	int blocks = (a.pos[t0 + tokens - 1] + BLOCK_KEYS) / BLOCK_KEYS;
	for (int i = blockIdx.z * blockDim.x + threadIdx.x; i < rows * DP; i += gridDim.z * blockDim.x) {
		int r = i / DP, d = i % DP;
		float o = 0, max = -INFINITY, sum = 0;
#pragma unroll 4
		for (int b = 0; b < blocks; b++) {
			int64_t row = part_row(a, w, s, kh, b, r);
			float2 st = *(const float2 *)(w.state + row * 2);
			float pv = w.values[row * DP + d];
			o = merge_value(o, pv, merge_state(&max, &sum, st.x, st.y, c));
		}
		int64_t to = out_row(a, t0, kh, r);
		if (d < a.head_dim)
			narrow((bf16_t *)a.out + to * a.head_dim + d, o * (1.0f / sum));
		if (a.lse && !d)
			a.lse[to] = lse_of(max, sum, c);
	}
}

#endif
