/* tool_find.c - glob and grep: what is in the workspace.
 *
 * Both take untrusted patterns.  A glob is matched by two loops that go back to the last star only, so its cost is the
 * product of the two lengths; grep's expressions run in PCRE2 with limits on steps and memory for each place of a line
 * and on seconds for a call, looked at from inside a match; an expression that reaches one is said to take too long.
 * Output is bounded like that of every tool, and matches are counted to the end of the workspace whatever is shown of
 * them.
 *
 * Rejected: regcomp(), whose memory for a nested repetition nothing bounds, and fnmatch(), which has no "**" and is
 * exponential in the number of stars in some C libraries.
 */
#include "agent/tools.h"

#include "base/json.h"
#include "base/time.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string.h>

enum {
	LINE_SHOWN_BYTES = 400,
	MATCH_STEPS = 100000, /* for each place of a line */
	MATCH_HEAP_KIB = 4096,
	SEARCH_MAX_S = 2,          /* for a call */
	CALLOUTS_A_LOOK = 256,     /* at the clock */
	OUTPUT_MAX_BYTES = 4 << 20 /* before head and tail are taken of it */
};

/* ---- Globs ------------------------------------------------------------------------------------------------------- */

/* Within one name: '*' is any bytes, '?' one. */
static int name_matches(const char *p, size_t np, const char *s, size_t ns)
{
	size_t i = 0, k = 0, star = np, back = 0;
	while (k < ns) {
		if (i < np && p[i] == '*') {
			star = i++;
			back = k;
		} else if (i < np && (p[i] == '?' || p[i] == s[k])) {
			i++, k++;
		} else if (star < np) {
			i = star + 1;
			k = ++back;
		} else {
			return 0;
		}
	}
	while (i < np && p[i] == '*')
		i++;
	return i == np;
}

static const char *after_name(const char *p)
{
	p += strcspn(p, "/");
	return *p ? p + 1 : p;
}

/* Names one by one; "**" is any number of them.  The same scheme as within a name, and for the same reason. */
static int path_matches(const char *p, const char *s)
{
	const char *star = NULL, *back = NULL;
	while (*s) {
		size_t np = strcspn(p, "/"), ns = strcspn(s, "/");
		if (np == 2 && p[0] == '*' && p[1] == '*') {
			star = p = after_name(p);
			back = s;
			if (!*p)
				return 1;
		} else if (*p && name_matches(p, np, s, ns) && !p[np] == !s[ns]) {
			p = after_name(p), s = after_name(s);
		} else if (star) {
			p = star;
			s = back = after_name(back);
		} else {
			return 0;
		}
	}
	return !*p;
}

/* A pattern without a slash is about names wherever they are. */
static int glob_matches(const char *pattern, const char *path)
{
	const char *name = strrchr(path, '/');
	name = name ? name + 1 : path;
	return strchr(pattern, '/')
		? path_matches(pattern, path)
		: path_matches(pattern, path) || name_matches(pattern, strlen(pattern), name, strlen(name));
}

/* A bounded answer: head and tail of `all`, or `none` where it is empty. */
static void answer(struct ww_tool_result *r, const struct ww_str *all, const char *none)
{
	if (!all->len)
		ww_str_adds(&r->text, none);
	ww_str_add_bounded(&r->text, all->p, all->len, WW_TOOL_TEXT_MAX_BYTES);
}

static enum ww_rc glob_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	const char *pattern = ww_json_str(args, "pattern", "");
	ww_auto_str all = WW_STR_INIT(OUTPUT_MAX_BYTES);
	WW_AUTO(ww_workspace_list_release) struct ww_workspace_list l = { 0 };
	size_t n = 0;
	WW_CHECK(ww_workspace_list(env->workspace, &l, err));
	for (size_t i = 0; i < l.n; i++) {
		const struct ww_workspace_entry *e = &l.entries[i];
		if (!glob_matches(pattern, e->path))
			continue;
		n++;
		if (e->is_dir)
			ww_str_addf(&all, "%s/\n", e->path);
		else
			ww_str_addf(&all, "%s (%lld bytes)\n", e->path, (long long)e->bytes);
	}
	answer(r, &all, "no file or folder matches\n");
	ww_str_addf(&r->text, "%zu of %zu%s", n, l.n, l.more ? "; the workspace holds more than is listed" : "");
	r->data = json_pack("{s:I, s:I}", "matches", (json_int_t)n, "of", (json_int_t)l.n);
	return WW_OK;
}

const struct ww_tool ww_tool_glob = {
	{ "glob", "List files and folders of the workspace whose path matches.",
		"{\"type\":\"object\",\"properties\":{\"pattern\":{\"type\":\"string\",\"maxLength\":1024,\"description\":\"* "
		"any part of a name, ? one "
		"character, ** any number of folders; without a slash it is about names in every "
		"folder\"}},\"required\":[\"pattern\"],"
		"\"additionalProperties\":false}" },
	.run = glob_run
};

/* ---- grep -------------------------------------------------------------------------------------------------------- */

struct search {
	pcre2_code *code;
	pcre2_match_data *data;
	pcre2_match_context *limits;
	struct ww_str all;
	int64_t context;
	size_t matches, files;
	uint64_t deadline_ns;
	unsigned callouts;
	int too_expensive;
};

static int compile_pattern(struct search *s, const char *pattern, int ignore_case, struct ww_tool_result *r)
{
	int code;
	PCRE2_SIZE at;
	PCRE2_UCHAR message[160];
	uint32_t flags = PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT | (ignore_case ? PCRE2_CASELESS : 0);
	s->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, flags, &code, &at, NULL);
	if (!s->code) {
		pcre2_get_error_message(code, message, sizeof(message));
		ww_tool_malformed(r, "grep: the pattern is not valid at offset %zu: %s", (size_t)at, (const char *)message);
		return 0;
	}
	return 1;
}

/* Before each item of the expression: PCRE2 counts steps for one place of a line, and a long line has many. */
static int look_at_clock(pcre2_callout_block *b, void *search)
{
	struct search *s = search;
	return s->callouts++ % CALLOUTS_A_LOOK == 0 && ww_now_ns() > s->deadline_ns ? PCRE2_ERROR_CALLOUT : 0;
}

static int is_match(struct search *s, const char *line, size_t n)
{
	int got = pcre2_match(s->code, (PCRE2_SPTR)line, n, 0, 0, s->data, s->limits);
	s->too_expensive |= (got < 0 && got != PCRE2_ERROR_NOMATCH) || ww_now_ns() > s->deadline_ns;
	return got >= 0;
}

static void show_line(struct search *s, const char *path, size_t number, char mark, const char *line, size_t n)
{
	ww_str_addf(&s->all, "%s%c%zu%c", path, mark, number, mark);
	ww_str_add_bounded(&s->all, line, n, LINE_SHOWN_BYTES);
	ww_str_addc(&s->all, '\n');
}

/* The start of the line `count` lines above `at`; *number follows it. */
static const char *lines_above(const char *text, const char *at, int64_t count, size_t *number)
{
	for (; count > 0 && at > text; count--, (*number)--)
		for (at--; at > text && at[-1] != '\n';)
			at--;
	return at;
}

static void search_text(struct search *s, const char *path, const struct ww_str *text)
{
	const char *end = text->p + text->len, *shown = text->p, *next;
	size_t number = 1, before = s->matches;
	int64_t after = 0;
	for (const char *p = text->p; p < end && !s->too_expensive; p = next, number++) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((nl ? nl : end) - p);
		next = nl ? nl + 1 : end;
		int hit = is_match(s, p, n);
		if (!hit && after-- <= 0)
			continue;
		if (hit) {
			size_t from = number;
			const char *q = lines_above(text->p, p, s->context, &from);
			for (; q < p; q += strcspn(q, "\n") + 1, from++)
				if (q >= shown)
					show_line(s, path, from, '-', q, strcspn(q, "\n"));
			s->matches++;
			after = s->context;
		}
		show_line(s, path, number, hit ? ':' : '-', p, n);
		shown = next;
	}
	s->files += s->matches > before;
}

static enum ww_rc search_file(struct search *s, struct ww_tool_env *env, const char *path, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(WW_WORKSPACE_FILE_BYTES), why = WW_STR_INIT(512);
	int found;
	WW_CHECK(ww_workspace_read(env->workspace, path, &text, &found, &why, err));
	if (found && !memchr(text.p, 0, text.len)) /* what is not text has no lines */
		search_text(s, path, &text);
	return WW_OK;
}

static enum ww_rc search_all(struct search *s, struct ww_tool_env *env, const char *glob, struct ww_err *err)
{
	WW_AUTO(ww_workspace_list_release) struct ww_workspace_list l;
	WW_CHECK(ww_workspace_list(env->workspace, &l, err));
	for (size_t i = 0; i < l.n && !s->too_expensive; i++)
		if (!l.entries[i].is_dir && (!*glob || glob_matches(glob, l.entries[i].path)))
			WW_CHECK(search_file(s, env, l.entries[i].path, err));
	return WW_OK;
}

static enum ww_rc grep_run(struct ww_tool_env *env, const json_t *args, struct ww_tool_result *r, struct ww_err *err)
{
	struct search s = { .context = ww_json_int(args, "context", 0),
		.deadline_ns = ww_now_ns() + SEARCH_MAX_S * UINT64_C(1000000000) };
	const char *glob = ww_json_str(args, "files", "");
	enum ww_rc rc = WW_OK;
	ww_str_init(&s.all, OUTPUT_MAX_BYTES);
	if (!compile_pattern(&s, ww_json_str(args, "pattern", ""), ww_json_bool(args, "ignore_case", 0), r))
		return WW_OK;
	s.data = pcre2_match_data_create_from_pattern(s.code, NULL);
	s.limits = pcre2_match_context_create(NULL);
	if (!s.data || !s.limits) {
		rc = ww_err_set(err, WW_ERR_NOMEM, "out of memory for a search");
		goto out;
	}
	pcre2_set_match_limit(s.limits, MATCH_STEPS);
	pcre2_set_heap_limit(s.limits, MATCH_HEAP_KIB);
	pcre2_set_callout(s.limits, look_at_clock, &s);
	WW_TRY(search_all(&s, env, glob, err));
	if (s.too_expensive) {
		ww_str_adds(&r->text, "the pattern takes too long to match; make it simpler");
		r->is_error = 1;
		goto out;
	}
	answer(r, &s.all, "");
	ww_str_addf(&r->text, "%zu lines match in %zu files%s", s.matches, s.files, s.all.cut ? "; not all are shown" : "");
	r->data = json_pack("{s:I, s:I}", "matches", (json_int_t)s.matches, "files", (json_int_t)s.files);
out:
	pcre2_match_context_free(s.limits);
	pcre2_match_data_free(s.data);
	pcre2_code_free(s.code);
	ww_str_release(&s.all);
	return rc;
}

const struct ww_tool ww_tool_grep = {
	{ "grep", "Search the files of the workspace for lines that match a regular expression (PCRE2).",
		"{\"type\":\"object\",\"properties\":{\"pattern\":{\"type\":\"string\",\"maxLength\":1024,\"description\":"
		"\"the expression\"},\"files\":{"
		"\"type\":\"string\",\"maxLength\":1024,\"description\":\"only in files that match this, as glob has it; "
		"all by default\"},\"ignore_case\":{"
		"\"type\":\"boolean\",\"description\":\"default "
		"false\"},\"context\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":10,\"description\":\"lines shown "
		"around each match, 0 to 10; default 0\"}},\"required\":[\"pattern\"],\"additionalProperties\":false}" },
	.run = grep_run
};
