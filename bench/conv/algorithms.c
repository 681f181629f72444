/* algorithms.c - lists cuDNN's algorithms for convolutions: the first ones of each mode, with times, in both layouts.
 *
 *     build/tests/bench-algorithms [N] < bench/conv/geometries.txt
 *
 * N: algorithms of mode A that are timed (4); of mode B 2, of the fallbacks 1.  A line of input: name, dimensions, 1
 * for transposed, type (f32 with TF32, fp32 without, f16, bf16), groups, n, c, k, then for each dimension in, kernel,
 * stride, padding, dilation (all dimensions of one behind one another), output padding.  A time is an eighth of that of
 * eight convolutions in one CUDA graph, the best of three graphs: no host time, operands in L2 if they fit.  It uses
 * the runner's own module, so a library node has the same choice. */
#include "judge/run/exec_cuda_conv.c"

#include <math.h>
#include <string.h>

#define DRIVER(X) \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuMemAlloc) X(cuMemFree) X(cuMemcpyHtoD) \
	X(cuEventCreate) X(cuEventRecord) X(cuEventSynchronize) X(cuEventElapsedTime) X(cuStreamCreate) \
	X(cuStreamSynchronize) X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuGraphInstantiate) X(cuGraphLaunch) \
	X(cuGraphExecDestroy) X(cuGraphDestroy)
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

enum { RUNS = 8, ENGINE_NUMBER = 1301 /* CUDNN_ATTR_ENGINE_GLOBAL_INDEX */ };
static struct {
#define X(name) __typeof__(&name) name;
	DRIVER(X)
#undef X
} cu;
static CUevent before, after;
static CUstream stream;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "bench-algorithms: %s\n", what);
	exit(3);
}

static void open_device(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CUdevice device;
	CUcontext context;

	need(lib != NULL, "no NVIDIA driver");
#define X(name) need((*(void **)&cu.name = dlsym(lib, TEXT(name))) != NULL, TEXT(name));
	DRIVER(X)
#undef X
	need(!cu.cuInit(0) && !cu.cuDeviceGet(&device, 0) && !cu.cuDevicePrimaryCtxRetain(&context, device) &&
			!cu.cuCtxSetCurrent(context) && !cu.cuEventCreate(&before, 0) && !cu.cuEventCreate(&after, 0) &&
			!cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
		"no GPU");
}

static void read_axes(char **at, long long *wide, int *narrow, int nd)
{
	for (int i = 0; i < nd; i++) {
		long long v = strtoll(*at, at, 10);
		if (wide)
			wide[i] = v;
		else
			narrow[i] = (int)v;
	}
}

/* Returns 0 if the line is not a geometry. */
static int read_line(char *line, char *name, struct ww_conv *c)
{
	char type[8], *p;
	int at = 0;

	*c = (struct ww_conv){ .x_buf = 0, .w_buf = 1, .y_buf = 2 };
	if (sscanf(line, "%63s %d %d %7s %d %lld %lld %lld%n", name, &c->nd, &c->transposed, type, &c->groups, &c->n, &c->c,
			&c->k, &at) < 8 ||
		c->nd < 1 || c->nd > 3)
		return 0;
	c->dtype = !strcmp(type, "f16") ? WW_F16 : !strcmp(type, "bf16") ? WW_BF16 : WW_F32;
	c->math = !strcmp(type, "fp32") ? WW_MATH_FP32 : WW_MATH_TF32;
	p = line + at;
	read_axes(&p, c->in, NULL, c->nd);
	read_axes(&p, c->kernel, NULL, c->nd);
	read_axes(&p, NULL, c->stride, c->nd);
	read_axes(&p, NULL, c->pad, c->nd);
	read_axes(&p, NULL, c->dilation, c->nd);
	long long more = strtoll(p, &p, 10);
	for (int i = 0; i < c->nd; i++) {
		long long reach = (long long)c->dilation[i] * (c->kernel[i] - 1) + 1;
		c->out[i] = c->transposed ? (c->in[i] - 1) * c->stride[i] - 2LL * c->pad[i] + reach + more
								  : (c->in[i] + 2LL * c->pad[i] - reach) / c->stride[i] + 1;
	}
	return 1;
}

/* Uniform in -1..1; half precision: of either sign, between 1/2 and 2. */
static CUdeviceptr operand(long long elements, int dtype)
{
	size_t bytes = (size_t)elements * (dtype == WW_F32 ? 4 : 2);
	unsigned short *h = malloc(bytes);
	unsigned s = 1;
	CUdeviceptr d;

	need(h && !cu.cuMemAlloc(&d, bytes), "out of memory");
	for (long long i = 0; i < elements; i++) {
		s = s * 1664525u + 1013904223u;
		if (dtype == WW_F32)
			((float *)(void *)h)[i] = (float)(s >> 8) / (1 << 23) - 1.f;
		else
			h[i] = (unsigned short)((s >> 16 & 0x83ff) | (dtype == WW_F16 ? 0x3800 : 0x3f00));
	}
	need(!cu.cuMemcpyHtoD(d, h, bytes), "copy");
	free(h);
	return d;
}

/* Microseconds; infinite if the algorithm does not run. */
static double time_of(
	struct ww_dnn *t, struct ww_dnn_conv *s, const struct ww_conv *c, void *const *buffers, void *room)
{
	char why[WW_EXEC_WHY];
	CUgraph g = NULL;
	CUgraphExec e = NULL;
	double best = INFINITY;
	int ok = !ww_dnn_issue(t, s, c, buffers, room, stream, why) && !cu.cuStreamSynchronize(stream) &&
		!cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);

	for (int r = 0; ok && r < RUNS; r++)
		ok = !ww_dnn_issue(t, s, c, buffers, room, stream, why);
	ok = !cu.cuStreamEndCapture(stream, &g) && ok && !cu.cuGraphInstantiate(&e, g, 0);
	for (int r = 0; ok && r < 4; r++) {
		float ms = 0;
		ok = !cu.cuEventRecord(before, stream) && !cu.cuGraphLaunch(e, stream) && !cu.cuEventRecord(after, stream) &&
			!cu.cuEventSynchronize(after) && !cu.cuEventElapsedTime(&ms, before, after);
		best = ok && r ? fmin(best, ms * 1e3 / RUNS) : best;
	}
	if (e)
		cu.cuGraphExecDestroy(e);
	if (g)
		cu.cuGraphDestroy(g);
	return ok ? best : INFINITY;
}

static long long engine_number(struct ww_dnn *t, void *config)
{
	void *engine = NULL;
	int64_t got, v = -1;

	if (!t->cudnnBackendCreateDescriptor(DESC_ENGINE, &engine) &&
		!t->cudnnBackendGetAttribute(config, CONFIG_ENGINE, TYPE_DESC, 1, &got, &engine))
		t->cudnnBackendGetAttribute(engine, ENGINE_NUMBER, TYPE_INT64, 1, &got, &v);
	drop(t, &engine);
	return v;
}

static void list_mode(
	struct ww_dnn *t, const char *name, const struct ww_conv *c, int mode, int most, void *const *buffers)
{
	static const char *const names[] = { "A", "B", "fallbacks" };
	struct ww_dnn_conv *s = calloc(1, sizeof(*s));
	void *config[MAX_CONFIGS];
	int n = s && dnn_graph(t, s, c) ? dnn_configs(t, s, mode, config) : 0;

	printf("%s %s mode %s: %d configs\n", name, c->layout ? "NHWC" : "NCHW", names[mode], n);
	for (int i = 0, timed = 0; i < n && timed < most; i++) {
		unsigned notes = dnn_notes(t, config[i]);
		CUdeviceptr room = 0;
		int64_t bytes = 0;
		void *plan = NULL;

		if (!dnn_allowed(notes, c) || !dnn_plan(t, config[i], &plan, &bytes))
			continue;
		s->plan = plan;
		if (!bytes || !cu.cuMemAlloc(&room, (size_t)bytes))
			printf("  %2d eng %lld notes %x ws %.1f MB  %.1f us\n", i, engine_number(t, config[i]), notes,
				(double)bytes / 1e6, time_of(t, s, c, buffers, (void *)(uintptr_t)room));
		timed++;
		s->plan = NULL;
		if (room)
			cu.cuMemFree(room);
		drop(t, &plan);
		fflush(stdout);
	}
	for (int i = 0; i < n; i++)
		drop(t, &config[i]);
	ww_dnn_unload(t, s);
}

int main(int argc, char **argv)
{
	const int most[] = { argc > 1 ? atoi(argv[1]) : 4, 2, 1 };
	char line[1024], name[64], why[WW_EXEC_WHY];
	struct ww_conv c;
	struct ww_dnn *t;

	open_device();
	need(!ww_dnn_open(&t, why), why);
	while (fgets(line, sizeof(line), stdin)) {
		if (!read_line(line, name, &c))
			continue;
		long long x = c.n * c.c, w = c.c * c.k / c.groups, y = c.n * c.k;
		for (int i = 0; i < c.nd; i++)
			x *= c.in[i], w *= c.kernel[i], y *= c.out[i];
		CUdeviceptr d[] = { operand(x, c.dtype), operand(w, c.dtype), operand(y, c.dtype) };
		void *buffers[] = { (void *)(uintptr_t)d[0], (void *)(uintptr_t)d[1], (void *)(uintptr_t)d[2] };
		for (c.layout = WW_LAYOUT_NCHW; c.layout <= WW_LAYOUT_NHWC; c.layout++)
			for (int mode = MODE_A; mode <= MODE_FALLBACK; mode++)
				list_mode(t, name, &c, mode, most[mode], buffers);
		for (int i = 0; i < 3; i++)
			cu.cuMemFree(d[i]);
	}
	ww_dnn_close(t);
	return 0;
}
