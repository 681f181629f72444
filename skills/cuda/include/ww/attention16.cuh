/* attention16.cuh - softmax(f(scale * Q K^T)) V of half or bfloat16 by warpgroups' products (sm_90a): scores and sums
 * in fp32, weights rounded to the operands' type before they multiply V.  Any lengths; heads up to 256 wide.
 *
 * A block has 64 rows of Q for each of its consumer warpgroups (1 or 2); a producer warpgroup copies tiles of K and V,
 * two of each at a time, on to the block's next rows while these are stored.  With two stages of Q (STAGES_Q) these
 * rows come meanwhile as well.  Of one warpgroup BLOCKS share an SM, 2 to 4, as far as the accumulators leave
 * registers.  Q K^T of a tile is issued ahead of the product with the previous tile's V, so that the tensor cores have
 * work while the softmax is taken.  V is read as it lies, with its columns along memory: no operand is turned.  The
 * order of all sums is fixed.
 *
 * Widths are padded with zeros by the copies: W, of Q and K, to a multiple of 16; WV, of V, to one of 32, in groups of
 * 64 columns, or of 32 where 64 does not divide WV.
 *
 * The functor, and the band BELOW and ABOVE a row, are those of attention_mma.cuh. */
#ifndef WW_ATTENTION16_CUH
#define WW_ATTENTION16_CUH

#include <ww/attention_mma.cuh>
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include <ww/hopper.cuh>

namespace ww
{

template <class T, int W, int WV, int GROUPS, int KEYS, int STAGES_Q, int BLOCKS> struct attention16_shape {
	typedef T type;
	enum : int { rows = 64 * GROUPS, keys = KEYS, width = W, width_v = WV, threads = 128 + 128 * GROUPS, stages = 2 };
	enum : int { stages_q = STAGES_Q };
	enum : int { parts = (W + 63) / 64, part_v = WV % 64 ? 32 : 64, parts_v = WV / part_v };
	enum : int { q_bytes = parts * rows * 128, k_bytes = parts * KEYS * 128, v_bytes = 2 * KEYS * WV };
	enum : int { all_q = stages_q * q_bytes, bytes = all_q + stages * (k_bytes + v_bytes), warps = 4 * GROUPS };
	/* registers of producer and consumers */
	enum : int { shrunk = GROUPS == 1 ? 24 : 40, grown = GROUPS == 2 || BLOCKS < 3 ? 232 : BLOCKS == 3 ? 136 : 104 };
};

/* Full and empty barriers of Q, K and V, and where the tiles lie; t counts the tiles of all the block's rows, turn its
 * tiles of Q. */
template <class S> struct attention16_tiles {
	unsigned first, bars;

	__device__ __forceinline__ unsigned q(int turn) const { return first + turn % S::stages_q * S::q_bytes; }
	__device__ __forceinline__ unsigned k(int t) const { return first + S::all_q + t % S::stages * S::k_bytes; }
	__device__ __forceinline__ unsigned v(int t) const
	{
		return first + S::all_q + S::stages * S::k_bytes + t % S::stages * S::v_bytes;
	}
	__device__ __forceinline__ unsigned q_full(int turn) const { return bars + 8 * (turn % S::stages_q); }
	__device__ __forceinline__ unsigned q_empty(int turn) const { return bars + 16 + 8 * (turn % S::stages_q); }
	__device__ __forceinline__ unsigned k_full(int t) const { return bar(0, t); }
	__device__ __forceinline__ unsigned k_empty(int t) const { return bar(1, t); }
	__device__ __forceinline__ unsigned v_full(int t) const { return bar(2, t); }
	__device__ __forceinline__ unsigned v_empty(int t) const { return bar(3, t); }
	__device__ __forceinline__ unsigned bar(int which, int t) const
	{
		return bars + 32 + 8 * (which * S::stages + t % S::stages);
	}
	static __device__ __forceinline__ unsigned parity(int t) { return t / S::stages & 1; }
	static __device__ __forceinline__ unsigned parity_q(int turn) { return turn / S::stages_q & 1; }

	__device__ __forceinline__ void start() const
	{
		for (int turn = 0; turn < S::stages_q; turn++) {
			bar_init(q_full(turn), 1);
			bar_init(q_empty(turn), S::warps);
		}
		for (int t = 0; t < S::stages; t++) {
			bar_init(k_full(t), 1);
			bar_init(v_full(t), 1);
			bar_init(k_empty(t), S::warps);
			bar_init(v_empty(t), S::warps);
		}
		bar_init_fence();
	}
};

/* The rows of one turn of a block: from q0 on, of head h of item b; tiles of keys from `start` on, `done` in earlier
 * turns. */
struct attention16_turn {
	int q0, b, h, start, tiles, done, turn;
};

/* Call f(turn) for all rows that this block computes.  Blocks of a head are consecutive, those with the most keys
 * first.
 */
template <class S, int BELOW, int ABOVE, class F>
__device__ __forceinline__ void attention16_turns(int blocks, int heads, int t_q, int t_k, F f)
{
	const int tiles_q = (t_q + S::rows - 1) / S::rows;
	attention16_turn now = {};

	for (int i = blockIdx.x; i < blocks; i += gridDim.x) {
		const int z = i / tiles_q;
		now.q0 = (tiles_q - 1 - i % tiles_q) * S::rows;
		now.b = z / heads;
		now.h = z % heads;
		const int last = min(t_k, now.q0 + S::rows + ABOVE);
		now.start = max(0, now.q0 - BELOW) / S::keys;
		now.tiles = max(0, (last + S::keys - 1) / S::keys - now.start);
		f(now);
		now.done += now.tiles;
		now.turn++;
	}
}

/* One turn's copies, by one thread. */
template <class S> __device__ __forceinline__ void attention16_produce(const ww_tensor_map &tq, const ww_tensor_map &tk,
	const ww_tensor_map &tv, attention16_tiles<S> at, const attention16_turn &now, int h_kv)
{
	for (int i = 0; i <= now.tiles; i++) {
		const int t = now.done + i, key0 = (now.start + i) * S::keys;
		if (i < now.tiles) {
			bar_wait(at.k_empty(t), at.parity(t) ^ 1);
			bar_expect(at.k_full(t), S::k_bytes);
			for (int j = 0; j < S::parts; j++)
				tma_load4(at.k(t) + j * S::keys * 128, &tk, at.k_full(t), j * 64, key0, h_kv, now.b);
		}
		if (i == 0) { /* behind the keys, which may come before the last turn's rows have been read */
			bar_wait(at.q_empty(now.turn), at.parity_q(now.turn) ^ 1);
			bar_expect(at.q_full(now.turn), S::q_bytes);
			for (int j = 0; j < S::parts; j++)
				tma_load4(at.q(now.turn) + j * S::rows * 128, &tq, at.q_full(now.turn), j * 64, now.q0, now.h, now.b);
		}
		if (i < now.tiles) {
			bar_wait(at.v_empty(t), at.parity(t) ^ 1);
			bar_expect(at.v_full(t), S::v_bytes);
			for (int j = 0; j < S::parts_v; j++)
				tma_load4(at.v(t) + j * S::keys * S::part_v * 2, &tv, at.v_full(t), j * S::part_v, key0, h_kv, now.b);
		}
	}
}

/* The largest of a row's scores in a warpgroup's fragments; half: of this thread's second row, 8 below the first. */
template <int N> __device__ __forceinline__ float attention_row_max(const float (&s)[N], int half)
{
	float m = -inf_();
#pragma unroll
	for (int j = 0; j < N / 4; j++)
		m = fmaxf(m, fmaxf(s[j * 4 + half * 2], s[j * 4 + half * 2 + 1]));
	m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
	return fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
}

/* A warpgroup's 64 rows: element i of s is score (row() + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2) of a tile,
 * that of o the same of the results; w: weights as an operand of the next product. */
template <class S> struct attention16_rows {
	typedef typename S::type T;
	float o[S::width_v / 2], s[S::keys / 2], top[2], rest[2], sum[2];
	unsigned w[S::keys / 16][4];

	__device__ __forceinline__ void start()
	{
#pragma unroll
		for (int i = 0; i < S::width_v / 2; i++)
			o[i] = 0.f;
#pragma unroll
		for (int h = 0; h < 2; h++) {
			top[h] = -inf_();
			rest[h] = sum[h] = 0.f;
		}
	}

	/* Issue s = Q K^T of a tile. */
	__device__ __forceinline__ void scores(unsigned tile_q, unsigned tile_k)
	{
		const u64 q = desc(tile_q), k = desc(tile_k);

		wgmma_pin(s);
		wgmma_begin();
#pragma unroll
		for (int i = 0; i < S::width / 16; i++)
			wgmma<S::keys>::ss(
				s, q + i / 4 * (S::rows * 8) + i % 4 * 2, k + i / 4 * (S::keys * 8) + i % 4 * 2, i != 0, (T *)0);
		wgmma_commit();
	}

	/* Issue o += weights V of N columns from FROM on, then of those behind them. */
	template <int FROM> __device__ __forceinline__ void columns(unsigned tile_v)
	{
		constexpr int left = S::width_v - FROM, n = left >= 128 ? 128 : left >= 64 ? 64 : 32, part = S::part_v;
		float (&to)[n / 2] = *(float (*)[n / 2])(o + FROM / 2);
		const u64 v = desc_turned<part>(tile_v + FROM / part * (S::keys * part * 2), S::keys * part * 2);

#pragma unroll
		for (int i = 0; i < S::keys / 16; i++)
			wgmma<n>::rs_turned(to, w[i], v + i * (part * 2), (T *)0);
		if constexpr (left > n)
			columns<FROM + n>(tile_v);
	}
	__device__ __forceinline__ void values(unsigned tile_v)
	{
		wgmma_pin(o);
		wgmma_begin();
		columns<0>(tile_v);
		wgmma_commit();
	}
	/* Of both products: o and the weights are free again. */
	__device__ __forceinline__ void finish()
	{
		wgmma_wait<0>();
		wgmma_pin(o);
#pragma unroll
		for (int i = 0; i < S::keys / 16; i++)
			wgmma_pin(w[i]);
	}

	/* Scores times `scale` become weights in s; fix: the factor for earlier sums. */
	__device__ __forceinline__ void weigh(float (&fix)[2], float scale)
	{
		float from[2], times = scale;

#pragma unroll
		for (int h = 0; h < 2; h++)
			from[h] = attention_raise(top[h], rest[h], fix[h], attention_row_max(s, h), scale, 0.f);
		if (__any_sync(0xffffffffu, rest[0] != 0.f || rest[1] != 0.f)) {
#pragma unroll
			for (int i = 0; i < S::keys / 2; i++)
				s[i] = fmaf(s[i], scale, -from[i % 4 / 2]) - rest[i % 4 / 2];
			from[0] = from[1] = 0.f;
			times = 1.f;
		}
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float add = 0.f;
#pragma unroll
			for (int j = 0; j < S::keys / 8; j++)
#pragma unroll
				for (int i = 0; i < 2; i++) {
					float &x = s[j * 4 + h * 2 + i];
					x = exp2_(fmaf(x, times, -from[h]));
					add += x;
				}
			sum[h] = fmaf(sum[h], fix[h], add);
		}
	}

	/* Weights become an operand, and o that of the new maximum. */
	__device__ __forceinline__ void round(const float (&fix)[2])
	{
#pragma unroll
		for (int i = 0; i < S::width_v / 2; i++)
			o[i] *= fix[i % 4 / 2];
#pragma unroll
		for (int i = 0; i < S::keys / 16; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				attention_weights(s[i * 8 + j * 2], s[i * 8 + j * 2 + 1], w[i][j], (T *)0);
	}

	/* Call f(row, column, i) for the scores of a tile, M adjacent ones at once, of which s[i] is the first. */
	template <int M, class F> static __device__ __forceinline__ void each(int row, int col, int t_q, F f)
	{
#pragma unroll
		for (int i = 0; i < S::keys / 2; i += M)
			f(min(row + i % 4 / 2 * 8, t_q - 1), col + i / 4 * 8 + i % 2, i);
	}

	/* Scores behind the last key and outside of the row's band do not count. */
	template <int BELOW, int ABOVE> __device__ __forceinline__ void limit(int row, int col, int t_k)
	{
#pragma unroll
		for (int i = 0; i < S::keys / 2; i++) {
			const int c = col + i / 4 * 8 + i % 2, r = row + i % 4 / 2 * 8;
			if ((ABOVE < attention_all && c > r + ABOVE) || (BELOW < attention_all && c < r - BELOW) || c >= t_k)
				s[i] = -inf_();
		}
	}

	/* Store N results of a row at once; 8: four lanes turn theirs first, so that they store 64 neighbouring bytes.  As
	 * wgmma leaves them they have 16, half a sector: of few keys that takes longer than all else. */
	template <int N, class E> __device__ __forceinline__ void end(const E &e, int b, int h, int row, int t_q, int width)
	{
		const int lane = threadIdx.x % 4;

#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int r = row + half * 8;
			float all = sum[half] + __shfl_xor_sync(0xffffffffu, sum[half], 1);
			all += __shfl_xor_sync(0xffffffffu, all, 2);
			const float k = 1.f / all;

#pragma unroll
			for (int j0 = 0; j0 < S::width_v / 8; j0 += 4) {
				ahead<E, N> given[8 / N];
				float out[8];
				auto col = [&](int i) {
					return N == 8 ? (j0 + lane) * 8 : (j0 + i * N / 2) * 8 + lane * 2 + i * N % 2;
				};
#pragma unroll
				for (int i = 0; i < 8 / N; i++)
					if (r < t_q && col(i) < width)
						given[i].fetch(e, b, h, r, col(i));
#pragma unroll
				for (int i = 0; i < 8; i++)
					out[i] = o[(j0 + i / 2) * 4 + half * 2 + i % 2] * k;
				if (N == 8)
					gather_quad(out);
#pragma unroll
				for (int i = 0; i < 8 / N; i++) {
					float now[N];
#pragma unroll
					for (int x = 0; x < N; x++)
						now[x] = out[i * N + x];
					if (r < t_q && col(i) < width)
						given[i].store(e, now, b, h, r, col(i));
				}
			}
		}
	}
};

/* What the functor has loaded for a tile's COUNT scores of a thread. */
template <bool MASKED, int M, int COUNT, class E> struct attention16_given {
	typename E::template beside<M> of[COUNT / M];

	/* Ask for it; the scores' places are as in attention16_rows::each().  A place behind the last key is that key's. */
	__device__ __forceinline__ void ask(const E &e, int b, int h, int row, int col, int t_q, int t_k)
	{
		if (col / (COUNT * 2) * (COUNT * 2) + COUNT * 2 <= t_k)
			ask(e, b, h, row, col, t_q, [](int c) { return c; });
		else
			ask(e, b, h, row, col, t_q, [&](int c) { return min(c, t_k - M); });
	}
	template <class F> __device__ __forceinline__ void ask(const E &e, int b, int h, int row, int col, int t_q, F place)
	{
#pragma unroll
		for (int i = 0; i < COUNT; i += M)
			e.template ask<M>(b, h, min(row + i % 4 / 2 * 8, t_q - 1), place(col + i / 4 * 8 + i % 2), of[i / M]);
	}
	__device__ __forceinline__ void score(
		const E &e, int b, int h, int row, int col, int i, float (&s)[COUNT], float scale)
	{
		float x[M];
#pragma unroll
		for (int m = 0; m < M; m++)
			x[m] = s[i + m] * scale;
		e.template score<M>(b, h, row, col, x, of[i / M]);
#pragma unroll
		for (int m = 0; m < M; m++)
			s[i + m] = x[m];
	}
};
template <int M, int COUNT, class E> struct attention16_given<false, M, COUNT, E> {
	__device__ __forceinline__ void ask(const E &, int, int, int, int, int, int) {}
	__device__ __forceinline__ void score(const E &, int, int, int, int, int, float (&)[COUNT], float) {}
};

/* What a block computes, and this thread's place in it. */
template <class S> struct attention16_place {
	attention16_tiles<S> at;
	int first, wg, row, t_q, t_k; /* first: row of the warpgroup */
	attention16_turn now;
	float scale; /* of log2 */
};

/* Scores of the turn's tile i become weights; the products with the tile ahead of it, unless this is the first, are
 * under way meanwhile.  One lane of a warp says that it has read a tile.  given: what the functor has loaded for this
 * tile, then for the next one, so that it comes while the softmax is taken. */
template <int BELOW, int ABOVE, bool MASKED, bool FIRST, int M, class S, class G, class E>
__device__ __forceinline__ void attention16_step(
	attention16_rows<S> &rows, const attention16_place<S> &p, int i, float (&fix)[2], G &given, const E &e)
{
	const int lane = threadIdx.x % 32, key0 = (p.now.start + i) * S::keys, t = p.now.done + i,
			  col = key0 + lane % 4 * 2;
	const attention16_tiles<S> &at = p.at;

	bar_wait(at.k_full(t), at.parity(t));
	rows.scores(at.q(p.now.turn) + p.wg * 64 * 128, at.k(t));
	if (!FIRST) {
		bar_wait(at.v_full(t - 1), at.parity(t - 1));
		rows.values(at.v(t - 1));
	}
	wgmma_wait<FIRST ? 0 : 1>();
	wgmma_pin(rows.s);
	if (lane == 0)
		bar_arrive(at.k_empty(t));
	rows.template each<M>(p.row, col, p.t_q, [&](int r, int c, int n) {
		given.score(e, p.now.b, p.now.h, r, c, n, rows.s, p.scale * 0.693147180559945309417f);
	});
	given.ask(e, p.now.b, p.now.h, p.row, col + S::keys, p.t_q, p.t_k);
	if (key0 + S::keys - 1 > p.first + ABOVE || key0 < p.first + 63 - BELOW || key0 + S::keys > p.t_k)
		rows.template limit<BELOW, ABOVE>(p.row, col, p.t_k);
	rows.weigh(fix, MASKED ? 1.44269504088896340736f : p.scale);
	if (!FIRST) {
		/* Never so.  Without a branch on the sums the compiler moves the softmax behind the wait for the other product.
		 */
		if (__any_sync(0xffffffffu, rows.sum[0] + rows.sum[1] < 0.f))
			return;
		rows.finish();
		if (lane == 0)
			bar_arrive(at.v_empty(t - 1));
	}
	rows.round(fix);
}

/* mine: tiles that this warpgroup's rows need, of all that the block copies; the others it lets go of. */
template <int BELOW, int ABOVE, bool MASKED, int N, int M, class S, class E>
__device__ __forceinline__ void attention16_consume(const attention16_place<S> &p, int mine, int width_v, const E &e)
{
	const attention16_tiles<S> &at = p.at;
	const bool speaks = threadIdx.x % 32 == 0;
	const int done = p.now.done;
	attention16_rows<S> rows;
	attention16_given<MASKED, M, S::keys / 2, E> given;
	float fix[2];

	rows.start();
	given.ask(e, p.now.b, p.now.h, p.row, p.now.start * S::keys + threadIdx.x % 4 * 2, p.t_q, p.t_k);
	bar_wait(at.q_full(p.now.turn), at.parity_q(p.now.turn));
	if (mine > 0) {
		attention16_step<BELOW, ABOVE, MASKED, true, M>(rows, p, 0, fix, given, e);
		for (int i = 1; i < mine; i++)
			attention16_step<BELOW, ABOVE, MASKED, false, M>(rows, p, i, fix, given, e);
		if (speaks)
			bar_arrive(at.q_empty(p.now.turn));
		bar_wait(at.v_full(done + mine - 1), at.parity(done + mine - 1));
		rows.values(at.v(done + mine - 1));
		rows.finish();
		if (speaks)
			bar_arrive(at.v_empty(done + mine - 1));
	} else if (speaks) {
		bar_arrive(at.q_empty(p.now.turn));
	}
	for (int t = done + mine; t < done + p.now.tiles; t++) {
		bar_wait(at.k_full(t), at.parity(t));
		bar_wait(at.v_full(t), at.parity(t));
		if (speaks) {
			bar_arrive(at.k_empty(t));
			bar_arrive(at.v_empty(t));
		}
	}
	rows.template end<N>(e, p.now.b, p.now.h, p.row, p.t_q, width_v);
}

/* S: attention16_shape.  N, M: elements that store() and score() get at once; 2 only if the width of V, or t_k, is
 * even, N 8 only if eight divides it.  group: heads that share one of K and V.  Grid: one axis; blocks: turns of all
 * blocks, one for each head and S::rows rows. */
template <class S, int BELOW, int ABOVE, bool MASKED, int N, int M, class E>
__device__ __forceinline__ void attention16(const ww_tensor_map &tq, const ww_tensor_map &tk, const ww_tensor_map &tv,
	int blocks, int group, int heads, int t_q, int t_k, int width_v, float scale, const E &e)
{
	const unsigned base = (saddr(dynamic_shared()) + 1023) & ~1023u;
	const attention16_tiles<S> at = { base, base + S::bytes };
	const int wg = (int)threadIdx.x / 128 - 1;

	if (threadIdx.x == 0)
		at.start();
	__syncthreads();
	if (wg < 0) {
		regs_shrink<S::shrunk>();
		if (threadIdx.x == 0)
			attention16_turns<S, BELOW, ABOVE>(blocks, heads, t_q, t_k,
				[&](const attention16_turn &now) { attention16_produce<S>(tq, tk, tv, at, now, now.h / group); });
	} else {
		regs_grow<S::grown>();
		attention16_turns<S, BELOW, ABOVE>(blocks, heads, t_q, t_k, [&](const attention16_turn &now) {
			const int first = now.q0 + wg * 64, behind = min(t_k, first + 64 + ABOVE);
			const int mine = first < t_q ? max(0, (behind + S::keys - 1) / S::keys - now.start) : 0;
			const int row = first + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
			const attention16_place<S> p = { at, first, wg, row, t_q, t_k, now, scale };

			attention16_consume<BELOW, ABOVE, MASKED, N, M>(p, mine, width_v, e);
		});
	}
}

/* The same, a turn a block: where some rows have fewer keys, the block that ends first takes the next rows. */
template <class S, int BELOW, int ABOVE, bool MASKED, int N, int M, class E>
__device__ __forceinline__ void attention16(const ww_tensor_map &tq, const ww_tensor_map &tk, const ww_tensor_map &tv,
	int group, int heads, int t_q, int t_k, int width_v, float scale, const E &e)
{
	attention16<S, BELOW, ABOVE, MASKED, N, M>(tq, tk, tv, (int)gridDim.x, group, heads, t_q, t_k, width_v, scale, e);
}

} // namespace ww

#endif
#endif
