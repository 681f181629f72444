/* run_report.c - report.html of a run of `optimize`, from its directory alone. */
#include "agent/parallel.h"
#include "base/fs.h"
#include "base/json.h"
#include "agent/rundir.h"
#include "episode/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_MAX = 64 << 20, VERDICT_MAX = 16 << 20, TASK_MAX = 4 << 20 };

struct run {
	struct ww_episode *episodes;
	size_t n; /* read so far */
	json_t *verdict, *explained;
	struct ww_str source;
};

static void release(struct run *r)
{
	for (size_t i = 0; i < r->n; i++)
		ww_episode_release(&r->episodes[i]);
	free(r->episodes);
	json_decref(r->verdict);
	json_decref(r->explained);
	ww_str_release(&r->source);
}

static enum ww_rc read_episodes(struct run *r, const char *dir, struct ww_err *err)
{
	int parallel = ww_agent_parallel_count(dir), n = parallel ? parallel : 1;
	WW_CHECK(WW_NEW(r->episodes, n, err));
	for (int i = 0; i < n; i++) {
		char folder[PATH_MAX], path[PATH_MAX];
		if (parallel)
			WW_CHECK(ww_agent_parallel_dir(dir, i, folder, err));
		WW_CHECK(ww_fs_join(path, parallel ? folder : dir, "episode.jsonl", err));
		WW_CHECK(ww_episode_read(path, &r->episodes[i], err));
		r->n++;
	}
	return WW_OK;
}

/* What may be missing: a run without a correct solution has no verdict. */
static enum ww_rc read_rest(struct run *r, const char *dir, struct ww_err *err)
{
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, dir, "verdict.json", err));
	if (ww_fs_is_file(path))
		WW_CHECK(ww_json_read_file(path, VERDICT_MAX, &r->verdict, err));
	WW_CHECK(ww_fs_join(path, dir, "explain.json", err));
	if (ww_fs_is_file(path))
		WW_CHECK(ww_json_read_file(path, VERDICT_MAX, &r->explained, err));
	WW_CHECK(ww_fs_join(path, dir, "task.py", err));
	if (ww_fs_is_file(path))
		WW_CHECK(ww_fs_read(path, TASK_MAX, &r->source, err));
	return WW_OK;
}

int ww_rundir_is_one(const char *dir)
{
	char path[PATH_MAX];
	struct ww_err ignored;
	return ww_agent_parallel_count(dir) > 0 ||
		(ww_fs_join(path, dir, "episode.jsonl", &ignored) == WW_OK && ww_fs_is_file(path));
}

enum ww_rc ww_rundir_html(const char *dir, struct ww_str *html, struct ww_err *err)
{
	WW_AUTO(release) struct run r = { .source = WW_STR_INIT(TASK_MAX) };
	WW_CHECK(read_episodes(&r, dir, err));
	WW_CHECK(read_rest(&r, dir, err));
	ww_episode_run_html(
		&(struct ww_episode_run){
			.episodes = r.episodes, .n = r.n, .verdict = r.verdict, .source = r.source.p, .explained = r.explained },
		html);
	if (html->cut)
		return ww_err_set(err, WW_ERR_LIMIT, "the page would be larger than %zu bytes", html->max);
	return WW_OK;
}

enum ww_rc ww_rundir_write_report(const char *dir, struct ww_err *err)
{
	ww_auto_str html = WW_STR_INIT(REPORT_MAX);
	char path[PATH_MAX];
	WW_CHECK(ww_fs_join(path, dir, "report.html", err));
	WW_CHECK(ww_rundir_html(dir, &html, err));
	return ww_fs_write(path, html.p, html.len, err);
}

json_t *ww_rundir_command(void)
{
	ww_auto_str text = WW_STR_INIT(1 << 16);
	struct ww_err ignored;
	json_t *words = json_array();
	if (ww_fs_read("/proc/self/cmdline", 1 << 16, &text, &ignored) == WW_OK)
		for (const char *p = text.p; p < text.p + text.len; p += strlen(p) + 1)
			json_array_append_new(words, json_string(p)); /* one that is not UTF-8 is left out */
	return words;
}
