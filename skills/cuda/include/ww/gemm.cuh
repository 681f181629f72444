/* gemm.cuh - matrix products D[b][m][n] = epilogue(sum_k A[b][m][k] * B[b][n][k]).
 *
 *   gemm3     fp32 operands at fp32-class accuracy on tensor cores: split.cuh's pairs, three products, promoted sums
 *             (sm_90a)
 *   gemm16    fp16 or bf16 operands, fp32 accumulation (sm_90a)
 *   gemm_mma  any alignment and size of either, in one launch (gemm_mma.cuh)
 *   gemm_thin fp32 of at most 16 columns (gemm_thin.cuh)
 *   gemm_short fp32 of K up to 16 (gemm_short.cuh)
 *   gemm_any  any strides, dtypes and shapes in plain fp32 arithmetic, any GPU
 *
 * The epilogue is a functor: template <int N> void store(int b, int row, int col, const float (&v)[N]) const, N
 * consecutive columns; N = 2 with col even where n is even, else 1.  If n is even, a quad of threads covers 32 bytes of
 * an fp32 row, so that every store fills whole sectors; wider stores by way of shared memory were not faster, since
 * stores overlap the next tile's loads.  With PAIRS = 2 (pipeline.cuh) they overlap its products, too; registers then
 * hold no operands of the next columns (FEW).
 *
 * Tiles are 128 x BN, persistent, in groups of GROUP tile rows, so that the operands of concurrent tiles stay in L2.
 * Tensor cores truncate sums; pipeline.cuh says how PROMOTE removes that bias.  gemm16 keeps it, as cuBLAS does.
 */
#ifndef WW_GEMM_CUH
#define WW_GEMM_CUH

#include <ww/gemm_mma.cuh>
#include <ww/gemm_short.cuh>
#include <ww/gemm_thin.cuh>
#include <ww/split.cuh>
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include <ww/pipeline.cuh>
#endif

namespace ww
{

/* tile_end's shared memory where n is odd (ww_odd_end() of the recipe): 16 rows of 32 columns for each consumer warp.
 * Rows are 40 apart, so that pairs of neighbours go to different banks. */
enum : int { odd_end_row = 40 };

/* tile_end() by eight columns, where eight divides n: a thread stores 16 bytes of a 16-bit result, and four of them 64
 * neighbouring ones.  In wgmma's layout four store 16: twice as many sectors, each in halves, and loads of a residual
 * that keep a quarter of the bytes under way. */
template <int BN, bool FEW = false, class E> __device__ __forceinline__ void tile_end_wide(
	const E &e, int z, int row, int col, int m, int n, const float (&acc)[BN / 2])
{
	/* where registers allow it, operands of the next columns are under way */
	constexpr bool early = !FEW && (BN <= 128 || sizeof(ahead<E, 8>) <= 8 * sizeof(float));
	/* rows whose operands are under way together */
	constexpr int rows = FEW && BN > 64 && sizeof(ahead<E, 8>) > 8 * sizeof(float) ? 1 : 2;
	ahead<E, 8> next[2];
	/* Beyond the last row or column what the last one reads: a load under a condition would keep the registers that it
	 * may leave as they were. */
	auto ask = [&](ahead<E, 8> &r, int h, int j0) { r.fetch(e, z, min(row + 8 * h, m - 1), min(col + j0 * 8, n - 8)); };

	const int row0 = row + threadIdx.x / 32 % 4 * 16, col0 = col;

	row = row0 + threadIdx.x % 32 / 4;
	col += threadIdx.x % 4 * 8;
#pragma unroll
	for (int h = 0; early && h < 2; h++)
		ask(next[h], h, 0);
#pragma unroll 1
	for (int j0 = 0; j0 < BN / 8 && row0 < m && col0 + j0 * 8 < n; j0 += 4) {
		float t[16], v[2][8];
		ahead<E, 8> r[2];

#pragma unroll
		for (int h = 0; h < rows; h++) {
			if (!early) {
				ask(r[h], h, j0);
				continue;
			}
			r[h] = next[h];
			if (j0 + 4 < BN / 8)
				ask(next[h], h, j0 + 4);
		}
		pick<BN / 32>(j0 / 4, t, [&](int i) { return acc[i]; });
#pragma unroll
		for (int h = 0; h < 2; h++) {
#pragma unroll
			for (int i = 0; i < 8; i++)
				v[h][i] = t[i / 2 * 4 + h * 2 + i % 2];
			gather_quad(v[h]);
		}
#pragma unroll
		for (int h = 0; h < 2; h++) {
			if (h >= rows)
				ask(r[h], h, j0);
			if (row + 8 * h < m && col + j0 * 8 < n)
				r[h].store(e, v[h], z, row + 8 * h, col + j0 * 8);
		}
	}
}

/* Stores 64 rows and BN columns that a warpgroup holds as wgmma leaves them, the first at row, col of batch item z; sa,
 * sb: group maxima of the item's rows of both operands where SCALED.  If n is odd, 32 columns of a row at a time go
 * through `box`, so that a warp's accesses are coalesced: in wgmma's layout it would touch each sector of a 16-bit
 * result four times, and the loads of a few stores would not hide their latency. */
template <int BN, bool SCALED, bool FEW = false, class E> __device__ __forceinline__ void tile_end(const E &e,
	const unsigned *sa, const unsigned *sb, int z, int row, int col, int m, int n, const float (&acc)[BN / 2],
	float *box)
{
	const int many = SCALED && (FEW || BN > 128) ? 2 : 4; /* columns of 8 at once */
	const int high = 4 * many;                            /* rows at once where n is odd */
	const int lane = threadIdx.x & 31, row0 = row + (threadIdx.x / 32 % 4) * 16, col0 = col;
	float ua[2] = { 1.f, 1.f };

	row = row0 + lane / 4;
	col += lane % 4 * 2;
#pragma unroll
	for (int h = 0; SCALED && h < 2; h++)
		ua[h] = unscale(__ldg(sa + min(row + 8 * h, m - 1)));
	if (n & 1) {
		box += threadIdx.x / 32 % (FEW ? 16 : 8) * (16 * odd_end_row);
#pragma unroll 1
		for (int j0 = 0; j0 < BN / 8; j0 += 4) {
			const int c = col0 + j0 * 8 + lane;
			float us = 1.f, t[16];

			pick<BN / 32>(j0 / 4, t, [&](int i) { return acc[i]; });
			__syncwarp();
#pragma unroll
			for (int j = 0; j < 4; j++)
#pragma unroll
				for (int h = 0; h < 2; h++)
					*(float2 *)(box + (lane / 4 + 8 * h) * odd_end_row + j * 8 +
						lane % 4 * 2) = float2{ t[j * 4 + h * 2] * ua[h], t[j * 4 + h * 2 + 1] * ua[h] };
			__syncwarp();
			if (c >= n)
				continue;
			if (SCALED)
				us = unscale(__ldg(sb + c));
#pragma unroll
			for (int r0 = 0; r0 < 16; r0 += high) {
				const float *from = box + r0 * odd_end_row + lane;

				if (row0 + r0 + high <= m) { /* no branch in between: all loads come first */
					ahead<E, 1> r[high];
#pragma unroll
					for (int i = 0; i < high; i++)
						r[i].fetch(e, z, row0 + r0 + i, c);
#pragma unroll
					for (int i = 0; i < high; i++) {
						const float v[1] = { from[i * odd_end_row] * us };
						r[i].store(e, v, z, row0 + r0 + i, c);
					}
					continue;
				}
#pragma unroll 1
				for (int i = 0; row0 + r0 + i < m && i < high; i++) {
					const float v[1] = { from[i * odd_end_row] * us };
					ahead<E, 1> r;
					r.fetch(e, z, row0 + r0 + i, c);
					r.store(e, v, z, row0 + r0 + i, c);
				}
			}
		}
		return;
	}
	/* Load all operands of the stores (scales, a bias, a residual) first: one after the other they took 8 to 20 us a
	 * tile, longer than the products of a K of 128.  Where registers allow it those of the next columns are under way,
	 * too.  Beyond the last row or column what the last one reads: a load under a condition would keep the registers
	 * that it may leave as they were. */
	constexpr bool early = !SCALED && !FEW && BN <= 128;
	ahead<E, 2> next[2][many];
	auto ask = [&](ahead<E, 2>(&r)[2][many], int j0) {
#pragma unroll
		for (int h = 0; h < 2; h++)
#pragma unroll
			for (int j = 0; j < many; j++)
				r[h][j].fetch(e, z, min(row + 8 * h, m - 1), min(col + (j0 + j) * 8, n - 2));
	};

	if (early)
		ask(next, 0);
#pragma unroll 1
	for (int j0 = 0; j0 < BN / 8 && row0 < m && col0 + j0 * 8 < n; j0 += many) {
		float t[4 * many], v[2][many][2];
		ahead<E, 2> r[2][many];
		uint2 u[many];

		if (early) {
#pragma unroll
			for (int i = 0; i < 2 * many; i++)
				r[i / many][i % many] = next[i / many][i % many];
			if (j0 + many < BN / 8)
				ask(next, j0 + many);
		} else {
			ask(r, j0);
		}
#pragma unroll
		for (int j = 0; SCALED && j < many; j++)
			u[j] = __ldg((const uint2 *)(sb + min(col + (j0 + j) * 8, n - 2)));
		pick<BN / 8 / many>(j0 / many, t, [&](int i) { return acc[i]; });
#pragma unroll
		for (int j = 0; j < many; j++)
#pragma unroll
			for (int h = 0; h < 2; h++)
#pragma unroll
				for (int i = 0; i < 2; i++) {
					const float x = t[j * 4 + h * 2 + i];
					v[h][j][i] = SCALED ? x * ua[h] * unscale(i ? u[j].y : u[j].x) : x;
				}
		if (row + 8 < m && col + (j0 + many - 1) * 8 < n) { /* no branch in between */
#pragma unroll
			for (int i = 0; i < 2 * many; i++)
				r[i / many][i % many].store(e, v[i / many][i % many], z, row + i / many * 8, col + (j0 + i % many) * 8);
			continue;
		}
#pragma unroll
		for (int h = 0; h < 2; h++)
#pragma unroll
			for (int j = 0; j < many; j++)
				if (row + 8 * h < m && col + (j0 + j) * 8 < n)
					r[h][j].store(e, v[h][j], z, row + 8 * h, col + (j0 + j) * 8);
	}
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ONE: 1, the first operand is one matrix for all batch items; 2, the second one is; 3, both are. */
template <int BN, int STAGES, int KSTEP, int CLUSTER, int GROUP, bool SCALED, int WIDE, int PAIRS, int ONE, class E>
struct gemm_job {
	const ww_tensor_map *ta, *tb;
	const unsigned *sa, *sb;
	int m, n, kb, batch, rank;
	const E &e;
	enum { run = 1 };

	__device__ __forceinline__ int rows() const { return (m + 128 * CLUSTER - 1) / (128 * CLUSTER); }
	__device__ __forceinline__ int cols() const { return (n + BN - 1) / BN; }
	__device__ __forceinline__ int tiles() const { return rows() * cols() * batch; }
	__device__ __forceinline__ int steps(int) const { return kb; }

	__device__ __forceinline__ void where(int tile, int &b, int &row, int &col) const
	{
		int per = rows() * cols(), t = tile % per;
		int first = t / (GROUP * cols()) * GROUP, high = min(rows() - first, GROUP);
		b = tile / per;
		t -= first * cols();
		row = ((first + t % high) * CLUSTER + rank) * 128;
		col = t / high * BN;
	}

	__device__ __forceinline__ void load(int tile, int step, unsigned a, unsigned b, unsigned bar) const
	{
		int z, row, col;
		where(tile, z, row, col);
		tma_load3(a, ta, bar, step * KSTEP, row, ONE & 1 ? 0 : z);
		if (CLUSTER == 1)
			tma_load3(b, tb, bar, step * KSTEP, col, ONE & 2 ? 0 : z);
		else
			tma_load3_multicast(b + rank * (BN / CLUSTER) * 128, tb, bar, step * KSTEP, col + rank * (BN / CLUSTER),
				ONE & 2 ? 0 : z, (1 << CLUSTER) - 1);
	}

	__device__ __forceinline__ void done(int tile, int wg, float (&acc)[BN / 2]) const
	{
		int z, row, col;
		where(tile, z, row, col);
		if constexpr (WIDE == 8)
			tile_end_wide<BN, (PAIRS > 1)>(e, z, row + wg * 64, col, m, n, acc);
		else
			tile_end<BN, SCALED, (PAIRS > 1)>(e, sa + (ONE & 1 ? 0 : (long long)z * m),
				sb + (ONE & 2 ? 0 : (long long)z * n), z, row + wg * 64, col, m, n, acc, pipeline_extra<BN, STAGES>());
	}
};

template <int BN, int STAGES, int PROMOTE, int CLUSTER, int GROUP, int PAIRS = 1, int ONE = 0, class E>
__device__ __forceinline__ void gemm3(const ww_tensor_map &ta, const ww_tensor_map &tb, const unsigned *sa,
	const unsigned *sb, int m, int n, int kb, int batch, const E &e)
{
	gemm_job<BN, STAGES, 64, CLUSTER, GROUP, true, 2, PAIRS, ONE, E> job = { &ta, &tb, sa, sb, m, n, kb, batch,
		CLUSTER > 1 ? cluster_rank() : 0, e };
	pipeline<__half, STAGES, BN, 3, PROMOTE, CLUSTER, PAIRS>(job);
}

/* WIDE: columns of one store(), 2, or 8 where 8 divides n. */
template <class T, int BN, int STAGES, int CLUSTER, int GROUP, int WIDE = 2, int PAIRS = 1, int ONE = 0, class E>
__device__ __forceinline__ void gemm16(
	const ww_tensor_map &ta, const ww_tensor_map &tb, int m, int n, int kb, int batch, const E &e)
{
	gemm_job<BN, STAGES, 64, CLUSTER, GROUP, false, WIDE, PAIRS, ONE, E> job = { &ta, &tb, 0, 0, m, n, kb, batch,
		CLUSTER > 1 ? cluster_rank() : 0, e };
	pipeline<T, STAGES, BN, 1, 0, CLUSTER, PAIRS>(job);
}

#endif

/* f: float a(int b, int row, int k), float b(int b, int k, int col), and store().  Block 256 as 16 x 16 threads, each
 * with (BM / 16) x (BN / 16) results; K in slices of 16 through shared memory. */
template <int BM, int BN, class F> __device__ __forceinline__ void gemm_any(int m, int n, int k, int batch, const F &f)
{
	const int bk = 16, tm = BM / 16, tn = BN / 16;
	__shared__ float sa[bk][BM + 1], sb[bk][BN + 1];
	int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
	int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

	for (int z = blockIdx.z; z < batch; z += gridDim.z) {
		float acc[tm][tn];
#pragma unroll
		for (int i = 0; i < tm; i++)
#pragma unroll
			for (int j = 0; j < tn; j++)
				acc[i][j] = 0.f;
		for (int k0 = 0; k0 < k; k0 += bk) {
#pragma unroll
			for (int i = threadIdx.x; i < bk * BM; i += 256) {
				int kk = i % bk, r = i / bk;
				sa[kk][r] = row0 + r < m && k0 + kk < k ? f.a(z, row0 + r, k0 + kk) : 0.f;
			}
#pragma unroll
			for (int i = threadIdx.x; i < bk * BN; i += 256) {
				int kk = i / BN, c = i % BN;
				sb[kk][c] = col0 + c < n && k0 + kk < k ? f.b(z, k0 + kk, col0 + c) : 0.f;
			}
			__syncthreads();
#pragma unroll
			for (int kk = 0; kk < bk; kk++) {
				float a[tm], b[tn];
#pragma unroll
				for (int i = 0; i < tm; i++)
					a[i] = sa[kk][ty + 16 * i];
#pragma unroll
				for (int j = 0; j < tn; j++)
					b[j] = sb[kk][tx + 16 * j];
#pragma unroll
				for (int i = 0; i < tm; i++)
#pragma unroll
					for (int j = 0; j < tn; j++)
						acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
			}
			__syncthreads();
		}
#pragma unroll
		for (int i = 0; i < tm; i++)
#pragma unroll
			for (int j = 0; j < tn; j++) {
				float one[1] = { acc[i][j] };
				if (row0 + ty + 16 * i < m && col0 + tx + 16 * j < n)
					f.template store<1>(z, row0 + ty + 16 * i, col0 + tx + 16 * j, one);
			}
	}
}

} // namespace ww

#endif
