/* compare.cu - how far an output of a candidate is from the reference: one cooperative launch a comparison.
 *
 * bridge/wwbridge/parts.py says what parts of a tensor are and computes the same with PyTorch's operators, in 15
 * launches and more; between two of them a device that several processes share goes over to another one.
 * bridge/wwbridge/fused.py launches these kernels, and makes `struct plan` and `struct kind`.
 *
 * First the blocks read each element once: sum of squares of each block of consecutive elements, the whole, and the
 * largest.  Tiles read each again for the sums over their rows and columns (from the last cache, mostly).  Behind a
 * barrier over the grid each part of each kind is a sum over those sums.  The last block to end adds up and answers.
 * All sums have a fixed order: the same values and grid give the same bits.  NaN stays NaN, in sums and in the largest.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <ww/barrier.cuh>

enum { THREADS = 256, WARPS = THREADS / 32, ROWS_AT_ONCE = 4, LOADS = 8 };
enum source { ROWS, COLUMNS, ELEMENTS }; /* of what a kind's parts are made: sums of tiles, or squares themselves */
enum state { BARRIER, ENDED, BEYOND };

/* Group g of a kind: `per` adjacent indices, the last group with the rest, or (apart) each groups-th index from g on.
 * Index s stands for the entries o * by_outer + s / wrap * by_wrap + s % wrap * by_index + i, of all o below outer and
 * i below inner. */
struct kind {
	unsigned source, apart, team; /* team: threads a group: 1, 32 or THREADS */
	unsigned first, groups, size, per;
	unsigned outer, inner, by_outer, by_wrap, by_index, wrap;
	unsigned item; /* items of work of the kinds before */
};

struct plan {
	const void *found;
	const double *exact, *limit2; /* exact, or NULL: zeros; limit2: of each part, or NULL */
	double *sums;                 /* of each part, or NULL: not wanted */
	const unsigned *starts;       /* of each block of elements, and the end */
	const kind *kinds;
	double *rows, *columns; /* of tiles: (row, tile in it), (tile in a column, column) */
	double *each;           /* of each thread block: the whole, the largest */
	unsigned *state;        /* zeros, before and after */
	double *answer;         /* memory of the host: sum of squares, the largest, whether a part is beyond its limit */
	unsigned n_blocks, first_block, n_kinds, items;
	unsigned lead, mid, cols;     /* the tensor: (lead, mid, cols) */
	unsigned tiles, down, across; /* down: of them in mid; across: in cols */
	unsigned rounds, lanes;       /* lanes: of a warp beside each other in a row */
};

static __device__ __forceinline__ double value(float x) { return x; }
static __device__ __forceinline__ double value(double x) { return x; }
static __device__ __forceinline__ double value(__half x) { return __half2float(x); }
static __device__ __forceinline__ double value(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T> static __device__ __forceinline__ double off(const plan &p, unsigned i)
{
	return value(((const T *)p.found)[i]) - (p.exact ? p.exact[i] : 0);
}

static __device__ __forceinline__ double larger(double a, double b) { return a != a || b <= a ? a : b; }

static __device__ __forceinline__ double warp_sum(double v, unsigned lanes)
{
	for (unsigned m = lanes / 2; m; m /= 2)
		v += __shfl_xor_sync(0xffffffffu, v, (int)m);
	return v;
}

/* Sums of squares of the rows and columns of tile t; V: columns a lane. */
template <class T, int V> static __device__ void tile(const plan &p, unsigned t, double *shared)
{
	const unsigned lane = threadIdx.x % 32, column = lane % p.lanes, width = p.lanes * V;
	const unsigned row = threadIdx.x / p.lanes, rows = THREADS / p.lanes;
	const unsigned x = t % p.across, y = t / p.across % p.down, l = t / p.across / p.down;
	double down[V] = {};

	for (unsigned n = 0; n < p.rounds; n++) {
		double d[ROWS_AT_ONCE][V];
#pragma unroll
		for (int k = 0; k < ROWS_AT_ONCE; k++)
#pragma unroll
			for (int v = 0; v < V; v++) {
				const unsigned r = ((y * p.rounds + n) * ROWS_AT_ONCE + k) * rows + row;
				const unsigned c = x * width + v * p.lanes + column;
				d[k][v] = r < p.mid && c < p.cols ? off<T>(p, (l * p.mid + r) * p.cols + c) : 0;
			}
#pragma unroll
		for (int k = 0; k < ROWS_AT_ONCE; k++) {
			const unsigned r = ((y * p.rounds + n) * ROWS_AT_ONCE + k) * rows + row;
			double sum = 0;
#pragma unroll
			for (int v = 0; v < V; v++) {
				const double square = d[k][v] * d[k][v];
				sum += square;
				down[v] += square;
			}
			sum = warp_sum(sum, p.lanes);
			if (column == 0 && r < p.mid)
				p.rows[(l * p.mid + r) * p.across + x] = sum;
		}
	}
	__syncthreads(); /* nobody reads the last tile's any more */
#pragma unroll
	for (int v = 0; v < V; v++)
		shared[row * width + v * p.lanes + column] = down[v];
	__syncthreads();
	for (unsigned k = threadIdx.x; k < width && x * width + k < p.cols; k += THREADS) {
		double sum = 0;
		for (unsigned r = 0; r < rows; r++)
			sum += shared[r * width + k];
		p.columns[(l * p.down + y) * p.cols + x * width + k] = sum;
	}
}

/* The blocks of elements of this thread block; returns whether one is beyond its limit. */
template <class T> static __device__ bool elements(const plan &p, double *whole, double *largest)
{
	const unsigned lane = threadIdx.x % 32;
	bool beyond = false;

	for (unsigned b = blockIdx.x * WARPS + threadIdx.x / 32; b < p.n_blocks; b += gridDim.x * WARPS) {
		const unsigned end = p.starts[b + 1];
		double sum = 0;
		for (unsigned i = p.starts[b] + lane; i < end; i += 32 * LOADS) {
			double d[LOADS];
#pragma unroll
			for (int k = 0; k < LOADS; k++)
				d[k] = end - i > 32u * k ? off<T>(p, i + 32 * k) : 0;
#pragma unroll
			for (int k = 0; k < LOADS; k++) {
				sum += d[k] * d[k];
				*largest = larger(*largest, fabs(d[k]));
			}
		}
		sum = warp_sum(sum, 32);
		*whole += sum;
		beyond |= p.limit2 && sum > p.limit2[p.first_block + b];
		if (p.sums && lane == 0)
			p.sums[p.first_block + b] = sum;
	}
	return beyond;
}

/* The entries of group g of a kind that fall to thread `rank` of its team. */
template <class T> static __device__ double share(const plan &p, const kind &k, unsigned g, unsigned rank)
{
	const unsigned last = g == k.groups - 1;
	const unsigned members = k.apart ? (k.size - g - 1) / k.groups + 1 : last ? k.size - g * k.per : k.per;
	const unsigned n = members * k.outer * k.inner;
	double sum = 0;

#pragma unroll 4
	for (unsigned e = rank; e < n; e += k.team) {
		const unsigned i = e % k.inner, m = e / k.inner % members, o = e / k.inner / members;
		const unsigned s = k.apart ? g + m * k.groups : g * k.per + m;
		const unsigned at = o * k.by_outer + s / k.wrap * k.by_wrap + s % k.wrap * k.by_index + i;
		if (k.source == ELEMENTS) {
			const double d = off<T>(p, at);
			sum += d * d;
		} else {
			sum += __ldcg((k.source == ROWS ? p.rows : p.columns) + at);
		}
	}
	return sum;
}

/* The parts of all kinds, each by one team; returns whether one is beyond its limit. */
template <class T> static __device__ bool parts(const plan &p, double *shared)
{
	bool beyond = false;
	unsigned at = 0;

	for (unsigned item = blockIdx.x; item < p.items; item += gridDim.x) {
		while (at + 1 < p.n_kinds && item >= p.kinds[at + 1].item)
			at++;
		const kind k = p.kinds[at];
		const unsigned g = (item - k.item) * (THREADS / k.team) + threadIdx.x / k.team;
		double sum = g < k.groups ? share<T>(p, k, g, threadIdx.x % k.team) : 0;
		if (k.team >= 32)
			sum = warp_sum(sum, 32);
		if (k.team == THREADS) {
			__syncthreads();
			if (threadIdx.x % 32 == 0)
				shared[threadIdx.x / 32] = sum;
			__syncthreads();
			sum = 0;
			for (int w = 0; w < WARPS; w++)
				sum += shared[w];
		}
		if (g >= k.groups || threadIdx.x % k.team)
			continue;
		beyond |= p.limit2 && sum > p.limit2[k.first + g];
		if (p.sums)
			p.sums[k.first + g] = sum;
	}
	return beyond;
}

/* The sum and the largest of a thread's values, over the thread block; thread 0 has both. */
static __device__ void gather(double *whole, double *largest, double *shared)
{
	__syncthreads();
	shared[threadIdx.x] = *whole;
	shared[THREADS + threadIdx.x] = *largest;
	for (unsigned m = THREADS / 2; m; m /= 2) {
		__syncthreads();
		if (threadIdx.x >= m)
			continue;
		shared[threadIdx.x] += shared[threadIdx.x + m];
		shared[THREADS + threadIdx.x] = larger(shared[THREADS + threadIdx.x], shared[THREADS + threadIdx.x + m]);
	}
	*whole = shared[threadIdx.x];
	*largest = shared[THREADS + threadIdx.x];
}

template <class T> static __device__ void compare(const plan &p)
{
	__shared__ double shared[THREADS * ROWS_AT_ONCE];
	__shared__ unsigned last;
	double whole = 0, largest = 0;

	bool beyond = elements<T>(p, &whole, &largest);
	if (threadIdx.x % 32)
		whole = 0; /* a warp's lanes all have its sum */
	gather(&whole, &largest, shared);
	if (threadIdx.x == 0) {
		p.each[2 * blockIdx.x] = whole;
		p.each[2 * blockIdx.x + 1] = largest;
	}
	for (unsigned t = blockIdx.x; t < p.tiles; t += gridDim.x)
		if (p.lanes == 32)
			tile<T, ROWS_AT_ONCE>(p, t, shared);
		else
			tile<T, 1>(p, t, shared);
	if (p.n_kinds) {
		ww::grid_barrier(&p.state[BARRIER]);
		beyond |= parts<T>(p, shared);
	}
	if (beyond)
		atomicMax(&p.state[BEYOND], 1u);
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		last = atomicAdd(&p.state[ENDED], 1u) == gridDim.x - 1;
	__syncthreads();
	if (!last)
		return;
	__threadfence();
	whole = largest = 0;
	for (unsigned b = threadIdx.x; b < gridDim.x; b += THREADS) {
		whole += __ldcg(&p.each[2 * b]);
		largest = larger(largest, __ldcg(&p.each[2 * b + 1]));
	}
	gather(&whole, &largest, shared);
	if (threadIdx.x)
		return;
	p.answer[0] = whole;
	p.answer[1] = largest;
	p.answer[2] = __ldcg(&p.state[BEYOND]);
	for (int i = BARRIER; i <= BEYOND; i++)
		p.state[i] = 0;
}

#define COMPARE(name, T)                                                                                               \
	extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ plan p) { compare<T>(p); }
COMPARE(compare_float32, float)
COMPARE(compare_float64, double)
COMPARE(compare_float16, __half)
COMPARE(compare_bfloat16, __nv_bfloat16)
