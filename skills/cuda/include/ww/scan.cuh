/* scan.cuh - prefix sums (products, maxima) along the last or a middle axis.
 *
 * scan_rows: a block takes a row, or 128 / TPR of them where a row has a warp or less, in tiles of TPR * VEC * CHUNKS
 * elements.  All loads of a tile are issued at once, coalesced (chunk by chunk, neighbouring threads on neighbouring
 * vectors).  The order of elements is therefore chunk, thread, vector: threads scan their vectors, warps scan the
 * vectors' totals by shuffles, every (chunk, warp) total goes to shared memory, and one more warp-wide scan over those
 * gives each its offset: two barriers a tile, one read and one write of every element.  The carry into the next tile
 * stays in a register.  Tree order: more exact than a serial sum, and the same bits every time.
 *
 * Rejected: decoupled look-back over tiles (pays only for few, very long rows, and its order of additions depends on
 * timing).
 *
 * scan_mid: a thread walks VEC neighbouring columns, 8 elements at a time, all loaded before the first is used.  If
 * columns are few, PARTS threads share each: each scans 8 elements, and they exchange their totals through shared
 * memory.  Such a scan's time is one memory latency for every 8 * PARTS elements.
 */
#ifndef WW_SCAN_CUH
#define WW_SCAN_CUH

#include <ww/vec.cuh>

namespace ww
{

/* Which of N comes i-th; BACK: from the end. */
template <bool BACK, int N> __device__ __forceinline__ constexpr int nth(int i) { return BACK ? N - 1 - i : i; }

/* v of the lane that comes d before this one. */
template <bool BACK> __device__ __forceinline__ float shfl_before(float v, int d)
{
	return BACK ? __shfl_down_sync(0xffffffffu, v, d) : __shfl_up_sync(0xffffffffu, v, d);
}

/* Inclusive scan over the lanes of a warp, or over each WIDTH of them. */
template <int OP, int WIDTH = 32, bool BACK = false> __device__ __forceinline__ float warp_scan(float v)
{
	int lane = nth<BACK, WIDTH>(threadIdx.x % WIDTH);
#pragma unroll
	for (int d = 1; d < WIDTH; d <<= 1) {
		float t = shfl_before<BACK>(v, d);
		if (lane >= d)
			v = op_apply<OP>(t, v);
	}
	return v;
}

/* A store may need what load() returned, too (a sum of what comes before an element): an ahead<N> with a member own[N]
 * keeps it. */
template <class A, int N> __device__ __forceinline__ auto keep(A &a, const float (&v)[N], int)
	-> decltype((void)a.r.own)
{
#pragma unroll
	for (int i = 0; i < N; i++)
		a.r.own[i] = v[i];
}
template <class A, int N> __device__ __forceinline__ void keep(A &, const float (&)[N], long) {}

/* The elements of a vector, the last one first if they are scanned from the end. */
template <bool BACK, int N> __device__ __forceinline__ void scan_turn(float (&v)[N])
{
#pragma unroll
	for (int i = 0; BACK && i < N / 2; i++) {
		const float t = v[i];

		v[i] = v[N - 1 - i];
		v[N - 1 - i] = t;
	}
}

/* A vector of elements, and the operands of its store; the identity beyond the row's end. */
template <int OP, bool TURN, int VEC, class F, class... At>
__device__ __forceinline__ void scan_load(bool there, const F &f, float (&v)[VEC], ahead<F, VEC> &r, At... place)
{
	if (there) {
		f.template load<VEC>(place..., v);
		keep(r, v, 0);
		r.fetch(f, place...);
		scan_turn<TURN>(v);
	} else {
#pragma unroll
		for (int i = 0; i < VEC; i++)
			v[i] = op_identity<OP>();
	}
}

/* Of column c of a row.  ALWAYS: beyond its end the last vector is loaded, too, so that no load of a functor with
 * conditions waits behind a branch for the vector ahead of it. */
template <int OP, bool BACK, bool ALWAYS, int VEC, class F> __device__ __forceinline__ void scan_column(
	bool there, const F &f, float (&v)[VEC], ahead<F, VEC> &r, long long row, long long cols, long long c)
{
	const long long at = ALWAYS && !there ? cols - VEC : c;

	scan_load<OP, BACK>(ALWAYS || there, f, v, r, row, BACK ? cols - VEC - at : at);
#pragma unroll
	for (int i = 0; ALWAYS && i < VEC; i++)
		v[i] = there ? v[i] : op_identity<OP>();
}

/* The elements of a vector, each behind those that come before it. */
template <int OP, bool BACK, int VEC> __device__ __forceinline__ void scan_vector(float (&v)[VEC])
{
#pragma unroll
	for (int i = 1; i < VEC; i++)
		v[nth<BACK, VEC>(i)] = op_apply<OP>(v[nth<BACK, VEC>(i - 1)], v[nth<BACK, VEC>(i)]);
}

/* A scanned vector behind `off`; EXCLUDED: each element behind those before it, itself excluded. */
template <int OP, bool BACK, bool EXCLUDED, int VEC>
__device__ __forceinline__ void scan_behind(float off, float (&w)[VEC])
{
#pragma unroll
	for (int i = VEC - 1; i >= 0; i--)
		w[nth<BACK, VEC>(i)] = EXCLUDED && !i ? off : op_apply<OP>(off, w[nth<BACK, VEC>(EXCLUDED && i ? i - 1 : i)]);
}

/* Scans the elements of a tile, chunk by chunk, behind `carry` (more: there is one), and returns what comes after it.
 * Rows of a warp or less: nothing but shuffles.  A thread that has a row to itself adds one element after the other, so
 * none of them twice.  BACK: from the last element to the first. */
template <int OP, int TPR, int VEC, int CHUNKS, bool BACK = false, bool EXCLUDED = false>
__device__ __forceinline__ float scan_in_warp(float (&v)[CHUNKS][VEC], float carry, bool more)
{
	const int t = nth<BACK, TPR>(threadIdx.x % TPR), group = threadIdx.x & 31 & ~(TPR - 1);

#pragma unroll
	for (int q = 0; q < CHUNKS; q++) {
		float (&w)[VEC] = v[nth<BACK, CHUNKS>(q)], &first = w[nth<BACK, VEC>(0)], &last = w[nth<BACK, VEC>(VEC - 1)];

		if (TPR == 1 && (more || q))
			first = op_apply<OP>(carry, first);
		scan_vector<OP, BACK>(w);
		if (TPR == 1) {
			const float next = last;

#pragma unroll
			for (int i = VEC - 1; EXCLUDED && i >= 0; i--)
				w[nth<BACK, VEC>(i)] = i ? w[nth<BACK, VEC>(i ? i - 1 : 0)] : carry;
			carry = next;
			continue;
		}
		const float all = warp_scan<OP, TPR, BACK>(last), before = shfl_before<BACK>(all, 1);
		const float off = t ? op_apply<OP>(carry, before) : carry;

		carry = op_apply<OP>(carry, __shfl_sync(0xffffffffu, all, group + nth<BACK, TPR>(TPR - 1)));
		scan_behind<OP, BACK, EXCLUDED>(off, w);
	}
	return carry;
}

/* The same for rows of TPR / 32 warps.  box: CHUNKS * TPR / 32 floats of shared memory, which others may still read
 * before the first barrier. */
template <int OP, int TPR, int VEC, int CHUNKS, bool BACK = false, bool EXCLUDED = false>
__device__ __forceinline__ float scan_in_block(float (&v)[CHUNKS][VEC], float carry, float *box)
{
	const int warps = TPR / 32, totals = warps * CHUNKS, per = (totals + 31) / 32;
	const int lane = nth<BACK, 32>(threadIdx.x & 31), warp = nth<BACK, warps>(threadIdx.x % TPR >> 5);
	float mine[CHUNKS];

	__syncthreads();
#pragma unroll
	for (int q = 0; q < CHUNKS; q++) {
		float (&w)[VEC] = v[nth<BACK, CHUNKS>(q)];

		scan_vector<OP, BACK>(w);
		float all = warp_scan<OP, 32, BACK>(w[nth<BACK, VEC>(VEC - 1)]);
		mine[q] = shfl_before<BACK>(all, 1);
		if (lane == 0)
			mine[q] = op_identity<OP>();
		if (lane == 31)
			box[q * warps + warp] = all;
	}
	__syncthreads();
	/* Every warp scans all totals itself, `per` adjacent ones a lane. */
	float t[per], all;
#pragma unroll
	for (int i = 0; i < per; i++) {
		t[i] = lane * per + i < totals ? box[lane * per + i] : op_identity<OP>();
		if (i)
			t[i] = op_apply<OP>(t[i - 1], t[i]);
	}
	all = warp_scan<OP, 32, BACK>(t[per - 1]);
	float before = shfl_before<BACK>(all, 1);
	if (lane == 0)
		before = op_identity<OP>();
#pragma unroll
	for (int q = 0; q < CHUNKS; q++) {
		float (&w)[VEC] = v[nth<BACK, CHUNKS>(q)];
		/* the exclusive prefix of total q*warps + warp is the inclusive one of its predecessor */
		int last = q * warps + warp - 1, owner = nth<BACK, 32>(last < 0 ? 0 : last / per);
		float off = op_identity<OP>();
#pragma unroll
		for (int i = 0; i < per; i++) {
			float x = __shfl_sync(0xffffffffu, op_apply<OP>(before, t[i]), owner);
			if (last >= 0 && last % per == i)
				off = x;
		}
		off = op_apply<OP>(op_apply<OP>(carry, off), mine[q]);
		scan_behind<OP, BACK, EXCLUDED>(off, w);
	}
	return op_apply<OP>(carry, __shfl_sync(0xffffffffu, all, nth<BACK, 32>(31)));
}

/* What a row's end leaves of its last vectors: what a scan from the end passes over. */
template <int OP, int CHUNKS, int VEC> __device__ __forceinline__ void scan_clear(float (&v)[CHUNKS][VEC])
{
#pragma unroll
	for (int j = 0; j < CHUNKS; j++)
#pragma unroll
		for (int i = 0; i < VEC; i++)
			v[j][i] = op_identity<OP>();
}

/* A row that T threads hold, one row a block where they are more than a warp: thread t has vectors t, t + T, ...; what
 * is beyond the row's end is the operation's identity, or anything if the scan is not from the end (BACK). */
template <int OP, int T, bool BACK = false, int CHUNKS, int VEC>
__device__ __forceinline__ void scan_held(float (&v)[CHUNKS][VEC], void *box)
{
	if (T > 32)
		scan_in_block<OP, (T > 32 ? T : 64), VEC, CHUNKS, BACK>(v, op_identity<OP>(), (float *)box);
	else
		scan_in_warp<OP, (T > 32 ? 32 : T), VEC, CHUNKS, BACK>(v, op_identity<OP>(), false);
}

template <bool TURN, int VEC, class F, class... At>
__device__ __forceinline__ void scan_store(const F &f, float (&v)[VEC], ahead<F, VEC> &r, At... place)
{
	scan_turn<TURN>(v);
	r.store(f, v, place...);
}

/* Rows of a warp or less, 128 / TPR a block. */
template <int OP, int TPR, int VEC, int CHUNKS, bool BACK, bool ALWAYS, bool EXCLUDED, class F>
__device__ __forceinline__ void scan_short_rows(long long rows, long long cols, const F &f)
{
	const long long row = (long long)blockIdx.x * (128 / TPR) + threadIdx.x / TPR;
	const long long from = ALWAYS && row >= rows ? rows - 1 : row;
	const int t = threadIdx.x % TPR;
	float carry = op_identity<OP>();

	for (long long base = 0; base < cols; base += (long long)TPR * VEC * CHUNKS) {
		float v[CHUNKS][VEC];
		ahead<F, VEC> r[CHUNKS];

#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			const long long c = base + (j * TPR + t) * VEC;
			scan_column<OP, BACK, ALWAYS>(row < rows && c < cols, f, v[j], r[j], from, cols, c);
		}
		carry = scan_in_warp<OP, TPR, VEC, CHUNKS, false, EXCLUDED>(v, carry, base > 0);
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			const long long c = base + (j * TPR + t) * VEC;
			if (row < rows && c < cols)
				scan_store<BACK>(f, v[j], r[j], row, BACK ? cols - VEC - c : c);
		}
	}
}

/* Rows of a block each. */
template <int OP, int TPR, int VEC, int CHUNKS, bool BACK, bool ALWAYS, bool EXCLUDED, class F>
__device__ __forceinline__ void scan_long_rows(long long cols, const F &f)
{
	__shared__ float box[TPR / 32 * CHUNKS];
	float carry = op_identity<OP>();
	long long row = blockIdx.x;

	for (long long base = 0; base < cols; base += (long long)TPR * VEC * CHUNKS) {
		float v[CHUNKS][VEC];
		ahead<F, VEC> r[CHUNKS];

#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			const long long c = base + ((long long)j * TPR + threadIdx.x) * VEC;
			scan_column<OP, BACK, ALWAYS>(c < cols, f, v[j], r[j], row, cols, c);
		}
		carry = scan_in_block<OP, TPR, VEC, CHUNKS, false, EXCLUDED>(v, carry, box);
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			long long c = base + ((long long)j * TPR + threadIdx.x) * VEC;
			if (c < cols)
				scan_store<BACK>(f, v[j], r[j], row, BACK ? cols - VEC - c : c);
		}
	}
}

/* BACK: from the end of each row to its begin, whose length VEC divides.  ALWAYS: see scan_column().  EXCLUDED: the
 * results begin with the identity, and the last element counts for none. */
template <int OP, int TPR, int VEC, int CHUNKS, bool BACK = false, bool ALWAYS = false, bool EXCLUDED = false, class F>
__device__ __forceinline__ void scan_rows(long long rows, long long cols, const F &f)
{
	if (TPR > 32)
		scan_long_rows<OP, (TPR > 32 ? TPR : 64), VEC, CHUNKS, BACK, ALWAYS, EXCLUDED>(cols, f);
	else
		scan_short_rows<OP, (TPR > 32 ? 32 : TPR), VEC, CHUNKS, BACK, ALWAYS, EXCLUDED>(rows, cols, f);
}

template <int OP, int VEC, int LANES, int PARTS, bool BACK = false, class F>
__device__ __forceinline__ void scan_mid(long long outer, long long len, long long inner, const F &f)
{
	const int depth = 8;
	__shared__ float box[2][PARTS][LANES][VEC];
	const int lane = threadIdx.x % LANES, part = threadIdx.x / LANES;
	const long long columns = inner / VEC, j = (long long)blockIdx.x * LANES + lane;
	const long long o = (j | columns) >> 31 ? j / columns : (unsigned)j / (unsigned)columns,
					i = (j - o * columns) * VEC;
	const bool live = j < outer * columns;
	float carry[VEC];
	int turn = 0;

#pragma unroll
	for (int k = 0; k < VEC; k++)
		carry[k] = op_identity<OP>();
	for (long long base = 0; base < len; base += PARTS * depth, turn ^= 1) {
		const long long first = base + part * depth;
		const int mine = !live || first >= len ? 0 : len - first < depth ? (int)(len - first) : depth;
		float v[depth][VEC], off[VEC];
		ahead<F, VEC> r[depth];

#pragma unroll
		for (int d = 0; d < depth; d++)
			scan_load<OP, false>(d < mine, f, v[d], r[d], o, BACK ? len - 1 - first - d : first + d, i);
#pragma unroll
		for (int d = 1; d < depth; d++)
#pragma unroll
			for (int k = 0; k < VEC; k++)
				v[d][k] = op_apply<OP>(v[d - 1][k], v[d][k]);
		if (PARTS > 1) { /* two boxes in turn: a part is read before the barrier after which it is overwritten */
#pragma unroll
			for (int k = 0; k < VEC; k++)
				box[turn][part][lane][k] = v[depth - 1][k];
			__syncthreads();
		}
#pragma unroll
		for (int k = 0; k < VEC; k++) {
#pragma unroll
			for (int q = 0; q < PARTS; q++) {
				if (q == part)
					off[k] = carry[k];
				carry[k] = op_apply<OP>(carry[k], PARTS > 1 ? box[turn][q][lane][k] : v[depth - 1][k]);
			}
		}
#pragma unroll
		for (int d = 0; d < depth; d++)
#pragma unroll
			for (int k = 0; k < VEC; k++)
				v[d][k] = op_apply<OP>(off[k], v[d][k]);
#pragma unroll
		for (int d = 0; d < depth; d++)
			if (d < mine)
				r[d].store(f, v[d], o, BACK ? len - 1 - first - d : first + d, i);
	}
}

} // namespace ww

#endif
