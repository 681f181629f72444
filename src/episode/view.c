/* view.c - an episode on a terminal, and what its other views share.
 *
 * The text of an episode comes from models, compilers and candidates.  ww_str_add_bounded() and ww_str_add_line() take
 * control characters out of it, so that it cannot move the cursor, change colours or forge a line of ours. */
#include "episode/view.h"

#include "base/json.h"
#include "judge/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_BYTES = 1200, ARGUMENT_BYTES = 160 };

const struct ww_episode_verdict *ww_episode_verdict_of(const struct ww_episode *e, const char *call_id)
{
	for (size_t i = 0; i < e->n_verdicts; i++)
		if (!strcmp(e->verdicts[i].call_id, call_id))
			return &e->verdicts[i];
	return NULL;
}

void ww_episode_verdict_line(const json_t *v, struct ww_str *out)
{
	ww_auto_str flags = WW_STR_INIT(256);
	double us = ww_json_num(json_object_get(v, "time"), "device_us", NAN);
	ww_str_add_line(out, ww_json_str(v, "status", "?"), 40);
	if (!ww_json_bool(v, "correct", 0))
		return;
	if (!isnan(us))
		ww_str_addf(out, ", %.1f us", us);
	for (int b = 0; b < WW_BASE_COUNT; b++) {
		const char *name = ww_baseline_name((enum ww_baseline)b);
		double mid = ww_json_num(json_object_get(json_object_get(v, "speedup"), name), "mid", NAN);
		if (!isnan(mid))
			ww_str_addf(out, ", %.2fx %s", mid, name);
	}
	ww_str_addf(out, ", reward %g", ww_json_num(v, "reward", -1));
	ww_verdict_json_add_flag_names(v, &flags);
	if (flags.len)
		ww_str_addf(out, " (%s)", flags.p);
}

const struct ww_episode_verdict *ww_episode_verdict_inside(const struct ww_episode *e, const char *call_id, size_t *at)
{
	size_t n = strlen(call_id);
	while (*at < e->n_verdicts) {
		const struct ww_episode_verdict *v = &e->verdicts[(*at)++];
		if (!strncmp(v->call_id, call_id, n) && v->call_id[n] == '.')
			return v;
	}
	return NULL;
}

const char *ww_episode_asked(const struct ww_episode_verdict *v)
{
	return strcmp(v->depth, "compile") ? "verify" : "compile";
}

json_t *ww_episode_calls_inside(const struct ww_message *m)
{
	if (m->role != WW_ROLE_TOOL || !m->data || !strstr(m->tool, "bash") || !strstr(m->data, "\"calls\":"))
		return NULL;
	json_t *data = json_loads(m->data, 0, NULL), *calls = json_incref(json_object_get(data, "calls"));
	json_decref(data);
	return calls;
}

/* Profiles say in their data how long they held the device. */
static double profile_s(const struct ww_message *m)
{
	double s = 0;
	json_t *inside = ww_episode_calls_inside(m), *one;
	size_t i;
	json_array_foreach(inside, i, one)
		s += ww_json_num(one, "device_seconds", 0);
	json_decref(inside);
	if (m->role != WW_ROLE_TOOL || !m->data || strcmp(m->tool, "profile"))
		return s;
	json_auto_t *data = json_loads(m->data, 0, NULL);
	s += ww_json_num(data, "device_seconds", 0);
	return s;
}

struct ww_episode_use ww_episode_use_of(const struct ww_episode *e)
{
	struct ww_episode_use u = { 0 };
	for (size_t i = 0; i < e->n_messages; i++) {
		u.usd += e->messages[i].reply.usd;
		u.prompt_tokens += e->messages[i].reply.prompt_tokens;
		u.completion_tokens += e->messages[i].reply.completion_tokens;
		u.gpu_s += profile_s(&e->messages[i].reply.message);
	}
	for (size_t i = 0; i < e->n_lost; i++) {
		u.usd += e->lost[i].usd;
		u.prompt_tokens += e->lost[i].prompt_tokens;
		u.completion_tokens += e->lost[i].completion_tokens;
	}
	for (size_t i = 0; i < e->n_verdicts; i++) {
		const json_t *s = json_object_get(e->verdicts[i].verdict, "seconds");
		u.gpu_s += ww_json_num(s, "verify", 0) + ww_json_num(s, "time", 0);
	}
	return u;
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

struct view {
	const struct ww_episode *e;
	const struct ww_episode_show *how;
	struct ww_str *out;
};

static void paint(const struct view *v, const char *code)
{
	if (v->how->color)
		ww_str_addf(v->out, "\033[%sm", code);
}

/* Each line behind a margin. */
static void add_block(const struct view *v, const char *margin, const char *text, size_t max_bytes)
{
	ww_auto_str clean = WW_STR_INIT((size_t)1 << 30);
	ww_str_add_bounded(&clean, text, strlen(text), v->how->full ? (size_t)1 << 29 : max_bytes);
	for (const char *p = clean.p; *p;) {
		size_t n = strcspn(p, "\n");
		ww_str_adds(v->out, margin);
		ww_str_add(v->out, p, n);
		ww_str_addc(v->out, '\n');
		p += n + (p[n] == '\n');
	}
}

static void add_line(const struct view *v, const char *text, size_t max_bytes)
{
	ww_str_add_line(v->out, text, max_bytes);
	ww_str_addc(v->out, '\n');
}

static void add_header(const struct view *v)
{
	const struct ww_episode_header *h = &v->e->header;
	ww_str_adds(v->out, "task    ");
	add_line(v, h->task_path, 300);
	ww_str_adds(v->out, "policy  ");
	add_line(v, h->policy, 300);
	ww_str_adds(v->out, "on      ");
	add_line(v, h->device, 300);
	ww_str_adds(v->out, "target ");
	ww_str_add_line(v->out, h->target, 40);
	ww_str_adds(v->out, ", rule ");
	ww_str_add_line(v->out, h->rule, 40);
	ww_str_addf(v->out, ", seed %llu, started ", (unsigned long long)h->seed);
	add_line(v, h->started, 40);
}

/* A call in one line; what was written into a file is text, not an escaped string. */
static void add_call(const struct view *v, const struct ww_tool_call *c)
{
	json_t *o = json_loads(c->arguments, 0, NULL), *value;
	const char *key;
	paint(v, "36");
	ww_str_adds(v->out, "  > ");
	ww_str_add_line(v->out, c->name, 64);
	paint(v, "0");
	if (!json_is_object(o)) {
		ww_str_addc(v->out, ' ');
		add_line(v, *c->arguments ? c->arguments : "{}", ARGUMENT_BYTES);
	} else {
		ww_auto_str line = WW_STR_INIT(1 << 16);
		json_object_foreach(o, key, value)
			if (!json_is_string(value) || json_string_length(value) < 80) {
				ww_str_addf(&line, " %s=", key);
				ww_json_add(&line, value);
			}
		add_line(v, line.p, 400);
		json_object_foreach(o, key, value)
			if (json_is_string(value) && json_string_length(value) >= 80)
				add_block(v, "    | ", json_string_value(value), SHORT_BYTES);
	}
	json_decref(o);
}

static void add_assistant(const struct view *v, const struct ww_episode_message *m)
{
	const struct ww_reply *r = &m->reply;
	paint(v, "1");
	ww_str_addf(v->out, "\nturn %d", m->turn);
	paint(v, "0");
	ww_str_addf(v->out, "  %.1f s", m->t);
	if (r->completion_tokens)
		ww_str_addf(v->out, "  %lld + %lld tokens", (long long)r->prompt_tokens, (long long)r->completion_tokens);
	if (r->usd > 0)
		ww_str_addf(v->out, "  $%.4f", r->usd);
	if (r->finish == WW_FINISH_LENGTH || r->finish == WW_FINISH_REFUSAL)
		ww_str_adds(v->out, r->finish == WW_FINISH_LENGTH ? "  cut off by length" : "  refused");
	ww_str_addc(v->out, '\n');
	if (r->message.reasoning) {
		paint(v, "2");
		add_block(v, "  . ", r->message.reasoning, SHORT_BYTES);
		paint(v, "0");
	}
	add_block(v, "  ", r->message.text, SHORT_BYTES);
	for (size_t i = 0; i < r->message.n_calls; i++)
		add_call(v, &r->message.calls[i]);
}

static void add_answer(const struct view *v, const struct ww_message *m)
{
	const struct ww_episode_verdict *verdict = ww_episode_verdict_of(v->e, m->call_id);
	paint(v, m->is_error ? "31" : "32");
	ww_str_adds(v->out, "  < ");
	ww_str_add_line(v->out, m->tool, 64);
	ww_str_adds(v->out, m->is_error ? " (error)" : "");
	paint(v, "0");
	if (verdict) {
		ww_str_adds(v->out, ": ");
		ww_episode_verdict_line(verdict->verdict, v->out);
	}
	ww_str_addc(v->out, '\n');
	if (!verdict || !ww_json_bool(verdict->verdict, "correct", 0) || v->how->full)
		add_block(v, "    ", m->text, verdict ? SHORT_BYTES : 600);
	const struct ww_episode_verdict *inside;
	for (size_t at = 0; (inside = ww_episode_verdict_inside(v->e, m->call_id, &at));) {
		ww_str_addf(v->out, "    . %s: ", ww_episode_asked(inside));
		ww_episode_verdict_line(inside->verdict, v->out);
		ww_str_addc(v->out, '\n');
	}
}

static void add_between(const struct view *v, int turn)
{
	for (size_t i = 0; i < v->e->n_lost; i++)
		if (v->e->lost[i].turn == turn) {
			ww_str_adds(v->out, "\n  a call was lost: ");
			add_line(v, v->e->lost[i].why, 300);
		}
	for (size_t i = 0; i < v->e->n_compactions; i++)
		if (v->e->compactions[i].turn == turn)
			ww_str_addf(v->out, "\n  %zu outputs of tools, %lld bytes, were removed from the context\n",
				v->e->compactions[i].n_calls, (long long)v->e->compactions[i].bytes);
}

static void add_end(const struct view *v)
{
	const struct ww_episode *e = v->e;
	struct ww_episode_use u = ww_episode_use_of(e);
	ww_str_addc(v->out, '\n');
	for (size_t i = 0; i < e->n_verdicts; i++)
		if (!strncmp(e->verdicts[i].call_id, "final", 5)) {
			ww_str_addf(v->out, "%s: ",
				strcmp(e->verdicts[i].call_id, "final") ? "closing judgement of the best" : "closing judgement");
			ww_episode_verdict_line(e->verdicts[i].verdict, v->out);
			ww_str_addc(v->out, '\n');
		}
	paint(v, "1");
	if (e->ended) {
		ww_str_adds(v->out, "ended: ");
		ww_str_add_line(v->out, e->end.reason, 40);
		ww_str_addf(v->out, ", reward %g, best %g", e->end.reward_final, e->end.reward_best);
	} else {
		ww_str_adds(v->out, "not ended: interrupted; `optimize` with the same -o resumes it");
	}
	paint(v, "0");
	ww_str_addf(v->out, "; %.1f s, %.1f s of judging on the device", e->seconds, u.gpu_s);
	if (u.prompt_tokens)
		ww_str_addf(v->out, ", %lld + %lld tokens", (long long)u.prompt_tokens, (long long)u.completion_tokens);
	if (u.usd > 0)
		ww_str_addf(v->out, ", $%.4f", u.usd);
	ww_str_addc(v->out, '\n');
}

void ww_episode_text(const struct ww_episode *e, const struct ww_episode_show *how, struct ww_str *out)
{
	struct view v = { e, how, out };
	add_header(&v);
	for (size_t i = 0; i < e->n_messages; i++) {
		const struct ww_episode_message *m = &e->messages[i];
		if (m->reply.message.role == WW_ROLE_ASSISTANT) {
			add_between(&v, m->turn - 1);
			add_assistant(&v, m);
		} else if (m->reply.message.role == WW_ROLE_TOOL) {
			add_answer(&v, &m->reply.message);
		} else if (how->full) {
			ww_str_addf(out, "\n%s\n", ww_role_name(m->reply.message.role));
			add_block(&v, "  ", m->reply.message.text, SHORT_BYTES);
		}
	}
	add_between(&v, e->n_messages ? e->messages[e->n_messages - 1].turn : 0);
	add_end(&v);
}
