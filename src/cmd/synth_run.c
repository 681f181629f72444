/* synth_run.c - `warpwright synth run` and `synth compose`. */
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/target.h"
#include "base/time.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "cmd/synth.h"
#include "synth/crawled.h"
#include "synth/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_AGAINST = 32, PLAIN_S = 30 };

static void close_crawled(struct ww_synth_crawled **k) { ww_synth_crawled_close(*k); }

/* *crawled: the caller's, while it uses the recipe. */
static enum ww_rc recipe_of(const struct ww_synth_values *v, int argc, char **argv, struct ww_synth_recipe *r,
	struct ww_synth_crawled **crawled, struct ww_err *err)
{
	enum ww_target target = ww_target_of(v->judging.target);
	*r = (struct ww_synth_recipe){ .target = target };
	WW_CHECK(argc ? ww_synth_recipe_read(r, argv[0], err) : ww_synth_recipe_set(r, v->set, target, err));
	*crawled = NULL;
	if (v->catalogue)
		WW_CHECK(ww_synth_crawled_open(crawled, v->catalogue, err));
	ww_synth_recipe_add(r, *crawled);
	return WW_OK;
}

/* ---- compose */

static json_t *candidate_json(const struct ww_synth_candidate *k, uint64_t index)
{
	json_t *sizes = json_array();
	for (int i = 0; i < k->out.rank; i++)
		json_array_append_new(sizes, json_integer(k->out.d[i]));
	return json_pack("{s:I, s:s, s:s#, s:s, s:o, s:f, s:f, s:f}", "index", (json_int_t)index, "ops", k->ops.p, "code",
		k->source.p, k->source.len, "dtype", ww_synth_dtype_name(k->out.dtype), "sizes", sizes, "expected_us", k->us,
		"input_bytes", k->input_bytes, "value_bytes", k->memory_bytes);
}

static void print_candidate(const struct ww_synth_values *v, const struct ww_synth_candidate *k, int64_t i, int last)
{
	if (v->json)
		ww_cmd_print_json(candidate_json(k, (uint64_t)i));
	else
		printf("# candidate %lld: %s; about %.0f us\n%s%s", (long long)i, k->ops.p, k->us, k->source.p,
			last ? "" : "\n\n");
}

int ww_synth_cmd_compose(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_synth_recipe r;
	WW_AUTO(close_crawled) struct ww_synth_crawled *crawled = NULL;
	WW_AUTO(ww_synth_candidate_release) struct ww_synth_candidate k = WW_SYNTH_CANDIDATE_INIT;
	int64_t from = v->each ? 0 : v->index, to = v->each ? ww_synth_ops() : v->index + v->count;
	if (recipe_of(v, argc, argv, &r, &crawled, &err) != WW_OK)
		return ww_cmd_fail(&err);
	for (int64_t i = from; i < to && !ww_cmd_interrupted; i++) {
		enum ww_rc rc = v->each ? ww_synth_compose_op(&r, ww_synth_op((int)i), (uint64_t)v->seed, (uint64_t)i, &k, &err)
								: ww_synth_compose(&r, (uint64_t)v->seed, (uint64_t)i, &k, &err);
		if (rc != WW_OK)
			return ww_cmd_fail(&err);
		print_candidate(v, &k, i, i + 1 == to);
	}
	return 0;
}

/* ---- run */

struct shown {
	uint64_t at_ns;
	struct ww_progress *progress;
};

static void show(void *ctx, const struct ww_synth_progress *p)
{
	struct shown *s = ctx;
	int live = ww_progress_is_live(s->progress);
	if (!p->seen || (s->at_ns && ww_seconds_since(s->at_ns) < (live ? 0.2 : PLAIN_S)))
		return;
	s->at_ns = ww_now_ns();
	int64_t now = p->seen - p->seen_before;
	double rate = p->seconds > 0 && now > 0 ? (double)now / p->seconds : 0,
		   share = p->tried ? (double)p->accepted / (double)p->tried : 0;
	char left[32] = ""; /* unknown until one was accepted */
	ww_auto_str line = WW_STR_INIT(512);
	if (rate * share > 0)
		snprintf(left, sizeof(left), ", %.0f min left", (double)(p->wanted - p->accepted) / (rate * share) / 60);
	ww_str_addf(&line, "%lld of %lld tasks%s, %.0f%% of %lld candidates accepted", (long long)p->accepted,
		(long long)p->wanted, left, 100 * share, (long long)p->tried);
	if (p->seen > p->tried)
		ww_str_addf(&line, ", %lld more looked at", (long long)(p->seen - p->tried));
	ww_str_addf(&line, ", %.1f a second", rate);
	if (p->last_reason && *p->last_reason)
		ww_str_addf(&line, "; last: %s", p->last_reason);
	if (live)
		ww_progress_stage(s->progress, line.p);
	else
		ww_progress_say(s->progress, "%s", line.p);
}

static void print_summary(const json_t *s, const char *dir)
{
	const char *reason;
	json_t *n;
	printf("%lld tasks of %lld candidates in %s; %.1f%% passed all filters but similarity\n",
		(long long)ww_json_int(s, "accepted", 0), (long long)ww_json_int(s, "tried", 0), dir,
		100 * ww_json_num(s, "passed_all_but_similarity", 0));
	json_object_foreach(json_object_get(s, "rejected"), reason, n)
		printf("  %6lld  %s\n", (long long)json_integer_value(n), reason);
}

static enum ww_rc run_opts(const struct ww_synth_values *v, int argc, char **argv, struct ww_synth_run_opts *o,
	struct ww_synth_crawled **crawled, struct ww_err *err)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	WW_CHECK(recipe_of(v, argc, argv, &o->recipe, crawled, err));
	WW_CHECK(ww_judging_devices(
		v->judging.devices, v->judging.target, o->devices, WW_SYNTH_MAX_DEVICES, &o->n_devices, err));
	if (!o->n_devices) {
		o->devices[0] = (int)v->judging.device;
		o->n_devices = 1;
	}
	o->seed = (uint64_t)v->seed;
	o->count[0] = v->count;
	o->count[1] = v->validation;
	o->count[2] = v->held_out;
	o->max_tried = v->max_tried;
	o->stop_after_s = v->stop_after_s;
	o->jobs = v->jobs ? (int)v->jobs : cores > 0 ? (int)cores : 1;
	o->threads = (int)v->judging.threads;
	o->dir = v->out;
	o->timings = v->timings;
	o->parquet = v->parquet;
	o->interrupted = &ww_cmd_interrupted;
	o->progress = show;
	return WW_OK;
}

int ww_synth_cmd_run(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct shown shown = { .progress = ww_progress_new(stderr) };
	const char *against[MAX_AGAINST];
	ww_auto_free char *list = strdup(v->against ? v->against : "");
	struct ww_policy_opts policy = { .spec = v->policy, .seed = (uint64_t)v->seed, .base_url = v->base_url };
	struct ww_synth_run_opts o = { .policy = v->policy ? &policy : NULL, .against = against, .ctx = &shown };
	json_auto_t *summary = NULL;
	WW_AUTO(close_crawled) struct ww_synth_crawled *crawled = NULL;
	o.n_against = list ? ww_synth_cut_list(list, against, MAX_AGAINST) : 0;
	enum ww_rc rc = run_opts(v, argc, argv, &o, &crawled, &err);
	ww_progress_stage(shown.progress, "looking at the first candidates");
	if (rc == WW_OK)
		rc = ww_synth_run(&o, &summary, &err);
	ww_progress_free(shown.progress);
	if (summary && v->json && rc == WW_OK)
		ww_cmd_print_json(json_incref(summary));
	else if (summary && !v->json)
		print_summary(summary, o.dir);
	return rc == WW_OK ? 0 : rc == WW_ERR_LIMIT && summary ? (ww_cmd_say(&err), 1) : ww_cmd_fail(&err);
}
