/* set_write.c - writing task sets (set.h): to a temporary file beside the target, which takes its name at the end. */
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "task/set.h"
#include "task/set_parquet.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

enum { LEVEL = 19 };

struct ww_set_writer {
	FILE *f;
	ZSTD_CCtx *z; /* NULL: not compressed */
	char *out;
	size_t out_bytes;
	char *path, tmp[PATH_MAX];
};

static enum ww_rc cannot_write(const struct ww_set_writer *w, struct ww_err *err)
{
	return ww_err_errno(err, WW_ERR_IO, "cannot write the task set %s", w->path);
}

static enum ww_rc put(struct ww_set_writer *w, const void *bytes, size_t n, ZSTD_EndDirective end, struct ww_err *err)
{
	if (!w->z)
		return fwrite(bytes, 1, n, w->f) == n ? WW_OK : cannot_write(w, err);
	ZSTD_inBuffer in = { bytes, n, 0 };
	for (size_t left = 1; left || in.pos < in.size;) {
		ZSTD_outBuffer out = { w->out, w->out_bytes, 0 };
		left = ZSTD_compressStream2(w->z, &out, &in, end);
		if (ZSTD_isError(left))
			return ww_err_set(err, WW_ERR_IO, "cannot compress %s: %s", w->path, ZSTD_getErrorName(left));
		if (fwrite(out.dst, 1, out.pos, w->f) != out.pos)
			return cannot_write(w, err);
		if (end == ZSTD_e_continue && in.pos == in.size)
			break;
	}
	return WW_OK;
}

static int ends_in(const char *path, const char *end)
{
	size_t n = strlen(path), k = strlen(end);
	return n > k && !strcmp(path + n - k, end);
}

enum ww_rc ww_set_create(struct ww_set_writer **out, const char *path, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct ww_set_writer *w;
	*out = NULL;
	if (!ends_in(path, ".jsonl") && !ends_in(path, ".jsonl.zst") && !ends_in(path, ".parquet"))
		return ww_err_set(
			err, WW_ERR_USAGE, "a task set is written as .jsonl, .jsonl.zst or .parquet, not as %s", path);
	WW_CHECK(WW_NEW(w, 1, err));
	w->out_bytes = ZSTD_CStreamOutSize();
	w->z = ends_in(path, ".zst") ? ZSTD_createCCtx() : NULL;
	w->out = malloc(w->out_bytes);
	w->path = strdup(path);
	if (!w->out || !w->path || (ends_in(path, ".zst") && !w->z))
		WW_TRY(ww_nomem(err));
	if (w->z)
		ZSTD_CCtx_setParameter(w->z, ZSTD_c_compressionLevel, LEVEL);
	if ((size_t)snprintf(w->tmp, sizeof(w->tmp), "%s.new-%d", path, (int)getpid()) >= sizeof(w->tmp))
		WW_TRY(ww_err_set(err, WW_ERR_USAGE, "path too long: %s", path));
	if (!(w->f = fopen(w->tmp, "w+xe")))
		WW_TRY(cannot_write(w, err));
	*out = w;
out:
	if (rc != WW_OK)
		(void)!ww_set_finish(w, 0, err);
	return rc;
}

enum ww_rc ww_set_add(struct ww_set_writer *w, const json_t *fields, struct ww_err *err)
{
	ww_auto_str line = WW_STR_INIT(WW_SET_MAX_LINE);
	ww_json_add(&line, fields);
	ww_str_addc(&line, '\n');
	if (line.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "a row of %s is longer than %d MiB", w->path, WW_SET_MAX_LINE >> 20);
	return put(w, line.p, line.len, ZSTD_e_continue, err);
}

/* The lines as Parquet take the place of the temporary file. */
static enum ww_rc to_parquet(struct ww_set_writer *w, struct ww_err *err)
{
	FILE *lines = w->f;
	if (fflush(lines) || lseek(fileno(lines), 0, SEEK_SET) < 0 || unlink(w->tmp) < 0 ||
		!(w->f = fopen(w->tmp, "wxe"))) {
		w->f = lines;
		return cannot_write(w, err);
	}
	enum ww_rc rc = ww_set_parquet_write(fileno(lines), fileno(w->f), w->path, err);
	fclose(lines);
	return rc;
}

enum ww_rc ww_set_finish(struct ww_set_writer *w, int keep, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	if (!w)
		return WW_OK;
	if (keep)
		rc = put(w, "", 0, ZSTD_e_end, err);
	if (keep && rc == WW_OK && ends_in(w->path, ".parquet"))
		rc = to_parquet(w, err);
	if (keep && rc == WW_OK && (fflush(w->f) || fsync(fileno(w->f)) || rename(w->tmp, w->path) < 0))
		rc = cannot_write(w, err);
	if (w->f) {
		fclose(w->f);
		if (!keep || rc != WW_OK)
			unlink(w->tmp);
	}
	ZSTD_freeCCtx(w->z);
	free(w->out);
	free(w->path);
	free(w);
	return rc;
}
