/* load.h - did other processes use the machine while we measured, or did its speed change? */
#pragma once

#include "judge/internal.h"

enum { WW_LOAD_PROCESSES = 5 };
struct ww_load {
	const struct ww_judge *judge;
	pid_t own[WW_LOAD_PROCESSES]; /* beside this one; 0: none */
	double busy_s, own_s;         /* cpu */
	double policies_s;
	uint64_t start_ns;
	unsigned clock_mhz; /* cuda: of the SMs; 0 unknown */
	int patient;        /* cuda: NVML is asked at the end, which takes tens of milliseconds */
};
struct ww_disturbance {
	int certain;     /* no number measured meanwhile is to be trusted */
	int noticed;     /* a possible disturbance; the samples decide whether it mattered */
	int policies;    /* processes of policies used the processors: no win may be paid */
	double others_s; /* cpu: processor time of others meanwhile */
	char why[96];    /* "" or in words */
};
void ww_load_start(struct ww_load *l, const struct ww_judge *j, const pid_t *own, int n_own, int patient);
void ww_load_end(const struct ww_load *l, struct ww_disturbance *d);
/* Processor seconds that the processes of the shells of this process have used so far; 0: of all processes of this
 * user. */
double ww_load_policies_s(int parent);
/* cuda: 1 where NVML counts other processes on the device than this one's; at most one task of this process is open. */
int ww_load_is_shared(const struct ww_judge *j);
/* Is it the command line, with blanks between the arguments, of a process with an exported operator (judge.h)? */
int ww_load_is_exported(const char *command);
