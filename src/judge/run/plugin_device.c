/* plugin_device.c - the cuda plug-in's driver, context and facts.
 *
 * The driver is loaded by name and each of its functions looked up, so that the plug-in can be opened, and say what is
 * missing, on a machine that has none.
 *
 * Where the driver keeps its own data.  It maps what device and host share at the same addresses in every process, and
 * some of that (the time stamps of events) is what a candidate would like to write.  So a random part of the address
 * space is reserved before the driver starts: plugin_clock.c says against what. */
#include "judge/run/plugin_parts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

int ww_cuda_failed(struct ww_cuda *x, struct ww_run_reply *r, int kind, const char *what, CUresult e)
{
	const char *name = NULL;
	if (x->cuGetErrorName)
		x->cuGetErrorName(e, &name);
	snprintf(r->text, sizeof(r->text), "%s: %s", what, name ? name : "unknown CUDA error");
	return e == CUDA_ERROR_OUT_OF_MEMORY ? WW_RUN_NOMEM : kind;
}

static const char *fault_text(CUresult e)
{
	switch (e) {
	case CUDA_ERROR_ILLEGAL_ADDRESS: return WW_RUN_ILLEGAL_ADDRESS;
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

int ww_cuda_fault(struct ww_cuda *x, struct ww_run_reply *r, CUresult e)
{
	ww_cuda_failed(x, r, WW_RUN_FAULT, fault_text(e), e);
	return WW_RUN_FAULT;
}

int ww_cuda_attribute(struct ww_cuda *x, CUdevice_attribute a)
{
	int v = 0;
	x->cuDeviceGetAttribute(&v, a, x->device);
	return v;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static int load_driver(struct ww_cuda *x, struct ww_run_reply *r)
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
	WW_CUDA_DRIVER_MAP(X)
#undef X
	return WW_RUN_OK;
}

/* The driver maps what device and host share from 8 GiB upwards, in steps of 4 GiB where something is in its way. */
static void move_driver_mappings(void)
{
	enum { STEPS = 17 }; /* 64 GiB is enough (tried); with 8 TiB the driver fails */
	unsigned char lot = 0;
	if (getentropy(&lot, 1) || !(lot % STEPS))
		return;
	(void)mmap((void *)0x200000000ull, (size_t)(lot % STEPS) << 32, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0); /* not to be had: then it stays */
}

int ww_cuda_open(void **self, int device, int threads, const struct ww_run_host *host, struct ww_run_reply *r)
{
	struct ww_cuda *x = calloc(1, sizeof(*x));
	int kind, count = 0;
	(void)threads;

	if (!x)
		return WW_RUN_BROKEN;
	*self = x;
	x->host = host;
	if ((kind = load_driver(x, r)) != WW_RUN_OK)
		return kind;
	move_driver_mappings();
	(void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1); /* a plan has one stream: its context starts sooner */
	WW_CUDA_TRY(x->cuInit(0), "cuInit");
	WW_CUDA_TRY(x->cuDeviceGetCount(&count), "cuDeviceGetCount");
	if (device >= count) {
		snprintf(r->text, sizeof(r->text), "there is no GPU %d, this machine has %d", device, count);
		return WW_RUN_BROKEN;
	}
	WW_CUDA_TRY(x->cuDeviceGet(&x->device, device), "cuDeviceGet");
	WW_CUDA_TRY(x->cuDevicePrimaryCtxRetain(&x->context, x->device), "cannot make a CUDA context");
	WW_CUDA_TRY(x->cuCtxSetCurrent(x->context), "cuCtxSetCurrent");
	WW_CUDA_TRY(x->cuStreamCreate(&x->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	WW_CUDA_TRY(x->cuEventCreate(&x->start, CU_EVENT_DEFAULT), "cuEventCreate");
	WW_CUDA_TRY(x->cuEventCreate(&x->stop, CU_EVENT_DEFAULT), "cuEventCreate");
	kind = ww_cuda_memory_open(x, r);
out:
	return kind == WW_RUN_NOMEM ? WW_RUN_BROKEN : kind;
}

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

/* A copy of 1 GiB, best of ten; 0 where there is no room for it. */
static double copy_bandwidth(struct ww_cuda *x)
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

/* Per SM and cycle; newer GPUs than those listed: not known. */
static void limits(struct ww_cuda *x, struct ww_run_facts *f)
{
	static const struct {
		int cc;
		double plain, matrix;
	} rates[] = { { 70, 128, 1024 }, { 75, 128, 1024 }, { 80, 128, 2048 }, { 86, 256, 1024 }, { 87, 256, 1024 },
		{ 89, 256, 1024 }, { 90, 256, 4096 }, { 100, 256, 8192 }, { 103, 256, 8192 }, { 120, 256, 1024 },
		{ 121, 256, 1024 } };
	double cycles = 1e3 * ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_CLOCK_RATE) * f->device.sm_count;
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		if (rates[i].cc == f->device.cc) {
			f->plain_limit_flops = cycles * rates[i].plain;
			f->matrix_limit_flops = cycles * rates[i].matrix;
		}
}

int ww_cuda_hello(void *self, unsigned flags, struct ww_run_facts *f, struct ww_run_reply *r)
{
	struct ww_cuda *x = self;
	struct ww_device *d = &f->device;
	CUuuid uuid;
	size_t total = 0;
	int version = 0, kind = WW_RUN_OK;

	memset(f, 0, sizeof(*f));
	f->abi = WW_RUN_ABI;
	WW_CUDA_TRY(x->cuDeviceGetName(f->name, sizeof(f->name), x->device), "cuDeviceGetName");
	WW_CUDA_TRY(x->cuDeviceGetUuid(&uuid, x->device), "cuDeviceGetUuid");
	WW_CUDA_TRY(x->cuDriverGetVersion(&version), "cuDriverGetVersion");
	WW_CUDA_TRY(x->cuDeviceTotalMem(&total, x->device), "cuDeviceTotalMem");
	uuid_text((const unsigned char *)uuid.bytes, f->uuid, sizeof(f->uuid));
	snprintf(f->driver, sizeof(f->driver), "%d", version);
	d->target = WW_TARGET_CUDA;
	d->cc = 10 * ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
		ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	d->sm_count = ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	d->warp_size = ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
	d->max_threads_per_block = ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	d->max_threads_per_sm = ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
	d->regs_per_sm = ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
	d->shared_per_block_bytes = ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	d->shared_per_sm_bytes = ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	d->l2_bytes = ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
	d->memory_bytes = (long long)total;
	limits(x, f);
	x->exact = (flags & WW_RUN_EXACT) != 0;
	if (flags & WW_RUN_MEASURE)
		d->memory_bytes_per_s = copy_bandwidth(x);
out:
	return kind;
}
