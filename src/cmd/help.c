/* help.c - the commands `help` and `version`, and what -h prints. */
#include "cmd/help.h"

#include "cmd/table.h"

#include <string.h>

struct only_json {
	int json;
};
static const struct ww_opt only_json_opts[] = { WW_OPT_JSON(struct only_json, json), WW_OPT_END };

const struct ww_cmd *ww_help_find(const char *name)
{
	for (const struct ww_cmd *const *c = ww_cmd_table; *c; c++)
		if (!strcmp(name, (*c)->name))
			return *c;
	return NULL;
}

int ww_help_no_command(const char *name)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_guess g = { .word = name };
	for (const struct ww_cmd *const *c = ww_cmd_table; *c; c++)
		ww_guess_offer(&g, (*c)->name);
	if (name[0] == '-')
		(void)!ww_err_set(
			&err, WW_ERR_USAGE, "the option %.60s must come after the command; warpwright -h lists commands", name);
	else if (g.best)
		(void)!ww_err_set(&err, WW_ERR_USAGE, "no command \"%.60s\"; did you mean \"%s\"?", name, g.best);
	else
		(void)!ww_err_set(&err, WW_ERR_USAGE, "no command \"%.60s\"; warpwright -h lists them", name);
	return ww_cmd_fail(&err);
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static void add_command(struct ww_str *out, const struct ww_cmd *cmd)
{
	enum { AT = 13 };
	ww_str_addf(out, "  %-10s ", cmd->name);
	ww_opt_fill(out, cmd->summary, AT, AT);
	ww_str_addc(out, '\n');
}

void ww_help_list(FILE *to)
{
	ww_auto_str text = WW_STR_INIT(65536);
	ww_str_adds(&text,
		"usage: warpwright COMMAND [options] [arguments]\n\n"
		"A PyTorch module in, a proven faster kernel out.\n\ncommands:\n");
	for (const struct ww_cmd *const *c = ww_cmd_table; *c; c++)
		add_command(&text, *c);
	ww_str_adds(&text,
		"\n`warpwright help COMMAND` or `warpwright COMMAND -h` explains one; every command\nhas --json.\n"
		"exit codes: 0 ok, 1 negative verdict, 2 usage, 3 infrastructure\n");
	fputs(text.p, to);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *commands_json(void)
{
	json_t *rows = json_array();
	for (const struct ww_cmd *const *c = ww_cmd_table; *c; c++)
		json_array_append_new(rows, json_pack("{s:s, s:s}", "name", (*c)->name, "summary", (*c)->summary));
	return json_pack("{s:s, s:o}", "usage", "warpwright COMMAND [options] [arguments]", "commands", rows);
}

static json_t *option_json(const struct ww_opt *o)
{
	int flag = o->type == WW_OPT_FLAG;
	char letter[2] = { o->letter, 0 };
	json_t *row = json_pack("{s:s, s:s*, s:s*, s:s*, s:s}", "name", o->name, "letter", o->letter ? letter : NULL,
		"value", flag ? NULL : o->arg, "default", flag ? NULL : o->def, "help", o->help);
	if (o->min != 0 || o->max != 0) {
		json_object_set_new(row, "min", json_real(o->min));
		json_object_set_new(row, "max", json_real(o->max));
	}
	return row;
}

static json_t *command_json(const struct ww_cmd *cmd)
{
	json_t *rows = json_array();
	ww_auto_str text = WW_STR_INIT(65536);
	ww_opt_help(cmd, &text);
	for (const struct ww_opt *o = cmd->opts; o && o->name; o++)
		json_array_append_new(rows, option_json(o));
	return json_pack("{s:s, s:s, s:s, s:o, s:s}", "command", cmd->name, "arguments", cmd->args, "summary", cmd->summary,
		"options", rows, "text", text.p);
}

int ww_help_print(const struct ww_cmd *cmd)
{
	if (ww_cmd_json) {
		ww_cmd_print_json(cmd ? command_json(cmd) : commands_json());
	} else if (cmd) {
		ww_auto_str help = WW_STR_INIT(65536);
		ww_opt_help(cmd, &help);
		fputs(help.p, stdout);
	} else {
		ww_help_list(stdout);
	}
	return 0;
}

/* ---- The commands ------------------------------------------------------------------------------------------------ */

static int run_help(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	const struct ww_cmd *asked = argc ? ww_help_find(argv[0]) : NULL;
	return argc && !asked ? ww_help_no_command(argv[0]) : ww_help_print(asked);
}

const struct ww_cmd ww_cmd_help = { .name = "help",
	.args = "[COMMAND]",
	.summary = "list the commands, or explain one and its options",
	.opts = only_json_opts,
	.values_size = sizeof(struct only_json),
	.max_args = 1,
	.run = run_help };

static int run_version(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	if (ww_cmd_json)
		ww_cmd_print_json(json_pack("{s:s}", "version", WW_VERSION));
	else
		puts("warpwright " WW_VERSION);
	return 0;
}

const struct ww_cmd ww_cmd_version = { .name = "version",
	.args = "",
	.summary = "print the version",
	.opts = only_json_opts,
	.values_size = sizeof(struct only_json),
	.run = run_version };
