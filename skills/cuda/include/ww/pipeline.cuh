/* pipeline.cuh - the main loop of gemm.cuh and conv.cuh: TMA loads, wgmma, promotion, persistent tiles.
 *
 * A block has three warpgroups.  The first is the producer: one thread keeps STAGES buffers of shared memory filled.
 * The other two are consumers: each multiplies its 64 rows of A with all BN rows of B.  A stage holds 128 bytes of K of
 * 128 rows of A and BN rows of B.  Barriers: full[s] (bytes have arrived), empty[s] (all consumer warps, in a cluster
 * of both blocks, have read).  The producer runs ahead into the next tile while the consumers store the last one.
 *
 * TERMS = 1: 64 elements of fp16 or bf16 of K a stage.  TERMS = 3: 32 elements of K as fp16 pairs, hi in the first 64
 * bytes, lo in the last 64; three products hi*lo + lo*hi + hi*hi.  lo is not rescaled: the operands' power-of-two
 * scales bring each row's largest element to 2^14..2^15, so lo of anything within 2^16 of it keeps all its bits, and
 * one set of accumulators serves the three products.
 *
 * PROMOTE: Hopper's tensor cores truncate when they add to an accumulator; the bias grows with the number of additions.
 * So every PROMOTE stages the accumulators are added to sums in registers (with correct rounding) and reset.  The two
 * consumer warpgroups get out of step, so that one promotes while the other multiplies.
 *
 * PAIRS = 2: a second pair of consumer warpgroups, and the pairs take turns: one multiplies while the other stores its
 * tile.  Of a short K storing takes longer than the products (128 x 128 x 128 with a bias in 16 bits: 2 us and 1).  All
 * four share the registers, so tiles are 128 columns wide at most, 64 with PROMOTE.
 *
 * ROWS = 64: A has so many rows, of which both warpgroups of a pair multiply all, each with half of the rows of B.
 *
 * CLUSTER = 2: two blocks with adjacent A tiles share B: each loads half of it and multicasts it to both, which
 * takes the load on L2 from (128 + BN) to (128 + BN/2) rows a block and stage.
 *
 * A job J describes the work:
 *     enum { run };                       tiles that one block takes in a row; divides tiles()
 *     int tiles() const;                  of one cluster
 *     int steps(int tile) const;          stages of K
 *     void load(int tile, int step, unsigned a, unsigned b, unsigned bar) const;    issue the copies of one stage
 *     void done(int tile, int wg, float (&acc)[BN / 2]) const;                      wg 0, 1; ROWS 64: BN / 4
 */
#ifndef WW_PIPELINE_CUH
#define WW_PIPELINE_CUH

#include <ww/hopper.cuh>

namespace ww
{

template <int BN, int STAGES, int ROWS = 128> struct stages {
	enum : int { a_bytes = ROWS * 128 };
	enum : int { b_bytes = BN * 128 };
	enum : int { bytes = a_bytes + b_bytes };
	enum : int { all_bytes = bytes * STAGES };
};

/* Threads of a block, and registers of each once the warpgroups have shared them out (a block of 640 starts with 96).
 */
template <int PAIRS> struct pipeline_shape {
	enum : int { threads = 128 + 256 * PAIRS };
	enum : int { producer = PAIRS == 1 ? 40 : 32 };
	enum : int { consumer = PAIRS == 1 ? 232 : 112 };
};

template <class J, int CLUSTER> __device__ __forceinline__ int pipeline_next(int tile)
{
	tile++;
	return tile % J::run ? tile : tile + (gridDim.x / CLUSTER - 1) * J::run;
}

template <class J, int STAGES, int BN, int CLUSTER, int ROWS = 128>
__device__ __forceinline__ void pipeline_produce(const J &job, unsigned base, unsigned full, unsigned empty)
{
	typedef stages<BN, STAGES, ROWS> S;
	int tiles = job.tiles(), stage = 0;
	unsigned phase = 1;

	for (int tile = blockIdx.x / CLUSTER * J::run; tile < tiles; tile = pipeline_next<J, CLUSTER>(tile)) {
		int steps = job.steps(tile);
		for (int k = 0; k < steps; k++) {
			bar_wait(empty + 8 * stage, phase);
			bar_expect(full + 8 * stage, S::bytes);
			job.load(tile, k, base + stage * S::bytes, base + stage * S::bytes + S::a_bytes, full + 8 * stage);
			if (++stage == STAGES)
				stage = 0, phase ^= 1;
		}
	}
}

template <int CLUSTER> __device__ __forceinline__ void pipeline_release(unsigned empty, int stage)
{
	if ((threadIdx.x & 31) == 0) {
#pragma unroll
		for (int r = 0; r < CLUSTER; r++) {
			if (CLUSTER == 1)
				bar_arrive(empty + 8 * stage);
			else
				bar_arrive_remote(empty + 8 * stage, r);
		}
	}
}

/* All products of a pair's tile are under way: the other pair's turn. */
template <int PAIRS> __device__ __forceinline__ void pipeline_hand_over(unsigned turns, int pair)
{
	if (PAIRS > 1 && (threadIdx.x & 31) == 0)
		bar_arrive(turns + 8 * (1 - pair));
}

/* One stage's products.  `keep` 0 resets the accumulators. */
template <int BN, int TERMS, class T>
__device__ __forceinline__ void pipeline_mma(float (&acc)[BN / 2], unsigned a, unsigned b, int keep)
{
	u64 da = desc(a), db = desc(b);

	if (TERMS == 1) {
#pragma unroll
		for (int j = 0; j < 4; j++)
			wgmma<BN>::ss(acc, da + 2 * j, db + 2 * j, j ? 1 : keep, (T *)0);
	} else {
#pragma unroll
		for (int j = 0; j < 2; j++) {
			wgmma<BN>::ss(acc, da + 2 * j, db + 4 + 2 * j, j ? 1 : keep, (T *)0);
			wgmma<BN>::ss(acc, da + 4 + 2 * j, db + 2 * j, 1, (T *)0);
			wgmma<BN>::ss(acc, da + 2 * j, db + 2 * j, 1, (T *)0);
		}
	}
}

/* turns: of each pair a barrier where it waits for the other one's products. */
template <class J, class T, int STAGES, int BN, int TERMS, int PROMOTE, int CLUSTER, int PAIRS, int ROWS>
__device__ __forceinline__ void pipeline_consume(
	const J &job, int wg, unsigned base, unsigned full, unsigned empty, unsigned turns)
{
	typedef stages<BN, STAGES, ROWS> S;
	enum : int { N = BN * ROWS / 128 }; /* rows of B for each warpgroup */
	const int pair = wg / 2, from_a = ROWS == 128 ? wg % 2 * 64 * 128 : 0, from_b = ROWS == 128 ? 0 : wg % 2 * N * 128;
	int tiles = job.tiles(), stage = 0, tile = blockIdx.x / CLUSTER * J::run;
	unsigned phase = 0, turn = pair == 0; /* the first pair's first turn has come */
	float acc[N / 2];
	auto pass = [&] { /* the other pair's tile */
		if (PAIRS > 1) {
			stage += tile < tiles ? job.steps(tile) : 0;
			phase ^= stage / STAGES & 1;
			stage %= STAGES;
			tile = pipeline_next<J, CLUSTER>(tile);
		}
	};

	if (pair)
		pass();
	while (tile < tiles) {
		int steps = job.steps(tile);

		if (PAIRS > 1) {
			/* `full` of the stages that were left out has been waited for: a wait for the second phase ahead returns */
			bar_wait(turns + 8 * pair, turn);
			turn ^= 1;
		}
		float sum[PROMOTE ? N / 2 : 1];

#pragma unroll
		for (int i = 0; i < (PROMOTE ? N / 2 : 1); i++)
			sum[i] = 0.f;
		if (steps == 0) {
#pragma unroll
			for (int i = 0; i < N / 2; i++)
				acc[i] = 0.f;
		}
		for (int k = 0; k < steps;) {
			int end = PROMOTE ? min(k + PROMOTE, steps) : steps, last = -1, keep = 0;
			for (; k < end; k++) {
				unsigned a = base + stage * S::bytes;
				bar_wait(full + 8 * stage, phase);
				wgmma_pin(acc);
				wgmma_begin();
				pipeline_mma<N, TERMS, T>(acc, a + from_a, a + S::a_bytes + from_b, keep);
				wgmma_commit();
				wgmma_wait<1>();
				/* the stage before this one has been read */
				if (keep)
					pipeline_release<CLUSTER>(empty, last);
				keep = 1;
				last = stage;
				if (++stage == STAGES)
					stage = 0, phase ^= 1;
			}
			if (k == steps)
				pipeline_hand_over<PAIRS>(turns, pair);
			wgmma_wait<0>();
			wgmma_pin(acc);
			pipeline_release<CLUSTER>(empty, last);
			if (PROMOTE) {
#pragma unroll
				for (int i = 0; i < N / 2; i++)
					sum[i < (PROMOTE ? N / 2 : 1) ? i : 0] += acc[i];
			}
		}
		if (PROMOTE) {
#pragma unroll
			for (int i = 0; i < N / 2; i++)
				acc[i] = sum[i < (PROMOTE ? N / 2 : 1) ? i : 0];
		}
		if (steps == 0)
			pipeline_hand_over<PAIRS>(turns, pair);
		job.done(tile, wg % 2, acc);
		tile = pipeline_next<J, CLUSTER>(tile);
		pass();
	}
}

/* The start of a job's own shared memory, after the stages and their barriers. */
template <int BN, int STAGES, int ROWS = 128> __device__ __forceinline__ float *pipeline_extra()
{
	extern __shared__ unsigned char ww_dynamic_shared[];
	unsigned at = saddr(ww_dynamic_shared), base = (at + 1023) & ~1023u;
	return (float *)(ww_dynamic_shared + (base - at) + stages<BN, STAGES, ROWS>::all_bytes + 16 * STAGES + 16);
}

/* Dynamic shared memory: stages<BN, STAGES>::all_bytes, 16 * STAGES + 16 for the barriers, 1024 to align, and the job's
 * own. */
template <class T, int STAGES, int BN, int TERMS, int PROMOTE, int CLUSTER, int PAIRS = 1, int ROWS = 128, class J>
__device__ __forceinline__ void pipeline(const J &job)
{
	extern __shared__ unsigned char ww_dynamic_shared[];
	unsigned base = (saddr(ww_dynamic_shared) + 1023) & ~1023u;
	unsigned full = base + stages<BN, STAGES, ROWS>::all_bytes, empty = full + 8 * STAGES, turns = empty + 8 * STAGES;
	typedef pipeline_shape<PAIRS> R;
	int wg = threadIdx.x / 128;

	if (threadIdx.x == 0) {
		for (int s = 0; s < STAGES; s++) {
			bar_init(full + 8 * s, 1);
			bar_init(empty + 8 * s, 8 * CLUSTER);
		}
		for (int i = 0; i < 2; i++)
			bar_init(turns + 8 * i, 8);
		bar_init_fence();
	}
	__syncthreads();
	if (CLUSTER > 1)
		cluster_barrier();
	if (wg == 0) {
		regs_shrink<R::producer>();
		if (threadIdx.x == 0)
			pipeline_produce<J, STAGES, BN, CLUSTER, ROWS>(job, base, full, empty);
	} else {
		regs_grow<R::consumer>();
		pipeline_consume<J, T, STAGES, BN, TERMS, PROMOTE, CLUSTER, PAIRS, ROWS>(job, wg - 1, base, full, empty, turns);
	}
	__syncwarp();
	if (CLUSTER > 1)
		cluster_barrier(); /* a block's shared memory outlives the copies and arrivals of its partner */
}

} // namespace ww

#endif
