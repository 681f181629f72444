/* set_pass.c - see set_pass.h. */
#include "task/set_pass.h"

#include "base/lock.h"
#include "base/mem.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

struct pass {
	const struct ww_set_pass *o;
	pthread_mutex_t lock; /* all that follows */
	struct ww_set *set;
	int over; /* no row is left, or there was an error */
	int64_t taken, last;
	struct ww_err err; /* the first one */
};

static void release_row(struct ww_pass_row *r)
{
	free(r->id);
	ww_task_release(&r->task);
	json_decref(r->fields);
}

static enum ww_rc next_row(struct pass *p, const struct ww_set_row **row, struct ww_err *err)
{
	enum ww_rc rc;
	do
		rc = ww_set_next(p->set, row, err);
	while (rc == WW_OK && *row && p->o->wanted && !p->o->wanted(*row));
	return rc;
}

static enum ww_rc copy_row(
	const struct pass *p, const struct ww_set_row *row, struct ww_pass_row *out, struct ww_err *err)
{
	out->number = row->number;
	if (!(out->id = strdup(row->id)))
		return ww_nomem(err);
	if (row->problem)
		(void)!ww_err_set(&out->broken, WW_ERR_USAGE, "%s", row->problem);
	else
		(void)!ww_set_task(p->set, row, &out->task, &out->broken);
	if (out->broken.rc != WW_OK)
		return WW_OK;
	out->fields = json_deep_copy(row->fields); /* jansson counts references without a lock */
	return out->fields ? WW_OK : ww_nomem(err);
}

/* 0: no row is left. */
static int take_row(struct pass *p, struct ww_pass_row *out, struct ww_err *err)
{
	const struct ww_set_row *row = NULL;
	WW_LOCKED(&p->lock);
	if (p->over)
		return 0;
	enum ww_rc rc = next_row(p, &row, err);
	p->over = rc != WW_OK || !row;
	if (rc == WW_ERR_USAGE && p->o->keep_damaged) {
		out->number = p->last + 1;
		out->broken = *err;
		*err = (struct ww_err)WW_ERR_INIT;
	} else if (p->over || copy_row(p, row, out, err) != WW_OK) {
		return 0;
	}
	p->last = out->number;
	out->at = p->taken++;
	return 1;
}

static enum ww_rc rows(struct pass *p, struct ww_outliner *worker, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	while (rc == WW_OK) {
		WW_AUTO(release_row) struct ww_pass_row r = { .broken = WW_ERR_INIT };
		*err = (struct ww_err)WW_ERR_INIT; /* row() may have left one that it got over */
		if (!take_row(p, &r, err))
			return err->rc;
		rc = p->o->row(p->o->context, worker, &r, err);
	}
	return rc;
}

static void *work(void *context)
{
	struct pass *p = context;
	char real[PATH_MAX];
	struct ww_outline_opts o = p->o->worker;
	struct ww_outliner *worker = NULL;
	struct ww_err err = WW_ERR_INIT;
	o.roots = ww_set_folder(p->o->path, real);
	enum ww_rc rc = ww_outliner_new(&worker, &o, &err);
	if (rc == WW_OK)
		rc = rows(p, worker, &err);
	ww_outliner_free(worker);
	WW_LOCKED(&p->lock);
	p->over |= rc != WW_OK;
	if (rc != WW_OK && p->err.rc == WW_OK)
		p->err = err;
	return NULL;
}

static int run_threads(struct pass *p)
{
	pthread_t threads[WW_PASS_MAX_JOBS];
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int want = p->o->jobs > 0 ? p->o->jobs : processors > 0 ? (int)processors : 1, n = 0;
	while (n < want && n < WW_PASS_MAX_JOBS && !pthread_create(&threads[n], NULL, work, p))
		n++;
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return n;
}

enum ww_rc ww_set_pass(const struct ww_set_pass *pass, struct ww_err *err)
{
	struct pass p = { .o = pass, .lock = PTHREAD_MUTEX_INITIALIZER, .err = WW_ERR_INIT };
	WW_CHECK(ww_set_open(&p.set, pass->path, &(struct ww_set_opts){ 1, pass->worker.interrupted }, err));
	int threads = run_threads(&p);
	ww_set_close(p.set);
	if (!threads)
		return ww_err_set(err, WW_ERR_LIMIT, "no thread can be started; lower --jobs or end other programs");
	if (p.err.rc != WW_OK)
		*err = p.err;
	return p.err.rc;
}
