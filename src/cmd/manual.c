/* manual.c - the man page and the completions of bash, zsh and fish, from the table of commands and their options. */
#include "cmd/manual.h"

#include "cmd/cmd.h"
#include "cmd/table.h"

#include <stdio.h>
#include <string.h>

#define EACH_COMMAND(c) for (const struct ww_cmd *const *c = ww_cmd_table; *c; c++)
#define EACH_OPTION(o, cmd) for (const struct ww_opt *o = (cmd)->opts; o && o->name; o++)

static void choices_of(const struct ww_opt *o, char *out, size_t cap)
{
	ww_cmd_words(o->type == WW_OPT_CHOICE ? o->arg : "", out, cap);
}

/* What may follow the command: its subcommands; of `help` all commands.  "" where that is anything. */
static void next_words(const struct ww_cmd *cmd, char *out, size_t cap)
{
	if (strcmp(cmd->name, "help")) {
		ww_cmd_words(cmd->args, out, cap);
		return;
	}
	ww_auto_str names = WW_STR_INIT(cap);
	EACH_COMMAND(c)
	ww_str_addf(&names, "%s%s", names.len ? " " : "", (*c)->name);
	snprintf(out, cap, "%s", names.p);
}

static int names_path(const struct ww_opt *o)
{
	return o->type == WW_OPT_STR && (strstr(o->arg, "FILE") || strstr(o->arg, "DIR") || strstr(o->arg, ".py"));
}

/* ---- man -------------------------------------------------------------------------------------------------------- */

/* Text of a line; a line may not begin with a full stop or an apostrophe, which roff takes for requests. */
static void roff(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if ((i == 0 || text[i - 1] == '\n') && strchr(".'", text[i]))
			fputs("\\&", stdout);
		if (text[i] == '\\')
			fputs("\\e", stdout);
		else if (text[i] == '-')
			fputs("\\-", stdout);
		else
			putchar(text[i]);
	}
}

/* As ww_opt_help() reads it: rows of two columns begin with two spaces, an empty line ends a paragraph. */
static void roff_details(const char *text)
{
	for (const char *p = text; *p; p += *p == '\n') {
		size_t n = strcspn(p, "\n");
		const char *gap = *p == ' ' ? strstr(p + 2, "  ") : NULL;
		if (gap && gap < p + n) {
			const char *right = gap + strspn(gap, " ");
			fputs(".TP\n", stdout);
			roff(p + 2, (size_t)(gap - p) - 2);
			putchar('\n');
			roff(right, n - (size_t)(right - p));
		} else if (n) {
			roff(p, n);
		} else {
			fputs(".PP", stdout);
		}
		putchar('\n');
		p += n;
	}
}

static void roff_option(const struct ww_opt *o)
{
	fputs(".TP\n", stdout);
	if (o->letter)
		printf("\\fB\\-%c\\fR, ", o->letter);
	fputs("\\fB\\-\\-", stdout);
	roff(o->name, strlen(o->name));
	fputs("\\fR", stdout);
	if (o->type != WW_OPT_FLAG) {
		fputs(" \\fI", stdout);
		roff(o->arg, strlen(o->arg));
		fputs("\\fR", stdout);
	}
	putchar('\n');
	roff(o->help, strlen(o->help));
	if (o->type != WW_OPT_FLAG && o->def && *o->def) {
		fputs(" (default ", stdout);
		roff(o->def, strlen(o->def));
		putchar(')');
	}
	putchar('\n');
}

static void roff_command(const struct ww_cmd *cmd)
{
	printf(".SS warpwright %s [options] ", cmd->name);
	roff(cmd->args, strlen(cmd->args));
	putchar('\n');
	roff(cmd->summary, strlen(cmd->summary));
	fputs("\n.PP\n", stdout);
	if (cmd->details)
		roff_details(cmd->details);
	EACH_OPTION(o, cmd)
	roff_option(o);
}

static void print_man(void)
{
	fputs(".TH WARPWRIGHT 1 \"\" \"warpwright " WW_VERSION "\"\n"
		  ".SH NAME\nwarpwright \\- a PyTorch module in, a proven faster kernel out\n"
		  ".SH SYNOPSIS\n.B warpwright\n.I COMMAND\n[options] [arguments]\n"
		  ".SH COMMANDS\n",
		stdout);
	EACH_COMMAND(c)
	roff_command(*c);
	fputs(".SH EXIT STATUS\n0 ok, 1 negative verdict, 2 usage, 3 infrastructure\n"
		  ".SH ENVIRONMENT\n"
		  ".TP\nWW_PYTHON\nthe Python interpreter with PyTorch\n"
		  ".TP\nWARPWRIGHT_HOME\nthe directory that holds bridge, skills and include\n"
		  ".TP\nWARPWRIGHT_LOG\nerror, warn (the default), info or debug\n"
		  ".TP\nXDG_CACHE_HOME\nwhere the cache lies (default ~/.cache)\n",
		stdout);
}

/* ---- bash ------------------------------------------------------------------------------------------------------- */

static void bash_reply(const char *pattern, const char *words)
{
	printf("\t%s) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return ;;\n", pattern, words);
}

static void print_names(void)
{
	EACH_COMMAND(c)
	printf("%s ", (*c)->name);
}

static void print_bash(void)
{
	char words[256], pattern[128];
	fputs("_warpwright() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
		  "\tCOMPREPLY=()\n\tcase $COMP_CWORD:${COMP_WORDS[1]}:$prev in\n\t1:*) COMPREPLY=($(compgen -W \"",
		stdout);
	print_names();
	fputs("\" -- \"$cur\")); return ;;\n", stdout);
	EACH_COMMAND(c)
	{
		EACH_OPTION(o, *c)
		{
			snprintf(pattern, sizeof(pattern), "*:%s:--%s", (*c)->name, o->name);
			choices_of(o, words, sizeof(words));
			if (*words)
				bash_reply(pattern, words);
		}
	}
	fputs("\tesac\n\tcase ${COMP_WORDS[1]}:$cur in\n", stdout);
	EACH_COMMAND(c)
	{
		printf("\t%s:-*) COMPREPLY=($(compgen -W \"--help", (*c)->name);
		EACH_OPTION(o, *c)
		printf(" --%s", o->name);
		fputs("\" -- \"$cur\")); return ;;\n", stdout);
	}
	fputs("\tesac\n\tcase $COMP_CWORD:${COMP_WORDS[1]} in\n", stdout);
	EACH_COMMAND(c)
	{
		next_words(*c, words, sizeof(words));
		snprintf(pattern, sizeof(pattern), "2:%s", (*c)->name);
		if (*words)
			bash_reply(pattern, words);
	}
	fputs("\tesac\n\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n}\ncomplete -o filenames -F _warpwright warpwright\n",
		stdout);
}

/* ---- zsh and fish ----------------------------------------------------------------------------------------------- */

/* Inside single quotes; `special` are characters that a backslash goes before. */
static void quoted(const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\''", stdout);
		else
			printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
	}
}

static void zsh_option(const struct ww_opt *o)
{
	char words[256];
	choices_of(o, words, sizeof(words));
	printf(" \\\n\t\t'--%s[", o->name);
	quoted(o->help, "[]\\");
	fputs("]", stdout);
	if (*words)
		printf(":%s:(%s)", o->name, words);
	else if (o->type != WW_OPT_FLAG)
		printf(":%s:%s", o->name, names_path(o) ? "_files" : "");
	fputs("'", stdout);
}

static void print_zsh(void)
{
	char words[256];
	fputs("#compdef warpwright\nlocal -a commands\ncommands=(\n", stdout);
	EACH_COMMAND(c)
	{
		printf("\t'%s:", (*c)->name);
		quoted((*c)->summary, ":\\");
		fputs("'\n", stdout);
	}
	fputs(")\nif (( CURRENT == 2 )); then\n\t_describe command commands\n\treturn\nfi\ncase $words[2] in\n", stdout);
	EACH_COMMAND(c)
	{
		printf("%s)\n\t_arguments '--help[say what it does]'", (*c)->name);
		EACH_OPTION(o, *c)
		zsh_option(o);
		next_words(*c, words, sizeof(words));
		printf(*words ? " \\\n\t\t'2:what:(%s)' '*:file:_files' ;;\n" : " \\\n\t\t'*:file:_files' ;;\n", words);
	}
	fputs("esac\n", stdout);
}

static void fish_option(const struct ww_cmd *cmd, const struct ww_opt *o)
{
	char words[256];
	choices_of(o, words, sizeof(words));
	printf("complete -c warpwright -n '__fish_seen_subcommand_from %s' -l %s", cmd->name, o->name);
	if (o->letter)
		printf(" -s %c", o->letter);
	if (*words)
		printf(" -x -a '%s'", words);
	else if (o->type != WW_OPT_FLAG)
		fputs(names_path(o) ? " -r" : " -x", stdout);
	fputs(" -d '", stdout);
	quoted(o->help, "\\");
	fputs("'\n", stdout);
}

static void print_fish(void)
{
	char words[256];
	EACH_COMMAND(c)
	{
		printf("complete -c warpwright -n __fish_use_subcommand -f -a %s -d '", (*c)->name);
		quoted((*c)->summary, "\\");
		fputs("'\n", stdout);
		next_words(*c, words, sizeof(words));
		if (*words)
			printf("complete -c warpwright -n '__fish_seen_subcommand_from %s' -a '%s'\n", (*c)->name, words);
		EACH_OPTION(o, *c)
		fish_option(*c, o);
	}
	fputs("complete -c warpwright -l help -d 'say what it does'\n", stdout);
}

/* ----------------------------------------------------------------------------------------------------------------- */

int ww_manual_main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*print)(void);
	} forms[] = { { "man", print_man }, { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish } };
	for (size_t i = 0; argc == 1 && i < WW_ARRAY_LEN(forms); i++)
		if (!strcmp(argv[0], forms[i].name)) {
			forms[i].print();
			return fflush(stdout) ? 3 : 0;
		}
	fputs("warpwright: __manual takes man, bash, zsh or fish\n", stderr);
	return 2;
}
