/* local.c - the files that a task's text names: modules beside it, and files that it reads by a relative name
 * (local.h).
 *
 * Problem.  A task that imports layers.py computes what layers.py says, so its content, and with it every cache, must
 * depend on that file; and a process that holds an untrusted solution must be given the file and nothing else of the
 * folder.  Both are needed before any Python has run.
 *
 * So the text is read, not run.  Import statements are resolved as Python would, first in the task's folder and then
 * along PYTHONPATH; of a package every .py file counts.  A string that is the relative name of a file counts as well.
 * Both are followed through the modules found.  This finds too much now and then (a name in prose), which costs
 * nothing; what it cannot find (a name put together at run time) the reference worker notices and refuses
 * (bridge/wwbridge/local.py).
 *
 * Rejected: asking Python (a process for each task file, where thousands are read); hashing the whole folder. */
#include "task/local.h"
#include "base/fs.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILES = 1024, MAX_NAME = 255, MAX_ROOTS = 64, MAX_SOURCE = WW_TASK_MAX_BYTES };
static const size_t MAX_FILE_BYTES = (size_t)1 << 31;

struct scan {
	struct ww_task *t;
	char *roots[MAX_ROOTS]; /* the folder, then PYTHONPATH's directories */
	int n_roots;
	struct ww_err *err;
};

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static struct ww_task_file *find_file(const struct ww_task *t, const char *name)
{
	for (int i = 0; i < t->n_files; i++)
		if (!strcmp(t->files[i].name, name))
			return &t->files[i];
	return NULL;
}

static enum ww_rc hash_file(struct ww_task_file *f, struct ww_str *text, struct ww_err *err)
{
	enum ww_rc rc = ww_fs_read(f->path, MAX_FILE_BYTES, text, err);
	if (rc == WW_OK)
		ww_hash_hex(text->p, text->len, f->hash);
	f->bytes = text->len;
	return rc;
}

static enum ww_rc scan_text(struct scan *s, const char *dir, const char *text, size_t n);

/* The directory below the root that a module lies in: its strings may be relative to that. */
static enum ww_rc scan_module(struct scan *s, const struct ww_task_file *f, const struct ww_str *text)
{
	char dir[PATH_MAX];
	snprintf(dir, sizeof(dir), "%s", f->path);
	*strrchr(dir, '/') = 0;
	return text->len <= MAX_SOURCE ? scan_text(s, dir, text->p, text->len) : WW_OK;
}

/* A regular file `root`/`name`, unless it is there already; `module`: it is Python that the task imports. */
static enum ww_rc add_file(struct scan *s, const char *root, const char *name, int module)
{
	struct ww_task *t = s->t;
	struct ww_task_file *f = find_file(t, name), *grown;
	ww_auto_str text = WW_STR_INIT(MAX_FILE_BYTES);
	if (f && (f->module || !module))
		return WW_OK;
	if (!f) {
		if (t->n_files == MAX_FILES)
			return ww_err_set(s->err, WW_ERR_USAGE, "%s names more than %d files beside it", t->name, MAX_FILES);
		grown = realloc(t->files, (size_t)(t->n_files + 1) * sizeof(*grown));
		if (!grown)
			return ww_err_set(s->err, WW_ERR_NOMEM, "out of memory");
		t->files = grown;
		f = &t->files[t->n_files++];
		*f = (struct ww_task_file){ .name = strdup(name) };
		if (!f->name || asprintf(&f->path, "%s/%s", root, name) < 0) {
			f->path = NULL;
			return ww_err_set(s->err, WW_ERR_NOMEM, "out of memory");
		}
	}
	f->module = module;
	WW_CHECK(hash_file(f, &text, s->err));
	if (module) {
		struct ww_task_file copy = *f; /* the table may move */
		WW_CHECK(scan_module(s, &copy, &text));
	}
	return WW_OK;
}

static int is_file(const char *root, const char *name)
{
	char path[PATH_MAX];
	return (size_t)snprintf(path, sizeof(path), "%s/%s", root, name) < sizeof(path) && ww_fs_is_file(path);
}

static int is_dir(const char *root, const char *name)
{
	char path[PATH_MAX];
	return (size_t)snprintf(path, sizeof(path), "%s/%s", root, name) < sizeof(path) && ww_fs_is_dir(path);
}

/* ---- Imports ----------------------------------------------------------------------------------------------------- */

static enum ww_rc add_package(struct scan *s, const char *root, const char *name)
{
	char path[PATH_MAX];
	char *paths[] = { path, NULL };
	size_t at = strlen(root) + 1;
	enum ww_rc rc = WW_OK;
	snprintf(path, sizeof(path), "%s/%s", root, name);
	FTS *tree = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, NULL);
	if (!tree)
		return ww_err_errno(s->err, WW_ERR_IO, "cannot read directory %s", path);
	for (FTSENT *e; rc == WW_OK && (e = fts_read(tree));)
		if (e->fts_info == FTS_F && e->fts_namelen > 3 && !strcmp(e->fts_name + e->fts_namelen - 3, ".py"))
			rc = add_file(s, root, e->fts_path + at, 1);
	fts_close(tree);
	return rc;
}

/* A directory without __init__.py is a package where it holds the module that is asked for. */
static int is_namespace(const char *root, const char *top, const char *next)
{
	char file[2 * MAX_NAME + 16], dir[2 * MAX_NAME + 16];
	snprintf(file, sizeof(file), "%s/%s.py", top, next);
	snprintf(dir, sizeof(dir), "%s/%s/__init__.py", top, next);
	return *next && (is_file(root, file) || is_file(root, dir));
}

/* import TOP.NEXT, or from TOP import NEXT, by Python's order. */
static enum ww_rc add_import(struct scan *s, const char *top, const char *next)
{
	char module[MAX_NAME + 8], init[MAX_NAME + 16];
	snprintf(module, sizeof(module), "%s.py", top);
	snprintf(init, sizeof(init), "%s/__init__.py", top);
	for (int i = 0; i < s->n_roots; i++) {
		if (is_file(s->roots[i], init))
			return add_package(s, s->roots[i], top);
		if (is_file(s->roots[i], module))
			return add_file(s, s->roots[i], module, 1);
	}
	for (int i = 0; i < s->n_roots; i++)
		if (is_dir(s->roots[i], top) && is_namespace(s->roots[i], top, next))
			return add_package(s, s->roots[i], top);
	return WW_OK;
}

static int is_name(char c) { return isalnum((unsigned char)c) || c == '_' || (c & 0x80); }

/* The next name of the statement, or "" at its end; *dots: how many points stand before it. */
static const char *next_name(const char *p, const char *end, char name[MAX_NAME + 1], int *dots)
{
	size_t n = 0;
	*dots = 0;
	for (; p < end && !is_name(*p); p++)
		*dots += *p == '.';
	for (; p < end && is_name(*p); p++)
		if (n < MAX_NAME)
			name[n++] = *p;
	name[n] = 0;
	return p;
}

/* `import a.b as c, d` or `from a.b import c, d`.  Names after a point belong to the package before it, whose files
 * all count; a relative import stays in its package. */
static enum ww_rc add_statement(struct scan *s, const char *p, const char *end)
{
	char word[MAX_NAME + 1], top[MAX_NAME + 1], next[MAX_NAME + 1];
	int dots, from;
	enum ww_rc rc = WW_OK;
	p = next_name(p, end, word, &dots);
	from = !strcmp(word, "from");
	p = next_name(p, end, top, &dots);
	if (from && dots)
		return WW_OK;
	while (rc == WW_OK && *top) {
		p = next_name(p, end, next, &dots);
		if (from && !dots && !strcmp(next, "import"))
			p = next_name(p, end, next, &dots);
		rc = add_import(s, top, from || dots ? next : "");
		if (from)
			return rc; /* the other names are of the same package; in a namespace, one found brings all */
		while (*next && (dots || !strcmp(next, "as"))) {
			if (!dots)
				p = next_name(p, end, next, &dots);
			p = next_name(p, end, next, &dots);
		}
		memcpy(top, next, sizeof(top));
	}
	return rc;
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

/* A string of the text: the relative name of a file below the folder, or below the module's own directory? */
static enum ww_rc add_string(struct scan *s, const char *dir, const char *p, size_t n)
{
	char name[MAX_NAME + 1];
	const char *folder = s->roots[0];
	size_t at = strlen(folder);
	enum ww_rc rc = WW_OK;
	if (!n || n > MAX_NAME || *p == '/' || memchr(p, '\n', n) || memchr(p, 0, n))
		return WW_OK;
	memcpy(name, p, n);
	name[n] = 0;
	while (!strncmp(name, "./", 2))
		memmove(name, name + 2, strlen(name) - 1);
	if (strstr(name, ".."))
		return WW_OK;
	if (is_file(folder, name))
		rc = add_file(s, folder, name, 0);
	if (rc == WW_OK && !strncmp(dir, folder, at) && dir[at] == '/' && is_file(dir, name)) {
		char below[PATH_MAX];
		if ((size_t)snprintf(below, sizeof(below), "%s/%s", dir + at + 1, name) < sizeof(below))
			rc = add_file(s, folder, below, 0);
	}
	return rc;
}

/* The end of the string that begins at p with a quote; *inner and *n get what is between its quotes. */
static const char *string_end(const char *p, const char *end, const char **inner, size_t *n)
{
	char quote = *p;
	int triple = end - p > 2 && p[1] == quote && p[2] == quote;
	*inner = p += triple ? 3 : 1;
	while (p < end && (triple ? end - p < 3 || p[0] != quote || p[1] != quote || p[2] != quote : *p != quote)) {
		if (!triple && *p == '\n')
			break;
		p += *p == '\\' && p + 1 < end ? 2 : 1;
	}
	*n = (size_t)(p - *inner);
	p += triple ? 3 : 1;
	return p < end ? p : end;
}

/* The end of a statement: a new line or `;` outside brackets. */
static const char *statement_end(const char *p, const char *end)
{
	for (int open = 0; p < end && *p != '#' && (open || (*p != '\n' && *p != ';')); p++) {
		open += (*p == '(') - (*p == ')');
		if (*p == '\\' && p + 1 < end)
			p++;
	}
	return p;
}

static int begins(const char *p, const char *end, const char *word)
{
	size_t n = strlen(word);
	return (size_t)(end - p) > n && !strncmp(p, word, n) && !is_name(p[n]);
}

static enum ww_rc scan_text(struct scan *s, const char *dir, const char *text, size_t bytes)
{
	const char *end = text + bytes, *inner;
	enum ww_rc rc = WW_OK;
	int first = 1; /* nothing but space since the statement began */
	size_t n;
	for (const char *p = text; rc == WW_OK && p < end;) {
		if (*p == '#') {
			while (p < end && *p != '\n')
				p++;
		} else if (*p == '"' || *p == '\'') {
			p = string_end(p, end, &inner, &n);
			rc = add_string(s, dir, inner, n);
			first = 0;
		} else if (first && (begins(p, end, "import") || begins(p, end, "from"))) {
			const char *stop = statement_end(p, end);
			rc = add_statement(s, p, stop);
			p = stop;
		} else {
			first = *p == '\n' || *p == ';' || *p == ':' || (first && isspace((unsigned char)*p));
			p++;
		}
	}
	return rc;
}

/* ---- One task ---------------------------------------------------------------------------------------------------- */

/* The folder of the file, and PYTHONPATH's directories, absolute. */
static enum ww_rc find_roots(struct scan *s)
{
	char *list = strdup(getenv("PYTHONPATH") ? getenv("PYTHONPATH") : ""), *rest = list,
		 *file = realpath(s->t->path, NULL);
	enum ww_rc rc = WW_OK;
	if (!list || !file)
		WW_TRY(ww_err_errno(s->err, WW_ERR_USAGE, "cannot find the folder of %s", s->t->path));
	char *slash = strrchr(file, '/');
	slash[slash == file] = 0;
	s->roots[s->n_roots++] = file;
	file = NULL;
	for (char *one; (one = strsep(&rest, ":")) && s->n_roots < MAX_ROOTS;)
		if (*one && ww_fs_is_dir(one) && (s->roots[s->n_roots] = realpath(one, NULL)))
			s->n_roots++;
out:
	free(list);
	free(file);
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ww_task_file *)a)->name, ((const struct ww_task_file *)b)->name);
}

static enum ww_rc set_id(struct ww_task *t, struct ww_err *err)
{
	ww_auto_str list = WW_STR_INIT(MAX_FILES * (PATH_MAX + WW_HASH_HEX));
	qsort(t->files, (size_t)t->n_files, sizeof(*t->files), by_name);
	for (int i = 0; i < t->n_files; i++)
		ww_str_addf(&list, "%s %s\n", t->files[i].hash, t->files[i].name);
	struct ww_hash_part parts[] = { { t->source, t->source_bytes }, { list.p, list.len } };
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), t->id);
	return list.cut ? ww_err_set(err, WW_ERR_LIMIT, "the names of the task's files are too long") : WW_OK;
}

enum ww_rc ww_task_find_files(struct ww_task *t, struct ww_err *err)
{
	struct scan s = { .t = t, .err = err };
	struct ww_str roots = WW_STR_INIT(MAX_ROOTS * PATH_MAX);
	enum ww_rc rc;
	WW_TRY(find_roots(&s));
	for (int i = 0; i < s.n_roots; i++)
		ww_str_addf(&roots, "%s%s", i ? ":" : "", s.roots[i]);
	WW_TRY(scan_text(&s, s.roots[0], t->source, t->source_bytes));
	free(t->roots);
	t->roots = ww_str_take(&roots);
	if (t->n_files)
		WW_TRY(set_id(t, err));
out:
	for (int i = 0; i < s.n_roots; i++)
		free(s.roots[i]);
	ww_str_release(&roots);
	return rc;
}

enum ww_rc ww_task_copy(struct ww_task *to, const struct ww_task *from, struct ww_err *err)
{
	enum ww_rc rc = ww_task_from_text(to, from->name, from->source, from->source_bytes, err);
	if (rc != WW_OK)
		return rc;
	free(to->roots);
	to->roots = strdup(from->roots);
	to->files = calloc((size_t)from->n_files + 1, sizeof(*to->files));
	for (int i = 0; to->files && i < from->n_files; i++, to->n_files++) {
		to->files[i] = from->files[i];
		to->files[i].name = strdup(from->files[i].name);
		to->files[i].path = strdup(from->files[i].path);
		if (!to->files[i].name || !to->files[i].path)
			rc = WW_ERR_NOMEM;
	}
	memcpy(to->id, from->id, sizeof(to->id));
	if (rc == WW_OK && to->roots && to->files)
		return WW_OK;
	ww_task_release(to);
	return ww_nomem(err);
}

enum ww_rc ww_task_write_files(const struct ww_task *t, const char *dir, struct ww_err *err)
{
	ww_auto_str bytes = WW_STR_INIT(MAX_FILE_BYTES);
	char path[PATH_MAX], *slash;
	for (int i = 0; i < t->n_files; i++) {
		WW_CHECK(ww_fs_join(path, dir, t->files[i].name, err));
		slash = strrchr(path, '/');
		*slash = 0;
		WW_CHECK(ww_fs_mkdirs(path, err));
		*slash = '/';
		ww_str_reset(&bytes);
		WW_CHECK(ww_fs_read(t->files[i].path, MAX_FILE_BYTES, &bytes, err));
		WW_CHECK(ww_fs_write(path, bytes.p, bytes.len, err));
	}
	return WW_OK;
}
