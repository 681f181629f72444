/* main.c - finds the command and hands over.
 *
 * Worker processes of the program itself (builder, compile workers, runners) are the same binary, started as
 * `warpwright __NAME ...`; they register in worker_table and are not commands: no help, no stable interface.
 */
#include "cmd/help.h"
#include "cmd/manual.h"
#include "cmd/table.h"

#include "policy/policy.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void on_signal(int sig) { ww_cmd_interrupted = ww_cmd_interrupted + 1; }

static void install_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
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
		return ww_help_print(cmd);
	ww_auto_free void *values = calloc(1, cmd->values_size ? cmd->values_size : 1);
	if (!values)
		return 3;
	int rest = 0;
	return ww_opt_parse(cmd, argc, argv, values, &rest, &err) == WW_OK ? cmd->run(cmd, values, rest, argv)
																	   : ww_cmd_fail(&err);
}

static int dispatch(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;
	if (!word) {
		ww_help_list(stderr);
		return 2;
	}
	if (!strcmp(word, "-h") || !strcmp(word, "--help"))
		return ww_help_print(NULL);
	const struct ww_cmd *cmd = ww_help_find(!strcmp(word, "--version") ? "version" : word);
	return cmd ? run_command(cmd, argc - 2, argv + 2) : ww_help_no_command(word);
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

/* Each tensor of an open task is a descriptor or two; systems allow 1,024 unless asked for more. */
static void allow_files(void)
{
	const rlim_t enough = 1 << 14;
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= enough)
		return;
	r.rlim_cur = r.rlim_max < enough ? r.rlim_max : enough;
	setrlimit(RLIMIT_NOFILE, &r);
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
	allow_files();
	ww_cmd_json = has_word(argc - 1, argv + 1, "--json", "--json");
	return finish_output(dispatch(argc, argv));
}
