/* The C library of an export, written from the worked cuda solution, must compile with a plain C compiler: no GPU is
 * needed for that, so a broken template is found here and not on somebody's machine. */
#include "unit.h"
#include "h200.h"

#include "base/fs.h"
#include "export/parts.h"
#include "judge/build/build.h"
#include "task/task.h"

#include <limits.h>
#include <unistd.h>

static struct ww_tensor matrix(const char *name, int buf, long long rows, long long cols)
{
	return (struct ww_tensor){ .name = name,
		.buf = buf,
		.dtype = WW_F32,
		.rank = 2,
		.itemsize = 4,
		.size = { rows, cols, 1, 1, 1, 1, 1, 1 },
		.stride = { cols, 1 },
		.numel = rows * cols,
		.bytes = rows * cols * 4,
		.contiguous = 1 };
}

static void read_file(const char *rel, struct ww_str *out)
{
	char path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_fs_resource(rel, path, &err), WW_OK);
	assert_int_equal(ww_fs_read(path, 1 << 20, out, &err), WW_OK);
}

static enum ww_rc put(
	struct ww_export *x, struct ww_export_sink *sink, const char *path, const void *bytes, size_t n, struct ww_err *err)
{
	(void)sink;
	return ww_export_file(x, path, bytes, n, err);
}

/* Where cuda.h is: the wheel that comes with PyTorch, or a toolkit. */
static int cuda_home(char *out)
{
	static const char *const places[] = { ".venv/lib/python3.11/site-packages/nvidia/cu13",
		".venv/lib/python3.12/site-packages/nvidia/cu13" };
	struct ww_err err;
	char header[PATH_MAX + 16];
	for (size_t i = 0; i < WW_ARRAY_LEN(places); i++)
		if (ww_fs_resource(places[i], out, &err) == WW_OK)
			return 1;
	snprintf(out, PATH_MAX, "%s", getenv("CUDA_HOME") ? getenv("CUDA_HOME") : "/usr/local/cuda");
	snprintf(header, sizeof(header), "%s/include/cuda.h", out);
	return ww_fs_is_file(header);
}

static void cuda_library_compiles(void **state)
{
	(void)state;
	char home[PATH_MAX], command[3 * PATH_MAX], dir[] = "/tmp/ww-export-XXXXXX";
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler *compiler = NULL;
	struct ww_builder *builder;
	struct ww_compiler_opts copts = { .target = WW_TARGET_CUDA, .cc = 90 };
	if (!cuda_home(home) || ww_compiler_open(&compiler, &copts, &err) != WW_OK) {
		print_message("SKIP: no CUDA headers or NVRTC here\n");
		skip();
	}
	assert_int_equal(ww_builder_open(&builder, &err), WW_OK);
	struct ww_tensor in = matrix("x", 0, 64, 1000), out = matrix("output0", 1, 64, 1000);
	struct ww_facts facts = { .inputs = &in, .outputs = &out, .n_inputs = 1, .n_outputs = 1, .device = H200 };
	struct ww_str plan = WW_STR_INIT(1 << 20), kernels = WW_STR_INIT(1 << 20), diag = WW_STR_INIT(65536);
	read_file("examples/solutions/cuda/softmax/plan.c", &plan);
	read_file("examples/solutions/cuda/softmax/kernels.cu", &kernels);
	struct ww_solution solution = {
		.device_source = kernels.p, .plan_source = plan.p, .device_bytes = kernels.len, .plan_bytes = plan.len
	};
	struct ww_task task = { .path = (char *)"", .name = (char *)"soft-max", .source = (char *)"", .id = "0" };
	struct ww_export_opts opts = { .task = &task, .solution = &solution, .format = WW_EXPORT_C };
	struct ww_export x = { .o = &opts, .facts = &facts, .graph = json_object(), .name = "soft_max", .cuda = 1 };
	enum ww_build_result built;
	enum ww_compile_result compiled;
	ww_arena_init(&x.arena, 64 << 20);
	x.vars.arena = &x.arena;
	ww_compiled_init(&x.compiled);
	assert_int_equal(ww_builder_build(builder, plan.p, plan.len, &facts, &x.image, &diag, &built, &err), WW_OK);
	if (built != WW_BUILD_OK)
		fail_msg("%s", diag.p);
	assert_int_equal(
		ww_compiler_compile(compiler, kernels.p, kernels.len, x.image, &x.compiled, &compiled, &err), WW_OK);
	if (compiled != WW_COMPILE_OK)
		fail_msg("%s", x.compiled.log);
	ww_export_vars(&x);
	assert_non_null(mkdtemp(dir));
	snprintf(x.dir, sizeof(x.dir), "%s", dir);
	struct ww_export_sink sink = { put, "", NULL };
	assert_int_equal(ww_export_library(&x, &sink, &err), WW_OK);
	snprintf(command, sizeof(command), "make -s -C %s CUDA_HOME=%s CFLAGS='-O1 -Wall -Wextra -Werror' > %s/log 2>&1",
		dir, home, dir);
	if (system(command)) {
		char log[PATH_MAX];
		snprintf(log, sizeof(log), "%s/log", dir);
		ww_str_reset(&diag);
		assert_int_equal(ww_fs_read(log, 65536, &diag, &err), WW_OK);
		fail_msg("%s", diag.p);
	}
	snprintf(command, sizeof(command), "%s/libsoft_max.so", dir);
	assert_true(ww_fs_is_file(command));
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
	json_decref((json_t *)(uintptr_t)x.graph);
	free(x.image);
	ww_compiled_release(&x.compiled);
	ww_arena_release(&x.arena);
	ww_builder_close(builder);
	ww_compiler_close(compiler);
	ww_str_release(&plan);
	ww_str_release(&kernels);
	ww_str_release(&diag);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(cuda_library_compiles) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
