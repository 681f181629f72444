/* set_lines.c - see set_lines.h.  Memory: one line, and what is read at once. */
#include "task/set_lines.h"
#include "base/fs.h"
#include "base/mem.h"
#include "task/set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART = 1 << 17 };

enum ww_rc ww_set_lines_init(struct ww_set_lines *l, const char *path, int fd, int compressed, struct ww_err *err)
{
	*l = (struct ww_set_lines){ .path = path, .fd = fd };
	ww_str_init(&l->text, WW_SET_MAX_LINE + 2 * PART);
	if (!compressed)
		return WW_OK;
	l->in = malloc(PART);
	l->z = ZSTD_createDStream();
	l->input.src = l->in;
	return l->in && l->z ? WW_OK : ww_nomem(err);
}

void ww_set_lines_release(struct ww_set_lines *l)
{
	ww_fd_close(&l->fd);
	ZSTD_freeDStream(l->z);
	free(l->in);
	ww_str_release(&l->text);
}

static enum ww_rc read_some(struct ww_set_lines *l, void *to, size_t *n, struct ww_err *err)
{
	ssize_t got;
	while ((got = read(l->fd, to, PART)) < 0 && errno == EINTR)
		;
	*n = got < 0 ? 0 : (size_t)got;
	return got < 0 ? ww_err_errno(err, WW_ERR_IO, "%s: cannot read on behind row %lld", l->path, (long long)l->line)
				   : WW_OK;
}

static enum ww_rc unpack_some(struct ww_set_lines *l, struct ww_err *err)
{
	size_t n;
	if (l->input.pos == l->input.size) {
		WW_CHECK(read_some(l, l->in, &n, err));
		l->input.size = n;
		l->input.pos = 0;
		if (!n && l->hint)
			return ww_err_set(
				err, WW_ERR_USAGE, "%s is cut: its compressed data end behind row %lld", l->path, (long long)l->line);
		l->end = !n;
	}
	ZSTD_outBuffer out = { l->text.p + l->text.len, PART, 0 };
	size_t r = l->end ? 0 : ZSTD_decompressStream(l->z, &out, &l->input);
	if (ZSTD_isError(r))
		return ww_err_set(
			err, WW_ERR_USAGE, "%s is damaged behind row %lld: %s", l->path, (long long)l->line, ZSTD_getErrorName(r));
	l->hint = r;
	l->text.len += out.pos;
	return WW_OK;
}

/* More text behind what is unread. */
static enum ww_rc fill(struct ww_set_lines *l, struct ww_err *err)
{
	enum ww_rc rc;
	size_t n;
	memmove(l->text.p, l->text.p + l->at, l->text.len - l->at);
	l->text.len -= l->at;
	l->at = 0;
	if (l->text.len > WW_SET_MAX_LINE)
		return ww_err_set(err, WW_ERR_USAGE, "%s: row %lld is longer than %d MiB", l->path, (long long)l->line + 1,
			WW_SET_MAX_LINE >> 20);
	if (!ww_str_reserve(&l->text, PART))
		return ww_nomem(err);
	if (l->z) {
		rc = unpack_some(l, err);
	} else {
		rc = read_some(l, l->text.p + l->text.len, &n, err);
		l->text.len += n;
		l->end = rc == WW_OK && !n;
	}
	l->text.p[l->text.len] = 0;
	return rc;
}

enum ww_rc ww_set_lines_next(struct ww_set_lines *l, char **line, size_t *n, struct ww_err *err)
{
	size_t looked = 0;
	char *nl = NULL;
	*line = NULL;
	while (!(nl = memchr(l->text.p + l->at + looked, '\n', l->text.len - l->at - looked)) && !l->end) {
		looked = l->text.len - l->at;
		WW_CHECK(fill(l, err));
	}
	if (!nl && l->at == l->text.len)
		return WW_OK;
	*line = l->text.p + l->at;
	*n = nl ? (size_t)(nl - *line) : l->text.len - l->at;
	l->at += *n + (nl != NULL);
	(*line)[*n] = 0;
	l->line++;
	return WW_OK;
}
