/* eval.c - evaluates a policy, or given solutions, over a whole suite: verdicts, a summary, a run that can be resumed.
 *
 * One process evaluates all problems: a job of the batch (judge/batch.h) opens a task and runs its whole episode, so
 * the problems overlap: while one is timed, others import PyTorch, are compiled, or wait for a model.  A problem's line
 * is written when it has ended (eval/run.h); the same command goes on from there. */
#include "agent/rundir.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/target.h"
#include "base/time.h"
#include "cmd/cmd.h"
#include "cmd/eval_problem.h"
#include "cmd/progress.h"
#include "eval/summary.h"
#include "host/machine.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARENAS = 2, OPEN_TASKS = 8 };

struct options {
	struct ww_judging judging;
	struct ww_agent_values agent;
	const char *suite, *dir, *solutions, *slice, *split;
	int64_t level, sample, samples, parallel;
	int json, merge;
};

static const struct ww_opt option_table[] = {
	{ "suite", 0, WW_OPT_STR, offsetof(struct options, suite), "SUITE", NULL, 0, 0,
		"problems: a directory of tasks (KernelBench's levels are recognised), a file of tasks, "
		"or the name of a set that "
		"comes with the program" },
	{ "level", 0, WW_OPT_INT, offsetof(struct options, level), "N", "0", 0, 99,
		"only this level of KernelBench's layout; 0: all" },
	{ "split", 0, WW_OPT_STR, offsetof(struct options, split), "NAME", NULL, 0, 0,
		"only tasks of this split of a set: train, validation, held-out" },
	{ "slice", 0, WW_OPT_STR, offsetof(struct options, slice), "I/N", NULL, 0, 0,
		"only each N-th problem, from the I-th on; --merge puts slices together" },
	{ "sample", 0, WW_OPT_INT, offsetof(struct options, sample), "N", "0", 0, 1e9,
		"only N problems, in an order that --seed draws; 0: all" },
	{ "solutions", 0, WW_OPT_STR, offsetof(struct options, solutions), "DIR", NULL, 0, 0,
		"evaluate the solutions in DIR (a run of eval, KernelBench's or CUDA Agent's layout) instead of a policy" },
	{ "merge", 0, WW_OPT_FLAG, offsetof(struct options, merge), NULL, NULL, 0, 0,
		"merge the named runs, slices or samples of one evaluation, into -o" },
	{ "output", 'o', WW_OPT_STR, offsetof(struct options, dir), "RUN", NULL, 0, 0,
		"directory of the run; an unfinished one is resumed (default runs/eval-SUITE-TIME)" },
	WW_OPTS_WHERE(struct options, judging), WW_OPT_DEVICES(struct options, judging),
	WW_OPTS_HOW(struct options, judging), WW_OPTS_AGENT(struct options, agent, "200", "1800"),
	{ "samples", 0, WW_OPT_INT, offsetof(struct options, samples), "N", "1", 1, 256,
		"run N episodes for each problem under one budget and keep the best" },
	{ "parallel", 0, WW_OPT_INT, offsetof(struct options, parallel), "N", "0", 0, 64,
		"problems in work at a time; 0: by cores, at most eight a device" },
	WW_OPT_JSON(struct options, json), WW_OPT_END
};

struct run {
	const struct options *o;
	struct ww_suite suite;
	struct ww_eval_run dir;
	struct ww_eval_common common;
	struct ww_policy *policy; /* opened first, to report its errors at once; keeps a model open that all share */
	struct ww_skill skill;
	int has_skill;
	char device_name[96];
	int devices[WW_BATCH_MAX_DEVICES], n_devices;
	pthread_mutex_t lock; /* what follows, and dir's lines */
	struct ww_batch *batch;
	struct ww_progress *progress;
	uint64_t start_ns;
	size_t done, ended, skipped, errors; /* ended in this process; in all; before it; errors of the program */
	struct ww_err broken;                /* a line could not be written: the evaluation ends */
};

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static enum ww_rc take_part(struct run *r, struct ww_err *err)
{
	const struct options *o = r->o;
	int i, n, end = 0;
	if (o->slice && o->sample)
		return ww_err_set(err, WW_ERR_USAGE, "--slice and --sample exclude each other");
	if (o->sample)
		ww_suite_sample(&r->suite, (size_t)o->sample, (uint64_t)o->agent.seed);
	if (!o->slice)
		return WW_OK;
	if (sscanf(o->slice, "%d/%d%n", &i, &n, &end) != 2 || o->slice[end] || i < 1 || n < i)
		return ww_err_set(err, WW_ERR_USAGE, "--slice takes I/N with 1 <= I <= N, not \"%.40s\"", o->slice);
	return ww_suite_slice(&r->suite, i, n, err);
}

static json_t *part_json(const struct options *o)
{
	if (o->slice)
		return json_pack("{s:s}", "slice", o->slice);
	if (o->sample)
		return json_pack("{s:I, s:I}", "sample", (json_int_t)o->sample, "seed", (json_int_t)o->agent.seed);
	return json_object();
}

static json_t *problems_json(const struct ww_suite *s)
{
	json_t *list = json_array();
	for (size_t i = 0; i < s->n; i++)
		json_array_append_new(list,
			json_pack("{s:s, s:i, s:s}", "id", s->problems[i].id, "level", s->problems[i].level, "task",
				s->problems[i].task.id));
	return list;
}

/* What must agree where a run is resumed or merged. */
static json_t *config_json(const struct run *r)
{
	const struct options *o = r->o;
	const struct ww_agent_values *a = &o->agent;
	json_t *c = json_pack("{s:s, s:s, s:I, s:o, s:s, s:s, s:s, s:f}", "suite", r->suite.name, "suite_id", r->suite.hash,
		"level", (json_int_t)o->level, "part", part_json(o), "target", ww_target_name(r->common.judge.target), "rule",
		ww_rule_name(r->common.judge.rule), "baselines", o->judging.baselines, "max_time_seconds",
		o->judging.max_time_s);
	if (o->split)
		json_object_set_new(c, "split", json_string(o->split));
	if (o->solutions)
		json_object_set_new(c, "solutions", json_string(o->solutions));
	else
		json_object_update_new(c,
			json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:I, s:b}", "policy", a->policy,
				"form", a->form, "loop", a->loop, "prompt", ww_prompt_name(ww_agent_values_prompt(a, r->policy)),
				"skill", r->has_skill ? r->skill.id : "none", "seed", (json_int_t)a->seed, "samples",
				(json_int_t)o->samples, "max_turns", (json_int_t)a->max_turns, "max_seconds", a->max_seconds, "max_usd",
				a->max_usd, "max_tokens", (json_int_t)a->max_tokens, "max_gpu_seconds", a->max_gpu_s, "context_tokens",
				(json_int_t)a->context_tokens, "compaction", !a->no_compaction));
	return c;
}

static json_t *about_json(const struct run *r)
{
	char began[32];
	json_auto_t *versions = ww_agent_versions(r->has_skill ? &r->skill : NULL);
	ww_utc_text(began);
	return json_pack("{s:s, s:i, s:o, s:{s:s, s:s, s:s}, s:O, s:o, s:s, s:o}", "kind", "eval", "version", 1, "config",
		config_json(r), "machine", "device", r->device_name, "torch", ww_json_str(versions, "torch", "?"), "warpwright",
		WW_VERSION, "versions", versions, "command", ww_rundir_command(), "began", began, "problems",
		problems_json(&r->suite));
}

static void default_dir(const struct ww_suite *s, char *out)
{
	const char *name = strrchr(s->name, '/') ? strrchr(s->name, '/') + 1 : s->name;
	char stamp[32];
	ww_utc_text(stamp);
	for (char *p = stamp; *p; p++)
		if (*p == ':')
			*p = '-';
	snprintf(out, PATH_MAX, "runs/eval-%.100s-%s", name, stamp);
}

/* A problem without a solution is not correct; a folder without any for this suite is a mistake. */
static enum ww_rc check_solutions(const struct ww_suite *s, const char *dir, struct ww_err *err)
{
	char path[PATH_MAX];
	if (!ww_fs_is_dir(dir))
		return ww_err_set(err, WW_ERR_USAGE, "--solutions: there is no directory %s", dir);
	for (size_t i = 0; i < s->n; i++)
		if (ww_suite_solution(dir, &s->problems[i], path))
			return WW_OK;
	return ww_err_set(err, WW_ERR_USAGE,
		"--solutions: %.300s holds no solution of the %zu problems of %.300s; the first one's would be %.300s/%.200s "
		"or %.300s/%.200s.py (docs/eval.md has the other places)",
		dir, s->n, s->name, dir, s->problems[0].id, dir, s->problems[0].id);
}

static enum ww_rc prepare(struct run *r, struct ww_err *err)
{
	const struct options *o = r->o;
	struct ww_host_gpus gpus;
	char dir[PATH_MAX];
	json_auto_t *about = NULL;
	WW_CHECK(ww_judging_opts(&o->judging, &r->common.judge, err));
	WW_CHECK(ww_judging_devices(
		o->judging.devices, o->judging.target, r->devices, WW_BATCH_MAX_DEVICES, &r->n_devices, err));
	WW_CHECK(ww_agent_values_skill(&o->agent, &r->skill, &r->has_skill, err));
	WW_CHECK(ww_suite_open(&r->suite, o->suite, (int)o->level, o->split, err));
	if (o->solutions)
		WW_CHECK(check_solutions(&r->suite, o->solutions, err));
	WW_CHECK(take_part(r, err));
	WW_CHECK(ww_host_choose_target(o->judging.target, r->n_devices ? r->devices[0] : r->common.judge.device,
		&r->common.judge.target, r->device_name, sizeof(r->device_name), &gpus, err));
	if (!o->solutions) /* behind the choice, which asks the driver in a child: a model starts CUDA in this process */
		WW_CHECK(ww_agent_values_policy(&o->agent, (uint64_t)o->agent.seed, &r->policy, err));
	default_dir(&r->suite, dir);
	about = about_json(r);
	if (!about)
		return ww_err_set(err, WW_ERR_USAGE, "a name of the suite or of an option is not UTF-8");
	r->common.agent = &o->agent;
	r->common.skill = r->has_skill ? &r->skill : NULL;
	r->common.device_name = r->device_name;
	r->common.samples = (int)o->samples;
	r->common.run = &r->dir;
	r->common.lock = &r->lock;
	return ww_eval_run_open(&r->dir, o->dir ? o->dir : dir, about, err);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static void add_time_left(const struct run *r, struct ww_str *out)
{
	size_t left = r->suite.n - r->ended;
	double s = r->done ? ww_seconds_since(r->start_ns) / (double)r->done * (double)left : 0;
	if (!left || !r->done)
		return;
	if (s < 90)
		ww_str_addf(out, ", about %.0f s left", s);
	else
		ww_str_addf(out, ", about %.0f min left", s / 60);
}

static void add_result(const json_t *line, const char *rule, struct ww_str *out)
{
	WW_AUTO(ww_verdict_release) struct ww_verdict v;
	const json_t *verdict = ww_eval_verdict(line, rule);
	struct ww_err ignored;
	ww_verdict_init(&v);
	if (!verdict || ww_verdict_from_json(verdict, &v, &ignored) != WW_OK || !v.correct) {
		ww_auto_str why = WW_STR_INIT(1024);
		ww_eval_why(line, rule, &why);
		ww_str_add_line(out, why.p, 160);
		return;
	}
	ww_str_addf(out, "correct, %.1f us", v.time.device_us);
	ww_verdict_add_speedups(&v, out);
}

/* The lock is held. */
static void show(struct run *r, const json_t *line)
{
	ww_auto_str text = WW_STR_INIT(4096), left = WW_STR_INIT(64);
	add_time_left(r, &left);
	ww_str_addf(&text, "%4zu/%zu  %s: ", r->ended, r->suite.n, ww_json_str(line, "id", "?"));
	add_result(line, ww_rule_name(r->common.judge.rule), &text);
	ww_progress_say(r->progress, "%s%s", text.p, left.p);
}

static void note_failure(struct ww_eval_one *o)
{
	const struct ww_batch_job *j = &o->job;
	const char *outcome = j->rc == WW_ERR_ROOM ? "no_room" : ww_rc_exit(j->rc) == 2 ? "unusable" : "error";
	json_object_set_new(o->line, "outcome", json_string(outcome));
	json_object_set_new(o->line, "why", json_string(j->err.msg));
}

static void free_one(struct ww_eval_one *o)
{
	ww_batch_job_release(&o->job);
	json_decref(o->line);
	free(o);
}

/* The lock is held.  Takes the line; 1: it is on the disk. */
static int write_line(struct run *r, json_t *line)
{
	struct ww_err err = WW_ERR_INIT;
	int written = ww_eval_run_add(&r->dir, line, &err) == WW_OK;
	if (!written && r->broken.rc == WW_OK) {
		r->broken = err;
		ww_cmd_interrupted = 1; /* further results could not be written */
	}
	return written;
}

/* The lock is held.  Takes the line. */
static void take_line(struct run *r, json_t *line)
{
	if (write_line(r, json_incref(line))) {
		r->done++;
		r->ended++;
		r->errors += !strcmp(ww_json_str(line, "outcome", ""), "error");
		show(r, line);
	}
	json_decref(line);
}

static void problem_done(struct run *r, struct ww_eval_one *o)
{
	if (o->job.rc != WW_OK)
		note_failure(o);
	if (o->job.rc != WW_ERR_INTERRUPTED) {
		WW_LOCKED(&r->lock);
		take_line(r, json_incref(o->line));
	}
	free_one(o);
}

/* Where no profile can be made of the solution, its line says null; after other errors the same command tries again. */
static void profile_done(struct run *r, struct ww_eval_one *o)
{
	if (o->job.rc == WW_OK || ww_rc_exit(o->job.rc) == 2) {
		WW_LOCKED(&r->lock);
		write_line(r, json_incref(o->line));
	}
	free_one(o);
}

static void job_done(void *ctx, struct ww_batch_job *job)
{
	struct ww_eval_one *o = job->ctx;
	(o->adds ? profile_done : problem_done)(ctx, o);
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static void job_stage(struct ww_batch_job *job, const char *stage)
{
	const struct ww_eval_one *o = job->ctx;
	struct run *r = (struct run *)((char *)(uintptr_t)o->common - offsetof(struct run, common));
	char text[160];
	snprintf(text, sizeof(text), "%.80s: %s", o->problem->id, stage);
	ww_progress_stage(r->progress, text);
}

/* Find the given solution of a problem; where there is none, or it cannot be read, write the line at once. */
static enum ww_rc find_files(struct run *r, struct ww_eval_one *o, int *is_there, struct ww_err *err)
{
	char path[PATH_MAX];
	struct ww_err why = WW_ERR_INIT;
	o->has_files = 1;
	*is_there = ww_suite_solution(r->o->solutions, o->problem, path) &&
		ww_solution_load(&o->job.files, path, r->common.judge.target, &why) == WW_OK;
	if (*is_there)
		return WW_OK;
	json_object_set_new(o->line, "outcome", json_string("none"));
	json_object_set_new(o->line, "why", json_string(why.rc == WW_OK ? "no solution was given" : why.msg));
	WW_LOCKED(&r->lock);
	take_line(r, json_incref(o->line));
	return WW_OK;
}

static enum ww_rc new_one(struct run *r, const struct ww_problem *p,
	enum ww_rc (*work)(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err), struct ww_eval_one **out,
	struct ww_err *err)
{
	struct ww_eval_one *o;
	WW_CHECK(WW_NEW(o, 1, err));
	*out = o;
	o->common = &r->common;
	o->problem = p;
	o->job.ctx = o;
	o->job.opts = r->common.judge;
	o->job.work = work;
	o->job.progress = job_stage;
	enum ww_rc rc = ww_task_copy(&o->job.task, &p->task, err);
	if (rc != WW_OK)
		free_one(o);
	return rc;
}

static enum ww_rc add_problem(struct run *r, const struct ww_problem *p, struct ww_err *err)
{
	struct ww_eval_one *o;
	char name[WW_PROBLEM_DIR + 16] = "problems/";
	int is_there = 1;
	WW_CHECK(new_one(r, p, ww_eval_solve, &o, err));
	enum ww_rc rc = ww_eval_line_begin(o, err);
	ww_problem_dir(p, name + strlen(name));
	if (rc == WW_OK)
		rc = ww_fs_join(o->dir, r->dir.path, name, err);
	if (rc == WW_OK && r->o->solutions)
		rc = find_files(r, o, &is_there, err);
	if (rc == WW_OK && is_there)
		rc = ww_batch_add(r->batch, &o->job, err);
	if (rc != WW_OK || !is_there)
		free_one(o);
	return rc;
}

/* One of the slowest, unless it has been profiled; its task is opened again. */
static enum ww_rc add_profile(struct run *r, const struct ww_eval_speed *s, struct ww_err *err)
{
	struct ww_eval_one *o;
	struct ww_err none = WW_ERR_INIT;
	const struct ww_problem *p = r->suite.problems, *end = p + r->suite.n;
	while (p < end && strcmp(p->id, s->id))
		p++;
	if (p == end || json_object_get(s->line, "profile"))
		return WW_OK;
	WW_CHECK(new_one(r, p, ww_eval_profile, &o, err));
	if (ww_eval_profile_begin(o, s->line, &none) != WW_OK) {
		free_one(o);
		return WW_OK;
	}
	enum ww_rc rc = ww_batch_add(r->batch, &o->job, err);
	if (rc != WW_OK)
		free_one(o);
	return rc;
}

/* A profile holds the device for a second, and which problems are the slowest changes until all have ended: so profiles
 * are made then. */
static enum ww_rc profile_slowest(struct run *r, struct ww_err *err)
{
	ww_auto_free struct ww_eval_speed *all = NULL;
	size_t n = ww_eval_by_speed(&r->dir, &all);
	enum ww_rc rc = WW_OK;
	for (size_t i = 0; rc == WW_OK && i < n && i < WW_EVAL_SLOWEST; i++)
		rc = add_profile(r, &all[i], err);
	ww_batch_drain(r->batch);
	return rc;
}

static enum ww_rc run_all(struct run *r, struct ww_err *err)
{
	int devices = r->n_devices ? r->n_devices : 1;
	struct ww_batch_opts bo = { .threads = (int)r->o->parallel,
		.open_tasks = r->o->parallel ? (int)r->o->parallel : OPEN_TASKS * devices,
		.n_devices = r->n_devices,
		.interrupted = &ww_cmd_interrupted,
		.done = job_done,
		.ctx = r };
	enum ww_rc rc = WW_OK;
	memcpy(bo.devices, r->devices, sizeof(bo.devices));
	mallopt(M_ARENA_MAX, MAX_ARENAS);
	WW_CHECK(ww_batch_open(&r->batch, &bo, err));
	r->start_ns = ww_now_ns();
	for (size_t i = 0; i < r->suite.n; i++) {
		WW_LOCKED(&r->lock);
		r->ended += ww_eval_run_has(&r->dir, r->suite.problems[i].id, r->suite.problems[i].task.id);
	}
	r->skipped = r->ended;
	if (r->skipped)
		ww_progress_say(r->progress, "%s: %zu of %zu problems have ended already", r->dir.path, r->skipped, r->suite.n);
	for (size_t i = 0; rc == WW_OK && i < r->suite.n && !ww_cmd_interrupted; i++) {
		const struct ww_problem *p = &r->suite.problems[i];
		pthread_mutex_lock(&r->lock);
		int has = ww_eval_run_has(&r->dir, p->id, p->task.id);
		pthread_mutex_unlock(&r->lock);
		if (!has)
			rc = add_problem(r, p, err);
	}
	if (rc != WW_OK)
		ww_cmd_interrupted = 1;
	ww_batch_drain(r->batch);
	if (rc == WW_OK && !ww_cmd_interrupted)
		rc = profile_slowest(r, err);
	if (rc == WW_OK && r->broken.rc != WW_OK) {
		*err = r->broken;
		rc = err->rc;
	}
	if (rc == WW_OK && ww_cmd_interrupted)
		rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted; the same command with -o %s goes on", r->dir.path);
	return rc;
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static void print_summary(const struct ww_eval_run *run, int json)
{
	ww_auto_str text = WW_STR_INIT(16 << 20);
	json_auto_t *s = ww_eval_summary(run);
	if (json)
		ww_json_add_pretty(&text, s);
	else
		ww_eval_summary_text(s, &text);
	printf("%s%s", text.p, json ? "\n" : "");
	if (!json)
		printf("\n%s  the run; warpwright report %s makes a page of it\n", run->path, run->path);
}

static int merge(const struct options *o, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_eval_run run = { .path = "" };
	enum ww_rc rc = WW_OK;
	if (!argc || !o->dir)
		rc = ww_err_set(&err, WW_ERR_USAGE, "--merge needs the runs to merge and -o RUN");
	if (rc == WW_OK)
		rc = ww_eval_merge((const char *const *)argv, argc, o->dir, &err);
	if (rc == WW_OK)
		rc = ww_eval_run_read(&run, o->dir, &err);
	if (rc == WW_OK)
		print_summary(&run, o->json);
	ww_eval_run_release(&run);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

static int eval(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	static struct run r; /* too large for a stack */
	struct options *o = values;
	struct ww_err err = WW_ERR_INIT;
	if (o->merge)
		return merge(o, argc, argv);
	r = (struct run){ .o = o, .lock = PTHREAD_MUTEX_INITIALIZER, .broken = WW_ERR_INIT };
	enum ww_rc rc = WW_OK;
	if (argc || !o->suite)
		rc = ww_err_set(&err, WW_ERR_USAGE, "eval takes --suite SUITE, or --merge with the runs to merge");
	if (rc == WW_OK)
		rc = ww_agent_values_settle(&o->agent, &err);
	if (rc == WW_OK)
		rc = prepare(&r, &err);
	int begun = rc == WW_OK;
	if (begun) {
		r.progress = ww_progress_new(o->json ? stderr : stdout);
		rc = r.progress ? run_all(&r, &err) : ww_nomem(&err);
		ww_progress_free(r.progress);
		print_summary(&r.dir, o->json);
	}
	ww_batch_close(r.batch);
	ww_eval_run_release(&r.dir);
	ww_suite_release(&r.suite);
	if (r.policy)
		r.policy->ops->free(r.policy);
	if (r.has_skill)
		ww_skill_close(&r.skill);
	if (rc != WW_OK)
		return begun ? ww_cmd_say(&err) : ww_cmd_fail(&err);
	return r.errors ? 3 : 0;
}

const struct ww_cmd ww_cmd_eval = { .name = "eval",
	.args = "--suite SUITE | --merge RUN...",
	.summary = "evaluate a policy, or solutions, over a suite of problems",
	.details =
		"Each problem is judged as `optimize` and `judge` do it; problems overlap, "
		"on all GPUs of --devices. RUN gets a\n"
		"line for each problem that has ended; the same command goes on where it was stopped. docs/eval.md says what\n"
		"the summary counts. --max-turns, --max-seconds, --max-usd and the other limits are those of a problem.\n"
		"Exit code: 0 all problems were evaluated, whatever came out; 2 usage; 3 infrastructure, or stopped.",
	.opts = option_table,
	.values_size = sizeof(struct options),
	.min_args = 0,
	.max_args = -1,
	.run = eval };
