/* device.h - CUDA's words for the host's compiler: kernels of the planner run on the cpu, block after block.
 *
 * A thread is a fiber.  It runs until it waits (at a barrier, for the other lanes of its warp, for a copy), then the
 * next one runs; who finds that he waits no longer goes on.  Shared memory is thread_local: a block is a thread of the
 * system where it must run beside others, in a cluster or a cooperative launch.  They take turns: one runs until none
 * of its fibers can go on.  A kernel that waits for ever is found out when no block can.
 *
 * What is not of C++ (PTX) is in headers of the cookbook that have a counterpart of the same name below ww/.  They say
 * what an instruction does, at once where it is asynchronous: a race is not seen.  Half precision is a type without
 * arithmetic of its own.
 *
 * Nothing of C++'s library is included but <cmath>: <functional> and <vector> took half of each compilation. */
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ thread_local
#define __restrict__ __restrict
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
	unsigned x, y, z;
};
/* Vectors are copied as one word, so that count.cc meets one access. */
#define VECTOR(name, bytes, word, members, args, ...)                                                                  \
	struct alignas(bytes) name {                                                                                       \
		members;                                                                                                       \
		name() = default;                                                                                              \
		name args : __VA_ARGS__ {}                                                                                     \
		name(const name &o) { *(word *)this = *(const word *)&o; }                                                     \
		name &operator=(const name &o) { return *(word *)this = *(const word *)&o, *this; }                            \
	}
VECTOR(uint2, 8, uint64_t, unsigned x; unsigned y, (unsigned a, unsigned b), x(a), y(b));
VECTOR(uint4, 16, unsigned __int128, unsigned x; unsigned y; unsigned z;
	unsigned w, (unsigned a, unsigned b, unsigned c, unsigned d), x(a), y(b), z(c), w(d));
struct alignas(8) float2 {
	float x, y;
};
VECTOR(float4, 16, unsigned __int128, float x; float y; float z;
	float w, (float a, float b, float c, float d), x(a), y(b), z(c), w(d));
inline thread_local dim3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace host
{
enum { MAX_THREADS = 1024, MAX_BLOCKS = 1024, STACK_BYTES = 1 << 16 };

/* Where threads wait for each other.  Whoever has ended is waited for no longer. */
struct gate {
	unsigned waiting, alive, opened;
	void open_if_all()
	{
		if (waiting && waiting == alive) {
			waiting = 0;
			opened++;
		}
	}
};
struct block_state {
	void *at[MAX_THREADS], *scheduler; /* stack pointers */
	char *stacks;
	gate all, warp[MAX_THREADS / 32], some[16];
	bool done[MAX_THREADS];
	int parity[MAX_THREADS];
	uint64_t slot[2][MAX_THREADS]; /* of shuffles, by parity */
	unsigned running;
	bool moved, moved_in_turn; /* since the round, the turn began */
};
inline thread_local block_state me;
inline void (*call)(const void *); /* the kernel with its arguments, and where both lie */
inline const void *body;
inline void (*runs)(int); /* count.h: a thread's own code ends or goes on */

/* Blocks that run beside each other. */
struct together {
	unsigned size, turn, idle, ended; /* idle: turns in a row in which nobody moved */
	gate all;                         /* of blocks */
	char *shared[MAX_BLOCKS];         /* the dynamic shared memory of each */
	pthread_mutex_t lock;
	pthread_cond_t turned;
};
inline together beside = { .lock = PTHREAD_MUTEX_INITIALIZER, .turned = PTHREAD_COND_INITIALIZER };
inline thread_local unsigned rank; /* of this block among them */

[[noreturn]] inline void fail(const char *why)
{
	fprintf(stderr, "%s\n", why);
	_Exit(1);
}

/* Saves what a function must keep on the stack, and goes on with the other one. */
extern "C" void ww_switch(void **from, void *to);
asm(R"(
	.text
	.type ww_switch, @function
ww_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
)");

/* Let the others run. */
__attribute__((noinline)) inline void yield()
{
	const unsigned i = me.running;
	ww_switch(&me.at[i], me.scheduler);
}

inline void wait(gate &g)
{
	if (runs)
		runs(0);
	const unsigned before = g.opened;
	g.waiting++;
	g.open_if_all();
	while (g.opened == before)
		yield();
	me.moved = true;
	if (runs)
		runs(1);
}

template <class F> void wait_until(const F &holds)
{
	while (!holds())
		yield();
	me.moved = true;
}

inline void wait_warp() { wait(me.warp[threadIdx.x / 32]); }

__attribute__((noinline)) inline void start()
{
	call(body);
	const unsigned i = me.running;
	me.done[i] = me.moved = true;
	for (gate *g : { &me.all, &me.warp[i / 32] }) {
		g->alive--;
		g->open_if_all();
	}
	yield();
}

inline void next_turn()
{
	beside.turn = (beside.turn + 1) % beside.size;
	pthread_cond_broadcast(&beside.turned);
}

/* The other blocks' turn, once nobody here can go on; ended: for good. */
inline void pass(bool ended)
{
	if (beside.size == 1) {
		if (!ended)
			fail("the kernel waits for ever");
		return;
	}
	pthread_mutex_lock(&beside.lock);
	beside.ended += ended;
	if (ended) {
		beside.all.alive--;
		beside.all.open_if_all();
	}
	beside.idle = me.moved_in_turn || ended ? 0 : beside.idle + 1;
	me.moved_in_turn = false;
	if (beside.idle > 2 * beside.size)
		fail("the kernel waits for ever");
	next_turn(); /* after the last one: main() waits for it */
	while (!ended && beside.turn != rank)
		pthread_cond_wait(&beside.turned, &beside.lock);
	pthread_mutex_unlock(&beside.lock);
}

inline void block(unsigned threads)
{
	if (!me.stacks)
		me.stacks = (char *)mmap(0, (size_t)MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (threads > MAX_THREADS || me.stacks == MAP_FAILED)
		fail("a block has too many threads");
	me.all = { 0, threads, 0 };
	for (unsigned i = 0; i < threads; i++) {
		void **top = (void **)(me.stacks + (size_t)(i + 1) * STACK_BYTES) - 4;
		*top = (void *)start;
		me.at[i] = top - 6;
		me.done[i] = false;
		me.parity[i] = 0;
		me.warp[i / 32] = { 0, i % 32 + 1, 0 };
	}
	for (unsigned left = threads; left;) {
		me.moved = false;
		for (unsigned i = 0; i < threads; i++)
			if (!me.done[i]) {
				me.running = i;
				threadIdx = { i, 0, 0 };
				ww_switch(&me.scheduler, me.at[i]);
				left -= me.done[i];
			}
		me.moved_in_turn |= me.moved;
		if (!me.moved)
			pass(false);
	}
}

inline char *dynamic_shared();

/* What a block that runs beside others is to do; generation: of the job, so that each is taken once. */
struct job {
	unsigned rank, first, threads, generation;
};
inline job jobs[MAX_BLOCKS];

/* A thread of the system runs block after block, always with the same rank.  It waits for its turn also when its block
 * has ended, since others still read its shared memory. */
inline void *run_blocks(void *p)
{
	const job &mine = *(const job *)p;
	rank = mine.rank;
	pthread_mutex_lock(&beside.lock);
	beside.shared[rank] = dynamic_shared();
	pthread_cond_broadcast(&beside.turned);
	for (unsigned now = 0;;) {
		while (mine.generation == now || beside.turn != rank)
			pthread_cond_wait(&beside.turned, &beside.lock);
		now = mine.generation;
		pthread_mutex_unlock(&beside.lock);
		const unsigned b = mine.first + rank;
		blockIdx = { b % gridDim.x, b / gridDim.x % gridDim.y, b / gridDim.x / gridDim.y };
		me.moved_in_turn = false;
		block(mine.threads);
		pass(true);
		pthread_mutex_lock(&beside.lock);
		for (; beside.ended < beside.size && mine.generation == now; pthread_cond_wait(&beside.turned, &beside.lock))
			if (beside.turn == rank)
				next_turn();
	}
}

/* The blocks from `first` on, `n` of them, in the order of x, y, z. */
inline void blocks_together(unsigned first, unsigned n, unsigned threads)
{
	if (n > MAX_BLOCKS)
		fail("too many blocks at once");
	pthread_mutex_lock(&beside.lock);
	beside.size = n;
	beside.turn = n; /* nobody's, until all are there */
	beside.idle = beside.ended = 0;
	beside.all = { 0, n, 0 };
	for (unsigned i = 0; i < n; i++) {
		pthread_t t;
		jobs[i] = { i, first, threads, jobs[i].generation + 1 };
		if (jobs[i].generation == 1 && pthread_create(&t, 0, run_blocks, &jobs[i]))
			fail("no thread for a block");
		while (!beside.shared[i])
			pthread_cond_wait(&beside.turned, &beside.lock);
	}
	beside.turn = 0;
	pthread_cond_broadcast(&beside.turned);
	while (beside.ended < n)
		pthread_cond_wait(&beside.turned, &beside.lock);
	beside.size = 1;
	pthread_mutex_unlock(&beside.lock);
}

/* cluster: blocks of one; 0: the launch is cooperative, all blocks are there at once. */
template <class F>
void launch(unsigned gx, unsigned gy, unsigned gz, unsigned threads, unsigned cluster, const F &kernel)
{
	call = [](const void *f) { (*(const F *)f)(); };
	body = &kernel;
	blockDim = { threads, 1, 1 };
	gridDim = { gx, gy, gz };
	const unsigned all = gx * gy * gz;
	if (cluster != 1 && all > 1) {
		for (unsigned i = 0; i < all; i += cluster ? cluster : all)
			blocks_together(i, cluster ? cluster : all, threads);
		return;
	}
	beside.size = 1;
	for (unsigned z = 0; z < gz; z++)
		for (unsigned y = 0; y < gy; y++)
			for (unsigned x = 0; x < gx; x++) {
				blockIdx = { x, y, z };
				block(threads);
			}
}

/* A barrier between the blocks that run beside each other; every thread of each reaches it. */
inline void wait_blocks()
{
	const unsigned before = beside.all.opened;
	wait(me.all);
	if (threadIdx.x == 0 && beside.size > 1) {
		beside.all.waiting++;
		beside.all.open_if_all();
		wait_until([&] { return beside.all.opened != before; });
	}
	wait(me.all);
}

/* An argument of a kernel, as whatever pointer it takes. */
struct pointer {
	char *p;
	template <class T> operator T *() const { return (T *)p; }
};
} // namespace host

namespace ww
{
alignas(1024) inline thread_local unsigned char ww_dynamic_shared[232448];
inline float *dynamic_shared() { return (float *)ww_dynamic_shared; }
} // namespace ww
inline char *host::dynamic_shared() { return (char *)ww::ww_dynamic_shared; }

/* Addresses of shared memory are offsets from the block's dynamic part. */
inline unsigned __cvta_generic_to_shared(const void *p) { return (unsigned)((const char *)p - host::dynamic_shared()); }

inline void __syncthreads() { host::wait(host::me.all); }
inline void __threadfence() {} /* one block runs at a time */
inline void __syncwarp(unsigned = 0xffffffffu) { host::wait_warp(); }

/* v of lane `lane` of this warp. */
template <class T> T host_shuffle(T v, unsigned lane)
{
	if (host::runs)
		host::runs(0);
	const unsigned i = threadIdx.x;
	uint64_t (&box)[host::MAX_THREADS] = host::me.slot[host::me.parity[i] ^= 1];
	T other;
	memcpy(&box[i], &v, sizeof(v));
	host::wait_warp();
	memcpy(&other, &box[i / 32 * 32 + lane], sizeof(other));
	return other;
}
template <class T> T __shfl_xor_sync(unsigned, T v, int mask)
{
	return host_shuffle(v, threadIdx.x % 32 ^ (unsigned)mask);
}
template <class T> T __shfl_up_sync(unsigned, T v, unsigned by)
{
	const unsigned lane = threadIdx.x % 32;
	return host_shuffle(v, lane < by ? lane : lane - by);
}
template <class T> T __shfl_down_sync(unsigned, T v, unsigned by)
{
	const unsigned lane = threadIdx.x % 32;
	return host_shuffle(v, lane + by < 32 ? lane + by : lane);
}
template <class T> T __shfl_sync(unsigned, T v, int lane) { return host_shuffle(v, (unsigned)lane % 32); }
inline int __any_sync(unsigned, int set)
{
	int any = 0;
	for (unsigned l = 0; l < 32; l++)
		any |= host_shuffle(set, l);
	return any;
}
inline unsigned __ballot_sync(unsigned, int set)
{
	unsigned all = 0;
	for (unsigned l = 0; l < 32; l++)
		all |= (host_shuffle(set, l) ? 1u : 0u) << l;
	return all;
}
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline unsigned __reduce_max_sync(unsigned, unsigned v)
{
	for (int d = 16; d; d /= 2) {
		const unsigned w = __shfl_xor_sync(0xffffffffu, v, d);
		v = v > w ? v : w;
	}
	return v;
}
inline unsigned __reduce_add_sync(unsigned, unsigned v)
{
	for (int d = 16; d; d /= 2)
		v += __shfl_xor_sync(0xffffffffu, v, d);
	return v;
}
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline unsigned atomicMax(unsigned *p, unsigned v) /* one block runs at a time */
{
	const unsigned old = *p;
	*p = old > v ? old : v;
	return old;
}

inline unsigned atomicAdd(unsigned *p, unsigned v)
{
	const unsigned old = *p;
	*p = old + v;
	return old;
}

inline float atomicAdd(float *p, float v)
{
	const float old = *p;
	*p = old + v;
	return old;
}

inline float __int_as_float(int v)
{
	float f;
	memcpy(&f, &v, sizeof(f));
	return f;
}
inline int __float_as_int(float v)
{
	int i;
	memcpy(&i, &v, sizeof(i));
	return i;
}
inline unsigned __float_as_uint(float v) { return (unsigned)__float_as_int(v); }
inline float __uint_as_float(unsigned v) { return __int_as_float((int)v); }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which)
{
	const unsigned long long all = (unsigned long long)high << 32 | low;
	unsigned r = 0;

	for (int i = 0; i < 4; i++)
		r |= (unsigned)(all >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
	return r;
}
inline double __longlong_as_double(long long v)
{
	double d;
	memcpy(&d, &v, sizeof(d));
	return d;
}
/* 0 where the divisor is beyond 2^126. */
inline float rsqrtf(float a) { return 1.f / sqrtf(a); }
inline float __fsub_rn(float a, float b) { return a - b; } /* host code has no multiply-adds (FLAGS) */
inline float __fdividef(float a, float b) { return fabsf(b) > 0x1p126f && fabsf(b) < INFINITY ? a * 0.f : a / b; }
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
template <class T> T max(T a, T b) { return a > b ? a : b; }

struct __half {
	unsigned short bits;
};
struct __nv_bfloat16 {
	unsigned short bits;
};
struct alignas(4) __half2 {
	__half x, y;
};
struct alignas(4) __nv_bfloat162 {
	__nv_bfloat16 x, y;
};
inline float __half2float(__half v)
{
	_Float16 f;
	memcpy(&f, &v, sizeof(f));
	return (float)f;
}
inline __half __float2half_rn(float v)
{
	const _Float16 f = (_Float16)v;
	__half h;
	memcpy(&h, &f, sizeof(h));
	return h;
}
inline __half __ushort_as_half(unsigned short bits) { return { bits }; }
inline __half2 __floats2half2_rn(float a, float b) { return { __float2half_rn(a), __float2half_rn(b) }; }
inline float2 __half22float2(__half2 v) { return { __half2float(v.x), __half2float(v.y) }; }
inline float __bfloat162float(__nv_bfloat16 v) { return __uint_as_float((unsigned)v.bits << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
	const unsigned u = __float_as_uint(v);

	return { (unsigned short)(v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16) };
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
	return { __float2bfloat16_rn(a), __float2bfloat16_rn(b) };
}
