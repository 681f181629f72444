/* Directories for what torch.compile makes: which of them outlive their tasks, also where several judges, threads here,
 * open and close one task at the same time. */
#include "unit.h"

#include "base/fs.h"
#include "base/tmpdir.h"
#include "judge/cache/ref_cache.h"

#include <pthread.h>

static struct ww_tmpdir tmp = WW_TMPDIR_INIT;

static void open_one(struct ww_ref_cache *c, const char *id)
{
	struct ww_err err = WW_ERR_INIT;
	if (ww_ref_cache_open(c, tmp.path, id, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_true(ww_fs_is_dir(c->path));
}

static void put(const struct ww_ref_cache *c, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	char path[PATH_MAX];
	ww_auto_free char *bytes = calloc(1, n);
	assert_int_equal(ww_fs_join(path, c->path, "kernel", &err), WW_OK);
	assert_int_equal(ww_fs_write(path, bytes, n, &err), WW_OK);
}

static void what_is_kept(void **state)
{
	struct ww_ref_cache a, b;
	(void)state;
	open_one(&a, "empty");
	open_one(&b, "empty");
	ww_ref_cache_close(&a, 1 << 20);
	assert_true(ww_fs_is_dir(b.path)); /* the other one uses it */
	ww_ref_cache_close(&b, 1 << 20);
	ww_ref_cache_close(&b, 1 << 20);
	assert_false(ww_fs_is_dir(b.path));
	open_one(&a, "full");
	put(&a, 5000);
	ww_ref_cache_close(&a, 1 << 20);
	assert_true(ww_fs_is_dir(a.path));
	open_one(&a, "full");
	put(&a, 2 << 20);
	ww_ref_cache_close(&a, 1 << 20);
	assert_false(ww_fs_is_dir(a.path));
}

static void *open_and_close(void *unused)
{
	(void)unused;
	for (int i = 0; i < 300; i++) {
		struct ww_ref_cache c;
		struct ww_err err = WW_ERR_INIT;
		if (ww_ref_cache_open(&c, tmp.path, "shared", &err) != WW_OK || !ww_fs_is_dir(c.path))
			return (void *)1;
		ww_ref_cache_close(&c, 1 << 20);
	}
	return NULL;
}

static void many_at_once(void **state)
{
	pthread_t threads[6];
	void *bad;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
	for (size_t i = 0; i < WW_ARRAY_LEN(threads); i++) {
		pthread_join(threads[i], &bad);
		assert_null(bad);
	}
}

int main(void)
{
	struct ww_err err = WW_ERR_INIT;
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_is_kept), cmocka_unit_test(many_at_once) };
	if (ww_tmpdir_new(&tmp, "ref-cache", &err) != WW_OK)
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	ww_tmpdir_remove(&tmp);
	return failed;
}
