/* wire.h - one protocol of a model server, without the transfer.
 *
 * A wire is pure: it makes the request's JSON from a conversation and assembles a reply from the events of a stream.
 * What both protocols share is the shape of a reply: a list of parts in the order in which the server began them.
 * Neither function touches the network, the clock or the environment, so they are tested and fuzzed by themselves;
 * http.c moves the bytes.
 *
 * Rejected: keeping the raw response as the record of a message.  A reply of 30 KB arrives as 3 MB of events, and every
 * reader of an episode would need both protocols.
 */
#pragma once

#include "base/json.h"
#include "base/str.h"

#include "policy/policy.h"

/* A reply longer than this is cut and counts as stopped by length: no model writes so much in one turn, a broken server
 * may. */
enum { WW_WIRE_REPLY_MAX_BYTES = 4 << 20, WW_WIRE_PARTS_MAX = 512 };

enum ww_wire_kind { WW_WIRE_TEXT, WW_WIRE_THINKING, WW_WIRE_CALL, WW_WIRE_OTHER };

struct ww_wire_part {
	enum ww_wire_kind kind;
	int64_t index;           /* as the server counts; calls and texts are counted apart by openai */
	struct ww_str text;      /* text, thinking, or the arguments of a call */
	struct ww_str id, name;  /* of a call */
	struct ww_str signature; /* of thinking */
	json_t *raw;             /* OTHER: the block as it came; may be NULL */
};

struct ww_wire_usage {
	int reported;
	int64_t input, cache_read, cache_write, output; /* input: neither read from nor written to a cache */
};

/* A reply in the making. */
struct ww_wire_reply {
	struct ww_wire_part *parts;
	size_t n_parts, cap_parts;
	size_t bytes; /* of all parts */
	int too_long; /* beyond WW_WIRE_REPLY_MAX_BYTES: the rest was dropped */
	int finished; /* the server reported why it stopped */
	int done;     /* and that nothing follows */
	enum ww_finish finish;
	char reasoning_field[24]; /* openai: what the server calls it */
	struct ww_wire_usage usage;
	/* The server reported trouble inside the stream. */
	int failed;
	struct ww_str failure;
};

struct ww_wire_opts {
	const char *model, *effort; /* effort NULL: the provider's default */
	int official;               /* the provider's own server, not a compatible one */
};

struct ww_wire {
	const char *name; /* "openai" */
	const char *key_variable, *base_variable, *default_base, *path;
	const char *key_header;     /* what stands before the key */
	const char *version_header; /* or NULL */
	/* The body of a request; NULL only out of memory. */
	json_t *(*request)(const struct ww_wire_opts *o, const struct ww_ask *ask, int64_t max_tokens);
	/* One event.  What cannot be understood is WW_ERR_PROTOCOL: the stream is broken and will be asked for again.
	 */
	enum ww_rc (*event)(struct ww_wire_reply *r, const char *data, size_t n, struct ww_err *err);
	/* What only this protocol understands, for ww_message.native; NULL: nothing. */
	json_t *(*native)(const struct ww_wire_reply *r);
};
extern const struct ww_wire ww_wire_openai, ww_wire_anthropic;

void ww_wire_reply_init(struct ww_wire_reply *r);
void ww_wire_reply_release(struct ww_wire_reply *r);
/* The part of this kind and index, made where there is none; NULL where there are too many. */
struct ww_wire_part *ww_wire_part(struct ww_wire_reply *r, enum ww_wire_kind kind, int64_t index);
/* Append to one string of a part within the bounds of the whole reply. */
void ww_wire_add(struct ww_wire_reply *r, struct ww_str *to, const char *text);
void ww_wire_fail(struct ww_wire_reply *r, const json_t *error);
/* Move what was assembled into a message; usage and price are the caller's. */
enum ww_rc ww_wire_finish(
	const struct ww_wire *w, struct ww_wire_reply *r, struct ww_reply *out, struct ww_err *err) WW_MUST_CHECK;

/* The arguments of a call as the object that they should be; what is not one is wrapped, so that it can be sent back.
 */
json_t *ww_wire_arguments(const char *text);
/* A list of what `one` makes of each tool; one takes the schema over. */
json_t *ww_wire_tools(const struct ww_ask *ask, json_t *(*one)(const struct ww_tool_spec *t, json_t *schema));
/* Goes through a conversation: the next message, with msg->native of the newest assistant message where this wire wrote
 * it (else NULL), and for an answer of a tool the id under which the server knows its call.  NULL at the end. */
struct ww_wire_walk {
	const struct ww_wire *wire;
	const struct ww_ask *ask;
	size_t at;
	json_t *native;
	const struct ww_message *asked;
	size_t answered;
	const char *call_id;
};
const struct ww_message *ww_wire_next(struct ww_wire_walk *w);
/* The id of a call of `m` as the server gave it, else the call's own. */
const char *ww_wire_call_id(const json_t *native, const struct ww_message *m, size_t index);
