/* mcp_internal.h - what the files of the protocol core share: mcp.c (messages), mcp_call.c (calls and tasks). */
#pragma once

#include "serve/mcp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum ww_mcp_revision { WW_MCP_NONE, WW_MCP_2025_06_18, WW_MCP_2025_11_25, WW_MCP_2026_07_28 };

/* JSON-RPC's codes and MCP's own. */
enum {
	WW_MCP_PARSE_ERROR = -32700,
	WW_MCP_INVALID_REQUEST = -32600,
	WW_MCP_NO_METHOD = -32601,
	WW_MCP_INVALID_PARAMS = -32602,
	WW_MCP_INTERNAL = -32603,
	WW_MCP_BUSY = -32000,
	WW_MCP_NEED_CAPABILITY = -32021,
	WW_MCP_HEADER_MISMATCH = -32020,
	WW_MCP_UNSUPPORTED_VERSION = -32022
};

struct ww_mcp_peer {
	struct ww_mcp *m;
	struct ww_mcp_peer *conversation; /* itself, or the one that it continues (a reference) */
	uint64_t serial;                  /* of a conversation: whose tasks `tasks/list` lists */
	atomic_int legacy;                /* of a conversation: the revision that `initialize` chose */
	int refs;                         /* under m->lock */
	pthread_mutex_t send_lock;
	int closed; /* under send_lock */
	ww_mcp_send_fn *send;
	int (*waits)(void *ctx); /* see ww_mcp_peer_block(); NULL: calls have threads of ours */
	void *ctx;
};

/* A request of `tools/call` as a client made it. */
struct ww_mcp_request {
	struct ww_mcp_peer *peer;
	const json_t *id, *params, *meta;
	enum ww_mcp_revision revision;
	int follows_tasks; /* 2026-07-28: the request declares the extension */
};

struct ww_mcp_waiter {
	struct ww_mcp_peer *peer;
	json_t *id;
	struct ww_mcp_waiter *next;
};

enum ww_mcp_status { WW_MCP_WORKING, WW_MCP_COMPLETED, WW_MCP_FAILED, WW_MCP_CANCELLED };
struct ww_mcp_task {
	char id[33];
	uint64_t owner; /* serial of the peer */
	enum ww_mcp_status status;
	char message[256], created[21], updated[21];
	uint64_t created_ns;
	json_t *result;                /* of tools/call, without resultType; when it has ended by itself */
	struct ww_mcp_call *call;      /* while its thread lives */
	struct ww_mcp_waiter *waiters; /* `tasks/result` requests that are not answered yet */
	struct ww_mcp_task *next;      /* newest first */
};

struct ww_mcp_call {
	struct ww_mcp *m;
	struct ww_mcp_peer *peer; /* a reference */
	enum ww_mcp_revision revision;
	const struct ww_mcp_tool *tool;
	json_t *id, *args, *token; /* token NULL: no progress asked for */
	struct ww_mcp_task *task;  /* NULL: the request waits for the answer */
	int cancelled;             /* these three under m->lock */
	int64_t steps;
	struct ww_mcp_call *next;
};

struct ww_mcp {
	struct ww_mcp_opts o;
	json_t **inputs, **outputs; /* parsed schemas, n_tools each */
	pthread_mutex_t lock;
	pthread_cond_t idle;
	struct ww_mcp_call *calls;
	int n_calls, n_tasks;
	struct ww_mcp_task *tasks;
	uint64_t peers;
};

/* ---- mcp.c */
void ww_mcp_send(struct ww_mcp_peer *p, json_t *message);                     /* takes the message */
void ww_mcp_respond(struct ww_mcp_peer *p, const json_t *id, json_t *result); /* takes the result */
void ww_mcp_fail(struct ww_mcp_peer *p, const json_t *id, int code, json_t *data, const char *fmt, ...) WW_PRINTF(5, 6);
/* The request is over and gets no answer. */
void ww_mcp_no_answer(struct ww_mcp_peer *p);
/* Adds the members that the revision requires in every result. */
json_t *ww_mcp_complete(enum ww_mcp_revision v, json_t *result);
struct ww_mcp_peer *ww_mcp_peer_ref(struct ww_mcp_peer *p); /* both under m->lock */
void ww_mcp_peer_unref(struct ww_mcp_peer *p);

/* ---- mcp_call.c */
void ww_mcp_tools_call(const struct ww_mcp_request *r);
void ww_mcp_cancel_request(struct ww_mcp_peer *p, const json_t *id);
void ww_mcp_cancel_all(struct ww_mcp_peer *p); /* under the lock: of the conversation */
void ww_mcp_stop_calls(struct ww_mcp *m);      /* cancels all, waits, frees the tasks */

/* ---- mcp_task.c */
struct ww_mcp_task *ww_mcp_task_new(struct ww_mcp *m, struct ww_mcp_peer *p); /* under m->lock, as the next five */
void ww_mcp_task_undo(struct ww_mcp *m); /* the newest one, whose call cannot begin */
void ww_mcp_task_ended(struct ww_mcp_task *t, enum ww_mcp_status status, const char *message, json_t *result);
json_t *ww_mcp_task_json(const struct ww_mcp_task *t, enum ww_mcp_revision v);
void ww_mcp_task_free(struct ww_mcp_task *t);
void ww_mcp_call_cancel(struct ww_mcp_call *c);
void ww_mcp_drop_waiters(struct ww_mcp_peer *p); /* under m->lock: those that p has left behind */
/* Answer `tasks/result` requests of a task that has ended; not under m->lock. */
void ww_mcp_answer_waiters(
	struct ww_mcp *m, struct ww_mcp_waiter *w, const char *task_id, enum ww_mcp_status status, json_t *result);
void ww_mcp_tasks_get(const struct ww_mcp_request *r);
void ww_mcp_tasks_result(const struct ww_mcp_request *r);
void ww_mcp_tasks_list(const struct ww_mcp_request *r);
void ww_mcp_tasks_update(const struct ww_mcp_request *r);
void ww_mcp_tasks_cancel(const struct ww_mcp_request *r);
