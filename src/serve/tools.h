/* tools.h - the tools of agent/tools.def that programs outside reach over MCP. */
#pragma once

#include "agent/tools.h"
#include "serve/broker.h"
#include "serve/mcp.h"

/* The list for ww_mcp_new(), to be run with a struct ww_broker as context; lives as long as the process. */
const struct ww_mcp_tool *ww_serve_tools(size_t *n);
extern const char ww_serve_instructions[];

/* ---- For tools that exist over MCP only: the ctx of their struct ww_tool_env. */
struct ww_serve_env {
	struct ww_broker *broker;
	const json_t *args;
	struct ww_mcp_call *call;
};
/* The task that the arguments name or hold; released by the caller. */
enum ww_rc ww_serve_load_task(const json_t *args, struct ww_task *t, struct ww_err *err) WW_MUST_CHECK;
