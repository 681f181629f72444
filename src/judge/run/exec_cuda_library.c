/* exec_cuda_library.c - library nodes on the cuda target: GEMM by cuBLASLt here, convolution by exec_cuda_conv.c.
 *
 * Carried by exported libraries like exec_cuda.c, so it needs nothing but libc, dlopen and the types of <cuda.h>.
 * Either library is opened at run time, and only where a plan has a node for it.  What of their interfaces is used is
 * declared here, with the numbers of their stable C ABIs (cuBLASLt 11 to 13, cuDNN 8 and 9), because their headers are
 * missing on most machines that have the libraries.  Algorithms are chosen at load by the libraries' own heuristics
 * within the node's workspace.
 *
 * GEMM.  cuBLASLt is column-major: a row-major matrix is the transpose of a column-major one, so D = A B is asked for
 * as D' = B' A'; the bias, one element a column of D, is then one a row of D', which is what the library's epilogue
 * adds. */
#include "judge/run/exec_cuda_library.h"

#include "judge/run/exec.h"
#include "judge/run/exec_cuda_conv.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- cuBLASLt, as far as it is used ------------------------------------------------------------------------------ */

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

struct gemm_state {
	void *desc, *a, *b, *c, *d;
	struct lt_algo algo;
};
struct ww_library {
	const struct ww_image *image;
	struct lt lt;
	struct ww_dnn *dnn;
	struct gemm_state *gemms;   /* one a node */
	struct ww_dnn_conv **convs; /* one a node */
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

static int lt_choose(struct ww_library *l, struct gemm_state *g, const struct ww_gemm *q, const struct ww_mat *c,
	size_t limit, size_t *workspace_bytes)
{
	struct lt *t = &l->lt;
	struct lt_result result;
	uint64_t workspace = limit;
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
	if (ok) {
		g->algo = result.algo;
		*workspace_bytes = result.workspace;
	}
	return ok;
}

static int load_gemm(struct ww_library *l, uint32_t node, size_t limit, size_t *workspace_bytes, char *why)
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
		(!ww_has_bias(q->epilogue) ||
			!t->cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_BIAS_POINTER, &bias, sizeof(bias))) &&
		lt_layout(l, &g->a, &q->b, q->k, q->n, q->batch) && lt_layout(l, &g->b, &q->a, q->m, q->k, q->batch) &&
		lt_layout(l, &g->c, c, q->m, q->n, q->batch) && lt_layout(l, &g->d, &q->d, q->m, q->n, q->batch) &&
		lt_choose(l, g, q, c, limit, workspace_bytes);
	if (ok)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "cuBLASLt has no algorithm for this gemm within %zu bytes of workspace", limit);
	return WW_EXEC_REFUSED;
}

static const char *at(void *const *buffers, int buf, long long offset) { return (const char *)buffers[buf] + offset; }

static int issue_gemm(struct ww_library *l, uint32_t node, void *const *buffers, void *workspace,
	size_t workspace_bytes, CUstream stream, char *why)
{
	const struct ww_gemm *q = &ww_image_nodes(l->image)[node].gemm;
	const struct ww_mat *c = q->beta != 0 ? &q->c : &q->d;
	struct gemm_state *g = &l->gemms[node];
	float alpha = (float)q->alpha, beta = (float)q->beta;
	int f64 = q->d.dtype == WW_F64, status = 0;

	if (ww_has_bias(q->epilogue)) {
		const void *bias = at(buffers, q->bias_buf, q->bias_offset_bytes);
		status = l->lt.cublasLtMatmulDescSetAttribute(g->desc, LT_DESC_BIAS_POINTER, &bias, sizeof(bias));
	}
	if (!status)
		status = l->lt.cublasLtMatmul(l->lt.handle, g->desc, f64 ? (const void *)&q->alpha : &alpha,
			at(buffers, q->b.buf, q->b.offset_bytes), g->a, at(buffers, q->a.buf, q->a.offset_bytes), g->b,
			f64 ? (const void *)&q->beta : &beta, at(buffers, c->buf, c->offset_bytes), g->c,
			(char *)(uintptr_t)at(buffers, q->d.buf, q->d.offset_bytes), g->d, &g->algo, workspace, workspace_bytes,
			stream);
	if (!status)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "cublasLtMatmul failed with status %d", status);
	return WW_EXEC_REFUSED;
}

/* ---- Convolution ------------------------------------------------------------------------------------------------- */

static int load_conv(struct ww_library *l, uint32_t node, size_t limit, size_t *workspace_bytes, char *why)
{
	const struct ww_conv *c = &ww_image_nodes(l->image)[node].conv;
	int rc = l->dnn ? WW_EXEC_OK : ww_dnn_open(&l->dnn, why);

	if (rc == WW_EXEC_OK)
		rc = ww_dnn_load(l->dnn, &l->convs[node], c, limit, workspace_bytes, why);
	return rc;
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

/* `why` with the node's number in front. */
static int named(uint32_t node, int rc, char *why)
{
	char text[WW_EXEC_WHY];

	if (rc == WW_EXEC_REFUSED) {
		snprintf(text, sizeof(text), "%s", why);
		snprintf(why, WW_EXEC_WHY, "node %u: %.440s", node, text);
	}
	return rc;
}

int ww_library_load(struct ww_library *l, uint32_t node, size_t room, size_t *workspace_bytes, char *why)
{
	const struct ww_image_node *d = &ww_image_nodes(l->image)[node];
	long long planned = d->kind == WW_NODE_GEMM ? d->gemm.workspace_bytes : d->conv.workspace_bytes;
	size_t limit = (size_t)planned < room ? (size_t)planned : room;

	return named(node,
		d->kind == WW_NODE_GEMM ? load_gemm(l, node, limit, workspace_bytes, why)
								: load_conv(l, node, limit, workspace_bytes, why),
		why);
}

int ww_library_issue(struct ww_library *l, uint32_t node, void *const *buffers, void *workspace, size_t workspace_bytes,
	CUstream stream, char *why)
{
	const struct ww_image_node *d = &ww_image_nodes(l->image)[node];

	return named(node,
		d->kind == WW_NODE_GEMM ? issue_gemm(l, node, buffers, workspace, workspace_bytes, stream, why)
								: ww_dnn_issue(l->dnn, l->convs[node], &d->conv, buffers, workspace, stream, why),
		why);
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
		ww_dnn_unload(l->dnn, l->convs[i]);
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
	ww_dnn_close(l->dnn);
	free(l->gemms);
	free(l->convs);
	free(l);
}
