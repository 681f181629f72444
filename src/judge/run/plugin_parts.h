/* plugin_parts.h - between the files of the cuda plug-in: plugin_cuda.c (load, graph, runs), plugin_clock.c (the clock
 * around a call that counts), plugin_device.c (driver, context, facts), plugin_memory.c (buffers, guards, digests),
 * plugin_tables.c (what device code declares with a value),
 * plugin_profile.c and plugin_counters.c.
 *
 * One plug-in holds one device and at most one plan; struct ww_cuda is all of it.  A function that returns int returns
 * a WW_RUN_ kind and has said in r->text what went wrong. */
#pragma once

#include "judge/run/clocks.h"
#include "judge/run/exec.h"
#include "judge/run/proto.h"

#include <cuda.h>

#define WW_CUDA_DRIVER_MAP(X)                                                                                             \
	X(cuInit) X(cuGetErrorName) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName)           \
	X(cuDeviceGetUuid) X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent)     \
	X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuGraphInstantiate)      \
	X(cuGraphUpload) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy) X(cuEventCreate) X(cuEventRecord)       \
	X(cuEventElapsedTime) X(cuMemImportFromShareableHandle) X(cuMemGetAllocationGranularity) X(cuMemCreate)           \
	X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) X(cuMemRelease)            \
	X(cuModuleLoadData) X(cuModuleGetFunction) X(cuModuleGetGlobal) X(cuFuncGetAttribute) X(cuLaunchKernel)                                                      \
	X(cuCtxResetPersistingL2Cache) X(cuMemsetD8Async) X(cuMemcpyDtoH) X(cuMemcpyDtoHAsync) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoDAsync) X(cuMemAlloc) X(cuMemFree) \
	X(cuMemAllocHost)

struct ww_cuda_buffer {
	CUdeviceptr reserve, map, data;
	size_t reserve_bytes, map_bytes, bytes;
	int writable, mapped;
	uint32_t role, index;
};

/* A variable of the module's that has a value. */
struct ww_cuda_table {
	CUdeviceptr at;
	size_t bytes;
	void *initial; /* host; what it holds when the module has been loaded */
	int constant;  /* of __constant__ */
};

/* All nodes of a plan, or those between two that PyTorch runs, as one graph. */
struct ww_cuda_part {
	struct ww_run_part nodes;
	CUgraph graph;
	CUgraphExec exec;
};

/* What is read behind a call: host memory that the driver copies to without a wait of its own.  Device code could write
 * there as it could to the sum itself, but it is written when a candidate's kernels have ended and read before the next
 * one begins. */
enum { WW_CUDA_EDGES = 64 };
struct ww_cuda_behind {
	uint64_t sum;
	unsigned char edges[WW_CUDA_EDGES][16];
};

struct ww_cuda {
#define X(name) __typeof__(&name) name;
	WW_CUDA_DRIVER_MAP(X)
#undef X
	const struct ww_run_host *host;
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUevent start, stop;
	size_t granule;
	CUdeviceptr flush;
	size_t flush_bytes;
	int flush_next;                /* before the next call, which counts */
	struct ww_cuda_stamps *stamps; /* plugin_clock.c */
	struct ww_clocks_empty empty;
	const struct ww_image *image;
	struct ww_exec *exec;
	struct ww_cuda_buffer *buffers; /* image->n_buffers */
	void **addresses;
	CUfunction digest, stamp;
	CUdeviceptr sum; /* of the digest, 8 bytes */
	uint64_t guards; /* digest of the guard bytes when they were written */
	struct ww_cuda_behind *behind;
	int guard_next;    /* the next call without a clock queues the look at the guard bytes behind it */
	int guards_queued; /* that has been done, and waited for */
	struct ww_cuda_table *tables;
	int n_tables;
	int sm_count;
	int exact;                  /* WW_RUN_EXACT */
	unsigned poisoned;          /* how often, with the plan that is loaded */
	struct ww_cuda_part *parts; /* once they are ready */
	int n_parts;
};

/* Run a driver call; on an error set `kind` and go to out. */
#define WW_CUDA_TRY(call, what)                                                        \
	do {                                                                           \
		CUresult cu_result_ = (call);                                          \
		if (cu_result_ != CUDA_SUCCESS) {                                      \
			kind = ww_cuda_failed(x, r, WW_RUN_BROKEN, what, cu_result_);  \
			goto out;                                                      \
		}                                                                      \
	} while (0)

/* ---- plugin_device.c */

/* Says "what: NAME OF THE ERROR"; kind, or WW_RUN_NOMEM where memory ran out. */
int ww_cuda_failed(struct ww_cuda *x, struct ww_run_reply *r, int kind, const char *what, CUresult e);
/* The device reported an error while the candidate's work was on it: WW_RUN_FAULT. */
int ww_cuda_fault(struct ww_cuda *x, struct ww_run_reply *r, CUresult e);
int ww_cuda_attribute(struct ww_cuda *x, CUdevice_attribute a);
int ww_cuda_open(void **self, int device, int threads, const struct ww_run_host *host, struct ww_run_reply *r);
int ww_cuda_hello(void *self, unsigned flags, struct ww_run_facts *f, struct ww_run_reply *r);

/* ---- plugin_memory.c */

/* Once, with a context that is current and before any candidate is there. */
int ww_cuda_memory_open(struct ww_cuda *x, struct ww_run_reply *r);
int ww_cuda_bind(void *self, const struct ww_run_bind *q, int fd, struct ww_run_reply *r);
/* Memory of the plan's own for a buffer that is not bound. */
int ww_cuda_scratch(struct ww_cuda *x, struct ww_cuda_buffer *b, size_t bytes, struct ww_run_reply *r);
void ww_cuda_unmap(struct ww_cuda *x, struct ww_cuda_buffer *b);
/* Once everything is bound and made: the same contents in allocations that end where the buffers end. */
int ww_cuda_exact(struct ww_cuda *x, struct ww_run_reply *r);
/* Queue the poison of all that the plan may write, and the values of its tables. */
CUresult ww_cuda_poison(struct ww_cuda *x);
/* The outputs as they are when everything queued has ended; waits. */
CUresult ww_cuda_digest_outputs(struct ww_cuda *x, uint64_t key, uint64_t *out);
/* What lies beside the writable buffers, but for up to 15 bytes behind each; waits. */
CUresult ww_cuda_digest_guards(struct ww_cuda *x, uint64_t *out);
/* Queue the look at the guard bytes behind a call, which ww_cuda_guards() then need not wait for again. */
CUresult ww_cuda_queue_guards(struct ww_cuda *x);
/* WW_RUN_OVERRUN where a guard byte has changed, WW_RUN_REFUSED where a table has. */
int ww_cuda_guards(void *self, struct ww_run_reply *r);

/* ---- plugin_tables.c */

/* Once a plan's module is loaded, before anything of it has run. */
int ww_cuda_tables_load(struct ww_cuda *x, const void *binary, size_t bytes, struct ww_run_reply *r);
/* Queue their values again; part of ww_cuda_poison(). */
CUresult ww_cuda_tables_restore(struct ww_cuda *x);
/* WW_RUN_REFUSED where the last run has changed one. */
int ww_cuda_tables_check(struct ww_cuda *x, struct ww_run_reply *r);
void ww_cuda_tables_free(struct ww_cuda *x);

/* ---- plugin_clock.c */

struct ww_cuda_stamps;
/* The memory that is written to flush the caches. */
int ww_cuda_flush_open(struct ww_cuda *x, struct ww_run_reply *r);
/* Find out what a call without a graph takes: once, before anything of a candidate's has run in this process. */
int ww_cuda_clock_set(struct ww_cuda *x, struct ww_run_reply *r);
/* The graph once, on flushed caches. */
CUresult ww_cuda_clock_call(struct ww_cuda *x, CUgraphExec graph, struct ww_believed *out);

/* ---- plugin_profile.c, plugin_counters.c */

/* A plan that is ready, borrowed from plugin_cuda.c. */
struct ww_cuda_plan {
	const struct ww_run_host *host;
	int device; /* ordinal */
	CUcontext context;
	CUstream stream;
	const struct ww_image *image;
	struct ww_exec *exec;
	void *const *addresses;
	const struct ww_cuda_part *parts;
	int n_parts;
	CUdeviceptr flush; /* writing it evicts the L2 cache */
	size_t flush_bytes;
};

/* Times and resources of every node into out->nodes. */
int ww_cuda_profile(const struct ww_cuda_plan *p, unsigned repeats, struct ww_run_profile *out, struct ww_run_reply *r);
/* Hardware counters of the longest nodes, or the reason in out->counters_why.  A fault of the device is the only
 * failure. */
int ww_cuda_counters(const struct ww_cuda_plan *p, struct ww_run_profile *out, struct ww_run_reply *r);
