/* answers.c - see answers.h. */
#include "agent/answers.h"

#include <string.h>

static const struct ww_tool_call *call_of(const struct ww_episode *e, const char *id)
{
	for (size_t i = 0; i < e->n_messages; i++) {
		const struct ww_message *m = &e->messages[i].reply.message;
		for (size_t k = 0; k < m->n_calls; k++)
			if (!strcmp(m->calls[k].id, id))
				return &m->calls[k];
	}
	return NULL;
}

enum ww_rc ww_answers_find(
	const struct ww_episode *e, const struct ww_tool_call *call, const struct ww_message **out, struct ww_err *err)
{
	const struct ww_tool_call *was = call_of(e, call->id);
	*out = NULL;
	for (size_t i = 0; i < e->n_messages; i++) {
		const struct ww_message *m = &e->messages[i].reply.message;
		if (m->role == WW_ROLE_TOOL && !strcmp(m->call_id, call->id))
			*out = m;
	}
	if (was && *out && !strcmp(was->name, call->name) && !strcmp(was->arguments, call->arguments))
		return WW_OK;
	return ww_err_set(err, WW_ERR_USAGE,
		"the recorded answers are of another run: they hold %s call %s (%.40s here); name the answers of this run, made "
		"with the same weights",
		was ? "another" : "no", call->id, call->name);
}

const struct ww_episode_verdict *ww_answers_verdict(
	const struct ww_episode *e, const char *call_id, const char *solution)
{
	for (size_t i = e->n_verdicts; i-- > 0;)
		if (!strcmp(e->verdicts[i].call_id, call_id) && !strcmp(e->verdicts[i].solution, solution))
			return &e->verdicts[i];
	return NULL;
}

int ww_answers_is_of(const struct ww_episode_verdict *v, const char *call_id)
{
	size_t n = strlen(call_id);
	return !strncmp(v->call_id, call_id, n) && (!v->call_id[n] || v->call_id[n] == '.');
}
