/* Suites by their layouts and in parts; a run's directory after a cut line, under other options, and merged. */
#include "unit.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/tmpdir.h"
#include "eval/run.h"
#include "eval/suite.h"

#include <signal.h>
#include <sys/resource.h>

static struct ww_tmpdir tmp = WW_TMPDIR_INIT;
static const char module[] = "class Model:\n    pass\n\n\ndef get_inputs():\n    return []\n";

static const char *in_tmp(const char *name)
{
	static char path[4][PATH_MAX];
	static int k;
	k = (k + 1) % 4;
	struct ww_err err;
	assert_int_equal(ww_fs_join(path[k], tmp.path, name, &err), WW_OK);
	return path[k];
}

static void put(const char *name, const char *text)
{
	struct ww_err err;
	char path[PATH_MAX], *slash;
	snprintf(path, sizeof(path), "%s", in_tmp(name));
	slash = strrchr(path, '/');
	*slash = 0;
	assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
	*slash = '/';
	assert_int_equal(ww_fs_write(path, text, strlen(text), &err), WW_OK);
}

/* ---- Suites ------------------------------------------------------------------------------------------------------ */

static void ids_are(const struct ww_suite *s, const char *want)
{
	ww_auto_str all = WW_STR_INIT(4096);
	for (size_t i = 0; i < s->n; i++)
		ww_str_addf(&all, "%s%s", i ? " " : "", s->problems[i].id);
	assert_string_equal(all.p, want);
}

static void layouts(void **state)
{
	struct ww_suite s;
	struct ww_err err;
	put("kb/KernelBench/level1/10_b.py", module);
	put("kb/KernelBench/level1/9_a.py", module);
	put("kb/KernelBench/level2/1_c.py", module);
	put("kb/KernelBench/level2/notes.txt", "x");
	put("kb/setup.py", "import x\n");
	put("kb/example.py", module);
	assert_int_equal(ww_suite_open(&s, in_tmp("kb"), 0, NULL, &err), WW_OK);
	ids_are(&s, "level1/9_a level1/10_b level2/1_c");
	assert_int_equal(s.problems[2].level, 2);
	char hash[WW_HASH_HEX];
	memcpy(hash, s.hash, sizeof(hash));
	assert_int_equal(ww_suite_slice(&s, 2, 2, &err), WW_OK);
	ids_are(&s, "level1/10_b");
	ww_suite_release(&s);
	assert_int_equal(ww_suite_open(&s, in_tmp("kb/KernelBench/level1/"), 0, NULL, &err), WW_OK);
	ids_are(&s, "level1/9_a level1/10_b");
	assert_string_not_equal(s.hash, hash);
	ww_suite_release(&s);
	assert_int_equal(ww_suite_open(&s, in_tmp("kb"), 2, NULL, &err), WW_OK);
	ids_are(&s, "level2/1_c");
	ww_suite_release(&s);
	put("set.jsonl",
		"{\"id\": \"b\", \"code\": \"class Model: pass\"}\n{\"id\": \"a\", \"code\": \"class Model: 1\"}\n");
	assert_int_equal(ww_suite_open(&s, in_tmp("set.jsonl"), 0, NULL, &err), WW_OK);
	ids_are(&s, "b a");
	ww_suite_release(&s);
	put("splits.jsonl",
		"{\"id\": \"b\", \"code\": \"class Model: pass\", \"split\": \"train\"}\n"
		"{\"id\": \"a\", \"code\": \"class Model: 1\", \"split\": \"held-out\"}\n");
	assert_int_equal(ww_suite_open(&s, in_tmp("splits.jsonl"), 0, "held-out", &err), WW_OK);
	ids_are(&s, "a");
	ww_suite_release(&s);
	assert_int_equal(ww_suite_open(&s, in_tmp("splits.jsonl"), 0, "test", &err), WW_ERR_USAGE);
	assert_int_equal(ww_suite_open(&s, "cpu-small", 0, "validation", &err), WW_OK);
	assert_true(s.n >= 39);
	ww_suite_release(&s);
	assert_int_equal(ww_suite_open(&s, in_tmp("set.jsonl#a"), 0, NULL, &err), WW_OK);
	assert_int_equal(s.n, 1);
	assert_string_equal(s.problems[0].task.source, "class Model: 1");
	ww_suite_release(&s);
	put("twice.jsonl",
		"{\"id\": \"a\", \"code\": \"class Model: pass\"}\n{\"id\": \"a\", \"code\": \"class Model: 1\"}\n");
	assert_int_equal(ww_suite_open(&s, in_tmp("twice.jsonl"), 0, NULL, &err), WW_ERR_USAGE);
	assert_int_equal(ww_suite_open(&s, in_tmp("kb"), 3, NULL, &err), WW_ERR_USAGE);
	assert_int_equal(ww_suite_open(&s, "no-such-suite", 0, NULL, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "examples-cuda"));
	assert_non_null(strstr(err.msg, "cpu-small"));
}

static void folders(void **state)
{
	static const struct {
		const char *id, *folder;
	} rows[] = { { "level1/2_a", "level1/2_a" }, { "../x", "hash" }, { "a/../b", "hash" }, { "/a", "hash" },
		{ "a b", "hash" }, { "", "hash" }, { "a//b", "hash" }, { "a/", "hash" }, { "a/.b", "hash" },
		{ "v1.2", "v1.2" } };
	char out[WW_PROBLEM_DIR];
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_problem p = { .id = (char *)rows[i].id, .task.id = "hash" };
		ww_problem_dir(&p, out);
		assert_string_equal(out, rows[i].folder);
	}
}

static void samples(void **state)
{
	struct ww_suite a, b;
	struct ww_err err;
	char name[64];
	int sum = 0;
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "many/%d_x.py", i);
		put(name, module);
	}
	assert_int_equal(ww_suite_open(&a, in_tmp("many"), 0, NULL, &err), WW_OK);
	assert_int_equal(ww_suite_open(&b, in_tmp("many"), 0, NULL, &err), WW_OK);
	ww_suite_sample(&a, 5, 1);
	ww_suite_sample(&b, 40, 1);
	assert_int_equal(a.n, 5);
	assert_int_equal(b.n, 20);
	for (size_t i = 0; i < 5; i++) /* a sample is the beginning of a larger one */
		assert_string_equal(a.problems[i].id, b.problems[i].id);
	for (size_t i = 0; i < b.n; i++)
		sum += ww_problem_number(&b.problems[i]);
	assert_int_equal(sum, 190);
	ww_suite_release(&a);
	ww_suite_release(&b);
}

static void solutions_of_others(void **state)
{
	static const struct {
		const char *dir, *file, *found;
	} rows[] = { { "kbrun", "level_2_problem_7_sample_3_kernel.py", "level_2_problem_7_sample_3_kernel.py" },
		{ "agent", "level2/7_Conv/model_new.py", "level2/7_Conv" }, { "plain", "level2/7/model_new.py", "level2/7" },
		{ "ours", "problems/level2/7_Conv/solution/plan.c", "problems/level2/7_Conv/solution" },
		{ "files", "level2/7_Conv.py", "level2/7_Conv.py" }, { "other", "level2/8_Conv.py", NULL },
		{ "prefix", "level_2_problem_70_sample_0_kernel.py", NULL } };
	struct ww_problem p = { .id = (char *)"level2/7_Conv", .level = 2 };
	char name[256], want[PATH_MAX], path[PATH_MAX];
	struct ww_err err;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		snprintf(name, sizeof(name), "%s/%s", rows[i].dir, rows[i].file);
		put(name, "x");
		assert_int_equal(ww_suite_solution(in_tmp(rows[i].dir), &p, path), rows[i].found != NULL);
		assert_int_equal(ww_fs_join(want, in_tmp(rows[i].dir), rows[i].found ? rows[i].found : "", &err), WW_OK);
		if (rows[i].found)
			assert_string_equal(path, want);
	}
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

static json_t *about(const char *policy, const char *part, const char *device, const char *a, const char *b)
{
	return json_pack("{s:s, s:{s:s, s:{s:s}}, s:{s:s}, s:[{s:s},{s:s}]}", "kind", "eval", "config", "policy", policy,
		"part", "slice", part, "machine", "device", device, "problems", "id", a, "id", b);
}

static json_t *line(const char *id, const char *outcome)
{
	return json_pack("{s:s, s:s, s:s}", "id", id, "task", "t", "outcome", outcome);
}

static enum ww_rc open_run(struct ww_eval_run *r, const char *name, json_t *what, struct ww_err *err)
{
	enum ww_rc rc = ww_eval_run_open(r, in_tmp(name), what, err);
	json_decref(what);
	return rc;
}

static void a_run_goes_on(void **state)
{
	struct ww_eval_run r, other;
	struct ww_err err;
	assert_int_equal(open_run(&r, "run", about("planner", "1/2", "cpu", "a", "b"), &err), WW_OK);
	assert_int_equal(ww_eval_run_add(&r, line("a", "judged"), &err), WW_OK);
	assert_int_equal(ww_eval_run_add(&r, line("b", "error"), &err), WW_OK);
	assert_int_equal(ww_eval_run_add(&r, json_pack("{s:s, s:s}", "id", "a", "profile", "slow"), &err), WW_OK);
	assert_int_equal(open_run(&other, "run", about("planner", "1/2", "cpu", "a", "b"), &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "another process"));
	ww_eval_run_release(&r);

	FILE *f = fopen(in_tmp("run/results.jsonl"), "a");
	fputs("{\"id\": \"b\", \"outco", f);
	fclose(f);
	assert_int_equal(open_run(&r, "run", about("planner", "1/2", "cpu", "a", "b"), &err), WW_OK);
	assert_true(ww_eval_run_has(&r, "a", "t"));
	assert_false(ww_eval_run_has(&r, "a", "other"));
	assert_false(ww_eval_run_has(&r, "b", "t"));
	assert_string_equal(ww_json_str(ww_eval_run_line(&r, "a"), "profile", ""), "slow");
	assert_int_equal(ww_eval_run_add(&r, line("b", "judged"), &err), WW_OK);
	assert_true(ww_eval_run_has(&r, "b", "t"));
	ww_eval_run_release(&r);
	assert_int_equal(open_run(&r, "run", about("openai:x", "1/2", "cpu", "a", "b"), &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "policy is \"planner\", not \"openai:x\""));
	assert_int_equal(open_run(&r, "run", about("planner", "1/2", "gpu", "a", "b"), &err), WW_ERR_USAGE);
	put("full/x", "x");
	assert_int_equal(open_run(&r, "full", about("planner", "1/2", "cpu", "a", "b"), &err), WW_ERR_USAGE);
}

static void make_slice(
	const char *name, const char *policy, const char *part, const char *device, const char *a, const char *b)
{
	struct ww_eval_run r;
	struct ww_err err;
	assert_int_equal(open_run(&r, name, about(policy, part, device, a, b), &err), WW_OK);
	assert_int_equal(ww_eval_run_add(&r, line(a, "judged"), &err), WW_OK);
	ww_eval_run_release(&r);
}

/* A disk that is full: one error, and what was there is whole. */
static void no_space(void **state)
{
	struct ww_eval_run r;
	struct ww_err err;
	struct rlimit old, small;
	assert_int_equal(open_run(&r, "disk", about("planner", "1/2", "cpu", "a", "b"), &err), WW_OK);
	assert_int_equal(ww_eval_run_add(&r, line("a", "judged"), &err), WW_OK);
	getrlimit(RLIMIT_FSIZE, &old);
	signal(SIGXFSZ, SIG_IGN);
	small = (struct rlimit){ 60, old.rlim_max };
	setrlimit(RLIMIT_FSIZE, &small);
	enum ww_rc rc = ww_eval_run_add(&r, line("b", "judged"), &err);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(rc, WW_ERR_IO);
	assert_false(ww_eval_run_has(&r, "b", "t"));
	assert_int_equal(ww_eval_run_add(&r, line("b", "judged"), &err), WW_OK);
	ww_eval_run_release(&r);
	assert_int_equal(ww_eval_run_read(&r, in_tmp("disk"), &err), WW_OK);
	assert_true(ww_eval_run_has(&r, "a", "t") && ww_eval_run_has(&r, "b", "t"));
	ww_eval_run_release(&r);
}

static void merging(void **state)
{
	struct ww_eval_run r;
	struct ww_err err;
	char first[PATH_MAX], second[PATH_MAX], to[PATH_MAX];
	make_slice("s1", "planner", "1/2", "H200", "a", "c");
	make_slice("s2", "planner", "2/2", "H200", "b", "c");
	make_slice("s3", "planner", "2/2", "H100", "b", "d");
	make_slice("s4", "other", "2/2", "H200", "b", "d");
	snprintf(first, sizeof(first), "%s", in_tmp("s1"));
	snprintf(to, sizeof(to), "%s", in_tmp("merged"));
	const char *runs[] = { first, second };
	snprintf(second, sizeof(second), "%s", in_tmp("s3"));
	assert_int_equal(ww_eval_merge(runs, 2, to, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "same kind of machine: device is \"H200\", not \"H100\""));
	snprintf(second, sizeof(second), "%s", in_tmp("s4"));
	assert_int_equal(ww_eval_merge(runs, 2, to, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "policy"));
	snprintf(second, sizeof(second), "%s", in_tmp("s2"));
	assert_int_equal(ww_eval_merge(runs, 2, to, &err), WW_OK);
	assert_int_equal(ww_eval_run_read(&r, to, &err), WW_OK);
	assert_int_equal(json_array_size(json_object_get(r.about, "problems")), 3);
	assert_non_null(ww_eval_run_line(&r, "a"));
	assert_non_null(ww_eval_run_line(&r, "b"));
	assert_null(ww_eval_run_line(&r, "c"));
	ww_eval_run_release(&r);
	assert_int_equal(ww_eval_merge(runs, 2, to, &err), WW_ERR_USAGE); /* it is there already */
}

static int set_up(void **state)
{
	struct ww_err err;
	return ww_tmpdir_new(&tmp, "task", &err) != WW_OK;
}

static int tear_down(void **state)
{
	ww_tmpdir_remove(&tmp);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(layouts), cmocka_unit_test(folders), cmocka_unit_test(samples),
		cmocka_unit_test(solutions_of_others), cmocka_unit_test(a_run_goes_on), cmocka_unit_test(no_space),
		cmocka_unit_test(merging) };
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
