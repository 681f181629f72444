/* Turns on the device: what a program prints while it waits for them is no result. */
#include "unit.h"

#include "export/parts.h"

#include <sys/wait.h>
#include <unistd.h>

static int taken, rested;

static enum ww_rc take(void *ctx, struct ww_err *err)
{
	(void)ctx;
	(void)err;
	taken++;
	return WW_OK;
}

static void rest(void *ctx)
{
	(void)ctx;
	rested++;
}

/* A program as run_all.py is one, without PyTorch. */
static void start(struct ww_export_python *p, const char *script)
{
	int in[2], out[2];
	*p = (struct ww_export_python)WW_EXPORT_PYTHON_NONE;
	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	p->pid = fork();
	if (p->pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[1]);
		close(out[0]);
		execl("/bin/sh", "sh", "-c", script, NULL);
		_exit(127);
	}
	assert_true(p->pid > 0);
	close(in[0]);
	close(out[1]);
	p->in = in[1];
	p->out = out[0];
}

static void only_what_comes_behind_the_turns_is_a_result(void **state)
{
	(void)state;
	struct ww_export_python p;
	const struct ww_judge_use use = { take, rest, NULL };
	struct ww_str out = WW_STR_INIT(1024);
	struct ww_err err = WW_ERR_INIT;
	int status;
	start(&p,
		"read line; echo a warning; for turn in 1 2; do echo ready; read go; echo rest; done; "
		"echo '{\"pass\": true}'");
	ww_export_python_tell(&p, "jobs\n");
	assert_int_equal(ww_export_python_finish(&p, &use, NULL, &out, &status, &err), WW_OK);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_string_equal(out.p, "{\"pass\": true}\n");
	assert_int_equal(taken, 2);
	assert_int_equal(rested, 2);
	ww_export_python_end(&p);
	ww_str_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(only_what_comes_behind_the_turns_is_a_result) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
