#include "task/set_parquet.h"
#include "base/json.h"
#include "base/mem.h"
#include "task/ask.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double REQUEST_S = 120, WRITE_S = 1800;
static const uint64_t MEMORY_BYTES = 4ull << 30;

struct ww_set_parquet {
	struct ww_ref *worker;
	char *path;
	json_t *rows; /* of one batch */
	size_t at;
	int64_t number;
};

static enum ww_rc fail(const struct ww_set_parquet *p, struct ww_err *err)
{
	return err->rc == WW_ERR_MISSING || err->rc == WW_ERR_INTERRUPTED
		? err->rc
		: ww_err_wrap(err, "%s, behind row %lld", p->path, (long long)p->number);
}

static enum ww_rc open_worker(struct ww_ref **out, const volatile int *interrupted, struct ww_err *err)
{
	const struct ww_ref_opts opts = {
		.target = WW_TARGET_CPU, .text_only = 1, .max_resident_bytes = MEMORY_BYTES, .interrupted = interrupted
	};
	return ww_ref_open(out, &opts, err);
}

enum ww_rc ww_set_parquet_open(
	struct ww_set_parquet **out, const char *path, int fd, const volatile int *interrupted, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct ww_set_parquet *p = NULL;
	json_auto_t *answer = NULL;
	WW_TRY(WW_NEW(p, 1, err));
	if (!(p->path = strdup(path)))
		WW_TRY(ww_nomem(err));
	WW_TRY(open_worker(&p->worker, interrupted, err));
	rc = ww_ref_ask(p->worker, json_pack("{s:s}", "request", "set_open"), &fd, 1, REQUEST_S, &answer, err);
	if (rc != WW_OK)
		rc = err->rc == WW_ERR_MISSING ? rc : ww_err_wrap(err, "%s", path);
out:
	close(fd);
	if (rc == WW_OK)
		*out = p;
	else
		ww_set_parquet_close(p);
	return rc;
}

static enum ww_rc next_batch(struct ww_set_parquet *p, struct ww_err *err)
{
	json_auto_t *answer = NULL;
	json_t *rows;
	json_decref(p->rows);
	p->rows = NULL;
	p->at = 0;
	WW_CHECK(ww_ref_ask(p->worker, json_pack("{s:s}", "request", "set_rows"), NULL, 0, REQUEST_S, &answer, err));
	WW_CHECK(ww_json_get_array(answer, "rows", "the reference worker's answer", &rows, err));
	p->rows = json_incref(rows);
	return WW_OK;
}

enum ww_rc ww_set_parquet_next(struct ww_set_parquet *p, json_t **fields, int64_t *number, struct ww_err *err)
{
	*fields = NULL;
	*number = 0;
	if (p->at == json_array_size(p->rows) && next_batch(p, err) != WW_OK)
		return fail(p, err);
	if (p->at == json_array_size(p->rows))
		return WW_OK;
	*fields = json_incref(json_array_get(p->rows, p->at++));
	*number = ++p->number;
	if (json_is_object(*fields))
		return WW_OK;
	json_decref(*fields);
	*fields = NULL;
	return ww_err_set(err, WW_ERR_USAGE, "it is too large, or cannot be written as JSON");
}

enum ww_rc ww_set_parquet_write(int lines, int fd, const char *path, struct ww_err *err)
{
	struct ww_ref *worker = NULL;
	json_auto_t *answer = NULL;
	const int fds[] = { lines, fd };
	enum ww_rc rc = open_worker(&worker, NULL, err);
	if (rc == WW_OK)
		rc = ww_ref_ask(worker, json_pack("{s:s}", "request", "set_write"), fds, 2, WRITE_S, &answer, err);
	ww_ref_close(worker);
	return rc == WW_OK || rc == WW_ERR_MISSING ? rc : ww_err_wrap(err, "cannot write %s", path);
}

void ww_set_parquet_close(struct ww_set_parquet *p)
{
	if (!p)
		return;
	ww_ref_close(p->worker);
	json_decref(p->rows);
	free(p->path);
	free(p);
}
