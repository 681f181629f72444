/* include.c - #include without opening files.
 *
 * TinyCC opens what it includes, and prints a piece of it where it does not parse.  Plans are therefore compiled
 * behind a filter that opens nothing, and their #include lines are resolved here, before, from a table of the few
 * headers that are meant for them: ww/plan.h and the cookbook's .h files (the recipes).  The text of a header takes
 * the place of the line, with #line directives around it, so that messages keep the numbers of plan.c.  Whatever is
 * not found this way (an unknown name, an #include made by a macro) stays as it is, and TinyCC says that the file does
 * not exist.
 *
 * The scanner knows comments, strings and continued lines, no more of the preprocessor.  A header that was once
 * included outside every #if is not repeated: all of ours have include guards, so this only saves time.
 */
#include "judge/build/build_wire.h"

#include "base/fs.h"
#include "base/mem.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADERS = 256, MAX_HEADER_BYTES = 1 << 20, MAX_DEPTH = 8 };

struct header {
	char name[128]; /* "ww/recipe/softmax.h" */
	char *text;
	size_t bytes;
	int done; /* in this expansion: already there, unconditionally */
};
struct ww_headers {
	struct header list[MAX_HEADERS];
	int n;
};

static enum ww_rc load_one(struct ww_headers *h, const char *path, const char *name, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_HEADER_BYTES);
	if (h->n == MAX_HEADERS || strlen(name) >= sizeof(h->list[0].name))
		return ww_err_set(err, WW_ERR_LIMIT, "plan.c includes too many headers, or one with too long a name: %s", path);
	WW_CHECK(ww_fs_read(path, MAX_HEADER_BYTES, &text, err));
	struct header *x = &h->list[h->n++];
	strcpy(x->name, name);
	x->bytes = text.len;
	return (x->text = ww_str_take(&text)) ? WW_OK : ww_nomem(err);
}

static enum ww_rc load_dir(struct ww_headers *h, const char *dir, const char *prefix, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	DIR *d = opendir(dir);
	for (struct dirent *e; d && rc == WW_OK && (e = readdir(d));) {
		char path[PATH_MAX], name[PATH_MAX];
		size_t n = strlen(e->d_name);
		if (e->d_name[0] == '.')
			continue;
		rc = ww_fs_join(path, dir, e->d_name, err);
		if (rc == WW_OK)
			rc = ww_fs_join(name, prefix, e->d_name, err);
		if (rc == WW_OK)
			rc = ww_fs_is_dir(path)                         ? load_dir(h, path, name, err)
				: n > 2 && !strcmp(e->d_name + n - 2, ".h") ? load_one(h, path, name, err)
															: WW_OK;
	}
	if (d)
		closedir(d);
	return rc;
}

enum ww_rc ww_headers_load(struct ww_headers **out, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	char path[PATH_MAX];
	struct ww_headers *h;
	*out = NULL;
	WW_CHECK(WW_NEW(h, 1, err));
	WW_TRY(ww_fs_resource("include/ww/plan.h", path, err));
	WW_TRY(load_one(h, path, "ww/plan.h", err));
	WW_TRY(ww_fs_resource("skills/cuda/include/ww", path, err));
	WW_TRY(load_dir(h, path, "ww", err));
	*out = h;
	h = NULL;
out:
	ww_headers_free(h);
	return rc;
}

void ww_headers_free(struct ww_headers *h)
{
	for (int i = 0; h && i < h->n; i++)
		free(h->list[i].text);
	free(h);
}

/* ---- Expansion --------------------------------------------------------------------------------------------------- */

struct scan {
	struct ww_headers *h;
	struct ww_str *out;
	int conditions; /* open #if's, include guards not counted */
	int depth;
};

/* One file's state: the scanner goes line by line, carrying what a line can leave open. */
struct file {
	const char *p, *end, *name;
	long line;
	int in_comment;
	int guard_open; /* the first condition of a header is its guard */
	int is_header;
};

/* End of the logical line that starts at p (behind its newline), counting its physical lines. */
static const char *line_end(const struct file *f, const char *p, long *lines)
{
	*lines = 0;
	while (p < f->end) {
		const char *nl = memchr(p, '\n', (size_t)(f->end - p));
		++*lines;
		if (!nl)
			return f->end;
		int continued = nl > p && (nl[-1] == '\\' || (nl[-1] == '\r' && nl > p + 1 && nl[-2] == '\\'));
		p = nl + 1;
		if (!continued)
			break;
	}
	return p;
}

/* Whether a block comment is open at the end of [p, end). */
static int comment_open(const char *p, const char *end, int open)
{
	while (p < end) {
		if (open) {
			if (*p == '*' && p + 1 < end && p[1] == '/')
				open = 0, p++;
		} else if (*p == '/' && p + 1 < end && p[1] == '*') {
			open = 1, p++;
		} else if (*p == '/' && p + 1 < end && p[1] == '/') {
			return 0;
		} else if (*p == '"' || *p == '\'') {
			char quote = *p;
			for (p++; p < end && *p != quote && *p != '\n'; p++)
				p += *p == '\\' && p + 1 < end;
		}
		p++;
	}
	return open;
}

static const char *skip_blanks(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	return p;
}

/* The word of a directive ("include"), or an empty one. */
static size_t directive(const char **p, const char *end)
{
	const char *q = skip_blanks(*p, end);
	if (q == end || *q != '#')
		return 0;
	q = skip_blanks(q + 1, end);
	*p = q;
	while (q < end && *q >= 'a' && *q <= 'z')
		q++;
	return (size_t)(q - *p);
}

static struct header *included(struct ww_headers *h, const char *p, const char *end)
{
	p = skip_blanks(p, end);
	if (p == end || (*p != '<' && *p != '"'))
		return NULL;
	const char *close = memchr(p + 1, *p == '<' ? '>' : '"', (size_t)(end - p - 1));
	for (int i = 0; close && i < h->n; i++)
		if (strlen(h->list[i].name) == (size_t)(close - p - 1) &&
			!memcmp(h->list[i].name, p + 1, (size_t)(close - p - 1)))
			return &h->list[i];
	return NULL;
}

static void count_condition(struct scan *s, struct file *f, const char *word, size_t n)
{
	if (n >= 2 && !memcmp(word, "if", 2)) {
		if (f->is_header && !f->guard_open)
			f->guard_open = 1;
		else
			s->conditions++;
	} else if (n == 5 && !memcmp(word, "endif", 5) && s->conditions > 0) {
		s->conditions--;
	}
}

/* TinyCC cannot be told to leave these out. */
static int tells_time(const char *p, const char *end)
{
	static const char *const names[] = { "__DATE__", "__TIME__", "__TIMESTAMP__" };
	for (size_t i = 0; i < WW_ARRAY_LEN(names); i++)
		if (memmem(p, (size_t)(end - p), names[i], strlen(names[i])))
			return 1;
	return 0;
}

static void expand_file(struct scan *s, struct file *f);

static void expand_header(struct scan *s, struct header *x, const struct file *from, long next_line)
{
	if (!x->done) {
		struct file f = { .p = x->text, .end = x->text + x->bytes, .name = x->name, .line = 1, .is_header = 1 };
		int conditions = s->conditions;
		x->done = conditions == 0;
		s->depth++;
		expand_file(s, &f);
		s->depth--;
		s->conditions = conditions;
	}
	ww_str_addf(s->out, "\n#line %ld \"%s\"\n", next_line, from->name);
}

static void expand_file(struct scan *s, struct file *f)
{
	ww_str_addf(s->out, "#line %ld \"%s\"\n", f->line, f->name);
	while (f->p < f->end) {
		long lines;
		const char *end = line_end(f, f->p, &lines), *word = f->p;
		size_t n = f->in_comment ? 0 : directive(&word, end);
		struct header *x = NULL;
		count_condition(s, f, word, n);
		if (n == 7 && !memcmp(word, "include", 7) && s->depth < MAX_DEPTH)
			x = included(s->h, word + 7, end);
		if (x)
			expand_header(s, x, f, f->line + lines);
		else if (tells_time(f->p, end))
			ww_str_addf(s->out,
				"#error __DATE__, __TIME__ and __TIMESTAMP__ are not there: a plan depends "
				"on its task alone\n");
		else
			ww_str_add(s->out, f->p, (size_t)(end - f->p));
		f->in_comment = comment_open(f->p, end, f->in_comment);
		f->p = end;
		f->line += lines;
	}
}

void ww_headers_expand(struct ww_headers *h, const char *source, size_t n, struct ww_str *out)
{
	struct scan s = { .h = h, .out = out };
	struct file f = { .p = source, .end = source + n, .name = "plan.c", .line = 1 };
	for (int i = 0; i < h->n; i++)
		h->list[i].done = 0;
	expand_file(&s, &f);
}
