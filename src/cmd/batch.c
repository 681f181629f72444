/* batch.c - `warpwright judge --batch FILE|-`: jobs in, verdicts out, one a line each (docs/formats/batch.md).
 *
 * The main thread reads: it stops reading while the queue is full, so a producer on a pipe is held back and a file of a
 * million jobs takes no memory.  Results are written by whichever thread has one (the batch calls back one at a time),
 * first to the results file, synced, then to standard output.
 *
 * A job of the same content as one before it is not judged again: its result repeats the verdict and names the other
 * (`same_as`).  The newest verdicts are kept for that (kept.h).
 *
 * Ctrl-C: judgements under way are abandoned and not written, and the exit code is 3; with a results file the same
 * command resumes. */
#include "cmd/batch.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/kept.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/time.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "judge/batch.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINE_BYTES = 8 << 20, MAX_RESULT_BYTES = 16 << 20, PROGRESS_S = 30, MAX_ARENAS = 2 };

/* A job that the batch has, or that waits for another of the same content. */
struct entry {
	struct ww_batch_job job;
	json_t *id;
	char key[65];
	int again;          /* to be judged by itself */
	struct entry *same; /* the next that waits for this one */
	struct entry *next; /* under way */
};

struct run {
	const struct ww_cmd_batch *o;
	struct ww_batch *batch;
	struct ww_results *results;
	uint64_t start_ns;
	pthread_mutex_t lock; /* what follows, and standard output */
	uint64_t shown_ns;
	struct ww_progress *progress;
	int64_t skipped, skipped_wrong, correct, wrong, unusable, failed, interrupted;
	struct ww_err broken; /* a result could not be written: the batch ends */
	struct entry *under_way;
	struct ww_kept judged; /* {"id", "verdict", "correct"} by the job's content */
};

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static void show_progress(struct run *r, int now)
{
	ww_auto_str line = WW_STR_INIT(512);
	double s = ww_seconds_since(r->start_ns);
	int64_t done = r->correct + r->wrong + r->unusable + r->failed;
	int live = ww_progress_is_live(r->progress) && !now;
	if (!now && ww_seconds_since(r->shown_ns) < (live ? 0.2 : PROGRESS_S))
		return;
	r->shown_ns = ww_now_ns();
	ww_str_addf(&line, "%lld done: %lld correct, %lld not, %lld unusable, %lld failed; %lld skipped; ", (long long)done,
		(long long)r->correct, (long long)r->wrong, (long long)r->unusable, (long long)r->failed,
		(long long)r->skipped);
	if (!live)
		ww_str_addf(&line, "%.0f s, ", s);
	ww_str_addf(&line, "%.1f a minute", s > 0 ? 60.0 * (double)done / s : 0);
	if (live)
		ww_progress_stage(r->progress, line.p);
	if (now)
		ww_progress_clear(r->progress);
	if (!live)
		ww_progress_say(r->progress, "%s", line.p);
}

static int write_out(const char *line, size_t n)
{
	return fwrite(line, 1, n, stdout) != n || putc('\n', stdout) == EOF || fflush(stdout) ? -1 : 0;
}

/* One result; consumes o.  The lock is held. */
static void emit(struct run *r, json_t *o)
{
	ww_auto_str line = WW_STR_INIT(MAX_RESULT_BYTES);
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc = WW_OK;
	if (o)
		ww_json_add(&line, o);
	if (!o || line.cut)
		rc = ww_err_set(&err, WW_ERR_NOMEM, "out of memory for a result");
	if (rc == WW_OK)
		rc = ww_results_append(r->results, line.p, line.len, &err);
	if (ww_progress_is_live(r->progress))
		ww_progress_clear(r->progress); /* a result is a line of its own, also where both go to one terminal */
	if (rc == WW_OK && write_out(line.p, line.len))
		rc = ww_err_errno(&err, WW_ERR_IO, "cannot write to standard output");
	if (rc != WW_OK && r->broken.rc == WW_OK) {
		r->broken = err;
		ww_cmd_interrupted = 1; /* further results could not be reported */
	}
	json_decref(o);
}

/* same_as: the id of the job whose verdict it is; NULL: its own. */
static void emit_verdict(struct run *r, const struct entry *e, json_t *verdict, int correct, json_t *same_as)
{
	json_t *o = json_pack("{s:O, s:s, s:f, s:f, s:f}", "id", e->id, "job", e->key, "queued_s", e->job.queued_s,
		"opened_s", e->job.opened_s, "done_s", ww_seconds_since(r->start_ns));
	if (same_as)
		json_object_set(o, "same_as", same_as);
	json_object_set(o, "verdict", verdict);
	*(correct ? &r->correct : &r->wrong) += 1;
	emit(r, o);
}

static void emit_error(struct run *r, json_t *id, const struct ww_err *err)
{
	int code = ww_rc_exit(err->rc);
	*(code == 2 ? &r->unusable : &r->failed) += 1;
	emit(r, json_pack("{s:O, s:s, s:i}", "id", id, "error", err->msg, "exit", code));
}

static void entry_free(struct entry *e)
{
	ww_batch_job_release(&e->job);
	json_decref(e->id);
	free(e);
}

/* ---- The same content -------------------------------------------------------------------------------------------- */

static void remember(struct run *r, const struct entry *e, json_t *verdict)
{
	json_t *o = json_pack("{s:O, s:O, s:b}", "id", e->id, "verdict", verdict, "correct", e->job.verdict.correct);
	if (o)
		ww_kept_put(&r->judged, e->key, o);
	json_decref(o);
}

/* 1: the job repeats the result of another of the same content, or waits for it.  The lock is held. */
static int left_to_another(struct run *r, struct entry *e)
{
	json_t *j = e->again ? NULL : ww_kept_get(&r->judged, e->key);
	if (j) {
		emit_verdict(
			r, e, json_object_get(j, "verdict"), json_is_true(json_object_get(j, "correct")), json_object_get(j, "id"));
		json_decref(j);
		entry_free(e);
		return 1;
	}
	for (struct entry *u = e->again ? NULL : r->under_way; u; u = u->next)
		if (!u->again && !strcmp(u->key, e->key)) {
			e->same = u->same;
			u->same = e;
			return 1;
		}
	e->next = r->under_way;
	r->under_way = e;
	return 0;
}

static void end_way(struct run *r, const struct entry *e)
{
	struct entry **p = &r->under_way;
	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
}

/* ---- Answers of the batch ---------------------------------------------------------------------------------------- */

static void emit_one(struct run *r, struct entry *e, const struct ww_batch_job *job, json_t *verdict, json_t *same_as)
{
	if (job->rc == WW_ERR_INTERRUPTED)
		r->interrupted++;
	else if (job->rc != WW_OK)
		emit_error(r, e->id, &job->err);
	else
		emit_verdict(r, e, verdict, job->verdict.correct, same_as);
}

static void job_done(void *ctx, struct ww_batch_job *job)
{
	struct run *r = ctx;
	struct entry *e = job->ctx;
	json_t *verdict = job->rc == WW_OK ? ww_verdict_to_json(&job->verdict) : NULL;
	pthread_mutex_lock(&r->lock);
	end_way(r, e);
	if (verdict)
		remember(r, e, verdict);
	emit_one(r, e, job, verdict, NULL);
	for (struct entry *f = e->same, *next; f; f = next) {
		next = f->same;
		emit_one(r, f, job, verdict, e->id);
		entry_free(f);
	}
	show_progress(r, 0);
	pthread_mutex_unlock(&r->lock);
	json_decref(verdict);
	entry_free(e);
}

/* ---- Jobs -------------------------------------------------------------------------------------------------------- */

/* A bad line is its own result. */
static void bad_line(struct run *r, json_t *id, const struct ww_err *why)
{
	WW_LOCKED(&r->lock);
	emit_error(r, id, why);
}

static enum ww_rc one_line(struct run *r, const char *text, size_t n, int64_t number, struct ww_err *err)
{
	struct entry *e;
	struct ww_err bad = WW_ERR_INIT;
	enum ww_rc rc = WW_OK;
	WW_CHECK(WW_NEW(e, 1, err));
	e->job.ctx = e;
	if (ww_cmd_batch_parse(r->o, text, n, number, &e->id, &e->job, e->key, &e->again, &bad) != WW_OK) {
		bad_line(r, e->id, &bad);
		goto out;
	}
	int have = ww_results_have(r->results, e->id, e->key);
	if (have >= 0) {
		r->skipped++;
		r->skipped_wrong += !have;
		goto out;
	}
	pthread_mutex_lock(&r->lock);
	int left = left_to_another(r, e);
	pthread_mutex_unlock(&r->lock);
	if (left)
		return WW_OK;
	rc = ww_batch_add(r->batch, &e->job, err);
	if (rc == WW_OK)
		return WW_OK; /* it comes back in job_done() */
	pthread_mutex_lock(&r->lock);
	end_way(r, e);
	pthread_mutex_unlock(&r->lock);
	r->interrupted += rc == WW_ERR_INTERRUPTED;
out:
	entry_free(e);
	return rc;
}

static int blank(const struct ww_str *line) { return strspn(line->p, " \t\r") == line->len; }

/* Wait for something to read, looking now and then whether to go on. */
static int readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	while (!ww_cmd_interrupted) {
		int n = poll(&p, 1, 100);
		if (n > 0 || (n < 0 && errno != EINTR))
			return 1;
	}
	return 0;
}

static enum ww_rc end_line(struct run *r, struct ww_str *line, int64_t number, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	if (line->cut) {
		struct ww_err bad = WW_ERR_INIT;
		json_auto_t *id = json_integer(number);
		(void)!ww_err_set(&bad, WW_ERR_USAGE, "the job's line is longer than %d bytes", MAX_LINE_BYTES);
		bad_line(r, id, &bad);
	} else if (!blank(line)) {
		rc = one_line(r, line->p, line->len, number, err);
	}
	ww_str_release(line);
	return rc;
}

static enum ww_rc read_jobs(struct run *r, int fd, struct ww_err *err)
{
	ww_auto_str line = WW_STR_INIT(MAX_LINE_BYTES);
	char block[65536];
	int64_t number = 1;
	ssize_t n = 0;
	enum ww_rc rc = WW_OK;
	while (
		readable(fd) && ((n = read(fd, block, sizeof(block))) > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)))) {
		for (ssize_t i = 0; i < n;) {
			const char *nl = memchr(block + i, '\n', (size_t)(n - i));
			size_t part = nl ? (size_t)(nl - block - i) : (size_t)(n - i);
			ww_str_add(&line, block + i, part);
			i += (ssize_t)part + (nl != NULL);
			if (nl)
				WW_TRY(end_line(r, &line, number++, err));
		}
	}
	if (n < 0 && !ww_cmd_interrupted)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot read the jobs");
	else if (!ww_cmd_interrupted)
		rc = end_line(r, &line, number, err);
out:
	return rc == WW_ERR_INTERRUPTED ? WW_OK : rc;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static enum ww_rc open_jobs(const char *path, int *fd, struct ww_err *err)
{
	if (ww_fs_is_dir(path))
		return ww_err_set(err, WW_ERR_USAGE, "%s is a directory; --batch takes a file of jobs", path);
	*fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : dup(0);
	return *fd >= 0 ? WW_OK : ww_err_errno(err, errno == ENOENT ? WW_ERR_USAGE : WW_ERR_IO, "cannot open %s", path);
}

/* Exit code of the batch; results that were in the file already count. */
static int exit_code(const struct run *r)
{
	if (r->failed || r->interrupted || ww_cmd_interrupted)
		return 3;
	return r->unusable ? 2 : r->wrong || r->skipped_wrong ? 1 : 0;
}

int ww_cmd_batch_run(const struct ww_cmd_batch *o)
{
	static struct run r; /* too large for a stack */
	r = (struct run){ .o = o, .broken = WW_ERR_INIT, .lock = PTHREAD_MUTEX_INITIALIZER, .start_ns = ww_now_ns() };
	struct ww_batch_opts bo = { .threads = o->parallel,
		.open_tasks = o->open_tasks,
		.n_devices = o->n_devices,
		.interrupted = &ww_cmd_interrupted,
		.done = job_done,
		.ctx = &r };
	struct ww_err err = WW_ERR_INIT;
	int64_t strange;
	int fd = -1;
	enum ww_rc rc;

	memcpy(bo.devices, o->devices, sizeof(bo.devices));
	/* With a malloc arena per thread, each grows to the largest job that it has seen. */
	mallopt(M_ARENA_MAX, MAX_ARENAS);
	ww_kept_open(&r.judged);
	r.shown_ns = r.start_ns;
	r.progress = ww_progress_new(stderr);
	WW_TRY(open_jobs(o->jobs, &fd, &err));
	WW_TRY(ww_results_open(&r.results, o->output, &strange, &err));
	if (strange)
		ww_log(WW_LOG_WARN, "%s: %lld lines are not results; they are ignored", o->output, (long long)strange);
	WW_TRY(ww_batch_open(&r.batch, &bo, &err));
	rc = read_jobs(&r, fd, &err);
	if (rc != WW_OK)
		ww_cmd_interrupted = 1;
	ww_batch_drain(r.batch);
	show_progress(&r, 1);
out:
	ww_batch_close(r.batch);
	ww_progress_free(r.progress);
	ww_results_close(r.results);
	ww_kept_close(&r.judged);
	if (fd >= 0)
		close(fd);
	if (rc == WW_OK && r.broken.rc != WW_OK) {
		err = r.broken;
		rc = err.rc;
	}
	return rc != WW_OK ? ww_cmd_fail(&err) : exit_code(&r);
}
