/* table.h - every command and every worker entry, in one place each. */
#pragma once

#include "cmd/cmd.h"

/* To add a command write its file src/cmd/NAME.c, and its name here, in the order of `warpwright -h`. */
#define WW_COMMANDS(X) \
	X(doctor) X(optimize) X(eval) X(inspect) X(judge) X(profile) X(export) X(episode) X(report) X(train) X(synth) X(model) X(mcp) X(serve) X(help) X(version)

#define X(name) extern const struct ww_cmd ww_cmd_##name;
WW_COMMANDS(X)
#undef X
extern const struct ww_cmd *const ww_cmd_table[]; /* ends with NULL */

/* A worker process of ours: `warpwright __NAME args...`.  argv[0] is the first argument after __NAME. */
struct ww_worker_main {
	const char *name;
	int (*run)(int argc, char **argv);
};
extern const struct ww_worker_main ww_worker_table[]; /* ends with a NULL name */
