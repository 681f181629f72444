/* A run's directory that somebody else made: links, pipes and directories in the place of its files.  Going on with the
 * run is refused in one line, and what a link points to keeps every byte. */
#include "unit.h"

#include "base/fs.h"
#include "base/lines.h"
#include "base/tmpdir.h"
#include "episode/episode.h"
#include "synth/journal.h"
#include "train/checkpoint.h"
#include "train/run_dir.h"

#include <sys/stat.h>
#include <unistd.h>

static const char precious[] = "a line\nand one without its end";
static const struct ww_lines_reader no_lines;
static struct ww_tmpdir tmp = WW_TMPDIR_INIT;
static char kept[PATH_MAX];

static int each_line(void *ctx, const char *text, size_t n)
{
	(void)ctx, (void)text, (void)n;
	return 1;
}

static enum ww_rc each_entry(void *ctx, const json_t *line, struct ww_err *err)
{
	(void)ctx, (void)line, (void)err;
	return WW_OK;
}

static enum ww_rc go_on_with_lines(const char *dir, struct ww_err *err)
{
	struct ww_lines_reader r = { .each = each_line };
	struct ww_lines *l;
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, dir, "results.jsonl", err));
	WW_CHECK(ww_lines_open(&l, path, "another process", &r, err));
	ww_lines_close(l);
	return WW_OK;
}

static enum ww_rc read_lines(const char *dir, struct ww_err *err)
{
	struct ww_lines_reader r = no_lines;
	char path[PATH_MAX];
	r.each = each_line;
	WW_CHECK(ww_fs_join(path, dir, "results.jsonl", err));
	return ww_lines_read(path, &r, err);
}

static enum ww_rc go_on_with_synth(const char *dir, struct ww_err *err)
{
	struct ww_journal j;
	json_auto_t *run = json_pack("{s:i}", "seed", 1);
	enum ww_rc rc = ww_journal_open(&j, dir, run, each_entry, NULL, err);
	ww_journal_close(&j);
	return rc;
}

static enum ww_rc go_on_with_training(const char *dir, struct ww_err *err)
{
	struct ww_run_dir r = WW_RUN_DIR_INIT;
	enum ww_rc rc = ww_run_dir_open(&r, dir, err);
	if (rc == WW_OK)
		rc = ww_run_dir_open_log(&r, 0, err);
	ww_run_dir_close(&r);
	return rc;
}

static enum ww_rc go_on_with_episode(const char *dir, struct ww_err *err)
{
	WW_AUTO(ww_episode_release) struct ww_episode e = { 0 };
	struct ww_episode_writer *w;
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, dir, "episode.jsonl", err));
	WW_CHECK((enum ww_rc)ww_episode_append(path, &e, &w, err));
	ww_episode_close(w);
	return WW_OK;
}

static const struct {
	const char *file;
	enum ww_rc (*go_on)(const char *dir, struct ww_err *err);
} records[] = { { "results.jsonl", go_on_with_lines }, { "results.jsonl", read_lines },
	{ "journal.jsonl", go_on_with_synth }, { "log.jsonl", go_on_with_training }, { ".lock", go_on_with_training },
	{ "episode.jsonl", go_on_with_episode } };

static int write_precious(const char *path)
{
	struct ww_err err = WW_ERR_INIT;
	return ww_fs_write(path, precious, sizeof(precious) - 1, &err) == WW_OK;
}

static int is_as_it_was(const char *path)
{
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str text = WW_STR_INIT(1 << 16);
	return ww_fs_read(path, 1 << 16, &text, &err) == WW_OK && !strcmp(text.p, precious);
}

/* A directory with a link, a pipe or a directory at `name`. */
static void make_run(size_t i, const char *kind, const char *name, char *dir, char *path)
{
	struct ww_err err = WW_ERR_INIT;
	snprintf(dir, PATH_MAX, "%.2000s/%s-%zu", tmp.path, kind, i);
	assert_int_equal(ww_fs_mkdirs(dir, &err), WW_OK);
	assert_int_equal(ww_fs_join(path, dir, name, &err), WW_OK);
}

static void links_are_not_followed(void **state)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(records); i++) {
		char dir[PATH_MAX], path[PATH_MAX];
		struct ww_err err = WW_ERR_INIT;
		make_run(i, "link", records[i].file, dir, path);
		assert_int_equal(symlink(kept, path), 0);
		int reads = records[i].go_on == read_lines; /* which harms nothing */
		enum ww_rc rc = records[i].go_on(dir, &err);
		assert_true(reads || (rc == WW_ERR_USAGE && strstr(err.msg, "link")));
		assert_true(is_as_it_was(kept));
	}
}

static void pipes_are_not_waited_for(void **state)
{
	alarm(20);
	for (size_t i = 0; i < WW_ARRAY_LEN(records); i++) {
		char dir[PATH_MAX], path[PATH_MAX];
		struct ww_err err = WW_ERR_INIT;
		make_run(i, "pipe", records[i].file, dir, path);
		assert_int_equal(mkfifo(path, 0600), 0);
		assert_int_equal(records[i].go_on(dir, &err), WW_ERR_USAGE);
		assert_non_null(strstr(err.msg, "not a regular file"));
	}
	alarm(0);
}

/* What lies beside checkpoints is removed where it is left over from a killed process; a link would name the user's. */
static void checkpoints_are_no_link(void **state)
{
	char home[PATH_MAX], hidden[PATH_MAX], dir[PATH_MAX], path[PATH_MAX], from[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	make_run(0, "home", ".profile", home, hidden);
	assert_true(write_precious(hidden));
	make_run(0, "trained", "checkpoints", dir, path);
	assert_int_equal(symlink(home, path), 0);
	assert_int_equal(ww_checkpoint_find(dir, 2, from, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "link"));
	assert_true(is_as_it_was(hidden));
}

static void only_leftovers_of_ours_are_removed(void **state)
{
	static const char *const ours[] = { ".new", ".old-step-00000001" };
	char dir[PATH_MAX], path[PATH_MAX], mine[PATH_MAX], from[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	make_run(1, "trained", "checkpoints", dir, path);
	for (size_t i = 0; i < WW_ARRAY_LEN(ours); i++) {
		assert_int_equal(ww_fs_join(mine, path, ours[i], &err), WW_OK);
		assert_int_equal(ww_fs_mkdirs(mine, &err), WW_OK);
	}
	assert_int_equal(ww_fs_join(mine, path, ".notes", &err), WW_OK);
	assert_true(write_precious(mine));
	assert_int_equal(ww_checkpoint_find(dir, 2, from, &err), WW_OK);
	assert_true(is_as_it_was(mine));
	for (size_t i = 0; i < WW_ARRAY_LEN(ours); i++) {
		assert_int_equal(ww_fs_join(mine, path, ours[i], &err), WW_OK);
		assert_false(ww_fs_is_dir(mine));
	}
}

/* A checkpoint's counts: one more than the largest number is a place before the guard's losses. */
static void counts_that_no_run_has(void **state)
{
	static const char *const rows[] = { "\"seen\":9223372036854775807", "\"seen\":-3", "\"step\":9223372036854775807",
		"\"log_bytes\":-1", "\"row\":9223372036854775807", "\"seen\":64" };
	char dir[PATH_MAX], path[PATH_MAX];
	(void)state;
	make_run(0, "state", "state.json", dir, path);
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		static const char *const keys[] = { "step", "updates", "critic_updates", "epoch", "row", "total_tokens",
			"log_bytes" };
		struct ww_err err = WW_ERR_INIT;
		struct ww_train_state s;
		ww_auto_str text = WW_STR_INIT(1 << 16);
		ww_str_adds(&text, "{\"format\":1");
		for (size_t k = 0; k < WW_ARRAY_LEN(keys); k++)
			if (strncmp(rows[i] + 1, keys[k], strlen(keys[k])))
				ww_str_addf(&text, ",\"%s\":0", keys[k]);
		int guard = !strncmp(rows[i], "\"seen", 5);
		ww_str_addf(&text, ",%s%s\"guard\":{%s,\"skipped\":0,\"skipped_in_row\":0,\"losses\":[", guard ? "" : rows[i],
			guard ? "" : ",", guard ? rows[i] : "\"seen\":0");
		for (int k = 0; guard && k < WW_GUARD_STEPS; k++)
			ww_str_adds(&text, k ? ",1" : "1");
		ww_str_adds(&text, "]}}");
		assert_int_equal(ww_fs_write(path, text.p, text.len, &err), WW_OK);
		enum ww_rc rc = ww_checkpoint_state(dir, &s, &err);
		int is_good = i == WW_ARRAY_LEN(rows) - 1;
		if ((rc == WW_OK) != is_good)
			fail_msg("%s: %s", rows[i], err.msg);
		json_decref(rc == WW_OK ? s.stage : NULL);
	}
}

int main(void)
{
	struct ww_err err = WW_ERR_INIT;
	const struct CMUnitTest tests[] = { cmocka_unit_test(links_are_not_followed),
		cmocka_unit_test(pipes_are_not_waited_for), cmocka_unit_test(checkpoints_are_no_link),
		cmocka_unit_test(only_leftovers_of_ours_are_removed), cmocka_unit_test(counts_that_no_run_has) };
	if (ww_tmpdir_new(&tmp, "tampered", &err) != WW_OK || ww_fs_join(kept, tmp.path, "precious", &err) != WW_OK ||
		!write_precious(kept))
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	ww_tmpdir_remove(&tmp);
	return failed;
}
