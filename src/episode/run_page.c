/* run_page.c - the page of a run: what was asked, what came out, how it was found, and the kernels.
 *
 * The page is made from the run's directory alone, so it can be made again later. */
#include "base/json.h"
#include "episode/graph.h"
#include "episode/parts.h"
#include "episode/view.h"
#include "page/page.h"

#include <math.h>
#include <string.h>

static const char *file_name(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

/* The episode that judged the best solution last; the first where there is none. */
static const struct ww_episode *chosen(const struct ww_episode_run *r)
{
	const char *id = ww_json_str(r->verdict, "solution_id", "");
	for (size_t k = 0; *id && k < r->n; k++)
		if (json_equal(ww_episode_best_verdict(&r->episodes[k]), r->verdict))
			return &r->episodes[k];
	for (size_t k = 0; *id && k < r->n; k++)
		if (ww_episode_find_solution(&r->episodes[k], id))
			return &r->episodes[k];
	return r->episodes;
}

static void add_headline(struct ww_str *h, const struct ww_episode_run *r)
{
	const struct ww_episode *e = chosen(r);
	if (r->verdict) {
		ww_episode_html_verdict_line(h, "", r->verdict);
		return;
	}
	ww_str_adds(h, "<p class=\"bad\">No correct solution was found.</p>\n");
	for (size_t i = e->n_messages; i-- > 0;)
		if (e->messages[i].reply.message.role == WW_ROLE_ASSISTANT && *e->messages[i].reply.message.text) {
			ww_str_adds(h, "<p class=\"text\">The policy's last message: ");
			ww_page_text(h, e->messages[i].reply.message.text, 2000);
			ww_str_adds(h, "</p>\n");
			return;
		}
}

/* ---- The episodes ------------------------------------------------------------------------------------------------ */

static int turns_of(const struct ww_episode *e) { return e->n_messages ? e->messages[e->n_messages - 1].turn : 0; }

static void add_episode_row(struct ww_str *h, const struct ww_episode_run *r, size_t k)
{
	const struct ww_episode *e = &r->episodes[k];
	double us = ww_episode_time_us(ww_episode_best_verdict(e));
	ww_str_addf(h, "<tr%s><th>%zu</th><td>%d</td><td>%zu</td><td>%.1f</td><td>",
		e == chosen(r) ? " class=\"ours\"" : "", k + 1, turns_of(e), e->n_verdicts, e->seconds);
	ww_str_addf(h, isnan(us) ? "-" : "%.1f", us);
	ww_str_adds(h, "</td><td>");
	if (e->ended)
		ww_str_addf(h, "%g (best %g)", e->end.reward_final, e->end.reward_best);
	ww_str_adds(h, "</td><td>");
	ww_page_text(h, e->ended ? e->end.reason : "not ended", 40);
	ww_str_adds(h, "</td></tr>\n");
}

static void add_episodes(struct ww_str *h, const struct ww_episode_run *r)
{
	if (r->n < 2)
		return;
	ww_str_adds(h,
		"<h2>Episodes</h2>\n<table class=\"num\"><tr><th></th><th>turns</th><th>verdicts</th><th>s</th><th>device "
		"us</th>"
		"<th>reward</th><th>ended by</th></tr>\n");
	for (size_t k = 0; k < r->n; k++)
		add_episode_row(h, r, k);
	ww_str_adds(h, "</table>\n<p class=\"faint\">Bold: the episode of the best solution.</p>\n");
}

/* The policy's text in the message that asked for a verdict. */
static const char *words_of(const struct ww_episode *e, int turn)
{
	for (size_t i = 0; i < e->n_messages; i++)
		if (e->messages[i].turn == turn && e->messages[i].reply.message.role == WW_ROLE_ASSISTANT)
			return e->messages[i].reply.message.text;
	return "";
}

static void add_verdicts(struct ww_str *h, const struct ww_episode *e, const char *title)
{
	ww_str_adds(h, "<details><summary>");
	ww_page_text(h, title, 100);
	ww_str_adds(h, "</summary>\n");
	for (size_t i = 0; i < e->n_verdicts; i++) {
		const struct ww_episode_verdict *v = &e->verdicts[i];
		char before[64];
		snprintf(before, sizeof(before), "%.1f s, turn %d: ", v->t, v->turn);
		ww_episode_html_verdict_line(h, before, v->verdict);
		ww_str_adds(h, "<p class=\"faint\">");
		ww_page_text(h, strncmp(v->call_id, "final", 5) ? words_of(e, v->turn) : "closing judgement", 300);
		ww_str_adds(h, "</p>\n");
	}
	ww_str_adds(h, "</details>\n");
}

static void add_search(struct ww_str *h, const struct ww_episode_run *r)
{
	char title[64];
	ww_str_adds(h, "<h2>The search</h2>\n");
	ww_episode_html_curve(h, r->episodes, r->n, r->verdict);
	for (size_t k = 0; k < r->n; k++) {
		snprintf(title, sizeof(title), r->n > 1 ? "%zu verdicts of episode %zu" : "%zu verdicts",
			r->episodes[k].n_verdicts, k + 1);
		add_verdicts(h, &r->episodes[k], title);
	}
}

/* ---- The solution ------------------------------------------------------------------------------------------------ */

static void add_solution(struct ww_str *h, const struct ww_episode_run *r)
{
	const struct ww_episode *e = chosen(r);
	const struct ww_episode_solution *s = ww_episode_find_solution(e, ww_json_str(r->verdict, "solution_id", ""));
	json_auto_t *graph = ww_episode_graph(e);
	ww_str_adds(h, "<h2>The graph and what was fused</h2>\n");
	if (graph)
		ww_episode_html_graph(h, graph, s ? ww_episode_file_text(s, "plan.c") : NULL);
	else
		ww_str_adds(
			h, "<p>The policy did not ask for the graph (tool <code>inspect</code>), so it is not recorded.</p>\n");
	if (s)
		ww_str_adds(h, "<h2>The kernels</h2>\n");
	ww_episode_html_files(h, s);
}

/* Each launch beside its floor, what is in it and why (docs/optimize.md, "Why"). */
static void add_us(struct ww_str *h, const json_t *k, const char *key)
{
	double us = ww_json_num(k, key, NAN);
	ww_str_addf(h, isfinite(us) ? "<td>%.1f</td>" : "<td>-</td>", us);
}

static void add_explained_row(struct ww_str *h, const json_t *k)
{
	size_t i;
	json_t *n;
	ww_str_adds(h, "<tr><th>");
	ww_page_textf(h, "%s %s", ww_json_str(k, "kernel", "?"), ww_json_str(k, "what", "?"));
	ww_str_adds(h, "</th>");
	add_us(h, k, "us");
	add_us(h, k, "predicted_us");
	add_us(h, k, "floor_us");
	add_us(h, k, "eager_us");
	ww_str_adds(h, "<td>");
	json_array_foreach(json_object_get(k, "nodes"), i, n)
		ww_page_textf(h, "%s%s", i ? ", " : "", json_string_value(n));
	ww_page_textf(h, ". %s. %s.", ww_json_str(k, "why", ""), ww_json_str(k, "schedule", ""));
	json_array_foreach(json_object_get(k, "stores"), i, n)
		ww_page_textf(h, " Stores %s: %s.", ww_json_str(n, "buffer", "?"), ww_json_str(n, "why", ""));
	ww_str_adds(h, "</td></tr>\n");
}

static void add_explained(struct ww_str *h, const struct ww_episode_run *r)
{
	size_t i;
	json_t *k;
	if (!r->explained ||
		strcmp(ww_json_str(r->explained, "solution", ""), ww_json_str(r->verdict, "solution_id", "none")))
		return;
	ww_str_adds(h,
		"<h2>Where the time goes</h2>\n<table class=\"num\"><tr><th></th><th>us</th><th>predicted</th><th>floor</th>"
		"<th>PyTorch</th><th>what, and why together</th></tr>\n");
	json_array_foreach(json_object_get(r->explained, "kernels"), i, k)
		add_explained_row(h, k);
	ww_str_adds(h, "</table>\n");
}

/* ---- How it was made --------------------------------------------------------------------------------------------- */

static void add_versions(struct ww_str *h, const json_t *versions)
{
	ww_auto_str text = WW_STR_INIT(4096);
	const char *name;
	json_t *v;
	json_object_foreach((json_t *)versions, name, v)
		ww_str_addf(&text, "%s%s %s", text.len ? ", " : "", name, json_is_string(v) ? json_string_value(v) : "?");
	ww_page_fact(h, "versions", "%s", text.p);
}

/* As a shell would read it. */
static void add_command(struct ww_str *h, const json_t *command)
{
	ww_auto_str text = WW_STR_INIT(4096);
	json_t *word;
	size_t i;
	json_array_foreach((json_t *)command, i, word) {
		const char *w = json_is_string(word) ? json_string_value(word) : "?";
		int plain = *w && !w[strspn(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+@%-")];
		ww_str_adds(&text, i ? " " : "");
		ww_str_adds(&text, plain ? "" : "'");
		for (; *w; w++)
			ww_str_addf(&text, *w == '\'' ? "'\\''" : "%c", *w);
		ww_str_adds(&text, plain ? "" : "'");
	}
	ww_page_fact(h, "command", "%s", text.p);
}

static void add_made(struct ww_str *h, const struct ww_episode_run *r)
{
	const struct ww_episode_header *head = &r->episodes[0].header;
	struct ww_episode_use all = { 0 };
	for (size_t k = 0; k < r->n; k++) {
		struct ww_episode_use u = ww_episode_use_of(&r->episodes[k]);
		all.gpu_s += u.gpu_s, all.usd += u.usd;
		all.prompt_tokens += u.prompt_tokens, all.completion_tokens += u.completion_tokens;
	}
	ww_str_adds(h, "<h2>How it was made</h2>\n");
	ww_page_facts_begin(h);
	add_command(h, head->command);
	ww_page_fact(h, "machine", "%s, target %s", head->device, head->target);
	ww_page_fact(h, "policy", "%s, seed %llu", head->policy, (unsigned long long)head->seed);
	ww_page_fact(h, "rule", "%s", head->rule);
	ww_page_fact(h, "date", "%s", head->started);
	add_versions(h, head->versions);
	ww_page_fact(h, "used", "%.1f s of judging on the device", all.gpu_s);
	if (all.prompt_tokens || all.usd > 0)
		ww_page_fact(h, "the model used", "%lld + %lld tokens, $%.4f", (long long)all.prompt_tokens,
			(long long)all.completion_tokens, all.usd);
	ww_page_fact(h, "task", "%s, SHA-256 %.16s", head->task_path, head->task_id);
	ww_page_facts_end(h);
}

void ww_episode_run_html(const struct ww_episode_run *r, struct ww_str *h)
{
	const struct ww_episode_header *head = &r->episodes[0].header;
	char title[300];
	snprintf(title, sizeof(title), "%.150s on %.100s", file_name(head->task_path),
		*head->device ? head->device : head->target);
	ww_page_begin(h, title);
	add_headline(h, r);
	if (r->verdict)
		ww_episode_html_verdict(h, r->verdict);
	add_episodes(h, r);
	add_search(h, r);
	add_explained(h, r);
	add_solution(h, r);
	ww_str_adds(h, "<h2>The module</h2>\n");
	ww_page_code(h, file_name(head->task_path), r->source ? r->source : "", 1);
	add_made(h, r);
	ww_page_end(h);
}
