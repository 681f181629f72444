/* context.c - see context.h.
 *
 * The count is the provider's own as far as the last reply goes (`usage` of that call: prompt and completion together
 * are the conversation up to there), and the policy's estimate, which is on the high side, for what came after.  When
 * the context is nearly full, old outputs of tools are removed, because they are the largest part and the tool can be
 * called again; what the policy wrote stays.  Many are removed at once, and rarely: each compaction changes the prefix
 * that providers cache.
 *
 * Rejected: having the policy write a summary.  It costs a call, and nobody can tell what a summary leaves out.
 */
#include "agent/context.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { WHOLE_TURNS = 2, SHORT_BYTES = 256, BYTES_A_TOKEN = 4 };
static const char removed[] = "[output removed to make room: ";

void ww_context_note(struct ww_context *c, const struct ww_reply *r, size_t n)
{
	if (r->prompt_tokens > 0)
		*c = (struct ww_context){ r->prompt_tokens + r->completion_tokens, n };
}

int64_t ww_context_tokens(const struct ww_context *c, struct ww_policy *p, const struct ww_message *msgs, size_t n,
	const struct ww_tool_spec *tools, size_t n_tools)
{
	int64_t (*count)(struct ww_policy *, const struct ww_message *, size_t) = p->ops->count_tokens;
	if (!count || !count(p, msgs, n))
		return 0;
	if (c->upto)
		return c->counted + count(p, msgs + c->upto, n - c->upto);
	int64_t tools_tokens = 0;
	for (size_t i = 0; i < n_tools; i++)
		tools_tokens += (int64_t)(strlen(tools[i].name) + strlen(tools[i].description) + strlen(tools[i].schema)) / 3 +
			16;
	return count(p, msgs, n) + tools_tokens;
}

/* ---- Making room ------------------------------------------------------------------------------------------------- */

static size_t end_of_old(const struct ww_message *msgs, size_t n)
{
	int turns = 0;
	while (n > 0 && turns < WHOLE_TURNS)
		turns += msgs[--n].role == WW_ROLE_ASSISTANT;
	return n;
}

static int can_go(const struct ww_message *m)
{
	return m->role == WW_ROLE_TOOL && strlen(m->text) >= SHORT_BYTES &&
		strncmp(m->text, removed, sizeof(removed) - 1) != 0;
}

enum ww_rc ww_context_plan(
	const struct ww_message *msgs, size_t n, int64_t tokens, struct ww_episode_compaction *out, struct ww_err *err)
{
	size_t old = end_of_old(msgs, n);
	*out = (struct ww_episode_compaction){ 0 };
	if (!(out->call_ids = calloc(n + 1, sizeof(char *))))
		return ww_nomem(err);
	for (size_t i = 0; i < old && out->bytes < tokens * BYTES_A_TOKEN; i++) {
		if (!can_go(&msgs[i]))
			continue;
		if (!(out->call_ids[out->n_calls++] = strdup(msgs[i].call_id)))
			return ww_nomem(err);
		out->bytes += (int64_t)strlen(msgs[i].text);
	}
	return WW_OK;
}

void ww_context_release(struct ww_episode_compaction *c)
{
	for (size_t i = 0; i < c->n_calls; i++)
		free(c->call_ids[i]);
	free(c->call_ids);
	*c = (struct ww_episode_compaction){ 0 };
}

static enum ww_rc take_out(struct ww_message *m, struct ww_err *err)
{
	struct ww_str s = WW_STR_INIT(512);
	ww_str_addf(&s, "%s%zu bytes of %.64s; call it again where they are needed]", removed, strlen(m->text), m->tool);
	char *text = ww_str_take(&s);
	if (!text)
		return ww_nomem(err);
	free(m->text);
	m->text = text;
	return WW_OK;
}

enum ww_rc ww_context_apply(struct ww_context *c, struct ww_message *msgs, size_t n,
	const struct ww_episode_compaction *plan, struct ww_err *err)
{
	size_t k = 0;
	for (size_t i = 0; i < n && k < plan->n_calls; i++) {
		struct ww_message *m = &msgs[i];
		if (m->role != WW_ROLE_TOOL || strcmp(m->call_id, plan->call_ids[k]))
			continue;
		/* A token has at least a few bytes, so this never overstates what was freed. */
		if (i < c->upto)
			c->counted -= (int64_t)strlen(m->text) / BYTES_A_TOKEN;
		WW_CHECK(take_out(m, err));
		k++;
	}
	return WW_OK;
}
