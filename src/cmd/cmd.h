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
/* The words of a CHOICE or the subcommands of a command's `args`, separated by spaces: "run compose stats convert" of
 * "run|compose [FILE] | stats SET | convert SET FILE".  "" where no '|' stands between such words. */
void ww_cmd_words(const char *text, char *out, size_t cap);
/* Fail because `word` is no subcommand, with the nearest one that is. */
int ww_cmd_no_subcommand(const struct ww_cmd *cmd, const char *word);
/* Whether --json was given; main sets it before the options are parsed, so that their errors are JSON too. */
extern int ww_cmd_json;
/* Whether standard output is a pipe that nobody reads any more (`warpwright ... | head -1`). */
int ww_cmd_reader_gone(void);
/* One line of JSON on standard output.  Takes v. */
void ww_cmd_print_json(json_t *v);
/* How often SIGINT and SIGTERM came (handlers are installed by main); long work looks at it and ends in good order. */
extern volatile int ww_cmd_interrupted;
