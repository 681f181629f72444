/* share.c - one text for kernels that do the same to other buffers.
 *
 * A network repeats its blocks: of twenty convolutions with the same shape and the same operations behind them only the
 * buffers differ, and those are arguments.  Compiling each costs seconds and, on cuda, megabytes of a binary whose size
 * is limited.  So a kernel whose text equals an earlier one's, up to names that mean nothing, is not written; its
 * launch names the earlier one.
 *
 * Names that mean nothing are the kernel's own (k7, k7_f, k7_BN), those of its arguments (the order counts) and of its
 * variables (the order of their first appearance counts).  The launches must be equal as well, up to the buffers: what
 * a recipe makes of sizes and knobs are macros of the kernel, so equal calls define equal values, which ww_define()
 * takes twice.
 *
 * Which kernels are shared follows from the texts alone, so the knobs of one of them, once changed, give it a text of
 * its own. */
#include "policy/planner/planner.h"

#include <ctype.h>
#include <string.h>

struct canon {
	struct pl *pl;
	const struct kern *k;
	struct ww_str out;
	const char *local[1024]; /* variables, by first appearance */
	int n_local;
};

static int is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* "i12", "i12_0", "g7", "half3": a letter or word of the planner's own and a running number.  What follows the number,
 * or NULL. */
static const char *after_local(const char *w, int in_launch)
{
	const char *d = *w == 'i' || *w == 'g' ? w + 1 : in_launch && !strncmp(w, "half", 4) ? w + 4 : NULL;
	size_t digits = d ? strspn(d, "0123456789") : 0;

	return digits && (!d[digits] || d[digits] == '_') ? d + digits : NULL;
}

/* What follows the kernel's name in w ("", "_BN"), or NULL. */
static const char *after_name(const char *w, const char *name)
{
	size_t n = strlen(name);

	return strncmp(w, name, n) || (w[n] && w[n] != '_') ? NULL : w + n;
}

static int is_buffer(struct pl *pl, const char *w)
{
	for (int i = 0; i < pl->n_buf; i++)
		if (!strcmp(pl->buf[i]->name, w))
			return 1;
	return 0;
}

static void add_local(struct canon *c, const char *w)
{
	int i = 0;

	while (i < c->n_local && strcmp(c->local[i], w))
		i++;
	if (i == c->n_local && c->n_local < (int)WW_ARRAY_LEN(c->local))
		c->local[c->n_local++] = w;
	ww_str_addf(&c->out, "<%d>", i);
}

static void add_word(struct canon *c, const char *w, int in_launch)
{
	const char *rest = after_name(w, c->k->name);

	if (rest) {
		ww_str_addf(&c->out, "<k>%s", rest);
		return;
	}
	for (int i = 0; i < c->k->n_arg && !in_launch; i++)
		if (!strcmp(c->k->arg[i]->name, w)) {
			ww_str_addf(&c->out, "<arg%d>", i);
			return;
		}
	if (in_launch && is_buffer(c->pl, w)) {
		ww_str_adds(&c->out, "<buf>");
	} else if ((rest = after_local(w, in_launch))) {
		add_local(c, pl_fmt(c->pl, "%.*s", (int)(rest - w), w));
		ww_str_adds(&c->out, rest);
	} else {
		ww_str_adds(&c->out, w);
	}
}

/* The text with meaningless names made equal; comments are left out.  A buffer is its handle in a launch ("x->buf" or
 * "t3"). */
static const char *canonical(struct pl *pl, const struct kern *k, const char *s, int in_launch)
{
	struct canon c = { .pl = pl, .k = k, .out = pl_text(pl) };
	const char *r;

	while (*s) {
		const char *end = s;

		if (!strncmp(s, "/*", 2) && (end = strstr(s, "*/"))) {
			s = end + 2;
			continue;
		}
		if (!strncmp(s, "->buf", 5) && in_launch && !is_word(s[5])) {
			s += 5;
			continue;
		}
		while (is_word(*end))
			end++;
		if (end == s) {
			ww_str_addc(&c.out, *s++);
			continue;
		}
		add_word(&c, pl_fmt(pl, "%.*s", (int)(end - s), s), in_launch);
		s = end;
	}
	r = c.out.cut ? NULL : pl_fmt(pl, "%s", c.out.p);
	ww_str_release(&c.out);
	return r;
}

/* The launch of k, of the kernel `other`. */
static const char *renamed(struct pl *pl, const struct kern *k, const struct kern *other)
{
	struct ww_str out = pl_text(pl);
	const char *s = k->launch, *r;

	while (*s) {
		const char *end = s, *rest, *w;

		while (is_word(*end))
			end++;
		if (end == s) {
			ww_str_addc(&out, *s++);
			continue;
		}
		w = pl_fmt(pl, "%.*s", (int)(end - s), s);
		rest = after_name(w, k->name);
		ww_str_adds(&out, rest ? other->name : "");
		ww_str_adds(&out, rest ? rest : w);
		s = end;
	}
	r = pl_fmt(pl, "%s", out.p);
	ww_str_release(&out);
	return r;
}

int pl_share_kernel(struct pl *pl, struct kern *k, const char *text)
{
	k->same_text = canonical(pl, k, text, 0);
	k->same_launch = canonical(pl, k, k->launch, 1);
	for (int i = 0; i < k->id && k->same_text && k->same_launch; i++) {
		const struct kern *o = pl->kern[i];

		if (o->shared || !o->same_text || !o->same_launch || strcmp(o->same_text, k->same_text) ||
			strcmp(o->same_launch, k->same_launch))
			continue;
		k->launch = renamed(pl, k, o);
		k->shared = o->name;
		return 1;
	}
	return 0;
}
