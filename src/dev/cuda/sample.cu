/* sample.cu - a token for each row of logits, by the rules of sample.c and the arithmetic of sample.h.
 *
 * A cluster of up to eight blocks has a row, and each block keeps its stretch of the logits in shared memory: they are
 * read once, however many passes a truncation takes.  (Stretches that do not fit are read from memory in each pass.)
 * Blocks exchange the likeliest token, histograms and totals by reading one another's shared memory.  Each member of
 * `struct shared` is written once, or alternates between two copies, so one cluster barrier between writing and reading
 * is enough and none is needed after reading.
 *
 * Edges of top-k and top-p are found digit by digit with counts in shared memory.  Logits are much alike, so most of a
 * warp wants one bin: each bin is in COPIES, neighbours in memory, and a thread takes its own.  Shared memory adds 32
 * bits at once but not 64, so a weight is counted in three parts of PART_BITS.
 *
 * To sample, each thread has a piece of tokens that follow one another.  The pieces' totals say in whose piece the
 * point lies, and that thread walks it.  Whole numbers have no order, so neither the number of blocks nor of pieces can
 * be seen in the result.
 */
#include "dev/cuda/common.cuh"
#include "dev/sample.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

enum {
	THREADS = 512,
	WARPS = THREADS / WARP,
	DIGIT_BITS = 8,
	BINS = 1 << DIGIT_BITS,
	COPIES = 8,
	PARTS = 3,
	PART_BITS = 14,
	BLOCKS_MAX = 8,
	TOKENS_A_BLOCK = 8192,
	STRETCH_MAX = 40 << 10
};
#define UNIT ((double)(1ull << WW_SAMPLE_BITS))

struct logits {
	const float *p;
	int64_t i, t, v, chunk;
}; /* of row i, as dev.h says */

/* A block's stretch of a row; own: its logits from `first` on in shared memory, or NULL. */
struct stretch {
	struct logits all;
	const float *own;
	int64_t first, end;
	float best, rate;
	double min_p;
};

/* What the other blocks of the cluster read. */
struct shared {
	float best;
	int nan;
	int64_t where;
	uint64_t mass, total;
	uint64_t bins[2][BINS];
};

static __device__ __forceinline__ float logit_at(const struct logits &l, int64_t j)
{
	int64_t c = j / l.chunk * l.chunk, w = l.v - c < l.chunk ? l.v - c : l.chunk;
	return l.p[l.t * c + l.i * w + j - c];
}

static __device__ __forceinline__ float logit_of(const struct stretch &s, int64_t j)
{
	return s.own ? s.own[j - s.first] : logit_at(s.all, j);
}

/* f(token, logit) for the tokens of the stretch. */
template <class F> static __device__ __forceinline__ void each_token(const struct stretch &s, F f)
{
#pragma unroll 4
	for (int64_t j = s.first + threadIdx.x; j < s.end; j += THREADS)
		f(j, logit_of(s, j));
}

/* Copy the stretch to where it stays. */
static __device__ void keep(const struct stretch &s, float *own)
{
	for (int64_t j = s.first; j < s.end;) {
		int64_t c = j / s.all.chunk * s.all.chunk, w = s.all.v - c < s.all.chunk ? s.all.v - c : s.all.chunk,
				stop = c + w < s.end ? c + w : s.end;
		const float *from = s.all.p + s.all.t * c + s.all.i * w - c;
#pragma unroll 8
		for (int64_t k = j + threadIdx.x; k < stop; k += THREADS)
			own[k - s.first] = from[k];
		j = stop;
	}
	__syncthreads();
}

static __device__ __forceinline__ uint64_t weight_at(const struct stretch &s, float logit)
{
	return ww_sample_weight(__fsub_rn(logit, s.best), s.rate);
}

/* What is left of a weight after min-p and the smallest key. */
static __device__ __forceinline__ uint64_t weight_from(const struct stretch &s, float logit, uint32_t least)
{
	uint64_t w = ww_sample_key(logit) >= least ? weight_at(s, logit) : 0;
	return s.min_p > 0 && (double)w < s.min_p * UNIT ? 0 : w;
}

/* The sum over lanes up to this one. */
static __device__ uint64_t sum_so_far(uint64_t x)
{
#pragma unroll
	for (int d = 1; d < WARP; d *= 2) {
		uint64_t left = __shfl_up_sync(0xffffffffu, x, d);
		x += threadIdx.x % WARP >= d ? left : 0;
	}
	return x;
}

/* The sum over the block's threads before this one; *total: over all. */
static __device__ uint64_t sum_before(uint64_t x, uint64_t *total)
{
	__shared__ uint64_t part[WARPS];
	uint64_t upto = sum_so_far(x), before = upto - x, all = 0;
	__syncthreads();
	if (threadIdx.x % WARP == WARP - 1)
		part[threadIdx.x / WARP] = upto;
	__syncthreads();
	for (int i = 0; i < WARPS; i++) {
		before += i < threadIdx.x / WARP ? part[i] : 0;
		all += part[i];
	}
	*total = all;
	return before;
}

static __device__ __forceinline__ int likelier(float x, int64_t k, float best, int64_t where)
{
	return k >= 0 && (where < 0 || x > best || (x == best && k < where));
}

/* The likeliest token of the row, the smaller of equals; -1 where a logit is NaN or none is finite. */
static __device__ int64_t likeliest(const struct stretch &s, struct shared *shared, float *logit)
{
	__shared__ float top[WARPS];
	__shared__ int64_t at[WARPS];
	cg::cluster_group cluster = cg::this_cluster();
	float best = -INFINITY;
	int64_t where = -1;
	int nan = 0;
	each_token(s, [&](int64_t j, float x) {
		nan |= isnan(x);
		if (x > best || where < 0) {
			best = x;
			where = j;
		}
	});
	nan = __syncthreads_or(nan);
#pragma unroll
	for (int d = WARP / 2; d; d /= 2) {
		float x = __shfl_xor_sync(0xffffffffu, best, d);
		int64_t k = __shfl_xor_sync(0xffffffffu, where, d);
		if (likelier(x, k, best, where)) {
			best = x;
			where = k;
		}
	}
	if (threadIdx.x % WARP == 0) {
		top[threadIdx.x / WARP] = best;
		at[threadIdx.x / WARP] = where;
	}
	__syncthreads();
	if (!threadIdx.x) {
		for (int i = 1; i < WARPS; i++)
			if (likelier(top[i], at[i], best, where)) {
				best = top[i];
				where = at[i];
			}
		shared->best = best;
		shared->where = where;
		shared->nan = nan;
	}
	cluster.sync();
	best = -INFINITY;
	where = -1;
	nan = 0;
	for (unsigned i = 0; i < cluster.num_blocks(); i++) {
		const struct shared *other = cluster.map_shared_rank(shared, i);
		nan |= other->nan;
		if (likelier(other->best, other->where, best, where)) {
			best = other->best;
			where = other->where;
		}
	}
	*logit = best;
	return nan || !isfinite(best) ? -1 : where;
}

/* This block's histogram of one digit, of tokens whose key begins with `prefix`. */
static __device__ void count_digit(
	const struct stretch &s, int weighed, uint32_t least, int shift, uint32_t prefix, uint64_t *out)
{
	__shared__ uint32_t bins[PARTS][BINS][COPIES];
	for (int i = threadIdx.x; i < PARTS * BINS * COPIES; i += THREADS)
		(&bins[0][0][0])[i] = 0;
	__syncthreads();
	each_token(s, [&](int64_t, float x) {
		uint32_t k = ww_sample_key(x), bin = k >> shift & (BINS - 1), copy = threadIdx.x % COPIES;
		if (k < least || (uint64_t)k >> shift >> DIGIT_BITS != prefix)
			return;
		if (!weighed) {
			atomicAdd(&bins[0][bin][copy], 1u);
			return;
		}
		uint64_t w = weight_at(s, x);
#pragma unroll
		for (int p = 0; p < PARTS; p++)
			atomicAdd(&bins[p][bin][copy], (uint32_t)(w >> p * PART_BITS) & ((1u << PART_BITS) - 1));
	});
	__syncthreads();
	if (threadIdx.x < BINS) {
		uint64_t sum = 0;
		for (int p = 0; p < PARTS; p++)
			for (int i = 0; i < COPIES; i++)
				sum += (uint64_t)bins[p][threadIdx.x][i] << p * PART_BITS;
		out[threadIdx.x] = sum;
	}
}

/* The greatest digit from which on the bins and `above` have `need` together, or 0; *above becomes what lies above it.
 * One warp. */
static __device__ int find_digit(const uint64_t *bins, uint64_t need, uint64_t *above)
{
	enum { EACH = BINS / WARP };
	int lane = threadIdx.x % WARP, first = BINS - 1 - lane * EACH;
	uint64_t own = 0, before = *above;
	for (int i = 0; i < EACH; i++)
		own += bins[first - i];
	before += sum_so_far(own) - own;
	unsigned enough = __ballot_sync(0xffffffffu, before + own >= need);
	int chosen = enough ? __ffs((int)enough) - 1 : WARP - 1, d = first;
	for (; d > first - EACH + 1 && before + bins[d] < need; d--)
		before += bins[d];
	*above = __shfl_sync(0xffffffffu, before, chosen);
	return __shfl_sync(0xffffffffu, d, chosen);
}

/* The largest key such that tokens from it (and from `least`) on have `need` together: counted, or weighed. */
static __device__ uint32_t edge(
	const struct stretch &s, struct shared *shared, int weighed, uint32_t least, uint64_t need)
{
	__shared__ uint64_t all[BINS], found_above;
	__shared__ int found;
	cg::cluster_group cluster = cg::this_cluster();
	uint64_t above = 0;
	uint32_t prefix = 0;
	for (int shift = 32 - DIGIT_BITS, turn = 0; shift >= 0; shift -= DIGIT_BITS, turn ^= 1) {
		count_digit(s, weighed, least, shift, prefix, shared->bins[turn]);
		cluster.sync();
		if (threadIdx.x < BINS) {
			uint64_t sum = 0;
			for (unsigned i = 0; i < cluster.num_blocks(); i++)
				sum += cluster.map_shared_rank(shared, i)->bins[turn][threadIdx.x];
			all[threadIdx.x] = sum;
		}
		__syncthreads();
		if (threadIdx.x < WARP) {
			int d = find_digit(all, need, &above);
			if (!threadIdx.x) {
				found = d;
				found_above = above;
			}
		}
		__syncthreads();
		above = found_above;
		prefix = prefix << DIGIT_BITS | (uint32_t)found;
	}
	return prefix;
}

/* The weight of the whole row from `least` on. */
static __device__ uint64_t mass_of(const struct stretch &s, struct shared *shared, uint32_t least)
{
	cg::cluster_group cluster = cg::this_cluster();
	uint64_t own = 0, block, sum = 0;
	each_token(s, [&](int64_t, float x) { own += ww_sample_key(x) >= least ? weight_at(s, x) : 0; });
	sum_before(own, &block);
	if (!threadIdx.x)
		shared->mass = block;
	cluster.sync();
	for (unsigned i = 0; i < cluster.num_blocks(); i++)
		sum += cluster.map_shared_rank(shared, i)->mass;
	return sum;
}

static __device__ uint64_t random_of(const struct ww_sampler &d)
{
	uint32_t c[4] = { (uint32_t)d.position, (uint32_t)(d.position >> 32), (uint32_t)d.stream,
		(uint32_t)(d.stream >> 32) };
	uint32_t k0 = (uint32_t)d.seed, k1 = (uint32_t)(d.seed >> 32);
	for (int round = 0; round < 10; round++) { /* Philox4x32-10, as base/rng.c */
		uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
		uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
		c[0] = n0, c[1] = (uint32_t)p1, c[2] = n2, c[3] = (uint32_t)p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return (uint64_t)c[1] << 32 | c[0];
}

/* The first token at which the sum of kept weights passes the point, by the one thread that has it. */
static __device__ void choose(const struct stretch &s, struct shared *shared, const struct ww_sampler &d,
	uint32_t least, int topped, float shift, struct ww_sampled *out)
{
	cg::cluster_group cluster = cg::this_cluster();
	int64_t each = (s.end - s.first + THREADS - 1) / THREADS | 1; /* odd: neighbours' pieces begin in different banks */
	int64_t j = s.first + threadIdx.x * each, end = j + each < s.end ? j + each : s.end;
	uint64_t own = 0, block, total = 0, before;
	for (int64_t k = j; k < end; k++)
		own += weight_from(s, logit_of(s, k), least);
	before = sum_before(own, &block);
	if (!threadIdx.x)
		shared->total = block;
	cluster.sync();
	for (unsigned i = 0; i < cluster.num_blocks(); i++) {
		uint64_t other = cluster.map_shared_rank(shared, i)->total;
		before += i < cluster.block_rank() ? other : 0;
		total += other;
	}
	uint64_t point = __umul64hi(random_of(d), total);
	if (point < before || point - before >= own)
		return;
	for (point -= before;; j++) {
		uint64_t w = weight_from(s, logit_of(s, j), least);
		if (point < w)
			break;
		point -= w;
	}
	const struct ww_sampling &how = d.sampling;
	float logit = logit_of(s, j);
	struct ww_sampled one = { (int32_t)j, logit - shift, logit - shift };
	if (how.temperature != 1 || topped || how.top_p < 1 || how.min_p > 0)
		one.logp_sampling = (float)(((double)logit - (double)s.best) / how.temperature - log((double)total / UNIT));
	*out = one;
}

__global__ void __launch_bounds__(THREADS) sample_k(struct ww_sampled *out, const struct ww_sampler *how,
	const float *logits, const float *lse, int64_t t, int64_t v, int64_t chunk, int64_t length, int fits)
{
	extern __shared__ float own[];
	__shared__ struct shared shared;
	cg::cluster_group cluster = cg::this_cluster();
	int64_t row = blockIdx.x / cluster.num_blocks(), first = cluster.block_rank() * length,
			end = first + length < v ? first + length : v;
	struct ww_sampler d = how[row];
	const struct ww_sampling &by = d.sampling;
	struct stretch s = { { logits, row, t, v, chunk }, fits ? own : 0, first, end, 0,
		ww_sample_rate(by.temperature > 0 ? by.temperature : 1), by.min_p };
	float top, shift = lse[row];
	if (fits)
		keep(s, own);
	int64_t best = likeliest(s, &shared, &top);
	if (best < 0 || !(by.temperature > 0)) {
		struct ww_sampled one = { (int32_t)best, best < 0 ? 0 : top - shift, 0 };
		if (!threadIdx.x && !cluster.block_rank())
			out[row] = one;
	} else {
		int topped = by.top_k > 0 && by.top_k < v;
		s.best = top;
		uint32_t least = topped ? edge(s, &shared, 0, 0, (uint64_t)by.top_k) : 0;
		if (by.top_p < 1) {
			double need = ceil(by.top_p * (double)mass_of(s, &shared, least));
			least = edge(s, &shared, 1, least, need > 1 ? (uint64_t)need : 1);
		}
		choose(s, &shared, d, least, topped, shift, &out[row]);
	}
	cluster.sync(); /* what a block has shared must stay until all have read it */
}

extern "C" int ww_cu_sample(cudaStream_t s, struct ww_sampled *out, const struct ww_sampler *how, const float *logits,
	const float *lse, int64_t t, int64_t v, int64_t chunk)
{
	int64_t blocks = (v + TOKENS_A_BLOCK - 1) / TOKENS_A_BLOCK, length;
	blocks = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
	length = (v + blocks - 1) / blocks;
	int fits = length <= STRETCH_MAX;
	cudaLaunchAttribute cluster = {};
	cudaLaunchConfig_t c = {};
	cluster.id = cudaLaunchAttributeClusterDimension;
	cluster.val.clusterDim.x = (unsigned)blocks;
	cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
	c.gridDim = dim3((unsigned)(t * blocks));
	c.blockDim = dim3(THREADS);
	c.dynamicSmemBytes = fits ? (size_t)length * sizeof(float) : 0;
	c.stream = s;
	c.attrs = &cluster;
	c.numAttrs = 1;
	if (!t)
		return 0;
	int rc = (int)cudaFuncSetAttribute(
		sample_k, cudaFuncAttributeMaxDynamicSharedMemorySize, STRETCH_MAX * (int)sizeof(float));
	return rc ? rc : (int)cudaLaunchKernelEx(&c, sample_k, out, how, logits, lse, t, v, chunk, length, fits);
}
