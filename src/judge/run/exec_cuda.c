/* exec_cuda.c - plans on the cuda target: nodes issued on a stream through the driver API.
 *
 * This file is carried by exported libraries (exec.h), so it needs nothing but libc, dlopen and the types of <cuda.h>:
 * libcuda, cublasLt and cuDNN are opened at run time, the latter two only where a plan has library nodes.  What of their
 * interfaces is used is declared here, with the numbers of their stable C ABIs (cuBLASLt 11 to 13, cuDNN 8 and 9), because
 * their headers are missing on most machines that have the libraries.
 *
 * Everything that can fail is tried in ww_exec_load(): kernels are looked up, their parameters compared with the plan's
 * arguments (a launch with the wrong number of arguments would read past the end of ours), shared memory, block size and
 * residency checked against the device, library algorithms chosen by the libraries' own heuristics within the node's
 * workspace.  Issuing then only issues and may be captured into a CUDA graph.  Library nodes of a plan share one workspace,
 * since a plan is one stream.
 *
 * GEMM.  cuBLASLt is column-major: a row-major matrix is the transpose of a column-major one, so D = A B is asked for as
 * D' = B' A'; the bias, one element a column of D, is then one a row of D', which is what the library's epilogue adds.
 *
 * Convolution.  cuDNN's convolution calls, then one call each for bias and ReLU.  torch.nn.ConvTranspose is the gradient of
 * a convolution with respect to its input, with the same weights.  One spatial dimension becomes two of which the first is
 * 1.  math fp32 is FMA only; cuDNN's default would allow TF32. */
#include "judge/run/exec.h"

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
	X(cuLaunchKernelEx) X(cuMemsetD8Async) X(cuMemcpyDtoDAsync) X(cuMemAlloc) X(cuMemFree)                   \
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

/* ---- cuBLASLt and cuDNN, as far as they are used ----------------------------------------------------------------- */

enum {
	LT_COMPUTE_32F = 68, LT_COMPUTE_64F = 70, LT_COMPUTE_32F_TF32 = 77,
	LT_R_32F = 0, LT_R_64F = 1, LT_R_16F = 2, LT_R_16BF = 14,
	LT_DESC_TRANSA = 3, LT_DESC_TRANSB = 4, LT_DESC_EPILOGUE = 7, LT_DESC_BIAS_POINTER = 8,
	LT_EPI_DEFAULT = 1, LT_EPI_RELU = 2, LT_EPI_BIAS = 4, LT_EPI_RELU_BIAS = 6,
	LT_LAYOUT_BATCH = 5, LT_LAYOUT_STRIDE = 6,
	LT_PREF_WORKSPACE = 1, LT_PREF_ALIGN_A = 5, LT_PREF_ALIGN_B = 6, LT_PREF_ALIGN_C = 7, LT_PREF_ALIGN_D = 8,
	LT_TRANS = 1
};
struct lt_algo { uint64_t data[8]; };
struct lt_result { struct lt_algo algo; size_t workspace; int status; float waves; int reserved[4]; };
_Static_assert(sizeof(struct lt_result) == 96, "cublasLtMatmulHeuristicResult_t");

struct lt {
	void *handle;
	int (*cublasLtCreate)(void **handle);
	int (*cublasLtDestroy)(void *handle);
	int (*cublasLtMatmulDescCreate)(void **desc, int compute, int scale_type);
	int (*cublasLtMatmulDescDestroy)(void *desc);
	int (*cublasLtMatmulDescSetAttribute)(void *desc, int attribute, const void *value, size_t bytes);
	int (*cublasLtMatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld);
	int (*cublasLtMatrixLayoutDestroy)(void *layout);
	int (*cublasLtMatrixLayoutSetAttribute)(void *layout, int attribute, const void *value, size_t bytes);
	int (*cublasLtMatmulPreferenceCreate)(void **pref);
	int (*cublasLtMatmulPreferenceDestroy)(void *pref);
	int (*cublasLtMatmulPreferenceSetAttribute)(void *pref, int attribute, const void *value, size_t bytes);
	int (*cublasLtMatmulAlgoGetHeuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref, int want,
					      struct lt_result *out, int *got);
	int (*cublasLtMatmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
			      void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
			      const struct lt_algo *algo, void *workspace, size_t workspace_bytes, CUstream stream);
};

enum {
	DNN_FLOAT = 0, DNN_DOUBLE = 1, DNN_HALF = 2, DNN_BFLOAT16 = 9, DNN_NCHW = 0, DNN_NHWC = 1, DNN_DEFAULT_MATH = 0,
	DNN_TENSOR_OP_MATH = 1, DNN_FMA_MATH = 3, DNN_CROSS_CORRELATION = 1, DNN_RELU = 1, DNN_PROPAGATE_NAN = 1,
	DNN_MAX_ALGOS = 12
};
struct dnn_perf { int algo, status; float time; int pad; size_t memory; int determinism, math, reserved[4]; };
_Static_assert(sizeof(struct dnn_perf) == 48, "cudnnConvolutionFwdAlgoPerf_t");

struct dnn {
	void *handle;
	int (*cudnnCreate)(void **handle);
	int (*cudnnDestroy)(void *handle);
	int (*cudnnSetStream)(void *handle, CUstream stream);
	int (*cudnnCreateTensorDescriptor)(void **t);
	int (*cudnnDestroyTensorDescriptor)(void *t);
	int (*cudnnSetTensorNdDescriptorEx)(void *t, int format, int type, int rank, const int *size);
	int (*cudnnCreateFilterDescriptor)(void **f);
	int (*cudnnDestroyFilterDescriptor)(void *f);
	int (*cudnnSetFilterNdDescriptor)(void *f, int type, int format, int rank, const int *size);
	int (*cudnnCreateConvolutionDescriptor)(void **c);
	int (*cudnnDestroyConvolutionDescriptor)(void *c);
	int (*cudnnSetConvolutionNdDescriptor)(void *c, int n, const int *pad, const int *stride, const int *dilation, int mode,
					       int compute);
	int (*cudnnSetConvolutionMathType)(void *c, int math);
	int (*cudnnSetConvolutionGroupCount)(void *c, int groups);
	int (*cudnnCreateActivationDescriptor)(void **a);
	int (*cudnnDestroyActivationDescriptor)(void *a);
	int (*cudnnSetActivationDescriptor)(void *a, int mode, int nan, double coefficient);
	int (*cudnnGetConvolutionForwardAlgorithm_v7)(void *handle, void *x, void *w, void *c, void *y, int want, int *got,
						      struct dnn_perf *out);
	int (*cudnnGetConvolutionBackwardDataAlgorithm_v7)(void *handle, void *w, void *dy, void *c, void *dx, int want,
							   int *got, struct dnn_perf *out);
	int (*cudnnConvolutionForward)(void *handle, const void *alpha, void *x_desc, const void *x, void *w_desc, const void *w,
				       void *c, int algo, void *workspace, size_t bytes, const void *beta, void *y_desc, void *y);
	int (*cudnnConvolutionBackwardData)(void *handle, const void *alpha, void *w_desc, const void *w, void *dy_desc,
					    const void *dy, void *c, int algo, void *workspace, size_t bytes, const void *beta,
					    void *dx_desc, void *dx);
	int (*cudnnAddTensor)(void *handle, const void *alpha, void *a_desc, const void *a, const void *beta, void *c_desc, void *c);
	int (*cudnnActivationForward)(void *handle, void *act, const void *alpha, void *x_desc, const void *x, const void *beta,
				      void *y_desc, void *y);
};

struct gemm_state { void *desc, *a, *b, *c, *d; struct lt_algo algo; };
struct conv_state { void *x, *w, *y, *conv, *bias, *act; int algo; };

union value { CUdeviceptr p; int i32; long long i64; float f32; double f64; };

struct ww_exec {
	struct driver cu;
	struct lt lt;
	struct dnn dnn;
	const struct ww_image *image;
	CUdevice device;
	CUmodule module;
	CUfunction *functions;		/* one a node; NULL where the node is no launch */
	struct gemm_state *gemms;	/* one a node */
	struct conv_state *convs;	/* one a node */
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

static const size_t arg_bytes[] = { [WW_ARG_BUF] = 8, [WW_ARG_I32] = 4, [WW_ARG_I64] = 8, [WW_ARG_F32] = 4, [WW_ARG_F64] = 8,
				    [WW_ARG_TMAP] = 128 };

static int check_params(struct ww_exec *e, const struct ww_image_launch *l, CUfunction f, const char *name, char *why)
{
	const struct ww_image_arg *a = ww_image_args(e->image) + l->first_arg;
	size_t offset, bytes;
	for (uint32_t i = 0; i < l->n_args; i++) {
		if (e->cu.cuFuncGetParamInfo(f, i, &offset, &bytes) != CUDA_SUCCESS) {
			snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\" has %u parameters, the plan gives %u arguments", name, i, l->n_args);
			return WW_EXEC_REFUSED;
		}
		if (bytes != arg_bytes[a[i].kind]) {
			snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\": parameter %u takes %zu bytes, the plan's argument has %zu", name, i,
				 bytes, arg_bytes[a[i].kind]);
			return WW_EXEC_REFUSED;
		}
	}
	if (e->cu.cuFuncGetParamInfo(f, l->n_args, &offset, &bytes) == CUDA_SUCCESS) {
		snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\" has more parameters than the plan's %u arguments", name, l->n_args);
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

static int check_residency(struct ww_exec *e, const struct ww_image_launch *l, CUfunction f, const char *name, char *why)
{
	int threads = l->block[0] * l->block[1] * l->block[2], fit = 0;
	long long blocks = (long long)(l->grid[0] * l->grid[1] * l->grid[2]), room;
	CUlaunchAttribute at[3];
	CUlaunchConfig c;

	if (l->cluster[0] > 0) {
		launch_config(l, at, NULL, &c);
		if (e->cu.cuOccupancyMaxActiveClusters(&fit, f, &c) != CUDA_SUCCESS || fit < 1) {
			snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\": no cluster of %lld blocks fits on this device", name, cluster_blocks(l));
			return WW_EXEC_REFUSED;
		}
		room = fit * cluster_blocks(l);
	} else {
		e->cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&fit, f, threads, (size_t)l->shared_bytes);
		room = (long long)fit * attribute(e, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	}
	if ((l->flags & WW_NODE_COOPERATIVE) && blocks > room) {
		snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\": a cooperative launch of %lld blocks, %lld fit at once", name, blocks, room);
		return WW_EXEC_REFUSED;
	}
	return WW_EXEC_OK;
}

static int check_shared(struct ww_exec *e, const struct ww_image_launch *l, CUfunction f, const char *name, char *why)
{
	int fixed = 0, limit = attribute(e, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), now = 0;
	e->cu.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
	if (l->shared_bytes + fixed > limit) {
		snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\" wants %lld bytes of shared memory (%d of them static), the limit is %d", name,
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

static const char *symbol_of(const struct ww_exec_kernel *kernels, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(kernels[i].kernel, name))
			return kernels[i].symbol;
	return name;
}

static int load_launch(struct ww_exec *e, uint32_t node, const struct ww_exec_kernel *kernels, int n_kernels, char *why)
{
	const struct ww_image_launch *l = &ww_image_nodes(e->image)[node].launch;
	const char *name = ww_image_string(e->image, l->kernel);
	CUfunction f;
	int most = 0, threads = l->block[0] * l->block[1] * l->block[2];

	if (!e->module || e->cu.cuModuleGetFunction(&f, e->module, symbol_of(kernels, n_kernels, name)) != CUDA_SUCCESS) {
		snprintf(why, WW_EXEC_WHY, "kernels.cu defines no kernel \"%.200s\"", name);
		return WW_EXEC_REFUSED;
	}
	e->functions[node] = f;
	e->cu.cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f);
	if (threads > most) {
		snprintf(why, WW_EXEC_WHY, "kernel \"%.200s\" can have at most %d threads a block (its registers), the plan asks for %d", name,
			 most, threads);
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
	CUresult r = e->cu.cuTensorMapEncodeTiled(
		out, tensor_map_type(t->dtype), (cuuint32_t)t->rank, (char *)buffers[t->buf] + t->offset_bytes, size, stride, box, step,
		CU_TENSOR_MAP_INTERLEAVE_NONE, swizzles[t->swizzle & 3], CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
		t->fill == WW_FILL_NAN ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	return r == CUDA_SUCCESS ? WW_EXEC_OK : fail(e, why, WW_EXEC_REFUSED, "a tensor map that the driver does not accept", r);
}

static int issue_launch(struct ww_exec *e, uint32_t node, void *const *buffers, CUstream stream, char *why)
{
	const struct ww_image_launch *l = &ww_image_nodes(e->image)[node].launch;
	const struct ww_image_arg *a = ww_image_args(e->image) + l->first_arg;
	union value values[WW_IMAGE_MAX_ARGS];
	CUtensorMap maps[WW_IMAGE_MAX_ARGS];
	void *params[WW_IMAGE_MAX_ARGS];
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

/* ---- GEMM -------------------------------------------------------------------------------------------------------- */

#define GET(lib, s, name) (*(void **)&(s)->name = dlsym(lib, #name))

static int lt_open(struct ww_exec *e, char *why)
{
	static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so" };
	struct lt *t = &e->lt;
	void *lib = NULL;
	if (t->handle)
		return WW_EXEC_OK;
	for (size_t i = 0; !lib && i < sizeof(names) / sizeof(names[0]); i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
	if (!lib || !GET(lib, t, cublasLtCreate) || !GET(lib, t, cublasLtDestroy) || !GET(lib, t, cublasLtMatmulDescCreate) ||
	    !GET(lib, t, cublasLtMatmulDescDestroy) || !GET(lib, t, cublasLtMatmulDescSetAttribute) ||
	    !GET(lib, t, cublasLtMatrixLayoutCreate) || !GET(lib, t, cublasLtMatrixLayoutDestroy) ||
	    !GET(lib, t, cublasLtMatrixLayoutSetAttribute) || !GET(lib, t, cublasLtMatmulPreferenceCreate) ||
	    !GET(lib, t, cublasLtMatmulPreferenceDestroy) || !GET(lib, t, cublasLtMatmulPreferenceSetAttribute) ||
	    !GET(lib, t, cublasLtMatmulAlgoGetHeuristic) || !GET(lib, t, cublasLtMatmul) || t->cublasLtCreate(&t->handle)) {
		snprintf(why, WW_EXEC_WHY, "the plan has a gemm node and cuBLASLt cannot be used: %.200s", lib ? "it does not start" : dlerror());
		return WW_EXEC_UNAVAILABLE;
	}
	return WW_EXEC_OK;
}

static int lt_type(int dtype)
{
	return dtype == WW_F64 ? LT_R_64F : dtype == WW_F16 ? LT_R_16F : dtype == WW_BF16 ? LT_R_16BF : LT_R_32F;
}

static int element_bytes(int dtype)
{
	return dtype == WW_F64 ? 8 : dtype == WW_F32 ? 4 : 2;
}

/* A stored row-major matrix (rows, cols) is column-major (cols, rows). */
static int lt_layout(struct ww_exec *e, void **out, const struct ww_mat *m, long long rows, long long cols, long long batch)
{
	long long r = m->trans ? cols : rows, c = m->trans ? rows : cols;
	int32_t count = (int32_t)batch;
	int64_t stride = m->batch_stride;
	if (e->lt.cublasLtMatrixLayoutCreate(out, lt_type(m->dtype), (uint64_t)c, (uint64_t)r, m->ld))
		return 0;
	return batch <= 1 || (!e->lt.cublasLtMatrixLayoutSetAttribute(*out, LT_LAYOUT_BATCH, &count, sizeof(count)) &&
			      !e->lt.cublasLtMatrixLayoutSetAttribute(*out, LT_LAYOUT_STRIDE, &stride, sizeof(stride)));
}

/* Largest power of two up to 256 that divides where an operand starts (buffers start at multiples of 256) and its batches. */
static uint32_t lt_alignment(const struct ww_mat *m)
{
	long long v = m->offset_bytes | (m->batch_stride * element_bytes(m->dtype)) | 256;
	return (uint32_t)(v & -v);
}

static int lt_choose(struct ww_exec *e, struct gemm_state *g, const struct ww_gemm *q, const struct ww_mat *c)
{
	struct lt *t = &e->lt;
	struct lt_result result;
	uint64_t workspace = (uint64_t)q->workspace_bytes;
	uint32_t a = lt_alignment(&q->b), b = lt_alignment(&q->a), cc = lt_alignment(c), d = lt_alignment(&q->d);
	void *pref = NULL;
	int got = 0;

	if (t->cublasLtMatmulPreferenceCreate(&pref))
		return 0;
	int ok = !t->cublasLtMatmulPreferenceSetAttribute(pref, LT_PREF_WORKSPACE, &workspace, sizeof(workspace)) &&
		 !t->cublasLtMatmulPreferenceSetAttribute(pref, LT_PREF_ALIGN_A, &a, sizeof(a)) &&
		 !t->cublasLtMatmulPreferenceSetAttribute(pref, LT_PREF_ALIGN_B, &b, sizeof(b)) &&
		 !t->cublasLtMatmulPreferenceSetAttribute(pref, LT_PREF_ALIGN_C, &cc, sizeof(cc)) &&
		 !t->cublasLtMatmulPreferenceSetAttribute(pref, LT_PREF_ALIGN_D, &d, sizeof(d)) &&
		 !t->cublasLtMatmulAlgoGetHeuristic(t->handle, g->desc, g->a, g->b, g->c, g->d, pref, 1, &result, &got) && got == 1;
	t->cublasLtMatmulPreferenceDestroy(pref);
	if (ok)
		g->algo = result.algo;
	return ok;
}

static int has_bias(int epilogue)
{
	return epilogue == WW_EPI_BIAS || epilogue == WW_EPI_BIAS_RELU;
}

static int has_relu(int epilogue)
{
	return epilogue == WW_EPI_RELU || epilogue == WW_EPI_BIAS_RELU;
}

static int load_gemm(struct ww_exec *e, uint32_t node, char *why)
{
	static const int epilogues[] = { LT_EPI_DEFAULT, LT_EPI_BIAS, LT_EPI_RELU, LT_EPI_RELU_BIAS };	/* by enum ww_epilogue */
	const struct ww_gemm *q = &ww_image_nodes(e->image)[node].gemm;
	const struct ww_mat *c = q->beta != 0 ? &q->c : &q->d;
	struct gemm_state *g = &e->gemms[node];
	struct lt *t = &e->lt;
	int f64 = q->d.dtype == WW_F64, ta = q->b.trans ? LT_TRANS : 0, tb = q->a.trans ? LT_TRANS : 0, epilogue = epilogues[q->epilogue & 3];
	int compute = f64 ? LT_COMPUTE_64F : q->math == WW_MATH_TF32 ? LT_COMPUTE_32F_TF32 : LT_COMPUTE_32F;
	const void *bias = (const void *)(uintptr_t)256;	/* where it will be is not known yet; its alignment is all that counts */
	int rc = lt_open(e, why);

	if (rc != WW_EXEC_OK)
		return rc;
	int ok = !q->d.trans && !c->trans && !t->cublasLtMatmulDescCreate(&g->desc, compute, f64 ? LT_R_64F : LT_R_32F) &&
		 !t->cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_TRANSA, &ta, sizeof(ta)) &&
		 !t->cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_TRANSB, &tb, sizeof(tb)) &&
		 !t->cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_EPILOGUE, &epilogue, sizeof(epilogue)) &&
		 (!has_bias(q->epilogue) || !t->cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_BIAS_POINTER, &bias, sizeof(bias))) &&
		 lt_layout(e, &g->a, &q->b, q->k, q->n, q->batch) && lt_layout(e, &g->b, &q->a, q->m, q->k, q->batch) &&
		 lt_layout(e, &g->c, c, q->m, q->n, q->batch) && lt_layout(e, &g->d, &q->d, q->m, q->n, q->batch) &&
		 lt_choose(e, g, q, c);
	if (ok)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "node %u: cuBLASLt has no algorithm for this gemm within %lld bytes of workspace", node,
		 (long long)q->workspace_bytes);
	return WW_EXEC_REFUSED;
}

static const char *at(void *const *buffers, int buf, long long offset)
{
	return (const char *)buffers[buf] + offset;
}

static int issue_gemm(struct ww_exec *e, uint32_t node, void *const *buffers, CUstream stream, char *why)
{
	const struct ww_gemm *q = &ww_image_nodes(e->image)[node].gemm;
	const struct ww_mat *c = q->beta != 0 ? &q->c : &q->d;
	struct gemm_state *g = &e->gemms[node];
	float alpha = (float)q->alpha, beta = (float)q->beta;
	int f64 = q->d.dtype == WW_F64, status = 0;

	if (has_bias(q->epilogue)) {
		const void *bias = at(buffers, q->bias_buf, q->bias_offset_bytes);
		status = e->lt.cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_BIAS_POINTER, &bias, sizeof(bias));
	}
	if (!status)
		status = e->lt.cublasLtMatmul(e->lt.handle, g->desc, f64 ? (const void *)&q->alpha : &alpha,
					      at(buffers, q->b.buf, q->b.offset_bytes), g->a, at(buffers, q->a.buf, q->a.offset_bytes),
					      g->b, f64 ? (const void *)&q->beta : &beta, at(buffers, c->buf, c->offset_bytes), g->c,
					      (char *)(uintptr_t)at(buffers, q->d.buf, q->d.offset_bytes), g->d, &g->algo,
					      (void *)(uintptr_t)e->workspace, (size_t)q->workspace_bytes, stream);
	if (!status)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "node %u: cublasLtMatmul failed with status %d", node, status);
	return WW_EXEC_REFUSED;
}

/* ---- Convolution ------------------------------------------------------------------------------------------------- */

static int dnn_open(struct ww_exec *e, char *why)
{
	static const char *const names[] = { "libcudnn.so.9", "libcudnn.so.8", "libcudnn.so" };
	struct dnn *t = &e->dnn;
	void *lib = NULL;
	if (t->handle)
		return WW_EXEC_OK;
	for (size_t i = 0; !lib && i < sizeof(names) / sizeof(names[0]); i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
	if (!lib || !GET(lib, t, cudnnCreate) || !GET(lib, t, cudnnDestroy) || !GET(lib, t, cudnnSetStream) ||
	    !GET(lib, t, cudnnCreateTensorDescriptor) || !GET(lib, t, cudnnDestroyTensorDescriptor) ||
	    !GET(lib, t, cudnnSetTensorNdDescriptorEx) || !GET(lib, t, cudnnCreateFilterDescriptor) ||
	    !GET(lib, t, cudnnDestroyFilterDescriptor) || !GET(lib, t, cudnnSetFilterNdDescriptor) ||
	    !GET(lib, t, cudnnCreateConvolutionDescriptor) || !GET(lib, t, cudnnDestroyConvolutionDescriptor) ||
	    !GET(lib, t, cudnnSetConvolutionNdDescriptor) || !GET(lib, t, cudnnSetConvolutionMathType) ||
	    !GET(lib, t, cudnnSetConvolutionGroupCount) || !GET(lib, t, cudnnCreateActivationDescriptor) ||
	    !GET(lib, t, cudnnDestroyActivationDescriptor) || !GET(lib, t, cudnnSetActivationDescriptor) ||
	    !GET(lib, t, cudnnGetConvolutionForwardAlgorithm_v7) || !GET(lib, t, cudnnGetConvolutionBackwardDataAlgorithm_v7) ||
	    !GET(lib, t, cudnnConvolutionForward) || !GET(lib, t, cudnnConvolutionBackwardData) || !GET(lib, t, cudnnAddTensor) ||
	    !GET(lib, t, cudnnActivationForward) || t->cudnnCreate(&t->handle)) {
		snprintf(why, WW_EXEC_WHY, "the plan has a conv node and cuDNN cannot be used: %.200s", lib ? "it does not start" : dlerror());
		return WW_EXEC_UNAVAILABLE;
	}
	return WW_EXEC_OK;
}

static int dnn_type(int dtype)
{
	return dtype == WW_F64 ? DNN_DOUBLE : dtype == WW_F16 ? DNN_HALF : dtype == WW_BF16 ? DNN_BFLOAT16 : DNN_FLOAT;
}

/* (first, second, spatial...) with one spatial dimension widened to two; returns the rank. */
static int dnn_dims(const struct ww_conv *c, int *to, long long first, long long second, const long long *spatial)
{
	int n = 0;
	to[n++] = (int)first;
	to[n++] = (int)second;
	if (c->nd == 1)
		to[n++] = 1;
	for (int i = 0; i < c->nd; i++)
		to[n++] = (int)spatial[i];
	return n;
}

/* The same for stride, padding and dilation. */
static void dnn_spatial(const struct ww_conv *c, int *to, const int *from, int filler)
{
	int n = 0;
	if (c->nd == 1)
		to[n++] = filler;
	for (int i = 0; i < c->nd; i++)
		to[n++] = from[i] || filler == 0 ? from[i] : filler;
}

static int dnn_describe(struct ww_exec *e, struct conv_state *s, const struct ww_conv *c)
{
	static const long long ones[3] = { 1, 1, 1 };
	struct dnn *t = &e->dnn;
	int type = dnn_type(c->dtype), format = c->layout == WW_LAYOUT_NHWC ? DNN_NHWC : DNN_NCHW;
	int x[5], y[5], w[5], b[5], pad[3], stride[3], dilation[3], rank = dnn_dims(c, x, c->n, c->c, c->in);
	int math = c->dtype == WW_F16 || c->dtype == WW_BF16 ? DNN_TENSOR_OP_MATH
		   : c->math == WW_MATH_TF32 ? DNN_DEFAULT_MATH : DNN_FMA_MATH;

	dnn_dims(c, y, c->n, c->k, c->out);
	dnn_dims(c, w, c->transposed ? c->c : c->k, (c->transposed ? c->k : c->c) / c->groups, c->kernel);
	dnn_dims(c, b, 1, c->k, ones);
	dnn_spatial(c, pad, c->pad, 0);
	dnn_spatial(c, stride, c->stride, 1);
	dnn_spatial(c, dilation, c->dilation, 1);
	return !t->cudnnCreateTensorDescriptor(&s->x) && !t->cudnnCreateTensorDescriptor(&s->y) &&
	       !t->cudnnCreateTensorDescriptor(&s->bias) && !t->cudnnCreateFilterDescriptor(&s->w) &&
	       !t->cudnnCreateConvolutionDescriptor(&s->conv) && !t->cudnnCreateActivationDescriptor(&s->act) &&
	       !t->cudnnSetTensorNdDescriptorEx(s->x, format, type, rank, x) &&
	       !t->cudnnSetTensorNdDescriptorEx(s->y, format, type, rank, y) &&
	       !t->cudnnSetTensorNdDescriptorEx(s->bias, format, type, rank, b) &&
	       !t->cudnnSetFilterNdDescriptor(s->w, type, format, rank, w) &&
	       !t->cudnnSetConvolutionNdDescriptor(s->conv, rank - 2, pad, stride, dilation, DNN_CROSS_CORRELATION,
						   type == DNN_DOUBLE ? DNN_DOUBLE : DNN_FLOAT) &&
	       !t->cudnnSetConvolutionGroupCount(s->conv, c->groups > 0 ? c->groups : 1) &&
	       !t->cudnnSetConvolutionMathType(s->conv, math) &&
	       !t->cudnnSetActivationDescriptor(s->act, DNN_RELU, DNN_PROPAGATE_NAN, 0);
}

/* The fastest by cuDNN's own judgement that fits the workspace and keeps the math mode. */
static int dnn_choose(struct ww_exec *e, struct conv_state *s, const struct ww_conv *c)
{
	struct dnn_perf perf[DNN_MAX_ALGOS];
	int got = 0;
	int status = c->transposed
			     ? e->dnn.cudnnGetConvolutionBackwardDataAlgorithm_v7(e->dnn.handle, s->w, s->x, s->conv, s->y, DNN_MAX_ALGOS, &got, perf)
			     : e->dnn.cudnnGetConvolutionForwardAlgorithm_v7(e->dnn.handle, s->x, s->w, s->conv, s->y, DNN_MAX_ALGOS, &got, perf);
	for (int i = 0; !status && i < got; i++) {
		if (perf[i].status || perf[i].memory > (size_t)c->workspace_bytes)
			continue;
		s->algo = perf[i].algo;
		return !e->dnn.cudnnSetConvolutionMathType(s->conv, perf[i].math);
	}
	return 0;
}

static int load_conv(struct ww_exec *e, uint32_t node, char *why)
{
	const struct ww_conv *c = &ww_image_nodes(e->image)[node].conv;
	int rc = dnn_open(e, why);
	if (rc != WW_EXEC_OK)
		return rc;
	if (dnn_describe(e, &e->convs[node], c) && dnn_choose(e, &e->convs[node], c))
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "node %u: cuDNN has no algorithm for this convolution within %lld bytes of workspace", node,
		 (long long)c->workspace_bytes);
	return WW_EXEC_REFUSED;
}

static int issue_conv(struct ww_exec *e, uint32_t node, void *const *buffers, CUstream stream, char *why)
{
	const struct ww_conv *c = &ww_image_nodes(e->image)[node].conv;
	struct conv_state *s = &e->convs[node];
	struct dnn *t = &e->dnn;
	const float one_f = 1, zero_f = 0;
	const double one_d = 1, zero_d = 0;
	const void *one = c->dtype == WW_F64 ? (const void *)&one_d : &one_f, *zero = c->dtype == WW_F64 ? (const void *)&zero_d : &zero_f;
	const void *x = at(buffers, c->x_buf, c->x_offset_bytes), *w = at(buffers, c->w_buf, c->w_offset_bytes);
	void *y = (void *)(uintptr_t)at(buffers, c->y_buf, c->y_offset_bytes), *ws = (void *)(uintptr_t)e->workspace;
	size_t n = (size_t)c->workspace_bytes;

	int status = t->cudnnSetStream(t->handle, stream);
	if (!status)
		status = c->transposed ? t->cudnnConvolutionBackwardData(t->handle, one, s->w, w, s->x, x, s->conv, s->algo, ws, n, zero, s->y, y)
				       : t->cudnnConvolutionForward(t->handle, one, s->x, x, s->w, w, s->conv, s->algo, ws, n, zero, s->y, y);
	if (!status && has_bias(c->epilogue))
		status = t->cudnnAddTensor(t->handle, one, s->bias, at(buffers, c->bias_buf, c->bias_offset_bytes), one, s->y, y);
	if (!status && has_relu(c->epilogue))
		status = t->cudnnActivationForward(t->handle, s->act, one, s->y, y, zero, s->y, y);
	if (!status)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "node %u: cuDNN failed with status %d", node, status);
	return WW_EXEC_REFUSED;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

static int load_nodes(struct ww_exec *e, const struct ww_exec_kernel *kernels, int n_kernels, char *why)
{
	const struct ww_image_node *nodes = ww_image_nodes(e->image);
	for (uint32_t i = 0; i < e->image->n_nodes; i++) {
		long long workspace = nodes[i].kind == WW_NODE_GEMM ? nodes[i].gemm.workspace_bytes
				      : nodes[i].kind == WW_NODE_CONV ? nodes[i].conv.workspace_bytes : 0;
		int rc = nodes[i].kind == WW_NODE_LAUNCH ? load_launch(e, i, kernels, n_kernels, why)
			 : nodes[i].kind == WW_NODE_GEMM ? load_gemm(e, i, why)
			 : nodes[i].kind == WW_NODE_CONV ? load_conv(e, i, why) : WW_EXEC_OK;
		if (rc != WW_EXEC_OK)
			return rc;
		if ((size_t)workspace > e->workspace_bytes)
			e->workspace_bytes = (size_t)workspace;
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
	e->gemms = calloc(m->n_nodes + 1u, sizeof(*e->gemms));
	e->convs = calloc(m->n_nodes + 1u, sizeof(*e->convs));
	if (!e->functions || !e->gemms || !e->convs)
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

int ww_exec_issue(struct ww_exec *e, void *const *buffers, void *stream, char *why)
{
	const struct ww_image_node *nodes = ww_image_nodes(e->image);
	CUstream s = stream;

	*why = 0;
	for (uint32_t i = 0; i < e->image->n_nodes; i++) {
		const struct ww_image_node *d = &nodes[i];
		CUresult r = CUDA_SUCCESS;
		int rc = WW_EXEC_OK;
		switch (d->kind) {
		case WW_NODE_LAUNCH: rc = issue_launch(e, i, buffers, s, why); break;
		case WW_NODE_GEMM: rc = issue_gemm(e, i, buffers, s, why); break;
		case WW_NODE_CONV: rc = issue_conv(e, i, buffers, s, why); break;
		case WW_NODE_MEMSET:
			if (d->set.bytes)
				r = e->cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)at(buffers, d->set.buf, d->set.offset_bytes),
							  (unsigned char)d->set.byte, (size_t)d->set.bytes, s);
			break;
		default:
			if (d->copy.bytes)
				r = e->cu.cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)at(buffers, d->copy.dst, d->copy.dst_offset_bytes),
							    (CUdeviceptr)(uintptr_t)at(buffers, d->copy.src, d->copy.src_offset_bytes),
							    (size_t)d->copy.bytes, s);
			break;
		}
		if (r != CUDA_SUCCESS)
			rc = fail(e, why, WW_EXEC_FAULT, "a memory node", r);
		if (rc != WW_EXEC_OK)
			return rc;
	}
	return WW_EXEC_OK;
}

static void free_library_nodes(struct ww_exec *e)
{
	for (uint32_t i = 0; i < e->image->n_nodes; i++) {
		void *const layouts[] = { e->gemms[i].a, e->gemms[i].b, e->gemms[i].c, e->gemms[i].d };
		for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
			if (layouts[k])
				e->lt.cublasLtMatrixLayoutDestroy(layouts[k]);
		if (e->gemms[i].desc)
			e->lt.cublasLtMatmulDescDestroy(e->gemms[i].desc);
		void *const tensors[] = { e->convs[i].x, e->convs[i].y, e->convs[i].bias };
		for (size_t k = 0; k < sizeof(tensors) / sizeof(tensors[0]); k++)
			if (tensors[k])
				e->dnn.cudnnDestroyTensorDescriptor(tensors[k]);
		if (e->convs[i].w)
			e->dnn.cudnnDestroyFilterDescriptor(e->convs[i].w);
		if (e->convs[i].conv)
			e->dnn.cudnnDestroyConvolutionDescriptor(e->convs[i].conv);
		if (e->convs[i].act)
			e->dnn.cudnnDestroyActivationDescriptor(e->convs[i].act);
	}
	if (e->lt.handle)
		e->lt.cublasLtDestroy(e->lt.handle);
	if (e->dnn.handle)
		e->dnn.cudnnDestroy(e->dnn.handle);
}

void ww_exec_free(struct ww_exec *e)
{
	if (!e)
		return;
	if (e->gemms && e->convs)
		free_library_nodes(e);
	if (e->workspace)
		e->cu.cuMemFree(e->workspace);
	if (e->module)
		e->cu.cuModuleUnload(e->module);
	free(e->functions);
	free(e->gemms);
	free(e->convs);
	free(e);
}
