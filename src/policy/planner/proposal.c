/* proposal.c - see proposal.h. */
#include "policy/planner/proposal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_INDICES = 100000, TEXT_MAX = 64 << 20 };

/* ---- Indices ----------------------------------------------------------------------------------------------------- */

/* The number of an identifier like i27 or i27_0 at p, of n characters; -1: it is another one. */
static int index_at(const char *p, size_t n)
{
	size_t digits = strspn(p + 1, "0123456789");

	return *p == 'i' && digits && digits < 6 && (1 + digits == n || p[1 + digits] == '_') ? atoi(p + 1) : -1;
}

enum ww_rc pl_renumber(struct ww_str *out, const char *text, struct ww_err *err)
{
	static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
	ww_auto_free int *name = NULL;
	int n = 0;

	WW_CHECK(WW_NEW(name, MOST_INDICES, err));
	for (const char *p = text; *p;) {
		size_t len = strspn(p, word);
		int i = len ? index_at(p, len) : -1;
		if (i >= 0) {
			name[i] = name[i] ? name[i] : ++n;
			ww_str_addf(out, "i%d", name[i] - 1);
		}
		size_t skipped = i >= 0 ? 1 + strspn(p + 1, "0123456789") : 0;
		ww_str_add(out, p + skipped, (len ? len : 1) - skipped);
		p += len ? len : 1;
	}
	return WW_OK;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* The last block of the name, since a file that is written again replaces the one before; NULL: none. */
static char *block_of(const char *answer, const char *name)
{
	const char *begin = NULL, *end;
	size_t n = strlen(name);

	for (const char *p = answer; (p = strstr(p, "```")); p += 3)
		if ((p == answer || p[-1] == '\n') && !strncmp(p + 3, name, n) && p[3 + n] == '\n')
			begin = p + 3 + n + 1;
	if (!begin)
		return NULL;
	end = strstr(begin, "```");
	return end ? strndup(begin, (size_t)(end - begin)) : strdup(begin);
}

void pl_proposal_read(struct pl_proposal *p, const char *answer, int cuda)
{
	p->plan_text = block_of(answer, "plan.c");
	p->device_text = block_of(answer, cuda ? "kernels.cu" : "kernels.c");
	if (!p->plan_text || !p->device_text)
		pl_proposal_release(p);
}

void pl_proposal_release(struct pl_proposal *p)
{
	free(p->plan_text);
	free(p->device_text);
	p->plan_text = p->device_text = NULL;
}

/* ---- Distance ---------------------------------------------------------------------------------------------------- */

struct lines {
	struct ww_str text;
	char **at;
	size_t n;
};

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void release_lines(struct lines *l)
{
	free(l->at);
	ww_str_release(&l->text);
}

static enum ww_rc split(struct lines *l, const char *text, struct ww_err *err)
{
	WW_CHECK(pl_renumber(&l->text, text, err));
	WW_CHECK(WW_NEW(l->at, l->text.len + 1, err));
	for (char *p = l->text.p, *end; p && *p; p = end) {
		end = p + strcspn(p, "\n");
		if (*end)
			*end++ = 0;
		l->at[l->n++] = p;
	}
	if (l->n)
		qsort(l->at, l->n, sizeof(*l->at), by_text);
	return WW_OK;
}

enum ww_rc pl_text_distance(const char *a, const char *b, int *n, struct ww_err *err)
{
	WW_AUTO(release_lines) struct lines x = { .text = WW_STR_INIT(TEXT_MAX) }, y = { .text = WW_STR_INIT(TEXT_MAX) };
	size_t i = 0, k = 0;

	*n = 0;
	WW_CHECK(split(&x, a, err));
	WW_CHECK(split(&y, b, err));
	while (i < x.n || k < y.n) {
		int c = i == x.n ? 1 : k == y.n ? -1 : strcmp(x.at[i], y.at[k]);
		*n += c != 0;
		i += c <= 0;
		k += c >= 0;
	}
	return WW_OK;
}
