/* Every request to a real reference worker on the cpu target; make check sets PyTorch up, so that it cannot be
 * missing.
 *
 * all: a task that takes too much memory; tasks that print and fork; one with modules of its own
 * budget: 6 CPU-seconds, all 15 */
#include "unit.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"
#include "task/ref.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ww_ref *shared;
static int all;
static char folder[] = "/tmp/ww-ref-XXXXXX"; /* a group's, for a task with files of its own */

static void load_file(struct ww_task *t, const char *name)
{
	char path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	snprintf(path, sizeof(path), "%s/tests/data/tasks/%s.py", getenv("WW_SOURCE_DIR"), name);
	if (ww_task_load(t, path, &err) != WW_OK)
		fail_msg("%s", err.msg);
}

static int is_missing; /* there is no PyTorch */

static int open_shared(void **state)
{
	char *roots;
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_task ok; /* a worker sees the folders of its first task: all tests' are made its */
	load_file(&ok, "ok");
	memcpy(strrchr(folder, '-'), "-XXXXXX", sizeof("-XXXXXX"));
	assert_non_null(mkdtemp(folder));
	assert_true(asprintf(&roots, "%s:%s", ok.roots, folder) > 0);
	free(ok.roots);
	ok.roots = roots;
	struct ww_ref_opts o = {
		.target = WW_TARGET_CPU, .threads = 1, .pool_bytes = 1 << 20, .max_load_s = 30, .first = &ok
	};
	enum ww_rc rc = ww_ref_open(&shared, &o, &err);
	ww_task_release(&ok);
	is_missing = rc == WW_ERR_MISSING;
	if (rc != WW_OK)
		fprintf(stderr, "%s\n", err.msg);
	else if (json_integer_value(json_object_get(ww_ref_hello(shared), "pool_bytes")) != 1 << 20)
		rc = WW_ERR_PROTOCOL; /* without it no reference is kept, and everything works, ten times slower */
	return rc != WW_OK;
}

static int close_shared(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	ww_ref_close(shared);
	return ww_fs_remove_tree(folder, &err) != WW_OK;
}

#define OK(call) do { struct ww_err e_ = WW_ERR_INIT, *e = &e_; \
	if ((call) != WW_OK) fail_msg("%s: %s", #call, e->msg); } while (0)

static void tasks_that_cannot_be_used(void **state)
{
	(void)state;
	static const struct {
		const char *task, *word;
	} rows[] = { { "syntax", "syntax error in line 4" }, { "no_model", "does not define Model" },
		{ "missing_package", "a_package_that_does_not_exist" }, { "complex_fft", "complex" },
		{ "autograd", "autograd" }, { "dropout", "end Model.__init__ with self.eval()" }, { "generator", "random" },
		{ "dynamic", "data-dependent" }, { "item", "data-dependent" }, { "text_output", "returns a str" },
		{ "no_output", "no tensor" }, { "writes_input", "writes into its input" },
		{ "raises", "line 13: ValueError: a reason" }, { "sysexit", "sys.exit" }, { "large", "memory" } };
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_task t;
		struct ww_err err = WW_ERR_INIT;
		load_file(&t, rows[i].task);
		/* What does not fit may fit another time; with what is refused for good it shares the exit code. */
		assert_int_equal(ww_ref_load(shared, &t, 1, &err), strcmp(rows[i].task, "large") ? WW_ERR_TASK : WW_ERR_ROOM);
		if (!strstr(err.msg, rows[i].word))
			fail_msg("%s: \"%s\" lacks \"%s\"", rows[i].task, err.msg, rows[i].word);
		assert_null(strchr(err.msg, '\n')); /* what commands print: one line */
		assert_true(ww_ref_alive(shared));
		ww_task_release(&t);
	}
}

/* Without PyTorch: in a fraction of the time that its import takes. */
static void refused_before_pytorch_is_imported(void **state)
{
	(void)state;
	static const struct {
		const char *task, *word;
	} rows[] = { { "syntax", "line 4" }, { "no_model", "does not define Model" } };
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_ref *r;
		struct ww_task t;
		struct ww_err err = WW_ERR_INIT;
		load_file(&t, rows[i].task);
		struct ww_ref_opts o = { .target = WW_TARGET_CPU, .first = &t };
		assert_int_equal(ww_ref_open(&r, &o, &err), WW_ERR_TASK);
		assert_non_null(strstr(err.msg, rows[i].word));
		assert_null(r);
		ww_task_release(&t);
	}
}

/* ---- A task's own modules and files ------------------------------------------------------------------------------ */

static void put_file(const char *name, const char *text)
{
	char path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(ww_fs_write(path, text, strlen(text), &err), WW_OK);
}

/* Load a task of this forward(); on success its first operator into op. */
static enum ww_rc load_beside(const char *forward, char op[64], char id[WW_HASH_HEX], struct ww_err *err)
{
	char path[PATH_MAX], text[2048];
	struct ww_task t;
	json_t *graph;
	snprintf(text, sizeof(text),
		"import importlib, os, torch, torch.nn as nn\n"
		"from layers import act\nfrom shared_part import twice\n"
		"class Model(nn.Module):\n"
		"    def __init__(self):\n        super().__init__()\n"
		"        self.scale = float(open('scale.txt').read()) + len(open(os.path.join(os.path.dirname(__file__), "
		"'scale.txt')).read())\n"
		"    def forward(self, x):\n        %s\n"
		"def get_inputs():\n    return [torch.randn(4, 8)]\n"
		"def get_init_inputs():\n    return []\n",
		forward);
	put_file("beside.py", text);
	snprintf(path, sizeof(path), "%s/beside.py", folder);
	OK(ww_task_load(&t, path, e));
	memcpy(id, t.id, WW_HASH_HEX);
	enum ww_rc rc = ww_ref_load(shared, &t, 1, err);
	if (rc == WW_OK) {
		OK(ww_ref_graph(shared, &graph, e));
		snprintf(
			op, 64, "%s", json_string_value(json_object_get(json_array_get(json_object_get(graph, "nodes"), 0), "op")));
		json_decref(graph);
	}
	ww_task_release(&t);
	return rc;
}

static void a_task_with_modules_and_files_of_its_own(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	char op[64], id[WW_HASH_HEX], other[WW_HASH_HEX], path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/path", folder);
	assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
	setenv("PYTHONPATH", path, 1);
	put_file("layers.py", "import torch\nact = torch.relu\n");
	put_file("path/shared_part.py", "def twice(x):\n    return x * 2\n");
	put_file("scale.txt", "3.0");
	put_file("path/extra.txt", "");
	put_file("unnamed.py", "x = 1\n");
	put_file("random.py", "raise RuntimeError('a file that lies there by chance')\n");
	if (load_beside("return act(twice(x)) * self.scale", op, id, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_string_equal(op, "aten.mul.Tensor");
	assert_int_equal(load_beside("return twice(act(x)) * self.scale", op, id, &err), WW_OK);
	assert_string_equal(op, "aten.relu.default");
	/* The same text, another layers.py: another task. */
	put_file("layers.py", "import torch\nact = torch.tanh\n");
	assert_int_equal(load_beside("return twice(act(x)) * self.scale", op, other, &err), WW_OK);
	assert_string_equal(op, "aten.tanh.default");
	assert_string_not_equal(id, other);
	/* What could change unnoticed. */
	assert_int_equal(load_beside("importlib.import_module('un' + 'named'); return act(x)", op, id, &err), WW_ERR_TASK);
	assert_non_null(strstr(err.msg, "reads unnamed.py, which its text does not name"));
	assert_int_equal(load_beside("open('/'.join(['path', 'extra.txt'])); return act(x)", op, id, &err), WW_ERR_TASK);
	assert_non_null(strstr(err.msg, "reads path/extra.txt"));
	/* Nothing is written there, and nobody is told to install a package of that name. */
	assert_int_equal(load_beside("open('made', 'w'); return act(x)", op, id, &err), WW_ERR_TASK);
	assert_int_equal(load_beside("import not_there; return act(x)", op, id, &err), WW_ERR_TASK);
	assert_non_null(strstr(err.msg, "no module of that name is in the task's folder (/tmp/ww-ref-"));
	assert_null(strstr(err.msg, "pip"));
	unsetenv("PYTHONPATH");
}

static const struct ww_ref_ties no_ties = { 0, 0 };

static void requests_out_of_order(void **state)
{
	(void)state;
	struct ww_task t;
	struct ww_err err = WW_ERR_INIT;
	struct ww_ref_compare c;
	double us;
	load_file(&t, "ok");
	OK(ww_ref_load(shared, &t, 1, e));
	assert_int_equal(ww_ref_compare(shared, WW_RULE_STRICT, 0, NULL, &no_ties, &c, &err), WW_ERR_USAGE);
	assert_int_equal(ww_ref_time(shared, WW_BASE_EAGER, WW_REF_CALL, 1, 0, &us, &err), WW_ERR_USAGE);
	assert_int_equal(ww_ref_arm(shared, WW_BASE_EAGER, &err), WW_ERR_USAGE);
	assert_true(ww_ref_alive(shared));
	ww_task_release(&t);
}

struct maps {
	void *p[32];
	int n;
	struct ww_ref_buffers b;
};

static void map_all(struct maps *m, const struct ww_ref_shapes *s)
{
	OK(ww_ref_buffers(shared, &m->b, e));
	assert_int_equal(m->b.n, s->n_inputs + s->n_params + s->n_outputs);
	for (m->n = 0; m->n < m->b.n; m->n++) {
		const struct ww_ref_buffer *b = &m->b.b[m->n];
		int output = m->n >= s->n_inputs + s->n_params;
		/* What the reference computes from cannot be written by anybody else. */
		void *rw = mmap(NULL, b->alloc_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
		assert_int_equal(rw != MAP_FAILED, output);
		assert_int_equal(ftruncate(b->fd, 0), -1);
		m->p[m->n] = output ? rw : mmap(NULL, b->alloc_bytes, PROT_READ, MAP_SHARED, b->fd, 0);
		assert_ptr_not_equal(m->p[m->n], MAP_FAILED);
	}
}

static void unmap_all(struct maps *m)
{
	for (int i = 0; i < m->n; i++)
		munmap(m->p[i], m->b.b[i].alloc_bytes);
	ww_ref_buffers_release(&m->b);
}

/* By PyTorch itself, in a confined worker; no processor of ours has TF32. */
static void a_convolution_is_asked(void **state)
{
	(void)state;
	static const char text[] =
		"import torch, torch.nn as nn\n"
		"class Model(nn.Module):\n"
		"    def __init__(self):\n        super().__init__()\n        self.conv = nn.Conv1d(1, 2, 3)\n"
		"    def forward(self, x):\n        return torch.relu(self.conv(x[:, None]))\n"
		"def get_inputs():\n    return [torch.randn(4, 8)]\n"
		"def get_init_inputs():\n    return []\n";
	struct ww_task t;
	json_auto_t *graph = NULL;
	json_t *node;
	size_t i;
	int asked, found = 0;
	OK(ww_task_from_text(&t, "convolution.py", text, strlen(text), e));
	OK(ww_ref_load(shared, &t, 1, e));
	ww_task_release(&t);
	OK(ww_ref_graph(shared, &graph, e));
	OK(ww_ref_tf32(shared, graph, &asked, e));
	assert_true(asked);
	json_array_foreach(json_object_get(graph, "nodes"), i, node) {
		int is = ww_json_bool(node, "tf32", -1), conv = strstr(ww_json_str(node, "op", ""), "conv1d") != NULL;
		assert_int_equal(is, conv ? 0 : -1);
		found += conv;
	}
	assert_int_equal(found, 1);
}

static void a_task_from_end_to_end(void **state)
{
	(void)state;
	struct ww_task t;
	json_t *graph;
	struct ww_ref_shapes s;
	struct maps m;
	struct ww_ref_compare c;
	struct ww_ref_degenerate d;
	load_file(&t, "ok"); /* relu(x) * 2 on (4, 8) */
	OK(ww_ref_load(shared, &t, 1, e));
	OK(ww_ref_graph(shared, &graph, e));
	OK(ww_ref_shapes(graph, &s, e));
	assert_int_equal(s.n_inputs, 1);
	assert_int_equal(s.inputs[0].numel, 32);
	assert_int_equal(s.outputs[0].bytes, 128);
	assert_int_equal(json_array_size(json_object_get(graph, "nodes")), 2);
	map_all(&m, &s);
	const float *x = m.p[0];
	float *y = m.p[1], before[32];
	memset(y, 0xff, 128);
	OK(ww_ref_draw(shared, &(struct ww_ref_draw){ .seed = 5, .scale = 1, .params = WW_REF_PARAMS_REDRAW }, e));
	memcpy(before, x, sizeof(before));
	OK(ww_ref_draw(shared, &(struct ww_ref_draw){ .seed = 6, .scale = 1, .params = WW_REF_PARAMS_REDRAW }, e));
	assert_memory_not_equal(before, x, sizeof(before));
	OK(ww_ref_draw(
		shared, &(struct ww_ref_draw){ .seed = 5, .scale = 64, .shift = 3, .params = WW_REF_PARAMS_KEEP }, e));
	for (int i = 0; i < 32; i++)
		assert_true(fabsf(x[i] - (before[i] * 64 + 3)) < 1e-4f);
	OK(ww_ref_compare(shared, WW_RULE_STRICT, 0, NULL, &no_ties, &c, e));
	assert_false(c.pass);
	assert_true(c.fp64 && c.finite && c.n_outputs == 1 && c.outputs[0].rms > 0);
	assert_string_equal(c.outputs[0].pattern, "all");
	assert_string_equal(c.outputs[0].looks, "nan");
	assert_int_equal(c.outputs[0].violations, 32);
	for (int i = 0; i < 32; i++)
		y[i] = x[i] > 0 ? 2 * x[i] : 0;
	OK(ww_ref_compare(shared, WW_RULE_STRICT, 0, NULL, &no_ties, &c, e));
	assert_true(c.pass && c.outputs[0].err_rel == 0);
	OK(ww_ref_compare(shared, WW_RULE_PAPER, 0, NULL, &no_ties, &c, e));
	assert_true(c.pass);
	y[3 * 8 + 5] += 1;
	OK(ww_ref_compare(shared, WW_RULE_STRICT, 0, NULL, &no_ties, &c, e));
	assert_false(c.pass);
	assert_int_equal(c.outputs[0].violations, 1);
	assert_int_equal(c.outputs[0].rank, 2);
	assert_int_equal(c.outputs[0].worst[0], 3);
	assert_int_equal(c.outputs[0].worst[1], 5);
	assert_true(fabs(c.outputs[0].worst_found - c.outputs[0].worst_expected - 1) < 1e-4);
	/* Behind right outputs the next draw is made, behind wrong ones none. */
	const struct ww_ref_draw next = { .seed = 5, .scale = 1, .params = WW_REF_PARAMS_REDRAW };
	float wrong_on[32];
	memcpy(wrong_on, x, sizeof(wrong_on));
	OK(ww_ref_compare(shared, WW_RULE_STRICT, 0, &next, &no_ties, &c, e));
	assert_false(c.pass || c.drawn);
	assert_memory_equal(wrong_on, x, sizeof(wrong_on));
	y[3 * 8 + 5] -= 1;
	OK(ww_ref_compare(shared, WW_RULE_STRICT, 0, &next, &no_ties, &c, e));
	assert_true(c.pass && c.drawn);
	assert_memory_equal(before, x, sizeof(before));
	OK(ww_ref_compare(shared, WW_RULE_STRICT, 0, NULL, &no_ties, &c, e));
	assert_false(c.pass); /* they belong to the draw before */
	for (int i = 0; i < 32; i++)
		y[i] = x[i] > 0 ? 2 * x[i] : 0;
	/* For candidates that go on on their own: what was kept is compared, what came later is seen. */
	int same = 0, taken = 0;
	OK(ww_ref_keep(shared, json_array(), NULL, 0, &taken, e));
	assert_true(taken);
	OK(ww_ref_same(shared, &same, e));
	assert_true(same);
	y[0] += 1;
	OK(ww_ref_same(shared, &same, e));
	assert_false(same);
	OK(ww_ref_compare(shared, WW_RULE_STRICT, 0, NULL, &no_ties, &c, e));
	assert_true(c.pass);
	OK(ww_ref_wipe(shared, 1, 1, NULL, e));
	for (int i = 0; i < 128; i++)
		assert_int_equal(((unsigned char *)y)[i], 0xff);
	OK(ww_ref_compare(shared, WW_RULE_STRICT, 0, NULL, &no_ties, &c, e));
	assert_false(c.pass);
	json_t *o = NULL;
	OK(ww_ref_origin(shared, &o, e));
	assert_true(
		json_is_integer(json_object_get(o, "model_seed")) && json_array_size(json_object_get(o, "on_host")) == 0);
	json_decref(o);
	OK(ww_ref_trace(shared, &o, e));
	assert_string_equal(
		json_string_value(json_array_get(json_array_get(json_object_get(o, "aten"), 0), 0)), "aten.mul");
	json_decref(o);
	OK(ww_ref_degenerate(shared, 1, 2, &d, e));
	assert_false(d.rule[WW_RULE_STRICT].degenerate || d.rule[WW_RULE_PAPER].degenerate);
	OK(ww_ref_free(shared, 1, e));
	unmap_all(&m);
	ww_ref_shapes_release(&s);
	json_decref(graph);
	ww_task_release(&t);
}

static void eager_by_the_judges_clock(void **state)
{
	(void)state;
	struct ww_task t;
	struct ww_ref_baseline b;
	uint64_t ns = 0;
	double waited_us = -1;
	load_file(&t, "ok");
	OK(ww_ref_load(shared, &t, 1, e));
	OK(ww_ref_baseline(shared, WW_BASE_EAGER, &b, e));
	assert_true(b.available);
	assert_string_equal(b.device_method, "clock");
	for (int i = 0; i < 3; i++) {
		OK(ww_ref_arm(shared, WW_BASE_EAGER, e));
		for (int k = 0; k < 1000 && !ww_ref_quiet(shared); k++)
			usleep(1000);
		assert_true(ww_ref_quiet(shared));
		OK(ww_ref_fire(shared, &ns, &waited_us, e));
		assert_true(ns > 500 && ns < 10000000000ull && waited_us >= 0);
	}
	ww_task_release(&t);
}

static void noisy_and_forking_tasks(void **state)
{
	(void)state;
	static const char *const names[] = { "prints", "forks", "leaks" };
	for (size_t i = 0; i < WW_ARRAY_LEN(names); i++) {
		struct ww_task t;
		json_t *graph;
		load_file(&t, names[i]);
		OK(ww_ref_load(shared, &t, 1, e));
		OK(ww_ref_graph(shared, &graph, e));
		assert_string_equal(json_string_value(json_object_get(json_object_get(graph, "task"), "id")), t.id);
		json_decref(graph);
		ww_task_release(&t);
	}
	assert_non_null(strstr(ww_ref_log(shared), "last words"));
}

/* Each of these costs its worker and nothing else, while another worker goes on.  One that hangs: tests/cli/inspect.t.
 */
static void tasks_that_end_their_worker(void **state)
{
	(void)state;
	static const struct {
		const char *task, *word, *also;
	} rows[] = { { "exits", "ended the process", "code 7" }, { "allocates", "MiB of memory", "while it was loaded" } };
	for (size_t i = 0; i < (all ? WW_ARRAY_LEN(rows) : 1); i++) {
		struct ww_ref *r;
		struct ww_task t, ok;
		struct ww_err err = WW_ERR_INIT;
		struct ww_ref_opts o = {
			.target = WW_TARGET_CPU, .threads = 1, .max_load_s = 30, .max_resident_bytes = 1u << 30, .first = &t
		};
		load_file(&t, rows[i].task);
		if (ww_ref_open(&r, &o, &err) != WW_OK)
			fail_msg("%s", err.msg);
		assert_int_equal(ww_ref_load(r, &t, 1, &err), WW_ERR_TASK);
		if (!strstr(err.msg, rows[i].word) || !strstr(err.msg, rows[i].also) || strchr(err.msg, '\n'))
			fail_msg("%s: \"%s\" lacks \"%s\"", rows[i].task, err.msg, rows[i].word);
		assert_false(ww_ref_alive(r));
		ww_ref_close(r);
		load_file(&ok, "ok");
		OK(ww_ref_load(shared, &ok, 1, e));
		ww_task_release(&ok);
		ww_task_release(&t);
	}
}

/* Members of a process group that still run; who only waits to be reaped by init does not count. */
static int group_size(pid_t group)
{
	int n = 0;
	DIR *d = opendir("/proc");
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		char path[300], text[512] = "", state;
		int parent, pgrp;
		snprintf(path, sizeof(path), "/proc/%.32s/stat", e->d_name);
		FILE *f = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? fopen(path, "r") : NULL;
		if (!f)
			continue;
		const char *end = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
		fclose(f);
		if (end && sscanf(end + 1, " %c %d %d", &state, &parent, &pgrp) == 3 && pgrp == group && state != 'Z')
			n++;
	}
	closedir(d);
	return n;
}

static void nothing_is_left_behind(void **state)
{
	(void)state;
	pid_t pid = ww_ref_pid(shared);
	assert_true(group_size(pid) >= 1);
	ww_ref_close(shared);
	shared = NULL;
	assert_int_equal(kill(pid, 0), -1);
	for (int i = 0; i < 100 && group_size(pid); i++)
		usleep(10000);
	assert_int_equal(group_size(pid), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* A task has our worker's own objects within reach.  The last one that loads: the worker is that task's from then on.
 */
static void a_forged_graph_is_the_tasks_fault(void **state)
{
	(void)state;
	struct ww_task t;
	struct ww_err err = WW_ERR_INIT;
	json_t *graph;
	load_file(&t, "forges_graph");
	OK(ww_ref_load(shared, &t, 1, e));
	assert_int_equal(ww_ref_graph(shared, &graph, &err), WW_ERR_TASK);
	if (!strstr(err.msg, "node softmax (aten.softmax.int): its argument dim is 77"))
		fail_msg("%s", err.msg);
	assert_null(graph);
	ww_task_release(&t);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(tasks_that_cannot_be_used),
		cmocka_unit_test(refused_before_pytorch_is_imported), cmocka_unit_test(requests_out_of_order),
		cmocka_unit_test(a_convolution_is_asked), cmocka_unit_test(a_task_from_end_to_end),
		cmocka_unit_test(eager_by_the_judges_clock), cmocka_unit_test(tasks_that_end_their_worker),
		cmocka_unit_test(a_forged_graph_is_the_tasks_fault), cmocka_unit_test(nothing_is_left_behind) };
	const struct CMUnitTest more[] = { cmocka_unit_test(a_task_with_modules_and_files_of_its_own),
		cmocka_unit_test(noisy_and_forking_tasks) };
	all = unit_all(argc, argv);
	int failed = cmocka_run_group_tests(tests, open_shared, close_shared);
	if (all && !is_missing)
		failed += cmocka_run_group_tests(more, open_shared, close_shared);
	return is_missing ? 77 : failed;
}
