/* load.h - did other processes use the machine while we measured, or did its speed change? */
#pragma once

#include "judge/internal.h"

enum { WW_LOAD_PROCESSES = 5 };
struct ww_load {
	const struct ww_judge *judge;
	pid_t own[WW_LOAD_PROCESSES]; /* further processes of ours (worker, runners); 0: none */
	double busy_s, own_s;         /* cpu: processor seconds at the start, of the machine and of our processes */
	double policies_s;            /* the same of processes that policies started */
	uint64_t start_ns;
	unsigned clock_mhz; /* cuda: of the SMs; 0 unknown */
	int patient;        /* cuda: ask NVML once more at the end, which takes tens of milliseconds */
};
struct ww_disturbance {
	int certain;     /* do not trust what was measured meanwhile */
	int noticed;     /* a possible disturbance; the samples decide whether it mattered */
	int policies;    /* processes that policies started used the processors: the reward pays no speed-up */
	double others_s; /* cpu: processor seconds of other processes meanwhile */
	char why[96];    /* the disturbance in words; "": none */
};
void ww_load_start(struct ww_load *l, const struct ww_judge *j, const pid_t *own, int n_own, int patient);
void ww_load_end(const struct ww_load *l, struct ww_disturbance *d);
/* Processor seconds used so far by processes that policies started, in shells of process `parent`; 0: in shells of all
 * processes of this user. */
double ww_load_policies_s(int parent);
/* cuda: 1 if NVML counts processes on the device that are not this one's.  Call with at most one task open. */
int ww_load_is_shared(const struct ww_judge *j);
/* Is this the command line (arguments separated by spaces) of a process that runs an exported operator (judge.h)? */
int ww_load_is_exported(const char *command);
