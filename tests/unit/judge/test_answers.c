/* Images and binaries that are kept: taken from the store where they are good, made anew where they are not. */
#include "unit.h"

#include "base/fs.h"
#include "judge/build/build.h"
#include "judge/compile/compile.h"
#include "store/store.h"

#include <limits.h>
#include <sqlite3.h>

static char dir[PATH_MAX], path[PATH_MAX];
static struct ww_store *store;
static struct ww_builder *builder;
static struct ww_compiler *compiler;

static const struct ww_tensor tensors[2] = { { .name = "x",
												 .buf = 0,
												 .dtype = WW_F32,
												 .rank = 1,
												 .itemsize = 4,
												 .size = { 64, 1, 1, 1, 1, 1, 1, 1 },
												 .stride = { 1 },
												 .numel = 64,
												 .bytes = 256,
												 .contiguous = 1 },
	{ .name = "output0",
		.buf = 1,
		.dtype = WW_F32,
		.rank = 1,
		.itemsize = 4,
		.size = { 64, 1, 1, 1, 1, 1, 1, 1 },
		.stride = { 1 },
		.numel = 64,
		.bytes = 256,
		.contiguous = 1 } };
static struct ww_facts facts = { .inputs = &tensors[0],
	.outputs = &tensors[1],
	.n_inputs = 1,
	.n_outputs = 1,
	.device = { .target = WW_TARGET_CPU,
		.threads = 1,
		.vector_bytes = 16,
		.max_threads_per_block = 1,
		.shared_per_block_bytes = 1 << 20,
		.memory_bytes = 1ll << 33 } };

static const char kernel[] =
	"#include <ww/cpu.h>\nWW_KERNEL(k)\n{\n\tWW_ARG(float *, 1)[b->x] = WW_ARG(const float *, 0)[b->x];\n}\n";

static void plan_of(char out[600], int blocks)
{
	snprintf(out, 600,
		"#include <ww/plan.h>\nvoid plan(struct ww_plan *p)\n{\n\tww_launch(p, \"k\", %d, 1, 1, 1, 1, 1);\n"
		"\tww_arg_buf(p, ww_input(p, 0)->buf, 0);\n\tww_arg_buf(p, ww_output(p, 0)->buf, 0);\n}\n",
		blocks);
}

/* The grid of the plan's launch: says whose image it is. */
static int build(int blocks, struct ww_image **image)
{
	char source[600];
	struct ww_image *m = NULL;
	struct ww_str diag = WW_STR_INIT(65536);
	struct ww_err err = WW_ERR_INIT;
	enum ww_build_result result;
	plan_of(source, blocks);
	if (ww_builder_build(builder, source, strlen(source), &facts, &m, &diag, &result, &err) != WW_OK ||
		result != WW_BUILD_OK)
		fail_msg("%s %s", err.msg, diag.p);
	int grid = (int)ww_image_nodes(m)[0].launch.grid[0];
	if (image)
		*image = m;
	else
		free(m);
	ww_str_release(&diag);
	return grid;
}

static void sql(const char *text)
{
	sqlite3 *db;
	char *why = NULL;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
		fail_msg("%s", why);
	sqlite3_close(db);
}

static int count(const char *kind)
{
	sqlite3 *db;
	sqlite3_stmt *q;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT count(*) FROM entry WHERE kind = ?1", -1, &q, NULL), SQLITE_OK);
	sqlite3_bind_text(q, 1, kind, -1, SQLITE_STATIC);
	assert_int_equal(sqlite3_step(q), SQLITE_ROW);
	int n = sqlite3_column_int(q, 0);
	sqlite3_finalize(q);
	sqlite3_close(db);
	return n;
}

static int set_up(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler_opts o = { .target = WW_TARGET_CPU };
	(void)state;
	snprintf(dir, sizeof(dir), "%s/ww-kept-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(dir) || ww_fs_join(path, dir, "cache.sqlite", &err) != WW_OK)
		return -1;
	struct ww_store_opts so = { path, 0 };
	if (ww_store_open(&store, &so, &err) != WW_OK || ww_builder_open(&builder, &err) != WW_OK ||
		ww_compiler_open(&compiler, &o, &err) != WW_OK) {
		fprintf(stderr, "%s\n", err.msg);
		return -1;
	}
	ww_builder_keep(builder, store);
	ww_compiler_keep(compiler, store);
	return 0;
}

static int tear_down(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	ww_compiler_close(compiler);
	ww_builder_close(builder);
	ww_store_close(store);
	return ww_fs_remove_tree(dir, &err) != WW_OK;
}

static void test_images(void **state)
{
	(void)state;
	assert_int_equal(build(8, NULL), 8);
	assert_int_equal(build(16, NULL), 16);
	assert_int_equal(count("image"), 2);
	assert_int_equal(build(8, NULL), 8);
	assert_int_equal(count("image"), 2);
	/* That it comes from the store shows when something else lies there under its name. */
	sql("UPDATE entry SET value = (SELECT value FROM entry WHERE kind = 'image' ORDER BY id DESC LIMIT 1),"
		" sum = (SELECT sum FROM entry WHERE kind = 'image' ORDER BY id DESC LIMIT 1) WHERE kind = 'image'");
	assert_int_equal(build(8, NULL), 16);
	/* Other facts, another key. */
	facts.device.threads = 2;
	assert_int_equal(build(8, NULL), 8);
	assert_int_equal(count("image"), 3);
	facts.device.threads = 1;
}

static void put_in_place(const char *kind, const void *bytes, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	char key[200];
	sqlite3 *db;
	sqlite3_stmt *q;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT key FROM entry WHERE kind = ?1", -1, &q, NULL), SQLITE_OK);
	sqlite3_bind_text(q, 1, kind, -1, SQLITE_STATIC);
	assert_int_equal(sqlite3_step(q), SQLITE_ROW);
	snprintf(key, sizeof(key), "%s", (const char *)sqlite3_column_text(q, 0));
	sqlite3_finalize(q);
	sqlite3_close(db);
	assert_int_equal(ww_store_put(store, kind, key, bytes, n, &err), WW_OK);
}

/* Whole values with a right sum that are no good answers: checked like untrusted, and as if they were not there. */
static void test_bad_values(void **state)
{
	static const unsigned char rubbish[200] = { 1, 2, 3 };
	(void)state;
	sql("DELETE FROM entry");
	assert_int_equal(build(8, NULL), 8);
	put_in_place("image", rubbish, sizeof(rubbish));
	assert_int_equal(build(8, NULL), 8);
	put_in_place("image", "", 0);
	assert_int_equal(build(8, NULL), 8);
	put_in_place("image", rubbish, 20); /* says that it is OK, and has no image */
	assert_int_equal(build(8, NULL), 8);
}

static void compile(
	const struct ww_image *image, const char *source, enum ww_compile_result want, struct ww_compiled *out)
{
	struct ww_err err = WW_ERR_INIT;
	enum ww_compile_result result;
	if (ww_compiler_compile(compiler, source, strlen(source), image, out, &result, &err) != WW_OK)
		fail_msg("%s", err.msg);
	if (result != want)
		fail_msg("%s: %s", ww_compile_result_text(result), out->log);
}

static void test_binaries(void **state)
{
	static const unsigned char rubbish[200] = { 0 };
	struct ww_compiled first, again;
	struct ww_image *image;
	(void)state;
	build(8, &image);
	ww_compiled_init(&first);
	ww_compiled_init(&again);
	compile(image, kernel, WW_COMPILE_OK, &first);
	assert_int_equal(count("binary"), 1);
	compile(image, kernel, WW_COMPILE_OK, &again);
	assert_int_equal(again.binary_bytes, first.binary_bytes);
	assert_memory_equal(again.binary, first.binary, first.binary_bytes);
	assert_string_equal(ww_compiled_symbol(&again, "k"), ww_compiled_symbol(&first, "k"));
	assert_int_equal(count("binary"), 1);
	put_in_place("binary", rubbish, sizeof(rubbish));
	compile(image, kernel, WW_COMPILE_OK, &again);
	assert_int_equal(again.binary_bytes, first.binary_bytes);
	put_in_place("binary", rubbish, 3);
	compile(image, kernel, WW_COMPILE_OK, &again);
	compile(image, "#include <ww/cpu.h>\nsyntax error\n", WW_COMPILE_FAILED, &again);
	compile(image, "#include <ww/cpu.h>\nextern void _exit(int);\nWW_KERNEL(k)\n{\n\t_exit(0);\n}\n",
		WW_COMPILE_REFUSED, &again);
	assert_int_equal(count("binary"), 1); /* failures are not kept */
	ww_compiled_release(&first);
	ww_compiled_release(&again);
	free(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_images), cmocka_unit_test(test_bad_values),
		cmocka_unit_test(test_binaries) };
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
