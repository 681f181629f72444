/* rnn.cuh - recurrent layers: the steps of LSTM, GRU and RNN, which depend on each other.
 *
 * One matrix product before the launch computes the input's products of all steps, with their biases: gx
 * (steps, batch, gates * hidden) at strides.  The kernel computes h W^T and the gates of one step after the other;
 * latency dominates a step's time.  So one launch does all steps.
 *
 * EACH 0: the launch is cooperative.  Every block owns `units` of the hidden
 * units for the whole sequence, keeps their rows of W (KEEP; else they are read from L2 in each step) and the LSTM's
 * cell states in shared memory, reads the state that all blocks wrote in the previous step, and waits for the others at
 * a grid barrier.
 *
 * A warp does one unit for four rows of the batch at a time: its lanes share the sum over k, all gates at once.
 *
 * Else, of few units and many rows (1,024 rows of 64 units), a block owns `rows` of the batch and waits for no other
 * one: all of W and its rows' states lie in its shared memory.  A thread does one unit for EACH rows, whose weights it
 * holds in registers where these are few (HELD).
 *
 * out is (steps, batch, hidden), and for LSTM one slot more, which holds the cells' state after the last step.  With
 * `reverse` the steps run from the last to the first; each step keeps its slot.
 *
 * Rejected: one cluster for a layer, with its shared memory as the channel: 8 blocks hold no more than 1.8 MB of
 * weights and compute with a sixteenth of the machine.
 */
#ifndef WW_RNN_CUH
#define WW_RNN_CUH

#include <ww/barrier.cuh>

namespace ww
{

enum { CELL_TANH, CELL_RELU, CELL_GRU, CELL_LSTM };

struct rnn_task {
	unsigned *barrier;
	int steps, batch, hidden, units, rows; /* rows of the batch staged at a time, a multiple of 4 */
	long long step_stride, row_stride;
	const float *gx, *w, *h0, *c0, *bias; /* c0: LSTM only; bias (gates * hidden) is added to h W^T, NULL: none */
	float *out;
};

__device__ __forceinline__ float rnn_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* The new state of one unit and row; x: gx, s: the products with their bias, h the old state. */
template <int CELL, int G>
__device__ __forceinline__ float rnn_gate(const float (&x)[G], const float (&s)[G], float h, float *cell)
{
	if constexpr (CELL == CELL_LSTM) { /* input, forget, cell and output gate */
		float c = rnn_sigmoid(x[1] + s[1]) * *cell + rnn_sigmoid(x[0] + s[0]) * tanhf(x[2] + s[2]);
		*cell = c;
		return rnn_sigmoid(x[3] + s[3]) * tanhf(c);
	} else if constexpr (CELL == CELL_GRU) { /* reset and update gate, candidate */
		float r = rnn_sigmoid(x[0] + s[0]), z = rnn_sigmoid(x[1] + s[1]), n = tanhf(x[2] + r * s[2]);
		return n + z * (h - n);
	} else {
		float v = x[0] + s[0];
		return CELL == CELL_RELU ? (v != v || v > 0 ? v : 0.0f) : tanhf(v);
	}
}

/* W to shared memory, k after k, `up` units of each (an odd stride: neither side meets a bank twice), zeros from unit
 * or k H on.  A warp reads rows along k, eight of them under way. */
template <int G>
__device__ __forceinline__ void rnn_weights(const rnn_task &a, float *w, int padded, int up, int stride)
{
	const int ROWS = 8, H = a.hidden, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;

	for (int g = 0; g < G; g++)
		for (int u0 = warp * ROWS; u0 < up; u0 += warps * ROWS)
			for (int k = lane; k < padded; k += 32) {
				float v[ROWS];
#pragma unroll
				for (int i = 0; i < ROWS; i++)
					v[i] = u0 + i < H && k < H ? a.w[((long long)g * H + u0 + i) * H + k] : 0.0f;
#pragma unroll
				for (int i = 0; i < ROWS; i++)
					w[(g * padded + k) * stride + u0 + i] = v[i];
			}
}

/* One unit of EACH rows of the batch.  HELD: of so many k, a thread holds its unit's weights in registers; else 0, and
 * it reads them from shared memory in each step. */
template <int CELL, bool REVERSE, int EACH, int HELD> __device__ __forceinline__ void rnn_of_rows(const rnn_task &a)
{
	const int G = CELL == CELL_LSTM ? 4 : CELL == CELL_GRU ? 3 : 1;
	extern __shared__ __align__(16) unsigned char ww_dynamic_shared[];
	const int H = a.hidden, HP = HELD ? HELD : (H + 3) / 4 * 4, UP = (H + 31) / 32 * 32, WP = UP + 1;
	const int first = blockIdx.x * a.rows, size = a.rows * UP;
	const int n = a.rows < a.batch - first ? a.rows : a.batch - first;
	const int unit = threadIdx.x % UP, r0 = (int)threadIdx.x / UP * EACH;
	const long long gx_step = REVERSE ? -a.step_stride : a.step_stride, to_step = (REVERSE ? -1LL : 1LL) * a.batch * H;
	float *h = (float *)ww_dynamic_shared, *w = h + 2 * size, next[G][EACH], cell[EACH], bias[G],
		  held[G][HELD ? HELD : 1];
	const float *gx = a.gx + (REVERSE ? (a.steps - 1LL) * a.step_stride : 0) + (first + r0) * a.row_stride + unit;
	float *to = a.out + (REVERSE ? (a.steps - 1LL) * a.batch * H : 0) + (long long)(first + r0) * H + unit;
	bool live[EACH];

	auto input = [&]() {
#pragma unroll
		for (int b = 0; b < EACH; b++)
#pragma unroll
			for (int g = 0; g < G; g++)
				next[g][b] = live[b] ? gx[b * a.row_stride + g * H] : 0.0f;
		gx += gx_step;
	};
#pragma unroll
	for (int b = 0; b < EACH; b++) {
		live[b] = unit < H && r0 + b < n;
		cell[b] = CELL == CELL_LSTM && live[b] ? a.c0[(long long)(first + r0 + b) * H + unit] : 0.0f;
	}
#pragma unroll
	for (int g = 0; g < G; g++)
		bias[g] = a.bias && unit < H ? a.bias[g * H + unit] : 0.0f;
	if (a.steps > 0)
		input();
	rnn_weights<G>(a, w, HP, UP, WP);
	for (int r = threadIdx.x / 32; r < a.rows; r += blockDim.x / 32)
		for (int k = threadIdx.x % 32; k < UP; k += 32)
			h[r * UP + k] = r < n && k < H ? a.h0[(long long)(first + r) * H + k] : 0.0f;
	__syncthreads();
	if constexpr (HELD > 0)
#pragma unroll
		for (int g = 0; g < G; g++)
#pragma unroll
			for (int k = 0; k < HELD; k++)
				held[g][k] = w[(g * HELD + k) * WP + unit];
	for (int s = 0; s < a.steps; s++) {
		const float *old = h + s % 2 * size;
		float *fresh = h + (s + 1) % 2 * size;
		float x[G][EACH], acc[G][EACH];

#pragma unroll
		for (int g = 0; g < G; g++)
#pragma unroll
			for (int b = 0; b < EACH; b++)
				x[g][b] = next[g][b], acc[g][b] = bias[g];
		if (s + 1 < a.steps) /* comes while this step is computed */
			input();
		auto four = [&](int k) {
			float y[EACH][4];
#pragma unroll
			for (int b = 0; b < EACH; b++) {
				const float4 v = *(const float4 *)(old + (r0 + b) * UP + k);
				y[b][0] = v.x, y[b][1] = v.y, y[b][2] = v.z, y[b][3] = v.w;
			}
#pragma unroll
			for (int l = 0; l < 4; l++)
#pragma unroll
				for (int g = 0; g < G; g++) {
					const float q = HELD ? held[g][HELD ? k + l : 0] : w[(g * HP + k + l) * WP + unit];
#pragma unroll
					for (int b = 0; b < EACH; b++)
						acc[g][b] = fmaf(q, y[b][l], acc[g][b]);
				}
		};
		if constexpr (HELD > 0) {
#pragma unroll
			for (int k = 0; k < HELD; k += 4)
				four(k);
		} else {
#pragma unroll(CELL == CELL_LSTM || CELL == CELL_GRU ? 2 : 4)
			for (int k = 0; k < HP; k += 4)
				four(k);
		}
		/* Of all units and rows, also those that are not there: behind a branch each would wait for the one before. */
#pragma unroll
		for (int b = 0; b < EACH; b++) {
			float in[G], sum[G], v;
#pragma unroll
			for (int g = 0; g < G; g++)
				in[g] = x[g][b], sum[g] = acc[g][b];
			v = rnn_gate<CELL, G>(in, sum, old[(r0 + b) * UP + unit], &cell[b]);
			fresh[(r0 + b) * UP + unit] = unit < H ? v : 0.0f;
			acc[0][b] = v;
		}
#pragma unroll
		for (int b = 0; b < EACH; b++)
			if (live[b])
				to[b * H] = acc[0][b];
		to += to_step;
		__syncthreads();
	}
#pragma unroll
	for (int b = 0; b < EACH; b++)
		if (CELL == CELL_LSTM && live[b])
			a.out[((long long)a.steps * a.batch + first + r0 + b) * H + unit] = cell[b];
}

template <int CELL, bool KEEP, bool REVERSE> __device__ __forceinline__ void rnn_of_units(const rnn_task &a)
{
	const int G = CELL == CELL_LSTM ? 4 : CELL == CELL_GRU ? 3 : 1, B = 4;
	extern __shared__ __align__(16) unsigned char ww_dynamic_shared[];
	const int H = a.hidden, HP = (H + 3) / 4 * 4, first = blockIdx.x * a.units,
			  mine = a.units < H - first ? a.units : H - first;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
	float *w = (float *)ww_dynamic_shared, *h = w + (KEEP ? G * a.units * HP : 0), *cell = h + a.rows * HP;
	const float *before = a.h0;

	if (KEEP)
		for (int r = warp; r < G * mine; r += warps) {
			const int g = r / mine, u = r % mine;
			for (int k = lane; k < HP; k += 32)
				w[(g * a.units + u) * HP + k] = k < H ? a.w[((long long)g * H + first + u) * H + k] : 0.0f;
		}
	if (CELL == CELL_LSTM)
		for (int i = threadIdx.x; i < mine * a.batch; i += blockDim.x)
			cell[i] = a.c0[(long long)(i % a.batch) * H + first + i / a.batch];
	for (int s = 0; s < a.steps; s++) {
		const long long t = REVERSE ? a.steps - 1 - s : s;
		float *to = a.out + t * a.batch * H;

		for (int b0 = 0; b0 < a.batch; b0 += a.rows) {
			const int n = a.rows < a.batch - b0 ? a.rows : a.batch - b0, tiles = (n + B - 1) / B;

			__syncthreads(); /* the last rows have been read, weights and cells are written */
			for (int r = warp; r < tiles * B; r += warps)
				for (int k = lane; k < HP; k += 32) /* bypass L1: other blocks wrote it */
					h[r * HP + k] = r < n && k < H ? __ldcg(before + (long long)(b0 + r) * H + k) : 0.0f;
			__syncthreads();
			for (int task = warp; task < mine * tiles; task += warps) {
				const int u = task / tiles, r0 = task % tiles * B, unit = first + u, row = b0 + r0 + lane;
				const bool live = lane < B && r0 + lane < n;
				float acc[G][B], x[G], v[G];

#pragma unroll
				for (int g = 0; g < G; g++) {
					x[g] = live ? a.gx[t * a.step_stride + row * a.row_stride + (long long)g * H + unit] : 0.0f;
#pragma unroll
					for (int b = 0; b < B; b++)
						acc[g][b] = 0.0f;
				}
				if (KEEP) {
					for (int k = 4 * lane; k < HP; k += 128) {
						float4 y[B];
#pragma unroll
						for (int b = 0; b < B; b++)
							y[b] = *(const float4 *)(h + (r0 + b) * HP + k);
#pragma unroll
						for (int g = 0; g < G; g++) {
							const float4 q = *(const float4 *)(w + (g * a.units + u) * HP + k);
#pragma unroll
							for (int b = 0; b < B; b++)
								acc[g][b] = fmaf(
									q.w, y[b].w, fmaf(q.z, y[b].z, fmaf(q.y, y[b].y, fmaf(q.x, y[b].x, acc[g][b]))));
						}
					}
				} else {
					for (int k = lane; k < H; k += 32)
#pragma unroll
						for (int g = 0; g < G; g++) {
							const float q = a.w[((long long)g * H + unit) * H + k];
#pragma unroll
							for (int b = 0; b < B; b++)
								acc[g][b] = fmaf(q, h[(r0 + b) * HP + k], acc[g][b]);
						}
				}
#pragma unroll
				for (int g = 0; g < G; g++) {
					v[g] = 0.0f;
#pragma unroll
					for (int b = 0; b < B; b++) {
#pragma unroll
						for (int d = 16; d > 0; d /= 2)
							acc[g][b] += __shfl_xor_sync(0xffffffffu, acc[g][b], d);
						if (lane == b)
							v[g] = acc[g][b];
					}
					if (a.bias)
						v[g] += a.bias[g * H + unit];
				}
				if (live)
					to[(long long)row * H + unit] = rnn_gate<CELL, G>(
						x, v, h[(r0 + lane) * HP + unit], cell + u * a.batch + row);
			}
		}
		before = to;
		if (s + 1 < a.steps)
			grid_barrier(a.barrier);
	}
	__syncthreads();
	if (CELL == CELL_LSTM)
		for (int i = threadIdx.x; i < mine * a.batch; i += blockDim.x)
			a.out[((long long)a.steps * a.batch + i % a.batch) * H + first + i / a.batch] = cell[i];
}

template <int CELL, bool KEEP, bool REVERSE, int EACH, int HELD> __device__ __forceinline__ void rnn(const rnn_task &a)
{
	if constexpr (EACH)
		rnn_of_rows<CELL, REVERSE, EACH, HELD>(a);
	else
		rnn_of_units<CELL, KEEP, REVERSE>(a);
}

} // namespace ww

#endif
