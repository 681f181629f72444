/* journal.h - the result of each candidate, in a file that survives any end of the run.  Internal to src/synth.
 *
 *     DIR/journal.jsonl    line 1: what the run is; then one line a candidate, in the order in which they were done
 *
 * A line is written with one write() and counts when it ends with a line feed: half a line at the end, which a kill or
 * a full disk leaves, is cut off when the run goes on.
 */
#pragma once

#include "base/err.h"

#include <jansson.h>
#include <limits.h>
#include <stdint.h>

struct ww_journal {
	int fd;
	char path[PATH_MAX];
};
#define WW_JOURNAL_INIT { -1, "" }

/* Open or make the journal of `run` below dir; entry(ctx, line) gets each line that is there (borrowed).  A journal of
 * another run is WW_ERR_USAGE and says what differs. */
enum ww_rc ww_journal_open(struct ww_journal *j, const char *dir, const json_t *run,
	enum ww_rc (*entry)(void *ctx, const json_t *line, struct ww_err *err), void *ctx,
	struct ww_err *err) WW_MUST_CHECK;
enum ww_rc ww_journal_add(struct ww_journal *j, const json_t *line, struct ww_err *err) WW_MUST_CHECK;
void ww_journal_close(struct ww_journal *j); /* safe twice */
