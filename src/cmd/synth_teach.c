/* synth_teach.c - `warpwright synth teach SET FILE`: what a small policy is to say about each task of a set.
 *
 * A line is a conversation in the compact prompt's form (agent/compact.h): the planner's first solution, not judged. It
 * costs a trace without values and a plan, so a corpus of thousands is made without the device that it is for; facts of
 * that device come from a file.  Each thread has a confined worker for the traces; lines are in the order of the rows.
 */
#include "agent/compact.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/target.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "cmd/synth.h"
#include "policy/planner/proposal.h"
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
static const char *const fate_texts[] = { "lines", "rows that are no task", "without a graph", "held out",
	"without a solution", "too long" };

struct teacher {
	struct ww_progress *progress;
	const struct ww_synth_values *v;
	struct ww_compact form;
	const json_t *device;
	struct ww_held_out *held;
	struct ww_store *store;
	struct ww_set *set;
	FILE *out;
	pthread_mutex_t lock; /* of all that follows, and of set and out */
	pthread_cond_t written;
	int over;
	int64_t taken, done;
	int64_t n[FATES];
	struct ww_err err; /* the first one */
};

/* ---- A line ------------------------------------------------------------------------------------------------------ */

/* The planner numbers its indices through the whole graph, in an order that nobody can guess from the text before, so
 * they are renumbered. */
static enum ww_rc answer_of(const struct pl_result *r, enum ww_target target, char **answer, struct ww_err *err)
{
	ww_auto_str s = WW_STR_INIT(LINE_MAX_BYTES);
	ww_str_adds(&s, "```plan.c\n");
	WW_CHECK(pl_renumber(&s, r->plan_text, err));
	ww_str_addf(&s, "```\n```%s\n", target == WW_TARGET_CUDA ? "kernels.cu" : "kernels.c");
	WW_CHECK(pl_renumber(&s, r->device_text, err));
	ww_str_adds(&s, "```\n");
	*answer = ww_str_take(&s);
	return *answer ? WW_OK : ww_nomem(err);
}

static json_t *message(const char *role, const char *text)
{
	return json_pack("{s:s, s:s}", "role", role, "content", text);
}

/* In the loop with tools the answer is handed in at once. */
static json_t *said(const char *answer, enum ww_loop loop)
{
	json_t *m = message("assistant", answer);
	if (loop == WW_LOOP_AGENT && m)
		json_object_set_new(m, "tool_calls",
			json_pack("[{s:s, s:s, s:{s:s, s:{}}}]", "id", "call_0_0", "type", "function", "function", "name", "submit",
				"arguments"));
	return m;
}

static enum ww_rc conversation(const struct teacher *t, const json_t *device, const struct ww_task *task,
	const json_t *graph, const char *signature, struct ww_str *line, enum fate *fate, struct ww_err *err)
{
	WW_AUTO(ww_pl_result_release) struct pl_result r = { 0 };
	*fate = NO_PLAN;
	ww_pl_build(graph, device, ww_target_name(t->form.target), NULL, 0, NULL, &r);
	json_auto_t *inspect = json_pack("{s:O, s:O}", "device", device, "graph", (json_t *)(uintptr_t)graph);
	ww_auto_free char *system = ww_compact_system(&t->form), *user = ww_compact_task(inspect), *answer = NULL;
	if (r.ok)
		WW_CHECK(answer_of(&r, t->form.target, &answer, err));
	if (answer && system && user) {
		json_auto_t *o = json_pack("{s:[o, o, o], s:s, s:s, s:s, s:s, s:s}", "messages", message("system", system),
			message("user", user), said(answer, t->form.loop), "task", task->path, "task_id", task->id,
			"task_signature", signature, "target", ww_target_name(t->form.target), "policy", "planner");
		ww_json_add(line, o);
		ww_str_addc(line, '\n');
		size_t bytes = strlen(system) + strlen(user) + strlen(answer);
		*fate = line->cut || (t->v->longest && bytes > (size_t)t->v->longest) ? TOO_LONG : WRITTEN;
	}
	return WW_OK;
}

static enum ww_rc look_at(struct teacher *t, struct ww_outliner *worker, const json_t *device,
	const struct ww_task *task, struct ww_str *line, enum fate *fate, struct ww_err *err)
{
	WW_AUTO(ww_outline_release) struct ww_outline o = { .body = NULL };
	WW_AUTO(ww_signature_release) struct ww_signature s = { .operators = NULL };
	WW_CHECK(ww_synth_outline(t->store, worker, task, &o, err));
	*fate = NO_GRAPH;
	if (!o.graph || ww_task_signature(o.graph, &s, err) != WW_OK)
		return WW_OK;
	*fate = HELD_OUT;
	if (t->held && ww_held_out_find(t->held, s.text, task->id))
		return WW_OK;
	return conversation(t, device, task, o.graph, s.text, line, fate, err);
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
static void put(struct teacher *t, int64_t number, enum fate fate, const struct ww_str *line)
{
	char stage[64];
	while (t->done < number && !(ww_cmd_interrupted || t->err.rc != WW_OK))
		pthread_cond_wait(&t->written, &t->lock);
	if (t->done == number && fate == WRITTEN && fwrite(line->p, 1, line->len, t->out) != line->len && !t->over) {
		t->over = 1;
		(void)!ww_err_errno(&t->err, WW_ERR_IO, "cannot write");
	}
	t->n[fate]++;
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
		pthread_mutex_lock(&t->lock);
		int more = take_row(t, &task, &number, &fate, err);
		pthread_mutex_unlock(&t->lock);
		if (!more)
			break;
		if (fate == WRITTEN)
			rc = look_at(t, worker, device, &task, &line, &fate, err);
		if (rc != WW_OK)
			continue;
		pthread_mutex_lock(&t->lock);
		put(t, number, fate, &line);
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

static enum ww_rc teach(struct teacher *t, const char *path, struct ww_err *err)
{
	const struct ww_set_opts keep_broken = { 1, &ww_cmd_interrupted };
	ww_auto_free char *part = NULL;
	enum ww_rc rc = WW_OK;
	if (asprintf(&part, "%s.part", path) < 0)
		return ww_nomem(err);
	if (t->v->against)
		ww_progress_stage(t->progress, "reading the held-out sets");
	if (t->v->against)
		WW_CHECK(ww_held_out_open(&t->held, t->v->against, &ww_cmd_interrupted, err));
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
	if (t->v->json) {
		ww_cmd_print_json(json_incref(o));
		return;
	}
	printf("%s: ", path);
	for (int i = 0; i < FATES; i++)
		printf("%s%lld %s", i ? ", " : "", (long long)t->n[i], fate_texts[i]);
	printf("\n");
}

int ww_synth_teach(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_synth_values own = *v;
	json_t *device = NULL;
	own.subject = argv[0];
	struct teacher t = { .v = &own,
		.form = { ww_target_of(v->judging.target), !strcmp(v->loop, "agent") ? WW_LOOP_AGENT : WW_LOOP_SINGLE,
			WW_RULE_STRICT, 1u << WW_BASE_EAGER | 1u << WW_BASE_COMPILE, (int)v->turns },
		.err = WW_ERR_INIT };
	enum ww_rc rc = read_facts(v->facts, &device, &err);
	t.device = device;
	t.progress = ww_progress_new(stderr);
	if (rc == WW_OK)
		rc = teach(&t, argv[1], &err);
	ww_progress_free(t.progress);
	ww_held_out_free(t.held);
	ww_store_close(t.store);
	ww_set_close(t.set);
	json_decref(device);
	if (rc != WW_OK)
		return ww_cmd_fail(&err);
	print_counts(&t, argv[1]);
	return 0;
}
