/* draw.cu - a token for each row of logits, by the rules of draw.c and the arithmetic of draw.h.
 *
 * A block has a row.  Each warp owns a stretch of the vocabulary: the warps' totals say in which stretch the point lies, and only that one
 * is walked, 32 tokens at a time.  Weights are made again in each pass: a table of them would be larger than the logits.  Edges of top-k and top-p are found digit by digit with counts in shared
 * memory; whole numbers may be added atomically.
 */
#include "dev/cuda/common.cuh"
#include "dev/draw.h"

enum { THREADS = 1024, WARPS = THREADS / WARP, DIGIT_BITS = 8, BINS = 1 << DIGIT_BITS, COPIES = 16 };
#define UNIT ((double)(1ull << WW_DRAW_BITS))

struct row {
	const float *logits;
	int64_t i, t, v, chunk;
	float best, rate;
	double min_p;
};

static __device__ __forceinline__ float logit_at(const struct row &r, int64_t j)
{
	int64_t c = j / r.chunk * r.chunk, w = r.v - c < r.chunk ? r.v - c : r.chunk;
	return r.logits[r.t * c + r.i * w + j - c];
}

/* f(token, logit) for tokens first, first + step, .. below end. */
template <class F> static __device__ __forceinline__ void each_logit(const struct row &r, int64_t first, int64_t end, int from, int step, F f)
{
	for (int64_t j = first; j < end;) {
		int64_t c = j / r.chunk * r.chunk, w = r.v - c < r.chunk ? r.v - c : r.chunk, stop = c + w < end ? c + w : end;
		const float *p = r.logits + r.t * c + r.i * w - c;
#pragma unroll 4
		for (int64_t k = j + from; k < stop; k += step)
			f(k, p[k]);
		j = stop;
	}
}

static __device__ __forceinline__ uint64_t weight_at(const struct row &r, float logit)
{
	return ww_draw_weight(__fsub_rn(logit, r.best), r.rate);
}

/* What is left of a weight after min-p and the smallest key. */
static __device__ __forceinline__ uint64_t kept(const struct row &r, float logit, uint32_t least)
{
	uint64_t w = ww_draw_key(logit) >= least ? weight_at(r, logit) : 0;
	return r.min_p > 0 && (double)w < r.min_p * UNIT ? 0 : w;
}

static __device__ uint64_t warp_total(uint64_t x)
{
#pragma unroll
	for (int d = WARP / 2; d; d /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, d);
	return x;
}

static __device__ uint64_t block_total(uint64_t x)
{
	__shared__ uint64_t part[WARPS];
	x = warp_total(x);
	__syncthreads();
	if (threadIdx.x % WARP == 0)
		part[threadIdx.x / WARP] = x;
	__syncthreads();
	x = 0;
	for (int i = 0; i < WARPS; i++)
		x += part[i];
	return x;
}

/* The likeliest token, the smaller of equals; -1 where a logit is NaN or none is finite. */
static __device__ int64_t likeliest(const struct row &r, float *logit)
{
	__shared__ float top[WARPS];
	__shared__ int64_t at[WARPS];
	float best = -INFINITY;
	int64_t where = -1;
	int nan = 0;
	each_logit(r, 0, r.v, threadIdx.x, THREADS, [&](int64_t j, float x) {
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
		if (k >= 0 && (where < 0 || x > best || (x == best && k < where))) {
			best = x;
			where = k;
		}
	}
	if (threadIdx.x % WARP == 0) {
		top[threadIdx.x / WARP] = best;
		at[threadIdx.x / WARP] = where;
	}
	__syncthreads();
	best = top[0];
	where = at[0];
	for (int i = 1; i < WARPS; i++)
		if (at[i] >= 0 && (top[i] > best || (top[i] == best && at[i] < where))) {
			best = top[i];
			where = at[i];
		}
	*logit = best;
	return nan || !isfinite(best) ? -1 : where;
}

/* Logits are much alike, so most of a warp wants one bin: each bin is in COPIES, neighbours in memory, and a thread takes its own.
 *
 * The largest key such that tokens from it (and from `least`) on have `need` together: counted, or weighed. */
static __device__ uint32_t edge(const struct row &r, int weighed, uint32_t least, uint64_t need)
{
	__shared__ unsigned long long bins[BINS][COPIES];
	__shared__ uint64_t found_above;
	__shared__ int found;
	uint64_t above = 0;
	uint32_t prefix = 0;
	for (int shift = 32 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
		for (int i = threadIdx.x; i < BINS * COPIES; i += THREADS)
			bins[i / COPIES][i % COPIES] = 0;
		__syncthreads();
		each_logit(r, 0, r.v, threadIdx.x, THREADS, [&](int64_t, float x) {
			uint32_t k = ww_draw_key(x);
			if (k >= least && (uint64_t)k >> shift >> DIGIT_BITS == prefix)
				atomicAdd(&bins[k >> shift & (BINS - 1)][threadIdx.x % COPIES], (unsigned long long)(weighed ? weight_at(r, x) : 1));
		});
		__syncthreads();
		if (threadIdx.x < BINS)
			for (int i = 1; i < COPIES; i++)
				bins[threadIdx.x][0] += bins[threadIdx.x][i];
		__syncthreads();
		if (!threadIdx.x) {
			int d = BINS - 1;
			while (d > 0 && above + bins[d][0] < need)
				above += bins[d--][0];
			found = d;
			found_above = above;
		}
		__syncthreads();
		above = found_above;
		prefix = prefix << DIGIT_BITS | (uint32_t)found;
		__syncthreads();
	}
	return prefix;
}

static __device__ uint64_t random_of(const struct ww_draw &d)
{
	uint32_t c[4] = { (uint32_t)d.position, (uint32_t)(d.position >> 32), (uint32_t)d.stream, (uint32_t)(d.stream >> 32) };
	uint32_t k0 = (uint32_t)d.seed, k1 = (uint32_t)(d.seed >> 32);
	for (int round = 0; round < 10; round++) {	/* Philox4x32-10, as base/rng.c */
		uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
		uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
		c[0] = n0, c[1] = (uint32_t)p1, c[2] = n2, c[3] = (uint32_t)p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return (uint64_t)c[1] << 32 | c[0];
}

/* The first token at which the sum of kept weights passes `point`, found by the warp that owns its stretch. */
static __device__ void walk(const struct row &r, int64_t first, int64_t end, uint32_t least, uint64_t point, int64_t *token)
{
	int lane = threadIdx.x % WARP;
	uint64_t sum = 0;
	for (int64_t j = first; j < end; j += WARP) {
		uint64_t run = j + lane < end ? kept(r, logit_at(r, j + lane), least) : 0;
#pragma unroll
		for (int d = 1; d < WARP; d *= 2) {
			uint64_t left = __shfl_up_sync(0xffffffffu, run, d);
			run += lane >= d ? left : 0;
		}
		unsigned hit = __ballot_sync(0xffffffffu, sum + run > point);
		if (hit) {
			if (!lane)
				*token = j + __ffs((int)hit) - 1;
			return;
		}
		sum += __shfl_sync(0xffffffffu, run, WARP - 1);
	}
}

__global__ void __launch_bounds__(THREADS) draw_k(struct ww_drawn *out, const struct ww_draw *how, const float *logits,
						  const float *lse, int64_t t, int64_t v, int64_t chunk)
{
	__shared__ uint64_t totals[WARPS];
	__shared__ int64_t token;
	struct ww_draw d = how[blockIdx.x];
	const struct ww_sampling &how_to = d.sampling;
	struct row r = { logits, blockIdx.x, t, v, chunk, 0, ww_draw_rate(how_to.temperature > 0 ? how_to.temperature : 1), how_to.min_p };
	float top, shift = lse[blockIdx.x];
	int64_t best = likeliest(r, &top);
	if (best < 0 || !(how_to.temperature > 0)) {
		struct ww_drawn one = { (int32_t)best, best < 0 ? 0 : top - shift, 0 };
		if (!threadIdx.x)
			out[blockIdx.x] = one;
		return;
	}
	r.best = top;
	int topped = how_to.top_k > 0 && how_to.top_k < v;
	uint32_t least = topped ? edge(r, 0, 0, (uint64_t)how_to.top_k) : 0;
	if (how_to.top_p < 1) {
		uint64_t mass = 0;
		each_logit(r, 0, v, threadIdx.x, THREADS,
			   [&](int64_t, float x) { mass += ww_draw_key(x) >= least ? weight_at(r, x) : 0; });
		double need = ceil(how_to.top_p * (double)block_total(mass));
		least = edge(r, 1, least, need > 1 ? (uint64_t)need : 1);
	}
	int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
	int64_t each = (v + WARPS - 1) / WARPS, first = warp * each, end = first + each < v ? first + each : v;
	uint64_t own = 0, total = 0, before = 0;
	each_logit(r, first, end, lane, WARP, [&](int64_t, float x) { own += kept(r, x, least); });
	own = warp_total(own);
	if (!lane)
		totals[warp] = own;
	__syncthreads();
	for (int i = 0; i < WARPS; i++) {
		before += i < warp ? totals[i] : 0;
		total += totals[i];
	}
	uint64_t point = __umul64hi(random_of(d), total);
	if (point >= before && point - before < own)
		walk(r, first, end, least, point - before, &token);
	__syncthreads();
	if (threadIdx.x)
		return;
	float logit = logit_at(r, token);
	struct ww_drawn one = { (int32_t)token, logit - shift, logit - shift };
	if (how_to.temperature != 1 || topped || how_to.top_p < 1 || how_to.min_p > 0)
		one.logp_sampling = (float)(((double)logit - (double)r.best) / how_to.temperature - log((double)total / UNIT));
	out[blockIdx.x] = one;
}

extern "C" int ww_cu_draws(cudaStream_t s, struct ww_drawn *out, const struct ww_draw *how, const float *logits, const float *lse,
			   int64_t t, int64_t v, int64_t chunk)
{
	if (t)
		draw_k<<<(unsigned)t, THREADS, 0, s>>>(out, how, logits, lse, t, v, chunk);
	return launched();
}
