/* exec_cuda_conv.c - conv nodes on the cuda target: cuDNN's graph interface.
 *
 * A convolution is a graph of one operation; cuDNN's heuristics list engine configurations for it, best first by their
 * own judgement, and behind them a list of fallbacks.  PyTorch takes the first that it can build and has room for, and
 * so does a node with choice 0: mode A's, without engines that round inputs or (math fp32) use tensor cores.  `choice`
 * counts on through the lists of modes A and B by turns.  torch.nn.ConvTranspose is the gradient of a convolution with
 * respect to its input, with the same weights.  One spatial dimension becomes two of which the first is 1.  Bias and
 * ReLU are one call each behind it.
 *
 * As in exec_cuda_library.c, what of the interface is used is declared here by the numbers of its ABI (cuDNN 8 and 9).
 *
 * Rejected: cudnnConvolutionForward and its kin, whose algorithms are fewer and other than PyTorch's (up to 4 times
 * slower, and none at all for some sizes).  Rejected: timing the candidates here and taking the fastest (what is
 * chosen, and so the bits of an export, would depend on what else the GPU did at load); the search times them. */
#include "judge/run/exec_cuda_conv.h"

#include "judge/run/exec.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { /* cudnnDataType_t, cudnnTensorFormat_t, cudnnActivationMode_t and the like */
	DNN_FLOAT = 0,
	DNN_DOUBLE = 1,
	DNN_HALF = 2,
	DNN_BFLOAT16 = 9,
	DNN_NCHW = 0,
	DNN_NHWC = 1,
	DNN_CROSS_CORRELATION = 1,
	DNN_RELU = 1,
	DNN_PROPAGATE_NAN = 1
};
enum { /* cudnnBackendAttributeType_t */
	TYPE_HANDLE = 0,
	TYPE_DATA = 1,
	TYPE_INT64 = 3,
	TYPE_FLOAT = 4,
	TYPE_DOUBLE = 5,
	TYPE_POINTER = 6,
	TYPE_CONV_MODE = 7,
	TYPE_HEUR_MODE = 8,
	TYPE_NOTE = 11,
	TYPE_DESC = 15
};
enum { /* cudnnBackendDescriptorType_t */
	DESC_CONV = 1,
	DESC_ENGINE = 2,
	DESC_CONFIG = 3,
	DESC_HEUR = 4,
	DESC_PLAN = 5,
	DESC_FORWARD = 10,
	DESC_BWD_DATA = 12,
	DESC_GRAPH = 15,
	DESC_PACK = 16,
	DESC_TENSOR = 17
};
enum { /* cudnnBackendAttributeName_t */
	CONV_COMPUTE = 100,
	CONV_MODE = 101,
	CONV_DILATIONS = 102,
	CONV_STRIDES = 103,
	CONV_POST_PADDINGS = 104,
	CONV_PRE_PADDINGS = 105,
	CONV_DIMS = 106,
	HEUR_MODE = 200,
	HEUR_GRAPH = 201,
	HEUR_RESULTS = 202,
	CONFIG_ENGINE = 300,
	PLAN_HANDLE = 400,
	PLAN_CONFIG = 401,
	PLAN_WORKSPACE = 402,
	FORWARD_ALPHA = 700,  /* beta, conv, w, x, y follow */
	BWD_DATA_ALPHA = 706, /* beta, conv, w, dx, dy follow */
	GRAPH_HANDLE = 800,
	GRAPH_OPS = 801,
	TENSOR_ALIGNMENT = 900,
	TENSOR_TYPE = 901,
	TENSOR_SIZES = 902,
	TENSOR_STRIDES = 903,
	TENSOR_ID = 906,
	PACK_IDS = 1000,
	PACK_POINTERS = 1001,
	PACK_WORKSPACE = 1003,
	ENGINE_NOTES = 1303
};
enum { NOTE_TENSOR_CORE = 0, NOTE_DOWN_CONVERT = 1, NOTES = 16 }; /* cudnnBackendNumericalNote_t */
enum { MODE_A = 0, MODE_B = 1, MODE_FALLBACK = 2 };               /* cudnnBackendHeurMode_t */
enum { MAX_CONFIGS = 32, ID_X = 'x', ID_W = 'w', ID_Y = 'y' };

struct ww_dnn {
	void *handle;
	int (*cudnnCreate)(void **handle);
	int (*cudnnDestroy)(void *handle);
	int (*cudnnSetStream)(void *handle, CUstream stream);
	int (*cudnnBackendCreateDescriptor)(int type, void **d);
	int (*cudnnBackendDestroyDescriptor)(void *d);
	int (*cudnnBackendSetAttribute)(void *d, int name, int type, int64_t n, const void *v);
	int (*cudnnBackendGetAttribute)(void *d, int name, int type, int64_t want, int64_t *got, void *v);
	int (*cudnnBackendFinalize)(void *d);
	int (*cudnnBackendExecute)(void *handle, void *plan, void *pack);
	int (*cudnnCreateTensorDescriptor)(void **t);
	int (*cudnnDestroyTensorDescriptor)(void *t);
	int (*cudnnSetTensorNdDescriptorEx)(void *t, int format, int type, int rank, const int *size);
	int (*cudnnCreateActivationDescriptor)(void **a);
	int (*cudnnDestroyActivationDescriptor)(void *a);
	int (*cudnnSetActivationDescriptor)(void *a, int mode, int nan, double coefficient);
	int (*cudnnAddTensor)(
		void *handle, const void *alpha, void *a_desc, const void *a, const void *beta, void *c_desc, void *c);
	int (*cudnnActivationForward)(void *handle, void *act, const void *alpha, void *x_desc, const void *x,
		const void *beta, void *y_desc, void *y);
};

struct ww_dnn_conv {
	void *x, *w, *y, *conv, *op, *graph, *config, *plan; /* of the graph interface */
	void *bias, *out, *act;                              /* for what follows it */
};

/* ---- The library ------------------------------------------------------------------------------------------------- */

#define GET(lib, s, name) (*(void **)&(s)->name = dlsym(lib, #name))

static int dnn_functions(struct ww_dnn *t, void *lib)
{
	return GET(lib, t, cudnnCreate) && GET(lib, t, cudnnDestroy) && GET(lib, t, cudnnSetStream) &&
		GET(lib, t, cudnnBackendCreateDescriptor) && GET(lib, t, cudnnBackendDestroyDescriptor) &&
		GET(lib, t, cudnnBackendSetAttribute) && GET(lib, t, cudnnBackendGetAttribute) &&
		GET(lib, t, cudnnBackendFinalize) && GET(lib, t, cudnnBackendExecute) &&
		GET(lib, t, cudnnCreateTensorDescriptor) && GET(lib, t, cudnnDestroyTensorDescriptor) &&
		GET(lib, t, cudnnSetTensorNdDescriptorEx) && GET(lib, t, cudnnCreateActivationDescriptor) &&
		GET(lib, t, cudnnDestroyActivationDescriptor) && GET(lib, t, cudnnSetActivationDescriptor) &&
		GET(lib, t, cudnnAddTensor) && GET(lib, t, cudnnActivationForward);
}

int ww_dnn_open(struct ww_dnn **out, char *why)
{
	static const char *const names[] = { "libcudnn.so.9", "libcudnn.so.8", "libcudnn.so" };
	struct ww_dnn *t = calloc(1, sizeof(*t));
	void *lib = NULL;
	*out = NULL;
	if (!t)
		return WW_EXEC_NOMEM;
	for (size_t i = 0; !lib && i < sizeof(names) / sizeof(names[0]); i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
	if (lib && dnn_functions(t, lib) && !t->cudnnCreate(&t->handle)) {
		*out = t;
		return WW_EXEC_OK;
	}
	snprintf(why, WW_EXEC_WHY, "the plan has a conv node and cuDNN cannot be used: %.200s",
		lib ? "it does not start" : dlerror());
	free(t);
	return WW_EXEC_UNAVAILABLE;
}

void ww_dnn_close(struct ww_dnn *t)
{
	if (!t)
		return;
	t->cudnnDestroy(t->handle);
	free(t);
}

/* ---- A convolution as a graph ------------------------------------------------------------------------------------ */

static int set(struct ww_dnn *t, void *d, int name, int type, int64_t n, const void *v)
{
	return !t->cudnnBackendSetAttribute(d, name, type, n, v);
}

static int set_desc(struct ww_dnn *t, void *d, int name, void *v) { return set(t, d, name, TYPE_DESC, 1, &v); }

static void drop(struct ww_dnn *t, void **d)
{
	if (*d)
		t->cudnnBackendDestroyDescriptor(*d);
	*d = NULL;
}

static int dnn_type(int dtype)
{
	return dtype == WW_F64 ? DNN_DOUBLE : dtype == WW_F16 ? DNN_HALF : dtype == WW_BF16 ? DNN_BFLOAT16 : DNN_FLOAT;
}

/* (first, second, spatial...) with one spatial dimension widened to two; returns the rank. */
static int dnn_dims(const struct ww_conv *c, int64_t *to, long long first, long long second, const long long *spatial)
{
	int n = 0;
	to[n++] = first;
	to[n++] = second;
	if (c->nd == 1)
		to[n++] = 1;
	for (int i = 0; i < c->nd; i++)
		to[n++] = spatial[i];
	return n;
}

/* The same for stride, padding and dilation. */
static void dnn_spatial(const struct ww_conv *c, int64_t *to, const int *from, int filler)
{
	int n = 0;
	if (c->nd == 1)
		to[n++] = filler;
	for (int i = 0; i < c->nd; i++)
		to[n++] = from[i] || filler == 0 ? from[i] : filler;
}

/* Buffers start at multiples of 256 bytes.  PyTorch looks no further than 16 either. */
static int64_t alignment(long long offset_bytes)
{
	long long v = offset_bytes | 16;
	return v & -v;
}

static int dnn_tensor(struct ww_dnn *t, void **out, const struct ww_conv *c, int rank, const int64_t *size, int64_t id,
	long long offset_bytes)
{
	int64_t stride[5], step = 1, align = alignment(offset_bytes);
	int type = dnn_type(c->dtype), nhwc = c->layout == WW_LAYOUT_NHWC;

	if (nhwc) {
		stride[1] = 1;
		step = size[1];
	}
	for (int d = rank - 1; d >= 0; d--)
		if (d != 1 || !nhwc) {
			stride[d] = step;
			step *= size[d];
		}
	return !t->cudnnBackendCreateDescriptor(DESC_TENSOR, out) && set(t, *out, TENSOR_TYPE, TYPE_DATA, 1, &type) &&
		set(t, *out, TENSOR_SIZES, TYPE_INT64, rank, size) && set(t, *out, TENSOR_STRIDES, TYPE_INT64, rank, stride) &&
		set(t, *out, TENSOR_ID, TYPE_INT64, 1, &id) && set(t, *out, TENSOR_ALIGNMENT, TYPE_INT64, 1, &align) &&
		!t->cudnnBackendFinalize(*out);
}

static int dnn_tensors(struct ww_dnn *t, struct ww_dnn_conv *s, const struct ww_conv *c)
{
	int64_t x[5], w[5], y[5];
	int rank = dnn_dims(c, x, c->n, c->c, c->in);

	dnn_dims(c, y, c->n, c->k, c->out);
	dnn_dims(c, w, c->transposed ? c->c : c->k, (c->transposed ? c->k : c->c) / c->groups, c->kernel);
	return dnn_tensor(t, &s->x, c, rank, x, ID_X, c->x_offset_bytes) &&
		dnn_tensor(t, &s->w, c, rank, w, ID_W, c->w_offset_bytes) &&
		dnn_tensor(t, &s->y, c, rank, y, ID_Y, c->y_offset_bytes);
}

static int dnn_geometry(struct ww_dnn *t, struct ww_dnn_conv *s, const struct ww_conv *c)
{
	int64_t pad[3], stride[3], dilation[3], n = c->nd == 1 ? 2 : c->nd;
	int compute = c->dtype == WW_F64 ? DNN_DOUBLE : DNN_FLOAT, mode = DNN_CROSS_CORRELATION;

	dnn_spatial(c, pad, c->pad, 0);
	dnn_spatial(c, stride, c->stride, 1);
	dnn_spatial(c, dilation, c->dilation, 1);
	return !t->cudnnBackendCreateDescriptor(DESC_CONV, &s->conv) &&
		set(t, s->conv, CONV_COMPUTE, TYPE_DATA, 1, &compute) && set(t, s->conv, CONV_MODE, TYPE_CONV_MODE, 1, &mode) &&
		set(t, s->conv, CONV_DIMS, TYPE_INT64, 1, &n) && set(t, s->conv, CONV_DILATIONS, TYPE_INT64, n, dilation) &&
		set(t, s->conv, CONV_STRIDES, TYPE_INT64, n, stride) &&
		set(t, s->conv, CONV_PRE_PADDINGS, TYPE_INT64, n, pad) &&
		set(t, s->conv, CONV_POST_PADDINGS, TYPE_INT64, n, pad) && !t->cudnnBackendFinalize(s->conv);
}

static int dnn_graph(struct ww_dnn *t, struct ww_dnn_conv *s, const struct ww_conv *c)
{
	const double one_d = 1, zero_d = 0;
	const float one_f = 1, zero_f = 0;
	int f64 = c->dtype == WW_F64, type = f64 ? TYPE_DOUBLE : TYPE_FLOAT,
		first = c->transposed ? BWD_DATA_ALPHA : FORWARD_ALPHA;

	return dnn_tensors(t, s, c) && dnn_geometry(t, s, c) &&
		!t->cudnnBackendCreateDescriptor(c->transposed ? DESC_BWD_DATA : DESC_FORWARD, &s->op) &&
		set(t, s->op, first, type, 1, f64 ? (const void *)&one_d : &one_f) &&
		set(t, s->op, first + 1, type, 1, f64 ? (const void *)&zero_d : &zero_f) &&
		set_desc(t, s->op, first + 2, s->conv) && set_desc(t, s->op, first + 3, s->w) &&
		set_desc(t, s->op, first + 4, c->transposed ? s->y : s->x) &&
		set_desc(t, s->op, first + 5, c->transposed ? s->x : s->y) && !t->cudnnBackendFinalize(s->op) &&
		!t->cudnnBackendCreateDescriptor(DESC_GRAPH, &s->graph) && set_desc(t, s->graph, GRAPH_OPS, s->op) &&
		set(t, s->graph, GRAPH_HANDLE, TYPE_HANDLE, 1, &t->handle) && !t->cudnnBackendFinalize(s->graph);
}

/* ---- Its algorithm ----------------------------------------------------------------------------------------------- */

/* What the heuristics of `mode` list: their number in config[]. */
static int dnn_configs(struct ww_dnn *t, const struct ww_dnn_conv *s, int mode, void **config)
{
	void *heur = NULL;
	int64_t n = 0, got = 0;

	if (!t->cudnnBackendCreateDescriptor(DESC_HEUR, &heur) && set_desc(t, heur, HEUR_GRAPH, s->graph) &&
		set(t, heur, HEUR_MODE, TYPE_HEUR_MODE, 1, &mode) && !t->cudnnBackendFinalize(heur) &&
		!t->cudnnBackendGetAttribute(heur, HEUR_RESULTS, TYPE_DESC, 0, &n, NULL)) {
		n = n < MAX_CONFIGS ? n : MAX_CONFIGS;
		for (int i = 0; i < n; i++)
			if (t->cudnnBackendCreateDescriptor(DESC_CONFIG, &config[i]))
				n = i;
		if (n && t->cudnnBackendGetAttribute(heur, HEUR_RESULTS, TYPE_DESC, n, &got, config))
			got = 0;
	}
	for (int64_t i = got; i < n; i++)
		drop(t, &config[i]);
	drop(t, &heur);
	return (int)got;
}

static unsigned dnn_notes(struct ww_dnn *t, void *config)
{
	void *engine = NULL;
	int note[NOTES];
	int64_t got = 0;
	unsigned notes = 0;

	if (!t->cudnnBackendCreateDescriptor(DESC_ENGINE, &engine) &&
		!t->cudnnBackendGetAttribute(config, CONFIG_ENGINE, TYPE_DESC, 1, &got, &engine) &&
		!t->cudnnBackendGetAttribute(engine, ENGINE_NOTES, TYPE_NOTE, NOTES, &got, note))
		for (int64_t i = 0; i < got && i < NOTES; i++)
			notes |= 1u << (note[i] & 31);
	drop(t, &engine);
	return notes;
}

/* PyTorch's rule: no engine that rounds what it reads, and without TF32 none with tensor cores. */
static int dnn_allowed(unsigned notes, const struct ww_conv *c)
{
	return !(notes & 1u << NOTE_DOWN_CONVERT) && (c->math != WW_MATH_FP32 || !(notes & 1u << NOTE_TENSOR_CORE));
}

/* The plan of a configuration; 0: it cannot be had. */
static int dnn_plan(struct ww_dnn *t, void *config, void **plan, int64_t *workspace)
{
	int64_t got = 0;

	*workspace = 0;
	if (!t->cudnnBackendCreateDescriptor(DESC_PLAN, plan) && set(t, *plan, PLAN_HANDLE, TYPE_HANDLE, 1, &t->handle) &&
		set_desc(t, *plan, PLAN_CONFIG, config) && !t->cudnnBackendFinalize(*plan) &&
		!t->cudnnBackendGetAttribute(*plan, PLAN_WORKSPACE, TYPE_INT64, 1, &got, workspace))
		return 1;
	drop(t, plan);
	return 0;
}

/* The candidates in the order of `choice`: of modes A and B by turns, then the fallbacks.  PyTorch's own is the first;
 * mode B's first was up to 10 times faster for odd sizes, and a third slower for a few. */
static int dnn_candidates(struct ww_dnn *t, const struct ww_dnn_conv *s, void **config)
{
	void *a[MAX_CONFIGS], *b[MAX_CONFIGS];
	int n_a = dnn_configs(t, s, MODE_A, a), n_b = dnn_configs(t, s, MODE_B, b), n = 0;

	for (int i = 0; i < n_a || i < n_b; i++) {
		if (i < n_a)
			config[n++] = a[i];
		if (i < n_b)
			config[n++] = b[i];
	}
	return n + dnn_configs(t, s, MODE_FALLBACK, config + n);
}

/* Number `choice`, or the last, of those that can be had within `limit` bytes of workspace. */
static void dnn_choose(
	struct ww_dnn *t, struct ww_dnn_conv *s, const struct ww_conv *c, size_t limit, size_t *workspace_bytes)
{
	void *config[3 * MAX_CONFIGS];
	int n = dnn_candidates(t, s, config), left = c->choice + 1;

	for (int i = 0; i < n && left; i++) {
		void *plan = NULL;
		int64_t need;

		if (!dnn_allowed(dnn_notes(t, config[i]), c) || !dnn_plan(t, config[i], &plan, &need))
			continue;
		if ((size_t)need <= limit) {
			drop(t, &s->plan);
			s->plan = plan;
			s->config = config[i];
			*workspace_bytes = (size_t)need;
			left--;
		} else {
			drop(t, &plan);
		}
	}
	for (int i = 0; i < n; i++)
		if (config[i] != s->config)
			drop(t, &config[i]);
}

/* ---- Nodes ------------------------------------------------------------------------------------------------------- */

static int has_relu(int epilogue) { return epilogue == WW_EPI_RELU || epilogue == WW_EPI_BIAS_RELU; }

/* Descriptors for the calls that add the bias and the ReLU. */
static int dnn_epilogue(struct ww_dnn *t, struct ww_dnn_conv *s, const struct ww_conv *c)
{
	static const long long ones[3] = { 1, 1, 1 };
	int type = dnn_type(c->dtype), format = c->layout == WW_LAYOUT_NHWC ? DNN_NHWC : DNN_NCHW, b[5], y[5];
	int64_t wide[5];
	int rank = dnn_dims(c, wide, 1, c->k, ones);

	for (int i = 0; i < rank; i++)
		b[i] = (int)wide[i];
	dnn_dims(c, wide, c->n, c->k, c->out);
	for (int i = 0; i < rank; i++)
		y[i] = (int)wide[i];
	return c->epilogue == WW_EPI_NONE ||
		(!t->cudnnCreateTensorDescriptor(&s->out) && !t->cudnnCreateTensorDescriptor(&s->bias) &&
			!t->cudnnCreateActivationDescriptor(&s->act) &&
			!t->cudnnSetTensorNdDescriptorEx(s->out, format, type, rank, y) &&
			!t->cudnnSetTensorNdDescriptorEx(s->bias, format, type, rank, b) &&
			!t->cudnnSetActivationDescriptor(s->act, DNN_RELU, DNN_PROPAGATE_NAN, 0));
}

int ww_dnn_load(struct ww_dnn *t, struct ww_dnn_conv **out, const struct ww_conv *c, size_t limit,
	size_t *workspace_bytes, char *why)
{
	struct ww_dnn_conv *s = *out = calloc(1, sizeof(*s));

	*workspace_bytes = 0;
	if (!s)
		return WW_EXEC_NOMEM;
	if (dnn_graph(t, s, c) && dnn_epilogue(t, s, c))
		dnn_choose(t, s, c, limit, workspace_bytes);
	if (s->plan)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "cuDNN has no algorithm for this convolution within %zu bytes of workspace", limit);
	return WW_EXEC_REFUSED;
}

static void *at(void *const *buffers, int buf, long long offset) { return (char *)buffers[buf] + offset; }

/* The convolution alone. */
static int dnn_execute(struct ww_dnn *t, const struct ww_dnn_conv *s, void *x, void *w, void *y, void *workspace)
{
	static const int64_t ids[] = { ID_X, ID_W, ID_Y };
	void *pointers[] = { x, w, y }, *pack = NULL;
	int status = -1;

	if (!t->cudnnBackendCreateDescriptor(DESC_PACK, &pack) && set(t, pack, PACK_IDS, TYPE_INT64, 3, ids) &&
		set(t, pack, PACK_POINTERS, TYPE_POINTER, 3, pointers) &&
		set(t, pack, PACK_WORKSPACE, TYPE_POINTER, 1, &workspace) && !t->cudnnBackendFinalize(pack))
		status = t->cudnnBackendExecute(t->handle, s->plan, pack);
	drop(t, &pack);
	return status;
}

int ww_dnn_issue(struct ww_dnn *t, const struct ww_dnn_conv *s, const struct ww_conv *c, void *const *buffers,
	void *workspace, CUstream stream, char *why)
{
	const float one_f = 1, zero_f = 0;
	const double one_d = 1, zero_d = 0;
	const void *one = c->dtype == WW_F64 ? (const void *)&one_d : &one_f,
			   *zero = c->dtype == WW_F64 ? (const void *)&zero_d : &zero_f;
	void *y = at(buffers, c->y_buf, c->y_offset_bytes);

	int status = t->cudnnSetStream(t->handle, stream);
	if (!status)
		status = dnn_execute(
			t, s, at(buffers, c->x_buf, c->x_offset_bytes), at(buffers, c->w_buf, c->w_offset_bytes), y, workspace);
	if (!status && ww_has_bias(c->epilogue))
		status = t->cudnnAddTensor(
			t->handle, one, s->bias, at(buffers, c->bias_buf, c->bias_offset_bytes), one, s->out, y);
	if (!status && has_relu(c->epilogue))
		status = t->cudnnActivationForward(t->handle, s->act, one, s->out, y, zero, s->out, y);
	if (!status)
		return WW_EXEC_OK;
	snprintf(why, WW_EXEC_WHY, "cuDNN failed with status %d", status);
	return WW_EXEC_REFUSED;
}

void ww_dnn_unload(struct ww_dnn *t, struct ww_dnn_conv *s)
{
	if (!s)
		return;
	void **all[] = { &s->plan, &s->config, &s->graph, &s->op, &s->conv, &s->y, &s->w, &s->x };
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		drop(t, all[i]);
	if (s->bias)
		t->cudnnDestroyTensorDescriptor(s->bias);
	if (s->out)
		t->cudnnDestroyTensorDescriptor(s->out);
	if (s->act)
		t->cudnnDestroyActivationDescriptor(s->act);
	free(s);
}
