/* spares.c - a pool of runners that are ready for the next candidate.
 *
 * A cuda runner takes 0.3 to 0.5 s to start (its context) and serves one candidate after another until one fails; a cpu
 * runner takes 10 ms and serves one.  From its second judgement on a judge keeps one more runner ready, so that the
 * next candidate need not wait after one that kills its runner; a judge that judges once does not start it.  Judgements
 * that are verified at the same time leave as many runners as there were at once.  Starting only spawns the process,
 * which initialises itself while another candidate is judged.
 *
 * Creating a context delays the calls and allocations of other processes.  So if many tasks are judged, the first
 * verdict of each starts one more runner while tasks load, until there are enough (ww_spare_more()).
 *
 * A runner that has served is taken before a new one: CUDA's libraries are loaded in it.  One that died while idle is
 * removed here; otherwise the next candidate would be blamed for its death. */
#include "judge/spares.h"

#include "base/lock.h"

#include <string.h>

static enum ww_rc start(const struct ww_judge *j, struct ww_runner **out, struct ww_err *err)
{
	return ww_runner_new(out, j->opts.target, j->opts.device, j->opts.threads, 0, err);
}

/* Add a runner to the pool, or end it if the pool is full.  NULL is fine. */
static void put(struct ww_judge *j, struct ww_runner *r)
{
	pthread_mutex_lock(&j->lock);
	if (r && j->n_spares < WW_JUDGE_SPARES) {
		j->spares[j->n_spares++] = r;
		r = NULL;
	}
	pthread_mutex_unlock(&j->lock);
	ww_runner_free(r);
}

static void count_out(struct ww_judge *j, int n)
{
	WW_LOCKED(&j->lock);
	j->runners_out += n;
}

static void put_new(struct ww_judge *j)
{
	struct ww_runner *r = NULL;
	struct ww_err ignored = WW_ERR_INIT; /* the next judgement tries again and reports why */
	if (start(j, &r, &ignored) == WW_OK)
		put(j, r);
}

/* Remove a runner from the pool: the last one that has served, else the oldest; NULL: the pool is empty. */
static struct ww_runner *pop(struct ww_judge *j)
{
	struct ww_runner *r = NULL;
	WW_LOCKED(&j->lock);
	int k = j->n_spares - 1;
	while (k > 0 && !ww_runner_greeted(j->spares[k]))
		k--;
	if (j->n_spares) {
		r = j->spares[k];
		j->n_spares--;
		memmove(&j->spares[k], &j->spares[k + 1], (size_t)(j->n_spares - k) * sizeof(j->spares[0]));
	}
	return r;
}

/* Should another one be started: the pool is empty, and this is not the judge's first judgement? */
static int wants_new(struct ww_judge *j)
{
	WW_LOCKED(&j->lock);
	return !j->n_spares && j->runners_taken++;
}

enum ww_rc ww_spare_take(struct ww_judge *j, struct ww_runner **out, struct ww_err *err)
{
	struct ww_run_facts facts;
	enum ww_rc rc = WW_OK;
	while ((*out = pop(j)) != NULL && !ww_runner_alive(*out))
		ww_runner_free(*out);
	if (!*out)
		WW_TRY(start(j, out, err));
	if (wants_new(j))
		put_new(j);
	count_out(j, 1);
	ww_runner_interruptible(*out, j->opts.interrupted);
	/* A new runner's greeting must still be read; one that has served has sent it already. */
	if (!ww_runner_greeted(*out))
		WW_TRY(ww_runner_facts(*out, &facts, err));
out:
	if (rc != WW_OK && *out)
		count_out(j, -1);
	if (rc != WW_OK) {
		ww_runner_free(*out);
		*out = NULL;
	}
	return rc;
}

void ww_spare_give(struct ww_judge *j, struct ww_runner *r)
{
	struct ww_run_result res;
	struct ww_err err = WW_ERR_INIT;
	count_out(j, -1);
	if (j->opts.target == WW_TARGET_CUDA && ww_runner_usable(r) && ww_runner_unload(r, &res, &err) == WW_OK &&
		res.kind == WW_RUN_OK) {
		put(j, r);
		return;
	}
	ww_runner_free(r);
	put_new(j);
}

static int wants_more(struct ww_judge *j)
{
	int most = j->opts.open_tasks < WW_TURNS_PRESENT ? j->opts.open_tasks : WW_TURNS_PRESENT;
	WW_LOCKED(&j->lock);
	int few = j->opts.target == WW_TARGET_CUDA && j->n_spares + j->runners_out < most;
	j->runners_out += few;
	return few;
}

void ww_spare_more(struct ww_judge *j)
{
	struct ww_runner *r = NULL;
	struct ww_run_facts facts;
	struct ww_err ignored = WW_ERR_INIT; /* the judgement tries again and reports why */
	if (!wants_more(j))
		return;
	int ready = start(j, &r, &ignored) == WW_OK && ww_runner_facts(r, &facts, &ignored) == WW_OK;
	count_out(j, -1);
	if (ready)
		put(j, r);
	else
		ww_runner_free(r);
}

void ww_spare_free_all(struct ww_judge *j)
{
	for (struct ww_runner *r; (r = pop(j));)
		ww_runner_free(r);
}
