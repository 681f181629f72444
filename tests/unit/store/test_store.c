/* The store: values come back, the size stays bounded, several processes and kill -9 do no harm, and whatever lies
 * where the file should be is set aside and never an error. */
#include "unit.h"

#include "base/fs.h"
#include "base/hash.h"
#include "store/store.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[PATH_MAX], path[PATH_MAX], bad[PATH_MAX];

static int set_up(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	snprintf(dir, sizeof(dir), "%s/ww-store-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(ww_fs_join(path, dir, "cache.sqlite", &err), WW_OK);
	assert_int_equal(ww_fs_join(bad, dir, "cache.sqlite.bad", &err), WW_OK);
	return 0;
}

static int tear_down(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	return ww_fs_remove_tree(dir, &err) != WW_OK;
}

static struct ww_store *open_store(uint64_t max_bytes)
{
	struct ww_store_opts o = { path, max_bytes };
	struct ww_err err = WW_ERR_INIT;
	struct ww_store *s;
	assert_int_equal(ww_store_open(&s, &o, &err), WW_OK);
	assert_non_null(s);
	return s;
}

static void put(struct ww_store *s, const char *kind, const char *key, const void *bytes, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_store_put(s, kind, key, bytes, n, &err), WW_OK);
}

/* 1 where it is there; then it must be these bytes. */
static int has(struct ww_store *s, const char *kind, const char *key, const void *bytes, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str out = WW_STR_INIT(WW_STORE_MAX_VALUE_BYTES);
	int found = -1;
	assert_int_equal(ww_store_get(s, kind, key, &out, &found, &err), WW_OK);
	if (found) {
		assert_int_equal(out.len, n);
		assert_memory_equal(out.p, bytes, n);
	} else {
		assert_int_equal(out.len, 0);
	}
	ww_str_release(&out);
	return found;
}

static void sql(const char *text)
{
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

static void test_values(void **state)
{
	struct ww_store *s = open_store(0);
	const char bytes[] = "a\0b", other[] = "other";
	(void)state;
	assert_int_equal(has(s, "binary", "k", bytes, 3), 0);
	put(s, "binary", "k", bytes, 3);
	put(s, "binary", "empty", "", 0);
	assert_int_equal(has(s, "binary", "k", bytes, 3), 1);
	assert_int_equal(has(s, "binary", "empty", "", 0), 1);
	assert_int_equal(has(s, "image", "k", bytes, 3), 0);
	put(s, "binary", "k", other, 5);
	assert_int_equal(has(s, "binary", "k", other, 5), 1);
	ww_store_close(s);
	s = open_store(0);
	assert_int_equal(has(s, "binary", "k", other, 5), 1);
	ww_store_close(s);
}

static void test_limits_of_a_value(void **state)
{
	struct ww_store *s = open_store(0);
	struct ww_err err = WW_ERR_INIT;
	struct ww_str little = WW_STR_INIT(4);
	char *large = calloc(1, WW_STORE_MAX_VALUE_BYTES + 1);
	int found = 0;
	(void)state;
	put(s, "k", "large", large, WW_STORE_MAX_VALUE_BYTES + 1);
	assert_int_equal(has(s, "k", "large", large, 0), 0);
	put(s, "k", "five", "12345", 5);
	assert_int_equal(ww_store_get(s, "k", "five", &little, &found, &err), WW_ERR_LIMIT);
	assert_int_equal(found, 0);
	ww_str_release(&little);
	assert_int_equal(has(NULL, "k", "five", "12345", 5), 0);
	put(NULL, "k", "five", "12345", 5);
	free(large);
	ww_store_close(s);
}

static void test_size_is_bounded(void **state)
{
	enum { VALUE = 10000, N = 200, MAX = 500000 };
	struct ww_store *s = open_store(MAX);
	char *value = malloc(VALUE), key[16];
	struct stat st;
	int kept = 0;
	(void)state;
	memset(value, 7, VALUE);
	put(s, "k", "first", value, VALUE);
	put(s, "k", "second", value, VALUE);
	sql("UPDATE entry SET used = 9999999999999 WHERE key = 'first'; UPDATE entry SET used = 5 WHERE key = 'second'");
	for (int i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "%d", i);
		put(s, "k", key, value, VALUE);
	}
	for (int i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "%d", i);
		kept += has(s, "k", key, value, VALUE);
	}
	assert_in_range(kept * VALUE, MAX / 2, MAX + VALUE);
	assert_int_equal(has(s, "k", "199", value, VALUE), 1);    /* the newest */
	assert_int_equal(has(s, "k", "first", value, VALUE), 1);  /* put first, used last */
	assert_int_equal(has(s, "k", "second", value, VALUE), 0); /* used longest ago */
	ww_store_close(s);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < 3 * MAX);
	free(value);
}

/* An entry that is used is newer than before: a get writes the time, but not at every call. */
/* Memory does not follow the file: a judge of thousands of solutions stays as large as it was. */
static void test_memory_is_bounded(void **state)
{
	(void)state;
	struct ww_store *s = open_store(0);
	char key[32], value[4096];
	memset(value, 'x', sizeof(value));
	sqlite3_int64 before = 0;
	for (int i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "%d", i);
		put(s, "image", key, value, sizeof(value));
		assert_true(has(s, "image", key, value, sizeof(value)));
		if (i == 100)
			before = sqlite3_memory_used();
	}
	assert_true(sqlite3_memory_used() - before < 64 << 10);
	ww_store_close(s);
}

static void test_use_is_noticed(void **state)
{
	struct ww_store *s = open_store(0);
	sqlite3 *db;
	sqlite3_stmt *q;
	(void)state;
	put(s, "k", "old", "x", 1);
	sql("UPDATE entry SET used = 5");
	assert_int_equal(has(s, "k", "old", "x", 1), 1);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT used FROM entry", -1, &q, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(q), SQLITE_ROW);
	assert_true(sqlite3_column_int64(q, 0) > 1000);
	sqlite3_finalize(q);
	sqlite3_close(db);
	ww_store_close(s);
}

static void write_over(off_t at, const char *bytes, size_t n, int truncate_to)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
	if (truncate_to >= 0)
		assert_int_equal(ftruncate(fd, truncate_to), 0);
	close(fd);
}

static void expect_fresh(void)
{
	struct ww_store *s = open_store(0);
	assert_int_equal(has(s, "k", "before", "x", 1), 0);
	put(s, "k", "after", "y", 1);
	assert_int_equal(has(s, "k", "after", "y", 1), 1);
	ww_store_close(s);
	assert_int_equal(access(bad, F_OK), 0);
	assert_int_equal(unlink(bad), 0);
	assert_int_equal(unlink(path), 0);
}

static void fill(void)
{
	struct ww_store *s = open_store(0);
	char value[9000], key[16];
	memset(value, 'v', sizeof(value));
	put(s, "k", "before", "x", 1);
	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "%d", i);
		put(s, "k", key, value, sizeof(value));
	}
	ww_store_close(s);
	sql("PRAGMA wal_checkpoint(TRUNCATE)");
}

static void test_what_is_no_store(void **state)
{
	char zeros[4096] = { 0 };
	(void)state;
	write_over(0, "this is a letter, not a database\n", 33, -1);
	expect_fresh();
	fill();
	write_over(0, zeros, 64, -1); /* the header is gone */
	expect_fresh();
	fill();
	write_over(0, "", 0, 5000); /* cut */
	expect_fresh();
	sql("CREATE TABLE somebody(elses INTEGER)");
	expect_fresh();
	fill();
	sql("PRAGMA user_version = 7");
	expect_fresh();
	fill();
	sql("DROP TABLE entry; CREATE TABLE entry(a INTEGER)");
	expect_fresh();
}

/* Pages that break while the store is open: met in use, set aside, gone on with. */
static void test_damage_while_open(void **state)
{
	struct ww_store *s, *second;
	char noise[4096], key[16];
	(void)state;
	fill();
	s = open_store(0);
	second = open_store(0);
	memset(noise, 0xa5, sizeof(noise));
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	for (off_t at = 4096; at + 4096 <= st.st_size; at += 4096)
		write_over(at, noise, sizeof(noise), -1);
	for (int i = 0; i < 40; i++) {
		struct ww_err err = WW_ERR_INIT;
		struct ww_str out = WW_STR_INIT(65536);
		int found;
		snprintf(key, sizeof(key), "%d", i);
		assert_int_equal(ww_store_get(i % 2 ? s : second, "k", key, &out, &found, &err), WW_OK);
		assert_int_equal(found, 0);
		ww_str_release(&out);
	}
	put(s, "k", "after", "y", 1);
	put(second, "k", "after", "y", 1);
	assert_int_equal(has(s, "k", "after", "y", 1), 1);
	assert_int_equal(has(second, "k", "after", "y", 1), 1);
	ww_store_close(s);
	ww_store_close(second);
	s = open_store(0);
	assert_int_equal(has(s, "k", "after", "y", 1), 1);
	ww_store_close(s);
	assert_int_equal(access(bad, F_OK), 0);
}

static void test_a_changed_value_is_not_taken(void **state)
{
	struct ww_store *s = open_store(0);
	(void)state;
	put(s, "k", "one", "x", 1);
	put(s, "k", "two", "x", 1);
	sql("UPDATE entry SET value = 'z' WHERE key = 'one'");
	assert_int_equal(has(s, "k", "one", "x", 1), 0);
	assert_int_equal(has(s, "k", "two", "x", 1), 1);
	put(s, "k", "one", "x", 1);
	assert_int_equal(has(s, "k", "one", "x", 1), 1);
	ww_store_close(s);
}

static void test_nowhere_to_keep_it(void **state)
{
	struct ww_store_opts o = { "/proc/no/such/place/cache.sqlite", 0 };
	struct ww_err err = WW_ERR_INIT;
	struct ww_store *s;
	(void)state;
	assert_int_equal(ww_store_open(&s, &o, &err), WW_OK);
	put(s, "k", "one", "x", 1);
	assert_int_equal(has(s, "k", "one", "x", 1), 0);
	ww_store_close(s);
}

/* ---- Many at once ------------------------------------------------------------------------------------------------ */

static void value_of(int i, char out[300])
{
	char hex[WW_HASH_HEX];
	ww_hash_hex(&i, sizeof(i), hex);
	out[0] = 0;
	for (int k = 0; k < 4; k++)
		strcat(out, hex);
}

static void *hammer(void *arg)
{
	struct ww_store *s = arg;
	char key[16], value[300];
	for (int i = 0; i < 300; i++) {
		snprintf(key, sizeof(key), "%d", i % 50);
		value_of(i % 50, value);
		struct ww_err err = WW_ERR_INIT;
		struct ww_str out = WW_STR_INIT(65536);
		int found;
		if (ww_store_put(s, "k", key, value, 256, &err) != WW_OK ||
			ww_store_get(s, "k", key, &out, &found, &err) != WW_OK || !found || memcmp(out.p, value, 256))
			return arg;
		ww_str_release(&out);
	}
	return NULL;
}

static void test_threads_and_handles(void **state)
{
	struct ww_store *s[2] = { open_store(0), open_store(0) };
	pthread_t t[4];
	void *result;
	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, hammer, s[i % 2]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &result);
		assert_null(result);
	}
	ww_store_close(s[0]);
	ww_store_close(s[1]);
}

/* Processes that put without end are killed anywhere; what is there afterwards is whole, and the file was not set
 * aside. */
static void test_kill(void **state)
{
	char key[16], value[300];
	int kept = 0;
	(void)state;
	for (int round = 0; round < 6; round++) {
		pid_t pids[2];
		int put_one[2]; /* a byte from each that has put something: only then there is something to find */
		assert_int_equal(pipe(put_one), 0);
		for (int p = 0; p < 2; p++) {
			pids[p] = fork();
			if (pids[p] == 0) {
				struct ww_store *mine = open_store(0);
				for (int i = p;; i++) {
					snprintf(key, sizeof(key), "%d", i % 500);
					value_of(i % 500, value);
					put(mine, "k", key, value, 256);
					if (i == p)
						(void)!write(put_one[1], "", 1);
				}
			}
		}
		for (int p = 0; p < 2; p++)
			assert_int_equal(read(put_one[0], value, 1), 1);
		close(put_one[0]);
		close(put_one[1]);
		usleep(2000 + 7000 * (unsigned)round);
		for (int p = 0; p < 2; p++) {
			kill(pids[p], SIGKILL);
			waitpid(pids[p], NULL, 0);
		}
		struct ww_store *s = open_store(0);
		for (int i = 0; i < 500; i++) {
			snprintf(key, sizeof(key), "%d", i);
			value_of(i, value);
			kept += has(s, "k", key, value, 256);
		}
		ww_store_close(s);
	}
	assert_true(kept > 0);
	assert_int_not_equal(access(bad, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_values), T(test_limits_of_a_value), T(test_size_is_bounded), T(test_memory_is_bounded),
		T(test_use_is_noticed), T(test_what_is_no_store), T(test_damage_while_open),
		T(test_a_changed_value_is_not_taken), T(test_nowhere_to_keep_it), T(test_threads_and_handles), T(test_kill)
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
