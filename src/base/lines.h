/* lines.h - a durable file of results: one line each, appended and synced, read again on resume.
 *
 * A line is written by one write(2) after the last whole line, and is on the disk before it is reported.  So kill -9 or
 * a power failure can lose or cut only the line being written, which has not been reported; the next open removes what
 * follows the last newline.  An exclusive flock(2) keeps two processes out of one file. */
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { WW_LINES_MAX_BYTES = 16 << 20 }; /* of one line */

/* `each` gets every whole line, NUL-terminated, and returns 0 where the line has another format. */
struct ww_lines_reader {
	int (*each)(void *ctx, const char *line, size_t n);
	void *ctx;
	int64_t strange; /* lines for which `each` returned 0; they stay in the file */
};

struct ww_lines;
/* Open or create the file, locked for this process, and read it.  A last line that was cut is removed.  `by` names the
 * other writer in the error ("another batch").  path NULL: nothing is kept. */
enum ww_rc ww_lines_open(struct ww_lines **out, const char *path, const char *by, struct ww_lines_reader *r,
	struct ww_err *err) WW_MUST_CHECK;
void ww_lines_close(struct ww_lines *l); /* NULL is fine */
/* Append one line (given without its newline), or nothing where it cannot be written whole. */
enum ww_rc ww_lines_append(struct ww_lines *l, const char *line, size_t n, struct ww_err *err) WW_MUST_CHECK;
/* Read a file that another process may be writing; a last line that was cut is left out. */
enum ww_rc ww_lines_read(const char *path, struct ww_lines_reader *r, struct ww_err *err) WW_MUST_CHECK;
