/* synth_crawl.c - `warpwright synth crawl`: a catalogue of the operators and blocks that are installed. */
#include "base/fs.h"
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "cmd/synth.h"
#include "task/ref.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CATALOGUE_BYTES = 64 << 20 };
static const double PART_S = 1800;

static const struct {
	const char *part, *stage;
} parts[] = { { "torch", "running the functions of torch" }, { "functional", "running torch.nn.functional" },
	{ "nn", "running the modules of torch.nn" }, { "transformers", "running the blocks of transformers" } };

static enum ww_rc crawl(
	const struct ww_synth_values *v, struct ww_progress *p, json_t *rows, size_t counts[], struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct ww_ref *r = NULL;
	const struct ww_ref_opts o = {
		.target = WW_TARGET_CPU, .text_only = 1, .max_request_s = PART_S, .interrupted = &ww_cmd_interrupted
	};
	size_t n = WW_ARRAY_LEN(parts) - (v->no_transformers ? 1 : 0);
	WW_TRY(ww_ref_open(&r, &o, err));
	for (size_t i = 0; i < n; i++) {
		json_t *found = NULL;
		ww_progress_stage(p, parts[i].stage);
		WW_TRY(ww_ref_crawl(r, parts[i].part, &found, err));
		counts[i] = json_array_size(found);
		json_array_extend(rows, found);
		json_decref(found);
	}
out:
	ww_ref_close(r);
	return rc;
}

static enum ww_rc write_catalogue(const char *path, json_t *rows, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_CATALOGUE_BYTES);
	json_auto_t *all = json_pack("{s:i, s:O}", "version", 1, "operators", rows);
	ww_json_add_pretty(&text, all);
	ww_str_addc(&text, '\n');
	if (text.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "the catalogue has more than %d bytes", MAX_CATALOGUE_BYTES);
	return ww_fs_write(path, text.p, text.len, err);
}

/* Before minutes of work: there is a directory to write into, and nothing but a file would be replaced. */
static enum ww_rc check_place(const char *path, struct ww_err *err)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX] = ".";
	if (strlen(path) >= sizeof(dir))
		return ww_err_set(err, WW_ERR_USAGE, "the catalogue's path is too long");
	if (ww_fs_is_dir(path))
		return ww_err_set(err, WW_ERR_USAGE, "%s is a directory; name a file for the catalogue", path);
	if (slash)
		snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return access(dir, W_OK) < 0 ? ww_err_errno(err, WW_ERR_IO, "cannot write %s", path) : WW_OK;
}

int ww_synth_crawl(const struct ww_synth_values *v, int argc, char **argv)
{
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *rows = json_array();
	size_t counts[WW_ARRAY_LEN(parts)] = { 0 };
	struct ww_progress *p = ww_progress_new(stderr);
	enum ww_rc rc = check_place(argv[0], &err);
	if (rc == WW_OK)
		rc = crawl(v, p, rows, counts, &err);
	/* without transformers the operators of PyTorch are kept */
	int missing = rc == WW_ERR_MISSING && json_array_size(rows);
	struct ww_err why = err;
	if (rc == WW_OK || missing)
		rc = write_catalogue(argv[0], rows, &err);
	ww_progress_free(p);
	if (rc != WW_OK)
		return ww_cmd_fail(&err);
	if (missing)
		ww_cmd_say(&why);
	if (v->json)
		ww_cmd_print_json(json_pack("{s:s, s:I, s:I}", "catalogue", argv[0], "operators",
			(json_int_t)(counts[0] + counts[1] + counts[2]), "blocks", (json_int_t)counts[3]));
	else
		printf("%zu operators and %zu blocks of transformers in %s\n", counts[0] + counts[1] + counts[2], counts[3],
			argv[0]);
	return 0;
}
