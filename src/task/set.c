/* set.c - reading task sets row by row (set.h).
 *
 * A set is one of three sources behind one function that gives the next row's columns: set_lines.c, set_parquet.c and
 * the list of a directory's files.  What a row must have is checked here, once for all three.
 *
 * Rejected: an index of ids (a file beside the set that must be kept true; reading 6,000 rows takes 40 ms). */
#include "task/set.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "task/set_files.h"
#include "task/set_lines.h"
#include "task/set_parquet.h"
#include "task/shipped.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ww_set {
	struct ww_set_opts o;
	char *path;
	/* The next row's columns (a new reference) and number; *fields NULL at the end.  WW_ERR_USAGE with *number set:
	 * that row is broken, and the next one can be read. */
	enum ww_rc (*next)(struct ww_set *s, json_t **fields, int64_t *number, struct ww_err *err);
	struct ww_set_lines lines;
	struct ww_set_files files;
	struct ww_set_parquet *parquet;
	struct ww_set_row row;
	json_t *fields;
	char number[24], problem[sizeof(((struct ww_err *)0)->msg)];
	int over;
};

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

/* "['nn.Linear', 'torch.add']", "[\"a\"]" and "a, b" as an array. */
static json_t *ops_of_text(const char *text)
{
	static const char around[] = " \t\r\n[]()'\"";
	json_t *ops = json_array();
	size_t n;
	for (const char *p; (p = ww_list_next(&text, &n));) {
		size_t from = strspn(p, around), to = n;
		while (to > from && strchr(around, p[to - 1]))
			to--;
		if (from < to)
			json_array_append_new(ops, json_stringn(p + from, to - from));
	}
	return ops;
}

static const char *read_ops(json_t *fields, const json_t **ops)
{
	json_t *v = json_object_get(fields, "ops");
	*ops = NULL;
	if (!v || json_is_null(v))
		return NULL;
	if (json_is_string(v)) {
		json_object_set_new(fields, "ops", ops_of_text(json_string_value(v)));
		v = json_object_get(fields, "ops");
	}
	for (size_t i = 0; i < json_array_size(v); i++)
		if (!json_is_string(json_array_get(v, i)))
			return "\"ops\" holds something else than texts";
	*ops = json_is_array(v) ? v : NULL;
	return *ops ? NULL : "\"ops\" is neither a list nor a text";
}

static const char *read_id(struct ww_set *s, json_t *fields)
{
	json_t *v = json_object_get(fields, "id");
	if (json_is_integer(v)) {
		char text[24];
		snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v));
		json_object_set_new(fields, "id", json_string(text));
		v = json_object_get(fields, "id");
	}
	s->row.id = json_is_string(v) ? json_string_value(v) : s->number;
	if (v && !json_is_string(v) && !json_is_null(v))
		return "\"id\" is no text";
	if (!*s->row.id || strlen(s->row.id) > WW_SET_MAX_ID)
		return "\"id\" is empty, or longer than 200 bytes";
	for (const char *p = s->row.id; *p; p++)
		if (iscntrl((unsigned char)*p))
			return "\"id\" has control characters";
	return NULL;
}

/* Fill s->row from s->fields; what is wrong with it. */
static const char *read_row(struct ww_set *s)
{
	struct ww_set_row *row = &s->row;
	const json_t *code = json_object_get(s->fields, "code");
	row->fields = s->fields;
	row->level = (int)ww_json_int(s->fields, "level", 0);
	const char *wrong = read_id(s, s->fields), *wrong_ops = read_ops(s->fields, &row->ops);
	if (wrong || wrong_ops)
		return wrong ? wrong : wrong_ops;
	if (!json_is_string(code))
		return code ? "\"code\" is no text" : "it has no column \"code\"";
	if (!json_string_length(code) || json_string_length(code) > WW_TASK_MAX_BYTES)
		return "\"code\" is empty, or longer than a task may be";
	row->code = json_string_value(code);
	row->code_bytes = json_string_length(code);
	return NULL;
}

/* ---- Sources ----------------------------------------------------------------------------------------------------- */

static enum ww_rc next_line(struct ww_set *s, json_t **fields, int64_t *number, struct ww_err *err)
{
	char *line;
	size_t n, blank = 0;
	for (;; blank += n + 1) {
		*number = 0;
		if (blank > WW_SET_MAX_LINE) /* some bytes of zstd are any number of them */
			return ww_err_set(err, WW_ERR_USAGE, "%s: row %lld is behind %d MiB of empty lines", s->path,
				(long long)s->lines.line, WW_SET_MAX_LINE >> 20);
		WW_CHECK(ww_set_lines_next(&s->lines, &line, &n, err));
		*number = s->lines.line;
		if (!line || n != strspn(line, " \t\r"))
			break;
	}
	if (!line)
		return WW_OK;
	if (ww_json_parse(line, n, "it", fields, err) != WW_OK)
		return err->rc == WW_ERR_NOMEM ? err->rc : (err->rc = WW_ERR_USAGE);
	if (json_is_object(*fields))
		return WW_OK;
	json_decref(*fields);
	*fields = NULL;
	return ww_err_set(err, WW_ERR_USAGE, "it is no JSON object");
}

static enum ww_rc next_file(struct ww_set *s, json_t **fields, int64_t *number, struct ww_err *err)
{
	return ww_set_files_next(&s->files, fields, number, &s->row.path, err);
}

static enum ww_rc next_parquet(struct ww_set *s, json_t **fields, int64_t *number, struct ww_err *err)
{
	return ww_set_parquet_next(s->parquet, fields, number, err);
}

static enum ww_rc open_file(struct ww_set *s, struct ww_err *err)
{
	static const unsigned char zstd[] = { 0x28, 0xb5, 0x2f, 0xfd };
	unsigned char head[4] = { 0 };
	int fd = open(s->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return ww_err_errno(err, WW_ERR_USAGE, "cannot open the task set %s", s->path);
	ssize_t n = pread(fd, head, sizeof(head), 0);
	s->next = next_line;
	if (n == 4 && !memcmp(head, "PAR1", 4)) {
		s->next = next_parquet;
		return ww_set_parquet_open(&s->parquet, s->path, fd, s->o.interrupted, err);
	}
	int compressed = n == 4 && !memcmp(head, zstd, sizeof(zstd));
	size_t blank = strspn((const char *)head, " \t\r\n");
	if (!compressed && n > 0 && (ssize_t)blank < n && blank < 4 && head[blank] != '{') {
		close(fd);
		return ww_err_set(err, WW_ERR_USAGE,
			"%s is no task set: that is JSON lines (also compressed with zstd), Parquet or a directory", s->path);
	}
	return ww_set_lines_init(&s->lines, s->path, fd, compressed, err);
}

enum ww_rc ww_set_open(struct ww_set **out, const char *path, const struct ww_set_opts *opts, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	struct ww_set *s;
	char shipped[PATH_MAX];
	struct stat st;
	*out = NULL;
	WW_CHECK(WW_NEW(s, 1, err));
	s->lines.fd = -1;
	ww_str_init(&s->lines.text, 0);
	s->o = opts ? *opts : (struct ww_set_opts){ 0 };
	if (!(s->path = strdup(ww_shipped_find(path, shipped) ? shipped : path)))
		WW_TRY(ww_nomem(err));
	path = s->path;
	if (stat(path, &st) < 0)
		WW_TRY(ww_err_errno(err, WW_ERR_USAGE, "cannot read the task set %s", path));
	if (S_ISDIR(st.st_mode)) {
		s->next = next_file;
		WW_TRY(ww_set_files_init(&s->files, path, err));
	} else if (S_ISREG(st.st_mode)) {
		WW_TRY(open_file(s, err));
	} else {
		WW_TRY(ww_err_set(err, WW_ERR_USAGE, "%s is neither a file nor a directory", path));
	}
	*out = s;
out:
	if (rc != WW_OK)
		ww_set_close(s);
	return rc;
}

void ww_set_close(struct ww_set *s)
{
	if (!s)
		return;
	ww_set_lines_release(&s->lines);
	ww_set_files_release(&s->files);
	ww_set_parquet_close(s->parquet);
	json_decref(s->fields);
	free(s->path);
	free(s);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static enum ww_rc broken(struct ww_set *s, const char *why, const struct ww_set_row **row, struct ww_err *err)
{
	if (!s->o.keep_broken)
		return ww_err_set(err, WW_ERR_USAGE, "%s: row %lld cannot be used: %s", s->path, (long long)s->row.number, why);
	memmove(s->problem, why, strlen(why) + 1);
	s->row.problem = s->problem;
	s->row.code = NULL;
	s->row.id = s->row.id ? s->row.id : s->number;
	*row = &s->row;
	return WW_OK;
}

enum ww_rc ww_set_next(struct ww_set *s, const struct ww_set_row **row, struct ww_err *err)
{
	int64_t number = 0;
	*row = NULL;
	if (s->over)
		return WW_OK;
	if (s->o.interrupted && *s->o.interrupted)
		return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	json_decref(s->fields);
	s->fields = NULL;
	memset(&s->row, 0, sizeof(s->row));
	enum ww_rc rc = s->next(s, &s->fields, &number, err);
	s->row.number = number;
	snprintf(s->number, sizeof(s->number), "%lld", (long long)number);
	if (rc == WW_ERR_USAGE && number)
		return broken(s, err->msg, row, err);
	if (rc != WW_OK || !s->fields) {
		s->over = 1;
		return rc;
	}
	const char *why = read_row(s);
	if (why)
		return broken(s, why, row, err);
	*row = &s->row;
	return WW_OK;
}

/* A row that ww_set_next() gave, to be given again after others were read. */
struct held_row {
	struct ww_set_row row;
	json_t *fields;
};

static void hold_row(struct held_row *h, const struct ww_set *s)
{
	h->row = s->row;
	h->fields = json_incref(s->fields);
}

enum ww_rc ww_set_find(struct ww_set *s, const char *id, const struct ww_set_row **row, struct ww_err *err)
{
	struct held_row by_number = { 0 };
	enum ww_rc rc;
	const int keep = s->o.keep_broken;
	s->o.keep_broken = 1; /* a broken row is an error only if it is the row asked for */
	while ((rc = ww_set_next(s, row, err)) == WW_OK && *row && (strcmp((*row)->id, id) || (*row)->problem))
		if (!strcmp(s->number, id) && !s->row.problem)
			hold_row(&by_number, s);
		else if (!strcmp((*row)->id, id))
			break;
	s->o.keep_broken = keep;
	if (rc == WW_OK && *row && (*row)->problem)
		rc = ww_err_set(
			err, WW_ERR_USAGE, "%s: row %lld cannot be used: %s", s->path, (long long)s->row.number, s->row.problem);
	if (rc == WW_OK && !*row && !by_number.fields)
		rc = ww_err_set(err, WW_ERR_USAGE, "%s holds no task \"%.200s\"", s->path, id);
	if (rc == WW_OK && !*row) {
		s->fields = by_number.fields;
		by_number.fields = NULL;
		s->row = by_number.row;
		*row = &s->row;
	}
	json_decref(by_number.fields);
	return rc;
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* A name for files and messages: the id; of a mere number with the set's name before it. */
static void name_task(const struct ww_set *s, const char *id, struct ww_str *out)
{
	const char *slash = strrchr(s->path, '/'), *set = slash && slash[1] ? slash + 1 : s->path;
	if (id[strspn(id, "0123456789")] == 0)
		ww_str_addf(out, "%.*s-", (int)strcspn(set, "."), set);
	ww_str_adds(out, id);
	for (size_t i = 0; i < out->len; i++)
		if (!isalnum((unsigned char)out->p[i]) && !strchr("_-.", out->p[i]))
			out->p[i] = '_';
	if (*out->p == '.' || *out->p == '-')
		*out->p = '_';
}

enum ww_rc ww_set_task(const struct ww_set *s, const struct ww_set_row *row, struct ww_task *out, struct ww_err *err)
{
	ww_auto_str name = WW_STR_INIT(600), path = WW_STR_INIT(2 * PATH_MAX);
	if (row->path) {
		WW_CHECK(ww_task_load(out, row->path, err));
	} else {
		name_task(s, row->id, &name);
		WW_CHECK(ww_task_from_text(out, name.p, row->code, row->code_bytes, err));
	}
	ww_str_addf(&path, "%s#%s", s->path, row->id);
	free(out->path);
	if ((out->path = ww_str_take(&path)))
		return WW_OK;
	ww_task_release(out);
	return ww_nomem(err);
}

const char *ww_set_folder(const char *path, char *real)
{
	char shipped[PATH_MAX];
	if (ww_shipped_find(path, shipped))
		path = shipped;
	return ww_fs_is_dir(path) ? realpath(path, real) : NULL;
}

const char *ww_set_split(const char *path, char *set)
{
	struct stat st;
	char shipped[PATH_MAX];
	if (!stat(path, &st))
		return NULL;
	for (const char *hash = strchr(path, '#'); hash; hash = strchr(hash + 1, '#')) {
		size_t n = (size_t)(hash - path);
		if (!n || n >= PATH_MAX || !hash[1])
			continue;
		memcpy(set, path, n);
		set[n] = 0;
		if (ww_shipped_find(set, shipped))
			strcpy(set, shipped);
		if (!stat(set, &st) && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
			return hash + 1;
	}
	return NULL;
}
