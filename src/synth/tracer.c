/* tracer.c - see tracer.h. */
#include "synth/tracer.h"
#include "base/lock.h"
#include "base/time.h"
#include "synth/mark.h"

#include <stdio.h>

static const double LOOK_S = 0.2;

void ww_synth_tracers_close(struct ww_synth_tracers *t)
{
	for (int i = 0; i < WW_SYNTH_TRACERS; i++)
		ww_outliner_free(t->workers[i]);
	pthread_cond_destroy(&t->freed);
	pthread_mutex_destroy(&t->lock);
}

static int take(struct ww_synth_tracers *t)
{
	WW_LOCKED(&t->lock);
	for (;; ww_cond_wait(&t->freed, &t->lock, LOOK_S))
		for (int i = 0; i < WW_SYNTH_TRACERS; i++)
			if (!t->busy[i]) {
				t->busy[i] = 1;
				return i;
			}
}

static void give(struct ww_synth_tracers *t, int i)
{
	WW_LOCKED(&t->lock);
	t->busy[i] = 0;
	pthread_cond_signal(&t->freed);
}

static enum ww_rc mark_of(
	struct ww_outliner *worker, const struct ww_task *task, json_t **mark, char *why, size_t size, struct ww_err *err)
{
	struct ww_outline o;
	WW_CHECK(ww_outline(worker, task, 0, &o, err));
	enum ww_rc rc = o.tokens && o.graph ? ww_synth_mark(o.tokens, o.graph, mark, err) : WW_OK;
	if (rc == WW_OK && !*mark)
		snprintf(why, size, "%s", o.tokens_error ? o.tokens_error : o.graph_error ? o.graph_error : "no graph");
	ww_outline_release(&o);
	return rc;
}

enum ww_rc ww_synth_trace(struct ww_synth_tracers *t, const struct ww_task *task, double max_s,
	const volatile int *interrupted, json_t **mark, char *why, size_t size, struct ww_err *err)
{
	struct ww_outline_opts o = { .max_s = max_s, .interrupted = interrupted };
	int i = take(t);
	*mark = NULL;
	enum ww_rc rc = t->workers[i] ? WW_OK : ww_outliner_new(&t->workers[i], &o, err);
	if (rc == WW_OK)
		rc = mark_of(t->workers[i], task, mark, why, size, err);
	give(t, i);
	return rc;
}
