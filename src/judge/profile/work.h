/* work.h - how much a node of a plan has to do, and where that puts it under the device's roofline. */
#pragma once

#include "judge/image.h"
#include "task/ref.h"

#include <jansson.h>

/* Bytes: each buffer that the node names counts once, as far as the node's arguments reach: what it must move at least
 * where it uses all of them; it may move more.  flops: a multiply-add counts two; NAN where nothing says (launches). */
struct ww_work {
	double bytes, flops;
};
struct ww_work ww_work_of_node(const struct ww_image *m, uint32_t node);
/* Flops of the plan's nodes, `graph_flops` being those of the task: what library nodes leave is the launches', and
 * known for a launch where there is only one.  flops has m->n_nodes members. */
void ww_work_flops(const struct ww_image *m, double graph_flops, double *flops);

/* What the device reaches, measured. */
struct ww_roof {
	enum ww_target target;
	double bytes_per_s;        /* 0 unknown */
	struct ww_ref_peaks peaks; /* flop/s; 0 unknown */
	int threads;               /* cpu */
};

/* One piece of work under it. */
struct ww_position {
	double bytes_per_s, flops_per_s, intensity; /* achieved, and flop a byte; NAN unknown */
	double of_memory, of_compute;               /* shares of what the device reaches; NAN unknown */
	double of_roofline;                         /* the larger */
	const char *peak;  /* of_compute is of this: "fp32", "tf32", "fp16", "bf16"; NULL unknown */
	const char *bound; /* "memory", "compute", "latency" (neither is reached), "none" (nothing to do) */
};
/* dtype: enum ww_dtype of the operands; math: the node's, or -1 where it is not known: then the lowest peak that is not
 * exceeded counts, since a kernel may use the tensor cores for fp32. */
void ww_position_set(
	struct ww_position *p, const struct ww_roof *roof, const struct ww_work *w, double us, int dtype, int math);

/* What was measured of this task's device. */
struct ww_judge_task;
void ww_profile_roof(struct ww_judge_task *t, struct ww_roof *roof);
/* "1.23 TB/s": three digits, a decimal prefix and the unit. */
void ww_profile_add_amount(struct ww_str *s, double v, const char *unit);
/* A finite number, or null. */
json_t *ww_profile_num(double v);
/* Device, bandwidth and peaks as the member "device" of a profile. */
json_t *ww_profile_device(const struct ww_roof *roof, const struct ww_device *d, const char *name);
/* The members bytes, flops, bytes_per_s, flops_per_s, intensity, of_memory, of_compute, of_roofline, peak and bound. */
void ww_profile_add_position(json_t *o, const struct ww_work *w, const struct ww_position *p);

/* What runs on a multiprocessor, and what keeps more from it. */
struct ww_occupancy {
	double share;           /* of the threads that it can hold; NAN unknown */
	const char *limited_by; /* "registers", "shared memory", "threads", "blocks"; NULL unknown */
	double waves;           /* grid / (blocks that are resident at once) */
};
void ww_occupancy_set(struct ww_occupancy *o, const struct ww_device *d, const struct ww_image_launch *l, int registers,
	int static_shared_bytes, int blocks_per_sm);
