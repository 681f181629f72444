/* opt.h - one option table per command.
 *
 * The table is the only place that knows a command's options: it drives parsing, `-h`, the recipe file (option names
 * are its keys) and the docs (tests/cli/help.t holds them together).  Values land in a struct of the command's own
 * through offsets, already converted and range-checked.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

enum ww_opt_type {
	WW_OPT_FLAG,  /* int, set to 1 */
	WW_OPT_INT,   /* int64_t, min..max */
	WW_OPT_NUM,   /* double, min..max */
	WW_OPT_STR,   /* const char *, borrowed from argv or from `def` */
	WW_OPT_CHOICE /* const char *, one of the words in `arg`, separated by '|' */
};

struct ww_opt {
	const char *name; /* "max-turns": --max-turns N or --max-turns=N */
	char letter;      /* 'o' for -o, or 0 */
	enum ww_opt_type type;
	size_t offset;    /* of the value in the command's struct */
	const char *arg;  /* what -h calls the value: "N", "DIR"; for CHOICE the words */
	const char *def;  /* default as text, or NULL: 0 / NULL */
	double min, max;  /* INT and NUM; both 0: no limits */
	const char *help; /* one line */
};
#define WW_OPT_END { 0 }
/* Every command has this row; -h is handled by main.c. */
#define WW_OPT_JSON(type, field) \
	{ "json", 0, WW_OPT_FLAG, offsetof(type, field), NULL, NULL, 0, 0, "print one JSON object on stdout" }

struct ww_cmd {
	const char *name;
	const char *args;    /* "TASK.py SOLUTION_DIR" */
	const char *summary; /* one line for the list of commands */
	const char *details; /* paragraphs for -h; may be NULL */
	const struct ww_opt *opts;
	size_t values_size;     /* of the struct that the offsets speak of */
	int min_args, max_args; /* positional; max_args < 0: any number */
	/* values: the struct, filled; returns the process's exit code. */
	int (*run)(const struct ww_cmd *cmd, void *values, int argc, char **argv);
};

/* Fill `values` (zeroed and set to the defaults first) from argv[0..argc-1] (without program and command name) and move
 * the positional arguments to the front of argv, their number in *rest; the options follow in their order.  "--" ends
 * the options.  Errors name the option. */
enum ww_rc ww_opt_parse(
	const struct ww_cmd *cmd, int argc, char **argv, void *values, int *rest, struct ww_err *err) WW_MUST_CHECK;
/* The steps of ww_opt_parse(), for a command that has a recipe file: set the defaults, then the recipe's values by
 * ww_opt_set(), then the command line's options over them. */
void ww_opt_defaults(const struct ww_cmd *cmd, void *values);
enum ww_rc ww_opt_parse_over(
	const struct ww_cmd *cmd, int argc, char **argv, void *values, int *rest, struct ww_err *err) WW_MUST_CHECK;
/* Of the options that ww_opt_parse() left behind the arguments (argv + *rest): the one at *at, which moves behind it;
 * NULL at the end. */
const struct ww_opt *ww_opt_given(const struct ww_cmd *cmd, char ***at);
/* Set one option by name from text (recipe files).  An unknown name is WW_ERR_USAGE; the message suggests the nearest
 * one. */
enum ww_rc ww_opt_set(
	const struct ww_cmd *cmd, void *values, const char *name, const char *text, struct ww_err *err) WW_MUST_CHECK;
/* The text of `warpwright CMD -h`, in lines of at most 80 columns. */
void ww_opt_help(const struct ww_cmd *cmd, struct ww_str *out);
/* Append text in lines of at most 80 columns.  The first begins where `out` stands, at column `at`; the others are
 * indented by `indent`. */
void ww_opt_fill(struct ww_str *out, const char *text, int at, int indent);

/* Find the known word nearest to a misspelled one: offer each known word, then read `best`, NULL where none is near. */
struct ww_guess {
	const char *word, *best;
	int letters; /* to change, add or drop between word and best */
};
void ww_guess_offer(struct ww_guess *g, const char *candidate);
