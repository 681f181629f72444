/* exec_cuda_library.c - library nodes on the cuda target: GEMM by cuBLASLt, convolution by cuDNN.
 *
 * Carried by exported libraries like exec_cuda.c, so it needs nothing but libc, dlopen and the types of <cuda.h>.
 * Either library is opened at run time, and only where a plan has a node for it.  What of their interfaces is used is
 * declared here, with the numbers of their stable C ABIs (cuBLASLt 11 to 13, cuDNN 8 and 9), because their headers are
 * missing on most machines that have the libraries.  Algorithms are chosen at load by the libraries' own heuristics
 * within the node's workspace.
 *
 * GEMM.  cuBLASLt is column-major: a row-major matrix is the transpose of a column-major one, so D = A B is asked for
 * as D' = B' A'; the bias, one element a column of D, is then one a row of D', which is what the library's epilogue
 * adds.
 *
 * Convolution.  cuDNN's convolution calls, then one call each for bias and ReLU.  torch.nn.ConvTranspose is the
 * gradient of a convolution with respect to its input, with the same weights.  One spatial dimension becomes two of
 * which the first is
 * 1.  math fp32 is FMA only; cuDNN's default would allow TF32.  Of its algorithms some add up by atomics (the
 * gradient's first one), and give other bits each time: they are taken only where no other fits the workspace.
 * Rejected: measuring both here and taking the fastest (what is chosen, and so the bits of an export, would depend on
 * what else the GPU did at load). */
#include "judge/run/exec_cuda_library.h"

#include "judge/run/exec.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- cuBLASLt and cuDNN, as far as they are used ----------------------------------------------------------------- */

enum {
	LT_COMPUTE_32F = 68,
	LT_COMPUTE_64F = 70,
	LT_COMPUTE_32F_TF32 = 77,
	LT_R_32F = 0,
	LT_R_64F = 1,
	LT_R_16F = 2,
	LT_R_16BF = 14,
	LT_DESC_TRANSA = 3,
	LT_DESC_TRANSB = 4,
	LT_DESC_EPILOGUE = 7,
	LT_DESC_BIAS_POINTER = 8,
	LT_EPI_DEFAULT = 1,
	LT_EPI_RELU = 2,
	LT_EPI_BIAS = 4,
	LT_EPI_RELU_BIAS = 6,
	LT_LAYOUT_BATCH = 5,
	LT_LAYOUT_STRIDE = 6,
	LT_PREF_WORKSPACE = 1,
	LT_PREF_ALIGN_A = 5,
	LT_PREF_ALIGN_B = 6,
	LT_PREF_ALIGN_C = 7,
	LT_PREF_ALIGN_D = 8,
	LT_TRANS = 1
};
struct lt_algo {
	uint64_t data[8];
};
struct lt_result {
	struct lt_algo algo;
	size_t workspace;
	int status;
	float waves;
	int reserved[4];
};
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
	int (*cublasLtMatmulAlgoGetHeuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref,
		int want, struct lt_result *out, int *got);
	int (*cublasLtMatmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
		void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
		const struct lt_algo *algo, void *workspace, size_t workspace_bytes, CUstream stream);
};

enum {
	DNN_FLOAT = 0,
	DNN_DOUBLE = 1,
	DNN_HALF = 2,
	DNN_BFLOAT16 = 9,
	DNN_NCHW = 0,
	DNN_NHWC = 1,
	DNN_DEFAULT_MATH = 0,
	DNN_TENSOR_OP_MATH = 1,
	DNN_FMA_MATH = 3,
	DNN_DETERMINISTIC = 1,
	DNN_CROSS_CORRELATION = 1,
	DNN_RELU = 1,
	DNN_PROPAGATE_NAN = 1,
	DNN_MAX_ALGOS = 12
};
struct dnn_perf {
	int algo, status;
	float time;
	int pad;
	size_t memory;
	int determinism, math, reserved[4];
};
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
	int (*cudnnSetConvolutionNdDescriptor)(
		void *c, int n, const int *pad, const int *stride, const int *dilation, int mode, int compute);
	int (*cudnnSetConvolutionMathType)(void *c, int math);
	int (*cudnnSetConvolutionGroupCount)(void *c, int groups);
	int (*cudnnCreateActivationDescriptor)(void **a);
	int (*cudnnDestroyActivationDescriptor)(void *a);
	int (*cudnnSetActivationDescriptor)(void *a, int mode, int nan, double coefficient);
	int (*cudnnGetConvolutionForwardAlgorithm_v7)(
		void *handle, void *x, void *w, void *c, void *y, int want, int *got, struct dnn_perf *out);
	int (*cudnnGetConvolutionBackwardDataAlgorithm_v7)(
		void *handle, void *w, void *dy, void *c, void *dx, int want, int *got, struct dnn_perf *out);
	int (*cudnnConvolutionForward)(void *handle, const void *alpha, void *x_desc, const void *x, void *w_desc,
		const void *w, void *c, int algo, void *workspace, size_t bytes, const void *beta, void *y_desc, void *y);
	int (*cudnnConvolutionBackwardData)(void *handle, const void *alpha, void *w_desc, const void *w, void *dy_desc,
		const void *dy, void *c, int algo, void *workspace, size_t bytes, const void *beta, void *dx_desc, void *dx);
	int (*cudnnAddTensor)(
		void *handle, const void *alpha, void *a_desc, const void *a, const void *beta, void *c_desc, void *c);
	int (*cudnnActivationForward)(void *handle, void *act, const void *alpha, void *x_desc, const void *x,
		const void *beta, void *y_desc, void *y);
};

struct gemm_state {
	void *desc, *a, *b, *c, *d;
	struct lt_algo algo;
};
struct conv_state {
	void *x, *w, *y, *conv, *bias, *act;
	int algo;
};

struct ww_library {
	const struct ww_image *image;
	struct lt lt;
	struct dnn dnn;
	struct gemm_state *gemms; /* one a node */
	struct conv_state *convs; /* one a node */
};

/* ---- GEMM -------------------------------------------------------------------------------------------------------- */

#define GET(lib, s, name) (*(void **)&(s)->name = dlsym(lib, #name))

static int lt_open(struct ww_library *l, char *why)
{
	static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so" };
	struct lt *t = &l->lt;
	void *lib = NULL;
	if (t->handle)
		return WW_EXEC_OK;
	for (size_t i = 0; !lib && i < sizeof(names) / sizeof(names[0]); i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
	if (!lib || !GET(lib, t, cublasLtCreate) || !GET(lib, t, cublasLtDestroy) ||
		!GET(lib, t, cublasLtMatmulDescCreate) || !GET(lib, t, cublasLtMatmulDescDestroy) ||
		!GET(lib, t, cublasLtMatmulDescSetAttribute) || !GET(lib, t, cublasLtMatrixLayoutCreate) ||
		!GET(lib, t, cublasLtMatrixLayoutDestroy) || !GET(lib, t, cublasLtMatrixLayoutSetAttribute) ||
		!GET(lib, t, cublasLtMatmulPreferenceCreate) || !GET(lib, t, cublasLtMatmulPreferenceDestroy) ||
		!GET(lib, t, cublasLtMatmulPreferenceSetAttribute) || !GET(lib, t, cublasLtMatmulAlgoGetHeuristic) ||
		!GET(lib, t, cublasLtMatmul) || t->cublasLtCreate(&t->handle)) {
		snprintf(why, WW_EXEC_WHY, "the plan has a gemm node and cuBLASLt cannot be used: %.200s",
			lib ? "it does not start" : dlerror());
		return WW_EXEC_UNAVAILABLE;
	}
	return WW_EXEC_OK;
}

static int lt_type(int dtype)
{
	return dtype == WW_F64 ? LT_R_64F : dtype == WW_F16 ? LT_R_16F : dtype == WW_BF16 ? LT_R_16BF : LT_R_32F;
}

static int element_bytes(int dtype) { return dtype == WW_F64 ? 8 : dtype == WW_F32 ? 4 : 2; }

/* A stored row-major matrix (rows, cols) is column-major (cols, rows). */
static int lt_layout(
	struct ww_library *l, void **out, const struct ww_mat *m, long long rows, long long cols, long long batch)
{
	long long r = m->trans ? cols : rows, c = m->trans ? rows : cols;
	int32_t count = (int32_t)batch;
	int64_t stride = m->batch_stride;
	if (l->lt.cublasLtMatrixLayoutCreate(out, lt_type(m->dtype), (uint64_t)c, (uint64_t)r, m->ld))
		return 0;
	return batch <= 1 ||
		(!l->lt.cublasLtMatrixLayoutSetAttribute(*out, LT_LAYOUT_BATCH, &count, sizeof(count)) &&
			!l->lt.cublasLtMatrixLayoutSetAttribute(*out, LT_LAYOUT_STRIDE, &stride, sizeof(stride)));
}

/* Largest power of two up to 256 that divides where an operand starts (buffers start at multiples of 256) and its
 * batches. */
static uint32_t lt_alignment(const struct ww_mat *m)
{
	long long v = m->offset_bytes | (m->batch_stride * element_bytes(m->dtype)) | 256;
	return (uint32_t)(v & -v);
}

static int lt_choose(struct ww_library *l, struct gemm_state *g, const struct ww_gemm *q, const struct ww_mat *c)
{
	struct lt *t = &l->lt;
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
		!t->cublasLtMatmulAlgoGetHeuristic(t->handle, g->desc, g->a, g->b, g->c, g->d, pref, 1, &result, &got) &&
		got == 1;
	t->cublasLtMatmulPreferenceDestroy(pref);
	if (ok)
		g->algo = result.algo;
	return ok;
}

static int has_bias(int epilogue) { return epilogue == WW_EPI_BIAS || epilogue == WW_EPI_BIAS_RELU; }

static int has_relu(int epilogue) { return epilogue == WW_EPI_RELU || epilogue == WW_EPI_BIAS_RELU; }

static int load_gemm(struct ww_library *l, uint32_t node, char *why)
{
	static const int epilogues[] = { LT_EPI_DEFAULT, LT_EPI_BIAS, LT_EPI_RELU,
		LT_EPI_RELU_BIAS }; /* by enum ww_epilogue */
	const struct ww_gemm *q = &ww_image_nodes(l->image)[node].gemm;
	const struct ww_mat *c = q->beta != 0 ? &q->c : &q->d;
	struct gemm_state *g = &l->gemms[node];
	struct lt *t = &l->lt;
	int f64 = q->d.dtype == WW_F64, ta = q->b.trans ? LT_TRANS : 0, tb = q->a.trans ? LT_TRANS : 0,
		epilogue = epilogues[q->epilogue & 3];
	int compute = f64 ? LT_COMPUTE_64F : q->math == WW_MATH_TF32 ? LT_COMPUTE_32F_TF32 : LT_COMPUTE_32F;
	const void *bias =
		(const void *)(uintptr_t)256; /* where it will be is not known yet; its alignment is all that counts */
	int rc = lt_open(l, why);

	if (rc != WW_EXEC_OK)
		return rc;
	int ok = !q->d.trans && !c->trans && !t->cublasLtMatmulDescCreate(&g->desc, compute, f64 ? LT_R_64F : LT_R_32F) &&
		!t->cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_TRANSA, &ta, sizeof(ta)) &&
		!t->cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_TRANSB, &tb, sizeof(tb)) &&
		!t->cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_EPILOGUE, &epilogue, sizeof(epilogue)) &&
		(!has_bias(q->epilogue) ||
			!t->cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_BIAS_POINTER, &bias, sizeof(bias))) &&
		lt_layout(l, &g->a, &q->b, q->k, q->n, q->batch) && lt_layout(l, &g->b, &q->a, q->m, q->k, q->batch) &&
		lt_layout(l, &g->c, c, q->m, q->n, q->batch) && lt_layout(l, &g->d, &q->d, q->m, q->n, q->batch) &&
		lt_choose(l, g, q, c);
	if (ok)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "node %u: cuBLASLt has no algorithm for this gemm within %lld bytes of workspace", node,
		(long long)q->workspace_bytes);
	return WW_EXEC_REFUSED;
}

static const char *at(void *const *buffers, int buf, long long offset) { return (const char *)buffers[buf] + offset; }

static int issue_gemm(
	struct ww_library *l, uint32_t node, void *const *buffers, void *workspace, CUstream stream, char *why)
{
	const struct ww_gemm *q = &ww_image_nodes(l->image)[node].gemm;
	const struct ww_mat *c = q->beta != 0 ? &q->c : &q->d;
	struct gemm_state *g = &l->gemms[node];
	float alpha = (float)q->alpha, beta = (float)q->beta;
	int f64 = q->d.dtype == WW_F64, status = 0;

	if (has_bias(q->epilogue)) {
		const void *bias = at(buffers, q->bias_buf, q->bias_offset_bytes);
		status = l->lt.cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_BIAS_POINTER, &bias, sizeof(bias));
	}
	if (!status)
		status = l->lt.cublasLtMatmul(l->lt.handle, g->desc, f64 ? (const void *)&q->alpha : &alpha,
			at(buffers, q->b.buf, q->b.offset_bytes), g->a, at(buffers, q->a.buf, q->a.offset_bytes), g->b,
			f64 ? (const void *)&q->beta : &beta, at(buffers, c->buf, c->offset_bytes), g->c,
			(char *)(uintptr_t)at(buffers, q->d.buf, q->d.offset_bytes), g->d, &g->algo, workspace,
			(size_t)q->workspace_bytes, stream);
	if (!status)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "node %u: cublasLtMatmul failed with status %d", node, status);
	return WW_EXEC_REFUSED;
}

/* ---- Convolution ------------------------------------------------------------------------------------------------- */

static int dnn_open(struct ww_library *l, char *why)
{
	static const char *const names[] = { "libcudnn.so.9", "libcudnn.so.8", "libcudnn.so" };
	struct dnn *t = &l->dnn;
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
		!GET(lib, t, cudnnGetConvolutionForwardAlgorithm_v7) ||
		!GET(lib, t, cudnnGetConvolutionBackwardDataAlgorithm_v7) || !GET(lib, t, cudnnConvolutionForward) ||
		!GET(lib, t, cudnnConvolutionBackwardData) || !GET(lib, t, cudnnAddTensor) ||
		!GET(lib, t, cudnnActivationForward) || t->cudnnCreate(&t->handle)) {
		snprintf(why, WW_EXEC_WHY, "the plan has a conv node and cuDNN cannot be used: %.200s",
			lib ? "it does not start" : dlerror());
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

static int dnn_describe(struct ww_library *l, struct conv_state *s, const struct ww_conv *c)
{
	static const long long ones[3] = { 1, 1, 1 };
	struct dnn *t = &l->dnn;
	int type = dnn_type(c->dtype), format = c->layout == WW_LAYOUT_NHWC ? DNN_NHWC : DNN_NCHW;
	int x[5], y[5], w[5], b[5], pad[3], stride[3], dilation[3], rank = dnn_dims(c, x, c->n, c->c, c->in);
	int math = c->dtype == WW_F16 || c->dtype == WW_BF16 ? DNN_TENSOR_OP_MATH
		: c->math == WW_MATH_TF32                        ? DNN_DEFAULT_MATH
														 : DNN_FMA_MATH;

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

/* In cuDNN's order, the fastest by its own judgement first: number `choice`, or the last, of those that fit the
 * workspace and give the same bits each time.  Where none does, the first that fits. */
static const struct dnn_perf *dnn_best(const struct dnn_perf *perf, int n, size_t workspace_bytes, int choice)
{
	const struct dnn_perf *any = NULL, *same = NULL;
	for (int i = 0; i < n && choice >= 0; i++) {
		if (perf[i].status || perf[i].memory > workspace_bytes)
			continue;
		any = any ? any : &perf[i];
		if (perf[i].determinism == DNN_DETERMINISTIC) {
			same = &perf[i];
			choice--;
		}
	}
	return same ? same : any;
}

/* An algorithm, and the math mode that it was offered with. */
static int dnn_choose(struct ww_library *l, struct conv_state *s, const struct ww_conv *c)
{
	struct dnn_perf perf[DNN_MAX_ALGOS];
	int got = 0;
	int status = c->transposed ? l->dnn.cudnnGetConvolutionBackwardDataAlgorithm_v7(
									 l->dnn.handle, s->w, s->x, s->conv, s->y, DNN_MAX_ALGOS, &got, perf)
							   : l->dnn.cudnnGetConvolutionForwardAlgorithm_v7(
									 l->dnn.handle, s->x, s->w, s->conv, s->y, DNN_MAX_ALGOS, &got, perf);
	const struct dnn_perf *best = status ? NULL : dnn_best(perf, got, (size_t)c->workspace_bytes, c->choice);
	if (!best)
		return 0;
	s->algo = best->algo;
	return !l->dnn.cudnnSetConvolutionMathType(s->conv, best->math);
}

static int load_conv(struct ww_library *l, uint32_t node, char *why)
{
	const struct ww_conv *c = &ww_image_nodes(l->image)[node].conv;
	int rc = dnn_open(l, why);
	if (rc != WW_EXEC_OK)
		return rc;
	if (dnn_describe(l, &l->convs[node], c) && dnn_choose(l, &l->convs[node], c))
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "node %u: cuDNN has no algorithm for this convolution within %lld bytes of workspace",
		node, (long long)c->workspace_bytes);
	return WW_EXEC_REFUSED;
}

static int issue_conv(
	struct ww_library *l, uint32_t node, void *const *buffers, void *workspace, CUstream stream, char *why)
{
	const struct ww_conv *c = &ww_image_nodes(l->image)[node].conv;
	struct conv_state *s = &l->convs[node];
	struct dnn *t = &l->dnn;
	const float one_f = 1, zero_f = 0;
	const double one_d = 1, zero_d = 0;
	const void *one = c->dtype == WW_F64 ? (const void *)&one_d : &one_f,
			   *zero = c->dtype == WW_F64 ? (const void *)&zero_d : &zero_f;
	const void *x = at(buffers, c->x_buf, c->x_offset_bytes), *w = at(buffers, c->w_buf, c->w_offset_bytes);
	void *y = (void *)(uintptr_t)at(buffers, c->y_buf, c->y_offset_bytes);
	size_t n = (size_t)c->workspace_bytes;

	int status = t->cudnnSetStream(t->handle, stream);
	if (!status)
		status = c->transposed ? t->cudnnConvolutionBackwardData(
									 t->handle, one, s->w, w, s->x, x, s->conv, s->algo, workspace, n, zero, s->y, y)
							   : t->cudnnConvolutionForward(
									 t->handle, one, s->x, x, s->w, w, s->conv, s->algo, workspace, n, zero, s->y, y);
	if (!status && has_bias(c->epilogue))
		status = t->cudnnAddTensor(
			t->handle, one, s->bias, at(buffers, c->bias_buf, c->bias_offset_bytes), one, s->y, y);
	if (!status && has_relu(c->epilogue))
		status = t->cudnnActivationForward(t->handle, s->act, one, s->y, y, zero, s->y, y);
	if (!status)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "node %u: cuDNN failed with status %d", node, status);
	return WW_EXEC_REFUSED;
}

/* ---- Nodes ------------------------------------------------------------------------------------------------------- */

struct ww_library *ww_library_new(const struct ww_image *m)
{
	struct ww_library *l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->image = m;
	l->gemms = calloc(m->n_nodes + 1u, sizeof(*l->gemms));
	l->convs = calloc(m->n_nodes + 1u, sizeof(*l->convs));
	if (l->gemms && l->convs)
		return l;
	ww_library_free(l);
	return NULL;
}

int ww_library_load(struct ww_library *l, uint32_t node, char *why)
{
	return ww_image_nodes(l->image)[node].kind == WW_NODE_GEMM ? load_gemm(l, node, why) : load_conv(l, node, why);
}

int ww_library_issue(
	struct ww_library *l, uint32_t node, void *const *buffers, void *workspace, CUstream stream, char *why)
{
	return ww_image_nodes(l->image)[node].kind == WW_NODE_GEMM ? issue_gemm(l, node, buffers, workspace, stream, why)
															   : issue_conv(l, node, buffers, workspace, stream, why);
}

static void free_nodes(struct ww_library *l)
{
	for (uint32_t i = 0; i < l->image->n_nodes; i++) {
		void *const layouts[] = { l->gemms[i].a, l->gemms[i].b, l->gemms[i].c, l->gemms[i].d };
		for (size_t k = 0; k < sizeof(layouts) / sizeof(layouts[0]); k++)
			if (layouts[k])
				l->lt.cublasLtMatrixLayoutDestroy(layouts[k]);
		if (l->gemms[i].desc)
			l->lt.cublasLtMatmulDescDestroy(l->gemms[i].desc);
		void *const tensors[] = { l->convs[i].x, l->convs[i].y, l->convs[i].bias };
		for (size_t k = 0; k < sizeof(tensors) / sizeof(tensors[0]); k++)
			if (tensors[k])
				l->dnn.cudnnDestroyTensorDescriptor(tensors[k]);
		if (l->convs[i].w)
			l->dnn.cudnnDestroyFilterDescriptor(l->convs[i].w);
		if (l->convs[i].conv)
			l->dnn.cudnnDestroyConvolutionDescriptor(l->convs[i].conv);
		if (l->convs[i].act)
			l->dnn.cudnnDestroyActivationDescriptor(l->convs[i].act);
	}
}

void ww_library_free(struct ww_library *l)
{
	if (!l)
		return;
	if (l->gemms && l->convs)
		free_nodes(l);
	if (l->lt.handle)
		l->lt.cublasLtDestroy(l->lt.handle);
	if (l->dnn.handle)
		l->dnn.cudnnDestroy(l->dnn.handle);
	free(l->gemms);
	free(l->convs);
	free(l);
}
