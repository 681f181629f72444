/* One queue: of several devices, one of which fails; of several clients, one of which floods it.  The devices are two
 * judges of the cpu target, and the test says whether they work.  Tasks are opened and nothing is judged, so reference
 * workers need no PyTorch (scripted_worker.py). */
#include "unit.h"
#include "stderr.h"

#include "base/fs.h"
#include "judge/batch.h"
#include "task/ref.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { JOBS = 8 };
#define OPTS { .target = WW_TARGET_CPU, .threads = 1, .baselines = 1, .worker = worker }
static char worker[PATH_MAX], dir[] = "/tmp/ww-test-batch-XXXXXX";
static atomic_int works[2] = { 1, 1 }, done_on[2], failed;
static struct ww_batch *batch;
static struct ww_task tasks[2];

static enum ww_rc probe(const struct ww_judge_opts *o, struct ww_err *err)
{
	return works[o->device] ? WW_OK : ww_err_set(err, WW_ERR_DEVICE, "it has fallen off the bus");
}

/* What a job meets on a device that is gone. */
static enum ww_rc work(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err)
{
	assert_non_null(ww_judge_task_graph(t));
	return probe(&job->opts, err);
}

static void done(void *ctx, struct ww_batch_job *job)
{
	(void)ctx;
	if (job->rc == WW_OK)
		done_on[job->opts.device]++;
	else
		failed += job->rc == WW_ERR_DEVICE;
}

static void judge_all(struct ww_batch_job *jobs)
{
	struct ww_err err = WW_ERR_INIT;
	done_on[0] = done_on[1] = failed = 0;
	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct ww_batch_job){ .opts = OPTS, .task = tasks[i % 2], .work = work };
		assert_int_equal(ww_batch_add(batch, &jobs[i], &err), WW_OK);
	}
	ww_batch_drain(batch);
}

static void jobs_of_a_failed_device_go_to_the_others(void **state)
{
	struct ww_batch_job jobs[JOBS];
	struct ww_batch_opts o = {
		.threads = 3, .open_tasks = 4, .devices = { 0, 1 }, .n_devices = 2, .probe = probe, .done = done
	};
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	assert_int_equal(ww_batch_open(&batch, &o, &err), WW_OK);
	judge_all(jobs);
	assert_int_equal(done_on[0] + done_on[1], JOBS);
	assert_true(done_on[0] > 0 && done_on[1] > 0); /* a task each */
	works[1] = 0;
	struct unit_stderr said = unit_stderr_begin();
	judge_all(jobs);
	assert_int_equal(done_on[0], JOBS);
	works[1] = 1; /* what has failed stays out */
	judge_all(jobs);
	assert_int_equal(unit_stderr_end(&said, "device 1 has failed"), 1); /* of all its jobs */
	assert_int_equal(done_on[0], JOBS);
	works[0] = 0;
	judge_all(jobs);
	assert_int_equal(failed, JOBS);
	ww_batch_close(batch);
}

/* ---- Clients and cancelled jobs ---------------------------------------------------------------------------------- */

enum { FLOOD = 200 };
static atomic_int begun, go, n_served, n_cancelled, n_lost;
static uint64_t served[FLOOD + 8];

static enum ww_rc serve_one(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err)
{
	(void)t;
	(void)err;
	begun = 1;
	while (!go)
		usleep(1000);
	served[n_served++] = job->client;
	return WW_OK;
}

static void count(void *ctx, struct ww_batch_job *job)
{
	(void)ctx;
	n_cancelled += job->rc == WW_ERR_INTERRUPTED;
	n_lost += job->rc != WW_OK && job->rc != WW_ERR_INTERRUPTED;
}

static void add(struct ww_batch_job *job, uint64_t client)
{
	struct ww_err err = WW_ERR_INIT;
	*job = (struct ww_batch_job){ .opts = OPTS, .task = tasks[0], .client = client, .work = serve_one };
	assert_int_equal(ww_batch_add(batch, job, &err), WW_OK);
}

/* A client with 200 jobs does not delay another's by more than one each; those that it cancels leave at once. */
static void clients_take_turns(void **state)
{
	static struct ww_batch_job flood[FLOOD], honest[3];
	struct ww_batch_opts o = { .threads = 1, .open_tasks = 1, .queue = 1024, .done = count };
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	assert_int_equal(ww_batch_open(&batch, &o, &err), WW_OK);
	add(&flood[0], 1);
	while (!begun && !n_lost)
		usleep(1000);
	assert_int_equal(n_lost, 0);
	for (int i = 1; i < FLOOD; i++)
		add(&flood[i], 1);
	for (int i = 0; i < 3; i++)
		add(&honest[i], 2);
	for (int i = 10; i < FLOOD; i++)
		ww_batch_cancel(batch, &flood[i]);
	assert_int_equal(n_cancelled, FLOOD - 10);
	go = 1;
	ww_batch_drain(batch);
	assert_int_equal(n_served, 13);
	for (int i = 0; i < 13; i++)
		assert_int_equal(served[i], i >= 2 && i <= 6 && i % 2 == 0 ? 2 : 1);
	ww_batch_close(batch);
}

/* ---- Memory that is short for a while ---------------------------------------------------------------------------- */

static atomic_int inside[2], beside, short_once, n_fine;

/* The first job that finds both tasks open finds no memory; later ones say whether both are open again. */
static enum ww_rc fill_memory(struct ww_batch_job *job, struct ww_judge_task *t, struct ww_err *err)
{
	int me = job->client == 1, after = short_once > 0;
	inside[me]++;
	int ms = !short_once || n_fine > 5 ? 30000 : 20; /* until the other comes; while one is open it cannot */
	for (int i = 0; i < ms && !inside[!me] && !beside; i++)
		usleep(1000);
	int both = inside[!me] > 0, full = both && !short_once++;
	usleep(2000);
	beside += both && after;
	inside[me]--;
	return full ? ww_err_set(err, WW_ERR_ROOM, "no room") : WW_OK;
}

static void count_fine(void *ctx, struct ww_batch_job *job) { n_fine += job->rc == WW_OK; }

static void tasks_stay_open_again(void **state)
{
	static struct ww_batch_job jobs[24];
	struct ww_batch_opts o = { .threads = 2, .open_tasks = 2, .done = count_fine };
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_batch_open(&batch, &o, &err), WW_OK);
	for (uint64_t i = 0; i < 24; i++) {
		jobs[i] = (struct ww_batch_job){ .opts = OPTS, .task = tasks[i % 2], .client = i % 2, .work = fill_memory };
		assert_int_equal(ww_batch_add(batch, &jobs[i], &err), WW_OK);
	}
	ww_batch_drain(batch);
	ww_batch_close(batch);
	assert_true(short_once > 1);
	assert_int_equal(n_fine, 24);
	assert_true(beside > 0);
}

/* In one folder with a link to the interpreter's environment, as a project may have it. */
static int make_tasks(void **state)
{
	static const char text[] = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x + %d\n"
							   "def get_inputs(): return [torch.rand(64)]\ndef get_init_inputs(): return []\n";
	char python[PATH_MAX], linked[PATH_MAX], path[PATH_MAX], *end;
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	snprintf(worker, sizeof(worker), "%s/tests/unit/judge/scripted_worker.py", getenv("WW_SOURCE_DIR"));
	if (!mkdtemp(dir) || ww_ref_find_python(python, &err) != WW_OK || !(end = strstr(python, "/bin/")))
		return -1;
	snprintf(linked, sizeof(linked), "%s/.venv%s", dir, end);
	snprintf(path, sizeof(path), "%s/.venv", dir);
	*end = 0;
	if (symlink(python, path) || setenv("WW_PYTHON", linked, 1))
		return -1;
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%d.py", dir, i);
		FILE *f = fopen(path, "w");
		if (!f || fprintf(f, text, i) < 0 || fclose(f) || ww_task_load(&tasks[i], path, &err) != WW_OK)
			return -1;
	}
	return 0;
}

static int release_tasks(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	ww_task_release(&tasks[0]);
	ww_task_release(&tasks[1]);
	return ww_fs_remove_tree(dir, &err) == WW_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(jobs_of_a_failed_device_go_to_the_others),
		cmocka_unit_test(clients_take_turns), cmocka_unit_test(tasks_stay_open_again) };
	return cmocka_run_group_tests(tests, make_tasks, release_tasks);
}
