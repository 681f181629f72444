/* lab.c - run a cookbook solution without the judge: the kernel developer's bench.
 *
 * The lab implements the functions of <ww/plan.h> directly over the CUDA driver and NVRTC, records the nodes of a plan
 * and replays them on a stream.  It trusts its plan.c (it is linked with it), checks nothing that the judge checks, and
 * exists so that headers and recipes are developed exactly as they are shipped: the same kernels.cu, the same plan.c.
 * Library nodes are refused.
 *
 * compare.py builds one shared library of lab.c and a solution's plan.c, describes the tensors, and times the result
 * beside PyTorch.  Built with -DLAB_MAIN it is a program that needs no GPU: it builds a plan for shapes from the
 * command line, prints the nodes, compiles the kernels and writes the cubin, for a look at registers and SASS.
 *
 * libcuda and libnvrtc are opened at run time, so that the dry form runs on a machine without a driver.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <nvrtc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ww/plan.h>

enum { MAX_TENSORS = 128, MAX_NODES = 4096, MAX_BUFS = 2048, MAX_ARGS = 64, MAX_DEFINES = 256 };

struct arg {
	int kind; /* 0 buffer, 1 bytes, 2 tensor map */
	int size;
	long long buf, off;
	unsigned char bytes[128] __attribute__((aligned(64)));
	struct ww_tmap map;
};

struct node {
	int kind; /* 0 launch, 1 memset, 2 copy */
	const char *kernel;
	unsigned grid[3], block[3], cluster[3];
	long long shared;
	int cooperative, pdl;
	int nargs;
	struct arg *args;
	int buf, src, byte;
	long long off, src_off, bytes;
	CUfunction fn;
};

struct buf {
	CUdeviceptr ptr;
	long long bytes;
	int scratch;
};

struct ww_plan {
	struct ww_device dev;
	struct ww_tensor in[MAX_TENSORS], out[MAX_TENSORS], par[MAX_TENSORS];
	struct ww_scalar scalar[MAX_TENSORS];
	int nin, nout, npar, nscalar, nbuf, nnode, ndefine, pdl_all;
	struct buf buf[MAX_BUFS];
	struct node node[MAX_NODES];
	char define[MAX_DEFINES][160];
	char error[1024];
};

static struct ww_plan *lab;
static char lab_message[1 << 16];

/* ---- The plan's side --------------------------------------------------------------------------------------------- */

void ww_fail(struct ww_plan *p, const char *why)
{
	if (!p->error[0])
		snprintf(p->error, sizeof(p->error), "%s", why);
}

int ww_input_count(struct ww_plan *p) { return p->nin; }
int ww_output_count(struct ww_plan *p) { return p->nout; }
int ww_scalar_count(struct ww_plan *p) { return p->nscalar; }
const struct ww_device *ww_device(struct ww_plan *p) { return &p->dev; }

static const struct ww_tensor *pick(struct ww_plan *p, struct ww_tensor *t, int n, int i)
{
	if (i < 0 || i >= n) {
		ww_fail(p, "no such tensor");
		return &t[0];
	}
	return &t[i];
}

const struct ww_tensor *ww_input(struct ww_plan *p, int i) { return pick(p, p->in, p->nin, i); }
const struct ww_tensor *ww_output(struct ww_plan *p, int i) { return pick(p, p->out, p->nout, i); }
const struct ww_scalar *ww_scalar(struct ww_plan *p, int i) { return &p->scalar[i]; }

const struct ww_tensor *ww_param(struct ww_plan *p, const char *name)
{
	for (int i = 0; i < p->npar; i++)
		if (!strcmp(p->par[i].name, name))
			return &p->par[i];
	return pick(p, p->par, 0, 0);
}

void ww_define(struct ww_plan *p, const char *name, long long value)
{
	if (p->ndefine < MAX_DEFINES)
		snprintf(p->define[p->ndefine++], sizeof(p->define[0]), "-D%s=%lld", name, value);
	else
		ww_fail(p, "too many macros");
}

const char *ww_fmt(struct ww_plan *p, const char *format, ...)
{
	char text[1024];
	va_list ap;

	(void)p;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return strdup(text);
}

static int add_buf(struct ww_plan *p, unsigned long long ptr, long long bytes, int scratch)
{
	p->buf[p->nbuf] = (struct buf){ ptr, bytes, scratch };
	return p->nbuf++;
}

int ww_scratch(struct ww_plan *p, long long bytes)
{
	if (p->nbuf == MAX_BUFS) {
		ww_fail(p, "too many buffers");
		return 0;
	}
	return add_buf(p, 0, bytes, 1);
}

static struct node *add_node(struct ww_plan *p, int kind)
{
	static struct node spare;
	struct node *n = p->nnode < MAX_NODES ? &p->node[p->nnode++] : &spare;

	memset(n, 0, sizeof(*n));
	n->kind = kind;
	return n;
}

static struct node *last(struct ww_plan *p)
{
	if (!p->nnode || p->node[p->nnode - 1].kind != 0) {
		ww_fail(p, "an argument without a launch");
		return add_node(p, 0);
	}
	return &p->node[p->nnode - 1];
}

void ww_launch(struct ww_plan *p, const char *kernel, long long gx, long long gy, long long gz, int bx, int by, int bz)
{
	struct node *n = add_node(p, 0);

	if (gx < 1 || gy < 1 || gz < 1 || gx > 0x7fffffff || gy > 65535 || gz > 65535 || bx * by * bz > 1024)
		ww_fail(p, "grid or block out of range");
	n->kernel = strdup(kernel);
	n->grid[0] = gx, n->grid[1] = gy, n->grid[2] = gz;
	n->block[0] = bx, n->block[1] = by, n->block[2] = bz;
	n->args = calloc(MAX_ARGS, sizeof(*n->args));
}

void ww_shared(struct ww_plan *p, long long bytes) { last(p)->shared = bytes; }
void ww_cooperative(struct ww_plan *p) { last(p)->cooperative = 1; }
void ww_pdl(struct ww_plan *p) { last(p)->pdl = 1; }
void ww_pdl_all(struct ww_plan *p) { p->pdl_all = 1; }

void ww_cluster(struct ww_plan *p, int x, int y, int z)
{
	struct node *n = last(p);

	n->cluster[0] = x, n->cluster[1] = y, n->cluster[2] = z;
	if (n->grid[0] % x || n->grid[1] % y || n->grid[2] % z)
		ww_fail(p, "the cluster does not divide the grid");
}

static struct arg *add_arg(struct ww_plan *p, int kind, const void *bytes, int size)
{
	struct node *n = last(p);
	struct arg *a = &n->args[n->nargs < MAX_ARGS ? n->nargs++ : 0];

	a->kind = kind;
	a->size = size;
	if (bytes)
		memcpy(a->bytes, bytes, size);
	return a;
}

void ww_arg_i32(struct ww_plan *p, int v) { add_arg(p, 1, &v, sizeof(v)); }
void ww_arg_i64(struct ww_plan *p, long long v) { add_arg(p, 1, &v, sizeof(v)); }
void ww_arg_f32(struct ww_plan *p, float v) { add_arg(p, 1, &v, sizeof(v)); }
void ww_arg_f64(struct ww_plan *p, double v) { add_arg(p, 1, &v, sizeof(v)); }

void ww_arg_buf(struct ww_plan *p, int buf, long long off)
{
	struct arg *a = add_arg(p, 0, NULL, 8);

	a->buf = buf;
	a->off = off;
	if (buf < 0 || buf >= p->nbuf || off < 0 || off >= p->buf[buf].bytes)
		ww_fail(p, "a buffer argument lies outside its buffer");
}

static int dtype_bytes(int t)
{
	static const int n[] = { 0, 4, 8, 2, 2, 1, 2, 4, 8, 1, 1 };
	return n[t];
}

void ww_arg_tmap(struct ww_plan *p, const struct ww_tmap *t)
{
	struct arg *a = add_arg(p, 2, NULL, 128);
	long long end = t->offset_bytes + dtype_bytes(t->dtype);

	a->map = *t;
	for (int i = 0; i < t->rank; i++) {
		long long stride = i ? t->stride_bytes[i] : dtype_bytes(t->dtype);
		end += (t->size[i] - 1) * stride;
		if (t->box[i] < 1 || t->box[i] > 256 || (i && stride % 16) || t->size[i] < 1)
			ww_fail(p, "bad tensor map");
	}
	if (t->buf < 0 || t->buf >= p->nbuf || end > p->buf[t->buf].bytes || t->offset_bytes % 16)
		ww_fail(p, "a tensor map lies outside its buffer");
}

void ww_memset(struct ww_plan *p, int buf, long long off, long long bytes, int byte)
{
	struct node *n = add_node(p, 1);

	n->buf = buf, n->off = off, n->bytes = bytes, n->byte = byte;
}

void ww_copy(struct ww_plan *p, int dst, long long dst_off, int src, long long src_off, long long bytes)
{
	struct node *n = add_node(p, 2);

	n->buf = dst, n->off = dst_off, n->src = src, n->src_off = src_off, n->bytes = bytes;
}

void ww_gemm(struct ww_plan *p, const struct ww_gemm *g)
{
	(void)g;
	ww_fail(p, "the lab has no library nodes");
}
void ww_conv(struct ww_plan *p, const struct ww_conv *c)
{
	(void)c;
	ww_fail(p, "the lab has no library nodes");
}

/* ---- Driver and compiler ----------------------------------------------------------------------------------------- */

#define CUDA_FUNCTIONS(X) X(cuInit) X(cuGetErrorString) X(cuModuleLoadData) X(cuModuleGetFunction) X(cuFuncSetAttribute) \
	X(cuLaunchKernelEx) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemsetD8Async) X(cuMemcpyDtoDAsync_v2) X(cuTensorMapEncodeTiled) \
	X(cuFuncGetAttribute) X(cuOccupancyMaxActiveClusters)
#define NVRTC_FUNCTIONS(X) X(nvrtcCreateProgram) X(nvrtcAddNameExpression) X(nvrtcCompileProgram) X(nvrtcGetProgramLogSize) \
	X(nvrtcGetProgramLog) X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN) X(nvrtcGetLoweredName) X(nvrtcDestroyProgram)
#define DECLARE(f) static __typeof__(f) *p_##f;
CUDA_FUNCTIONS(DECLARE)
NVRTC_FUNCTIONS(DECLARE)

#define OPEN(f) if (!(*(void **)&p_##f = dlsym(h, #f))) return #f;
static const char *open_cuda(void)
{
	void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!h)
		return "libcuda.so.1";
	CUDA_FUNCTIONS(OPEN)
	return NULL;
}

static const char *open_nvrtc(void)
{
	const char *named = getenv("LAB_NVRTC");
	void *h = named ? dlopen(named, RTLD_NOW) : NULL;

	if (!h)
		h = dlopen("libnvrtc.so.13", RTLD_NOW);
	if (!h)
		h = dlopen("/usr/local/cuda/lib64/libnvrtc.so", RTLD_NOW);
	if (!h)
		return "libnvrtc.so.13";
	NVRTC_FUNCTIONS(OPEN)
	return NULL;
}

static int fail(const char *what, const char *why)
{
	snprintf(lab_message, sizeof(lab_message), "%s: %s", what, why);
	return -1;
}

static int cu(CUresult r, const char *what)
{
	const char *why = "?";

	if (r == CUDA_SUCCESS)
		return 0;
	p_cuGetErrorString(r, &why);
	return fail(what, why);
}

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "rb");
	char *text = calloc(1, 1 << 20);

	if (!f || !fread(text, 1, (1 << 20) - 1, f))
		text[0] = 0;
	if (f)
		fclose(f);
	return text;
}

/* Compile `path` with the plan's macros; the cubin and, per launch, its lowered kernel name.  NULL on an error. */
static char *compile(const char *path, const char *includes, char **lowered, size_t *size)
{
	const char *option[MAX_DEFINES + 32];
	nvrtcProgram prog;
	char *cubin = NULL, *inc = strdup(includes), *more = strdup(getenv("LAB_OPTIONS") ? getenv("LAB_OPTIONS") : "");
	int n = 0;

	option[n++] = "-arch=sm_90a";
	option[n++] = "-std=c++17";
	option[n++] = "-lineinfo";
	option[n++] = "-default-device";
	if (getenv("LAB_VERBOSE"))
		option[n++] = "--ptxas-options=-v";
	for (char *s = strtok(inc, ":"); s; s = strtok(NULL, ":"))
		option[n++] = ww_fmt(lab, "-I%s", s);
	for (char *s = strtok(more, " "); s && n < 16; s = strtok(NULL, " "))
		option[n++] = s;
	for (int i = 0; i < lab->ndefine; i++)
		option[n++] = lab->define[i];
	p_nvrtcCreateProgram(&prog, slurp(path), "kernels.cu", 0, NULL, NULL);
	for (int i = 0; i < lab->nnode; i++)
		if (lab->node[i].kind == 0)
			p_nvrtcAddNameExpression(prog, lab->node[i].kernel);
	nvrtcResult rc = p_nvrtcCompileProgram(prog, n, option);
	size_t log = 0;
	p_nvrtcGetProgramLogSize(prog, &log);
	if (log && log < sizeof(lab_message))
		p_nvrtcGetProgramLog(prog, lab_message);
	if (rc == NVRTC_SUCCESS) {
		p_nvrtcGetCUBINSize(prog, size);
		cubin = malloc(*size);
		p_nvrtcGetCUBIN(prog, cubin);
		for (int i = 0; i < lab->nnode; i++) {
			const char *name = NULL;
			if (lab->node[i].kind == 0 && p_nvrtcGetLoweredName(prog, lab->node[i].kernel, &name) == NVRTC_SUCCESS)
				lowered[i] = strdup(name);
		}
	}
	p_nvrtcDestroyProgram(&prog);
	return cubin;
}

static int encode(struct arg *a)
{
	static const int type[] = { 0, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
		CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 };
	struct ww_tmap *t = &a->map;
	cuuint64_t size[5], stride[5];
	cuuint32_t box[5], step[5];

	for (int i = 0; i < t->rank; i++) {
		size[i] = t->size[i];
		box[i] = t->box[i];
		step[i] = t->elem_stride[i] ? t->elem_stride[i] : 1;
		if (i)
			stride[i - 1] = t->stride_bytes[i];
	}
	return cu(p_cuTensorMapEncodeTiled((CUtensorMap *)a->bytes, type[t->dtype], t->rank,
				  (void *)(lab->buf[t->buf].ptr + t->offset_bytes), size, stride, box, step,
				  CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)t->swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
				  t->fill ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
		"cuTensorMapEncodeTiled");
}

/* ---- The lab's own interface, for compare.py --------------------------------------------------------------------- */

void plan(struct ww_plan *p);

const char *lab_error(void) { return lab_message; }

void lab_begin(int sms)
{
	lab = calloc(1, sizeof(*lab));
	lab->dev = (struct ww_device){ .target = WW_TARGET_CUDA,
		.cc = 90,
		.sm_count = sms,
		.warp_size = 32,
		.max_threads_per_block = 1024,
		.max_threads_per_sm = 2048,
		.regs_per_sm = 65536,
		.shared_per_block_bytes = 232448,
		.shared_per_sm_bytes = 233472,
		.l2_bytes = 60LL << 20,
		.memory_bytes = 140LL << 30,
		.memory_bytes_per_s = 4.3e12 };
}

/* which: 0 input, 1 parameter, 2 output. */
void lab_tensor(int which, const char *name, int dtype, int rank, const long long *size, const long long *stride,
	unsigned long long ptr)
{
	struct ww_tensor t = {
		.name = strdup(name), .dtype = dtype, .rank = rank, .itemsize = dtype_bytes(dtype), .numel = 1
	};
	long long span = 1, dense = 1;

	for (int i = 0; i < WW_MAX_RANK; i++)
		t.size[i] = 1;
	for (int i = 0; i < rank; i++) {
		t.size[i] = size[i];
		t.stride[i] = stride[i];
		t.numel *= size[i];
		span += (size[i] - 1) * stride[i];
	}
	t.contiguous = 1;
	for (int i = rank - 1; i >= 0; i--) {
		if (size[i] != 1 && stride[i] != dense)
			t.contiguous = 0;
		dense *= size[i];
	}
	t.bytes = span * t.itemsize;
	t.buf = add_buf(lab, ptr, t.bytes, 0);
	if (which == 0)
		lab->in[lab->nin++] = t;
	else if (which == 1)
		lab->par[lab->npar++] = t;
	else
		lab->out[lab->nout++] = t;
}

/* Build the plan and compile; with dry != 0 stop there and write the cubin. */
int lab_build(const char *kernels, const char *includes, const char *cubin_path, int dry)
{
	static char *lowered[MAX_NODES];
	const char *missing = open_nvrtc();
	size_t size = 0;
	CUmodule module;

	lab_message[0] = 0;
	if (missing)
		return fail("missing", missing);
	plan(lab);
	for (int i = 1; lab->pdl_all && i < lab->nnode; i++)
		lab->node[i].pdl = !lab->node[i].kind && !lab->node[i - 1].kind && !lab->node[i].cooperative &&
			!lab->node[i - 1].cooperative;
	if (lab->error[0])
		return fail("plan", lab->error);
	char *cubin = compile(kernels, includes, lowered, &size);
	if (!cubin)
		return -1;
	if (cubin_path) {
		FILE *f = fopen(cubin_path, "wb");
		fwrite(cubin, 1, size, f);
		fclose(f);
	}
	if (dry)
		return 0;
	if ((missing = open_cuda()))
		return fail("missing", missing);
	if (cu(p_cuModuleLoadData(&module, cubin), "cuModuleLoadData"))
		return -1;
	for (int i = 0; i < lab->nbuf; i++)
		if (lab->buf[i].scratch &&
			(cu(p_cuMemAlloc_v2(&lab->buf[i].ptr, lab->buf[i].bytes), "cuMemAlloc") ||
				(!getenv("LAB_BARE") && cu(p_cuMemsetD8Async(lab->buf[i].ptr, 0xff, lab->buf[i].bytes, 0), "poison"))))
			return -1;
	for (int i = 0; i < lab->nnode; i++) {
		struct node *n = &lab->node[i];
		if (n->kind)
			continue;
		if (cu(p_cuModuleGetFunction(&n->fn, module, lowered[i]), lowered[i]))
			return -1;
		if (n->shared &&
			cu(p_cuFuncSetAttribute(n->fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, n->shared), "shared"))
			return -1;
		for (int a = 0; a < n->nargs; a++) {
			if (n->args[a].kind == 2 && encode(&n->args[a]))
				return -1;
			if (n->args[a].kind == 0) {
				CUdeviceptr at = lab->buf[n->args[a].buf].ptr + n->args[a].off;
				memcpy(n->args[a].bytes, &at, 8);
			}
		}
	}
	return 0;
}

static int launch(struct node *n, CUstream stream)
{
	CUlaunchAttribute attr[3];
	void *args[MAX_ARGS];
	int k = 0;

	if (n->cluster[0])
		attr[k++] = (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
			.value.clusterDim = { n->cluster[0], n->cluster[1], n->cluster[2] } };
	if (n->cooperative)
		attr[k++] = (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 };
	if (n->pdl)
		attr[k++] = (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
			.value.programmaticStreamSerializationAllowed = 1 };
	for (int i = 0; i < n->nargs; i++)
		args[i] = n->args[i].bytes;
	CUlaunchConfig c = { n->grid[0], n->grid[1], n->grid[2], n->block[0], n->block[1], n->block[2], n->shared, stream,
		attr, k };
	return cu(p_cuLaunchKernelEx(&c, n->fn, args, NULL), n->kernel);
}

int lab_run_node(int i, void *stream)
{
	struct node *n = &lab->node[i];

	if (n->kind == 0)
		return launch(n, stream);
	if (n->kind == 1)
		return cu(p_cuMemsetD8Async(lab->buf[n->buf].ptr + n->off, n->byte, n->bytes, stream), "memset");
	return cu(
		p_cuMemcpyDtoDAsync_v2(lab->buf[n->buf].ptr + n->off, lab->buf[n->src].ptr + n->src_off, n->bytes, stream),
		"copy");
}

int lab_run(void *stream)
{
	for (int i = 0; i < lab->nnode; i++)
		if (lab_run_node(i, stream))
			return -1;
	return 0;
}

int lab_node_count(void) { return lab->nnode; }
const char *lab_node_name(int i)
{
	return lab->node[i].kind == 0 ? lab->node[i].kernel : lab->node[i].kind == 1 ? "memset" : "copy";
}

void lab_end(void)
{
	for (int i = 0; i < lab->nbuf; i++)
		if (lab->buf[i].scratch && lab->buf[i].ptr)
			p_cuMemFree_v2(lab->buf[i].ptr);
	free(lab);
}

#ifdef LAB_MAIN
static void print_nodes(void)
{
	for (int i = 0; i < lab->nnode; i++) {
		struct node *n = &lab->node[i];
		printf("%-28s grid %u %u %u block %u shared %lld cluster %u args %d\n", lab_node_name(i), n->grid[0],
			n->grid[1], n->grid[2], n->block[0], n->shared, n->cluster[0], n->nargs);
	}
	for (int i = 0; i < lab->ndefine; i++)
		printf("%s ", lab->define[i] + 2);
	printf("\n");
}

/* lab KERNELS.cu INCLUDES CUBIN [i|p|o:NAME:DTYPE:SIZE,SIZE,...]... */
int main(int argc, char **argv)
{
	if (argc < 5)
		return 2;
	lab_begin(132);
	for (int i = 4; i < argc; i++) {
		long long size[8], stride[8];
		char name[128];
		int dtype, rank = 0, at = 0;
		sscanf(argv[i] + 2, "%127[^:]:%d:%n", name, &dtype, &at);
		for (char *s = strtok(argv[i] + 2 + at, ","); s; s = strtok(NULL, ","))
			size[rank++] = atoll(s);
		for (long long k = rank - 1, d = 1; k >= 0; d *= size[k--])
			stride[k] = d;
		lab_tensor(argv[i][0] == 'i' ? 0 : argv[i][0] == 'p' ? 1 : 2, name, dtype, rank, size, stride, 256);
	}
	int rc = lab_build(argv[1], argv[2], argv[3], 1);
	print_nodes();
	printf("%s\n", lab_message);
	return rc ? 1 : 0;
}
#endif
