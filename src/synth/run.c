/* run.c - see run.h.
 *
 * The table `done` holds the result of each candidate until it is decided on; `next` is the first undecided one.  A
 * thread takes the lowest number that nobody has, so candidates are done nearly in order and the table stays short:
 * nobody begins more than AHEAD a thread behind the first undecided one.
 */
#include "synth/run.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/time.h"
#include "synth/check.h"
#include "synth/journal.h"
#include "synth/mark.h"
#include "synth/write.h"
#include "task/set.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AHEAD = 32, MAX_TIMINGS_BYTES = 1 << 28 };

static const char *const splits[] = { "train", "validation", "held-out" };
static const char SIMILAR_APART[] = "similar to a set that is kept apart", SIMILAR[] = "similar to an accepted task",
				  SPLIT_FULL[] = "its split is full";

struct run {
	const struct ww_synth_run_opts *o;
	pthread_mutex_t lock; /* all that follows */
	pthread_cond_t moved;
	struct ww_journal journal;
	json_t **done; /* by number; NULL: not there yet */
	size_t cap;
	int64_t taken, next, have[WW_SYNTH_SPLITS], tried, before, undecided, max_tried;
	int64_t again; /* a candidate below `taken` that is to be looked at again; -1: none */
	int finished, stop;
	struct ww_err failed;
	json_t *timings;                               /* by number as text */
	json_t *tasks, *rejected, *measured, *reasons; /* in the order of numbers */
	struct ww_similar *accepted, *apart;           /* apart: the sets of `against` */
	struct ww_synth_device devices[WW_SYNTH_MAX_DEVICES];
	struct ww_synth_forker forker;
	struct ww_synth_tracers tracers;
	struct ww_synth_writer *first; /* opened before the journal is made, to report its errors at once */
	uint64_t start_ns;
	char last_reason[64];
};

/* ---- In the order of the numbers */

static int full(const struct run *r)
{
	for (int i = 0; i < WW_SYNTH_SPLITS; i++)
		if (r->have[i] < r->o->count[i])
			return 0;
	return 1;
}

/* Splits are kept apart by structure: by the operators alone, so that no two splits share them. */
static int split_of(const struct run *r, const struct ww_fingerprint *f)
{
	const int64_t *n = r->o->count;
	double sum = (double)(n[0] + n[1] + n[2]), at;
	struct ww_rng rng;
	uint64_t h = 1469598103934665603ull;
	for (const char *p = f->operators ? f->operators : ""; *p; p++)
		h = (h ^ (unsigned char)*p) * 1099511628211ull;
	ww_rng_init(&rng, h, 0x73706c6974);
	/* the small splits get twice their share, so that the run does not wait for them at the end */
	at = ww_rng_uniform(&rng) * (sum + (double)(n[1] + n[2]));
	return at < 2.0 * (double)n[2] ? 2 : at < 2.0 * (double)(n[1] + n[2]) ? 1 : 0;
}

static void reject(struct run *r, int64_t i, const json_t *line, const char *reason, const char *detail)
{
	json_t *row = json_pack("{s:I, s:s, s:s}", "index", (json_int_t)i, "reason", reason, "detail", detail);
	if (json_object_get(line, "code"))
		json_object_set(row, "code", json_object_get(line, "code"));
	json_array_append_new(r->rejected, row);
	json_object_set_new(r->reasons, reason, json_integer(json_integer_value(json_object_get(r->reasons, reason)) + 1));
}

static enum ww_rc accept(
	struct run *r, int64_t i, const json_t *line, const struct ww_fingerprint *f, int split, struct ww_err *err)
{
	char id[32];
	json_t *row = json_pack("{s:s, s:O, s:O, s:s, s:s, s:s, s:s, s:I, s:O, s:O}", "id", "", "code",
		json_object_get(line, "code"), "ops", json_object_get(json_object_get(line, "row"), "ops"), "signature",
		f->signature, "operators", f->operators ? f->operators : "", "data_source", "warpwright synth", "split",
		splits[split], "seed", (json_int_t)r->o->seed, "shapes",
		json_object_get(json_object_get(line, "row"), "shapes"), "times",
		json_object_get(json_object_get(line, "row"), "times"));
	snprintf(id, sizeof(id), "%llx-%lld", (unsigned long long)r->o->seed, (long long)i);
	if (!row)
		return ww_nomem(err);
	json_object_set_new(row, "id", json_string(id));
	json_array_append_new(r->tasks, row);
	r->have[split]++;
	return ww_similar_add(r->accepted, f, i, err);
}

/* Why the tasks decided before reject a candidate (similar, or its split is full); NULL: they do not.  A rejection is
 * final, since tasks are only added. */
static const char *by_others(struct run *r, const struct ww_fingerprint *f, char detail[120])
{
	struct ww_similar_match match;
	int split = split_of(r, f);
	*detail = 0;
	if (ww_similar_find(r->apart, f, 0, &match) && match.similar)
		return SIMILAR_APART;
	if (ww_similar_find(r->accepted, f, 0, &match) && match.similar) {
		snprintf(detail, 120, "to candidate %lld: text %.2f, graph %.2f%s", (long long)match.tag, match.text,
			match.graph, match.same_signature ? ", same signature" : "");
		return SIMILAR;
	}
	snprintf(detail, 120, "%s", splits[split]);
	return r->have[split] >= r->o->count[split] ? SPLIT_FULL : NULL;
}

/* Other tasks are compared before the compiler's result is looked at: whether the compiler ran depends on the threads'
 * timing, and the decision must not.  *void_line: the candidate was left half-way for a task that is not there any
 * more, as where candidates were taken out of the journal; it has to be looked at again. */
static enum ww_rc decide(struct run *r, int64_t i, const json_t *line, int *void_line, struct ww_err *err)
{
	WW_AUTO(ww_fingerprint_release) struct ww_fingerprint f = { 0 };
	char detail[120];
	const json_t *times = json_object_get(line, "times"), *mark = json_object_get(line, "mark");
	const char *reason = ww_json_str(line, "reason", NULL), *others = NULL;
	if (mark) {
		WW_CHECK(ww_synth_mark_read(mark, &f, err));
		others = by_others(r, &f, detail);
	}
	*void_line = !others && json_object_get(line, "decided");
	if (*void_line)
		return WW_OK;
	r->tried++;
	if (times)
		json_array_append_new(r->measured, json_pack("{s:I, s:O}", "index", (json_int_t)i, "times", times));
	if (others || reason)
		reject(r, i, line, others ? others : reason, others ? detail : ww_json_str(line, "detail", ""));
	else
		return accept(r, i, line, &f, split_of(r, &f), err);
	return WW_OK;
}

static int is_decided(void *ctx, const json_t *mark)
{
	WW_AUTO(ww_fingerprint_release) struct ww_fingerprint f = { 0 };
	struct run *r = ctx;
	struct ww_err ignored;
	char detail[120];
	if (ww_synth_mark_read(mark, &f, &ignored) != WW_OK)
		return 0;
	WW_LOCKED(&r->lock);
	return by_others(r, &f, detail) != NULL;
}

/* Decide on all results up to the first one that is missing. */
static enum ww_rc advance(struct run *r, struct ww_err *err)
{
	while (!r->finished && (size_t)r->next < r->cap && r->done[r->next]) {
		int void_line;
		WW_CHECK(decide(r, r->next, r->done[r->next], &void_line, err));
		json_decref(r->done[r->next]);
		r->done[r->next] = NULL;
		r->undecided--;
		if (void_line) {
			r->again = r->next < r->taken ? r->next : -1;
			return WW_OK;
		}
		r->next++;
		r->finished = full(r) || r->tried >= r->max_tried;
	}
	return WW_OK;
}

static enum ww_rc put(struct run *r, int64_t i, json_t *line, struct ww_err *err)
{
	size_t old = r->cap;
	if (!WW_GROW(r->done, &r->cap, i + 1))
		return ww_nomem(err);
	if (r->cap > old)
		memset(r->done + old, 0, (r->cap - old) * sizeof(*r->done));
	if (i < r->next)
		return WW_OK;
	r->undecided += !r->done[i];
	json_decref(r->done[i]); /* one that was looked at again */
	r->done[i] = json_incref(line);
	return WW_OK;
}

/* Peaks of candidates before show what the next ones will need: until enough are known in this run, each would take
 * three times its values, and large ones would run one by one. */
static void learn_room(struct run *r, const json_t *line)
{
	const json_t *bytes = json_object_get(line, "bytes");
	double values = json_number_value(json_array_get(bytes, 0)), peak = json_number_value(json_array_get(bytes, 1));
	for (int k = 0; k < r->o->n_devices; k++)
		ww_room_learn(&r->devices[k].room, values, peak);
}

static enum ww_rc from_journal(void *ctx, const json_t *line, struct ww_err *err)
{
	struct run *r = ctx;
	int64_t i = ww_json_int(line, "i", -1);
	if (i < 0 || i > 1 << 28)
		return ww_err_set(err, WW_ERR_IO, "%s holds a line without a number", r->journal.path);
	r->before++;
	learn_room(r, line);
	return put(r, i, (json_t *)(uintptr_t)line, err);
}

/* ---- One candidate */

static json_t *line_of(const struct run *r, int64_t i, struct ww_synth_result *res, const struct ww_synth_candidate *k,
	int keep_code, const json_t *recorded)
{
	json_t *line = json_pack(
		"{s:I, s:f, s:o}", "i", (json_int_t)i, "at", ww_seconds_since(r->start_ns), "cost", ww_synth_cost_json(res));
	if (res->tries > 1)
		json_object_set_new(line, "tries", json_integer(res->tries));
	if (*res->again)
		json_object_set_new(line, "again", json_string(res->again));
	if (res->peak_bytes > 0)
		json_object_set_new(line, "bytes",
			json_pack("[f, f, f, f]", k->input_bytes + k->memory_bytes, res->peak_bytes, res->load_bytes,
				res->compiled_bytes));
	if (res->allocated_bytes > 0)
		json_object_set_new(line, "allocated", json_real(res->allocated_bytes));
	if (*res->untraced)
		json_object_set_new(line, "untraced", json_string(res->untraced));
	if (res->shares)
		json_object_set(line, "share", res->shares);
	if (res->left_bytes > 0)
		json_object_set_new(line, "left", json_real(res->left_bytes));
	if (*res->reason)
		json_object_update_new(line, json_pack("{s:s, s:s}", "reason", res->reason, "detail", res->detail));
	if (!*res->reason || res->mark || keep_code)
		json_object_set_new(line, "code", json_stringn(k->source.p, k->source.len));
	if (res->mark)
		json_object_set(line, "mark", res->mark);
	if (res->decided)
		json_object_set_new(line, "decided", json_true());
	if (res->row)
		json_object_set(line, "row", res->row);
	if (recorded)
		json_object_set(line, "times", (json_t *)(uintptr_t)recorded);
	else if (res->row)
		json_object_set(line, "times", json_object_get(res->row, "times"));
	else if (!strcmp(res->reason, WW_SYNTH_TOO_LONG))
		json_object_set_new(line, "times", json_pack("{s:s}", "too_long", res->detail));
	else if (res->eager_us > 0)
		json_object_set_new(line, "times", json_pack("{s:f}", "eager_us", res->eager_us));
	else if (res->untimed)
		json_object_set_new(line, "times", json_pack("{s:b}", "untimed", 1));
	return line;
}

static enum ww_rc one(
	struct run *r, struct ww_synth_checker *c, struct ww_synth_writer *w, int64_t i, json_t **line, struct ww_err *err)
{
	WW_AUTO(ww_synth_candidate_release) struct ww_synth_candidate k = WW_SYNTH_CANDIDATE_INIT;
	WW_AUTO(ww_synth_result_release) struct ww_synth_result res = { 0 };
	char number[24];
	snprintf(number, sizeof(number), "%lld", (long long)i);
	const json_t *times = json_object_get(r->timings, number);
	uint64_t seed = r->o->seed * 0x9e3779b97f4a7c15ull + (uint64_t)i;
	if (w)
		WW_CHECK(ww_synth_write(w, &r->o->recipe, r->o->seed, (uint64_t)i, &k.source, &res, err));
	else
		WW_CHECK(ww_synth_compose(&r->o->recipe, r->o->seed, (uint64_t)i, &k, err));
	if (!*res.reason)
		WW_CHECK(ww_synth_check(c, &k.source, k.input_bytes, k.memory_bytes, seed, times, &res, err));
	*line = line_of(r, i, &res, &k, w != NULL, times);
	return WW_OK;
}

/* ---- Threads */

static void show(struct run *r)
{
	struct ww_synth_progress p = { .tried = r->tried,
		.seen = r->tried + r->undecided,
		.accepted = r->have[0] + r->have[1] + r->have[2],
		.wanted = r->o->count[0] + r->o->count[1] + r->o->count[2],
		.seconds = ww_seconds_since(r->start_ns),
		.seen_before = r->before,
		.last_reason = r->last_reason };
	if (r->o->progress)
		r->o->progress(r->o->ctx, &p);
}

static int time_is_up(const struct run *r)
{
	return r->o->stop_after_s > 0 && ww_seconds_since(r->start_ns) >= r->o->stop_after_s;
}

/* The next number for a thread; -1: nothing is left to do. */
static int64_t take(struct run *r)
{
	WW_LOCKED(&r->lock);
	for (;;) {
		while ((size_t)r->taken < r->cap && (r->taken < r->next || r->done[r->taken]))
			r->taken++;
		if (r->finished || r->stop || time_is_up(r) || (r->o->interrupted && *r->o->interrupted))
			return -1;
		if (r->again >= 0) {
			int64_t i = r->again;
			r->again = -1;
			return i;
		}
		if (r->taken < r->next + AHEAD * r->o->jobs + 8)
			return r->taken++;
		ww_cond_wait(&r->moved, &r->lock, 0.2);
	}
}

static void end_with(struct run *r, const struct ww_err *err)
{
	if (r->failed.rc == WW_OK)
		r->failed = *err;
	r->stop = 1;
}

static void finish_one(struct run *r, int64_t i, json_t *line, enum ww_rc rc, struct ww_err *err)
{
	WW_LOCKED(&r->lock);
	if (rc == WW_OK && !r->stop)
		rc = ww_journal_add(&r->journal, line, err);
	if (rc == WW_OK)
		rc = put(r, i, line, err);
	if (rc == WW_OK)
		rc = advance(r, err);
	if (rc != WW_OK)
		end_with(r, err);
	else if (ww_json_str(line, "reason", NULL))
		snprintf(r->last_reason, sizeof(r->last_reason), "%s", ww_json_str(line, "reason", ""));
	pthread_cond_broadcast(&r->moved);
	show(r);
}

struct thread {
	struct run *r;
	pthread_t id;
	struct ww_synth_device *device;
	int warms; /* starts what workers are forked from */
};

static void *work_thread(void *arg)
{
	struct thread *t = arg;
	struct run *r = t->r;
	struct ww_synth_checker c = { .o = { .recipe = &r->o->recipe,
									  .device = t->device,
									  .forker = r->o->jobs > 1 || r->o->policy ? &r->forker : NULL,
									  .tracers = r->o->recipe.target == WW_TARGET_CUDA ? &r->tracers : NULL,
									  .threads = r->o->threads,
									  .distrust = r->o->policy != NULL,
									  .replay = r->o->timings != NULL,
									  .is_decided = is_decided,
									  .ctx = r,
									  .interrupted = r->o->interrupted } };
	struct ww_synth_writer *w = NULL;
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc = r->o->policy ? ww_synth_writer_open(&w, r->o->policy, &err) : WW_OK;
	if (rc == WW_OK && t->warms)
		rc = ww_synth_checker_warm(&c, &err); /* the other threads' candidates are traced meanwhile */
	for (int64_t i; rc == WW_OK && (i = take(r)) >= 0;) {
		json_auto_t *line = NULL;
		rc = one(r, &c, w, i, &line, &err);
		finish_one(r, i, line, rc, &err);
	}
	if (rc != WW_OK) {
		WW_LOCKED(&r->lock);
		end_with(r, &err);
	}
	ww_synth_writer_close(w);
	ww_synth_checker_close(&c);
	return NULL;
}

static enum ww_rc work_all(struct run *r, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	int n = r->o->jobs, started = 0;
	struct thread *t;
	WW_CHECK(WW_NEW(t, n, err));
	for (; started < n; started++) {
		t[started] = (struct thread){ .r = r,
			.device = &r->devices[started % r->o->n_devices],
			.warms = !started && r->o->recipe.target == WW_TARGET_CUDA };
		if (pthread_create(&t[started].id, NULL, work_thread, &t[started])) {
			rc = ww_err_set(err, WW_ERR_SYSTEM, "cannot start thread %d", started);
			pthread_mutex_lock(&r->lock);
			r->stop = 1;
			pthread_mutex_unlock(&r->lock);
			break;
		}
	}
	for (int i = 0; i < started; i++)
		pthread_join(t[i].id, NULL);
	free(t);
	int cut_short = r->failed.rc == WW_ERR_INTERRUPTED; /* a candidate that was running noticed it first */
	if (rc == WW_OK && r->failed.rc != WW_OK && !cut_short && !r->finished) {
		*err = r->failed;
		rc = err->rc;
	}
	if (rc == WW_OK && !r->finished && (cut_short || !time_is_up(r)))
		rc = ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted; the same command goes on from here");
	return rc;
}

/* ---- Files */

static enum ww_rc write_set(const char *path, const json_t *rows, struct ww_err *err)
{
	const json_t *row;
	size_t i;
	struct ww_set_writer *w = NULL;
	struct ww_err ignored = WW_ERR_INIT;
	enum ww_rc rc = ww_set_create(&w, path, err);
	json_array_foreach(rows, i, row)
		if (rc == WW_OK)
			rc = ww_set_add(w, row, err);
	enum ww_rc ended = ww_set_finish(w, rc == WW_OK, rc == WW_OK ? err : &ignored);
	return rc == WW_OK ? ended : rc;
}

static enum ww_rc write_tasks(const struct run *r, struct ww_err *err)
{
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, r->o->dir, r->o->parquet ? "tasks.parquet" : "tasks.jsonl.zst", err));
	return write_set(path, r->tasks, err);
}

/* Parquet needs pyarrow: check that before hours of work. */
static enum ww_rc check_format(const struct run *r, struct ww_err *err)
{
	char path[PATH_MAX];
	json_auto_t *one = json_pack("[{s:s, s:s}]", "id", "", "code", "");
	if (!r->o->parquet)
		return WW_OK;
	WW_CHECK(ww_fs_join(path, r->o->dir, "probe.parquet", err));
	enum ww_rc rc = write_set(path, one, err);
	(void)unlink(path);
	return rc;
}

static enum ww_rc write_lines(const char *dir, const char *name, const json_t *rows, struct ww_err *err)
{
	char path[PATH_MAX];
	const json_t *row;
	size_t i;
	ww_auto_str text = WW_STR_INIT((size_t)1 << 32);
	WW_CHECK(ww_fs_join(path, dir, name, err));
	json_array_foreach(rows, i, row) {
		ww_json_add(&text, row);
		ww_str_addc(&text, '\n');
	}
	return text.cut ? ww_nomem(err) : ww_fs_write(path, text.p, text.len, err);
}

static json_t *run_json(const struct ww_synth_run_opts *o)
{
	json_t *against = json_array();
	for (int i = 0; i < o->n_against; i++)
		json_array_append_new(against, json_string(o->against[i]));
	return json_pack("{s:i, s:s, s:I, s:{s:I, s:I, s:I}, s:s?, s:o, s:o}", "version", 1, "program", WW_VERSION, "seed",
		(json_int_t)o->seed, "count", "train", (json_int_t)o->count[0], "validation", (json_int_t)o->count[1],
		"held-out", (json_int_t)o->count[2], "policy", o->policy ? o->policy->spec : NULL, "against", against, "recipe",
		ww_synth_recipe_json(&o->recipe));
}

static json_t *summary_of(const struct run *r)
{
	json_t *s = run_json(r->o);
	int64_t by_others = json_integer_value(json_object_get(r->reasons, SIMILAR)) +
		json_integer_value(json_object_get(r->reasons, SPLIT_FULL)) +
		json_integer_value(json_object_get(r->reasons, SIMILAR_APART));
	int64_t accepted = r->have[0] + r->have[1] + r->have[2], alone = r->tried - by_others;
	json_object_update_new(s,
		json_pack("{s:I, s:I, s:f, s:O}", "tried", (json_int_t)r->tried, "accepted", (json_int_t)accepted,
			"passed_all_but_similarity", alone ? (double)accepted / (double)alone : 0.0, "rejected", r->reasons));
	return s;
}

static enum ww_rc write_all(struct run *r, json_t **summary, struct ww_err *err)
{
	*summary = summary_of(r);
	WW_CHECK(write_lines(r->o->dir, "rejected.jsonl", r->rejected, err));
	WW_CHECK(write_lines(r->o->dir, "timings.jsonl", r->measured, err));
	WW_CHECK(write_tasks(r, err));
	return ww_json_write_file(r->o->dir, "run.json", 1 << 20, *summary, err);
}

static enum ww_rc read_timings(struct run *r, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_TIMINGS_BYTES);
	char number[24];
	r->timings = json_object();
	if (!r->o->timings)
		return WW_OK;
	WW_CHECK(ww_fs_read(r->o->timings, MAX_TIMINGS_BYTES, &text, err));
	for (char *save = NULL, *l = strtok_r(text.p, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		json_auto_t *row = json_loads(l, 0, NULL);
		const json_t *times = json_object_get(row, "times");
		if (!times || ww_json_int(row, "index", -1) < 0)
			return ww_err_set(err, WW_ERR_USAGE,
				"%s is not a file of timings: each line must have \"index\" and \"times\"", r->o->timings);
		snprintf(number, sizeof(number), "%lld", (long long)ww_json_int(row, "index", -1));
		json_object_set(r->timings, number, (json_t *)(uintptr_t)times);
	}
	return WW_OK;
}

static void release(struct run *r)
{
	for (size_t i = 0; i < r->cap; i++)
		json_decref(r->done[i]);
	free(r->done);
	json_decref(r->timings);
	json_decref(r->tasks);
	json_decref(r->rejected);
	json_decref(r->measured);
	json_decref(r->reasons);
	ww_similar_free(r->accepted);
	ww_similar_free(r->apart);
	ww_journal_close(&r->journal);
	ww_synth_writer_close(r->first);
	ww_synth_tracers_close(&r->tracers);
	ww_synth_forker_close(&r->forker);
	for (int i = 0; i < r->o->n_devices; i++)
		ww_synth_device_release(&r->devices[i]);
	pthread_cond_destroy(&r->moved);
	pthread_mutex_destroy(&r->lock);
}

/* Without a journal this would be a new run, whose files take the places of these. */
static enum ww_rc check_dir(const char *dir, struct ww_err *err)
{
	static const char *const names[] = { "journal.jsonl", "tasks.jsonl.zst", "tasks.parquet", "rejected.jsonl",
		"timings.jsonl", "run.json" };
	char path[PATH_MAX];
	for (size_t i = 0; i < WW_ARRAY_LEN(names); i++) {
		WW_CHECK(ww_fs_join(path, dir, names[i], err));
		if (ww_fs_is_file(path))
			return i ? ww_err_set(err, WW_ERR_USAGE,
						   "%s has no journal.jsonl to go on from, and its %s would be replaced; choose another -o",
						   dir, names[i])
					 : WW_OK;
	}
	return WW_OK;
}

enum ww_rc ww_synth_run(const struct ww_synth_run_opts *o, json_t **summary, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct run r = { .o = o,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.moved = PTHREAD_COND_INITIALIZER,
		.journal = WW_JOURNAL_INIT,
		.forker = WW_SYNTH_FORKER_INIT,
		.tracers = WW_SYNTH_TRACERS_INIT,
		.start_ns = ww_now_ns(),
		.again = -1,
		.tasks = json_array(),
		.rejected = json_array(),
		.measured = json_array(),
		.reasons = json_object() };
	int64_t wanted = o->count[0] + o->count[1] + o->count[2];
	json_auto_t *what = run_json(o);
	r.max_tried = o->max_tried ? o->max_tried : 1000 + 50 * wanted;
	*summary = NULL;
	for (int i = 0; i < o->n_devices; i++)
		ww_synth_device_init(&r.devices[i], o->devices[i]);
	WW_TRY(ww_similar_new(&r.accepted, err));
	WW_TRY(ww_similar_new(&r.apart, err));
	WW_TRY(read_timings(&r, err));
	if (o->policy)
		WW_TRY(ww_synth_writer_open(&r.first, o->policy, err));
	WW_TRY(check_dir(o->dir, err));
	WW_TRY(ww_journal_open(&r.journal, o->dir, what, from_journal, &r, err));
	WW_TRY(check_format(&r, err));
	WW_TRY(ww_synth_apart_from(r.apart, o->dir, o->against, o->n_against, o->jobs, o->interrupted, err));
	WW_TRY(advance(&r, err));
	if (!r.finished)
		WW_TRY(work_all(&r, err));
	WW_TRY(write_all(&r, summary, err));
	if (!full(&r))
		rc = ww_err_set(err, WW_ERR_LIMIT, "%lld candidates gave %lld of %lld tasks; the files hold those",
			(long long)r.tried, (long long)(r.have[0] + r.have[1] + r.have[2]), (long long)wanted);
out:
	release(&r);
	return rc;
}
