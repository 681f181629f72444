/* observe.c - see observe.h. */
#include "rl/observe.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void ww_observed_release(struct ww_observed *o)
{
	json_decref(o->tools);
	json_decref(o->after_failed);
	json_decref(o->seen);
	*o = (struct ww_observed){ 0 };
}

/* 0..3 for rewards -1, 1, 2, 3; 4: another. */
static int milestone_of(double reward)
{
	return reward == -1 ? 0 : reward >= 1 && reward <= 3 && reward == floor(reward) ? (int)reward : 4;
}

double ww_share_of(int64_t n, int64_t of) { return of ? (double)n / (double)of : 0; }

static void count(json_t **table, const char *key)
{
	if (!*table)
		*table = json_object();
	json_object_set_new(*table, key, json_integer(ww_json_int(*table, key, 0) + 1));
}

/* A verdict that came back to the policy and was not right. */
static int is_failure(const struct ww_message *m)
{
	if (m->role != WW_ROLE_TOOL || !m->data || (strcmp(m->tool, "verify") && strcmp(m->tool, "compile")))
		return 0;
	json_auto_t *v = json_loads(m->data, 0, NULL);
	if (!json_is_string(json_object_get(v, "status")))
		return 0;
	return strcmp(ww_json_str(v, "status", ""), "ok") || (!strcmp(m->tool, "verify") && !ww_json_bool(v, "correct", 0));
}

/* The tool that is called first after message i: the next call of the same reply, or of the next one. */
static const char *next_tool(const struct ww_episode *e, size_t i)
{
	const struct ww_message *asked = NULL;
	size_t answered = 0;
	for (size_t k = 0; k <= i; k++) {
		const struct ww_message *m = &e->messages[k].reply.message;
		answered = m->role == WW_ROLE_ASSISTANT ? 0 : answered + (m->role == WW_ROLE_TOOL);
		asked = m->role == WW_ROLE_ASSISTANT ? m : asked;
	}
	if (asked && answered < asked->n_calls)
		return asked->calls[answered].name;
	for (size_t k = i + 1; k < e->n_messages; k++) {
		const struct ww_message *m = &e->messages[k].reply.message;
		if (m->role == WW_ROLE_ASSISTANT)
			return m->n_calls ? m->calls[0].name : "end";
	}
	return "end";
}

static int is_invalid(const struct ww_message *m)
{
	return m->role == WW_ROLE_TOOL && m->is_error && m->data && strstr(m->data, "\"malformed\"");
}

static void observe_messages(struct ww_observed *o, const struct ww_episode *e)
{
	int cut = !strcmp(e->end.reason, "context");
	for (size_t i = 0; i < e->n_messages; i++) {
		const struct ww_reply *r = &e->messages[i].reply;
		const struct ww_message *m = &r->message;
		if (m->role == WW_ROLE_ASSISTANT) {
			o->turns++;
			cut |= r->finish == WW_FINISH_LENGTH;
		}
		for (size_t k = 0; k < m->n_calls; k++, o->calls++)
			count(&o->tools, m->calls[k].name);
		o->invalid += is_invalid(m);
		if (is_failure(m)) {
			o->failed++;
			count(&o->after_failed, next_tool(e, i));
		}
	}
	o->cut += cut;
}

static void observe_closing(struct ww_observed *o, const struct ww_episode *e, const struct ww_episode_verdict *v)
{
	char key[160];
	snprintf(key, sizeof(key), "%.64s %.64s", e->header.task_id, v->solution);
	if (!o->seen)
		o->seen = json_object();
	o->solutions++;
	o->duplicates += json_object_get(o->seen, key) != NULL;
	json_object_set_new(o->seen, key, json_true());
}

void ww_observe(struct ww_observed *o, const struct ww_episode *e)
{
	const struct ww_episode_verdict *closing = NULL;
	o->episodes++;
	o->milestones[milestone_of(e->end.reward_final)]++;
	observe_messages(o, e);
	for (size_t i = 0; i < e->n_verdicts; i++) {
		o->verdicts++;
		o->disturbed += ww_json_bool(e->verdicts[i].verdict, "disturbed", 0);
		if (!strcmp(e->verdicts[i].call_id, "final"))
			closing = &e->verdicts[i];
	}
	if (closing)
		observe_closing(o, e, closing);
}
