/* faults.c - see faults.h.
 *
 * Calls are compared as they were recorded: two in a row are the same where name, arguments and answer are, whether in
 * one reply or in two.  A reply changes a file where one of its calls wrote one, where the shell left one, or where a
 * new solution follows it (files as blocks of code, in the compact form).
 */
#include "rl/faults.h"
#include "base/json.h"

#include <string.h>

static const char *const words[] = {
#define FAULT(name, word, what) word,
	WW_FAULTS(FAULT)
#undef FAULT
};

const char *ww_fault_word(enum ww_fault f) { return words[f]; }

static const struct ww_message *message(const struct ww_episode *e, size_t i) { return &e->messages[i].reply.message; }

/* A tool's answer, and the call that it answers. */
struct answered {
	const struct ww_tool_call *call;
	const struct ww_message *answer;
	int turn;
};

/* The next answer from message *i on; 0: there is none. */
static int next_answered(const struct ww_episode *e, size_t *i, struct answered *out)
{
	for (; *i < e->n_messages; ++*i) {
		const struct ww_message *m = message(e, *i);
		if (m->role != WW_ROLE_TOOL)
			continue;
		*out = (struct answered){ NULL, m, e->messages[*i].turn };
		for (size_t k = *i; k-- > 0 && !out->call;)
			for (size_t c = 0; c < message(e, k)->n_calls; c++)
				if (!strcmp(message(e, k)->calls[c].id, m->call_id))
					out->call = &message(e, k)->calls[c];
		++*i;
		if (out->call)
			return 1;
	}
	return 0;
}

static int has_repeated_call(const struct ww_episode *e)
{
	struct answered a, b = { NULL };
	for (size_t i = 0; next_answered(e, &i, &a); b = a)
		if (b.call && !strcmp(a.call->name, b.call->name) && !strcmp(a.call->arguments, b.call->arguments) &&
			!strcmp(a.answer->text, b.answer->text))
			return 1;
	return 0;
}

static int is_closing(const struct ww_episode_verdict *v) { return !strncmp(v->call_id, "final", 5); }

static int was_reverified(const struct ww_episode *e)
{
	const struct ww_episode_verdict *before = NULL;
	for (size_t i = 0; i < e->n_verdicts; i++) {
		const struct ww_episode_verdict *v = &e->verdicts[i];
		if (is_closing(v))
			continue;
		if (before && !strcmp(before->solution, v->solution) && !strcmp(before->depth, v->depth))
			return 1;
		before = v;
	}
	return 0;
}

static int is_invalid(const struct ww_message *m)
{
	return m->role == WW_ROLE_TOOL && m->is_error && m->data && strstr(m->data, "\"malformed\"");
}

static int has_invalid_call(const struct ww_episode *e)
{
	for (size_t i = 0; i < e->n_messages; i++)
		if (is_invalid(message(e, i)))
			return 1;
	return 0;
}

static int wrote(const struct answered *a)
{
	static const char *const writers[] = { "write", "edit", "multi_edit" };
	if (ww_word_at(a->call->name, writers, WW_ARRAY_LEN(writers)) >= 0)
		return !a->answer->is_error;
	if (!a->answer->data || strncmp(a->call->name, "bash", 4))
		return 0;
	json_auto_t *v = json_loads(a->answer->data, 0, NULL);
	return json_object_size(json_object_get(v, "files")) > 0;
}

static int turn_changed(const struct ww_episode *e, int turn)
{
	struct answered a;
	for (size_t i = 0; next_answered(e, &i, &a);)
		if (a.turn == turn && wrote(&a))
			return 1;
	for (size_t i = 0; i < e->n_solutions; i++)
		if (e->solutions[i].turn == turn)
			return 1;
	return 0;
}

static int is_idle(const struct ww_episode *e, int64_t most)
{
	int64_t idle = 0;
	int turns = e->n_messages ? e->messages[e->n_messages - 1].turn : 0;
	for (int turn = 1; most && turn <= turns; turn++) {
		idle = turn_changed(e, turn) ? 0 : idle + 1;
		if (idle > most)
			return 1;
	}
	return 0;
}

unsigned ww_episode_faults(const struct ww_episode *e, int64_t idle_turns)
{
	return (unsigned)!(e->end.reward_final > 0) << WW_FAULT_REWARD |
		(unsigned)has_repeated_call(e) << WW_FAULT_REPEATED | (unsigned)was_reverified(e) << WW_FAULT_REVERIFIED |
		(unsigned)is_idle(e, idle_turns) << WW_FAULT_IDLE | (unsigned)has_invalid_call(e) << WW_FAULT_INVALID;
}
