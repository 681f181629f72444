/* message.c - messages own their strings, so that a conversation can outlive the policy and the episode it came from.
 */
#include "episode/message.h"

#include "base/err.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

static const char *const role_names[] = { "system", "user", "assistant", "tool" };

const char *ww_role_name(enum ww_role r) { return role_names[r]; }

int ww_role_of(const char *name) { return ww_word_at(name, role_names, WW_ARRAY_LEN(role_names)); }

void ww_message_release(struct ww_message *m)
{
	for (size_t i = 0; i < m->n_calls; i++)
		free(m->calls[i].id), free(m->calls[i].name), free(m->calls[i].arguments);
	free(m->calls), free(m->text), free(m->call_id), free(m->tool), free(m->data);
	free(m->reasoning), free(m->native);
	memset(m, 0, sizeof(*m));
}

void ww_reply_release(struct ww_reply *r)
{
	ww_message_release(&r->message);
	free(r->token_ids), free(r->logprobs), free(r->sampling_logprobs), free(r->context_ids);
	memset(r, 0, sizeof(*r));
}

/* strdup that keeps NULL; *ok becomes 0 out of memory. */
static char *dup_or_null(const char *s, int *ok)
{
	char *d = s ? strdup(s) : NULL;
	*ok &= !s || d;
	return d;
}

int ww_message_copy(struct ww_message *to, const struct ww_message *from)
{
	int ok = 1;
	*to = (struct ww_message){ .role = from->role, .is_error = from->is_error };
	to->text = dup_or_null(from->text ? from->text : "", &ok);
	to->call_id = dup_or_null(from->call_id, &ok);
	to->tool = dup_or_null(from->tool, &ok);
	to->data = dup_or_null(from->data, &ok);
	to->reasoning = dup_or_null(from->reasoning, &ok);
	to->native = dup_or_null(from->native, &ok);
	if (from->n_calls)
		ok &= (to->calls = calloc(from->n_calls, sizeof(*to->calls))) != NULL;
	for (size_t i = 0; to->calls && i < from->n_calls; i++, to->n_calls++) {
		to->calls[i].id = dup_or_null(from->calls[i].id, &ok);
		to->calls[i].name = dup_or_null(from->calls[i].name, &ok);
		to->calls[i].arguments = dup_or_null(from->calls[i].arguments, &ok);
	}
	if (ok)
		return WW_OK;
	ww_message_release(to);
	return WW_ERR_NOMEM;
}
