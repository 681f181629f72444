/* What a graph of the store says: on cuda it has what the worker was asked of the GPU, and belongs to that GPU.  The
 * workers are Python scripts without PyTorch. */
#include "unit.h"

#include "base/json.h"
#include "base/tmpdir.h"
#include "judge/cache/graphs.h"

#include <stdio.h>
#include <string.h>

static char script[PATH_MAX + 16];
static struct ww_store *store;

/* %s: the device, cuDNN's version, what is said of a convolution. */
static const char worker[] =
	"import json, os, socket, struct\n"
	"s = socket.socket(fileno=3)\n"
	"FORM = {'dtype': 'float32', 'sizes': [1, 1, 1, 1], 'strides': [1, 1, 1, 1]}\n"
	"NODE = {'name': 'conv', 'op': 'aten.conv2d.default', 'args': [{'ref': 'x'}, {'ref': 'w'}], 'out': [FORM]}\n"
	"ANSWERS = {\n"
	"    'hello': {'device': {'name': '%s'}, 'versions': {'torch': '0', 'cudnn': '%s'}},\n"
	"    'graph': {'inputs': [{'name': 'x', **FORM}], 'params': [{'name': 'w', **FORM}], 'nodes': [NODE],\n"
	"              'outputs': [{'name': 'output0', 'ref': 'conv', **FORM}]},\n"
	"    'tf32': {'tf32': {'conv': %s}}}\n"
	"f = s.makefile('rb')\n"
	"while True:\n"
	"    h = f.read(16)\n"
	"    if len(h) < 16: os._exit(0)\n"
	"    _, _, length, descriptors = struct.unpack('<4sIII', h)\n"
	"    q = json.loads(f.read(length))\n"
	"    f.read(-(-descriptors // 128))\n"
	"    b = json.dumps({'ok': True, **ANSWERS.get(q['request'], {'known': bool(q.get('graph'))})}).encode()\n"
	"    s.sendall(struct.pack('<4sIII', b'WWBR', 1, len(b), 0) + b)\n";

/* What the graph says of its convolution (-1: nothing), and whether it was made now. */
static int loaded(enum ww_target target, const char *device, const char *cudnn, const char *says, int *made)
{
	struct ww_ref *r;
	struct ww_err err = WW_ERR_INIT;
	struct ww_cached_graph k = { .graph = NULL };
	const struct ww_ref_opts o = { .target = target, .worker = script, .max_request_s = 20, .max_load_s = 20 };
	WW_AUTO(ww_task_release) struct ww_task task = { 0 };
	static const char text[] = "class Model: pass\n";
	FILE *f = fopen(script, "w");
	assert_non_null(f);
	fprintf(f, worker, device, cudnn, says);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(ww_task_from_text(&task, "t.py", text, strlen(text), &err), WW_OK);
	if (ww_ref_open(&r, &o, &err))
		fail_msg("open: %s", err.msg);
	if (ww_graphs_load(&k, store, r, &task, 1, &err))
		fail_msg("load: %s", err.msg);
	assert_int_equal(ww_graphs_graph(&k, r, &err), WW_OK);
	*made = k.made;
	assert_int_equal(ww_graphs_keep(&k, store, r, &err), WW_OK);
	int is = ww_json_bool(json_array_get(json_object_get(k.graph, "nodes"), 0), "tf32", -1);
	json_decref(k.graph);
	ww_ref_close(r);
	return is;
}

static void a_graph_belongs_to_its_gpu(void **state)
{
	static const struct {
		enum ww_target target;
		const char *device, *cudnn, *says;
		int is, made;
	} rows[] = { { WW_TARGET_CPU, "one", "", "True", -1, 1 }, { WW_TARGET_CPU, "other", "", "True", -1, 0 },
		{ WW_TARGET_CUDA, "one", "9", "None", -1, 1 }, { WW_TARGET_CUDA, "one", "9", "True", 1, 1 },
		{ WW_TARGET_CUDA, "one", "9", "False", 1, 0 }, { WW_TARGET_CUDA, "other", "9", "False", 0, 1 },
		{ WW_TARGET_CUDA, "one", "10", "False", 0, 1 }, { WW_TARGET_CUDA, "one", "9", "False", 1, 0 } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		int made, is = loaded(rows[i].target, rows[i].device, rows[i].cudnn, rows[i].says, &made);
		if (is != rows[i].is || made != rows[i].made)
			fail_msg("row %zu: tf32 %d, made %d", i, is, made);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(a_graph_belongs_to_its_gpu) };
	struct ww_err err = WW_ERR_INIT;
	struct ww_tmpdir dir = WW_TMPDIR_INIT;
	char path[PATH_MAX + 16];
	const struct ww_store_opts o = { .path = path };
	int failed;

	if (ww_tmpdir_new(&dir, "test-graphs", &err) != WW_OK)
		return 1;
	snprintf(script, sizeof(script), "%s/worker.py", dir.path);
	snprintf(path, sizeof(path), "%s/store", dir.path);
	if (ww_store_open(&store, &o, &err) != WW_OK)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ww_store_close(store);
	ww_tmpdir_remove(&dir);
	return failed;
}
