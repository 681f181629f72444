/* trace.c - records the begin and end of every kernel that a program runs on the GPU: a library that the CUDA driver
 * loads into the program (CUPTI).
 *
 *   cc -shared -fPIC -O1 -I"$CUDA_HOME/include" bench/ops/trace.c -o libtrace.so -ldl
 *   CUDA_INJECTION64_PATH=$PWD/libtrace.so TRACE_OUT=FILE.csv PROGRAM ARGUMENTS...
 *
 * FILE.csv has a line for each kernel and copy, in the order in which they ended: begin and end in nanoseconds, grid,
 * threads a block, name. `bench/ops/where FILE.csv` adds them up.  Kernels of a recorded graph are listed one by one.
 * The program's kernels run as without it: times are the GPU's own clock, collected by the buffer.
 */
#include <cupti.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUFFER = 4 << 20 };

#define CUPTI_MAP(X) X(cuptiActivityEnable) X(cuptiActivityRegisterCallbacks) X(cuptiActivityFlushAll) X(cuptiActivityGetNextRecord)
static struct {
#define X(name) __typeof__(&name) name;
	CUPTI_MAP(X)
#undef X
} cupti;
static FILE *out;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records)
{
	*buffer = aligned_alloc(8, BUFFER);
	*size = *buffer ? BUFFER : 0;
	*records = 0;
}

static void write_record(const CUpti_Activity *r)
{
	if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
		const CUpti_ActivityKernel10 *k = (const void *)r;
		fprintf(out, "%" PRIu64 ",%" PRIu64 ",%dx%dx%d,%d,%s\n", (uint64_t)k->start, (uint64_t)k->end, k->gridX,
			k->gridY, k->gridZ, k->blockX * k->blockY * k->blockZ, k->name);
	} else if (r->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
		const CUpti_ActivityMemcpy6 *m = (const void *)r;
		fprintf(out, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",0,copy\n", (uint64_t)m->start, (uint64_t)m->end,
			(uint64_t)m->bytes);
	} else if (r->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
		const CUpti_ActivityMemset4 *m = (const void *)r;
		fprintf(out, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",0,memset\n", (uint64_t)m->start, (uint64_t)m->end,
			(uint64_t)m->bytes);
	}
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	CUpti_Activity *r = NULL;
	(void)context;
	(void)stream;
	(void)size;
	while (valid && cupti.cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS)
		write_record(r);
	free(buffer);
}

static void finish(void)
{
	cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
	fclose(out);
}

/* Called by the driver before the program's first call. */
int InitializeInjection(void);
int InitializeInjection(void)
{
	const char *path = getenv("TRACE_OUT");
	void *lib = dlopen("libcupti.so.13", RTLD_NOW);
	lib = lib ? lib : dlopen("/usr/local/cuda/lib64/libcupti.so.13", RTLD_NOW);
	lib = lib ? lib : dlopen("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", RTLD_NOW);
	if (!path || !lib || !(out = fopen(path, "w"))) {
		fprintf(stderr, "trace: %s\n", !path ? "TRACE_OUT names no file" : !lib ? dlerror() : "cannot write TRACE_OUT");
		return 0;
	}
#define X(name)                                                                 \
	if (!(*(void **)&cupti.name = dlsym(lib, #name)))                       \
		return 0;
	CUPTI_MAP(X)
#undef X
	if (cupti.cuptiActivityRegisterCallbacks(give_buffer, take_buffer) ||
		cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) ||
		cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) ||
		cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET)) {
		fprintf(stderr, "trace: CUPTI does not start\n");
		return 0;
	}
	atexit(finish);
	return 1;
}
