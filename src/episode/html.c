/* html.c - an episode as one page: its table and curve, then the conversation. */
#include "episode/view.h"

#include "base/json.h"
#include "episode/parts.h"
#include "page/page.h"

#include <string.h>

enum { TEXT_MAX_BYTES = 256 << 10 };

/* ---- The conversation -------------------------------------------------------------------------------------------- */

static void add_call(struct ww_str *out, const struct ww_tool_call *c)
{
	ww_auto_str title = WW_STR_INIT(400), body = WW_STR_INIT(4 << 20);
	json_t *o = json_loads(c->arguments, 0, NULL), *v;
	const char *key;
	ww_str_addf(&title, "call %.64s", c->name);
	json_object_foreach(o, key, v) {
		ww_str_addf(&body, "%s: ", key);
		if (json_is_string(v))
			ww_str_adds(&body, json_string_value(v));
		else
			ww_json_add(&body, v);
		ww_str_addc(&body, '\n');
		if (json_is_string(v) && json_string_length(v) < 60)
			ww_str_addf(&title, " %s", json_string_value(v));
	}
	ww_page_fold(out, title.p, json_is_object(o) ? body.p : c->arguments, 0);
	json_decref(o);
}

static void add_assistant(struct ww_str *out, const struct ww_episode_message *m)
{
	const struct ww_reply *r = &m->reply;
	ww_str_addf(out, "<h2 id=\"t%d\">turn %d <span class=\"faint\">%.1f s", m->turn, m->turn, m->t);
	if (r->completion_tokens)
		ww_str_addf(out, ", %lld + %lld tokens", (long long)r->prompt_tokens, (long long)r->completion_tokens);
	if (r->usd > 0)
		ww_str_addf(out, ", $%.4f", r->usd);
	ww_str_adds(out, "</span></h2>\n");
	if (r->message.reasoning) {
		ww_str_adds(out, "<details><summary class=\"faint\">reasoning</summary><p class=\"reasoning text\">");
		ww_page_text(out, r->message.reasoning, TEXT_MAX_BYTES);
		ww_str_adds(out, "</p></details>\n");
	}
	ww_str_adds(out, "<p class=\"text\">");
	ww_page_text(out, r->message.text, TEXT_MAX_BYTES);
	ww_str_adds(out, "</p>\n");
	for (size_t i = 0; i < r->message.n_calls; i++)
		add_call(out, &r->message.calls[i]);
}

/* Green is for what was found correct; an answer without a verdict has no colour. */
static const char *answer_class(const struct ww_message *m, const struct ww_episode_verdict *v)
{
	if (v)
		return strcmp(ww_json_str(v->verdict, "status", "?"), "ok") ? "bad" : "good";
	return m->is_error ? "bad" : "answer";
}

static void add_answer(struct ww_str *out, const struct ww_episode *e, const struct ww_message *m)
{
	const struct ww_episode_verdict *v = ww_episode_verdict_of(e, m->call_id);
	ww_auto_str title = WW_STR_INIT(600);
	ww_str_addf(&title, "%.64s", m->tool);
	ww_str_addf(out, "<div class=\"%s\">", answer_class(m, v));
	if (v) {
		ww_str_adds(&title, ": ");
		ww_episode_verdict_line(v->verdict, &title);
	}
	ww_page_fold(out, title.p, m->text, m->is_error);
	ww_str_adds(out, "</div>\n");
	for (size_t at = 0; (v = ww_episode_verdict_inside(e, m->call_id, &at));) {
		ww_str_reset(&title);
		ww_str_addf(&title, "\xe2\x80\xa2 %s: ", ww_episode_asked(v));
		ww_episode_html_verdict_line(out, title.p, v->verdict);
	}
}

static void add_head(struct ww_str *out, const struct ww_episode *e)
{
	const struct ww_episode_header *h = &e->header;
	struct ww_episode_use u = ww_episode_use_of(e);
	ww_page_begin(out, h->task_path);
	ww_page_facts_begin(out);
	ww_page_fact(out, "policy", "%s", h->policy);
	ww_page_fact(out, "device", "%s", h->device);
	ww_page_fact(out, "target", "%s", h->target);
	ww_page_fact(out, "rule", "%s", h->rule);
	ww_page_fact(out, "started", "%s", h->started);
	ww_page_fact(out, "end", "%s", e->ended ? e->end.reason : "not ended");
	if (e->ended)
		ww_page_fact(out, "reward", "%g (best of the episode %g)", e->end.reward_final, e->end.reward_best);
	ww_page_fact(out, "used", "%.1f s, %.1f s on the device, %lld + %lld tokens, $%.4f", e->seconds, u.gpu_s,
		(long long)u.prompt_tokens, (long long)u.completion_tokens, u.usd);
	ww_page_facts_end(out);
}

static void add_best(struct ww_str *out, const struct ww_episode *e, const json_t *best)
{
	ww_str_adds(out, "<h2>The best solution</h2>\n");
	if (best)
		ww_episode_html_verdict(out, best);
	else
		ww_str_adds(out, "<p>None was correct and timed.</p>\n");
	ww_episode_html_files(out, e->ended ? ww_episode_find_solution(e, e->end.best) : NULL);
	ww_str_adds(out, "<h2>The search</h2>\n");
	ww_episode_html_curve(out, e, 1, best);
}

void ww_episode_html(const struct ww_episode *e, struct ww_str *out)
{
	add_head(out, e);
	add_best(out, e, ww_episode_best_verdict(e));
	for (size_t i = 0; i < e->n_messages; i++) {
		const struct ww_message *m = &e->messages[i].reply.message;
		if (m->role == WW_ROLE_ASSISTANT)
			add_assistant(out, &e->messages[i]);
		else if (m->role == WW_ROLE_TOOL)
			add_answer(out, e, m);
		else
			ww_page_fold(out, ww_role_name(m->role), m->text, 0);
	}
	ww_page_end(out);
}
