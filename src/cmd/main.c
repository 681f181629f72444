/* main.c - finds the command and hands over.
 *
 * Worker processes of the program itself (builder, compile workers, runners) are the same binary, started as
 * `warpwright __NAME ...`; they register in worker_table and are not commands: no help, no stable interface.
 */
#include "cmd/cmd.h"
#include "cmd/manual.h"
#include "cmd/table.h"

#include "policy/policy.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_signal(int sig) { ww_cmd_interrupted = ww_cmd_interrupted + 1; }

static void install_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void add_command(struct ww_str *out, const char *name, const char *summary)
{
	enum { AT = 13 };
	ww_str_addf(out, "  %-10s ", name);
	ww_opt_fill(out, summary, AT, AT);
	ww_str_addc(out, '\n');
}

static void print_commands(FILE *to)
{
	ww_auto_str text = WW_STR_INIT(65536);
	ww_str_adds(&text,
		"usage: warpwright COMMAND [options] [arguments]\n\n"
		"A PyTorch module in, a proven faster kernel out.\n\ncommands:\n");
	for (const struct ww_cmd *const *c = ww_cmd_table; *c; c++)
		add_command(&text, (*c)->name, (*c)->summary);
	ww_str_adds(&text,
		"\n`warpwright help COMMAND` or `warpwright COMMAND -h` explains one;\n"
		"`warpwright version` prints the version; every command has --json.\n"
		"exit codes: 0 ok, 1 negative verdict, 2 usage, 3 infrastructure\n");
	fputs(text.p, to);
}

static int print_help(const struct ww_cmd *cmd)
{
	ww_auto_str help = WW_STR_INIT(65536);
	ww_opt_help(cmd, &help);
	fputs(help.p, stdout);
	return 0;
}

/* Whether one of the options is `a` or `b`. */
static int has_word(int argc, char **argv, const char *a, const char *b)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], a) || !strcmp(argv[i], b))
			return 1;
	return 0;
}

static int run_command(const struct ww_cmd *cmd, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	if (has_word(argc, argv, "-h", "--help"))
		return print_help(cmd);
	ww_auto_free void *values = calloc(1, cmd->values_size ? cmd->values_size : 1);
	if (!values)
		return 3;
	int rest = 0;
	return ww_opt_parse(cmd, argc, argv, values, &rest, &err) == WW_OK ? cmd->run(cmd, values, rest, argv)
																	   : ww_cmd_fail(&err);
}

static const struct ww_cmd *find_command(const char *name)
{
	for (const struct ww_cmd *const *c = ww_cmd_table; *c; c++)
		if (!strcmp(name, (*c)->name))
			return *c;
	return NULL;
}

static int no_command(const char *name)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_guess g = { .word = name };
	for (const struct ww_cmd *const *c = ww_cmd_table; *c; c++)
		ww_guess_offer(&g, (*c)->name);
	ww_guess_offer(&g, "help");
	ww_guess_offer(&g, "version");
	if (name[0] == '-')
		(void)!ww_err_set(
			&err, WW_ERR_USAGE, "the option %.60s must come after the command; warpwright -h lists commands", name);
	else if (g.best)
		(void)!ww_err_set(&err, WW_ERR_USAGE, "no command \"%.60s\"; did you mean \"%s\"?", name, g.best);
	else
		(void)!ww_err_set(&err, WW_ERR_USAGE, "no command \"%.60s\"; warpwright -h lists them", name);
	return ww_cmd_fail(&err);
}

static int print_version(void)
{
	if (ww_cmd_json)
		ww_cmd_print_json(json_pack("{s:s}", "version", WW_VERSION));
	else
		puts("warpwright " WW_VERSION);
	return 0;
}

static int dispatch(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;
	if (!word) {
		print_commands(stderr);
		return 2;
	}
	if (!strcmp(word, "--version") || !strcmp(word, "version"))
		return print_version();
	int help = !strcmp(word, "help");
	if (help && argc > 2)
		word = argv[2];
	if (!strcmp(word, "help") || !strcmp(word, "-h") || !strcmp(word, "--help") || (help && !strcmp(word, "version"))) {
		print_commands(stdout);
		return 0;
	}
	const struct ww_cmd *cmd = find_command(word);
	return !cmd ? no_command(word) : help ? print_help(cmd) : run_command(cmd, argc - 2, argv + 2);
}

/* Where the reader of a pipe has gone, end quietly by SIGPIPE as other programs do. */
static int finish_output(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	if (ww_cmd_reader_gone()) {
		signal(SIGPIPE, SIG_DFL);
		raise(SIGPIPE);
	}
	fputs("warpwright: cannot write to standard output\n", stderr);
	return 3;
}

int main(int argc, char **argv)
{
	ww_policy_hide_keys();
	if (argc >= 2 && !strcmp(argv[1], "__manual"))
		return ww_manual_main(argc - 2, argv + 2);
	if (argc >= 2 && !strncmp(argv[1], "__", 2)) {
		for (const struct ww_worker_main *w = ww_worker_table; w->name; w++)
			if (!strcmp(argv[1] + 2, w->name))
				return w->run(argc - 2, argv + 2);
	}
	install_signals();
	ww_cmd_json = has_word(argc - 1, argv + 1, "--json", "--json");
	return finish_output(dispatch(argc, argv));
}
