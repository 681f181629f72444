/* journal.c - see journal.h. */
#include "policy/http/journal.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RESERVE_BYTES = 1 << 20, JOURNAL_MAX_BYTES = 256 << 20 };

enum ww_rc ww_journal_begin(struct ww_journal *j, const char *path, size_t asked, struct ww_err *err)
{
	char head[64];
	j->fd = -1;
	if (!path)
		return WW_OK;
	j->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (j->fd < 0)
		return ww_err_errno(err, WW_ERR_IO, "cannot create %s", path);
	int n = snprintf(head, sizeof(head), "{\"asked\":%zu}\n", asked);
	if ((fallocate(j->fd, FALLOC_FL_KEEP_SIZE, 0, RESERVE_BYTES) < 0 && errno != EOPNOTSUPP) ||
		ww_fd_write_all(j->fd, head, (size_t)n) < 0) {
		enum ww_rc rc = ww_err_errno(err, WW_ERR_IO, "cannot write the reply's journal %s: no space left", path);
		ww_journal_end(j);
		return rc;
	}
	return WW_OK;
}

void ww_journal_event(struct ww_journal *j, const char *data, size_t n)
{
	if (j->fd < 0)
		return;
	ww_auto_str line = WW_STR_INIT(n + 1);
	ww_str_add(&line, data, n);
	for (size_t i = 0; i < line.len; i++)
		if (line.p[i] == '\n')
			line.p[i] = ' '; /* between the lines of one event; inside strings JSON has none */
	ww_str_addc(&line, '\n');
	(void)!ww_fd_write_all(j->fd, line.p, line.len); /* best effort: the reply is still in memory */
}

void ww_journal_sync(struct ww_journal *j)
{
	if (j->fd >= 0)
		(void)fdatasync(j->fd);
}

void ww_journal_end(struct ww_journal *j) { ww_fd_close(&j->fd); }

enum ww_rc ww_journal_read(const char *path, size_t asked, int *found,
	enum ww_rc (*fn)(void *ctx, const char *data, size_t n, struct ww_err *err), void *ctx, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(JOURNAL_MAX_BYTES);
	char head[64];
	*found = 0;
	if (!path || !ww_fs_is_file(path))
		return WW_OK;
	enum ww_rc rc = ww_fs_read(path, JOURNAL_MAX_BYTES, &text, err);
	size_t n = (size_t)snprintf(head, sizeof(head), "{\"asked\":%zu}\n", asked);
	*found = rc == WW_OK && text.len >= n && !memcmp(text.p, head, n);
	const char *p = text.p + n, *end = text.p + text.len;
	for (const char *nl; rc == WW_OK && *found && p < end && (nl = memchr(p, '\n', (size_t)(end - p))); p = nl + 1)
		rc = fn(ctx, p, (size_t)(nl - p), err);
	return rc;
}
