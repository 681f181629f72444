/* json_read.c - JSON text to jansson's values, for text that is right.
 *
 * jansson reads a byte at a time through a function pointer, about a hundred instructions each: a third of a millisecond for a
 * solution of 10 KB, in the one thread that serves all clients.  This reader takes a string's bytes in runs.
 *
 * It only ever says yes.  What it does not take (an error, a number beyond int64, a depth that jansson would refuse, no memory)
 * it leaves, and jansson reads the same text from its start: so jansson alone decides what is refused, and its messages are the
 * ones that users see.  What it does take, it must read as jansson does with JSON_REJECT_DUPLICATES | JSON_DECODE_ANY; a
 * test compares the two on texts that are damaged at random.
 *
 * Rejected: yyjson or simdjson.  Their values are not jansson's, which everything here is written for.
 */
#include "base/json_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 256, INTEGER_DIGITS = 18, NUMBER_BYTES = 64, KEY_BYTES = 64 };

struct reader {
	const char *p, *end;
	char *text;			/* a string with escapes, decoded: room for as many bytes as the whole has, or NULL */
	size_t text_bytes;
};
struct span {
	const char *p;			/* NULL: no string */
	size_t n;
	unsigned char bits;		/* of all its bytes: below 128, it is ASCII */
};

static json_t *read_value(struct reader *r, int depth);

static void skip_blanks(struct reader *r)
{
	while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
		r->p++;
}

/* Skips blanks; is this the next byte?  Then it is taken. */
static int take(struct reader *r, char c)
{
	skip_blanks(r);
	if (r->p == r->end || *r->p != c)
		return 0;
	r->p++;
	return 1;
}

/* ---- Strings ------------------------------------------------------------------------------------------------------- */

static int hex4(struct reader *r, unsigned *out)
{
	*out = 0;
	if (r->end - r->p < 4)
		return 0;
	for (int i = 0; i < 4; i++) {
		char c = *r->p++;
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
		if (digit < 0)
			return 0;
		*out = *out << 4 | (unsigned)digit;
	}
	return 1;
}

/* After "\u": the bytes in UTF-8, 0: none. */
static size_t unicode(struct reader *r, char *out)
{
	unsigned c, low;
	if (!hex4(r, &c) || !c || (c >= 0xdc00 && c < 0xe000))
		return 0;
	if (c >= 0xd800 && c < 0xdc00) {
		if (r->end - r->p < 2 || *r->p++ != '\\' || *r->p++ != 'u' || !hex4(r, &low) || low < 0xdc00 || low > 0xdfff)
			return 0;
		c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
	}
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i; i--, c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xff) | c);
	return n;
}

/* After a backslash: likewise. */
static size_t escape(struct reader *r, char *out)
{
	char c = r->p < r->end ? *r->p++ : 0;
	switch (c) {
	case 'n': *out = '\n'; return 1;
	case 't': *out = '\t'; return 1;
	case 'r': *out = '\r'; return 1;
	case 'b': *out = '\b'; return 1;
	case 'f': *out = '\f'; return 1;
	case '"': case '\\': case '/': *out = c; return 1;
	case 'u': return unicode(r, out);
	default: return 0;
	}
}

/* After the opening quote: the string's bytes, in the text itself or decoded; in both cases until the next string is read. */
static struct span string_bytes(struct reader *r)
{
	const char *from = r->p, *p = from, *end = r->end;
	struct span s = { 0 }, none = { 0 };
	size_t n;
	for (;;) {
		for (; p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 32; p++)
			s.bits |= (unsigned char)*p;
		r->p = p + 1;
		if (p == end || (unsigned char)*p < 32)
			return none;
		if (*p == '"' && !s.p)
			return (struct span){ from, (size_t)(p - from), s.bits };
		if (!r->text && !(r->text = malloc(r->text_bytes)))
			return none;
		s.p = r->text;
		memcpy(r->text + s.n, from, (size_t)(p - from));
		s.n += (size_t)(p - from);
		if (*p == '"')
			return s;
		if (!(n = escape(r, r->text + s.n)))
			return none;
		for (; n; n--)
			s.bits |= (unsigned char)r->text[s.n++];
		from = p = r->p;
	}
}

/* jansson says what is UTF-8. */
static json_t *read_string(struct reader *r)
{
	struct span s = string_bytes(r);
	return !s.p ? NULL : s.bits < 128 ? json_stringn_nocheck(s.p, s.n) : json_stringn(s.p, s.n);
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------- */

static size_t digits(const char **p, const char *end)
{
	const char *from = *p;
	while (*p < end && **p >= '0' && **p <= '9')
		(*p)++;
	return (size_t)(*p - from);
}

static json_t *read_real(const char *from, const char *end)
{
	char text[NUMBER_BYTES];
	size_t n = (size_t)(end - from);
	if (n >= sizeof(text))
		return NULL;
	memcpy(text, from, n);
	text[n] = 0;
	errno = 0;
	double v = strtod(text, NULL);
	return errno == ERANGE ? NULL : json_real(v);
}

static json_t *read_number(struct reader *r)
{
	const char *from = r->p, *p = from + (*from == '-'), *first = p;
	size_t n = digits(&p, r->end);
	if (!n || (n > 1 && *first == '0'))
		return NULL;
	int real = p < r->end && (*p == '.' || *p == 'e' || *p == 'E');
	if (p < r->end && *p == '.' && (p++, !digits(&p, r->end)))
		return NULL;
	if (real && p < r->end && (*p == 'e' || *p == 'E')) {
		p++;
		p += p < r->end && (*p == '+' || *p == '-');
		if (!digits(&p, r->end))
			return NULL;
	}
	r->p = p;
	if (real)
		return read_real(from, p);
	int64_t v = 0;
	if (n > INTEGER_DIGITS)
		return NULL;
	for (; first < p; first++)
		v = v * 10 + (*first - '0');
	return json_integer(*from == '-' ? -v : v);
}

/* ---- Containers ---------------------------------------------------------------------------------------------------- */

static int read_member(struct reader *r, json_t *o, int depth)
{
	struct span key = { 0 };
	if (take(r, '"'))
		key = string_bytes(r);
	if (!key.p || json_object_getn(o, key.p, key.n))
		return 0;
	char kept[KEY_BYTES], *copy = NULL;
	if (key.p == r->text) {		/* the value's strings use that room too */
		copy = key.n < sizeof(kept) ? kept : malloc(key.n);
		if (!copy)
			return 0;
		memcpy(copy, key.p, key.n);
		key.p = copy;
	}
	json_t *v = take(r, ':') ? read_value(r, depth) : NULL;
	int good = v && !json_object_setn_new(o, key.p, key.n, v);
	if (copy != kept)
		free(copy);
	return good;
}

static json_t *read_object(struct reader *r, int depth)
{
	json_t *o = json_object();
	if (take(r, '}'))
		return o;
	do
		if (!o || !read_member(r, o, depth)) {
			json_decref(o);
			return NULL;
		}
	while (take(r, ','));
	if (take(r, '}'))
		return o;
	json_decref(o);
	return NULL;
}

static json_t *read_array(struct reader *r, int depth)
{
	json_t *a = json_array();
	if (take(r, ']'))
		return a;
	do
		if (!a || json_array_append_new(a, read_value(r, depth))) {
			json_decref(a);
			return NULL;
		}
	while (take(r, ','));
	if (take(r, ']'))
		return a;
	json_decref(a);
	return NULL;
}

static json_t *read_word(struct reader *r, const char *word, json_t *v)
{
	size_t n = strlen(word);
	if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n))
		return NULL;
	r->p += n;
	return v;
}

static json_t *read_value(struct reader *r, int depth)
{
	skip_blanks(r);
	if (r->p == r->end || depth == DEPTH)
		return NULL;
	switch (*r->p) {
	case '{': r->p++; return read_object(r, depth + 1);
	case '[': r->p++; return read_array(r, depth + 1);
	case '"': r->p++; return read_string(r);
	case 't': return read_word(r, "true", json_true());
	case 'f': return read_word(r, "false", json_false());
	case 'n': return read_word(r, "null", json_null());
	default: return read_number(r);
	}
}

json_t *ww_json_read(const char *text, size_t n)
{
	struct reader r = { .p = text, .end = text + n, .text_bytes = n };
	json_t *v = read_value(&r, 0);
	skip_blanks(&r);
	if (v && r.p != r.end) {
		json_decref(v);
		v = NULL;
	}
	free(r.text);
	return v;
}
