/* batch_results.c - the durable file of a batch: one result a line, appended and synced, found again on resume.
 *
 * A line is written by one write(2) after the last whole line, and synced before it is reported.  So kill -9 or a power
 * failure can lose or cut only the line being written, which has not been reported; the next open removes what follows
 * the last newline.  An exclusive flock(2) keeps two batches out of one file.
 *
 * Only verdicts count as finished.  Errors are lines too, for people, but their jobs are done again. */
#include "cmd/batch.h"

#include "base/fs.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LINE_BYTES = 16 << 20, BLOCK_BYTES = 1 << 16 };

struct ww_results {
	int fd; /* -1: nothing is kept */
	char path[PATH_MAX];
	json_t *finished; /* "key id" to whether it was correct */
};

/* What a job is found by: its key, and its id as JSON text. */
static void name_of(const json_t *id, const char *key, struct ww_str *out)
{
	ww_str_addf(out, "%s ", key);
	ww_json_add(out, id);
}

/* 1 where the line is a result. */
static int note(struct ww_results *r, const char *line, size_t n)
{
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

/* All whole lines; *end gets the offset behind the last one. */
static enum ww_rc read_lines(struct ww_results *r, off_t *end, int64_t *strange, struct ww_err *err)
{
	struct ww_str line = WW_STR_INIT(MAX_LINE_BYTES);
	char block[BLOCK_BYTES];
	off_t at = 0;
	ssize_t n;
	enum ww_rc rc = WW_OK;

	*end = 0;
	while ((n = pread(r->fd, block, sizeof(block), at)) > 0 || (n < 0 && errno == EINTR)) {
		for (ssize_t i = 0; i < n;) {
			const char *nl = memchr(block + i, '\n', (size_t)(n - i));
			size_t part = nl ? (size_t)(nl - block - i) : (size_t)(n - i);
			ww_str_add(&line, block + i, part);
			i += (ssize_t)part + (nl != NULL);
			if (!nl)
				continue;
			if (line.len || line.cut)
				*strange += line.cut || !note(r, line.p, line.len);
			ww_str_release(&line);
			ww_str_init(&line, MAX_LINE_BYTES);
			*end = at + i;
		}
		at += n > 0 ? n : 0;
	}
	if (n < 0)
		rc = ww_err_errno(err, WW_ERR_IO, "cannot read %s", r->path);
	ww_str_release(&line);
	return rc;
}

static void sync_directory(const char *path)
{
	char dir[PATH_MAX];
	snprintf(dir, sizeof(dir), "%s", path);
	char *slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = 0;
	int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
}

enum ww_rc ww_results_open(struct ww_results **out, const char *path, int64_t *strange, struct ww_err *err)
{
	struct ww_results *r = calloc(1, sizeof(*r));
	struct stat st;
	off_t end = 0;
	enum ww_rc rc = WW_OK;

	*out = NULL;
	*strange = 0;
	if (!r || !(r->finished = json_object())) {
		free(r);
		return ww_nomem(err);
	}
	r->fd = -1;
	if (!path)
		goto done;
	snprintf(r->path, sizeof(r->path), "%s", path);
	r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (r->fd < 0 || fstat(r->fd, &st)) {
		rc = ww_err_errno(err, WW_ERR_IO, "cannot open %s", path);
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		rc = ww_err_set(err, WW_ERR_USAGE, "%s is not a regular file", path);
		goto out;
	}
	if (flock(r->fd, LOCK_EX | LOCK_NB)) {
		rc = ww_err_set(err, WW_ERR_USAGE, "another batch is writing to %s", path);
		goto out;
	}
	WW_TRY(read_lines(r, &end, strange, err));
	if (ftruncate(r->fd, end) || lseek(r->fd, end, SEEK_SET) < 0) {
		rc = ww_err_errno(err, WW_ERR_IO, "cannot write to %s", path);
		goto out;
	}
	sync_directory(path);
done:
	*out = r;
	return WW_OK;
out:
	ww_results_close(r);
	return rc;
}

void ww_results_close(struct ww_results *r)
{
	if (!r)
		return;
	ww_fd_close(&r->fd);
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
	if (r->fd < 0)
		return WW_OK;
	off_t start = lseek(r->fd, 0, SEEK_CUR);
	ww_auto_str whole = WW_STR_INIT(n + 1);
	enum ww_rc rc = WW_OK;
	ww_str_add(&whole, line, n);
	ww_str_addc(&whole, '\n');
	for (size_t done = 0; done < whole.len;) {
		ssize_t w = write(r->fd, whole.p + done, whole.len - done);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0) {
			rc = ww_err_errno(err, WW_ERR_IO, "cannot write to %s", r->path);
			break;
		}
		done += (size_t)w;
	}
	if (rc == WW_OK && fdatasync(r->fd))
		rc = ww_err_errno(err, WW_ERR_IO, "cannot write to %s", r->path);
	if (rc != WW_OK && start >= 0 && (ftruncate(r->fd, start) || lseek(r->fd, start, SEEK_SET) < 0))
		ww_fd_close(&r->fd); /* a line after the cut one could not be told from it */
	return rc;
}
