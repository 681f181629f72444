/* plugin_counters.c - hardware counters of the longest nodes, through CUPTI's range profiler.
 *
 * libcupti comes with PyTorch's wheels and with the toolkit; it is opened at run time, and the few structs that are
 * used are declared here, because its headers are missing where the wheels are (and one of them is C++).  Each struct
 * starts with its own size, which is how CUPTI knows which version of it the caller speaks.
 *
 * One range is one node.  What the counters cannot hold at once takes several passes: the whole plan is run again for
 * each of them (user replay), from flushed caches, until CUPTI says that it has everything; plans are pure, so every
 * pass sees the same work.  Counters that a chip does not know are left out one by one.  Where other processes had the
 * device meanwhile all is read again; what is disturbed the third time is left out.
 *
 * Reading counters needs a right that many administrators keep for themselves (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, in
 * NVIDIA's words ERR_NVGPUCTRPERM); that, a busy profiling unit and a missing library are an answer, not a failure. */
#include "judge/run/plugin_parts.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	NO_PRIVILEGES = 35,
	NO_PRIVILEGES_VIRTUAL = 40,
	BUSY = 26,
	MAX_PASSES = 64,
	TRIES = 3,
	USER_RANGE = 2,
	USER_REPLAY = 3
};

struct init {
	size_t size;
	void *priv;
};
struct chip_name {
	size_t size;
	void *priv;
	size_t device;
	const char *name;
};
struct availability {
	size_t size;
	void *priv;
	CUcontext ctx;
	size_t bytes;
	uint8_t *image;
};
struct host_init {
	size_t size;
	void *priv;
	int type;
	const char *chip;
	const uint8_t *availability;
	void *host;
};
struct host_only {
	size_t size;
	void *priv;
	void *host;
};
struct add_metrics {
	size_t size;
	void *priv;
	void *host;
	const char **names;
	size_t n;
};
struct config_size {
	size_t size;
	void *priv;
	void *host;
	size_t bytes;
};
struct config_image {
	size_t size;
	void *priv;
	void *host;
	size_t bytes;
	uint8_t *image;
};
struct evaluate {
	size_t size;
	void *priv;
	void *host;
	const uint8_t *data;
	size_t data_bytes, range;
	const char **names;
	size_t n;
	double *values;
};
struct enable {
	size_t size;
	void *priv;
	CUcontext ctx;
	void *object;
};
struct object_only {
	size_t size;
	void *priv;
	void *object;
};
struct data_size {
	size_t size;
	void *priv;
	void *object;
	const char **names;
	size_t n, ranges;
	uint32_t tree_nodes;
	size_t bytes;
};
struct data_init {
	size_t size;
	void *priv;
	void *object;
	size_t bytes;
	uint8_t *data;
};
struct set_config {
	size_t size;
	void *priv, *object;
	size_t config_bytes;
	const uint8_t *config;
	size_t data_bytes;
	uint8_t *data;
	int range, replay;
	size_t max_ranges;
	uint16_t levels, min_level;
	size_t pass;
	uint16_t target_level;
};
struct stop {
	size_t size;
	void *priv, *object;
	size_t pass, level;
	uint8_t all;
};
struct push {
	size_t size;
	void *priv, *object;
	const char *name;
};
struct decode {
	size_t size;
	void *priv, *object;
	size_t dropped;
};
struct data_info {
	size_t size;
	void *priv;
	const uint8_t *data;
	size_t bytes, ranges;
};
struct range_info {
	size_t size;
	void *priv;
	const uint8_t *data;
	size_t bytes, range;
	const char *delimiter, *name;
};

/* As CUPTI counts: up to the end of the last member, without what alignment adds behind it. */
#define SIZE(type, last) (offsetof(struct type, last) + sizeof(((struct type *)0)->last))

struct cupti {
	int (*cuptiGetResultString)(int result, const char **text);
	int (*cuptiProfilerInitialize)(struct init *p);
	int (*cuptiDeviceGetChipName)(struct chip_name *p);
	int (*cuptiProfilerGetCounterAvailability)(struct availability *p);
	int (*cuptiProfilerHostInitialize)(struct host_init *p);
	int (*cuptiProfilerHostDeinitialize)(struct host_only *p);
	int (*cuptiProfilerHostConfigAddMetrics)(struct add_metrics *p);
	int (*cuptiProfilerHostGetConfigImageSize)(struct config_size *p);
	int (*cuptiProfilerHostGetConfigImage)(struct config_image *p);
	int (*cuptiProfilerHostEvaluateToGpuValues)(struct evaluate *p);
	int (*cuptiRangeProfilerEnable)(struct enable *p);
	int (*cuptiRangeProfilerDisable)(struct object_only *p);
	int (*cuptiRangeProfilerGetCounterDataSize)(struct data_size *p);
	int (*cuptiRangeProfilerCounterDataImageInitialize)(struct data_init *p);
	int (*cuptiRangeProfilerSetConfig)(struct set_config *p);
	int (*cuptiRangeProfilerStart)(struct object_only *p);
	int (*cuptiRangeProfilerStop)(struct stop *p);
	int (*cuptiRangeProfilerPushRange)(struct push *p);
	int (*cuptiRangeProfilerPopRange)(struct object_only *p);
	int (*cuptiRangeProfilerDecodeData)(struct decode *p);
	int (*cuptiRangeProfilerGetCounterDataInfo)(struct data_info *p);
	int (*cuptiRangeProfilerCounterDataGetRangeInfo)(struct range_info *p);
};

struct counters {
	struct cupti c;
	const struct ww_cuda_plan *plan;
	CUresult (*synchronize)(CUstream);
	CUresult (*set8)(CUdeviceptr, unsigned char, size_t, CUstream);
	struct ww_run_profile *out;
	const char *names[WW_COUNTER_COUNT]; /* those that this chip has */
	int ids[WW_COUNTER_COUNT], n;
	uint8_t *availability, *config, *data;
	size_t config_bytes, data_bytes;
	void *host, *object;
	uint32_t chosen[WW_RUN_PROFILE_MAX_COUNTED], n_chosen; /* nodes, in the plan's order */
	CUresult device;                                       /* an error of the device ends everything */
};

/* 1 when a call of CUPTI's succeeded; else the reason, in words that say what to do. */
static int good(struct counters *x, int result, const char *what)
{
	const char *text = NULL;
	char *why = x->out->counters_why;
	size_t n = sizeof(x->out->counters_why);
	if (!result)
		return 1;
	if (result == NO_PRIVILEGES || result == NO_PRIVILEGES_VIRTUAL)
		snprintf(why, n,
			"the driver does not permit them here (ERR_NVGPUCTRPERM): an administrator allows them with the "
			"nvidia module's option NVreg_RestrictProfilingToAdminUsers=0, or by CAP_SYS_ADMIN");
	else if (result == BUSY)
		snprintf(why, n, "another profiler is using the counters of this GPU");
	else {
		if (x->c.cuptiGetResultString)
			x->c.cuptiGetResultString(result, &text);
		snprintf(why, n, "%s: %.150s (%d)", what, text ? text : "unknown error of CUPTI", result);
	}
	return 0;
}

static int refuse(struct counters *x, const char *text)
{
	snprintf(x->out->counters_why, sizeof(x->out->counters_why), "%s", text);
	return 0;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* libcupti opens the two others by name; in a wheel they lie beside it and nowhere else. */
static void preload_beside(const char *path)
{
	static const char *const names[] = { "libnvperf_host.so", "libnvperf_target.so" };
	char beside[PATH_MAX + 32];
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(beside, sizeof(beside), "%s", path);
		char *slash = strrchr(beside, '/');
		if (!slash)
			return;
		snprintf(slash + 1, sizeof(beside) - (size_t)(slash + 1 - beside), "%s", names[i]);
		dlopen(beside, RTLD_NOW | RTLD_GLOBAL);
	}
}

static int open_cupti(struct counters *x)
{
	static const char *const names[] = { "libcupti.so.13", "libcupti.so.12", NULL };
	char path[PATH_MAX];
	struct cupti *c = &x->c;
	if (!x->plan->host->find_library(names, path))
		return refuse(x, "libcupti is not installed (it comes with PyTorch's CUDA wheels and with the CUDA toolkit)");
	preload_beside(path);
	void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL), *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!lib || !cuda)
		return refuse(x, "libcupti cannot be loaded");
	*(void **)&x->synchronize = dlsym(cuda, "cuStreamSynchronize");
	*(void **)&x->set8 = dlsym(cuda, "cuMemsetD8Async");
#define GET(name) (*(void **)&c->name = dlsym(lib, #name))
	if (x->synchronize && x->set8 && GET(cuptiGetResultString) && GET(cuptiProfilerInitialize) &&
		GET(cuptiDeviceGetChipName) && GET(cuptiProfilerGetCounterAvailability) && GET(cuptiProfilerHostInitialize) &&
		GET(cuptiProfilerHostDeinitialize) && GET(cuptiProfilerHostConfigAddMetrics) &&
		GET(cuptiProfilerHostGetConfigImageSize) && GET(cuptiProfilerHostGetConfigImage) &&
		GET(cuptiProfilerHostEvaluateToGpuValues) && GET(cuptiRangeProfilerEnable) && GET(cuptiRangeProfilerDisable) &&
		GET(cuptiRangeProfilerGetCounterDataSize) && GET(cuptiRangeProfilerCounterDataImageInitialize) &&
		GET(cuptiRangeProfilerSetConfig) && GET(cuptiRangeProfilerStart) && GET(cuptiRangeProfilerStop) &&
		GET(cuptiRangeProfilerPushRange) && GET(cuptiRangeProfilerPopRange) && GET(cuptiRangeProfilerDecodeData) &&
		GET(cuptiRangeProfilerGetCounterDataInfo) && GET(cuptiRangeProfilerCounterDataGetRangeInfo))
		return 1;
#undef GET
	return refuse(x, "this libcupti has no range profiler; install that of CUDA 12.6 or later");
}

/* ---- What to count ----------------------------------------------------------------------------------------------- */

static int open_host(struct counters *x, const char *chip)
{
	struct host_init host = { SIZE(host_init, host), NULL, 0, chip, x->availability, NULL };
	if (!good(x, x->c.cuptiProfilerHostInitialize(&host), "cuptiProfilerHostInitialize"))
		return 0;
	x->host = host.host;
	return 1;
}

static void close_host(struct counters *x)
{
	struct host_only host = { SIZE(host_only, host), NULL, x->host };
	if (x->host)
		x->c.cuptiProfilerHostDeinitialize(&host);
	x->host = NULL;
}

/* Which of our counters this chip has: tried one by one, since one unknown name makes CUPTI refuse all. */
static int try_counters(struct counters *x, const char *chip)
{
#define X(id, name, cupti) cupti,
	static const char *const wanted[] = { WW_COUNTER_MAP(X) };
#undef X
	if (!open_host(x, chip))
		return 0;
	for (int i = 0; i < WW_COUNTER_COUNT; i++) {
		const char *one[] = { wanted[i] };
		struct add_metrics add = { SIZE(add_metrics, n), NULL, x->host, one, 1 };
		if (x->c.cuptiProfilerHostConfigAddMetrics(&add))
			continue;
		x->names[x->n] = wanted[i];
		x->ids[x->n++] = i;
	}
	close_host(x);
	return x->n ? 1 : refuse(x, "CUPTI has none of the counters that are read for this GPU");
}

static int get_availability(struct counters *x)
{
	struct availability have = { SIZE(availability, image), NULL, x->plan->context, 0, NULL };
	if (!good(x, x->c.cuptiProfilerGetCounterAvailability(&have), "cuptiProfilerGetCounterAvailability"))
		return 0;
	have.image = x->availability = calloc(1, have.bytes + 1);
	return have.image &&
		good(x, x->c.cuptiProfilerGetCounterAvailability(&have), "cuptiProfilerGetCounterAvailability");
}

/* The host side: the image that programs the counters.  All of them are added at once, so that they share passes. */
static int make_config(struct counters *x)
{
	struct init init = { SIZE(init, priv), NULL };
	struct chip_name chip = { SIZE(chip_name, name), NULL, (size_t)x->plan->device, NULL };
	if (!good(x, x->c.cuptiProfilerInitialize(&init), "cuptiProfilerInitialize") ||
		!good(x, x->c.cuptiDeviceGetChipName(&chip), "cuptiDeviceGetChipName") || !get_availability(x) ||
		!try_counters(x, chip.name) || !open_host(x, chip.name))
		return 0;
	struct add_metrics add = { SIZE(add_metrics, n), NULL, x->host, x->names, (size_t)x->n };
	struct config_size size = { SIZE(config_size, bytes), NULL, x->host, 0 };
	if (!good(x, x->c.cuptiProfilerHostConfigAddMetrics(&add), "cuptiProfilerHostConfigAddMetrics") ||
		!good(x, x->c.cuptiProfilerHostGetConfigImageSize(&size), "cuptiProfilerHostGetConfigImageSize"))
		return 0;
	x->config = calloc(1, size.bytes + 1);
	x->config_bytes = size.bytes;
	struct config_image image = { SIZE(config_image, image), NULL, x->host, size.bytes, x->config };
	return x->config && good(x, x->c.cuptiProfilerHostGetConfigImage(&image), "cuptiProfilerHostGetConfigImage");
}

/* The device side: the profiler of this context and the memory that values go to. */
static int enable(struct counters *x)
{
	struct enable e = { SIZE(enable, object), NULL, x->plan->context, NULL };
	if (!good(x, x->c.cuptiRangeProfilerEnable(&e), "cuptiRangeProfilerEnable"))
		return 0;
	x->object = e.object;
	struct data_size size = { SIZE(data_size, bytes), NULL, x->object, x->names, (size_t)x->n, x->n_chosen, x->n_chosen,
		0 };
	if (!good(x, x->c.cuptiRangeProfilerGetCounterDataSize(&size), "cuptiRangeProfilerGetCounterDataSize"))
		return 0;
	x->data = calloc(1, size.bytes + 1);
	x->data_bytes = size.bytes;
	struct data_init init = { SIZE(data_init, data), NULL, x->object, size.bytes, x->data };
	if (!x->data ||
		!good(x, x->c.cuptiRangeProfilerCounterDataImageInitialize(&init),
			"cuptiRangeProfilerCounterDataImageInitialize"))
		return 0;
	struct set_config set = { SIZE(set_config, target_level), NULL, x->object, x->config_bytes, x->config,
		x->data_bytes, x->data, USER_RANGE, USER_REPLAY, x->n_chosen, 1, 1, 0, 0 };
	return good(x, x->c.cuptiRangeProfilerSetConfig(&set), "cuptiRangeProfilerSetConfig");
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* The longest nodes, in the plan's order. */
static void choose(struct counters *x)
{
	const struct ww_run_profile *p = x->out;
	for (uint32_t i = 0; i < p->n_nodes; i++) {
		uint32_t longer = 0;
		for (uint32_t k = 0; k < p->n_nodes; k++)
			longer += p->nodes[k].us > p->nodes[i].us || (p->nodes[k].us == p->nodes[i].us && k < i);
		if (longer < WW_RUN_PROFILE_MAX_COUNTED && x->n_chosen < WW_RUN_PROFILE_MAX_COUNTED)
			x->chosen[x->n_chosen++] = i;
	}
}

static int issue(struct counters *x, uint32_t node)
{
	char why[WW_EXEC_WHY];
	int rc = ww_exec_issue_node(x->plan->exec, node, x->plan->addresses, x->plan->stream, why);
	if (rc == WW_EXEC_OK)
		x->device = x->synchronize(x->plan->stream);
	return rc == WW_EXEC_OK && x->device == CUDA_SUCCESS ? 1
														 : refuse(x, "the plan failed while the counters were read");
}

static int run_pass(struct counters *x)
{
	struct object_only object = { SIZE(object_only, object), NULL, x->object };
	uint32_t next = 0;
	char name[16];
	x->device = x->set8(x->plan->flush, 0, x->plan->flush_bytes, x->plan->stream);
	if (x->device == CUDA_SUCCESS)
		x->device = x->synchronize(x->plan->stream);
	if (x->device != CUDA_SUCCESS || !good(x, x->c.cuptiRangeProfilerStart(&object), "cuptiRangeProfilerStart"))
		return 0;
	for (uint32_t i = 0; i < x->out->n_nodes; i++) {
		int counted = next < x->n_chosen && x->chosen[next] == i;
		snprintf(name, sizeof(name), "%u", i);
		struct push push = { SIZE(push, name), NULL, x->object, name };
		if ((counted && !good(x, x->c.cuptiRangeProfilerPushRange(&push), "cuptiRangeProfilerPushRange")) ||
			!issue(x, i) ||
			(counted && !good(x, x->c.cuptiRangeProfilerPopRange(&object), "cuptiRangeProfilerPopRange")))
			return 0;
		next += (uint32_t)counted;
	}
	return 1;
}

static int run_passes(struct counters *x)
{
	struct stop stop = { SIZE(stop, all), NULL, x->object, 0, 0, 0 };
	while (!stop.all) {
		if (x->out->passes++ >= MAX_PASSES)
			return refuse(x, "reading the counters needs more passes than the profiler makes");
		if (!run_pass(x) || !good(x, x->c.cuptiRangeProfilerStop(&stop), "cuptiRangeProfilerStop"))
			return 0;
	}
	struct decode decode = { SIZE(decode, dropped), NULL, x->object, 0 };
	return good(x, x->c.cuptiRangeProfilerDecodeData(&decode), "cuptiRangeProfilerDecodeData");
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static int read_range(struct counters *x, size_t range)
{
	double values[WW_COUNTER_COUNT];
	struct range_info info = { SIZE(range_info, name), NULL, x->data, x->data_bytes, range, "/", NULL };
	struct evaluate e = { SIZE(evaluate, values), NULL, x->host, x->data, x->data_bytes, range, x->names, (size_t)x->n,
		values };
	if (!good(x, x->c.cuptiRangeProfilerCounterDataGetRangeInfo(&info), "cuptiRangeProfilerCounterDataGetRangeInfo") ||
		!good(x, x->c.cuptiProfilerHostEvaluateToGpuValues(&e), "cuptiProfilerHostEvaluateToGpuValues"))
		return 0;
	unsigned long node = info.name ? strtoul(info.name, NULL, 10) : ULONG_MAX;
	if (node >= x->out->n_nodes)
		return refuse(x, "CUPTI returned an unknown range");
	for (int i = 0; i < x->n; i++)
		x->out->nodes[node].counter[x->ids[i]] = values[i];
	x->out->n_counted++;
	return 1;
}

static int read_ranges(struct counters *x)
{
	struct data_info info = { SIZE(data_info, ranges), NULL, x->data, x->data_bytes, 0 };
	if (!good(x, x->c.cuptiRangeProfilerGetCounterDataInfo(&info), "cuptiRangeProfilerGetCounterDataInfo"))
		return 0;
	for (size_t i = 0; i < info.ranges; i++)
		if (!read_range(x, i))
			return 0;
	return info.ranges ? 1 : refuse(x, "CUPTI returned no values");
}

static int count_once(const struct ww_cuda_plan *p, struct ww_run_profile *out, struct ww_run_reply *r)
{
	struct counters *x = calloc(1, sizeof(*x));
	if (!x)
		return WW_RUN_NOMEM;
	out->passes = 0;
	x->plan = p;
	x->out = out;
	choose(x);
	int ok = x->n_chosen && open_cupti(x) && make_config(x) && enable(x) && run_passes(x) && read_ranges(x);
	if (!ok && !out->counters_why[0])
		refuse(x, x->n_chosen ? "out of memory" : "the plan is empty");
	CUresult device = x->device;
	struct object_only object = { SIZE(object_only, object), NULL, x->object };
	if (x->object && device == CUDA_SUCCESS)
		x->c.cuptiRangeProfilerDisable(&object);
	close_host(x);
	free(x->availability);
	free(x->config);
	free(x->data);
	free(x);
	if (device == CUDA_SUCCESS)
		return WW_RUN_OK;
	snprintf(r->text, sizeof(r->text), "the device reported error %d while its counters were read", (int)device);
	return WW_RUN_FAULT;
}

/* Did other processes have the device within the node's range?  Percentages of elapsed time are then nobody's. */
static int disturbed(const struct ww_run_profile_node *n)
{
	double us = n->counter[WW_COUNTER_DURATION_NS] * 1e-3;
	return isfinite(us) && us > 1.2 * n->alone_us + 60;
}

static uint32_t count_disturbed(const struct ww_run_profile *p)
{
	uint32_t found = 0;
	for (uint32_t i = 0; i < p->n_nodes; i++)
		found += (uint32_t)disturbed(&p->nodes[i]);
	return found;
}

static void forget(struct ww_run_profile_node *n)
{
	for (int i = 0; i < WW_COUNTER_COUNT; i++)
		n->counter[i] = NAN;
}

/* Forget the counters of all nodes, or of disturbed ones. */
static void forget_nodes(struct ww_run_profile *p, int all)
{
	for (uint32_t i = 0; i < p->n_nodes; i++)
		if (all || disturbed(&p->nodes[i]))
			forget(&p->nodes[i]);
}

int ww_cuda_counters(const struct ww_cuda_plan *p, struct ww_run_profile *out, struct ww_run_reply *r)
{
	int kind = WW_RUN_OK;
	for (int i = 0; i < TRIES && (!i || out->n_disturbed); i++) {
		forget_nodes(out, 1);
		out->n_counted = 0;
		if ((kind = count_once(p, out, r)) != WW_RUN_OK || out->counters_why[0])
			return kind;
		out->n_disturbed = count_disturbed(out);
	}
	forget_nodes(out, 0);
	out->n_counted -= out->n_disturbed;
	if (!out->n_counted)
		snprintf(out->counters_why, sizeof(out->counters_why),
			"other work ran on the device while they were read, %d times; try again when it is idle", TRIES);
	return kind;
}
