/* ww/mma.cuh for kernels on the cpu: a warp's products as the fragments' definition has them, of what every lane hands
 * over.  Clusters are not there. */
#pragma once

#include <ww/vec.cuh>

namespace ww
{

inline unsigned mma_a[1024][4], mma_b[1024][2];
inline const unsigned *mma_row[1024];

/* Elements of 4 / W bytes: W of them a word, slot s of a lane's words is k (s / W) * 4 W + t W + s % W. */
template <int W, class F> void mma_lanes(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], F of)
{
	const unsigned me = threadIdx.x, g = me % 32 / 4, t = me % 4, warp = me / 32 * 32;
	float add[4] = { 0, 0, 0, 0 };

	memcpy(mma_a[me], a, sizeof(a));
	memcpy(mma_b[me], b, sizeof(b));
	host::yield();
	for (int i = 0; i < 4; i++)
		for (unsigned s = 0; s < 2 * 4 * W; s++) { /* half of k, lane, element of the word */
			const unsigned half = s / (4 * W), lane = s / W % 4, e = s % W;
			add[i] += of(mma_a[warp + g * 4 + lane][half * 2 + i / 2], e) *
				of(mma_b[warp + (2 * t + i % 2) * 4 + lane][half], e);
		}
	for (int i = 0; i < 4; i++)
		d[i] += add[i];
	host::yield();
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
	host::yield();
	for (int i = 0; i < 4; i++) {
		const auto at = [&](unsigned line, unsigned place) {
			return (unsigned)((const unsigned short *)mma_row[warp + i * 8 + line])[place];
		};
		r[i] = TURNED ? at(2 * t, g) | at(2 * t + 1, g) << 16 : at(g, 2 * t) | at(g, 2 * t + 1) << 16;
	}
	host::yield();
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

inline float *dynamic_shared()
{
	alignas(16) static float all[232448 / 4];
	return all;
}

void mma_cluster_barrier();
void cluster_load2(float (&v)[2], const float *p, int rank);

} // namespace ww
