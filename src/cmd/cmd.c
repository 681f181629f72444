#include "cmd/cmd.h"

#include <poll.h>
#include <stdio.h>
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
