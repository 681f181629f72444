/* mcp_http.h - MCP over HTTP ("streamable HTTP"): POST, GET and DELETE on /mcp, in the forms of all three revisions. */
#pragma once

#include "serve/http.h"
#include "serve/mcp.h"

struct ww_mcp_http;
enum { WW_MCP_HTTP_ROUTES = 3 };

struct ww_mcp_http *ww_mcp_http_new(struct ww_mcp *m); /* NULL: out of memory */
void ww_mcp_http_routes(struct ww_mcp_http *h, struct ww_http_route out[WW_MCP_HTTP_ROUTES]);
void ww_mcp_http_free(struct ww_mcp_http *h); /* after ww_http_close(); NULL is fine */
