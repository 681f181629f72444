/* Every row of a set by several threads (task/set_pass.h).  No outline is asked for, so that no worker starts. */
#include "unit.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/tmpdir.h"
#include "task/set_pass.h"

#include <pthread.h>
#include <stdlib.h>

enum { ROWS = 40, BROKEN = 7, FAILING = 11 };

static struct ww_tmpdir dir;
static char set[sizeof(dir.path) + 32];

static void put(const char *name, const char *bytes, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	snprintf(set, sizeof(set), "%s/%s", dir.path, name);
	assert_int_equal(ww_fs_write(set, bytes, n, &err), WW_OK);
}

static int make_dir(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	return ww_tmpdir_new(&dir, "test", &err) != WW_OK;
}

static int remove_dir(void **state)
{
	ww_tmpdir_remove(&dir);
	return 0;
}

/* Rows r1, r2, ...; one of them has no code. */
static void put_rows(void)
{
	ww_auto_str text = WW_STR_INIT(1 << 16);
	for (int i = 1; i <= ROWS; i++)
		ww_str_addf(&text, "{\"id\": \"r%d\", %s\"level\": 1, \"split\": \"%s\"}\n", i,
			i == BROKEN ? "" : "\"code\": \"x = 1\", ", i % 2 ? "train" : "test");
	put("rows.jsonl", text.p, text.len);
}

struct seen {
	pthread_mutex_t lock;
	int64_t of[ROWS + 1], n, broken; /* of[number]: at + 1 */
	int64_t failing;
	int gets_over; /* row() leaves an error behind and returns WW_OK */
	int wrong;     /* rows that are not what put_rows() wrote; cmocka's checks are for its own thread */
	struct ww_err why;
};

static int is_as_written(const struct ww_pass_row *row)
{
	char id[16];
	snprintf(id, sizeof(id), "r%d", (int)row->number);
	return row->number >= 1 && row->number <= ROWS && !strcmp(row->id, id) && !strcmp(row->task.source, "x = 1") &&
		!strcmp(ww_json_str(row->fields, "split", ""), row->number % 2 ? "train" : "test");
}

static enum ww_rc take(void *context, struct ww_outliner *worker, const struct ww_pass_row *row, struct ww_err *err)
{
	struct seen *s = context;
	WW_LOCKED(&s->lock);
	s->n++;
	if (row->broken.rc != WW_OK) {
		s->broken = row->number;
		s->why = row->broken;
		s->wrong += row->fields || row->task.source;
		return WW_OK;
	}
	if (!is_as_written(row) || s->of[row->number]) {
		s->wrong++;
		return WW_OK;
	}
	s->of[row->number] = row->at + 1;
	if (row->number == s->failing)
		return ww_err_set(err, WW_ERR_IO, "row %d failed", (int)row->number);
	if (s->gets_over)
		(void)!ww_err_set(err, WW_ERR_LIMIT, "too large");
	return WW_OK;
}

static enum ww_rc pass(const struct ww_set_pass *with, struct seen *s, struct ww_err *err)
{
	struct ww_set_pass p = *with;
	p.path = set;
	p.row = take;
	p.context = s;
	*err = (struct ww_err)WW_ERR_INIT;
	pthread_mutex_init(&s->lock, NULL);
	enum ww_rc rc = ww_set_pass(&p, err);
	pthread_mutex_destroy(&s->lock);
	assert_int_equal(s->wrong, 0);
	return rc;
}

static int of_train(const struct ww_set_row *row) { return row->number % 2; }

static void each_row_comes_once(void **state)
{
	struct ww_err err;
	put_rows();
	for (int jobs = 0; jobs < 4; jobs++) {
		struct seen s = { 0 };
		assert_int_equal(pass(&(struct ww_set_pass){ .jobs = jobs }, &s, &err), WW_OK);
		assert_int_equal(s.n, ROWS);
		assert_int_equal(s.broken, BROKEN);
		assert_non_null(strstr(s.why.msg, "code"));
		for (int i = 1; i <= ROWS; i++)
			assert_int_equal(s.of[i], i == BROKEN ? 0 : i);
	}
}

static void rows_that_are_not_wanted_do_not_count(void **state)
{
	struct seen s = { 0 };
	struct ww_err err;
	put_rows();
	assert_int_equal(pass(&(struct ww_set_pass){ .jobs = 2, .wanted = of_train }, &s, &err), WW_OK);
	assert_int_equal(s.n, ROWS / 2);
	assert_int_equal(s.of[2], 0);
	assert_int_equal(s.of[9], 5);
}

static void what_a_row_got_over_is_no_error(void **state)
{
	struct seen s = { .gets_over = 1 };
	struct ww_err err;
	put_rows();
	assert_int_equal(pass(&(struct ww_set_pass){ .jobs = 2 }, &s, &err), WW_OK);
	assert_int_equal(s.n, ROWS);
}

static void the_first_error_ends_it(void **state)
{
	struct seen s = { .failing = FAILING };
	struct ww_err err;
	put_rows();
	assert_int_equal(pass(&(struct ww_set_pass){ .jobs = 1 }, &s, &err), WW_ERR_IO);
	assert_string_equal(err.msg, "row 11 failed");
	assert_int_equal(s.n, FAILING);
}

static void damage_is_an_error_or_the_last_row(void **state)
{
	struct seen s = { 0 };
	struct ww_err err;
	put("damaged.jsonl.zst", "\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff", 9);
	assert_int_equal(pass(&(struct ww_set_pass){ .jobs = 2 }, &s, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "damaged"));
	assert_int_equal(s.n, 0);
	assert_int_equal(pass(&(struct ww_set_pass){ .jobs = 2, .keep_damaged = 1 }, &s, &err), WW_OK);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.broken, 1);
	assert_non_null(strstr(s.why.msg, "damaged"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_row_comes_once),
		cmocka_unit_test(rows_that_are_not_wanted_do_not_count), cmocka_unit_test(what_a_row_got_over_is_no_error),
		cmocka_unit_test(the_first_error_ends_it), cmocka_unit_test(damage_is_an_error_or_the_last_row) };
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
