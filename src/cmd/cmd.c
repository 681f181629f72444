#include "cmd/cmd.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

volatile int ww_cmd_interrupted;
int ww_cmd_json;

int ww_cmd_reader_gone(void)
{
	struct pollfd p = { .fd = STDOUT_FILENO, .events = POLLOUT };
	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* An error may quote a task, a record or a policy. */
static void say_line(const char *text)
{
	ww_auto_str line = WW_STR_INIT(2 * sizeof(((struct ww_err *)0)->msg));
	ww_str_add_line(&line, text, line.max);
	fprintf(stderr, "warpwright: %s\n", line.p);
}

/* Where the reader of standard output is gone no message is printed: main.c ends by SIGPIPE. */
int ww_cmd_say(const struct ww_err *err)
{
	if ((err->rc != WW_ERR_INTERRUPTED && err->rc != WW_ERR_IO) || !ww_cmd_reader_gone())
		say_line(err->msg);
	return ww_rc_exit(err->rc);
}

void ww_cmd_print_json(json_t *v)
{
	ww_auto_str text = WW_STR_INIT((size_t)1 << 30);
	ww_json_add(&text, v);
	ww_str_addc(&text, '\n');
	fwrite(text.p, 1, text.len, stdout);
	json_decref(v);
}

int ww_cmd_fail(const struct ww_err *err)
{
	int code = ww_cmd_say(err);
	if (ww_cmd_json)
		ww_cmd_print_json(json_pack("{s:s, s:i}", "error", err->msg, "exit", code));
	return code;
}

void ww_cmd_words(const char *text, char *out, size_t cap)
{
	ww_auto_str words = WW_STR_INIT(cap);
	for (const char *p = text, *end; p; p = end ? end + 3 : NULL) {
		size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789|");
		end = strstr(p, " | ");
		if (n && (!p[n] || p[n] == ' '))
			ww_str_addf(&words, "%s%.*s", words.len ? " " : "", (int)n, p);
	}
	snprintf(out, cap, "%s", strpbrk(text, "|") && words.len ? words.p : "");
	for (char *p = out; (p = strchr(p, '|'));)
		*p = ' ';
}

int ww_cmd_no_subcommand(const struct ww_cmd *cmd, const char *word)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_guess g = { .word = word };
	char words[256], *rest = NULL;
	ww_cmd_words(cmd->args, words, sizeof(words));
	for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
		ww_guess_offer(&g, w);
	if (g.best)
		(void)!ww_err_set(&err, WW_ERR_USAGE, "%s: no \"%.40s\"; did you mean \"%s\"?", cmd->name, word, g.best);
	else
		(void)!ww_err_set(
			&err, WW_ERR_USAGE, "%s: no \"%.40s\"; warpwright %s -h lists what there is", cmd->name, word, cmd->name);
	return ww_cmd_fail(&err);
}
