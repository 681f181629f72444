/* tok_split.c - cuts text into the words that BPE works on.
 *
 * The patterns of tokenizer.json are written for Oniguruma; PCRE2 reads nearly the same language.  Where the two mean
 * different sets, the pattern is rewritten before it is compiled: \s is the White_Space property (PCRE2's own \s also
 * holds U+180E), \w is letters, marks, decimal digits and connectors, \h, which is a hexadecimal digit there and a
 * space here, is refused, as is everything else that would silently mean something else.
 *
 * A pattern from a file can backtrack without end, so each match has a budget; exceeding it is an error.
 */
#include "nn/tok_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MATCH_LIMIT = 50000000, PATTERN_MAX = 65536 };

/* Escapes that mean different sets in the two languages. */
static enum ww_rc rewrite_escape(struct ww_str *out, char c, int in_class, const char *what, struct ww_err *err)
{
	switch (c) {
	case 's': ww_str_adds(out, "\\p{White_Space}"); return WW_OK;
	case 'S': ww_str_adds(out, "\\P{White_Space}"); return WW_OK;
	case 'w': ww_str_adds(out, in_class ? "\\p{L}\\p{M}\\p{Nd}\\p{Pc}" : "[\\p{L}\\p{M}\\p{Nd}\\p{Pc}]"); return WW_OK;
	case 'W':
		if (in_class)
			break;
		ww_str_adds(out, "[^\\p{L}\\p{M}\\p{Nd}\\p{Pc}]");
		return WW_OK;
	case 'h':
	case 'H':
	case 'b':
	case 'B':
	case 'R':
	case 'X':
	case 'y':
	case 'Y':
	case 'K':
	case 'k':
	case 'g':
	case 'c':
	case 'C':
	case 'M':
	case 'O':
	case 'N':
	case 'G':
	case 'Q':
	case 'E':
	case 'v': break;
	default:
		ww_str_addc(out, '\\');
		ww_str_addc(out, c);
		return WW_OK;
	}
	return ww_err_set(err, WW_ERR_USAGE, "%s: a split pattern uses \\%c, which is not supported", what, c);
}

static enum ww_rc rewrite(const char *p, struct ww_str *out, const char *what, struct ww_err *err)
{
	int in_class = 0;
	for (; *p; p++) {
		if (*p == '\\' && p[1]) {
			WW_CHECK(rewrite_escape(out, *++p, in_class, what, err));
			if (strchr("pPx", *p) && p[1] == '{' && strchr(p, '}')) /* these braces are no quantifier */
				do
					ww_str_addc(out, *++p);
				while (*p != '}');
			continue;
		}
		if (in_class && (*p == '[' || (*p == '&' && p[1] == '&')))
			return ww_err_set(
				err, WW_ERR_USAGE, "%s: a split pattern nests or intersects classes, which is not supported", what);
		if (!in_class && p[0] == '(' && p[1] == '?' && memchr(p + 2, 'm', strspn(p + 2, "imsx-")))
			return ww_err_set(err, WW_ERR_USAGE, "%s: a split pattern sets the flag m, which is not supported", what);
		if (!in_class && *p == '}' && p[1] == '+')
			return ww_err_set(err, WW_ERR_USAGE, "%s: a split pattern uses {..}+, which is not supported", what);
		if (*p == '[') {
			in_class = 1;
			ww_str_addc(out, *p);
			if (p[1] == '^')
				ww_str_addc(out, *++p);
			continue;
		}
		if (*p == ']')
			in_class = 0;
		ww_str_addc(out, *p);
	}
	return out->cut ? ww_err_set(err, WW_ERR_LIMIT, "%s: a split pattern is too long", what) : WW_OK;
}

enum ww_rc ww_tok_step_init(
	struct ww_tok_step *s, const char *pattern, int literal, const char *what, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(PATTERN_MAX);
	enum ww_rc rc = WW_OK;
	int code;
	PCRE2_SIZE at;
	if (literal)
		ww_str_adds(&text, pattern);
	else
		WW_TRY(rewrite(pattern, &text, what, err));
	if (!text.len || text.cut) {
		rc = ww_err_set(err, WW_ERR_USAGE, "%s: a split pattern is empty or too long", what);
		goto out;
	}
	s->code = pcre2_compile((PCRE2_SPTR)text.p, text.len,
		PCRE2_UTF | PCRE2_NO_UTF_CHECK | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE), &code, &at, NULL);
	if (!s->code) {
		char msg[160];
		pcre2_get_error_message(code, (PCRE2_UCHAR *)msg, sizeof(msg));
		rc = ww_err_set(err, WW_ERR_USAGE, "%s: a split pattern is not understood: %s (at %zu of \"%.200s\")", what,
			msg, (size_t)at, text.p);
		goto out;
	}
	uint32_t empty = 0;
	pcre2_pattern_info(s->code, PCRE2_INFO_MATCHEMPTY, &empty);
	if (empty) {
		rc = ww_err_set(err, WW_ERR_USAGE, "%s: a split pattern matches the empty text", what);
		goto out;
	}
	pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE); /* where it cannot, matching is only slower */
out:
	if (rc != WW_OK)
		ww_tok_step_release(s);
	return rc;
}

void ww_tok_step_release(struct ww_tok_step *s)
{
	pcre2_code_free(s->code);
	s->code = NULL;
}

static int push(struct ww_tok_pieces *v, size_t begin, size_t end)
{
	if (begin == end)
		return 1;
	if (!WW_GROW(v->p, &v->cap, v->n + 1))
		return 0;
	v->p[v->n++] = (struct ww_tok_piece){ (uint32_t)begin, (uint32_t)end };
	return 1;
}

/* What the behaviours of a split remember from part to part. */
struct splitter {
	const struct ww_tok_step *step;
	struct ww_tok_pieces *out;
	size_t first;      /* pieces before this one belong to the piece split before */
	int previous, any; /* whether the last part was a match, and whether there was one */
};

static int join_last(struct splitter *s, size_t begin, size_t end)
{
	if (s->out->n == s->first || begin == end)
		return push(s->out, begin, end);
	s->out->p[s->out->n - 1].end = (uint32_t)end;
	return 1;
}

static int part(struct splitter *s, size_t begin, size_t end, int is_match)
{
	int ok = 1, was = s->previous;
	if (begin == end)
		return 1;
	is_match ^= s->step->invert;
	s->previous = is_match;
	switch (s->step->behavior) {
	case WW_SPLIT_REMOVED: return is_match ? 1 : push(s->out, begin, end);
	case WW_SPLIT_ISOLATED: return push(s->out, begin, end);
	case WW_SPLIT_CONTIGUOUS:
		ok = s->any && is_match == was ? join_last(s, begin, end) : push(s->out, begin, end);
		break;
	case WW_SPLIT_PREVIOUS: ok = is_match && !was ? join_last(s, begin, end) : push(s->out, begin, end); break;
	case WW_SPLIT_NEXT:
		/* A part after a match that was pushed alone joins it; of several matches in a row only the last one is joined.
		 */
		ok = !is_match && was ? join_last(s, begin, end) : push(s->out, begin, end);
		break;
	}
	s->any = 1;
	return ok;
}

static enum ww_rc match_error(int code, struct ww_err *err)
{
	char msg[160];
	pcre2_get_error_message(code, (PCRE2_UCHAR *)msg, sizeof(msg));
	return ww_err_set(err, WW_ERR_LIMIT, "the tokenizer's split pattern failed on this text: %s", msg);
}

static enum ww_rc split_piece(struct ww_tok *t, const struct ww_tok_step *step, const char *text,
	struct ww_tok_piece in, struct ww_tok_pieces *out, struct ww_err *err)
{
	const char *base = text + in.begin;
	size_t n = in.end - in.begin, from = 0, done = 0;
	struct splitter s = { step, out, out->n, 0, 0 };
	while (from < n) {
		int rc = pcre2_match(
			step->code, (PCRE2_SPTR)base, n, from, PCRE2_NO_UTF_CHECK, t->match_data, t->match_context);
		if (rc == PCRE2_ERROR_NOMATCH)
			break;
		if (rc < 0)
			return match_error(rc, err);
		const PCRE2_SIZE *v = pcre2_get_ovector_pointer(t->match_data);
		if (v[1] <= v[0] || v[0] < from) /* only a lookaround could */
			return ww_err_set(err, WW_ERR_USAGE, "the tokenizer's split pattern matches nothing at all");
		if (!part(&s, in.begin + done, in.begin + v[0], 0) || !part(&s, in.begin + v[0], in.begin + v[1], 1))
			return ww_nomem(err);
		done = from = v[1];
	}
	if (!part(&s, in.begin + done, in.end, 0))
		return ww_nomem(err);
	return WW_OK;
}

enum ww_rc ww_tok_split(struct ww_tok *t, const char *text, size_t n, struct ww_err *err)
{
	if (!t->match_context) {
		t->match_context = pcre2_match_context_create(NULL);
		t->match_data = pcre2_match_data_create(32, NULL);
		if (!t->match_context || !t->match_data)
			return ww_nomem(err);
		pcre2_set_match_limit(t->match_context, MATCH_LIMIT);
	}
	t->pieces.n = 0;
	if (!push(&t->pieces, 0, n))
		return ww_nomem(err);
	for (size_t i = 0; i < t->step_count; i++) {
		t->spare.n = 0;
		for (size_t k = 0; k < t->pieces.n; k++) {
			WW_CHECK(split_piece(t, &t->steps[i], text, t->pieces.p[k], &t->spare, err));
		}
		struct ww_tok_pieces swap = t->pieces;
		t->pieces = t->spare;
		t->spare = swap;
	}
	return WW_OK;
}
