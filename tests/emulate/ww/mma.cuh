/* ww/mma.cuh for kernels on the cpu: a warp's products as the fragments' definition has them, of what every lane hands
 * over. */
#pragma once

#include <ww/vec.cuh>

namespace ww
{

/* What a warp multiplies: rows of A, columns of B.  Two of them, for none is written while another lane still reads. */
struct mma_operands {
	float a[16][16], b[8][16];
};
inline thread_local mma_operands mma_warp[2][32];
inline thread_local const unsigned *mma_row[1024];

/* Elements of 4 / W bytes: W of them a word, element e of lane t's word in the first or second half of k is
 * k = (half * 4 + t) * W + e. */
template <int W, class F> void mma_lanes(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], F of)
{
	const unsigned me = threadIdx.x, g = me % 32 / 4, t = me % 4;
	mma_operands &m = mma_warp[host::me.parity[me] ^= 1][me / 32];

	for (unsigned half = 0; half < 2; half++)
		for (unsigned e = 0; e < W; e++) {
			const unsigned k = (half * 4 + t) * W + e;
			m.a[g][k] = of(a[half * 2], e);
			m.a[g + 8][k] = of(a[half * 2 + 1], e);
			m.b[g][k] = of(b[half], e);
		}
	host::wait_warp();
	float add[4] = { 0, 0, 0, 0 };
	for (unsigned k = 0; k < 8 * W; k++)
		for (unsigned i = 0; i < 4; i++)
			add[i] += m.a[g + i / 2 * 8][k] * m.b[2 * t + i % 2][k];
	for (unsigned i = 0; i < 4; i++)
		d[i] += add[i];
}

inline void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
	mma_lanes<1>(d, a, b, [](unsigned w, unsigned) { return __uint_as_float(w & 0xffffe000u); });
}
template <class T> void mma_16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], T *)
{
	mma_lanes<2>(d, a, b, [](unsigned w, unsigned e) {
		const unsigned short bits = (unsigned short)(w >> 16 * e);
		T v;
		memcpy(&v, &bits, sizeof(v));
		return to_float(v);
	});
}

template <bool TURNED> void mma_load(unsigned (&r)[4], const void *row)
{
	const unsigned me = threadIdx.x, g = me % 32 / 4, t = me % 4, warp = me / 32 * 32;

	mma_row[me] = (const unsigned *)row;
	host::wait_warp();
	for (int i = 0; i < 4; i++) {
		const auto at = [&](unsigned line, unsigned place) {
			return (unsigned)((const unsigned short *)mma_row[warp + i * 8 + line])[place];
		};
		r[i] = TURNED ? at(2 * t, g) | at(2 * t + 1, g) << 16 : at(g, 2 * t) | at(g, 2 * t + 1) << 16;
	}
	host::wait_warp();
}

template <int BYTES> void copy_start(void *to, const void *from, int valid)
{
	if ((uintptr_t)to % BYTES || (valid && (uintptr_t)from % BYTES))
		abort();
	memset(to, 0, BYTES);
	memcpy(to, from, valid);
}
inline void copy_commit() {}
template <int LEFT> void copy_wait() {}

inline void mma_cluster_barrier() { host::wait_blocks(); }
inline void cluster_load2(float (&v)[2], const float *p, int rank)
{
	memcpy(v, host::beside.shared[rank] + ((const char *)p - host::dynamic_shared()), sizeof(v));
}

} // namespace ww
