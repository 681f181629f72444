#include "agent/extract.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 240 };

struct block {
	const char *info, *code; /* the info string; the lines between the fences */
	size_t info_bytes, bytes;
};

static int is_fence(const char *line) { return !strncmp(line + strspn(line, " \t"), "```", 3); }

static const char *next_line(const char *p)
{
	const char *nl = strchr(p, '\n');
	return nl ? nl + 1 : p + strlen(p);
}

/* The next block at or behind *at, whose closing fence may be missing at the end; 0: no more. */
static int next_block(const char **at, struct block *b)
{
	const char *p = *at;
	while (*p && !is_fence(p))
		p = next_line(p);
	if (!*p)
		return 0;
	b->info = strstr(p, "```") + 3;
	b->info_bytes = strcspn(b->info, "\n");
	b->code = p = next_line(p);
	while (*p && !is_fence(p))
		p = next_line(p);
	b->bytes = (size_t)(p - b->code);
	*at = *p ? next_line(p) : p;
	return 1;
}

static int is_name(char c) { return isalnum((unsigned char)c) || strchr("._-/", c); }

/* The first word of the line that names a file of the form, into name; 0: there is none. */
static int named_in(const char *line, size_t n, enum ww_form form, enum ww_target target, char *name)
{
	for (size_t i = 0; i < n;) {
		size_t k = 0;
		while (i + k < n && line[i + k] && is_name(line[i + k]))
			k++;
		if (k && k < NAME_MAX_BYTES) {
			memcpy(name, line + i, k);
			name[k] = 0;
			if (ww_solution_has_place(form, target, name))
				return 1;
		}
		i += k + 1;
	}
	return 0;
}

static int holds(const struct block *b, const char *what)
{
	return memmem(b->code, b->bytes, what, strlen(what)) != NULL;
}

static int has_model(const struct block *b)
{
	ww_auto_str text = WW_STR_INIT(WW_SOLUTION_MAX_BYTES);
	ww_str_add(&text, b->code, b->bytes);
	return ww_solution_defines_model(text.p);
}

static int is_device_code(const struct block *b)
{
	static const char *const languages[] = { "cuda", "cu", "cpp", "c++", "c" };
	size_t n = strcspn(b->info, " \t\r\n");
	for (size_t i = 0; i < WW_ARRAY_LEN(languages); i++)
		if (n == strlen(languages[i]) && !strncasecmp(b->info, languages[i], n))
			return 1;
	return holds(b, "__global__") || holds(b, "WW_KERNEL");
}

/* 0: it is no file of a solution. */
static int name_of(const struct block *b, enum ww_form form, enum ww_target target, char *name)
{
	const char *guess = NULL;
	size_t first = strcspn(b->code, "\n");
	if (named_in(b->info, b->info_bytes, form, target, name) ||
		named_in(b->code, first < b->bytes ? first : b->bytes, form, target, name))
		return 1;
	if (form == WW_FORM_PLAN)
		guess = holds(b, "void plan(") ? "plan.c" : is_device_code(b) ? ww_solution_device_file(target) : NULL;
	else if (has_model(b))
		guess = ww_solution_needs(form, target, 0);
	if (guess)
		snprintf(name, NAME_MAX_BYTES, "%s", guess);
	return guess != NULL;
}

enum ww_rc ww_extract_files(const char *text, enum ww_form form, enum ww_target target,
	enum ww_rc (*put)(void *ctx, const char *name, const char *code, size_t bytes, struct ww_err *err), void *ctx,
	int *n, struct ww_err *err)
{
	char name[NAME_MAX_BYTES];
	struct block b;
	*n = 0;
	while (next_block(&text, &b)) {
		if (!name_of(&b, form, target, name))
			continue;
		WW_CHECK(put(ctx, name, b.code, b.bytes, err));
		(*n)++;
	}
	return WW_OK;
}
