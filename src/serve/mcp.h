/* mcp.h - the Model Context Protocol as a function from messages to messages, without a transport.
 *
 * A transport makes one struct ww_mcp_peer for each conversation (the process's stdin and stdout, one HTTP session),
 * hands every message it receives to ww_mcp_receive() and is called back with what must be sent.  Tools are a table;
 * each call of one runs in a thread of its own (or the receiving one: ww_mcp_peer_block), asks whether it is cancelled
 * and may report progress.
 *
 * Three revisions are spoken: 2026-07-28, in which every request carries its revision and the client's capabilities,
 * and 2025-11-25 and 2025-06-18, which an `initialize` request chooses for the peer.  Tools that are marked slow become
 * tasks where the client can follow tasks: with 2026-07-28 where the request declares the extension
 * io.modelcontextprotocol/tasks, with 2025-11-25 where the request asks for one; else the answer comes when the work is
 * done.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <jansson.h>
#include <stdint.h>

enum {
	WW_MCP_MAX_MESSAGE_BYTES = 16 << 20, /* of one received message */
	WW_MCP_MAX_SEND_BYTES = 64 << 20,
	WW_MCP_TEXT_MAX_BYTES = 24 << 10, /* text of an answer; structuredContent has it whole */
	WW_MCP_MAX_TASKS = 256            /* kept; the oldest finished ones go first */
};

struct ww_mcp;
struct ww_mcp_peer;
struct ww_mcp_call; /* one running call, as its tool sees it */

/* What a tool answers.  is_error: the call failed, and text says how; a solution that is wrong is no error but a
 * verdict. */
struct ww_mcp_answer {
	struct ww_str text;
	json_t *data; /* owned object, NULL with is_error */
	int is_error;
};

struct ww_mcp_tool {
	const char *name, *title, *description;
	const char *input_schema, *output_schema; /* JSON text; the input's is what arguments are checked against */
	int read_only;
	int slow; /* may become a task */
	/* An error return becomes an answer with is_error and its message. */
	enum ww_rc (*run)(
		void *ctx, const json_t *args, struct ww_mcp_call *call, struct ww_mcp_answer *a, struct ww_err *err);
	int resumes; /* a later call can continue it: cancelled, not waited for, when the server ends */
};

struct ww_mcp_opts {
	const struct ww_mcp_tool *tools;
	size_t n_tools;
	void *ctx;                /* for run() */
	const char *instructions; /* for the model behind the client */
	int max_running;          /* calls at a time; more are refused; 0: 16 */
	int max_of_session;       /* of one session at a time; 0: all of them */
};

/* Start a server; WW_ERR_USAGE where a schema is no JSON (a defect of the table). */
enum ww_rc ww_mcp_new(struct ww_mcp **out, const struct ww_mcp_opts *o, struct ww_err *err) WW_MUST_CHECK;
/* Cancel what runs, wait for it, and free.  All peers must be closed. */
void ww_mcp_free(struct ww_mcp *m);

/* A message to send: one JSON object without newlines.  Each request gets one final message: its answer, or no text
 * where it was cancelled. */
struct ww_mcp_out {
	const char *text; /* NULL: nothing */
	size_t n;
	int final;
	int error; /* the code of an answer that is an error, else 0 */
};
typedef void ww_mcp_send_fn(void *ctx, const struct ww_mcp_out *o);

/* `send` may be called from several threads, one at a time for a peer.  NULL: out of memory. */
struct ww_mcp_peer *ww_mcp_peer_new(struct ww_mcp *m, ww_mcp_send_fn *send, void *ctx);
/* Another way to the client of a conversation, for the answers to what is received on it: same revision, same tasks,
 * and each may cancel calls of the other.  Closing it cancels nothing. */
struct ww_mcp_peer *ww_mcp_peer_join(struct ww_mcp_peer *conversation, ww_mcp_send_fn *send, void *ctx);
/* Nothing is sent after it; calls of the conversation that are no tasks are cancelled, tasks go on. */
void ww_mcp_peer_close(struct ww_mcp_peer *p);
/* Carry calls out in the thread that receives them, instead of one of the server's own.  waits() is asked by them a few
 * times a second; 0: the client has left, the call is cancelled. */
void ww_mcp_peer_block(struct ww_mcp_peer *p, int (*waits)(void *ctx));
/* One message, any bytes. */
void ww_mcp_receive(struct ww_mcp_peer *p, const char *text, size_t n);
/* The same, parsed. */
void ww_mcp_receive_json(struct ww_mcp_peer *p, const json_t *message);
/* Answer that a message could not be read at all ("longer than 16 MiB"). */
void ww_mcp_unreadable(struct ww_mcp_peer *p, const char *why);
/* Calls that run now. */
int ww_mcp_running(struct ww_mcp *m);
/* The server ends: cancel the calls of tools that a later call can continue (`resumes`). */
void ww_mcp_wind_up(struct ww_mcp *m);

/* ---- For tools */
/* A number for the call's conversation; 0: it has none (2026-07-28 over HTTP). */
uint64_t ww_mcp_call_client(const struct ww_mcp_call *c);
int ww_mcp_call_cancelled(struct ww_mcp_call *c); /* to be asked a few times a second; the call's own thread */
/* The tool that is called. */
const struct ww_mcp_tool *ww_mcp_call_tool(const struct ww_mcp_call *c);
/* Report the call's step: a progress notification where the client asked for them, and the status of its task. */
void ww_mcp_call_progress(struct ww_mcp_call *c, const char *text);
