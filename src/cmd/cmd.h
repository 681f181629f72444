/* cmd.h - what every command has.  One file a command; each defines `const struct ww_cmd ww_cmd_NAME` and has its line
 * in table.h. */
#pragma once

#include "base/json.h"
#include "base/opt.h"

#include <jansson.h>

/* Print "warpwright: message" on stderr and return the exit code that belongs to err->rc. */
int ww_cmd_say(const struct ww_err *err);
/* The same; with --json also {"error": message, "exit": code} on standard output, for a command that has printed no
 * object yet. */
int ww_cmd_fail(const struct ww_err *err);
/* Whether --json was given; main sets it before the options are parsed, so that their errors are JSON too. */
extern int ww_cmd_json;
/* Whether standard output is a pipe that nobody reads any more (`warpwright ... | head -1`). */
int ww_cmd_reader_gone(void);
/* One line of JSON on standard output.  Takes v. */
void ww_cmd_print_json(json_t *v);
/* How often SIGINT and SIGTERM came (handlers are installed by main); long work looks at it and ends in good order. */
extern volatile int ww_cmd_interrupted;
