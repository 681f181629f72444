/* plugin_clock.c - the clock around a call of the candidate's graph (cuda).
 *
 * Everything before the call has ended.  On one stream are queued
 *
 *     stamp      a kernel of ours writes the device's nanoseconds into memory of the host's
 *     flush      a write of twice the L2 cache, some tens of microseconds
 *                the host waits until it sees the stamp, and keeps it
 *     event, graph, event
 *     stamp      as above, when the graph has ended
 *
 * The flush keeps the device busy while the host queues the rest, so what the events see is the device's work and no
 * launch latency. The reference worker times baselines by the same flush and events.
 *
 * The events cannot be believed alone: the driver keeps their time stamps in memory that device code can reach, and a
 * kernel that writes there can report any time (tried on an H200: 2.7 us for 2 ms).  The stamps' memory is no safer
 * from writes, but there is no moment to forge them: the first has been read before the graph is submitted, the second
 * is written after it has ended, and is read once more when a call without a graph has gone through behind it, because
 * a kernel could forge the end of everything, too, and work on; then the true stamp would come later.  clocks.h says
 * which of the three clocks counts.
 *
 * A call without a graph also goes before each: after another process has had the device, some hundred microseconds go
 * by until this one has it back, and the state of the caches is then the same for both.
 *
 * Rejected: reporting the span instead of the events (the flush before it varies by more than a small kernel takes); a
 * stamp right before the graph (the candidate could overwrite it before the host has read it); secret addresses (what
 * lies in memory can be found). */
#include "judge/run/plugin_parts.h"

#include <stdlib.h>
#include <time.h>

/* Each on a cache line of its own; host memory, which has the same address on the device. */
struct ww_cuda_stamps {
	volatile uint64_t begun __attribute__((aligned(64))), ended __attribute__((aligned(64)));
};
enum { WITH_GRAPH, WITHOUT, SLOTS };

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int ww_cuda_flush_open(struct ww_cuda *x, struct ww_run_reply *r)
{
	int kind = WW_RUN_OK;
	if (x->flush)
		return kind;
	x->flush_bytes = 2 * (size_t)ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
	if (x->flush_bytes < ((size_t)1 << 20))
		x->flush_bytes = (size_t)1 << 20;
	WW_CUDA_TRY(x->cuMemAlloc(&x->flush, x->flush_bytes), "memory to flush the cache");
out:
	return kind;
}

/* Our own kernel on an idle device; where it does not come, something else is wrong, and says so when the stream is
 * waited for. */
static uint64_t await(const volatile uint64_t *at)
{
	const double deadline = now_us() + 1e6;
	uint64_t seen;
	while (!(seen = *at) && now_us() < deadline)
		;
	return seen;
}

static CUresult queue_stamp(struct ww_cuda *x, volatile uint64_t *at)
{
	CUdeviceptr p = (CUdeviceptr)(uintptr_t)at;
	void *args[] = { &p };
	*at = 0;
	return x->cuLaunchKernel(x->stamp, 1, 1, 1, 1, 1, 1, 0, x->stream, args, NULL);
}

static double span_us(uint64_t begun, uint64_t ended)
{
	return begun && ended > begun ? (double)(ended - begun) * 1e-3 : NAN;
}

/* One call, with a graph or (NULL) without.  *begun: its first stamp. */
static CUresult one_call(struct ww_cuda *x, CUgraphExec graph, struct ww_clocks *t, uint64_t *begun)
{
	struct ww_cuda_stamps *s = &x->stamps[graph ? WITH_GRAPH : WITHOUT];
	double start = now_us();
	float ms = 0;
	CUresult e = queue_stamp(x, &s->begun);
	if (e == CUDA_SUCCESS)
		e = x->cuMemsetD8Async(x->flush, 0, x->flush_bytes, x->stream);
	*begun = e == CUDA_SUCCESS ? await(&s->begun) : 0;
	if (e == CUDA_SUCCESS)
		e = x->cuEventRecord(x->start, x->stream);
	if (e == CUDA_SUCCESS && graph)
		e = x->cuGraphLaunch(graph, x->stream);
	if (e == CUDA_SUCCESS)
		e = x->cuEventRecord(x->stop, x->stream);
	if (e == CUDA_SUCCESS)
		e = queue_stamp(x, &s->ended);
	if (e == CUDA_SUCCESS)
		e = x->cuStreamSynchronize(x->stream);
	t->host_us = now_us() - start;
	t->span_us = span_us(*begun, s->ended);
	if (e == CUDA_SUCCESS)
		e = x->cuEventElapsedTime(&ms, x->start, x->stop);
	t->event_us = (double)ms * 1e3;
	return e;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_size);
	return v[n / 2];
}

int ww_cuda_clock_set(struct ww_cuda *x, struct ww_run_reply *r)
{
	enum { WARM = 12, N = 32 };
	double event[N], span[N], host[N];
	struct ww_clocks t;
	uint64_t begun;
	void *stamps;
	int kind = ww_cuda_flush_open(x, r);
	if (kind != WW_RUN_OK || x->empty.mid.span_us > 0)
		return kind;
	if (!x->stamps) {
		WW_CUDA_TRY(x->cuMemAllocHost(&stamps, SLOTS * sizeof(*x->stamps)), "memory for time stamps");
		x->stamps = stamps;
	}
	for (int i = 0; i < WARM + N; i++) {
		WW_CUDA_TRY(one_call(x, NULL, &t, &begun), "a call without a graph");
		WW_CUDA_TRY(isfinite(t.span_us) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "the device's clock");
		if (i < WARM)
			continue;
		event[i - WARM] = t.event_us;
		span[i - WARM] = t.span_us;
		host[i - WARM] = t.host_us;
	}
	x->empty.mid = (struct ww_clocks){ median(event, N), median(span, N), median(host, N) };
	x->empty.noise_us = span[N - 1 - N / 10] - span[N / 10];
out:
	return kind;
}

CUresult ww_cuda_clock_call(struct ww_cuda *x, CUgraphExec graph, struct ww_believed *out)
{
	struct ww_clocks before, call, after;
	uint64_t begun, ignored;
	CUresult e = one_call(x, NULL, &before, &ignored);
	if (e == CUDA_SUCCESS)
		e = one_call(x, graph, &call, &begun);
	if (e == CUDA_SUCCESS)
		e = one_call(x, NULL, &after, &ignored);
	if (e != CUDA_SUCCESS)
		return e;
	call.span_us = span_us(begun, x->stamps[WITH_GRAPH].ended);
	*out = ww_clocks_believe(&call, &before, &after, &x->empty);
	return e;
}
