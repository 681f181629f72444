/* journal.h - a reply on the disk while it arrives.
 *
 * A text file: first {"asked":N}, N being the number of messages that were sent, then the data of each event on a line
 * as it came.  Bytes are handed to the kernel event by event, so a killed process loses nothing that it had read; the
 * disk has them when the reply is complete.  Room for an ordinary reply is reserved before the request is sent: a disk
 * that fills up meanwhile cannot lose a reply that is paid for.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct ww_journal {
	int fd;
}; /* -1: no journal is written */

/* Begin a new one; path NULL: keep none. */
enum ww_rc ww_journal_begin(struct ww_journal *j, const char *path, size_t asked, struct ww_err *err) WW_MUST_CHECK;
void ww_journal_event(struct ww_journal *j, const char *data, size_t n);
/* On the disk now. */
void ww_journal_sync(struct ww_journal *j);
void ww_journal_end(struct ww_journal *j);
/* The events of a journal of the same question, one after the other, to fn; *found is 0 where there is none. */
enum ww_rc ww_journal_read(const char *path, size_t asked, int *found,
	enum ww_rc (*fn)(void *ctx, const char *data, size_t n, struct ww_err *err), void *ctx,
	struct ww_err *err) WW_MUST_CHECK;
