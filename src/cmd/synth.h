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
	struct ww_judging judging; /* target, device, threads, devices */
	/* compose, run */
	const char *set, *out, *timings, *catalogue, *policy, *base_url;
	int64_t count, validation, held_out, index, max_tried;
	double stop_after_s;
	int each, no_transformers, parquet;
	/* teach */
	const char *facts, *loop, *forms, *mistakes;
	int64_t longest, turns, solutions;
};

/* Parts of "A:B:C" into out, at most max; list is cut into pieces. */
int ww_synth_cut_list(char *list, const char **out, int max);

/* argv[0] is the subcommand's first argument. */
typedef int ww_synth_subcommand(const struct ww_synth_values *v, int argc, char **argv);
ww_synth_subcommand ww_synth_audit, ww_synth_show, ww_synth_stats, ww_synth_cmd_run, ww_synth_cmd_compose,
	ww_synth_crawl, ww_synth_convert, ww_synth_teach;
