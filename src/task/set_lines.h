/* set_lines.h - lines of a file, as it is or compressed with zstd.  Internal to src/task. */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>
#include <zstd.h>

struct ww_set_lines {
	const char *path; /* borrowed; for messages */
	int fd;
	ZSTD_DStream *z; /* NULL: not compressed */
	char *in;
	ZSTD_inBuffer input;
	size_t hint;        /* what zstd still wants; not 0 inside a frame */
	struct ww_str text; /* unread bytes from `at` on */
	size_t at;
	int end;
	int64_t line; /* number of the one read last */
};

/* Takes fd, whatever comes of it. */
enum ww_rc ww_set_lines_init(
	struct ww_set_lines *l, const char *path, int fd, int compressed, struct ww_err *err) WW_MUST_CHECK;
/* The next line without its line feed, NUL-terminated, until the next call; NULL at the end. */
enum ww_rc ww_set_lines_next(struct ww_set_lines *l, char **line, size_t *n, struct ww_err *err) WW_MUST_CHECK;
void ww_set_lines_release(struct ww_set_lines *l);
