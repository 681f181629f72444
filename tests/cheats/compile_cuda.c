/* compile_cuda.c - as much of `judge --batch` as needs no GPU, for tests/cheats/run --compile-only: plan.c is built,
 * kernels.cu compiled by NVRTC and checked, for a device that is made up (an H100's numbers) and tasks whose shapes are
 * written down here.
 *
 *     in    one job a line {"id", "task", "solution"}        out   {"id", "verdict": {status, correct, diagnostics,
 *           ...}}
 *
 * As in a judge, binaries that were good are kept in the store and checked again when they come from there; what is
 * refused is compiled every time.
 */
#include "base/json.h"
#include "base/str.h"
#include "judge/build/build.h"
#include "judge/compile/compile.h"
#include "judge/solution.h"
#include "store/store.h"

#include "../unit/h200.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ww_tensor tensor(const char *name, int buf, long long rows, long long cols)
{
	struct ww_tensor t = {
		.name = name, .buf = buf, .dtype = WW_F32, .rank = cols ? 2 : 1, .itemsize = 4, .contiguous = 1
	};
	for (int i = 0; i < WW_MAX_RANK; i++)
		t.size[i] = 1;
	t.size[0] = rows;
	t.stride[0] = cols ? cols : 1;
	if (cols)
		t.size[1] = cols, t.stride[1] = 1;
	t.numel = rows * (cols ? cols : 1);
	t.bytes = 4 * t.numel;
	return t;
}

static struct ww_tensor of_type(struct ww_tensor t, int dtype, int itemsize)
{
	t.dtype = dtype;
	t.itemsize = itemsize;
	t.bytes = itemsize * t.numel;
	return t;
}

static struct ww_tensor in_double(struct ww_tensor t) { return of_type(t, WW_F64, 8); }

static struct ww_tensor inputs[1], params[4], outputs[5];
static struct ww_facts facts = {
	.inputs = inputs, .params = params, .outputs = outputs, .n_inputs = 1, .device = H200
};

static void fc_params(int first_buf, int at, long long out, long long in)
{
	params[at] = tensor("fc.weight", first_buf, out, in);
	params[at + 1] = tensor("fc.bias", first_buf + 1, out, 0);
}

static int set_task(const char *path)
{
	const char *name = strrchr(path, '/');
	name = name ? name + 1 : path;
	if (!strcmp(name, "add.py")) {
		inputs[0] = tensor("x", 0, 67, 1000);
		params[0] = tensor("bias", 1, 1000, 0);
		outputs[0] = tensor("output0", 2, 67, 1000);
		facts.n_params = facts.n_outputs = 1;
	} else if (!strcmp(name, "marks.py")) {
		inputs[0] = tensor("x", 0, 67, 1000);
		params[0] = tensor("level", 1, 1000, 0);
		outputs[0] = of_type(tensor("output0", 2, 67, 1000), WW_BOOL, 1);
		outputs[1] = of_type(tensor("output1", 3, 67, 1000), WW_I64, 8);
		outputs[2] = tensor("output2", 4, 67, 1000);
		facts.n_params = 1, facts.n_outputs = 3;
	} else if (!strcmp(name, "decay.py")) {
		inputs[0] = tensor("x", 0, 128, 96);
		params[0] = tensor("scale", 1, 96, 0);
		outputs[0] = tensor("output0", 2, 128, 96);
		facts.n_params = facts.n_outputs = 1;
	} else if (!strcmp(name, "alternate.py")) {
		inputs[0] = tensor("x", 0, 256, 32);
		params[0] = tensor("scale", 1, 32, 0);
		outputs[0] = tensor("output0", 2, 256, 32);
		facts.n_params = facts.n_outputs = 1;
	} else if (!strcmp(name, "level.py")) {
		inputs[0] = of_type(tensor("x", 0, 64, 4096), WW_BF16, 2);
		params[0] = tensor("scale", 1, 4096, 0);
		outputs[0] = of_type(tensor("output0", 2, 4, 4096), WW_BF16, 2);
		facts.n_params = facts.n_outputs = 1;
	} else if (!strcmp(name, "frozen.py")) {
		inputs[0] = tensor("x", 0, 64, 96);
		params[0] = tensor("down", 1, 96, 64);
		params[1] = tensor("up", 2, 64, 80);
		params[2] = tensor("gain", 3, 80, 0);
		outputs[0] = tensor("output0", 4, 64, 80);
		facts.n_params = 3;
		facts.n_outputs = 1;
	} else if (!strcmp(name, "product.py")) {
		inputs[0] = tensor("x", 0, 256, 256);
		params[0] = tensor("weight", 1, 256, 256);
		outputs[0] = tensor("output0", 2, 256, 256);
		facts.n_params = facts.n_outputs = 1;
	} else if (!strcmp(name, "double.py")) {
		inputs[0] = in_double(tensor("x", 0, 64, 48));
		params[0] = in_double(tensor("w", 1, 48, 80));
		outputs[0] = in_double(tensor("output0", 2, 64, 80));
		facts.n_params = facts.n_outputs = 1;
	} else if (!strcmp(name, "layer.py")) {
		inputs[0] = tensor("x", 0, 64, 96);
		params[0] = tensor("norm.weight", 1, 96, 0);
		params[1] = tensor("norm.bias", 2, 96, 0);
		fc_params(3, 2, 80, 96);
		for (int i = 0; i < 5; i++)
			outputs[i] = tensor("output", 5 + i, 64, i == 3 ? 0 : i == 4 ? 80 : 96);
		facts.n_params = 4, facts.n_outputs = 5;
	} else if (!strcmp(name, "collapse.py")) {
		inputs[0] = tensor("x", 0, 256, 512);
		fc_params(1, 0, 512, 512);
		outputs[0] = tensor("output0", 3, 256, 0);
		facts.n_params = 2, facts.n_outputs = 1;
	} else if (!strcmp(name, "cancel.py")) {
		inputs[0] = tensor("x", 0, 64, 96);
		fc_params(1, 0, 80, 96);
		outputs[0] = tensor("output0", 3, 64, 1);
		facts.n_params = 2, facts.n_outputs = 1;
	} else {
		return 0;
	}
	return 1;
}

static const char *verdict(
	struct ww_builder *b, struct ww_compiler *c, const char *dir, struct ww_str *diag, struct ww_err *err)
{
	struct ww_solution_files f;
	struct ww_image *image = NULL;
	struct ww_compiled out;
	enum ww_build_result built;
	enum ww_compile_result compiled;
	const char *status = NULL;

	ww_compiled_init(&out);
	if (ww_solution_load(&f, dir, WW_TARGET_CUDA, err) != WW_OK ||
		ww_builder_build(b, f.solution.plan_source, f.solution.plan_bytes, &facts, &image, diag, &built, err) != WW_OK)
		goto out;
	status = "plan_failed";
	if (built != WW_BUILD_OK)
		goto out;
	status = NULL;
	if (ww_compiler_compile(c, f.solution.device_source, f.solution.device_bytes, image, &out, &compiled, err) != WW_OK)
		goto out;
	ww_str_adds(diag, out.log);
	status = compiled == WW_COMPILE_OK ? "ok" : compiled == WW_COMPILE_REFUSED ? "refused" : "compile_failed";
out:
	ww_solution_files_release(&f);
	ww_compiled_release(&out);
	free(image);
	return status;
}

int main(void)
{
	static char line[1 << 16];
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler_opts o = { .target = WW_TARGET_CUDA, .cc = 90, .max_s = 5, .max_memory_bytes = 3ll << 29 };
	struct ww_builder *b = NULL;
	struct ww_compiler *c = NULL;
	struct ww_store *store = NULL;

	if (ww_store_open(&store, NULL, &err) != WW_OK || ww_builder_open(&b, &err) != WW_OK ||
		ww_compiler_open(&c, &o, &err) != WW_OK) {
		fprintf(stderr, "%s\n", err.msg);
		ww_builder_close(b);
		ww_store_close(store);
		return err.rc == WW_ERR_MISSING ? 77 : 3;
	}
	ww_compiler_keep(c, store);
	while (fgets(line, sizeof(line), stdin)) {
		json_t *q = json_loads(line, 0, NULL), *a;
		const char *id = ww_json_str(q, "id", ""), *task = ww_json_str(q, "task", ""), *status = NULL;
		struct ww_str diag = WW_STR_INIT(64 << 10);
		err = (struct ww_err)WW_ERR_INIT;
		if (set_task(task))
			status = verdict(b, c, ww_json_str(q, "solution", ""), &diag, &err);
		if (status)
			a = json_pack("{s:s, s:{s:s, s:b, s:s, s:f, s:i}}", "id", id, "verdict", "status", status, "correct", 0,
				"diagnostics", diag.p, "reward", -1.0, "checked_calls", 0);
		else
			a = json_pack("{s:s, s:s, s:i}", "id", id, "error", err.msg[0] ? err.msg : "no such task", "exit", 3);
		json_dumpf(a, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(a);
		json_decref(q);
		ww_str_release(&diag);
	}
	ww_compiler_close(c);
	ww_store_close(store);
	ww_builder_close(b);
	return 0;
}
