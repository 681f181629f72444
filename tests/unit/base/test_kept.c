/* test_kept.c - values by their keys in a ring of bytes and in a ring of places. */
#include "unit.h"

#include "base/kept.h"

#include <stdlib.h>
#include <string.h>

static struct ww_kept *opened(void)
{
	struct ww_kept *k = calloc(1, sizeof(*k));
	assert_non_null(k);
	ww_kept_open(k);
	assert_non_null(k->file);
	return k;
}

static void closed(struct ww_kept *k)
{
	ww_kept_close(k);
	free(k);
}

static void put(struct ww_kept *k, int i, size_t bytes)
{
	char key[32], *fill = malloc(bytes + 1);
	assert_non_null(fill);
	memset(fill, 'a' + i % 26, bytes);
	fill[bytes] = 0;
	snprintf(key, sizeof(key), "key %d", i);
	json_t *o = json_pack("{s:i, s:s}", "i", i, "fill", fill);
	ww_kept_put(k, key, o);
	json_decref(o);
	free(fill);
}

static int has(struct ww_kept *k, int i)
{
	char key[32];
	snprintf(key, sizeof(key), "key %d", i);
	json_t *o = ww_kept_get(k, key);
	if (o) {
		assert_int_equal(json_integer_value(json_object_get(o, "i")), i);
		assert_int_equal(json_string_value(json_object_get(o, "fill"))[0], 'a' + i % 26);
	}
	json_decref(o);
	return o != NULL;
}

static void the_newest_are_kept(void **state)
{
	(void)state;
	struct ww_kept *k = opened();
	assert_null(ww_kept_get(k, "key 0"));
	for (int i = 0; i < WW_KEPT + 10; i++)
		put(k, i, 20);
	for (int i = 0; i < WW_KEPT + 10; i++)
		assert_int_equal(has(k, i), i >= 10);
	closed(k);
}

/* Values that do not divide the ring: one of them would cross its end each time. */
static void bytes_are_a_ring(void **state)
{
	(void)state;
	enum { BYTES = 5 << 20, ALL = 9 };
	struct ww_kept *k = opened();
	for (int i = 0; i < ALL; i++) {
		put(k, i, BYTES);
		assert_true(has(k, i));
	}
	assert_true(has(k, ALL - 2));
	assert_false(has(k, ALL - 8));
	fseek(k->file, 0, SEEK_END);
	assert_true(ftell(k->file) <= WW_KEPT_BYTES);
	closed(k);
}

static void what_is_too_large_or_has_no_file_is_not_kept(void **state)
{
	(void)state;
	struct ww_kept *k = opened();
	char key[WW_KEPT_KEY + 2];
	put(k, 1, WW_KEPT_BYTES); /* and what is around it */
	assert_false(has(k, 1));
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = 0;
	ww_kept_put(k, key, json_true());
	assert_null(ww_kept_get(k, key));
	put(k, 2, 20);
	assert_true(has(k, 2));
	ww_kept_close(k);
	put(k, 3, 20);
	assert_false(has(k, 2) || has(k, 3));
	free(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_newest_are_kept),
		cmocka_unit_test(bytes_are_a_ring),
		cmocka_unit_test(what_is_too_large_or_has_no_file_is_not_kept),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
