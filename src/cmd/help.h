/* help.h - what -h prints; with --json as an object (help.c). */
#pragma once

#include "cmd/cmd.h"

#include <stdio.h>

/* The list of commands as text. */
void ww_help_list(FILE *to);
/* On standard output: all commands (`cmd` NULL), or one with its options.  Returns the exit code. */
int ww_help_print(const struct ww_cmd *cmd);
/* The command of that name; NULL where there is none. */
const struct ww_cmd *ww_help_find(const char *name);
/* Fail because `name` is no command, with the nearest one that is. */
int ww_help_no_command(const char *name);
