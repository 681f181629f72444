/* Which of the three forms a directory or a file is, what of it is read, and what is refused. */
#include "unit.h"

#include "base/fs.h"
#include "judge/solution.h"

#include <limits.h>
#include <unistd.h>

static char dir[PATH_MAX];

static void put(const char *name, const char *text)
{
	struct ww_err err = WW_ERR_INIT;
	char path[PATH_MAX];
	assert_int_equal(ww_fs_join(path, dir, name, &err), WW_OK);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fputs(text, f) >= 0 && fclose(f) == 0, 1);
}

static void fresh(void)
{
	struct ww_err err = WW_ERR_INIT;
	char path[PATH_MAX];
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
	assert_int_equal(ww_fs_join(path, dir, "kernels", &err), WW_OK);
	assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
}

static enum ww_form form_of(const char *name, enum ww_target want, enum ww_target *target, char id[65])
{
	struct ww_solution_files f;
	struct ww_err err = WW_ERR_INIT;
	char path[PATH_MAX];
	assert_int_equal(ww_fs_join(path, dir, name, &err), WW_OK);
	if (ww_solution_load(&f, path, want, &err) != WW_OK)
		fail_msg("%s", err.msg);
	enum ww_form form = f.solution.form;
	*target = f.target;
	ww_solution_id(&f.solution, id);
	ww_solution_files_release(&f);
	return form;
}

static void refused(const char *name, const char *why)
{
	struct ww_solution_files f;
	struct ww_err err = WW_ERR_INIT;
	char path[PATH_MAX];
	assert_int_equal(ww_fs_join(path, dir, name, &err), WW_OK);
	assert_int_equal(ww_solution_load(&f, path, 0, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, why));
	ww_solution_files_release(&f);
}

static const char model[] = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n";

static void plans(void **state)
{
	(void)state;
	enum ww_target t;
	char a[65], b[65];
	fresh();
	put("plan.c", "p");
	refused(".", "has no kernels.c");
	put("kernels.c", "k");
	put("model_new.py", model); /* a plan goes first */
	assert_int_equal(form_of(".", 0, &t, a), WW_FORM_PLAN);
	assert_int_equal(t, WW_TARGET_CPU);
	put("kernels.c", "K");
	assert_int_equal(form_of(".", 0, &t, b), WW_FORM_PLAN);
	assert_string_not_equal(a, b);
	put("kernels.cu", "k");
	form_of(".", 0, &t, a);
	assert_int_equal(t, WW_TARGET_CUDA);
}

static void a_run_of_optimize(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	char path[PATH_MAX];
	(void)state;
	fresh();
	assert_int_equal(ww_fs_join(path, dir, "solution", &err), WW_OK);
	assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
	put("solution/plan.c", "p");
	refused(".", "and its solution is ");
}

static void kernelbench(void **state)
{
	(void)state;
	enum ww_target t;
	char a[65], b[65];
	fresh();
	refused(".", "not a solution");
	put("notes.py", "# class ModelNew(\nclass ModelNewer(object):\n    class ModelNew(object): pass\n");
	refused(".", "not a solution");
	refused("notes.py", "does not define a class ModelNew");
	put("level_1_problem_3_sample_0_kernel.py", model);
	assert_int_equal(form_of(".", 0, &t, a), WW_FORM_KERNELBENCH);
	assert_int_equal(t, WW_TARGET_CPU);
	assert_int_equal(form_of(".", WW_TARGET_CUDA, &t, b), WW_FORM_KERNELBENCH);
	assert_int_equal(t, WW_TARGET_CUDA);
	assert_string_equal(a, b);
	form_of("level_1_problem_3_sample_0_kernel.py", 0, &t, b);
	assert_string_equal(a, b); /* the name of the file is no part of the solution */
	put("other.py", "class ModelNew (object):\n    source = 'cuda'\n");
	refused(".", "2 files that define ModelNew");
	form_of("other.py", 0, &t, b);
	assert_int_equal(t, WW_TARGET_CUDA);
}

static void cuda_agent(void **state)
{
	(void)state;
	struct ww_solution_files f;
	struct ww_err err = WW_ERR_INIT;
	fresh();
	put("model_new.py", "nothing\n");
	refused(".", "does not define a class ModelNew");
	put("model_new.py", model);
	put("model.py", "class Model: pass\n");
	put("binding.cpp", "frozen\n");
	put("kernels/b.cu", "__global__ void k() {}\n");
	put("kernels/a_binding.cpp", "//\n");
	put("kernels/.hidden.cu", "//\n");
	put("kernels/a.o", "//\n");
	assert_int_equal(ww_solution_load(&f, dir, 0, &err), WW_OK);
	assert_int_equal(f.solution.form, WW_FORM_CUDA_AGENT);
	assert_int_equal(f.target, WW_TARGET_CUDA);
	assert_int_equal(f.solution.n_files, 3);
	assert_string_equal(f.solution.files[0].path, "kernels/a_binding.cpp");
	assert_string_equal(f.solution.files[1].path, "kernels/b.cu");
	assert_string_equal(f.solution.files[2].path, "model_new.py");
	assert_string_equal(f.solution.files[2].text, model);
	ww_solution_files_release(&f);
	char *large = malloc(WW_SOLUTION_MAX_BYTES + 2);
	assert_non_null(large);
	memset(large, 'x', WW_SOLUTION_MAX_BYTES + 1);
	large[WW_SOLUTION_MAX_BYTES + 1] = 0;
	put("kernels/large.cu", large);
	free(large);
	refused(".", "large.cu");
}

static void too_many_files(void **state)
{
	(void)state;
	char name[64];
	fresh();
	put("model_new.py", model);
	for (int i = 0; i < WW_SOLUTION_MAX_FILES; i++) {
		snprintf(name, sizeof(name), "kernels/k%d.cu", i);
		put(name, "//");
	}
	refused(".", "at most");
}

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/ww-test-solution-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	return ww_fs_remove_tree(dir, &err) == WW_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(plans), cmocka_unit_test(a_run_of_optimize),
		cmocka_unit_test(kernelbench), cmocka_unit_test(cuda_agent), cmocka_unit_test(too_many_files) };
	return cmocka_run_group_tests_name("judge/solution", tests, make_dir, remove_dir);
}
