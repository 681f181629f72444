/* Task sets: the sources, the columns, broken rows, writing, and "FILE#ID". */
#include "unit.h"

#include "base/fs.h"
#include "base/tmpdir.h"
#include "task/held_out.h"
#include "task/set.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static struct ww_tmpdir dir;
enum { LONG = PATH_MAX + 300 };
static char file[LONG];

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

static void put(const char *name, const void *bytes, size_t n)
{
	struct ww_err err = WW_ERR_INIT;
	snprintf(file, sizeof(file), "%s/%s", dir.path, name);
	char *slash = strrchr(file, '/');
	*slash = 0;
	assert_int_equal(ww_fs_mkdirs(file, &err), WW_OK);
	*slash = '/';
	assert_int_equal(ww_fs_write(file, bytes, n, &err), WW_OK);
}

static void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

static struct ww_set *opened(const char *path, int keep_broken)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_set *s;
	if (ww_set_open(&s, path, &(struct ww_set_opts){ .keep_broken = keep_broken }, &err) != WW_OK)
		fail_msg("%s", err.msg);
	return s;
}

static const struct ww_set_row *next(struct ww_set *s)
{
	struct ww_err err = WW_ERR_INIT;
	const struct ww_set_row *row;
	if (ww_set_next(s, &row, &err) != WW_OK)
		fail_msg("%s", err.msg);
	return row;
}

static void refused(enum ww_rc rc, const struct ww_err *err, const char *word)
{
	assert_int_not_equal(rc, WW_OK);
	if (!strstr(err->msg, word))
		fail_msg("\"%s\" lacks \"%s\"", err->msg, word);
}

/* The published set: three columns, labels as text; rows are named by their numbers. */
static void reads_rows_as_published(void **state)
{
	const struct ww_set_row *row;
	put_text("a.jsonl",
		"{\"ops\": \"['nn.Linear', 'torch.add']\", \"data_source\": \"x\", \"code\": \"class Model: 1\"}\n\n"
		"{\"code\": \"class Model: 2\", \"ops\": [\"relu\"]}");
	struct ww_set *s = opened(file, 0);
	row = next(s);
	assert_int_equal(row->number, 1);
	assert_string_equal(row->id, "1");
	assert_string_equal(row->code, "class Model: 1");
	assert_int_equal(json_array_size(row->ops), 2);
	assert_string_equal(json_string_value(json_array_get(row->ops, 1)), "torch.add");
	assert_string_equal(json_string_value(json_object_get(row->fields, "data_source")), "x");
	row = next(s);
	assert_int_equal(row->number, 3);
	assert_string_equal(row->id, "3");
	assert_null(next(s));
	assert_null(next(s));
	ww_set_close(s);
}

static void names_broken_rows(void **state)
{
	static const char *const bad[] = { "{\"code\": 1", "[1]", "{\"id\": \"a\"}", "{\"code\": 7}",
		"{\"code\": \"x\", \"ops\": [1]}", "{\"code\": \"x\", \"id\": []}", "{\"code\": \"\"}" };
	struct ww_err err = WW_ERR_INIT;
	const struct ww_set_row *row;
	ww_auto_str text = WW_STR_INIT(4096);
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++)
		ww_str_addf(&text, "%s\n", bad[i]);
	ww_str_adds(&text, "{\"code\": \"last\"}\n");
	put("bad.jsonl", text.p, text.len);
	struct ww_set *strict = opened(file, 0), *lenient = opened(file, 1);
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++) {
		char where[32];
		snprintf(where, sizeof(where), "row %zu cannot be used", i + 1);
		refused(ww_set_next(strict, &row, &err), &err, where);
		row = next(lenient);
		assert_int_equal(row->number, i + 1);
		assert_non_null(row->problem);
		assert_null(row->code);
	}
	assert_string_equal(next(strict)->code, "last");
	assert_string_equal(next(lenient)->code, "last");
	ww_set_close(strict);
	ww_set_close(lenient);
}

static void writes_what_it_reads(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_set_writer *w;
	char path[LONG];
	ww_auto_str cut = WW_STR_INIT(1 << 20);
	snprintf(path, sizeof(path), "%s/made.jsonl.zst", dir.path);
	assert_int_equal(ww_set_create(&w, path, &err), WW_OK);
	for (int i = 0; i < 3000; i++) {
		json_auto_t *row = json_pack("{s:o, s:s}", "id", json_sprintf("t/%d", i), "code", "class Model: pass\n");
		assert_int_equal(ww_set_add(w, row, &err), WW_OK);
	}
	assert_false(ww_fs_is_file(path));
	assert_int_equal(ww_set_finish(w, 1, &err), WW_OK);
	struct ww_set *s = opened(path, 0);
	const struct ww_set_row *row;
	int n = 0;
	for (; (row = next(s)); n++)
		assert_int_equal(row->number, n + 1);
	assert_int_equal(n, 3000);
	ww_set_close(s);
	assert_int_equal(ww_fs_read(path, 1 << 20, &cut, &err), WW_OK);
	put("cut.jsonl.zst", cut.p, cut.len - 5);
	enum ww_rc rc;
	s = opened(file, 0);
	while ((rc = ww_set_next(s, &row, &err)) == WW_OK && row)
		;
	refused(rc, &err, "is cut");
	ww_set_close(s);
	put("damaged.jsonl.zst", "\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff", 9);
	s = opened(file, 0);
	refused(ww_set_next(s, &row, &err), &err, "damaged");
	ww_set_close(s);
	assert_int_equal(ww_set_create(&w, path, &err), WW_OK);
	assert_int_equal(ww_set_finish(w, 0, &err), WW_OK);
	assert_true(ww_fs_is_file(path));
	assert_int_equal(ww_set_create(&w, "/nowhere/at/all.jsonl", &err), WW_ERR_IO);
	refused(ww_set_create(&w, "made.csv", &err), &err, "not as made.csv");
}

/* A few bytes of zstd unpack to any number of them. */
static void ends_in_empty_lines(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	const struct ww_set_row *row;
	size_t n = WW_SET_MAX_LINE + 4096;
	char *text = malloc(n);
	assert_non_null(text);
	memset(text, '\n', n);
	memcpy(text, "{\"code\": \"x\"}", 13);
	put("empty.jsonl", text, n);
	free(text);
	struct ww_set *s = opened(file, 1);
	assert_string_equal(next(s)->code, "x");
	refused(ww_set_next(s, &row, &err), &err, "empty lines");
	ww_set_close(s);
}

static void has_them_in_order(const char *path)
{
	static const char *const order[] = { "level1/2_b", "level1/10_a", "level2/1_c" };
	struct ww_set *s = opened(path, 0);
	for (int i = 0; i < 3; i++) {
		const struct ww_set_row *row = next(s);
		assert_string_equal(row->id, order[i]);
		assert_int_equal(row->number, i + 1);
		assert_int_equal(row->level, i == 2 ? 2 : 1);
	}
	assert_null(next(s));
	ww_set_close(s);
}

static void reads_directories_in_order(void **state)
{
	char path[LONG], link[LONG];
	struct ww_set *s;
	put_text("kb/level1/10_a.py", "class Model: 10");
	put_text("kb/level2/1_c.py", "class Model: 1");
	put_text("kb/level1/2_b.py", "from layers import Model");
	put_text("kb/level1/layers.py", "class Layer: 2");
	put_text("kb/level1/notes.txt", "class Model");
	put_text("kb/.hidden/1_x.py", "class Model: 1");
	snprintf(path, sizeof(path), "%s/kb", dir.path);
	has_them_in_order(path);
	snprintf(link, sizeof(link), "%s/linked", dir.path);
	assert_int_equal(symlink(path, link), 0);
	has_them_in_order(link);
	put_text("none/readme.txt", "");
	snprintf(path, sizeof(path), "%s/none", dir.path);
	struct ww_err err = WW_ERR_INIT;
	refused(ww_set_open(&s, path, NULL, &err), &err, "no .py file");
	put_text("none/tasks.jsonl", "{}\n");
	refused(ww_set_open(&s, path, NULL, &err), &err, "its task set is ");
}

static void loads(const char *set, const char *id, const char *name, const char *source)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_task t;
	char path[LONG];
	snprintf(path, sizeof(path), "%s/%s#%s", dir.path, set, id);
	if (ww_task_load(&t, path, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_non_null(strstr(t.path, set));
	assert_string_equal(t.name, name);
	assert_string_equal(t.source, source);
	ww_task_release(&t);
}

static void does_not_load(const char *path, const char *word)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_task t;
	char full[LONG];
	snprintf(full, sizeof(full), "%s/%s", dir.path, path);
	refused(ww_task_load(&t, full, &err), &err, word);
}

static void tasks_are_named_by_file_and_id(void **state)
{
	put_text("set#1.jsonl",
		"{\"id\": \"a/b#c\", \"code\": \"one\"}\n{\"id\": 7, \"code\": \"two\"}\nbroken\n{\"id\": \"2\", \"code\": \"four\"}\n");
	loads("set#1.jsonl", "a/b#c", "a_b_c", "one");
	loads("set#1.jsonl", "7", "set_1-7", "two");
	loads("set#1.jsonl", "2", "set_1-2", "four"); /* an id goes before a number of a row */
	loads("set#1.jsonl", "1", "a_b_c", "one");
	loads("kb", "level1/2_b", "2_b", "from layers import Model");
	does_not_load("set#1.jsonl#9", "holds no task \"9\"");
	does_not_load("set#1.jsonl#3", "row 3 cannot be used");
	does_not_load("set#1.jsonl", "name one task: FILE#ID");
	does_not_load("kb", "name one task: DIR#ID");
	does_not_load("nothing#1", "there is no file");
	put_text("odd#name.py", "class Model: 3");
	struct ww_err err = WW_ERR_INIT;
	struct ww_task t;
	assert_int_equal(ww_task_load(&t, file, &err), WW_OK);
	assert_string_equal(t.name, "odd#name");
	ww_task_release(&t);
	put_text("text.txt", "hello");
	does_not_load("text.txt#1", "is no task set");
}

#define SIGNED(letter) "\"signature\": \"s1:" letter "0000000000000000000000000000000\""

/* Rows with recorded signatures: no process is asked. */
static void held_out_tasks_are_found(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_held_out *h;
	char held[LONG], sets[2 * LONG];
	put_text("held.jsonl",
		"{\"id\": \"a\", \"code\": \"class Model: a\", " SIGNED(
			"a") "}\n"
				 "{\"id\": \"b\", \"code\": \"class Model: b\", " SIGNED("b") ", \"split\": \"train\"}\n"
																			  "broken\n");
	snprintf(held, sizeof(held), "%s", file);
	put_text("more.jsonl", "{\"id\": \"c\", \"code\": \"class Model: c\", " SIGNED("c") "}\n");
	snprintf(sets, sizeof(sets), "%s,%s", held, file);
	if (ww_held_out_open(&h, sets, NULL, &err) != WW_OK)
		fail_msg("%s", err.msg);
	assert_int_equal(ww_held_out_count(h), 2); /* a row of the split train is none */
	assert_null(ww_held_out_find(h, "s1:b0000000000000000000000000000000", NULL));
	assert_non_null(strstr(ww_held_out_find(h, "s1:c0000000000000000000000000000000", "?"), "more.jsonl#c"));
	put_text("train.jsonl",
		"{\"code\": \"class Model: d\", " SIGNED("d") "}\n{\"code\": \"class Model: other text\", " SIGNED(
			"a") "}\n{\"code\": \"class Model: c\", " SIGNED("f") "}\n");
	char names[3][LONG], *tasks[3];
	for (int i = 0; i < 3; i++) {
		snprintf(names[i], LONG, "%.*s#%d", PATH_MAX, file, i + 1);
		tasks[i] = names[i];
	}
	assert_int_equal(ww_held_out_check(h, tasks, 3, NULL, &err), WW_ERR_USAGE);
	refused(WW_ERR_USAGE, &err, "2 of the tasks to train on are held out, by their signatures: ");
	refused(WW_ERR_USAGE, &err, "train.jsonl#2, ");
	refused(WW_ERR_USAGE, &err, "train.jsonl#3 (the first is ");
	refused(WW_ERR_USAGE, &err, "held.jsonl#a)");
	assert_int_equal(ww_held_out_check(h, tasks, 1, NULL, &err), WW_OK);
	tasks[0] = held;
	assert_int_equal(ww_held_out_check(h, tasks, 1, NULL, &err), WW_ERR_USAGE); /* a whole set is no task */
	ww_held_out_free(h);
	assert_int_equal(ww_held_out_open(&h, "/nowhere/at/all", NULL, &err), WW_ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(reads_rows_as_published), cmocka_unit_test(names_broken_rows),
		cmocka_unit_test(writes_what_it_reads), cmocka_unit_test(ends_in_empty_lines),
		cmocka_unit_test(reads_directories_in_order), cmocka_unit_test(tasks_are_named_by_file_and_id),
		cmocka_unit_test(held_out_tasks_are_found) };
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
