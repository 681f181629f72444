/* batch_results.c - the results file of a batch (base/lines.h), found again on resume.
 *
 * Only verdicts count as finished.  Errors are lines too, for people, but their jobs are done again. */
#include "cmd/batch.h"

#include "base/json.h"
#include "base/lines.h"

#include <stdlib.h>

struct ww_results {
	struct ww_lines *lines;
	json_t *finished; /* "key id" to whether it was correct */
};

/* What a job is found by: its key, and its id as JSON text. */
static void name_of(const json_t *id, const char *key, struct ww_str *out)
{
	ww_str_addf(out, "%s ", key);
	ww_json_add(out, id);
}

/* 1 where the line is a result. */
static int note(void *ctx, const char *line, size_t n)
{
	struct ww_results *r = ctx;
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str name = WW_STR_INIT(65536);
	json_auto_t *o = NULL;
	if (ww_json_parse(line, n, "a result", &o, &err) != WW_OK)
		return 0;
	const json_t *id = json_object_get(o, "id"), *verdict = json_object_get(o, "verdict");
	const char *key = ww_json_str(o, "job", NULL);
	int good = id && ((verdict && key) || json_object_get(o, "error"));
	if (good && verdict) {
		name_of(id, key, &name);
		json_object_set_new(r->finished, name.p, json_boolean(ww_json_bool(verdict, "correct", 0)));
	}
	return good;
}

enum ww_rc ww_results_open(struct ww_results **out, const char *path, int64_t *strange, struct ww_err *err)
{
	struct ww_results *r;
	*out = NULL;
	WW_CHECK(WW_NEW(r, 1, err));
	struct ww_lines_reader reader = { .each = note, .ctx = r };
	enum ww_rc rc = (r->finished = json_object()) ? WW_OK : ww_nomem(err);
	if (rc == WW_OK)
		rc = ww_lines_open(&r->lines, path, "another batch", &reader, err);
	*strange = reader.strange;
	if (rc == WW_OK)
		*out = r;
	else
		ww_results_close(r);
	return rc;
}

void ww_results_close(struct ww_results *r)
{
	if (!r)
		return;
	ww_lines_close(r->lines);
	json_decref(r->finished);
	free(r);
}

int ww_results_have(const struct ww_results *r, const json_t *id, const char *key)
{
	ww_auto_str name = WW_STR_INIT(65536);
	name_of(id, key, &name);
	const json_t *found = json_object_get(r->finished, name.p);
	return found ? json_is_true(found) : -1;
}

enum ww_rc ww_results_append(struct ww_results *r, const char *line, size_t n, struct ww_err *err)
{
	return ww_lines_append(r->lines, line, n, err);
}
