/* profile.h - what a runner says about each node of a plan: times, resources, hardware counters.
 *
 * These structs follow the reply of PROFILE (proto.h).  They are data from the process that runs the candidate: on cuda
 * no host code of the candidate lives there, on cpu it does, so nothing but a profile is ever made of them.  A number
 * that is not known is NAN, a count -1.
 */
#pragma once

#include <stdint.h>

/* Hardware counters: our name (unit at its end) and CUPTI's.  What a chip does not have is left out by itself.
 * DURATION_NS is the range around a node, some 30 us longer than the node. */
#define WW_COUNTER_MAP(X)                                                                              \
	X(DURATION_NS, "duration_ns", "gpu__time_duration.sum")                                        \
	X(DRAM_READ, "dram_read_bytes", "dram__bytes_read.sum")                                        \
	X(DRAM_WRITE, "dram_write_bytes", "dram__bytes_write.sum")                                     \
	X(DRAM_PCT, "dram_pct", "dram__bytes.sum.pct_of_peak_sustained_elapsed")                  \
	X(L2_PCT, "l2_pct", "lts__t_sectors.avg.pct_of_peak_sustained_elapsed")                       \
	X(L2_HIT_PCT, "l2_hit_pct", "lts__t_sector_hit_rate.pct")                                      \
	X(L1_PCT, "l1_pct", "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed")                     \
	X(LOAD_SECTORS, "sectors_per_load", "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio") \
	X(BANK_CONFLICTS, "shared_bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum") \
	X(ISSUE_PCT, "issue_pct", "sm__inst_issued.avg.pct_of_peak_sustained_elapsed")                 \
	X(FMA_PCT, "fma_pct", "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed")          \
	X(TENSOR_PCT, "tensor_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed") \
	X(WARPS_PCT, "active_warps_pct", "sm__warps_active.avg.pct_of_peak_sustained_active")          \
	X(STALL_LONG, "stall_global_memory", "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio") \
	X(STALL_SHORT, "stall_shared_memory", "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio") \
	X(STALL_BARRIER, "stall_barrier", "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio") \
	X(STALL_MIO, "stall_shared_queue", "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio") \
	X(STALL_LG, "stall_global_queue", "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio") \
	X(STALL_MATH, "stall_math_pipe", "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio") \
	X(STALL_WAIT, "stall_fixed_latency", "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio")

enum ww_counter {
#define X(id, name, cupti) WW_COUNTER_##id,
	WW_COUNTER_MAP(X)
#undef X
		WW_COUNTER_COUNT
};

enum {
	WW_RUN_PROFILE_MAX_REPEATS = 32,
	WW_RUN_PROFILE_MAX_FLUSH = 128 << 20,
	WW_RUN_PROFILE_MAX_COUNTED = 64 /* nodes that counters are read for */
};

/* Payload of PROFILE.  flush_bytes: cpu, at most WW_RUN_PROFILE_MAX_FLUSH; the cuda runner knows its cache. */
struct ww_run_profile_ask {
	uint32_t repeats, counters, flush_bytes;
};

struct ww_run_profile_node {
	double us;                   /* in the plan's order, caches flushed once ahead of the plan: median of the repeats */
	double alone_us;             /* cuda: caches flushed ahead of this node */
	double busy_threads;         /* cpu: threads at work, averaged over the node's time */
	int32_t registers;           /* cuda launches: a thread */
	int32_t local_bytes;         /* a thread: stack and spilled registers */
	int32_t static_shared_bytes; /* a block, beside what the plan asks for */
	int32_t blocks_per_sm;       /* that fit at once */
	double counter[WW_COUNTER_COUNT];
};

struct ww_run_profile {
	double plan_us;         /* the whole plan as the judge times it, by the runner's own clock */
	double clock_us;        /* cuda: what one of the events between nodes costs */
	uint32_t n_nodes;       /* rows that follow */
	uint32_t n_counted;     /* nodes with counters */
	uint32_t n_disturbed;   /* nodes whose counters were left out: other processes had the device meanwhile */
	uint32_t passes;        /* that reading the counters took */
	uint32_t in_graph;      /* cuda: `us` is from inside one CUDA graph; else node after node on a stream */
	char counters_why[240]; /* why there are no counters; "" where there are or nobody asked */
	struct ww_run_profile_node nodes[];
};
