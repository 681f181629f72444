/* rowwise.cuh - reductions over the last axis, with any prologue and epilogue, the row held in registers.
 *
 * Problem: softmax, norms and the like read a row, reduce it once or twice, and write it.  The bytes that must move
 * are one read and one write; so a row is loaded once, all its loads in flight together, and kept in registers through
 * both reductions until it is stored.
 *
 * Layout: a row belongs to TPR threads of each of CLUSTER blocks.  Vector number j of the row (VEC elements) belongs to
 * chunk j / (TPR * CLUSTER); within a chunk neighbouring threads hold neighbouring vectors, so every access is
 * coalesced. TPR = 32 packs blockDim / 32 rows into a block and needs no barrier at all; otherwise a block has TPR
 * threads and combines partial results in shared memory: one barrier a reduction, since each exchange has its own box.
 * With CLUSTER > 1 every block reads the others' boxes through distributed shared memory.
 *
 * Statistics come in two phases: sum, sumsq, max, min first; then what needs them: the centred sum of squares
 * (two-pass: as exact as Welford and cheaper, since the row is in registers) and the sum of exp(v - max).
 *
 * CHUNKS = 0 is the loop for rows of any length: one online pass (group-wise Welford, rescaled sum of exponentials),
 * and a second read for the store.  Its second read mostly hits L2 up to rows of some hundred kilobytes.
 *
 * SKEW serves rows whose length VEC does not divide (a vocabulary of 50,257).  In a contiguous tensor row r then starts
 * at an element r * cols that is not a multiple of VEC.  Vectors are laid over the tensor, not over the row: the first
 * vector begins r * cols % VEC columns before the row, so that every whole vector is aligned.  The first and the last
 * vector, which stick out of the row, are handled element by element (N = 1), and elements outside take no part in the
 * statistics.  Functors that read anything but (rows, cols) tensors at c must then use load_any().  On an H200 4-byte
 * accesses reach about half the bandwidth of 16-byte ones.
 *
 * Rejected: the row in shared memory through bulk copies (one more trip through shared memory, and clusters carry rows
 * further than one block's shared memory does).
 */
#ifndef WW_ROWWISE_CUH
#define WW_ROWWISE_CUH

#include <ww/vec.cuh>

namespace ww
{

/* exp(v - max) is 2^(v * log2(e) - max * log2(e)), one fused multiply-add and one instruction: the product is exact,
 * and the rounding of max * log2(e) is one common factor of a row.  A maximum of inf or -inf gives NaN, as in PyTorch.
 */
#define WW_LOG2E 1.44269504088896340736f

enum row_stat {
	SUM = 1,
	SUMSQ = 2,
	VAR = 4,
	MAX = 8,
	MIN = 16,
	SUMEXP = 32,
	KEEP_EXP = 64,  /* store() gets exp(v - max) */
	NO_STORE = 128, /* store() is never called */
	SKEW = 256      /* rows start at any element; see row_span */
};

struct row_stats {
	float sum, mean, sumsq, m2, max, min, sumexp;
	int cols;
};

/* Reduce K values over a row's threads; OPS gives each one's operation, two bits a value.  `box` (K * 32 floats) is
 * used by this exchange only. */
template <int K, int OPS, int TPR, int CLUSTER> __device__ __forceinline__ void row_exchange(float (&v)[K], float *box)
{
	int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	const int warps = TPR / 32;

#pragma unroll
	for (int k = 0; k < K; k++) {
		const int o = OPS >> 2 * k & 3;
		v[k] = o == OP_SUM ? warp_reduce<OP_SUM>(v[k])
			: o == OP_MAX  ? warp_reduce<OP_MAX>(v[k])
						   : warp_reduce<OP_MIN>(v[k]);
	}
	if (warps == 1 && CLUSTER == 1)
		return;
	if (lane == 0) {
#pragma unroll
		for (int k = 0; k < K; k++)
			box[k * 32 + warp] = v[k];
	}
	if (CLUSTER == 1)
		__syncthreads();
	else
		cluster_sync();
#pragma unroll
	for (int k = 0; k < K; k++) {
		const int o = OPS >> 2 * k & 3;
		float r = o == OP_SUM ? 0.f : o == OP_MAX ? -inf_() : inf_();
		if (CLUSTER == 1) {
			if (lane < warps)
				r = box[k * 32 + lane];
		} else {
			/* warps * CLUSTER partial results, read by 32 lanes in a fixed order */
			for (int j = lane; j < warps * CLUSTER; j += 32) {
				float t = cluster_load(&box[k * 32 + j % warps], j / warps);
				r = o == OP_SUM ? r + t : o == OP_MAX ? op_apply<OP_MAX>(r, t) : op_apply<OP_MIN>(r, t);
			}
		}
		v[k] = o == OP_SUM ? warp_reduce<OP_SUM>(r) : o == OP_MAX ? warp_reduce<OP_MAX>(r) : warp_reduce<OP_MIN>(r);
	}
}

/* The first phase's values travel as (sum, sumsq, max, min); unused ones are dropped at compile time. */
template <int STATS, int TPR, int CLUSTER> __device__ __forceinline__ void row_phase1(row_stats &s, float *box)
{
	if ((STATS & (SUM | VAR)) && (STATS & SUMSQ)) {
		float v[2] = { s.sum, s.sumsq };
		row_exchange<2, 0, TPR, CLUSTER>(v, box);
		s.sum = v[0], s.sumsq = v[1];
	} else if (STATS & (SUM | VAR)) {
		float v[1] = { s.sum };
		row_exchange<1, OP_SUM, TPR, CLUSTER>(v, box);
		s.sum = v[0];
	} else if (STATS & SUMSQ) {
		float v[1] = { s.sumsq };
		row_exchange<1, OP_SUM, TPR, CLUSTER>(v, box);
		s.sumsq = v[0];
	}
	if (STATS & (MAX | SUMEXP)) {
		float v[1] = { s.max };
		row_exchange<1, OP_MAX, TPR, CLUSTER>(v, box + 64);
		s.max = v[0];
	}
	if (STATS & MIN) {
		float v[1] = { s.min };
		row_exchange<1, OP_MIN, TPR, CLUSTER>(v, box + 96);
		s.min = v[0];
	}
}

template <int STATS, int TPR, int CLUSTER> __device__ __forceinline__ void row_phase2(row_stats &s, float *box)
{
	if ((STATS & VAR) && (STATS & SUMEXP)) {
		float v[2] = { s.m2, s.sumexp };
		row_exchange<2, 0, TPR, CLUSTER>(v, box + 128);
		s.m2 = v[0], s.sumexp = v[1];
	} else if (STATS & VAR) {
		float v[1] = { s.m2 };
		row_exchange<1, OP_SUM, TPR, CLUSTER>(v, box + 128);
		s.m2 = v[0];
	} else if (STATS & SUMEXP) {
		float v[1] = { s.sumexp };
		row_exchange<1, OP_SUM, TPR, CLUSTER>(v, box + 128);
		s.sumexp = v[0];
	}
}

__device__ __forceinline__ row_stats row_zero(int cols)
{
	row_stats s;
	s.sum = s.mean = s.sumsq = s.m2 = s.sumexp = 0.f;
	s.max = -inf_();
	s.min = inf_();
	s.cols = cols;
	return s;
}

/* Columns c .. c+N-1 of a row of `cols`: which of them exist. */
template <int STATS, int N> struct row_span {
	int c, cols;
	__device__ __forceinline__ bool any() const { return c < cols; } /* c > -N always */
	__device__ __forceinline__ bool whole() const { return (STATS & SKEW) ? c >= 0 && c + N <= cols : true; }
	__device__ __forceinline__ bool in(int i) const { return (unsigned)(c + i) < (unsigned)cols; }
	/* Elements outside read as -inf, which maxima and exponentials need no test for; sums do. */
	__device__ __forceinline__ bool has(int i) const
	{
		return (STATS & SKEW) && (STATS & (SUM | SUMSQ | VAR | MIN)) ? in(i) : true;
	}

	template <class F> __device__ __forceinline__ void load(const F &f, long long row, float (&v)[N]) const
	{
		if (whole()) {
			f.template load<N>(row, c, v);
			return;
		}
#pragma unroll
		for (int i = 0; i < N; i++) {
			float one[1] = { -inf_() };
			if (in(i))
				f.template load<1>(row, c + i, one);
			v[i] = one[0];
		}
	}

	template <class F>
	__device__ __forceinline__ void store(const F &f, long long row, const float (&v)[N], const row_stats &s) const
	{
		if (whole()) {
			f.template store<N>(row, c, v, s);
			return;
		}
#pragma unroll
		for (int i = 0; i < N; i++) {
			float one[1] = { v[i] };
			if (in(i))
				f.template store<1>(row, c + i, one, s);
		}
	}
};

/* How far a row's first vector starts before it. */
template <int STATS, int VEC> __device__ __forceinline__ int row_skew(long long row, int cols)
{
	return (STATS & SKEW) ? (int)(row * cols & (VEC - 1)) : 0;
}

template <int STATS, int N>
__device__ __forceinline__ void row_first(row_stats &s, const float (&v)[N], row_span<STATS, N> at)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
		if (!at.has(i))
			continue;
		if (STATS & (SUM | VAR))
			s.sum += v[i];
		if (STATS & SUMSQ)
			s.sumsq = fmaf(v[i], v[i], s.sumsq);
		/* If only exponentials follow, they propagate a NaN. */
		if (STATS & MAX)
			s.max = op_apply<OP_MAX>(s.max, v[i]);
		else if (STATS & SUMEXP)
			s.max = fmaxf(s.max, v[i]);
		if (STATS & MIN)
			s.min = op_apply<OP_MIN>(s.min, v[i]);
	}
}

template <int STATS, int TPR, int VEC, int CHUNKS, int CLUSTER, class F> __device__ __forceinline__ void rowwise_held(
	long long row, bool active, int lane, int rank, int cols, const F &f, float *box)
{
	typedef row_span<STATS, VEC> span;
	float v[CHUNKS][VEC];
	row_stats s = row_zero(cols);
	int first = (rank * TPR + lane) * VEC - row_skew<STATS, VEC>(row, cols);
	const int step = CLUSTER * TPR * VEC;

#pragma unroll
	for (int j = 0; j < CHUNKS; j++) {
		span at = { first + j * step, cols };
		if (active && at.any())
			at.load(f, row, v[j]);
	}
#pragma unroll
	for (int j = 0; j < CHUNKS; j++) {
		span at = { first + j * step, cols };
		if (at.any())
			row_first<STATS>(s, v[j], at);
	}
	row_phase1<STATS, TPR, CLUSTER>(s, box);
	s.mean = s.sum / (float)cols;
	if (STATS & (VAR | SUMEXP)) {
		float shift = -s.max * WW_LOG2E;
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			span at = { first + j * step, cols };
			if (!at.any())
				continue;
#pragma unroll
			for (int i = 0; i < VEC; i++) {
				float d = v[j][i] - s.mean;
				if (!at.has(i))
					continue;
				if (STATS & VAR)
					s.m2 = fmaf(d, d, s.m2);
				if (STATS & SUMEXP) {
					float e = exp2_(fmaf(v[j][i], WW_LOG2E, shift));
					s.sumexp += e;
					if (STATS & KEEP_EXP)
						v[j][i] = e;
				}
			}
		}
		row_phase2<STATS, TPR, CLUSTER>(s, box);
	}
	if (!(STATS & NO_STORE)) {
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			span at = { first + j * step, cols };
			if (active && at.any())
				at.store(f, row, v[j], s);
		}
	}
	if (active && lane == 0 && rank == 0)
		f.finish(row, s);
}

/* The looping form: number of vector groups in flight. */
template <int STATS, int TPR, int VEC, int CLUSTER, class F> __device__ __forceinline__ void rowwise_loop(
	long long row, bool active, int lane, int rank, int cols, const F &f, float *box)
{
	typedef row_span<STATS, VEC> span;
	const int group = VEC >= 4 ? 4 : 8, stride = TPR * CLUSTER * VEC;
	int first = (rank * TPR + lane) * VEC - row_skew<STATS, VEC>(row, cols);
	row_stats s = row_zero(cols);
	float mean = 0.f, count = 0.f;

	for (int base = first; active && base < cols; base += group * stride) {
		float v[group][VEC], top = -inf_(), t = 0.f, q = 0.f, n = 0.f;
#pragma unroll
		for (int g = 0; g < group; g++) {
			span at = { base + g * stride, cols };
			if (at.any())
				at.load(f, row, v[g]);
		}
#pragma unroll
		for (int g = 0; g < group; g++) {
			span at = { base + g * stride, cols };
			if (!at.any())
				continue;
			row_first<(STATS & SUMEXP) ? STATS & ~(SUMEXP | MAX) : STATS>(
				s, v[g], row_span<(STATS & SUMEXP) ? STATS & ~(SUMEXP | MAX) : STATS, VEC>{ at.c, cols });
#pragma unroll
			for (int i = 0; i < VEC; i++) {
				if (!at.has(i))
					continue;
				n += 1.f;
				t += v[g][i];
				top = fmaxf(top, v[g][i]);
			}
		}
		if ((STATS & VAR) && n > 0.f) {
			float m = t / n, d = m - mean;
#pragma unroll
			for (int g = 0; g < group; g++) {
				span at = { base + g * stride, cols };
#pragma unroll
				for (int i = 0; i < VEC; i++)
					if (at.any() && at.has(i))
						q = fmaf(v[g][i] - m, v[g][i] - m, q);
			}
			s.m2 += q + d * d * (count * n / (count + n));
			mean += d * (n / (count + n));
			count += n;
		}
		if (STATS & SUMEXP) {
			/* while all values are -inf, subtract 0: exp(-inf) is 0, but -inf - -inf would be NaN */
			float m = fmaxf(s.max, top), shift = m == -inf_() ? 0.f : -m * WW_LOG2E;
			s.sumexp *= exp2_(fmaf(s.max, WW_LOG2E, shift));
			s.max = m;
#pragma unroll
			for (int g = 0; g < group; g++) {
				span at = { base + g * stride, cols };
#pragma unroll
				for (int i = 0; i < VEC; i++)
					if (at.any() && at.has(i))
						s.sumexp += exp2_(fmaf(v[g][i], WW_LOG2E, shift));
			}
		}
	}
	float own = s.max;
	row_phase1<STATS, TPR, CLUSTER>(s, box);
	s.mean = s.sum / (float)cols;
	if (STATS & VAR)
		s.m2 += count * (mean - s.mean) * (mean - s.mean);
	if (STATS & SUMEXP)
		s.sumexp = own == -inf_() ? 0.f : s.sumexp * exp2_((own - s.max) * WW_LOG2E);
	row_phase2<STATS, TPR, CLUSTER>(s, box);
	if (!(STATS & NO_STORE)) {
		for (int c = first; active && c < cols; c += stride) {
			span at = { c, cols };
			float v[VEC];
			if (!at.any())
				continue;
			at.load(f, row, v);
			if (STATS & KEEP_EXP) {
#pragma unroll
				for (int i = 0; i < VEC; i++)
					v[i] = exp2_(fmaf(v[i], WW_LOG2E, -s.max * WW_LOG2E));
			}
			at.store(f, row, v, s);
		}
	}
	if (active && lane == 0 && rank == 0)
		f.finish(row, s);
}

template <int STATS, int TPR, int VEC, int CHUNKS, int CLUSTER, class F>
__device__ __forceinline__ void rowwise(long long rows, int cols, const F &f)
{
	__shared__ float box[6 * 32];
	const int per_block = TPR == 32 && CLUSTER == 1 ? 0 : 1; /* 0: a warp a row */
	long long row = per_block ? blockIdx.x / CLUSTER : (long long)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
	int lane = per_block ? threadIdx.x : threadIdx.x & 31;
	int rank = blockIdx.x % CLUSTER;
	bool active = row < rows;

	if (CHUNKS > 0)
		rowwise_held<STATS, TPR, VEC, (CHUNKS ? CHUNKS : 1), CLUSTER>(row, active, lane, rank, cols, f, box);
	else
		rowwise_loop<STATS, TPR, VEC, CLUSTER>(row, active, lane, rank, cols, f, box);
	if (CLUSTER > 1)
		cluster_sync(); /* no block exits while others still read its boxes */
}

} // namespace ww

#endif
