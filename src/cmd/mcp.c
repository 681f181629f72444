/* mcp.c - `warpwright mcp`: the tools for a coding agent, over standard input and output.
 *
 * The protocol, the tools and the transport are src/serve; this file fixes what the client cannot choose: where
 * solutions are judged, by which rule and against which baselines.  Nothing but messages goes to standard output.
 */
#include "cmd/cmd.h"
#include "cmd/judging.h"
#include "host/machine.h"
#include "serve/stdio.h"
#include "serve/tools.h"

#include <string.h>

struct values {
	struct ww_judging judging;
	int64_t open_tasks;
	int json;
};

static const struct ww_opt options[] = { WW_OPTS_WHERE(struct values, judging), WW_OPTS_HOW(struct values, judging),
	{ "open-tasks", 0, WW_OPT_INT, offsetof(struct values, open_tasks), "N", "2", 1, 64,
		"tasks kept loaded, each in a process with PyTorch" },
	WW_OPT_JSON(struct values, json), WW_OPT_END };

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	const struct values *v = values;
	struct ww_host_gpus gpus;
	char name[96];
	struct ww_broker_opts o = { .device_name = name, .open_tasks = (int)v->open_tasks };
	struct ww_broker *broker = NULL;
	struct ww_mcp *m = NULL;
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc;
	WW_TRY(ww_judging_opts(&v->judging, &o.judge, &err));
	WW_TRY(ww_host_choose_target(v->judging.target, o.judge.device, &o.judge.target, name, sizeof(name), &gpus, &err));
	WW_TRY(ww_broker_new(&broker, &o, &err));
	struct ww_mcp_opts mo = { .ctx = broker, .instructions = ww_serve_instructions };
	mo.tools = ww_serve_tools(&mo.n_tools);
	WW_TRY(ww_mcp_new(&m, &mo, &err));
	WW_TRY(ww_stdio_serve(m, 0, 1, &ww_cmd_interrupted, &err));
out:
	ww_mcp_free(m);
	ww_broker_free(broker);
	return rc == WW_OK ? 0 : ww_cmd_say(&err); /* standard output holds messages of the protocol only */
}

const struct ww_cmd ww_cmd_mcp = { "mcp", "", "serve the tools to a coding agent (MCP over standard input and output)",
	"Speaks the Model Context Protocol, revisions 2026-07-28, 2025-11-25 and 2025-06-18, one JSON object a line on standard\n"
	"input and output (so --json changes nothing), and ends when its input does.  What decides a verdict is chosen here and not by\n"
	"the client.  It reads and writes files with your rights.  docs/mcp.md shows how to register it with an agent.",
	options, sizeof(struct values), 0, 0, run };
