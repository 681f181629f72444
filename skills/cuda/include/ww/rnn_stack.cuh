/* rnn_stack.cuh - recurrent layers beside each other in one launch: stacked ones as a wavefront, or both directions of
 * one.
 *
 * A layer's step needs its own step before and the same step of the layer below, no more.  So each layer, a chain, has
 * blocks of its own, and all chains run at once: the time is that of steps + chains - 1 steps, not of steps * chains.
 *
 * A block owns `units` of a chain.  Half of its warps multiply the state of the step before, and compute the gates; the
 * others, ahead of them by up to two steps, multiply the output of the layer below.  Of a chain with no layer below,
 * one matrix product before the launch has computed the input's products of all steps, with their biases: gx (steps,
 * batch, gates * hidden) at strides; there the others load these.  LANES lanes of a warp share a unit's sums and hold
 * its weights in registers for all steps, HELD of each gate (0: they do not fit; read from L2 in each step).
 *
 * Blocks pass on states through `out`, each step and chain in a slot of its own.  A memset ahead of the launch has
 * filled it with words of ones, which no state is (publish()); who reads such a word reads it again.  So a state needs
 * no flag, no fence and no barrier: words are atomic, and nothing else is passed on.  The launch is cooperative, since
 * blocks wait for each other.
 *
 * Of few units a block has a whole chain, of EACH rows of the batch (ALONE).  Its states then pass through its own
 * shared memory, and lanes that have a unit's sums compute its gates: two meetings a step, and no trip to L2 (GRU, two
 * layers of 64 units, batch 1: 1.6 us a step with it on an H200).
 *
 * out, at strides: of each chain a slot a step, (batch, hidden), and for LSTM one more, which holds the cells' state
 * after the last step.  A chain in reverse runs from the last step to the first; each step keeps its slot.
 *
 * Rejected: a grid barrier a step, as <ww/rnn.cuh> has (3.4 us a step on an H200, the least of it products); flags
 * beside the states: a fence and one more trip to L2 in each step; the same warps for both products: one waits for the
 * other, and 12 units of a block are a warp and a half for each scheduler.
 */
#ifndef WW_RNN_STACK_CUH
#define WW_RNN_STACK_CUH

#include <ww/barrier.cuh>
#include <ww/ptx.cuh>
#include <ww/rnn.cuh>

namespace ww
{

template <int CHAINS> struct rnn_stack_task {
	int steps, batch, hidden, units, rows; /* rows of the batch staged at a time, a multiple of EACH */
	int out_row;                           /* strides of out: of a row, of a chain */
	long long out_chain;
	long long gx_step[CHAINS], gx_row[CHAINS];
	/* gx: NULL where the chain before is the layer below; then w_ih (gates * hidden, hidden).  Biases: NULL: none. */
	const float *gx[CHAINS], *w_ih[CHAINS], *b_ih[CHAINS], *w_hh[CHAINS], *b_hh[CHAINS];
	const float *h0, *c0; /* (chains, batch, hidden); c0: LSTM only */
	float *out;
	unsigned reversed; /* a bit a chain */
};

/* One chain, as a block sees it. */
struct rnn_chain {
	int steps, batch, hidden, padded, units, first, mine, rows, out_row;
	long long gx_step, gx_row, out_step;
	unsigned long long wide_inverse; /* e / wide is e times it, over 2^32; wide: reads of a row */
	const float *gx, *below, *w_ih, *b_ih, *w_hh, *b_hh, *h0, *c0;
	float *out;
	bool reverse;
};

/* Sums over LANES lanes: lane l of these has the sums of row l / (LANES / EACH) in acc[][0]. */
template <int G, int EACH, int LANES> __device__ __forceinline__ void rnn_over_lanes(float (&acc)[G][EACH])
{
	const int lane = threadIdx.x % 32;
	int rows = EACH;

#pragma unroll
	for (int d = LANES / 2; d > 0; d /= 2) {
		const bool upper = lane & d;

		if (rows > 1) {
			rows /= 2;
#pragma unroll
			for (int g = 0; g < G; g++)
#pragma unroll
				for (int b = 0; b < EACH / 2; b++)
					if (b < rows) {
						const float keep = upper ? acc[g][b + rows] : acc[g][b],
									give = upper ? acc[g][b] : acc[g][b + rows];
						acc[g][b] = keep + __shfl_xor_sync(0xffffffffu, give, d);
					}
		} else {
#pragma unroll
			for (int g = 0; g < G; g++)
				acc[g][0] += __shfl_xor_sync(0xffffffffu, acc[g][0], d);
		}
	}
}

/* The weights of a lane: of unit `unit`, every gate, four along k at 4 * (lane + LANES * i). */
template <int G, int LANES, int HELD> struct rnn_held {
	float w[G][HELD ? HELD : 1];

	__device__ __forceinline__ void load(const float *from, int unit, bool live, int hidden)
	{
		const int sub = threadIdx.x % LANES;

#pragma unroll
		for (int g = 0; g < G; g++)
#pragma unroll
			for (int i = 0; i < HELD; i++) {
				const int k = 4 * (sub + LANES * (i / 4)) + i % 4;
				w[g][i] = live && k < hidden ? from[((long long)g * hidden + unit) * hidden + k] : 0.0f;
			}
	}
};

/* to[(g * rows + row) * units + u] = the sums of n rows of y (`padded` wide) by the weights of the warp's units from u0
 * on. */
template <int G, int LANES, int HELD, int EACH> __device__ __forceinline__ void rnn_products(
	const rnn_chain &c, const rnn_held<G, LANES, HELD> &held, const float *w, const float *y, float *to, int u0, int n)
{
	const int sub = threadIdx.x % LANES, u = u0 + (int)threadIdx.x % 32 / LANES, unit = c.first + u;
	const int row = sub / (LANES / EACH);
	const bool writes = sub % (LANES / EACH) == 0 && u < c.units;

	for (int r0 = 0; r0 < n; r0 += EACH) {
		float acc[G][EACH];

#pragma unroll
		for (int g = 0; g < G; g++)
#pragma unroll
			for (int b = 0; b < EACH; b++)
				acc[g][b] = 0.0f;
		auto four = [&](int k, const float (&q)[G][4]) {
#pragma unroll
			for (int b = 0; b < EACH; b++) {
				const float4 v = *(const float4 *)(y + (r0 + b) * c.padded + k);
#pragma unroll
				for (int g = 0; g < G; g++)
					acc[g][b] = fmaf(
						q[g][3], v.w, fmaf(q[g][2], v.z, fmaf(q[g][1], v.y, fmaf(q[g][0], v.x, acc[g][b]))));
			}
		};
		if constexpr (HELD > 0) {
#pragma unroll
			for (int i = 0; i < HELD; i += 4) {
				float q[G][4];
#pragma unroll
				for (int g = 0; g < G; g++)
#pragma unroll
					for (int l = 0; l < 4; l++)
						q[g][l] = held.w[g][i + l];
				four(4 * sub + LANES * i, q);
			}
		} else {
			for (int k = 4 * sub; k < c.padded; k += 4 * LANES) {
				float q[G][4];
#pragma unroll
				for (int g = 0; g < G; g++)
#pragma unroll
					for (int l = 0; l < 4; l++)
						q[g][l] = u < c.mine && k + l < c.hidden
							? w[((long long)g * c.hidden + unit) * c.hidden + k + l]
							: 0.0f;
				four(k, q);
			}
		}
		rnn_over_lanes<G, EACH, LANES>(acc);
		if (writes)
#pragma unroll
			for (int g = 0; g < G; g++)
				to[(g * c.rows + r0 + row) * c.units + u] = acc[g][0];
	}
}

/* n rows of a state that other blocks write, at a stride, once they are there: to shared memory by `threads` threads.
 * 64 bytes of a thread are under way, also where rows are read by single floats: of four of these at a time, a step of
 * 64 x 331 floats waited 28 times. */
template <int VEC> __device__ __forceinline__ void rnn_stage(
	const rnn_chain &c, float *to, const float *from, int n, int thread, int threads)
{
	enum { FLIGHT = 16 / VEC };
	const int wide = c.hidden / VEC, all = n * wide;

	for (int e0 = thread; e0 < all; e0 += FLIGHT * threads) {
		awaited<VEC> v[FLIGHT];
		const auto place = [&](int i, int stride) {
			const int e = e0 + i * threads < all ? e0 + i * threads : e0;
			const int row = (int)((unsigned)e * c.wide_inverse >> 32);
			return row * stride + (e - row * wide) * VEC;
		};

		await([&]() {
			bool there = true;
#pragma unroll
			for (int i = 0; i < FLIGHT; i++)
				v[i].peek(from + place(i, c.out_row));
#pragma unroll
			for (int i = 0; i < FLIGHT; i++)
				there &= v[i].there();
			return there;
		});
#pragma unroll
		for (int i = 0; i < FLIGHT; i++)
			v[i].store(to + place(i, c.padded));
	}
}

/* The input's products of n rows, four of a thread under way. */
template <int G> __device__ __forceinline__ void rnn_load_inputs(
	const rnn_chain &c, float *to, const float *gx, int n, int thread, int threads)
{
	enum { FLIGHT = 4 };
	const int all = n * c.mine;

	for (int e0 = thread; e0 < all; e0 += FLIGHT * threads) {
		float v[FLIGHT][G];
		int place[FLIGHT];

#pragma unroll
		for (int i = 0; i < FLIGHT; i++) {
			const int e = e0 + i * threads < all ? e0 + i * threads : e0, row = e / c.mine, u = e - row * c.mine;

			place[i] = row * c.units + u;
#pragma unroll
			for (int g = 0; g < G; g++)
				v[i][g] = gx[row * c.gx_row + (long long)g * c.hidden + u];
		}
#pragma unroll
		for (int i = 0; i < FLIGHT; i++)
#pragma unroll
			for (int g = 0; g < G; g++)
				to[g * c.rows * c.units + place[i]] = v[i][g];
	}
}

/* Numbers of meetings: of each half of the warps; of both, by parity of the rows: sums are there, have been read. */
enum { RNN_BELOW = 1, RNN_OWN, RNN_FULL, RNN_EMPTY = RNN_FULL + 2 };

/* The half that computes what the input adds: sum[parity], (gates, rows, units). */
template <int G, int LANES, int HELD, int EACH, int VEC>
__device__ __forceinline__ void rnn_inputs(const rnn_chain &c, float *y, float *sum, int warp, int warps)
{
	const int U = 32 / LANES, lane = threadIdx.x % 32, thread = warp * 32 + lane, threads = warps * 32;
	const int chunks = (c.batch + c.rows - 1) / c.rows, all = c.steps * chunks;
	rnn_held<G, LANES, HELD> held;

	if (c.below && HELD)
		held.load(c.w_ih, c.first + warp * U + lane / LANES, warp * U + lane / LANES < c.mine, c.hidden);
	for (int i = 0; i < all; i++) {
		const int s = i / chunks, b0 = (i - s * chunks) * c.rows, n = c.rows < c.batch - b0 ? c.rows : c.batch - b0;
		const int t = c.reverse ? c.steps - 1 - s : s;
		float *state = y + i % 2 * c.rows * c.padded, *to = sum + i % 2 * G * c.rows * c.units;

		if (c.below) {
			rnn_stage<VEC>(c, state, c.below + t * c.out_step + (long long)b0 * c.out_row, n, thread, threads);
			__syncwarp();
			meet(RNN_BELOW, threads);
		}
		if (i > 1)
			meet(RNN_EMPTY + i % 2, 2 * threads);
		if (c.below) {
			for (int u0 = warp * U; u0 < c.units; u0 += warps * U)
				rnn_products<G, LANES, HELD, EACH>(c, held, c.w_ih, state, to, u0, n);
		} else {
			rnn_load_inputs<G>(c, to, c.gx + t * c.gx_step + b0 * c.gx_row + c.first, n, thread, threads);
		}
		__syncwarp();
		arrive(RNN_FULL + i % 2, 2 * threads);
	}
}

/* The half that computes the states. */
template <int CELL, int G, int LANES, int HELD, int EACH, int VEC> __device__ __forceinline__ void rnn_states(
	const rnn_chain &c, float *y, const float *sum, float *own, float *cell, int warp, int warps)
{
	const int U = 32 / LANES, lane = threadIdx.x % 32, thread = warp * 32 + lane, threads = warps * 32;
	const int chunks = (c.batch + c.rows - 1) / c.rows, all = c.steps * chunks;
	rnn_held<G, LANES, HELD> held;
	float bi[G], bh[G];

	auto biases = [&](int u) {
#pragma unroll
		for (int g = 0; g < G; g++) {
			bi[g] = c.below && c.b_ih && u < c.mine ? c.b_ih[g * c.hidden + c.first + u] : 0.0f;
			bh[g] = c.b_hh && u < c.mine ? c.b_hh[g * c.hidden + c.first + u] : 0.0f;
		}
	};
	auto cells = [&](bool first) { /* from memory; to it, behind the last step */
		for (int u = warp * U + lane % U; CELL == CELL_LSTM && u < c.mine; u += warps * U)
			for (int row = lane / U; row < c.batch; row += LANES) {
				if (first)
					cell[row * c.units + u] = c.c0[(long long)row * c.hidden + c.first + u];
				else
					c.out[c.steps * c.out_step + (long long)row * c.out_row + c.first + u] = cell[row * c.units + u];
			}
	};
	if (HELD)
		held.load(c.w_hh, c.first + warp * U + lane / LANES, warp * U + lane / LANES < c.mine, c.hidden);
	biases(warp * U + lane % U);
	cells(true);
	for (int i = 0; i < all; i++) {
		const int s = i / chunks, b0 = (i - s * chunks) * c.rows, n = c.rows < c.batch - b0 ? c.rows : c.batch - b0;
		const int t = c.reverse ? c.steps - 1 - s : s;
		const float *in = sum + i % 2 * G * c.rows * c.units;
		float *state = y + i % 2 * c.rows * c.padded, *to = c.out + t * c.out_step + (long long)b0 * c.out_row;

		if (s > 0)
			rnn_stage<VEC>(c, state, to + (c.reverse ? c.out_step : -c.out_step), n, thread, threads);
		else /* it may hold words of ones */
			for (int e = thread; e < n * c.hidden; e += threads)
				state[e / c.hidden * c.padded + e % c.hidden] = c.h0[(long long)b0 * c.hidden + e];
		__syncwarp();
		meet(RNN_OWN, threads);
		for (int u0 = warp * U; u0 < c.units; u0 += warps * U)
			rnn_products<G, LANES, HELD, EACH>(c, held, c.w_hh, state, own, u0, n);
		__syncwarp();
		meet(RNN_FULL + i % 2, 2 * threads);
		for (int u0 = warp * U; u0 < c.units; u0 += warps * U) {
			const int u = u0 + lane % U;

			if (!HELD)
				biases(u);
			for (int row = lane / U; row < n; row += LANES) {
				float x[G], v[G];

				if (u >= c.mine)
					continue;
#pragma unroll
				for (int g = 0; g < G; g++) {
					x[g] = in[(g * c.rows + row) * c.units + u] + bi[g];
					v[g] = own[(g * c.rows + row) * c.units + u] + bh[g];
				}
				publish(to + (long long)row * c.out_row + c.first + u,
					rnn_gate<CELL, G>(x, v, state[row * c.padded + c.first + u],
						CELL == CELL_LSTM ? cell + (b0 + row) * c.units + u : 0));
			}
		}
		__syncwarp();
		if (i + 2 < all)
			arrive(RNN_EMPTY + i % 2, 2 * threads);
	}
	cells(false);
}

/* ---- A block has a chain ----------------------------------------------------------------------------------------- */

/* The ring of sums, in steps, each with two meetings; steps of the layer below that are read at once. */
enum { RNN_RING = 4, RNN_RING_FULL = 3, RNN_RING_EMPTY = RNN_RING_FULL + RNN_RING, RNN_GROUP = 2 };

/* The sums of EACH rows of y by the weights that a lane holds: of unit lane / LANES of the warp and row
 * lane % LANES / (LANES / EACH) in acc[][0].  Of few sums each is done in four parts, which do not wait for each other.
 */
template <int G, int LANES, int HELD, int EACH> __device__ __forceinline__ void rnn_sums(
	const rnn_held<G, LANES, HELD> &held, const float *y, int padded, float (&acc)[G][EACH])
{
	enum { PARTS = G * EACH <= 4 ? 4 : G * EACH <= 8 ? 2 : 1 };
	const int sub = threadIdx.x % LANES;
	float part[PARTS][G][EACH];

#pragma unroll
	for (int p = 0; p < PARTS; p++)
#pragma unroll
		for (int g = 0; g < G; g++)
#pragma unroll
			for (int b = 0; b < EACH; b++)
				part[p][g][b] = 0.0f;
#pragma unroll
	for (int i = 0; i < HELD; i += 4)
#pragma unroll
		for (int b = 0; b < EACH; b++) {
			const float4 q = *(const float4 *)(y + b * padded + 4 * sub + LANES * i);
			const float v[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
			for (int l = 0; l < 4; l++)
#pragma unroll
				for (int g = 0; g < G; g++)
					part[l % PARTS][g][b] = fmaf(held.w[g][i + l], v[l], part[l % PARTS][g][b]);
		}
#pragma unroll
	for (int g = 0; g < G; g++)
#pragma unroll
		for (int b = 0; b < EACH; b++) {
#pragma unroll
			for (int d = PARTS / 2; d > 0; d /= 2)
#pragma unroll
				for (int p = 0; p < d; p++)
					part[p][g][b] += part[p + d][g][b];
			acc[g][b] = part[0][g][b];
		}
	rnn_over_lanes<G, EACH, LANES>(acc);
}

/* What the input adds: a ring of (gates, EACH, units).  Threads are as many as states, LANES / EACH times.  Reads are
 * by groups of steps, since the compiler waits for all that are under way: of a layer below the next group's, of gx the
 * ring's, whose sums last longer than a read. */
template <int G, int LANES, int HELD, int EACH, int VEC>
__device__ __forceinline__ void rnn_inputs_alone(const rnn_chain &c, float *y, float *ring, int warp, int warps)
{
	const int U = 32 / LANES, lane = threadIdx.x % 32, thread = warp * 32 + lane, threads = warps * 32;
	const int part = G * EACH * c.units, last = c.steps - 1;
	const auto at = [&](int s) { return s = s < last ? s : last, c.reverse ? last - s : s; };
	const auto empty = [&](int s) {
		if (s >= RNN_RING)
			meet(RNN_RING_EMPTY + s % RNN_RING, 2 * threads);
	};
	const auto full = [&](int s) {
		__syncwarp();
		arrive(RNN_RING_FULL + s % RNN_RING, 2 * threads);
	};

	if (!c.below) {
		const int e = thread < c.batch * c.hidden ? thread : 0, row = e / c.hidden, u = e - row * c.hidden;
		const float *const gx = c.gx + row * c.gx_row + u;

		for (int s0 = 0; s0 < c.steps; s0 += RNN_RING) {
			float v[RNN_RING][G];

#pragma unroll
			for (int a = 0; a < RNN_RING; a++)
#pragma unroll
				for (int g = 0; g < G; g++)
					v[a][g] = gx[at(s0 + a) * c.gx_step + (long long)g * c.hidden];
#pragma unroll
			for (int a = 0; a < RNN_RING; a++)
				if (s0 + a < c.steps) {
					empty(s0 + a);
#pragma unroll
					for (int g = 0; g < G; g++)
						ring[a * part + (g * EACH + row) * c.units + u] = v[a][g];
					full(s0 + a);
				}
		}
		return;
	}
	const int wide = c.hidden / VEC, e = thread < c.batch * wide ? thread : 0, row = e / wide,
			  k = (e - row * wide) * VEC;
	const int u = warp * U + lane / LANES, to = lane % LANES / (LANES / EACH) * c.units + u;
	const float *const from = c.below + (long long)row * c.out_row + k;
	rnn_held<G, LANES, HELD> held;
	awaited<VEC> v[RNN_GROUP];
	const auto peek = [&](int s0) {
#pragma unroll
		for (int a = 0; a < RNN_GROUP; a++)
			v[a].peek(from + at(s0 + a) * c.out_step);
	};

	held.load(c.w_ih, u, u < c.mine, c.hidden);
	peek(0);
	for (int s0 = 0; s0 < c.steps; s0 += RNN_GROUP) {
		float *const state = y + s0 / RNN_GROUP % 2 * RNN_GROUP * EACH * c.padded;

		await([&]() {
			bool there = true;
#pragma unroll
			for (int a = 0; a < RNN_GROUP; a++)
				there &= v[a].there();
			if (!there)
				peek(s0);
			return there;
		});
#pragma unroll
		for (int a = 0; a < RNN_GROUP; a++)
			v[a].store(state + (a * EACH + row) * c.padded + k);
		peek(s0 + RNN_GROUP);
		__syncwarp();
		meet(RNN_BELOW, threads);
#pragma unroll
		for (int a = 0; a < RNN_GROUP; a++)
			if (s0 + a < c.steps) {
				float acc[G][EACH];

				rnn_sums<G, LANES, HELD, EACH>(held, state + a * EACH * c.padded, c.padded, acc);
				empty(s0 + a);
				if (lane % (LANES / EACH) == 0)
#pragma unroll
					for (int g = 0; g < G; g++)
						ring[(s0 + a) % RNN_RING * part + g * EACH * c.units + to] = acc[g][0];
				full(s0 + a);
			}
	}
}

/* The states.  A lane has the gates of the unit and the row whose sums it has, the others of that unit and row too. */
template <int CELL, int G, int LANES, int HELD, int EACH>
__device__ __forceinline__ void rnn_states_alone(const rnn_chain &c, float *y, const float *ring, int warp, int warps)
{
	const int U = 32 / LANES, lane = threadIdx.x % 32, threads = warps * 32;
	const int u = warp * U + lane / LANES, row = lane % LANES / (LANES / EACH), part = G * EACH * c.units;
	const bool live = u < c.mine && row < c.batch, writes = live && lane % (LANES / EACH) == 0;
	float *const to = c.out + (long long)row * c.out_row + u;
	float h = live ? c.h0[(long long)row * c.hidden + u] : 0.0f;
	float cell = CELL == CELL_LSTM && live ? c.c0[(long long)row * c.hidden + u] : 0.0f, bi[G], bh[G];
	rnn_held<G, LANES, HELD> held;

	held.load(c.w_hh, u, u < c.mine, c.hidden);
#pragma unroll
	for (int g = 0; g < G; g++) {
		bi[g] = c.below && c.b_ih && live ? c.b_ih[g * c.hidden + u] : 0.0f;
		bh[g] = c.b_hh && live ? c.b_hh[g * c.hidden + u] : 0.0f;
	}
	if (writes)
		y[row * c.padded + u] = h;
	for (int s = 0; s < c.steps; s++) {
		const float *const in = ring + s % RNN_RING * part + row * c.units + u;
		float acc[G][EACH], x[G], v[G];

		__syncwarp();
		meet(RNN_OWN, threads);
		rnn_sums<G, LANES, HELD, EACH>(held, y + s % 2 * EACH * c.padded, c.padded, acc);
		meet(RNN_RING_FULL + s % RNN_RING, 2 * threads);
#pragma unroll
		for (int g = 0; g < G; g++) {
			x[g] = in[g * EACH * c.units] + bi[g];
			v[g] = acc[g][0] + bh[g];
		}
		h = rnn_gate<CELL, G>(x, v, h, &cell);
		if (writes) {
			y[(s + 1) % 2 * EACH * c.padded + row * c.padded + u] = h;
			publish(to + (c.reverse ? c.steps - 1 - s : s) * c.out_step, h);
		}
		__syncwarp();
		if (s + RNN_RING < c.steps)
			arrive(RNN_RING_EMPTY + s % RNN_RING, 2 * threads);
	}
	if (CELL == CELL_LSTM && writes)
		to[c.steps * c.out_step] = cell;
}

/* A block has a chain's rows: EACH of the batch.  Shared memory: states of EACH * padded, of two groups of the layer
 * below and two of this one; the ring of sums of the input. */
template <int CELL, int LANES, int HELD, int EACH, int VEC, int CHAINS>
__device__ __forceinline__ void rnn_alone(const rnn_stack_task<CHAINS> &a)
{
	enum { BELOW = 2 * RNN_GROUP, STATES = BELOW + 2 };
	const int G = CELL == CELL_LSTM ? 4 : CELL == CELL_GRU ? 3 : 1;
	extern __shared__ __align__(16) unsigned char ww_dynamic_shared[];
	const int parts = (a.batch + EACH - 1) / EACH, n = blockIdx.x / parts, first = (int)blockIdx.x % parts * EACH;
	const int padded = (a.hidden + 4 * LANES - 1) / (4 * LANES) * 4 * LANES;
	const int warps = blockDim.x / 64, warp = threadIdx.x / 32, rows = a.batch - first < EACH ? a.batch - first : EACH;
	const long long states = ((long long)n * a.batch + first) * a.hidden;
	float *const own = a.out + n * a.out_chain + (long long)first * a.out_row;
	const rnn_chain c = { a.steps, rows, a.hidden, padded, a.units, 0, a.hidden, EACH, a.out_row, a.gx_step[n],
		a.gx_row[n], (long long)a.batch * a.out_row, 0, a.gx[n] ? a.gx[n] + first * a.gx_row[n] : a.gx[n],
		a.gx[n] ? (const float *)0 : own - a.out_chain, a.w_ih[n], a.b_ih[n], a.w_hh[n], a.b_hh[n], a.h0 + states,
		CELL == CELL_LSTM ? a.c0 + states : a.c0, own, (a.reversed >> n & 1) != 0 };
	float *y = (float *)ww_dynamic_shared, *ring = y + STATES * EACH * padded;

	for (int i = threadIdx.x; i < STATES * EACH * padded; i += blockDim.x) /* also of k and rows that are not there */
		y[i] = 0.0f;
	__syncthreads();
	if (warp < warps)
		rnn_states_alone<CELL, G, LANES, HELD, EACH>(c, y + BELOW * EACH * padded, ring, warp, warps);
	else
		rnn_inputs_alone<G, LANES, HELD, EACH, VEC>(c, y, ring, warp - warps, warps);
}

/* Shared memory: states by parity, of the layer below and of this one, rows * padded; sums of the input by parity, and
 * of the state, gates * rows * units; cells, batch * units. */
template <int CELL, int LANES, int HELD, int EACH, int VEC, int CHAINS>
__device__ __forceinline__ void rnn_shared(const rnn_stack_task<CHAINS> &a)
{
	const int G = CELL == CELL_LSTM ? 4 : CELL == CELL_GRU ? 3 : 1;
	extern __shared__ __align__(16) unsigned char ww_dynamic_shared[];
	const int per = (a.hidden + a.units - 1) / a.units, n = blockIdx.x / per, first = (int)blockIdx.x % per * a.units;
	const int padded = (a.hidden + 4 * LANES - 1) / (4 * LANES) * 4 * LANES, wide = a.hidden / VEC;
	const int warps = blockDim.x / 64, warp = threadIdx.x / 32;
	const int mine = a.units < a.hidden - first ? a.units : a.hidden - first;
	const long long states = (long long)a.batch * a.hidden;
	float *const own = a.out + n * a.out_chain;
	const rnn_chain c = { a.steps, a.batch, a.hidden, padded, a.units, first, mine, a.rows, a.out_row, a.gx_step[n],
		a.gx_row[n], (long long)a.batch * a.out_row, ((1ull << 32) + wide - 1) / wide, a.gx[n],
		a.gx[n] ? (const float *)0 : own - a.out_chain, a.w_ih[n], a.b_ih[n], a.w_hh[n], a.b_hh[n], a.h0 + n * states,
		CELL == CELL_LSTM ? a.c0 + n * states : a.c0, own, (a.reversed >> n & 1) != 0 };
	float *y = (float *)ww_dynamic_shared, *sum = y + 4 * a.rows * padded, *cell = sum + 3 * G * a.rows * a.units;

	for (int i = threadIdx.x; i < 4 * a.rows * padded; i += blockDim.x) /* also of k and rows that are not there */
		y[i] = 0.0f;
	__syncthreads();
	if (warp < warps)
		rnn_states<CELL, G, LANES, HELD, EACH, VEC>(
			c, y + 2 * a.rows * padded, sum, sum + 2 * G * a.rows * a.units, cell, warp, warps);
	else
		rnn_inputs<G, LANES, HELD, EACH, VEC>(c, y, sum, warp - warps, warps);
}

template <int CELL, bool ALONE, int LANES, int HELD, int EACH, int VEC, int CHAINS>
__device__ __forceinline__ void rnn_stack(const rnn_stack_task<CHAINS> &a)
{
	if constexpr (ALONE)
		rnn_alone<CELL, LANES, HELD, EACH, VEC>(a);
	else
		rnn_shared<CELL, LANES, HELD, EACH, VEC>(a);
}

} // namespace ww

#endif
