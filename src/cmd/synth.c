/* synth.c - `warpwright synth`: finds the subcommand. */
#include "cmd/synth.h"
#include "cmd/cmd.h"

#include <string.h>

static const struct ww_opt opts[] = {
	{ "against", 0, WW_OPT_STR, offsetof(struct ww_synth_values, against), "SET[:SET]", NULL, 0, 0,
		"audit, run: held-out task sets that no task may resemble; teach: whose tasks are left "
		"out, by signature or text" },
	{ "jobs", 'j', WW_OPT_INT, offsetof(struct ww_synth_values, jobs), "N", "0", 0, 256,
		"processes that look at tasks at a time; 0: one for each processor" },
	{ "set", 0, WW_OPT_CHOICE, offsetof(struct ww_synth_values, set), "large|small", "small", 0, 0,
		"run, compose: the built-in recipe, where no RECIPE is given" },
	{ "count", 'n', WW_OPT_INT, offsetof(struct ww_synth_values, count), "N", "100", 0, 1e7,
		"run: tasks of the split train; compose: candidates" },
	{ "validation", 0, WW_OPT_INT, offsetof(struct ww_synth_values, validation), "N", "0", 0, 1e7,
		"run: tasks of the split validation" },
	{ "held-out", 0, WW_OPT_INT, offsetof(struct ww_synth_values, held_out), "N", "0", 0, 1e7,
		"run: tasks of the split held-out; no two splits share an operator signature" },
	{ "max-tried", 0, WW_OPT_INT, offsetof(struct ww_synth_values, max_tried), "N", "0", 0, 1e9,
		"run: give up after N candidates; 0: 1,000 and 50 for each task" },
	{ "stop-after", 0, WW_OPT_NUM, offsetof(struct ww_synth_values, stop_after_s), "S", "0", 0, 1e9,
		"run: begin no candidate after S seconds and write what there is; the same command goes on; 0: no limit" },
	{ "output", 'o', WW_OPT_STR, offsetof(struct ww_synth_values, out), "DIR", "synth-run", 0, 0,
		"run: directory of the run; an unfinished run in it is resumed" },
	{ "parquet", 0, WW_OPT_FLAG, offsetof(struct ww_synth_values, parquet), NULL, NULL, 0, 0,
		"run: write tasks.parquet in place of tasks.jsonl.zst; needs pyarrow" },
	{ "timings", 0, WW_OPT_STR, offsetof(struct ww_synth_values, timings), "FILE", NULL, 0, 0,
		"run: take times from the timings.jsonl of another run, so that the same tasks come out" },
	{ "catalogue", 0, WW_OPT_STR, offsetof(struct ww_synth_values, catalogue), "FILE", NULL, 0, 0,
		"run, compose: a catalogue of synth crawl, whose operators and blocks are used too" },
	{ "policy", 0, WW_OPT_STR, offsetof(struct ww_synth_values, policy), "P", NULL, 0, 0,
		"run: model:DIR, openai:MODEL, anthropic:MODEL or replay:EPISODE writes the modules, not the grammar" },
	{ "base-url", 0, WW_OPT_STR, offsetof(struct ww_synth_values, base_url), "URL", NULL, 0, 0,
		"run: server of an openai: or anthropic: policy" },
	{ "each", 0, WW_OPT_FLAG, offsetof(struct ww_synth_values, each), NULL, NULL, 0, 0,
		"compose: every operator of the grammar alone, one module each" },
	{ "no-transformers", 0, WW_OPT_FLAG, offsetof(struct ww_synth_values, no_transformers), NULL, NULL, 0, 0,
		"crawl: PyTorch alone" },
	{ "index", 0, WW_OPT_INT, offsetof(struct ww_synth_values, index), "N", "0", 0, 1e15,
		"compose: number of the first candidate" },
	{ "facts", 0, WW_OPT_STR, offsetof(struct ww_synth_values, facts), "FILE", NULL, 0, 0,
		"teach: facts of the device that solutions are for: the output of inspect --json there" },
	{ "loop", 0, WW_OPT_CHOICE, offsetof(struct ww_synth_values, loop), "single|agent", "single", 0, 0,
		"teach: the loop whose prompt is used; agent: the answer ends with a call of submit" },
	{ "turns", 0, WW_OPT_INT, offsetof(struct ww_synth_values, turns), "N", "3", 1, 1e6,
		"teach, loop agent: turns that the prompt names" },
	{ "longest", 0, WW_OPT_INT, offsetof(struct ww_synth_values, longest), "BYTES", "0", 0, 1e9,
		"teach: leave out conversations that are longer, with several solutions twice as long; 0: no limit" },
	{ "solutions", 0, WW_OPT_INT, offsetof(struct ww_synth_values, solutions), "N", "1", 1, 32,
		"teach: maximum conversations about a task, each with another solution: the planner's "
		"first, then trials of its search, drawn by seed" },
	{ "forms", 0, WW_OPT_STR, offsetof(struct ww_synth_values, forms), "A:B:C:D", NULL, 0, 0,
		"teach, loop agent: shares of conversations of a single turn, verified, verified and made "
		"faster, verified and mended; the rest submits without verifying" },
	{ "mistakes", 0, WW_OPT_STR, offsetof(struct ww_synth_values, mistakes), "FILE", NULL, 0, 0,
		"teach, with --forms: answers of a policy, lines of task_id and text; those that do not build are the mistakes of "
		"their tasks' mended conversations" },
	{ "sample", 0, WW_OPT_INT, offsetof(struct ww_synth_values, sample), "N", "20", 0, 1e9,
		"audit: rows that are run, to find degenerate and random ones; 0: none" },
	{ "seed", 0, WW_OPT_INT, offsetof(struct ww_synth_values, seed), "N", "0", 0, 9e15,
		"seed of the candidates (run, compose), of the sample (audit), of all draws (teach)" },
	{ "rows", 0, WW_OPT_INT, offsetof(struct ww_synth_values, rows), "N", "10", 0, 1e9,
		"audit: rows of each kind that are listed; --json lists all" },
	{ "max-seconds", 0, WW_OPT_NUM, offsetof(struct ww_synth_values, max_s), "S", "60", 0.1, 3600,
		"audit, show, teach: a task's time for its graph, and for its run" },
	{ "target", 0, WW_OPT_CHOICE, offsetof(struct ww_synth_values, judging.target), "cpu|cuda", "cpu", 0, 0,
		"run, compose, teach: what the tasks are for; audit: where the sample runs" },
	{ "threads", 0, WW_OPT_INT, offsetof(struct ww_synth_values, judging.threads), "N", "0", 0, 1024,
		"run, cpu target: PyTorch's threads; 0: all cores" },
	WW_OPT_DEVICE(struct ww_synth_values, judging), WW_OPT_DEVICES(struct ww_synth_values, judging),
	WW_OPT_JSON(struct ww_synth_values, json), WW_OPT_END
};

static const struct {
	const char *name;
	ww_synth_subcommand *run;
	int min_args, max_args;
} subcommands[] = { { "run", ww_synth_cmd_run, 0, 1 }, { "compose", ww_synth_cmd_compose, 0, 1 },
	{ "crawl", ww_synth_crawl, 1, 1 }, { "audit", ww_synth_audit, 1, 1 }, { "show", ww_synth_show, 1, 1 },
	{ "stats", ww_synth_stats, 1, 1 }, { "convert", ww_synth_convert, 2, 2 }, { "teach", ww_synth_teach, 2, 2 } };

/* Which subcommands read an option; --json all of them. */
static const struct {
	const char *option, *by;
} readers[] = { { "against", "run audit teach" }, { "jobs", "run audit teach" }, { "set", "run compose" },
	{ "count", "run compose" }, { "validation", "run" }, { "held-out", "run" }, { "max-tried", "run" },
	{ "stop-after", "run" }, { "output", "run" }, { "parquet", "run" }, { "timings", "run" },
	{ "catalogue", "run compose" }, { "policy", "run" }, { "base-url", "run" }, { "each", "compose" },
	{ "no-transformers", "crawl" }, { "index", "compose" }, { "sample", "audit" },
	{ "seed", "run compose audit teach" }, { "rows", "audit" }, { "max-seconds", "audit show teach" },
	{ "target", "run compose audit teach" }, { "facts", "teach" }, { "loop", "teach" }, { "turns", "teach" },
	{ "longest", "teach" }, { "solutions", "teach" }, { "forms", "teach" }, { "mistakes", "teach" },
	{ "threads", "run" }, { "device", "run audit" }, { "devices", "run" } };

/* Every option that was given has an effect. */
static enum ww_rc check_options(const struct ww_cmd *cmd, char **given, const char *subcommand, struct ww_err *err)
{
	for (const struct ww_opt *o; (o = ww_opt_given(cmd, &given));)
		for (size_t i = 0; i < WW_ARRAY_LEN(readers); i++)
			if (!strcmp(o->name, readers[i].option) && !strstr(readers[i].by, subcommand))
				return ww_err_set(err, WW_ERR_USAGE, "synth %s does not read --%s (of synth %s); remove it", subcommand,
					o->name, readers[i].by);
	return WW_OK;
}

int ww_synth_cut_list(char *list, const char **out, int max)
{
	int n = 0;
	for (char *p = list, *end; p && *p && n < max; p = end) {
		end = strchr(p, ':');
		if (end)
			*end++ = 0;
		if (*p)
			out[n++] = p;
	}
	return n;
}

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	for (size_t i = 0; i < WW_ARRAY_LEN(subcommands); i++) {
		if (strcmp(argv[0], subcommands[i].name))
			continue;
		if (check_options(cmd, argv + argc, argv[0], &err) != WW_OK)
			return ww_cmd_fail(&err);
		if (argc - 1 >= subcommands[i].min_args && argc - 1 <= subcommands[i].max_args)
			return subcommands[i].run(values, argc - 1, argv + 1);
		int min = subcommands[i].min_args, max = subcommands[i].max_args;
		(void)!ww_err_set(&err, WW_ERR_USAGE, "synth %s takes %s%d argument%s; warpwright synth -h explains it",
			argv[0], min < max ? "at most " : "", max, max > 1 ? "s" : "");
		return ww_cmd_fail(&err);
	}
	return ww_cmd_no_subcommand(cmd, argv[0]);
}

const struct ww_cmd ww_cmd_synth = { .name = "synth",
	.args = "run|compose [RECIPE] | crawl FILE | audit|show|stats SET | convert|teach SET FILE",
	.summary = "make, audit and inspect task sets",
	.details =
		"  synth run [RECIPE]        compose modules, keep those that pass all filters\n"
		"  synth compose [RECIPE]    print modules as they are composed, unfiltered\n"
		"  synth crawl FILE          a catalogue of what is installed: PyTorch's\n"
		"                            operators, transformers' blocks, each run once\n"
		"  synth audit SET           duplicates, near-duplicates, wrong labels,\n"
		"                            contamination, random and degenerate tasks;\n"
		"                            exit code 1: some\n"
		"  synth show SET#ID         one task: its columns, signature, operators, code\n"
		"  synth stats SET           rows by split, source and operator\n"
		"  synth convert SET FILE    the set as FILE.jsonl, FILE.jsonl.zst or FILE.parquet\n"
		"  synth teach SET FILE      the planner's solutions as conversations to train on\n\n"
		"RECIPE is YAML (docs/synth.md).  SET is JSON lines (also compressed with zstd), Parquet, or a directory; "
		"docs/formats/tasks.md has the columns, docs/synth.md the measures.",
	.opts = opts,
	.values_size = sizeof(struct ww_synth_values),
	.min_args = 1,
	.max_args = -1,
	.run = run };
