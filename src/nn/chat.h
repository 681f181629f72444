/* chat.h - messages to the text that a chat model was trained on, and its answers back to messages.
 *
 * Messages are an array in the form of the chat completions API:
 *     {"role": "system|user|assistant|tool", "content": text or [{"type": "text", "text": ..}],
 *      "tool_calls": [{"function": {"name", "arguments": JSON text}}], "reasoning_content": text}
 * the last two for an assistant only, both optional.  Tools are an array of {"type": "function", "function": {...}}.
 */
#pragma once

#include "nn/config.h"
#include "nn/tokenizer.h"

#include <jansson.h>

/* PLAIN: ChatML without Qwen3's block for reasoning, which there the last turn has even where it is empty: for
 * tokenizers that have no token <think>, as Qwen2.5's and our own. */
enum ww_chat_format { WW_CHAT_CHATML, WW_CHAT_LLAMA3, WW_CHAT_CHATML_PLAIN };

/* Which form a tokenizer's special tokens belong to; neither is WW_ERR_USAGE. */
enum ww_rc ww_chat_detect(const struct ww_tok *t, enum ww_chat_format *out, struct ww_err *err) WW_MUST_CHECK;

/* The rendered text in parts.  special: markup, where special tokens count; learn: what the assistant says, with the
 * token that ends its turn: the part that training puts weight on. */
struct ww_chat_part {
	size_t end;
	int special, learn;
};
struct ww_chat {
	struct ww_str text;
	struct ww_chat_part *parts;
	size_t count, cap;
};
void ww_chat_init(struct ww_chat *c, size_t max_bytes);
void ww_chat_release(struct ww_chat *c);

/* tools may be NULL.  generate: end with the header of an assistant's turn. */
enum ww_rc ww_chat_render(enum ww_chat_format f, const json_t *messages, const json_t *tools, int generate,
	struct ww_chat *out, struct ww_err *err) WW_MUST_CHECK;
/* Append the ids and, unless learn is NULL, one byte an id that says whether the assistant said it.  What the assistant
 * says is encoded by itself, as it was when it was sampled, so a merge never crosses the border of its turn. */
enum ww_rc ww_chat_encode(struct ww_tok *t, const struct ww_chat *c, struct ww_ids *ids, struct ww_str *learn,
	struct ww_err *err) WW_MUST_CHECK;
/* A conversation as the model sees it: rendered and encoded.  An assistant's message with "tokens": {"ids": [...]} was
 * sampled as these: they stand for all that it would be encoded as, and its other members are not looked at.  Where
 * they do not end with a token that ends a turn (the reply was cut off), that token is added; nobody said it, so its
 * `learn` is 0.  So is that of all of an assistant's message with "learn": false, which is context alone.  Appends to
 * ids and, unless it is NULL, to learn (as ww_chat_encode()). */
struct ww_chat_source {
	enum ww_chat_format format;
	const json_t *messages, *tools; /* tools may be NULL */
	int generate;
	const struct ww_config *config; /* the ids that there are, and those that end a text */
};
enum ww_rc ww_chat_ids(struct ww_tok *t, const struct ww_chat_source *s, struct ww_ids *ids, struct ww_str *learn,
	struct ww_err *err) WW_MUST_CHECK;
/* Whether a turn that was sampled ends with this token. */
int ww_chat_ends(const struct ww_tok *t, const struct ww_chat_source *s, int32_t id);
/* The token that ends a turn. */
int32_t ww_chat_end_id(const struct ww_tok *t, enum ww_chat_format f);

/* An assistant's text (without the ending token) as a message: "content", "reasoning_content", "tool_calls".  A call
 * that is not valid JSON stays in the content, where its author can see it.  NULL only when out of memory. */
json_t *ww_chat_parse(enum ww_chat_format f, const char *text, size_t n);
/* The malformed calls in the content that ww_chat_parse() left: an array like "tool_calls", with the name as far as it
 * can be read ("" where it cannot) and the rest, unparsed, as the arguments.  For callers that answer such a call with
 * an error. */
json_t *ww_chat_broken_calls(enum ww_chat_format f, const char *content);
