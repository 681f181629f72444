/* synth_teach.c - `warpwright synth teach SET FILE`: what a small policy is to say about each task of a set.
 *
 * A line is a conversation in the compact prompt's form (agent/compact.h) about a solution of the planner, not judged.
 * A task costs a trace without values, and some ms a solution, so a corpus of thousands is made without the device that
 * it is for; facts of that device come from a file.  Each thread has a confined worker for the traces; lines are in the
 * order of the rows, and what is drawn about a task depends on the seed and the task alone.
 */
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/target.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "cmd/synth.h"
#include "cmd/teach.h"
#include "synth/outlines.h"
#include "task/held_out.h"
#include "task/set.h"
#include "task/signature.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_JOBS = 256, LINE_MAX_BYTES = 32 << 20, FACTS_MAX = 16 << 20 };

/* What became of a row. */
enum fate { WRITTEN, BROKEN, NO_GRAPH, HELD_OUT, NO_PLAN, TOO_LONG, FATES };
static const char *const fate_names[] = { "written", "broken", "no_graph", "held_out", "no_solution", "too_long" };
static const char *const fate_texts[] = { "tasks", "rows that are no task", "without a graph", "held out",
	"without a solution", "too long" };

struct teacher {
	struct ww_progress *progress;
	const struct ww_synth_values *v;
	struct ww_teacher says;
	const json_t *device;
	struct ww_held_out *held;
	struct ww_store *store;
	struct ww_set *set;
	FILE *out;
	pthread_mutex_t lock; /* of all that follows, and of set and out */
	pthread_cond_t written;
	int over;
	int64_t taken, done;
	int64_t n[FATES], conversations;
	struct ww_err err; /* the first one */
};

/* ---- A line ------------------------------------------------------------------------------------------------------ */

/* A task of the set, and where its lines go. */
struct lesson {
	const struct ww_task *task;
	const json_t *graph;
	const char *signature;
	char *user;
	struct ww_ref_shapes shapes;
	struct ww_facts facts; /* over shapes */
	struct ww_teach_solutions solutions;
	struct ww_rng rng;
	struct ww_str *out;
	int n; /* conversations */
};

static void lesson_release(struct lesson *l)
{
	free(l->user);
	ww_ref_shapes_release(&l->shapes);
	ww_teach_solutions_release(&l->solutions);
}

static enum ww_rc take_facts(struct lesson *l, const json_t *device, enum ww_target target, struct ww_err *err)
{
	struct ww_ref_shapes *s = &l->shapes;
	json_auto_t *inspect = json_pack("{s:O, s:O}", "device", device, "graph", (json_t *)(uintptr_t)l->graph);
	WW_CHECK(ww_ref_shapes(l->graph, s, err));
	l->facts = (struct ww_facts){ .inputs = s->inputs,
		.params = s->params,
		.outputs = s->outputs,
		.n_inputs = s->n_inputs,
		.n_params = s->n_params,
		.n_outputs = s->n_outputs,
		.scalars = s->scalars,
		.n_scalars = s->n_scalars };
	ww_ref_device(device, target, &l->facts.device);
	l->user = ww_compact_task(inspect);
	return l->user ? WW_OK : ww_nomem(err);
}

static enum ww_rc add_line(struct lesson *l, json_t *messages, enum ww_target target, struct ww_err *err)
{
	json_auto_t *o = json_pack("{s:O, s:s, s:s, s:s, s:s, s:s}", "messages", messages, "task", l->task->path, "task_id",
		l->task->id, "task_signature", l->signature, "target", ww_target_name(target), "policy", "planner");
	if (!o)
		return ww_nomem(err);
	ww_json_add(l->out, o);
	ww_str_addc(l->out, '\n');
	l->n++;
	return WW_OK;
}

static enum ww_rc conversations(
	const struct teacher *t, const json_t *device, struct lesson *l, enum fate *fate, struct ww_err *err)
{
	const enum ww_target target = t->says.prompt.target;
	*fate = NO_PLAN;
	ww_rng_init(&l->rng, (uint64_t)t->v->seed, ww_hash_fnv(l->task->id, strlen(l->task->id)));
	WW_CHECK(ww_teach_solve(l->graph, device, target, (int)t->v->solutions, &l->rng, &l->solutions, err));
	if (!l->solutions.n)
		return WW_OK;
	WW_CHECK(take_facts(l, device, target, err));
	for (int i = 0; i < l->solutions.n; i++) {
		json_auto_t *messages = NULL;
		WW_CHECK(ww_teach_messages(&t->says, l->user, &l->facts, &l->solutions, i, &l->rng, &messages, err));
		if (messages)
			WW_CHECK(add_line(l, messages, target, err));
	}
	*fate = l->n && !l->out->cut ? WRITTEN : TOO_LONG;
	return WW_OK;
}

static enum ww_rc look_at(struct teacher *t, struct ww_outliner *worker, const json_t *device,
	const struct ww_task *task, struct ww_str *line, int *n, enum fate *fate, struct ww_err *err)
{
	WW_AUTO(ww_outline_release) struct ww_outline o = { .body = NULL };
	WW_AUTO(ww_signature_release) struct ww_signature s = { .operators = NULL };
	WW_CHECK(ww_synth_graph(t->store, worker, task, &o, err));
	*fate = NO_GRAPH;
	if (!o.graph || ww_task_signature(o.graph, &s, err) != WW_OK)
		return WW_OK;
	*fate = HELD_OUT;
	if (t->held && ww_held_out_find(t->held, s.text, task->id))
		return WW_OK;
	WW_AUTO(lesson_release) struct lesson l = { .task = task, .graph = o.graph, .signature = s.text, .out = line };
	enum ww_rc rc = conversations(t, device, &l, fate, err);
	*n = l.n;
	return rc;
}

/* ---- The set ----------------------------------------------------------------------------------------------------- */

/* The next row of the split train, or of a set without splits the next row, under the lock. */
static int take_row(struct teacher *t, struct ww_task *task, int64_t *number, enum fate *fate, struct ww_err *err)
{
	const struct ww_set_row *row = NULL;
	enum ww_rc rc = WW_OK;
	memset(task, 0, sizeof(*task));
	*fate = WRITTEN;
	while (!t->over && (rc = ww_set_next(t->set, &row, err)) == WW_OK && row && !row->problem &&
		strcmp(ww_json_str(row->fields, "split", "train"), "train"))
		;
	if (rc != WW_OK)
		t->err = *err;
	t->over |= rc != WW_OK || !row;
	if (t->over)
		return 0;
	*number = t->taken++;
	if (row->problem || ww_set_task(t->set, row, task, err) != WW_OK)
		*fate = BROKEN;
	return 1;
}

/* Each line when those of the rows before it are out. */
static void put(struct teacher *t, int64_t number, enum fate fate, const struct ww_str *line, int n)
{
	char stage[64];
	while (t->done < number && !(ww_cmd_interrupted || t->err.rc != WW_OK))
		pthread_cond_wait(&t->written, &t->lock);
	if (t->done == number && fate == WRITTEN && fwrite(line->p, 1, line->len, t->out) != line->len && !t->over) {
		t->over = 1;
		(void)!ww_err_errno(&t->err, WW_ERR_IO, "cannot write");
	}
	t->n[fate]++;
	t->conversations += fate == WRITTEN ? n : 0;
	t->done = number + 1;
	snprintf(stage, sizeof(stage), "writing solutions: %lld rows", (long long)t->done);
	ww_progress_stage(t->progress, stage);
	pthread_cond_broadcast(&t->written);
}

static enum ww_rc rows(struct teacher *t, struct ww_outliner *worker, const json_t *device, struct ww_err *err)
{
	struct ww_task task;
	enum fate fate;
	enum ww_rc rc = WW_OK;
	for (int64_t number; rc == WW_OK; ww_task_release(&task)) {
		ww_auto_str line = WW_STR_INIT(LINE_MAX_BYTES);
		int n = 0;
		pthread_mutex_lock(&t->lock);
		int more = take_row(t, &task, &number, &fate, err);
		pthread_mutex_unlock(&t->lock);
		if (!more)
			break;
		if (fate == WRITTEN)
			rc = look_at(t, worker, device, &task, &line, &n, &fate, err);
		if (rc != WW_OK)
			continue;
		pthread_mutex_lock(&t->lock);
		put(t, number, fate, &line, n);
		pthread_mutex_unlock(&t->lock);
	}
	return rc;
}

static void *work(void *context)
{
	struct teacher *t = context;
	struct ww_outliner *worker = NULL;
	struct ww_err err = WW_ERR_INIT;
	char real[PATH_MAX];
	pthread_mutex_lock(&t->lock);
	json_auto_t *device = json_deep_copy(t->device); /* counts of references are not for several threads */
	pthread_mutex_unlock(&t->lock);
	enum ww_rc rc = device ? ww_outliner_new(&worker,
								 &(struct ww_outline_opts){ .max_s = t->v->max_s,
									 .graph_only = 1,
									 .roots = ww_set_folder(t->v->subject, real),
									 .interrupted = &ww_cmd_interrupted },
								 &err)
						   : ww_nomem(&err);
	if (rc == WW_OK)
		rc = rows(t, worker, device, &err);
	pthread_mutex_lock(&t->lock);
	if (rc != WW_OK) {
		t->over = 1;
		t->err = t->err.rc == WW_OK ? err : t->err;
	}
	pthread_cond_broadcast(&t->written);
	pthread_mutex_unlock(&t->lock);
	ww_outliner_free(worker);
	return NULL;
}

static enum ww_rc all_rows(struct teacher *t, struct ww_err *err)
{
	pthread_t threads[MAX_JOBS];
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int want = t->v->jobs > 0 ? (int)t->v->jobs : processors > 0 ? (int)processors : 1, n = 0;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->written, NULL);
	while (n < want && n < MAX_JOBS && !pthread_create(&threads[n], NULL, work, t))
		n++;
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&t->written);
	pthread_mutex_destroy(&t->lock);
	if (!n)
		return ww_err_set(err, WW_ERR_SYSTEM, "cannot start a thread");
	*err = t->err.rc != WW_OK ? t->err : *err;
	return t->err.rc;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* What `inspect --json` printed, or its member device. */
static enum ww_rc read_facts(const char *path, json_t **device, struct ww_err *err)
{
	json_auto_t *all = NULL;
	if (!path)
		return ww_err_set(err, WW_ERR_USAGE,
			"synth teach needs the facts of the device that the solutions are for: --facts FILE, what `warpwright inspect "
			"--json TASK.py` printed there");
	WW_CHECK(ww_json_read_file(path, FACTS_MAX, &all, err));
	json_t *member = json_object_get(all, "device");
	*device = json_incref(json_is_object(member) ? member : all);
	return json_is_object(*device) ? WW_OK : ww_err_set(err, WW_ERR_USAGE, "%s holds no facts of a device", path);
}

/* The list that the command line has with colons. */
static enum ww_rc open_held_out(struct teacher *t, struct ww_err *err)
{
	ww_auto_free char *list = strdup(t->v->against);
	if (!list)
		return ww_nomem(err);
	for (char *p = list; (p = strchr(p, ':'));)
		*p++ = ',';
	ww_progress_stage(t->progress, "reading the held-out sets");
	return ww_held_out_open(&t->held, list, &ww_cmd_interrupted, err);
}

static enum ww_rc teach(struct teacher *t, const char *path, struct ww_err *err)
{
	const struct ww_set_opts keep_broken = { 1, &ww_cmd_interrupted };
	ww_auto_free char *part = NULL;
	enum ww_rc rc = WW_OK;
	if (asprintf(&part, "%s.part", path) < 0)
		return ww_nomem(err);
	if (t->v->against)
		WW_CHECK(open_held_out(t, err));
	WW_CHECK(ww_store_open(&t->store, NULL, err));
	WW_CHECK(ww_set_open(&t->set, t->v->subject, &keep_broken, err));
	if (!(t->out = fopen(part, "we")))
		return ww_err_errno(err, WW_ERR_IO, "cannot write %s", part);
	rc = all_rows(t, err);
	if (rc == WW_OK && ww_cmd_interrupted)
		rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	if (fclose(t->out) && rc == WW_OK)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot write %s", part);
	if (rc == WW_OK && rename(part, path))
		rc = ww_err_errno(err, WW_ERR_IO, "cannot rename %s", part);
	if (rc != WW_OK)
		unlink(part);
	return rc;
}

static void print_counts(const struct teacher *t, const char *path)
{
	json_auto_t *o = json_pack("{s:s}", "file", path);
	for (int i = 0; i < FATES; i++)
		json_object_set_new(o, fate_names[i], json_integer((json_int_t)t->n[i]));
	json_object_set_new(o, "conversations", json_integer((json_int_t)t->conversations));
	if (t->v->json) {
		ww_cmd_print_json(json_incref(o));
		return;
	}
	printf("%s: ", path);
	for (int i = 0; i < FATES; i++)
		printf("%s%lld %s", i ? ", " : "", (long long)t->n[i], fate_texts[i]);
	printf("; %lld conversations\n", (long long)t->conversations);
}

/* Mistakes are made where a share of the conversations has one. */
static enum ww_rc open_tools(struct teacher *t, const struct ww_device *device, struct ww_err *err)
{
	struct ww_teach_tools *tools = &t->says.tools;
	const struct ww_compiler_opts o = {
		.target = t->says.prompt.target, .cc = device->cc, .interrupted = &ww_cmd_interrupted
	};
	struct ww_err missing = WW_ERR_INIT;
	if (t->says.forms.mended <= 0)
		return WW_OK;
	WW_CHECK(ww_builder_open(&tools->builder, err));
	enum ww_rc rc = ww_compiler_open(&tools->compiler, &o, &missing);
	if (rc != WW_OK && rc != WW_ERR_MISSING)
		*err = missing;
	if (rc == WW_ERR_MISSING)
		ww_log(WW_LOG_WARN, "no mistakes that keep kernels from compiling: %s", missing.msg);
	return rc == WW_ERR_MISSING ? WW_OK : rc;
}

static enum ww_rc begin(struct teacher *t, json_t **facts, struct ww_err *err)
{
	const struct ww_synth_values *v = t->v;
	struct ww_device device;
	t->says = (struct ww_teacher){ .longest = v->longest,
		.prompt = { ww_target_of(v->judging.target), !strcmp(v->loop, "agent") ? WW_LOOP_AGENT : WW_LOOP_SINGLE,
			WW_RULE_STRICT, 1u << WW_BASE_EAGER | 1u << WW_BASE_COMPILE, (int)v->turns } };
	WW_CHECK(ww_teach_forms_read(v->forms, v->turns, &t->says.forms, err));
	if (v->forms && t->says.prompt.loop != WW_LOOP_AGENT)
		return ww_err_set(err, WW_ERR_USAGE, "--forms are of the loop with tools; add --loop agent");
	WW_CHECK(read_facts(v->facts, facts, err));
	t->device = *facts;
	ww_ref_device(t->device, t->says.prompt.target, &device);
	return open_tools(t, &device, err);
}

int ww_synth_teach(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_synth_values own = *v;
	json_t *facts = NULL;
	own.subject = argv[0];
	struct teacher t = { .v = &own, .err = WW_ERR_INIT };
	enum ww_rc rc = begin(&t, &facts, &err);
	t.progress = ww_progress_new(stderr);
	if (rc == WW_OK)
		rc = teach(&t, argv[1], &err);
	ww_progress_free(t.progress);
	ww_builder_close(t.says.tools.builder);
	ww_compiler_close(t.says.tools.compiler);
	ww_held_out_free(t.held);
	ww_store_close(t.store);
	ww_set_close(t.set);
	json_decref(facts);
	if (rc != WW_OK)
		return ww_cmd_fail(&err);
	print_counts(&t, argv[1]);
	return 0;
}
