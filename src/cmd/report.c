/* report.c - `warpwright report`: a run of `optimize`, or runs of `eval` or of `train` side by side, as one HTML page.
 */
#include "agent/rundir.h"
#include "base/fs.h"
#include "cmd/cmd.h"
#include "eval/page.h"
#include "train/report.h"

#include <limits.h>
#include <stdio.h>

enum { REPORT_MAX = 64 << 20 };

struct values {
	const char *output;
	int json;
};

static const struct ww_opt opts[] = { { "output", 'o', WW_OPT_STR, offsetof(struct values, output), "FILE",
										  "report.html", 0, 0, "where to write" },
	WW_OPT_JSON(struct values, json), WW_OPT_END };

static int is_training(const char *dir)
{
	char path[PATH_MAX];
	struct ww_err ignored;
	return !ww_rundir_is_one(dir) && ww_fs_join(path, dir, "run.json", &ignored) == WW_OK && ww_fs_is_file(path);
}

static enum ww_rc one_page(const char *dir, struct ww_str *html, struct ww_err *err)
{
	char sampled[PATH_MAX];
	if (ww_rundir_is_one(dir))
		return ww_rundir_html(dir, html, err);
	if (ww_fs_is_file(dir))
		return ww_err_set(err, WW_ERR_USAGE, "%s is a file; name the directory of the run", dir);
	if (!ww_fs_is_dir(dir))
		return ww_err_set(
			err, WW_ERR_USAGE, "there is no directory %s; give one that optimize, eval or train wrote", dir);
	if (ww_fs_join(sampled, dir, "episodes/step-00000001", err) == WW_OK && ww_fs_is_dir(sampled))
		return ww_err_set(err, WW_ERR_USAGE,
			"%s holds a run of `train` that sampled episodes and has trained no step; `warpwright episode stats %s` counts "
			"them",
			dir, dir);
	return ww_err_set(err, WW_ERR_USAGE,
		"%s holds no run of `optimize` (episode.jsonl, episodes/1), `eval` or `train` (run.json)", dir);
}

static enum ww_rc eval_page(char **dirs, int n, struct ww_str *html, struct ww_err *err)
{
	ww_auto_free struct ww_eval_run *runs = NULL;
	enum ww_rc rc = WW_OK;
	int read = 0;
	WW_CHECK(WW_NEW(runs, n, err));
	while (rc == WW_OK && read < n && (rc = ww_eval_run_read(&runs[read], dirs[read], err)) == WW_OK)
		read++;
	if (rc == WW_OK)
		rc = ww_eval_page(runs, n, html, err);
	while (read > 0)
		ww_eval_run_release(&runs[--read]);
	return rc;
}

static enum ww_rc make_page(char **dirs, int n, struct ww_str *html, struct ww_err *err)
{
	if (ww_eval_run_is(dirs[0]))
		return eval_page(dirs, n, html, err);
	if (is_training(dirs[0]))
		return ww_train_reports((const char *const *)dirs, n, html, err);
	if (n > 1)
		return ww_err_set(
			err, WW_ERR_USAGE, "%s is a run of neither `eval` nor `train`; only those can share a page", dirs[0]);
	return one_page(dirs[0], html, err);
}

static void tell(const char *dir, const char *output, size_t bytes)
{
	char own[PATH_MAX];
	struct ww_err ignored;
	printf("%s: %zu bytes\n", output, bytes);
	if (ww_rundir_is_one(dir) && ww_fs_join(own, dir, "report.html", &ignored) == WW_OK && ww_fs_is_file(own))
		printf("`optimize` wrote this page when the run ended: %s\n", own);
}

static int run(const struct ww_cmd *cmd, void *values, int argc, char **argv)
{
	const struct values *v = values;
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str html = WW_STR_INIT(REPORT_MAX);
	enum ww_rc rc = make_page(argv, argc, &html, &err);
	if (rc == WW_OK)
		rc = ww_fs_write(v->output, html.p, html.len, &err);
	if (rc == WW_OK && v->json)
		ww_cmd_print_json(json_pack("{s:s, s:I}", "written", v->output, "bytes", (json_int_t)html.len));
	else if (rc == WW_OK)
		tell(argv[0], v->output, html.len);
	return rc == WW_OK ? 0 : ww_cmd_fail(&err);
}

const struct ww_cmd ww_cmd_report = { .name = "report",
	.args = "RUN...",
	.summary = "show a run, or several of eval or train side by side, as one HTML page",
	.details =
		"RUN is a directory that `optimize`, `eval` or `train` made; several of `eval`, or of `train`, share a page. It\n"
		"needs no network and no other file. A run that has not ended is shown as far as it is.",
	.opts = opts,
	.values_size = sizeof(struct values),
	.min_args = 1,
	.max_args = -1,
	.run = run };
