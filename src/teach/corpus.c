/* corpus.c - a corpus from the tasks of a set (corpus.h).
 *
 * Each row is traced by a thread with a confined worker (task/set_pass.h).  A trace computes no values and a solution
 * takes some ms, so a corpus of thousands of tasks is made in minutes.  Lines are in the order of the rows. */
#include "teach/corpus.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/target.h"
#include "store/store.h"
#include "synth/outlines.h"
#include "task/held_out.h"
#include "task/set_pass.h"
#include "task/signature.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 32 << 20 };

struct corpus {
	const struct ww_corpus_opts *o;
	struct ww_teacher teacher;
	json_t *answers; /* task id -> texts of a policy; read only while threads run */
	struct ww_held_out *held;
	struct ww_store *store;
	FILE *out;
	pthread_mutex_t lock; /* protects out and the members below */
	pthread_cond_t written;
	int failed;   /* a row did, so that its lines never come */
	int64_t done; /* rows */
	struct ww_corpus_counts counts;
	char without_graph[200]; /* the first task that has none, and why */
};

static void show(const struct corpus *c, const char *stage)
{
	if (c->o->progress)
		c->o->progress(c->o->context, stage);
}

/* ---- A line ------------------------------------------------------------------------------------------------------ */

/* The conversations about one task. */
struct dialogue {
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

static void dialogue_release(struct dialogue *d)
{
	free(d->user);
	ww_ref_shapes_release(&d->shapes);
	ww_teach_solutions_release(&d->solutions);
}

static enum ww_rc take_facts(struct dialogue *d, const json_t *device, enum ww_target target, struct ww_err *err)
{
	struct ww_ref_shapes *s = &d->shapes;
	json_auto_t *inspect = json_pack("{s:O, s:O}", "device", device, "graph", (json_t *)(uintptr_t)d->graph);
	WW_CHECK(ww_ref_shapes(d->graph, s, err));
	d->facts = (struct ww_facts){ .inputs = s->inputs,
		.params = s->params,
		.outputs = s->outputs,
		.n_inputs = s->n_inputs,
		.n_params = s->n_params,
		.n_outputs = s->n_outputs,
		.scalars = s->scalars,
		.n_scalars = s->n_scalars };
	ww_ref_device(device, target, &d->facts.device);
	d->user = ww_compact_task(inspect);
	return d->user ? WW_OK : ww_nomem(err);
}

static enum ww_rc add_line(struct dialogue *d, json_t *messages, enum ww_target target, struct ww_err *err)
{
	json_auto_t *o = json_pack("{s:O, s:s, s:s, s:s, s:s, s:s}", "messages", messages, "task", d->task->path, "task_id",
		d->task->id, "task_signature", d->signature, "target", ww_target_name(target), "policy", "planner");
	if (!o)
		return ww_nomem(err);
	ww_json_add(d->out, o);
	ww_str_addc(d->out, '\n');
	d->n++;
	return WW_OK;
}

/* A policy's answer about a task: of several each in turn.  NULL: there is none. */
static const char *own_answer(const struct corpus *c, const char *id, int i)
{
	const json_t *texts = json_object_get(c->answers, id);
	size_t n = json_array_size(texts);
	return n ? json_string_value(json_array_get(texts, (size_t)i % n)) : NULL;
}

static enum ww_rc conversations(
	const struct corpus *c, const json_t *device, struct dialogue *d, enum ww_corpus_row *outcome, struct ww_err *err)
{
	const enum ww_target target = c->teacher.prompt.target;
	*outcome = WW_CORPUS_NO_SOLUTION;
	ww_rng_init(&d->rng, c->o->seed, ww_hash_fnv(d->task->id, strlen(d->task->id)));
	WW_CHECK(ww_teach_solve(d->graph, device, target, c->o->solutions, &d->rng, &d->solutions, err));
	if (!d->solutions.n)
		return WW_OK;
	WW_CHECK(take_facts(d, device, target, err));
	for (int i = 0; i < d->solutions.n; i++) {
		json_auto_t *messages = NULL;
		WW_CHECK(ww_teach_messages(
			&c->teacher, d->user, &d->facts, &d->solutions, i, own_answer(c, d->task->id, i), &d->rng, &messages, err));
		if (messages)
			WW_CHECK(add_line(d, messages, target, err));
	}
	*outcome = d->n && !d->out->cut ? WW_CORPUS_WRITTEN : WW_CORPUS_TOO_LONG;
	return WW_OK;
}

/* What a row gave. */
struct given {
	enum ww_corpus_row outcome;
	struct ww_str lines;
	int n; /* conversations */
	char why[200];
};

static void given_release(struct given *g) { ww_str_release(&g->lines); }

static enum ww_rc add_task(struct corpus *c, struct ww_outliner *worker, const json_t *device,
	const struct ww_task *task, struct given *g, struct ww_err *err)
{
	WW_AUTO(ww_outline_release) struct ww_outline o = { .body = NULL };
	WW_AUTO(ww_signature_release) struct ww_signature s = { .operators = NULL };
	struct ww_err why = WW_ERR_INIT;
	WW_CHECK(ww_synth_graph(c->store, worker, task, &o, err));
	g->outcome = WW_CORPUS_NO_GRAPH;
	if (!o.graph || ww_task_signature(o.graph, &s, &why) != WW_OK) {
		snprintf(g->why, sizeof(g->why), "%.60s: %.130s", task->path, o.graph ? why.msg : o.graph_error);
		return WW_OK;
	}
	g->outcome = WW_CORPUS_HELD_OUT;
	if (c->held && ww_held_out_find(c->held, s.text, task->id))
		return WW_OK;
	WW_AUTO(dialogue_release)
	struct dialogue d = { .task = task, .graph = o.graph, .signature = s.text, .out = &g->lines };
	enum ww_rc rc = conversations(c, device, &d, &g->outcome, err);
	g->n = d.n;
	return rc;
}

/* ---- The set ----------------------------------------------------------------------------------------------------- */

/* Of the split train; in a set without splits every row counts. */
static int is_for_training(const struct ww_set_row *row)
{
	return row->problem || !strcmp(ww_json_str(row->fields, "split", "train"), "train");
}

/* Wait until the lines of all rows before this one are written, then write its own.  The lock is held. */
static enum ww_rc write_in_order(struct corpus *c, int64_t number, const struct given *g, struct ww_err *err)
{
	char stage[64];
	while (c->done < number && !(*c->o->interrupted || c->failed))
		pthread_cond_wait(&c->written, &c->lock);
	if (c->done < number)
		return WW_OK;
	if (g->outcome == WW_CORPUS_WRITTEN && fwrite(g->lines.p, 1, g->lines.len, c->out) != g->lines.len)
		return ww_err_errno(err, WW_ERR_IO, "cannot write");
	if (!c->counts.rows[WW_CORPUS_NO_GRAPH])
		strcpy(c->without_graph, g->why);
	c->counts.rows[g->outcome]++;
	c->counts.conversations += g->outcome == WW_CORPUS_WRITTEN ? g->n : 0;
	c->done = number + 1;
	snprintf(stage, sizeof(stage), "writing solutions: %lld rows", (long long)c->done);
	show(c, stage);
	return WW_OK;
}

/* jansson counts references without a lock. */
static json_t *copy_of_device(struct corpus *c)
{
	WW_LOCKED(&c->lock);
	return json_deep_copy(c->o->device);
}

static enum ww_rc take(void *context, struct ww_outliner *worker, const struct ww_pass_row *r, struct ww_err *err)
{
	struct corpus *c = context;
	WW_AUTO(given_release) struct given g = { .outcome = WW_CORPUS_BROKEN, .lines = WW_STR_INIT(LINE_MAX_BYTES) };
	json_auto_t *device = copy_of_device(c);
	enum ww_rc rc = device ? WW_OK : ww_nomem(err);
	if (rc == WW_OK && r->broken.rc == WW_OK)
		rc = add_task(c, worker, device, &r->task, &g, err);
	WW_LOCKED(&c->lock);
	if (rc == WW_OK)
		rc = write_in_order(c, r->at, &g, err);
	c->failed |= rc != WW_OK;
	pthread_cond_broadcast(&c->written);
	return rc;
}

static enum ww_rc all_rows(struct corpus *c, struct ww_err *err)
{
	const struct ww_set_pass all = { .path = c->o->set,
		.jobs = c->o->jobs,
		.worker = { .max_s = c->o->max_s, .graph_only = 1, .interrupted = c->o->interrupted },
		.wanted = is_for_training,
		.row = take,
		.context = c };
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->written, NULL);
	enum ww_rc rc = ww_set_pass(&all, err);
	pthread_cond_destroy(&c->written);
	pthread_mutex_destroy(&c->lock);
	if (c->counts.rows[WW_CORPUS_NO_GRAPH])
		ww_log(WW_LOG_WARN, "tasks without a graph: %lld (%s)", (long long)c->counts.rows[WW_CORPUS_NO_GRAPH],
			c->without_graph);
	return rc;
}

/* ---- Entry point ------------------------------------------------------------------------------------------------- */

static enum ww_rc open_held_out(struct corpus *c, struct ww_err *err)
{
	ww_auto_free char *list = strdup(c->o->against);
	if (!list)
		return ww_nomem(err);
	for (char *p = list; (p = strchr(p, ':'));) /* ww_held_out_open() takes commas */
		*p++ = ',';
	show(c, "reading the held-out sets");
	return ww_held_out_open(&c->held, list, c->o->interrupted, err);
}

static enum ww_rc add_answer(struct corpus *c, const char *line, size_t n, struct ww_err *err)
{
	json_auto_t *v = NULL;
	WW_CHECK(ww_json_parse(line, n, c->o->mistakes, &v, err));
	const char *id = ww_json_str(v, "task_id", NULL), *text = ww_json_str(v, "text", NULL);
	if (!id || !text)
		return ww_err_set(err, WW_ERR_USAGE, "%s: a line has task_id and text; one has not", c->o->mistakes);
	if (!json_object_get(c->answers, id))
		json_object_set_new(c->answers, id, json_array());
	return json_array_append_new(json_object_get(c->answers, id), json_string(text)) ? ww_nomem(err) : WW_OK;
}

static enum ww_rc read_answers(struct corpus *c, struct ww_err *err)
{
	ww_auto_free char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	enum ww_rc rc = WW_OK;
	FILE *f = fopen(c->o->mistakes, "re");
	if (!f)
		return ww_err_errno(err, WW_ERR_USAGE, "cannot read %s", c->o->mistakes);
	c->answers = json_object();
	while (rc == WW_OK && (n = getline(&line, &cap, f)) > 0)
		rc = add_answer(c, line, (size_t)n, err);
	fclose(f);
	return rc;
}

/* Builder and compiler, where a share of the conversations has mistakes. */
static enum ww_rc open_tools(struct corpus *c, struct ww_err *err)
{
	struct ww_teach_tools *tools = &c->teacher.tools;
	struct ww_device device;
	struct ww_err missing = WW_ERR_INIT;
	if (c->teacher.forms.mended <= 0)
		return WW_OK;
	ww_ref_device(c->o->device, c->teacher.prompt.target, &device);
	const struct ww_compiler_opts o = {
		.target = c->teacher.prompt.target, .cc = device.cc, .interrupted = c->o->interrupted
	};
	WW_CHECK(ww_builder_open(&tools->builder, err));
	enum ww_rc rc = ww_compiler_open(&tools->compiler, &o, &missing);
	if (rc != WW_OK && rc != WW_ERR_MISSING)
		*err = missing;
	if (rc == WW_ERR_MISSING)
		ww_log(WW_LOG_WARN, "no mistakes that keep kernels from compiling: %s", missing.msg);
	return rc == WW_ERR_MISSING ? WW_OK : rc;
}

static enum ww_rc write_corpus(struct corpus *c, const char *path, struct ww_err *err)
{
	ww_auto_free char *part = NULL;
	enum ww_rc rc = WW_OK;
	if (asprintf(&part, "%s.part", path) < 0)
		return ww_nomem(err);
	WW_CHECK(open_tools(c, err));
	if (c->o->mistakes)
		WW_CHECK(read_answers(c, err));
	if (c->o->against)
		WW_CHECK(open_held_out(c, err));
	WW_CHECK(ww_store_open(&c->store, NULL, err));
	if (!(c->out = fopen(part, "we")))
		return ww_err_errno(err, WW_ERR_IO, "cannot write %s", part);
	rc = all_rows(c, err);
	if (rc == WW_OK && *c->o->interrupted)
		rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	if (fclose(c->out) && rc == WW_OK)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot write %s", part);
	if (rc == WW_OK && rename(part, path))
		rc = ww_err_errno(err, WW_ERR_IO, "cannot rename %s", part);
	if (rc != WW_OK)
		unlink(part);
	return rc;
}

enum ww_rc ww_corpus_write(
	const char *path, const struct ww_corpus_opts *o, struct ww_corpus_counts *counts, struct ww_err *err)
{
	struct corpus c = { .o = o, .teacher = { .prompt = o->prompt, .forms = o->forms, .longest = o->longest } };
	enum ww_rc rc = write_corpus(&c, path, err);
	ww_builder_close(c.teacher.tools.builder);
	ww_compiler_close(c.teacher.tools.compiler);
	json_decref(c.answers);
	ww_held_out_free(c.held);
	ww_store_close(c.store);
	*counts = c.counts;
	return rc;
}
