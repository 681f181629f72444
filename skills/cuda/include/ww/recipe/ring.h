/* recipe/ring.h - the plan half of <ww/ring.cuh>: how many blocks share a long row, and how many rows they hold at
 * once.  The planner decides by the same function whether rows are held so.  Sizes follow from what a multiprocessor's
 * shared memory has room for; on an H200 softmax of 4,096 x 393,216 takes 3,538 us, memory needs 3,070. */
#ifndef WW_RECIPE_RING_H
#define WW_RECIPE_RING_H

/* Reductions of a row, at most, and the shared memory that they need. */
enum { WW_RING_REDUCTIONS = 8, WW_RING_SHARED = WW_RING_REDUCTIONS * 2 * (8 + 16 * 4) };

struct ww_ring {
	int blocks;      /* of a cluster that has a row; 0: rows are too long */
	int depth;       /* rows that it holds at once, the later ones while they come */
	int vectors;     /* of 16 bytes, of a block's part of a row */
	int each;        /* rows of a cluster, one behind the other; at least 1 */
	long long bytes; /* of shared memory of a block */
};

/* Rows of so many elements of `itemsize` bytes, on a device with so many multiprocessors and bytes of shared memory of
 * a block.  A row is shared by as few blocks as leave room for a second one: while one is reduced and stored the next
 * one comes.  A cluster of 16 blocks needs groups of as many multiprocessors, which only whole devices have. */
static struct ww_ring ww_ring_of(long long rows, long long cols, int itemsize, int sms, long long shared)
{
	enum { STATIC = 1024, DEEPEST = 3, TURNS = 8, LEAST = 4, MOST = 32 };
	const struct ww_ring none = { .each = 1 };
	const long long v = 16 / itemsize, all = (cols + v - 1 + v - 1) / v; /* a row may begin anywhere in a vector */

	for (int blocks = 1; blocks <= (sms >= 128 ? 16 : 8); blocks *= 2) {
		const long long vectors = (all + blocks - 1) / blocks,
						depth = (shared - STATIC - WW_RING_SHARED) / (16 * vectors + 8);
		const long long clusters = sms / blocks > 0 ? sms / blocks : 1, turn = rows / (TURNS * clusters);
		struct ww_ring r = { blocks, depth < DEEPEST ? (int)depth : DEEPEST, (int)vectors, 0, 0 };

		if (depth < 2)
			continue;
		r.each = turn < LEAST ? LEAST : turn < MOST ? (int)turn : MOST;
		r.bytes = r.depth * (16 * vectors + 8) + WW_RING_SHARED;
		return r;
	}
	return none;
}

/* Are there rows enough that clusters have the next one under way most of the time? */
static inline int ww_ring_is_full(const struct ww_ring *r, long long rows, int sms)
{
	enum { AHEAD = 16 };

	return r->blocks > 0 && rows >= AHEAD * (sms / r->blocks > 0 ? sms / r->blocks : 1);
}

#endif
