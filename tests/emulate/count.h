/* count.h - a sampled handful of blocks of each launch, for what they read and write: host::launch()'s twin.
 *
 * The kernels' file is compiled with -fsanitize=thread, whose calls at each access of memory lead to count.cc in place
 * of the sanitizer.  Buffers are address space without memory: what no sampled block touches is never there, so a task
 * may be larger than this machine, and what is read is zero. */
#pragma once

#include "device.h"

namespace counted
{
/* Buffers of these sizes, in the order of the plan; fill(): buffer `i` with integers below `below`. */
extern "C" char __executable_start, etext; /* the kernels' code: what is stepped through */
struct buffer {
	char *p;
};
void reserve(buffer *buffers, const long long *bytes, unsigned n, char *code = &__executable_start, char *end = &etext);
void fill(unsigned buffer, long long below, int itemsize);
/* The nodes of a plan, each a line of JSON on stdout. */
void begin(
	const char *name, long long blocks, unsigned threads, unsigned cluster, long long shared, const unsigned *running);
void block(void (*run)(unsigned threads), unsigned threads);
void end();
int sample(long long blocks, long long *at);
void step(int on);

enum { SAMPLES = 6 };

template <class F> void launch(const char *name, unsigned gx, unsigned gy, unsigned gz, unsigned threads,
	unsigned cluster, long long shared, const F &kernel)
{
	const long long blocks = (long long)gx * gy * gz;
	long long at[SAMPLES];

	host::call = [](const void *f) {
		step(1);
		(*(const F *)f)();
		step(0);
	};
	host::runs = step;
	host::body = &kernel;
	blockDim = { threads, 1, 1 };
	gridDim = { gx, gy, gz };
	begin(name, blocks, threads, cluster, shared, &host::me.running);
	host::beside.size = 1; /* a block of a cluster runs alone: the others' shared memory is its own */
	for (char *&other : host::beside.shared)
		other = host::dynamic_shared();
	for (int i = 0, n = sample(blocks, at); i < n; i++) {
		blockIdx = { (unsigned)(at[i] % gx), (unsigned)(at[i] / gx % gy), (unsigned)(at[i] / gx / gy) };
		block(host::block, threads);
	}
	end();
}
} // namespace counted
