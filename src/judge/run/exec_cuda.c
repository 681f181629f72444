/* exec_cuda.c - plans on the cuda target: nodes issued on a stream through the driver API.
 *
 * This file is carried by exported libraries (exec.h), so it needs nothing but libc, dlopen and the types of <cuda.h>:
 * libcuda is opened at run time, and so are the libraries behind library nodes (exec_cuda_library.c).
 *
 * Everything that can fail is tried in ww_exec_load(): kernels are looked up, their parameters compared with the plan's
 * arguments (a launch with the wrong number of arguments would read past the end of ours), shared memory, block size
 * and residency checked against the device, library algorithms chosen within the node's workspace.  Issuing then only
 * issues and may be captured into a CUDA graph.  Library nodes of a plan share one workspace, since a plan is one
 * stream. */
#include "judge/run/exec.h"
#include "judge/run/exec_cuda_library.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The driver -------------------------------------------------------------------------------------------------- */

/* The macros of <cuda.h> pick the version of each function, here and in the symbol that is looked up. */
#define DRIVER_MAP(X)                                                                                            \
	X(cuGetErrorName) X(cuCtxGetDevice) X(cuDeviceGetAttribute) X(cuModuleLoadData) X(cuModuleUnload)        \
	X(cuModuleGetFunction) X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuFuncGetParamInfo)                 \
	X(cuLaunchKernelEx) X(cuMemsetD8Async) X(cuMemcpyDtoDAsync) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo)                  \
	X(cuTensorMapEncodeTiled) X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuOccupancyMaxActiveClusters)

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

struct driver {
#define X(name) __typeof__(&name) name;
	DRIVER_MAP(X)
#undef X
};

static int driver_open(struct driver *d, char *why)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		snprintf(why, WW_EXEC_WHY, "no NVIDIA driver: %.300s", dlerror());
		return WW_EXEC_UNAVAILABLE;
	}
#define X(name)                                                                                                  \
	*(void **)&d->name = dlsym(lib, TEXT(name));                                                             \
	if (!d->name) {                                                                                          \
		snprintf(why, WW_EXEC_WHY, "the NVIDIA driver is too old: it has no %s", TEXT(name));            \
		return WW_EXEC_UNAVAILABLE;                                                                      \
	}
	DRIVER_MAP(X)
#undef X
	return WW_EXEC_OK;
}

union value {
	CUdeviceptr p;
	int i32;
	long long i64;
	float f32;
	double f64;
};

struct ww_exec {
	struct driver cu;
	struct ww_library *library; /* gemm and conv nodes */
	const struct ww_image *image;
	CUdevice device;
	CUmodule module;
	CUfunction *functions; /* one a node; NULL where the node is no launch */
	CUdeviceptr workspace;
	size_t workspace_bytes;
};

static int fail(struct ww_exec *e, char *why, int rc, const char *what, CUresult r)
{
	const char *name = NULL;
	if (e->cu.cuGetErrorName)
		e->cu.cuGetErrorName(r, &name);
	snprintf(why, WW_EXEC_WHY, "%s: %s", what, name ? name : "unknown error");
	return r == CUDA_ERROR_OUT_OF_MEMORY ? WW_EXEC_NOMEM : rc;
}

static int attribute(const struct ww_exec *e, CUdevice_attribute a)
{
	int v = 0;
	e->cu.cuDeviceGetAttribute(&v, a, e->device);
	return v;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static const size_t arg_bytes[] = {
	[WW_ARG_BUF] = 8, [WW_ARG_I32] = 4, [WW_ARG_I64] = 8, [WW_ARG_F32] = 4, [WW_ARG_F64] = 8, [WW_ARG_TMAP] = 128
};

static int check_params(struct ww_exec *e, const struct ww_image_launch *l, CUfunction f, const char *name, char *why)
{
	const struct ww_image_arg *a = ww_image_args(e->image) + l->first_arg;
	size_t offset, bytes;
	for (uint32_t i = 0; i < l->n_args; i++) {
		if (e->cu.cuFuncGetParamInfo(f, i, &offset, &bytes) != CUDA_SUCCESS) {
			snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\" has %u parameters, the plan gives %u arguments", name, i,
				l->n_args);
			return WW_EXEC_REFUSED;
		}
		if (bytes != arg_bytes[a[i].kind]) {
			snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\": parameter %u takes %zu bytes, the plan's argument has %zu",
				name, i, bytes, arg_bytes[a[i].kind]);
			return WW_EXEC_REFUSED;
		}
	}
	if (e->cu.cuFuncGetParamInfo(f, l->n_args, &offset, &bytes) == CUDA_SUCCESS) {
		snprintf(
			why, WW_EXEC_WHY, "kernel \"%.200s\" has more parameters than the plan's %u arguments", name, l->n_args);
		return WW_EXEC_REFUSED;
	}
	return WW_EXEC_OK;
}

static long long cluster_blocks(const struct ww_image_launch *l)
{
	return l->cluster[0] > 0 ? (long long)l->cluster[0] * l->cluster[1] * l->cluster[2] : 1;
}

/* Attributes of a launch into `at` (3 at most). */
static unsigned launch_attributes(const struct ww_image_launch *l, CUlaunchAttribute *at)
{
	unsigned n = 0;
	memset(at, 0, 3 * sizeof(*at));
	if (l->cluster[0] > 0) {
		at[n].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
		at[n].value.clusterDim.x = (unsigned)l->cluster[0];
		at[n].value.clusterDim.y = (unsigned)l->cluster[1];
		at[n++].value.clusterDim.z = (unsigned)l->cluster[2];
	}
	if (l->flags & WW_NODE_COOPERATIVE) {
		at[n].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
		at[n++].value.cooperative = 1;
	}
	if (l->flags & WW_NODE_PDL) {
		at[n].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		at[n++].value.programmaticStreamSerializationAllowed = 1;
	}
	return n;
}

static void launch_config(const struct ww_image_launch *l, CUlaunchAttribute *at, CUstream stream, CUlaunchConfig *c)
{
	memset(c, 0, sizeof(*c));
	c->gridDimX = (unsigned)l->grid[0];
	c->gridDimY = (unsigned)l->grid[1];
	c->gridDimZ = (unsigned)l->grid[2];
	c->blockDimX = (unsigned)l->block[0];
	c->blockDimY = (unsigned)l->block[1];
	c->blockDimZ = (unsigned)l->block[2];
	c->sharedMemBytes = (unsigned)l->shared_bytes;
	c->hStream = stream;
	c->attrs = at;
	c->numAttrs = launch_attributes(l, at);
}

static int check_residency(
	struct ww_exec *e, const struct ww_image_launch *l, CUfunction f, const char *name, char *why)
{
	int threads = l->block[0] * l->block[1] * l->block[2], fit = 0;
	long long blocks = (long long)(l->grid[0] * l->grid[1] * l->grid[2]), room;
	CUlaunchAttribute at[3];
	CUlaunchConfig c;

	if (l->cluster[0] > 0) {
		launch_config(l, at, NULL, &c);
		if (e->cu.cuOccupancyMaxActiveClusters(&fit, f, &c) != CUDA_SUCCESS || fit < 1) {
			snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\": no cluster of %lld blocks fits on this device", name,
				cluster_blocks(l));
			return WW_EXEC_REFUSED;
		}
		room = fit * cluster_blocks(l);
	} else {
		e->cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&fit, f, threads, (size_t)l->shared_bytes);
		room = (long long)fit * attribute(e, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	}
	if ((l->flags & WW_NODE_COOPERATIVE) && blocks > room) {
		snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\": a cooperative launch of %lld blocks, %lld fit at once", name,
			blocks, room);
		return WW_EXEC_REFUSED;
	}
	return WW_EXEC_OK;
}

static int check_shared(struct ww_exec *e, const struct ww_image_launch *l, CUfunction f, const char *name, char *why)
{
	int fixed = 0, limit = attribute(e, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), now = 0;
	e->cu.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
	if (l->shared_bytes + fixed > limit) {
		snprintf(why, WW_EXEC_WHY,
			"kernel \"%.200s\" wants %lld bytes of shared memory (%d of them static), the limit is %d", name,
			(long long)l->shared_bytes + fixed, fixed, limit);
		return WW_EXEC_REFUSED;
	}
	/* Several launches of one kernel: the largest counts. */
	e->cu.cuFuncGetAttribute(&now, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f);
	CUresult r = l->shared_bytes > now
		? e->cu.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)l->shared_bytes)
		: CUDA_SUCCESS;
	if (r == CUDA_SUCCESS && cluster_blocks(l) > 8)
		r = e->cu.cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
	return r == CUDA_SUCCESS ? WW_EXEC_OK : fail(e, why, WW_EXEC_REFUSED, name, r);
}

static int load_launch(struct ww_exec *e, uint32_t node, const struct ww_exec_kernel *kernels, int n_kernels, char *why)
{
	const struct ww_image_launch *l = &ww_image_nodes(e->image)[node].launch;
	const char *name = ww_image_string(e->image, l->kernel);
	CUfunction f;
	int most = 0, threads = l->block[0] * l->block[1] * l->block[2];

	if (!e->module ||
		e->cu.cuModuleGetFunction(&f, e->module, ww_exec_symbol(kernels, n_kernels, name)) != CUDA_SUCCESS) {
		snprintf(why, WW_EXEC_WHY, "kernels.cu defines no kernel \"%.200s\"", name);
		return WW_EXEC_REFUSED;
	}
	e->functions[node] = f;
	e->cu.cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f);
	if (threads > most) {
		snprintf(why, WW_EXEC_WHY,
			"kernel \"%.200s\" can have at most %d threads a block (its registers), the plan asks for %d", name, most,
			threads);
		return WW_EXEC_REFUSED;
	}
	int rc = check_params(e, l, f, name, why);
	if (rc == WW_EXEC_OK)
		rc = check_shared(e, l, f, name, why);
	if (rc == WW_EXEC_OK)
		rc = check_residency(e, l, f, name, why);
	return rc;
}

static CUtensorMapDataType tensor_map_type(int dtype)
{
	switch (dtype) {
	case WW_F32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
	case WW_F64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
	case WW_F16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
	case WW_BF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
	case WW_I16: return CU_TENSOR_MAP_DATA_TYPE_UINT16;
	case WW_I32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
	case WW_I64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
	default: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
	}
}

static int encode_map(struct ww_exec *e, const struct ww_tmap *t, void *const *buffers, CUtensorMap *out, char *why)
{
	static const CUtensorMapSwizzle swizzles[] = { CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
		CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B };
	cuuint64_t size[5], stride[5];
	cuuint32_t box[5], step[5];
	for (int i = 0; i < t->rank; i++) {
		size[i] = (cuuint64_t)t->size[i];
		box[i] = (cuuint32_t)t->box[i];
		step[i] = t->elem_stride[i] ? (cuuint32_t)t->elem_stride[i] : 1;
		if (i)
			stride[i - 1] = (cuuint64_t)t->stride_bytes[i];
	}
	CUresult r = e->cu.cuTensorMapEncodeTiled(out, tensor_map_type(t->dtype), (cuuint32_t)t->rank,
		(char *)buffers[t->buf] + t->offset_bytes, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
		swizzles[t->swizzle & 3], CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
		t->fill == WW_FILL_NAN ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	return r == CUDA_SUCCESS ? WW_EXEC_OK
							 : fail(e, why, WW_EXEC_REFUSED, "a tensor map that the driver does not accept", r);
}

static int issue_launch(struct ww_exec *e, uint32_t node, void *const *buffers, CUstream stream, char *why)
{
	const struct ww_image_launch *l = &ww_image_nodes(e->image)[node].launch;
	const struct ww_image_arg *a = ww_image_args(e->image) + l->first_arg;
	union value values[WW_MAX_ARGS];
	CUtensorMap maps[WW_MAX_ARGS];
	void *params[WW_MAX_ARGS];
	CUlaunchAttribute at[3];
	CUlaunchConfig c;

	for (uint32_t i = 0; i < l->n_args; i++) {
		params[i] = &values[i];
		switch (a[i].kind) {
		case WW_ARG_BUF: values[i].p = (CUdeviceptr)(uintptr_t)buffers[a[i].buf] + (CUdeviceptr)a[i].i; break;
		case WW_ARG_I32: values[i].i32 = (int)a[i].i; break;
		case WW_ARG_I64: values[i].i64 = a[i].i; break;
		case WW_ARG_F32: values[i].f32 = a[i].f32; break;
		case WW_ARG_F64: values[i].f64 = a[i].f64; break;
		default: {
			int rc = encode_map(e, &ww_image_tmaps(e->image)[a[i].buf].t, buffers, &maps[i], why);
			if (rc != WW_EXEC_OK)
				return rc;
			params[i] = &maps[i];
		}
		}
	}
	launch_config(l, at, stream, &c);
	CUresult r = e->cu.cuLaunchKernelEx(&c, e->functions[node], params, NULL);
	return r == CUDA_SUCCESS ? WW_EXEC_OK : fail(e, why, WW_EXEC_REFUSED, ww_image_string(e->image, l->kernel), r);
}

static const char *at(void *const *buffers, int buf, long long offset) { return (const char *)buffers[buf] + offset; }

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* What a workspace may take: half of what is left when the plan's buffers, and what is compared with them, are there,
 * or 1 GiB.  Counted from the device's whole memory: what others hold at the moment must not choose the algorithm. */
static size_t spare_memory(const struct ww_exec *e)
{
	const size_t least = (size_t)1 << 30;
	size_t free_bytes = 0, total = 0, held = 0;
	e->cu.cuMemGetInfo(&free_bytes, &total);
	for (uint32_t i = 0; i < e->image->n_buffers; i++)
		held += 4 * (size_t)ww_image_buffers(e->image)[i].bytes;
	return total / 2 > held / 2 + least ? (total - held) / 2 : least;
}

static int load_nodes(struct ww_exec *e, const struct ww_exec_kernel *kernels, int n_kernels, char *why)
{
	const struct ww_image_node *nodes = ww_image_nodes(e->image);
	for (uint32_t i = 0; i < e->image->n_nodes; i++) {
		size_t workspace = 0;
		int rc = nodes[i].kind == WW_NODE_LAUNCH ? load_launch(e, i, kernels, n_kernels, why)
			: nodes[i].kind == WW_NODE_GEMM || nodes[i].kind == WW_NODE_CONV
			? ww_library_load(e->library, i, spare_memory(e), &workspace, why)
			: WW_EXEC_OK;
		if (rc != WW_EXEC_OK)
			return rc;
		if (workspace > e->workspace_bytes)
			e->workspace_bytes = workspace;
	}
	if (!e->workspace_bytes)
		return WW_EXEC_OK;
	CUresult r = e->cu.cuMemAlloc(&e->workspace, e->workspace_bytes);
	return r == CUDA_SUCCESS ? WW_EXEC_OK : fail(e, why, WW_EXEC_FAULT, "workspace", r);
}

int ww_exec_load(struct ww_exec **out, const struct ww_image *m, const void *binary, size_t binary_bytes,
	const struct ww_exec_kernel *kernels, int n_kernels, int threads, char *why)
{
	struct ww_exec *e = calloc(1, sizeof(*e));
	CUresult r;
	int rc = WW_EXEC_NOMEM;
	(void)threads;

	*why = 0;
	*out = NULL;
	if (!e)
		return rc;
	e->image = m;
	e->functions = calloc(m->n_nodes + 1u, sizeof(*e->functions));
	e->library = ww_library_new(m);
	if (!e->functions || !e->library)
		goto out;
	if ((rc = driver_open(&e->cu, why)) != WW_EXEC_OK)
		goto out;
	if ((r = e->cu.cuCtxGetDevice(&e->device)) != CUDA_SUCCESS) {
		rc = fail(e, why, WW_EXEC_FAULT, "no CUDA context is current", r);
		goto out;
	}
	if (binary_bytes && (r = e->cu.cuModuleLoadData(&e->module, binary)) != CUDA_SUCCESS) {
		rc = fail(e, why, WW_EXEC_REFUSED, "the compiled kernels cannot be loaded", r);
		goto out;
	}
	rc = load_nodes(e, kernels, n_kernels, why);
out:
	if (rc != WW_EXEC_OK)
		ww_exec_free(e);
	else
		*out = e;
	return rc;
}

int ww_exec_issue_node(struct ww_exec *e, uint32_t node, void *const *buffers, void *stream, char *why)
{
	const struct ww_image_node *d = &ww_image_nodes(e->image)[node];
	CUstream s = stream;
	CUresult r = CUDA_SUCCESS;

	*why = 0;
	switch (d->kind) {
	case WW_NODE_LAUNCH: return issue_launch(e, node, buffers, s, why);
	case WW_NODE_GEMM:
	case WW_NODE_CONV:
		return ww_library_issue(e->library, node, buffers, (void *)(uintptr_t)e->workspace, e->workspace_bytes, s, why);
	case WW_NODE_PYTORCH: break;
	case WW_NODE_MEMSET:
		if (d->set.bytes)
			r = e->cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)at(buffers, d->set.buf, d->set.offset_bytes),
				(unsigned char)d->set.byte, (size_t)d->set.bytes, s);
		break;
	default:
		if (d->copy.bytes)
			r = e->cu.cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)at(buffers, d->copy.dst, d->copy.dst_offset_bytes),
				(CUdeviceptr)(uintptr_t)at(buffers, d->copy.src, d->copy.src_offset_bytes), (size_t)d->copy.bytes, s);
		break;
	}
	return r == CUDA_SUCCESS ? WW_EXEC_OK : fail(e, why, WW_EXEC_FAULT, "a memory node", r);
}

int ww_exec_issue(struct ww_exec *e, void *const *buffers, void *stream, char *why)
{
	return ww_exec_issue_part(e, buffers, 0, e->image->n_nodes, stream, why);
}

int ww_exec_issue_part(struct ww_exec *e, void *const *buffers, uint32_t from, uint32_t to, void *stream, char *why)
{
	int rc = WW_EXEC_OK;
	*why = 0;
	for (uint32_t i = from; i < to && rc == WW_EXEC_OK; i++)
		rc = ww_exec_issue_node(e, i, buffers, stream, why);
	return rc;
}

void *ww_exec_function(const struct ww_exec *e, uint32_t node) { return e->functions[node]; }

void *ww_exec_module(const struct ww_exec *e) { return e->module; }

void ww_exec_free(struct ww_exec *e)
{
	if (!e)
		return;
	ww_library_free(e->library);
	if (e->workspace)
		e->cu.cuMemFree(e->workspace);
	if (e->module)
		e->cu.cuModuleUnload(e->module);
	free(e->functions);
	free(e);
}
