#include "base/str.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char ww_str_empty[1] = "";

void ww_str_init(struct ww_str *s, size_t max_bytes) { *s = (struct ww_str)WW_STR_INIT(max_bytes); }

void ww_str_release(struct ww_str *s)
{
	if (s->cap && !s->arena)
		free(s->p);
	*s = (struct ww_str)WW_STR_IN(s->arena, s->max);
}

void ww_str_reset(struct ww_str *s)
{
	s->len = 0;
	s->cut = 0;
	if (s->cap)
		s->p[0] = 0;
}

int ww_str_reserve(struct ww_str *s, size_t n)
{
	if (n > s->max || s->len > s->max - n) {
		s->cut = 1;
		return 0;
	}
	size_t need = s->len + n + 1;
	if (need <= s->cap)
		return 1;
	size_t cap = s->cap ? s->cap : 64;
	while (cap < need)
		cap = cap > (size_t)-1 / 2 ? need : cap * 2;
	if (cap > s->max + 1)
		cap = s->max + 1;
	char *p = s->arena ? ww_arena_alloc(s->arena, cap) : realloc(s->cap ? s->p : NULL, cap);
	if (!p) {
		s->cut = 1;
		return 0;
	}
	if (s->arena && s->cap)
		memcpy(p, s->p, s->len + 1);
	if (!s->cap)
		p[0] = 0;
	s->p = p;
	s->cap = cap;
	return 1;
}

void ww_str_add(struct ww_str *s, const void *bytes, size_t n)
{
	if (n > s->max - s->len) {
		n = s->max - s->len;
		s->cut = 1;
	}
	if (!n || !ww_str_reserve(s, n))
		return;
	memcpy(s->p + s->len, bytes, n);
	s->len += n;
	s->p[s->len] = 0;
}

void ww_str_adds(struct ww_str *s, const char *text) { ww_str_add(s, text, strlen(text)); }
void ww_str_addc(struct ww_str *s, char c) { ww_str_add(s, &c, 1); }

void ww_str_vaddf(struct ww_str *s, const char *fmt, va_list ap)
{
	char small[256];
	va_list again;
	va_copy(again, ap);
	int n = vsnprintf(small, sizeof(small), fmt, ap);
	if (n >= 0 && (size_t)n < sizeof(small)) {
		ww_str_add(s, small, (size_t)n);
	} else if (n >= 0) {
		char *big = malloc((size_t)n + 1);
		if (big) {
			vsnprintf(big, (size_t)n + 1, fmt, again);
			ww_str_add(s, big, (size_t)n);
			free(big);
		} else {
			s->cut = 1;
		}
	}
	va_end(again);
}

void ww_str_addf(struct ww_str *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	ww_str_vaddf(s, fmt, ap);
	va_end(ap);
}

char *ww_str_take(struct ww_str *s)
{
	char *p = !s->cap ? calloc(1, 1) : s->arena ? strdup(s->p) : s->p;
	*s = (struct ww_str)WW_STR_IN(s->arena, s->max);
	return p;
}

/* Characters that change how the text around them is read without being seen: marks, embeddings, overrides and isolates
 * of writing direction, line and paragraph separators, zero-width ones, tags. */
static int misleads(const unsigned char *p, size_t len)
{
	static const struct {
		unsigned first, last;
	} bad[] = { { 0x61c, 0x61c }, { 0x180e, 0x180e }, { 0x200b, 0x200f }, { 0x2028, 0x202e }, { 0x2060, 0x206f },
		{ 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f } };
	unsigned c = len == 2 ? p[0] & 0x1fu : len == 3 ? p[0] & 0x0fu : p[0] & 0x07u;
	for (size_t i = 1; i < len; i++)
		c = c << 6 | (p[i] & 0x3fu);
	for (size_t i = 0; len > 1 && i < WW_ARRAY_LEN(bad); i++)
		if (c >= bad[i].first && c <= bad[i].last)
			return 1;
	return 0;
}

/* Length of the valid, printable UTF-8 sequence at p, or 0. */
static size_t utf8_printable(const unsigned char *p, size_t n)
{
	if (p[0] < 0x80)
		return p[0] >= 0x20 && p[0] != 0x7f ? 1 : (p[0] == '\n' || p[0] == '\t');
	size_t len = p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : 0;
	if (!len || len > n || (len == 3 && p[0] > 0xef))
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if (len == 2 && p[0] == 0xc2 && p[1] < 0xa0) /* C1 controls */
		return 0;
	if (len == 3 && ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f)))
		return 0;
	if (len == 4 && ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)))
		return 0;
	return misleads(p, len) ? 0 : len;
}

static void add_clean(struct ww_str *s, const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	for (size_t i = 0; i < n;) {
		size_t len = utf8_printable(p + i, n - i);
		if (len)
			ww_str_add(s, p + i, len);
		else if (p[i] != '\r')
			ww_str_addc(s, '?');
		i += len ? len : 1;
	}
}

/* Cut between lines where there are any: the rest of a cut line would read as a whole one. */
void ww_str_add_bounded(struct ww_str *s, const char *text, size_t n, size_t max_bytes)
{
	if (n <= max_bytes) {
		add_clean(s, text, n);
		return;
	}
	size_t head = max_bytes * 2 / 3, tail = max_bytes - head;
	if (memchr(text, '\n', n)) {
		const char *end = memrchr(text, '\n', head), *start = memchr(text + n - tail - 1, '\n', tail + 1);
		head = end ? (size_t)(end - text) : 0;
		tail = start ? n - (size_t)(start - text) - 1 : 0;
	}
	add_clean(s, text, head);
	ww_str_addf(s, "\n[... %zu bytes cut ...]\n", n - head - tail);
	add_clean(s, text + n - tail, tail);
}

void ww_str_add_line(struct ww_str *s, const char *text, size_t max_bytes)
{
	size_t start = s->len;
	ww_str_add_bounded(s, text, strlen(text), max_bytes);
	for (size_t i = start; i < s->len; i++)
		if (s->p[i] == '\n' || s->p[i] == '\t')
			s->p[i] = ' ';
}

void ww_str_add_quoted(struct ww_str *s, const char *text, size_t n, size_t max_bytes)
{
	struct ww_str clean = WW_STR_INIT(max_bytes + 64);
	ww_str_add_bounded(&clean, text, n, max_bytes);
	for (const char *p = clean.p, *end = p + clean.len; p < end;) {
		size_t line = strcspn(p, "\n"), take = line < WW_STR_QUOTED_LINE ? line : WW_STR_QUOTED_LINE;
		while (take < line && take > 1 && ((unsigned char)p[take] & 0xc0) == 0x80)
			take--;
		ww_str_addf(s, "| %.*s\n", (int)take, p);
		p += take + (take == line);
	}
	ww_str_release(&clean);
}

int ww_word_at(const char *word, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(word, words[i]))
			return (int)i;
	return -1;
}

void ww_str_add_shell(struct ww_str *s, const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-";
	if (*word && !word[strspn(word, plain)]) {
		ww_str_adds(s, word);
		return;
	}
	ww_str_addc(s, '\'');
	for (; *word; word++)
		if (*word == '\'')
			ww_str_adds(s, "'\\''");
		else
			ww_str_addc(s, *word);
	ww_str_addc(s, '\'');
}

const char *ww_list_next(const char **list, size_t *n)
{
	const char *part = *list + strspn(*list, ", \t\r\n");
	*n = strcspn(part, ",\n");
	*list = part + *n;
	while (*n && strchr(" \t\r", part[*n - 1]))
		--*n;
	return *n ? part : NULL;
}

int ww_list_part(const char **list, char *part, size_t cap)
{
	size_t n;
	const char *p = ww_list_next(list, &n);
	if (!p || n >= cap)
		return p ? -1 : 0;
	memcpy(part, p, n);
	part[n] = 0;
	return 1;
}
