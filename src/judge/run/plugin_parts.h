/* plugin_parts.h - between the files of the cuda plug-in: what the profile needs to know of the back end. */
#ifndef WW_JUDGE_RUN_PLUGIN_PARTS_H
#define WW_JUDGE_RUN_PLUGIN_PARTS_H

#include "judge/run/exec.h"
#include "judge/run/proto.h"

#include <cuda.h>

/* A plan that is ready, borrowed from plugin_cuda.c. */
struct ww_cuda_plan {
	const struct ww_run_host *host;
	int device;			/* ordinal */
	CUcontext context;
	CUstream stream;
	const struct ww_image *image;
	struct ww_exec *exec;
	void *const *addresses;
	CUgraphExec graph;
	CUdeviceptr flush;		/* writing it evicts the L2 cache */
	size_t flush_bytes;
};

/* Times and resources of every node into out->nodes. */
int ww_cuda_profile(const struct ww_cuda_plan *p, unsigned repeats, struct ww_run_profile *out, struct ww_run_reply *r);
/* Hardware counters of the longest nodes, or the reason in out->counters_why.  A fault of the device is the only failure. */
int ww_cuda_counters(const struct ww_cuda_plan *p, struct ww_run_profile *out, struct ww_run_reply *r);

#endif
