/* synth_teach.c - `warpwright synth teach SET FILE`: a corpus of conversations from a set (teach/corpus.h). */
#include "base/json.h"
#include "base/target.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "cmd/synth.h"
#include "teach/corpus.h"

#include <stdio.h>
#include <string.h>

enum { FACTS_MAX = 16 << 20 };

static const struct {
	const char *name, *text;
} rows[WW_CORPUS_ROWS] = { [WW_CORPUS_WRITTEN] = { "written", "tasks" },
	[WW_CORPUS_BROKEN] = { "broken", "rows that are no task" },
	[WW_CORPUS_NO_GRAPH] = { "no_graph", "without a graph" },
	[WW_CORPUS_HELD_OUT] = { "held_out", "held out" },
	[WW_CORPUS_NO_SOLUTION] = { "no_solution", "without a solution" },
	[WW_CORPUS_TOO_LONG] = { "too_long", "too long" } };

/* The output of `inspect --json`, or its member device; *device is a new reference. */
static enum ww_rc read_facts(const char *path, const char *target, json_t **device, struct ww_err *err)
{
	json_auto_t *all = NULL;
	if (!path)
		return ww_err_set(err, WW_ERR_USAGE,
			"synth teach needs --facts FILE, the output of `warpwright inspect --json TASK.py` on the device that the "
			"solutions are for");
	WW_CHECK(ww_json_read_file(path, FACTS_MAX, &all, err));
	json_t *member = json_object_get(all, "device");
	*device = json_incref(json_is_object(member) ? member : all);
	if (!json_is_object(*device))
		return ww_err_set(err, WW_ERR_USAGE, "%s holds no facts of a device", path);
	if ((ww_json_int(*device, "sm_count", 0) > 0) != (ww_target_of(target) == WW_TARGET_CUDA))
		return ww_err_set(err, WW_ERR_USAGE, "--target %s: %s does not hold the facts of such a device", target, path);
	return WW_OK;
}

static enum ww_rc corpus_opts(
	const struct ww_synth_values *v, const char *set, json_t **device, struct ww_corpus_opts *o, struct ww_err *err)
{
	*o = (struct ww_corpus_opts){ .set = set,
		.against = v->against,
		.prompt = { ww_target_of(v->judging.target), !strcmp(v->loop, "agent") ? WW_LOOP_AGENT : WW_LOOP_SINGLE,
			WW_RULE_STRICT, 1u << WW_BASE_EAGER | 1u << WW_BASE_COMPILE, (int)v->turns },
		.mistakes = v->mistakes,
		.longest = v->longest,
		.solutions = (int)v->solutions,
		.seed = (uint64_t)v->seed,
		.jobs = (int)v->jobs,
		.max_s = v->max_s,
		.progress = ww_progress_stage,
		.interrupted = &ww_cmd_interrupted };
	WW_CHECK(ww_teach_forms_read(v->forms, v->turns, &o->forms, err));
	if (v->forms && o->prompt.loop != WW_LOOP_AGENT)
		return ww_err_set(err, WW_ERR_USAGE, "--forms are of the loop with tools; add --loop agent");
	if (v->mistakes && o->forms.mended <= 0)
		return ww_err_set(err, WW_ERR_USAGE, "--mistakes are of mended conversations; give them a share by --forms");
	WW_CHECK(read_facts(v->facts, v->judging.target, device, err));
	o->device = *device;
	return WW_OK;
}

static void print_counts(const struct ww_corpus_counts *n, const char *path, int json)
{
	json_auto_t *o = json_pack("{s:s}", "file", path);
	for (int i = 0; i < WW_CORPUS_ROWS; i++)
		json_object_set_new(o, rows[i].name, json_integer((json_int_t)n->rows[i]));
	json_object_set_new(o, "conversations", json_integer((json_int_t)n->conversations));
	if (json) {
		ww_cmd_print_json(json_incref(o));
		return;
	}
	printf("%s: ", path);
	for (int i = 0; i < WW_CORPUS_ROWS; i++)
		printf("%s%lld %s", i ? ", " : "", (long long)n->rows[i], rows[i].text);
	printf("; %lld conversations\n", (long long)n->conversations);
}

int ww_synth_teach(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_corpus_counts counts;
	struct ww_corpus_opts o;
	json_auto_t *device = NULL;
	enum ww_rc rc = corpus_opts(v, argv[0], &device, &o, &err);
	struct ww_progress *progress = ww_progress_new(stderr);
	o.context = progress;
	if (rc == WW_OK)
		rc = ww_corpus_write(argv[1], &o, &counts, &err);
	ww_progress_free(progress);
	if (rc != WW_OK)
		return ww_cmd_fail(&err);
	print_counts(&counts, argv[1], v->json);
	return 0;
}
