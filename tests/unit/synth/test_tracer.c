/* Marks of candidates without a device, by real workers on PyTorch; make check sets it up, so that it cannot be
 * missing.
 *
 * budget: 10 CPU-seconds */
#include "unit.h"

#include "base/json.h"
#include "synth/tracer.h"

static const char GELU[] = "import torch\n"
						   "class Model(torch.nn.Module):\n"
						   "    def forward(self, x):\n"
						   "        return torch.nn.functional.gelu(x) + 1\n"
						   "def get_inputs(): return [torch.randn(%d, 64)]\n"
						   "def get_init_inputs(): return []\n";

struct thread {
	pthread_t id;
	struct ww_synth_tracers *tracers;
	char text[500], signature[100], why[200];
};

static void *traces(void *arg)
{
	struct thread *t = arg;
	struct ww_err err = WW_ERR_INIT;
	struct ww_task task;
	json_auto_t *mark = NULL;
	assert_int_equal(ww_task_from_text(&task, "candidate", t->text, strlen(t->text), &err), WW_OK);
	if (ww_synth_trace(t->tracers, &task, 60, NULL, &mark, t->why, sizeof(t->why), &err) != WW_OK)
		snprintf(t->signature, sizeof(t->signature), "%.99s", err.msg);
	else
		snprintf(t->signature, sizeof(t->signature), "%.99s", ww_json_str(mark, "signature", "none"));
	ww_task_release(&task);
	return NULL;
}

static void sizes_make_no_difference(void **state)
{
	struct ww_synth_tracers tracers = WW_SYNTH_TRACERS_INIT;
	struct thread t[3] = { { .tracers = &tracers }, { .tracers = &tracers }, { .tracers = &tracers } };
	snprintf(t[0].text, sizeof(t[0].text), GELU, 32);
	snprintf(t[1].text, sizeof(t[1].text), GELU, 1 << 24); /* 4 GiB, which nobody makes */
	snprintf(t[2].text, sizeof(t[2].text), GELU, 32);
	memcpy(strstr(t[2].text, "gelu"), "gelo", 4); /* there is none, so there is no graph */
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i].id, NULL, traces, &t[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i].id, NULL);
	traces(&t[2]); /* by a worker that is there */
	assert_null(tracers.workers[2]);
	if (strncmp(t[0].signature, "s1:", 3))
		fail_msg("%s", t[0].signature);
	assert_string_equal(t[1].signature, t[0].signature);
	assert_string_equal(t[2].signature, "none");
	assert_string_equal(t[1].why, "");
	if (!strstr(t[2].why, "gelo"))
		fail_msg("%s", t[2].why);
	ww_synth_tracers_close(&tracers);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(sizes_make_no_difference) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
