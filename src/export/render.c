#include "export/render.h"
#include "export/embed.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

void ww_vars_set(struct ww_vars *v, const char *key, const char *value)
{
	char *copy = ww_arena_strdup(v->arena, value);
	if (!copy) {
		v->failed = 1;
		return;
	}
	for (int i = 0; i < v->n; i++) {
		if (!strcmp(v->v[i].key, key)) {
			v->v[i].value = copy;
			return;
		}
	}
	WW_BUG(v->n >= WW_VARS_MAX);
	v->v[v->n].key = key;
	v->v[v->n++].value = copy;
}

void ww_vars_setf(struct ww_vars *v, const char *key, const char *fmt, ...)
{
	ww_auto_str s = WW_STR_INIT(1 << 20);
	va_list ap;
	va_start(ap, fmt);
	ww_str_vaddf(&s, fmt, ap);
	va_end(ap);
	v->failed |= s.cut;
	ww_vars_set(v, key, s.p);
}

static size_t key_length(const char *p, const char *end)
{
	const char *q = p;
	while (q < end && (isupper((unsigned char)*q) || isdigit((unsigned char)*q) || *q == '_'))
		q++;
	return q < end && *q == '@' ? (size_t)(q - p) : 0;
}

void ww_render(const struct ww_vars *v, const char *text, size_t n, struct ww_str *out)
{
	const char *end = text + n;
	for (const char *p = text; p < end;) {
		const char *at = memchr(p, '@', (size_t)(end - p));
		if (!at)
			at = end;
		ww_str_add(out, p, (size_t)(at - p));
		if (at == end)
			return;
		size_t len = key_length(at + 1, end);
		if (!len) {
			ww_str_addc(out, '@');
			p = at + 1;
			continue;
		}
		int i = 0;
		while (i < v->n && (strlen(v->v[i].key) != len || memcmp(v->v[i].key, at + 1, len)))
			i++;
		WW_BUG(i == v->n && !v->failed);
		if (i < v->n)
			ww_str_adds(out, v->v[i].value);
		p = at + len + 2;
	}
}

void ww_render_embedded(const struct ww_vars *v, const char *path, struct ww_str *out)
{
	const struct ww_embedded *e = ww_embedded_find(path);
	WW_BUG(!e);
	ww_render(v, e->bytes, e->n, out);
}
