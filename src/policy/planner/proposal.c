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

void pl_renumber(struct ww_str *out, const char *text)
{
	static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
	ww_auto_free int *name = calloc(MOST_INDICES, sizeof(*name));
	int n = 0;

	for (const char *p = text; name && *p;) {
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

static void split(struct lines *l, const char *text)
{
	*l = (struct lines){ .text = WW_STR_INIT(TEXT_MAX) };
	pl_renumber(&l->text, text);
	l->at = calloc(l->text.len + 1, sizeof(*l->at));
	for (char *p = l->text.p, *end; l->at && p && *p; p = end) {
		end = p + strcspn(p, "\n");
		if (*end)
			*end++ = 0;
		l->at[l->n++] = p;
	}
	if (l->n)
		qsort(l->at, l->n, sizeof(*l->at), by_text);
}

int pl_text_distance(const char *a, const char *b)
{
	struct lines x, y;
	size_t i = 0, k = 0;
	int n = 0;

	split(&x, a);
	split(&y, b);
	while (i < x.n || k < y.n) {
		int c = i == x.n ? 1 : k == y.n ? -1 : strcmp(x.at[i], y.at[k]);
		n += c != 0;
		i += c <= 0;
		k += c >= 0;
	}
	free(x.at);
	free(y.at);
	ww_str_release(&x.text);
	ww_str_release(&y.text);
	return n;
}
