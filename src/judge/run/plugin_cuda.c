/* plugin_cuda.c - the cuda back end of the runner: memory with guards, poison, the graph and its clock around exec_cuda.c.
 *
 * A plug-in (libwarpwright-judge-cuda.so) so that the program starts where there is no driver; it links to nothing of CUDA
 * and to nothing of ours, and is built wherever <cuda.h> is found.
 *
 * Memory.  A buffer is one allocation, imported from the reference worker (inputs, parameters, outputs) or made here
 * (scratch), mapped in the middle of a larger reservation, so that there is at least one granule (2 MiB) of unmapped
 * addresses on both sides.  Inputs and parameters are mapped read-only: a store to them is a fault.  Scratch ends at the end
 * of its mapping, as far as an alignment of 256 bytes lets it; what lies between the end of a buffer and the end of its last
 * granule holds a guard byte that is looked at after checked runs.
 *
 * Time.  The plan is captured into a CUDA graph once.  A timed call: everything before it has ended; the flush (a write of
 * twice the L2 cache) is queued, behind it the first event, the graph, the second event.  The flush keeps the device busy
 * while the host queues the rest, so what the events see is the device's work and no launch latency.  Baselines are timed in the
 * same way by the reference worker.
 *
 * The events cannot be believed alone: the driver keeps their time stamps in memory that device code can reach, and a kernel
 * that writes there takes as long as it likes to have taken (tried on an H200: 2.7 us for 2 ms).  Two things are done about it.
 * That memory lies at the same address in every process, so some address space is taken away before the driver starts, and it
 * has to go elsewhere, by lot: a kernel that writes where it was told beforehand faults.  And the host's clock runs beside the
 * events, from before the flush until another round of flush and events without a graph has ended, which a kernel that goes on
 * behind a forged end would delay.  Less what two rounds without a graph take on this device (READY measures that, before any
 * launch of the candidate's) it is the device's time again, but for what the machine does meanwhile; so it is not a time that is
 * reported, but one that tells a gross lie.  A round without a graph comes first, too: after another process has had the
 * device, some hundred microseconds go by until this one has it back.
 *
 * Repeats.  The outputs' digest (repeat.c defines it) is computed by a kernel of ours behind the candidate's graph on the same
 * stream: the sum is set to zero after the candidate has ended and fetched before its next run begins, so that none of its
 * kernels is alive while the sum means anything.
 *
 * After any error that the device reports, the context is lost and with it this process; the reply says what it was. */
#include "judge/run/digest_ptx.h"
#include "judge/run/plugin_parts.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DRIVER_MAP(X)                                                                                                     \
	X(cuInit) X(cuGetErrorName) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName)           \
	X(cuDeviceGetUuid) X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent)     \
	X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuGraphInstantiate)      \
	X(cuGraphUpload) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy) X(cuEventCreate) X(cuEventRecord)       \
	X(cuEventElapsedTime) X(cuMemImportFromShareableHandle) X(cuMemGetAllocationGranularity) X(cuMemCreate)           \
	X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemRelease)            \
	X(cuModuleLoadData) X(cuModuleGetFunction) X(cuLaunchKernel)                                                      \
	X(cuCtxResetPersistingL2Cache) X(cuMemsetD8Async) X(cuMemcpyDtoH) X(cuMemcpyDtoDAsync) X(cuMemAlloc) X(cuMemFree)

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

struct buffer {
	CUdeviceptr reserve, map, data;
	size_t reserve_bytes, map_bytes, bytes;
	int writable, mapped;
	uint32_t role, index;
};

struct cuda {
#define X(name) __typeof__(&name) name;
	DRIVER_MAP(X)
#undef X
	const struct ww_run_host *host;
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUevent start, stop;
	size_t granule;
	CUdeviceptr flush;
	size_t flush_bytes;
	int flush_next;			/* before the next call */
	double empty_us;		/* a call without a graph by the host's clock, median */
	const struct ww_image *image;
	struct ww_exec *exec;
	struct buffer *buffers;		/* image->n_buffers */
	void **addresses;
	CUfunction digest;
	CUdeviceptr sum;		/* of the digest, 8 bytes */
	uint64_t guards;		/* digest of the guard bytes when they were written */
	int sm_count;
	CUgraph graph;
	CUgraphExec graph_exec;
};

static int failed(struct cuda *x, struct ww_run_reply *r, int kind, const char *what, CUresult e)
{
	const char *name = NULL;
	if (x->cuGetErrorName)
		x->cuGetErrorName(e, &name);
	snprintf(r->text, sizeof(r->text), "%s: %s", what, name ? name : "unknown CUDA error");
	return e == CUDA_ERROR_OUT_OF_MEMORY ? WW_RUN_NOMEM : kind;
}

/* Run a driver call; on an error set `kind` and go to out. */
#define TRY(call, what)                                                                \
	do {                                                                           \
		CUresult cu_result_ = (call);                                          \
		if (cu_result_ != CUDA_SUCCESS) {                                      \
			kind = failed(x, r, WW_RUN_BROKEN, what, cu_result_);          \
			goto out;                                                      \
		}                                                                      \
	} while (0)

static int attribute(struct cuda *x, CUdevice_attribute a)
{
	int v = 0;
	x->cuDeviceGetAttribute(&v, a, x->device);
	return v;
}

/* ---- The device -------------------------------------------------------------------------------------------------- */

static int load_driver(struct cuda *x, struct ww_run_reply *r)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		snprintf(r->text, sizeof(r->text), "no NVIDIA driver here (libcuda.so.1 cannot be loaded)");
		return WW_RUN_BROKEN;
	}
#define X(name)                                                                                                           \
	*(void **)&x->name = dlsym(lib, TEXT(name));                                                                      \
	if (!x->name) {                                                                                                   \
		snprintf(r->text, sizeof(r->text), "the NVIDIA driver is too old: it has no %s", TEXT(name));             \
		return WW_RUN_BROKEN;                                                                                     \
	}
	DRIVER_MAP(X)
#undef X
	return WW_RUN_OK;
}

static void memory_prop(struct cuda *x, CUmemAllocationProp *p)
{
	memset(p, 0, sizeof(*p));
	p->type = CU_MEM_ALLOCATION_TYPE_PINNED;
	p->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	p->location.id = x->device;
}

/* Our own kernel is there before any candidate: the driver's compiler for PTX is a library that it loads now. */
static int load_digest(struct cuda *x, struct ww_run_reply *r)
{
	CUmodule module;
	int kind = WW_RUN_OK;
	TRY(x->cuModuleLoadData(&module, ww_digest_ptx), "the driver cannot compile the digest kernel");
	TRY(x->cuModuleGetFunction(&x->digest, module, "ww_digest"), "digest");
	TRY(x->cuMemAlloc(&x->sum, 8), "memory for the digest");
	x->sm_count = attribute(x, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
out:
	return kind;
}

/* The driver maps what device and host share from 8 GiB upwards, in steps of 4 GiB where something is in its way. */
static void move_driver_mappings(void)
{
	enum { STEPS = 17 };		/* 64 GiB more than nothing: tried; 8 TiB is more than the driver bears */
	unsigned char lot = 0;
	if (getentropy(&lot, 1) || !(lot % STEPS))
		return;
	(void)mmap((void *)0x200000000ull, (size_t)(lot % STEPS) << 32, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);	/* not to be had: then it stays */
}

static int cuda_open(void **self, int device, int threads, const struct ww_run_host *host, struct ww_run_reply *r)
{
	struct cuda *x = calloc(1, sizeof(*x));
	CUmemAllocationProp prop;
	int kind, count = 0;
	(void)threads;

	if (!x)
		return WW_RUN_BROKEN;
	*self = x;
	x->host = host;
	if ((kind = load_driver(x, r)) != WW_RUN_OK)
		return kind;
	move_driver_mappings();
	TRY(x->cuInit(0), "cuInit");
	TRY(x->cuDeviceGetCount(&count), "cuDeviceGetCount");
	if (device >= count) {
		snprintf(r->text, sizeof(r->text), "there is no GPU %d, this machine has %d", device, count);
		return WW_RUN_BROKEN;
	}
	TRY(x->cuDeviceGet(&x->device, device), "cuDeviceGet");
	TRY(x->cuDevicePrimaryCtxRetain(&x->context, x->device), "cannot make a CUDA context");
	TRY(x->cuCtxSetCurrent(x->context), "cuCtxSetCurrent");
	TRY(x->cuStreamCreate(&x->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	TRY(x->cuEventCreate(&x->start, CU_EVENT_DEFAULT), "cuEventCreate");
	TRY(x->cuEventCreate(&x->stop, CU_EVENT_DEFAULT), "cuEventCreate");
	memory_prop(x, &prop);
	TRY(x->cuMemGetAllocationGranularity(&x->granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "cuMemGetAllocationGranularity");
	kind = load_digest(x, r);
out:
	return kind == WW_RUN_NOMEM ? WW_RUN_BROKEN : kind;
}

/* A copy of 1 GiB, best of ten; 0 where there is no room for it. */
static double copy_bandwidth(struct cuda *x)
{
	const size_t n = (size_t)1 << 30;
	CUdeviceptr a = 0, b = 0;
	float best = 0, ms = 0;
	if (x->cuMemAlloc(&a, n) == CUDA_SUCCESS && x->cuMemAlloc(&b, n) == CUDA_SUCCESS) {
		for (int i = 0; i < 10; i++) {
			x->cuEventRecord(x->start, x->stream);
			x->cuMemcpyDtoDAsync(b, a, n, x->stream);
			x->cuEventRecord(x->stop, x->stream);
			if (x->cuStreamSynchronize(x->stream) != CUDA_SUCCESS ||
			    x->cuEventElapsedTime(&ms, x->start, x->stop) != CUDA_SUCCESS)
				break;
			best = !i || ms < best ? ms : best;
		}
	}
	if (a)
		x->cuMemFree(a);
	if (b)
		x->cuMemFree(b);
	return best > 0 ? 2.0 * (double)n / ((double)best * 1e-3) : 0;
}

static void uuid_text(const unsigned char *u, char *out, size_t n)
{
	size_t at = (size_t)snprintf(out, n, "GPU-");
	for (int i = 0; i < 16 && at + 3 < n; i++)
		at += (size_t)snprintf(out + at, n - at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

static int cuda_hello(void *self, int measure, struct ww_run_facts *f, struct ww_run_reply *r)
{
	struct cuda *x = self;
	struct ww_device *d = &f->device;
	CUuuid uuid;
	size_t total = 0;
	int version = 0, kind = WW_RUN_OK;

	memset(f, 0, sizeof(*f));
	f->abi = WW_RUN_ABI;
	TRY(x->cuDeviceGetName(f->name, sizeof(f->name), x->device), "cuDeviceGetName");
	TRY(x->cuDeviceGetUuid(&uuid, x->device), "cuDeviceGetUuid");
	TRY(x->cuDriverGetVersion(&version), "cuDriverGetVersion");
	TRY(x->cuDeviceTotalMem(&total, x->device), "cuDeviceTotalMem");
	uuid_text((const unsigned char *)uuid.bytes, f->uuid, sizeof(f->uuid));
	snprintf(f->driver, sizeof(f->driver), "%d", version);
	d->target = WW_TARGET_CUDA;
	d->cc = 10 * attribute(x, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
		attribute(x, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	d->sm_count = attribute(x, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	d->warp_size = attribute(x, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
	d->max_threads_per_block = attribute(x, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	d->max_threads_per_sm = attribute(x, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
	d->regs_per_sm = attribute(x, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
	d->shared_per_block_bytes = attribute(x, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	d->shared_per_sm_bytes = attribute(x, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	d->l2_bytes = attribute(x, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
	d->memory_bytes = (long long)total;
	if (measure)
		d->memory_bytes_per_s = copy_bandwidth(x);
out:
	return kind;
}

/* ---- Load -------------------------------------------------------------------------------------------------------- */

/* exec_cuda.c opens libraries by their plain names; where they lie in a Python environment, it finds them already open. */
static void preload(struct cuda *x, const char *const *names)
{
	char path[PATH_MAX];
	if (x->host->find_library(names, path))
		dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static void preload_libraries(struct cuda *x)
{
	static const char *const lt[] = { "libcublasLt.so.13", "libcublasLt.so.12", NULL };
	static const char *const nvrtc[] = { "libnvrtc.so.13", "libnvrtc.so.12", NULL };
	static const char *const dnn[] = { "libcudnn.so.9", "libcudnn.so.8", NULL };
	int gemm = 0, conv = 0;
	for (uint32_t i = 0; i < x->image->n_nodes; i++) {
		gemm |= ww_image_nodes(x->image)[i].kind == WW_NODE_GEMM;
		conv |= ww_image_nodes(x->image)[i].kind == WW_NODE_CONV;
	}
	if (gemm || conv)
		preload(x, lt);
	if (conv) {
		preload(x, nvrtc);
		preload(x, dnn);
	}
}

static int exec_kind(int e)
{
	switch (e) {
	case WW_EXEC_OK: return WW_RUN_OK;
	case WW_EXEC_REFUSED: return WW_RUN_REFUSED;
	case WW_EXEC_UNAVAILABLE: return WW_RUN_UNAVAILABLE;
	case WW_EXEC_NOMEM: return WW_RUN_NOMEM;
	default: return WW_RUN_FAULT;
	}
}

/* Whole file behind a descriptor, malloc'ed with a NUL behind it. */
static char *read_binary(int fd, size_t n)
{
	char *p = malloc(n + 1);
	for (size_t done = 0; p && done < n;) {
		ssize_t got = pread(fd, p + done, n - done, (off_t)done);
		if (got <= 0) {
			free(p);
			return NULL;
		}
		done += (size_t)got;
	}
	if (p)
		p[n] = 0;
	return p;
}

static int count_pairs(const char *symbols)
{
	int n = 0;
	for (const char *s = symbols; *s; n++) {
		s += strlen(s) + 1;
		s += strlen(s) + 1;
	}
	return n;
}

static int cuda_load(void *self, const struct ww_image *image, int binary_fd, size_t binary_bytes, const char *symbols,
		     struct ww_run_reply *r)
{
	struct cuda *x = self;
	int n = count_pairs(symbols), kind = WW_RUN_BROKEN;
	struct ww_exec_kernel *kernels = calloc((size_t)n + 1, sizeof(*kernels));
	char *binary = read_binary(binary_fd, binary_bytes);

	x->image = image;
	x->buffers = calloc(image->n_buffers + 1u, sizeof(*x->buffers));
	x->addresses = calloc(image->n_buffers + 1u, sizeof(*x->addresses));
	if (!kernels || !binary || !x->buffers || !x->addresses)
		goto out;
	for (uint32_t i = 0; i < image->n_buffers; i++) {
		x->buffers[i].role = ww_image_buffers(image)[i].role;
		x->buffers[i].index = ww_image_buffers(image)[i].index;
	}
	const char *s = symbols;
	for (int i = 0; i < n; i++) {
		kernels[i].kernel = s;
		s += strlen(s) + 1;
		kernels[i].symbol = s;
		s += strlen(s) + 1;
	}
	preload_libraries(x);
	kind = exec_kind(ww_exec_load(&x->exec, image, binary, binary_bytes, kernels, n, 0, r->text));
out:
	free(kernels);
	free(binary);
	return kind;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void unmap_buffer(struct cuda *x, struct buffer *b)
{
	if (b->mapped)
		x->cuMemUnmap(b->map, b->map_bytes);
	if (b->reserve)
		x->cuMemAddressFree(b->reserve, b->reserve_bytes);
	b->mapped = 0;
	b->reserve = 0;
}

/* Map an allocation between two unmapped granules.  The handle is released here in any case. */
static int map_buffer(struct cuda *x, struct buffer *b, CUmemGenericAllocationHandle h, size_t map_bytes, int writable,
		      struct ww_run_reply *r)
{
	CUmemAccessDesc access;
	int kind = WW_RUN_OK;

	b->map_bytes = map_bytes;
	b->reserve_bytes = map_bytes + 2 * x->granule;
	b->writable = writable;
	TRY(x->cuMemAddressReserve(&b->reserve, b->reserve_bytes, 0, 0, 0), "cuMemAddressReserve");
	b->map = b->reserve + x->granule;
	TRY(x->cuMemMap(b->map, map_bytes, 0, h, 0), "cuMemMap");
	b->mapped = 1;
	memset(&access, 0, sizeof(access));
	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location.id = x->device;
	access.flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
	TRY(x->cuMemSetAccess(b->map, map_bytes, &access, 1), "cuMemSetAccess");
out:
	x->cuMemRelease(h);
	return kind;
}

/* Fill what lies beside the buffer in its mapping. */
static int guard_buffer(struct cuda *x, const struct buffer *b, struct ww_run_reply *r)
{
	size_t front = (size_t)(b->data - b->map), behind = b->map_bytes - front - b->bytes;
	int kind = WW_RUN_OK;
	if (front)
		TRY(x->cuMemsetD8Async(b->map, WW_RUN_GUARD_BYTE, front, x->stream), "guard");
	if (behind)
		TRY(x->cuMemsetD8Async(b->data + b->bytes, WW_RUN_GUARD_BYTE, behind, x->stream), "guard");
out:
	return kind;
}

static int cuda_bind(void *self, const struct ww_run_bind *q, int fd, struct ww_run_reply *r)
{
	struct cuda *x = self;
	struct buffer *b = &x->buffers[q->buf];
	CUmemGenericAllocationHandle h;
	int kind = WW_RUN_OK;

	TRY(x->cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
	    "cannot import a shared buffer");
	kind = map_buffer(x, b, h, q->map_bytes, (int)q->writable, r);
	if (kind != WW_RUN_OK)
		goto out;
	b->data = b->map + q->offset_bytes;
	b->bytes = q->bytes;
	if (b->writable)
		kind = guard_buffer(x, b, r);
out:
	return kind;
}

static int make_scratch(struct cuda *x, struct buffer *b, size_t bytes, struct ww_run_reply *r)
{
	CUmemAllocationProp prop;
	CUmemGenericAllocationHandle h;
	size_t n = (bytes ? bytes + x->granule - 1 : x->granule) / x->granule * x->granule;
	int kind = WW_RUN_OK;

	memory_prop(x, &prop);
	TRY(x->cuMemCreate(&h, n, &prop, 0), "scratch");
	kind = map_buffer(x, b, h, n, 1, r);
	if (kind != WW_RUN_OK)
		goto out;
	b->data = b->map + ((n - bytes) & ~(size_t)255);
	b->bytes = bytes;
	kind = guard_buffer(x, b, r);
out:
	return kind;
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

static int capture(struct cuda *x, struct ww_run_reply *r)
{
	int kind = WW_RUN_OK;
	TRY(x->cuStreamBeginCapture(x->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
	int e = ww_exec_issue(x->exec, x->addresses, x->stream, r->text);
	CUresult ended = x->cuStreamEndCapture(x->stream, &x->graph);
	if (e != WW_EXEC_OK)
		return exec_kind(e);
	if (ended != CUDA_SUCCESS)
		return failed(x, r, WW_RUN_REFUSED, "the plan cannot be made a CUDA graph", ended);
	CUresult made = x->cuGraphInstantiate(&x->graph_exec, x->graph, 0);
	if (made != CUDA_SUCCESS)
		return failed(x, r, WW_RUN_REFUSED, "the plan cannot be made a CUDA graph", made);
	TRY(x->cuGraphUpload(x->graph_exec, x->stream), "cuGraphUpload");
	TRY(x->cuStreamSynchronize(x->stream), "upload of the graph");
out:
	return kind;
}

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int make_flush(struct cuda *x, struct ww_run_reply *r)
{
	int kind = WW_RUN_OK;
	if (x->flush)
		return kind;
	x->flush_bytes = 2 * (size_t)attribute(x, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
	if (x->flush_bytes < ((size_t)1 << 20))
		x->flush_bytes = (size_t)1 << 20;
	TRY(x->cuMemAlloc(&x->flush, x->flush_bytes), "memory to flush the cache");
out:
	return kind;
}

/* The flush, where there is one, then the graph between two events (NULL: nothing), and wait for the end.  What the events say, and
 * what the host's clock says of all of it. */
static CUresult between_events(struct cuda *x, int flush, CUgraphExec graph, double *event_us, double *host_us)
{
	CUresult e = CUDA_SUCCESS;
	float ms = 0;
	*host_us = now_us();
	if (flush)
		e = x->cuMemsetD8Async(x->flush, 0, x->flush_bytes, x->stream);
	if (e == CUDA_SUCCESS)
		e = x->cuEventRecord(x->start, x->stream);
	if (e == CUDA_SUCCESS && graph)
		e = x->cuGraphLaunch(graph, x->stream);
	if (e == CUDA_SUCCESS)
		e = x->cuEventRecord(x->stop, x->stream);
	if (e == CUDA_SUCCESS)
		e = x->cuStreamSynchronize(x->stream);
	*host_us = now_us() - *host_us;
	if (e == CUDA_SUCCESS)
		e = x->cuEventElapsedTime(&ms, x->start, x->stop);
	*event_us = (double)ms * 1e3;
	return e;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* What a call without a graph takes by the host's clock, before anything of the candidate's has run in this load. */
static int measure_empty(struct cuda *x, struct ww_run_reply *r)
{
	enum { WARM = 12, N = 32 };
	double us[N], event_us, host_us;
	int kind = make_flush(x, r);
	for (int i = 0; kind == WW_RUN_OK && i < WARM + N; i++) {
		TRY(between_events(x, 1, NULL, &event_us, &host_us), "a call without a graph");
		if (i >= WARM)
			us[i - WARM] = host_us;
	}
	if (kind != WW_RUN_OK)
		goto out;
	qsort(us, N, sizeof(*us), by_size);
	x->empty_us = us[N / 2];
out:
	return kind;
}

/* ---- Digests ----------------------------------------------------------------------------------------------------- */

/* Add the digest of `bytes` bytes, a multiple of 16, to the sum. */
static CUresult queue_digest(struct cuda *x, CUdeviceptr at, size_t bytes, uint64_t key)
{
	unsigned long long pairs = bytes / 16, blocks = (pairs + 255) / 256, most = 8ull * (unsigned)x->sm_count;
	void *args[] = { &at, &pairs, &key, &x->sum };
	if (!pairs)
		return CUDA_SUCCESS;
	return x->cuLaunchKernel(x->digest, (unsigned)(blocks < most ? blocks : most), 1, 1, 256, 1, 1, 0, x->stream, args, NULL);
}

static CUresult take_sum(struct cuda *x, CUresult e, uint64_t *out)
{
	if (e == CUDA_SUCCESS)
		e = x->cuStreamSynchronize(x->stream);
	return e == CUDA_SUCCESS ? x->cuMemcpyDtoH(out, x->sum, 8) : e;
}

/* All outputs as they are when everything queued has ended.  Whole pairs of words: what lies behind a buffer in its granule
 * holds guard bytes. */
static CUresult digest_outputs(struct cuda *x, uint64_t key, uint64_t *out)
{
	CUresult e = x->cuMemsetD8Async(x->sum, 0, 8, x->stream);
	for (uint32_t i = 0; e == CUDA_SUCCESS && i < x->image->n_buffers; i++) {
		const struct buffer *b = &x->buffers[i];
		if (b->role == WW_BUF_OUTPUT)
			e = queue_digest(x, b->data, (b->bytes + 15) & ~(size_t)15, key + b->index);
	}
	return take_sum(x, e, out);
}

static CUdeviceptr guards_behind(const struct buffer *b)
{
	return (b->data + b->bytes + 15) & ~(CUdeviceptr)15;
}

/* What lies beside the writable buffers, but for up to 15 bytes behind each. */
static CUresult digest_guards(struct cuda *x, uint64_t *out)
{
	CUresult e = x->cuMemsetD8Async(x->sum, 0, 8, x->stream);
	for (uint32_t i = 0; e == CUDA_SUCCESS && i < x->image->n_buffers; i++) {
		const struct buffer *b = &x->buffers[i];
		if (!b->writable)
			continue;
		e = queue_digest(x, b->map, (size_t)(b->data - b->map), 2 * i);
		if (e == CUDA_SUCCESS)
			e = queue_digest(x, guards_behind(b), (size_t)(b->map + b->map_bytes - guards_behind(b)), 2 * i + 1);
	}
	return take_sum(x, e, out);
}

static int cuda_ready(void *self, struct ww_run_reply *r)
{
	struct cuda *x = self;
	const struct ww_image_buffer *b = ww_image_buffers(x->image);
	for (uint32_t i = 0; i < x->image->n_buffers; i++) {
		if (!x->buffers[i].mapped) {
			if (b[i].role != WW_BUF_SCRATCH) {
				snprintf(r->text, sizeof(r->text), "buffer %u was not bound", i);
				return WW_RUN_BROKEN;
			}
			int kind = make_scratch(x, &x->buffers[i], b[i].bytes, r);
			if (kind != WW_RUN_OK)
				return kind;
		}
		x->addresses[i] = (void *)(uintptr_t)x->buffers[i].data;
	}
	int kind = measure_empty(x, r);
	if (kind == WW_RUN_OK)
		kind = capture(x, r);
	CUresult e = kind == WW_RUN_OK ? digest_guards(x, &x->guards) : CUDA_SUCCESS;
	return e == CUDA_SUCCESS ? kind : failed(x, r, WW_RUN_BROKEN, "digest", e);
}

static const char *fault_text(CUresult e)
{
	switch (e) {
	case CUDA_ERROR_ILLEGAL_ADDRESS: return "an access outside every buffer, or a store to an input or parameter";
	case CUDA_ERROR_MISALIGNED_ADDRESS: return "an access at an address that is not a multiple of its size";
	case CUDA_ERROR_ILLEGAL_INSTRUCTION: return "an illegal instruction, or a trap";
	case CUDA_ERROR_INVALID_ADDRESS_SPACE: return "an instruction on memory of another space";
	case CUDA_ERROR_INVALID_PC: return "a jump to nowhere";
	case CUDA_ERROR_HARDWARE_STACK_ERROR: return "a stack overflow";
	case CUDA_ERROR_ASSERT: return "a device assertion failed";
	case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: return "a launch needs more registers or shared memory than there are";
	default: return "the device reported an error";
	}
}

static int fault(struct cuda *x, struct ww_run_reply *r, CUresult e)
{
	failed(x, r, WW_RUN_FAULT, fault_text(e), e);
	return WW_RUN_FAULT;
}

static CUresult poison(struct cuda *x)
{
	CUresult e = CUDA_SUCCESS;
	for (uint32_t i = 0; e == CUDA_SUCCESS && i < x->image->n_buffers; i++) {
		const struct buffer *b = &x->buffers[i];
		if (b->writable && b->bytes)
			e = x->cuMemsetD8Async(b->data, WW_RUN_POISON_BYTE, b->bytes, x->stream);
	}
	return e;
}

static int cuda_prepare(void *self, unsigned flags, struct ww_run_reply *r)
{
	struct cuda *x = self;
	int kind = WW_RUN_OK;
	CUresult e = CUDA_SUCCESS;

	x->flush_next = (flags & WW_RUN_FLUSH) != 0;
	if (x->flush_next && (kind = make_flush(x, r)) != WW_RUN_OK)
		return kind;
	if (x->flush_next)
		e = x->cuCtxResetPersistingL2Cache();	/* lines that a kernel has marked to outlive others, the flush too */
	if (e == CUDA_SUCCESS && (flags & WW_RUN_POISON) && x->image)
		e = poison(x);
	if (e == CUDA_SUCCESS)
		e = x->cuStreamSynchronize(x->stream);
	return e == CUDA_SUCCESS ? kind : fault(x, r, e);
}

/* Whether the host's clock tells so much more than the events that no delay of the host explains it, call after call. */
static int is_gross(const struct cuda *x, double host_us, double event_us)
{
	static const double SHARE = 0.5, ROUNDS = 4, DELAY_US = 200;
	double more = host_us - event_us;
	return more > SHARE * host_us && more > ROUNDS * x->empty_us + DELAY_US;
}

static int cuda_go(void *self, struct ww_run_reply *r)
{
	struct cuda *x = self;
	double host_us = 0, before_us, after_us = 0, none;
	CUresult e = CUDA_SUCCESS;

	if (!x->graph_exec)
		return WW_RUN_BROKEN;
	if (x->flush_next)
		e = between_events(x, 1, NULL, &none, &before_us);
	if (e == CUDA_SUCCESS)
		e = between_events(x, x->flush_next, x->graph_exec, &r->device_us, &host_us);
	r->call_us = NAN;
	if (e == CUDA_SUCCESS && x->flush_next) {
		e = between_events(x, 1, NULL, &none, &after_us);
		r->call_us = host_us + after_us - 2 * x->empty_us;
		r->contradicted = is_gross(x, r->call_us, r->device_us);
	}
	return e == CUDA_SUCCESS ? WW_RUN_OK : fault(x, r, e);
}

/* ---- Repeats ----------------------------------------------------------------------------------------------------- */

static int cuda_repeat(void *self, const struct ww_run_repeat *q, struct ww_run_reply *r)
{
	struct cuda *x = self;
	CUresult e = CUDA_SUCCESS;
	double start = now_us();
	uint64_t digest;

	if (!x->graph_exec)
		return WW_RUN_BROKEN;
	r->digest = q->first;
	if (!q->known)
		e = digest_outputs(x, q->key, &r->digest);
	while (e == CUDA_SUCCESS && r->made < q->n && !r->differs && (!r->made || now_us() - start < q->limit_ms * 1e3)) {
		e = poison(x);
		if (e == CUDA_SUCCESS)
			e = x->cuGraphLaunch(x->graph_exec, x->stream);
		if (e == CUDA_SUCCESS)
			e = digest_outputs(x, q->key, &digest);
		if (e == CUDA_SUCCESS) {
			r->made++;
			r->differs = digest != r->digest;
		}
	}
	return e == CUDA_SUCCESS ? WW_RUN_OK : fault(x, r, e);
}

/* ---- Profile ----------------------------------------------------------------------------------------------------- */

static int cuda_profile(void *self, const struct ww_run_profile_ask *ask, struct ww_run_profile *out, struct ww_run_reply *r)
{
	struct cuda *x = self;
	int kind = x->graph_exec ? make_flush(x, r) : WW_RUN_BROKEN;
	if (kind != WW_RUN_OK)
		return kind;
	struct ww_cuda_plan p = { .host = x->host, .device = x->device, .context = x->context, .stream = x->stream,
				  .image = x->image, .exec = x->exec, .addresses = x->addresses, .graph = x->graph_exec,
				  .flush = x->flush, .flush_bytes = x->flush_bytes };
	kind = ww_cuda_profile(&p, ask->repeats, out, r);
	if (kind == WW_RUN_OK && ask->counters)
		kind = ww_cuda_counters(&p, out, r);
	return kind;
}

/* ---- Guards and the end ------------------------------------------------------------------------------------------ */

static int range_intact(struct cuda *x, CUdeviceptr at, size_t n, unsigned char *host, CUresult *e)
{
	if (n && (*e = x->cuMemcpyDtoH(host, at, n)) != CUDA_SUCCESS)
		return 0;
	for (size_t i = 0; i < n; i++)
		if (host[i] != WW_RUN_GUARD_BYTE)
			return 0;
	return 1;
}

/* Most often nothing has changed, and the device can tell: no copy of megabytes, no loop over them on the host. */
static int guards_unchanged(struct cuda *x)
{
	unsigned char edge[16];
	uint64_t now;
	CUresult e = digest_guards(x, &now);
	int same = e == CUDA_SUCCESS && now == x->guards;
	for (uint32_t i = 0; same && i < x->image->n_buffers; i++) {
		const struct buffer *b = &x->buffers[i];
		CUdeviceptr end = b->data + b->bytes;
		same = !b->writable || range_intact(x, end, (size_t)(guards_behind(b) - end), edge, &e);
	}
	return same;
}

static int find_overrun(struct cuda *x, unsigned char *host, struct ww_run_reply *r)
{
	CUresult e = CUDA_SUCCESS;
	for (uint32_t i = 0; i < x->image->n_buffers; i++) {
		const struct buffer *b = &x->buffers[i];
		if (!b->writable)
			continue;
		/* Both gaps are smaller than a granule: an allocation is the buffer rounded up to one. */
		size_t front = (size_t)(b->data - b->map), behind = b->map_bytes - front - b->bytes;
		if (front > x->granule || behind > x->granule)
			return WW_RUN_BROKEN;
		if (range_intact(x, b->map, front, host, &e) && range_intact(x, b->data + b->bytes, behind, host, &e))
			continue;
		if (e != CUDA_SUCCESS)
			return fault(x, r, e);
		snprintf(r->text, sizeof(r->text), "the bytes beside %s %u were overwritten",
			 b->role == WW_BUF_OUTPUT ? "output" : "scratch", b->index);
		return WW_RUN_OVERRUN;
	}
	return WW_RUN_OK;
}

static int cuda_guards(void *self, struct ww_run_reply *r)
{
	struct cuda *x = self;
	if (guards_unchanged(x))
		return WW_RUN_OK;
	unsigned char *host = malloc(x->granule);
	int kind = host ? find_overrun(x, host, r) : WW_RUN_BROKEN;
	free(host);
	return kind;
}

static void cuda_unload(void *self)
{
	struct cuda *x = self;
	if (x->graph_exec)
		x->cuGraphExecDestroy(x->graph_exec);
	if (x->graph)
		x->cuGraphDestroy(x->graph);
	x->graph_exec = NULL;
	x->graph = NULL;
	ww_exec_free(x->exec);
	x->exec = NULL;
	for (uint32_t i = 0; x->buffers && i < x->image->n_buffers; i++)
		unmap_buffer(x, &x->buffers[i]);
	free(x->buffers);
	free(x->addresses);
	x->buffers = NULL;
	x->addresses = NULL;
	x->image = NULL;
}

/* The process ends right after this, and the driver frees what it held. */
static void cuda_close(void *self)
{
	free(self);
}

const struct ww_run_backend *ww_run_plugin(void);
const struct ww_run_backend *ww_run_plugin(void)
{
	static const struct ww_run_backend be = { WW_RUN_ABI, cuda_open, cuda_hello, cuda_load, cuda_bind, cuda_ready, cuda_prepare,
						  cuda_go, cuda_guards, cuda_repeat, cuda_profile, cuda_unload, cuda_close };
	return &be;
}
