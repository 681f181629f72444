/* journal.c - see journal.h. */
#include "synth/journal.h"
#include "base/fs.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MAX_LINE = 16 << 20 };

static enum ww_rc broken(const struct ww_journal *j, struct ww_err *err)
{
	return ww_err_errno(err, WW_ERR_IO, "cannot write %s; what it holds so far is kept", j->path);
}

enum ww_rc ww_journal_add(struct ww_journal *j, const json_t *line, struct ww_err *err)
{
	ww_auto_str s = WW_STR_INIT(MAX_LINE);
	ww_json_add(&s, line);
	ww_str_addc(&s, '\n');
	if (s.cut)
		return ww_err_set(err, WW_ERR_LIMIT, "a line of %s would have more than %d bytes", j->path, MAX_LINE);
	off_t end = lseek(j->fd, 0, SEEK_END);
	if (ww_fd_write_all(j->fd, s.p, s.len) < 0) {
		enum ww_rc rc = broken(j, err);
		return ftruncate(j->fd, end) ? rc : rc; /* half a line would be cut off later as well */
	}
	return fdatasync(j->fd) ? broken(j, err) : WW_OK;
}

/* Refuse the journal of a run that differs in a member. */
static enum ww_rc same_run(const struct ww_journal *j, const json_t *was, const json_t *run, struct ww_err *err)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)(uintptr_t)run, key, v)
		if (!json_equal(v, json_object_get(was, key)))
			return ww_err_set(
				err, WW_ERR_USAGE, "%s belongs to a run with another %s; choose another -o", j->path, key);
	return WW_OK;
}

static enum ww_rc read_lines(struct ww_journal *j, const json_t *run,
	enum ww_rc (*entry)(void *, const json_t *, struct ww_err *), void *ctx, struct ww_err *err)
{
	char *text = NULL;
	size_t cap = 0;
	ssize_t n;
	off_t good = 0;
	enum ww_rc rc = WW_OK;
	FILE *f = fopen(j->path, "r");
	if (!f)
		return ww_err_errno(err, WW_ERR_IO, "cannot read %s", j->path);
	for (int first = 1; rc == WW_OK && (n = getline(&text, &cap, f)) > 0 && text[n - 1] == '\n'; first = 0) {
		json_auto_t *line = json_loadb(text, (size_t)n, 0, NULL);
		if (!line)
			rc = ww_err_set(err, WW_ERR_IO, "%s is damaged at byte %lld", j->path, (long long)good);
		else
			rc = first ? same_run(j, line, run, err) : entry(ctx, line, err);
		good += n;
	}
	free(text);
	fclose(f);
	if (rc == WW_OK && ftruncate(j->fd, good))
		rc = broken(j, err);
	return rc == WW_OK && good == 0 ? ww_journal_add(j, run, err) : rc;
}

enum ww_rc ww_journal_open(struct ww_journal *j, const char *dir, const json_t *run,
	enum ww_rc (*entry)(void *ctx, const json_t *line, struct ww_err *err), void *ctx, struct ww_err *err)
{
	*j = (struct ww_journal)WW_JOURNAL_INIT;
	WW_CHECK(ww_fs_mkdirs(dir, err));
	WW_CHECK(ww_fs_join(j->path, dir, "journal.jsonl", err));
	WW_CHECK(ww_fs_open_own(&j->fd, j->path, O_RDWR | O_CREAT | O_APPEND, err));
	if (flock(j->fd, LOCK_EX | LOCK_NB))
		return ww_err_set(err, WW_ERR_USAGE, "another process is at work on %s", dir);
	return read_lines(j, run, entry, ctx, err);
}

void ww_journal_close(struct ww_journal *j) { ww_fd_close(&j->fd); }
