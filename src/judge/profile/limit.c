/* limit.c - names the limiting resource of a node (limit.h).
 *
 * Counters decide where there are any: they say what was used, not what had to be.  Without them the roofline decides,
 * with the bytes that the node must move at least; a node far below both roofs is looked at for the usual reasons, in
 * the order in which fixing them pays: too little work for the device, registers in memory, too few threads at once, a
 * last wave that fills a part of the device.  Otherwise it is latency, and the sentence says so instead of guessing.
 *
 * The thresholds are rules of thumb, not physics: a resource at 60% to 70% of its peak rarely leaves more than that
 * share to be had.  A memset of 4 KiB takes 3 to 5.2 us between events on an H200: what takes less than 6 is short. */
#include "judge/profile/limit.h"

#include <math.h>

static const double USED_PCT = 65, NEAR = 0.6, CUDA_SHORT_US = 6, CPU_SHORT_US = 20, FEW_WARPS = 0.25,
					IDLE_THREADS = 0.75;

static void add_roofline(const struct ww_limit_facts *f, struct ww_str *s)
{
	const struct ww_position *p = f->position;
	ww_str_adds(s, "it moves at least ");
	ww_profile_add_amount(s, p->bytes_per_s, "B/s");
	ww_str_addf(s, ", %.0f%% of what a copy reaches", 100 * p->of_memory);
	if (!isfinite(p->of_compute))
		return;
	ww_str_adds(s, ", and computes ");
	ww_profile_add_amount(s, p->flops_per_s, "flop/s");
	ww_str_addf(s, ", %.0f%% of the %s peak", 100 * p->of_compute, p->peak);
}

/* ---- With counters ----------------------------------------------------------------------------------------------- */

static double counter(const struct ww_limit_facts *f, enum ww_counter c) { return f->row->counter[c]; }

static const char *top_stall(const struct ww_limit_facts *f, double *warps)
{
	static const struct {
		enum ww_counter id;
		const char *text;
	} stalls[] = { { WW_COUNTER_STALL_LONG, "a load from global or local memory" },
		{ WW_COUNTER_STALL_SHORT, "shared memory or a special function" },
		{ WW_COUNTER_STALL_BARRIER, "a barrier of the block" },
		{ WW_COUNTER_STALL_MIO, "room in the queue to shared memory" },
		{ WW_COUNTER_STALL_LG, "room in the queue to global memory" },
		{ WW_COUNTER_STALL_MATH, "a free arithmetic unit" },
		{ WW_COUNTER_STALL_WAIT, "the result of the instruction before" } };
	const char *top = NULL;
	*warps = 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(stalls); i++) {
		double v = counter(f, stalls[i].id);
		if (isfinite(v) && v > *warps) {
			*warps = v;
			top = stalls[i].text;
		}
	}
	return top;
}

/* Bytes that the counters saw, in percent of what a copy reaches: DRAM's own peak is never reached. */
static double moved_pct(const struct ww_limit_facts *f)
{
	double bytes = counter(f, WW_COUNTER_DRAM_READ) + counter(f, WW_COUNTER_DRAM_WRITE);
	return f->us > 0 && f->roof->bytes_per_s > 0 ? 100 * bytes / (f->us * 1e-6) / f->roof->bytes_per_s : NAN;
}

static const char *by_counters(const struct ww_limit_facts *f, struct ww_str *s)
{
	/* What feeds the units (caches, issue) is near its peak whenever they are: it counts only where they are not. */
	const struct {
		double used;
		int feeding;
		const char *name, *text, *of;
	} units[] = { { moved_pct(f), 0, "memory", "the device's memory", "what a copy reaches" },
		{ counter(f, WW_COUNTER_TENSOR_PCT), 0, "compute", "the tensor cores", "the peak" },
		{ counter(f, WW_COUNTER_FMA_PCT), 0, "compute", "the fp32 units", "the peak" },
		{ counter(f, WW_COUNTER_L2_PCT), 1, "cache", "the L2 cache", "the peak" },
		{ counter(f, WW_COUNTER_L1_PCT), 1, "cache", "the L1 cache and shared memory", "the peak" },
		{ counter(f, WW_COUNTER_ISSUE_PCT), 1, "issue", "the instruction issue", "the peak" } };
	int top = -1;
	double warps;
	for (int feeding = 0; feeding < 2; feeding++) {
		for (size_t i = 0; i < WW_ARRAY_LEN(units); i++)
			if (units[i].feeding == feeding && isfinite(units[i].used) && (top < 0 || units[i].used > units[top].used))
				top = (int)i;
		if (top >= 0 && units[top].used >= USED_PCT) {
			ww_str_addf(s, "%s: %.0f%% of %s is in use (counters)", units[top].text, units[top].used, units[top].of);
			return units[top].name;
		}
	}
	if (top < 0)
		return NULL;
	const char *stall = top_stall(f, &warps);
	ww_str_addf(
		s, "nothing is saturated (the most used is %s, %.0f%% of %s)", units[top].text, units[top].used, units[top].of);
	if (stall)
		ww_str_addf(s, "; for each instruction issued %.1f warps wait for %s", warps, stall);
	if (f->row->local_bytes <= 0)
		return "latency";
	ww_str_addf(s, "; %d bytes a thread of stack or spilled registers go through the memory", f->row->local_bytes);
	return "spills";
}

/* ---- Without ----------------------------------------------------------------------------------------------------- */

static double blocks_of(const struct ww_image_launch *l)
{
	return (double)l->grid[0] * (double)l->grid[1] * (double)l->grid[2];
}

/* Reasons that only a launch on a GPU has; NULL where none of them applies. */
static const char *launch_reason(const struct ww_limit_facts *f, struct ww_str *s)
{
	const struct ww_image_launch *l = &f->node->launch;
	const struct ww_occupancy *o = f->occupancy;
	double blocks = blocks_of(l);
	if (blocks < f->device->sm_count) {
		ww_str_addf(s, "too little work at once: %.0f blocks for %d multiprocessors", blocks, f->device->sm_count);
		return "threads";
	}
	if (f->row->local_bytes > 0) {
		ww_str_addf(s,
			"local memory: %d bytes a thread of stack or spilled registers go through the memory (%d registers)",
			f->row->local_bytes, f->row->registers);
		return "spills";
	}
	if (isfinite(o->share) && o->share < FEW_WARPS) {
		ww_str_addf(s, "few threads at once: %.0f%% of what a multiprocessor holds, limited by %s", 100 * o->share,
			o->limited_by ? o->limited_by : "the block");
		return "occupancy";
	}
	if (isfinite(o->waves) && o->waves > 1 && o->waves < 4 && o->waves - floor(o->waves) > 0 &&
		o->waves - floor(o->waves) < 0.5) {
		ww_str_addf(s, "the last wave: %.2f waves of blocks, of which the last fills the device to %.0f%%", o->waves,
			100 * (o->waves - floor(o->waves)));
		return "tail";
	}
	return NULL;
}

static const char *cpu_reason(const struct ww_limit_facts *f, struct ww_str *s)
{
	if (!(f->row->busy_threads < IDLE_THREADS * f->roof->threads))
		return NULL;
	ww_str_addf(s, "idle threads: %.1f of %d are at work on average", f->row->busy_threads, f->roof->threads);
	if (f->node->kind == WW_NODE_LAUNCH && blocks_of(&f->node->launch) < f->roof->threads)
		ww_str_addf(s, ", because the grid has %.0f block%s", blocks_of(&f->node->launch),
			blocks_of(&f->node->launch) == 1 ? "" : "s");
	else
		ww_str_adds(s, ": the blocks differ in length, or the node is short");
	return "threads";
}

static const char *by_roofline(const struct ww_limit_facts *f, struct ww_str *s)
{
	const struct ww_position *p = f->position;
	int cpu = f->roof->target == WW_TARGET_CPU;
	const char *reason = NULL;
	if (p->of_compute >= NEAR && !(p->of_memory > p->of_compute)) {
		ww_str_adds(s, "arithmetic: ");
		add_roofline(f, s);
		return "compute";
	}
	if (p->of_memory >= NEAR) {
		ww_str_adds(s, p->of_memory > 1.1 ? "the cache: " : "memory bandwidth: ");
		add_roofline(f, s);
		if (p->of_memory > 1.1)
			ww_str_adds(s, ", so that a part comes from a cache");
		return p->of_memory > 1.1 ? "cache" : "memory";
	}
	if (isnan(p->of_compute) && f->plan->of_compute >= NEAR) {
		ww_str_adds(s, "arithmetic, by the plan as a whole: it computes ");
		ww_profile_add_amount(s, f->plan->flops_per_s, "flop/s");
		ww_str_addf(s, ", %.0f%% of the %s peak (which launch does how much of it is not known)",
			100 * f->plan->of_compute, f->plan->peak);
		return "compute";
	}
	if (cpu)
		reason = cpu_reason(f, s);
	else if (f->node->kind == WW_NODE_LAUNCH)
		reason = launch_reason(f, s);
	if (!reason) {
		ww_str_adds(s, "latency, or work that the roofline does not count (instructions, traffic beyond the least): ");
		add_roofline(f, s);
		return "latency";
	}
	ww_str_adds(s, "; ");
	add_roofline(f, s);
	return reason;
}

const char *ww_limit_name(const struct ww_limit_facts *f, struct ww_str *sentence)
{
	int cpu = f->roof->target == WW_TARGET_CPU;
	if (f->us < (cpu ? CPU_SHORT_US : CUDA_SHORT_US) && !(f->position->of_roofline >= NEAR)) {
		ww_str_addf(sentence, "its length: %.1f us is little more than starting %s takes; do the work in another node",
			f->us, cpu ? "the threads" : "a kernel");
		return "short";
	}
	const char *name = by_counters(f, sentence);
	return name ? name : by_roofline(f, sentence);
}
