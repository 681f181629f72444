/* synth.h - what the subcommands of `warpwright synth` share: one option table, one struct of its values, one table of
 * subcommands (synth.c). */
#pragma once

#include "cmd/judging.h"

struct ww_synth_values {
	int json;
	/* audit, show, stats */
	const char *against;
	int64_t jobs, sample, seed, rows;
	double max_s;
	struct ww_judging judging; /* target and device */
};

/* argv[0] is the subcommand's first argument. */
typedef int ww_synth_run(const struct ww_synth_values *v, int argc, char **argv);
ww_synth_run ww_synth_audit, ww_synth_show, ww_synth_stats;
