/* stats.c - counts and means over episodes, by policy and target. */
#include "episode/view.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { REWARDS = 4 };
static const double rewards[REWARDS] = { -1, 1, 2, 3 };

struct group {
	char *policy, *target; /* NULL in the sum of all */
	int64_t episodes, ended, correct;
	int64_t final[REWARDS], best[REWARDS]; /* how many ended with each */
	double sum_final, sum_best;
	int64_t turns, calls, malformed, verdicts, lost, compactions;
	double seconds;
	struct ww_episode_use use;
	json_t *reasons, *tools; /* name -> how often */
};

struct ww_episode_stats {
	struct group all, *groups;
	size_t n;
};

static void group_release(struct group *g)
{
	free(g->policy), free(g->target);
	json_decref(g->reasons);
	json_decref(g->tools);
}

struct ww_episode_stats *ww_episode_stats_new(void)
{
	struct ww_episode_stats *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->all.reasons = json_object();
	s->all.tools = json_object();
	return s;
}

void ww_episode_stats_free(struct ww_episode_stats *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		group_release(&s->groups[i]);
	group_release(&s->all);
	free(s->groups);
	free(s);
}

static struct group *group_of(struct ww_episode_stats *s, const struct ww_episode_header *h)
{
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(s->groups[i].policy, h->policy) && !strcmp(s->groups[i].target, h->target))
			return &s->groups[i];
	struct group *bigger = realloc(s->groups, (s->n + 1) * sizeof(*bigger));
	if (!bigger)
		return NULL;
	s->groups = bigger;
	struct group g = {
		.policy = strdup(h->policy), .target = strdup(h->target), .reasons = json_object(), .tools = json_object()
	};
	if (!g.policy || !g.target) {
		group_release(&g);
		return NULL;
	}
	s->groups[s->n] = g;
	return &s->groups[s->n++];
}

static void count_word(json_t *counts, const char *word)
{
	json_object_set_new(counts, word, json_integer(ww_json_int(counts, word, 0) + 1));
}

static void count_reward(int64_t *counts, double r)
{
	for (int i = 0; i < REWARDS; i++)
		counts[i] += rewards[i] == r;
}

static void count_messages(struct group *g, const struct ww_episode *e)
{
	for (size_t i = 0; i < e->n_messages; i++) {
		const struct ww_message *m = &e->messages[i].reply.message;
		g->turns += m->role == WW_ROLE_ASSISTANT;
		if (m->role != WW_ROLE_TOOL)
			continue;
		int malformed = m->data && !strcmp(m->data, "{\"malformed\":true}");
		g->calls++;
		g->malformed += malformed;
		if (!malformed) /* a malformed call may have any text as its name */
			count_word(g->tools, m->tool);
		json_t *inside = ww_episode_calls_inside(m), *one;
		size_t k;
		json_array_foreach(inside, k, one) {
			g->calls++;
			count_word(g->tools, ww_json_str(one, "name", "?"));
		}
		json_decref(inside);
	}
}

static void count(struct group *g, const struct ww_episode *e)
{
	struct ww_episode_use u = ww_episode_use_of(e);
	g->episodes++;
	g->ended += e->ended;
	g->correct += e->ended && *e->end.best;
	if (e->ended) {
		count_word(g->reasons, e->end.reason);
		count_reward(g->final, e->end.reward_final);
		count_reward(g->best, e->end.reward_best);
		g->sum_final += e->end.reward_final;
		g->sum_best += e->end.reward_best;
	}
	count_messages(g, e);
	g->verdicts += (int64_t)e->n_verdicts;
	g->lost += (int64_t)e->n_lost;
	g->compactions += (int64_t)e->n_compactions;
	g->seconds += e->seconds;
	g->use.usd += u.usd;
	g->use.gpu_s += u.gpu_s;
	g->use.prompt_tokens += u.prompt_tokens;
	g->use.completion_tokens += u.completion_tokens;
}

int ww_episode_stats_add(struct ww_episode_stats *s, const struct ww_episode *e, struct ww_err *err)
{
	struct group *g = group_of(s, &e->header);
	if (!g)
		return ww_nomem(err);
	count(g, e);
	count(&s->all, e);
	return WW_OK;
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static double mean(double sum, int64_t n) { return n ? sum / (double)n : 0; }

static json_t *by_reward(const int64_t *counts)
{
	json_t *o = json_object();
	for (int i = 0; i < REWARDS; i++) {
		char name[16];
		snprintf(name, sizeof(name), "%g", rewards[i]);
		json_object_set_new(o, name, json_integer(counts[i]));
	}
	return o;
}

static json_t *group_json(const struct group *g)
{
	json_t *o = json_pack("{s:I, s:I, s:I, s:o, s:o, s:f, s:f, s:O, s:O}", "episodes", (json_int_t)g->episodes, "ended",
		(json_int_t)g->ended, "with_solution", (json_int_t)g->correct, "reward_final", by_reward(g->final),
		"reward_best", by_reward(g->best), "mean_final", mean(g->sum_final, g->ended), "mean_best",
		mean(g->sum_best, g->ended), "reasons", g->reasons, "tools", g->tools);
	if (g->policy) {
		json_object_set_new(o, "policy", json_string(g->policy));
		json_object_set_new(o, "target", json_string(g->target));
	}
	json_object_update_new(o,
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I}", "turns", (json_int_t)g->turns, "calls",
			(json_int_t)g->calls, "malformed", (json_int_t)g->malformed, "verdicts", (json_int_t)g->verdicts, "lost",
			(json_int_t)g->lost, "compactions", (json_int_t)g->compactions, "seconds", g->seconds, "gpu_seconds",
			g->use.gpu_s, "usd", g->use.usd, "prompt_tokens", (json_int_t)g->use.prompt_tokens, "completion_tokens",
			(json_int_t)g->use.completion_tokens));
	return o;
}

json_t *ww_episode_stats_json(const struct ww_episode_stats *s)
{
	json_t *list = json_array();
	for (size_t i = 0; i < s->n; i++)
		json_array_append_new(list, group_json(&s->groups[i]));
	return json_pack("{s:o, s:o}", "all", group_json(&s->all), "groups", list);
}

static void add_line(const struct group *g, struct ww_str *out)
{
	ww_auto_str name = WW_STR_INIT(512), clean = WW_STR_INIT(38);
	if (g->policy)
		ww_str_addf(&name, "%s, %s", g->policy, g->target);
	else
		ww_str_adds(&name, "all");
	ww_str_add_line(&clean, name.p, 4096);
	ww_str_addf(out, "%-38s %8lld %6lld  %5lld %5lld %5lld %5lld  %6.2f %6.2f %6.1f %8.1f %9.4f\n", clean.p,
		(long long)g->episodes, (long long)g->ended, (long long)g->final[0], (long long)g->final[1],
		(long long)g->final[2], (long long)g->final[3], mean(g->sum_final, g->ended), mean(g->sum_best, g->ended),
		mean((double)g->turns, g->episodes), mean(g->seconds, g->episodes), mean(g->use.usd, g->episodes));
}

static void add_words(const char *title, const json_t *counts, struct ww_str *out)
{
	const char *word;
	json_t *n;
	ww_str_addf(out, "%s:", title);
	json_object_foreach((json_t *)counts, word, n) {
		ww_str_addc(out, ' ');
		ww_str_add_line(out, word, 40);
		ww_str_addf(out, " %lld", (long long)json_integer_value(n));
	}
	ww_str_addc(out, '\n');
}

void ww_episode_stats_text(const struct ww_episode_stats *s, struct ww_str *out)
{
	ww_str_addf(out, "%-38s %8s %6s  %5s %5s %5s %5s  %6s %6s %6s %8s %9s\n", "policy, target", "episodes", "ended",
		"-1", "1", "2", "3", "final", "best", "turns", "s", "USD");
	for (size_t i = 0; i < s->n; i++)
		add_line(&s->groups[i], out);
	if (s->n != 1)
		add_line(&s->all, out);
	add_words("ended by", s->all.reasons, out);
	add_words("tools", s->all.tools, out);
	ww_str_addf(out, "calls %lld, malformed %lld; verdicts %lld; lost calls of models %lld; compactions %lld\n",
		(long long)s->all.calls, (long long)s->all.malformed, (long long)s->all.verdicts, (long long)s->all.lost,
		(long long)s->all.compactions);
	ww_str_addf(out, "tokens %lld + %lld, USD %.4f, %.1f s on the device\n", (long long)s->all.use.prompt_tokens,
		(long long)s->all.use.completion_tokens, s->all.use.usd, s->all.use.gpu_s);
}
