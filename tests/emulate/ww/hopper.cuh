/* ww/hopper.cuh for kernels on the cpu: mbarriers, tensor copies and wgmma as the cookbook's header of this name has
 * them.  A copy is done where it is issued, a product where its instruction stands; operands of wgmma are read from
 * shared memory as the descriptor says, with the 128-byte swizzle. */
#pragma once

#include <ww/vec.cuh>

/* What struct ww_tmap of the plan says, and where the buffer lies. */
struct ww_tensor_map {
	char *p;
	int dtype, bytes, rank, swizzle, fill;
	long long size[5], stride_bytes[5];
	int box[5], step[5];
};

namespace ww
{

typedef unsigned long long u64;

inline unsigned saddr(const void *p) { return __cvta_generic_to_shared(p); }
inline char *shared_at(unsigned at, unsigned rank = host::rank)
{
	return (host::beside.size > 1 ? host::beside.shared[rank] : host::dynamic_shared()) + (int)at;
}

struct mbarrier { /* 8 bytes */
	unsigned short count, pending;
	unsigned bytes : 31, phase : 1;
	void settle()
	{
		if (!pending && !bytes) {
			phase ^= 1;
			pending = count;
		}
	}
};
inline mbarrier &barrier_at(unsigned bar, unsigned rank = host::rank) { return *(mbarrier *)shared_at(bar, rank); }

inline void bar_init(unsigned bar, int count)
{
	barrier_at(bar) = { (unsigned short)count, (unsigned short)count, 0, 0 };
}
inline void bar_init_fence() {}
inline void bar_arrive_remote(unsigned bar, int rank)
{
	mbarrier &b = barrier_at(bar, (unsigned)rank);
	b.pending--;
	b.settle();
}
inline void bar_arrive(unsigned bar) { bar_arrive_remote(bar, (int)host::rank); }
inline void bar_expect(unsigned bar, unsigned bytes)
{
	mbarrier &b = barrier_at(bar);
	b.bytes += bytes;
	b.pending--;
	b.settle();
}
inline void bar_wait(unsigned bar, unsigned parity)
{
	host::wait_until([&] { return barrier_at(bar).phase != parity; });
}

inline void tma_prefetch_map(const ww_tensor_map *) {}

/* The box of `m` at c, row by row; what lies outside the tensor is zeros, or NaN. */
inline void tma_load(unsigned dst, const ww_tensor_map *m, unsigned bar, const int (&c)[5], unsigned rank)
{
	int n[5], i[5];
	unsigned at = dst;
	for (int d = 0; d < 5; d++)
		n[d] = d < m->rank ? (m->box[d] + m->step[d] - 1) / m->step[d] : 1;
	const unsigned line = 16u << m->swizzle, mask = line / 16 - 1;
	if (dst % 128 || !m->swizzle || n[0] * m->bytes != (int)line)
		host::fail("a tensor copy that the emulation does not have");
	for (i[4] = 0; i[4] < n[4]; i[4]++)
		for (i[3] = 0; i[3] < n[3]; i[3]++)
			for (i[2] = 0; i[2] < n[2]; i[2]++)
				for (i[1] = 0; i[1] < n[1]; i[1]++)
					for (i[0] = 0; i[0] < n[0]; i[0]++, at += m->bytes) {
						const char *from = m->p;
						bool inside = true;
						for (int d = 0; d < m->rank; d++) {
							const long long p = c[d] + (long long)i[d] * m->step[d];
							inside &= p >= 0 && p < m->size[d];
							from += p * m->stride_bytes[d];
						}
						char *to = shared_at(at ^ (at >> 7 & mask) << 4, rank);
						if (inside)
							memcpy(to, from, m->bytes);
						else
							memset(to, m->fill ? 0xff : 0, m->bytes);
					}
	mbarrier &b = barrier_at(bar, rank);
	b.bytes -= at - dst;
	b.settle();
}
inline void tma_load3(unsigned dst, const ww_tensor_map *m, unsigned bar, int c0, int c1, int c2)
{
	tma_load(dst, m, bar, { c0, c1, c2, 0, 0 }, host::rank);
}
inline void tma_load3_multicast(
	unsigned dst, const ww_tensor_map *m, unsigned bar, int c0, int c1, int c2, unsigned short mask)
{
	for (unsigned r = 0; r < host::beside.size; r++)
		if (mask >> r & 1)
			tma_load(dst, m, bar, { c0, c1, c2, 0, 0 }, r);
}
inline void tma_load4(unsigned dst, const ww_tensor_map *m, unsigned bar, int c0, int c1, int c2, int c3)
{
	tma_load(dst, m, bar, { c0, c1, c2, c3, 0 }, host::rank);
}
inline void tma_load5(unsigned dst, const ww_tensor_map *m, unsigned bar, int c0, int c1, int c2, int c3, int c4)
{
	tma_load(dst, m, bar, { c0, c1, c2, c3, c4 }, host::rank);
}

inline void bulk_load(unsigned dst, const void *from, unsigned bytes, unsigned bar)
{
	if (dst % 16 || (unsigned long long)from % 16 || bytes % 16 || !bytes)
		host::fail("a copy of bytes that are not whole vectors");
	for (unsigned i = 0; i < bytes; i += 16)
		*(uint4 *)shared_at(dst + i) = *(const uint4 *)((const char *)from + i);
	mbarrier &b = barrier_at(bar);
	b.bytes -= bytes;
	b.settle();
}

inline void send(float *p, int rank, float v, unsigned bar)
{
	*(float *)shared_at(saddr(p), (unsigned)rank) = v;
	mbarrier &b = barrier_at(bar, (unsigned)rank);
	b.bytes -= 4;
	b.settle();
}

inline void cluster_barrier() { host::wait_blocks(); }
inline int cluster_rank() { return (int)host::rank; }
template <int N> void regs_grow() {}
template <int N> void regs_shrink() {}

inline u64 desc(unsigned addr)
{
	return (u64)((addr & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
template <int COLUMNS> u64 desc_turned(unsigned addr, int group)
{
	return (u64)((addr & 0x3ffff) >> 4) | (u64)(group >> 4) << 16 | (u64)(COLUMNS * 16 >> 4) << 32 |
		(u64)(COLUMNS == 64 ? 1 : 2) << 62;
}
/* Products are most of what such a kernel costs here, whatever else is optimised. */
#define OFTEN __attribute__((optimize("O3")))

/* Row `row` of the operand that a descriptor names: 16 elements of 16 bits, in two pieces of 16 bytes. */
template <class T> OFTEN void wgmma_row(u64 desc, unsigned row, float (&v)[16])
{
	static_assert(sizeof(T) == 2);
	for (unsigned k = 0; k < 16; k += 8) {
		const unsigned at = (unsigned)(desc & 0x3fff) * 16 + row / 8 * 1024 + row % 8 * 128 + k * 2;
		const T *piece = (const T *)shared_at(at ^ (at >> 7 & 7) << 4);
		for (unsigned e = 0; e < 8; e++)
			v[k + e] = to_float(piece[e]);
	}
}
/* Its element (row, k) where rows lie along memory, in groups as long as the swizzle's lines. */
template <class T> float wgmma_element_turned(u64 desc, unsigned row, unsigned k)
{
	const unsigned line = desc >> 62 == 1 ? 128 : 64, group = line / (unsigned)sizeof(T), mask = line / 16 - 1;
	const unsigned step = (unsigned)(desc >> 16 & 0x3fff) * 16, eight = (unsigned)(desc >> 32 & 0x3fff) * 16;
	const unsigned at = (unsigned)(desc & 0x3fff) * 16 + row / group * step + row % group * (unsigned)sizeof(T) +
		k / 8 * eight + k % 8 * line;
	return to_float(*(const T *)shared_at(at ^ (at >> 7 & mask) << 4));
}

inline void wgmma_begin() { host::wait_warp(); }
inline void wgmma_commit() {}
template <int N> void wgmma_wait() { host::wait_warp(); } /* what one lane lets go of all have read */
template <class T, int N> void wgmma_pin(T (&)[N]) {}

/* D (64, N): of each warp 16 rows, in fragments of 8 columns as ww/mma.cuh has them. */
template <int N> struct wgmma {
	template <class T> static void ss(float (&d)[N / 2], u64 a, u64 b, int keep, T *)
	{
		float av[2][16];
		for (unsigned h = 0; h < 2; h++)
			wgmma_row<T>(a, row() + 8 * h, av[h]);
		add<T>(d, av, b, keep);
	}
	static void rs(float (&d)[N / 2], const unsigned (&a)[4], u64 b, int keep)
	{
		float av[2][16];
		gather<__half>(av, a);
		add<__half>(d, av, b, keep);
	}
	template <class T> static void rs_turned(float (&d)[N / 2], const unsigned (&a)[4], u64 b, T *)
	{
		float av[2][16];
		gather<T>(av, a);
		add<T, true>(d, av, b, 1);
	}

	/* This thread's two rows of A, of which every lane of its quad has a part. */
	template <class T> static void gather(float (&to)[2][16], const unsigned (&a)[4])
	{
		for (unsigned k = 0; k < 16; k++)
			for (unsigned h = 0; h < 2; h++) {
				const unsigned from = threadIdx.x % 32 / 4 * 4 + k % 8 / 2;
				const unsigned w = host_shuffle(a[k / 8 * 2 + h], from);
				const unsigned short bits = (unsigned short)(w >> 16 * (k % 2));
				T v;
				memcpy(&v, &bits, sizeof(v));
				to[h][k] = to_float(v);
			}
	}
	static unsigned row() { return threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4; }
	template <class T, bool TURNED = false>
	OFTEN static void add(float (&d)[N / 2], const float (&a)[2][16], u64 b, int keep)
	{
		for (unsigned j = 0; j < N / 4; j++) { /* a column of D, of which this thread has two rows */
			const unsigned column = j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2;
			float bv[16];
			if constexpr (TURNED)
				for (unsigned k = 0; k < 16; k++)
					bv[k] = wgmma_element_turned<T>(b, column, k);
			else
				wgmma_row<T>(b, column, bv);
			for (unsigned h = 0; h < 2; h++) {
				float &to = d[j / 2 * 4 + h * 2 + j % 2], sum = keep ? to : 0.f;
				for (unsigned k = 0; k < 16; k++)
					sum += a[h][k] * bv[k];
				to = sum;
			}
		}
	}
};

} // namespace ww
