/* plugin_cuda.c - the cuda back end of the runner: the graph around exec_cuda.c.
 *
 * A plug-in (libwarpwright-judge-cuda.so) so that the program starts where there is no driver; it links to nothing of
 * CUDA and to nothing of ours, and is built wherever <cuda.h> is found.  plugin_device.c opens the device,
 * plugin_memory.c has the buffers with their guards and digests, plugin_clock.c the clock.
 *
 * The plan is captured into a CUDA graph once; where PyTorch runs nodes of it (judge/pytorch.c), what lies between two
 * such nodes is a graph of its own.  A call that counts has three clocks around it, because events cannot be
 * believed alone (plugin_clock.c); the others have the events only.
 *
 * Repeats.  Poison, the graph and the digest of the outputs follow one another on one stream.
 *
 * After any error that the device reports, the context is lost and with it this process; the reply says what it was. */
#include "judge/run/plugin_parts.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Load -------------------------------------------------------------------------------------------------------- */

/* exec_cuda.c opens libraries by their plain names; where they lie in a Python environment, it finds them already open.
 */
static void preload(struct ww_cuda *x, const char *const *names)
{
	char path[PATH_MAX];
	if (x->host->find_library(names, path))
		dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static void preload_libraries(struct ww_cuda *x)
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

/* The whole file of a descriptor, malloc'ed, with a NUL at its end. */
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

/* Local memory, which the driver reserves for as many threads as the device can hold, together with the plan's buffers:
 * at most the device's memory, as for scratch (image_validate.c). */
static int check_local(struct ww_cuda *x, struct ww_run_reply *r)
{
	int kind = WW_RUN_OK, most = 0, bytes = 0;
	size_t total = 0, buffers = 0;
	long long threads = (long long)x->sm_count *
		ww_cuda_attribute(x, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
	for (uint32_t i = 0; i < x->image->n_nodes; i++) {
		CUfunction f = ww_exec_function(x->exec, i);
		if (f)
			WW_CUDA_TRY(x->cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f), "cuFuncGetAttribute");
		most = bytes > most ? bytes : most;
	}
	for (uint32_t i = 0; i < x->image->n_buffers; i++)
		buffers += (size_t)ww_image_buffers(x->image)[i].bytes;
	WW_CUDA_TRY(x->cuDeviceTotalMem(&total, x->device), "cuDeviceTotalMem");
	if (most && buffers + (size_t)most * (size_t)threads > total) {
		snprintf(r->text, sizeof(r->text),
			"%d bytes of local memory a thread, for the %lld threads that the device holds, and the plan's buffers need more than "
			"the device's memory, %zu bytes",
			most, threads, total);
		kind = WW_RUN_REFUSED;
	}
out:
	return kind;
}

static int cuda_load(void *self, const struct ww_image *image, int binary_fd, size_t binary_bytes, const char *symbols,
	struct ww_run_reply *r)
{
	struct ww_cuda *x = self;
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
	if (kind == WW_RUN_OK)
		kind = check_local(x, r);
	if (kind == WW_RUN_OK)
		kind = ww_cuda_tables_load(x, binary, binary_bytes, r);
out:
	free(kernels);
	free(binary);
	return kind;
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

static int capture(struct ww_cuda *x, struct ww_cuda_part *p, struct ww_run_reply *r)
{
	int kind = WW_RUN_OK;
	WW_CUDA_TRY(x->cuStreamBeginCapture(x->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
	int e = ww_exec_issue_part(x->exec, x->addresses, p->nodes.from, p->nodes.to, x->stream, r->text);
	CUresult ended = x->cuStreamEndCapture(x->stream, &p->graph);
	if (e != WW_EXEC_OK)
		return exec_kind(e);
	if (ended != CUDA_SUCCESS)
		return ww_cuda_failed(x, r, WW_RUN_REFUSED, "the plan cannot be made a CUDA graph", ended);
	CUresult made = x->cuGraphInstantiate(&p->exec, p->graph, 0);
	if (made != CUDA_SUCCESS)
		return ww_cuda_failed(x, r, WW_RUN_REFUSED, "the plan cannot be made a CUDA graph", made);
	WW_CUDA_TRY(x->cuGraphUpload(p->exec, x->stream), "cuGraphUpload");
	WW_CUDA_TRY(x->cuStreamSynchronize(x->stream), "upload of the graph");
out:
	return kind;
}

/* The plan in graphs: one, or as many as nodes of PyTorch's bound. */
static int capture_all(struct ww_cuda *x, struct ww_run_reply *r)
{
	uint32_t from = 0, n = x->image->n_nodes;
	int kind = WW_RUN_OK;
	x->parts = calloc(n + 1u, sizeof(*x->parts));
	if (!x->parts)
		return WW_RUN_NOMEM;
	for (uint32_t i = 0; i <= n && kind == WW_RUN_OK; i++) {
		if (i < n && ww_image_nodes(x->image)[i].kind != WW_NODE_PYTORCH)
			continue;
		if (from < i || !n) {
			x->parts[x->n_parts].nodes = (struct ww_run_part){ from, i };
			kind = capture(x, &x->parts[x->n_parts++], r);
		}
		from = i + 1;
	}
	return kind;
}

static const struct ww_cuda_part *part_of(const struct ww_cuda *x, const struct ww_run_part *nodes)
{
	for (int i = 0; i < x->n_parts; i++)
		if (x->parts[i].nodes.from == nodes->from && x->parts[i].nodes.to == nodes->to)
			return &x->parts[i];
	return NULL;
}

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* A call that does not count: what the events say of it.  guard: look at the guard bytes behind it. */
static CUresult run_graph(struct ww_cuda *x, CUgraphExec graph, int guard, double *event_us)
{
	float ms = 0;
	CUresult e = x->cuEventRecord(x->start, x->stream);
	if (e == CUDA_SUCCESS)
		e = x->cuGraphLaunch(graph, x->stream);
	if (e == CUDA_SUCCESS)
		e = x->cuEventRecord(x->stop, x->stream);
	if (e == CUDA_SUCCESS && guard)
		e = ww_cuda_queue_guards(x);
	if (e == CUDA_SUCCESS)
		e = x->cuStreamSynchronize(x->stream);
	if (e == CUDA_SUCCESS)
		e = x->cuEventElapsedTime(&ms, x->start, x->stop);
	*event_us = (double)ms * 1e3;
	return e;
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

static int cuda_ready(void *self, struct ww_run_reply *r)
{
	struct ww_cuda *x = self;
	const struct ww_image_buffer *b = ww_image_buffers(x->image);
	int kind = WW_RUN_OK;
	x->poisoned = 0;
	for (uint32_t i = 0; kind == WW_RUN_OK && i < x->image->n_buffers; i++) {
		if (x->buffers[i].mapped)
			continue;
		if (b[i].role != WW_BUF_SCRATCH) {
			snprintf(r->text, sizeof(r->text), "buffer %u was not bound", i);
			return WW_RUN_BROKEN;
		}
		kind = ww_cuda_scratch(x, &x->buffers[i], b[i].bytes, r);
	}
	if (kind == WW_RUN_OK && x->exact)
		kind = ww_cuda_exact(x, r);
	for (uint32_t i = 0; i < x->image->n_buffers; i++)
		x->addresses[i] = (void *)(uintptr_t)x->buffers[i].data;
	if (kind == WW_RUN_OK)
		kind = ww_cuda_clock_set(x, r);
	if (kind == WW_RUN_OK)
		kind = capture_all(x, r);
	CUresult e = kind == WW_RUN_OK ? ww_cuda_digest_guards(x, &x->guards) : CUDA_SUCCESS;
	return e == CUDA_SUCCESS ? kind : ww_cuda_failed(x, r, WW_RUN_BROKEN, "digest", e);
}

static int cuda_prepare(void *self, unsigned flags, struct ww_run_reply *r)
{
	struct ww_cuda *x = self;
	int kind = WW_RUN_OK;
	CUresult e = CUDA_SUCCESS;

	x->flush_next = (flags & WW_RUN_FLUSH) != 0;
	x->guard_next = (flags & WW_RUN_GUARDS) != 0;
	if (x->flush_next && (kind = ww_cuda_flush_open(x, r)) != WW_RUN_OK)
		return kind;
	if (x->flush_next)
		e = x->cuCtxResetPersistingL2Cache(); /* cache lines that a kernel has marked as persisting survive the flush */
	if (e == CUDA_SUCCESS && (flags & WW_RUN_POISON) && x->image)
		e = ww_cuda_poison(x); /* queued: what follows is on the same stream */
	return e == CUDA_SUCCESS ? kind : ww_cuda_fault(x, r, e);
}

static int cuda_go(void *self, const struct ww_run_part *nodes, struct ww_run_reply *r)
{
	struct ww_cuda *x = self;
	const struct ww_cuda_part *p = part_of(x, nodes);
	struct ww_believed b = { 0 };
	CUresult e;
	int flush = x->flush_next, guard = x->guard_next;

	x->flush_next = x->guard_next = x->guards_queued = 0;
	r->stamp_us = r->call_us = flush ? 0 : NAN;
	if (!p && (!x->parts || nodes->from != nodes->to))
		return WW_RUN_BROKEN;
	if (!p) { /* another process goes on when what was prepared is there */
		e = x->cuStreamSynchronize(x->stream);
	} else if (flush) {
		e = ww_cuda_clock_call(x, p->exec, &b);
		r->device_us = b.device_us;
		r->stamp_us = b.stamp_us;
		r->call_us = b.host_us;
		r->contradicted = (uint32_t)b.contradicted;
	} else {
		e = run_graph(x, p->exec, guard, &r->device_us);
	}
	return e == CUDA_SUCCESS ? WW_RUN_OK : ww_cuda_fault(x, r, e);
}

static int cuda_repeat(void *self, const struct ww_run_repeat *q, struct ww_run_reply *r)
{
	struct ww_cuda *x = self;
	CUresult e = CUDA_SUCCESS;
	double start = now_us();
	uint64_t digest;
	const struct ww_run_part all = { 0, x->image ? x->image->n_nodes : 0 };
	const struct ww_cuda_part *p = x->parts ? part_of(x, &all) : NULL;
	if (!x->parts || (q->n && !p))
		return WW_RUN_BROKEN;
	r->digest = q->first;
	if (!q->has_first)
		e = ww_cuda_digest_outputs(x, q->key, &r->digest);
	while (e == CUDA_SUCCESS && r->made < q->n && !r->differs && (!r->made || now_us() - start < q->limit_ms * 1e3)) {
		e = ww_cuda_poison(x);
		if (e == CUDA_SUCCESS)
			e = x->cuGraphLaunch(p->exec, x->stream);
		if (e == CUDA_SUCCESS)
			e = ww_cuda_digest_outputs(x, q->key, &digest);
		if (e == CUDA_SUCCESS) {
			r->made++;
			r->differs = digest != r->digest;
		}
	}
	return e == CUDA_SUCCESS ? ww_cuda_guards(x, r) : ww_cuda_fault(x, r, e);
}

static int cuda_profile(
	void *self, const struct ww_run_profile_ask *ask, struct ww_run_profile *out, struct ww_run_reply *r)
{
	struct ww_cuda *x = self;
	int kind = x->parts ? ww_cuda_flush_open(x, r) : WW_RUN_BROKEN;
	if (kind != WW_RUN_OK)
		return kind;
	struct ww_cuda_plan p = { .host = x->host,
		.device = x->device,
		.context = x->context,
		.stream = x->stream,
		.image = x->image,
		.exec = x->exec,
		.addresses = x->addresses,
		.parts = x->parts,
		.n_parts = x->n_parts,
		.flush = x->flush,
		.flush_bytes = x->flush_bytes };
	kind = ww_cuda_profile(&p, ask->repeats, out, r);
	if (kind == WW_RUN_OK && ask->counters)
		kind = ww_cuda_counters(&p, out, r);
	return kind;
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static void cuda_unload(void *self)
{
	struct ww_cuda *x = self;
	for (int i = 0; i < x->n_parts; i++) {
		if (x->parts[i].exec)
			x->cuGraphExecDestroy(x->parts[i].exec);
		if (x->parts[i].graph)
			x->cuGraphDestroy(x->parts[i].graph);
	}
	free(x->parts);
	x->parts = NULL;
	x->n_parts = 0;
	ww_exec_free(x->exec);
	x->exec = NULL;
	ww_cuda_tables_free(x);
	for (uint32_t i = 0; x->buffers && i < x->image->n_buffers; i++)
		ww_cuda_unmap(x, &x->buffers[i]);
	free(x->buffers);
	free(x->addresses);
	x->buffers = NULL;
	x->addresses = NULL;
	x->image = NULL;
}

/* The process ends right after this, and the driver frees what it held. */
static void cuda_close(void *self) { free(self); }

const struct ww_run_backend *ww_run_plugin(void);
const struct ww_run_backend *ww_run_plugin(void)
{
	static const struct ww_run_backend be = { WW_RUN_ABI, ww_cuda_open, ww_cuda_hello, cuda_load, ww_cuda_bind,
		cuda_ready, cuda_prepare, cuda_go, ww_cuda_guards, cuda_repeat, cuda_profile, cuda_unload, cuda_close };
	return &be;
}
