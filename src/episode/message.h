/* message.h - one message of a conversation, and a policy's reply with its tokens and log-probabilities.
 *
 * Strings are owned by the message (malloc'ed) unless a function says otherwise.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ww_err; /* src/base/err.h; functions return an enum ww_rc as int, 0 is success */

enum ww_role { WW_ROLE_SYSTEM, WW_ROLE_USER, WW_ROLE_ASSISTANT, WW_ROLE_TOOL };

struct ww_tool_call {
	char *id;        /* unique in the episode */
	char *name;      /* "verify" */
	char *arguments; /* JSON object as text, exactly as the policy wrote it */
};

struct ww_message {
	enum ww_role role;
	char *text;                 /* never NULL */
	struct ww_tool_call *calls; /* assistant only */
	size_t n_calls;
	char *reasoning; /* assistant only: its reasoning before the answer; may be NULL */
	/* assistant only: what its protocol wants back and the members above do not hold (signed thinking, its own call
	 * ids), as JSON text that only the policy which wrote it reads; may be NULL */
	char *native;
	char *call_id; /* tool only: which call this answers */
	char *tool;    /* tool only: its name */
	char *data;    /* tool only: the same result as JSON text for policies that are programs; may be NULL */
	int is_error;  /* tool only */
};

enum ww_finish { WW_FINISH_STOP, WW_FINISH_TOOL_CALLS, WW_FINISH_LENGTH, WW_FINISH_REFUSAL };

struct ww_reply {
	struct ww_message message; /* role ASSISTANT */
	enum ww_finish finish;
	size_t n_tokens;          /* of the reply, 0 where the policy has no tokens */
	int32_t *token_ids;       /* n_tokens, or NULL */
	float *logprobs;          /* at temperature 1, untruncated; n_tokens, or NULL */
	float *sampling_logprobs; /* of the distribution that was sampled; n_tokens, or NULL */
	/* The tokens before the reply: the first context_at tokens of the previous reply's context and tokens, then these.
	 * NULL: unknown. */
	int32_t *context_ids;
	size_t n_context;
	int64_t context_at;
	int64_t prompt_tokens, completion_tokens; /* 0 unknown */
	double usd;                               /* what this reply cost, 0 where no price is known */
};

/* A tool, as it is described to the policy. */
struct ww_tool_spec {
	const char *name, *description;
	const char *schema; /* JSON schema of the arguments object */
};

void ww_message_release(struct ww_message *m);
void ww_reply_release(struct ww_reply *r);
/* Deep copy; 0 or WW_ERR_NOMEM. */
int ww_message_copy(struct ww_message *to, const struct ww_message *from);
const char *ww_role_name(enum ww_role r); /* "assistant" */
int ww_role_of(const char *name);         /* enum ww_role; -1: there is none of that name */
