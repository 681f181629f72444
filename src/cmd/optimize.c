/* optimize.c - the main command: a task in, a proven faster kernel out.
 *
 * Cheap checks come first (the file, the policy's name, the target, the output directory), then the judge starts, then
 * the loop runs.  A run that could not begin leaves no directory behind; one that began leaves everything that it
 * found, and the same command with the same -o goes on from there.
 */
#include "agent/parallel.h"
#include "agent/rundir.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/target.h"
#include "base/time.h"
#include "cmd/agent_opts.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "cmd/summary.h"
#include "host/machine.h"
#include "judge/batch.h"
#include "judge/profile/explain.h"
#include "judge/solution.h"
#include "policy/policy.h"
#include "task/ref.h"

#include <stdlib.h>
#include <string.h>

struct options {
	struct ww_judging judging;
	struct ww_agent_values agent;
	const char *dir, *formats;
	int64_t parallel;
	int json, resume, explain;
};

static const struct ww_opt option_table[] = { WW_OPTS_WHERE(struct options, judging),
	WW_OPTS_HOW(struct options, judging), WW_OPT_DEVICES(struct options, judging),
	WW_OPTS_AGENT(struct options, agent, "150", "600"),
	{ "parallel", 0, WW_OPT_INT, offsetof(struct options, parallel), "N", "1", 1, WW_AGENT_PARALLEL_MAX,
		"run N episodes in parallel under one budget and keep the best" },
	{ "output", 'o', WW_OPT_STR, offsetof(struct options, dir), "DIR", NULL, 0, 0,
		"output directory; an unfinished run in it is resumed (default runs/NAME-TARGET-TIME)" },
	{ "resume", 0, WW_OPT_FLAG, offsetof(struct options, resume), NULL, NULL, 0, 0,
		"resume the run in -o DIR; refused where DIR holds none" },
	{ "explain", 0, WW_OPT_FLAG, offsetof(struct options, explain), NULL, NULL, 0, 0,
		"print what was fused and why, and each launch's predicted and measured time beside its floor" },
	{ "formats", 0, WW_OPT_STR, offsetof(struct options, formats), "LIST", "torch,kernelbench,c", 0, 0,
		"which exports to write: torch, kernelbench, c, or none" },
	WW_OPT_JSON(struct options, json), WW_OPT_END };

struct run {
	const struct options *o;
	struct ww_task task;
	enum ww_target target;
	struct ww_judge_opts judge_opts;
	enum ww_export_format formats[WW_EXPORT_COUNT];
	int n_formats;
	char device_name[96];
	struct ww_rundir dir;
	struct ww_skill skill;
	int has_skill;
	struct ww_policy *policies[WW_AGENT_PARALLEL_MAX]; /* one an episode */
	int n;                                             /* episodes */
	struct ww_budget *budget;
	struct ww_judge *judge;
	struct ww_judge_task *judged;
	struct other { /* the same task on the other GPUs of --devices */
		struct ww_judge *judge;
		struct ww_judge_task *judged;
	} others[WW_BATCH_MAX_DEVICES];
	int devices[WW_BATCH_MAX_DEVICES], n_devices;
	struct ww_progress *progress;
	struct ww_agent_result result;
	struct ww_agent_result *parallel; /* n of them, where n > 1 */
	struct ww_summary summary;
	json_t *explained; /* judge/profile/explain.h; NULL: not asked for, and not slower than eager */
	char *last_text;
	struct ww_str last_refusal;
};

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static enum ww_rc add_format(struct run *r, const char *word, struct ww_err *err)
{
	enum ww_export_format f;
	enum ww_rc rc = ww_export_format_parse(word, &f, err);
	for (int i = 0; rc == WW_OK && i < r->n_formats; i++)
		if (r->formats[i] == f)
			return WW_OK;
	if (rc == WW_OK)
		r->formats[r->n_formats++] = f;
	return rc;
}

static enum ww_rc add_formats(struct run *r, const char *list, struct ww_err *err)
{
	size_t n;
	for (const char *p; (p = ww_list_next(&list, &n));) {
		char word[32];
		snprintf(word, sizeof(word), "%.*s", (int)n, p);
		WW_CHECK(add_format(r, word, err));
	}
	return WW_OK;
}

static enum ww_rc choose_target(struct run *r, FILE *say, struct ww_err *err)
{
	struct ww_host_gpus gpus;
	enum ww_rc rc = ww_host_choose_target(
		r->o->judging.target, r->judge_opts.device, &r->target, r->device_name, sizeof(r->device_name), &gpus, err);
	if (rc == WW_OK && !strcmp(r->o->judging.target, "auto"))
		fprintf(
			say, "target %s: %s\n", ww_target_name(r->target), r->target == WW_TARGET_CUDA ? r->device_name : gpus.why);
	return rc;
}

/* ---- Working ----------------------------------------------------------------------------------------------------- */

static enum ww_rc open_judge(struct run *r, struct ww_err *err)
{
	struct ww_judge_opts opts = r->judge_opts;
	opts.target = r->target;
	opts.first = &r->task;
	opts.progress = ww_progress_stage;
	opts.progress_ctx = r->progress;
	WW_CHECK(ww_judge_open(&r->judge, &opts, err));
	WW_CHECK(ww_judge_task_open(r->judge, &r->task, &r->judged, err));
	for (int i = 1; i < r->n_devices && i < r->n; i++) { /* no more than there are episodes */
		struct other *o = &r->others[i - 1];
		opts.device = r->devices[i];
		WW_CHECK(ww_judge_open(&o->judge, &opts, err));
		WW_CHECK(ww_judge_task_open(o->judge, &r->task, &o->judged, err));
	}
	return WW_OK;
}

static void release_results(struct run *r)
{
	ww_agent_result_release(&r->result);
	for (int i = 0; r->parallel && i < r->n; i++)
		ww_agent_result_release(&r->parallel[i]);
}

/* The result that the run is about: the only one, or the best of several. */
static const struct ww_agent_result *chosen(const struct run *r)
{
	int best = r->n > 1 ? ww_agent_parallel_best(r->parallel, r->n) : 0;
	return r->n > 1 ? &r->parallel[best < 0 ? 0 : best] : &r->result;
}

static uint64_t seed_of(const struct run *r)
{
	return r->dir.has_past ? r->dir.past.header.seed : (uint64_t)r->o->agent.seed;
}

/* At the first correct solution, start the Python processes that the closing judgement will need.  Of one episode only,
 * since they end with the thread that starts them; not on the cpu target, where importing PyTorch disturbs timing. */
static void on_event(void *run, const struct ww_agent_event *e)
{
	const struct run *r = run;
	if (e->kind == WW_AGENT_VERDICT && e->verdict->correct && r->target == WW_TARGET_CUDA && r->n == 1)
		ww_export_ahead(r->n_formats > 0);
	ww_progress_event(r->progress, e);
}

static enum ww_rc run_agent(struct run *r, struct ww_err *err)
{
	struct ww_judge_opts judging = r->judge_opts;
	struct ww_episode_header h;
	judging.target = r->target;
	ww_agent_header(&h, &r->o->agent, &judging, &r->task, r->device_name, seed_of(r), r->has_skill ? &r->skill : NULL);
	struct ww_agent_opts a = ww_agent_values_opts(&r->o->agent, &judging, r->policies[0]);
	a.judge = ww_agent_use_judge(r->judged, r->device_name);
	a.dir = r->dir.path;
	a.task_source = r->task.source;
	a.skill = r->has_skill ? &r->skill : NULL;
	a.budget = r->budget;
	a.header = &h;
	a.on_event = on_event;
	a.event_ctx = r;
	struct ww_agent_judge others[WW_BATCH_MAX_DEVICES];
	for (const struct other *o = r->others; o->judged; o++)
		others[a.n_others++] = ww_agent_use_judge(o->judged, r->device_name);
	a.others = others;
	release_results(r);
	enum ww_rc rc = r->n > 1 ? ww_agent_parallel(&a, r->policies, r->n, r->parallel, err)
							 : ww_agent_run(&a, &r->result, err);
	ww_agent_header_release(&h);
	return rc;
}

/* What earlier processes left; a run is done when all its episodes have ended. */
static enum ww_rc take_past(struct run *r, struct ww_err *err)
{
	if (r->n > 1)
		return ww_agent_parallel_results(r->dir.path, r->n, r->parallel, err);
	return r->dir.has_past ? ww_agent_result_of(&r->dir.past, &r->result, err) : WW_OK;
}

static int is_done(const struct run *r)
{
	for (int i = 0; i < r->n; i++)
		if (!(r->n > 1 ? r->parallel[i].ended : r->result.ended))
			return 0;
	return 1;
}

/* ---- Exports ----------------------------------------------------------------------------------------------------- */

static enum ww_rc export_path(const struct run *r, enum ww_export_format f, char *out, struct ww_err *err)
{
	return ww_fs_join(out, r->dir.exports, ww_export_format_name(f), err);
}

/* All that were asked for are there, so a finished run needs no judge to be shown again. */
static int exports_present(const struct run *r)
{
	char path[PATH_MAX];
	struct ww_err ignored;
	for (int i = 0; chosen(r)->has_best && i < r->n_formats; i++)
		if (export_path(r, r->formats[i], path, &ignored) != WW_OK || !ww_fs_is_dir(path))
			return 0;
	return 1;
}

/* Make those that are not there, side by side; rc[i] and errs[i] belong to formats[i]. */
static void export_missing(struct run *r, const struct ww_solution *s, enum ww_rc *rc, struct ww_err *errs)
{
	struct ww_export_opts o[WW_EXPORT_COUNT];
	char paths[WW_EXPORT_COUNT][PATH_MAX];
	enum ww_rc done[WW_EXPORT_COUNT];
	struct ww_err why[WW_EXPORT_COUNT];
	int of[WW_EXPORT_COUNT], n = 0;
	for (int i = 0; i < r->n_formats; i++) {
		rc[i] = export_path(r, r->formats[i], paths[n], &errs[i]);
		if (rc[i] != WW_OK || ww_fs_is_dir(paths[n]))
			continue;
		o[n] = (struct ww_export_opts){ .judged = r->judged,
			.task = &r->task,
			.solution = s,
			.verdict = &chosen(r)->best,
			.format = r->formats[i],
			.dir = paths[n],
			.interrupted = &ww_cmd_interrupted };
		why[n] = (struct ww_err)WW_ERR_INIT;
		of[n++] = i;
	}
	if (n)
		ww_progress_stage(r->progress, "exporting and checking the exports");
	for (const struct other *x = r->others; n && x->judged; x++)
		ww_judge_task_rest(x->judged); /* no episode needs them any more */
	ww_exports(o, n, done, why);
	for (int k = 0; k < n; k++) {
		rc[of[k]] = done[k];
		errs[of[k]] = why[k];
	}
}

/* An export that fails is named in the summary; an interruption ends the command. */
static enum ww_rc export_all(struct run *r, struct ww_err *err)
{
	WW_AUTO(ww_solution_files_release) struct ww_solution_files f = { .target = 0 };
	enum ww_rc made[WW_EXPORT_COUNT];
	struct ww_err why[WW_EXPORT_COUNT];
	if (!chosen(r)->has_best || !r->n_formats)
		return WW_OK;
	WW_CHECK(ww_solution_load(&f, r->dir.solution, r->target, err));
	WW_CHECK(ww_fs_mkdirs(r->dir.exports, err));
	enum ww_rc rc = WW_OK;
	export_missing(r, &f.solution, made, why);
	for (int i = 0; i < r->n_formats; i++) {
		struct ww_summary_export *e = &r->summary.exports[r->summary.n_exports++];
		e->format = ww_export_format_name(r->formats[i]);
		if (made[i] == WW_OK)
			made[i] = export_path(r, r->formats[i], e->path, &why[i]);
		if (made[i] == WW_OK)
			continue;
		snprintf(e->why, sizeof(e->why), "%.500s", why[i].msg);
		if (made[i] == WW_ERR_INTERRUPTED) {
			*err = why[i];
			rc = made[i];
		}
	}
	return rc;
}

/* ---- Why --------------------------------------------------------------------------------------------------------- */

enum { EXPLAIN_MAX = 16 << 20 };

static int wants_explanation(const struct run *r)
{
	return chosen(r)->has_best && ww_agent_values_form(&r->o->agent) == WW_FORM_PLAN &&
		(r->o->explain || ww_explain_is_slower(&chosen(r)->best));
}

/* One that an earlier process made of the same solution. */
static void take_explanation(struct run *r)
{
	char path[PATH_MAX];
	struct ww_err ignored;
	if (!wants_explanation(r) || ww_fs_join(path, r->dir.path, "explain.json", &ignored) != WW_OK ||
		ww_json_read_file(path, EXPLAIN_MAX, &r->explained, &ignored) != WW_OK)
		return;
	if (strcmp(ww_json_str(r->explained, "solution", ""), chosen(r)->best_id)) {
		json_decref(r->explained);
		r->explained = NULL;
	}
}

/* What the planner decided, from the record of the episode that wrote the solution; NULL where no planner did. */
static json_t *decisions(const struct run *r, const struct ww_solution *s)
{
	WW_AUTO(ww_episode_release) struct ww_episode e;
	char dir[PATH_MAX], path[PATH_MAX];
	struct ww_err ignored;
	json_t *out = NULL;
	int at = r->n > 1 ? (int)(chosen(r) - r->parallel) : -1;
	memset(&e, 0, sizeof(e));
	if (at >= 0 &&
		(ww_agent_parallel_dir(r->dir.path, at, dir, &ignored) != WW_OK ||
			ww_fs_join(path, dir, "episode.jsonl", &ignored) != WW_OK))
		return NULL;
	if (ww_episode_read(at < 0 ? r->dir.episode : path, &e, &ignored) != WW_OK ||
		strncmp(e.header.policy, "planner", strlen("planner")))
		return NULL;
	ww_auto_free struct ww_message *msgs = calloc(e.n_messages + 1, sizeof(*msgs));
	const char *how = strchr(e.header.policy, ':');
	for (size_t i = 0; msgs && i < e.n_messages; i++)
		msgs[i] = e.messages[i].reply.message; /* borrowed */
	if (!msgs ||
		ww_planner_explain(
			how ? how + 1 : NULL, msgs, e.n_messages, s->device_source, s->plan_source, &out, &ignored) != WW_OK)
		return NULL;
	return out;
}

/* What fails here is said in one line and costs the run nothing. */
static enum ww_rc make_explanation(struct run *r, struct ww_err *err)
{
	WW_AUTO(ww_solution_files_release) struct ww_solution_files f = { .target = 0 };
	WW_CHECK(ww_solution_load(&f, r->dir.solution, r->target, err));
	json_auto_t *decided = decisions(r, &f.solution);
	WW_CHECK(ww_explain(r->judged, &f.solution, &chosen(r)->best, decided, &r->explained, err));
	return ww_json_write_file(r->dir.path, "explain.json", EXPLAIN_MAX, r->explained, err);
}

static enum ww_rc explain(struct run *r, struct ww_err *err)
{
	struct ww_err why = WW_ERR_INIT;
	enum ww_rc rc;
	if (!wants_explanation(r) || r->explained)
		return WW_OK;
	ww_progress_stage(r->progress, "explaining where the time goes");
	rc = make_explanation(r, &why);
	if (rc == WW_ERR_INTERRUPTED)
		*err = why;
	else if (rc != WW_OK) {
		ww_err_wrap(&why, "where the time goes is not known");
		(void)ww_cmd_say(&why);
	}
	return rc == WW_ERR_INTERRUPTED ? rc : WW_OK;
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

/* What the judge said of the last solution that was not correct, in one line. */
static void take_last_refusal(const struct ww_episode *e, struct ww_str *out)
{
	if (!e->n_verdicts)
		return;
	const json_t *v = e->verdicts[e->n_verdicts - 1].verdict;
	const char *why = ww_json_str(v, "diagnostics", "");
	ww_str_addf(out, "%.40s%s", ww_json_str(v, "status", ""), *why ? ": " : "");
	ww_str_add_line(out, why, 500);
}

/* The policy's last message, from the record: it names what could not be covered; and the judge's. */
static void take_last_words(struct run *r)
{
	WW_AUTO(ww_episode_release) struct ww_episode e;
	struct ww_err ignored;
	if (ww_episode_read(r->dir.episode, &e, &ignored) != WW_OK)
		return;
	for (size_t i = e.n_messages; i-- > 0 && !r->last_text;)
		if (e.messages[i].reply.message.role == WW_ROLE_ASSISTANT && *e.messages[i].reply.message.text)
			r->last_text = strdup(e.messages[i].reply.message.text);
	take_last_refusal(&e, &r->last_refusal);
}

static void print_summary(struct run *r)
{
	struct ww_summary *s = &r->summary;
	ww_auto_str text = WW_STR_INIT(1 << 20);
	char verdict[PATH_MAX];
	struct ww_err ignored, why = WW_ERR_INIT;
	take_last_words(r);
	s->has_report = ww_rundir_write_report(r->dir.path, &why) == WW_OK;
	if (!s->has_report) {
		ww_err_wrap(&why, "report.html was not written");
		(void)ww_cmd_say(&why);
	}
	s->has_verdict = ww_fs_join(verdict, r->dir.path, "verdict.json", &ignored) == WW_OK && ww_fs_is_file(verdict);
	s->task = r->task.name;
	s->target = ww_target_name(r->target);
	s->device = r->device_name;
	s->rule = r->o->judging.rule;
	s->policy = r->o->agent.policy;
	s->dir = r->dir.path;
	s->result = chosen(r);
	s->baselines = r->judge_opts.baselines;
	s->parallel = r->parallel;
	s->n_parallel = r->n > 1 ? r->n : 0;
	s->budget = r->budget;
	s->last_text = r->last_text;
	s->last_refusal = r->last_refusal.p;
	s->explained = r->explained;
	s->explain = r->o->explain;
	if (r->o->json) {
		json_auto_t *o = ww_summary_json(s);
		ww_json_add_pretty(&text, o);
		ww_str_addc(&text, '\n');
	} else {
		ww_summary_text(s, &text);
	}
	fwrite(text.p, 1, text.len, stdout);
}

static enum ww_rc work(struct run *r, struct ww_err *err)
{
	int done = is_done(r);
	if (done)
		ww_progress_say(r->progress, "%s holds a finished run; showing it", r->dir.path);
	if (done)
		take_explanation(r);
	if (!done || !exports_present(r) || (wants_explanation(r) && !r->explained))
		WW_CHECK(open_judge(r, err));
	if (!done)
		WW_CHECK(run_agent(r, err));
	if (r->judged)
		WW_CHECK(explain(r, err)); /* before the exports, whose checks end the task's processes */
	if (r->judged)
		WW_CHECK(export_all(r, err));
	else
		for (int i = 0; chosen(r)->has_best && i < r->n_formats; i++) {
			struct ww_summary_export *e = &r->summary.exports[r->summary.n_exports++];
			e->format = ww_export_format_name(r->formats[i]);
			WW_CHECK(export_path(r, r->formats[i], e->path, err));
		}
	return WW_OK;
}

static void release(struct run *r)
{
	ww_export_ahead_end();
	release_results(r);
	free(r->parallel);
	for (struct other *o = r->others; o->judge; o++) {
		ww_judge_task_close(o->judged);
		ww_judge_close(o->judge);
	}
	if (r->judged)
		ww_judge_task_close(r->judged);
	if (r->judge)
		ww_judge_close(r->judge);
	for (int i = 0; i < r->n; i++)
		if (r->policies[i])
			r->policies[i]->ops->free(r->policies[i]);
	ww_budget_free(r->budget);
	if (r->has_skill)
		ww_skill_close(&r->skill);
	ww_rundir_release(&r->dir);
	ww_task_release(&r->task);
	free(r->last_text);
	ww_str_release(&r->last_refusal);
	json_decref(r->explained);
}

static enum ww_rc open_policies(struct run *r, struct ww_err *err)
{
	for (int i = 0; i < r->n; i++)
		WW_CHECK(ww_agent_values_policy(&r->o->agent, seed_of(r) + (uint64_t)i, &r->policies[i], err));
	return WW_OK;
}

/* What earlier processes left in the directory, and what is needed to go on from there. */
static enum ww_rc prepare_run(struct run *r, struct ww_err *err)
{
	WW_CHECK(take_past(r, err));
	WW_CHECK(ww_agent_values_budget(&r->o->agent, &r->dir, r->n, &r->budget, err));
	if (!is_done(r))
		WW_CHECK(open_policies(r, err));
	return WW_OK;
}

static enum ww_rc prepare(struct run *r, const char *path, struct ww_err *err)
{
	r->n = (int)r->o->parallel;
	if (r->n > 1 && !(r->parallel = calloc((size_t)r->n, sizeof(*r->parallel))))
		return ww_nomem(err);
	WW_CHECK(ww_judging_opts(&r->o->judging, &r->judge_opts, err));
	WW_CHECK(ww_judging_devices(
		r->o->judging.devices, r->o->judging.target, r->devices, WW_BATCH_MAX_DEVICES, &r->n_devices, err));
	if (r->n_devices)
		r->judge_opts.device = r->devices[0];
	if (strcmp(r->o->formats, "none") && ww_agent_values_form(&r->o->agent) == WW_FORM_PLAN)
		WW_CHECK(add_formats(r, r->o->formats, err));
	if (r->o->resume && !r->o->dir)
		return ww_err_set(err, WW_ERR_USAGE, "--resume needs -o DIR");
	WW_CHECK(ww_agent_values_skill(&r->o->agent, &r->skill, &r->has_skill, err));
	WW_CHECK(ww_task_load(&r->task, path, err));
	WW_CHECK(choose_target(r, r->o->json ? stderr : stdout, err));
	WW_CHECK(ww_rundir_open(&r->dir, r->o->dir, &r->task, ww_target_name(r->target), r->o->agent.policy, r->n, err));
	if (r->o->resume && !r->dir.has_past && !(r->n > 1 && ww_agent_parallel_count(r->dir.path)))
		ww_err_set(err, WW_ERR_USAGE, "%s holds no run to go on with; name its -o, or leave out --resume", r->dir.path);
	else if (prepare_run(r, err) == WW_OK)
		return WW_OK;
	ww_rundir_undo(&r->dir);
	return err->rc;
}

/* The results so far are in the directory: the error says how to resume. */
static void say_how_to_go_on(const struct run *r, struct ww_err *err)
{
	struct ww_err was = *err;
	if (err->rc != WW_ERR_INTERRUPTED && ww_fs_is_file(r->dir.episode))
		ww_err_set(err, was.rc, "%.700s; the same command with -o %.250s goes on from here", was.msg, r->dir.path);
}

static int optimize(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct run r = { .o = values, .last_refusal = WW_STR_INIT(1024) };
	int code, printed = 0;
	ww_verdict_init(&r.result.best);
	enum ww_rc rc = ww_agent_values_settle(&((struct options *)values)->agent, &err);
	if (rc == WW_OK)
		rc = prepare(&r, argv[0], &err);
	if (rc == WW_OK) {
		r.progress = ww_progress_new(r.o->json ? stderr : stdout);
		if (r.progress)
			ww_progress_watch(r.progress, r.budget);
		rc = r.progress ? work(&r, &err) : ww_err_set(&err, WW_ERR_NOMEM, "out of memory");
		ww_progress_free(r.progress);
		if (rc != WW_OK)
			say_how_to_go_on(&r, &err);
		r.summary.interrupted = rc == WW_ERR_INTERRUPTED;
		if (rc != WW_OK)
			ww_rundir_undo(&r.dir);
		printed = rc == WW_OK || (r.summary.interrupted && ww_fs_is_file(r.dir.episode));
		if (printed)
			print_summary(&r);
	}
	if (rc == WW_OK)
		code = !ww_summary_won(&r.summary);
	else
		code = printed ? ww_cmd_say(&err) : ww_cmd_fail(&err);
	release(&r);
	return code;
}

const struct ww_cmd ww_cmd_optimize = { "optimize", "TASK.py",
	"write a faster kernel for a PyTorch module, and prove it",
	"TASK.py is a PyTorch module in KernelBench form: class Model, get_inputs(), get_init_inputs().\n"
	"A policy writes kernels and a plan; the judge compiles, checks and times them against PyTorch; the best is\n"
	"kept in DIR as it is found. Ctrl-C ends in good order; the same command with the same -o goes on.\n"
	"Exit code: 0 correct and more than 5% faster than each of --baselines; 1 not; 2 usage; 3 infrastructure.",
	option_table, sizeof(struct options), 1, 1, optimize };
