/* ring.cuh - long rows in the shared memory of a cluster's blocks, each brought while the rows before it are done.
 *
 * Problem: a softmax or a norm needs its row two or three times.  Rows that no block's registers hold were shared by a
 * cluster, whose blocks load, wait for each other, and store, so that memory is idle for half of the time (1 MB a row:
 * 3.0 MB/us on an H200), or were read again in each pass.
 *
 * A cluster of CL blocks goes through rows [first, end).  Each block has a part of SIZE elements of every row, and room
 * for DEPTH of them, a ring.  One thread asks the copy engine for a part (cp.async.bulk, counted by an mbarrier) as
 * soon as the row that was there has been stored, so the copies of DEPTH - 1 rows are under way while all threads go
 * through the one that has come.
 *
 * Vectors of 16 bytes are laid over the tensor, not over the row: row r begins r * cols % V elements behind one.  So
 * rows of any length are copied and stored by whole vectors.  What sticks out of them at both ends, less than a vector
 * each, is done element by element: edges.
 *
 * The blocks of a cluster send what each has of a reduction to all others (st.async), and each waits for what it gets:
 * the barrier of a cluster would also wait until the row before is stored.  There are two places for each of REDS
 * reductions, used by turns: who has a row's results knows that all have read those of the row before.
 *
 *	ww::ring<float, CL, DEPTH, VECTORS, REDS> ring(x, rows, cols, first, end, rank);
 *	for (long long row = first; row < end; row++) {
 *		const float *x = ring.take();                      // x[c] is column c, of this block's columns
 *		for (long long c = ring.begin + lane * V; c < ring.whole; c += T * V)   // whole vectors
 *		for (int i = lane; i < ring.edges; i += T)         // columns ring.edge(i)
 *		const float *each = ring.share(0, sum);            // of reduction 0: the sums of all CL blocks
 *		ring.release();                                    // all threads; x may be overwritten
 *	}
 *
 * Rejected: parts of a row in registers (what comes meanwhile needs as many again); copies by all threads (each of them
 * has a place to compute, and waits); clusters that stay for all rows (one that has no room yet would begin when all
 * others have ended).  At the end: ring.leave(). */
#ifndef WW_RING_CUH
#define WW_RING_CUH

#include <ww/hopper.cuh>
#include <ww/mma.cuh>

namespace ww
{

template <class T, int CL, int DEPTH, int VECTORS, int REDS> struct ring {
	enum : int { V = 16 / (int)sizeof(T), SIZE = VECTORS * V };

	const T *x;
	T *room;
	float *box;           /* what blocks sent: two turns of REDS reductions of CL blocks */
	unsigned bars, boxes; /* mbarriers, 8 bytes each: of parts, DEPTH; of what was sent, 2 REDS */
	long long rows, cols, row, end;
	int rank, slot, phase, turn;
	/* of the row that was taken: columns of whole vectors of this block, and how many others it has, of which
	 * `ahead` are the row's first */
	long long begin, whole;
	int edges, ahead;

	__device__ __forceinline__ ring(
		const T *x, long long rows, long long cols, long long first, long long end, int rank)
		: x(x), room((T *)dynamic_shared()), box((float *)((char *)(room + DEPTH * SIZE) + 8 * (DEPTH + 2 * REDS))),
		  bars(saddr(room + DEPTH * SIZE)), boxes(bars + 8 * DEPTH), rows(rows), cols(cols), row(first), end(end),
		  rank(rank), slot(0), phase(0), turn(0)
	{
		if (threadIdx.x == 0) {
#pragma unroll 1
			for (int i = 0; i < DEPTH + 2 * REDS; i++)
				bar_init(bars + 8 * i, 1);
			bar_init_fence();
#pragma unroll 1
			for (int i = 0; i < DEPTH; i++)
				copy(first + i, i);
		}
		__syncthreads();
		if (CL > 1)
			cluster_sync();
	}

	/* Elements between the vector that row r begins in and the row. */
	__device__ __forceinline__ int shift(long long r) const { return (int)(r * cols % V); }

	/* One thread: have the block's part of row r come.  The last row may end within a vector, beyond which the tensor
	 * has nothing: these elements are copied as they are. */
	__device__ __forceinline__ void copy(long long r, int to)
	{
		if (r >= end)
			return;
		const long long from = r * cols - shift(r) + (long long)rank * SIZE, total = rows * cols;
		const long long last = (r * cols + cols + V - 1) / V * V, stop = from + SIZE < last ? from + SIZE : last;
		const int n = (int)((stop < total ? stop : total) - from), full = n > 0 ? n / V * V : 0;
		T *part = room + to * SIZE;

#pragma unroll 1
		for (int i = full; i < n; i++)
			part[i] = x[from + i];
		if (full) {
			bar_expect(bars + 8 * to, full * (unsigned)sizeof(T));
			bulk_load(saddr(part), x + from, full * (unsigned)sizeof(T), bars + 8 * to);
		} else {
			bar_arrive(bars + 8 * to);
		}
	}

	/* Wait for the next row.  Returns where its column 0 would be. */
	__device__ __forceinline__ const T *take()
	{
		const int lead = shift(row), head = lead ? V - lead : 0; /* the columns ahead of the first whole vector */
		const long long aligned = head + (cols - head) / V * V;
		const long long from = (long long)rank * SIZE - lead, to = from + SIZE;

		begin = from < head ? head : from;
		whole = to < aligned ? to : aligned;
		ahead = rank ? 0 : head;
		edges = ahead + (from <= aligned && aligned < to ? (int)(cols - aligned) : 0);
		bar_wait(bars + 8 * slot, phase);
		return room + slot * SIZE - from;
	}

	__device__ __forceinline__ long long edge(int i) const { return i < ahead ? i : cols - edges + i; }

	/* All threads, v being the same in all of a block: what each block has of reduction `which` of this row. */
	__device__ __forceinline__ const float *share(int which, float v)
	{
		const int place = turn % 2 * REDS + which;

		if (threadIdx.x < CL)
			send(box + place * CL + rank, (int)threadIdx.x, v, boxes + 8 * place);
		if (threadIdx.x == 0)
			bar_expect(boxes + 8 * place, CL * 4);
		bar_wait(boxes + 8 * place, turn / 2 % 2);
		return box + place * CL;
	}

	__device__ __forceinline__ void release()
	{
		__syncthreads();
		if (threadIdx.x == 0)
			copy(row + DEPTH, slot);
		row++;
		turn++;
		slot = slot + 1 < DEPTH ? slot + 1 : 0;
		phase ^= slot == 0;
	}

	/* No block ends while another one may send to it. */
	__device__ __forceinline__ void leave()
	{
		if (CL > 1)
			cluster_sync();
	}
};

} // namespace ww

#endif
