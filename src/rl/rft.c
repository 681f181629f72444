/* rft.c - see rft.h. */
#include "rl/rft.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "rl/faults.h"
#include "rl/ppo.h"
#include "rl/recorded.h"
#include "train/data.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Counts of the filter. */
struct filter {
	const struct ww_recipe *o;
	int64_t seen, dropped, by[WW_FAULT_COUNT];
};

static enum ww_rc is_good(void *ctx, const struct ww_episode *e, int *keep, struct ww_err *err)
{
	struct filter *f = ctx;
	unsigned faults = ww_episode_faults(e, f->o->idle_turns);
	f->seen++;
	f->dropped += faults != 0;
	for (int i = 0; i < WW_FAULT_COUNT; i++)
		f->by[i] += faults >> i & 1;
	*keep = !faults;
	return WW_OK;
}

static void say_what_was_dropped(const struct filter *f, int64_t passed_over, const struct ww_train_hooks *hooks)
{
	ww_auto_str line = WW_STR_INIT(512);
	for (int i = 0; i < WW_FAULT_COUNT; i++)
		ww_str_addf(&line, "%s%s %" PRId64, i ? ", " : "", ww_fault_word((enum ww_fault)i), f->by[i]);
	ww_train_say(hooks,
		"data: %" PRId64 " of %" PRId64 " episodes are kept; faults of the others (one may have several): %s; %" PRId64
		" episodes without tokens, context or end are left out",
		f->seen - f->dropped, f->seen, line.p, passed_over);
}

/* Trajectories as sequences: each own token weighs 1 by the number of the episode's. */
static enum ww_rc make_data(const struct ww_recorded_set *s, struct ww_data **out, struct ww_err *err)
{
	struct ww_data *d;
	int64_t tokens = 0;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(d, 1, err));
	for (int64_t i = 0; i < s->n; i++)
		tokens += s->t[i].n;
	WW_TRY(WW_NEW(d->ids, tokens + 1, err));
	WW_TRY(WW_NEW(d->weight, tokens + 1, err));
	WW_TRY(WW_NEW(d->seqs, s->n + 1, err));
	for (int64_t i = 0; i < s->n; i++) {
		const struct ww_trajectory *t = &s->t[i];
		memcpy(d->ids + d->tokens, t->ids, (size_t)t->n * sizeof(*t->ids));
		for (int64_t k = 0; k < t->n; k++)
			d->weight[d->tokens + k] = t->own[k] ? (float)(1 / (double)t->own_n) : 0;
		d->seqs[d->count++] = (struct ww_seq){ d->tokens, t->n };
		d->tokens += t->n;
	}
	d->conversations = s->n;
	memcpy(d->hash, s->hash, sizeof(d->hash));
	*out = d;
out:
	if (rc != WW_OK)
		ww_data_free(d);
	return rc;
}

static enum ww_rc read_data(const struct ww_recipe *o, const char *paths, const struct ww_train_hooks *hooks,
	struct ww_data **out, struct ww_err *err)
{
	struct filter f = { .o = o };
	struct ww_recorded_set s = { 0 };
	struct ww_config config;
	char path[PATH_MAX];
	enum ww_rc rc;
	WW_CHECK(ww_fs_join(path, o->model, "config.json", err));
	WW_CHECK(ww_config_read(path, &config, err));
	struct ww_rl_read how = { .vocab = config.vocab_size,
		.held_out = o->held_out,
		.interrupted = hooks->interrupted,
		.keep = is_good,
		.ctx = &f };
	ww_train_stage(
		hooks, "reading the episodes%s", o->held_out ? ", comparing their tasks with the held-out sets" : "");
	WW_TRY(ww_rl_recorded_read(paths, &how, &s, err));
	say_what_was_dropped(&f, s.passed_over, hooks);
	if (!s.n)
		WW_TRY(ww_err_set(err, WW_ERR_USAGE,
			"none of %" PRId64 " episodes is good enough to learn from: %" PRId64 " earned no reward, %" PRId64
			" more had no tokens, context or end; sample more, or begin with a better policy",
			f.seen, f.by[WW_FAULT_REWARD], s.passed_over));
	WW_TRY(make_data(&s, out, err));
out:
	ww_recorded_set_release(&s);
	return rc;
}

enum ww_rc ww_rft_run(const struct ww_recipe *o, const json_t *values, const struct ww_rl_judges *judges,
	const struct ww_train_hooks *hooks, struct ww_train_result *out, struct ww_err *err)
{
	struct ww_recipe as_sft = *o;
	struct ww_data *data = NULL;
	char own[PATH_MAX];
	memset(out, 0, sizeof(*out));
	const struct ww_needed needed[] = { { "model", o->model }, { "output", o->output },
		{ "tasks, which it samples episodes of, or data, episodes that were recorded",
			o->tasks ? o->tasks : o->data } };
	WW_CHECK(ww_recipe_needs(o, needed, WW_ARRAY_LEN(needed), err));
	if (o->tasks && o->data)
		return ww_err_set(err, WW_ERR_USAGE,
			"stage rft has both tasks and data; it learns either from episodes that it samples, or from recorded ones");
	WW_CHECK(ww_fs_join(own, o->output, "episodes", err));
	if (o->tasks)
		WW_CHECK(ww_ppo_sample(o, judges, hooks, err));
	WW_CHECK(read_data(o, o->tasks ? own : o->data, hooks, &data, err));
	for (int64_t i = 0; i < data->count; i++) /* a row holds the longest */
		if (data->seqs[i].n - 1 > as_sft.sequence)
			as_sft.sequence = data->seqs[i].n - 1;
	enum ww_rc rc = ww_sft_run_on(&as_sft, values, data, hooks, out, err);
	ww_data_free(data);
	return rc;
}
