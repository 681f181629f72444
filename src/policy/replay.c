/* replay.c - a policy that repeats the messages of a recorded episode.
 *
 * Which message comes next follows from how many assistant messages the conversation holds already, so an instance
 * has no state and an interrupted replay resumes like any other episode.  The answers of the tools are ignored: the
 * point of a replay is to get the same calls, hence the same solutions, whatever today's timings are.  When the
 * recording ends without a submit the reply has no tool calls, which ends the episode.
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include "episode/episode.h"
#include "policy/policy.h"

struct replay {
	struct ww_policy base;
	struct ww_episode episode;
};

static int copy_array(void *to, const void *from, size_t bytes)
{
	if (!from)
		return 1;
	void *p = malloc(bytes ? bytes : 1);
	if (!p)
		return 0;
	memcpy(p, from, bytes);
	*(void **)to = p;
	return 1;
}

static int copy_reply(struct ww_reply *to, const struct ww_reply *from)
{
	*to = (struct ww_reply){ .finish = from->finish,
		.n_tokens = from->n_tokens,
		.n_context = from->n_context,
		.context_at = from->context_at,
		.prompt_tokens = from->prompt_tokens,
		.completion_tokens = from->completion_tokens };
	if (ww_message_copy(&to->message, &from->message) == WW_OK &&
		copy_array(&to->token_ids, from->token_ids, from->n_tokens * sizeof(*from->token_ids)) &&
		copy_array(&to->context_ids, from->context_ids, from->n_context * sizeof(*from->context_ids)) &&
		copy_array(&to->logprobs, from->logprobs, from->n_tokens * sizeof(*from->logprobs)) &&
		copy_array(&to->sampling_logprobs, from->sampling_logprobs, from->n_tokens * sizeof(float)))
		return 1;
	ww_reply_release(to);
	return 0;
}

static int replay_next(struct ww_policy *self, const struct ww_ask *ask, struct ww_reply *out, struct ww_err *err)
{
	struct replay *r = (struct replay *)self;
	size_t said = 0;
	for (size_t i = 0; i < ask->n; i++)
		said += ask->msgs[i].role == WW_ROLE_ASSISTANT;
	for (size_t i = 0; i < r->episode.n_messages; i++) {
		const struct ww_reply *m = &r->episode.messages[i].reply;
		if (m->message.role != WW_ROLE_ASSISTANT || said-- > 0)
			continue;
		return copy_reply(out, m) ? WW_OK : ww_nomem(err);
	}
	out->message.role = WW_ROLE_ASSISTANT;
	out->message.text = strdup("The recording ends here.");
	out->finish = WW_FINISH_STOP;
	return out->message.text ? WW_OK : ww_nomem(err);
}

static int64_t replay_count(struct ww_policy *self, const struct ww_message *msgs, size_t n) { return 0; }

static void replay_free(struct ww_policy *self)
{
	struct replay *r = (struct replay *)self;
	ww_episode_release(&r->episode);
	free(r);
}

static const struct ww_policy_ops replay_ops = {
	.name = "replay", .next = replay_next, .count_tokens = replay_count, .free = replay_free
};

int ww_replay_new(const char *episode_path, struct ww_policy **out, struct ww_err *err)
{
	struct replay *r;
	WW_CHECK(WW_NEW(r, 1, err));
	r->base.ops = &replay_ops;
	int rc = ww_episode_read(episode_path, &r->episode, err);
	if (rc != WW_OK) {
		free(r);
		return rc;
	}
	*out = &r->base;
	return WW_OK;
}
