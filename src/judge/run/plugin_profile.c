/* plugin_profile.c - what each node of a plan takes on the device, and what its kernel uses of a multiprocessor.
 *
 * Two times a node, because they answer two questions.  `us` is the node's share of the plan: the whole plan is
 * captured once more with an event between every two nodes, so that the device alone walks from one to the next and a
 * node finds in the cache what the one before left there; these add up to the plan's time but for the events
 * themselves, whose cost is measured by two events with nothing between them.  `alone_us` is the node by itself, caches
 * flushed ahead of it: what its kernel could be improved by.  Where a plan cannot be captured with events (`in_graph`
 * 0) the nodes are issued one by one on a stream, and short ones show the host's launch latency.  An event between two
 * nodes orders them: a programmatic dependent launch does not overlap here.
 *
 * The median of the repeats stands for each.  Rejected: CUPTI's activity records, which need a library that is not
 * everywhere, for the same microseconds. */
#include "judge/run/plugin_parts.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DRIVER_MAP(X)                                                                                                 \
	X(cuGetErrorName) X(cuStreamSynchronize) X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuGraphInstantiate)  \
	X(cuGraphUpload) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy) X(cuEventCreate) X(cuEventDestroy)  \
	X(cuEventRecord) X(cuEventRecordWithFlags) X(cuEventElapsedTime) X(cuMemsetD8Async) X(cuFuncGetAttribute)     \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessor)

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

struct driver {
#define X(name) __typeof__(&name) name;
	DRIVER_MAP(X)
#undef X
};

struct profile {
	struct driver cu;
	const struct ww_cuda_plan *plan;
	uint32_t n;      /* nodes */
	CUevent *events; /* n + 2: before node 0 twice, then behind each node */
	CUgraph graph;   /* the plan with events, or NULL */
	CUgraphExec graph_exec;
	double *samples; /* (nodes, repeats) */
	char why[WW_EXEC_WHY];
};

static int driver_open(struct driver *d)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!lib)
		return 0;
#define X(name)                                                \
	*(void **)&d->name = dlsym(lib, TEXT(name));           \
	if (!d->name)                                          \
		return 0;
	DRIVER_MAP(X)
#undef X
	return 1;
}

static int fault(struct profile *x, struct ww_run_reply *r, CUresult e)
{
	const char *name = NULL;
	x->cu.cuGetErrorName(e, &name);
	snprintf(r->text, sizeof(r->text), "the device reported an error: %s", name ? name : "unknown CUDA error");
	return WW_RUN_FAULT;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

static double between_us(struct profile *x, uint32_t from, uint32_t to)
{
	float ms = 0;
	return x->cu.cuEventElapsedTime(&ms, x->events[from], x->events[to]) == CUDA_SUCCESS ? (double)ms * 1e3 : NAN;
}

/* ---- The nodes in the plan's order ------------------------------------------------------------------------------- */

/* Every node with an event behind it; external: the events become nodes of the graph that is being captured. */
static int issue_marked(struct profile *x, int external, CUresult *e)
{
	const struct ww_cuda_plan *p = x->plan;
	unsigned flags = external ? CU_EVENT_RECORD_EXTERNAL : CU_EVENT_RECORD_DEFAULT;
	*e = CUDA_SUCCESS;
	for (uint32_t i = 0; i < x->n + 2; i++) {
		if (i >= 2 && ww_exec_issue_node(p->exec, i - 2, p->addresses, p->stream, x->why) != WW_EXEC_OK)
			return 0;
		if ((*e = x->cu.cuEventRecordWithFlags(x->events[i], p->stream, flags)) != CUDA_SUCCESS)
			return 0;
	}
	return 1;
}

static int capture_marked(struct profile *x)
{
	const struct ww_cuda_plan *p = x->plan;
	CUresult e;
	if (x->cu.cuStreamBeginCapture(p->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS)
		return 0;
	int whole = issue_marked(x, 1, &e);
	return x->cu.cuStreamEndCapture(p->stream, &x->graph) == CUDA_SUCCESS && whole &&
		x->cu.cuGraphInstantiate(&x->graph_exec, x->graph, 0) == CUDA_SUCCESS &&
		x->cu.cuGraphUpload(x->graph_exec, p->stream) == CUDA_SUCCESS &&
		x->cu.cuStreamSynchronize(p->stream) == CUDA_SUCCESS;
}

static CUresult run_marked(struct profile *x)
{
	const struct ww_cuda_plan *p = x->plan;
	CUresult e = x->cu.cuMemsetD8Async(p->flush, 0, p->flush_bytes, p->stream);
	if (e == CUDA_SUCCESS && x->graph_exec)
		e = x->cu.cuGraphLaunch(x->graph_exec, p->stream);
	else if (e == CUDA_SUCCESS && !issue_marked(x, 0, &e) && e == CUDA_SUCCESS)
		e = CUDA_ERROR_LAUNCH_FAILED;
	return e == CUDA_SUCCESS ? x->cu.cuStreamSynchronize(p->stream) : e;
}

static int time_in_order(struct profile *x, unsigned repeats, struct ww_run_profile *out, struct ww_run_reply *r)
{
	double clock[WW_RUN_PROFILE_MAX_REPEATS];
	for (unsigned k = 0; k < repeats; k++) {
		CUresult e = run_marked(x);
		if (e != CUDA_SUCCESS)
			return fault(x, r, e);
		clock[k] = between_us(x, 0, 1);
		for (uint32_t i = 0; i < x->n; i++)
			x->samples[(size_t)i * repeats + k] = between_us(x, i + 1, i + 2);
	}
	for (uint32_t i = 0; i < x->n; i++)
		out->nodes[i].us = median(x->samples + (size_t)i * repeats, repeats);
	out->clock_us = median(clock, repeats);
	return WW_RUN_OK;
}

/* ---- Each node by itself, and the plan --------------------------------------------------------------------------- */

/* The flush is queued ahead of the first event, so that the device is busy while the host queues the rest. */
static CUresult run_alone(struct profile *x, uint32_t node)
{
	const struct ww_cuda_plan *p = x->plan;
	CUresult e = x->cu.cuMemsetD8Async(p->flush, 0, p->flush_bytes, p->stream);
	if (e == CUDA_SUCCESS)
		e = x->cu.cuEventRecord(x->events[0], p->stream);
	if (e == CUDA_SUCCESS && ww_exec_issue_node(p->exec, node, p->addresses, p->stream, x->why) != WW_EXEC_OK)
		e = CUDA_ERROR_LAUNCH_FAILED;
	if (e == CUDA_SUCCESS)
		e = x->cu.cuEventRecord(x->events[1], p->stream);
	return e == CUDA_SUCCESS ? x->cu.cuStreamSynchronize(p->stream) : e;
}

static int time_alone(struct profile *x, unsigned repeats, struct ww_run_profile *out, struct ww_run_reply *r)
{
	for (unsigned k = 0; k < repeats; k++)
		for (uint32_t i = 0; i < x->n; i++) {
			CUresult e = run_alone(x, i);
			if (e != CUDA_SUCCESS)
				return fault(x, r, e);
			x->samples[(size_t)i * repeats + k] = between_us(x, 0, 1);
		}
	for (uint32_t i = 0; i < x->n; i++)
		out->nodes[i].alone_us = median(x->samples + (size_t)i * repeats, repeats);
	return WW_RUN_OK;
}

/* As the judge times it: flush, event, graph, event. */
static CUresult time_part(struct profile *x, CUgraphExec graph, double *us)
{
	const struct ww_cuda_plan *p = x->plan;
	CUresult e = x->cu.cuMemsetD8Async(p->flush, 0, p->flush_bytes, p->stream);
	if (e == CUDA_SUCCESS)
		e = x->cu.cuEventRecord(x->events[0], p->stream);
	if (e == CUDA_SUCCESS)
		e = x->cu.cuGraphLaunch(graph, p->stream);
	if (e == CUDA_SUCCESS)
		e = x->cu.cuEventRecord(x->events[1], p->stream);
	if (e == CUDA_SUCCESS)
		e = x->cu.cuStreamSynchronize(p->stream);
	if (e == CUDA_SUCCESS)
		*us += between_us(x, 0, 1);
	return e;
}

static int time_plan(struct profile *x, unsigned repeats, struct ww_run_profile *out, struct ww_run_reply *r)
{
	double us[WW_RUN_PROFILE_MAX_REPEATS] = { 0 };
	for (unsigned k = 0; k < repeats; k++)
		for (int i = 0; i < x->plan->n_parts; i++) {
			CUresult e = time_part(x, x->plan->parts[i].exec, &us[k]);
			if (e != CUDA_SUCCESS)
				return fault(x, r, e);
		}
	out->plan_us = median(us, repeats);
	return WW_RUN_OK;
}

/* ---- Resources --------------------------------------------------------------------------------------------------- */

static void set_resources(struct profile *x, struct ww_run_profile *out)
{
	for (uint32_t i = 0; i < x->n; i++) {
		CUfunction f = ww_exec_function(x->plan->exec, i);
		const struct ww_image_launch *l = &ww_image_nodes(x->plan->image)[i].launch;
		struct ww_run_profile_node *n = &out->nodes[i];
		int v = 0;
		if (!f)
			continue;
		if (x->cu.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, f) == CUDA_SUCCESS)
			n->registers = v;
		if (x->cu.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f) == CUDA_SUCCESS)
			n->local_bytes = v;
		if (x->cu.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f) == CUDA_SUCCESS)
			n->static_shared_bytes = v;
		if (x->cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
				&v, f, l->block[0] * l->block[1] * l->block[2], (size_t)l->shared_bytes) == CUDA_SUCCESS)
			n->blocks_per_sm = v;
	}
}

int ww_cuda_profile(const struct ww_cuda_plan *p, unsigned repeats, struct ww_run_profile *out, struct ww_run_reply *r)
{
	struct profile *x = calloc(1, sizeof(*x));
	int kind = WW_RUN_NOMEM;

	if (!x)
		return kind;
	x->plan = p;
	x->n = p->image->n_nodes;
	x->events = calloc(x->n + 2u, sizeof(*x->events));
	x->samples = calloc((size_t)x->n * repeats + 1, sizeof(*x->samples));
	if (!x->events || !x->samples)
		goto out;
	kind = WW_RUN_BROKEN;
	if (!driver_open(&x->cu)) {
		snprintf(r->text, sizeof(r->text), "the NVIDIA driver is too old to profile");
		goto out;
	}
	for (uint32_t i = 0; i < x->n + 2; i++)
		if (x->cu.cuEventCreate(&x->events[i], CU_EVENT_DEFAULT) != CUDA_SUCCESS)
			goto out;
	set_resources(x, out);
	out->in_graph = (uint32_t)capture_marked(x);
	if ((kind = time_plan(x, repeats, out, r)) == WW_RUN_OK && (kind = time_in_order(x, repeats, out, r)) == WW_RUN_OK)
		kind = time_alone(x, repeats, out, r);
out:
	for (uint32_t i = 0; x->events && x->cu.cuEventDestroy && i < x->n + 2; i++)
		if (x->events[i])
			x->cu.cuEventDestroy(x->events[i]);
	if (x->graph_exec)
		x->cu.cuGraphExecDestroy(x->graph_exec);
	if (x->graph)
		x->cu.cuGraphDestroy(x->graph);
	free(x->events);
	free(x->samples);
	free(x);
	return kind;
}
